"""The version of vioc and its copies: `python tests/release.py` writes the copies.

`vioc/__init__.py` holds the version. Files whose formats need a literal version repeat it, and
`make release-check` compares them.
"""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = "vioc/__init__.py", r'^__version__ = "([\w.]+)"$'
COPIES = (
    ("CITATION.cff", r"^version: ([\w.]+)$"),
    ("recipe/recipe.yaml", r'^  version: "([\w.]+)"$'),
    ("studies/pyproject.toml", r'^version = "([\w.]+)"$'),
    ("studies/pyproject.toml", r'"vioc==([\w.]+)"'),
)


def version(file: str, pattern: str) -> str:
    """Return the version that a file states; raise ValueError unless it states exactly one."""
    found = re.findall(pattern, (ROOT / file).read_text("utf-8"), re.MULTILINE)
    if len(found) != 1:
        raise ValueError(f"{file}: expected one version like {pattern}, found {len(found)}")
    return found[0]


def write() -> None:
    """Write the version of vioc into every copy."""
    new = version(*SOURCE)
    for file, pattern in COPIES:
        old, path = version(file, pattern), ROOT / file
        found = re.search(pattern, text := path.read_text("utf-8"), re.MULTILINE)
        path.write_text(text[: found.start(1)] + new + text[found.end(1) :], "utf-8")
        print(f"{file}: {old} -> {new}")


if __name__ == "__main__":
    write()
