"""Gap, normal and contact point of two contact shapes, as closed-form expressions.

Arguments are numbers or expressions. Normals point from the first shape to the second; the contact point is
midway between the two surfaces, so that friction conserves angular momentum. Gaps have continuous slopes as
long as shapes do not overlap. Maths: docs/maths/contact.md, "Gaps".
"""

from __future__ import annotations

from typing import Any

import casadi as ca

from vioc.dynamics.algebra import vectors as vec
from vioc.dynamics.algebra.vectors import Vector
from vioc.dynamics.terms.contact_shapes import OrientedBox, Plane, PosedHull, RoundedSegment, Surface
from vioc.dynamics.terms.facets import facets, one_of_three, over, place_on_segment

FEET = (
    3  # iterations for the foot of a terrain's normal: each scales the error by radius / radius of curvature
)
TINY = 1e-300  # avoids infinite slopes where two centres coincide
PARALLEL = 1e-4  # square of the angle below which capsules' nearest points tend to the middle
LEVEL = 1e-9  # m, below which a component or a height counts as 0

Met = tuple[Any, Vector, Vector]


def meet(first: Any, second: Any) -> Met:
    """Return the gap, normal and contact point of two shapes in world axes."""
    if isinstance(first, Plane):
        n, gap = first.normal, vec.dot(first.normal, second.center) - first.level - second.radius
        return gap, n, vec.sub(second.center, vec.scale(second.radius, n))
    if isinstance(first, Surface):
        return _on_surface(first, second)
    if isinstance(first, OrientedBox | PosedHull):
        return _on_flat(first, second)
    if isinstance(second, OrientedBox | PosedHull):
        gap, n, point = _on_flat(second, first)
        return gap, vec.scale(-1.0, n), point
    return _rounds(first, second)


def _on_surface(surface: Surface, ball: RoundedSegment) -> Met:
    x, y, z = (ca.SX(c) for c in ball.center)
    foot = x, y
    for _ in range(FEET + 1):
        h, hx, hy = surface.height.call([*foot])
        size = ca.sqrt(1 + hx * hx + hy * hy)
        n = (-hx / size, -hy / size, 1 / size)
        distance = vec.dot(n, (x - foot[0], y - foot[1], z - h))
        foot = x - distance * n[0], y - distance * n[1]
    return distance - ball.radius, n, vec.sub((x, y, z), vec.scale(ball.radius, n))


def _rounds(first: RoundedSegment, second: RoundedSegment) -> Met:
    """Return the gap, normal and contact point of two spheres or capsules.

    They follow from the nearest points of two segments.
    """
    p, q = first.center, second.center
    d = vec.sub(q, p)
    if first.half is not None and second.half is not None:
        e, f = first.half, second.half
        a, b, c = vec.dot(e, e), vec.dot(e, f), vec.dot(f, f)
        u, v = vec.dot(e, d), vec.dot(f, d)
        det = a * c - b * b
        s = _clamped((u * c - b * v) / ca.fmax(det, PARALLEL * a * c))
        t = _clamped((b * s - v) / c)
        s = _clamped((b * t + u) / a)
        p, q = vec.add(p, vec.scale(s, e)), vec.add(q, vec.scale(t, f))
    elif first.half is not None:
        p = vec.add(p, vec.scale(_along(first.half, d), first.half))
    elif second.half is not None:
        q = vec.add(q, vec.scale(_along(second.half, vec.scale(-1.0, d)), second.half))
    d = vec.sub(q, p)
    distance = ca.sqrt(vec.dot(d, d) + TINY)
    n, r, s = tuple(c / distance for c in d), first.radius, second.radius
    return distance - r - s, n, vec.add(p, vec.scale((distance + r - s) / 2, n))


def _along(half: Vector, d: Vector) -> Any:
    return _clamped(vec.dot(half, d) / vec.dot(half, half))


def _clamped(s: Any) -> Any:
    return ca.fmax(-1.0, ca.fmin(1.0, s))


def _on_flat(body: OrientedBox | PosedHull, ball: RoundedSegment) -> Met:
    """Return the gap, normal and contact point of a sphere with a box or a convex hull.

    The sphere may be one of the three by which a capsule meets a body.
    """
    q = ball.center
    if ball.half is not None:
        q = vec.add(q, vec.scale(_place_on_segment(body, ball), ball.half))
    place = _in_axes(body, vec.sub(q, body.center))
    gap, n = _over(body, place) if isinstance(body, OrientedBox) else over(facets(body.points), place)
    gap, n = gap - ball.radius, vec.apply(body.R, n)
    return gap, n, vec.sub(q, vec.scale(ball.radius + 0.5 * gap, n))


def _sorted_over(block: OrientedBox, place: Vector) -> tuple[list[Any], Any, Any]:
    """Return three signed distances of a point from a box, and their largest and their median.
    Each axis of the box has one distance: that from the nearer of the two face planes perpendicular to the
    axis, negative if the point is between these planes.
    """
    over = [ca.fabs(x) - h for x, h in zip(place, block.half, strict=True)]
    most = ca.fmax(ca.fmax(over[0], over[1]), over[2])
    least = ca.fmin(ca.fmin(over[0], over[1]), over[2])
    return over, most, over[0] + over[1] + over[2] - most - least


