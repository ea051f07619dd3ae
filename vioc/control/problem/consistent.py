"""Consistency of initial states and curves with holonomic constraints."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import cached_property
from typing import Any, NamedTuple

import casadi as ca
import numpy as np
from scipy.linalg import null_space, qr

from vioc.compile.evaluate import Evaluator
from vioc.errors import ConstraintError
from vioc.maps.made.around import MapAround
from vioc.maps.made.switched import SwitchedMap
from vioc.maps.protocol import OneStepMap

# Largest number of corrections, and largest ratio of successive ones. The first one is at most one size of
# the states: a larger one would lead to another way of assembling the loop.
CORRECTIONS, CONTRACTION = 8, 0.5
ONTO = 1e-8  # corrections below this fraction of the sizes of states are not made
DEPENDENT = 1e-9  # ratio of singular values below which constraints depend on each other
REGULAR = 1e-12  # regularization where constraints depend on each other, for gradients of length 1


class ConstraintProjection:
    """Projection of states onto the holonomic constraints h(q) = 0 of a map.

    Joint variables change by the smallest amount that satisfies the constraints, in units of the sizes of
    states. Momenta do not change, since the next step absorbs their components along the gradients of h.
    States on a straight line or after a Newton step violate the constraints. A time step from such a state
    ends at h = 0, so it adds velocities of about -h/dt that the motion does not have.

    No state changes if the map has no constraints, or if its steps are those of several maps in turn
    (`SwitchedMap`), which have different constraints.

    Parameters
    ----------
    f : OneStepMap
    sizes : (nx,)
        Typical magnitudes of states.
    """

    def __init__(self, f: OneStepMap, sizes: np.ndarray):
        names = f.state_names
        self._f, self._sizes = f, sizes
        bound = f.multiplier_names and not _switches(f)
        self._at = [j for j, name in enumerate(names) if bound and f"p.{name}" in names]

    @cached_property
    def _values(self) -> Evaluator | None:
        """Values and derivatives of the constraints; None without constraints."""
        h, s = ca.vertcat(ca.SX(0, 1), *(c.value for c in holonomic_constraints(self._f))), self._f.symbols
        slopes = ca.jacobian(h, s.x)
        moves = slopes[:, self._at].nnz()
        return Evaluator(ca.Function("onto", [s.x, s.parameters], [h, slopes])) if moves else None

    def __call__(self, X: np.ndarray, values: np.ndarray | None = None) -> np.ndarray:
        """Return the states X (N, nx), with joint variables that satisfy h(q) = values.

        `values` (N, m) are 0 by default. A state is returned unchanged if its first correction is below the
        fraction `ONTO` of the sizes, if its corrections do not contract, or if they are too many. A
        constraint that no joint variable affects is ignored.
        """
        if not self._at or self._values is None:
            return X
        X, moved, left, before = X.copy(), X.copy(), np.arange(len(X)), np.full(len(X), 1 / CONTRACTION)
        for _ in range(CORRECTIONS):
            by = self._correction(moved[left], 0.0 if values is None else values[left])
            size = np.linalg.norm(by, axis=1)
            X[left[size <= ONTO]] = moved[left[size <= ONTO]]
            go = (size > ONTO) & (size <= CONTRACTION * before[left])  # false for NaN
            left = left[go]
            before[left] = size[go]
            moved[np.ix_(left, self._at)] += by[go] * self._sizes[self._at]
            if not len(left):
                break
        return X

    def predicted(self, X: np.ndarray, change: np.ndarray) -> np.ndarray | None:
        """Predict the values (N, m) of the constraints after a change of states.
        The constraints are linearized about the states X (N, nx), and `change` has the same shape. Return
        None without constraints.
        """
        if not self._at or self._values is None:
            return None
        h, J = self._values(X, self._f.theta)
        return np.asarray(h[..., 0] + np.einsum("kij,kj->ki", J, change))

    def _correction(self, X: np.ndarray, values: np.ndarray | float) -> np.ndarray:
        """Return the smallest corrections that give linearized constraints given values.
        They are changes (N, joint variables), in units of the sizes.
        """
        assert self._values is not None
        h, J = self._values(X, self._f.theta)
        J = J[:, :, self._at] * self._sizes[self._at]
        length = np.linalg.norm(J, axis=2, keepdims=True)
        length[length == 0] = 1.0  # a constraint that nothing moves
        J, h = J / length, (h[..., 0] - values)[..., None] / length
        square = J @ J.swapaxes(1, 2) + REGULAR * np.eye(J.shape[1])
        return -np.asarray(J.swapaxes(1, 2) @ np.linalg.solve(square, h))[..., 0]


def _switches(f: OneStepMap) -> bool:
    """Return True if the steps of a map are those of several maps in turn."""
    return isinstance(f, SwitchedMap) or (isinstance(f, MapAround) and _switches(f.inner))


class HolonomicConstraint(NamedTuple):
    """Holonomic constraint of a map, with its value h as an expression.

    `states` are the names of the states and free parameters on which h depends.
    """

    name: str
    value: ca.SX
    states: set[str]


def holonomic_constraints(f: OneStepMap, parameters: Collection[str] = ()) -> list[HolonomicConstraint]:
    """Return the holonomic constraints h = 0 of a map.

    Contacts that may open, friction and constraints on velocities also have multipliers, but are no holonomic
    constraints. The list is empty if the errors of the map's states are not differences of states.
    `parameters` are the names of free parameters. A map whose steps are those of several maps in turn has the
    constraints of all of them.
    """
    if f.ndx != f.nx:
        return []
    known, names = set(f.quantities.names()), [*f.state_names, *f.parameters]
    by = ca.vertcat(f.symbols.x, f.symbols.parameters)
    fixed, found = {*f.parameters} - {*parameters}, []
    for name in f.multiplier_names:
        if f"h.{name}" in known:
            h = f.quantity(f"h.{name}")
            pattern = np.array(ca.DM(ca.jacobian_sparsity(h, by), 1)).ravel() > 0
            states = {names[j] for j in np.flatnonzero(pattern)} - fixed
            if states:
                found.append(HolonomicConstraint(name, h, states))
    return found


def _first_map(f: OneStepMap) -> OneStepMap:
    """Return the map that takes the first step, without the maps that wrap it."""
    if isinstance(f, SwitchedMap):
        return _first_map(f.maps[0])
    return _first_map(f.inner) if isinstance(f, MapAround) else f


def across_constraints(f: OneStepMap, x: np.ndarray) -> dict[str, bool]:
    """Return the names of momenta of constrained joint variables, each with a flag.
    A variable is constrained if a holonomic constraint depends on it. The flag is True if the velocity of the
    variable belongs to a largest set of velocities that are independent of each other at the state x (nx,).
    The velocities of this set determine the others.

    The component of the momentum along the gradient of a constraint has no effect on the motion. Velocities
    are compared by their kinetic energies, so that the set does not depend on units. All flags are True if
    the steps are those of several maps in turn, since the last of these may have fewer constraints.
    """
    constraints = holonomic_constraints(f)
    bound = {state for c in constraints for state in c.states}
    momenta = [f"p.{n}" for n in f.state_names if n in bound and f"p.{n}" in f.state_names]
    if not momenta or _switches(f):
        return dict.fromkeys(momenta, True)
    names = [n[2:] for n in momenta]
    at = [f.state_names.index(n) for n in names]
    h = ca.vertcat(*(c.value for c in constraints))
    slopes = ca.Function("Dh", [f.symbols.x, f.symbols.parameters], [ca.jacobian(h, f.symbols.x)[:, at]])
    J = np.array(slopes(x, f.theta)) * _speeds(f, names)
    free = null_space(J / np.where(J.any(axis=1), np.linalg.norm(J, axis=1), 1.0)[:, None], rcond=DEPENDENT)
    chosen = qr(free.T, mode="r", pivoting=True)[1][: free.shape[1]]
    return {n: j in chosen for j, n in enumerate(momenta)}


def check_last_values(f: OneStepMap, values: Mapping[str, Any], parameters: Collection[str] = ()) -> None:
    """Raise `ConstraintError` if prescribed last values violate a constraint.

    No motion then has these values. A holonomic constraint is tested if all states on which it depends have
    prescribed values. `parameters` are the names of free parameters. A map whose steps are those of several
    maps in turn is not tested, since the last of these may have fewer constraints.
    """
    first = _first_map(f)
    lagrangian = getattr(first, "whole", None)
    if _switches(f) or lagrangian is None:
        return
    variables = lagrangian.system.variables  # other states, such as free lengths, are no part of q
    fixed = {n: float(v) for n, v in values.items() if isinstance(v, (int, float)) and n in variables}
    tested = {c.name for c in holonomic_constraints(f, parameters) if c.states <= fixed.keys()}
    if not tested:
        return
    q = np.array([fixed.get(n, 0.0) for n in variables])
    for name, value in lagrangian.violated_constraints(q, **first.parameters).items():
        if name in tested:
            raise ConstraintError(
                f"final: the last state violates {name}: h = {value:.3g}, expected 0, so no motion ends "
                "there; find a configuration with consistent_configuration(system, guess)"
            )


def _speeds(f: OneStepMap, names: list[str]) -> np.ndarray:
    """Return velocities (n,) of joint variables with equal kinetic energies.
    They are known up to a common factor.
    """
    first = _first_map(f)
    if not hasattr(first, "lagrangian"):
        return np.ones(len(names))
    values = first.lagrangian.mass_scale_with(first.parameters)
    masses = dict(zip(first.lagrangian.system.dynamic, values.tolist(), strict=True))
    return np.array([masses.get(n, 1.0) for n in names]) ** -0.5


def loose_start(
    f: OneStepMap,
    given: set[str],
    parameters: Collection[str] = (),
    linked: frozenset[str] = frozenset(),
    before: frozenset[str] = frozenset(),
) -> dict[str, ca.SX]:
    """Return the constraints of a partly free initial state, as expressions by name.

    They are h(q_0) = 0 and Dh(q_0) p_0 = 0 for the holonomic constraints h of the first step. Constraints
    that the given states already imply are omitted, unless they depend on free parameters. The second
    equation fixes the component of the momentum along the gradient of h. This component has no effect on the
    motion, since the impulse of the first step absorbs it.

    Parameters
    ----------
    f : OneStepMap
    given : set of str
        States whose first value is known, or equals that of another sample.
    parameters : names
        Free parameters.
    linked, before : set of str
        States that continue an earlier motion, and the constraints of that motion.
    """
    x, found, first = f.symbols.x, {}, {c.name for c in holonomic_constraints(_first_map(f))}
    for name, value, states in holonomic_constraints(f, parameters):
        if name not in first:
            continue
        carried = name in before and states <= linked
        if not (states <= given or carried):
            found[f"initial h.{name}"] = value
        momenta = {f"p.{s}" for s in states if f"p.{s}" in f.state_names}
        if momenta and not momenta & (given | linked):
            slopes = ca.jacobian(value, x)
            pairs = [(f.state_names.index(p[2:]), f.state_names.index(p)) for p in sorted(momenta)]
            found[f"initial momentum across {name}"] = sum((slopes[q] * x[p] for q, p in pairs), ca.SX(0))
    return found
