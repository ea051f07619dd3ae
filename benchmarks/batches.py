"""Independent rollouts, one after another and by threads on all cores."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from benchmarks import problems
from benchmarks.harness import Bench, Row


def batches(bench: Bench) -> Iterator[Row]:
    """Compiled code runs outside Python's global lock; the virtual machine does not."""
    count, steps = (4, 20) if bench.quick else (64, 500)
    cores = os.cpu_count() or 1
    for threads in (1, cores):

        def batch(backend: str, threads: int = threads) -> Callable[[], Any]:
            f, x0 = problems.pendulum(10, backend)
            starts = x0 + 0.1 * np.random.default_rng(0).standard_normal((count, f.nx))

            def run() -> None:
                with ThreadPoolExecutor(threads) as pool:
                    list(pool.map(lambda x: f.rollout(x, steps=steps, warn=False), starts))

            return run

        name = f"{count} rollouts of {steps} steps, 10 links, {threads} thread{'s' * (threads > 1)}"
        yield Row(name, "us a step", bench.each(batch, 1e6 / count / steps, time.perf_counter))
