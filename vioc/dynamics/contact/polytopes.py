"""Convex polytopes (boxes and hulls), and the contact points between them.

docs/maths/contact.md, "Boxes and hulls".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import casadi as ca
import numpy as np

from vioc.dynamics.algebra import vectors as vec
from vioc.dynamics.algebra.vectors import Matrix, Vector
from vioc.dynamics.description.component import Inequality
from vioc.dynamics.description.numbers import Parameter
from vioc.dynamics.terms.contact_shapes import Shape, triangles
from vioc.errors import ModelError

PLACES = 8  # largest number of contact points of a pair
NUMBERS = 11  # values of a contact point: points of both bodies, normal, body that carries it, offset
OFF = np.array([0.0] * 10 + [1.0])  # unused contact point: zero normal, gap of one metre
SAME = 0.02  # distance below which two contact points count as one, relative to the size
FLAT = 1e-6  # difference of the unit normals of faces in one plane


class Polytope:
    """Convex polytope: corners, faces and edges in the axes of its body.

    Attributes
    ----------
    corners : (nv, 3)
    normals, levels : (nf, 3), (nf,)
        Outward normals of the faces, and their distances from the origin.
    faces : (nf, m)
        Corners around each face in the positive sense; the last is repeated in smaller faces.
    directions : (ne, 3)
        Directions of the edges, one for parallel edges.
    edges : (k, 2)
        Corners of each edge.
    along : (k,)
        Direction of each edge.
    center, radius : (3,), float
        Sphere around the polytope.
    """

    def __init__(self, shape: Shape, R: np.ndarray, p: np.ndarray):
        points = np.array([[float(c) for c in ball.center] for ball in shape.corners()])
        self.corners = points @ R.T + p
        faces: list[tuple[np.ndarray, list[int]]] = []
        for face in triangles(self.corners):
            a, b, c = self.corners[face]
            n = np.cross(b - a, c - a)
            n /= np.linalg.norm(n)
            for normal, around in faces:
                if np.abs(normal - n).max() < FLAT:
                    around += face.tolist()
                    break
            else:
                faces.append((n, face.tolist()))
        self.normals = np.array([n for n, _ in faces])
        loops = [self._around(n, sorted(set(own))) for n, own in faces]
        self.levels = np.array(
            [n @ self.corners[loop[0]] for n, loop in zip(self.normals, loops, strict=True)]
        )
        most = max(map(len, loops))
        self.faces = np.array([loop + loop[-1:] * (most - len(loop)) for loop in loops])
        pairs = {tuple(sorted(e)) for loop in loops for e in zip(loop, loop[1:] + loop[:1], strict=True)}
        self.edges = np.array(sorted(pairs))
        directions: list[np.ndarray] = []
        edge_directions = []
        for i, j in self.edges:
            d = self.corners[j] - self.corners[i]
            d /= np.linalg.norm(d)
            matches = [k for k, e in enumerate(directions) if 1 - abs(d @ e) < FLAT**2]
            if not matches:
                directions.append(d)
            edge_directions.append(matches[0] if matches else len(directions) - 1)
        self.directions, self.along = np.array(directions), np.array(edge_directions)
        self.center = (self.corners.min(axis=0) + self.corners.max(axis=0)) / 2
        self.radius = float(np.linalg.norm(self.corners - self.center, axis=1).max())

    def _around(self, n: np.ndarray, indices: list[int]) -> list[int]:
        points = self.corners[indices] - self.corners[indices].mean(axis=0)
        x = points[0] / np.linalg.norm(points[0])
        angle = np.arctan2(points @ np.cross(n, x), points @ x)
        return [indices[i] for i in np.argsort(angle)]

    @property
    def topology(self) -> tuple:
        return (self.faces.shape, self.corners.shape, self.directions.shape, self.edges.shape)


@dataclass(frozen=True)
class Pair:
    """Two polytopes that can touch, and the indices of their bodies (-1 is the world)."""

    bodies: tuple[int, int]
    first: Polytope
    second: Polytope


def check_numbers(where: str, item: Inequality, shape: Shape) -> None:
    """Raise `ModelError` if any dimension of a box or a convex hull is a declared parameter."""
    if any(isinstance(n, Parameter) for n in shape.numbers()):
        raise ModelError(
            f"{where}: {item.label()}: boxes and hulls that meet each other take numbers, not parameters, "
            f"got {shape}"
        )


def placed(poses: list[tuple[Vector, Matrix]], data: list[Any]) -> tuple[Any, Vector, Vector, Any]:
    """Return the gap, normal, position and flag of a contact point of polytopes.
    Each of the `poses` of the two bodies is a position and a rotation matrix. The list `data` has the numbers
    that define the contact point in the axes of the bodies. The flag is 0 if `data` defines no contact point,
    and 1 otherwise.
    """
    local, n, side, offset = (tuple(data[:3]), tuple(data[3:6])), tuple(data[6:9]), data[9], data[10]
    points = [vec.add(x, vec.apply(R, p)) for (x, R), p in zip(poses, local, strict=True)]
    shares = ca.fmax(side, 0.0), ca.fmax(-side, 0.0)  # one of the two bodies carries the normal
    n = vec.add(*(vec.scale(s, vec.apply(R, n)) for s, (_, R) in zip(shares, poses, strict=True)))
    distance = vec.dot(n, vec.sub(points[1], points[0]))
    nearest = vec.add(points[0], vec.scale(distance / 2, n)), vec.sub(points[1], vec.scale(distance / 2, n))
    # halfway between the surfaces, on the normal through the point of the body without it
    middle = vec.add(vec.scale(shares[1], nearest[0]), vec.scale(shares[0], nearest[1]))
    return distance + offset, n, middle, side * side
