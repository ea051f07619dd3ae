"""Rollouts that divide a step into shorter substeps if a step of the full length cannot be solved."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import numpy as np

from vioc.errors import StepError, StepWarning
from vioc.runs.trajectory import Trajectory

if TYPE_CHECKING:
    from vioc.maps.protocol import OneStepMap

SHORTEST = 2.0**-10  # shortest fraction of a step
MORE = 4  # times the number of steps asked for: largest number of steps,
LEAST = 256  # and its least value


def cut_rollout(f: OneStepMap, x0: np.ndarray, U: np.ndarray, k0: int, lengths: np.ndarray) -> Trajectory:
    """Return the rollout from the state x0 under the inputs U, with shorter steps where needed.
    A step that cannot be solved is replaced by two steps of half its length. Halving is repeated if
    necessary.

    Returns
    -------
    Trajectory
        Trajectory of unequal steps, one row per substep. Derivatives, regulators and optimizers accept it
        with these lengths.

    Raises
    ------
    StepError
        If substeps of 1/1024 of a step do not exist either, or more than four times the steps are needed.
    """
    times = f.times(lengths, k0)
    budget, cuts = max(MORE * len(U), LEAST), 0
    ts, xs, us, multipliers = [times[:1]], [x0[None]], [U[:0]], [np.empty((0, len(f.multiplier_names)))]

    def keep(run: Trajectory) -> None:
        ts.append(run.t[1:])
        xs.append(run.x[1:])
        us.append(run.u)
        multipliers.append(run.multipliers)

    def so_far() -> Trajectory:
        t, x, u, lam = (np.concatenate(a) for a in (ts, xs, us, multipliers))
        return Trajectory(f, t, x, u, lam, k0=k0).on_its_step()

    def substep(k: int, x: np.ndarray, start: float, size: float) -> np.ndarray:
        """Return the state after a substep of step k that begins in the state x.
        The substep has the start `start` and the length `size`, as fractions of step k.
        """
        nonlocal cuts
        by_x, by_u = (m[0] for m in f.mechanism.inputs_at(np.array([start + size])))
        u, h, t = by_x @ whole + by_u @ U[k], size * lengths[k], times[k] + start * lengths[k]
        try:
            run = f.run(x, u[None], k0 + k, np.array([h]), t=np.array([t]))
        except StepError as error:
            cuts += 1
            if size / 2 < SHORTEST or sum(map(len, us)) + cuts > budget:
                text = f"{error} Cutting steps found no motion: it took {cuts} cuts until t = {t:.6g} s"
                failed = error.saying(text)
                failed.trajectory = so_far()
                raise failed from None
            middle = substep(k, x, start, size / 2)
            return substep(k, middle, start + size / 2, size / 2)
        keep(run)
        return run.x[-1]

    k, x = 0, x0
    while k < len(U):
        try:
            run = f.run(x, U[k:], k0 + k, lengths[k:], t=times[k:-1])
        except StepError as error:
            run = error.trajectory  # type: ignore[assignment]
            if run is None:
                raise
            keep(run)
            k, whole = k + len(run), run.x[-1]
            x = substep(k, whole, 0.0, 0.5)
            x = substep(k, x, 0.5, 0.5)
            cuts, k = cuts + 1, k + 1
        else:
            keep(run)
            k = len(U)
    return so_far()


def warn_cut(run: Trajectory, steps: int) -> None:
    """Warn that a run has more steps than were asked for, because some of them were divided."""
    if len(run) > steps:
        warnings.warn(
            f"steps that do not exist at their length were cut: the run has {len(run)} steps for {steps}. "
            "Use it to look at the motion; for feedback and optimization take a smaller dt (f.with_dt, "
            "f.substeps)",
            StepWarning,
            stacklevel=3,
        )
