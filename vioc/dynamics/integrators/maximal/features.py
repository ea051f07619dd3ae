"""Where boxes and hulls meet: faces, corners and edges that are near, found at a pose, for all pairs at once.

Two polytopes do not overlap as long as a plane parts them: that of a face of either, or one along an edge of
each. The best of these planes at the start of a step, and the points that meet it, are held over the step, in
which their gaps are smooth. docs/maths/contact.md, "Boxes and hulls".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from vioc.dynamics.algebra import rotations as rot
from vioc.dynamics.integrators.maximal import space
from vioc.dynamics.terms.shapes import Shape, triangles

PLACES = 8  # in which a pair may meet
NUMBERS = 11  # of a place: points of both bodies, normal, which body carries it, what its gap is let be
OFF = np.array([0.0] * 10 + [1.0])  # a place that is not there: no normal, one metre apart
BIAS = 1e-3  # of the size: how much better an edge's plane must be than a face's
SAME = 0.02  # of the size: places nearer than this are one
BESIDE = 1e-6  # of the size: how far off a face a point may be that is on it
AHEAD = 1.5  # how far to look, over what bodies travel in a step
LOOKS = 8  # at the end of a step, of places that hold
ENTERED = 1e-5  # of the size: how deep bodies may enter each other unseen
KEPT = 0.9  # of a depth at the start, at the end
FLAT = 1e-6  # of unit normals: faces in one plane


class Polytope:
    """A convex polytope in the axes of its body.

    Attributes
    ----------
    corners : (nv, 3)
    normals, levels : (nf, 3), (nf,)
        Of its faces, outwards.
    faces : (nf, m)
        Corners around each face in the positive sense; the last is repeated where there are fewer.
    directions : (ne, 3)
        Of its edges, parallel ones once.
    edges : (k, 2)
        Corners.
    along : (k,)
        Direction of each edge.
    center, radius : (3,), float
        Of a sphere around it.
    """

    def __init__(self, shape: Shape, R: np.ndarray, p: np.ndarray):
        points = np.array([[float(c) for c in ball.center] for ball in shape.corners()])
        self.corners = points @ R.T + p
        found: list[tuple[np.ndarray, list[int]]] = []
        for face in triangles(self.corners):
            a, b, c = self.corners[face]
            n = np.cross(b - a, c - a)
            n /= np.linalg.norm(n)
            for normal, around in found:
                if np.abs(normal - n).max() < FLAT:
                    around += face.tolist()
                    break
            else:
                found.append((n, face.tolist()))
        self.normals = np.array([n for n, _ in found])
        loops = [self._around(n, sorted(set(own))) for n, own in found]
        self.levels = np.array(
            [n @ self.corners[loop[0]] for n, loop in zip(self.normals, loops, strict=True)]
        )
        most = max(map(len, loops))
        self.faces = np.array([loop + loop[-1:] * (most - len(loop)) for loop in loops])
        pairs = {tuple(sorted(e)) for loop in loops for e in zip(loop, loop[1:] + loop[:1], strict=True)}
        self.edges = np.array(sorted(pairs))
        directions: list[np.ndarray] = []
        along = []
        for i, j in self.edges:
            d = self.corners[j] - self.corners[i]
            d /= np.linalg.norm(d)
            known = [k for k, e in enumerate(directions) if 1 - abs(d @ e) < FLAT**2]
            if not known:
                directions.append(d)
            along.append(known[0] if known else len(directions) - 1)
        self.directions, self.along = np.array(directions), np.array(along)
        self.center = (self.corners.min(axis=0) + self.corners.max(axis=0)) / 2
        self.radius = float(np.linalg.norm(self.corners - self.center, axis=1).max())

    def _around(self, n: np.ndarray, own: list[int]) -> list[int]:
        points = self.corners[own] - self.corners[own].mean(axis=0)
        x = points[0] / np.linalg.norm(points[0])
        angle = np.arctan2(points @ np.cross(n, x), points @ x)
        return [own[i] for i in np.argsort(angle)]

    @property
    def topology(self) -> tuple:
        return (self.faces.shape, self.corners.shape, self.directions.shape, self.edges.shape)


@dataclass(frozen=True)
class Pair:
    """Two polytopes and the bodies that carry them; -1 is the world."""

    bodies: tuple[int, int]
    first: Polytope
    second: Polytope


class Found(NamedTuple):
    """Places in which pairs meet, or would, at a pose.

    Attributes
    ----------
    rows : (pairs, PLACES, NUMBERS)
    counts : (pairs,)
    gaps : (pairs,)
        The least of each; infinite of those that are far apart.
    """

    rows: np.ndarray
    counts: np.ndarray
    gaps: np.ndarray

    def of(self, i: int) -> tuple[np.ndarray, int]:
        """Rows (PLACES, NUMBERS) and their count, of pair i."""
        return self.rows[i].copy(), int(self.counts[i])


class Look:
    """The places of a step, looked for where it begins and, where bodies would enter, where it ends.

    Parameters
    ----------
    features : Features
    x : (nx,)
        A state of bodies.
    dt : float
    found : Found, optional
        There, where that is known.

    Attributes
    ----------
    end : Found
        Where it was looked for last.
    rows : (pairs, PLACES, NUMBERS)
    counts : (pairs,)
    """

    def __init__(self, features: Features, x: np.ndarray, dt: float, found: Found | None = None):
        self._features, self._dt = features, dt
        found = self.end = features.in_state(x, dt) if found is None else found
        self._depth = np.maximum(-found.gaps, 0.0)
        self.rows, self.counts = found.rows, found.counts
        self._again = np.zeros(len(found.counts), bool)
        self._let(np.arange(len(self.counts)))

    def _let(self, some: np.ndarray) -> None:
        """What is too deep at the start comes out in many steps, not in one: it would be thrown out."""
        there = self.rows[some, :, 9] != 0
        self.rows[some, :, 10] = np.where(there, KEPT * self._depth[some, None], self.rows[some, :, 10])

    def deeper(self, x: np.ndarray) -> bool:
        """Whether bodies enter each other in the state x at the end; there they are looked for again.

        Where they do so twice, what was held before is kept beside what is found: planes would take turns.
        """
        found = self.end = self._features.in_state(x, self._dt)
        some = np.flatnonzero(found.gaps < -self._depth - ENTERED * self._features.sizes)
        if len(some):
            self.rows, self.counts = self.rows.copy(), self.counts.copy()
            for i in map(int, some):
                self.rows[i], self.counts[i] = (self._both if self._again[i] else found.of)(i)
            self._again[some] = True
            self._let(some)
        return bool(len(some))

    def _both(self, i: int) -> tuple[np.ndarray, int]:
        """Places of pair i at the end, and behind them those it was held at that are none of them."""
        rows, count = self.end.of(i)
        size = self._features.sizes[i]
        for old in self.rows[i, : self.counts[i]]:
            off = np.abs(rows[:count, :9] - old[:9])
            off[:, :6] /= size
            known = (off.max(axis=1) < SAME) & (rows[:count, 9] == old[9])
            if count < PLACES and not known.any():
                rows[count], count = old, count + 1
        return rows, count


class _Stack:
    """Pairs of one kind of polytopes, their arrays stacked."""

    def __init__(self, pairs: Sequence[Pair], index: list[int]):
        own = [pairs[i] for i in index]
        self.index = np.array(index)
        self.bodies = np.array([p.bodies for p in own])
        self.sides = []
        for which in ("first", "second"):
            some = [getattr(p, which) for p in own]
            self.sides.append(
                {
                    name: np.stack([getattr(s, name) for s in some])
                    for name in ("corners", "normals", "levels", "faces", "directions", "edges", "along")
                }
            )
        self.size = np.array([p.first.radius + p.second.radius for p in own]) / 2


class Features:
    """Places of some pairs at poses.

    Parameters
    ----------
    pairs : sequence of Pair
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

        self.sizes = self._radii.sum(axis=1) / 2

    def in_state(self, x: np.ndarray, dt: float) -> Found:
        """In a state of bodies."""
        positions, q, twists = space.split(len(x) // (space.STATE + space.TWIST), x)
        R: np.ndarray = np.moveaxis(np.array(rot.matrix(tuple(q.T))), -1, 0)
        return self.at(positions, R, twists.reshape(-1, space.TWIST), dt)

    def at(self, x: np.ndarray, R: np.ndarray, twists: np.ndarray, dt: float) -> Found:
        """At positions (n, 3), rotations (n, 3, 3) and twists (n, 6) of the bodies, for a step dt."""
        x, R = np.vstack([x, np.zeros((1, 3))]), np.concatenate([R, np.eye(3)[None]])  # -1 is the world
        V = np.vstack([twists, np.zeros((1, 6))])
        count = len(self.pairs)
        rows = np.tile(OFF, (count, PLACES, 1))
        counts, gaps = np.zeros(count, int), np.full(count, np.inf)
        b = self._bodies
        spots = x[b] + np.einsum("pbij,pbj->pbi", R[b], self._centers)
        speed = np.linalg.norm(V[b, :3], axis=2) + np.linalg.norm(V[b, 3:], axis=2) * self._radii
        reach = AHEAD * dt * (speed.sum(axis=1) + 10.0 * dt) + BIAS * self._radii.sum(axis=1)
        apart = np.linalg.norm(spots[:, 1] - spots[:, 0], axis=1) - self._radii.sum(axis=1)
        near = apart < reach
        for stack in self._stacks:
            chosen = np.flatnonzero(near[stack.index])
            if len(chosen):
                at = stack.index[chosen]
                rows[at], counts[at], gaps[at] = _places(stack, chosen, x, R, reach[at])
        return Found(rows, counts, gaps)


def _places(stack: _Stack, chosen: np.ndarray, x: np.ndarray, R: np.ndarray, reach: np.ndarray):
    """Places of some pairs of a stack, at most PLACES, their counts and least gaps."""
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
    # the plane that parts two best: of a face of either, or along an edge of each
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
    owner = (best[1] > best[0] + 1e-9).astype(int)  # of the face
    rows, counts = np.tile(OFF, (count, PLACES, 1)), np.zeros(count, int)
    gaps = np.maximum(between[pair, axis], best.max(axis=0))
    open_ = gaps < reach
    for k in range(2):
        own = np.flatnonzero(open_ & ~by_edge & (owner == k))
        if len(own):
            rows[own], counts[own] = _on_face(
                k, own, parts, corners, normals, face[k], gaps, size, reach, R, x, bodies
            )
    own = np.flatnonzero(open_ & by_edge)
    if len(own):
        rows[own, 0] = _on_edges(own, parts, corners, axes[pair, axis], axis, E[1].shape[1], R, x, bodies)
        counts[own] = 1
    return rows, counts, np.where(open_, gaps, np.inf)


def _on_face(k, own, parts, corners, normals, face, gaps, size, reach, R, x, bodies):
    """Places on the faces `face` of side k, where the nearest face of the other side lies over them."""
    pair, count = np.arange(len(own)), len(own)
    f = face[own]
    n = normals[k][own, f]
    other = np.einsum("pfi,pi->pf", normals[1 - k][own], n).argmin(axis=1)
    m = normals[1 - k][own, other]
    ref = corners[k][own[:, None], parts[k]["faces"][own, f]]
    inc = corners[1 - k][own[:, None], parts[1 - k]["faces"][own, other]]
    origin = ref.mean(axis=1)
    t1 = ref[:, 1] - ref[:, 0]
    t1 /= np.linalg.norm(t1, axis=1)[:, None]
    frame = np.stack([t1, np.cross(n, t1)], axis=2)  # (p, 3, 2)
    a, b = ((s - origin[:, None]) @ frame for s in (ref, inc))
    area = np.sign(_cross(b[:, 1] - b[:, 0], np.roll(b, -1, axis=1)[:, 1] - b[:, 1]))
    b = np.where(area[:, None, None] < 0, b[:, ::-1], b)  # it is seen from behind
    inc = np.where(area[:, None, None] < 0, inc[:, ::-1], inc)
    slack = BESIDE * size[own]
    inside_ref, inside_inc = _inside(a, b, slack), _inside(b, a, slack)
    # the second side's points over the first's corners, along n
    slope = np.einsum("pi,pi->p", m, n)
    rise = np.einsum("pvi,pi->pv", inc[:, :1] - ref, m) / np.where(slope < -1e-3, slope, -1.0)[:, None]
    lifted = ref + rise[..., None] * n[:, None]
    inside_inc &= (slope < -1e-3)[:, None]
    # where edges cross
    da, db = np.roll(a, -1, axis=1) - a, np.roll(b, -1, axis=1) - b
    det = _cross(da[:, :, None], db[:, None])
    gap2 = b[:, None] - a[:, :, None]
    flat = np.abs(det) < 1e-12 * size[own][:, None, None] ** 2
    safe = np.where(flat, 1.0, det)
    s, t = _cross(gap2, db[:, None]) / safe, _cross(gap2, da[:, :, None]) / safe
    crossing = ~flat & (s >= 0) & (s <= 1) & (t >= 0) & (t <= 1)
    di = np.roll(inc, -1, axis=1) - inc
    crossed = inc[:, None] + t[..., None] * di[:, None]
    points = np.concatenate([inc, lifted, crossed.reshape(count, -1, 3)], axis=1)
    valid = np.concatenate([inside_ref, inside_inc, crossing.reshape(count, -1)], axis=1)
    gap = np.einsum("pci,pi->pc", points - origin[:, None], n)
    valid &= gap < reach[own][:, None]
    none = ~valid.any(axis=1)  # beside each other: the lowest corner
    lowest = gap[:, : inc.shape[1]].argmin(axis=1)
    valid[none, lowest[none]] = True
    # overlap that none of these has: of hulls the deepest corner may be on another face, or beside this one
    deepest = np.where(valid, gap, np.inf).min(axis=1)
    unseen = (gaps[own] < 0) & (deepest > gaps[own] + BESIDE * size[own])
    height = np.einsum("pvi,pi->pv", corners[1 - k][own] - origin[:, None], n)
    last = height.argmin(axis=1)
    points = np.concatenate([points, corners[1 - k][own, last][:, None]], axis=1)
    gap = np.column_stack([gap, height[pair, last]])
    valid = np.column_stack([valid, unseen])
    place = np.zeros((count, PLACES), int)
    counts, near = np.zeros(count, int), (SAME * size[own]) ** 2
    order = np.argsort(
        np.where(valid, np.round(gap / (BESIDE * size[own][:, None])), np.inf), axis=1, kind="stable"
    )
    for column in order.T:
        spot = points[pair, column]
        known = points[pair[:, None], place]
        far = ((known - spot[:, None]) ** 2).sum(axis=2) > near[:, None]
        far |= np.arange(PLACES) >= counts[:, None]
        take = valid[pair, column] & far.all(axis=1) & (counts < PLACES)
        place[pair[take], counts[take]] = column[take]
        counts[take] += 1
    kept = points[pair[:, None], place]
    below = kept - gap[pair[:, None], place][..., None] * n[:, None]
    used = np.arange(PLACES) < counts[:, None]
    sides = (below, kept) if k == 0 else (kept, below)
    normal = n if k == 0 else -n
    return _rows(own, sides, np.repeat(normal[:, None], PLACES, axis=1), k, used, R, x, bodies), counts


def _on_edges(own, parts, corners, axes, axis, width, R, x, bodies):
    """The place where an edge of each side is next to one of the other."""
    pair, n = np.arange(len(own)), axes[own]
    ends = []
    for k, which in enumerate((axis[own] // width, axis[own] % width)):
        edges = corners[k][own[:, None, None], parts[k]["edges"][own]]  # (p, e, 2, 3)
        height = np.einsum("pei,pi->pe", edges.mean(axis=2), n) * (1 if k == 0 else -1)
        height[parts[k]["along"][own] != which[:, None]] = -np.inf
        ends.append(edges[pair, height.argmax(axis=1)])
    (p, q), (r, s) = (np.moveaxis(e, 1, 0) for e in ends)
    d, e, w = q - p, s - r, r - p
    a, b, c = (np.einsum("pi,pi->p", *two) for two in ((d, d), (d, e), (e, e)))
    u, v = np.einsum("pi,pi->p", d, w), np.einsum("pi,pi->p", e, w)
    det = a * c - b * b
    on_first = np.clip((u * c - b * v) / det, 0, 1)
    on_second = np.clip((u * b - a * v) / det, 0, 1)
    sides = (p + on_first[:, None] * d)[:, None], (r + on_second[:, None] * e)[:, None]
    return _rows(own, sides, n[:, None], 0, np.ones((len(own), 1), bool), R, x, bodies)[:, 0]


def _rows(own, sides, normal, k, used, R, x, bodies):
    """Points and normals of the world in the axes of the bodies; OFF where not used."""
    local = []
    for j, points in enumerate(sides):
        Rj, xj = R[bodies[own, j]], x[bodies[own, j]]
        local.append((points - xj[:, None]) @ Rj)
    turned = normal @ R[bodies[own, k]]
    flag = np.full((*used.shape, 1), 1.0 if k == 0 else -1.0)
    rows = np.concatenate([*local, turned, flag, np.zeros((*used.shape, 1))], axis=2)
    return np.where(used[..., None], rows, OFF)


def _cross(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return a[..., 0] * b[..., 1] - a[..., 1] * b[..., 0]


def _inside(polygon: np.ndarray, points: np.ndarray, slack: np.ndarray) -> np.ndarray:
    """Which of points (p, k, 2) lie in convex polygons (p, m, 2) in the positive sense."""
    edge = np.roll(polygon, -1, axis=1) - polygon
    length = np.linalg.norm(edge, axis=2)
    side = _cross(edge[:, :, None], points[:, None] - polygon[:, :, None])
    return (side >= -slack[:, None, None] * length[..., None]).all(axis=1)
