"""World poses of all frames along a trajectory, computed in numpy for drawings.

Only the description is needed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from vioc.dynamics.description.frame import Pose, Transform
from vioc.dynamics.description.numbers import Parameter
from vioc.dynamics.description.system import System
from vioc.runs.trajectory import Trajectory
from vioc.viz.wrapped import innermost, pieces

Known = Mapping[int, tuple[np.ndarray, np.ndarray]]


@dataclass(frozen=True)
class Places:
    """World poses of all frames of a system at several times.

    Frames are given by index or name; -1 is the world.

    Attributes
    ----------
    system : System
    positions, rotations : (T, nodes, 3), (T, nodes, 3, 3)
        Poses of all frames, in the order of ``system.nodes``.
    """

    system: System
    positions: np.ndarray
    rotations: np.ndarray

    @cached_property
    def groups(self) -> np.ndarray:
        """Index, for each frame, of the nearest ancestor that has a joint variable.
        The frame and this ancestor are parts of the same rigid body. The index is -1 if the frame cannot
        move.
        """
        groups = np.zeros(len(self.system.nodes), int)
        for i, node in enumerate(self.system.nodes):
            driven = node.frame.transform.variable is not None
            groups[i] = i if driven else -1 if node.parent < 0 else groups[node.parent]
        return groups

    @cached_property
    def span(self) -> float:
        """Longest edge, m, of a box that contains all frames at all times."""
        return float(np.ptp(self.positions, axis=(0, 1)).max())

    def index(self, node: int | str) -> int:
        return self.system.frame_index(node) if isinstance(node, str) else node

    def position(self, node: int | str) -> np.ndarray:
        """Return the world positions (T, 3) of a frame at all times, m."""
        i = self.index(node)
        return self.positions[:, i] if i >= 0 else np.zeros((len(self.positions), 3))

    def rotation(self, node: int | str) -> np.ndarray:
        """Return the rotation matrices (T, 3, 3) of a frame at all times."""
        i = self.index(node)
        return self.rotations[:, i] if i >= 0 else np.broadcast_to(np.eye(3), (len(self.positions), 3, 3))

    def group(self, node: int | str) -> int:
        i = self.index(node)
        return int(self.groups[i]) if i >= 0 else -1

    def place(self, node: int | str, points: np.ndarray) -> np.ndarray:
        """Transform points (k, 3) in a frame's axes to the world at all times, (T, k, 3)."""
        return self.position(node)[:, None] + points @ np.swapaxes(self.rotation(node), 1, 2)


def number(value: Any, parameters: Mapping[str, float]) -> float:
    """Convert a number or a parameter of a model to a float."""
    return float(value.of(parameters[value.name]) if isinstance(value, Parameter) else value)


def numbers(values: Any, parameters: Mapping[str, float]) -> np.ndarray:
    """Convert numbers and parameters of a model to an array of floats."""
    return np.array([number(v, parameters) for v in values])


