"""The marionette of [S] VIII-B (Fig. 5-7): simulated, linearized and stabilized about a 10 s motion.

Its joints are not driven. The 18 inputs are the next values of the kinematic configurations: for each of
the six strings its length and the place of its control in a plane above the marionette.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

import vioc
from studies.gains import feedback_gap
from studies.harness import Claim, Report, Study, at_least, at_most, near
from studies.reference_models import DATA

DT = 0.01  # s
STEPS, QUICK = 1000, 40  # of the motion; of those that are timed in quick form
TENSORS = 20  # steps whose second-order tensors are timed
PULL = {"left_arm": 0.1, "right_arm": -0.1, "left_leg": -0.1, "right_leg": 0.1}  # m
DISTURBED, DISTURBANCE = "torso_rz", 0.1  # rad

SAME = at_most(1e-8)
REFERENCE = "studies/data/marionette"
DERIVATIVE = at_most(1e-6)

STUDY = Study(
    __file__,
    "the marionette of [S]: its motion, exact derivatives and feedback through its strings",
    states=Claim("states", near(80, 0), published=80, source="[S] VIII-B"),
    inputs=Claim("inputs", near(18, 0), published=18, source="[S] VIII-B"),
    reference_q=Claim(
        "configurations in the first second, against an independent implementation",
        SAME,
        unit="rad, m",
        source=REFERENCE,
    ),
    reference_p=Claim("momenta in the first second, likewise", SAME, unit="SI", source=REFERENCE),
    reference_long=Claim("configurations and momenta over 10 s", SAME, unit="SI", source=REFERENCE),
    strings=Claim("largest |h| of any step", at_most(1e-10), unit="m^2"),
    first=Claim("A, B against differences of the step, entries, at 4 points", DERIVATIVE, source="[S] IV"),
    second=Claim("second derivatives against differences of A, B, relative", DERIVATIVE, source="[S] V"),
    multipliers=Claim(
        "the same with weights on the multipliers too, against differences of A, B, C, D",
        DERIVATIVE,
        source="[S] V",
    ),
    gains=Claim(
        "inputs of the closed loop against those of a second Riccati recursion, relative", at_most(1e-8)
    ),
    closed_peak=Claim("closed loop: largest |x - x_d|", unit="SI"),
    closed_last=Claim("closed loop: |x - x_d| at 10 s", unit="SI"),
    closed=Claim(
        "closed loop: the second over the first",
        at_most(0.01),
        published="converges",
        source="[S] Fig. 6",
    ),
    open_peak=Claim("open loop: largest |x - x_d|", unit="SI"),
    open_last=Claim("open loop: |x - x_d| at 10 s", unit="SI"),
    open=Claim(
        "open loop: the second over the first",
        at_least(0.01),
        published="persists",
        source="[S] Fig. 6",
    ),
    closed_q=Claim("closed loop: the same ratio for the 40 configurations alone", at_most(0.01)),
    open_q=Claim("open loop: the same ratio for the 40 configurations alone", at_least(0.01)),
    closed_torso=Claim(
        "closed loop: largest error of torso_rz over the last 2 s", unit="rad", source="[S] Fig. 7"
    ),
    open_torso=Claim("open loop: likewise", unit="rad", source="[S] Fig. 7"),
    tension=Claim(
        "least tension of a string after the first step (below 0 a string would go slack)", unit="N"
    ),
    step_ms=Claim("time per simulated step", unit="ms", published=2.11, source="[S] VIII-B"),
    first_ms=Claim("time per linearization", unit="ms", published=1.12, source="[S] VIII-B"),
    tensor_ms=Claim(
        "time per second-order linearization: the 80 Hessians of the state by state and input",
        unit="ms",
        published=22.15,
        source="[S] VIII-B",
    ),
    second_ms=Claim("one contraction with a costate, which is what optimal control takes", unit="ms"),
    build=Claim("first calls of all four, which build the functions", unit="s"),
)


@STUDY.body
def run(report: Report) -> None:
    f = vioc.MidpointVI(vioc.models.load("marionette"), DT, forcing="left")
    x0 = start(f)
    motion = timed(report, f, x0)
    compare_with_reference(report, f, x0)
    derivatives(report, motion, (0, 500) if report.quick else (0, 137, 500, 900))
    report.measure(
        states=f.nx,
        inputs=f.nu,
        strings=max(np.abs(motion[f"h.{name}"]).max() for name in f.multiplier_names),
        # the pulling starts at full speed: a blow on the strings in the first step
        tension=min(tension(motion, name)[1:].min() for name in f.multiplier_names),
    )

    weights = {name: 100.0 if name in f.system.variables else 1.0 for name in f.state_names}
    regulator = vioc.control.dlqr(f, motion, weights, 1.0)
    disturbed = x0 + f.state({DISTURBED: DISTURBANCE})
    loops = {"closed": regulator.rollout(disturbed), "open": f.rollout(disturbed, motion.u, warn=False)}
    Q = np.array([weights[name] for name in f.state_names])
    report.measure(gains=feedback_gap(loops["closed"], motion, Q, np.ones(f.nu)))
    late = motion.t > motion.t[-1] - 2.0
    for name, loop in loops.items():
        whole, q = error(loop, motion, f.nx), error(loop, motion, f.nq)
        torso = np.abs(loop[DISTURBED] - motion[DISTURBED])[late]
        figures = {"peak": whole.max(), "last": whole[-1], "q": q[-1] / q.max(), "torso": torso.max()}
        report.measure(**{f"{name}_{key}": value for key, value in figures.items()})
        report.measure(**{name: whole[-1] / whole.max()})
    draw_errors(report, motion, loops)
    report.frame(motion, (0.0, 2.5), view="3d", title="Marionette: 40 configurations, 6 strings ([S] Fig. 5)")


def start(f: vioc.MidpointVI) -> np.ndarray:
    """The state after a step from rest, q(-dt) = q(0): p is half of gravity's impulse in a step."""
    q = vioc.models.marionette_configuration()
    return f.state_from_configurations(q, q)


