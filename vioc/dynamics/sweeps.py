"""The tree recursions behind the Lagrangian: O(n) gradients, and second derivatives by ancestor pairs.

Frames between two joints do not move against each other, so they are gathered into *links*, one per
configuration variable, with a composite inertia. One sweep from the root to the leaves and one back
give dL/dq and dL/dv; a walk from each link up its ancestors gives the three blocks of second
derivatives. Derivation: docs/maths/kinematics.md. Twists and wrenches are (linear, angular) in body
axes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import casadi as ca

from vioc.dynamics import vectors as vec
from vioc.dynamics.description.frame import Pose
from vioc.dynamics.description.system import System
from vioc.dynamics.vectors import Matrix, Vector


@dataclass
class Link:
    """What moves rigidly with one configuration variable.

    Attributes
    ----------
    index : int
        Of its variable in q.
    parent : int
        Link it sits on, -1 for the world.
    rotation, position
        Constant pose of the joint in the parent link's frame.
    Sv, Sw
        Twist of the joint in its own axes, which is constant: linear, angular.
    mass, moment, inertia
        Mass, mass times centre of mass, inertia about the link frame's origin.
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

    # filled by `sweep`: pose in the parent link, body velocity, gravity, subtree wrench and inertia
    R: Matrix = field(default=vec.IDENTITY, repr=False)
    p: Vector = field(default=vec.ZERO, repr=False)
    v: Vector = field(default=vec.ZERO, repr=False)
    w: Vector = field(default=vec.ZERO, repr=False)
    g: Vector = field(default=vec.ZERO, repr=False)


def gather_links(system: System, number: Any) -> tuple[list[Link], list[tuple[int, Matrix, Vector]]]:
    """Links of a system, and for every node its link and its constant pose in it.

    `number` turns a description's number into a float or a symbol. A node that no variable moves
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
        elif isinstance(transform.value, Pose):
            r = transform.value.rotation
            shift = tuple(number(c) for c in transform.value.position)
            p = vec.add(p, vec.apply(R, shift))
            R = vec.matmul(R, (r[0:3], r[3:6], r[6:9]))  # type: ignore[arg-type]
        elif transform.rotational:
            R = vec.matmul(R, vec.rotation(transform.axis, number(transform.value)))
        else:
            p = vec.add(p, vec.apply(R, vec.scale(number(transform.value), vec.unit(transform.axis))))
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
    return links, places


def _point(m: Any, c: Vector) -> Matrix:
    """Inertia about the origin of a point mass at c: -m [c][c]."""
    product = vec.matmul(vec.skew(c), vec.skew(c))
    return tuple(vec.scale(-m, row) for row in product)  # type: ignore[return-value]


@dataclass(frozen=True)
class Sweep:
    """First derivatives of L = T - V_gravity, and what the second derivatives need.

    Attributes
    ----------
    T : scalar
        Kinetic energy.
    Lq, Lv : lists of n scalars
        By q and v, in the order of q; zero for a variable that no link has.
    links : list of Link
        With pose, velocity and gravity filled in.
    momentum : list of (Vector, Vector)
        Momentum wrench of each link's subtree.
    """

    T: Any
    Lq: list
    Lv: list
    links: list[Link]
    momentum: list[tuple[Vector, Vector]]


def sweep(links: list[Link], q: ca.SX, v: ca.SX, gravity: Vector) -> Sweep:
    """Forward: V_i = Ad(X_i^-1) V_parent + S_i v_i; backward: P_i, W_i gathered over the subtree.

    dL/dv_i = S_i . P_i and dL/dq_i = S_i . (ad(V_i)^T P_i + W_i).
    """
    n = q.numel()
    Lq: list = [0.0] * n
    Lv: list = [0.0] * n
    for link in links:
        _forward(link, links, q[link.index], v[link.index], gravity)
    T: Any = 0.0
    P: list = [None] * len(links)
    W: list = [None] * len(links)
    for i, link in enumerate(links):
        linear = vec.add(vec.scale(link.mass, link.v), vec.cross(link.w, link.moment))
        angular = vec.add(vec.apply(link.inertia, link.w), vec.cross(link.moment, link.v))
        P[i] = (linear, angular)
        W[i] = (vec.scale(link.mass, link.g), vec.cross(link.moment, link.g))
        T = vec.plus(T, vec.times(0.5, vec.plus(vec.dot(link.v, linear), vec.dot(link.w, angular))))
    for i in reversed(range(len(links))):
        link = links[i]
        (f, tau), (fw, tw) = P[i], W[i]
        turn = ad_transposed(link.v, link.w, f, tau)
        Lv[link.index] = _pair(link, (f, tau))
        Lq[link.index] = _pair(link, (vec.add(turn[0], fw), vec.add(turn[1], tw)))
        if link.parent >= 0:
            for total in (P, W):
                up = to_parent(link, total[i])
                mine = total[link.parent]
                total[link.parent] = (vec.add(mine[0], up[0]), vec.add(mine[1], up[1]))
    return Sweep(T, Lq, Lv, links, P)


def _forward(link: Link, links: list[Link], q: Any, v: Any, gravity: Vector) -> None:
    R, p = vec.exponential(link.Sv, link.Sw, q)
    link.R = vec.matmul(link.rotation, R)
    link.p = vec.add(link.position, vec.apply(link.rotation, p))
    back = vec.transpose(link.R)
    if link.parent >= 0:
        parent = links[link.parent]
        link.w = vec.apply(back, parent.w)
        link.v = vec.apply(back, vec.add(parent.v, vec.cross(parent.w, link.p)))
        link.g = vec.apply(back, parent.g)
    else:
        link.w, link.v, link.g = vec.ZERO, vec.ZERO, vec.apply(back, gravity)
    link.w = vec.add(link.w, vec.scale(v, link.Sw))
    link.v = vec.add(link.v, vec.scale(v, link.Sv))


def _pair(link: Link, wrench: tuple[Vector, Vector]) -> Any:
    """S . wrench: the joint's share of a wrench."""
    return vec.plus(vec.dot(link.Sv, wrench[0]), vec.dot(link.Sw, wrench[1]))


