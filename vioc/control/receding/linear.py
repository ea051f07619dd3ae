"""Linear model predictive control, with one quadratic program per sample."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import casadi as ca
import numpy as np

from vioc.checks import as_count, check_array
from vioc.compile.compiler import find_compiler
from vioc.control.problem.limits import constant_bounds, input_rates, penalty
from vioc.control.problem.status import Status
from vioc.control.receding.followed import reference
from vioc.control.receding.stage_qp import Answer, Data, StageQP, StageSizes, row_values
from vioc.control.regulators.law import Law
from vioc.control.regulators.lqr import Regulator, SteadyRegulator
from vioc.errors import OptimizationError
from vioc.maps.protocol import OneStepMap
from vioc.names import INPUTS, by_name, in_order
from vioc.runs.given import input_of

BLAME = 1e5  # weight of violated bounds in the softened program that finds the infeasible bounds
HARD = -1.0, 1.0  # linear and square weight that mark a hard bound
VIOLATED = 1e-6  # violation above which a softened bound is named


class LinearPlan(NamedTuple):
    """Optimal inputs and predicted states of linear MPC at one sample.

    Attributes
    ----------
    u : (n, nu)
        Inputs; the first one is applied.
    x : (n+1, nx)
        States predicted by the linearization, the measured one first.
    slack : (n, number of bounded states)
        Violation of soft bounds.
    cost : float
        Cost of the deviations, with the cost-to-go at the end.
    """

    u: np.ndarray
    x: np.ndarray
    slack: np.ndarray
    cost: float


class LinearMPC(Law):
    """Linear model predictive controller with bounds on inputs and states.

        minimize  sum over j < n of z'Qz + v'Rv + 2 z'Sv  +  z_n' P z_n   (+ linear s + 1/2 square s^2)
        lower <= u_d + v <= upper,   lower - s <= x_d + z <= upper + s,   |u_j - u_{j-1}| <= dt rate

    z and v are deviations of state and input from the reference x_d, u_d, and s are violations of soft
    bounds. The weights, the reference and P are those of the regulator, so the first input equals the
    regulator's if no bound is active.

    Parameters
    ----------
    regulator : SteadyRegulator or Regulator
        Regulator about an equilibrium or a trajectory. The horizon shrinks towards the trajectory's end,
        unless ``hold()`` continues it.
    horizon : int
        n >= 1.
    bounds : dict of str to (lower, upper), or None
        Bounds of inputs, and of states at samples 1 .. n: as in `vioc.control.optimize`, but constant.
    rate : float, (nu,), dict of str to float, or None
        Largest change of an input per second, in its units per second, > 0. The change from `before` to the
        first input is limited, too.
    before : (nu,), dict of str to float, optional
        Input applied before the first sample, 0 where not named; by default the input of the reference at the
        first sample, such as that of an equilibrium.
    S : (ndx, nu), optional
        Cross weight; default the regulator's.
    soft : dict, optional
        Bounds on states that may be exceeded, with their weights (linear, square): a violation s costs
        linear s + 1/2 square s^2 per sample; one number is both. Other bounds are hard.
    solver : str, optional
        A quadratic solver of CasADi, for the condensed program; ``"daqp"`` (an active-set method,
        exact and fast on programs of this size) and ``"osqp"`` are bundled with CasADi. Default: an
        interior-point method in C if the map's backend compiles, else the first of these that is available.
    options : dict, optional
        Options of that solver.

    Raises
    ------
    TypeError, ValueError
        Inconsistent arguments.

    Notes
    -----
    As a law, the controller raises `OptimizationError` if the program has no solution, and names the
    infeasible bounds. It has no memory between samples except the last input if `rate` is given. The
    regulator's own plan is used if it satisfies every bound. If `hold` continues a trajectory after sample N,
    the cost-to-go of sample N is the regulator's Qf, plus the increase of the steady regulator's cost that
    bounds cause from there on.
    """

    def __init__(
        self,
        regulator: Regulator | SteadyRegulator,
        horizon: int,
        *,
        bounds: Mapping[str, Any] | None = None,
        rate: Any = None,
        before: Any = None,
        S: Any = None,
        soft: Mapping[str, Any] | None = None,
        solver: str | None = None,
        options: Mapping[str, Any] | None = None,
    ):
        if not isinstance(regulator, (Regulator, SteadyRegulator)):
            raise TypeError(f"expected a regulator made by dlqr, got {type(regulator).__name__}")
        f = regulator.map
        native = solver is None and f.backend.name != "virtual" and find_compiler() is not None
        solver = solver or next((s for s in ("daqp", "osqp") if ca.has_conic(s)), "qrqp")
        if not ca.has_conic(solver):
            raise ValueError(f"solver: this CasADi has no quadratic solver {solver!r}; try 'daqp' or 'osqp'")
        self.map: OneStepMap = f
        self.regulator = regulator
        self.horizon = as_count(horizon, "horizon")
        self.solver = "stages" if native else solver
        self._qp: dict[str, Any] = dict(native=native, solver=solver, options=options)
        known = [*(INPUTS + name for name in f.input_names), *f.state_names]
        low, high = constant_bounds(f, bounds, known, "inputs and states")
        self.lower, self.upper = low[: f.nu], high[: f.nu]
        low, high = low[f.nu :], high[f.nu :]
        self._bounded = np.flatnonzero(np.isfinite(low) | np.isfinite(high))
        if len(self._bounded) and f.ndx != f.nx:
            raise ValueError("bounds on states need a map whose errors are its states")
        self._sides = low[self._bounded], high[self._bounded]
        self.soft = self._weights(soft)
        self.rate = input_rates(f, rate)
        self._rated = bool(np.isfinite(self.rate).any())
        if before is not None:
            before = input_of(f, in_order(before, f.input_names, "before", prefix=INPUTS))
            if not self._rated:
                raise ValueError("before: the input before the first sample matters only with a `rate`")
            self._check_before(before)
        self.before: np.ndarray | None = before
        self._reference = reference(regulator, None if S is None else check_array(S, (f.ndx, f.nu), "S"))
        self._programs: dict[bool, StageQP] = {}

    def _check_before(self, before: np.ndarray) -> None:
        """Raise `ValueError` if no first input is within both rate and bounds."""
        change = self.rate * self.map.dt
        beyond = (before + change < self.lower) | (before - change > self.upper)
        for i in np.flatnonzero(beyond)[:1]:
            raise ValueError(
                f"before: {self.map.input_names[i]} = {before[i]:g} is more than one step's change, "
                f"{change[i]:g}, outside of its bounds {self.lower[i]:g} to {self.upper[i]:g}"
            )

    def _weights(self, soft: Mapping[str, Any] | None) -> np.ndarray | None:
        """Return the linear and quadratic weights of violations of the states' bounds.

        They are (2, states); the linear weight is negative for a hard bound.
        """
        if soft is None:
            return None
        names = [self.map.state_names[i] for i in self._bounded]
        if not isinstance(soft, Mapping):
            raise TypeError(f'soft: expected weights by name, {{"x": 1e3}}, got {soft!r}')
        given = by_name(soft, names, "soft")
        return np.array([penalty(n, given[n]) if n in given else HARD for n in names]).reshape(-1, 2).T

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_programs": {}}

    # -- feedback law ---------------------------------------------------------------------------

    def start(self) -> np.ndarray | None:
        return self.before

    def apply(self, k: int, x: np.ndarray, memory: Any) -> tuple[np.ndarray, Any]:
        u = self.plan(k, x, memory).u[0]
        return u, u

    def __call__(self, k: int, x: Any) -> np.ndarray:
        if self._rated:
            return super().__call__(k, x)  # raises an error, as the law has a memory
        return self.plan(k, x).u[0]

    def plan(self, k: int, x: Any, last: Any = None) -> LinearPlan:
        """Return the optimal inputs and predicted states from the state x at sample k.

        `last` (nu,) is the input of the previous sample, default `before`.

        Raises
        ------
        OptimizationError
            If bounds are infeasible.
        ValueError
            Past the end of a trajectory without `hold`.
        """
        return self._solve(k, self.map.check_state(x), self.before if last is None else last, self.soft)

    # -- quadratic program ----------------------------------------------------------------------

    def _program(self, soft: bool) -> StageQP:
        """Return the quadratic program that linear MPC solves at every sample.
        Its variables are deviations of states and inputs from the reference.

        If rates are bounded, the last input is an additional state. Constraints are those of inputs, bounded
        states, and changes of inputs.
        """
        if soft not in self._programs:
            f, nb = self.map, len(self._bounded)
            size, rated = f.ndx + f.nu * self._rated, f.nu * self._rated
            entries = (*range(size, size + f.nu), *self._bounded.tolist())
            qp = StageQP(StageSizes(self.horizon, size, f.nu, entries, rated, nb, soft), **self._qp)
            d = qp.data
            d.J_end[np.arange(nb), self._bounded] = 1.0
            for i in range(rated):
                d.J[:, i, size + i], d.J[:, i, f.ndx + i] = 1.0, -1.0
                d.F[:, f.ndx + i, size + i] = 1.0
            self._programs[soft] = qp
        return self._programs[soft]

    def _solve(self, k: int, x: np.ndarray, last: Any, soft: np.ndarray | None) -> LinearPlan:
        f, ref, regulator = self.map, self._reference, self.regulator
        samples, steps = ref.window(k, self.horizon)
        X, U = ref.X[samples], ref.U[steps]
        n, nz, nu, nb = len(U), f.ndx, f.nu, len(self._bounded)
        qp = self._program(soft is not None)
        d, m = qp.data, nz + nu * self._rated
        d.steps = n
        d.F[:n, :nz, :nz], d.F[:n, :nz, m:] = ref.A[steps], ref.B[steps]
        d.H[:n, :nz, :nz], d.H[:n, m:, m:] = 2 * ref.Q[steps], 2 * regulator.R
        d.H[:n, :nz, m:], d.H[:n, m:, :nz] = 2 * ref.S[steps], 2 * np.swapaxes(ref.S[steps], 1, 2)
        d.H_end[:nz, :nz] = 2 * ref.P[samples[-1]]
        known = self._take_over(d, k, n)
        d.lower[:n, :nu], d.upper[:n, :nu] = self.lower - U, self.upper - U
        d.lower[1:n, nu : nu + nb], d.lower_end[...] = self._beyond(self._sides[0], X)
        d.upper[1:n, nu : nu + nb], d.upper_end[...] = self._beyond(self._sides[1], X)
        if soft is not None:
            d.linear[nu : nu + nb], d.square[nu : nu + nb] = soft
            d.linear_end[...], d.square_end[...] = soft
        z0 = f.difference(X[0], x)
        z0 = ref.onto[steps[0]] @ z0 if regulator.manifold else z0
        if self._rated:
            v = np.zeros(nu) if last is None else input_of(f, last) - U[0]
            # the last input becomes a deviation from the next reference input
            d.c[:n, nz:] = -np.diff(U, axis=0, append=U[-1:])
            change = f.dt * self.rate
            d.lower[:n, nu + nb :], d.upper[:n, nu + nb :] = -change, change
            z0 = np.concatenate([z0, v])
        qp.prepare()
        try:
            answer = qp.solve(z0)
        except RuntimeError:
            raise OptimizationError(
                f"sample {k}: the solver {self.solver} fails; the state is {np.abs(z0).max():.2g} away from "
                "the reference: check it, and the reference"
            ) from None
        if answer.status not in (Status.CONVERGED, Status.ACCEPTABLE):
            raise self._refusal(k, x, last, soft, answer)
        u = np.clip(U + answer.u, self.lower, self.upper)  # the solution has a tolerance
        ahead = f.retract(X[1:], answer.x[1:, :nz])
        slack, cost = self._slack(qp, answer), float(qp.cost(answer)) + known
        if soft is not None:
            s = np.where(soft[0] >= 0, slack, 0.0)
            cost += float((soft[0] * s + 0.5 * soft[1] * s**2).sum())
        return LinearPlan(u, np.vstack([x, ahead]), slack, cost)

    def _take_over(self, d: Data, k: int, n: int) -> float:
        """Set the terms of cost and dynamics at the end of the reference trajectory.
        After this end, state deviations are relative to a constant reference state. The terms are 0 if the
        horizon does not contain the end. Return the constant term of the cost.

        If no bound is active, the steps after the end cost z'Pz for the error z from the constant state. The
        term Qf - P is added to the weight at the end, so that the cost-to-go there is Qf.
        """
        nz, ref = self.map.ndx, self._reference
        d.c[:n, :nz], d.g[:n, :nz], d.g_end[:nz] = 0.0, 0.0, 0.0
        over = ref.takeover
        j = 0 if over is None else over.sample - (k - ref.k0)
        if over is None or not 0 < j <= n:
            return 0.0
        H, g = (d.H_end, d.g_end) if j == n else (d.H[j], d.g[j])
        d.c[j - 1, :nz] = over.offset
        H[:nz, :nz] += 2 * (over.Qf - over.P)
        g[:nz] = -2 * over.Qf @ over.offset
        return float(over.offset @ over.Qf @ over.offset)

    def _beyond(self, limit: np.ndarray, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return limits on the deviations of bounded states from reference states X.
        The argument `limit` is the lower or the upper bound of these states. The first result has the limits
        at samples 1 to n - 1 of a horizon of n steps, the second the limits at the last sample n.
        """
        margin = limit - X[1:, self._bounded]
        return margin[:-1], margin[-1]

    def _slack(self, qp: StageQP, answer: Answer) -> np.ndarray:
        """Return the violations of the limits on states, (n, number of bounded states).
        There is a row for each of the samples 1 to n of the horizon.
        """
        d, nu, nb, n = qp.data, self.map.nu, len(self._bounded), qp.data.steps
        h = row_values(d, answer.x, answer.u)
        h = np.vstack([h[: n * qp.layout.rows].reshape(n, -1)[1:, nu : nu + nb], h[n * qp.layout.rows :]])
        low = np.vstack([d.lower[1:n, nu : nu + nb], d.lower_end])
        high = np.vstack([d.upper[1:n, nu : nu + nb], d.upper_end])
        return np.maximum(0.0, np.maximum(low - h, h - high))

    def _refusal(
        self, k: int, x: np.ndarray, last: Any, soft: np.ndarray | None, answer: Answer
    ) -> OptimizationError:
        """Return an error that names the infeasible hard bounds on states.

        To find them, the program is solved with soft bounds on states: its solution exceeds these bounds.
        """
        where = f"sample {k}: the program has no solution"
        hard = np.full(len(self._bounded), True) if soft is None else soft[0] < 0
        if not hard.any():
            why = f"that the solver {self.solver} finds ({answer.status.value}); try another solver"
            return OptimizationError(f"{where} {why}")
        try:
            blame = np.where(hard, [[BLAME], [2 * BLAME]], 0.0 if soft is None else soft)
            plan = self._solve(k, x, last, blame)
        except OptimizationError:
            return OptimizationError(f"{where}, not even with soft bounds on states")
        names = [self.map.space.error_names[i] for i in self._bounded]
        worst = [
            f"{names[b]} by {plan.slack[:, b].max():.3g} at sample {k + 1 + int(plan.slack[:, b].argmax())}"
            for b in range(len(names))
            if hard[b] and plan.slack[:, b].max() > VIOLATED
        ]
        advice = "give soft= their weights, or start within the bounds"
        return OptimizationError(f"{where}: bounds exceeded: {', '.join(worst) or 'none'}; {advice}")

    def __repr__(self) -> str:
        return f"LinearMPC({self.horizon} steps ahead by {self.solver}; {self.regulator!r})"
