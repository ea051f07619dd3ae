"""One step by every means, Newton's method or the interior point from a cold start; why where it fails."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from vioc.dynamics.integrators.contact.interior import Problem
from vioc.dynamics.integrators.maximal.space import TWIST
from vioc.dynamics.integrators.newton import (
    Equations,
    Iterate,
    Solution,
    dependent_constraints,
    newton,
    solve_step,
)
from vioc.errors import StepError

if TYPE_CHECKING:
    from vioc.dynamics.integrators.maximal.map import MaximalVI

FAST = "a body turns by {:.2g} rad within a step, where pi is the limit: use a smaller dt"
NO_GOAL = np.array([0.0, 1.0])


class Departure(Equations):
    """The twists of a step from x, without contact, for steps of any length."""

    def __init__(self, f: MaximalVI, x: np.ndarray, u: np.ndarray, t: float):
        self._f, self._x, self._u, self._t = f, x, u, t
        self.start = f.dense.leaving(x, u, t, f.dt, f.theta).guess

    def __call__(self, V: np.ndarray, dt: float) -> Iterate:
        problem = self._f.dense.leaving(self._x, self._u, self._t, dt, self._f.theta)
        return iterate(problem, V, self._f.graph.scales)

    def failure(self, found: Solution, k: int, dt: float, where: str) -> StepError | None:
        V, names = self.start, self._f.multiplier_names
        matrix = self(V, dt).matrix
        if np.isfinite(matrix).all() and len(names):
            G = matrix[: len(V), len(V) :].T
            dependent = dependent_constraints(G, names, f"{where}. G(Z_k)", k, float(found.error))
            if dependent is not None:
                return dependent
        if (turn := fastest(V) * dt) <= 1:
            return None
        text = f"{where}. Newton and continuation in dt did not converge; {FAST.format(turn)}"
        return StepError(text, k, float(found.error), "no convergence")


def iterate(problem: Problem, V: np.ndarray, scales: np.ndarray) -> Iterate:
    """One end's equations without contact, at twists V."""
    end, none = problem.end, np.zeros(0)
    matrix, rhs = end.newton(V, np.zeros(end.rows), none, *problem.given, NO_GOAL)
    return Iterate(
        -rhs[:, 0], matrix, problem.extent * np.concatenate([scales / problem.dt, np.ones(end.rows)])
    )


def fastest(V: np.ndarray) -> float:
    """The largest component of an angular velocity, rad/s."""
    return float(np.abs(V.reshape(-1, TWIST)[:, 3:]).max())


def solve_free(f: MaximalVI, x: np.ndarray, u: np.ndarray, k: int, t: float, dt: float):
    """Step k without contact from x under u at time t: (x_next, multipliers).

    Raises
    ------
    StepError
        With cause ``"singular constraints"`` or ``"no convergence"``.
    """
    departure = Departure(f, x, u, t)
    gone = solve_step(departure, k, t, dt, f.tolerance)
    with np.errstate(all="ignore"):  # what overflows or is not a number is tested for
        problem, z = f.dense.arriving(x, gone.z, u, t, dt, f.theta)
        there = newton(lambda V: iterate(problem, V, f.graph.scales), gone.z, f.tolerance)
    if not there.error <= f.tolerance:
        error = float(there.error)
        where = f"step {k} (t = {t:.6g} s, dt = {dt:g} s) was not solved: scaled residual {error:.2g}"
        text = f"{where}. Velocities at its end are not determined: try a smaller dt, or check the state"
        raise departure.failure(there, k, dt, where) or StepError(text, k, error, "no convergence")
    return np.concatenate([z, there.z]), gone.multipliers + there.multipliers


def solve_contact(f: MaximalVI, x: np.ndarray, u: np.ndarray, k: int, t: float, dt: float):
    """Step k with contact by a cold start: (x_next, multipliers)."""
    found, multipliers, residual = f.cold(x, u, t, dt)
    if residual <= f.tolerance:
        return found, multipliers
    where = (
        f"step {k} (t = {t:.6g} s, dt = {dt:g} s) with {len(f.graph.touches)} contacts and limits was not "
        f"solved: scaled residual {residual:.2g}"
    )
    G = f.variations(x)
    error = dependent_constraints(G, f.graph.names, f"{where}. G(Z_k)", k, residual) if len(G) else None
    if error is not None:
        raise error
    turn = fastest(x[-len(f.graph.scales) :]) * dt
    advice = (
        "constraints and contacts may contradict each other, or dt is too large for this state: try a "
        f"smaller dt, or a larger smoothing than {f.smoothing:g}"
    )
    raise StepError(f"{where}; {FAST.format(turn) if turn > 1 else advice}", k, residual, "no convergence")
