"""Computation and differentiation of steps with contact, without restitution.

Contacts that keep each other closed, such as both sides of a slot, are detected.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import casadi as ca
import numpy as np

from vioc.compile.evaluate import Evaluator
from vioc.compile.programs import Program
from vioc.dynamics.algebra.vectors import part
from vioc.dynamics.consistency import RANK_TOLERANCE, directions_within
from vioc.dynamics.contact.compiled_contact import TapeCore, TapeProgram
from vioc.dynamics.contact.interior import InteriorProgram
from vioc.dynamics.contact.look import LOOKS, Look
from vioc.dynamics.contact.rollouts import StepByStep
from vioc.dynamics.integrators.contact.branch import check_branch
from vioc.dynamics.integrators.contact.contact_derivatives import ContactDerivatives, equations
from vioc.dynamics.integrators.contact.impacts import mechanics
from vioc.dynamics.integrators.newton import NEAR, dependent_constraints
from vioc.errors import StepError
from vioc.maps.derivatives import MapDerivatives
from vioc.maps.times import StepTimes

if TYPE_CHECKING:
    from vioc.dynamics.integrators.contact.contact_vi import ContactVI

CLOSED = 1e-7  # m or rad, largest gap of a closed contact
LARGEST = 1e6  # largest velocity that counts as opening a contact at speed 1


class ContactSteps(ABC):
    """Interface of objects that compute and differentiate the steps of a map with contact.

    One object serves a map and its copies with other parameters, step length or smoothing. Each method
    therefore has the map `f` as argument.

    Attributes
    ----------
    smooth : bool
        Whether the equations of a step are smooth, at any smoothing.
    """

    smooth: bool

    def __init__(self, f: ContactVI):
        self._of = f

    @cached_property
    def normals(self) -> Evaluator:
        """Evaluator of the mass matrix and of the gradients of the gaps of all contacts.
        Its arguments and results are (q, parameters) -> mass matrix (nd, nd), gradients (n, nd) of n
        contacts. Gaps of pairs of polytopes are not included.
        """
        q, theta = ca.SX.sym("q", self._of.nq), self._of.symbols.parameters
        M, J, _ = mechanics(self._of, q, theta)
        N = ca.vertcat(*(j[0, :] for j in J))
        return Evaluator(ca.Function("normals", [q, theta], [ca.densify(M), ca.densify(N)]))

    def openable(self, f: ContactVI, x: np.ndarray, closed: np.ndarray) -> np.ndarray:
        """Return, for each closed contact of a state x, whether a feasible velocity can open it.
        A feasible velocity satisfies the constraints and does not decrease the gap of any closed contact.
        """
        q = x[: f.nq]
        M, N = self.normals(q, f.theta)
        return openable(M, N, f.lagrangian.constraint_jacobian(q, **f.parameters)[:, : f.nd], closed)

    @abstractmethod
    def program(self, f: ContactVI) -> Program:
        """Return the object that computes rollouts of the map.
        A rollout ends before the first step that the solver does not solve.
        """

    @abstractmethod
    def rescued(
        self, f: ContactVI, x: np.ndarray, u: np.ndarray, k: int, t: float, dt: float
    ) -> tuple[np.ndarray, np.ndarray]:
        """Solve one step by slower, robust methods, or raise `StepError` if they fail.
        The step starts in state x at time t with input u, and has the index k and the length dt.
        """

    @abstractmethod
    def step(self, f: ContactVI, x: np.ndarray, u: np.ndarray, t: float, h: float) -> list[Any]:
        """Return a list of the impacts of one step and the motions between these impacts.
        For a map without restitution, the list is empty.
        """

    @abstractmethod
    def residual(self, f: ContactVI) -> ca.Function | None:
        """Return a CasADi function that computes the residual of a step, or None.
        `OneStepMap.residual` documents the function.
        """

    @abstractmethod
    def derivatives(self, f: ContactVI) -> MapDerivatives:
        """Return an object that computes the derivatives of the map's steps.
        `OneStepMap.derivatives` documents the object.
        """


class Resting(ContactSteps):
    """Solver and differentiator of steps with contact, without restitution."""

    smooth = True

    @cached_property
    def _derivatives(self) -> ContactDerivatives:
        return ContactDerivatives(self._of)

    @cached_property
    def _times(self) -> StepTimes:
        return StepTimes(self._of)

    def program(self, f: ContactVI) -> Program:
        if not f.backend.compiles(lambda: f.core):
            return InteriorProgram(f, f.interior)
        if f.features.pairs:
            return PlacedProgram(f, f.core)
        return TapeProgram(f.core, f.barrier, f.tolerance)

    def rescued(
        self, f: ContactVI, x: np.ndarray, u: np.ndarray, k: int, t: float, dt: float
    ) -> tuple[np.ndarray, np.ndarray]:
        f.driver.check_starts(x[None], k)
        with np.errstate(all="ignore"):
            solution = f.interior.solve(x, u, t, dt, f.theta)
        if solution.error <= f.tolerance:
            if not solution.suspect <= 0:
                check_branch(f, x, u, k, t, dt, solution.x[: f.nd], solution.multipliers[: f.nm])
            return solution.x, solution.multipliers
        where = (
            f"step {k} (t = {t:.6g} s, dt = {dt:g} s) with {len(f.touches.all)} contacts and limits was "
            f"not solved in {solution.iterations} iterations"
        )
        shut = [] if f.features.pairs else _held_shut(f, x)
        if shut:
            raise StepError(
                f"{where}: {', '.join(shut)} are closed and hold each other shut, without play: give them "
                "play, or use a constraint instead",
                k,
                solution.error,
                "no convergence",
            )
        names, q = f.lagrangian.constraint_names, solution.x[: f.nq]
        if not np.isfinite(q).all():  # use an extrapolation by the velocities instead
            q = x[: f.nq] + dt * np.concatenate([f.velocities(x), x[f.nq + f.nd :]])
        if names and np.isfinite(q).all():
            J = directions_within(f.lagrangian, q, NEAR, **f.parameters)
            flat = dependent_constraints(J, names, f"{where}. Dh(q_k+1)", k, solution.error, NEAR)
            if flat is not None:
                raise flat
        raise StepError(
            f"{where}; constraints and contacts may contradict each "
            "other, or dt is too large for this state: try a smaller dt, or a larger smoothing than "
            f"{f.smoothing:g}",
            k,
            solution.error,
            "no convergence",
        )

    def step(self, f: ContactVI, x: np.ndarray, u: np.ndarray, t: float, h: float) -> list[Any]:
        return []

    def residual(self, f: ContactVI) -> ca.Function | None:
        if f.features.pairs:
            return None
        x, u, p, theta, dt = f.symbols
        x1, t = ca.SX.sym("x_next", f.nx), ca.SX.sym("t")
        V = (part(x1, 0, f.nd) - part(x, 0, f.nd)) / dt
        R, X = equations(f, x, u, V, p, t, dt, theta, f.barrier)
        rows = ca.vertcat(R, x1[f.nd :] - X[f.nd :])
        return ca.Function("residual", [x, u, x1, p, t, dt, theta], [rows])

    def derivatives(self, f: ContactVI) -> MapDerivatives:
        derivatives = self._derivatives
        return MapDerivatives(
            f,
            lambda steps: derivatives.first(steps, f.theta, f.barrier).linearization,
            lambda steps, Z, zeta: derivatives.second(derivatives.first(steps, f.theta, f.barrier), Z, zeta),
            lambda: self._times.added(f.derivatives),
        )


def _held_shut(f: ContactVI, x: np.ndarray) -> list[str]:
    """Return the names of the closed contacts that no feasible velocity can open.
    The contacts are closed in state x. A feasible velocity satisfies the constraints and does not decrease
    the gap of any closed contact.
    """
    gaps = f.gaps(x)
    closed = np.isfinite(gaps) & (gaps <= CLOSED)
    if closed.sum() < 2:
        return []
    shut = closed & ~f.contact.openable(f, x, closed)
    return [t.name for t, on in zip(f.touches.all, shut, strict=True) if on]


class PlacedProgram(StepByStep):
    """Object that computes rollouts with contact of boxes and convex hulls.
    It uses the compiled solver, and searches for the contact points in each step.

    Parameters
    ----------
    f : ContactVI
    core : TapeCore
    """

    def __init__(self, f: ContactVI, core: TapeCore):
        super().__init__(f)
        self._core = core

    def rollout(self, x, U, tracked, t, h, theta, tolerance):
        f, core, error = self._f, self._core, 0.0
        models = core.models(theta, f.barrier)
        image, offset = models[0][1], core.places(0)["places"]
        sizes = f.features.sizes
        rows: list[tuple] = []
        look: Look | None = None
        for k, u in enumerate(U):
            u = self.applied(u, x, tracked, k)
            see = partial(f.seen, dt=float(h[k]), theta=theta)
            look = Look(see, sizes, x, look.end if look and h[k] == h[k - 1] else None)
            for _ in range(LOOKS):
                image[offset : offset + look.rows.size] = look.rows.ravel()
                states, multipliers, _, errors, _ = core.rollout(
                    theta,
                    x,
                    u[None],
                    t[k : k + 1],
                    h[k : k + 1],
                    tolerance,
                    models=models,
                )
                if not len(states) or not look.deeper(states[0]):
                    break
            if not len(states):
                error = float(errors[0])
                break
            x = states[0]
            rows.append((x, multipliers[0], [errors[0]], u))
        return self.rows(rows), error


def openable(M: np.ndarray, N: np.ndarray, Dh: np.ndarray, closed: np.ndarray) -> np.ndarray:
    """Return a mask of the closed contacts that a feasible velocity can open.
    A velocity v is feasible if it satisfies the constraints, Dh v = 0, and does not decrease the gap of any
    closed contact, N v >= 0. It opens contact i if N_i v > 0. N has the gradients of the gaps of all n
    contacts as rows, Dh is the constraint Jacobian, and `closed` is the mask of the closed contacts.
    Velocities are measured in the norm of the mass matrix M, in which gradients are scaled to length one.
    """
    root = np.linalg.cholesky(M)
    rows, gradients = (np.linalg.solve(root, J.T).T for J in (N[closed], Dh))
    rows, gradients = (
        J / np.maximum(np.linalg.norm(J, axis=1, keepdims=True), np.finfo(float).tiny)
        for J in (rows, gradients)
    )
    mask = closed.copy()
    sizes = np.linalg.svd(np.vstack([rows, gradients]), compute_uv=False)
    if len(sizes) == len(rows) + len(gradients) and sizes[-1] > RANK_TOLERANCE * sizes[0]:
        return mask  # independent gradients: each contact opens separately
    from scipy.optimize import linprog  # late: a map without restitution needs no scipy

    n, m = len(rows), len(M)
    best = linprog(
        np.concatenate([np.zeros(m), -np.ones(n)]),  # one velocity opens all contacts that can open
        A_ub=np.hstack([-rows, np.eye(n)]),
        b_ub=np.zeros(n),
        A_eq=np.hstack([gradients, np.zeros((len(gradients), n))]),
        b_eq=np.zeros(len(gradients)),
        bounds=[(-LARGEST, LARGEST)] * m + [(0, 1)] * n,
    )
    if best.status == 0:
        mask[closed] = best.x[m:] > 0.5
    return mask
