"""Map with a delay of n steps from a command to its action; pending commands are states."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import casadi as ca
import numpy as np

from vioc.checks import as_count, check_array
from vioc.maps.derivatives import Linearization, SecondOrder, Steps
from vioc.maps.made.around import MapAround, around, derivatives_of, kernel_symbols
from vioc.maps.made.stepwise import stepwise
from vioc.maps.mechanism import Mechanism
from vioc.maps.named import Symbols
from vioc.maps.protocol import Kernel, OneStepMap
from vioc.names import INPUTS
from vioc.runs.given import input_of, inputs_of, point_of, points_of, trajectory_of
from vioc.runs.steps import check_steps
from vioc.runs.trajectory import Trajectory

PENDING = "pending."  # prefix of the states that are pending inputs


class DelayedMap(MapAround):
    """Map with an input delay of n steps, whose state contains the pending commands.

    It is (x, w1, ..., wn) -> (f(x, w1), w2, ..., wn, u). All tools for maps work on it: `dlqr` about its
    equilibria is a regulator that takes the delay into account.

    Parameters
    ----------
    f : OneStepMap
    n : int
        Number of steps from a command to its action, >= 1.

    Notes
    -----
    States are those of the inner map and ``pending.INPUT``, which acts in this step, then
    ``pending.pending.INPUT``, which acts a step later, and so on. ``u.INPUT`` is the command.
    `inner_trajectory` is the trajectory of the inner map.
    """

    _identified_by = (("inner", "inner"), ("delay", "n"))

    def __init__(self, f: OneStepMap, n: int = 1):
        if not isinstance(f, OneStepMap):
            raise TypeError(f"expected a one-step map, got {type(f).__name__}")
        self.inner, self.n = f, as_count(n, "n")
        least = PENDING
        while any(least + name in f.state_names for name in f.input_names):
            least += PENDING  # after the delays of the inner map itself
        self._prefixes = tuple(least + j * PENDING for j in range(self.n))
        self._around(
            f,
            tuple(prefix + name for prefix in self._prefixes for name in f.input_names),
            self.expression,
            self._unit,
        )
        self._as_mechanism, self._as_kernel = self._mechanical, self._delayed_kernel
        self._made_of = (self.n,)
        self.symbols = Symbols.sized(self.nx, self.nu, len(self.multiplier_names), len(self.parameters))

    def _mechanical(self) -> Mechanism:
        return around(self, lambda run: self.inner.mechanism.review(self.inner_trajectory(run)))

    # -- the state space ------------------------------------------------------------------------

    def join(self, x: Any, pending: Any = None) -> np.ndarray:
        """Return a state, given the inner map's state and the pending commands.
        The first pending command acts in the next step.

        `pending` has shape (n, nu), or (nu,) for equal commands; None is `rest_input`.
        """
        x = self.inner.check_state(x)
        if np.ndim(pending) < 2:
            return np.concatenate([x, *[input_of(self.inner, pending, x)] * self.n])
        return np.concatenate([x, check_array(pending, (self.n, self.nu), "pending").ravel()])

    def state(self, values: Mapping[str, float] | None = None, **named: float) -> np.ndarray:
        """Return a state with the given values by name, also those of pending commands.

        Pending commands are ``pending.INPUT``, ...
        """
        rest = {**(values or {}), **named}
        rows = []
        for prefix in reversed(self._prefixes):
            given = [name for name in rest if name.startswith(prefix)]
            rows.append(self.inner.input({name.removeprefix(prefix): rest.pop(name) for name in given}))
        return np.concatenate([self.inner.state(rest), *reversed(rows)])

    def initial_state(self, q: Any = None, v: Any = None, u: Any = None, **named: float) -> np.ndarray:
        """Return an initial state with the given configurations and velocities.
        The argument u has the pending commands: one input (nu,) for all, or an array (n, nu), whose first row
        acts in the first step. By default they are `rest_input`; see `join`.
        """
        acting = u if np.ndim(u) < 2 else u[0]
        return self.join(self.inner.initial_state(q, v, acting, **named), u)

    # -- steps ----------------------------------------------------------------------------------

    def times(self, lengths: np.ndarray, k0: int, begins: np.ndarray | None = None) -> np.ndarray:
        return self.inner.times(lengths, k0, begins)

    def step(self, x: Any, u: Any = None, k: int = 0, dt: float | None = None) -> np.ndarray:
        x, u = point_of(self, x, u)
        a, w = self.split(x)
        return np.concatenate([self.inner.step(a, w[: self.nu], k, dt), w[self.nu :], u])

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
            commands = np.vstack([w.reshape(self.n, self.nu), U])  # in order of action
            return self._outer(self.inner.run(a, commands[: len(U)], k0, lengths, t=t), commands)
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
        """Return the trajectory under the feedback u[k] = U[k] - K[k] difference(X[k], x[k]).
        The input u[k] is a command, which acts after the delay. All steps must have the map's default
        length.

        It is `OneStepMap.track`; gains are designed for the delay in seconds.
        """
        n = len(inputs_of(self, U, None, self.check_state(x0, "initial state")))
        lengths = self.lengths(dt, n)
        check_steps(lengths, self.dt, "dt", "a delay in steps", "make the map again with f.with_dt")
        return super().track(x0, X, U, K, k0=k0, dt=lengths, t=t)

    def _outer(self, run: Trajectory, commands: np.ndarray) -> Trajectory:
        n, U = self.n, commands[self.n :]
        x = np.hstack([run.x, *(commands[j : len(U) + 1 + j] for j in range(n))])
        whole = Trajectory(self, run.t, x, U, run.multipliers, k0=run.k0)
        return whole.on_its_step()

    def inner_trajectory(self, run: Trajectory) -> Trajectory:
        """Return the same motion as a trajectory of the inner map, which has no delay.
        Its inputs are the commands at the times at which they act."""
        run = trajectory_of(run)
        x, w = self.split(run.x)
        arrays = (np.ascontiguousarray(x), np.ascontiguousarray(w[:-1, : self.nu]))
        inner = Trajectory(self.inner, run.t, *arrays, run.multipliers, k0=run.k0)
        return inner.on_its_step()

    # -- derivatives ----------------------------------------------------------------------------

    def steps_at(self, X: Any, U: Any, k0: int = 0, dt: Any = None, *, t: np.ndarray | None = None) -> Steps:
        X, U = points_of(self, X, U)
        x, w = self.split(X)
        steps = self.inner.steps_at(x, np.ascontiguousarray(w[:, : self.nu]), k0, dt, t=t)
        x0, x1 = np.hstack([steps.x0, w]), np.hstack([steps.x1, w[:, self.nu :], U])
        return replace(steps, x0=x0, x1=x1, u=U)

    def _inner(self, steps: Steps) -> Steps:
        (x0, w), (x1, _) = self.split(steps.x0), self.split(steps.x1)
        return replace(steps, x0=x0, x1=x1, u=w[:, : self.nu])

    def _first(self, steps: Steps, timed: bool) -> Linearization:
        lin = derivatives_of(self.inner, timed).first(self._inner(steps))
        count, nm, _ = lin.C.shape
        size, m, buffer = self.inner.ndx, self.nu, self.n * self.nu
        A, B = np.zeros((count, self.ndx, self.ndx)), np.zeros((count, self.ndx, m))
        A[:, :size, :size], A[:, :size, size : size + m] = lin.A, lin.B
        A[:, size : size + buffer - m, size + m :] = np.eye(buffer - m)
        B[:, -m:] = np.eye(m)
        P = np.concatenate([lin.P, np.zeros((count, buffer, lin.P.shape[2]))], axis=1)
        C = np.concatenate([lin.C, lin.D, np.zeros((count, nm, buffer - m))], axis=2)
        return Linearization(A, B, P, C, np.zeros((count, nm, m)), lin.E)

    def _second(self, steps: Steps, Z: np.ndarray, zeta: np.ndarray, timed: bool) -> SecondOrder:
        Z = np.ascontiguousarray(Z[:, : self.inner.ndx])
        # the inner input is a state here, and the command enters linearly
        H = derivatives_of(self.inner, timed).second(self._inner(steps), Z, zeta)
        n, m, ndx = len(H.xx), self.nu, self.ndx
        size = self.inner.ndx + m
        inner = H.matrix
        whole = np.zeros((n, ndx + m + H.pp.shape[1], ndx + m + H.pp.shape[1]))
        indices = np.concatenate([np.arange(size), np.arange(ndx + m, whole.shape[1])])
        whole[:, indices[:, None], indices] = inner
        return SecondOrder.of(whole, ndx, m)

    @cached_property
    def residual(self) -> ca.Function | None:
        inner = self.inner.residual
        if inner is None or self.inner.mechanism.relaxed() is not None:  # those of contacts determine no step
            return None
        x, u, lam, theta, dt = self.symbols
        x1, t, n = ca.SX.sym("x_next", self.nx), ca.SX.sym("t"), self.inner.nx
        rows = inner(x[:n], x[n : n + self.nu], x1[:n], lam, t, dt, theta)
        moved = x1[n:] - ca.vertcat(x[n + self.nu :], u)
        return ca.Function("residual", [x, u, x1, lam, t, dt, theta], [ca.vertcat(rows, moved)])

    def _delayed_kernel(self) -> Kernel | None:
        inner, n, nu = self.inner.kernel, self.inner.nx, self.nu
        if inner is None:
            return None
        x, u, t, dt, theta = args = kernel_symbols(self)
        x1, multipliers, error = inner.function(x[:n], x[n : n + nu], t, dt, theta)
        after = ca.vertcat(x1, x[n + nu :], u)
        function = ca.Function("delayed", args, [after, multipliers, error])
        return Kernel(function, inner.tolerance, self.space.difference_expression)

    # -- names ----------------------------------------------------------------------------------

    def expression(self, of_inner: ca.SX) -> ca.SX:
        """Rewrite an expression in the inner map's symbols as one in this map's symbols.

        The inner input is the oldest pending command.
        """
        x, _, lam, theta, dt = self.symbols
        n = self.inner.nx
        f = ca.Function("quantity", list(self.inner.symbols), [of_inner])
        return f(x[:n], x[n : n + self.nu], lam, theta, dt)

    def _unit(self, name: str) -> str | None:
        commands = self.state_names[self.inner.nx :]
        return (
            self.inner.unit(INPUTS + self.input_names[commands.index(name) % self.nu])
            if name in commands
            else None
        )

    def __repr__(self) -> str:
        return f"DelayedMap({self.inner!r}, {self.n})"
