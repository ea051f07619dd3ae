"""Generation of C99 code and FMUs from controllers and maps, and real-time loops.

How to: docs/target.md.
"""

from vioc.target.emit import Operations
from vioc.target.fmu import write_fmu
from vioc.target.folder import Target, write_target
from vioc.target.rate import LoopTimes, run_at

__all__ = ["LoopTimes", "Operations", "Target", "run_at", "write_fmu", "write_target"]
