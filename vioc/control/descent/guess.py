"""Conversion of a guess to the first trajectory of an optimization."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from vioc.checks import check_rows
from vioc.control.descent.local_model import Weights
from vioc.control.descent.projection import project, projection_gains
from vioc.control.problem.result import off_branch
from vioc.control.problem.sizes import Sizes
from vioc.errors import OptimizationError, StepError, trying
from vioc.maps.protocol import OneStepMap
from vioc.runs.given import inputs_of, trajectory_of
from vioc.runs.steps import same_steps
from vioc.runs.trajectory import Trajectory

GENTLE = 10.0  # weight of inputs over that of states, in units of sizes, of the feedback that follows a guess
FAR = 10.0  # distance from a guess, over 1 + |x| in units of sizes, above which it does not follow the guess


def on_steps(f: OneStepMap, guess: Any, steps: int | None, dt: Any) -> Any:
    """Resample a guessed trajectory to the steps of the problem, if its steps differ.
    Any other guess is returned unchanged.

    The trajectory is stretched to the problem's duration and interpolated linearly (`Trajectory.resample`),
    as in DMOC. If `dt` is not given, the problem takes over unequal steps of the guess.
    """
    run = trajectory_of(guess)
    if not isinstance(run, Trajectory) or not len(run) or (run.x.shape[1], run.u.shape[1]) != (f.nx, f.nu):
        return guess
    h, lengths = run.step_lengths, f.lengths(dt, 1 if np.ndim(dt) == 0 else len(dt))
    if (dt is None and (h != h[0]).any()) or same_steps(h, lengths if np.ndim(dt) else lengths[0]):
        return guess
    if np.ndim(dt) == 0:
        lengths = np.full(steps or max(1, round(run.duration / lengths[0])), lengths[0])
    if f.depends_on_time is False:
        run = replace(run, t=run.t - run.t[0], k0=0)
    near = run.resample(lengths * (run.duration / lengths.sum()), by="line")
    return replace(near, map=f, t=f.times(lengths, near.k0)).on_its_step()


def guess_lengths(guess: Any, dt: Any) -> Any:
    """Return the step lengths of an optimization, or None for those of the map.

    They are `dt`, or those of a guess with unequal steps. The guess must have the steps of the problem, see
    `on_steps`.
    """
    if not isinstance(guess, Trajectory):
        return dt
    h = guess.step_lengths
    return None if dt is None and (h == h[0]).all() else h


def begin(
    f: OneStepMap,
    guess: Any,
    x0: Any,
    steps: int | None,
    weights: Weights | None,
    dt: Any = None,
    *,
    strict: bool,
) -> tuple[Trajectory, str]:
    """Convert a guess to the first trajectory of a search; return also a message.

    If no trajectory can follow the guess, a rollout of the guessed inputs, or of zero inputs, replaces it,
    and the message tells which. Otherwise the message is empty. With `strict`, an error is raised instead of
    a replacement. `dt` is a result of `guess_lengths`.
    """
    try:
        return guess_trajectory(f, guess, x0, steps, weights, dt), ""
    except OptimizationError:
        if strict or guess is None:
            raise
        k0, N = 0, steps or len(guess)
        attempts: list[tuple[np.ndarray | None, str]] = [(None, "zero inputs")]
        if isinstance(guess, Trajectory):
            guess, k0 = (guess.x, guess.u), guess.k0
        if isinstance(guess, tuple):
            X, U = guess_curve(f, guess)
            x0, N = X[0] if x0 is None else x0, len(U)
            attempts.insert(0, (U, "its inputs alone"))
        for inputs, words in attempts:
            try:
                run = f.rollout(x0, inputs, N, k0=k0, dt=dt)
            except StepError:
                continue
            return run, f"the guess leads to no trajectory, so the search began with {words}"
        raise


def far_away(f: OneStepMap, guess: Any, run: Trajectory) -> str:
    """Return a warning if a trajectory is far from the guessed states, else ""."""
    if not isinstance(guess, tuple):
        return ""
    X = guess_curve(f, guess)[0]
    distance, sizes = np.abs(f.difference(X, run.x)).max(axis=0), Sizes.along(run)
    worst = int(np.argmax(distance / sizes.states))
    if sizes.apart(X, run.x) <= FAR:
        return ""
    state = f.space.error_names[worst]
    return (
        f"the trajectory that follows the guess is far from it ({state} by {distance[worst]:.3g}); "
        "try no guess (x0=..., steps=...), a running Q in the cost, weights in `projection`, or "
        "vioc.control.dmoc.solve"
    )


def guess_curve(f: OneStepMap, guess: tuple) -> tuple[np.ndarray, np.ndarray]:
    """Check a guess of states and inputs, and return both as arrays.
    The guess begins at sample k = 0.
    """
    X, U = guess
    X = check_rows(X, "guess of states", f.state_names)
    return np.ascontiguousarray(X), np.ascontiguousarray(inputs_of(f, U, len(X) - 1, X[0]))


def guess_trajectory(
    f: OneStepMap, guess: Any, x0: Any, steps: int | None, weights: Weights | None, dt: Any = None
) -> Trajectory:
    """Convert a guess to a trajectory of the map with given step lengths.

    The lengths `dt` are those of `guess_lengths`.
    """
    k0 = 0
    if isinstance(guess, Trajectory):
        same = guess.map is f and (x0 is None or np.array_equal(x0, guess.x[0]))
        if same and not off_branch(guess):  # an interpolated motion is a curve only
            return guess
        guess, k0 = (guess.x, guess.u), guess.k0
    if isinstance(guess, tuple):
        return _projected(f, *guess_curve(f, guess), x0, weights, k0, dt)
    if x0 is None:
        raise ValueError("no initial state: give x0 and steps, x0 and a guess of inputs, or a guess (X, U)")
    if guess is None and steps is None:
        raise ValueError("steps: give their number with x0, or a guess")
    with leads_nowhere():
        return f.rollout(x0, guess, steps, dt=dt)


def _projected(
    f: OneStepMap, X: np.ndarray, U: np.ndarray, x0: Any, weights: Weights | None, k0: int, dt: Any
) -> Trajectory:
    with leads_nowhere(), trying():  # intermediate steps are not a result: no warnings
        if weights is None:
            duration = float(np.sum(np.broadcast_to(f.dt if dt is None else dt, len(U))))
            sizes = Sizes(f, X, U, duration, {})
            weights = np.diag(1 / sizes.states**2), GENTLE * np.diag(1 / sizes.inputs**2)
        K = projection_gains(f, X, U, *weights, k0=k0, dt=dt)
        return project(f, X, U, K, x0, k0=k0, dt=dt)


@contextmanager
def leads_nowhere() -> Iterator[None]:
    """Context manager for the computation of a trajectory from a guess.
    If a time step cannot be computed, it raises an OptimizationError with advice for a better guess.
    """
    try:
        yield
    except (StepError, OptimizationError) as error:
        raise OptimizationError(
            f"the guess leads to no trajectory: {error}. Try one nearer to a trajectory, other weights in "
            "`projection`, or no guess at all: optimize(f, cost, x0=..., steps=...)"
        ) from error
