"""A load is carried by two winches over two sheaves, on a rope of its own, and hangs still.

Strings run from drums on the ground over sheaves of 0.1 m, 4 m apart, to a hook block of 2 kg; from it
hangs a rope of 1.5 m and 0.2 kg/m in six segments with a load of 5 kg. The strings' lengths are kinematic
variables: the inputs are their next values, and the cost is their acceleration squared. The block goes from
(1, -1.5) to (3, -1) m in 3 s, which changes the strings by a metre and more. DMOC asks for the end exactly;
the projection-operator Newton method weighs it. The residual swing is the load's largest distance from its
goal in the 5 s that follow, with the winches locked. The disturbed run starts with the load 0.1 m aside and
is followed by a time-varying DLQR on the strings' lengths, which holds the goal afterwards.
"""

from __future__ import annotations

import time

import casadi as ca
import numpy as np

import vioc
from studies.frames import poses
from studies.harness import Claim, Report, Study, at_least, at_most
from vioc.cables import Cable, Section, SheaveString, cable
from vioc.control import Cost, dmoc

SPAN, RADIUS, GROUND = 4.0, 0.1, -3.0  # m
SEGMENTS, LENGTH = 6, 1.5
START, GOAL = (1.0, -1.5), (3.0, -1.0)  # of the block, m
DT, DURATION, AFTER, SETTLE = 0.02, 3.0, 5.0, 3.0  # s; the disturbed load is judged SETTLE after the move
WINCHES = ("left", "right")
ASIDE = 0.1  # m
R = 300.0  # of the regulators, on the strings' lengths
WARMUP = 20  # Gauss-Newton iterations: stiff terminal weights make Newton's first steps short

STUDY = Study(
    __file__,
    "winches: a load on two pulled strings moved without residual swing",
    dmoc=Claim("residual swing of the load, DMOC, winches locked", at_most(1e-3), unit="m"),
    descent=Claim("residual swing of the load, projection descent, winches locked", at_most(1e-3), unit="m"),
    costs=Claim("difference of the two costs, relative", at_most(1e-3)),
    naive=Claim(
        "residual swing where the strings follow 3 s^2 - 2 s^3 of the time", at_least(1e-2), unit="m"
    ),
    feedback=Claim(
        f"disturbed by {ASIDE:g} m, DLQR: load's distance from the goal, {SETTLE:g} s after the move on",
        at_most(1e-3),
        unit="m",
    ),
    open_loop=Claim("the same disturbance without feedback", at_least(1e-2), unit="m"),
    tension=Claim("least tension of a string, optimum and closed loop", at_least(0), unit="N"),
    strings=Claim("largest |h| of a string, optimum and closed loop", at_most(1e-10), unit="m"),
    speed=Claim("fastest winch of the optimum", unit="m/s"),
    dmoc_s=Claim("time of DMOC, functions included", unit="s"),
    descent_s=Claim("time of projection descent, functions included", unit="s"),
    iterations=Claim("iterations of projection descent"),
)


def rig() -> tuple[vioc.System, Cable]:
    """The crane, and the rope of its load."""
    rope = cable("rope", SEGMENTS, LENGTH, Section(0.2, bending=0.02))[vioc.tz(0.0, name="load", mass=5.0)]
    parts: list = []
    for winch, x, side in (("left", 0.0, -1), ("right", SPAN, 1)):
        drum, sheave = f"{winch}-drum", f"{winch}-sheave"
        parts += [vioc.tx(x, name=sheave), vioc.tx(x + side * RADIUS)[vioc.tz(GROUND, name=drum)]]
        # up outside, over the sheave, and down inside: about +y on the left
        parts.append(
            SheaveString(drum, "block", vioc.K(winch), sheave, RADIUS, (0, -side, 0), name=f"{winch}-string")
        )
    block = vioc.tx("x")[vioc.tz("z", name="block", mass=2.0)[rope.frame]]
    return vioc.System(*parts, block, rope.terms, vioc.Gravity(0, 0, -9.81), name="winches"), rope


def at_rest(f: vioc.MidpointVI, place: tuple[float, float], aside: float = 0.0) -> np.ndarray:
    """The state with the block at a place and the rope straight, its load `aside`, q(-dt) = q(0)."""
    q = dict(zip("xz", place, strict=True)) | {"rope-1": -np.arcsin(aside / LENGTH)}
    lengths = vioc.Lagrangian(f.system).constraints(q)  # s(q) - length, with lengths of zero
    q |= dict(zip(WINCHES, lengths, strict=True))
    return f.state_from_configurations(q, q)


def lengths(x: np.ndarray, f: vioc.MidpointVI) -> np.ndarray:
    """The strings' lengths in a state (2,), m: the input that keeps them."""
    return x[[f.state_names.index(w) for w in WINCHES]]


def cubic(first: np.ndarray, last: np.ndarray, steps: int, total: int) -> np.ndarray:
    """Values (total, n) that follow 3 s^2 - 2 s^3 from `first` to `last` for `steps` steps and stay."""
    s = np.clip(np.arange(1, total + 1) / steps, 0, 1)[:, None]
    return first + (3 * s**2 - 2 * s**3) * (last - first)


def distance(run: vioc.Trajectory) -> np.ndarray:
    """Of the load from its goal (N+1,), m."""
    return np.hypot(run["load:x"] - GOAL[0], run["load:z"] - GOAL[1] + LENGTH)


