"""A quadruped that learns to walk by random search over gait parameters ([M] 5.4, Fig. 13).

The Unitree A1 of the package ``example-robot-data`` (13 bodies, 12 motors; `studies.quadruped_robot`), its
trunk free, its feet spheres on rigid ground with friction. The references of its joints are a trot: the legs
FR, RL and FL, RR are half a period apart. With a leg's phase p and fold = lift max(0, sin(p + timing))^2,

    hip   = splay, outwards
    thigh = bend + lean + swing cos p + fold / 2
    knee  = -2 bend - fold

so for lean = swing = 0 the foot moves up and down below its hip. Amplitudes grow from zero within the first
second. Nothing is fed back but the joints' angles and rates.

The search starts from `START`, a trot on the spot: swing = 0. For each episode of 10 s every parameter is
drawn from a normal distribution about the best set so far; a set that gets further forward becomes the best.
An episode ends early, with the distance so far, where the robot falls, a knee touches the ground
(only feet are contacts), a step has no solution, or a joint leaves its limits of angle, rate and torque;
that is looked at every half second. [M] gives robot, step, duration, number of episodes and distance; its
Appendix E with the algorithm is missing from our copy, so gains, parameters, start and spreads are our own
choice. The search is a chain of episodes and so not
parallel; searches from other seeds run beside it and say how much of the result is luck.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import astuple, dataclass
from typing import Any

import numpy as np

from studies import peer_mujoco
from studies import quadruped_mujoco as peer
from studies.harness import Claim, Report, Study, at_least, at_most, near
from studies.quadruped_robot import FRICTION, JOINTS, LEGS, PACKAGE, Quadruped, description
from vioc import StepError, Trajectory
from vioc.compile import find_compiler
from vioc.progress import Progress

DT, END, EPISODES = 1e-3, 10.0, 100
SEED, OTHERS = 1, (2, 3)
RAMP = 1.0  # s
CHUNK = 0.5  # s between two looks at whether it has fallen or is overstrained
LOWEST, UPRIGHT = 0.15, 0.5  # m, of the trunk, and cosine of its tilt: below them it has fallen
KNEE = 0.02  # m, the thickness of a leg about it: a knee this low has touched the ground
STEADY = 2.0  # s after which the gait is taken to be periodic
SLOWEST, FASTEST = 1.0, 4.0  # Hz

FIG = "[M] Fig. 13"
URDF = "the robot's file"
STUDY = Study(
    __file__,
    "a quadruped learns to walk by random search",
    distance=Claim(
        f"forward in {END:g} s, best gait of seed {SEED}", at_least(12), "m", "> 12", FIG, full_only=True
    ),
    episodes=Claim("episodes", at_most(100), "", 100, FIG, full_only=True),
    start=Claim("forward with the parameters at the start", at_most(1), "m", full_only=True),
    others=Claim("forward, least of the further seeds", None, "m", full_only=True),
    falls=Claim("episodes that ended early", full_only=True),
    duration=Claim("time on its feet, best gait", at_least(END - DT / 2), "s", full_only=True),
    repeat=Claim("distance of the same gait run again, difference", at_most(0), "m", full_only=True),
    finer=Claim("distance of the same gait at half the step", None, "m", full_only=True),
    mujoco=Claim("distance of the best gait by MuJoCo", None, "m", full_only=True),
    start_mujoco=Claim("distance of the parameters at the start by MuJoCo", None, "m", full_only=True),
    weight=Claim("mean force of the ground over the weight", near(1, 0.01), full_only=True),
    balance=Claim(
        "impulse of ground and weight less the change of momentum", at_most(1e-8), "N s", full_only=True
    ),
    constraint=Claim(
        "largest violation of a joint", at_most(1e-9), "m", "very low", "[M] 5.2", full_only=True
    ),
    penetration=Claim("deepest penetration of the ground", at_most(1e-6), "m", full_only=True),
    cone=Claim("largest friction over mu times normal force", at_most(1 + 1e-6), full_only=True),
    torque=Claim("largest torque of a motor", at_most(33.5), "N m", 33.5, URDF, full_only=True),
    rate=Claim("largest rate of a joint", at_most(21), "rad/s", 21.0, URDF, full_only=True),
    margin=Claim("least distance of a joint from its limits", at_least(0), "rad", full_only=True),
    knee=Claim("lowest height of a knee", at_least(KNEE), "m", full_only=True),
    power=Claim("mean of |torque times rate|, all motors", None, "W", full_only=True),
    speed=Claim("simulated over computing time, one core", None, full_only=True),
)


@dataclass(frozen=True)
class Gait:
    """A trot. Angles and amplitudes in rad, frequency in Hz."""

    frequency: float = 3.0
    swing: float = 0.0
    lift: float = 0.3
    timing: float = 0.0
    bend: float = 0.8
    lean: float = 0.0
    splay: float = 0.0

    def near(self, spread: Gait, rng: np.random.Generator) -> Gait:
        """A random gait in the vicinity."""
        drawn = np.array(astuple(self)) + np.array(astuple(spread)) * rng.standard_normal(7)
        return Gait(float(np.clip(drawn[0], SLOWEST, FASTEST)), *map(float, drawn[1:]))

    def references(self, t: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Angles (N, 12) of the joints at times t, and their rates."""
        w = 2 * np.pi * self.frequency
        grown, growth = np.minimum(t / RAMP, 1), np.where(t < RAMP, 1 / RAMP, 0.0)
        angles, rates = [], []
        for leg in LEGS:
            p = w * t + np.pi * (leg in ("FL", "RR"))
            up = np.maximum(np.sin(p + self.timing), 0)
            fold, unfold = self.lift * up**2, 2 * self.lift * w * up * np.cos(p + self.timing)
            thigh = self.swing * np.cos(p) + fold / 2
            forward = -self.swing * w * np.sin(p) + unfold / 2
            out = -self.splay if leg in ("FR", "RR") else self.splay
            for rest, change, rate in (
                (out, 0 * t, 0 * t),
                (self.bend + self.lean, thigh, forward),
                (-2 * self.bend, -fold, -unfold),
            ):
                angles.append(rest + grown * change)
                rates.append(grown * rate + growth * change)
        return np.column_stack(angles), np.column_stack(rates)