def pulled(f: vioc.MidpointVI, t: np.ndarray) -> np.ndarray:
    """Inputs (len(t), 18) that change the strings of arms and legs by +-0.1 sin(0.6 pi t)."""
    q = vioc.models.marionette_configuration()
    U = np.tile(f.input({f"rho.{name}": q[name] for name in f.system.kinematic}), (len(t), 1))
    for limb, size in PULL.items():
        U[:, f.input_names.index(f"rho.{limb}_string-length")] += size * np.sin(0.6 * np.pi * t)
    return U


def tension(run: vioc.Trajectory, string: str) -> np.ndarray:
    """Return the tension of each step (N,), N: its force goes with the gradient 2 d of h = |d|^2 - L^2."""
    return -2 * run[f"{string}-length"][:-1] * run[f"force.{string}"]


def error(run: vioc.Trajectory, motion: vioc.Trajectory, size: int) -> np.ndarray:
    """|x - x_d| (N+1,) in the first `size` states."""
    return np.linalg.norm((run.x - motion.x)[:, :size], axis=1)


def timed(report: Report, f: vioc.MidpointVI, x0: np.ndarray) -> vioc.Trajectory:
    """The motion, and what it and its derivatives cost: first calls, which build functions; then the best."""
    U, steps = pulled(f, DT * np.arange(1, STEPS + 1)), QUICK if report.quick else STEPS
    built = seconds(lambda: f.rollout(x0, U[:steps], warn=False))
    some = f.rollout(x0, U[:steps], warn=False)
    calls = {
        "step_ms": lambda: f.rollout(x0, U[:steps], warn=False),
        "first_ms": lambda: f.linearize_trajectory(some),
        "second_ms": lambda: f.second_order_trajectory(some, np.ones((steps, f.ndx))),
        "tensor_ms": lambda: f.derivatives.tensor(few),  # 5 MB a step
    }
    few = f.rollout(x0, U[:TENSORS], warn=False)
    built += sum(seconds(calls[key]) for key in ("first_ms", "second_ms", "tensor_ms"))
    repeats = 1 if report.quick else 5
    best = {
        key: 1e3 * min(seconds(call) for _ in range(repeats)) / (TENSORS if key == "tensor_ms" else steps)
        for key, call in calls.items()
    }
    for key in ("second_ms", "tensor_ms"):
        best[key] -= best["first_ms"]  # which it begins with
    report.measure(build=built, **best)
    return f.rollout(x0, U, warn=False)


def seconds(call: Callable[[], Any]) -> float:
    before = time.perf_counter()
    call()
    return time.perf_counter() - before


