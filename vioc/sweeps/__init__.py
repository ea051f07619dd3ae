"""Parameter sweeps, multi-start searches and Monte Carlo studies, run in parallel."""

from vioc.sweeps.run import Outcome, Sweep, SweepProgress, grid, sweep, zipped
from vioc.sweeps.store import Store

__all__ = ["Outcome", "Store", "Sweep", "SweepProgress", "grid", "sweep", "zipped"]
