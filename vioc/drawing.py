"""Access to the plotting package `vioc.viz`, which is imported only when it is needed.

The methods `.plot()`, `.animate()` and `.view()` of results use it. Results do not import pictures: the
package registers the module.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_door: Callable[[], Any] | None = None


def pictures_are_at(door: Callable[[], Any]) -> None:
    """Register the function that imports `vioc.viz`, the plotting package."""
    global _door
    _door = door


def viz() -> Any:
    """Import and return `vioc.viz`, the plotting package."""
    assert _door is not None  # set by the package's __init__
    return _door()


def plots() -> Any:
    """Import and return the module `vioc.viz.plots`, which draws plots of motions."""
    return viz().plots