START = Gait()
SPREAD = Gait(frequency=0.3, swing=0.1, lift=0.1, timing=0.3, bend=0.05, lean=0.05, splay=0.03)


@dataclass(frozen=True)
class Walk:
    """An episode: its trajectory as far as it goes, and whether it ended early, by a fall or at a limit."""

    robot: Quadruped
    run: Trajectory
    fell: bool

    @property
    def distance(self) -> float:
        """Forward, of the trunk, m."""
        first, last = self.robot.trunk(self.run.x[[0, -1]])
        return float(last[0] - first[0])


def walk(robot: Quadruped, gait: Gait, end: float = END, *, judged: bool = True) -> Walk:
    """An episode from standing, with feet that just touch the ground; ends early where it is judged so."""
    f, steps = robot.f, round(end / robot.f.dt)
    angles, rates = gait.references(np.arange(steps) * f.dt)
    U = robot.inputs(angles, rates)
    X, multipliers = [f.initial_state(robot.standing(angles[0]), None, U[0])[None]], []
    fell, size = False, round(CHUNK / f.dt)
    for k in range(0, steps, size):
        try:
            run = f.rollout(X[-1][-1], U[k : k + size], k0=k, warn=False)
        except StepError:
            fell = True
            break
        X.append(run.x[1:])
        multipliers.append(run.multipliers)
        upright = robot.trunk(run.x[-1])[0, 2] > LOWEST and robot.upright(run.x[-1])[0] > UPRIGHT
        clear = robot.knees(run.x).min() > KNEE
        last = max(k - 1, 0)  # servos need a sample on either side
        fell = not (upright and clear and robot.able(np.concatenate([X[-2][-2:], X[-1]]), U[last : k + size]))
        if fell and judged:
            break
    x = np.concatenate(X)
    impulses = np.concatenate(multipliers) if multipliers else np.zeros((0, len(f.multiplier_names)))
    done = len(impulses)
    return Walk(robot, Trajectory(f, np.arange(done + 1) * f.dt, x, U[:done], impulses), fell)


@dataclass
class Search:
    """Random search: the distance of every episode, the first by `START`, and the best gait.

    Attributes
    ----------
    best : Gait
    distances : list of float
        m.
    fell : list of bool
    """

    best: Gait
    distances: list[float]
    fell: list[bool]


