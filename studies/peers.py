"""Other simulators, run on vioc's own descriptions: Open Dynamics Engine and MuJoCo, where installed.

    engines = available()                 # {"Open Dynamics Engine": ..., "MuJoCo": ...}, or fewer
    run = engines["MuJoCo"](system, q0, dt, steps)
    run["left-1"], run.energy

Neither is a dependency. Both integrate bodies with forces; Open Dynamics Engine also joins them by
forces, while MuJoCo has joint coordinates for the tree and closes loops by soft constraints. Each runs
with its defaults: that is what users of it get.
"""

from __future__ import annotations

from collections.abc import Callable

from studies import peer_mujoco, peer_ode
from studies.peer_links import PeerRun
from studies.peer_mujoco import MUJOCO, package, run_mujoco
from studies.peer_ode import ODE, library, run_ode

__all__ = ["INSTALL", "MUJOCO", "ODE", "PeerRun", "available"]

INSTALL = {ODE: peer_ode.INSTALL, MUJOCO: peer_mujoco.INSTALL}  # how to get them, by name


def available() -> dict[str, Callable[..., PeerRun]]:
    """The peers that this machine has, by name; each takes (system, q, dt, steps, forces, every)."""
    found: dict[str, Callable[..., PeerRun]] = {}
    if library() is not None:
        found[ODE] = run_ode
    if package() is not None:
        found[MUJOCO] = run_mujoco
    return found
