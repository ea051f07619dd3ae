"""How the energy of a variational integrator is judged: its band, its drift, and what hides the drift."""

from __future__ import annotations

from typing import Any

import numpy as np

from vioc import MidpointVI, Trajectory
from vioc.compile.evaluate import Evaluator


def total_drift(t: np.ndarray, energy: np.ndarray) -> float:
    """Slope of the least-squares line through the energy, times the length of the run, J."""
    return float(np.polyfit(t - t[0], energy, 1)[0] * (t[-1] - t[0]))


def shadow_energy(run: Trajectory) -> tuple[np.ndarray, np.ndarray]:
    """The energy that the midpoint rule conserves to fourth order, at the middle of each step.

    Backward error analysis of the implicit midpoint rule, which the variational one is between
    configurations: with c = h^2 H''(f, f) and f = J grad H,

        H at the samples = H~ + c/24,        H at the midpoints = H~ - c/12,

    H~ being the energy that the discrete flow keeps. So (H_k + H_k+1 + H_mid) / 3 is H~ up to O(h^4),
    without the oscillation of either.

    Parameters
    ----------
    run : Trajectory
        Of a `MidpointVI` with alpha = 1/2 and no kinematic variables, unforced.

    Returns
    -------
    t, energy : (N,), (N,)
    """
    f: Any = run.map
    assert isinstance(f, MidpointVI)
    evaluate = Evaluator(f.lagrangian.function("energy", [f.lagrangian.T + f.lagrangian.V]))
    t = (run.t[1:] + run.t[:-1]) / 2
    q0, q1 = run.x[:-1, : f.nq], run.x[1:, : f.nq]
    rates = (q1 - q0) / np.diff(run.t)[:, None]
    theta = f.theta
    middle = evaluate((q0 + q1) / 2, rates, np.zeros(f.nu), t[:, None], theta)[0][:, 0, 0]
    ends = run.energy
    return t, (ends[1:] + ends[:-1] + middle) / 3
