"""The space that states of a map are points of: what an error of a state is, and where it leads."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection
from typing import Any

import casadi as ca
import numpy as np

TURN = 2 * np.pi


def short_way(angle: np.ndarray) -> np.ndarray:
    """Angles less whole turns, in [-pi, pi): half a turn is -pi, as where expressions take turns off."""
    return angle - TURN * np.floor(angle / TURN + 0.5)


class StateSpace(ABC):
    """Points are states, vectors their errors.

    Attributes
    ----------
    error_names : (ndx,) tuple of str
    quaternions : tuple of int
        Where unit quaternions begin in the state, in order; each has three entries of the error for four.
    """

    error_names: tuple[str, ...]
    quaternions: tuple[int, ...] = ()

    @abstractmethod
    def difference(self, x0: np.ndarray, x1: np.ndarray) -> np.ndarray:
        """x1 - x0 as an error; shapes (..., nx) -> (..., ndx)."""

    @abstractmethod
    def retract(self, x: np.ndarray, dx: np.ndarray) -> np.ndarray:
        """The state that lies the error `dx` away from `x`; inverse of `difference`."""

    @abstractmethod
    def difference_expression(self, x0: Any, x1: Any) -> Any:
        """`difference` on columns of CasADi symbols, SX or MX."""

    @abstractmethod
    def retract_expression(self, x: Any, dx: Any) -> Any:
        """`retract` on columns of CasADi symbols, exact to second order in `dx`."""

    @abstractmethod
    def check(self, x: np.ndarray, what: str) -> None:
        """Raise `ValueError` where `x`, finite numbers (nx,), is no state."""


class FlatSpace(StateSpace):
    """The space of plain numbers, some of them angles modulo a turn."""

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
