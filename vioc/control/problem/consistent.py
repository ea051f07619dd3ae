"""What a free start of a mechanism with holonomic constraints has to keep."""

from __future__ import annotations

import casadi as ca
import numpy as np

from vioc.errors import ModelError
from vioc.maps.protocol import OneStepMap


def constraint_values(f: OneStepMap) -> tuple[list[ca.SX], list[set[str]]]:
    """h of a map with holonomic constraints, and the states that each depends on; empty without.

    And where errors are not differences of states.
    """
    if f.ndx != f.nx:
        return [], []
    try:
        h = [f.quantity(f"h.{name}") for name in f.multiplier_names]
    except ModelError:
        return [], []
    pattern = [np.array(ca.DM(ca.jacobian_sparsity(e, f.symbols.x), 1)).ravel() > 0 for e in h]
    return h, [{f.state_names[j] for j in np.flatnonzero(p)} for p in pattern]


def loose_start(
    f: OneStepMap, given: set[str], linked: frozenset[str] = frozenset(), before: frozenset[str] = frozenset()
) -> dict[str, ca.SX]:
    """h(q_0) = 0 and Dh(q_0) p_0 = 0, by name, where the states that are given leave them open.

    Momenta across a constraint move nothing: the first step's impulse takes them up.

    Parameters
    ----------
    f : OneStepMap
    given : set of str
        States whose first value is known, or is that of another sample.
    linked, before : set of str
        States that go on from an earlier motion, and the constraints that held along it.
    """
    h, depends = constraint_values(f)
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
