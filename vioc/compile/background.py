"""Compilation of libraries in the background, beside the running program.

One worker thread compiles one library after another. Where a library is not ready, results come from the
virtual machine or from numpy. At the end of the process the running compiler is killed, and nothing partial
is left in the cache.
"""

from __future__ import annotations

import atexit
import os
import queue
import threading
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path

from vioc.compile.compiler import require_compiler, stop_compilers
from vioc.compile.disk_cache import Cache
from vioc.compile.libraries import key_of
from vioc.errors import CompileError

END = 5.0  # s that the worker has for removing a partial entry at the end of the process


class Compilation:
    """Job that compiles and loads one library in a background thread.

    Parameters
    ----------
    load : callable
        Compiles and loads the library.

    Attributes
    ----------
    error : CompileError or None
        Why it failed.
    """

    def __init__(self, load: Callable[[], object]):
        self.error: CompileError | None = None
        self._load, self._over, self._process = load, threading.Event(), os.getpid()
        _worker().put(self._run)

    def _run(self) -> None:
        try:
            self._load()
        except CompileError as error:
            self.error = error
        except Exception as error:  # the thread goes on with other libraries
            self.error = CompileError(f"{type(error).__name__}: {error}")
        finally:
            self._over.set()

    @property
    def over(self) -> bool:
        """Flag, True after the compilation has succeeded or failed."""
        return self._over.is_set()

    @property
    def lost(self) -> bool:
        """Flag, True in a forked process, where no thread completes the compilation."""
        return not self.over and self._process != os.getpid()

    def wait(self) -> None:
        """Wait until the compilation has succeeded or failed."""
        self._over.wait()


_asked: dict[str, Compilation | None] = {}  # by key; None for libraries of the cache
_told: list[CompileError] = []  # errors that were warned of
_jobs: queue.SimpleQueue[Callable[[], None]] | None = None


def ready(load: Callable[[], object], sources: Sequence[str | Path]) -> bool:
    """Return whether a compiled library is available; else begin to compile it.
    The compilation runs in the background. The function `load` compiles and loads the library of these C
    `sources`.

    Warns
    -----
    RuntimeWarning
        Once, if the library cannot be compiled.
    """
    key = key_of(require_compiler(), *(s.read_text("utf-8") if isinstance(s, Path) else s for s in sources))
    if key not in _asked:
        _asked[key] = None if Cache().find(key) is not None else Compilation(load)
    begun = _asked[key]
    if begun is None:
        return True
    if begun.lost:
        del _asked[key]
        return ready(load, sources)
    if begun.over and begun.error is not None and begun.error not in _told:
        _told.append(begun.error)
        warnings.warn(f"going on in numpy: {begun.error}", RuntimeWarning, stacklevel=3)
    return begun.over and begun.error is None


def _worker() -> queue.SimpleQueue[Callable[[], None]]:
    """Return the queue of compilation jobs; the first call starts the worker thread."""
    global _jobs
    if _jobs is None:
        jobs: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()

        def work() -> None:
            while True:
                jobs.get()()

        thread = threading.Thread(target=work, name="vioc compiles", daemon=True)
        thread.start()
        atexit.register(_end)
        _jobs = jobs
    return _jobs


def _end() -> None:
    """Kill the running compiler at exit; wait until its partial files are removed."""
    stop_compilers()
    over = threading.Event()
    if _jobs is not None:
        _jobs.put(over.set)
        over.wait(END)


def _forget() -> None:
    """Discard the job queue in a forked process, which has no worker thread."""
    global _jobs
    _jobs = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
