"""Arms brought to full poses: inverse kinematics within limits, and a motion that ends there.

Poses are those of random configurations within the limits, so that each can be reached. Every search begins
in the middle of the limits. Beside it, in the same run, the closed-loop inverse kinematics of pinocchio's
examples (gain 0.1, at most 1000 iterations, error 1e-4 of its logarithm of SE(3)), which knows no limits:
what it finds outside of them, whole turns apart, is counted apart. The robots are from example-robot-data
(Panda, URDF) and robosuite (MJCF).
"""

from __future__ import annotations

import importlib.metadata
import time
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.spatial.transform import Rotation

import vioc
from studies.arm_reaching import START
from studies.harness import Claim, Report, Study, at_least, at_most
from vioc import Robot
from vioc.control import optimize, pose, quadratic

POSES, PEER_POSES = 500, 100
LIMIT = 2.6  # rad, of the arm without a file
ROBOTS = ("panda", "iiwa", "ur5e", "sawyer", "kinova3", "jaco", "xarm7")
DOWN = Rotation.from_euler("xyz", (180, 0, 40), degrees=True)  # half a turn off the world's axes
INSTALL = (
    "pinocchio, MuJoCo and robots: pip install pin mujoco example-robot-data; pip install --no-deps robosuite"
)

STUDY = Study(
    __file__,
    "arms at full poses: inverse kinematics within limits beside pinocchio's, and motions that end there",
    share=Claim("7-DOF arm, random poses within reach: share found within the limits", at_least(1.0)),
    one_guess=Claim("likewise from one guess, the middle of the limits"),
    accuracy=Claim("largest error of what was found", at_most(1e-8), unit="m, rad"),
    batch=Claim("time of a pose in a batch of them", unit="ms"),
    pose_miss=Claim("motion to a pose half a turn off: error at its end", at_most(1e-8), unit="m, rad"),
    worst=Claim("7 robots: smallest share of poses found", at_least(1.0), full_only=True),
    mean_guess=Claim("7 robots: mean share from one guess", full_only=True),
    near_ms=Claim(
        "7 robots: time of a pose, guess 0.1 rad off, slowest median", at_most(1.0), "ms", full_only=True
    ),
    any_ms=Claim("7 robots: time of one pose from the middle, slowest median", unit="ms", full_only=True),
    peer_guess=Claim("pinocchio's CLIK: mean share from one guess, limits or not", full_only=True),
    peer_within=Claim("pinocchio's CLIK: mean share from one guess, within the limits", full_only=True),
    peer_ms=Claim("pinocchio's CLIK, in Python: time of one pose, mean", unit="ms", full_only=True),
    panda_seconds=Claim(
        "Panda to a pose in 1.5 s, its limits as bounds: processor time of the call, compiled, best of 3",
        at_most(1.0),
        "s",
        full_only=True,
    ),
    panda_first=Claim(
        "likewise the first call, wall clock, what is compiled on disk", unit="s", full_only=True
    ),
    panda_miss=Claim("its error at the end", at_most(1e-8), unit="m, rad", full_only=True),
    panda_limits=Claim("largest share of its limits", at_most(1 + 1e-6), full_only=True),
)


@STUDY.body
def run(report: Report) -> None:
    system = vioc.models.seven_joint_arm()
    bounds = dict.fromkeys(system.variables, (-LIMIT, LIMIT))
    own = reach(system, "tool", bounds, 100 if report.quick else POSES)
    report.measure(share=own.share, one_guess=own.one_guess, accuracy=own.error, batch=own.batch)
    f = vioc.MidpointVI(system, dt=0.05)
    goal = pose("tool", [0.3, -0.2, 0.4], DOWN)
    found = motion(f, f.initial_state(START), goal, 20, None)
    report.measure(pose_miss=missed(f, found, "tool", [0.3, -0.2, 0.4]))
    picture(report, found)
    if not report.quick:
        robots(report)


def motion(f: Any, start: np.ndarray, goal: dict[str, float], steps: int, bounds: Any) -> Any:
    """To a pose and to rest there, by little torque and little momentum."""
    still = {f"v.{name}": 0.0 for name in f.system.variables}
    cost = quadratic(f, R=1e-3, Q={f"p.{name}": 1.0 for name in f.system.variables})
    return optimize(f, cost, x0=start, steps=steps, final=goal | still, bounds=bounds)


