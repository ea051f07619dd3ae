"""Open Dynamics Engine, through its shared library (Debian's libode): `run_ode`."""

from __future__ import annotations

import ctypes
import ctypes.util
import time
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from studies.peer_links import Link, PeerRun, gravity, inertia_of_a_body, links_of
from vioc import System
from vioc.dynamics.kinematics import as_configuration

ODE, INSTALL = "Open Dynamics Engine", "install libode (double precision)"

_REAL = ctypes.c_double
_REALS = ctypes.POINTER(_REAL)
_POINTER = ctypes.c_void_p


class _OdeMass(ctypes.Structure):
    _fields_ = [("mass", _REAL), ("c", _REAL * 4), ("I", _REAL * 12)]


@lru_cache
def library() -> Any:
    """The shared library, double precision, or None."""
    name = ctypes.util.find_library("ode")
    if name is None:
        return None
    try:
        ode = ctypes.CDLL(name)
    except OSError:
        return None
    ode.dCheckConfiguration.argtypes = [ctypes.c_char_p]
    if not ode.dCheckConfiguration(b"ODE_double_precision"):
        return None
    for call, result, kinds in (
        ("dInitODE2", ctypes.c_int, "u"),
        ("dWorldCreate", _POINTER, ""),
        ("dWorldDestroy", None, "p"),
        ("dWorldSetGravity", None, "prrr"),
        ("dWorldStep", ctypes.c_int, "pr"),
        ("dBodyCreate", _POINTER, "p"),
        ("dBodySetMass", None, "pp"),
        ("dMassSetParameters", None, "prrrrrrrrrr"),
        ("dBodySetPosition", None, "prrr"),
        ("dBodySetRotation", None, "pp"),
        ("dBodyAddForce", None, "prrr"),
        ("dBodyAddTorque", None, "prrr"),
        ("dBodyGetPosition", _REALS, "p"),
        ("dBodyGetRotation", _REALS, "p"),
        ("dBodyGetLinearVel", _REALS, "p"),
        ("dBodyGetAngularVel", _REALS, "p"),
        ("dJointCreateHinge", _POINTER, "pp"),
        ("dJointCreateSlider", _POINTER, "pp"),
        ("dJointCreateBall", _POINTER, "pp"),
        ("dJointAttach", None, "ppp"),
        ("dJointSetHingeAnchor", None, "prrr"),
        ("dJointSetHingeAxis", None, "prrr"),
        ("dJointSetSliderAxis", None, "prrr"),
        ("dJointSetBallAnchor", None, "prrr"),
    ):
        function = getattr(ode, call)
        function.restype = result
        function.argtypes = [{"p": _POINTER, "r": _REAL, "u": ctypes.c_uint}[k] for k in kinds]
    ode.dInitODE2(0)
    return ode


def run_ode(
    system: System,
    q: Any,
    dt: float,
    steps: int,
    *,
    forces: Mapping[str, float] | None = None,
    every: int = 1,
) -> PeerRun:
    """The system at rest at q, released, by `dWorldStep`.

    Every link is a free body; hinges, sliders and balls join them, loops included.

    Parameters
    ----------
    forces : dict of str to float
        Constant generalized forces by variable, of links jointed to the world.
    every : int
        Sampling: one sample per this many steps.
    """
    ode = library()
    if ode is None:
        raise RuntimeError(f"{ODE}: no double-precision shared library was found")
    links, loops = links_of(system, q)
    world = ode.dWorldCreate()
    try:
        ode.dWorldSetGravity(world, *gravity(system))
        bodies = [_body(ode, world, link) for link in links]
        at = [*bodies, None]  # index -1 is the world
        for link, body in zip(links, bodies, strict=True):
            axis = link.pose[:3, :3] @ link.axis
            _joint(ode, world, (body, at[link.parent]), link.pose[:3, 3], axis, link.rotational)
        for loop in loops:
            ends = at[loop.links[0]], at[loop.links[1]]
            free = np.linalg.svd(loop.directions)[2][len(loop.directions) :]
            if len(free) > 1:
                raise ValueError(f"{system.name}: one point constraint alone is no joint of {ODE}")
            _joint(ode, world, ends, loop.points[0], free[0] if len(free) else None, True)
        pushes = []
        for name, size in (forces or {}).items():
            i = [link.variable for link in links].index(name)
            if links[i].parent >= 0:
                raise ValueError(f"{name}: forces act between a link and the world")
            push = ode.dBodyAddTorque if links[i].rotational else ode.dBodyAddForce
            pushes.append((push, bodies[i], size * (links[i].pose[:3, :3] @ links[i].axis)))

        views = [_views(ode, body) for body in bodies]
        samples, seconds = [_sample(views)], 0.0
        for k in range(0, steps, every):
            before = time.perf_counter()
            for _ in range(min(every, steps - k)):
                for push, body, f in pushes:
                    push(body, *f)
                ode.dWorldStep(world, dt)
            seconds += time.perf_counter() - before
            samples.append(_sample(views))
    finally:
        ode.dWorldDestroy(world)
    t = dt * np.minimum(np.arange(len(samples)) * every, steps)
    place, turn, v, w = (np.array(part) for part in zip(*samples, strict=True))
    configuration = _configuration(system, q, links, place, turn)
    return PeerRun(system, t, configuration, _energy(system, links, place, turn, v, w), seconds)