def _chosen(over: list[Any], most: Any) -> tuple[Any, Any, Any]:
    """Return three flags, one for each axis of a box: True for the axis with the largest height.
    The three heights `over` are those of a point above the faces of the box; `most` is the largest of them.
    If two heights are equal, only the first of their axes has the flag True.
    """
    first = over[0] >= most
    second = ca.logic_and(ca.logic_not(first), over[1] >= most)
    return first, second, ca.logic_not(ca.logic_or(first, second))


def _over(block: OrientedBox, place: Vector) -> tuple[Any, Vector]:
    """Return the signed distance of a point from the surface of a box, and its gradient.

    The point is in the box's axes.
    """
    over, most, middle = _sorted_over(block, place)
    edge = middle > 0  # nearest to an edge or a corner, else to a face
    excess = [ca.fmax(o, 0.0) for o in over]
    size = ca.sqrt(ca.if_else(edge, vec.dot(tuple(excess), tuple(excess)), 1.0))
    normal = tuple(
        ca.if_else(x < 0, -1.0, 1.0) * ca.if_else(edge, o / size, ca.if_else(chosen, 1.0, 0.0))
        for x, o, chosen in zip(place, excess, _chosen(over, most), strict=True)
    )
    return ca.if_else(edge, size, most), normal


def _in_axes(body: OrientedBox | PosedHull, d: Vector) -> Vector:
    return vec.apply(vec.transpose(body.R), d)


def _place_on_segment(body: OrientedBox | PosedHull, rod: RoundedSegment) -> Any:
    """Return the position of one contact sphere on a capsule's axis, a coordinate in [-1, 1].
    A capsule touches a box or a convex hull with three spheres, whose centres are on its axis; `rod.place`
    (0, 1 or 2) selects one of them.

    The argument `body` is the box or hull that the capsule touches.
    """
    assert rod.half is not None
    place, e = _in_axes(body, vec.sub(rod.center, body.center)), _in_axes(body, rod.half)
    if isinstance(body, PosedHull):
        return place_on_segment(facets(body.points), place, e, rod.place)
    return _place_by_block(body, place, e, rod.place)


def _place_by_block(block: OrientedBox, place: Vector, e: Vector, which: int) -> Any:
    """Return the position of one contact sphere on a capsule's axis, a coordinate in [-1, 1].
    A capsule touches a box with three spheres, whose centres are on its axis; the index `which` (0, 1 or 2)
    selects one of them.

    The coordinate s is that of docs/maths/contact.md (P4).
    """
    nearest = _nearest(block, place, e)
    point = vec.add(place, vec.scale(nearest, e))
    over, most, middle = _sorted_over(block, point)
    low, high, steepness = ca.SX(-1.0), ca.SX(1.0), 0.0
    for x, c, h, normal in zip(place, e, block.half, _chosen(over, most), strict=True):
        steep = ca.fabs(c) > LEVEL
        ends = [(side * h - x) / ca.if_else(steep, c, 1.0) for side in (-1, 1)]
        within = ca.fabs(x) <= h
        below = ca.if_else(steep, ca.fmin(*ends), ca.if_else(within, -1.0, 2.0))
        above = ca.if_else(steep, ca.fmax(*ends), ca.if_else(within, 1.0, -2.0))
        steepness = steepness + ca.if_else(normal, ca.fabs(c), 0.0)
        low = ca.fmax(low, ca.if_else(normal, -1.0, below))
        high = ca.fmin(high, ca.if_else(normal, 1.0, above))
    tilt = ca.fmax(middle, 0.0) / ca.fmax(most, LEVEL) + steepness / ca.sqrt(vec.dot(e, e))
    return one_of_three(which, low, high, nearest, tilt)


def _nearest(block: OrientedBox, place: Vector, e: Vector) -> Any:
    """Return the coordinate s in [-1, 1] of that point of a segment which is nearest to a box.

    The segment is place + s e. Half the slope of the squared distance by s is monotone and piecewise linear,
    with kinks where the segment passes a face's plane: the two kinks next to its zero give the zero exactly.
    """

    def slope(s: Any) -> Any:
        total = 0.0
        for x, c, h in zip(place, e, block.half, strict=True):
            coordinate = x + s * c
            total = total + c * (ca.fmax(coordinate - h, 0.0) + ca.fmin(coordinate + h, 0.0))
        return total

    at_low, at_high = slope(-1.0), slope(1.0)
    starts, ends = at_low >= 0, at_high <= 0
    left, right = ca.SX(-1.0), ca.SX(1.0)
    for x, c, h in zip(place, e, block.half, strict=True):
        steep = ca.fabs(c) > LEVEL
        for side in (-1, 1):
            s = ca.if_else(steep, _clamped((side * h - x) / ca.if_else(steep, c, 1.0)), 0.0)
            g = slope(s)
            falls, rises = ca.logic_and(g < 0, s > left), ca.logic_and(g > 0, s < right)
            left, at_low = ca.if_else(falls, s, left), ca.if_else(falls, g, at_low)
            right, at_high = ca.if_else(rises, s, right), ca.if_else(rises, g, at_high)
    spread = at_high - at_low
    between = ca.if_else(spread > 0, -at_low / ca.if_else(spread > 0, spread, 1.0), 0.5)
    inside = left + (right - left) * between
    level = ca.logic_and(starts, ends)
    return ca.if_else(level, 0.0, ca.if_else(starts, -1.0, ca.if_else(ends, 1.0, inside)))
