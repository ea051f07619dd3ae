"""Contact shapes that bodies carry: spheres, capsules, boxes, convex hulls and half-spaces.

Each is plain data in the axes of a frame. `placed` returns the data, one row of numbers, in the axes of a
body on which the frame is fixed; `at` returns the shape of that row at the body's pose for `distances.meet`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from itertools import product
from typing import Any, ClassVar, NamedTuple

import casadi as ca
import numpy as np

from vioc.dynamics.algebra import vectors as vec
from vioc.dynamics.algebra.vectors import Matrix, Vector
from vioc.dynamics.description.numbers import Number, Parameter, as_number, as_numbers
from vioc.errors import ModelError

Vector3 = tuple[Number, Number, Number]
ORIGIN, UP = (0.0, 0.0, 0.0), (0.0, 0.0, 1.0)
STRAIGHT = (1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0)  # a rotation by rows


class RoundedSegment(NamedTuple):
    """Sphere or capsule: all points within a radius of a point or of a segment.

    The segment runs from center - half to center + half; `half` is None for a sphere. A capsule meets a box
    or a hull by three spheres on its axis, of which `place` selects one: 0, 1, 2.
    """

    center: Vector
    half: Vector | None
    radius: Any
    place: int = 2


class OrientedBox(NamedTuple):
    """Box at a pose: its centre, its rotation matrix R, and half its edge lengths.
    The columns of R are the directions of the edges.
    """

    center: Vector
    R: Matrix
    half: Vector


class PosedHull(NamedTuple):
    """Convex hull at a pose: its centre, its rotation matrix R, and its corners.
    The corners are in the hull's own axes.
    """

    center: Vector
    R: Matrix
    points: tuple[tuple[float, float, float], ...]


class Plane(NamedTuple):
    """Boundary plane of a half-space, n . x = level, with the normal n.
    Bodies stay on the side n . x >= level.
    """

    normal: Vector
    level: Any


class Surface(NamedTuple):
    """Surface z = h(x, y) of a terrain; the free region is z >= h.

    The CasADi function `height` of (x, y) returns h and its two slopes.
    """

    height: ca.Function


class Shape:
    """Base class of contact shapes, which are immutable dataclasses with numbers as fields.

    Attributes
    ----------
    keyword : str
        First word of its text form, ``(SPHERE 0.1 0 0 0)``, before the numbers of its fields.
    """

    keyword: ClassVar[str] = ""
    place: ClassVar[int] = 2
    flat: ClassVar[bool] = False  # polytopes meet by features, which have no closed form

    def numbers(self) -> tuple[Number, ...]:
        """Return the numbers of all fields of the shape in one tuple, in the order of the fields."""
        values = (getattr(self, f.name) for f in fields(self))  # type: ignore[arg-type]
        return tuple(n for value in values for n in (value if isinstance(value, tuple) else (value,)))

    @classmethod
    def of(cls, numbers: Sequence[Number]) -> Shape:
        """Make a shape from the values of its fields, in the order of the fields.
        Values at the end of the sequence may be omitted.
        """
        raise NotImplementedError

    def placed(self, number: Callable, R: Matrix, p: Vector) -> tuple:
        """Return the numbers that define the shape, in the axes of its body.
        They are transformed from the axes of the shape's frame, whose pose in the body is the rotation R and
        the position p. The function `number` replaces declared parameters by their symbols.
        """
        raise NotImplementedError

    def at(self, row: tuple, R: Matrix, p: Vector) -> Any:
        """Return the shape in world axes.
        The tuple `row`, a result of `placed`, has the numbers that define the shape in the axes of its body;
        R and p are the body's rotation and position in the world.
        """
        raise NotImplementedError

    def corners(self) -> Iterator[Sphere]:
        """Yield spheres, or points, whose convex hull is the shape."""
        raise NotImplementedError

    def against_box(self) -> tuple[Shape, ...]:
        """Return parts of the shape, each of which touches a box or a convex hull at one point."""
        return (self,)


def _moved(R: Matrix, p: Vector, point: Any) -> Vector:
    return vec.add(p, vec.apply(R, tuple(point)))


@dataclass(frozen=True)
class Sphere(Shape):
    """Sphere, or a point if its radius is 0.

    Parameters
    ----------
    radius : number
        m, >= 0.
    center : 3 numbers
        Centre in its frame, m.
    """

    keyword: ClassVar[str] = "SPHERE"

    radius: Number
    center: Vector3 = ORIGIN

    def __post_init__(self) -> None:
        _set(self, "radius", _least(self.radius, "sphere: radius", 0.0))
        _set(self, "center", as_numbers(self.center, 3, "sphere: center"))

    @classmethod
    def of(cls, numbers: Sequence[Number]) -> Sphere:
        values = _counted(numbers, "sphere", 1, 4)
        return cls(values[0], _triple(values[1:], ORIGIN))

    def placed(self, number: Callable, R: Matrix, p: Vector) -> tuple:
        return (*_moved(R, p, map(number, self.center)), number(self.radius))

    def at(self, row: tuple, R: Matrix, p: Vector) -> RoundedSegment:
        return RoundedSegment(_moved(R, p, row[:3]), None, row[3])

    def corners(self) -> Iterator[Sphere]:
        yield self


@dataclass(frozen=True)
class Capsule(Shape):
    """Capsule: all points within a radius of a segment.

    Parameters
    ----------
    radius : number
        m, > 0.
    length : number
        Length of the segment, m, > 0: the capsule is longer by twice the radius.
    axis, center : 3 numbers
        Direction and midpoint of the segment in its frame; the axis need not be normalized.
    """

    keyword: ClassVar[str] = "CAPSULE"

    radius: Number
    length: Number
    axis: Vector3 = UP
    center: Vector3 = ORIGIN

    def __post_init__(self) -> None:
        _set(self, "radius", _least(self.radius, "capsule: radius", 0.0))
        _set(self, "length", _positive(self.length, "capsule: length"))
        _set(self, "axis", as_numbers(self.axis, 3, "capsule: axis"))
        _set(self, "center", as_numbers(self.center, 3, "capsule: center"))
        if not any(float(c) for c in self.axis):
            raise ModelError("capsule: axis: expected a direction, got the zero vector")

    @classmethod
    def of(cls, numbers: Sequence[Number]) -> Capsule:
        values = _counted(numbers, "capsule", 2, 5, 8)
        return cls(values[0], values[1], _triple(values[2:5], UP), _triple(values[5:], ORIGIN))

    def _half(self, number: Callable) -> Vector:
        a = tuple(map(number, self.axis))
        size = ca.sqrt(vec.dot(a, a))
        return vec.scale(0.5 * number(self.length) / size, a)

    def placed(self, number: Callable, R: Matrix, p: Vector) -> tuple:
        half = vec.apply(R, self._half(number))
        return (*_moved(R, p, map(number, self.center)), *half, number(self.radius))

    def at(self, row: tuple, R: Matrix, p: Vector) -> RoundedSegment:
        return RoundedSegment(_moved(R, p, row[:3]), vec.apply(R, tuple(row[3:6])), row[6], self.place)

    def against_box(self) -> tuple[Shape, ...]:
        dimensions = self.radius, self.length, self.axis, self.center
        return (_First(*dimensions), _Second(*dimensions), self)

    def corners(self) -> Iterator[Sphere]:
        a = np.array(as_numbers(self.axis, 3, "capsule: axis"), float)  # a direction given by three numbers
        a *= 0.5 / np.linalg.norm(a)
        for sign in (-1, 1):
            ends = zip(self.center, sign * a, strict=True)
            yield Sphere(self.radius, _triple([_total([c, self.length * float(e)]) for c, e in ends], ORIGIN))


class _First(Capsule):
    place = 0


class _Second(Capsule):
    place = 1


@dataclass(frozen=True)
class Box(Shape):
    """Box, in any orientation relative to the frame that carries it.

    Parameters
    ----------
    size : 3 numbers
        Edge lengths, m, > 0.
    center : 3 numbers
        Centre in its frame, m.
    rotation : 9 numbers
        Rotation matrix of its axes in the frame, by rows.
    """

    keyword: ClassVar[str] = "BOX"
    flat: ClassVar[bool] = True

    size: Vector3
    center: Vector3 = ORIGIN
    rotation: tuple[float, ...] = STRAIGHT

    def __post_init__(self) -> None:
        size = as_numbers(self.size, 3, "box: size")
        if min(map(float, size)) <= 0:
            raise ModelError(f"box: size: expected three numbers > 0, got {[float(c) for c in size]}")
        _set(self, "size", size)
        _set(self, "center", as_numbers(self.center, 3, "box: center"))
        _set(self, "rotation", tuple(map(float, as_numbers(self.rotation, 9, "box: rotation"))))
        R = np.reshape(self.rotation, (3, 3))
        if np.abs(R @ R.T - np.eye(3)).max() > 1e-9 or np.linalg.det(R) < 0:
            raise ModelError(f"box: rotation: expected a rotation matrix by rows, got {R.tolist()}")

    @classmethod
    def of(cls, numbers: Sequence[Number]) -> Box:
        values = _counted(numbers, "box", 3, 6, 15)
        rotation = tuple(map(float, values[6:])) or STRAIGHT
        return cls(_triple(values[:3], ORIGIN), _triple(values[3:6], ORIGIN), rotation)

    def placed(self, number: Callable, R: Matrix, p: Vector) -> tuple:
        rotation = vec.matmul(R, _rows(self.rotation))
        half = (0.5 * number(c) for c in self.size)
        return (*_moved(R, p, map(number, self.center)), *(e for row in rotation for e in row), *half)

    def at(self, row: tuple, R: Matrix, p: Vector) -> OrientedBox:
        return OrientedBox(_moved(R, p, row[:3]), vec.matmul(R, _rows(row[3:12])), tuple(row[12:15]))

    def corners(self) -> Iterator[Sphere]:
        R = np.reshape(self.rotation, (3, 3))
        for signs in product((-1, 1), repeat=3):
            rows = zip(self.center, 0.5 * R * signs, strict=True)
            corner = [
                _total([c, *(edge * float(r) for edge, r in zip(self.size, row, strict=True) if r)])
                for c, row in rows
            ]
            yield Sphere(0.0, _triple(corner, ORIGIN))


@dataclass(frozen=True)
class Hull(Shape):
    """Convex hull of given points, as a contact shape.

    Parameters
    ----------
    points : sequence of 3 numbers
        Points in its frame, m; those within the hull of the others are removed. They must not lie in a plane.
    """

    keyword: ClassVar[str] = "HULL"
    flat: ClassVar[bool] = True

    points: tuple[tuple[float, float, float], ...]

    def __post_init__(self) -> None:
        from scipy.spatial import ConvexHull, QhullError

        P = np.array(self.points, float)
        if P.ndim != 2 or P.shape[1:] != (3,) or not np.isfinite(P).all():
            raise ModelError(f"hull: points: expected rows of 3 finite numbers, got shape {P.shape}")
        try:
            corners = np.sort(ConvexHull(P).vertices)
        except (QhullError, ValueError) as error:
            raise ModelError(f"hull: {len(P)} points have no volume: {str(error).splitlines()[0]}") from None
        _set(self, "points", tuple(tuple(map(float, row)) for row in P[corners]))

    def numbers(self) -> tuple[Number, ...]:
        return tuple(c for point in self.points for c in point)

    @classmethod
    def of(cls, numbers: Sequence[Number]) -> Hull:
        if len(numbers) % 3:
            raise ModelError(f"hull: expected three numbers a point, got {len(numbers)}")
        return cls(tuple(zip(*[map(float, numbers)] * 3, strict=True)))

    def placed(self, number: Callable, R: Matrix, p: Vector) -> tuple:
        return (*p, *(e for row in R for e in row))

    def at(self, row: tuple, R: Matrix, p: Vector) -> PosedHull:
        return PosedHull(_moved(R, p, row[:3]), vec.matmul(R, _rows(row[3:12])), self.points)

    def corners(self) -> Iterator[Sphere]:
        for point in self.points:
            yield Sphere(0.0, point)


@dataclass(frozen=True)
class HalfSpace:
    """Half-space as the ground; bodies stay on the side to which its normal points.

    Parameters
    ----------
    point : 3 numbers
        A point of the plane, m. Its component along the normal may be a parameter, the others zero.
    normal : 3 numbers
        Direction out of the ground; not normalized. Parameters are allowed if the point is the origin.
    frame : str
        Frame in which both are given. It may move in `ContactVI`; `MaximalVI` requires a fixed one.
    """

    point: Sequence[Number] = ORIGIN
    normal: Sequence[Number] = UP
    frame: str = "world"

    def __post_init__(self) -> None:
        for name in ("point", "normal"):
            values = as_numbers(getattr(self, name), 3, f"half-space: {name}")
            object.__setattr__(self, name, values)
        if not any(map(float, self.normal)):
            raise ModelError("half-space: normal: expected a direction, got the zero vector")
        _ = self.offset

    @property
    def offset(self) -> Number:
        """Distance of the ground's plane from the origin of its frame, along the normal, m."""
        if not any(isinstance(c, Parameter) or c for c in self.point):
            return 0.0
        if any(isinstance(c, Parameter) for c in self.normal):
            raise ModelError(
                "half-space: normal: parameters only where the point is the origin; give Contact(normal=, "
                "offset=) instead"
            )
        n = np.array(self.normal, float)
        n /= np.linalg.norm(n)
        return _total([c * float(a) for c, a in zip(self.point, n, strict=True) if a])


