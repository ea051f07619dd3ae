"""Second-order model of a cost on the set of trajectories; descent directions.

See docs/maths/optimal_control.md, "The projection operator" and "Descent".
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from vioc.control.costs.cost import Cost
from vioc.control.descent.projection import project
from vioc.control.linear.weights import absolute
from vioc.control.problem.sizes import Sizes, as_unit
from vioc.control.regulators.riccati import riccati
from vioc.control.stages.linear_quadratic import LinearQuadratic, costates, joined
from vioc.control.stages.recursion import Recursion
from vioc.errors import OptimizationError, StepError, trying
from vioc.maps.protocol import OneStepMap
from vioc.runs.trajectory import Trajectory

Hessian = tuple[np.ndarray, np.ndarray]  # of the steps (N, q, q) and of the end (ndx, ndx)
Weights = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True)
class DescentDirection:
    """Descent direction zeta of the cost: a trajectory of the linearized dynamics.

    It consists of dx (N+1, ndx) and du (N, nu). `slope` is Dg.zeta, the derivative of the cost along it.
    `shift` is the term that was added to the diagonal of the Hessian.
    """

    method: str
    shift: float
    dx: np.ndarray
    du: np.ndarray
    slope: float


class LocalModel:
    """Second-order model of the cost near a trajectory, on the set of trajectories.

    Parameters
    ----------
    f : OneStepMap
    cost : Cost
    run : Trajectory
    weights : (ndx, ndx), (nu, nu), or None
        Weights Q, R of the regulator with the projection's gains, Qf = Q; None: convex part of the cost.
    native : bool
        Whether Riccati recursions run in C (`recursion.in_c`).
    sizes : Sizes, optional
        Typical sizes of states and inputs; default: those along the trajectory.

    Attributes
    ----------
    trouble : Exception or None
        Error of the last trial that was not a trajectory with a finite cost.
    """

    trouble: Exception | None = None
    _native = False

    def __init__(
        self,
        f: OneStepMap,
        cost: Cost,
        run: Trajectory,
        weights: Weights | None,
        native: bool = False,
        sizes: Sizes | None = None,
    ):
        self.map, self.cost, self.run, self._native = f, cost, run, native
        self.sizes = Sizes.along(run) if sizes is None else sizes
        self.lin = f.linearize_trajectory(run)
        self.expansion = cost.expand(run, self.lin)
        self.gains = self._gains(weights)
        self._newton: Hessian | None = None

    def _gains(self, weights: Weights | None) -> np.ndarray:
        A, B = self.lin
        if weights is None:
            factors = self._factored(self._convex(self.expansion.second, self.expansion.end_second))
            if factors is not None:
                return factors[0].gains
            sizes = self.sizes  # an input has no weight in the cost
            weights = np.diag(1 / sizes.states**2), np.diag(1 / sizes.inputs**2)
        Q, R = weights
        return riccati(A, B, Q, R, Q)[0]

    def hessian(self, method: str) -> Hessian:
        """Return the Hessian of the model for Newton, Gauss-Newton or steepest descent.

        The Hessians of the steps, (N, q, q), are with respect to z = (x, u); that of the last state is (ndx,
        ndx). For ``"newton"``, zeta' H zeta is the second derivative of g(P(xi + gamma zeta)) with respect to
        gamma. ``"gauss-newton"`` omits the second derivatives of the map. ``"steepest"`` is the identity
        times the weights of the steps in the cost, in the problem's own units.
        """
        e = self.expansion
        if method == "gauss-newton":
            return e.second, e.end_second
        if method == "steepest":
            sizes = self.sizes
            price = float(np.einsum("kii,i->", np.abs(e.luu), sizes.inputs**2)) / e.weights.sum() / 3
            price = as_unit(price or self._bend)
            return self._diagonal(price / sizes.states**2, price / sizes.inputs**2)
        if self._newton is None:
            self._newton = self._newton_hessian()
        return self._newton

    def _diagonal(self, of_x: np.ndarray, of_u: np.ndarray) -> Hessian:
        """Return a diagonal Hessian of the quadratic model.
        `of_x` and `of_u` are its diagonal entries for state and input. In each step they are multiplied by
        the weight of this step in the cost, and in the last state by the mean of these weights.
        """
        w = self.expansion.weights
        return w[:, None, None] * np.diag(np.concatenate([of_x, of_u])), w.mean() * np.diag(of_x)

    def _newton_hessian(self) -> Hessian:
        e = self.expansion
        # second derivatives of step k enter with the costate z[k + 1] of the closed loop
        closed = self.lin.A - self.lin.B @ self.gains
        z = costates(closed, e.lx[:-1] - np.einsum("kua,ku->ka", self.gains, e.lu), e.lx[-1])[0]
        second = self.map.second_order_trajectory(self.run, z[1:], e.zeta)
        return e.second + joined(second.xx, second.xu, second.uu), e.end_second

    def direction(self, method: str, shift: float = 0.0) -> DescentDirection | None:
        """Return the descent direction that minimizes the quadratic model.
        Return None if the model has no minimum or its minimizer is not a descent direction.

        The direction is the argmin of Dg.zeta + 1/2 <zeta, H zeta>. A positive `shift` adds `shift` times the
        units `_units` and the weight of each step in the cost to the diagonal of H. ``"gauss-newton"``
        replaces a nonconvex cost by its convex part.
        """
        H, end = self.hessian(method)
        if shift > 0:
            diagonal, at_end = self._diagonal(*(shift * unit for unit in self._units))
            H, end = H + diagonal, end + at_end
        minimizer = self._minimizer((H, end))
        if minimizer is None and method == "gauss-newton":
            minimizer = self._minimizer(self._convex(H, end))
        return None if minimizer is None else descending(self, DescentDirection(method, shift, *minimizer))

    @property
    def _bend(self) -> float:
        """Largest scaled second derivative of the terminal cost, over a step's weight."""
        e, of_x = self.expansion, self.sizes.states
        return float(np.abs(e.lxx[-1] * np.outer(of_x, of_x)).max() / e.weights.mean())

    def _convex(self, H: np.ndarray, end: np.ndarray) -> Hessian:
        """Return a Hessian with its eigenvalues replaced by their absolute values.

        `H` has the Hessians of the steps, and `end` is that of the terminal cost. With absolute values, steps
        stay short along directions of negative curvature.
        """
        of_x, of_u = self.sizes.states, self.sizes.inputs
        return absolute(H, np.concatenate([of_x, of_u])), absolute(end, of_x)

    @property
    def _units(self) -> tuple[np.ndarray, np.ndarray]:
        """Units (ndx,), (nu,) of a shift of the Hessian's diagonal, for state and input.

        In units of the problem's sizes, they equal the mean weight of the inputs in the cost, per unit step
        weight. If the inputs have no weight, the largest weight of the last state is used.
        """
        e, sizes = self.expansion, self.sizes
        of_x, of_u = sizes.states, sizes.inputs
        mean = float(np.diag(e.luu.sum(axis=0)) @ of_u**2) / (e.weights.sum() * self.map.nu)
        price = mean if mean > 0 else self._bend
        return price / of_x**2, price / of_u**2

    def _factored(self, H: Hessian) -> tuple[Recursion, LinearQuadratic] | None:
        """Return the factored linear-quadratic subproblem; None if it has no minimum."""
        e, (A, B) = self.expansion, self.lin
        N, n, m = B.shape
        stages = LinearQuadratic(np.concatenate([A, B], axis=2), *H, e.first, e.end, np.zeros((N, n)))
        lq = Recursion(N, n, m, native=self._native)
        return (lq, stages) if lq.factor(stages) else None

    def _minimizer(self, H: Hessian) -> tuple[np.ndarray, np.ndarray, float] | None:
        """Return the minimizer dx, du of the quadratic model.
        Return also the slope of the cost along it, or None for all three if the model has no minimum.
        """
        factors, e = self._factored(H), self.expansion
        if factors is None:
            return None
        lq, stages = factors
        dx, du, _ = lq.solve(stages, np.zeros(lq.n))
        return dx, du, float(np.vdot(e.lx, dx) + np.vdot(e.lu, du))

    def has_minimum(self) -> bool:
        """Return True if Newton's Hessian is positive definite on linearized trajectories."""
        return self._factored(self.hessian("newton")) is not None

    def trial(
        self, direction: DescentDirection, gamma: float, limit: float
    ) -> tuple[Trajectory, float] | None:
        """Return the trajectory and the cost after a step along a descent direction.
        The step is the fraction `gamma` of the direction. Its end is projected to a trajectory by feedback.

        Return None if the cost is above `limit`, or if there is no trajectory or no finite cost. In the
        latter case `trouble` holds the error, and a shorter step may succeed.
        """
        f, run = self.map, self.run
        self.trouble = None
        X, U = f.retract(run.x, gamma * direction.dx), run.u + gamma * direction.du
        if not (np.isfinite(X).all() and np.isfinite(U).all()):
            return None
        try:
            with trying():
                trial_run = project(f, X, U, self.gains, run.x[0], k0=run.k0, dt=run.step_lengths)
            value = self.cost.value(trial_run)
        except (StepError, OptimizationError) as error:
            self.trouble = error
            return None
        return (trial_run, value) if value <= limit else None


def descending(model: LocalModel, aim: DescentDirection) -> DescentDirection | None:
    """Return the direction `aim` if the cost does not rise along it, else None.

    The direction minimizes the model, so its slope is <= 0 up to rounding. Near an optimum, the terms of the
    slope cancel; a positive slope within the rounding error of these terms counts as 0.
    """
    if aim.slope <= 0:
        return aim
    e = model.expansion
    terms = np.concatenate([(e.lx * aim.dx).ravel(), (e.lu * aim.du).ravel()])
    rounding = terms.size * np.finfo(float).eps * np.abs(terms).sum()
    return replace(aim, slope=0.0) if aim.slope <= rounding else None
