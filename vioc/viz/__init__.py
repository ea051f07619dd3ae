"""Pictures of trajectories; matplotlib is imported when one is made."""

from vioc.viz.animation import animate
from vioc.viz.plots import plot_convergence, plot_energy, plot_inputs, plot_trajectory

__all__ = ["animate", "plot_convergence", "plot_energy", "plot_inputs", "plot_trajectory"]
