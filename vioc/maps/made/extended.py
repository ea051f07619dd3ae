"""Map whose state consists of the state of another map and of constants.
The constants are parameters, disturbances, sensor biases or the duration of the motion.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import casadi as ca
import numpy as np

from vioc.checks import as_count, as_names
from vioc.errors import ModelError, StepError
from vioc.maps.derivatives import Linearization, SecondOrder, Steps
from vioc.maps.linear_solutions import Implicit, entries
from vioc.maps.made.around import TIMES, MapAround, around, derivatives_of, kernel_symbols
from vioc.maps.made.stepwise import stepwise
from vioc.maps.mechanism import Mechanism
from vioc.maps.named import Symbols
from vioc.maps.protocol import Kernel, OneStepMap
from vioc.names import INPUTS, meaning, quantity_name
from vioc.runs.given import points_of
from vioc.runs.steps import times_of
from vioc.runs.trajectory import Trajectory

DURATION = "duration"
PARAMETER = "param."
START = "start."
DISTURBANCE = "disturbance."
BIAS = "bias."


class ExtendedMap(MapAround):
    """Map whose state also contains constants, such as parameters, disturbances or sensor biases.

    It is (x, c) -> (f(x, u; c), c).

    Parameters
    ----------
    f : OneStepMap
    steps : int, optional
        N: the duration T of N steps is a state, and the unit of this map's time. A step of length h takes
        h T seconds; the default is T / N.
    parameters : sequence of str
        Declared parameters of `f` that become states; the others remain parameters.
    kept : sequence of str
        States of `f` whose initial values are stored as constants ``start.NAME``, for comparison.
    disturbances : sequence of str
        Names of inputs or states with a constant disturbance ``disturbance.NAME``. It is added to an input,
        u + d, or to a state, by h d in a step of h seconds (for ``p.NAME`` d is a force). The map's own input
        remains the command.
    biases : sequence of str
        Quantities with a constant sensor error ``bias.NAME``, which a `Measurement` of this map adds.

    Raises
    ------
    ModelError
        For unknown names, or names of existing states; for a disturbance of states with `steps`, or of a map
        whose errors are not its states.
    NotImplementedError
        With `steps`, for a map without derivatives by the length of its steps.

    Notes
    -----
    The state is the inner one, then ``duration`` (s), ``param.NAME``, ``start.NAME``, ``disturbance.NAME``
    and ``bias.NAME``. It is written in the symbols of the inner map, so the quantities of the inner map are
    valid. In a filter constants are random walks by their process noise. Derivatives follow from the chain
    rule,

        f(x, u; T h, T t, theta)  by  (x, c):   f_T = h f_dt + t f_t,   f_TT = (h, t) f'' (h, t)',

    with those of `MapDerivatives.timed`.
    """

    _identified_by = (("inner", "inner"), ("constants", "constants"))

    def __init__(
        self,
        f: OneStepMap,
        steps: int | None = None,
        parameters: Sequence[str] = (),
        kept: Sequence[str] = (),
        disturbances: Sequence[str] = (),
        biases: Sequence[str] = (),
    ):
        self.inner, self.steps = f, None if steps is None else as_count(steps, "steps")
        self.freed, self.kept = as_names(parameters, "parameters"), as_names(kept, "kept")
        self.biases = tuple(quantity_name(f, n, "biases") for n in as_names(biases, "biases"))
        self._read_disturbances(tuple(n.removeprefix(INPUTS) for n in as_names(disturbances, "disturbances")))
        timed = [DURATION] if self.steps else []
        groups = (PARAMETER, self.freed), (START, self.kept), (DISTURBANCE, self.disturbances)
        named = (prefix + n for prefix, names in (*groups, (BIAS, self.biases)) for n in names)
        self.constants = (*timed, *named)
        unknown = [n for n in self.freed if n not in f.parameters]
        unknown += [n for n in self.kept if n not in f.state_names]
        duplicates = [n for n in self.constants if n in f.state_names]
        if unknown or duplicates:
            raise ModelError(
                f"no parameter or state {unknown[0]!r} to extend by"
                if unknown
                else f"{duplicates[0]!r} is a state already"
            )
        if self.steps:
            _ = f.derivatives.timed  # raises if they do not exist
        self._around(f, self.constants, self.expression, self._unit)
        self.dt = 1.0 / self.steps if self.steps else f.dt
        self.parameters = {n: v for n, v in f.parameters.items() if n not in self.freed}
        self._at_parameters: tuple[bytes, OneStepMap] | None = None
        self.symbols, self.inner_dt, self._implicit = self._make_symbols()
        self._as_mechanism, self._as_kernel = self._mechanical, self._extended_kernel
        self._made_of = self.steps, self.freed, self.kept, self.disturbances, self.biases

    def _read_disturbances(self, names: tuple[str, ...]) -> None:
        """Set two matrices by which disturbances act on the inner map.
        The matrix `_to_inputs` (nu, nd) adds them to the inputs, and `_to_states` (ndx, nd) to the states.
        """
        f = self.inner
        known = tuple(dict.fromkeys((*f.input_names, *f.state_names)))
        self.disturbances = tuple(meaning(n, known, "disturbances") for n in names)
        self._to_inputs, self._to_states = np.zeros((f.nu, len(names))), np.zeros((f.ndx, len(names)))
        for j, n in enumerate(self.disturbances):
            if n in f.input_names:
                self._to_inputs[f.input_names.index(n), j] = 1.0
            elif self.steps or f.ndx != f.nx:
                why = "a free duration" if self.steps else f"{type(f).__name__}, whose errors are no states"
                raise ModelError(f"disturbances: {n!r} is a state, which goes not with {why}; name inputs")
            else:
                self._to_states[f.state_names.index(n), j] = 1.0
        self._pushes_states = bool(self._to_states.any())

    def _make_symbols(self) -> tuple[Symbols, ca.SX, Implicit | None]:
        """Return the symbols of this map, the inner map's step length, and its implicit quantities.
        The implicit quantities, such as velocities, are solutions of linear equations. The third result is
        None if the inner map has no implicit quantities.

        The constants are appended to the symbols of the inner state.
        """
        s, names = self.inner.symbols, list(self.inner.parameters)
        T, starts = ca.SX.sym(DURATION, 1 if self.steps else 0), ca.SX.sym("start", len(self.kept))
        pushes, biases = ca.SX.sym(DISTURBANCE, len(self.disturbances)), ca.SX.sym(BIAS, len(self.biases))
        free, rest = ([names.index(n) for n in group] for group in (self.freed, self.parameters))

        def constants(theta: ca.SX) -> ca.SX:
            return ca.vertcat(T, entries(theta, free), starts, pushes, biases)

        x, parameters = ca.vertcat(s.x, constants(s.parameters)), entries(s.parameters, rest)
        step = ca.SX.sym("dt") if self.steps else s.dt
        implicit = self.inner.mechanism.implicit
        extension = implicit and implicit.extended(x, parameters, constants, rest)
        return Symbols(x, s.u, s.multipliers, parameters, step), T * step if self.steps else step, extension

    # -- the state space ------------------------------------------------------------------------

    def join(self, x: Any, constants: Mapping[str, float] | None = None) -> np.ndarray:
        """Return a state from the inner map's state and the values of constants by name.

        By default constants have the values of the inner map.
        """
        x = self.inner.check_state(x)
        values = dict(zip(self.constants, self._defaults(x), strict=True)) | dict(constants or {})
        return np.concatenate([x, [float(values[n]) for n in self.constants]])

    def _defaults(self, x: np.ndarray) -> np.ndarray:
        """Return default values of the constants in this map's state.
        They can depend on the state x of the inner map.
        """
        duration = [self.steps * self.inner.dt] if self.steps else []
        values = [self.inner.parameters[n] for n in self.freed]
        starts = [x[self.inner.state_names.index(n)] for n in self.kept]
        return np.array([*duration, *values, *starts, *np.zeros(len(self.disturbances) + len(self.biases))])

    def state(self, values: Mapping[str, float] | None = None, **named: float) -> np.ndarray:
        """Return a state of this map from the values of its components, given by name.
        The components are the states of the inner map and the constants that this map adds to them, such as a
        duration, parameters or disturbances. Omitted constants have the values of the inner map.
        """
        values = {**(values or {}), **named}
        inner = self.inner.state({n: v for n, v in values.items() if n not in self.constants})
        return self.join(inner, {n: v for n, v in values.items() if n in self.constants})

    def initial_state(self, q: Any = None, v: Any = None, u: Any = None, **named: float) -> np.ndarray:
        """Return an initial state with the given configurations and velocities.
        The constants, such as a duration, have their default values.

        The defaults are those of `join`.
        """
        return self.join(self.inner.initial_state(q, v, u, **named))

    # -- steps ----------------------------------------------------------------------------------

    def owner(self, constants: np.ndarray) -> OneStepMap:
        """Return the inner map with its parameters set to the values that the `constants` contain.
        The `constants` are those components of this map's state that follow the inner map's state.
        """
        if not self.freed:
            return self.inner
        first = 1 if self.steps else 0
        values = np.ascontiguousarray(constants[first : first + len(self.freed)])
        known = self._at_parameters
        if known is None or known[0] != values.tobytes():
            try:
                f = self.inner.trying(**dict(zip(self.freed, values.tolist(), strict=True)))
            except ModelError as error:  # for a trial: another one may succeed
                raise StepError(str(error), 0, float("nan"), "not finite") from None
            self._at_parameters = known = values.tobytes(), f
        return known[1]

    def seconds(self, constants: np.ndarray, k: int = 0) -> float:
        """Return the number of seconds in one unit of this map's time.
        If the total duration of the motion is a state, it is the unit of time; otherwise the unit is 1 s.
        `StepError` is raised if the duration is not positive.
        """
        if not self.steps:
            return 1.0
        T = float(constants[0])
        if not (T > 0 and np.isfinite(T)):
            raise StepError(f"step {k}: the duration is {T:g} s", k, float("nan"), "not finite")
        return T

    def _pushes(self, constants: np.ndarray) -> np.ndarray:
        """Return those entries of the constants that are disturbances.

        The shapes are (..., number of constants) -> (..., nd).
        """
        end = constants.shape[-1] - len(self.biases)
        return constants[..., end - len(self.disturbances) : end]

    @property
    def matched(self) -> bool:
        """Flag, True if each constant in the state is a sensor bias or a disturbance of an input."""
        return len(self.constants) == len(self.disturbances) + len(self.biases) and not self._pushes_states

    def input_disturbance(self, constants: np.ndarray) -> np.ndarray:
        """Return the disturbances (..., nu) that are added to the inputs, given the constants (..., nc)."""
        return self._pushes(constants) @ self._to_inputs.T

    def _starts(self, lengths: np.ndarray, k0: int, unit: float, t: np.ndarray | None) -> np.ndarray:
        """Return the start times (N,) of the inner map's steps, s.
        The `unit` is the number of seconds in one unit of this map's time, in which t and `lengths` are
        given.
        """
        return times_of(unit * lengths, k0, unit * self.dt)[:-1] if t is None else unit * t

    def run(
        self,
        x0: np.ndarray,
        U: np.ndarray,
        k0: int,
        lengths: np.ndarray,
        X: np.ndarray | None = None,
        K: np.ndarray | None = None,
        *,
        t: np.ndarray | None = None,
    ) -> Trajectory:
        if self._pushes_states:
            return stepwise(self, x0, U, k0, lengths, X, K, t)
        (a, c), n = self.split(x0), self.inner.ndx
        unit = self.seconds(c, k0)
        f, starts = self.owner(c), self._starts(lengths, k0, unit, t)
        feedback: tuple[Any, Any] = None, None
        if X is not None and K is not None:
            b, d = self.split(X)
            U = U - np.einsum("kij,kj->ki", K[:, :, n:], c - d[: len(U)])
            feedback = np.ascontiguousarray(b), np.ascontiguousarray(K[:, :, :n])
        inputs = U + self.input_disturbance(c)
        inner = f.run(a, inputs, k0, unit * lengths, *feedback, t=starts)
        return self.outer_trajectory(inner, c, self.times(lengths, k0, t))

    def _mechanical(self) -> Mechanism:
        def review(trajectory: Trajectory) -> None:
            run = self.inner_trajectory(trajectory)
            run.map.mechanism.review(run)

        def force_rounding(dt: float) -> float:
            return self.inner.mechanism.force_rounding(dt * (self.inner.dt / self.dt))

        return around(self, review, force_rounding=force_rounding, implicit=self._implicit)

    def outer_trajectory(self, run: Trajectory, constants: np.ndarray, t: np.ndarray) -> Trajectory:
        """Convert a trajectory of the inner map to one of this map, with the sample times t.
        The `constants` are appended to every state.
        """
        x = np.hstack([run.x, np.tile(constants, (len(run.x), 1))])
        u = run.u - self.input_disturbance(constants)
        return Trajectory(self, t, x, u, run.multipliers, k0=run.k0)

    def inner_trajectory(self, run: Trajectory) -> Trajectory:
        """Return the same motion as a trajectory of the inner map.
        The states of the inner map do not contain the constants, and its inputs include the disturbances.

        Its map has the step length and the parameters of the run.
        """
        x, c = self.split(run.x)
        unit, f = self.seconds(c[0], run.k0), self.owner(c[0])
        f = f.with_dt(unit * self.dt) if self.steps else f
        t = f.times(unit * run.step_lengths, run.k0)
        x, u = np.ascontiguousarray(x), run.u + self.input_disturbance(c[0])
        return Trajectory(f, t, x, u, run.multipliers, k0=run.k0).on_its_step()

    def _extended_kernel(self) -> Kernel | None:
        """Return the CasADi function of the inner map's step, with disturbances added.
        Return None if the state contains a duration or parameters, whose values must be checked at every
        step.
        """
        inner, n = self.inner.kernel, self.inner.nx
        if inner is None or self.steps or self.freed:
            return None
        x, u, t, dt, theta = args = kernel_symbols(self)
        end = self.nx - len(self.biases)
        d = x[end - len(self.disturbances) : end]
        x1, multipliers, error = inner.function(x[:n], u + ca.DM(self._to_inputs) @ d, t, dt, theta)
        pushed = x1 + dt * (ca.DM(self._to_states) @ d) if self._pushes_states else x1
        function = ca.Function("extended", args, [ca.vertcat(pushed, x[n:]), multipliers, error])
        return Kernel(function, inner.tolerance, self.space.difference_expression)

    # -- derivatives ----------------------------------------------------------------------------

    def steps_at(self, X: Any, U: Any, k0: int = 0, dt: Any = None, *, t: np.ndarray | None = None) -> Steps:
        """Take one step from each of N states.
        If the duration is a state, it must have the same value in all N states.
        """
        X, U = points_of(self, X, U)
        (x, constants), h = self.split(X), self.lengths(dt, len(U))
        if self.steps and not (constants[:, 0] == constants[:1, 0]).all():
            raise ValueError("steps_at: expected states with the same duration")
        pieces = self._pieces(constants)
        if len(pieces) > 1:
            every = self.times(h, k0, t)
            parts = [self.steps_at(X[r], U[r], k0 + r.start, h[r], t=every[r]) for r in pieces]
            return Steps.joined(parts)
        c = constants[0] if len(U) else self._defaults(np.zeros(self.inner.nx))
        unit, d = self.seconds(c, k0), self._pushes(constants)
        f, starts = self.owner(c), self._starts(h, k0, unit, t)
        inputs = U + self.input_disturbance(constants)
        inner = f.steps_at(np.ascontiguousarray(x), inputs, k0, unit * h, t=starts)
        ends = inner.x1 + h[:, None] * (d @ self._to_states.T) if self._pushes_states else inner.x1
        x0, x1 = (np.hstack([a, constants]) for a in (inner.x0, ends))
        return replace(inner, x0=x0, x1=x1, u=U, t=self.times(h, k0, t)[:-1], h=h)

    def _pieces(self, constants: np.ndarray) -> list[slice]:
        """Return ranges of successive steps in which the inner map's parameters do not change.
        The array `constants` has a row for each step; some of its columns are parameter values.
        """
        first = 1 if self.steps else 0
        values = constants[:, first : first + len(self.freed)]
        cuts = np.flatnonzero((values[1:] != values[:-1]).any(axis=1)) + 1
        return [slice(a, b) for a, b in pairwise([0, *cuts.tolist(), len(values)])]

    def _inner(self, steps: Steps) -> tuple[OneStepMap, Steps, float]:
        """Convert steps of this map to steps of the inner map.
        Return the inner map, its steps, and the number of seconds in one unit of this map's time.
        """
        (x0, constants), (x1, _) = self.split(steps.x0), self.split(steps.x1)
        c = constants[0] if len(steps) else self._defaults(np.zeros(self.inner.nx))
        unit, d = self.seconds(c, int(steps.k[0]) if len(steps) else 0), self._pushes(constants)
        ends = x1 - steps.h[:, None] * (d @ self._to_states.T) if self._pushes_states else x1
        x0, x1 = np.ascontiguousarray(x0), np.ascontiguousarray(ends)
        inner = replace(steps, x0=x0, x1=x1, u=steps.u + self.input_disturbance(constants))
        return self.owner(c), replace(inner, t=unit * steps.t, h=unit * steps.h), unit

    def _first(self, steps: Steps, timed: bool) -> Linearization:
        pieces = self._pieces(self.split(steps.x0)[1])
        if len(pieces) > 1:
            return Linearization.joined([self._first(steps.piece(r), timed) for r in pieces])
        f, inner, unit = self._inner(steps)
        by_times = timed or bool(self.steps)
        lin = derivatives_of(f, by_times).first(inner)
        J = self._chain(steps, unit, by_times, timed)
        n, extra = f.ndx, len(self.constants)
        states, multipliers = np.split(lin.matrix @ J, [n], axis=1)
        if self._pushes_states:
            by_pushes = self._pushes(np.arange(n, n + extra))
            states[:, :, by_pushes] += steps.h[:, None, None] * self._to_states
            if timed:
                d = self._pushes(self.split(steps.x0)[1])
                states[:, :, -TIMES] += d @ self._to_states.T
        same = np.zeros((len(steps), extra, J.shape[2]))
        same[:, :, n : n + extra] = np.eye(extra)
        return Linearization.of(np.concatenate([states, same], axis=1), multipliers, self.nu)

    def _second(self, steps: Steps, Z: np.ndarray, zeta: np.ndarray, timed: bool) -> SecondOrder:
        pieces = self._pieces(self.split(steps.x0)[1])
        if len(pieces) > 1:
            parts = [self._second(steps.piece(r), Z[r], zeta[r], timed) for r in pieces]
            return SecondOrder.joined(parts)
        f, inner, unit = self._inner(steps)
        by_times = timed or bool(self.steps)
        Z = np.ascontiguousarray(Z[:, : f.ndx])
        H = derivatives_of(f, by_times).second(inner, Z, zeta)
        J = self._chain(steps, unit, by_times, timed)
        whole = np.swapaxes(J, 1, 2) @ H.matrix @ J
        if timed and self.steps:  # products T h and T t
            lin = f.derivatives.timed.first(inner)
            slopes = (Z[:, None] @ lin.P[:, :, -TIMES:] + zeta[:, None] @ lin.E[:, :, -TIMES:])[:, 0]
            whole[:, f.ndx, -TIMES:] += slopes
            whole[:, -TIMES:, f.ndx] += slopes
        if timed and self._pushes_states:
            columns = self._pushes(np.arange(f.ndx, self.ndx))
            whole[:, columns, -TIMES] += Z @ self._to_states
            whole[:, -TIMES, columns] += Z @ self._to_states
        return SecondOrder.of(whole, self.ndx, self.nu)

    def _chain(self, steps: Steps, unit: float, by_times: bool, timed: bool) -> np.ndarray:
        """Return the derivatives of the inner map's arguments with respect to this map's arguments.
        The arguments of a step are the state error, the input and the parameters. With `by_times`, the step
        length and the start time are also arguments of the inner map; with `timed`, also of this map.
        """
        f, names = self.inner, list(self.inner.parameters)
        n, m, extra, first = f.ndx, self.nu, len(self.constants), 1 if self.steps else 0
        rows = n + m + len(names) + TIMES * by_times
        first_parameter = n + extra + m  # first column of this map's parameters
        J = np.zeros((len(steps), rows, first_parameter + len(self.parameters) + TIMES * timed))
        J[:, :n, :n] = np.eye(n)
        J[:, n : n + m, n + extra : first_parameter] = np.eye(m)
        J[:, n : n + m, self._pushes(np.arange(n, n + extra))] = self._to_inputs
        for i, name in enumerate(self.freed):
            J[:, n + m + names.index(name), n + first + i] = 1.0
        for i, name in enumerate(self.parameters):
            J[:, n + m + names.index(name), first_parameter + i] = 1.0
        if self.steps:
            J[:, -TIMES, n], J[:, -1, n] = steps.h, steps.t
        if timed:
            J[:, -TIMES, -TIMES] = J[:, -1, -1] = unit
        return J

    @cached_property
    def residual(self) -> ca.Function | None:
        inner = self.inner.residual
        if inner is None or self.inner.mechanism.relaxed() is not None:  # those of contacts determine no step
            return None
        kind = ca.SX if inner.is_a("SXFunction") else ca.MX
        s, n, first = self.symbols, self.inner.nx, 1 if self.steps else 0
        sizes = self.nx, self.nu, self.nx, s.multipliers.numel(), 1, 1, len(self.parameters)
        args = [kind.sym(f"a{i}", size) for i, size in enumerate(sizes)]
        x, u, x1, lam, t, dt, theta = args
        unit, constants = x[n] if self.steps else 1, x[n:]
        values = dict(zip(self.parameters, ca.vertsplit(theta), strict=True)) if self.parameters else {}
        values |= {name: constants[first + i] for i, name in enumerate(self.freed)}
        whole = ca.vertcat(kind(0, 1), *(values[name] for name in self.inner.parameters))
        pushed, end = u, x1[:n]
        if self.disturbances:
            d = constants[self._pushes(np.arange(len(self.constants))).tolist()]
            pushed = u + ca.DM(self._to_inputs) @ d
            end = end - dt * (ca.DM(self._to_states) @ d) if self._pushes_states else end
        rows = inner(x[:n], pushed, end, lam, unit * t, unit * dt, whole)
        return ca.Function("residual", args, [ca.vertcat(rows, x1[n:] - constants)])

    # -- names ----------------------------------------------------------------------------------

    def expression(self, of_inner: ca.SX) -> ca.SX:
        """Rewrite an expression in the inner map's symbols as one in this map's symbols."""
        dt, u, e = self.inner.symbols.dt, self.inner.symbols.u, ca.SX(of_inner)
        if self.disturbances and ca.depends_on(e, u):
            c = self.symbols.x[self.inner.nx :]
            d = ca.vertcat(*(c[int(i)] for i in self._pushes(np.arange(c.numel()))))
            e = ca.substitute(e, u, u + ca.DM(self._to_inputs) @ d)
        return ca.substitute(e, dt, self.inner_dt) if self.steps and ca.depends_on(e, dt) else e

    def _unit(self, name: str) -> str | None:
        if name not in self.constants:
            return None
        of = name.removeprefix(START).removeprefix(BIAS).removeprefix(DISTURBANCE)
        if name.startswith(DISTURBANCE):
            return self.inner.unit(INPUTS + of) if of in self.input_names else ""
        return "s" if name == DURATION else self.inner.unit(of)

    def with_dt(self, dt: float) -> ExtendedMap:
        if not self.steps:
            return super().with_dt(dt)
        twin = self.with_each(lambda f: f)
        twin.dt = float(dt)
        return twin

    def with_parameters(self, **values: float) -> ExtendedMap:
        return self._copy(super().with_parameters, values)

    def trying(self, **values: float) -> ExtendedMap:
        return self._copy(super().trying, values)

    def _copy(self, change: Callable[..., ExtendedMap], values: Mapping[str, float]) -> ExtendedMap:
        if any(n in self.freed for n in values):
            raise ModelError(f"{next(n for n in values if n in self.freed)!r} is a state of this map")
        twin = change(**values)
        twin.dt = self.dt
        return twin

    def __reduce__(self):
        return _rebuilt, (self.inner, *self._made_of, self.dt)

    def __repr__(self) -> str:
        return f"ExtendedMap({self.inner!r}, with {', '.join(self.constants)})"


def _rebuilt(*made_of: Any) -> ExtendedMap:
    f = ExtendedMap(*made_of[:-1])
    f.dt = made_of[-1]
    return f
