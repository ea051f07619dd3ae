"""Physical accuracy of the integrator in maximal coordinates ([M] Fig. 7).

(a) A three-link loop over 1000 s: constraint drift against the explicit fourth-order Runge-Kutta-Munthe-Kaas
rule on the same bodies, whose constraints act on accelerations. (b) A double pendulum: energy against Heun's
rule. (c) A damped pendulum with a large step: energy against Euler's explicit rule. (d) A cube dropped on the
ground: how far it enters it, against MuJoCo where its package is installed. What [M] leaves open is ours: the
loop's ground link of 1 m, uniform rods, the starts, and the friction of the ground. (e), ours: a cube thrown
over the ground aslant, and a ball thrown without spin that ends rolling, by Coulomb's law in closed form.
(f), ours: an axisymmetric body that precesses freely, in closed form.
"""

from __future__ import annotations

from functools import cache
from itertools import pairwise

import casadi as ca
import numpy as np

import vioc
from studies import peer_mujoco
from studies.energy import total_drift
from studies.harness import Claim, Report, Study, at_least, at_most, near
from studies.reference_suite import free_body, precession
from vioc import Contact, Gravity, JointDamping, Mass, MaximalVI, RungeKutta, System, ry, tx, tz
from vioc.compile.evaluate import Evaluator
from vioc.dynamics.integrators.maximal.body_equations import Assembly
from vioc.dynamics.integrators.maximal.body_space import POSE, TWIST

G, DT = 9.81, 0.01
LOOP = (1.0, np.sqrt(0.5), 1.0)  # m and kg
DAMPING, LARGE = 0.5, 0.1  # N m s/rad, s
EDGE, FRICTION, DROPS = 0.5, 0.5, (0.1, 0.2, 0.4, 0.6, 0.8, 1.0)  # m

STUDY = Study(
    __file__,
    "constraint drift, energy and damping in maximal coordinates",
    drift=Claim(
        "(a) largest |g| at any step of 1000 s", at_most(1e-9), "m", "zero", "[M] Fig. 7 a", full_only=True
    ),
    drift_short=Claim("(a) largest |g| at any step of 20 s", at_most(1e-9), "m", "zero", "[M] Fig. 7 a"),
    drift_rk=Claim(
        "(a) |g| of the Runge-Kutta rule after 10 s", at_least(1e-9), "m", "drifts", "[M] Fig. 7 a"
    ),
    drift_rk_long=Claim("(a) the same after 200 s", None, "m", "drifts", "[M] Fig. 7 a", full_only=True),
    rk_order=Claim("(a) order of the Runge-Kutta rule on the group", near(4, 0.4)),
    band=Claim("(b) energy error of MaximalVI, largest", None, "J", "bounded", "[M] Fig. 7 b"),
    band_late=Claim("(b) the same in the second half over the first", at_most(2.0)),
    vi_drift=Claim(
        "(b) drift of MaximalVI, slope of the energy times 200 s",
        None,
        "J",
        "none",
        "[M] Fig. 7 b",
        full_only=True,
    ),
    heun=Claim(
        "(b) |drift| of Heun's rule over that", at_least(5), "", "increasing", "[M] Fig. 7 b", full_only=True
    ),
    heun_short=Claim("(b) energy error of Heun's rule after 10 s", None, "J", "increasing", "[M] Fig. 7 b"),
    damped=Claim(
        "(c) energy error of MaximalVI, largest, over m g l", at_most(0.05), "", "small", "[M] Fig. 7 c"
    ),
    damping_order=Claim("(c) order of the angle's error of MaximalVI, dt 0.02 and 0.01 s", near(2, 0.1)),
    euler=Claim(
        "(c) the same of Euler's rule over that", at_least(5), "", "drastically underdamped", "[M] Fig. 7 c"
    ),
    entered=Claim("(d) furthest below the ground, any drop", at_most(1e-6), "m", 0.0, "[M] 5.1"),
    rests=Claim("(d) height at rest, largest: 4 smoothing/g", near(4e-8 / G, 4e-11), "m", 4.3e-5, "[M] 5.1"),
    product=Claim("(d) gap times impulse over the barrier, any corner: difference from 1", at_most(1e-5)),
    thrown=Claim("(e) way of a cube thrown at 20 degrees over v^2/2 mu g", near(1, 2e-3)),
    veers=Claim("(e) how far it leaves its line", at_most(1e-5), "m"),
    slows=Claim("(e) ball: speed over v - mu g t while it slides", near(1, 1e-4)),
    rolls=Claim("(e) ball: speed at the end over 5/7 of the first", near(1, 1e-3)),
    spins=Claim("(e) ball: spin times radius over its speed then", near(1, 1e-3)),
    precesses=Claim("(f) free precession: error of the attitude after 2 s, dt 0.01 s", near(1.334e-4, 5e-6)),
    precession_order=Claim("(f) order of that error", near(2, 0.1)),
    mujoco_entered=Claim(
        "(d) MuJoCo, drop from 0.4 m: furthest below the ground", None, "m", 2.7e-2, "[M] 5.1"
    ),
    mujoco_worst=Claim("(d) MuJoCo, any drop: the same", None, "m", "similar", "[M] 5.1"),
    mujoco_rests=Claim("(d) MuJoCo at rest: below the ground", None, "m", 1.1e-4, "MuJoCo from PyPI"),
)


