"""`MidpointVI`: the generalized midpoint variational integrator ([T] (19)-(22), (44)-(46), [S] (28)).

    p_k + D1 L_d(q_k, q_k+1) + F-(k) - Dh(q_k)' lambda_k = 0
    h(q_k+1) = 0
    p_k+1 = D2 L_d(q_k, q_k+1) + F+(k)

with L_d = dt L((1 - alpha) q_k + alpha q_k+1, (q_k+1 - q_k) / dt). The maths is in
docs/maths/midpoint.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

import casadi as ca
import numpy as np

from vioc.checks import as_names
from vioc.compile.evaluate import Evaluator
from vioc.dynamics.algebra.vectors import part
from vioc.dynamics.consistency import directions_within
from vioc.dynamics.description.system import System
from vioc.dynamics.integrators.chord import (
    ChordMap,
    ChordParts,
    StepFunctions,
    lanes,
    solved_step,
    step_functions,
)
from vioc.dynamics.integrators.conditions import warn_singular
from vioc.dynamics.integrators.newton import NEAR, dependent_constraints
from vioc.dynamics.integrators.structured import StructuredLinearization
from vioc.dynamics.lagrangian import LONG, OPTIONS
from vioc.dynamics.redundancy import chosen, left_out
from vioc.errors import ModelError, StepError
from vioc.maps.derivatives import Linearization, SecondOrder, Steps
from vioc.maps.kernel import KernelPrograms
from vioc.maps.twins import shared

FORCING = ("symmetric", "left")
# |h| of a redundant constraint up to which it follows from the others: over |Dh| (1 + |q|), of which a step
# leaves a part, and the size of the numbers that cancel in h, of which rounding is a part
FOLLOWS = 1e-9
FEW = 8  # variables for each constraint, whose column takes a recursion of its own


class MidpointVI(ChordMap):
    """The midpoint variational integrator of a system, as a one-step map.

    Parameters
    ----------
    system : System
    dt : float
        Time step, s, > 0.
    alpha : float
        Where in the step the Lagrangian is sampled, in [0, 1]; 1/2 is second order.
    forcing : "symmetric" or "left"
        How a force is split over a step's ends: half and half (second order, [T] IV-E), or all at the
        start (first order; [S] II-A, whose printed numbers it gives).
    wrap : sequence of str
        Angles whose errors are taken modulo 2 pi (`difference`), for feedback.
    tolerance : float
        Largest accepted residual of a step, as an error of q relative to 1 + |q|.
    backend : {"virtual", "compiled", "auto"}
        What runs the map's functions: CasADi's virtual machine, which starts at once; compiled C, kept on
        disk; or the one, and the other where it pays. Rollouts are the same to the bit (`Backend`).

    redundant : names, optional
        Constraints that follow from the others and are not imposed again; by default they are found, and a
        `RedundancyWarning` names them. Where they do not follow, or the others do not suffice, a step is an
        error that names the choice to make.

    Raises
    ------
    ModelError
        If an option is wrong, or the mass matrix is singular (the massless variables are named).

    Notes
    -----
    State x = [q_d, q_k, p, v_k]: dynamic and kinematic configurations, discrete momenta, rates of the
    kinematic configurations; names ``theta``, ``p.theta``, ``v.trolley``. Input [u, rho] with rho the
    next values of the kinematic configurations (``rho.trolley``). Without kinematic variables x is
    [q, p]. Multipliers are impulses with the sign of [S] (28a), of all constraints but the redundant; the
    quantities ``force.NAME`` are of all, of least norm.
    """

    choices: ClassVar[tuple[str, ...]] = ("alpha", "forcing", "redundant")
    slipless = True

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
        if not 0 <= alpha <= 1:
            raise ModelError(f"alpha: expected a number in [0, 1], got {alpha!r}")
        if forcing not in FORCING:
            raise ModelError(f"forcing: expected one of {', '.join(FORCING)}, got {forcing!r}")
        self.alpha = float(alpha)
        self.forcing = forcing
        if isinstance(system, System) and "redundant" in self.choices:
            self.redundant = chosen(system, None if redundant is None else as_names(redundant))
        super().__init__(system, dt, wrap, tolerance, backend)

    @property
    def impulse_behind(self) -> float:  # type: ignore[override]
        """Of what potentials load a constraint with; over unequal steps forces that act by another share
        (``forcing="left"``, or alpha other than 1/2) are read as if by this one.
        """
        return self.alpha

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self.system.name}: nx = {self.nx}, nu = {self.nu}, "
            f"{self.nm} constraints, dt = {self.dt:g} s, alpha = {self.alpha:g}, {self.forcing} forcing)"
        )

    # -- the equations of a step ------------------------------------------------------------------

    def force_shares(self, dt: Any) -> tuple[Any, Any]:
        """F- and F+ as multiples of F at the sample."""
        return (dt / 2, dt / 2) if self.forcing == "symmetric" else (dt, 0.0)

    def parts(self, q0: Any, q1: Any, p: Any, u: Any, t: Any, dt: Any, theta: Any) -> ChordParts:
        a, nd = self.alpha, self.nd
        args = ((1 - a) * q0 + a * q1, (q1 - q0) / dt, u, t + a * dt, theta)
        L_q, L_v, F = (part(e, 0, nd) for e in self._first_order(*args))
        minus, plus = self.force_shares(dt)
        balance = p + dt * (1 - a) * L_q - L_v + minus * F
        momentum = dt * a * L_q + L_v + plus * F
        return ChordParts(balance, momentum, dt * L_q + (minus + plus) * F)

    @shared
    def _first_order(self) -> ca.Function:
        lag = self.lagrangian
        return lag.function("first_order", [lag.L_q, lag.L_v, lag.F])

    @property
    def kept_on_the_way(self) -> list[bool]:
        """Of which constraints a step keeps A(q) dq = 0, not h(q_k+1) = 0."""
        return self.lagrangian.nonholonomic

    def closing(self, q0: Any, q1: Any, theta: Any) -> tuple[Any, Any]:
        return self._closing(q0, q1, theta) if any(self.kept_on_the_way) else super().closing(q0, q1, theta)

    @shared
    def _closing(self) -> ca.Function:
        """h(q1), and A(q_m) (q1 - q0) with q_m = (q0 + q1)/2 (docs/maths/nonholonomic.md, (2))."""
        theta = self.symbols.parameters
        q0, q1 = ca.SX.sym("q0", self.nq), ca.SX.sym("q1", self.nq)
        after, between = self.constraint(q1, theta)[0], self.constraint((q0 + q1) / 2, theta)[1]
        rows = [
            between[i, :] @ (q1 - q0) if on_the_way else after[i]
            for i, on_the_way in enumerate(self.kept_on_the_way)
        ]
        column = ca.vertcat(ca.SX(0, 1), *rows)
        return ca.Function("closing", [q0, q1, theta], [column, ca.jacobian(column, q1)], OPTIONS)

    @shared
    def _newton_matrix(self) -> ca.Function:
        """D2 D1 L_d + D2 F- for dynamic q ([T] (22), [S] (8)) at (q_m, v, u, t, parameters, dt)."""
        lag, g, a, nd = self.lagrangian, self.lagrangian.graph, self.alpha, self.nd
        dt = ca.SX.sym("dt")
        K, C, M = lag.second
        minus, _ = self.force_shares(dt)
        by_q = dt * (1 - a) * K - C + minus * ca.jacobian(lag.F, g.q_vector)
        by_v = dt * (1 - a) * C.T - M + minus * ca.jacobian(lag.F, g.v_vector)
        return lag.function("newton_matrix", [(a * by_q + by_v / dt)[:nd, :nd]], [dt])

    def slope(self, q0: Any, q1: Any, u: Any, t: Any, dt: Any, theta: Any) -> ca.SX:
        a = self.alpha
        return self._newton_matrix((1 - a) * q0 + a * q1, (q1 - q0) / dt, u, t + a * dt, theta, dt)

    def newton_matrix_of_terms(self, dt: ca.SX) -> ca.SX:
        """What potentials other than gravity, and forces, add to D2 D1 L_d + D2 F-, (nd, nd)."""
        lag, g, a, nd = self.lagrangian, self.lagrangian.graph, self.alpha, self.nd
        minus, _ = self.force_shares(dt)
        by_q = -dt * (1 - a) * lag.stiffness + minus * ca.jacobian(lag.F, g.q_vector)
        by_v = minus * ca.jacobian(lag.F, g.v_vector)
        return (a * by_q + by_v / dt)[:nd, :nd]

    @shared
    def _articulated(self) -> bool:
        """Whether articulated-body recursions solve a step: long chains, few constraints, soft terms."""
        if FEW * self.nm > self.nd or self.lagrangian.depths < LONG:
            return False
        dt = ca.SX.sym("dt")
        return self.lagrangian.hinged(self.newton_matrix_of_terms(dt), dt)

    @shared
    def _kernel(self) -> ca.Function:
        return self._checked(solved_step(self, self._articulated))

    @shared
    def _robust_kernel(self) -> ca.Function | None:
        """The exact matrix, for the steps that the mass matrix does not solve, or not certify."""
        return self._checked(solved_step(self, False)) if self._articulated else None

    @shared
    def _programs(self) -> KernelPrograms:
        kernels = lambda: self._kernel, lambda: self._robust_kernel
        return KernelPrograms(self, *kernels, lambda: lanes(self, self.step_functions))

    def _checked(self, solved: ca.Function) -> ca.Function:
        """A step that does not count as solved where what is redundant contradicts the rest."""
        if not self.redundant:
            return solved
        args = solved.mx_in()
        x_next, multipliers, error = solved(*args)
        off = self._contradiction(x_next[: self.nq], args[-1])
        return ca.Function("checked_step", args, [x_next, multipliers, error + off])

    @shared
    def _contradiction(self) -> ca.Function:
        """(q, parameters) -> 0, or infinity where a redundant h is not 0, or another's Dh is, by rounding."""
        q, theta, names = ca.SX.sym("q", self.nq), self.symbols.parameters, self.system.constraint_names
        out, kept = (
            [i for i, n in enumerate(names) if (n in self.redundant) == left] for left in (True, False)
        )
        h, Dh, sizes, directions = self._all_constraints(q, theta)
        rounding = FOLLOWS * (ca.fabs(Dh[out, :]) @ (1 + ca.fabs(q)) + sizes[out, 0])
        sound = ca.vertcat(ca.fabs(h[out]) <= rounding, ca.sum2(ca.fabs(directions[kept, :])) > 0)
        return ca.Function(
            "contradiction", [q, theta], [ca.if_else(ca.sum1(sound) == len(names), 0.0, ca.inf)]
        )

    @shared
    def step_functions(self) -> StepFunctions:
        return step_functions(self, self._articulated, self._contradiction if self.redundant else None)

    def _check_starts(self, X: np.ndarray, k: int) -> None:
        try:
            super()._check_starts(X, k)
        except StepError as error:
            raise self._advised(error, X[error.k - k, : self.nq]) from None

    def _advised(self, error: StepError, q: np.ndarray) -> StepError:
        """The error, of dependent constraints with the choice that suits the configuration q."""
        if error.cause != "singular constraints" or "redundant" not in self.choices:
            return error
        better = left_out(self.whole, q, NEAR, **self.parameters)[1]
        if not better or set(better) == set(self.redundant):
            return error
        advice = f"MidpointVI(..., redundant={better!r}) leaves out what follows from the others there"
        return error if advice in str(error) else error.saying(f"{error}. {advice}")

    def advice_on_singular(self, q: np.ndarray) -> str:
        rank, better = left_out(self.whole, q, NEAR, **self.parameters)
        if rank == self.nm and better and set(better) != set(self.redundant) and "redundant" in self.choices:
            return f"MidpointVI(..., redundant={better!r}) leaves out what follows from the others there"
        return super().advice_on_singular(q)

    def _rescued(self, x: np.ndarray, u: np.ndarray, k: int, t: float, dt: float):
        try:
            x_next, multipliers = super()._rescued(x, u, k, t, dt)
        except StepError as error:
            raise self._advised(error, x[: self.nq]) from None
        if self.redundant and float(self._contradiction(x_next[: self.nq], self.theta)) != 0.0:
            J = directions_within(self.lagrangian, x_next[: self.nq], NEAR, **self.parameters)
            where = f"step {k} (t = {t:.6g} s): Dh(q_k+1)"
            if (flat := dependent_constraints(J, self.multiplier_names, where, k, 0.0, NEAR)) is not None:
                raise self._advised(flat, x_next[: self.nq])
            h = self.whole.constraints(x_next[: self.nq], **self.parameters)
            off = {n: h[self.system.constraint_names.index(n)] for n in self.redundant}
            worst = max(off, key=lambda n: abs(off[n]))
            better = left_out(self.whole, x[: self.nq], **self.parameters)[1]
            raise StepError(
                f"step {k} (t = {t:.6g} s): {worst} was left out as redundant, but does not follow from the "
                f"other constraints there: h = {off[worst]:.3g}, expected 0. Where the step starts "
                f"{', '.join(better) or 'no constraint'} follows from the others: "
                f"MidpointVI(..., redundant={better!r}), if they do not contradict each other",
                k,
                abs(off[worst]),
                "singular constraints",
            )
        warn_singular(self, x, u, t, dt, x_next)
        return x_next, multipliers

    # -- starts -----------------------------------------------------------------------------------

    @property
    def symmetric(self) -> bool:  # type: ignore[override]
        return self.alpha == 0.5 and (self.forcing == "symmetric" or not self.system.forces)

    def _start_momentum(self, q: np.ndarray, v: np.ndarray, u: Any) -> np.ndarray:
        p = super()._start_momentum(q, v, u)
        if self.forcing == "left":  # it lacks half an input's impulse
            forces = self.check_input(u)[: len(self.system.inputs)]
            p = p - self.dt / 2 * self._force(q, v, forces, np.zeros(1), self.theta)[0][: self.nd, 0]
        return p

    @shared
    def _force(self) -> Evaluator:
        return Evaluator(self.lagrangian.function("force", [self.lagrangian.F]))

    # -- derivatives ------------------------------------------------------------------------------

    @shared
    def _structured(self) -> StructuredLinearization:
        return StructuredLinearization(self)

    def first(self, steps: Steps) -> Linearization:
        return self._structured.linearize(steps, self.theta)

    def second(self, steps: Steps, Z: np.ndarray, zeta: np.ndarray) -> SecondOrder:
        return self._structured.contract(steps, self.theta, Z, zeta)

    def tensor(self, steps: Steps) -> tuple[SecondOrder, SecondOrder]:
        return self._structured.tensor(steps, self.theta)
