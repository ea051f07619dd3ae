"""Map whose input is the process noise of an inner map, for moving-horizon estimation.
The inputs of the inner map are known.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import casadi as ca
import numpy as np

from vioc.errors import ModelError
from vioc.maps.derivatives import Linearization, SecondOrder, Steps
from vioc.maps.made.around import TIMES, MapAround, around, derivatives_of
from vioc.maps.made.stepwise import stepwise
from vioc.maps.named import Symbols
from vioc.maps.protocol import OneStepMap
from vioc.maps.quantities import Quantities, QuantityTable
from vioc.names import INPUTS
from vioc.runs.given import points_of
from vioc.runs.trajectory import Trajectory


class NoisyMap(MapAround):
    """Map whose input w is the process noise of an inner map with known inputs.

    The map is (x, w) -> f(x, u_k + G_k w) + S_k w with the inner map f. Its inputs u_k and the matrices G_k
    and S_k are known. Samples without a step of the inner map have x + S_k w. The map serves for
    moving-horizon estimation.

    Parameters
    ----------
    f : OneStepMap
        Inner map, whose errors must be its states.
    size : int
        Length m of w.
    known : tuple of arrays, optional
        U (N, nu), G (N, nu, m), S (N, nx, m), and a mask (N,), with a row for each of the steps 0 .. N-1 of
        this map. The mask is True for steps that contain a step of the inner map. Default: one step without
        noise.
    k0 : int
        Index that the inner map has at the first True entry of the mask.
    before : float, optional
        Length of the inner map's steps before k0, s; by default its own, also if those steps had another.

    Notes
    -----
    With w of unit covariance the noise of the input is G_k w and that of the state S_k w, with the
    covariances G G' and S S'. These may be singular, because they are not inverted. See
    docs/maths/feedback.md, "Moving horizon".
    """

    _identified_by = (("inner", "inner"), ("size", "nu"))

    def __init__(
        self,
        f: OneStepMap,
        size: int,
        known: tuple[np.ndarray, ...] | None = None,
        k0: int = 0,
        before: float | None = None,
    ):
        if f.ndx != f.nx:
            raise ModelError(
                f"{type(f).__name__}: its errors ({f.ndx}) are not its states ({f.nx}), to which "
                "noise is added; use an integrator in generalized coordinates, or an ExtendedKalmanFilter"
            )
        self._around(f)
        self.inner, self.nu, self.k0 = f, int(size), int(k0)
        self.before = f.dt if before is None else before
        self.input_names = tuple(f"noise.{i}" for i in range(self.nu))
        self._as_mechanism = lambda: around(self, implicit=f.mechanism.implicit)
        table = QuantityTable(self._find, self._names, self._unit, f.quantities.rotation)
        self.quantities = Quantities(self, table)
        s = f.symbols
        self.symbols = Symbols(s.x, ca.SX.sym("w", self.nu), s.multipliers, s.parameters, s.dt)
        self.U: np.ndarray
        self.G: np.ndarray
        self.S: np.ndarray
        self.taken: np.ndarray
        quiet = np.zeros((1, f.nu)), np.zeros((1, f.nu, self.nu)), np.zeros((1, self.nx, self.nu))
        self.U, self.G, self.S, self.taken = known or (*quiet, np.ones(1, bool))

    def with_known(self, known: tuple[np.ndarray, ...], k0: int) -> NoisyMap:
        """Return the same map with other known inputs and noise matrices."""
        twin = object.__new__(type(self))
        twin.__dict__.update(self.__dict__)
        twin.U, twin.G, twin.S, twin.taken = known
        twin.k0, twin.before = k0, self.inner.dt
        return twin

    def _rows(self, k: Any) -> np.ndarray:
        """Return, for each of the steps k, the row of this step in the array of known inputs.
        Steps after the last known input use the last row.
        """
        return np.minimum(k, len(self.U) - 1)

    def rest_input(self, x: np.ndarray) -> np.ndarray:
        return np.zeros(self.nu)

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
        return stepwise(self, x0, U, k0, lengths, X, K, t)

    @property
    def _inner_k0(self) -> int:
        """Step index that the inner map has when this map is at step 0."""
        return self.k0 - (int(np.argmax(self.taken)) if self.taken.any() else 0)

    @property
    def _inner_t0(self) -> float:
        """Time of the inner map at this map's time 0, s."""
        return self._inner_k0 * self.before

    @property
    def depends_on_time(self) -> bool:
        return True  # its matrices depend on the step

    def steps_at(self, X: Any, U: Any, k0: int = 0, dt: Any = None, *, t: np.ndarray | None = None) -> Steps:
        X, W = points_of(self, X, U)
        h, k = self.lengths(dt, len(W)), k0 + np.arange(len(W))
        rows, t = self._rows(k), self.times(h, k0, t)[:-1]
        ends, multipliers = X.copy(), np.zeros((len(W), len(self.multiplier_names)))
        taken = np.flatnonzero(self.taken[rows])
        if len(taken):
            first, count = int(taken[0]), len(taken)
            if taken[-1] - first + 1 != count:
                raise ModelError("steps that are taken are one behind the other")
            some = slice(first, first + count)
            inner = self.inner.steps_at(
                np.ascontiguousarray(X[some]),
                self.U[rows[some]] + np.einsum("kij,kj->ki", self.G[rows[some]], W[some]),
                int(k[first]) + self._inner_k0,
                h[some],
                t=t[some] + self._inner_t0,
            )
            ends[some], multipliers[some] = inner.x1, inner.multipliers
        ends = ends + np.einsum("kij,kj->ki", self.S[rows], W)
        return Steps(X, ends, W, multipliers, t, h, k)

    def _inner(self, steps: Steps) -> tuple[slice, Steps]:
        """Return the range of those `steps` that contain a step of the inner map, and the inner steps.
        Outside of this range, a step of this map only adds noise to the state.
        """
        rows = self._rows(steps.k)
        taken = np.flatnonzero(self.taken[rows])
        some = slice(int(taken[0]), int(taken[-1]) + 1) if len(taken) else slice(0, 0)
        piece, rows = steps.piece(some), rows[some]
        ends = piece.x1 - np.einsum("kij,kj->ki", self.S[rows], piece.u)
        inputs = self.U[rows] + np.einsum("kij,kj->ki", self.G[rows], piece.u)
        return some, replace(piece, x1=ends, u=inputs, k=piece.k + self._inner_k0, t=piece.t + self._inner_t0)

    def _chain(self, steps: Steps, more: int) -> np.ndarray:
        """Return the derivatives of the inner map's arguments with respect to this map's arguments.
        The arguments are the state, the input and `more` others, such as parameters.
        """
        n, m, nu = self.nx, self.nu, self.inner.nu
        J = np.zeros((len(steps), n + nu + more, n + m + more))
        J[:, :n, :n], J[:, n + nu :, n + m :] = np.eye(n), np.eye(more)
        J[:, n : n + nu, n : n + m] = self.G[self._rows(steps.k)]
        return J

    def _first(self, steps: Steps, timed: bool) -> Linearization:
        some, inner = self._inner(steps)
        lin = derivatives_of(self.inner, timed).first(inner)
        n, m, more, nm = self.nx, self.nu, lin.P.shape[2], len(self.multiplier_names)
        matrix = np.zeros((len(steps), n + nm, n + m + more))
        matrix[:, :n, :n] = np.eye(n)
        matrix[some] = lin.matrix @ self._chain(steps.piece(some), more)
        matrix[:, :n, n : n + m] += self.S[self._rows(steps.k)]
        return Linearization.of(matrix[:, :n], matrix[:, n:], m)

    def _second(self, steps: Steps, Z: np.ndarray, zeta: np.ndarray, timed: bool) -> SecondOrder:
        some, inner = self._inner(steps)
        if not len(inner):
            size = self.nx + self.nu + len(self.parameters) + TIMES * timed
            return SecondOrder.of(np.zeros((len(steps), size, size)), self.nx, self.nu)
        second = derivatives_of(self.inner, timed).second
        H = second(inner, np.ascontiguousarray(Z[some]), np.ascontiguousarray(zeta[some]))
        more = H.pp.shape[2]
        size = self.nx + self.nu + more
        whole = np.zeros((len(steps), size, size))
        J = self._chain(steps.piece(some), more)
        whole[some] = np.swapaxes(J, 1, 2) @ H.matrix @ J
        return SecondOrder.of(whole, self.nx, self.nu)

    # -- names ----------------------------------------------------------------------------------

    def state(self, values: Mapping[str, float] | None = None, **named: float) -> np.ndarray:
        return self.inner.state(values, **named)

    def _find(self, name: str) -> ca.SX | None:
        """Return the expression of a quantity of the inner map; None for quantities of this map itself."""
        if name in self.state_names or name.removeprefix("u.") in self.input_names:
            return None
        expression = self.inner.quantity(name)
        if ca.depends_on(expression, self.inner.symbols.u):
            raise ModelError(f"{name}: it depends on the input, which is known here; name the state's")
        return expression

    def _unit(self, name: str) -> str:
        return "" if name.removeprefix("u.") in self.input_names else self.inner.unit(name)

    def _names(self) -> list[str]:
        inputs = {INPUTS + n for n in self.inner.input_names}
        return [n for n in self.inner.quantities.names() if n not in inputs]

    @property
    def _made_of(self) -> tuple:  # type: ignore[override]
        return self.nu, (self.U, self.G, self.S, self.taken), self.k0, self.before

    def __repr__(self) -> str:
        return f"NoisyMap({self.inner!r}, {self.nu} of noise)"
