"""Penalties of one row: phi(h, weight, shift), in symbols and in numbers.

docs/maths/constrained_descent.md, "Barrier" and "Augmented Lagrangian". A weight of 0 is no penalty.
"""

from __future__ import annotations

import casadi as ca
import numpy as np


def barrier(h: ca.SX, weight: ca.SX, shift: ca.SX) -> ca.SX:
    """weight beta_delta(-h), delta = shift."""
    z, delta = -h, shift
    inside = ca.if_else(z > delta, z, delta)  # so that the logarithm and its derivatives stay finite
    extension = 0.5 * (((z - 2 * delta) / delta) ** 2 - 1) - ca.log(delta)
    return weight * ca.if_else(z > delta, -ca.log(inside), extension)


def augmented(h: ca.SX, weight: ca.SX, shift: ca.SX) -> ca.SX:
    """(max(0, mu + rho h)^2 - mu^2) / (2 rho), rho = weight and mu = shift."""
    rho = ca.if_else(weight > 0, weight, 1)
    active = shift * h + 0.5 * weight * h**2
    return ca.if_else(weight > 0, ca.if_else(shift + weight * h > 0, active, -(shift**2) / (2 * rho)), 0)


def equation(h: ca.SX, weight: ca.SX, shift: ca.SX) -> ca.SX:
    """mu h + rho h^2 / 2, rho = weight and mu = shift."""
    return shift * h + 0.5 * weight * h**2


def barrier_multiplier(h: np.ndarray, weight: np.ndarray, shift: np.ndarray) -> np.ndarray:
    """d phi / d h of `barrier`: weight / z, or its continuation."""
    z = -h
    return weight * np.where(z > shift, 1 / np.where(z > shift, z, 1.0), (2 * shift - z) / shift**2)


def updated_multiplier(
    h: np.ndarray, weight: np.ndarray, shift: np.ndarray, equation: np.ndarray
) -> np.ndarray:
    """d phi / d h of `augmented` and, at columns marked so, of `equation`."""
    mu = shift + weight * h
    return np.where(equation, mu, np.maximum(mu, 0.0))
