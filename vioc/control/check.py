"""Comparison of exact derivatives with finite differences.

Checks maps, costs, constraints and a user's own functions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import casadi as ca
import numpy as np

from vioc.checks import check_array
from vioc.compile.evaluate import Evaluator
from vioc.control.costs.cost import Cost
from vioc.control.linear.tangent import foreign_symbols
from vioc.control.stages.linear_quadratic import costates
from vioc.maps.protocol import OneStepMap
from vioc.runs.given import point_of, trajectory_of
from vioc.runs.trajectory import Trajectory

STEPS = 10.0 ** -np.arange(1.0, 6.25, 0.25)


class DerivativeCheck(NamedTuple):
    """Comparison of one exact derivative with finite differences in one direction.

    Attributes
    ----------
    name : str
    exact, approximate : float
        The derivative as given, and its best central difference.
    error : float
        |approximate - exact| / max(1, |exact|).
    slope : float
        Slope of log error over log step, above the level of rounding: 2 if the derivative is right, 0 if it
        is wrong; nan if the difference is exact at every step (a polynomial of low degree).
    """

    name: str
    exact: float
    approximate: float
    error: float
    slope: float

    def __str__(self) -> str:
        return (
            f"{self.name:<24}  exact {self.exact:>16.9g}  approximate {self.approximate:>16.9g}  "
            f"error {self.error:>8.1e}  slope {self.slope:>5.2f}"
        )


def check_derivatives(
    target: OneStepMap | Cost | ca.SX | ca.Function, x: Any, u: Any = None, *, k: int = 0, seed: int = 0
) -> list[DerivativeCheck]:
    """Check exact derivatives of a map, cost, constraint or CasADi function.
    First and second derivatives are compared with central differences.

    Parameters
    ----------
    target : OneStepMap, Cost, casadi.SX or casadi.Function
        A path or terminal constraint (or any quantity) is an expression of the symbols of the trajectory's
        map, ``f.quantity("h.rod")``, ``f.symbols.u[0] ** 2 - 1``: a scalar, or a matrix whose entries are
        checked one by one.
    x : (nx,), Trajectory, or sequence of arrays
        A map's state; the trajectory along which a cost or an expression is checked; a function's inputs. A
        cost is checked as a function of x_0 and the inputs through its trajectory's map, so that map's
        derivatives count too; an expression is checked at the sample with the largest error.
    u : (nu,), optional
        A map's input.
    k : int
        A map's time index.
    seed : int
        Seed of the random direction, and of the random weights on the outputs of a map.

    Returns
    -------
    list of DerivativeCheck
        The first and the second derivative; for a map also those of its multipliers. Print its items. A kink
        (an absolute value, a minimum, a condition) shows as a slope near 0 if it is within the steps
        tried, 1e-1 to 1e-6.

    Raises
    ------
    TypeError
        If `x` is not of the type that the target needs.
    ValueError
        Wrong shapes; an expression with other symbols than the map's.
    """
    rng = np.random.default_rng(seed)
    if isinstance(target, ca.Function):
        return _check_function(target, x, rng)
    if isinstance(target, (Cost, ca.SX)):
        x = trajectory_of(x)
        if not isinstance(x, Trajectory):
            kind = "a cost" if isinstance(target, Cost) else "an expression"
            raise TypeError(f"{kind} is checked along a Trajectory, got {type(x).__name__}")
        return _check_cost(target, x, rng) if isinstance(target, Cost) else _check_expression(target, x, rng)
    if not isinstance(target, OneStepMap):
        kind = type(target).__name__
        raise TypeError(f"expected a map, a Cost, a casadi.SX expression or a casadi.Function, got {kind}")
    return _check_map(target, *point_of(target, x, u), k, rng)


def _check_function(function: ca.Function, inputs: Any, rng: np.random.Generator) -> list[DerivativeCheck]:
    """Check each output of a CasADi function along one random direction of its inputs."""
    given = list(inputs) if isinstance(inputs, (list, tuple)) else [inputs]
    if len(given) != function.n_in():
        raise ValueError(f"{function.name()} takes {function.n_in()} inputs, got {len(given)}")
    parts = []
    for i, value in enumerate(given):
        rows, columns = function.size_in(i)
        array = np.asarray(value, float)
        array = array.reshape(rows, columns) if array.size == rows * columns else array
        parts.append(check_array(array, (rows, columns), f"input {function.name_in(i)}").ravel(order="F"))
    y = ca.MX.sym("y", sum(p.size for p in parts))
    split = ca.vertsplit(y, [0, *np.cumsum([p.size for p in parts]).tolist()])
    args = [ca.reshape(s, *function.size_in(i)) for i, s in enumerate(split)]
    outputs = function.call(args)
    checks = []
    for i, output in enumerate(outputs):
        names = _entry_names(function.name_out(i), output.shape)
        checks += _along(names, ca.vec(ca.densify(output)), y, np.concatenate(parts)[None], rng)
    return checks


def _check_expression(expression: ca.SX, run: Trajectory, rng: np.random.Generator) -> list[DerivativeCheck]:
    """Check the derivatives of an expression in a map's symbols along a trajectory.
    The derivatives are with respect to state, input, multipliers and parameters.
    """
    s, n = run.map.symbols, len(run)
    if free := foreign_symbols(expression, ca.vertcat(*s)):
        raise ValueError(
            f"the expression's symbol {free[0]!r} is not one of the map's: write it in `map.symbols`"
        )
    theta = np.tile(run.map.theta, (n, 1))
    forces = ca.depends_on(expression, s.multipliers)
    lengths = (run.impulse_lengths if forces else run.step_lengths)[:, None]
    points = np.hstack([run.x[:n], run.u, run.multipliers, theta, lengths])
    by_step = ca.depends_on(expression, ca.vertcat(s.u, s.multipliers, s.dt))
    if not by_step:  # an expression of states alone is checked at the last one too
        points = np.vstack([points, np.concatenate([run.x[n], points[-1, run.map.nx :]])])
    names = _entry_names("expression", expression.shape)
    return _along(names, ca.vec(ca.densify(expression)), ca.vertcat(*s), points, rng)


def _along(
    names: list[str], entries: Any, y: Any, points: np.ndarray, rng: np.random.Generator
) -> list[DerivativeCheck]:
    """Check derivatives of expressions along a random direction of their variables.
    They are compared with finite differences at each of the given points.

    Each of the m entries is reported at the point with its largest error.
    """
    d = type(y).sym("d", y.numel())
    first = ca.jtimes(entries, y, d)
    function = Evaluator(ca.Function("along", [y, d], [entries, first, ca.jtimes(first, y, d)]))
    direction = rng.standard_normal(y.numel())
    steps = np.concatenate([[0.0], STEPS, -STEPS])
    size = 1 + np.abs(points)  # steps in proportion to the entries, whatever their units
    moved = points[:, None] + steps[:, None] * (size * direction)[:, None]
    values = function(moved.reshape(-1, y.numel()), np.repeat(size * direction, len(steps), axis=0))
    value, slope, curvature = (v[..., 0].reshape(len(points), len(steps), len(names)) for v in values)
    checks = []
    for i, name in enumerate(names):
        pairs = [
            _compare_samples(name, value[p, :, i], float(slope[p, 0, i]), float(curvature[p, 0, i]))
            for p in range(len(points))
        ]
        checks += [
            max(column, key=lambda c: np.inf if np.isnan(c.error) else c.error)
            for column in zip(*pairs, strict=True)
        ]
    return checks


def _entry_names(name: str, shape: tuple[int, int]) -> list[str]:
    rows, columns = shape
    if rows == columns == 1:
        return [name]
    if columns == 1:
        return [f"{name}[{i}]" for i in range(rows)]
    return [f"{name}[{i}, {j}]" for j in range(columns) for i in range(rows)]


def _check_map(
    f: OneStepMap, x: np.ndarray, u: np.ndarray, k: int, rng: np.random.Generator
) -> list[DerivativeCheck]:
    dx, du = rng.standard_normal(f.ndx), rng.standard_normal(f.nu)
    z, zeta = rng.standard_normal(f.ndx), rng.standard_normal(len(f.multiplier_names))
    lin = f.linearize(x, u, k)
    base = f.step(x, u, k)

    def moved(s: float) -> Trajectory:
        return f.rollout(f.retract(x, s * dx), (u + s * du)[None], k0=k, warn=False)

    def next_state(s: float) -> float:
        return float(z @ f.difference(base, moved(s).x[1]))

    def multipliers(s: float) -> float:
        return float(zeta @ moved(s).multipliers[0])

    def curvature(z: np.ndarray, zeta: np.ndarray) -> float:
        H = f.second_order(x, u, z, k, zeta=zeta)
        return float(dx @ H.xx @ dx + 2 * dx @ H.xu @ du + du @ H.uu @ du)

    first, second = float(z @ (lin.A @ dx + lin.B @ du)), curvature(z, 0 * zeta)
    checks = _compare("next state", next_state, first, second)
    if len(zeta):
        first, second = float(zeta @ (lin.C @ dx + lin.D @ du)), curvature(0 * z, zeta)
        checks += _compare("multipliers", multipliers, first, second)
    return checks


def _check_cost(cost: Cost, run: Trajectory, rng: np.random.Generator) -> list[DerivativeCheck]:
    f, lengths = run.map, run.step_lengths
    du = rng.standard_normal(run.u.shape)
    dx = np.empty((len(run) + 1, f.ndx))
    dx[0] = rng.standard_normal(f.ndx)
    lin = f.linearize_trajectory(run)
    for k in range(len(run)):
        dx[k + 1] = lin.A[k] @ dx[k] + lin.B[k] @ du[k]
    scale = max(1.0, float(np.abs(dx).max()))  # keeps the last state of unstable motions near
    dx, du = dx / scale, du / scale

    def value(s: float) -> float:
        x0 = f.retract(run.x[0], s * dx[0])
        return cost.value(f.rollout(x0, run.u + s * du, k0=run.k0, dt=lengths, warn=False))

    e = cost.expand(run, lin)
    first = float(np.vdot(e.lx, dx) + np.vdot(e.lu, du))
    z = costates(lin.A, e.lx[:-1], e.lx[-1])[0]
    H = f.second_order_trajectory(run, z[1:], e.zeta)
    xx = e.lxx.copy()
    xx[:-1] += H.xx
    second = float(
        np.einsum("ka,kab,kb", dx, xx, dx)
        + 2 * np.einsum("ka,kab,kb", dx[:-1], e.lxu + H.xu, du)
        + np.einsum("ka,kab,kb", du, e.luu + H.uu, du)
    )
    return _compare("cost", value, first, second)


def _compare(name: str, phi: Callable[[float], float], first: float, second: float) -> list[DerivativeCheck]:
    steps = np.concatenate([[0.0], STEPS, -STEPS])
    return _compare_samples(name, np.array([phi(float(s)) for s in steps]), first, second)


def _compare_samples(name: str, values: np.ndarray, first: float, second: float) -> list[DerivativeCheck]:
    """Compare exact first and second derivatives with finite differences.
    `values` are function values at 0, at the distances STEPS, and at -STEPS along a direction.
    """
    center, (ahead, behind) = values[0], np.split(values[1:], 2)
    return [
        _check(f"{name}, first", first, (ahead - behind) / (2 * STEPS)),
        _check(f"{name}, second", second, (ahead - 2 * center + behind) / STEPS**2),
    ]


def _check(name: str, exact: float, differences: np.ndarray) -> DerivativeCheck:
    errors = np.abs(differences - exact) / max(1.0, abs(exact))
    best = int(np.argmin(errors))
    slope = float("nan")
    if errors[0] > 1e-10:
        used = slice(0, max(best, 2) + 1)
        falling = errors[used] > 0
        if falling.sum() > 1:
            slope = float(np.polyfit(np.log(STEPS[used][falling]), np.log(errors[used][falling]), 1)[0])
    return DerivativeCheck(name, exact, float(differences[best]), float(errors[best]), slope)
