"""`Mechanism`: properties that only a mechanism's map has."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import casadi as ca
import numpy as np

from vioc.errors import ModelError
from vioc.maps.linear_solutions import Implicit
from vioc.maps.quantities import nothing
from vioc.maps.relaxed import RelaxedStep
from vioc.runs.trajectory import Trajectory

if TYPE_CHECKING:
    from vioc.maps.protocol import OneStepMap


def added(x: np.ndarray, by: np.ndarray, fixed: Any = ()) -> np.ndarray:
    """Return x + by, for coordinates without constraints."""
    return x + by


def exact(dt: float) -> float:
    """Return 0, for a map of unknown rounding."""
    return 0.0


def no_regressor(linear: Any = ()) -> Any:
    """Raise `ModelError`."""
    raise ModelError("the map is no mechanism's in generalized coordinates: no regressor; use identify")


@dataclass(frozen=True)
class Mechanism:
    """Properties of a mechanism's map; the defaults are for maps of other kinds.

    Attributes
    ----------
    coordinates : tuple of str
        What may be chosen of a state at rest: of a mechanism its dynamic variables.
    additive : (nm,) bool
        Which multipliers are impulses, which add up over steps; others are of a step's end.
    inputs_at : ends (m,) -> (m, nu, nx), (m, nu, nu)
        The input of a part of a step that ends at the fraction ``ends[i]`` is the first times x_k + the
        second times u_k.
    moved : x, by, fixed=() -> x
        The state at rest that is `by` away from `x` in `coordinates`, as near as constraints let it be;
        `ModelError` if no such state keeps them with the names in `fixed` as they are.
    strings : tuple of str
        Constraints that can only pull; their ``tension.NAME`` is a quantity.
    force_rounding : dt -> float
        Forces that a step of length `dt` cannot tell from zero, N.
    velocity_constraints : tuple of str
        Multipliers of constraints on velocities: what their impulses take off a momentum no future sees.
    impulse_behind : float
        What share of a step's impulses makes up for the step before.
    configurations : tuple of str
        The states at the front that tell the others by two samples in a row, if they do.
    behind : q0, q1, u, k -> x; or None
        `OneStepMap.state_from_configurations`.
    inertias : () -> dict of str to SX
        The ten numbers of each rigid body in ``symbols.parameters``, by its frame's name: mass, centre of
        mass (3) and inertia about it, Ixx, Iyy, Izz, Ixy, Ixz, Iyz, in the frame's axes.
    regressor : linear=() -> Regressor
        The equations as a linear function of inertias, and of parameters `linear`.
    implicit : Implicit or None
        What of the quantities solves linear equations, such as velocities of momenta; None if nothing.
    limits : () -> dict of str to SX
        What is >= 0 in every motion that the mechanism can make, by name, and that the map does not see to:
        scalars or columns in ``symbols``. Those of states are ``gap.CONSTRAINT``, after what holds it at 0.
    relaxed : () -> RelaxedStep or None
        Of a step with contact, its equations at any smoothing.
    diverged : trajectory, ended -> (int, str) or None
        The first sample of a run where its energy is beyond what its forces can feed, and a text that says
        so; None where there is none. Runs that were `ended` by an error are looked at closely, others where
        their motion grows.
    review : trajectory -> None
        Warn of what a user should know about a rollout.
    """

    coordinates: tuple[str, ...]
    additive: np.ndarray
    inputs_at: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]
    moved: Callable[..., np.ndarray] = added
    strings: tuple[str, ...] = ()
    force_rounding: Callable[[float], float] = exact
    velocity_constraints: tuple[str, ...] = ()
    impulse_behind: float = 0.0
    configurations: tuple[str, ...] = ()
    behind: Callable[[Any, Any, Any, int], np.ndarray] | None = None
    inertias: Callable[[], Mapping[str, ca.SX]] = dict
    regressor: Callable[..., Any] = no_regressor
    implicit: Implicit | None = None
    limits: Callable[[], Mapping[str, ca.SX]] = dict
    relaxed: Callable[[], RelaxedStep | None] = nothing
    diverged: Callable[[Trajectory, bool], tuple[int, str] | None] = nothing
    review: Callable[[Trajectory], None] = nothing


def no_mechanism(f: OneStepMap) -> Mechanism:
    """Return the defaults, for a map of any kind."""
    return Mechanism(f.state_names, np.ones(len(f.multiplier_names), bool), lambda ends: held_inputs(f, ends))


def held_inputs(f: OneStepMap, ends: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return `Mechanism.inputs_at` for inputs constant over a step."""
    return np.zeros((len(ends), f.nu, f.nx)), np.tile(np.eye(f.nu), (len(ends), 1, 1))
