"""Coefficients of Galerkin integrators: points and weights in a step, and what stages take of each other.

Q_i = q + h sum_j A_ij V_j,    P_i = p + h sum_j Ab_ij f_j,    b_i Ab_ij + b_j A_ji = b_i b_j.       (GA 3)
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.polynomial import Legendre, Polynomial

POINTS = ("gauss", "lobatto")


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
    def spacing(self) -> float:
        """The largest distance between points that follow each other, the ends of the step among them."""
        return float(np.diff([0.0, *self.c, 1.0]).max())

    @property
    def stages(self) -> int:
        return len(self.b)

    def values(self, at: np.ndarray) -> np.ndarray:
        """(m, s): what the polynomial through the values at c is at other points."""
        return values(self.c, at)


def values(c: np.ndarray, at: np.ndarray) -> np.ndarray:
    """(m, len(c)): what the polynomial through values at c is at other points."""
    return np.array([[_lagrange(c, j)(t) for j in range(len(c))] for t in at])


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