def frame_poses(
    system: System, Q: np.ndarray, parameters: Mapping[str, float] | None = None, known: Known | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Return the world positions and rotations of all frames at configurations Q.

    Parameters
    ----------
    system : System
    Q : (T, nq)
        Configurations, in the order of ``system.variables``.
    parameters : dict of str to float, optional
        By default the system's.
    known : dict of int to ((T, 3), (T, 3, 3)), optional
        Nodes with known poses, which are not computed.

    Returns
    -------
    (T, nodes, 3), (T, nodes, 3, 3)
    """
    parameters = system.parameters if parameters is None else parameters
    count, known = len(Q), known or {}
    positions = np.zeros((count, len(system.nodes), 3))
    rotations = np.zeros((count, len(system.nodes), 3, 3))
    columns = {name: Q[:, i] for i, name in enumerate(system.variables)}
    for i, node in enumerate(system.nodes):
        if i in known:
            positions[:, i], rotations[:, i] = known[i]
            continue
        p, R = _local(node.frame.transform, columns, parameters)
        if node.parent < 0:
            positions[:, i], rotations[:, i] = p, R
        else:
            above = rotations[:, node.parent]
            positions[:, i] = positions[:, node.parent] + (above @ p[..., None])[..., 0]
            rotations[:, i] = above @ R
    return positions, rotations


def _local(
    transform: Transform, columns: Mapping[str, np.ndarray], parameters: Mapping[str, float]
) -> tuple[np.ndarray, np.ndarray]:
    """Return positions and rotations of a frame in its parent, at all times.

    They are (T or 1, 3) and (T or 1, 3, 3).
    """
    if isinstance(transform.value, Pose):
        R = np.reshape(transform.value.rotation, (1, 3, 3))
        return numbers(transform.value.position, parameters)[None], R
    if transform.variable is not None:
        q = columns[transform.variable.name]
    else:
        q = np.array([number(transform.value, parameters)])
    linear, angular = (np.array(part) for part in transform.twist)
    return exponential(linear, angular, q)


def exponential(linear: np.ndarray, angular: np.ndarray, q: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return positions and rotations of a joint with constant twist, at T values q.
    The values q (T,) are those of the joint variable. The twist has a linear and an angular part.

    They are exp(hat(xi) q) for xi = (linear, angular).
    """
    size = np.linalg.norm(angular)
    if size == 0:
        return q[:, None] * linear, np.broadcast_to(np.eye(3), (len(q), 3, 3))
    x, y, z = angular / size
    K = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
    angle = (size * q)[:, None, None]
    s, c = np.sin(angle), 1 - np.cos(angle)
    R = np.eye(3) + s * K + c * (K @ K)
    V = angle * np.eye(3) + c * K + (angle - s) * (K @ K)
    return V @ linear / size, R


def trajectory_poses(run: Any, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return world poses of all frames at selected samples of a trajectory.

    Raises
    ------
    TypeError
        If its map is not one of a mechanism.
    """
    system = run.map.system
    if not isinstance(system, System):
        raise TypeError(
            f"{type(run.map).__name__} has no frames to draw; it takes a trajectory of a mechanism's map"
        )
    names = list(run.map.state_names)
    columns = [names.index(n) for n in innermost(run.map).state_names]
    x, t = np.ascontiguousarray(np.asarray(run.x)[rows][:, columns]), np.asarray(run.t)[rows]
    poses = [_map_poses(f, t[piece], x[piece]) for piece, f in pieces(run, rows)]
    positions, rotations = (np.concatenate(part) for part in zip(*poses, strict=True))
    return positions, rotations


def _map_poses(f: Any, t: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return world poses of all frames at several states of a mechanical map."""
    system, names = f.system, tuple(f.state_names)
    if hasattr(f, "frame_poses"):  # states without angles
        return f.frame_poses(x)
    known: dict[int, tuple[np.ndarray, np.ndarray]] = {}
    wanted = list(system.variables)
    if not set(wanted) <= set(names):
        known = _bodies(f, x)
        inside = {system.nodes[i].frame.transform.variable.name for i in known}
        wanted = [n for n in wanted if n not in inside]  # variables of the frames between two bodies
    Q = np.zeros((len(x), len(system.variables)))
    for name in wanted:
        if name in names:
            column = x[:, names.index(name)]
        else:
            no_steps = np.zeros((0, f.nu)), np.zeros((0, len(f.multiplier_names)))
            column = Trajectory(f, t, x, *no_steps)[name]
        Q[:, system.variables.index(name)] = column
    return frame_poses(system, Q, f.parameters, known)


def _bodies(f: Any, x: np.ndarray) -> dict[int, tuple[np.ndarray, np.ndarray]]:
    """Return positions and rotations of bodies, by the index of their root frame.
    The states x contain the quaternions of the bodies.
    """
    positions, known = f.frame_positions(x), {}
    for body in f.graph.bodies:
        quaternion = [f.state_names.index(f"{c}.{body.name}") for c in ("qw", "qx", "qy", "qz")]
        known[body.root] = positions[:, body.root], rotation_matrices(x[:, quaternion])
    return known


def rotation_matrices(quaternions: np.ndarray) -> np.ndarray:
    """Convert unit quaternions (T, 4), scalar first, to rotation matrices (T, 3, 3)."""
    from scipy.spatial.transform import Rotation  # imported here because it is slow

    return Rotation.from_quat(quaternions[:, [1, 2, 3, 0]]).as_matrix()


def quaternions(rotations: np.ndarray) -> np.ndarray:
    """Convert rotation matrices (..., 3, 3) to unit quaternions, scalar part first."""
    from scipy.spatial.transform import Rotation

    R = np.asarray(rotations, float)
    q = Rotation.from_matrix(R.reshape(-1, 3, 3)).as_quat()
    return q[:, [3, 0, 1, 2]].reshape(*R.shape[:-2], 4)


def aligned(direction: np.ndarray) -> np.ndarray:
    """Return a rotation matrix (3, 3) whose third column has the given direction."""
    z = direction / np.linalg.norm(direction)
    x = np.cross(np.eye(3)[np.argmin(np.abs(z))], z)
    x = x / np.linalg.norm(x)
    return np.column_stack([x, np.cross(z, x), z])
