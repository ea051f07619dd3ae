"""The one-step-map protocol: everything that `vioc.control` knows of a mechanism.

A map is x[k+1] = f(x[k], u[k]) with exact first and second derivatives. Every integrator of vioc is
one, and so is any CasADi function of a user's (`vioc.CasadiMap`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import casadi as ca
import numpy as np

from vioc.checks import as_value, check_array, check_rows, few
from vioc.compile.backend import Backend
from vioc.compile.cores import over_cores
from vioc.errors import StepError
from vioc.maps.batch import Batch
from vioc.maps.derivatives import Linearization, SecondOrder, Steps
from vioc.maps.given import state_of, trajectory_of
from vioc.maps.signals import inputs
from vioc.names import by_name, meaning
from vioc.progress import Progress

if TYPE_CHECKING:
    from vioc.maps.trajectory import Split, Trajectory

Rescue = bool | Literal["split"]

TURN = 2 * np.pi
TENSOR_ROWS = 1000  # steps whose second derivatives are taken at once, for a tensor


class Symbols(NamedTuple):
    """The symbols that named quantities are written in (CasADi SX column vectors).

    Attributes
    ----------
    x : (nx,)
    u : (nu,)
    multipliers : (number of constraints,)
        Those of the step that starts at (x, u).
    parameters : (number of parameters,)
    dt : (1,)
        Length of that step, s.
    """

    x: ca.SX
    u: ca.SX
    multipliers: ca.SX
    parameters: ca.SX
    dt: ca.SX


class Kernel(NamedTuple):
    """A step with its solver: (carry, u, t, dt, parameters) -> (carry_next, multipliers, error).

    A carry begins with the state and may go on with seeds for the solver; `start` makes the first one, of
    the state and the first step's length. A step is solved if `error` is within `tolerance`; `robust` makes
    a function that tries harder, None if there is none. `difference` is the map's, on SX columns.
    """

    function: ca.Function
    robust: Callable[[], ca.Function | None]
    start: Callable[[np.ndarray, float], np.ndarray]
    tolerance: float
    difference: Callable[[ca.SX, ca.SX], ca.SX]


class OneStepMap(ABC):
    """x[k+1] = f(x[k], u[k]), exactly differentiable.

    Attributes
    ----------
    nx, ndx, nu : int
        Sizes of the state, of its error (tangent) and of the input.
    dt : float
        Default time step, s. Step k starts at t = k dt, for `step` and derivatives with the dt they are
        given; a rollout with unequal steps starts at k0 times the default and adds them up.
    state_names, input_names, multiplier_names : tuples of str
    wrap : tuple of str
        States, or quantities of them, that are angles modulo 2 pi.
    parameters : dict of str to float
        Values of the declared parameters; `with_parameters` makes a map with others.
    system : System or None
        The mechanism, where the map is an integrator of one.
    strings : tuple of str
        Constraints that can only pull; their ``tension.NAME`` is a quantity.
    impulse_behind : float
        What share of a step's impulses makes up for the step before.
    symbols : Symbols
    backend : Backend
        What evaluates the map's functions: ``backend.prepare(function)`` does so for any other.
    """

    backend: Backend = Backend()
    nx: int
    ndx: int
    nu: int
    dt: float
    state_names: tuple[str, ...]
    input_names: tuple[str, ...]
    multiplier_names: tuple[str, ...]
    wrap: tuple[str, ...] = ()
    parameters: dict[str, float]
    symbols: Symbols
    system: Any = None
    strings: tuple[str, ...] = ()
    impulse_behind: float = 0.0

    @property
    def theta(self) -> np.ndarray:
        """Values of the parameters (np,), as functions of `symbols` take them."""
        return np.array(list(self.parameters.values()), float)

    # -- the state space ------------------------------------------------------------------------

    def difference(self, x0: np.ndarray, x1: np.ndarray) -> np.ndarray:
        """x1 - x0 as an error vector, angles in `wrap` the short way; shapes (..., nx) -> (..., ndx)."""
        d = np.asarray(x1, float) - np.asarray(x0, float)
        return np.where(self.wrapped, d - TURN * np.round(d / TURN), d) if self.wrap else d

    def retract(self, x: np.ndarray, dx: np.ndarray) -> np.ndarray:
        """The state that lies the error `dx` away from `x`; inverse of `difference`."""
        return np.asarray(x, float) + np.asarray(dx, float)

    def difference_expression(self, x0: Any, x1: Any) -> Any:
        """`difference` on columns of CasADi symbols, SX or MX."""
        self._check_flat("difference")
        d = x1 - x0
        return d - TURN * ca.DM(self.wrapped) * ca.floor(d / TURN + 0.5) if self.wrap else d

    def retract_expression(self, x: Any, dx: Any) -> Any:
        """`retract` on columns of CasADi symbols, exact to second order in `dx`."""
        self._check_flat("retract")
        return x + dx

    def _check_flat(self, name: str) -> None:
        if self.ndx != self.nx:
            raise ValueError(
                f"{type(self).__name__}: its errors ({self.ndx}) are not its states ({self.nx}); define "
                f"{name}_expression, `{name}` on CasADi symbols, to differentiate by them"
            )

    @property
    def error_names(self) -> tuple[str, ...]:
        """Names of the state's error, (ndx,): the states', where errors are differences of states."""
        return self.state_names if self.ndx == self.nx else tuple(f"error {i}" for i in range(self.ndx))

    @property
    def wrapped(self) -> np.ndarray:
        """1 for states in `wrap`, else 0: (nx,)."""
        return np.array([n in self.wrap for n in self.state_names], float)

    # -- steps ----------------------------------------------------------------------------------

    @abstractmethod
    def step(self, x: Any, u: Any = None, k: int = 0, dt: float | None = None) -> np.ndarray:
        """One step, as `rollout` takes it: x[k+1] of shape (nx,). Raises `StepError` where it has none."""

    @abstractmethod
    def rollout(
        self,
        x0: Any,
        U: Any = None,
        steps: int | None = None,
        *,
        k0: int = 0,
        dt: float | Sequence[float] | np.ndarray | None = None,
        warn: bool = True,
        rescue: Rescue = "split",
    ) -> Trajectory:
        """Steps from `x0` under inputs `U` (N, nu), or `steps` steps with a constant or no input.

        No input is zero force, with prescribed configurations held.

        `rescue` is what is done about a step that the solver cannot take at once: ``"split"`` solves it
        by every means, and where it has no solution takes it in parts if the map can, halves, quarters,
        ... (`Trajectory.splits` says which, and derivatives are of these parts); True solves it by every
        means, whole; False raises at once. The `StepError` of a run that ends has the motion until
        then, ``error.trajectory``.

        `dt` may be one length of all steps, or N lengths that need not be equal; where they are equal, the
        trajectory's map has that step (`with_dt`). `warn` False keeps quiet about what the
        rollout would warn of.
        """

    def rollouts(
        self,
        X0: Any,
        U: Any = None,
        steps: int | None = None,
        *,
        k0: int = 0,
        dt: float | Sequence[float] | np.ndarray | None = None,
        workers: int | None = None,
        raise_on_failure: bool = True,
        rescue: Rescue = "split",
    ) -> Batch:
        """Many rollouts, over the cores.

        Parameters
        ----------
        X0 : (M, nx) or (nx,)
            Initial states; one serves all.
        U : (M, N, nu), (N, nu), (nu,) or None
            Inputs of each rollout, or of all.
        steps : int, optional
            N, where U does not tell.
        k0, dt, rescue
            As in `rollout`.
        workers : int, optional
            Threads; default the environment variable ``VIOC_WORKERS``, else the cores. The results do
            not depend on it.
        raise_on_failure : bool
            False keeps a rollout that fails as NaN, and its error in ``errors``.

        Returns
        -------
        Batch

        Raises
        ------
        StepError
            Of the first rollout that fails; its text says which.
        """
        if U is None and steps is not None:
            U = getattr(X0, "u", None)
        X0 = np.atleast_2d(np.asarray(state_of(X0, "initial states"), float))
        each = np.ndim(U) == 3
        if X0.ndim != 2 or X0.shape[1] != self.nx:
            raise ValueError(f"initial states: expected shape (M, {self.nx}), got {X0.shape}")
        count = max(len(X0), len(U) if each else 1)
        if len(X0) not in (1, count) or (each and len(U) not in (1, count)):
            raise ValueError(f"got {len(X0)} initial states and {len(U)} sequences of inputs")
        first = self.check_inputs(U[0] if each else U, steps, X0[0])
        shape = count, len(first)
        x = np.full((shape[0], shape[1] + 1, self.nx), np.nan)
        u = np.zeros((*shape, self.nu))
        multipliers = np.full((*shape, len(self.multiplier_names)), np.nan)
        errors: dict[int, StepError] = {}
        owners: list[OneStepMap] = [self]
        splits: dict[int, Mapping[int, Split]] = {}
        t = np.zeros(shape[1] + 1)

        def work(i: int) -> None:
            inputs = U[min(i, len(U) - 1)] if each else U
            x0 = X0[min(i, len(X0) - 1)]
            try:
                run = self.rollout(x0, inputs, steps, k0=k0, dt=dt, warn=False, rescue=rescue)
            except StepError as error:
                errors[i] = StepError(
                    f"rollout {i}: {error}", error.k, error.residual, error.cause, error.trajectory
                )
                u[i] = self.check_inputs(inputs, steps, x0)
                return
            x[i], u[i], multipliers[i], t[:] = run.x, run.u, run.multipliers, run.t
            owners[0] = run.map  # of all, the same step
            if run.splits:
                splits[i] = run.splits

        work(0)  # builds what all share
        with Progress("rollouts", count, 1) as progress:
            for _ in over_cores(work, range(1, count), workers):
                progress.advance()
        if errors and raise_on_failure:
            raise errors[min(errors)]
        errors, splits = dict(sorted(errors.items())), dict(sorted(splits.items()))
        return Batch(owners[0], t, x, u, multipliers, errors, k0, splits)

    @abstractmethod
    def track(
        self,
        x0: Any,
        X: Any,
        U: Any,
        K: Any,
        *,
        k0: int = 0,
        dt: float | Sequence[float] | np.ndarray | None = None,
        rescue: Rescue = "split",
    ) -> Trajectory:
        """Closed-loop rollout with u[k] = U[k] - K[k] difference(X[k], x[k]).

        Shapes: X (N or N+1, nx), U (N, nu), K (N, nu, ndx). The trajectory's `u` is what was applied; `dt`
        and `rescue` as in `rollout`, a trial that diverges is not worth the effort.
        """

    # -- derivatives ----------------------------------------------------------------------------

    @abstractmethod
    def steps_at(
        self, X: Any, U: Any, k0: int = 0, dt: float | Sequence[float] | np.ndarray | None = None
    ) -> Steps:
        """One step each from N states X (N, nx) under inputs U (N, nu), step k0 + i at row i.

        What `first` and `second` do not read of steps need not be solved for, and may be NaN.
        """

    @abstractmethod
    def first(self, steps: Steps) -> Linearization:
        """First derivatives of solved steps, with a leading axis; not finite where there are none, or
        `StepError` that says why.
        """

    @abstractmethod
    def second(self, steps: Steps, Z: np.ndarray, zeta: np.ndarray) -> SecondOrder:
        """Second derivatives of solved steps, contracted with Z (N, ndx) and zeta (N, nm)."""

    def tensor(self, steps: Steps) -> tuple[SecondOrder, SecondOrder]:
        """Those of every output: of the next state (N, ndx, ...) and of the multipliers (N, nm, ...)."""
        n, ndx, nm = len(steps), self.ndx, len(self.multiplier_names)
        weights, at_once, found = np.eye(ndx + nm), max(1, TENSOR_ROWS // max(n, 1)), []
        for i in range(0, ndx + nm, at_once):
            some = weights[i : i + at_once]
            w = np.repeat(some, n, axis=0)
            found.append(self.second(steps.tiled(len(some)), w[:, :ndx].copy(), w[:, ndx:].copy()))
        each = SecondOrder.joined(found).blocks
        whole = {k: m.reshape(ndx + nm, n, *m.shape[1:]).swapaxes(0, 1) for k, m in each.items()}
        states, multipliers = (
            {k: m[:, of] for k, m in whole.items()} for of in (slice(ndx), slice(ndx, None))
        )
        return SecondOrder(**states), SecondOrder(**multipliers)

    def linearize(self, x: Any, u: Any = None, k: int = 0, dt: float | None = None) -> Linearization:
        """Exact first derivatives of the step at (x, u)."""
        return self._regular(self._step_at(x, u, k, dt)).rows(0)

    def linearize_points(
        self, X: Any, U: Any, *, k0: int = 0, dt: float | Sequence[float] | np.ndarray | None = None
    ) -> Linearization:
        """`linearize` at N states X (N, nx) and inputs U (N, nu), step k0 + i at row i; `dt` as `rollout`."""
        return self._regular(self.steps_at(X, U, k0, dt))

    def linearize_trajectory(self, trajectory: Trajectory) -> Linearization:
        """`linearize` along a rollout of this map; its steps are not solved again."""
        return self._regular(Steps.along(trajectory_of(trajectory)))

    def second_order(
        self, x: Any, u: Any, z: Any, k: int = 0, dt: float | None = None, *, zeta: Any = None
    ) -> SecondOrder:
        """Exact Hessian of z . f(x, u) (+ zeta . multipliers)."""
        steps = self._step_at(x, u, k, dt)
        return self._contracted(steps, np.asarray(z, float)[None], None if zeta is None else [zeta]).rows(0)

    def second_order_trajectory(
        self, trajectory: Trajectory, Z: np.ndarray, zeta: np.ndarray | None = None
    ) -> SecondOrder:
        """`second_order` along a rollout of this map, with weights Z (N, ndx), zeta (N, nm)."""
        return self._contracted(Steps.along(trajectory_of(trajectory)), Z, zeta)

    def second_order_tensor(
        self, x: Any, u: Any = None, k: int = 0, dt: float | None = None
    ) -> tuple[SecondOrder, SecondOrder]:
        """The full second derivatives, output axis first, as (states, multipliers).

        Returns
        -------
        SecondOrder, SecondOrder
            ``xx[i, a, b]`` is the second derivative of output i by errors a and b, and so on: of the
            next state's error coordinates, and of the multipliers.
        """
        states, multipliers = self.tensor(self._step_at(x, u, k, dt))
        return states.rows(0), multipliers.rows(0)

    def second_order_tensor_trajectory(self, trajectory: Trajectory) -> tuple[SecondOrder, SecondOrder]:
        """`second_order_tensor` along a rollout of this map, with a leading axis of N steps.

        That is (ndx + nm) (ndx + nu)^2 numbers for each step, 5 MB for the marionette of [S].
        """
        return self.tensor(Steps.along(trajectory_of(trajectory)))

    def _step_at(self, x: Any, u: Any, k: int, dt: float | None) -> Steps:
        x, u = self.check_point(x, u)
        return self.steps_at(x[None], u[None], k, dt)

    def _contracted(self, steps: Steps, Z: Any, zeta: Any) -> SecondOrder:
        zeta = np.zeros(steps.multipliers.shape) if zeta is None else zeta
        return self.second(steps, *(np.ascontiguousarray(w, float) for w in (Z, zeta)))

    def _regular(self, steps: Steps) -> Linearization:
        """First derivatives, or `StepError` where a step has none."""
        found = self.first(steps)
        if np.isfinite(found.A.sum() + found.B.sum()):
            return found
        bad = np.flatnonzero(~(np.isfinite(found.A).all(axis=(1, 2)) & np.isfinite(found.B).all(axis=(1, 2))))
        if not len(bad):
            return found
        k = int(steps.k[bad[0]])
        raise StepError(
            f"step {k} cannot be linearized: its derivatives are not finite; the map is not differentiable "
            "there (ca.sqrt(x) at 0 is not)",
            k,
            float("nan"),
            "not finite",
        )

    @property
    def residual(self) -> ca.Function | None:
        """The equations r(x, u, x_next, multipliers, t, dt, parameters) = 0 of a step, if the map has them.

        Multiple shooting and DMOC are written on them.
        """
        return None

    @property
    def explicit(self) -> ca.Function | None:
        """(x, u, t, dt, parameters) -> (x_next, multipliers, error), of steps that start from no more."""
        return None

    @property
    def kernel(self) -> Kernel | None:
        """The step that `track` strings together, where it is one function; else None."""
        return None

    def identity(self) -> dict[str, Any]:
        """What a saved trajectory must share with the map that reads it (numbers and text)."""
        return {"map": type(self).__name__, "dt": self.dt}

    @abstractmethod
    def with_parameters(self, **values: float) -> OneStepMap:
        """The same map with other values of declared parameters; nothing is compiled again."""

    def with_dt(self, dt: float) -> OneStepMap:
        """The same map with another default time step, s; nothing is compiled again.

        Trajectories of free duration belong to such a map, so that they can be stabilized.
        """
        raise NotImplementedError(f"{type(self).__name__} has no with_dt; build it again with dt = {dt:g}")

    # -- named quantities -----------------------------------------------------------------------

    def quantity(self, name: str) -> ca.SX:
        """A named quantity as an expression of `symbols`.

        Every map knows its states by name, inputs as ``u.NAME``, multipliers as ``lambda.NAME`` and
        parameters as ``param.NAME``; integrators of mechanisms add velocities, energies, frames. What
        follows the prefix will do where one quantity alone has it (`vioc.names`).

        Raises
        ------
        ModelError
            If there is no such quantity, or a short name has several meanings.
        """
        for (prefix, names), symbol in zip(self._groups, self.symbols, strict=False):
            if name.startswith(prefix) and name[len(prefix) :] in names:
                return symbol[names.index(name[len(prefix) :])]
        return self.quantity(meaning(name, [n for n in self.quantity_names() if n != name]))

    def quantity_names(self) -> tuple[str, ...]:
        """Full names of all quantities."""
        own = (prefix + n for prefix, names in self._groups for n in names)
        return tuple(dict.fromkeys((*own, *self._more_quantities())))

    @property
    def _groups(self) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """Prefix and names of what every map has: states, inputs, multipliers, parameters."""
        every = self.state_names, self.input_names, self.multiplier_names, tuple(self.parameters)
        return tuple(zip(("", "u.", "lambda.", "param."), every, strict=True))

    def _more_quantities(self) -> list[str]:
        """Full names of what a subclass's `quantity` adds."""
        return []

    def unit(self, name: str) -> str:
        """SI unit of a named quantity, "" where it has none that is known."""
        return ""

    def force_rounding(self, dt: float) -> float:
        """Forces that a step of length `dt` cannot tell from zero, N."""
        return 0.0

    # -- states and inputs by name --------------------------------------------------------------

    @property
    def coordinates(self) -> tuple[str, ...]:
        """What may be chosen of a state at rest: of a mechanism its dynamic variables."""
        return self.state_names

    def initial_state(self, q: Any = None, v: Any = None, u: Any = None, **named: float) -> np.ndarray:
        """The state with configurations `q` and velocities `v` by name, and zero else.

        Parameters
        ----------
        q : dict by name, optional
            Of states, where the map is no mechanism's.
        v : dict by name, optional
            Of NAME for ``v.NAME``.
        u : (nu,), optional
            The input at the start, for maps to whose state it matters.
        **named : float
            Configurations by keyword, in the place of or beside those in `q`.
        """
        rates = {f"v.{name}": value for name, value in (v or {}).items()}
        return self.state({**(q or {}), **rates, **named})

    @property
    def configurations(self) -> tuple[str, ...]:
        """The states at the front that tell the others by two samples in a row, if they do."""
        return ()

    def state_from_configurations(self, q0: Any, q1: Any, u: Any = None, k: int = 0) -> np.ndarray:
        """The state at k + 1 of a step from `configurations` q0 to q1 under the input u."""
        raise TypeError(
            f"{type(self).__name__} has no state_from_configurations: the momentum of its state does not "
            "follow from two configurations; use a Kalman filter"
        )

    def moved(self, x: np.ndarray, by: np.ndarray, fixed: Sequence[str] = ()) -> np.ndarray:
        """The state at rest that is `by` away from `x` in `coordinates`, as near as constraints let it be.

        Raises
        ------
        ModelError
            If no such state keeps the constraints, with the names in `fixed` as they are.
        """
        return x + by

    def inputs(self, steps: int, signals: Mapping[str, Any] | None = None, **options: Any) -> np.ndarray:
        """U (N, nu) from numbers, arrays, functions of time and splines by name: `vioc.inputs`."""
        return inputs(self, steps, signals, **options)

    def state(self, values: Mapping[str, float] | None = None, **named: float) -> np.ndarray:
        """A state by names, zero elsewhere: ``f.state(theta=0.3)``, ``f.state({"p.theta": 1.0})``."""
        return _vector({**(values or {}), **named}, self.state_names, "state")

    def input(self, values: Mapping[str, float] | None = None, **named: float) -> np.ndarray:
        """An input by names (``NAME`` or ``u.NAME``), zero elsewhere."""
        return _vector({**(values or {}), **named}, self.input_names, "input", "u.")

    # -- checks at the boundary -----------------------------------------------------------------

    def check_state(self, x: Any, what: str = "state") -> np.ndarray:
        """`x` as a finite float array of shape (nx,); ValueError names the entry at fault.

        A report of an equilibrium, or a regulator about one, stands for its state.
        """
        theirs = getattr(getattr(x, "map", self), "state_names", self.state_names)
        if theirs != self.state_names:
            raise ValueError(
                f"{what}: it is of a map with the states {few(theirs)}, not {few(self.state_names)}"
            )
        return check_array(state_of(x, what), (self.nx,), what, self.state_names)

    def check_point(self, x: Any, u: Any = None) -> tuple[np.ndarray, np.ndarray]:
        """State and input, checked; an equilibrium brings its own input where none is given."""
        state = self.check_state(x)
        return state, self.check_input(getattr(x, "u", None) if u is None else u, state)

    def check_start(self, x0: Any, U: Any, steps: int | None) -> tuple[np.ndarray, np.ndarray]:
        """Initial state and inputs (N, nu) of a rollout; an equilibrium's input is held if none are given."""
        state = self.check_state(x0, "initial state")
        U = getattr(x0, "u", None) if U is None and steps is not None else U
        return state, self.check_inputs(U, steps, state)

    def check_input(self, u: Any, x: np.ndarray | None = None, what: str = "input") -> np.ndarray:
        """`u` as a finite float array of shape (nu,); None is `rest_input` at x."""
        if u is None:
            return np.zeros(self.nu) if x is None else self.rest_input(x)
        if isinstance(u, Mapping):
            raise ValueError(
                f"{what}: expected an array of shape ({self.nu},), got {u!r}; make one with f.input({u!r}), "
                f"or for the steps of a rollout f.inputs(steps, {u!r})"
            )
        return check_array(u, (self.nu,), what, self.input_names)

    def rest_input(self, x: np.ndarray) -> np.ndarray:
        """What no input means at a state: zero, and prescribed configurations stay where they are."""
        return np.zeros(self.nu)

    def check_inputs(self, U: Any, steps: int | None, x0: np.ndarray) -> np.ndarray:
        """`U` as (N, nu): given so, or one input, or None (see `rest_input`), for `steps` steps."""
        if isinstance(U, Mapping):
            self.check_input(U, what="inputs")
        sequence = np.ndim(U) == 1 and steps is None and self.nu == 1
        if U is None or (np.ndim(U) < 2 and not sequence):
            if steps is None:
                raise ValueError("rollout needs inputs U of shape (N, nu), or the number of steps")
            if steps != int(steps) or steps < 1:
                raise ValueError(f"steps: expected a whole number >= 1, got {steps}")
            held = self.rest_input(x0) if U is None else self.check_input(U)
            return np.tile(held, (int(steps), 1))
        array = np.asarray(U, float)
        array = array[:, None] if array.ndim == 1 else array
        array = check_rows(array, "inputs", self.input_names)
        if steps is not None and len(array) != steps:
            raise ValueError(f"inputs: got {len(array)} rows for steps={steps}")
        return array


def _vector(values: Mapping[str, float], names: tuple[str, ...], what: str, prefix: str = "") -> np.ndarray:
    result = np.zeros(len(names))
    for name, value in by_name(values, names, what, prefix=prefix).items():
        result[names.index(name)] = as_value(value, f"{what} {name!r}")
    return check_array(result, (len(names),), what, names)
