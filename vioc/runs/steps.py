"""Step lengths of trajectories: computation, comparison and error messages."""

from __future__ import annotations

from typing import Any

import numpy as np

from vioc.checks import as_value

SAME = 1e-9  # relative difference up to which step lengths are equal


def lengths_of(t: np.ndarray, dt: float) -> np.ndarray:
    """Return the step lengths (N,), s, between sample times t (N+1,), s.
    If they equal the map's step length `dt` up to rounding errors, they are exactly `dt`.

    Times far from zero have such rounding errors.
    """
    h = np.diff(t)
    if not len(h):
        return h
    rounding = 4 * np.finfo(float).eps * max(abs(float(t[0])), abs(float(t[-1])))
    mean = float(t[-1] - t[0]) / len(h)
    if not (np.abs(h - mean) <= SAME * abs(mean) + rounding).all():
        return h
    return np.full(len(h), dt if abs(mean - dt) <= SAME * abs(mean) + rounding / len(h) else mean)


def times_of(lengths: np.ndarray, k0: int, dt: float, starts: np.ndarray | None = None) -> np.ndarray:
    """Return sample times (N+1,), s, of steps with given lengths, from step k0 on.
    Step k0 starts after k0 steps of the map's default length `dt`. Where `starts` (N,) is given, it
    contains the start times of the steps.

    If all `lengths` are equal, the first k0 steps also have this length.
    """
    if starts is not None and len(starts):
        return np.append(starts, starts[-1] + lengths[-1])
    first = as_value(k0, "index of the first step")  # steps of other lengths begin at fractions
    if not 0 <= first < np.inf:
        raise ValueError(f"index of the first step: expected a number >= 0, got {k0!r}")
    if len(lengths) and (lengths == lengths[0]).all():  # k dt, not a sum of N roundings
        return (first + np.arange(len(lengths) + 1)) * lengths[0]
    return first * dt + np.concatenate([[0.0], np.cumsum(lengths)])


def same_steps(got: Any, expected: Any) -> bool:
    """Return whether two step lengths, or two sequences of step lengths, are equal."""
    a, b = np.asarray(got, float), np.asarray(expected, float)
    if a.ndim and b.ndim and a.shape != b.shape:
        return False
    return bool((np.abs(a - b) <= SAME * np.abs(b)).all())


def check_steps(got: Any, expected: Any, what: str, owner: str = "the map", instead: str = "") -> None:
    """Raise ValueError if the step lengths of two objects differ.
    For example, the objects are a controller and a map.

    Parameters
    ----------
    got, expected : float or (N,)
        Step lengths of `what` and of `owner`, s.
    what, owner : str
        Names of the two in messages.
    instead : str
        Advice, if it is not to use the same step for both.
    """
    if same_steps(got, expected):
        return
    if not instead:
        h = np.unique(np.asarray(got, float))
        twin = f"f.with_dt({h[0]:.10g})" if len(h) == 1 else "f.with_dt(...) and samples of one length"
        instead = f"make both with one step, such as that of {twin}, or resample"
    raise ValueError(
        f"{what}: made for steps of {_text(got)}, {owner} takes steps of {_text(expected)}; {instead}"
    )


def check_clock(run: Any, what: str) -> None:
    """Raise ValueError if a run's times contradict its step indices and lengths.

    A map assumes that steps start at the times that follow from their indices and lengths. A part of a run of
    unequal steps can start at another time. It is accepted if the map does not depend on time.
    """
    clock = run.map.times(run.step_lengths, run.k0)
    if not len(run) or np.abs(clock - run.t).max() <= SAME * np.abs(clock).max():
        return
    if run.map.depends_on_time is not False:
        raise ValueError(
            f"{what}: it begins at t = {run.t[0]:.10g} s, step {run.k0} of steps of "
            f"{_text(run.step_lengths)} at {clock[0]:.10g} s, and {run.map!r} depends on time; take a piece "
            'of equal steps, such as those of run.resample(..., by="map"), or the whole run'
        )


def steps_within(got: float, step: float, what: str, owner: str, hold: bool) -> int:
    """Return how many short steps (length `step`) form one long step (length `got`).
    The number must be 1, or any positive integer if the input is held during a long step (`hold`). Otherwise,
    ValueError is raised. Its message names `what`, which has the long steps, and `owner`, which has the short
    ones.
    """
    n = max(1, round(got / step))
    whole = same_steps(got, n * step)
    if whole and (hold or n == 1):
        return n
    twin = f"make both with one step, such as that of f.with_dt({got:.10g}), or resample"
    if hold:
        twin = f"held between its samples it needs a whole multiple of that; {twin}"
    elif whole:
        twin = f"{twin}; or say hold=True, which samples it every {n} steps and holds between"
    check_steps(got, step, what, owner, twin)
    return n


def _text(lengths: Any) -> str:
    h = np.asarray(lengths, float)
    if h.size and np.ptp(h) > SAME * np.abs(h).max():
        return f"{h.min():.6g} to {h.max():.6g} s"
    return f"{h.flat[0]:.6g} s" if h.size else "no length"
