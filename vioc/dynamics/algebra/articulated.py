"""Articulated-body recursion: O(n) solution of linear systems with a mass matrix.
It also solves the linear systems of Newton's method in an integration step, which have the same structure.

Let eta_i be the motion of link i and dF_i the wrench through its joint. With transforms X from the root
outwards and Y back to the root,

    eta_i = Ad(X_i)^-1 eta_parent + S_i x_i
    dF_i  = M_i eta_i + sum over children of Ad(Y_c)^-T dF_c
    S_i . dF_i + c_i x_i = s b_i

is a linear system K x = s b, which is eliminated from the leaves to the root. With spatial inertias for M_i
and Y = X this is Featherstone's inverse of the mass matrix (docs/maths/midpoint.md), where symmetry saves
half the work; with X at q_k+1, Y at q_k and M_i the derivative of the body's momentum, it is Newton's matrix
of DRNEA (docs/maths/linear_time.md). A joint of several degrees of freedom is a chain of links of which only
the last has M_i: eliminating them one by one is the LU factorization of its n_i x n_i block. Links whose
variables are not among the unknowns (kinematic ones) transmit wrenches and motions as if they were rigid.

A symmetric K may couple an unknown with others above it on its branch by c_ia, as the springs of a hinge
with three angles do. Eliminating x_i adds for each such x_a a wrench P_a on the link above, which is
transmitted until x_a is eliminated itself:

    U = M_i S + P_i,   d = S . (U + P_i) + c_ii,   e_a = S . P_a + c_ia,
    P_a <- Ad(X_i)^-T (P_a - U e_a / d),   c_ab <- c_ab - e_a e_b / d
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import Any, NamedTuple

import casadi as ca

from vioc.dynamics.algebra import vectors as vec
from vioc.dynamics.algebra.tree_recursions import Link, Wrench, carried, paired
from vioc.dynamics.algebra.vectors import Matrix, Vector

Twist = tuple[Vector, Vector]
Place = tuple[Matrix, Vector]
HINGE = 3  # consecutive unknowns along a branch among which couplings leave the recursion O(n)
STILL: Place = (vec.IDENTITY, vec.ZERO)
NOTHING: Wrench = (vec.ZERO, vec.ZERO)


class Spatial(NamedTuple):
    """Symmetric 6 x 6 matrix in 3 x 3 blocks, which maps a twist (v, w) to a wrench (f, tau).

    f = a v + b w, tau = b' v + d w.
    """

    a: Matrix
    b: Matrix
    d: Matrix


class SpatialMatrix(NamedTuple):
    """General 6 x 6 matrix in 3 x 3 blocks, which maps a twist (v, w) to a wrench (f, tau).

    f = a v + b w, tau = c v + d w.
    """

    a: Matrix
    b: Matrix
    c: Matrix
    d: Matrix


NO_SPATIAL = Spatial(*[vec.NOTHING] * 3)
NO_BLOCKS = SpatialMatrix(*[vec.NOTHING] * 4)


class LinkJoint(NamedTuple):
    """Joint of a link: parent link, index of the joint's unknown, and twist of the joint.
    The unknown belongs to a linear system, such as the system M x = b with the mass matrix M.

    Attributes
    ----------
    parent : int
        Parent link, -1 for the world.
    row : int or None
        Index of the joint's variable among the unknowns.
    axis : twist
        Twist S of the joint.
    """

    parent: int
    row: int | None
    axis: Twist


class ArticulatedInverse:
    """Solver of linear systems K x = s b for a tree of links, in O(n) operations.
    The matrix K is the mass matrix, or the matrix of Newton's method in an integration step, which has the
    same sparsity structure. The docstring of the module defines K by the following parameters.

    Parameters
    ----------
    joints : sequence of LinkJoint
        Joints of the links; parents come first.
    X : sequence of (rotation, position)
        Pose of each link in its parent, which transforms motions.
    M : sequence of Spatial, or of SpatialMatrix
        Matrix of each link, from its motion to a wrench. Matrices without symmetry require a Y.
    diagonal : sequence of scalars
        Coefficients c_i, in the order of x.
    scale : scalar
        Factor s.
    Y : sequence of (rotation, position), optional
        Pose of each link in its parent, which transforms wrenches; by default X.
    couplings : mapping of (int, int) to scalar, optional
        c_ia of two unknowns on one branch, each pair once and in either order; only without Y.

    Notes
    -----
    Scalars are floats or CasADi SX. If a pivot is zero the solution is inf or NaN, for which callers test.
    """

    def __init__(
        self,
        joints: Sequence[LinkJoint],
        X: Sequence[Place],
        M: Sequence[Spatial] | Sequence[SpatialMatrix],
        diagonal: Sequence[Any],
        scale: Any = 1.0,
        Y: Sequence[Place] | None = None,
        couplings: Mapping[tuple[int, int], Any] | None = None,
    ):
        self.joints = tuple(joints)
        self.n = sum(joint.row is not None for joint in joints)
        symmetric = Y is None
        c: list[dict[int, Any]] = [{row: value} for row, value in enumerate(diagonal)]
        for (a, b), value in (couplings or {}).items():
            c[a][b] = c[b][a] = value
        pending: list[dict[int, Wrench]] = [{} for _ in (*joints, "world")]  # P_a of each link, by a
        self.tied: list[tuple[int, ...]] = [()] * len(joints)  # the unknowns a of each link's e_a
        ties: list[tuple] = [()] * len(joints)
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
                transmitted = {a: carried(X[i], P) for a, P in pending[i].items()}
            else:
                coupling = (pending[i].pop(row, NOTHING),) if symmetric else ()
                *along, inverse, total[up] = eliminated(
                    total[i], axis, c[row][row], *coupling, *places, total[up]
                )
                e, transmitted = {}, {}
                for a in sorted({*pending[i], *c[row]} - {row}):
                    P = pending[i].get(a, NOTHING)
                    e[a], transmitted[a] = _tied(P, axis, c[row].get(a, 0.0), inverse, along[0], X[i])
                    c[a].pop(row, None)
                for a, b in product(e, e):
                    c[a][b] = vec.minus(c[a].get(b, 0.0), vec.times(inverse, vec.times(e[a], e[b])))
                self.tied[i], ties[i] = tuple(e), tuple(e.values())
            for a, P in transmitted.items():
                pending[up][a] = _both(pending[up].get(a, NOTHING), P)
            # a link on the world transmits nothing
            factors[i] = inverse, *along, *(places if up >= 0 else (STILL,) * len(places))
        self.factors = factors, scale, ties

    @staticmethod
    def of_masses(
        links: Sequence[Link],
        places: Sequence[Place],
        n: int,
        diagonal: Sequence[Any],
        scale: Any = 1.0,
        couplings: Mapping[tuple[int, int], Any] | None = None,
    ) -> ArticulatedInverse:
        """Return a solver of (M + C) x = s b with the mass matrix M of the given links.
        The matrix C has the entries `diagonal` on its diagonal and the entries `couplings` elsewhere; the
        scalar s is `scale`.

        M is that of the first `n` variables at the poses `places`.
        """
        joints = [
            LinkJoint(link.parent, link.index if link.index < n else None, link.twist) for link in links
        ]
        whole = list(diagonal)
        for link in links:
            if link.index < n:
                whole[link.index] = vec.plus(whole[link.index], link.rotor)
        return ArticulatedInverse(joints, places, [*map(_inertia, links)], whole, scale, couplings=couplings)

    @property
    def pivots(self) -> ca.SX:
        """Pivots (n,) with which the unknowns are eliminated, in the order of the unknowns."""
        factors, _, _ = self.factors
        inverses = {joint.row: inverse for joint, (inverse, *_) in zip(self.joints, factors, strict=True)}
        return vec.column(1.0 / inverses[row] for row in range(self.n))

    def solve(self, b: Sequence[Any]) -> list[Any]:
        """Solve K x = s b for x, given b, with the matrix K and the scalar s of this solver."""
        factors, scale, ties = self.factors
        less: list[Any] = [0.0] * self.n
        share: list[Wrench] = [NOTHING] * (len(factors) + 1)  # the last is the world's
        rest: list[Any] = [0.0] * len(factors)
        for i in reversed(range(len(factors))):
            up, row, axis = self.joints[i]
            inverse, along, *_, place = factors[i]  # U and Y
            right = 0.0 if row is None else vec.minus(vec.times(scale, b[row]), less[row])
            axis = NOTHING if row is None else axis
            rest[i], share[up] = _handed_up(place, axis, along, inverse, right, share[i], share[up])
            for a, e in zip(self.tied[i], ties[i], strict=True):
                less[a] = vec.plus(less[a], vec.times(e, rest[i]))
        x: list[Any] = [0.0] * self.n
        motion: list[Twist] = [NOTHING] * (len(factors) + 1)
        for i, (inverse, *both) in enumerate(factors):
            up, row, axis = self.joints[i]
            half = len(both) // 2
            along, place = both[half - 1], both[half]  # W and X
            axis = NOTHING if row is None else axis
            for a, e in zip(self.tied[i], ties[i], strict=True):
                rest[i] = vec.minus(rest[i], vec.times(inverse, vec.times(e, x[a])))
            x_row, motion[i] = _handed_down(place, axis, along, inverse, rest[i], motion[up])
            if row is not None:
                x[row] = x_row
        return x

    # The factors pass between CasADi functions as one vector.

    def entries(self) -> list[Any]:
        """List the symbolic (not constant) scalars in the stored factorization of K."""
        return [e for e in vec.leaves(_tree(self.factors)) if _varies(e)]

    def with_entries(self, values: Sequence[Any]) -> ArticulatedInverse:
        """Return a copy of this solver, with new symbolic scalars in its factorization.
        A solver stores the factorization of its matrix K as scalars. The scalars that the method `entries`
        lists are replaced by `values`, in the same order; constant scalars are kept.
        """
        result, supply, tree = object.__new__(ArticulatedInverse), iter(values), _tree(self.factors)
        result.joints, result.n, result.tied = self.joints, self.n, self.tied
        factors, scale, ties = vec.filled(tree, (next(supply) if _varies(e) else e for e in vec.leaves(tree)))
        result.factors = list(factors), scale, list(ties)
        return result


def within_hinges(links: Sequence[Link], pairs: Iterable[tuple[int, int]]) -> bool:
    """Return whether the two variables of every pair move joints that are close to each other.
    Two joints are close if they are on one branch of the tree, with at most one joint between them.
    """
    parent = {link.index: links[link.parent].index for link in links if link.parent >= 0}

    def above(row: int) -> list[int]:
        branch = [row]
        while len(branch) < HINGE and branch[-1] in parent:
            branch.append(parent[branch[-1]])
        return branch

    return all(a in above(b) or b in above(a) for a, b in pairs)


def _tree(factors: tuple[list[tuple], Any, list[tuple]]) -> tuple:
    return tuple(factors[0]), factors[1], tuple(factors[2])


def _varies(e: Any) -> bool:
    return isinstance(e, ca.SX) and not e.is_constant()


def _inertia(link: Link) -> Spatial:
    """Return the spatial inertia of a link, which maps its twist (v, w) to its momentum."""
    b = tuple(vec.scale(-1.0, row) for row in vec.skew(link.moment))
    return Spatial(vec.matscale(link.mass, vec.IDENTITY), b, link.inertia)  # type: ignore[arg-type]


# -- with symmetry ----------------------------------------------------------------------------------


@vec.inlined
def _eliminated_symmetric(phi: Spatial, S: Twist, c: Any, wrench: Wrench, X: Place, above: Spatial):
    """Eliminate one joint's unknown from a linear system with a symmetric matrix.
    The matrix `phi` belongs to the joint's link and includes the reduced matrices of its children. S is the
    joint's twist, c its diagonal coefficient, `wrench` is P_i, and X the pose of the link in its parent.

    Return U = phi S + P_i, 1/d, and the matrix `above` of the parent link, to which the reduced `phi` has
    been added. The module's text defines d and P_i.
    """
    Sv, Sw = S
    U = (
        vec.add(vec.apply(phi.a, Sv), vec.apply(phi.b, Sw)),
        vec.add(vec.apply(vec.transpose(phi.b), Sv), vec.apply(phi.d, Sw)),
    )
    U = _both(U, wrench)
    inverse = 1.0 / vec.plus(paired(S, _both(U, wrench)), c)
    v, w = (vec.scale(inverse, part) for part in U)
    a, b, d = _less_outer(phi.a, U[0], v), _less_outer(phi.b, U[0], w), _less_outer(phi.d, U[1], w)
    return U, inverse, _sum(above, _between_symmetric(X, Spatial(_mirrored(a), b, _mirrored(d))))


@vec.inlined
def _tied(P: Wrench, S: Twist, c: Any, inverse: Any, U: Wrench, X: Place):
    """Transfer the coupling of two unknowns to the parent link.
    The unknown x_i of a joint is eliminated; x_a is that of one of its ancestors. Their coupling consists of
    the scalar c and the wrench P, the coefficients of x_a in the equations of the joint's link.

    Return e_a = S . P + c of the link, and the wrench P_a of its parent, as in the module's text.
    """
    e = vec.plus(paired(S, P), c)
    return e, carried(X, _moved(P, vec.minus(0.0, vec.times(e, inverse)), U))


def _both(a: Wrench, b: Wrench) -> Wrench:
    return vec.add(a[0], b[0]), vec.add(a[1], b[1])


@vec.inlined
def _handed_symmetric(phi: Spatial, X: Place, above: Spatial) -> Spatial:
    """Add the spatial inertia `phi` of a link to the inertia `above` of its parent.
    The motion of the link's joint is prescribed; X is the pose of the link in its parent.
    """
    return _sum(above, _between_symmetric(X, phi))


def _between_symmetric(X: Place, phi: Spatial) -> Spatial:
    """Transform a symmetric spatial matrix from the axes of a link to those of its parent.

    Ad(X)^-T phi Ad(X)^-1: rotate, then shift by p.
    """
    R, transposed, P = X[0], vec.transpose(X[0]), vec.skew(X[1])
    a, b, d = (vec.matmul(vec.matmul(R, block), transposed) for block in phi)
    a = _mirrored(a)
    # momentum at the parent's origin: f = a (v - p x w) + b w, t = b' (v - p x w) + d w + p x f
    minus = vec.matscale(-1.0, P)
    shifted = vec.matadd(b, vec.matmul(a, minus))
    d = vec.matadd(d, vec.matmul(vec.transpose(b), minus))
    return Spatial(a, shifted, _mirrored(vec.matadd(d, vec.matmul(P, shifted))))


def _mirrored(m: Matrix) -> Matrix:
    """Return a symmetric 3 x 3 matrix, given a matrix of which only the upper triangle is correct."""
    return m[0], (m[0][1], m[1][1], m[1][2]), (m[0][2], m[1][2], m[2][2])


# -- without symmetry -------------------------------------------------------------------------------


@vec.inlined
def _eliminated(phi: SpatialMatrix, S: Twist, c: Any, X: Place, Y: Place, above: SpatialMatrix):
    """Eliminate one joint's unknown from a system whose matrix is not symmetric.
    The matrix `phi` belongs to the joint's link and includes the reduced matrices of its children. S is the
    joint's twist, and c its diagonal coefficient. The pose X of the link in its parent transforms twists; the
    pose Y, at another time, transforms wrenches.

    Return U = phi S, W = phi' S, 1/d with d = S . U + c, and the matrix `above` of the parent link, to which
    the reduced `phi` has been added.
    """
    Sv, Sw = S
    transposed = SpatialMatrix(*map(vec.transpose, phi))
    U = (
        vec.add(vec.apply(phi.a, Sv), vec.apply(phi.b, Sw)),
        vec.add(vec.apply(phi.c, Sv), vec.apply(phi.d, Sw)),
    )
    W = (
        vec.add(vec.apply(transposed.a, Sv), vec.apply(transposed.c, Sw)),
        vec.add(vec.apply(transposed.b, Sv), vec.apply(transposed.d, Sw)),
    )
    inverse = 1.0 / vec.plus(paired(S, U), c)
    v, w = (vec.scale(inverse, part) for part in U)
    rest = SpatialMatrix(
        _less_outer(phi.a, v, W[0]),
        _less_outer(phi.b, v, W[1]),
        _less_outer(phi.c, w, W[0]),
        _less_outer(phi.d, w, W[1]),
    )
    return U, W, inverse, _sum(above, _between(X, Y, rest))


@vec.inlined
def _handed(phi: SpatialMatrix, X: Place, Y: Place, above: SpatialMatrix) -> SpatialMatrix:
    """Add the spatial matrix `phi` of a link to the matrix `above` of its parent.
    The motion of the link's joint is prescribed. The pose X of the link in its parent transforms twists; the
    pose Y, at another time, transforms wrenches.
    """
    return _sum(above, _between(X, Y, phi))


def _between(X: Place, Y: Place, phi: SpatialMatrix) -> SpatialMatrix:
    """Transform a spatial matrix to the axes of the parent link: Ad(Y)^-T phi Ad(X)^-1.
    The pose X of the link in its parent transforms twists; the pose Y, at another time, transforms wrenches.
    """
    transposed = vec.transpose(X[0])
    a, b, c, d = (vec.matmul(vec.matmul(Y[0], block), transposed) for block in phi)
    p, y = vec.skew(X[1]), vec.skew(Y[1])
    b = vec.matsub(b, vec.matmul(a, p))
    d = vec.matsub(d, vec.matmul(c, p))
    return SpatialMatrix(a, b, vec.matadd(c, vec.matmul(y, a)), vec.matadd(d, vec.matmul(y, b)))


# -- both -------------------------------------------------------------------------------------------


def _less_outer(m: Matrix, a: Vector, b: Vector) -> Matrix:
    """Subtract the outer product a b' from a 3 x 3 matrix m."""
    return tuple(vec.sub(row, vec.scale(e, b)) for row, e in zip(m, a, strict=True))  # type: ignore[return-value]


