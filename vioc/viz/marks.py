"""Lines that draw the obstacles and targets of a motion."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from vioc.control.problem.limits import PathConstraint
from vioc.viz.lines import Line

CIRCLE = 48  # points
CROSS = 0.03  # half the length of a target's arms, relative to the scene's extent

Marks = Any  # a Constraint made by `obstacle`, a dict of points by label, or a sequence of these


def mark_lines(marks: Marks, rows: np.ndarray, extent: float) -> list[Line]:
    """Return the lines that draw obstacles and targets.

    Parameters
    ----------
    marks : PathConstraint of `obstacle`, dict of str to (3,), or sequence of these
        A dict has targets in the world, m; a coordinate that is None or nan is free (drawn at 0).
    rows : (T,)
        Samples that are drawn, for obstacles that move.
    extent : float
        Extent of the scene, m.

    Raises
    ------
    TypeError
        For other arguments, such as a constraint that is not an obstacle.
    """
    several = isinstance(marks, Sequence) and not isinstance(marks, str)
    lines: list[Line] = []
    for mark in marks if several else [marks]:
        if isinstance(mark, Mapping):
            for label, point in mark.items():
                lines += _cross(str(label), point, CROSS * extent)
        elif isinstance(mark, PathConstraint) and mark.ball is not None:
            lines += ball_lines(mark.name, *mark.ball, rows)
        else:
            raise TypeError(
                "marks: expected the result of `obstacle`, or points by label {'goal': (x, y, z)}, got "
                f"{mark!r:.100}"
            )
    return lines


def _cross(label: str, point: Any, arm: float) -> list[Line]:
    where = np.array([np.nan if v is None else v for v in np.ravel(np.asarray(point, object))], float)
    if where.shape != (3,) or np.isinf(where).any():
        raise ValueError(f"marks: {label}: expected three coordinates in m, got {point!r}")
    where = np.nan_to_num(where)
    ends = [where + side * arm * (np.ones(3) - 2 * np.eye(3)[i]) for i in range(3) for side in (-1.0, 1.0)]
    return [Line("target", label, np.stack(ends[2 * i : 2 * i + 2])[None], -1) for i in range(3)]


def ball_lines(name: str, centre: np.ndarray, radius: float, axes: str, rows: np.ndarray) -> list[Line]:
    """Return circles that draw an obstacle: one for a disc, three for a ball.

    The centre is (d,) or (N+1, d).
    """
    indices = ["xyz".index(a) for a in axes]
    moving = centre.ndim == 2
    middle = np.zeros((len(rows) if moving else 1, 3))
    middle[:, indices] = centre[np.minimum(rows, len(centre) - 1)] if moving else centre
    planes = [(a, b) for i, a in enumerate(indices) for b in indices[i + 1 :]]
    angle = np.linspace(0, 2 * np.pi, CIRCLE + 1)
    lines = []
    for a, b in planes:
        circle = np.zeros((len(angle), 3))
        circle[:, a], circle[:, b] = radius * np.cos(angle), radius * np.sin(angle)
        lines.append(Line("obstacle", name, middle[:, None] + circle, None if moving else -1))
    return lines
