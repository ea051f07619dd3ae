"""Trajectories that other implementations computed, step by step: trep ([T], [S]) and the authors of [L].

The data lie in studies/data. Discrete maps are compared, not limits: the same rule at the same step must give
the same numbers up to the tolerances of both solvers, for as long as the motion does not amplify these.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

import vioc
from studies.harness import Claim, Report, Study, at_most
from studies.linear_time_chain import chain
from studies.marionette_dlqr import pulled, start
from studies.reference_models import DATA, load_reference
from vioc import LinearTimeVI, MidpointVI
from vioc.compile import find_compiler

TREP = "trep, residual tolerance 1e-10"
AUTHORS = "authors' C++ of [L]"


def three_links(seconds: float) -> tuple[np.ndarray, np.ndarray]:
    """(t, largest error of q and p) of the pendulum with three links, forces at the left end of a step."""
    system, data = load_reference("pendulum_n3")
    f = MidpointVI(system, 0.01, forcing="left")
    run = f.rollout(np.concatenate([data["q"][0], data["p"][0]]), steps=round(seconds / f.dt))
    return run.t, errors(run.x, np.hstack([data["q"], data["p"]]))


def closed_chain(seconds: float) -> tuple[np.ndarray, np.ndarray]:
    """The device of [T] Fig. 6; it is chaotic."""
    system, data = load_reference("closed_chain_undamped")
    f = MidpointVI(system, 0.01)
    x0 = f.state_from_configurations(data["q"][0], data["q"][0])
    run = f.rollout(x0, steps=round(seconds / f.dt))
    return run.t, errors(run.x, np.hstack([data["q"], data["p"]]))


def marionette(seconds: float) -> tuple[np.ndarray, np.ndarray]:
    """The marionette of [S] VIII-B; its strings lag by a step in these data."""
    with np.load(DATA / "marionette.npz", allow_pickle=False) as stored:
        data = dict(stored)
    f = MidpointVI(vioc.models.load("marionette"), 0.01, forcing="left")
    steps = round(seconds / f.dt)
    samples = data["sample"][data["sample"] <= steps]
    run = f.rollout(start(f), pulled(f, f.dt * np.arange(steps)), warn=False)
    names = [str(n) for n in data["names"]]
    labels = [*names, *(f"p.{n}" for n in names[: data["p"].shape[1]])]
    ours = np.column_stack([run[name][samples] for name in labels])
    return f.dt * samples, errors(ours, np.hstack([data["q"], data["p"]]))


def authors_chain(gravity: str, backend: str = "virtual") -> Callable[[float], tuple[np.ndarray, np.ndarray]]:
    """The five bodies of [L], with the first step of the authors and no better seed than theirs."""

    def solve(seconds: float) -> tuple[np.ndarray, np.ndarray]:
        with np.load(DATA / "linear_time" / f"vi_drnea_riqn_n5_g{gravity}.npz", allow_pickle=False) as stored:
            data = dict(stored)
        options = dict(guess="IG2", tolerance=1e-12, backend=backend)
        f = LinearTimeVI(chain(5, float(data["gravity"])), float(data["dt"]), **options)
        x0 = f.initial_state(data["q"][0], data["dq0"], start="authors")
        run = f.rollout(x0, steps=round(seconds / f.dt))
        return run.t, errors(run.x[:, :5], data["q"])

    return solve


def errors(ours: np.ndarray, theirs: np.ndarray) -> np.ndarray:
    """Largest error at each sample."""
    return np.abs(ours - theirs[: len(ours)]).max(axis=1)


# title, seconds in the quick form and in full, solve, seconds and bound of the claim, source
CASES: dict[str, tuple[str, float, float, Callable, float, float, str]] = {
    "pendulum_n3": ("pendulum with three links", 1.0, 20.0, three_links, 1.0, 1e-8, TREP),
    "closed_chain": ("closed chain", 1.0, 12.0, closed_chain, 1.0, 1e-8, TREP),
    "marionette": ("marionette", 1.0, 10.0, marionette, 1.0, 1e-8, TREP),
    "linear_time_free": ("five bodies without gravity", 0.5, 1.0, authors_chain("0"), 0.5, 1e-10, AUTHORS),
    "linear_time": ("five bodies with gravity", 0.5, 1.0, authors_chain("9.81"), 0.5, 1e-10, AUTHORS),
    **{
        f"compiled_{key}": (title, 0.5, 1.0, authors_chain(gravity, "compiled"), 0.5, 1e-10, AUTHORS)
        for key, title, gravity in (
            ("free", "five bodies without gravity, compiled", "0"),
            ("heavy", "five bodies with gravity, compiled", "9.81"),
        )
        if find_compiler() is not None
    },
}

STUDY = Study(
    __file__,
    "step by step as other implementations computed it: trajectories of five mechanisms",
    **{
        f"{key}{suffix}": claim
        for key, (title, _, full, _, until, bound, source) in CASES.items()
        for suffix, claim in (
            (
                "",
                Claim(
                    f"{title}: largest error of q and p in {until:g} s",
                    at_most(bound),
                    unit="SI",
                    source=source,
                ),
            ),
            ("_whole", Claim(f"{title}: in all {full:g} s", unit="SI", full_only=True)),
        )
    },
)


@STUDY.body
def run(report: Report) -> None:
    found = {}
    for key, (title, quick, full, solve, until, *_) in CASES.items():
        t, error = found[title] = solve(quick if report.quick else full)
        report.measure(**{key: error[t <= until * (1 + 1e-9)].max()})
        if not report.quick:
            report.measure(**{f"{key}_whole": error.max()})
    draw(report, found)


def draw(report: Report, found: dict[str, tuple[np.ndarray, np.ndarray]]) -> None:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(6.5, 4), layout="constrained")
    for title, (t, error) in found.items():
        axes.semilogy(t, np.maximum(error, 1e-14), lw=1, label=title)
    axes.set(xlabel="time (s)", ylabel="largest error of q and p (SI)", title="Against other implementations")
    axes.grid(alpha=0.3)
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize=8)
    report.save(figure)


if __name__ == "__main__":
    STUDY.main()
