"""Detection of diverged rollouts by their energy balance.

Let E be the energy along a run, E_0 its initial value, W the work of all generalized forces, and V the
potential energy. By conservation of energy, the kinetic energy is E_0 + W - V. A variational integrator with
a suitable step length keeps E - E_0 - W in a narrow band. A run has diverged if this band is wider than the
largest kinetic energy that the balance explains.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import casadi as ca
import numpy as np

if TYPE_CHECKING:
    from vioc.dynamics.integrators.mechanical import MechanicalMap
    from vioc.runs.trajectory import Trajectory

GROWS = 3  # times the kinetic energy of the first half, above which the second half is examined
ROUNDING = 1e-9  # of the energies themselves


def closed(f: MechanicalMap) -> bool:
    """Return whether the map has no prescribed variable and no time-dependent potential."""
    lag = f.lagrangian
    return not f.nk and not ca.depends_on(ca.SX(lag.V), lag.graph.t)


def grows(f: MechanicalMap, run: Trajectory) -> bool:
    """Return whether velocities are much larger in the second half of a run.
    They are compared with the velocities in the first half of the run. The test uses the mean velocities of
    the steps and a typical mass matrix, so that no CasADi function has to be built.
    """
    with np.errstate(all="ignore"):
        v = np.diff(run.x[:, : f.nd], axis=0) / run.step_lengths[:, None]
        sizes = (f.lagrangian.mass_scale_with(f.parameters) * v**2).sum(axis=1)
        half = len(sizes) // 2
        return half > 0 and not sizes[half:].max() <= GROWS * sizes[:half].max()


def resolved(f: MechanicalMap, run: Trajectory, energy: Callable[[np.ndarray], np.ndarray]) -> float:
    """Return the energy change, in J, that the solver's tolerance can cause in a run.
    It is estimated from errors of the configurations that are as large as the tolerance.
    """
    sizes = f.lagrangian.natural_sizes_with(f.parameters)[: f.nd]
    least = f.tolerance * (sizes + np.abs(run.x[:, : f.nd])).max(axis=0)
    v, starts = least / run.step_lengths.min(), np.tile(run.x[0], (f.nd + 1, 1))
    starts[1:, : f.nd] += np.diag(least)
    potential = energy(starts)[:, 1]
    return float(
        (f.lagrangian.mass_scale_with(f.parameters) * v**2).sum() + np.abs(potential[1:] - potential[0]).sum()
    )


def first_diverged(
    f: MechanicalMap,
    run: Trajectory,
    energy: Callable[[np.ndarray], np.ndarray],
    works: Callable[[Trajectory], np.ndarray],
) -> int | None:
    """Return the index of the first state with too much energy, or None.
    A state has too much energy if the forces cannot have supplied the increase since the first state. The
    function `energy` returns the kinetic and the potential energy (N, 2) of states (N, nx). The function
    `works` returns the work of the forces over each step (N,). All energies are in J.
    """
    with np.errstate(all="ignore"):
        kinetic, potential = energy(run.x).T
        explained = kinetic[0] + potential[0] + np.concatenate([[0.0], np.cumsum(works(run))])
        excess = kinetic + potential - explained
        most = max(float(np.maximum(explained - potential, 0.0).max()), 0.0)
        least = ROUNDING * (np.abs(potential) + kinetic + np.abs(explained)).max() + resolved(f, run, energy)
        indices = np.flatnonzero(~(excess <= most + least))
    return int(indices[0]) if len(indices) else None
