"""`cable`: a chain of segments as frames, springs and dampers of a description."""

from __future__ import annotations

from typing import Any

import numpy as np

from vioc.cables.chain import direction, frames, hinge_stiffness, terms, turns, variables
from vioc.cables.section import Section
from vioc.checks import check_array
from vioc.dynamics.description.component import Component
from vioc.dynamics.description.frame import Frame
from vioc.dynamics.description.numbers import Number, as_numbers, check_name
from vioc.dynamics.terms.cables import BendingSpring
from vioc.dynamics.terms.constraints import coincident
from vioc.errors import ModelError

STARTS = ("pinned", "clamped", "free")
MASSES = ("rods", "nodes")
STIFFNESS = ("beam", "paper")


class Cable(tuple):
    """The first frame of a cable and its springs and dampers, as (frame, *terms); made by `cable`.

    A `System` takes it as it is, and then it starts at the world's origin. Elsewhere its `frame` goes into
    the tree and its `terms` into the system; square brackets put children on its far end::

        rope = cable("rope", 20, 1.5, Section(0.1))[tz(0, name="load", mass=5.0)]
        System(Gravity(0, 0, -9.81), tx(K("trolley"))[rope.frame], rope.terms)

    Attributes
    ----------
    name : str
    segments : int
    length : float
        m.
    section : Section
    hinges : tuple of tuple of str
        Variables of each segment's hinge, in the order of the option `hinges`.
    extensions : tuple of str
        Variables of the segments' elongations; empty where the cable is inextensible.
    """

    _options: dict[str, Any]
    name: str
    segments: int
    length: float
    section: Section
    hinges: tuple[tuple[str, ...], ...]
    extensions: tuple[str, ...]

    def __new__(cls, options: dict[str, Any], *variables: Any) -> Cable:
        return super().__new__(cls, (frames(options, *variables), *terms(options, *variables)))

    def __init__(self, options: dict[str, Any], *variables: Any):
        self._options = options
        self.name, self.segments, self.length, self.section = (
            options[name] for name in ("name", "segments", "length", "section")
        )
        self.hinges, self.extensions = variables

    @property
    def frame(self) -> Frame:
        return next(iter(self))

    @property
    def terms(self) -> tuple[Component, ...]:
        return tuple(self)[1:]

    @property
    def nodes(self) -> tuple[str, ...]:
        """Names of the frames at the ends of segments, from start (NAME-0) to far end."""
        return tuple(f"{self.name}-{i}" for i in range(self.segments + 1))

    def __getitem__(self, children: Any) -> Cable:
        """The cable with children on its far end."""
        items = children if isinstance(children, tuple) else (children,)
        return cable(**{**self._options, "end": (*self._options["end"], *items)})

    def __reduce__(self):
        return _again, (self._options,)

    def __repr__(self) -> str:
        parts = [f"{k}={v!r}" for k, v in self._options.items() if k != "end" or v]
        return f"cable({', '.join(parts)})"

    def attach(
        self,
        to: str,
        node: int | None = None,
        *,
        clamped: bool = False,
        axes: str | None = None,
        axes_of: str = "world",
        name: str | None = None,
    ) -> tuple[Component, ...]:
        """Constraints that hold a node at a frame's origin, for the system.

        Parameters
        ----------
        to : str
            A frame, or ``"world"``.
        node : int, optional
            Which one; by default the far end.
        clamped : bool
            Whether the far end keeps the direction of the frame, whose axes are those of a straight
            cable's segments; by a stiffness of 2 E I / l, as at a clamped start.
        axes : str, optional
            Directions that are held, by default those in which the cable moves.
        axes_of : str
            The frame whose axes these are.
        name : str, optional
            Of the constraints, NAME-x ...; by default CABLE-NODE.

        Raises
        ------
        ModelError
            For a node that there is not, or an inner one clamped.
        """
        index = self.segments if node is None else node
        if not 0 <= index <= self.segments:
            raise ModelError(f"cable {self.name!r}: node: expected 0 ... {self.segments}, got {node!r}")
        frame = self.nodes[index]
        held = coincident(
            frame, to, axes or self._moves(), direction_in=axes_of, name=name or f"{frame}-at-{to}"
        )
        if not clamped:
            return held
        if index < self.segments:
            raise ModelError(
                f"cable {self.name!r}: only the far end is clamped here, got node {node}; start='clamped'"
            )
        stiffness: list[Any] = [0.0, 0.0, 0.0]
        for axis, k in hinge_stiffness(self._options, 1).items():
            stiffness["xyz".index(axis)] = k
        return (*held, BendingSpring(to, frame, tuple(stiffness)))

    def _moves(self) -> str:
        """Axes in which the nodes of the cable move."""
        turned = self._options["hinges"].replace(self._options["along"][-1], "")
        return "xyz".replace(turned, "") if len(turned) == 1 else "xyz"

    def configuration(self, points: Any) -> dict[str, float]:
        """Variables, by name, with the nodes at given points: a start, or a guess of one.

        Parameters
        ----------
        points : (segments + 1, 3)
            In the axes of the frame that the cable starts on, m. An inextensible cable takes only their
            directions; a torsional variable stays zero.

        Raises
        ------
        ModelError
            For points that leave the plane of a planar cable.
        """
        points = check_array(points, (self.segments + 1, 3), f"cable {self.name!r}: points")
        along = self._options["along"]
        t = direction(along)
        rest = self.length / self.segments
        result: dict[str, float] = {}
        if self._options["start"] == "free":
            result.update((f"{self.name}-{a}", float(points[0]["xyz".index(a)])) for a in self._moves())
        from scipy.spatial.transform import Rotation  # here, because importing it takes a while

        R = np.eye(3)
        for k, step in enumerate(np.diff(points, axis=0)):
            letters = turns(self._options, k)
            bending = [np.eye(3)["xyz".index(a)] for a in letters if a != along[-1]]
            i, j = bending[0], bending[-1]
            size = np.linalg.norm(step)
            if not size > 0:
                raise ModelError(f"cable {self.name!r}: points: {k} and {k + 1} coincide at {points[k]}")
            u = R.T @ step / size
            if len(bending) == 1 and abs(u @ i) > 1e-6:
                raise ModelError(
                    f"cable {self.name!r}: points: segment {k + 1} leaves the plane across its hinges' axis "
                    f"{letters!r} by {abs(u @ i):.2g} of its length"
                )
            angles = [float(np.arctan2(u @ np.cross(i, t), u @ t))]
            if len(bending) == 2:
                angles.append(float(np.arcsin(np.clip((u @ i) / (np.cross(j, t) @ i), -1, 1))))
            supply, of = iter(angles), dict(zip(self._options["hinges"], self.hinges[k], strict=True))
            for letter in letters:
                variable = of[letter]
                result[variable] = 0.0 if letter == along[-1] else next(supply)
                R = R @ Rotation.from_euler(letter, result[variable]).as_matrix()
            if self.extensions:
                result[self.extensions[k]] = float(size - rest)
        return result


