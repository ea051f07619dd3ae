"""KKT residual of a trajectory and its multipliers, independent of all optimizers.

::

    found = kkt(f, cost, best.trajectory, best.multipliers, bounds=bounds, final=final)
    assert found.residual <= 1e-8

With the Lagrangian g(x, u) + sum over k of nu_k . c(x_k, u_k, lambda_k), where c are the quantities that have
limits, and x_0 given, an optimum has

    x_k+1 = f(x_k, u_k),    p_N = g_x,N + c_x' nu_N,    p_k = g_x,k + A_k' p_k+1 + c_x' nu_k,
    0 = g_u,k + B_k' p_k+1 + c_u' nu_k,    lower <= c <= upper,
    nu_k >= 0 where c is at its upper limit, <= 0 at its lower one, 0 between.

Each step is taken from its own state. If x_0 is free, the equation of p_k also holds for k = 0 with p_0 = 0;
if the duration or a parameter s is free, so does 0 = g_s + sum over k of f_s' p_k+1 + c_s' nu_k. Steps and A,
B are the map's; the gradient is the cost's, and is also compared with differences of the cost. Limits are
read here independently, and the costates p come from their recursion.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import casadi as ca
import numpy as np

from vioc.control.costs.cost import Cost
from vioc.control.problem.limits import PathConstraint
from vioc.errors import StepError
from vioc.maps.derivatives import Linearization
from vioc.maps.protocol import OneStepMap
from vioc.runs.trajectory import Trajectory

EQUAL = 1e-12  # relative difference of limits below which they are an equation
LIMITS = "feasibility", "complementarity", "sign"
CERTAIN, REFINED = 1e-10, 4  # slope below which recursive costates are kept; refinements otherwise
MOVE = 1e-6  # relative step of the difference that checks the cost's gradient


@dataclass(frozen=True)
class Kkt:
    """Residuals of the conditions of optimality; all are 0 at an optimum.

    Attributes
    ----------
    gap : float
        Defect |x_k+1 - f(x_k, u_k)| over 1 + |x|. All residuals are infinite if a step does not exist.
    stationarity : float
        Derivative of the Lagrangian by an input or a state, over 1 + the sum of the magnitudes of its terms.
    feasibility : float
        Violation of a limit over 1 + |limit|.
    complementarity : float
        |nu| times the distance from its limit over 1 + |nu|.
    sign : float
        |nu| over 1 + the largest |nu|, for nu on a side without a limit.
    relative : float
        Stationarity for inputs, over the largest sum of that input along the trajectory and without the 1, so
        that it is independent of the cost's unit. Not part of `residual`.
    gradient : float
        Relative difference of the cost's gradient and a central difference of the cost; a few 1e-9 if both
        are right. Not part of `residual`.
    where : dict of str to str
        Quantity and sample of the largest value of each residual.
    """

    gap: float
    stationarity: float
    feasibility: float
    complementarity: float
    sign: float
    relative: float
    gradient: float
    where: Mapping[str, str]

    @property
    def residual(self) -> float:
        """Largest of the fields gap, stationarity, feasibility, complementarity and sign.
        They are residuals of the conditions of optimality. The result is nan if one of them is nan.
        """
        parts = self.gap, self.stationarity, self.feasibility, self.complementarity, self.sign
        return float(np.max(parts))

    def __str__(self) -> str:
        names = "gap", "stationarity", "feasibility", "complementarity", "sign", "relative", "gradient"
        each = (
            f"{n} {getattr(self, n):.1e}" + (f" ({w})" if (w := self.where.get(n)) else "") for n in names
        )
        return f"KKT residual {self.residual:.1e}: " + ", ".join(each)


class Row(NamedTuple):
    """Scalar quantity with limits at the samples `at` (S,), with its derivatives.
    The fields include its values, limits and multipliers at these samples. The derivatives are with respect
    to states, inputs, and the free duration and parameters.
    """

    name: str
    at: np.ndarray
    value: np.ndarray
    low: np.ndarray
    high: np.ndarray
    nu: np.ndarray
    by_x: np.ndarray
    by_u: np.ndarray
    by_s: np.ndarray


class Constants(NamedTuple):
    """Free duration and parameters of a problem.
    The fields include the derivatives of each step with respect to these quantities.

    Attributes
    ----------
    names : tuple of str
    x, multipliers : (N, ndx, ns), (N, nm, ns)
        Ends of the steps, and their impulses.
    h : (N, ns)
        Step lengths.
    theta : (np, ns)
        Parameters.
    """

    names: tuple[str, ...]
    x: np.ndarray
    multipliers: np.ndarray
    h: np.ndarray
    theta: np.ndarray


def kkt(
    f: OneStepMap,
    cost: Cost,
    run: Trajectory,
    multipliers: Mapping[str, Any] | None = None,
    *,
    bounds: Mapping[str, Any] | None = None,
    constraints: Sequence[PathConstraint] = (),
    final: Any = None,
    initial: Any = None,
    duration: Any = None,
    parameters: Mapping[str, Any] | None = None,
    periodic: Mapping[str, float] | None = None,
) -> Kkt:
    """Return the KKT residuals of a trajectory, or of a curve with defects.

    Parameters
    ----------
    f, cost, bounds, constraints, final, initial, duration, parameters, periodic
        The problem, as in `vioc.control.optimize`; bounds by full names, `periodic` with shifts.
    run : Trajectory
        x (N+1, nx), u (N, nu) and the impulses of the constraints; x_0 is given except for what `initial`, by
        name, leaves free. Its map has the optimized parameters.
    multipliers : dict, optional
        Multipliers by name, over the samples at which the quantity has a limit; default 0. Those of bounds
        and constraints have their names, those of conditions at the end ``"final NAME"``, at the start
        ``"initial NAME"``; others are ``"duration"``, ``"param.NAME"``, ``"periodic.NAME"``.
    """
    n, given = len(run), dict(multipliers or {})
    f = run.map if parameters else f
    try:
        steps = f.steps_at(run.x[:-1], run.u, run.k0, run.step_lengths)
    except StepError as error:
        off = np.inf
        return Kkt(off, off, off, off, off, off, off, {"gap": str(error)})
    ends, lin = steps.x1, f.derivatives.linearize(steps)
    e = cost.expand(run, lin)
    lx, lu = e.lx, e.lu
    free = _open(f, initial)
    held = _constants(f, steps, run, duration, parameters or {})
    limited = _limited(f, n, bounds, constraints, final)
    if isinstance(initial, Mapping):
        limited += _at_start(f, n, initial, free, given, periodic or {})
    rows = [r for c in limited for r in _rows(f, run, lin, c, given, held, free)]
    rows += _of_constants(f, run, duration, parameters or {}, given, held)
    if periodic:
        rows += _closing(f, run, periodic, given, held)
    # derivatives of cost and limits by x_k and u_k alone, and the sums of the magnitudes of their terms
    gx, gu, sx, su = lx.copy(), lu.copy(), np.abs(lx), np.abs(lu)
    for r in rows:
        along = r.at < n
        for total, size, by, some in ((gx, sx, r.by_x, r.at <= n), (gu, su, r.by_u, along)):
            part = (r.nu[:, None] * by)[some]
            np.add.at(total, r.at[some], part)
            np.add.at(size, r.at[some], np.abs(part))
    by_x, by_u, sx, su, p = _slopes(lin, gx, gu, sx, su)
    most = np.max(su, axis=0, initial=0.0)

    found = {name: _Worst() for name in ("gap", "stationarity", *LIMITS, "relative")}
    gaps = np.abs(f.difference(ends, run.x[1:])) / (1 + np.abs(run.x).max())
    for name, column in zip(f.space.error_names, gaps.T, strict=True):
        found["gap"].see(name, np.arange(1, n + 1), column)
    for name, slope, size in zip(f.space.error_names, np.abs(by_x).T, sx.T, strict=True):
        found["stationarity"].see(name, np.arange(1, n + 1), slope / (1 + size))
    start = gx[0] + lin.A[0].T @ p[0], sx[0] + np.abs(lin.A[0].T) @ np.abs(p[0])
    for name, slope, size, is_free in zip(f.space.error_names, *start, free, strict=True):
        found["stationarity"].see(name, np.zeros(1, int), np.abs([slope]) / (1 + size) * is_free)
    for name, slope, size in zip(held.names, *_by_constants(f, cost, run, rows, p, held), strict=True):
        found["stationarity"].see(name, np.zeros(1, int), np.abs([slope]) / (1 + size))
    for name, slope, size, whole in zip(f.input_names, np.abs(by_u).T, su.T, most, strict=True):
        found["stationarity"].see(name, np.arange(n), slope / (1 + size))
        found["relative"].see(name, np.arange(n), slope / (whole or 1.0))
    largest = max((float(np.abs(r.nu).max(initial=0.0)) for r in rows), default=0.0)
    for r in rows:
        equation = np.isfinite(r.low) & (
            r.high - r.low <= EQUAL * (1 + np.abs(np.where(np.isfinite(r.low), r.low, 0.0)))
        )
        for limit, excess, nu in (
            (r.high, r.value - r.high, np.maximum(r.nu, 0)),
            (r.low, r.low - r.value, np.maximum(-r.nu, 0)),
        ):
            there = np.isfinite(limit)
            distance, size = np.where(there, excess, 0.0), 1 + np.abs(np.where(there, limit, 0.0))
            loose = np.where(equation, 0.0, np.abs(distance) * nu / (1 + nu))
            amounts = np.maximum(distance, 0) / size, loose, np.where(there, 0.0, nu / (1 + largest))
            for name, amount in zip(LIMITS, amounts, strict=True):
                found[name].see(r.name, r.at, amount)
    return Kkt(
        **{name: w.value for name, w in found.items()},
        gradient=_against_difference(f, cost, run, lin, lx, lu),
        where={name: w.place for name, w in found.items()},
    )


def _slopes(
    lin: Linearization, gx: np.ndarray, gu: np.ndarray, sx: np.ndarray, su: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return derivatives of the Lagrangian, scales of these derivatives, and costates.
    The derivatives are with respect to states and inputs. The scale of a derivative is the sum of the
    absolute values of its terms.

    Derivatives are by x_1 .. x_N and by u_0 .. u_N-1; magnitudes are sums over the terms of a derivative.
    Costates from their recursion make the derivatives by x zero. For an unstable motion the recursion
    amplifies rounding and errors of the multipliers by the growth of the motion over the horizon. Then the
    costates minimize the sum of squares: any costates with small residuals prove the optimum.
    """

    def at(p: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Return derivatives of the Lagrangian, and their scales, for given costates p.
        The derivatives are with respect to states and inputs. The scale of a derivative is the sum of the
        absolute values of its terms.
        """
        moved, turned = np.einsum("kij,ki->kj", lin.A[1:], p[1:]), np.einsum("kij,ki->kj", lin.B, p)
        by_x = gx[1:] - p
        by_x[:-1] += moved
        sizes = sx[1:] + np.abs(p)
        sizes[:-1] += np.einsum("kij,ki->kj", np.abs(lin.A[1:]), np.abs(p[1:]))
        return by_x, gu + turned, sizes, su + np.einsum("kij,ki->kj", np.abs(lin.B), np.abs(p))

    def largest(found: tuple[np.ndarray, ...]) -> float:
        return float(
            max(np.max(np.abs(d) / (1 + s), initial=0.0) for d, s in zip(found[:2], found[2:], strict=True))
        )

    p = gx[1:].copy()
    for k in reversed(range(len(p) - 1)):
        p[k] += lin.A[k + 1].T @ p[k + 1]
    best, chosen = at(p), p
    if not largest(best) > CERTAIN:
        return *best, p
    p = np.zeros_like(p)
    weights = np.ones_like(gx[1:]), np.ones_like(gu)
    for _ in range(REFINED):
        found = at(p)
        if largest(found) < largest(best):
            best, chosen = found, p
        p = p + _least_squares(lin, found[0], found[1], *weights)
        found = at(p)
        weights = 1 / (1 + found[2]), 1 / (1 + found[3])
    if largest(at(p)) < largest(best):
        best, chosen = at(p), p
    return *best, chosen


def _least_squares(
    lin: Linearization, rx: np.ndarray, ru: np.ndarray, wx: np.ndarray, wu: np.ndarray
) -> np.ndarray:
    """Return the change of the costates that minimizes the weighted squared residuals.
    The residuals are the Lagrangian's derivatives with respect to states and inputs.

    It is dp (N, ndx), and the objective is |wx (rx_k + A_k' dp_k+1 - dp_k)|^2 + |wu (ru + B' dp)|^2. Its
    normal equations are block-tridiagonal.
    """
    n, wx, wu = len(rx), wx**2, wu**2
    D = np.einsum("kij,kj,klj->kil", lin.B, wu, lin.B)
    D[1:] += np.einsum("kij,kj,klj->kil", lin.A[1:], wx[:-1], lin.A[1:])
    g = wx * rx - np.einsum("kij,kj->ki", lin.B, wu * ru)
    g[1:] -= np.einsum("kij,kj->ki", lin.A[1:], (wx * rx)[:-1])
    D[:, range(D.shape[1]), range(D.shape[1])] += wx
    for k in range(1, n):  # forward: coupling of p_k and p_k+1 is -W_k A_k'
        C = np.linalg.solve(D[k - 1], wx[k - 1][:, None] * lin.A[k].T)
        D[k] -= (lin.A[k] * wx[k - 1]) @ C
        g[k] += C.T @ g[k - 1]
    p = np.zeros_like(g)
    for k in reversed(range(n)):
        after = wx[k] * (lin.A[k + 1].T @ p[k + 1]) if k + 1 < n else 0.0
        p[k] = np.linalg.solve(D[k], g[k] + after)
    return p


class _Worst:
    """Largest of several residuals, with the name of its quantity and its sample.
    The value is nan if a residual is nan.
    """

    def __init__(self) -> None:
        self.value, self.place = 0.0, ""

    def see(self, name: str, at: np.ndarray, amounts: np.ndarray) -> None:
        if not len(amounts) or np.isnan(self.value):
            return
        i = int(np.argmax(np.where(np.isnan(amounts), np.inf, amounts)))
        if not amounts[i] <= self.value:
            self.value, self.place = float(amounts[i]), f"{name} at k = {at[i]}"


def _against_difference(
    f: OneStepMap, cost: Cost, run: Trajectory, lin: Linearization, lx: np.ndarray, lu: np.ndarray
) -> float:
    """Return the relative error of the cost's gradient along a random direction.
    The reference is a central difference of the cost.
    """
    rng = np.random.default_rng(0)
    dx, du = rng.standard_normal(lx.shape), rng.standard_normal(lu.shape)
    impulses = np.einsum("kij,kj->ki", lin.C, dx[:-1]) + np.einsum("kij,kj->ki", lin.D, du)
    size = MOVE * (1 + np.abs(run.x).max())
    values = []
    for e in (size, -size):
        moved = run.multipliers + e * impulses, f.retract(run.x, e * dx), run.u + e * du
        values.append(cost.value(replace(run, multipliers=moved[0], x=moved[1], u=moved[2])))
    exact = float((lx * dx).sum() + (lu * du).sum())
    return abs((values[0] - values[1]) / (2 * size) - exact) / (1 + float(np.abs(lx * dx).sum()))


# -- limits by name -------------------------------------------------------------------------------------


class Limited(NamedTuple):
    """Expressions with lower and upper limits at given samples.
    The fields are the names and the expression, the samples `at`, the limits, and symbols and values of
    time-varying data.
    """

    names: tuple[str, ...]
    expression: ca.SX
    at: np.ndarray
    low: np.ndarray
    high: np.ndarray
    symbols: ca.SX
    data: np.ndarray


def _limited(
    f: OneStepMap,
    n: int,
    bounds: Mapping[str, Any] | None,
    constraints: Sequence[PathConstraint],
    final: Any,
) -> list[Limited]:
    none = ca.SX(0, 1), np.empty((n + 1, 0))
    found = []
    if final is not None and not isinstance(final, Mapping):
        final = dict(zip(f.state_names, final, strict=True))
    for name, value in (bounds or {}).items():
        expression = f.quantity(name)
        at = _samples(f, expression, n)
        low, high = _pair(value, len(at), symmetric=True)
        found.append(Limited((name,), expression, at, low, high, *none))
    for c in constraints:
        at = np.array([n]) if c.where == "end" else _samples(f, c.expression, n)
        low, high = _pair((c.lower, c.upper), len(at))
        m = c.expression.numel()
        names = (c.name,) if m == 1 else tuple(f"{c.name}[{i}]" for i in range(m))
        found.append(Limited(names, c.expression, at, low, high, c.symbols(), c.data(n)))
    for name, value in (final or {}).items():
        low, high = _pair(value, 1)
        found.append(Limited((f"final {name}",), f.quantity(name), np.array([n]), low, high, *none))
    return found


def _samples(f: OneStepMap, expression: ca.SX, n: int) -> np.ndarray:
    """Return the indices of the states or steps at which an expression is defined.

    An expression belongs to steps if it uses inputs or impulses.
    """
    s = f.symbols
    steps = ca.depends_on(expression, ca.vertcat(s.u, s.multipliers, s.dt))
    return np.arange(n) if steps else np.arange(n + 1)


def _pair(value: Any, count: int, symmetric: bool = False) -> tuple[np.ndarray, np.ndarray]:
    if isinstance(value, (tuple, list)) and len(value) == 2:
        low, high = value
    else:
        low, high = (-np.asarray(value, float) if symmetric else value), value
    low, high = -np.inf if low is None else low, np.inf if high is None else high
    sides = (np.broadcast_to(np.asarray(side, float), (count,)).copy() for side in (low, high))
    return next(sides), next(sides)


def _rows(
    f: OneStepMap,
    run: Trajectory,
    lin: Linearization,
    c: Limited,
    given: dict[str, Any],
    held: Constants,
    free: np.ndarray,
) -> list[Row]:
    """Return values, multipliers and derivatives of limited quantities along `run`.
    The dict `given` has the multipliers by name, and `held` has the free duration and parameters. The mask
    `free` is True for the free components of the first state.

    Derivatives are by the error of the state, the input and the constants; impulses count as functions of
    them.
    """
    n, (x, u, lam, theta, dt), e = len(run), f.symbols, ca.SX.sym("e", f.ndx)
    moved = c.expression
    if f.ndx == f.nx:
        J = ca.jacobian(moved, ca.vertcat(x, u, lam))
    else:
        moved = ca.substitute(c.expression, x, f.space.retract_expression(x, e))
        J = ca.substitute(ca.jacobian(moved, ca.vertcat(e, u, lam)), e, ca.SX.zeros(f.ndx))
    others = ca.densify(ca.jacobian(c.expression, ca.vertcat(dt, theta)))
    function = ca.Function("c", [x, u, lam, theta, dt, c.symbols], [c.expression, ca.densify(J), others])
    m, values, slopes, none = len(c.names), [], [], np.zeros(len(held.names))
    for k in c.at:
        step = min(int(k), n - 1)
        h = run.step_lengths[step]
        at = (run.u[k], run.multipliers[k]) if k < n else (np.zeros(f.nu), np.zeros(lam.numel()))
        value, J, S = function(run.x[k], *at, run.map.theta, h, c.data[k])
        J, S = np.asarray(J).reshape(m, -1), np.asarray(S).reshape(m, -1)
        by_x, by_u, by_lam = np.split(J, [f.ndx, f.ndx + f.nu], axis=1)
        if k < n:
            by_x, by_u = by_x + by_lam @ lin.C[step], by_u + by_lam @ lin.D[step]
        by_s = S[:, :1] * (held.h[step] if k < n else none) + S[:, 1:] @ held.theta
        by_s = by_s + by_lam @ held.multipliers[step] if k < n else by_s
        values.append(np.asarray(value).ravel())
        slopes.append((by_x, by_u, by_s))
    value = np.array(values).reshape(len(c.at), m)
    rows = []
    moves = free.any() or bool(held.names)
    counts = (c.at > 0) | (len(c.at) == n) | moves  # a given first state cannot change
    for i, name in enumerate(c.names):
        nu = np.broadcast_to(np.asarray(given.get(name, 0.0), float), (len(c.at),))
        rows.append(
            Row(
                name,
                c.at[counts],
                value[counts, i],
                c.low[counts],
                c.high[counts],
                nu[counts],
                np.array([s[0][i] for s in slopes])[counts],
                np.array([s[1][i] for s in slopes])[counts],
                np.array([s[2][i] for s in slopes])[counts],
            )
        )
    return rows


# -- free initial states, durations and parameters ------------------------------------------------------


def _open(f: OneStepMap, initial: Any) -> np.ndarray:
    """Return a mask (ndx,) of the components of the first state that are free."""
    if not isinstance(initial, Mapping):
        return np.zeros(f.ndx, bool)
    if f.ndx != f.nx:
        return np.ones(f.ndx, bool)
    return np.array([n not in initial or not np.isscalar(initial[n]) for n in f.state_names])


def _at_start(
    f: OneStepMap,
    n: int,
    initial: Mapping[str, Any],
    free: np.ndarray,
    given: dict[str, Any],
    periodic: Mapping[str, float],
) -> list[Limited]:
    """Return the conditions on the free components of the first state.

    Conditions from a mechanism's constraints are included if they have multipliers.
    """
    none, found = (ca.SX(0, 1), np.empty((n + 1, 0))), []
    for name, value in initial.items():
        if f.ndx == f.nx and name in f.state_names and not free[f.state_names.index(name)]:
            continue
        low, high = _pair(value, 1)
        key = f"initial {name}"
        found.append(Limited((key,), f.quantity(name), np.zeros(1, int), low, high, *none))
    zero = np.zeros(1)
    for name in f.multiplier_names:
        key = f"initial h.{name}"
        if key in given:
            found.append(Limited((key,), f.quantity(f"h.{name}"), np.zeros(1, int), zero, zero, *none))
        key = f"initial momentum across {name}"
        if key in given:
            h, x, s = f.quantity(f"h.{name}"), f.symbols.x, f.state_names
            pairs = [(s.index(q), s.index(f"p.{q}")) for q in s if f"p.{q}" in s]
            slope = ca.jacobian(h, x)
            across = sum((slope[i] * x[j] for i, j in pairs), ca.SX(0))
            found.append(Limited((key,), across, np.zeros(1, int), zero, zero, *none))
    return found


def _constants(
    f: OneStepMap, steps: Any, run: Trajectory, duration: Any, parameters: Mapping[str, Any]
) -> Constants:
    names = tuple(f"param.{n}" for n in parameters)
    at = [list(f.parameters).index(n) for n in parameters]
    timed = isinstance(duration, (tuple, list)) and duration[0] != duration[1]
    lin = (f.derivatives.timed if timed else f.derivatives).first(steps)
    x, multipliers = lin.P[:, :, at], lin.E[:, :, at]
    h, theta = np.zeros((len(run), len(at))), np.eye(len(f.parameters))[:, at]
    if timed:
        T = run.t[-1] - run.t[0]
        ratio = np.stack([steps.h / T, steps.t / T], axis=1)[:, :, None]
        x, multipliers = (
            np.concatenate([whole[:, :, -2:] @ ratio, m], axis=2)
            for whole, m in ((lin.P, x), (lin.E, multipliers))
        )
        h = np.concatenate([steps.h[:, None] / T, h], axis=1)
        names, theta = ("duration", *names), np.hstack([np.zeros((len(theta), 1)), theta])
    return Constants(names, x, multipliers, h, theta)


def _of_constants(
    f: OneStepMap,
    run: Trajectory,
    duration: Any,
    parameters: Mapping[str, Any],
    given: dict[str, Any],
    held: Constants,
) -> list[Row]:
    """Return the free duration and parameters as quantities with limits.
    Their multipliers are taken from `given`.
    """
    limits = {"duration": duration, **{f"param.{n}": pair for n, pair in parameters.items()}}
    found = []
    for i, name in enumerate(held.names):
        value = run.t[-1] - run.t[0] if name == "duration" else run.map.parameters[name[len("param.") :]]
        low, high = _pair(limits[name], 1)
        nu = np.atleast_1d(np.asarray(given.get(name, 0.0), float))
        none = np.zeros((1, f.ndx)), np.zeros((1, f.nu))
        one = np.eye(len(held.names))[i : i + 1]
        found.append(Row(name, np.array([len(run)]), np.array([float(value)]), low, high, nu, *none, one))
    return found


def _closing(
    f: OneStepMap, run: Trajectory, periodic: Mapping[str, float], given: dict[str, Any], held: Constants
) -> list[Row]:
    """Return the conditions x_N - x_0 = shift on the periodic states.

    Each state has two rows: the row at the end has the value, the row at the start has only the derivative by
    x_0.
    """
    found = []
    for name, shift in periodic.items():
        j = f.state_names.index(name)
        nu = np.atleast_1d(np.asarray(given.get(f"periodic.{name}", 0.0), float))
        by, none = np.eye(f.nx)[j : j + 1], (np.zeros((1, f.nu)), np.zeros((1, len(held.names))))
        apart, equal, free = run.x[-1:, j] - run.x[:1, j], np.array([float(shift)]), np.array([0.0])
        end, start = np.array([len(run)]), np.zeros(1, int)
        found.append(Row(f"periodic.{name}", end, apart, equal, equal, nu, by, *none))
        found.append(Row(f"periodic.{name}", start, free, free, free, -nu, by, *none))
    return found


def _by_constants(
    f: OneStepMap, cost: Cost, run: Trajectory, rows: list[Row], p: np.ndarray, held: Constants
) -> tuple[np.ndarray, np.ndarray]:
    """Return the Lagrangian's derivatives with respect to duration and parameters.
    The sum of the magnitudes of the terms of each derivative is returned, too.
    """
    n, s, ns = len(run), f.symbols, len(held.names)
    if not ns:
        return np.zeros(0), np.zeros(0)
    reference = ca.SX.sym("reference", cost.reference_size)
    args = [*s, reference]
    by = ca.vertcat(s.multipliers, s.dt, s.parameters)
    weight = s.dt if cost.per_time else ca.SX(1)
    slopes = [ca.jacobian(e, by) for e in (weight * cost.running_at(*args), cost.terminal_at(*args))]
    function = ca.Function("g_s", args, [ca.densify(e) for e in slopes])
    data, nm, parts = cost.reference_rows(n), s.multipliers.numel(), []
    for k, h in enumerate(run.step_lengths):
        S = np.asarray(function(run.x[k], run.u[k], run.multipliers[k], run.map.theta, h, data[k])[0]).ravel()
        parts.append(S[:nm] @ held.multipliers[k] + S[nm] * held.h[k] + S[nm + 1 :] @ held.theta)
    S = np.asarray(function(run.x[n], np.zeros(f.nu), np.zeros(nm), run.map.theta, 0, data[n])[1]).ravel()
    parts.append(S[nm + 1 :] @ held.theta)
    parts += [*np.einsum("kis,ki->ks", held.x, p)]
    parts += [part for r in rows for part in r.nu[:, None] * r.by_s]
    each = np.array(parts).reshape(-1, ns)
    return each.sum(axis=0), np.abs(each).sum(axis=0)
