"""Steps that follow the motion and keep structure: what they win, and where (docs/maths/adaptive.md).

The midpoint rule in equal steps; in steps dt = epsilon/rho of a density rho that is integrated with the
motion, reversibly (Hairer, Soederlind 2005); in equal steps of a transformed time, as a discrete Lagrangian
of its own (Sundman, Poincare); and in steps of the density at each start, which is not reversible. On
Kepler's problem, whose solution is closed; on a ball on a stiff wall and a chain of ten links, beside DOP853.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import casadi as ca
import numpy as np
from scipy.integrate import solve_ivp
from scipy.optimize import brentq

import vioc
from studies.energy import total_drift
from studies.harness import Claim, Report, Study, at_least, at_most, near
from vioc import DiscreteLagrangianVI
from vioc.compile.evaluate import Evaluator
from vioc.dynamics.integrators.discrete import DiscreteStep

ECCENTRICITY = 0.9
PERIOD = 2 * np.pi  # s, of an orbit with semiaxis 1 and mass 1
WALL, DEPTH, G = 10.0, 2e-3, 9.81  # V = WALL exp(-z/DEPTH) + g z: J, m, m/s^2
LINKS = 10

STUDY = Study(
    __file__,
    "reversible and transformed steps on the midpoint rule: what they win where, and what they keep",
    order=Claim(
        "Kepler, e = 0.9, reversible density: order in epsilon of the place after 3 orbits", near(2, 0.2)
    ),
    transformed_order=Claim("likewise, in transformed time", near(2, 0.2)),
    back=Claim("likewise, 1000 steps there and back: distance from the start", at_most(1e-9)),
    momentum=Claim("likewise, 1000 orbits (quick form 30): change of the angular momentum", at_most(1e-12)),
    drift=Claim("likewise: |drift| of the energy / band", at_most(1e-3), full_only=True),
    transformed_drift=Claim("likewise, in transformed time", at_most(1e-3), full_only=True),
    naive_drift=Claim("likewise, density at each start (not reversible)", at_least(1.0), full_only=True),
    symplectic=Claim("in transformed time: |A'JA - J|", at_most(1e-9)),
    kepler=Claim("Kepler, equal error after 3 orbits: steps over those of equal length", at_most(0.2)),
    kepler_transformed=Claim("likewise, in transformed time", at_most(0.2)),
    wall=Claim(
        "ball on a stiff wall, equal error after 3 impacts: steps over those of equal length", at_most(0.2)
    ),
    chain=Claim("chain of ten links, equal error after 2 s: steps over those of equal length", at_least(0.8)),
    ideal_kepler=Claim("ideal density by local errors: steps over equal ones, Kepler e = 0.9", at_most(0.2)),
    ideal_round=Claim("likewise, Kepler e = 0.1"),
    ideal_wall=Claim("likewise, ball on a stiff wall"),
    ideal_spring=Claim("likewise, stiff spring pendulum"),
    ideal_chain=Claim("likewise, chain of ten links over 20 s", at_least(0.5)),
)


@dataclass(frozen=True)
class Case:
    """A mechanism, a start, and rho(q), 1/s, of its steps."""

    system: vioc.System
    q: dict[str, float]
    v: dict[str, float]
    density: Callable[[Any], Any]


# -- the rules --------------------------------------------------------------------------------------------


class Paced:
    """The midpoint rule in steps epsilon/rho; `reversible`: rho is a state, else rho(q_k)."""

    def __init__(self, case: Case, reversible: bool = True):
        f = self.f = vioc.MidpointVI(case.system, 0.01)
        x = f.symbols.x
        rho = case.density(x[: f.nq])
        v = ca.vertcat(*(f.quantity(f"v.{n}") for n in f.system.variables))
        # d rho / d tau = (d rho / dt) / rho
        growth = ca.Function("growth", [x], [rho, ca.dot(ca.gradient(rho, x[: f.nq]), v) / rho])
        carry, epsilon = ca.MX.sym("carry", f.nx + 2), ca.MX.sym("epsilon")
        now, density, t = carry[: f.nx], carry[f.nx], carry[f.nx + 1]
        dt = epsilon / (density if reversible else growth(now)[0])
        after, _, error = f.kernel.function(now, [], t, dt, f.theta)
        found = ca.vertcat(after, density + epsilon * growth(after)[1], t + dt)
        self._step = ca.Function("step", [carry, epsilon], [found, error])
        self._growth = growth

    def run(self, x: np.ndarray, epsilon: float, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Times (N+1,) and states (N+1, nx)."""
        rho, slope = self._growth(x)
        carry = np.concatenate([x, [float(rho) + epsilon / 2 * float(slope), 0.0]])
        rows, errors = self._step.mapaccum(count)(carry, epsilon)
        assert float(ca.mmax(errors)) < 1e-9
        rows = np.vstack([carry, np.array(rows).T])
        return rows[:, -1], rows[:, : self.f.nx]

    def back(self, x: np.ndarray, epsilon: float, count: int) -> float:
        """There and back by the same steps, momenta turned round: distance from the start."""
        nx, turned = self.f.nx, np.repeat([1.0, -1.0], self.f.nq)
        rho, slope = self._growth(x)
        carry = np.concatenate([x, [float(rho) + epsilon / 2 * float(slope), 0.0]])
        go = self._step.mapaccum(count)
        end = np.array(go(carry, epsilon)[0])[:, -1]
        # the density of the last step: what it gained behind it is taken back
        last = end[nx] - epsilon * float(self._growth(end[:nx])[1])
        start = np.array(go(np.concatenate([end[:nx] * turned, [last, 0.0]]), epsilon)[0])[:, -1]
        return float(np.abs(start[:nx] * turned - x).max())


