"""Error over CPU time, of energy and of the trajectory: compositions, Runge-Kutta rules, MuJoCo, scipy."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.integrate import solve_ivp

import vioc
from studies.benchmarks import problems, simulators
from studies.benchmarks.harness import ABSENT, COMPILED, Bench, Row
from vioc import Composition

DURATION = 20.0  # s
LONG = 1000.0  # s
STEPS = {  # lengths of a step, s, by integrator
    "midpoint, order 2": (0.02, 0.01, 0.005, 0.0025, 0.00125),
    "composition, order 4": (0.1, 0.08, 0.04, 0.02, 0.01),
    "composition, order 6": (0.125, 0.1, 0.08, 0.0625, 0.04),
    "Galerkin, order 6": (0.1, 0.08, 0.0625, 0.05, 0.04),
    "Galerkin, order 8": (0.15, 0.125, 0.1, 0.08, 0.0625),
    "explicit Runge-Kutta 4": (0.04, 0.02, 0.01, 0.005, 0.0025),
    "MuJoCo Euler": (0.01, 0.005, 0.0025, 0.00125),
    "MuJoCo RK4": (0.02, 0.01, 0.005, 0.0025),
}
LONG_STEPS = {
    "midpoint, order 2": (0.02, 0.01, 0.005, 0.0025),
    "composition, order 4": (0.06, 0.04, 0.03),
    "composition, order 6": (0.08, 0.0625, 0.05),
    "Galerkin, order 6": (0.0625, 0.05, 0.04),
    "Galerkin, order 8": (0.08, 0.0625, 0.05),
    "explicit Runge-Kutta 4": (0.02, 0.01, 0.005, 0.0025),
    "MuJoCo RK4": (0.02, 0.01, 0.005),
}
ROWS = 4001  # of which an energy error is taken
TOLERANCES = (1e-4, 1e-6, 1e-8, 1e-10)  # of scipy


class Motion(NamedTuple):
    """Configurations and velocities at the steps, (N+1, nq) each."""

    q: np.ndarray
    v: np.ndarray


class Pendulum:
    """The n-link pendulum by every integrator, and what their motions are judged by."""

    def __init__(self, n: int, backend: str):
        self.n = n
        self.midpoint, self.start = problems.pendulum(n, backend)
        self.system = self.midpoint.system
        self.explicit = vioc.RungeKutta(self.system, problems.DT, "rk4", backend=backend)
        self.maps = {
            "midpoint, order 2": self.midpoint,
            "composition, order 4": Composition(self.midpoint, 4),
            "composition, order 6": Composition(self.midpoint, 6),
            "Galerkin, order 6": vioc.GalerkinVI(self.system, problems.DT, stages=3, backend=backend),
            "Galerkin, order 8": vioc.GalerkinVI(self.system, problems.DT, stages=4, backend=backend),
            "explicit Runge-Kutta 4": self.explicit,
        }

    def runner(self, name: str, dt: float, duration: float = DURATION) -> Callable[[], Any] | None:
        """A call that moves the pendulum for `duration`; None where the program is not installed."""
        steps = round(duration / dt)
        if name in self.maps:
            f = self.maps[name]
            x0 = f.initial_state(self.start[: self.n])  # type: ignore[attr-defined]
            return lambda: f.rollout(x0, steps=steps, dt=duration / steps, warn=False)
        if simulators.mujoco() is None:
            return None
        run = simulators.MujocoRollout(self.system, self.start[: self.n], dt, name.split()[-1])
        return lambda: run(steps)

    def scipy(self, method: str, tolerance: float) -> Callable[[], Motion]:
        rate = vioc.Continuous(self.system)
        n = self.n
        y0, none = np.concatenate([self.start[:n], np.zeros(n)]), np.zeros(0)
        t = np.linspace(0.0, DURATION, 201)

        def fun(_: float, y: np.ndarray) -> np.ndarray:
            return np.concatenate([y[n:], rate.dynamic_accelerations(y[:n], y[n:], none, 0.0, none)])

        def solve() -> Motion:
            y = solve_ivp(fun, (0, DURATION), y0, method, t, rtol=tolerance, atol=tolerance).y.T
            return Motion(y[:, :n], y[:, n:])

        return solve

    def motion(self, result: Any) -> Motion:
        """At no more than ROWS or so samples, the last one of them."""
        if isinstance(result, vioc.Trajectory):
            every = -(-len(result) // (ROWS - 1))
            keep = np.arange(len(result), -1, -every)[::-1]
            zeros = (np.zeros((len(keep) - 1, m)) for m in (result.map.nu, 0))
            result = vioc.Trajectory(result.map, result.t[keep], result.x[keep], *zeros)
            names = self.system.variables
            v = np.stack([result[f"v.{name}"] for name in names], axis=1)
            return Motion(result.x[:, : self.n], v)
        every = -(-(len(result[0]) - 1) // (ROWS - 1))
        return Motion(*(part[::-every][::-1] for part in result))

    def energy_error(self, motion: Motion) -> float:
        """Largest |E - E0| / |E0|; one formula for all, that of the explicit rule's states."""
        f, k = self.explicit, len(motion.q)
        x = np.hstack([motion.q, motion.v])
        run = vioc.Trajectory(f, np.arange(k, dtype=float), x, np.zeros((k - 1, 0)), np.zeros((k - 1, 0)))
        E = run.energy
        return float(np.abs(E - E[0]).max() / abs(E[0]))


