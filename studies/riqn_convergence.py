"""Convergence of the root finders on DRNEA ([L] Fig. 4): a chain of 10 bodies, 1 ms steps.

The left picture is one step of 50 ms from the seed q_k: the Newton direction by the recursion without
symmetry converges quadratically, and iterate for iterate as the dense one. RIQN, linear in [L], is
superlinear here by Broyden's updates. Counts are residual evaluations to a 2-norm of 1e-8 N m s times the
number of bodies, or the rounding floor, over 10,000 steps, from seeds extrapolated with the degree that the
last step asked for.
"""

from __future__ import annotations

import numpy as np

from studies.harness import Claim, Report, Study, at_least, at_most
from studies.linear_time_chain import chain, start
from vioc.dynamics.compile.compiler import find_compiler
from vioc.dynamics.integrators.linear_time.core import Core
from vioc.dynamics.integrators.linear_time.map import LinearTimeVI

DT = 1e-3  # s
STEPS = 10_000
G = 9.81
SINGLE = 5e-2  # s, of the step whose iterates are shown: long, so that there are several
SOLVERS = {"riqn": "RIQN", "newton": "exact Newton, O(n)", "dense": "dense Newton"}

STUDY = Study(
    __file__,
    "convergence and iteration counts of RIQN and Newton's method on DRNEA",
    same=Claim("largest relative difference of the two Newton methods' residuals, first 3", at_most(1e-6)),
    quadratic=Claim("exponent of Newton's convergence, e3 over e2 and e2 over e1", at_least(1.6)),
    linear=Claim("mean factor of RIQN's residual from the third iterate on", at_most(0.5)),
    riqn_10=Claim(
        "residual evaluations of RIQN, N = 10", at_most(2.9), published="5.69 +- 1.16", source="[L] Fig. 4b"
    ),
    riqn_40=Claim("the same, N = 40", at_most(4.1), full_only=True),
    riqn_100=Claim("the same, N = 100", at_most(5.2), full_only=True),
    heavy_100=Claim(f"the same, N = 100, gravity {G}", at_most(5.2), full_only=True),
    newton_10=Claim("residual evaluations of Newton, N = 10", published=4, source="[L] Fig. 4b"),
    failed=Claim("steps that failed in these runs", at_most(0)),
)


def evaluations(n: int, solver: str, guess: str, gravity: float, steps: int) -> tuple[np.ndarray, int]:
    """Residual evaluations of each step, and how many steps were left undone."""
    f = LinearTimeVI(chain(n, gravity), DT, solver=solver, guess=guess, backend="compiled")
    carry = f._carry(f.initial_state(*start(n)), np.empty((0, f.nx)), DT)
    core = Core(f, f._theta)
    states, _, _, counts = core.rollout(
        carry, np.zeros((steps, 0)), np.zeros(steps), np.full(steps, DT), residual=1e-8 * n
    )
    return counts, steps - len(states)


@STUDY.body
def run(report: Report) -> None:
    if find_compiler() is None:
        raise SystemExit("this study needs a C compiler")
    history = {}
    q, v = start(10)
    for solver in SOLVERS:
        f = LinearTimeVI(chain(10), SINGLE, solver=solver, guess="IG1", backend="compiled")
        history[solver] = Core(f, f._theta).history(f.initial_state(q, v), np.zeros(0), 0.0, SINGLE, 12)
    e, r = history["newton"], history["riqn"]
    report.measure(
        same=np.abs(e[:3] / history["dense"][:3] - 1).max(),
        quadratic=np.log(e[3] / e[2]) / np.log(e[2] / e[1]),
        linear=np.exp(np.diff(np.log(r[2:7])).mean()),
    )
    steps = STEPS // 10 if report.quick else STEPS
    counts, failed = {}, 0
    cases = [("riqn_10", 10, "riqn", 0.0), ("newton_10", 10, "newton", 0.0)]
    if not report.quick:
        cases += [("riqn_40", 40, "riqn", 0.0), ("riqn_100", 100, "riqn", 0.0), ("heavy_100", 100, "riqn", G)]
    for key, n, solver, gravity in cases:
        counts[key], undone = evaluations(n, solver, "extrapolated", gravity, steps)
        failed += undone
        report.measure(**{key: counts[key].mean()})
    report.measure(failed=failed)
    draw(report, history, counts)


def draw(report: Report, history: dict[str, np.ndarray], counts: dict[str, np.ndarray]) -> None:
    """[L] Fig. 4a and 4b."""
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.8), layout="constrained")
    for (solver, e), style in zip(history.items(), ("C0-^", "C3-o", "k--x"), strict=True):
        left.semilogy(e, style, ms=4, label=SOLVERS[solver])
    left.set(
        xlabel="iteration",
        ylabel="2-norm of the residual",
        title="A step of 50 ms from q = q_k ([L] Fig. 4a)",
    )
    window = np.full(100, 0.01)
    for key, n in counts.items():
        solver, label = key.split("_")
        name = {"riqn": "RIQN, N = ", "newton": "Newton, N = "}.get(solver, f"RIQN, g = {G}, N = ") + label
        right.plot(np.convolve(n, window, "valid"), lw=0.8, label=f"{name}: mean {n.mean():.2f}")
    right.set(
        xlabel="step",
        ylabel="residual evaluations",
        title="1 ms steps, mean over 100 ([L] Fig. 4b)",
    )
    right.set_ylim(1, 1.5 * right.get_ylim()[1])  # room for the legend
    for axes in (left, right):
        axes.grid(alpha=0.3)
        axes.legend(fontsize=8)
    report.save(figure)


if __name__ == "__main__":
    STUDY.main()
