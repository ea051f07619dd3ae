"""Random mechanisms identified from noisy records: masses, springs, dampers, and one whole body of each.

Trees and loops of `vioc.models.family` with 2 to 5 joints, moved by sines at their inputs where they have
some. scipy's DOP853 stands for the mechanism; configurations are measured every 10 ms for 2 s with 1 mrad (1
mm). Searches begin up to 30 % off. Where the report says that half the step would move a parameter by as much
as noise does, the step is halved, three times at most, as a user would. A mechanism that DOP853 does not
follow for 2 s (it comes to a singular place) has no record: it is counted and left out. What one does not
tell is counted, not excused: only what the report calls told is held against its deviation, and what is found
must be bodies. The quick form takes two mechanisms of at most three joints.
"""

from __future__ import annotations

import dataclasses
import time
from typing import Any

import numpy as np
from scipy.integrate import DOP853

import vioc
from studies.harness import Claim, Report, Study, at_least, at_most
from vioc.errors import StepError
from vioc.identification import Record, identify
from vioc.models import RandomMechanism, mechanisms

MANY, FEW = 40, 2
NOISE = 1e-3  # rad, m
OFF = 0.3  # of starts, relative
MOVED = 0.05  # m, of the whole body's centre
STEPS = (0.005, 0.0025, 0.00125, 0.000625)  # s
DEVIATIONS = 5.0
EVALUATIONS = 100_000
BODY = ("x", "y", "z", "Ixx", "Iyy", "Izz", "Ixy", "Ixz", "Iyz")

STUDY = Study(
    __file__,
    "random mechanisms identified: masses, springs, dampers, one whole body of each",
    without=Claim("mechanisms without a record of 2 s"),
    within=Claim(
        f"share of mechanisms whose search ended with all that is told within {DEVIATIONS:g} deviations",
        at_least(0.9),
    ),
    failed=Claim("searches that did not end, or could not begin"),
    wrong=Claim("searches that ended with something told farther off"),
    silent=Claim("those of them in which the report doubts nothing", at_most(0)),
    nothing=Claim("searches that ended with nothing told (counted as within)"),
    bodies=Claim("bodies found that are none", at_most(0)),
    told=Claim("share of parameters that are told"),
    error=Claim("masses told to 10 % or better: median relative error"),
    finest=Claim("mechanisms for which the report asked for shorter steps"),
    seconds=Claim("processor time of a mechanism, median", unit="s"),
)


def parametrized(m: RandomMechanism, rng: np.random.Generator) -> tuple[vioc.System, dict[str, float]]:
    """The mechanism with parameters, and where the search for them begins."""
    begin: dict[str, float] = {}

    def P(name: str, value: float, start: float | None = None) -> vioc.P:
        begin[name] = value * (1 + rng.uniform(-OFF, OFF)) if start is None else start
        return vioc.P(name, value)

    massive = sum(node.frame.mass is not None for node in m.system.nodes)
    whole, count = int(rng.integers(massive)), 0

    def told(frame: Any) -> Any:
        nonlocal count
        mass = frame.mass
        if mass is not None:
            inertia, com = mass.inertia, mass.com
            if count == whole:
                size, moved = 1 + rng.uniform(-OFF, OFF), rng.uniform(-MOVED, MOVED, 3)
                values = [float(v) for v in (*com, *inertia)]
                starts = [*(np.array(values[:3]) + moved), *(size * np.array(values[3:]))]
                all_nine = [P(n, v, float(s)) for n, v, s in zip(BODY, values, starts, strict=True)]
                com, inertia = tuple(all_nine[:3]), tuple(all_nine[3:])
            mass = vioc.Mass(P(f"mass{count}", float(mass.mass)), inertia, com)
            count += 1
        return dataclasses.replace(frame, mass=mass, children=tuple(told(c) for c in frame.children))

    frames, terms = [told(frame) for frame in m.system.frames], []
    for i, term in enumerate(m.system.components):
        if isinstance(term, vioc.TorsionalSpring):
            term = dataclasses.replace(term, stiffness=P(f"spring{i}", float(term.stiffness)))
        elif isinstance(term, vioc.JointDamping):
            term = dataclasses.replace(term, coefficient=P(f"damper{i}", float(term.coefficient)))
        terms.append(term)
    return vioc.System(*frames, *terms, name=m.system.name), begin


class Impatient(DOP853):
    """It creeps towards singular places by ever shorter steps."""

    def _step_impl(self) -> tuple[bool, str | None]:
        if self.nfev > EVALUATIONS:
            return False, f"More than {EVALUATIONS} evaluations."
        return super()._step_impl()


