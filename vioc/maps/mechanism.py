"""Properties of maps that only mechanisms have, with defaults for other maps."""

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


def added(x: np.ndarray, displacement: np.ndarray, fixed: Any = ()) -> np.ndarray:
    """Return the state x + displacement, for a mechanism without constraints.
    It is the default of `Mechanism.moved`.
    """
    return x + displacement


def exact(dt: float) -> float:
    """Return 0 N as the rounding error of forces in a step of length `dt`.
    It is the default of `Mechanism.force_rounding`.
    """
    return 0.0


def no_regressor(linear: Any = ()) -> Any:
    """Raise `ModelError` because the map has no linear regressor of its equations of motion."""
    raise ModelError("the map is no mechanism's in generalized coordinates: no regressor; use identify")


@dataclass(frozen=True)
class Mechanism:
    """Properties of a map that only mechanisms have, such as strings or moments of inertia.
    For maps that do not describe a mechanism, these properties have default values.

    Attributes
    ----------
    coordinates : tuple of str
        Free coordinates of a state at rest: the dynamic variables of a mechanism.
    additive : (nm,) bool
        Mask of the multipliers that are impulses, which add up over steps; others belong to a step's end.
    inputs_at : ends (m,) -> (m, nu, nx), (m, nu, nu)
        Matrices that make inputs of substeps: the input of a substep that ends at the fraction ``ends[i]`` is
        the first times x_k plus the second times u_k.
    moved : x, by, fixed=() -> x
        State at rest at a distance `by` from `x` in `coordinates`, or the nearest that the constraints allow;
        `ModelError` if no such state fulfils them with the names in `fixed` unchanged.
    strings : tuple of str
        Constraints that can only pull; their ``tension.NAME`` is a quantity.
    force_rounding : dt -> float
        Forces that a step of length `dt` cannot distinguish from zero, N.
    velocity_constraints : tuple of str
        Multipliers of constraints on velocities. Components of the momentum along their impulses have no
        effect on the future.
    impulse_behind : float
        Fraction of a step's constraint impulses that belongs to the step before.
    configurations : tuple of str
        The first states, if their values at two successive samples determine all other states; else empty.
    behind : q0, q1, u, k -> x; or None
        `OneStepMap.state_from_configurations`.
    recovery : () -> CasADi function or None
        The states that `behind` adds to the configuration q1, as a function of (q0, q1, u, t, dt, parameters)
        with the time t at the start of the step.
    inertias : () -> dict of str to SX
        The ten inertial parameters of each rigid body in ``symbols.parameters``, by its frame's name: mass,
        centre of mass (3) and inertia about it, Ixx, Iyy, Izz, Ixy, Ixz, Iyz, in the frame's axes.
    regressor : linear=() -> Regressor
        The equations as a linear function of inertias, and of parameters `linear`.
    implicit : Implicit or None
        Quantities that solve linear equations, such as velocities from momenta; None if there are none.
    limits : () -> dict of str to SX
        Quantities by name that are >= 0 in every real motion of the mechanism, which the map does not
        enforce: scalars or columns in ``symbols``. Quantities of the state are called ``gap.CONSTRAINT``,
        after the constraint that holds them at 0.
    relaxed : () -> RelaxedStep or None
        Equations of a step with contact at any smoothing.
    diverged : trajectory, ended -> (int, str) or None
        First sample at which the energy exceeds what the forces can have supplied, with a text that says
        so; None if there is none. Runs that were `ended` by an error are always tested, others if their
        motion grows.
    review : trajectory -> None
        Issues the warnings that a user should see about a rollout.
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
    recovery: Callable[[], ca.Function | None] = nothing
    inertias: Callable[[], Mapping[str, ca.SX]] = dict
    regressor: Callable[..., Any] = no_regressor
    implicit: Implicit | None = None
    limits: Callable[[], Mapping[str, ca.SX]] = dict
    relaxed: Callable[[], RelaxedStep | None] = nothing
    diverged: Callable[[Trajectory, bool], tuple[int, str] | None] = nothing
    review: Callable[[Trajectory], None] = nothing


def no_mechanism(f: OneStepMap) -> Mechanism:
    """Return the default `Mechanism` properties, for a map that does not describe a mechanism."""
    return Mechanism(f.state_names, np.ones(len(f.multiplier_names), bool), lambda ends: held_inputs(f, ends))


def held_inputs(f: OneStepMap, ends: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return two matrices for each substep, by which all substeps have the same input.
    The input of a substep is the first matrix times the step's state plus the second matrix times the
    step's input. Therefore the first matrix is zero, and the second is the identity.
    """
    return np.zeros((len(ends), f.nu, f.nx)), np.tile(np.eye(f.nu), (len(ends), 1, 1))
