"""Base class of one-step maps whose steps are explicit formulas, differentiated by CasADi."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable

import casadi as ca
import numpy as np

from vioc.compile.evaluate import Evaluator
from vioc.compile.many import source
from vioc.errors import StepError
from vioc.maps.derivatives import Linearization, MapDerivatives, SecondOrder, Steps
from vioc.maps.kernel import KernelMap, KernelPrograms, StepSolver
from vioc.maps.twins import own, shared

STEP = """
static void step(const lanes *x, const lanes *const *of, lanes *next, lanes *multipliers, lanes *error,
                 lanes *work) {
  const lanes *in[] = {x, of[0], of[1], of[2], of[3]};
  lanes *out[] = {next, multipliers, error};
  kernel(in, out);
}
"""


class ExplicitMap(KernelMap):
    """Base class of one-step maps whose next state is an explicit formula.

    Subclasses set the attributes of `OneStepMap`, and define the CasADi function `explicit` with SX symbols.
    If `explicit` solves equations, its third output is their residual, and `tolerance` is the largest
    residual that is accepted.
    """

    tolerance = np.inf  # a formula fails only by values that are not finite

    @property
    @abstractmethod
    def explicit(self) -> ca.Function:
        """CasADi function of a step: next state, multipliers and an error measure.
        It is (x, u, t, dt, parameters) -> (x_next, multipliers, error). The step failed if the error is
        larger than the map's tolerance. Subclasses should define it with the
        decorator `shared` (`vioc.maps.twins`), so that maps which differ only in numbers share it.
        """

    @shared
    def _programs(self) -> KernelPrograms:
        return KernelPrograms(self, lambda: self.explicit, lanes=self._lanes)

    @own
    def step_solver(self) -> StepSolver:
        return self._programs.solver(self._refused, **self._checks)

    def _lanes(self) -> str | None:
        kernel = self.explicit
        if not kernel.is_a("SXFunction"):
            return None
        args = kernel.sx_in()
        kernel = ca.Function("kernel", args, [ca.densify(o) for o in kernel.call(args)])
        sizes = zip(
            ("NX", "NU", "NP", "NM"), (self.nx, self.nu, args[4].numel(), kernel.numel_out(1)), strict=True
        )
        return source({"kernel": kernel}, STEP, **dict(sizes), NWORK=0)

    def _refused(self, x: np.ndarray, u: np.ndarray, k: int, t: float, dt: float):
        """Raise a `StepError` that explains why the step cannot be taken.

        There is no other way to take the step.
        """
        *after, error = (np.array(m) for m in self.explicit(x, u, t, dt, self.theta))
        if all(np.isfinite(m).all() for m in after):
            residual = float(error.item())
            text = f"step {k} (t = {t:.6g} s, dt = {dt:g} s) did not converge: error {residual:.2g}"
            raise StepError(text, k, residual, "no convergence")
        raise StepError(
            f"step {k}: the map returned numbers that are not finite from x = {x}, u = {u}",
            k,
            float("nan"),
            "not finite",
        )

    # -- derivatives ----------------------------------------------------------------------------

    @shared
    def _expressions(self) -> tuple[list[ca.SX], list[ca.SX], ca.SX, ca.SX]:
        """Expressions of a step from which its derivatives are made.

        The four values are the symbols of the step's arguments and of x_next; the variables of the
        derivatives (error of the state, input, parameters); the difference of the computed next state from
        x_next; and the multipliers.
        """
        x, u, _, theta, dt = self.symbols
        e, x1, t = ca.SX.sym("e", self.ndx), ca.SX.sym("x_next", self.nx), ca.SX.sym("t")
        after, multipliers, _ = self.explicit(self.space.retract_expression(x, e), u, t, dt, theta)
        error = self.space.difference_expression(x1, after)
        return [x, x1, u, t, dt, theta], [e, u, theta], error, multipliers

    def _evaluator(self, name: str, more: list[ca.SX], outputs: Callable[[], list[ca.SX]]) -> Evaluator:
        """Return an evaluator of the expressions that `outputs()` returns.

        The expressions are in the symbols of `_expressions` and in the further symbols `more`. Both are the
        arguments of the evaluator, except for the error of the state, which is zero.
        """
        args, (e, *_), _, _ = self._expressions

        def build() -> ca.Function:
            at_zero = ca.substitute(outputs(), [e], [ca.SX.zeros(e.numel())])
            return ca.Function(name, [*args, *more], [ca.densify(o) for o in at_zero])

        return Evaluator(self.backend.program(build, name))

    @shared
    def _jacobians(self) -> Evaluator:
        _, variables, *outputs = self._expressions
        return self._evaluator("first", [], lambda: [ca.jacobian(o, ca.vertcat(*variables)) for o in outputs])

    @shared
    def _hessian(self) -> Evaluator:
        _, variables, *outputs = self._expressions
        weights = [ca.SX.sym(name, o.numel()) for name, o in zip(("z", "zeta"), outputs, strict=True)]
        total = sum(ca.dot(w, o) for w, o in zip(weights, outputs, strict=True))
        return self._evaluator("second", weights, lambda: [ca.hessian(total, ca.vertcat(*variables))[0]])

    def _arguments(self, steps: Steps) -> list[np.ndarray]:
        return [steps.x0, steps.x1, steps.u, steps.t[:, None], steps.h[:, None], self.theta]

    @own
    def derivatives(self) -> MapDerivatives:
        return MapDerivatives(self, self._first, self._second, self.with_times)

    def _first(self, steps: Steps) -> Linearization:
        states, multipliers = self._jacobians(*self._arguments(steps))
        return Linearization.of(states, multipliers, self.nu)

    def _second(self, steps: Steps, Z: np.ndarray, zeta: np.ndarray) -> SecondOrder:
        return SecondOrder.of(self._hessian(*self._arguments(steps), Z, zeta)[0], self.ndx, self.nu)
