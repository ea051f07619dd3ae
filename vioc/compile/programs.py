"""Interface of programs, which evaluate, map and iterate CasADi functions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import NamedTuple

import casadi as ca
import numpy as np

CHUNK = 1024  # steps per piece where pieces are needed


def dense(function: ca.Function) -> ca.Function:
    """Return a CasADi function with dense outputs instead of sparse outputs."""
    if all(function.sparsity_out(i).is_dense() for i in range(function.n_out())):
        return function
    args = function.mx_in()
    outputs = [ca.densify(o) for o in function.call(args)]
    return ca.Function(function.name(), args, outputs)


def without_repetition(function: ca.Function) -> ca.Function:
    """Return a CasADi function in which every common subexpression is computed once.

    Results are the same bits. Finding common subexpressions takes as much time as about 1500 evaluations in
    the virtual machine, and saves about a seventh of the operations. Functions of MX are returned unchanged.
    """
    if not function.is_a("SXFunction"):
        return function
    args = function.sx_in()
    return ca.Function(function.name(), args, function.call(args), {"cse": True})


class Bound(NamedTuple):
    """Program with fixed input and output arrays.
    A call evaluates the program on the present values of the inputs and overwrites the outputs.

    Attributes
    ----------
    call : callable
        Evaluates; returns the number of successful evaluations.
    outputs : list of (count, size) arrays
        Overwritten by `call`. Rows from the first failed evaluation on are arbitrary.
    """

    call: Callable[[], int]
    outputs: list[np.ndarray]


class Program(ABC):
    """Base class of programs, which evaluate a function on float64 arrays.

    Attributes
    ----------
    shapes_in, shapes_out : tuples of (rows, columns)

    Notes
    -----
    Arguments are C-contiguous; results are flat, every matrix column by column, as in CasADi.
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
        """Evaluate the function at one point, and return its outputs."""

    @abstractmethod
    def map(self, args: Sequence[np.ndarray], count: int) -> list[np.ndarray]:
        """Evaluate the function for each of `count` rows of its arguments.
        A two-dimensional argument has a row for each evaluation; a one-dimensional argument is the same for
        all.
        """

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
        """Iterate the function by passing its first output to its first argument.
        The value that is passed on is called the carry.

        Parameters
        ----------
        carry : (size of the first argument,)
            Initial value of the first argument.
        rows : the other arguments
            Two-dimensional with a row for each evaluation, or one-dimensional for all.
        count : int
            Number of evaluations.
        keep : int
            Number of returned entries of each carry.
        tolerance : float
            Evaluation stops if the third output, a scalar, is above this or not a number, or if the returned
            part of the carry is not finite.
        first : int
            Number of evaluations in the first piece, for programs that work in pieces of doubling length;
            small if an early stop is likely.

        Returns
        -------
        outputs : list of arrays (done, size)
            Outputs; for the carries, the returned part.
        done : int
            Number of evaluations before the stop.
        error : float
            Third output at the stop.
        """

    def bind_map(self, args: Sequence[np.ndarray], count: int) -> Bound:
        """Return a `Bound` object that evaluates the function for all rows of arrays.
        The arrays `args` are the arguments of the function. Each call of the object reads them again and
        overwrites its output arrays.

        Arguments are any float64 arrays with contiguous rows, including strided or reversed views.
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
        """Return a `Bound` object that iterates the function like `accumulate`.
        Each call of the object reads the argument arrays again and overwrites its output arrays.

        Arguments are arrays as for `bind_map`.
        """
        outputs = [np.empty((count, size)) for size in [keep, *self.sizes_out[1:]]]

        def call() -> int:
            found, done, _ = self.accumulate(carry, _contiguous(rows), count, keep, tolerance)
            for mine, theirs in zip(outputs, found, strict=True):
                mine[:done] = theirs
            return done

        return Bound(call, outputs)


def _contiguous(arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    return [np.ascontiguousarray(a) for a in arrays]
