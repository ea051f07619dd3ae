"""Variational integrator in maximal coordinates, `MaximalVI`, of paper [M].

    p-(V_k)  = M nu_k   + dt/2 F(Z_k)   - G(Z_k)' lambda,     Z_k+1 = Z_k moved by V_k for dt,   g(Z_k+1) = 0
    M nu_k+1 = p+(V_k)  + dt/2 F(Z_k+1) - G(Z_k+1)' mu,       G(Z_k+1) nu_k+1 = 0

with the state x_k = (Z_k, nu_k) and the input u_k of the interval. Maths: docs/maths/maximal.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import casadi as ca
import numpy as np

from vioc.checks import as_positive
from vioc.compile.backend import Backend
from vioc.compile.evaluate import Evaluator
from vioc.compile.programs import Program
from vioc.dynamics.consistency import check_holonomic, may_be_dependent
from vioc.dynamics.contact.compiled_contact import CoreLayout, TapeCore, TapeProgram
from vioc.dynamics.contact.cones import Variables
from vioc.dynamics.contact.crossings import Crossing, first_crossed, open_from
from vioc.dynamics.contact.features import Features, MeetingPlaces
from vioc.dynamics.contact.interior import InteriorPoint, InteriorProgram
from vioc.dynamics.contact.smoothed import SmoothedMap, as_smoothing, check_apart, value_of
from vioc.dynamics.description.system import System, as_system
from vioc.dynamics.integrators.maximal.body_quantities import BodyQuantities
from vioc.dynamics.integrators.maximal.body_space import POSE_NAMES, STATE, TWIST, TWIST_NAMES, BodySpace
from vioc.dynamics.integrators.maximal.body_tape import BodyTape
from vioc.dynamics.integrators.maximal.dense import DenseStep
from vioc.dynamics.integrators.maximal.graph import StepGraph
from vioc.dynamics.integrators.maximal.maximal_derivatives import MaximalDerivatives
from vioc.dynamics.integrators.maximal.maximal_kernel import ITERATIONS, STOP, build_kernel
from vioc.dynamics.integrators.maximal.near import NearProgram
from vioc.dynamics.integrators.maximal.relaxed_bodies import relaxed
from vioc.dynamics.integrators.maximal.rescue import solve_contact, solve_free
from vioc.dynamics.integrators.maximal.states import START, States
from vioc.dynamics.integrators.maximal.touches import Touch
from vioc.dynamics.integrators.mechanical import rebuilt
from vioc.dynamics.integrators.newton import dependent_constraints
from vioc.dynamics.kinematics import as_configuration
from vioc.dynamics.masses import fault_at, natural_length
from vioc.dynamics.terms.drives import refuse_rotors
from vioc.dynamics.terms.joint_limits import JointLimits
from vioc.maps.derivatives import MapDerivatives
from vioc.maps.kernel import KernelPrograms, StepSolver
from vioc.maps.mechanism import Mechanism, held_inputs
from vioc.maps.named import Symbols
from vioc.maps.quantities import Quantities
from vioc.maps.relaxed import RelaxedStep
from vioc.maps.twins import own, shared, shared_by_step
from vioc.runs.trajectory import Trajectory


class MaximalVI(SmoothedMap):
    """Variational integrator of a mechanism in maximal coordinates, as a one-step map ([M] 3).
    Maximal coordinates are the poses of all bodies.

    Parameters
    ----------
    system : System
        System without kinematic variables, in which every body has a mass.
    dt : float
        Time step, s, > 0. No body may turn by pi or more within a step.
    tolerance : float
        Largest accepted residual of a step: momenta as displacements, and constraint values, relative to the
        length of the mechanism + the largest distance of a body from the origin, and to 1 rad.
    backend : {"virtual", "compiled", "auto"}
        Backend of the map's functions, see `vioc.compile.backend.Backend`.
    smoothing : float
        Smoothing of contacts and limits, m^2/s^2, > 0: product of a gap's velocity and its impulse, over the
        mass of the mechanism. A body at rest hovers by smoothing / g; derivatives are those of the smoothed
        step.

    Attributes
    ----------
    system : System
    graph : StepGraph
        Bodies, constraints and their graph.
    bodies : tuple of str
        Names of the bodies, in the order of the state.

    Raises
    ------
    ModelError
        If the system has no maximal coordinates (the frame or joint is named).

    Notes
    -----
    The state contains for every body its centre of mass and unit quaternion (``x.BODY`` ... ``qz.BODY``, 7
    entries), then for every body the linear velocity in world axes and the angular velocity in body axes
    (``vx.BODY`` ... ``wz.BODY``). The error of the state has 12 entries a body: (dx, phi) of each, then
    (dv, dw) of each; phi is a rotation vector in body axes. Multipliers are impulses, summed over both ends
    of a step, of the joint constraints (``BODY.1`` ... for the joint of BODY to its parent) and of the
    system's constraints.

    Further quantities: every variable of the system by its name (angles in (-pi, pi]), ``v.NAME``,
    ``kinetic``, ``potential``, ``energy``, ``FRAME:x`` (y, z, rx, ry, rz), ``momentum:x``, ``angular:x``
    (about the world's origin), ``h.NAME`` and ``force.NAME`` of constraints. Those of contacts and limits:
    ``gap.NAME`` (m or rad), ``force.NAME`` (normal, N, or N m), ``friction.NAME`` (magnitude, N, or N m),
    ``force.NAME:x`` (y, z; total force in world axes, on the second body if there are two),
    ``slip.NAME`` (m/s).

    Contacts are rigid and inelastic, docs/maths/contact.md. Their multipliers are the impulse ``NAME``, and
    with friction the impulses ``NAME.t1``, ``NAME.t2`` and the speed ``NAME.slip``.
    """

    def __init__(
        self,
        system: System,
        dt: float,
        *,
        tolerance: float = 1e-11,
        backend: str = "virtual",
        smoothing: float = 1e-8,
    ):
        as_system(system)
        refuse_rotors(system, "MaximalVI")
        check_holonomic(system, type(self).__name__)
        self.system, self.dt, self.tolerance = system, dt, as_positive(tolerance, "tolerance")
        self.dt = float(self.lengths(None, 1)[0])
        self.smoothing = as_smoothing(smoothing)
        self.graph = StepGraph(system, self.smoothing, self.tolerance)
        smoothed = (("smoothing", "smoothing"),) * bool(self.graph.touches)
        self._identified_by = ("model", "system"), *smoothed
        self.bodies = tuple(b.name for b in self.graph.bodies)
        n = len(self.bodies)
        self.state_names = (
            *(f"{c}.{b}" for b in self.bodies for c in POSE_NAMES),
            *(f"{c}.{b}" for b in self.bodies for c in TWIST_NAMES),
        )
        self.input_names = system.inputs
        self.multiplier_names = (*self.graph.names, *(n for t in self.graph.touches for n in t.multipliers))
        self.nx, self.ndx, self.nu = (STATE + TWIST) * n, 2 * TWIST * n, len(system.inputs)
        self.parameters = dict(system.parameters)
        symbols = Symbols.sized(self.nx, self.nu, len(self.multiplier_names))
        self.symbols = symbols._replace(parameters=self.graph.terms.parameters)
        self.backend = Backend(backend)
        self.quantities = Quantities(self, self.named.table)
        self.space = BodySpace(self.bodies)
        self._as_mechanism = self._mechanical
        # Angles are known modulo a turn: their errors are taken the short way round
        self.wrap = tuple(n for n, period in self.states.periods.items() if abs(period - 2 * np.pi) < 1e-12)

    def __reduce__(self):
        options = dict(tolerance=self.tolerance, backend=self.backend.name, smoothing=self.smoothing)
        return rebuilt, (type(self), self.system, self.dt, options, self.parameters)

    def __repr__(self) -> str:
        rows, count = len(self.graph.names), len(self.graph.touches)
        touches = f", {count} contacts and limits" * bool(count)
        return (
            f"MaximalVI({self.system.name}: {len(self.bodies)} bodies, {rows} constraint rows{touches}, "
            f"nx = {self.nx}, nu = {self.nu}, dt = {self.dt:g} s)"
        )

    def smoothed(self, smoothing: float) -> MaximalVI:
        """Return a copy of the map with another smoothing (m^2/s^2) of contacts and joint limits."""
        options = dict(tolerance=self.tolerance, backend=self.backend.name, smoothing=smoothing)
        return rebuilt(type(self), self.system, self.dt, options, self.parameters)

    # -- the state space ------------------------------------------------------------------------------

    def state(self, values: Any = None, **named: float) -> np.ndarray:
        """Return the state at rest with given joint variables; missing variables are zero.
        The method `initial_state` documents the arguments.
        """
        return self.initial_state({**(values or {}), **named})

    def initial_state(  # type: ignore[override]
        self, q: Any = None, v: Any = None, u: Any = None, *, start: str = START[0], **named: float
    ) -> np.ndarray:
        """Return the state with given joint variables and their rates.
        Joint variables are the minimal coordinates of the system.

        Parameters
        ----------
        q, v : array (nq,) or dict by name
            Missing names are zero; q may be the report of `consistent_configuration`.
        u : (nu,), optional
            Inputs at the start, used with ``start="given"`` only.
        start : {"legendre", "given"}
            ``"legendre"`` starts at the velocity v, with second order. ``"given"`` takes v as the velocity of
            a step before the start, as in [M] 3.1, with first order.
        **named : float
            Configurations by keyword, instead of or in addition to those in the dict `q`.

        Raises
        ------
        ConstraintError
            If a constraint of the system, or its rate, is not zero there, or a body turns by pi or more in
            a step of the map's dt.
        """
        q = as_configuration(self.system, q, "configuration", named) if named else q
        return self.states.initial(q, v, u, start)

    def minimal(self, x: Any, near: Any = None) -> tuple[np.ndarray, np.ndarray]:
        """Return the joint variables q (nq,) and their rates v (nq,) of a state.
        The rates are the quantities ``v.NAME``.

        Parameters
        ----------
        x : (nx,)
        near : array (nq,) or dict, optional
            Angles are returned within half a turn of these values, by default of zero.
        """
        return self.states.minimal(self.check_state(x), near)

    def _mechanical(self) -> Mechanism:
        return Mechanism(
            coordinates=self.system.dynamic,
            additive=self.additive,
            inputs_at=lambda ends: held_inputs(self, ends),
            moved=self._moved,
            relaxed=self._relaxed_step,
            review=self._warn_crossed,
        )

    def _moved(self, x: np.ndarray, displacement: np.ndarray, fixed: Any = ()) -> np.ndarray:
        return self.initial_state(self.minimal(x)[0] + displacement)

    @own
    def states(self) -> States:
        """Converter between states in maximal coordinates and joint variables."""
        return States(self)

    # -- steps ----------------------------------------------------------------------------------------

    @shared
    def _kernel(self) -> ca.Function:
        return build_kernel(self.graph, self.nx, self.nu, self.tolerance)

    @shared
    def mass(self) -> float:
        """Mass of the mechanism in kg, at the default parameters.
        If there are several unconnected mechanisms, it is the mean of their masses.
        """
        trees = sum(body.parent < 0 for body in self.graph.bodies)
        return float(self.graph.scales[::TWIST].sum()) / trees

    @property
    def barrier(self) -> float:
        """Barrier parameter (J) of the contacts in each of the two momentum balances of a step."""
        return 0.5 * self.smoothing * self.mass

    def step_multipliers(self, leaving: np.ndarray, arriving: np.ndarray) -> np.ndarray:
        """Return the multipliers (..., nm) of a whole step.
        They follow from the multipliers `leaving` at its start and `arriving` at its end: impulses are added;
        slip speeds are those at the end.
        """
        return np.where(self.additive, leaving, 0.0) + arriving

    @shared
    def interior(self) -> InteriorPoint:
        """Interior-point solver in numpy of steps with contact."""
        graph = self.graph
        return InteriorPoint(self.dense, graph.scales, graph.natural, self.mass, self.barrier, self.tolerance)

    @shared
    def dense(self) -> DenseStep:
        """Equations of a step with dense matrices, for the solvers in numpy."""
        return DenseStep(self.graph, self.nu, self.step_multipliers)

    @shared
    def _programs(self) -> KernelPrograms:
        return KernelPrograms(self, lambda: self._kernel)

    @own
    def step_solver(self) -> StepSolver:
        if self.graph.touches:
            return StepSolver(self._program, self._rescued, **self._checks)
        return self._programs.solver(self._rescued, program=self._program, **self._checks)

    @property
    def _checks(self) -> dict[str, Any]:
        return {"check": self._check_starts, "fault_of": self._fault_of if self.system.negative else None}

    def _program(self, feedback: bool) -> Program:
        if not self.backend.compiles(lambda: self.near.load() if self.graph.pairs else self.core):
            if self.graph.touches:
                return InteriorProgram(self, self.interior)
            return self._programs.plain(feedback)
        if self.graph.pairs:
            return self.near
        return TapeProgram(self.core, self.barrier, self.tolerance)

    @shared_by_step
    def near(self) -> NearProgram:
        """Program that computes rollouts with boxes and hulls in contact; it needs a C compiler."""
        return NearProgram(self, self.layout)

    @property
    def layout(self) -> CoreLayout:
        """Sizes and options of the map that the compiled contact solver needs."""
        graph, n = self.graph, len(self.bodies)
        return CoreLayout(
            nx=self.nx,
            nv=TWIST * n,
            nu=self.nu,
            rows=len(graph.names),
            bodies=n,
            scales=graph.scales,
            natural=graph.natural,
            mass=self.mass,
            stop=self.tolerance if graph.touches else STOP,
            limit=ITERATIONS,
            sample=0.5,
            polish=False,
            whole=self.step_multipliers,
            wrap=np.zeros(self.nx),
        )

    @shared
    def core(self) -> TapeCore:
        """Compiled solver of the map's steps; it needs a C compiler."""
        departure = BodyTape(self.graph, self.nu)
        tapes = departure, BodyTape(self.graph, self.nu, departure)
        variables = Variables([t.cone for t in self.graph.touches])
        return TapeCore(tapes, variables, self.layout, f"MaximalVI of {self.system.name}")

    def _check_starts(self, X: np.ndarray, k: int) -> None:
        """Raise an error if constraints are dependent or bodies overlap at the start of a step.
        Multipliers of dependent constraints would be arbitrary.
        """
        if self.system.constraints:  # joints of a tree are always independent
            G = self.variations(X) / np.sqrt(self.graph.scales)
            for i in map(int, np.flatnonzero(may_be_dependent(G))):
                where = f"step {k + i}: G(Z_k)"
                error = dependent_constraints(G[i], self.graph.names, where, k + i, 0.0)
                if error is not None:
                    raise error
        if self.graph.touches:
            check_apart(self, X, k)

    def _fault_of(self, x: np.ndarray, nearly: bool = False) -> str:
        fault = fault_at(self.system, self.minimal(x)[0], self.parameters, nearly)
        return fault and f"{self.system.name}: {fault}"

    @property
    def meetings(self) -> list[Touch]:
        return self.graph.touches

    @property
    def features(self) -> Features:
        return self.graph.features

    def seen(self, x: np.ndarray, dt: float, theta: np.ndarray) -> MeetingPlaces:
        return self.graph.seen(x, dt)

    @shared_by_step
    def _gaps(self) -> Evaluator:
        gaps = (self.named.gap(t) for t in self.meetings if not t.placed)
        args = [self.symbols.x, self.symbols.parameters]
        return Evaluator(ca.Function("gaps", args, [ca.densify(ca.vertcat(ca.SX(0, 1), *gaps))]))

    def smooth_gaps(self, x: np.ndarray) -> np.ndarray:
        return self._gaps(x, self.theta)[0][..., 0]

    def _motions(self, x: np.ndarray) -> np.ndarray:
        poses = self.difference(x[:-1], x[1:])[:, : TWIST * len(self.bodies)].reshape(len(x) - 1, -1, 2, 3)
        distance, angle = np.linalg.norm(poses, axis=-1).max(axis=1).T
        return np.maximum(distance / natural_length(self.system), angle)

    def _between(self, start: np.ndarray, end: np.ndarray, shares: np.ndarray) -> np.ndarray:
        """Return intermediate states of a motion from `start` to `end`.
        The joint variables of each returned state are interpolated between those of `start` and `end`, at one
        of the fractions `shares`.

        If angles change by more than twice the rotations of the bodies, as near the singular angle of three
        rotations, the poses of the bodies are interpolated instead.
        """
        error = self.difference(start, end)
        angle = np.linalg.norm(error[: TWIST * len(self.bodies)].reshape(-1, 2, 3)[:, 1], axis=1).max()
        q, _ = self.minimal(start)
        change = self.minimal(end, near=q)[0] - q
        angles = [n in self.states.periods for n in self.system.variables]
        if np.abs(change[angles]).max(initial=0.0) > 2 * angle:
            return self.retract(start, shares[:, None] * error)
        poses = [self.states.packed(self.states.poses(q + s * change, 0 * q)[0]) for s in shares]
        return np.concatenate([poses, np.tile(start[len(poses[0]) :], (len(shares), 1))], axis=1)

    @own
    def frictions(self) -> np.ndarray:
        mu = ca.vertcat(*map(self.named.friction, self.meetings))
        return np.ravel(ca.Function("frictions", [self.symbols.parameters], [mu])(self.theta))

    @shared_by_step
    def _variations(self) -> Evaluator:
        return Evaluator(self.named.variations)

    def variations(self, x: np.ndarray) -> np.ndarray:
        """Return the Jacobians (..., m, 6 n) of m constraints on n bodies, in states x.

        Derivatives are by displacement and rotation vector (dx, phi) of every body.
        """
        return self._variations(x, self.theta)[0]

    def _crossings(self, run: Trajectory) -> Iterator[Crossing]:
        """Yield contacts and joint limits that a step of a trajectory passes through.
        A body passes through a contact, or an angle jumps over a joint limit, between the two states of the
        step.
        """
        yield from super()._crossings(run)
        open_at = open_from(self, run)
        for name, limits in zip(self.system.inequality_names, self.system.inequalities, strict=True):
            if not isinstance(limits, JointLimits) or limits.variable not in self.states.periods:
                continue  # the gap of a distance is negative beyond its limit
            period, q = self.states.periods[limits.variable], run[limits.variable]
            path = q[:-1] + np.remainder(np.diff(q) + period / 2, period) - period / 2
            upper, lower = path - value_of(self, limits.upper), value_of(self, limits.lower) - path
            for side, beyond in (("upper", upper), ("lower", lower)):
                yield from first_crossed(f"{name}-{side}", beyond > np.maximum(1e-6, open_at), beyond)

    def _rescued(self, x: np.ndarray, u: np.ndarray, k: int, t: float, dt: float):
        if self.graph.touches:
            return solve_contact(self, x, u, k, t, dt)
        return solve_free(self, x, u, k, t, dt)

    # -- derivatives ------------------------------------------------------------------------------------

    @shared
    def _derivatives(self) -> MaximalDerivatives:
        return MaximalDerivatives(self)

    @property
    def residual(self) -> ca.Function | None:
        """CasADi function that computes the residual of a step, or None.
        It is None for maps with contacts or joint limits. The residual includes the errors of the norms of
        the quaternions.
        """
        return None if self.graph.touches else self._derivatives.residual

    @shared
    def _relaxed(self) -> Callable[[np.ndarray, float], RelaxedStep]:
        return relaxed(self)

    @own
    def derivatives(self) -> MapDerivatives:
        derivatives = self._derivatives
        return MapDerivatives(
            self,
            lambda steps: derivatives.first(steps, self.theta).linearization,
            lambda steps, Z, zeta: derivatives.second(derivatives.first(steps, self.theta), Z, zeta),
            self.with_times,
        )

    # -- named quantities ---------------------------------------------------------------------------------

    @shared_by_step
    def named(self) -> BodyQuantities:
        """Named quantities of the map, such as energies, as expressions."""
        return BodyQuantities(self)

    def frame_positions(self, X: Any) -> np.ndarray:
        """Return the world positions (N, n, 3), in m, of the origins of all n frames.

        Frames inside a joint have the position of the joint.
        """
        X = np.atleast_2d(np.asarray(X, float))
        flat = self._frame_positions(np.ascontiguousarray(X), self.theta)[0][..., 0]
        return flat.reshape(len(X), -1, 3)

    @shared_by_step
    def _frame_positions(self) -> Evaluator:
        return Evaluator(self.named.frame_positions)
