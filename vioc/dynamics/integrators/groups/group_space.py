"""State space of a mechanism whose attitudes are unit quaternions.
A state [r, s, p] has scalar coordinates r, quaternions s and momenta p. A displacement from one state to
another is (dr, phi, dp), with one rotation vector phi for each quaternion.

Errors of the quaternions s are rotation vectors phi, with s_1 = s_0 exp(phi).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import casadi as ca
import numpy as np

from vioc.dynamics.algebra import rotations as rot
from vioc.maps.space import StateSpace


@dataclass(frozen=True)
class GroupSpace(StateSpace):
    """State space of configurations in R^nr x SO(3)^nb, with rotations as quaternions, and momenta.

    Attributes
    ----------
    nr, nb : int
        Numbers of scalar coordinates and of rotations.
    error_names : tuple of str
    places : (nb,) tuple of str
        Locations of the quaternions, for messages.
    """

    nr: int
    nb: int
    error_names: tuple[str, ...]
    places: tuple[str, ...]

    @cached_property
    def quaternions(self) -> tuple[int, ...]:  # type: ignore[override]
        return tuple(range(self.nr, self.nq, 4))

    @property
    def nd(self) -> int:
        """Number of velocities: scalar coordinates and three for each rotation."""
        return self.nr + 3 * self.nb

    @property
    def nq(self) -> int:
        """Number of components of a configuration: scalar coordinates and four for each quaternion."""
        return self.nr + 4 * self.nb

    def turns(self, w: Any) -> list[tuple[Any, ...]]:
        """Return the rotational part of rates or increments w (nd,), as triples of scalars."""
        return [tuple(ca.vertsplit(w[i : i + 3])) for i in range(self.nr, self.nd, 3)]

    def attitudes(self, x: Any) -> list[tuple[Any, ...]]:
        """Return the quaternions of a configuration or a state x, as tuples of scalars."""
        return [tuple(ca.vertsplit(x[i : i + 4])) for i in range(self.nr, self.nq, 4)]

    def split(self, x: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Split states x into r (..., nr), quaternions (..., nb, 4) and momenta (..., nd)."""
        x = np.asarray(x, float)
        s = x[..., self.nr : self.nq].reshape(*x.shape[:-1], self.nb, 4)
        return x[..., : self.nr], s, x[..., self.nq :]

    def difference(self, x0: np.ndarray, x1: np.ndarray) -> np.ndarray:
        (r0, s0, p0), (r1, s1, p1) = self.split(x0), self.split(x1)
        phi = rot.logarithm(rot.product(s0 * [1, -1, -1, -1], s1))
        return np.concatenate([r1 - r0, phi.reshape(*phi.shape[:-2], 3 * self.nb), p1 - p0], axis=-1)

    def retract(self, x: np.ndarray, dx: np.ndarray) -> np.ndarray:
        (r, s, p), dx = self.split(x), np.asarray(dx, float)
        phi = dx[..., self.nr : self.nd].reshape(*dx.shape[:-1], self.nb, 3)
        rotations = rot.product(s, rot.exponential(phi))
        rotations = rotations.reshape(*rotations.shape[:-2], 4 * self.nb)
        return np.concatenate([r + dx[..., : self.nr], rotations, p + dx[..., self.nd :]], axis=-1)

    def difference_expression(self, x0: Any, x1: Any) -> Any:
        turns = (rot.apart(x0[i : i + 4], x1[i : i + 4]) for i in range(self.nr, self.nq, 4))
        return ca.vertcat(x1[: self.nr] - x0[: self.nr], *turns, x1[self.nq :] - x0[self.nq :])

    def retract_expression(self, x: Any, dx: Any) -> Any:
        """Return the state that results from x by a small displacement dx.
        The result is an expression, exact to second order in dx.
        """
        rows = [x[: self.nr] + dx[: self.nr]]
        for s, phi in zip(self.attitudes(x), self.turns(dx), strict=True):
            small = (1 - sum(e * e for e in phi) / 8, *(e / 2 for e in phi))
            rows += rot.multiply(s, small)
        return ca.vertcat(*rows, x[self.nq :] + dx[self.nd :])

    def check(self, x: np.ndarray, what: str) -> None:
        rot.check_units(self.split(x)[1], what, list(self.places))
