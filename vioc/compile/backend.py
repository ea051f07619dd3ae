"""Choice of how CasADi functions are evaluated: virtual machine or compiled C."""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Callable
from typing import Any

import casadi as ca

from vioc.checks import near_misses
from vioc.compile.background import Compilation
from vioc.compile.compiler import find_compiler, require_compiler
from vioc.compile.disk_cache import Cache
from vioc.compile.many import ManyProgram
from vioc.compile.native import NativeProgram, sources_digest
from vioc.compile.programs import CHUNK, Program
from vioc.compile.virtual import VirtualProgram
from vioc.errors import CompileError, ModelError

BACKENDS = ("virtual", "compiled", "auto")
WAIT = 0.1  # s in the virtual machine before compiling is considered
SPEED = 5e3  # approximate operations of a function that a compiler processes per second
WRITTEN = 5e4  # the same for writing the C code


class Backend:
    """Factory of programs, which evaluate CasADi functions.
    A program is interpreted by CasADi's virtual machine or runs as compiled C.

    Parameters
    ----------
    name : {"virtual", "compiled", "auto"}
        ``"virtual"`` runs in CasADi's virtual machine, ``"compiled"`` compiles on first use, ``"auto"`` uses
        libraries that are compiled already, and compiles functions in the background that have run for as
        long as compiling would take. Rollouts of generated functions are identical to the bit.
    identity : dict, optional
        Plain data that determines every function of a map; used for keys of the cache. Without it, as where a
        user's own Python code has a part in the functions, their generated C is the key.

    Raises
    ------
    ModelError
        If the name is unknown.
    CompileError
        If ``"compiled"`` is requested and there is no compiler.
    """

    def __init__(self, name: str = "virtual", identity: dict[str, Any] | None = None):
        if name not in BACKENDS:
            raise ModelError(f"backend: unknown {name!r}; {near_misses(str(name), BACKENDS)}")
        if name == "compiled":
            require_compiler()
        self.name = name
        self.identity = identity
        self._compiler_failed = False

    def knowing(self, **more: Any) -> Backend:
        """Return a copy of the backend that includes additional data in its cache keys.
        If the backend's `identity` is None, the backend is returned unchanged.
        """
        return self if self.identity is None else Backend(self.name, {**self.identity, **more})

    def __repr__(self) -> str:
        return f"Backend({self.name!r})"

    def prepare(self, function: ca.Function) -> Program:
        """Return a program that evaluates a given CasADi function with this backend."""
        return self._program(lambda: function, function.name(), None)

    def program(
        self, build: Callable[[], ca.Function], name: str, written: Callable[[], str | None] = lambda: None
    ) -> Program:
        """Return a program that evaluates the CasADi function that `build()` constructs.
        The result of `written()` is hand-written C code of the same function, or None
        (`vioc.compile.native`).
        """
        return self._program(build, name, self._key(name), written)

    def many(self, written: Callable[[], str | None], name: str) -> ManyProgram | None:
        """Return a compiled program that advances many rollouts at once, or None.
        The function `written` returns the C code, or None if the code does not exist. The result is None in
        that case, or if the backend is not ``"compiled"``.
        """
        if self.name != "compiled":
            return None
        program = ManyProgram(written, self._title(name), self._key(name))
        return program if program.available else None

    def compiles(self, load: Callable[[], object]) -> bool:
        """Return whether compiled C code takes part in the computation.
        It does not with the backend ``"virtual"`` or without a compiler. With ``"auto"``, the function `load`
        compiles and loads it first. After a failure nothing is tried again.

        Warns
        -----
        RuntimeWarning
            Once, if the backend is ``"auto"`` and the compiler fails.
        """
        if self.name == "virtual" or self._compiler_failed or find_compiler() is None:
            return False
        if self.name == "auto":
            try:
                load()
            except CompileError as error:
                self._compiler_failed = True
                warnings.warn(f"going on without compiled code: {error}", RuntimeWarning, stacklevel=2)
                return False
        return True

    def _key(self, name: str) -> str | None:
        if self.identity is None or self.name == "virtual":
            return None
        return json.dumps([self.identity, name, sources_digest()], sort_keys=True)

    def _title(self, name: str) -> str:
        return f"{self.identity['title']}: {name}" if self.identity else name

    def _program(
        self,
        build: Callable[[], ca.Function],
        name: str,
        key: str | None,
        written: Callable[[], str | None] = lambda: None,
    ) -> Program:
        if self.name == "virtual":
            return VirtualProgram(build)
        native = NativeProgram(build, self._title(name), key, written)
        if self.name == "compiled" or find_compiler() is None:
            return native if self.name == "compiled" else VirtualProgram(build)
        return AutoProgram(build, native)


class AutoProgram(Program):
    """Program that runs in CasADi's virtual machine until its C library is compiled.
    Compilation begins when it is expected to save time, and runs in the background.
    """

    def __init__(self, build: Callable[[], ca.Function], native: NativeProgram):
        self._virtual = VirtualProgram(build)
        self._native = native
        self._looked = False
        self._compilation: Compilation | None = None
        self._loaded: bool | None = None  # False if loading failed
        self._spent = 0.0

    @property
    def shapes_in(self):  # type: ignore[override]
        return self._choose().shapes_in

    @property
    def shapes_out(self):  # type: ignore[override]
        return self._choose().shapes_out

    def _choose(self) -> Program:
        if self._loaded is None:
            self._look()
        return self._native if self._loaded else self._virtual

    def _look(self) -> None:
        """Load the program's C library if it has been compiled already.
        Otherwise compile it, if that may save time.
        """
        begun = self._compilation
        if begun is not None and not begun.lost:
            if begun.over:
                self._loaded = self._sound(begun.error)
        elif not self._looked and (self._native.keyed or self._has_run(WRITTEN)):
            self._looked = True
            if Cache().find(self._native.key) is not None:
                self._loaded = self._load()
        elif self._has_run(SPEED):
            self._compilation = Compilation(self._native.load)

    def _has_run(self, speed: float) -> bool:
        """Return True if the function has run for longer than its C code would take.
        The code is written or compiled with `speed` operations per second.
        """
        return self._spent > WAIT and self._spent > self._virtual.operations / speed

    def _load(self) -> bool:
        try:
            self._native.load()
        except CompileError as error:
            return self._sound(error)
        return True

    def _sound(self, error: CompileError | None) -> bool:
        """Return True if no error occurred in the compilation; else warn and return False."""
        if error is not None:
            warnings.warn(f"going on in the virtual machine: {error}", RuntimeWarning, stacklevel=4)
        return error is None

    def _timed(self, how: str, *args: Any, **options: Any) -> Any:
        program = self._choose()
        before = time.perf_counter()
        result = getattr(program, how)(*args, **options)
        self._spent += time.perf_counter() - before
        return result

    def __call__(self, args):
        return self._timed("__call__", args)

    def map(self, args, count):
        return self._timed("map", args, count)

    def accumulate(self, carry, rows, count, keep, tolerance, first=CHUNK):
        return self._timed("accumulate", carry, rows, count, keep, tolerance, first)