@dataclass(frozen=True)
class Ground(Shape):
    """Half-space that a frame carries, as the ground: all points x with n . x <= offset.
    The unit vector n, out of the ground, has the direction of the field `normal`.

    The numbers may be parameters.
    """

    normal: Vector3 = UP
    offset: Number = 0.0

    def placed(self, number: Callable, R: Matrix, p: Vector) -> tuple:
        n = vec.apply(R, tuple(map(number, self.normal)))
        size = ca.sqrt(vec.dot(n, n))
        n = tuple(c / size for c in n)
        return (*n, vec.dot(n, p) + number(self.offset))

    def at(self, row: tuple, R: Matrix, p: Vector) -> Plane:
        n = vec.apply(R, tuple(row[:3]))
        return Plane(n, row[3] + vec.dot(n, p))


def triangles(points: np.ndarray) -> np.ndarray:
    """Return the triangles on the surface of the convex hull of given points.
    Each row of the result (m, 3) has the indices, in `points`, of the three corners of one triangle.

    They are counter-clockwise seen from outside.
    """
    from scipy.spatial import ConvexHull

    hull = ConvexHull(points)
    faces = hull.simplices.copy()
    a, b, c = (points[faces[:, i]] for i in range(3))
    inward = np.sum(np.cross(b - a, c - a) * hull.equations[:, :3], axis=1) < 0
    faces[inward] = faces[inward][:, ::-1]
    return faces


