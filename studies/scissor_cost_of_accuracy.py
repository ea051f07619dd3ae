"""What a second of the scissor lift costs at a given accuracy ([T] VI-C1, Fig. 13).

For each number of segments the step is sought with which the accumulated error (47) exceeds 0.1 at 15 s
+- 1 %; what is compared is the time that these 15 s take to simulate. The lift is released at 45 degrees
and passes its singular position ten times and more.

For the variational integrator that step is near the longest with which the passages have solutions at all
(see `studies.scissor_lift`). There the motion is sensitive: what a passage costs depends on where the
samples fall, the time is no monotone function of the step, and of the steps that meet the paper's criterion
some are isolated: a neighbour 1e-6 away may miss it by far. So beside the figure's step stands the *safe*
one: the longest of a grid of 3 % such that it and every shorter one tried keeps the error below 0.1 at 15 s.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

import vioc
from studies import peers
from studies.harness import Claim, Report, Study, at_most
from studies.scissor_lift import FREE, REPEATS, benchmark, error_integral, lift, simulate

VARIATIONAL = "variational"
TARGET = 15.0  # s
WINDOW = 0.01  # of it
ERROR = 0.1  # rad^2 s
BEYOND = 16.0  # s, how far a trial is simulated
SOLVED = 16.1  # s, how far the benchmark is solved once for all trials, in quick form
COUNTS = (1, 2, 3, 4, 5, 6, 8, 10)  # segments
QUICK = (1,)
SMALLEST = {VARIATIONAL: 1e-4, peers.ODE: 5e-5, peers.MUJOCO: 2e-4}  # s: the search gives up below
RATIO = 1.03  # between the steps of the grid
RESOLUTION = 1e-9  # of a step, where bisection ends
SAMPLE = 0.005  # s, between samples of a peer

KINDS = (
    ("step", "time step"),
    ("cost", "time to simulate"),
    ("safe_step", "safe time step"),
    ("safe_cost", "time to simulate with it"),
)

STUDY = Study(
    __file__,
    "time to simulate 15 s of scissor lifts with error 0.1",
    window=Claim(
        "variational: largest |time at which the error exceeds 0.1 - 15 s|, all numbers of segments",
        at_most(WINDOW),
        unit="of 15 s",
        published=0.01,
        source="[T] Fig. 13",
    ),
    **{
        f"{short}_{kind}_{n}": Claim(
            f"{name}, {n} segment{'s' * (n > 1)}: {what}",
            unit="s",
            published="plotted only" if kind == "cost" else None,
            source="[T] Fig. 13" if kind == "cost" else "",
            full_only=n not in QUICK,
        )
        for name, short in ((VARIATIONAL, "vi"), (peers.ODE, "ode"))
        for n in COUNTS
        for kind, what in KINDS
    },
    mujoco_reach=Claim(
        f"{peers.MUJOCO}: largest number of segments that reaches it, dt >= {SMALLEST[peers.MUJOCO]:g} s",
        unit="segments",
    ),
    growth=Claim("growth of the safe cost with segments, variational: exponent", full_only=True),
    growth_ode=Claim(f"the same, {peers.ODE}", full_only=True),
)


class Trial(NamedTuple):
    """One simulation: when the error exceeded the bound (inf: not before the end), and its cost, s."""

    exceeds: float
    seconds: float


class Attempt(NamedTuple):
    """A step, s, and what came of it."""

    dt: float
    exceeds: float
    seconds: float


class Found(NamedTuple):
    """The step sought, s; when the error exceeds the bound with it, s; the time to simulate TARGET, s;
    and the safe step with its time."""

    dt: float
    exceeds: float
    cost: float
    safe_dt: float
    safe_cost: float


@STUDY.body
def run(report: Report) -> None:
    counts, repeats = (QUICK, 1) if report.quick else (COUNTS, REPEATS)
    engines = peers.available()
    found: dict[str, dict[int, Found]] = {name: {} for name in (VARIATIONAL, peers.ODE, peers.MUJOCO)}
    for name, short in ((VARIATIONAL, "vi"), (peers.ODE, "ode")):
        if name == peers.ODE and name not in engines:
            keys = [f"ode_{kind}_{n}" for n in counts for kind, _ in KINDS]
            report.skip(peers.INSTALL[name], *keys, "growth_ode")
            continue
        for n in counts:
            best = seek(trials(engines, name, n, report.quick), 0.02 / n, SMALLEST[name], repeats)
            if best is not None:
                found[name][n] = best
            figures = (best.dt, best.cost, best.safe_dt, best.safe_cost) if best else (np.nan,) * len(KINDS)
            keys = (f"{short}_{kind}_{n}" for kind, _ in KINDS)
            report.measure(**dict(zip(keys, figures, strict=True)))
    if peers.MUJOCO in engines:
        for n in counts:
            trial = trials(engines, peers.MUJOCO, n, report.quick)
            best = seek(trial, 0.02 / n, SMALLEST[peers.MUJOCO], repeats)
            if best is None:
                break
            found[peers.MUJOCO][n] = best
        report.measure(mujoco_reach=max(found[peers.MUJOCO], default=0))
    else:
        report.skip(peers.INSTALL[peers.MUJOCO], "mujoco_reach")
    ours = found[VARIATIONAL]
    off = [abs(best.exceeds / TARGET - 1) for best in ours.values()]
    report.measure(window=max(off) if len(ours) == len(counts) else np.nan)
    if not report.quick:
        report.measure(growth=growth(ours))
        if peers.ODE in engines:
            report.measure(growth_ode=growth(found[peers.ODE]))
    draw(report, found)


def trials(
    engines: dict[str, Callable[..., peers.PeerRun]], name: str, n: int, quick: bool
) -> Callable[[float], Trial]:
    """The lift of n segments as a function of the step, by vioc or a peer."""
    end = SOLVED if quick else None
    if name == VARIATIONAL:
        f = lift(n)

        def trial(dt: float) -> Trial:
            try:
                run = simulate(f, FREE, dt, BEYOND, end=end)
            except vioc.StepError as error:  # no solution at this step: as good as too large an error
                return Trial(error.k * dt, np.nan)
            return Trial(exceeds(run.trajectory.t, run.theta - run.benchmark), run.seconds)

    else:
        system, start = vioc.models.scissor_lift(n), vioc.models.scissor_lift_configuration(n, FREE)

        def trial(dt: float) -> Trial:
            every = max(1, round(SAMPLE / dt))
            run = engines[name](system, start, dt, round(BEYOND / dt), every=every)
            return Trial(exceeds(run.t, run["left-1"] - benchmark(n, FREE, 0.0, run.t, end)), run.seconds)

    return trial


def exceeds(t: np.ndarray, error: np.ndarray) -> float:
    """When the error integral exceeds the bound, s."""
    e = error_integral(t, error)
    beyond = ~(e <= ERROR)  # also where it is no number
    if not beyond.any():
        return np.inf
    i = int(np.argmax(beyond))
    return float(np.interp(ERROR, e[i - 1 : i + 1], t[i - 1 : i + 1])) if np.isfinite(e[i]) else float(t[i])


def seek(
    trial: Callable[[float], Trial], guess: float, smallest: float, repeats: int = REPEATS
) -> Found | None:
    """A step with which the error exceeds the bound at TARGET +- WINDOW, or None if none >= `smallest` does.

    From a guess downwards to a step that is small enough, upwards over the grid to the first that is too
    large, then bisection. Where bisection ends without a time in the window, the search goes on upwards, and
    bisects wherever the time crosses TARGET again; if that is nowhere in the window, the step whose time is
    nearest is returned.
    """

    def attempt(dt: float) -> Attempt:
        return Attempt(dt, *trial(dt))

    def cost(dt: float) -> float:
        return min(trial(dt).seconds for _ in range(repeats)) * TARGET / BEYOND

    low = attempt(guess)
    while low.exceeds < TARGET:
        if low.dt / 2 < smallest:
            return None
        low = attempt(low.dt / 2)
    best, safe, end = low, np.nan, np.inf
    while low.dt < end:
        high = attempt(RATIO * low.dt)
        if (low.exceeds >= TARGET) != (high.exceeds >= TARGET):
            if end == np.inf:
                safe, end = low.dt, 1.5 * high.dt
            best = min(best, bisect(attempt, low, high), key=distance)
            if distance(best) <= WINDOW:
                break
        low = high
    return Found(best.dt, best.exceeds, cost(best.dt), safe, cost(safe))


def bisect(attempt: Callable[[float], Attempt], low: Attempt, high: Attempt) -> Attempt:
    """The nearest to TARGET of the steps tried between two whose times lie on both sides of it."""
    best = min(low, high, key=distance)
    while distance(best) > WINDOW and high.dt / low.dt > 1 + RESOLUTION:
        middle = attempt((low.dt * high.dt) ** 0.5)
        best = min(best, middle, key=distance)
        if (middle.exceeds >= TARGET) == (low.exceeds >= TARGET):
            low = middle
        else:
            high = middle
    return best


def distance(found: Attempt) -> float:
    """Of the time at which the error exceeds the bound from TARGET, relative; inf for a run cut short."""
    return abs(found.exceeds / TARGET - 1) if np.isfinite(found.seconds) else np.inf


def growth(found: dict[int, Found]) -> float:
    """Exponent of the safe cost over the number of segments, from 2 segments on."""
    n = [k for k in found if k >= 2]
    return (
        float(np.polyfit(np.log(n), np.log([found[k].safe_cost for k in n]), 1)[0]) if len(n) > 1 else np.nan
    )


def draw(report: Report, found: dict[str, dict[int, Found]]) -> None:
    """[T] Fig. 13, and the steps that it takes."""
    import matplotlib.pyplot as plt

    figure, (cost, step) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    for (name, results), (color, marker) in zip(found.items(), ("ko", ("C0", "s"), ("C1", "^")), strict=True):
        if results:
            n, rows = list(results), results.values()
            cost.semilogy(n, [r.safe_cost for r in rows], "-", marker=marker, color=color, ms=4, label=name)
            cost.semilogy(n, [r.cost for r in rows], ":", marker=marker, color=color, ms=4, mfc="none")
            step.semilogy(n, [r.safe_dt for r in rows], "-", marker=marker, color=color, ms=4)
            step.semilogy(n, [r.dt for r in rows], ":", marker=marker, color=color, ms=4, mfc="none")
    cost.plot([], [], ":", color="0.4", label="criterion of [T]; solid: safe step")
    cost.set(ylabel="time to simulate (s)", title="15 s with error 0.1 ([T] Fig. 13)")
    step.set(ylabel="time step (s)", title="The step that this takes")
    for axes in (cost, step):
        axes.set_xlabel("segments")
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.grid(alpha=0.3, which="both")
    figure.legend(*cost.get_legend_handles_labels(), loc="outside lower center", ncols=4, fontsize="small")
    report.save(figure)


if __name__ == "__main__":
    STUDY.main()
