"""Colours of drawn objects: by kind for a single run, by run for several runs."""

from __future__ import annotations

COLORS = {
    "link": "#1f77b4",
    "ground": "#b5b5b5",
    "rail": "#d5d5d5",
    "rod": "#d62728",
    "string": "#8c2d04",
    "cable": "#5b3a1a",
    "spring": "#2ca02c",
    "damper": "#17807e",
    "pin": "#555555",
    "plane": "#a9a9c8",
    "sheave": "#7f7f7f",
    "shape": "#7d8aa5",
    "mass": "#ff7f0e",
    "inertia": "#c59a6d",
    "contact": "#222222",
    "obstacle": "#c0392b",
    "target": "#0b8043",
}
STANDS = (
    "rail",
    "plane",
    "ground",
    "obstacle",
    "target",
)  # kinds that keep their colour if several runs are shown
RUNS = ("#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#17becf", "#8c564b", "#e377c2")
REFERENCE = "#8a8a8a"


def run_colors(labels: list[str]) -> list[str | None]:
    """Return a colour for each of several runs; None for a single one.
    Objects of a single run have the colours of their kinds.

    A reference is grey.
    """
    if len(labels) == 1:
        return [None]
    supply = 0
    colors: list[str | None] = []
    for label in labels:
        if label.lower() in ("reference", "desired", "target"):
            colors.append(REFERENCE)
        else:
            colors.append(RUNS[supply % len(RUNS)])
            supply += 1
    return colors


def rgb(color: str) -> tuple[int, int, int]:
    """Convert a colour ``"#1f77b4"`` to red, green and blue, (31, 119, 180)."""
    value = int(color[1:], 16)
    return value >> 16, value >> 8 & 255, value & 255
