"""Midpoint variational integrator with contact and friction, `ContactVI`.

The equations are in `contact_step`, their solver in `vioc.dynamics.contact.interior`; the maths is in
docs/maths/contact.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import casadi as ca
import numpy as np

from vioc.compile.evaluate import Evaluator
from vioc.dynamics.contact.compiled_contact import CoreLayout, TapeCore
from vioc.dynamics.contact.features import Features, MeetingPlaces
from vioc.dynamics.contact.interior import InteriorPoint
from vioc.dynamics.contact.smoothed import SmoothedMap, as_smoothing, check_apart
from vioc.dynamics.description.system import System
from vioc.dynamics.integrators.contact.bounces import Bounces, Impacts, bounces, impacts_along
from vioc.dynamics.integrators.contact.contact_quantities import TouchQuantities, check_touches
from vioc.dynamics.integrators.contact.contact_step import FlatTape, OneEnd, Pieces
from vioc.dynamics.integrators.contact.relaxed_contact import relaxed
from vioc.dynamics.integrators.contact.resting import ContactSteps, Resting
from vioc.dynamics.integrators.contact.touching import Touches, Touching
from vioc.dynamics.integrators.mechanical import MechanicalMap
from vioc.dynamics.integrators.midpoint_rule import MidpointRule, as_alpha
from vioc.maps.derivatives import MapDerivatives, Steps
from vioc.maps.kernel import StepSolver
from vioc.maps.mechanism import Mechanism
from vioc.maps.quantities import nothing
from vioc.maps.relaxed import RelaxedStep
from vioc.maps.twins import own, shared, twin
from vioc.runs.trajectory import Trajectory


class ContactVI(SmoothedMap, MechanicalMap):
    """Midpoint variational integrator of a mechanism with contacts and joint limits, as a one-step map.

    Parameters
    ----------
    smoothing : float
        Smoothing of contacts and limits, m^2/s^2, > 0: product of a gap's velocity and its impulse, over the
        mass of the mechanism. A body at rest hovers by smoothing / g; derivatives are those of the smoothed
        step.
    impacts : {"newton", "poisson"}
        Impact law of contacts with restitution.
    slow : float
        Closing speed up to which contacts do not bounce, m/s or rad/s, > 0.
    system, dt, alpha, forcing, wrap, tolerance, backend
        See `MidpointVI`.

    Notes
    -----
    States, inputs and quantities are those of `MidpointVI`. Multipliers are those of the constraints, then of
    each contact its impulse ``NAME`` (N s) and with friction ``NAME.t1``, ``NAME.t2``, and ``NAME.slip``,
    which is a speed. Quantities of contacts and limits: ``gap.NAME`` (m or rad), ``force.NAME`` (normal, N,
    or N m), ``friction.NAME`` (magnitude, N, or N m), ``grip.NAME`` (mu times the force minus the friction,
    N, or N m), ``force.NAME:x`` (y, z; total force on the second body in world axes), ``slip.NAME`` of round
    cones (mean over the step, m/s).

    The impulse of a contact acts at the start of a step, like that of a constraint in `MidpointVI`: the
    momentum of a body that stands on the ground is -dt/2 times its weight. Contact friction is of second
    order for straight sliding to a stop. Dry friction with a given load acts in full in the first step, so
    that a body that starts to slide at speed v stops dt v/2 too early (10 mm at 2 m/s and 10 ms; `MaximalVI`
    12 um). Both are of first order if sliding turns or reverses (docs/choosing.md). Contacts are rigid. With
    nonzero restitution a step is divided at the exact times of its impacts (`impacts_along`,
    docs/maths/contact_gradients.md, "Restitution").
    """

    choices = ("alpha", "forcing", "smoothing")

    def __init__(
        self,
        system: System,
        dt: float,
        *,
        alpha: float = 0.5,
        forcing: str = "symmetric",
        wrap: Sequence[str] = (),
        tolerance: float = 1e-11,
        backend: str = "virtual",
        smoothing: float = 1e-8,
        impacts: str = "newton",
        slow: float = 1e-3,
    ):
        if impacts not in ("newton", "poisson"):
            raise ValueError(f'impacts: expected "newton" or "poisson", got {impacts!r}')
        self.impacts, self.slow = impacts, float(slow)
        if not 0 < self.slow < np.inf:
            raise ValueError(f"slow: expected a speed > 0 (m/s), got {slow!r}")
        self.smoothing = as_smoothing(smoothing)
        self.alpha, self.forcing = as_alpha(alpha, forcing), forcing
        super().__init__(system, dt, wrap, tolerance, backend, takes=("contacts",))
        check_touches(self)
        self._impulse_behind = self.alpha
        self.symmetric = alpha == 0.5 and (forcing == "symmetric" or not system.forces)
        self.multiplier_names = (*system.constraint_names, *self.touches.names)
        count = ca.SX.sym("multipliers", len(self.multiplier_names))
        self.symbols = self.symbols._replace(multipliers=count)
        self.quantities = self.quantities.added(self._named.table)
        self._as_mechanism = self._with_contact
        _ = self.contact  # raise errors for unsupported systems here and not at the first step

    def __repr__(self) -> str:
        return (
            f"ContactVI({self.system.name}: nx = {self.nx}, nu = {self.nu}, {self.nm} constraints, "
            f"{len(self.touches.all)} contacts and limits, dt = {self.dt:g} s, alpha = {self.alpha:g}, "
            f"{self.forcing} forcing)"
        )

    @property
    def _options(self) -> dict[str, Any]:
        options = {"impacts": self.impacts, "slow": self.slow} if bounces(self.system) else {}
        return {**super()._options, **options}

    def smoothed(self, smoothing: float) -> ContactVI:
        """Return a copy of the map with another smoothing of contacts (m^2/s^2), without new compilation."""
        result = twin(self)
        result.smoothing = as_smoothing(smoothing)
        return result

    @shared
    def mass(self) -> float:
        """Mass of the whole mechanism in kg, at the default parameters."""
        masses = [float(node.frame.mass.mass) for node in self.system.nodes if node.frame.mass]
        return sum(masses) or float(self.lagrangian.mass_scale.sum())

    @property
    def barrier(self) -> float:
        """Barrier parameter of the contacts, J: the smoothing times the mass of the mechanism."""
        return self.smoothing * self.mass

    # -- steps --------------------------------------------------------------------------------------

    @shared
    def touches(self) -> Touches:
        return Touches(self.lagrangian)

    @shared
    def rule(self) -> MidpointRule:
        """Discrete equations of a midpoint step without contact."""
        return MidpointRule(self, self.alpha, self.forcing)

    @shared
    def contact(self) -> ContactSteps:
        """Object that computes and differentiates the steps of this map."""
        return Bounces(self) if bounces(self.system) else Resting(self)

    def impacts_along(self, run: Trajectory) -> Impacts:
        """Return the impacts within the steps of a trajectory.

        Each step is computed again from its state, as for derivatives.
        """
        return impacts_along(self, Steps.along(run))

    @shared
    def ends(self) -> OneEnd:
        """Equations of a step with contact, for the interior-point solver in numpy."""
        return OneEnd(self)

    @property
    def interior(self) -> InteriorPoint:
        """Interior-point solver in numpy of the map's steps."""
        scales, natural = self.lagrangian.mass_scale, self.touches.natural(self.nm)
        return InteriorPoint(self.ends, scales, natural, self.mass, self.barrier, self.tolerance, polish=True)

    @own
    def step_solver(self) -> StepSolver:
        contact = self.contact
        return StepSolver(
            lambda feedback: contact.program(self), partial(contact.rescued, self), **self._checks
        )

    @shared
    def pieces(self) -> Pieces:
        """CasADi functions that evaluate the equations of a step, for all solvers."""
        return Pieces(self)

    @property
    def velocity_of_state(self) -> ca.Function:
        """CasADi function that computes the velocities (nd,) of the dynamic variables.
        Its arguments are state and parameters. The velocities are the first guess of the mean velocities in
        the step from this state.
        """
        return self._velocity_function

    @shared
    def core(self) -> TapeCore:
        """Compiled solver of the map's steps; it needs a C compiler."""
        layout = CoreLayout(
            nx=self.nx,
            nv=self.nd,
            nu=self.nu,
            rows=self.nm,
            scales=self.lagrangian.mass_scale,
            natural=self.touches.natural(self.nm),
            mass=self.mass,
            stop=self.tolerance,
            wrap=np.array([n in self.wrap for n in self.state_names], float),
        )
        return TapeCore([FlatTape(self)], self.pieces.variables, layout, f"ContactVI of {self.system.name}")

    def _check_starts(self, X: np.ndarray, k: int) -> None:
        super()._check_starts(X, k)
        check_apart(self, X, k)

    @property
    def meetings(self) -> list[Touching]:
        return self.touches.all

    @property
    def features(self) -> Features:
        return self.touches.polytopes.features

    @own
    def frictions(self) -> np.ndarray:
        return np.ravel(self.touches.friction(self.theta))

    @shared
    def _gaps(self) -> Evaluator:
        return Evaluator(self.touches.gaps)

    def smooth_gaps(self, x: np.ndarray) -> np.ndarray:
        q = np.ascontiguousarray(x[..., : self.nq])
        gaps = self._gaps(q, self.theta, self.touches.polytopes.nowhere)[0][..., 0]
        return gaps[..., ~self.placed] if self.features.pairs else gaps

    def _motions(self, x: np.ndarray) -> np.ndarray:
        return (np.abs(np.diff(x[:, : self.nq], axis=0)) / self.lagrangian.natural_sizes).max(axis=1)

    def _between(self, start: np.ndarray, end: np.ndarray, shares: np.ndarray) -> np.ndarray:
        return start + shares[:, None] * (end - start)

    def seen(self, x: np.ndarray, dt: float, theta: np.ndarray) -> MeetingPlaces:
        v = np.concatenate([self._velocity(x, theta)[0][:, 0], x[self.nq + self.nd :]])
        return self.touches.polytopes.at(x[: self.nq], v, theta, dt)

    # -- derivatives ----------------------------------------------------------------------------------

    @property
    def residual(self) -> ca.Function | None:
        """CasADi function that computes the residual of a step, or None.
        The residual (nx + nm,) is zero for a solved step. The arguments are (x, u, x_next, multipliers, t,
        dt, parameters). The property is None for maps with restitution or with contacts of polytopes.
        """
        return self.contact.residual(self)

    @shared
    def _relaxed(self) -> Callable[[np.ndarray, float], RelaxedStep]:
        return relaxed(self)

    def _with_contact(self) -> Mechanism:
        def review(trajectory: Trajectory) -> None:
            self._review(trajectory)
            self._warn_crossed(trajectory)

        relaxed = self._relaxed_step if self.contact.smooth else nothing
        return replace(self._mechanical(), additive=self.additive, relaxed=relaxed, review=review)

    @own
    def derivatives(self) -> MapDerivatives:
        return self.contact.derivatives(self)

    # -- named quantities -----------------------------------------------------------------------------

    @shared
    def _named(self) -> TouchQuantities:
        return TouchQuantities(self, self.touches, self._impulse, {"slip": self._slip})

    def _impulse(self, touch: Touching) -> tuple[ca.SX, list[int]]:
        index, along = self.multiplier_names.index(touch.multipliers[0]), [0, 1, 2]
        along = along[1 - touch.lead :] if touch.cone.friction else along[:1]
        along = along[: touch.lead + touch.slip.numel()]
        return self.symbols.multipliers[index : index + len(along)], along

    def _slip(self, touch: Touching) -> ca.SX | None:
        if not touch.cone.round:
            return None
        # the multiplier exceeds the slip by the distance of the impulse from the boundary of its cone
        (impulse, _), index = self._impulse(touch), self.multiplier_names.index(f"{touch.name}.slip")
        size = ca.sqrt(ca.sumsqr(impulse[touch.lead :]))
        return self.symbols.multipliers[index] * size / self._named.most(touch, impulse)