def rod(length: float, mass: float) -> Mass:
    """A thin uniform rod along its frame's z."""
    J = mass * length**2 / 12
    return Mass(mass, (J, J, 0.0), (0, 0, length / 2))


def loop() -> System:
    """Rods of LOOP and a ground link of 1 m, released where the first crank stands at 0.6 rad."""
    a, b, c = (rod(length, length) for length in LOOP)
    second = tz(LOOP[0])[ry("b", mass=b)[tz(LOOP[1], name="tip")]]
    return System(
        ry("a", mass=a)[second],
        tx(1.0)[ry("c", mass=c)[tz(LOOP[2], name="top")]],
        vioc.coincident("tip", "top", "xz", name="pin"),
        Gravity(0, 0, -G),
        name="three-link loop",
    )


def loop_state(f: MaximalVI, start: str = "legendre") -> np.ndarray:
    guess = {"a": 0.6, "b": 1.2, "c": 0.4}
    return f.initial_state(vioc.consistent_configuration(f.system, guess, fixed="a"), start=start)


def double_pendulum() -> System:
    lower = tz(-1.0)[ry("b", mass=Mass(1.0, (1 / 12, 1 / 12, 0), (0, 0, -0.5)))]
    return System(ry("a", mass=Mass(1.0, (1 / 12, 1 / 12, 0), (0, 0, -0.5)))[lower], Gravity(0, 0, -G))


def damped_pendulum() -> System:
    upper = ry("a", mass=Mass(1.0, (1 / 12, 1 / 12, 0), (0, 0, -0.5)))
    return System(upper, Gravity(0, 0, -G), JointDamping("a", DAMPING))


