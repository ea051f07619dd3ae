"""Symbolic stage of a problem, with the equations and the running cost of a step.

With s = (x, u) and z = (x_next, multipliers), a step is r(s, z) = 0. About any s, z, also where r != 0,

    dz = Y ds + z0,    Y = -r_z^-1 r_s,    z0 = -r_z^-1 r,

so that the first rows of Y are A and B where r = 0, and z0 is Newton's correction of z.
See docs/maths/optimal_control.md, "Stages".
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import casadi as ca
import numpy as np

from vioc.control.costs.cost import Cost
from vioc.control.costs.functions import squares_hessian
from vioc.control.descent.symbolic.elimination import SymbolicLU, pivot_order
from vioc.maps.protocol import OneStepMap

SMALL = 15_000  # approximate operations of a stage below which one symbolic pass is faster than NumPy's BLAS
LARGEST = 200_000  # operations above which the functions take too long to build


class SymbolicStage:
    """Symbolic equations and running cost of one step, with their derivatives.

    Parameters
    ----------
    f : OneStepMap
        A map with a `residual`.
    cost : Cost

    Attributes
    ----------
    nx, nu, nm, ns, nz : int
        Sizes; ns = nx + nu of s, nz = nx + nm of z.
    arguments : list of SX
        ``x, u, x_next, multipliers, t, dt, parameters, reference, w``; w is the weight of the step.
    s, z : (ns,), (nz,)
    r, l : (nz,), scalar
        Residual; running cost times w.

    Raises
    ------
    np.linalg.LinAlgError
        If r_z is singular where it should not be.
    """

    def __init__(self, f: OneStepMap, cost: Cost):
        assert f.residual is not None
        x, u, lam, theta, dt = f.symbols
        self.nx, self.nu, self.nm = f.nx, f.nu, lam.numel()
        self.ns, self.nz = self.nx + self.nu, self.nx + self.nm
        x1, t, w = ca.SX.sym("x_next", self.nx), ca.SX.sym("t"), ca.SX.sym("w")
        reference = ca.SX.sym("reference", cost.reference_size)
        self.arguments = [x, u, x1, lam, t, dt, theta, reference, w]
        self.s, self.z = ca.vertcat(x, u), ca.vertcat(x1, lam)
        step = [x, u, x1, lam, t, dt, theta]
        self.r = f.residual(*step)
        self.l = w * cost.running_at(x, u, lam, theta, dt, reference)
        squares = cost.running_squares(x, u, lam, theta, dt, reference)
        self._convex = w * squares_hessian(f, squares, u, lam), w * squares.rest
        r_z = ca.jacobian(self.r, self.z)
        rng = np.random.default_rng(0)
        point = rng.uniform(0.3, 1.2, self.nx)
        near = point + 0.01 * rng.standard_normal(self.nx)
        numbers = [point, rng.standard_normal(self.nu), near, rng.standard_normal(self.nm), 0.3, f.dt]
        values = list(f.parameters.values())
        self._lu = SymbolicLU(r_z, pivot_order(ca.Function("r_z", step, [r_z])(*numbers, values).full()))

    @property
    def w(self) -> ca.SX:
        return self.arguments[-1]

    @cached_property
    def Y(self) -> ca.SX:
        """Jacobian of next state and multipliers with respect to state and input.
        Its shape is (nz, ns): the numbers of components of (next state, multipliers) and of (state, input).
        """
        return self._lu.solve(-ca.jacobian(self.r, self.s))

    @cached_property
    def z0(self) -> ca.SX:
        """Newton's correction of the next state and the multipliers.
        It is one Newton step for the equations of a step, in which the present state and the input are fixed.
        """
        return self._lu.solve(-self.r)

    @cached_property
    def gradient(self) -> tuple[ca.SX, ca.SX]:
        """Gradients of the running cost with respect to the variables of a step.
        The first is with respect to (state, input), the second with respect to (next state, multipliers).
        """
        g = ca.gradient(self.l, ca.vertcat(self.s, self.z))
        return g[: self.ns], g[self.ns :]

    def dual(self, weights: ca.SX) -> ca.SX:
        """Return multipliers of a step's equations that make the Lagrangian stationary.

        They are -r_z^-T weights, (nz,) or (nz, any). `weights` is the gradient of the cost with respect to z,
        the next state and the constraint multipliers. The Lagrangian is then stationary with respect to z.
        """
        return self._lu.solve_transposed(-weights)

    def hessian(self, function: ca.SX) -> tuple[ca.SX, ca.SX, ca.SX]:
        """Return the second derivatives ss, sz and zz of a scalar function of a step.
        The variables are s = (state, input) and z = (next state, multipliers).
        """
        H = ca.hessian(function, ca.vertcat(self.s, self.z))[0]
        n = self.ns
        return H[:n, :n], H[:n, n:], H[n:, n:]

    @cached_property
    def convex(self) -> tuple[ca.SX, ca.SX, ca.SX]:
        """Blocks ss, sz and zz of the Gauss-Newton Hessian of the running cost.
        The variables are s = (state, input) and z = (next state, multipliers).

        It is J'WJ of the squared residuals, plus the Hessian of the remaining terms.
        """
        squares, rest = self._convex
        nx, nu = self.nx, self.nu
        order = [*range(nx + nu), *range(2 * nx + nu, 2 * nx + nu + self.nm)]  # x, u, multipliers of (s, z)
        n = self.ns + self.nz
        E = ca.SX(ca.DM.eye(n))[:, order]
        H = E @ squares @ E.T
        blocks = H[: self.ns, : self.ns], H[: self.ns, self.ns :], H[self.ns :, self.ns :]
        return tuple(a + b for a, b in zip(blocks, self.hessian(rest), strict=True))

    def condense(self, blocks: tuple[ca.SX, ca.SX, ca.SX]) -> ca.SX:
        """Eliminate next state and multipliers from a quadratic form of a stage.

        The blocks ss, sz and zz belong to s = (state, input) and z = (next state, multipliers). The result is
        the matrix of the form in s alone, along dz = Y ds.
        """
        ss, sz, zz = blocks
        cross = sz @ self.Y
        return ss + cross + cross.T + self.Y.T @ (zz @ self.Y)


def operations(f: OneStepMap, cost: Cost) -> float:
    """Estimate the number of operations of a symbolic stage.
    The result is inf if the map has no symbolic equations of a step.
    """
    residual: Any = f.residual
    if residual is None or f.ndx != f.nx or f.nu == 0:
        return np.inf
    if type(cost).value is not Cost.value or type(cost).expand is not Cost.expand:
        return np.inf  # a subclass that does not evaluate its expressions
    nz = f.nx + len(f.multiplier_names)
    if residual.numel_out(0) != nz:
        return np.inf
    n = nz + f.nu
    return 4 * n**3 + n * (residual.n_instructions() + cost.operations)
