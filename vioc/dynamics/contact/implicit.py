"""Implicit derivatives of steps with contact: what those of both maps share.

A contact holds by gamma = kappa / s with a gap's velocity s = phi(q_k+1)/dt of some 1e-7 m/s, which is
rounded by 1e-16 m / dt. docs/maths/contact_gradients.md, "Rounding": what q_k + dt V loses is added to
the laws by their slopes, and their slopes by gamma are kappa/gamma, not s.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from vioc.dynamics.contact.cones import Cone
from vioc.errors import StepError
from vioc.maps import derivatives
from vioc.maps.derivatives import Linearization, Steps


@dataclass(frozen=True)
class First:
    """First derivatives along N steps, and what the second ones need of them.

    Attributes
    ----------
    arguments : tuple of arrays
        Of the equations' functions.
    solved : (N, nz, ns)
        Of the step's unknowns, of one end or of both, by (state, input, parameters).
    slopes : list of arrays
        Of equations and of the next state by the unknowns.
    linearization : Linearization
    """

    arguments: tuple
    solved: np.ndarray
    slopes: list[np.ndarray]
    linearization: Linearization


class Normals:
    """The laws s gamma = kappa of an end, whose equations are in the order of its unknowns.

    Parameters
    ----------
    first : int
        Velocities V and constraints, before the touches.
    touches : sequence
        Each with its `cone` and `multipliers`.
    moved : (n,)
        Places of the velocities by which configurations move as q + dt V.
    """

    def __init__(self, first: int, touches: Sequence, moved: np.ndarray):
        at = np.cumsum([first, *(len(t.multipliers) for t in touches)])
        cones: list[Cone] = [t.cone for t in touches]
        self._rows = np.array([a for a, cone in zip(at, cones, strict=False) if cone.gap], int)
        self._moved = moved

    def unrounded(
        self, R: np.ndarray, slopes: np.ndarray, q: np.ndarray, V: np.ndarray, dt: np.ndarray
    ) -> np.ndarray:
        """Equations (N, n) with what q (N, moved) + dt V loses, lengths (N, 1)."""
        step = dt * V[:, self._moved]
        lost = (step - ((q + step) - q)) / dt
        found = R.copy()
        found[:, self._rows] += np.einsum("nij,nj->ni", slopes[:, self._rows][:, :, self._moved], lost)
        return found

    def sharp(self, slopes: np.ndarray, unknowns: np.ndarray, kappa: float) -> np.ndarray:
        """Slopes (N, n, n) of the equations by the unknowns, those of the laws by gamma at the solution."""
        found, gamma = slopes.copy(), unknowns[:, self._rows]
        known = found[:, self._rows, self._rows]
        found[:, self._rows, self._rows] = np.where(gamma > 0, kappa / np.where(gamma > 0, gamma, 1), known)
        return found


def solved(matrix: np.ndarray, right: np.ndarray) -> np.ndarray:
    """matrix^-1 right, rows scaled to each other: laws are of speeds and of energies; NaN if singular."""
    scale = 1 / np.abs(matrix).max(axis=2, keepdims=True, initial=1e-300)
    return derivatives.solved(scale * matrix, scale * right)


def solved_back(matrix: np.ndarray, right: np.ndarray) -> np.ndarray:
    """matrix'^-1 right (N, n), of the same scales."""
    scale = 1 / np.abs(matrix).max(axis=2, keepdims=True, initial=1e-300)
    return scale[..., 0] * np.linalg.solve(np.swapaxes(scale * matrix, 1, 2), right[..., None])[..., 0]


def check_solved(derivatives: np.ndarray, steps: Steps) -> None:
    """Raise `StepError` where those of a step are not finite."""
    good = np.isfinite(derivatives).all(axis=(1, 2))
    if good.all():
        return
    k = int(steps.k[np.argmin(good)])
    raise StepError(
        f"step {k} cannot be linearized: the constraints are dependent there; change the motion, or "
        "remove redundant constraints",
        k,
        np.inf,
        "singular constraints",
    )


def along(H: np.ndarray, T: np.ndarray) -> np.ndarray:
    """Hessians (N, ns + nz, ns + nz) of (s, z) along z = T s."""
    ns = T.shape[2]
    mixed = H[:, :ns, ns:] @ T
    return H[:, :ns, :ns] + mixed + np.swapaxes(mixed, 1, 2) + np.swapaxes(T, 1, 2) @ H[:, ns:, ns:] @ T
