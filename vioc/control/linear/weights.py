"""Checks of the weights of quadratic costs.
Weights are given as a number, a diagonal, a matrix, or a dict by name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import casadi as ca
import numpy as np

from vioc.checks import as_floats, check_array
from vioc.compile.evaluate import Evaluator
from vioc.control.linear.tangent import error_jacobian
from vioc.errors import ModelError
from vioc.maps.protocol import OneStepMap
from vioc.names import INPUTS, by_quantity, in_order, quantity_name


def weight_matrix(
    value: Any, names: Sequence[str], what: str, *, definite: bool = False, prefix: str = ""
) -> np.ndarray:
    """Return a symmetric weight matrix for named quantities, after checks.

    Parameters
    ----------
    value : float, (n,), (n, n) or dict of str to float
        The same weight for all, a diagonal, a matrix, or a diagonal by name (zero where not named).
    names : sequence of n str
    what : str
        Name of the weight in messages: ``"Q"``, ``"R"``.
    definite : bool
        True to require a positive definite matrix, False for a positive semi-definite one.
    prefix : str
        Optional prefix of names in a dict.

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
    value = as_floats(in_order(value, names, what, prefix=prefix), what)
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
    if definite:  # scaled to a unit diagonal: variances of quantities may differ by a factor of 1e-12
        size = np.sqrt(np.abs(np.diag(matrix)))
        size[size == 0] = np.sqrt(np.abs(matrix).max()) or 1.0
    else:  # small elements may be rounding of the others
        size = np.ones(len(matrix))
    values, vectors = np.linalg.eigh(matrix / np.outer(size, size))
    rounding = 1e-12 * np.abs(values).max()
    if values[0] < -rounding or (definite and values[0] <= rounding):
        name = names[int(np.argmax(np.abs(vectors[:, 0])))]
        kind, least = "definite" if definite else "semi-definite", np.linalg.eigvalsh(matrix)[0]
        raise ValueError(
            f"{what}: expected a positive {kind} weight, got eigenvalue {least:g} along {name!r}"
        )


def state_weight(f: OneStepMap, value: Any, what: str) -> np.ndarray:
    """Return a positive semi-definite weight (ndx, ndx) on changes of the state.
    The argument `value` is a number, a diagonal, a matrix, or a dict of weights by name.
    """
    names = f.space.error_names
    if isinstance(value, Mapping):
        value = by_quantity(f, value, what, names)
    for name in value if isinstance(value, Mapping) else ():
        if name not in names:
            raise ModelError(
                f"{what}: {name!r} is no entry of the state's error, which this is about "
                f"({', '.join(names)}); weights of regulators and costs take any quantity"
            )
    return weight_matrix(value, names, what)


def error_weights(f: OneStepMap, value: Any, what: str, X: np.ndarray) -> np.ndarray:
    """Return positive semi-definite weight matrices on changes of the states X.
    The argument `value` is a number, a diagonal, a matrix, or a dict of weights of named quantities.

    X (N, nx) are the states about which the errors are taken.

    Returns
    -------
    (ndx, ndx), as `state_weight`; or (N, ndx, ndx), J'WJ with `named_jacobians` J, if a dict names
    a quantity that is not an error.

    Raises
    ------
    ModelError
        Unknown name.
    ValueError
        As `weight_matrix`; a quantity that belongs to a step.
    """
    if isinstance(value, Mapping):
        value = by_quantity(f, value, what, f.space.error_names)
    if not isinstance(value, Mapping) or set(value) <= set(f.space.error_names):
        return state_weight(f, value, what)
    J = named_jacobians(f, tuple(value), X, what, "penalize quantities of the state")
    return np.swapaxes(J, 1, 2) @ weight_matrix(value, tuple(value), what) @ J


def named_jacobians(
    f: OneStepMap, names: Sequence[str], X: np.ndarray, what: str, instead: str
) -> np.ndarray:
    """Return Jacobians of named quantities with respect to the state, at states X.

    The states X are (N, nx); the derivatives are (N, p, ndx).

    Parameters
    ----------
    names : sequence of p str
        Names among `error_names`, or quantities of the state.
    what, instead : str
        The argument's name in messages, and advice for a quantity that belongs to a step.

    Raises
    ------
    ModelError
        Unknown name.
    ValueError
        A quantity that depends on the input, the multipliers or the step.
    """
    errors, s, rows = f.space.error_names, f.symbols, []
    names = [quantity_name(f, name, what, errors) for name in names]
    J = np.zeros((len(X), len(names), f.ndx))
    for i, name in enumerate(names):
        if name in errors:
            J[:, i, errors.index(name)] = 1.0
        else:
            rows.append(i)
    if not rows:
        return J
    y = ca.vertcat(*(f.quantity(names[i]) for i in rows))
    for i, entry in zip(rows, ca.vertsplit(y), strict=True):
        if ca.depends_on(entry, ca.vertcat(s.u, s.multipliers, s.dt)):
            raise ValueError(f"{what}: {names[i]!r} belongs to a step, not to a state; {instead}")
    function = ca.Function("J", [s.x, s.parameters], [ca.densify(error_jacobian(f, y))])
    theta = f.theta
    J[:, rows] = Evaluator(function)(np.ascontiguousarray(X), theta)[0]
    return J


def input_weight(f: OneStepMap, value: Any, what: str, *, definite: bool = False) -> np.ndarray:
    """Return a weight matrix (nu, nu) on the inputs, after checks.

    Names are ``NAME`` or ``u.NAME``; other arguments are those of `weight_matrix`.
    """
    return weight_matrix(value, f.input_names, what, definite=definite, prefix=INPUTS)


def absolute(H: np.ndarray, sizes: np.ndarray | None = None) -> np.ndarray:
    """Return symmetric matrices with eigenvalues replaced by their absolute values.

    H has the shape (..., n, n). The eigenvalues are those in units of the variables' typical sizes (n,), by
    default 1. With sizes, the result in other units is the same matrix.
    """
    units = np.ones(H.shape[-1]) if sizes is None else sizes
    values, vectors = np.linalg.eigh(H * np.outer(units, units))
    vectors = vectors / units[:, None]
    return (vectors * np.abs(values)[..., None, :]) @ np.swapaxes(vectors, -1, -2)
