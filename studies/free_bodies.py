"""Bodies that turn freely, without charts, over a million steps: momentum, energy, closed forms, a peer.

A torque-free body beside Jacobi's elliptic functions, Lagrange's top beside quadrature of its nutation and
precession, a tumbling quadrotor of five bodies with its rotors coasting; MuJoCo with the same bodies and
steps where it is installed; random bodies, and random trees that float, and what comes of the same starts on
charts.
Momenta are relative to their size at the start: of the whole spatial vector where nothing acts, of
the vertical part and of that about the axis for the top.
"""

from __future__ import annotations

import time
import warnings
from dataclasses import replace
from typing import Any

import numpy as np

import vioc
from studies import peer_mujoco
from studies.energy import total_drift
from studies.free_bodies_exact import nutation, torque_free
from studies.free_bodies_peer import inertial, tumble
from studies.harness import Claim, Report, Study, at_least, at_most, near
from studies.humanoid import urdf
from vioc import GroupVI, charts
from vioc.compile import find_compiler
from vioc.dynamics.description.frame import nest
from vioc.errors import ChartWarning, StepError

STEPS, QUICK = 1_000_000, 10_000
EULER = 20_000  # steps of MuJoCo's default rule, 200 s
INERTIA = np.array([1.0, 2.0, 3.0])  # kg m^2, of the body
SPIN = np.array([0.6, 0.0, 0.9])  # rad/s: about the greatest axis, near the separatrix
BODY_DT, TOP_DT, QUADROTOR_DT = 0.01, 1e-3, 2e-3  # s
MASS, G, ARM, ACROSS, ALONG = 1.0, 9.81, 0.5, 0.5, 0.2  # the top; inertias about its pivot
ROTOR = vioc.Mass(0.02, (1e-5, 1e-5, 2e-5))
ROTORS = (380.0, -400.0, 420.0, -390.0)  # rad/s
FLOATING, SOON = 10.0, 3.0  # s of the random families; in quick form
FASTEST = 5.0  # rad/s, m/s, their rates

ROUNDS = "momentum, largest change over its size"
STUDY = Study(
    __file__,
    "free bodies without charts over 1e6 steps: momentum, energy, closed forms, random bodies and trees",
    body=Claim(f"torque-free body, dt 10 ms: {ROUNDS}", at_most(1e-12)),
    body_band=Claim("likewise: band of the energy, over the energy", at_most(1e-5)),
    body_drift=Claim("likewise: |drift| / band", at_most(1e-3), full_only=True),
    body_order=Claim("likewise: order of the angular velocity against Jacobi's functions", near(2, 0.05)),
    body_period=Claim("likewise: period of the tumbling against 4K, relative", at_most(1e-4)),
    top=Claim(f"Lagrange's top, dt 1 ms: vertical {ROUNDS}", at_most(1e-12)),
    top_spin=Claim("likewise: momentum about its axis", at_most(1e-12)),
    top_band=Claim("likewise: band of the energy, over the energy", at_most(1e-4)),
    top_drift=Claim("likewise: |drift| / band", at_most(1e-3), full_only=True),
    top_nutation=Claim("likewise: period of nutation against quadrature, relative", at_most(1e-4)),
    top_precession=Claim("likewise: rate of precession against quadrature, relative", at_most(1e-4)),
    quadrotor=Claim(f"quadrotor with four rotors coasting, dt 2 ms: {ROUNDS}", at_most(1e-12)),
    quadrotor_band=Claim("likewise: band of the energy, over the energy", at_most(1e-5)),
    quadrotor_drift=Claim("likewise: |drift| / band", at_most(1e-3), full_only=True),
    quadrotor_poles=Claim("likewise: samples nearer than 0.01 to the zyx chart's singularity"),
    bodies=Claim(
        "random bodies, 10 s at 10 ms: share of runs that end, momentum to 1e-12 of its parts", at_least(1.0)
    ),
    trees=Claim("random floating trees with spherical joints: likewise", at_least(1.0)),
    trees_order=Claim("likewise: order of the energy's band, median", near(2, 0.2)),
    trees_charts=Claim("likewise, `MidpointVI` on charts: share of runs that end"),
    trees_quiet=Claim("likewise: that end without coming near a singularity"),
    step=Claim(
        "a humanoid's step, eight free rotations: time over `MidpointVI`'s on charts",
        at_most(1.5),
        full_only=True,
    ),
    **{
        f"mujoco_{name}": Claim(f"{peer_mujoco.MUJOCO}, {what}")
        for name, what in (
            ("body", f"its Runge-Kutta 4, torque-free body: {ROUNDS}"),
            ("body_energy", "likewise: largest change of the energy, over it"),
            ("body_euler", f"its default rule, torque-free body over 200 s: {ROUNDS}"),
            ("top", f"its Runge-Kutta 4, the top: vertical {ROUNDS}"),
            ("top_energy", "likewise: largest change of the energy, over it"),
            ("quadrotor", f"its Runge-Kutta 4, the quadrotor: {ROUNDS}"),
            ("quadrotor_energy", "likewise: largest change of the energy, over it"),
        )
    },
)


