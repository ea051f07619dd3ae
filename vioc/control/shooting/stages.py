"""Cost, map and constraints with derivatives, along curves of states and inputs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from vioc.checks import finite
from vioc.control.costs.cost import Bending, Cost, Predicted
from vioc.control.problem.consistent import ConstraintProjection
from vioc.control.problem.sizes import Sizes
from vioc.control.shooting.rows import ConstraintRows
from vioc.control.stages.linear_quadratic import LinearQuadratic
from vioc.errors import ConstraintError, OptimizationError, StepError, trying
from vioc.maps.derivatives import Linearization, Steps
from vioc.maps.protocol import OneStepMap
from vioc.runs.trajectory import Trajectory

ROUNDING = 1e-12  # largest difference of the steps of two backends, in units of states


@dataclass(frozen=True)
class Point:
    """Curve of states and inputs with its defects, cost and constraint values.

    Attributes
    ----------
    curve : Trajectory
        Its states need not follow from its inputs. Its multipliers are those of `steps`.
    steps : Steps
        One step of the map from every state but the last.
    gaps : (N, ndx)
        Defects: results of `steps` minus the next states, in units of the sizes of states.
    cost : float
    rows : (rows,)
        Scaled values of the constraints.
    """

    curve: Trajectory
    steps: Steps
    gaps: np.ndarray
    cost: float
    rows: np.ndarray

    @cached_property
    def open(self) -> bool:
        """True if some defect is not 0, so that the curve is not a trajectory."""
        return bool(self.gaps.any())

    def closed(self) -> Point:
        """Return this curve, with defects that are only rounding errors set to 0.

        Rollouts of another backend or process have defects of at most `ROUNDING`.
        """
        small = np.abs(self.gaps).max(initial=0.0) <= ROUNDING
        return replace(self, gaps=np.zeros_like(self.gaps)) if small and self.open else self


@dataclass(frozen=True)
class StageBlocks(LinearQuadratic):
    """Quadratic model of the problem about a curve of states and inputs.

    The model's variables are errors of x and changes of u, in units of their sizes (see `Stages`). g is the
    gradient of the cost, H the exact Hessian of the Lagrangian or the Gauss-Newton Hessian, and c are the
    defects.

    Attributes
    ----------
    J, J_end : (N, m, q), (m_end, ndx)
        Jacobians of the constraints.
    zeta : (N, nm) or None
        Derivative of the cost with respect to the map's multipliers; None if the cost does not use them.
    slopes : pair of Slopes or None
        Derivatives of the nonlinear residuals of the cost.
    """

    J: np.ndarray
    J_end: np.ndarray
    zeta: np.ndarray | None = None
    slopes: Bending = (None, None)

    def pulled(self, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the constraints' terms J'y in the gradient of the Lagrangian.

        J is the Jacobian of the constraints, and y (rows,) are their multipliers. The results are (N, q) for
        the steps and (ndx,) for the last state.
        """
        N, m = self.J.shape[:2]
        return (y[: N * m].reshape(N, 1, m) @ self.J)[:, 0], self.J_end.T @ y[N * m :]


