"""``python -m benchmarks``: one run, one table. Best of several, building excluded, one core.

Times depend on the machine; the ratios to other integrators are of the same run.
"""

from __future__ import annotations

import argparse
import platform
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import casadi as ca
import numpy as np
import scipy
from scipy.integrate import solve_ivp

import vioc
from vioc.dynamics.consistency import consistent_configuration
from vioc.dynamics.lagrangian import OPTIONS, Lagrangian

DT = 0.01  # s
STEPS = 2000
LINKS = (1, 3, 10, 40)
TARGETS = {1: "3", 10: "60 (stretch 20)"}  # us per step


class Row(NamedTuple):
    """One line of the table."""

    name: str
    value: float
    unit: str
    target: str = ""


def best_of(function: Callable[[], Any], seconds: float = 1.0) -> float:
    """Least time of a call, s; one call first, for what is built on demand."""
    function()
    times: list[float] = []
    while len(times) < 3 or sum(times) < seconds:
        before = time.perf_counter()
        function()
        times.append(time.perf_counter() - before)
    return min(times)


def pendulum(n: int) -> tuple[vioc.MidpointVI, np.ndarray]:
    """The n-link pendulum of [T] VI-A at its start: the top link at 45 degrees."""
    f = vioc.MidpointVI(vioc.models.load("n_link_pendulum", n), DT)
    return f, f.initial_state({"link-0": np.pi / 4})


def rollouts() -> Iterator[Row]:
    for n in LINKS:
        f, x0 = pendulum(n)
        us = 1e6 * best_of(lambda f=f, x0=x0: f.rollout(x0, steps=STEPS)) / STEPS  # type: ignore[misc]
        yield Row(f"step, {n}-link pendulum", us, "us", TARGETS.get(n, ""))
    f = vioc.MidpointVI(vioc.models.load("closed_chain"), DT)
    guess = {"J": -0.62, "H": 1.35, "K": 0.1, "M": -1.34, "A": 0.04, "C": 1.28, "E": 0.93}
    x0 = f.initial_state(consistent_configuration(f.system, guess).q)
    yield Row("step, closed chain of [T]", 1e6 * best_of(lambda: f.rollout(x0, steps=STEPS)) / STEPS, "us")


def derivatives() -> Iterator[Row]:
    steps = 200
    for n in LINKS:
        f, x0 = pendulum(n)
        run = f.rollout(x0, steps=steps)
        Z = np.random.default_rng(0).standard_normal((steps, f.ndx))
        first = best_of(lambda f=f, run=run: f.linearize_trajectory(run))  # type: ignore[misc]
        second = best_of(lambda f=f, run=run, Z=Z: f.second_order_trajectory(run, Z))  # type: ignore[misc]
        yield Row(f"A, B per step, {n}-link pendulum", 1e6 * first / steps, "us")
        yield Row(f"z-contracted second order per step, {n}-link pendulum", 1e6 * second / steps, "us")