def backend() -> str:
    return "compiled" if find_compiler() else "virtual"


def turns(run: vioc.Trajectory, base: str) -> Any:
    """Attitudes of the rotation whose names begin with `base`, as scipy has them."""
    from scipy.spatial.transform import Rotation

    return Rotation.from_quat(np.stack([run[f"{base}q{a}"] for a in "xyzw"], axis=1))


def momentum(run: vioc.Trajectory, base: str) -> np.ndarray:
    """Momentum (N, 3) of turning all that hangs on a body about its origin, in its axes."""
    return np.stack([run[f"p.{base}w{a}"] for a in "xyz"], axis=1)


def spatial(run: vioc.Trajectory, base: str) -> np.ndarray:
    """The same in the world's axes: constant where nothing acts and nothing flies away."""
    return turns(run, base).apply(momentum(run, base))


def change(values: np.ndarray, size: float = 0.0) -> float:
    """Largest change of rows from the first, over its size."""
    return float(np.abs(values - values[0]).max() / (size or np.linalg.norm(values[0])))


def at_rest(f: Any, x: np.ndarray, fastest: float = np.inf) -> np.ndarray:
    """The state without linear momentum, so that nothing flies away, and no rate above `fastest` (SI)."""
    x[[f.state_names.index(f"p.b-{a}") for a in "xyz"]] = 0.0
    x[f.nq :] *= min(1.0, fastest / np.abs(f.velocities(x)).max())
    return x


def bands(report: Report, name: str, run: vioc.Trajectory) -> None:
    band = np.ptp(run.energy)
    report.measure(**{f"{name}_band": band / abs(run.energy[0])})
    if not report.quick:
        report.measure(**{f"{name}_drift": abs(total_drift(run.t, run.energy)) / band})


# -- the torque-free body ---------------------------------------------------------------------------------


def crossings(t: np.ndarray, y: np.ndarray) -> float:
    """Mean time between upward passages of zero."""
    k = np.flatnonzero((y[:-1] < 0) & (y[1:] >= 0))
    at = t[k] - y[k] * (t[k + 1] - t[k]) / (y[k + 1] - y[k])
    return float(np.polyfit(np.arange(len(at)), at, 1)[0])


def body(report: Report, steps: int) -> vioc.Trajectory:
    system = vioc.System(vioc.free("b", frame="body", mass=(1.0, *INERTIA)), name="body")
    f = GroupVI(system, BODY_DT, backend=backend())
    start = f.initial_state(v={f"b-w{a}": w for a, w in zip("xyz", SPIN, strict=True)})
    errors, lengths = [], (0.04, 0.02, 0.01)
    for h in lengths:
        run = f.with_dt(h).rollout(start, steps=round(8 / h))
        found, (exact, period) = run.x[:, -3:] / INERTIA, torque_free(run.t, INERTIA, SPIN)
        exact[:, 1] *= np.sign(found[1, 1] * exact[1, 1])
        errors.append(np.abs(found - exact).max())
    run = f.rollout(start, steps=steps)
    report.measure(
        body=change(spatial(run, "b-")),
        body_order=np.polyfit(np.log(lengths), np.log(errors), 1)[0],
        body_period=abs(crossings(run.t, run.x[:, -3]) / period - 1),
    )
    bands(report, "body", run)
    return run