class Stages:
    """Cost, map and constraints over N steps, with their values and derivatives.

    Parameters
    ----------
    f : OneStepMap
    cost : Cost
    rows : ConstraintRows
    k0 : int
        Index of the first step.
    lengths : (N,)
        Step lengths, s.
    start : (ndx, s), optional
        Directions along which the first state is free; default none.
    rigid : int
        Number of trailing errors of the state that are constants of the motion, without defects.
    sizes : Sizes, optional
        Units of the states' errors and of the inputs; default 1. All derivatives, steps and gains that this
        class takes or returns are in these units; curves are in the units of the map. With typical sizes, a
        search does not depend on the units of the map.
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
        sizes: Sizes | None = None,
    ):
        self.map, self.cost, self.rows = f, cost, rows
        self.start = np.zeros((f.ndx, 0)) if start is None else start
        self.rigid = rigid
        self.of_states = np.ones(f.ndx) if sizes is None else sizes.states
        self.of_inputs = np.ones(f.nu) if sizes is None else sizes.inputs
        self.of_both = np.concatenate([self.of_states, self.of_inputs])
        self._onto = ConstraintProjection(f, self.of_states)
        self.k0, self.lengths, self.t = k0, lengths, f.times(lengths, k0)
        even = len(lengths) > 0 and bool((lengths == lengths[0]).all())
        self.dt = float(lengths[0]) if even else lengths  # a scalar is faster to evaluate
        self.trouble: Exception | None = None
        # also roll out trials under feedback, which is slow without a kernel for it
        self.follows = True

    def at(self, X: np.ndarray, U: np.ndarray) -> Point | None:
        """Return a curve of states and inputs with its defects, cost and constraints.

        Return None if a step of the map does not exist, or if the cost or a constraint has no finite value.
        The attribute `trouble` then holds the error, if one was raised.
        """
        f = self.map
        if not finite(X, U):
            return None
        try:
            with trying():
                steps = f.steps_at(X[:-1], U, self.k0, self.dt, t=self.t[:-1])
            curve = Trajectory.stepped(f, self.lengths, X, U, steps.multipliers, k0=self.k0, t=self.t)
            return self._point(curve, steps, f.difference(X[1:], steps.x1))
        except (StepError, OptimizationError, ConstraintError) as error:  # the last: a start in penetration
            self.trouble = error
            return None

    def _point(self, curve: Trajectory, steps: Steps, gaps: np.ndarray) -> Point | None:
        cost, gaps = self.cost.value(curve), gaps / self.of_states
        rows = self.rows.values(curve) if len(self.rows) else np.zeros(0)
        return Point(curve, steps, gaps, cost, rows) if finite(gaps, rows) else None

    def blocks(
        self, point: Point, lin: Linearization, exact: bool = False, predicted: Predicted = (None, None)
    ) -> StageBlocks:
        """Return the quadratic model of the problem along a curve of states and inputs.

        It has the first derivatives of map, cost and constraints. Its Hessian is that of the cost alone:
        Gauss-Newton, or exact with the predicted residuals `predicted` as multipliers (`Cost.expand`).
        """
        e = self.cost.expand(point.curve, lin, None if exact else self.of_both, predicted)
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
        """Return the quadratic model with the exact Hessian of the Lagrangian.

        `b` is a model with the exact Hessian of the cost. The second derivatives of the dynamics, with
        costates p (N+1, ndx), and of the constraints, with multipliers y (rows,), are added to it.
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
        """Return states and inputs after a step of a given length along a direction.
        Joint variables after the first state are corrected, so that the holonomic constraints change as their
        derivatives predict (`ConstraintProjection`).
        """
        now, change = point.curve.x, self.of_states * (length * dx)
        X = self.map.retract(now, change)
        X[1:] = self._onto(X[1:], self._onto.predicted(now[1:], change[1:]))
        return X, point.curve.u + length * self.of_inputs * du

    def consistent(self, X: np.ndarray) -> np.ndarray:
        """Return states X with joint variables that satisfy the constraints.
        The first state is not changed.
        """
        return np.concatenate([X[:1], self._onto(X[1:])])

    def steps_of(self, dx: np.ndarray, du: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Convert changes of states and inputs from scaled to the map's units."""
        return self.of_states * dx, self.of_inputs * du

    def gains_of(self, gains: np.ndarray) -> np.ndarray:
        """Convert feedback gains from scaled variables to the units of the map."""
        return gains * (self.of_inputs[:, None] / self.of_states)

    def predicted(
        self,
        b: StageBlocks,
        lin: Linearization,
        dx: np.ndarray,
        du: np.ndarray,
        before: Predicted,
        length: float,
    ) -> Predicted:
        """Predict the nonlinear residuals of the cost after a step along dx, du.
        The step is the fraction `length` of dx and du, which are in scaled units.

        `Cost.predicted` documents the arguments.
        """
        return self.cost.predicted(b.slopes, lin, *self.steps_of(dx, du), before, length)

    def beyond(
        self, b: StageBlocks, lin: Linearization, new: Trajectory, dx: np.ndarray, du: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray] | None:
        """Return J'We, a correction of the cost's gradient for prediction errors e.

        e are the actual nonlinear residuals of the cost after a step dx, du, minus their linear predictions.
        J is the Jacobian of these residuals, and W their weight matrix. The step is in scaled units;
        `Cost.beyond` documents the arguments.
        """
        found = self.cost.beyond(b.slopes, lin, new, *self.steps_of(dx, du))
        return None if found is None else (found[0] * self.of_both, found[1] * self.of_states)

    def followed(self, X: np.ndarray, U: np.ndarray, gains: np.ndarray, near: float = np.inf) -> Point | None:
        """Return the trajectory that follows a curve of states and inputs under feedback.

        The result includes the cost and the constraint values of the trajectory. Return None if a step does
        not exist, if a value is not finite, or if the trajectory is farther than `near` from the curve, in
        units of sizes.
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