def _body(ode: Any, world: Any, link: Link) -> Any:
    body, mass = ode.dBodyCreate(world), _OdeMass()
    I = inertia_of_a_body(link)
    ode.dMassSetParameters(
        ctypes.byref(mass), link.mass, 0, 0, 0, I[0, 0], I[1, 1], I[2, 2], I[0, 1], I[0, 2], I[1, 2]
    )
    ode.dBodySetMass(body, ctypes.byref(mass))
    R = np.zeros((3, 4))
    R[:, :3] = link.pose[:3, :3]
    ode.dBodySetPosition(body, *(link.pose[:3, 3] + R[:, :3] @ link.com))
    ode.dBodySetRotation(body, R.ctypes.data)
    return body


def _joint(ode: Any, world: Any, ends: tuple, point: np.ndarray, axis: Any, rotational: bool) -> None:
    """A slider, a hinge about `axis` (world), or a ball where no axis is given."""
    kind = "Slider" if not rotational else "Hinge" if axis is not None else "Ball"
    joint = getattr(ode, f"dJointCreate{kind}")(world, None)
    ode.dJointAttach(joint, *ends)
    if rotational:
        getattr(ode, f"dJointSet{kind}Anchor")(joint, *point)
    if axis is not None:
        getattr(ode, f"dJointSet{kind}Axis")(joint, *axis)


def _views(ode: Any, body: Any) -> list[np.ndarray]:
    """The body's position (3), rotation (3, 4), velocity and rate (4 each), in ODE's own memory."""
    return [
        np.ctypeslib.as_array(ode.dBodyGetPosition(body), (3,)),
        np.ctypeslib.as_array(ode.dBodyGetRotation(body), (3, 4)),
        np.ctypeslib.as_array(ode.dBodyGetLinearVel(body), (3,)),
        np.ctypeslib.as_array(ode.dBodyGetAngularVel(body), (3,)),
    ]


def _sample(views: list[list[np.ndarray]]) -> tuple[np.ndarray, ...]:
    place, turn, v, w = (np.array(part) for part in zip(*views, strict=True))
    return place, turn[:, :, :3], v, w


def _configuration(system: System, q: Any, links: list[Link], place: np.ndarray, turn: np.ndarray):
    """Joint variables (K, nq) from bodies: centres (K, links, 3) and rotations (K, links, 3, 3)."""
    start = as_configuration(system, q, "configuration")
    result = np.empty((len(place), len(start)))
    for i, link in enumerate(links):
        origin = place[:, i] - turn[:, i] @ link.com
        if link.parent >= 0:
            above = links[link.parent]
            local = np.linalg.solve(above.pose, link.before)
            base = turn[:, link.parent] @ local[:3, :3]
            root = place[:, link.parent] + turn[:, link.parent] @ (local[:3, 3] - above.com)
        else:
            base = np.broadcast_to(link.before[:3, :3], turn[:, i].shape)
            root = np.broadcast_to(link.before[:3, 3], origin.shape)
        if link.rotational:
            R = np.swapaxes(base, 1, 2) @ turn[:, i]
            n = link.axis / np.linalg.norm(link.axis)
            skew = np.stack([R[:, 2, 1] - R[:, 1, 2], R[:, 0, 2] - R[:, 2, 0], R[:, 1, 0] - R[:, 0, 1]], 1)
            value = np.unwrap(np.arctan2(skew @ n / 2, (np.trace(R, axis1=1, axis2=2) - 1) / 2))
        else:
            value = np.einsum("kji,kj->ki", base, origin - root) @ link.axis
        j = system.variable_index(link.variable)
        turns = np.round((start[j] - value[0]) / (2 * np.pi)) if link.rotational else 0.0
        result[:, j] = value + 2 * np.pi * turns
    return result


def _energy(system: System, links: list[Link], place, turn, v, w) -> np.ndarray:
    total = np.zeros(len(place))
    for i, link in enumerate(links):
        rate = np.einsum("kji,kj->ki", turn[:, i], w[:, i])
        total += 0.5 * link.mass * (v[:, i] ** 2).sum(1)
        total += 0.5 * np.einsum("ki,ij,kj->k", rate, inertia_of_a_body(link), rate)
        total -= link.mass * place[:, i] @ gravity(system)
    return total
