"""Contact of spheres and capsules with a convex hull, as closed-form expressions.

Planes, edges and corners of the hull are numbers, one row each; the point or segment is expressions in its
axes. The cost is a few scalar products for each plane and edge. Maths: docs/maths/contact.md, (P7) and (P8).
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import casadi as ca
import numpy as np

from vioc.dynamics.algebra import vectors as vec
from vioc.dynamics.algebra.vectors import Vector
from vioc.dynamics.terms.contact_shapes import triangles

FLAT = 1e-9  # 1 - cosine of the angle of normals below which triangles are in one plane
STEEP = 1e-9  # largest extent along a plane's normal, relative to a segment's length, that counts as parallel
PARALLEL = 1e-12  # square of the angle below which a segment is parallel to an edge
SOFT = 0.05  # rad between a capsule and a face at which its third sphere is at its nearest point
BEYOND = 1e-9  # distance beyond a face's edges, relative to the hull's size, that counts as on the face


class Facets(NamedTuple):
    """Face planes and edges of a convex hull in its own axes, as numpy arrays.

    Attributes
    ----------
    normals, levels : (nf, 3), (nf,)
        Planes n . x <= level.
    rims : nf times (m, 3), (m,)
        Planes through the edges of each face, normal to the face: points of the face have m . x <= level.
    starts, ways : (ne, 3), (ne, 3)
        First points and vectors of the edges.
    size : float
    """

    normals: np.ndarray
    levels: np.ndarray
    rims: tuple[tuple[np.ndarray, np.ndarray], ...]
    starts: np.ndarray
    ways: np.ndarray
    size: float


@lru_cache(maxsize=64)
def facets(points: tuple[tuple[float, float, float], ...]) -> Facets:
    """Compute the face planes and edges of the convex hull of given points."""
    P = np.array(points)
    faces: list[tuple[np.ndarray, float, dict[tuple[int, int], None]]] = []
    for corners in triangles(P):
        a, b, c = P[corners]
        n = np.cross(b - a, c - a)
        n /= np.linalg.norm(n)
        sides = list(zip(corners.tolist(), np.roll(corners, -1).tolist(), strict=True))
        for normal, _, boundary in faces:
            if 1 - normal @ n < FLAT:
                for i, j in sides:  # an edge that two triangles of a plane share is not an edge of the hull
                    if boundary.pop((j, i), 0) == 0:
                        boundary[i, j] = None
                break
        else:
            faces.append((n, float(n @ a), dict.fromkeys(sides)))
    rims = []
    for n, _, boundary in faces:
        m = np.array([np.cross(P[j] - P[i], n) / np.linalg.norm(P[j] - P[i]) for i, j in boundary])
        rims.append((m, np.array([row @ P[i] for row, (i, _) in zip(m, boundary, strict=True)])))
    edges = sorted({(min(e), max(e)) for _, _, boundary in faces for e in boundary})
    starts = P[[i for i, _ in edges]]
    ways = P[[j for _, j in edges]] - starts
    size = float(np.linalg.norm(P.max(axis=0) - P.min(axis=0)))
    return Facets(
        np.array([n for n, _, _ in faces]),
        np.array([d for _, d, _ in faces]),
        tuple(rims),
        starts,
        ways,
        size,
    )


def over(hull: Facets, point: Vector) -> tuple[Any, Vector]:
    """Return the signed distance of a point from the surface of a convex hull, and its gradient.

    docs/maths/contact.md, (P7).
    """
    most, n, beside = _highest(hull, point)
    nearest, offset = ca.SX(np.inf), point
    for start, way in zip(hull.starts.tolist(), hull.ways.tolist(), strict=True):
        d = vec.sub(point, tuple(start))
        s = vec.dot(tuple(way), d) / float(np.dot(way, way))
        d = vec.sub(d, vec.scale(ca.fmax(0.0, ca.fmin(1.0, s)), tuple(way)))
        square = vec.dot(d, d)
        nearer = square < nearest
        nearest, offset = ca.if_else(nearer, square, nearest), _either(nearer, d, offset)
    edge = ca.logic_and(ca.logic_and(most > 0, beside > BEYOND * hull.size), nearest > 0)
    size = ca.sqrt(ca.if_else(edge, nearest, 1.0))
    return ca.if_else(edge, size, most), _either(edge, tuple(c / size for c in offset), n)


def place_on_segment(hull: Facets, middle: Vector, half: Vector, place: int) -> Any:
    """Return the position of one contact sphere on a capsule's axis, a coordinate in [-1, 1].
    A capsule touches a hull with three spheres, whose centres are on its axis; the index `place` (0, 1 or 2)
    selects one of them.

    The coordinate is s of docs/maths/contact.md (P8).
    """
    nearest = _nearest(hull, middle, half)
    point = vec.add(middle, vec.scale(nearest, half))
    most, n, beside = _highest(hull, point)
    length = ca.sqrt(vec.dot(half, half))
    low, high, best = ca.SX(-1.0), ca.SX(1.0), ca.SX(-np.inf)
    for normal, level, (m, levels) in zip(hull.normals.tolist(), hull.levels, hull.rims, strict=True):
        height = vec.dot(tuple(normal), point) - float(level)
        begins, ends = _clipped(m, levels, middle, half, length)
        higher = height > best
        best = ca.if_else(higher, height, best)
        low, high = ca.if_else(higher, begins, low), ca.if_else(higher, ends, high)
    tilt = ca.fmax(beside, 0.0) / ca.fmax(most, STEEP) + ca.fabs(vec.dot(n, half)) / length
    return one_of_three(place, low, high, nearest, tilt)


def one_of_three(place: int, low: Any, high: Any, nearest: Any, tilt: Any) -> Any:
    """Return the position of one contact sphere on a capsule's axis, in [-1, 1].
    A capsule touches a face of a box or hull with three spheres; the index `place` selects one of them.
    Spheres 0 and 1 are at the ends `low` and `high` of that part of the axis which is above the face, or at
    the ends of the axis if no part is above the face.

    Sphere 2 is in the middle of the other two if the axis is parallel to the face, and moves linearly with
    `tilt`. It is at `nearest`, the point of the axis nearest to the body, if `tilt` is above SOFT or no part
    is above the face.
    """
    some = low < high
    low, high = ca.if_else(some, low, -1.0), ca.if_else(some, high, 1.0)
    if place < 2:
        return (low, high)[place]
    tilt = ca.if_else(some, ca.fmin(tilt / SOFT, 1.0), 1.0)
    return (low + high) / 2 + tilt * (nearest - (low + high) / 2)


def _highest(hull: Facets, point: Vector) -> tuple[Any, Vector, Any]:
    """Return the largest height of a point above the face planes of a hull, and that plane's normal.
    The third result is the largest signed distance of the point from the edges of the face in this plane. It
    is negative if the point is above the face.
    """
    most, n, beside = ca.SX(-np.inf), vec.ZERO, ca.SX(0.0)
    for normal, level, (m, levels) in zip(hull.normals.tolist(), hull.levels, hull.rims, strict=True):
        height = vec.dot(tuple(normal), point) - float(level)
        outside = ca.SX(-np.inf)
        for row, rim in zip(m.tolist(), levels, strict=True):
            outside = ca.fmax(outside, vec.dot(tuple(row), point) - float(rim))
        higher = height > most
        most, beside = ca.if_else(higher, height, most), ca.if_else(higher, outside, beside)
        n = _either(higher, tuple(normal), n)
    return most, n, beside


def _nearest(hull: Facets, middle: Vector, half: Vector) -> Any:
    """Return the coordinate s in [-1, 1] of that point of a segment which is nearest to a convex hull.

    If part of the segment is inside, it is the middle of that part.
    """
    length = ca.sqrt(vec.dot(half, half))
    begins, ends = _clipped(hull.normals, hull.levels, middle, half, length)
    least, best = ca.SX(np.inf), ca.SX(0.0)
    for end in (-1.0, 1.0):
        distance, _ = over(hull, vec.add(middle, vec.scale(end, half)))
        nearer = distance < least
        least, best = ca.if_else(nearer, distance, least), ca.if_else(nearer, end, best)
    least = ca.if_else(least > 0, least * least, least)
    a = vec.dot(half, half)
    for start, way in zip(hull.starts.tolist(), hull.ways.tolist(), strict=True):
        d, c = vec.sub(tuple(start), middle), float(np.dot(way, way))
        b, u, v = vec.dot(half, tuple(way)), vec.dot(half, d), vec.dot(tuple(way), d)
        det = a * c - b * b
        s = ca.fmax(-1.0, ca.fmin(1.0, (u * c - b * v) / ca.fmax(det, PARALLEL * a * c)))
        t = ca.fmax(0.0, ca.fmin(1.0, (b * s - v) / c))
        s = ca.fmax(-1.0, ca.fmin(1.0, (b * t + u) / a))
        d = vec.sub(vec.add(d, vec.scale(t, tuple(way))), vec.scale(s, half))
        square = vec.dot(d, d)
        nearer = square < least
        least, best = ca.if_else(nearer, square, least), ca.if_else(nearer, s, best)
    return ca.if_else(begins < ends, (begins + ends) / 2, best)


def _clipped(normals: np.ndarray, levels: np.ndarray, middle: Vector, half: Vector, length: Any):
    """Return the part of a segment that lies behind all given planes, as an interval of coordinates.
    A point x is behind a plane if normal . x <= level. The coordinate is -1 and 1 at the ends of the segment.

    The interval is empty if it begins after it ends.
    """
    low, high = ca.SX(-1.0), ca.SX(1.0)
    for row, level in zip(normals.tolist(), levels, strict=True):
        rise, room = vec.dot(tuple(row), half), float(level) - vec.dot(tuple(row), middle)
        up, down = rise > STEEP * length, rise < -STEEP * length
        s = room / ca.if_else(ca.logic_or(up, down), rise, 1.0)
        high = ca.if_else(up, ca.fmin(high, s), high)
        low = ca.if_else(down, ca.fmax(low, s), low)
        beside = ca.logic_and(ca.logic_not(ca.logic_or(up, down)), room < 0)
        low = ca.if_else(beside, 2.0, low)
    return low, high


def _either(first: Any, a: Vector, b: Vector) -> Vector:
    return tuple(ca.if_else(first, x, y) for x, y in zip(a, b, strict=True))
