"""Published results of the benchmarks, and the tables that `make docs` makes of them for docs/benchmarks.md.

The published results are the file ``results.json`` beside this module. It holds the machine and versions of
the run, the rows of each group, and notes on groups that were measured otherwise.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from studies.benchmarks.harness import Row, losses, machine, markdown, plain
from studies.benchmarks.plots import draw

RESULTS = Path(__file__).parent / "results.json"
PICTURES = Path(__file__).parents[2] / "docs" / "img"
PROBLEMS = {
    "steps": "studies/benchmarks/problems.py",
    "contact": "studies/benchmarks/problems.py",
    "derivatives": "studies/benchmarks/problems.py",
    "optimizers": "studies/benchmarks/problems.py",
    "ocp": "studies/benchmarks/robots.py",
    "ocp-scaling": "studies/benchmarks/robots.py",
    "mpc": "studies/benchmarks/mpc.py",
    "work-precision": "studies/benchmarks/work_precision.py",
    "batches": "studies/benchmarks/problems.py",
    "compile-times": "studies/benchmarks/problems.py",
    "first": "studies/benchmarks/first.py",
}
TITLES = {
    "first": "From a fresh process",
    "ocp": "Optimal control",
    "ocp-scaling": "Time of an iteration",
    "mpc": "Predictive control",
}


def title(group: str) -> str:
    """The heading of a group's table."""
    return TITLES.get(group, group.replace("-", " ").capitalize())


def publish(rows: Mapping[str, Sequence[Row]], curves: Mapping[str, Any]) -> None:
    """Write the rows of a full run as the published results, and the pictures of docs/benchmarks.md."""
    kept = {name: [_filled(row) for row in plain(group)] for name, group in rows.items()}
    result = {"machine": machine(), "rows": kept}
    RESULTS.write_text(json.dumps(result, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    draw(curves, PICTURES)


def read(path: Path | None = None) -> tuple[str, dict[str, list[Row]], dict[str, str]]:
    """Machine, rows by group and notes by group of the published results."""
    result = json.loads((path or RESULTS).read_text(encoding="utf-8"))
    rows = {name: [Row(**{"figures": {}} | row) for row in group] for name, group in result["rows"].items()}
    return result["machine"], rows, result.get("notes", {})


def section(group: str, path: Path | None = None) -> str:
    """The published table of a group, below the files of its problems; as Markdown."""
    _, rows, notes = read(path)
    problems, _, table = markdown(rows[group], PROBLEMS[group]).partition("\n\n")
    return f"{problems} {notes.get(group, '')}".rstrip() + f"\n\n{table}"


def summary(path: Path | None = None) -> str:
    """Machine and versions of the published results, and the number of losses; as Markdown."""
    versions, rows, _ = read(path)
    return f"{versions}\n\n{losses(rows)}"


def body(rows: Mapping[str, Sequence[Row]]) -> str:
    """The page of a run: machine and versions, number of losses, a table for each group."""
    tables = "\n\n".join(f"### {title(name)}\n\n{markdown(r, PROBLEMS[name])}" for name, r in rows.items())
    return f"{machine()}\n\n{losses(rows)}\n\n{tables}"


def _filled(row: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in row.items() if value or (key == "remark" and value is not None)}
