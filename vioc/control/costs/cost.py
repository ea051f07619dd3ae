"""Costs of trajectories, with exact first and second derivatives.

    g(xi) = sum over k < N of w_k l(x_k, u_k, lambda_k, ref_k) + m(x_N, ref_N)

with w_k the length of step k, or 1. See docs/maths/optimal_control.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import casadi as ca
import numpy as np

from vioc.checks import check_array, finite
from vioc.compile.evaluate import Evaluator
from vioc.compile.programs import Program
from vioc.control.costs.functions import (
    CostPart,
    Slopes,
    at_arguments,
    described,
    end_function,
    reference_rows,
)
from vioc.control.costs.squares import Squares
from vioc.control.linear.tangent import error_expansion
from vioc.control.linear.weights import absolute
from vioc.errors import OptimizationError
from vioc.maps.derivatives import Linearization
from vioc.maps.protocol import OneStepMap
from vioc.runs.given import trajectory_of
from vioc.runs.steps import check_steps
from vioc.runs.trajectory import Trajectory

Predicted = tuple[np.ndarray | None, np.ndarray | None]
Bending = tuple[Slopes | None, Slopes | None]


@dataclass(frozen=True)
class Expansion:
    """Second-order expansion of a cost about a trajectory.

    Attributes
    ----------
    first, second : (N, q), (N, q, q)
        Gradients and Hessians of the steps with respect to z = (error of x, u) of q entries, times the step
        weights w_k. They include first derivatives of the map's multipliers; the terms with second
        derivatives are those of ``second_order_trajectory(zeta=zeta)``.
    end, end_second : (ndx,), (ndx, ndx)
        Gradient and Hessian of the terminal cost.
    zeta : (N, nm) or None
        Derivative of the cost with respect to the multipliers; None if the cost does not use them.
    weights : (N,)
        Step weights w_k.
    slopes : pair of Slopes or None
        Nonlinear residuals of the running and of the terminal cost, without w_k.
    """

    first: np.ndarray
    second: np.ndarray
    end: np.ndarray
    end_second: np.ndarray
    zeta: np.ndarray | None
    weights: np.ndarray
    slopes: Bending = (None, None)

    @cached_property
    def lx(self) -> np.ndarray:
        """Gradient (N+1, ndx) of the cost with respect to the errors of the N+1 states.
        An error is a small displacement of a state, a tangent vector.
        """
        return np.concatenate([self.first[:, : len(self.end)], self.end[None]])

    @cached_property
    def lu(self) -> np.ndarray:
        """Gradient of the cost with respect to the inputs of all N steps, (N, nu)."""
        return np.ascontiguousarray(self.first[:, len(self.end) :])

    @cached_property
    def lxx(self) -> np.ndarray:
        """Hessians (N+1, ndx, ndx) of the cost with respect to the errors of N+1 states.
        An error is a small displacement of a state, a tangent vector.
        """
        n = len(self.end)
        return np.concatenate([self.second[:, :n, :n], self.end_second[None]])

    @cached_property
    def lxu(self) -> np.ndarray:
        """Mixed second derivatives (N, ndx, nu) of the cost in all N steps.
        They are with respect to the errors of the states and to the inputs. An error is a small displacement
        of a state, a tangent vector.
        """
        n = len(self.end)
        return np.ascontiguousarray(self.second[:, :n, n:])

    @cached_property
    def luu(self) -> np.ndarray:
        """Hessians of the cost with respect to the inputs of all N steps, (N, nu, nu)."""
        n = len(self.end)
        return np.ascontiguousarray(self.second[:, n:, n:])


class Family:
    """Identifier shared by costs that differ only in their reference values.

    Functions built for one cost of a family are reused by the others.
    """


class Cost:
    """Running and terminal cost of a trajectory, as CasADi expressions.
    These are expressions in the CasADi symbols of a map: its state, input, multipliers and parameters.

    Parameters
    ----------
    f : OneStepMap
    running, terminal : casadi.SX, float or Squares
        Scalars in ``f.symbols`` and the symbols of `references`; `running` may use x, u, multipliers and
        parameters, `terminal` x and parameters. ``f.quantity(name)`` gives named expressions. Weighted sums
        of squares in them are detected (`Squares.of`) and yield the Gauss-Newton Hessian J'WJ. Pass `Squares`
        for another convex function of residuals.
    references : sequence of (symbol, values), optional
        Time-varying data: an SX column of s symbols with values of shape (N+1, s), or (N+1,) for one
        symbol; N rows suffice if `terminal` does not use them. Row k belongs to sample k of the
        trajectory.
    per_time : bool
        True to weight step k by its length dt_k (s), so that the sum approximates an integral; False to
        weight it by 1.

    Raises
    ------
    ValueError
        If a cost is not scalar or has unknown symbols, if reference values have the wrong shape or are not
        finite, or for a map whose errors are not its states and that has no `retract_expression`.

    Attributes
    ----------
    running, terminal : Evaluator
        Functions of (x, u, multipliers, parameters, dt, reference), for one point or rows of points; without
        step weights.
    running_derivatives, terminal_derivatives : Evaluator
        Gradient and Hessian of the running cost with respect to (error of x, u, multipliers), and of the
        terminal cost with respect to the error of x.
    uses_multipliers : bool
        True if the running cost depends on the multipliers.

    Examples
    --------
    >>> cost = Cost(f, 0.5 * ca.sumsqr(f.symbols.u), 50 * (f.quantity("theta") - np.pi) ** 2)
    """

    def __init__(
        self,
        f: OneStepMap,
        running: Any = 0.0,
        terminal: Any = 0.0,
        *,
        references: Sequence[tuple[ca.SX, Any]] = (),
        per_time: bool = True,
    ):
        self.map = f
        self.per_time = bool(per_time)
        symbols = [ca.vec(ca.SX(symbol)) for symbol, _ in references]
        self._references = [
            reference_rows(s, values) for s, (_, values) in zip(symbols, references, strict=True)
        ]
        self._stacked: np.ndarray | None = None
        _, u, lam, _, dt = f.symbols
        args = [*f.symbols, ca.vertcat(*symbols) if symbols else ca.SX(0, 1)]
        self._running = CostPart("running", f, args, running, u, lam)
        self._terminal = CostPart("terminal", f, args, terminal)
        l, m = (part.function(*args) for part in (self._running, self._terminal))
        steps = (("an input", u), ("a multiplier", lam), ("a step length", dt))
        labels = [n for n, s in steps if ca.depends_on(m, s)]
        if labels:
            raise ValueError(f"terminal cost: depends on {labels[0]}, and no step starts at the last state")
        self._ends = [bool(ca.depends_on(m, s)) for s in symbols]
        self.uses_multipliers = bool(lam.numel() and ca.depends_on(l, lam))
        self._end = Evaluator(partial(end_function, f, self._terminal))
        self.family = Family()

    def __reduce__(self):
        functions = self._running.lifted, self._terminal.lifted
        return _rebuild, (self.map, *functions, self._references, self.per_time)

    def check_map(self, f: OneStepMap) -> None:
        """Raise ValueError unless the cost can be used with a given map.
        The map must have the states, inputs, multipliers, parameters and step length of the cost's own map.
        """
        if self.map.state_names != f.state_names or self.map.input_names != f.input_names:
            raise ValueError("cost: it was built on a map with other states or inputs")
        if self.map.multiplier_names != f.multiplier_names or [*self.map.parameters] != [*f.parameters]:
            raise ValueError("cost: it was built on a map with other multipliers or parameters")
        check_steps(self.map.dt, f.dt, "cost", "the map", "build it on this map")

    # -- expressions ----------------------------------------------------------------------------

    @property
    def references(self) -> tuple[np.ndarray, ...]:
        """Values of the references (time-varying data): one array for each reference.
        Each array has a row for each sample.
        """
        return tuple(self._references)

    @property
    def reference_size(self) -> int:
        """Number of reference values at one sample."""
        return self._running.function.numel_in(5)

    @property
    def operations(self) -> int:
        """Number of CasADi instructions in the function of the running cost."""
        return self._running.function.n_instructions()

    @property
    def running(self) -> Evaluator:
        return self._running.value

    @property
    def terminal(self) -> Evaluator:
        return self._terminal.value

    @property
    def running_derivatives(self) -> Evaluator:
        return self._running.exact

    @property
    def terminal_derivatives(self) -> Evaluator:
        return self._terminal.exact

    def running_at(self, *args: Any) -> ca.SX:
        """Return the running cost of a step as an expression of CasADi symbols `args`.

        The symbols are (x, u, multipliers, parameters, dt, reference), with the step length dt. If the
        implicit quantities `Mechanism.implicit` are a further argument, the cost is a function of these too,
        see `lifts`. The cost is not multiplied by the step length, even if it is a cost per second.
        """
        return self._running.expression(*args)

    def running_squares(self, *args: Any) -> Squares:
        """Return the running cost of a step as `Squares`, for CasADi symbols `args`.

        The symbols stand for state, input, multipliers, parameters, step length and references. The cost is
        split into phi(r) and other terms, with a convex function phi of residuals r, e.g. a weighted sum of
        squares.
        """
        return self._running.squares(*args)

    def terminal_at(self, *args: Any) -> ca.SX:
        """Return the terminal cost as an expression of CasADi symbols `args`.
        The symbols stand for state, input, multipliers, parameters, step length and references.

        The arguments are those of `running_at`; only x, parameters and reference have an effect.
        """
        return self._terminal.expression(*args)

    @property
    def lifts(self) -> tuple[bool, bool]:
        """Flags that tell if the running and the terminal cost use implicit quantities.
        Implicit quantities (`Mechanism.implicit`) are solutions of linear equations, for example velocities
        that follow from momenta.
        """
        return self._running.in_quantities is not None, self._terminal.in_quantities is not None

    def terminal_squares(self, *args: Any) -> Squares:
        """Return the terminal cost as `Squares`, for CasADi symbols `args`.

        The symbols stand for state, input, multipliers, parameters, step length and references. The cost is
        split into phi(r) and other terms, with a convex function phi of residuals r, e.g. a weighted sum of
        squares.
        """
        return self._terminal.squares(*args)

    @cached_property
    def only_time(self) -> bool:
        """True if the cost is only a constant per second, as for minimum time.
        An example is `dmoc.minimum_time`.
        """
        s = self.map.symbols
        args = (*s, ca.SX.sym("reference", self.reference_size))
        running, terminal = self.running_at(*args), self.terminal_at(*args)
        motion = ca.vertcat(s.x, s.u, s.multipliers, s.dt, args[-1])
        constant = not ca.depends_on(ca.vertcat(running, terminal), motion)
        return constant and not running.is_zero()

    def with_references(self, *rows: np.ndarray) -> Cost:
        """Return this cost with other reference values, reusing its compiled functions.

        The values are in the order of `references`.
        """
        if len(rows) != len(self._references):
            raise ValueError(f"references: expected {len(self._references)}, got {len(rows)}")
        twin = object.__new__(type(self))  # `copy` would pickle, which builds functions again
        references = [
            check_array(new, (len(new), old.shape[1]), "reference")
            for new, old in zip(rows, self._references, strict=True)
        ]
        twin.__dict__.update(self.__dict__, _references=references, _stacked=None)
        return twin

    @cached_property
    def constant_hessian(self) -> np.ndarray | None:
        """Constant Hessian of the running cost, or None if the Hessian varies.
        Derivatives are taken with respect to the error of the state (a tangent vector) and the input.
        """
        if self.uses_multipliers:
            return None
        f = self.map
        args = [*f.symbols, ca.SX.sym("reference", self.reference_size)]
        H = ca.simplify(error_expansion(f, self._running.squares(*args).value, f.symbols.u)[1])
        if ca.symvar(H):
            return None
        return ca.DM(H).full()

    def end(self, x: np.ndarray, parameters: np.ndarray, reference: np.ndarray, sizes: np.ndarray):
        """Return the terminal cost at a state, with its first and second derivatives.
        The results are value, gradient (ndx,), Hessian and Gauss-Newton Hessian (ndx, ndx). `sizes` are the
        typical sizes (ndx,) of the state's errors, as in `expand`.
        """
        m, gradient, hessian, squares, rest = self._end(x, parameters, reference)
        if rest.any() and np.isfinite(rest).all():
            squares = squares + absolute(rest, sizes)
        return float(m[0, 0]), gradient[:, 0], hessian, squares

    @property
    def end_program(self) -> Program:
        """Compiled function of the terminal cost with its gradient and Hessians.

        Its arguments are arrays (x, parameters, reference); its outputs are flat.
        """
        return self._end.program

    # -- along a trajectory ---------------------------------------------------------------------

    def step_weights(self, trajectory: Trajectory) -> np.ndarray:
        """Return the factors (N,) by which the running costs of the steps are multiplied.
        They are the step lengths in s if the cost is per time, and 1 otherwise.
        """
        return trajectory.step_lengths if self.per_time else np.ones(len(trajectory))

    def value(self, trajectory: Trajectory) -> float:
        """Return the cost of a trajectory.

        Raises
        ------
        OptimizationError
            If the cost is not finite; the message names the first time index.
        """
        trajectory = trajectory_of(trajectory)
        running, terminal = self._arguments(trajectory)
        n = len(trajectory)
        terms = np.empty(n + 1)
        np.multiply(self.step_weights(trajectory), self.running(*running)[0][:, 0, 0], out=terms[:n])
        terms[n] = self.terminal(*terminal)[0][0, 0]
        total = float(terms.sum())
        if not math.isfinite(total):
            bad = np.flatnonzero(~np.isfinite(terms))
            k = int(bad[0]) if len(bad) else len(terms) - 1
            part = "terminal" if k == n else "running"
            raise OptimizationError(
                f"the {part} cost is {terms[k]} at k = {k} (t = {trajectory.t[k]:g} s), "
                f"x = {trajectory.x[k]}; check its domain and the size of the trajectory there"
            )
        return total

    def expand(
        self,
        trajectory: Trajectory,
        lin: Linearization,
        sizes: np.ndarray | None = None,
        predicted: Predicted = (None, None),
    ) -> Expansion:
        """Return gradient and Hessian of the cost along a trajectory.

        Derivatives are taken with respect to errors of the states and inputs; `lin` is the linearization of
        the trajectory. With lambda = lambda(x, u), C = D_x lambda and D = D_u lambda, the gradient is l_x +
        C' l_lambda, l_u + D' l_lambda. The Hessian is T' l'' T, where T is the derivative of (x, u, lambda)
        with respect to (x, u). The trajectory's states need not follow from its inputs.

        Parameters
        ----------
        sizes : (ndx + nu,), optional
            Typical sizes of errors of the state and of inputs. With sizes, the Hessian is that of the
            Gauss-Newton method, which is positive semi-definite everywhere: J'WJ for the squares of
            residuals, plus the Hessian of the remaining cost with its eigenvalues replaced by their
            magnitudes. Eigenvalues are those in units of the sizes. By default the Hessian is exact.
        predicted : pair of arrays
            Nonlinear residuals rho that the method `predicted` predicted for the step to this iterate. Their
            multipliers W rho replace W r in the exact Hessian.

        Raises
        ------
        OptimizationError
            If a derivative is not finite; the message names the first time index.
        """
        trajectory = trajectory_of(trajectory)
        running, terminal = self._arguments(trajectory)
        w = self.step_weights(trajectory)
        nx, nu, n = self.map.ndx, self.map.nu, len(trajectory)
        along, end = self._running, self._terminal
        if sizes is None:
            of_path, of_end = along.second(predicted[0], *running), end.second(predicted[1], *terminal)
        else:
            whole = sizes
            if self.uses_multipliers:  # their sizes are those of their changes with state and input
                changes = np.concatenate([lin.C, lin.D], axis=2) * sizes
                largest = np.abs(changes).sum(axis=2).max(axis=0)
                whole = np.concatenate([sizes, np.where(largest > 0, largest, 1.0)])
            of_path = along.gauss_newton(whole, *running)
            of_end = end.gauss_newton(sizes[: self.map.ndx], *terminal)
        (first, second, path), (dm, ddm, last) = of_path, of_end
        first, second = w[:, None] * first[..., 0], w[:, None, None] * second
        named = ("running", first), ("running", second), ("terminal", dm), ("terminal", ddm)
        for what, values in named if not finite(first, second, dm, ddm) else ():
            if not np.isfinite(values).all():
                k = n if what == "terminal" else int(np.argwhere(~np.isfinite(values))[0, 0])
                raise OptimizationError(
                    f"the {what} cost has a derivative that is not finite at k = {k}, x = {trajectory.x[k]}"
                )
        zeta = None
        if self.uses_multipliers:
            zeta = np.ascontiguousarray(first[:, nx + nu :])
            T = np.concatenate(
                [
                    np.broadcast_to(np.eye(nx + nu), (n, nx + nu, nx + nu)),
                    np.concatenate([lin.C, lin.D], axis=2),
                ],
                axis=1,
            )
            first = np.einsum("kab,ka->kb", T, first)
            second = np.swapaxes(T, 1, 2) @ second @ T
        q = nx + nu
        return Expansion(first[:, :q], second[:, :q, :q], dm[:, 0], ddm, zeta, w, (path, last))

    def predicted(
        self,
        slopes: Bending,
        lin: Linearization,
        dx: np.ndarray,
        du: np.ndarray,
        before: Predicted = (None, None),
        length: float = 1.0,
    ) -> Predicted:
        """Predict the nonlinear residuals of the cost after a step of a search.
        The step is the fraction `length` of the search direction dx (of states) and du (of inputs).

        The prediction for a full step is r + J dz, with the residuals r and their Jacobian J in `slopes`, a
        result of `expand`. If `before`, the prediction for the present iterate, is given, the result is
        interpolated linearly between both. Return residuals (N, n) of the running cost and (n,) of the
        terminal cost, None if there are none.
        """
        along, end = slopes
        path = None if along is None else along.predicted(_with_multipliers(lin, dx, du)[0])
        both = zip(before, (path, None if end is None else end.predicted(dx[-1])), strict=True)
        path, last = (b if a is None or b is None else a + length * (b - a) for a, b in both)
        return path, last

    def misprediction_cost(self, slopes: Bending, predicted: Predicted, trajectory: Trajectory) -> float:
        """Return the cost 1/2 e'We of the errors e of predicted residuals.

        It is the sum of w 1/2 e'We over all steps and the last state, with the step weight w, or 1 for the
        last state. The error e = r - rho is the actual value r of the cost's nonlinear residuals minus their
        prediction rho, the argument `predicted`. `slopes` contains the weight matrix W, which does not depend
        on the state.
        """
        of_path, of_end = self._arguments(trajectory)
        total, parts = 0.0, (self._running, self._terminal)
        weights, arguments = (self.step_weights(trajectory), 1.0), (of_path, of_end)
        for part, slope, rho, w, args in zip(parts, slopes, predicted, weights, arguments, strict=True):
            if part.bent is not None and slope is not None and rho is not None:
                total += float(np.sum(w * slope.misprediction_cost(rho, part.bent.values(*args)[0])))
        return total

    def beyond(
        self, slopes: Bending, lin: Linearization, new: Trajectory, dx: np.ndarray, du: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray] | None:
        """Return J'We, a correction of the cost's gradient for prediction errors e.

        The error e = r1 - r - J dz is the actual value r1 of the cost's nonlinear residuals along the
        trajectory `new`, after a step (dx, du), minus their linear prediction. J is the Jacobian of these
        residuals, and W their weight matrix. Shapes are (N, ndx + nu) for the stages and (ndx,) for the end.
        Return None if all residuals are linear.
        """
        (a, b), (along, end) = slopes, (self._running.bent, self._terminal.bent)
        if a is None and b is None:
            return None
        path, last = self._arguments(new)
        n, q = self.map.ndx, self.map.ndx + self.map.nu
        g, g_end = np.zeros((len(new), q)), np.zeros(n)
        if a is not None and along is not None:
            dz, T = _with_multipliers(lin, dx, du)
            slope = a.beyond(dz, along.values(*path)[0])
            g = self.step_weights(new)[:, None] * (slope[:, :q] + np.einsum("kij,ki->kj", T, slope[:, q:]))
        if b is not None and end is not None:
            g_end = b.beyond(dx[-1], end.values(*last)[0])
        return g, g_end

    def _arguments(self, trajectory: Trajectory) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """Return the arguments of running and terminal cost along a trajectory, as arrays."""
        n, f = len(trajectory), self.map
        if trajectory.x.shape[1] != f.nx or trajectory.u.shape[1] != f.nu:
            raise ValueError(
                f"the trajectory has {trajectory.x.shape[1]} states and {trajectory.u.shape[1]} inputs, "
                f"the cost's map {f.nx} and {f.nu}"
            )
        theta = trajectory.map.theta
        reference = self.reference_rows(n)
        x, u, lam = trajectory.x, trajectory.u, trajectory.multipliers
        steps = trajectory.impulse_lengths if self.uses_multipliers else trajectory.step_lengths
        zeros = np.zeros(f.nu), np.zeros(len(f.multiplier_names))
        running = [x[:n], u, lam, theta, steps[:, None], reference[:n]]
        return running, [x[n], *zeros, theta, np.zeros(1), reference[n]]

    def reference_rows(self, n: int) -> np.ndarray:
        """Return the values of all references for a trajectory of n steps.
        The shape is (n+1, reference_size).
        """
        if self._stacked is None or len(self._stacked) != n + 1:
            columns = []
            for values, ends in zip(self._references, self._ends, strict=True):
                if len(values) != n + 1 and (ends or len(values) != n):
                    rows = f"{n + 1}" if ends else f"{n} or {n + 1}"
                    raise ValueError(
                        f"reference: got {len(values)} rows for a trajectory of {n} steps, expected {rows}"
                    )
                columns.append(values if len(values) > n else np.concatenate([values, values[-1:]]))
            self._stacked = np.concatenate(columns, axis=1) if columns else np.empty((n + 1, 0))
        return self._stacked

    def __repr__(self) -> str:
        f, references = self.map, [f"reference {i}" for i in range(self.reference_size)]
        groups = [f.state_names, f.input_names, f.multiplier_names, f.parameters, ["dt"], references]
        prefixes = ["", "u.", "lambda.", "param.", "", ""]
        args = [
            ca.vertcat(ca.SX(0, 1), *(ca.SX.sym(prefix + n) for n in names))
            for prefix, names in zip(prefixes, groups, strict=True)
        ]
        running, terminal = (described(part(*args)) for part in (self.running_at, self.terminal_at))
        return f"Cost(running: {running}{' per second' * self.per_time}; terminal: {terminal})"


def checked(f: OneStepMap, cost: Any) -> Cost:
    """Check that `cost` is a `Cost` for the map `f`, and return it."""
    if not isinstance(cost, Cost):
        raise TypeError(f"cost: expected a Cost (see vioc.control.quadratic), got {cost!r}")
    if not isinstance(f, OneStepMap):
        raise TypeError(f"expected a map, such as MidpointVI(system, dt), got {f!r}")
    cost.check_map(f)
    return cost


def _with_multipliers(lin: Linearization, dx: np.ndarray, du: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the linearized changes of state, input and constraint multipliers.

    The first array has a row with these changes for each step. The change of the state is a tangent vector,
    the error (ndx,) of `OneStepMap.difference`. The second array has the Jacobians [C D] of the multipliers
    with respect to state and input.
    """
    T = np.concatenate([lin.C, lin.D], axis=2)
    dz = np.concatenate([dx[:-1], du], axis=1)
    return np.concatenate([dz, np.einsum("kij,kj->ki", T, dz)], axis=1), T


def _rebuild(
    f: OneStepMap,
    running: ca.Function,
    terminal: ca.Function,
    rows: list,
    per_time: bool,
) -> Cost:
    symbols = [ca.SX.sym(f"reference_{i}", r.shape[1]) for i, r in enumerate(rows)]
    args = [*f.symbols, ca.vertcat(*symbols) if symbols else ca.SX(0, 1)]
    parts = (at_arguments(f, lifted, args) for lifted in (running, terminal))
    return Cost(f, *parts, references=list(zip(symbols, rows, strict=True)), per_time=per_time)
