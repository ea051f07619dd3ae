"""Closed forms and textbook equations of free bodies: references that are not vioc's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.integrate import quad, solve_ivp
from scipy.spatial.transform import Rotation
from scipy.special import ellipj, ellipk


def torque_free(t: np.ndarray, inertia: np.ndarray, spin: np.ndarray) -> tuple[np.ndarray, float]:
    """Angular velocity (N, 3) of a body without torque by Jacobi's functions, and its period.

    Principal inertias a < b < c, kg m^2; rates at the start with none about b, nearer to c: L^2 > 2 E b.
    """
    a, b, c = inertia
    energy, size = inertia @ spin**2, (inertia * spin) @ (inertia * spin)
    rate = np.sqrt((c - b) * (size - energy * a) / (a * b * c))
    m = (b - a) * (energy * c - size) / ((c - b) * (size - energy * a))
    sn, cn, dn, _ = ellipj(rate * t, m)
    middle = np.sqrt((energy * c - size) / (b * (c - b))) * sn
    return np.stack([spin[0] * cn, middle, spin[2] * dn], axis=1), float(4 * ellipk(m) / rate)


def nutation(
    vertical: float, spin: float, energy: float, across: float, along: float, weight: float
) -> tuple[float, float]:
    """Of Lagrange's top the period of z = cos(tilt), s, and the mean rate of precession, rad/s.

    Of its momenta about the vertical and its axis, its energy, inertias about the pivot, and weight * z, its
    potential energy: (dz/dt)^2 is a cubic k (z - a)(b - z)(c - z), which quadrature integrates.
    """
    P = np.polynomial.Polynomial
    left = P([energy - spin**2 / (2 * along), -weight])
    cubic = 2 / across * left * P([1, 0, -1]) - P([vertical / across, -spin / across]) ** 2
    a, b, c = np.sort(cubic.roots().real)
    k = 2 * weight / across

    def over(f: Callable[[float], float]) -> float:
        """Integral of f(z) dt over a period, with z = middle - half cos(angle)."""

        def inner(angle: float) -> float:
            z = (a + b) / 2 - (b - a) / 2 * np.cos(angle)
            return f(z) / np.sqrt(k * (c - z))

        return 2 * quad(inner, 0, np.pi, epsabs=1e-13, epsrel=1e-13)[0]

    period = over(lambda z: 1.0)
    return period, over(lambda z: (vertical - spin * z) / (across * (1 - z * z))) / period


class Flight:
    """A body under forces in the textbook's equations, for scipy: no matrix, frame or symbol of vioc's.

        m dv/dt = R F - m g e_z,     I dw/dt = I w x w + M,     ds/dt = s w / 2

    States y = (place of the centre of mass, quaternion with the scalar first, its velocity, w in the body's
    axes).

    Parameters
    ----------
    mass : float
    inertia : (3,)
        Principal, about the centre of mass, or about a pivot that it turns about.
    push : callable
        (R, u) -> F and M (3,) each, in the body's axes.
    g : float
    pinned : bool
        Whether it turns about the origin, which does not move.
    """

    def __init__(
        self,
        mass: float,
        inertia: np.ndarray,
        push: Callable[[Rotation, Any], tuple[np.ndarray, np.ndarray]],
        g: float = 0.0,
        pinned: bool = False,
    ):
        self.mass, self.inertia, self.push, self.g, self.pinned = mass, np.asarray(inertia), push, g, pinned
        self._known: dict[tuple, np.ndarray] = {}  # by starts, times and inputs

    def rate(self, t: float, y: np.ndarray, u: Any) -> np.ndarray:
        s, v, w = y[3:7], y[7:10], y[10:]
        R = Rotation.from_quat(np.roll(s, -1))
        force, moment = self.push(R, u)
        turning = np.concatenate([[-s[1:] @ w], s[0] * w + np.cross(s[1:], w)]) / 2
        lifted = R.apply(force) / self.mass - self.g * np.array([0, 0, 1])
        moved = (0 * v, 0 * v) if self.pinned else (v, lifted)
        spun = (np.cross(self.inertia * w, w) + moment) / self.inertia
        return np.concatenate([moved[0], turning, moved[1], spun])

    def after(self, y: np.ndarray, time: float, u: Any = None) -> np.ndarray:
        """The state (13,) at the end; integrated once for the same start, time and inputs."""
        key = y.tobytes(), time, None if u is None else u.tobytes()
        if key not in self._known:
            found = solve_ivp(self.rate, (0, time), y, args=(u,), rtol=1e-13, atol=1e-13, method="DOP853")
            self._known[key] = found.y[:, -1]
        return self._known[key]


def hung_flight(weight: float, arm: float, inertia: np.ndarray) -> Flight:
    """A body about a pivot, inertias about which are principal: weight, N, of a centre of mass `arm` up z."""

    def push(R: Rotation, u: Any) -> tuple[np.ndarray, np.ndarray]:
        return np.zeros(3), np.cross([0, 0, arm], R.inv().apply([0, 0, -weight]))

    return Flight(1.0, inertia, push, pinned=True)


def quadrotor_flight(
    mass: float, inertia: np.ndarray, hubs: np.ndarray, thrust: float, drag: float, g: float
) -> Flight:
    """Four propellers: thrust c u sqrt(u^2 + 1) along z at the hubs, and moments of drag that alternate."""

    def push(R: Rotation, u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        size = u * np.sqrt(u**2 + 1)
        lift = thrust * size[:, None] * [0.0, 0.0, 1.0]
        twist = drag * (-1.0) ** np.arange(len(u)) @ size
        return lift.sum(axis=0), np.cross(hubs, lift).sum(axis=0) + [0, 0, twist]

    return Flight(mass, inertia, push, g)


def apart(y: np.ndarray, other: np.ndarray) -> float:
    """How far two states of `Flight` are apart: the angle between attitudes, and the rest."""
    turns = [Rotation.from_quat(np.roll(each[3:7], -1)) for each in (y, other)]
    rest = np.abs(np.delete(y - other, range(3, 7))).max()
    return float((turns[0].inv() * turns[1]).magnitude() + rest)
