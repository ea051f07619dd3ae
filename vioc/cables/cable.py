"""Cables as chains of segments, made of frames, springs and dampers."""

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
    """Cable of a mechanism, as a tuple of its first frame, springs and dampers.

    Made by `cable`. A `System` accepts it directly; the cable then starts at the world's origin. Elsewhere,
    put its `frame` into the tree and its `terms` into the system; square brackets add children to its far
    end::

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
        Variables of the segments' elongations; empty if the cable is inextensible.
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
        """Names of the cable's nodes, which are frames at the ends of its segments.
        Node i has the cable's name followed by "-i". Node 0 is at the cable's start.
        """
        return tuple(f"{self.name}-{i}" for i in range(self.segments + 1))

    def __getitem__(self, children: Any) -> Cable:
        """Return a copy of the cable with the given frames attached to its far end."""
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
        """Return constraints that fix a node of the cable at a frame's origin.

        Parameters
        ----------
        to : str
            A frame, or ``"world"``.
        node : int, optional
            Index of the node; by default the far end.
        clamped : bool
            True to clamp the far end: a hinge of stiffness 2 E I / l, as at a clamped start, then turns the
            axes of the last segment towards those of the frame `to`.
        axes : str, optional
            Fixed directions; by default those in which the cable moves.
        axes_of : str
            Frame in whose axes `axes` are given.
        name : str, optional
            Name of the constraints, NAME-x and so on; by default CABLE-NODE-at-TO.

        Raises
        ------
        ModelError
            If the node does not exist, or a node other than the far end is clamped.
        """
        index = self.segments if node is None else node
        if not 0 <= index <= self.segments:
            raise ModelError(f"cable {self.name!r}: node: expected 0 ... {self.segments}, got {node!r}")
        frame = self.nodes[index]
        constraints = coincident(
            frame, to, axes or self._moves(), direction_in=axes_of, name=name or f"{frame}-at-{to}"
        )
        if not clamped:
            return constraints
        if index < self.segments:
            raise ModelError(
                f"cable {self.name!r}: only the far end is clamped here, got node {node}; start='clamped'"
            )
        stiffness: list[Any] = [0.0, 0.0, 0.0]
        for axis, k in hinge_stiffness(self._options, 1).items():
            stiffness["xyz".index(axis)] = k
        return (*constraints, BendingSpring(to, frame, tuple(stiffness)))

    def _moves(self) -> str:
        """Return the axes along which the nodes of the cable can move."""
        axis = self._options["hinges"].replace(self._options["along"][-1], "")
        return "xyz".replace(axis, "") if len(axis) == 1 else "xyz"

    def configuration(self, points: Any) -> dict[str, float]:
        """Return values of the cable's variables that place its nodes at given points.
        The result is a dict by name. It serves as an initial configuration or as a guess.

        Parameters
        ----------
        points : (segments + 1, 3)
            Positions in the axes of the frame where the cable starts, m. An inextensible cable uses only
            their directions; torsional variables stay zero.

        Raises
        ------
        ModelError
            If points leave the plane of a planar cable.
        """
        points = check_array(points, (self.segments + 1, 3), f"cable {self.name!r}: points")
        along = self._options["along"]
        t = direction(along)
        rest = self.length / self.segments
        result: dict[str, float] = {}
        if self._options["start"] == "free":
            result.update((f"{self.name}-{a}", float(points[0]["xyz".index(a)])) for a in self._moves())
        from scipy.spatial.transform import Rotation  # here, as the import is slow

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
    """Return a cable: a chain of equal segments, joined by elastic hinges.

    Parameters
    ----------
    name : str
        Name of the cable. Nodes are frames NAME-0 ... NAME-n, variables NAME-i (one hinge axis), NAME-i-x
        (several axes) and NAME-i-e (elongation).
    segments : int
    length : float
        Rest length, m.
    section : Section
        Cross-section, as of `round_section` or `rectangular_section`.
    along : {"x", "y", "z", "-x", "-y", "-z"}
        Direction of the straight cable, in the frame where it starts.
    hinges : str
        Axes about which segments turn relative to each other, in order: one across `along` for a planar
        cable, two for motion in space; the axis of `along` among them is torsion. Two axes are swapped at
        every second hinge, so that the cable does not twist.
    start : {"pinned", "clamped", "free"}
        ``"free"`` adds translations before the first hinge (NAME-x, ...).
    extensible : bool
        Whether segments have an elongation, with the section's E A.
    damping : 2 numbers
        Rayleigh's alpha (1/s) and beta (s): C = alpha M + beta K. If the section's stiffness is a declared
        parameter, beta is a number.
    drag : 2 numbers
        Linear drag per length along and across the segments, N s/m^2; needs masses as rods.
    masses : {"rods", "nodes"}
        Segments as uniform rods, or masses at the nodes (trapezoidal rule).
    stiffness : {"beam", "paper"}
        Hinges of E I / l, which converge to the beam, or the reduction 4 E I / l of [C], which does not.
    end : Frame or frames
        Children of the far end.

    Returns
    -------
    Cable

    Raises
    ------
    ModelError
        If an option is wrong, or options do not fit together.
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
