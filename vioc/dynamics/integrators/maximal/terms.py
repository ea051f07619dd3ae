"""Potentials, forces and constraints as expressions of the poses of bodies.

Components are written on `BodyGraph` for `MaximalVI`, on `vioc.dynamics.kinematics.FrameGraph` for the other
integrators. A pose has twelve entries, x and R by rows; derivatives by (dx, phi) are those of R (1 + phi^).
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import casadi as ca

from vioc.dynamics.algebra import vectors as vec
from vioc.dynamics.algebra.vectors import Matrix, Vector
from vioc.dynamics.description.system import System
from vioc.dynamics.integrators.maximal.body_space import POSE, TWIST, pose_rates, unpack_pose, unpack_twist
from vioc.dynamics.integrators.maximal.model import BodyModel, NodePlace
from vioc.dynamics.kinematics import TermGraph
from vioc.dynamics.terms.forces import RateForce
from vioc.errors import ModelError


class BodyGraph(TermGraph):
    """Kinematics of rigid bodies, from which expressions of forces and constraints are built.
    A component that a user writes gets joint variables and rates by name from the methods `q` and `v`.

    Attributes
    ----------
    model : BodyModel
    q_vector, v_vector : casadi.SX
        `poses` and `twists`, under the names that components use for their arguments.
    poses, twists : casadi.SX
        (x, R by rows) and (v, w) of every body: (12 n,), (6 n,).
    """

    def __init__(self, system: System):
        super().__init__(system)
        self.model = BodyModel(system, self.parameters)
        n = len(self.model.bodies)
        self.poses, self.twists = ca.SX.sym("Z", POSE * n), ca.SX.sym("V", TWIST * n)
        self.q_vector, self.v_vector = self.poses, self.twists

    # -- interface for components --------------------------------------------------------------------

    def q(self, name: str) -> ca.SX:
        self.system.variable_index(name)
        return self._coordinates[name]

    def v(self, name: str) -> ca.SX:
        return ca.jtimes(self.q(name), self.poses, self.pose_rates)

    def node_velocity(self, i: int) -> tuple[Vector, Vector]:
        if i < 0 or (place := self.place(i)).body == -1:
            return vec.ZERO, vec.ZERO
        v, w = unpack_twist(self.twists, place.body)
        R = self.node_pose(i)[0]
        _, Rb = unpack_pose(self.poses, place.body)
        linear = vec.add(v, vec.apply(Rb, vec.cross(w, place.position)))
        return vec.apply(vec.transpose(R), linear), vec.apply(vec.transpose(place.rotation), w)

    def node_pose(self, i: int) -> tuple[Matrix, Vector]:
        if i < 0:
            return vec.IDENTITY, vec.ZERO
        place = self.place(i)
        if place.body == -1:
            return place.rotation, place.position
        x, R = unpack_pose(self.poses, place.body)
        return vec.matmul(R, place.rotation), vec.add(x, vec.apply(R, place.position))

    def place(self, i: int) -> NodePlace:
        """Return the body of a frame and the frame's pose in this body.
        Raise `ModelError` for a frame inside a joint, which belongs to no body.
        """
        place = self.model.places[i]
        if place is None:
            name = self.system.nodes[i].frame.label()
            raise ModelError(
                f"{self.system.name}: the frame {name} lies inside a joint and has no mass, so it has no "
                "pose in maximal coordinates; give it a mass, or refer to a body's frame"
            )
        return place

    def body_pose(self, i: int) -> tuple[Vector, Matrix]:
        return unpack_pose(self.poses, i) if i >= 0 else (vec.ZERO, vec.IDENTITY)

    @cached_property
    def _coordinates(self) -> dict[str, Any]:
        coordinates: dict[str, Any] = {}
        for i, body in enumerate(self.model.bodies):
            a, b = self.body_pose(body.parent), self.body_pose(i)
            values = [*body.joint.travels(a, b), *body.joint.angles(a, b)]
            coordinates.update(zip(body.variables, values, strict=True))
        return coordinates

    def bodies_of(self, value: Any) -> tuple[int, ...]:
        """Return the indices of the bodies on whose poses an expression depends."""
        which = ca.which_depends(value, self.poses, 1, False)
        return tuple(sorted({i // POSE for i, used in enumerate(which) if used}))

    def own_poses(self, bodies: tuple[int, ...]) -> list[Any]:
        """Return the symbols (12,) of the poses of the bodies with these indices."""
        return [self.poses[POSE * i : POSE * i + POSE] for i in bodies]

    # -- derivatives -----------------------------------------------------------------------------------

    @cached_property
    def pose_rates(self) -> ca.SX:
        """Time derivatives (v, R w^) of the poses of all bodies (12 n,).
        The velocity v and the angular velocity w are those of a body; w^ is the matrix of the cross product
        with w.
        """
        bodies = range(len(self.model.bodies))
        return ca.vertcat(*(e for i in bodies for e in pose_rates(self.poses, self.twists, i)))

    @cached_property
    def variations(self) -> ca.SX:
        """Derivatives (12 n, 6 n) of the poses of n bodies.
        They are derivatives with respect to the displacements and rotation vectors of the bodies.
        """
        return ca.jacobian(self.pose_rates, self.twists)

    def varied(self, value: ca.SX) -> ca.SX:
        """Return the derivatives (m, 6 n) of expressions `value` (m,) of the poses.
        They are derivatives with respect to the displacements and rotation vectors of the bodies.
        """
        return ca.mtimes(ca.jacobian(value, self.poses), self.variations)

    def slope(self, value: ca.SX) -> ca.SX:
        return self.varied(value).T

    # -- all terms of the system -------------------------------------------------------------------------

    @cached_property
    def potential(self) -> ca.SX:
        return sum((p.energy(self) for p in self.system.potentials), ca.SX(0))

    @cached_property
    def wrenches(self) -> tuple[ca.SX, ca.SX]:
        """Two sums of the wrenches (6 n,) on n bodies.
        The first is the sum of the wrenches that do not depend on velocities, which include those of
        potentials. The second is the sum of the wrenches that depend on velocities.
        """
        constant, moving = -self.varied(self.potential).T, ca.SX(TWIST * len(self.model.bodies), 1)
        for force in self.system.forces:
            wrench = self._wrench(force)
            if ca.depends_on(wrench, self.twists):
                moving = moving + wrench
            else:
                constant = constant + wrench
        return constant, moving

    def _wrench(self, force: Any) -> ca.SX:
        if isinstance(force, RateForce):
            return force.by_rates(self)
        result = ca.SX(self.twists.numel(), 1)
        for name, value in force.generalized(self).items():
            result = result + self.slope(self.q(name)) * value
        return result

    @cached_property
    def loops(self) -> list[tuple[tuple[int, ...], list[int]]]:
        """Groups of loop constraints that act on the same bodies.
        Each group is a pair: the indices of its bodies, and the indices of its constraints.
        """
        groups: dict[tuple[int, ...], list[int]] = {}
        for index, h in enumerate(self.constraint_values):
            bodies = self.bodies_of(h)
            if not bodies:
                name = self.system.constraint_names[index]
                raise ModelError(f"{self.system.name}: the constraint {name} acts on no body")
            groups.setdefault(bodies, []).append(index)
        return list(groups.items())

    @cached_property
    def constraint_values(self) -> list[ca.SX]:
        return [c.value(self) for c in self.system.constraints]
