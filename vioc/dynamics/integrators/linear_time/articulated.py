"""The articulated-body recursion without symmetry: J^-1 b in O(n) for the Jacobian of DRNEA.

Let eta_i be the variation of body i's pose at the end of the step and dF_i that of the impulse through its
joint. With forward transforms at one configuration and backward ones at another,

    eta_i = Ad(X_i)^-1 eta_parent + S_i dq_i
    dF_i  = M_i eta_i + sum over children of Ad(Y_c)^-T dF_c
    S_i . dF_i + c_i dq_i = b_i

is a linear system K dq = b that is eliminated from the leaves to the root (docs/maths/linear_time.md).
X at q_k+1, Y at q_k and M_i the derivative of the body's momentum give the Newton matrix of DRNEA;
X = Y = X(q_k) and M_i = G_i / h give M(q_k) / h, the articulated-body inverse of RIQN. A joint of several
degrees of freedom is a chain of links of which only the last has M_i: eliminating them one by one is the
LU factorization of its n_i x n_i block.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import casadi as ca

from vioc.dynamics.algebra import vectors as vec
from vioc.dynamics.algebra.vectors import Matrix, Vector

Twist = tuple[Vector, Vector]
Wrench = tuple[Vector, Vector]
Place = tuple[Matrix, Vector]


class Blocks(NamedTuple):
    """A 6 x 6 matrix from twists to wrenches: f = a v + b w, tau = c v + d w."""

    a: Matrix
    b: Matrix
    c: Matrix
    d: Matrix


NO_BLOCKS = Blocks(*[vec.NOTHING] * 4)


@vec.inlined
def twist_to_child(X: Place, V: Twist) -> Twist:
    """Ad(X)^-1 V: a twist of the parent, seen in a frame at the pose X in it."""
    back = vec.transpose(X[0])
    return vec.apply(back, vec.add(V[0], vec.cross(V[1], X[1]))), vec.apply(back, V[1])


@vec.inlined
def wrench_to_parent(X: Place, P: Wrench) -> Wrench:
    """Ad(X)^-T P."""
    force = vec.apply(X[0], P[0])
    return force, vec.add(vec.apply(X[0], P[1]), vec.cross(X[1], force))


def _between(X: Place, Y: Place, m: Blocks) -> Blocks:
    """Ad(Y)^-T m Ad(X)^-1."""
    back = vec.transpose(X[0])
    a, b, c, d = (vec.matmul(vec.matmul(Y[0], block), back) for block in m)
    p, y = vec.skew(X[1]), vec.skew(Y[1])
    b = _less(b, vec.matmul(a, p))
    d = _less(d, vec.matmul(c, p))
    return Blocks(a, b, vec.matadd(c, vec.matmul(y, a)), vec.matadd(d, vec.matmul(y, b)))


def _less(m: Matrix, n: Matrix) -> Matrix:
    return vec.sub(m[0], n[0]), vec.sub(m[1], n[1]), vec.sub(m[2], n[2])


def _plus(m: Blocks, n: Blocks) -> Blocks:
    return Blocks(*(vec.matadd(x, y) for x, y in zip(m, n, strict=True)))


def _outer(a: Vector, b: Vector) -> Matrix:
    return vec.scale(a[0], b), vec.scale(a[1], b), vec.scale(a[2], b)


def pair(V: Twist, P: Wrench) -> Any:
    """V . P"""
    return vec.plus(vec.dot(V[0], P[0]), vec.dot(V[1], P[1]))


def _sum(P: Wrench, Q: Wrench) -> Wrench:
    return vec.add(P[0], Q[0]), vec.add(P[1], Q[1])


def _scaled(s: Any, P: Wrench) -> Wrench:
    return vec.scale(s, P[0]), vec.scale(s, P[1])


@vec.inlined
def _carried(phi: Blocks, X: Place, Y: Place, above: Blocks) -> Blocks:
    """`above`, the parent's Phi so far, with a link's share of it."""
    return _plus(above, _between(X, Y, phi))


@vec.inlined
def _eliminated(phi: Blocks, S: Twist, damping: Any, X: Place, Y: Place, above: Blocks):
    """U, W, d, 1/d of a link, and its parent's Phi with what elimination leaves of it."""
    Sv, Sw = S
    a, b, c, d = (vec.transpose(block) for block in phi)
    U = (
        vec.add(vec.apply(phi.a, Sv), vec.apply(phi.b, Sw)),
        vec.add(vec.apply(phi.c, Sv), vec.apply(phi.d, Sw)),
    )
    W = (
        vec.add(vec.apply(a, Sv), vec.apply(c, Sw)),
        vec.add(vec.apply(b, Sv), vec.apply(d, Sw)),
    )
    pivot = vec.plus(pair(S, U), damping)
    inverse = 1.0 / pivot
    V = _scaled(inverse, U)
    rest = Blocks(
        _less(phi.a, _outer(V[0], W[0])),
        _less(phi.b, _outer(V[0], W[1])),
        _less(phi.c, _outer(V[1], W[0])),
        _less(phi.d, _outer(V[1], W[1])),
    )
    return U, W, pivot, inverse, _plus(above, _between(X, Y, rest))


@vec.inlined
def _handed_up(place: Place, S: Twist, along: Wrench, inverse: Any, b: Any, share: Wrench, above: Wrench):
    """(b - S . phi)/d of a link, and its parent's phi with its share."""
    rest = vec.times(vec.minus(b, pair(S, share)), inverse)
    return rest, _sum(above, wrench_to_parent(place, _sum(share, _scaled(rest, along))))


