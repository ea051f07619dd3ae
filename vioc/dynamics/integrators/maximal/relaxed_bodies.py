"""Equations of a step with contact in maximal coordinates, for optimization at any smoothing.

They serve optimization problems. The unknowns w are the impulses of the constraints and the variables of the
cones, first at the start of a step, then at its end. The twists of the step follow from its poses.
docs/maths/contact_implicit.md.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import casadi as ca
import numpy as np

from vioc.dynamics.contact.laws import kind_unit
from vioc.dynamics.contact.touch import unit_of
from vioc.dynamics.integrators.maximal.body_equations import Assembly
from vioc.dynamics.integrators.maximal.body_space import STATE, TWIST_NAMES
from vioc.dynamics.integrators.maximal.geometry import opened_share
from vioc.maps.relaxed import RelaxedStep, relaxed_step

if TYPE_CHECKING:
    from vioc.dynamics.integrators.maximal.maximal_vi import MaximalVI

ENDS = "leaving", "arriving"


def relaxed(f: MaximalVI) -> Callable[[np.ndarray, float], RelaxedStep]:
    """Return a function that builds the equations of a step with contact.
    The arguments of the function are the parameters and the smoothing of contacts. The equations are for
    optimization problems. Their unknowns besides the next state are the constraint impulses and the variables
    of each contact, both at the start and at the end of the step.
    """
    graph, laws = f.graph, [t.geometry.law for t in f.graph.touches]
    sizes = [len(graph.names), *(len(law.unknowns) for law in laws)]
    x, x1, u = ca.SX.sym("x", f.nx), ca.SX.sym("x1", f.nx), f.symbols.u
    w, theta = ca.SX.sym("w", 2 * sum(sizes)), f.symbols.parameters
    t, dt, smoothing, give = map(ca.SX.sym, ("t", "dt", "smoothing", "give"))
    kappa, split = 0.5 * smoothing * f.mass, STATE * graph.n
    E = Assembly(graph, u, t + 0.5 * dt, dt, theta)
    (lam, *y), (mu, *z) = (E.on.split(half, sizes) for half in ca.vertsplit(w, sum(sizes)))

    starts, goals = (ca.vertsplit(a[:split], STATE) for a in (x, x1))
    V = ca.vertcat(*(graph.between(a, b, dt) for a, b in zip(starts, goals, strict=True)))
    start, finish = E.held(E.poses(starts)), E.held(E.poses(goals), arrival=True)
    leaving = E.leave(V, E.kicked(E.momenta(x[split:]), start.Z), start)
    arriving = E.arrive(x1[split:], E.landed(V, finish.Z), finish)
    gaps = [a + give / dt for a in leaving.gaps]
    opening = [(a, 1) for a in gaps]
    closing = [
        opened_share(
            s,
            sum(n @ arriving.V[i] for n, i in zip(level[1:], t.bodies, strict=True)),
            smoothing,
            t.geometry.unit / dt,
        )
        if t.cone.gap
        else (s, 1)
        for t, s, level in zip(graph.touches, gaps, finish.levels, strict=True)
    ]

    def rows(balance: Any, constants: Any, gaps: list, impulses: Any, cone: list) -> list[Any]:
        pushes, laws = E.relaxed(balance, constants, gaps, cone, kappa)
        return [
            *(-r for r in E.left(balance, constants, E.by_group(impulses), pushes)),
            *balance.values,
            *laws,
        ]

    norms = [ca.sumsqr(q[3:]) - 1 for q in goals]
    equations = [*norms, *rows(leaving, start, opening, lam, y), *rows(arriving, finish, closing, mu, z)]
    args = [x, u, x1, w, t, dt, theta, smoothing, give]
    gaps_in = {t.name: unit_of(f.system, "gap", t.name, f.states.periods) for t in graph.touches}
    labels = [(f"norm.{b}", "1") for b in f.bodies]
    for end in ENDS:
        labels += [
            (f"{end} {c}.{b}", "kg m/s" if c[0] == "v" else "kg m^2/s") for b in f.bodies for c in TWIST_NAMES
        ]
        labels += [(f"{end} {n}", "") for n in graph.names]
        labels += [
            (f"{end} {t.name}:{i}", kind_unit(kind, gaps_in[t.name]))
            for t in graph.touches
            for i, kind in enumerate(t.geometry.law.kinds)
        ]
    unknowns = [
        (f"{end} {n}", low, unit)
        for end in ENDS
        for n, low, unit in (
            *((n, -np.inf, "") for n in graph.names),
            *(
                (f"{t.name}: {what}", low, kind_unit(kind, gaps_in[t.name]))
                for t in graph.touches
                for what, low, kind in t.geometry.law.unknowns
            ),
        )
    ]
    parts = (
        [t.geometry.multipliers(own, d) for t, own, d in zip(graph.touches, side, start.data, strict=True)]
        for side in (y, z)
    )
    first, second = (ca.vertcat(i, *p) for i, p in zip((lam, mu), parts, strict=True))
    whole = ca.if_else(ca.DM(f.additive.astype(float)), first, 0) + second

    def cone_guess(balance: Any, constants: Any, gaps: list) -> list[Any]:
        touches = zip(graph.touches, constants.J, gaps, constants.data, strict=True)
        return [
            t.geometry.started(J, a, [balance.V[i] for i in t.bodies], ca.sqrt(smoothing), kappa, d, share)
            for t, J, (a, share), d in touches
        ]

    zeros = ca.SX.zeros(len(graph.names))
    guess = [zeros, *cone_guess(leaving, start, opening), zeros, *cone_guess(arriving, finish, closing)]
    rows_of = zip(labels, ca.vertsplit(ca.vertcat(*equations)), strict=True)
    pairs = [(name, row, unit) for (name, unit), row in rows_of]
    contacts = [touch.name for touch in graph.touches if touch.cone.gap]
    return relaxed_step(args, pairs, unknowns, whole, ca.vertcat(*guess), contacts)
