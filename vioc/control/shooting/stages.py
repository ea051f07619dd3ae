"""A problem where a curve of states and inputs stands: values, and blocks of derivatives by stage."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from vioc.checks import finite
from vioc.control.costs.cost import Bending, Cost, Foreseen
from vioc.control.problem.result import elsewhere
from vioc.control.shooting.rows import Rows
from vioc.errors import ConstraintError, OptimizationError, StepError, trying
from vioc.maps.derivatives import Linearization, Steps
from vioc.maps.protocol import OneStepMap, Rescue
from vioc.maps.trajectory import Trajectory

FOLLOWS = 1e-9  # relative to 1 + |x|: how far a rollout may be from a curve that it goes along


@dataclass(frozen=True)
class Point:
    """A curve, and what it is worth.

    Attributes
    ----------
    curve : Trajectory
        States that need not follow from the inputs; the multipliers are those of steps from its states.
    steps : Steps
        One step from every state.
    gaps : (N, ndx)
        Where steps end, from the next state on.
    cost : float
    rows : (rows,)
        Scaled values of the limited quantities.
    """

    curve: Trajectory
    steps: Steps
    gaps: np.ndarray
    cost: float
    rows: np.ndarray

    @cached_property
    def open(self) -> bool:
        """Whether there is a gap: the curve is no trajectory."""
        return bool(self.gaps.any())


@dataclass(frozen=True)
class Blocks:
    """First derivatives at a point, and Hessians of the Lagrangian, by stage; z = (error of x, u), q = |z|.

    Attributes
    ----------
    F : (N, ndx, q)
        Of the step.
    g, g_end : (N, q), (ndx,)
        Of the cost.
    J, J_end : (N, m, q), (m_end, ndx)
        Of the rows.
    H, H_end : (N, q, q), (ndx, ndx)
        Of the Lagrangian, exact or Gauss-Newton's.
    zeta : (N, nm) or None
        Derivative of the cost by the map's multipliers; None where it does not use them.
    slopes : pair of Slopes or None
        Of the cost's residuals that are not linear.
    """

    F: np.ndarray
    g: np.ndarray
    g_end: np.ndarray
    J: np.ndarray
    J_end: np.ndarray
    H: np.ndarray
    H_end: np.ndarray
    zeta: np.ndarray | None = None
    slopes: Bending = (None, None)

    def pulled(self, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """J'y of multipliers y (rows,), by stage and at the end."""
        N, m = self.J.shape[:2]
        return (y[: N * m].reshape(N, 1, m) @ self.J)[:, 0], self.J_end.T @ y[N * m :]