# -- Lagrange's top ---------------------------------------------------------------------------------------


def top(report: Report, steps: int) -> vioc.Trajectory:
    mass = vioc.Mass(MASS, (ACROSS - MASS * ARM**2,) * 2 + (ALONG,), (0, 0, ARM))
    system = vioc.System(vioc.spherical("t", frame="top", mass=mass), vioc.Gravity(0, 0, -G), name="top")
    f = GroupVI(system, TOP_DT, backend=backend())
    run = f.rollout(f.initial_state({"t-ry": 1.0}, {"t-wx": 0.5, "t-wz": 20.0}), steps=steps)
    R, pi = turns(run, "t-"), momentum(run, "t-")
    vertical, size = R.apply(pi)[:, 2], float(np.linalg.norm(pi[0]))
    axis = R.apply([0.0, 0.0, 1.0])
    period, rate = nutation(vertical[0], pi[0, 2], float(run.energy[0]), ACROSS, ALONG, MASS * G * ARM)
    z = axis[:, 2]
    k = np.flatnonzero((z[1:-1] >= z[:-2]) & (z[1:-1] > z[2:])) + 1
    at = k + 0.5 * (z[k - 1] - z[k + 1]) / (z[k - 1] - 2 * z[k] + z[k + 1])
    azimuth = np.unwrap(np.arctan2(axis[:, 1], axis[:, 0]))
    at_maxima = np.interp(at, np.arange(len(z)), azimuth)
    report.measure(
        top=change(vertical, size),
        top_spin=change(pi[:, 2], size),
        top_nutation=abs(np.polyfit(np.arange(len(at)), at * TOP_DT, 1)[0] / period - 1),
        top_precession=abs(np.polyfit(at * TOP_DT, at_maxima, 1)[0] / rate - 1),
    )
    bands(report, "top", run)
    return run


# -- the quadrotor ----------------------------------------------------------------------------------------


def quadrotor_system() -> vioc.System:
    """A frame with four rotors that turn in their bearings; neither thrust nor weight."""
    hubs = [
        vioc.se3(place)[vioc.rz(f"rotor{i}", mass=ROTOR)]
        for i, place in enumerate([(0.2, 0, 0.02), (0, 0.2, 0.02), (-0.2, 0, 0.02), (0, -0.2, 0.02)])
    ]
    frame = vioc.free("b", "xyz", frame="body", mass=(1.0, 0.01, 0.012, 0.02))
    return vioc.System(vioc.chain(frame, *[vioc.se3((0, 0, 0))[hubs]]), name="quadrotor")


def quadrotor(report: Report, steps: int) -> vioc.Trajectory:
    f = GroupVI(quadrotor_system(), QUADROTOR_DT, backend=backend())
    rates = {"b-wx": 3.0, "b-wy": 5.0, "b-wz": 2.0} | {f"rotor{i}": w for i, w in enumerate(ROTORS)}
    run = f.rollout(at_rest(f, f.initial_state(v=rates)), steps=steps)
    middle = turns(run, "b-").as_matrix()[:, 2, 0]  # -sin of the middle angle of z, y, x
    report.measure(
        quadrotor=change(spatial(run, "b-")),
        quadrotor_poles=np.count_nonzero(np.sqrt(1 - np.minimum(middle**2, 1)) < 0.01),
    )
    bands(report, "quadrotor", run)
    return run


# -- random families --------------------------------------------------------------------------------------


def random_mass(rng: np.random.Generator) -> vioc.Mass:
    """A solid ellipsoid somewhere."""
    axes, mass = rng.uniform(0.05, 0.3, 3), rng.uniform(0.3, 3.0)
    inertia = mass / 5 * (np.sum(axes**2) - axes**2)
    return vioc.Mass(float(mass), tuple(inertia.tolist()), tuple(rng.uniform(-0.3, 0.3, 3).tolist()))


