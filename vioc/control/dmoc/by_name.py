"""Multipliers and violated limits of a solved nonlinear program, by name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from vioc.control.problem.limits import Violation, limit_scale
from vioc.control.problem.result import Multipliers

if TYPE_CHECKING:
    from vioc.control.dmoc.scaling import Scales
    from vioc.control.dmoc.transcription import Transcription


class Raw(NamedTuple):
    """Solution of a nonlinear program as arrays.
    The fields are its variables w, the multipliers mu of constraints and nu of bounds, its parameters p, the
    lower and upper bounds of w, and the scales (typical sizes) of variables, constraints and cost.
    """

    transcription: Transcription
    w: np.ndarray
    mu: np.ndarray
    nu: np.ndarray
    p: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    scales: Scales


def duals(raw: Raw, i: int, step_duals: np.ndarray) -> Multipliers:
    """Return the multipliers of the constraints and bounds of phase i, by name.
    Each multiplier is an array over samples. `step_duals` (N, n) are the multipliers of the equations that
    eliminate states from the nonlinear program.
    """
    t = raw.transcription
    phase, layout = t.phases[i], t.layouts[i]
    f, n = phase.map, phase.steps
    parts: dict[str, list[tuple[np.ndarray, np.ndarray]]] = {}
    for b, block in enumerate(t.program.blocks):
        if block.phase == i and block.stage:
            for name, row in zip(block.names, t.program.rows_of(b).T, strict=True):
                parts.setdefault(name, []).append((block.samples, raw.mu[row]))
    states = {f.state_names[j]: parts.pop(f.state_names[j], []) for j in layout.eliminated}
    named = {name: np.concatenate([mu for _, mu in pairs]) for name, pairs in parts.items()}
    for r, dual in zip(phase.equations.solved_rows, step_duals.T, strict=False):
        named[phase.equations.names[r]] = dual
    for names, index, known in t.unknowns_of(i):
        for name, column, is_unknown in zip(names, index.T, known.T, strict=True):
            limited = is_unknown & (np.isfinite(raw.lower[column]) | np.isfinite(raw.upper[column]))
            if limited.any() or states.get(name):
                named[name] = np.where(is_unknown, raw.nu[column], 0.0)
    for name, pairs in states.items():  # limits of eliminated states are rows
        for samples, mu in pairs:
            named[name][samples] = mu
    bounds = phase.state_bounds
    for what, k, j, low, high in phase.state_ends:  # one unknown has both limits: the tighter one is active
        state_name, both = f.state_names[j], named.get(f.state_names[j], np.zeros(n + 1))
        active = high <= bounds[1][k, j] if both[k] > 0 else low >= bounds[0][k, j]
        named[f"{what} {state_name}"] = np.array([both[k] if active else 0.0])
        both[k] = 0.0 if active else both[k]
    for j in np.flatnonzero(~np.isfinite(bounds).any(axis=(0, 1))).tolist():
        named.pop(f.state_names[j], None)
    if layout.H is not None:
        named["duration"] = raw.nu[layout.H[:1]] / n
    return Multipliers(named)


def defect(t: Transcription, i: int, g: np.ndarray) -> float:
    """Return the largest residual of one phase's step equations."""
    worst = 0.0
    for b, block in enumerate(t.program.blocks):
        if block.phase == i and block.names == t.step_names[i]:
            amounts = np.abs(g[t.program.rows_of(b)])[np.isfinite(block.lower)]
            worst = max(worst, float(amounts.max(initial=0.0)))
    return worst


def limited(raw: Raw, g: np.ndarray) -> Iterator[tuple]:
    """Yield values and limits of all constraints and variables of a solved program.
    `raw` is the solution of the nonlinear program, and g are the values of its constraints.

    Each item holds names, phase, samples, and the sizes, values, lower and upper limits (samples, names).
    """
    t, w = raw.transcription, raw.w
    for b, block in enumerate(t.program.blocks):
        if block.rows:
            entries = t.program.rows_of(b)
            yield (
                block.names,
                block.phase,
                block.samples,
                raw.scales.rows[entries],
                g[entries],
                block.lower,
                block.upper,
            )
    for i in range(len(t.phases)):
        for names, index, _ in t.unknowns_of(i):
            low, high = (
                np.where(index >= 0, side[index], s)
                for side, s in ((raw.lower, -np.inf), (raw.upper, np.inf))
            )
            yield names, i, np.arange(len(index)), raw.scales.unknowns[index], w[index], low, high


def margin(raw: Raw, g: np.ndarray) -> float:
    """Return the smallest distance of a limited quantity from its limits.
    Only inequalities count. Each distance is divided by a scale of the limits (`limit_scale`); it is negative
    if a limit is violated.
    """
    least = np.inf
    for _, _, _, _, *columns in limited(raw, g):
        for values, low, high in zip(*(c.T for c in columns), strict=True):
            unequal = (low < high) & (np.isfinite(low) | np.isfinite(high))
            if unequal.any():
                values, low, high = values[unequal], low[unequal], high[unequal]
                distance = float(np.minimum(values - low, high - values).min())
                least = min(least, distance / (limit_scale(low, high, float(np.abs(values).max())) or 1.0))
    return least


def violations(raw: Raw, g: np.ndarray, times: list[np.ndarray], tolerance: float = 1e-6) -> list[Violation]:
    """Return all limits that are violated, the largest violation first.

    A violation counts if it exceeds `tolerance` times (s + |limit|). Here s is the typical size of the
    limited quantity, and |limit| is the smaller magnitude of its finite limits.
    """
    violation_list, amounts = list[Violation](), list[float]()
    for names, phase, samples, sizes, values, lower, upper in limited(raw, g):
        with np.errstate(invalid="ignore"):
            amount = np.maximum(lower - values, values - upper)
            size = np.minimum(*(np.where(np.isfinite(b), np.abs(b), np.inf) for b in (lower, upper)))
        size = sizes + np.where(np.isfinite(size), size, 0.0)
        for k, j in np.argwhere(~(amount <= tolerance * size)):
            sample = int(samples[k])
            amounts.append(float(amount[k, j] / size[k, j]))
            numbers = (float(a[k, j]) for a in (values, lower, upper))
            violation_list.append(Violation(names[j], phase, sample, float(times[phase][sample]), *numbers))
    worst = np.argsort([-a if np.isfinite(a) else -np.inf for a in amounts], kind="stable")
    return [violation_list[i] for i in worst]
