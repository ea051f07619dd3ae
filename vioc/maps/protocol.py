"""The one-step-map protocol: everything that `vioc.control` knows of a mechanism.

A map is x[k+1] = f(x[k], u[k]) with exact first and second derivatives. Every integrator of vioc is
one, and so is any CasADi function of a user's (`vioc.CasadiMap`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import casadi as ca
import numpy as np

from vioc.checks import as_value, check_array, check_rows, few
from vioc.compile.backend import Backend
from vioc.compile.cores import over_cores
from vioc.errors import StepError
from vioc.maps.batch import Batch
from vioc.maps.given import state_of
from vioc.names import by_name, meaning
from vioc.progress import Progress

if TYPE_CHECKING:
    from vioc.maps.trajectory import Split, Trajectory

Rescue = bool | Literal["split"]

FIELDS = ("xx", "xu", "uu", "xp", "up", "pp")  # of `SecondOrder`


PRINTED = 64  # entries of A up to which a linearization prints its numbers


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


@dataclass(frozen=True, repr=False)
class Linearization:
    """First derivatives of a step; unpacks as ``A, B``.

    Along a trajectory every array has a leading axis of N steps.

    Attributes
    ----------
    A : (ndx, ndx)
    B : (ndx, nu)
    P : (ndx, np)
        By the declared parameters.
    C, D, E : (nm, ndx), (nm, nu), (nm, np)
        The multipliers by state, input, parameters.
    """

    A: np.ndarray
    B: np.ndarray
    P: np.ndarray
    C: np.ndarray
    D: np.ndarray
    E: np.ndarray

    def __iter__(self) -> Iterator[np.ndarray]:
        return iter((self.A, self.B))

    def __repr__(self) -> str:
        if self.A.ndim > 2 or self.A.size > PRINTED:
            sizes = f"{self.C.shape[-2]} multipliers, {self.P.shape[-1]} parameters"
            return f"Linearization(A {self.A.shape}, B {self.B.shape}, {sizes})"
        blocks = [(name, getattr(self, name)) for name in "ABPCDE" if getattr(self, name).size]
        return "\n".join(["Linearization(", *(f"  {name} = {_table(m)}" for name, m in blocks), ")"])


def _table(m: np.ndarray) -> str:
    """A matrix in five digits; what is rounding beside its largest entry is 0."""
    texts = [[f"{v:.5g}" for v in row] for row in np.where(np.abs(m) > 1e-14 * np.abs(m).max(), m, 0.0)]
    width = max(len(text) for row in texts for text in row)
    return "\n       ".join(" ".join(text.rjust(width) for text in row) for row in texts)


@dataclass(frozen=True)
class SecondOrder:
    """z-contracted second derivatives of a step; unpacks as ``Hxx, Hxu, Huu``.

    With weights z on x[k+1] and zeta on the multipliers, the Hessian of z . f + zeta . lambda.
    Along a trajectory every array has a leading axis of N steps.

    Attributes
    ----------
    xx, xu, uu : (ndx, ndx), (ndx, nu), (nu, nu)
    xp, up, pp : (ndx, np), (nu, np), (np, np)
        With the declared parameters.
    """

    xx: np.ndarray
    xu: np.ndarray
    uu: np.ndarray
    xp: np.ndarray
    up: np.ndarray
    pp: np.ndarray

    def __iter__(self) -> Iterator[np.ndarray]:
        return iter((self.xx, self.xu, self.uu))


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
    parameters : dict of str to float
        Values of the declared parameters; `with_parameters` makes a map with others.
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
    parameters: dict[str, float]
    symbols: Symbols

    # -- the state space ------------------------------------------------------------------------

    def difference(self, x0: np.ndarray, x1: np.ndarray) -> np.ndarray:
        """x1 - x0 as an error vector; shapes (..., nx) -> (..., ndx)."""
        return np.asarray(x1, float) - np.asarray(x0, float)

    def retract(self, x: np.ndarray, dx: np.ndarray) -> np.ndarray:
        """The state that lies the error `dx` away from `x`; inverse of `difference`."""
        return np.asarray(x, float) + np.asarray(dx, float)

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
    def linearize(self, x: Any, u: Any = None, k: int = 0, dt: float | None = None) -> Linearization:
        """Exact first derivatives of the step at (x, u)."""

    @abstractmethod
    def second_order(
        self, x: Any, u: Any, z: Any, k: int = 0, dt: float | None = None, *, zeta: Any = None
    ) -> SecondOrder:
        """Exact Hessian of z . f(x, u) (+ zeta . multipliers)."""

    @abstractmethod
    def linearize_points(
        self, X: Any, U: Any, *, k0: int = 0, dt: float | Sequence[float] | np.ndarray | None = None
    ) -> Linearization:
        """`linearize` at N states X (N, nx) and inputs U (N, nu), step k0 + i at row i; `dt` as `rollout`."""

    @abstractmethod
    def linearize_trajectory(self, trajectory: Trajectory) -> Linearization:
        """`linearize` along a rollout of this map; its steps are not solved again."""

    @abstractmethod
    def second_order_trajectory(
        self, trajectory: Trajectory, Z: np.ndarray, zeta: np.ndarray | None = None
    ) -> SecondOrder:
        """`second_order` along a rollout of this map, with weights Z (N, ndx), zeta (N, nm)."""

    def second_order_tensor(self, x: Any, u: Any = None, k: int = 0, dt: float | None = None):
        """The full second derivatives, output axis first, as (states, multipliers).

        Returns
        -------
        SecondOrder, SecondOrder
            ``xx[i, a, b]`` is the second derivative of output i by errors a and b, and so on: of the
            next state's error coordinates, and of the multipliers.
        """
        nm = len(self.multiplier_names)
        weights = np.eye(self.ndx + nm)
        each = [self.second_order(x, u, w[: self.ndx], k, dt, zeta=w[self.ndx :]) for w in weights]

        def stack(items: list[SecondOrder]) -> SecondOrder:
            if not items:
                return SecondOrder(*(np.empty((0, *getattr(each[0], f).shape)) for f in FIELDS))
            return SecondOrder(*(np.stack([getattr(item, f) for item in items]) for f in FIELDS))

        return stack(each[: self.ndx]), stack(each[self.ndx :])

    def second_order_tensor_trajectory(self, trajectory: Trajectory) -> tuple[SecondOrder, SecondOrder]:
        """`second_order_tensor` along a rollout of this map, with a leading axis of N steps.

        That is (ndx + nm) (ndx + nu)^2 numbers for each step, 5 MB for the marionette of [S].
        """
        nm, n = len(self.multiplier_names), len(trajectory)
        each = []
        for w in np.eye(self.ndx + nm):
            Z, zeta = np.tile(w[: self.ndx], (n, 1)), np.tile(w[self.ndx :], (n, 1))
            each.append(self.second_order_trajectory(trajectory, Z, zeta))

        def stack(items: list[SecondOrder]) -> SecondOrder:
            shapes = {name: getattr(each[0], name).shape for name in SecondOrder.__dataclass_fields__}
            return SecondOrder(
                *(
                    np.array([getattr(item, name) for item in items])
                    .reshape(len(items), *shape)
                    .swapaxes(0, 1)
                    for name, shape in shapes.items()
                )
            )

        return stack(each[: self.ndx]), stack(each[self.ndx :])

    @property
    def residual(self) -> ca.Function | None:
        """The equations r(x, u, x_next, multipliers, t, dt, parameters) = 0 of a step, if the map has them.

        Multiple shooting and DMOC are written on them.
        """
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
