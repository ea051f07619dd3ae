"""Limits by name and constraints as expressions, as every optimizer and controller reads them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import casadi as ca
import numpy as np

from vioc.checks import as_bounds, as_floats, as_names, check_array, few, limits, real
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
    """lower <= expression <= upper along a phase, or at one of its ends.

    Parameters
    ----------
    name : str
        What reports and multipliers call it.
    expression : casadi.SX
        In ``f.symbols`` (and `references`), a scalar or a column; of states alone at an end. What depends
        on inputs, multipliers or the step length belongs to a step (N samples), else to a state (N+1).
    lower, upper : float or array over the samples
        Equal for an equation.
    where : {"path", "start", "end"}
    references : sequence of (symbol, values)
        Time-varying data, as in `Cost`: an SX column of s symbols with values (N+1, s).
    ball : (centre, radius, axes), optional
        What `obstacle` keeps out, for pictures.

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
        """The reference symbols as one column."""
        return ca.vertcat(ca.SX(0, 1), *(ca.vec(ca.SX(s)) for s, _ in self.references))

    def check(self, f: OneStepMap) -> None:
        """ValueError where the expression is not of the map's symbols."""
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
        """Whether it belongs to a step rather than a state."""
        s = f.symbols
        return bool(ca.depends_on(self.expression, ca.vertcat(s.u, s.multipliers, s.dt)))

    def samples(self, f: OneStepMap, steps: int) -> int:
        """At how many samples it holds over N steps."""
        return 1 if self.where != "path" else steps + (not self.by_step(f))

    def limits(self, f: OneStepMap, steps: int) -> tuple[np.ndarray, np.ndarray]:
        """Lower and upper limit at each of its samples. ValueError where there is neither."""
        what = f"constraint {self.name}"
        low, high = limits((self.lower, self.upper), self.samples(f, steps), what, number="equal")
        if not (np.isfinite(low) | np.isfinite(high)).any():
            raise ValueError(f"{what}: it has no limit; give lower, upper, or both")
        return low, high

    def data(self, steps: int) -> np.ndarray:
        """Its references side by side (N+1, s)."""
        columns = [np.empty((steps + 1, 0))]
        for symbol, values in self.references:
            size = ca.SX(symbol).numel()
            array = np.asarray(real(values, f"references of constraint {self.name}"), float)
            array = array[:, None] if array.ndim == 1 and size == 1 else array
            columns.append(check_array(array, (steps + 1, size), f"references of constraint {self.name}"))
        return np.concatenate(columns, axis=1)

    def refined(self, steps: int, factor: int) -> PathConstraint:
        """The same over `factor` times as many steps; data over time are interpolated."""
        references = [(symbol, finer(values, steps, factor)) for symbol, values in self.references]
        sides = (finer(side, steps, factor) for side in (self.lower, self.upper))
        return replace(self, **dict(zip(("lower", "upper"), sides, strict=True)), references=references)