class MuntheKaas:
    """The classical Runge-Kutta rule on (R^3 x SO(3))^n, constraints as g'' = 0.

    Parameters
    ----------
    f : MaximalVI
        Whose bodies and constraints are taken.
    """

    def __init__(self, f: MaximalVI):
        graph, terms = f.graph, f.graph.terms
        self.n = graph.n
        parts = [g.rows.function.call([*terms.own_poses(g.bodies), terms.parameters]) for g in graph.groups]
        g = ca.vertcat(*(p[0] for p in parts))
        rate = ca.jtimes(g, terms.poses, terms.pose_rates)
        J = ca.jacobian(rate, terms.twists)
        momenta = Assembly(graph, None, None, 1.0, terms.parameters).momenta(terms.twists)
        M = ca.jacobian(momenta, terms.twists)
        gyro = ca.vertcat(*(self._gyro(terms.twists, M, i) for i in range(graph.n)))
        force = terms.wrenches[0] - gyro
        bias = ca.jtimes(rate, terms.poses, terms.pose_rates)
        args = [terms.poses, terms.twists]
        outputs = [ca.densify(o) for o in (M, J, force, bias, g)]
        self.terms = Evaluator(ca.Function("terms", args, outputs, {"cse": True}))

    @staticmethod
    def _gyro(V: ca.SX, M: ca.SX, i: int) -> ca.SX:
        at = slice(TWIST * i + 3, TWIST * i + 6)
        return ca.vertcat(ca.SX.zeros(3), ca.cross(V[at], M[at, at] @ V[at]))

    def acceleration(self, Z: np.ndarray, V: np.ndarray) -> np.ndarray:
        M, J, force, bias, _ = self.terms(Z, V)
        m = len(J)
        saddle = np.block([[M, J.T], [J, np.zeros((m, m))]])
        # rods have no inertia about their axes, where the joints hold them
        return np.linalg.solve(saddle, np.concatenate([force, -bias])[:, 0])[: len(V)]

    def violation(self, Z: np.ndarray, V: np.ndarray) -> float:
        return float(np.abs(self.terms(Z, V)[4]).max())

    def moved(self, Z: np.ndarray, e: np.ndarray) -> np.ndarray:
        """Poses moved by (dx, phi) of every body: x + dx, R exp(phi^)."""
        from scipy.spatial.transform import Rotation

        Z, e = Z.reshape(-1, POSE).copy(), e.reshape(-1, TWIST)
        Z[:, :3] += e[:, :3]
        Z[:, 3:] = (Z[:, 3:].reshape(-1, 3, 3) @ Rotation.from_rotvec(e[:, 3:]).as_matrix()).reshape(-1, 9)
        return Z.ravel()

    def step(self, Z: np.ndarray, V: np.ndarray, h: float) -> tuple[np.ndarray, np.ndarray]:
        def slope(e: np.ndarray, W: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            rate, phi = W.reshape(-1, TWIST).copy(), e.reshape(-1, TWIST)[:, 3:]
            w = rate[:, 3:]
            once = np.cross(phi, w)
            rate[:, 3:] = w + once / 2 + np.cross(phi, once) / 12  # dexp^-1, left-trivialized
            return rate.ravel(), self.acceleration(self.moved(Z, e), W)

        zero = np.zeros_like(V)
        e1, a1 = slope(zero, V)
        e2, a2 = slope(h / 2 * e1, V + h / 2 * a1)
        e3, a3 = slope(h / 2 * e2, V + h / 2 * a2)
        e4, a4 = slope(h * e3, V + h * a3)
        return self.moved(Z, h / 6 * (e1 + 2 * e2 + 2 * e3 + e4)), V + h / 6 * (a1 + 2 * a2 + 2 * a3 + a4)

    def run(self, Z: np.ndarray, V: np.ndarray, h: float, steps: int, every: int = 1):
        """(end poses, end twists, |g| at every `every`-th step)."""
        seen = []
        for k in range(steps):
            Z, V = self.step(Z, V, h)
            if (k + 1) % every == 0:
                seen.append(self.violation(Z, V))
        return Z, V, np.array(seen)


def worst(run: vioc.Trajectory) -> np.ndarray:
    """Largest |g| at each sample."""
    return np.max([np.abs(run["h." + name]) for name in run.map.multiplier_names], axis=0)


def drift(report: Report) -> dict:
    f = MaximalVI(loop(), DT)
    run = f.rollout(loop_state(f), steps=2000, warn=False)
    report.measure(drift_short=worst(run).max())
    if not report.quick:
        longest, x = 0.0, run.x[-1]
        for k in range(49):  # in pieces, for memory
            piece = f.rollout(x, steps=2000, k0=2000 * (k + 1), warn=False)
            longest, x = max(longest, worst(piece).max()), piece.x[-1]
        report.measure(drift=max(longest, worst(run).max()))
    rule = MuntheKaas(f)
    q, _ = f.minimal(loop_state(f, "given"))
    Z, V = f.states.poses(q, np.zeros(3))
    seen = rule.run(Z, V, DT, 1000 if report.quick else 20000, 10)[2]
    ends = [rule.run(Z, V, 0.4 / n, n)[0] for n in (16, 32, 64)]
    gaps = [np.abs(a - b).max() for a, b in pairwise(ends)]
    report.measure(drift_rk=seen[99], rk_order=np.log2(gaps[0] / gaps[1]))
    if not report.quick:
        report.measure(drift_rk_long=seen[-1])
    return {"run": run, "rk": (DT * 10 * np.arange(1, len(seen) + 1), seen)}


def energy(report: Report) -> dict:
    system, start = double_pendulum(), {"a": np.pi / 2, "b": 0.5}
    f, g = MaximalVI(system, DT), RungeKutta(system, DT, "heun")
    steps = 1000 if report.quick else 20000
    run, other = (
        f.rollout(f.initial_state(start), steps=steps, warn=False),
        g.rollout(g.initial_state(start), steps=steps, warn=False),
    )
    error, half = np.abs(run.energy - run.energy[0]), steps // 2
    report.measure(
        band=error.max(),
        band_late=error[half:].max() / error[:half].max(),
        heun_short=other.energy[1000] - other.energy[0],
    )
    if not report.quick:
        own, rival = (abs(total_drift(r.t, r.energy)) for r in (run, other))
        report.measure(vi_drift=own, heun=rival / own)
    return {"MaximalVI": run, "Heun": other}


def damping(report: Report) -> dict:
    system, start = damped_pendulum(), {"a": np.pi / 2}
    f, g = MaximalVI(system, LARGE), RungeKutta(system, LARGE, "euler")
    fine = RungeKutta(system, 1e-3, "rk4")
    steps = 100
    exact = fine.rollout(fine.initial_state(start), steps=100 * steps, warn=False)
    runs = {"MaximalVI": f.rollout(f.initial_state(start), steps=steps, warn=False)}
    runs["Euler"] = g.rollout(g.initial_state(start), steps=steps, warn=False)
    errors = {name: np.abs(r.energy - exact.energy[::100]).max() for name, r in runs.items()}
    ends = [MaximalVI(system, h) for h in (0.02, 0.01)]
    misses = [
        abs(g.rollout(g.initial_state(start), steps=round(1 / g.dt))["a"][-1] - exact["a"][1000])
        for g in ends
    ]
    report.measure(
        damped=errors["MaximalVI"] / (G * 1.0),
        damping_order=np.log2(misses[0] / misses[1]),
        euler=errors["Euler"] / errors["MaximalVI"],
    )
    return {**runs, "exact": exact}


@cache
def box(cone: str) -> MaximalVI:
    cube = vioc.free("b", frame="box", mass=Mass(1.0, (EDGE**2 / 6,) * 3))
    corners = Contact.box("box", (EDGE,) * 3, friction=FRICTION, cone=cone, name="corner")
    return MaximalVI(System(cube, Gravity(0, 0, -G), corners), DT)


def dropped(height: float, seconds: float) -> tuple[np.ndarray, np.ndarray]:
    """Times, and the lowest gap of a cube's corners."""
    f = box("linear")
    run = f.rollout(f.initial_state({"b-z": EDGE / 2 + height}), steps=round(seconds / DT))
    return run.t, np.min([run[f"gap.corner-{i + 1}"] for i in range(8)], axis=0)


def dropped_by_mujoco(height: float, seconds: float) -> tuple[np.ndarray, np.ndarray]:
    """The same by MuJoCo with its own parameters."""
    mujoco, half = peer_mujoco.package(), EDGE / 2
    body = f'<freejoint/><geom type="box" size="{half} {half} {half}" mass="1" friction="{FRICTION}"/>'
    model = mujoco.MjModel.from_xml_string(
        f'<mujoco><option timestep="{DT}" gravity="0 0 {-G}"/><worldbody><geom type="plane" size="5 5 1"/>'
        f'<body pos="0 0 {half + height}">{body}</body></worldbody></mujoco>'
    )
    data = mujoco.MjData(model)
    low = [height]
    for _ in range(round(seconds / DT)):
        mujoco.mj_step(model, data)
        turn = np.empty(9)
        mujoco.mju_quat2Mat(turn, data.qpos[3:7])
        low.append(data.qpos[2] - half * np.abs(turn[6:]).sum())
    return DT * np.arange(len(low)), np.array(low)


def drops(report: Report) -> dict:
    """Runs from 0.4 m by name."""
    heights = (0.4, 1.0) if report.quick else DROPS
    ours = {h: dropped(h, 2.0) for h in heights}
    report.measure(
        entered=max(0.0, *(-low.min() for _, low in ours.values())),
        rests=max(low[-1] for _, low in ours.values()),
    )
    if peer_mujoco.package() is None:
        report.skip(peer_mujoco.INSTALL, "mujoco_entered", "mujoco_worst", "mujoco_rests")
        return {"MaximalVI": ours[0.4]}
    theirs = {h: dropped_by_mujoco(h, 2.0) for h in heights}
    report.measure(
        mujoco_entered=-theirs[0.4][1].min(),
        mujoco_worst=max(-low.min() for _, low in theirs.values()),
        mujoco_rests=-theirs[0.4][1][-1],
    )
    return {peer_mujoco.MUJOCO: theirs[0.4], "MaximalVI": ours[0.4]}


def products(report: Report) -> None:
    """Of gaps and impulses of a tumbling cube, that are to equal the barrier."""
    f = box("second-order")
    run = f.rollout(f.initial_state({"b-z": 0.4, "b-rx": 0.3}, {"b-x": 1.0}), steps=40)
    worst = 0.0
    for k in range(10, 40, 3):
        step = f.interior.solve(run.x[k], np.zeros(0), run.t[k], DT, np.zeros(0))
        after = np.array([run[f"gap.corner-{i + 1}"][k + 1] for i in range(8)])
        worst = max(
            worst, np.abs(after / DT * step.ends[0].impulses.reshape(8, -1)[:, 0] / f.barrier - 1).max()
        )
    report.measure(product=worst)


def friction(report: Report) -> None:
    f, v, angle = box("second-order"), 2.0, np.radians(20)
    along = np.array([np.cos(angle), np.sin(angle)])
    run = f.rollout(
        f.initial_state({"b-z": EDGE / 2 + 4e-9 / G}, {"b-x": v * along[0], "b-y": v * along[1]}), steps=60
    )
    path = np.column_stack([run["box:x"], run["box:y"]])
    radius, mu = 0.25, 0.2
    sphere = vioc.free("b", frame="ball", mass=Mass.sphere(1.0, radius))
    feet = Contact.sphere("ball", radius, friction=mu, name="foot")
    g = MaximalVI(System(sphere, Gravity(0, 0, -G), feet), DT)
    rolling = g.rollout(g.initial_state({"b-z": radius + 1e-8 / G}, {"b-x": 1.4}), steps=40)
    sliding = round(0.8 * 2 * 1.4 / (7 * mu * G) / DT)  # it slides for 2 v/7 mu g
    report.measure(
        thrown=path[-1] @ along / (v**2 / (2 * FRICTION * G)),
        veers=np.abs(path @ [-along[1], along[0]]).max(),
        slows=rolling["v.b-x"][sliding] / (1.4 - mu * G * rolling.t[sliding]),
        rolls=rolling["v.b-x"][-1] / (5 / 7 * 1.4),
        spins=rolling["wy.ball"][-1] * radius / rolling["v.b-x"][-1],
    )


def rotation(report: Report) -> None:
    errors = []
    for dt in (0.02, 0.01):
        q, exact = free_body(dt, 2.0)[0], precession(2.0)
        errors.append(np.linalg.norm(q - exact))
    report.measure(precesses=errors[1], precession_order=np.log2(errors[0] / errors[1]))


@STUDY.body
def run(report: Report) -> None:
    products(report)
    friction(report)
    rotation(report)
    draw(report, drift(report), energy(report), damping(report), drops(report))


def draw(report: Report, drifts: dict, energies: dict, damped: dict, falls: dict) -> None:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 4, figsize=(17, 4), layout="constrained")
    t, seen = drifts["rk"]
    axes[0].semilogy(t, seen, "C3", lw=1, label="Runge-Kutta-Munthe-Kaas 4")
    run = drifts["run"]
    axes[0].semilogy(run.t, np.maximum(worst(run), 1e-18), "C0", lw=0.6, label="MaximalVI")
    axes[0].set(title="(a) three-link loop", xlabel="t (s)", ylabel="|g| (m)")
    for name, color in (("Heun", "C3"), ("MaximalVI", "C0")):
        r = energies[name]
        axes[1].plot(r.t, r.energy - r.energy[0], color, lw=0.8, label=name)
    axes[1].set(title="(b) double pendulum", xlabel="t (s)", ylabel="energy error (J)")
    for name, style in (("Euler", "C3o-"), ("MaximalVI", "C0o-"), ("exact", "k:")):
        r = damped[name]
        axes[2].plot(r.t, r.energy, style, ms=2, lw=0.8, label=name)
    axes[2].set(title="(c) damped pendulum, dt = 0.1 s", xlabel="t (s)", ylabel="energy (J)")
    for name, (t, low) in falls.items():
        style = "C0" if name == "MaximalVI" else "C3"
        axes[3].plot(t, low, style, lw=1, label=name)
    axes[3].axhline(0, color="k", lw=0.5)
    axes[3].set(title="(d) dropped cube", xlabel="t (s)", ylabel="lowest corner (m)", ylim=(-0.04, 0.1))
    for ax in axes:
        ax.grid(alpha=0.3)
        ax.legend(fontsize=8)
    report.save(figure)
    report.frame(run, np.linspace(0.0, 1.0, 4), title="Three-link loop")


if __name__ == "__main__":
    STUDY.main()
