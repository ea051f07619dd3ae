"""Resampling of trajectories to other step lengths, by rollout or interpolation.

Held inputs keep their integral: a new step has the mean of the inputs over its time. Prescribed variables
(``rho.NAME``) are linear between samples, as in the map.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from vioc.runs.signals import PRESCRIBED

if TYPE_CHECKING:
    from vioc.runs.trajectory import Trajectory


def new_lengths(run: Trajectory, dt: Any) -> np.ndarray:
    """Return checked new step lengths (M,), s, which fill the trajectory's duration."""
    lengths, whole = np.asarray(dt, float), run.duration
    if not len(run):
        raise ValueError("resample: the run has no step")
    if not (lengths > 0).all() or not np.isfinite(lengths).all() or lengths.ndim > 1:
        raise ValueError(f"dt: expected a length > 0 or (M,) of them, got {dt!r}")
    count = max(round(whole / float(lengths)), 1) if lengths.ndim == 0 else len(lengths)
    step_lengths = np.broadcast_to(lengths, (count,))
    if abs(step_lengths.sum() - whole) > 1e-9 * whole:
        near = f"; {count} steps of {whole / count:.12g} s do" if lengths.ndim == 0 else ""
        raise ValueError(
            f"dt: steps of {np.unique(lengths)[:3]} s do not fill the run's {whole:.12g} s{near}"
        )
    return step_lengths


def new_inputs(run: Trajectory, times: np.ndarray) -> np.ndarray:
    """Return a trajectory's inputs (M, nu) in new steps between `times` (M+1,), s.
    A new input is the mean of the trajectory's input over the new step. Inputs that are positions of
    kinematic variables are interpolated instead.
    """
    f, h = run.map, run.step_lengths
    integrals = np.concatenate([np.zeros((1, f.nu)), np.cumsum(run.u * h[:, None], axis=0)])
    inputs = np.diff(_columns(times, run.t, integrals), axis=0) / np.diff(times)[:, None]
    for i, name in enumerate(f.input_names):
        if name.startswith(PRESCRIBED):
            start = run[name.removeprefix(PRESCRIBED)][:1]
            inputs[:, i] = np.interp(times[1:], run.t, np.concatenate([start, run.u[:, i]]))
    return inputs


def by_map(run: Trajectory, lengths: np.ndarray, times: np.ndarray, k0: int) -> Trajectory:
    """Return a rollout with new steps, from the trajectory's initial state and inputs."""
    f = _of_lengths(run, lengths)
    return f.rollout(run.x[0], new_inputs(run, times), k0=k0, dt=lengths)


def interpolated(run: Trajectory, lengths: np.ndarray, times: np.ndarray) -> tuple[Any, ...]:
    """Interpolate a trajectory to steps of other `lengths`.
    Return the map with these steps, and arrays of times, states, inputs and multipliers.

    A state is interpolated linearly between two samples, in terms of the map's `difference` of them. Impulses
    of constraints keep their sum: each new step has its share of the impulses of the old steps that it
    overlaps.
    """
    f = _of_lengths(run, lengths)
    if any(jump is not None for jump in getattr(f, "jumps", ())):
        raise ValueError(
            'by="line": states jump between these phases; take by="map", or the phases one by one'
        )
    k = np.clip(np.searchsorted(run.t, times, side="right") - 1, 0, len(run) - 1)
    share = (times - run.t[k]) / (run.t[k + 1] - run.t[k])
    x = f.retract(run.x[k], share[:, None] * f.difference(run.x[k], run.x[k + 1]))
    total = np.concatenate([np.zeros((1, run.multipliers.shape[1])), np.cumsum(run.multipliers, axis=0)])
    return f, times, x, new_inputs(run, times), np.diff(_columns(times, run.t, total), axis=0)


def _of_lengths(run: Trajectory, lengths: np.ndarray) -> Any:
    """Return the map of a trajectory, with other step lengths (M,), s."""
    f: Any = run.map
    if hasattr(f, "resampled"):
        return f.resampled(run, lengths)
    return f.with_dt(float(lengths[0])) if (lengths == lengths[0]).all() else f


def first_step(run: Trajectory, lengths: np.ndarray) -> int:
    """Return the step index k0 of the first new step.
    Raises ValueError if no step of the new length starts at the trajectory's beginning.
    """
    step = float(lengths[0]) if (lengths == lengths[0]).all() else run.map.dt
    k0 = float(run.t[0]) / step
    if abs(k0 - round(k0)) > 1e-6:
        raise ValueError(
            f"dt: the run begins at {run.t[0]:g} s, between two steps of {step:g} s; "
            "take a step that divides it"
        )
    return round(k0)


def sample_times(run: Trajectory, lengths: np.ndarray, k0: int) -> np.ndarray:
    """Return the sample times (M+1,), s, of new steps, up to the trajectory's end."""
    times = run.map.times(lengths, k0)
    times = times + (run.t[0] - times[0])
    times[-1] = run.t[-1]
    return times


def _columns(times: np.ndarray, t: np.ndarray, values: np.ndarray) -> np.ndarray:
    columns = [np.interp(times, t, column) for column in values.T]
    return np.stack(columns, axis=1) if columns else np.zeros((len(times), 0))
