"""The inverse of a tree's mass matrix in O(n): Featherstone's articulated-body sweeps.

Factors on CasADi SX scalars, with the interface of `SparseLU`. Links whose variables are not among the
unknowns (kinematic ones) carry wrenches and accelerations on as if they were rigid.
Derivation: docs/maths/midpoint.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from vioc.dynamics.algebra import vectors as vec
from vioc.dynamics.algebra.tree_recursions import Link, Wrench, carried, paired
from vioc.dynamics.algebra.vectors import Matrix, Vector

NOTHING: Wrench = (vec.ZERO, vec.ZERO)
Pose = tuple[Matrix, Vector]
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
        self._joints = [(link.index, link.parent, link.twist) for link in links]
        self._poses = [link.pose for link in links]
        inertias: list[Spatial] = [*map(_spatial, links), (vec.NOTHING,) * 3]  # the last is the world's
        count = len(links)
        self._U: list[Wrench] = [NOTHING] * count
        self._inverse: list[Any] = [0.0] * count
        for i in reversed(range(count)):
            link, up = links[i], links[i].parent
            if link.index < n:
                self._U[i], self._inverse[i], inertias[up] = _eliminated(
                    inertias[i], link.twist, diagonal[link.index], link.pose, inertias[up]
                )
            else:
                inertias[up] = _carried(inertias[i], link.pose, inertias[up])

    def solve(self, a: list[Any]) -> list[Any]:
        """x with (M + diag) x = s a."""
        joints, count = self._joints, len(self._joints)
        bias: list[Wrench] = [NOTHING] * (count + 1)  # the last is the world's
        u: list[Any] = [0.0] * count
        for i in reversed(range(count)):
            index, up, S = joints[i]
            known = index >= self.n
            right, S = (0.0, NOTHING) if known else (vec.times(self._scale, a[index]), S)
            factors = self._poses[i], S, self._U[i], self._inverse[i]
            u[i], bias[up] = _handed_up(*factors, right, bias[i], bias[up])
        x: list[Any] = [0.0] * self.n
        motion: list[Wrench] = [NOTHING] * (count + 1)
        for i in range(count):
            index, up, S = joints[i]
            known = index >= self.n
            factors = self._poses[i], NOTHING if known else S, self._U[i], self._inverse[i]
            moved, motion[i] = _handed_down(*factors, u[i], motion[up])
            if not known:
                x[index] = moved
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


@vec.inlined
def _eliminated(inertia: Spatial, S: Wrench, diagonal: Any, pose: Pose, above: Spatial):
    """U and 1/d of a link, and its parent's inertia with what elimination leaves of it."""
    A, B, C = inertia
    Sv, Sw = S
    U = (
        vec.add(vec.apply(A, Sv), vec.apply(B, Sw)),
        vec.add(vec.apply(vec.transpose(B), Sv), vec.apply(C, Sw)),
    )
    inverse = 1.0 / vec.plus(paired(S, U), diagonal)
    v, w = (vec.scale(inverse, part) for part in U)
    A, B, C = _minus_outer(A, U[0], v), _minus_outer(B, U[0], w), _minus_outer(C, U[1], w)
    return U, inverse, _sum(above, _to_parent(pose, _mirrored(A), B, _mirrored(C)))


@vec.inlined
def _carried(inertia: Spatial, pose: Pose, above: Spatial) -> Spatial:
    """A parent's inertia with all of a link's."""
    return _sum(above, _to_parent(pose, *inertia))


@vec.inlined
def _handed_up(pose: Pose, S: Wrench, U: Wrench, inverse: Any, a: Any, bias: Wrench, above: Wrench):
    """(a - S . bias)/d of a link, and its parent's bias with its share."""
    u = vec.times(inverse, vec.minus(a, paired(S, bias)))
    up = carried(pose, tuple(vec.add(b, vec.scale(u, part)) for b, part in zip(bias, U, strict=True)))  # type: ignore[arg-type]
    return u, (vec.add(above[0], up[0]), vec.add(above[1], up[1]))


@vec.inlined
def _handed_down(pose: Pose, S: Wrench, U: Wrench, inverse: Any, u: Any, above: Wrench):
    """x and the motion of a link below one that moves by `above`."""
    back = vec.transpose(pose[0])
    v = vec.apply(back, vec.add(above[0], vec.cross(above[1], pose[1])))
    w = vec.apply(back, above[1])
    x = vec.minus(u, vec.times(inverse, paired((v, w), U)))
    return x, (vec.add(v, vec.scale(x, S[0])), vec.add(w, vec.scale(x, S[1])))


def _minus_outer(A: Matrix, a: Vector, b: Vector) -> Matrix:
    return tuple(vec.sub(row, vec.scale(e, b)) for row, e in zip(A, a, strict=True))  # type: ignore[return-value]


def _sum(a: Spatial, b: Spatial) -> Spatial:
    return tuple(vec.matadd(x, y) for x, y in zip(a, b, strict=True))  # type: ignore[return-value]


def _to_parent(pose: Pose, A: Matrix, B: Matrix, C: Matrix) -> Spatial:
    """Spatial inertia in the parent link's frame: rotate, then shift by p."""
    R, back, P = pose[0], vec.transpose(pose[0]), vec.skew(pose[1])
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
