"""Robust solution of single steps in maximal coordinates, by continuation or interior point."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from vioc.dynamics.contact.interior import GAIN, EndProblem, Step
from vioc.dynamics.integrators.branch_equations import BranchEquations, BranchRoot, Linearized
from vioc.dynamics.integrators.maximal.body_space import TWIST
from vioc.dynamics.integrators.maximal.graph import APART
from vioc.dynamics.integrators.newton import (
    NEAR,
    ONE,
    PASSING,
    dependent_constraints,
    singular_ahead,
    solve_step,
)
from vioc.errors import StepError

if TYPE_CHECKING:
    from vioc.dynamics.integrators.maximal.maximal_vi import MaximalVI

FAST = "a body turns by {:.2g} rad within a step, where pi is the limit"
NO_GOAL = np.array([0.0, 1.0])
HALF_THE_DIGITS = 1 / np.sqrt(np.finfo(float).eps)  # mass ratio at which rounding takes half the digits


class Departure(BranchEquations):
    """Momentum balance of a step with prescribed contact impulses, for continuation.
    It determines the velocities during the step. The continuation increases the step length from 0.

    At a fraction `share` of the step length, this fraction of the `impulses` (6 n,) acts, and this fraction
    of the constraint error at the start is corrected: g(Z_k+1) = (1 - share) g(Z_k).
    """

    def __init__(self, f: MaximalVI, x: np.ndarray, u: np.ndarray, t: float, dt: float, impulses: Any = 0.0):
        self._f, self._x, self._u, self._t, self.dt = f, x, u, t, dt
        self._impulses = np.broadcast_to(impulses, f.graph.scales.shape)
        problem = self._problem(1.0)
        self.start, n = problem.guess, len(problem.guess)
        self.weights = np.sqrt(f.graph.scales)
        self.size = dt / (problem.extent * f.graph.natural.sizes)
        self.turns = np.tile([0.0, dt], (n // TWIST, 1)).repeat(TWIST // 2)
        self._off = iterate(problem, np.zeros(n)).residual[n:]  # g(Z_k): zero twists keep the poses

    def _problem(self, share: float) -> EndProblem:
        return self._f.dense.released.leaving(self._x, self._u, self._t, share * self.dt, self._f.theta)

    def __call__(self, w: np.ndarray, share: float) -> Linearized:
        n, length, linearized = len(w), share * self.dt, iterate(self._problem(share), w)
        if not np.linalg.norm(w.reshape(-1, TWIST)[:, 3:], axis=1).max() * length < np.pi:
            return linearized._replace(residual=np.full(len(linearized.residual), np.nan))
        scale = np.concatenate([np.ones(n), np.full(len(linearized.residual) - n, 1 / length)])
        residual = linearized.residual - np.concatenate([share * self._impulses, (1 - share) * self._off])
        return Linearized(scale * residual, scale[:, None] * linearized.matrix)

    def reason(self, root: BranchRoot) -> str:
        turn = max(fastest(self.start), fastest(root.w)) * self.dt
        return f"; {FAST.format(turn)}" if turn > 1 else ""

    def failure(self, root: BranchRoot, k: int, where: str) -> StepError | None:
        names, error = self._f.graph.names, float(root.error)
        if (ratio := self._f.graph.mass_ratio) > HALF_THE_DIGITS:
            text = (
                f"step {k} (dt = {self.dt:g} s) was not solved: masses of joined bodies differ by a factor "
                f"of {ratio:.2g}, so that rounding in the impulses between them moves the light ones; "
                "use a map in joint coordinates (MidpointVI), or leave the light bodies out"
            )
            return StepError(text, k, error, "no convergence")
        matrix = iterate(self._problem(1.0), self.start).matrix
        if np.isfinite(matrix).all() and len(names):
            G = self._f.graph.by_length(matrix[: len(self.start), len(self.start) :].T)
            dependent = dependent_constraints(G, names, f"{where}. G(Z_k)", k, error)
            if dependent is not None:
                return dependent
        if not root.share or not names:
            return None
        J = iterate(self._problem(root.share), root.w).matrix[len(self.start) :, : len(self.start)]
        return singular_ahead(self._f.graph.by_length(J), names, root, self.dt, k, where, PASSING)


def iterate(problem: EndProblem, V: np.ndarray) -> Linearized:
    """Return residual and Jacobian of a momentum balance without contact at velocities V."""
    end, none = problem.end, np.zeros(0)
    matrix, rhs = end.newton(V, np.zeros(end.rows), none, *problem.given, NO_GOAL)
    return Linearized(-rhs[:, 0], matrix)


def fastest(V: np.ndarray) -> float:
    """Return the largest component of the angular velocities of all bodies, rad/s."""
    return float(np.abs(V.reshape(-1, TWIST)[:, 3:]).max())


def solve_free(f: MaximalVI, x: np.ndarray, u: np.ndarray, k: int, t: float, dt: float):
    """Solve a step without contact by continuation in its length.
    The results are the next state and the multipliers.

    Raises
    ------
    StepError
        With cause ``"singular constraints"``, ``"fold"`` or ``"no convergence"``.
    """
    departure = solve_step(Departure(f, x, u, t, dt), k, t, f.tolerance)
    n, start = len(departure.w), np.zeros(len(departure.w))
    with np.errstate(all="ignore"):  # overflow and NaN are tested below
        problem, z = f.dense.arriving(x, departure.w, u, t, dt, f.theta)
        linearized = iterate(problem, start)  # linear in the velocities
        try:
            unknowns = np.linalg.solve(linearized.matrix, -linearized.residual)
        except np.linalg.LinAlgError:
            unknowns = np.full(len(linearized.residual), np.nan)
        residual = iterate(problem, unknowns[:n]).residual + linearized.matrix[:, n:] @ unknowns[n:]
        momenta = f.graph.scales * f.graph.natural.sizes
        scales = np.concatenate([momenta / dt, f.graph.gradients(linearized.matrix[n:, :n] / dt)])
        error = float(np.linalg.norm(residual / scales)) / problem.extent
        work = problem.end.work
        if work is not None:
            error += work(unknowns[:n], unknowns[n:], np.zeros(0), *problem.given)[0][2, 0]
    if not error <= f.tolerance:
        raise_if_singular_end(f, linearized.matrix[:n, n:].T, k, t, dt)
        where = f"step {k} (t = {t:.6g} s, dt = {dt:g} s) was not solved: scaled residual {error:.2g}"
        text = f"{where}. Velocities at its end are not determined: try a smaller dt, or check the state"
        raise StepError(text, k, error, "no convergence")
    return np.concatenate([z, unknowns[:n]]), departure.multipliers + unknowns[n:]


def raise_if_singular_end(
    f: MaximalVI, G: np.ndarray, k: int, t: float, dt: float, sine: float = np.inf
) -> None:
    """Raise `StepError` if constraint gradients are dependent at a step's end.
    The gradients are the rows of G (rows, 6 n); k is the index of the step. If a `sine` is given, the error
    is raised only if the smallest singular value of the gradients, scaled to length one, is at most `sine`.
    """
    where = (
        f"step {k} (t = {t:.6g} s, dt = {dt:g} s) ends beside a singular position of the constraints, which "
        f"does not determine its velocities. {PASSING}. G(Z_k+1)"
    )
    G = f.graph.by_length(G)
    if not len(G):
        return
    if sine < np.inf:
        lengths = np.linalg.norm(G, axis=1, keepdims=True)
        if np.linalg.svd(G / np.where(lengths > 0, lengths, 1.0), compute_uv=False)[-1] > sine:
            return
    error = dependent_constraints(G, f.graph.names, where, k, np.inf, NEAR)
    if error is not None:
        raise error


def check_branch(
    f: MaximalVI, x: np.ndarray, u: np.ndarray, k: int, t: float, dt: float, step: Step
) -> float:
    """Raise `StepError` if continuation does not lead to the solution of a step.
    The step has contacts; `step` is its solution. The continuation increases the step length from 0 at state
    x, with the contact impulses of the solution as given impulses. The returned number is the kinetic energy
    that these impulses add, as a fraction of the kinetic energy in the step.
    """
    least = APART * f.tolerance**0.5
    raise_if_singular_end(f, f.variations(step.x), k, t, dt, least)
    V, lam, y = (getattr(step.ends[0], name) for name in ("V", "lam", "y"))
    places = step.held if len(step.held) else None
    problem = f.dense.leaving(x, u, t, dt, f.theta, places)
    alone = f.dense.released.leaving(x, u, t, dt, f.theta)
    residuals = problem.end.residuals(V, lam, y, *problem.given, NO_GOAL)[0][:, 0]
    impulses = residuals - alone.end.residuals(V, lam, np.zeros(0), *alone.given, NO_GOAL)[0][:, 0]
    equations, distance = Departure(f, x, u, t, dt, impulses), np.inf
    try:
        root = solve_step(equations, k, t, f.tolerance)
        distance = float(np.linalg.norm(equations.size * (root.w - V)))
    except StepError:
        pass
    if not distance <= max(ONE, least):
        raise StepError(
            f"step {k} (t = {t:.6g} s, dt = {dt:g} s) ends beside a singular position of constraints, and "
            f"the branch of its contact impulses does not lead to the root that was found. {PASSING}",
            k,
            distance,
            "singular constraints",
        )
    if problem.end.work is None:
        return 0.0
    _, twice, *_ = problem.end.work(V, lam, y, *problem.given)[0][:, 0]
    return float(V @ impulses) / (0.5 * twice) if twice > 0 else 0.0


def solve_contact(f: MaximalVI, x: np.ndarray, u: np.ndarray, k: int, t: float, dt: float):
    """Solve a step with contact, with initial guesses that ignore earlier steps.
    The results are the next state and the multipliers.
    """
    args = [x[None], u[None], np.array([t]), np.array([dt]), f.theta]
    outputs = f.step_solver.program(False).map(args, 1)
    x_next, multipliers, residual = np.ravel(outputs[0]), np.ravel(outputs[1]), float(np.ravel(outputs[2])[0])
    if residual <= f.tolerance:
        return x_next, multipliers
    size = f": scaled residual {residual:.2g}" if np.isfinite(residual) else ""
    where = (
        f"step {k} (t = {t:.6g} s, dt = {dt:g} s) with {len(f.graph.touches)} contacts and limits was not "
        f"solved{size}"
    )
    G = f.graph.by_length(f.variations(x))
    if len(G):
        error = dependent_constraints(G, f.graph.names, f"{where}. G(Z_k)", k, residual, NEAR)
        if error is not None:
            raise error
    with np.errstate(all="ignore"):  # overflow and NaN are tested below
        step = f.interior.solve(x, u, t, dt, f.theta)
        if step.error <= f.tolerance:
            if not step.suspect <= f.tolerance:
                check_branch(f, x, u, k, t, dt, step)
            return step.x, step.multipliers
        advice = (
            "constraints and contacts may contradict each other, or dt is too large for this state: try a "
            f"smaller dt, or a larger smoothing than {f.smoothing:g}"
        )
        try:  # joints can add energy too where bodies turn far in a step; then contacts alone may not
            free = solve_step(Departure(f, x, u, t, dt), k, t, f.tolerance).w
            step = f.interior.without_energy_test().solve(x, u, t, dt, f.theta, free)
            if step.error <= f.tolerance and check_branch(f, x, u, k, t, dt, step) <= GAIN:
                return step.x, step.multipliers
        except StepError:
            pass
    turn = fastest(x[-len(f.graph.scales) :]) * dt
    fast = f"{FAST.format(turn)}: use a smaller dt"
    raise StepError(f"{where}; {fast if turn > 1 else advice}", k, residual, "no convergence")
