"""First lines of docstrings: a noun phrase or an imperative, understood without the file around it."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest

SOURCE = Path(__file__).parents[1] / "vioc"
LENGTH = 80  # longest first line
# Words that begin a clause without a noun: a reader needs the signature or the file to understand it
OPENINGS = re.compile(
    r"(Of|What|Those|That|By|Where|Whether|Which|Its|With|As|This|From|At|For|In|On|Their|So|To|It|They|When|No"
    r"|Only|How)\b"
)
# Packages and modules whose first lines fit `LENGTH`
DONE = (
    "cables",
    "cli",
    "compile",
    "control",
    "identification",
    "interop",
    "learning",
    "models",
    "names",
    "runs",
    "sweeps",
    "target",
    "viz",
)


@cache
def _first_lines() -> list[tuple[str, str, str]]:
    """Return room, place and first line of every docstring."""
    lines = []
    for path in sorted(SOURCE.rglob("*.py")):
        room = path.relative_to(SOURCE).parts[0].removesuffix(".py")
        nodes: list[Any] = [ast.parse(path.read_text("utf-8"))]
        for node in nodes:  # which grows; definitions stand in statements alone
            nodes += (
                n
                for n in ast.iter_child_nodes(node)
                if isinstance(n, (ast.stmt, ast.excepthandler, ast.match_case))
            )
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
                text = ast.get_docstring(node)
                if text:
                    place = f"{path.relative_to(SOURCE.parent)}:{getattr(node, 'lineno', 1)}"
                    lines.append((room, place, text.splitlines()[0]))
    return lines


def test_no_first_line_begins_with_a_dependent_word():
    assert not [f"{place}: {line}" for _, place, line in _first_lines() if OPENINGS.match(line)]


@pytest.mark.parametrize("room", DONE)
def test_first_lines_are_short(room):
    assert not [
        f"{place}: {line}" for own, place, line in _first_lines() if own == room and len(line) > LENGTH
    ]


def test_the_table_has_rooms_of_the_source():
    rooms = {room for room, _, _ in _first_lines()}
    assert rooms.issuperset(DONE)
