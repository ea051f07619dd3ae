"""Edits of a mechanism's tree of frames: attach frames, fix variables, and remove branches.

Trees are those of `System`: childless frames, each with the index of its parent, -1 for the world.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from vioc.dynamics.description.component import Component
from vioc.dynamics.description.frame import Frame, Pose, Transform, Twist
from vioc.dynamics.description.numbers import as_number
from vioc.errors import ModelError

Tree = list[tuple[Frame, int]]


def attached(tree: Sequence[tuple[Frame, int]], node: int, more: Iterable[tuple[Frame, int]]) -> Tree:
    """Return a tree with another tree attached to its `node`."""
    nodes = list(tree)
    begin = len(nodes)
    return nodes + [(frame, node if parent < 0 else begin + parent) for frame, parent in more]


def locked(tree: Sequence[tuple[Frame, int]], values: Mapping[str, float]) -> Tree:
    """Replace variables of a tree by constant values.
    Raise `ModelError` if one of these variables moves no frame.
    """
    remaining = {name: float(as_number(value, f"locked: {name}")) for name, value in values.items()}
    nodes = []
    for frame, parent in tree:
        driver = frame.transform.variable
        if driver is not None and driver.name in remaining:
            frame = replace(frame, transform=_held(frame.transform, remaining.pop(driver.name)))
        nodes.append((frame, parent))
    if remaining:
        raise ModelError(
            f"locked: {next(iter(remaining))!r} moves no frame; give its component a number instead"
        )
    return nodes


def _held(transform: Transform, q: float) -> Transform:
    """Return the constant transform of a joint whose variable is fixed at q."""
    if not isinstance(transform.value, Twist):
        return replace(transform, value=q)
    v, w = (np.array(part, float) for part in transform.twist)
    size = float(np.linalg.norm(w))
    if size == 0:
        return Transform("SE3", Pose(tuple((q * v).tolist()), tuple(np.eye(3).ravel().tolist())))
    a, angle = w / size, size * q
    K = np.array([[0, -a[2], a[1]], [a[2], 0, -a[0]], [-a[1], a[0], 0]])
    R = np.eye(3) + np.sin(angle) * K + (1 - np.cos(angle)) * K @ K
    lever = np.cross(a, v) / size
    p = lever - R @ lever + (a @ v) / size * angle * a
    return Transform("SE3", Pose(tuple(p.tolist()), tuple(R.ravel().tolist())))


def without(tree: Sequence[tuple[Frame, int]], removed: set[int]) -> tuple[Tree, set[str], set[str]]:
    """Remove frames and all their descendants from a tree.
    Return the new tree, the names of the removed variables and the names of the removed frames.

    Frames without name and mass whose children are all removed are removed, too.
    """
    if -1 in removed:
        raise ModelError("without: the world cannot be taken away")
    removed = set(removed)
    children_of: dict[int, set[int]] = {}
    for i, (_, parent) in enumerate(tree):
        children_of.setdefault(parent, set()).add(i)
        if parent in removed:
            removed.add(i)
    for i in reversed(range(len(tree))):
        frame, children = tree[i][0], children_of.get(i, set())
        if children and children <= removed and frame.name is None and frame.mass is None:
            removed.add(i)
    remaining = [i for i in range(len(tree)) if i not in removed]
    place = {-1: -1, **{i: n for n, i in enumerate(remaining)}}
    frames = [tree[i][0] for i in removed]
    variables = {f.transform.variable.name for f in frames if f.transform.variable is not None}
    names = {f.name for f in frames if f.name is not None}
    return [(tree[i][0], place[tree[i][1]]) for i in remaining], variables, names


def untouched(components: Iterable[Component], removed: set[str], what: str) -> list[Component]:
    """Return those components that act on no removed frame or variable.

    ModelError if a component joins a removed one with one that remains.
    """
    remaining = []
    for component in components:
        touched = {*component.variable_names(), *component.frame_names()} - {"world"}
        if not touched & removed:
            remaining.append(component)
        elif not touched <= removed:
            first, rest = sorted(touched & removed)[0], sorted(touched - removed)[0]
            raise ModelError(
                f"{what}: {component.label()} joins {first!r}, which is removed, with {rest!r}, which "
                "remains; name both, or remove the component from the system first"
            )
    return remaining
