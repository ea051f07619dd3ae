"""Feedback laws with scheduled gains, and feedback laws with rate limits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import casadi as ca
import numpy as np

from vioc.checks import check_array
from vioc.compile.evaluate import Evaluator
from vioc.control.problem.limits import input_bounds, input_rates
from vioc.control.regulators.formulas import LawFormula, clipped, formula_of
from vioc.control.regulators.law import Law, StateLaw, as_law
from vioc.maps.protocol import OneStepMap
from vioc.names import INPUTS, in_order
from vioc.runs.given import input_of
from vioc.runs.steps import check_steps


@dataclass(frozen=True)
class ScheduledLaw(Law):
    """Gain-scheduled feedback law, interpolated between operating points.

    It is u = U(s) - K(s) difference(X(s), x) with the scheduling variable s. Gains, states and inputs are
    linear in s between operating points and constant beyond them.

    Attributes
    ----------
    map : OneStepMap
    by : str
        The scheduling quantity s of the state.
    points : (n,)
        Values of s at the operating points, increasing, n >= 2.
    X, U, K : (n, nx), (n, nu), (n, nu, ndx)

    Raises
    ------
    ValueError
        Wrong shapes, points that do not increase, or a quantity that depends on more than the state.
    """

    map: OneStepMap = field(repr=False)
    by: str
    points: np.ndarray
    X: np.ndarray = field(repr=False)
    U: np.ndarray = field(repr=False)
    K: np.ndarray = field(repr=False)

    def __post_init__(self) -> None:
        f, s = self.map, np.asarray(self.points, float)
        n = len(s) if s.ndim == 1 else 0
        if n < 2 or not (np.diff(s) > 0).all():
            raise ValueError(
                f"points: expected at least two increasing values of {self.by}, got {self.points}"
            )
        for name, shape in (("points", (n,)), ("X", (n, f.nx)), ("U", (n, f.nu)), ("K", (n, f.nu, f.ndx))):
            object.__setattr__(self, name, check_array(getattr(self, name), shape, name))
        if ca.depends_on(self.quantity, ca.vertcat(f.symbols.u, f.symbols.multipliers, f.symbols.dt)):
            raise ValueError(f"by: {self.by} depends on the step, expected a quantity of the state alone")

    @classmethod
    def of(cls, regulators: Sequence[Any], by: str) -> ScheduledLaw:
        """Return a law that interpolates between regulators about several equilibria.
        The scheduling variable is the quantity named `by`.

        The regulators may be in any order.
        """
        laws: list[StateLaw] = []
        for law in map(as_law, regulators):
            if not isinstance(law, StateLaw) or len(law.U) != 1:
                raise TypeError(f"expected steady regulators, got {law!r}")
            laws.append(law)
        f = laws[0].map
        for law in laws[1:]:
            if law.map.state_names != f.state_names or law.map.input_names != f.input_names:
                raise ValueError(f"expected regulators of one map, got {law.map!r} beside {f!r}")
            check_steps(law.map.dt, f.dt, "a regulator", "the first one's map")
        X, U, K = (np.concatenate([getattr(law, name) for law in laws]) for name in ("X", "U", "K"))
        values = Evaluator(ca.Function("s", [f.symbols.x, f.symbols.parameters], [f.quantity(by)]))
        points = values(X, f.theta)[0].reshape(-1)
        order = np.argsort(points)
        return cls(f, by, points[order], X[order], U[order], K[order])

    @property
    def quantity(self) -> ca.SX:
        """Scheduling variable as an expression in the map's symbols."""
        return self.map.quantity(self.by)

    @cached_property
    def _value(self) -> Evaluator:
        s = self.map.symbols
        return Evaluator(ca.Function("s", [s.x, s.parameters], [self.quantity]))

    def __call__(self, k: int, x: Any) -> np.ndarray:
        f, s = self.map, self.points
        value = float(self._value(np.asarray(x, float), f.theta)[0].item())
        i = int(np.clip(np.searchsorted(s, value, side="right") - 1, 0, len(s) - 2))
        w = min(max((value - s[i]) / (s[i + 1] - s[i]), 0.0), 1.0)
        X = f.retract(self.X[i], w * f.difference(self.X[i], self.X[i + 1]))
        U, K = (a[i] + w * (a[i + 1] - a[i]) for a in (self.U, self.K))
        return U - K @ f.difference(X, x)

    def formula(self) -> LawFormula | None:
        f, n = self.map, len(self.points)
        if f.ndx != f.nx:
            return None
        s = f.symbols
        value = ca.Function("s", [s.x, s.parameters], [self.quantity])

        def expression(x: ca.SX, memory: ca.SX, numbers: ca.SX) -> tuple[ca.SX, ca.SX]:
            points, X, U, K, theta = ca.vertsplit(numbers, np.cumsum([0, *sizes]).tolist())
            X, U, K = (ca.reshape(a, -1, n) for a in (X, U, K))
            point, x_d, u_d, gain = value(x, theta), X[:, 0], U[:, 0], K[:, 0]
            for i in range(n - 1):
                w = clipped((point - points[i]) / (points[i + 1] - points[i]), 0.0, 1.0)
                x_d += w * f.space.difference_expression(X[:, i], X[:, i + 1])
                u_d, gain = u_d + w * (U[:, i + 1] - U[:, i]), gain + w * (K[:, i + 1] - K[:, i])
            return u_d - ca.reshape(gain, f.ndx, f.nu).T @ f.space.difference_expression(x_d, x), memory

        tables = [a.ravel() for a in (self.points, self.X, self.U, self.K, f.theta)]
        sizes, numbers = [a.size for a in tables], np.concatenate(tables)
        family = id(getattr(f, "built", f))  # shared by maps that differ only in parameter values
        return LawFormula(("schedule", family, self.by, n), expression, lambda k, count: numbers)


