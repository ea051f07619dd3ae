"""Initial state, duration and parameters of a problem, if they are free.

Duration and parameters are constants of the motion: states of an `ExtendedMap` with free initial values. In a
periodic motion, the first value of each periodic state is a further constant, with which the last value is
compared. All of these free quantities are coordinates of the first state, and their limits are constraints.
See docs/maths/shooting.md, "Free starts, durations and parameters".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import casadi as ca
import numpy as np

from vioc.checks import limits
from vioc.control.costs.cost import Cost
from vioc.control.costs.squares import Squares
from vioc.control.problem.consistent import loose_start
from vioc.control.problem.limits import PathConstraint, duration_limits, end_condition, end_values, shifts
from vioc.control.shooting.subproblem import INTERIOR
from vioc.maps.made.extended import DURATION, PARAMETER, START, ExtendedMap
from vioc.maps.protocol import OneStepMap
from vioc.names import by_name
from vioc.runs.trajectory import Trajectory


class Unknowns:
    """Free quantities of a problem: first state, duration and parameters.
    Free quantities are variables of the optimization. The problem has N steps.

    Parameters
    ----------
    f : OneStepMap
    steps : int
        N.
    initial : (nx,), dict or None
        The first state: an array, or a value or (lower, upper) by name of any quantity of the state; states
        not named are free. None: given when the problem is solved.
    duration : float, (lower, upper) or None
        Duration, s; a pair of limits makes it free. None: it follows from the step lengths.
    parameters : dict of str to (lower, upper), optional
        Limits of those declared parameters of the map that are free; None for no limit.
    periodic : bool, names, dict of name to shift, or None
        Periodic states: the last value is the first value plus the shift, by default 0.
    dt : float, (N,) or None
        Step lengths, s; with a duration only their proportions count.

    Attributes
    ----------
    map : OneStepMap
        `f`, or its extension with constants of the motion as states.
    lengths : (N,)
        Step lengths in the unit of time of `map`.
    start : (ndx, s)
        Directions along which the first state is free.
    rigid : int
        Number of constants.
    open : (nx,) bool
        Components of the first state that are free.
    told : dict of str to list of int
        For each state with a value in `initial`, the components of the first state's error that it changes.
    """

    def __init__(
        self, f: OneStepMap, steps: int, initial: Any, duration: Any, parameters: Any, periodic: Any, dt: Any
    ):
        self.f, self.steps = f, steps
        self.shifts = shifts(f, periodic)
        parameters = {} if parameters is None else parameters
        named = by_name(parameters, tuple(f.parameters), "parameters", prefix=PARAMETER)
        each = ((name, limits(pair, 1, f"parameter {name}", number="equal")) for name, pair in named.items())
        self.parameters = dict(each)
        self._keep_bodies()
        span = None if duration is None else duration_limits(duration)
        self.span = None if span is None or span[0] == span[1] else span
        whole = f.lengths(dt, steps)
        self.guessed = float(whole.sum()) if dt is not None else None
        equal = (whole == whole[0]).all()
        shares = np.full(steps, 1.0 / steps) if equal else whole / whole.sum()
        self.lengths = whole if span is None else shares if self.span else span[0] * shares
        kept = tuple(f.state_names[j] for j in self.shifts)
        if kept and f.ndx != f.nx:
            raise ValueError(
                f"periodic: errors of {type(f).__name__} are no states, so {kept[0]!r} cannot be compared"
            )
        self.map = f
        if self.span or self.parameters or kept:
            self.map = ExtendedMap(f, steps if self.span else None, tuple(self.parameters), kept)
        self.rigid = self.map.ndx - f.ndx
        self._read_start(initial)

    def _keep_bodies(self) -> None:
        """Limit free masses and moments of inertia to 0 or more.
        Raise `ValueError` for negative lower limits.
        """
        bodies = () if self.f.system is None else self.f.system.non_negative
        for name, (low, high) in self.parameters.items():
            if name in bodies:
                self.parameters[name] = np.maximum(low, 0.0), high
            if name in bodies and -np.inf < low[0] < 0:
                raise ValueError(
                    f"parameters: lower limit {low[0]:g} of {name!r}: expected 0 or more, as no body has a "
                    "negative mass or moment of inertia"
                )

    def _read_start(self, initial: Any) -> None:
        """Divide the trajectory's first state into given and free components.
        The conditions on the first state become constraints at the start.
        """
        f, names = self.f, self.f.state_names
        self.free_start = isinstance(initial, Mapping)
        self.known = {} if initial is None else end_values(f, initial, "initial")
        given = np.full(f.nx, not self.free_start)
        self._rows: list[PathConstraint] = []
        for name, value in self.known.items() if self.free_start else ():
            low, high = limits(value, 1, f"initial {name}", number="equal")
            if name in names and low[0] == high[0] and f.ndx == f.nx:
                given[names.index(name)] = True
            else:
                self._rows.append(end_condition(f, name, value, "start", self.known))
        if self.free_start or self.parameters:
            settled = {n for n, known in zip(names, given, strict=True) if known}
            loose = loose_start(f, settled | {names[j] for j in self.shifts}, tuple(self.parameters))
            self._rows += [PathConstraint(name, h, 0.0, 0.0, "start") for name, h in loose.items()]
        self.open = np.concatenate([~given, np.ones(self.rigid, bool)])
        told = {n: j for j, n in enumerate(names) if n in self.known and given[j] and f.ndx == f.nx}
        kept = {j: self._place(START + names[j]) for j in self.shifts}
        self.told = {n: [j, *([kept[j]] if j in kept else [])] for n, j in told.items()}
        moving = np.flatnonzero(~given) if f.ndx == f.nx else np.arange(f.ndx if self.free_start else 0)
        rows = np.eye(self.map.ndx)
        columns = [rows[j] for j in moving.tolist()]
        columns += [rows[self._place(n)] for n in self._constants if not n.startswith(START)]
        self.start = np.array(columns).reshape(-1, self.map.ndx).T
        for j in self.shifts:  # the constant of a period moves with the state
            self.start[self._place(START + names[j])] = self.start[j]
            self.open[self.f.nx + self._constants.index(START + names[j])] = not given[j]

    @property
    def _extended(self) -> ExtendedMap | None:
        """Map with the free duration and parameters as states.
        The value is None if the problem has no free duration or parameters.

        `f` may itself be an `ExtendedMap`.
        """
        return self.map if self.map is not self.f and isinstance(self.map, ExtendedMap) else None

    @property
    def _constants(self) -> tuple[str, ...]:
        return self._extended.constants if self._extended else ()

    def _place(self, name: str) -> int:
        """Return the index of a free constant, such as the duration, in a state's error.
        This error is a tangent vector of the extended state: the state of the map, followed by all free
        constants.
        """
        return self.f.ndx + self._constants.index(name)

    # -- the problem on the map with constants --------------------------------------------------

    def rows(self, constraints: list[PathConstraint]) -> list[PathConstraint]:
        """Return all constraints of a problem, with free constants as states of the map.
        These constants are the duration and parameters. The result contains the given `constraints` and the
        conditions on the first state, the duration, the parameters and the periodic states.
        """
        g = self._extended
        found = [*constraints, *self._rows]
        if g is None:
            return found
        found = [replace(c, expression=g.expression(c.expression)) for c in found]
        if self.span:
            found.append(PathConstraint(DURATION, g.quantity(DURATION), *self.span, "end"))
        for name, (low, high) in self.parameters.items():
            if np.isfinite(low[0]) or np.isfinite(high[0]):
                symbol = g.quantity(PARAMETER + name)
                found.append(PathConstraint(PARAMETER + name, symbol, low[0], high[0], "end"))
        for j, shift in self.shifts.items():
            name = self.f.state_names[j]
            apart = g.quantity(name) - g.quantity(START + name)
            found.append(PathConstraint(f"periodic.{name}", apart, shift, shift, "end"))
        return found

    def cost(self, cost: Cost) -> Cost:
        """Convert a cost to the map whose states include free duration and parameters.

        If the duration is free, a cost per time is multiplied by the step lengths in s.
        """
        g = self._extended
        if g is None:
            return cost
        s, reference = self.f.symbols, ca.SX.sym("reference", cost.reference_size)
        args = s.x, s.u, s.multipliers, s.parameters, g.inner_dt, reference
        weight = g.inner_dt if cost.per_time and self.span else ca.SX(1)
        constants = g.symbols.x[self.f.nx :]
        return Cost(
            g,
            _weighed(cost.running_squares(*args), weight, ca.vertcat(*args[:3]), constants),
            _weighed(cost.terminal_squares(*args), ca.SX(1), args[0], constants),
            references=[(reference, cost.reference_rows(self.steps))] if reference.numel() else (),
            per_time=cost.per_time and not self.span,
        )

    # -- where the search begins ----------------------------------------------------------------

    def first(self, x0: np.ndarray | None, final: Any) -> np.ndarray | None:
        """Return the first state (nx,) of the guess, or None if nothing is known about it.

        It is `x0`, if given, or else follows from the conditions on the last state. Free components are moved
        to satisfy the conditions on the first state.
        """
        f, names = self.f, self.f.state_names
        if not self.free_start:
            return x0 if x0 is not None or not self.known else f.state(self.known)
        x = f.initial_state() if x0 is None else x0.copy()
        begun = x.copy()
        if x0 is None:
            ends = [(n, v, self.shifts.get(names.index(n), 0.0)) for n, v in final.items() if n in names]
            for name, value, shift in ends:
                x[names.index(name)] = _inside(value, f"final {name}", x[names.index(name)] + shift) - shift
        for name, value in self.known.items():
            if name in names:
                near = x[names.index(name)]
                x[names.index(name)] = _inside(value, f"initial {name}", near, x0 is not None)
        if not f.multiplier_names or f.ndx != f.nx:
            return x
        at = [names.index(n) for n in f.mechanism.coordinates]  # loops close with the known coordinates fixed
        by = x[at] - begun[at]
        if by.any():
            x[at] = f.mechanism.moved(begun, by, [n for n in f.mechanism.coordinates if n in self.known])[at]
        return x

    def constants(self, run: Trajectory | None, x0: np.ndarray) -> np.ndarray:
        """Return a guess of the free constants of a problem.

        These are the duration, the parameters, and the first values of periodic states. Duration and
        parameters come from the trajectory `run`, if there is one, and are moved inside their limits. The
        first values are those of x0.
        """
        found = []
        if self.span:
            T = self.guessed if run is None else run.duration
            if T is None:
                T = self.steps * self.f.dt if np.isinf(self.span[1]) else sum(self.span) / 2
            found.append(_well_within(T, *self.span))
        for name, (low, high) in self.parameters.items():
            owner = self.f if run is None or name not in run.map.parameters else run.map
            found.append(_well_within(owner.parameters[name], low[0], high[0]))
        return np.array([*found, *(x0[j] for j in self.shifts)])

    def seconds(self, constants: np.ndarray) -> tuple[OneStepMap, np.ndarray]:
        """Return the user's map and step lengths, s, for given duration and parameters."""
        g = self._extended
        if g is None:
            return self.f, self.lengths
        return g.owner(constants), g.seconds(constants) * self.lengths

    def joined(self, X: np.ndarray, constants: np.ndarray) -> np.ndarray:
        """Append free constants, such as the duration, to states (N+1, nx) of the map."""
        return np.hstack([X, np.tile(constants, (len(X), 1))])

    def run(self, curve: Trajectory) -> Trajectory:
        """Return a curve without the free constants in its states, for the user's map.
        Free constants, such as the duration, are states in the given `curve`.
        """
        return self._extended.inner_trajectory(curve) if self._extended else curve


