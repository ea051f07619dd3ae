"""Records of measured motions, with measurements and inputs, for identification."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from vioc.checks import as_floats, as_names, filled
from vioc.control.feedback.loop import LoopRun
from vioc.errors import trying
from vioc.identification.late import Late
from vioc.maps.protocol import OneStepMap
from vioc.names import INPUTS, by_name
from vioc.runs.batch import Batch
from vioc.runs.given import start_of, trajectory_of
from vioc.runs.signals import PRESCRIBED, sample
from vioc.runs.trajectory import Trajectory

FITS = 1e-9  # largest distance of a sample from the end of a step, over the step


@dataclass(frozen=True)
class Record:
    """Measured motion: times, measurements, inputs, and the initial state if known.

    Parameters
    ----------
    t : (K,)
        Increasing times of the samples, s; they need not be equally spaced.
    measured : dict of str to (K,)
        Quantities of the state by name; NaN means not measured.
    inputs : dict of str to number, (K-1,), (K,) or function of time, optional
        K-1 values are constant between samples, K values are interpolated linearly; a function is evaluated
        in the middle of a step. If a delay is estimated, inputs are means over earlier intervals: numbers
        keep their first value before t[0], a function is evaluated there. Prescribed configurations
        (``rho.NAME``) are given at samples, as K values or a function. Inputs without a signal are zero.
    start : dict of str to float, or (nx,), optional
        The state at t[0]: an initial guess, or exact if `known`. By default it is found from the
        measurements.
    known : bool
        True if `start` is exact and not estimated.
    name : str

    Raises
    ------
    ValueError
        Times that do not increase, wrong shapes, infinite numbers, nothing measured.
    """

    t: np.ndarray
    measured: Mapping[str, np.ndarray]
    inputs: Mapping[str, Any] = field(default_factory=dict)
    start: Any = None
    known: bool = False
    name: str = "record"

    def __post_init__(self) -> None:
        t = as_floats(self.t, f"{self.name}: t")
        if t.ndim != 1 or len(t) < 2 or not (np.isfinite(t).all() and (np.diff(t) > 0).all()):
            raise ValueError(f"{self.name}: t: expected at least 2 rising times, got shape {t.shape}")
        measured = {n: as_floats(filled(v), f"{self.name}: {n}") for n, v in self.measured.items()}
        for n, v in measured.items():
            if v.shape != t.shape:
                raise ValueError(f"{self.name}: {n}: expected shape {t.shape} as the times, got {v.shape}")
            if np.isinf(v).any():
                raise ValueError(f"{self.name}: {n}: infinite at sample {int(np.argmax(np.isinf(v)))}")
        if not any(np.isfinite(v).any() for v in measured.values()):
            raise ValueError(f"{self.name}: nothing was measured; give measured={{name: values}}")
        if self.known and self.start is None:
            raise ValueError(f"{self.name}: known=True says that the start is exact; give start=")
        object.__setattr__(self, "t", t)
        object.__setattr__(self, "measured", measured)
        inputs = {
            n: v if callable(v) else as_floats(v, f"{self.name}: input {n!r}") for n, v in self.inputs.items()
        }
        object.__setattr__(self, "inputs", inputs)

    @staticmethod
    def of(run: Any, names: Sequence[str] = (), name: str = "record") -> Record:
        """Make a record from a trajectory, or from an object that contains a trajectory.

        Inputs are the applied ones. Measurements of a `LoopRun` with an observer are those of its sensors;
        otherwise they are exact quantities, those of `names`, by default configurations, or states of a map
        without configurations. `start` is the run's first state, or the observer's estimate of it.
        """
        trajectory = trajectory_of(run)
        if not isinstance(trajectory, Trajectory):
            raise TypeError(f"expected a Record or what has a trajectory, got {type(run).__name__}")
        f = trajectory.map
        inputs = dict(zip(f.input_names, trajectory.u.T, strict=True))
        inputs |= {n: trajectory[n.removeprefix(PRESCRIBED)] for n in inputs if n.startswith(PRESCRIBED)}
        start, measured = trajectory.x[0], {}
        if isinstance(run, LoopRun) and run.measured:
            none = np.full((1, len(run.measured)), np.nan)  # the last state is not measured
            rows = np.concatenate([run.measurements, none])
            measured = dict(zip(run.measured, rows.T, strict=True))
            start = run.estimates[0, : f.nx]
        else:
            measured = {
                n: trajectory[n]
                for n in as_names(names, "names") or f.mechanism.configurations or f.state_names
            }
        return Record(trajectory.t, measured, inputs, start, name=name)

    def __len__(self) -> int:
        """Return the number K of samples."""
        return len(self.t)

    def __repr__(self) -> str:
        measured, inputs = ", ".join(self.measured), ", ".join(self.inputs) or "none"
        span = f"t = {self.t[0]:g} .. {self.t[-1]:g} s"
        return f"Record({self.name!r}: {len(self)} samples, {span}, measured {measured}; inputs {inputs})"

    def part(self, first: float, last: float) -> Record:
        """Return the part of the record between the times `first` and `last`, s.

        Its initial state is known only if it is that of the whole record.
        """
        keep = np.flatnonzero((self.t >= first) & (self.t <= last))
        if len(keep) < 2:
            raise ValueError(f"{self.name}: fewer than 2 samples from {first:g} to {last:g} s")
        a, b = int(keep[0]), int(keep[-1]) + 1
        K = len(self)

        def cut(value: Any) -> Any:
            if callable(value) or np.ndim(value) == 0:
                return value
            return np.asarray(value)[a : b - 1 if len(value) == K - 1 else b]

        inputs = {n: cut(v) for n, v in self.inputs.items()}
        measured = {n: v[a:b] for n, v in self.measured.items()}
        start, known = (self.start, self.known) if a == 0 else (None, False)
        return Record(self.t[a:b], measured, inputs, start, known, self.name)


def as_records(given: Any, names: Sequence[str] = ()) -> list[Record]:
    """Convert records, simulated trajectories or a batch to a list of records.
    A record contains the measurements and inputs of one motion.

    `Record.of` converts the runs.
    """
    if isinstance(given, Record):
        return [given]
    if not isinstance(given, Batch) and isinstance(trajectory_of(given), Trajectory):
        return [Record.of(given, names)]
    if not isinstance(given, Iterable) or isinstance(given, (str, Mapping)):
        raise TypeError(f"records: expected a Record, a run, or several, got {type(given).__name__}")
    records = [record for one in given for record in as_records(one, names)]
    if not records:
        raise ValueError("records: expected at least one, got none")
    return records


class SimulationGrid:
    """Time steps with which a measured record is simulated.

    Steps between two samples are equal and not longer than `dt`; each is divided into `parts`.

    Attributes
    ----------
    lengths : (N,)
        Lengths of the steps, s.
    ends : (N+1,)
        Times of the states, s; the first is t[0].
    sample_indices : (K,)
        Indices of the samples' states.
    """

    def __init__(self, record: Record, f: OneStepMap, dt: float, delayed: Sequence[str], parts: int = 1):
        self.record, self.map = record, f
        gaps = np.diff(record.t)
        counts = np.array([parts * max(1, math.ceil(g / dt - FITS)) for g in gaps])
        even = np.allclose(gaps / counts, dt / parts, rtol=FITS, atol=0.0)
        self.lengths = np.full(counts.sum(), dt / parts) if even else np.repeat(gaps / counts, counts)
        self.sample_indices = np.concatenate([[0], np.cumsum(counts)])
        self.ends = record.t[0] + np.concatenate([[0.0], np.cumsum(self.lengths)])
        self.ends[self.sample_indices] = record.t
        self.signals = by_name(record.inputs, f.input_names, f"{record.name}: inputs", prefix=INPUTS)
        lacking = [n for n in f.input_names if n.startswith(PRESCRIBED) and n not in self.signals]
        if lacking:
            raise ValueError(f"{record.name}: the kinematic variable {lacking[0]} needs a signal")
        self.delayed = tuple(delayed)
        self._late = {n: Late(*self._signal(n)) for n in self.delayed}
        self._fixed = np.zeros((len(self.lengths), f.nu))
        for n in self.signals:
            if n not in self.delayed:
                self._fixed[:, f.input_names.index(n)] = self._step_values(n)

    def _signal(self, name: str) -> tuple[Any, np.ndarray, str]:
        """Return a checked input signal, its sample times, and its name for messages."""
        if name not in self.signals:
            raise ValueError(f"{self.record.name}: the delay of {name!r} needs its signal")
        value, t, what = self.signals[name], self.record.t, f"{self.record.name}: input {name!r}"
        if callable(value):
            return value, t, what
        values = np.asarray(sample(value, t, what) if np.ndim(value) == 0 else value, float)
        ends = name.startswith(PRESCRIBED)
        if values.shape != t.shape and (ends or values.shape != (len(t) - 1,)):
            wanted = f"({len(t)},)" if ends else f"({len(t)},) or ({len(t) - 1},)"
            raise ValueError(f"{what}: expected a number, a function or shape {wanted}, got {values.shape}")
        return sample(values, t[-len(values) :], what), t, what

    def _step_values(self, name: str) -> np.ndarray:
        """Return the values (N,) of an input in the N simulation steps."""
        value, t, what = self._signal(name)
        ends = name.startswith(PRESCRIBED)
        times = self.ends[1:] if ends else (self.ends[1:] + self.ends[:-1]) / 2
        if callable(value):
            return sample(value, times, what)
        return (
            np.interp(times, t, value)
            if len(value) == len(t)
            else np.repeat(value, np.diff(self.sample_indices))
        )

    def inputs(self, delays: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the inputs in all steps for given delays, and their derivatives.
        The derivatives are with respect to the delays.

        Shapes (N, nu), (N, nu, number of delays). See (ID-6).
        """
        U, D = self._fixed.copy(), np.zeros((*self._fixed.shape, len(self.delayed)))
        for j, name in enumerate(self.delayed):
            i, late = self.map.input_names.index(name), self._late[name]
            over = late.values if name.startswith(PRESCRIBED) else late.means
            U[:, i], D[:, i, j] = over(self.ends - delays[j])
        return U, D

    def run(self, f: OneStepMap, start: np.ndarray, U: np.ndarray, first: int = 0) -> Trajectory:
        """Simulate a map from step `first` on, with the step lengths of this grid.

        The inputs U are (steps, nu). Forces that depend on time act at their recorded times, whatever the
        map's own step length.
        """
        start, U = start_of(f, start, U, None)
        some = slice(first, first + len(U))
        k0 = round(float(self.ends[first]) / f.dt)
        with trying():
            return f.run(start, U, k0, self.lengths[some], t=self.ends[:-1][some])

    def hats(self, knots: int) -> np.ndarray:
        """Return hat functions (N, knots) at the middles of the N simulation steps.
        The knots of these piecewise linear functions are equally spaced over the record.
        """
        middle = (self.ends[1:] + self.ends[:-1]) / 2
        places = np.linspace(self.ends[0], self.ends[-1], knots) if knots > 1 else self.ends[:1]
        return np.stack([np.interp(middle, places, e) for e in np.eye(knots)], axis=1)