def to_parent(link: Link, wrench: tuple[Vector, Vector]) -> tuple[Vector, Vector]:
    """A wrench in the parent link's frame: Ad(X^-1)^T."""
    force = vec.apply(link.R, wrench[0])
    return force, vec.add(vec.apply(link.R, wrench[1]), vec.cross(link.p, force))


@dataclass(frozen=True)
class SecondDerivatives:
    """n x n blocks as nested lists: L_qq, L_vq (row: v, column: q), L_vv."""

    qq: list[list]
    vq: list[list]
    vv: list[list]


def second_derivatives(swept: Sweep, n: int) -> SecondDerivatives:
    """The blocks of second derivatives by walks up the ancestors; all other pairs are zero.

    With F = I^c S, Sd = ad(V) S, y = I^c Sd - ad(S)^T P^c and gravity's variation z of link j carried
    up to its ancestor i: L_vv = S_i.F_j, L_v[j]q[i] = Sd_i.F_j, L_v[i]q[j] = S_i.y_j and
    L_qq = Sd_i.y_j + S_i.z_j.
    """
    links = swept.links
    qq, vq, vv = ([[0.0] * n for _ in range(n)] for _ in range(3))
    composite = composite_inertias(links)
    for j, link in enumerate(links):
        m, h, inertia = composite[j]
        Sv, Sw = link.Sv, link.Sw
        Sdv, Sdw = ad(link.v, link.w, Sv, Sw)
        F = times_inertia(m, h, inertia, Sv, Sw)
        y = times_inertia(m, h, inertia, Sdv, Sdw)
        dual = ad_transposed(Sv, Sw, *swept.momentum[j])
        y = (vec.sub(y[0], dual[0]), vec.sub(y[1], dual[1]))
        moved = vec.add(vec.scale(m, Sv), vec.cross(Sw, h))
        z = (vec.ZERO, vec.cross(moved, link.g))
        i = j
        while i >= 0:
            above = links[i]
            Sdi = ad(above.v, above.w, above.Sv, above.Sw)
            a, b = above.index, link.index
            vv[a][b] = vv[b][a] = _pair(above, F)
            vq[b][a] = vec.plus(vec.dot(Sdi[0], F[0]), vec.dot(Sdi[1], F[1]))
            if i != j:
                vq[a][b] = _pair(above, y)
            value = vec.plus(vec.dot(Sdi[0], y[0]), vec.dot(Sdi[1], y[1]))
            qq[a][b] = qq[b][a] = vec.plus(value, _pair(above, z))
            F, y, z = to_parent(above, F), to_parent(above, y), to_parent(above, z)
            i = above.parent
    return SecondDerivatives(qq, vq, vv)


def mass_matrix(swept: Sweep, n: int) -> list[list]:
    """M = L_vv alone, the composite rigid body algorithm."""
    links = swept.links
    M = [[0.0] * n for _ in range(n)]
    composite = composite_inertias(links)
    for j, link in enumerate(links):
        F = times_inertia(*composite[j], link.Sv, link.Sw)
        i = j
        while i >= 0:
            above = links[i]
            value = _pair(above, F)
            M[above.index][link.index] = M[link.index][above.index] = value
            F = to_parent(above, F)
            i = above.parent
    return M


def composite_inertias(links: list[Link]) -> list[tuple[Any, Vector, Matrix]]:
    total = [(link.mass, link.moment, link.inertia) for link in links]
    for i in reversed(range(len(links))):
        link = links[i]
        if link.parent < 0:
            continue
        m, h, inertia = total[i]
        turned = vec.apply(link.R, h)
        rotated = vec.matmul(vec.matmul(link.R, inertia), vec.transpose(link.R))
        p, r = vec.skew(link.p), vec.skew(turned)
        shift = vec.matadd(vec.matmul(p, r), vec.matmul(r, p))
        shift = vec.matadd(shift, tuple(vec.scale(m, row) for row in vec.matmul(p, p)))  # type: ignore[arg-type]
        moved = tuple(vec.sub(a, b) for a, b in zip(rotated, shift, strict=True))
        M, H, J = total[link.parent]
        total[link.parent] = (
            vec.plus(M, m),
            vec.add(H, vec.add(turned, vec.scale(m, link.p))),
            vec.matadd(J, moved),  # type: ignore[arg-type]
        )
    return total


def times_inertia(m: Any, h: Vector, inertia: Matrix, v: Vector, w: Vector) -> tuple[Vector, Vector]:
    linear = vec.add(vec.scale(m, v), vec.cross(w, h))
    return linear, vec.add(vec.apply(inertia, w), vec.cross(h, v))


def ad(v: Vector, w: Vector, sv: Vector, sw: Vector) -> tuple[Vector, Vector]:
    """ad(V) S = (w x sv + v x sw, w x sw)."""
    return vec.add(vec.cross(w, sv), vec.cross(v, sw)), vec.cross(w, sw)


def ad_transposed(v: Vector, w: Vector, f: Vector, tau: Vector) -> tuple[Vector, Vector]:
    """ad(V)^T P = (f x w, f x v + tau x w)."""
    return vec.cross(f, w), vec.add(vec.cross(f, v), vec.cross(tau, w))
