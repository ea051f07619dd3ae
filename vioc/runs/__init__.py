"""Trajectories and batches, which are results of rollouts, and inputs of rollouts.

`trajectory` is one run and `batch` many, `signals` their inputs, `tables` and `files` their forms for other
tools and for storage. `given` converts arguments that may be a run or a state. No concrete map is imported
here.
"""

from vioc.runs.batch import Batch
from vioc.runs.tables import Table

__all__ = ["Batch", "Table"]