def random_tree(seed: int, joints: int) -> vioc.System:
    """A floating body with `joints` on it and each other, half of them spherical."""
    rng = np.random.default_rng([20, seed])
    parents = [int(rng.integers(-1, i)) for i in range(joints)]
    below: dict[int, list[vioc.Frame]] = {i: [] for i in range(-1, joints)}
    for i in reversed(range(joints)):
        kind = vioc.spherical if rng.random() < 0.5 else vioc.revolute
        place = tuple(rng.uniform(-0.4, 0.4, 3).tolist())
        below[parents[i]].append(vioc.se3(place)[kind(f"q{i}", mass=random_mass(rng))[below[i]]])
    root = vioc.free("b", "xyz", frame="root", mass=random_mass(rng))
    return vioc.System(root[below[-1]], name=f"tree {seed}")


def parts(f: GroupVI, x: np.ndarray) -> float:
    """What the first rotation's momentum is added up of, |M||v|: it may be small beside that."""
    v, eye, rows = f.velocities(x), np.eye(f.nd), [f.rates.index(f"b-w{a}") for a in "xyz"]
    columns = [f.group.terms(x[: f.nq], e, np.zeros(f.nu), 0, f.theta)[0] for e in eye]
    M = np.array([np.array(c).ravel() for c in columns]).T
    return float(np.linalg.norm(np.abs(M[rows]) @ np.abs(v)))


def floats(system: vioc.System, seed: int, duration: float) -> tuple[bool, float, bool, bool]:
    """Whether a run ends with its momentum as at the start, the order of its energy's band; and whether one
    on charts from that start ends, and without a warning.
    """
    rng = np.random.default_rng([21, seed])
    q, v = rng.uniform(-3, 3, len(system.variables)), 2.0 * rng.standard_normal(len(system.variables))
    named = [dict(zip(system.variables, values, strict=True)) for values in (q, v)]

    def ran(f: Any, h: float) -> vioc.Trajectory | None:
        f = f.with_dt(h)
        try:
            return f.rollout(at_rest(f, f.initial_state(*named), FASTEST), steps=round(duration / h))
        except StepError:
            return None

    f, steps = GroupVI(system, 0.01), (0.01, 0.005)
    runs = [ran(f, h) for h in steps]
    ended = [run for run in runs if run is not None]
    order = float(np.log2(np.ptp(ended[0].energy) / np.ptp(ended[1].energy))) if len(ended) == 2 else np.nan
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        charted = ran(vioc.MidpointVI(system, 0.01), 0.01) is not None
    size = parts(f, ended[0].x[0]) if ended else 1.0
    kept = len(ended) == 2 and all(change(spatial(run, "b-"), size) <= 1e-12 for run in ended)
    return kept, order, charted, charted and not any(issubclass(w.category, ChartWarning) for w in said)


def families(report: Report) -> None:
    count, duration = (1, SOON) if report.quick else (24, FLOATING)
    alone = [floats(random_tree(seed, 0), seed, duration) for seed in range(count)]
    trees = [floats(random_tree(seed, 2 + seed % 4), seed, duration) for seed in range(count)]
    report.measure(
        bodies=np.mean([kept for kept, *_ in alone]),
        trees=np.mean([kept for kept, *_ in trees]),
        trees_order=np.nanmedian([order for _, order, *_ in trees]),
        trees_charts=np.mean([ended for *_, ended, _ in trees]),
        trees_quiet=np.mean([quiet for *_, quiet in trees]),
    )


# -- what a step costs, and the peer ----------------------------------------------------------------------


def step_time() -> float:
    """Of a humanoid without dampers on its free rotations, over a step on charts; shortest of some turns."""
    robot = vioc.read_urdf_text(urdf(), base="floating").system
    inner = {name for chart in charts(robot) for name in chart.variables}
    kept = [c for c in robot.components if not set(c.variable_names()) & inner]
    flat = [(replace(node.frame, children=()), node.parent) for node in robot.nodes]
    system, count = vioc.System(*nest(flat), *kept, name="humanoid"), 1000
    rng = np.random.default_rng(0)
    start = 0.3 * rng.standard_normal((2, len(system.variables)))
    q, v = (dict(zip(system.variables, values, strict=True)) for values in start)
    maps = [kind(system, 1e-3, backend=backend()) for kind in (vioc.MidpointVI, GroupVI)]
    best = [np.inf, np.inf]
    for turn in range(8):
        for i, f in enumerate(maps):
            x = f.initial_state(q, v)
            before = time.process_time()
            f.rollout(x, steps=count, warn=False)
            if turn:
                best[i] = min(best[i], time.process_time() - before)
    return best[1] / best[0]


