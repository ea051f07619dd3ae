"""One-step map whose step x+ = f(x, u) is a user's explicit CasADi function."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import casadi as ca

from vioc.checks import as_names
from vioc.compile.backend import Backend
from vioc.maps.explicit import ExplicitMap
from vioc.maps.named import Symbols
from vioc.maps.twins import shared


class CasadiMap(ExplicitMap):
    """One-step map from a user's explicit CasADi function x, u -> x_next.

    All tools of `vioc.control` work on it.

    Parameters
    ----------
    function : casadi.Function
        ``(x, u) -> x_next``, and optionally further inputs in the order ``t, dt, parameters``.
    dt : float
        Step length, s. vioc uses it for ``t = k dt``; its effect on a step is up to the function.
    state_names, input_names : sequences of str, optional
        By default ``x0, x1, ...`` and ``u0, u1, ...``.
    parameters : dict of str to float, optional
        Names and values of the function's parameter vector.
    wrap : sequence of str
        States that are angles modulo 2 pi; `difference` returns their error in [-pi, pi].
    backend : {"virtual", "compiled", "auto"}
        Evaluator of the map's functions; see `Backend`.

    Raises
    ------
    ValueError
        If the function's shapes do not fit.

    Examples
    --------
    >>> x, u = ca.SX.sym("x", 2), ca.SX.sym("u")
    >>> f = CasadiMap(ca.Function("f", [x, u], [x + 0.1 * ca.vertcat(x[1], u)]), dt=0.1)
    """

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
        self.lengths(None, 1)
        self.state_names = tuple(state_names or (f"x{i}" for i in range(self.nx)))
        self.input_names = tuple(input_names or (f"u{i}" for i in range(self.nu)))
        self.multiplier_names = ()
        self.parameters = {n: float(v) for n, v in (parameters or {}).items()}
        if len(self.state_names) != self.nx or len(self.input_names) != self.nu:
            raise ValueError(
                f"expected {self.nx} state and {self.nu} input names, got "
                f"{len(self.state_names)} and {len(self.input_names)}"
            )
        taken = function.numel_in(4) if function.n_in() > 4 else 0
        if taken != len(self.parameters):
            raise ValueError(
                f"the function takes {taken} parameters, {len(self.parameters)} are named; its inputs are "
                "x, u, t, dt, parameters in this order"
            )
        self.wrap = as_names(wrap, "wrap")
        self._check_wrap()
        self.function = function
        self.symbols = Symbols.sized(self.nx, self.nu, parameters=len(self.parameters))
        _ = self.explicit  # reports functions without a symbolic form now, not at the first step

    @shared
    def explicit(self) -> ca.Function:
        f, (x, u, lam, theta, dt), t = self.function, self.symbols, ca.SX.sym("t")
        args = [x, u, t, dt, theta]
        return ca.Function("step", args, [ca.densify(f(*args[: f.n_in()])), lam, ca.SX(0)])

    @shared
    def residual(self) -> ca.Function:
        """CasADi function of the residual x_next - f(x, u), which is zero for a step of the map.

        Its arguments are (x, u, x_next, multipliers, t, dt, parameters).
        """
        x, u, lam, theta, dt = self.symbols
        x_next, t = ca.SX.sym("x_next", self.nx), ca.SX.sym("t")
        rows = x_next - self.explicit(x, u, t, dt, theta)[0]
        return ca.Function("residual", [x, u, x_next, lam, t, dt, theta], [rows])

    def __reduce__(self):
        options = dict(
            state_names=self.state_names,
            input_names=self.input_names,
            parameters=self.parameters,
            wrap=self.wrap,
            backend=self.backend.name,
        )
        return _rebuild, (self.function, self.dt, options)

    def __repr__(self) -> str:
        return (
            f"CasadiMap({self.function.name()}: states {', '.join(self.state_names)}; "
            f"inputs {', '.join(self.input_names)}; dt = {self.dt:g} s)"
        )


def _rebuild(function: ca.Function, dt: float, options: dict) -> CasadiMap:
    return CasadiMap(function, dt, **options)
