"""Equations of one step of a map, as constraints of a nonlinear program."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import casadi as ca
import numpy as np

from vioc.maps.protocol import OneStepMap


class StepRows:
    """CasADi function of the equations of one step of a map, with their names.

    The equations are r(x, u, x_next, w, t, dt, parameters) = 0, with further unknowns w of the step. For a
    map with contact, r are its `relaxed` equations, which depend on a smoothing. For other maps r is the
    map's `residual`, and w are its multipliers. A map without a residual has r = x_next - f(x, u).

    Attributes
    ----------
    function : casadi.Function
        (x, u, x_next, w, t, dt, parameters) -> (nx + nw,); for a map with contact (smoothing, give) follow.
    names : tuple of str
        Names of the equations: ``dynamics.STATE``, ``h.CONSTRAINT``, or those of `relaxed`.
    unknowns : tuple of str
        Names of w: ``lambda.CONSTRAINT``, or those of `relaxed`.
    lower, upper : (nw,)
        Bounds of w.
    multipliers : casadi.Function
        (w, dt, parameters) -> the map's multipliers (nm,), 0 if they are not unknowns.
    relaxed : RelaxedStep or None
    uses_time : bool
        True if the equations depend on t.
    implicit : bool
        True if a step's own equations are used, with its multipliers as unknowns.
    eliminated : tuple of int
        Indices e of components of the next state that one equation each gives explicitly: x_next[e] = g(...),
        where g contains no component e of x or x_next. In a mechanism these are the momenta, which the
        discrete Legendre transform gives.
    solved_rows : tuple of int
        Indices of these equations.
    """

    def __init__(self, f: OneStepMap):
        residual = f.residual
        self._states = f.state_names
        self.relaxed = f.mechanism.relaxed()
        self.implicit = residual is not None or self.relaxed is not None
        nm = len(f.multiplier_names)
        if self.relaxed is not None:
            self.function, self.unknowns = self.relaxed.function, self.relaxed.unknowns
            self.lower, self.upper = self.relaxed.lower, self.relaxed.upper
            self.multipliers = self.relaxed.multipliers
        else:
            self.function = residual if residual is not None else _explicit(f)
            self.unknowns = tuple(f"lambda.{n}" for n in f.multiplier_names) if self.implicit else ()
            self.lower, self.upper = (np.full(len(self.unknowns), s) for s in (-np.inf, np.inf))
            w = ca.SX.sym("w", len(self.unknowns))
            theta = ca.SX.sym("theta", len(f.parameters))
            multipliers = w if self.implicit else ca.SX.zeros(nm)
            self.multipliers = ca.Function("multipliers", [w, ca.SX.sym("dt"), theta], [multipliers])
        rows = self.function.numel_out(0)
        if rows != f.nx + len(self.unknowns):
            raise ValueError(
                f"{type(f).__name__}: its residual has {rows} rows, expected nx + multipliers = "
                f"{f.nx} + {len(self.unknowns)}"
            )
        slopes = unit_slopes(self.function, 2) == 1.0
        self.names = self.relaxed.rows if self.relaxed is not None else _row_names(self.function, f, slopes)
        self.uses_time = self.function.jac_sparsity(0, 4).nnz() > 0
        self.eliminated, self.solved_rows = _solved(self.function, slopes)

    @cached_property
    def measures(self) -> dict[str, str]:
        """Dict from the name of a step equation to that of a state with the same unit."""
        return measured(self.function, self.names, self._states, 0, 2)

    def residual(self, *args: Any) -> Any:
        """Return the residuals of the equations of a step.
        The arguments are (x, u, x_next, w, t, dt, parameters, contacts). w are constraint multipliers and
        variables of contacts; `contacts` holds the smoothing of contacts and the offset (give) that is added
        to their gaps.
        """
        more = ca.vertsplit(args[-1]) if self.relaxed is not None else ()
        return self.function(*args[:-1], *more)

    def given_next(self, *args: Any) -> Any:
        """Compute components of the next state that step equations give explicitly.
        The attribute `eliminated` has the indices of these components. The arguments are (x, u, x_next, w, t,
        dt, parameters, contacts), with zeros for these components of x_next. w are constraint multipliers and
        variables of contacts; `contacts` holds the smoothing of contacts and the offset (give) that is added
        to their gaps.
        """
        return -self.residual(*args)[list(self.solved_rows)]


def _explicit(f: OneStepMap) -> ca.Function:
    """Return the equations x_next - f(x, u) of a map with an explicit step."""
    step = f.explicit
    if step is None:
        raise ValueError(
            f"{type(f).__name__}: DMOC needs the equations of a step as a CasADi function, `residual` or "
            '`explicit`, got neither; use method="shooting", or in a map of your own define the property '
            "`residual`, (x, u, x_next, multipliers, t, dt, parameters) -> rows, zero on a step"
        )
    with contextlib.suppress(RuntimeError):  # a function that solves an equation does not expand
        step = step.expand()
    kind = ca.SX if step.is_a("SXFunction") else ca.MX
    sizes = (f.nx, f.nu, f.nx, 0, 1, 1, len(f.parameters))
    args = [kind.sym(f"a{i}", n) for i, n in enumerate(sizes)]
    x, u, x_next, _, t, dt, theta = args
    return ca.Function("defect", args, [x_next - step(x, u, t, dt, theta)[0]])


def _solved(function: ca.Function, slopes: np.ndarray) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Find the step equations that have the form x_next[j] = g(...).
    Return the indices j of these components of the next state x_next, and the indices of the equations. Row r
    of the mask `slopes` is True where equation r contains a component of x_next with the factor 1.

    See `StepRows`.
    """
    if not function.is_a("SXFunction"):
        return (), ()
    row_of = {int(j): int(np.argmax(slopes[:, j])) for j in np.flatnonzero(slopes.sum(axis=0) == 1)}
    row_of = {j: r for j, r in row_of.items() if slopes[r].sum() == 1}
    now, after = _pattern(function, 0), _pattern(function, 2)
    others = set()
    for j, r in row_of.items():
        others |= {*np.flatnonzero(now[r]), *np.flatnonzero(after[r])} - {j}
        others |= {j} & {*np.flatnonzero(now[r])}
    entries = tuple(j for j in row_of if j not in others)
    rows = tuple(row_of[j] for j in entries)
    args = function.sx_in()
    slope = ca.jacobian(function(*args)[list(rows)], args[2][list(entries)])
    exact = slope.is_constant() and (ca.DM(slope).full() == np.eye(len(rows))).all()
    return (entries, rows) if entries and exact else ((), ())


