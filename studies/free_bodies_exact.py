"""Closed forms of `free_bodies`: the torque-free body and Lagrange's top."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.integrate import quad
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
