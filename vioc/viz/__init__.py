"""Plots of trajectories, animations of mechanisms, and the browser viewer.

The libraries that draw are imported when a picture is made.
"""

from vioc.viz import plots
from vioc.viz.animation import animate
from vioc.viz.plots import *  # noqa: F403  (its names are listed there)
from vioc.viz.viewer import view

__all__ = ["animate", "view"]
__all__ += plots.__all__
