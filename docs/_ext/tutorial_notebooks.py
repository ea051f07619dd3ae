"""Notebooks of pages: what a page of docs/ tells and runs, cell by cell, to look at and to download.

The Python blocks of a page are run by tests/test_docs.py, so its notebook holds what was run; MyST-NB runs it
once more for the site.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

PAGES = ("feedback", "trajectories", "controllability")  # of docs/tutorials: stabilize, optimize, analyze
BLOCK = re.compile(r"^```(\w+)([^\n]*)\n(.*?)^```$\n?", re.MULTILINE | re.DOTALL)
OWN = re.compile(r"^As a notebook: \{download\}.*\n", re.MULTILINE)
LINK = re.compile(r"\]\((?!https?:|#)([^)\s]+)\)")


def notebook(text: str) -> dict[str, Any]:
    """The notebook of a page in Markdown: Python blocks are cells; what they print is left to be run."""
    cells: list[tuple[str, str]] = []
    text, end, prose = OWN.sub("", text), 0, ""
    for block in BLOCK.finditer(text):
        language, flags, source = block.groups()
        prose += text[end : block.start()]
        end = block.end()
        if language == "python" and "no-run" not in flags.split():
            cells += [("markdown", prose.strip()), ("code", source.rstrip())]
            prose = ""
        elif language != "text" or not cells or prose.strip():
            prose += block.group()
    cells.append(("markdown", (prose + text[end:]).strip()))
    return {
        "cells": [
            {
                "cell_type": kind,
                "id": f"cell-{i}",
                "metadata": {},
                "source": LINK.sub("]", source) if kind == "markdown" else source,
            }
            | ({"execution_count": None, "outputs": []} if kind == "code" else {})
            for i, (kind, source) in enumerate(cells)
            if source
        ],
        "metadata": {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }


def write(folder: Path, target: Path) -> list[Path]:
    """Write the notebooks of a folder of pages; returns their paths."""
    target.mkdir(parents=True, exist_ok=True)
    found = []
    for name in PAGES:
        found.append(target / f"{name}.ipynb")
        found[-1].write_text(json.dumps(notebook((folder / f"{name}.md").read_text()), indent=1))
    return found


def setup(app: Any) -> dict[str, bool]:
    source = Path(app.srcdir)
    app.connect("builder-inited", lambda app: write(source / "tutorials", source / "generated" / "notebooks"))
    return {"parallel_read_safe": True}