@vec.inlined
def _handed_down(place: Place, S: Twist, along: Wrench, inverse: Any, rest: Any, above: Twist):
    """dq and eta of a link below one that moves by `above`."""
    V = twist_to_child(place, above)
    x = vec.minus(rest, vec.times(pair(V, along), inverse))
    return x, _sum(V, _scaled(x, S))


@dataclass(frozen=True)
class _Factor:
    """What elimination leaves of a link: Phi S, S' Phi, 1/d and the two transforms."""

    U: Wrench
    W: Wrench
    inverse: Any
    X: Place
    Y: Place

    def scalars(self) -> list[Any]:
        flat: list[Any] = [*self.U[0], *self.U[1], *self.W[0], *self.W[1], self.inverse]
        for R, p in (self.X, self.Y):
            flat += [*R[0], *R[1], *R[2], *p]
        return flat

    @staticmethod
    def of(flat: list[Any]) -> _Factor:
        def three(i: int) -> Vector:
            return flat[i], flat[i + 1], flat[i + 2]

        def place(i: int) -> Place:
            return (three(i), three(i + 3), three(i + 6)), three(i + 9)

        return _Factor((three(0), three(3)), (three(6), three(9)), flat[12], place(13), place(25))


class ArticulatedInverse:
    """Solver of K dq = b by the articulated-body recursion; see the module's text.

    Parameters
    ----------
    parents : sequence of int
        Parent link of each link, -1 for the world; parents come first.
    axes : sequence of (linear, angular)
        S_i.
    rows : sequence of int or None
        Place of each link's variable in b and dq; None where it is prescribed.
    X, Y : sequences of (rotation, position)
        Forward and backward transforms of each link in its parent.
    M : sequence of Blocks
    damping : sequence of scalars
        c_i.

    Notes
    -----
    Scalars are floats or CasADi SX. ``pivots`` are the d_i in the order of dq. Where one is zero the
    solution is inf or NaN, which callers test for.
    """

    def __init__(
        self,
        parents: Sequence[int],
        axes: Sequence[Twist],
        rows: Sequence[int | None],
        X: Sequence[Place],
        Y: Sequence[Place],
        M: Sequence[Blocks],
        damping: Sequence[Any],
    ):
        self.parents, self.axes, self.rows = tuple(parents), tuple(axes), tuple(rows)
        self.n = sum(row is not None for row in rows)
        total = [*M, NO_BLOCKS]  # the last is the world's
        factors: list[_Factor] = []
        pivots: dict[int, Any] = {}
        for i in reversed(range(len(M))):
            up, row = self.parents[i], self.rows[i]
            if row is None:
                U = W = (vec.ZERO, vec.ZERO)
                inverse: Any = 0.0
                total[up] = _carried(total[i], X[i], Y[i], total[up])
            else:
                U, W, pivots[row], inverse, total[up] = _eliminated(
                    total[i], self.axes[i], damping[i], X[i], Y[i], total[up]
                )
            factors.append(_Factor(U, W, inverse, X[i], Y[i]))
        self.factors = factors[::-1]
        self.pivots = [pivots[row] for row in range(self.n)]

    def solve(self, b: Sequence[Any], transposed: bool = False) -> list[Any]:
        """K^-1 b, or K^-T b: there forward and backward exchange their transforms and factors."""
        n = len(self.parents)
        nothing: Wrench = (vec.ZERO, vec.ZERO)
        share: list[Wrench] = [nothing] * (n + 1)  # the last is the world's
        rest: list[Any] = [0.0] * n
        for i in reversed(range(n)):
            f, row, up = self.factors[i], self.rows[i], self.parents[i]
            place, along = (f.X, f.W) if transposed else (f.Y, f.U)
            right = 0.0 if row is None else b[row]
            axis = nothing if row is None else self.axes[i]
            rest[i], share[up] = _handed_up(place, axis, along, f.inverse, right, share[i], share[up])
        x: list[Any] = [0.0] * self.n
        eta: list[Twist] = [nothing] * (n + 1)
        for i, f in enumerate(self.factors):
            place, along = (f.Y, f.U) if transposed else (f.X, f.W)
            row = self.rows[i]
            axis = nothing if row is None else self.axes[i]
            moved, eta[i] = _handed_down(place, axis, along, f.inverse, rest[i], eta[self.parents[i]])
            if row is not None:
                x[row] = moved
        return x

    # Factors travel between CasADi functions as one vector.

    def entries(self) -> list[Any]:
        """The scalars of the factors that are expressions."""
        return [e for f in self.factors for e in f.scalars() if _varies(e)] + list(self.pivots)

    def with_entries(self, values: Sequence[Any]) -> ArticulatedInverse:
        """The same structure with other numbers, in the order of `entries`."""
        result = object.__new__(ArticulatedInverse)
        result.parents, result.axes, result.rows, result.n = self.parents, self.axes, self.rows, self.n
        supply = iter(values)
        result.factors = [
            _Factor.of([next(supply) if _varies(e) else e for e in f.scalars()]) for f in self.factors
        ]
        result.pivots = [next(supply) for _ in self.pivots]
        return result


def _varies(e: Any) -> bool:
    return isinstance(e, ca.SX) and not e.is_constant()
