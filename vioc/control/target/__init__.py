"""Controllers and maps for the machine: C99 folders, FMUs, loops at a rate. How to: docs/target.md."""

from vioc.control.target.emit import Operations
from vioc.control.target.fmu import write_fmu
from vioc.control.target.folder import Target, write_target
from vioc.control.target.rate import LoopTimes, run_at

__all__ = ["LoopTimes", "Operations", "Target", "run_at", "write_fmu", "write_target"]