def finer(values: Any, steps: int, factor: int) -> Any:
    """Data of N steps, which are repeated, or of their N+1 samples, which are interpolated, over `factor`
    times as many; anything else as it is.
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
    """Bounds by name, each a value or a pair of them, likewise."""

    def each(value: Any) -> Any:
        pair = isinstance(value, (tuple, list))
        return tuple(finer(v, steps, factor) for v in value) if pair else finer(value, steps, factor)

    return None if bounds is None else {name: each(value) for name, value in bounds.items()}


def limit_scale(low: np.ndarray, high: np.ndarray, size: float = 1.0) -> float:
    """Half the mean range over the samples; of a side alone max(size, |its mean|)."""
    both = np.isfinite(low) & np.isfinite(high) & (low != high)
    half = float(np.mean((high - low)[both])) / 2 if both.any() else 0.0
    sizes = np.abs(np.where(np.isfinite(high), high, low))
    return half or max(size, float(np.mean(sizes[np.isfinite(sizes)])))


def bound(f: OneStepMap, name: str, value: Any, steps: int) -> PathConstraint:
    """The constraint that a bound of a quantity is along N steps."""
    c = PathConstraint(name, f.quantity(name))
    low, high = limits(value, c.samples(f, steps), f"bounds on {name}", number="symmetric")
    return replace(c, lower=low, upper=high)


def end_condition(
    f: OneStepMap, name: str, value: Any, where: str, among: Mapping[str, Any]
) -> PathConstraint:
    """The constraint that a value or a range of a quantity is for the first or the last state.

    Of an orientation whose three numbers are all `among` the conditions it is the turn from there: it holds
    at half a turn, too, where rotation vectors jump.
    """
    turned = turn(f, name, among)
    value, expression = (value, f.quantity(name)) if turned is None else (0.0, turned)
    what = f"{'initial' if where == 'start' else 'final'} {name}"
    low, high = limits(value, 1, what, number="equal")
    c = PathConstraint(what, expression, low, high, where)
    c.check(f)
    return c


def end_values(f: OneStepMap, value: Any, what: str) -> dict[str, Any]:
    """A condition on a state by the full names of quantities: a whole state (nx,), a dict, or None.

    Of a whole state as the end, momenta of variables under constraints count by their velocities: what they
    have across constraints moves nothing, and is what the last step's impulses leave.
    """
    if value is None:
        return {}
    if isinstance(value, Mapping):
        return by_quantity(f, value, what)
    state = f.check_state(value, f"{what} state")
    given = dict(zip(f.state_names, state, strict=True))
    loose = across_constraints(f) if what == "final" else []
    if loose:
        symbols = f.symbols.x, f.symbols.parameters
        rates = ca.Function("v", symbols, [ca.vertcat(*(f.quantity(f"v.{n[2:]}") for n in loose))])
        found = np.array(rates(state, f.theta))[:, 0]
        moving = {f"v.{n[2:]}": v for n, v in zip(loose, found.tolist(), strict=True)}
        given = {n: v for n, v in given.items() if n not in loose} | moving
    return given


def duration_limits(value: Any) -> tuple[float, float]:
    """Least and greatest duration, s; equal where it is given."""
    low, high = limits(value, 1, "duration", number="equal")
    if not (low[0] > 0 and np.isfinite(low[0])):
        raise ValueError(f"duration: expected a time > 0, or a pair of limits > 0, got {value!r}")
    return float(low[0]), float(high[0])


def shifts(f: OneStepMap, periodic: Any) -> dict[int, float]:
    """last - first of the states that are periodic, by index: True for all, names, or shifts by name."""
    names = f.state_names
    if periodic is None or periodic is False:
        return {}
    value = names if periodic is True else periodic
    items = value if isinstance(value, Mapping) else dict.fromkeys(as_names(value), 0.0)
    return {names.index(n): float(shift) for n, shift in by_name(items, names, "periodic").items()}


def bound_arrays(
    bounds: Mapping[str, Any] | None, names: Sequence[str], count: int
) -> tuple[np.ndarray, np.ndarray]:
    """Limits (count, n) of n quantities, from bounds by full names; infinite where none is given."""
    low, high = np.full((count, len(names)), -np.inf), np.full((count, len(names)), np.inf)
    for i, name in enumerate(names):
        if bounds and name in bounds:
            what = f"bounds on {name}"
            low[:, i], high[:, i] = limits(bounds[name], count, what, number="symmetric")
    return low, high


def check_distinct(constraints: Sequence[PathConstraint]) -> None:
    """ValueError where two have one name."""
    names = [c.name for c in constraints]
    doubled = next((n for n in names if names.count(n) > 1), None)
    if doubled is not None:
        raise ValueError(f"constraints: two have the name {doubled!r}")


def obstacle(
    f: OneStepMap, frame: str, centre: Any, radius: float, *, axes: str = "xyz", name: str | None = None
) -> PathConstraint:
    """A frame's origin stays outside of a ball, or of a cylinder along the axes that are left out.

    Parameters
    ----------
    f : OneStepMap
        Of a mechanism: it knows ``FRAME:x``.
    frame : str
    centre : (d,) or (N+1, d)
        m, along `axes`; rows over time for an obstacle that moves.
    radius : float
        m.
    axes : str
        ``"xz"`` for a planar mechanism.

    Returns
    -------
    Constraint
        |p - c|^2 >= radius^2, smooth at c too.
    """
    where = ca.vertcat(*(f.quantity(f"{frame}:{axis}") for axis in axes))
    centre = np.asarray(centre, float)
    if centre.shape[-1:] != (len(axes),) or centre.ndim > 2 or not np.isfinite(centre).all():
        fewer = '; of a cylinder or disc axes= are those across it, axes="xz"' * (centre.shape[-1:] == (2,))
        got = f"got {centre.tolist()}{fewer}"
        raise ValueError(f"obstacle: expected a centre of {len(axes)} numbers along {axes}, {got}")
    if not radius > 0:
        raise ValueError(f"obstacle: expected a radius > 0, got {radius!r}")
    label, ball = name or f"clearance.{frame}", (centre, float(radius), axes)
    if centre.ndim == 1:
        return PathConstraint(label, ca.sumsqr(where - ca.DM(centre)), lower=radius**2, ball=ball)
    c = ca.SX.sym("centre", len(axes))
    return PathConstraint(label, ca.sumsqr(where - c), lower=radius**2, references=((c, centre),), ball=ball)


def obstacles_among(constraints: Sequence[PathConstraint]) -> dict[str, Ball]:
    """What `obstacle` made, by name."""
    return {c.name: c.ball for c in constraints if c.ball is not None}


def as_constraints(value: Any) -> tuple[PathConstraint, ...]:
    """One constraint, several or None as a tuple; TypeError says what to write instead."""
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
    """Bounds with the full names of quantities.

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
    """Lower and upper bounds (n,) of the quantities `known` at all samples; infinite where none is given.

    Parameters
    ----------
    f : OneStepMap
    bounds : dict of str to (lower, upper), or None
        As in `vioc.control.optimize`, of numbers.
    known : n full names
        What can be bounded here.
    kinds : str
        What messages call these: ``"inputs"``.

    Raises
    ------
    ModelError
        Unknown names, and quantities that are none of `known`.
    ValueError
        What is no number, or a lower bound above the upper one.
    """
    quantities = set(f.quantities.names()).difference(known)
    if other := next((name for name in as_bounds(bounds) if name in quantities), None):
        input = INPUTS + other
        advice = f"; the input is {input!r}" if input in known else f": {few(known)}"
        raise ModelError(f"bounds: expected names of {kinds}, got {other!r}{advice}")
    given = by_name(as_bounds(bounds), known, "bounds")
    low, high = bound_arrays(given, known, 1)
    return low[0], high[0]


