"""A description as rigid links and loops: what simulators of bodies are told; and what they return."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import casadi as ca
import numpy as np

from vioc import Gravity, PointConstraint, System
from vioc.dynamics.algebra import vectors as vec
from vioc.dynamics.kinematics import FrameGraph, as_configuration


@dataclass(frozen=True)
class PeerRun:
    """What a peer computed, sampled.

    Attributes
    ----------
    t : (K,)
        s.
    q : (K, nq)
        Configurations in the order of ``system.variables``.
    energy : (K,)
        J, with the peer's own velocities.
    seconds : float
        Time that the stepping took, without building and reading out.
    """

    system: System
    t: np.ndarray
    q: np.ndarray
    energy: np.ndarray
    seconds: float

    def __getitem__(self, variable: str) -> np.ndarray:
        return self.q[:, self.system.variable_index(variable)]


@dataclass(frozen=True)
class Link:
    """Frames that move as one, with the joint that carries them.

    Attributes
    ----------
    parent : int
        Index of the link that it is jointed to, -1 for the world.
    variable : str
    axis : (3,)
        Of the joint, in the link's own axes.
    rotational : bool
    before, pose : (4, 4)
        World poses of the joint's frame at q: without its variable's transform, and with it.
    mass, com, inertia
        kg; m, in the link's frame; kg m^2 (3, 3) about the centre of mass, in the link's axes.
    """

    parent: int
    variable: str
    axis: np.ndarray
    rotational: bool
    before: np.ndarray
    pose: np.ndarray
    mass: float
    com: np.ndarray
    inertia: np.ndarray


@dataclass(frozen=True)
class Loop:
    """Two points that constraints pin together along `directions` (rows, world axes)."""

    links: tuple[int, int]
    points: tuple[np.ndarray, np.ndarray]
    directions: np.ndarray


def links_of(system: System, q: Any) -> tuple[list[Link], list[Loop]]:
    """The rigid links of a system placed at q, and the loops that close it.

    Raises
    ------
    ValueError
        For what the peers are not told: kinematic variables, forces, potentials other than uniform
        gravity, constraints other than points, joints that neither turn nor slide, massless links.
    """
    odd = [c.label() for c in system.components if not isinstance(c, (Gravity, PointConstraint))]
    if odd or system.kinematic:
        raise ValueError(f"{system.name}: peers are not told of {', '.join([*odd, *system.kinematic])}")
    poses = _poses(system, as_configuration(system, q, "configuration"))
    owner: list[int] = []
    heads: list[int] = []
    for i, node in enumerate(system.nodes):
        above = owner[node.parent] if node.parent >= 0 else -1
        if node.frame.transform.variable is not None:
            heads.append(i)
            owner.append(len(heads) - 1)
        else:
            owner.append(above)
    links = [_link(system, poses, owner, head, number) for number, head in enumerate(heads)]

    ends: dict[tuple[str, str], list] = {}
    for c in system.constraints:
        ends.setdefault((c.frame1, c.frame2), []).append([float(v) for v in c.direction])
    loops = []
    for names, directions in ends.items():
        nodes = [system.frame_index(name) for name in names]
        sides = tuple(owner[k] if k >= 0 else -1 for k in nodes)
        points = tuple(poses[k][:3, 3] if k >= 0 else np.zeros(3) for k in nodes)
        loops.append(Loop(sides, points, np.array(directions)))  # type: ignore[arg-type]
    return links, loops


def _poses(system: System, q: np.ndarray) -> list[np.ndarray]:
    """World pose (4, 4) of every node."""
    graph = FrameGraph(system)
    theta = list(system.parameters.values())
    result = []
    for i in range(len(system.nodes)):
        R, p = graph.node_pose(i)
        top = ca.Function("pose", [graph.q_vector, graph.parameters], [vec.matrix(R), vec.column(p)])
        g = np.eye(4)
        g[:3, :3], g[:3, 3:] = (np.array(ca.DM(part)) for part in top(q, theta))
        result.append(g)
    return result


def _link(system: System, poses: list[np.ndarray], owner: list[int], head: int, number: int) -> Link:
    node, pose = system.nodes[head], poses[head]
    transform = node.frame.transform
    linear, angular = (np.array(part) for part in transform.twist)
    if angular.any() == linear.any():
        raise ValueError(f"{node.frame.label()}: peers know joints that either turn or slide")
    masses = [
        (m.mass, pose, poses[i], m)
        for i, n in enumerate(system.nodes)
        if owner[i] == number and (m := n.frame.mass) is not None and float(m.mass) > 0
    ]
    if not masses:
        raise ValueError(f"{node.frame.label()} carries no mass: peers need some on every moving link")
    weights = np.array([float(m) for m, *_ in masses])
    local = [np.linalg.solve(base, g) for _, base, g, _ in masses]
    centres = np.array(
        [g[:3, :3] @ [float(c) for c in m.com] + g[:3, 3] for g, (*_, m) in zip(local, masses, strict=True)]
    )
    com = weights @ centres / weights.sum()
    inertia = np.zeros((3, 3))
    for weight, centre, g, (*_, m) in zip(weights, centres - com, local, masses, strict=True):
        inertia += g[:3, :3] @ m.matrix() @ g[:3, :3].T
        inertia += weight * (centre @ centre * np.eye(3) - np.outer(centre, centre))
    above = node.parent
    return Link(
        parent=owner[above] if above >= 0 else -1,
        variable=transform.variable.name,  # type: ignore[union-attr]
        axis=(angular if angular.any() else linear),
        rotational=bool(angular.any()),
        before=poses[above] if above >= 0 else np.eye(4),
        pose=pose,
        mass=float(weights.sum()),
        com=com,
        inertia=inertia,
    )


def inertia_of_a_body(link: Link) -> np.ndarray:
    """The inertia with what point masses and thin rods lack: both peers take bodies only.

    Added is 1e-6 m^2 per kg, a body of about 1 mm.
    """
    return link.inertia + 1e-6 * link.mass * np.eye(3)


def gravity(system: System) -> np.ndarray:
    parts = [[float(v) for v in (p.x, p.y, p.z)] for p in system.potentials if isinstance(p, Gravity)]
    return np.sum(parts, axis=0) if parts else np.zeros(3)
