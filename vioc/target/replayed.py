"""Recorded data that a generated test program replays, from maps and closed loops."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from vioc.control.feedback.loop import ClosedLoop
from vioc.control.feedback.scheduled import LimitedLaw
from vioc.control.problem.limits import input_bounds
from vioc.control.regulators.law import StateLaw, as_law
from vioc.maps.derivatives import Linearization, Steps
from vioc.maps.protocol import OneStepMap

USUAL = 100  # default number of samples
LINEARIZED = 10  # steps whose derivatives are compared
FLOOR = 1e-3  # smallest scale of a quantity, over the largest one of its vector


@dataclass(frozen=True)
class RecordedLoop:
    """Measurements, estimates and inputs of a closed loop at each sample.

    Attributes
    ----------
    k0 : int
        Index of the first sample.
    start : (nx,)
        Estimate before the first measurement.
    covariance : (ndx, ndx) or None
        Covariance of the error of `start`, if the observer has one.
    y, estimates, u : (N, ny), (N, nx), (N, nu)
        Measurements, estimates and applied inputs.
    """

    k0: int
    start: np.ndarray
    covariance: np.ndarray | None
    y: np.ndarray
    estimates: np.ndarray
    u: np.ndarray


@dataclass(frozen=True)
class Records:
    """Recorded data of a map or a closed loop, which a test program replays.

    Attributes
    ----------
    steps : Steps
        Independent steps of the map.
    derivatives : Linearization or None
        Derivatives of the first of them.
    samples : RecordedLoop or None
    """

    steps: Steps
    derivatives: Linearization | None = field(default=None, repr=False)
    samples: RecordedLoop | None = None


def of_map(f: OneStepMap, start: Any, inputs: Any, steps: int | None, derivatives: bool) -> Records:
    """Simulate a map, and record its steps for the generated test program."""
    steps = USUAL if inputs is None and steps is None else steps
    return Records(*_linearized(f, Steps.along(f.rollout(start, inputs, steps, warn=False)), derivatives))


def of_loop(
    loop: ClosedLoop,
    f: OneStepMap,
    start: Any,
    steps: int | None,
    noise: int | None,
    estimate: Any,
    derivatives: bool,
    with_steps: bool,
) -> Records:
    """Simulate a closed loop, and record it for the generated test program.

    If `with_steps` is True, a step of the map f from each estimate is recorded, too.
    """
    law = as_law(loop.law)
    table = law.law if isinstance(law, LimitedLaw) else law
    k0, count = 0, steps or USUAL
    if isinstance(table, StateLaw):
        k0 = table.k0
        count = steps or (len(table.U) if table.after == "ends" else USUAL)
    start = loop.plant.check_state(start, "start")
    run = loop.simulate(start, count, noise=noise, estimate=estimate, k0=k0)
    x = start if estimate is None else estimate
    if f.nx > loop.plant.nx and np.shape(x) == start.shape:
        x = f.join(x)  # type: ignore[attr-defined]  # of an observer that knows more states
    x = f.check_state(x, "estimate")
    P = None if loop.observer is None else loop.observer.start(x).P
    applied = np.clip(run.commands, *input_bounds(loop.plant, loop.bounds))
    y = run.measurements if loop.observer is not None else run.estimates
    if not np.isfinite(y).all():
        raise ValueError("observer: a measurement with rates of its own (`every`) is not written in C")
    samples = RecordedLoop(k0, x, P, y, run.estimates, applied)
    X, U = (run.estimates, applied) if with_steps else (run.estimates[:0], applied[:0])
    return Records(*_linearized(f, f.steps_at(X, U, k0), derivatives), samples)


def _linearized(f: OneStepMap, steps: Steps, derivatives: bool) -> tuple[Steps, Linearization | None]:
    """Return recorded steps of a map, and the linearization of the first few steps.
    The linearization is None unless `derivatives` is True.
    """
    few = steps.piece(slice(0, LINEARIZED))
    return steps, f.derivatives.linearize(few) if derivatives and len(few) else None


def samples_text(records: Records) -> str:
    """Return the text of a C header file, which contains the recorded data as arrays."""
    steps, d, samples = records.steps, records.derivatives, records.samples
    lines = ["/* What the test program replays, from Python. SCALE: the largest of each quantity. */"]
    lines += [f"#define STEPS {len(steps)}", f"#define SLOPES {0 if d is None else len(d.A)}"]
    lines.append(f"#define SAMPLES {0 if samples is None else len(samples.u)}")
    tables: dict[str, np.ndarray] = {}
    if len(steps):
        lines.append(f"static const int step_k[STEPS] = {{{', '.join(map(str, steps.k))}}};")
        tables |= {"step_x": steps.x0, "step_u": steps.u}
        tables |= _scaled("step_next", steps.x1) | _scaled("step_multipliers", steps.multipliers)
    if d is not None:
        n = len(d.A)
        tables |= _scaled("slope_A", d.A.reshape(n, -1), whole=True)
        tables |= _scaled("slope_B", d.B.reshape(n, -1), whole=True)
    if samples is not None:
        lines.append(f"static const int first_k = {samples.k0};")
        tables |= {"start_x": samples.start[None], "sample_y": samples.y}
        tables |= _scaled("sample_x", samples.estimates) | _scaled("sample_u", samples.u)
    return "\n".join(lines + [_table(n, rows) for n, rows in tables.items()]) + "\n"


def _scaled(name: str, rows: np.ndarray, whole: bool = False) -> dict[str, np.ndarray]:
    """Return a table of recorded values, and a scale for each of its columns.
    The scale is the largest magnitude in the column, at least 1/1000 of that in the table. With `whole`, all
    columns have the scale of the table.
    """
    size = np.abs(rows).max(axis=0, initial=0.0)
    largest = size.max(initial=0.0)
    scale = np.full_like(size, largest) if whole else np.maximum(size, FLOOR * largest)
    return {name: rows, f"{name}_scale": np.where(scale > 0, scale, 1.0)[None]}


def _table(name: str, rows: np.ndarray) -> str:
    if not rows.shape[1]:
        rows = np.zeros((len(rows), 1))  # C has no empty arrays
    inner = ",\n    ".join("{" + ", ".join(repr(float(v)) for v in row) + "}" for row in rows)
    return f"static const double {name}[{rows.shape[0]}][{rows.shape[1]}] = {{\n    {inner}\n}};"
