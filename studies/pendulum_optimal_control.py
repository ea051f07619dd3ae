"""The pendulum of [S]: its map in closed form (II-A, IV-A, V), and its optimal control (VIII-A, Fig. 3, 4).

The closed form, with h = dt, m = (q + q1) / 2, a = 1/h + (g h/4) cos m, b = 1/h - (g h/4) cos m and
s = (g h/8) sin m: the step is

    0  = p - (q1 - q)/h - (g h/2) sin m + h u,        p1 = (q1 - q)/h - (g h/2) sin m;

differentiated once by (q, p, u), and once more,

    grad q1 = (b, 1, h) / a                           grad p1 = b grad q1 - (a, 0, 0)
    hess q1 = (s/a) n n',   n = grad q1 + (1, 0, 0)   hess p1 = b hess q1 + s n n'
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from scipy.optimize import brentq

import vioc
from studies.gains import feedback_gap, newton_order
from studies.harness import Claim, Report, Study, at_least, at_most, near
from vioc.control import Armijo, Result, controllability_matrix, controllability_rank

G = 9.8  # m/s^2, [S] II-A
DT = 0.1  # s
STEPS = 100
POINT = np.array([0.2, 0.5, 0.8])  # q, p, u of [S] II-A

# The paper gives no weights; with these the iterations are about as many as in its figure.
Q, R = np.diag([1000.0, 1.0]), 50.0
DISTURBED = np.array([1.0, 1.0])  # x(0) of Fig. 4

# As printed; the unit of each last digit is what they can be compared to.
PRINTED_STEP = "0.2471 0.3627"
PRINTED_A = "0.9533 0.0976 -0.9333 0.9533"
PRINTED_B = "0.00976 0.09533"
PRINTED_CONTROLLABILITY = "0.00976 0.0186 0.09533 0.0818"
PRINTED_Q = "1.01e-2 5.06e-4 5.06e-5 5.06e-4 2.53e-5 2.53e-6 5.06e-5 2.53e-6 2.53e-7"
PRINTED_P = "2.02e-1 1.01e-2 1.01e-3 1.01e-2 5.06e-4 5.06e-5 1.01e-3 5.06e-5 5.06e-6"

CLOSED = at_most(1e-12)
DIGIT = at_most(1.0)

STUDY = Study(
    __file__,
    "the pendulum of [S]: one step, its derivatives, optimal control and feedback",
    step=Claim("one step against the closed form", CLOSED, source="[S] II-A"),
    first=Claim("A, B against the closed form", CLOSED, source="[S] IV-A"),
    second=Claim("second derivatives of q1, p1 against the closed form", CLOSED, source="[S] V"),
    step_digits=Claim("one step, in units of the last printed digit", DIGIT, source="[S] II-A"),
    first_digits=Claim("A, B, [B AB], likewise", DIGIT, source="[S] IV-A"),
    second_digits=Claim("second derivatives, likewise", DIGIT, source="[S] V-A1, V-B1"),
    rank=Claim("rank of [B AB]", near(2, 0), published=2, source="[S] IV-A"),
    newton=Claim("Newton iterations to |Dg.zeta| < 1e-6", near(14, 2), published=14, source="[S] Fig. 3"),
    quadratic=Claim(
        "exponent of an iteration of Newton's method near the optimum",
        near(2, 0.2),
        published="quadratic",
        source="[S] VI",
    ),
    steepest=Claim("first-order iterations to the same", published=653, source="[S] Fig. 3", full_only=True),
    newton_ms=Claim("time per second-order iteration", unit="ms", published=55.8, source="[S] Fig. 3"),
    steepest_ms=Claim(
        "time per first-order iteration", unit="ms", published=28.5, source="[S] Fig. 3", full_only=True
    ),
    same=Claim(
        "largest difference of the two trajectories (rad, kg m^2/s, N m)",
        at_most(1e-4),
        published="the same",
        source="[S] VIII-A",
        full_only=True,
    ),
    gains=Claim(
        "inputs of the closed loop against those of a second Riccati recursion, relative", at_most(1e-9)
    ),
    open_loop=Claim(
        "largest error of q over the last 3 s without feedback",
        at_least(1.0),
        unit="rad",
        source="[S] Fig. 4",
    ),
    closed_loop=Claim(
        "error |x - x_d| over the last 3 s with feedback, over that at the start",
        at_most(1e-2),
        published="quickly stabilizes",
        source="[S] Fig. 4",
    ),
)


@STUDY.body
def run(report: Report) -> None:
    f = vioc.MidpointVI(vioc.models.load("pendulum"), DT, forcing="left")
    one_step(report, f)

    results = {"second-order": optimize(f, "newton")}
    newton = results["second-order"]
    found = newton[0].trajectory
    exact = iterate(f, (found.x, found.u)).trajectory
    report.measure(quadratic=newton_order(lambda guess: iterate(f, guess), exact, 2e-4))
    report.measure(newton=newton[0].iterations, newton_ms=1e3 * newton[1] / newton[0].iterations)
    if not report.quick:
        results["first-order"] = first, seconds = optimize(f, "steepest")
        moved = [np.abs(getattr(newton[0].trajectory, n) - getattr(first.trajectory, n)) for n in "xu"]
        report.measure(
            steepest=first.iterations,
            steepest_ms=1e3 * seconds / first.iterations,
            same=max(part.max() for part in moved),
        )

    best = newton[0]
    closed = best.stabilize(Q, R).rollout(DISTURBED)
    free = f.rollout(DISTURBED, best.trajectory.u)
    errors = np.linalg.norm(closed.x - best.trajectory.x, axis=1)
    late = STEPS - round(3.0 / DT)
    report.measure(
        gains=feedback_gap(closed, best.trajectory, Q, R * np.eye(1)),
        closed_loop=errors[late:].max() / errors[0],
        open_loop=np.abs(free["theta"] - best.trajectory["theta"])[late:].max(),
    )
    draw(report, {name: result for name, (result, _) in results.items()}, closed, free)


def closed_form(q: float, p: float, u: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """x1 (2,), its gradients (2, 3) and Hessians (2, 3, 3) by (q, p, u); see the text above."""
    h = DT

    def balance(q1: float) -> float:
        return p - (q1 - q) / h - G * h / 2 * np.sin((q + q1) / 2) + h * u

    reach = h * (abs(p) + h * abs(u) + G * h)
    q1 = brentq(balance, q - reach, q + reach, xtol=1e-16, rtol=1e-15)
    m = (q + q1) / 2
    a, b = 1 / h + G * h / 4 * np.cos(m), 1 / h - G * h / 4 * np.cos(m)
    s = G * h / 8 * np.sin(m)
    grad_q = np.array([b, 1.0, h]) / a
    n = grad_q + [1.0, 0.0, 0.0]
    hess_q = s / a * np.outer(n, n)
    return (
        np.array([q1, (q1 - q) / h - G * h / 2 * np.sin(m)]),
        np.array([grad_q, b * grad_q - [a, 0.0, 0.0]]),
        np.array([hess_q, b * hess_q + s * np.outer(n, n)]),
    )


def one_step(report: Report, f: vioc.MidpointVI) -> None:
    x, u = POINT[:2], POINT[2:]
    x1, gradient, hessian = closed_form(*POINT)
    A, B = f.linearize(x, u)
    tensor = f.derivatives.tensor(f.steps_at([x], [u]))[0].rows(0)
    second = np.block([[tensor.xx, tensor.xu], [np.swapaxes(tensor.xu, 1, 2), tensor.uu]])
    controllability = controllability_matrix(A, B)
    report.measure(
        step=np.abs(f.step(x, u) - x1).max(),
        first=np.abs(np.hstack([A, B]) - gradient).max(),
        second=np.abs(second - hessian).max(),
        rank=controllability_rank(A, B),
        step_digits=digits(f.step(x, u), PRINTED_STEP),
        first_digits=max(
            digits(A, PRINTED_A), digits(B, PRINTED_B), digits(controllability, PRINTED_CONTROLLABILITY)
        ),
        second_digits=max(digits(second[0], PRINTED_Q), digits(second[1], PRINTED_P)),
    )


def digits(values: np.ndarray, printed: str) -> float:
    """Largest difference from printed numbers, in units of each one's last digit."""
    worst = 0.0
    for value, text in zip(np.ravel(values), printed.split(), strict=True):
        mantissa, _, exponent = text.partition("e")
        unit = 10.0 ** (int(exponent or 0) - len(mantissa.partition(".")[2]))
        worst = max(worst, abs(value - float(text)) / unit)
    return worst


