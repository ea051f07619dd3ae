"""File of a sweep's results, to which each task appends one line of JSON.

The first line identifies the sweep. A line counts when its newline is on the disk; an incomplete last line
after a crash is cut off when the file is opened again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from vioc.errors import FileFormatError

FORMAT = "vioc-sweep-2"  # version 1 had no points, and arrays in base64
ARRAY = "__array__"
KINDS = (  # supported dtypes of arrays, which JSON stores to the bit
    *("bool", "float16", "float32", "float64", "complex64", "complex128"),
    *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
)


class Store:
    """Open file of one sweep, with the results of its completed tasks.

    Parameters
    ----------
    path : path
        Created if it does not exist.
    header : dict
        Identity of this sweep; plain data.

    Raises
    ------
    FileFormatError
        If the file is not a store, is damaged before its end, or belongs to another sweep.
    BlockingIOError
        If another process has it open for writing.

    Attributes
    ----------
    records : list of dict
        Records in the file when it was opened.
    """

    def __init__(self, path: str | os.PathLike, header: Mapping[str, Any]):
        self.path = Path(path)
        sweep_header: dict[str, Any] = json.loads(dumps({"format": FORMAT, **header}))
        self._file = open(self.path, "a+b")  # noqa: SIM115, closed by close()
        try:
            _lock(self._file, self.path)
            self._file.seek(0)
            whole = self._file.read()
            complete = whole[: whole.rfind(b"\n") + 1]
            lines = complete.decode("utf-8", "replace").splitlines()
            if lines:
                file_header, *self.records = _parse(lines, self.path)
                _compare(file_header, sweep_header, self.path)
                if len(complete) < len(whole):  # an incomplete line after a crash
                    self._file.truncate(len(complete))
            else:
                if whole and not dumps(sweep_header).encode().startswith(whole):
                    raise FileFormatError(f"{self.path}: not the results of a sweep; give another path")
                self.records = []
                self._file.truncate(0)
                self._write(sweep_header)
        except BaseException:
            self._file.close()
            raise

    def results(self, count: int) -> list[tuple[int, dict[str, Any]]]:
        """Return index and record of each stored result, for a sweep of `count` tasks.

        Raises
        ------
        FileFormatError
            If a record has another form; the file is then closed.
        """
        try:
            return [(i, result) for i, _, result in outcomes(self.records, {"tasks": count}, self.path)]
        except FileFormatError:
            self.close()
            raise

    def append(self, record: Mapping[str, Any]) -> None:
        """Append a record to the file, and return when it is on the disk.

        Raises
        ------
        TypeError
            If it contains anything but None, bool, numbers, str, lists, tuples, dicts with str keys
            and numpy arrays.
        """
        self._write(record)

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def _write(self, record: Mapping[str, Any]) -> None:
        self._file.write(dumps(record).encode() + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())


def read_store(path: str | os.PathLike) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Read header and records of a sweep's file without opening it for writing.

    The store may be growing.
    """
    whole = Path(path).read_bytes()
    lines = whole[: whole.rfind(b"\n") + 1].decode("utf-8", "replace").splitlines()
    if not lines:
        raise FileFormatError(f"{path}: not the results of a sweep")
    header, *records = _parse(lines, Path(path))
    return header, records


def outcomes(
    records: list[dict[str, Any]], header: Mapping[str, Any], path: str | os.PathLike
) -> list[tuple[int, Any, dict[str, Any]]]:
    """Convert stored records to (index, point, result), or raise FileFormatError."""
    count = header.get("tasks")
    for line, record in enumerate(records, 2):
        if type(count) is not int or not _is_result(record, count):
            raise FileFormatError(f"{path}: line {line} is no result of this sweep; restore the file")
    return [(record["index"], record["point"], record["outcome"]) for record in records]


def dumps(value: Any) -> str:
    """Convert a value to one line of JSON that preserves floats and arrays exactly."""
    return json.dumps(_plain(value, "value"), separators=(",", ":"))


def loads(text: str) -> Any:
    return json.loads(text, object_hook=_array)


def _plain(value: Any, where: str) -> Any:
    if value is None or (isinstance(value, (bool, int, float, str)) and not isinstance(value, np.generic)):
        return value
    if isinstance(value, np.generic):
        return _plain(value.item(), where)
    if isinstance(value, np.ndarray):
        if value.dtype.name not in KINDS:
            raise TypeError(f"{where}: arrays of {value.dtype} are not kept in files; give arrays of numbers")
        parts = np.stack([value.real, value.imag], axis=-1) if value.dtype.kind == "c" else value
        return {ARRAY: [value.dtype.name, list(value.shape), parts.tolist()]}
    if isinstance(value, (list, tuple)):
        return [_plain(v, f"{where}[{i}]") for i, v in enumerate(value)]
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str) or key == ARRAY:
                raise TypeError(f"{where}: expected names as keys, got {key!r}")
        return {k: _plain(v, f"{where}[{k!r}]") for k, v in value.items()}
    raise TypeError(
        f"{where}: {type(value).__name__} is not kept in files; return numbers, text, arrays, lists and "
        "dicts of them, or sweep without `store`"
    )


def _array(item: dict[str, Any]) -> Any:
    if set(item) != {ARRAY}:
        return item
    dtype, shape, data = item[ARRAY]
    if dtype not in KINDS:
        raise ValueError(f"an array of {dtype}")
    if not dtype.startswith("complex"):
        return np.array(data, dtype).reshape(shape)
    parts = np.array(data, "float32" if dtype == "complex64" else "float64").reshape(*shape, 2)
    return parts.view(dtype).reshape(shape)


def _parse(lines: list[str], path: Path) -> list[dict[str, Any]]:
    records = []
    for number, line in enumerate(lines, 1):
        try:
            record = loads(line)
        except (ValueError, TypeError, OverflowError, RecursionError):
            record = None
        if not isinstance(record, dict) or (number == 1 and record.get("format") != FORMAT):
            what = "not the results of a sweep" if number == 1 else "damaged"
            raise FileFormatError(f"{path}: line {number} is {what}; restore the file, or give another path")
        records.append(record)
    return records


def _is_result(record: dict[str, Any], count: int) -> bool:
    """Return whether a record is a valid result of a task of a sweep of `count` tasks."""
    index, result = record.get("index"), record.get("outcome")
    if type(index) is not int or not 0 <= index < count or not isinstance(result, dict):
        return False
    if set(result) != {"value", "error", "traceback", "seconds"}:
        return False
    error, trace, seconds = (result[name] for name in ("error", "traceback", "seconds"))
    texts = (error is None or isinstance(error, str)) and isinstance(trace, str)
    return "point" in record and texts and type(seconds) in (int, float) and 0 <= seconds < 1e18


def _compare(file_header: dict[str, Any], sweep_header: dict[str, Any], path: Path) -> None:
    try:
        differ = [
            k
            for k in dict.fromkeys([*sweep_header, *file_header])
            if dumps(file_header.get(k)) != dumps(sweep_header.get(k))
        ]
    except (TypeError, RecursionError):
        raise FileFormatError(f"{path}: line 1 is damaged; restore the file, or give another path") from None
    if differ:
        raise FileFormatError(
            f"{path}: holds another sweep: {', '.join(differ)} "
            f"{'differs' if len(differ) == 1 else 'differ'}; give another path, or the same sweep"
        )


def _lock(file: Any, path: Path) -> None:
    try:
        import fcntl
    except ImportError:  # no advisory locks on this system
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise BlockingIOError(f"{path}: another sweep is writing to it") from None