class Stages:
    """Cost, map and limits over N steps.

    Parameters
    ----------
    f : OneStepMap
    cost : Cost
    rows : Rows
    k0 : int
        Of the first step.
    lengths : (N,)
        Of the steps, s.
    start : (ndx, s), optional
        Directions along which the first state is free; default none.
    rigid : int
        How many of the last errors of the state are constants of the motion, which have no gaps.
    """

    def __init__(
        self,
        f: OneStepMap,
        cost: Cost,
        rows: Rows,
        k0: int,
        lengths: np.ndarray,
        start: np.ndarray | None = None,
        rigid: int = 0,
    ):
        self.map, self.cost, self.rows = f, cost, rows
        self.start = np.zeros((f.ndx, 0)) if start is None else start
        self.rigid = rigid
        self.k0, self.lengths, self.t = k0, lengths, f.times(lengths, k0)
        even = len(lengths) > 0 and bool((lengths == lengths[0]).all())
        self.dt = float(lengths[0]) if even else lengths  # of steps: a number costs less
        self.trouble: Exception | None = None
        self.follows = (
            True  # whether trials are also rolled out, under feedback: slow where no kernel does it
        )
        self.begun: tuple[np.ndarray, np.ndarray, Point] | None = None  # of a curve that is a rollout
        self.parts = False  # whether steps are taken as the map does by itself, or whole, which is quicker

    def in_parts(self, X: np.ndarray | None = None, U: np.ndarray | None = None) -> Stages:
        """The same, with steps as the map takes them by itself; at a curve (X, U) that its rollout goes along
        these are the rollout's, which knows the motion before a step and so doubts others.
        """
        again = copy(self)
        again.parts = True
        if X is not None and U is not None:
            near = FOLLOWS * (1 + np.abs(X).max())
            point = again.followed(X, U, np.zeros((len(U), self.map.nu, self.map.ndx)), near)
            again.begun = None if point is None else (X.copy(), U.copy(), point)
        return again

    def elsewhere(self, point: Point) -> str:
        """Which step ends elsewhere as the map takes it by itself, in parts where a whole one is in doubt."""
        curve = point.curve
        return elsewhere(self.map, curve.x[:-1], curve.u, point.steps.x1, self.k0, self.lengths)

    def at(self, X: np.ndarray, U: np.ndarray, hard: bool = False) -> Point | None:
        """The problem at a curve; None where a step is not solved, `hard` by all means, or a value is not
        finite: `trouble` says why.
        """
        f = self.map
        if not finite(X, U):
            return None
        if self.begun and np.array_equal(X, self.begun[0]) and np.array_equal(U, self.begun[1]):
            return self.begun[2]
        try:
            with trying():
                means: Rescue = "split" if self.parts else hard
                steps = f.steps_at(X[:-1], U, self.k0, self.dt, rescue=means, t=self.t[:-1])
            curve = Trajectory.stepped(f, self.lengths, X, U, steps.multipliers, k0=self.k0, t=self.t)
            return self._point(curve, steps, f.difference(X[1:], steps.x1))
        except (StepError, OptimizationError, ConstraintError) as error:  # or a start in penetration
            self.trouble = error
            return None

    def _point(self, curve: Trajectory, steps: Steps, gaps: np.ndarray) -> Point | None:
        cost = self.cost.value(curve)
        rows = self.rows.values(curve) if len(self.rows) else np.zeros(0)
        return Point(curve, steps, gaps, cost, rows) if finite(gaps, rows) else None

    def blocks(
        self, point: Point, lin: Linearization, exact: bool = False, foreseen: Foreseen = (None, None)
    ) -> Blocks:
        """First derivatives there, and the cost's Hessian: Gauss-Newton's, or the exact one with multipliers
        of residuals that were `foreseen` (`Cost.expand`).
        """
        e = self.cost.expand(point.curve, lin, exact, foreseen)
        J, J_end = self.rows.jacobians(point.curve, lin)
        F = np.concatenate([lin.A, lin.B], axis=2)
        return Blocks(F, e.first, e.end, J, J_end, e.second, e.end_second, e.zeta, e.slopes)

    def curved(
        self,
        point: Point,
        lin: Linearization,
        b: Blocks,
        p: np.ndarray,
        y: np.ndarray,
    ) -> Blocks:
        """Blocks with the cost's exact Hessian, with that of the Lagrangian in its place: costates p
        (N+1, ndx) of the dynamics, multipliers y (rows,) of the limits.
        """
        n, H, H_end = b.F.shape[1], b.H.copy(), b.H_end
        zeta = np.zeros(point.steps.multipliers.shape) if b.zeta is None else b.zeta
        if y.any():
            own, own_end, by_multipliers = self.rows.curvature(point.curve, lin, y)
            H += 0.0 if own is None else own
            H_end = H_end if own_end is None else H_end + own_end
            zeta = zeta if by_multipliers is None else zeta + by_multipliers
        second = self.map.second(point.steps, np.ascontiguousarray(p[1:]), np.ascontiguousarray(zeta))
        H[:, :n, :n] += second.xx
        H[:, :n, n:] += second.xu
        H[:, n:, :n] += second.xu.swapaxes(1, 2)
        H[:, n:, n:] += second.uu
        return replace(b, H=H, H_end=H_end)

    def moved(self, point: Point, dx: np.ndarray, du: np.ndarray, length: float) -> Any:
        """States and inputs a part of a step away."""
        return self.map.retract(point.curve.x, length * dx), point.curve.u + length * du

    def followed(
        self, X: np.ndarray, U: np.ndarray, gains: np.ndarray, near: float = np.inf, hard: bool = False
    ) -> Point | None:
        """The problem at the trajectory that follows a curve under feedback; None where there is none, or it
        leaves the curve by more than `near`.
        """
        f = self.map
        if not (self.follows and finite(X, U)):
            return None
        try:
            with trying():
                means: Rescue = "split" if self.parts else hard
                run = f.run(X[0], U, self.k0, self.lengths, X[:-1], gains, rescue=means, t=self.t[:-1])
            if not np.abs(f.difference(X, run.x)).max() <= near:
                return None
            return self._point(run, Steps.along(run), np.zeros((len(U), f.ndx)))
        except (StepError, OptimizationError, ConstraintError) as error:  # or a start in penetration
            self.trouble = error
            return None