def swing_up(f: vioc.MidpointVI) -> vioc.control.Cost:
    reference = np.zeros((STEPS + 1, 2))
    reference[STEPS // 2 :, 0] = np.pi
    return vioc.control.quadratic(f, Q=Q, R=R, Qf=Q, reference=reference, per_time=False)


def iterate(f: vioc.MidpointVI, guess: tuple[np.ndarray, np.ndarray]) -> Result:
    """Two iterations of Newton's method from a guess."""
    options: dict[str, Any] = {
        "method": "projection",
        "warmup": 0,
        "projection": (1.0, 1.0),
        "tolerance": 1e-12,
    }
    return vioc.control.optimize(f, swing_up(f), guess, max_iterations=2, raise_on_failure=False, **options)


def optimize(f: vioc.MidpointVI, direction: str) -> tuple[Result, float]:
    """The swing-up of (35) from zero input; the result and the seconds it took."""
    cost = swing_up(f)
    options: dict[str, Any] = {
        "x0": np.zeros(2),
        "steps": STEPS,
        "direction": direction,
        "warmup": 4,
        "projection": (1.0, 1.0),
        "armijo": Armijo(1e-5, 0.7),
    }
    few: dict[str, Any] = {"max_iterations": 6, "raise_on_failure": False}
    near = vioc.control.optimize(f, cost, **options, **few).cost  # builds the functions
    options["tolerance"] = 1e-6 / (near / 1000)  # vioc's is relative to a thousandth of the cost
    before = time.perf_counter()
    result = vioc.control.optimize(f, cost, max_iterations=2000, **options)
    return result, time.perf_counter() - before


def draw(report: Report, results: dict[str, Result], closed: vioc.Trajectory, free: vioc.Trajectory) -> None:
    """[S] Fig. 3 and Fig. 4."""
    import matplotlib.pyplot as plt

    figure, (convergence, feedback) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    for name, result in results.items():
        history = result.history
        convergence.loglog(1 + history.iteration, np.abs(history.descent), ".-", ms=4, label=name)
    convergence.axhline(1e-6, color="0.5", ls=":", lw=1, label="tolerance")
    convergence.set_ylim(1e-9)
    convergence.set(xlabel="iteration + 1", ylabel=r"$|Dg\cdot\zeta|$", title="Convergence ([S] Fig. 3)")

    best = results["second-order"].trajectory
    infeasible = np.where(np.arange(STEPS + 1) < STEPS // 2, 0.0, np.pi)
    feedback.step(best.t, infeasible, where="post", color="0.6", ls="--", label="infeasible reference")
    feedback.plot(best.t, best["theta"], color="k", lw=2.5, label="feasible reference")
    feedback.plot(closed.t, closed["theta"], color="tab:blue", label="closed loop")
    feedback.plot(free.t, free["theta"], color="tab:red", ls="-.", label="open loop")
    feedback.set(xlabel="t (s)", ylabel="q (rad)", title="From x(0) = [1, 1] ([S] Fig. 4)")
    for axes in (convergence, feedback):
        axes.grid(alpha=0.3)
        axes.legend(fontsize="small")
    report.save(figure)
    report.frame(closed, np.linspace(4.0, 6.0, 7), title="Closed loop")


if __name__ == "__main__":
    STUDY.main()
