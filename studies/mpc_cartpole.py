"""Nonlinear MPC of a cart with a pendulum: printed optima, swing-up by real-time iteration, times.

The problem of acados' examples: cart 1 kg, 0.1 kg at 0.8 m, |F| <= 80 N, weights 2e3 on place and angle,
0.02 on velocities and force. Its non-uniform grid (7 intervals of (k + 1) / 28 s, Gauss-Legendre
with 4 stages and 3 sub-steps in the first, 2 and 2 in the others) has printed inputs; its loop has 40
steps in 0.8 s.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import casadi as ca
import numpy as np

from studies.harness import Claim, Report, Study, at_least, at_most, near
from vioc import CasadiMap
from vioc.compile import find_compiler
from vioc.control import ClosedLoop, NonlinearMPC, Problem, dlqr, equilibrium, quadratic
from vioc.control.receding.program import Plan, RecedingProgram

CART, BOB, LENGTH, G = 1.0, 0.1, 0.8, 9.81  # kg, kg, m, m/s^2
BOUND = 80.0  # N
Q, R = np.diag([2e3, 2e3, 2e-2, 2e-2]), 2e-2
HANGING = np.array([0.0, np.pi, 0.0, 0.0])
HORIZON, DT = 40, 0.02  # steps, s
GRID = np.arange(1, 8) / 28  # s
INPUTS = (80, 80, -36.350210999738, -80, 19.918979450166, 25.046028578119, -18.412787220629)  # N
X1 = (0.05100963244827, 3.07792229916194, 2.85570629430603, -3.55888710696330)
X7 = (-0.00813141059099, 0.00749776719702, -2.38560590963463, -2.40989514907283)
STARTS, SPREAD = 40, (0.3, 0.5, 0.3, 0.5)
SETTLED = 0.05
REPEATS = {4: 20, 2: 60}  # of slopes, by stages: the later intervals are long
PRINTED = "acados, sqp_sol_nonuniform_pendulum"
IDLE = "of an idle core"

STUDY = Study(
    __file__,
    "a cart-pole swung up by nonlinear MPC within 80 N: printed optima, closed loop, times",
    inputs=Claim("non-uniform grid: inputs against the printed ones", at_most(1e-6), "N", "0", PRINTED),
    states=Claim("likewise states 1 and 7", at_most(1e-6), "m, rad, 1/s", "0", PRINTED),
    cost=Claim("its cost", near(2729.36515, 1e-5), published=2729.36515, source="IPOPT, this definition"),
    newton=Claim("Newton steps to it from the pendulum held hanging", at_most(30)),
    first=Claim("40 steps: first optimum", near(2045.06279, 1e-4), published=2045.06279, source="IPOPT, RK4"),
    end=Claim("after 2 s: largest state", at_most(SETTLED), "m, rad, 1/s"),
    largest=Claim("largest force asked for", at_most(BOUND), "N"),
    counted=Claim("samples without an answer", at_most(0)),
    same=Claim("C against DAQP, whole run: largest difference of states", at_most(1e-4), "m, rad, 1/s"),
    kept=Claim(
        f"of {STARTS} starts about hanging, the pole's mass up to 10 % off, settled in 3 s",
        at_least(STARTS),
        full_only=True,
    ),
    longer=Claim("of them with its length up to 10 % off too (weights that hardly bear it)", full_only=True),
    compiled_us=Claim(
        "feedback phase from Python, compiled, median", unit="us", published="300", source=IDLE
    ),
    virtual_us=Claim("the same without a compiler", unit="us", published="3000", source=IDLE),
)


def derivative(x: ca.SX, u: ca.SX, bob: float = BOB, length: float = LENGTH) -> ca.SX:
    s, c = ca.sin(x[1]), ca.cos(x[1])
    d = CART + bob - bob * c**2
    pushed = -bob * length * s * x[3] ** 2 + u
    return ca.vertcat(
        x[2], x[3], (pushed + bob * G * c * s) / d, (c * pushed + (CART + bob) * G * s) / (length * d)
    )


def rk4(x: ca.SX, u: ca.SX, h: Any, **masses: float) -> ca.SX:
    a = derivative(x, u, **masses)
    b = derivative(x + h / 2 * a, u, **masses)
    c = derivative(x + h / 2 * b, u, **masses)
    return x + h / 6 * (a + 2 * b + 2 * c + derivative(x + h * c, u, **masses))


def gauss(x: ca.SX, u: ca.SX, h: Any, stages: int) -> ca.SX:
    """A step of the Gauss-Legendre method, its slopes by repetition to rounding."""
    tau = np.array(ca.collocation_points(stages, "legendre"))
    powers = np.vander(tau, stages, increasing=True)
    A = (powers * tau[:, None] / np.arange(1, stages + 1)) @ np.linalg.inv(powers)
    b = (1 / np.arange(1, stages + 1)) @ np.linalg.inv(powers)
    slopes = ca.repmat(derivative(x, u), 1, stages)
    for _ in range(REPEATS[stages]):
        at = ca.repmat(x, 1, stages) + h * ca.mtimes(slopes, ca.DM(A.T))
        slopes = ca.horzcat(*(derivative(at[:, i], u) for i in range(stages)))
    return x + h * ca.mtimes(slopes, ca.DM(b))


def cart(
    step: Callable[..., ca.SX], dt: float = DT, backend: str = "virtual", parts: int = 1, **masses: float
) -> CasadiMap:
    x, u, t, h = ca.SX.sym("x", 4), ca.SX.sym("u"), ca.SX.sym("t"), ca.SX.sym("h")
    after = x
    for _ in range(parts):
        after = step(after, u, h / parts, **masses)
    names = dict(state_names=("x", "theta", "v", "w"), input_names=("force",))
    return CasadiMap(ca.Function("cart", [x, u, t, h], [after]), dt, backend=backend, **names)


def problem(f: CasadiMap, steps: int = HORIZON, **options: Any) -> Problem:
    return Problem(f, quadratic(f, Q=Q, R=R, Qf=Q), steps, bounds={"u.force": BOUND}, **options)


@STUDY.body
def run(report: Report) -> None:
    printed(report)
    compiled = "compiled" if find_compiler() is not None else "virtual"
    f, g = cart(rk4, backend=compiled), cart(rk4)
    plant = cart(rk4, parts=2)
    report.measure(first=problem(f).solve(HANGING).cost)
    laws = {"compiled": NonlinearMPC(problem(f)), "virtual": NonlinearMPC(problem(g))}
    runs = {name: ClosedLoop(plant, law).simulate(HANGING, 100) for name, law in laws.items()}
    swung = runs["compiled"]
    X = {name: r.trajectory.x for name, r in runs.items()}
    report.measure(
        end=np.abs(X["compiled"][-1]).max(),
        largest=np.abs(swung.commands).max(),
        counted=sum(v.fallback for r in runs.values() for v in r.memory.verdicts),
        same=np.abs(X["compiled"] - X["virtual"]).max(),
        **{
            f"{n}_us": 1e6 * float(np.median([v.seconds for v in r.memory.verdicts])) for n, r in runs.items()
        },
    )
    if not report.quick:
        rng, good = np.random.default_rng(0), [0, 0]
        for _ in range(STARTS):
            off = dict(bob=BOB * rng.uniform(0.9, 1.1), length=LENGTH * rng.uniform(0.9, 1.1))
            start = HANGING + rng.uniform(-1, 1, 4) * SPREAD
            for i, masses in enumerate((dict(bob=off["bob"]), off)):
                other = cart(rk4, backend=compiled, parts=2, **masses)
                found = ClosedLoop(other, laws["compiled"], bounds={"force": BOUND}).simulate(start, 150)
                good[i] += bool(np.abs(found.trajectory.x[-1]).max() < SETTLED)
        report.measure(kept=good[0], longer=good[1])
    draw(report, swung, laws["compiled"])


def printed(report: Report) -> None:
    """Newton steps from the pendulum held hanging to the optimum of the non-uniform grid."""
    x, u, t, h = ca.SX.sym("x", 4), ca.SX.sym("u"), ca.SX.sym("t"), ca.SX.sym("h")
    steps = []
    for stages, parts in ((4, 3), (2, 2)):
        after = x
        for _ in range(parts):
            after = gauss(after, u, h / parts, stages)
        steps.append(ca.Function("step", [x, u, h], [after], {"cse": True}))
    first = ca.Function(
        "grid", [x, u, t, h], [ca.if_else(h < 1.5 / 28, steps[0](x, u, h), steps[1](x, u, h))]
    )
    names = dict(state_names=("x", "theta", "v", "w"), input_names=("force",))
    f = CasadiMap(first, GRID[0], **names)
    stated = problem(f, 7, dt=GRID)
    program, stages = RecedingProgram(stated, None, False), stated.stages(0, 7, 0)
    plan = Plan(np.tile(HANGING, (8, 1)), np.zeros((7, 1)), np.zeros((8, 4)), np.zeros(7))
    moved, count = np.inf, 0
    while moved > 1e-9 and count < 100:
        before, count = plan, count + 1
        plan, _ = program.solve(program.prepare(stages, plan), HANGING)
        moved = np.abs(plan.u - before.u).max()
    cost = stated.cost.value(f.rollout(HANGING, plan.u, dt=GRID))
    report.measure(
        inputs=np.abs(plan.u[:, 0] - INPUTS).max(),
        states=max(np.abs(plan.x[1] - X1).max(), np.abs(plan.x[7] - X7).max()),
        cost=cost,
        newton=count,
    )


def draw(report: Report, run: Any, law: NonlinearMPC) -> None:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 3, figsize=(13, 4), layout="constrained")
    t, f = run.trajectory.t, run.trajectory.map
    for name in ("x", "theta"):
        axes[0].plot(t, run[name], label=name)
    axes[0].set(xlabel="t (s)", ylabel="m, rad", title="Swing-up by real-time iteration")
    axes[1].step(t[:-1], run.trajectory.u, where="post")
    axes[1].axhline(BOUND, color="k", ls="--", lw=1)
    axes[1].axhline(-BOUND, color="k", ls="--", lw=1)
    axes[1].set(xlabel="t (s)", ylabel="force (N)", title="Within its bound")
    axes[2].semilogy(t[:-1], [max(v.gap, 1e-16) for v in run.memory.verdicts], label="gaps of the plan")
    loop = dlqr(law.map, equilibrium(law.map, x=0.0, theta=0.0), Q * f.dt, R * f.dt)
    away = np.abs(run.trajectory.u[:, 0] - np.clip(-run.trajectory.x[:-1] @ loop.K[0], -BOUND, BOUND))
    axes[2].semilogy(t[:-1], np.maximum(away, 1e-16), label="from the clipped regulator (N)")
    axes[2].set(xlabel="t (s)", title="What a sample leaves")
    for panel in axes:
        panel.grid(alpha=0.3)
    axes[0].legend()
    axes[2].legend()
    report.save(figure)


if __name__ == "__main__":
    STUDY.main()
