"""Search for the contact points of boxes and convex hulls at given poses.

Two polytopes do not overlap if a plane separates them: the plane of a face of one of them, or a plane
parallel to an edge of each. The best of these planes at the start of a step, and the contact points on it,
are fixed during the step, in which their gaps are smooth. docs/maths/contact.md, "Boxes and hulls".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from vioc.dynamics.contact.polytopes import OFF, PLACES, SAME, Pair

BIAS = 1e-3  # required advantage of a plane of edges over one of a face, relative to the size
BESIDE = 1e-6  # largest distance of a point beside a face on which it counts, relative to the size
AHEAD = 1.5  # range of the search, in distances that bodies travel in a step


class MeetingPlaces(NamedTuple):
    """Contact points of pairs of polytopes, which touch or may touch within a step.

    Attributes
    ----------
    rows : (pairs, PLACES, NUMBERS)
    counts : (pairs,)
        Number of contact points of each pair.
    gaps : (pairs,)
        Smallest gap of each pair; infinite if the two are far apart.
    """

    rows: np.ndarray
    counts: np.ndarray
    gaps: np.ndarray

    def of(self, i: int) -> tuple[np.ndarray, int]:
        """Return the contact points of pair number i of polytopes, as rows of an array, and their number.
        A row has the numbers that define one contact point, such as its coordinates on both bodies.
        """
        return self.rows[i].copy(), int(self.counts[i])


class _Stack:
    """Pairs of polytopes with equal numbers of corners, faces and edges, stacked in arrays."""

    def __init__(self, pairs: Sequence[Pair], index: list[int]):
        chosen = [pairs[i] for i in index]
        self.index = np.array(index)
        self.bodies = np.array([p.bodies for p in chosen])
        self.sides = []
        for which in ("first", "second"):
            some = [getattr(p, which) for p in chosen]
            self.sides.append(
                {
                    name: np.stack([getattr(s, name) for s in some])
                    for name in ("corners", "normals", "levels", "faces", "directions", "edges", "along")
                }
            )
        self.size = np.array([p.first.radius + p.second.radius for p in chosen]) / 2


class Features:
    """Finder of the contact points of several pairs of polytopes.

    Parameters
    ----------
    pairs : sequence of Pair

    Attributes
    ----------
    sizes, smaller : (pairs,)
        Mean and smaller radius of the spheres around the two polytopes.
    """

    def __init__(self, pairs: Sequence[Pair]):
        self.pairs = list(pairs)
        groups: dict[tuple, list[int]] = {}
        for i, pair in enumerate(self.pairs):
            groups.setdefault((pair.first.topology, pair.second.topology), []).append(i)
        self._stacks = [_Stack(self.pairs, index) for index in groups.values()]
        self._bodies = np.array([p.bodies for p in self.pairs]).reshape(-1, 2)
        self._centers = np.array([[p.first.center, p.second.center] for p in self.pairs]).reshape(-1, 2, 3)
        self._radii = np.array([[p.first.radius, p.second.radius] for p in self.pairs]).reshape(-1, 2)
        self._levers = self._radii + np.linalg.norm(self._centers, axis=2)
        self.sizes = self._radii.sum(axis=1) / 2
        self.smaller = self._radii.min(axis=1, initial=np.inf)

    def at(self, x: np.ndarray, R: np.ndarray, twists: np.ndarray, dt: float) -> MeetingPlaces:
        """Return the contact points of all polytopes that can touch in a step of length dt.
        They are computed from the poses and twists of n bodies at the start of the step: positions x (n, 3),
        rotations R (n, 3, 3) and twists (n, 6).
        """
        x, R = np.vstack([x, np.zeros((1, 3))]), np.concatenate([R, np.eye(3)[None]])  # index -1 is the world
        V = np.vstack([twists, np.zeros((1, 6))])
        count = len(self.pairs)
        rows = np.tile(OFF, (count, PLACES, 1))
        counts, gaps = np.zeros(count, int), np.full(count, np.inf)
        b = self._bodies
        spots = x[b] + np.einsum("pbij,pbj->pbi", R[b], self._centers)
        speed = np.linalg.norm(V[b, :3], axis=2) + np.linalg.norm(V[b, 3:], axis=2) * self._levers
        reach = AHEAD * dt * (speed.sum(axis=1) + 10.0 * dt) + BIAS * self._radii.sum(axis=1)
        distance = np.linalg.norm(spots[:, 1] - spots[:, 0], axis=1) - self._radii.sum(axis=1)
        mask = distance < reach
        for stack in self._stacks:
            chosen = np.flatnonzero(mask[stack.index])
            if len(chosen):
                indices = stack.index[chosen]
                rows[indices], counts[indices], gaps[indices] = _places(stack, chosen, x, R, reach[indices])
        return MeetingPlaces(rows, counts, gaps)


def _places(stack: _Stack, chosen: np.ndarray, x: np.ndarray, R: np.ndarray, reach: np.ndarray):
    """Return, for each chosen pair of polytopes, its contact points, their number and the smallest gap.
    The indices `chosen` select pairs of the stack. A pair has at most PLACES contact points, and none if its
    gap is not below `reach`. The positions x and rotations R are those of all bodies.
    """
    count, size = len(chosen), stack.size[chosen]
    bodies = stack.bodies[chosen]
    parts, corners, normals, levels = [], [], [], []
    for k in range(2):
        side = {name: a[chosen] for name, a in stack.sides[k].items()}
        Rk, xk = R[bodies[:, k]], x[bodies[:, k]]
        parts.append(side)
        corners.append(side["corners"] @ np.swapaxes(Rk, 1, 2) + xk[:, None])
        normals.append(side["normals"] @ np.swapaxes(Rk, 1, 2))
        levels.append(side["levels"] + np.einsum("pfi,pi->pf", normals[k], xk))
    # the best separating plane: of a face of either, or parallel to an edge of each
    over = [(normals[k] @ np.swapaxes(corners[1 - k], 1, 2)).min(axis=2) - levels[k] for k in range(2)]
    face = [o.argmax(axis=1) for o in over]
    best = np.stack([o.max(axis=1) for o in over])
    E = [parts[k]["directions"] @ np.swapaxes(R[bodies[:, k]], 1, 2) for k in range(2)]
    axes = np.cross(E[0][:, :, None], E[1][:, None]).reshape(count, -1, 3)
    length = np.linalg.norm(axes, axis=2)
    usable = length > 1e-4
    axes = axes / np.where(usable, length, 1.0)[..., None]
    reaches = [axes @ np.swapaxes(c, 1, 2) for c in corners]
    ways = [reaches[k].min(axis=2) - reaches[1 - k].max(axis=2) for k in (1, 0)]
    axes *= np.where(ways[1] > ways[0], -1.0, 1.0)[..., None]
    between = np.where(usable, np.maximum(*ways), -np.inf)
    axis = between.argmax(axis=1)
    pair = np.arange(count)
    by_edge = between[pair, axis] > best.max(axis=0) + BIAS * size
    owner = (best[1] > best[0] + 1e-9).astype(int)  # side that owns the face
    rows, counts = np.tile(OFF, (count, PLACES, 1)), np.zeros(count, int)
    gaps = np.maximum(between[pair, axis], best.max(axis=0))
    open_ = gaps < reach
    for k in range(2):
        index = np.flatnonzero(open_ & ~by_edge & (owner == k))
        if len(index):
            rows[index], counts[index] = _on_face(
                k, index, parts, corners, normals, face[k], gaps, size, reach, R, x, bodies
            )
    index = np.flatnonzero(open_ & by_edge)
    if len(index):
        rows[index, 0] = _on_edges(index, parts, corners, axes[pair, axis], axis, E[1].shape[1], R, x, bodies)
        counts[index] = 1
    return rows, counts, np.where(open_, gaps, np.inf)


def _on_face(k, index, parts, corners, normals, face, gaps, size, reach, R, x, bodies):
    """Return the contact points of polytope pairs that touch at a face of one polytope.
    In each pair, this face has the index `face` and belongs to polytope number k (0 or 1). Contact points are
    computed from this face and the most nearly opposite face of the other polytope.
    """
    pair, count = np.arange(len(index)), len(index)
    f = face[index]
    n = normals[k][index, f]
    other = np.einsum("pfi,pi->pf", normals[1 - k][index], n).argmin(axis=1)
    m = normals[1 - k][index, other]
    ref = corners[k][index[:, None], parts[k]["faces"][index, f]]
    inc = corners[1 - k][index[:, None], parts[1 - k]["faces"][index, other]]
    origin = ref.mean(axis=1)
    t1 = ref[:, 1] - ref[:, 0]
    t1 /= np.linalg.norm(t1, axis=1)[:, None]
    frame = np.stack([t1, np.cross(n, t1)], axis=2)  # (p, 3, 2)
    a, b = ((s - origin[:, None]) @ frame for s in (ref, inc))
    area = np.sign(_cross(b[:, 1] - b[:, 0], np.roll(b, -1, axis=1)[:, 1] - b[:, 1]))
    b = np.where(
        area[:, None, None] < 0, b[:, ::-1], b
    )  # the other face is seen from behind, so that its order is reversed
    inc = np.where(area[:, None, None] < 0, inc[:, ::-1], inc)
    slack = BESIDE * size[index]
    inside_ref, inside_inc = _inside(a, b, slack), _inside(b, a, slack)
    # points of the second face above the corners of the first, along n
    slope = np.einsum("pi,pi->p", m, n)
    rise = np.einsum("pvi,pi->pv", inc[:, :1] - ref, m) / np.where(slope < -1e-3, slope, -1.0)[:, None]
    lifted = ref + rise[..., None] * n[:, None]
    inside_inc &= (slope < -1e-3)[:, None]
    # crossings of edges
    da, db = np.roll(a, -1, axis=1) - a, np.roll(b, -1, axis=1) - b
    det = _cross(da[:, :, None], db[:, None])
    gap2 = b[:, None] - a[:, :, None]
    flat = np.abs(det) < 1e-12 * size[index][:, None, None] ** 2
    safe = np.where(flat, 1.0, det)
    s, t = _cross(gap2, db[:, None]) / safe, _cross(gap2, da[:, :, None]) / safe
    crossing = ~flat & (s >= 0) & (s <= 1) & (t >= 0) & (t <= 1)
    di = np.roll(inc, -1, axis=1) - inc
    crossed = inc[:, None] + t[..., None] * di[:, None]
    points = np.concatenate([inc, lifted, crossed.reshape(count, -1, 3)], axis=1)
    valid = np.concatenate([inside_ref, inside_inc, crossing.reshape(count, -1)], axis=1)
    gap = np.einsum("pci,pi->pc", points - origin[:, None], n)
    valid &= gap < reach[index][:, None]
    none = ~valid.any(axis=1)  # the faces do not cover each other: take the lowest corner
    lowest = gap[:, : inc.shape[1]].argmin(axis=1)
    valid[none, lowest[none]] = True
    # if no point has the overlap, add the deepest corner: it can be on another face, or beside this one
    deepest = np.where(valid, gap, np.inf).min(axis=1)
    unseen = (gaps[index] < 0) & (deepest > gaps[index] + BESIDE * size[index])
    height = np.einsum("pvi,pi->pv", corners[1 - k][index] - origin[:, None], n)
    deepest_corner = height.argmin(axis=1)
    points = np.concatenate([points, corners[1 - k][index, deepest_corner][:, None]], axis=1)
    gap = np.column_stack([gap, height[pair, deepest_corner]])
    valid = np.column_stack([valid, unseen])
    place = np.zeros((count, PLACES), int)
    counts, tolerance = np.zeros(count, int), (SAME * size[index]) ** 2
    order = np.argsort(
        np.where(valid, np.round(gap / (BESIDE * size[index][:, None])), np.inf), axis=1, kind="stable"
    )
    for column in order.T:
        spot = points[pair, column]
        accepted = points[pair[:, None], place]
        far = ((accepted - spot[:, None]) ** 2).sum(axis=2) > tolerance[:, None]
        far |= np.arange(PLACES) >= counts[:, None]
        take = valid[pair, column] & far.all(axis=1) & (counts < PLACES)
        place[pair[take], counts[take]] = column[take]
        counts[take] += 1
    selection = points[pair[:, None], place]
    feet = selection - gap[pair[:, None], place][..., None] * n[:, None]
    mask = np.arange(PLACES) < counts[:, None]
    sides = (feet, selection) if k == 0 else (selection, feet)
    normal = n if k == 0 else -n
    return _rows(index, sides, np.repeat(normal[:, None], PLACES, axis=1), k, mask, R, x, bodies), counts


def _on_edges(index, parts, corners, axes, axis, width, R, x, bodies):
    """Return the contact point between an edge of one polytope and an edge of the other."""
    pair, n = np.arange(len(index)), axes[index]
    ends = []
    for k, which in enumerate((axis[index] // width, axis[index] % width)):
        edges = corners[k][index[:, None, None], parts[k]["edges"][index]]  # (p, e, 2, 3)
        height = np.einsum("pei,pi->pe", edges.mean(axis=2), n) * (1 if k == 0 else -1)
        height[parts[k]["along"][index] != which[:, None]] = -np.inf
        ends.append(edges[pair, height.argmax(axis=1)])
    (p, q), (r, s) = (np.moveaxis(e, 1, 0) for e in ends)
    d, e, w = q - p, s - r, r - p
    a, b, c = (np.einsum("pi,pi->p", *two) for two in ((d, d), (d, e), (e, e)))
    u, v = np.einsum("pi,pi->p", d, w), np.einsum("pi,pi->p", e, w)
    det = a * c - b * b
    on_first = np.clip((u * c - b * v) / det, 0, 1)
    on_second = np.clip((u * b - a * v) / det, 0, 1)
    sides = (p + on_first[:, None] * d)[:, None], (r + on_second[:, None] * e)[:, None]
    return _rows(index, sides, n[:, None], 0, np.ones((len(index), 1), bool), R, x, bodies)[:, 0]


def _rows(index, sides, normal, k, mask, R, x, bodies):
    """Transform contact points and normals from world axes to the axes of the bodies.
    The result has one row for each contact point, with its coordinates on both bodies and the normal. Rows
    whose entry in `mask` is False get the constant row OFF.
    """
    local = []
    for j, points in enumerate(sides):
        Rj, xj = R[bodies[index, j]], x[bodies[index, j]]
        local.append((points - xj[:, None]) @ Rj)
    local_normal = normal @ R[bodies[index, k]]
    flag = np.full((*mask.shape, 1), 1.0 if k == 0 else -1.0)
    rows = np.concatenate([*local, local_normal, flag, np.zeros((*mask.shape, 1))], axis=2)
    return np.where(mask[..., None], rows, OFF)


def _cross(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return a[..., 0] * b[..., 1] - a[..., 1] * b[..., 0]


def _inside(polygon: np.ndarray, points: np.ndarray, slack: np.ndarray) -> np.ndarray:
    """Return a mask (p, k) of the points that lie inside convex polygons.
    For each of p polygons, k points are tested, as `points` (p, k, 2). Each polygon has m vertices in
    counterclockwise order, as `polygon` (p, m, 2). The tolerance of the test is `slack`, a length.
    """
    edge = np.roll(polygon, -1, axis=1) - polygon
    length = np.linalg.norm(edge, axis=2)
    side = _cross(edge[:, :, None], points[:, None] - polygon[:, :, None])
    return (side >= -slack[:, None, None] * length[..., None]).all(axis=1)