def _well_within(value: float, low: float, high: float) -> float:
    """Return a value, moved inside its limits by at least a small distance.

    This distance is `INTERIOR` times the range; for a one-sided limit, it is `INTERIOR` times the magnitude
    of the value or the limit, whichever is larger.
    """
    if not (np.isfinite(low) or np.isfinite(high)):
        return float(value)
    both = np.isfinite(low) and np.isfinite(high)
    size = max(abs(value), abs(low if np.isfinite(low) else high)) or 1.0
    room = INTERIOR * (high - low if both else size)
    return float(np.clip(value, low + room, high - room))


def _inside(value: Any, what: str, near: float, nearest: bool = False) -> float:
    """Return the middle of a range, or the value in it that is nearest to `near`.
    The nearest value is returned if `nearest` is True or a side of the range is infinite.
    """
    low, high = (float(side[0]) for side in limits(value, 1, what, number="equal"))
    middle = 0.5 * (low + high)
    return middle if np.isfinite(middle) and not nearest else float(np.clip(near, low, high))


def _weighed(s: Squares, weight: ca.SX, by: ca.SX, constants: ca.SX) -> Squares:
    """Multiply a sum of squared residuals by a weight; the result has the same form.

    The residuals are multiplied by the square root of the weight. Terms that do not depend on the variables
    `by`, but only on the free `constants` of the problem, such as its duration, are also written as squared
    residuals where possible.
    """
    own = Squares.of(Squares.without(s.value, by), constants)
    whole = replace(s + own, value=s.value)
    root = ca.sqrt(weight)
    value, rest = (ca.densify(weight * e) for e in (whole.value, whole.rest))
    return Squares(value, root * whole.r, whole.W, rest)
