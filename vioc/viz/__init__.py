"""Pictures of trajectories, animations, and the browser viewer; what draws is imported when one is made."""

from vioc.viz.animation import animate
from vioc.viz.plots import (
    plot_attraction,
    plot_batch,
    plot_comparison,
    plot_constraints,
    plot_convergence,
    plot_covariance,
    plot_energy,
    plot_frequency_response,
    plot_gains,
    plot_gramian,
    plot_inputs,
    plot_level,
    plot_multipliers,
    plot_orders,
    plot_phase,
    plot_poles,
    plot_sweep,
    plot_trajectory,
)
from vioc.viz.viewer import view

__all__ = [
    "animate",
    "plot_attraction",
    "plot_batch",
    "plot_comparison",
    "plot_constraints",
    "plot_convergence",
    "plot_covariance",
    "plot_energy",
    "plot_frequency_response",
    "plot_gains",
    "plot_gramian",
    "plot_inputs",
    "plot_level",
    "plot_multipliers",
    "plot_orders",
    "plot_phase",
    "plot_poles",
    "plot_sweep",
    "plot_trajectory",
    "view",
]
