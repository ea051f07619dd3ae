"""Derivatives of a step in error-state coordinates, by the implicit function theorem."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import casadi as ca
import numpy as np

from vioc.compile.evaluate import Evaluator
from vioc.dynamics.algebra import rotations as rot
from vioc.dynamics.integrators.maximal import space
from vioc.dynamics.integrators.maximal.equations import Assembly, Balance, Held
from vioc.dynamics.integrators.maximal.features import NUMBERS
from vioc.dynamics.integrators.maximal.space import STATE, TWIST
from vioc.dynamics.lagrangian import OPTIONS
from vioc.errors import StepError
from vioc.maps.derivatives import Linearization, SecondOrder, Steps

if TYPE_CHECKING:
    from vioc.dynamics.integrators.maximal.map import MaximalVI


@dataclass(frozen=True)
class First:
    """First derivatives along N steps, and what the second ones need of them.

    Attributes
    ----------
    arguments : tuple of arrays
        Of the equations' functions.
    solved : (N, 2 nw, ny)
        d(V, multipliers; velocities, multipliers of the end) by y = (errors, inputs, parameters).
    slopes : list of arrays
        Of both ends' equations and of the next error, by both ends' unknowns: R_w, S_w, S_n, X_w, X_n.
    linearization : Linearization
    """

    arguments: tuple
    solved: np.ndarray
    slopes: list[np.ndarray]
    linearization: Linearization


class StepDerivatives:
    """Linearization and z-contracted second derivatives of a map's step.

    Parameters
    ----------
    f : MaximalVI
    """

    def __init__(self, f: MaximalVI):
        self.f = f
        self.sizes = f.ndx, f.nu, len(f.parameters)

    @cached_property
    def _equations(self) -> tuple:
        """Symbols (x, x_next, u, w, n, t, dt, theta, places), errors e; R, S, X: equations and next error.

        R determines w = (V, multipliers) of leaving x, S then n = (velocities, multipliers) of arriving.
        Rotations are retracted by (1 - |phi|^2/8, phi/2) and compared by phi = 2 v: both are exp and log of
        the quaternions up to third order, so two derivatives at zero are exact.
        """
        f, graph = self.f, self.f.graph
        n, at = graph.n, STATE * graph.n
        x, x1, e = ca.SX.sym("x", f.nx), ca.SX.sym("x1", f.nx), ca.SX.sym("e", f.ndx)
        u, theta = f.symbols.u, f.symbols.parameters
        size = TWIST * n + len(f.multiplier_names)
        w, m = ca.SX.sym("w", size), ca.SX.sym("n", size)
        t, dt = ca.SX.sym("t"), ca.SX.sym("dt")
        places = ca.SX.sym("places", NUMBERS * len(graph.places))
        (V, lam), (nu, mu) = ((a[: TWIST * n], a[TWIST * n :]) for a in (w, m))
        moved = f.retract_expression(x, e)
        z = ca.vertsplit(moved[:at], STATE)
        E = Assembly(graph, u, t + 0.5 * dt, dt, theta, None, places)
        held = E.held(E.poses(z))
        gone = E.leave(V, E.kicked(E.momenta(moved[at:]), held.Z), held)
        R = self._stacked(E, gone, held, lam)
        there = E.held(gone.next, arrival=True)
        S = self._stacked(E, E.arrive(nu, E.landed(V, there.Z), there), there, mu)

        rows: list[Any] = []
        for i, v in enumerate(ca.vertsplit(V, TWIST)):
            q = rot.multiply(tuple(ca.vertsplit(z[i][3:])), rot.turn((v[3], v[4], v[5]), dt))
            goal = tuple(ca.vertsplit(x1[STATE * i + 3 : STATE * i + STATE]))
            turned = rot.multiply(rot.conjugate(goal), q)
            rows += [z[i][:3] + dt * v[:3] - x1[STATE * i : STATE * i + 3], *(2 * c for c in turned[1:])]
        X = ca.vertcat(*rows, nu - x1[at:])
        return (x, x1, u, w, m, t, dt, theta, places), e, R, S, X

    def _stacked(self, E: Assembly, at: Balance, held: Held, multipliers: ca.SX) -> ca.SX:
        """The equations of one end of a step: momenta, constraints, laws of the touches."""
        graph = self.f.graph
        own = E.on.split(multipliers, [len(graph.names), *(len(t.multipliers) for t in graph.touches)])
        pushes, laws = E.lawful(at, held, own[1:], self.f.barrier)
        left = E.left(at, held, E.by_group(own[0]), pushes)
        return ca.vertcat(*(-r for r in left), *at.values, *laws)

    @cached_property
    def residual(self) -> ca.Function:
        """(x, u, x_next, multipliers, t, dt, parameters) -> the step's equations (nx + multipliers,)."""
        (x, x1, u, w, _, t, dt, theta, _), e, R, _, _ = self._equations
        graph, total = self.f.graph, self.f.symbols.multipliers
        cut = STATE * graph.n
        starts, goals = (ca.vertsplit(a[:cut], STATE) for a in (x, x1))
        V = ca.vertcat(*(graph.between(a, b, dt) for a, b in zip(starts, goals, strict=True)))
        E = Assembly(graph, u, t + 0.5 * dt, dt, theta)
        there = E.held(E.poses(goals), arrival=True)
        velocities, arriving = E.project(there, E.landed(V, there.Z))
        known = ca.vertcat(V, total - arriving)
        (R,) = ca.substitute([R], [e, w], [ca.SX.zeros(e.numel()), known])
        norms = [ca.sumsqr(z[3:]) - 1 for z in goals]
        equations = ca.vertcat(*norms, R, x1[cut:] - velocities)
        return ca.Function("residual", [x, u, x1, total, t, dt, theta], [ca.densify(equations)], OPTIONS)

    @cached_property
    def _first(self) -> Evaluator:
        args, e, R, S, X = self._equations
        w, m = args[3:5]
        y = ca.vertcat(e, args[2], args[7])
        pairs = [(R, y), (R, w), (S, y), (S, w), (S, m), (X, y), (X, w), (X, m)]
        outputs = [ca.substitute(ca.jacobian(r, v), e, ca.SX.zeros(e.numel())) for r, v in pairs]
        outputs = [ca.densify(o) for o in outputs]
        return Evaluator(self.f.backend.prepare(ca.Function("first", list(args), outputs, OPTIONS)))

    @cached_property
    def _second(self) -> Evaluator:
        args, e, R, S, X = self._equations
        w, m = args[3:5]
        adjoints = [ca.SX.sym(name, a.numel()) for name, a in (("r", R), ("s", S), ("z", X))]
        whole = ca.vertcat(e, args[2], args[7], w, m)
        r, s, weight = adjoints
        scalar = ca.dot(weight, X) - ca.dot(r, R) - ca.dot(s, S)  # multipliers are unknowns: no curvature
        H = ca.substitute(ca.hessian(scalar, whole)[0], e, ca.SX.zeros(e.numel()))
        function = ca.Function("second", [*args, *adjoints], [ca.densify(H)], OPTIONS)
        return Evaluator(self.f.backend.prepare(function))

    @cached_property
    def _ends(self) -> Evaluator:
        """Of maps without contact, the two ends' equations, linear in multipliers, and their slopes."""
        args, e, R, S, _ = self._equations
        w, m = (a[TWIST * self.f.graph.n :] for a in args[3:5])
        zeros = ca.SX.zeros(e.numel())
        outputs = [
            ca.densify(ca.substitute(o, e, zeros)) for o in (R, ca.jacobian(R, w), S, ca.jacobian(S, m))
        ]
        return Evaluator(ca.Function("ends", list(args), outputs, OPTIONS))

    def _unknowns(self, X0, X1, U, t, dt, theta) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Twists and multipliers of both ends (N, nw) of steps from X0 to X1, and places that they hold."""
        f, at = self.f, STATE * self.f.graph.n
        V, N = space.between(f.graph.n, X0, X1, dt), len(X0)
        if f.graph.touches:  # impulses of touches may not be unique, but those of their laws
            rows = zip(X0, U, t, dt, strict=True)
            steps = [f.interior.solve(x, u, float(a[0]), float(h[0]), theta) for x, u, a, h in rows]
            w, m = (np.stack([step.ends[i].unknowns for step in steps]) for i in (0, -1))
            return w, m, np.stack([step.held for step in steps])
        none = np.zeros((N, len(f.multiplier_names)))
        w, m = np.hstack([V, none]), np.hstack([X1[:, at:], none])
        R, R_lam, S, S_mu = self._ends(X0, X1, U, w, m, t, dt, theta, np.empty((N, 0)))
        for unknown, r, slope in ((w, R, R_lam), (m, S, S_mu)):
            unknown[:, V.shape[1] :] = -(np.linalg.pinv(slope) @ r)[..., 0]
        return w, m, np.empty((N, 0))

    def first(self, steps: Steps, theta: np.ndarray) -> First:
        """Along N solved steps."""
        f, n = self.f, self.f.graph.n
        X0, X1, U, t, dt = steps.x0, steps.x1, steps.u, steps.t[:, None], steps.h[:, None]
        w, m, places = self._unknowns(X0, X1, U, t, dt, theta)
        arguments = (X0, X1, U, w, m, t, dt, theta, places)
        R_y, R_w, S_y, S_w, S_m, X_y, X_w, X_m = self._first(*arguments)
        try:
            leaving = -np.linalg.solve(R_w, R_y)
            arriving = -np.linalg.solve(S_m, S_y + S_w @ leaving)
        except np.linalg.LinAlgError:
            leaving, arriving = (np.full((len(w), len(w[0]), R_y.shape[2]), np.nan) for _ in range(2))
        solved = np.concatenate([leaving, arriving], axis=1)
        if not np.isfinite(solved).all():
            k = int(steps.k[np.argmin(np.isfinite(solved).all(axis=(1, 2)))])
            raise StepError(
                f"step {k} cannot be linearized: the constraints are dependent there; change the "
                "motion, or remove redundant constraints",
                k,
                np.inf,
                "singular constraints",
            )
        whole = X_y + X_w @ leaving + X_m @ arriving
        first = np.where(f.slips[:, None], 0.0, leaving[:, TWIST * n :])
        impulses = first + arriving[:, TWIST * n :]
        lin = Linearization.of(whole, impulses, f.nu)
        return First(arguments, solved, [R_w, S_w, S_m, X_w, X_m], lin)

    def second(self, first: First, Z: np.ndarray, zeta: np.ndarray) -> SecondOrder:
        """z- and zeta-contracted Hessians along the steps of `first`."""
        R_w, S_w, S_m, X_w, X_m = (np.swapaxes(a, 1, 2) for a in first.slopes)
        n = TWIST * self.f.graph.n
        leaving, arriving = X_w @ Z[..., None], X_m @ Z[..., None]
        leaving[:, n:] += np.where(self.f.slips, 0.0, zeta)[..., None]
        arriving[:, n:] += zeta[..., None]
        s = np.linalg.solve(S_m, arriving)
        r = np.linalg.solve(R_w, leaving - S_w @ s)
        H = self._second(*first.arguments, r[..., 0], s[..., 0], Z)[0]
        ny = sum(self.sizes)
        T = first.solved
        mixed = H[:, :ny, ny:] @ T
        full = H[:, :ny, :ny] + mixed + np.swapaxes(mixed, 1, 2) + np.swapaxes(T, 1, 2) @ H[:, ny:, ny:] @ T
        return SecondOrder.of(full, self.f.ndx, self.f.nu)
