"""`LocalModel` by one pass over the stages in symbols; the same numbers to rounding."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from vioc.control.costs import Cost, Expansion
from vioc.control.local_model import Blocks, Direction, LocalModel, Weights, absolute, joined
from vioc.control.stages.equations import SMALL
from vioc.control.stages.sweeps import Sweeps
from vioc.dynamics.integrators.base import Linearization, OneStepMap
from vioc.dynamics.trajectory import Trajectory
from vioc.errors import OptimizationError

REGULAR = 1e8  # entries of A, B beyond which the map itself is asked whether the step is singular


def local_model(f: OneStepMap, cost: Cost, run: Trajectory, weights: Weights | None, shift: float):
    """The model about an iterate by the faster way; `shift` is the one that is likely to be asked for."""
    sweeps = Sweeps.of(f, cost, SMALL)
    if sweeps is not None:
        model = StageModel(f, cost, run, weights, sweeps, shift)
        if model.sound:
            return model
    return LocalModel(f, cost, run, weights)


def value_of(cost: Cost, run: Trajectory) -> float:
    """The cost of a rollout of equal steps by the faster way; `Cost.value` names what is not finite."""
    f = run.map
    sweeps = Sweeps.of(f, cost, SMALL)
    if sweeps is None:
        return cost.value(run)
    grid = sweeps.grids(f, cost, len(run), run.k0)[0]
    last = cost.end(run.x[-1], grid.parameters, cost.reference_rows(len(run))[-1])[0]
    value = sweeps.running(run, grid) + last
    return value if np.isfinite(value) else cost.value(run)


class StageModel(LocalModel):
    """A `LocalModel` whose gains, Newton Hessian and Newton direction come from one backward pass.

    Attributes
    ----------
    sound : bool
        Whether every number is finite and the step regular; if not, `LocalModel` says what is wrong.
    """

    def __init__(
        self,
        f: OneStepMap,
        cost: Cost,
        run: Trajectory,
        weights: Weights | None,
        sweeps: Sweeps,
        shift: float,
    ):
        self.map, self.run = f, run
        self._sweeps, self._shift, self._newton = sweeps, shift, None
        N, n = len(run), f.nx
        grid, self._grid = sweeps.grids(f, cost, N, run.k0)
        reference = cost.reference_rows(N)[N]
        _, self._lx_end, self._lxx_end, _ = cost.end(run.x[-1], grid.parameters, reference)
        steps = [run.x[:-1], run.u, run.x[1:], run.multipliers]
        back = [np.ascontiguousarray(a[::-1]) for a in steps]
        constant = cost.constant_hessian
        if constant is None:
            self._L = sweeps.cost_hessian(back, self._grid)
        else:
            self._L = self._grid.w[:, :, None] * constant
        self.sound = bool(np.isfinite(self._L).all() and np.isfinite(self._lxx_end).all())
        if not self.sound:
            return
        if weights is not None:
            regulator, end = np.zeros((n + f.nu, n + f.nu)), weights[0]
            regulator[:n, :n], regulator[n:, n:] = weights
        else:
            end = sweeps.kept("end", self._lxx_end, absolute)
            regulator = (
                absolute(self._L) if constant is None else self._grid.w[:, :, None] * absolute(constant)
            )
        shift = shift * self._unit
        last = end, self._lxx_end + shift * np.eye(n), self._lx_end
        self._parts = sweeps.about(back, self._grid, regulator, last, shift)
        self.sound = (
            self._parts is not None
            and all(np.isfinite(self._parts[k]).all() for k in ("g", "H", "K"))
            and all(np.abs(self._parts[k]).max() < REGULAR for k in "AB")  # false for nan too
        )
        if self.sound:
            self.gains = np.ascontiguousarray(self._parts["K"][::-1])

    @property
    def _unit(self) -> float:
        n, L = self.map.nx, self._L
        mean = sum(L[:, i, i].sum() for i in range(n, L.shape[1])) / (self._grid.w.sum() * self.map.nu)
        return mean if mean > 0 else float(np.abs(self._lxx_end).max())

    @cached_property
    def lin(self) -> Linearization:  # type: ignore[override]
        A, B = self._parts["A"][::-1], self._parts["B"][::-1]
        none = [np.empty((len(A), 0, 0))] * 4
        return Linearization(A, B, *none)

    @cached_property
    def expansion(self) -> Expansion:  # type: ignore[override]
        n, g, L = self.map.nx, self._parts["g"][::-1], self._L[::-1]
        return Expansion(
            lx=np.concatenate([g[:, :n], self._lx_end[None]]),
            lu=g[:, n:],
            lxx=np.concatenate([L[:, :n, :n], self._lxx_end[None]]),
            lxu=L[:, :n, n:],
            luu=L[:, n:, n:],
            zeta=None,
            weights=self._grid.w[::-1, 0],
        )

    def _newton_blocks(self) -> Blocks:
        n, H = self.map.nx, self._parts["H"][::-1]
        return np.concatenate([H[:, :n, :n], self._lxx_end[None]]), H[:, :n, n:], H[:, n:, n:]

    def direction(self, method: str, shift: float = 0.0) -> Direction | None:
        if method != "newton":
            return super().direction(method, shift)
        if shift == self._shift:
            affine = self._parts["affine"]
        else:
            affine = self._lq(self._parts["H"], self._lxx_end, shift * self._unit)
        return None if affine is None else self._along(method, shift, affine)

    def _minimize(self, method: str, shift: float, H: Blocks) -> Direction | None:
        xx, xu, uu = H
        affine = self._lq(joined(xx[:-1], xu, uu)[::-1], xx[-1], 0.0)
        if affine is None:
            raise OptimizationError(f"the {method} subproblem has no minimum")
        return self._along(method, shift, affine)

    def _lq(self, H: np.ndarray, P: np.ndarray, add: float) -> np.ndarray | None:
        """The minimizer for stage blocks H in reversed order, P at the end, and a shift of all."""
        parts, N = self._parts, len(H)
        rows = [np.ascontiguousarray(a.reshape(N, -1)) for a in (parts["A"], parts["B"], H, parts["g"])]
        return self._sweeps.lq(rows, add * self._grid.w, P + add * np.eye(len(P)), self._lx_end)

    def _along(self, method: str, shift: float, affine: np.ndarray) -> Direction | None:
        """The tangent trajectory of a minimizer's feedback; None where it does not descend."""
        n, m = self.map.nx, self.map.nu
        y = self._sweeps.forward(affine, m, n)
        du, dx = np.ascontiguousarray(y[:, :m]), np.concatenate([np.zeros((1, n)), y[:, m:]])
        g = self._parts["g"][::-1]
        slope = float(np.vdot(g[:, :n], dx[:-1]) + np.vdot(g[:, n:], du) + self._lx_end @ dx[-1])
        return Direction(method, shift, dx, du, slope) if slope <= 0 else None
