"""Consistency of a free initial state with holonomic constraints."""

from __future__ import annotations

from collections.abc import Collection

import casadi as ca
import numpy as np

from vioc.errors import ModelError
from vioc.maps.protocol import OneStepMap


def constraint_values(f: OneStepMap, parameters: Collection[str] = ()) -> tuple[list[ca.SX], list[set[str]]]:
    """Return the holonomic constraints of a map as expressions.
    The names of the states and free parameters in each constraint are returned, too.

    The constraints are expressions h. Variables are states and free `parameters`. Both lists are empty
    without constraints, and if errors are not differences of states.
    """
    if f.ndx != f.nx:
        return [], []
    try:
        h = [f.quantity(f"h.{name}") for name in f.multiplier_names]
    except ModelError:
        return [], []
    names = [*f.state_names, *f.parameters]
    by = ca.vertcat(f.symbols.x, f.symbols.parameters)
    pattern = [np.array(ca.DM(ca.jacobian_sparsity(e, by), 1)).ravel() > 0 for e in h]
    fixed = {*f.parameters} - {*parameters}
    return h, [{names[j] for j in np.flatnonzero(p)} - fixed for p in pattern]


def across_constraints(f: OneStepMap) -> list[str]:
    """Return the names of the momenta that belong to constrained joint variables.
    A variable is constrained if a holonomic constraint depends on it. The component of the momentum along the
    gradient of the constraint has no effect on the motion.
    """
    _, depends = constraint_values(f)
    bound = {f"p.{name}" for names in depends for name in names}
    return [name for name in f.state_names if name in bound]


def loose_start(
    f: OneStepMap,
    given: set[str],
    parameters: Collection[str] = (),
    linked: frozenset[str] = frozenset(),
    before: frozenset[str] = frozenset(),
) -> dict[str, ca.SX]:
    """Return the holonomic constraints that a partly free initial state must satisfy.
    Constraints that the given states already imply are omitted.

    They are h(q_0) = 0 and Dh(q_0) p_0 = 0, unless the given states imply them; free parameters leave them
    open, too. A momentum across a constraint moves nothing: the impulse of the first step absorbs it.

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
    h, depends = constraint_values(f, parameters)
    x, found = f.symbols.x, {}
    for name, value, states in zip(f.multiplier_names, h, depends, strict=False):
        carried = name in before and states <= linked
        if not (states <= given or carried):
            found[f"initial h.{name}"] = value
        momenta = {f"p.{s}" for s in states if f"p.{s}" in f.state_names}
        if momenta and not momenta & (given | linked):
            slopes = ca.jacobian(value, x)
            pairs = [(f.state_names.index(p[2:]), f.state_names.index(p)) for p in sorted(momenta)]
            found[f"initial momentum across {name}"] = sum((slopes[q] * x[p] for q, p in pairs), ca.SX(0))
    return found
