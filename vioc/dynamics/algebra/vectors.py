"""Vectors (3) and matrices (3 x 3) as tuples of floats or CasADi SX scalars, with their operations.

A product with an exact zero is dropped before CasADi sees it, so that recursions over a planar mechanism,
written in three dimensions, cost as much as planar recursions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cache, wraps
from typing import Any, TypeVar

import casadi as ca

Vector = tuple[Any, Any, Any]
Matrix = tuple[Vector, Vector, Vector]

ZERO: Vector = (0.0, 0.0, 0.0)
IDENTITY: Matrix = ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0))
NOTHING: Matrix = (ZERO, ZERO, ZERO)


Function = TypeVar("Function", bound=Callable[..., Any])


def inlined(function: Function) -> Function:
    """Decorate a Python function on tuples of scalars, so that CasADi traces it once and then inlines it.

    An operation on SX takes 3 us or more from Python and 0.1 us in CasADi. The function is therefore traced
    once for each shape of its arguments and then called as a CasADi function, which drops products with exact
    zeros as well. Arguments without symbols are passed to the function itself.
    """
    traced: dict[Any, tuple[ca.Function, Any]] = {}

    @wraps(function)
    def call(*args: Any) -> Any:
        scalars: list[Any] = []
        shape = _flattened(args, scalars)
        if not any(isinstance(e, ca.SX) for e in scalars):
            return function(*args)
        if shape not in traced:
            symbols = ca.SX.sym("a", len(scalars))
            result = function(*_filled(args, iter(symbols.elements())))
            outputs = leaves(result)
            traced[shape] = (
                ca.Function("inlined", [symbols], [ca.densify(ca.vertcat(*outputs))], {"cse": True}),
                result,
            )
        graph, form = traced[shape]
        column = ca.vertcat(*[e if isinstance(e, ca.SX) else _constant(float(e)) for e in scalars])
        return _filled(form, iter(graph.call([column])[0].elements()))

    return call  # type: ignore[return-value]


@cache
def _constant(value: float) -> ca.SX:
    return ca.SX(value)


def leaves(tree: tuple) -> list[Any]:
    """List the leaves of nested tuples from left to right."""
    values: list[Any] = []
    _flattened(tree, values)
    return values


def filled(tree: tuple, values: Iterable[Any]) -> Any:
    """Return nested tuples with their leaves replaced by `values`, from left to right."""
    return _filled(tree, iter(values))


def _flattened(tree: tuple, leaves: list[Any]) -> tuple:
    """Append the leaves of nested tuples to the list `leaves`, and return the nesting.
    The result is the same nested tuples with None in the place of each leaf.
    """
    shape: list[Any] = []
    for branch in tree:
        if isinstance(branch, tuple):
            shape.append(_flattened(branch, leaves))
        else:
            shape.append(None)
            leaves.append(branch)
    return tuple(shape)


def _filled(tree: Any, leaves: Iterator[Any]) -> Any:
    if not isinstance(tree, tuple):
        return next(leaves)
    branches = [_filled(branch, leaves) for branch in tree]
    return type(tree)(*branches) if hasattr(tree, "_fields") else tuple(branches)


def is_zero(a: Any) -> bool:
    return a.is_zero() if isinstance(a, ca.SX) else a == 0.0


# The operators of SX look for types to convert to, which takes 18 us; `SX.binary` takes 3 us.
_binary, _SX = ca.SX.binary, ca.SX


def times(a: Any, b: Any) -> Any:
    symbolic = a.__class__ is _SX
    if a.is_zero() if symbolic else a == 0.0:
        return 0.0
    if b.__class__ is _SX:
        return 0.0 if b.is_zero() else _binary(ca.OP_MUL, a, b)
    if b == 0.0:
        return 0.0
    return _binary(ca.OP_MUL, a, b) if symbolic else a * b


def plus(a: Any, b: Any) -> Any:
    symbolic = a.__class__ is _SX
    if a.is_zero() if symbolic else a == 0.0:
        return b
    if b.__class__ is _SX:
        return a if b.is_zero() else _binary(ca.OP_ADD, a, b)
    if b == 0.0:
        return a
    return _binary(ca.OP_ADD, a, b) if symbolic else a + b


def minus(a: Any, b: Any) -> Any:
    if is_zero(b):
        return a
    if is_zero(a):
        return -b
    return _binary(ca.OP_SUB, a, b) if a.__class__ is _SX or b.__class__ is _SX else a - b


def add(a: Vector, b: Vector) -> Vector:
    return plus(a[0], b[0]), plus(a[1], b[1]), plus(a[2], b[2])


def sub(a: Vector, b: Vector) -> Vector:
    return minus(a[0], b[0]), minus(a[1], b[1]), minus(a[2], b[2])


def scale(s: Any, a: Vector) -> Vector:
    return times(s, a[0]), times(s, a[1]), times(s, a[2])


def dot(a: Vector, b: Vector) -> Any:
    return plus(plus(times(a[0], b[0]), times(a[1], b[1])), times(a[2], b[2]))


def cross(a: Vector, b: Vector) -> Vector:
    return (
        minus(times(a[1], b[2]), times(a[2], b[1])),
        minus(times(a[2], b[0]), times(a[0], b[2])),
        minus(times(a[0], b[1]), times(a[1], b[0])),
    )


def transpose(m: Matrix) -> Matrix:
    return tuple(zip(*m, strict=True))  # type: ignore[return-value]


def apply(m: Matrix, a: Vector) -> Vector:
    return dot(m[0], a), dot(m[1], a), dot(m[2], a)


def matmul(a: Matrix, b: Matrix) -> Matrix:
    return transpose(tuple(apply(a, column) for column in transpose(b)))  # type: ignore[arg-type]


def matadd(a: Matrix, b: Matrix) -> Matrix:
    return add(a[0], b[0]), add(a[1], b[1]), add(a[2], b[2])


def matsub(a: Matrix, b: Matrix) -> Matrix:
    return sub(a[0], b[0]), sub(a[1], b[1]), sub(a[2], b[2])


def matscale(s: Any, m: Matrix) -> Matrix:
    return scale(s, m[0]), scale(s, m[1]), scale(s, m[2])


def skew(a: Vector) -> Matrix:
    return (0.0, -a[2], a[1]), (a[2], 0.0, -a[0]), (-a[1], a[0], 0.0)


def rotation(axis: int, angle: Any) -> Matrix:
    """Return the matrix of a right-handed rotation about a coordinate axis."""
    c, s = ca.cos(angle), ca.sin(angle)
    i, j = (axis + 1) % 3, (axis + 2) % 3
    m = [list(row) for row in IDENTITY]
    m[i][i], m[i][j], m[j][i], m[j][j] = c, -s, s, c
    return tuple(tuple(row) for row in m)  # type: ignore[return-value]


def exponential(linear: Vector, angular: Vector, q: Any) -> tuple[Matrix, Vector]:
    """Return the rotation and position of exp(q xi), with xi = (linear, angular)."""
    if not any(angular):
        return IDENTITY, scale(q, linear)
    size = sum(c * c for c in angular) ** 0.5
    if sorted(angular) == [0.0, 0.0, 1.0]:
        R = rotation(angular.index(1.0), q)
    else:
        a = scale(1 / size, angular)
        s, c = ca.sin(size * q), ca.cos(size * q)
        K = skew(a)
        square = matmul(K, K)
        R = tuple(  # type: ignore[assignment]
            add(IDENTITY[i], add(scale(s, K[i]), scale(1 - c, square[i]))) for i in range(3)
        )
    a, v = scale(1 / size, angular), scale(1 / size, linear)
    lever = cross(a, v)
    shift = scale(times(dot(a, v), size * q), a)
    return R, add(sub(lever, apply(R, lever)), shift)


def joint(place: tuple[Matrix, Vector], linear: Vector, angular: Vector, q: Any) -> tuple[Matrix, Vector]:
    """Return the pose of a link, given its pose at q = 0 and the constant twist of its joint.

    `place` is the pose of the joint in the parent; the twist is (linear, angular).
    """
    return _joint(linear, angular)(place, q)


@cache
def _joint(linear: Vector, angular: Vector) -> Callable[..., tuple[Matrix, Vector]]:
    @inlined
    def pose(place: tuple[Matrix, Vector], q: Any) -> tuple[Matrix, Vector]:
        R, p = exponential(linear, angular, q)
        return matmul(place[0], R), add(place[1], apply(place[0], p))

    return pose


def column(items: Iterable[Any]) -> ca.SX:
    """Stack scalars or columns into one CasADi column; without items it is (0, 1)."""
    return ca.vertcat(ca.SX(0, 1), *items)


def matrix(m: Matrix) -> ca.SX:
    return ca.vertcat(*(ca.horzcat(*row) for row in m))


def part(v: ca.SX, start: int, stop: int | None = None) -> ca.SX:
    """Return the rows from `start` to `stop` - 1 of a CasADi column.
    The result is (0, 1) if there are no such rows.

    CasADi's slice of a 1 x 1 matrix is (1, 0) if it is empty, which `vertcat` pads to a row.
    """
    stop = v.numel() if stop is None else stop
    return v[start:stop] if stop > start else type(v)(0, 1)


def tangents(n: Vector) -> tuple[Vector, Vector]:
    """Return two unit vectors that are normal to the unit vector n and to each other.

    They are continuous except where n_z passes -0.79. No choice is continuous on the whole sphere; floors,
    walls and ceilings that are slightly tilted are far from there.
    """
    x, y, z = n
    sign = ca.if_else(z < -0.79, -1.0, 1.0)  # 1/(sign + z) is at most 5
    a = -1 / (sign + z)
    b = x * y * a
    return (1 + sign * x * x * a, sign * b, -sign * x), (b, sign + y * y * a, -y)