def peers(report: Report, steps: int) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """The same bodies in MuJoCo: times and changes of momentum by name."""
    names = [key for key in STUDY.claims if key.startswith("mujoco_")]
    if peer_mujoco.package() is None:
        report.skip(peer_mujoco.INSTALL, *names)
        return {}
    free, found = "<body><freejoint/>{}</body>", {}
    rotor = inertial(0.02, (1e-5, 1e-5, 2e-5))
    rotors = "".join(
        f'<body pos="{x} {y} 0.02"><joint type="hinge" axis="0 0 1"/>{rotor}</body>'
        for x, y in ((0.2, 0), (0, 0.2), (-0.2, 0), (0, -0.2))
    )
    one = free.format(inertial(1.0, INERTIA))
    four = free.format(inertial(1.0, (0.01, 0.012, 0.02)) + rotors)
    spun = '<body><joint type="ball"/>' + inertial(
        MASS, (ACROSS - MASS * ARM**2,) * 2 + (ALONG,), (0, 0, ARM)
    )
    runs = {
        "body": tumble(one, BODY_DT, steps, (0, 0, 0, *SPIN), rule="RK4"),
        "body_euler": tumble(one, BODY_DT, EULER, (0, 0, 0, *SPIN), rule="Euler"),
        "top": tumble(spun + "</body>", TOP_DT, steps, (0.5, 0, 20), rule="RK4", turn=1.0, g=G),
        "quadrotor": tumble(four, QUADROTOR_DT, steps, (0, 0, 0, 3, 5, 2, *ROTORS), rule="RK4"),
    }
    for name, (t, L, energy) in runs.items():
        kept = L[:, 2:] if name == "top" else L
        report.measure(**{f"mujoco_{name}": change(kept, float(np.linalg.norm(L[0])))})
        if f"mujoco_{name}_energy" in STUDY.claims:
            report.measure(**{f"mujoco_{name}_energy": np.abs(energy / energy[0] - 1).max()})
        found[name] = t, np.abs(kept - kept[0]).max(axis=1) / np.linalg.norm(L[0])
    return found


@STUDY.body
def run(report: Report) -> None:
    steps = QUICK if report.quick else STEPS
    runs = {"body": body(report, steps), "top": top(report, steps), "quadrotor": quadrotor(report, steps)}
    families(report)
    if not report.quick:  # its programs take longer to compile than all else
        report.measure(step=step_time())
    draw(report, runs, peers(report, steps))


def draw(report: Report, runs: dict[str, vioc.Trajectory], others: dict[str, tuple]) -> None:
    import matplotlib.pyplot as plt

    figure, (drift, path) = plt.subplots(1, 2, figsize=(10, 4.2), layout="constrained")
    for (name, run), color in zip(runs.items(), ("tab:blue", "tab:orange", "tab:green"), strict=True):
        base = "t-" if name == "top" else "b-"
        L = spatial(run, base)
        each = max(1, len(L) // 500)
        kept = L[:, 2:] if name == "top" else L
        off = np.abs(kept - kept[0]).max(axis=1)[each::each] / np.linalg.norm(L[0])
        drift.loglog(run.t[each::each], np.maximum(off, 1e-17), color=color, label=f"{name}, GroupVI")
        if name in others:
            t, off = others[name]
            drift.loglog(t[1:], off[1:], "--", color=color, label=f"{name}, MuJoCo RK4")
    drift.set(xlabel="t (s)", ylabel="change of the momentum over its size")
    drift.set_title(f"{len(runs['top'])} steps")
    drift.grid(alpha=0.3)
    drift.legend(fontsize="small")
    few = slice(0, round(3 / TOP_DT))
    axis = turns(runs["top"], "t-").apply([0.0, 0.0, 1.0])[few]
    path.plot(axis[:, 0], axis[:, 1], color="tab:orange", lw=0.8)
    path.set(xlabel="x", ylabel="y", title="the top's axis seen from above, 3 s", aspect="equal")
    path.grid(alpha=0.3)
    report.save(figure)
    report.frame(runs["quadrotor"], [0.0, 0.1, 0.2], view="3d")


if __name__ == "__main__":
    STUDY.main()
