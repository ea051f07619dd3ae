"""Conversions between states in maximal coordinates and joint variables."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import casadi as ca
import numpy as np

from vioc.checks import near_misses
from vioc.compile.evaluate import Evaluator
from vioc.dynamics.algebra import rotations as rot
from vioc.dynamics.algebra import vectors as vec
from vioc.dynamics.consistency import CLOSED, DRIFT, constraint_rank
from vioc.dynamics.finite import not_finite
from vioc.dynamics.integrators.maximal.body_equations import Assembly
from vioc.dynamics.integrators.maximal.body_space import POSE, TWIST
from vioc.dynamics.kinematics import FrameGraph, as_configuration
from vioc.dynamics.lagrangian import Lagrangian
from vioc.errors import ConstraintError, ModelError
from vioc.runs.given import input_of

if TYPE_CHECKING:
    from vioc.dynamics.integrators.maximal.maximal_vi import MaximalVI

START = ("legendre", "given")


class States:
    """Converter between the states of a map in maximal coordinates and joint variables.

    Parameters
    ----------
    f : MaximalVI
    """

    def __init__(self, f: MaximalVI):
        self.f = f

    @cached_property
    def _forward(self) -> Evaluator:
        """Evaluator of the poses and twists of all bodies, from joint variables, rates and parameters."""
        graph, g = self.f.graph, FrameGraph(self.f.system)
        swap = ca.Function("com", [graph.terms.parameters], [_stack([b.com for b in graph.bodies])])
        coms = ca.vertsplit(swap(g.parameters))
        poses, twists = [], []
        for i, body in enumerate(graph.bodies):
            R, p = g.node_pose(body.root)
            v, w = g.node_velocity(body.root)
            com = tuple(coms[3 * i : 3 * i + 3])
            poses += [*vec.add(p, vec.apply(R, com)), *(e for row in R for e in row)]
            twists += [*vec.apply(R, vec.add(v, vec.cross(w, com))), *w]
        args, outputs = [g.q_vector, g.v_vector, g.parameters], [ca.vertcat(*poses), ca.vertcat(*twists)]
        return Evaluator(ca.Function("forward", args, [ca.densify(ca.SX(o)) for o in outputs]))

    def poses(self, q: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return poses (12 n,) and twists (6 n,) of all bodies at joint variables q with rates v."""
        Z, V = self._forward(q, v, self.f.theta)
        return Z[:, 0], V[:, 0]

    def initial(self, q: Any, v: Any, u: Any, start: str) -> np.ndarray:
        f = self.f
        if start not in START:
            raise ModelError(f"start: unknown {start!r}; {near_misses(str(start), START)}")
        u = input_of(f, u)
        q = as_configuration(f.system, q, "configuration")
        v = as_configuration(f.system, v, "velocity")
        Z, V = self.poses(q, v)
        self._check(Z, V)
        step_length = np.array([f.dt if start == "given" else 0.0])
        nu = self._tangent(Z, V, u, step_length, f.theta)[0][:, 0]
        if not np.isfinite(nu).all():
            bad = not_finite(Lagrangian(f.system), q, v, u, 0.0, f.theta)
            if bad:
                raise ModelError(f"{f.system.name}: at the start {bad}")
            light = [b.name for b, bad in zip(f.graph.bodies, f.graph.light, strict=True) if bad]
            spin = f", or {', '.join(light)} can spin about an axis without inertia" * bool(light)
            _, follow = constraint_rank(Lagrangian(f.system), q, **f.parameters)
            verb = "follows" if len(follow) == 1 else "follow"
            which = f" ({', '.join(follow)} {verb} from the others)" * bool(follow)
            raise ConstraintError(
                f"{f.system.name}: velocities are not determined at the start: the constraints are "
                f"dependent there{which}{spin}; move it off the singular position, remove "
                "redundant constraints (MidpointVI leaves them out by itself), or give inertia"
            )
        turns = np.linalg.norm(nu.reshape(-1, TWIST)[:, 3:], axis=1)
        worst = int(np.argmax(turns))
        if not turns[worst] * f.dt < np.pi:
            raise ConstraintError(
                f"the body {f.bodies[worst]!r} turns by pi or more within a step of {f.dt:g} s at "
                f"{turns[worst]:.3g} rad/s; use a smaller dt"
            )
        return np.concatenate([self.packed(Z), nu])

    def packed(self, Z: np.ndarray) -> np.ndarray:
        """Convert poses (12 n,), with rotation matrices, to positions and quaternions (7 n,)."""
        Z = Z.reshape(-1, POSE)
        return np.concatenate([Z[:, :3], rot.from_matrix(Z[:, 3:].reshape(-1, 3, 3))], axis=1).ravel()

    @cached_property
    def _tangent(self) -> Evaluator:
        """Evaluator of the velocities at the end of a step, which satisfy the constraints.
        Its arguments and results are (poses, twists, u, dt, parameters) -> velocities. The arguments are the
        poses of all bodies at the end of the step, the twists during the step, the input u and the step
        length dt. If dt is 0, forces have no effect on the velocities.

        The joints determine the velocities of bodies about axes without inertia.
        """
        f, graph = self.f, self.f.graph
        Z, V = (ca.SX.sym(n, size * graph.n) for n, size in (("Z", POSE), ("V", TWIST)))
        u, dt, theta = ca.SX.sym("u", f.nu), ca.SX.sym("dt"), f.symbols.parameters
        E = Assembly(graph, u, 0, dt, theta)
        momenta = E.landed(V, Z)
        assembly = Assembly(graph, u, 0, 1.0, theta)
        nu, _ = assembly.project(assembly.held(ca.vertsplit(Z, POSE), arrival=True), momenta)
        return Evaluator(ca.Function("tangent", [Z, V, u, dt, theta], [ca.densify(nu)]))

    def _check(self, Z: np.ndarray, V: np.ndarray) -> None:
        if not self.f.system.constraints:
            return
        h, sizes, rate, speeds = (a[:, 0] for a in self._violation(Z, V, self.f.theta))
        drift = CLOSED * speeds + DRIFT * sizes / self.f.dt
        for values, most, what in ((h, CLOSED * sizes, "h(q)"), (rate, drift, "Dh(q) v")):
            worst = int(np.argmax(np.abs(values) - most))
            if not abs(values[worst]) <= most[worst]:
                name = self.f.system.constraint_names[worst]
                raise ConstraintError(
                    f"{self.f.system.name}: {what} of {name} is {values[worst]:.3g} at the start, expected "
                    "0; use consistent_configuration and project_velocity"
                )

    @cached_property
    def _violation(self) -> Evaluator:
        g = self.f.graph.terms
        h = ca.vertcat(*g.constraint_values)
        rate = ca.jtimes(h, g.poses, g.pose_rates)
        sizes, speeds = (ca.fabs(ca.jacobian(h, g.poses)) @ ca.fabs(p) for p in (g.poses, g.pose_rates))
        args, outputs = [g.poses, g.twists, g.parameters], [ca.densify(e) for e in (h, sizes, rate, speeds)]
        return Evaluator(ca.Function("violation", args, outputs))

    def minimal(self, x: np.ndarray, near: Any) -> tuple[np.ndarray, np.ndarray]:
        f = self.f
        names = f.system.variables
        values = self._minimal(x, f.theta)
        q, v = values[0][:, 0], values[1][:, 0]
        if near is not None:
            period = np.array([self.periods.get(n, np.inf) for n in names])
            turns = np.round((as_configuration(f.system, near, "near") - q) / period)
            q = q + np.where(np.isfinite(period), period, 0.0) * turns
        return q, v

    @cached_property
    def periods(self) -> dict[str, float]:
        """Period of each angle variable of the mechanism.
        It is the change of the variable in one full turn.
        """
        return {n: period for b in self.f.graph.bodies for n, period in b.periods.items()}

    @cached_property
    def _minimal(self) -> Evaluator:
        f = self.f
        names = f.system.variables
        columns = [ca.vertcat(*(f.quantity(prefix + n) for n in names)) for prefix in ("", "v.")]
        args = [f.symbols.x, f.symbols.parameters]
        return Evaluator(ca.Function("minimal", args, [ca.densify(c) for c in columns]))


def _stack(vectors: list[Any]) -> ca.SX:
    return ca.densify(ca.SX(ca.vertcat(*(c for v in vectors for c in v))))
