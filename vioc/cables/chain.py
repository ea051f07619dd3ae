"""Variables, frames, springs and dampers of a cable, derived from its options.

The options are those of `vioc.cables.cable.cable`, checked there, as a dict.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from vioc.dynamics.description.component import Component
from vioc.dynamics.description.frame import Frame, Transform, Twist, chain
from vioc.dynamics.description.inertia import Mass
from vioc.dynamics.description.numbers import Number, Parameter, Variable
from vioc.dynamics.terms.cables import HingeDamping, HingeSpring, LineDrag, MassDamping
from vioc.dynamics.terms.forces import JointDamping
from vioc.dynamics.terms.potentials import TorsionalSpring
from vioc.errors import ModelError


def direction(along: str) -> np.ndarray:
    return (-1.0 if along.startswith("-") else 1.0) * np.eye(3)["xyz".index(along[-1])]


def hinge_stiffness(options: dict[str, Any], ends: int) -> dict[str, Number]:
    """Return the stiffness of a cable hinge about each axis of the hinge, as a dict.
    The argument `ends` is 1 for a hinge at a clamp, which bends only half a segment, and 0 otherwise.
    """
    section, along = options["section"], options["along"][-1]
    share = options["segments"] / options["length"] * (1 + ends)
    supply = iter(section.bending)
    result = {}
    for axis in options["hinges"]:
        rigidity = section.torsion if axis == along else next(supply)
        paper = options["stiffness"] == "paper" and axis != along
        result[axis] = rigidity * (4 * options["segments"] / options["length"] if paper else share)
    return result


def variables(o: dict[str, Any]) -> tuple[tuple[tuple[str, ...], ...], tuple[str, ...]]:
    """Return the names of a cable's hinge variables and of its elongation variables."""
    numbers = range(1, o["segments"] + 1)
    several = len(o["hinges"]) > 1
    hinges = tuple(tuple(f"{o['name']}-{i}" + f"-{a}" * several for a in o["hinges"]) for i in numbers)
    return hinges, tuple(f"{o['name']}-{i}-e" for i in numbers) if o["extensible"] else ()


def turns(o: dict[str, Any], i: int) -> str:
    """Return the axes of hinge i of a cable, in the order of the hinge's frames.
    The argument `o` has the options of the cable.

    Two successive rotations in a hinge leave a twist of half the product of their angles, always of the same
    sign. Their order is therefore swapped at every second hinge. The twists then cancel along the cable, and
    what remains is of second order in a segment's length instead of first.
    """
    return o["hinges"][::-1] if len(o["hinges"]) == 2 and i % 2 else o["hinges"]


def frames(o: dict[str, Any], hinges, extensions) -> Frame:
    """Return the tree of a cable's frames, from its first frame to its far end.
    The argument `o` has the options of the cable, `hinges` and `extensions` the names of its variables.

    The first frame is NAME-0, or a free start's translation.
    """
    name, n, axis = o["name"], o["segments"], o["along"][-1]
    sign, rest = (-1.0 if o["along"].startswith("-") else 1.0), o["length"] / o["segments"]
    slide = f"T{axis.upper()}"

    def shifted(distance: float, label: str | None = None, mass: Mass | None = None) -> Frame:
        return Frame(Transform(slide, sign * distance), label, mass)

    links = [shifted(0.0, f"{name}-0")]
    if o["start"] == "free":
        turned = o["hinges"].replace(axis, "")
        moves = "xyz".replace(turned, "") if len(turned) == 1 else "xyz"
        links = [Frame(Transform(f"T{a.upper()}", Variable(f"{name}-{a}"))) for a in moves] + links
    if o["masses"] == "nodes":
        links[-1] = shifted(0.0, f"{name}-0", _body(o, 0.5, 0.0, 0.0))
    for i in range(n):
        names = dict(zip(o["hinges"], hinges[i], strict=True))
        turned = [Frame(Transform(f"R{a.upper()}", Variable(names[a]))) for a in turns(o, i)]
        node = f"{name}-{i + 1}"
        rods = o["masses"] == "rods"
        at_node = None if rods else _body(o, 1.0 if i < n - 1 else 0.5, 0.0, 1.0)  # inertia of a segment
        if not extensions:
            if rods:
                turned[-1] = Frame(turned[-1].transform, None, _body(o, 1.0, rest))
            links += [*turned, shifted(rest, node, at_node)]
            continue
        variable = Variable(extensions[i])
        stretch = _stretch(slide, sign, variable)
        if rods:
            turned[-1] = Frame(turned[-1].transform, None, _body(o, 0.5, rest / 2))
            links += [
                *turned,
                shifted(rest / 2),
                Frame(stretch, None, _body(o, 0.5, rest / 2)),
                shifted(rest / 2, node),
            ]
        else:
            links += [*turned, shifted(rest), Frame(stretch, node, at_node)]
    links[-1] = links[-1][o["end"]] if o["end"] else links[-1]
    return chain(*links)


