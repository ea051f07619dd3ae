"""Independent rollouts in one call, on one core and on all."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from benchmarks import problems
from benchmarks.harness import Bench, Row


def batches(bench: Bench) -> Iterator[Row]:
    """`rollouts`: threads, which compiled code and the virtual machine both let run side by side."""
    count, steps = (4, 20) if bench.quick else (64, 500)
    for workers in (1, os.cpu_count() or 1):

        def batch(backend: str, workers: int = workers) -> Callable[[], Any]:
            f, x0 = problems.pendulum(10, backend)
            starts = x0 + 0.1 * np.random.default_rng(0).standard_normal((count, f.nx))
            return lambda: f.rollouts(starts, steps=steps, workers=workers)

        name = f"{count} rollouts of {steps} steps, 10 links, {workers} thread{'s' * (workers > 1)}"
        yield Row(name, "us a step", bench.each(batch, 1e6 / count / steps, time.perf_counter))
