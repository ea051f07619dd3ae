"""Boxes and hulls that meet each other in generalized coordinates, as states tell where they are."""

from __future__ import annotations

import casadi as ca
import numpy as np

from vioc.compile.evaluate import Evaluator
from vioc.dynamics.integrators.contact.features import Features, Found
from vioc.dynamics.integrators.contact.polytopes import NUMBERS, OFF, PLACES, Pair, Polytope, check_numbers
from vioc.dynamics.kinematics import FrameGraph
from vioc.dynamics.lagrangian import OPTIONS
from vioc.dynamics.terms.contacts import PairContact

POSE, TWIST = 12, 6


class Polytopes:
    """The pairs of polytopes of a system, each in its frame.

    Parameters
    ----------
    g : FrameGraph

    Attributes
    ----------
    features : Features
    nowhere : array
        Numbers of all places, none of which meet.
    """

    def __init__(self, g: FrameGraph):
        system, found, frames = g.system, [], ["world"]
        for item in system.inequalities:
            if not (isinstance(item, PairContact) and item.by_features):
                continue
            own = []
            for frame, shape in ((item.frame1, item.shape1), (item.frame2, item.shape2)):
                check_numbers(system.name, item, shape)
                if frame not in frames:
                    frames.append(frame)
                own.append((frames.index(frame) - 1, Polytope(shape, np.eye(3), np.zeros(3))))
            (a, first), (b, second) = own
            found.append(Pair((a, b), first, second))
        self.features = Features(found)
        self.nowhere = np.tile(OFF, PLACES * len(found))
        self.numbers = NUMBERS * PLACES * len(found)
        indices = [system.frame_index(n) for n in frames[1:]]
        places = [g.node_pose(i) for i in indices]
        moves = [c for i in indices for part in g.node_velocity(i) for c in part]
        poses = [c for R, p in places for c in (*p, *(e for row in R for e in row))]
        args = [g.q_vector, g.v_vector, g.parameters]
        outputs = [ca.vertcat(ca.SX(0, 1), *map(ca.SX, own)) for own in (poses, moves)]
        self._frames = Evaluator(ca.Function("frames", args, list(map(ca.densify, outputs)), OPTIONS))

    def at(self, q: np.ndarray, v: np.ndarray, theta: np.ndarray, dt: float) -> Found:
        """Where they meet at configurations and rates (nq,), or may within dt."""
        poses, twists = self._frames(q, v, theta)
        own = poses.reshape(-1, POSE)
        return self.features.at(own[:, :3], own[:, 3:].reshape(-1, 3, 3), twists.reshape(-1, TWIST), dt)
