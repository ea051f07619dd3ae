"""Swing-up of the cart-pole with a bounded force: the barrier path, the augmented Lagrangian, DDP, and IPOPT.

Cart 1 kg, pole 0.3 kg at 0.5 m, from hanging to upright in 2 s: minimize the sum of dt (1/2 x'Qx + 1/2 R u^2)
plus 1/2 x_N' Qf x_N with |u| <= 10 N, where the optimum without a limit takes 16 N. IPOPT solves the same
problem as a nonlinear program in states and inputs (DMOC, on the residual of the map); all others move along
rollouts.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

import vioc
from studies.harness import Claim, Report, Study, at_least, at_most, near
from vioc.control import Cost, Result, dmoc, optimize, quadratic, straight_line
from vioc.control.constrained import Augmented, Barrier, ConstrainedResult, optimize_constrained, polish
from vioc.control.ddp import optimize_ddp

DURATION = 2.0  # s
LIMIT = 10.0  # N
Q = {"x": 0.1, "theta": 0.1, "v.x": 0.01, "v.theta": 0.01}
QF = {"x": 1e3, "theta": 1e3, "v.x": 1e2, "v.theta": 1e2}
R = {"force": 0.01}
BOUNDS = {"u.force": LIMIT}
ORDER_OVER = 4  # last levels of the path
SAME = 1e-8

STUDY = Study(
    __file__,
    "cart-pole swing-up with a bounded force: barrier path, augmented Lagrangian, box-DDP against IPOPT",
    barrier_cost=Claim("barrier: cost over IPOPT's", at_most(1e-6)),
    barrier_order=Claim("barrier: order of the cost's error in eps", near(1, 0.05)),
    barrier_force=Claim("barrier: largest error of the force", at_most(1e-3), unit="N"),
    barrier_margin=Claim("barrier: least distance from the limit, over it", at_least(1e-12)),
    barrier_dual=Claim("barrier: largest error of a multiplier, over the largest", at_most(1e-3)),
    barrier_iterations=Claim("barrier: Newton steps on all levels"),
    barrier_ms=Claim("barrier: time", unit="ms", full_only=True),
    augmented_cost=Claim("augmented Lagrangian: |cost over IPOPT's|", at_most(SAME)),
    augmented_dual=Claim(
        "augmented Lagrangian: largest error of a multiplier, over the largest", at_most(1e-5)
    ),
    augmented_iterations=Claim("augmented Lagrangian: Newton steps on all levels"),
    augmented_ms=Claim("augmented Lagrangian: time", unit="ms", full_only=True),
    polish_iterations=Claim("polishing of IPOPT's solution: Newton steps", at_most(5)),
    polish_cost=Claim("polishing of IPOPT's solution: |cost over IPOPT's|", at_most(SAME)),
    ipopt_iterations=Claim("IPOPT: iterations"),
    ipopt_ms=Claim("IPOPT: time in the solver", unit="ms"),
    newton_cost=Claim("without limits, Newton from rest: |cost over multiple shooting's|", at_most(SAME)),
    newton_iterations=Claim("without limits, Newton from rest: iterations"),
    newton_ms=Claim("without limits, Newton from rest: time", unit="ms"),
    ddp_cost=Claim("without limits, DDP from rest: |cost over multiple shooting's|", at_most(SAME)),
    ddp_iterations=Claim("without limits, DDP from rest: iterations"),
    ddp_ms=Claim("without limits, DDP from rest: time", unit="ms"),
    ilqr_cost=Claim("without limits, iLQR from rest: |cost over multiple shooting's|", at_most(SAME)),
    ilqr_iterations=Claim("without limits, iLQR from rest: iterations"),
    ilqr_ms=Claim("without limits, iLQR from rest: time", unit="ms"),
    box_cost=Claim("box-DDP: |cost over IPOPT's|", at_most(SAME), full_only=True),
    box_iterations=Claim("box-DDP: iterations", full_only=True),
    box_ms=Claim("box-DDP: time", unit="ms", full_only=True),
)


@STUDY.body
def run(report: Report) -> None:
    f, cost, start, steps = problem(0.04 if report.quick else 0.01)
    line = straight_line(start, np.zeros(4), steps), None
    free = optimize(f, cost, line, tolerance=1e-12)
    exact = dmoc.solve(
        f, cost, free.trajectory, steps=steps, initial=start, bounds=BOUNDS, tolerance=1e-11,
        options={"ipopt.bound_relax_factor": 0},
    )  # fmt: skip
    report.measure(ipopt_iterations=exact.iterations, ipopt_ms=1e3 * exact.seconds)

    def limited(**options: Any) -> ConstrainedResult:
        return optimize_constrained(f, cost, free.trajectory, bounds=BOUNDS, **options)

    inner = timed(report, "barrier_ms", lambda: limited(method=Barrier(accuracy=1e-7)))
    duals = exact.duals["u.force"]
    weights, errors = path_errors(inner, exact.cost)
    last = slice(-ORDER_OVER, None)
    report.measure(
        barrier_cost=inner.cost / exact.cost - 1,
        barrier_order=np.polyfit(np.log(weights[last]), np.log(errors[last]), 1)[0],
        barrier_force=np.abs(inner.trajectory.u - exact.trajectory.u).max(),
        barrier_margin=inner.margin,
        barrier_dual=np.abs(inner.multipliers["u.force"] - duals).max() / np.abs(duals).max(),
        barrier_iterations=inner.iterations,
    )
    outer = timed(report, "augmented_ms", lambda: limited(method=Augmented(tolerance=1e-11)))
    report.measure(
        augmented_cost=abs(outer.cost / exact.cost - 1),
        augmented_dual=np.abs(outer.multipliers["u.force"] - duals).max() / np.abs(duals).max(),
        augmented_iterations=outer.iterations,
    )
    polished = polish(f, cost, exact)
    report.measure(polish_iterations=polished.iterations, polish_cost=abs(polished.cost / exact.cost - 1))
    compared = compare(report, f, cost, start, free)
    if not report.quick:
        before = time.perf_counter()
        box = optimize_ddp(f, cost, free.trajectory, bounds=BOUNDS, tolerance=1e-10)
        report.measure(
            box_cost=abs(box.cost / exact.cost - 1),
            box_iterations=box.iterations,
            box_ms=1e3 * (time.perf_counter() - before),
        )
    draw(report, free, inner, exact, weights, errors, compared)


def problem(dt: float) -> tuple[vioc.MidpointVI, Cost, np.ndarray, int]:
    f = vioc.MidpointVI(vioc.models.load("cart_pole"), dt)
    return f, quadratic(f, Q=Q, R=R, Qf=QF), f.initial_state({"theta": np.pi}), round(DURATION / dt)


def timed(report: Report, key: str, call: Callable[[], Any]) -> Any:
    """The result; in full form a second call is timed, since the first one builds functions."""
    result = call()
    if not report.quick:
        before = time.perf_counter()
        call()
        report.measure(**{key: 1e3 * (time.perf_counter() - before)})
    return result


def path_errors(inner: ConstrainedResult, best: float) -> tuple[np.ndarray, np.ndarray]:
    """eps, and the cost over the optimum, of the interior points of the path."""
    levels = {level.weight: level.cost / best - 1 for level in inner.path if level.violation < 0}
    return np.array(list(levels)), np.array(list(levels.values()))


def compare(
    report: Report, f: vioc.MidpointVI, cost: Cost, start: np.ndarray, best: Result
) -> dict[str, Result]:
    """Newton, DDP and iLQR without limits, from hanging without a force."""
    options: dict[str, Any] = {"x0": start, "steps": len(best.trajectory), "tolerance": 1e-10}
    found: dict[str, Result] = {}
    for name in ("newton", "ddp", "ilqr"):
        before = time.perf_counter()
        if name == "newton":
            found[name] = optimize(f, cost, method=name, **options)
        else:
            found[name] = optimize_ddp(f, cost, method=name, **options)
        seconds = time.perf_counter() - before
        gap = abs(found[name].cost / best.cost - 1)
        figures = {"cost": gap, "iterations": found[name].iterations, "ms": 1e3 * seconds}
        report.measure(**{f"{name}_{key}": value for key, value in figures.items()})
    return found


def draw(
    report: Report,
    free: Result,
    inner: ConstrainedResult,
    exact: dmoc.Solution,
    weights: np.ndarray,
    errors: np.ndarray,
    compared: dict[str, Result],
) -> None:
    """Force and multipliers at the optimum, the error along the path, and the three optimizers."""
    import matplotlib.pyplot as plt

    figure, ((force, dual), (error, convergence)) = plt.subplots(2, 2, figsize=(10, 7), layout="constrained")
    t, f = exact.trajectory.t, inner.trajectory.map
    force.stairs(free.trajectory["u.force"], t, baseline=None, color="0.6", label="no limit")
    force.stairs(exact.trajectory["u.force"], t, baseline=None, color="k", lw=2.5, label="IPOPT")
    force.stairs(inner.trajectory["u.force"], t, baseline=None, color="tab:orange", lw=1, label="barrier")
    for side in (-LIMIT, LIMIT):
        force.axhline(side, color="tab:red", ls=":", lw=1)
    force.set(xlabel="t (s)", ylabel="force (N)", title=f"Optimum, dt = {f.dt:g} s")

    dual.plot(t[:-1], exact.duals["u.force"], "k", lw=2.5, label="IPOPT")
    dual.plot(t[:-1], inner.multipliers["u.force"], color="tab:orange", lw=1, label="barrier")
    dual.set(xlabel="t (s)", ylabel="multiplier (1/N)", title="Multiplier of the limit")

    error.loglog(weights, errors, "o-", color="tab:orange", label="cost over IPOPT's")
    error.loglog(weights, errors[-1] * weights / weights[-1], "k:", lw=1, label="order 1")
    error.set(xlabel="eps (1/s)", ylabel="relative error", title="The barrier path")

    best = min(result.cost for result in compared.values())
    for name, result in compared.items():
        history = result.history
        convergence.semilogy(history.iteration, np.maximum(history.cost / best - 1, 1e-16), ".-", label=name)
    convergence.set(xlabel="iteration", ylabel="cost over the optimum", title="No limit, from rest")
    for ax in figure.axes:
        ax.grid(alpha=0.3)
        ax.legend(fontsize="small")
    report.save(figure)
    report.frame(exact.trajectory, np.linspace(0.0, t[-1], 10), title="The optimum with the limit")


if __name__ == "__main__":
    STUDY.main()
