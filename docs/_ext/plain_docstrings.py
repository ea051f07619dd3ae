"""Docstrings are plain text with `names` and ``code``: what else is markup to Sphinx is escaped.

|x| is a norm and p* a product there, neither a substitution nor an emphasis.
"""

from __future__ import annotations

import re
from typing import Any

LITERAL = re.compile(r"(``.+?``|`[^`]+`)")
STARS = re.compile(r"^\s*\*{1,2}\w+(, \*{1,2}\w+)*( :|$)")  # *args, **kwargs as names of parameters


def escaped(line: str) -> str:
    """The line with nothing but backticks as markup."""
    if STARS.match(line):
        return line
    parts = LITERAL.split(line)
    for i in range(0, len(parts), 2):
        parts[i] = re.sub(r"\\", r"\\\\", parts[i])
        parts[i] = re.sub(r"[|*]", r"\\\g<0>", parts[i])
        parts[i] = re.sub(r"(?<=\w)_(?!\w)", r"\\_", parts[i])
    return "".join(parts)


def process(lines: list[str]) -> None:
    """Escape in place what is not in a literal block (after ``::``, indented)."""
    literal: int | None = None  # the indentation of the line that ends in ::
    for i, line in enumerate(lines):
        indent = len(line) - len(line.lstrip())
        if literal is not None and line.strip() and indent <= literal:
            literal = None
        if literal is None:
            if line.rstrip().endswith("::"):
                literal = indent
            lines[i] = escaped(line)


def setup(app: Any) -> dict[str, bool]:
    # before napoleon (priority 500), whose own markup stays
    app.connect("autodoc-process-docstring", lambda app, what, name, obj, o, lines: process(lines), 100)
    return {"parallel_read_safe": True}
