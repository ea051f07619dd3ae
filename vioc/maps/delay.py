"""`DelayedMap`: a map whose input acts one step later, as a map with the command under way as a state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import casadi as ca
import numpy as np

from vioc.maps.around import MapAround, derivatives_of
from vioc.maps.derivatives import Linearization, SecondOrder, Steps
from vioc.maps.given import trajectory_of
from vioc.maps.named import Symbols
from vioc.maps.protocol import OneStepMap
from vioc.maps.steps import check_steps
from vioc.maps.stepwise import stepwise
from vioc.maps.trajectory import Trajectory

PENDING = "pending."  # prefix of the states that are inputs under way


class DelayedMap(MapAround):
    """(x, w) -> (f(x, w), u): the command u of step k acts in step k + 1.

    Every tool for maps works on it: `dlqr` about its equilibria is a regulator that reckons with the delay.

    Parameters
    ----------
    inner : OneStepMap

    Notes
    -----
    States are the inner map's and ``pending.INPUT``, which acts; ``u.INPUT`` is the command, as everywhere.
    `inner_trajectory` is the mechanism's part of a run.
    """

    def __init__(self, inner: OneStepMap):
        if not isinstance(inner, OneStepMap):
            raise TypeError(f"expected a one-step map, got {type(inner).__name__}")
        self.inner = inner
        self._prefix = PENDING
        while any(self._prefix + n in inner.state_names for n in inner.input_names):
            self._prefix += PENDING  # of a command that is under way for several steps
        self._around(inner, tuple(self._prefix + n for n in inner.input_names))
        self.symbols = Symbols.sized(self.nx, self.nu, len(self.multiplier_names), len(self.parameters))

    # -- the state space ------------------------------------------------------------------------

    def join(self, x: Any, pending: Any = None) -> np.ndarray:
        """A state from the inner one and the command under way, which is `rest_input` if None."""
        x = self.inner.check_state(x)
        return np.concatenate([x, self.inner.check_input(pending, x)])

    def state(self, values: Mapping[str, float] | None = None, **named: float) -> np.ndarray:
        """The inner map's state by names, and ``pending.INPUT``."""
        values = {**(values or {}), **named}
        pending = {n.removeprefix(self._prefix): v for n, v in values.items() if n.startswith(self._prefix)}
        inner = self.inner.state({n: v for n, v in values.items() if not n.startswith(self._prefix)})
        return np.concatenate([inner, self.inner.input(pending)])

    def initial_state(self, q: Any = None, v: Any = None, u: Any = None, **named: float) -> np.ndarray:
        """The inner map's, with the command u under way, or `rest_input`."""
        return self.join(self.inner.initial_state(q, v, u, **named), u)

    # -- steps ----------------------------------------------------------------------------------

    def times(self, lengths: np.ndarray, k0: int, begins: np.ndarray | None = None) -> np.ndarray:
        return self.inner.times(lengths, k0, begins)

    def step(self, x: Any, u: Any = None, k: int = 0, dt: float | None = None) -> np.ndarray:
        x, u = self.check_point(x, u)
        a, w = self.split(x)
        return np.concatenate([self.inner.step(a, w, k, dt), u])

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
        a, w = self.split(x0)
        if X is None or K is None:
            return self._outer(self.inner.run(a, np.vstack([w, U[:-1]]), k0, lengths, t=t), U)
        return stepwise(self, x0, U, k0, lengths, X, K, t).on_its_step()

    def track(
        self,
        x0: Any,
        X: Any,
        U: Any,
        K: Any,
        *,
        k0: int = 0,
        dt: float | Sequence[float] | np.ndarray | None = None,
        t: np.ndarray | None = None,
    ) -> Trajectory:
        """`OneStepMap.track`, of steps as long as the map's: gains are made for that delay."""
        n = len(self.check_inputs(U, None, self.check_state(x0, "initial state")))
        lengths = self.lengths(dt, n)
        check_steps(lengths, self.dt, "dt", "the delay of one step", "make the map again with f.with_dt")
        return super().track(x0, X, U, K, k0=k0, dt=lengths, t=t)

    def review(self, trajectory: Trajectory) -> None:
        self.inner.review(self.inner_trajectory(trajectory))

    def _outer(self, run: Trajectory, U: np.ndarray) -> Trajectory:
        x = np.hstack([run.x, np.vstack([run.u, U[-1:]])])
        whole = Trajectory(self, run.t, x, U, run.multipliers, k0=run.k0)
        return whole.on_its_step()

    def inner_trajectory(self, run: Trajectory) -> Trajectory:
        """The inner map's trajectory of a run of this one."""
        run = trajectory_of(run)
        x, w = self.split(run.x)
        arrays = (np.ascontiguousarray(x), np.ascontiguousarray(w[:-1]))
        inner = Trajectory(self.inner, run.t, *arrays, run.multipliers, k0=run.k0)
        return inner.on_its_step()

    # -- derivatives ----------------------------------------------------------------------------

    def steps_at(
        self,
        X: Any,
        U: Any,
        k0: int = 0,
        dt: Any = None,
        *,
        t: np.ndarray | None = None,
    ) -> Steps:
        U = np.asarray(U, float)
        steps = self.inner.steps_at(*self.split(X), k0, dt, t=t)
        x0, x1 = (np.hstack([x, w]) for x, w in ((steps.x0, steps.u), (steps.x1, U)))
        return replace(steps, x0=x0, x1=x1, u=U)

    def _inner(self, steps: Steps) -> Steps:
        (x0, w), (x1, _) = self.split(steps.x0), self.split(steps.x1)
        return replace(steps, x0=x0, x1=x1, u=w)

    def _first(self, steps: Steps, timed: bool) -> Linearization:
        return self._outer_first(derivatives_of(self.inner, timed)[0](self._inner(steps)))

    def _outer_first(self, lin: Linearization) -> Linearization:
        n, nm, m = lin.C.shape[0], lin.C.shape[1], self.nu
        top, none = np.concatenate([lin.A, lin.B], axis=2), np.zeros((n, m, self.ndx))
        A = np.concatenate([top, none], axis=1)
        B = np.zeros((n, self.ndx, m))
        B[:, self.inner.ndx :] = np.eye(m)
        P = np.concatenate([lin.P, np.zeros((n, m, lin.P.shape[2]))], axis=1)
        return Linearization(A, B, P, np.concatenate([lin.C, lin.D], axis=2), np.zeros((n, nm, m)), lin.E)

    def _second(self, steps: Steps, Z: np.ndarray, zeta: np.ndarray, timed: bool) -> SecondOrder:
        Z = np.ascontiguousarray(Z[:, : self.inner.ndx])
        return self._outer_second(derivatives_of(self.inner, timed)[1](self._inner(steps), Z, zeta))

    def _outer_second(self, H: SecondOrder) -> SecondOrder:
        """The inner input is a state here, and the input enters linearly."""
        n, m, own = len(H.xx), self.nu, self.ndx
        inner = H.matrix
        whole = np.zeros((n, own + m + H.pp.shape[1], own + m + H.pp.shape[1]))
        to = np.concatenate([np.arange(own), np.arange(own + m, whole.shape[1])])
        whole[:, to[:, None], to] = inner
        return SecondOrder.of(whole, own, m)

    @cached_property
    def residual(self) -> ca.Function | None:
        inner = self.inner.residual
        if inner is None or self.inner.relaxed is not None:  # rows of contacts alone tell no step
            return None
        x, u, lam, theta, dt = self.symbols
        x1, t, n = ca.SX.sym("x_next", self.nx), ca.SX.sym("t"), self.inner.nx
        rows = inner(x[:n], x[n:], x1[:n], lam, t, dt, theta)
        return ca.Function("residual", [x, u, x1, lam, t, dt, theta], [ca.vertcat(rows, x1[n:] - u)])

    # -- names ----------------------------------------------------------------------------------

    def expression(self, of_inner: ca.SX) -> ca.SX:
        """An expression of the inner map's symbols in those of this one: what acts is under way here."""
        x, _, lam, theta, dt = self.symbols
        n = self.inner.nx
        f = ca.Function("quantity", list(self.inner.symbols), [of_inner])
        return f(x[:n], x[n:], lam, theta, dt)

    def unit(self, name: str) -> str:
        return self.inner.unit(
            f"u.{name.removeprefix(self._prefix)}" if name.startswith(self._prefix) else name
        )

    def __repr__(self) -> str:
        return f"DelayedMap({self.inner!r})"
