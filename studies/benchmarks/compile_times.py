"""How long a first use takes: building the functions, and compiling them into an empty cache."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator

import numpy as np

from studies.benchmarks import problems
from studies.benchmarks.harness import COMPILED, Bench, Row
from vioc.compile.disk_cache import VARIABLE

TARGETS = {"step": 3.0, "A, B": 5.0, "second order": 20.0}  # s, compiled


def compile_times(bench: Bench) -> Iterator[Row]:
    """From the description to the first result, of each kind and of all before it."""
    n = 3 if bench.quick else 40
    figures: dict[str, dict[str, float]] = {kind: {} for kind in TARGETS}
    kept = os.environ.get(VARIABLE)
    for backend in bench.backends:
        with tempfile.TemporaryDirectory() as empty:
            os.environ[VARIABLE] = empty
            try:
                before = time.perf_counter()
                f, x0 = problems.pendulum(n, backend)
                run = f.rollout(x0, steps=4)
                figures["step"][backend] = time.perf_counter() - before
                f.linearize_trajectory(run)
                figures["A, B"][backend] = time.perf_counter() - before
                f.second_order_trajectory(run, np.ones((4, f.ndx)))
                figures["second order"][backend] = time.perf_counter() - before
            finally:
                os.environ.pop(VARIABLE)
                if kept is not None:
                    os.environ[VARIABLE] = kept
    bench.curves["compile"] = figures
    text = {"step": "step", "A, B": "step, A, B", "second order": "step, A, B, second order"}
    for kind, values in figures.items():
        yield Row(
            f"first use, {n} links: {text[kind]}",
            "s",
            values,
            {COMPILED: TARGETS[kind]},
            note="virtual machine: building the functions" if kind == "step" else "",
        )