def record(m: RandomMechanism, system: vioc.System, rng: np.random.Generator) -> Record:
    t = np.arange(201) * 0.01
    inputs = {}
    for name in system.inputs:
        size, rate, phase = rng.uniform(0.5, 3.0), rng.uniform(2.0, 12.0), rng.uniform(0, 6.0)
        inputs[name] = lambda t, a=size, w=rate, b=phase: a * np.sin(w * t + b)
    truth = vioc.reference_solution(
        system, m.q, m.v, t, inputs or None, rtol=1e-9, atol=1e-9, method=Impatient
    )
    y = {n: truth[n] + NOISE * rng.standard_normal(len(t)) for n in system.variables}
    return Record(t, y, inputs, name=m.name)


@STUDY.body
def run(report: Report) -> None:
    made, without = [], 0
    for m in mechanisms(FEW, joints=(2, 3)) if report.quick else mechanisms(MANY, joints=(2, 5)):
        rng = np.random.default_rng([23, int(m.name.split()[1])])
        system, begin = parametrized(m, rng)
        try:
            made.append((system, begin, record(m, system, rng)))
        except RuntimeError as error:
            print(error)
            without += 1
    found = [searched(*one) for one in made]
    errors = np.concatenate([one["errors"] for one in found])
    report.measure(
        without=without,
        within=np.mean([one["state"] == "good" for one in found]),
        failed=sum(one["state"] == "failed" for one in found),
        wrong=sum(one["state"] == "wrong" for one in found),
        silent=sum(one["state"] == "wrong" and not one["doubts"] for one in found),
        nothing=sum(one["state"] == "good" and not one["told"] for one in found),
        bodies=sum(one["none"] for one in found),
        told=sum(one["told"] for one in found) / sum(len(begin) for _, begin, _ in made),
        error=np.median(errors),
        finest=sum(one["dt"] < STEPS[0] for one in found),
        seconds=np.median([one["seconds"] for one in found]),
    )
    draw(report, found)


def searched(system: vioc.System, begin: dict[str, float], one: Record) -> dict[str, Any]:
    """What became of a search: its state, errors of masses, errors in deviations."""
    out: dict[str, Any] = dict(state="failed", errors=[], off=[], none=0, told=0, doubts=[], dt=STEPS[0])
    began, noise = time.process_time(), dict.fromkeys(one.measured, NOISE**2)
    try:
        for dt in STEPS:
            f = vioc.MidpointVI(system, dt)
            found = identify(f, one, list(begin), values=begin, noise=noise)
            out["dt"] = dt
            begin = begin if not found.converged else dict(found.values)
            if not any("half the step" in doubt for doubt in found.doubts):
                break
    except (StepError, RuntimeError, ValueError) as error:
        print(f"{one.name}: {type(error).__name__}: {error}")
        return {**out, "seconds": time.process_time() - began}
    true, std, out["doubts"] = f.parameters, found.std, found.doubts
    told = [n for n in begin if np.isfinite(std[n])]
    out["off"] = [abs(found[n] - true[n]) / std[n] for n in told]
    out["errors"] = [
        abs(found[n] / true[n] - 1) for n in told if n.startswith("mass") and std[n] < 0.1 * true[n]
    ]
    out["none"], out["told"] = sum(not fine for fine in found.bodies.values()), len(told)
    if found.converged:
        out["state"] = "good" if max(out["off"], default=0.0) < DEVIATIONS else "wrong"
    if out["state"] != "good":
        off = f"{max(out['off'], default=0):.1f} deviations"
        print(f"{one.name}: {out['state']}, {off}: {found.doubts}")
    return {**out, "seconds": time.process_time() - began}


def draw(report: Report, found: list[dict[str, Any]]) -> None:
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3), layout="constrained")
    off = np.sort(np.concatenate([one["off"] for one in found]))
    left.plot(off, np.linspace(0, 1, len(off)), label="found")
    x = np.linspace(0, 2 * DEVIATIONS, 200)
    left.plot(x, np.vectorize(_normal)(x), "k:", label="normal")
    beyond = int((off > x[-1]).sum())
    left.set(xlim=(0, x[-1]), xlabel=f"error / deviation ({beyond} beyond)", ylabel="share of parameters")
    left.legend()
    errors = np.sort(np.concatenate([one["errors"] for one in found]))
    right.semilogy(np.arange(1, len(errors) + 1), np.maximum(errors, 1e-7), ".")
    right.set(xlabel="mass", ylabel="relative error")
    report.save(figure)


def _normal(x: float) -> float:
    from math import erf

    return erf(x / np.sqrt(2))


if __name__ == "__main__":
    STUDY.main()
