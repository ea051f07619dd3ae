"""Printing of values, warnings and tables, shared by several commands."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from vioc.dynamics.consistency import ConstraintReport
    from vioc.dynamics.integrators.maximal import MaximalVI
    from vioc.dynamics.integrators.mechanical import MechanicalMap

ROUNDING = 1e-12  # relative to the largest of the values printed together


def print_values(
    f: MechanicalMap | MaximalVI, title: str, names: Sequence[str], values: np.ndarray, prefix: str = ""
) -> None:
    """Print name, value and unit of each quantity, one in a line.

    Values that are rounding errors relative to the largest are printed as 0.
    """
    values = np.where(np.abs(values) > ROUNDING * np.abs(values).max(initial=0.0), values, 0.0)
    print(title if names else f"{title}  none")
    width = max(map(len, names), default=0)
    for name, value in zip(names, values, strict=True):
        print(f"  {name:{width}} {value:14.8g} {f.unit(prefix + name)}".rstrip())


@contextmanager
def remarks() -> Iterator[None]:
    """Collect the warnings that occur in a ``with`` block, and print them at its end.
    They are printed to stderr.
    """
    with warnings.catch_warnings(record=True) as records:
        warnings.simplefilter("always")
        yield
    for remark in records:
        print(f"vioc: warning: {remark.message}", file=sys.stderr)


def print_start(report: ConstraintReport | None) -> None:
    """Print how well an initial state satisfies the constraints.
    Print nothing if `report` is None.
    """
    if report:
        print(f"start found  {report}")


def table(title: str, rows: Sequence[str], columns: Sequence[str], values: np.ndarray) -> str:
    """Return a matrix as text with row and column names.

    Entries that are rounding errors relative to their row and column are printed as 0.
    """
    sizes = np.abs(values)
    limit = np.minimum(sizes.max(1, initial=0.0, keepdims=True), sizes.max(0, initial=0.0, keepdims=True))
    values = np.where(sizes > ROUNDING * limit, values, 0.0)
    width = max(14, *(len(c) + 2 for c in columns))
    first = max(len(r) for r in rows) + 2
    lines = [title.ljust(first) + "".join(c.rjust(width) for c in columns)]
    lines += [
        ("  " + r).ljust(first) + "".join(f"{v:{width}.6g}" for v in row)
        for r, row in zip(rows, values, strict=True)
    ]
    return "\n".join(lines)
