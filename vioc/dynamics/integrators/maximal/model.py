"""Rigid bodies and joints of a system, which are found in its tree of frames."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import casadi as ca
import numpy as np

from vioc.dynamics.algebra import vectors as vec
from vioc.dynamics.algebra.vectors import Matrix, Vector
from vioc.dynamics.description.frame import Pose
from vioc.dynamics.description.numbers import Parameter
from vioc.dynamics.description.system import System
from vioc.dynamics.integrators.maximal.joint_constraints import PARALLEL, JointConstraints
from vioc.errors import ModelError


@dataclass(frozen=True)
class Body:
    """Rigid body, with the joint that connects it to its parent body.
    The field `parent` is the index of the parent body, or -1 for the world.

    Attributes
    ----------
    name : str
    root : int
        Node whose axes are the axes of the body.
    mass, com, inertia
        Mass, kg; centre of mass in the frame of the root; inertia about it, in the body's axes (3 x 3).
    joint : JointConstraints
        Joint to the parent; a floating joint has no rows.
    variables : tuple of str
        Minimal coordinates of the joint: those of the free directions, then of the free axes.
    """

    name: str
    parent: int
    root: int
    mass: Any
    com: Vector
    inertia: Matrix
    joint: JointConstraints
    variables: tuple[str, ...]

    @property
    def periods(self) -> dict[str, float]:
        """Period of each angle variable of the joint.
        It is the change of the variable in one full turn.
        """
        names = self.variables[len(self.joint.directions) :]
        return {n: 2 * np.pi / rate for n, rate in zip(names, self.joint.rates, strict=True)}


@dataclass(frozen=True)
class NodePlace:
    """Pose of a frame in the body to which it belongs, and the body's index (-1 is the world).
    The pose is in the body's axes, with the centre of mass as origin.
    """

    body: int
    rotation: Matrix
    position: Vector


@dataclass
class _Cluster:
    root: int
    parent: int
    rotation: Matrix  # of the root's joint in the parent cluster, at zero coordinates
    position: Vector
    members: list[tuple[int, Matrix, Vector]]
    children: int = 0


class BodyModel:
    """Rigid bodies and joints of a system, with the poses of all frames in these bodies.

    Parameters
    ----------
    system : System
    theta : casadi.SX (np,)
        Symbols of the declared parameters.

    Raises
    ------
    ModelError
        For kinematic variables, branching frames without mass, joints that are not one translational and
        one rotational constraint, or constant rotations by a parameter.
    """

    def __init__(self, system: System, theta: ca.SX):
        if system.kinematic:
            raise ModelError(
                f"{system.name}: maximal coordinates take no kinematic variables, got "
                f"{', '.join(system.kinematic)}; use MidpointVI, or a constraint with an actuator"
            )
        self.system, self._theta = system, theta
        self._clusters = self._cluster()
        self.bodies: list[Body] = []
        self._body_of: dict[int, int] = {}
        self.inside: dict[int, int] = {}  # frame inside a joint -> body whose joint it is
        self._inertias = [self._inertia(c) for c in self._clusters]
        for index, (cluster, inertia) in enumerate(zip(self._clusters, self._inertias, strict=True)):
            if index == 0 or inertia is None:
                self._check_massless(cluster, index)
                continue
            self._body_of[index] = len(self.bodies)
            self.bodies.append(self._body(index))
        self.places: list[NodePlace | None] = [None] * len(system.nodes)  # None inside a joint
        for index, cluster in enumerate(self._clusters):
            for node, R, p in cluster.members:
                if index == 0:
                    self.places[node] = NodePlace(-1, R, p)
                elif index in self._body_of:
                    body = self._body_of[index]
                    self.places[node] = NodePlace(body, R, vec.sub(p, self.bodies[body].com))

    def _number(self, value: Any) -> Any:
        if not isinstance(value, Parameter):
            return float(value)
        return value.of(self._theta[list(self.system.parameters).index(value.name)])

    def path(self, i: int) -> list[int]:
        """Return body i and its ancestors; the last is the world (-1)."""
        result = [i]
        while result[-1] >= 0:
            result.append(self.bodies[result[-1]].parent)
        return result

    # -- rigid clusters ------------------------------------------------------------------------------

    def _cluster(self) -> list[_Cluster]:
        clusters = [_Cluster(-1, -1, vec.IDENTITY, vec.ZERO, [])]
        memberships: list[tuple[int, Matrix, Vector]] = []  # cluster and pose in it, of each node
        for i, node in enumerate(self.system.nodes):
            c, R, p = memberships[node.parent] if node.parent >= 0 else (0, vec.IDENTITY, vec.ZERO)
            transform = node.frame.transform
            if transform.variable is not None:
                clusters.append(_Cluster(i, c, R, p, []))
                clusters[c].children += 1
                c, R, p = len(clusters) - 1, vec.IDENTITY, vec.ZERO
            else:
                dR, dp = self._constant(transform)
                R, p = vec.matmul(R, dR), vec.add(p, vec.apply(R, dp))
            clusters[c].members.append((i, R, p))
            memberships.append((c, R, p))
        return clusters

    def _constant(self, transform: Any) -> tuple[Matrix, Vector]:
        if isinstance(transform.value, Pose):
            r = transform.value.rotation
            position = tuple(self._number(c) for c in transform.value.position)
            return (r[0:3], r[3:6], r[6:9]), position  # type: ignore[return-value]
        if transform.rotational and isinstance(transform.value, Parameter):
            raise ModelError(
                f"{self.system.name}: a constant rotation by the parameter {transform.value.name!r} has no "
                "maximal coordinates; write the angle as a number"
            )
        value = float(transform.value) if transform.rotational else self._number(transform.value)
        R, p = vec.exponential(*transform.twist, value)  # type: ignore[call-arg]
        if transform.rotational:
            R = tuple(tuple(float(e) for e in row) for row in R)  # type: ignore[assignment]
        return R, p

    def _inertia(self, cluster: _Cluster) -> tuple[Any, Vector, Matrix] | None:
        """Return the mass, centre of mass and inertia of rigidly connected frames.
        The result is None if the frames have no mass.
        """
        parts = []
        for node, R, p in cluster.members:
            mass = self.system.nodes[node].frame.mass
            if mass is None or (float(mass.mass) == 0.0 and not mass.matrix().any()):
                continue
            ixx, iyy, izz, ixy, ixz, iyz = (self._number(v) for v in mass.inertia)
            I = ((ixx, ixy, ixz), (ixy, iyy, iyz), (ixz, iyz, izz))
            c = vec.add(p, vec.apply(R, tuple(self._number(v) for v in mass.com)))
            parts.append((self._number(mass.mass), c, vec.matmul(vec.matmul(R, I), vec.transpose(R))))
        if not parts:
            return None
        total = parts[0][0]
        for m, _, _ in parts[1:]:
            total = total + m
        if not isinstance(total, float) or total > 0:
            if len(parts) == 1:
                return parts[0]
            com = vec.ZERO
            for m, c, _ in parts:
                com = vec.add(com, vec.scale(m / total, c))
        else:
            raise ModelError(
                f"{self.system.name}: the body of {self._label(cluster)} has inertia but no mass; maximal "
                "coordinates need both"
            )
        J = vec.NOTHING
        for m, c, I in parts:  # Steiner
            r = vec.sub(c, com)
            square = vec.dot(r, r)
            steiner = tuple(
                tuple(
                    vec.times(m, vec.minus(square if i == j else 0.0, vec.times(r[i], r[j])))
                    for j in range(3)
                )
                for i in range(3)
            )
            J = vec.matadd(vec.matadd(J, I), steiner)  # type: ignore[arg-type]
        return total, com, J

    def _label(self, cluster: _Cluster) -> str:
        names = [self.system.nodes[i].frame.name for i, _, _ in cluster.members]
        massive = [
            n for (i, _, _), n in zip(cluster.members, names, strict=True) if self.system.nodes[i].frame.mass
        ]
        labels = [n for n in (*massive, *names) if n]
        return labels[0] if labels else self.system.nodes[cluster.root].frame.transform.variable.name  # type: ignore[union-attr]

    def _check_massless(self, cluster: _Cluster, index: int) -> None:
        if index == 0 or cluster.children == 1:
            return
        what = f"{self.system.name}: the frame driven by {self._variable(cluster)!r} has no mass"
        if cluster.children == 0:
            raise ModelError(f"{what} and nothing below it has: its motion is not determined; give it a mass")
        raise ModelError(
            f"{what} and {cluster.children} joints below it: maximal coordinates need a body there; "
            "give it a mass"
        )

    def _variable(self, cluster: _Cluster) -> str:
        return self.system.nodes[cluster.root].frame.transform.variable.name  # type: ignore[union-attr]

    # -- joints --------------------------------------------------------------------------------------

    def _body(self, index: int) -> Body:
        cluster, (mass, com, J) = self._clusters[index], self._inertias[index]  # type: ignore[misc]
        chain = [cluster]
        while chain[-1].parent and self._inertias[chain[-1].parent] is None:
            chain.append(self._clusters[chain[-1].parent])
        self.inside.update({node: len(self.bodies) for link in chain[1:] for node, _, _ in link.members})
        parent = self._body_of[chain[-1].parent] if chain[-1].parent else -1
        origin = self.bodies[parent].com if parent >= 0 else vec.ZERO
        R, p = vec.IDENTITY, vec.scale(-1.0, origin)
        slides: list[tuple[str, Vector, int]] = []
        turns: list[tuple[str, Vector, Vector]] = []
        rates: list[float] = []
        for link in reversed(chain):
            R, p = vec.matmul(R, link.rotation), vec.add(p, vec.apply(R, link.position))
            linear, angular = self.system.nodes[link.root].frame.transform.twist
            name = self._variable(link)
            if not any(angular):
                slides.append((name, vec.apply(R, linear), len(turns)))  # type: ignore[arg-type]
                continue
            size = float(np.linalg.norm(angular))
            if abs(np.dot(linear, angular)) > PARALLEL * size:
                raise ModelError(
                    f"{self.system.name}: {name!r} turns and travels at once; in maximal coordinates write "
                    "it as screw(...), a joint with a constraint"
                )
            lever = tuple(np.cross(angular, linear) / size**2)
            axis = tuple(c / size for c in angular)
            rates.append(size)
            turns.append((name, vec.apply(R, axis), vec.add(p, vec.apply(R, lever))))  # type: ignore[arg-type]
        return self._jointed(index, parent, (mass, com, J), R, p, slides, turns, tuple(rates))

    def _jointed(self, index: int, parent: int, inertia: tuple, R, p, slides, turns, rates) -> Body:
        mass, com, J = inertia
        where = f"{self.system.name}: the joint of {', '.join(n for n, *_ in (*slides, *turns))}"
        rotation = np.array(R, float)
        axes = np.reshape([axis for _, axis, _ in turns], (-1, 3)).astype(float)
        if len(axes) > 3 or (len(axes) > 1 and np.linalg.svd(axes, compute_uv=False)[-1] < PARALLEL):
            raise ModelError(
                f"{where} has {len(axes)} axes that are not independent; give the frames between a mass"
            )
        center = vec.add(p, vec.apply(R, com))
        point = self._common_point(where, turns) if turns else center
        with_a = [before == 0 or _along(t, axes) for _, t, before in slides]
        with_b = [before == len(turns) or _along(t, axes) for _, t, before in slides]
        if not (all(with_a) or all(with_b)):
            raise ModelError(f"{where} slides between turns; give the frame between them a mass")
        joint = JointConstraints(
            point,
            vec.apply(vec.transpose(R), vec.sub(point, center)),
            tuple(rotation.ravel().tolist()),
            tuple(tuple(map(float, t)) for _, t, _ in slides),
            tuple(map(tuple, axes.tolist())),
            not all(with_a),
            rates,
        )
        _ = joint.rows
        names = (*(n for n, *_ in slides), *(n for n, *_ in turns))
        cluster = self._clusters[index]
        return Body(self._label(cluster), parent, cluster.root, mass, com, J, joint, names)

    def _common_point(self, where: str, turns: list[tuple[str, Vector, Vector]]) -> Vector:
        """Return a point that lies on all rotation axes of a joint, or raise `ModelError`."""
        if len(turns) == 1:
            return turns[0][2]
        points = np.array([[self.value(c) for c in point] for _, _, point in turns])
        axes = np.array([axis for _, axis, _ in turns], float)
        for i, point in enumerate(points):
            if np.abs(np.cross(axes, points - point)).max() < PARALLEL * (1 + np.abs(points).max()):
                return turns[i][2]
        across = [np.eye(3) - np.outer(a, a) for a in axes]
        meet = np.linalg.lstsq(
            sum(across), sum(P @ q for P, q in zip(across, points, strict=True)), rcond=None
        )[0]
        if np.abs(np.cross(axes, points - meet)).max() > PARALLEL * (1 + np.abs(points).max()):
            raise ModelError(
                f"{where} has axes that do not meet in a point; give the frame between them a mass"
            )
        return tuple(map(float, meet))  # type: ignore[return-value]

    def value(self, number: Any) -> float:
        """Return the numerical value of an expression at the default parameters."""
        if isinstance(number, (int, float)):
            return float(number)
        defaults = list(self.system.parameters.values())
        return float(ca.Function("value", [self._theta], [number])(defaults))


def _along(direction: Any, axes: np.ndarray) -> bool:
    """Return whether a translation commutes with the rotations about given axes.
    The translation is along the vector `direction`.
    """
    return len(axes) == 1 and bool(np.abs(np.cross(axes[0], np.array(direction, float))).max() < PARALLEL)
