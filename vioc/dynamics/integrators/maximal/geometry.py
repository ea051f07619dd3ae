"""CasADi functions that compute gaps, slips and impulses of contacts.
Contacts of the same geometry share these functions.

A *touch* is one gap phi(Z) >= 0 between bodies, with or without friction, or dry friction without a gap. Its
functions are written once for each kind of geometry and take the values of one touch (points, radii,
friction) as data. Maths: docs/maths/contact.md.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import casadi as ca

from vioc.dynamics.contact.cones import Cone
from vioc.dynamics.contact.laws import law_of
from vioc.dynamics.integrators.maximal.body_space import POSE, TWIST, pose_rates, unpack_pose, unpack_twist

OPEN = 50.0  # speed, lengths of the mechanism or rad per step, above any closing speed


class Geometry:
    """CasADi functions that all contacts with one kind of geometry share.
    An example is the contact of a sphere with a plane.

    Parameters
    ----------
    count : int
        Number of bodies.
    gap : callable
        (poses (x, R).., twists (v, w).., data) -> phi, slip velocity (two scalars, one for a joint
        with dry friction, or none); phi is infinite for dry friction without a gap.
    size : int
        Number of data. With friction, the friction coefficient follows them, or without a gap the largest
        friction force.
    smoothing : float
        Smoothing of `MaximalVI`, m^2/s^2.
    unit : float
        Natural unit of the gap: the length of the mechanism (m), or 1 rad.
    """

    def __init__(self, count: int, gap: Callable, size: int, cone: Cone, smoothing: float, unit: float):
        self.count, self.cone, self.law, self.unit = count, cone, law_of(cone), unit
        Z = [ca.SX.sym("Z", POSE) for _ in range(count)]
        V = [ca.SX.sym("V", TWIST) for _ in range(count)]
        data = ca.SX.sym("data", size + cone.friction)
        phi, slip = gap([*map(unpack_pose, Z)], [*map(unpack_twist, V)], ca.vertsplit(data))
        slip = ca.vertcat(*slip) if cone.friction else ca.SX(0, 1)
        self.rows = int(cone.gap) + slip.numel()
        rates = [ca.vertcat(*pose_rates(z, v)) for z, v in zip(Z, V, strict=True)]
        varied = [ca.jacobian(phi, z) @ ca.jacobian(r, v) for z, r, v in zip(Z, rates, V, strict=True)]
        slip_gradients = [ca.jacobian(slip, v) for v in V]
        self.gap = ca.Function("gap", [*Z, data], [ca.SX(phi)])
        normals = varied if cone.gap else [ca.SX(0, TWIST)] * count
        gradients = [ca.densify(ca.vertcat(n, t)) for n, t in zip(normals, slip_gradients, strict=True)]
        self.held = ca.Function("held", [*Z, data], gradients, {"cse": True})
        T, dt = [ca.SX.sym("T", 3, 3) for _ in range(count)], ca.SX.sym("dt")
        H = [ca.densify(ca.horzcat(n[:3], n[3:] @ t / dt)) for n, t in zip(varied, T, strict=True)]
        self.landed = ca.Function("landed", [*Z, *T, dt, data], [phi / dt, *H], {"cse": True})
        *numbers, most = ca.vertsplit(data) if cone.friction else [ca.SX(0, 1)]
        self.loaded = ca.Function("loaded", [data, dt], [ca.vertcat(*numbers, 0.5 * dt * most)])
        level = opened(phi / dt, smoothing, unit / dt) if cone.gap else phi
        self.level = ca.Function("level", [*Z, dt, data], [level, *map(ca.densify, varied)])
        N = [ca.SX.sym("N", 1, TWIST) for _ in range(count)]
        a = ca.SX.sym("level")
        speed = sum((n @ v for n, v in zip(N, V, strict=True)), a)
        self.closing = ca.Function("closing", [a, *N, *V], [speed])

    def lawful(self, J: list, a: Any, V: list, p: Any, kappa: Any, data: Any) -> tuple[list, Any]:
        """Return the impulses of a contact on its bodies, and the residual.
        The residual is that of the contact law. Impulses and residual are expressions of the contact
        multipliers p. J are the Jacobians of gap and slip, a is the gap velocity, V are the velocities of the
        bodies, kappa is the barrier parameter, and `data` are numbers such as points and radii.
        """
        law = self.cone.law(p, self._speeds(J, a, V), kappa, self._mu(data))
        return [j.T @ p[: j.shape[0]] for j in J], law

    def relaxed(
        self, J: list, a: Any, V: list, y: Any, kappa: Any, data: Any, share: Any
    ) -> tuple[list, Any]:
        """Return the impulses of a contact on its bodies, and the residuals.
        The residuals are those of the contact law, smooth equations of the variables y (module `laws`). J are
        the Jacobians of gap and slip, a is the gap velocity times the factor `share`, V are the velocities of
        the bodies, kappa is the barrier parameter, and `data` are numbers such as points and radii.
        """
        push = self.law.impulse(y, self._mu(data))
        law = self.law.equations(y, self._speeds(J, a, V), kappa, self._mu(data), share)
        return [j.T @ push for j in J], law

    def multipliers(self, y: Any, data: Any) -> Any:
        """Return the multipliers of a contact from the variables y of its contact law.
        The law is smooth; its variables are, for example, the gap velocity and the impulses.
        """
        return self.law.multipliers(y, self._mu(data))

    def started(self, J: list, a: Any, V: list, speed: Any, kappa: Any, data: Any, share: Any) -> Any:
        """Return initial values for the variables of a contact's smooth contact law.
        These variables are, for example, the gap velocity and the impulses. The values are inside the bounds
        of the variables.
        """
        return self.law.start(self._speeds(J, a, V), speed, kappa, self._mu(data), share)

    def held_by(self, J: list, a: Any, V: list, kappa: Any, data: Any) -> Any:
        """Return the contact multipliers that satisfy the contact law.
        The velocities V of the bodies are prescribed, and kappa is the barrier parameter.
        """
        return self.cone.lawful(self._speeds(J, a, V), kappa, self._mu(data))

    # -- functions of the interior point, condensed onto the bodies ----------------------------------

    def _arguments(self) -> tuple[list, list, Any, list, Any, Any, Any]:
        J, H = ([ca.SX.sym(n, r, TWIST) for _ in range(self.count)] for n, r in (("J", self.rows), ("H", 1)))
        V = [ca.SX.sym("V", TWIST) for _ in range(self.count)]
        data = ca.SX.sym("data", self.held.size1_in(self.count))
        return J, H, ca.SX.sym("a"), V, ca.SX.sym("y", self.cone.size), ca.SX.sym("goal", 2), data

    def _speeds(self, J: list, a: Any, V: list) -> Any:
        """Return the gap velocity and the slip velocity of a contact in one vector.
        For dry friction, the vector contains the slip velocity only.
        """
        lead = int(self.cone.gap)
        slip = sum((j[lead:, :] @ v for j, v in zip(J, V, strict=True)), ca.SX(self.rows - lead, 1))
        return ca.vertcat(*[a] * lead, slip)

    def _mu(self, data: Any) -> Any:
        return data[-1] if self.cone.friction else None

    def _law(self) -> tuple[list, list, list, Any, Any]:
        """Return an expression of the change dy of a contact's variables in a Newton step.
        It depends on the changes dw of the gap velocity and the slip velocity. The results are a list of the
        other symbols in the expression, two lists J and K of Jacobians of gap and slip, dy, and the symbols
        dw.
        """
        J, H, a, V, y, goal, data = self._arguments()
        dw, K = ca.SX.sym("dw", self.rows), J
        if self.cone.gap:
            K = [ca.vertcat(h, j[1:, :]) for j, h in zip(J, H, strict=True)]
        dy = self.cone.direction(y, self._speeds(J, a, V), dw, goal[0], self._mu(data), goal[1])
        return [*J, *H, a, *V, y, goal, data], J, K, dy, dw

    @cached_property
    def condensed(self) -> ca.Function:
        """CasADi function that computes a contact's terms in a Newton system.
        The Newton system is that of the momentum balances of its bodies.

        Its arguments and results are (J.., H.., a, V.., y, goal, data) -> J' c by body; J_i' S K_j by pair of
        bodies. In a Newton step, the contact impulse changes by c - S dw if gap velocity and slip change by
        dw. J is the Jacobian of gap and slip, K is J with its first row, that of the gap, replaced by H.
        """
        args, J, K, dy, dw = self._law()
        y = args[-3]
        change = ca.jacobian(self.cone.impulse(y), y) @ dy  # c - S dw
        constant, S = ca.substitute(change, dw, ca.SX.zeros(dw.numel())), -ca.jacobian(change, dw)
        outputs = [j.T @ constant for j in J]
        outputs += [ca.densify(j.T @ S @ k) for j in J for k in K]
        return ca.Function("condensed", args, outputs)

    @cached_property
    def expanded(self) -> ca.Function:
        """CasADi function that computes the changes dy of a contact's variables.
        They follow from the changes dV of the velocities of its bodies.

        Its arguments are (J.., H.., a, V.., y, goal, data, dV..).
        """
        args, _, K, dy, dw = self._law()
        dV = [ca.SX.sym("dV", TWIST) for _ in range(self.count)]
        change = sum((k @ d for k, d in zip(K, dV, strict=True)), ca.SX(dw.numel(), 1))
        dy = ca.densify(ca.substitute(dy, dw, change))
        return ca.Function("expanded", [*args, *dV], [dy])

    @cached_property
    def pushed(self) -> ca.Function:
        """CasADi function that computes a contact's impulses and residuals.
        The impulses act on the bodies in contact, the residuals are those of the contact law. The results
        also include the complementarity products and the multipliers of the contact.

        Its arguments and results are (J.., a, V.., y, goal, data) -> impulses by body.., residuals (speeds),
        products, multipliers.
        """
        J, _, a, V, y, goal, data = self._arguments()
        p = self.cone.impulse(y)
        outputs = [
            *(j.T @ p for j in J),
            self.cone.mismatch(y, self._speeds(J, a, V), self._mu(data), goal[1]),
            self.cone.products(y),
            self.cone.multipliers(y),
        ]
        return ca.Function("pushed", [*J, a, *V, y, goal, data], [ca.densify(o) for o in outputs])

    @cached_property
    def begun(self) -> ca.Function:
        """CasADi function that computes initial contact variables.
        They are for the interior-point method, with values inside the cone of the contact law.

        Its arguments are (J.., a, V.., speed, goal, data).
        """
        J, _, a, V, _, goal, data = self._arguments()
        speed = ca.SX.sym("speed")
        y = self.cone.begin(self._speeds(J, a, V), speed, goal[0], self._mu(data))
        return ca.Function("begun", [*J, a, *V, speed, goal, data], [ca.densify(y)])


def opened(s: Any, smoothing: Any, stride: Any) -> Any:
    """Return the largest speed at which the contact law lets a gap close.
    It is the speed s + w/(1 + w/(OPEN stride)) at the end of a step, with w = s (s^2/smoothing)^2. The
    argument s is the gap divided by the step length, `smoothing` (m^2/s^2) is that of the contact, and
    `stride` is the unit of the gap, 1 rad or the characteristic length of the mechanism, divided by the step
    length.

    At rest the first term alone balances the contact forces. The second term makes open gaps inactive.
    """
    wide = s * (s * s / smoothing) ** 2
    return s + wide / (1 + wide / (OPEN * stride))


def opened_share(s: Any, closing: Any, smoothing: Any, stride: Any) -> tuple[Any, Any]:
    """Return a scaled gap velocity at the end of a step, and the scale factor.
    The gap velocity is `closing`, the rate of the gap at the end of the step, plus the speed that the
    function `opened` returns for s, the gap divided by the step length. The scale factor is between 0 and 1.
    With this factor the first result is of the order of s, and the second of the order of 1, also for open
    contacts.
    """
    wide = s * (s * s / smoothing) ** 2
    near = 1 / (1 + wide / stride)
    share = near + (1 - near) / OPEN
    return share * (s + closing) + (1 - near) * stride, share
