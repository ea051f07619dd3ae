"""Parameter sweeps, multi-start and Monte Carlo over any `concurrent.futures` executor."""

from vioc.control.sweep.points import grid, zipped
from vioc.control.sweep.run import Outcome, Sweep, SweepProgress, sweep
from vioc.control.sweep.store import Store

__all__ = ["Outcome", "Store", "Sweep", "SweepProgress", "grid", "sweep", "zipped"]
