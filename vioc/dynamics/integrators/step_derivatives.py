"""Exact first and second derivatives of the steps of any variational integrator.

They are computed along whole trajectories at once. With y = (q_k, q_k+1, u, parameters, lambda_k) a step is

    r(y) + p_k = 0,    h(q_k+1) = 0,    p_k+1 = P(y)

and the derivatives follow from the implicit function theorem ([S] (10)-(32)). Second derivatives are those of
z . P + mu . r + nu . h, with the covectors z and the adjoint (mu, nu). If r, h and P take time O(n), one
directional derivative takes time O(n), and a Jacobian or a Hessian takes time O(n^2). Jacobians and Hessians
are written out or, for long trees, evaluated one column at a time. No n x n x n tensor is formed. Maths:
docs/maths/linear_time.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import casadi as ca
import numpy as np

from vioc.compile.cores import over_cores, workers
from vioc.compile.evaluate import Evaluator
from vioc.dynamics.algebra import vectors as vec
from vioc.dynamics.integrators.conditions import check_regular
from vioc.maps.derivatives import Linearization, MapDerivatives, SecondOrder, Steps, solved

if TYPE_CHECKING:
    from vioc.dynamics.integrators.mechanical import MechanicalMap
    from vioc.dynamics.integrators.variational import VariationalRule

# Largest number of operations for which a Jacobian is written out whole: it has a quarter of those of all
# directional derivatives, with which it shares terms. Compiled functions are shorter, as compilers take
# minutes.
WHOLE, COMPILED = 2_000_000, 40_000
SHARE = 16  # least number of steps per thread
ROWS = 1 << 15  # directional derivatives evaluated at once, which limits the memory


@dataclass(frozen=True)
class StepFirstOrder:
    """First derivatives of N variational steps, with intermediate results for second derivatives.

    Attributes
    ----------
    linearization : Linearization
    args : list of arrays
        The five components of y, t and dt, one row per step.
    y_s : (N, ny, ns)
        Derivative of y by s = (x, u, parameters).
    momentum_z, saddle : (N, nd, nd), (N, nd + nm, nd + nm)
        Derivatives of P by q_k+1 and of (r, h) by (q_k+1, lambda).
    """

    linearization: Linearization
    args: list[np.ndarray]
    y_s: np.ndarray
    momentum_z: np.ndarray
    saddle: np.ndarray


class StepDerivatives:
    """First and second derivatives of the steps that a variational rule defines.
    A variational rule is an object with the discrete equations of a step.
    """

    def __init__(self, rule: VariationalRule):
        f = self.f = rule.f
        sizes = {"q0": f.nq, "q1": f.nq, "u": len(f.system.inputs), "theta": len(f.parameters), "lam": f.nm}
        parts = [ca.SX.sym(name, size) for name, size in sizes.items()]
        t, dt = ca.SX.sym("t"), ca.SX.sym("dt")
        self.ny = sum(sizes.values())
        y, d = vec.column(parts), ca.SX.sym("d", self.ny)
        q0, q1, u, theta, lam = parts
        step = rule.parts(q0, q1, ca.SX.zeros(f.nd), u, t, dt, theta)
        h1, _ = f.constraint(q1, theta)
        balance = step.balance - ca.mtimes(f.constraint(q0, theta)[1][:, : f.nd].T, lam)
        rows = ca.vertcat(balance, step.momentum, h1)
        weights = [ca.SX.sym(name, size) for name, size in (("mu", f.nd), ("z", f.nd), ("nu", f.nm))]
        args = [*parts, t, dt]

        def columns(name: str, expression: ca.SX, args: list[ca.SX]) -> ca.Function:
            """Return a CasADi function that computes the Jacobian of `expression`.
            If this function would have too many operations, return a function that computes the product of
            the Jacobian and a vector instead.
            """
            product = ca.Function(name, [*args, d], [ca.jtimes(expression, y, d)])
            if product.n_instructions() * self.ny > (WHOLE if f.backend.name == "virtual" else COMPILED):
                return product
            return ca.Function(name, args, [ca.densify(ca.jacobian(expression, y))])

        def first() -> ca.Function:
            return columns("first", rows, args)

        def second() -> ca.Function:
            return columns("second", ca.gradient(ca.dot(ca.vertcat(*weights), rows), y), [*args, *weights])

        self._first = Evaluator(f.backend.program(first, "first"))
        self._second = Evaluator(f.backend.program(second, "second"))

    def of_map(self, f: MechanicalMap) -> MapDerivatives:
        """Return an object that computes the derivatives of the steps of a map f.
        The discrete equations of f must be those of this rule. The derivatives are evaluated at the
        parameters of f.
        """
        return MapDerivatives(
            f,
            lambda steps: self.first(steps, f.theta).linearization,
            lambda steps, Z, zeta: self.second(self.first(steps, f.theta), Z, zeta),
            f.with_times,
        )

    def _columns(self, evaluate: Evaluator, args: list[np.ndarray]) -> np.ndarray:
        """Return the Jacobians (N, m, ny) of m expressions in N steps.
        They are derivatives with respect to ny variables. If `evaluate` does not return a Jacobian but its
        product with a vector, each column is computed as the product with a unit vector.

        If an entry is infinite, all entries of the step are NaN, since infinity times 0 would look singular.
        """
        n, ny, program = len(args[0]), self.ny, evaluate.program
        whole = len(program.shapes_in) == len(args)
        least = max(1, min(ROWS // ny, max(SHARE, -(-n // workers()))))

        def work(rows: slice) -> np.ndarray:
            some = [a[rows] for a in args]
            if whole:
                return evaluate(*some)[0]
            m = len(some[0])
            values = evaluate(*(np.repeat(a, ny, axis=0) for a in some), np.tile(np.eye(ny), (m, 1)))[0][
                ..., 0
            ]
            return np.swapaxes(values.reshape(m, ny, -1), 1, 2)

        parts = list(over_cores(work, [slice(i, min(i + least, n)) for i in range(0, n, least)]))
        columns = np.concatenate(parts) if parts else np.empty((0, program.shapes_out[0][0], ny))
        columns[~np.isfinite(columns).all(axis=(1, 2))] = np.nan
        return columns

    def first(self, steps: Steps, theta: np.ndarray) -> StepFirstOrder:
        """Return the first derivatives of N solved steps.
        They are derivatives with respect to state, input and parameters.

        Raises
        ------
        StepError
            If K or Dh K^-1 Dh' of a step is singular ([S] VII).
        """
        f = self.f
        nq, nd, nk, nm, nx = f.nq, f.nd, f.nk, f.nm, f.nx
        X0, X1, U, multipliers, t, h = steps.x0, steps.x1, steps.u, steps.multipliers, steps.t, steps.h
        nf, np_, n = len(f.system.inputs), len(theta), len(U)
        ns = nx + f.nu + np_
        args = [X0[:, :nq], X1[:, :nq], U[:, :nf], np.tile(theta, (n, 1)), multipliers]
        args += [t[:, None], h[:, None]]
        J = self._columns(self._first, args)
        r, P, h1 = J[:, :nd], J[:, nd : 2 * nd], J[:, 2 * nd :]

        # columns of y, and of s: q_d, q_k | p | v_k | forces | rho | parameters
        edges = np.cumsum([0, nq, nq, nf, np_, nm])
        y0, y1, yu, yt, yl = (slice(a, b) for a, b in pairwise(edges))
        y1d = slice(nq, nq + nd)
        sq, sp = slice(0, nq), slice(nq, nq + nd)
        sf, srho, st = slice(nx, nx + nf), slice(nx + nf, nx + nf + nk), slice(nx + nf + nk, ns)

        constants = np.zeros((n, self.ny, ns))  # y by s without the dynamic q_k+1 and lambda
        constants[:, y0, sq] = np.eye(nq)
        constants[:, nq + nd : 2 * nq, srho] = np.eye(nk)
        constants[:, yu, sf] = np.eye(nf)
        constants[:, yt, st] = np.eye(np_)
        rhs = np.concatenate([r @ constants, h1 @ constants], axis=1)
        rhs[:, :nd, sp] += np.eye(nd)
        saddle = np.zeros((n, nd + nm, nd + nm))
        saddle[:, :nd, :nd], saddle[:, :nd, nd:] = r[:, :, y1d], r[:, :, yl]
        saddle[:, nd:, :nd] = h1[:, :, y1d]
        z_s = -solved(saddle, rhs)
        check_regular(f, z_s[:, :, sp], saddle, h, steps.k)

        y_s = constants
        y_s[:, y1d], y_s[:, yl] = z_s[:, :nd], z_s[:, nd:]
        rates = (y_s[:, nq + nd : 2 * nq] - y_s[:, nd:nq]) / h[:, None, None]
        x_s = np.concatenate([y_s[:, y1], P @ y_s, rates], axis=1)
        lin = Linearization.of(x_s, z_s[:, nd:], f.nu)
        return StepFirstOrder(lin, args, y_s, P[:, :, y1d], saddle)

    def second(self, first: StepFirstOrder, Z: np.ndarray, zeta: np.ndarray) -> SecondOrder:
        """Return second derivatives of N steps, contracted with covectors.
        They are the Hessians of z . x_k+1 + zeta . lambda_k for each step, where z and zeta are rows of the
        arrays Z and `zeta` of covectors.

        No third-order tensor is formed ([S] (16)-(32)). With the adjoint (mu, nu) of the implicit equations
        the second derivatives of q_k+1 and lambda_k cancel, and the Hessian of mu . r + z_p . P + nu . h
        along y_s remains.
        """
        f = self.f
        nq, nd, nx = f.nq, f.nd, f.nx
        z_q, z_p = Z[:, :nd], Z[:, nq : nq + nd]
        weights = np.concatenate([z_q + np.einsum("nij,ni->nj", first.momentum_z, z_p), zeta], axis=1)
        adjoint = -np.linalg.solve(np.swapaxes(first.saddle, 1, 2), weights[..., None])[..., 0]
        inner = self._columns(self._second, [*first.args, adjoint[:, :nd], z_p, adjoint[:, nd:]])
        result = np.swapaxes(first.y_s, 1, 2) @ inner @ first.y_s
        return SecondOrder.of(result, nx, f.nu)
