"""A 7-DOF arm's base parameters from one exciting motion, and the torques of another motion.

The arm of `arm_reaching` with bodies that are not those of its data sheet: masses up to 30 % off, centres
of mass by up to 2 cm, full inertias, and friction in the joints. Its torques are by Newton's and Euler's
equations, link by link, written out here. Encoders err by 0.1 mrad, torques by 0.05 N m, both every 2 ms.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

import vioc
from studies.harness import Claim, Report, Study, at_least, at_most, near
from vioc.identification import Record, base_parameters
from vioc.models import seven_joint_arm
from vioc.models.arm import AXES, INERTIAS, MASSES, OFFSETS

DT, DURATION = 0.002, 10.0  # s
ENCODER, TORQUE = 1e-4, 0.05  # rad, N m
GRAVITY = 9.81
COM = (0.0, 0.0, 0.08)  # m, of the data sheet
FRICTION = 0.4  # N m s, of each joint
LARGEST = 1.2  # rad, of a joint's motion

STUDY = Study(
    __file__,
    "a 7-DOF arm's base parameters from one exciting motion",
    rank=Claim(
        "combinations of 70 inertias and 7 frictions that are told",
        near(50, 0.5),
        published="43 and 7 (pinocchio's regressor)",
    ),
    torque=Claim("record kept aside: torques of the physical set, worst joint, relative", at_most(0.01)),
    base=Claim("the same of the base parameters", at_most(0.01)),
    sheet=Claim("the same of the data sheet", at_least(0.05)),
    bodies=Claim("bodies found that are none", at_most(0)),
    covered=Claim("errors of base parameters over their deviations, root mean square", at_most(2.0)),
    friction=Claim("viscous frictions, worst relative error", at_most(0.05)),
    seconds=Claim("time of the identification, 5000 samples", unit="s"),
    peer_rank=Claim("rank of pinocchio's joint torque regressor", near(43, 0.5), full_only=True),
    peer=Claim("pinocchio's regressor and a pseudo-inverse on the same record, same torques", full_only=True),
    peer_seconds=Claim("its time", unit="s", full_only=True),
)


def bodies(seed: int = 4) -> list[tuple[float, np.ndarray, np.ndarray]]:
    """True mass, centre and inertia about it of each link."""
    rng, found = np.random.default_rng(seed), []
    for m, size in zip(MASSES, INERTIAS, strict=True):
        turn, _ = np.linalg.qr(rng.standard_normal((3, 3)))
        second = turn @ np.diag(size * rng.uniform(0.2, 0.8, 3)) @ turn.T
        found.append(
            (
                m * rng.uniform(0.7, 1.3),
                COM + rng.uniform(-0.02, 0.02, 3),
                np.trace(second) * np.eye(3) - second,
            )
        )
    return found


def torques(q: np.ndarray, v: np.ndarray, a: np.ndarray, links: list[Any]) -> np.ndarray:
    """(N, 7), by Newton's and Euler's equations from link to link; friction included."""
    n, forces, kept = len(q), [], []
    w, dw, acc = np.zeros((n, 3)), np.zeros((n, 3)), np.tile([0.0, 0.0, GRAVITY], (n, 1))
    for i, (m, c, inertia) in enumerate(links):
        e = np.eye(3)["xyz".index(AXES[i])]
        s, k = np.sin(q[:, i]), np.cos(q[:, i])
        R = np.zeros((n, 3, 3))
        j = "xyz".index(AXES[i])
        one, two = (j + 1) % 3, (j + 2) % 3
        R[:, j, j], R[:, one, one], R[:, two, two], R[:, two, one], R[:, one, two] = 1, k, k, s, -s
        p = np.array([0.0, 0.0, OFFSETS[i]])
        back = np.swapaxes(R, 1, 2)
        acc = np.einsum("kij,kj->ki", back, acc + np.cross(dw, p) + np.cross(w, np.cross(w, p)))
        w, dw = np.einsum("kij,kj->ki", back, w), np.einsum("kij,kj->ki", back, dw)
        dw = dw + np.outer(a[:, i], e) + np.cross(w, np.outer(v[:, i], e))
        w = w + np.outer(v[:, i], e)
        force = m * (acc + np.cross(dw, c) + np.cross(w, np.cross(w, c)))
        forces.append((force, dw @ inertia + np.cross(w, w @ inertia) + np.cross(c, force)))
        kept.append((R, e, p))
    found, f, t = np.zeros((n, 7)), np.zeros((n, 3)), np.zeros((n, 3))
    for i in reversed(range(7)):
        f, t = f + forces[i][0], t + forces[i][1]
        R, e, p = kept[i]
        found[:, i] = t @ e + FRICTION * v[:, i]
        f, t = np.einsum("kij,kj->ki", R, f), np.einsum("kij,kj->ki", R, t)
        t = t + np.cross(p, f)
    return found


def motion(seed: int, duration: float) -> tuple[np.ndarray, ...]:
    """Times, and q, v, a (N, 7): four harmonics a joint."""
    rng, t = np.random.default_rng([2, seed]), np.arange(round(duration / DT) + 1) * DT
    w = 2 * np.pi * np.arange(1, 5) / 8.0
    A, B = rng.standard_normal((2, 7, 4)) / np.arange(1, 5)
    s, c = np.sin(np.outer(t, w)), np.cos(np.outer(t, w))
    q = s @ A.T + c @ B.T
    size = LARGEST / np.abs(q).max(axis=0)
    v = (c * w) @ A.T - (s * w) @ B.T
    a = -(s * w**2) @ A.T - (c * w**2) @ B.T
    return t, q * size, v * size, a * size


def record(seed: int, duration: float, noise: bool = True) -> Record:
    t, q, v, a = motion(seed, duration)
    rng = np.random.default_rng([6, seed])
    u = torques(q, v, a, bodies()) + noise * TORQUE * rng.standard_normal(q.shape)
    y = q + ENCODER * rng.standard_normal(q.shape)
    measured = {f"q{i + 1}": y[:, i] for i in range(7)}
    return Record(t, measured, {f"u{i + 1}": u[:, i] for i in range(7)}, name=f"motion {seed}")


def model() -> vioc.MidpointVI:
    """The data sheet's, with friction to be found."""
    rubs = [vioc.JointDamping(f"q{i}", vioc.P(f"rub{i}", 0.1)) for i in range(1, 8)]
    return vioc.MidpointVI(seven_joint_arm().with_components(*rubs), 0.01)


