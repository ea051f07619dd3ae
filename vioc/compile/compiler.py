"""The user's C compiler: found, identified and called. It is optional everywhere."""

from __future__ import annotations

import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from vioc.errors import CompileError

CANDIDATES = ("cc", "gcc", "clang")
PACKAGE = "ziglang"  # a compiler that pip installs, of the extra `compiler`
# Products and sums are not fused: the virtual machine rounds both, and results are the same to the bit.
FLAGS = ("-ffp-contract=off", "-shared", "-fvisibility=hidden", "-w")
NATIVE = "-march=native"
# Straight-line code gains little from -O2 and costs it more than linear time.
LARGE = 1_000_000  # characters of source from which -O1 is used


@dataclass(frozen=True)
class Compiler:
    """A C compiler that has been tried.

    Attributes
    ----------
    command : tuple of str
        With the flags that always apply.
    identity : str
        Version, target and processor: libraries are only as good as these.
    """

    command: tuple[str, ...]
    identity: str

    @property
    def name(self) -> str:
        """How it is called."""
        return " ".join(word for word in self.command if not word.startswith("-"))

    def build(self, sources: Sequence[Path], target: Path, *flags: str, native: bool = True) -> None:
        """Compile C files into the shared library `target`; raises `CompileError`.

        `flags` come last; without `native` it runs on other processors of this kind too.
        """
        size = sum(source.stat().st_size for source in sources)
        level = "-O1" if size > LARGE else "-O2"
        position = () if sys.platform == "win32" else ("-fPIC",)
        command = [word for word in self.command if native or word != NATIVE]
        command += [level, *position, *flags, "-o", str(target), *map(str, sources), "-lm"]
        done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
        if done.returncode:
            text = (done.stderr or done.stdout).strip()
            raise CompileError(
                f"{self.name} failed (exit status {done.returncode}): {text[-2000:] or 'no message'}. "
                'Use backend="virtual", or choose another compiler with the environment variable CC'
            )


def find_compiler() -> Compiler | None:
    """The compiler of the environment variable CC, else the first of cc, gcc, clang and pip's that works."""
    return _find(os.environ.get("CC", ""), os.environ.get("PATH", ""))


@lru_cache(maxsize=8)
def _find(chosen: str, _path: str) -> Compiler | None:
    own = [] if importlib.util.find_spec(PACKAGE) is None else [[sys.executable, "-m", PACKAGE, "cc"]]
    for words in [shlex.split(chosen)] if chosen else [*([name] for name in CANDIDATES), *own]:
        if not words or shutil.which(words[0]) is None:
            continue
        for extra in ((NATIVE,), ()):
            identity = _identify([*words, *extra])
            if identity:
                return Compiler((*words, *extra, *FLAGS), identity)
    return None


def _identify(command: list[str]) -> str:
    """What the compiler says of itself and of the processor that it compiles for; "" if it does not work."""
    try:
        version = subprocess.run([*command, "--version"], capture_output=True, text=True, timeout=60)
        verbose = subprocess.run(
            [*command, "-E", "-v", "-x", "c", "-"], input="", capture_output=True, text=True, timeout=60
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    if version.returncode or verbose.returncode:
        return ""
    target = [line.strip() for line in verbose.stderr.splitlines() if "cc1" in line or "Target" in line]
    return "\n".join([version.stdout.splitlines()[0], *target, *FLAGS])
