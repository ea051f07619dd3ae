"""The same mechanism told in another way: units, mirror image, base pose, order of the tree, split bodies.

::

    change = CHANGES["mirror"](rng)
    other = change.system(system)  # the same mechanism
    y = change.state(f, g, x)  # the same state, of f as one of g

A `Change` says how every dimensional number of a description changes, and with it how states, inputs and
derivatives of every integrator do: linearly, by matrices that are known before anything is simulated.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

import vioc
from vioc import Frame
from vioc.dynamics.algebra import rotations as rot
from vioc.dynamics.description.frame import Pose, Transform, Twist

UNITS = {  # what a metre, a kilogram and a second are in the other units
    "mm, t, 0.1 s": (1e3, 1e-3, 10.0),
    "ft, slug, s": (1 / 0.3048, 1 / 14.59390294, 1.0),
    "km, t, min": (1e-3, 1e-3, 1 / 60),
}
EYE = np.eye(3)
MIRROR = np.diag([1.0, -1.0, 1.0])


@dataclass(frozen=True)
class Change:
    """Another description of a mechanism.

    Attributes
    ----------
    length, mass, time : float
        The other units: a number of metres times `length` is the same length in them.
    world, body : (3, 3)
        Orthogonal: vectors in the world's axes and in those of bodies, but for units.
    shift : (3,)
        Where the world's origin comes to lie, m.
    order, split : random generator or None
        Shuffles children and components; writes bodies as two.
    """

    length: float = 1.0
    mass: float = 1.0
    time: float = 1.0
    world: np.ndarray = field(default_factory=lambda: EYE)
    body: np.ndarray = field(default_factory=lambda: EYE)
    shift: np.ndarray = field(default_factory=lambda: np.zeros(3))
    order: np.random.Generator | None = None
    split: np.random.Generator | None = None

    @property
    def energy(self) -> float:
        return self.mass * self.length**2 / self.time**2

    # -- the description --------------------------------------------------------------------------

    def system(self, system: vioc.System) -> vioc.System:
        """The same mechanism in the other description."""
        frames = [self._frame(f) for f in self._shuffled(system.frames)]
        if (self.world != self.body).any():
            turned = self.world @ self.body.T
            frames = [vioc.se3(self.length * self.shift, rotation=turned)[tuple(frames)]]
        factors = self.factors(system)
        components = [self._component(c, factors) for c in system.components]
        return vioc.System(*frames, *self._shuffled(components), name=system.name)

    def factors(self, system: vioc.System) -> dict[str, float]:
        """The factor of each variable: its number in the other description over its number in this one."""
        transforms = (node.frame.transform for node in system.nodes)
        return {t.variable.name: self._factor(t) for t in transforms if t.variable}

    def _factor(self, transform: Transform) -> float:
        size = 1.0 if transform.rotational else self.length
        if transform.kind == "TWIST":  # its axis changes, not the sense of its variable
            return size
        return size * (axial(self.body) if transform.rotational else self.body)[(transform.axis,) * 2]

    def _shuffled(self, items: Any) -> list[Any]:
        items = list(items)
        return items if self.order is None else [items[i] for i in self.order.permutation(len(items))]

    def _frame(self, frame: Frame) -> Frame:
        mass, more = self._mass(frame.mass), []
        if mass is not None and self.split is not None:
            mass, more = _as_two(mass, self.split)
        children = [*(self._frame(c) for c in self._shuffled(frame.children)), *more]
        return replace(frame, transform=self._transform(frame.transform), mass=mass, children=tuple(children))

    def _transform(self, transform: Transform) -> Transform:
        value = transform.value
        if isinstance(value, Pose):
            R = self.body @ np.reshape(value.rotation, (3, 3)) @ self.body.T
            return replace(transform, value=Pose(self._place(value.position), tuple(R.ravel())))
        if isinstance(value, Twist):
            size = self.length if transform.rotational else 1.0  # m per rad, or per m
            linear, angular = size * self.body @ value.linear, axial(self.body) @ value.angular
            return replace(transform, value=Twist(value.variable, tuple(linear), tuple(angular)))
        return transform if transform.variable else replace(transform, value=value * self._factor(transform))

    def _place(self, position: Any) -> tuple[float, ...]:
        return tuple(self.length * self.body @ position)

    def _mass(self, mass: vioc.Mass | None) -> vioc.Mass | None:
        if mass is None:
            return None
        inertia = self.mass * self.length**2 * (self.body @ mass.matrix() @ self.body.T)
        return vioc.Mass(self.mass * mass.mass, inertia, self._place(mass.com))

    def _component(self, c: Any, factors: dict[str, float]) -> Any:
        """A term; those that studies.metamorphic uses are known."""
        E, L, T = self.energy, self.length, self.time
        a = factors[c.variable] if hasattr(c, "variable") else 1.0
        match c:
            case vioc.Gravity():
                return vioc.Gravity(*(L / T**2 * self.world @ (c.x, c.y, c.z)))
            case vioc.TorsionalSpring():
                return replace(c, stiffness=c.stiffness * E / a**2, rest=c.rest * a)
            case vioc.JointDamping():
                return replace(c, coefficient=c.coefficient * E * T / a**2)
            case vioc.JointForce():
                return c
            case vioc.LinearSpring():
                return replace(c, stiffness=c.stiffness * E / L**2, rest_length=c.rest_length * L)
            case vioc.LinearDamper():
                return replace(c, coefficient=c.coefficient * E * T / L**2)
            case vioc.WrenchInput():
                own = self.body if c.axes == "body" else self.world
                force, moment = E / L * own @ c.force, E * axial(own) @ c.moment
                return replace(c, force=tuple(force), moment=tuple(moment))
            case vioc.PointConstraint():
                return replace(c, direction=tuple(self.world @ c.direction))
            case vioc.DistanceConstraint():
                return replace(c, length=c.length * L)
            case vioc.JointLimits():
                lower, upper = sorted((c.lower * a, c.upper * a))
                return replace(c, lower=lower, upper=upper)
            case vioc.Contact():
                normal = self.world @ c.normal
                offset = L * (c.offset + normal @ self.shift / np.linalg.norm(normal))
                return replace(c, normal=tuple(normal), offset=offset, radius=L * c.radius)
        raise TypeError(f"expected a term that changes are known for, got {c!r}; add it to Change")

    # -- states, inputs, derivatives ----------------------------------------------------------------

    def coordinates(self, factors: dict[str, float], names: Any) -> np.ndarray:
        """Factors of states of generalized coordinates, momenta and rates, by name."""
        of = {**factors}
        for name, a in factors.items():
            of |= {f"p.{name}": self.energy * self.time / a, f"v.{name}": a / self.time}
        return np.array([of[n] for n in names])

    def inputs(self, f: Any, g: Any) -> np.ndarray:
        """F (nu, nu) with the input F u of g: forces on variables are energies over them, others bare."""
        factors = self.factors(f.system)
        driven = {c.input: c.variable for c in f.system.forces if isinstance(c, vioc.JointForce)}
        F = np.zeros((g.nu, f.nu))
        for i, name in enumerate(g.input_names):
            j = f.input_names.index(name)
            F[i, j] = self.energy / factors[driven[name]] if name in driven else 1.0
        return F

    def errors(self, f: Any, g: Any) -> np.ndarray:
        """E (ndx, ndx) with the error E e of g, of this description's map f and error e."""
        return self._matrix(f, blocks(f, False), blocks(g, False), f.ndx)

    def state(self, f: Any, g: Any, x: np.ndarray) -> np.ndarray:
        """The state of g that is the state x (..., nx) of f."""
        y = x @ self._matrix(f, blocks(f, True), blocks(g, True), f.nx).T
        at = 0
        for name, kind in blocks(g, True):
            if kind == "place":
                y[..., at : at + 3] += self.length * self.shift
            if kind == "attitude" and name in getattr(g, "bodies", ()):  # bodies turn with the base
                base = rot.from_matrix((self.world @ self.body.T)[None])[0]
                y[..., at : at + 4] = rot.product(base, y[..., at : at + 4])
            at += SIZES[kind]
        return y

    def _matrix(self, f: Any, ours: list, theirs: list, size: int) -> np.ndarray:
        factors, columns, at = self.factors(f.system), {}, 0
        for block in ours:
            columns[block] = slice(at, at := at + SIZES[block[1]])
        matrix, at = np.zeros((size, size)), 0
        for block in theirs:
            kind = block[1]
            rows = slice(at, at := at + SIZES[kind])
            matrix[rows, columns[block]] = (
                self.coordinates(factors, [block[0]]) if kind == "number" else self._vector(kind)
            )
        return matrix

    def _vector(self, kind: str) -> np.ndarray:
        L, T = self.length, self.time
        own = axial(self.body)
        match kind:
            case "place":
                return L * self.world
            case "velocity":
                return L / T * self.world
            case "attitude":
                return np.block([[1.0, np.zeros((1, 3))], [np.zeros((3, 1)), own]])
            case "turn":
                return own
            case "spin":
                return own / T
        return self.energy * T * own  # the momentum of a spin