def learn(
    robot: Quadruped, seed: int, episodes: int, end: float = END, done: Callable[[], None] = lambda: None
) -> Search:
    """The search from a seed; before its episodes there is one of `START`. `done` is called after each."""
    rng = np.random.default_rng(seed)
    first = walk(robot, START, end)
    found = Search(START, [first.distance], [first.fell])
    for _ in range(episodes):
        gait = found.best.near(SPREAD, rng)
        episode = walk(robot, gait, end)
        if episode.distance > max(found.distances):
            found.best = gait
        found.distances.append(episode.distance)
        found.fell.append(episode.fell)
        done()
    return found


def physics(episode: Walk) -> dict[str, float]:
    """What holds along any episode: joints, ground, friction cone and momentum."""
    robot, run = episode.robot, episode.run
    normal, friction = forces(run)
    momentum, T = run["momentum:z"], run.t[-1]
    return {
        "constraint": np.abs(robot.violations(run.x)).max(),
        "penetration": -robot.gaps(run.x).min(),
        "cone": (friction / np.maximum(FRICTION * normal, 1e-3)).max(),
        "balance": abs(normal.sum() * run.map.dt - robot.weight * T - (momentum[-1] - momentum[0])),
    }


def forces(run: Trajectory) -> tuple[np.ndarray, np.ndarray]:
    """Normal and friction forces of the feet (N, 4), N."""
    normal, friction = (np.column_stack([run[f"{k}.{leg}"] for leg in LEGS]) for k in ("force", "friction"))
    return normal, friction


def effort(episode: Walk) -> dict[str, float]:
    """What the gait asks of the motors, and of the ground on the average."""
    robot, run = episode.robot, episode.run
    angles, rates, torques = robot.servos(run.x, run.u)
    steady = run.t[:-1] >= STEADY
    lower, upper = np.array([(robot.limits[j].lower, robot.limits[j].upper) for j in JOINTS]).T
    return {
        "torque": np.abs(torques).max(),
        "rate": np.abs(rates).max(),
        "margin": min((angles - lower).min(), (upper - angles).min()),
        "knee": robot.knees(run.x).min(),
        "power": np.abs(torques * rates)[steady[1:]].sum(axis=1).mean(),
        "weight": forces(run)[0][steady].sum(axis=1).mean() / robot.weight,
    }


@STUDY.body
def run(report: Report) -> None:
    path = description()
    if path is None or find_compiler() is None:
        report.skip(f"pip install {PACKAGE}" if path is None else "install a C compiler", *STUDY.claims)
        return
    robot = Quadruped(path, DT)
    walk(robot, START, CHUNK)  # builds what all episodes share
    if report.quick:
        found = learn(robot, SEED, 3, 1.0)
        episode = walk(robot, found.best, 1.0)
        report.measure(**physics(episode))
        draw_walk(report, episode, (1.0, 1.0, 0.5))
        return
    seeds = SEED, *OTHERS
    with ThreadPoolExecutor() as pool, Progress("episodes", len(seeds) * EPISODES) as bar:
        found, *others = pool.map(lambda s: learn(robot, s, EPISODES, done=bar.advance), seeds)
    before = time.perf_counter()
    episode = walk(robot, found.best)
    seconds = time.perf_counter() - before
    report.measure(
        distance=episode.distance,
        episodes=len(found.distances) - 1,
        start=found.distances[0],
        others=min(max(o.distances) for o in others),
        falls=sum(found.fell),
        duration=episode.run.t[-1],
        repeat=abs(episode.distance - max(found.distances)),
        finer=walk(Quadruped(path, DT / 2), found.best, judged=False).distance,
        speed=episode.run.t[-1] / seconds,
        **physics(episode),
        **effort(episode),
    )
    other, march = (by_mujoco(robot, gait) for gait in (found.best, START))
    if other is not None and march is not None:
        report.measure(mujoco=other[-1, 0], start_mujoco=march[-1, 0])
    else:
        report.skip(peer_mujoco.INSTALL, "mujoco", "start_mujoco")
    print(found.best)
    draw_learning(report, [found, *others], episode, other)
    draw_walk(report, episode, (5.0, 7.1, 0.3))


def by_mujoco(robot: Quadruped, gait: Gait) -> np.ndarray | None:
    """Positions of the trunk (N + 1, 3) in the same episode by MuJoCo, m, or None where it is absent."""
    angles, rates = gait.references(np.arange(round(END / DT)) * DT)
    return peer.walk(robot.path, DT, robot.standing(angles[0])["base_z"], angles, rates)


