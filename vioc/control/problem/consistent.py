"""What a free start of a mechanism with holonomic constraints has to keep."""

from __future__ import annotations

from collections.abc import Collection

import casadi as ca
import numpy as np

from vioc.errors import ModelError
from vioc.maps.protocol import OneStepMap


def constraint_values(f: OneStepMap, parameters: Collection[str] = ()) -> tuple[list[ca.SX], list[set[str]]]:
    """h of a map with holonomic constraints, and the states and those of `parameters` that each depends on;
    empty without, and where errors are not differences of states.
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
    """Momenta of variables that holonomic constraints depend on: what these have across them is free."""
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
    """h(q_0) = 0 and Dh(q_0) p_0 = 0, by name, where the states that are given leave them open, or free
    parameters do.

    Momenta across a constraint move nothing: the first step's impulse takes them up.

    Parameters
    ----------
    f : OneStepMap
    given : set of str
        States whose first value is known, or is that of another sample.
    parameters : names
        Those that are free.
    linked, before : set of str
        States that go on from an earlier motion, and the constraints that held along it.
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
