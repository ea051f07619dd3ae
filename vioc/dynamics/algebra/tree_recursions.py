"""Derivatives of a mechanism's Lagrangian L = T - V by recursions over its tree of links.

Frames between two joints do not move relative to each other, and are collected in *links*, one for each
configuration variable, with a composite inertia. One pass from the root to the leaves and one back give dL/dq
and dL/dv in O(n); a walk from each link to its ancestors gives the three blocks of second derivatives.
Exact zeros stay floats and do not reach CasADi, so a planar mechanism in space costs as much as in the plane.
Derivation: docs/maths/kinematics.md. Twists and wrenches are (linear, angular) in body axes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import casadi as ca
import numpy as np

from vioc.dynamics.algebra import vectors as vec
from vioc.dynamics.algebra.vectors import Matrix, Vector
from vioc.dynamics.description.frame import Pose, Transform
from vioc.dynamics.description.system import System

Wrench = tuple[Vector, Vector]
Composite = tuple[Any, Vector, Matrix]  # mass, first moment, inertia
State = tuple[Vector, Vector, Vector]  # velocity, angular velocity, gravity


@dataclass
class Link:
    """Rigid body: all frames moved by one joint, up to the next joints of the tree.
    Each link has one configuration variable, that of its joint with the parent link.

    Attributes
    ----------
    index : int
        Index of its variable in q.
    parent : int
        Parent link, -1 for the world.
    rotation, position
        Constant pose of the joint in the parent link's frame.
    Sv, Sw
        Constant twist of the joint in its own axes: linear, angular.
    mass, moment, inertia
        Mass, mass times centre of mass, inertia about the link frame's origin.
    rotor
        Inertia of the variable alone (`RotorInertia`).
    """

    index: int
    parent: int
    rotation: Matrix
    position: Vector
    Sv: Vector
    Sw: Vector
    mass: Any = 0.0
    moment: Vector = vec.ZERO
    inertia: Matrix = vec.NOTHING
    rotor: Any = 0.0

    # set by `first_derivatives`: pose in the parent link, body velocity, gravity
    R: Matrix = field(default=vec.IDENTITY, repr=False)
    p: Vector = field(default=vec.ZERO, repr=False)
    v: Vector = field(default=vec.ZERO, repr=False)
    w: Vector = field(default=vec.ZERO, repr=False)
    g: Vector = field(default=vec.ZERO, repr=False)

    @property
    def pose(self) -> tuple[Matrix, Vector]:
        return self.R, self.p

    @property
    def twist(self) -> tuple[Vector, Vector]:
        return self.Sv, self.Sw

    @property
    def state(self) -> State:
        return self.v, self.w, self.g


def gather_links(system: System, number: Any) -> tuple[list[Link], list[tuple[int, Matrix, Vector]]]:
    """Return the links of a system, and each frame's link with the frame's pose in it.
    The link of a frame is the rigid body to which the frame belongs.

    `number` converts a description's number to a float or a symbol. A node that no variable moves
    belongs to link -1, the world.
    """
    links: list[Link] = []
    places: list[tuple[int, Matrix, Vector]] = []
    for node in system.nodes:
        link, R, p = places[node.parent] if node.parent >= 0 else (-1, vec.IDENTITY, vec.ZERO)
        transform = node.frame.transform
        if transform.variable is not None:
            index = system.variable_index(transform.variable.name)
            links.append(Link(index, link, R, p, *transform.twist))  # type: ignore[arg-type]
            link, R, p = len(links) - 1, vec.IDENTITY, vec.ZERO
        else:
            turn, shift = local_pose(transform, number)
            R, p = vec.matmul(R, turn), vec.add(p, vec.apply(R, shift))
        places.append((link, R, p))
        if node.frame.mass is not None and link >= 0:
            mass = node.frame.mass
            m = number(mass.mass)
            xx, yy, zz, xy, xz, yz = (number(c) for c in mass.inertia)
            com = vec.add(p, vec.apply(R, tuple(number(c) for c in mass.com)))
            body = ((xx, xy, xz), (xy, yy, yz), (xz, yz, zz))
            about = vec.matmul(vec.matmul(R, body), vec.transpose(R))
            target = links[link]
            target.mass = vec.plus(target.mass, m)
            target.moment = vec.add(target.moment, vec.scale(m, com))
            target.inertia = vec.matadd(target.inertia, vec.matadd(about, _point(m, com)))
    for kinetic in system.kinetic:
        index = system.variable_index(kinetic.variable)
        driven = next(one for one in links if one.index == index)
        driven.rotor = vec.plus(driven.rotor, number(kinetic.inertia))
    return links, places


def local_pose(transform: Transform, number: Any, q: Any = None) -> tuple[Matrix, Vector]:
    """Return the rotation and position of a frame in its parent, at the value q of the frame's variable.
    A frame without a variable has a constant pose.
    """
    if isinstance(transform.value, Pose):
        r = tuple(map(number, transform.value.rotation))
        return (r[0:3], r[3:6], r[6:9]), tuple(map(number, transform.value.position))
    return vec.exponential(*transform.twist, number(transform.value) if q is None else q)  # type: ignore[arg-type]


def _point(m: Any, c: Vector) -> Matrix:
    """Return the rotational inertia of a point mass m at the position c, about the origin.
    It is -m c^ c^, where c^ is the skew-symmetric matrix of c.
    """
    product = vec.matmul(vec.skew(c), vec.skew(c))
    return tuple(vec.scale(-m, row) for row in product)  # type: ignore[return-value]


@dataclass(frozen=True)
class FirstDerivatives:
    """First derivatives of the Lagrangian L with respect to q and v.
    L is the kinetic energy T minus the potential energy of gravity. The object also stores intermediate
    results of the recursion, which second derivatives reuse.

    Attributes
    ----------
    T : scalar
        Kinetic energy.
    Lq, Lv : lists of n scalars
        Derivatives of L by q and v, in the order of q; zero for a variable without a link.
    links : list of Link
        Links with their poses, velocities and gravity.
    momentum : list of (Vector, Vector)
        Momentum wrench of each link's subtree.
    """

    T: Any
    Lq: list
    Lv: list
    links: list[Link]
    momentum: list[tuple[Vector, Vector]]


def first_derivatives(links: list[Link], q: ca.SX, v: ca.SX, gravity: Vector) -> FirstDerivatives:
    """Compute the kinetic energy T, and the gradients of the Lagrangian L.
    The gradients are those with respect to q and v, from two passes over the tree of links.

    Forward: V_i = Ad(X_i^-1) V_parent + S_i v_i; backward: P_i, W_i summed over the subtree.
    dL/dv_i = S_i . P_i and dL/dq_i = S_i . (ad(V_i)^T P_i + W_i).
    """
    n = q.numel()
    Lq: list = [0.0] * n
    Lv: list = [0.0] * n
    world: State = vec.ZERO, vec.ZERO, gravity
    T: Any = 0.0
    nothing: Wrench = vec.ZERO, vec.ZERO
    P: list[Wrench] = [nothing] * (len(links) + 1)  # the last is the world's
    W = list(P)
    for i, link in enumerate(placed(links, q)):
        above = links[link.parent].state if link.parent >= 0 else world
        body = link.mass, link.moment, link.inertia
        (link.v, link.w, link.g), P[i], W[i], T = _forward(
            link.pose, link.twist, above, v[link.index], body, T
        )
        T = vec.plus(T, vec.times(0.5, vec.times(link.rotor, v[link.index] ** 2)))
    for i in reversed(range(len(links))):
        link, up = links[i], links[i].parent
        Lv[link.index], Lq[link.index], P[up], W[up] = _backward(
            link.pose, link.twist, link.state, P[i], W[i], P[up], W[up]
        )
        Lv[link.index] = vec.plus(Lv[link.index], vec.times(link.rotor, v[link.index]))
    return FirstDerivatives(T, Lq, Lv, links, P[:-1])


def placed(links: list[Link], q: Any) -> list[Link]:
    """Set the pose of each link in its parent at the configuration q, and return the links."""
    for link in links:
        link.R, link.p = vec.joint((link.rotation, link.position), *link.twist, q[link.index])
    return links


@vec.inlined
def _forward(
    pose: tuple[Matrix, Vector], S: Wrench, above: State, rate: Any, body: Composite, T: Any
) -> tuple[State, Wrench, Wrench, Any]:
    """Return a link's state, momentum and weight, and add its kinetic energy to T.
    A state consists of linear velocity, angular velocity and the vector of gravity, in the axes of the link.
    The state `above` is that of the parent link, in the parent's axes.
    """
    (R, p), (Sv, Sw), (v, w, g) = pose, S, above
    transposed = vec.transpose(R)
    v = vec.add(vec.apply(transposed, vec.add(v, vec.cross(w, p))), vec.scale(rate, Sv))
    w = vec.add(vec.apply(transposed, w), vec.scale(rate, Sw))
    g = vec.apply(transposed, g)
    P = times_inertia(*body, v, w)
    energy = vec.times(0.5, vec.plus(vec.dot(v, P[0]), vec.dot(w, P[1])))
    return (v, w, g), P, (vec.scale(body[0], g), vec.cross(body[1], g)), vec.plus(T, energy)


@vec.inlined
def _backward(
    pose: tuple[Matrix, Vector], S: Wrench, state: State, P: Wrench, W: Wrench, P_up: Wrench, W_up: Wrench
) -> tuple[Any, Any, Wrench, Wrench]:
    """Return dL/dv and dL/dq for a joint, and add its link's wrenches to the parent's.
    L is the Lagrangian, v the joint's velocity and q its variable. The wrenches are the momentum P and the
    weight W of the link with its descendants; those of the parent are P_up and W_up.
    """
    turn = ad_transposed(state[0], state[1], *P)
    momentum, weight = carried(pose, P), carried(pose, W)
    return (
        paired(S, P),
        paired(S, (vec.add(turn[0], W[0]), vec.add(turn[1], W[1]))),
        (vec.add(P_up[0], momentum[0]), vec.add(P_up[1], momentum[1])),
        (vec.add(W_up[0], weight[0]), vec.add(W_up[1], weight[1])),
    )


def paired(S: Wrench, wrench: Wrench) -> Any:
    """Return the generalized force of a wrench along a joint with the twist S."""
    return vec.plus(vec.dot(S[0], wrench[0]), vec.dot(S[1], wrench[1]))


def carried(pose: tuple[Matrix, Vector], wrench: Wrench) -> Wrench:
    """Transform a wrench from a link's axes to its parent's, by Ad(X^-1)^T with the link's pose X."""
    R, p = pose
    force = vec.apply(R, wrench[0])
    return force, vec.add(vec.apply(R, wrench[1]), vec.cross(p, force))


