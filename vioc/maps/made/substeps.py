"""Map whose step consists of several equal steps of another map."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any

import casadi as ca
import numpy as np

from vioc.errors import StepError
from vioc.maps.derivatives import Linearization, SecondOrder, Steps
from vioc.maps.kernel import KernelMap
from vioc.maps.made.around import MapAround, around, derivatives_of, kernel_symbols
from vioc.maps.made.parts import Parts
from vioc.maps.made.stepwise import stepwise
from vioc.maps.mechanism import Mechanism
from vioc.maps.named import Symbols
from vioc.maps.protocol import Kernel, OneStepMap
from vioc.runs.given import points_of
from vioc.runs.trajectory import Trajectory


class Substeps(MapAround):
    """Map whose step of length dt consists of n steps of length dt/n of another map.
    All n steps have the same input, except that inputs of kinematic variables change linearly.

    Parameters
    ----------
    f : OneStepMap
        Map that takes the substeps. Its dt is the length of the whole step; its states, inputs and names are
        those of this map.
    n : int
        Number of substeps, >= 1.

    Notes
    -----
    Prescribed variables move linearly over the whole step. Multipliers are sums over the substeps, so that
    ``force.NAME`` is a mean; multipliers that are speeds (slips of contacts) are those of the last substep.
    Derivatives are those of the composed step. Feedback uses the state at the start of the whole step.
    """

    _identified_by = (("", "inner"), ("substeps", "n"))

    def __init__(self, f: OneStepMap, n: int):
        if isinstance(n, bool) or not isinstance(n, (int, np.integer)) or n < 1:
            raise ValueError(f"substeps: expected a number of steps >= 1, got {n!r}")
        self._around(f)
        self.inner, self.n = f, int(n)
        self.symbols: Symbols = f.symbols
        self._as_mechanism, self._as_kernel = self._mechanical, self._repeated_kernel
        self._made_of = (self.n,)

    def _mechanical(self) -> Mechanism:
        def review(trajectory: Trajectory) -> None:
            f = self.inner.with_dt(trajectory.map.dt)
            f.mechanism.review(replace(trajectory, map=f))

        return around(self, review, limits=self.inner.mechanism.limits)

    def __repr__(self) -> str:
        return f"Substeps({self.inner!r}, {self.n} a step)"

    # -- steps ----------------------------------------------------------------------------------

    @cached_property
    def _ends(self) -> np.ndarray:
        """End of each of the n substeps (n,), as a fraction of the whole step."""
        return np.arange(1, self.n + 1) / self.n

    def _inputs(self, X: np.ndarray, U: np.ndarray) -> np.ndarray:
        """Return the inputs (N, n, nu) of the substeps of N steps.

        The steps begin at X (N, nx) under the inputs U.
        """
        by_x, by_u = self.inner.mechanism.inputs_at(self._ends)
        inputs = np.einsum("iab,nb->nia", by_u, U)
        return inputs + np.einsum("iab,nb->nia", by_x, X) if by_x.any() else inputs

    def _starts(self, t: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """Return the times (N, n) at which the substeps begin, s."""
        return t[:, None] + lengths[:, None] * np.arange(self.n) / self.n

    def _total(self, multipliers: np.ndarray) -> np.ndarray:
        """Return the multipliers (N, nm) of whole steps, given those of their substeps.

        The multipliers of the substeps are (N, n, nm).
        """
        return np.where(self.inner.mechanism.additive, multipliers.sum(axis=1), multipliers[:, -1])

    def run(
        self,
        x0: np.ndarray,
        U: np.ndarray,
        k0: int,
        lengths: np.ndarray,
        X: np.ndarray | None = None,
        K: np.ndarray | None = None,
        *,
        t: np.ndarray | None = None,
    ) -> Trajectory:
        by_x, _ = self.inner.mechanism.inputs_at(self._ends)
        if X is not None or by_x.any():
            return stepwise(self, x0, U, k0, lengths, X, K, t).on_its_step()
        times, n = self.times(lengths, k0, t), self.n
        inputs = self._inputs(np.zeros((len(U), self.nx)), U).reshape(len(U) * n, self.nu)
        starts = self._starts(times[:-1], lengths).ravel()
        try:
            run = self.inner.run(x0, inputs, k0 * n, np.repeat(lengths / n, n), t=starts)
        except StepError as error:
            done = 0 if error.trajectory is None else len(error.trajectory) // n
            failure = self._of_substep(error, k0 + done)
            if error.trajectory is not None:
                failure.trajectory = self._outer(error.trajectory, U[:done], times[: done + 1], k0)
            raise failure from None
        return self._outer(run, U, times, k0)

    def _outer(self, run: Trajectory, U: np.ndarray, times: np.ndarray, k0: int) -> Trajectory:
        """Return the trajectory of whole steps, given the trajectory of their substeps."""
        n, count = self.n, len(U)
        x = np.ascontiguousarray(run.x[: n * count + 1 : n])
        parts = run.multipliers[: n * count].reshape(count, n, len(self.multiplier_names))
        return Trajectory(self, times, x, np.array(U), self._total(parts), k0=k0).on_its_step()

    def _of_substep(self, error: StepError, k: int) -> StepError:
        failure = error.saying(f"step {k}, one of its {self.n} substeps: {error}", k)
        failure.length = None if error.length is None else self.n * error.length
        return failure

    def steps_at(self, X: Any, U: Any, k0: int = 0, dt: Any = None, *, t: np.ndarray | None = None) -> Steps:
        X, U = points_of(self, X, U)
        h = self.lengths(dt, len(U))
        t = self.times(h, k0, t)[:-1]
        parts = self._substeps_of(X, U, k0, h, t)
        multipliers = np.stack([p.multipliers for p in parts], axis=1)
        return Steps(X, parts[-1].x1, U, self._total(multipliers), t, h, k0 + np.arange(len(U)))

    def _substeps_of(
        self, X: np.ndarray, U: np.ndarray, k0: int, h: np.ndarray, t: np.ndarray
    ) -> list[Steps]:
        """Take the substeps of N independent steps, in the order of substeps.
        The first substeps of all steps are taken first, then the second substeps, and so on.
        """
        inputs, starts, parts, x = self._inputs(X, U), self._starts(t, h), [], X
        for i in range(self.n):
            each = np.ascontiguousarray(inputs[:, i])
            try:
                parts.append(
                    self.inner.steps_at(x, each, k0, h / self.n, t=np.ascontiguousarray(starts[:, i]))
                )
            except StepError as error:
                raise self._of_substep(error, error.k) from None
            x = parts[-1].x1
        return parts

    def _repeated_kernel(self) -> Kernel | None:
        inner = self.inner.kernel
        if inner is None or not self.inner.mechanism.additive.all():  # speeds are those of the last substep
            return None
        args = x, u, t, dt, theta = kernel_symbols(self)
        by_x, by_u = self.inner.mechanism.inputs_at(self._ends)
        multipliers, errors, h = [], [], dt / self.n
        for i in range(self.n):
            input_i = ca.DM(by_u[i]) @ u + ca.DM(by_x[i]) @ args[0] if by_x.any() else u
            x, impulse, error = inner.function(x, input_i, t + dt * (i / self.n), h, theta)
            multipliers.append(impulse)
            errors.append(error)
        function = ca.Function("substeps", args, [x, sum(multipliers), ca.norm_2(ca.vertcat(*errors))])
        return Kernel(function, inner.tolerance, self.space.difference_expression)

    def times(self, lengths: np.ndarray, k0: int, begins: np.ndarray | None = None) -> np.ndarray:
        return self.inner.times(lengths, k0, begins)

    # -- derivatives ----------------------------------------------------------------------------

    def _parts(self, steps: Steps, timed: bool) -> Parts:
        """Return the substeps of given steps as a `Parts` object, which applies the chain rule."""
        N, n = len(steps), self.n
        each = self._substeps_of(steps.x0, steps.u, 0, steps.h, steps.t)
        names = "x0", "x1", "u", "multipliers", "t", "h"
        arrays = [np.stack([getattr(p, name) for p in each], axis=1) for name in names]
        flat = [np.ascontiguousarray(a.reshape(N * n, *a.shape[2:])) for a in arrays]
        shares = np.ones((n, len(self.multiplier_names)))
        shares[:-1, ~self.inner.mechanism.additive] = 0.0
        x0, x1, u, multipliers, t, h = flat
        flat_steps = Steps(x0, x1, u, multipliers, t, h, np.repeat(steps.k, n))
        inputs = self.inner.mechanism.inputs_at(self._ends)
        return Parts(flat_steps, *inputs, shares, np.arange(n) / n, np.full(n, 1 / n), timed)

    def _first(self, steps: Steps, timed: bool) -> Linearization:
        parts = self._parts(steps, timed)
        return parts.first(derivatives_of(self.inner, timed).first(parts.steps))

    def _second(self, steps: Steps, Z: np.ndarray, zeta: np.ndarray, timed: bool) -> SecondOrder:
        parts, derivatives = self._parts(steps, timed), derivatives_of(self.inner, timed)
        lin = derivatives.first(parts.steps)
        return parts.second(lin, derivatives.second(parts.steps, *parts.weights(lin, Z, zeta)))

    # -- names ----------------------------------------------------------------------------------

    def state(self, values: Mapping[str, float] | None = None, **named: float) -> np.ndarray:
        return self.inner.state(values, **named)

    def frame_positions(self, X: Any) -> np.ndarray:
        """Return the world positions of the origins of all frames, m, at states X."""
        return self.inner.frame_positions(X)  # type: ignore[attr-defined]


def substeps(f: OneStepMap, n: int) -> OneStepMap:
    """Return the map whose step consists of n steps of length dt/n of the map f.
    All n steps have the same input, except that inputs of kinematic variables change linearly.
    """
    if isinstance(f, Substeps):
        return Substeps(f.inner, f.n * Substeps(f.inner, n).n)
    if isinstance(f, MapAround) and not isinstance(f, KernelMap):
        return f.with_each(lambda g: g.substeps(n))
    return Substeps(f, n)
