"""Rollouts that call one step at a time, for maps without a compiled rollout."""

from __future__ import annotations

import numpy as np

from vioc.errors import StepError
from vioc.maps.protocol import OneStepMap
from vioc.runs.trajectory import Trajectory


def stepwise(
    f: OneStepMap,
    x0: np.ndarray,
    U: np.ndarray,
    k0: int,
    lengths: np.ndarray,
    X: np.ndarray | None,
    K: np.ndarray | None,
    begins: np.ndarray | None,
) -> Trajectory:
    """Compute a rollout by separate calls of the map's method `steps_at`, one for each step.

    The arguments are those of `OneStepMap.run`.
    """
    n, t = len(U), f.times(lengths, k0, begins)
    states, applied = np.tile(x0, (n + 1, 1)), np.array(U)
    multipliers = np.empty((n, len(f.multiplier_names)))
    for k in range(n):
        if X is not None and K is not None:
            applied[k] = U[k] - K[k] @ f.difference(X[k], states[k])
        one = slice(k, k + 1)
        try:
            steps = f.steps_at(states[one], applied[one], k0 + k, lengths[one], t=t[one])
        except StepError as error:
            until = t[: k + 1], states[: k + 1], applied[:k], multipliers[:k]
            error.trajectory = Trajectory(f, *until, k0=k0)
            raise
        states[k + 1], multipliers[k] = steps.x1[-1], steps.multipliers[-1]
    return Trajectory(f, t, states, applied, multipliers, k0=k0)
