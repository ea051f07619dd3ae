"""`DelayedMap`: a map whose input acts one step later, as a map with the command under way as a state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import casadi as ca
import numpy as np

from vioc.maps.derivatives import Linearization, SecondOrder, Steps
from vioc.maps.given import trajectory_of
from vioc.maps.named import Symbols
from vioc.maps.protocol import OneStepMap, Rescue
from vioc.maps.steps import check_steps
from vioc.maps.stepwise import stepwise
from vioc.maps.trajectory import Trajectory
from vioc.names import meaning

PENDING = "pending."  # prefix of the states that are inputs under way


class DelayedMap(OneStepMap):
    """(x, w) -> (f(x, w), u): the command u of step k acts in step k + 1.

    Every tool for maps works on it: `dlqr` about its equilibria is a regulator that reckons with the delay.

    Parameters
    ----------
    inner : OneStepMap

    Notes
    -----
    States are the inner map's and ``pending.INPUT``; `inner_trajectory` is the mechanism's part of a run.
    """

    def __init__(self, inner: OneStepMap):
        if not isinstance(inner, OneStepMap):
            raise TypeError(f"expected a one-step map, got {type(inner).__name__}")
        self.inner = inner
        self.nx, self.ndx, self.nu = inner.nx + inner.nu, inner.ndx + inner.nu, inner.nu
        self.dt = inner.dt
        self.input_names = inner.input_names
        self._prefix = PENDING
        while any(self._prefix + n in inner.state_names for n in inner.input_names):
            self._prefix += PENDING  # of a command that is under way for several steps
        self.state_names = (*inner.state_names, *(self._prefix + n for n in inner.input_names))
        self.multiplier_names = inner.multiplier_names
        self.parameters = inner.parameters
        self.wrap, self.strings = inner.wrap, inner.strings
        self.system, self.impulse_behind = inner.system, inner.impulse_behind
        self.backend = inner.backend
        x, dt = ca.SX.sym("x", self.nx), ca.SX.sym("dt")
        u, lam, theta = (
            ca.SX.sym(name, count)
            for name, count in (
                ("u", self.nu),
                ("multipliers", len(self.multiplier_names)),
                ("theta", len(self.parameters)),
            )
        )
        self.symbols = Symbols(x, u, lam, theta, dt)

    # -- the state space ------------------------------------------------------------------------

    def split(self, x: Any) -> tuple[np.ndarray, np.ndarray]:
        """The inner state and the command under way; (..., nx) -> (..., inner nx), (..., nu)."""
        x = np.asarray(x, float)
        return x[..., : self.inner.nx], x[..., self.inner.nx :]

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

    @property
    def coordinates(self) -> tuple[str, ...]:
        return self.inner.coordinates

    def moved(self, x: np.ndarray, by: np.ndarray, fixed: Sequence[str] = ()) -> np.ndarray:
        inner, pending = self.split(x)
        return np.concatenate([self.inner.moved(inner, by, fixed), pending])

    def difference(self, x0: np.ndarray, x1: np.ndarray) -> np.ndarray:
        (a, v), (b, w) = self.split(x0), self.split(x1)
        return np.concatenate([self.inner.difference(a, b), w - v], axis=-1)

    def retract(self, x: np.ndarray, dx: np.ndarray) -> np.ndarray:
        (a, w), dx = self.split(x), np.asarray(dx, float)
        n = self.inner.ndx
        return np.concatenate([self.inner.retract(a, dx[..., :n]), w + dx[..., n:]], axis=-1)

    def retract_expression(self, x: Any, dx: Any) -> Any:
        n, e = self.inner.nx, self.inner.ndx
        return ca.vertcat(self.inner.retract_expression(x[:n], dx[:e]), x[n:] + dx[e:])

    def difference_expression(self, x0: Any, x1: Any) -> Any:
        n = self.inner.nx
        return ca.vertcat(self.inner.difference_expression(x0[:n], x1[:n]), x1[n:] - x0[n:])

    @property
    def error_names(self) -> tuple[str, ...]:
        """Names of the state's error, (ndx,): the inner map's, then ``pending.INPUT``."""
        return (*self.inner.error_names, *self.state_names[self.inner.nx :])

    def rest_input(self, x: np.ndarray) -> np.ndarray:
        return self.inner.rest_input(self.split(x)[0])

    # -- steps ----------------------------------------------------------------------------------

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
        rescue: Rescue = "split",
    ) -> Trajectory:
        a, w = self.split(x0)
        if X is None or K is None:
            return self._outer(self.inner.run(a, np.vstack([w, U[:-1]]), k0, lengths, rescue=rescue), U)
        # the delay is one step
        check_steps(lengths, self.dt, "dt", "the delay of one step", "make the map again with f.with_dt")
        return stepwise(self, x0, U, k0, lengths, X, K, rescue).on_its_step()

    def review(self, trajectory: Trajectory) -> None:
        self.inner.review(self.inner_trajectory(trajectory))

    def _outer(self, run: Trajectory, U: np.ndarray) -> Trajectory:
        x = np.hstack([run.x, np.vstack([run.u, U[-1:]])])
        whole = Trajectory(self, run.t, x, U, run.multipliers, k0=run.k0, splits=run.splits)
        return whole.on_its_step()

    def inner_trajectory(self, run: Trajectory) -> Trajectory:
        """The inner map's trajectory of a run of this one."""
        run = trajectory_of(run)
        x, w = self.split(run.x)
        arrays = (np.ascontiguousarray(x), np.ascontiguousarray(w[:-1]))
        inner = Trajectory(self.inner, run.t, *arrays, run.multipliers, k0=run.k0, splits=run.splits)
        return inner.on_its_step()

    # -- derivatives ----------------------------------------------------------------------------

    def steps_at(self, X: Any, U: Any, k0: int = 0, dt: Any = None, *, rescue: Rescue = "split") -> Steps:
        U = np.asarray(U, float)
        steps = self.inner.steps_at(*self.split(X), k0, dt, rescue=rescue)
        x0, x1 = (np.hstack([x, w]) for x, w in ((steps.x0, steps.u), (steps.x1, U)))
        return replace(steps, x0=x0, x1=x1, u=U)

    def _inner(self, steps: Steps) -> Steps:
        (x0, w), (x1, _) = self.split(steps.x0), self.split(steps.x1)
        return replace(steps, x0=x0, x1=x1, u=w)

    def first(self, steps: Steps) -> Linearization:
        return self._outer_first(self.inner.first(self._inner(steps)))

    def first_with_times(self, steps: Steps) -> Linearization:
        return self._outer_first(self.inner.first_with_times(self._inner(steps)))

    def _outer_first(self, lin: Linearization) -> Linearization:
        n, nm, m = lin.C.shape[0], lin.C.shape[1], self.nu
        top, none = np.concatenate([lin.A, lin.B], axis=2), np.zeros((n, m, self.ndx))
        A = np.concatenate([top, none], axis=1)
        B = np.zeros((n, self.ndx, m))
        B[:, self.inner.ndx :] = np.eye(m)
        P = np.concatenate([lin.P, np.zeros((n, m, lin.P.shape[2]))], axis=1)
        return Linearization(A, B, P, np.concatenate([lin.C, lin.D], axis=2), np.zeros((n, nm, m)), lin.E)

    def second(self, steps: Steps, Z: np.ndarray, zeta: np.ndarray) -> SecondOrder:
        Z = np.ascontiguousarray(Z[:, : self.inner.ndx])
        return self._outer_second(self.inner.second(self._inner(steps), Z, zeta))

    def second_with_times(self, steps: Steps, Z: np.ndarray, zeta: np.ndarray) -> SecondOrder:
        Z = np.ascontiguousarray(Z[:, : self.inner.ndx])
        return self._outer_second(self.inner.second_with_times(self._inner(steps), Z, zeta))

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
        if inner is None:
            return None
        x, u, lam, theta, dt = self.symbols
        x1, t, n = ca.SX.sym("x_next", self.nx), ca.SX.sym("t"), self.inner.nx
        rows = inner(x[:n], x[n:], x1[:n], lam, t, dt, theta)
        return ca.Function("residual", [x, u, x1, lam, t, dt, theta], [ca.vertcat(rows, x1[n:] - u)])

    # -- names ----------------------------------------------------------------------------------

    def quantity(self, name: str) -> ca.SX:
        """Quantities of the inner map, whose ``u.NAME`` is what acts; ``pending.NAME`` likewise."""
        known = self.quantity_names()
        if name not in known and "." not in name:
            name = meaning(name, known)
        if name in self.state_names:
            return super().quantity(name)
        return self._of_inner(self.inner.quantity(name))

    def rotation(self, frame: str) -> ca.SX | None:
        R = self.inner.rotation(frame)
        return None if R is None else self._of_inner(R)

    def _of_inner(self, expression: ca.SX) -> ca.SX:
        x, _, lam, theta, dt = self.symbols
        n = self.inner.nx
        f = ca.Function("quantity", list(self.inner.symbols), [expression])
        return f(x[:n], x[n:], lam, theta, dt)

    def unit(self, name: str) -> str:
        return self.inner.unit(
            f"u.{name.removeprefix(self._prefix)}" if name.startswith(self._prefix) else name
        )

    def force_rounding(self, dt: float) -> float:
        return self.inner.force_rounding(dt)

    def _more_quantities(self) -> list[str]:
        return list(self.inner.quantity_names())

    def identity(self) -> dict[str, Any]:
        return {"map": "DelayedMap", "inner": self.inner.identity(), "dt": self.dt}

    def with_dt(self, dt: float) -> DelayedMap:
        """The same with another step, by which the input is then late."""
        return DelayedMap(self.inner.with_dt(dt))

    def with_parameters(self, **values: float) -> DelayedMap:
        return DelayedMap(self.inner.with_parameters(**values))

    def __reduce__(self):
        return DelayedMap, (self.inner,)

    def __repr__(self) -> str:
        return f"DelayedMap({self.inner!r})"
