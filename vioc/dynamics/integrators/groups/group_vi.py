"""Variational integrators with attitudes as unit quaternions, on SO(3)^n x R^m.

    L_d(q_k, q_k+1) = dt L(R_k exp(xi/2), xi/dt, ...),  xi = log(R_k' R_k+1)                          (1)
    p_k + D1 L_d + F- - Dh' lambda = 0,   h(q_k+1) = 0,   p_k+1 = D2 L_d + F+                       (3)-(5)

With several stages, L is sampled along polynomials of quaternions, (7)-(11). Attitudes are unit quaternions
of the state; their momenta and errors are in the body's axes. Maths: docs/maths/groups.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import casadi as ca
import numpy as np

from vioc.checks import as_positive
from vioc.compile.backend import Backend
from vioc.dynamics.algebra import rotations as rot
from vioc.dynamics.charts import Chart, charts
from vioc.dynamics.consistency import CLOSED, DRIFT, check_holonomic, may_be_dependent
from vioc.dynamics.description.system import System, as_system
from vioc.dynamics.integrators.groups.group_galerkin import GalerkinStep
from vioc.dynamics.integrators.groups.group_lagrangian import GroupLagrangian
from vioc.dynamics.integrators.groups.group_quantities import BODY, GroupQuantities
from vioc.dynamics.integrators.groups.group_space import GroupSpace
from vioc.dynamics.integrators.groups.group_step import GroupStep
from vioc.dynamics.integrators.mechanical import generated, rebuilt
from vioc.dynamics.integrators.newton import dependent_constraints
from vioc.dynamics.integrators.predictor import bending_variables
from vioc.dynamics.integrators.quadrature import POINTS
from vioc.dynamics.kinematics import as_configuration
from vioc.dynamics.masses import check_mass_matrix, fault_at
from vioc.dynamics.terms.user import UserConstraint, UserForce, UserPotential
from vioc.errors import ConstraintError, ModelError
from vioc.maps.derivatives import MapDerivatives
from vioc.maps.kernel import KernelPrograms, StepSolver
from vioc.maps.mechanism import Mechanism, held_inputs
from vioc.maps.named import Symbols
from vioc.maps.quantities import Quantities, QuantityTable
from vioc.maps.twins import own, shared

MOST = 8  # stages


class GroupVI(GroupQuantities):
    """Variational integrator of a mechanism whose attitudes are unit quaternions.
    Unlike Euler angles, unit quaternions have no singular attitudes. An integrator with one stage is the
    midpoint rule; more stages have higher order.

    Three consecutive rotations (`vioc.free`, `spherical`, or three frames that `charts` finds) are one
    element of SO(3); other joints are treated as in `MidpointVI`.

    Parameters
    ----------
    system : System
        System without contacts and kinematic variables, with constraints on positions (holonomic).
    dt : float
        Time step, s, > 0. A body turns by less than half a turn in a step.
    stages : int
        Number s of stages, 1 to 8: 1 for the midpoint rule, else s points on polynomials of quaternions.
    points : {"gauss", "lobatto"}
        Points of several stages: "gauss" has order 2 s and no constraints, "lobatto" order 2 s - 2 with or
        without constraints. Steps of several stages have no derivatives by their length.
    tolerance : float
        Largest accepted last correction of a step, relative to 1 + the step; by default 1e-10, with several
        stages 1e-12.
    backend : {"virtual", "compiled", "auto"}

    Raises
    ------
    ModelError
        If the system has no free rotation, has contacts, constraints on velocities or kinematic variables, or
        a component acts on an angle inside a rotation; if `stages` or `points` is wrong.

    Notes
    -----
    State x = [r, s, p_r, pi]: the other configurations (nr,), quaternions (4 each, scalar first, from the
    body's axes to its parent's), momenta of r, and body momenta pi = dL/dw (3 each), kg m^2/s. Errors are
    (dr, phi, dp_r, dpi) with s_1 = s_0 exp(phi). Names of the rotation of ``vioc.free("b")``:
    ``b-qw`` ... ``b-qz``, ``p.b-wx``; errors ``b-phix`` ... (turns about the body's axes), ``p.b-wx``.
    Quantities: the angles ``b-rz``, ``b-ry``, ``b-rx`` of the rotation as in other maps, rates ``v.NAME``
    (``v.b-wx`` of the body, ``v.b-rz`` of an angle), ``kinetic``, ``potential``, ``energy``, positions
    ``FRAME:x``, rotation vectors ``FRAME:rx``, velocities ``v.FRAME:x``, ``w.FRAME:x``
    (`vioc.dynamics.velocities`), constraints ``h.NAME`` and their forces ``force.NAME`` = -lambda/dt.
    Multipliers are impulses of all constraints, with the sign of [S] (28a).
    """

    symmetric: ClassVar[bool] = True  # type: ignore[misc]
    _identified_by = (("model", "system"), ("stages", "stages"), ("points", "points"))

    def __init__(
        self,
        system: System,
        dt: float,
        *,
        stages: int = 1,
        points: str = "gauss",
        tolerance: float | None = None,
        backend: str = "virtual",
    ):
        as_system(system)
        if stages not in range(1, MOST + 1):
            raise ModelError(f"stages: expected 1 to {MOST}, got {stages!r}")
        if points not in POINTS or (points == "lobatto" and stages == 1):
            names = ", ".join(POINTS)
            raise ModelError(f"points: expected one of {names} (lobatto of 2 stages or more), got {points!r}")
        self.stages, self.points = int(stages), points
        self.system, self.rotations = system, charts(system)
        self._check_system()
        self.dt = dt
        self.dt = float(self.lengths(None, 1)[0])
        self.tolerance = (
            (1e-10 if stages == 1 else 1e-12) if tolerance is None else as_positive(tolerance, "tolerance")
        )
        rotation_variables = [v for chart in self.rotations for v in chart.variables]
        self.others = tuple(v for v in system.dynamic if v not in rotation_variables)
        self.bases = tuple(_base(chart) for chart in self.rotations)
        quaternions = tuple(f"{b}q{a}" for b in self.bases for a in "wxyz")
        self.rates = (*self.others, *(f"{b}w{a}" for b in self.bases for a in BODY))
        self.space = self._space()
        self.nr, self.nd, self.nq = self.space.nr, self.space.nd, self.space.nq
        self.state_names = (*self.others, *quaternions, *(f"p.{n}" for n in self.rates))
        self.input_names, self.multiplier_names = tuple(system.inputs), tuple(system.constraint_names)
        self.nx, self.ndx, self.nu = self.nq + self.nd, 2 * self.nd, len(system.inputs)
        self.nm = len(self.multiplier_names)
        self.parameters = dict(system.parameters)
        self.symbols = Symbols.sized(self.nx, self.nu, self.nm, len(self.parameters))
        self.group = GroupLagrangian(system, self.rotations, self.others, self.space)
        _ = self.group.lagrangian.h  # refuses invalid constraints here and not at the first step
        self.backend = Backend(backend, generated(self))
        table = QuantityTable(self._find, self._names, self._unit, self._rotation)
        self.quantities = Quantities(self, table)
        self._as_mechanism = self._mechanical

    def _space(self) -> GroupSpace:
        turns = (f"{b}phi{a}" for b in self.bases for a in BODY)
        names = *self.others, *turns, *(f"p.{n}" for n in self.rates)
        return GroupSpace(len(self.others), len(self.rotations), names, tuple(f"in {b}q" for b in self.bases))

    def _check_system(self) -> None:
        system, name = self.system, type(self).__name__
        check_mass_matrix(system)
        if not self.rotations:
            raise ModelError(
                f"{system.name}: {name} is for free rotations (vioc.free, spherical), got none; use "
                "MidpointVI"
            )
        check_holonomic(system, name)
        for offenders, what, instead in (
            (system.inequality_names, "contacts, limits of joints or dry friction", "ContactVI or MaximalVI"),
            (system.kinematic, "kinematic variables", "MidpointVI"),
        ):
            if offenders:
                raise ModelError(f"{system.name}: {name} has no {what}, got {offenders[0]}; use {instead}")
        if system.constraint_names and self.stages > 1 and self.points == "gauss":
            raise ModelError(
                f"{system.name}: points within a step do not keep {system.constraint_names[0]} at its ends; "
                f'use {name}(..., points="lobatto"), whose order is 2 s - 2'
            )
        inner = {v for chart in self.rotations for v in chart.variables}
        between = {system.nodes[n].frame.name for c in self.rotations for n in c.nodes[:2]} - {None}
        for one in system.components:
            by_user = isinstance(one, (UserConstraint, UserForce, UserPotential))
            touched = (set(one.variable_names()) & inner) | (set(one.frame_names()) & between)
            if by_user or touched:
                which = ", ".join(sorted(touched)) or "variables that it does not name"
                raise ModelError(
                    f"{system.name}: {one.label()} refers to {which} inside a free rotation, which has no "
                    f"angles in {name}; attach it to the frame after the rotations, or use MidpointVI"
                )

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self.system.name}: order {self.order}, nx = {self.nx}, "
            f"ndx = {self.ndx}, nu = {self.nu}, {self.nm} constraints, {self.space.nb} free rotations, "
            f"dt = {self.dt:g} s)"
        )

    def __reduce__(self):
        names = "tolerance", "stages", "points"
        options = {"backend": self.backend.name, **{name: getattr(self, name) for name in names}}
        return rebuilt, (type(self), self.system, self.dt, options, self.parameters)

    @property
    def order(self) -> int:
        return 2 * self.stages - 2 * (self.points == "lobatto")

    # -- steps ----------------------------------------------------------------------------------------

    @shared
    def _stepping(self) -> GroupStep | GalerkinStep:
        return GroupStep(self) if self.stages == 1 else GalerkinStep(self)

    @shared
    def _kernel(self) -> ca.Function:
        return self._stepping.kernel()

    @shared
    def residual(self) -> ca.Function | None:
        """CasADi function that computes the residual (nx + nm,) of a step, or None.
        It is None for an integrator with several stages. The arguments are (x, u, x_next, multipliers, t, dt,
        parameters). The residual contains the momentum balance, the norms of the quaternions, the constraints
        h and the equation of the next momentum (equations (3) and (5) of docs/maths/groups.md).
        """
        return self._stepping.residual()

    @shared
    def turning(self) -> np.ndarray:
        """Mask (nd,) of the rotations, and of the angles with nonlinear terms.
        An angle has nonlinear terms if momenta, forces or constraints depend on it nonlinearly.
        """
        bends = bending_variables(self.group.lagrangian)[self.group.place[: self.nr]]
        joints = [self.unit(n) == "rad" and bool(m) for n, m in zip(self.others, bends, strict=True)]
        return np.array(joints + [True] * (self.nd - self.nr))

    @shared
    def mass_scale(self) -> np.ndarray:
        """Typical diagonal entries (nd,) of the mass matrix.
        They are weights that make rates of different units comparable.
        """
        return self.group.lagrangian.mass_scale[self.group.place]

    @shared
    def _programs(self) -> KernelPrograms:
        return KernelPrograms(self, lambda: self._kernel, lambda: self._stepping.kernel(robust=True))

    @own
    def step_solver(self) -> StepSolver:
        return self._programs.solver(self._rescued, **self._checks)

    @property
    def _checks(self) -> dict[str, Any]:
        return {"check": self._check_starts, "fault_of": self._fault_of if self.system.negative else None}

    def _rescued(self, x: np.ndarray, u: np.ndarray, k: int, t: float, dt: float):
        self.driver.check_starts(x[None], k)
        return self._stepping.rescued(self, x, u, k, t, dt)

    def _fault_of(self, x: np.ndarray, nearly: bool = False) -> str:
        angles, values = (np.ravel(a) for a in self.group.place_at(x[: self.nq], self.theta))
        twin = self.group.lagrangian.system
        fault = fault_at(twin, angles, dict(zip(twin.parameters, values, strict=True)), nearly)
        return fault and f"{self.system.name}: {fault}"

    def _check_starts(self, X: np.ndarray, k: int) -> None:
        if not self.nm:
            return
        J = self._directions(X[:, : self.nq], self.theta)[0]
        for i in map(int, np.flatnonzero(may_be_dependent(J))):
            where = f"step {k + i}: Dh(q_k)"
            error = dependent_constraints(J[i], self.multiplier_names, where, k + i, 0.0)
            if error is not None:
                raise error

    # -- derivatives ------------------------------------------------------------------------------------

    @own
    def derivatives(self) -> MapDerivatives:
        return MapDerivatives(
            self,
            lambda steps: self._stepping.derivatives.first(steps, self.theta),
            lambda steps, Z, zeta: self._stepping.derivatives.second(steps, self.theta, Z, zeta),
            self.with_times,
        )

    # -- starts and quantities ----------------------------------------------------------------------------

    def initial_state(
        self,
        q: Mapping[str, float] | None = None,
        v: Mapping[str, float] | None = None,
        u: Any = None,
        **named: float,
    ) -> np.ndarray:
        """Return the state of a given configuration and velocity.
        The state contains quaternions and momenta.

        Parameters
        ----------
        q, v : dict by name, or arrays (nq,)
            The system's variables and their rates, as for `MidpointVI`; the angles determine the attitude.
            v may also contain body rates ``b-wx``. Missing names are zero.
        **named : float
            Configurations by keyword.

        Raises
        ------
        ConstraintError
            If the configuration or the velocity violates a constraint.
        """
        body = {}
        if v is None or isinstance(v, Mapping):
            v = dict(v or {})
            body = {n: float(v.pop(n)) for n in self.rates[self.nr :] if n in v}
        angles = as_configuration(self.system, q, "configuration", named)
        speeds = as_configuration(self.system, v, "velocity")
        index = self.system.variable_index
        state = [angles[index(n)] for n in self.others]
        rates = [speeds[index(n)] for n in self.others]
        for chart, base in zip(self.rotations, self.bases, strict=True):
            indices = [index(n) for n in chart.variables]
            state += list(rot.from_matrix(chart.rotation(angles[indices])[None])[0])
            turning = chart.rates(angles[indices]) @ speeds[indices]
            rates += [w + body.get(f"{base}w{a}", 0.0) for w, a in zip(turning, BODY, strict=True)]
        self._check_closed(np.array(state), np.array(rates))
        p = self.group.terms(state, rates, np.zeros(self.nu), 0, self.theta)[0]
        return np.concatenate([state, np.array(p).ravel()])

    def _check_closed(self, q: np.ndarray, v: np.ndarray) -> None:
        if not self.nm:
            return
        h, Dh = self._constraint_numbers(q, self.theta)
        reach = np.ones(self.nd)  # 1 rad for rotations
        reach[: self.nr] += np.abs(q[: self.nr])
        sizes = np.abs(Dh) @ reach + self._directions(q, self.theta)[1][:, 0]
        drift = CLOSED * (np.abs(Dh) @ np.abs(v)) + DRIFT * sizes / self.dt
        for values, what, most in ((h[:, 0], "h", CLOSED * sizes), (Dh @ v, "dh/dt", drift)):
            worst = int(np.argmax(np.abs(values) - most))
            if not np.abs(values[worst]) <= most[worst]:
                raise ConstraintError(
                    f"{self.system.name}: the start violates {self.multiplier_names[worst]}: {what} = "
                    f"{values[worst]:.3g}, expected 0; find one with vioc.consistent_configuration and "
                    "vioc.dynamics.consistency.project_velocity"
                )

    def _mechanical(self) -> Mechanism:
        return Mechanism(
            coordinates=self.others,
            additive=np.ones(self.nm, bool),
            inputs_at=lambda ends: held_inputs(self, ends),
            moved=self._moved,
            impulse_behind=0.5 if self.stages == 1 else 0.0,
        )

    def _moved(self, x: np.ndarray, displacement: np.ndarray, fixed: Sequence[str] = ()) -> np.ndarray:
        result = x.copy()
        result[: len(displacement)] += displacement
        self._check_closed(result[: self.nq], np.zeros(self.nd))
        return result


def _base(chart: Chart) -> str:
    """Return the common prefix of the names of a rotation's angles, such as ``b-`` for b-rz, b-ry, b-rx."""
    ends = {v[:-1] for v in chart.variables}
    common = ends.pop()
    return common[:-1] if not ends and common.endswith(("-r", "_r")) else f"{chart.variables[0]}-"
