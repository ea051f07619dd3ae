"""Quadrature points, weights and stage coefficients of Galerkin integrators.

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
    """Points, weights and coefficients of a quadrature rule with s stages in [0, 1].

    Attributes
    ----------
    b, c : (s,)
        Weights and points of the quadrature in [0, 1].
    A, Ab : (s, s)
        Coefficients of the stage configurations and of the stage momenta.
    order : int
    """

    b: np.ndarray
    c: np.ndarray
    A: np.ndarray
    Ab: np.ndarray
    order: int

    @property
    def spacing(self) -> float:
        """Largest distance between neighbouring quadrature points, including 0 and 1."""
        return float(np.diff([0.0, *self.c, 1.0]).max())

    @property
    def stages(self) -> int:
        return len(self.b)

    def values(self, points: np.ndarray) -> np.ndarray:
        """Return the values (m, s) of Lagrange polynomials at m points.
        The nodes of the polynomials are the s quadrature points.
        """
        return values(self.c, points)


def values(c: np.ndarray, points: np.ndarray) -> np.ndarray:
    """Return the values (m, len(c)) of Lagrange polynomials at points.
    The polynomials have the nodes c; `points` are the m points.
    """
    return np.array([[_lagrange(c, j)(t) for j in range(len(c))] for t in points])


@lru_cache
def quadrature(points: str, stages: int) -> Quadrature:
    """Return the points, weights and coefficients of a Gauss or Lobatto quadrature.
    With s stages, Gauss's points have order 2 s; Lobatto's have order 2 s - 2 and include both ends of a
    step.
    """
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