def _row_names(function: ca.Function, f: OneStepMap, slopes: np.ndarray) -> tuple[str, ...]:
    """Return names of the step equations.
    They are ``h.CONSTRAINT`` for equations of a constraint, and ``dynamics.STATE`` for all other equations.

    An equation that contains the next state x_next[j] with factor 1 is named after state j. The remaining
    ones (balances of momenta) get the remaining states, in order.
    """
    rows, nm = function.numel_out(0), function.numel_out(0) - f.nx
    depends = [_pattern(function, i) for i in range(5)]
    moving = np.array([n.startswith(("p.", "v.")) for n in f.state_names])

    def only(r: int, *allowed: np.ndarray) -> bool:
        """Return True if equation r depends on x_next and only on allowed components.
        The two masks `allowed` select these components of x and x_next. An equation that depends on inputs,
        multipliers or time gives False.
        """
        here, after = (depends[i][r] & ~mask for i, mask in zip((0, 2), allowed, strict=True))
        rest = any(depends[i][r].any() for i in (1, 3, 4))
        return depends[2][r].any() and not (here.any() or after.any() or rest)

    constraint_rows = [r for r in range(rows) if only(r, np.zeros(f.nx, bool), np.ones(f.nx, bool))]
    if len(constraint_rows) != nm:  # some constraints involve two configurations: a contact that sticks
        constraint_rows = [r for r in range(rows) if only(r, ~moving, ~moving)]
    names: list[str | None] = [None] * rows
    if len(constraint_rows) == nm:
        for r, name in zip(constraint_rows, f.multiplier_names, strict=False):
            names[r] = f"h.{name}"
    taken: set[int] = set()
    for j in reversed(range(f.nx)):
        for r in range(rows):
            if names[r] is None and slopes[r, j] and j not in taken:
                names[r] = f"dynamics.{f.state_names[j]}"
                taken.add(j)
    spare = iter([n for j, n in enumerate(f.state_names) if j not in taken])
    return tuple(n if n is not None else f"dynamics.{next(spare, f'row {r}')}" for r, n in enumerate(names))


def _pattern(function: ca.Function, i: int) -> np.ndarray:
    """Return the structural nonzeros of a Jacobian as a mask.
    It is the Jacobian of the first output of `function` with respect to its input i.
    """
    if not function.numel_in(i):
        return np.zeros((function.numel_out(0), 0), bool)
    return np.array(ca.DM(function.jac_sparsity(0, i), 1).full(), bool)


def unit_slopes(function: ca.Function, i: int) -> np.ndarray:
    """Return a Jacobian in which only constant entries 1 and -1 are kept.
    All other entries are replaced by 0. It is the Jacobian of the first output of `function` with respect to
    its input i.

    Constancy is checked at two random points.
    """
    random = np.random.default_rng(0)
    args = function.mx_in()
    J = ca.Function("J", args, [ca.jacobian(function(*args), args[i])])
    points = [J(*(random.uniform(0.3, 0.9, a.numel()) for a in args)).full() for _ in range(2)]
    same = (points[0] == points[1]) & (np.abs(points[0]) == 1.0)
    return np.where(same, points[0], 0.0)


def measured(
    function: ca.Function, names: Sequence[str], states: Sequence[str], *inputs: int
) -> dict[str, str]:
    """Return a dict from names of step equations to states with the same unit.
    Such a state occurs in the equation with the factor 1 or -1. Equations without such a state are left out.

    `names` are the names of the equations, and `inputs` are the indices of the function's inputs that are
    states.
    """
    mask = np.any([unit_slopes(function, i) for i in inputs], axis=0)
    return {name: states[int(np.argmax(row))] for name, row in zip(names, mask, strict=True) if row.any()}
