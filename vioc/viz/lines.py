"""Lines that draw links, rails, strings, springs and cables of a mechanism."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from vioc.dynamics.description.component import Constraint
from vioc.dynamics.description.system import System
from vioc.dynamics.terms.cables import SheaveString
from vioc.dynamics.terms.capstan import DrumRope
from vioc.dynamics.terms.constraints import (
    DistanceConstraint,
    PointConstraint,
    PointOnPlane,
    StringConstraint,
)
from vioc.dynamics.terms.contacts import Contact
from vioc.dynamics.terms.forces import LinearDamper
from vioc.dynamics.terms.potentials import LinearSpring
from vioc.viz.poses import Places, aligned, number, numbers

ARC = 24  # points of a string on its sheave
MARGIN = 0.03  # margin of a rail or plane beyond the motion, relative to the mechanism's extent


@dataclass(frozen=True)
class Line:
    """Polyline of a drawn scene, with the positions of its points at every time.

    Attributes
    ----------
    kind : str
        A key of `vioc.viz.looks.COLORS`.
    name : str
    points : (T, k, 3)
        In the world, m.
    group : int or None
        Node on which it is fixed (-1 the world); None if its shape changes, or its ends move apart.
    """

    kind: str
    name: str
    points: np.ndarray
    group: int | None = None


# -- the tree ---------------------------------------------------------------------------------------


def slides(system: System) -> np.ndarray:
    """Return a mask of the frames that a translational variable moves."""
    moves = (node.frame.transform for node in system.nodes)
    return np.array([t.variable is not None and not t.rotational for t in moves])


def carriages(system: System) -> list[int]:
    """Return the indices of frames that slide along a line, such as carts on rails.

    Several translations without a mass between them are free motion.
    """
    sliding, free = slides(system), set()
    for i, node in enumerate(system.nodes):
        parent = node.parent
        if sliding[i] and parent >= 0 and sliding[parent] and system.nodes[parent].frame.mass is None:
            free |= {i, parent}
    return [i for i in np.flatnonzero(sliding).tolist() if i not in free]


def hoisted(system: System) -> list[int]:
    """Return the indices of sliding frames whose parent rotates and has no mass.

    Examples are hoists and telescopic arms.
    """
    nodes = []
    for i in carriages(system):
        parent = system.nodes[i].parent
        frame = system.nodes[parent].frame
        if parent >= 0 and frame.mass is None and frame.transform.rotational and frame.transform.variable:
            nodes.append(i)
    return nodes


def cable_nodes(system: System) -> list[list[int]]:
    """Return the cables of a system, which are chains of frames NAME-0, NAME-1, ...

    A cable has three or more frames, each below the previous one.
    """
    chains: dict[str, list[int]] = {}
    for i, node in enumerate(system.nodes):
        match = re.fullmatch(r"(.*)-(\d+)", node.frame.name or "")
        if match:
            chain = chains.setdefault(match[1], [])
            connected = not chain or chain[-1] in _ancestors(system, i)
            if int(match[2]) == len(chain) and connected:
                chain.append(i)
    return [c for c in chains.values() if len(c) >= 3 and _smooth(system, c)]


def _smooth(system: System, chain: list[int]) -> bool:
    """Return whether no other named frame lies between the frames of a chain.

    For example `link-0` below `tip-0` is a linkage, not a cable.
    """
    names = [system.nodes[i].frame.name for i in chain]
    for i in _between(system, chain):
        name = system.nodes[i].frame.name
        if name is not None and name not in names:
            return False
    return True


def _between(system: System, chain: list[int]) -> list[int]:
    """Return the indices of all frames from the first to the last frame of a chain."""
    path = [chain[-1], *_ancestors(system, chain[-1])]
    return path[: path.index(chain[0]) + 1][::-1]


def _ancestors(system: System, i: int) -> list[int]:
    ancestors = []
    while (i := system.nodes[i].parent) >= 0:
        ancestors.append(i)
    return ancestors


def tree_lines(places: Places) -> tuple[list[Line], set[int]]:
    """Return lines of links, rails and cables, and the indices of the cables' frames."""
    system, lines = places.system, []
    cables = cable_nodes(system)
    part_of = {i for c in cables for i in _between(system, c)}
    for chain in cables:
        name = (system.nodes[chain[0]].frame.name or "").rpartition("-")[0]
        lines.append(Line("cable", name, places.positions[:, chain]))
    sliding, ropes = slides(system), hoisted(system)
    for i, node in enumerate(system.nodes):
        if (sliding[i] and i not in ropes) or (i in part_of and node.parent in part_of):
            continue
        points = np.stack([places.position(node.parent), places.positions[:, i]], axis=1)
        if np.abs(points[:, 1] - points[:, 0]).max() > 1e-9 * max(places.span, 1e-9):
            fixed = not sliding[i] and places.group(i) == places.group(node.parent)
            kind = "link" if node.parent >= 0 else "ground"
            lines.append(
                Line(kind, node.frame.name or "", points, places.group(node.parent) if fixed else None)
            )
    for i in carriages(system):
        if i not in part_of:
            lines.append(_rail(places, i))
    return lines, part_of


