"""The snakeboard's three gaits, driven by rotor and wheels alone, against equations written by hand.

A board with a rotor on it and wheels that steer to opposite sides at its ends (Lewis, Ostrowski, Murray and
Burdick, "Nonholonomic mechanics and locomotion: the snakeboard example", 1994): the gaits psi = a sin(i w t),
phi = b sin(j w t) with (i, j) = (1, 1) drive along, with (2, 1) turn, with (3, 2) move sideways. Rotor and
wheels are prescribed; the wheels do not slip (docs/maths/nonholonomic.md). The ratios are published, the
numbers of the board and the amplitudes are this study's. Beside it its equations by hand, in scipy.
"""

from __future__ import annotations

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from scipy.integrate import solve_ivp

import vioc
from studies.harness import Claim, Report, Study, at_least, at_most, near
from vioc import K, System, rz, tx, ty
from vioc.components import Skate

MASS, LENGTH = 6.0, 0.2  # kg, m: from the centre to a wheel
BOARD, ROTOR, WHEEL = 0.016, 0.072, 0.0013  # kg m^2
A, B, RATE = 0.7, 0.3, 2 * np.pi  # rad, rad, rad/s
GAITS = {"drive": (1, 1), "turn": (2, 1), "park": (3, 2)}
STEPS = (50, 100, 200)  # a second

STUDY = Study(
    __file__,
    "the snakeboard's gaits, ratios as published, board and amplitudes our own, against equations by hand",
    order=Claim("order of convergence of x, y, heading over three steps, drive", near(2.0, 0.1)),
    off=Claim(
        "all gaits, 200 steps a second: largest error of x, y, heading at the end",
        at_most(5e-3),
        unit="m, rad",
    ),
    slip=Claim("slip of a wheel in a step", at_most(1e-14), unit="m"),
    momentum=Claim("momentum equation of a step, over the largest momentum", at_most(1e-10)),
    drive=Claim("drive: way along, over the way across", at_least(3.0)),
    turn=Claim("turn: heading after a period, over the way in board lengths", at_least(1.0)),
    park=Claim("park: way across, over the way along", at_least(1.0)),
)


@STUDY.body
def run(report: Report) -> None:
    seconds = 2.0 if report.quick else 6.0
    exact = {name: by_hand(*gait, seconds) for name, gait in GAITS.items()}
    runs = {name: rolled(*gait, seconds, STEPS[-1]) for name, gait in GAITS.items()}
    coarse = [rolled(*GAITS["drive"], seconds, n) for n in STEPS]
    errors = [np.abs(r.x[-1, :3] - exact["drive"][:3, -1]).max() for r in coarse]
    slopes = np.log2(np.array(errors[:-1]) / errors[1:])
    report.measure(
        order=slopes[np.argmax(np.abs(slopes - 2))],
        off=max(np.abs(runs[n].x[-1, :3] - exact[n][:3, -1]).max() for n in GAITS),
        slip=max(slipped(r) for r in runs.values()),
        momentum=max(momentum(r) for r in runs.values()),
    )
    along, across, turned = (np.abs(runs[n].x[-1, i]) for n, i in (("drive", 0), ("drive", 1), ("turn", 2)))
    report.measure(
        drive=along / across,
        turn=turned / (np.hypot(*runs["turn"].x[-1, :2]) / (2 * LENGTH)),
        park=abs(runs["park"].x[-1, 1] / runs["park"].x[-1, 0]),
    )
    draw(report, runs, exact)


def snakeboard() -> System:
    """x, y, heading; the rotor psi and the steering phi are prescribed."""
    ends = [
        tx(side * LENGTH)[rz(K(name), name=name, mass=(0.0, WHEEL, WHEEL, WHEEL))]
        for name, side in (("front", 1), ("back", -1))
    ]
    rotor = rz(K("psi"), name="rotor", mass=(0.0, ROTOR, ROTOR, ROTOR))
    board = rz("heading", name="board", mass=(MASS, BOARD, BOARD, BOARD))[(rotor, *ends)]
    return System(
        tx("x")[ty("y")[board]], [Skate(n, (0, 1, 0), n) for n in ("front", "back")], name="snakeboard"
    )


def gait(i: int, j: int, t: Any) -> tuple[Any, Any]:
    return A * np.sin(i * RATE * t), B * np.sin(j * RATE * t)


