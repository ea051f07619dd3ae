"""Graph whose nodes are the bodies and constraints of a mechanism.
CasADi functions of the nodes compute the terms of the equations of a step.

Functions of a body or of a constraint are built once for each kind; `body_equations.Assembly` calls them for
each body and constraint. Maths: docs/maths/maximal.md.
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
from vioc.dynamics.contact.natural_units import NaturalUnits, units_of_touches
from vioc.dynamics.description.system import System
from vioc.dynamics.integrators.maximal import body_space as space
from vioc.dynamics.integrators.maximal.body_space import POSE, STATE, TWIST, unpack_pose, unpack_twist
from vioc.dynamics.integrators.maximal.joint_constraints import ConstraintFunctions, ConstraintNode
from vioc.dynamics.integrators.maximal.model import Body
from vioc.dynamics.integrators.maximal.terms import BodyGraph
from vioc.dynamics.integrators.maximal.touches import Touch, find_touches
from vioc.dynamics.masses import natural_length

APART = 4.0  # smallest sine between gradients of distinguishable branches, over the root of the tolerance
BESIDE = 1e-3  # the same sine for steps with contact, whose iteration may jump between branches


class StepGraph:
    """Graph whose nodes are the bodies and constraints of a system.
    Its CasADi functions compute the terms of the equations of a step.

    Attributes
    ----------
    tolerance : float
        Tolerance of the constraints at the end of a step, relative to the mechanism's length.
    groups : list of ConstraintNode
        Groups of constraints; group j is node len(bodies) + j of the graph.
    names : tuple of str
        Names of the constraints of all groups.
    touches : list of Touch
        Contacts and limits. They are not nodes: their variables are condensed onto the bodies.
    pairs : list of Pair
        Pairs of polytopes; pair i has PLACES possible contact points from index PLACES i.
    elimination : Elimination
        Elimination of the nodes, from leaves to root.
    sine : float
        Sine of the angle between gradients of constraints up to which an arrival is suspect.
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
        """CasADi function that computes the pose (12,) of a body.
        Its argument is the position and quaternion (7,) of the body. A pose is a position and a rotation
        matrix.
        """
        z = ca.SX.sym("z", STATE)
        R = rot.matrix(tuple(ca.vertsplit(z[3:])))
        return ca.Function("pose", [z], [ca.vertcat(z[:3], *(e for row in R for e in row))])

    def _of_body(self, name: str, i: int, sizes: dict[str, int], outputs: Any) -> ca.Function:
        """Return a CasADi function for body i, which all bodies of equal inertia share.
        Its arguments are symbols with the names and dimensions in `sizes`, then the parameters. The Python
        function `outputs` builds the results from the mass, the inertia matrix and these symbols.
        """
        (mass, *J), key = self._numbers(self.bodies[i])

        def build() -> ca.Function:
            symbols = [ca.SX.sym(n, size) for n, size in sizes.items()]
            results = outputs(mass, _rows(J), *symbols)
            # without common subexpressions, as the function becomes a part of many
            return ca.Function(name, [*symbols, self.terms.parameters], results, {"cse": True})

        return self._once((name, key), build)

    def inertia(self, i: int) -> ca.Function:
        """Return the CasADi function that computes momentum and mass matrix of body i.
        Its arguments and results are (V, parameters) -> M V, M, with the twist V and the mass matrix M (6,
        6).
        """

        def outputs(mass: Any, J: vec.Matrix, V: ca.SX) -> list:
            p = ca.vertcat(mass * V[:3], vec.column(vec.apply(J, unpack_twist(V)[1])))
            return [p, ca.jacobian(p, V)]

        return self._of_body("inertia", i, {"V": TWIST}, outputs)

    def stopped(self, i: int) -> ca.Function:
        """Return the CasADi function that computes the final momentum residual of body i.
        It is the residual of the momentum balance at the end of a step. The arguments and results are (V,
        base, parameters) -> base - M V (6,), with the twist V, the mass matrix M, and the momentum `base`
        before the constraint and contact impulses.
        """

        def outputs(mass: Any, J: vec.Matrix, V: ca.SX, base: ca.SX) -> list:
            return [base - self.inertia(i).call([V, self.terms.parameters])[0]]

        return self._of_body("stopped", i, {"V": TWIST, "base": TWIST}, outputs)

    def landing(self, i: int) -> ca.Function:
        """Return the CasADi function that computes the momentum D2 L_d (6,) of body i.
        D2 L_d is the derivative of the discrete Lagrangian of a step with respect to the pose at the end of
        the step. The arguments of the function are (V, dt, parameters), with the twist V.
        """

        def outputs(mass: Any, J: vec.Matrix, V: ca.SX, dt: ca.SX) -> list:
            return [ca.vertcat(mass * V[:3], vec.column(rot.momentum(J, unpack_twist(V)[1], dt, -1.0)))]

        return self._of_body("landing", i, {"V": TWIST, "dt": 1}, outputs)

    def departure(self, i: int) -> ca.Function:
        """Return the CasADi function that computes the momentum balance of body i.
        It is the momentum balance at the start of a step.

        Its arguments and results are (V, pose, base, dt, parameters) -> base + D1 L_d, derivative of -D1 L_d
        with respect to V, next pose, T. V is the twist during the step, and `base` the momentum at the start
        with the force impulses there. D1 L_d is the derivative of the discrete Lagrangian with respect to the
        start pose. The matrix T maps a change dw of the angular velocity to the rotation vector phi = T dw.
        """

        def outputs(mass: Any, J: vec.Matrix, V: ca.SX, pose: ca.SX, base: ca.SX, dt: ca.SX) -> list:
            (v, w), (x, R) = unpack_twist(V), unpack_pose(pose)
            p = ca.vertcat(mass * V[:3], vec.column(rot.momentum(J, w, dt, 1.0)))
            R_next = vec.matmul(R, rot.matrix(rot.turn(w, dt)))
            ends = ca.vertcat(*vec.add(x, vec.scale(dt, v)), *(e for row in R_next for e in row))
            return [base - p, ca.jacobian(p, V), ends, vec.matrix(rot.slope(w, dt))]

        return self._of_body("departure", i, {"V": TWIST, "Z": POSE, "base": TWIST, "dt": 1}, outputs)

    @cached_property
    def carried(self) -> ca.Function:
        """CasADi function that moves a body by a twist for one step.
        Its arguments and results are (z, V, dt) -> z, for position and quaternion z (7,). The result is
        normalized, since rounding makes the norm of the quaternion drift.
        """
        z, V, dt = ca.SX.sym("z", STATE), ca.SX.sym("V", TWIST), ca.SX.sym("dt")
        q = rot.multiply(tuple(ca.vertsplit(z[3:])), rot.turn(unpack_twist(V)[1], dt))
        size = 0.5 * (3 - sum(c * c for c in q))
        return ca.Function("carried", [z, V, dt], [ca.vertcat(z[:3] + dt * V[:3], *(size * c for c in q))])

    @cached_property
    def between(self) -> ca.Function:
        """CasADi function that computes the twist from one pose of a body to another.
        The body moves by this twist for one step. Both poses are positions and quaternions (7,).
        """
        z, z1, dt = ca.SX.sym("z", STATE), ca.SX.sym("z1", STATE), ca.SX.sym("dt")
        phi = rot.spin(tuple(ca.vertsplit(z[3:])), tuple(ca.vertsplit(z1[3:])))
        return ca.Function("between", [z, z1, dt], [ca.vertcat(z1[:3] - z[:3], vec.column(phi)) / dt])

    @cached_property
    def work(self) -> ca.Function:
        """CasADi function that computes the kinetic energy that impulses add to a body.
        The impulses are those of constraints and contacts. The arguments and results are (V, base, rest),
        (6,) each -> the added kinetic energy, twice the kinetic energy. V is the twist, `base` the momentum
        before the impulses, and `rest` is base - M V, with the mass matrix M.
        """
        V, base, rest = (ca.SX.sym(name, TWIST) for name in ("V", "base", "rest"))
        energies = ca.vertcat(-ca.dot(V, rest), ca.dot(V, base - rest))
        return ca.Function("work", [V, base, rest], [energies])

    @cached_property
    def impulse(self) -> ca.Function:
        """CasADi function that computes the square of an impulse (6,) on a body, (N s)^2.
        Angular impulses are divided by the radius of gyration, the second argument.
        """
        p, radius = ca.SX.sym("p", TWIST), ca.SX.sym("radius")
        return ca.Function("impulse", [p, radius], [ca.sumsqr(p[:3]) + ca.sumsqr(p[3:] / radius)])

    @cached_property
    def undetermined(self) -> ca.Function:
        """CasADi function that tests whether a configuration determines velocities.
        It is the configuration at the end of a step. The result is 0 if the configuration determines the
        velocities, else infinity. The first argument is the sum of the squares of the impulses by which each
        single constraint acts on each body. The second is the sum of the squares of the total constraint
        impulses on the bodies.
        """
        single, sums = ca.SX.sym("single"), ca.SX.sym("sums")
        suspect = ca.if_else(self.sine**2 * single <= sums, 0.0, ca.inf)
        return ca.Function("undetermined", [single, sums], [suspect])

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
        return ConstraintFunctions(ca.Function("loop", args, [h, *rows]))

    def _light(self, body: Body) -> bool:
        """Return whether a body has no rotational inertia about some axis."""
        values = self._numbers(body)[0]
        J = np.reshape([self.terms.model.value(v) for v in values[1:]], (3, 3))
        return bool(np.linalg.eigvalsh(J)[0] <= 1e-9 * max(np.trace(J), 1e-300))

    @cached_property
    def scales(self) -> np.ndarray:
        """Masses and moments of inertia (6 n,) of n bodies, as scales of momenta."""
        value, scales = self.terms.model.value, []
        for body, light in zip(self.bodies, self.light, strict=True):
            mass, *J = (value(v) for v in self._numbers(body)[0])
            reach = sum(value(c) ** 2 for c in body.joint.at_b)
            scales += [mass] * 3 + [max((J[0] + J[4] + J[8]) / 3, mass * reach if light else 0.0) or mass] * 3
        return np.array(scales)

    @property
    def radii(self) -> np.ndarray:
        """Radii of gyration (n,) of the n bodies, in m."""
        return np.sqrt(self.scales[3::6] / self.scales[::6])

    @property
    def mass_ratio(self) -> float:
        """Largest ratio of the masses of two bodies that are connected by a constraint."""
        masses = self.scales[::TWIST]
        of_groups = (masses[list(group.bodies)] for group in self.groups)
        return max((float(m.max() / m.min()) for m in of_groups), default=1.0)

    def by_length(self, G: np.ndarray) -> np.ndarray:
        """Scale the columns of a constraint Jacobian so that rotations count as lengths.
        Half of the columns of the Jacobian G (constraints, 6 n) belong to rotation vectors of n bodies. These
        columns are divided by the radii of gyration of the bodies. The masses of the bodies do not affect the
        result.
        """
        return G / np.repeat(np.stack([np.ones_like(self.radii), self.radii], axis=1), 3, axis=1).ravel()

    @cached_property
    def natural(self) -> NaturalUnits:
        """Units of the unknowns and the residuals of a step.
        The unit is 1 rad or the characteristic length of the mechanism.
        """
        system = self.terms.system
        length = natural_length(system)
        sizes = np.tile(np.repeat([length, 1.0], TWIST // 2), self.n)
        rows = [self._joint_units(group, length) for group in self.groups]
        return NaturalUnits(
            length, sizes, np.concatenate([*rows, units_of_touches(system, self.touches, length)])
        )

    @property
    def pose_sizes(self) -> np.ndarray:
        """Natural units (12 n,) of the poses of n bodies.
        They are the characteristic length of the mechanism for positions, and 1 for the entries of rotation
        matrices.
        """
        return np.tile(np.repeat([self.natural.length, 1.0], [3, POSE - 3]), self.n)

    def _joint_units(self, group: ConstraintNode, length: float) -> np.ndarray:
        """Return the unit of each constraint value of a joint.
        It is the characteristic length of the mechanism, or 1 rad. For a loop constraint it is 1, because the
        values of loop constraints have been made dimensionless.
        """
        moves = np.zeros(group.rows.size, bool)
        if group.joint:
            for i in range(len(group.bodies)):
                pattern = np.array(ca.DM(group.rows.held.sparsity_out(i), 1.0))
                moves |= pattern[: TWIST // 2].any(axis=0)  # G' (6, rows)
        return np.where(moves, length, 1.0)

    def gradients(self, G: np.ndarray) -> np.ndarray:
        """Return divisors that make constraint values dimensionless displacements.
        For a joint they are 1 rad or the characteristic length of the mechanism. For a loop constraint they
        are the norms of the constraint gradients, the rows of the Jacobian G (constraints, 6 n), in natural
        units.
        """
        length = np.linalg.norm(G * self.natural.sizes, axis=1)
        joint = np.repeat([g.joint for g in self.groups], [g.rows.size for g in self.groups])
        return np.where(joint | ~(length > 0), self.natural.rows[: len(G)], length)

    def _holds_to_world(self, group: ConstraintNode) -> bool:
        """Return whether a loop constraint connects its bodies to the world.
        The value of such a constraint changes if all its bodies are translated together.
        """
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
        """Return the block elimination of the Newton system of bodies and constraints.
        The order of elimination is from the leaves of the tree of bodies to its root. Each joint follows its
        child body; each loop constraint precedes the body where the branches of the loop meet. Without
        constraints, bodies with the fewest neighbours come first.
        """
        model, joints = self.terms.model, {}
        groups_of: dict[int, list[int]] = {}
        closures: list[int] = []
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
            (groups_of.setdefault(meet, []) if meet >= 0 else closures).append(self.n + j)
        edges |= {(min(p), max(p)) for p in self.coupled if p[0] != p[1]}
        edges |= {t.bodies for t in self.touches if len(t.bodies) == 2}
        order: list[int] = []
        for i in reversed(range(self.n)):
            order += [*groups_of.get(i, []), i, *([joints[i]] if i in joints else [])]
        ordered = [*order, *closures] if self.groups else sparse_order(self.n, edges)
        return Elimination(len(self.sizes), edges, ordered, functions)

    # -- forces -----------------------------------------------------------------------------------------

    @cached_property
    def still(self) -> ca.Function:
        """CasADi function that computes half of the impulses of velocity-independent forces.
        The result (6 n,) contains half of the impulse on each of n bodies over a step. The arguments are the
        poses of all bodies, the inputs u, the time t, the step length dt and the parameters.
        """
        g, dt = self.terms, ca.SX.sym("dt")
        impulses = ca.densify(0.5 * dt * g.wrenches[0])
        return ca.Function("still", [g.poses, g.u_vector, g.t, dt, g.parameters], [impulses])

    @cached_property
    def moving(self) -> ca.Function:
        """CasADi function that computes half of the impulses of velocity-dependent forces.
        The result (6 n,) contains half of the impulse on each of n bodies over a step. The arguments are the
        poses and twists of all bodies, the inputs u, the time t, the step length dt and the parameters.
        """
        g, dt = self.terms, ca.SX.sym("dt")
        args = [g.poses, g.twists, g.u_vector, g.t, dt, g.parameters]
        return ca.Function("moving", args, [ca.densify(0.5 * dt * g.wrenches[1])])

    @cached_property
    def slopes(self) -> ca.Function:
        """CasADi function that differentiates impulses of velocity-dependent forces.
        The results are matrices (6, 6), one for each pair (i, j) of bodies for which a force on body i
        depends on the velocity of body j. Each matrix is the derivative, with respect to the twist of body j,
        of half of the impulse on body i over a step. The arguments are the poses and twists of all bodies,
        the inputs u, the time t, the step length dt and the parameters.
        """
        g, dt = self.terms, ca.SX.sym("dt")
        blocks = [
            self._slope[TWIST * i : TWIST * i + TWIST, TWIST * j : TWIST * j + TWIST] for i, j in self.coupled
        ]
        args = [g.poses, g.twists, g.u_vector, g.t, dt, g.parameters]
        return ca.Function("slopes", args, [ca.densify(0.5 * dt * b) for b in blocks])

    @cached_property
    def _slope(self) -> ca.SX:
        return ca.sparsify(ca.jacobian(self.terms.wrenches[1], self.terms.twists))

    @cached_property
    def coupled(self) -> list[tuple[int, int]]:
        """Pairs (i, j) of bodies for which a force on body i depends on body j's velocity."""
        rows, columns = self._slope.sparsity().get_triplet()
        return sorted({(r // TWIST, c // TWIST) for r, c in zip(rows, columns, strict=True)})

    # -- contacts -----------------------------------------------------------------------------------------

    def numbers(self, touch: Touch) -> ca.DM | ca.Function:
        """Return the numerical data of a contact, such as points and radii.
        If these data depend on parameters, return a CasADi function that computes them from the parameters.
        """
        return self._once(("numbers", touch.name), lambda: self._numbers_of(touch))

    def _numbers_of(self, touch: Touch) -> ca.DM | ca.Function:
        values = ca.densify(ca.SX(ca.vertcat(ca.SX(0, 1), *touch.data)))
        if values.is_constant():
            return ca.DM(values)
        args = [self.terms.parameters]
        return self._once(("data", str(values)), lambda: ca.Function("data", args, [values]))

    def selected(self, active: np.ndarray) -> StepGraph:
        """Return the graph of the same mechanism with fewer contacts.
        The graph contains only those contacts whose indices are in `active`.
        """
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
        """Object that searches for the contact points of boxes and hulls."""
        return Features(self.pairs)

    def seen(self, x: np.ndarray, dt: float) -> MeetingPlaces:
        """Return the contact points of polytopes that touch in state x, or may touch within a step dt."""
        positions, q, twists = space.split(self.n, x)
        R: np.ndarray = np.moveaxis(np.array(rot.matrix(tuple(q.T))), -1, 0)
        return self.features.at(positions, R, twists.reshape(-1, TWIST), dt)

    @property
    def places(self) -> list[Touch]:
        """Possible contact points of boxes and hulls, each as an object `Touch`."""
        return [t for t in self.touches if t.placed]

    # -- bodies without inertia ---------------------------------------------------------------------------

    def weighs(self, group: ConstraintNode) -> bool:
        """Return whether a joint's constraints are also added to momentum balances.
        They are added, with weights, to the momentum balances of the joint's bodies if the child body has no
        rotational inertia about some axis.
        """
        return group.joint and self.light[group.bodies[-1]]

    def weight(self, group: ConstraintNode, patterns: list[ca.Sparsity]) -> ca.Function:
        """Return the CasADi function that computes a joint's terms in momentum balances.
        The terms are the constraint equations of the joint, with weights. They are added to the momentum
        balances of the joint's bodies if the child body has no rotational inertia about some axis.

        Its arguments and results are (G' by body.., H by body.., g, dt) -> for each body i -G_i' K g, then
        G_i' K H_k for each body k. G and H are derivatives of the constraint values g, K contains the
        weights.
        """
        body, count = self.bodies[group.bodies[-1]], len(group.bodies)
        value = self.terms.model.value
        reach = sum(value(c) ** 2 for c in body.joint.at_b) or 1.0
        mass, slides = value(body.mass), len(body.joint.normals)

        def build() -> ca.Function:
            gradients = [ca.SX.sym("G", group.rows.held.sparsity_out(i)) for i in range(count)]
            landed = [ca.SX.sym("H", pattern) for pattern in patterns]
            g, dt = ca.SX.sym("g", len(group.names)), ca.SX.sym("dt")
            K = ca.DM([mass] * slides + [mass * reach] * (len(group.names) - slides))
            outputs = []
            for G in gradients:
                weight = G @ ca.diag(K) / dt
                outputs += [ca.densify(-weight @ g), *(ca.sparsify(weight @ h) for h in landed)]
            return ca.Function("weight", [*gradients, *landed, g, dt], outputs)

        key = tuple(tuple(p.compress()) for p in patterns)  # departure and arrival may differ
        return self._once(("weight", id(group.rows), mass, reach, key), build)


def _rows(J: list[Any]) -> vec.Matrix:
    return tuple(J[0:3]), tuple(J[3:6]), tuple(J[6:9])
