"""`BlockLDU`: factorize and solve on the pattern of a graph, in compiled C or in numpy."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from studies.block_ldu.numpy_core import NumpyCore
from studies.block_ldu.structure import analyse
from vioc.checks import near_misses
from vioc.compile import find_compiler, load_library
from vioc.errors import ModelError

BACKENDS = ("auto", "compiled", "numpy")


class BlockLDU:
    """Direct solver for block matrices with the pattern of a graph ([M] Algorithms 1-4).

    Parameters
    ----------
    sizes : int or sequence of int
        Rows of each node's blocks; one number is for all nodes that `edges` name.
    edges : iterable of (int, int)
        Pairs of nodes whose blocks F_ij, F_ji need not be zero, once in either direction.
    order : {"auto", "depth-first", "minimum-degree"} or sequence of int
        Nodes, first eliminated first. ``"depth-first"`` is [M]'s, without fill-in on trees;
        ``"minimum-degree"`` is better on dense graphs; ``"auto"`` takes the cheaper of the two.
    root : int
        Where the depth-first search starts; that node is eliminated last.
    backend : {"auto", "compiled", "numpy"}
        ``"auto"`` takes the compiled core where there is a compiler.

    Attributes
    ----------
    structure : Structure
    slots : dict of (int, int) to slice
        Where each block lies in the array of values, by rows; with the fill-in.
    nnz : int
        Length of that array.

    Raises
    ------
    ModelError
        For sizes, edges, an order or a root that make no sense.
    CompileError
        If ``"compiled"`` is asked for where there is no compiler.

    Examples
    --------
    >>> import numpy as np
    >>> ldu = BlockLDU(2, [(0, 1), (1, 2)])
    >>> F = 4 * np.eye(6) + np.kron(np.eye(3, k=1) + np.eye(3, k=-1), np.ones((2, 2)))
    >>> x = ldu.factorize(F).solve(np.ones(6))
    >>> bool(np.allclose(F @ x, 1))
    True
    """

    def __init__(
        self,
        sizes: int | Sequence[int],
        edges: Iterable[tuple[int, int]],
        order: str | Sequence[int] = "auto",
        *,
        root: int = 0,
        backend: str = "auto",
    ):
        if backend not in BACKENDS:
            raise ModelError(f"backend: unknown {backend!r}; {near_misses(str(backend), BACKENDS)}")
        self.structure = analyse(sizes, edges, order, root)
        s = self.structure
        self.rows = np.concatenate([[0], np.cumsum(s.sizes)])
        self.slots: dict[tuple[int, int], slice] = {}
        self.nnz = 0
        given = [(i, i) for i in range(len(s.sizes))]
        given += [e for i, j in sorted(s.edges) for e in ((i, j), (j, i))]
        filled = [e for i, later in enumerate(s.later) for j in later for e in ((i, j), (j, i))]
        for i, j in (*given, *filled):
            if (i, j) not in self.slots:
                end = self.nnz + s.sizes[i] * s.sizes[j]
                self.slots[i, j] = slice(self.nnz, end)
                self.nnz = end
        self.given = frozenset(given)
        compiled = backend == "compiled" or (backend == "auto" and find_compiler() is not None)
        self.backend = "compiled" if compiled else "numpy"
        self.core: Any = _Compiled(self) if compiled else NumpyCore(self)

    def __repr__(self) -> str:
        return f"BlockLDU({self.structure!r}, {self.backend})"

    def pack(self, matrix: Any) -> np.ndarray:
        """The array of values (nnz,) of a matrix.

        Parameters
        ----------
        matrix : dict of (int, int) to arrays, or (N, N) array or scipy sparse matrix
            Blocks that are missing are zero.

        Raises
        ------
        ValueError
            If a block has the wrong shape, is not finite, or lies where the graph has no edge.
        """
        values = np.zeros(self.nnz)
        if isinstance(matrix, Mapping):
            for (i, j), block in matrix.items():
                self._put(values, i, j, block)
        else:
            self._pack_matrix(values, matrix)
        return values

    def _put(self, values: np.ndarray, i: int, j: int, block: Any) -> None:
        if (i, j) not in self.given:
            raise ValueError(f"block {(i, j)}: the graph has no edge between these nodes")
        sizes = self.structure.sizes
        block = np.asarray(block, float)
        if block.shape != (sizes[i], sizes[j]):
            raise ValueError(f"block {(i, j)}: expected shape {(sizes[i], sizes[j])}, got {block.shape}")
        if not np.isfinite(block).all():
            raise ValueError(f"block {(i, j)}: expected finite numbers")
        values[self.slots[i, j]] = block.ravel()

    def _pack_matrix(self, values: np.ndarray, matrix: Any) -> None:
        n = int(self.rows[-1])
        if np.shape(matrix) != (n, n):
            raise ValueError(f"matrix: expected shape {(n, n)}, got {np.shape(matrix)}")
        sparse = matrix.tocsr() if hasattr(matrix, "tocsr") else np.asarray(matrix, float)
        outside = sparse.copy()
        for i, j in self.given:
            rows, columns = (slice(self.rows[k], self.rows[k + 1]) for k in (i, j))
            block = sparse[rows, columns]
            self._put(values, i, j, block.toarray() if hasattr(block, "toarray") else block)
            if isinstance(outside, np.ndarray):
                outside[rows, columns] = 0.0
        stray = np.argwhere(outside) if isinstance(outside, np.ndarray) else self._stray(sparse)
        if len(stray):
            i, j = (int(np.searchsorted(self.rows, k, "right")) - 1 for k in stray[0])
            raise ValueError(
                f"matrix: entry {tuple(map(int, stray[0]))} is not zero, but the graph has no edge {(i, j)}"
            )

    def _stray(self, sparse: Any) -> np.ndarray:
        entries = np.argwhere(sparse != 0) if isinstance(sparse, np.ndarray) else np.array(sparse.nonzero()).T
        nodes = np.searchsorted(self.rows, entries, "right") - 1
        return entries[[tuple(map(int, pair)) not in self.given for pair in nodes]]

    def factorize(self, matrix: Any) -> Factors:
        """Factors of a matrix, given as for `pack`, or of an array of values (nnz,).

        Raises
        ------
        ValueError
            As `pack` does.
        numpy.linalg.LinAlgError
            If a pivot block is singular when its turn comes; the text names the node.
        """
        if isinstance(matrix, np.ndarray) and matrix.shape == (self.nnz,):
            values = np.array(matrix, float)
        else:
            values = self.pack(matrix)
        given = values.copy()
        factors, place = self.core.factor(values)
        if place:
            node = self.structure.order[place - 1]
            raise np.linalg.LinAlgError(
                f"the pivot block of node {node} ({self.structure.sizes[node]} rows) is singular when its "
                f"turn comes, {place} of {len(self.structure.order)} in the order of elimination: the matrix "
                "is singular, or this node must be eliminated later (order=)"
            )
        return Factors(self, given, factors)


class Factors:
    """A factorized matrix; made by `BlockLDU.factorize`."""

    def __init__(self, ldu: BlockLDU, given: np.ndarray, factors: Any):
        self._ldu, self._given, self._factors = ldu, given, factors

    def __repr__(self) -> str:
        return f"Factors of {self._ldu!r}"

    def solve(self, b: Any, *, transpose: bool = False, refine: int = 0) -> np.ndarray:
        """x with F x = b, or F' x = b.

        Parameters
        ----------
        b : (N,) or (N, m)
            One right-hand side, or m of them.
        transpose : bool
        refine : int
            Steps of iterative refinement: for matrices with poor pivot blocks.
        """
        n = int(self._ldu.rows[-1])
        b = np.asarray(b, float)
        if b.ndim not in (1, 2) or b.shape[0] != n:
            raise ValueError(f"right-hand side: expected shape ({n},) or ({n}, m), got {b.shape}")
        x = self._ldu.core.solve(self._factors, np.array(b, order="C"), transpose)
        for _ in range(refine):
            x = x + self._ldu.core.solve(self._factors, b - self.multiply(x, transpose=transpose), transpose)
        return x

    def multiply(self, x: np.ndarray, *, transpose: bool = False) -> np.ndarray:
        """F x, or F' x, with the matrix that was factorized."""
        ldu, out = self._ldu, np.zeros_like(x)
        rows, sizes = ldu.rows, ldu.structure.sizes
        for i, j in ldu.given:
            block = self._given[ldu.slots[i, j]].reshape(sizes[i], sizes[j])
            to, of = (j, i) if transpose else (i, j)
            part = (block.T if transpose else block) @ x[rows[of] : rows[of + 1]]
            out[rows[to] : rows[to + 1]] += part
        return out