def draw_learning(report: Report, searches: list[Search], episode: Walk, other: Any) -> None:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(2, 2, figsize=(12, 8), layout="constrained")
    ax = axes[0, 0]
    for search, seed in zip(searches, (SEED, *OTHERS), strict=True):
        style = dict(color="C0", lw=2, zorder=3) if seed == SEED else dict(color="C7", lw=1)
        ax.plot(
            np.maximum.accumulate(search.distances), drawstyle="steps-post", label=f"seed {seed}", **style
        )
    d, fell = np.array(searches[0].distances), np.array(searches[0].fell)
    n = np.arange(len(d))
    ax.plot(n[~fell], d[~fell], "C0.", ms=5, label=f"episodes of seed {SEED}")
    ax.plot(n[fell], d[fell], "rx", ms=4, label="ended early")
    ax.axhline(12, color="k", ls=":", lw=1)
    ax.set(
        title="learning: distance of the best gait so far, and of episodes",
        xlabel="episode",
        ylabel="distance (m)",
    )
    ax.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(0, 0.9))

    run, robot = episode.run, episode.robot
    ax = axes[0, 1]
    ax.plot(run.t, robot.trunk(run.x)[:, 0] - robot.trunk(run.x)[0, 0], label="forward")
    ax.plot(run.t, robot.trunk(run.x)[:, 1], label="to the left")
    ax.plot(run.t, robot.trunk(run.x)[:, 2], label="height")
    if other is not None:
        t = np.arange(len(other)) * DT
        ax.plot(t, other[:, 0], "k--", lw=1, label="forward, MuJoCo")
    ax.set(title="trunk, best gait", xlabel="t (s)", ylabel="position (m)")
    ax.legend(frameon=False, fontsize=8)

    k = slice(round(5 / DT), round(6 / DT))
    ax = axes[1, 0]
    for row, (leg, gap) in enumerate(zip(LEGS, robot.gaps(run.x[k]).T, strict=True)):
        ax.plot(run.t[k], 100 * gap + 10 * row, f"C{row}", label=leg)
        ax.axhline(10 * row, color="k", lw=0.5)
    ax.set(title="gaps of the feet, 10 cm between lines", xlabel="t (s)", yticks=10 * np.arange(4))
    ax.set_yticklabels(LEGS)
    ax = axes[1, 1]
    torques = robot.servos(run.x, run.u)[2][k]
    for i, joint in enumerate(("FR hip", "FR thigh", "FR knee")):
        ax.plot(run.t[k], torques[:, i], lw=1, label=joint)
    limit = robot.limits[JOINTS[0]].effort
    for side in (-1, 1):
        ax.axhline(side * limit, color="k", ls=":", lw=1)
    ax.set(title="torques of a leg and their limit", xlabel="t (s)", ylabel="torque (N m)")
    ax.legend(frameon=False, fontsize=8, loc="lower right", ncols=3, bbox_to_anchor=(1, 0.07))
    report.save(figure)


def draw_walk(report: Report, episode: Walk, times: tuple[float, float, float]) -> None:
    """Side view of the robot at times (first, last, step)."""
    import matplotlib.pyplot as plt

    run, robot = episode.run, episode.robot
    first, last, apart = times
    at = [k for k in np.round(np.arange(first, last + apart / 2, apart) / DT).astype(int) if k <= len(run)]
    figure, ax = plt.subplots(figsize=(13, 1.9), layout="constrained")
    for k, legs in zip(at, robot.points(run.x[at]), strict=True):
        for leg, points in zip(LEGS, legs, strict=True):
            near_side = leg in ("FR", "RR")
            color = ("C0" if leg == "FR" else "C3") if near_side else "0.7"
            ax.plot(points[:, 0], points[:, 2], "o-", color=color, ms=3, lw=2.5, zorder=3 if near_side else 1)
        hips = legs[[0, 2], 0]
        ax.plot(hips[:, 0], hips[:, 2], "k", lw=7, solid_capstyle="round", zorder=2)
        ax.text(hips[:, 0].mean(), hips[:, 2].mean() + 0.07, f"{run.t[k]:.2f} s", ha="center", fontsize=8)
    ax.axhline(0, color="k", lw=1)
    ax.set(aspect="equal", xlabel="x (m)", ylabel="z (m)", ylim=(-0.03, 0.45))
    report.save(figure, "walk")


if __name__ == "__main__":
    STUDY.main()