class Transformed:
    """Equal steps of tau with dt = d tau / rho(q), by the discrete Lagrangian of T rho - (V - E)/rho."""

    def __init__(self, case: Case):
        f = vioc.MidpointVI(case.system, 0.01)
        energy = float(f.lagrangian.kinetic_energy(case.q, case.v) + f.lagrangian.potential_energy(case.q))
        self._density = ca.Function("density", [f.symbols.x[: f.nq]], [case.density(f.symbols.x[: f.nq])])

        def discrete(s: DiscreteStep) -> Any:
            middle = (s.q0 + s.q1) / 2
            h = s.dt / self._density(middle)
            return h * (s.L(middle, (s.q1 - s.q0) / h) + energy)

        self.f = DiscreteLagrangianVI(case.system, 0.01, discrete)

    def run(self, x: np.ndarray, epsilon: float, count: int) -> tuple[np.ndarray, np.ndarray]:
        """As `Paced.run`."""
        run = self.f.with_dt(epsilon).rollout(x, steps=count)
        middle = (run.x[1:, : self.f.nq] + run.x[:-1, : self.f.nq]) / 2
        rho = np.array(self._density(middle.T)).ravel()
        return np.concatenate([[0.0], np.cumsum(epsilon / rho)]), run.x


# -- the mechanisms ---------------------------------------------------------------------------------------


def kepler(e: float = ECCENTRICITY) -> Case:
    """Mass 1 about a centre of strength 1, from the far end of an orbit with semiaxis 1; rho = r^-3/2."""
    pull = vioc.UserPotential(lambda k: -1 / ca.sqrt(k.q("x") ** 2 + k.q("y") ** 2))
    system = vioc.System(vioc.tx("x")[vioc.ty("y", mass=1.0)], pull, name="kepler")
    return Case(
        system, {"x": 1 + e}, {"y": float(np.sqrt((1 - e) / (1 + e)))}, lambda q: ca.sumsqr(q) ** -0.75
    )


def kepler_exact(t: np.ndarray, e: float = ECCENTRICITY) -> np.ndarray:
    """Places (N, 2), by Kepler's equation."""
    found = []
    for mean in t:  # of the far end it is half a turn
        E = brentq(lambda E, mean=mean: E - e * np.sin(E) - np.pi - mean, mean, mean + 2 * np.pi, xtol=1e-14)
        found.append([-(np.cos(E) - e), -np.sqrt(1 - e * e) * np.sin(E)])
    return np.array(found)


def ball() -> Case:
    """1 kg dropped by 0.3 m on a wall that pushes as exp(-z/DEPTH); rho grows ahead of the impact."""
    push = vioc.UserPotential(lambda k: WALL * ca.exp(-k.q("z") / DEPTH))
    system = vioc.System(vioc.tz("z", mass=1.0), vioc.Gravity(0, 0, -G), push, name="ball on a wall")
    return Case(system, {"z": 0.3}, {}, lambda q: 1 / (q[0] + DEPTH / 2))


def chain() -> Case:
    """Ten links of 0.1 m let go; rho = sqrt(E - V + a little): steps of one length along the way."""
    system = vioc.models.load("n_link_pendulum", LINKS)
    f = vioc.MidpointVI(system, 0.01)
    start = {system.variables[0]: 1.0}
    lag = f.lagrangian
    V = ca.Function("V", [lag.graph.q_vector], [lag.V])
    top = float(V([1.0, *[0.0] * (LINKS - 1)]))
    low = float(V([0.0] * LINKS))
    return Case(system, start, {}, lambda q: ca.sqrt(1.1 + (top - V(q)) / (top - low)))


