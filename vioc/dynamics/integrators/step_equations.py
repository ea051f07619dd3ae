"""The equations of a variational step at numbers: what Newton solves, and why it could not ([S] VII)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import casadi as ca
import numpy as np

from vioc.compile.evaluate import Evaluator
from vioc.dynamics.algebra.vectors import part
from vioc.dynamics.finite import not_finite
from vioc.dynamics.integrators.conditions import SINGULAR, condition
from vioc.dynamics.integrators.newton import Equations, Iterate, Solution, dependent_constraints
from vioc.dynamics.lagrangian import OPTIONS
from vioc.errors import StepError

if TYPE_CHECKING:
    from vioc.dynamics.integrators.variational import VariationalMap

ARRIVED = 1e-6  # |h| below which the solver stopped near a position that the constraints allow


class Blocks(NamedTuple):
    """Residuals and Jacobian blocks at dynamic configurations z = q_k+1, of one step or of N.

    Attributes
    ----------
    balance : (..., nd)
        p_k + D1 L_d + F-, without the constraint impulse.
    h : (..., nm)
        What constraints make zero, at q_k+1.
    D : (..., nd, nd)
        M_k+1 = D2 D1 L_d + D2 F- ([S] (8)), or as near to it as the map solves with.
    J1, J0 : (..., nm, nd)
        Its derivative by q_k+1, and Dh(q_k), by the dynamic variables.
    """

    balance: np.ndarray
    h: np.ndarray
    D: np.ndarray
    J1: np.ndarray
    J0: np.ndarray


class BlockEvaluator:
    """`Blocks` of a map's steps, as a function of (x, u, t, dt, parameters, z), of one step or by rows."""

    def __init__(self, f: VariationalMap):
        x, u, t, dt = ca.SX.sym("x", f.nx), ca.SX.sym("u", f.nu), ca.SX.sym("t"), ca.SX.sym("dt")
        theta, z = ca.SX.sym("theta", len(f.parameters)), ca.SX.sym("z", f.nd)
        nq, nd, nf = f.nq, f.nd, len(f.system.inputs)
        q0, p, forces = part(x, 0, nq), part(x, nq, nq + nd), part(u, 0, nf)
        q1 = ca.vertcat(z, part(u, nf))
        balance = f.parts(q0, q1, p, forces, t, dt, theta).balance
        h1, J1 = f.closing(q0, q1, theta)
        J0 = f.constraint(q0, theta)[1]
        outputs = [balance, h1, f.slope(q0, q1, forces, t, dt, theta), J1[:, :nd], J0[:, :nd]]
        self._evaluate = Evaluator(ca.Function("equations", [x, u, t, dt, theta, z], outputs, OPTIONS))

    def __call__(self, x, u, t, dt, theta, z) -> Blocks:
        one = np.ndim(z) == 1
        times = ((np.array([a]) if one else np.asarray(a)[:, None]) for a in (t, dt))
        balance, h, *matrices = self._evaluate(x, u, *times, theta, z)
        return Blocks(balance[..., 0], h[..., 0], *matrices)


class StepEquations(Equations):
    """The equations of the step of `f` from x under u at time t, for the dynamic part of q_k+1."""

    def __init__(self, f: VariationalMap, x: np.ndarray, u: np.ndarray, t: float, theta: np.ndarray):
        self.f, self.x, self.u, self.t, self.theta = f, x, u, t, theta
        self.start = x[: f.nd].copy()

    def blocks(self, z: np.ndarray, dt: float) -> Blocks:
        return self.f.step_blocks(self.x, self.u, self.t, dt, self.theta, z)

    def __call__(self, z: np.ndarray, dt: float) -> Iterate:
        """With rows scaled to an error of q relative to 1 + |q|."""
        balance, h, D, J1, J0 = self.blocks(z, dt)
        size, m = 1 + np.abs(z), len(h)
        rows = np.abs(np.diag(D)) * size
        rows = np.where(rows > 0, rows, np.abs(D) @ size + 1e-300)
        constraints = np.abs(J1) @ size
        scale = np.concatenate([rows, np.where(constraints > 0, constraints, 1.0)])
        matrix = np.block([[D, -J0.T], [J1, np.zeros((m, m))]])
        return Iterate(np.concatenate([balance, h]), matrix, scale)

    def failure(self, found: Solution, k: int, dt: float, where: str) -> StepError | None:
        """What [S] VII calls the failure, with numbers and what to try.

        Causes are ``"not finite"`` (a potential, force or constraint is not a number there), ``"singular M"``
        (M_k+1 is singular: a chart singularity, or a step too long), ``"singular constraints"`` (Dh M^-1 Dh'
        is), and ``"no convergence"``.
        """
        f, error = self.f, float(found.error)
        _, h, D, J1, J0 = self.blocks(found.z, dt)
        if not np.isfinite(error):
            infinite = self._not_finite(found.z, dt)
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
        # the step ends in a singular position only if the solver came there; elsewhere it says nothing of one
        arrived = bool(np.abs(h).max(initial=0.0) <= ARRIVED)
        for J, what in ((J0, "q_k"), *(((J1, "q_k+1"),) if arrived else ())):
            dependent = dependent_constraints(J, f.multiplier_names, f"{where}. Dh({what})", k, error)
            if dependent is not None:
                return dependent
        size = condition(D, f.lagrangian.mass_scale)
        if size > SINGULAR:
            weakest = np.abs(np.linalg.svd(D)[2][-1])
            which = ", ".join(n for n, w in zip(f.system.dynamic, weakest, strict=True) if w > 0.3)
            return StepError(
                f"{where}. M_k+1 = D2 D1 L_d + D2 F- is singular (reciprocal condition {1 / size:.1g}) along "
                f"{which}: the coordinates are singular there, or dt is too large for the potential",
                k,
                error,
                "singular M",
            )
        if len(h):
            along = np.linalg.solve(D, J0.T)
            lengths = np.linalg.norm(J1, axis=1)[:, None] * np.linalg.norm(along, axis=0)
            if np.linalg.svd(J1 @ along / lengths, compute_uv=False)[-1] < 1e-2:
                return StepError(
                    f"{where}. Dh(q_k+1) M^-1 Dh(q_k)' is nearly singular where the solver stopped: the "
                    "constraint directions turn too far within one step; use a smaller dt (of a cable held "
                    "taut, vioc.cables.longest_step tells the limit about an equilibrium)",
                    k,
                    error,
                    "no convergence",
                )
        return None

    def _not_finite(self, z: np.ndarray, dt: float) -> str | None:
        """The term that is not finite, and where: at the start, without motion, where the solver stopped."""
        f, x, nf = self.f, self.x, len(self.f.system.inputs)
        forces, q0, q1 = self.u[:nf], x[: f.nq], np.concatenate([z, self.u[nf:]])
        v0 = np.concatenate([f.velocities(x), x[f.nq + f.nd :]])
        points = (
            (q0, v0, "the step's start"),
            (q0, 0 * q0, "the step's start without motion, its first guess"),
            ((q0 + q1) / 2, (q1 - q0) / dt, "the last guess of the step"),
        )
        for q, v, place in points:
            finite = np.isfinite([*q, *v]).all()
            found = not_finite(f.lagrangian, q, v, forces, self.t, self.theta) if finite else None
            if found is not None:
                return f"At {place} {found}"
        return None
