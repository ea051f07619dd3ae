"""Natural frequencies of cables against beam, rod and hanging-chain theory (docs/maths/cables.md)."""

from __future__ import annotations

import numpy as np
from scipy.optimize import brentq
from scipy.special import jn_zeros

import vioc
from studies.harness import Claim, Report, Study, at_most, count_ticks, near
from vioc.dynamics.cables.cable import cable
from vioc.dynamics.cables.modes import normal_modes
from vioc.dynamics.cables.section import Section
from vioc.dynamics.cables.statics import static_equilibrium

COUNTS, QUICK = (10, 20, 40), (5, 8, 12)  # segments
BEAM = Section(1.0, axial=1e4, bending=1.0)  # axial modes far above the first bending ones
ROD = Section(1.0, axial=1.0, bending=1e3)  # and the other way round
G = 9.81
EQUATIONS = {  # in beta, with a bracket of the first root
    "clamped-free": (lambda b: np.cos(b) * np.cosh(b) + 1, 1.5, 2.5),
    "clamped-clamped": (lambda b: np.cos(b) * np.cosh(b) - 1, 4.0, 5.5),
    "clamped-pinned": (lambda b: np.tan(b) - np.tanh(b), 3.6, 4.5),
    "pinned-pinned": (np.sin, 3.0, 3.5),
}


def claims() -> dict[str, Claim]:
    result = {}
    for ends in EQUATIONS:
        key, (low, high) = ends.replace("-", "_"), ("Euler-Bernoulli", 2)
        result[key] = Claim(
            f"first bending frequency, {ends}, 40 segments, relative error",
            at_most(0.01),
            source=low,
            full_only=True,
        )
        if ends != "pinned-pinned":
            result[f"{key}_order"] = Claim("its order over the number of segments", near(high, 0.2))
    return {
        **result,
        "pinned_pinned_order": Claim("its order: rods' and hinges' errors cancel", near(4, 0.3)),
        "nodes_order": Claim("order, pinned-pinned with masses at the nodes", near(2, 0.2)),
        "axial_fixed_free": Claim(
            "first axial frequency, fixed and free, 40 segments", at_most(0.01), source="rod", full_only=True
        ),
        "axial_fixed_free_order": Claim("its order", near(2, 0.2)),
        "axial_fixed": Claim(
            "first axial frequency, fixed at both ends, 40 segments",
            at_most(0.01),
            source="rod",
            full_only=True,
        ),
        "axial_fixed_order": Claim("its order", near(2, 0.2)),
        "bessel": Claim(
            "worst of three pendulum modes of a hanging chain, 40 segments",
            at_most(0.01),
            source="J_0",
            full_only=True,
        ),
        "bessel_order": Claim("order of the first", near(2, 0.2)),
        "paper": Claim(
            "clamped-free with the paper's stiffness, 40 segments over theory",
            near(2, 0.05),
            published="sqrt(4)",
            full_only=True,
            source="[C] (16)-(19)",
        ),
    }


STUDY = Study(__file__, "natural frequencies of cables", **claims())


def first(ends: str, n: int, section: Section, **options) -> np.ndarray:
    """Frequencies, rad/s, of a cable of 1 m along x in the plane, without weight."""
    start, far = ends.split("-")
    free = far == "free"
    rope = cable(
        "c", n, 1.0, section, along="x", start=start, extensible=not free or section is ROD, **options
    )
    held = () if free else rope.attach("end", clamped=far == "clamped")
    system = vioc.System(rope, vioc.tx(1.0, name="end"), held)
    return normal_modes(static_equilibrium(system), 1).omega


def chain(n: int) -> np.ndarray:
    rope = cable("c", n, 1.0, Section(1.0))
    system = vioc.System(rope, vioc.Gravity(0, 0, -G))
    return normal_modes(static_equilibrium(system), 3).omega


def judge(report: Report, key: str, counts: tuple[int, ...], errors: list[float]) -> list[float]:
    """The order of relative errors, and in full form the last of them; the errors as they are."""
    report.measure(**{f"{key}_order": -np.polyfit(np.log(counts), np.log(np.abs(errors)), 1)[0]})
    if not report.quick and key in STUDY.claims:
        report.measure(**{key: abs(errors[-1])})
    return errors


@STUDY.body
def run(report: Report) -> None:
    counts, curves = QUICK if report.quick else COUNTS, {}
    for ends, (equation, low, high) in EQUATIONS.items():
        theory = brentq(equation, low, high, xtol=1e-14) ** 2
        errors = [first(ends, n, BEAM)[0] / theory - 1 for n in counts]
        curves[ends] = judge(report, ends.replace("-", "_"), counts, errors)
        if ends == "clamped-free" and not report.quick:
            report.measure(paper=first(ends, counts[-1], BEAM, stiffness="paper")[0] / theory)
    errors = [first("pinned-pinned", n, BEAM, masses="nodes")[0] / np.pi**2 - 1 for n in counts]
    curves["pinned-pinned, masses at nodes"] = judge(report, "nodes", counts, errors)
    for key, ends, theory in (
        ("axial_fixed_free", "clamped-free", np.pi / 2),
        ("axial_fixed", "clamped-clamped", np.pi),
    ):
        errors = [first(ends, n, ROD)[0] / theory - 1 for n in counts]
        curves[key.replace("_", " ")] = judge(report, key, counts, errors)
    bessel = jn_zeros(0, 3) / 2 * np.sqrt(G)
    ratios = np.array([chain(n) / bessel - 1 for n in counts])
    curves["hanging chain"] = judge(report, "bessel", counts, list(ratios[:, 0]))
    if not report.quick:
        report.measure(bessel=np.abs(ratios[-1]).max())
    draw(report, counts, curves)


def draw(report: Report, counts: tuple[int, ...], curves: dict[str, list[float]]) -> None:
    import matplotlib.pyplot as plt

    figure, ax = plt.subplots(figsize=(8, 4.5), layout="constrained")
    for name, errors in curves.items():
        ax.loglog(counts, np.abs(errors), ".-", label=name)
    ax.axhline(0.01, color="k", lw=0.8, ls=":")
    ax.set(xlabel="segments", ylabel="relative error of the first frequency", title="Cables against theory")
    count_ticks(ax, counts)
    ax.grid(alpha=0.3)
    figure.legend(*ax.get_legend_handles_labels(), loc="outside right upper", fontsize="small")
    report.save(figure)


if __name__ == "__main__":
    STUDY.main()
