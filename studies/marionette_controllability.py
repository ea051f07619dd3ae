"""What strings can and cannot do to the marionette of [S] VIII-B, on and off its constraint manifold.

80 states, 18 inputs: the next place of each string's control in a plane, and its length. Ranks by the
staircase with long steps, of the equilibrium that the marionette hangs in and along its motion of [S].
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import subspace_angles

import vioc
from studies.harness import Claim, Report, Study, at_least, at_most, near
from studies.marionette_dlqr import DT, pulled, start
from vioc.control import controllability, controllability_matrix, equilibrium
from vioc.control.analysis import Structure

STEPS = 300
DYNAMIC, STRINGS, PRESCRIBED = 22, 6, 18
FULL = 2 * (DYNAMIC - STRINGS) + 2 * PRESCRIBED  # what is left of motion, and the controls' places and rates
FREE = FULL - PRESCRIBED  # the rates only repeat what the inputs were
CLEAR = 1e6  # accepted over rejected singular value

STUDY = Study(
    __file__,
    "the controllable subspace of the marionette, and the names of what its strings cannot control",
    states=Claim("states", near(80, 0), published=80, source="[S] VIII-B"),
    inputs=Claim("inputs", near(18, 0), published=18, source="[S] VIII-B"),
    off_rest=Claim("rank in the full state, at rest", near(FULL, 0)),
    off_motion=Claim("rank in the full state, along the motion", near(FULL, 0)),
    on_size=Claim("dimension of the constraint manifold, without rates of prescribed motions", near(FREE, 0)),
    on_rest=Claim("rank on the manifold, at rest", near(FREE, 0)),
    on_motion=Claim("rank on the manifold, along the motion", near(FREE, 0)),
    gap_off=Claim("full state: least singular value accepted over largest rejected", at_least(CLEAR)),
    gap_on=Claim("manifold: least singular value accepted over the tolerance", at_least(1e3)),
    kalman=Claim("rank of [B, AB, ..., A^79 B] as floats give it (the text-book test)"),
    strings_out=Claim("angle of the 6 gradients Dh to what is out of reach", at_most(1e-6), unit="rad"),
    lost_eigenvalues=Claim(
        "largest |eigenvalue| out of reach (a step returns to the manifold)", at_most(1e-4)
    ),
    most=Claim("farthest that one unit of input energy moves a direction of the manifold", unit="SI"),
    least=Claim("least far", unit="SI"),
    one_string=Claim(
        "rank on the manifold with the left arm's string only (15 controls stand still)", at_most(FREE - 15)
    ),
    without_legs=Claim("rank on the manifold without the legs' strings (6 stand still)", at_most(FREE - 6)),
)


@STUDY.body
def run(report: Report) -> None:
    f = vioc.MidpointVI(vioc.models.load("marionette"), DT)
    x0 = start(f)
    steps = 60 if report.quick else STEPS
    motion = f.rollout(x0, pulled(f, DT * np.arange(1, steps + 1)), warn=False)
    held = [*f.system.kinematic, *(f"rho.{name}" for name in f.system.kinematic)]
    rest = equilibrium(f, guess=x0, fixed=held)
    found = {
        (where, place): controllability(f, about, manifold=place == "on", steps=steps)
        for where, about in (("rest", rest), ("motion", motion))
        for place in ("on", "off")
    }
    off, on = found["rest", "off"], found["rest", "on"]
    clear = min(
        found[w, "off"].subspace.accepted / found[w, "off"].subspace.rejected for w in ("rest", "motion")
    )
    assert off.lost is not None
    gains = [d.gain for d in on.directions()]
    A, B = f.linearize(rest.x, rest.u)
    report.measure(
        states=f.nx,
        inputs=f.nu,
        off_rest=off.rank,
        off_motion=found["motion", "off"].rank,
        on_size=on.size,
        on_rest=on.rank,
        on_motion=found["motion", "on"].rank,
        gap_off=clear,
        gap_on=min(found[w, "on"].subspace.accepted for w in ("rest", "motion")) / 1e-9,
        kalman=np.linalg.matrix_rank(controllability_matrix(A, B)),
        strings_out=np.max(subspace_angles(gradients(f, rest.x), off.subspace.complement)),
        lost_eigenvalues=np.abs(off.lost).max(),
        most=gains[0],
        least=gains[-1],
    )
    arm = [name for name in f.input_names if "left_arm" in name]
    upper = [name for name in f.input_names if "leg" not in name]
    partial = {
        "one_string": controllability(f, rest, inputs=arm, steps=steps),
        "without_legs": controllability(f, rest, inputs=upper, steps=steps),
    }
    report.measure(**{key: part.rank for key, part in partial.items()})
    print("At rest, in the full state:\n" + str(off) + "\n")
    print("At rest, on the manifold:\n" + str(on) + "\n")
    for part, words in zip(
        partial.values(), ("With the left arm's string only", "Without the legs' strings"), strict=True
    ):
        names = [name for name, share in part.shares.items() if share > 0.99]
        mixed = [c for c in part.combinations() if len(c) > 1]
        print(f"{words}, nothing moves {', '.join(names) or 'no state as a whole'}; and of combinations:")
        print(
            "\n".join("  " + " ".join(f"{w:+.3g} {n}" for n, w in list(c.items())[:8]) for c in mixed) + "\n"
        )
    draw(report, found, partial["one_string"])
    report.frame(motion, motion.t[-1], view="3d")


def gradients(f: vioc.MidpointVI, x: np.ndarray) -> np.ndarray:
    """Dh' (80, 6), zero for momenta and rates."""
    Dh = f.lagrangian.constraint_jacobian(x[: f.nq])
    return np.vstack([Dh.T, np.zeros((f.nx - f.nq, len(Dh)))])