def missed(f: Any, run: Any, frame: str, place: Any) -> float:
    T = vioc.Kinematics(f.system).pose(frame, run.x[-1][: len(f.system.variables)])
    turn = (DOWN.inv() * Rotation.from_matrix(T[:3, :3])).magnitude()
    return float(max(np.abs(T[:3, 3] - place).max(), turn))


class Reached(NamedTuple):
    """Shares of poses, the largest error of those found, and times of a pose, ms."""

    share: float
    one_guess: float
    error: float
    batch: float
    near: float
    anywhere: float
    q: np.ndarray


def reach(system: Any, frame: str, bounds: Any, count: int, singles: int = 30) -> Reached:
    kinematics, names = vioc.Kinematics(system), system.variables
    low, high = (np.array([bounds.get(n, (-np.inf, np.inf))[i] for n in names]) for i in (0, 1))
    rng = np.random.default_rng(1)
    q = rng.uniform(np.maximum(low, -np.pi), np.minimum(high, np.pi), (count, len(names)))
    targets = np.array([kinematics.pose(frame, one) for one in q])
    one = kinematics.inverse({frame: targets}, bounds=bounds, tries=1)
    before = time.process_time()
    found = kinematics.inverse({frame: targets}, bounds=bounds, tries=100)
    batch = 1e3 * (time.process_time() - before) / count
    within = ((found.q >= low) & (found.q <= high)).all(axis=1)
    there = np.array([kinematics.pose(frame, one) for one in found.q])
    turns = (
        Rotation.from_matrix(targets[:, :3, :3]).inv() * Rotation.from_matrix(there[:, :3, :3])
    ).magnitude()
    errors = np.maximum(np.abs(there - targets)[:, :3, 3].max(axis=1), turns)
    times: dict[bool, list[float]] = {True: [], False: []}
    for near in times:
        for target, known in zip(targets[:singles], q, strict=False):
            guess = known + 0.1 * rng.standard_normal(len(names)) if near else None
            before = time.perf_counter()
            kinematics.inverse({frame: target}, guess, bounds=bounds)
            times[near].append(1e3 * (time.perf_counter() - before))
    done = found.converged & within
    medians = (float(np.median(times[near])) for near in (True, False))
    return Reached(
        float(done.mean()), float(one.converged.mean()), float(errors[done].max()), batch, *medians, q
    )


# -- robots from packages -------------------------------------------------------------------------------


def package_file(package: str, ending: str) -> Path:
    found = importlib.metadata.distribution(package)
    return next(Path(str(found.locate_file(f))) for f in found.files or () if str(f).endswith(ending))


def read(name: str) -> tuple[Robot, Any, str]:
    """A robot, pinocchio's model of the same file, and the frame of the last joint."""
    import pinocchio as pin

    from vioc import read_mjcf

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if name == "panda":
            path = package_file("example-robot-data", "panda.urdf")
            robot = vioc.read_urdf(path, inputs="all").without("panda_hand_joint")
            model = pin.buildModelFromUrdf(str(path))
            fingers = [model.getJointId(n) for n in model.names if "finger" in n]
            return robot, pin.buildReducedModel(model, fingers, pin.neutral(model)), "panda_link7"
        path = package_file("robosuite", f"robots/{name}/robot.xml")
        robot = read_mjcf(path)
        return robot, pin.buildModelFromMJCF(str(path)), list(robot.joints.values())[-1].child


def clik(pin: Any, model: Any, data: Any, target: Any, q: np.ndarray) -> tuple[np.ndarray, bool]:
    """The loop of pinocchio's example of inverse kinematics."""
    joint = model.njoints - 1
    for _ in range(1000):
        pin.forwardKinematics(model, data, q)
        away = data.oMi[joint].actInv(target)
        error = pin.log(away).vector
        if np.linalg.norm(error) < 1e-4:
            return q, True
        J = -pin.Jlog6(away.inverse()) @ pin.computeJointJacobian(model, data, q, joint)
        v = -J.T @ np.linalg.solve(J @ J.T + 1e-12 * np.eye(6), error)
        q = pin.integrate(model, q, 0.1 * v)
    return q, False


