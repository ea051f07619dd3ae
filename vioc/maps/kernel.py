"""Maps whose step is a CasADi function, or another program of the same arguments.

A *kernel* is a CasADi function

    (x, u, t, dt, parameters) -> (x_next, multipliers, error)

of the state alone: no first guess is carried from step to step, so that a step is the same to the bit
wherever it is taken. `error` is a scalar, the scaled residual of the step, or infinite where the root is not
certified. `mapaccum` strings kernels to a rollout, with feedback where a trajectory is tracked. A step whose
error is not small (or not a number) is solved by other means.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import casadi as ca
import numpy as np

from vioc.checks import as_value, check_array, near_misses
from vioc.compile.many import ManyProgram
from vioc.compile.programs import Program
from vioc.errors import ModelError
from vioc.maps.derivatives import MapDerivatives, Steps
from vioc.maps.driver import Driver
from vioc.maps.protocol import Kernel, OneStepMap
from vioc.maps.times import StepTimes
from vioc.maps.twins import own, shared, twin
from vioc.runs.batch import Runs
from vioc.runs.given import point_of
from vioc.runs.trajectory import Trajectory

Solved = tuple[np.ndarray, np.ndarray]  # x_next, multipliers
Self = TypeVar("Self", bound="KernelMap")


def none(*_: Any) -> None:
    """None, whatever the arguments: the default of what a `StepSolver` may lack."""


@dataclass(frozen=True)
class StepSolver:
    """Solver of the steps of a map: functions that are tried one after another.

    Attributes
    ----------
    program : feedback -> Program
        Of the kernel, with or without feedback.
    robust : feedback -> Program or None
        Of a slower one that tries harder.
    rescued : x (nx,), u, k, t, dt -> x_next, multipliers
        Solves step k, at time t, by every means: one that the programs did not solve, or whose root they
        could not certify. Raises `StepError` where the step does not exist.
    check : X (N, nx), k -> None
        Raises `StepError` where no rollout may start, of states at the steps from k on.
    fault_of : x (nx,), nearly -> str; or None
        Why a state is none of a mechanism, or if `nearly` hardly one; "" where it is sound. None where
        every state is one.
    many : () -> ManyProgram or None
        Of the kernel for many samples side by side.
    kernel : () -> casadi.Function or None
        The kernel, where a rollout is no more than it strung together.
    """

    program: Callable[[bool], Program]
    rescued: Callable[[np.ndarray, np.ndarray, int, float, float], Solved]
    robust: Callable[[bool], Program | None] = none
    check: Callable[[np.ndarray, int], None] = none
    fault_of: Callable[[np.ndarray, bool], str] | None = None
    many: Callable[[], ManyProgram | None] = none
    kernel: Callable[[], ca.Function | None] = none


class KernelPrograms:
    """The programs of a map's kernel, built when they are asked for.

    Parameters
    ----------
    f : OneStepMap
        Whose backend runs them.
    kernel : () -> casadi.Function
    robust : () -> casadi.Function or None
        One that is slower and tries harder.
    lanes : () -> str or None
        C of the kernel for samples side by side, a `vioc.compile.many.source`.
    written : feedback -> str or None, optional
        C of the whole kernel for the compiled backend, where that is not CasADi's.
    """

    def __init__(
        self,
        f: OneStepMap,
        kernel: Callable[[], ca.Function],
        robust: Callable[[], ca.Function | None] = none,
        lanes: Callable[[], str | None] = none,
        written: Callable[[bool], str | None] | None = None,
    ):
        self._f, self._kernel, self._robust, self._lanes, self._written = f, kernel, robust, lanes, written
        self._programs: dict[str, Program] = {}
        self._many: list[ManyProgram | None] = []  # one, once it was asked for

    def solver(self, rescued: Callable[..., Solved], **more: Any) -> StepSolver:
        """A `StepSolver` of these programs; `more` are its other attributes."""
        known = dict(program=self.plain, robust=self.robust, many=self.many, kernel=self._kernel)
        return StepSolver(rescued=rescued, **{**known, **more})

    def plain(self, feedback: bool) -> Program:
        """The kernel's program, with or without feedback."""
        name, backend = "track" if feedback else "step", self._f.backend
        if name not in self._programs:

            def build() -> ca.Function:
                return self._fed_back(self._kernel()) if feedback else self._kernel()

            written = self._written if backend.name == "compiled" else None
            self._programs[name] = (
                backend.program(build, name)
                if written is None
                else backend.program(build, f"{name}_vectors", lambda: written(feedback))
            )
        return self._programs[name]

    def robust(self, feedback: bool) -> Program | None:
        """The robust kernel's program; None without one."""
        kernel, name = self._robust(), ("track" if feedback else "step") + "_robust"
        if kernel is None:
            return None
        if name not in self._programs:
            found = self._fed_back(kernel) if feedback else kernel
            self._programs[name] = self._f.backend.program(lambda: found, name)
        return self._programs[name]

    def many(self) -> ManyProgram | None:
        """The program for many samples side by side; None without one."""
        if not self._many:
            self._many = [self._f.backend.many(self._lanes, "many")]
        return self._many[0]

    def _fed_back(self, kernel: ca.Function) -> ca.Function:
        """(x, u_d, x_d, K by rows, t, dt, parameters) -> the kernel's outputs, and u."""
        f = self._f
        x, _, t, dt, theta = kernel.mx_in()
        u_d, x_d = ca.MX.sym("u_d", f.nu), ca.MX.sym("x_d", f.nx)
        K = ca.MX.sym("K", f.nu, f.ndx)
        u = u_d - K @ f.space.difference_expression(x_d, x)
        outputs = kernel(x, u, t, dt, theta)
        return ca.Function("feedback", [x, u_d, x_d, K, t, dt, theta], [*outputs, u])