def _rail(places: Places, i: int) -> Line:
    """Return the line that draws the rail of a sliding frame.
    The line covers all positions of the frame.

    It is extended to the parent if this has a mass.
    """
    node = places.system.nodes[i]
    R, origin = places.rotation(node.parent), places.position(node.parent)
    direction = np.array(node.frame.transform.twist[0])
    direction = direction / np.linalg.norm(direction)
    along = np.einsum("tj,tjk,k->t", places.positions[:, i] - origin, R, direction)
    margin = MARGIN * places.span
    ends = np.array([along.min() - margin, along.max() + margin])
    if node.parent >= 0 and places.system.nodes[node.parent].frame.mass is not None:
        ends = np.array([min(ends[0], 0.0), max(ends[1], 0.0)])
    ends = ends[:, None] * direction
    return Line("rail", node.frame.name or "", places.place(node.parent, ends), places.group(node.parent))


# -- components -------------------------------------------------------------------------------------


def component_lines(places: Places, parameters: Mapping[str, float]) -> list[Line]:
    """Return the lines that draw potentials, forces and constraints of a mechanism."""
    system, lines = places.system, []
    names = iter(system.constraint_names)
    pins: dict[tuple[str, str], list[PointConstraint]] = {}
    for item in system.components:
        name = next(names) if isinstance(item, Constraint) else item.name or ""
        if isinstance(item, (LinearSpring, LinearDamper)):
            lines.append(
                _between_frames(places, "spring" if isinstance(item, LinearSpring) else "damper", item)
            )
        elif isinstance(item, (SheaveString, DrumRope)):
            lines += _over_sheave(places, item, name, parameters)
        elif isinstance(item, DistanceConstraint):
            kind = "string" if isinstance(item, StringConstraint) else "rod"
            lines.append(_between_frames(places, kind, item, name))
        elif isinstance(item, PointConstraint):
            pins.setdefault((item.frame1, item.frame2), []).append(item)
        elif isinstance(item, PointOnPlane):
            n = numbers(item.normal, parameters)
            offset = number(item.offset, parameters) / (n @ n) * n
            lines.append(_plane(places, item.point, item.plane, item.plane, n, offset, name))
    for (one, two), items in pins.items():
        if len(items) > 1:
            points = np.stack([places.position(one), places.position(two)], axis=1)
            lines.append(Line("pin", f"{one}-{two}", points))
        else:
            n = numbers(items[0].direction, parameters)
            lines.append(_plane(places, one, two, items[0].direction_in, n, np.zeros(3), items[0].name or ""))
    return [*lines, *_contact_points(places, parameters)]