def effort(
    f: vioc.MidpointVI, drives: tuple[str, ...], terminal: dict[str, tuple[float, float]] | None = None
) -> Cost:
    """Half the square of the drives' accelerations; `terminal` has (weight, value) by quantity.

    Drives are all the kinematic variables in their order, and the only inputs.
    """
    u, dt = f.symbols.u, f.symbols.dt
    speeds = [(u[i] - f.quantity(d)) / dt for i, d in enumerate(drives)]
    rates = ca.vertcat(*((s - f.quantity(f"v.{d}")) / dt for s, d in zip(speeds, drives, strict=True)))
    errors = [np.sqrt(w) * (f.quantity(name) - value) for name, (w, value) in (terminal or {}).items()]
    end = ca.vertcat(*errors) if errors else ca.SX(1, 1)
    return Cost(f, ca.sumsqr(rates) / 2, ca.sumsqr(end) / 2)


@STUDY.body
def run(report: Report) -> None:
    system, rope = rig()
    f = vioc.MidpointVI(system, DT)
    steps, total = round(DURATION / DT), round((DURATION + AFTER) / DT)
    start, goal = at_rest(f, START), at_rest(f, GOAL)
    end = lengths(goal, f)
    hinges = [v for (v,) in rope.hinges]
    final = dict(zip(WINCHES, map(float, end), strict=True)) | dict.fromkeys(hinges, 0.0)
    final |= dict.fromkeys((f"v.{name}" for name in (*WINCHES, *hinges)), 0.0)

    before = time.perf_counter()
    exact = dmoc.solve(f, effort(f, WINCHES), steps=steps, initial=start, final=final)
    report.measure(dmoc_s=time.perf_counter() - before)
    moved = f.rollout(start, exact.trajectory.u)  # what the inputs do, not what the transcription says
    locked = np.tile(end, (total - steps, 1))
    report.measure(dmoc=distance(f.rollout(moved.x[-1], locked)).max())
    report.measure(speed=max(np.abs(moved[f"v.{w}"]).max() for w in WINCHES))

    before = time.perf_counter()
    weighed = effort(f, WINCHES, {name: (1e6, value) for name, value in final.items()})
    rates = (f"v.{w}" for w in WINCHES)  # their weight keeps the drums from jerking
    Q = {**dict.fromkeys((*WINCHES, *rates), 300.0), **dict.fromkeys(hinges, 1e4)}
    first = lengths(start, f)
    found = vioc.control.optimize(
        f, weighed, cubic(first, end, steps, steps), x0=start, projection=(Q, R), warmup=WARMUP
    )
    report.measure(
        descent_s=time.perf_counter() - before,
        iterations=found.iterations,
        descent=distance(f.rollout(found.trajectory.x[-1], locked)).max(),
        costs=abs(found.cost / exact.cost - 1),
    )

    loop = found.stabilize(Q, R).hold(goal, end)
    off = at_rest(f, START, ASIDE)
    closed = loop.rollout(off, total)
    loose = f.rollout(off, np.concatenate([found.trajectory.u, locked]))
    settled = steps + round(SETTLE / DT)
    report.measure(
        feedback=distance(closed)[settled:].max(),
        open_loop=distance(loose)[settled:].max(),
        tension=min(r[f"tension.{w}-string"][1:].min() for r in (moved, closed) for w in WINCHES),
        strings=max(np.abs(r[f"h.{w}-string"]).max() for r in (moved, closed) for w in WINCHES),
    )
    naive = f.rollout(start, cubic(first, end, steps, total))
    report.measure(naive=distance(naive)[steps:].max())
    draw(report, moved, naive, closed, loose)


def draw(report: Report, moved, naive, closed, loose) -> None:
    import matplotlib.pyplot as plt

    figure, (path, place, error) = plt.subplots(1, 3, figsize=(14, 4.2), layout="constrained")
    poses(moved, np.linspace(0.0, DURATION, 7), ax=path)
    for winch, color in zip(WINCHES, ("tab:blue", "tab:orange"), strict=True):
        place.plot(moved.t[1:], moved[f"v.{winch}"][1:], color=color, label=f"{winch}, optimum")
        cut = naive.t[1:] <= DURATION
        place.plot(
            naive.t[1:][cut], naive[f"v.{winch}"][1:][cut], ":", color=color, lw=1, label=f"{winch}, cubic"
        )
    place.set(xlabel="t (s)", ylabel="rate of the length (m/s)", title="strings")
    for r, name in ((naive, "cubic"), (loose, "open loop, disturbed"), (closed, "DLQR, disturbed")):
        error.semilogy(r.t, np.maximum(distance(r), 1e-6), lw=0.8, label=name)
    error.axhline(1e-3, color="k", lw=0.8, ls=":")
    error.axvline(DURATION, color="k", lw=0.8, ls=":")
    error.set(xlabel="t (s)", ylabel="|load - goal| (m)", title=f"disturbed: load starts {ASIDE:g} m aside")
    for axes in (path, place, error):
        axes.grid(alpha=0.3)
    place.legend(fontsize="small")
    error.legend(fontsize="small")
    report.save(figure)


if __name__ == "__main__":
    STUDY.main()
