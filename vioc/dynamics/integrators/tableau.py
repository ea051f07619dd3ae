"""Coefficients of Runge-Kutta methods for accelerations q'' = a(q, v, t)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from vioc.errors import ModelError


@dataclass(frozen=True)
class Tableau:
    """Coefficients of a Runge-Kutta method whose stages are solved in sequence.

        a_i = a(Q_i, V_i, t + c_i h)
        Q_i = q + c_i h v + h^2 sum_j Aq_ij a_j        q+ = q + h v + h^2 sum_j bq_j a_j
        V_i = v + h sum_j A_ij a_j                     v+ = v + h sum_j b_j a_j

    A Runge-Kutta method on (q, v) is Aq = A A, bq = b A; other choices are Nystroem methods.

    Parameters
    ----------
    A : s x s numbers
        Zero above the diagonal; a nonzero value on the diagonal makes the stage implicit.
    b : s numbers
        Weights of sum 1.
    Aq, bq : optional
        By default A A and b A.

    Raises
    ------
    ModelError
        If a shape is wrong, a stage depends on a later one, or the weights do not sum to 1.
    """

    A: Sequence[Sequence[float]]
    b: Sequence[float]
    Aq: Sequence[Sequence[float]] = ()
    bq: Sequence[float] = ()

    def __post_init__(self) -> None:
        A, b = _numbers(self.A, "A"), _numbers(self.b, "b")
        s = b.size
        if b.shape != (s,) or A.shape != (s, s):
            raise ModelError(f"tableau: expected A (s, s) and b (s,), got {A.shape} and {b.shape}")
        Aq = _numbers(self.Aq, "Aq") if len(self.Aq) else A @ A
        bq = _numbers(self.bq, "bq") if len(self.bq) else b @ A
        if Aq.shape != (s, s) or bq.shape != (s,):
            raise ModelError(f"tableau: expected Aq ({s}, {s}) and bq ({s},), got {Aq.shape} and {bq.shape}")
        for name, matrix in (("A", A), ("Aq", Aq)):
            late = np.argwhere(np.triu(matrix, 1))
            if len(late):
                i, j = late[0]
                raise ModelError(
                    f"tableau: stage {i} depends on the later stage {j} ({name}[{i}, {j}] = "
                    f"{matrix[i, j]:g}); only methods whose stages follow one another are supported"
                )
        if abs(b.sum() - 1) > 1e-12:
            raise ModelError(f"tableau: expected weights b that sum to 1, got {b.sum():.15g}")
        for name, value in (("A", A), ("b", b), ("Aq", Aq), ("bq", bq)):
            object.__setattr__(self, name, _tuples(value))

    @cached_property
    def c(self) -> tuple[float, ...]:
        """Times of the stages as fractions of the step: the row sums of the matrix A."""
        return tuple(sum(row) for row in self.A)

    @property
    def stages(self) -> int:
        return len(self.b)

    def implicit(self, i: int) -> bool:
        """Return whether stage i is implicit: its equations contain its own acceleration."""
        return bool(self.A[i][i] or self.Aq[i][i])


def _numbers(value: Any, what: str) -> np.ndarray:
    try:
        array = np.asarray(value, float)
    except (TypeError, ValueError):
        raise ModelError(f"tableau: {what}: expected numbers, got {value!r}") from None
    if array.size == 0 or not np.isfinite(array).all():
        raise ModelError(f"tableau: {what}: expected finite numbers, got {value!r}")
    return array


def _tuples(a: np.ndarray) -> tuple:
    return tuple(map(_tuples, a)) if a.ndim > 1 else tuple(map(float, a))


METHODS = {
    "euler": Tableau([[0]], [1]),
    # v+ = v + h a(q, v), q+ = q + h v+
    "semi-implicit-euler": Tableau([[0]], [1], [[0]], [1]),
    "heun": Tableau([[0, 0], [1, 0]], [1 / 2, 1 / 2]),
    "rk4": Tableau(
        [[0, 0, 0, 0], [1 / 2, 0, 0, 0], [0, 1 / 2, 0, 0], [0, 0, 1, 0]],
        [1 / 6, 1 / 3, 1 / 3, 1 / 6],
    ),
    "implicit-midpoint": Tableau([[1 / 2]], [1]),
}
