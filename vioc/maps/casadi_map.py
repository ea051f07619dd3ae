"""`CasadiMap`: any explicit CasADi function x, u -> x+ as a one-step map."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import casadi as ca
import numpy as np

from vioc.checks import as_names
from vioc.compile.backend import Backend
from vioc.compile.evaluate import Evaluator
from vioc.errors import StepError
from vioc.maps.given import trajectory_of
from vioc.maps.kernel import KernelMap, shared
from vioc.maps.protocol import Linearization, SecondOrder, Symbols
from vioc.maps.trajectory import Trajectory


class CasadiMap(KernelMap):
    """A map of your own: every tool of `vioc.control` works on it.

    Parameters
    ----------
    function : casadi.Function
        ``(x, u) -> x_next``, and optionally further inputs in the order ``t, dt, parameters``.
    dt : float
        s; only its meaning for ``t = k dt`` is vioc's.
    state_names, input_names : sequences of str, optional
        Default ``x0, x1, ...`` and ``u0, u1, ...``.
    parameters : dict of str to float, optional
        Names and values of the function's parameter vector.
    wrap : sequence of str
        States that are angles modulo 2 pi; `difference` returns their error in [-pi, pi].
    backend : {"virtual", "compiled", "auto"}
        What runs the map's functions; see `Backend`.

    Raises
    ------
    ValueError
        If the function's shapes do not fit.

    Examples
    --------
    >>> x, u = ca.SX.sym("x", 2), ca.SX.sym("u")
    >>> f = CasadiMap(ca.Function("f", [x, u], [x + 0.1 * ca.vertcat(x[1], u)]), dt=0.1)
    """

    _tolerance = np.inf  # an explicit map fails only by numbers that are not finite

    def __init__(
        self,
        function: ca.Function,
        dt: float,
        *,
        state_names: Sequence[str] | None = None,
        input_names: Sequence[str] | None = None,
        parameters: Mapping[str, float] | None = None,
        wrap: Sequence[str] = (),
        backend: str = "virtual",
    ):
        self.backend = Backend(backend)
        if not isinstance(function, ca.Function):
            raise TypeError(
                f"expected a casadi.Function, got {type(function).__name__}: build one from symbols"
            )
        if not 2 <= function.n_in() <= 5 or function.n_out() != 1:
            raise ValueError(
                "expected a function (x, u[, t, dt, parameters]) -> x_next, got "
                f"{function.n_in()} inputs and {function.n_out()} outputs"
            )
        self.nx, self.nu = function.numel_in(0), function.numel_in(1)
        self.ndx = self.nx
        if function.numel_out(0) != self.nx:
            raise ValueError(f"x_next has {function.numel_out(0)} entries, x has {self.nx}")
        self.dt = float(dt)
        self._step_lengths(None, 1)
        self.state_names = tuple(state_names or (f"x{i}" for i in range(self.nx)))
        self.input_names = tuple(input_names or (f"u{i}" for i in range(self.nu)))
        self.multiplier_names = ()
        self.parameters = {n: float(v) for n, v in (parameters or {}).items()}
        if len(self.state_names) != self.nx or len(self.input_names) != self.nu:
            raise ValueError(
                f"expected {self.nx} state and {self.nu} input names, got "
                f"{len(self.state_names)} and {len(self.input_names)}"
            )
        if function.n_in() > 4 and function.numel_in(4) != len(self.parameters):
            raise ValueError(
                f"the function takes {function.numel_in(4)} parameters, {len(self.parameters)} are named"
            )
        self.wrap = as_names(wrap)
        self._check_wrap()
        self.function = function
        self._build()

    def _build(self) -> None:
        f = self.function
        x, u = ca.SX.sym("x", self.nx), ca.SX.sym("u", self.nu)
        t, dt = ca.SX.sym("t"), ca.SX.sym("dt")
        theta = ca.SX.sym("theta", len(self.parameters))
        z = ca.SX.sym("z", self.ndx)
        self.symbols = Symbols(x, u, ca.SX.sym("multipliers", 0), theta, dt)
        args = [x, u, t, dt, theta]
        x_next = ca.densify(f(*args[: f.n_in()]))
        self._next = ca.Function("next", args, [x_next])
        self._kernel = ca.Function("step", args, [x_next, ca.SX(0, 1), ca.SX(0)])
        jacobian = [ca.jacobian(x_next, v) for v in (x, u, theta)]

        def evaluator(name: str, inputs: list[ca.SX], outputs: list[ca.SX]) -> Evaluator:
            build = lambda: ca.Function(name, inputs, outputs, {"cse": True})  # noqa: E731
            return Evaluator(self.backend.program(build, name))

        self._first = evaluator("first", args, jacobian)
        hessian = ca.hessian(ca.dot(z, x_next), ca.vertcat(x, u, theta))[0]
        self._second = evaluator("second", [*args, z], [hessian])

    @shared
    def residual(self) -> ca.Function:
        """(x, u, x_next, multipliers, t, dt, parameters) -> x_next - f(x, u)."""
        x, u, lam, theta, dt = self.symbols
        x_next, t = ca.SX.sym("x_next", self.nx), ca.SX.sym("t")
        rows = x_next - self._next(x, u, t, dt, theta)
        return ca.Function("residual", [x, u, x_next, lam, t, dt, theta], [rows], {"cse": True})

    def __reduce__(self):
        options = dict(
            state_names=self.state_names,
            input_names=self.input_names,
            parameters=self.parameters,
            wrap=self.wrap,
            backend=self.backend.name,
        )
        return _rebuild, (self.function, self.dt, options)

    def _carry(self, x: np.ndarray, before: np.ndarray, dt: float) -> np.ndarray:
        return x

    def _rescue(self, x: np.ndarray, u: np.ndarray, k: int, t: float, dt: float):
        raise StepError(
            f"step {k}: the map returned numbers that are not finite from x = {x}, u = {u}",
            k,
            float("nan"),
            "not finite",
        )

    def linearize(self, x: Any, u: Any = None, k: int = 0, dt: float | None = None) -> Linearization:
        x, u = self.check_point(x, u)
        h = self._step_lengths(dt, 1)
        return self._linearization(self._first(x, u, k * h, h, self._theta))

    def linearize_points(self, X: Any, U: Any, *, k0: int = 0, dt: Any = None) -> Linearization:
        h = self._step_lengths(dt, len(U))
        t = self._times(k0, h)[:-1]
        return self._linearization(self._first(X, U, t[:, None], h[:, None], self._theta))

    def linearize_trajectory(self, trajectory: Trajectory) -> Linearization:
        trajectory = trajectory_of(trajectory)
        n, t = len(trajectory), trajectory.t
        h = trajectory.step_lengths[:, None]
        return self._linearization(self._first(trajectory.x[:n], trajectory.u, t[:n, None], h, self._theta))

    def _linearization(self, blocks: list[np.ndarray]) -> Linearization:
        A, B, P = blocks
        lead = A.shape[:-2]
        none = [np.empty((*lead, 0, m.shape[-1])) for m in (A, B, P)]
        return Linearization(A, B, P, *none)

    def second_order(
        self, x: Any, u: Any, z: Any, k: int = 0, dt: float | None = None, *, zeta: Any = None
    ) -> SecondOrder:
        x, u = self.check_point(x, u)
        h = self._step_lengths(dt, 1)
        return self._hessian(self._second(x, u, k * h, h, self._theta, np.asarray(z, float))[0])

    def second_order_trajectory(
        self, trajectory: Trajectory, Z: np.ndarray, zeta: np.ndarray | None = None
    ) -> SecondOrder:
        trajectory = trajectory_of(trajectory)
        n, t = len(trajectory), trajectory.t
        h = trajectory.step_lengths[:, None]
        x, u = trajectory.x[:n], trajectory.u
        return self._hessian(self._second(x, u, t[:n, None], h, self._theta, Z)[0])

    def _hessian(self, H: np.ndarray) -> SecondOrder:
        x, u, p = np.split(np.arange(H.shape[-1]), [self.nx, self.nx + self.nu])

        def block(a, b):
            return H[..., a[:, None], b[None, :]]

        return SecondOrder(block(x, x), block(x, u), block(u, u), block(x, p), block(u, p), block(p, p))

    def __repr__(self) -> str:
        return (
            f"CasadiMap({self.function.name()}: states {', '.join(self.state_names)}; "
            f"inputs {', '.join(self.input_names)}; dt = {self.dt:g} s)"
        )


def _rebuild(function: ca.Function, dt: float, options: dict) -> CasadiMap:
    return CasadiMap(function, dt, **options)
