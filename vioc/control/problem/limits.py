"""Limits of named quantities and of expressions, for optimizers and controllers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import casadi as ca
import numpy as np

from vioc.checks import as_bounds, as_floats, as_names, as_positive, as_value, check_array, few, limits
from vioc.control.linear.tangent import foreign_symbols
from vioc.control.problem.consistent import across_constraints
from vioc.control.problem.pose import turn
from vioc.errors import ModelError
from vioc.maps.protocol import OneStepMap
from vioc.names import INPUTS, by_name, by_quantity, in_order

WHERE = ("path", "start", "end")


Ball = tuple[np.ndarray, float, str]  # centre (d,) or (N+1, d), m, radius, m, and the d axes


@dataclass(frozen=True)
class PathConstraint:
    """Constraint lower <= expression <= upper along a motion, or at one of its ends.

    Parameters
    ----------
    name : str
        Name in reports and of multipliers.
    expression : casadi.SX
        Scalar or column in ``f.symbols`` and the symbols of `references`. At an end of the motion it may
        contain states only. It has values at N samples (steps) if it contains inputs, multipliers or the step
        length, else at N+1 samples (states).
    lower, upper : float or array over the samples
        Limits; equal ones make an equation.
    where : {"path", "start", "end"}
    references : sequence of (symbol, values)
        Time-varying data, as in `Cost`: an SX column of s symbols with values (N+1, s).
    ball : (centre, radius, axes), optional
        Ball of an `obstacle`, for pictures.

    Examples
    --------
    >>> PathConstraint("below", f.quantity("tip:z"), upper=0.5)
    """

    name: str
    expression: ca.SX
    lower: Any = -np.inf
    upper: Any = np.inf
    where: str = "path"
    references: Sequence[tuple[ca.SX, Any]] = ()
    ball: Ball | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.where not in WHERE:
            raise ValueError(
                f"constraint {self.name}: where is one of {', '.join(WHERE)}, got {self.where!r}"
            )
        object.__setattr__(self, "expression", ca.densify(ca.vec(ca.SX(self.expression))))

    @property
    def row_names(self) -> tuple[str, ...]:
        m = self.expression.numel()
        return (self.name,) if m == 1 else tuple(f"{self.name}[{i}]" for i in range(m))

    def symbols(self) -> ca.SX:
        """Return the constraint's reference symbols (time-varying data) as one column."""
        return ca.vertcat(ca.SX(0, 1), *(ca.vec(ca.SX(s)) for s, _ in self.references))

    def check(self, f: OneStepMap) -> None:
        """Raise ValueError if the expression has symbols that are not the map's."""
        if free := foreign_symbols(self.expression, ca.vertcat(*f.symbols, self.symbols())):
            raise ValueError(
                f"constraint {self.name}: {free[0]!r} is neither a symbol of this map nor a reference"
            )
        if self.where != "path" and self.by_step(f):
            raise ValueError(
                f"constraint {self.name}: at the {self.where} it may depend on the state only, it depends on "
                "an input, a multiplier or the step length; give a path constraint limits over time"
            )

    def by_step(self, f: OneStepMap) -> bool:
        """Return True if the constraint belongs to a step, not to a state.
        The expression then contains an input, a multiplier or the step length.
        """
        s = f.symbols
        return bool(ca.depends_on(self.expression, ca.vertcat(s.u, s.multipliers, s.dt)))

    def samples(self, f: OneStepMap, steps: int) -> int:
        """Return the number of samples of a motion at which the constraint holds.
        `steps` is the number of steps of the motion.
        """
        return 1 if self.where != "path" else steps + (not self.by_step(f))

    def limits(self, f: OneStepMap, steps: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the lower and upper limits at all samples of the constraint.
        Raise ValueError if no limit is finite.
        """
        what = f"constraint {self.name}"
        low, high = limits((self.lower, self.upper), self.samples(f, steps), what, number="equal")
        if not (np.isfinite(low) | np.isfinite(high)).any():
            raise ValueError(f"{what}: it has no limit; give lower, upper, or both")
        return low, high

    def data(self, steps: int) -> np.ndarray:
        """Return the constraint's time-varying data as the columns of an array.
        The array has N+1 rows, one for each sample.
        """
        columns = [np.empty((steps + 1, 0))]
        for symbol, values in self.references:
            size = ca.SX(symbol).numel()
            array = as_floats(values, f"references of constraint {self.name}")
            array = array[:, None] if array.ndim == 1 and size == 1 else array
            columns.append(check_array(array, (steps + 1, size), f"references of constraint {self.name}"))
        return np.concatenate(columns, axis=1)

    def refined(self, steps: int, factor: int) -> PathConstraint:
        """Return this constraint for `factor` times as many steps of the same motion.
        Limits and data over time are resampled.
        """
        references = [(symbol, finer(values, steps, factor)) for symbol, values in self.references]
        sides = (finer(side, steps, factor) for side in (self.lower, self.upper))
        return replace(self, **dict(zip(("lower", "upper"), sides, strict=True)), references=references)


def finer(values: Any, steps: int, factor: int) -> Any:
    """Resample data over time for `factor` times as many steps.
    Values of N steps are repeated, and values at N+1 samples are interpolated linearly. Any other data are
    returned unchanged.
    """
    array = None if values is None else np.asarray(values, float)
    if array is None or array.ndim == 0 or len(array) not in (steps, steps + 1):
        return values
    if len(array) == steps:
        return np.repeat(array, factor, axis=0)
    old, new = np.arange(steps + 1), np.arange(factor * steps + 1) / factor
    flat = array.reshape(len(array), -1)
    return np.stack([np.interp(new, old, c) for c in flat.T], axis=1).reshape(-1, *array.shape[1:])


def finer_bounds(bounds: Mapping[str, Any] | None, steps: int, factor: int) -> dict[str, Any] | None:
    """Resample bounds over time, given by name, for `factor` times as many steps."""

    def each(value: Any) -> Any:
        pair = isinstance(value, (tuple, list))
        return tuple(finer(v, steps, factor) for v in value) if pair else finer(value, steps, factor)

    return None if bounds is None else {name: each(value) for name, value in bounds.items()}


def limit_scale(low: np.ndarray, high: np.ndarray, size: float = 1.0) -> float:
    """Return a scale for a constraint, from its lower and upper limits over time.
    It is half the mean distance between the lower and the upper limit, over all samples where both are finite
    and differ. If there is no such sample, it is the mean magnitude of the limits, but at least `size`.
    """
    both = np.isfinite(low) & np.isfinite(high) & (low != high)
    half = float(np.mean((high - low)[both])) / 2 if both.any() else 0.0
    sizes = np.abs(np.where(np.isfinite(high), high, low))
    return half or max(size, float(np.mean(sizes[np.isfinite(sizes)])))


def bound(f: OneStepMap, name: str, value: Any, steps: int) -> PathConstraint:
    """Convert a bound of a quantity along N steps to a constraint."""
    c = PathConstraint(name, f.quantity(name))
    low, high = limits(value, c.samples(f, steps), f"bounds on {name}", number="symmetric")
    return replace(c, lower=low, upper=high)


def end_condition(
    f: OneStepMap, name: str, value: Any, where: str, among: Mapping[str, Any]
) -> PathConstraint:
    """Convert a value or range of a quantity at the start or end to a constraint.

    If the dict `among` has values of all three components of an orientation, the rotation from the target
    orientation is constrained to 0 instead; it is smooth also at half a turn, where rotation vectors jump.
    """
    turned = turn(f, name, among)
    value, expression = (value, f.quantity(name)) if turned is None else (0.0, turned)
    what = f"{'initial' if where == 'start' else 'final'} {name}"
    low, high = limits(value, 1, what, number="equal")
    c = PathConstraint(what, expression, low, high, where)
    c.check(f)
    return c


def end_values(f: OneStepMap, value: Any, what: str) -> dict[str, Any]:
    """Return the conditions on the first or last state, by full names of quantities.
    The user's `value` is a state, a dict of conditions, or None.

    For a given last state, velocities replace the momenta of constrained variables. The component of a
    momentum along the gradient of a constraint does not affect the motion and depends on the impulses of the
    last step. Only velocities that the constraints leave independent are included: conditions on the others
    would be redundant and make the equations of an optimum singular.
    """
    if value is None:
        return {}
    if isinstance(value, Mapping):
        return by_quantity(f, value, what)
    state = f.check_state(value, f"{what} state")
    given = dict(zip(f.state_names, state, strict=True))
    loose = across_constraints(f, state) if what == "final" else {}
    rates = [f"v.{n[2:]}" for n, independent in loose.items() if independent]
    kept = {n: v for n, v in given.items() if n not in loose}
    if not rates:
        return kept
    velocities = ca.vertcat(*map(f.quantity, rates))
    values = np.array(ca.Function("v", [f.symbols.x, f.symbols.parameters], [velocities])(state, f.theta))
    return kept | dict(zip(rates, values[:, 0].tolist(), strict=True))


def duration_limits(value: Any) -> tuple[float, float]:
    """Return the smallest and the largest duration, s; equal for a fixed duration."""
    low, high = limits(value, 1, "duration", number="equal")
    if not (low[0] > 0 and np.isfinite(low[0])):
        raise ValueError(f"duration: expected a time > 0, or a pair of limits > 0, got {value!r}")
    shortest, longest = float(low[0]), float(high[0])
    # typical forces and accelerations are in proportion to the square of the duration or its inverse
    if shortest == longest and not np.finfo(float).tiny <= shortest * shortest < np.inf:
        raise ValueError(f"duration: expected a time whose square and its inverse are finite, got {value!r}")
    return shortest, longest


def shifts(f: OneStepMap, periodic: Any) -> dict[int, float]:
    """Return the prescribed differences, end minus start, of periodic states.
    The keys are the indices of these states. `periodic` is True for all states, or a list of names, or a dict
    of differences by name.
    """
    names = f.state_names
    if periodic is None or periodic is False:
        return {}
    value = names if periodic is True else periodic
    items = value if isinstance(value, Mapping) else dict.fromkeys(as_names(value, "periodic"), 0.0)
    return {
        names.index(n): as_value(shift, f"periodic: {n}")
        for n, shift in by_name(items, names, "periodic").items()
    }


def bound_arrays(
    bounds: Mapping[str, Any] | None, names: Sequence[str], count: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the limits of several quantities over time as arrays (count, n).
    `bounds` has the limits by full name. Limits are infinite where `bounds` has none.
    """
    low, high = np.full((count, len(names)), -np.inf), np.full((count, len(names)), np.inf)
    for i, name in enumerate(names):
        if bounds and name in bounds:
            what = f"bounds on {name}"
            low[:, i], high[:, i] = limits(bounds[name], count, what, number="symmetric")
    return low, high


def check_distinct(constraints: Sequence[PathConstraint]) -> None:
    """Raise ValueError if two constraints have the same name."""
    names = [c.name for c in constraints]
    doubled = next((n for n in names if names.count(n) > 1), None)
    if doubled is not None:
        raise ValueError(f"constraints: two have the name {doubled!r}")


def obstacle(
    f: OneStepMap, frame: str, centre: Any, radius: float, *, axes: str = "xyz", name: str | None = None
) -> PathConstraint:
    """Return a constraint that keeps a frame's origin outside of a ball.

    With fewer `axes` it is a cylinder along the omitted ones.

    Parameters
    ----------
    f : OneStepMap
        Map of a mechanism, with ``FRAME:x``.
    frame : str
    centre : (d,) or (N+1, d)
        Centre along `axes`, m; rows over time for a moving obstacle.
    radius : float
        Radius, m.
    axes : str
        Axes of the distance: ``"xz"`` for a planar mechanism.

    Returns
    -------
    Constraint
        |p - c|^2 >= radius^2, smooth also at c.
    """
    where = ca.vertcat(*(f.quantity(f"{frame}:{axis}") for axis in axes))
    centre, radius = as_floats(centre, "obstacle: centre"), as_positive(radius, "obstacle: radius")
    if centre.shape[-1:] != (len(axes),) or centre.ndim > 2 or not np.isfinite(centre).all():
        fewer = '; of a cylinder or disc axes= are those across it, axes="xz"' * (centre.shape[-1:] == (2,))
        got = f"got {centre.tolist()}{fewer}"
        raise ValueError(f"obstacle: expected a centre of {len(axes)} numbers along {axes}, {got}")
    label, ball = name or f"clearance.{frame}", (centre, radius, axes)
    if centre.ndim == 1:
        return PathConstraint(label, ca.sumsqr(where - ca.DM(centre)), lower=radius * radius, ball=ball)
    c = ca.SX.sym("centre", len(axes))
    return PathConstraint(
        label, ca.sumsqr(where - c), lower=radius * radius, references=((c, centre),), ball=ball
    )


def obstacles_among(constraints: Sequence[PathConstraint]) -> dict[str, Ball]:
    """Return the balls that obstacle constraints exclude, by name."""
    return {c.name: c.ball for c in constraints if c.ball is not None}


def as_constraints(value: Any) -> tuple[PathConstraint, ...]:
    """Convert one constraint, several constraints or None to a tuple of constraints.
    Raise TypeError for any other value.
    """
    if value is None:
        return ()
    several = not isinstance(value, (PathConstraint, ca.SX, ca.MX, ca.DM, str, Mapping)) and np.iterable(
        value
    )
    items = tuple(value) if several else (value,)
    for i, item in enumerate(items):
        if not isinstance(item, PathConstraint):
            place = f" in entry {i}" if several else ""
            raise TypeError(
                f"constraints: expected a PathConstraint or several of them, got {type(item).__name__} "
                f'{item!s:.60}{place}; write PathConstraint("name", expression, lower=..., upper=...)'
            )
    return items


def full_names(f: OneStepMap, bounds: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return bounds whose names are replaced by the full names of quantities.

    Raises
    ------
    ModelError
        Unknown names, or two that mean the same quantity.
    """
    if bounds is None:
        return None
    return by_quantity(f, as_bounds(bounds), "bounds")


def constant_bounds(
    f: OneStepMap, bounds: Mapping[str, Any] | None, known: Sequence[str], kinds: str
) -> tuple[np.ndarray, np.ndarray]:
    """Return constant lower and upper bounds of given quantities as arrays (n,).
    Bounds that are not given are infinite.

    Parameters
    ----------
    f : OneStepMap
    bounds : dict of str to (lower, upper), or None
        As in `vioc.control.optimize`, with numbers.
    known : n full names
        Quantities that can be bounded here.
    kinds : str
        Their name in messages: ``"inputs"``.

    Raises
    ------
    ModelError
        Unknown names, and quantities that are not in `known`.
    ValueError
        A bound that is not a number, or a lower bound above the upper one.
    """
    quantities = set(f.quantities.names()).difference(known)
    if other := next((name for name in as_bounds(bounds) if name in quantities), None):
        input = INPUTS + other
        advice = f"; the input is {input!r}" if input in known else ""
        raise ModelError(f"bounds: expected names of {kinds} ({few(known)}), got {other!r}{advice}")
    given = by_name(as_bounds(bounds), known, "bounds")
    low, high = bound_arrays(given, known, 1)
    return low[0], high[0]


def input_bounds(f: OneStepMap, bounds: Mapping[str, Any] | None) -> tuple[np.ndarray, np.ndarray]:
    """Return constant lower and upper bounds (nu,) of a map's inputs."""
    return constant_bounds(f, bounds, [INPUTS + name for name in f.input_names], "inputs")


def input_rates(f: OneStepMap, rate: Any) -> np.ndarray:
    """Return the largest changes of inputs per second (nu,), infinite without a limit.

    `rate` is a number for all, (nu,), a dict by name, or None. ValueError if it is not > 0.
    """
    value = in_order(rate, f.input_names, "rate", np.inf, prefix=INPUTS)
    found = np.asarray(np.inf if value is None else as_floats(value, "rate"))
    if found.shape not in ((), (f.nu,)) or not (found > 0).all():
        raise ValueError(f"rate: expected changes > 0 per second, one or {f.nu}, got {rate!r}")
    return np.array(np.broadcast_to(found, (f.nu,)))


def penalty(name: str, weight: Any) -> tuple[float, float]:
    """Return the linear and the quadratic weight of violations of a soft limit.
    `weight` is the pair of both weights, or one number for both.
    """
    pair = np.ravel(as_floats(weight, f"soft: {name}"))
    linear, square = (pair[0], pair[0]) if len(pair) == 1 else pair if len(pair) == 2 else (-1.0, -1.0)
    if not (linear >= 0 and square > 0):
        raise ValueError(f"soft: {name}: expected weights linear >= 0 and square > 0, got {weight!r}")
    return float(linear), float(square)


class Violation(NamedTuple):
    """Constraint or optimization variable that violates its limits at one sample.

    Attributes
    ----------
    name : str
    phase, k : int
        Index of the phase, and sample in it.
    t : float
        Time, s.
    value, lower, upper : float
    """

    name: str
    phase: int
    k: int
    t: float
    value: float
    lower: float
    upper: float

    @property
    def amount(self) -> float:
        return max(self.lower - self.value, self.value - self.upper)

    def __str__(self) -> str:
        wanted = (
            f"expected {self.lower:.6g}"
            if self.lower == self.upper
            else f"limits [{self.lower:.6g}, {self.upper:.6g}]"
        )
        return f"{self.name} at k = {self.k} (t = {self.t:.4g} s): {self.value:.6g}, {wanted}"
