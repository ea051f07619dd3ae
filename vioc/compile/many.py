"""Many rollouts of one step, LANES samples side by side on each core (lanes.c, many.c)."""

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

LANES = 8  # docs/maths/speed.md: also where a processor's vectors hold four, or two
Long = ctypes.c_longlong


def source(functions: dict[str, ca.Function], step: str, **sizes: float) -> str | None:
    """C of a step of LANES samples and of the loop of many.c around it, or None.

    Parameters
    ----------
    functions : dict
        Which `step` calls by these names, as `laned` writes them; None where one of them has no such form.
    step : str
        C of ``static void step(const lanes *x, const lanes *const *of, lanes *next, lanes *multipliers,
        lanes *error, lanes *work)`` with ``of`` u, t, dt, parameters.
    **sizes
        Numbers by the names of C: NX, NU, NP, NM of states, inputs, parameters, multipliers; NWORK of `work`,
        and what `step` needs.
    """
    texts = [prelude(LANES), *(f"#define {name} {value!r}" for name, value in sizes.items())]
    for name, function in functions.items():
        text = laned(function, name) if function.is_a("SXFunction") else None
        if text is None:
            return None
        texts.append(text)
    return "\n".join([*texts, step, Path(__file__).with_name("many.c").read_text("utf-8")])


class ManyProgram:
    """A step as a program of many rollouts; generated, compiled or found when it is first needed.

    Parameters
    ----------
    written : callable
        Makes the `source`; None where there is none.
    title : str
        What it is, for the cache's listing.
    key : str, optional
        As of `NativeProgram`.
    """

    def __init__(self, written: Callable[[], str | None], title: str, key: str | None = None):
        self._written, self._title, self._chosen = written, title, key

    @cached_property
    def source(self) -> str | None:
        """The C code."""
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
        """Whether there is one."""
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
        """Rollouts from their steps `at` on until step `end`, or one that is not solved.

        Parameters
        ----------
        rows : (m,)
            Which of the M rollouts they are.
        given : arrays
            Inputs (N, nu) or (M, N, nu), starts t (N,) or (M, N) and lengths of steps likewise, s, parameters
            (np,) or (m, np).
        at : (m,)
            Written: the steps that they come to.
        end : int
        tolerance : float
            Largest error of a step that is solved.
        X, multipliers : (M, N + 1, nx), (M, N, nm)
            Written; rollouts go on from the rows `at` of X.

        Returns
        -------
        errors : (m,)
            Of the steps where rollouts stopped; zero where none did.
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
    """A step holds an operation that has no form in vectors."""


def _pointers(arrays: Sequence[np.ndarray]):
    return (ctypes.c_void_p * len(arrays))(*map(address, arrays))
