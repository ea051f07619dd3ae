"""Joining of successive trajectories, of one map or of several phases, to one trajectory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from vioc.maps.made.switched import SwitchedMap
from vioc.runs.given import trajectory_of
from vioc.runs.trajectory import Trajectory

if TYPE_CHECKING:
    import casadi as ca

    from vioc.maps.protocol import OneStepMap

GAP = 1e-9  # relative to 1 + |x|: largest distance of an end and a start that are one state


def join(*runs: Any, jumps: Sequence[ca.Function | None] | None = None) -> Trajectory:
    """Join successive trajectories to one trajectory, with optional jumps of the state between them.

    Parameters
    ----------
    *runs : Trajectory, or result with one
        Each begins where the one before ends. Their times continue that of the first.
    jumps : sequence of (casadi.Function or None), optional
        Jump of the state, or None, between each pair of successive runs, as in `SwitchedMap`. A run after a
        jump need not begin where the one before ends.

    Returns
    -------
    Trajectory
        A trajectory of their map, if the maps differ in step length only; else of a `SwitchedMap` of them.

    Raises
    ------
    ValueError
        If a run does not begin where the one before ends, the maps have different states or inputs, or a map
        that depends on time would take its steps at another time.
    """
    trajectories = [trajectory_of(run) for run in runs]
    for i, run in enumerate(trajectories):
        if not isinstance(run, Trajectory):
            raise TypeError(f"join: entry {i} is {type(run).__name__}, expected a trajectory")
    if not trajectories:
        raise ValueError("join: expected runs, got none")
    if jumps is not None and len(jumps) != len(trajectories) - 1:
        raise ValueError(f"jumps: expected {len(trajectories) - 1}, one for each joint, got {len(jumps)}")
    joints: list[Any] = [None] * (len(trajectories) - 1) if jumps is None else list(jumps)
    _check_times(trajectories)
    _check_joints(trajectories, joints)
    first = trajectories[0]
    alike = _what(first.map)
    if len(trajectories) == 1:
        return first
    if jumps is None and all(_what(run.map) == alike for run in trajectories):
        return _one_behind_another(trajectories, first.map)
    parts, leaps = _phases(trajectories, joints)
    switched = SwitchedMap([p.map for p in parts], [len(p) for p in parts], leaps)
    return _one_behind_another(parts, switched)


def _check_times(runs: Sequence[Trajectory]) -> None:
    """Raise `ValueError` if joining would change the times of steps of a time-dependent map."""
    step, t = runs[0].k0, float(runs[0].t[0])
    for i, run in enumerate(runs):
        if _is_timed(run.map):
            timed = f"join: run {i} begins at {{}}, here it would at {{}}, and its map depends on time; {{}}"
            if run.k0 != step:
                raise ValueError(timed.format(f"step {run.k0}", step, f"roll it out with k0={step}"))
            if abs(run.t[0] - t) > GAP * run.duration:
                instead = "take steps of several lengths in one rollout, f.rollout(x0, U, dt=(...))"
                raise ValueError(timed.format(f"{run.t[0]:.9g} s", f"{t:.9g}", instead))
        step, t = step + len(run), t + run.duration


def _check_joints(runs: Sequence[Trajectory], joints: Sequence[Any]) -> None:
    """Raise `ValueError` unless each trajectory begins where the previous one ends.
    For each pair of successive trajectories, `joints` has None, or a function that describes a jump of the
    state between them. The two states are not compared if there is a jump.
    """
    for i, (a, b, jump) in enumerate(zip(runs, runs[1:], joints, strict=False)):
        if a.map.state_names != b.map.state_names:
            raise ValueError(f"join: runs {i} and {i + 1} have other states")
        off = np.abs(a.map.difference(a.x[-1], b.x[0]))
        if jump is None and not off.max(initial=0.0) <= GAP * (1 + np.abs(a.x[-1]).max(initial=0.0)):
            worst = a.map.space.error_names[int(np.argmax(off))]
            raise ValueError(
                f"join: run {i + 1} does not begin where run {i} ends: {worst} is off by {off.max():.3g}; "
                "roll it out from there, f.rollout(run.x[-1], U)"
            )


def _phases(runs: Sequence[Trajectory], joints: Sequence[Any]) -> tuple[list[Trajectory], list[Any]]:
    """Divide trajectories into parts that each belong to one map; return them and the jumps between them."""
    parts: list[Trajectory] = []
    leaps: list[Any] = []
    for run, jump in zip(runs, [*joints, None], strict=True):
        f, pieces = run.map, [run]
        if isinstance(f, SwitchedMap):
            if run.k0 or f.periodic or len(run) < sum(f.steps_of[:-1]) + 1:
                raise ValueError(
                    "join: of phases only whole motions are joined, begun at step 0, not periodic"
                )
            pieces = f.parts_of(run)
            leaps += f.jumps
        parts += pieces
        leaps.append(jump)
    return parts, leaps[:-1]


def _one_behind_another(runs: Sequence[Trajectory], f: OneStepMap) -> Trajectory:
    names, multipliers, times = f.multiplier_names, [], [runs[0].t]
    for i, run in enumerate(runs):
        columns = [names.index(n) for n in run.map.multiplier_names]
        rows = np.zeros((len(run), len(names)))
        rows[:, columns] = run.multipliers
        multipliers.append(rows)
        if i:
            behind = times[-1][-1]
            times.append(run.t[1:] if run.t[0] == behind else behind + (run.t[1:] - run.t[0]))
    x = np.concatenate([runs[0].x, *(run.x[1:] for run in runs[1:])])
    u, t = np.concatenate([run.u for run in runs]), np.concatenate(times)
    start: dict[str, Any] = dict(k0=runs[0].k0, before=runs[0].before)
    whole = Trajectory(f, t, x, u, np.concatenate(multipliers), **start)
    return whole.on_its_step()


def _what(f: OneStepMap) -> Any:
    """Return data that identify a map except for its step length.

    Two maps with equal data are treated as one map in a joined trajectory.
    """
    return {k: v for k, v in f.identity().items() if k != "dt"}, f.parameters


def unlike(f: OneStepMap, other: OneStepMap) -> str:
    """Describe the first difference between two maps in a text; return "" for equal maps.
    The step lengths of the maps are not compared."""
    if f is other:
        return ""
    (a, p), (b, q) = _what(f), _what(other)
    for entries, other_entries, what in ((a, b, ""), (p, q, "parameter ")):
        for name in dict.fromkeys((*entries, *other_entries)):
            if (value := entries.get(name)) != (other_value := other_entries.get(name)):
                return f"{what}{name} is {_short(value)} here, {_short(other_value)} there"
    return ""


def _short(value: Any) -> str:
    text = "none" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _is_timed(f: OneStepMap) -> bool:
    """Return whether steps of a map can depend on time, apart from switching between maps."""
    return any(map(_is_timed, f.maps)) if isinstance(f, SwitchedMap) else f.depends_on_time is not False
