"""Derivatives of steps with contact in generalized coordinates.

With z = (V, lambda, gamma, tau, psi) and s = (x_k, u_k, parameters) a step solves R(s, z) = 0, and
x_k+1 = X(s, z). R consists of the momentum balance, the constraints and the smooth contact laws
(`cones.Cone.law`). The implicit function theorem gives the exact derivatives of the smoothed step;
docs/maths/contact.md, "Derivatives".
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import casadi as ca
import numpy as np

from vioc.compile.evaluate import Evaluator
from vioc.dynamics.algebra.vectors import part
from vioc.dynamics.contact.implicit import First, Normals, along, check_solved, solved, solved_back
from vioc.dynamics.integrators.contact.contact_step import balance
from vioc.dynamics.integrators.contact.touching import NOWHERE
from vioc.maps.derivatives import Linearization, SecondOrder, Steps

if TYPE_CHECKING:
    from vioc.dynamics.integrators.contact.contact_vi import ContactVI


POLISH = 2  # Newton steps: V is a difference of positions, and contacts amplify its rounding error


class ContactDerivatives:
    """First and second derivatives of the steps of a map with contact, by implicit differentiation.

    Parameters
    ----------
    f : ContactVI
    """

    def __init__(self, f: ContactVI):
        self._f = f

    @cached_property
    def _symbols(self) -> tuple[list[ca.SX], ca.SX, ca.SX]:
        """CasADi symbols of the arguments of a step, and expressions of residual and next state."""
        f = self._f
        x, u, theta = f.symbols.x, f.symbols.u, f.symbols.parameters
        t, dt, kappa = ca.SX.sym("t"), f.symbols.dt, ca.SX.sym("kappa")
        z = ca.SX.sym("z", f.nd + len(f.multiplier_names))
        places = f.touches.places
        R, X = equations(f, x, u, part(z, 0, f.nd), part(z, f.nd), t, dt, theta, kappa, places)
        return [x, u, z, t, dt, theta, kappa, places], R, X

    @cached_property
    def _first(self) -> Evaluator:
        def build() -> ca.Function:
            args, R, X = self._symbols
            s = ca.vertcat(args[0], args[1], args[5])
            outputs = [ca.densify(ca.jacobian(r, v)) for r in (R, X) for v in (s, args[2])]
            return ca.Function("first", args, outputs)

        return Evaluator(self._f.backend.program(build, "contact_first"))

    @cached_property
    def _residual(self) -> Evaluator:
        def build() -> ca.Function:
            args, R, _ = self._symbols
            return ca.Function("residual", args, [R])

        return Evaluator(self._f.backend.program(build, "contact_residual"))

    @cached_property
    def _second(self) -> Evaluator:
        def build() -> ca.Function:
            args, R, X = self._symbols
            r, weight = ca.SX.sym("r", R.numel()), ca.SX.sym("weight", X.numel())
            whole = ca.vertcat(args[0], args[1], args[5], args[2])
            H = ca.hessian(ca.dot(weight, X) - ca.dot(r, R), whole)[0]
            return ca.Function("second", [*args, r, weight], [ca.densify(H)])

        return Evaluator(self._f.backend.program(build, "contact_second"))

    @cached_property
    def _normals(self) -> Normals:
        return Normals(self._f.nd + self._f.nm, self._f.touches.all, np.arange(self._f.nd))

    def _unknowns(self, steps: Steps, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the unknowns (N, nz) of N solved steps, and data of their contact points.
        The unknowns of a step are its mean velocities and multipliers.
        """
        f, nd = self._f, self._f.nd
        if f.features.pairs:  # the contact points are known only inside the step: solve it again
            each = zip(steps.x0, steps.u, steps.t.tolist(), steps.h.tolist(), strict=True)
            solutions = [f.interior.solve(*step, theta) for step in each]
            return np.stack([s.ends[0].unknowns for s in solutions]), np.stack([s.held for s in solutions])
        V = (steps.x1[:, :nd] - steps.x0[:, :nd]) / steps.h[:, None]
        return np.hstack([V, steps.multipliers]), f.touches.polytopes.nowhere

    def first(self, steps: Steps, theta: np.ndarray, kappa: float) -> First:
        """Return the first derivatives of N solved steps.
        They are derivatives with respect to state, input and parameters. The contacts have the barrier
        parameter kappa.
        """
        f, nd, dt = self._f, self._f.nd, steps.h[:, None]
        q0 = steps.x0[:, :nd]
        z, places = self._unknowns(steps, theta)
        args = steps.t[:, None], dt, theta, np.array([kappa]), places
        R_z = self._normals.sharp(self._first(steps.x0, steps.u, z, *args)[1], z, kappa)
        for _ in range(POLISH):
            residual = self._residual(steps.x0, steps.u, z, *args)[0][..., 0]
            residual = self._normals.unrounded(residual, R_z, q0, z, dt)
            change = solved(R_z, residual[..., None])[..., 0]
            if not np.isfinite(change).all():
                break
            z = z - change
        arguments = steps.x0, steps.u, z, *args
        R_s, R_z, X_s, X_z = self._first(*arguments)
        R_z = self._normals.sharp(R_z, z, kappa)
        z_s = -solved(R_z, R_s)
        check_solved(z_s, steps)
        lin = Linearization.of(X_s + X_z @ z_s, z_s[:, nd:], f.nu)
        return First(arguments, z_s, [R_z, X_z], lin)

    def second(self, first: First, Z: np.ndarray, zeta: np.ndarray) -> SecondOrder:
        """Return second derivatives of N steps, contracted with covectors.
        They are derivatives with respect to state, input and parameters. Z has the covectors of the next
        states, and zeta those of the multipliers, one row for each step.
        """
        f, (R_z, X_z) = self._f, first.slopes
        weight = (np.swapaxes(X_z, 1, 2) @ Z[..., None])[..., 0]
        weight[:, f.nd :] += zeta
        H = self._second(*first.arguments, solved_back(R_z, weight), Z)[0]
        return SecondOrder.of(along(H, first.solved), f.ndx, f.nu)


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
    places: Any = NOWHERE,
) -> tuple[Any, Any]:
    """Return the residual of the equations of a step with contact, and the next state.
    Unknowns are the mean velocity V and the multipliers; kappa is the barrier parameter.
    """
    terms = balance(f, x, u, V, t, dt, theta, places)
    lam, p = part(multipliers, 0, f.nm), part(multipliers, f.nm)
    push, laws, place = -terms.Dh0[:, : f.nd].T @ lam, [], 0
    each = zip(f.touches.all, terms.speeds, terms.J, f.touches.loads(theta, dt), strict=True)
    for touch, w, J, mu in each:
        impulse = part(p, place, place + len(touch.multipliers))
        place += len(touch.multipliers)
        push = push + J.T @ impulse[: J.shape[0]]
        laws.append(touch.cone.law(impulse, w, kappa, mu))
    R = ca.vertcat(terms.parts.balance + push, terms.h, *laws)
    momentum = part(x, f.nq, f.nq + f.nd) + terms.parts.impulse + push
    return R, ca.vertcat(terms.q1, momentum, part(terms.rates, f.nd))
