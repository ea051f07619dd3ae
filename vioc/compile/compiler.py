"""Search for the user's C compiler, and compilation of shared libraries with it.

A compiler is optional everywhere.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import shlex
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import warnings
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from vioc.errors import CompileError

CANDIDATES = ("cc", "gcc", "clang")
PACKAGE = "ziglang"  # a compiler that pip installs, of the extra `compiler`
# Products and sums are not fused: the virtual machine rounds both, and results must agree to the bit.
# GCC's vectorizer of straight-line code fuses them in spite of the first flag, so it is disabled.
FLAGS = ("-ffp-contract=off", "-fno-tree-slp-vectorize", "-shared", "-fvisibility=hidden", "-w")
NATIVE = "-march=native"
ADVICE = 'Use backend="virtual", or choose another compiler with the environment variable CC'
# Straight-line code gains little from -O2, and the compile time grows faster than linearly.
LARGE = 1_000_000  # characters of source from which -O1 is used
# Every compiler is tried with the headers that C code includes, and a function with a known value.
TRIAL = """#include <float.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
__attribute__((visibility("default"))) double vioc_trial(double x) { return floor(x) + sqrt(x); }
"""
PATIENCE = 120  # time limit of the trial, s
_said: set[str] = set()
_running: set[subprocess.Popen[str]] = set()
_stopped = threading.Event()


@dataclass(frozen=True)
class Compiler:
    """C compiler that builds and loads shared libraries.

    Attributes
    ----------
    command : tuple of str
        Command with the flags that always apply.
    identity : str
        Version, target and processor, for which libraries are valid.
    """

    command: tuple[str, ...]
    identity: str

    @property
    def name(self) -> str:
        """Command that runs the compiler, without flags."""
        return " ".join(word for word in self.command if not word.startswith("-"))

    def build(
        self,
        sources: Sequence[Path],
        target: Path,
        *flags: str,
        native: bool = True,
        timeout: float | None = None,
    ) -> None:
        """Compile C files into the library `target`; raise `CompileError` on failure.

        `flags` come last. Without `native` the library runs on other processors of this kind, too. The
        compiler's temporary files are in the target's folder, and are removed with it if a compiler is
        killed.
        """
        if _stopped.is_set():
            raise CompileError("the process ends")
        size = sum(source.stat().st_size for source in sources)
        level = "-O1" if size > LARGE else "-O2"
        position = () if sys.platform == "win32" else ("-fPIC",)
        command = [word for word in self.command if native or word != NATIVE]
        command += [level, *position, *flags, "-o", str(target), *map(str, sources), "-lm"]
        scratch = dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(target.parent))
        try:
            done = _run(command, timeout, env={**os.environ, **scratch})
        except (OSError, subprocess.TimeoutExpired) as error:
            raise CompileError(f"{self.name} failed: {error}. {ADVICE}") from None
        if done.returncode:
            text = " ".join((done.stderr or done.stdout).split())[-2000:] or "no message"
            raise CompileError(f"{self.name} failed (exit status {done.returncode}): {text}. {ADVICE}")

    def load(self, library: Path) -> ctypes.CDLL:
        """Load a library built by this compiler; raise `CompileError` if that fails."""
        try:
            if _cut_off(library):
                raise OSError("the file is cut off")
            return ctypes.CDLL(str(library))
        except OSError as error:
            raise CompileError(f"{self.name} wrote what cannot be loaded: {error}. {ADVICE}") from None

    def try_out(self) -> None:
        """Compile and call a small test function; raise `CompileError` if this fails.
        The error is also raised if the function returns a wrong value.
        """
        with tempfile.TemporaryDirectory(prefix="vioc-", ignore_cleanup_errors=True) as folder:
            source, target = Path(folder, "trial.c"), Path(folder, "trial.so")
            source.write_text(TRIAL, "utf-8")
            self.build([source], target, timeout=PATIENCE)
            trial = getattr(self.load(target), "vioc_trial", None)
            if trial is not None:
                trial.argtypes, trial.restype = [ctypes.c_double], ctypes.c_double
            if trial is None or trial(6.25) != 8.5:
                raise CompileError(f"{self.name} wrote a wrong library for a trial. {ADVICE}")


def _cut_off(library: Path) -> bool:
    """Return whether the end of an ELF library is missing.
    The use of such a library would end the process. The table of sections is at the end of the file. Other
    kinds of libraries are not tested.
    """
    with library.open("rb") as file:
        data = file.read(64)  # the header
    order = {1: "<", 2: ">"}.get(data[5] if len(data) > 5 else 0)
    if data[:4] != b"\x7fELF" or order is None:
        return False
    start, size, count = ("Q", 40, 58) if data[4] == 2 else ("I", 32, 46)  # 64 or 32 bits
    if len(data) < count + 4:
        return True
    (table,) = struct.unpack_from(order + start, data, size)
    each, sections = struct.unpack_from(order + "HH", data, count)
    return bool(table + each * sections > library.stat().st_size)


def find_compiler() -> Compiler | None:
    """Return the user's C compiler, or None if no compiler works.

    It is that of the environment variable CC, else the first of cc, gcc, clang and pip's compiler that works.

    Warns
    -----
    RuntimeWarning
        Once, if CC is given or there is a compiler, and none works.
    """
    found, trouble = _find(os.environ.get("CC", ""), os.environ.get("PATH", ""))
    if trouble and trouble not in _said:
        _said.add(trouble)
        warnings.warn(f"nothing is compiled: {trouble}", RuntimeWarning, stacklevel=2)
    return found


def require_compiler() -> Compiler:
    """Return the C compiler, or raise a `CompileError` that says how to get one."""
    chosen = os.environ.get("CC", "")
    found, trouble = _find(chosen, os.environ.get("PATH", ""))
    if found is None:
        raise CompileError(
            f"no C compiler: {trouble or 'neither cc, gcc nor clang works'}. pip install "
            "'vioc[compiler]' brings one; have CC name "
            'another, or use backend="virtual", which needs none'
        )
    return found


@lru_cache(maxsize=8)
def _find(chosen: str, _path: str) -> tuple[Compiler | None, str]:
    """Return the first C compiler that works, or None, and a message.
    The message says why no compiler works. It is empty if a compiler works, or if no compiler is installed
    and the environment variable CC chooses none.
    """
    own = [] if importlib.util.find_spec(PACKAGE) is None else [[sys.executable, "-m", PACKAGE, "cc"]]
    try:
        commands = [shlex.split(chosen)] if chosen else [*([name] for name in CANDIDATES), *own]
    except ValueError as error:
        return None, f"CC = {chosen!r} of the environment is no command: {error}"
    trouble = f"CC = {chosen!r} of the environment names no program" if chosen else ""
    for words in commands:
        if not words or shutil.which(words[0]) is None:
            continue
        reason = ""
        for extra in ((NATIVE,), ()):
            try:
                compiler = Compiler((*words, *extra, *FLAGS), _identify([*words, *extra]))
                compiler.try_out()
                return compiler, ""
            except (CompileError, OSError, subprocess.TimeoutExpired) as error:
                reason = str(error)  # without the flag, which not every compiler knows
        trouble = trouble if trouble and not chosen else reason
    return None, trouble


def _run(command: Sequence[str], timeout: float | None, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a command and return its result; its output may have invalid characters."""
    given: dict[str, Any] = dict(stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    given["start_new_session"] = True  # compilers start other programs, which end with them
    with subprocess.Popen(command, text=True, errors="replace", **given, **options) as process:
        _running.add(process)
        if _stopped.is_set():  # after the process was started, and before it was known
            _kill(process)
        try:
            output, errors = process.communicate(timeout=timeout)
        except BaseException:
            _kill(process)
            raise
        finally:
            _running.discard(process)
    return subprocess.CompletedProcess(command, process.returncode, output, errors)


def stop_compilers() -> None:
    """Kill running compilers and prevent new compilations as the process ends."""
    _stopped.set()
    for process in list(_running):
        _kill(process)


def _kill(process: subprocess.Popen[str]) -> None:
    """Kill a compiler process and the processes that it has started."""
    with suppress(OSError):  # it has ended
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()


def _identify(command: list[str]) -> str:
    """Return the version and target of a compiler; raise `CompileError` if it fails."""
    told = []
    for flags, does in ((("--version",), "tell its version"), (("-E", "-v", "-x", "c", "-"), "read C")):
        done = _run([*command, *flags], 60)
        told.append(done)
        if done.returncode or (len(told) == 1 and not done.stdout.strip()):
            lines = done.stderr.splitlines()
            lines = [line for line in lines if "error" in line] or lines
            said = ": " * bool(lines) + " ".join(" ".join(lines).split())[-2000:]
            raise CompileError(f"{' '.join(command)} is no C compiler: it does not {does}{said}. {ADVICE}")
    version, verbose = told
    target = [line.strip() for line in verbose.stderr.splitlines() if "cc1" in line or "Target" in line]
    return "\n".join([version.stdout.splitlines()[0], *target, *FLAGS])
