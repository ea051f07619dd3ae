"""A problem where a curve of states and inputs stands: values, and blocks of derivatives by stage."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from vioc.checks import finite
from vioc.control.costs.cost import Bending, Cost, Foreseen
from vioc.control.shooting.rows import ConstraintRows
from vioc.control.stages.linear_quadratic import LinearQuadratic
from vioc.errors import ConstraintError, OptimizationError, StepError, trying
from vioc.maps.derivatives import Linearization, Steps
from vioc.maps.protocol import OneStepMap
from vioc.runs.trajectory import Trajectory

ROUNDING = 1e-12  # in units of states: by which steps of two backends differ at most


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
        Where steps end, from the next state on, in units of the sizes of states.
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

    def closed(self) -> Point:
        """Without gaps where they are `ROUNDING`: of what another backend, or another process, rolled out."""
        small = np.abs(self.gaps).max(initial=0.0) <= ROUNDING
        return replace(self, gaps=np.zeros_like(self.gaps)) if small and self.open else self


@dataclass(frozen=True)
class StageBlocks(LinearQuadratic):
    """The quadratic problem at a point, in errors of x and in u: g of the cost, H of the Lagrangian, exact or
    Gauss-Newton's, c the gaps. States and inputs are in units of their sizes, see `Stages`.

    Attributes
    ----------
    J, J_end : (N, m, q), (m_end, ndx)
        Of the rows.
    zeta : (N, nm) or None
        Derivative of the cost by the map's multipliers; None where it does not use them.
    slopes : pair of Slopes or None
        Of the cost's residuals that are not linear.
    """

    J: np.ndarray
    J_end: np.ndarray
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
    rows : ConstraintRows
    k0 : int
        Of the first step.
    lengths : (N,)
        Of the steps, s.
    start : (ndx, s), optional
        Directions along which the first state is free; default none.
    rigid : int
        How many of the last errors of the state are constants of the motion, which have no gaps.
    sizes : (ndx,), (nu,), optional
        Units of the errors of states, and of inputs, of all that is made here and of steps and gains that are
        taken, but for curves; default 1. With typical sizes a search does not depend on the units of the map.
    """

    def __init__(
        self,
        f: OneStepMap,
        cost: Cost,
        rows: ConstraintRows,
        k0: int,
        lengths: np.ndarray,
        start: np.ndarray | None = None,
        rigid: int = 0,
        sizes: tuple[np.ndarray, np.ndarray] | None = None,
    ):
        self.map, self.cost, self.rows = f, cost, rows
        self.start = np.zeros((f.ndx, 0)) if start is None else start
        self.rigid = rigid
        of_states, of_inputs = (np.ones(f.ndx), np.ones(f.nu)) if sizes is None else sizes
        self.of_states: np.ndarray = of_states
        self.of_inputs: np.ndarray = of_inputs
        self.of_both = np.concatenate([self.of_states, self.of_inputs])
        self.k0, self.lengths, self.t = k0, lengths, f.times(lengths, k0)
        even = len(lengths) > 0 and bool((lengths == lengths[0]).all())
        self.dt = float(lengths[0]) if even else lengths  # of steps: a number costs less
        self.trouble: Exception | None = None
        self.follows = (
            True  # whether trials are also rolled out, under feedback: slow where no kernel does it
        )

    def at(self, X: np.ndarray, U: np.ndarray) -> Point | None:
        """The problem at a curve; None where a step does not exist or a value is not finite: `trouble` says
        why.
        """
        f = self.map
        if not finite(X, U):
            return None
        try:
            with trying():
                steps = f.steps_at(X[:-1], U, self.k0, self.dt, t=self.t[:-1])
            curve = Trajectory.stepped(f, self.lengths, X, U, steps.multipliers, k0=self.k0, t=self.t)
            return self._point(curve, steps, f.difference(X[1:], steps.x1))
        except (StepError, OptimizationError, ConstraintError) as error:  # or a start in penetration
            self.trouble = error
            return None

    def _point(self, curve: Trajectory, steps: Steps, gaps: np.ndarray) -> Point | None:
        cost, gaps = self.cost.value(curve), gaps / self.of_states
        rows = self.rows.values(curve) if len(self.rows) else np.zeros(0)
        return Point(curve, steps, gaps, cost, rows) if finite(gaps, rows) else None

    def blocks(
        self, point: Point, lin: Linearization, exact: bool = False, foreseen: Foreseen = (None, None)
    ) -> StageBlocks:
        """First derivatives there, and the cost's Hessian: Gauss-Newton's, or the exact one with multipliers
        of residuals that were `foreseen` (`Cost.expand`).
        """
        e = self.cost.expand(point.curve, lin, exact, foreseen)
        J, J_end = self.rows.jacobians(point.curve, lin)
        of_x, of_z = self.of_states, self.of_both
        F = np.concatenate([lin.A, lin.B], axis=2) * (of_z / of_x[:, None])
        H, H_end = e.second * np.outer(of_z, of_z), e.end_second * np.outer(of_x, of_x)
        g, g_end = e.first * of_z, e.end * of_x
        return StageBlocks(F, H, H_end, g, g_end, point.gaps, J * of_z, J_end * of_x, e.zeta, e.slopes)

    def curved(
        self,
        point: Point,
        lin: Linearization,
        b: StageBlocks,
        p: np.ndarray,
        y: np.ndarray,
    ) -> StageBlocks:
        """Blocks with the cost's exact Hessian, with that of the Lagrangian in its place: costates p
        (N+1, ndx) of the dynamics, multipliers y (rows,) of the limits.
        """
        n, H, H_end = b.F.shape[1], np.zeros(b.H.shape), b.H_end
        of_x, of_z = self.of_states, self.of_both
        zeta = np.zeros(point.steps.multipliers.shape) if b.zeta is None else b.zeta
        if y.any():
            own, own_end, by_multipliers = self.rows.curvature(point.curve, lin, y)
            H += 0.0 if own is None else own
            H_end = H_end if own_end is None else H_end + own_end * np.outer(of_x, of_x)
            zeta = zeta if by_multipliers is None else zeta + by_multipliers
        weights = np.ascontiguousarray(p[1:] / of_x), np.ascontiguousarray(zeta)
        second = self.map.derivatives.second(point.steps, *weights)
        H[:, :n, :n] += second.xx
        H[:, :n, n:] += second.xu
        H[:, n:, :n] += second.xu.swapaxes(1, 2)
        H[:, n:, n:] += second.uu
        return replace(b, H=b.H + H * np.outer(of_z, of_z), H_end=H_end)

    def moved(self, point: Point, dx: np.ndarray, du: np.ndarray, length: float) -> Any:
        """States and inputs a part of a step away."""
        dx, du = self.steps_of(dx, du)
        return self.map.retract(point.curve.x, length * dx), point.curve.u + length * du

    def steps_of(self, dx: np.ndarray, du: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """A step in the units of the map."""
        return self.of_states * dx, self.of_inputs * du

    def gains_of(self, gains: np.ndarray) -> np.ndarray:
        """Gains in the units of the map."""
        return gains * (self.of_inputs[:, None] / self.of_states)

    def foreseen(
        self,
        b: StageBlocks,
        lin: Linearization,
        dx: np.ndarray,
        du: np.ndarray,
        before: Foreseen,
        length: float,
    ) -> Foreseen:
        """`Cost.foreseen` of a step."""
        return self.cost.foreseen(b.slopes, lin, *self.steps_of(dx, du), before, length)

    def beyond(
        self, b: StageBlocks, lin: Linearization, new: Trajectory, dx: np.ndarray, du: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray] | None:
        """`Cost.beyond` of a step."""
        found = self.cost.beyond(b.slopes, lin, new, *self.steps_of(dx, du))
        return None if found is None else (found[0] * self.of_both, found[1] * self.of_states)

    def followed(self, X: np.ndarray, U: np.ndarray, gains: np.ndarray, near: float = np.inf) -> Point | None:
        """The problem at the trajectory that follows a curve under feedback; None where there is none, or it
        leaves the curve by more than `near`.
        """
        f = self.map
        if not (self.follows and finite(X, U)):
            return None
        try:
            with trying():
                run = f.run(X[0], U, self.k0, self.lengths, X[:-1], self.gains_of(gains), t=self.t[:-1])
            if not np.abs(f.difference(X, run.x) / self.of_states).max() <= near:
                return None
            return self._point(run, Steps.along(run), np.zeros((len(U), f.ndx)))
        except (StepError, OptimizationError, ConstraintError) as error:  # or a start in penetration
            self.trouble = error
            return None
