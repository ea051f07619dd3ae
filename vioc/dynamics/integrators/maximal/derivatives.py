"""Derivatives of a step in error-state coordinates, by the implicit function theorem."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import casadi as ca
import numpy as np

from vioc.dynamics.evaluate import Evaluator
from vioc.dynamics.integrators.base import Linearization, SecondOrder
from vioc.dynamics.integrators.maximal import rotations as rot
from vioc.dynamics.integrators.maximal.step import STATE
from vioc.dynamics.integrators.maximal.terms import TWIST
from vioc.dynamics.lagrangian import OPTIONS
from vioc.errors import StepError

if TYPE_CHECKING:
    from vioc.dynamics.integrators.maximal.map import MaximalVI


@dataclass(frozen=True)
class First:
    """First derivatives along N steps, and what the second ones need of them.

    Attributes
    ----------
    arguments : tuple of arrays
        Of the equations' functions.
    solved : (N, nw, ny)
        d(V, multipliers) by y = (errors, inputs, parameters).
    R_w, X_w : (N, nw, nw), (N, ndx, nw)
    linearization : Linearization
    """

    arguments: tuple
    solved: np.ndarray
    R_w: np.ndarray
    X_w: np.ndarray
    linearization: Linearization

    def row(self, i: int) -> Linearization:
        lin = self.linearization
        return Linearization(*(getattr(lin, name)[i] for name in "ABPCDE"))


class StepDerivatives:
    """Linearization and z-contracted second derivatives of a map's step.

    Parameters
    ----------
    f : MaximalVI
    """

    def __init__(self, f: MaximalVI):
        self.f = f
        self.sizes = f.ndx, f.nu, len(f.parameters)

    @cached_property
    def _equations(self) -> tuple:
        """Symbols (x, x_next, u, w, t, dt, theta), y, and R, X: equations and next error, at the error 0.

        Rotations are retracted by (1 - |phi|^2/8, phi/2) and compared by phi = 2 v: both are exp and log of
        the quaternions up to third order, so two derivatives at zero are exact.
        """
        f, graph = self.f, self.f.graph
        n, at = graph.n, STATE * graph.n
        x, x1, e = ca.SX.sym("x", f.nx), ca.SX.sym("x1", f.nx), ca.SX.sym("e", f.ndx)
        u, theta = f.symbols.u, f.symbols.parameters
        w = ca.SX.sym("w", TWIST * n + len(f.multiplier_names))
        t, dt = ca.SX.sym("t"), ca.SX.sym("dt")
        V, lam = w[: TWIST * n], w[TWIST * n :]
        moved = f.retract_expression(x, e)
        z, last = [moved[STATE * i : STATE * i + STATE] for i in range(n)], moved[at:]
        start = [graph.arrival(i)(z[i], last[TWIST * i : TWIST * i + TWIST], dt, theta) for i in range(n)]
        poses = ca.vertcat(*(s[0] for s in start))
        base = ca.vertcat(*(s[1] for s in start)) + dt * graph.still_force(poses, u, t, theta)
        gone = graph.leave(V, poses, last, base, u, t, dt, theta)
        balance = graph.pulled(gone.rest, graph.held([s[0] for s in start], theta), lam)
        laws, offset = [], len(graph.names)
        own = ca.vertsplit(V, TWIST)
        for touch in graph.touches:
            p = lam[offset : offset + len(touch.multipliers)]
            offset += len(touch.multipliers)
            data = ca.substitute(ca.vertcat(ca.SX(0, 1), *touch.data), graph.terms.parameters, theta)
            before, after, twists = (
                [a[i] for i in touch.bodies] for a in ([s[0] for s in start], gone.next, own)
            )
            impulses, law = touch.geometry.law(before, after, twists, p, f.barrier, dt, data)
            laws.append(law)
            for i, impulse in zip(touch.bodies, impulses, strict=True):
                balance[i] = balance[i] + impulse
        R = ca.vertcat(*(-r for r in balance), *gone.values, *laws)
        ends: list[Any] = []
        for i in range(n):
            v = V[TWIST * i : TWIST * i + TWIST]
            delta, _ = rot.turn((v[3], v[4], v[5]), dt, ca.sqrt)
            q = rot.multiply(tuple(ca.vertsplit(z[i][3:])), delta)
            goal = tuple(ca.vertsplit(x1[STATE * i + 3 : STATE * i + STATE]))
            turned = rot.multiply(rot.conjugate(goal), q)
            ends += [z[i][:3] + dt * v[:3] - x1[STATE * i : STATE * i + 3], *(2 * c for c in turned[1:])]
        X = ca.vertcat(*ends, V - x1[at:])
        return (x, x1, u, w, t, dt, theta), e, R, X

    @cached_property
    def residual(self) -> ca.Function:
        """(x, u, x_next, multipliers, t, dt, parameters) -> the step's equations (nx + multipliers,)."""
        (x, x1, u, w, t, dt, theta), e, R, _ = self._equations
        n, lam = self.f.graph.n, self.f.symbols.multipliers
        V = x1[STATE * n :]
        goals = [x1[STATE * i : STATE * i + STATE] for i in range(n)]
        starts = [x[STATE * i : STATE * i + STATE] for i in range(n)]
        moved = [self.f.graph.carried(z, v, dt) for z, v in zip(starts, ca.vertsplit(V, TWIST), strict=True)]
        (balance,) = ca.substitute([R], [e, w], [ca.SX.zeros(e.numel()), ca.vertcat(V, lam)])
        equations = ca.vertcat(*(a - b for a, b in zip(goals, moved, strict=True)), balance)
        return ca.Function("residual", [x, u, x1, lam, t, dt, theta], [ca.densify(equations)], OPTIONS)

    @cached_property
    def _first(self) -> Evaluator:
        args, e, R, X = self._equations
        y = ca.vertcat(e, args[2], args[6])
        outputs = [ca.jacobian(r, s) for r in (R, X) for s in (y, args[3])]
        outputs = [ca.densify(ca.substitute(o, e, ca.SX.zeros(e.numel()))) for o in outputs]
        return Evaluator(self.f.backend.prepare(ca.Function("first", list(args), outputs, OPTIONS)))

    @cached_property
    def _second(self) -> Evaluator:
        args, e, R, X = self._equations
        mu, weight, zeta = (
            ca.SX.sym(n, s)
            for n, s in (("mu", R.numel()), ("z", X.numel()), ("zeta", len(self.f.multiplier_names)))
        )
        whole = ca.vertcat(e, args[2], args[6], args[3])
        scalar = ca.dot(weight, X) - ca.dot(mu, R) + ca.dot(zeta, args[3][TWIST * self.f.graph.n :])
        H = ca.substitute(ca.hessian(scalar, whole)[0], e, ca.SX.zeros(e.numel()))
        function = ca.Function("second", [*args, mu, weight, zeta], [ca.densify(H)], OPTIONS)
        return Evaluator(self.f.backend.prepare(function))

    def first(self, X0, X1, U, multipliers, t, dt, theta) -> First:
        """Along N steps from X0 to X1; `t` and `dt` (N,)."""
        f = self.f
        w = np.concatenate([X1[:, STATE * f.graph.n :], multipliers], axis=1)
        N = len(X0)
        columns = [np.broadcast_to(np.ravel(a), (N,))[:, None] for a in (t, dt)]
        arguments = (X0, X1, U, w, *columns, theta)
        R_y, R_w, X_y, X_w = self._first(*arguments)
        try:
            solved = -np.linalg.solve(R_w, R_y)
        except np.linalg.LinAlgError:
            solved = np.full_like(R_y, np.nan)
        if not np.isfinite(solved).all():
            k = int(np.argmin(np.isfinite(solved).all(axis=(1, 2))))
            raise StepError(
                f"step {k} of {N} cannot be linearized: the constraints are dependent there; change the "
                "motion, or remove redundant constraints",
                k,
                np.inf,
                "singular constraints",
            )
        whole = X_y + X_w @ solved
        cuts = np.cumsum(self.sizes)[:-1]
        blocks = np.split(whole, cuts, axis=2) + np.split(solved[:, TWIST * f.graph.n :], cuts, axis=2)
        return First(arguments, solved, R_w, X_w, Linearization(*map(np.ascontiguousarray, blocks)))

    def second(self, first: First, Z: np.ndarray, zeta: np.ndarray) -> SecondOrder:
        """z- and zeta-contracted Hessians along the steps of `first`."""
        pull = np.swapaxes(first.X_w, 1, 2) @ Z[..., None]
        pull[:, TWIST * self.f.graph.n :] += zeta[..., None]
        mu = np.linalg.solve(np.swapaxes(first.R_w, 1, 2), pull)[..., 0]
        H = self._second(*first.arguments, mu, Z, np.ascontiguousarray(zeta))[0]
        ny = sum(self.sizes)
        S = first.solved
        mixed = H[:, :ny, ny:] @ S
        full = H[:, :ny, :ny] + mixed + np.swapaxes(mixed, 1, 2) + np.swapaxes(S, 1, 2) @ H[:, ny:, ny:] @ S
        e, u, p = np.split(np.arange(ny), np.cumsum(self.sizes)[:-1])
        parts = (full[:, a][:, :, b] for a, b in ((e, e), (e, u), (u, u), (e, p), (u, p), (p, p)))
        return SecondOrder(*(np.ascontiguousarray(part) for part in parts))