@lru_cache(maxsize=1)
def _library() -> ctypes.CDLL:
    library = load_library([Path(__file__).with_name("core.c")], "graph_ldu")
    pointer, integer = ctypes.c_void_p, ctypes.c_longlong
    library.vioc_ldu_factor.argtypes = [integer, pointer, pointer, pointer]
    library.vioc_ldu_factor.restype = integer
    for name in ("vioc_ldu_solve", "vioc_ldu_solve_transposed"):
        getattr(library, name).argtypes = [integer, *[pointer] * 4, integer, pointer]
        getattr(library, name).restype = None
    return library


class _Compiled:
    """The numbers in C; the program of core.c is written here."""

    def __init__(self, ldu: BlockLDU):
        s, slots, rows = ldu.structure, ldu.slots, ldu.rows
        program: list[int] = []
        starts = []
        for k in s.order:
            later = s.later[k]
            starts.append(len(program))
            program += [s.sizes[k], int(rows[k]), slots[k, k].start, len(later)]
            for j in later:
                program += [s.sizes[j], int(rows[j]), slots[k, j].start, slots[j, k].start]
            program += [slots[i, j].start for i in later for j in later]
        self._program, self._starts = np.array(program, np.int64), np.array(starts, np.int64)
        self._rows = int(rows[-1])
        _library()

    def factor(self, values: np.ndarray) -> tuple[Any, int]:
        pivots = np.empty(self._rows, np.int64)
        place = _library().vioc_ldu_factor(
            len(self._starts), self._program.ctypes.data, values.ctypes.data, pivots.ctypes.data
        )
        return (values, pivots), place

    def solve(self, factors: Any, b: np.ndarray, transpose: bool) -> np.ndarray:
        values, pivots = factors
        library = _library()
        function = library.vioc_ldu_solve_transposed if transpose else library.vioc_ldu_solve
        arrays = (self._program, self._starts, values, pivots)
        b = np.ascontiguousarray(b)
        columns = b.shape[1] if b.ndim == 2 else 1
        function(len(self._starts), *(a.ctypes.data for a in arrays), columns, b.ctypes.data)
        return b
