"""A sample of nonlinear MPC: the feedback phase in C and from Python, its worst cases, and the preparation.

Programs are recorded along closed loops, disturbed ones too, and solved again and again with a fixed number
of iterations; in C the clock is read around each of them. The work is the same in all of them: what the worst
sample takes more is the operating system's (notes have the 99.9th percentile too, and both by the thread's
processor time, in which nothing else runs but interrupts).
"""

from __future__ import annotations

import ctypes
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import vioc
from studies import arm_reaching, mpc_arm
from studies.benchmarks.harness import COMPILED, Bench, Row
from studies.mpc_cartpole import HANGING, cart, problem, rk4
from vioc.compile import find_compiler, load_library
from vioc.control import ClosedLoop, NonlinearMPC
from vioc.control.receding.stage_qp import StageQP

SAMPLES = 100_000  # solves that are timed in C
DRIVER = """
#include <time.h>
__attribute__((visibility("default")))
void qp_time(const qp_data *d, const double *x0, int count, int samples, int iterations, int clock,
             double *us) {
  static qp_state s;
  struct timespec a, b;
  int i;
  for (i = 0; i < samples; ++i) {
    clock_gettime(clock ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &a);
    qp_solve(d + i % count, &s, x0 + (i % count) * QP_NX, iterations, 0, 0);
    clock_gettime(clock ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &b);
    us[i] = 1e6 * (double)(b.tv_sec - a.tv_sec) + 1e-3 * (double)(b.tv_nsec - a.tv_nsec);
  }
}
"""


def arm_law(backend: str) -> tuple[NonlinearMPC, np.ndarray]:
    """Of `studies.mpc_arm`: towards a point within limits of torques and joints."""
    f = vioc.MidpointVI(vioc.models.seven_joint_arm(), mpc_arm.DT, backend=backend)
    return mpc_arm.law(f, native=backend == COMPILED), f.initial_state(arm_reaching.START)


def cart_law(backend: str) -> tuple[NonlinearMPC, np.ndarray]:
    return NonlinearMPC(problem(cart(rk4, backend=backend))), HANGING


CASES: dict[str, tuple[Callable[[str], tuple[NonlinearMPC, np.ndarray]], int, int, float, float]] = {
    # law, samples of a loop, iterations in C, variance of what disturbs the states, target in C (us)
    "cart-pole, 40 steps": (cart_law, 100, 9, 1e-4, 50.0),
    "7-DOF arm, 30 steps": (arm_law, 30, 11, 1e-6, 1000.0),
}


def recorded(law: NonlinearMPC, start: np.ndarray, samples: int, noise: float) -> tuple[Any, list, list]:
    """Programs of two loops, one disturbed: their data and first states; and the loops' runs."""
    data: list[np.ndarray] = []
    states: list[np.ndarray] = []
    qp, runs = law.program.qp, []
    solve = StageQP.solve

    def note(x0: Any, **options: Any) -> Any:
        data.append(qp.data.memory.copy())
        states.append(np.array(x0, float))
        return solve(qp, x0, **options)

    qp.solve = note  # type: ignore[method-assign]
    for W, seed in ((0.0, None), (noise, 0)):
        runs.append(ClosedLoop(law.map, law, W=W).simulate(start, samples, noise=seed))
    del qp.solve
    return qp, [np.array(data), np.array(states)], runs


def mpc(bench: Bench) -> Iterator[Row]:
    """Rows by problem: the feedback phase in C, from Python, and the preparation."""
    cases = list(CASES.items())[: 1 if bench.quick else None]
    for name, (make, samples, iterations, noise, target) in cases:
        feedback: dict[str, float] = {}
        prepare: dict[str, float] = {}
        for backend in bench.backends:
            law, start = make(backend)
            count = 10 if bench.quick else samples
            qp, (data, states), runs = recorded(law, start, count, noise)
            seconds = [v.seconds for r in runs for v in r.memory.verdicts]
            feedback[backend] = 1e6 * statistics.median(seconds)
            plan, times = law.begin(0, start)[0], []
            for _ in range(5):
                before = time.perf_counter()
                law.prepare(0, plan)
                times.append(time.perf_counter() - before)
            prepare[backend] = 1e3 * statistics.median(times)
            if backend == COMPILED and find_compiler() is not None:
                yield in_c(name, qp, data, states, 1000 if bench.quick else SAMPLES, iterations, target)
        none = sum(v.fallback for r in runs for v in r.memory.verdicts)
        yield Row(
            f"{name}: feedback phase from Python",
            "us",
            feedback,
            {"virtual": 3000.0, COMPILED: 300.0} if name.startswith("cart") else {},
            note=f"tolerance 1e-11; samples without an answer: {none}",
        )
        yield Row(f"{name}: preparation from Python", "ms", prepare)


def in_c(name: str, qp: StageQP, data: Any, states: Any, samples: int, iterations: int, target: float) -> Row:
    api = '__attribute__((visibility("default")))'
    library = load_library([qp.layout.source(api=api) + DRIVER], "times of a quadratic program")
    us, off = np.empty((2, samples)), 0.0
    arrays = [np.ascontiguousarray(a) for a in (data, states)]
    at = [a.ctypes.data_as(ctypes.c_void_p) for a in (*arrays, *us)]
    for clock in (0, 1):
        library.qp_time(*at[:2], len(states), samples, iterations, clock, at[2 + clock])
    other = StageQP(qp.layout, native=False)  # an active-set method: exact
    for memory, x0 in zip(data, states, strict=True):
        qp.data.memory[...] = other.data.memory[...] = memory
        other.prepare()
        exact, fixed = other.solve(x0), qp.solve(x0, iterations, 0.0)
        off = max(off, float(np.abs(fixed.u[0] - exact.u[0]).max()))
    (middle, late, worst), own = (np.quantile(t, [0.5, 0.999, 1.0]).tolist() for t in us)
    note = (
        f"{iterations} iterations, {len(states)} programs, {samples} samples: 99.9 % {late / middle:.2f}x, "
        f"worst {worst / middle:.1f}x the median, by processor time {own[1] / own[0]:.2f}x and "
        f"{own[2] / own[0]:.2f}x; first input {off:.1e} from the answer at most"
    )
    remark = (
        f"{iterations} iterations, {len(states)} programs; 99.9 % of {samples} samples within "
        f"{own[1] / own[0]:.2f}x the median processor time, all within {own[2] / own[0]:.2f}x; "
        f"input error {off:.1e}"
    )
    figures, targets = {COMPILED: middle}, {COMPILED: target}
    return Row(f"{name}: feedback phase in C", "us", figures, targets, note=note, remark=remark)