@dataclass(frozen=True)
class SecondDerivatives:
    """Second derivatives of the Lagrangian with respect to q and v.
    Each field is a matrix (n, n) for n configuration variables, stored as nested lists.

    In vq the rows are v, the columns q.
    """

    qq: list[list]
    vq: list[list]
    vv: list[list]


def second_derivatives(first: FirstDerivatives, n: int) -> SecondDerivatives:
    """Compute the second derivatives of the Lagrangian L with respect to q and v.
    Derivatives with respect to the variables of two links are 0 unless one link is an ancestor of the other.

    A link has the joint twist S, the velocity V, and the composite inertia I^c and momentum P^c of its
    subtree. With F = I^c S, Sd = ad(V) S, y = I^c Sd - ad(S)^T P^c and the variation z of gravity's wrench,
    where F, y and z of link j are transformed to its ancestor i: L_vv = S_i.F_j, L_v[j]q[i] = Sd_i.F_j,
    L_v[i]q[j] = S_i.y_j and L_qq = Sd_i.y_j + S_i.z_j.
    """
    links = first.links
    qq, vq, vv = ([[0.0] * n for _ in range(n)] for _ in range(3))
    composite = composite_inertias(links)
    for j, link in enumerate(links):
        F, y, z = _own_wrenches(composite[j], link.twist, link.state, first.momentum[j])
        i = j
        while i >= 0:
            above = links[i]
            a, b = above.index, link.index
            M, C, D, K, F, y, z = _coupled(above.pose, above.twist, above.state, F, y, z)
            vv[a][b] = vv[b][a] = M
            vq[b][a] = C
            if i != j:
                vq[a][b] = D
            qq[a][b] = qq[b][a] = K
            i = above.parent
        vv[link.index][link.index] = vec.plus(vv[link.index][link.index], link.rotor)
    return SecondDerivatives(qq, vq, vv)