def _again(options: dict[str, Any]) -> Cable:
    return cable(**options)


def cable(
    name: str,
    segments: int,
    length: float,
    section: Section,
    *,
    along: str = "-z",
    hinges: str = "y",
    start: str = "pinned",
    extensible: bool = False,
    damping: tuple[Number, Number] = (0.0, 0.0),
    drag: tuple[Number, Number] = (0.0, 0.0),
    masses: str = "rods",
    stiffness: str = "beam",
    end: Any = (),
) -> Cable:
    """A cable of equal segments.

    Parameters
    ----------
    name : str
        Nodes are frames NAME-0 ... NAME-n, variables NAME-i (one hinge axis), NAME-i-x (several) and NAME-i-e
        (elongation).
    segments : int
    length : float
        Rest length, m.
    section : Section
        What it is made of; `round_section`, `rectangular_section`.
    along : {"x", "y", "z", "-x", "-y", "-z"}
        Where the straight cable runs, in the frame that it starts on.
    hinges : str
        Axes about which segments turn against each other, in order: one across `along` for a planar
        cable, two for one in space; the axis of `along` among them is torsion. Two axes are taken in the
        other order at every second hinge, so that the cable does not twist.
    start : {"pinned", "clamped", "free"}
        Free puts translations before the first hinge (NAME-x, ...).
    extensible : bool
        Whether segments have an elongation, by the section's E A.
    damping : 2 numbers
        Rayleigh's alpha (1/s) and beta (s): C = alpha M + beta K. Where the section's stiffness is a declared
        parameter, beta is none.
    drag : 2 numbers
        Linear drag per length along and across the segments, N s/m^2; for masses as rods.
    masses : {"rods", "nodes"}
        Segments as uniform rods, or masses at the nodes (trapezoidal rule).
    stiffness : {"beam", "paper"}
        Hinges of E I / l that converge to the beam, or [C]'s reduction 4 E I / l, which does not.
    end : Frame or frames
        Children of the far end.

    Returns
    -------
    Cable

    Raises
    ------
    ModelError
        For options that are wrong or do not fit together.
    """
    options: dict[str, Any] = dict(locals())
    _check(options)
    options["length"] = float(length)
    options["end"] = end if isinstance(end, tuple) else (end,)
    return Cable(options, *variables(options))


def _check(o: dict[str, Any]) -> None:
    name = check_name(o["name"], "cable")

    def refuse(what: str, expected: str) -> None:
        raise ModelError(f"cable {name!r}: {what}: expected {expected}, got {o[what]!r}")

    if (
        isinstance(o["segments"], bool)
        or not isinstance(o["segments"], (int, np.integer))
        or o["segments"] < 1
    ):
        refuse("segments", "an integer >= 1")
    try:
        positive = 0 < float(o["length"]) < np.inf
    except (TypeError, ValueError):
        positive = False
    if not positive:
        refuse("length", "a finite number > 0 (m)")
    if not isinstance(o["section"], Section):
        refuse("section", "a Section, as of round_section")
    if o["along"] not in ("x", "y", "z", "-x", "-y", "-z"):
        refuse("along", "x, y, z, -x, -y or -z")
    hinges, axis = o["hinges"], o["along"][-1]
    if not hinges or set(hinges) - set("xyz") or len(set(hinges)) < len(hinges) or hinges == axis:
        refuse("hinges", f"different letters of x, y, z, not {axis!r} alone, along which it runs")
    for what, known in (("start", STARTS), ("masses", MASSES), ("stiffness", STIFFNESS)):
        if o[what] not in known:
            refuse(what, " or ".join(map(repr, known)))
    for what in ("damping", "drag"):
        if min(map(float, as_numbers(o[what], 2, f"cable {name!r}: {what}"))) < 0:
            refuse(what, "two numbers >= 0")
    section = o["section"]
    if o["extensible"] and not float(section.axial) > 0:
        refuse("section", "axial > 0 (E A) for an extensible cable")
    if axis in hinges and not float(section.polar) > 0:
        refuse("section", "polar > 0 for a cable with torsion, whose mass matrix is singular without")
    if any(o["drag"]) and o["masses"] != "rods":
        refuse("masses", "'rods' with drag, which acts on rods")
