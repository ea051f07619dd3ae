"""Ellipsoids of Gramians in the plane of two errors. Maths: docs/pictures.md#what-is-drawn."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.linalg import null_space

from vioc.names import meaning

if TYPE_CHECKING:
    from vioc.control.analysis.structure import Structure

SEEN = 1e-8  # what of a direction that never shows may lie in the plane: rounding


def semi_axes(structure: Structure, first: str, second: str, section: bool = False) -> np.ndarray:
    """Semi-axes (2, 2), as columns, of a report's ellipsoid in the plane of two errors.

    Raises
    ------
    ModelError
        If a name is unknown.
    ValueError
        If the two are the same, or the ellipse is not bounded since a part of them never shows.
    """
    s = structure
    first, second = (meaning(name, s.names, "ellipse") for name in (first, second))
    if first == second:
        raise ValueError(f"ellipse: expected two different errors, got {first!r} twice")
    pair = [s.names.index(first), s.names.index(second)]
    if s.what == "controllable":
        M = s.basis @ s.factor  # states that inputs of unit energy reach are M w with |w| <= 1
    else:
        M = sight_factor(s.basis, s.factor, s.subspace.basis)
        lost = np.linalg.norm((s.basis @ s.subspace.complement)[pair], axis=1)
        if (lost > SEEN).any():
            name = (first, second)[int(np.argmax(lost))]
            raise ValueError(f"ellipse: not bounded, a part of {name!r} never shows; see combinations()")
    return intersect(M, pair) if section else project(M, pair)


def sight_factor(basis: np.ndarray, factor: np.ndarray, seen: np.ndarray) -> np.ndarray:
    """M (ndx, rank): the errors that show with at most unit output energy are M w, |w| <= 1.

    Up to those that never show; M M' is the covariance of the best estimate.

    Parameters
    ----------
    basis : (ndx, r)
    factor : (r, c)
        The Gramian's.
    seen : (r, rank)
        Orthonormal basis of the directions that show.
    """
    return basis @ seen @ np.linalg.pinv(seen.T @ factor, rcond=1e-15).T


def project(M: np.ndarray, pair: list[int]) -> np.ndarray:
    """Semi-axes (2, 2), as columns, of {M w: |w| <= 1} seen along all but two coordinates."""
    return _axes(M[pair])


def intersect(M: np.ndarray, pair: list[int]) -> np.ndarray:
    """Semi-axes (2, 2), as columns, of {M w: |w| <= 1} where all but two coordinates are 0."""
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
    """Points (points, 2) of the ellipse with these semi-axes."""
    angle = np.linspace(0, 2 * np.pi, points)
    return np.stack([np.cos(angle), np.sin(angle)], axis=1) @ axes.T