@vec.inlined
def _own_wrenches(
    composite: Composite, S: Wrench, state: State, momentum: Wrench
) -> tuple[Wrench, Wrench, Wrench]:
    """Return three wrenches F, y, z of a link, for second derivatives.
    They are defined in `second_derivatives`, and are in the axes of the link. Their scalar products with the
    twists of this link and of its ancestors are second derivatives of the Lagrangian.
    """
    m, h, _ = composite
    v, w, g = state
    y, dual = times_inertia(*composite, *ad(v, w, *S)), ad_transposed(*S, *momentum)
    shifted = vec.add(vec.scale(m, S[0]), vec.cross(S[1], h))
    return (
        times_inertia(*composite, *S),
        (vec.sub(y[0], dual[0]), vec.sub(y[1], dual[1])),
        (vec.ZERO, vec.cross(shifted, g)),
    )


@vec.inlined
def _coupled(pose: tuple[Matrix, Vector], S: Wrench, state: State, F: Wrench, y: Wrench, z: Wrench):
    """Return second derivatives of L by the variables of a link and its ancestor.
    They are S.F, Sd.F, S.y and Sd.y + S.z, where S is the twist of the ancestor's joint, Sd = ad(V) S with
    the ancestor's velocity V, and F, y, z are wrenches of the link in the ancestor's axes. Return also F, y
    and z in the axes of the ancestor's parent.
    """
    Sd = ad(state[0], state[1], *S)
    K = vec.plus(paired(Sd, y), paired(S, z))
    return paired(S, F), paired(Sd, F), paired(S, y), K, *(carried(pose, wrench) for wrench in (F, y, z))


