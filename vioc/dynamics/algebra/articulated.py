"""The articulated-body recursion: K^-1 b of a tree in O(n), for mass matrices and for matrices like them.

Let eta_i be the motion of link i and dF_i the wrench through its joint. With transforms X on the way out and
Y on the way back,

    eta_i = Ad(X_i)^-1 eta_parent + S_i x_i
    dF_i  = M_i eta_i + sum over children of Ad(Y_c)^-T dF_c
    S_i . dF_i + c_i x_i = s b_i

is a linear system K x = s b that is eliminated from the leaves to the root. With spatial inertias for M_i and
Y = X this is Featherstone's inverse of the mass matrix (docs/maths/midpoint.md), where symmetry saves half
the work; with X at q_k+1, Y at q_k and M_i the derivative of the body's momentum, Newton's matrix of DRNEA
(docs/maths/linear_time.md). A joint of several degrees of freedom is a chain of links of which only the last
has M_i: eliminating them one by one is the LU factorization of its n_i x n_i block. Links whose variables are
not among the unknowns (kinematic ones) carry wrenches and motions on as if they were rigid.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import casadi as ca

from vioc.dynamics.algebra import vectors as vec
from vioc.dynamics.algebra.tree_recursions import Link, Wrench, carried, paired
from vioc.dynamics.algebra.vectors import Matrix, Vector

Twist = tuple[Vector, Vector]
Place = tuple[Matrix, Vector]
STILL: Place = (vec.IDENTITY, vec.ZERO)
NOTHING: Wrench = (vec.ZERO, vec.ZERO)


class Spatial(NamedTuple):
    """A symmetric 6 x 6 matrix from twists to wrenches: f = a v + b w, tau = b' v + d w."""

    a: Matrix
    b: Matrix
    d: Matrix


class Blocks(NamedTuple):
    """A 6 x 6 matrix from twists to wrenches: f = a v + b w, tau = c v + d w."""

    a: Matrix
    b: Matrix
    c: Matrix
    d: Matrix


NO_SPATIAL = Spatial(*[vec.NOTHING] * 3)
NO_BLOCKS = Blocks(*[vec.NOTHING] * 4)


class Joint(NamedTuple):
    """Parent link of a link, -1 for the world; its variable among the unknowns, or None; its twist S."""

    parent: int
    row: int | None
    axis: Twist


