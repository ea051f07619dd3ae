"""Random mechanisms with trees and loops, each determined by a seed and an index.

They serve to test statements about any mechanism, for example an integrator of your own::

    for name, system, q0, v0 in mechanisms(300):
        f = vioc.MidpointVI(system, 0.01)
        run = f.rollout(f.initial_state(q0, v0), steps=100)

A mechanism has 2 to 12 joints, with revolute, prismatic, helical, universal and spherical ones mixed, at
random poses on a random tree, between a bush and a chain. Every joint carries a solid body that is not
centred on its axis, so that mass matrices are singular only at singularities of a spherical joint's
coordinates. There is gravity; slides and some other joints have springs, and some joints dampers and inputs.
Two in five mechanisms have loops: a point of a body is held at a place, at a point of another body, or at a
distance from one. The start is random and consistent, and the constraints are independent there.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from vioc.dynamics.consistency import consistent_configuration
from vioc.dynamics.description.frame import Frame, se3
from vioc.dynamics.description.inertia import Mass
from vioc.dynamics.description.joints import helical, prismatic, revolute, spherical, universal
from vioc.dynamics.description.system import System
from vioc.dynamics.kinematics import Kinematics
from vioc.dynamics.lagrangian import Lagrangian
from vioc.dynamics.terms.constraints import DistanceConstraint, StringConstraint, coincident
from vioc.dynamics.terms.forces import JointDamping, JointForce
from vioc.dynamics.terms.potentials import Gravity, TorsionalSpring

__all__ = ["RandomMechanism", "mechanism", "mechanisms"]

SEED = 14
JOINTS = (2, 12)
LOOPS = 0.4  # share of mechanisms with constraints
KINDS = {"revolute": 0.5, "prismatic": 0.15, "helical": 0.1, "universal": 0.15, "spherical": 0.1}
INDEPENDENT = 0.1  # smallest singular value of Dh at a start, with rows of length 1
SPEED = 1.0  # standard deviation of the initial rates, rad/s and m/s, before they are made consistent


class RandomMechanism(NamedTuple):
    """Random mechanism, with a state that satisfies its constraints.
    The state is a configuration and a velocity.

    Attributes
    ----------
    name : str
        Kind and index, such as ``"tree 17"`` or ``"loop 18"``.
    system : System
    q, v : (nq,)
        Consistent configuration and velocity; rad and m, and per second.
    """

    name: str
    system: System
    q: np.ndarray
    v: np.ndarray


def mechanisms(
    count: int = 300,
    first: int = 0,
    *,
    seed: int = SEED,
    joints: tuple[int, int] = JOINTS,
    strings: float = 0.0,
) -> Iterator[RandomMechanism]:
    """Yield the random mechanisms `first` to ``first + count - 1`` of a family.
    The `seed` selects the family. For `joints` and `strings`, see the function `mechanism`.
    """
    indices = range(first, first + count)
    return (mechanism(index, seed=seed, joints=joints, strings=strings) for index in indices)


def mechanism(
    index: int, *, seed: int = SEED, joints: tuple[int, int] = JOINTS, strings: float = 0.0
) -> RandomMechanism:
    """Return random mechanism number `index` of the family that the `seed` selects.
    Mechanisms of different indices are statistically independent.

    `joints` are the smallest and the largest number of joints, `strings` is the share of strings among the
    rods of loops.
    """
    rng = np.random.default_rng([seed, index])
    loop = bool(rng.random() < LOOPS)
    name = f"{'loop' if loop else 'tree'} {index}"
    while True:
        tree = _Tree(rng, joints)
        system = System(*tree.frames({}), *_terms(rng, tree), name=name)
        q = rng.uniform(-1.0, 1.0, size=len(system.variables))
        v = SPEED * rng.standard_normal(len(q))
        if not loop:
            return RandomMechanism(name, system, q, v)
        lag = _closed(rng, tree, system, q, strings)
        if lag is not None:
            q = consistent_configuration(lag, q).q  # changes only rounding errors
            J = lag.constraint_jacobian(q)
            return RandomMechanism(name, lag.system, q, v - np.linalg.pinv(J) @ (J @ v))


class _Tree:
    """Random tree of joints and rigid bodies.
    Body i has a point ``tip i``, and is attached to the body ``parents[i]``, or to the world (-1).
    """

    def __init__(self, rng: np.random.Generator, joints: tuple[int, int]):
        count = int(rng.integers(joints[0], joints[1] + 1))
        chained = rng.random()  # probability that a body is attached to the previous one
        self.parents = [-1]
        for i in range(1, count):
            self.parents.append(i - 1 if rng.random() < chained else int(rng.integers(-1, i)))
        self.kinds = [str(k) for k in rng.choice(list(KINDS), size=count, p=list(KINDS.values()))]
        self.places: list[dict[str, Any]] = [
            dict(position=_offset(rng), rotation=_rotation(rng)) for _ in range(count)
        ]
        self.joints = [_joint(rng, kind, i) for i, kind in enumerate(self.kinds)]
        self.tips = [_offset(rng) for _ in range(count)]

    def frames(self, anchors: dict[int, dict[str, Any]]) -> list[Frame]:
        """Return the root frames of the tree, with points `anchors` added to bodies.
        The key of `anchors` is a body's index; the world has index -1.
        """

        def points(i: int) -> list[Frame]:
            return [se3(position, name=name) for name, position in anchors.get(i, {}).items()]

        below: dict[int, list[Frame]] = {i: points(i) for i in range(-1, len(self.parents))}
        for i in reversed(range(len(self.parents))):
            carried = (se3(self.tips[i], name=f"tip{i}"), *below[i])
            below[self.parents[i]].append(se3(**self.places[i])[self.joints[i][carried]])
        return below[-1]


def _joint(rng: np.random.Generator, kind: str, i: int) -> Any:
    name = f"q{i}"
    carried: dict[str, Any] = dict(frame=f"body{i}", mass=_body(rng))
    if kind == "universal":
        return universal(name, str(rng.choice(["xy", "yz", "zx"])), **carried)
    if kind == "spherical":
        return spherical(name, str(rng.choice(["zyx", "xyz", "yxz"])), **carried)
    axis = str(rng.choice(["x", "y", "z"]))
    if kind == "helical":
        return helical(name, float(rng.uniform(-0.2, 0.2)), axis, **carried)
    return (revolute if kind == "revolute" else prismatic)(name, axis, **carried)


def _body(rng: np.random.Generator) -> Mass:
    """Return the mass, inertia and centre of mass of a solid ellipsoid of random size."""
    mass, axes, R = rng.uniform(0.3, 3.0), rng.uniform(0.08, 0.3, size=3), _rotation(rng)
    second = R @ np.diag(axes**2 / 5) @ R.T  # per unit of mass
    inertia = mass * (np.trace(second) * np.eye(3) - second)
    return Mass(float(mass), inertia, _offset(rng))


def _offset(rng: np.random.Generator) -> tuple[float, ...]:
    """Return a random point at a distance of 0.2 to 0.6 m from the origin."""
    direction = rng.standard_normal(3)
    return tuple((rng.uniform(0.2, 0.6) * direction / np.linalg.norm(direction)).tolist())


def _rotation(rng: np.random.Generator) -> np.ndarray:
    Q, R = np.linalg.qr(rng.standard_normal((3, 3)))
    Q *= np.sign(np.diag(R))
    turn: np.ndarray = Q * np.linalg.det(Q)
    return turn


def _terms(rng: np.random.Generator, tree: _Tree) -> list[Any]:
    """Return gravity and random springs, dampers and inputs for the joints of a tree.
    Every prismatic joint has a spring.
    """
    terms: list[Any] = [Gravity(0, 0, -9.81)]
    variables = System(*tree.frames({})).variables
    for name in variables:
        slides = tree.kinds[int(name[1:].split("-")[0])] == "prismatic"
        if slides or rng.random() < 0.3:
            stiffness = rng.uniform(50, 500) if slides else rng.uniform(0.5, 20)
            terms.append(TorsionalSpring(name, float(stiffness), float(rng.uniform(-0.5, 0.5))))
        if rng.random() < 0.3:
            terms.append(JointDamping(name, float(rng.uniform(0.01, 0.5))))
        if rng.random() < 0.5:
            terms.append(JointForce(name, f"u-{name}"))
    return terms


def _closed(
    rng: np.random.Generator, tree: _Tree, system: System, q: np.ndarray, strings: float
) -> Lagrangian | None:
    """Close one or two loops in a random tree by constraints.
    The configuration q satisfies these constraints. Return the Lagrangian of the mechanism. Return None if
    the constraints are nearly dependent or leave no freedom to move.

    `strings` is the share of strings among the rods.
    """
    kinematics = Kinematics(system)
    anchors: dict[int, dict[str, Any]] = {}
    constraints: list[Any] = []
    for k in range(int(rng.integers(1, 3))):
        body, other = (int(i) for i in rng.choice(np.arange(-1, len(tree.parents)), size=2, replace=False))
        body, other = (other, body) if body < 0 else (body, other)
        tip = kinematics.position(f"tip{body}", q)
        pose = np.eye(4) if other < 0 else kinematics.pose(f"body{other}", q)
        name = f"anchor{k}"
        if rng.random() < 0.6:
            anchors.setdefault(other, {})[name] = tuple(pose[:3, :3].T @ (tip - pose[:3, 3]))
            constraints += coincident(f"tip{body}", name, name=f"pin{k}")
        else:
            away = _offset(rng)
            anchors.setdefault(other, {})[name] = away
            length = float(np.linalg.norm(tip - pose[:3, 3] - pose[:3, :3] @ np.array(away)))
            pulls = strings > 0 and rng.random() < strings
            kind = StringConstraint if pulls else DistanceConstraint
            constraints.append(kind(f"tip{body}", name, length, name=f"{'string' if pulls else 'rod'}{k}"))
    if len(constraints) >= len(q):
        return None
    closed = Lagrangian(System(*tree.frames(anchors), *system.components, *constraints, name=system.name))
    J = closed.constraint_jacobian(q)
    size = np.linalg.norm(J, axis=1, keepdims=True)
    if not (size > 1e-3).all() or np.linalg.svd(J / size, compute_uv=False)[-1] < INDEPENDENT:
        return None
    return closed