class Applied(NamedTuple):
    """Memory of a feedback law with limited inputs or input rates.
    It contains the last input, and the memory of the law without limits.
    """

    law: Any
    u: np.ndarray | None


class LimitedLaw(Law):
    """Feedback law whose output is clipped to input bounds and to a rate limit.

    Parameters
    ----------
    law : Law, Regulator, SteadyRegulator
        A law with a map.
    rate : float, (nu,), dict of str to float
        Largest change of an input per second, in its units per second, > 0.
    bounds : dict of str to (lower, upper), or None
        Bounds of the inputs: as in `vioc.control.optimize`, but constant.
    before : (nu,), dict of str to float, optional
        Input applied before the first sample, 0 where not named. By default the first sample may jump.

    Attributes
    ----------
    law : Law
    map : OneStepMap
    lower, upper, change : (nu,)
        Bounds of the input, and its largest change per sample.
    before : (nu,) or None
    """

    def __init__(self, law: Any, rate: Any, *, bounds: Mapping[str, Any] | None = None, before: Any = None):
        self.law = as_law(law)
        f = getattr(self.law, "map", None)
        if f is None:
            raise TypeError(f"law: expected one of a map, got {type(self.law).__name__}")
        self.map: OneStepMap = f
        self.lower, self.upper = input_bounds(f, bounds)
        self.change = input_rates(f, rate) * f.dt
        if before is not None:
            before = input_of(f, in_order(before, f.input_names, "before", prefix=INPUTS))
            if not ((self.lower <= before) & (before <= self.upper)).all():
                raise ValueError(f"before: {before} is outside of the bounds of the inputs")
        self.before: np.ndarray | None = before

    def start(self) -> Applied:
        return Applied(self.law.start(), self.before)

    def apply(self, k: int, x: np.ndarray, memory: Applied) -> tuple[np.ndarray, Applied]:
        u, inner = self.law.apply(k, x, memory.law)
        u = np.clip(u, self.lower, self.upper)
        if memory.u is not None:
            u = np.clip(u, memory.u - self.change, memory.u + self.change)
        return u, Applied(inner, u)

    @property
    def x(self) -> np.ndarray | None:
        """Constant state (nx,) to which the law finally regulates the plant, or None."""
        return getattr(self.law, "x", None)

    def formula(self) -> LawFormula | None:
        inner, nu = formula_of(self.law), self.map.nu
        if inner is None:
            return None
        limits = np.concatenate([self.lower, self.upper, self.change])

        def expression(x: ca.SX, memory: ca.SX, numbers: ca.SX) -> tuple[ca.SX, ca.SX]:
            start = numbers.numel() - 3 * nu
            lower, upper, change = ca.vertsplit(numbers[start:], nu)
            before, flag, inner_memory = memory[:nu], memory[nu], memory[nu + 1 :]
            u, inner_memory = inner.expression(x, inner_memory, numbers[:start])
            u = clipped(u, lower, upper)
            u = ca.if_else(flag, clipped(u, before - change, before + change), u)
            return u, ca.vertcat(u, 1, inner_memory)

        def rows(k: int, n: int) -> np.ndarray:
            numbers = inner.rows(k, n)
            return np.concatenate([numbers, np.broadcast_to(limits, (*numbers.shape[:-1], 3 * nu))], axis=-1)

        def stored(memory: Applied) -> np.ndarray:
            before = np.zeros(nu) if memory.u is None else memory.u
            return np.concatenate([before, [memory.u is not None], inner.stored(memory.law)])

        def restored(numbers: np.ndarray) -> Applied:
            return Applied(inner.restored(numbers[nu + 1 :]), numbers[:nu] if numbers[nu] else None)

        return LawFormula(("limited", inner.key), expression, rows, stored, restored)

    def __repr__(self) -> str:
        return f"LimitedLaw({self.law!r})"