SIZES = {"number": 1, "place": 3, "velocity": 3, "turn": 3, "attitude": 4, "spin": 3, "momentum": 3}


def blocks(f: Any, of_states: bool) -> list[tuple[str, str]]:
    """The numbers of a state, or of its error, in their order: pairs (name, a key of SIZES)."""
    turn = "attitude" if of_states else "turn"
    if isinstance(f, vioc.MaximalVI):
        pairs = (("place", turn), ("velocity", "spin"))
        return [(body, kind) for kinds in pairs for body in f.bodies for kind in kinds]
    if hasattr(f, "rotations"):  # GroupVI
        numbers, momenta = ([(f"{m}{n}", "number") for n in f.others] for m in ("", "p."))
        turns, spins = ([(base, kind) for base in f.bases] for kind in (turn, "momentum"))
        return [*numbers, *turns, *momenta, *spins]
    return [(n, "number") for n in f.state_names]


def axial(Q: np.ndarray) -> np.ndarray:
    """How turns and moments change where vectors change by the orthogonal Q."""
    return np.linalg.det(Q).round() * Q


def rotation(rng: np.random.Generator) -> np.ndarray:
    """A random rotation."""
    return np.array(rot.matrix(tuple(_unit(rng, 4))))


def _unit(rng: np.random.Generator, size: int) -> np.ndarray:
    a = rng.standard_normal(size)
    return a / np.linalg.norm(a)


