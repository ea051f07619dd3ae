"""Numerical evaluation of the equations of a variational step, and causes of failure.

They are solved by continuation (newton.py); the causes are those of [S] VII.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import casadi as ca
import numpy as np

from vioc.compile.evaluate import Evaluator
from vioc.dynamics.algebra.vectors import part
from vioc.dynamics.consistency import directions_within
from vioc.dynamics.finite import not_finite
from vioc.dynamics.integrators.branch_equations import BranchEquations, BranchRoot, Linearized
from vioc.dynamics.integrators.conditions import SINGULAR, condition
from vioc.dynamics.integrators.newton import NEAR, PASSING, dependent_constraints, singular_ahead
from vioc.dynamics.masses import fault_at
from vioc.errors import StepError

if TYPE_CHECKING:
    from vioc.dynamics.integrators.mechanical import MechanicalMap
    from vioc.dynamics.integrators.variational import VariationalRule

TURNED = 0.1  # cosine between constraint directions at both ends, near a quarter turn


class ResidualBlocks(NamedTuple):
    """Residuals and Jacobian blocks of the equations of one step, or of N steps.
    They are evaluated at next configurations z = q_k+1 of the dynamic variables.

    Attributes
    ----------
    balance : (..., nd)
        p_k + D1 L_d + F-, without the constraint impulse.
    h : (..., nm)
        Residuals of the constraints, at q_k+1.
    D : (..., nd, nd)
        M_k+1 = D2 D1 L_d + D2 F- ([S] (8)), or the approximation that the map solves with.
    J1, J0 : (..., nm, nd)
        Derivative of h by q_k+1, and Dh(q_k), by the dynamic variables.
    """

    balance: np.ndarray
    h: np.ndarray
    D: np.ndarray
    J1: np.ndarray
    J0: np.ndarray


class BlockEvaluator:
    """Evaluator of residuals and Jacobian blocks of a variational integrator's steps.
    Its arguments are (x, u, t, dt, parameters, z) of one step, or of N steps as rows; z are the next dynamic
    configurations.
    """

    def __init__(self, rule: VariationalRule):
        f = self.f = rule.f
        x, u, t, dt = ca.SX.sym("x", f.nx), ca.SX.sym("u", f.nu), ca.SX.sym("t"), ca.SX.sym("dt")
        theta, z = ca.SX.sym("theta", len(f.parameters)), ca.SX.sym("z", f.nd)
        nq, nd, nf = f.nq, f.nd, len(f.system.inputs)
        q0, p, forces = part(x, 0, nq), part(x, nq, nq + nd), part(u, 0, nf)
        q1 = ca.vertcat(z, part(u, nf))
        balance = rule.parts(q0, q1, p, forces, t, dt, theta).balance
        h1, J1 = rule.closing(q0, q1, theta)
        J0 = f.constraint(q0, theta)[1]
        outputs = [balance, h1, rule.slope(q0, q1, forces, t, dt, theta), J1[:, :nd], J0[:, :nd]]
        self._function = ca.Function("equations", [x, u, t, dt, theta, z], outputs)
        self._evaluate = Evaluator(self._function)

    @cached_property
    def along_branch(self) -> Evaluator:
        """Evaluator of the equations of a shortened step.
        The arguments are (x, u, t, dt, parameters, h(q_k), w, share): `share` is the fraction to which the
        step length dt is shortened, and w the mean velocity over the shortened step. The results are the
        residual and the transposed Jacobian of the equations, those of `Linearized`, and the derivative of
        the residual with respect to the share.
        """
        f = self.f
        nd, nq, nf = f.nd, f.nq, len(f.system.inputs)
        x, u, t, dt, theta, w = self._function.sx_in()
        violations, share = ca.SX.sym("off", f.nm), ca.SX.sym("share")
        q_k, length = part(x, nd, nq), share * dt
        applied = ca.vertcat(part(u, 0, nf), q_k + share * (part(u, nf) - q_k))
        end = part(x, 0, nd) + length * w
        balance, h, D, J1, J0 = self._function(x, applied, t, length, theta, end)
        residual = ca.vertcat(balance, (h - (1 - share) * violations) / length)
        matrix = ca.blockcat([[D * length, -J0.T], [J1, ca.SX(f.nm, f.nm)]])
        outputs = [residual, ca.densify(matrix.T), ca.densify(ca.jacobian(residual, share))]
        return Evaluator(ca.Function("along_branch", [x, u, t, dt, theta, violations, w, share], outputs))

    def __call__(self, x, u, t, dt, theta, z) -> ResidualBlocks:
        one = np.ndim(z) == 1
        times = ((np.array([a]) if one else np.asarray(a)[:, None]) for a in (t, dt))
        balance, h, *matrices = self._evaluate(x, u, *times, theta, z)
        return ResidualBlocks(balance[..., 0], h[..., 0], *matrices)


class StepEquations(BranchEquations):
    """Equations of one variational step, for continuation in the step length.
    The unknown is the mean velocity w = (q_k+1 - q_k) / dt.

    If the step is shortened to the fraction `share` of its length, prescribed variables move by this fraction
    of their way, and a violation of the constraints at the start decreases by this fraction:
    h(q_k+1) = (1 - share) h(q_k).

    The function `advice` returns a remedy for a step that ends near a configuration with dependent
    constraints.
    """

    by_arclength = True

    def __init__(
        self,
        f: MechanicalMap,
        rule: VariationalRule,
        x: np.ndarray,
        u: np.ndarray,
        t: float,
        dt: float,
        advice: Callable[[np.ndarray], str] = lambda q: PASSING,
    ):
        self.f, self.rule, self.x, self.u, self.t, self.dt = f, rule, x, u, t, dt
        self._advice = advice
        self.start = self._begins()
        self.weights = np.sqrt(f.lagrangian.mass_scale_with(f.parameters))
        self.size = abs(dt) / (f.lagrangian.natural_sizes_with(f.parameters)[: f.nd] + np.abs(x[: f.nd]))
        self.turns = np.where(f.turning, abs(dt), 0.0)
        self.off = self.blocks(x[: f.nd], 0.0).h if f.nm else np.zeros(0)
        self._w, self._share = np.empty((1, f.nd)), np.empty((1, 1))
        args = (np.asarray(a, float).reshape(1, -1) for a in (x, u, t, dt, f.theta, self.off))
        program = rule.blocks.along_branch.program
        self._bound = program.bind_map([*map(np.ascontiguousarray, args), self._w, self._share], 1)

    def _begins(self) -> np.ndarray:
        """Return the velocities of the state at the step's start.
        Where the mass matrix is singular, they are the velocities of least norm.
        """
        f = self.f
        v = f.velocities(self.x)
        if np.isfinite(v).all():
            return v
        M = f.lagrangian.mass_matrix(self.x[: f.nq], **f.parameters)
        p = self.x[f.nq : f.nq + f.nd] - M[: f.nd, f.nd :] @ self.x[f.nq + f.nd :]
        root = np.sqrt(f.lagrangian.mass_scale_with(f.parameters))
        return np.linalg.lstsq(M[: f.nd, : f.nd] / np.outer(root, root), p / root, rcond=1e-9)[0] / root

    def end(self, w: np.ndarray, share: float) -> np.ndarray:
        """Return the configuration (nq,) at the end of a step with mean velocity w.
        The step is shortened to the fraction `share` of its length.
        """
        f = self.f
        nd, rho = f.nd, self.u[len(f.system.inputs) :]
        q_k = self.x[nd : f.nq]
        return np.concatenate([self.x[:nd] + share * self.dt * w, q_k + share * (rho - q_k)])

    def blocks(self, z: np.ndarray, share: float) -> ResidualBlocks:
        nf = len(self.f.system.inputs)
        q_k = self.x[self.f.nd : self.f.nq]
        u = np.concatenate([self.u[:nf], q_k + share * (self.u[nf:] - q_k)])
        length = share * self.dt or self.dt  # at length 0 only h and J1 are used
        return self.rule.blocks(self.x, u, self.t, length, self.f.theta, z)

    def __call__(self, w: np.ndarray, share: float) -> Linearized:
        self._w[0], self._share[0, 0] = w, share
        self._bound.call()
        residual, matrix, _ = (o[0] for o in self._bound.outputs)
        return Linearized(residual.copy(), matrix.reshape(len(residual), -1).copy())

    def rate_by_share(self, w: np.ndarray, multipliers: np.ndarray, share: float) -> np.ndarray:
        if not (self._share[0, 0] == share and (self._w[0] == w).all()):  # else they were the last evaluated
            self(w, share)
        # the constraint gradients Dh(q_k), with which multipliers enter, are constant
        return self._bound.outputs[2][0].ravel().copy()

    def failure(self, root: BranchRoot, k: int, where: str) -> StepError | None:
        """Return the error that explains why step k has no solution, or None.
        The result is None if the cause is unknown. The search for the solution ended at the `root`;
        `where` is the beginning of the error's text.

        Causes ([S] VII) are ``"not finite"`` (a potential, force or constraint is not finite), ``"singular
        M"`` (M_k+1 is singular: coordinates are singular, or the step is too long), ``"singular
        constraints"`` (Dh M^-1 Dh' is), and ``"no convergence"``.
        """
        f, error = self.f, float(root.error)
        q1 = self.end(root.w, root.share)
        _, _, D, J1, J0 = self.blocks(q1[: f.nd], root.share)
        if np.isnan(error):
            infinite = self._not_finite(root)
            if infinite is not None:
                advice = "keep it finite at every state (ca.fmax, ca.if_else), or start elsewhere"
                return StepError(f"{where}. {infinite}: {advice}", k, error, "not finite")
            if not (np.isfinite(D).all() and np.isfinite(J0).all() and np.isfinite(J1).all()):
                return StepError(
                    f"{where}. The equations are not finite where the solver stopped: the step leaves what "
                    "numbers can hold, or where a potential, force or constraint is defined; use a smaller "
                    "dt",
                    k,
                    error,
                    "not finite",
                )
        names = f.lagrangian.constraint_names
        J = f.lagrangian.constraint_directions(self.x[: f.nq], **f.parameters)
        dependent = dependent_constraints(J, names, f"{where}. Dh(q_k)", k, error)
        if dependent is None and names:
            J = directions_within(f.lagrangian, q1, NEAR, **f.parameters)
            dependent = singular_ahead(J, names, root, self.dt, k, where, self._advice(q1))
        if dependent is not None:
            return dependent
        for share in (root.share, 1.0):  # or at the end of that motion
            if fault := fault_at(f.system, self.end(root.w, share), f.parameters):
                return StepError(f"{where}: on its way {fault}", k, error, "indefinite M")
        size = condition(D, f.lagrangian.mass_scale_with(f.parameters))
        if size > SINGULAR and not root.folds:
            weakest = np.abs(np.linalg.svd(D)[2][-1])
            which = ", ".join(n for n, w in zip(f.system.dynamic, weakest, strict=True) if w > 0.3)
            return StepError(
                f"{where}. M_k+1 = D2 D1 L_d + D2 F- is singular (reciprocal condition {1 / size:.1g}) along "
                f"{which}: the coordinates are singular there, or dt is too large for the potential",
                k,
                error,
                "singular M",
            )
        return None

    def reason(self, root: BranchRoot) -> str:
        _, h, D, J1, J0 = self.blocks(self.end(root.w, root.share)[: self.f.nd], root.share)
        if not len(h):
            return ""
        impulses = np.linalg.solve(D, J0.T)
        lengths = np.linalg.norm(J1, axis=1)[:, None] * np.linalg.norm(impulses, axis=0)
        if np.linalg.svd(J1 @ impulses / lengths, compute_uv=False)[-1] > TURNED:
            return ""
        return (
            " as directions of constraints turn by a quarter turn within the step (of a cable held taut, "
            "vioc.cables.longest_step tells the limit about an equilibrium)"
        )

    def _not_finite(self, root: BranchRoot) -> str | None:
        """Return a text that names a term that is not finite, or None.
        The terms are evaluated at the start and in the middle of the step.
        """
        f, x, nf = self.f, self.x, len(self.f.system.inputs)
        forces, q0 = self.u[:nf], x[: f.nq]
        points = [(q0, np.concatenate([f.velocities(x), x[f.nq + f.nd :]]), "the step's start")]
        beyond = self.start + (root.w - self.start) / (root.share or 1.0)
        for w, share, place in (
            (root.w, root.share or 1.0, "the middle of the longest step that was solved"),
            (beyond, 1.0, "the middle of the step, extrapolated from shorter ones"),
        ):
            q1 = self.end(w, share)
            points.append(((q0 + q1) / 2, (q1 - q0) / (share * self.dt), place))
        for q, v, place in points:
            finite = np.isfinite([*q, *v]).all()
            term = not_finite(f.lagrangian, q, v, forces, self.t, f.theta) if finite else None
            if term is not None:
                return f"At {place} {term}"
        return None
