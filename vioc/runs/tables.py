"""Tables of columns with names and units, to exchange data with other programs.

Trajectories, batches, and sweeps make tables; a CSV file, a DataFrame of pandas, and a Dataset of xarray can
be read as one. Column heads are ``name [unit]``, in SI; ``t`` is the time.
"""

from __future__ import annotations

import csv
import importlib
import io
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from vioc.checks import few, filled, is_number, is_plain, near_misses
from vioc.errors import FileFormatError, ModelError
from vioc.runs.files import replace_file, whole_file

HEAD = re.compile(r"\s*(.*?)(?:\s+\[([^\[\]]*)\]|\s+\(([^()]*)\))?\s*")  # name [unit] or name (unit)
DECIMAL = re.compile(r"^\s*([-+]?\d*),(\d*(?:[eE][-+]?\d+)?)\s*$")  # a number with a comma
TIME = "t"
BETWEEN = ("hold", "line")


@dataclass(frozen=True)
class Table(Mapping):
    """Table of columns of equal length with units; ``table["theta"]`` is a column.

    Attributes
    ----------
    columns : dict of str to (n,) array
        Numbers, NaN if missing, or text.
    units : dict of str to str
        Units of columns that have one.
    index : tuple of str
        Columns that identify rows: ``("t",)``.
    source : str
        Name of the table in messages.
    """

    columns: Mapping[str, np.ndarray]
    units: Mapping[str, str] = field(default_factory=dict)
    index: tuple[str, ...] = ()
    source: str = field(default="table", compare=False)

    def __post_init__(self) -> None:
        columns = {str(name): np.asarray(filled(values)) for name, values in self.columns.items()}
        for name, values in columns.items():
            if values.ndim != 1:
                raise ValueError(f"{self.source}: column {name!r} has shape {values.shape}, expected (n,)")
        lengths = {len(values) for values in columns.values()}
        if len(lengths) > 1:
            sizes = ", ".join(f"{len(v)} of {n}" for n, v in list(columns.items())[:6])
            raise ValueError(f"{self.source}: expected columns of one length, got {sizes}")
        object.__setattr__(self, "columns", columns)

    def __getitem__(self, name: str) -> np.ndarray:
        if name not in self.columns:
            raise KeyError(f"{self.source}: no column {name!r}; {near_misses(str(name), self.columns)}")
        return self.columns[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.columns)

    def __len__(self) -> int:
        """Return the number of columns; ``table.rows`` is the number of rows."""
        return len(self.columns)

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(next(iter(self.columns.values()), ()))

    # -- parts --------------------------------------------------------------------------------------

    def only(self, *names: str) -> Table:
        """Return a table with the named columns and with the index columns of this table.
        Index columns, such as the time, identify the rows.
        """
        columns = dict.fromkeys((*self.index, *names))
        units = {n: u for n, u in self.units.items() if n in columns}
        return Table({n: self[n] for n in columns}, units, self.index, self.source)

    def renamed(self, names: Mapping[str, str]) -> Table:
        """Return a table with renamed columns, ``{"F": "force"}``, in the same units."""
        for name in names:
            self[name]  # raises for an unknown name
        new = [names.get(n, n) for n in self]
        if len(set(new)) < len(new):
            raise ModelError(f"{self.source}: {few(new)} has a name twice")
        units = {names.get(n, n): u for n, u in self.units.items()}
        columns = dict(zip(new, self.columns.values(), strict=True))
        return Table(columns, units, tuple(names.get(n, n) for n in self.index), self.source)

    def complete(self) -> Table:
        """Return a table without the rows in which a number is missing (NaN)."""
        every = [np.isfinite(v) for v in self.columns.values() if v.dtype.kind in "fiu"]
        mask = np.logical_and.reduce(every) if every else slice(None)
        columns = {n: v[mask] for n, v in self.columns.items()}
        return Table(columns, self.units, self.index, self.source)

    def numbers(self, name: str) -> np.ndarray:
        """Return a column as floats; FileFormatError if it contains text."""
        values = self[name]
        if values.dtype.kind not in "fiub":
            text = next((str(v) for v in values if not is_number(str(v))), "")
            raise FileFormatError(f"{self.source}: column {name!r} has {text!r}, expected numbers")
        return values.astype(float)

    def signal(self, name: str, between: str = "hold") -> Signal:
        """Return a column as a function of time, which `vioc.inputs` accepts as a signal.

        Parameters
        ----------
        name : str
        between : {"hold", "line"}
            Value between two samples: that of the earlier one, as in a digital output, or a straight line.

        Raises
        ------
        ValueError
            If there is no rising column ``t``, or a sample within the record is missing; ``complete()``
            removes such rows.
        """
        if between not in BETWEEN:
            raise ValueError(f"between: expected one of {', '.join(BETWEEN)}, got {between!r}")
        what, t, values = f"{self.source}: column {name!r}", self.numbers(TIME), self.numbers(name)
        if not (np.diff(t) > 0).all():
            raise ValueError(f"{self.source}: times t should be rising numbers")
        there = np.isfinite(values)
        missing = np.flatnonzero(~there[: (np.flatnonzero(there)[-1] + 1) if there.any() else 1])
        if len(missing):
            raise ValueError(
                f"{what} has no number at t = {t[missing[0]]:g} s, in {len(missing)} rows; fill them, or "
                f'leave them out: table.only("{name}").complete()'
            )
        end = t[-1] if between == "hold" else t[there][-1]
        return Signal(t[there], values[there], between, float(end), what)

    # -- other tools --------------------------------------------------------------------------------

    def write(self, path: str | os.PathLike) -> Path:
        """Write the table to a CSV file with headings ``name [unit]`` and all digits.

        Missing numbers are empty. The file is written completely or not at all.
        """
        path, text = whole_file(path, ".csv"), io.StringIO(newline="")
        lines = csv.writer(text, lineterminator="\n")
        lines.writerow([f"{n} [{self.units[n]}]" if self.units.get(n) else n for n in self])
        lines.writerows(zip(*([_cell(v) for v in c.tolist()] for c in self.columns.values()), strict=True))
        return replace_file(path, lambda stream: stream.write(text.getvalue().encode()))

    def to_pandas(self) -> Any:
        """Convert the table to a ``pandas.DataFrame`` that has the index columns as index.
        Index columns, such as the time, identify the rows.

        Units are ``frame.attrs["units"]``.
        """
        frame = _package("pandas").DataFrame(dict(self.columns))
        frame = frame.set_index(list(self.index)) if self.index else frame
        frame.attrs["units"] = dict(self.units)
        return frame

    def to_xarray(self) -> Any:
        """Convert the table to an ``xarray.Dataset`` with index columns as dimensions.
        Index columns, such as the time, identify the rows.

        Units are in ``attrs``.
        """
        _package("xarray")
        dataset = self.to_pandas().to_xarray()
        for name, unit in self.units.items():
            dataset[name].attrs["units"] = unit
        return dataset

    @staticmethod
    def read(source: Any) -> Table:
        """Read a table from a CSV file, a DataFrame, a Dataset, or a dict of columns.

        Parameters
        ----------
        source : path, pandas.DataFrame, xarray.Dataset, dict of str to array, or Table
            Data. A Dataset must have one dimension. Heads of columns may have units, ``"force [N]"``, as may
            ``frame.attrs["units"]``. Columns of a file are separated by commas, or by semicolons or tabs,
            with which numbers may have decimal commas.

        Raises
        ------
        FileFormatError
            If a file is not a table: rows of different lengths, a duplicate name, no head.
        """
        if isinstance(source, Table):
            return source
        if isinstance(source, (str, os.PathLike)):
            return _read_csv(Path(source))
        what, units = type(source).__name__, {}
        if hasattr(source, "data_vars"):  # a Dataset, which has units per variable
            units = {str(n): v.attrs["units"] for n, v in source.variables.items() if "units" in v.attrs}
            source = source.to_dataframe()
        index: tuple[str, ...] = ()
        if hasattr(source, "to_dict") and hasattr(source, "reset_index"):  # a DataFrame
            units = {**source.attrs.get("units", {}), **units}
            index = tuple(str(n) for n in source.index.names if n is not None)
            source = source.reset_index() if index else source
            source = {n: source[n].to_numpy() for n in source.columns}
        if not isinstance(source, Mapping):
            raise TypeError(f"expected a path, a DataFrame, a Dataset or a dict of columns, got {what}")
        return _headed(list(source), list(source.values()), what, units, index)

    def __repr__(self) -> str:
        return f"Table({self.rows} rows of {few(self, what='columns')})"

    def to_html(self) -> str:
        """Return the first and the last rows as an HTML table, for a notebook."""
        heads = (f"{n} [{self.units[n]}]" if self.units.get(n) else n for n in self)
        rows = [0, 1, 2, 3, 4] if self.rows <= 10 else [0, 1, 2, -2, -1]
        body = "".join(
            "<tr>"
            + "".join(
                f"<td>{escape(f'{c[i]:.6g}' if c.dtype.kind == 'f' else str(c[i]))}</td>"
                for c in self.columns.values()
            )
            + "</tr>"
            for i in rows[: self.rows]
        )
        head = "".join(f"<th>{escape(h)}</th>" for h in heads)
        return f"<table><tr>{head}</tr>{body}</table><p>{self.rows} rows</p>"

    _repr_html_ = to_html


