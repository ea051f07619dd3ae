"""Conversion of arguments to trajectories, states, inputs and step lengths.

Results and runs of loops are accepted as trajectories, reports of equilibria as states.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import casadi as ca
import numpy as np

from vioc.checks import as_count, as_floats, check_array, check_rows, real
from vioc.drawing import viz
from vioc.runs.columns import quantities_html
from vioc.runs.tables import Table
from vioc.runs.trajectory import Slack, Trajectory

if TYPE_CHECKING:
    from vioc.maps.protocol import OneStepMap


class AsTrajectory:
    """Base class of results that can be used in place of their trajectory.
    They have the attributes and methods of the trajectory. For example, ``best["theta"]`` returns the values
    of the quantity `theta` along the trajectory of the result `best`.
    """

    trajectory: Trajectory

    @property
    def map(self) -> OneStepMap:
        """Map of the trajectory."""
        return self.trajectory.map

    @property
    def t(self) -> np.ndarray:
        """Sample times of the trajectory (N+1,), s."""
        return self.trajectory.t

    @property
    def x(self) -> np.ndarray:
        """States of the trajectory (N+1, nx)."""
        return self.trajectory.x

    @property
    def u(self) -> np.ndarray:
        """Inputs of the trajectory (N, nu)."""
        return self.trajectory.u

    @property
    def k0(self) -> int:
        """Index of the trajectory's first step."""
        return self.trajectory.k0

    @property
    def step_lengths(self) -> np.ndarray:
        """Length of each step (N,), s."""
        return self.trajectory.step_lengths

    @property
    def duration(self) -> float:
        """Duration of the trajectory, s."""
        return self.trajectory.duration

    @property
    def energy(self) -> np.ndarray:
        """Total energy at each sample (N+1,), J; only for maps that define an energy."""
        return self.trajectory.energy

    def __len__(self) -> int:
        """Return the number of steps N."""
        return len(self.trajectory)

    def __bool__(self) -> bool:
        return True

    @overload
    def __getitem__(self, name: str) -> np.ndarray: ...

    @overload
    def __getitem__(self, name: slice) -> Trajectory: ...

    def __getitem__(self, name):
        return self.trajectory[name]

    def _repr_html_(self) -> str:
        return quantities_html(self.trajectory, repr(self))

    def evaluate(self, expression: ca.SX) -> np.ndarray:
        """Evaluate a CasADi expression of the map's symbols along the trajectory.
        An expression that depends only on the state has one value at each sample. Any other expression has
        one value in each step.
        """
        return self.trajectory.evaluate(expression)

    def slack(self, tolerance: float | None = None) -> list[Slack]:
        """Return the time intervals in which a string is in compression.
        The argument `tolerance` is the smallest compressive force that counts, N; by default it follows from
        rounding errors and the largest tension.
        """
        return self.trajectory.slack(tolerance)

    def resample(self, dt: Any, *, by: str) -> Trajectory:
        """Return the trajectory with other step lengths.
        With ``by="map"`` it is a rollout of the map with the new step lengths dt, s; with ``by="line"`` the
        states are interpolated between the samples.
        """
        return self.trajectory.resample(dt, by=by)

    def table(self, *names: str) -> Table:
        """Return a table of named quantities, with units.
        Without names, the table has all states, inputs and multipliers.
        """
        return self.trajectory.table(*names)

    def save(self, path: str | os.PathLike) -> Path:
        """Write the trajectory to a file.
        The suffix of the path selects the format, ``.npz`` (also without a suffix) or ``.csv``.
        """
        return self.trajectory.save(path)

    def plot(self, *names: str, **options: Any) -> Any:
        """Plot named quantities over time, by default all states.
        The options are those of the function `vioc.viz.plot_trajectory`.
        """
        return self.trajectory.plot(*names, **options)

    def animate(self, path: str | os.PathLike | None = None, **options: Any) -> Any:
        """Animate the motion of this result's trajectory.
        If the result is the solution of a problem with obstacles, the obstacles are drawn too. The animation
        is written to the file `path` if it is given. The options are those of `vioc.viz.animate`.
        """
        return viz().animate(self, path, **options)

    def view(self, **options: Any) -> Any:
        """Show the motion of this result's trajectory in the browser.
        If the result is the solution of a problem with obstacles, the obstacles are shown too.
        The options are those of the function `vioc.viz.view`.
        """
        return viz().view(self, **options)


def trajectory_of(value: Any) -> Any:
    """Return the trajectory of a result that has one; return other values unchanged.

    Raises
    ------
    ValueError
        If the value has several, as a batch or a solution of several phases.
    """
    if isinstance(value, Trajectory):
        return value
    run = getattr(value, "trajectory", None)
    return run if isinstance(run, Trajectory) else value


