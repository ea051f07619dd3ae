"""Convergence of the root finders on DRNEA ([L] Fig. 4): a chain of 10 bodies, 1 ms steps.

The left picture is one step of 50 ms from the seed q_k: the Newton direction by the recursion without
symmetry converges quadratically, and iterate for iterate as the dense one. RIQN, linear in [L], is
superlinear here by Broyden's updates. Counts are residual evaluations to a 2-norm of 1e-8 N m s times the
number of bodies, or the rounding floor. [L]'s are of RIQN without updates from a seed that the caption
does not name: `plain_riqn` is that, written out with a dense M(q_k), from each of [L]'s seeds. The compiled
core's stand beside, from the same seeds with the velocity and acceleration of the state, for which IG3 is the
predicted one, and over 10,000 steps from that.
"""

from __future__ import annotations

import numpy as np

import vioc
from studies.harness import Claim, Report, Study, at_most, near
from studies.linear_time_chain import chain, start
from vioc import LinearTimeVI
from vioc.compile import find_compiler
from vioc.compile.evaluate import Evaluator
from vioc.dynamics.integrators.linear_time.core import LinearTimeCore

DT = 1e-3  # s
STEPS = 10_000
G = 9.81
SINGLE = 5e-2  # s, of the step whose iterates are shown: long, so that there are several
SOLVERS = {"riqn": "RIQN", "newton": "exact Newton, O(n)", "dense": "dense Newton"}

SOME = 1000  # steps from [L]'s seeds
PLAIN = {"IG1": 4.70, "IG2": 3.84, "IG3": 2.84}
UPDATED = {"IG1": 4.38, "IG2": 3.39, "predicted": 2.88}

STUDY = Study(
    __file__,
    "convergence and iteration counts of RIQN and Newton's method on DRNEA",
    same=Claim("largest relative difference of the two Newton methods' residuals, first 3", at_most(1e-6)),
    quadratic=Claim("exponent of Newton's convergence, e3 over e2 and e2 over e1", near(2.6, 0.5)),
    linear=Claim("mean factor of RIQN's residual from the third iterate on", near(0.016, 0.008)),
    **{
        f"{kind}_{seed}": Claim(
            f"residual evaluations of RIQN {how} from {seed}, N = 10, {SOME} steps",
            near(count, 0.15),
            published="5.69 +- 1.16, seed not named" if kind == "plain" else None,
            source="[L] Fig. 4b" if kind == "plain" else "",
        )
        for kind, how, counts in (
            ("plain", "without updates", PLAIN),
            ("riqn", "with Broyden's updates", UPDATED),
        )
        for seed, count in counts.items()
    },
    newton_predicted=Claim(
        f"residual evaluations of Newton from the predicted seed, N = 10, {SOME} steps",
        near(2, 0.05),
        published=4,
        source="[L] Fig. 4b",
    ),
    riqn_10=Claim("residual evaluations of RIQN, predicted seeds, N = 10", near(2.8, 0.1)),
    riqn_40=Claim("the same, N = 40", near(4.1, 0.15), full_only=True),
    riqn_100=Claim("the same, N = 100", near(5.7, 0.3), full_only=True),
    heavy_100=Claim(f"the same, N = 100, gravity {G}", near(6.0, 0.3), full_only=True),
    newton_10=Claim("residual evaluations of Newton, predicted seeds, N = 10", near(2.0, 0.1)),
    failed=Claim("steps that failed in these runs", at_most(0)),
)


def plain_riqn(n: int, seed: str, steps: int) -> np.ndarray:
    """Residual evaluations of [L] Algorithm 3 with one M(q_k) a step, by matrices and without the core."""
    system = chain(n)
    f, dynamics = LinearTimeVI(system, DT), vioc.Continuous(system)
    slots = Evaluator(f.graphs.slots)
    q, v = start(n)
    p, before = f.lagrangian.momentum(q, v), q - DT * v
    counts = np.zeros(steps, int)
    for k in range(steps):
        K, velocity = f.lagrangian.mass_matrix(q) / DT, (q - before) / DT
        guess = q.copy()
        if seed != "IG1":
            guess += DT * velocity
        if seed == "IG3":
            guess += DT**2 * dynamics.forward(q, velocity).accelerations
        while counts[k] < 30:
            first, second = (a[:, 0] for a in slots(q, guess, np.array([DT]), np.zeros(0)))
            counts[k] += 1
            if np.linalg.norm(p + first) <= 1e-8 * n:
                break
            guess = guess + np.linalg.solve(K, p + first)
        p, q, before = second + p + first, guess, q  # what is left of the balance goes on, as in the core
    return counts


def evaluations(n: int, solver: str, guess: str, gravity: float, steps: int) -> tuple[np.ndarray, int]:
    """Residual evaluations of each step, and how many steps were left undone."""
    f = LinearTimeVI(chain(n, gravity), DT, solver=solver, guess=guess, backend="compiled")
    core = LinearTimeCore(f, f.theta)
    states, _, _, counts = core.rollout(
        *(f.initial_state(*start(n)), np.zeros((steps, 0)), np.zeros(steps), np.full(steps, DT)),
        residual=1e-8 * n,
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
        history[solver] = LinearTimeCore(f, f.theta).history(
            f.initial_state(q, v), np.zeros(0), 0.0, SINGLE, 12
        )
    e, r = history["newton"], history["riqn"]
    report.measure(
        same=np.abs(e[:3] / history["dense"][:3] - 1).max(),
        quadratic=np.log(e[3] / e[2]) / np.log(e[2] / e[1]),
        linear=np.exp(np.diff(np.log(r[2:7])).mean()),
    )
    for seed in PLAIN:
        report.measure(**{f"plain_{seed}": plain_riqn(10, seed, SOME).mean()})
    for seed in UPDATED:
        report.measure(**{f"riqn_{seed}": evaluations(10, "riqn", seed, 0.0, SOME)[0].mean()})
    report.measure(newton_predicted=evaluations(10, "newton", "predicted", 0.0, SOME)[0].mean())
    steps = STEPS // 10 if report.quick else STEPS
    counts, failed = {}, 0
    cases = [("riqn_10", 10, "riqn", 0.0), ("newton_10", 10, "newton", 0.0)]
    if not report.quick:
        cases += [("riqn_40", 40, "riqn", 0.0), ("riqn_100", 100, "riqn", 0.0), ("heavy_100", 100, "riqn", G)]
    for key, n, solver, gravity in cases:
        counts[key], undone = evaluations(n, solver, "predicted", gravity, steps)
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
