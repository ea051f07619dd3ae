"""Plots of trajectories and other results, with quantities by name and units.

Each function takes `ax` and returns the axes it drew on. Usage and content of the plots: docs/pictures.md.
"""

from vioc.viz.plots.comparison import plot_comparison, plot_phase
from vioc.viz.plots.convergence import plot_convergence, plot_orders
from vioc.viz.plots.covariance_ellipses import plot_gramian, plot_level
from vioc.viz.plots.energy import plot_constraints, plot_energy
from vioc.viz.plots.fitted import plot_fitted
from vioc.viz.plots.linear_plots import plot_frequency_response, plot_gains, plot_poles
from vioc.viz.plots.loop_times import plot_loop_times
from vioc.viz.plots.maps import plot_attraction, plot_sweep
from vioc.viz.plots.spread import plot_batch, plot_covariance
from vioc.viz.plots.trajectories import plot_inputs, plot_multipliers, plot_trajectory

__all__ = [
    "plot_attraction",
    "plot_batch",
    "plot_comparison",
    "plot_constraints",
    "plot_convergence",
    "plot_covariance",
    "plot_energy",
    "plot_fitted",
    "plot_frequency_response",
    "plot_gains",
    "plot_gramian",
    "plot_inputs",
    "plot_level",
    "plot_loop_times",
    "plot_multipliers",
    "plot_orders",
    "plot_phase",
    "plot_poles",
    "plot_sweep",
    "plot_trajectory",
]
