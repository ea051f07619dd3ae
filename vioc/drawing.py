"""Access to the module of pictures, `vioc.viz`, imported when it is needed.

The methods `.plot()`, `.animate()` and `.view()` of results use it. Results do not import pictures: the
package registers the module.
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
    """Return the module `vioc.viz`, imported when something is drawn."""
    assert _door is not None  # set by the package's __init__
    return _door()


def plots() -> Any:
    """Return the module `vioc.viz.plots`."""
    return viz().plots