def _as_two(mass: vioc.Mass, rng: np.random.Generator) -> tuple[vioc.Mass, list[Frame]]:
    """A body as one on its frame and another on a frame fixed to it; together they are the body.

    With shares s and 1 - s of the mass, whose centres lie d apart, the second moments about the centres
    are those of the whole less s (1 - s) m d d'; half of what keeps them positive is taken.
    """
    whole = mass.matrix()
    second = np.trace(whole) / 2 * EYE - whole
    s, part = rng.uniform(0.2, 0.8, size=2)
    values, axes = np.linalg.eigh(second)
    room = np.sqrt(np.maximum(values, 0.0) / (2 * s * (1 - s) * mass.mass))
    d = axes @ (room * _unit(rng, 3))
    left = second - s * (1 - s) * mass.mass * np.outer(d, d)
    one, two = (w * (np.trace(left) * EYE - left) for w in (part, 1 - part))
    com, R = np.array(mass.com), rotation(rng)
    place = com + np.linalg.norm(room) * _unit(rng, 3)
    own = vioc.Mass((1 - s) * mass.mass, R.T @ two @ R, tuple(R.T @ (com + s * d - place)))
    first = vioc.Mass(s * mass.mass, one, tuple(com - (1 - s) * d))
    return first, [vioc.se3(place, rotation=R, mass=own)]


def _units(name: str) -> Callable[[np.random.Generator], Change]:
    return lambda _: Change(*UNITS[name])


CHANGES: dict[str, Callable[[np.random.Generator], Change]] = {
    **{name: _units(name) for name in UNITS},
    "mirror": lambda _: Change(world=MIRROR, body=MIRROR),
    "base pose": lambda rng: Change(world=rotation(rng), shift=rng.uniform(-2.0, 2.0, size=3)),
    "tree order": lambda rng: Change(order=rng),
    "split bodies": lambda rng: Change(split=rng),
}
