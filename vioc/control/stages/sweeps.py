"""The passes of an optimizer over a horizon, each one call: backward, forward, trial.

Rows are samples; a backward pass takes and gives them in reversed order. Matrices travel row by row in
C order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import casadi as ca
import numpy as np

from vioc.control.costs import Cost
from vioc.control.stages.equations import LARGEST, SMALL, StageEquations, operations
from vioc.control.stages.riccati import riccati_step
from vioc.dynamics.integrators.base import OneStepMap
from vioc.dynamics.trajectory import Trajectory

OPTIONS = {"cse": True}


class Grid(NamedTuple):
    """What a stage depends on beside the unknowns: t, dt (N, 1), parameters, references, w (N, 1)."""

    t: np.ndarray
    dt: np.ndarray
    parameters: np.ndarray
    reference: np.ndarray
    w: np.ndarray

    def backward(self) -> Grid:
        """In reversed order."""
        t, dt, theta, reference, w = self
        return Grid(_back(t), _back(dt), theta, _back(reference), _back(w))

    @staticmethod
    def of(f: OneStepMap, cost: Cost, steps: int, k0: int = 0) -> Grid:
        """That of `steps` steps of the map's own length."""
        t = (k0 + np.arange(steps))[:, None] * f.dt
        dt = np.full((steps, 1), f.dt)
        w = dt if cost.per_time else np.ones((steps, 1))
        reference = np.ascontiguousarray(cost.reference_rows(steps)[:steps])
        return Grid(t, dt, np.array(list(f.parameters.values()), float), reference, w)


