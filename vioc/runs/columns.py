"""Tables whose columns are quantities of a map, with their units."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import numpy as np

from vioc.checks import few
from vioc.errors import FileFormatError, ModelError
from vioc.names import quantity_name
from vioc.runs.tables import TIME, Table

STEP, RUN = "k", "run"
BEFORE = "step before"  # length of the step that ends in a row, s
SHOWN = 16  # number of quantities shown in a notebook
OWN = (TIME, STEP, RUN, BEFORE)  # columns other than quantities


def quantities_table(run: Any, names: Sequence[str]) -> Table:
    """Return a table of quantities along a trajectory.
    The table also has columns of the times ``t`` and of the sample indices ``k``.

    Columns have the full names of quantities. A quantity that has one value in each step is in the row of the
    step's start, and is missing in the last row. For a part of a run of unequal steps, the table also has the
    length of the step before each row, on which forces depend.
    """
    f, n = run.map, len(run)
    columns: dict[str, np.ndarray] = {TIME: run.t, STEP: run.k0 + np.arange(n + 1)}
    units = {TIME: "s"}
    for name in names:
        values = run[name]
        parts = {name: values}
        if values.ndim > 1:
            parts = {f"{name}[{i}]": column for i, column in enumerate(values.T)}
        for part, column in parts.items():
            if part in columns:
                raise ModelError(f"a table has a column {part!r} already; leave this quantity out")
            columns[part] = column if len(column) > n else np.append(column, np.nan)
            units[part] = f.unit(name)
    if run.before is not None and (run.step_lengths != run.before).any():
        columns[BEFORE], units[BEFORE] = np.append(run.before, run.step_lengths), "s"
    return Table(columns, {n: u for n, u in units.items() if u}, (TIME,), "trajectory")


def quantities_html(run: Any, title: str) -> str:
    """Return a table of a trajectory's states and inputs as HTML for a notebook.

    It has their first, last, smallest and largest values.
    """
    f, names = run.map, (*run.map.state_names, *(f"u.{n}" for n in run.map.input_names))
    columns: list[tuple[str, ...]] = []
    for name in names[:SHOWN]:
        values, unit = run[name], f.unit(name)
        ends = (values[0], values[-1], values.min(), values.max()) if len(values) else ()
        columns.append((f"{name} [{unit}]" if unit else name, *(f"{v:.4g}" for v in ends)))
    rows = "".join("<tr>" + "".join(f"<td>{escape(c)}</td>" for c in row) + "</tr>" for row in columns)
    heads = "".join(f"<th>{h}</th>" for h in ("", "first", "last", "least", "most"))
    more = f"<p>and {len(names) - SHOWN} more</p>" if len(names) > SHOWN else ""
    return f"<p>{escape(title)}</p><table><tr>{heads}</tr>{rows}</table>{more}"


def trajectory_columns(table: Table, f: Any) -> dict[str, Any]:
    """Convert the columns of a table to the arrays of a trajectory of the map `f`.

    The result is a dict with t, x, u, multipliers and k0, and with `before` if the table has it.

    Raises
    ------
    FileFormatError
        If a column is missing, unknown, in another unit, or lacks a number.
    """
    names = known_columns(table, f)
    check_units(table, f, names)
    arrays: dict[str, Any] = {}
    groups = (
        ("x", "", f.state_names),
        ("u", "u.", f.input_names),
        ("multipliers", "lambda.", f.multiplier_names),
    )
    lacking = [p + n for _, p, group in groups for n in group if p + n not in names]
    lacking += [] if TIME in table else [TIME]
    if lacking:
        raise FileFormatError(
            f"{table.source}: a trajectory of this map needs the columns {few(lacking)}, too"
        )
    rows = table.rows
    if rows < 2:
        raise FileFormatError(f"{table.source}: expected two rows or more, got {rows}")
    arrays["t"] = table.numbers(TIME)
    if not (np.diff(arrays["t"]) > 0).all():
        raise FileFormatError(f"{table.source}: times t should be rising numbers")
    for key, prefix, group in groups:
        n = rows if key == "x" else rows - 1
        arrays[key] = np.zeros((n, len(group)))
        for i, name in enumerate(group):
            arrays[key][:, i] = table.numbers(names[prefix + name])[:n]
        bad = np.argwhere(~np.isfinite(arrays[key]))
        if len(bad):
            row, column = bad[0]
            raise FileFormatError(
                f"{table.source}: {prefix}{group[column]} has no number at t = {arrays['t'][row]:g} s"
            )
    if STEP in table and len(missing := np.flatnonzero(np.diff(table.numbers(STEP)) != 1)):
        k = table.numbers(STEP)[missing[0] : missing[0] + 2]
        raise FileFormatError(
            f"{table.source}: {STEP}: {k[0]:g} is followed by {k[1]:g}; rows are missing, or not in order. "
            f"Leave out the column {STEP} of what is no run of single steps"
        )
    first = table.numbers(STEP)[0] if STEP in table else arrays["t"][0] / f.dt
    if abs(first - round(first)) > 1e-6:
        raise FileFormatError(
            f"{table.source}: begins at t = {arrays['t'][0]:g} s, between two steps of {f.dt:g} s; give "
            "a column k with the numbers of the steps, or times that begin elsewhere"
        )
    arrays["k0"] = round(float(first))
    if BEFORE in table:
        arrays["before"] = before = float(table.numbers(BEFORE)[0])
        if not 0 < before < np.inf:
            raise FileFormatError(f"{table.source}: {BEFORE!r} should be a length > 0, s, got {before:g}")
    return arrays


def known_columns(table: Table, f: Any) -> dict[str, str]:
    """Return the names of the columns that contain a map's quantities.
    The keys of the result are the full names of the quantities.

    Raises FileFormatError for unknown ones.
    """
    columns: dict[str, str] = {}
    for column in table:
        if column in OWN:
            continue
        try:
            full = quantity_name(f, column, table.source)
        except ModelError as error:
            end = "" if str(error).endswith("?") else "."
            raise FileFormatError(
                f"{error}{end} Columns that are none of the map's: leave them out by table.only(...), or "
                "rename them by table.renamed(...)"
            ) from None
        if full in columns:
            raise FileFormatError(f"{table.source}: {columns[full]!r} and {column!r} are the same quantity")
        columns[full] = column
    return columns


def check_units(table: Table, f: Any, names: Mapping[str, str]) -> None:
    """Raise FileFormatError if a column's unit differs from the unit in the map (SI)."""
    map_units = {n: (n, "s") for n in (TIME, BEFORE)} | {
        full: (column, f.unit(full)) for full, column in names.items()
    }
    for column, wanted in map_units.values():
        got = table.units.get(column, "")
        if got and wanted and _plain(got) != _plain(wanted):
            raise FileFormatError(
                f"{table.source}: {column!r} is in {got}, expected {wanted}; convert it, and name it "
                f"{column} [{wanted}]"
            )


def _plain(unit: str) -> str:
    return unit.replace("²", "^2").replace("³", "^3").replace("*", " ").replace("·", " ").strip()
