"""Compiled functions of a problem's stages, and multiple shooting with them.

Rows are samples; a backward pass takes and returns them in reversed order. Matrices are stored row by row in
C order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import casadi as ca
import numpy as np

from vioc.control.costs.cost import Cost, Family
from vioc.control.descent.symbolic.newton_stage import by_rows
from vioc.control.descent.symbolic.stage import LARGEST, SMALL, SymbolicStage, operations
from vioc.control.stages.symbols import riccati_step
from vioc.maps.protocol import OneStepMap


class StageArguments(NamedTuple):
    """Data of all stages: times, step lengths, parameters, references and weights.

    These are t, dt (N, 1), parameters, references, w (N, 1).
    """

    t: np.ndarray
    dt: np.ndarray
    parameters: np.ndarray
    reference: np.ndarray
    w: np.ndarray

    def backward(self) -> StageArguments:
        """Return the data of all stages in reversed order."""
        t, dt, theta, reference, w = self
        return StageArguments(_back(t), _back(dt), theta, _back(reference), _back(w))

    @staticmethod
    def of(f: OneStepMap, cost: Cost, steps: int, k0: int = 0, dt: Any = None) -> StageArguments:
        """Return the data of all stages of a horizon with given step lengths."""
        h = np.broadcast_to(np.asarray(f.dt if dt is None else dt, float), (steps,))
        t = f.times(h, k0)[:-1]
        dt = np.array(h[:, None])
        w = dt if cost.per_time else np.ones((steps, 1))
        reference = np.ascontiguousarray(cost.reference_rows(steps)[:steps])
        return StageArguments(t[:, None], dt, f.theta, reference, w)


_built: WeakKeyDictionary[Family, dict[tuple, StagePrograms | None]] = WeakKeyDictionary()


class StagePrograms:
    """Compiled functions of a problem's stages, built on first use.

    Parameters
    ----------
    f : OneStepMap
    cost : Cost
    """

    def __init__(self, f: OneStepMap, cost: Cost):
        self.equations = SymbolicStage(f, cost)
        # unrolled code of this size is fast to build, but would compile for minutes
        self._backend = f.backend if operations(f, cost) <= SMALL else type(f.backend)()
        self._programs: dict[str, Any] = {}

    @staticmethod
    def of(f: OneStepMap, cost: Cost, limit: float = LARGEST, dt: Any = None) -> StagePrograms | None:
        """Return the compiled functions of a problem's stages.
        Costs that differ only in their reference values share them.

        Return None if a stage has more operations than `limit`. Return None also if the cost depends on
        constraint forces and the steps `dt` are unequal: the same impulse is then another force in each step.
        """
        even = dt is None or np.ndim(dt) == 0 or len(dt) == 0 or (np.asarray(dt) == dt[0]).all()
        if operations(f, cost) > limit or (cost.uses_multipliers and not even):
            return None
        known = _built.setdefault(cost.family, {})
        key = (f.residual.__hash__(), f.backend.name)  # shared by maps with other parameters
        if key not in known:
            try:
                known[key] = StagePrograms(f, cost)
            except np.linalg.LinAlgError:
                known[key] = None
        return known[key]

    def program(self, name: str, build: Callable[[], ca.Function]) -> Any:
        """Return the compiled form of a CasADi function, built once for each name."""
        if name not in self._programs:
            self._programs[name] = self._backend.prepare(build())
        return self._programs[name]

    # -- multiple shooting --------------------------------------------------------------------------

    def value(
        self, X: np.ndarray, U: np.ndarray, lam: np.ndarray, grid: StageArguments
    ) -> tuple[float, float]:
        """Return the running cost and the sum of squared residuals of the step equations.

        Both are sums over all steps, at states X, inputs U and multipliers lam. They are not finite if an
        expression is evaluated outside of its domain.
        """
        e = self.equations

        def build() -> ca.Function:
            return ca.Function("curve", e.arguments, [e.l, ca.dot(e.r, e.r)])

        args = [np.ascontiguousarray(X[:-1]), U, np.ascontiguousarray(X[1:]), lam, *grid]
        running, gap = self.program("curve", build).map(args, len(U))
        return float(running.sum()), float(gap.sum())

    def newton(
        self, point: list[np.ndarray], grid: StageArguments, last: list[np.ndarray], knobs: np.ndarray
    ):
        """Return Newton's step for the conditions of optimality at an iterate.
        The unknowns are the states, inputs and multipliers of all steps, and the costates.

        `_newton_stage` is one stage of it.

        Parameters
        ----------
        point : X (N+1, nx), U, multipliers, duals (N, nz)
        grid : StageArguments
            Arguments of the stages in reversed order.
        last : (nx, nx), (nx,)
            Hessian and gradient of the terminal cost.
        knobs : (1 + nx + nu,)
            Fraction of the exact curvature, and the shift of the Hessian's diagonal per step weight.

        Returns
        -------
        (steps, gains, slope) or None
            Steps of X, U, multipliers, and new duals; gains (N, nu, nx); the running cost's derivative along
            the step. None if the subproblem has no minimum.
        """
        e = self.equations
        nx, nu, nz = e.nx, e.nu, e.nz
        X, U, lam, dual = point
        N = len(U)
        rows = [_back(X[:-1]), _back(U), _back(X[1:]), _back(lam), _back(dual), *grid, knobs]
        program = self.program("newton", self._newton_stage)
        carry = np.concatenate([last[0].reshape(-1), last[1]])
        (_, affine, _, gradient), count, _ = program.accumulate(carry, rows, N, 0, 0.5)
        if count < N:
            return None
        affine = _back(affine)
        steps = self.forward(affine, nu, nx)
        if not np.isfinite(steps[-1]).all():
            return None
        du, dx1, dlam = steps[:, :nu], steps[:, nu : nu + nx], steps[:, nu + nx : nu + nz]
        dX = np.concatenate([np.zeros((1, nx)), dx1])
        slope = float(np.vdot(_back(gradient), np.concatenate([dX[:-1], du, dlam], axis=1)))
        gains = -affine[:, : nu * nx].reshape(N, nu, nx)
        return [dX, du, dlam, np.ascontiguousarray(steps[:, nu + nz :])], gains, slope

    def _newton_stage(self) -> ca.Function:
        """Return the CasADi function of one backward stage of the Newton step.

        It computes the cost to go (P, p) at a sample from that at the next one. The unknowns of the stage are
        affine functions of dx, (du, dz, dual) = M dx + m, and the function returns M and m row by row.
        """
        e = self.equations
        nx, ns, nz = e.nx, e.ns, e.nz
        carry, dual = ca.SX.sym("carry", nx * nx + nx), ca.SX.sym("dual", nz)
        tau, shift = ca.SX.sym("tau"), ca.SX.sym("shift", ns)
        P, p = ca.reshape(carry[: nx * nx], nx, nx), carry[nx * nx :]
        l_s, l_z = e.gradient
        ss, sz, zz = (
            c + tau * (whole - c)
            for c, whole in zip(e.convex, e.hessian(e.l + ca.dot(dual, e.r)), strict=True)
        )
        Yx, zx = e.Y[:nx, :], e.z0[:nx]
        H = e.condense((ss, sz, zz)) + e.w * ca.diag(shift)
        g = l_s + sz @ e.z0 + e.Y.T @ (l_z + zz @ e.z0)
        step = riccati_step(Yx, H, g, P, P @ zx + p)
        s1 = ca.horzcat(ca.vertcat(ca.SX.eye(nx), -step.K), ca.vertcat(ca.SX(nx, 1), -step.d))  # ds
        z1 = e.Y @ s1 + ca.horzcat(ca.SX(nz, nx), e.z0)
        force = sz.T @ s1 + zz @ z1 + ca.horzcat(ca.SX(nz, nx), l_z)
        force[:nx, :] += P @ z1[:nx, :] + ca.horzcat(ca.SX(nx, nx), p)
        affine = ca.vertcat(s1[nx:, :], z1, e.dual(force))
        x, u, x1, lam, *grid = e.arguments
        outputs = [
            ca.vertcat(ca.vec(step.P), step.p),
            ca.vertcat(ca.vec(affine[:, :nx].T), affine[:, nx]),
            step.bad,
            ca.vertcat(l_s, l_z[nx:, :]),  # CasADi makes l_z[nx:] of a single entry a row, 1 x 0
        ]
        args = [carry, x, u, x1, lam, dual, *grid, ca.vertcat(tau, shift)]
        return ca.Function("newton", args, [ca.densify(o) for o in outputs])

    def forward(self, affine: np.ndarray, nu: int, nx: int) -> np.ndarray:
        """Return the Newton step of all stages, computed forward in time.

        The unknowns of stage k are y_k = M_k dx_k + m_k, with the rows (M_k, m_k) of `affine` and dx_0 = 0.
        The change dx_k+1 of the next state consists of the components nu to nu + nx of y_k.
        """
        size = affine.shape[1] // (nx + 1)

        def build() -> ca.Function:
            dx, row = ca.SX.sym("dx", nx), ca.SX.sym("row", affine.shape[1])
            y = by_rows(row[: size * nx], size) @ dx + row[size * nx :]
            return ca.Function("forward", [dx, row], [y[nu : nu + nx], y, ca.SX(0)])

        program = self.program(f"forward{size}", build)
        return program.accumulate(np.zeros(nx), [affine], len(affine), 0, np.inf)[0][1]


def _back(a: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(a[::-1])
