"""Shared libraries compiled from C sources and kept in the cache."""

from __future__ import annotations

import ctypes
import hashlib
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from vioc.compile.compiler import ADVICE, Compiler, require_compiler
from vioc.compile.disk_cache import Cache
from vioc.errors import CompileError
from vioc.progress import Progress

_loaded: dict[Path, ctypes.CDLL] = {}
_Nothing = ctypes.c_char * 0


def address(array: np.ndarray) -> int:
    """Return the memory address of an array's data.

    For writable arrays this takes a fourth of the time of numpy's own way.
    """
    try:
        return ctypes.addressof(_Nothing.from_buffer(array))  # type: ignore[arg-type]
    except (TypeError, ValueError):  # not contiguous, or read-only
        return array.__array_interface__["data"][0]


def addresses(arrays: Sequence[np.ndarray]) -> list[int]:
    """Return the memory addresses of several arrays.

    Many at once take half the time of single ones.
    """
    try:
        return list(map(ctypes.addressof, map(_Nothing.from_buffer, arrays)))  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return [address(a) for a in arrays]


def load_library(sources: Sequence[str | Path], title: str) -> ctypes.CDLL:
    """Compile C sources (text, or paths of files) into one library and load it.

    Functions called from Python are marked ``__attribute__((visibility("default")))``. Compiled libraries are
    kept on disk, with keys made of the sources, the compiler and its flags.

    Raises
    ------
    CompileError
        Without a compiler, or if it fails.
    """
    compiler = require_compiler()
    texts = [s.read_text("utf-8") if isinstance(s, Path) else s for s in sources]
    return load_keyed(key_of(compiler, *texts), title, lambda: texts, compiler)


def key_of(compiler: Compiler, *parts: str) -> str:
    """Return the cache key of a library: a hash of the compiler and of the C sources."""
    digest = hashlib.sha256()
    for part in (compiler.identity, " ".join(compiler.command), *parts):
        digest.update(part.encode())
        digest.update(b"\0")
    return digest.hexdigest()[:40]


def load_keyed(key: str, title: str, texts, compiler: Compiler) -> ctypes.CDLL:
    """Load the library with a cache key; compile it first if it is not in the cache.
    The function `texts` returns the C sources.
    """
    mark = f"vioc_{key}"  # of these sources, so that no other library passes for theirs
    marked = f'__attribute__((visibility("default"))) const char {mark} = 1;\n'

    def load(path: Path) -> ctypes.CDLL:
        if not path.exists() or mark.encode() not in path.read_bytes():  # a path cannot be loaded twice
            raise CompileError(f"{compiler.name} wrote what cannot be loaded: no functions in it. {ADVICE}")
        return compiler.load(path)

    def build(target: Path) -> None:
        paths = []
        for i, text in enumerate([*texts(), marked]):
            paths.append(target.with_name(f"part{i}.c"))
            paths[-1].write_text(text, "utf-8")
        with Progress(f"compiling {title}"):
            compiler.build(paths, target)
        for path in paths:
            path.unlink()
        if sys.platform != "win32":  # there a loaded library cannot be moved into the cache
            load(target)

    kept = Cache()
    path = kept.get(key, title, build)
    if path not in _loaded:
        try:
            _loaded[path] = load(path)
        except CompileError:  # cached by a process that did not load it
            kept.discard(key)
            path = kept.get(key, title, build)
            _loaded[path] = load(path)
    return _loaded[path]
