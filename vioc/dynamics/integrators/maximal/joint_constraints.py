"""Joints as constraints on the relative translation and rotation of two bodies.
Both the translation and the rotation have 0 to 3 free axes.

Directions and axes of a `JointConstraints` are in the body axes of its parent a and its child b. [M] 2 and
docs/maths/maximal.md derive the constraints and their variations. `ConstraintFunctions` are the functions of
a joint, or of another constraint, that a step needs; equal joints share them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import casadi as ca
import numpy as np

from vioc.dynamics.algebra import vectors as vec
from vioc.dynamics.algebra.vectors import Matrix, Vector
from vioc.dynamics.integrators.maximal.body_space import POSE, unpack_pose
from vioc.errors import ModelError

PARALLEL = 1e-9
KINDS = {  # (free directions, free axes of rotation)
    (0, 0): "fixed",
    (1, 0): "prismatic",
    (2, 0): "planar sliding",
    (3, 0): "fixed orientation",
    (0, 1): "revolute",
    (1, 1): "cylindrical",
    (2, 1): "planar",
    (0, 2): "universal",
    (0, 3): "spherical",
    (3, 3): "floating",
}


@dataclass(frozen=True)
class JointConstraints:
    """Constraints of a joint between two bodies, and the coordinates of its free motions.

    Attributes
    ----------
    at_a, at_b : Vector
        Joint point relative to the centres of mass of a and b, in their axes.
    rest : (9,) floats
        Rotation from b's axes to a's at zero coordinates, by rows.
    directions : tuple of Vector
        Free directions in a's axes at zero coordinates.
    axes : tuple of Vector
        Free axes of rotation in a's axes at zero coordinates; the first one is next to a.
    slides_with_b : bool
        Whether the free directions rotate with b instead of a.
    rates : tuple of float
        Rotation in rad per unit of each axis' coordinate.
    """

    at_a: Vector
    at_b: Vector
    rest: tuple[float, ...]
    directions: tuple[tuple[float, ...], ...] = ()
    axes: tuple[tuple[float, ...], ...] = ()
    slides_with_b: bool = False
    rates: tuple[float, ...] = ()

    @property
    def kind(self) -> str:
        """Name of the joint's type, such as revolute.
        For a joint without a common name, it states the numbers of free directions and axes.
        """
        key = len(self.directions), len(self.axes)
        return KINDS.get(key, f"{key[0]} directions, {key[1]} axes")

    @property
    def rows(self) -> int:
        """Number of scalar constraints of the joint."""
        return len(self.normals) + len(self.pairs)

    @property
    def normals(self) -> np.ndarray:
        """Orthonormal directions (m, 3) in which the joint prevents translation.
        They are orthogonal to the directions in which the joint is free.
        """
        free = np.reshape(self.directions, (-1, 3))
        if not len(free):
            return np.eye(3)
        _, s, vt = np.linalg.svd(free)
        if s[-1] < PARALLEL:
            raise ModelError(f"a joint's directions are not independent: {free.tolist()}")
        return _aligned(vt[len(free) :])

    @property
    def pairs(self) -> list[tuple[np.ndarray, np.ndarray, float]]:
        """Constraints on the relative rotation of the two bodies a and b of the joint.
        Each constraint prescribes the scalar product c of two axes: alpha, fixed in a, and beta, fixed in b.
        The result has the triples (alpha, beta, c), for the constraint alpha . R_a' R_b beta = c with the
        rotation matrices of the bodies; alpha is in a's axes, beta in b's.
        """
        transposed = np.reshape(self.rest, (3, 3)).T
        axes = np.reshape(self.axes, (-1, 3))
        if len(axes) == 0:
            e = np.eye(3)
            return [
                (e[0], transposed @ e[2], 0.0),
                (e[1], transposed @ e[2], 0.0),
                (e[0], transposed @ e[1], 0.0),
            ]
        if len(axes) == 1:
            return [(e, transposed @ axes[0], 0.0) for e in across(axes[0])]
        if len(axes) == 2:
            return [(axes[0], transposed @ axes[1], float(axes[0] @ axes[1]))]
        return []

    # -- constraint rows ---------------------------------------------------------------------------

    def constraint(self, a: tuple[Vector, Matrix], b: tuple[Vector, Matrix]):
        """Return the constraint values at poses of two bodies, with derivatives.
        The poses are those of the bodies a and b. The derivatives of the values g are those with respect to
        the displacements and rotation vectors (dx, phi) of a and of b. They are lists with one row for each
        value.
        """
        (xa, Ra), (xb, Rb) = a, b
        (x1, R1, p1), (x2, R2, p2) = (xa, Ra, self.at_a), (xb, Rb, self.at_b)
        normals = [tuple(n) for n in self.normals]
        if self.slides_with_b:
            (x1, R1, p1), (x2, R2, p2) = (x2, R2, p2), (x1, R1, p1)
            rest = np.reshape(self.rest, (3, 3))
            normals = [tuple(rest.T @ n) for n in self.normals]
        g, first, second = [], [], []
        back1, relative = vec.transpose(R1), vec.matmul(vec.transpose(R1), R2)
        d = vec.apply(back1, vec.sub(vec.add(x2, vec.apply(R2, p2)), x1))
        for n in normals:
            along = vec.apply(R1, n)
            g.append(vec.dot(n, vec.sub(d, p1)))
            first.append((*vec.scale(-1.0, along), *vec.cross(n, d)))
            second.append((*along, *vec.cross(p2, vec.apply(vec.transpose(relative), n))))
        by_a, by_b = (second, first) if self.slides_with_b else (first, second)
        D = vec.matmul(vec.transpose(Ra), Rb)
        for alpha, beta, c in self.pairs:
            image = vec.apply(D, tuple(beta))
            g.append(vec.minus(vec.dot(tuple(alpha), image), c))
            by_a.append((*vec.ZERO, *vec.cross(tuple(alpha), image)))
            by_b.append((*vec.ZERO, *vec.cross(tuple(beta), vec.apply(vec.transpose(D), tuple(alpha)))))
        return g, by_a, by_b

    # -- minimal coordinates -----------------------------------------------------------------------

    def travels(self, a: tuple[Vector, Matrix], b: tuple[Vector, Matrix]) -> list[Any]:
        """Return the translational coordinates, in m, of the joint at poses of the bodies a and b."""
        (xa, Ra), (xb, Rb) = a, b
        free = np.reshape(self.directions, (-1, 3))
        if not len(free):
            return []
        dual = np.linalg.solve(free @ free.T, free)
        d = vec.sub(vec.add(xb, vec.apply(Rb, self.at_b)), vec.add(xa, vec.apply(Ra, self.at_a)))
        if self.slides_with_b:
            dual = dual @ np.reshape(self.rest, (3, 3))
        local = vec.apply(vec.transpose(Rb if self.slides_with_b else Ra), d)
        return [vec.dot(tuple(t), local) for t in dual]

    def angles(self, a: tuple[Vector, Matrix], b: tuple[Vector, Matrix]) -> list[Any]:
        """Return the rotational coordinates of the joint at poses of bodies a and b.
        Each coordinate is an angle in (-pi, pi], divided by the joint's rotation angle per unit of the
        coordinate.
        """
        turns = self._turns(a, b)
        return [t / rate if rate != 1.0 else t for t, rate in zip(turns, self.rates, strict=True)]

    def _turns(self, a: tuple[Vector, Matrix], b: tuple[Vector, Matrix]) -> list[Any]:
        axes = [np.asarray(x) for x in self.axes]
        if not axes:
            return []
        r = self.rest
        rest: Matrix = (r[0:3], r[3:6], r[6:9])  # type: ignore[assignment]
        # D is the rotation of b from its pose at zero coordinates, in a's axes
        D = vec.matmul(vec.matmul(vec.transpose(a[1]), b[1]), vec.transpose(rest))
        transposed = vec.transpose(D)

        def image(m: Matrix, v: np.ndarray, beta: np.ndarray) -> Any:
            return vec.dot(tuple(beta), vec.apply(m, tuple(v)))

        if len(axes) == 1:
            # the twist of D about the axis; it does not depend on e1 if D rotates about other axes too
            e1, e2 = across(axes[0])
            sine = vec.minus(image(D, e1, e2), image(D, e2, e1))
            return [ca.atan2(sine, vec.plus(image(D, e1, e1), image(D, e2, e2)))]
        if len(axes) == 2:
            one, two = axes
            return [_about(one, two, D, image), -_about(two, one, transposed, image)]
        one, two, three = axes
        products = [abs(float(x @ y)) for x, y in ((one, two), (two, three), (one, three))]
        if max(products) > PARALLEL:
            raise ModelError(
                "minimal coordinates of a spherical joint need three mutually orthogonal axes, got "
                f"{[x.tolist() for x in axes]}"
            )
        sigma = float(np.sign(one @ np.cross(two, three)))
        c1, c2 = image(D, one, one), image(D, two, one)
        return [
            ca.atan2(-sigma * image(D, three, two), image(D, three, three)),
            ca.atan2(sigma * image(D, three, one), ca.sqrt(c1 * c1 + c2 * c2)),
            ca.atan2(-sigma * c2, c1),
        ]


def _about(axis: np.ndarray, arm: np.ndarray, D: Matrix, image: Any) -> Any:
    """Return the angle by which a rotation D turns a vector about an axis.
    It is the angle about `axis` from the vector `arm` to the image of `arm` under D, both projected onto the
    plane normal to the axis. The function `image` computes components of this image.
    """
    e1 = arm - (arm @ axis) * axis
    e1 = e1 / np.linalg.norm(e1)
    return ca.atan2(image(D, arm, np.cross(axis, e1)), image(D, arm, e1))


def across(axis: Sequence[float] | np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return two unit vectors e1, e2 with (e1, e2, axis) right-handed.
    They are coordinate axes if `axis` is a coordinate axis.
    """
    axis = np.asarray(axis, float)
    start = np.eye(3)[(int(np.argmax(np.abs(axis))) + 1) % 3]
    e1 = start - (start @ axis) * axis
    e1 = e1 / np.linalg.norm(e1) + 0.0
    return e1, np.cross(axis, e1) + 0.0