def rolled(i: int, j: int, seconds: float, steps: int) -> vioc.Trajectory:
    """From rest of the board, with rotor and wheels in motion."""
    f = vioc.MidpointVI(snakeboard(), 1 / steps)
    n = round(seconds * steps)
    t = np.arange(1, n + 1) / steps
    psi, phi = gait(i, j, t)
    U = np.zeros((n, f.nu))
    for name, values in (("rho.psi", psi), ("rho.front", phi), ("rho.back", -phi)):
        U[:, f.input_names.index(name)] = values
    rates = {"psi": A * i * RATE, "front": B * j * RATE, "back": -B * j * RATE}
    v = vioc.project_velocity(f.system, None, rates)
    return f.rollout(f.initial_state(None, v), U)


def by_hand(i: int, j: int, seconds: float) -> np.ndarray:
    """x, y, heading, and rates at the end and on the way, by DOP853 on the board's own equations.

    m x.. = A'lambda, and J heading.. + J_r psi.. = A'lambda; the two wheels' spins cancel.
    """
    inertia = np.diag([MASS, MASS, BOARD + ROTOR + 2 * WHEEL])

    def rows(q: np.ndarray, t: float, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        phi, rate = B * np.sin(j * RATE * t), B * j * RATE * np.cos(j * RATE * t)
        A_, dA = np.zeros((2, 3)), np.zeros((2, 3))
        for row, side in enumerate((1, -1)):
            a, da = q[2] + side * phi, v[2] + side * rate
            A_[row] = -np.sin(a), np.cos(a), side * LENGTH * np.cos(phi)
            dA[row] = -np.cos(a) * da, -np.sin(a) * da, -side * LENGTH * np.sin(phi) * rate
        return A_, dA

    def flow(t: float, s: np.ndarray) -> np.ndarray:
        q, v = s[:3], s[3:]
        A_, dA = rows(q, t, v)
        push = np.array([0.0, 0.0, ROTOR * A * (i * RATE) ** 2 * np.sin(i * RATE * t)])
        kkt = np.block([[inertia, -A_.T], [A_, np.zeros((2, 2))]])
        return np.concatenate([v, np.linalg.lstsq(kkt, np.concatenate([push, -dA @ v]), rcond=None)[0][:3]])

    t = np.linspace(0, seconds, round(200 * seconds) + 1)
    return solve_ivp(flow, (0, seconds), np.zeros(6), "DOP853", t, rtol=1e-11, atol=1e-12).y


def slipped(run: vioc.Trajectory) -> float:
    f = run.map
    middle, way = (run.x[:-1, : f.nq] + run.x[1:, : f.nq]) / 2, np.diff(run.x[:, : f.nq], axis=0)
    rows = (f.lagrangian.constraint_jacobian(q) @ d for q, d in zip(middle, way, strict=True))
    return max(np.abs(r).max() for r in rows)


def momentum(run: vioc.Trajectory) -> float:
    """(5) of the maths page: xi_k is the motion of the plane that both wheels allow at q_k."""
    f = run.map
    q, p = run.x[:, :3], run.x[:, f.nq : f.nq + 3]
    directions = [np.linalg.svd(f.lagrangian.constraint_jacobian(x[: f.nq])[:, :3])[2][2] for x in run.x]
    off = []
    for k, d in enumerate(directions[:-1]):
        w = d[2]  # a rate of turn about the plane's axis, and the velocity of the board's origin now
        moved = q[k + 1, :2] - q[k, :2]
        later = np.array([d[0] - w * moved[1], d[1] + w * moved[0], w])
        off.append(p[k + 1] @ later - p[k] @ d)
    return float(np.abs(off).max() / np.abs(p).max())


def draw(report: Report, runs: dict[str, Any], exact: dict[str, np.ndarray]) -> None:
    figure, axes = plt.subplots(1, len(runs), figsize=(12, 4), layout="constrained")
    for ax, (name, run_) in zip(axes, runs.items(), strict=True):
        ax.plot(run_["x"], run_["y"], label="vioc")
        ax.plot(exact[name][0], exact[name][1], "k:", label="by hand, DOP853")
        ax.set(
            xlabel="x (m)",
            ylabel="y (m)",
            title=f"{name}: rotor to wheels {GAITS[name][0]} to {GAITS[name][1]}",
        )
        ax.grid(alpha=0.3)
    axes[0].legend()
    report.save(figure)


if __name__ == "__main__":
    STUDY.main()
