"""Names in comments of generated C: they are free text, and must not end the comment they stand in."""

from __future__ import annotations

import re
from collections.abc import Iterable


def listed(names: Iterable[str]) -> str:
    """The names, separated by commas, with what C could read as more than a comment replaced by ``_``."""
    return ", ".join(re.sub(r"[^\w.:+= -]", "_", name) for name in names)
