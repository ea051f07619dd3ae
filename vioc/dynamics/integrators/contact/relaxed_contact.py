"""Equations of a step with contact as a part of optimization problems, for any smoothing.

The coordinates are generalized ones. docs/maths/contact_implicit.md
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import casadi as ca
import numpy as np

from vioc.dynamics.algebra.vectors import part
from vioc.dynamics.contact.laws import kind_unit, law_of
from vioc.dynamics.contact.touch import unit_of
from vioc.dynamics.integrators.contact.contact_step import balance
from vioc.maps.relaxed import RelaxedStep, relaxed_step

if TYPE_CHECKING:
    from vioc.dynamics.integrators.contact.contact_vi import ContactVI


def relaxed(f: ContactVI) -> Callable[[np.ndarray, float], RelaxedStep]:
    """Return a function that builds the equations of a step with contact.
    The arguments of the function are the parameters and the smoothing of contacts. The equations are for
    optimization problems. Their unknowns besides the next state are the constraint impulses, then the gap
    velocities, impulses and other variables of each contact. If the mechanism cannot move a contact point in
    some tangential direction, such as across the plane of a planar mechanism, there is no friction in this
    direction.
    """
    x, u, _, theta, dt = f.symbols
    x1, t, smoothing, give = ca.SX.sym("x_next", f.nx), *map(ca.SX.sym, ("t", "smoothing", "give"))
    V, kappa = (part(x1, 0, f.nd) - part(x, 0, f.nd)) / dt, smoothing * f.mass
    terms = balance(f, x, u, V, t, dt, theta)
    slopes = (J[touch.lead :, :] for touch, J in zip(f.touches.all, terms.J, strict=True))
    laws = [law_of(touch.cone, _moving(J)) for touch, J in zip(f.touches.all, slopes, strict=True)]
    sizes = [f.nm, *(len(law.unknowns) for law in laws)]
    w = ca.SX.sym("w", sum(sizes))
    lam, *z = ca.vertsplit(w, np.cumsum([0, *sizes]).tolist())

    push, rows, multipliers, guess = -terms.Dh0[:, : f.nd].T @ lam, [], [lam], [ca.SX.zeros(f.nm)]
    for law, values, speeds, J, mu in zip(
        laws, z, terms.speeds, terms.J, f.touches.loads(theta, dt), strict=True
    ):
        if law.cone.gap:
            speeds = ca.vertcat(speeds[0] + give / dt, speeds[1:])
        push = push + J.T @ law.impulse(values, mu)
        rows.append(law.equations(values, speeds, kappa, mu))
        multipliers.append(law.multipliers(values, mu))
        guess.append(law.start(speeds, ca.sqrt(smoothing), kappa, mu))
    momentum = part(x, f.nq, f.nq + f.nd) + terms.parts.impulse + push
    x_next = ca.vertcat(part(terms.q1, f.nd), momentum, part(terms.rates, f.nd))
    each = zip(f.touches.all, laws, strict=True)
    contact_unknowns, units = [], list[str]()
    for touch, law in each:
        gap = unit_of(f.system, "gap", touch.name, f.system.angles)
        contact_unknowns += [
            (f"{touch.name}: {n}", low, kind_unit(kind, gap)) for n, low, kind in law.unknowns
        ]
        units += [kind_unit(kind, gap) for kind in law.kinds]
    unknowns = [*((f"lambda.{n}", -np.inf, "") for n in f.system.constraint_names), *contact_unknowns]
    states = f.state_names
    names = (
        *(f"dynamics.{n}" for n in states[f.nq : f.nq + f.nd]),
        *(f"h.{n}" for n in f.system.constraint_names),
        *(n for n, *_ in contact_unknowns),
        *(f"dynamics.{n}" for n in (*states[f.nd : f.nq], *states[f.nq :])),
    )
    equations = ca.vertcat(terms.parts.balance + push, terms.h, *rows, x1[f.nd :] - x_next)
    offset = f.nd + f.nm
    units = [*offset * [""], *units, *(len(names) - offset - len(units)) * [""]]
    pairs = list(zip(names, ca.vertsplit(equations), units, strict=True))
    args = [x, u, x1, w, t, dt, theta, smoothing, give]
    contacts = [touch.name for touch in f.touches.all if touch.cone.gap]
    return relaxed_step(args, pairs, unknowns, ca.vertcat(*multipliers), ca.vertcat(*guess), contacts)


def _moving(slopes: ca.SX) -> list[int]:
    """Return the indices of tangential directions in which a contact can slip.
    The argument `slopes` is the derivative of the slip velocity with respect to the velocities of the
    variables; a direction with a zero derivative is omitted.
    """
    return [i for i in range(slopes.shape[0]) if slopes[i, :].nnz()]
