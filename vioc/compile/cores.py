"""Distribution of independent tasks over the machine's cores, by threads.

Threads suffice: CasADi's virtual machine, compiled functions and BLAS all release Python's lock. Results do
not depend on the number of threads.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import lru_cache
from itertools import pairwise
from typing import Any

VARIABLE = "VIOC_WORKERS"
WORTH = 5e-4  # shortest work of a thread, s; starting two costs about 0.1 ms
BLAS = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS")


def workers() -> int:
    """Return the number of worker threads for parallel tasks.
    It is the environment variable ``VIOC_WORKERS`` if set, else the number of available cores.
    """
    chosen = os.environ.get(VARIABLE, "")
    if chosen:
        try:
            return max(1, int(chosen))
        except ValueError:
            raise ValueError(f"{VARIABLE}: expected a number of threads, got {chosen!r}") from None
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def shares(n: int, least: int) -> list[slice]:
    """Split n rows into slices of about equal length, at most one for each thread.
    Every slice has at least `least` rows if n allows it.
    """
    count = n // least
    count = min(workers(), count) if count > 1 else 1
    ends = [n * i // count for i in range(count + 1)]
    return [slice(a, b) for a, b in pairwise(ends)]


def over_cores(work: Callable[[Any], Any], pieces: Sequence[Any], count: int | None = None) -> Iterable[Any]:
    """Apply a function to every piece of work on several cores; results are in order.

    The first exception is raised.
    """
    if len(pieces) <= 1:
        return map(work, pieces)
    count = min(workers() if count is None else count, len(pieces))
    if count <= 1:
        return map(work, pieces)
    return _pool(os.getpid(), count).map(work, pieces)


@contextmanager
def one_thread_each() -> Iterator[None]:
    """Limit processes started in this context to one thread each.
    The limits are environment variables of BLAS libraries and of vioc. Variables that are set already are
    kept.

    With one process per core, BLAS threads of each process compete for the cores: OpenBLAS's threads wait
    actively, and small problems take several times as long.
    """
    chosen = [name for name in (VARIABLE, *BLAS) if name not in os.environ]
    os.environ.update(dict.fromkeys(chosen, "1"))
    try:
        yield
    finally:
        for name in chosen:
            os.environ.pop(name, None)


@lru_cache(maxsize=4)
def _pool(_process: int, count: int) -> ThreadPoolExecutor:
    """Return a pool of `count` threads that is kept between calls.
    The process id is an argument so that a forked process makes a new pool.
    """
    return ThreadPoolExecutor(count, thread_name_prefix="vioc")
