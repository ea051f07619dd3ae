"""Linear model-predictive control: a regulator with bounds, one quadratic program a sample."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import casadi as ca
import numpy as np

from vioc.checks import check_array
from vioc.control.feedback.prediction import Prediction, predict, reference
from vioc.control.problem.limits import input_bounds, named_bounds
from vioc.control.regulators.law import Law
from vioc.control.regulators.lqr import Regulator, SteadyRegulator
from vioc.errors import OptimizationError
from vioc.maps.protocol import OneStepMap

OPTIONS: dict[str, dict[str, Any]] = {
    "osqp": {
        "osqp": {
            "eps_abs": 1e-7,
            "eps_rel": 1e-7,
            "max_iter": 50000,
            "polish": True,
            "verbose": False,
        }
    },
    "qrqp": {"print_iter": False, "print_header": False, "print_info": False, "max_iter": 10000},
}
BLAME = 1e5  # the weight with which bounds that cannot be kept are softened to be named
VIOLATED = 1e-6  # softened bounds that are exceeded by more are named


class Plan(NamedTuple):
    """The program's answer at one sample, n steps ahead.

    Attributes
    ----------
    u : (n, nu)
        Inputs; the first one is applied.
    x : (n+1, nx)
        States that the linearization predicts, the measured one first.
    slack : (n, number of bounded states)
        How far soft bounds are exceeded.
    cost : float
        Of the deviations, with the cost to go at the end.
    """

    u: np.ndarray
    x: np.ndarray
    slack: np.ndarray
    cost: float


class LinearMPC(Law):
    """A regulator's problem over a receding horizon, with bounds on inputs and states.

        minimize  sum over j < n of z'Qz + v'Rv + 2 z'Sv  +  z_n' P z_n   (+ soft (s + s^2))
        lower <= u_d + v <= upper,   state_lower - s <= x_d + z <= state_upper + s,   |u_j - u_{j-1}| <= rate

    The weights, the reference and P are those of the regulator, so that where no bound is active the first
    input is the regulator's own.

    Parameters
    ----------
    regulator : SteadyRegulator or Regulator
        About an equilibrium or a trajectory (with ``hold()``, also past its end; else the horizon shrinks
        towards the end).
    horizon : int
        n >= 1.
    lower, upper : float, (nu,), dict of str to float, or None
        Bounds on inputs.
    state_lower, state_upper : (nx,), dict of str to float, or None
        Bounds on states, by name in a dict, at samples 1 .. n.
    rate : float, (nu,), dict of str to float, or None
        Largest change of an input from sample to sample.
    S : (ndx, nu), optional
        The cross weight, if the regulator was made with one.
    soft : float, optional
        Weight rho of exceeding a bound on states, cost rho (s + s^2); None makes them hard.
    solver : str, optional
        A quadratic solver of CasADi; ``"daqp"`` (an active-set method, exact and fast on programs of this
        size) and ``"osqp"`` are bundled with it. Default: the first of these that there is.
    options : dict, optional
        Of that solver.

    Raises
    ------
    TypeError, ValueError
        What is given does not fit.

    Notes
    -----
    As a law it raises `OptimizationError` where the program has no solution, and names the bounds that
    cannot be kept. Nothing is remembered between samples but the last input where `rate` is given.
    The program is posed about the regulator, whose own plan is taken where it keeps every bound. Its weights
    are on the full state also where the regulator was made on the constraint manifold.
    """

    def __init__(
        self,
        regulator: Regulator | SteadyRegulator,
        horizon: int,
        *,
        lower: Any = None,
        upper: Any = None,
        state_lower: Any = None,
        state_upper: Any = None,
        rate: Any = None,
        S: Any = None,
        soft: float | None = None,
        solver: str | None = None,
        options: Mapping[str, Any] | None = None,
    ):
        if not isinstance(regulator, (Regulator, SteadyRegulator)):
            raise TypeError(f"expected a regulator made by dlqr, got {type(regulator).__name__}")
        if horizon != int(horizon) or horizon < 1:
            raise ValueError(f"horizon: expected a whole number of steps >= 1, got {horizon!r}")
        solver = solver or next((s for s in ("daqp", "osqp") if ca.has_conic(s)), "qrqp")
        if not ca.has_conic(solver):
            raise ValueError(f"solver: this CasADi has no quadratic solver {solver!r}; try 'daqp' or 'osqp'")
        if soft is not None and not soft > 0:
            raise ValueError(f"soft: expected a weight > 0, got {soft!r}")
        f = regulator.map
        self.map: OneStepMap = f
        self.regulator = regulator
        self.horizon = int(horizon)
        self.soft = soft
        self.solver = solver
        self._options = dict(OPTIONS.get(solver, {}) if options is None else options)
        self.lower, self.upper = input_bounds(f, lower, upper)
        low, high = named_bounds(f.state_names, state_lower, state_upper, "states")
        self._bounded = np.flatnonzero(np.isfinite(low) | np.isfinite(high))
        if len(self._bounded) and f.ndx != f.nx:
            raise ValueError("bounds on states need a map whose errors are its states")
        self.state_lower, self.state_upper = low[self._bounded], high[self._bounded]
        self.rate = input_bounds(f, None, rate, "input rates")[1]
        self._rated = bool(np.isfinite(self.rate).any())
        self.S = np.zeros((f.ndx, f.nu)) if S is None else check_array(S, (f.ndx, f.nu), "S")
        self._reference = reference(regulator)
        self._steady: Prediction | None = None
        self._solvers: dict[tuple, ca.Function] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_solvers": {}, "_steady": None}

    # -- as a law -------------------------------------------------------------------------------

    def apply(self, k: int, x: np.ndarray, memory: Any) -> tuple[np.ndarray, Any]:
        u = self.plan(k, x, memory).u[0]
        return u, u

    def __call__(self, k: int, x: Any) -> np.ndarray:
        if self._rated:
            return super().__call__(k, x)  # says that it has a memory
        return self.plan(k, x).u[0]

    def plan(self, k: int, x: Any, last: Any = None) -> Plan:
        """The program's answer at sample k from state x (nx,), after the input `last` (nu,).

        Raises
        ------
        OptimizationError
            Where bounds cannot be kept.
        ValueError
            Past the end of a trajectory that is not held.
        """
        return self._solve(k, self.map.check_state(x), last, self.soft)

    # -- the program ----------------------------------------------------------------------------

    def _solve(self, k: int, x: np.ndarray, last: Any, soft: float | None) -> Plan:
        """The variables are those of the `Prediction`, and slacks times the root of `soft`."""
        f, ref = self.map, self._reference
        samples, steps = ref.window(k, self.horizon)
        X, U = ref.X[samples], ref.U[steps]
        z0 = f.difference(X[0], x)
        model = self._prediction(samples, steps)
        n, size, nb = len(U), U.size, len(self._bounded)
        ns, root = (0, 0.0) if soft is None else (n * nb, float(np.sqrt(soft)))
        u0, x0 = U + model.v0 @ z0, model.z0 @ z0  # along the regulator's own plan
        V = model.v.reshape(size, size)
        slackless = np.zeros((size, ns))
        rows = [(V, slackless, (self.lower - u0).ravel(), (self.upper - u0).ravel())]
        if nb:
            M = model.z[:, self._bounded].reshape(n * nb, size)
            here = (X[1:] + x0)[:, self._bounded]
            low, high = ((b - here).ravel() for b in (self.state_lower, self.state_upper))
            none, eye = np.full(n * nb, np.inf), np.eye(n * nb, ns) / (root or 1.0)
            rows += [(M, eye, low, none), (M, -eye, -none, high)]
        if self._rated:
            change = np.eye(size) - np.eye(size, k=-f.nu)
            step = u0 - np.vstack([u0[0] if last is None else f.check_input(last), u0[:-1]])
            reach = np.tile(self.rate, (n, 1))
            reach[0] = np.inf if last is None else reach[0]
            rows.append((change @ V, slackless, (-reach - step).ravel(), (reach - step).ravel()))
        A, low, high = _stack(rows)
        w = np.zeros(size + ns)
        if not ((low <= 0) & (high >= 0)).all():
            found = self._run(np.concatenate([np.zeros(size), np.full(ns, root)]), A, low, high, size)
            if found is None:
                raise self._refusal(k, x, last, soft)
            w = found
        d, s = w[:size], w[size:]
        u = np.clip(u0 + model.v @ d, self.lower, self.upper)  # the solver has a tolerance
        ahead = [f.retract(a, z) for a, z in zip(X[1:], x0 + model.z @ d, strict=True)]
        slack = s.reshape(n, nb) / root if ns else np.zeros((n, nb))
        cost = float(z0 @ model.P @ z0 + d @ d + s @ s + root * s.sum())
        return Plan(u, np.vstack([x, *ahead]), slack, cost)

    def _prediction(self, samples: np.ndarray, steps: np.ndarray) -> Prediction:
        ref, regulator = self._reference, self.regulator
        steady = ref.after == "holds" and samples[0] >= len(ref.U) - 1
        if steady and self._steady is not None:
            return self._steady
        P = ref.P[samples[-1]]
        Q = regulator.Q if regulator.Q.ndim == 2 else regulator.Q[np.minimum(steps, len(regulator.Q) - 1)]
        model = predict(ref.A[steps], ref.B[steps], Q, regulator.R, P, self.S)
        if steady:
            self._steady = model  # the same for good
        return model

    def _run(self, g: np.ndarray, A: np.ndarray, low: np.ndarray, high: np.ndarray, free: int):
        """Minimize |w|^2 + g'w with low <= A w <= high and w >= 0 from entry `free` on; None if it fails."""
        size = len(g)
        H = ca.DM.eye(size) * 2
        if A.shape not in self._solvers:
            if len(self._solvers) >= 8:
                self._solvers.pop(next(iter(self._solvers)))
            pattern = {"h": H.sparsity(), "a": ca.Sparsity.dense(*A.shape)}
            options = {**self._options, "error_on_fail": False}
            self._solvers[A.shape] = ca.conic("mpc", self.solver, pattern, options)
        solver = self._solvers[A.shape]
        least = np.concatenate([np.full(free, -np.inf), np.zeros(size - free)])
        out = solver(h=H, g=g, a=A, lbx=least, ubx=np.full(size, np.inf), lba=low, uba=high)
        w = np.array(out["x"]).ravel()
        w[free:] = np.maximum(w[free:], 0.0)
        reached = A @ w
        # not every solver tells that it failed
        kept = np.maximum(low - reached, reached - high) <= VIOLATED * (1 + np.abs(reached))
        return w if solver.stats()["success"] and kept.all() else None

    def _refusal(self, k: int, x: np.ndarray, last: Any, soft: float | None) -> OptimizationError:
        """Which bounds on states cannot be kept: those that the softened program exceeds."""
        where = f"sample {k}: the program has no solution"
        if soft is not None or not len(self._bounded):
            return OptimizationError(f"{where} that the solver {self.solver} finds; try another solver")
        try:
            plan = self._solve(k, x, last, BLAME)
        except OptimizationError:
            return OptimizationError(f"{where}, not even with soft bounds on states")
        names = [self.map.error_names[i] for i in self._bounded]
        worst = [
            f"{names[b]} by {plan.slack[:, b].max():.3g} at sample {k + 1 + int(plan.slack[:, b].argmax())}"
            for b in range(len(names))
            if plan.slack[:, b].max() > VIOLATED
        ]
        advice = "give soft= a weight, or start within the bounds"
        return OptimizationError(f"{where}: bounds exceeded: {', '.join(worst) or 'none'}; {advice}")

    def __repr__(self) -> str:
        return f"LinearMPC({self.horizon} steps ahead by {self.solver}; {self.regulator!r})"


def _stack(rows: list[tuple]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """One matrix and its limits, rows of length one, without those that have no limit."""
    A = np.vstack([np.hstack([matrix, slack]) for matrix, slack, _, _ in rows])
    low, high = (np.concatenate([r[i] for r in rows]) for i in (2, 3))
    keep = np.isfinite(low) | np.isfinite(high)
    A, low, high = A[keep], low[keep], high[keep]
    length = np.linalg.norm(A, axis=1)
    length[length == 0] = 1.0
    return A / length[:, None], low / length, high / length
