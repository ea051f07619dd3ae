"""Controllers and maps for the machine: C99 folders, FMUs, loops at a rate. How to: docs/target.md."""

from vioc.control.target.emit import Operations
from vioc.control.target.folder import Target, write_target

__all__ = ["Operations", "Target", "write_target"]
