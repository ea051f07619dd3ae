"""What a design is about: a trajectory that must be of the map it is made on."""

from __future__ import annotations

from vioc.dynamics.integrators.base import OneStepMap
from vioc.dynamics.trajectory import Trajectory
from vioc.steps import same_steps


def check_trajectory(f: OneStepMap, about: Trajectory) -> OneStepMap:
    """The map with the step length of a trajectory that must be its own, if that has one.

    Raises
    ------
    ValueError
        Other states or inputs.
    """
    if about.map.state_names != f.state_names or about.map.input_names != f.input_names:
        raise ValueError(
            f"the trajectory's states {', '.join(about.map.state_names)} and inputs "
            f"{', '.join(about.map.input_names)} are not those of the map"
        )
    h = about.step_lengths
    return f.with_dt(float(h[0])) if (h == h[0]).all() and not same_steps(h[0], f.dt) else f
