"""Runs of maps: what goes into a rollout and what comes out of it.

`trajectory` is one run and `batch` many, `signals` their inputs, `tables` and `files` their forms for other
tools and for keeping. `given` is whatever is taken where a run or a state is. No map is known here but by its
type.
"""

from vioc.runs.batch import Batch
from vioc.runs.tables import Table

__all__ = ["Batch", "Table"]
