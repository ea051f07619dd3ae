"""`Trajectory`: what a rollout returns, with access by name, and its file."""

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
    """A stretch of a trajectory over which a string pushes.

    Attributes
    ----------
    string : str
    start, end : float
        Times of the first step's start and of the last step's end, s.
    tension : float
        The lowest, N (negative).
    """

    string: str
    start: float
    end: float
    tension: float


@dataclass(frozen=True)
class Trajectory:
    """A discrete trajectory of a one-step map, time first.

    Attributes
    ----------
    map : OneStepMap
        Its `dt` is the length of the steps, where they are equal.
    t : (N+1,)
        s.
    x : (N+1, nx)
    u : (N, nu)
    multipliers : (N, nm)
        Constraint impulses of each step; ``lambda.NAME`` names one.
    k0 : int
        Index of the first step (for maps that depend on time).
    before : float or None
        Of a part of a run, the length of the step before, s: the first impulse stands in part for that.

    Notes
    -----
    ``run["theta"]`` is any quantity that the map names (``run.map.quantity``), over N+1 samples where
    it depends on the state alone and over N steps where it depends on inputs or multipliers.
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
        """That of steps of `lengths` (N,), s, whose times `t` need not be looked through for them."""
        t = f.times(lengths, k0) if t is None else t
        run = cls(f, t, x, u, multipliers, k0=k0)
        if (lengths == f.dt).all():
            run.__dict__["step_lengths"] = lengths  # the same to the bit
        return run

    def __len__(self) -> int:
        """Number of steps N."""
        return len(self.u)

    @overload
    def __getitem__(self, name: str) -> np.ndarray: ...

    @overload
    def __getitem__(self, name: slice) -> Trajectory: ...

    def __getitem__(self, name):
        if isinstance(name, slice):
            if any(isinstance(at, float) for at in (name.start, name.stop)):
                a, b = (
                    "" if at is None else int(np.abs(self.t - at).argmin()) for at in (name.start, name.stop)
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
        """Length of each step (N,), s; exact where they are equal, which differences of t are not."""
        return lengths_of(self.t, self.map.dt)

    @property
    def duration(self) -> float:
        """s."""
        return float(self.t[-1] - self.t[0])

    def on_its_step(self) -> Trajectory:
        """This trajectory on the map whose `dt` is the length of its steps, where they are equal.

        So that whatever is made of it (a regulator, a file, a quantity) is for these steps.
        """
        h, f = self.step_lengths, self.map
        if not len(h) or h[0] == f.dt or not (h == h[0]).all():
            return self
        return replace(self, map=f.with_dt(float(h[0])))

    def evaluate(self, expression: ca.SX) -> np.ndarray:
        """Values of a CasADi expression of ``map.symbols`` along the trajectory.

        Returns
        -------
        (N+1,) or (N+1, size) where only the state matters, else N rows.
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
        """The time for which each step's impulses stand (N,), s: an impulse over it is a force.

        That at the start of a step belongs in part to the one before, whose length may be another.
        """
        h = self.step_lengths
        start = h[:1] if self.before is None else np.full(len(h[:1]), self.before)
        return h + self.map.mechanism.impulse_behind * (np.concatenate([start, h[:-1]]) - h)

    @property
    def energy(self) -> np.ndarray:
        """Total energy at each sample, J (N+1,), where the map has one."""
        return self["energy"]

    def slack(self, tolerance: float | None = None) -> list[Slack]:
        """Where strings (`StringConstraint`) push, in the order of time; empty where none does.

        Parameters
        ----------
        tolerance : float, optional
            The push that counts, N; by default what is above rounding, or 1e-6 of the string's greatest
            |tension| in this run if that is more.
        """
        found = []
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
                found.append(Slack(name, float(self.t[first]), float(self.t[end]), lowest))
        return sorted(found, key=lambda s: s.start)

    def plot(self, *names: str, **options: Any) -> Any:
        """Plot named quantities over time (all states without names): `vioc.viz.plot_trajectory`.

        Returns an array of matplotlib Axes, one per unit, also where there is only one.
        """
        return viz().plot_trajectory(self, *names, **options)

    def animate(self, path: str | os.PathLike | None = None, **options: Any) -> Any:
        """Animate the mechanism, to the screen or a file: `vioc.viz.animate`."""
        return viz().animate(self, path, **options)

    def view(self, **options: Any) -> Any:
        """Show the mechanism in the browser: `vioc.viz.view`."""
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
        """The steps from `start` to before `end`; ``run[start:end]`` counts from the end, too."""
        arrays = self.t[start : end + 1], self.x[start : end + 1], self.u[start:end]
        multipliers = self.multipliers[start:end]
        before = self.before
        if start:
            before = float(self.step_lengths[start - 1])
        return Trajectory(self.map, *arrays, multipliers, k0=self.k0 + start, before=before).on_its_step()

    def resample(self, dt: Any, *, by: str) -> Trajectory:
        """This run on other steps.

        Parameters
        ----------
        dt : float or (M,)
            s; they fill the run's duration, and hit the joints of phases.
        by : {"map", "line"}
            ``"map"``: the rollout of x_0 under the same inputs, a motion of the map with the new step.
            ``"line"``: straight lines between the samples, along the map's own differences; through its
            samples, but no motion of the map: momenta and constraints are kept to second order only.

        Returns
        -------
        Trajectory
            Inputs keep their integral: a step that spans several has the mean of what they held.

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
        """Quantities by name as columns, with units, for CSV, pandas and xarray: see `Table`.

        Without names all states, inputs and multipliers, of which `load` makes the trajectory again. What
        belongs to a step stands in the row of its start.
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
        """Write the trajectory with its names as npz, or as CSV (``table().write``) to a path ``NAME.csv``.

        The file appears whole or not at all: an interrupted save leaves what was there before. A path
        without a suffix gets ``.npz``.

        Raises
        ------
        FileNotFoundError
            If the path's folder does not exist.
        ValueError
            Of another suffix.
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
        arrays |= {f"{kind}_names": np.array(own, dtype=str) for kind, own in names}
        return write_file(path, arrays, header)

    @staticmethod
    def load(path: Any, f: OneStepMap) -> Trajectory:
        """Read a trajectory of the map `f`; columns are matched by name, whatever their order in the file.

        Parameters
        ----------
        path : path, Table, pandas.DataFrame or xarray.Dataset
            An npz file knows its map. Tables (``.csv`` among paths) know names and units only: whether they
            hold a motion of this very map, step and parameters, ``f.rollout(run.x[0], run.u)`` tells.
        f : OneStepMap

        Raises
        ------
        FileFormatError
            If the file is not a trajectory, is damaged, or is of another map: other names, another
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
    """Warn (`SlackWarning`) if a string pushes in a rollout: which one first, when, and how hard."""
    found = trajectory.slack()
    if not found:
        return
    name, start, _, _ = found[0]
    pushes = trajectory["tension." + name]
    value = float(pushes[np.searchsorted(trajectory.t, start)])
    others = len({s.string for s in found}) - 1
    more = f" ({others} more strings push later)" if others else ""
    warnings.warn(
        f"the string {name} pushes with {-value:.3g} N from t = {start:g} s on{more}: a real string goes "
        "slack there. `trajectory.slack()` lists where; change the motion, or end the run before",
        SlackWarning,
        stacklevel=4,
    )
