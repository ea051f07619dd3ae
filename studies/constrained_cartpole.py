"""Swing-up of the cart-pole with a bounded force: shooting with an interior point, and IPOPT.

Cart 1 kg, pole 0.3 kg at 0.5 m, from hanging to upright in 2 s: minimize the sum of dt (1/2 x'Qx + 1/2 R u^2)
plus 1/2 x_N' Qf x_N with |u| <= 10 N, where the optimum without a limit takes 16 N. IPOPT solves the same
problem as a nonlinear program in states and inputs (DMOC, on the residual of the map).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

import vioc
from studies.harness import Claim, Report, Study, at_least, at_most
from vioc.control import Cost, Result, dmoc, optimize, quadratic, straight_line

DURATION = 2.0  # s
LIMIT = 10.0  # N
Q = {"x": 0.1, "theta": 0.1, "v.x": 0.01, "v.theta": 0.01}
QF = {"x": 1e3, "theta": 1e3, "v.x": 1e2, "v.theta": 1e2}
R = {"force": 0.01}
BOUNDS = {"u.force": LIMIT}
SAME = 1e-8

STUDY = Study(
    __file__,
    "cart-pole swing-up with a bounded force: shooting with an interior point against IPOPT",
    shooting_cost=Claim("shooting: |cost over IPOPT's|", at_most(SAME)),
    shooting_force=Claim("shooting: largest error of the force", at_most(1e-4), unit="N"),
    shooting_margin=Claim("shooting: least distance from the limit, over it", at_least(-SAME)),
    shooting_dual=Claim("shooting: largest error of a multiplier, over the largest", at_most(1e-5)),
    shooting_iterations=Claim("shooting: iterations"),
    shooting_ms=Claim("shooting: time", unit="ms", full_only=True),
    polish_iterations=Claim("shooting from IPOPT's solution: iterations"),
    polish_cost=Claim("shooting from IPOPT's solution: |cost over IPOPT's|", at_most(SAME)),
    ipopt_iterations=Claim("IPOPT: iterations"),
    ipopt_ms=Claim("IPOPT: time in the solver", unit="ms"),
    newton_cost=Claim("without limits, Newton from rest: |cost over multiple shooting's|", at_most(SAME)),
    newton_iterations=Claim("without limits, Newton from rest: iterations"),
    newton_ms=Claim("without limits, Newton from rest: time", unit="ms"),
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

    best = timed(report, "shooting_ms", lambda: optimize(f, cost, line, bounds=BOUNDS, tolerance=1e-10))
    duals = exact.multipliers["u.force"]
    report.measure(
        shooting_cost=abs(best.cost / exact.cost - 1),
        shooting_force=np.abs(best.u - exact.u).max(),
        shooting_margin=best.margin,
        shooting_dual=np.abs(best.multipliers["u.force"] - duals).max() / np.abs(duals).max(),
        shooting_iterations=best.iterations,
    )
    polished = optimize(f, cost, exact, bounds=BOUNDS, tolerance=1e-9)
    report.measure(polish_iterations=polished.iterations, polish_cost=abs(polished.cost / exact.cost - 1))
    before = time.perf_counter()
    newton = optimize(f, cost, x0=start, steps=steps, method="projection", tolerance=1e-10)
    report.measure(
        newton_cost=abs(newton.cost / free.cost - 1),
        newton_iterations=newton.iterations,
        newton_ms=1e3 * (time.perf_counter() - before),
    )
    draw(report, free, best, exact, newton)


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


def draw(report: Report, free: Result, limited: Result, exact: Result, newton: Result) -> None:
    """Force and multipliers at the optimum, the way of shooting, and that of Newton's method from rest."""
    import matplotlib.pyplot as plt

    figure, ((force, dual), (way, convergence)) = plt.subplots(2, 2, figsize=(10, 7), layout="constrained")
    t, f = exact.t, limited.map
    force.stairs(free["u.force"], t, baseline=None, color="0.6", label="no limit")
    force.stairs(exact["u.force"], t, baseline=None, color="k", lw=2.5, label="IPOPT")
    force.stairs(limited["u.force"], t, baseline=None, color="tab:orange", lw=1, label="shooting")
    for side in (-LIMIT, LIMIT):
        force.axhline(side, color="tab:red", ls=":", lw=1)
    force.set(xlabel="t (s)", ylabel="force (N)", title=f"Optimum, dt = {f.dt:g} s")

    dual.plot(t[:-1], exact.multipliers["u.force"], "k", lw=2.5, label="IPOPT")
    dual.plot(t[:-1], limited.multipliers["u.force"], color="tab:orange", lw=1, label="shooting")
    dual.set(xlabel="t (s)", ylabel="multiplier (1/N)", title="Multiplier of the limit")

    history = limited.history
    error = np.maximum(np.abs(history.cost / exact.cost - 1), 1e-16)
    way.semilogy(history.iteration, error, "o-", color="tab:orange", label="|cost over IPOPT's|")
    way.semilogy(history.iteration, np.maximum(history.gap, 1e-16), "k:", lw=1, label="gap")
    way.set(xlabel="iteration", ylabel="error", title="The limit, from the straight line")

    history = newton.history
    over = np.maximum(history.cost / newton.cost - 1, 1e-16)
    convergence.semilogy(history.iteration, over, ".-", label="newton")
    convergence.set(xlabel="iteration", ylabel="cost over the optimum", title="No limit, from rest")
    for ax in figure.axes:
        ax.grid(alpha=0.3)
        ax.legend(fontsize="small")
    report.save(figure)
    report.frame(exact.trajectory, np.linspace(0.0, t[-1], 10), title="The optimum with the limit")


if __name__ == "__main__":
    STUDY.main()
