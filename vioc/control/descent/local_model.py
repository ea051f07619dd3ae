"""The cost on the trajectory manifold to second order about an iterate, and directions of descent on it.

See docs/maths/optimal_control.md, "The projection operator" and "Descent".
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from vioc.control.costs.cost import Cost
from vioc.control.descent.projection import adjoint, project
from vioc.control.linear.weights import absolute
from vioc.control.problem.sizes import Sizes, power
from vioc.control.regulators.riccati import riccati
from vioc.control.stages.quadratic import Quadratic, joined
from vioc.control.stages.recursion import Recursion
from vioc.errors import OptimizationError, StepError, trying
from vioc.maps.protocol import OneStepMap
from vioc.maps.trajectory import Trajectory

Blocks = tuple[np.ndarray, np.ndarray, np.ndarray]
Weights = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True)
class DescentDirection:
    """A tangent trajectory dx (N+1, ndx), du (N, nu), slope = Dg.zeta, and the shift of its Hessian."""

    method: str
    shift: float
    dx: np.ndarray
    du: np.ndarray
    slope: float


class LocalModel:
    """The cost on the trajectory manifold to second order about an iterate.

    Parameters
    ----------
    f : OneStepMap
    cost : Cost
    run : Trajectory
    weights : (ndx, ndx), (nu, nu), or None
        Q, R of the projection's gains, Qf = Q; None takes the convex part of the cost itself.

    Attributes
    ----------
    trouble : Exception or None
        Why the last trial was no trajectory with a cost.
    """

    trouble: Exception | None = None

    def __init__(self, f: OneStepMap, cost: Cost, run: Trajectory, weights: Weights | None):
        self.map, self.cost, self.run = f, cost, run
        self.lin = f.linearize_trajectory(run)
        self.expansion = cost.expand(run, self.lin)
        self.gains = self._gains(weights)
        self._newton: Blocks | None = None

    def _gains(self, weights: Weights | None) -> np.ndarray:
        A, B = self.lin
        if weights is None:
            e = self.expansion
            xx, xu, uu = convex_part(e.lxx, e.lxu, e.luu)
            try:
                return riccati(A, B, xx[:-1], uu, xx[-1], xu)[0]
            except OptimizationError:  # an input without a weight
                weights = np.eye(self.map.ndx), np.eye(self.map.nu)
        Q, R = weights
        return riccati(A, B, Q, R, Q)[0]

    def hessian(self, method: str) -> Blocks:
        """H as blocks xx (N+1, ndx, ndx), xu (N, ndx, nu), uu (N, nu, nu).

        For ``"newton"``, zeta' H zeta is the second derivative of g(P(xi + gamma zeta)) by gamma;
        ``"gauss-newton"`` leaves out the curvature of the map, ``"steepest"`` is the identity with
        the cost's step weights, in the problem's own units.
        """
        e = self.expansion
        if method == "gauss-newton":
            return e.lxx, e.lxu, e.luu
        if method == "steepest":
            sizes = Sizes.along(self.run)
            price = power(float(np.einsum("kii,i->", np.abs(e.luu), sizes.inputs**2)) / e.weights.sum() / 3)
            of_x, of_u = np.diag(price / sizes.states**2), np.diag(price / sizes.inputs**2)
            w = np.append(e.weights, 1.0)[:, None, None]
            return w * of_x, np.zeros_like(e.lxu), w[:-1] * of_u
        if self._newton is None:
            self._newton = self._newton_blocks()
        return self._newton

    def _newton_blocks(self) -> Blocks:
        e = self.expansion
        z = adjoint(self.lin, self.gains, e.lx, e.lu)
        second = self.map.second_order_trajectory(self.run, z[1:], e.zeta)
        xx = e.lxx.copy()
        xx[:-1] += second.xx
        return xx, e.lxu + second.xu, e.luu + second.uu

    def direction(self, method: str, shift: float = 0.0) -> DescentDirection | None:
        """argmin of Dg.zeta + 1/2 <zeta, H zeta>; None where H has no minimum or nothing descends.

        `shift` adds that multiple of the identity (by step weights) in units of the problem's sizes and of
        the inputs' mean weight. ``"gauss-newton"`` makes a cost that is not convex so.
        """
        H = self.hessian(method)
        if shift > 0:
            of_x, of_u = (shift * np.diag(unit) for unit in self._units)
            w = np.append(self.expansion.weights, 1.0)[:, None, None]
            H = H[0] + w * of_x, H[1], H[2] + w[:-1] * of_u
        found = self._minimizer(H)
        if found is None and method == "gauss-newton":
            found = self._minimizer(convex_part(*H))
        return None if found is None else descending(self, DescentDirection(method, shift, *found))

    @property
    def _units(self) -> tuple[np.ndarray, np.ndarray]:
        """Of shifts (ndx,), (nu,): the mean weight of inputs per unit step weight, or that of the last state
        where they have none, in units of sizes.
        """
        e, sizes = self.expansion, Sizes.along(self.run)
        of_x, of_u = sizes.states, sizes.inputs
        mean = float(np.diag(e.luu.sum(axis=0)) @ of_u**2) / (e.weights.sum() * self.map.nu)
        price = mean if mean > 0 else float(np.abs(e.lxx[-1] * np.outer(of_x, of_x)).max())
        return price / of_x**2, price / of_u**2

    def _factored(self, H: Blocks) -> tuple[Recursion, Quadratic] | None:
        """The problem of a direction, where it has a minimum."""
        (xx, xu, uu), e, (A, B) = H, self.expansion, self.lin
        N, n, m = B.shape
        stages = Quadratic(
            np.concatenate([A, B], axis=2), joined(xx[:-1], xu, uu), xx[-1], e.first, e.end, np.zeros((N, n))
        )
        lq = Recursion(N, n, m, native=self.map.backend.name != "virtual")
        return (lq, stages) if lq.factor(stages) else None

    def _minimizer(self, H: Blocks) -> tuple[np.ndarray, np.ndarray, float] | None:
        """dx, du and the slope along them; None where there is no minimum."""
        found, e = self._factored(H), self.expansion
        if found is None:
            return None
        lq, stages = found
        dx, du, _ = lq.solve(stages, np.zeros(lq.n))
        return dx, du, float(np.vdot(e.lx, dx) + np.vdot(e.lu, du))

    def has_minimum(self) -> bool:
        """Whether Newton's Hessian is positive definite on tangent trajectories."""
        return self._factored(self.hessian("newton")) is not None

    def trial(
        self, direction: DescentDirection, gamma: float, limit: float
    ) -> tuple[Trajectory, float] | None:
        """The projection of the iterate plus gamma times a direction, and its cost; None if above `limit`.

        None too where it leads to no trajectory, or one without a cost: `trouble` says why, and a shorter
        step may do.
        """
        f, run = self.map, self.run
        self.trouble = None
        X, U = f.retract(run.x, gamma * direction.dx), run.u + gamma * direction.du
        if not (np.isfinite(X).all() and np.isfinite(U).all()):
            return None
        try:
            with trying():
                moved = project(f, X, U, self.gains, run.x[0], k0=run.k0, dt=run.step_lengths)
            value = self.cost.value(moved)
        except (StepError, OptimizationError) as error:
            self.trouble = error
            return None
        return (moved, value) if value <= limit else None


def descending(model: LocalModel, aim: DescentDirection) -> DescentDirection | None:
    """A minimizer along which the cost falls; None where it does not.

    Where there is a minimum the slope is <= 0 but for rounding: it is a sum whose terms cancel, near an
    optimum all of them. What rounding may leave of them counts as 0.
    """
    if aim.slope <= 0:
        return aim
    e = model.expansion
    terms = np.concatenate([(e.lx * aim.dx).ravel(), (e.lu * aim.du).ravel()])
    rounding = terms.size * np.finfo(float).eps * np.abs(terms).sum()
    return replace(aim, slope=0.0) if aim.slope <= rounding else None


def convex_part(xx: np.ndarray, xu: np.ndarray, uu: np.ndarray) -> Blocks:
    """The blocks with their eigenvalues' signs dropped: steps stay short where curvature is negative."""
    n = xx.shape[1]
    H = absolute(joined(xx[:-1], xu, uu))
    return np.concatenate([H[:, :n, :n], absolute(xx[-1:])]), H[:, :n, n:], H[:, n:, n:]