def spring() -> Case:
    """A pendulum on a stiff spring, swinging, and stretched by a little."""
    system = vioc.System(
        vioc.ry("angle")[vioc.tz(-1.0)[vioc.tz("stretch", mass=1.0)]],
        vioc.Gravity(0, 0, -G),
        vioc.TorsionalSpring("stretch", 4e4, 0.0),
        name="spring pendulum",
    )
    return Case(system, {"angle": 1.0, "stretch": 1e-3}, {}, lambda q: 1.0 + 0 * q[0])


def dop853(case: Case, duration: float) -> Callable[[np.ndarray], np.ndarray]:
    """Configurations (N, nq) at times, on the continuous equations."""
    dynamics = vioc.Continuous(case.system)
    g, f = dynamics.lagrangian.graph, vioc.MidpointVI(case.system, 0.01)
    a = Evaluator(ca.Function("a", [g.q_vector, g.v_vector], [dynamics.solution[0]]))
    n = f.nq
    x = f.initial_state(case.q, case.v)
    start = np.concatenate([x[:n], f.velocities(x)])

    def rate(t: float, y: np.ndarray) -> np.ndarray:
        return np.concatenate([y[n:], a(y[:n].copy(), y[n:].copy())[0].ravel()])

    found = solve_ivp(rate, (0, duration), start, "DOP853", rtol=1e-13, atol=1e-13, dense_output=True)
    return lambda t: found.sol(t)[:n].T


# -- what is measured -------------------------------------------------------------------------------------


