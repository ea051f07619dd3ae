"""Initial guesses of a nonlinear program, from guessed motions and results."""

from __future__ import annotations

from typing import Any, NamedTuple

import casadi as ca
import numpy as np

from vioc.checks import check_array
from vioc.control.dmoc.phase import Phase
from vioc.control.problem.consistent import holonomic_constraints
from vioc.control.problem.sizes import Sizes, as_unit
from vioc.maps.derivatives import Steps
from vioc.runs.given import inputs_of, trajectory_of
from vioc.runs.steps import SAME
from vioc.runs.trajectory import Trajectory


class Curve(NamedTuple):
    """States, inputs and multipliers of a phase, which need not be a trajectory.

    Attributes
    ----------
    x, u, multipliers : (N+1, nx), (N, nu), (N, nm)
    length : float
        Step length, s.
    """

    x: np.ndarray
    u: np.ndarray
    multipliers: np.ndarray
    length: float


def trivial(phase: Phase) -> Curve:
    """Return the default guess of a phase: states on a straight line between its ends.
    The limits on the first and the last state determine the two ends of the line.

    Forces and multipliers are 0. If an end has a range of values, the guess uses the middle of this range, or
    its finite limit. A state that is known at only one end is constant; a state that is known at neither end
    is 0. The states that are not known at both ends are then changed so that kinematic loops are closed.
    """
    n, f = phase.steps, phase.map
    low, high = phase.state_limits
    first, last = (_inside(low[k], high[k]) for k in (0, -1))
    shift = np.array([phase.shifts.get(j, 0.0) for j in range(f.nx)])
    start = np.where(np.isnan(first), np.where(np.isnan(last), 0.0, last - shift), first)
    end = np.where(np.isnan(last), start + shift, last)
    h_low, h_high = phase.length_limits
    length = h_low if np.isinf(h_high) else 0.5 * (h_low + h_high)
    x = _closed(phase, np.linspace(start, end, n + 1), length)
    u = np.array([f.rest_input(state) for state in x[1:]]).reshape(n, f.nu)
    return Curve(x, u, np.zeros((n, phase.unknowns)), length)


def _closed(phase: Phase, X: np.ndarray, length: float, iterations: int = 20) -> np.ndarray:
    """Correct guessed states until they satisfy the holonomic constraints.
    Such constraints arise, for example, from kinematic loops.

    Newton's iteration solves h = 0 for the constraint functions h, from the corrected state of the previous
    sample. Its steps are the shortest ones, in units of typical sizes. Components of the state that change
    along the guess are corrected at the first sample only. `length` is the duration of a time step. If the
    iteration does not converge, the result is its last iterate.
    """
    f = phase.map
    constraints = holonomic_constraints(f) if phase.unknowns else []
    if not constraints:
        return X
    value = ca.vertcat(*(c.value for c in constraints))
    J = ca.jacobian(value, f.symbols.x)
    evaluate = ca.Function("h", [f.symbols.x, f.symbols.parameters], [value, J])
    theta = list(f.parameters.values())
    of_x = Sizes(f, X, np.zeros((phase.steps, f.nu)), phase.steps * length, {}).of_states
    mask = (X[0] != X[-1]) & (np.abs(np.diff(X, axis=0)).max(axis=0) > 0)
    closed = X.copy()
    for k in range(len(X)):
        if k:
            closed[k] = np.where(mask, X[k], closed[k - 1])
        for _ in range(iterations):
            error, slope = (np.asarray(v) for v in evaluate(closed[k], theta))
            slope = slope * of_x
            if np.abs(error).max() < 1e-12 * as_unit(np.abs(slope).max()):
                break
            slope = np.where(mask, 0.0, slope) if k else slope
            closed[k] -= of_x * np.linalg.lstsq(slope, error[:, 0], rcond=1e-8)[0].clip(-0.5, 0.5)
    return closed


