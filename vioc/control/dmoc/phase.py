"""Phase of an optimal control problem, with one map, cost and limits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import casadi as ca
import numpy as np

from vioc.checks import as_count, limits
from vioc.control.costs.cost import Cost, checked
from vioc.control.dmoc.equations import StepRows, measured
from vioc.control.problem.consistent import check_last_values
from vioc.control.problem.limits import (
    PathConstraint,
    as_constraints,
    bound,
    bound_arrays,
    check_distinct,
    duration_limits,
    end_condition,
    end_values,
    finer,
    finer_bounds,
    full_names,
    shifts,
)
from vioc.maps.made.extended import ExtendedMap
from vioc.maps.protocol import OneStepMap
from vioc.names import INPUTS, by_name

QUADRATURES = ("left", "midpoint", "trapezoid")


@dataclass(frozen=True, eq=False, repr=False)
class Phase:
    """Phase of N steps of a map, with a cost, limits and conditions at start and end.

    Parameters
    ----------
    map : OneStepMap
    steps : int
        N.
    cost : Cost, optional
        A cost of this map; default none.
    initial, final : (nx,) array or dict, optional
        The first and last state: an array, or values by name. A name is any quantity of the state
        (``theta``, ``v.theta``, ``tip:x``), its value a number or a pair (lower, upper); states not named
        are free.
    bounds, constraints
        As in `vioc.control.optimize`.
    rate : dict, optional
        Limits of (u[k+1] - u[k]) / h by input name, per second; a pair, or b for [-b, b].
    periodic : bool, names, or dict of name to shift
        States whose last value is the first plus the shift (0 by default); True means all.
    duration : float or (lower, upper), optional
        s; a pair makes it free. Default ``steps * map.dt``.
    quadrature : {"left", "midpoint", "trapezoid"}
        Quadrature of the running cost; "left" is the sum of `Cost` itself.
    k0 : int
        Index of the first step, for maps that depend on time; only for the first phase.
    name : str
        Name of the phase in reports.

    Raises
    ------
    ModelError
        Unknown names (a ValueError).
    ValueError
        Wrong shapes and limits, lower > upper; a cost of time alone with a given duration; a free
        duration of an `ExtendedMap` that has it as a state; a map without equations of its steps.
    TypeError
        Not a Cost, not a Constraint.
    """

    map: OneStepMap
    steps: int
    cost: Cost | None = None
    initial: Any = None
    final: Any = None
    bounds: Mapping[str, Any] | None = None
    constraints: Any = ()
    rate: Mapping[str, Any] | None = None
    periodic: Any = None
    duration: Any = None
    quadrature: str = "left"
    k0: int = 0
    name: str = ""

    def __post_init__(self) -> None:
        f = self.map
        as_count(self.steps, "steps")
        if self.quadrature not in QUADRATURES:
            raise ValueError(f"quadrature: expected one of {', '.join(QUADRATURES)}, got {self.quadrature!r}")
        uses = self.cost is not None and checked(f, self.cost).uses_multipliers
        if uses and not self.equations.implicit:
            raise ValueError(f"cost: it uses multipliers, and {type(f).__name__} has no residual with them")
        object.__setattr__(self, "bounds", full_names(f, self.bounds))
        object.__setattr__(self, "constraints", as_constraints(self.constraints))
        check_distinct(self.constraints)
        for c in self.constraints:
            c.check(f)
        if isinstance(f, ExtendedMap) and f.steps and self.free_duration:
            raise ValueError(
                "duration: it is a state of the map already; limit it there, by initial or bounds"
            )
        # evaluate cached properties now, so that errors are raised here
        _ = self.state_limits, self.input_limits, self.unknown_limits, self.rows, self.rate_limits
        _ = self.shifts, self.length_limits, self.data
        if self.cost is not None and self.cost.only_time and not self.free_duration:
            raise ValueError(
                f"cost: it is the duration, which is given, {self.steps * self.length_limits[0]:g} s; make "
                "it free by duration=(low, high), or leave the cost out to ask for any motion in that time"
            )

    # -- sizes and times ------------------------------------------------------------------------

    @cached_property
    def equations(self) -> StepRows:
        return StepRows(self.map)

    @cached_property
    def costs_eliminated(self) -> bool:
        """True if the cost depends on states that the nonlinear program can eliminate.
        Momenta are an example of such states.

        `StepRows` determines these states.
        """
        c, eliminated = self.cost, list(self.equations.eliminated)
        if c is None or not eliminated:
            return False
        args = [*self.map.symbols, ca.SX.sym("reference", c.reference_size)]
        both = ca.vertcat(c.running_at(*args), c.terminal_at(*args))
        return bool(ca.depends_on(both, args[0][eliminated]))

    @cached_property
    def lifts(self) -> tuple[bool, bool]:
        """Flags that tell if velocities are variables of the nonlinear program.
        The first flag concerns the steps, the second the end of the phase. The velocities
        `Mechanism.implicit` are variables where the cost or constraints use them.
        """
        running, terminal = (False, False) if self.cost is None else self.cost.lifts
        running &= self.quadrature != "midpoint"  # it evaluates states between the samples
        path = [c.by_step(self.map) for c in self.rows if c.where == "path" and self.lifted(c) is not None]
        ends = any(c.where == "end" and self.lifted(c) is not None for c in self.rows)
        later = not all(path) or (running and self.quadrature == "trapezoid")
        return running or bool(path), terminal or ends or later

    def lifted(self, c: PathConstraint) -> ca.SX | None:
        """Return a constraint's expression with velocities as independent symbols.
        Return None if the constraint does not depend on velocities that solve linear equations
        (`Mechanism.implicit`).
        """
        return self.map.mechanism.implicit and self.map.mechanism.implicit.lifted(c.expression, short=True)

    @property
    def quantities(self) -> int:
        """Number of velocities at a sample that are variables of the nonlinear program."""
        return self.map.mechanism.implicit.w.numel() if self.map.mechanism.implicit and any(self.lifts) else 0

    @property
    def unknowns(self) -> int:
        """Number of constraint multipliers and contact variables of each step.
        Contact variables are, for example, impulses. All are variables of the nonlinear program.
        """
        return len(self.equations.unknowns)

    @cached_property
    def length_limits(self) -> tuple[float, float]:
        """Smallest and largest step length, s."""
        if self.duration is None:
            return self.map.dt, self.map.dt
        low, high = duration_limits(self.duration)
        return low / self.steps, high / self.steps

    @property
    def free_duration(self) -> bool:
        return self.length_limits[0] != self.length_limits[1]

    @cached_property
    def measures(self) -> dict[str, str]:
        """Dict from the name of a step equation to that of a state with the same unit."""
        state_of, inner = dict(self.equations.measures), self.map.mechanism.implicit
        if inner is not None and self.quantities:
            names = [f"implicit.{j}" for j in range(self.quantities)]
            state_of |= measured(self.implicit_rows, names, self.map.state_names, 0)
        return state_of

    @cached_property
    def implicit_rows(self) -> ca.Function:
        """CasADi function of the residual of the equations that define velocities.
        It maps (x, parameters, w) to the residual, which is zero if w are the velocities `Mechanism.implicit`
        at the state x.
        """
        inner = self.map.mechanism.implicit
        assert inner is not None
        return ca.Function("G", [inner.x, inner.parameters, inner.w], [inner.equation()])

    # -- limits of the unknowns -----------------------------------------------------------------

    @cached_property
    def state_ends(self) -> list[tuple[str, int, int, float, float]]:
        """Limits of components of the first and the last state of the phase.
        Each tuple is ("initial" or "final", sample, index of the state, lower limit, upper limit).
        """
        ends = []
        for what, k, end in (("initial", 0, self._ends[0]), ("final", -1, self._ends[1])):
            for name, value in end.items():
                if name in self.map.state_names:
                    low, high = limits(value, 1, f"{what} {name}", number="equal")
                    ends.append((what, k, self.map.state_names.index(name), float(low[0]), float(high[0])))
        return ends

    @cached_property
    def state_bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """Lower and upper bounds of the states, (N+1, nx) each."""
        return bound_arrays(self.bounds, self.map.state_names, self.steps + 1)

    @cached_property
    def state_limits(self) -> tuple[np.ndarray, np.ndarray]:
        """Lower and upper limits (N+1, nx) of the states, including end conditions."""
        low, high = (side.copy() for side in self.state_bounds)
        for what, k, i, a, b in self.state_ends:
            if a > high[k, i] or b < low[k, i]:
                raise ValueError(
                    f"{what} {self.map.state_names[i]}: [{a:g}, {b:g}] is outside of its bounds "
                    f"[{low[k, i]:g}, {high[k, i]:g}]"
                )
            low[k, i], high[k, i] = max(a, low[k, i]), min(b, high[k, i])
        return low, high

    @cached_property
    def input_limits(self) -> tuple[np.ndarray, np.ndarray]:
        """Lower and upper limits of the inputs, (N, nu) each."""
        return bound_arrays(self.bounds, [INPUTS + n for n in self.map.input_names], self.steps)

    @cached_property
    def unknown_limits(self) -> tuple[np.ndarray, np.ndarray]:
        """Lower and upper limits (N, nw) of constraint multipliers and contact variables.
        The nw multipliers and contact variables of each step are variables of the nonlinear program, like
        states and inputs.
        """
        names = {f"lambda.{n}" for n in self.map.multiplier_names}
        if not self.equations.implicit and not names.isdisjoint(self.bounds or {}):
            raise ValueError(f"bounds: {type(self.map).__name__} has no residual with multipliers to bound")
        low, high = bound_arrays(self.bounds, self.equations.unknowns, self.steps)
        return np.maximum(low, self.equations.lower), np.minimum(high, self.equations.upper)

    @property
    def fixed_start(self) -> np.ndarray:
        """Mask (nx,) of the components of the first state that have a fixed value."""
        return self.state_limits[0][0] == self.state_limits[1][0]

    @property
    def fixed_end(self) -> np.ndarray:
        return self.state_limits[0][-1] == self.state_limits[1][-1]

    # -- conditions -----------------------------------------------------------------------------

    @cached_property
    def _ends(self) -> tuple[dict[str, Any], dict[str, Any]]:
        f = self.map
        final = end_values(f, self.final, "final")
        check_last_values(f, final)
        return end_values(f, self.initial, "initial"), final

    @cached_property
    def rows(self) -> tuple[PathConstraint, ...]:
        """Constraints of the phase, except bounds of single variables.
        These variables are the states, inputs and multipliers of the nonlinear program.
        """
        f = self.map
        unknowns = {*f.state_names, *(f"u.{n}" for n in f.input_names)}
        unknowns |= {*self.equations.unknowns}
        rows = list(self.constraints)
        bounds = (self.bounds or {}).items()
        rows += [bound(f, name, value, self.steps) for name, value in bounds if name not in unknowns]
        for where, end in zip(("start", "end"), self._ends, strict=True):
            rows += [end_condition(f, n, v, where, end) for n, v in end.items() if n not in f.state_names]
        for c in rows:
            self.row_limits(c)
        return tuple(rows)

    def row_limits(self, c: PathConstraint) -> tuple[np.ndarray, np.ndarray]:
        """Return lower and upper limits (samples, m) of a constraint with m components."""
        pair = c.limits(self.map, self.steps)
        low, high = (np.repeat(side[:, None], c.expression.numel(), axis=1) for side in pair)
        return low, high

    @cached_property
    def rate_limits(self) -> dict[int, tuple[float, float]]:
        """Lower and upper limits of the inputs' rates, by the index of the input.
        Rates are changes per second.
        """
        result = {}
        names, rate = self.map.input_names, {} if self.rate is None else self.rate
        for name, value in by_name(rate, names, "rate", prefix=INPUTS).items():
            low, high = limits(value, 1, f"rate of {name}", number="symmetric")
            result[names.index(name)] = float(low[0]), float(high[0])
        return result

    @cached_property
    def shifts(self) -> dict[int, float]:
        """Prescribed difference between the last and first value of each periodic state.
        The keys are the indices of these states.
        """
        return shifts(self.map, self.periodic)

    # -- data over time -------------------------------------------------------------------------

    @cached_property
    def data(self) -> np.ndarray:
        """References (time-varying data) of cost and constraints at all samples.
        There is a row for each of the N+1 samples, and a column for each reference value.
        """
        n = self.steps
        columns = [np.empty((n + 1, 0))]
        if self.cost is not None:
            columns.append(self.cost.reference_rows(n))
        columns += [c.data(n) for c in self.rows]
        return np.concatenate(columns, axis=1)

    def refined(self, factor: int) -> Phase:
        """Return this phase with `factor` times as many steps over the same duration.
        Data over time are interpolated.
        """
        n, cost = self.steps, self.cost
        duration = self.steps * self.map.dt if self.duration is None else self.duration
        return replace(
            self,
            steps=factor * n,
            cost=cost and cost.with_references(*(finer(r, n, factor) for r in cost.references)),
            bounds=finer_bounds(self.bounds, n, factor),
            constraints=[c.refined(n, factor) for c in self.constraints],
            duration=duration,
            k0=factor * self.k0,
        )

    def __repr__(self) -> str:
        low, high = (self.steps * h for h in self.length_limits)
        time = f"{low:g} s" if low == high else f"{low:g} to {high:g} s"
        return f"Phase({self.name or type(self.map).__name__}: {self.steps} steps, {time})"


def leap(f: OneStepMap, jump: Mapping[str, Any] | None) -> ca.Function | None:
    """Return the jump of the state at a phase's start as a CasADi function.
    Return None if the state does not jump.

    The function is (x, parameters) -> x+. The values of `jump` are expressions in the symbols of the map
    before it.
    """
    if not jump:
        return None
    x = ca.SX(f.symbols.x)
    for name, value in jump.items():
        x[f.state_names.index(name)] = value
    return ca.Function("jump", [f.symbols.x, f.symbols.parameters], [x])
