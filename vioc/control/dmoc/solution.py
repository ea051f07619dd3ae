"""Trajectories, multipliers and critical limits from the outcome of a solver.

Critical limits are violated, or are active with linearly dependent gradients.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from scipy.sparse.linalg import splu

from vioc.control.dmoc import eliminated
from vioc.control.dmoc.by_name import Raw, defect, duals, margin, violations
from vioc.control.dmoc.homotopy import Stage, reached
from vioc.control.dmoc.phase import leap
from vioc.control.dmoc.standing import too_close
from vioc.control.dmoc.transcription import PULL
from vioc.control.problem.limits import obstacles_among
from vioc.control.problem.result import History, PhaseResult, Result, off_branch
from vioc.control.problem.sizes import Sizes
from vioc.control.problem.status import Status, verdict
from vioc.maps.made.joining import join
from vioc.runs.trajectory import Trajectory

if TYPE_CHECKING:
    from vioc.control.dmoc.problem import Problem
    from vioc.control.dmoc.solvers import SolverOutcome

ACTIVE = 1e-6  # distance to a limit, over 1 + |limit| in units of sizes, below which it is active
# norm of a combination of gradients, each of norm 1 in units of sizes, below which it counts as 0
DEPENDENT = 1e-6
SHARE = 0.1  # coefficients of the combination that are named, over its largest one
SHIFT, ITERATIONS = 1e-14, 6  # shift and number of iterations of the inverse iteration
MEET = 1e-6  # `Sizes.apart` below which consecutive phases are one motion
SAME = 1e-6  # `Sizes.apart` of the ends of steps that are one root, to IPOPT's tolerance


def solution(
    problem: Problem,
    raw: Raw,
    outcome: SolverOutcome,
    history: History,
    stages: Sequence[Stage] = (),
    pull: float = PULL,
) -> Result:
    """Convert the outcome of a nonlinear programming solver to a `Result`.
    `pull` is the problem's typical acceleration of gravity, m/s^2. If the search failed because bodies cannot
    rest, the message uses `pull` to explain this.
    """
    status, iterations = outcome.status, outcome.iterations
    t = raw.transcription
    cost, g = (np.asarray(v).ravel() for v in t.program.values(raw.w, raw.p))
    maps = problem.maps
    step_duals = eliminated.multipliers(t, raw.w, raw.p, raw.mu)
    phases: list[PhaseResult] = []
    times: list[np.ndarray] = []
    for i, (phase, layout) in enumerate(zip(t.phases, t.layouts, strict=True)):
        h = raw.w[layout.H[0]] if layout.H is not None else phase.length_limits[0]
        start = times[-1][-1] if times else phase.k0 * h
        k0 = round(start / h)  # an integer multiple if the map depends on time
        time = start + h * np.arange(phase.steps + 1)
        times.append(time)
        x, u = eliminated.states(t, i, raw.w, raw.p), raw.w[layout.U]
        each = phase.equations.multipliers.map(phase.steps)
        multipliers = np.asarray(each(raw.w[layout.L].T, h, phase.map.theta)).T
        if not phase.equations.implicit and maps[i].multiplier_names:
            steps = [maps[i].rollout(x[k], u[k : k + 1], k0=k0 + k, dt=h, warn=False) for k in range(len(u))]
            multipliers = np.concatenate([s.multipliers for s in steps])
        run = Trajectory(maps[i], time, x, u, multipliers, k0=k0).on_its_step()
        balls = obstacles_among(phase.constraints)
        phases.append(PhaseResult(run, duals(raw, i, step_duals[i]), phase, defect(t, i, g), balls))
    violation_list = violations(raw, g, times)
    far = ""
    if status == Status.CONVERGED:
        far = next(filter(None, (off_branch(part.trajectory, SAME) for part in phases)), "")
        status = Status.ACCEPTABLE if far else status
    together = dependent(raw, g) if status == Status.NO_PROGRESS else []
    advice = far or status.advice
    if together:
        more = f" and {len(together) - 5} more" if len(together) > 5 else ""
        advice = (
            f"constraints depend on each other there: {', '.join(together[:5])}{more}. Leave out one of them "
            "(what the others imply, or prevent), loosen a limit, or start from another guess"
        )
    if stages and outcome.status != Status.CONVERGED:
        least, target = reached(list(stages)), t.own_smoothing
        wider = f"contacts are solved at a smoothing of {least:.2g} m^2/s^2 only, the map's is {target:.2g}"
        close = too_close(t, stages[-1].smoothing, pull, stages[0].smoothing)
        advice = (
            f"{wider if least < np.inf else 'no contacts were solved at any smoothing'}; {close or advice}"
        )
    message = verdict(status, f"{iterations} iterations", float(cost[0]), advice, found=violation_list)
    motion, apart = joined(problem.jumps, [part.trajectory for part in phases])
    return Result(
        tuple(phases),
        float(cost[0]),
        status,
        message,
        iterations,
        history,
        outcome.seconds,
        lambda: problem,
        violations=violation_list,
        margin=margin(raw, g),
        joined=motion,
        apart=apart,
        stages=list(stages),
        stats=outcome.stats,
        raw=raw,
    )


def joined(jumps: Sequence[Any], runs: list[Trajectory]) -> tuple[Trajectory | None, str]:
    """Join the trajectories of the phases to one trajectory.
    Return this trajectory and an empty string. If the trajectories cannot be joined, return None and the
    reason; the reason is empty if there is only one phase.
    """
    if len(runs) == 1:
        return None, ""
    ask = "so they are no one trajectory; ask one of them: result.phases[0]"
    if len({(run.map.state_names, run.map.input_names) for run in runs}) > 1:
        return None, f"the phases have other states or inputs, {ask}"
    if any(v is None for jump in jumps for v in (jump or {}).values()):
        return None, f"a jump leaves states free, {ask}"
    leaps, pieces = [], runs[:1]
    for i, (run, jump) in enumerate(zip(runs[1:], jumps, strict=False), 1):
        f, end = pieces[-1].map, pieces[-1].x[-1]
        leaps.append(leap(f, jump))
        after = end if leaps[-1] is None else np.asarray(leaps[-1](end, f.theta)).ravel()
        gap, sizes = np.abs(f.difference(after, run.x[0])), Sizes.along(pieces[-1])
        if not sizes.apart(after[None], run.x[:1]) <= MEET:
            name = f.space.error_names[int(gap.argmax())]
            return None, f"phase {i} begins {gap.max():.2g} off where phase {i - 1} ends, in {name}, {ask}"
        pieces.append(replace(run, x=np.vstack([after, run.x[1:]])))
    try:
        return join(*pieces, jumps=leaps), ""
    except ValueError as error:  # their step indices differ, and a map depends on them
        return None, f"{error}, {ask}"


def dependent(raw: Raw, g: np.ndarray) -> list[str]:
    """Return the names of active limits whose gradients are linearly dependent.

    Each name includes the sample of the limit. Inverse iteration on J J' finds the combination of gradients
    with the smallest norm; the limit with the largest coefficient in it is first. J holds the gradients of
    the active constraints with respect to the unknowns that are not at a limit. The list is empty if the
    gradients are independent.
    """
    t, (of_w, of_g, _) = raw.transcription, raw.scales
    J = (t.program.jac_g(raw.w, raw.p)[1].sparse() @ sp.diags(of_w)).tocsr()
    fixed, active = (
        _met(*(side / size for side in sides))
        for size, sides in ((of_w, (raw.w, raw.lower, raw.upper)), (of_g, (g, t.row_lower, t.row_upper)))
    )
    rows, free = np.flatnonzero(active), np.flatnonzero(~fixed)
    if not len(rows) or not np.isfinite(J.data).all():
        return []
    lengths = np.sqrt(np.asarray(J[rows].multiply(J[rows]).sum(axis=1)).ravel())
    scaled = sp.diags(1 / np.maximum(lengths, 1e-300)) @ J[rows]
    A = scaled[:, free]
    n, m = len(free), len(rows)
    both = sp.bmat([[sp.eye(n), A.T], [A, -SHIFT * sp.eye(m)]], format="csc")
    y = np.random.default_rng(0).standard_normal(m)
    try:
        factors = splu(both)
    except RuntimeError:
        return []
    for _ in range(ITERATIONS):
        y = factors.solve(np.concatenate([np.zeros(n), y]))[n:]
        size = np.linalg.norm(y)
        if not 0 < size < np.inf:
            return []
        y /= size
    if np.linalg.norm(A.T @ y) > DEPENDENT:
        return []
    names = t.names()
    shares = {names[1][row]: abs(c) for row, c in zip(rows, y, strict=True)}
    shares |= {names[0][i]: abs(c) for i, c in enumerate(scaled.T @ y) if fixed[i]}
    least = SHARE * max(shares.values())
    return [name for name, c in sorted(shares.items(), key=lambda item: -item[1]) if c >= least]


def _met(value: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Return a mask of the values that are at one of their limits."""
    sides = [(value - low, low), (high - value, high)]
    return np.logical_or(
        *(np.isfinite(s) & (gap <= ACTIVE * (1 + np.abs(np.where(np.isfinite(s), s, 0)))) for gap, s in sides)
    )