def _inside(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Return a value inside each pair of limits: the middle if both are finite.
    If only one of the two limits is finite, this limit is returned; if neither is finite, NaN is returned.
    """
    with np.errstate(invalid="ignore"):
        middle = 0.5 * (low + high)
    return np.where(
        np.isfinite(middle),
        middle,
        np.where(np.isfinite(low), low, np.where(np.isfinite(high), high, np.nan)),
    )


def resample(run: Trajectory, phase: Phase) -> Curve:
    """Interpolate a trajectory at the samples of a phase.
    If the phase has a given duration, the trajectory is stretched to it.

    States are interpolated linearly in the fraction of elapsed time, and inputs are constant over steps.
    Multipliers are impulses, so they are scaled with the step length. If the trajectory has the phase's
    number of steps, all equal, its states and inputs are unchanged.
    """
    f, n = phase.map, phase.steps
    if run.x.shape[1] != f.nx or run.u.shape[1] != f.nu:
        raise ValueError(
            f"guess: got a trajectory of {run.x.shape[1]} states and {run.u.shape[1]} inputs for a map of "
            f"{f.nx} and {f.nu}"
        )
    old, new = (run.t - run.t[0]) / (run.t[-1] - run.t[0]), np.arange(n + 1) / n
    low, high = phase.length_limits
    length = float(np.clip((run.t[-1] - run.t[0]) / n, low, high))
    scale = length / run.step_lengths[:, None]
    multipliers = run.multipliers[:, : phase.unknowns] * np.where(np.abs(scale - 1) <= SAME, 1.0, scale)
    if len(run) == n and np.abs(old - new).max() <= SAME:
        return Curve(run.x, run.u, multipliers, length)
    x = np.stack([np.interp(new, old, column) for column in run.x.T], axis=1)
    middles = (new[1:] + new[:-1]) / 2
    rows = np.clip(np.searchsorted(old, middles, side="right") - 1, 0, len(run) - 1)
    u = run.u[rows].copy()
    for j, name in enumerate(f.input_names):
        state = name.removeprefix("rho.")
        if state != name and state in f.state_names:  # an input that prescribes a configuration follows it
            u[:, j] = x[1:, f.state_names.index(state)]
    return Curve(x, u, multipliers[rows], length)


def first_step(guess: Any, phase: Phase) -> int:
    """Return the index k0 of a phase's first step, from the start time of a guess.
    k0 is this time divided by the step length. If the guess is not a trajectory, `phase.k0` is returned.

    Raises
    ------
    ValueError
        If the start time is not a multiple of the step length and the map depends on time.
    """
    run, f = trajectory_of(guess), phase.map
    if not isinstance(run, Trajectory) or not len(run):
        return phase.k0
    length = run.duration / phase.steps if phase.free_duration else phase.length_limits[0]
    start = float(run.t[0]) / length
    k0 = round(start)
    if abs(start - k0) > SAME * max(1, abs(k0)) and f.depends_on_time is not False:
        raise ValueError(
            f"guess: it begins at t = {run.t[0]:.10g} s, {start:.6g} steps of the problem, and {f!r} depends "
            "on time; give k0"
        )
    return k0


def curve(guess: Any, phase: Phase) -> Curve:
    """Convert a user's guess to states, inputs and multipliers of a phase.

    `guess` is None for the default guess (`trivial`); a Trajectory with any steps; a pair (X, U) of states
    and inputs, with U None for no input; or inputs U (N, nu) alone, which are rolled out from the initial
    state.
    """
    base, guess = trivial(phase), trajectory_of(guess)
    if guess is None:
        return base
    if isinstance(guess, Curve):
        return guess
    if isinstance(guess, Trajectory):
        return resample(guess, phase)
    f, n = phase.map, phase.steps
    if isinstance(guess, tuple) and len(guess) == 2:
        X = check_array(guess[0], (n + 1, f.nx), "guess of states", f.state_names)
        if guess[1] is None:
            U = np.array([f.rest_input(state) for state in X[1:]]).reshape(n, f.nu)
        else:
            U = inputs_of(f, guess[1], n, X[0])
        return base._replace(x=X, u=U)
    U = inputs_of(f, guess, n, base.x[0])
    return resample(f.rollout(base.x[0], U, k0=phase.k0, dt=base.length, warn=False), phase)


def unknowns(phase: Phase, c: Curve, smoothing: float) -> np.ndarray:
    """Return a guess (N, nw) of the constraint multipliers of all steps.
    For maps with contact, these nw variables of the nonlinear program also contain the impulses and other
    variables of the contacts. `smoothing` is the smoothing of the contacts.
    """
    relaxed, k = phase.equations.relaxed, np.arange(phase.steps)
    if relaxed is None:
        return c.multipliers
    h = np.full(phase.steps, c.length)
    return relaxed.start(Steps(c.x[:-1], c.x[1:], c.u, c.multipliers, (phase.k0 + k) * h, h, k), smoothing)


def quantities(phase: Phase, X: np.ndarray) -> np.ndarray:
    """Return a guess of the velocities that are variables of the nonlinear program.
    These velocities are the solutions of linear equations that depend on the states X (N+1, nx).

    `Phase.lifts` tells where velocities are variables of the nonlinear program.
    """
    inner = phase.map.mechanism.implicit
    if inner is None or not phase.quantities:
        return np.zeros((len(X), 0))
    evaluate = ca.Function("w", [inner.x, inner.parameters], [inner.values])
    return np.asarray(evaluate.map(len(X))(X.T, list(phase.map.parameters.values()))).T
