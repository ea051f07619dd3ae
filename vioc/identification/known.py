"""Checks that forces of known magnitude act on a mechanism.

Without such forces, measured motions determine only ratios of parameters. `base_parameters` uses the checks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.sparse.csgraph import connected_components


def check_forces(W: np.ndarray, y: np.ndarray, rows: Sequence[str], rank: float) -> None:
    """Raise ValueError if no known force acts on a group of coupled coordinates.
    Generalized coordinates are coupled if their equations of motion share a parameter. The matrix W
    multiplies the parameters in these equations, and y has the known forces.

    `rows` are the names of the coordinates' variables.
    """
    sizes = np.linalg.norm(W, axis=0)
    touched = sizes > rank * sizes.max(axis=0, initial=0.0)
    count, block = connected_components((touched @ touched.T).astype(float))
    for mine in (block == b for b in range(count)):
        if touched[mine].any() and not y[:, mine].any():
            names = ", ".join(n for n, its in zip(rows, mine, strict=True) if its)
            raise ValueError(
                f"base_parameters: expected a force of known size on {names}, got none, and nothing couples "
                "it to others, so that only ratios are determined; leave a gain out of linear="
            )


def by_own_gain(regressor: Any, parts: Sequence[Any], y: np.ndarray, rows: Sequence[str]) -> tuple[str, ...]:
    """Return the variables on which only inputs with unknown gains act.
    No force of known magnitude acts on these variables.
    """
    driven = np.zeros(len(rows), bool)
    for m in parts:
        Y, idle = (regressor(m.q, m.v, m.a, u, m.t)[0] for u in (m.u, 0 * m.u))
        driven |= (idle != Y).any(axis=(0, 2))[: len(rows)]
    alone = driven & ~y.any(axis=0)
    return tuple(n for n, its in zip(rows, alone.tolist(), strict=True) if its)
