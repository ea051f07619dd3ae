"""Generalized midpoint variational integrator of a mechanism.

It solves [T] (19)-(22), (44)-(46), [S] (28):

    p_k + D1 L_d(q_k, q_k+1) + F-(k) - Dh(q_k)' lambda_k = 0
    h(q_k+1) = 0
    p_k+1 = D2 L_d(q_k, q_k+1) + F+(k)

with L_d = dt L((1 - alpha) q_k + alpha q_k+1, (q_k+1 - q_k) / dt). The maths is in
docs/maths/midpoint.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar

import casadi as ca
import numpy as np

from vioc.checks import as_names
from vioc.dynamics.consistency import directions_within
from vioc.dynamics.description.system import System
from vioc.dynamics.integrators.chord import ChordSolver
from vioc.dynamics.integrators.conditions import warn_singular
from vioc.dynamics.integrators.mechanical import MechanicalMap
from vioc.dynamics.integrators.midpoint_rule import MidpointRule, as_alpha
from vioc.dynamics.integrators.newton import NEAR, PASSING, dependent_constraints
from vioc.dynamics.integrators.structured import StructuredLinearization
from vioc.dynamics.lagrangian import LONG
from vioc.dynamics.redundancy import chosen, left_out
from vioc.errors import StepError
from vioc.maps.derivatives import MapDerivatives
from vioc.maps.kernel import StepSolver
from vioc.maps.twins import own, shared

# Largest |h| of a redundant constraint that follows from the others: over |Dh| (natural unit of q + |q|), to
# which the step's own error contributes, and over the size of the terms that cancel in h, to which rounding
# does
FOLLOWS = 1e-9
FEW = 8  # variables for each constraint, since the column of a constraint needs a recursion of its own


class MidpointVI(MechanicalMap):
    """Midpoint variational integrator of a mechanism, as a one-step map.

    Parameters
    ----------
    system : System
    dt : float
        Time step, s, > 0.
    alpha : float
        Point of the step where the Lagrangian is sampled, in [0, 1]; 1/2 is second order.
    forcing : "symmetric" or "left"
        Division of a force between the ends of a step: half and half (second order, [T] IV-E), or all at
        the start (first order; it reproduces the printed values of [S] II-A).
    wrap : sequence of str
        Names of angles whose errors are taken modulo 2 pi (`difference`), for feedback.
    tolerance : float
        Largest accepted last correction of q in the solution of a step, relative to |q| + 1 rad, or + the
        length of the mechanism.
    backend : {"virtual", "compiled", "auto"}
        Evaluator of the map's functions: CasADi's virtual machine, which starts at once; compiled C, kept on
        disk; or the first, and the second where it pays. Rollouts are the same to the bit (`Backend`).
    redundant : names, optional
        Constraints that follow from the others and are omitted. By default the map finds them, and a
        `RedundancyWarning` names them. Where they do not follow from the others, or the others are
        dependent, a step raises an error that names the right choice.

    Raises
    ------
    ModelError
        If an option is wrong, or the mass matrix is singular (the massless variables are named).

    Notes
    -----
    State x = [q_d, q_k, p, v_k]: dynamic and kinematic configurations, discrete momenta, rates of the
    kinematic configurations; names ``theta``, ``p.theta``, ``v.trolley``. Input [u, rho] with rho the
    next values of the kinematic configurations (``rho.trolley``). Without kinematic variables x is
    [q, p]. Multipliers are impulses with the sign of [S] (28a), of all constraints but the redundant ones.
    The quantities ``force.NAME`` exist for all constraints and have least norm.
    """

    choices: ClassVar[tuple[str, ...]] = ("alpha", "forcing", "redundant")

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
        redundant: str | Iterable[str] | None = None,
    ):
        self.alpha, self.forcing = as_alpha(alpha, forcing), forcing
        if isinstance(system, System):
            self.redundant = chosen(system, None if redundant is None else as_names(redundant, "redundant"))
        super().__init__(system, dt, wrap, tolerance, backend, takes=("slips",))
        # Share of a constraint impulse that balances potential forces of the step before. Over unequal steps,
        # other forces with another share (``forcing="left"``, or alpha other than 1/2) are treated like them.
        self._impulse_behind = self.alpha
        self.symmetric = alpha == 0.5 and (forcing == "symmetric" or not system.forces)

    def __repr__(self) -> str:
        return (
            f"MidpointVI({self.system.name}: nx = {self.nx}, nu = {self.nu}, "
            f"{self.nm} constraints, dt = {self.dt:g} s, alpha = {self.alpha:g}, {self.forcing} forcing)"
        )

    # -- steps ------------------------------------------------------------------------------------

    @shared
    def rule(self) -> MidpointRule:
        """Discrete equations of a step of the midpoint rule."""
        return MidpointRule(self, self.alpha, self.forcing, self.lagrangian.nonholonomic)

    @shared
    def chord(self) -> ChordSolver:
        """Solver of the discrete equations of a step, by simplified Newton iteration."""
        inverse = self.rule.inverse_of_mass if self._articulated else None
        return ChordSolver(self.rule, inverse, self._contradiction if self.redundant else None)

    @shared
    def _articulated(self) -> bool:
        """Flag, True if the articulated-body recursions solve a step.
        These recursions over the tree of bodies are used for long chains with few constraints and soft
        springs.
        """
        if FEW * self.nm > self.nd or self.lagrangian.depths < LONG:
            return False
        dt = ca.SX.sym("dt")
        return self.lagrangian.hinged(self.rule.of_terms(dt), dt)

    @own
    def step_solver(self) -> StepSolver:
        return self.chord.programs.solver(self._rescued, **self._checks)

    @shared
    def _contradiction(self) -> ca.Function:
        """CasADi function that detects a contradiction between redundant constraints.
        Its arguments are (q, parameters). The result is infinite if a redundant constraint is violated by
        more than rounding errors, or if the gradient of a constraint that is not redundant is zero up to
        rounding errors; else it is 0.
        """
        q, theta, names = ca.SX.sym("q", self.nq), self.symbols.parameters, self.system.constraint_names
        omitted, independent = (
            [i for i, n in enumerate(names) if (n in self.redundant) == left] for left in (True, False)
        )
        h, Dh, sizes, directions = self._all_constraints(q, theta)
        rounding = FOLLOWS * (
            ca.fabs(Dh[omitted, :]) @ (ca.DM(self.lagrangian.natural_sizes) + ca.fabs(q)) + sizes[omitted, 0]
        )
        sound = ca.vertcat(ca.fabs(h[omitted]) <= rounding, ca.sum2(ca.fabs(directions[independent, :])) > 0)
        return ca.Function(
            "contradiction", [q, theta], [ca.if_else(ca.sum1(sound) == len(names), 0.0, ca.inf)]
        )

    def _check_starts(self, X: np.ndarray, k: int) -> None:
        try:
            super()._check_starts(X, k)
        except StepError as error:
            raise self._advised(error, X[error.k - k, : self.nq]) from None

    def _advised(self, error: StepError, q: np.ndarray) -> StepError:
        """Return the error of a failed step, with advice added to its text.
        The advice says which dependent constraints to omit. It holds for the configuration q.
        """
        if error.cause != "singular constraints":
            return error
        better = left_out(self.whole, q, NEAR, **self.parameters)[1]
        if not better or set(better) == set(self.redundant):
            return error
        advice = f"MidpointVI(..., redundant={better!r}) leaves out what follows from the others there"
        return error if advice in str(error) else error.saying(f"{error}. {advice}")

    def _advice(self, q: np.ndarray) -> str:
        """Return advice, as text, on dependent constraints.
        It is meant for a step that ends near a configuration q with dependent constraints.
        """
        rank, better = left_out(self.whole, q, NEAR, **self.parameters)
        if rank == self.nm and better and set(better) != set(self.redundant):
            return f"MidpointVI(..., redundant={better!r}) leaves out what follows from the others there"
        return PASSING

    def _rescued(self, x: np.ndarray, u: np.ndarray, k: int, t: float, dt: float):
        """Solve a step by continuation after the CasADi solver has failed.
        That solver has found no root that is certified, which means proven to be the physical solution. The
        results are the next state and the multipliers.

        `Driver` tries these solvers in turn and accepts the first error within the tolerance:

        1. The kernel (`chord.solved_step`): chord iterations from a predicted end, certified by their
           contraction and the pivots of the matrix; else continuation in the step length, whose every share
           is certified in the same way (`with_continuation`).
        2. For long chains, whose kernel uses the mass matrix, a kernel with the exact matrix
           (`StepSolver.robust`).
        3. This method: continuation by full Newton iterations in numpy, with a certificate of its own
           (`newton.follow`). It begins at the last share that the kernel reached; with constraints at length
           0. `newton.solve_step` raises `StepError` if the step does not exist.
        """
        try:
            x_next, multipliers = self.chord.rescued(self, x, u, k, t, dt, advice=self._advice)
        except StepError as error:
            raise self._advised(error, x[: self.nq]) from None
        if self.redundant and float(self._contradiction(x_next[: self.nq], self.theta)) != 0.0:
            J = directions_within(self.lagrangian, x_next[: self.nq], NEAR, **self.parameters)
            where = f"step {k} (t = {t:.6g} s): Dh(q_k+1)"
            if (flat := dependent_constraints(J, self.multiplier_names, where, k, 0.0, NEAR)) is not None:
                raise self._advised(flat, x_next[: self.nq])
            h = self.whole.constraints(x_next[: self.nq], **self.parameters)
            violations = {n: h[self.system.constraint_names.index(n)] for n in self.redundant}
            worst = max(violations, key=lambda n: abs(violations[n]))
            better = left_out(self.whole, x[: self.nq], **self.parameters)[1]
            raise StepError(
                f"step {k} (t = {t:.6g} s): {worst} was left out as redundant, but does not follow from the "
                f"other constraints there: h = {violations[worst]:.3g}, expected 0. Where the step starts "
                f"{', '.join(better) or 'no constraint'} follows from the others: "
                f"MidpointVI(..., redundant={better!r}), if they do not contradict each other",
                k,
                abs(violations[worst]),
                "singular constraints",
            )
        warn_singular(self, self.rule, x, u, t, dt, x_next)
        return x_next, multipliers

    # -- derivatives ------------------------------------------------------------------------------

    @shared
    def _structured(self) -> StructuredLinearization:
        return StructuredLinearization(self.rule)

    @own
    def derivatives(self) -> MapDerivatives:
        return self._structured.of_map(self)
