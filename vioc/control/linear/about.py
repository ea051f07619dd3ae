"""Checks of equilibria and trajectories before one-step maps are linearized."""

from __future__ import annotations

from typing import Any

import numpy as np

from vioc.maps.made.joining import unlike
from vioc.maps.made.switched import SwitchedMap
from vioc.maps.protocol import OneStepMap
from vioc.runs.given import point_of, trajectory_of
from vioc.runs.steps import same_steps
from vioc.runs.trajectory import Trajectory


def states_at_rest(f: OneStepMap, x: np.ndarray) -> list[tuple[str, float]]:
    """Return names and values of the states to show when an equilibrium is printed.
    All states are shown, except for momenta if the map has constraints.

    At rest, these momenta are half the constraint impulses.
    """
    names = f.state_names
    mask = [not (f.multiplier_names and n.startswith("p.") and n[2:] in names) for n in names]
    return [(n, float(v)) for n, v, tell in zip(names, x, mask, strict=True) if tell]


def about_of(f: OneStepMap, about: Any) -> Trajectory | tuple[np.ndarray, np.ndarray]:
    """Convert the argument `about` to a trajectory or an equilibrium point (x, u).
    The point has the state x (nx,) and the input u (nu,).

    Parameters
    ----------
    f : OneStepMap
    about : Trajectory or an object with one, (x, u), or an object with `x` (nx,) and `u` (nu,)
        Results of `vioc.control.equilibrium` and steady regulators have `x` and `u`. `u` None means zero.

    Raises
    ------
    ValueError
        Any other object, wrong shapes, an equilibrium of another map, several trajectories.
    """
    about = trajectory_of(about)
    if isinstance(about, Trajectory):
        return about
    if hasattr(about, "x") and hasattr(about, "u"):
        return point_of(f, about)
    if not isinstance(about, tuple) or len(about) != 2:
        got = f"an array of shape {about.shape}" if isinstance(about, np.ndarray) else repr(about)
        hint = "; a state alone is (x, None), where no input holds it" * (np.shape(about) == (f.nx,))
        raise ValueError(f"expected a trajectory or an equilibrium (x, u), behind the map, got {got}{hint}")
    return point_of(f, *about)


def check_trajectory(f: OneStepMap, about: Trajectory) -> OneStepMap:
    """Check that f is the map of a trajectory, apart from the step length.
    Return f with the step length of the trajectory.

    If the trajectory's steps are not equal, the result is the map itself.

    Raises
    ------
    ValueError
        A trajectory of a map with other states, inputs or parameters, or of another integrator or model.
    """
    if about.map.state_names != f.state_names or about.map.input_names != f.input_names:
        raise ValueError(
            f"the trajectory's states {', '.join(about.map.state_names)} and inputs "
            f"{', '.join(about.map.input_names)} are not those of the map"
        )
    owners = [owner := about.map]
    if isinstance(owner, SwitchedMap) and not isinstance(f, SwitchedMap):
        owners = [part.map for part in owner.parts_of(about)]
    if other := next(filter(None, (unlike(f, g) for g in owners)), ""):
        raise ValueError(
            f"the trajectory is of another map: {other}; take its own, run.map, or roll its inputs out on "
            "this one, f.rollout(run.x[0], run.u)"
        )
    h = about.step_lengths
    return f.with_dt(float(h[0])) if (h == h[0]).all() and not same_steps(h[0], f.dt) else f


def check_timeless(f: OneStepMap, what: str, instead: str) -> None:
    """Raise ValueError if the map depends explicitly on time.
    Its linearization about a point is then not constant.
    """
    if f.depends_on_time:
        raise ValueError(f"{what}: steps of {f!r} depend on time; use {instead}")