def compare_with_reference(report: Report, f: vioc.MidpointVI, x0: np.ndarray) -> None:
    """Against numbers computed elsewhere; its strings lag by a step, which is followed here only."""
    with np.load(DATA / "marionette.npz", allow_pickle=False) as stored:
        data = dict(stored)
    samples, names = data["sample"], [str(n) for n in data["names"]]
    ours = f.rollout(x0, pulled(f, DT * np.arange(samples[-1])), warn=False)
    known = {name: data["q"][:, i] for i, name in enumerate(names)}
    known |= {f"p.{name}": data["p"][:, i] for i, name in enumerate(names[: data["p"].shape[1]])}
    errors = {name: np.abs(ours[name][samples] - values) for name, values in known.items()}
    second = samples <= round(1 / DT)
    report.measure(
        reference_q=max(errors[name][second].max() for name in names),
        reference_p=max(e[second].max() for name, e in errors.items() if name not in names),
        reference_long=max(e.max() for e in errors.values()),
    )


def derivatives(report: Report, motion: vioc.Trajectory, points: tuple[int, ...]) -> None:
    """Exact against central differences at some steps; A, B by entry, products H d relative to their size."""
    f: Any = motion.map
    rng = np.random.default_rng(0)
    first, second, both = [], [], []
    for k in points:
        w = np.concatenate([motion.x[k], motion.u[k]])
        z = rng.standard_normal(f.nx)

        def step(w: np.ndarray, k: int = k) -> np.ndarray:
            return f.step(w[: f.nx], w[f.nx :], k)

        def linear(w: np.ndarray, k: int = k) -> np.ndarray:
            return np.hstack(list(f.linearize(w[: f.nx], w[f.nx :], k)))

        exact = linear(w)
        for column, direction in zip(exact.T, np.eye(len(w)), strict=True):
            first.append(np.abs(column - slope(step, w, direction, 1e-4)).max())
        zeta = rng.standard_normal(f.nm)

        def whole(w: np.ndarray, k: int = k) -> np.ndarray:
            lin = f.linearize(w[: f.nx], w[f.nx :], k)
            return np.block([[lin.A, lin.B], [lin.C, lin.D]])

        xx, xu, uu = f.second_order(w[: f.nx], w[f.nx :], z, k, zeta=zeta)
        hessian = np.block([[xx, xu], [xu.T, uu]])
        direction = rng.standard_normal(len(w)) / np.sqrt(len(w))
        product = hessian @ direction
        difference = product - np.concatenate([z, zeta]) @ slope(whole, w, direction, 1e-3)
        both.append(np.abs(difference).max() / (1 + np.abs(product).max()))
        xx, xu, uu = f.second_order(w[: f.nx], w[f.nx :], z, k)
        hessian = np.block([[xx, xu], [xu.T, uu]])
        for direction in rng.standard_normal((3, len(w))) / np.sqrt(len(w)):
            product = hessian @ direction
            difference = product - z @ slope(linear, w, direction, 1e-3)
            second.append(np.abs(difference).max() / (1 + np.abs(product).max()))
    report.measure(first=max(first), second=max(second), multipliers=max(both))


def slope(function: Callable[[np.ndarray], np.ndarray], w: np.ndarray, d: np.ndarray, h: float) -> np.ndarray:
    """Derivative along d by central differences at h and 2 h, extrapolated to order 4."""
    near, far = ((function(w + s * d) - function(w - s * d)) / (2 * s) for s in (h, 2 * h))
    return (4 * near - far) / 3


def draw_errors(report: Report, motion: vioc.Trajectory, loops: dict[str, vioc.Trajectory]) -> None:
    """[S] Fig. 6 and Fig. 7."""
    import matplotlib.pyplot as plt

    f: Any = motion.map
    colors = {"open": "tab:red", "closed": "tab:blue"}
    figure, (norm, torso) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    for name, color in colors.items():
        loop = loops[name]
        norm.semilogy(loop.t, error(loop, motion, f.nx), color=color, label=f"{name} loop, state")
        q = error(loop, motion, f.nq)
        norm.semilogy(loop.t, q, color=color, lw=1, ls=":", label=f"{name} loop, configurations")
        torso.plot(loop.t, loop[DISTURBED], color=color, label=f"{name} loop")
    torso.plot(motion.t, motion[DISTURBED], color="k", ls="--", lw=1, label="reference")
    norm.set(xlabel="t (s)", ylabel=r"$|x - x_d|$ (SI)", title="Norm of the error ([S] Fig. 6)")
    torso.set(xlabel="t (s)", ylabel=f"{DISTURBED} (rad)", title="Orientation of the torso ([S] Fig. 7)")
    for axes in (norm, torso):
        axes.grid(alpha=0.3)
        axes.legend(fontsize="small")
    report.save(figure)


if __name__ == "__main__":
    STUDY.main()
