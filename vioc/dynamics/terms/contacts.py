"""Rigid contacts with Coulomb friction, between bodies and the ground and between two bodies.

The ground is a half-space or terrain. Contacts are inelastic unless they have a restitution, which
`ContactVI` supports. Maths: docs/maths/contact.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Any, ClassVar

from vioc.dynamics.algebra import vectors as vec
from vioc.dynamics.description.component import (
    Inequality,
    Meeting,
    axes,
    choice,
    direction,
    frame,
    number,
    shape,
    vector,
)
from vioc.dynamics.description.numbers import Number
from vioc.dynamics.terms.contact_shapes import (
    ORIGIN,
    UP,
    Box,
    Capsule,
    Ground,
    HalfSpace,
    Shape,
    Sphere,
    Vector3,
)
from vioc.dynamics.terms.distances import meet
from vioc.dynamics.terms.joint_limits import at_most_whole
from vioc.dynamics.terms.terrain import Terrain
from vioc.errors import ModelError

CONES = ("second-order", "linear")
GROUND = HalfSpace()
Land = HalfSpace | Terrain
Part = tuple[str, Shape, str, Shape]


class FrictionContact(Inequality):
    """Base class of rigid contacts with Coulomb friction.

    Subclasses have friction, directions and cone.
    """

    friction: Number
    directions: int
    cone: str

    def parts(self) -> dict[str, Part]:
        """Return the pairs of shapes that can touch, one pair for each contact of this component.
        A contact's name is the component's name followed by the key of its pair.

        Each pair is (frame, shape, frame, shape).
        """
        raise TypeError(f"{type(self).__name__} must define parts()")

    def meetings(self, k: Any) -> dict[str, Meeting]:
        meetings = {}
        for suffix, (frame1, shape1, frame2, shape2) in self.parts().items():
            sides = []
            for name, part in ((frame1, shape1), (frame2, shape2)):
                row = part.placed(k.number, vec.IDENTITY, vec.ZERO)
                sides.append(part.at(row, *k.node_pose(k.system.frame_index(name))))
            meetings[suffix] = Meeting(*meet(*sides), frame1, frame2)
        return meetings

    def __post_init__(self) -> None:
        super().__post_init__()
        count: Any = self.directions
        if not isinstance(count, (int, float)) or count != int(count) or count < 4 or count % 2:
            raise ModelError(
                f"{self.label()}: directions: expected an even number of directions of the friction cone, "
                f"at least 4, got {count!r}"
            )
        object.__setattr__(self, "directions", int(count))
        at_most_whole(self)


@dataclass(frozen=True, repr=False)
class Contact(FrictionContact):
    """Contact of a sphere or a point of a body with a half-space (the ground).

    Parameters
    ----------
    frame : str
        Frame that carries the sphere.
    normal : 3 numbers
        n of the half-space, out of the ground, in the axes of `plane`; not normalized.
    offset : number
        Distance of the ground's plane from the origin of `plane` along the normal, m.
    center : 3 numbers
        Centre of the sphere, in the frame, m.
    radius : number
        m, >= 0; 0 is a point.
    friction : number
        Coulomb's coefficient mu >= 0; by default there is no friction.
    directions : int
        Number of directions of the linear cone, even, at least 4; the round cone has none.
    cone : "second-order" or "linear"
        Coulomb's round cone; or the polygon inside it of [M] (4a), whose friction depends on the
        direction: with 4 directions friction is up to 29 % too small between them, and paths are deflected.
    plane : str
        Frame in which the plane is given. It may move in `ContactVI`; `MaximalVI` requires a fixed one.
    restitution : number
        e of an impact, from 0 (inelastic) to 1, in `ContactVI`.
    """

    keyword: ClassVar[str] = "CONTACT"

    frame: str = frame()
    normal: Vector3 = direction(UP)
    offset: Number = number(0.0)
    center: Vector3 = vector(ORIGIN)
    radius: Number = number(0.0, minimum=0.0)
    friction: Number = number(0.0, minimum=0.0)
    directions: int = number(4)
    cone: str = choice(*CONES)
    plane: str = axes()
    restitution: Number = number(0.0, minimum=0.0)

    def parts(self) -> dict[str, Part]:
        return {
            "": (self.plane, Ground(self.normal, self.offset), self.frame, Sphere(self.radius, self.center))
        }

    # -- contacts of shapes ------------------------------------------------------------------------

    @classmethod
    def point(
        cls, frame: str, at: Any = ORIGIN, *, ground: Land = GROUND, **options: Any
    ) -> Contact | PairContact:
        """Return a contact between a point of a body and the ground.

        Parameters
        ----------
        frame : str
        at : 3 numbers
            Point in the frame, m.
        ground : HalfSpace
        **options
            ``friction``, ``directions``, ``cone``, ``name``, as for `Contact`.
        """
        return cls.sphere(frame, 0.0, at, ground=ground, **options)

    @classmethod
    def sphere(
        cls,
        frame: str,
        radius: Number,
        center: Any = ORIGIN,
        *,
        ground: Land = GROUND,
        **options: Any,
    ) -> Contact | PairContact:
        """Return a contact between a sphere on a body and the ground.
        The options are those of `point`: friction, directions, cone and name.
        """
        if isinstance(ground, Terrain):
            return PairContact("world", ground, frame, Sphere(radius, center), **options)
        return cls(
            frame,
            ground.normal,  # type: ignore[arg-type]
            ground.offset,
            center,
            radius,
            plane=ground.frame,
            **options,
        )

    @classmethod
    def capsule(
        cls,
        frame: str,
        radius: Number,
        length: float,
        axis: Any = UP,
        center: Any = ORIGIN,
        *,
        name: str | None = None,
        **options: Any,
    ) -> tuple[Contact | PairContact, ...]:
        """Return contacts between a capsule on a body and the ground, one for the sphere at each end.

        They are named ``NAME-1`` and ``NAME-2``.

        Parameters
        ----------
        frame : str
        radius : number
        length : float
            Distance between the centres of the spheres, m, > 0.
        axis, center : 3 numbers
            Direction and midpoint of the capsule, in the frame; the axis need not be normalized.
        """
        return cls.on(frame, Capsule(radius, length, axis, center), name=name, **options)

    @classmethod
    def box(
        cls, frame: str, size: Any, center: Any = ORIGIN, *, name: str | None = None, **options: Any
    ) -> tuple[Contact | PairContact, ...]:
        """Return contacts between a box on a body and the ground, one for each corner.

        The box lies along the frame's axes. Its contacts are named ``NAME-1`` to ``NAME-8``.

        Parameters
        ----------
        frame : str
        size : 3 numbers
            Edge lengths, m, > 0.
        center : 3 numbers
            Centre in the frame, m.
        """
        return cls.on(frame, Box(size, center), name=name, **options)

    @classmethod
    def on(
        cls, frame: str, shape: Shape, *, name: str | None = None, **options: Any
    ) -> tuple[Contact | PairContact, ...]:
        """Return contacts between a contact shape on a body and the ground, one for each corner.

        They are named ``NAME-1``, ``NAME-2``, ... Options are those of `point`.
        """
        return tuple(
            cls.sphere(frame, ball.radius, ball.center, name=_numbered(name, i), **options)
            for i, ball in enumerate(shape.corners())
        )


@dataclass(frozen=True, repr=False)
class PairContact(FrictionContact):
    """Contact between two contact shapes, each carried by a body.

    Parameters
    ----------
    frame1, frame2 : str
        Frames that carry the shapes, of bodies that no joint connects. The first may be fixed in the world.
    shape1, shape2 : Sphere, Capsule, Box or Hull
        The first may be a `Terrain`, whose frame is the world.
    friction, directions, cone, restitution
        As for `Contact`.

    Notes
    -----
    Two shapes that meet in one point have the contact ``NAME``; a capsule and a box or hull have ``NAME-1``
    to ``NAME-3``; two capsules ``NAME-1`` to ``NAME-5`` (the four ends, and the nearest points); a shape on
    terrain one for each corner; two boxes or hulls up to eight contact points, which every step finds.
    """

    keyword: ClassVar[str] = "PAIR-CONTACT"

    frame1: str = frame()
    shape1: Shape = shape()
    frame2: str = frame()
    shape2: Shape = shape()
    friction: Number = number(0.0, minimum=0.0)
    directions: int = number(4)
    cone: str = choice(*CONES)
    restitution: Number = number(0.0, minimum=0.0)

    def __post_init__(self) -> None:
        super().__post_init__()
        first, second = self.shape1, self.shape2
        if isinstance(first, Terrain) and self.frame1 != "world":
            raise ModelError(f"{self.label()}: a terrain belongs to the frame 'world', got {self.frame1!r}")
        if isinstance(second, Terrain):
            raise ModelError(f"{self.label()}: a terrain is the first of two shapes")
        balls = [s for s in (first, second) if isinstance(s, Sphere)]
        if len(balls) == 2 and sum(float(s.radius) for s in balls) <= 0:
            raise ModelError(f"{self.label()}: one of the two radii must be > 0")

    @classmethod
    def among(cls, shapes: Mapping[str, Shape], *, name: str = "", **options: Any) -> tuple[PairContact, ...]:
        """Return one contact for every pair of several bodies.
        The keys of `shapes` are the frames of the bodies. A contact's name is the text `name` followed by the
        names of its two frames, joined by a hyphen.
        """
        pairs = combinations(shapes.items(), 2)
        return tuple(cls(a, s, b, t, name=f"{name}{a}-{b}", **options) for (a, s), (b, t) in pairs)

    @property
    def by_features(self) -> bool:
        """Return whether both shapes are boxes or hulls.
        The contact of two such shapes has no closed-form expression.
        """
        return self.shape1.flat and self.shape2.flat

    def parts(self) -> dict[str, Part]:
        if self.by_features:
            raise ModelError(
                f"{self.label()}: boxes and hulls meet each other in features that MaximalVI and ContactVI "
                "find in every step; elsewhere give one of them as spheres or capsules"
            )
        first, second = (self.frame1, self.shape1), (self.frame2, self.shape2)
        pairs: list[tuple[tuple[str, Shape], tuple[str, Shape]]]
        if isinstance(self.shape1, Terrain):
            balls = list(self.shape2.corners())
            pairs = [(first, (self.frame2, ball)) for ball in balls]
        elif isinstance(self.shape1, Capsule) and isinstance(self.shape2, Capsule):
            pairs = [(first, (self.frame2, ball)) for ball in self.shape2.corners()]
            pairs += [((self.frame1, ball), second) for ball in self.shape1.corners()]
            pairs += [(first, second)]
        elif self.shape2.flat:
            pairs = [((self.frame1, part), second) for part in self.shape1.against_box()]
        elif self.shape1.flat:
            pairs = [(first, (self.frame2, part)) for part in self.shape2.against_box()]
        else:
            pairs = [(first, second)]
        return {f"-{i + 1}" * (len(pairs) > 1): (*a, *b) for i, (a, b) in enumerate(pairs)}

    def numbers(self) -> tuple[Number, ...]:
        return (*super().numbers(), *self.shape1.numbers(), *self.shape2.numbers())


def _numbered(name: str | None, i: int) -> str | None:
    return None if name is None else f"{name}-{i + 1}"
