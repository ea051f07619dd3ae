"""Coefficients of symmetric compositions of integrators, and the order that they reach.

Sources: docs/maths/composition.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from vioc.checks import near_misses
from vioc.errors import ModelError


def _palindrome(*half: float) -> tuple[float, ...]:
    """Return symmetric coefficients with sum 1 that begin with the values of `half`."""
    return (*half, 1 - 2 * sum(half), *half[::-1])


def _suzuki(outer: int) -> tuple[float, ...]:
    """Return the coefficients of Suzuki's composition of order 4.
    It has `outer` equal stages before and after the middle stage.
    """
    return _palindrome(*[1 / (2 * outer - (2 * outer) ** (1 / 3))] * outer)


METHODS: dict[str, tuple[float, ...]] = {
    "yoshida-4": _suzuki(1),
    "suzuki-4": _suzuki(2),
    "suzuki-4-7": _suzuki(3),
    "mclachlan-4": _palindrome(0.28, 0.62546642846767004501),
    "yoshida-6": _palindrome(0.78451361047755726382, 0.23557321335935813368, -1.17767998417887100695),
    "kahan-li-6": _palindrome(
        0.39216144400731413928, 0.33259913678935943860, -0.70624617255763935981, 0.082213596293550800230
    ),
    "sofroniou-spaletta-6": _palindrome(
        0.21375583945878254555,
        0.18329381407425713911,
        0.17692819473098943795,
        -0.44329082681170215850,
        0.11728560432865935385,
    ),
}
DEFAULTS = {4: "suzuki-4-7", 6: "sofroniou-spaletta-6"}


def order_of(coefficients: Sequence[float]) -> int:
    """Return the order of a composition with the given coefficients.
    The composition consists of steps of a symmetric map of order 2. The result is 2, 4 or 6; 6 means at least
    6.

    Parameters
    ----------
    coefficients : (s,)
        Lengths of the stages as fractions of the step; they sum to 1 and are symmetric about the middle.

    Notes
    -----
    It tests the conditions of docs/maths/composition.md to rounding.
    """
    g = np.asarray(coefficients, float)
    starts = np.cumsum(g) - g
    powers = np.sum(g**3), np.sum(g**5), np.sum(g**3 * (starts**2 + starts * g + g**2 / 3))
    if abs(powers[0]) > 1e-13:
        return 2
    return 6 if max(abs(powers[1]), abs(powers[2])) <= 1e-13 else 4


def coefficients_of(method: Any) -> tuple[str | tuple[float, ...], tuple[float, ...]]:
    """Return a label of a composition method, and the coefficients of the method.
    The label is the method's name, or the tuple of its coefficients if it has no name.

    Parameters
    ----------
    method : int, str or sequence of float
        The argument of `Composition`.

    Raises
    ------
    ModelError
        If it is none of these, or the coefficients do not sum to 1 or are not symmetric.
    """
    if isinstance(method, int) and method in DEFAULTS:
        method = DEFAULTS[method]
    if isinstance(method, str):
        if method not in METHODS:
            raise ModelError(f"unknown method {method!r}; {near_misses(method, METHODS)}")
        return method, METHODS[method]
    try:
        g = np.array(method, float)
    except (TypeError, ValueError):
        g = np.zeros(0)
    if g.ndim != 1 or not len(g) or not np.isfinite(g).all():
        orders = ", ".join(map(str, DEFAULTS))
        raise ModelError(
            f"method: expected an order ({orders}), one of {', '.join(METHODS)}, or coefficients; "
            f"got {method!r}"
        )
    if abs(g.sum() - 1) > 1e-12 or np.abs(g - g[::-1]).max() > 1e-12 or not g.all():
        raise ModelError(
            "method: expected coefficients that sum to 1, read alike in both directions and are not zero; "
            f"got {g.tolist()}, which sum to {g.sum():.15g}"
        )
    return tuple(g.tolist()), tuple(g.tolist())
