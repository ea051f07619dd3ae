"""What can be done with a CasADi function, whoever runs it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import NamedTuple

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


class Bound(NamedTuple):
    """A program with arrays of its own: a call reads and writes them where they lie.

    Attributes
    ----------
    call : callable
        Evaluates; returns how many evaluations went well.
    outputs : list of (count, size) arrays
        Written by `call`. Rows from where it stopped on are arbitrary.
    """

    call: Callable[[], int]
    outputs: list[np.ndarray]


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

    def bind_map(self, args: Sequence[np.ndarray], count: int) -> Bound:
        """`map` with arguments that are read anew at each call.

        Any float64 arrays whose rows are contiguous will do, also views in steps or in reversed order.
        """
        outputs = [np.empty((count, size)) for size in self.sizes_out]

        def call() -> int:
            for mine, theirs in zip(outputs, self.map(_contiguous(args), count), strict=True):
                mine[:] = theirs.reshape(mine.shape)
            return count

        return Bound(call, outputs)

    def bind_accumulate(
        self, carry: np.ndarray, rows: Sequence[np.ndarray], count: int, keep: int, tolerance: float
    ) -> Bound:
        """`accumulate` with arguments that are read anew at each call; see `bind_map`."""
        outputs = [np.empty((count, size)) for size in [keep, *self.sizes_out[1:]]]

        def call() -> int:
            found, done, _ = self.accumulate(carry, _contiguous(rows), count, keep, tolerance)
            for mine, theirs in zip(outputs, found, strict=True):
                mine[:done] = theirs
            return done

        return Bound(call, outputs)


def _contiguous(arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    return [np.ascontiguousarray(a) for a in arrays]