def state_of(value: Any, what: str = "state") -> Any:
    """Return the state of an object that has one, such as an equilibrium.

    Raises
    ------
    ValueError
        If the value is a trajectory, which has many states.
    """
    x = getattr(value, "x", None)
    if x is None:
        return value
    if np.ndim(x) == 1:
        return x
    raise ValueError(
        f"{what}: expected one state, got {type(value).__name__} with states of shape {np.shape(x)}; give "
        "one of them, such as run.x[0] or run.x[-1]"
    )


def point_of(f: OneStepMap, x: Any, u: Any = None) -> tuple[np.ndarray, np.ndarray]:
    """Return a state and an input as checked arrays.
    If x is an equilibrium, the default of u is the input of the equilibrium.
    """
    state = f.check_state(x)
    return state, input_of(f, getattr(x, "u", None) if u is None else u, state)


def points_of(f: OneStepMap, X: Any, U: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return the checked states (N, nx) and inputs (N, nu) of N steps."""
    X, U = np.ascontiguousarray(as_floats(X, "states")), np.ascontiguousarray(as_floats(U, "inputs"))
    if X.shape != (*X.shape[:1], f.nx) or U.shape != (*X.shape[:1], f.nu):
        wanted = f"states of shape (N, {f.nx}) and inputs of shape (N, {f.nu})"
        raise ValueError(f"steps: expected {wanted}, got {X.shape} and {U.shape}")
    return X, U


def start_of(f: OneStepMap, x0: Any, U: Any, steps: int | None) -> tuple[np.ndarray, np.ndarray]:
    """Return the initial state (nx,) and the inputs (N, nu) of a rollout, checked.

    The input of an equilibrium is held if none are given.
    """
    state = f.check_state(x0, "initial state")
    U = getattr(x0, "u", None) if U is None and steps is not None else U
    return state, inputs_of(f, U, steps, state)


def input_of(f: OneStepMap, u: Any, x: np.ndarray | None = None, what: str = "input") -> np.ndarray:
    """Return an input as a finite array (nu,).
    By default, it keeps kinematic variables at their positions in the state x, and is zero otherwise.
    """
    if u is None:
        return np.zeros(f.nu) if x is None else f.rest_input(x)
    if isinstance(u, Mapping):
        raise ValueError(
            f"{what}: expected an array of shape ({f.nu},), got {u!r}; make one with f.input({u!r}), "
            f"or for the steps of a rollout f.inputs(steps, {u!r})"
        )
    return check_array(u, (f.nu,), what, f.input_names)


def inputs_of(f: OneStepMap, U: Any, steps: int | None, x0: np.ndarray) -> np.ndarray:
    """Return inputs (N, nu) of a rollout for `steps` steps from the state x0.
    The argument U is such an array; one input (nu,) for all steps; or None for the map's `rest_input`.
    """
    if isinstance(U, Mapping):
        input_of(f, U, what="inputs")
    U = None if U is None else as_floats(U, "inputs")
    sequence = np.ndim(U) == 1 and steps is None and f.nu == 1
    if U is None or (np.ndim(U) < 2 and not sequence):
        if steps is None:
            raise ValueError("rollout needs inputs U of shape (N, nu), or the number of steps")
        count = as_count(steps, "steps")
        row = f.rest_input(x0) if U is None else input_of(f, U)
        return np.tile(row, (count, 1))
    array = U[:, None] if U.ndim == 1 else U
    array = check_rows(array, "inputs", f.input_names)
    if steps is not None and len(array) != steps:
        raise ValueError(f"inputs: got {len(array)} rows for steps={steps}")
    return array


def lengths_given(value: Any, steps: int) -> np.ndarray:
    """Return step lengths (N,), given as an array or as one length for all steps."""
    if isinstance(value, float) and value > 0 < value * value < math.inf:
        return np.full(steps, value)  # fast path of the common case
    value = real(value, "dt")
    try:
        lengths = np.broadcast_to(as_floats(value, "dt"), (steps,)).copy()
    except ValueError:
        raise ValueError(f"dt: expected step lengths > 0, one or {steps}, got {value!r}") from None
    with np.errstate(over="ignore", under="ignore"):
        squares = lengths * lengths  # integrators divide by squares of step lengths
    if not (lengths > 0).all():
        raise ValueError(f"dt: expected step lengths > 0, got {value!r}")
    if not ((squares > 0).all() and np.isfinite(squares).all()):
        raise ValueError(f"dt: expected step lengths > 0 whose squares are numbers > 0, got {value!r}")
    return lengths
