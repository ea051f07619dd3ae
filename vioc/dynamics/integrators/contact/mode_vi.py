"""Midpoint integrator in one contact mode: the active contacts are given and stay closed.

    p_k + D1 L_d + F- - Dh(q_k)' lambda_k + N(q_k)' gamma_k + T(q_k)' tau_k = 0
    h(q_k+1) = 0,    phi(q_k+1) = 0,    T(q_m) (q_k+1 - q_k) = 0,    q_m = (q_k + q_k+1)/2
    p_k+1 = D2 L_d + F+

The equations of contacts are those of the active ones. docs/maths/phases.md.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

import casadi as ca
import numpy as np

from vioc.checks import as_names, near_misses
from vioc.compile.evaluate import Evaluator
from vioc.dynamics.contact.touch import refuse_polytopes
from vioc.dynamics.description.system import System
from vioc.dynamics.integrators.chord import ChordSolver
from vioc.dynamics.integrators.conditions import warn_singular
from vioc.dynamics.integrators.contact.bounces import bounces
from vioc.dynamics.integrators.contact.contact_quantities import TouchQuantities, check_touches
from vioc.dynamics.integrators.contact.touching import NOWHERE, Touches, Touching
from vioc.dynamics.integrators.mechanical import MechanicalMap
from vioc.dynamics.integrators.midpoint_rule import MidpointRule, as_alpha
from vioc.dynamics.integrators.structured import StructuredLinearization
from vioc.dynamics.lagrangian import Lagrangian
from vioc.errors import ModelError, SlackWarning
from vioc.maps.derivatives import MapDerivatives
from vioc.maps.kernel import StepSolver, none
from vioc.maps.mechanism import Mechanism
from vioc.maps.quantities import QuantityTable
from vioc.maps.twins import own, shared
from vioc.runs.trajectory import Trajectory

GAP, GRIP = 1e-6, 1e-6  # accepted violations: m or rad; fraction of the largest force, plus GRIP N


class HoldingLagrangian(Lagrangian):
    """Lagrangian of a mechanism whose active contacts are additional constraints.

    Parameters
    ----------
    system : System
    held : sequence of str
        Active contacts and joint limits that stick.
    sliding : sequence of str
        Active contacts that slide: only their gaps are constrained.

    Attributes
    ----------
    touches : Touches
        All contacts and joint limits.
    rows : list of (Touching, int)
        Contact and direction, normal (0) or tangent (1, 2), of each constraint after those of the system.
        Tangents along which no variable moves the contact have no constraint, such as those across a planar
        mechanism.
    """

    def __init__(self, system: System, held: Sequence[str], sliding: Sequence[str]):
        super().__init__(system)
        self.touches = Touches(self)
        refuse_polytopes(system, "ModeVI has no")
        rubs = [t.name for t in self.touches.all if not t.cone.gap]
        if rubs:
            raise ModelError(f"{system.name}: ModeVI has no dry friction ({rubs[0]}); use ContactVI")
        slopes = self.touches.rows(self.touches.held(self.graph.q_vector, self.graph.parameters, NOWHERE))
        names = [t.name for t in self.touches.all]
        for name in (*held, *sliding):
            if name not in names:
                raise ModelError(f"{system.name}: unknown contact {name!r}; {near_misses(name, names)}")
        self.rows: list[tuple[Touching, int]] = []
        active_rows = []
        for touch, J in zip(self.touches.all, slopes, strict=True):
            count = 1 if touch.name in sliding else 1 + touch.slip.numel() if touch.name in held else 0
            for i in range(count):
                row = ca.sparsify(J[i, :])
                if row[:, : self.nd].nnz():
                    self.rows.append((touch, i))
                    active_rows.append(row)
        self._slopes = ca.vertcat(ca.SX(0, self.nq), *active_rows)

    @cached_property
    def h(self) -> ca.SX:
        """Values of all constraints; the value of an active contact is its negative gap.
        With this sign, a contact pushes its bodies apart if its multiplier is positive.

        Components of tangential constraints are 0, since sticking constrains the slip velocity and not a
        position.
        """
        values = (-touch.gap if i == 0 else ca.SX(0) for touch, i in self.rows)
        return ca.vertcat(super().h, *values)

    @cached_property
    def Dh(self) -> ca.SX:
        """Jacobian of all constraints, which include the active contacts.
        Constraints on positions are differentiated with respect to the configuration q, constraints on
        velocities with respect to the rates of q.
        """
        m, g = len(self.system.constraints), self.graph
        if not m:
            return -self._slopes
        theirs = ca.jacobian(self.h[:m], g.q_vector) + ca.jacobian(self.slips, g.v_vector)
        return ca.vertcat(theirs, -self._slopes)

    @cached_property
    def sizes(self) -> ca.SX:
        """Scales (m, 2) of the rounding errors of m constraints.
        The rounding error of a constraint is a few machine epsilons times its scale. The scales are 0 for
        contacts, so that even a small gradient of a contact does not count as a rounding error.
        """
        return ca.vertcat(super().sizes, ca.SX.zeros(len(self.rows), 2))


class ModeVI(MechanicalMap):
    """Midpoint integrator in one contact mode, in which given active contacts stay closed.
    Active contacts with friction stick, unless they are in `sliding`.

    Parameters
    ----------
    system : System
        System with contacts or joint limits of joints.
    held : names
        Contacts and limits that are active in every step. Those with friction stick; a sphere rolls.
    sliding : names
        Active contacts that slide without friction.
    dt, alpha, forcing, wrap, tolerance, backend
        See `MidpointVI`.

    Raises
    ------
    ModelError
        See `MidpointVI`; also for no or unknown contacts, dry friction, restitution or polytopes.

    Notes
    -----
    States, inputs and names of quantities are those of `ContactVI`: ``gap.NAME``, ``force.NAME``,
    ``friction.NAME``, ``force.NAME:x``; and ``grip.NAME``, mu times the force minus the friction (N).
    Multipliers are those of the constraints, then for each active contact its impulse ``NAME`` (N s, positive
    if it pushes) and, if it sticks, ``NAME.t1``, ``NAME.t2``.

    A step enforces no unilateral limits: a contact may pull, and a rollout then warns (`SlackWarning`).
    `Mechanism.limits` lists the limits of a motion, and `vioc.control.dmoc` enforces them. A step from a
    momentum that violates an active contact is an inelastic impact, whose impulse is part of the step's.
    """

    choices = ("alpha", "forcing", "held", "sliding")

    def __init__(
        self,
        system: System,
        dt: float,
        held: str | Iterable[str] = (),
        *,
        sliding: str | Iterable[str] = (),
        alpha: float = 0.5,
        forcing: str = "symmetric",
        wrap: Sequence[str] = (),
        tolerance: float = 1e-11,
        backend: str = "virtual",
    ):
        self.held, self.sliding = as_names(held, "held"), as_names(sliding, "sliding")
        both = set(self.held) & set(self.sliding)
        if both:
            raise ModelError(f"{min(both)}: held and sliding; name it in one of them")
        self.alpha, self.forcing = as_alpha(alpha, forcing), forcing
        super().__init__(system, dt, wrap, tolerance, backend, takes=("contacts", "slips"))
        self._impulse_behind = self.alpha
        self.symmetric = alpha == 0.5 and (forcing == "symmetric" or not system.forces)
        check_touches(self)
        if bounces(system):
            raise ModelError(
                f"{system.name}: ModeVI has no restitution: active contacts do not bounce; set it to 0"
            )
        self.lagrangian: HoldingLagrangian = HoldingLagrangian(system, self.held, self.sliding)
        ends = "", ".t1", ".t2"
        contact_names = tuple(touch.name + ends[i] for touch, i in self.lagrangian.rows)
        self.multiplier_names = (*system.constraint_names, *contact_names)
        self.nm = len(self.multiplier_names)
        self.symbols = self.symbols._replace(multipliers=ca.SX.sym("multipliers", self.nm))
        self._as_mechanism = self._in_mode
        values = QuantityTable(self._constraint_value, self._held_names)
        self.quantities = self.quantities.added(self._named.table, values)

    def __repr__(self) -> str:
        names = ", ".join((*self.held, *(f"{n} sliding" for n in self.sliding)))
        return f"ModeVI({self.system.name}: {names or 'nothing'} held, nx = {self.nx}, dt = {self.dt:g} s)"

    def holding(self, *held: str, sliding: str | Iterable[str] = ()) -> ModeVI:
        """Return a map of the same mechanism and options in another contact mode.
        The contacts `held` are active. An active contact with friction sticks, unless it is in `sliding`.
        """
        options = {**self._options, "held": held, "sliding": as_names(sliding, "sliding")}
        return type(self)(self.system, self.dt, **options).trying(**self.parameters)

    # -- equations --------------------------------------------------------------------------------------

    @shared
    def rule(self) -> MidpointRule:
        """Discrete equations of a midpoint step with the active contacts as constraints."""
        velocity_rows = *self.lagrangian.nonholonomic, *(i > 0 for _, i in self.lagrangian.rows)
        return MidpointRule(self, self.alpha, self.forcing, velocity_rows)

    @shared
    def chord(self) -> ChordSolver:
        """Solver of the discrete equations of a step, by simplified Newton iteration."""
        return ChordSolver(self.rule)

    @own
    def step_solver(self) -> StepSolver:
        return self.chord.programs.solver(self._rescued, many=none, **self._checks)

    def _rescued(self, x: np.ndarray, u: np.ndarray, k: int, t: float, dt: float):
        solution = self.chord.rescued(self, x, u, k, t, dt)
        warn_singular(self, self.rule, x, u, t, dt, solution[0])
        return solution

    @shared
    def _structured(self) -> StructuredLinearization:
        return StructuredLinearization(self.rule)

    @own
    def derivatives(self) -> MapDerivatives:
        return self._structured.of_map(self)

    # -- limits of the mode --------------------------------------------------------------------------------

    def _in_mode(self) -> Mechanism:
        return replace(self._mechanical(), limits=lambda: self._limits, review=self._check_limits)

    def _check_limits(self, trajectory: Trajectory) -> None:
        self._review(trajectory)
        n, f = len(trajectory), trajectory
        rows = self._limit_rows(f.x[:n], f.u, f.multipliers, self.theta, f.step_lengths[:, None])[0][..., 0]
        below = rows < -np.where(self._of_gaps, GAP, GRIP * (GRIP + np.abs(rows).max(axis=0, initial=0.0)))
        if not below.any():
            return
        k = int(np.argmax(below.any(axis=1)))
        name, value = self._limit_names[int(np.argmin(np.where(below[k], rows[k], np.inf)))], rows[k].min()
        warnings.warn(
            f"{name} is {value:.3g} from t = {f.t[k]:g} s on, expected >= 0: contact would leave this "
            "mode there. End the motion before, or use ContactVI, which finds the mode",
            SlackWarning,
            stacklevel=4,
        )

    @shared
    def _limit_names(self) -> list[str]:
        return [name for name, value in self._limits.items() for _ in range(value.numel())]

    @property
    def _of_gaps(self) -> np.ndarray:
        return np.array([name.startswith("gap.") for name in self._limit_names])

    @shared
    def _limit_rows(self) -> Evaluator:
        rows = ca.densify(ca.vertcat(*self._limits.values()))
        return Evaluator(ca.Function("limits", list(self.symbols), [rows]))

    @shared
    def _limits(self) -> Mapping[str, ca.SX]:
        limits: dict[str, ca.SX] = {}
        for touch in self.touches.all:
            name = touch.name
            if name not in self.multiplier_names:
                limits[f"gap.{name}"] = self.quantity(f"gap.{name}")
                continue
            limits[f"force.{name}"] = self.quantity(f"force.{name}")
            grips = self._within(touch)
            if grips is not None:
                limits[f"grip.{name}"] = grips
        return limits

    def _within(self, touch: Touching) -> ca.SX | None:
        """Return expressions that are >= 0 while a sticking contact does not slip.
        They compare the friction force with the largest friction force. The result is None for a contact that
        does not stick.
        """
        impulse, _ = self._impulse(touch)
        along = impulse[1:]
        if not along.numel():
            return None
        most, dt = self._named.friction(touch) * impulse[0], self.symbols.dt
        if along.numel() == 1:
            return ca.vertcat(most - along, most + along) / dt
        return touch.cone.within(most / dt, along / dt)

    # -- named quantities -------------------------------------------------------------------------------

    @shared
    def touches(self) -> Touches:
        return self.lagrangian.touches

    def _impulse(self, touch: Touching) -> tuple[ca.SX, list[int]]:
        rows = [(m, i) for m, (t, i) in enumerate(self.lagrangian.rows) if t is touch]
        indices, along = [m + len(self.system.constraints) for m, _ in rows], [i for _, i in rows]
        return (self.symbols.multipliers[indices], along) if rows else (ca.SX.zeros(1), [0])

    def _constraint_value(self, name: str) -> ca.SX | None:
        kind, _, rest = name.partition(".")
        if kind != "h" or rest not in self.multiplier_names:
            return None
        return self.constraint(*self._q_and_parameters)[0][self.multiplier_names.index(rest)]

    @shared
    def _named(self) -> TouchQuantities:
        return TouchQuantities(self, self.touches, self._impulse)

    def _held_names(self) -> list[str]:
        return [f"h.{n}" for n in self.multiplier_names[len(self.system.constraints) :]]
