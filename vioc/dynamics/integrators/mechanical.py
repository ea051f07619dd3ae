"""Base class of all integrators of mechanisms in generalized coordinates.

It defines the layout of state and input, names, units, velocities, energies and frame positions.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar, TypeVar

import casadi as ca
import numpy as np

from vioc.checks import as_names, as_positive, real
from vioc.compile.backend import Backend
from vioc.compile.evaluate import Evaluator
from vioc.dynamics.algebra import vectors as vec
from vioc.dynamics.charts import Chart, charts, warn_near_singularity
from vioc.dynamics.consistency import (
    ConstraintReport,
    check_constraints,
    check_holonomic,
    consistent_configuration,
    may_be_dependent,
    warn_violated,
)
from vioc.dynamics.description.component import VelocityConstraint
from vioc.dynamics.description.system import System, as_system
from vioc.dynamics.integrators.conditions import StepConditions, conditions
from vioc.dynamics.integrators.divergence import closed, first_diverged, grows
from vioc.dynamics.integrators.following import inverse_dynamics
from vioc.dynamics.integrators.newton import dependent_constraints
from vioc.dynamics.integrators.predictor import bending_variables
from vioc.dynamics.integrators.variational import VariationalRule
from vioc.dynamics.kinematics import as_configuration
from vioc.dynamics.lagrangian import Lagrangian
from vioc.dynamics.masses import check_mass_matrix, fault_at
from vioc.dynamics.redundancy import least_norm
from vioc.dynamics.regressor import Regressor, body_numbers
from vioc.dynamics.terms.constraints import DistanceConstraint, StringConstraint
from vioc.dynamics.terms.nonholonomic import NonholonomicConstraint
from vioc.dynamics.terms.user import UserConstraint, UserForce, UserPotential
from vioc.dynamics.velocities import quantity_unit, velocity, velocity_names
from vioc.errors import ModelError
from vioc.maps.derivatives import Steps
from vioc.maps.kernel import KernelMap
from vioc.maps.linear_solutions import Equations, Implicit
from vioc.maps.mechanism import Mechanism, held_inputs
from vioc.maps.named import Symbols
from vioc.maps.orientation import AXES, rotation_vector
from vioc.maps.quantities import Quantities, QuantityTable
from vioc.maps.twins import shared
from vioc.runs.given import input_of, trajectory_of
from vioc.runs.trajectory import Trajectory, warn_slack

Map = TypeVar("Map", bound="MechanicalMap")
USER = UserPotential, UserForce, UserConstraint, NonholonomicConstraint


class MechanicalMap(KernelMap):
    """Integrator of a mechanism, as a one-step map with state x = [q_d, q_k, p, v_k] and input [u, rho].
    The state has dynamic and prescribed (kinematic) configurations, momenta and prescribed velocities. The
    input has forces u, and the next prescribed configurations rho.

    Integrators whose states are velocities have v_d in the place of p; `conjugate` says so.

    Attributes
    ----------
    conjugate : str
        Prefix of the names of the state's third part: ``"p"`` for momenta, ``"v"`` for velocities.
    choices : tuple of str
        Names of the options that this integrator has in addition to those of all integrators, both as
        arguments and as attributes.
    system : System
    lagrangian : Lagrangian
    rule : VariationalRule or None
        Equations of a step, if it is by a variational rule.
    nq, nd, nk, nm : int
        Numbers of configurations, of dynamic and kinematic ones among them, and of constraints.

    Notes
    -----
    Quantities (`quantity`) in addition to those of all maps: ``v.NAME`` velocities by the Legendre transform,
    ``kinetic``, ``potential``, ``energy``, ``FRAME:x`` (y, z) positions of named frames, ``FRAME:rx`` (ry,
    rz) their rotation vectors, ``v.FRAME:x``, ``w.FRAME:x`` their velocities (`vioc.dynamics.velocities`),
    ``h.NAME`` values of holonomic constraints, ``force.NAME`` the constraint force -lambda/dt with the sign
    of [T] (36a), where dt is the time over which the impulse of a step acts (the step length, if all are
    equal), and ``tension.NAME`` the pull of a string or rod, N, at the start of each step. Both are half as
    large at the start of a run from a momentum M v, which already contains half that impulse.
    """

    conjugate: str = "p"
    choices: ClassVar[tuple[str, ...]] = ()
    redundant: tuple[str, ...] = ()
    rule: VariationalRule | None = None
    _impulse_behind: float = 0.0

    def __init__(
        self,
        system: System,
        dt: float,
        wrap: Sequence[str],
        tolerance: float,
        backend: str = "virtual",
        *,
        takes: Collection[str] = (),  # supported terms: ``"contacts"`` and joint limits, ``"slips"``
    ):
        as_system(system)
        if system.inequalities and "contacts" not in takes:
            raise ModelError(
                f"{system.name}: {type(self).__name__} has no contacts, limits of joints or dry friction, "
                f"got {system.inequality_names[0]}; use ContactVI or MaximalVI, or leave them out"
            )
        if "slips" not in takes:  # slips are constraints on velocities
            check_holonomic(system, type(self).__name__)
        self.system = system
        items = zip(system.constraint_names, system.constraints, strict=True)
        velocities = [n for n, c in items if isinstance(c, VelocityConstraint)]
        self._velocity_constraints = tuple(n for n in velocities if n not in self.redundant)
        self.dt = dt
        self.dt = float(self.lengths(None, 1)[0])
        self.tolerance = as_positive(tolerance, "tolerance")
        self.lagrangian = Lagrangian(system, self.redundant)
        self.nq, self.nd = self.lagrangian.nq, self.lagrangian.nd
        self.nk = self.nq - self.nd
        self.nm = len(self.lagrangian.constraint_names)
        if self.nd == 0:
            raise ModelError(f"{system.name}: every variable is kinematic, there are no dynamics")
        self.state_names = (
            *system.variables,
            *(f"{self.conjugate}.{n}" for n in system.dynamic),
            *(f"v.{n}" for n in system.kinematic),
        )
        self.input_names = (*system.inputs, *(f"rho.{n}" for n in system.kinematic))
        self.multiplier_names = self.lagrangian.constraint_names
        self.nx = self.ndx = len(self.state_names)
        self.nu = len(self.input_names)
        self.parameters = dict(system.parameters)
        table = QuantityTable(self._find, self._names, self._unit, self._rotation)
        self.quantities = Quantities(self, table)
        self._as_mechanism = self._mechanical
        self.wrap = as_names(wrap, "wrap")
        self._check_wrap()
        self.symbols = Symbols.sized(self.nx, self.nu, self.nm, len(self.parameters))
        self._identified_by = (("model", "system"), *((name, name) for name in self.choices))
        self.backend = Backend(backend, generated(self))
        check_mass_matrix(system)
        _ = self.lagrangian.h, self.lagrangian.slips  # reports unsuitable constraints now

    def __reduce__(self):
        return rebuilt, (type(self), self.system, self.dt, self._options, self.parameters)

    @property
    def _options(self) -> dict[str, Any]:
        options = {name: getattr(self, name) for name in self.choices}
        return {**options, "wrap": self.wrap, "tolerance": self.tolerance, "backend": self.backend.name}

    def with_system(self: Map, system: System) -> Map:
        """Return an integrator with the same options and parameters for another system."""
        return rebuilt(type(self), system, self.dt, self._options, self.parameters)

    def _review(self, trajectory: Trajectory) -> None:
        warn_violated(self.whole, trajectory)
        warn_near_singularity(trajectory, self._charts)
        warn_slack(trajectory)

    @shared
    def _charts(self) -> tuple[Chart, ...]:
        return charts(self.system)

    def consistent_configuration(self, guess: Any, fixed: Sequence[str] = ()) -> ConstraintReport:
        """Find a configuration near a guess that satisfies the constraints.
        The method calls `vioc.consistent_configuration` for the system, with the parameter values of the map.
        """
        return consistent_configuration(self.whole, guess, fixed=fixed, **self.parameters)

    def _mechanical(self) -> Mechanism:
        return Mechanism(
            coordinates=self.system.dynamic,
            additive=np.ones(len(self.multiplier_names), bool),
            inputs_at=self._inputs_at,
            moved=self._moved,
            strings=tuple(n for n, c in self._distances.items() if isinstance(c, StringConstraint)),
            force_rounding=self._force_rounding,
            velocity_constraints=self._velocity_constraints,
            impulse_behind=self._impulse_behind,
            configurations=() if self.rule is None else self.system.variables,
            behind=None if self.rule is None else self._behind,
            recovery=self._recovery,
            inertias=lambda: body_numbers(self.system, self.symbols.parameters),
            regressor=lambda linear=(): Regressor(self.lagrangian, linear, **self.parameters),
            implicit=self._implicit,
            diverged=self._diverged,
            review=self._review,
        )

    def _moved(self, x: np.ndarray, displacement: np.ndarray, fixed: Sequence[str] = ()) -> np.ndarray:
        result = x.copy()
        result[: self.nd] += displacement
        if self.nm:
            result[: self.nq] = self.consistent_configuration(result[: self.nq], fixed=fixed).q
        return result

    def _check_starts(self, X: np.ndarray, k: int) -> None:
        """Raise `StepError` if constraints are dependent at the start of a step.
        The result of a step from such a configuration would be arbitrary.
        """
        if not self.nm:
            return
        J = self._directions(X[:, : self.nq], self.theta)[0]
        names = self.multiplier_names[: J.shape[1]]  # without names of contacts
        for i in map(int, np.flatnonzero(may_be_dependent(J))):
            where = f"step {k + i}: Dh(q_k)"
            error = dependent_constraints(J[i], names, where, k + i, 0.0)
            if error is not None:
                raise error

    @property
    def _checks(self) -> dict[str, Any]:
        return {"check": self._check_starts, "fault_of": self._fault_of if self.system.negative else None}

    def _fault_of(self, x: np.ndarray, nearly: bool = False) -> str:
        fault = fault_at(self.system, x[: self.nq], self.parameters, nearly)
        return fault and f"{self.system.name}: {fault}"

    def _consistent(self, q: Any, v: Any, named: Mapping[str, float]) -> tuple[np.ndarray, np.ndarray]:
        """Return the configuration and the velocity (nq,) of an initial state.
        They are checked against the constraints.
        """
        q = as_configuration(self.system, q, "configuration", named)
        v = as_configuration(self.system, v, "velocity")
        check_constraints(self.whole, q, v, self.parameters, self.dt)
        return q, v

    def initial_state(self, q: Any = None, v: Any = None, u: Any = None, **named: float) -> np.ndarray:
        """Return the state with a given configuration and velocity; its momenta are p = dL/dv.

        Parameters
        ----------
        q, v : array (nq,) or dict by name
            Missing names are zero; q may be the report of `consistent_configuration`.
        u : (nu,), optional
            Input at the start; it matters only with left forcing, where a force acts at the start of a step.
        **named : float
            Configurations by keyword, instead of or in addition to those in the dict `q`.

        Raises
        ------
        ConstraintError
            If h(q) or Dh(q) v is not zero; see `consistent_configuration`, `project_velocity`.
        """
        q, v = self._consistent(q, v, named)
        return np.concatenate([q, self._start_momentum(q, v, u), v[self.nd :]])

    def _start_momentum(self, q: np.ndarray, v: np.ndarray, u: Any) -> np.ndarray:
        if self.conjugate == "v":
            return v[: self.nd]
        p = self._legendre(q, v, self.theta)[0][:, 0]
        if self.rule is not None and self.rule.lacking:
            forces, args = input_of(self, u)[: len(self.system.inputs)], (np.zeros(1), self.theta)
            p = (
                p
                - self.rule.lacking * self.dt * self._generalized_force(q, v, forces, *args)[0][: self.nd, 0]
            )
        return p

    @property
    def residual(self) -> ca.Function | None:
        return None if self.rule is None else self.rule.residual

    def _behind(self, q0: Any, q1: Any, u: Any, k: int) -> np.ndarray:
        """Return the state at the end of a step from configuration q0 to q1.
        Its momentum is p = D2 L_d(q0, q1) + F+ ([T] V-A): the derivative of the discrete Lagrangian L_d with
        respect to q1, plus the impulse F+ of the forces at the end of the step. The index of the step is k.
        """
        q0 = as_configuration(self.system, q0, "q0")
        q1 = as_configuration(self.system, q1, "q1")
        forces, h = input_of(self, u)[: len(self.system.inputs)], self.dt
        p = self._variational().momentum(q0, q1, forces, np.array([k * h]), np.array([h]), self.theta)[0][
            :, 0
        ]
        return np.concatenate([q1, p, (q1 - q0)[self.nd :] / h])

    def _recovery(self) -> ca.Function | None:
        """Return a CasADi function that completes the state at the end of a step.
        It computes the momenta and the prescribed velocities from the two configurations of the step. The
        result is None if the integrator has no variational rule.
        """
        if self.rule is None:
            return None
        q0, q1, u, t, dt = (ca.SX.sym("a", n) for n in (self.nq, self.nq, self.nu, 1, 1))
        theta = self.symbols.parameters
        p = self.rule.momentum_function(q0, q1, vec.part(u, 0, len(self.system.inputs)), t, dt, theta)
        outputs = ca.densify(ca.vertcat(p, vec.part(q1 - q0, self.nd) / dt))
        return ca.Function("recovery", [q0, q1, u, t, dt, theta], [outputs])

    def inverse_dynamics(self, q: Any, x0: Any = None, k: int = 0) -> tuple[np.ndarray, np.ndarray]:
        """Return an initial state and inputs whose steps pass exactly through given configurations.
        The results are x0 and U (N, nu) for configurations q (N+1, nq).

        Parameters
        ----------
        q : (N+1, nq)
            Samples in the order of ``system.variables``; each must fulfil the constraints.
        x0 : (nx,), optional
            State with the momentum of the start. By default the momentum follows from the motion and
            minimizes the changes of the inputs: where half of each force acts at either end of a step, a
            momentum that does not suit the motion makes the inputs alternate.
        k : int
            Index of the first step.

        Raises
        ------
        ModelError
            If no input makes that motion (sample, variable and missing force are named), or forces are not
            linear in the inputs.
        """
        return inverse_dynamics(self, self._variational(), q, x0, k)

    def conditions(self, trajectory: Trajectory) -> StepConditions:
        """Return condition numbers of the equations of all steps of a trajectory.
        They are those of the Newton matrix M_k+1, the derivative of the momentum balance with respect to
        q_k+1, and of the matrix Dh M^-1 Dh' with the constraint Jacobian Dh ([S] VII). The condition number
        of a singular matrix is infinite.

        A step warns of a singular M_k+1 (`ChartWarning`); these numbers show how close a motion comes to it.
        """
        return conditions(self._variational(), Steps.along(trajectory_of(trajectory)), self.theta)

    def _variational(self) -> VariationalRule:
        if self.rule is None:
            raise TypeError(f"steps of {type(self).__name__} are by no variational rule of one stage")
        return self.rule

    @shared
    def _legendre(self) -> Evaluator:
        lag, g = self.lagrangian, self.lagrangian.graph
        args = [g.q_vector, g.v_vector, g.parameters]
        return Evaluator(ca.Function("legendre", args, [vec.part(lag.L_v, 0, self.nd)]))

    @shared
    def poles(self) -> list[int]:
        """Indices of the first of the three Euler angles of each free rotation.
        They are indices in the vector of the dynamic variables.
        """
        return [self.system.variables.index(chart.variables[0]) for chart in self._charts]

    @shared
    def turning(self) -> list[bool]:
        """Mask of the dynamic variables that are angles with nonlinear terms.
        Momenta, forces or constraints depend nonlinearly on these angles.
        """
        bends = bending_variables(self.lagrangian)
        return [self.unit(n) == "rad" and bool(b) for n, b in zip(self.system.dynamic, bends, strict=True)]

    def rest_input(self, x: np.ndarray) -> np.ndarray:
        return np.concatenate([np.zeros(len(self.system.inputs)), x[self.nd : self.nq]])

    def _inputs_at(self, ends: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        by_x, by_u = held_inputs(self, ends)
        columns, row = np.arange(self.nd, self.nq), np.arange(self.nu - self.nk, self.nu)
        by_x[:, row, columns], by_u[:, row, row] = 1 - ends[:, None], ends[:, None]  # linear in time
        return by_x, by_u

    def _find(self, name: str) -> ca.SX | None:
        kind, _, rest = name.partition(".")
        system = self.system
        if kind == "v" and rest in system.dynamic:
            return self._velocity_expression[system.dynamic.index(rest)]
        if kind == "p" and rest in system.dynamic and self.conjugate == "v":
            return self._at_rates(self.lagrangian.L_v)[system.dynamic.index(rest)]
        if kind == "h" and rest in self._holonomic:
            return self._all_constraints(*self._q_and_parameters)[0][system.constraint_names.index(rest)]
        if kind == "force" and rest in system.constraint_names:
            return -self._impulse_of(rest) / self.symbols.dt
        if kind == "tension" and rest in self._distances:
            return self._tension(rest)
        if name in ("kinetic", "potential", "energy"):
            return self._energies[("kinetic", "potential", "energy").index(name)]
        moving = velocity(name, system.frame_names)
        if moving is not None:
            return self._at_rates(moving.of(self.lagrangian.graph))
        frame, _, axis = name.rpartition(":")
        if frame in system.frame_names and axis in ("x", "y", "z"):
            q, theta = self._q_and_parameters
            g = self.lagrangian.graph
            position = ca.Function("position", [g.q_vector, g.parameters], [g.position(frame)])
            return position(q, theta)["xyz".index(axis)]
        R = self._rotation(frame) if axis in AXES else None
        return None if R is None else rotation_vector(R)[AXES.index(axis)]

    def _rotation(self, frame: str) -> ca.SX | None:
        if frame not in self.system.frame_names:
            return None
        g = self.lagrangian.graph
        R = vec.matrix(g.node_pose(self.system.frame_index(frame))[0])
        return ca.Function("rotation", [g.q_vector, g.parameters], [R])(*self._q_and_parameters)

    def _names(self) -> list[str]:
        system = self.system
        return [
            *(f"{kind}.{n}" for kind in ("p" * (self.conjugate == "v"), "v") if kind for n in system.dynamic),
            "kinetic",
            "potential",
            "energy",
            *(f"{frame}:{axis}" for frame in system.frame_names for axis in ("x", "y", "z", *AXES)),
            *velocity_names(system.frame_names),
            *(f"h.{n}" for n in self._holonomic),
            *(f"force.{n}" for n in system.constraint_names),
            *(f"tension.{n}" for n in self._distances),
        ]

    def _unit(self, name: str) -> str:
        return quantity_unit(self.system, name, self._angles)

    @shared
    def _angles(self) -> frozenset[str]:
        return self.system.angles

    @shared
    def _distances(self) -> dict[str, DistanceConstraint]:
        """Strings and rods of the mechanism, which are distance constraints, by name."""
        items = zip(self.system.constraint_names, self.system.constraints, strict=True)
        return {name: c for name, c in items if isinstance(c, DistanceConstraint)}

    @property
    def _holonomic(self) -> list[str]:
        items = zip(self.system.constraint_names, self.system.constraints, strict=True)
        return [n for n, c in items if not isinstance(c, VelocityConstraint)]

    def _force_rounding(self, dt: float) -> float:
        """Return the error of forces that rounding of configurations can cause.
        A step computes velocities (q1 - q0)/dt. Rounding errors of the configurations therefore cause errors
        of forces of the order M eps/dt^2, with the mass M of the mechanism, the relative rounding error eps
        and the step length dt.
        """
        total = sum(float(node.frame.mass.mass) for node in self.system.nodes if node.frame.mass)
        return 100 * np.finfo(float).eps * total / dt**2

    def _tension(self, name: str) -> ca.SX:
        g, s = self.lagrangian.graph, self.symbols
        impulse, dt = ca.SX.sym("impulse"), ca.SX.sym("dt")
        tension = self._distances[name].tension(g, impulse, dt)
        f = ca.Function("tension", [g.q_vector, g.parameters, impulse, dt], [tension])
        return f(*self._q_and_parameters, self._impulse_of(name), s.dt)

    @shared
    def constraint(self) -> ca.Function:
        """CasADi function that computes constraint values h and their Jacobian Dh.
        Its arguments are (q, parameters). A velocity constraint A(q) v = 0 has the value 0 in h, and A(q) as
        its row of Dh.
        """
        lag, g = self.lagrangian, self.lagrangian.graph
        return ca.Function("h", [g.q_vector, g.parameters], [lag.h, lag.Dh])

    @property
    def whole(self) -> Lagrangian:
        """Lagrangian of the system with all its constraints, including redundant ones."""
        return self._whole if self.redundant else self.lagrangian

    @shared
    def _whole(self) -> Lagrangian:
        return Lagrangian(self.system)

    @shared
    def _all_constraints(self) -> ca.Function:
        """CasADi function that computes values and gradients of all constraints.
        Redundant constraints are included. The results are the values h, the Jacobian Dh, scales of the
        rounding errors of h and Dh, and the Jacobian with respect to the dynamic variables, in which rows as
        small as rounding errors are set to zero.
        """
        lag, g = self.whole, self.whole.graph
        outputs = [lag.h, lag.Dh, lag.sizes, lag.directions]
        return ca.Function("h", [g.q_vector, g.parameters], outputs)

    def _impulse_of(self, name: str) -> ca.SX:
        """Return an expression of the impulse of one constraint over a step.
        If some constraints are redundant, the impulses of all constraints are not unique, and those of least
        norm are chosen.
        """
        names = list(self.lagrangian.constraint_names)
        if not self.redundant:
            return self.symbols.multipliers[names.index(name)]
        return self._shared_impulses[[*names, *self.redundant].index(name)]

    @shared
    def _shared_impulses(self) -> ca.SX:
        """Impulses of all constraints of the system over a step.
        Redundant constraints come last. The impulses are those of least norm.
        """
        names, Dh = self.system.constraint_names, self._all_constraints(*self._q_and_parameters)[1]
        independent, dependent = (
            Dh[[names.index(n) for n in some], : self.nd] for some in (self.multiplier_names, self.redundant)
        )
        return ca.vertcat(*least_norm(independent, dependent, self.symbols.multipliers))

    @shared
    def _directions(self) -> Evaluator:
        """Evaluator of the constraint Jacobian without rounding errors.
        Rows whose entries are all as small as rounding errors are set to zero. The arguments are (q,
        parameters).
        """
        lag, g = self.lagrangian, self.lagrangian.graph
        args = [g.q_vector, g.parameters]
        return Evaluator(
            self.backend.program(lambda: ca.Function("directions", args, [lag.directions]), "constraint")
        )

    @property
    def _q_and_parameters(self) -> tuple[ca.SX, ca.SX]:
        return vec.part(self.symbols.x, 0, self.nq), self.symbols.parameters

    @property
    def _velocity_expression(self) -> ca.SX:
        """Expression of the dynamic velocities of a state, tangent to the constraints."""
        if self.conjugate == "v":
            return vec.part(self.symbols.x, self.nq, self.nq + self.nd)
        return vec.part(self._tangent_velocity, 0, self.nd)

    @shared
    def _tangent_velocity(self) -> ca.SX:
        """Velocities of a state, projected onto the constraints, and multipliers.
        They are expressions of the state; the multipliers are those of the projection.
        """
        lag, g, x = self.lagrangian, self.lagrangian.graph, self.symbols.x
        p = ca.SX.sym("p", self.nd)
        # of v only the kinematic rates enter; the dynamic ones are the solution
        both = ca.vertcat(*lag.velocity(p))
        f = ca.Function("velocity", [g.q_vector, g.v_vector, p, g.parameters], [both])
        q, theta = self._q_and_parameters
        v = ca.vertcat(ca.SX.zeros(self.nd), vec.part(x, self.nq + self.nd))
        return f(q, v, vec.part(x, self.nq, self.nq + self.nd), theta)

    @shared
    def _implicit(self) -> Implicit | None:
        def is_built() -> bool:
            return "_tangent_velocity" in self.built

        if self.conjugate == "v":
            return None
        symbols = self.symbols.x, self.symbols.parameters
        return Implicit(*symbols, lambda: self._tangent_velocity, is_built, self._legendre_equations)

    def _legendre_equations(self) -> Equations:
        lag, g, nd = self.lagrangian, self.lagrangian.graph, self.nd
        p, mu = ca.SX.sym("p", nd), ca.SX.sym("mu", self.nm)
        x = ca.vertcat(g.q_vector, p, vec.part(g.v_vector, nd))
        w = ca.vertcat(vec.part(g.v_vector, 0, nd), mu)
        return Equations(x, g.parameters, w, lag.legendre(p, mu), lag.legendre_solved)

    @shared
    def _velocity_function(self) -> ca.Function:
        args = [self.symbols.x, self.symbols.parameters]
        return ca.Function("velocity", args, [self._velocity_expression])

    @shared
    def _velocity(self) -> Evaluator:
        return Evaluator(self.backend.program(lambda: self._velocity_function, "velocity"))

    @shared
    def _velocity_of_one(self) -> Evaluator:
        return Evaluator(self._velocity_function)  # not compiled for one state; the same bits

    @shared
    def depends_on_time(self) -> bool:
        lag = self.lagrangian
        return bool(ca.depends_on(ca.vertcat(lag.V, lag.F), lag.graph.t))

    @shared
    def _energy_numbers(self) -> Evaluator:
        """Evaluator of the kinetic and the potential energy from (x, parameters), J."""
        args, energies = [self.symbols.x, self.symbols.parameters], ca.vertcat(*self._energies[:2])
        return Evaluator(ca.Function("energies", args, [energies]))

    def _energies_at(self, x: np.ndarray) -> np.ndarray:
        """Return kinetic and potential energy (N, 2) of states (N, nx), in J."""
        return self._energy_numbers(x, self.theta)[0][..., 0]

    @shared
    def _generalized_force(self) -> Evaluator:
        return Evaluator(self.lagrangian.function("force", [self.lagrangian.F]))

    def _works(self, run: Trajectory) -> np.ndarray:
        """Return the work (N,), in J, of the generalized forces over each step of a run.
        The integral is approximated by the midpoint rule.
        """
        q, h = run.x[:, : self.nq], run.step_lengths
        dq = np.diff(q, axis=0)
        args = (q[:-1] + q[1:]) / 2, dq / h[:, None], run.u[:, : len(self.system.inputs)]
        F = self._generalized_force(*args, (run.t[:-1] + h / 2)[:, None], self.theta)[0][..., 0]
        return (F * dq).sum(axis=1)

    def _diverged(self, run: Trajectory, ended: bool) -> tuple[int, str] | None:
        if self.conjugate != "p" or not (ended or grows(self, run)) or not closed(self):
            return None
        k = first_diverged(self, run, self._energies_at, self._works)
        if k is None:
            return None
        start, end = (float(e.sum()) for e in self._energies_at(run.x[[0, k]]))
        why = self._fault_of(run.x[k - 1], nearly=True) or (
            f"steps of {run.step_lengths[k - 1]:g} s are too long for this motion; use a smaller dt "
            "(f.with_dt, f.substeps)"
        )
        return k, (
            f"its energy went from {start:.4g} J to {end:.4g} J, more than its forces can have fed: {why}"
        )

    def velocities(self, x: np.ndarray) -> np.ndarray:
        """Return the dynamic velocities (..., nd) of states (..., nx)."""
        evaluate = self._velocity if x.ndim > 1 and len(x) > 1 else self._velocity_of_one
        return evaluate(x, self.theta)[0][..., 0]

    @shared
    def _energies(self) -> tuple[ca.SX, ca.SX, ca.SX]:
        T, V = ca.vertsplit(self._at_rates(ca.vertcat(self.lagrangian.T, self.lagrangian.V)))
        return T, V, T + V

    def _at_rates(self, expression: ca.SX) -> ca.SX:
        """Replace configurations and velocities in an expression by the map's symbols.
        These symbols are those of the state; the momenta in the state determine the velocities.
        """
        g = self.lagrangian.graph
        f = ca.Function("at_rates", [g.q_vector, g.v_vector, g.parameters], [expression])
        q, theta = self._q_and_parameters
        return f(q, ca.vertcat(self._velocity_expression, vec.part(self.symbols.x, self.nq + self.nd)), theta)

    def frame_positions(self, X: Any) -> np.ndarray:
        """Return the world positions, in m, of the origins of all frames.

        The frames have the order of ``system.nodes``; shapes (N, nx) -> (N, number of nodes, 3).
        """
        X = np.atleast_2d(np.asarray(real(X, "states"), float))
        flat = self._frame_positions(np.ascontiguousarray(X[:, : self.nq]), self.theta)[0][..., 0]
        return flat.reshape(len(X), -1, 3)

    @shared
    def _frame_positions(self) -> Evaluator:
        g = self.lagrangian.graph
        places = [vec.column(g.node_pose(i)[1]) for i in range(len(self.system.nodes))]
        args = [g.q_vector, g.parameters]
        return Evaluator(ca.Function("frames", args, [ca.densify(ca.vertcat(*places))]))


def generated(f: KernelMap) -> dict[str, Any] | None:
    """Return data that identify an integrator's generated CasADi functions, or None.
    These data are the key of the functions in a cache. The result is None if the functions contain code that
    a user has written.
    """
    system = f.system
    terms = (*system.potentials, *system.forces, *system.constraints)
    ours = all(type(t).__module__.startswith("vioc.") and not isinstance(t, USER) for t in terms)
    if not (ours and type(f).__module__.startswith("vioc.")):
        return None
    arguments = "dt", "smoothing"  # arguments of every function
    same = {k: v for k, v in f.identity().items() if k not in arguments}
    return {**same, "wrap": f.wrap, "title": f"{type(f).__name__} of {system.name}"}


def rebuilt(kind: Any, system: System, dt: float, options: dict, parameters: dict[str, float]) -> Any:
    """Return an unpickled integrator.
    It is made from its class `kind`, system, step length, options and parameters.
    """
    f = kind(system, dt, **options)
    return f.trying(**parameters) if parameters != f.parameters else f
