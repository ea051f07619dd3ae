"""Second-order models of the cost for small maps, computed by symbolic recursions.
They equal those of the class `LocalModel` up to rounding.
"""

from __future__ import annotations

from functools import cached_property
from weakref import WeakKeyDictionary

import numpy as np

from vioc.control.costs.cost import Cost, Expansion
from vioc.control.descent.local_model import DescentDirection, Hessian, LocalModel, Weights, descending
from vioc.control.descent.symbolic.recursions import Recursions
from vioc.control.descent.symbolic.stage import SMALL
from vioc.control.descent.symbolic.stage_programs import StageArguments, StagePrograms
from vioc.control.problem.sizes import Sizes
from vioc.control.stages.recursion import in_c
from vioc.maps.derivatives import Linearization
from vioc.maps.protocol import OneStepMap
from vioc.runs.trajectory import Trajectory

AWAY = 1e3  # distance of a failed trial from the iterate, over 1 + |x| in sizes, above which it is abandoned
_idle: WeakKeyDictionary[Cost, tuple[tuple, list[Recursions]]] = WeakKeyDictionary()  # for the last horizon


class LocalModels:
    """Second-order models of the cost at the iterates of a search.
    Symbolic recursions compute them if the map is small.

    Parameters
    ----------
    f : OneStepMap
    cost : Cost
    first : Trajectory
        The first iterate; all others have its x_0, time index and steps.
    weights : (ndx, ndx), (nu, nu), or None
        As in `LocalModel`.
    """

    def __init__(self, f: OneStepMap, cost: Cost, first: Trajectory, weights: Weights | None):
        self.map, self.cost, self._weights, self._native = f, cost, weights, in_c(f.backend.name)
        self._recursions: Recursions | None = None
        self._sizes = Sizes.along(first)
        programs = StagePrograms.of(f, cost, SMALL, first.step_lengths)
        if programs is not None:
            n, h = len(first), first.step_lengths
            key = (programs, first.k0, f.dt, h.tobytes(), *f.parameters.values())
            if cost not in _idle or _idle[cost][0] != key:
                _idle[cost] = key, []
            self._free = _idle[cost][1]
            try:
                self._recursions = self._free.pop()
            except IndexError:
                self._recursions = Recursions(programs, f, cost, StageArguments.of(f, cost, n, first.k0, h))
            self._recursions.begin(first.x[0], weights, self._sizes)

    def close(self) -> None:
        """Give the arrays of this search back to a pool.
        The next search uses them again.
        """
        if self._recursions is not None:
            self._free.append(self._recursions)
            self._recursions = None

    def value(self, run: Trajectory) -> float:
        """Return the cost of an iterate; raise an error if the cost is not finite."""
        if self._recursions is not None:
            self._recursions.load(run)
            value = self._recursions.value
            if np.isfinite(value):
                return value
        return self.cost.value(run)

    def about(self, run: Trajectory, shift: float) -> LocalModel:
        """Return the second-order model of the cost at an iterate.

        The model is valid until the next call. `shift` is the shift of the Hessian that its Newton direction
        will probably need.
        """
        if self._recursions is not None:
            model = StageModel(self.map, self.cost, run, self._recursions, shift)
            if model.sound:
                return model
        return LocalModel(self.map, self.cost, run, self._weights, self._native, self._sizes)


class StageModel(LocalModel):
    """Second-order model of the cost, computed by one backward pass over the stages.
    Its arrays are views of the recursions' arrays, which the next model overwrites.

    Attributes
    ----------
    sound : bool
        True if every value is finite and the steps are regular; if not, `LocalModel` reports the error.
    """

    def __init__(self, f: OneStepMap, cost: Cost, run: Trajectory, recursions: Recursions, shift: float):
        self.map, self.cost, self.run, self.sizes = f, cost, run, recursions.sizes
        self._recursions, self._shift, self._newton = recursions, shift, None
        self._aim: DescentDirection | None = None
        recursions.load(run)
        self.sound, self._minimum = recursions.model(shift)
        if self.sound:
            self.gains = recursions.blocks["K"].copy()

    @cached_property
    def lin(self) -> Linearization:  # type: ignore[override]
        A, B = self._recursions.blocks["A"], self._recursions.blocks["B"]
        none = [np.empty((len(A), 0, 0))] * 4
        return Linearization(A, B, *none)

    @cached_property
    def expansion(self) -> Expansion:  # type: ignore[override]
        r = self._recursions
        g, L, end, end_second = (a.copy() for a in (r.blocks["g"], r.L, r.lx_end, r.lxx_end))
        return Expansion(g, L, end, end_second, zeta=None, weights=r.w)

    @property
    def _units(self) -> tuple[np.ndarray, np.ndarray]:
        unit, n = self._recursions.unit, self.map.ndx
        return unit[:n], unit[n:]

    def _newton_hessian(self) -> Hessian:
        return self._recursions.blocks["H"], self._recursions.lxx_end

    def direction(self, method: str, shift: float = 0.0) -> DescentDirection | None:
        if method == "gauss-newton" and not shift:
            which = self._recursions.minimize_other(self._recursions.L, self._recursions.lxx_end)
            if which is not None:
                return self._along(method, shift, which)
        if method != "newton":
            return super().direction(method, shift)
        if shift == self._shift:
            return self._along(method, shift, 0 if self._minimum else None)
        return self._along(method, shift, self._recursions.minimize(shift))

    def _minimizer(self, H: Hessian) -> tuple[np.ndarray, np.ndarray, float] | None:
        which = self._recursions.minimize_other(*H)
        return None if which is None else self._recursions.direction(which)

    def _along(self, method: str, shift: float, which: int | None) -> DescentDirection | None:
        """Return the minimizer of a quadratic cost model as a descent direction.
        `which` is the number of the minimizer, or None if the model has no minimum. Return None in this case,
        and if the cost rises along the direction.
        """
        if which is None:
            return None
        dx, du, slope = self._recursions.direction(which)
        return descending(self, DescentDirection(method, shift, dx, du, slope))

    def trial(
        self, direction: DescentDirection, gamma: float, limit: float
    ) -> tuple[Trajectory, float] | None:
        if self._recursions.kernel is None:
            return super().trial(direction, gamma, limit)
        if direction is not self._aim:
            self._recursions.aim(direction.dx, direction.du)
            self._aim = direction
        self.trouble = None
        value = self._recursions.attempt(gamma)
        if value is None:  # a step that the kernel cannot solve but `track` may, or a trial that diverges
            of_x = self.sizes.of_states
            if not np.abs(self._recursions.reached / of_x).max() < AWAY * (
                1 + np.abs(self.run.x / of_x).max()
            ):
                return None
            return super().trial(direction, gamma, limit)
        return (self._recursions.attempted(self.run), value) if value <= limit else None
