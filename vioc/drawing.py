"""The one door from results to their pictures: `.plot()`, `.animate()` and `.view()` go through it.

Results know nothing of pictures; the package says, when it is imported, where they are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_door: Callable[[], Any] | None = None


def pictures_are_at(door: Callable[[], Any]) -> None:
    """Register the function that imports `vioc.viz`, the module of pictures."""
    global _door
    _door = door


def viz() -> Any:
    """The module `vioc.viz`, imported when something is drawn."""
    assert _door is not None  # the package's __init__ has set it
    return _door()


def plots() -> Any:
    """The module `vioc.viz.plots`."""
    return viz().plots
