"""Parameter sweeps, multi-start and Monte Carlo on parallel executors."""

from vioc.sweeps.points import grid, zipped
from vioc.sweeps.run import Outcome, Sweep, SweepProgress, sweep
from vioc.sweeps.store import Store

__all__ = ["Outcome", "Store", "Sweep", "SweepProgress", "grid", "sweep", "zipped"]
