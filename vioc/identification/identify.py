"""Estimation of a map's parameters from measured records of its motions."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from vioc.checks import as_count, as_positive
from vioc.control.feedback.measurement import Measurement
from vioc.identification.begin import EXACT, beginning, noise_of
from vioc.identification.fit import fit, half_step, information
from vioc.identification.identified import Identification
from vioc.identification.parameter_coordinates import DELAY, ParameterCoordinates
from vioc.identification.records import Record, SimulationGrid, as_records
from vioc.identification.segments import Segments
from vioc.maps.protocol import OneStepMap
from vioc.names import INPUTS, by_name, quantity_name
from vioc.runs.batch import Batch
from vioc.runs.given import AsTrajectory
from vioc.runs.trajectory import Trajectory

Method = Literal["multiple", "shooting"]
AGAIN, SETTLED = 4, 0.01  # most searches with estimated noise, and its relative change that ends them
SEGMENTS = 20  # default number for the longest record


def identify(
    f: OneStepMap,
    records: Record | AsTrajectory | Trajectory | Batch | Sequence[Any],
    parameters: str | Sequence[str],
    *,
    noise: Measurement | Mapping[str, float] | None = None,
    method: Method = "multiple",
    segment: float | None = None,
    dt: float | None = None,
    bounds: Mapping[str, Any] | None = None,
    values: Mapping[str, float] | None = None,
    unknown_inputs: Mapping[str, int] | None = None,
    max_iterations: int = 300,
    tolerance: float = 1e-3,
) -> Identification:
    """Estimate parameters of a map such that its motions best fit measured motions.

    It minimizes half the sum of squares of (predicted - measured) / standard deviation over parameters,
    initial states of records and unknown inputs, with exact derivatives of the map
    (docs/maths/identification.md).

    Parameters
    ----------
    f : OneStepMap
        Map with the initial guess of the parameters.
    records : Record, or several
        All records are fitted together. Trajectories, results, runs of loops and batches are converted by
        `Record.of`; their measurements are the quantities in `noise`.
    parameters : names
        Parameters of the map; also ``delay.INPUT`` (delay of an input relative to its signal, s) and
        ``bias.QUANTITY`` (a sensor's constant error). Masses and inertias stay physical.
    noise : dict of str to float, or Measurement, optional
        Variances by name, the inverse weights; a quantity that is not named is not used. A `Measurement` adds
        encoder counts and wrapped angles. Default: estimated from the residuals by repeated searches.
    method : {"multiple", "shooting"}
        Multiple shooting in segments that are joined, or one segment for each record. Both have the same
        minimum; multiple shooting finds it from farther away, and for unstable motions.
    segment : float, optional
        Length of segments, s; default a twentieth of the longest record.
    dt : float, optional
        Longest step, s; default the map's. Steps end at samples.
    bounds : dict of str to (lower, upper), optional
        Bounds of parameters: as in `vioc.control.optimize`, but constant.
    values : dict of str to float, optional
        Initial guess of parameters that differs from the map's values.
    unknown_inputs : dict of str to int, optional
        Inputs that are not recorded, and the number of knots, equally spaced over each record, of their
        piecewise linear approximations.
    max_iterations : int
        Largest number of iterations per search.
    tolerance : float
        Largest predicted reduction of the cost at convergence, in variances of one observation.

    Returns
    -------
    Identification

    Raises
    ------
    ModelError
        Unknown names; an initial value that is not inside of its bounds.
    ValueError
        Records that do not belong to the map; fewer observations than unknowns.
    StepError
        If the first trial has no motion.
    """
    began = time.perf_counter()
    records = as_records(records, _noisy(noise))
    if method not in ("multiple", "shooting"):
        raise ValueError(f'method: expected "multiple" or "shooting", got {method!r}')
    tolerance = as_positive(tolerance, "tolerance")
    max_iterations = as_count(max_iterations, "max_iterations")
    unknown_inputs = by_name(unknown_inputs or {}, f.input_names, "unknown_inputs", prefix=INPUTS)
    records = [_named(f, r) for r in records]
    sensors, given = _sensors(f, records, noise)
    unknowns = ParameterCoordinates(f, parameters, bounds, sensors.names, values)
    if not (unknowns.names or unknown_inputs):
        raise ValueError("nothing to estimate: name parameters, delays, biases or unknown_inputs")
    delayed = [n[len(DELAY) :] for n in unknowns.delays]
    step = float(f.lengths(dt, 1)[0])
    grids = [SimulationGrid(r, f, step, delayed) for r in records]
    for grid in grids:
        known = [n for n in unknown_inputs if n in grid.signals]
        if known:
            raise ValueError(f"{grid.record.name}: {known[0]} is an unknown input, and the record has it")
    longest = max(float(g.ends[-1] - g.ends[0]) for g in grids)
    length = longest / SEGMENTS if segment is None else as_positive(segment, "segment")
    steps = None if method == "shooting" else max(1, round(length / step))
    costs: list[float] = []
    trial, search, segments = None, None, None
    for _ in range(1 if given else AGAIN):
        segments = Segments(f, sensors, grids, unknowns, unknown_inputs, steps)
        _enough(segments)
        search = fit(segments, beginning(segments) if trial is None else trial, max_iterations, tolerance)
        trial = search.trial
        costs += search.costs
        if given or not search.converged:
            break
        variances, free = (
            _variances(segments, search.prediction),
            segments.count - _free(segments, search.prediction),
        )
        variances = {n: v * segments.count / max(free, 1) for n, v in variances.items()}
        change = max(abs(v / s - 1) for v, s in zip(variances.values(), np.diag(sensors.V), strict=True))
        if change < 2 * SETTLED:
            break
        sensors = Measurement(f, variances, wrap=_wrapped(sensors))
    assert search is not None and segments is not None
    halves = [SimulationGrid(r, f, step, delayed, parts=2) for r in records]
    twice = None if steps is None else 2 * steps
    finer = half_step(Segments(f, sensors, halves, unknowns, unknown_inputs, twice), search.trial)
    fisher_information = information(segments, search.trial)
    seconds = time.perf_counter() - began
    return Identification.of(segments, search, fisher_information, finer, costs, given, method, seconds)


def _noisy(noise: Any) -> tuple[str, ...]:
    """Return the names of the measured quantities for which noise is given."""
    return noise.names if isinstance(noise, Measurement) else tuple(noise or ())


def _named(f: OneStepMap, record: Record) -> Record:
    """Return the record with the full names of its quantities."""
    measured = {quantity_name(f, n, f"{record.name}: measured"): v for n, v in record.measured.items()}
    return Record(record.t, measured, record.inputs, record.start, record.known, record.name)


def _sensors(f: OneStepMap, records: Sequence[Record], noise: Any) -> tuple[Measurement, bool]:
    """Return the measurement model, and a flag that is True if its noise was given."""
    names = tuple(dict.fromkeys(n for r in records for n in r.measured))
    if noise is None:
        return Measurement(f, {n: noise_of(records, n) ** 2 for n in names}), False
    sensors = noise.on(f) if isinstance(noise, Measurement) else Measurement(f, noise)
    lacking = [n for n in sensors.names if n not in names]
    if lacking:
        raise ValueError(f"noise: no record has measured {lacking[0]}; measured are {', '.join(names)}")
    return sensors, True


def _wrapped(sensors: Measurement) -> list[str]:
    return [n for n, w in zip(sensors.names, sensors.wrapped, strict=True) if w]


def _variances(segments: Segments, prediction: Any) -> dict[str, float]:
    """Return the mean squared residual of each measured quantity, in its unit squared."""
    present = np.concatenate([np.isfinite(y) for y in segments.y])
    which = np.broadcast_to(np.arange(present.shape[1]), present.shape)[present]
    variances = {}
    for i, name in enumerate(segments.sensors.names):
        residuals = prediction.residuals[which == i]
        size = max(float(np.nanmax(np.abs(y[:, i]), initial=0.0)) for y in segments.y)
        variances[name] = max(float(np.mean(residuals**2)) * segments.std[i] ** 2, (EXACT * size) ** 2, 1e-30)
    return variances


def _free(segments: Segments, prediction: Any) -> int:
    """Return the degrees of freedom of the fitted motion.
    They are the number of unknowns of the identification minus the number of defect equations.
    """
    return prediction.J.shape[1] - prediction.E.shape[0]


def _enough(segments: Segments) -> None:
    records = len(segments.grids)
    needed = segments.nz + segments.nc + records * segments.map.ndx
    if segments.count < needed:
        raise ValueError(
            f"identify: {segments.count} values were measured for {needed} unknowns; measure more, or name "
            "fewer parameters"
        )
