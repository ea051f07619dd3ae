"""The way from a result to its picture: what `.plot()` of every result goes through."""

from __future__ import annotations

from typing import Any


def plots() -> Any:
    """The module `vioc.viz.plots`, imported when something is drawn: results do not depend on it."""
    from vioc.viz import plots

    return plots


def unit_of(f: Any, name: str) -> str:
    """SI unit of a map's quantity, "" where the map does not say."""
    unit = getattr(f, "unit", None)
    return unit(name) if unit is not None else ""
