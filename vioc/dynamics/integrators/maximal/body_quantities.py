"""Named quantities of maps in maximal coordinates, as CasADi expressions."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import casadi as ca

from vioc.dynamics.algebra import vectors as vec
from vioc.dynamics.contact.touch import unit_of
from vioc.dynamics.integrators.maximal.body_equations import Assembly
from vioc.dynamics.integrators.maximal.body_space import STATE, TWIST, unpack_pose
from vioc.dynamics.integrators.maximal.touches import Touch
from vioc.dynamics.velocities import quantity_unit, velocity, velocity_names
from vioc.maps.orientation import AXES, rotation_vector
from vioc.maps.quantities import QuantityTable

if TYPE_CHECKING:
    from vioc.dynamics.integrators.maximal.maximal_vi import MaximalVI

ENERGIES = ("kinetic", "potential", "energy")
TOTALS = ("momentum", "angular")
TOUCHES = ("gap", "force", "friction", "slip", "grip")


class BodyQuantities:
    """Named quantities of a map in maximal coordinates, such as energies and frame positions.

    Parameters
    ----------
    f : MaximalVI
    """

    def __init__(self, f: MaximalVI):
        self.f, self.terms = f, f.graph.terms
        self.touches = {t.name: t for t in f.graph.touches}
        self.table = QuantityTable(self._find, self._names, self._unit, self._rotation)

    def _find(self, name: str) -> Any:
        f, terms = self.f, self.terms
        kind, _, rest = name.partition(".")
        if name in f.system.variables:
            return self._at(terms.q(name))
        if kind == "v" and rest in f.system.variables:
            return self._at(terms.v(rest))
        if kind == "h" and rest in f.graph.names:
            return self._violations[f.graph.names.index(rest)]
        if kind == "force" and rest in f.graph.names:
            return -f.symbols.multipliers[f.graph.names.index(rest)] / f.symbols.dt
        if kind in TOUCHES and rest.partition(":")[0] in self.touches:
            return self._touch(kind, *rest.partition(":")[::2])
        if name == "potential":
            return self._at(terms.potential)
        if name in ENERGIES:
            nu = self.velocities
            kinetic = 0.5 * ca.dot(nu, self.still.momenta(nu))
            return kinetic if name == "kinetic" else kinetic + self._at(terms.potential)
        moving = velocity(name, f.system.frame_names)
        if moving is not None:
            return self._at(moving.of(terms))
        owner, _, axis = name.rpartition(":")
        if axis in ("x", "y", "z") and owner in TOTALS:
            return self._totals[3 * TOTALS.index(owner) + "xyz".index(axis)]
        if axis in ("x", "y", "z") and owner in f.system.frame_names:
            return self._at(terms.position(owner)["xyz".index(axis)])
        R = self._rotation(owner) if axis in AXES else None
        return None if R is None else rotation_vector(R)[AXES.index(axis)]

    def _rotation(self, frame: str) -> ca.SX | None:
        system = self.f.system
        if frame not in system.frame_names:
            return None
        return self._at(vec.matrix(self.terms.node_pose(system.frame_index(frame))[0]))

    def _names(self) -> list[str]:
        f = self.f
        return [
            *f.system.variables,
            *(f"v.{n}" for n in f.system.variables),
            *ENERGIES,
            *(f"{owner}:{axis}" for owner in (*TOTALS, *f.system.frame_names) for axis in "xyz"),
            *(f"{frame}:{axis}" for frame in f.system.frame_names for axis in AXES),
            *velocity_names(f.system.frame_names),
            *(f"{kind}.{n}" for kind in ("h", "force") for n in f.graph.names),
            *(f"{k}.{n}" for n, t in self.touches.items() for k in t.kinds),
            *(f"force.{n}:{a}" for n, t in self.touches.items() if self._directed(t) for a in "xyz"),
        ]

    def _directed(self, touch: Touch) -> bool:
        """Return whether the state alone determines the direction of a contact's force."""
        return not touch.placed and (touch.cone.gap or not touch.single)

    def _unit(self, name: str) -> str:
        kind, dot, rest = name.partition(".")
        if name.startswith("momentum:"):
            return "kg m/s"
        if name.startswith("angular:"):
            return "kg m^2/s"
        if kind in TOUCHES and rest.partition(":")[0] in self.touches:
            return unit_of(self.f.system, kind, rest.partition(":")[0], self.f.states.periods)
        if dot and rest in self.f.bodies:
            if name in self.f.state_names:
                return {"x": "m", "y": "m", "z": "m", "v": "m/s", "w": "rad/s"}.get(kind[0], "")
            if name in self.f.space.error_names:
                return {"dv": "m/s", "dw": "rad/s", "ph": "rad"}.get(kind[:2], "m")
        return quantity_unit(self.f.system, name, self.f.states.periods.keys())

    # -- expressions ------------------------------------------------------------------------------------

    def _touch(self, kind: str, name: str, axis: str) -> Any:
        """Return the expression of a quantity of a contact, or None if the contact does not have it.
        The quantity is given by its kind, the contact's name and, for a force, an axis.
        """
        f, touch = self.f, self.touches[name]
        index = f.multiplier_names.index(touch.multipliers[0])
        impulse = f.symbols.multipliers[index : index + touch.rows]
        if kind not in touch.kinds if not axis else kind != "force" or not self._directed(touch):
            return None
        if kind == "gap":
            return self.gap(touch)
        if kind == "force" and not axis:
            return impulse[0] / f.symbols.dt
        if kind == "force" and axis in ("x", "y", "z"):
            J = touch.geometry.held.call(self._placed(touch))[len(touch.bodies) - 1]
            return ca.dot(J[:, "xyz".index(axis)], impulse) / f.symbols.dt
        if axis:
            return None
        if kind in ("friction", "grip"):
            size = ca.sqrt(ca.sumsqr(impulse[touch.lead :])) / f.symbols.dt
            most = self.friction(touch) * (impulse[0] / f.symbols.dt if touch.lead else 1)
            return size if kind == "friction" else most - size
        parts = ca.vertsplit(self.velocities, TWIST)
        slopes = touch.geometry.held.call(self._placed(touch))
        each = zip(touch.bodies, slopes, strict=True)
        slip = sum((J[touch.lead :, :] @ parts[i] for i, J in each), ca.SX(touch.rows - touch.lead, 1))
        return ca.sqrt(ca.sumsqr(slip))

    def _placed(self, touch: Touch) -> list[Any]:
        return [*(self.poses[i] for i in touch.bodies), ca.vertcat(ca.SX(0, 1), *touch.data)]

    @cached_property
    def still(self) -> Assembly:
        """Equations by which the velocities of a state are projected onto the constraints."""
        return Assembly(self.f.graph, None, None, 1.0, self.f.symbols.parameters)

    def friction(self, touch: Touch) -> ca.SX:
        """Return the friction coefficient of a contact.
        For dry friction, return the largest friction force; for a contact without friction, return 1.
        """
        return self._placed(touch)[-1][-1] if touch.cone.friction else ca.SX(1)

    def gap(self, touch: Touch) -> ca.SX:
        """Return the gap of a contact as an expression of the state."""
        return touch.geometry.gap(*self._placed(touch))

    @cached_property
    def poses(self) -> list[Any]:
        """Poses (12,) of all bodies, positions and rotation matrices, as expressions of the state."""
        return self.still.poses(ca.vertsplit(self.f.symbols.x[: STATE * self.f.graph.n], STATE))

    @cached_property
    def velocities(self) -> ca.SX:
        """Velocities (6 n,) of n bodies in a state, projected onto the constraints.
        The projection removes components that violate the constraints, as a step does.
        """
        constants = self.still.held(self.poses, arrival=True)
        return self.still.project(constants, self.still.momenta(self.f.symbols.x[STATE * self.f.graph.n :]))[
            0
        ]

    def _at(self, expression: Any) -> ca.SX:
        g = self.terms
        moves = ca.depends_on(expression, g.twists)
        twists = self.velocities if moves else ca.SX(g.twists.numel(), 1)
        f = ca.Function("at", [g.poses, g.twists, g.parameters], [expression])
        return f(ca.vertcat(*self.poses), twists, self.f.symbols.parameters)

    @cached_property
    def _totals(self) -> ca.SX:
        linear, angular = ca.SX(3, 1), ca.SX(3, 1)
        velocities = self.f.symbols.x[STATE * self.f.graph.n :]
        momenta = self.still.momenta(velocities)
        for pose, p in zip(self.poses, ca.vertsplit(momenta, TWIST), strict=True):
            x, R = unpack_pose(pose)
            linear = linear + p[:3]
            momentum = tuple(p[3 + i] for i in range(3))
            angular = angular + ca.cross(vec.column(x), p[:3]) + vec.column(vec.apply(R, momentum))
        return ca.vertcat(linear, angular)

    @cached_property
    def _violations(self) -> ca.SX:
        poses, theta = self.poses, self.f.symbols.parameters
        return ca.vertcat(
            *(g.rows.function.call([*(poses[i] for i in g.bodies), theta])[0] for g in self.f.graph.groups)
        )

    @cached_property
    def variations(self) -> ca.Function:
        """CasADi function that computes the Jacobian (m, 6 n) of m constraints.
        Its arguments are state and parameters. The Jacobian has six columns for each of n bodies, which are
        derivatives with respect to the displacement and the rotation vector (dx, phi) of the body.
        """
        f, theta = self.f, self.f.symbols.parameters
        G, row = ca.SX(len(f.graph.names), TWIST * f.graph.n), 0
        for group, gradients in zip(f.graph.groups, self.still.held(self.poses).G, strict=True):
            for i, columns in zip(group.bodies, gradients, strict=True):
                G[row : row + len(group.names), TWIST * i : TWIST * i + TWIST] = columns.T
            row += len(group.names)
        return ca.Function("variations", [f.symbols.x, theta], [ca.densify(G)])

    @cached_property
    def frame_positions(self) -> ca.Function:
        """CasADi function that computes the world positions (3 n,) of n frames.
        These are all frames of the mechanism. The arguments are state and parameters.
        """
        f, g, model = self.f, self.terms, self.terms.model
        places = []
        for i in range(len(f.system.nodes)):
            if i in model.inside:
                x, R = g.body_pose(model.inside[i])
                places.append(vec.add(x, vec.apply(R, model.bodies[model.inside[i]].joint.at_b)))
            else:
                places.append(g.node_pose(i)[1])
        flat = self._at(ca.vertcat(*(ca.SX(c) for p in places for c in p)))
        return ca.Function("frames", [f.symbols.x, f.symbols.parameters], [ca.densify(flat)])
