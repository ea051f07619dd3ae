"""Weights given as a number, a diagonal, a matrix or by name, checked once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from vioc.checks import check_array, near_misses
from vioc.dynamics.integrators.base import OneStepMap


def weight_matrix(value: Any, names: Sequence[str], what: str, *, definite: bool = False) -> np.ndarray:
    """A symmetric weight on the quantities `names`.

    Parameters
    ----------
    value : float, (n,), (n, n) or dict of str to float
        The same weight for all, a diagonal, a matrix, or a diagonal by name (zero where not named).
    names : sequence of n str
    what : str
        What messages call it: ``"Q"``, ``"R"``.
    definite : bool
        Demand positive definite, else positive semi-definite.

    Returns
    -------
    (n, n)

    Raises
    ------
    ValueError
        Wrong shape, unknown name, not finite, not symmetric, not (semi-)definite.
    """
    n = len(names)
    if isinstance(value, Mapping):
        unknown = [name for name in value if name not in names]
        if unknown:
            raise ValueError(f"{what}: unknown name {unknown[0]!r}; {near_misses(unknown[0], names)}")
        value = [value.get(name, 0.0) for name in names]
    if np.ndim(value) == 0:
        value = np.full(n, value)
    if np.ndim(value) == 1:
        matrix = np.diag(check_array(value, (n,), what, names))
    else:
        matrix = check_array(value, (n, n), what, names)
    size = np.abs(matrix)
    if (np.abs(matrix - matrix.T) > 1e-9 * size.T + 1e-12 * size.max(initial=0.0)).any():
        i, j = divmod(int(np.argmax(np.abs(matrix - matrix.T))), n)
        raise ValueError(
            f"{what}: expected a symmetric matrix, got {matrix[i, j]:g} at ({names[i]}, {names[j]}) "
            f"and {matrix[j, i]:g} at ({names[j]}, {names[i]})"
        )
    matrix = 0.5 * (matrix + matrix.T)
    if n:
        _check_definite(matrix, names, what, definite)
    return matrix


def _check_definite(matrix: np.ndarray, names: Sequence[str], what: str, definite: bool) -> None:
    values, vectors = np.linalg.eigh(matrix)
    rounding = 1e-12 * np.abs(values).max()
    if values[0] < -rounding or (definite and values[0] <= rounding):
        at = names[int(np.argmax(np.abs(vectors[:, 0])))]
        kind = "definite" if definite else "semi-definite"
        raise ValueError(
            f"{what}: expected a positive {kind} weight, got eigenvalue {values[0]:g} along {at!r}"
        )


def error_names(f: OneStepMap) -> tuple[str, ...]:
    """Names of a map's error coordinates: its states', where they are the same."""
    return f.state_names if f.ndx == f.nx else tuple(f"error {i}" for i in range(f.ndx))