def _stretch(slide: str, sign: float, variable: Variable) -> Transform:
    """Return the transform that lengthens a cable segment by a variable.
    It is a translation along a coordinate axis, in the positive direction if `sign` is positive and in the
    negative direction otherwise.
    """
    if sign > 0:
        return Transform(slide, variable)
    backward = tuple(-float(a == slide[1]) for a in "XYZ")
    return Transform("TWIST", Twist(variable, backward, (0.0, 0.0, 0.0)))


def _body(o: dict[str, Any], share: float, length: float, turning: float | None = None) -> Mass:
    """Return the mass and inertia of the fraction `share` of a cable segment.
    The body is a rod that begins at the frame's origin, or a point mass if `length` is 0.

    `turning` is the share of the inertia about the segment's axis, if it differs.
    """
    section, rest = o["section"], o["length"] / o["segments"]
    m = section.density * (share * rest)
    # principal moments of a body satisfy the triangle inequality, so a rod with spin has a matching width
    turning = share if turning is None else turning
    spin = section.polar * (turning * rest) if o["along"][-1] in o["hinges"] else 0.0
    inertia = [_sum(m * (length**2 / 12) if length else 0.0, spin / 2, o["name"])] * 3
    inertia["xyz".index(o["along"][-1])] = spin
    return Mass(m, tuple(inertia), tuple(length / 2 * direction(o["along"])))


def _sum(a: Number, b: Number, name: str) -> Number:
    """Return the sum of two numbers, or of two multiples of the same parameter."""
    if not isinstance(a, Parameter) and not isinstance(b, Parameter):
        return a + b
    if isinstance(a, Parameter) and isinstance(b, Parameter) and a.name == b.name:
        return Parameter(a.name, a.value, a.factor + b.factor)
    if a == 0.0 or b == 0.0:
        return b if a == 0.0 else a
    raise ModelError(
        f"cable {name!r}: section: density and polar, with torsion and masses as rods: expected numbers or "
        f"multiples of one parameter (round_section(density=...)), or masses='nodes', got {a!r} and {b!r}"
    )


def _present(coefficient: Number) -> bool:
    """Return whether a damping or stiffness coefficient needs a spring or damper.
    It does if the coefficient is positive or a parameter, whose value may be changed from 0.
    """
    return isinstance(coefficient, Parameter) or coefficient > 0


def terms(o: dict[str, Any], hinges, extensions) -> list[Component]:
    """Return the springs, dampers, drag and mass-proportional damping of a cable.
    The argument `o` has the options of the cable, `hinges` and `extensions` the names of its variables.
    """
    alpha, beta = o["damping"]
    springs: list[tuple[str, Number]] = []
    coupled: list[tuple[tuple[str, ...], tuple[Number, Number, Number]]] = []
    for i, names in enumerate(hinges):
        if i == 0 and o["start"] != "clamped":
            continue
        k = hinge_stiffness(o, 1 if i == 0 else 0)
        if len(names) < 3:
            springs += [(v, k[a]) for a, v in zip(o["hinges"], names, strict=True) if _present(k[a])]
        elif any(map(_present, k.values())):
            coupled.append((names, (k["x"], k["y"], k["z"])))
    rest = o["length"] / o["segments"]
    springs += [(v, o["section"].axial / rest) for v in extensions]
    parts: list[Component] = [TorsionalSpring(v, k) for v, k in springs]
    parts += [HingeSpring(names, k) for names, k in coupled]
    if _present(beta):
        numbers = [k for _, k in springs] + [k for _, all_three in coupled for k in all_three]
        if isinstance(beta, Parameter) and any(isinstance(k, Parameter) for k in numbers):
            raise ModelError(
                f"cable {o['name']!r}: damping: beta times a stiffness is no multiple of one parameter; "
                f"expected a number beside a section of parameters, got {beta!r}"
            )
        parts += [JointDamping(v, k * beta) for v, k in springs]
        parts += [HingeDamping(names, (a * beta, b * beta, c * beta)) for names, (a, b, c) in coupled]
    first, last = f"{o['name']}-0", f"{o['name']}-{o['segments']}"
    if _present(alpha):
        parts.append(MassDamping(first, last, alpha))
    if any(o["drag"]):
        piece = rest / 2 if extensions else rest
        parts.append(LineDrag(first, last, piece, tuple(direction(o["along"])), *o["drag"]))
    return parts