def mass_matrix(links: list[Link], n: int) -> list[list]:
    """Return the mass matrix (n, n) of links, by the composite rigid body algorithm."""
    M = [[0.0] * n for _ in range(n)]
    composite = composite_inertias(links)
    for j, link in enumerate(links):
        F = times_inertia(*composite[j], *link.twist)
        i = j
        while i >= 0:
            above = links[i]
            M[above.index][link.index] = M[link.index][above.index] = paired(above.twist, F)
            F = _climbed(above.pose, F)
            i = above.parent
        M[link.index][link.index] = vec.plus(M[link.index][link.index], link.rotor)
    return M


def mass_matrix_of_numbers(links: list[Link], n: int) -> np.ndarray:
    """Return the numerical mass matrix (n, n) of links, computed with vectorized numpy."""
    M = np.zeros((n, n))
    R, p, Sv, Sw = (
        np.array([getattr(link, name) for link in links], float) for name in ("R", "p", "Sv", "Sw")
    )
    index, parent = (np.array([getattr(link, name) for link in links], int) for name in ("index", "parent"))
    wrenches = [
        times_inertia(*c, *link.twist) for c, link in zip(composite_inertias(links), links, strict=True)
    ]
    force, torque = (np.array([w[part] for w in wrenches], float) for part in (0, 1))
    ancestors = descendants = np.arange(len(links))
    while len(ancestors):
        entry = (Sv[ancestors] * force + Sw[ancestors] * torque).sum(axis=1)
        M[index[ancestors], index[descendants]] = M[index[descendants], index[ancestors]] = entry
        has_parent = parent[ancestors] >= 0
        ancestors, descendants, force, torque = (
            ancestors[has_parent],
            descendants[has_parent],
            force[has_parent],
            torque[has_parent],
        )
        force, torque = ((R[ancestors] @ a[:, :, None])[:, :, 0] for a in (force, torque))
        torque = torque + np.cross(p[ancestors], force)
        ancestors = parent[ancestors]
    M[index, index] += [float(link.rotor) for link in links]
    return M


_climbed = vec.inlined(carried)


def composite_inertias(links: list[Link]) -> list[Composite]:
    """Return mass, first moment and inertia of the subtree of each link, in the axes of the link."""
    nothing: Composite = 0.0, vec.ZERO, vec.NOTHING
    total: list[Composite] = [*((link.mass, link.moment, link.inertia) for link in links), nothing]
    for i in reversed(range(len(links))):
        link = links[i]
        total[link.parent] = composed(total[i], link.pose, total[link.parent])
    return total[:-1]


@vec.inlined
def composed(child: Composite, pose: tuple[Matrix, Vector], parent: Composite) -> Composite:
    """Add the composite inertia of one child link to that of its parent.
    The arguments are the inertia of the `child`, its pose in the parent, and the inertia of the `parent`.
    """
    (m, h, inertia), (R, position), (M, H, J) = child, pose, parent
    moment = vec.apply(R, h)
    rotated = vec.matmul(vec.matmul(R, inertia), vec.transpose(R))
    p, r = vec.skew(position), vec.skew(moment)
    shift = vec.matadd(vec.matmul(p, r), vec.matmul(r, p))
    shift = vec.matadd(shift, tuple(vec.scale(m, row) for row in vec.matmul(p, p)))  # type: ignore[arg-type]
    shifted = tuple(vec.sub(a, b) for a, b in zip(rotated, shift, strict=True))
    return (
        vec.plus(M, m),
        vec.add(H, vec.add(moment, vec.scale(m, position))),
        vec.matadd(J, shifted),  # type: ignore[arg-type]
    )


def times_inertia(m: Any, h: Vector, inertia: Matrix, v: Vector, w: Vector) -> tuple[Vector, Vector]:
    linear = vec.add(vec.scale(m, v), vec.cross(w, h))
    return linear, vec.add(vec.apply(inertia, w), vec.cross(h, v))


def ad(v: Vector, w: Vector, sv: Vector, sw: Vector) -> tuple[Vector, Vector]:
    """Return the Lie bracket ad(V) S of two twists: (w x sv + v x sw, w x sw)."""
    return vec.add(vec.cross(w, sv), vec.cross(v, sw)), vec.cross(w, sw)


def ad_transposed(v: Vector, w: Vector, f: Vector, tau: Vector) -> tuple[Vector, Vector]:
    """Return the coadjoint product ad(V)^T P of a wrench: (f x w, f x v + tau x w)."""
    return vec.cross(f, w), vec.add(vec.cross(f, v), vec.cross(tau, w))
