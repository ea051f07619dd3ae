"""Ellipses that picture a Gramian in the plane of two state variables.

Maths: docs/pictures.md#what-is-drawn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.linalg import null_space

from vioc.names import meaning

if TYPE_CHECKING:
    from vioc.control.analysis.structure import Structure

SEEN = 1e-8  # component of an unobservable direction in the plane that counts as rounding


def semi_axes(structure: Structure, first: str, second: str, section: bool = False) -> np.ndarray:
    """Return the semi-axes of an ellipse in the plane of two state deviations.
    For controllability, the ellipse contains the deviations that inputs of energy <= 1 can produce. For
    observability, it contains the initial deviations whose outputs have an energy <= 1.

    The semi-axes are the columns of a (2, 2) array. With `section`, all other deviations are 0.

    Raises
    ------
    ModelError
        If a name is unknown.
    ValueError
        If the two names are the same, or the ellipse is unbounded because an unobservable direction changes
        one of the two states.
    """
    s = structure
    first, second = (meaning(name, s.names, "ellipse") for name in (first, second))
    if first == second:
        raise ValueError(f"ellipse: expected two different errors, got {first!r} twice")
    pair = [s.names.index(first), s.names.index(second)]
    if s.what == "controllable":
        M = s.basis @ s.factor  # states reached by inputs of unit energy are M w with |w| <= 1
    else:
        M = sight_factor(s.basis, s.factor, s.subspace.basis)
        norms = np.linalg.norm((s.basis @ s.subspace.complement)[pair], axis=1)
        if (norms > SEEN).any():
            name = (first, second)[int(np.argmax(norms))]
            raise ValueError(f"ellipse: not bounded, a part of {name!r} never shows; see combinations()")
    return intersect(M, pair) if section else project(M, pair)


def sight_factor(basis: np.ndarray, factor: np.ndarray, seen: np.ndarray) -> np.ndarray:
    """Return a square-root factor M of the inverse of an observability Gramian.
    M M' is this inverse in the observable directions, and 0 in all other directions.

    M is (ndx, rank), and M M' is the covariance of the estimation error. The observable errors M w with |w|
    <= 1 have at most unit output energy; unobservable errors may be added to them.

    Parameters
    ----------
    basis : (ndx, r)
    factor : (r, c)
        Square-root factor of the Gramian.
    seen : (r, rank)
        Orthonormal basis of the observable directions.
    """
    return basis @ seen @ np.linalg.pinv(seen.T @ factor, rcond=1e-15).T


def project(M: np.ndarray, pair: list[int]) -> np.ndarray:
    """Return semi-axes of the projection of {M w: |w| <= 1} to two coordinates.
    They are the columns of a (2, 2) array; `pair` are the indices of the coordinates.
    """
    return _axes(M[pair])


def intersect(M: np.ndarray, pair: list[int]) -> np.ndarray:
    """Return the semi-axes of the section of {M w: |w| <= 1} with a coordinate plane.
    They are the columns of a (2, 2) array. `pair` are the indices of the two coordinates of the plane, in
    which all other coordinates are 0.
    """
    rest = np.delete(M, pair, axis=0)
    if not len(rest):
        return _axes(M)
    size = np.linalg.norm(rest, axis=1, keepdims=True)
    free = null_space(np.divide(rest, size, out=np.zeros_like(rest), where=size > 0))
    return _axes(M[pair] @ free)


def _axes(rows: np.ndarray) -> np.ndarray:
    U, singular, _ = np.linalg.svd(rows, full_matrices=False)
    axes = np.zeros((2, 2))
    axes[:, : len(singular)] = U * singular
    return axes


def boundary(axes: np.ndarray, points: int) -> np.ndarray:
    """Return points (points, 2) on the boundary of the ellipse with given semi-axes."""
    angle = np.linspace(0, 2 * np.pi, points)
    return np.stack([np.cos(angle), np.sin(angle)], axis=1) @ axes.T