SHAPES: dict[str, type[Shape]] = {s.keyword: s for s in (Sphere, Capsule, Box, Hull)}


def _set(shape: Shape, name: str, value: Any) -> None:
    object.__setattr__(shape, name, value)


def _counted(numbers: Sequence[Number], what: str, *counts: int) -> Sequence[Number]:
    if len(numbers) not in counts:
        raise ModelError(f"{what}: expected {' or '.join(map(str, counts))} numbers, got {len(numbers)}")
    return numbers


def _triple(numbers: Sequence[Number], default: Vector3) -> Vector3:
    return tuple(numbers) or default  # type: ignore[return-value]


def _total(terms: Sequence[Number]) -> Number:
    """Return the sum of several numbers, of which one may be a declared parameter.
    A `ModelError` is raised if a number other than 0 would be added to a parameter.
    """
    terms = [t for t in terms if isinstance(t, Parameter) or t]
    if len(terms) == 1:
        return terms[0]
    if any(isinstance(t, Parameter) for t in terms):
        raise ModelError(
            "a parameter in a contact's numbers cannot be added to other numbers, got the sum of "
            f"{', '.join(map(repr, terms))}; centre the shape in a frame of its own"
        )
    return float(sum(map(float, terms)))


def _rows(flat: Sequence[Any]) -> Matrix:
    return tuple(flat[:3]), tuple(flat[3:6]), tuple(flat[6:9])


def _least(value: Any, what: str, least: float) -> Number:
    number = as_number(value, what)
    if float(number) < least:
        raise ModelError(f"{what}: expected at least {least:g}, got {float(number):g}")
    return number


def _positive(value: Any, what: str) -> Number:
    number = as_number(value, what)
    if float(number) <= 0:
        raise ModelError(f"{what}: expected a number > 0, got {float(number):g}")
    return number