class Signal:
    """Function of time t, s, whose values are a recorded column of a table."""

    def __init__(self, t: np.ndarray, values: np.ndarray, between: str, end: float, what: str):
        self.t, self.values, self.between, self.end, self.what = t, values, between, end, what

    def __call__(self, t: float) -> float:
        """Return the column's value at the time t, s; ValueError outside its times."""
        rounding = 1e-9 * (self.end - self.t[0])
        if not self.t[0] - rounding <= t <= self.end + rounding:
            raise ValueError(
                f"{self.what} was asked for at t = {t:g} s; the record reaches from {self.t[0]:g} to "
                f"{self.end:g} s. Take fewer steps, another k0, or a record whose t begins elsewhere"
            )
        if self.between == "line":
            return float(np.interp(t, self.t, self.values))
        return float(self.values[max(np.searchsorted(self.t, t + rounding, side="right") - 1, 0)])


def _package(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        raise ImportError(f'{name} is not installed: pip install "vioc[data]"') from None


def _cell(value: Any) -> Any:
    return "" if isinstance(value, float) and value != value else value


def _read_csv(path: Path) -> Table:
    if path.is_dir():
        raise IsADirectoryError(f"{path}: a folder, expected a CSV file")
    if not path.exists():
        raise FileNotFoundError(f"{path}: no such file")
    try:
        text = path.read_bytes().decode("utf-8-sig")
        if (nul := text.find("\0")) >= 0:
            line = text.count("\n", 0, nul) + 1
            raise FileFormatError(f"{path}: not a CSV file: a NUL character in line {line}")
        between = _delimiter(text)
        if between == "," and (plain := _plain_numbers(text)):
            return _headed(*plain, str(path), {}, ())
        rows = csv.reader(io.StringIO(text, newline=""), delimiter=between, strict=True)
        lines = [row for row in rows if row]
    except (UnicodeDecodeError, csv.Error) as error:
        raise FileFormatError(f"{path}: not a CSV file ({error})") from None
    if not lines:
        raise FileFormatError(f"{path}: an empty file, expected a line with the names of columns")
    heads, *body = lines
    if all(map(is_number, heads)):
        raise FileFormatError(
            f"{path}: line 1 has numbers, expected the names of columns: t [s], theta [rad]"
        )
    for i, row in enumerate(body):
        if len(row) != len(heads):
            hint = "; numbers with commas need ; between columns" if len(row) == 2 * len(heads) else ""
            raise FileFormatError(f"{path}: row {i + 1} has {len(row)} cells, expected {len(heads)}{hint}")
    if not body:
        raise FileFormatError(f"{path}: only a line with the names of columns, expected rows below it")
    if between != ",":
        body = [[DECIMAL.sub(r"\1.\2", cell) for cell in row] for row in body]
    columns = list(zip(*body, strict=True))
    return _headed(heads, columns, str(path), {}, ())


def _plain_numbers(text: str) -> tuple[list[str], list[np.ndarray]] | None:
    """Read a CSV text that contains only names and numbers; None for other texts."""
    first, _, rest = text.partition("\n")
    if '"' in text or not first.strip() or not rest.strip():
        return None
    try:
        (heads,) = csv.reader([first], strict=True)
        body = np.loadtxt(io.StringIO(rest), delimiter=",", comments=None, ndmin=2)
    except (ValueError, csv.Error):
        return None
    same = body.shape[1] == len(heads) and not all(map(is_number, heads))
    return (heads, list(np.ascontiguousarray(body.T))) if same else None


def _delimiter(text: str) -> str:
    """Return the character that separates columns in a CSV text, from its first line.

    It is a comma if one is outside quotes.
    """
    heads = re.sub(r'"[^"]*"', "", text.lstrip("\r\n").partition("\n")[0].partition("\r")[0])
    return next((c for c in ",;\t" if c in heads), ",")


def _headed(
    heads: Sequence[Any], columns: Sequence[Any], what: str, units: Mapping[str, str], index: tuple[str, ...]
) -> Table:
    names, all_units = [], dict(units)
    for head in heads:
        match = HEAD.fullmatch(str(head))
        name = match[1] if match and match[1] else str(head)
        unit = (match[2] or match[3] or "") if match and match[1] else ""
        if unit:
            all_units[name] = unit
        names.append(name)
    twice = sorted(n for n, count in Counter(names).items() if count > 1)
    if twice or not all(names):
        raise FileFormatError(
            f"{what}: expected a name of its own for each column, got "
            f"{few(map(str, twice)) + ' twice' if twice else 'one without'}"
        )
    values = [_values(c) for c in columns]
    index = index or ((TIME,) if TIME in names else ())
    return Table(dict(zip(names, values, strict=True)), all_units, index, what)


def _values(column: Any) -> np.ndarray:
    """Convert a column of cells to floats, with NaN for empty cells.
    A column that contains text is returned as text, and an array of integers unchanged."""
    if isinstance(column, tuple):  # the cells of a file
        try:
            if all(is_plain(c) for c in column if isinstance(c, str)):
                return np.array(list(map(float, column)))
        except ValueError:
            pass  # with empty cells or text
    array = np.asarray(filled(column))
    if array.dtype.kind in "fiub":
        return array
    cells = ["nan" if v is None or not str(v).strip() else str(v).strip() for v in array.tolist()]
    if all(map(is_number, cells)):
        return np.array([float(c) for c in cells])
    return np.array(["" if v is None else str(v) for v in array.tolist()], str)
