"""Compiled programs that advance many rollouts at once by SIMD, on all cores.

LANES of them share the vector instructions of lanes.c and many.c.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path

import casadi as ca
import numpy as np

from vioc.compile.compiler import require_compiler
from vioc.compile.lanes import laned, prelude
from vioc.compile.libraries import address, key_of, load_keyed
from vioc.errors import CompileError
from vioc.progress import Progress

LANES = 8  # docs/maths/speed.md: also for processors whose vectors have four or two entries
Long = ctypes.c_longlong


def source(functions: dict[str, ca.Function], step: str, **sizes: float) -> str | None:
    """Return C code that advances many rollouts of a map at once, by SIMD vectors.
    The code has the C function `step`, which takes one step of LANES rollouts, and the loop of many.c around
    it. The result is None if an operation of the step has no SIMD form.

    Parameters
    ----------
    functions : dict
        CasADi functions by the names under which `step` calls them; `laned` translates them to C.
    step : str
        C of ``static void step(const lanes *x, const lanes *const *of, lanes *next, lanes *multipliers,
        lanes *error, lanes *work)``. The entries of ``of`` are u, t, dt, parameters.
    **sizes
        Numbers by their names in C: NX, NU, NP, NM of states, inputs, parameters, multipliers; NWORK of
        `work`, and others that `step` needs.
    """
    texts = [prelude(LANES), *(f"#define {name} {value!r}" for name, value in sizes.items())]
    for name, function in functions.items():
        text = laned(function, name) if function.is_a("SXFunction") else None
        if text is None:
            return None
        texts.append(text)
    return "\n".join([*texts, step, Path(__file__).with_name("many.c").read_text("utf-8")])


class ManyProgram:
    """Compiled program that advances many rollouts of a map at once.
    The library is compiled, or loaded from the cache, on first use.

    Parameters
    ----------
    written : callable
        Returns the C code, made by `source`, or None if there is no such code.
    title : str
        Title in the cache's listing.
    key : str, optional
        Represents everything that the code is made of, as in `NativeProgram`; by default the code itself.
    """

    def __init__(self, written: Callable[[], str | None], title: str, key: str | None = None):
        self._written, self._title, self._chosen = written, title, key

    @cached_property
    def source(self) -> str | None:
        """C code of the program, which advances several rollouts at once by SIMD.
        It is None if an operation of the map's step has no SIMD form.
        """
        with Progress("building functions"):
            return self._written()

    @cached_property
    def _library(self) -> ctypes.CDLL | None:
        compiler = require_compiler()
        library = None
        try:
            key = key_of(compiler, ca.__version__, self._chosen or self._text())
            library = load_keyed(key, self._title, lambda: [self._text()], compiler)
            library.many.argtypes = [
                Long,
                ctypes.c_void_p,
                Long,
                Long,
                ctypes.c_double,
                *[ctypes.c_void_p] * 5,
            ]
        except _NoForm:
            pass
        return library

    def _text(self) -> str:
        if self.source is None:
            raise _NoForm
        return self.source

    @property
    def available(self) -> bool:
        """Flag, True if there is C code that advances many rollouts of the map."""
        return self._library is not None

    def accumulate(
        self,
        rows: np.ndarray,
        given: Sequence[np.ndarray],
        at: np.ndarray,
        end: int,
        tolerance: float,
        X: np.ndarray,
        multipliers: np.ndarray,
    ) -> np.ndarray:
        """Continue rollouts from their current steps `at` to step `end`.
        The states are written to X. A rollout stops earlier at a step that fails.

        Parameters
        ----------
        rows : (m,)
            Indices of these rollouts among all M.
        given : arrays
            Inputs (N, nu) or (M, N, nu), starts t (N,) or (M, N) and lengths of steps likewise, s, parameters
            (np,) or (m, np).
        at : (m,)
            Current steps; overwritten with the steps reached.
        end : int
        tolerance : float
            Largest error of a solved step.
        X, multipliers : (M, N + 1, nx), (M, N, nm)
            Overwritten; rollouts continue from the rows `at` of X.

        Returns
        -------
        errors : (m,)
            Errors of the steps where rollouts stopped, zero if a rollout did not.
        """
        assert self._library is not None
        U, t, h, theta = (np.ascontiguousarray(a, float) for a in given)
        N, errors = multipliers.shape[1], np.empty(len(rows))
        strides = [N * U.shape[-1] if U.ndim == 3 else 0, U.shape[-1]]
        for a in (t, h):
            strides += [N if a.ndim == 2 else 0, 1]
        strides += [theta.shape[-1] if theta.ndim == 2 else 0, 0]
        inputs, outputs = (_pointers(arrays) for arrays in ((U, t, h, theta), (X, multipliers)))
        failed = self._library.many(
            *(len(rows), address(rows), end, N, tolerance, inputs),
            *((Long * len(strides))(*strides), outputs, address(at), address(errors)),
        )
        if failed:
            raise MemoryError(f"{self._title}: no memory for the workspace of a rollout")
        return errors


class _NoForm(CompileError):
    """Error raised if a map's step contains an operation that has no SIMD form."""


def _pointers(arrays: Sequence[np.ndarray]):
    return (ctypes.c_void_p * len(arrays))(*map(address, arrays))
