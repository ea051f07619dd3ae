"""Complementarity conditions of contacts and friction, with Newton directions.

Let a = phi(Z_k+1)/dt be the rate of the gap phi, w the slip velocity, gamma the normal impulse, beta the
friction impulse (in a linear cone, beta_i along the directions d_i), and mu the friction coefficient. The
interior-point method drives every product below, an energy, to the barrier parameter kappa:

    frictionless   s = a,  s gamma = kappa
    linear cone    psi + d_i w = eta_i,  sigma = mu gamma - sum beta,  beta_i eta_i = psi sigma = kappa
    round cone     eta = w,  alpha = mu gamma,  (alpha, beta) o (psi, eta) = (kappa, 0, 0)
    dry friction   the same with a given alpha, and no gap

The slip speed is psi, and o is the Jordan product of the second-order cone. docs/maths/contact.md derives the
conditions from [M] (22)-(29). The residual of an equation is summed before changes are added to it. At the
solution it is rounding error, which steep slopes would amplify in another order of summation.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any

import casadi as ca
import numpy as np

from vioc.dynamics.description.numbers import Parameter

BOUNDARY, CLIP = 0.99, 0.1  # largest part of the way to a cone's boundary; part of a variable that remains
ROOTS = 8  # Newton steps for the slip speed


@dataclass(frozen=True)
class Cone:
    """Complementarity conditions of a contact without friction.
    It is the base class of conditions with friction. The variables are y = [s, gamma], the rate of the gap
    and the normal impulse. Complementarity is relaxed: the product of s and gamma is a barrier parameter > 0.

    Attributes
    ----------
    friction : bool
    gap : bool
        Whether the speeds w begin with the rate of a gap.
    size : int
        Length of y.
    positive : tuple of int
        Indices of the components of y that stay > 0.
    round : tuple of (int, int, int)
        Indices of (t, x, y) with t > |(x, y)|.
    """

    friction = False
    gap = True
    preload = 0.0

    @property
    def size(self) -> int:
        return 2

    @property
    def positive(self) -> tuple[int, ...]:
        return tuple(range(self.size))

    @property
    def round(self) -> tuple[tuple[int, int, int], ...]:
        return ()

    @property
    def centers(self) -> tuple[float, ...]:
        """Ratios of the complementarity products to the barrier parameter at the solution."""
        return (1.0,) * (len(self.positive) // 2)

    def begin(self, w: Any, speed: Any, kappa: Any, mu: Any) -> Any:
        s = ca.fmax(w[0], speed)
        return ca.vertcat(s, kappa / s)

    def impulse(self, y: Any) -> Any:
        """Return the impulse (normal, tangential) that the contact variables y contain."""
        return y[1]

    def multipliers(self, y: Any) -> Any:
        return y[1]

    def within(self, most: Any, along: Any) -> Any:
        """Return expressions that are all >= 0 if a friction impulse is in the friction cone.
        The friction impulse is `along`; the largest possible friction impulse is `most`.
        """
        return ca.SX(0, 1)

    def products(self, y: Any) -> Any:
        """Return the complementarity products of the contact variables y.
        An example is gap rate times normal impulse. At the solution they are the barrier parameter times the
        factors `centers`.
        """
        return y[0] * y[1]

    def mismatch(self, y: Any, w: Any, mu: Any, lag: Any) -> Any:
        """Return the residuals, as speeds, of all contact equations except complementarity.
        They depend on the contact variables y, the relative velocities w and the friction coefficient mu. If
        `lag` is 0, friction is bounded by the normal impulse of the previous solution; if 1, by the present
        one.
        """
        return w[0] - y[0]

    def law(self, p: Any, w: Any, kappa: Any, mu: Any) -> Any:
        """Return the residuals of the contact law, with the contact's multipliers p as the only unknowns.
        The arguments w are the relative velocities of the contact, kappa the barrier parameter and mu the
        friction coefficient. The residuals are smooth where kappa > 0.
        """
        return w[0] * p[0] - kappa

    def lawful(self, w: Any, kappa: Any, mu: Any) -> Any:
        """Return the multipliers that satisfy the contact law at given relative velocities w.
        The first velocity w[0], the rate of the gap, must be > 0. The barrier parameter is kappa, the
        friction coefficient mu.
        """
        return kappa / w[0]

    def direction(self, y: Any, w: Any, dw: Any, kappa: Any, mu: Any, lag: Any) -> Any:
        """Return the Newton step of the contact variables y for the velocity step dw.
        The velocities w are the gap rate and the slip velocities of the contact.
        """
        return ca.vertcat(*self._normal(y, w, dw, kappa))

    def _bound(self, y: Any, mu: Any, lag: Any) -> Any:
        """Return the largest friction impulse: friction coefficient times normal impulse.
        The normal impulse is the present one if `lag` is 1, and that of the previous solution if `lag` is 0.
        """
        return mu * (lag * y[1] + (1 - lag) * y[-1] + self.preload)

    def preloaded(self, impulse: Any) -> Any:
        """Return a copy of the complementarity conditions with a higher friction limit.
        The friction limit is then the friction coefficient times the sum of the contact's normal impulse and
        the preload `impulse`.
        """
        twin = copy(self)
        object.__setattr__(twin, "preload", impulse)
        return twin

    def _normal(self, y: Any, w: Any, dw: Any, kappa: Any) -> tuple[Any, Any]:
        s, gamma = y[0], y[1]
        ds = (w[0] - s) + dw[0]
        return ds, (kappa - s * gamma - gamma * ds) / s


@dataclass(frozen=True)
class LinearCone(Cone):
    """Complementarity conditions of a contact with a linearized friction cone.
    The cone is a pyramid, whose cross section is a polygon.

    y = [s, gamma, psi, sigma, beta.., eta.., gamma before]; [M] (26)-(28).

    Attributes
    ----------
    count : int
        Number of directions.
    """

    count: int = 4
    friction = True

    @property
    def size(self) -> int:
        return 5 + 2 * self.count

    @property
    def positive(self) -> tuple[int, ...]:
        return tuple(range(self.size - 1))

    def directions(self) -> ca.DM:
        """Return the unit vectors of the friction directions in the tangent plane.
        They are the columns of the result (2, n), for a friction cone with n directions.
        """
        angle = 2 * np.pi * np.arange(self.count) / self.count
        return ca.DM(np.round(np.array([np.cos(angle), np.sin(angle)]), 15))

    def _parts(self, y: Any) -> tuple[Any, ...]:
        return y[1], y[2], y[3], y[4 : 4 + self.count], y[4 + self.count : -1]

    def begin(self, w: Any, speed: Any, kappa: Any, mu: Any) -> Any:
        s = ca.fmax(w[0], speed)
        gamma = kappa / s
        share = mu * gamma / (1 + self.count)
        v = self.directions().T @ w[1:]
        psi = kappa / share + ca.norm_2(w[1:])
        return ca.vertcat(s, gamma, psi, share, *[share] * self.count, psi + v, gamma)

    def impulse(self, y: Any) -> Any:
        gamma, _, _, beta, _ = self._parts(y)
        return ca.vertcat(gamma, self.directions() @ beta)

    def multipliers(self, y: Any) -> Any:
        return ca.vertcat(self.impulse(y), y[2])

    def within(self, most: Any, along: Any) -> Any:
        half = (
            np.pi / self.count
        )  # the directions point to the polygon's corners, halfway between the normals of its sides
        angle = 2 * half * np.arange(self.count) + half
        return most * np.cos(half) - ca.DM(np.array([np.cos(angle), np.sin(angle)]).T) @ along

    def products(self, y: Any) -> Any:
        gamma, psi, sigma, beta, eta = self._parts(y)
        return ca.vertcat(y[0] * gamma, psi * sigma, beta * eta)

    def mismatch(self, y: Any, w: Any, mu: Any, lag: Any) -> Any:
        gamma, psi, sigma, beta, eta = self._parts(y)
        bound = (self._bound(y, mu, lag) - sigma - ca.sum1(beta)) * (psi / ca.fmax(mu * gamma, sigma))
        return ca.vertcat(w[0] - y[0], self.directions().T @ w[1:] + psi - eta, bound)

    def law(self, p: Any, w: Any, kappa: Any, mu: Any) -> Any:
        gamma, tau, psi, directions = p[0], p[1:3], p[3], self.directions()
        beta = kappa / (psi + directions.T @ w[1:])
        return ca.vertcat(
            w[0] * gamma - kappa, tau - directions @ beta, psi * (mu * gamma - ca.sum1(beta)) - kappa
        )

    def lawful(self, w: Any, kappa: Any, mu: Any) -> Any:
        gamma, v = kappa / w[0], self.directions().T @ w[1:]
        least = kappa / (
            mu * gamma
        )  # the shares of mu gamma decrease with psi, so that Newton's method approaches psi from below
        psi = ca.fmax(ca.mmax(-v), 0.0) + least
        for _ in range(ROOTS):
            share = ca.vertcat(kappa / psi, kappa / (psi + v))
            psi = psi + (ca.sum1(share) - mu * gamma) * kappa / ca.sumsqr(share)
        return ca.vertcat(gamma, self.directions() @ (kappa / (psi + v)), psi)

    def direction(self, y: Any, w: Any, dw: Any, kappa: Any, mu: Any, lag: Any) -> Any:
        _, psi, sigma, beta, eta = self._parts(y)
        ds, dgamma = self._normal(y, w, dw, kappa)
        across = self.directions().T
        deta = (across @ w[1:] + psi - eta) + across @ dw[1:]  # without d psi, which is added below
        slope = beta / eta
        dbeta = kappa / eta - beta - slope * deta
        residual = (self._bound(y, mu, lag) - ca.sum1(beta) - sigma) + (lag * mu * dgamma - ca.sum1(dbeta))
        dpsi = (kappa - psi * sigma - psi * residual) / (sigma + psi * ca.sum1(slope))
        dsigma = residual + ca.sum1(slope) * dpsi
        return ca.vertcat(ds, dgamma, dpsi, dsigma, dbeta - slope * dpsi, deta + dpsi, 0)


@dataclass(frozen=True)
class RoundCone(Cone):
    """Complementarity conditions of a contact with a round (second-order) friction cone.

    y = [s, gamma, psi, eta1, eta2, alpha, beta1, beta2, gamma before].
    """

    friction = True

    @property
    def size(self) -> int:
        return 9

    @property
    def positive(self) -> tuple[int, ...]:
        return 0, 1

    @property
    def round(self) -> tuple[tuple[int, int, int], ...]:
        return (2, 3, 4), (5, 6, 7)

    @property
    def centers(self) -> tuple[float, ...]:
        return 1.0, 1.0, 0.0, 0.0

    def begin(self, w: Any, speed: Any, kappa: Any, mu: Any) -> Any:
        s = ca.fmax(w[0], speed)
        alpha = mu * kappa / s
        psi = kappa / alpha + ca.norm_2(w[1:])
        return ca.vertcat(s, kappa / s, psi, w[1:], alpha, 0, 0, kappa / s)

    def impulse(self, y: Any) -> Any:
        return ca.vertcat(y[1], y[6:8])

    def multipliers(self, y: Any) -> Any:
        return ca.vertcat(self.impulse(y), y[2])

    def within(self, most: Any, along: Any) -> Any:
        return most * most - ca.sumsqr(along)  # smooth at the tip, where a foot lifts off

    def products(self, y: Any) -> Any:
        return ca.vertcat(y[0] * y[1], _joined(y[2:5], y[5:8]))

    def mismatch(self, y: Any, w: Any, mu: Any, lag: Any) -> Any:
        bound = (self._bound(y, mu, lag) - y[5]) * (y[2] / ca.fmax(mu * y[1], y[5]))
        return ca.vertcat(w[0] - y[0], w[1:] - y[3:5], bound)

    def law(self, p: Any, w: Any, kappa: Any, mu: Any) -> Any:
        gamma, tau, psi, slip = p[0], p[1:3], p[3], w[1:]
        rubbed = mu * gamma * psi + ca.dot(tau, slip) - kappa
        return ca.vertcat(w[0] * gamma - kappa, psi * tau + mu * gamma * slip, rubbed)

    def lawful(self, w: Any, kappa: Any, mu: Any) -> Any:
        gamma, half = kappa / w[0], 0.5 * w[0] / mu
        psi = half + ca.sqrt(half * half + ca.sumsqr(w[1:]))
        return ca.vertcat(gamma, -mu * gamma / psi * w[1:], psi)

    def direction(self, y: Any, w: Any, dw: Any, kappa: Any, mu: Any, lag: Any) -> Any:
        ds, dgamma = self._normal(y, w, dw, kappa)
        deta = (w[1:] - y[3:5]) + dw[1:]
        dalpha = (self._bound(y, mu, lag) - y[5]) + lag * mu * dgamma
        return ca.vertcat(ds, dgamma, _rubbed(y[2:5], y[5:8], deta, dalpha, kappa), 0)


@dataclass(frozen=True)
class DryCone(RoundCone):
    """Complementarity conditions of dry friction whose largest force is given.
    There is no normal contact.

    y = [psi, eta1, eta2, alpha, beta1, beta2]. mu is the largest impulse of friction, N s or N m s; w
    contains slip velocities only.

    Attributes
    ----------
    count : int
        Number of directions of friction; with one, eta2 = beta2 = 0.
    """

    count: int = 2
    gap = False

    @property
    def size(self) -> int:
        return 6

    @property
    def positive(self) -> tuple[int, ...]:
        return ()

    @property
    def round(self) -> tuple[tuple[int, int, int], ...]:
        return (0, 1, 2), (3, 4, 5)

    @property
    def centers(self) -> tuple[float, ...]:
        return 1.0, 0.0, 0.0

    def _both(self, w: Any) -> Any:
        return ca.vertcat(w, ca.SX(2 - self.count, 1))

    def begin(self, w: Any, speed: Any, kappa: Any, mu: Any) -> Any:
        return ca.vertcat(ca.fmax(kappa / mu, speed) + ca.norm_2(w), self._both(w), mu, 0, 0)

    def impulse(self, y: Any) -> Any:
        return y[4 : 4 + self.count]

    def multipliers(self, y: Any) -> Any:
        return ca.vertcat(self.impulse(y), y[0])

    def products(self, y: Any) -> Any:
        return _joined(y[:3], y[3:])

    def mismatch(self, y: Any, w: Any, mu: Any, lag: Any) -> Any:
        return ca.vertcat(self._both(w) - y[1:3], (mu - y[3]) * (y[0] / ca.fmax(mu, y[3])))

    def law(self, p: Any, w: Any, kappa: Any, mu: Any) -> Any:
        tau, psi = p[: self.count], p[self.count]
        return ca.vertcat(psi * tau + mu * w, mu * psi + ca.dot(tau, w) - kappa)

    def lawful(self, w: Any, kappa: Any, mu: Any) -> Any:
        half = 0.5 * kappa / mu
        psi = half + ca.sqrt(half * half + ca.sumsqr(w))
        return ca.vertcat(-mu / psi * w, psi)

    def direction(self, y: Any, w: Any, dw: Any, kappa: Any, mu: Any, lag: Any) -> Any:
        return _rubbed(y[:3], y[3:], self._both(w) - y[1:3] + self._both(dw), mu - y[3], kappa)


def _joined(speed: Any, force: Any) -> Any:
    """Return the Jordan product of slip speed and friction impulse in the second-order cone.
    It is (psi, eta) o (alpha, beta): `speed` has the slip speed psi and the slip velocity eta (2,), `force`
    the friction limit alpha and the friction impulse beta (2,). At the solution the product is (kappa, 0, 0),
    where kappa is the barrier parameter.
    """
    psi, eta, alpha, beta = speed[0], speed[1:], force[0], force[1:]
    return ca.vertcat(alpha * psi + ca.dot(beta, eta), alpha * eta + psi * beta)


def _rubbed(speed: Any, force: Any, deta: Any, dalpha: Any, kappa: Any) -> Any:
    """Return the Newton step of the slip speed and the friction impulse in the second-order cone.
    The argument `speed` has the slip speed psi and the slip velocity eta, `force` the friction limit alpha
    and the friction impulse beta. The steps of eta and alpha are `deta` and `dalpha`; the steps of psi and
    beta solve the linearized equation `_joined` = (kappa, 0, 0).
    """
    psi, eta, alpha, beta = speed[0], speed[1:], force[0], force[1:]
    first = kappa - alpha * psi - ca.dot(beta, eta) - psi * dalpha - ca.dot(beta, deta)
    second = -(alpha * (eta + deta) + psi * beta) - eta * dalpha
    dpsi = (psi * first - ca.dot(eta, second)) / (alpha * psi - ca.dot(eta, beta))
    return ca.vertcat(dpsi, deta, dalpha, (second - beta * dpsi) / psi)


class Variables:
    """Indices of the variables of all contacts in one vector.
    The methods compute how far a Newton step can go until a contact's variables reach the boundary of their
    cone.

    Attributes
    ----------
    parts : (cones + 1,)
        First index of each cone's variables, and the length of the vector.
    positive : (m,)
        Indices of the components that stay > 0.
    round : (m, 3)
        Indices of three components (t, x, y) of a round cone, which satisfy t > |(x, y)|.
    before : (m, 2)
        Indices of the normal impulse and of the previous solution's normal impulse, for contacts whose
        friction the normal impulse bounds.
    centers : (products,)
        Values of the complementarity products at the solution, divided by the barrier parameter kappa.
    """

    def __init__(self, cones: Sequence[Cone]):
        self.parts = np.concatenate([[0], np.cumsum([c.size for c in cones])]).astype(np.int64)
        offsets = list(zip(self.parts.tolist(), cones, strict=False))
        self.positive = np.array([o + i for o, c in offsets for i in c.positive], np.int64)
        self.round = np.array([o + i for o, c in offsets for r in c.round for i in r], np.int64).reshape(
            -1, 3
        )
        bounds = [[o + 1, o + c.size - 1] for o, c in offsets if c.friction and c.gap]
        self.before = np.array(bounds, np.int64).reshape(-1, 2)
        self.centers = np.concatenate([np.zeros(0), *(c.centers for c in cones)])

    def longest(self, y: np.ndarray, dy: np.ndarray) -> float:
        """Return the largest factor of the step dy with which the variables y stay in their cones."""
        values, change = y[self.positive], dy[self.positive]
        falls = change < 0
        length = float((-values[falls] / change[falls]).min(initial=np.inf))
        return min([length, *(to_cone(y[r], dy[r]) for r in self.round)])

    def clipped(self, y: np.ndarray, dy: np.ndarray) -> np.ndarray:
        """Return the variables y + dy, after dy has been shortened to stay in each contact's cone."""
        new, p = y + dy, self.positive
        new[p] = np.maximum(new[p], CLIP * y[p])
        for r in self.round:
            new[r] = y[r] + min(1.0, BOUNDARY * to_cone(y[r], dy[r])) * dy[r]
        return new


def to_cone(y: np.ndarray, d: np.ndarray) -> float:
    """Return the largest step length along d that keeps y in the cone y[0] > |y[1:]|."""
    a = d[0] ** 2 - d[1] ** 2 - d[2] ** 2
    b = y[0] * d[0] - y[1] * d[1] - y[2] * d[2]
    c = max(y[0] ** 2 - y[1] ** 2 - y[2] ** 2, 0.0)
    square = b * b - a * c
    if square < 0 or (b >= 0 and a >= 0):
        return np.inf
    root = c / (np.sqrt(square) - b) if b < 0 else -(b + np.sqrt(square)) / a
    return float(root) if root >= 0 else np.inf


def cone_of(item: Any, mu: Any) -> tuple[Cone, tuple]:
    """Return the complementarity conditions of a contact, and its friction coefficient.
    The coefficient mu is in a tuple, which is empty without friction. The argument `item` is the contact
    component, or None for a joint limit.
    """
    if item is None or (not isinstance(item.friction, Parameter) and item.friction == 0):
        return Cone(), ()
    return (RoundCone() if item.cone == "second-order" else LinearCone(item.directions)), (mu,)
