"""Interval bounds of a CasADi function's values over boxes, rounded outwards.

Maths: docs/maths/robust.md#verified-tubes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import casadi as ca
import numpy as np

UNIT = np.finfo(float).eps
LIBM = 4  # bound on errors of the platform's sine and cosine, in units in the last place


class Interval(NamedTuple):
    """Intervals that contain the entries of an array: low <= value <= high."""

    low: np.ndarray
    high: np.ndarray

    @property
    def ball(self) -> tuple[np.ndarray, np.ndarray]:
        """Midpoints and radii of the intervals; the radii include rounding errors."""
        middle = 0.5 * (self.low + self.high)
        return middle, _up(np.maximum(self.high - middle, middle - self.low))


def enclose(function: ca.Function, *boxes: Interval) -> list[Interval]:
    """Return intervals that contain a function's values over boxes of arguments.

    Parameters
    ----------
    function : casadi.Function
        Function of SX with dense outputs.
    *boxes : Interval of (c, size)
        Box of each input, for c boxes at once.

    Returns
    -------
    list of Interval of (c, rows, columns)
        Infinite for a division by an interval that contains zero, or the square root of a negative interval.

    Raises
    ------
    NotImplementedError
        If an operation has no enclosure here; the message names it.
    """
    count = len(boxes[0].low)
    work: list[Interval] = [Interval(np.zeros(count), np.zeros(count))] * function.sz_w()
    outputs = [np.zeros((2, count, function.numel_out(i))) for i in range(function.n_out())]
    with np.errstate(all="ignore"):
        for i in range(function.n_instructions()):
            kind, into = function.instruction_id(i), function.instruction_output(i)
            if kind == ca.OP_CONST:
                value = np.full(count, function.instruction_constant(i))
                work[into[0]] = Interval(value, value)
                continue
            given = function.instruction_input(i)
            if kind == ca.OP_INPUT:
                box = boxes[given[0]]
                work[into[0]] = Interval(box.low[:, given[1]], box.high[:, given[1]])
            elif kind == ca.OP_OUTPUT:
                outputs[into[0]][:, :, into[1]] = work[given[0]]
            elif kind in _RULES:
                work[into[0]] = _whole(_RULES[kind](*(work[j] for j in given)))
            else:
                name = next(n for n, v in vars(ca).items() if n.startswith("OP_") and v == kind)
                raise NotImplementedError(f"intervals: no enclosure of {name} in {function.name()}")
    enclosures = []
    for i, (low, high) in enumerate(outputs):
        shape = function.size_out(i)
        enclosures.append(
            Interval(*(np.swapaxes(a.reshape(count, shape[1], shape[0]), 1, 2) for a in (low, high)))
        )
    return enclosures


def _whole(a: Interval) -> Interval:
    """Return the interval with NaN ends replaced by infinite ends."""
    return Interval(np.where(np.isnan(a.low), -np.inf, a.low), np.where(np.isnan(a.high), np.inf, a.high))


def _down(a: np.ndarray) -> np.ndarray:
    return np.nextafter(a, -np.inf)


def _up(a: np.ndarray) -> np.ndarray:
    return np.nextafter(a, np.inf)


def _add(a: Interval, b: Interval) -> Interval:
    return Interval(_down(a.low + b.low), _up(a.high + b.high))


def _sub(a: Interval, b: Interval) -> Interval:
    return Interval(_down(a.low - b.high), _up(a.high - b.low))


def _mul(a: Interval, b: Interval) -> Interval:
    products = np.stack([a.low * b.low, a.low * b.high, a.high * b.low, a.high * b.high])
    return Interval(_down(products.min(axis=0)), _up(products.max(axis=0)))


def _inv(a: Interval) -> Interval:
    through = (a.low <= 0) & (a.high >= 0)
    low, high = _down(1 / a.high), _up(1 / a.low)
    return Interval(np.where(through, -np.inf, low), np.where(through, np.inf, high))


def _div(a: Interval, b: Interval) -> Interval:
    through = (b.low <= 0) & (b.high >= 0)
    quotients = np.stack([a.low / b.low, a.low / b.high, a.high / b.low, a.high / b.high])
    low, high = _down(quotients.min(axis=0)), _up(quotients.max(axis=0))
    return Interval(np.where(through, -np.inf, low), np.where(through, np.inf, high))


def _sq(a: Interval) -> Interval:
    squares = np.stack([a.low * a.low, a.high * a.high])
    low = np.where((a.low <= 0) & (a.high >= 0), 0.0, np.maximum(_down(squares.min(axis=0)), 0.0))
    return Interval(low, _up(squares.max(axis=0)))


def _sqrt(a: Interval) -> Interval:
    return Interval(np.maximum(_down(np.sqrt(a.low)), 0.0), _up(np.sqrt(a.high)))


def _fabs(a: Interval) -> Interval:
    ends = np.abs(np.stack(a))
    through = (a.low <= 0) & (a.high >= 0)
    return Interval(np.where(through, 0.0, ends.min(axis=0)), ends.max(axis=0))


def _wave(function: Callable, peak: float) -> Callable[[Interval], Interval]:
    """Return a function that encloses the values of a sine or cosine over an interval.
    The sine or cosine is 1 at `peak` plus whole turns, and -1 half a turn later.
    """

    def rule(a: Interval) -> Interval:
        ends = np.stack([function(a.low), function(a.high)])
        slack = LIBM * UNIT
        low, high = ends.min(axis=0) - slack, ends.max(axis=0) + slack
        # test if the interval contains a peak, with a margin
        margin = 1e-9 * (1 + np.abs(a.low) + np.abs(a.high))
        turn = 2 * np.pi

        def holds(angle: float) -> np.ndarray:
            return np.floor((a.high + margin - angle) / turn) >= np.ceil((a.low - margin - angle) / turn)

        high = np.where(holds(peak), 1.0, np.minimum(high, 1.0))
        low = np.where(holds(peak + np.pi), -1.0, np.maximum(low, -1.0))
        return Interval(low, high)

    return rule


_RULES: dict[int, Callable[..., Interval]] = {
    ca.OP_ASSIGN: lambda a: a,
    ca.OP_ADD: _add,
    ca.OP_SUB: _sub,
    ca.OP_MUL: _mul,
    ca.OP_DIV: _div,
    ca.OP_INV: _inv,
    ca.OP_NEG: lambda a: Interval(-a.high, -a.low),
    ca.OP_TWICE: lambda a: Interval(2 * a.low, 2 * a.high),
    ca.OP_SQ: _sq,
    ca.OP_SQRT: _sqrt,
    ca.OP_FABS: _fabs,
    ca.OP_SIN: _wave(np.sin, np.pi / 2),
    ca.OP_COS: _wave(np.cos, 0.0),
}
