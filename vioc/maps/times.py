"""Derivatives of steps with respect to their length and start time.
They are computed from the equations that define a step.

A step solves r(x, u, x_next, multipliers, t, dt, parameters) = 0. With y the errors of x_next and the
multipliers, and s the errors of x, inputs, parameters, dt and t,

    y_s = -r_y^-1 r_s,    (z . x_next + zeta . multipliers)_ss = T' (w . r)'' T,    w = -r_y^-T (z, zeta)

where T = [I; y_s] (implicit function theorem). Known columns are taken from the derivatives of the steps. Of
the second derivatives only the columns of dt and t are computed, each by one product of (w . r)'' with a
vector.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import casadi as ca
import numpy as np

from vioc.compile.evaluate import Evaluator
from vioc.maps.derivatives import Linearization, MapDerivatives, SecondOrder, Steps, solved

if TYPE_CHECKING:
    from vioc.maps.protocol import OneStepMap

TIMES = 2  # dt and t


class StepTimes:
    """Evaluator of derivatives of steps with respect to step length and start time.
    The derivatives are computed from the equations that define a step.

    Parameters
    ----------
    f : OneStepMap
        Map with `explicit` or `residual`.

    Raises
    ------
    NotImplementedError
        If the map has neither.
    """

    def __init__(self, f: OneStepMap):
        unknowns = f.nx + len(f.multiplier_names)
        if f.explicit is None and (f.residual is None or f.residual.numel_out(0) < unknowns):
            raise NotImplementedError(
                f"{type(f).__name__} tells no equations that determine its steps, so derivatives by their "
                "lengths, which a free duration needs, are not known; give the duration, or take a map with "
                "`explicit` or `residual`: MidpointVI, LinearTimeVI, MaximalVI without contact, GroupVI of "
                "one stage, RungeKutta, CasadiMap, and compositions of these"
            )
        self.f = f

    @cached_property
    def _equations(self):
        """Symbols and residual of the equations that define a step.
        The symbols are the arguments and results of the step, a displacement e of the initial state, and a
        displacement y of the results (the next state and the multipliers). The residual is an expression
        in these symbols.

        The return values are the arguments and results, e, y and the residual r.
        """
        f, nm = self.f, len(self.f.multiplier_names)
        formula = f.explicit
        function = f.residual if formula is None else formula
        assert function is not None
        kind = ca.SX if function.is_a("SXFunction") else ca.MX
        sizes = {"x": f.nx, "u": f.nu, "x_next": f.nx, "multipliers": nm, "t": 1, "dt": 1}
        sizes |= {"theta": len(f.parameters), "e": f.ndx, "y": f.ndx + nm}
        x, u, x1, lam, t, dt, theta, e, y = (kind.sym(name, size) for name, size in sizes.items())
        error, change = ca.vertsplit(y, [0, f.ndx, f.ndx + nm])  # a slice of one entry may be a row
        start, end = f.space.retract_expression(x, e), f.space.retract_expression(x1, error)
        impulses = lam + change
        if formula is None:
            r = function(start, u, end, impulses, t, dt, theta)
        else:
            r = ca.vertcat(end, impulses) - ca.vertcat(*formula(start, u, t, dt, theta)[:2])
        return [x, u, x1, lam, t, dt, theta], e, y, r

    def _evaluator(self, name: str, more: list, outputs: list) -> Evaluator:
        """Return an evaluator of expressions in the symbols of a step's equations.

        Errors of states and changes of multipliers are zero.
        """
        args, e, y, _ = self._equations
        zeros = [type(e).zeros(v.numel()) for v in (e, y)]
        expressions = [ca.densify(o) for o in ca.substitute(outputs, [e, y], zeros)]
        function = ca.Function(name, [*args, *more], expressions)
        return Evaluator(self.f.backend.prepare(function))

    @cached_property
    def _slopes(self) -> Evaluator:
        """Evaluator of the first derivatives of the residual r of a step's equations.
        It returns r_y and [r_dt, r_t]: the derivatives by the results y of the step, and two columns, the
        derivatives by the step length and by the start time.
        """
        args, _, y, r = self._equations
        return self._evaluator(
            "times_first", [], [ca.jacobian(r, y), ca.jacobian(r, ca.vertcat(args[5], args[4]))]
        )

    @cached_property
    def _curvature(self) -> Evaluator:
        """Evaluator of second derivatives of the residual r of a step's equations.
        It returns those of the weighted sum w . r that involve the step length or the start time, as the two
        columns (w . r)'' [0; 1; y_s] for dt and for t. Their rows are (e, u, parameters, dt, t, y), where e
        is the error of the initial state and y are the results of the step; y_s are the derivatives of y by
        dt and by t.
        """
        args, e, y, r = self._equations
        kind, (_, u, _, _, t, dt, theta) = type(e), args
        w, y_s = kind.sym("w", r.numel()), kind.sym("y_s", y.numel(), TIMES)
        variables = ca.vertcat(e, u, theta, dt, t, y)
        n = variables.numel() - y.numel() - TIMES
        along = ca.vertcat(kind.zeros(n, TIMES), kind.eye(TIMES), y_s)
        columns = ca.jtimes(ca.gradient(ca.dot(w, r), variables), variables, along)
        return self._evaluator("times_second", [w, y_s], [columns])

    def _arguments(self, steps: Steps, theta: np.ndarray) -> list[np.ndarray]:
        arrays = steps.x0, steps.u, steps.x1, steps.multipliers, steps.t[:, None], steps.h[:, None]
        return [*arrays, theta]

    def _solution(self, r_y: np.ndarray, columns: np.ndarray, transposed: bool = False) -> np.ndarray:
        """Return -r_y^-1, or with `transposed` its transpose, times `columns`, per step.
        The matrix r_y is the Jacobian of a step's residual with respect to the step's results. If the states
        form a manifold, there are more equations than results, and a QR factorization solves them.
        """
        if r_y.shape[1] == r_y.shape[2]:
            return -solved(np.swapaxes(r_y, 1, 2) if transposed else r_y, columns)
        Q, R = np.linalg.qr(r_y)
        if transposed:
            return -Q @ solved(np.swapaxes(R, 1, 2), columns)
        return -solved(R, np.swapaxes(Q, 1, 2) @ columns)

    def added(self, to: MapDerivatives) -> MapDerivatives:
        """Return a map's derivatives, extended by those with respect to times.
        The times are the step length and the start time of each step.
        """
        f = to.map

        def second(steps: Steps, Z: np.ndarray, zeta: np.ndarray) -> SecondOrder:
            return self.second(steps, f.theta, to.first(steps), to.second(steps, Z, zeta), Z, zeta)

        return MapDerivatives(
            f, lambda steps: self.first(steps, f.theta, to.first(steps)), second, lambda: self.added(to)
        )

    def first(self, steps: Steps, theta: np.ndarray, lin: Linearization) -> Linearization:
        """Return a linearization of steps, extended by columns for two times.
        The columns are the derivatives with respect to the step length and the start time of each step.
        """
        r_y, r_s = self._slopes(*self._arguments(steps, theta))
        slopes = self._solution(r_y, r_s)
        ndx = self.f.ndx
        P, E = (np.concatenate(m, axis=2) for m in ((lin.P, slopes[:, :ndx]), (lin.E, slopes[:, ndx:])))
        return Linearization(lin.A, lin.B, P, lin.C, lin.D, E)

    def second(
        self,
        steps: Steps,
        theta: np.ndarray,
        lin: Linearization,
        H: SecondOrder,
        Z: np.ndarray,
        zeta: np.ndarray,
    ) -> SecondOrder:
        """Return second derivatives of steps, extended by those with respect to times.
        The times are the step length and the start time of each step. The argument H has the second
        derivatives without times. All are those of weighted sums of the results of each step, with the
        weights Z of the next states and `zeta` of the multipliers.
        """
        args = self._arguments(steps, theta)
        r_y, r_s = self._slopes(*args)
        weights = np.concatenate([Z, zeta], axis=1)[:, :, None]
        w, slopes = self._solution(r_y, weights, transposed=True)[..., 0], self._solution(r_y, r_s)
        columns = self._curvature(*args, w, np.swapaxes(slopes, 1, 2).reshape(len(slopes), -1))[0]
        n = columns.shape[1] - slopes.shape[1]
        y_s = np.concatenate([lin.matrix, slopes], axis=2)
        block = columns[:, :n] + np.swapaxes(y_s, 1, 2) @ columns[:, n:]
        whole = np.empty((len(block), n, n))
        cut = n - TIMES
        whole[:, :cut, :cut] = H.matrix
        whole[:, :, cut:] = block
        whole[:, cut:, :cut] = np.swapaxes(block[:, :cut], 1, 2)
        return SecondOrder.of(whole, self.f.ndx, self.f.nu)
