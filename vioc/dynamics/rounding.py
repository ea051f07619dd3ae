"""Scales of the rounding errors of constraints and of their derivatives.

Maths: docs/maths/midpoint.md, "Redundant constraints".
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import casadi as ca

from vioc.dynamics.algebra import vectors as vec
from vioc.dynamics.description.component import Constraint, VelocityConstraint
from vioc.dynamics.kinematics import FrameGraph

NEGLIGIBLE = (
    1e-9  # slope of a constraint, relative to the terms that cancel in it, that is rounding error alone
)


class _Displaced(FrameGraph):
    """Symbolic kinematics with a small symbolic displacement and rotation of each frame."""

    def __init__(self, graph: FrameGraph):
        self.__dict__.update(vars(graph))
        self._plain = graph
        self.symbols: dict[int, tuple[ca.SX, ca.SX]] = {}

    def node_pose(self, i: int) -> Any:
        R, p = self._plain.node_pose(i)
        if i < 0:
            return R, p
        d, e = self.symbols.setdefault(i, (ca.SX.sym("d", 3), ca.SX.sym("e", 3)))
        rotation = vec.matadd(R, vec.matmul(R, vec.skew((e[0], e[1], e[2]))))
        return rotation, vec.add(p, (d[0], d[1], d[2]))


def reaches(graph: FrameGraph) -> list[Any]:
    """Return, for every frame, the length, m, of the chain of frames from the world.
    It is the sum of the 1-norms of the vectors between the origins of consecutive frames.
    """
    lengths: list[Any] = []
    for i, node in enumerate(graph.system.nodes):
        way = vec.column(vec.sub(graph.node_pose(i)[1], graph.node_pose(node.parent)[1]))
        lengths.append(ca.norm_1(way) + (lengths[node.parent] if node.parent >= 0 else 0))
    return lengths


def constraint_sizes(graph: FrameGraph, constraints: Iterable[Constraint]) -> ca.SX:
    """Return scales (m, 2) of the rounding errors of m constraints.
    A rounding error is a few machine epsilons times its scale. The first column has the scales of the
    constraint values h(q) and of their derivatives with respect to angles; the second column has those of the
    derivatives with respect to translations.

    The result is (m, 2). The first column, in the units of h, is sum |dh/dp| r + |dh/de| over the frames of
    h, where p is a frame's position, r its reach and e rotates it; the rounding error of h is a few machine
    epsilons times this size. The second, in these units per metre, is sum |dh/dp|. Both are 0 for
    velocity constraints.
    """
    distances, rows = reaches(graph), []
    for constraint in constraints:
        displaced = _Displaced(graph)
        on_velocities = isinstance(constraint, VelocityConstraint)
        h = ca.SX(0) if on_velocities else ca.SX(constraint.value(displaced))
        size = slope = ca.SX(0)
        for i, (d, e) in displaced.symbols.items():
            by_place, by_turn = (ca.norm_1(ca.jacobian(h, s).T) for s in (d, e))
            size, slope = size + by_place * distances[i] + by_turn, slope + by_place
        zero = [s for pair in displaced.symbols.values() for s in pair]
        row = ca.horzcat(size, slope)
        rows.append(ca.substitute([row], zero, [ca.SX.zeros(3)] * len(zero))[0] if zero else row)
    return ca.vertcat(ca.SX(0, 2), *rows)
