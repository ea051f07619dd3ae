"""What passes through each other within a step: contact and limits hold at the ends of steps only."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from vioc.dynamics.terms.contacts import PairContact
from vioc.dynamics.terms.shapes import Sphere
from vioc.errors import CrossingWarning
from vioc.maps.trajectory import Trajectory

if TYPE_CHECKING:
    from vioc.dynamics.integrators.contact.map import ContactVI
    from vioc.dynamics.integrators.maximal.map import MaximalVI

TOUCHING = 1e-6  # m; or ten times what the smoothing holds open, where that is more
GRAZE = 0.01  # of the radii: what a path between samples may be off its chord


class Crossing(NamedTuple):
    """Of a gap, the first step in which it is crossed, in how many, and how deep it is between."""

    name: str
    step: int
    steps: int
    depth: float


def warn_crossed(run: Trajectory, found: Iterable[Crossing]) -> None:
    """Warn (`CrossingWarning`) where spheres pass through each other, or an angle leaps over its limits."""
    found = sorted(found, key=lambda c: c.step)
    if not found:
        return
    first, h = found[0], run.step_lengths[found[0].step]
    more = f" ({len(found) - 1} more gaps later)" if len(found) > 1 else ""
    unit = run.map.unit(f"gap.{first.name}")
    warnings.warn(
        f"{first.name} is crossed within a step: the gap is open at t = {run.t[first.step]:g} s and {h:g} s "
        f"later, but {first.depth:.3g} {unit} below zero between{more}. Contact holds at the ends of steps: "
        "what moves by more than its own size in one passes through; use a smaller dt",
        CrossingWarning,
        stacklevel=4,
    )


def open_from(f: ContactVI | MaximalVI, run: Trajectory) -> np.ndarray:
    """The gap from which a touch is open at the ends of each step (N,)."""
    return np.maximum(TOUCHING, 10 * np.sqrt(f.smoothing) * run.step_lengths)


def crossed_spheres(
    f: ContactVI | MaximalVI, run: Trajectory, gaps: Mapping[str, float]
) -> Iterator[Crossing]:
    """Of pairs of spheres, by straight paths between the samples; `gaps` are those at the start, by name."""
    pairs = zip(f.system.inequality_names, f.system.inequalities, strict=True)
    wanted = [(n, item) for n, item in pairs if isinstance(item, PairContact) and _of_spheres(item)]
    if not wanted:
        return
    places, open_at = f.frame_positions(run.x), open_from(f, run)
    for name, item in wanted:
        at = [f.system.frame_index(n) for n in (item.frame1, item.frame2)]
        ends = [np.zeros((len(run.x), 3)) if i < 0 else places[:, i] for i in at]
        d = ends[1] - ends[0]
        apart = np.linalg.norm(d, axis=1)
        reach = apart[0] - gaps[name]
        travel = np.diff(d, axis=0)
        length = np.sum(travel**2, axis=1)
        s = np.clip(-np.sum(d[:-1] * travel, axis=1) / np.where(length > 0, length, 1.0), 0.0, 1.0)
        depth = reach - np.linalg.norm(d[:-1] + s[:, None] * travel, axis=1)
        was_open, is_open = apart[:-1] - reach > open_at, apart[1:] - reach > open_at
        behind = np.sum(d[:-1] * d[1:], axis=1) < 0
        yield from first_crossed(name, (depth > GRAZE * reach) & ((was_open & is_open) | behind), depth)


def _of_spheres(item: PairContact) -> bool:
    """Whether two spheres about the origins of frames meet, whose paths are those of these."""
    shapes = item.shape1, item.shape2
    return all(isinstance(s, Sphere) and not any(map(float, s.center)) for s in shapes)


def first_crossed(name: str, crossed: np.ndarray, depth: np.ndarray) -> Iterator[Crossing]:
    steps = np.flatnonzero(crossed)
    if len(steps):
        yield Crossing(name, int(steps[0]), len(steps), float(depth[steps[0]]))