def input_bounds(f: OneStepMap, bounds: Mapping[str, Any] | None) -> tuple[np.ndarray, np.ndarray]:
    """`constant_bounds` (nu,) of a map's inputs."""
    return constant_bounds(f, bounds, [INPUTS + name for name in f.input_names], "inputs")


def input_rates(f: OneStepMap, rate: Any) -> np.ndarray:
    """Largest changes of inputs in a second (nu,), infinite where none is given.

    `rate` is a number for all, (nu,), a dict by name, or None. ValueError where it is not > 0.
    """
    value = in_order(rate, f.input_names, "rate", np.inf, prefix=INPUTS)
    found = np.asarray(np.inf if value is None else as_floats(value, "rate"))
    if found.shape not in ((), (f.nu,)) or not (found > 0).all():
        raise ValueError(f"rate: expected changes > 0 per second, one or {f.nu}, got {rate!r}")
    return np.array(np.broadcast_to(found, (f.nu,)))


def penalty(name: str, weight: Any) -> tuple[float, float]:
    """Linear and square weight of what is beyond a soft limit, from both or one number for them."""
    pair = np.ravel(as_floats(weight, f"soft: {name}"))
    linear, square = (pair[0], pair[0]) if len(pair) == 1 else pair if len(pair) == 2 else (-1.0, -1.0)
    if not (linear >= 0 and square > 0):
        raise ValueError(f"soft: {name}: expected weights linear >= 0 and square > 0, got {weight!r}")
    return float(linear), float(square)


class Violation(NamedTuple):
    """A row or an unknown outside of its limits.

    Attributes
    ----------
    name : str
    phase, k : int
        Which phase, and sample of it.
    t : float
        s.
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