def _aligned(rows: np.ndarray) -> np.ndarray:
    """Return coordinate axes that span the same space as the rows of a matrix.
    If there are no such axes, return the rows. Coordinate axes make the code of the constraints sparser.
    """
    projector = rows.T @ rows
    if np.abs(projector - np.diag(np.diag(projector))).max() < 1e-14:
        return np.eye(3)[np.diag(projector) > 0.5]
    return rows


# -- constraints of a step -----------------------------------------------------------------------------------


class ConstraintFunctions:
    """CasADi functions for the constraints by which a joint or a loop connects bodies.
    Constraints with equal equations share one object of this class.

    Parameters
    ----------
    function : casadi.Function
        (poses of the bodies.., parameters) -> g, right variations of g by each body (rows, 6).
    """

    def __init__(self, function: ca.Function):
        self.function, self.bodies, self.size = function, function.n_in() - 1, function.size1_out(0)

    @staticmethod
    def of_joint(joint: JointConstraints, count: int, theta: ca.SX) -> ConstraintFunctions:
        """Return the CasADi functions for the constraints of a joint.
        The joint connects two bodies (`count` is 2), or a body and the world (`count` is 1). The parameters
        are `theta`.
        """
        Z = [ca.SX.sym("Z", POSE) for _ in range(count)]
        places = [unpack_pose(z) for z in Z]
        a = places[0] if count == 2 else (vec.ZERO, vec.IDENTITY)
        g, *variations = joint.constraint(a, places[-1])
        rows = [ca.sparsify(ca.vertcat(*(ca.horzcat(*row) for row in v))) for v in variations[2 - count :]]
        return ConstraintFunctions(ca.Function("joint", [*Z, theta], [ca.vertcat(*g), *rows], {"cse": True}))

    def _arguments(self) -> list[ca.SX]:
        return [ca.SX.sym("a", self.function.size1_in(i)) for i in range(self.function.n_in())]

    @cached_property
    def held(self) -> ca.Function:
        """CasADi function that computes the transposed constraint Jacobian of each body.
        The Jacobians have the shape (6, m), where m is the number of constraint values. The arguments are the
        poses of the bodies.
        """
        args = self._arguments()
        return ca.Function(
            "held", args, [ca.sparsify(g.T) for g in self.function.call(args)[1:]], {"cse": True}
        )

    @cached_property
    def landed(self) -> ca.Function:
        """CasADi function that computes constraint values at the end of a step.
        It also computes their derivatives with respect to the twists of the bodies during the step.

        Its arguments and results are (next poses.., T.., dt, parameters) -> g, H by body, where T maps
        changes of angular velocities to rotation vectors.
        """
        *Z, theta = self._arguments()
        T, dt = [ca.SX.sym("T", 3, 3) for _ in Z], ca.SX.sym("dt")
        g, *rows = self.function.call([*Z, theta])
        H = [ca.sparsify(ca.horzcat(dt * v[:, :3], v[:, 3:] @ t)) for v, t in zip(rows, T, strict=True)]
        return ca.Function("landed", [*Z, *T, dt, theta], [g, *H], {"cse": True})

    @cached_property
    def swept(self) -> ca.Function:
        """CasADi function that computes constraint rates at the end of a step.
        The rates are multiplied by the step length. The results include the derivatives with respect to the
        twists of the bodies at the end of the step.

        Its arguments and results are (G' by body.., twists.., dt) -> dt G V (rows,), dt G by body, for twists
        V and constraint Jacobian G.
        """
        gradients = [ca.SX.sym("G", self.held.sparsity_out(i)) for i in range(self.bodies)]
        V, dt = [ca.SX.sym("V", g.shape[0]) for g in gradients], ca.SX.sym("dt")
        H = [dt * g.T for g in gradients]
        swept = sum((h @ v for h, v in zip(H, V, strict=True)), ca.SX(self.size, 1))
        return ca.Function("swept", [*gradients, *V, dt], [ca.densify(swept), *H])

    @cached_property
    def landed_off(self) -> ca.Function:
        """CasADi function that converts constraint values to dimensionless displacements.
        Its arguments and results are (g, H by body.., length, dt) -> g in natural units. The values g are
        those at the end of a step; each is divided by the norm of its gradient.
        """
        return self._off(self.landed)

    @cached_property
    def swept_off(self) -> ca.Function:
        """CasADi function that converts constraint rates to dimensionless displacements.
        The rates are those at the end of a step, multiplied by the step length. Each of these products is
        divided by the norm of its gradient.
        """
        return self._off(self.swept)

    def _off(self, function: ca.Function) -> ca.Function:
        g, dt, length = ca.SX.sym("g", self.size), ca.SX.sym("dt"), ca.SX.sym("length")
        H = [ca.SX.sym("H", function.sparsity_out(i + 1)) for i in range(self.bodies)]
        slopes = [ca.horzcat(h[:, :3] * length, h[:, 3:]) for h in H]
        sizes = ca.sqrt(sum((ca.sum2(ca.densify(h) ** 2) for h in slopes), ca.SX(self.size, 1))) / ca.fabs(dt)
        displacements = ca.densify(g / ca.if_else(sizes > 0, sizes, 1))
        return ca.Function("off", [g, *H, length, dt], [displacements])

    @cached_property
    def impulse(self) -> ca.Function:
        """CasADi function that computes the impulses of the constraints on the bodies.
        The arguments are the transposed constraint Jacobians of the bodies, and the multipliers.
        """
        gradients = [ca.SX.sym("G", self.held.sparsity_out(i)) for i in range(self.bodies)]
        lam = ca.SX.sym("lambda", self.size)
        return ca.Function("impulse", [*gradients, lam], [ca.densify(g @ lam) for g in gradients])

    @cached_property
    def impulses(self) -> ca.Function:
        """CasADi function that computes the sum of squared constraint impulses, (N s)^2.
        The impulse of each single constraint on each body is squared before summation.

        Its arguments are (G' by body.., multipliers, radii of gyration), for constraint Jacobians G.
        """
        gradients = [ca.SX.sym("G", self.held.sparsity_out(i)) for i in range(self.bodies)]
        lam, radii = ca.SX.sym("lambda", self.size), ca.SX.sym("radii", self.bodies)
        lengths = ca.vertcat(*(ca.vertcat(1, 1, 1, r, r, r) for r in ca.vertsplit(radii)))
        impulses = ca.diag(1 / lengths) @ ca.densify(ca.vertcat(*gradients)) @ ca.diag(lam)
        return ca.Function("impulses", [*gradients, lam, radii], [ca.sumsqr(impulses)])


@dataclass(frozen=True)
class ConstraintNode:
    """Group of constraints that forms one node of the mechanism's graph.

    Attributes
    ----------
    bodies : tuple of int
    names : tuple of str
        Names of the constraints.
    rows : ConstraintFunctions
    joint : bool
        Whether the node is a joint of the tree.
    """

    bodies: tuple[int, ...]
    names: tuple[str, ...]
    rows: ConstraintFunctions
    joint: bool
