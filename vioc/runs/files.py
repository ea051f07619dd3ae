"""Files of saved trajectories.
An interrupted write leaves the previous file unchanged. The content of a file is checked when it is read."""

from __future__ import annotations

import contextlib
import json
import math
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vioc.errors import FileFormatError
from vioc.runs.steps import same_steps

if TYPE_CHECKING:
    from vioc.maps.protocol import OneStepMap

FORMAT = "vioc-trajectory-1"


def whole_file(path: str | os.PathLike, suffix: str = ".npz") -> Path:
    """Return the path of a file to be written, with `suffix` added if it has none.

    Raises FileNotFoundError if the folder does not exist.
    """
    path = Path(path)
    path = path if path.suffix else path.with_suffix(suffix)
    if not path.parent.is_dir():
        raise FileNotFoundError(f"{path}: no such folder {path.parent}; make it first")
    return path


def replace_file(path: Path, write: Callable[[Any], None]) -> Path:
    """Write a file by the function `write`, without loss of an existing file.
    The existing file is replaced only after the new one has been written completely.
    """
    handle, scratch = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
    try:
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(scratch, 0o666 & ~mask)  # mkstemp's own mode gives no access to others
        with os.fdopen(handle, "wb") as stream:
            write(stream)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(scratch, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(scratch)
        raise
    return path


def write_file(path: Path, arrays: dict[str, np.ndarray], header: dict[str, Any]) -> Path:
    """Write the arrays of a trajectory and a header to an npz file."""
    text = np.array(json.dumps({"format": FORMAT, **header}))
    return replace_file(path, lambda stream: np.savez_compressed(stream, **arrays, header=text))  # type: ignore[arg-type]


_AXES = {"t": 1, "x": 2, "u": 2, "multipliers": 2, "state_names": 1, "input_names": 1, "multiplier_names": 1}


def read_file(path: str | os.PathLike) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Read the arrays and the header of a saved trajectory of any map, and check them.

    Returns
    -------
    dict of arrays
        ``t``, ``x``, ``u``, ``multipliers``, and the names ``state_names``, ``input_names``,
        ``multiplier_names``.
    dict
        ``identity`` of the map, ``parameters``, ``k0``, and ``before`` if known.

    Raises
    ------
    FileFormatError
        If the file is not a trajectory, or is damaged.
    FileNotFoundError, IsADirectoryError
        If there is no such file.
    """
    path = Path(path)
    keys = (*_AXES, "header")
    if path.is_dir():
        raise IsADirectoryError(f"{path}: a folder, expected a trajectory file (.npz)")
    if not path.exists():
        raise FileNotFoundError(f"{path}: no such trajectory file")
    data, header = _stored(path, keys)
    missing = [k for k in keys if k not in data]
    if missing:
        raise FileFormatError(f"{path}: not a saved trajectory: it lacks {', '.join(missing)}")
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise FileFormatError(f"{path}: expected format {FORMAT!r}, got {header!r:.80}")
    _check_header(path, header)
    _check_arrays(path, data)
    return data, header


def _stored(path: Path, keys: tuple[str, ...]) -> tuple[dict[str, Any], Any]:
    """Return the arrays and the header in an npz file, without further checks."""
    with open(path, "rb") as stream:
        archive = stream.read(2) == b"PK"
        stream.seek(0)
        try:
            if not archive:
                raise ValueError("not an .npz archive; Trajectory.save and `vioc simulate --save` write one")
            stored = np.load(stream, allow_pickle=False)
            entries = set(stored) if isinstance(stored, np.lib.npyio.NpzFile) else set()
            data = {k: stored[k] for k in keys if k in entries}
            for key, value in data.items():
                if not isinstance(value, np.ndarray):
                    raise ValueError(f"{key} is no array")
                if key.endswith("_names"):
                    data[key] = np.array([str(n) for n in value.ravel()], dtype=str).reshape(value.shape)
            return data, json.loads(str(data["header"])) if "header" in data else None
        except Exception as error:  # damaged archives raise various errors
            reason = "it holds pickled objects" if "pickle" in str(error) else " ".join(str(error).split())
            raise FileFormatError(f"{path}: not a readable trajectory file ({reason})") from None


def _check_header(path: Path, header: dict[str, Any]) -> None:
    """Raise `FileFormatError` if the header lacks an entry or has an invalid number."""
    for key, kind in (("k0", int), ("parameters", dict), ("identity", dict)):
        if not isinstance(header.get(key), kind):
            raise FileFormatError(f"{path}: the header lacks {key}")
    numbers = [(name, header[name]) for name in ("k0", "before") if header.get(name) is not None]
    for name, value in (*numbers, *header["parameters"].items()):
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) < math.inf:
            raise FileFormatError(f"{path}: the header's {name} should be a finite number, got {value!r:.80}")


def _check_arrays(path: Path, data: dict[str, np.ndarray]) -> None:
    """Raise `FileFormatError` if arrays have inconsistent shapes or are not finite."""
    for key, axes in _AXES.items():
        if data[key].ndim != axes:
            raise FileFormatError(
                f"{path}: expected an array {key} with {axes} axes, got shape {data[key].shape}"
            )
    n = len(data["u"])
    expected = {
        "t": (n + 1,),
        "x": (n + 1, len(data["state_names"])),
        "u": (n, len(data["input_names"])),
        "multipliers": (n, len(data["multiplier_names"])),
    }
    for key, shape in expected.items():
        if data[key].shape != shape or data[key].dtype != np.float64:
            raise FileFormatError(
                f"{path}: expected {key} of shape {shape} and type float64, got "
                f"{data[key].shape}, {data[key].dtype}"
            )
        if not np.isfinite(data[key]).all():
            raise FileFormatError(f"{path}: {key} holds numbers that are not finite")
    if (np.diff(data["t"]) <= 0).any():
        raise FileFormatError(f"{path}: t should grow from sample to sample")


def read_columns(path: str | os.PathLike, map: OneStepMap) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Return the arrays and the header of a saved trajectory of a map.
    The columns of the arrays are in the order of the map's names.

    Raises FileFormatError if it is of another map.
    """
    data, header = read_file(path)
    for key, kind, names in (
        ("x", "state", map.state_names),
        ("u", "input", map.input_names),
        ("multipliers", "multiplier", map.multiplier_names),
    ):
        stored = data[f"{kind}_names"].tolist()
        if sorted(stored) != sorted(names):
            missing, extra = sorted(set(names) - set(stored)), sorted(set(stored) - set(names))
            raise FileFormatError(
                f"{path}: {kind} names do not match the map: missing {missing or 'none'}, "
                f"unknown {extra or 'none'}"
            )
        order = [stored.index(n) for n in names]
        data[key] = np.ascontiguousarray(data[key][:, order])
    identity, saved_identity = json.loads(json.dumps(map.identity())), header["identity"]
    differ = [
        k
        for k in dict.fromkeys((*identity, *saved_identity))
        if not _same(k, identity.get(k), saved_identity.get(k))
    ]
    if differ:
        advice = (
            f"; load it with map.with_dt({saved_identity['dt']!r})"
            if differ == ["dt"] and "dt" in saved_identity
            else ""
        )
        raise FileFormatError(
            f"{path}: saved from another map: {', '.join(differ)} differ from those of {map!r}{advice}"
        )
    return data, header


def _same(key: str, value: Any, saved_value: Any) -> bool:
    """Return whether two descriptions of maps agree in the entry `key`.
    `value` and `saved_value` are the values of this entry.
    """
    if key == "dt" and isinstance(value, float) and isinstance(saved_value, (int, float)):
        return same_steps(saved_value, value)
    return value == saved_value
