"""Derivatives of motions through contact events, whose time depends on the state.

docs/maths/phases.md, (saltation).
"""

from __future__ import annotations

from collections.abc import Sequence

import casadi as ca
import numpy as np

from vioc.maps.protocol import OneStepMap


def saltated(
    f: OneStepMap, x: np.ndarray, A: np.ndarray, drift: np.ndarray, gaps: Sequence[str]
) -> np.ndarray:
    """Return the corrected Jacobian of the first step after an impact.
    This saltation correction accounts for the time of the impact, which depends on the state. The result
    (ndx, ndx) replaces A[1].

    Parameters
    ----------
    f : OneStepMap
        Map that has the gaps as quantities of the state.
    x : (nx,)
        State between the step before the impact and the step after it.
    A : (2, ndx, ndx)
        Jacobians of the last step before and of the first step after the impact.
    drift : (2, ndx)
        Derivatives of the next states of these two steps with respect to their lengths.
    gaps : names
        Gaps that close at the impact.

    Notes
    -----
    If several gaps close there is no derivative, since it matters which one closes first. The mean of their
    closing times is used, and the remaining gaps are closed by displacements along the contact impulses.
    """
    phi = ca.vertcat(*(f.quantity(name) for name in gaps))
    slope = ca.Function("slope", [f.symbols.x, f.symbols.parameters], [ca.jacobian(phi, f.symbols.x)])
    J = np.asarray(slope(x, f.theta))
    closing = J @ drift[0]
    late = -(J / closing[:, None]).mean(axis=0)  # delay of the contact, s, by the error at x
    result = A[1] + np.outer(A[1] @ drift[0] - drift[1], late)
    if len(gaps) == 1:
        return result
    q = [i for i, name in enumerate(f.state_names) if f"p.{name}" in f.state_names]
    p = [f.state_names.index(f"p.{f.state_names[i]}") for i in q]
    inverse = A[0][np.ix_(q, p)]  # of the mass matrix, times the step length
    right_sides = J + np.outer(closing, late)
    push = np.zeros((len(x), len(gaps)))
    push[q] = inverse @ J[:, q].T
    return result - A[1] @ push @ np.linalg.solve(J @ push, right_sides)