def until(run: tuple[np.ndarray, np.ndarray], duration: float, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Times and configurations up to a time, at most some hundred of them, the last among them."""
    t, x = run
    count = int(np.searchsorted(t, duration, side="right"))
    assert count < len(t), "the run is too short"
    rows = np.unique(np.linspace(0, count - 1, 400).astype(int))
    return t[rows], x[rows, :n]


def compared(
    case: Case, exact: Callable[[np.ndarray], np.ndarray], duration: float, rule: Any, epsilons: Any
) -> list[tuple[float, float]]:
    """Steps and largest error of the configuration, at each epsilon."""
    f = vioc.MidpointVI(case.system, 0.01)
    x, found = f.initial_state(case.q, case.v), []
    for epsilon in epsilons:
        t, states = rule.run(x, epsilon, 64)
        count = 64
        while t[-1] <= duration:
            count = int(count * min(16.0, 1.1 * duration / t[-1] + 0.1)) + 8
            t, states = rule.run(x, epsilon, count)
        used = int(np.searchsorted(t, duration, side="right"))
        at, q = until((t, states), duration, f.nq)
        found.append((used, float(np.abs(q - exact(at)).max())))
    return found


class Equal:
    """The midpoint rule in equal steps."""

    def __init__(self, case: Case):
        self.f = vioc.MidpointVI(case.system, 0.01)

    def run(self, x: np.ndarray, dt: float, count: int) -> tuple[np.ndarray, np.ndarray]:
        run = self.f.with_dt(dt).rollout(x, steps=count)
        return run.t, run.x


def steps_over(ours: list[tuple[float, float]], equal: list[tuple[float, float]]) -> float:
    """Steps at equal error, of rules of order 2: by the finest run of each."""
    (n, error), (m, other) = ours[-1], equal[-1]
    return float(n * np.sqrt(error) / (m * np.sqrt(other)))


def order(rows: list[tuple[float, float]]) -> float:
    n, error = np.array(rows).T
    return float(-np.polyfit(np.log(n), np.log(error), 1)[0])


def ideal(case: Case, dt: float, duration: float) -> float:
    """Steps of the best density over equal ones, at one sum of local errors e h^3: rho ~ e^(1/3).

    With rho steps per second the sum is of e/rho^2 dt; by Hoelder's inequality the fewest steps for it are
    (int e^(1/3) dt)^(3/2), of equal ones T (int e dt)^(1/2).
    """
    f = vioc.MidpointVI(case.system, dt)
    x = f.rollout(f.initial_state(case.q, case.v), steps=round(duration / dt)).x[:-1]
    u = np.zeros((len(x), 0))
    whole = f.steps_at(x, u).x1
    half = f.steps_at(x, u, dt=dt / 2).x1
    parts = f.steps_at(half, u, dt=dt / 2).x1
    e = np.linalg.norm((whole - parts)[:, : f.nq], axis=1)
    return float(np.mean(np.cbrt(e)) ** 1.5 / np.sqrt(np.mean(e)))


def long_run(report: Report, case: Case, rules: dict[str, Any]) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Over many orbits: momentum, and the energy at the samples of each rule, by time."""
    f = vioc.MidpointVI(case.system, 0.01)
    x, epsilon, curves = f.initial_state(case.q, case.v), 0.02, {}
    count = round((30 if report.quick else 1000) * PERIOD * 66.6)
    for name, rule in rules.items():
        t, X = rule.run(x, epsilon, count)
        q, p = X[:, :2], X[:, 2:]
        energy = np.sum(p * p, axis=1) / 2 - 1 / np.linalg.norm(q, axis=1)
        curves[name] = t, energy
        if name == "reversible":
            turning = q[:, 0] * p[:, 1] - q[:, 1] * p[:, 0]
            report.measure(momentum=np.abs(turning / turning[0] - 1).max())
        if not report.quick:
            key = {"reversible": "drift", "transformed": "transformed_drift", "not reversible": "naive_drift"}
            report.measure(**{key[name]: abs(total_drift(t, energy)) / np.ptp(curves["reversible"][1])})
    return curves


def symplecticity(rule: Transformed, x: np.ndarray) -> float:
    f = rule.f.with_dt(0.05)
    A = f.linearize(f.rollout(x, steps=20).x[-1]).A
    J = np.block([[np.zeros((2, 2)), np.eye(2)], [-np.eye(2), np.zeros((2, 2))]])
    return float(np.abs(A.T @ J @ A - J).max())


@STUDY.body
def run(report: Report) -> None:
    orbit = kepler()
    f = vioc.MidpointVI(orbit.system, 0.01)
    x = f.initial_state(orbit.q, orbit.v)
    paced, transformed, equal = Paced(orbit), Transformed(orbit), Equal(orbit)
    end, fine = 3 * PERIOD, (0.04, 0.02, 0.01, 0.005)
    ours = compared(orbit, kepler_exact, end, paced, fine)
    sundman = compared(orbit, kepler_exact, end, transformed, fine)
    plain = compared(orbit, kepler_exact, end, equal, (2e-3, 1e-3, 5e-4))
    report.measure(
        order=order(ours),
        transformed_order=order(sundman),
        back=paced.back(x, 0.01, 1000),
        symplectic=symplecticity(transformed, x),
        kepler=steps_over(ours, plain),
        kepler_transformed=steps_over(sundman, plain),
    )
    rules = {"reversible": paced, "transformed": transformed, "not reversible": Paced(orbit, False)}
    curves = long_run(report, orbit, rules)
    work = {"Kepler": (ours, plain)}
    for key, case, end, fine, coarse in (
        ("wall", ball(), 1.5, (0.1, 0.05, 0.025), (4e-4, 1e-4, 5e-5)),
        ("chain", chain(), 2.0, (0.01, 0.005, 0.0025), (4e-3, 2e-3, 1e-3)),
    ):
        exact = dop853(case, end + 0.1)
        pair = (compared(case, exact, end, rule(case), s) for rule, s in ((Paced, fine), (Equal, coarse)))
        work[case.system.name] = ours, plain = tuple(pair)
        report.measure(**{key: steps_over(ours, plain)})
    report.measure(
        ideal_kepler=ideal(orbit, 5e-4, PERIOD),
        ideal_round=ideal(kepler(0.1), 5e-3, PERIOD),
        ideal_wall=ideal(ball(), 2e-5, 0.5),
        ideal_spring=ideal(spring(), 2e-4, 2.0),
        ideal_chain=ideal(chain(), 1e-3, 4.0 if report.quick else 20.0),
    )
    draw(report, work, curves)


def draw(report: Report, work: dict[str, Any], curves: dict[str, tuple[np.ndarray, np.ndarray]]) -> None:
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.2), layout="constrained")
    for (name, pair), color in zip(work.items(), ("tab:blue", "tab:orange", "tab:green"), strict=True):
        for rows, style, how in zip(pair, ("-o", "--s"), ("density", "equal"), strict=True):
            left.loglog(*np.array(rows).T, style, color=color, label=f"{name}, {how} steps", markersize=4)
    left.set(xlabel="steps", ylabel="largest error of the configuration (m, rad)")
    left.grid(alpha=0.3, which="both")
    left.set_ylim(bottom=3e-8)
    left.legend(fontsize="small", loc="lower left")
    for name, (t, energy) in curves.items():
        each = max(1, len(t) // 20_000)
        right.plot(t[::each] / PERIOD, energy[::each] - energy[0], lw=0.6, label=name)
    right.set(xlabel="orbits, e = 0.9", ylabel="energy less that at the start (J)")
    right.grid(alpha=0.3)
    right.legend(fontsize="small")
    report.save(figure)


if __name__ == "__main__":
    STUDY.main()
