"""The Unitree A1 stands, and trots with a given sequence of contacts; MuJoCo plays both laws.

Standing is an equilibrium of the mode with four feet held, found from the air, and a regulator of what can
move: the places of the feet are disregarded by name. The trot has two phases, each on two feet across, is
periodic at half a metre a second and within the limits of the 12 motors; the regulator along it reckons with
when feet land (docs/maths/phases.md). MuJoCo plays torques and regulators with its own contact.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any, NamedTuple

import casadi as ca
import numpy as np

from studies import peer_mujoco
from studies.harness import Claim, Report, Study, at_least, at_most, near
from studies.quadruped_modes import BASE, PLACES, POSE, Legged, pushes
from studies.quadruped_robot import JOINTS, LEGS, PACKAGE, description
from vioc import Trajectory
from vioc.control import ClosedLoop, Cost, Result, dlqr, dmoc, equilibrium
from vioc.errors import StepError
from vioc.maps import MapDerivatives, SwitchedMap

TURN, STRIDE = 0.2, 0.2  # s of a phase, m of both
STEPS = 16  # of a phase
DT, ABOVE, AFTER = 0.01, 0.05, 1.5  # s of a step, m above the ground, s after a push: standing
CLEARANCE, BAND = 0.05, 0.005  # m, of a foot in the middle of its swing, and how much more
CYCLES, PUSHED, HARDER, BACK = 10, 20, 40, 0.05  # BACK in m, rad
PAIRS = (("FR", "RL"), ("FL", "RR"))
Q = {
    **dict.fromkeys(BASE, 1000.0),
    "base_x": 100.0,
    "base_y": 100.0,
    **dict.fromkeys(POSE, 10.0),
    **{f"v.{b}": 10.0 for b in BASE},
    **{f"v.{j}": 0.1 for j in POSE},
}

STUDY = Study(
    __file__,
    "the Unitree A1 stands and trots with known contacts, and MuJoCo under the same torques and regulators",
    stands=Claim(
        "equilibrium from 50 mm above the ground: feet's forces over the weight",
        near(1, 1e-9),
        full_only=True,
    ),
    least=Claim("there: least force of a foot", at_least(20.0), unit="N", full_only=True),
    slack=Claim("there: least of what friction has left", at_least(1.0), unit="N", full_only=True),
    free=Claim(
        "modes that the regulator moves, of 36, with 8 places of feet disregarded",
        near(28, 0),
        full_only=True,
    ),
    returns=Claim(
        f"standing, of {PUSHED} pushes up to 0.3 m/s returned, ContactVI", at_least(PUSHED), full_only=True
    ),
    returns_mujoco=Claim("the same, MuJoCo", at_least(PUSHED), full_only=True),
    falls=Claim("of as many up to 0.6 m/s, ContactVI", full_only=True),
    unsolved=Claim("of these, ended by a step without a solution", full_only=True),
    falls_mujoco=Claim("the same, MuJoCo", full_only=True),
    iterations=Claim("optimizer, from standing: iterations", at_most(100), full_only=True),
    seconds=Claim("all of it, derivatives built", unit="s", full_only=True),
    violation=Claim(
        "largest violation of gaps, pushing forces and friction", at_most(1e-6), unit="m, N", full_only=True
    ),
    torque=Claim("largest torque over the motors' limit", at_most(1.0), full_only=True),
    rate=Claim("largest rate of a joint over the motors' limit", at_most(1.0 + 1e-6), full_only=True),
    weight=Claim(
        "mean of all vertical forces over the weight", near(1.0, 1e-7), published="1", full_only=True
    ),
    closed=Claim(
        "last state of the cycle against the first, but for the stride", at_most(1e-7), full_only=True
    ),
    replay=Claim("rollout of its torques over the cycle against the plan", at_most(1e-6), full_only=True),
    contact=Claim(
        f"ContactVI under torques and regulator, {CYCLES} cycles: off the plan",
        at_most(0.01),
        unit="m",
        full_only=True,
    ),
    mujoco=Claim(
        f"MuJoCo under torques and regulator, {CYCLES} cycles: way",
        near(CYCLES * STRIDE, 0.1),
        unit="m",
        full_only=True,
    ),
    tilt=Claim("there: largest tilt of the trunk", at_most(0.15), unit="rad", full_only=True),
    open_loop=Claim(
        "there without the regulator: height of the trunk after two cycles", unit="m", full_only=True
    ),
    kept=Claim(
        f"trotting, of {HARDER} pushes up to 0.2 m/s, kept up in MuJoCo", at_least(HARDER - 1), full_only=True
    ),
    kept_more=Claim("of as many up to 0.4 m/s", at_least(20), full_only=True),
    kept_timed=Claim("of these without saltation matrices", full_only=True),
)


class Trot(NamedTuple):
    """The plan: a robot, the solution, and what the first two samples of the reference follow from."""

    robot: Legged
    best: Result

    def reference(self, cycles: int) -> Trajectory:
        """The cycle again and again."""
        run, n = self.best.trajectory, len(self.best.phases[0])
        f = SwitchedMap([p.trajectory.map for p in self.best.phases], [n, n], periodic=True)
        step = STRIDE * np.eye(f.nx)[0]
        x = np.concatenate([run.x[:1], *(run.x[1:] + c * step for c in range(cycles))])
        u, multipliers = np.tile(run.u, (cycles, 1)), np.tile(run.multipliers, (cycles, 1))
        own = [run.map.multiplier_names.index(n) for n in f.multiplier_names]
        return Trajectory(f, np.arange(len(x)) * self.robot.dt, x, u, multipliers[:, own])

    @property
    def start(self) -> tuple[np.ndarray, np.ndarray]:
        """Configuration and velocity just before the first feet land."""
        x = self.best.x[0]
        return x[:18], self.best.phases[1].trajectory.map.velocities(x[None])[0]  # type: ignore[attr-defined]


def still_on_four(robot: Legged) -> Any:
    stand = robot.holding(*LEGS)
    return equilibrium(stand, guess=stand.state({**POSE, "base_z": 0.2987 + ABOVE}), fixed=list(POSE))


def standing(report: Report, robot: Legged) -> None:
    """Pushed from the equilibrium; torques as the motors can."""
    still = still_on_four(robot)
    f = still.map
    weights = {**dict.fromkeys(BASE, 2000.0), **{f"v.{b}": 20.0 for b in BASE}}
    loop = dlqr(f, still, weights, 1.0, disregard=PLACES)
    forces = [still[f"force.{leg}"] for leg in LEGS]
    report.measure(
        stands=sum(forces) / weight(robot),
        least=min(forces),
        slack=min(still[f"grip.{leg}"] for leg in LEGS),
        free=len(loop.poles),
    )
    q, steps = still.x[:18], round(AFTER / DT)

    def law(k: int, x: np.ndarray) -> np.ndarray:
        return loop.u - loop.K @ f.difference(loop.x, x)

    def ours(v: np.ndarray) -> np.ndarray:
        start = robot.state(q + 1e-6 * np.eye(18)[2], v)
        try:
            return ClosedLoop(robot.plant, loop, bounds=robot.efforts).simulate(start, steps).x
        except StepError:  # a robot that falls: no shape but the feet meets the ground
            return np.full((1, 36), np.nan)

    def theirs(v: np.ndarray) -> np.ndarray:
        return robot.play(law, q, v, steps)[0]

    def away(play: Any, size: float) -> np.ndarray:
        """Of height and tilt, at the end of each push; NaN where there is none."""
        ends = (play(np.pad(p, (0, 12)))[-1] for p in pushes(PUSHED, 0, size))
        return np.array([np.abs(end[2:6] - q[2:6]).max() for end in ends])

    if report.quick:
        report.frame(f.rollout(still.x, still.u, steps=1), 0.0, title="standing")
        return
    report.measure(returns=(away(ours, 0.3) < BACK).sum())
    harder = away(ours, 0.6)
    report.measure(falls=(harder < BACK).sum(), unsolved=np.isnan(harder).sum())
    if robot.peer is not None:
        returns, falls = ((away(theirs, size) < BACK).sum() for size in (0.3, 0.6))
        report.measure(returns_mujoco=returns, falls_mujoco=falls)


def weight(robot: Legged) -> float:
    """N."""
    return 9.81 * sum(float(n.frame.mass.mass) for n in robot.system.nodes if n.frame.mass)


def plan(robot: Legged, steps: int) -> Trot:
    still = still_on_four(robot)
    phases, guesses = [], []
    for i, held in enumerate(PAIRS):
        f = robot.holding(*held)
        phases.append(phase(robot, f, PAIRS[1 - i], steps, {"base_x": 0.0} if i == 0 else None))
        x = np.tile(still.x, (steps + 1, 1))
        x[:, 0] = STRIDE / 2 * (i + np.linspace(0, 1, steps + 1))
        guesses.append((x, np.tile(still.u, (steps, 1))))
    again = {"base_x": phases[1].map.quantity("base_x") - STRIDE}
    return Trot(robot, dmoc.Problem(phases, jumps=[None, again]).solve(guesses))


def phase(robot: Legged, f: Any, swing: tuple[str, ...], steps: int, initial: Any) -> dmoc.Phase:
    """Torques, rates, tilt and a pose are weighed; swinging feet rise and come down within a band."""
    s = f.symbols
    pose = ca.vertcat(*(f.quantity(n) for n in POSE)) - ca.DM(list(POSE.values()))
    tilt = ca.vertcat(*(f.quantity(n) for n in ("base_y", "base_yaw", "base_pitch", "base_roll")))
    v = ca.vertcat(*(f.quantity(f"v.{n}") for n in POSE))
    effort = 0.1 * ca.sumsqr(s.u) + 0.1 * ca.sumsqr(v)
    cost = Cost(f, s.dt * (effort + 1000 * ca.sumsqr(tilt) + 100 * ca.sumsqr(pose)))
    lift = CLEARANCE * np.sin(np.pi * np.arange(steps + 1) / steps) ** 2
    band = lift.copy(), lift + BAND
    band[0][[0, -1]], band[1][[0, -1]] = -np.inf, np.inf  # where the neighbours hold them
    bounds: dict[str, Any] = {f"gap.{leg}": band for leg in swing}
    for j in JOINTS:
        own = robot.limits[j]
        bounds |= {f"u.{j}": own.effort, f"v.{j}": own.velocity, j: (own.lower, own.upper)}
    return dmoc.Phase(f, steps, cost, initial=initial, bounds=bounds)


@STUDY.body
def run(report: Report) -> None:
    path = description()
    if path is None:
        report.skip(f"pip install {PACKAGE}", *STUDY.claims)
        return
    standing(report, Legged(path, DT))
    if report.quick:
        return
    before = time.perf_counter()
    trot = plan(Legged(path, TURN / STEPS), STEPS)
    report.measure(seconds=time.perf_counter() - before, iterations=trot.best.iterations)
    physics(report, trot)
    reference = trot.reference(CYCLES)
    loop = dlqr(reference.map, reference, Q, 1.0)
    by_contact(report, trot, reference, loop)
    if trot.robot.peer is None:
        missing = "mujoco", "tilt", "open_loop", "kept", "kept_more", "kept_timed"
        report.skip(peer_mujoco.INSTALL, *missing, "returns_mujoco", "falls_mujoco")
        return
    played = by_mujoco(report, trot, reference, loop)
    draw(report, trot, reference, played)


def physics(report: Report, trot: Trot) -> None:
    robot, best = trot.robot, trot.best
    worst = 0.0
    for part in best.phases:
        for name in part.phase.map.mechanism.limits():
            kept = part[name][1:-1] if name.startswith("gap") else part[name]
            worst = max(worst, -float(np.min(kept)))
    run = best.trajectory
    fastest = np.array([robot.limits[j].velocity for j in JOINTS])
    rates = np.stack([np.concatenate([p[f"v.{j}"] for p in best.phases]) for j in JOINTS], axis=1)
    lifted = sum(run[f"force.{leg}"].mean() for leg in LEGS)
    gap = np.abs(run.x[-1] - run.x[0])[1:].max()
    report.measure(
        violation=worst,
        torque=np.abs(run.u / robot.strongest).max(),
        rate=np.abs(rates / fastest).max(),
        weight=lifted / weight(robot),
        closed=max(gap, abs(run.x[-1, 0] - run.x[0, 0] - STRIDE)),
        replay=best.rollout().gap,
    )


def by_contact(report: Report, trot: Trot, reference: Trajectory, loop: Any) -> None:
    robot = trot.robot
    start = robot.state(*trot.start) + 1e-6 * np.eye(36)[2]
    law = loop.as_law()
    moved = ClosedLoop(robot.plant, law, bounds=robot.efforts).simulate(start, len(reference)).trajectory
    report.measure(contact=np.abs(moved.x[:, :3] - reference.x[:, :3]).max())


def kept_up(trot: Trot, reference: Trajectory, K: np.ndarray, v: np.ndarray) -> tuple[bool, np.ndarray]:
    """Whether MuJoCo trots from the start with velocity v to the end, and its configurations."""
    f, X, U = reference.map, reference.x, reference.u
    Q, _ = trot.robot.play(lambda k, x: U[k] - K[k] @ f.difference(X[k], x), trot.start[0], v, len(U))
    good = Q[:, 2].min() > 0.2 and np.abs(Q[-1, 4:6]).max() < 0.2 and abs(Q[-1, 0] - X[-1, 0]) < 0.5
    return bool(good), Q


def by_mujoco(report: Report, trot: Trot, reference: Trajectory, loop: Any) -> np.ndarray:
    q, v = trot.start
    _, played = kept_up(trot, reference, loop.K, v)
    fallen, _ = trot.robot.play(lambda k, x: reference.u[k], q, v, 4 * STEPS)
    by_clock = Timed(reference.map.maps, reference.map.steps_of, periodic=True)  # type: ignore[attr-defined]
    timed = dlqr(by_clock, replace(reference, map=by_clock), Q, 1.0)

    def count(K: np.ndarray, size: float) -> int:
        return sum(kept_up(trot, reference, K, v + np.pad(p, (0, 12)))[0] for p in pushes(HARDER, 1, size))

    report.measure(
        mujoco=played[-1, 0],
        tilt=np.abs(played[:, 4:6]).max(),
        open_loop=fallen[-1, 2],
        kept=count(loop.K, 0.2),
        kept_more=count(loop.K, 0.4),
        kept_timed=count(timed.K, 0.4),
    )
    return played


class Timed(SwitchedMap):
    """The same motion as if feet were put down by the clock."""

    @property
    def derivatives(self) -> MapDerivatives:
        return replace(super().derivatives, moving=None)


def draw(report: Report, trot: Trot, reference: Trajectory, played: np.ndarray) -> None:
    import matplotlib.pyplot as plt

    run, best = reference, trot.best.trajectory
    figure, axes = plt.subplots(2, 2, figsize=(12, 8), layout="constrained")
    for leg in LEGS:
        axes[0, 0].step(best.t[:-1], best[f"force.{leg}"], where="post", label=leg)
        axes[1, 0].plot(best.t, 100 * best[f"gap.{leg}"], label=leg)
    axes[0, 0].set(title="normal forces of one cycle, impacts over a step", ylabel="N", xlabel="t (s)")
    axes[0, 0].legend(frameon=False)
    axes[1, 0].set(title="gaps of the feet", ylabel="cm", xlabel="t (s)")
    for i, name in ((0, "x"), (2, "z")):
        axes[0, 1].plot(run.t, run.x[:, i], f"C{i}", label=f"{name}, plan")
        axes[0, 1].plot(run.t, played[:, i], "k--", lw=1, label=f"{name}, MuJoCo")
    axes[0, 1].set(title="trunk", ylabel="m", xlabel="t (s)")
    axes[0, 1].legend(frameon=False)
    axes[1, 1].step(best.t[:-1], best.u, where="post")
    axes[1, 1].set(title="torques", ylabel="N m", xlabel="t (s)")
    report.save(figure)


if __name__ == "__main__":
    STUDY.main()
