"""Contact and friction laws as smooth equations, for trajectory optimization.

The vector z has all variables of a law. Let kappa be the barrier parameter, a the gap rate and v the slip
velocity. Without friction, z = (s, gamma) has the gap rate and the normal impulse, with s = a and
s gamma = kappa. These equations also belong to the polygon law and the round law, but not to dry friction:

    polygon   z = (s, gamma, psi, sigma, beta.., eta..)     psi + d_i v = eta_i,  sigma = mu gamma - sum beta,
                                                            psi sigma = beta_i eta_i = kappa
    round     z = (s, gamma, b1, b2, tau)                   s b + mu tau v = 0,  tau + |b|^2 = 1
    dry       z = (b1, b2, tau, psi)                 psi b + v = 0,  tau + |b|^2 = 1,  mu psi tau = kappa

In the round law mu gamma b is the friction impulse. The round law is `cones.RoundCone` without the variables
that are large at open contacts. A caller may scale all speeds by a factor c; the methods then take
w = (c a, v). docs/maths/contact_implicit.md (2)-(5).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import casadi as ca
import numpy as np

from vioc.dynamics.contact.cones import Cone, DryCone, LinearCone, RoundCone

Names = tuple[tuple[str, float, str], ...]
RATE, IMPULSE, PRODUCT, NUMBER = "rate", "impulse", "product", "number"  # kinds of quantities of a contact


class ContactLaw:
    """Smooth equations of a contact without friction, and base class of laws with friction.

    Parameters
    ----------
    cone : Cone

    Attributes
    ----------
    unknowns : tuple of (str, float, str)
        Names, lower bounds and kinds of z. The kinds are rates of gaps and slips, impulses, and numbers.
    kinds : tuple of str
        Kinds of the residuals of `equations`, among them products of a rate and an impulse.
    """

    def __init__(self, cone: Cone):
        self.cone = cone
        self.unknowns: Names = (("gap rate", 0.0, RATE), ("impulse", 0.0, IMPULSE))
        self.kinds: tuple[str, ...] = (RATE, PRODUCT)

    def equations(self, z: Any, w: Any, kappa: Any, mu: Any, share: Any = 1) -> Any:
        """Return the residuals of the contact law, one for each unknown in z.
        The arguments are the gap rate w[0] and the slip velocities w[1:], the barrier parameter kappa and the
        friction coefficient mu. The gap rate w[0], and the speeds among the unknowns, have been multiplied by
        `share`; the slip velocities have not.
        """
        return ca.vertcat(w[0] - z[0], z[0] * z[1] - kappa * share)

    def impulse(self, z: Any, mu: Any) -> Any:
        """Return the normal impulse and, with friction, two tangential impulses, from the unknowns z."""
        return z[1]

    def multipliers(self, z: Any, mu: Any) -> Any:
        """Return the multipliers of the contact from the unknowns z of its law.
        They are the impulses and, with friction, the slip speed, which is scaled like the speeds in z.
        """
        return self.impulse(z, mu)

    def start(self, w: Any, speed: Any, kappa: Any, mu: Any, share: Any = 1) -> Any:
        """Return initial values of the unknowns z of the contact law.
        They satisfy the law approximately for the gap rate w[0], at least `speed`, the slip velocities w[1:]
        and the barrier parameter kappa. The gap rate w[0], and the speeds among the unknowns, are multiplied
        by `share`; the slip velocities are not.
        """
        s = ca.fmax(w[0], speed)
        return ca.vertcat(s, kappa * share / s)


class Polygon(ContactLaw):
    """Smooth equations of a contact whose friction cone is linearized to a polygon."""

    def __init__(self, cone: LinearCone):
        super().__init__(cone)
        self._count, self._directions = cone.count, cone.directions()
        each = (
            (f"{what} {i + 1}", 0.0, kind)
            for what, kind in (("friction", IMPULSE), ("slip", RATE))
            for i in range(cone.count)
        )
        self.unknowns = *self.unknowns, ("slip", 0.0, RATE), ("friction left", 0.0, IMPULSE), *each
        self.kinds = *self.kinds, IMPULSE, *cone.count * [RATE], *(1 + cone.count) * [PRODUCT]

    def _parts(self, z: Any) -> tuple[Any, ...]:
        return z[1], z[2], z[3], z[4 : 4 + self._count], z[4 + self._count :]

    def equations(self, z: Any, w: Any, kappa: Any, mu: Any, share: Any = 1) -> Any:
        gamma, psi, sigma, beta, eta = self._parts(z)
        slips = share * (self._directions.T @ w[1:]) + psi - eta
        products = ca.vertcat(psi * sigma, beta * eta) - kappa * share
        normal = super().equations(z, w, kappa, mu, share)
        return ca.vertcat(normal, mu * gamma - sigma - ca.sum1(beta), slips, products)

    def impulse(self, z: Any, mu: Any) -> Any:
        return ca.vertcat(z[1], self._directions @ self._parts(z)[3])

    def multipliers(self, z: Any, mu: Any) -> Any:
        return ca.vertcat(self.impulse(z, mu), z[2])

    def start(self, w: Any, speed: Any, kappa: Any, mu: Any, share: Any = 1) -> Any:
        normal = super().start(w, speed, kappa, mu, share)
        v = share * (self._directions.T @ w[1:])
        part = mu * normal[1] / (1 + self._count)
        psi = kappa * share / part + share * ca.norm_2(w[1:])
        return ca.vertcat(normal, psi, part, *[part] * self._count, psi + v)


class RoundLaw(ContactLaw):
    """Smooth equations of a contact with Coulomb friction, whose friction cone is round.

    Parameters
    ----------
    along : sequence of int
        Tangents along which motion is possible; b is 0 along the others.
    """

    def __init__(self, cone: RoundCone, along: Sequence[int] = (0, 1)):
        super().__init__(cone)
        self._along = list(along)
        free = ((f"friction {i + 1}", -np.inf, NUMBER) for i in along)
        self.unknowns = *self.unknowns, *free, ("friction left", 0.0, NUMBER)
        self.kinds = *self.kinds, *len(self._along) * [RATE], NUMBER

    def equations(self, z: Any, w: Any, kappa: Any, mu: Any, share: Any = 1) -> Any:
        b, tau = z[2:-1], z[-1]
        slips = z[0] * b + share * mu * tau * w[1:][self._along]
        normal = super().equations(z, w, kappa, mu, share)
        return ca.vertcat(normal, slips, tau + ca.sumsqr(b) - 1)

    def impulse(self, z: Any, mu: Any) -> Any:
        b = ca.SX.zeros(2)
        b[self._along] = z[2:-1]
        return ca.vertcat(z[1], mu * z[1] * b)

    def multipliers(self, z: Any, mu: Any) -> Any:
        return ca.vertcat(self.impulse(z, mu), z[0] / (mu * z[-1]))

    def start(self, w: Any, speed: Any, kappa: Any, mu: Any, share: Any = 1) -> Any:
        normal = super().start(w, speed, kappa, mu, share)
        return ca.vertcat(normal, _slid(share * mu * w[1:][self._along] / normal[0]))


class DryLaw(ContactLaw):
    """Smooth equations of dry friction whose largest force is given.

    Parameters
    ----------
    along : sequence of int
        As in `RoundLaw`.
    """

    def __init__(self, cone: DryCone, along: Sequence[int] = (0, 1)):
        super().__init__(cone)
        self._count, self._along = cone.count, list(along)
        free = ((f"friction {i + 1}", -np.inf, NUMBER) for i in along)
        self.unknowns = *free, ("friction left", 0.0, NUMBER), ("slip", 0.0, RATE)
        self.kinds = *len(self._along) * [RATE], NUMBER, RATE

    def equations(self, z: Any, w: Any, kappa: Any, mu: Any, share: Any = 1) -> Any:
        b, tau, psi = z[:-2], z[-2], z[-1]
        return ca.vertcat(psi * b + w[self._along], tau + ca.sumsqr(b) - 1, psi * tau - kappa / mu)

    def impulse(self, z: Any, mu: Any) -> Any:
        b = ca.SX.zeros(self._count)
        b[self._along] = z[:-2]
        return mu * b

    def multipliers(self, z: Any, mu: Any) -> Any:
        return ca.vertcat(self.impulse(z, mu), z[-1])

    def start(self, w: Any, speed: Any, kappa: Any, mu: Any, share: Any = 1) -> Any:
        friction = _slid(mu / kappa * w[self._along])
        return ca.vertcat(friction, kappa / (mu * friction[-1]))


def kind_unit(kind: str, gap: str) -> str:
    """Return the SI unit of a kind of contact quantity, such as an impulse.
    The argument `gap` is the unit of the contact's gap, ``"m"`` or ``"rad"``.
    """
    impulse = "kg m^2/s" if gap == "rad" else "kg m/s"
    return {RATE: f"{gap}/s", IMPULSE: impulse, PRODUCT: "J", NUMBER: "1"}[kind]


def _slid(v: Any) -> Any:
    """Return the solution (b, tau) of b = -tau v, tau + |b|^2 = 1 without cancellation.
    Here v is a scaled slip velocity, and b the friction impulse divided by its limit.
    """
    tau = 2 / (1 + ca.sqrt(1 + 4 * ca.sumsqr(v)))
    return ca.vertcat(-tau * v, tau)


def law_of(cone: Cone, along: Sequence[int] = (0, 1)) -> ContactLaw:
    """Return the smooth equations of a contact for its friction cone.
    The indices `along` select those of the two tangent directions of the contact in which motion is possible.
    """
    if isinstance(cone, DryCone):
        return DryLaw(cone, along[: cone.count])
    if isinstance(cone, RoundCone):
        return RoundLaw(cone, along)
    return Polygon(cone) if isinstance(cone, LinearCone) else ContactLaw(cone)
