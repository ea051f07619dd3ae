"""Robust feedback: one gain for many sampled values of the parameters.
It minimizes the mean or the largest cost over the samples.

Maths: docs/maths/robust.md#one-gain-for-many-mechanisms.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from vioc.checks import as_count, as_floats, as_names, as_positive, check_array, few
from vioc.control.linear.about import about_of
from vioc.control.linear.linear_system import equilibrium_point
from vioc.control.linear.weights import error_weights, input_weight, named_jacobians, state_weight
from vioc.control.regulators.law import StateLaw
from vioc.control.regulators.lqr import dlqr, holding_input
from vioc.control.regulators.steady import SETTLES
from vioc.errors import OptimizationError
from vioc.maps.protocol import OneStepMap
from vioc.names import by_name
from vioc.runs.steps import check_steps
from vioc.runs.trajectory import Trajectory

POWERS = (1, 2, 4, 8, 16, 32, 64)  # exponents of the power mean that tends to the worst cost
ARMIJO = 1e-4
DOUBLINGS = 60
RAISE = 0.7  # increase of the discount per descent, over the largest possible one
STUCK = 1e-4  # smallest increase of the discount; smaller ones end the search

Spread = Sequence[float] | Callable[[np.random.Generator], float]


def draw_parameters(
    spread: Mapping[str, Spread], count: int, *, seed: int | np.random.Generator = 0
) -> list[dict[str, float]]:
    """Draw random values of parameters, to design a robust regulator or to test it.
    The function `robust_dlqr` designs the regulator.

    Parameters
    ----------
    spread : dict of str to (low, high) or callable
        Interval of a uniform distribution, or a function of a numpy Generator that returns a number:
        ``{"mass": (0.8, 1.2), "friction": lambda rng: rng.lognormal(-3, 0.5)}``.
    count : int
    seed : int or Generator

    Returns
    -------
    list of dict of str to float

    Raises
    ------
    ValueError
        Invalid intervals; values that are not finite.
    """
    rng = np.random.default_rng(seed)
    draws: dict[str, Callable[[np.random.Generator], float]] = {}
    for name, value in spread.items():
        if callable(value):
            draws[name] = value
            continue
        low, high = (float(v) for v in check_array(value, (2,), f"interval of {name}"))
        if low > high:
            raise ValueError(f"interval of {name}: lower limit {low:g} > upper limit {high:g}")
        draws[name] = functools.partial(_uniform, low, high)
    samples = [{n: float(draw(rng)) for n, draw in draws.items()} for _ in range(count)]
    for values in samples:
        for name, number in values.items():
            if not np.isfinite(number):
                raise ValueError(f"{name}: expected finite numbers, its function returned {number!r}")
    return samples


def _uniform(low: float, high: float, rng: np.random.Generator) -> float:
    return float(rng.uniform(low, high))


class Assessment(NamedTuple):
    """Costs and spectral radii of closed loops with one gain.
    Each sample of the parameters yields one closed loop.

    Attributes
    ----------
    costs : (S,)
        Expected cost over the initial states; inf if the closed loop is not stable.
    radii : (S,)
        Spectral radius: the largest absolute value of the closed loop's poles.
    """

    costs: np.ndarray
    radii: np.ndarray

    @property
    def stable(self) -> np.ndarray:
        return self.radii < SETTLES

    def __repr__(self) -> str:
        stable, costs = self.stable, self.costs[self.stable]
        cost_text = f"mean cost {costs.mean():.6g}, worst {costs.max():.6g}; " if len(costs) else ""
        count = f"{stable.sum()} of {len(stable)} samples stable"
        return f"Assessment({count}; {cost_text}largest pole {self.radii.max():.6g})"


@dataclass(frozen=True)
class RobustRegulator:
    """Regulator u = u_d - K y with one gain K for all sampled parameter values.
    y are deviations of outputs from the equilibrium with input u_d.

    Attributes
    ----------
    map : OneStepMap
        The nominal map.
    x, u : (nx,), (nu,)
        Its equilibrium.
    K : (nu, ny)
    outputs : tuple of str
        Names of the deviations y: the errors of the state, or quantities.
    found, nominal : Assessment
        Assessments of K, and of the nominal map's own regulator, on the samples of the design.
    worst : bool
        True if the worst cost was minimized, not the mean.
    P0, Q, R
        As given.
    iterations : int
    """

    map: OneStepMap = field(repr=False)
    x: np.ndarray
    u: np.ndarray
    K: np.ndarray
    outputs: tuple[str, ...]
    found: Assessment
    nominal: Assessment
    worst: bool
    P0: Any = field(repr=False)
    Q: Any = field(repr=False)
    R: Any = field(repr=False)
    iterations: int = 0

    def as_law(self, f: OneStepMap | None = None) -> StateLaw:
        """Return the feedback law for the nominal map, or for another map.

        On a map with other masses, the same momenta belong to other velocities, so gains of momenta act
        differently. Outputs given by name keep their meaning.
        """
        f = self.map if f is None else f
        C = named_jacobians(f, self.outputs, self.x[None], "outputs", "name quantities of the state")[0]
        return StateLaw(f, self.x[None], self.u[None], (self.K @ C)[None], "holds")

    def rollout(self, x0: Any, steps: int, f: OneStepMap | None = None) -> Trajectory:
        """Simulate the closed loop from x0 (nx,), by default with the nominal map."""
        law = self.as_law(f)
        X, U, K = (np.tile(a, (steps, *(1,) * (a.ndim - 1))) for a in (law.X, law.U, law.K))
        return law.map.track(x0, X, U, K)

    def assess(self, samples: Iterable[Mapping[str, float] | OneStepMap], K: Any = None) -> Assessment:
        """Return costs and spectral radii of closed loops for other parameter values.

        The gain is the regulator's, or K (nu, ny) on the same outputs.
        """
        loops = _Loops.of(self.map, (self.x, self.u), self.Q, self.R, self.P0, self.outputs, samples)
        return loops.assess(self.K if K is None else as_floats(K, "K"))

    def __repr__(self) -> str:
        what = "worst" if self.worst else "mean"
        return (
            f"RobustRegulator(least {what} cost over {len(self.found.costs)} samples; K {self.K.shape[0]} x "
            f"{self.K.shape[1]} of {few(self.outputs)}; {self.found!r}; nominal gain: {self.nominal!r})"
        )


def robust_dlqr(
    f: OneStepMap,
    about: Any,
    Q: Any,
    R: Any,
    samples: Iterable[Mapping[str, float] | OneStepMap],
    *,
    outputs: str | Iterable[str] | None = None,
    P0: Any = 1.0,
    worst: bool = False,
    tolerance: float = 1e-6,
    max_iterations: int = 300,
) -> RobustRegulator:
    """Find one gain that minimizes the mean cost over sampled parameter values.

        minimize over K   mean of tr(X P0),   X = Q + C'K'R K C + F'X F,   F = A - B K C

    The law is u = u_d - K y with the outputs y = C z. The cost tr(X P0) of a sample is the expected sum of
    z'Qz + v'Rv from initial deviations of covariance P0. Each sample is linearized at its own equilibrium:
    the state of `about` with the input that this sample needs.

    Parameters
    ----------
    f : OneStepMap
        The nominal map.
    about : as in `dlqr`
        An equilibrium of the nominal map.
    Q, R : as in `dlqr`
        If given by name of a quantity, such as ``v.theta``, Q penalizes the same motion in every sample.
    samples : dicts of str to float, or maps
        Values of parameters, for ``f.with_parameters``, or maps with the same states, inputs and step.
    outputs : names, optional
        The quantities of the state that are fed back. By default the errors of the state, whose momenta
        depend on the sample's masses. Names such as ``["theta", "v.theta"]`` are measurable in any sample.
    P0 : float, (ndx,), (ndx, ndx) or dict of str to float
        Covariance of the initial deviations.
    worst : bool
        True to minimize the worst cost instead of the mean: power means of the costs are minimized, with
        exponents that increase up to 64. The last mean is within a factor S^(1/64) of the worst cost of S
        samples.
    tolerance : float
        Predicted relative decrease of the cost at which the search ends.
    max_iterations : int
        Largest number of iterations.

    Returns
    -------
    RobustRegulator

    Raises
    ------
    ModelError
        Unknown names.
    ValueError
        Wrong shapes; a sample for which the state is not an equilibrium under any input; unequal steps.
    OptimizationError
        If no gain was found that stabilizes all samples; the message says how many are unstable, and
        whether one of them cannot be stabilized even by a gain of its own.
    """
    about, tolerance = about_of(f, about), as_positive(tolerance, "tolerance")
    max_iterations = as_count(max_iterations, "max_iterations", 0)
    if isinstance(about, Trajectory):
        raise ValueError("robust_dlqr: expected an equilibrium (x, u), got a trajectory")
    x, u = equilibrium_point(f, about)
    names = f.space.error_names if outputs is None else as_names(outputs, "outputs")
    start = dlqr(f, (x, u), Q, R)
    samples = list(samples)
    loops = _Loops.of(f, (x, u), Q, R, P0, names, samples)
    C = named_jacobians(f, names, x[None], "outputs", "name quantities of the state")[0]
    K = np.linalg.lstsq(C.T, start.K.T, rcond=None)[0].T
    nominal = loops.assess(K)
    K, iterations = _stabilize(f, loops, K, samples, max_iterations)
    for power in POWERS if worst else POWERS[:1]:
        K, count = loops.descend(K, 1.0, power, tolerance, max_iterations)
        iterations += count
    return RobustRegulator(f, x, u, K, tuple(names), loops.assess(K), nominal, worst, P0, Q, R, iterations)


def _stabilize(f: OneStepMap, loops: _Loops, K: np.ndarray, samples: list, max_iterations: int):
    """Return a gain that stabilizes the linear models of all samples.
    It is found by raising a discount factor to 1, from a value at which all costs are finite.
    """
    radius, discount, iterations = loops.assess(K).radii.max(), 0.0, 0
    while not radius < SETTLES:
        step = RAISE * (1 / radius - discount)
        if step < STUCK or iterations > 10 * max_iterations:
            raise OptimizationError(_refusal(loops, K, samples))
        discount += step
        K, count = loops.descend(K, discount, 1, 1e-3, max_iterations)
        iterations += count
        radius = loops.assess(K).radii.max()
    return K, iterations


def _refusal(loops: _Loops, K: np.ndarray, samples: list) -> str:
    radii = loops.assess(K).radii
    worst = int(np.argmax(radii))
    count = int((radii >= SETTLES).sum())
    text = (
        f"no gain was found that stabilizes all {len(radii)} samples: {count} are left, the worst is sample "
        f"{worst} ({samples[worst]!r}) with a pole of {radii[worst]:.6g}"
    )
    for i in np.flatnonzero(radii >= SETTLES):
        try:
            dlqr(loops.maps[i], (loops.x, loops.inputs[i]), 1.0, 1.0)
        except OptimizationError as error:
            return f"{text}; sample {i} ({samples[i]!r}) has no stabilizing gain of its own either: {error}"
    return f"{text}; each has a gain of its own. The search is local: narrow the ranges, or feed back more"


@dataclass(frozen=True)
class _Loops:
    """Linear models for all samples of the parameters, stacked along the first axis."""

    maps: list[OneStepMap]
    x: np.ndarray
    inputs: np.ndarray
    A: np.ndarray
    B: np.ndarray
    C: np.ndarray
    Q: np.ndarray
    R: np.ndarray
    P0: np.ndarray

    @staticmethod
    def of(f: OneStepMap, about: Any, Q: Any, R: Any, P0: Any, names: Any, samples: Iterable) -> _Loops:
        x, u = about
        maps, rows = [], []
        for i, sample in enumerate(samples):
            g = sample
            if not isinstance(g, OneStepMap):
                g = f.with_parameters(**by_name(sample, tuple(f.parameters), f"sample {i}"))
            if g.state_names != f.state_names or g.input_names != f.input_names:
                raise ValueError(f"sample {i}: expected the nominal map's states and inputs, got {g!r}")
            check_steps(g.dt, f.dt, f"sample {i}", "the nominal map")
            try:
                inputs = equilibrium_point(g, (x, holding_input(g, x, u)))[1]
            except ValueError as error:
                raise ValueError(
                    f"sample {i} ({sample!r}): {error}; name a state that all samples can hold"
                ) from None
            A, B = g.linearize(x, inputs)
            weight = error_weights(g, Q, "Q", x[None]).reshape(f.ndx, f.ndx)
            C = named_jacobians(g, names, x[None], "outputs", "name quantities of the state")[0]
            maps.append(g)
            rows.append((inputs, A, B, C, weight))
        if not maps:
            raise ValueError("samples: expected at least one")
        inputs, A, B, C, weights = (np.stack(a) for a in zip(*rows, strict=True))
        R, P0 = input_weight(f, R, "R", definite=True), state_weight(f, P0, "P0")
        return _Loops(maps, x, inputs, A, B, C, weights, R, P0)

    def assess(self, K: np.ndarray) -> Assessment:
        F = self.A - self.B @ K @ self.C
        radii = np.abs(np.linalg.eigvals(F)).max(axis=1)
        costs, stable = np.full(len(F), np.inf), radii < SETTLES
        if stable.any():
            KC = K @ self.C[stable]
            running = self.Q[stable] + np.swapaxes(KC, 1, 2) @ self.R @ KC
            costs[stable] = np.einsum("sij,ij->s", lyapunov(np.swapaxes(F[stable], 1, 2), running), self.P0)
        return Assessment(costs, radii)

    def value(self, K: np.ndarray, discount: float, power: int):
        """Return the power mean of all closed-loop costs, with gradient and Hessian.
        `power` is the exponent of the mean, and derivatives are with respect to the gain K. The Hessian is
        approximate (Gauss-Newton). Return None if a closed loop is unstable.
        """
        B, KC = discount * self.B, K @ self.C
        F = discount * self.A - B @ KC
        if not np.abs(np.linalg.eigvals(F)).max() < SETTLES:
            return None
        Ft, Bt, Ct = (np.swapaxes(a, 1, 2) for a in (F, B, self.C))
        X = lyapunov(Ft, self.Q + np.swapaxes(KC, 1, 2) @ self.R @ KC)
        S = lyapunov(F, np.broadcast_to(self.P0, F.shape))
        costs = np.einsum("sij,ij->s", X, self.P0)
        slopes = 2 * (self.R @ KC - Bt @ X @ F) @ S @ Ct
        most = costs.max()
        mean = np.mean((costs / most) ** power)
        value = most * mean ** (1 / power)
        weights = (costs / most) ** (power - 1) * mean ** (1 / power - 1) / len(costs)
        G, T = self.R + Bt @ X @ B, self.C @ S @ Ct
        m, p = K.shape
        metric = 2 * np.einsum("s,sij,skl->ikjl", weights, G, T).reshape(m * p, m * p)
        return value, np.einsum("s,sij->ij", weights, slopes), metric

    def descend(self, K: np.ndarray, discount: float, power: int, tolerance: float, max_iterations: int):
        """Minimize the power mean of closed-loop costs over the gain by BFGS.
        The initial Hessian is the Gauss-Newton approximation. Return the gain, which stabilizes all closed
        loops, and the number of iterations.
        """
        evaluation = self.value(K, discount, power)
        assert evaluation is not None
        inverse, size = _inverse(evaluation[2])
        fresh = True
        for step in range(max_iterations):
            value, slope, _ = evaluation
            move = -(inverse @ slope.ravel())
            descent = float(-move @ slope.ravel())
            if descent <= tolerance * value:
                return K, step
            length, trial = 1.0, None
            while length > 1e-10:
                trial = self.value(K + length * move.reshape(K.shape), discount, power)
                if trial is not None and trial[0] <= value - ARMIJO * length * descent:
                    break
                trial, length = None, 0.5 * length
            if trial is None:
                if fresh:
                    return K, step  # rounding prevents further descent
                (inverse, size), fresh = _inverse(evaluation[2]), True
                continue
            s, y = length * move, (trial[1] - slope).ravel()
            K, evaluation, fresh = K + s.reshape(K.shape), trial, False
            sy = float(s @ y)
            if sy > 1e-12 * np.linalg.norm(s * size) * np.linalg.norm(y / size):
                factor = np.eye(len(s)) - np.outer(s, y) / sy
                inverse = factor @ inverse @ factor.T + np.outer(s, s) / sy
        return K, max_iterations


def _inverse(metric: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the pseudo-inverse of a Hessian, and the square roots of its diagonal.
    The argument `metric` is the Hessian. It is scaled to a unit diagonal by these square roots, inverted and
    scaled back.

    Without scaling, gains of momenta would be negligible beside those of angles, and would not change.
    """
    size = np.sqrt(metric.diagonal())
    size[~(size > 0)] = 1.0
    scale = np.outer(size, size)
    return np.linalg.pinv(metric / scale, hermitian=True) / scale, size


def lyapunov(F: np.ndarray, Q: np.ndarray) -> np.ndarray:
    """Return the solutions X of S Lyapunov equations X = F X F' + Q.
    The matrices F (S, n, n) must be stable.
    """
    X = Q
    for _ in range(DOUBLINGS):
        term = F @ X @ np.swapaxes(F, 1, 2)
        X = X + term
        F = F @ F
        if np.abs(term).max() <= 1e-16 * np.abs(X).max():
            break
    return 0.5 * (X + np.swapaxes(X, 1, 2))
