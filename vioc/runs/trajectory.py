"""Trajectories, which are the results of rollouts.
A trajectory gives the values of named quantities, and it can be saved to a file.
"""

from __future__ import annotations

import os
import warnings
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, overload

import casadi as ca
import numpy as np

from vioc.checks import few
from vioc.compile.evaluate import Evaluator
from vioc.drawing import viz
from vioc.errors import SlackWarning
from vioc.names import quantity_name
from vioc.runs.columns import quantities_html, quantities_table, trajectory_columns
from vioc.runs.files import read_columns, whole_file, write_file
from vioc.runs.resampling import by_map, first_step, interpolated, new_lengths, sample_times
from vioc.runs.steps import lengths_of
from vioc.runs.tables import Table

if TYPE_CHECKING:
    from vioc.maps.protocol import OneStepMap


class Slack(NamedTuple):
    """Time interval of a trajectory in which a string is in compression.

    Attributes
    ----------
    string : str
    start, end : float
        Times of the first step's start and of the last step's end, s.
    tension : float
        Lowest tension, N (negative).
    """

    string: str
    start: float
    end: float
    tension: float


@dataclass(frozen=True)
class Trajectory:
    """States, inputs and multipliers of a one-step map over time.
    An expression such as ``run["theta"]`` returns the values of a named quantity.

    Attributes
    ----------
    map : OneStepMap
        Map of the run; its `dt` is the length of the steps if they are equal.
    t : (N+1,)
        Times, s.
    x : (N+1, nx)
    u : (N, nu)
    multipliers : (N, nm)
        Constraint impulses of each step; ``lambda.NAME`` names one.
    k0 : int
        Index of the first step (for maps that depend on time).
    before : float or None
        For a part of a run the length of the step before it, s, on which the first force depends.

    Notes
    -----
    ``run["theta"]`` is any quantity that the map names (``run.map.quantity``), at N+1 samples if it depends
    only on the state, and over N steps if it depends on inputs or multipliers.
    """

    map: OneStepMap
    t: np.ndarray
    x: np.ndarray
    u: np.ndarray
    multipliers: np.ndarray
    k0: int = field(default=0, kw_only=True)
    before: float | None = field(default=None, kw_only=True)

    @classmethod
    def stepped(
        cls,
        f: OneStepMap,
        lengths: np.ndarray,
        x: np.ndarray,
        u: np.ndarray,
        multipliers: np.ndarray,
        *,
        k0: int = 0,
        t: np.ndarray | None = None,
    ) -> Trajectory:
        """Make a trajectory from its arrays and from the lengths of its steps (N,), s.

        The lengths are not computed from the times `t`.
        """
        t = f.times(lengths, k0) if t is None else t
        run = cls(f, t, x, u, multipliers, k0=k0)
        if (lengths == f.dt).all():
            run.__dict__["step_lengths"] = lengths  # identical to the bit
        return run

    def __len__(self) -> int:
        """Return the number of steps N."""
        return len(self.u)

    @overload
    def __getitem__(self, name: str) -> np.ndarray: ...

    @overload
    def __getitem__(self, name: slice) -> Trajectory: ...

    def __getitem__(self, name):
        if isinstance(name, slice):
            if any(isinstance(bound, float) for bound in (name.start, name.stop)):
                a, b = (
                    "" if bound is None else int(np.abs(self.t - bound).argmin())
                    for bound in (name.start, name.stop)
                )
                raise TypeError(f"a slice counts steps, not seconds; for these times it is run[{a}:{b}]")
            start, end, stride = name.indices(len(self))
            if stride != 1:
                raise ValueError(f"expected every step of a slice, got a stride of {stride}; see `resample`")
            return self.part(start, max(start, end))
        if not isinstance(name, str):
            raise TypeError(
                f"a trajectory is indexed by the name of a quantity, got {name!r}; steps are a slice, a:b"
            )
        return self.map.quantities.along(self, name)

    @cached_property
    def step_lengths(self) -> np.ndarray:
        """Length of each step (N,), s.
        Lengths that differ only by rounding errors of the sample times are returned as equal.
        """
        return lengths_of(self.t, self.map.dt)

    @property
    def duration(self) -> float:
        """Duration of the trajectory, s."""
        return float(self.t[-1] - self.t[0])

    def on_its_step(self) -> Trajectory:
        """Return a copy whose map has the trajectory's step length as its default.
        Results made from the copy, such as a regulator, a file or a quantity, then have this step length. A
        trajectory with steps of unequal lengths is returned unchanged.
        """
        h, f = self.step_lengths, self.map
        if not len(h) or h[0] == f.dt or not (h == h[0]).all():
            return self
        return replace(self, map=f.with_dt(float(h[0])))

    def evaluate(self, expression: ca.SX) -> np.ndarray:
        """Evaluate an expression in the map's CasADi symbols along the trajectory.
        An expression that depends only on the state has one value at each sample. Any other expression
        has one value in each step.

        Returns
        -------
        (N+1,) or (N+1, size) if it depends only on the state, else N rows.
        """
        s = self.map.symbols
        f = Evaluator(ca.Function("quantity", list(s), [ca.densify(ca.vec(expression))]))
        theta = self.map.theta
        by_step = any(ca.which_depends(ca.vec(expression), ca.vertcat(s.u, s.multipliers, s.dt), 1, True))
        n = len(self)
        if by_step:
            forces = ca.depends_on(ca.vec(expression), s.multipliers)
            steps = (self.impulse_lengths if forces else self.step_lengths)[:, None]
            values = f(self.x[:n], self.u, self.multipliers, theta, steps)[0][..., 0]
        else:
            zeros = np.zeros(s.u.numel()), np.zeros(s.multipliers.numel())
            values = f(self.x, *zeros, theta, np.zeros(1))[0][..., 0]
        return values[:, 0] if values.shape[1] == 1 else values

    @cached_property
    def impulse_lengths(self) -> np.ndarray:
        """Time (N,), s, by which the impulses of each step are divided to get forces.

        An impulse at the start of a step belongs in part to the step before, which may have another length.
        The time is the mean of both lengths, weighted by these parts.
        """
        h = self.step_lengths
        start = h[:1] if self.before is None else np.full(len(h[:1]), self.before)
        return h + self.map.mechanism.impulse_behind * (np.concatenate([start, h[:-1]]) - h)

    @property
    def energy(self) -> np.ndarray:
        """Total energy at each sample (N+1,), J; only for maps that define an energy."""
        return self["energy"]

    def slack(self, tolerance: float | None = None) -> list[Slack]:
        """Return the time intervals in which a string is in compression, in order of time.

        Strings are `StringConstraint`.

        Parameters
        ----------
        tolerance : float, optional
            Smallest push that counts, N; by default the rounding error, or 1e-6 of the string's largest
            |tension| in this run if that is more.
        """
        intervals = []
        owner = self.map.mechanism
        for name in owner.strings:
            if not (self.multipliers[:, self.map.multiplier_names.index(name)] < 0).any():
                continue
            tension = self["tension." + name]
            rounding = owner.force_rounding(self.step_lengths.min())
            least = max(rounding, 1e-6 * np.abs(tension).max()) if tolerance is None else tolerance
            pushes = tension < -least
            edges = np.flatnonzero(np.diff(np.concatenate([[False], pushes, [False]])))
            for first, end in edges.reshape(-1, 2):
                lowest = float(tension[first:end].min())
                intervals.append(Slack(name, float(self.t[first]), float(self.t[end]), lowest))
        return sorted(intervals, key=lambda s: s.start)

    def plot(self, *names: str, **options: Any) -> Any:
        """Plot named quantities over time, by default all states.

        The function is `vioc.viz.plot_trajectory`. Returns an array of matplotlib Axes, one per unit, even if
        there is only one.
        """
        return viz().plot_trajectory(self, *names, **options)

    def animate(self, path: str | os.PathLike | None = None, **options: Any) -> Any:
        """Animate the mechanism on the screen or in a file, by `vioc.viz.animate`."""
        return viz().animate(self, path, **options)

    def view(self, **options: Any) -> Any:
        """Show the motion of the mechanism in the browser, by `vioc.viz.view`."""
        return viz().view(self, **options)

    def __repr__(self) -> str:
        return (
            f"Trajectory({len(self)} steps, t = {self.t[0]:g} .. {self.t[-1]:g} s, "
            f"states {few(self.map.state_names, what='states')}; "
            f"inputs {few(self.map.input_names, what='inputs')})"
        )

    def _repr_html_(self) -> str:
        return quantities_html(self, repr(self))

    def part(self, start: int, end: int) -> Trajectory:
        """Return the part of the trajectory from step `start` up to step `end`, exclusive.

        Both are non-negative; ``run[start:end]`` also counts from the end.
        """
        arrays = self.t[start : end + 1], self.x[start : end + 1], self.u[start:end]
        multipliers = self.multipliers[start:end]
        before = self.before
        if start:
            before = float(self.step_lengths[start - 1])
        return Trajectory(self.map, *arrays, multipliers, k0=self.k0 + start, before=before).on_its_step()

    def resample(self, dt: Any, *, by: str) -> Trajectory:
        """Return this motion with other step lengths, by rollout or by interpolation.

        Parameters
        ----------
        dt : float or (M,)
            Step lengths, s; they must fill the run's duration, with samples at the switches between phases.
        by : {"map", "line"}
            ``"map"``: the rollout of x_0 with the same inputs, a motion of the map with the new step.
            ``"line"``: straight lines between the samples, along the map's own differences. These pass
            through the samples, but are not a motion of the map: momenta and constraints are accurate to
            second order.

        Returns
        -------
        Trajectory
            Inputs keep their integral: a step that covers several old steps has the mean of their inputs.

        Raises
        ------
        ValueError
            If steps do not fill the run, or states jump between phases (``"line"``).
        StepError
            If a step of the rollout has no solution.
        """
        lengths = new_lengths(self, dt)
        k0 = first_step(self, lengths)
        times = sample_times(self, lengths, k0)
        if by == "map":
            return by_map(self, lengths, times, k0)
        if by == "line":
            return Trajectory(*interpolated(self, lengths, times), k0=k0).on_its_step()
        raise ValueError(f'by: expected "map" or "line", got {by!r}')

    def table(self, *names: str) -> Table:
        """Return a `Table` of named quantities with units, for CSV, pandas and xarray.

        Without names the table has all states, inputs and multipliers, from which `load` restores the
        trajectory. Quantities of a step are in the row of its start.
        """
        f = self.map
        every = (
            *f.state_names,
            *(f"u.{n}" for n in f.input_names),
            *(f"lambda.{n}" for n in f.multiplier_names),
        )
        return quantities_table(self, [quantity_name(f, n, "table") for n in names] or every)

    # -- file -----------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike) -> Path:
        """Save the trajectory and the names of its quantities to an npz or CSV file.

        A path ``NAME.csv`` gives CSV (``table().write``), a path without a suffix gets ``.npz``. The file is
        written completely or not at all: an interrupted save leaves the old file.

        Raises
        ------
        FileNotFoundError
            If the path's folder does not exist.
        ValueError
            If the path has another suffix.
        """
        path = whole_file(path)
        if path.suffix == ".csv":
            return self.table().write(path)
        if path.suffix != ".npz":
            raise ValueError(
                f"{path.name}: a trajectory is written as .npz or .csv; others are table()'s to write"
            )
        header: dict[str, Any] = {"identity": self.map.identity(), "parameters": self.map.parameters}
        header |= {"k0": self.k0, "before": self.before}
        f, arrays = self.map, {"t": self.t, "x": self.x, "u": self.u, "multipliers": self.multipliers}
        names = (("state", f.state_names), ("input", f.input_names), ("multiplier", f.multiplier_names))
        arrays |= {f"{kind}_names": np.array(group, dtype=str) for kind, group in names}
        return write_file(path, arrays, header)

    @staticmethod
    def load(path: Any, f: OneStepMap) -> Trajectory:
        """Read a saved trajectory of the map `f`, and match its columns by their names.

        They may have any order.

        Parameters
        ----------
        path : path, Table, pandas.DataFrame or xarray.Dataset
            Data. An npz file identifies its map. Tables (``.csv`` among paths) contain only names and units;
            ``f.rollout(run.x[0], run.u)`` shows whether they have a motion of this map, step and parameters.
        f : OneStepMap

        Raises
        ------
        FileFormatError
            If the file is not a trajectory, is damaged, or belongs to another map: other names, another
            model, time step or integrator.
        """
        if not isinstance(path, (str, os.PathLike)) or Path(path).suffix == ".csv":
            return Trajectory(f, **trajectory_columns(Table.read(path), f)).on_its_step()
        columns, header = read_columns(path, f)
        moved = {n: v for n, v in header["parameters"].items() if n in f.parameters}
        owner = f.trying(**moved) if moved else f
        arrays = (columns[name] for name in ("t", "x", "u", "multipliers"))
        before = header.get("before")
        return Trajectory(owner, *arrays, k0=header["k0"], before=before).on_its_step()


def warn_slack(trajectory: Trajectory) -> None:
    """Issue a `SlackWarning` if a string is in compression during a trajectory."""
    intervals = trajectory.slack()
    if not intervals:
        return
    name, start, _, _ = intervals[0]
    pushes = trajectory["tension." + name]
    value = float(pushes[np.searchsorted(trajectory.t, start)])
    others = len({s.string for s in intervals}) - 1
    more = f" ({others} more strings push later)" if others else ""
    warnings.warn(
        f"the string {name} pushes with {-value:.3g} N from t = {start:g} s on{more}: a real string goes "
        "slack there. `trajectory.slack()` lists where; change the motion, or end the run before",
        SlackWarning,
        stacklevel=4,
    )
