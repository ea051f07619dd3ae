"""The equations of a step with contact at numbers, dense, for the interior point in numpy."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

import casadi as ca
import numpy as np

from vioc.compile.evaluate import Evaluator
from vioc.dynamics.integrators.maximal.terms import POSE, TWIST

if TYPE_CHECKING:
    from vioc.dynamics.integrators.maximal.step import StepGraph

BOUNDARY, CLIP = 0.99, 0.1  # fractions of the way to a cone's boundary, and of what is left of a variable


class InteriorEquations:
    """Residuals and Newton's directions of one end of a step at numbers.

    Parameters
    ----------
    graph : StepGraph
    nu : int
    arrival : bool
        Of the velocities at the end instead of the twists that leave the start.
    """

    def __init__(self, graph: StepGraph, nu: int, arrival: bool):
        self.graph = graph
        n, theta = graph.n, graph.terms.parameters
        self.rows = len(graph.names)
        self.sizes = [t.cone.size for t in graph.touches]
        Z, V, base = (
            ca.SX.sym(name, size * n) for name, size in (("Z", POSE), ("V", TWIST), ("base", TWIST))
        )
        u, t, dt, goal = ca.SX.sym("u", nu), ca.SX.sym("t"), ca.SX.sym("dt"), ca.SX.sym("goal", 2)
        lam, y = ca.SX.sym("lambda", self.rows), ca.SX.sym("y", sum(self.sizes))
        corner = np.concatenate([[0], np.cumsum(graph.sizes)])
        dV, speed = ca.SX.sym("dV", TWIST * n), ca.SX.sym("speed")
        at, own = ca.vertsplit(Z, POSE), ca.vertsplit(V, TWIST)
        G = graph.held(at, theta)
        gone = graph.arrive(V, base, G, dt, theta) if arrival else graph.leave(V, Z, base, u, t, dt, theta)
        F = graph.blocks(gone.D, G, gone.H, gone.slopes)
        rest = graph.pulled(gone.rest, G, lam)
        rhs = [*[ca.SX(TWIST, 1)] * n, *(-g for g in gone.values)]
        graph.weigh(F, rhs, G, gone.H, dt)
        ys = ca.vertsplit(y, [0, *map(int, np.cumsum(self.sizes))]) if self.sizes else []
        kinds = ("expanded", "mismatch", "products", "multipliers", "begun")
        outputs: dict[str, list] = {kind: [] for kind in kinds}
        gaps = []
        for touch, part in zip(graph.touches, ys, strict=True):
            g, data = touch.geometry, ca.vertcat(*touch.data)
            J = g.held.call([*(at[i] for i in touch.bodies), data])
            Vs = [own[i] for i in touch.bodies]
            if arrival:
                level, *H = g.level.call([*(at[i] for i in touch.bodies), dt, data])
                a = g.closing(level, *H, *Vs)
            else:
                ends = [*(gone.next[i] for i in touch.bodies), *(gone.turned[i] for i in touch.bodies)]
                a, *H = g.landed.call([*ends, dt, data])
            gaps.append(a)
            given = [*J, *H, a, *Vs, part, goal, data]
            condensed = iter(g.condensed.call(given))
            for i in touch.bodies:
                rhs[i] = rhs[i] + next(condensed)
            for i, j in product(touch.bodies, repeat=2):
                block = next(condensed)
                F[i, j] = F[i, j] + block if (i, j) in F else block
            dVs = [dV[TWIST * i : TWIST * i + TWIST] for i in touch.bodies]
            outputs["expanded"].append(g.expanded.call([*given, *dVs])[0])
            pushed = g.pushed.call([*J, a, *Vs, part, goal, data])
            for i in touch.bodies:
                rest[i] = rest[i] + pushed.pop(0)
            for name, value in zip(("mismatch", "products", "multipliers"), pushed, strict=True):
                outputs[name].append(value)
            outputs["begun"].append(g.begun.call([*J, a, *Vs, speed, goal, data])[0])
        rhs[:n] = [r + left for r, left in zip(rhs, rest, strict=False)]
        matrix = ca.SX(int(corner[-1]), int(corner[-1]))
        for (i, j), block in F.items():
            matrix[int(corner[i]) : int(corner[i + 1]), int(corner[j]) : int(corner[j + 1])] = block
        point = [V, lam, y, Z, base, u, t, dt, theta]

        def function(name: str, more: list, results: list) -> Evaluator:
            dense = [ca.densify(ca.SX(r)) for r in results]
            return Evaluator(ca.Function(name, [*point, *more], dense, {"cse": True}))

        stacked = {name: ca.vertcat(ca.SX(0, 1), *values) for name, values in outputs.items()}
        self.newton = function("newton", [goal], [matrix, ca.vertcat(*rhs)])
        self.expand = function("expand", [goal, dV], [stacked["expanded"]])
        values = ca.vertcat(ca.SX(0, 1), *gone.values)
        residuals = [ca.vertcat(*rest), values, stacked["mismatch"], stacked["products"]]
        self.residuals = function("residuals", [goal], residuals)
        self.begin = function("begin", [speed, goal], [stacked["begun"]])
        self.multipliers = function("multipliers", [], [stacked["multipliers"]])
        self.gaps = function("gaps", [], [ca.vertcat(ca.SX(0, 1), *gaps)])

        offsets = np.concatenate([[0], np.cumsum(self.sizes)]).astype(int)
        cones = [(o, t.cone) for o, t in zip(offsets[:-1], graph.touches, strict=True)]
        self.offsets = offsets
        self.positive = np.array([o + i for o, cone in cones for i in cone.positive], int)
        self.round = np.array([o + i for o, c in cones for r in c.round for i in r], int).reshape(-1, 3)
        self.before = np.reshape([[o + 1, o + c.size - 1] for o, c in cones if c.friction], (-1, 2)).astype(
            int
        )
        self.centers = np.concatenate([np.zeros(0), *(cone.centers for _, cone in cones)])

    def longest(self, y: np.ndarray, dy: np.ndarray) -> float:
        """The largest step that keeps y in its cones."""
        own, change = y[self.positive], dy[self.positive]
        falls = change < 0
        length = float((-own[falls] / change[falls]).min(initial=np.inf))
        return min([length, *(_to_cone(y[r], dy[r]) for r in self.round)])

    def clipped(self, y: np.ndarray, dy: np.ndarray) -> np.ndarray:
        """y after a whole step with every variable kept in its own cone."""
        new, p = y + dy, self.positive
        new[p] = np.maximum(new[p], CLIP * y[p])
        for r in self.round:
            new[r] = y[r] + min(1.0, BOUNDARY * _to_cone(y[r], dy[r])) * dy[r]
        return new


def _to_cone(y: np.ndarray, d: np.ndarray) -> float:
    """The largest step that keeps (t, x, y) in the round cone t > |(x, y)|."""
    a = d[0] ** 2 - d[1] ** 2 - d[2] ** 2
    b = y[0] * d[0] - y[1] * d[1] - y[2] * d[2]
    c = max(y[0] ** 2 - y[1] ** 2 - y[2] ** 2, 0.0)
    square = b * b - a * c
    if square < 0 or (b >= 0 and a >= 0):
        return np.inf
    root = c / (np.sqrt(square) - b) if b < 0 else -(b + np.sqrt(square)) / a
    return float(root) if root >= 0 else np.inf
