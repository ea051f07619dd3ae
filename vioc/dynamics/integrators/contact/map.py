"""`ContactVI`: the midpoint variational integrator with contact, friction and limits of joints.

The equations are in `step`, their solver in `vioc.dynamics.contact.interior`; the maths is in
docs/maths/contact.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import casadi as ca
import numpy as np

from vioc.compile.compiler import find_compiler
from vioc.compile.evaluate import Evaluator
from vioc.compile.programs import Program
from vioc.dynamics.algebra.vectors import part
from vioc.dynamics.consistency import directions_within
from vioc.dynamics.contact.core import CoreLayout, TapeCore, TapeProgram
from vioc.dynamics.contact.features import Features, MeetingPlaces
from vioc.dynamics.contact.interior import InteriorPoint, InteriorProgram
from vioc.dynamics.contact.smoothed import SmoothedMap, as_smoothing, check_apart
from vioc.dynamics.description.system import System
from vioc.dynamics.integrators.contact.bounces import CLOSED, BounceProgram, Bounces, bounces
from vioc.dynamics.integrators.contact.branch import check_branch
from vioc.dynamics.integrators.contact.derivatives import ContactDerivatives, equations
from vioc.dynamics.integrators.contact.flat import FlatTape
from vioc.dynamics.integrators.contact.impacts import mechanics
from vioc.dynamics.integrators.contact.impacts_along import Impacts, impacts_along
from vioc.dynamics.integrators.contact.opposed import openable
from vioc.dynamics.integrators.contact.placed import PlacedProgram
from vioc.dynamics.integrators.contact.quantities import TouchingMap
from vioc.dynamics.integrators.contact.relaxed import relaxed
from vioc.dynamics.integrators.contact.step import OneEnd, Pieces
from vioc.dynamics.integrators.contact.touching import Touching
from vioc.dynamics.integrators.midpoint import MidpointVI
from vioc.dynamics.integrators.newton import NEAR, dependent_constraints
from vioc.dynamics.lagrangian import OPTIONS
from vioc.errors import StepError
from vioc.maps.derivatives import Linearization, SecondOrder, Steps
from vioc.maps.kernel import StepSolver
from vioc.maps.relaxed import RelaxedStep
from vioc.maps.trajectory import Trajectory
from vioc.maps.twins import own, shared, twin


class ContactVI(SmoothedMap, TouchingMap):
    """The midpoint variational integrator of a system with contacts or limits of joints, as a one-step map.

    Parameters
    ----------
    smoothing : float
        Of contacts and limits, m^2/s^2, > 0: what a gap's velocity times its impulse ends at, over the
        mechanism's mass. A body at rest hovers by smoothing / g; derivatives are those of the smoothed step.
    impacts : {"newton", "poisson"}
        The law of contacts with restitution.
    slow : float
        m/s or rad/s, > 0: what closes slower does not bounce.
    system, dt, alpha, forcing, wrap, tolerance, backend
        As of `MidpointVI`.

    Notes
    -----
    States, inputs and quantities are those of `MidpointVI`. Multipliers are those of the constraints, then of
    each contact its impulse ``NAME`` (N s) and with friction ``NAME.t1``, ``NAME.t2``, and ``NAME.slip``,
    which is a speed. Quantities of contacts and limits: ``gap.NAME`` (m or rad), ``force.NAME`` (normal, N,
    or N m), ``friction.NAME`` (its size, N), ``grip.NAME`` (mu times the force less the friction, N),
    ``force.NAME:x`` (y, z; all of it, in the world, on the second body), ``slip.NAME`` of round cones (mean
    over the step, m/s).

    The impulse of a contact acts at the start of a step, as a constraint's in `MidpointVI`: the momentum of
    what stands on the ground is -dt/2 times its weight. Friction of contacts is of second order straight on
    to a stop; that of a given load is whole in the first step, so that what slides at v from a start stops
    dt v/2 too early (10 mm at 2 m/s and 10 ms; `MaximalVI` 12 um). Where sliding turns or reverses both are
    of first order (docs/choosing.md). Contacts are rigid; where their restitution is not 0
    a step flies to the exact time of touch and on behind the impact (`impacts_along`,
    docs/maths/contact_gradients.md, "Restitution").
    """

    slipless = False

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
        super().__init__(
            system, dt, alpha=alpha, forcing=forcing, wrap=wrap, tolerance=tolerance, backend=backend
        )
        self._check_touches()
        self.multiplier_names = (*system.constraint_names, *self.touches.names)
        count = ca.SX.sym("multipliers", len(self.multiplier_names))
        self.symbols = self.symbols._replace(multipliers=count)
        _ = self.bounces  # refuses what it cannot do now

    def __repr__(self) -> str:
        return (
            super()
            .__repr__()
            .replace("constraints,", f"constraints, {len(self.touches.all)} contacts and limits,", 1)
        )

    @property
    def _options(self) -> dict[str, Any]:
        own: dict[str, Any] = {"smoothing": self.smoothing}
        if bounces(self.system):
            own |= {"impacts": self.impacts, "slow": self.slow}
        return {**super()._options, **own}

    def identity(self) -> dict[str, Any]:
        return {**super().identity(), "smoothing": self.smoothing}

    def blueprint(self) -> dict[str, Any] | None:
        known = super().blueprint()  # the barrier is an argument of every function
        return None if known is None else {k: v for k, v in known.items() if k != "smoothing"}

    def smoothed(self, smoothing: float) -> ContactVI:
        """The same map with another smoothing, m^2/s^2; nothing is built or compiled again."""
        result = twin(self)
        result.smoothing = as_smoothing(smoothing)
        return result

    @shared
    def mass(self) -> float:
        """Of the whole mechanism at the parameters' defaults, kg."""
        masses = [float(node.frame.mass.mass) for node in self.system.nodes if node.frame.mass]
        return sum(masses) or float(self.lagrangian.mass_scale.sum())

    @property
    def barrier(self) -> float:
        """kappa, J."""
        return self.smoothing * self.mass

    # -- steps --------------------------------------------------------------------------------------

    @shared
    def bounces(self) -> Bounces | None:
        """How steps with impacts are taken; None where nothing bounces."""
        return Bounces(self) if bounces(self.system) else None

    def impacts_along(self, run: Trajectory) -> Impacts:
        """The impacts within the steps of a trajectory, of contacts with restitution.

        They are those of a step from each of its states, as in derivatives.
        """
        return impacts_along(self, Steps.along(run))

    @shared
    def ends(self) -> OneEnd:
        """A step's equations at numbers."""
        return OneEnd(self)

    @property
    def interior(self) -> InteriorPoint:
        """The solver of steps, in numpy."""
        scales = self.lagrangian.mass_scale
        return InteriorPoint(self.ends, scales, self.mass, self.barrier, self.tolerance, polish=True)

    @own
    def step_solver(self) -> StepSolver:
        return StepSolver(self._program, self._rescued, **self._checks)

    def _program(self, feedback: bool) -> Program:
        if self.bounces is not None:
            return BounceProgram(self, self.bounces)
        if self.backend.name == "virtual" or find_compiler() is None:
            return InteriorProgram(self, self.interior)
        if self.features.pairs:
            return PlacedProgram(self, self.core)
        return TapeProgram(self.core, self.barrier, self.tolerance)

    @shared
    def pieces(self) -> Pieces:
        """A step's equations, for either backend."""
        return Pieces(self)

    @property
    def velocity_of_state(self) -> ca.Function:
        """(x, parameters) -> velocities (nd,), with which the solver of a step begins."""
        return self._velocity_function

    @shared
    def core(self) -> TapeCore:
        """The compiled core; needs a compiler."""
        layout = CoreLayout(
            nx=self.nx,
            nv=self.nd,
            nu=self.nu,
            rows=self.nm,
            scales=self.lagrangian.mass_scale,
            mass=self.mass,
            stop=self.tolerance,
            wrap=self.wrapped,
        )
        return TapeCore([FlatTape(self)], self.pieces.variables, layout, f"ContactVI of {self.system.name}")

    def _check_starts(self, X: np.ndarray, k: int) -> None:
        super()._check_starts(X, k)
        check_apart(self, X, k)

    def _rescued(self, x: np.ndarray, u: np.ndarray, k: int, t: float, dt: float):
        self.driver.check_starts(x[None], k)
        if self.bounces is not None:
            return self.bounces.solved(self, x, u, k, t, dt)
        with np.errstate(all="ignore"):
            found = self.interior.solve(x, u, t, dt, self.theta)
        if found.error <= self.tolerance:
            if not found.suspect <= 0:
                check_branch(self, x, u, k, t, dt, found.x[: self.nd], found.multipliers[: self.nm])
            return found.x, found.multipliers
        where = (
            f"step {k} (t = {t:.6g} s, dt = {dt:g} s) with {len(self.touches.all)} contacts and limits was "
            f"not solved in {found.iterations} iterations"
        )
        shut = [] if self.features.pairs else self._held_shut(x)
        if shut:
            raise StepError(
                f"{where}: {', '.join(shut)} are closed and hold each other shut, without play: give them "
                "some, or a constraint in their place",
                k,
                found.error,
                "no convergence",
            )
        names, q = self.lagrangian.constraint_names, found.x[: self.nq]
        if not np.isfinite(q).all():  # then about where velocities lead
            q = x[: self.nq] + dt * np.concatenate([self.velocities(x), x[self.nq + self.nd :]])
        if names and np.isfinite(q).all():
            J = directions_within(self.lagrangian, q, NEAR, **self.parameters)
            flat = dependent_constraints(J, names, f"{where}. Dh(q_k+1)", k, found.error, NEAR)
            if flat is not None:
                raise flat
        raise StepError(
            f"{where}; constraints and contacts may contradict each "
            "other, or dt is too large for this state: try a smaller dt, or a larger smoothing than "
            f"{self.smoothing:g}",
            k,
            found.error,
            "no convergence",
        )

    @shared
    def normals(self) -> Evaluator:
        """(q, parameters) -> M (nd, nd), and slopes of the gaps (n, nd), but of polytopes that meet."""
        q, theta = ca.SX.sym("q", self.nq), self.symbols.parameters
        M, J, _ = mechanics(self, q, theta)
        N = ca.vertcat(*(j[0, :] for j in J))
        return Evaluator(ca.Function("normals", [q, theta], [ca.densify(M), ca.densify(N)], OPTIONS))

    def slopes(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """`normals`, and Dh by the dynamic variables, in a state."""
        q = x[: self.nq]
        M, N = self.normals(q, self.theta)
        return M, N, self.lagrangian.constraint_jacobian(q, **self.parameters)[:, : self.nd]

    def _held_shut(self, x: np.ndarray) -> list[str]:
        """Names of closed contacts that nothing opens."""
        gaps = self.gaps(x)
        closed = np.isfinite(gaps) & (gaps <= CLOSED)
        if closed.sum() < 2:
            return []
        shut = closed & ~openable(*self.slopes(x), closed)
        return [t.name for t, on in zip(self.touches.all, shut, strict=True) if on]

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
        found = self._gaps(q, self.theta, self.touches.polytopes.nowhere)[0][..., 0]
        return found[..., ~self.placed] if self.features.pairs else found

    def seen(self, x: np.ndarray, dt: float, theta: np.ndarray) -> MeetingPlaces:
        v = np.concatenate([self._velocity(x, theta)[0][:, 0], x[self.nq + self.nd :]])
        return self.touches.polytopes.at(x[: self.nq], v, theta, dt)

    # -- derivatives ----------------------------------------------------------------------------------

    @property
    def residual(self) -> ca.Function | None:
        """(x, u, x_next, multipliers, t, dt, parameters) -> (nx + nm,), zero on a step."""
        if self.bounces is not None or self.features.pairs:
            return None
        x, u, p, theta, dt = self.symbols
        x1, t = ca.SX.sym("x_next", self.nx), ca.SX.sym("t")
        V = (part(x1, 0, self.nd) - part(x, 0, self.nd)) / dt
        R, X = equations(self, x, u, V, p, t, dt, theta, self.barrier)
        rows = ca.vertcat(R, x1[self.nd :] - X[self.nd :])
        return ca.Function("residual", [x, u, x1, p, t, dt, theta], [rows], OPTIONS)

    @property
    def relaxed(self) -> RelaxedStep | None:  # type: ignore[override]
        return None if self.bounces is not None else super().relaxed

    @shared
    def _relaxed(self) -> Callable[[np.ndarray, float], RelaxedStep]:
        return relaxed(self)

    @shared
    def _derivatives(self) -> ContactDerivatives:
        return ContactDerivatives(self)

    def first(self, steps: Steps) -> Linearization:
        if self.bounces is not None:
            return self.bounces.first(self, steps, False)
        return self._derivatives.first(steps, self.theta, self.barrier).linearization

    def first_with_times(self, steps: Steps) -> Linearization:
        if self.bounces is not None:
            return self.bounces.first(self, steps, True)
        return super().first_with_times(steps)

    def check_times(self) -> None:
        if self.bounces is None:
            super().check_times()

    def second(self, steps: Steps, Z: np.ndarray, zeta: np.ndarray) -> SecondOrder:
        if self.bounces is not None:
            raise NotImplementedError(
                f"{self.system.name}: steps with restitution have first derivatives only; use methods of "
                'first order, such as optimize(direction="gauss-newton"), or restitution=0'
            )
        return self._derivatives.second(self._derivatives.first(steps, self.theta, self.barrier), Z, zeta)

    def tensor(self, steps: Steps) -> tuple[SecondOrder, SecondOrder]:
        return super(MidpointVI, self).tensor(steps)

    # -- named quantities -----------------------------------------------------------------------------

    kinds = (*TouchingMap.kinds, "slip")

    def _impulse(self, touch: Touching) -> tuple[ca.SX, list[int]]:
        at, along = self.multiplier_names.index(touch.multipliers[0]), [0, 1, 2]
        along = along[1 - touch.lead :] if touch.cone.friction else along[:1]
        along = along[: touch.lead + touch.slip.numel()]
        return self.symbols.multipliers[at : at + len(along)], along

    def _of_touch(self, touch: Touching, kind: str, axis: str) -> ca.SX | None:
        if kind == "slip" and touch.cone.round and not axis:
            # the multiplier exceeds it by what an open contact keeps from the boundary of its cone
            (impulse, _), at = self._impulse(touch), self.multiplier_names.index(f"{touch.name}.slip")
            size = ca.sqrt(ca.sumsqr(impulse[touch.lead :]))
            return self.symbols.multipliers[at] * size / self._most(touch, impulse)
        return super()._of_touch(touch, kind, axis)

    def _more_quantities(self) -> list[str]:
        slips = (f"slip.{t.name}" for t in self.touches.all if t.cone.round)
        return [*super()._more_quantities(), *slips]
