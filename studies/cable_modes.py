"""Natural frequencies of cables against beam, rod and hanging-chain theory (docs/maths/cables.md)."""

from __future__ import annotations

import numpy as np
from scipy.optimize import brentq
from scipy.special import jn_zeros

import vioc
from studies.harness import Bound, Claim, Report, Study, at_most, count_ticks, near
from vioc.cables import Cable, NormalModes, Section, cable, normal_modes, static_equilibrium

COUNTS, QUICK = (10, 20, 40), (5, 8, 12)  # segments
BEAM = Section(1.0, axial=1e4, bending=1.0)  # axial modes far above the first bending ones
ROD = Section(1.0, axial=1.0, bending=1e3)  # and the other way round
G = 9.81
ERRORS = {  # relative, of 40 segments: an error that is smaller is as wrong as one that is larger
    "clamped_free": 2.87e-4,
    "clamped_clamped": 1.93e-3,
    "clamped_pinned": 8.18e-4,
    "axial_fixed_free": 6.35e-5,
    "axial_fixed": 2.56e-4,
    "bessel": 2.72e-3,
}
EQUATIONS = {  # in beta, with a bracket of the first root
    "clamped-free": (lambda b: np.cos(b) * np.cosh(b) + 1, 1.5, 2.5),
    "clamped-clamped": (lambda b: np.cos(b) * np.cosh(b) - 1, 4.0, 5.5),
    "clamped-pinned": (lambda b: np.tan(b) - np.tanh(b), 3.6, 4.5),
    "pinned-pinned": (np.sin, 3.0, 3.5),
}


def error_of(key: str) -> Bound:
    return near(ERRORS[key], 0.1 * ERRORS[key])


def claims() -> dict[str, Claim]:
    result = {}
    for ends in EQUATIONS:
        key, (low, high) = ends.replace("-", "_"), ("Euler-Bernoulli", 2)
        result[key] = Claim(
            f"first bending frequency, {ends}, 40 segments, relative error",
            error_of(key) if key in ERRORS else at_most(1e-7),
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
            "first axial frequency, fixed and free, 40 segments",
            error_of("axial_fixed_free"),
            source="rod",
            full_only=True,
        ),
        "axial_fixed_free_order": Claim("its order", near(2, 0.2)),
        "axial_fixed": Claim(
            "first axial frequency, fixed at both ends, 40 segments",
            error_of("axial_fixed"),
            source="rod",
            full_only=True,
        ),
        "axial_fixed_order": Claim("its order", near(2, 0.2)),
        "planes": Claim(
            "first frequencies in the two planes of a strip, their ratio", near(3, 1e-3), source="sqrt(9)"
        ),
        "strip_order": Claim("order of the first frequency in the stiff plane, clamped-free", near(2, 0.2)),
        "twist_order": Claim(
            "order of the first torsional frequency, clamped-free", near(2, 0.2), source="shaft"
        ),
        "twist": Claim(
            "first torsional frequency, clamped-free, 40 segments, relative error",
            at_most(1e-3),
            source="shaft",
            full_only=True,
        ),
        "bessel": Claim(
            "worst of three pendulum modes of a hanging chain, 40 segments",
            error_of("bessel"),
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


def strip(n: int) -> np.ndarray:
    """Bending frequencies of a clamped-free strip, E I = 1 about y and 9 about z, stiff in torsion."""
    section = Section(1.0, bending=(1.0, 9.0), torsion=10.0, polar=1e-6)  # more loses digits
    rope = cable("c", n, 1.0, section, along="x", hinges="yzx", start="clamped")
    modes = normal_modes(static_equilibrium(vioc.System(rope)), 3)
    return np.array([modes.omega[0], modes.omega[axis(modes, rope, 1)]])


def axis(modes: NormalModes, rope: Cable, which: int) -> int:
    """The slowest mode that moves the hinges' axis of that number most."""
    size = [
        [abs(modes.shapes[i][[modes.names.index(names[a]) for names in rope.hinges]]).max() for a in range(3)]
        for i in range(len(modes))
    ]
    return next(i for i, row in enumerate(size) if int(np.argmax(row)) == which)


def shaft(n: int) -> float:
    """First torsional frequency of a clamped-free shaft, G J = 1 and I_p = 1, that hardly bends."""
    section = Section(1.0, bending=1e4, torsion=1.0, polar=1.0)
    rope = cable("c", n, 1.0, section, along="x", hinges="yzx", start="clamped")
    modes = normal_modes(static_equilibrium(vioc.System(rope)), 3)
    return float(modes.omega[axis(modes, rope, 2)])


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
    beta = brentq(*EQUATIONS["clamped-free"], xtol=1e-14) ** 2
    strips = np.array([strip(n) for n in counts])
    report.measure(planes=strips[-1, 1] / strips[-1, 0])
    curves["strip, stiff plane"] = judge(report, "strip", counts, list(strips[:, 1] / (3 * beta) - 1))
    errors = [shaft(n) / (np.pi / 2) - 1 for n in counts]
    curves["shaft"] = judge(report, "twist", counts, errors)
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
