"""Discrete recursive Newton-Euler algorithm on the links of a mechanism.
It is Algorithm 2 of paper [L], with the derivatives of Algorithm 4.

The kinetic part of the discrete Lagrangian over a step from q0 to q1 of length h is

    T_d = 1/(2h) sum over bodies of  X_i . G_i X_i,     X_i = log D_i = h V_i,  D_i = T_i(q0)^-1 T_i(q1),

`Bodies` computes its slot derivatives in one pass from the root and one back, the derivative M_i of a body's
momentum in closed form, and with M_i the Jacobian in O(n^2) or its inverse in O(n). All scalars are floats or
CasADi SX. Maths: docs/maths/linear_time.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from vioc.dynamics.algebra import se3
from vioc.dynamics.algebra import vectors as vec
from vioc.dynamics.algebra.articulated import (
    NO_BLOCKS,
    NOTHING,
    STILL,
    ArticulatedInverse,
    LinkJoint,
    Place,
    SpatialMatrix,
    Twist,
    twist_to_child,
)
from vioc.dynamics.algebra.tree_recursions import Link, Wrench, carried, gather_links, paired, times_inertia
from vioc.dynamics.algebra.vectors import Matrix, Vector
from vioc.dynamics.description.system import System


class Bodies:
    """Links of a system, one for each configuration variable, with parents before children.

    Rigidly connected frames are one body with a composite inertia. A link without mass is an intermediate
    link of a joint with several degrees of freedom (spherical, free). It transmits transforms and impulses
    and needs no logarithm.

    Parameters
    ----------
    system : System
    number : callable
        Function from a value of the description to a float or a symbol.

    Attributes
    ----------
    links : list of `vioc.dynamics.algebra.tree_recursions.Link`
    parents : tuple of int
    rows : tuple of int or None
        Index of each link's variable among the dynamic ones.
    heavy : tuple of bool
        Whether a link has an inertia.
    """

    def __init__(self, system: System, number: Any):
        self.links, _ = gather_links(system, number)
        self.nq, self.nd = len(system.variables), len(system.dynamic)
        self.parents = tuple(link.parent for link in self.links)
        self.rows = tuple(link.index if link.index < self.nd else None for link in self.links)
        self.heavy = tuple(not _massless(link) for link in self.links)

    def __len__(self) -> int:
        return len(self.links)

    def places(self, q: Sequence[Any]) -> list[Place]:
        """Return the pose of each link in its parent link, at the configuration q."""
        return [
            vec.joint((link.rotation, link.position), link.Sv, link.Sw, q[link.index]) for link in self.links
        ]

    # -- Algorithm 2 ------------------------------------------------------------------------------

    def displacements(self, start: Sequence[Place], end: Sequence[Place]) -> list[Twist | None]:
        """Return the twists that move all links from their start to their end poses.
        The poses are those at the start and at the end of a step. The list has None in place of the twist of
        a massless link.

        The twists are X_i = log D_i, D_i = X_start^-1 D_parent X_end ([L] (19)).
        """
        D: list[Place] = []
        twists: list[Twist | None] = []
        for parent, heavy, *places in zip(self.parents, self.heavy, start, end, strict=True):
            above = D[parent] if parent >= 0 else STILL
            d, x = _displaced(above, *places) if heavy else (_moved(above, *places), None)
            D.append(d)
            twists.append(x)
        return twists

    def impulses(self, X: Sequence[Twist | None], h: Any) -> tuple[list[Wrench], list[Wrench]]:
        """Return the momenta of all links at the start and at the end of a step of length h.
        The twists X are the motions of the links in the step.

        The momenta are mu_i = dlog_X^T G X / h ([L] (21b)) and Ad_D^T mu_i, with inertias G.
        """
        both = [
            (NOTHING, NOTHING) if x is None else _impulses(*_body(link), x, h)
            for link, x in zip(self.links, X, strict=True)
        ]
        return [mu for mu, _ in both], [nu for _, nu in both]

    def gathered(self, places: Sequence[Place], wrenches: Sequence[Wrench]) -> list[Any]:
        """Return the generalized forces due to wrenches on the links, in the order of q.
        The force on a joint is its screw axis S_i times the sum of the wrenches on its subtree.
        """
        total = [*wrenches, NOTHING]  # the last is the world's
        result: list[Any] = [0.0] * self.nq
        for i in reversed(range(len(wrenches))):
            link = self.links[i]
            axis = link.Sv, link.Sw
            result[link.index], total[link.parent] = _gathered(places[i], axis, total[i], total[link.parent])
        return result

    def slots(self, q0: Sequence[Any], q1: Sequence[Any], h: Any) -> tuple[list[Any], list[Any]]:
        """Return the derivatives D1 T_d and D2 T_d of the kinetic part of the action.
        T_d is the contribution of the kinetic energy to the discrete action of a step. The derivatives are
        those with respect to the configurations q0 and q1 at the start and at the end of the step.
        """
        start, end = self.places(q0), self.places(q1)
        mu, nu = self.impulses(self.displacements(start, end), h)
        return [vec.minus(0.0, a) for a in self.gathered(start, mu)], self.gathered(end, nu)

    # -- Algorithm 4, and its inverse -------------------------------------------------------------

    def derivatives(self, X: Sequence[Twist | None], h: Any) -> list[SpatialMatrix]:
        """Return the derivatives of the momenta of all links in a step.
        They are M_i = d mu_i / d eta_i, with the momentum mu_i and a small motion eta_i of the link's pose at
        the end of the step. They are zero for massless links.
        """
        return [
            NO_BLOCKS if x is None else _derivative(*_body(link), x, h)
            for link, x in zip(self.links, X, strict=True)
        ]

    def newton_inverse(
        self, start: Sequence[Place], end: Sequence[Place], h: Any, damping: Sequence[Any]
    ) -> ArticulatedInverse:
        """Return a solver of linear systems with the Newton matrix of a step, in O(n).
        The matrix is -D2 D1 T_d + diag(damping). T_d is the kinetic part of the discrete action of the step,
        and D2 D1 T_d its mixed second derivative with respect to the configurations at the start and the end.
        """
        M = self.derivatives(self.displacements(start, end), h)
        joints = [
            LinkJoint(link.parent, row, link.twist) for link, row in zip(self.links, self.rows, strict=True)
        ]
        return ArticulatedInverse(joints, end, M, damping, Y=start)

    def impulse_inverse(self, places: Sequence[Place], h: Any, damping: Sequence[Any]) -> ArticulatedInverse:
        """Return a solver of linear systems with a damped mass matrix, in O(n).
        The matrix is M(q)/h + diag(damping), with the mass matrix M and the step length h. It is the
        approximate Newton matrix of the solver ``"riqn"``, a quasi-Newton method ([L] (25)).
        """
        diagonal = [vec.times(h, c) for c in damping]
        return ArticulatedInverse.of_masses(self.links, places, self.nd, diagonal, h)

    def jacobian(self, start: Sequence[Place], end: Sequence[Place], h: Any) -> list[list[Any]]:
        """Return the kinetic part of the Newton matrix (nd, nq) of a step as rows.
        It is -D2 D1 T_d ([L] Algorithm 4). T_d is the kinetic part of the discrete action of the step, and D2
        D1 T_d its mixed second derivative with respect to the configurations at the start and the end. The
        computation takes time O(n^2) for n bodies.
        """
        M = self.derivatives(self.displacements(start, end), h)
        columns: list[list[Any]] = [[0.0] * self.nq for _ in range(self.nq)]
        for j, link in enumerate(self.links):
            screw: Twist = link.Sv, link.Sw
            eta: dict[int, Twist] = {j: screw}
            wrenches: list[Wrench] = [NOTHING] * len(self.links)
            wrenches[j] = _momentum_change(M[j], screw)
            for i in range(j + 1, len(self.links)):
                if self.parents[i] in eta:
                    eta[i] = twist_to_child(end[i], eta[self.parents[i]])
                    wrenches[i] = _momentum_change(M[i], eta[i])
            columns[link.index] = self.gathered(start, wrenches)
        return [[columns[j][i] for j in range(self.nq)] for i in range(self.nd)]


def _body(link: Link) -> tuple[Any, Vector, Matrix]:
    return link.mass, link.moment, link.inertia


@vec.inlined
def _moved(above: Place, start: Place, end: Place) -> Place:
    """Return the displacement of a link in a step, in the axes of its start pose.
    The argument `above` is the displacement of the parent link. `start` and `end` are the poses of the link
    in its parent at the start and at the end of the step.

    The displacement is D = X_start^-1 D_parent X_end ([L] (19)).
    """
    (R, p), (R0, p0), (R1, p1) = above, start, end
    transposed = vec.transpose(R0)
    shift = vec.sub(vec.add(vec.apply(R, p1), p), p0)
    return vec.matmul(transposed, vec.matmul(R, R1)), vec.apply(transposed, shift)


@vec.inlined
def _displaced(above: Place, start: Place, end: Place) -> tuple[Place, Twist]:
    """Return the displacement of a link in a step, and its logarithm, a twist.
    The argument `above` is the displacement of the parent link. `start` and `end` are the poses of the link
    in its parent at the start and at the end of the step.
    """
    D = _moved(above, start, end)
    return D, se3.logarithm(*D)


def momentum(mass: Any, moment: Vector, inertia: Matrix, X: Twist, h: Any) -> Wrench:
    """Return the momentum G X / h of a body with inertia G that moves by the twist X in the time h."""
    inverse = 1.0 / h
    return times_inertia(mass, moment, inertia, *(vec.scale(inverse, a) for a in X))


@vec.inlined
def _impulses(mass: Any, moment: Vector, inertia: Matrix, X: Twist, h: Any) -> tuple[Wrench, Wrench]:
    """Return the momentum of a body at the start and at the end of a step.
    The two momenta are dlog_X^T G X / h and dlog_-X^T G X / h, with the twist X of the body in the step, the
    inertia G and the step length h. The matrix dlog_X is the derivative of the logarithm of SE(3) at X.
    """
    P = momentum(mass, moment, inertia, X, h)
    return se3.dlog_transposed(X, P), se3.dlog_transposed(X, P, -1.0)


@vec.inlined
def _gathered(place: Place, S: Twist, P: Wrench, above: Wrench) -> tuple[Any, Wrench]:
    """Return the generalized force on a link's joint, and a sum of wrenches.
    The generalized force is the product of the screw axis S of the joint and the wrench P on the link. The
    sum is `above`, the wrenches on the parent link that have been added before, plus P in the axes of the
    parent link. The argument `place` is the pose of the link in its parent.
    """
    up = carried(place, P)
    return paired(S, P), (vec.add(above[0], up[0]), vec.add(above[1], up[1]))


@vec.inlined
def _derivative(mass: Any, moment: Vector, inertia: Matrix, X: Twist, h: Any) -> SpatialMatrix:
    """Return the derivative of a body's momentum in a step.
    It is M_i = d mu_i / d eta_i = 1/h (dlog_X^T G + d(dlog_X^T P)/dX) dlog_-X at P = G X, with a small motion
    eta_i of the body's pose at the end of the step, its twist X in the step, its inertia G and the step
    length h.
    """
    A, Q = se3.dlog_blocks(X)
    E, N = se3.dlog_blocks(X, -1.0)
    At, Qt = vec.transpose(A), vec.transpose(Q)
    lever = vec.skew(moment)
    minus = vec.matscale(-1.0, lever)
    P = momentum(mass, moment, inertia, X, 1.0)
    k, K = se3.momentum_slope(X, P)
    a = vec.matscale(mass, At)
    b = vec.matadd(vec.matmul(At, minus), k)
    c = vec.matadd(vec.matadd(vec.matscale(mass, Qt), vec.matmul(At, lever)), k)
    d = vec.matadd(vec.matadd(vec.matmul(Qt, minus), vec.matmul(At, inertia)), K)
    s = 1.0 / h
    return SpatialMatrix(
        vec.matscale(s, vec.matmul(a, E)),
        vec.matscale(s, vec.matadd(vec.matmul(a, N), vec.matmul(b, E))),
        vec.matscale(s, vec.matmul(c, E)),
        vec.matscale(s, vec.matadd(vec.matmul(c, N), vec.matmul(d, E))),
    )


@vec.inlined
def _momentum_change(M: SpatialMatrix, V: Twist) -> Wrench:
    """Return the product of a spatial matrix M and a twist V, which is a wrench."""
    return (
        vec.add(vec.apply(M.a, V[0]), vec.apply(M.b, V[1])),
        vec.add(vec.apply(M.c, V[0]), vec.apply(M.d, V[1])),
    )


def _massless(link: Link) -> bool:
    return vec.is_zero(link.mass) and all(vec.is_zero(e) for row in link.inertia for e in row)
