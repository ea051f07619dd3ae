"""The one-step-map protocol: everything that `vioc.control` knows of a mechanism.

A map is x[k+1] = f(x[k], u[k]) with exact first and second derivatives. Every integrator of vioc is
one, and so is any CasADi function of a user's (`vioc.CasadiMap`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from typing import Any, ClassVar, NamedTuple

import casadi as ca
import numpy as np

from vioc.checks import check_array, few, real
from vioc.compile.backend import Backend
from vioc.compile.cores import over_cores
from vioc.errors import StepError, trying
from vioc.maps.adaptive import cut_rollout, warn_cut
from vioc.maps.derivatives import Linearization, MapDerivatives, SecondOrder, Steps
from vioc.maps.mechanism import Mechanism, no_mechanism
from vioc.maps.named import Symbols, vector
from vioc.maps.quantities import Quantities
from vioc.maps.space import FlatSpace, StateSpace
from vioc.maps.twins import own
from vioc.progress import Progress
from vioc.runs.batch import Batch, Runs, of_each
from vioc.runs.given import inputs_of, lengths_given, point_of, start_of, state_of, trajectory_of
from vioc.runs.signals import inputs
from vioc.runs.steps import times_of
from vioc.runs.trajectory import Trajectory


class Kernel(NamedTuple):
    """A step with its solver: (x, u, t, dt, parameters) -> (x_next, multipliers, error).

    A step is solved, and its root certified, if `error` is within `tolerance`. `difference` is the map's, on
    SX columns.
    """

    function: ca.Function
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
    symbols : Symbols
    backend : Backend
        What evaluates the map's functions: ``backend.prepare(function)`` does so for any other.
    """

    nx: int
    ndx: int
    nu: int
    state_names: tuple[str, ...]
    input_names: tuple[str, ...]
    multiplier_names: tuple[str, ...]
    wrap: tuple[str, ...] = ()
    parameters: dict[str, float]
    symbols: Symbols
    system: Any = None
    dt: float
    backend: Backend = Backend()
    _as_mechanism: Callable[[], Mechanism] | None = None
    substeps: ClassVar[Callable[[OneStepMap, int], OneStepMap]]  # set by vioc.maps.made.substeps, above

    @own
    def mechanism(self) -> Mechanism:
        """Properties of a mechanism, or defaults."""
        return no_mechanism(self) if self._as_mechanism is None else self._as_mechanism()

    @property
    def theta(self) -> np.ndarray:
        """Values of the parameters (np,), as functions of `symbols` take them."""
        return np.array(list(self.parameters.values()), float).T  # a row for each of many samples

    # -- named quantities -----------------------------------------------------------------------

    @cached_property
    def quantities(self) -> Quantities:
        """Named quantities; maps that know more than every map set it when made."""
        return Quantities(self)

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
        return self.quantities.find(name)

    def unit(self, name: str) -> str:
        """SI unit of a named quantity, "" where it has none that is known."""
        return self.quantities.unit(name)

    # -- states and inputs by name --------------------------------------------------------------

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

    def state_from_configurations(self, q0: Any, q1: Any, u: Any = None, k: int = 0) -> np.ndarray:
        """The state at k + 1 of a step from configurations q0 to q1 under the input u."""
        if self.mechanism.behind is not None:
            return self.mechanism.behind(q0, q1, u, k)
        raise TypeError(
            f"{type(self).__name__} has no state_from_configurations: the momentum of its state does not "
            "follow from two configurations; use a Kalman filter"
        )

    def inputs(self, steps: int, signals: Mapping[str, Any] | None = None, **options: Any) -> np.ndarray:
        """U (N, nu) from numbers, arrays, functions of time and splines by name: `vioc.inputs`."""
        return inputs(self, steps, signals, **options)

    def state(self, values: Mapping[str, float] | None = None, **named: float) -> np.ndarray:
        """A state by names, zero elsewhere: ``f.state(theta=0.3)``, ``f.state({"p.theta": 1.0})``."""
        return vector({**(values or {}), **named}, self.state_names, "state")

    def input(self, values: Mapping[str, float] | None = None, **named: float) -> np.ndarray:
        """An input by names (``NAME`` or ``u.NAME``), zero elsewhere."""
        return vector({**(values or {}), **named}, self.input_names, "input", "u.")

    def check_state(self, x: Any, what: str = "state") -> np.ndarray:
        """`x` as a finite float array of shape (nx,); ValueError names the entry at fault.

        A report of an equilibrium, or a regulator about one, stands for its state.
        """
        theirs = getattr(getattr(x, "map", self), "state_names", self.state_names)
        if theirs != self.state_names:
            raise ValueError(
                f"{what}: it is of a map with the states {few(theirs)}, not {few(self.state_names)}"
            )
        x = check_array(state_of(x, what), (self.nx,), what, self.state_names)
        self.space.check(x, what)
        return x

    def times(self, lengths: np.ndarray, k0: int, begins: np.ndarray | None = None) -> np.ndarray:
        """Sample times (N+1,), s, of steps of `lengths` (N,) from step k0 on, `times_of`."""
        return times_of(lengths, k0, self.dt, begins)

    def rest_input(self, x: np.ndarray) -> np.ndarray:
        """Return the input at rest: zero, with prescribed configurations unchanged."""
        return np.zeros(self.nu)

    def lengths(self, dt: Any, steps: int) -> np.ndarray:
        """`dt` as the lengths (N,) of steps: given so, or one for all, or None for the map's own."""
        return lengths_given(self.dt if dt is None else dt, steps)

    # -- the state space ------------------------------------------------------------------------

    @cached_property
    def space(self) -> StateSpace:
        """Manifold of the states."""
        return FlatSpace(self.state_names, self.wrap)

    def difference(self, x0: np.ndarray, x1: np.ndarray) -> np.ndarray:
        """x1 - x0 as an error vector, angles in `wrap` the short way; shapes (..., nx) -> (..., ndx)."""
        return self.space.difference(x0, x1)

    def retract(self, x: np.ndarray, dx: np.ndarray) -> np.ndarray:
        """The state that lies the error `dx` away from `x`; inverse of `difference`."""
        return self.space.retract(x, dx)

    # -- steps ----------------------------------------------------------------------------------

    @abstractmethod
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
        """N steps of `lengths` (N,), s, as `rollout` takes them, or `track` where X and K are given.

        They begin at the times `t` (N,), s, if given: a piece of a run of unequal steps. Shapes and numbers
        are checked before.
        """

    def step(self, x: Any, u: Any = None, k: int = 0, dt: float | None = None) -> np.ndarray:
        """One step, as `rollout` takes it: x[k+1] of shape (nx,). Raises `StepError` where it has none."""
        x, u = point_of(self, x, u)
        return self.run(x, u[None], k, self.lengths(dt, 1)).x[1]

    def rollout(
        self,
        x0: Any,
        U: Any = None,
        steps: int | None = None,
        *,
        k0: int = 0,
        dt: float | Sequence[float] | np.ndarray | None = None,
        warn: bool = True,
        adaptive: bool = False,
    ) -> Trajectory:
        """Steps from `x0` under inputs `U` (N, nu), or `steps` steps with a constant or no input.

        No input is zero force, with prescribed configurations held.

        A rollout that comes to a step which does not exist at its length ends with a `StepError`, which has
        the motion until then, ``error.trajectory``, and the length that would still do, ``error.length``;
        so does one whose energy grows beyond what its forces can feed (cause ``"diverged"``).
        `adaptive` cuts such steps into halves, quarters, ..., to look at the motion, and says so
        (`StepWarning`): the trajectory then has more steps, of unequal lengths.

        `dt` may be one length of all steps, or N lengths that need not be equal; where they are equal, the
        trajectory's map has that step (`with_dt`). `warn` False keeps quiet about what the
        rollout would warn of.
        """
        x0, U = start_of(self, x0, U, steps)
        take = partial(cut_rollout, self) if adaptive else self.run
        if not warn:
            with trying():
                return take(x0, U, k0, self.lengths(dt, len(U)))
        try:
            found = take(x0, U, k0, self.lengths(dt, len(U)))
        except StepError as error:
            if error.trajectory is not None and error.cause != "indefinite M":
                self._check_account(error.trajectory, error)
            raise
        self._check_account(found)
        warn_cut(found, len(U))
        self.mechanism.review(found)
        return found

    def _check_account(self, run: Trajectory, error: StepError | None = None) -> None:
        """Raise `StepError` with the cause ``"diverged"`` where a run has, before the `error` at its end."""
        found = self.mechanism.diverged(run, error is not None) if len(run) > 1 else None
        if found is None:
            return
        k, why = found
        more = "" if error is None else f" Later: {error}"
        text = f"the rollout diverged at t = {run.t[k]:.6g} s: {why}.{more}"
        raise StepError(text, run.k0 + k, np.inf, "diverged", run.part(0, k)) from error

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
        parameters: Mapping[str, Any] | None = None,
    ) -> Batch:
        """Many rollouts, over the cores; each is to the bit what `rollout` makes.

        Parameters
        ----------
        X0 : (M, nx) or (nx,)
            Initial states; one serves all.
        U : (M, N, nu), (N, nu), (nu,) or None
            Inputs of each rollout, or of all.
        steps : int, optional
            N, where U does not tell.
        k0, dt
            As in `rollout`.
        workers : int, optional
            Threads; default the environment variable ``VIOC_WORKERS``, else the cores. The results do
            not depend on it.
        raise_on_failure : bool
            False keeps a rollout that fails as NaN, and its error in ``errors``.
        parameters : dict of str to (M,) or number, optional
            Values of declared parameters in each rollout; one serves all.

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
        X0, U = real(state_of(X0, "initial states"), "initial states"), real(U, "inputs")
        X0 = np.atleast_2d(np.asarray(X0, float))
        each = np.ndim(U) == 3
        if X0.ndim != 2 or X0.shape[1] != self.nx:
            raise ValueError(f"initial states: expected shape (M, {self.nx}), got {X0.shape}")
        own, count = of_each(self, parameters or {}, len(X0), len(U) if each else None)
        n = len(inputs_of(self, U[0] if each else U, steps, X0[0]))
        x, u = np.empty((count, n + 1, self.nx)), np.empty((count, n, self.nu))
        multipliers = np.empty((count, n, len(self.multiplier_names)))
        alike = np.shape(U)[1:] == ((n, self.nu) if each else (self.nu,)) or not (self.nu or each)
        if alike and np.isfinite(X0).all() and (not each or np.isfinite(np.asarray(U, float)).all()):
            x[:, 0], u[:] = X0, U if each else inputs_of(self, U, steps, X0[0])
        else:
            for i in range(count):
                inputs = U[min(i, len(U) - 1)] if each else U
                x[i, 0], u[i] = start_of(self, X0[min(i, len(X0) - 1)], inputs, steps)
        runs = Runs(x, u, multipliers, k0, self.lengths(dt, n), own)
        if count > 1 and self._run_many(runs, workers):
            run = Trajectory(self, self.times(runs.lengths, k0), x[0], u[0], multipliers[0])
            runs.map, runs.t = run.on_its_step().map, run.t
        else:
            self._run_each(runs, workers)
        errors: dict[int, StepError] = {}
        for i, error in sorted(runs.errors.items()):
            text = f"rollout {i}: {error}"
            errors[i] = error.saying(text)
            x[i] = multipliers[i] = np.nan
        if errors and raise_on_failure:
            raise errors[min(errors)]
        return Batch(runs.map or self, runs.t, x, u, multipliers, errors, k0, own)

    def _run_many(self, runs: Runs, threads: int | None) -> bool:
        """Make rollouts side by side; False where this map does not."""
        return False

    def _run_each(self, runs: Runs, threads: int | None) -> None:
        how: dict[str, Any] = dict(k0=runs.k0, dt=runs.lengths, warn=False)

        def work(i: int) -> None:
            f = self.trying(**runs.parameters_of(i)) if runs.parameters else self
            try:
                run = f.rollout(runs.X[i, 0], runs.U[i], **how)
            except StepError as error:
                runs.errors[i] = error
                return
            runs.X[i], runs.U[i], runs.multipliers[i] = run.x, run.u, run.multipliers
            runs.t = run.t
            owner = run.map  # of all, the same step
            runs.map = owner.trying(**self.parameters) if runs.parameters else owner

        work(0)  # builds what all share
        with Progress("rollouts", len(runs.X), 1) as progress:
            for _ in over_cores(work, range(1, len(runs.X)), threads):
                progress.advance()

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
        """Closed-loop rollout with u[k] = U[k] - K[k] difference(X[k], x[k]).

        Shapes: X (N or N+1, nx), U (N, nu), K (N, nu, ndx). The trajectory's `u` is what was applied; `dt`
        as in `rollout`. Steps begin at the times `t` (N,), s, if given.
        """
        x0 = self.check_state(x0, "initial state")
        U = inputs_of(self, U, None, x0)
        n = len(U)
        X = check_array(np.asarray(X, float)[:n], (n, self.nx), "tracked states", self.state_names)
        K = check_array(K, (n, self.nu, self.ndx), "gains")
        return self.run(x0, U, k0, self.lengths(dt, n), X, K, t=t)

    # -- derivatives ----------------------------------------------------------------------------

    @abstractmethod
    def steps_at(
        self,
        X: Any,
        U: Any,
        k0: int = 0,
        dt: float | Sequence[float] | np.ndarray | None = None,
        *,
        t: np.ndarray | None = None,
    ) -> Steps:
        """One step each from N states X (N, nx) under inputs U (N, nu), step k0 + i at row i.

        Each is the step that `step` takes, to the bit. `dt` as in `rollout`; a step that does not exist
        raises its `StepError`, whose `k` says which. They begin at the times `t` (N,), s, if given.
        """

    @property
    @abstractmethod
    def derivatives(self) -> MapDerivatives:
        """Derivatives of solved steps; best an `own` property if the map has twins."""

    def linearize(self, x: Any, u: Any = None, k: int = 0, dt: float | None = None) -> Linearization:
        """Exact first derivatives of the step at (x, u)."""
        return self.derivatives.linearize(self._step_at(x, u, k, dt)).rows(0)

    def linearize_trajectory(self, trajectory: Trajectory) -> Linearization:
        """`linearize` along a rollout of this map; its steps are not solved again."""
        return self.derivatives.linearize(trajectory)

    def second_order(
        self, x: Any, u: Any, z: Any, k: int = 0, dt: float | None = None, *, zeta: Any = None
    ) -> SecondOrder:
        """Exact Hessian of z . f(x, u) (+ zeta . multipliers)."""
        steps = self._step_at(x, u, k, dt)
        z = check_array(z, (self.ndx,), "weights z of the next state", self.space.error_names)
        return self._contracted(steps, z[None], None if zeta is None else [zeta]).rows(0)

    def second_order_trajectory(
        self, trajectory: Trajectory, Z: np.ndarray, zeta: np.ndarray | None = None
    ) -> SecondOrder:
        """`second_order` along a rollout of this map, with weights Z (N, ndx), zeta (N, nm)."""
        return self._contracted(Steps.along(trajectory_of(trajectory)), Z, zeta)

    def _step_at(self, x: Any, u: Any, k: int, dt: float | None) -> Steps:
        x, u = point_of(self, x, u)
        return self.steps_at(x[None], u[None], k, dt)

    def _contracted(self, steps: Steps, Z: Any, zeta: Any) -> SecondOrder:
        shape = steps.multipliers.shape
        zeta = np.zeros(shape) if zeta is None else zeta
        Z = check_array(Z, (shape[0], self.ndx), "weights z of the next state", self.space.error_names)
        return self.derivatives.second(steps, Z, check_array(zeta, shape, "zeta", self.multiplier_names))

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
    def depends_on_time(self) -> bool | None:
        """Return whether a step depends on time; None if no equations are known."""
        for function, at in ((self.residual, 4), (self.explicit, 2)):
            if function is not None:
                args = function.sx_in() if function.is_a("SXFunction") else function.mx_in()
                return bool(ca.depends_on(ca.vertcat(*map(ca.vec, function.call(args))), args[at]))
        return None

    @property
    def kernel(self) -> Kernel | None:
        """The step that `track` strings together, where it is one function; else None."""
        return None

    def identity(self) -> dict[str, Any]:
        """Return the identity that a saved trajectory shares with its map, plain data."""
        return {"map": type(self).__name__, "dt": self.dt}

    @abstractmethod
    def with_parameters(self, **values: float) -> OneStepMap:
        """The same map with other values of declared parameters; nothing is compiled again.

        Raises
        ------
        ModelError
            Unknown names; values that a description does not take: masses and inertias that no body has,
            negative damping, a lower limit above the upper one.
        """

    def trying(self, **values: float) -> OneStepMap:
        """`with_parameters` of a search or filter, whose values may pass what a description takes: bodies
        alone are judged, since there is no motion without.
        """
        return self.with_parameters(**values)

    def with_dt(self, dt: float) -> OneStepMap:
        """The same map with another default time step, s; nothing is compiled again.

        Trajectories of free duration belong to such a map, so that they can be stabilized.
        """
        raise NotImplementedError(f"{type(self).__name__} has no with_dt; build it again with dt = {dt:g}")