class Sweeps:
    """The passes of a problem, built when first used and run on the map's backend.

    Parameters
    ----------
    f : OneStepMap
    cost : Cost
    """

    def __init__(self, f: OneStepMap, cost: Cost):
        self.equations = StageEquations(f, cost)
        # unrolled code of this size is quick to build, but would compile for minutes
        self._backend = f.backend if operations(f, cost) <= SMALL else type(f.backend)()
        self._programs: dict[str, Any] = {}
        self._grids: dict[tuple, tuple[Grid, Grid]] = {}
        self._kept: dict[str, tuple[np.ndarray, Any]] = {}

    @staticmethod
    def of(f: OneStepMap, cost: Cost, limit: float = LARGEST) -> Sweeps | None:
        """Those of a problem, kept with its cost; None where a stage has more operations than `limit`."""
        if operations(f, cost) > limit:
            return None
        key = (f.residual.__hash__(), f.backend.name)  # shared by maps with other parameters
        if key not in cost.sweeps:
            try:
                cost.sweeps[key] = Sweeps(f, cost)
            except np.linalg.LinAlgError:
                cost.sweeps[key] = None
        return cost.sweeps[key]

    def grids(self, f: OneStepMap, cost: Cost, steps: int, k0: int = 0) -> tuple[Grid, Grid]:
        """The grid of a horizon, and it in reversed order."""
        key = (steps, k0, f.dt, *f.parameters.values())
        if key not in self._grids:
            grid = Grid.of(f, cost, steps, k0)
            self._grids = {key: (grid, grid.backward())}  # the last one only
        return self._grids[key]

    def kept(self, name: str, matrix: np.ndarray, function: Callable[[np.ndarray], Any]) -> Any:
        """function(matrix), computed again only where the matrix is another one than last time."""
        known, value = self._kept.get(name, (None, None))
        if known is None or not np.array_equal(known, matrix):
            value = function(matrix)
            self._kept[name] = matrix, value
        return value

    def _program(self, name: str, build: Callable[[], ca.Function]) -> Any:
        if name not in self._programs:
            self._programs[name] = self._backend.prepare(build())
        return self._programs[name]

    # -- multiple shooting --------------------------------------------------------------------------

    def value(self, X: np.ndarray, U: np.ndarray, lam: np.ndarray, grid: Grid) -> tuple[float, float]:
        """Running cost and |r|^2 of a curve; not finite where it leaves a domain."""
        e = self.equations

        def build() -> ca.Function:
            return ca.Function("curve", e.arguments, [e.l, ca.dot(e.r, e.r)], OPTIONS)

        args = [np.ascontiguousarray(X[:-1]), U, np.ascontiguousarray(X[1:]), lam, *grid]
        running, gap = self._program("curve", build).map(args, len(U))
        return float(running.sum()), float(gap.sum())

    def newton(self, point: list[np.ndarray], grid: Grid, last: list[np.ndarray], knobs: np.ndarray):
        """The step of Newton's method on the optimality conditions of a curve; see `_newton_kernel`.

        Parameters
        ----------
        point : X (N+1, nx), U, multipliers, duals (N, nz)
        grid : Grid
            In reversed order.
        last : (nx, nx), (nx,)
            Hessian and gradient of the terminal cost.
        knobs : (2,)
            Share of the curvature that is kept, and shift of the Hessian per step weight.

        Returns
        -------
        (steps, gains, slope) or None
            Of X, U, multipliers and new duals; (N, nu, nx); the running cost's derivative along the
            step. None where the subproblem has no minimum.
        """
        e = self.equations
        nx, nu, nz = e.nx, e.nu, e.nz
        X, U, lam, dual = point
        N = len(U)
        rows = [_back(X[:-1]), _back(U), _back(X[1:]), _back(lam), _back(dual), *grid, knobs]
        program = self._program("newton", self._newton_kernel)
        carry = np.concatenate([last[0].reshape(-1), last[1]])
        (_, affine, _, gradient), done, _ = program.accumulate(carry, rows, N, 0, 0.5)
        if done < N:
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

    def _newton_kernel(self) -> ca.Function:
        """One stage of the Newton step: (P, p) of the next sample to those of this one.

        The unknowns of the stage are eliminated: (du, dz, dual) = M dx + m, output row by row.
        """
        e = self.equations
        nx, ns, nz = e.nx, e.ns, e.nz
        carry, dual = ca.SX.sym("carry", nx * nx + nx), ca.SX.sym("dual", nz)
        tau, shift = ca.SX.sym("tau"), ca.SX.sym("shift")
        P, p = ca.reshape(carry[: nx * nx], nx, nx), carry[nx * nx :]
        l_s, l_z = e.gradient
        ss, sz, zz = (
            c + tau * (whole - c)
            for c, whole in zip(e.convex, e.hessian(e.l + ca.dot(dual, e.r)), strict=True)
        )
        Yx, zx = e.Y[:nx, :], e.z0[:nx]
        H = e.condense((ss, sz, zz)) + Yx.T @ (P @ Yx) + shift * e.w * ca.SX.eye(ns)
        q = l_s + sz @ e.z0 + e.Y.T @ (l_z + zz @ e.z0) + Yx.T @ (P @ zx + p)
        step = riccati_step(H, q, nx)
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
            ca.vertcat(l_s, l_z[nx:]),
        ]
        args = [carry, x, u, x1, lam, dual, *grid, ca.vertcat(tau, shift)]
        return ca.Function("newton", args, [ca.densify(o) for o in outputs], OPTIONS)

    # -- about a trajectory -------------------------------------------------------------------------

    def running(self, run: Trajectory, grid: Grid) -> float:
        """Running cost of a trajectory."""
        e = self.equations

        def build() -> ca.Function:
            args = [a for i, a in enumerate(e.arguments) if i not in (2, 4)]  # neither x_next nor t
            return ca.Function("running", args, [e.l], OPTIONS)

        args = [run.x[:-1], run.u, run.multipliers, *grid[1:]]
        return float(self._program("running", build).map(args, len(run))[0].sum())

    def cost_hessian(self, run: list[np.ndarray], grid: Grid) -> np.ndarray:
        """The running cost's Hessian (N, ns, ns) along a trajectory, its multipliers chained."""
        e = self.equations

        def build() -> ca.Function:
            H = e.condense(e.hessian(e.l))
            return ca.Function("cost_hessian", e.arguments, [ca.densify(H)], OPTIONS)

        return self._program("cost_hessian", build).map([*run, *grid], len(run[1]))[0].reshape(-1, e.ns, e.ns)

    def about(
        self,
        run: list[np.ndarray],
        grid: Grid,
        weights: np.ndarray,
        last: tuple[np.ndarray, np.ndarray, np.ndarray],
        shift: float,
    ):
        """Gains, adjoint, Newton Hessian and its minimizer about a trajectory, in one pass.

        Parameters
        ----------
        run : x, u, x_next, multipliers
            Rows in reversed order, as `grid`.
        weights : (ns, ns) or (N, ns, ns)
            Of the regulator whose gains project.
        last : (nx, nx), (nx, nx), (nx,)
            The regulator's terminal weight; Hessian and gradient of the terminal cost.
        shift : float
            Of the Newton Hessian, per step weight.

        Returns
        -------
        dict of str to array, or None where the regulator's sweep fails
            In reversed order A, B, g (N, ns), L (N, ns, ns) the cost's Hessian, H Newton's, K; affine
            rows of the Newton step in `forward`'s order, None where it has no minimum.
        """
        e = self.equations
        nx, nu, ns, N = e.nx, e.nu, e.ns, len(run[1])
        program = self._program("about", self._about_kernel)
        flat = weights.reshape(*weights.shape[:-2], -1)
        carry = np.concatenate([last[0].reshape(-1), last[2], last[1].reshape(-1), last[2]])
        rows = [*run, *grid, flat, np.array([shift])]
        (_, blocks, _, affine), done, _ = program.accumulate(carry, rows, N, 0, 0.5)
        if done < N:
            return None
        shapes = {"A": (nx, nx), "B": (nx, nu), "g": (ns,), "L": (ns, ns), "H": (ns, ns), "K": (nu, nx)}
        parts, at = {}, 0
        for name, shape in shapes.items():
            size = int(np.prod(shape))
            parts[name] = blocks[:, at : at + size].reshape(N, *shape)
            at += size
        found = not affine[:, -1].any()  # the last column says where the Hessian was not definite
        parts["affine"] = _back(affine[:, :-1]) if found else None
        return parts

    def _about_kernel(self) -> ca.Function:
        e = self.equations
        nx, ns, nz = e.nx, e.ns, e.nz
        square = nx * nx
        carry = ca.SX.sym("carry", 2 * square + 2 * nx)
        weights, shift = ca.SX.sym("weights", ns * ns), ca.SX.sym("shift")
        G, adjoint, P, p = ca.vertsplit(carry, [0, square, square + nx, 2 * square + nx, carry.numel()])
        G, P = ca.reshape(G, nx, nx), ca.reshape(P, nx, nx)
        AB = e.Y[:nx, :]
        l_s, l_z = e.gradient
        g = l_s + e.Y.T @ l_z
        regulator = riccati_step(ca.reshape(weights, ns, ns) + AB.T @ (G @ AB), ca.SX(ns, 1), nx)
        K = regulator.K
        L = e.condense(e.hessian(e.l))
        force = ca.vertcat(adjoint, ca.SX(nz - nx, 1)) + l_z
        rho = ca.SX.sym("rho", nz)
        curvature = e.condense(e.hessian(ca.dot(rho, e.r)))
        curvature = ca.substitute(curvature, rho, e.dual(force))
        H = L + curvature
        step = riccati_step(H + shift * e.w * ca.SX.eye(ns) + AB.T @ (P @ AB), g + AB.T @ p, nx)
        moved = g + AB.T @ adjoint
        z = moved[:nx] - K.T @ moved[nx:]
        closed = AB @ ca.vertcat(ca.SX.eye(nx), -step.K)
        affine = ca.vertcat(-step.K, closed)
        offset = ca.vertcat(-step.d, -AB[:, nx:] @ step.d)
        blocks = [AB[:, :nx].T, AB[:, nx:].T, g, L.T, H.T, K.T]
        outputs = [
            ca.vertcat(ca.vec(regulator.P), z, ca.vec(step.P), step.p),
            ca.vertcat(*(ca.vec(b) for b in blocks)),
            regulator.bad,
            ca.vertcat(ca.vec(affine.T), offset, step.bad),
        ]
        args = [carry, *e.arguments, weights, shift]
        return ca.Function("about", args, [ca.densify(o) for o in outputs], OPTIONS)

    def lq(
        self, rows: list[np.ndarray], shift: np.ndarray, P: np.ndarray, p: np.ndarray
    ) -> np.ndarray | None:
        """Affine rows of the minimizer of 1/2 (x, u)'(H + shift I)(x, u) + g'(x, u) along A, B.

        `rows` are A, B, H, g in reversed order, flat, `shift` a column likewise, P and p the terminal
        cost; None where there is no minimum.
        """
        e = self.equations
        nx, ns = e.nx, e.ns

        def build() -> ca.Function:
            carry, g = ca.SX.sym("carry", nx * nx + nx), ca.SX.sym("g", ns)
            A, B, H = ca.SX.sym("A", nx * nx), ca.SX.sym("B", nx * e.nu), ca.SX.sym("H", ns * ns)
            shift = ca.SX.sym("shift")
            P, p = ca.reshape(carry[: nx * nx], nx, nx), carry[nx * nx :]
            AB = ca.horzcat(_matrix(A, nx), _matrix(B, nx))
            whole = _matrix(H, ns) + shift * ca.SX.eye(ns) + AB.T @ (P @ AB)
            step = riccati_step(whole, g + AB.T @ p, nx)
            affine = ca.vertcat(-step.K, AB @ ca.vertcat(ca.SX.eye(nx), -step.K))
            offset = ca.vertcat(-step.d, -AB[:, nx:] @ step.d)
            outputs = [ca.vertcat(ca.vec(step.P), step.p), ca.vertcat(ca.vec(affine.T), offset), step.bad]
            return ca.Function("lq", [carry, A, B, H, g, shift], [ca.densify(o) for o in outputs], OPTIONS)

        carry, N = np.concatenate([P.reshape(-1), p]), len(shift)
        (_, affine, _), done, _ = self._program("lq", build).accumulate(carry, [*rows, shift], N, 0, 0.5)
        return _back(affine) if done == N else None

    # -- both ---------------------------------------------------------------------------------------

    def forward(self, affine: np.ndarray, nu: int, nx: int) -> np.ndarray:
        """y_k = M_k dx_k + m_k with dx_0 = 0 and dx_k+1 the rows nu .. nu + nx of y_k."""
        size = affine.shape[1] // (nx + 1)

        def build() -> ca.Function:
            dx, row = ca.SX.sym("dx", nx), ca.SX.sym("row", affine.shape[1])
            y = _matrix(row[: size * nx], size) @ dx + row[size * nx :]
            return ca.Function("forward", [dx, row], [y[nu : nu + nx], y, ca.SX(0)], OPTIONS)

        program = self._program(f"forward{size}", build)
        return program.accumulate(np.zeros(nx), [affine], len(affine), 0, np.inf)[0][1]


def _matrix(entries: ca.SX, rows: int) -> ca.SX:
    """A matrix from its entries row by row."""
    return ca.reshape(entries, entries.numel() // rows, rows).T


def _back(a: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(a[::-1])