class KernelMap(OneStepMap):
    """A one-step map on a kernel; see the module's text.

    Subclasses set the attributes of `OneStepMap`, and `tolerance`; they define `step_solver` and
    `derivatives`.

    Attributes
    ----------
    tolerance : float
        Largest error of a step that is solved.
    symmetric : bool or None
        Whether a step by -dt undoes one by dt; None where that is not known.
    """

    tolerance: float
    symmetric: bool | None = None

    @property
    @abstractmethod
    def step_solver(self) -> StepSolver:
        """Solver of the steps; best an `own` property, of programs that twins share."""

    @property
    def _checks(self) -> dict[str, Any]:
        """Arguments of `StepSolver` that check the states of this map, if there are any."""
        return {}

    @own
    def driver(self) -> Driver:
        """Driver that takes the steps."""
        return Driver(self)

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
        x, u = point_of(self, x, u)
        return self.driver.course(x, u[None], k, self.lengths(dt, 1)).X[1]

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
        return self.driver.run(x0, U, k0, lengths, X, K, t)

    def _run_many(self, runs: Runs, threads: int | None) -> bool:
        return self.driver.run_many(runs, threads)

    def steps_at(self, X: Any, U: Any, k0: int = 0, dt: Any = None, *, t: np.ndarray | None = None) -> Steps:
        X, U = np.ascontiguousarray(X, float), np.ascontiguousarray(U, float)
        h = self.lengths(dt, len(U))
        return self.driver.steps_at(X, U, k0, h, self.times(h, k0)[:-1] if t is None else t)

    @property
    def kernel(self) -> Kernel | None:
        found = self.step_solver.kernel()
        return None if found is None else Kernel(found, self.tolerance, self.space.difference_expression)

    def with_parameters(self: Self, **values: float) -> Self:
        result = self.trying(**values)
        if self.system is not None:
            self.system.check_components(result.parameters, values)
        return result

    def trying(self: Self, **values: float) -> Self:
        for name in values:
            if name not in self.parameters:
                raise ModelError(f"unknown parameter {name!r}; {near_misses(name, self.parameters)}")
        result = twin(self)
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
        result = twin(self)
        result.dt = float(dt)
        return result

    @cached_property
    def built(self) -> dict[str, Any]:
        """Results of `shared` properties, one dict for all twins."""
        return {}

    @shared
    def _times(self) -> StepTimes:
        return StepTimes(self)

    def with_times(self) -> MapDerivatives:
        """Return derivatives with those by a step's length and start, by its equations."""
        return self._times.added(self.derivatives)
