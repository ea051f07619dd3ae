"""Derivatives of steps with contact by the implicit function theorem.

An active contact obeys gamma = kappa / s: the normal impulse gamma is the barrier parameter kappa divided by
the gap rate s = phi(q_k+1)/dt. The gap rate is some 1e-7 m/s, and its rounding error is 1e-16 m / dt. Two
corrections reduce the effect of this error (docs/maths/contact_gradients.md, "Rounding"). The rounding error
of q_k + dt V is added to the contact laws through their slopes, and the slope of a law with respect to gamma
is set to kappa/gamma instead of s.
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
    """First derivatives of the solutions of N steps with contact.
    The derivatives are with respect to the state, input and parameters of each step. Intermediate results are
    stored, because second derivatives need them.

    Attributes
    ----------
    arguments : tuple of arrays
        Arguments of the functions of the equations.
    solved : (N, nz, ns)
        Derivatives of the step's unknowns, of one end or of both, by (state, input, parameters).
    slopes : list of arrays
        Derivatives of the equations and of the next state by the unknowns.
    linearization : Linearization
    """

    arguments: tuple
    solved: np.ndarray
    slopes: list[np.ndarray]
    linearization: Linearization


class Normals:
    """Corrector of residuals and Jacobians of contact equations for rounding errors.
    The equation of a contact states that the gap rate s times the normal impulse gamma is the barrier
    parameter kappa. The rounding of positions at the end of the step causes an error of s, which is removed.

    Parameters
    ----------
    first : int
        Number of velocities V and constraints, which precede the contacts.
    touches : sequence
        Contacts, each with its `cone` and `multipliers`.
    moved : (n,)
        Indices of the velocities by which configurations move as q + dt V.
    """

    def __init__(self, first: int, touches: Sequence, moved: np.ndarray):
        offsets = np.cumsum([first, *(len(t.multipliers) for t in touches)])
        cones: list[Cone] = [t.cone for t in touches]
        self._rows = np.array([a for a, cone in zip(offsets, cones, strict=False) if cone.gap], int)
        self._moved = moved

    def unrounded(
        self, R: np.ndarray, slopes: np.ndarray, q: np.ndarray, V: np.ndarray, dt: np.ndarray
    ) -> np.ndarray:
        """Return the residuals R (N, n) of N steps, corrected for the rounding error of positions q + dt V.
        The array `slopes` (N, n, n) has the Jacobians of the residuals, q the positions at the start of each
        step, V the velocities and `dt` (N, 1) the step lengths.
        """
        step = dt * V[:, self._moved]
        rounding = (step - ((q + step) - q)) / dt
        corrected = R.copy()
        corrected[:, self._rows] += np.einsum(
            "nij,nj->ni", slopes[:, self._rows][:, :, self._moved], rounding
        )
        return corrected

    def sharp(self, slopes: np.ndarray, unknowns: np.ndarray, kappa: float) -> np.ndarray:
        """Return more accurate Jacobians (N, n, n) of the residuals of N steps.
        The Jacobians `slopes` contain the derivative of the product s gamma, gap rate times normal impulse,
        with respect to gamma. It is replaced by kappa/gamma, its value at the solution. Here kappa is the
        barrier parameter.
        """
        exact, gamma = slopes.copy(), unknowns[:, self._rows]
        diagonal = exact[:, self._rows, self._rows]
        exact[:, self._rows, self._rows] = np.where(
            gamma > 0, kappa / np.where(gamma > 0, gamma, 1), diagonal
        )
        return exact


def solved(matrix: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Return the solutions of several linear systems, and NaN where a matrix is singular.
    The rows are scaled before the solution, because they have different units: speeds and energies.
    """
    scale = 1 / np.abs(matrix).max(axis=2, keepdims=True, initial=1e-300)
    return derivatives.solved(scale * matrix, scale * right)


def solved_back(matrix: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Return the solutions (N, n) of N linear systems with the transposes of the matrices."""
    scale = 1 / np.abs(matrix).max(axis=2, keepdims=True, initial=1e-300)
    return scale[..., 0] * np.linalg.solve(np.swapaxes(scale * matrix, 1, 2), right[..., None])[..., 0]


def check_solved(derivatives: np.ndarray, steps: Steps) -> None:
    """Raise `StepError` if derivatives of a step are not finite, and name the step."""
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
    """Return the Hessians of N functions f(s, T s) with respect to s, with constant matrices T.
    The array `H`, (N, ns + nz, ns + nz), has the Hessians of f(s, z) with respect to (s, z).
    """
    ns = T.shape[2]
    mixed = H[:, :ns, ns:] @ T
    return H[:, :ns, :ns] + mixed + np.swapaxes(mixed, 1, 2) + np.swapaxes(T, 1, 2) @ H[:, ns:, ns:] @ T