def robots(report: Report) -> None:
    try:
        import pinocchio as pin

        read("iiwa")
    except (ImportError, StopIteration) as missing:
        keys = [key for key, claim in STUDY.claims.items() if claim.full_only]
        report.skip(f"{INSTALL} ({missing})", *keys)
        return
    ours, theirs = {}, {}
    for name in ROBOTS:
        robot, model, frame = read(name)
        bounds = robot.bounds("position")
        ours[name] = found = reach(robot.system, frame, bounds, POSES, 100)
        data, low, high = model.createData(), model.lowerPositionLimit, model.upperPositionLimit
        if model.nq != len(robot.system.variables):
            print(f"{name}: {found.share:.1%} (one guess {found.one_guess:.1%}); no CLIK: other coordinates")
            continue
        limited = np.isfinite(low) & np.isfinite(high)
        middle = np.where(limited, 0.5 * (np.maximum(low, -9) + np.minimum(high, 9)), 0.0)
        solved = within = 0
        before = time.process_time()
        for q in found.q[:PEER_POSES]:
            pin.forwardKinematics(model, data, q)
            end, done = clik(pin, model, data, data.oMi[model.njoints - 1].copy(), middle.copy())
            solved += done
            end = end - 2 * np.pi * np.round((end - middle) / (2 * np.pi))  # every joint is an angle
            within += done and bool(((end >= low) & (end <= high)).all())
        ms = 1e3 * (time.process_time() - before) / PEER_POSES
        theirs[name] = solved / PEER_POSES, within / PEER_POSES, ms
        print(
            f"{name}: {found.share:.1%} (one guess {found.one_guess:.1%}), {found.near:.2f} ms near, "
            f"{found.anywhere:.2f} ms anywhere; CLIK {solved}, within {within} of {PEER_POSES}, {ms:.1f} ms"
        )
    peer = np.array(list(theirs.values()))
    report.measure(
        worst=min(r.share for r in ours.values()),
        mean_guess=np.mean([r.one_guess for r in ours.values()]),
        near_ms=max(r.near for r in ours.values()),
        any_ms=max(r.anywhere for r in ours.values()),
        peer_guess=peer[:, 0].mean(),
        peer_within=peer[:, 1].mean(),
        peer_ms=peer[:, 2].mean(),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        arm_of_seven = vioc.read_urdf(package_file("example-robot-data", "panda.urdf"), inputs="all")
    panda(report, arm_of_seven)


def panda(report: Report, robot: Robot) -> None:
    robot = robot.locked(panda_finger_joint1=0.02)
    place, seconds = [0.4, -0.3, 0.35], []
    for _ in range(4):
        f = vioc.MidpointVI(robot.system, dt=0.05, backend="compiled")
        start = f.initial_state(
            panda_joint2=-0.785, panda_joint4=-2.356, panda_joint6=1.571, panda_joint7=0.785
        )
        before = time.process_time(), time.perf_counter()
        run = motion(f, start, pose("panda_hand", place, DOWN), 30, robot.bounds())
        seconds.append((time.process_time() - before[0], time.perf_counter() - before[1]))
    shares = []
    for name, (low, high) in robot.bounds().items():
        middle, half = 0.5 * (low + high), 0.5 * (high - low)
        shares.append(np.abs(run[name] - middle).max() / half)
    report.measure(
        panda_seconds=min(spent for spent, _ in seconds[1:]),
        panda_first=seconds[0][1],
        panda_miss=missed(f, run, "panda_hand", place),
        panda_limits=max(shares),
    )


def picture(report: Report, run: Any) -> None:
    import matplotlib.pyplot as plt

    fig, axes = plt.subplots(1, 2, figsize=(8, 3), layout="constrained")
    for name in run.map.system.variables:
        axes[0].plot(run.t, run[name], label=name)
    away = [pose_distance(run, k) for k in range(len(run.t))]
    axes[1].semilogy(run.t, np.maximum(away, 1e-16), "k")
    axes[0].set(xlabel="t (s)", ylabel="joints (rad)")
    axes[1].set(xlabel="t (s)", ylabel="tool to its orientation (rad)")
    axes[0].legend(ncols=2, fontsize="small")
    report.save(fig)


def pose_distance(run: Any, k: int) -> float:
    vector = [run[f"tool:{axis}"][k] for axis in ("rx", "ry", "rz")]
    return float((DOWN.inv() * Rotation.from_rotvec(vector)).magnitude())


if __name__ == "__main__":
    STUDY.main()