class ArticulatedInverse:
    """Solver of K x = s b; see the module's text.

    Parameters
    ----------
    joints : sequence of Joint
        Parents come first.
    X : sequence of (rotation, position)
        Pose of each link in its parent on the way out.
    M : sequence of Spatial, or of Blocks
        Matrices without symmetry take a Y.
    diagonal : sequence of scalars
        c, in the order of x.
    scale : scalar
        s.
    Y : sequence of (rotation, position), optional
        Poses on the way back; by default X.

    Notes
    -----
    Scalars are floats or CasADi SX. Where a pivot is zero the solution is inf or NaN, which callers test for.
    """

    def __init__(
        self,
        joints: Sequence[Joint],
        X: Sequence[Place],
        M: Sequence[Spatial] | Sequence[Blocks],
        diagonal: Sequence[Any],
        scale: Any = 1.0,
        Y: Sequence[Place] | None = None,
    ):
        self.joints = tuple(joints)
        self.n = sum(joint.row is not None for joint in joints)
        symmetric = Y is None
        eliminated: Any = _eliminated_symmetric if symmetric else _eliminated
        handed: Any = _handed_symmetric if symmetric else _handed
        total: list[Any] = [*M, NO_SPATIAL if symmetric else NO_BLOCKS]  # the last is the world's
        factors: list[tuple] = [()] * len(joints)
        for i in reversed(range(len(joints))):
            up, row, axis = joints[i]
            places = (X[i],) if Y is None else (X[i], Y[i])
            if row is None:
                along, inverse = (NOTHING,) * len(places), 0.0
                total[up] = handed(total[i], *places, total[up])
            else:
                *along, inverse, total[up] = eliminated(total[i], axis, diagonal[row], *places, total[up])
            # a link on the world hands nothing on
            factors[i] = inverse, *along, *(places if up >= 0 else (STILL,) * len(places))
        self.factors = factors, scale

    @staticmethod
    def of_masses(
        links: Sequence[Link], places: Sequence[Place], n: int, diagonal: Sequence[Any], scale: Any = 1.0
    ) -> ArticulatedInverse:
        """Solver of (M + diag) x = s b over the first `n` variables, M the mass matrix at some poses."""
        joints = [Joint(link.parent, link.index if link.index < n else None, link.twist) for link in links]
        whole = list(diagonal)
        for link in links:
            if link.index < n:
                whole[link.index] = vec.plus(whole[link.index], link.rotor)
        return ArticulatedInverse(joints, places, [*map(_inertia, links)], whole, scale)

    def solve(self, b: Sequence[Any]) -> list[Any]:
        """x with K x = s b."""
        factors, scale = self.factors
        share: list[Wrench] = [NOTHING] * (len(factors) + 1)  # the last is the world's
        rest: list[Any] = [0.0] * len(factors)
        for i in reversed(range(len(factors))):
            up, row, axis = self.joints[i]
            inverse, along, *_, place = factors[i]  # U and Y
            right, axis = (0.0, NOTHING) if row is None else (vec.times(scale, b[row]), axis)
            rest[i], share[up] = _handed_up(place, axis, along, inverse, right, share[i], share[up])
        x: list[Any] = [0.0] * self.n
        motion: list[Twist] = [NOTHING] * (len(factors) + 1)
        for i, (inverse, *both) in enumerate(factors):
            up, row, axis = self.joints[i]
            half = len(both) // 2
            along, place = both[half - 1], both[half]  # W and X
            axis = NOTHING if row is None else axis
            moved, motion[i] = _handed_down(place, axis, along, inverse, rest[i], motion[up])
            if row is not None:
                x[row] = moved
        return x

    # The factors travel between CasADi functions as one vector.

    def entries(self) -> list[Any]:
        """The scalars of the factors that are expressions."""
        return [e for e in vec.leaves(_tree(self.factors)) if _varies(e)]

    def with_entries(self, values: Sequence[Any]) -> ArticulatedInverse:
        """The same structure with other numbers, in the order of `entries`."""
        result, supply, tree = object.__new__(ArticulatedInverse), iter(values), _tree(self.factors)
        result.joints, result.n = self.joints, self.n
        factors, scale = vec.filled(tree, (next(supply) if _varies(e) else e for e in vec.leaves(tree)))
        result.factors = list(factors), scale
        return result


def _tree(factors: tuple[list[tuple], Any]) -> tuple:
    return tuple(factors[0]), factors[1]


def _varies(e: Any) -> bool:
    return isinstance(e, ca.SX) and not e.is_constant()


def _inertia(link: Link) -> Spatial:
    """Mass, -[moment], inertia: momentum = (m v - h x w, h x v + I w)."""
    b = tuple(vec.scale(-1.0, row) for row in vec.skew(link.moment))
    return Spatial(vec.matscale(link.mass, vec.IDENTITY), b, link.inertia)  # type: ignore[arg-type]


# -- with symmetry ----------------------------------------------------------------------------------


@vec.inlined
def _eliminated_symmetric(phi: Spatial, S: Twist, c: Any, X: Place, above: Spatial):
    """U and 1/d of a link, and its parent's Phi with what elimination leaves of it."""
    Sv, Sw = S
    U = (
        vec.add(vec.apply(phi.a, Sv), vec.apply(phi.b, Sw)),
        vec.add(vec.apply(vec.transpose(phi.b), Sv), vec.apply(phi.d, Sw)),
    )
    inverse = 1.0 / vec.plus(paired(S, U), c)
    v, w = (vec.scale(inverse, part) for part in U)
    a, b, d = _less_outer(phi.a, U[0], v), _less_outer(phi.b, U[0], w), _less_outer(phi.d, U[1], w)
    return U, inverse, _sum(above, _between_symmetric(X, Spatial(_mirrored(a), b, _mirrored(d))))


@vec.inlined
def _handed_symmetric(phi: Spatial, X: Place, above: Spatial) -> Spatial:
    """A parent's Phi with all of a link's."""
    return _sum(above, _between_symmetric(X, phi))


def _between_symmetric(X: Place, phi: Spatial) -> Spatial:
    """Ad(X)^-T phi Ad(X)^-1: rotate, then shift by p."""
    R, back, P = X[0], vec.transpose(X[0]), vec.skew(X[1])
    a, b, d = (vec.matmul(vec.matmul(R, block), back) for block in phi)
    a = _mirrored(a)
    # momentum at the parent's origin: f = a (v - p x w) + b w, t = b' (v - p x w) + d w + p x f
    minus = vec.matscale(-1.0, P)
    shifted = vec.matadd(b, vec.matmul(a, minus))
    d = vec.matadd(d, vec.matmul(vec.transpose(b), minus))
    return Spatial(a, shifted, _mirrored(vec.matadd(d, vec.matmul(P, shifted))))


