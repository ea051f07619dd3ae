"""Offset-free tracking: feedback without steady-state error under disturbances.

The target depends on the reference and the estimated disturbances. Maths: docs/maths/feedback.md,
"Offset-free tracking", whose equations are numbered (OF).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import casadi as ca
import numpy as np

from vioc.checks import as_names
from vioc.compile.evaluate import Evaluator
from vioc.control.linear.weights import named_jacobians
from vioc.control.regulators.formulas import LawFormula
from vioc.control.regulators.law import Law, StateLaw, as_law
from vioc.maps.made.extended import ExtendedMap
from vioc.names import quantity_name
from vioc.runs.steps import check_steps


class SteadyTarget(NamedTuple):
    """Target state (nx,) and input (nu,) to which a feedback law regulates.
    `left` is the largest residual of the equations whose solution is the target.
    """

    x: np.ndarray
    u: np.ndarray
    left: float = 0.0


class OffsetFree(Law):
    """Feedback law that removes the steady-state error under disturbances.
    The law is u = u_t - K difference(x_t, x^), with the gain K and the estimated state x^. The target (x_t,
    u_t) compensates the estimated disturbances.

    With `hold` the target is an equilibrium under the estimated disturbances.

    Parameters
    ----------
    regulator : SteadyRegulator, Regulator or law with gains
        Regulator of the mechanism without disturbances.
    f : ExtendedMap
        The observer's map: the regulator's map with disturbances, parameters and biases as states.
    hold : names, optional
        Quantities of the state that must equal their reference, for a law about one point. One Newton step
        per sample, from the previous target, then finds the target (OF 2). Required if parameters or
        disturbances of states are estimated. By default the estimated disturbances of inputs are subtracted
        from the input (OF 1), which is exact along any trajectory.

    Raises
    ------
    TypeError
        A law without gains, or another kind of map.
    ValueError
        Maps that do not belong together; missing `hold`; `hold` with a law along a trajectory.
    """

    def __init__(self, regulator: Any, f: ExtendedMap, hold: str | Iterable[str] | None = None):
        law = as_law(regulator)
        if not isinstance(law, StateLaw) or not isinstance(f, ExtendedMap):
            raise TypeError(
                "expected a regulator with gains, and the ExtendedMap of the observer, got "
                f"{type(law).__name__} and {type(f).__name__}"
            )
        inner, g = f.inner, law.map
        if (inner.state_names, inner.input_names) != (g.state_names, g.input_names):
            raise ValueError("f: it extends a map with other states or inputs than the regulator's")
        check_steps(g.dt, f.dt, "regulator", "the extended map")
        self.law, self.map = law, f
        self.names = (
            () if hold is None else tuple(quantity_name(inner, n, "hold") for n in as_names(hold, "hold"))
        )
        if hold is None and not f.matched:
            unmatched = ", ".join(n for n in f.constants if not n.startswith("bias."))
            raise ValueError(
                f"hold: among {unmatched} is more than disturbances of inputs, so the target is to be solved "
                "for; name as many quantities as there are inputs, hold=[...]"
            )
        if hold is not None and not (law.after == "holds" and len(law.U) == 1):
            raise ValueError("hold: of a law that holds one point, such as dlqr about an equilibrium")
        if self.names:
            s = inner.symbols
            values = ca.vertcat(*(inner.quantity(n) for n in self.names))
            self._values = Evaluator(ca.Function("held", [s.x, s.parameters], [values]))
            named_jacobians(inner, self.names, law.X[:1], "hold", "hold quantities of the state")

    def start(self) -> SteadyTarget:
        """Return the regulator's equilibrium as the first target."""
        return SteadyTarget(self.law.X[0], self.law.U[0])

    def apply(self, k: int, x: np.ndarray, memory: SteadyTarget) -> tuple[np.ndarray, SteadyTarget]:
        """Return the control input and the new target.
        x is the estimated state, extended by disturbances and parameters.
        """
        i, (state, constants) = self.law.row(k), self.map.split(x)
        if self.names:
            target = self._next(memory, constants)
        else:
            target = SteadyTarget(self.law.X[i], self.law.U[i] - self.map.input_disturbance(constants))
        f = self.law.map
        return target.u - self.law.K[i] @ f.difference(target.x, state), target

    def __call__(self, k: int, x: Any) -> np.ndarray:
        if self.names:
            return super().__call__(k, x)
        return self.apply(k, np.asarray(x, float), self.start())[0]

    def formula(self) -> LawFormula | None:
        """Return the law as symbolic expressions.
        Return None if the law has quantities to hold, since Newton's method then computes the target. The
        memory of the law is the target x, u.
        """
        law, f = self.law.formula(), self.map
        nx, nu = f.inner.nx, f.nu
        if self.names:
            return None
        by_constants = ca.DM(f.input_disturbance(np.eye(len(f.constants))).T)

        def expression(x: ca.SX, memory: ca.SX, numbers: ca.SX) -> tuple[ca.SX, ca.SX]:
            u, _ = law.expression(x[:nx], ca.SX(0, 1), numbers)
            offset = by_constants @ x[nx:]
            return u - offset, ca.vertcat(numbers[:nx], numbers[nx : nx + nu] - offset)

        return LawFormula(
            ("offset-free", law.key, f.constants, f.disturbances),
            expression,
            law.rows,
            stored=lambda target: np.concatenate([target.x, target.u]),
            restored=lambda numbers: SteadyTarget(numbers[:nx], numbers[nx:]),
        )

    def _next(self, target: SteadyTarget, constants: np.ndarray) -> SteadyTarget:
        """Return the next target state and input, by one Gauss-Newton step.
        The step starts at `target`; `constants` are the estimated disturbances, parameters and biases.

        The equations of the target are: the map keeps the state, and the quantities in `hold` equal their
        reference. If several Gauss-Newton steps exist, the shortest one is taken. See (OF 2).
        """
        f, n = self.map.inner, self.map.inner.ndx
        steps = self.map.steps_at(np.concatenate([target.x, constants])[None], target.u[None])
        lin = self.map.derivatives.linearize(steps)
        A, B = lin.A[0, :n, :n], lin.B[0, :n]
        J = named_jacobians(f, self.names, target.x[None], "hold", "hold quantities of the state")[0]
        theta = self.map.owner(constants).theta
        error = self._values(self.law.X[0], f.theta)[0] - self._values(target.x, theta)[0]
        drift = f.difference(target.x, self.map.split(steps.x1[0])[0])
        residual = np.concatenate([-drift, error[:, 0]])
        M = np.block([[A - np.eye(n), B], [J, np.zeros((len(J), f.nu))]])
        step = np.linalg.lstsq(M, residual, rcond=None)[0]
        return SteadyTarget(f.retract(target.x, step[:n]), target.u + step[n:], float(np.abs(residual).max()))

    def __repr__(self) -> str:
        what = f"holds {', '.join(self.names)}" if self.names else "disturbances off the input"
        return f"OffsetFree({self.law!r}; {what})"
