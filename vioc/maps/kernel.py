"""Rollouts of any map whose step is a CasADi function, in one call per horizon.

A *kernel* is a CasADi function

    (x, u, t, dt, parameters) -> (x_next, multipliers, error)

of the state alone: no first guess is carried from step to step, so that a step is the same to the bit
wherever it is taken. `error` is a scalar, the scaled residual of the step, or infinite where the root is not
certified. `mapaccum` strings kernels to a rollout, with feedback where a trajectory is tracked. A step whose
error is not small (or not a number) is handed to `rescued`, and the rollout goes on behind it.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, Generic, TypeVar, overload

import casadi as ca
import numpy as np

from vioc.checks import as_value, check_array, near_misses
from vioc.compile.cores import WORTH, over_cores, shares
from vioc.compile.many import ManyProgram
from vioc.compile.programs import Program
from vioc.errors import ChartWarning, ModelError, StepError
from vioc.maps.derivatives import Steps
from vioc.maps.protocol import Kernel
from vioc.maps.rolling import RollingMap
from vioc.maps.times import StepTimes
from vioc.maps.trajectory import Trajectory

Self = TypeVar("Self", bound="KernelMap")
T = TypeVar("T")


class shared(Generic[T]):
    """A property made once for a map and all its twins (`with_parameters`, `with_dt`), whichever asks first.

    So it must depend neither on the parameters' values nor on the step; `functools.cached_property` is for
    what does.
    """

    def __init__(self, make: Callable[[Any], T]):
        self._make, self.__doc__ = make, make.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, map: None, owner: type) -> shared[T]: ...

    @overload
    def __get__(self, map: KernelMap, owner: type) -> T: ...

    def __get__(self, map: KernelMap | None, owner: type) -> Any:
        if map is None:
            return self
        value = map.__dict__[self._name] = self._found(map, self._name)  # there from now on, before this is
        return value

    def _found(self, map: KernelMap, key: Any) -> Any:
        if key not in map.built:
            map.built[key] = self._make(map)
        return map.built[key]


class shared_by_step(shared[T]):
    """The same for what depends on the step: shared by the twins that have it."""

    def __get__(self, map: Any, owner: type) -> Any:
        return self if map is None else self._found(map, (self._name, map.dt))


class KernelMap(RollingMap):
    """A one-step map on a kernel; see the module's text.

    Subclasses set the attributes of `OneStepMap`, and `tolerance`; they define `_kernel` and `rescued`. A
    `_robust_kernel` is slower and tries harder.

    Attributes
    ----------
    tolerance : float
        Largest error of a step that is solved.
    symmetric : bool or None
        Whether a step by -dt undoes one by dt; None where that is not known.
    """

    _kernel: ca.Function
    symmetric: bool | None = None

    def blueprint(self) -> dict[str, Any] | None:
        """Plain data that determines the map's functions, where there are such; for the cache."""
        return None

    def _check_wrap(self) -> None:
        for name in self.wrap:
            if name not in self.state_names:
                raise ModelError(f"wrap: unknown state {name!r}; {near_misses(name, self.state_names)}")
            if self.unit(name) not in ("rad", ""):
                raise ModelError(
                    f"wrap: {name!r} is in {self.unit(name)}; only angles are taken modulo a turn"
                )

    # -- protocol -------------------------------------------------------------------------------

    def step(self, x: Any, u: Any = None, k: int = 0, dt: float | None = None) -> np.ndarray:
        x, u = self.check_point(x, u)
        return self._steps(x, u[None], k, self.lengths(dt, 1)).X[1]

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
        done = self._steps(x0, U, k0, lengths, X, K, t)
        return self._trajectory((done.X, done.applied, done.multipliers), k0, lengths, t)

    @property
    def kernel(self) -> Kernel | None:
        if type(self).run is not KernelMap.run:
            return None  # a rollout is more than this kernel
        return Kernel(self._kernel, self.tolerance, self.difference_expression)

    def with_parameters(self: Self, **values: float) -> Self:
        result = self.trying(**values)
        if self.system is not None:
            self.system.check_components(result.parameters, values)
        return result

    def trying(self: Self, **values: float) -> Self:
        for name in values:
            if name not in self.parameters:
                raise ModelError(f"unknown parameter {name!r}; {near_misses(name, self.parameters)}")
        result = self._twin()
        result.parameters = {
            **self.parameters,
            **{n: as_value(v, f"parameter {n!r}") for n, v in values.items()},
        }
        check_array(list(result.parameters.values()), (len(self.parameters),), "parameters", list(values))
        if self.system is not None:
            self.system.check_bodies(result.parameters, values)
        return result

    def with_dt(self: Self, dt: float) -> Self:
        self.lengths(dt, 1)
        result = self._twin()
        result.dt = float(dt)
        return result

    def _twin(self: Self) -> Self:
        _ = self.built, self._programs
        result = object.__new__(type(self))
        result.__dict__.update(self.__dict__)
        return result

    # -- the work -------------------------------------------------------------------------------

    @cached_property
    def built(self) -> dict[str, Any]:
        """What `shared` properties have made, one for all twins."""
        return {}

    @cached_property
    def _programs(self) -> dict[Any, Any]:
        """Programs of the kernels by kind, one for all twins."""
        return {}

    @shared
    def _times(self) -> StepTimes:
        return StepTimes(self)

    def steps_at(
        self,
        X: Any,
        U: Any,
        k0: int = 0,
        dt: float | Sequence[float] | np.ndarray | None = None,
        *,
        t: np.ndarray | None = None,
    ) -> Steps:
        X, U = np.ascontiguousarray(X, float), np.ascontiguousarray(U, float)
        n = len(U)
        h = self.lengths(dt, n)
        t = self.times(h, k0)[:-1] if t is None else t
        self.check_beginnings(X, k0)
        after, multipliers = np.empty_like(X), np.empty((n, len(self.multiplier_names)))
        unsolved = np.empty(n, bool)

        def solve(rows: Any, robust: bool = False) -> None:
            x = X[rows]
            args = [x, U[rows], t[rows, None], h[rows, None], self.theta]
            states, impulses, error, *_ = self._program(False, robust).map(args, len(x))
            found = states.reshape(x.shape)
            after[rows], multipliers[rows] = found, impulses.reshape(len(x), -1)
            good = (error.ravel() <= self.tolerance) & np.isfinite(found).all(axis=1)  # false for NaN
            unsolved[rows] = ~good

        def timed(rows: slice) -> None:
            before = time.perf_counter()
            solve(rows)
            each = (time.perf_counter() - before) / (rows.stop - rows.start)
            self.built["seconds a step"] = min(self.built.get("seconds a step", np.inf), each)

        known = self.built.get("seconds a step", np.inf)  # one thread builds what all share
        pieces = shares(n, int(WORTH / known) + 1) if known < np.inf else [slice(0, n)]
        if n:
            for _ in over_cores(timed, pieces):
                pass
        if unsolved.any() and self._robust_kernel is not None:
            solve(np.flatnonzero(unsolved), robust=True)
        if unsolved.any():
            with warnings.catch_warnings():  # of a singular step derivatives raise
                warnings.simplefilter("ignore", ChartWarning)
                for i in map(int, np.flatnonzero(unsolved)):
                    step = X[i], U[i], k0 + i, float(t[i]), float(h[i])
                    try:
                        after[i], multipliers[i] = self.rescued(*step)
                    except StepError as error:
                        raise self.explained(error, X[i]) from None
        return Steps(X, after, U, multipliers, t, h, k0 + np.arange(n))

    def _program(self, feedback: bool, robust: bool = False) -> Program:
        """The kernel, or the robust one, with or without feedback, on this map's backend."""
        name = ("track" if feedback else "step") + ("_robust" if robust else "")
        programs = self._programs
        if name not in programs:

            def build() -> ca.Function:
                kernel = self._robust_kernel if robust else self._kernel
                return self._with_feedback(kernel) if feedback else kernel

            programs[name] = self.backend.program(build, name)
        return programs[name]

    @property
    def _many(self) -> ManyProgram | None:
        programs = self._programs
        if "many" not in programs:
            programs["many"] = self.backend.many(self._lanes, "many")
        return programs["many"]

    def _lanes(self) -> str | None:
        """C of the kernel for samples side by side, a `vioc.compile.many.source`."""
        return None

    def _with_feedback(self, kernel: ca.Function) -> ca.Function:
        """(x, u_d, x_d, K by rows, t, dt, parameters) -> the kernel's outputs, and u."""
        x, _, t, dt, theta = kernel.mx_in()
        u_d, x_d = ca.MX.sym("u_d", self.nu), ca.MX.sym("x_d", self.nx)
        K = ca.MX.sym("K", self.nu, self.ndx)
        u = u_d - K @ self.difference_expression(x_d, x)
        outputs = kernel(x, u, t, dt, theta)
        return ca.Function("feedback", [x, u_d, x_d, K, t, dt, theta], [*outputs, u])
