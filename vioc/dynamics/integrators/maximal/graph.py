"""A mechanism as a graph: functions of its bodies, its forces and constraints, and the order of elimination.

Functions of one body or one constraint are built once for each kind; `body_equations.Assembly` calls them for
every one. Maths: docs/maths/maximal.md.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import Any

import casadi as ca
import numpy as np

from vioc.dynamics.algebra import rotations as rot
from vioc.dynamics.algebra import vectors as vec
from vioc.dynamics.algebra.block_elimination import Elimination, sparse_order
from vioc.dynamics.contact.features import Features, MeetingPlaces
from vioc.dynamics.description.system import System
from vioc.dynamics.integrators.maximal import body_space as space
from vioc.dynamics.integrators.maximal.body_space import POSE, STATE, TWIST, unpack_pose, unpack_twist
from vioc.dynamics.integrators.maximal.joint_constraints import ConstraintFunctions, ConstraintNode
from vioc.dynamics.integrators.maximal.model import Body
from vioc.dynamics.integrators.maximal.terms import BodyGraph
from vioc.dynamics.integrators.maximal.touches import Touch, find_touches
from vioc.dynamics.lagrangian import OPTIONS

APART = 4.0  # of the tolerance's root: sine between gradients from which on branches are told apart
BESIDE = 1e-3  # that sine where steps with contact are looked at: their iteration may jump between branches


class StepGraph:
    """Functions of the bodies and constraints of a system, and the graph that joins them.

    Attributes
    ----------
    tolerance : float
        To which constraints hold at a step's end, over the mechanism's extent.
    groups : list of ConstraintNode
        Node len(bodies) + j of the graph is group j.
    names : tuple of str
        Of the groups' rows.
    touches : list of Touch
        Contacts and limits; they are no nodes, their variables are condensed onto the bodies'.
    pairs : list of Pair
        Of polytopes; pair i has the places from PLACES i on.
    elimination : Elimination
        Of the nodes, leaves to root.
    sine : float
        Of the angle between gradients of constraints, up to which an arrival is looked at.
    """

    def __init__(self, system: System, smoothing: float, tolerance: float):
        self.terms, self.tolerance = BodyGraph(system), tolerance
        self.bodies = self.terms.model.bodies
        self.n = len(self.bodies)
        self._shared: dict[tuple, Any] = {}
        self.groups = self._groups()
        self.names = tuple(name for g in self.groups for name in g.names)
        self.light = [self._light(b) for b in self.bodies]
        self.touches, self.pairs = find_touches(self.terms, self._once, smoothing)
        self.sizes = [TWIST] * self.n + [g.rows.size for g in self.groups]
        self.elimination = self.eliminated()
        least = APART * tolerance**0.5
        self.sine = max(BESIDE, least) if self.touches else least

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

    def _of_body(self, name: str, i: int, sizes: dict[str, int], outputs: Any) -> ca.Function:
        """A function of symbols and the parameters, one for all bodies with the inertia of body i; `outputs`
        takes mass, J and the symbols.
        """
        (mass, *J), key = self._numbers(self.bodies[i])

        def build() -> ca.Function:
            symbols = [ca.SX.sym(n, size) for n, size in sizes.items()]
            results = outputs(mass, _rows(J), *symbols)
            return ca.Function(name, [*symbols, self.terms.parameters], results, OPTIONS)

        return self._once((name, key), build)

    def inertia(self, i: int) -> ca.Function:
        """(V, parameters) -> M V (6,), M (6, 6)."""

        def outputs(mass: Any, J: vec.Matrix, V: ca.SX) -> list:
            p = ca.vertcat(mass * V[:3], vec.column(vec.apply(J, unpack_twist(V)[1])))
            return [p, ca.jacobian(p, V)]

        return self._of_body("inertia", i, {"V": TWIST}, outputs)

    def stopped(self, i: int) -> ca.Function:
        """(V, base, parameters) -> base - M V (6,)."""

        def outputs(mass: Any, J: vec.Matrix, V: ca.SX, base: ca.SX) -> list:
            return [base - self.inertia(i).call([V, self.terms.parameters])[0]]

        return self._of_body("stopped", i, {"V": TWIST, "base": TWIST}, outputs)

    def landing(self, i: int) -> ca.Function:
        """(V, dt, parameters) -> momentum D2 L_d (6,) with which a step at V ends."""

        def outputs(mass: Any, J: vec.Matrix, V: ca.SX, dt: ca.SX) -> list:
            return [ca.vertcat(mass * V[:3], vec.column(rot.momentum(J, unpack_twist(V)[1], dt, -1.0)))]

        return self._of_body("landing", i, {"V": TWIST, "dt": 1}, outputs)

    def departure(self, i: int) -> ca.Function:
        """(V, pose, base, dt, parameters) -> base + D1 L_d, slope of -D1 L_d, next pose, T of phi = T dw."""

        def outputs(mass: Any, J: vec.Matrix, V: ca.SX, pose: ca.SX, base: ca.SX, dt: ca.SX) -> list:
            (v, w), (x, R) = unpack_twist(V), unpack_pose(pose)
            p = ca.vertcat(mass * V[:3], vec.column(rot.momentum(J, w, dt, 1.0)))
            after = vec.matmul(R, rot.matrix(rot.turn(w, dt)))
            ends = ca.vertcat(*vec.add(x, vec.scale(dt, v)), *(e for row in after for e in row))
            return [base - p, ca.jacobian(p, V), ends, vec.matrix(rot.slope(w, dt))]

        return self._of_body("departure", i, {"V": TWIST, "Z": POSE, "base": TWIST, "dt": 1}, outputs)

    @cached_property
    def carried(self) -> ca.Function:
        """(z (7,), V, dt) -> z at the step's end; the quaternion's norm is kept from drifting by rounding."""
        z, V, dt = ca.SX.sym("z", STATE), ca.SX.sym("V", TWIST), ca.SX.sym("dt")
        q = rot.multiply(tuple(ca.vertsplit(z[3:])), rot.turn(unpack_twist(V)[1], dt))
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

    @cached_property
    def work(self) -> ca.Function:
        """(V, base, rest), (6,) each, of a departure -> kinetic energy that impulses bring; twice all."""
        V, base, rest = (ca.SX.sym(name, TWIST) for name in ("V", "base", "rest"))
        energies = ca.vertcat(-ca.dot(V, rest), ca.dot(V, base - rest))
        return ca.Function("work", [V, base, rest], [energies], OPTIONS)

    @cached_property
    def impulse(self) -> ca.Function:
        """(impulse (6,), radius of gyration) -> its square, (N s)^2."""
        p, radius = ca.SX.sym("p", TWIST), ca.SX.sym("radius")
        return ca.Function("impulse", [p, radius], [ca.sumsqr(p[:3]) + ca.sumsqr(p[3:] / radius)], OPTIONS)

    @cached_property
    def undetermined(self) -> ca.Function:
        """(squares of single impulses, of their sums) -> 0, or infinity; see `Assembly.undetermined`."""
        single, sums = ca.SX.sym("single"), ca.SX.sym("sums")
        suspect = ca.if_else(self.sine**2 * single <= sums, 0.0, ca.inf)
        return ca.Function("undetermined", [single, sums], [suspect], OPTIONS)

    # -- constraints ------------------------------------------------------------------------------------

    def _groups(self) -> list[ConstraintNode]:
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
            rows = self._once(
                key, lambda j=joint, n=count: ConstraintFunctions.of_joint(j, n, terms.parameters)
            )
            names = tuple(f"{body.name}.{k + 1}" for k in range(joint.rows))
            result.append(ConstraintNode(bodies, names, rows, True))
        for holders, indices in terms.loops:
            names = tuple(terms.system.constraint_names[i] for i in indices)
            result.append(ConstraintNode(holders, names, self._loop(holders, indices), False))
        return result

    def _loop(self, bodies: tuple[int, ...], indices: list[int]) -> ConstraintFunctions:
        terms = self.terms
        h = ca.vertcat(*(terms.constraint_values[i] for i in indices))
        varied = ca.sparsify(terms.varied(h))
        rows = [varied[:, TWIST * i : TWIST * i + TWIST] for i in bodies]
        args = [*terms.own_poses(bodies), terms.parameters]
        return ConstraintFunctions(ca.Function("loop", args, [h, *rows], OPTIONS))

    def _light(self, body: Body) -> bool:
        """Whether rotational inertia is missing about some axis."""
        values = self._numbers(body)[0]
        J = np.reshape([self.terms.model.value(v) for v in values[1:]], (3, 3))
        return bool(np.linalg.eigvalsh(J)[0] <= 1e-9 * max(np.trace(J), 1e-300))

    @cached_property
    def scales(self) -> np.ndarray:
        """Mass, or moment of inertia, that turns momenta into velocities (6 n,); for tests of residuals."""
        value, scales = self.terms.model.value, []
        for body, light in zip(self.bodies, self.light, strict=True):
            mass, *J = (value(v) for v in self._numbers(body)[0])
            reach = sum(value(c) ** 2 for c in body.joint.at_b)
            scales += [mass] * 3 + [max((J[0] + J[4] + J[8]) / 3, mass * reach if light else 0.0) or mass] * 3
        return np.array(scales)

    @property
    def radii(self) -> np.ndarray:
        """Radii of gyration of the bodies (n,), m."""
        return np.sqrt(self.scales[3::6] / self.scales[::6])

    @property
    def mass_ratio(self) -> float:
        """The largest ratio of the masses of bodies that a joint or a constraint connects."""
        masses = self.scales[::TWIST]
        of_groups = (masses[list(group.bodies)] for group in self.groups)
        return max((float(m.max() / m.min()) for m in of_groups), default=1.0)

    def by_length(self, G: np.ndarray) -> np.ndarray:
        """Variations of constraints (rows, 6 n) with turns as displacements at the radius of gyration.

        Masses do not enter, so that light and heavy bodies do not make constraints look dependent.
        """
        return G / np.repeat(np.stack([np.ones_like(self.radii), self.radii], axis=1), 3, axis=1).ravel()

    def gradients(self, G: np.ndarray) -> np.ndarray:
        """What values of constraints are divided by to be displacements (rows,), of their variations
        (rows, 6 n): 1 of joints, else their length, as `ConstraintFunctions.landed_off` has it.
        """
        length = np.linalg.norm(self.by_length(G), axis=1)
        joint = np.repeat([g.joint for g in self.groups], [g.rows.size for g in self.groups])
        return np.where(joint | ~(length > 0), 1.0, length)

    def _holds_to_world(self, group: ConstraintNode) -> bool:
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

    def eliminated(self, functions: Elimination | None = None) -> Elimination:
        """Leaves to root: each joint after its body, each loop before the body where its branches meet; of
        bodies without joints, those with the fewest neighbours first.
        """
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
        ordered = [*order, *last] if self.groups else sparse_order(self.n, edges)
        return Elimination(len(self.sizes), edges, ordered, functions)

    # -- forces -----------------------------------------------------------------------------------------

    @cached_property
    def still(self) -> ca.Function:
        """(poses, u, t, dt, parameters) -> half a step's impulses (6 n,) of what depends on no velocity."""
        g, dt = self.terms, ca.SX.sym("dt")
        impulses = ca.densify(0.5 * dt * g.wrenches[0])
        return ca.Function("still", [g.poses, g.u_vector, g.t, dt, g.parameters], [impulses], OPTIONS)

    @cached_property
    def moving(self) -> ca.Function:
        """(poses, twists, u, t, dt, parameters) -> those (6 n,) of what depends on velocities."""
        g, dt = self.terms, ca.SX.sym("dt")
        args = [g.poses, g.twists, g.u_vector, g.t, dt, g.parameters]
        return ca.Function("moving", args, [ca.densify(0.5 * dt * g.wrenches[1])], OPTIONS)

    @cached_property
    def slopes(self) -> ca.Function:
        """The arguments of `moving` -> its slopes by the twists, a block for each of `coupled`."""
        g, dt = self.terms, ca.SX.sym("dt")
        blocks = [
            self._slope[TWIST * i : TWIST * i + TWIST, TWIST * j : TWIST * j + TWIST] for i, j in self.coupled
        ]
        args = [g.poses, g.twists, g.u_vector, g.t, dt, g.parameters]
        return ca.Function("slopes", args, [ca.densify(0.5 * dt * b) for b in blocks], OPTIONS)

    @cached_property
    def _slope(self) -> ca.SX:
        return ca.sparsify(ca.jacobian(self.terms.wrenches[1], self.terms.twists))

    @cached_property
    def coupled(self) -> list[tuple[int, int]]:
        """Pairs of bodies that velocity-dependent forces couple."""
        rows, columns = self._slope.sparsity().get_triplet()
        return sorted({(r // TWIST, c // TWIST) for r, c in zip(rows, columns, strict=True)})

    # -- touches ------------------------------------------------------------------------------------------

    def numbers(self, touch: Touch) -> ca.DM | ca.Function:
        """A touch's data, or the function of the parameters that they are."""
        return self._once(("numbers", touch.name), lambda: self._numbers_of(touch))

    def _numbers_of(self, touch: Touch) -> ca.DM | ca.Function:
        values = ca.densify(ca.SX(ca.vertcat(ca.SX(0, 1), *touch.data)))
        if values.is_constant():
            return ca.DM(values)
        args = [self.terms.parameters]
        return self._once(("data", str(values)), lambda: ca.Function("data", args, [values], OPTIONS))

    def selected(self, active: np.ndarray) -> StepGraph:
        """The same graph with some of the touches alone."""
        _ = self.coupled, self.features
        twin = object.__new__(StepGraph)
        twin.__dict__.update(self.__dict__)
        count, twin.touches = 0, []
        for i in active:
            touch = self.touches[i]
            if touch.placed:
                touch, count = replace(touch, place=count), count + 1
            twin.touches.append(touch)
        twin.elimination = twin.eliminated(self.elimination)
        return twin

    @cached_property
    def features(self) -> Features:
        """Where polytopes meet."""
        return Features(self.pairs)

    def seen(self, x: np.ndarray, dt: float) -> MeetingPlaces:
        """The places of polytopes that meet in a state x (nx,), or may within dt."""
        positions, q, twists = space.split(self.n, x)
        R: np.ndarray = np.moveaxis(np.array(rot.matrix(tuple(q.T))), -1, 0)
        return self.features.at(positions, R, twists.reshape(-1, TWIST), dt)

    @property
    def places(self) -> list[Touch]:
        """The touches that are places of polytopes."""
        return [t for t in self.touches if t.placed]

    # -- bodies without inertia ---------------------------------------------------------------------------

    def weighs(self, group: ConstraintNode) -> bool:
        """Whether G' K times a joint's equations are added to those of its bodies: one lacks inertia."""
        return group.joint and self.light[group.bodies[-1]]

    def weight(self, group: ConstraintNode, patterns: list[ca.Sparsity]) -> ca.Function:
        """(G' by body.., H by body.., g, dt) -> by body i: -G_i' K g, and for each body k G_i' K H_k."""
        body, count = self.bodies[group.bodies[-1]], len(group.bodies)
        value = self.terms.model.value
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


def _rows(J: list[Any]) -> vec.Matrix:
    return tuple(J[0:3]), tuple(J[3:6]), tuple(J[6:9])