def true_numbers() -> np.ndarray:
    """As the regressor has them: first moments, moments about the joint."""
    found: list[float] = []
    for m, c, inertia in bodies():
        J = inertia + m * (c @ c * np.eye(3) - np.outer(c, c))
        found += [m, *(m * c), J[0, 0], J[1, 1], J[2, 2], J[0, 1], J[0, 2], J[1, 2]]
    return np.array([*found, *[FRICTION] * 7])


@STUDY.body
def run(report: Report) -> None:
    f = model()
    one, aside = record(0, 6.0 if report.quick else DURATION), record(1, 4.0, noise=False)
    began = time.perf_counter()
    found = base_parameters(f, one, [f"rub{i}" for i in range(1, 8)])
    seconds = time.perf_counter() - began
    physical, base = found.validate(aside), found.validate(aside, physical=False)
    sheet = found.regressor
    errors = found.base @ true_numbers() - found.values
    m = slice(None, None, 10)
    t, q, v, a = motion(1, 4.0)
    Y, rest, _ = sheet(q[m], v[m], a[m], np.zeros((len(t[m]), 7)), t[m])
    wanted, guess = torques(q, v, a, bodies())[m], Y @ sheet.start + rest
    report.measure(
        rank=len(found.values),
        torque=max(physical.relative.values()),
        base=max(base.relative.values()),
        sheet=float((np.linalg.norm(guess - wanted, axis=0) / np.linalg.norm(wanted, axis=0)).max()),
        bodies=sum(not fine for fine in found.bodies.values()),
        covered=float(np.sqrt(np.mean((errors / found.std) ** 2))),
        friction=max(abs(v / FRICTION - 1) for v in found.linear.values()),
        seconds=seconds,
    )
    if not report.quick:
        beside(report, one, aside)
    draw(report, physical)


def beside(report: Report, one: Record, aside: Record) -> None:
    """pinocchio's regressor on the same splines, and numpy's least squares of least norm."""
    try:
        import pinocchio
    except ImportError:
        report.skip("pip install pin", "peer_rank", "peer", "peer_seconds")
        return
    from vioc.identification.regression import motion as smooth

    made = pinocchio.Model()
    parent = 0
    for i, offset in enumerate(OFFSETS):
        joint = pinocchio.JointModelRZ() if AXES[i] == "z" else pinocchio.JointModelRY()
        place = pinocchio.SE3(np.eye(3), np.array([0.0, 0.0, offset]))
        parent = made.addJoint(parent, joint, place, f"q{i + 1}")
    made.gravity.linear = np.array([0.0, 0.0, -GRAVITY])
    data, f = made.createData(), model()
    began = time.perf_counter()

    def rows(r: Record) -> tuple[np.ndarray, np.ndarray]:
        m = smooth(f, r, 0.1)
        Y = [
            pinocchio.computeJointTorqueRegressor(made, data, *row).copy()
            for row in zip(m.q, m.v, m.a, strict=True)
        ]
        rubs = [np.diag(v) for v in m.v]
        return np.concatenate([np.array(Y), np.array(rubs)], axis=2), m.u

    W, u = rows(one)
    found = np.linalg.lstsq(W.reshape(-1, W.shape[2]), u.ravel(), rcond=1e-8)
    seconds = time.perf_counter() - began
    V, wanted = rows(aside)
    error = np.linalg.norm(V @ found[0] - wanted, axis=0) / np.linalg.norm(wanted, axis=0)
    inner = W[:, :, :70].reshape(-1, 70)
    lengths = np.linalg.norm(inner, axis=0)
    sizes = np.linalg.svd(
        inner / np.where(lengths > 1e-10 * lengths.max(), lengths, np.inf), compute_uv=False
    )
    report.measure(peer_rank=(sizes > 1e-8 * sizes[0]).sum(), peer=error.max(), peer_seconds=seconds)


def draw(report: Report, found: Any) -> None:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(2, 1, figsize=(9, 6), layout="constrained", sharex=True)
    for i, name in enumerate(found.names):
        axes[0].plot(found.t, found.measured[:, i], lw=1, label=name)
        axes[1].plot(found.t, (found.predicted - found.measured)[:, i], lw=0.7)
    axes[0].set(ylabel="torque (N m)", title="A motion kept aside")
    axes[1].set(xlabel="t (s)", ylabel="predicted - true (N m)")
    axes[0].legend(ncols=7, fontsize="small")
    for ax in axes:
        ax.grid(alpha=0.3)
    report.save(figure)


if __name__ == "__main__":
    STUDY.main()
