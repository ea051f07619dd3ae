"""Catenaries: the curves of inextensible cables that hang under their weight."""

from __future__ import annotations

from typing import Any

import numpy as np

from vioc.checks import check_array
from vioc.errors import ModelError


def catenary(start: Any, end: Any, length: float, segments: int, *, up: Any = (0.0, 0.0, 1.0)) -> np.ndarray:
    """Return points at equal arc lengths on a catenary, an inextensible hanging cable.

    Parameters
    ----------
    start, end : (3,)
        Ends of the cable, m; they must not be above one another.
    length : float
        Length of the cable, m; more than the distance of the ends.
    segments : int
        Number of segments; there is one more point.
    up : (3,)

    Returns
    -------
    (segments + 1, 3)

    Raises
    ------
    ModelError
        If the cable is too short or its ends are above one another.

    Notes
    -----
    y = a cosh(x / a) with sqrt(L^2 - v^2) = 2 a sinh(h / (2 a)), h and v the ends' horizontal and vertical
    distances; s = a sinh(x / a) is the arc length from the lowest point.
    """
    from scipy.optimize import brentq  # here, as its import takes as long as vioc's

    a, b = check_array(start, (3,), "start"), check_array(end, (3,), "end")
    vertical = check_array(up, (3,), "up")
    vertical = vertical / np.linalg.norm(vertical)
    v = float((b - a) @ vertical)
    across = b - a - v * vertical
    h = float(np.linalg.norm(across))
    if not length > np.hypot(h, v) * (1 + 1e-12):
        raise ModelError(f"catenary: expected a length of more than {np.hypot(h, v):g} m, got {length:g}")
    if h < 1e-9 * length:
        raise ModelError(
            "catenary: the ends are above one another: the cable hangs in a line, give it as points"
        )
    ratio = np.sqrt(length**2 - v**2) / h
    half = brentq(lambda x: np.sinh(x) / x - ratio, 1e-9, 4 + 2 * np.log(ratio + 1), xtol=1e-15, rtol=1e-15)
    size = h / (2 * half)
    middle = np.arctanh(v / length)  # mean x / a of the ends: v = 2 a sinh(middle) sinh(half)
    s = size * np.sinh(middle - half) + np.linspace(0.0, length, segments + 1)
    x = size * np.arcsinh(s / size)
    y = np.sqrt(size**2 + s**2)
    return a + np.outer(x - x[0], across / h) + np.outer(y - y[0], vertical)