def optimizations() -> Iterator[Row]:
    f = vioc.MidpointVI(vioc.models.load("pendulum"), 0.1, forcing="left")
    steps = 100
    reference = np.zeros((steps + 1, 2))
    reference[steps // 2 :, 0] = np.pi
    Q = np.diag([1000.0, 1.0])
    cost = vioc.control.quadratic(f, Q=Q, R=50.0, Qf=Q, reference=reference, per_time=False)

    def swing() -> vioc.control.Result:
        start = np.zeros(2)
        return vioc.control.optimize(f, cost, x0=start, steps=steps, warmup=4, projection=(1.0, 1.0))

    yield Row(f"pendulum of [S] VIII-A, {swing().iterations} iterations", 1e3 * best_of(swing), "ms")

    g = vioc.MidpointVI(vioc.models.load("cart_pole"), DT)
    horizon = 200
    running = {"x": 0.1, "theta": 0.1, "v.x": 0.01, "v.theta": 0.01}
    terminal = {"x": 1e3, "theta": 1e3, "v.x": 1e2, "v.theta": 1e2}
    swing_up = vioc.control.quadratic(g, Q=running, R={"force": 0.01}, Qf=terminal)
    line = vioc.control.straight_line(g.initial_state({"theta": np.pi}), g.initial_state(), horizon)

    def cart_pole() -> vioc.control.Result:
        return vioc.control.optimize(g, swing_up, (line, np.zeros((horizon, 1))), max_iterations=1000)

    yield Row(f"cart-pole swing-up, {cart_pole().iterations} iterations", 1e3 * best_of(cart_pole), "ms")


def comparisons() -> Iterator[Row]:
    """The same motion by other integrators, compiled to the same virtual machine or by scipy."""
    for n in (1, 3, 10):
        f, x0 = pendulum(n)
        rate = continuous(f.lagrangian)
        rk4 = runge_kutta(rate, f)
        v0 = np.concatenate([x0[:n], np.zeros(n)])
        ours = best_of(lambda f=f, x0=x0: f.rollout(x0, steps=STEPS))  # type: ignore[misc]
        theirs = best_of(lambda rk4=rk4, v0=v0: rk4.rollout(v0, steps=STEPS))  # type: ignore[misc]
        yield Row(f"explicit Runge-Kutta 4 / ours, same step (not accuracy), {n} links", theirs / ours, "x")
    yield from against_scipy(3, 2.0)


def against_scipy(n: int, duration: float) -> Iterator[Row]:
    """scipy's RK45 at the loosest tolerance that is as accurate at the end as ours."""
    f, x0 = pendulum(n)
    rate = continuous(f.lagrangian)
    v0 = np.concatenate([x0[:n], np.zeros(n)])
    steps = round(duration / DT)

    def solve(method: str, tolerance: float) -> np.ndarray:
        options = dict(method=method, rtol=tolerance, atol=tolerance)
        return solve_ivp(lambda _, y: rate(y).full()[:, 0], (0, duration), v0, **options).y[:n, -1]

    truth = solve("DOP853", 1e-12)
    ours = np.abs(f.rollout(x0, steps=steps).x[-1, :n] - truth).max()
    tolerance = 1e-3
    while np.abs(solve("RK45", tolerance) - truth).max() > ours:
        tolerance /= 2
    ratio = best_of(lambda: solve("RK45", tolerance)) / best_of(lambda: f.rollout(x0, steps=steps))
    yield Row(
        f"scipy RK45 (rtol {tolerance:.1g}, error {ours:.1g}) / ours, {n} links, {duration:g} s", ratio, "x"
    )


def continuous(lag: Lagrangian) -> ca.Function:
    """(q, v) -> (v, dv) of an unforced, unconstrained system: M dv = L_q - (dL_v/dq) v."""
    g = lag.graph
    _, C, M = lag.second
    dv = ca.ldl_solve(lag.L_q - C @ g.v_vector, *ca.ldl(M))
    y = ca.vertcat(g.q_vector, g.v_vector)
    return ca.Function("rate", [y], [ca.densify(ca.vertcat(g.v_vector, dv))], OPTIONS)


def runge_kutta(rate: ca.Function, f: vioc.MidpointVI) -> vioc.CasadiMap:
    x = ca.SX.sym("x", f.nx)
    k1 = rate(x)
    k2 = rate(x + DT / 2 * k1)
    k3 = rate(x + DT / 2 * k2)
    x_next = x + DT / 6 * (k1 + 2 * k2 + 2 * k3 + rate(x + DT * k3))
    return vioc.CasadiMap(ca.Function("step", [x, ca.SX.sym("u", 0)], [x_next], OPTIONS), DT)


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table as it is measured."""
    argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__).parse_args(argv)
    versions = f"casadi {ca.__version__}, numpy {np.__version__}, scipy {scipy.__version__}"
    print(f"vioc {vioc.__version__}, Python {platform.python_version()}, {versions}, {platform.machine()}")
    print(f"rollouts of {STEPS} steps, dt = {DT:g} s, virtual machine\n")
    width = 66
    print(f"{'':<{width}}  {'measured':>10}      target")
    for group in (rollouts, derivatives, optimizations, comparisons):
        for row in group():
            print(f"{row.name:<{width}}  {row.value:>10.4g} {row.unit:<3} {row.target}".rstrip(), flush=True)
        print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