def _sum(a: Any, b: Any) -> Any:
    return type(a)(*(vec.matadd(x, y) for x, y in zip(a, b, strict=True)))


@vec.inlined
def _handed_up(place: Place, S: Twist, along: Wrench, inverse: Any, b: Any, share: Wrench, above: Wrench):
    """Eliminate one joint's unknown from the right-hand side of a linear system.
    The right-hand side has the scalar b for the joint, and the wrench `share` for its link. The arguments
    `along` and `inverse` are U and 1/d of the elimination.

    Return (b - S . share)/d, and the wrench `above` of the parent link, to which the reduced `share` has been
    added.
    """
    rest = vec.times(inverse, vec.minus(b, paired(S, share)))
    up = carried(place, _moved(share, rest, along))
    return rest, (vec.add(above[0], up[0]), vec.add(above[1], up[1]))


@vec.inlined
def _handed_down(place: Place, S: Twist, along: Wrench, inverse: Any, rest: Any, above: Twist):
    """Return one joint's unknown and its link's motion, by back substitution.
    A motion is a twist; `above` is that of the parent link. The arguments `along` and `inverse` are W and 1/d
    of the elimination, and `rest` is the first result of `_handed_up`.
    """
    V = twist_to_child(place, above)
    x = vec.minus(rest, vec.times(inverse, paired(V, along)))
    return x, _moved(V, x, S)


def _moved(a: Twist, s: Any, b: Twist) -> Twist:
    """Return a + s b, for two twists or two wrenches a and b."""
    return vec.add(a[0], vec.scale(s, b[0])), vec.add(a[1], vec.scale(s, b[1]))


@vec.inlined
def twist_to_child(X: Place, V: Twist) -> Twist:
    """Transform a parent's twist V to a child frame at the pose X: Ad(X)^-1 V."""
    transposed = vec.transpose(X[0])
    return vec.apply(transposed, vec.add(V[0], vec.cross(V[1], X[1]))), vec.apply(transposed, V[1])
