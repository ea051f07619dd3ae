"""Cache of compiled libraries on disk.

An entry is a folder named by its key, with the library and a note that contains the library's checksum.
Entries are made in a temporary folder and renamed in one step, so that neither a killed process nor several
processes that compile the same leave a partial entry. An entry that does not match its checksum is removed
and built again. If nothing can be stored (no home, a read-only or full disk), a library is in a temporary
folder of its process, which is removed at its end.

Libraries are loaded without further checks, so only trusted users may have write access to the folder.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import multiprocessing.util
import os
import re
import shutil
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from vioc.errors import CompileError

LIBRARY = "library.so"
NOTE = "note.json"
STALE = 24 * 3600  # age from which a partial entry is removed, s
VARIABLE = "VIOC_CACHE"
OURS = re.compile("[0-9a-f]{40}|(new|old)-.*")
# Errors of reading a damaged note
_UNSOUND = (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError)
_own: dict[str, Path] = {}  # libraries stored for this process only


@dataclass(frozen=True)
class Entry:
    """Cached library: key, title, size in bytes and creation time (s since 1970)."""

    key: str
    title: str
    bytes: int
    made: float


class Cache:
    """Cache of compiled libraries in a folder on disk.

    Parameters
    ----------
    directory : path, optional
        Default: the environment variable ``VIOC_CACHE``, else ``vioc`` in the user's cache folder.
    """

    def __init__(self, directory: str | os.PathLike | None = None):
        self.directory = Path(directory) if directory is not None else default_directory()

    def __repr__(self) -> str:
        entries = list(self.entries())
        size = sum(e.bytes for e in entries) / 1e6
        return f"Cache({len(entries)} libraries, {size:.1f} MB, in {self.directory})"

    def entries(self) -> Iterator[Entry]:
        """Yield the libraries in the cache, oldest first."""
        found = []
        for folder in self.directory.glob("*/"):
            try:
                note = json.loads((folder / NOTE).read_text("utf-8"))
                size = (folder / LIBRARY).stat().st_size
                found.append(Entry(folder.name, str(note["title"]), size, float(note["made"])))
            except _UNSOUND:
                continue  # incomplete, damaged, or another program's
        yield from sorted(found, key=lambda e: e.made)

    def clear(self) -> int:
        """Remove all libraries, including partial ones; return the number of bytes freed."""
        freed = 0
        for folder in self.directory.glob("*/"):
            if OURS.fullmatch(folder.name):
                with contextlib.suppress(OSError):  # another process removes it too
                    freed += sum(f.stat().st_size for f in folder.rglob("*") if f.is_file())
                shutil.rmtree(folder, ignore_errors=True)
        return freed

    def find(self, key: str) -> Path | None:
        """Return the path of the library with a key; None if it is missing or damaged."""
        folder = self.directory / key
        try:
            note = json.loads((folder / NOTE).read_text("utf-8"))
            if note["sha256"] == _checksum(folder / LIBRARY):
                return folder / LIBRARY
        except _UNSOUND:
            pass
        self.discard(key)
        return None

    def get(self, key: str, title: str, build: Callable[[Path], None]) -> Path:
        """Return the path of the library with a key; build the library if it is missing.
        The function ``build(path)`` compiles the library to a path.

        A missing or damaged library is made; if the cache cannot be written, it is made in a temporary folder
        of this process.

        Raises
        ------
        CompileError
            If the compiler fails in the temporary folder, too.
        OSError
            If no temporary folder can be written.
        """
        found = self.find(key) or _own.get(key)
        if found is not None:
            return found
        try:
            return self._made(key, title, build)
        except (OSError, CompileError) as error:  # the compiler also fails if the disk is full
            folder = Path(tempfile.mkdtemp(dir=_own_folder()))
            build(folder / LIBRARY)
            reason = " ".join(str(error).split())
            warnings.warn(
                f"the cache {self.directory} cannot be written ({reason[:300]}); compiling for this process "
                f"only. Set {VARIABLE} to a folder that can",
                RuntimeWarning,
                stacklevel=2,
            )
            return _own.setdefault(key, folder / LIBRARY)

    def _made(self, key: str, title: str, build: Callable[[Path], None]) -> Path:
        """Build a library in a temporary folder, and move it into the cache under its key."""
        self.directory.mkdir(parents=True, exist_ok=True)
        self._remove_stale()
        folder = Path(tempfile.mkdtemp(prefix="new-", dir=self.directory))
        try:
            build(folder / LIBRARY)
            note = {"title": title, "sha256": _checksum(folder / LIBRARY), "made": time.time()}
            (folder / NOTE).write_text(json.dumps(note), "utf-8")
            target = self.directory / key
            try:
                folder.rename(target)
            except OSError:  # another process was faster
                if self.find(key) is None:
                    folder.rename(target)
            return target / LIBRARY
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def discard(self, key: str) -> None:
        """Remove the library with a key if it exists.
        Its folder is renamed in one step before deletion, so that no process finds a partial library.
        """
        folder = self.directory / key
        if not folder.exists():
            return
        with contextlib.suppress(OSError):  # the cache cannot be written; or another process did it
            aside = Path(tempfile.mkdtemp(prefix="old-", dir=self.directory))
            with contextlib.suppress(OSError):
                folder.rename(aside / "entry")
            shutil.rmtree(aside, ignore_errors=True)

    def _remove_stale(self) -> None:
        """Remove the partial libraries that killed processes have left in the cache."""
        for pattern in ("new-*", "old-*"):
            for folder in self.directory.glob(pattern):
                try:
                    if time.time() - folder.stat().st_mtime > STALE:
                        shutil.rmtree(folder, ignore_errors=True)
                except OSError:
                    continue


def default_directory() -> Path:
    """Return the default folder of compiled libraries.
    It is the environment variable ``VIOC_CACHE`` if set, else ``vioc`` in the user's cache folder.
    """
    chosen = os.environ.get(VARIABLE)
    if chosen:
        return Path(chosen)
    try:
        if sys.platform == "win32":
            base = Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData" / "Local"))
        elif sys.platform == "darwin":
            base = Path.home() / "Library" / "Caches"
        else:
            base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError:  # no HOME, and no entry of this user id
        return _own_folder()
    return base / "vioc"


@lru_cache(maxsize=1)
def _own_folder() -> Path:
    """Return a temporary folder that is removed when this process ends."""
    folder = Path(tempfile.mkdtemp(prefix="vioc-"))
    # Workers of multiprocessing end without atexit; forked processes do not remove their parent's folder.
    multiprocessing.util.Finalize(None, shutil.rmtree, (folder, True), exitpriority=-100)
    return folder


def _checksum(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
