"""Coefficients of Galerkin integrators: points and weights in a step, and what stages take of each other.

Q_i = q + h sum_j A_ij V_j,    P_i = p + h sum_j Ab_ij f_j,    b_i Ab_ij + b_j A_ji = b_i b_j.       (GA 3)
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.polynomial import Legendre, Polynomial

from vioc.errors import StepError

POINTS = ("gauss", "lobatto")
# How far the polynomial of rates may be off velocities where a step starts and ends, relative, of one that
# Newton's method had to solve: its equations have other roots, where rates go back and forth.
NO_MOTION = 0.1


@dataclass(frozen=True)
class Quadrature:
    """Coefficients of s stages.

    Attributes
    ----------
    b, c : (s,)
        Weights and points of the quadrature in [0, 1].
    A, Ab : (s, s)
        Of configurations and of momenta.
    order : int
    """

    b: np.ndarray
    c: np.ndarray
    A: np.ndarray
    Ab: np.ndarray
    order: int

    @property
    def stages(self) -> int:
        return len(self.b)

    def values(self, at: np.ndarray) -> np.ndarray:
        """(m, s): what the polynomial through the values at c is at other points."""
        return values(self.c, at)


def values(c: np.ndarray, at: np.ndarray) -> np.ndarray:
    """(m, len(c)): what the polynomial through values at c is at other points."""
    return np.array([[_lagrange(c, j)(t) for j in range(len(c))] for t in at])


def off_ends(rule: Quadrature, rates: Any, ends: Any) -> Any:
    """How far rates (s, nd) at the points are off velocities (2, nd) where the step starts and ends: (2, nd);
    or of one point, which leads to neither, off their mean: (1, nd).
    """
    at = np.array([[1.0, 0.0], [0.0, 1.0]] if rule.stages > 1 else [[0.5, 0.5]])
    return at @ rule.values(np.array([0.0, 1.0])) @ rates - at @ ends


def check_rates(
    rule: Quadrature, rates: np.ndarray, ends: np.ndarray, masses: np.ndarray, k: int, t: float, dt: float
) -> None:
    """Refuse a root of step k's equations that is no motion.

    Parameters
    ----------
    rates, ends : (s, nd), (2, nd)
        At the points, and the velocities where the step starts and ends.
    masses : (nd,)
        What rates are weighed by.

    Raises
    ------
    StepError
        If they are more than `NO_MOTION` off (GA 13).
    """
    size = np.sqrt(masses)
    apart = off_ends(rule, rates, ends)
    off, most = (float(np.linalg.norm(e * size, axis=1).max()) for e in (apart, rates))
    if not off <= NO_MOTION * most:
        raise StepError(
            f"step {k} (t = {t:.6g} s, dt = {dt:g} s) is too long for its motion: the rates along it are "
            f"{100 * off / most:.0f} % off those of its ends; use a smaller dt",
            k,
            off,
            "no convergence",
        )


@lru_cache
def quadrature(points: str, stages: int) -> Quadrature:
    """Gauss's points, order 2 s, or Lobatto's, order 2 s - 2, which hold both ends of a step."""
    s = stages
    if points == "gauss":
        c = Legendre.basis(s).roots()
    else:
        c = np.concatenate([[-1.0], Legendre.basis(s - 1).deriv().roots(), [1.0]])
    c = 0.5 * (1 + np.real(c))
    integrals = [_lagrange(c, j).integ() for j in range(s)]
    A = np.array([[P(ci) - P(0.0) for P in integrals] for ci in c])
    b = np.array([P(1.0) - P(0.0) for P in integrals])
    Ab = b - (A.T * b) / b[:, None]
    return Quadrature(b, c, A, Ab, 2 * s if points == "gauss" else 2 * s - 2)


def _lagrange(c: np.ndarray, j: int) -> Polynomial:
    others = np.delete(c, j)
    through = Polynomial.fromroots(others) if len(others) else Polynomial([1.0])
    return through / np.prod(c[j] - others)
