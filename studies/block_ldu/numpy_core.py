"""The numbers of a block LDU in numpy: the reference for the compiled core, and what replaces it."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from studies.block_ldu.ldu import BlockLDU


class NumpyCore:
    """Algorithms 3 and 4 of docs/maths/graph_ldu.md, word for word."""

    def __init__(self, ldu: BlockLDU):
        self._s, self._slots, rows = ldu.structure, ldu.slots, ldu.rows
        self._rows = [slice(int(a), int(b)) for a, b in pairwise(rows)]

    def factor(self, values: np.ndarray) -> tuple[Any, int]:
        """Blocks of D^-1, U and L D by node, and 0 or 1 + the place of a node whose pivot is singular."""
        sizes = self._s.sizes
        F = {(i, j): values[at].reshape(sizes[i], sizes[j]) for (i, j), at in self._slots.items()}
        for place, k in enumerate(self._s.order):
            try:
                F[k, k] = np.linalg.inv(F[k, k])
            except np.linalg.LinAlgError:
                return F, place + 1
            if not np.abs(F[k, k]).max() * np.abs(values[self._slots[k, k]]).max() < 1e15:
                return F, place + 1
            for j in self._s.later[k]:
                F[k, j] = F[k, k] @ F[k, j]
            for i in self._s.later[k]:
                for j in self._s.later[k]:
                    F[i, j] -= F[i, k] @ F[k, j]
        return F, 0

    def solve(self, F: Any, b: np.ndarray, transpose: bool) -> np.ndarray:
        x, rows, later = b.copy(), self._rows, self._s.later
        if transpose:
            for k in self._s.order:
                for j in later[k]:
                    x[rows[j]] -= F[k, j].T @ x[rows[k]]
            for k in reversed(self._s.order):
                for i in later[k]:
                    x[rows[k]] -= F[i, k].T @ x[rows[i]]
                x[rows[k]] = F[k, k].T @ x[rows[k]]
            return x
        for k in self._s.order:
            x[rows[k]] = F[k, k] @ x[rows[k]]
            for i in later[k]:
                x[rows[i]] -= F[i, k] @ x[rows[k]]
        for k in reversed(self._s.order):
            for j in later[k]:
                x[rows[k]] -= F[k, j] @ x[rows[j]]
        return x
