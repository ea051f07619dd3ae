"""State space of a map: its states, and the errors (tangent vectors) between states."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection
from typing import Any

import casadi as ca
import numpy as np

TURN = 2 * np.pi


def short_way(angle: np.ndarray) -> np.ndarray:
    """Return angles shifted by multiples of 2 pi to [-pi, pi)."""
    return angle - TURN * np.floor(angle / TURN + 0.5)


class StateSpace(ABC):
    """State manifold of a map, whose tangent vectors are errors between states.

    Attributes
    ----------
    error_names : (ndx,) tuple of str
    quaternions : tuple of int
        First indices of unit quaternions in the state, in order; each quaternion has three errors.
    """

    error_names: tuple[str, ...]
    quaternions: tuple[int, ...] = ()

    @abstractmethod
    def difference(self, x0: np.ndarray, x1: np.ndarray) -> np.ndarray:
        """Return the error dx of the state x1 relative to x0, for which retract(x0, dx) = x1.
        In a vector space it is x1 - x0. Shapes are (..., nx) -> (..., ndx).
        """

    @abstractmethod
    def retract(self, x: np.ndarray, dx: np.ndarray) -> np.ndarray:
        """Return the state whose error relative to the state `x` is `dx`; in a vector space it is x + dx."""

    @abstractmethod
    def difference_expression(self, x0: Any, x1: Any) -> Any:
        """Return the error of the state x1 relative to the state x0, as a CasADi expression (SX or MX)."""

    @abstractmethod
    def retract_expression(self, x: Any, dx: Any) -> Any:
        """Return the state whose error relative to the state `x` is `dx`, as a CasADi expression.

        It is exact to second order in `dx`.
        """

    @abstractmethod
    def check(self, x: np.ndarray, what: str) -> None:
        """Raise `ValueError` unless the finite array `x` (nx,) is a valid state.
        For example, its quaternions must have norm 1.
        """


class FlatSpace(StateSpace):
    """State space that is a vector space, in which some components can be angles modulo 2 pi."""

    def __init__(self, names: tuple[str, ...], angles: Collection[str] = ()):
        self.error_names = names
        self._angles = np.array([n in angles for n in names], float) if angles else None

    def difference(self, x0: np.ndarray, x1: np.ndarray) -> np.ndarray:
        d = np.asarray(x1, float) - np.asarray(x0, float)
        return d if self._angles is None else np.where(self._angles, short_way(d), d)

    def retract(self, x: np.ndarray, dx: np.ndarray) -> np.ndarray:
        return np.asarray(x, float) + np.asarray(dx, float)

    def difference_expression(self, x0: Any, x1: Any) -> Any:
        d = x1 - x0
        return d if self._angles is None else d - TURN * ca.DM(self._angles) * ca.floor(d / TURN + 0.5)

    def retract_expression(self, x: Any, dx: Any) -> Any:
        if dx.shape[0] != len(self.error_names):
            raise ValueError(
                f"errors ({dx.shape[0]}) are not states ({len(self.error_names)}); define retract_expression "
                "in a `space` of the map, to differentiate by them"
            )
        return x + dx

    def check(self, x: np.ndarray, what: str) -> None:
        return None
