"""A step with contact in generalized coordinates as equations at any smoothing, for programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import casadi as ca
import numpy as np

from vioc.compile.evaluate import Evaluator
from vioc.dynamics.algebra.vectors import part
from vioc.dynamics.integrators.contact.derivatives import equations
from vioc.dynamics.integrators.contact.step import balance
from vioc.dynamics.lagrangian import OPTIONS
from vioc.maps.derivatives import Steps
from vioc.maps.relaxed import RelaxedStep

if TYPE_CHECKING:
    from vioc.dynamics.integrators.contact.map import ContactVI


def relaxed_step(f: ContactVI) -> RelaxedStep:
    """Unknowns are a step's multipliers, but of friction along what nothing moves (across the plane of a
    planar mechanism), and of each gap its velocity s = phi(q_k+1)/dt.
    """
    touches, names = f.touches.all, f.multiplier_names
    x, u, p, theta, dt = f.symbols
    x1, t, smoothing = ca.SX.sym("x_next", f.nx), ca.SX.sym("t"), ca.SX.sym("smoothing")
    s = ca.SX.sym("s", len(touches))
    V = (part(x1, 0, f.nd) - part(x, 0, f.nd)) / dt
    R, X = equations(f, x, u, V, p, t, dt, theta, smoothing * f.mass, s)
    at = balance(f, x, u, V, t, dt, theta)
    still = [n for touch, J in zip(touches, at.J, strict=True) for n in _still(touch, J)]
    kept = [i for i, n in enumerate(names) if n not in still]
    none = ca.SX.zeros(len(still))
    rows = [n for touch in touches for n in touch.multipliers]  # a law each
    laws = [i for i, n in enumerate(rows) if n not in still]
    first = f.nd + f.nm
    R = ca.vertcat(R[:first], R[[first + i for i in laws]], at.gaps - s)
    (R,) = ca.substitute([R], [p[[names.index(n) for n in still]]], [none])
    own = p[kept]
    w = ca.vertcat(own, s)
    known = ca.Function("w", [w, dt], [ca.substitute(p, p[[names.index(n) for n in still]], none)])
    function = ca.Function(
        "relaxed", [x, u, x1, w, t, dt, theta, smoothing], [ca.vertcat(R, x1[f.nd :] - X[f.nd :])], OPTIONS
    )
    positive = {n for touch in touches for n in (touch.name, f"{touch.name}.slip")}
    unknowns = (*(names[i] for i in kept), *(f"{touch.name}.gap" for touch in touches))
    lower = np.array(
        [0.0 if n in positive else -np.inf for n in unknowns[: len(kept)]] + [0.0] * len(touches)
    )
    states = f.state_names
    row_names = (
        *(f"dynamics.{n}" for n in states[f.nq : f.nq + f.nd]),
        *(f"h.{n}" for n in f.system.constraint_names),
        *(f"contact.{rows[i]}" for i in laws),
        *(f"gap.{touch.name}" for touch in touches),
        *(f"dynamics.{n}" for n in (*states[f.nd : f.nq], *states[: f.nd], *states[f.nq + f.nd :])),
    )
    begun = _start(f, kept)

    def start(steps: Steps, smoothing: float) -> np.ndarray:
        V = (steps.x1[:, : f.nd] - steps.x0[:, : f.nd]) / steps.h[:, None]
        given = steps.x0, steps.u, V, steps.t[:, None], steps.h[:, None]
        w = begun(*given, np.array([smoothing]), f.theta)[0][..., 0]
        return np.where(np.isfinite(w), w, 0.0)

    return RelaxedStep(function, row_names, unknowns, lower, np.full(len(lower), np.inf), known, start)


def _still(touch: Any, J: ca.SX) -> list[str]:
    """Multipliers of friction along directions in which nothing moves the second body past the first."""
    names = touch.multipliers[1:3]
    return [n for i, n in enumerate(names) if not J[1 + i, :].nnz()]


def _start(f: ContactVI, kept: list[int]) -> Evaluator:
    x, u, _, theta, dt = f.symbols
    V, t, smoothing = ca.SX.sym("V", f.nd), ca.SX.sym("t"), ca.SX.sym("smoothing")
    at, kappa = balance(f, x, u, V, t, dt, theta), smoothing * f.mass
    multipliers, s = [ca.SX.zeros(f.nm)], []
    for touch, w, mu in zip(f.touches.all, at.speeds, ca.vertsplit(f.touches.friction(theta)), strict=True):
        y = touch.cone.begin(w, ca.sqrt(smoothing), kappa, mu)
        multipliers.append(touch.cone.multipliers(y))
        s.append(y[0])
    w = ca.vertcat(ca.vertcat(*multipliers)[kept], *s)
    return Evaluator(ca.Function("start", [x, u, V, t, dt, smoothing, theta], [ca.densify(w)], OPTIONS))
