"""Solving one step in maximal coordinates by every means, and saying why where it fails."""

from __future__ import annotations

from typing import TYPE_CHECKING

import casadi as ca
import numpy as np

from vioc.compile.evaluate import Evaluator
from vioc.dynamics.integrators.maximal.step import STATE, Balance, StepGraph
from vioc.dynamics.integrators.maximal.terms import POSE, TWIST
from vioc.dynamics.integrators.newton import dependent_constraints
from vioc.errors import StepError

if TYPE_CHECKING:
    from vioc.dynamics.integrators.maximal.map import MaximalVI

MAX_ITERATIONS = 60


class StepEquations:
    """Residuals and matrices of a step's two ends at numbers, dense."""

    def __init__(self, graph: StepGraph, nu: int):
        n, theta = graph.n, graph.terms.parameters
        Z, V, base = (
            ca.SX.sym(name, size * n) for name, size in (("Z", POSE), ("V", TWIST), ("base", TWIST))
        )
        u, t, dt = ca.SX.sym("u", nu), ca.SX.sym("t"), ca.SX.sym("dt")
        G = graph.held(ca.vertsplit(Z, POSE), theta)
        args = [V, Z, base, u, t, dt, theta]
        leaving = graph.leave(V, Z, base, u, t, dt, theta)
        arriving = graph.arrive(V, base, G, dt, theta)
        self._leave, self._arrive = (
            _matrix(name, graph, at, G, args) for name, at in (("leave", leaving), ("arrive", arriving))
        )
        x = ca.SX.sym("x", (STATE + TWIST) * n)
        poses = ca.vertcat(*(graph.pose(x[STATE * i : STATE * i + STATE]) for i in range(n)))
        start = graph.kicked(graph.momenta(x[STATE * n :], theta), poses, None, u, t, dt, theta)
        self._start = Evaluator(ca.Function("start", [x, u, t, dt, theta], [poses, start], {"cse": True}))
        z = ca.SX.sym("z", STATE * n)
        moved = [
            graph.carried(a, v, dt)
            for a, v in zip(ca.vertsplit(z, STATE), ca.vertsplit(V, TWIST), strict=True)
        ]
        ends = ca.vertcat(*(graph.pose(a) for a in moved))
        momenta = graph.landed_momenta(V, ends, u, t, dt, theta)
        outputs = [ca.vertcat(*moved), ends, momenta]
        self._end = Evaluator(ca.Function("end", [z, V, u, t, dt, theta], outputs, {"cse": True}))

    def start(self, x, u, t: float, dt: float, theta) -> tuple[np.ndarray, np.ndarray]:
        """Poses, and momenta after the first half of the forces that do not depend on velocities."""
        Z, base = self._start(x, u, np.array([t + 0.5 * dt]), np.array([dt]), theta)
        return Z[:, 0], base[:, 0]

    def end(self, x, V, u, t: float, dt: float, theta) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Positions and quaternions, poses and momenta at the end of a step at the twists V."""
        given = u, np.array([t + 0.5 * dt]), np.array([dt]), theta
        z, Z, p = self._end(x[: len(x) // (STATE + TWIST) * STATE], V, *given)
        return z[:, 0], Z[:, 0], p[:, 0]

    def at(self, x, u, t: float, dt: float, theta):
        """The equations of leaving x as a function of V -> (residual without impulses, matrix)."""
        return self._function(self._leave, *self.start(x, u, t, dt, theta), u, t, dt, theta)

    def after(self, x, V, u, t: float, dt: float, theta):
        """The equations of the velocities at the end of a step at V, as `at`; positions and quaternions."""
        z, Z, base = self.end(x, V, u, t, dt, theta)
        return *self._function(self._arrive, Z, base, u, t, dt, theta), z

    def _function(self, evaluate: Evaluator, Z, base, u, t: float, dt: float, theta):
        def equations(V: np.ndarray):
            r, F = evaluate(V, Z, base, u, np.array([t + 0.5 * dt]), np.array([dt]), theta)
            return r[:, 0], F

        return equations, 1 + float(np.abs(Z).max())


def _matrix(name: str, graph: StepGraph, at: Balance, G: list, args: list) -> Evaluator:
    """Residual without impulses of constraints, and matrix, dense."""
    F = graph.blocks(at.D, G, at.H, at.slopes)
    rows = np.concatenate([[0], np.cumsum(graph.sizes)])
    matrix = ca.SX(int(rows[-1]), int(rows[-1]))
    for (i, j), block in F.items():
        matrix[int(rows[i]) : int(rows[i + 1]), int(rows[j]) : int(rows[j + 1])] = block
    residual = ca.vertcat(*(-r for r in at.rest), *at.values)
    return Evaluator(ca.Function(name, args, [ca.densify(residual), ca.densify(matrix)], {"cse": True}))


def solve_step(f: MaximalVI, x: np.ndarray, u: np.ndarray, k: int, t: float, dt: float):
    """Step k from x under u at time t: (x_next, multipliers).

    Raises
    ------
    StepError
        With cause ``"singular constraints"`` or ``"no convergence"``.
    """
    equations = f.__dict__.setdefault("_step_equations", None) or StepEquations(f.graph, f.nu)
    f.__dict__["_step_equations"] = equations
    n, theta = f.graph.n, f._theta
    V0 = x[STATE * n :]

    def solve(start: np.ndarray, length: float):
        at, size = equations.at(x, u, t, length, theta)
        return _newton(at, start, length / f.graph.scales, size, f._tolerance)

    with np.errstate(all="ignore"):  # what overflows or is not a number is tested for
        V, lam, error = solve(V0, dt)
        if not error <= f._tolerance:
            V, lam, error = _continue(solve, V0, dt, f._tolerance)
        if not error <= f._tolerance:
            raise _explain(f, equations, x, u, t, dt, error, k, solve)
        at, size, z = equations.after(x, V, u, t, dt, theta)
        nu, mu, error = _newton(at, V, dt / f.graph.scales, size, f._tolerance)
        if not error <= f._tolerance:
            raise _explain(f, equations, x, u, t, dt, error, k, solve)
    return np.concatenate([z, nu]), lam + mu


def _newton(equations, V: np.ndarray, weights: np.ndarray, size: float, tolerance: float):
    """Damped Newton: (V, multipliers, scaled residual)."""
    m = len(V)
    lam, error, extra = None, np.inf, 1

    def norm(r: np.ndarray, G: np.ndarray, multipliers: np.ndarray) -> float:
        balance = weights * (r[:m] + G @ multipliers)
        return float(np.linalg.norm(np.concatenate([balance, r[m:]]))) / size

    for _ in range(MAX_ITERATIONS):
        r, F = equations(V)
        if not np.isfinite(F).all():
            break
        G = F[:m, m:]
        rhs = np.concatenate([-r[:m], -r[m:]])
        row = np.concatenate([weights, np.ones(len(r) - m)])
        try:
            step = np.linalg.solve(row[:, None] * F, row * rhs)
        except np.linalg.LinAlgError:
            step = np.linalg.lstsq(row[:, None] * F, row * rhs, rcond=None)[0]
        before = norm(r, G, step[m:] if lam is None else lam)
        if lam is not None:
            error = before
            if before <= tolerance:
                extra -= 1
                if extra < 0:
                    break
        factor = 1.0
        while factor > 1e-4:
            trial = V + factor * step[:m]
            multipliers = step[m:] if lam is None else lam + factor * (step[m:] - lam)
            value = norm(equations(trial)[0], G, multipliers)
            if value < (1 - 1e-4 * factor) * before or value <= tolerance:
                break
            factor /= 2
        else:
            break
        V, lam, error = trial, multipliers, value
    return V, lam if lam is not None else np.zeros(0), error


def _continue(solve, V0: np.ndarray, dt: float, tolerance: float):
    """Lengthen the step from nothing to dt, each solution the seed of the next."""
    done, V, width = 0.0, V0, 0.25
    lam, error = np.zeros(0), np.inf
    while done < 1:
        goal = min(1.0, done + width)
        trial, multipliers, value = solve(V, goal * dt)
        if value <= tolerance:
            done, V, lam, error, width = goal, trial, multipliers, value, min(2 * width, 0.5)
        else:
            width /= 2
            if width < 1e-3:
                return trial, multipliers, value
    return V, lam, error


def _explain(f, equations, x, u, t, dt, error, k, solve) -> StepError:
    """The error with numbers and what to try."""
    n, names = f.graph.n, f.multiplier_names
    where = f"step {k} (t = {t:.6g} s, dt = {dt:g} s) was not solved: scaled residual {error:.2g}"
    F = equations.at(x, u, t, dt, f._theta)[0](x[STATE * n :])[1]
    m = TWIST * n
    if np.isfinite(F).all() and len(names):
        dependent = dependent_constraints(F[:m, m:].T, names, f"{where}. G(Z_k)", k, float(error))
        if dependent is not None:
            return dependent
    fast = np.abs(x[STATE * n :].reshape(-1, TWIST)[:, 3:]).max() * dt
    if fast > 1:
        advice = f"a body turns by {fast:.2g} rad within a step, where pi is the limit: use a smaller dt"
    else:
        half = solve(x[STATE * n :], dt / 2)[2] <= f._tolerance
        advice = f"dt = {dt / 2:g} has a solution" if half else "try a much smaller dt, or check the state"
    return StepError(
        f"{where}. Newton and continuation in dt did not converge; the step is too large for this state: "
        f"{advice}",
        k,
        float(error),
        "no convergence",
    )
