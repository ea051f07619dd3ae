"""Derivatives of a step with contact in generalized coordinates, by the implicit function theorem.

With z = (V, lambda, gamma, tau, psi) a step is R(s, z) = 0 and x_k+1 = X(s, z), s = (x_k, u_k, parameters):
the balance, the constraints and the smooth laws of contact (`cones.Cone.law`). They are exact derivatives of
the smoothed step; docs/maths/contact.md, "Derivatives".
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import casadi as ca
import numpy as np

from vioc.compile.evaluate import Evaluator
from vioc.dynamics.algebra.vectors import part
from vioc.dynamics.integrators.contact.step import balance
from vioc.dynamics.lagrangian import OPTIONS
from vioc.errors import StepError
from vioc.maps.derivatives import Linearization, SecondOrder, Steps

if TYPE_CHECKING:
    from vioc.dynamics.integrators.contact.map import ContactVI


@dataclass(frozen=True)
class First:
    """First derivatives along N steps, and what the second ones need of them.

    Attributes
    ----------
    arguments : tuple of arrays
        Of the equations' functions.
    solved : (N, nz, ns)
        dz/ds.
    R_z, X_z : arrays
    linearization : Linearization
    """

    arguments: tuple
    solved: np.ndarray
    R_z: np.ndarray
    X_z: np.ndarray
    linearization: Linearization


class ContactDerivatives:
    """Linearization and contracted second derivatives of a map's steps.

    Parameters
    ----------
    f : ContactVI
    """

    def __init__(self, f: ContactVI):
        self._f = f

    @cached_property
    def _symbols(self) -> tuple[list[ca.SX], ca.SX, ca.SX]:
        """(x, u, z, t, dt, parameters, kappa), R, X."""
        f = self._f
        x, u, theta = f.symbols.x, f.symbols.u, f.symbols.parameters
        t, dt, kappa = ca.SX.sym("t"), f.symbols.dt, ca.SX.sym("kappa")
        z = ca.SX.sym("z", f.nd + len(f.multiplier_names))
        R, X = equations(f, x, u, part(z, 0, f.nd), part(z, f.nd), t, dt, theta, kappa)
        return [x, u, z, t, dt, theta, kappa], R, X

    @cached_property
    def _first(self) -> Evaluator:
        def build() -> ca.Function:
            args, R, X = self._symbols
            s = ca.vertcat(args[0], args[1], args[5])
            outputs = [ca.densify(ca.jacobian(r, v)) for r in (R, X) for v in (s, args[2])]
            return ca.Function("first", args, outputs, OPTIONS)

        return Evaluator(self._f.backend.program(build, "contact_first"))

    @cached_property
    def _residual(self) -> Evaluator:
        def build() -> ca.Function:
            args, R, _ = self._symbols
            return ca.Function("residual", args, [R], OPTIONS)

        return Evaluator(self._f.backend.program(build, "contact_residual"))

    @cached_property
    def _second(self) -> Evaluator:
        def build() -> ca.Function:
            args, R, X = self._symbols
            r, weight = ca.SX.sym("r", R.numel()), ca.SX.sym("weight", X.numel())
            whole = ca.vertcat(args[0], args[1], args[5], args[2])
            H = ca.hessian(ca.dot(weight, X) - ca.dot(r, R), whole)[0]
            return ca.Function("second", [*args, r, weight], [ca.densify(H)], OPTIONS)

        return Evaluator(self._f.backend.program(build, "contact_second"))

    def first(self, steps: Steps, theta: np.ndarray, kappa: float) -> First:
        """Along N solved steps."""
        f, nd = self._f, self._f.nd
        V = (steps.x1[:, :nd] - steps.x0[:, :nd]) / steps.h[:, None]
        z = np.hstack([V, steps.multipliers])
        given = steps.t[:, None], steps.h[:, None], theta, np.array([kappa])
        _, R_z, _, _ = self._first(steps.x0, steps.u, z, *given)
        scale = 1 / np.abs(R_z).max(axis=2, keepdims=True, initial=1e-300)  # laws of speeds and of energies
        with suppress(np.linalg.LinAlgError):  # V is a difference of places; contacts magnify its rounding
            left = self._residual(steps.x0, steps.u, z, *given)[0]
            z = z - np.linalg.solve(scale * R_z, scale * left)[..., 0]
        arguments = steps.x0, steps.u, z, *given
        R_s, R_z, X_s, X_z = self._first(*arguments)
        R_s, R_z = scale * R_s, scale * R_z
        try:
            solved = -np.linalg.solve(R_z, R_s)
        except np.linalg.LinAlgError:
            solved = np.full(R_s.shape, np.nan)
        if not np.isfinite(solved).all():
            k = int(steps.k[np.argmin(np.isfinite(solved).all(axis=(1, 2)))])
            raise StepError(
                f"step {k} cannot be linearized: the constraints are dependent there; change the motion, or "
                "remove redundant constraints",
                k,
                np.inf,
                "singular constraints",
            )
        lin = Linearization.of(X_s + X_z @ solved, solved[:, nd:], f.nu)
        return First((*arguments, scale[..., 0]), solved, R_z, X_z, lin)

    def second(self, first: First, Z: np.ndarray, zeta: np.ndarray) -> SecondOrder:
        """Z- and zeta-contracted Hessians along the steps of `first`."""
        f, nd = self._f, self._f.nd
        along = (np.swapaxes(first.X_z, 1, 2) @ Z[..., None])[..., 0]
        along[:, nd:] += zeta
        r = np.linalg.solve(np.swapaxes(first.R_z, 1, 2), along[..., None])[..., 0]
        *arguments, scale = first.arguments
        H = self._second(*arguments, scale * r, Z)[0]
        T, ns = first.solved, first.solved.shape[2]
        mixed = H[:, :ns, ns:] @ T
        full = H[:, :ns, :ns] + mixed + np.swapaxes(mixed, 1, 2) + np.swapaxes(T, 1, 2) @ H[:, ns:, ns:] @ T
        return SecondOrder.of(full, f.ndx, f.nu)


def equations(
    f: ContactVI,
    x: Any,
    u: Any,
    V: Any,
    multipliers: Any,
    t: Any,
    dt: Any,
    theta: Any,
    kappa: Any,
) -> tuple[Any, Any]:
    """R and X at mean velocities V and a step's multipliers."""
    at = balance(f, x, u, V, t, dt, theta)
    lam, p = part(multipliers, 0, f.nm), part(multipliers, f.nm)
    push, laws, place = -at.Dh0[:, : f.nd].T @ lam, [], 0
    each = zip(f.touches.all, at.speeds, at.J, f.touches.loads(theta, dt), strict=True)
    for touch, w, J, mu in each:
        own = part(p, place, place + len(touch.multipliers))
        place += len(touch.multipliers)
        push = push + J.T @ own[: J.shape[0]]
        laws.append(touch.cone.law(own, w, kappa, mu))
    R = ca.vertcat(at.parts.balance + push, at.h, *laws)
    momentum = part(x, f.nq, f.nq + f.nd) + at.parts.impulse + push
    return R, ca.vertcat(at.q1, momentum, part(at.rates, f.nd))
