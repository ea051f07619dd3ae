"""What is taken where a trajectory or a state is: results, runs of loops, reports of equilibria."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import casadi as ca
import numpy as np

from vioc.drawing import viz
from vioc.maps.columns import quantities_html
from vioc.maps.tables import Table
from vioc.maps.trajectory import Slack, Trajectory

if TYPE_CHECKING:
    from vioc.maps.protocol import OneStepMap


class AsTrajectory:
    """Reads like its `trajectory`, and is taken where one is: ``best["theta"]``, ``best.plot()``."""

    trajectory: Trajectory

    @property
    def map(self) -> OneStepMap:
        """The trajectory's map."""
        return self.trajectory.map

    @property
    def t(self) -> np.ndarray:
        """Times (N+1,), s."""
        return self.trajectory.t

    @property
    def x(self) -> np.ndarray:
        """States (N+1, nx)."""
        return self.trajectory.x

    @property
    def u(self) -> np.ndarray:
        """Inputs (N, nu)."""
        return self.trajectory.u

    @property
    def k0(self) -> int:
        """Index of the first step."""
        return self.trajectory.k0

    @property
    def step_lengths(self) -> np.ndarray:
        """Length of each step (N,), s."""
        return self.trajectory.step_lengths

    @property
    def duration(self) -> float:
        """s."""
        return self.trajectory.duration

    @property
    def energy(self) -> np.ndarray:
        """Total energy at each sample, J (N+1,), where the map has one."""
        return self.trajectory.energy

    def __len__(self) -> int:
        """Number of steps N."""
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
        """`Trajectory.evaluate`."""
        return self.trajectory.evaluate(expression)

    def slack(self, tolerance: float | None = None) -> list[Slack]:
        """`Trajectory.slack`."""
        return self.trajectory.slack(tolerance)

    def resample(self, dt: Any, *, by: str) -> Trajectory:
        """`Trajectory.resample`."""
        return self.trajectory.resample(dt, by=by)

    def table(self, *names: str) -> Table:
        """`Trajectory.table`."""
        return self.trajectory.table(*names)

    def save(self, path: str | os.PathLike) -> Path:
        """`Trajectory.save`."""
        return self.trajectory.save(path)

    def plot(self, *names: str, **options: Any) -> Any:
        """Plot named quantities over time (all states without names), as `Trajectory.plot`."""
        return self.trajectory.plot(*names, **options)

    def animate(self, path: str | os.PathLike | None = None, **options: Any) -> Any:
        """As `Trajectory.animate`, with the obstacles that an optimization was given."""
        return viz().animate(self, path, **options)

    def view(self, **options: Any) -> Any:
        """As `Trajectory.view`, with the obstacles that an optimization was given."""
        return viz().view(self, **options)


def trajectory_of(value: Any) -> Any:
    """The trajectory of what is one or has one; anything else as it is.

    Raises
    ------
    ValueError
        For what has several: a batch, a solution of several phases.
    """
    if isinstance(value, Trajectory):
        return value
    found = getattr(value, "trajectory", None)
    return found if isinstance(found, Trajectory) else value


def state_of(value: Any, what: str = "state") -> Any:
    """The state of what is at one, such as a report of an equilibrium; anything else as it is.

    Raises
    ------
    ValueError
        For a trajectory, which has many.
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
