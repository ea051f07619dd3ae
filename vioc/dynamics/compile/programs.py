"""What can be done with a CasADi function, whoever runs it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import casadi as ca
import numpy as np

CHUNK = 1024  # steps per piece where pieces are needed


def dense(function: ca.Function) -> ca.Function:
    """The same function with dense outputs (a buffer of a sparse output holds its nonzeros only)."""
    if all(function.sparsity_out(i).is_dense() for i in range(function.n_out())):
        return function
    args = function.mx_in()
    outputs = [ca.densify(o) for o in function.call(args)]
    return ca.Function(function.name(), args, outputs)


class Program(ABC):
    """A function of float64 arrays with dense outputs.

    Attributes
    ----------
    shapes_in, shapes_out : tuples of (rows, columns)

    Notes
    -----
    Arrays go in C-contiguous and come out flat, every matrix column by column, as CasADi keeps them.
    """

    shapes_in: tuple[tuple[int, int], ...]
    shapes_out: tuple[tuple[int, int], ...]

    @property
    def sizes_in(self) -> list[int]:
        return [r * c for r, c in self.shapes_in]

    @property
    def sizes_out(self) -> list[int]:
        return [r * c for r, c in self.shapes_out]

    @abstractmethod
    def __call__(self, args: Sequence[np.ndarray]) -> list[np.ndarray]:
        """One evaluation."""

    @abstractmethod
    def map(self, args: Sequence[np.ndarray], count: int) -> list[np.ndarray]:
        """`count` evaluations; a two-dimensional argument has a row for each, others serve all."""

    @abstractmethod
    def accumulate(
        self,
        carry: np.ndarray,
        rows: Sequence[np.ndarray],
        count: int,
        keep: int,
        tolerance: float,
        first: int = CHUNK,
    ) -> tuple[list[np.ndarray], int, float]:
        """Evaluations whose first output is the first argument of the next one.

        Parameters
        ----------
        carry : (size of the first argument,)
        rows : the other arguments
            Two-dimensional with a row for each evaluation, or one-dimensional for all.
        count : int
        keep : int
            How many entries of each carry are returned.
        tolerance : float
            It stops where the third output, a scalar, is above this or not a number, or where what is
            kept of the carry is not finite.
        first : int
            What a program that must work in pieces, which double, should begin with: small where
            it may well stop soon.

        Returns
        -------
        outputs : list of arrays (done, size)
            Of the carries, the kept part.
        done : int
            Evaluations before it stopped.
        error : float
            The third output where it stopped.
        """
