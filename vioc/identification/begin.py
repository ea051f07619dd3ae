"""Initial guesses of initial states and of sensor noise for an identification."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from vioc.errors import StepError
from vioc.identification.records import Record, SimulationGrid
from vioc.identification.segments import Segments, Trial
from vioc.maps.protocol import OneStepMap

DEGREE = 3  # degree of the polynomials fitted to samples
WIDTHS = 4, 8, 16, 32, 64  # numbers of samples on either side that a polynomial is fitted to
EXACT = 1e-9  # smallest assumed noise, over the largest value
FITS = 1.5  # largest residual of a polynomial that represents the motion, over the noise


def noise_of(records: Sequence[Record], name: str) -> float:
    """Return an estimate of the standard deviation of a sensor's noise.
    It is computed from third differences of successive samples.

    A smooth motion contributes little to third differences of the samples.
    """
    differences = []
    for record in records:
        y = record.measured.get(name, np.zeros(0))
        d = np.diff(y, 3)
        differences.append(d[np.isfinite(d)])
    d = np.concatenate(differences)
    if not len(d):
        raise ValueError(
            f"{name}: too few samples to tell its noise; give variances, noise={{{name!r}: ...}}"
        )
    size = max(
        float(np.abs(np.concatenate([r.measured[name] for r in records if name in r.measured])).max()), 1e-9
    )
    return max(float(np.sqrt(np.mean(d**2) / 20)), EXACT * size)


def beginning(segments: Segments) -> Trial:
    """Return initial guesses of all unknowns of an identification.
    The unknowns are parameters, unknown inputs, and the initial states of segments of the records.

    Unknown inputs are zero, and parameters are those of the map. If all configurations are measured, or
    follow from constraints, each segment starts at the state of polynomials fitted to them; otherwise it
    starts on a rollout from the record's initial state.
    """
    z, c = segments.unknowns.start, np.zeros(segments.nc)
    trial = Trial(z, c, np.zeros((len(segments.pieces), segments.map.nx)))
    f = segments.map_at(z)
    for r, grid in enumerate(segments.grids):
        pieces = [j for j, p in enumerate(segments.pieces) if p.record == r]
        U = segments.inputs(trial, r)[0]
        first_steps = [segments.pieces[j].first for j in pieces]
        starts = _from_configurations(f, grid, U, first_steps)
        given = _start(f, grid.record)
        if starts is None:
            starts = _from_rollout(f, grid, U, first_steps, given)
        if given is not None:
            starts[0] = given
        trial.nodes[pieces] = starts
    return trial


def _start(f: OneStepMap, record: Record) -> np.ndarray | None:
    if record.start is None:
        return None
    if isinstance(record.start, Mapping):
        values = dict(record.start)
        rates = {n[2:]: values.pop(n) for n in list(values) if n.startswith("v.") and n not in f.state_names}
        return f.initial_state(values, rates) if rates else f.state(values)
    return f.check_state(record.start, f"{record.name}: start")


def _from_configurations(
    f: OneStepMap, grid: SimulationGrid, U: np.ndarray, first_steps: Sequence[int]
) -> Any:
    record, names = grid.record, f.mechanism.configurations
    measured_names = [n for n in names if np.isfinite(record.measured.get(n, np.nan)).sum() > 2 * WIDTHS[0]]
    if not names or (len(measured_names) < len(names) and not f.multiplier_names) or not measured_names:
        return None
    smooth = {n: Smooth(record, n, n in f.wrap) for n in measured_names}

    def configuration(values: Mapping[str, float]) -> np.ndarray:
        x = f.state(values)
        if f.multiplier_names:
            fixed = measured_names if len(measured_names) < len(names) else ()
            x = f.mechanism.moved(x, np.zeros(len(f.mechanism.coordinates)), fixed=fixed)
        return x[: len(names)]

    starts = []
    for a in first_steps:
        polynomials = {n: s.near(grid.ends[a]) for n, s in smooth.items()}
        q0, q1 = (
            configuration({n: float(np.polyval(p, t)) for n, p in polynomials.items()}) for t in (-f.dt, 0.0)
        )
        k = max(round(float(grid.ends[a]) / f.dt) - 1, 0)
        starts.append(f.state_from_configurations(q0, q1, U[max(a - 1, 0)], k))
    return np.array(starts)


def _from_rollout(
    f: OneStepMap, grid: SimulationGrid, U: np.ndarray, first_steps: Sequence[int], given: Any
) -> np.ndarray:
    record = grid.record
    if given is None:
        first = {n: v[0] for n, v in record.measured.items() if n in f.state_names and np.isfinite(v[0])}
        given = f.state(first)
    try:
        run = grid.run(f, given, U)
    except StepError as error:
        raise ValueError(
            f"{record.name}: not all configurations are measured, and a rollout from the start fails at step "
            f"{error.k}; give start= near the truth"
        ) from error
    return run.x[list(first_steps)]


class Smooth:
    """Local polynomials fitted to the samples of one measured quantity.
    The noise level decides to how many samples each polynomial is fitted.
    """

    def __init__(self, record: Record, name: str, wrapped: bool):
        y = record.measured[name]
        good = np.isfinite(y)
        self.t, self.y = record.t[good], np.unwrap(y[good]) if wrapped else y[good]
        d = np.diff(self.y, 3)
        self.noise = float(np.sqrt(np.mean(d**2) / 20))

    def near(self, t: float) -> np.ndarray:
        """Return the coefficients of the polynomial fitted to the samples near the time t.

        It is a polynomial in the time since t; the highest coefficient is first.
        """
        middle, coefficients = int(np.searchsorted(self.t, t)), np.zeros(DEGREE + 1)
        for m in WIDTHS:
            some = slice(max(middle - m, 0), middle + m + 1)
            times, y = self.t[some] - t, self.y[some]
            p = np.polyfit(times, y, DEGREE)
            rms = np.sqrt(np.sum((np.polyval(p, times) - y) ** 2) / (len(y) - DEGREE - 1))
            if m > WIDTHS[0] and not rms <= FITS * self.noise:
                break
            coefficients = p
        return coefficients
