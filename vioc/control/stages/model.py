"""`LocalModel` by passes over the stages in symbols; the same numbers to rounding."""

from __future__ import annotations

from contextlib import ExitStack
from functools import cached_property
from types import TracebackType

import numpy as np

from vioc.control.costs import Cost, Expansion
from vioc.control.local_model import Blocks, Direction, LocalModel, Weights, joined
from vioc.control.stages.equations import SMALL
from vioc.control.stages.passes import Passes
from vioc.control.stages.sweeps import Sweeps
from vioc.errors import OptimizationError
from vioc.maps.protocol import Linearization, OneStepMap
from vioc.maps.trajectory import Trajectory

AWAY = 1e3  # relative to 1 + |x| of the iterate: farther off a trial says nothing that is worth a hard step


class LocalModels:
    """Models about the iterates of a search, by the faster way: passes in symbols where the map is small.

    A context: the passes and their arrays are borrowed meanwhile.

    Parameters
    ----------
    f : OneStepMap
    cost : Cost
    first : Trajectory
        The first iterate; all have its x_0, time index and steps.
    weights : (ndx, ndx), (nu, nu), or None
        As `LocalModel`'s.
    """

    def __init__(self, f: OneStepMap, cost: Cost, first: Trajectory, weights: Weights | None):
        self.map, self.cost, self._first, self._weights = f, cost, first, weights
        self._passes: Passes | None = None
        self._borrowed = ExitStack()

    def __enter__(self) -> LocalModels:
        sweeps = Sweeps.of(self.map, self.cost, SMALL)
        if sweeps is not None:
            run = self._first
            passes = sweeps.passes(self.map, self.cost, len(run), run.k0, run.step_lengths)
            self._passes = self._borrowed.enter_context(passes)
            self._passes.begin(run.x[0], self._weights)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._passes = None
        self._borrowed.close()

    def value(self, run: Trajectory) -> float:
        """The cost of an iterate; `Cost.value` names what is not finite."""
        if self._passes is not None:
            self._passes.load(run)
            value = self._passes.value
            if np.isfinite(value):
                return value
        return self.cost.value(run)

    def about(self, run: Trajectory, shift: float) -> LocalModel:
        """The model about an iterate, until the next one; `shift` is likely to be asked for."""
        if self._passes is not None and not run.splits:  # the passes' steps are whole
            model = StageModel(self.map, self.cost, run, self._passes, shift)
            if model.sound:
                return model
        return LocalModel(self.map, self.cost, run, self._weights)


class StageModel(LocalModel):
    """A `LocalModel` whose gains, Newton Hessian and Newton direction come from one backward pass.

    Its arrays are views of the passes', which the next model writes to.

    Attributes
    ----------
    sound : bool
        Whether every number is finite and the step regular; if not, `LocalModel` says what is wrong.
    """

    def __init__(self, f: OneStepMap, cost: Cost, run: Trajectory, passes: Passes, shift: float):
        self.map, self.cost, self.run = f, cost, run
        self._passes, self._shift, self._newton = passes, shift, None
        self._aim: Direction | None = None
        passes.load(run)
        self.sound, self._minimum = passes.model(shift)
        if self.sound:
            self.gains = passes.blocks["K"].copy()

    @cached_property
    def lin(self) -> Linearization:  # type: ignore[override]
        A, B = self._passes.blocks["A"], self._passes.blocks["B"]
        none = [np.empty((len(A), 0, 0))] * 4
        return Linearization(A, B, *none)

    @cached_property
    def expansion(self) -> Expansion:  # type: ignore[override]
        n, passes = self.map.nx, self._passes
        g, L = passes.blocks["g"], passes.L
        return Expansion(
            lx=np.concatenate([g[:, :n], passes.lx_end[None]]),
            lu=g[:, n:],
            lxx=np.concatenate([L[:, :n, :n], passes.lxx_end[None]]),
            lxu=L[:, :n, n:],
            luu=L[:, n:, n:],
            zeta=None,
            weights=passes.w,
        )

    @property
    def _unit(self) -> float:
        return self._passes.unit

    def _newton_blocks(self) -> Blocks:
        n, H = self.map.nx, self._passes.blocks["H"]
        return np.concatenate([H[:, :n, :n], self._passes.lxx_end[None]]), H[:, :n, n:], H[:, n:, n:]

    def direction(self, method: str, shift: float = 0.0) -> Direction | None:
        if method == "gauss-newton" and not shift:
            which = self._passes.minimize_other(self._passes.L, self._passes.lxx_end)
            if which is not None:
                return self._along(method, shift, which)
        if method != "newton":
            return super().direction(method, shift)
        if shift == self._shift:
            return self._along(method, shift, 0 if self._minimum else None)
        return self._along(method, shift, self._passes.minimize(shift))

    def _minimize(self, method: str, shift: float, H: Blocks) -> Direction | None:
        xx, xu, uu = H
        which = self._passes.minimize_other(joined(xx[:-1], xu, uu), xx[-1])
        if which is None:
            raise OptimizationError(f"the {method} subproblem has no minimum")
        return self._along(method, shift, which)

    def _along(self, method: str, shift: float, which: int | None) -> Direction | None:
        """The tangent trajectory of a minimizer's feedback; None where it does not descend."""
        if which is None:
            return None
        dx, du, slope = self._passes.direction(which)
        return Direction(method, shift, dx, du, slope) if slope <= 0 else None

    def trial(self, direction: Direction, gamma: float, limit: float) -> tuple[Trajectory, float] | None:
        if not self._passes.can_try:
            return super().trial(direction, gamma, limit)
        if direction is not self._aim:
            self._passes.aim(direction.dx, direction.du)
            self._aim = direction
        self.trouble = None
        value = self._passes.attempt(gamma)
        if value is None:  # a step that is harder to solve than the kernel can, or a trial that has run away
            if not np.abs(self._passes.reached).max() < AWAY * (1 + np.abs(self.run.x).max()):
                return None
            return super().trial(direction, gamma, limit)
        return (self._passes.attempted(self.run), value) if value <= limit else None
