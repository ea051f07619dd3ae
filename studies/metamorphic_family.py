"""Mechanisms of `vioc.models.family` that are told again in other words, and their random inputs.

Beside the terms of the family they have a spring and a damper between two bodies and inputs that push and
turn one of them; their masses are of two decades. Kinds: "any"; "rigid", without screws; "free", with a free
rotation that no term reads; "touching", with a contact or limits of a joint that nothing comes near.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

import vioc
from vioc.models import mechanism

JOINTS = (2, 8)
STEPS = 20
INPUT = 2.0  # largest input, N or N m


class Mechanism(NamedTuple):
    """A mechanism with its start and inputs (N, nu)."""

    name: str
    system: vioc.System
    q: dict[str, float]
    v: dict[str, float]
    u: np.ndarray


def mechanisms(kind: str, joints: tuple[int, int] = JOINTS) -> Iterator[Mechanism]:
    """An endless sequence of mechanisms of a kind; each is the same whenever it is made."""
    index = 0
    while True:
        found = mechanism_of(kind, index, joints)
        if found is not None:
            yield found
        index += 1


def mechanism_of(kind: str, index: int, joints: tuple[int, int] = JOINTS) -> Mechanism | None:
    """The one of this number; None where it has not what the kind needs."""
    m = mechanism(index, joints=joints)
    rng = np.random.default_rng([39, index])
    frames = [_weighed(f, rng) for f in m.system.frames]
    components, bodies = list(m.system.components), m.system.frame_names
    tips = [n for n in bodies if n.startswith("tip")]
    one, two = (tips[i] for i in rng.choice(len(tips), size=2, replace=False))
    own = sorted(n for n in bodies if n.startswith("body"))
    driven = str(rng.choice(own))
    components += [
        vioc.LinearSpring(one, two, float(rng.uniform(5, 50)), float(rng.uniform(0.1, 0.5))),
        vioc.LinearDamper(one, two, float(rng.uniform(0.05, 0.5))),
        vioc.WrenchInput(driven, "thrust", tuple(rng.standard_normal(3)), axes="body"),
        vioc.WrenchInput(driven, "torque", (0.0,) * 3, tuple(rng.standard_normal(3)), axes="hybrid"),
    ]
    q, v = (dict(zip(m.system.variables, map(float, a), strict=True)) for a in (m.q, m.v))
    if kind == "rigid" and any("TWIST" in repr(n.frame.transform) for n in m.system.nodes):
        return None
    if kind == "free":
        turns = {n for n in m.system.variables if n.count("-") and n[-2:] in ("rx", "ry", "rz")}
        if not turns:
            return None
        components = [c for c in components if getattr(c, "variable", None) not in turns]
    if kind == "touching":
        components.append(_open(m.system, q, tips[0], rng, index))
    system = vioc.System(*frames, *components, name=m.name)
    return Mechanism(m.name, system, q, v, INPUT * rng.uniform(-1, 1, size=(STEPS, len(system.inputs))))


def _weighed(frame: vioc.Frame, rng: np.random.Generator) -> vioc.Frame:
    """The tree with masses times 0.3 to 3 each, so that all together they are of two decades."""
    mass = frame.mass
    if mass is not None:
        size = float(10 ** rng.uniform(-0.5, 0.5))
        mass = vioc.Mass(size * mass.mass, size * mass.matrix(), mass.com)
    return vioc.Frame(
        frame.transform, frame.name, mass, tuple(_weighed(child, rng) for child in frame.children)
    )


def _open(
    system: vioc.System, q: dict[str, float], tip: str, rng: np.random.Generator, index: int
) -> vioc.Contact | vioc.JointLimits:
    """A contact half a metre below a point, or the limits of a joint a radian away: nothing touches."""
    if index % 2:
        name = str(rng.choice(system.variables))
        return vioc.JointLimits(name, q[name] - 1.0, q[name] + 1.5)
    normal = np.array([*rng.uniform(-0.5, 0.5, size=2), 1.0])
    at = vioc.Kinematics(system).position(tip, np.array([q[n] for n in system.variables]))
    offset = float(normal @ at / np.linalg.norm(normal)) - 0.6
    return vioc.Contact(tip, tuple(normal), offset, radius=0.1, friction=0.5)