def _contact_points(places: Places, parameters: Mapping[str, float]) -> list[Line]:
    """Return the lines that draw contact points of spheres on the ground.
    A contact point is the point of a sphere that is nearest to the plane of the ground. Each `Line` has one
    point."""
    lines = []
    for item in places.system.inequalities:
        if isinstance(item, Contact):
            n = numbers(item.normal, parameters)
            up = places.rotation(item.plane) @ (n / np.linalg.norm(n))
            centre = places.place(item.frame, numbers(item.center, parameters)[None])
            points = centre - number(item.radius, parameters) * up[:, None]
            lines.append(Line("contact", item.name or "", points))
    return lines


def _between_frames(places: Places, kind: str, item: Any, name: str = "") -> Line:
    points = np.stack([places.position(item.frame1), places.position(item.frame2)], axis=1)
    return Line(kind, name or item.name or "", points)


def _plane(
    places: Places, point: str, origin: str, axes: str, normal: np.ndarray, offset: np.ndarray, name: str
) -> Line:
    """Return a rectangle that draws the plane to which a point is constrained.
    The rectangle contains all positions of the point.
    """
    n = normal / np.linalg.norm(normal)
    basis = aligned(n)[:, :2].T
    R = places.rotation(axes)
    moved = np.einsum("tj,tjk->tk", places.position(point) - places.position(origin), R) @ basis.T
    margin = 2 * MARGIN * max(places.span, 1e-9)
    low, high = moved.min(axis=0) - margin, moved.max(axis=0) + margin
    corners = np.array([[low[0], low[1]], [high[0], low[1]], [high[0], high[1]], [low[0], high[1]]])
    square = corners[[0, 1, 2, 3, 0]] @ basis + offset
    points = places.position(origin)[:, None] + square @ np.swapaxes(R, 1, 2)
    group = places.group(axes)
    return Line("plane", name, points, group if group == places.group(origin) else None)


def _over_sheave(
    places: Places, item: SheaveString | DrumRope, name: str, parameters: Mapping[str, float]
) -> list[Line]:
    """Return the lines that draw a string over a sheave, and the sheave itself.

    The string runs counter-clockwise about the axis.
    """
    axis = numbers(item.axis, parameters)
    axis = axis / np.linalg.norm(axis)
    center, r = places.position(item.sheave), number(item.radius, parameters)
    a = places.rotation(item.sheave) @ axis
    ends = [places.position(item.frame1), places.position(item.frame2)]
    if r == 0.0:
        return [Line("string", name, np.stack([ends[0], center, ends[1]], axis=1))]
    arms = [e - center for e in ends]
    arms = [d - np.sum(a * d, axis=1, keepdims=True) * a for d in arms]
    far = [np.linalg.norm(d, axis=1) for d in arms]
    e1 = arms[0] / far[0][:, None]
    e2 = np.cross(a, e1)
    angle = np.arctan2(np.sum(arms[1] * e2, axis=1), np.sum(arms[1] * e1, axis=1)) % (2 * np.pi)
    first, last = (np.arccos(np.clip(r / f, -1, 1)) for f in far)
    share = np.linspace(0, 1, ARC)[:, None]
    turn = first + share * (angle - last - first)
    arc = center + r * (np.cos(turn)[..., None] * e1 + np.sin(turn)[..., None] * e2)
    clear = angle < first + last  # the string does not touch the sheave
    arc[:, clear] = (ends[0] + share[..., None] * (ends[1] - ends[0]))[:, clear]
    string = np.concatenate([ends[0][:, None], np.swapaxes(arc, 0, 1), ends[1][:, None]], axis=1)
    around = np.linspace(0, 2 * np.pi, 41)
    rim = r * np.stack([np.cos(around), np.sin(around)], axis=1) @ aligned(axis)[:, :2].T
    wheel = Line("sheave", item.sheave, places.place(item.sheave, rim), places.group(item.sheave))
    return [Line("string", name, string), wheel]