def draw(report: Report, found: dict[tuple[str, str], Structure], arm: Structure) -> None:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(2, 2, figsize=(13, 12), layout="constrained")
    (names, spectrum), (weak, alone) = axes
    shares = {n: s for n, s in found["rest", "off"].shares.items() if s > 0.02}
    order = sorted(shares, key=lambda n: shares[n])
    names.barh(order, [shares[n] for n in order], color="tab:red")
    names.set(
        title="Full state, at rest: out of reach", xlabel="share of each state, 1 = all of it", xlim=(0, 1)
    )
    for (where, place), color, mark in (
        (("rest", "on"), "tab:blue", "o"),
        (("motion", "on"), "tab:green", "s"),
        (("rest", "off"), "tab:red", "x"),
    ):
        gains = [d.gain for d in found[where, place].directions()]
        space = "manifold" if place == "on" else "full state"
        label = f"{space}, {where}: {found[where, place].rank} of {len(gains)}"
        spectrum.semilogy(np.arange(1, len(gains) + 1), gains, mark, ms=3, color=color, label=label)
    spectrum.set(title="Directions of the Gramian", xlabel="direction", ylabel="gain (SI per root of energy)")
    spectrum.legend(fontsize="small")
    direction = found["rest", "on"].least(1)[0]
    shown = sorted(direction.weights, key=lambda n: abs(direction.weights[n]))[-10:]
    weak.barh(shown, [direction.weights[n] for n in shown], color="tab:blue")
    weak.set(
        title=f"Manifold, at rest: the least controllable direction ({direction.gain:.2g})",
        xlabel="weight (SI)",
    )
    lost = {n: s for n, s in arm.shares.items() if s > 0.02}
    order = sorted(lost, key=lambda n: lost[n])[-30:]
    alone.barh(order, [lost[n] for n in order], color="tab:orange")
    alone.set(
        title=f"Left arm's string only ({arm.rank} of {arm.size}): out of reach", xlabel="share", xlim=(0, 1)
    )
    for ax in (names, weak, alone):
        ax.tick_params(axis="y", labelsize=8)
    for ax in axes.flat:
        ax.grid(alpha=0.3)
    report.save(figure)


if __name__ == "__main__":
    STUDY.main()
