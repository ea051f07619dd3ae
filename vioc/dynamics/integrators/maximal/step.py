"""The equations of a step in maximal coordinates, and the kernel that solves them.

Functions of one body or one constraint are called for each of them, on SX where derivatives are wanted and on
MX in the kernel. Newton's directions come from block elimination on the mechanism's graph and are handed to
CasADi's iteration as a preconditioned residual with the identity for its Jacobian, so no matrix of the whole
system is ever formed. Maths: docs/maths/maximal.md.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, NamedTuple

import casadi as ca
import numpy as np

from vioc.dynamics.algebra import vectors as vec
from vioc.dynamics.algebra.graph_structure import Structure, analyse
from vioc.dynamics.description.system import System
from vioc.dynamics.integrators.maximal import rotations as rot
from vioc.dynamics.integrators.maximal.constraints import Group, Rows
from vioc.dynamics.integrators.maximal.elimination import Elimination
from vioc.dynamics.integrators.maximal.model import Body
from vioc.dynamics.integrators.maximal.terms import POSE, TWIST, BodyGraph, unpack_pose
from vioc.dynamics.integrators.maximal.touches import find_touches
from vioc.dynamics.lagrangian import OPTIONS

STATE = 7  # numbers of a body's pose in the state: x and the quaternion
PAST = 3  # twists V_k-1, V_k-2, V_k-3 that a carry holds, to extrapolate
ITERATIONS = 30


class Balance(NamedTuple):
    """The equations for the twists V that bodies leave a pose with, or arrive with.

    Attributes
    ----------
    rest : list of (6,)
        Momenta of each body that are left: what it has, less what V takes.
    D : list of (6, 6)
    values : list of (rows,)
        g of each group where V leads to within the step.
    H : list of lists of (rows, 6)
    slopes : list of (6, 6)
        Of the forces' impulses by the twists, for each pair of `coupled`; none of an arrival.
    next, turned : lists of (12,) and (3, 3)
        Of a departure: poses at the step's end, and T of phi = T dw of each body.
    """

    rest: list[Any]
    D: list[Any]
    values: list[Any]
    H: list[list[Any]]
    slopes: list[Any]
    next: list[Any]
    turned: list[Any]


class StepGraph:
    """Functions of the bodies and constraints of a system, and the graph that joins them.

    Attributes
    ----------
    groups : list of Group
        Node len(bodies) + j of the graph is group j.
    names : tuple of str
        Of the groups' rows.
    touches : list of Touch
        Contacts and limits; they are no nodes, their variables are condensed onto the bodies'.
    structure : Structure
    """

    def __init__(self, system: System, smoothing: float):
        self.terms = BodyGraph(system)
        self.bodies = self.terms.model.bodies
        self.n = len(self.bodies)
        self._shared: dict[tuple, Any] = {}
        self.groups = self._groups()
        self.names = tuple(name for g in self.groups for name in g.names)
        self.light = [self._light(b) for b in self.bodies]
        self.touches = find_touches(self.terms, self._once, smoothing)
        self.structure = self._structure()
        self.elimination = Elimination(self.structure)

    # -- functions of one body ------------------------------------------------------------------------

    def _numbers(self, body: Body) -> tuple[list[Any], tuple]:
        values = [body.mass, *(e for row in body.inertia for e in row)]
        numeric = all(isinstance(v, (int, float)) for v in values)
        return values, tuple(values) if numeric else (body.name,)

    def _once(self, key: tuple, build: Any) -> Any:
        if key not in self._shared:
            self._shared[key] = build()
        return self._shared[key]

    @cached_property
    def pose(self) -> ca.Function:
        """z (7,) -> pose (12,)."""
        z = ca.SX.sym("z", STATE)
        R = rot.matrix(tuple(ca.vertsplit(z[3:])))
        return ca.Function("pose", [z], [ca.vertcat(z[:3], *(e for row in R for e in row))], OPTIONS)

    def inertia(self, i: int) -> ca.Function:
        """(V, parameters) -> M V (6,), M (6, 6)."""
        mass, *J = (values := self._numbers(self.bodies[i]))[0]

        def build() -> ca.Function:
            V = ca.SX.sym("V", TWIST)
            p = ca.vertcat(mass * V[:3], vec.column(vec.apply(_rows(J), _part(V, 3))))
            return ca.Function("inertia", [V, self.terms.parameters], [p, ca.jacobian(p, V)], OPTIONS)

        return self._once(("inertia", values[1]), build)

    def stopped(self, i: int) -> ca.Function:
        """(V, base, parameters) -> base - M V (6,)."""

        def build() -> ca.Function:
            V, base, theta = ca.SX.sym("V", TWIST), ca.SX.sym("base", TWIST), self.terms.parameters
            left = base - self.inertia(i).call([V, theta])[0]
            return ca.Function("stopped", [V, base, theta], [left], OPTIONS)

        return self._once(("stopped", self._numbers(self.bodies[i])[1]), build)

    def landing(self, i: int) -> ca.Function:
        """(V, dt, parameters) -> momentum D2 L_d (6,) with which a step at V ends."""
        mass, *J = (values := self._numbers(self.bodies[i]))[0]

        def build() -> ca.Function:
            V, dt = ca.SX.sym("V", TWIST), ca.SX.sym("dt")
            p = ca.vertcat(mass * V[:3], vec.column(rot.momentum(_rows(J), _part(V, 3), dt, -1.0)))
            return ca.Function("landing", [V, dt, self.terms.parameters], [p], OPTIONS)

        return self._once(("landing", values[1]), build)

    def departure(self, i: int) -> ca.Function:
        """(V, pose, base, dt, parameters) -> base + D1 L_d, slope of -D1 L_d, next pose, T of phi = T dw."""
        mass, *J = (values := self._numbers(self.bodies[i]))[0]

        def build() -> ca.Function:
            V, pose, base, dt = (
                ca.SX.sym(n, m) for n, m in (("V", TWIST), ("Z", POSE), ("base", TWIST), ("dt", 1))
            )
            w = _part(V, 3)
            p = ca.vertcat(mass * V[:3], vec.column(rot.momentum(_rows(J), w, dt, 1.0)))
            x, R = unpack_pose(pose, 0)
            after = vec.matmul(R, rot.matrix(rot.turn(w, dt)))
            x = vec.add(x, vec.scale(dt, _part(V, 0)))
            outputs = [
                base - p,
                ca.jacobian(p, V),
                ca.vertcat(*x, *(e for row in after for e in row)),
                vec.matrix(rot.slope(w, dt)),
            ]
            return ca.Function("departure", [V, pose, base, dt, self.terms.parameters], outputs, OPTIONS)

        return self._once(("departure", values[1]), build)

    @cached_property
    def carried(self) -> ca.Function:
        """(z (7,), V, dt) -> z at the step's end; the quaternion's norm is kept from drifting by rounding."""
        z, V, dt = ca.SX.sym("z", STATE), ca.SX.sym("V", TWIST), ca.SX.sym("dt")
        q = rot.multiply(tuple(ca.vertsplit(z[3:])), rot.turn(_part(V, 3), dt))
        size = 0.5 * (3 - sum(c * c for c in q))
        return ca.Function(
            "carried", [z, V, dt], [ca.vertcat(z[:3] + dt * V[:3], *(size * c for c in q))], OPTIONS
        )

    @cached_property
    def between(self) -> ca.Function:
        """(z, z_next (7,), dt) -> V of the step that leads from the one to the other."""
        z, z1, dt = ca.SX.sym("z", STATE), ca.SX.sym("z1", STATE), ca.SX.sym("dt")
        phi = rot.spin(tuple(ca.vertsplit(z[3:])), tuple(ca.vertsplit(z1[3:])))
        return ca.Function(
            "between", [z, z1, dt], [ca.vertcat(z1[:3] - z[:3], vec.column(phi)) / dt], OPTIONS
        )

    # -- constraints ------------------------------------------------------------------------------------

    def _groups(self) -> list[Group]:
        terms, result = self.terms, []
        for i, body in enumerate(self.bodies):
            if not body.joint.rows:
                continue
            bodies: tuple[int, ...] = (body.parent, i) if body.parent >= 0 else (i,)
            joint = body.joint
            numbers = (*joint.at_a, *joint.at_b)
            numeric = all(isinstance(v, (int, float)) for v in numbers)
            count = len(bodies)
            key = ("joint", count, joint if numeric else body.name)

            def build(joint=joint, count=count) -> Rows:
                Z = [ca.SX.sym("Z", POSE) for _ in range(count)]
                places = [unpack_pose(z, 0) for z in Z]
                a = places[0] if count == 2 else (vec.ZERO, vec.IDENTITY)
                g, *variations = joint.constraint(a, places[-1])
                rows = [
                    ca.sparsify(ca.vertcat(*(ca.horzcat(*row) for row in v))) for v in variations[2 - count :]
                ]
                return Rows(ca.Function("joint", [*Z, terms.parameters], [ca.vertcat(*g), *rows], OPTIONS))

            names = tuple(f"{body.name}.{k + 1}" for k in range(joint.rows))
            result.append(Group(bodies, names, self._once(key, build), True))
        for holders, indices in terms.loops:
            names = tuple(terms.system.constraint_names[i] for i in indices)
            result.append(Group(holders, names, self._loop(holders, indices), False))
        return result

    def _loop(self, bodies: tuple[int, ...], indices: list[int]) -> Rows:
        terms = self.terms
        h = ca.vertcat(*(terms.constraint_values[i] for i in indices))
        varied = ca.sparsify(terms.varied(h))
        Z = [terms.poses[POSE * i : POSE * i + POSE] for i in bodies]
        rows = [varied[:, TWIST * i : TWIST * i + TWIST] for i in bodies]
        return Rows(ca.Function("loop", [*Z, terms.parameters], [h, *rows], OPTIONS))

    @cached_property
    def sizes(self) -> list[int]:
        """Rows of each node."""
        return [TWIST] * self.n + [len(g.names) for g in self.groups]

    def _light(self, body: Body) -> bool:
        """Whether rotational inertia is missing about some axis."""
        values = self._numbers(body)[0]
        J = np.reshape([self.terms.model._value(v) for v in values[1:]], (3, 3))
        return bool(np.linalg.eigvalsh(J)[0] <= 1e-9 * max(np.trace(J), 1e-300))

    @cached_property
    def scales(self) -> np.ndarray:
        """Mass, or moment of inertia, that turns momenta into velocities (6 n,); for tests of residuals."""
        value, scales = self.terms.model._value, []
        for body, light in zip(self.bodies, self.light, strict=True):
            mass, *J = (value(v) for v in self._numbers(body)[0])
            reach = sum(value(c) ** 2 for c in body.joint.at_b)
            scales += [mass] * 3 + [max((J[0] + J[4] + J[8]) / 3, mass * reach if light else 0.0) or mass] * 3
        return np.array(scales)

    def _holds_to_world(self, group: Group) -> bool:
        """Whether a loop's constraint ties bodies to the world: moving all of them together changes it."""
        if len(group.bodies) == 1:
            return True
        random = np.random.default_rng(0)
        poses = []
        for _ in group.bodies:
            q = random.normal(size=4)
            R = rot.matrix(tuple(q / np.linalg.norm(q)))
            poses.append(np.concatenate([random.normal(size=3), np.ravel(R)]))
        defaults = list(self.terms.system.parameters.values())
        _, *variations = group.rows.function.call([*poses, defaults])
        G = [np.array(ca.DM(v))[:, :3] for v in variations]
        return bool(np.abs(sum(G)).max() > 1e-9 * (1 + np.abs(G).max()))

    def _structure(self) -> Structure:
        """Leaves to root: each joint after its body, each loop before the body where its branches meet."""
        model, joints = self.terms.model, {}
        before: dict[int, list[int]] = {}
        last: list[int] = []
        edges = {(b, self.n + j) for j, g in enumerate(self.groups) for b in g.bodies}
        for j, group in enumerate(self.groups):
            if group.joint:
                joints[group.bodies[-1]] = self.n + j
                if self.light[group.bodies[-1]]:
                    edges |= {(i, k) for i in group.bodies for k in group.bodies if i < k}
                continue
            paths = [[-1]] if self._holds_to_world(group) else []
            paths += [model.path(i) for i in group.bodies]
            meet = next(i for i in paths[0] if all(i in p for p in paths))
            (before.setdefault(meet, []) if meet >= 0 else last).append(self.n + j)
        edges |= {(min(p), max(p)) for p in self.coupled if p[0] != p[1]}
        edges |= {t.bodies for t in self.touches if len(t.bodies) == 2}
        order: list[int] = []
        for i in reversed(range(self.n)):
            order += [*before.get(i, []), i, *([joints[i]] if i in joints else [])]
        return analyse(self.sizes, sorted(edges), [*order, *last])

    # -- forces -----------------------------------------------------------------------------------------

    @cached_property
    def still_force(self) -> ca.Function:
        """(poses, u, t, parameters) -> (f, tau) of every body, without what depends on velocities."""
        g = self.terms
        return ca.Function(
            "still", [g.poses, g.u_vector, g.t, g.parameters], [ca.densify(g.wrenches[0])], OPTIONS
        )

    @cached_property
    def moving_force(self) -> ca.Function:
        """(poses, twists, u, t, parameters) -> (f, tau) of what depends on velocities."""
        g = self.terms
        args = [g.poses, g.twists, g.u_vector, g.t, g.parameters]
        return ca.Function("moving", args, [ca.densify(g.wrenches[1])], OPTIONS)

    @cached_property
    def _slope(self) -> ca.SX:
        return ca.sparsify(ca.jacobian(self.terms.wrenches[1], self.terms.twists))

    @cached_property
    def coupled(self) -> list[tuple[int, int]]:
        """Pairs of bodies that velocity-dependent forces couple."""
        rows, columns = self._slope.sparsity().get_triplet()
        return sorted({(r // TWIST, c // TWIST) for r, c in zip(rows, columns, strict=True)})

    @cached_property
    def slopes(self) -> ca.Function:
        """The arguments of `moving_force` -> its slopes by the twists, a block for each of `coupled`."""
        g = self.terms
        blocks = [
            self._slope[TWIST * i : TWIST * i + TWIST, TWIST * j : TWIST * j + TWIST] for i, j in self.coupled
        ]
        args = [g.poses, g.twists, g.u_vector, g.t, g.parameters]
        return ca.Function("slopes", args, [ca.densify(b) for b in blocks], OPTIONS)

    # -- Newton's equations -------------------------------------------------------------------------------

    def held(self, poses: list[Any], theta: Any) -> list[list[Any]]:
        """G' at poses, by groups and bodies."""
        return [list(g.rows.held.call([*(poses[i] for i in g.bodies), theta])) for g in self.groups]

    def momenta(self, V: Any, theta: Any) -> Any:
        """M V of twists (6 n,)."""
        return ca.vertcat(
            *(self.inertia(i).call([v, theta])[0] for i, v in enumerate(ca.vertsplit(V, TWIST)))
        )

    def kicked(self, momenta: Any, Z: Any, V: Any, u: Any, t: Any, dt: Any, theta: Any) -> Any:
        """Momenta (6 n,) after half a step's impulse of the forces at poses Z, those of V if it is given."""
        force = self.still_force(Z, u, t, theta)
        if V is not None and self.coupled:
            force = force + self.moving_force(Z, V, u, t, theta)
        return momenta + 0.5 * dt * force

    def leave(self, V: Any, Z: Any, base: Any, u: Any, t: Any, dt: Any, theta: Any) -> Balance:
        """Leaving the poses Z with the twists V of a step; `base` is `kicked` without V."""
        own, at, given = (ca.vertsplit(a, size) for a, size in ((V, TWIST), (Z, POSE), (base, TWIST)))
        gone = [self.departure(i)(own[i], at[i], given[i], dt, theta) for i in range(self.n)]
        rest = [g[0] for g in gone]
        slopes: list[Any] = []
        if self.coupled:
            force = ca.vertsplit(0.5 * dt * self.moving_force(Z, V, u, t, theta), TWIST)
            rest = [r + f for r, f in zip(rest, force, strict=True)]
            slopes = [0.5 * dt * s for s in self.slopes.call([Z, V, u, t, theta])]
        landed = [
            g.rows.landed.call([*(gone[i][2] for i in g.bodies), *(gone[i][3] for i in g.bodies), dt, theta])
            for g in self.groups
        ]
        values, H = [v[0] for v in landed], [list(v[1:]) for v in landed]
        D, after, turned = ([g[i] for g in gone] for i in (1, 2, 3))
        return Balance(rest, D, values, H, slopes, after, turned)

    def landed_momenta(self, V: Any, Z: Any, u: Any, t: Any, dt: Any, theta: Any) -> Any:
        """Momenta (6 n,) with which a step at the twists V ends at the poses Z."""
        own = ca.vertsplit(V, TWIST)
        landed = ca.vertcat(*(self.landing(i)(own[i], dt, theta) for i in range(self.n)))
        return self.kicked(landed, Z, V, u, t, dt, theta)

    def arrive(self, V: Any, base: Any, G: list[list[Any]], dt: Any, theta: Any) -> Balance:
        """The velocities V at poses with the variations G' of the constraints, from momenta `base`."""
        own, given = ca.vertsplit(V, TWIST), ca.vertsplit(base, TWIST)
        rest = [self.stopped(i)(own[i], given[i], theta) for i in range(self.n)]
        D = [self.inertia(i).call([own[i], theta])[1] for i in range(self.n)]
        swept = [
            g.rows.swept.call([*held, *(own[i] for i in g.bodies), dt])
            for g, held in zip(self.groups, G, strict=True)
        ]
        values, H = [v[0] for v in swept], [list(v[1:]) for v in swept]
        return Balance(rest, D, values, H, [], [], [])

    def blocks(self, D: list[Any], G: list[list[Any]], H: list[list[Any]], slopes: list[Any]) -> dict:
        """Blocks of [[D, G'], [H, 0]] by nodes, less the slopes, if there are; G transposed."""
        F: dict[tuple[int, int], Any] = {(i, i): d for i, d in enumerate(D)}
        for (i, j), slope in zip(self.coupled, slopes, strict=bool(slopes)):
            F[i, j] = F[i, j] - slope if (i, j) in F else -slope
        for j, group in enumerate(self.groups):
            node = self.n + j
            F[node, node] = type(D[0])(len(group.names), len(group.names))
            for i, g, h in zip(group.bodies, G[j], H[j], strict=True):
                F[i, node], F[node, i] = g, h
        return F

    def pulled(self, rest: list[Any], G: list[list[Any]], multipliers: Any) -> list[Any]:
        """Momenta left, less the impulses of the constraints."""
        rest, offset = list(rest), 0
        for group, held in zip(self.groups, G, strict=True):
            own = multipliers[offset : offset + len(group.names)]
            offset += len(group.names)
            for i, impulse in zip(group.bodies, group.rows.impulse.call([*held, own]), strict=True):
                rest[i] = rest[i] - impulse
        return rest

    def weighs(self, group: Group) -> bool:
        """Whether G' K times a joint's equations are added to those of its bodies: one lacks inertia."""
        return group.joint and self.light[group.bodies[-1]]

    def weight(self, group: Group, patterns: list[ca.Sparsity]) -> ca.Function:
        """(G' by body.., H by body.., g, dt) -> by body i: -G_i' K g, and for each body k G_i' K H_k."""
        body, count = self.bodies[group.bodies[-1]], len(group.bodies)
        value = self.terms.model._value
        reach = sum(value(c) ** 2 for c in body.joint.at_b) or 1.0
        mass, slides = value(body.mass), len(body.joint.normals)

        def build() -> ca.Function:
            held = [ca.SX.sym("G", group.rows.held.sparsity_out(i)) for i in range(count)]
            landed = [ca.SX.sym("H", pattern) for pattern in patterns]
            g, dt = ca.SX.sym("g", len(group.names)), ca.SX.sym("dt")
            K = ca.DM([mass] * slides + [mass * reach] * (len(group.names) - slides))
            outputs = []
            for G in held:
                weight = G @ ca.diag(K) / dt
                outputs += [ca.densify(-weight @ g), *(ca.sparsify(weight @ h) for h in landed)]
            return ca.Function("weight", [*held, *landed, g, dt], outputs, OPTIONS)

        key = tuple(tuple(p.compress()) for p in patterns)  # a departure's and an arrival's may differ
        return self._once(("weight", id(group.rows), mass, reach, key), build)

    def weigh(self, F: dict, rhs: list[Any], G: list[list[Any]], H: list[list[Any]], dt: Any) -> None:
        """Add G' K times the equations of joints to those of bodies without inertia; rhs of groups is -g."""
        for j, group in enumerate(self.groups):
            if not self.weighs(group):
                continue
            weight = self.weight(group, [h.sparsity() for h in H[j]])
            outputs = iter(weight.call([*G[j], *H[j], -rhs[self.n + j], dt]))
            for i in group.bodies:
                rhs[i] = rhs[i] + next(outputs)
                for k in group.bodies:
                    block = next(outputs)
                    F[i, k] = F[i, k] + block if (i, k) in F else block

    def project(self, Z: Any, p: Any, dt: Any, theta: Any) -> tuple[Any, Any]:
        """Twists nu (6 n,) tangent to the constraints at poses Z with M nu = p - G' mu, and mu."""
        zero = type(p).zeros(TWIST * self.n)
        G = self.held(ca.vertsplit(Z, POSE), theta)
        there = self.arrive(zero, p, G, dt, theta)
        F = self.blocks(there.D, G, there.H, [])
        rhs = [*there.rest, *(type(p).zeros(len(g.names)) for g in self.groups)]
        self.weigh(F, rhs, G, there.H, dt)
        solution = self.elimination.solve(F, rhs)
        return ca.vertcat(*solution[: self.n]), ca.vertcat(type(p)(0, 1), *solution[self.n :])


def _rows(J: list[Any]) -> vec.Matrix:
    return tuple(J[0:3]), tuple(J[3:6]), tuple(J[6:9])


def _part(V: ca.SX, start: int) -> vec.Vector:
    return V[start], V[start + 1], V[start + 2]
