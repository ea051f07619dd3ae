"""Constraints of a problem as lower <= h <= upper, with exact derivatives.

Each constraint is divided by its scale: half the distance between its limits, or a typical magnitude if only
one limit is finite or both are equal. The generated functions evaluate unscaled constraints, so problems with
other limits can use the same functions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import casadi as ca
import numpy as np

from vioc.checks import check_array, limits, near_misses
from vioc.compile.evaluate import Evaluator
from vioc.control.linear.tangent import error_expansion, error_jacobian
from vioc.control.problem.limits import (
    PathConstraint,
    Violation,
    as_constraints,
    bound,
    check_distinct,
    end_condition,
    end_values,
    full_names,
    limit_scale,
)
from vioc.control.problem.sizes import Sizes, as_unit
from vioc.errors import StartOutside
from vioc.maps.derivatives import Linearization
from vioc.maps.protocol import OneStepMap
from vioc.runs.trajectory import Trajectory


def collected(
    f: OneStepMap,
    steps: int,
    bounds: Mapping[str, Any] | None,
    constraints: Sequence[PathConstraint] | PathConstraint | None,
    final: Any,
    free: bool = False,
) -> list[PathConstraint]:
    """Check bounds, constraints and end conditions; return them as one list.

    Raises
    ------
    ValueError
        If there are conditions on a start that is not `free`, or two of one name.
    """
    found = [bound(f, name, value, steps) for name, value in (full_names(f, bounds) or {}).items()]
    bounded = {c.name: c for c in found}
    for c in as_constraints(constraints):
        if c.where == "start" and not free:
            raise ValueError(
                f"constraint {c.name}: the initial state is given, so there is no condition at the start; "
                "initial={...} says what of it is known"
            )
        c.check(f)
        found.append(c)
    ends = end_values(f, final, "final")
    for name in ends.keys() & bounded.keys():
        (a,), (b,) = limits(ends[name], 1, f"final {name}", number="equal")
        low, high = (side[-1] for side in bounded[name].limits(f, steps))
        if a > high or b < low:
            raise ValueError(f"final {name}: [{a:g}, {b:g}] is outside of its bounds [{low:g}, {high:g}]")
    found += [end_condition(f, n, v, "end", ends) for n, v in ends.items()]
    check_distinct(found)
    return found


@dataclass(frozen=True)
class RowPlaces:
    """Positions of one constraint in the vectors of all constraints.
    There is one such vector for each step, and one for the last state.
    """

    constraint: PathConstraint
    limits: tuple[np.ndarray, np.ndarray]
    at_steps: slice | None
    at_end: slice | None
    scale: float
    first: int  # first sample with limits

    @property
    def samples(self) -> slice:
        """Slice of the steps at which the constraint is imposed."""
        return slice(1) if self.constraint.where == "start" else slice(None)


class ConstraintRows:
    """Constraints of an optimal control problem over N steps, stacked in one vector.

    Parameters
    ----------
    f : OneStepMap
    steps : int
        N.
    constraints : list of PathConstraint
    free : (nx,) bool, optional
        Entries of the first state that are free; default none.
    rigid : int
        Number of trailing states that are constants of the motion.

    Attributes
    ----------
    m, m_end : int
        Number of constraints of a step, and of the last state.
    lower, upper : (N m + m_end,)
        Scaled limits: those of all steps in turn, then those of the last state. Missing limits are infinite,
        and so are limits at the start that contain given states only.
    hard : (N m + m_end,) bool
        True for limits of constants of the motion. Constants have no defects, and a search never violates
        their limits.
    """

    def __init__(
        self,
        f: OneStepMap,
        steps: int,
        constraints: list[PathConstraint],
        free: np.ndarray | None = None,
        rigid: int = 0,
    ):
        self.map, self.steps = f, steps
        open_at = np.flatnonzero(np.zeros(f.nx, bool) if free is None else free)
        unknown = ca.vertcat(ca.SX(0, 1), *(f.symbols.x[int(i)] for i in open_at))
        self.places: list[RowPlaces] = []
        self.m = self.m_end = 0
        for c in constraints:
            limits, size, by_step = c.limits(f, steps), c.expression.numel(), c.by_step(f)
            at_steps = at_end = None
            if c.where != "end":
                at_steps, self.m = slice(self.m, self.m + size), self.m + size
            if not by_step and c.where != "start":
                at_end, self.m_end = slice(self.m_end, self.m_end + size), self.m_end + size
            # a constraint on a given state alone cannot change
            first = 0 if by_step or ca.depends_on(c.expression, unknown) else 1
            self.places.append(RowPlaces(c, limits, at_steps, at_end, limit_scale(*limits), first))
        path, end = np.full((2, steps, self.m), np.inf), np.full((2, self.m_end), np.inf)
        for p in self.places:
            for side, sign in ((0, -1), (1, 1)):  # as upper limits of -h and of h
                values = sign * p.limits[side] / p.scale
                if p.at_steps is not None:
                    here = slice(p.first, 1 if p.constraint.where == "start" else steps)
                    path[side, here, p.at_steps] = values[here, None]
                if p.at_end is not None:
                    end[side, p.at_end] = values[-1]
        sides = [np.concatenate([path[i].ravel(), end[i]]) for i in (0, 1)]
        self.lower, self.upper = -sides[0], sides[1]
        self.hard = np.zeros(len(self.lower), bool)
        for p in self.places:
            e = p.constraint.expression
            if p.at_steps is None and rigid and e.is_symbolic() and ca.depends_on(e, f.symbols.x[-rigid:]):
                self.hard[steps * self.m :][p.at_end] = True
        self.hard &= self.lower < self.upper
        data = [p.constraint.data(steps) for p in self.places]
        self._rows = np.concatenate([np.zeros((steps + 1, 0)), *data], axis=1)

    def __len__(self) -> int:
        return len(self.lower)

    def window(self, first: int, steps: int) -> ConstraintRows:
        """Return the constraints in a window of steps, and those on the last state.

        The window has `steps` steps, from step `first` on. Its first state is given, so limits of that state
        alone are omitted.
        """
        _ = self._values, self._first, self._second  # share the compiled functions
        again = object.__new__(type(self))
        size = self.steps * self.m

        def part(whole: np.ndarray, none: Any) -> np.ndarray:
            path = whole[:size].reshape(self.steps, self.m)[first : first + steps].copy()
            for p in self.places:
                if p.at_steps is not None:
                    path[: p.first, p.at_steps] = none
            return np.concatenate([path.ravel(), whole[size:]])

        sides = part(self.lower, -np.inf), part(self.upper, np.inf), part(self.hard, False)
        rows = self._rows[first : first + steps + 1]
        again.__dict__.update(self.__dict__, steps=steps, _rows=rows)
        again.lower, again.upper, again.hard = sides
        return again

    def sized(self, X: np.ndarray, U: np.ndarray, sizes: Sizes) -> ConstraintRows:
        """Return these constraints, with one-sided limits and equations scaled anew.

        Their scales are typical magnitudes of the limited quantities. For a quantity without a known unit,
        the magnitude is that of its change along the curve X, U if states and inputs change by their sizes.
        """
        if not self.places:
            return self
        f, n, again = self.map, self.steps, object.__new__(type(self))
        _ = self._values, self._first, self._second  # share the compiled functions
        t, h, none = np.zeros(n + 1), np.full(n, f.dt), np.zeros((n, len(f.multiplier_names)))
        curve = Trajectory.stepped(f, h, X, U, none, k0=0, t=t)
        path, end = self._arguments(curve)
        of_x, of_z = sizes.states, np.concatenate([sizes.states, sizes.inputs])
        reach, reach_end = np.zeros(self.m), np.zeros(self.m_end)
        if self.m:
            J = self._whole(path)[:, :, : len(of_z)] * self.scales[0][:, None]
            reach = (np.abs(J) * of_z).sum(axis=2).max(axis=0)
        if self.m_end:
            J = self._first[1] if isinstance(self._first[1], np.ndarray) else self._first[1](*end)[0]
            reach_end = (np.abs(J) * of_x).sum(axis=-1).reshape(-1)
        again.__dict__.update(self.__dict__)
        again.__dict__.pop("scales", None)
        again.places, again.lower, again.upper = [], self.lower.copy(), self.upper.copy()
        for p in self.places:
            both = [] if p.at_steps is None else [reach[p.at_steps]]
            both += [] if p.at_end is None else [reach_end[p.at_end]]
            size = float(np.concatenate(both).max(initial=0.0))
            named = sizes.known(p.constraint.name.removeprefix("final ").removeprefix("initial "))
            scale = limit_scale(*p.limits, named or as_unit(size))
            again.places.append(replace(p, scale=scale))
            for side in (again.lower, again.upper):
                steps, last = side[: n * self.m].reshape(n, self.m), side[n * self.m :]
                if p.at_steps is not None:
                    steps[:, p.at_steps] *= p.scale / scale
                if p.at_end is not None:
                    last[p.at_end] *= p.scale / scale
        return again

    @cached_property
    def scales(self) -> tuple[np.ndarray, np.ndarray]:
        """Scales of the constraints at a step (m,) and on the last state (m_end,)."""
        path, end = np.ones(self.m), np.ones(self.m_end)
        for p in self.places:
            if p.at_steps is not None:
                path[p.at_steps] = p.scale
            if p.at_end is not None:
                end[p.at_end] = p.scale
        return path, end

    # -- functions ------------------------------------------------------------------------------

    @cached_property
    def _symbols(self) -> tuple[list[ca.SX], ca.SX, ca.SX]:
        """Symbols and unscaled expressions of the constraints.
        There are three results: the symbols, the constraints of a step, and those of the last state.
        """
        references = ca.SX.sym("reference", self._rows.shape[1])
        path, end = ca.SX(self.m, 1), ca.SX(self.m_end, 1)
        column = 0
        for p in self.places:
            own = p.constraint.symbols()
            mine = references[column : column + own.numel()]
            column += own.numel()
            e = ca.SX(p.constraint.expression)
            e = ca.substitute(e, own, mine) if own.numel() else e
            if p.at_steps is not None:
                path[p.at_steps] = e
            if p.at_end is not None:
                end[p.at_end] = e
        return [*self.map.symbols, references], path, end

    @cached_property
    def _forces(self) -> bool:
        """True if path constraints contain impulses (multipliers of the mechanism)."""
        return bool(ca.depends_on(self._symbols[1], self.map.symbols.multipliers))

    def _function(self, name: str, args: list[ca.SX], outputs: list[ca.SX]) -> Evaluator:
        function = ca.Function(name, args, [ca.densify(o) for o in outputs])
        return Evaluator(self.map.backend.prepare(function))

    @cached_property
    def _values(self) -> tuple[Evaluator, Evaluator]:
        args, path, end = self._symbols
        return self._function("h", args, [path]), self._function("h_end", args, [end])

    @cached_property
    def _first(self) -> tuple[Any, Any]:
        """CasADi functions of the constraint Jacobians at a step and on the last state.

        At a step, derivatives are taken with respect to (error of x, u, multipliers); on the last state, with
        respect to the error of x. A constant Jacobian is an array instead of a function.
        """
        args, path, end = self._symbols
        s = self.map.symbols
        found: list[Any] = []
        for name, h, others in (("J", path, (s.u, s.multipliers)), ("J_end", end, ())):
            J = error_jacobian(self.map, h, *others)
            found.append(self._function(name, args, [J]) if ca.symvar(J) else ca.DM(J).full())
        return tuple(found)

    @cached_property
    def _second(self) -> tuple[Any, Any]:
        """CasADi functions of the Hessians of y'h for multipliers y and constraints h.

        The first function is for a step, the second for the last state; it is None if the Hessian vanishes.
        The arguments are those of `_first`, followed by y.
        """
        args, path, end = self._symbols
        s = self.map.symbols
        found: list[Any] = []
        for name, h, others in (("H", path, (s.u, s.multipliers)), ("H_end", end, ())):
            y = ca.SX.sym("y", h.numel())
            H = error_expansion(self.map, ca.dot(y, h), *others)[1]
            zero = H.nnz() == 0 or not ca.symvar(ca.simplify(ca.sparsify(H)))
            found.append(None if zero else self._function(name, [*args, y], [H]))
        return tuple(found)

    # -- along a curve --------------------------------------------------------------------------

    def _arguments(self, curve: Trajectory) -> tuple[list[np.ndarray], list[np.ndarray]]:
        f, n, data = self.map, self.steps, self._rows
        theta, h = curve.map.theta, (curve.impulse_lengths if self._forces else curve.step_lengths)[:, None]
        zeros = np.zeros(f.nu), np.zeros(len(f.multiplier_names))
        return (
            [curve.x[:n], curve.u, curve.multipliers, theta, h, data[:n]],
            [curve.x[n], *zeros, theta, np.zeros(1), data[n]],
        )

    def values(self, curve: Trajectory) -> np.ndarray:
        """Return the scaled values h (N m + m_end,) of all constraints along a curve."""
        (path, end), (of_path, of_end) = self._arguments(curve), self.scales
        at_steps = (self._values[0](*path)[0][..., 0] / of_path).ravel() if self.m else np.zeros(0)
        at_end = self._values[1](*end)[0].ravel() / of_end if self.m_end else np.zeros(0)
        return np.concatenate([at_steps, at_end])

    def jacobians(self, curve: Trajectory, lin: Linearization) -> tuple[np.ndarray, np.ndarray]:
        """Return the scaled constraint Jacobians at all steps and on the last state.

        Those at steps, (N, m, ndx + nu), are with respect to (error of x, u); that of the last state, (m_end,
        ndx), is with respect to the error of x.
        """
        f, (path, end) = self.map, self._arguments(curve)
        J_end = np.zeros((0, f.ndx))
        J = self._chained(self._whole(path), lin) if self.m else np.zeros((self.steps, 0, f.ndx + f.nu))
        if self.m_end:
            J_end = self._first[1] if isinstance(self._first[1], np.ndarray) else self._first[1](*end)[0]
            J_end = J_end / self.scales[1][:, None]
        return J, J_end

    def _whole(self, path: list[np.ndarray]) -> np.ndarray:
        """Return the scaled Jacobians of the constraints at all steps.
        Derivatives are with respect to state, input, and the multipliers (constraint impulses) of the step.
        The list `path` has the values of all arguments of the constraints.
        """
        J, scale = self._first[0], self.scales[0][:, None]
        if isinstance(J, np.ndarray):
            return np.broadcast_to(J / scale, (self.steps, *J.shape))
        return J(*path)[0] / scale

    def _chained(self, J: np.ndarray, lin: Linearization) -> np.ndarray:
        """Return constraint Jacobians with respect to state and input alone.
        The argument J also has derivatives with respect to the multipliers (constraint impulses) of the
        steps. These multipliers are functions of state and input.
        """
        q = self.map.ndx + self.map.nu
        if J.shape[2] == q or not J[:, :, q:].any():
            return J[:, :, :q]
        return J[:, :, :q] + J[:, :, q:] @ np.concatenate([lin.C, lin.D], axis=2)

    def curvature(
        self, curve: Trajectory, lin: Linearization, y: np.ndarray
    ) -> tuple[np.ndarray | None, np.ndarray | None, np.ndarray | None]:
        """Return the Hessians of y'h, the constraints h times their multipliers y.

        The first result is the Hessian (N, q, q) with respect to (error of x, u) at each step; the second,
        (ndx, ndx), with respect to the error of the last state. The third is the derivative (N, nm) of y'h
        with respect to the map's multipliers; the map adds their second derivatives. Results that vanish are
        None.
        """
        f, n = self.map, self.steps
        path, end = self._arguments(curve)
        at_steps, at_end = y[: n * self.m].reshape(n, self.m), y[n * self.m :]
        q = f.ndx + f.nu
        H = zeta = H_end = None
        if self.m and len(f.multiplier_names):
            J = self._whole(path)
            if J[:, :, q:].any():
                zeta = np.einsum("km,kmz->kz", at_steps, J[:, :, q:])
        if self.m and self._second[0] is not None:
            whole = self._second[0](*path, at_steps / self.scales[0])[0]
            H = whole[:, :q, :q]
            if whole.shape[1] > q and whole[:, q:].any():
                one = np.broadcast_to(np.eye(q), (n, q, q))
                T = np.concatenate([one, np.concatenate([lin.C, lin.D], axis=2)], axis=1)
                H = np.swapaxes(T, 1, 2) @ whole @ T
        if self.m_end and self._second[1] is not None:
            H_end = self._second[1](*end, at_end / self.scales[1])[0]
        return H, H_end, zeta

    # -- by name --------------------------------------------------------------------------------

    def each(self, values: np.ndarray) -> dict[str, np.ndarray]:
        """Split an array over all constraints and steps into a dict by constraint name.
        Each value in the dict is an array over the samples at which the constraint is imposed.
        """
        n = self.steps
        path, end = values[: n * self.m].reshape(n, self.m), values[n * self.m :]
        found = {}
        for p in self.places:
            for i, name in enumerate(p.constraint.row_names):
                parts = [] if p.at_steps is None else [path[p.samples, p.at_steps.start + i]]
                parts += [] if p.at_end is None else [end[p.at_end.start + i][None]]
                found[name] = np.concatenate(parts)
        return found

    def multipliers(self, y: np.ndarray) -> dict[str, np.ndarray]:
        """Return the multipliers of all constraints by name, in the user's units.

        The units are those of the cost over those of the constraint. Multipliers are >= 0 at upper limits
        and <= 0 at lower ones.
        """
        path, end = self.scales
        return self.each(y / np.concatenate([np.tile(path, self.steps), end]))

    def check_names(self, given: Mapping[str, Any]) -> None:
        """Raise ValueError if a name belongs to neither a constraint nor a quantity.

        Names of all quantities of the map are accepted, since a similar problem may limit them.
        """
        if not isinstance(given, Mapping):
            raise TypeError(
                f"multipliers: expected a dict by name, such as Result.multipliers, got {given!r}"
            )
        known = [name for p in self.places for name in p.constraint.row_names]
        for name in given:
            plain = name.removeprefix("final ").removeprefix("initial ").partition("[")[0]
            if name not in known and plain not in self.map.quantities.names() and "." not in plain:
                raise ValueError(
                    f"multipliers: {name!r} is not a limit of this problem; {near_misses(name, known)}"
                )

    def from_multipliers(self, given: Mapping[str, Any]) -> np.ndarray:
        """Return the multipliers of all constraints in one scaled array, from a dict.

        This is the inverse of `multipliers`. A multiplier is 0 if its name is missing in the dict, or if its
        sign belongs to an infinite limit.
        """
        n = self.steps
        path, end = np.zeros((n, self.m)), np.zeros(self.m_end)
        for p in self.places:
            for i, name in enumerate(p.constraint.row_names):
                known = given.get(name)
                if known is None:
                    continue
                steps = len(range(n)[p.samples]) if p.at_steps is not None else 0
                size = steps + (p.at_end is not None)
                values = p.scale * check_array(known, (size,), f"multipliers of {name}")
                if p.at_steps is not None:
                    path[p.samples, p.at_steps.start + i] = values[:steps]
                if p.at_end is not None:
                    end[p.at_end.start + i] = values[-1]
        least, most = (np.where(np.isfinite(side), np.inf, 0.0) for side in (self.lower, self.upper))
        return np.clip(np.concatenate([path.ravel(), end]), -least, most)

    def violations(self, curve: Trajectory, tolerance: float) -> list[Violation]:
        """Return all violations of constraints at single samples, the largest first.

        A violation is included if it is larger than `tolerance` times the scale of the constraint.
        """
        h = self.values(curve)
        amount = np.maximum(self.lower - h, h - self.upper)
        each, size = self.each(h), self.each(np.where(np.isnan(amount), np.inf, amount))
        found = []
        for p in self.places:
            first = p.constraint.where == "end"
            for name in p.constraint.row_names:
                for i in np.flatnonzero(size[name] > tolerance):
                    k = self.steps if first else int(i)
                    low, high = (float(side[0 if first else i]) for side in p.limits)
                    value = float(each[name][i] * p.scale)
                    v = Violation(name, 0, k, float(curve.t[k]), value, low, high)
                    found.append((-size[name][i], v))
        return [v for _, v in sorted(found, key=lambda pair: pair[0])]

    def margin(self, curve: Trajectory) -> float:
        """Return the smallest scaled distance of inequality constraints from their limits.
        It is negative if a limit is violated.
        """
        h, unequal = self.values(curve), self.lower < self.upper
        distances = np.minimum(h - self.lower, self.upper - h)[unequal]
        return float(distances.min()) if len(distances) else np.inf

    def check_start(self, curve: Trajectory, tolerance: float = 1e-9) -> None:
        """Raise a StartOutside error if the given initial state violates limits.
        Only limits of quantities that no input can change at the first sample are checked.
        """
        each = self.each(self.values(curve))
        for p in self.places:
            if not p.first or p.at_steps is None:
                continue
            low, high = (float(side[0]) for side in p.limits)
            for name in p.constraint.row_names:
                v = float(each[name][0] * p.scale)
                room = tolerance * (p.scale + abs(v))
                if not low - room <= v <= high + room:
                    raise StartOutside(
                        f"x0: {name} = {v:.6g} is outside of its limits [{low:.6g}, {high:.6g}] at the "
                        "start, where no input can change it"
                    )
