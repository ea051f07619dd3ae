"""Interface of one-step maps.
The package `vioc.control` uses mechanisms only through this interface.

A map is x[k+1] = f(x[k], u[k]) with exact first and second derivatives. Every integrator of vioc is one, and
so is any explicit CasADi function of the user (`vioc.CasadiMap`).
"""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from typing import Any, NamedTuple

import casadi as ca
import numpy as np

from vioc.checks import as_floats, check_array, check_last, few
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
    """CasADi function that solves a step of a map, and the tolerance of the solution.

    It is (x, u, t, dt, parameters) -> (x_next, multipliers, error). A step is solved, and its root certified,
    if `error` is within `tolerance`. `difference` is that of the map, on SX columns.
    """

    function: ca.Function
    tolerance: float
    difference: Callable[[ca.SX, ca.SX], ca.SX]


class OneStepMap(ABC):
    """Base class of differentiable one-step maps x[k+1] = f(x[k], u[k]).

    Attributes
    ----------
    nx, ndx, nu : int
        Sizes of the state, of its error (tangent) and of the input.
    dt : float
        Default time step, s. Step k starts at t = k dt; in `step` and derivatives dt is the given one. A
        rollout with unequal steps starts at k0 times the default and adds their lengths.
    state_names, input_names, multiplier_names : tuples of str
    wrap : tuple of str
        States, or quantities of states, that are angles modulo 2 pi.
    parameters : dict of str to float
        Values of the declared parameters; `with_parameters` makes a map with others.
    system : System or None
        The mechanism, if the map is an integrator of one.
    symbols : Symbols
    backend : Backend
        Evaluator of the map's functions; ``backend.prepare(function)`` prepares any other function.
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
    _as_kernel: Callable[[], Kernel | None] | None = None
    # entries of `identity`, and the attributes that have their values; "" is a map whose entries are added
    _identified_by: tuple[tuple[str, str], ...] = ()

    @own
    def mechanism(self) -> Mechanism:
        """Properties that only mechanisms have, with defaults for maps without a mechanism."""
        return no_mechanism(self) if self._as_mechanism is None else self._as_mechanism()

    @property
    def theta(self) -> np.ndarray:
        """Values (np,) of the map's parameters, in the order of ``symbols.parameters``."""
        return np.array(list(self.parameters.values()), float).T  # one row per sample of a batch

    # -- named quantities -----------------------------------------------------------------------

    @cached_property
    def quantities(self) -> Quantities:
        """Table of the named quantities of this map."""
        return Quantities(self)

    def quantity(self, name: str) -> ca.SX:
        """Return a quantity, given by its name, as an expression in the map's `symbols`.

        Every map has its states by name, inputs as ``u.NAME``, multipliers as ``lambda.NAME`` and parameters
        as ``param.NAME``; integrators of mechanisms add velocities, energies, frames. The prefix may be
        omitted if only one quantity has the rest of the name (`vioc.names`).

        Raises
        ------
        ModelError
            If there is no such quantity, or a short name has several meanings.
        """
        return self.quantities.find(name)

    def unit(self, name: str) -> str:
        """Return the SI unit of a named quantity, or "" if it is unknown."""
        return self.quantities.unit(name)

    # -- states and inputs by name --------------------------------------------------------------

    def initial_state(self, q: Any = None, v: Any = None, u: Any = None, **named: float) -> np.ndarray:
        """Return a state with the given configurations and velocities; missing values are zero.

        Parameters
        ----------
        q : dict by name, optional
            Configurations; states, if the map is not that of a mechanism.
        v : dict by name, optional
            Velocities: NAME is the state ``v.NAME``.
        u : (nu,), optional
            Input at the start, for maps whose state depends on it.
        **named : float
            Configurations by keyword, instead of or in addition to those in `q`.
        """
        rates = {f"v.{name}": value for name, value in (v or {}).items()}
        return self.state({**(q or {}), **rates, **named})

    def state_from_configurations(self, q0: Any, q1: Any, u: Any = None, k: int = 0) -> np.ndarray:
        """Return the state after a step that moves the mechanism from one configuration to another.

        The step k leads from q0 to q1 under the input u.
        """
        if self.mechanism.behind is not None:
            return self.mechanism.behind(q0, q1, u, k)
        raise TypeError(
            f"{type(self).__name__} has no state_from_configurations: the momentum of its state does not "
            "follow from two configurations; use a Kalman filter"
        )

    def inputs(self, steps: int, signals: Mapping[str, Any] | None = None, **options: Any) -> np.ndarray:
        """Return an array of inputs (N, nu), given a signal for each input by name.
        A signal is a number, an array, a function of time or a spline.

        See `vioc.inputs`.
        """
        return inputs(self, steps, signals, **options)

    def state(self, values: Mapping[str, float] | None = None, **named: float) -> np.ndarray:
        """Return a state with the given values by name; missing values are zero.

        For example ``f.state(theta=0.3)`` or ``f.state({"p.theta": 1.0})``.
        """
        return vector({**(values or {}), **named}, self.state_names, "state")

    def input(self, values: Mapping[str, float] | None = None, **named: float) -> np.ndarray:
        """Return an input with the given values by name (``NAME`` or ``u.NAME``); missing values are zero."""
        return vector({**(values or {}), **named}, self.input_names, "input", "u.")

    def check_state(self, x: Any, what: str = "state") -> np.ndarray:
        """Return `x` as a finite array of shape (nx,), or raise a `ValueError` that names the wrong entry.

        `x` may also be the report of an equilibrium or a regulator about one.
        """
        names = getattr(getattr(x, "map", self), "state_names", self.state_names)
        if names != self.state_names:
            raise ValueError(
                f"{what}: it is of a map with the states {few(names)}, not {few(self.state_names)}"
            )
        x = check_array(state_of(x, what), (self.nx,), what, self.state_names)
        self.space.check(x, what)
        return x

    def times(self, lengths: np.ndarray, k0: int, begins: np.ndarray | None = None) -> np.ndarray:
        """Return the sample times (N+1,), s, of steps from step k0 on, given the step lengths (N,).
        Where `begins` (N,) is given, it contains the start times of the steps.
        """
        return times_of(lengths, k0, self.dt, begins)

    def rest_input(self, x: np.ndarray) -> np.ndarray:
        """Return the input that keeps kinematic variables at their values in state x.
        All other inputs are 0. (A kinematic variable is a coordinate whose motion is an input.)
        """
        return np.zeros(self.nu)

    def lengths(self, dt: Any, steps: int) -> np.ndarray:
        """Return the lengths (N,), s, of N steps.
        The argument `steps` is N; `dt` is N lengths, one length for all, or None for the map's own length.
        """
        return lengths_given(self.dt if dt is None else dt, steps)

    # -- the state space ------------------------------------------------------------------------

    @cached_property
    def space(self) -> StateSpace:
        """State space of this map, which defines differences of states."""
        return FlatSpace(self.state_names, self.wrap)

    def difference(self, x0: np.ndarray, x1: np.ndarray) -> np.ndarray:
        """Return the error dx of the state x1 relative to x0, for which retract(x0, dx) = x1.
        In a vector space it is x1 - x0. Shapes are (..., nx) -> (..., ndx).

        Angles in `wrap` are taken the short way round.
        """
        return self.space.difference(check_last(x0, self.nx, "x0"), check_last(x1, self.nx, "x1"))

    def retract(self, x: np.ndarray, dx: np.ndarray) -> np.ndarray:
        """Return the state whose error relative to the state `x` is `dx`; in a vector space it is x + dx."""
        return self.space.retract(check_last(x, self.nx, "x"), check_last(dx, self.ndx, "dx"))

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
        """Compute N steps of given `lengths` (N,), s, from the state x0, and return the trajectory.
        The inputs are U (N, nu). If X and K are given, feedback adds -K[k] difference(X[k], x[k]) to the
        input U[k].

        The steps are those of `rollout`, or of `track` if X and K are given. They begin at the
        times `t` (N,), s, if given, as for a range of a trajectory with unequal steps. The caller has checked
        shapes and values.
        """

    def step(self, x: Any, u: Any = None, k: int = 0, dt: float | None = None) -> np.ndarray:
        """Return the next state x[k+1] (nx,), given a state and an input.
        The result is bitwise equal to that of a rollout.

        Raises `StepError` if the step does not exist.
        """
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
        """Return the trajectory of the map from state `x0` under the inputs `U` (N, nu).

        A single input `U` (nu,) is applied in all of `steps` steps. Without `U`, forces are zero and
        prescribed configurations stay fixed.

        If a step does not exist at its length, the rollout ends with a `StepError`. The motion until then is
        ``error.trajectory``, and a length that exists is ``error.length``. A rollout also ends with a
        `StepError` (cause ``"diverged"``) if the energy exceeds what the forces can have supplied. With
        `adaptive`, steps that do not exist are divided into halves, quarters, ..., with a warning
        (`StepWarning`): the trajectory then has more steps, of unequal lengths, and serves to look at the
        motion.

        `dt` may be one length of all steps, or N lengths. If these are equal, the trajectory's map has that
        step (`with_dt`). With `warn` False all warnings of the rollout are suppressed.
        """
        x0, U = start_of(self, x0, U, steps)
        take = partial(cut_rollout, self) if adaptive else self.run
        if not warn:
            with trying():
                return take(x0, U, k0, self.lengths(dt, len(U)))
        try:
            trajectory = take(x0, U, k0, self.lengths(dt, len(U)))
        except StepError as error:
            if error.trajectory is not None and error.cause != "indefinite M":
                self._check_account(error.trajectory, error)
            raise
        self._check_account(trajectory)
        warn_cut(trajectory, len(U))
        self.mechanism.review(trajectory)
        return trajectory

    def _check_account(self, run: Trajectory, error: StepError | None = None) -> None:
        """Raise `StepError` with the cause ``"diverged"`` if the energy of a trajectory has diverged.

        It is raised in place of the `error` at the run's end.
        """
        divergence = self.mechanism.diverged(run, error is not None) if len(run) > 1 else None
        if divergence is None:
            return
        k, why = divergence
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
        """Return many trajectories of the map, computed in parallel.
        Each trajectory is bitwise equal to that of a single rollout.

        Parameters
        ----------
        X0 : (M, nx) or (nx,)
            Initial states; one serves all.
        U : (M, N, nu), (N, nu), (nu,) or None
            Inputs of each rollout, or of all.
        steps : int, optional
            N, if U does not determine it.
        k0, dt
            See `rollout`.
        workers : int, optional
            Number of threads; by default the environment variable ``VIOC_WORKERS``, else the number of
            cores. The results do not depend on it.
        raise_on_failure : bool
            If False, a rollout that fails is NaN, and its error is in ``errors``.
        parameters : dict of str to (M,) or number, optional
            Values of declared parameters in each rollout; one serves all.

        Returns
        -------
        Batch

        Raises
        ------
        StepError
            The error of the first rollout that fails; its text has the rollout's index.
        """
        if U is None and steps is not None:
            U = getattr(X0, "u", None)
        X0 = np.atleast_2d(as_floats(state_of(X0, "initial states"), "initial states"))
        U = U if U is None or isinstance(U, Mapping) else as_floats(U, "inputs")
        each = np.ndim(U) == 3
        if X0.ndim != 2 or X0.shape[1] != self.nx:
            raise ValueError(f"initial states: expected shape (M, {self.nx}), got {X0.shape}")
        parameter_values, count = of_each(self, parameters or {}, len(X0), len(U) if each else None)
        n = len(inputs_of(self, U[0] if each else U, steps, X0[0]))
        x, u = np.empty((count, n + 1, self.nx)), np.empty((count, n, self.nu))
        multipliers = np.empty((count, n, len(self.multiplier_names)))
        same_shape = np.shape(U)[1:] == ((n, self.nu) if each else (self.nu,)) or not (self.nu or each)
        if same_shape and np.isfinite(X0).all() and (not each or np.isfinite(U).all()):
            x[:, 0], u[:] = X0, U if each else inputs_of(self, U, steps, X0[0])
        else:
            for i in range(count):
                inputs = U[min(i, len(U) - 1)] if each else U
                x[i, 0], u[i] = start_of(self, X0[min(i, len(X0) - 1)], inputs, steps)
        runs = Runs(x, u, multipliers, k0, self.lengths(dt, n), parameter_values)
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
        return Batch(runs.map or self, runs.t, x, u, multipliers, errors, k0, parameter_values)

    def _run_many(self, runs: Runs, threads: int | None) -> bool:
        """Compute many rollouts in parallel; return False if this map has no compiled program for this."""
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
            owner = run.map  # the same step for all rollouts
            runs.map = owner.trying(**self.parameters) if runs.parameters else owner

        work(0)  # builds what all rollouts share
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
        """Return the trajectory under the feedback u[k] = U[k] - K[k] difference(X[k], x[k]).

        Shapes: X (N or N+1, nx), U (N, nu), K (N, nu, ndx). The trajectory's `u` are the applied inputs; `dt`
        is that of `rollout`. Steps begin at the times `t` (N,), s, if given.
        """
        x0 = self.check_state(x0, "initial state")
        U = inputs_of(self, U, None, x0)
        n = len(U)
        X = check_array(as_floats(X, "tracked states")[:n], (n, self.nx), "tracked states", self.state_names)
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
        """Take one independent step from each of N states X (N, nx) under the inputs U (N, nu).

        Row i is step k0 + i and has the bits of `step`. `dt` is that of `rollout`. A step that does not exist
        raises a `StepError` with its index `k`. Steps begin at the times `t` (N,), s, if given.
        """

    @property
    @abstractmethod
    def derivatives(self) -> MapDerivatives:
        """Object that evaluates first and second derivatives of the steps of this map.

        They are best an `own` property if copies of the map share properties.
        """

    def linearize(self, x: Any, u: Any = None, k: int = 0, dt: float | None = None) -> Linearization:
        """Return the exact first derivatives of the step at (x, u)."""
        return self.derivatives.linearize(self._step_at(x, u, k, dt)).rows(0)

    def linearize_trajectory(self, trajectory: Trajectory) -> Linearization:
        """Return the first derivatives of all steps of a given trajectory.

        Its steps are not solved again.
        """
        return self.derivatives.linearize(trajectory)

    def second_order(
        self, x: Any, u: Any, z: Any, k: int = 0, dt: float | None = None, *, zeta: Any = None
    ) -> SecondOrder:
        """Return the second derivatives of a step: the exact Hessian of z . f(x, u).
        With zeta, it is the Hessian of z . f(x, u) + zeta . multipliers.
        """
        steps = self._step_at(x, u, k, dt)
        z = check_array(z, (self.ndx,), "weights z of the next state", self.space.error_names)
        return self._contracted(steps, z[None], None if zeta is None else [zeta]).rows(0)

    def second_order_trajectory(
        self, trajectory: Trajectory, Z: np.ndarray, zeta: np.ndarray | None = None
    ) -> SecondOrder:
        """Return the second derivatives of all steps of a trajectory, contracted with covectors.
        Row k of Z weights the next state of step k, and row k of `zeta` its multipliers.

        The weights are Z (N, ndx) and zeta (N, nm), as in `second_order`.
        """
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
        """CasADi function of the residual of the equations of a step; None if a map defines no equations.

        They are r(x, u, x_next, multipliers, t, dt, parameters) = 0. Multiple shooting and DMOC use them.
        """
        return None

    @property
    def explicit(self) -> ca.Function | None:
        """CasADi function of the next state; None if the map has no explicit formula.

        It is (x, u, t, dt, parameters) -> (x_next, multipliers, error), without a first guess.
        """
        return None

    @property
    def depends_on_time(self) -> bool | None:
        """Flag, True if a step depends on time; None if it is unknown.
        It is unknown if the map has neither a `residual` nor an `explicit` formula of its steps."""
        for function, index in ((self.residual, 4), (self.explicit, 2)):
            if function is not None:
                args = function.sx_in() if function.is_a("SXFunction") else function.mx_in()
                return bool(ca.depends_on(ca.vertcat(*map(ca.vec, function.call(args))), args[index]))
        return None

    @own
    def kernel(self) -> Kernel | None:
        """Return a CasADi function that solves a step, and the tolerance of its solution.
        The result is None if the map has no such function.

        Rollouts and closed loops are made from it.
        """
        return None if self._as_kernel is None else self._as_kernel()

    def identity(self) -> dict[str, Any]:
        """Return a dict of plain data that identifies this map in files of trajectories."""
        data = {key: _plain(getattr(self, name)) for key, name in self._identified_by}
        return {"map": type(self).__name__, "dt": self.dt, **data.pop("", {}), **data}

    @abstractmethod
    def with_parameters(self, **values: float) -> OneStepMap:
        """Return the map with other parameter values, without recompilation.

        Raises
        ------
        ModelError
            For unknown names, and for values that a description rejects: masses and inertias that no body
            has, negative damping, a lower limit above the upper one.
        """

    def trying(self, **values: float) -> OneStepMap:
        """Return the map with other parameter values, which are checked less than by `with_parameters`.
        Searches and filters use this method, because they also try values that are not physical.

        In contrast to `with_parameters` only inertias of bodies are checked, since without valid ones there
        is no motion.
        """
        return self.with_parameters(**values)

    def substeps(self, n: int) -> OneStepMap:
        """Return the map whose step consists of n steps of length dt/n of this map.
        All n steps have the same input, except that inputs of kinematic variables change linearly.
        """
        # imported by name at the first call: maps made of others are above this layer
        result: OneStepMap = importlib.import_module("vioc.maps.made.substeps").substeps(self, n)
        return result

    def with_dt(self, dt: float) -> OneStepMap:
        """Return the map with another default step length, s, without recompilation.

        Trajectories of free duration belong to such a map, so that they can be stabilized.
        """
        raise NotImplementedError(f"{type(self).__name__} has no with_dt; build it again with dt = {dt:g}")


def _plain(value: Any) -> Any:
    """Convert an attribute of a map to plain data, such as a number or a text.
    For example, a function is converted to its name.
    """
    if isinstance(value, OneStepMap):
        return value.identity()
    if isinstance(value, tuple):
        return [_plain(v) for v in value]
    if callable(value):
        return getattr(value, "__name__", type(value).__name__)
    return value if value is None or isinstance(value, (str, bool, int, float)) else repr(value)