def work_precision(bench: Bench) -> Iterator[Row]:
    n = 2 if bench.quick else 10
    yield from against_mujoco(bench, n)
    pendulum = Pendulum(n, bench.backends[-1])
    truth = _truth(pendulum, 0.05 if bench.quick else 0.0125)
    curves: dict[str, list[tuple[float, float, float]]] = {}
    for name, lengths in STEPS.items():
        for dt in lengths[2:4] if bench.quick else lengths:
            call = pendulum.runner(name, dt)
            if call is not None:
                curves.setdefault(name, []).append(_point(bench, pendulum, call, truth))
    for method in ("RK45", "DOP853"):
        for tolerance in TOLERANCES[:1] if bench.quick else TOLERANCES:
            call = pendulum.scipy(method, tolerance)
            curves.setdefault(f"scipy {method}", []).append(_point(bench, pendulum, call, truth, once=True))
    far = {} if bench.quick else _long(pendulum)
    bench.curves["work-precision"] = dict(links=n, backend=bench.backends[-1], points=curves, long=far)
    for what, column, level, found in (
        ("20 s, energy", 1, 1e-6, curves),
        ("20 s, trajectory", 2, 1e-4, curves),
        ("1000 s, energy", 1, 1e-6, far),
    ):
        figures = {name: _at(points, column, level) for name, points in found.items()}
        figures = {name: value for name, value in figures.items() if np.isfinite(value)}
        mine = {name: figures.pop(name) for name in list(figures) if name.startswith("Galerkin")}
        ours = min(mine.values(), default=None)
        yield Row(
            f"{n} links, {what} error {level:g}: Galerkin",
            "ms",
            {} if ours is None else {pendulum.midpoint.backend.name: ours},
            peers=figures,
            note="interpolated: " + ", ".join(f"{name} {ms:.3g}" for name, ms in mine.items()),
        )


def _long(pendulum: Pendulum) -> dict[str, list[tuple[float, float]]]:
    """CPU time (ms) and energy error over LONG."""
    found: dict[str, list[tuple[float, float]]] = {}
    for name, lengths in LONG_STEPS.items():
        for dt in lengths:
            call = pendulum.runner(name, dt, LONG)
            if call is not None:
                error = pendulum.energy_error(pendulum.motion(call()))
                found.setdefault(name, []).append((Bench(quick=True).best(call, 1e3), error))
    return found


def against_mujoco(bench: Bench, n: int) -> Iterator[Row]:
    """CPU time to the energy error of MuJoCo's RK4 at dt 0.01 s, by the fewest steps that reach it."""
    name = f"order 4 to MuJoCo RK4's energy error, {n} links, 20 s"
    pendulum = Pendulum(n, "virtual")
    rival = pendulum.runner("MuJoCo RK4", problems.DT)
    if rival is None:
        yield Row(name, "ms", {}, {}, {"MuJoCo RK4": ABSENT})
        return
    goal = pendulum.energy_error(pendulum.motion(rival()))
    theirs = bench.best(rival, 1e3)
    for order in (4, 6):
        figures, steps = {}, 0
        for backend in bench.backends:
            mine = Pendulum(n, backend)
            steps = steps or _fewest(mine, f"composition, order {order}", goal)
            call = mine.runner(f"composition, order {order}", DURATION / steps)
            figures[backend] = bench.best(call, 1e3)  # type: ignore[arg-type]
        yield Row(
            name.replace("order 4", f"order {order}"),
            "ms",
            figures,
            {COMPILED: theirs},
            {"MuJoCo RK4": theirs},
            f"error {goal:.1e}; steps of {1e3 * DURATION / steps:.3g} ms",
        )


def _fewest(pendulum: Pendulum, name: str, goal: float) -> int:
    """Fewest steps whose energy error is no more than `goal`, to a twentieth."""
    steps = 20

    def good(count: int) -> bool:
        try:
            motion = pendulum.motion(pendulum.runner(name, DURATION / count)())  # type: ignore[misc]
        except vioc.StepError:
            return False
        return pendulum.energy_error(motion) <= goal

    while not good(steps):
        steps *= 2
    low = steps // 2
    while steps - low > max(1, steps // 20):
        middle = (low + steps) // 2
        low, steps = (low, middle) if good(middle) else (middle, steps)
    return steps


def _truth(pendulum: Pendulum, dt: float) -> np.ndarray:
    """The configuration at the end, by order 6 with steps so short that their error is not seen."""
    call = pendulum.runner("composition, order 6", dt)
    return pendulum.motion(call()).q[-1]  # type: ignore[misc]


def _point(
    bench: Bench, pendulum: Pendulum, call: Callable[[], Any], truth: np.ndarray, once: bool = False
) -> tuple[float, float, float]:
    """CPU time (ms), energy error, error of the configuration at the end (rad)."""
    motion = pendulum.motion(call())
    repeats = Bench(quick=True) if once else bench
    error = float(np.abs(motion.q[-1] - truth).max())
    return repeats.best(call, 1e3), pendulum.energy_error(motion), error


def _at(points: Sequence[tuple[float, ...]], column: int, level: float) -> float:
    """Time at an error, by a line between points in logarithms; NaN where they do not reach to it."""
    errors, times = np.log([p[column] for p in points]), np.log([p[0] for p in points])
    order = np.argsort(errors)
    if not errors.min() <= np.log(level) <= errors.max():
        return float("nan")
    return float(np.exp(np.interp(np.log(level), errors[order], times[order])))
