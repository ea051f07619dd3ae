"""The inverse of a tree's mass matrix in O(n): Featherstone's articulated-body sweeps.

Factors on CasADi SX scalars, with the interface of `SparseLU`. Links whose variables are not among the
unknowns (kinematic ones) carry wrenches and accelerations on as if they were rigid.
Derivation: docs/maths/midpoint.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from vioc.dynamics import vectors as vec
from vioc.dynamics.sweeps import Link
from vioc.dynamics.vectors import Matrix, Vector

Spatial = tuple[Matrix, Matrix, Matrix]  # linear-linear, linear-angular, angular-angular; symmetric


class ArticulatedInverse:
    """Solver of (M + diag) x = s a over the first `n` variables.

    Parameters
    ----------
    links : sequence of Link
        With their poses filled in by `sweep`.
    n : int
        Variables that are unknown: those with an index below.
    diagonal : sequence of n scalars
        Added to M.
    scale : scalar
        The s.
    """

    def __init__(self, links: Sequence[Link], n: int, diagonal: Sequence[Any], scale: Any = 1.0):
        self.n = n
        self._scale = scale
        self._joints = [(link.index, link.parent, link.Sv, link.Sw) for link in links]
        self._poses = [(link.R, link.p) for link in links]
        inertias: list[Spatial] = [_spatial(link) for link in links]
        count = len(links)
        self._U: list[tuple[Vector, Vector]] = [(vec.ZERO, vec.ZERO)] * count
        self._inverse: list[Any] = [0.0] * count
        for i in reversed(range(count)):
            link, (A, B, C) = links[i], inertias[i]
            if link.index < n:
                U = _apply(A, B, C, link.Sv, link.Sw)
                d = vec.plus(_dot(link.Sv, link.Sw, *U), diagonal[link.index])
                self._U[i], self._inverse[i] = U, 1.0 / d
                v, w = (vec.scale(self._inverse[i], part) for part in U)
                A, B, C = _minus_outer(A, U[0], v), _minus_outer(B, U[0], w), _minus_outer(C, U[1], w)
                A, C = _mirrored(A), _mirrored(C)
            if link.parent >= 0:
                inertias[link.parent] = _sum(inertias[link.parent], _to_parent(link, A, B, C))

    def solve(self, a: list[Any]) -> list[Any]:
        """x with (M + diag) x = s a."""
        joints, count = self._joints, len(self._joints)
        bias: list[tuple[Vector, Vector]] = [(vec.ZERO, vec.ZERO)] * count
        u: list[Any] = [0.0] * count
        for i in reversed(range(count)):
            index, parent, Sv, Sw = joints[i]
            force, torque = bias[i]
            if index < self.n:
                scaled = vec.times(self._scale, a[index])
                u[i] = vec.times(self._inverse[i], vec.minus(scaled, _dot(Sv, Sw, force, torque)))
                force = vec.add(force, vec.scale(u[i], self._U[i][0]))
                torque = vec.add(torque, vec.scale(u[i], self._U[i][1]))
            if parent >= 0:
                R, p = self._poses[i]
                turned = vec.apply(R, force)
                moved = vec.add(vec.apply(R, torque), vec.cross(p, turned))
                bias[parent] = vec.add(bias[parent][0], turned), vec.add(bias[parent][1], moved)
        x: list[Any] = [0.0] * self.n
        motion: list[tuple[Vector, Vector]] = [(vec.ZERO, vec.ZERO)] * count
        for i in range(count):
            index, parent, Sv, Sw = joints[i]
            v, w = vec.ZERO, vec.ZERO
            if parent >= 0:
                R, p = self._poses[i]
                back = vec.transpose(R)
                above = motion[parent]
                v = vec.apply(back, vec.add(above[0], vec.cross(above[1], p)))
                w = vec.apply(back, above[1])
            if index < self.n:
                x[index] = vec.minus(u[i], vec.times(self._inverse[i], _dot(v, w, *self._U[i])))
                v = vec.add(v, vec.scale(x[index], Sv))
                w = vec.add(w, vec.scale(x[index], Sw))
            motion[i] = v, w
        return x

    # The factors travel between CasADi functions as one vector.

    def entries(self) -> list[Any]:
        """The numbers of the factors that are not zero or one by structure."""
        result: list[Any] = []

        def keep(value: Any) -> Any:
            result.append(value)
            return value

        self._walk(keep)
        return result

    def with_entries(self, values: list[Any]) -> ArticulatedInverse:
        """The same structure with other numbers, in the order of `entries`."""
        result = object.__new__(ArticulatedInverse)
        result.n, result._joints = self.n, self._joints
        supply = iter(values)
        result._poses, result._U, result._inverse, result._scale = self._walk(lambda _: next(supply))
        return result

    def _walk(self, visit: Callable[[Any], Any]):
        """The factors with `visit` applied to every number that is not a constant of the structure."""

        def each(value: Any) -> Any:
            if isinstance(value, float | int) or value.is_constant():
                return value
            return visit(value)

        def vector(a: Vector) -> Vector:
            return tuple(each(e) for e in a)

        # a link on the world hands nothing on
        poses = [
            (tuple(vector(row) for row in R), vector(p)) if joint[1] >= 0 else (R, p)
            for joint, (R, p) in zip(self._joints, self._poses, strict=True)
        ]
        U = [(vector(v), vector(w)) for v, w in self._U]
        return poses, U, [each(d) for d in self._inverse], each(self._scale)


def _spatial(link: Link) -> Spatial:
    """Mass, -[moment], inertia: momentum = (m v - h x w, h x v + I w)."""
    m = link.mass
    A = tuple(tuple(m if r == c else 0.0 for c in range(3)) for r in range(3))
    B = tuple(vec.scale(-1.0, row) for row in vec.skew(link.moment))
    return A, B, link.inertia  # type: ignore[return-value]


def _apply(A: Matrix, B: Matrix, C: Matrix, v: Vector, w: Vector) -> tuple[Vector, Vector]:
    linear = vec.add(vec.apply(A, v), vec.apply(B, w))
    return linear, vec.add(vec.apply(vec.transpose(B), v), vec.apply(C, w))


def _dot(v: Vector, w: Vector, f: Vector, t: Vector) -> Any:
    return vec.plus(vec.dot(v, f), vec.dot(w, t))


def _minus_outer(A: Matrix, a: Vector, b: Vector) -> Matrix:
    return tuple(vec.sub(row, vec.scale(e, b)) for row, e in zip(A, a, strict=True))  # type: ignore[return-value]


def _sum(a: Spatial, b: Spatial) -> Spatial:
    return tuple(vec.matadd(x, y) for x, y in zip(a, b, strict=True))  # type: ignore[return-value]


def _to_parent(link: Link, A: Matrix, B: Matrix, C: Matrix) -> Spatial:
    """Spatial inertia in the parent link's frame: rotate, then shift by p."""
    R, back, P = link.R, vec.transpose(link.R), vec.skew(link.p)
    A, B, C = (vec.matmul(vec.matmul(R, X), back) for X in (A, B, C))
    A = _mirrored(A)
    # momentum at the parent's origin: f = A (v - p x w) + B w, t = B' (v - p x w) + C w + p x f
    minus = tuple(vec.scale(-1.0, row) for row in P)
    B1 = vec.matadd(B, vec.matmul(A, minus))  # type: ignore[arg-type]
    C1 = vec.matadd(C, vec.matmul(vec.transpose(B), minus))  # type: ignore[arg-type]
    return A, B1, _mirrored(vec.matadd(C1, vec.matmul(P, B1)))


def _mirrored(A: Matrix) -> Matrix:
    """A symmetric matrix by its upper triangle: the lower one is never computed."""
    return A[0], (A[0][1], A[1][1], A[1][2]), (A[0][2], A[1][2], A[2][2])