def _mirrored(m: Matrix) -> Matrix:
    """A symmetric matrix by its upper triangle: the lower one is never computed."""
    return m[0], (m[0][1], m[1][1], m[1][2]), (m[0][2], m[1][2], m[2][2])


# -- without ----------------------------------------------------------------------------------------


@vec.inlined
def _eliminated(phi: Blocks, S: Twist, c: Any, X: Place, Y: Place, above: Blocks):
    """U = Phi S, W = Phi' S and 1/d of a link, and its parent's Phi with what elimination leaves of it."""
    Sv, Sw = S
    back = Blocks(*map(vec.transpose, phi))
    U = (
        vec.add(vec.apply(phi.a, Sv), vec.apply(phi.b, Sw)),
        vec.add(vec.apply(phi.c, Sv), vec.apply(phi.d, Sw)),
    )
    W = (
        vec.add(vec.apply(back.a, Sv), vec.apply(back.c, Sw)),
        vec.add(vec.apply(back.b, Sv), vec.apply(back.d, Sw)),
    )
    inverse = 1.0 / vec.plus(paired(S, U), c)
    v, w = (vec.scale(inverse, part) for part in U)
    rest = Blocks(
        _less_outer(phi.a, v, W[0]),
        _less_outer(phi.b, v, W[1]),
        _less_outer(phi.c, w, W[0]),
        _less_outer(phi.d, w, W[1]),
    )
    return U, W, inverse, _sum(above, _between(X, Y, rest))


@vec.inlined
def _handed(phi: Blocks, X: Place, Y: Place, above: Blocks) -> Blocks:
    """A parent's Phi with all of a link's."""
    return _sum(above, _between(X, Y, phi))


def _between(X: Place, Y: Place, phi: Blocks) -> Blocks:
    """Ad(Y)^-T phi Ad(X)^-1."""
    back = vec.transpose(X[0])
    a, b, c, d = (vec.matmul(vec.matmul(Y[0], block), back) for block in phi)
    p, y = vec.skew(X[1]), vec.skew(Y[1])
    b = vec.matsub(b, vec.matmul(a, p))
    d = vec.matsub(d, vec.matmul(c, p))
    return Blocks(a, b, vec.matadd(c, vec.matmul(y, a)), vec.matadd(d, vec.matmul(y, b)))


# -- with or without --------------------------------------------------------------------------------


def _less_outer(m: Matrix, a: Vector, b: Vector) -> Matrix:
    """m - a b'."""
    return tuple(vec.sub(row, vec.scale(e, b)) for row, e in zip(m, a, strict=True))  # type: ignore[return-value]


def _sum(a: Any, b: Any) -> Any:
    return type(a)(*(vec.matadd(x, y) for x, y in zip(a, b, strict=True)))


@vec.inlined
def _handed_up(place: Place, S: Twist, along: Wrench, inverse: Any, b: Any, share: Wrench, above: Wrench):
    """(b - S . phi)/d of a link, and its parent's phi with its share."""
    rest = vec.times(inverse, vec.minus(b, paired(S, share)))
    up = carried(place, _moved(share, rest, along))
    return rest, (vec.add(above[0], up[0]), vec.add(above[1], up[1]))


@vec.inlined
def _handed_down(place: Place, S: Twist, along: Wrench, inverse: Any, rest: Any, above: Twist):
    """x and the motion of a link below one that moves by `above`."""
    V = twist_to_child(place, above)
    x = vec.minus(rest, vec.times(inverse, paired(V, along)))
    return x, _moved(V, x, S)


def _moved(a: Twist, s: Any, b: Twist) -> Twist:
    """a + s b."""
    return vec.add(a[0], vec.scale(s, b[0])), vec.add(a[1], vec.scale(s, b[1]))


@vec.inlined
def twist_to_child(X: Place, V: Twist) -> Twist:
    """Ad(X)^-1 V: a twist of the parent, seen in a frame at the pose X in it."""
    back = vec.transpose(X[0])
    return vec.apply(back, vec.add(V[0], vec.cross(V[1], X[1]))), vec.apply(back, V[1])
