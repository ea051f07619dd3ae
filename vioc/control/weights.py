"""Weights given as a number, a diagonal, a matrix or by name, checked once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from vioc.checks import by_name, check_array
from vioc.dynamics.integrators.base import OneStepMap
from vioc.errors import ModelError

INPUTS = "u."  # prefix of inputs among a map's quantities; names of inputs are taken with and without


def weight_matrix(
    value: Any, names: Sequence[str], what: str, *, definite: bool = False, prefix: str = ""
) -> np.ndarray:
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
    prefix : str
        May stand before a name in a dict.

    Returns
    -------
    (n, n)

    Raises
    ------
    ModelError
        Unknown name.
    ValueError
        Wrong shape, not finite, not symmetric, not (semi-)definite.
    """
    n = len(names)
    if isinstance(value, Mapping):
        given = by_name(value, names, what, prefix=prefix)
        value = [given.get(name, 0.0) for name in names]
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


def state_weight(f: OneStepMap, value: Any, what: str) -> np.ndarray:
    """A semi-definite weight on a map's error coordinates (ndx, ndx), as `weight_matrix`."""
    names = error_names(f)
    for name in value if isinstance(value, Mapping) else ():
        if name not in names and _is_quantity(f, name):
            raise ModelError(
                f"{what}: {name!r} is no state; weights of regulators and filters are on states "
                f"({', '.join(names)}), velocities and other quantities are for costs, see `quadratic`"
            )
    return weight_matrix(value, names, what)


def input_weight(f: OneStepMap, value: Any, what: str, *, definite: bool = False) -> np.ndarray:
    """A weight on a map's inputs (nu, nu), as `weight_matrix`; names are ``NAME`` or ``u.NAME``."""
    return weight_matrix(value, f.input_names, what, definite=definite, prefix=INPUTS)


def _is_quantity(f: OneStepMap, name: str) -> bool:
    try:
        f.quantity(name)
    except ValueError:
        return False
    return True


def error_names(f: OneStepMap) -> tuple[str, ...]:
    """Names of a map's error coordinates: its states', where they are the same."""
    return f.state_names if f.ndx == f.nx else tuple(f"error {i}" for i in range(f.ndx))
