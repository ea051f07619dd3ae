"""Mechanisms of the reference data (data/\\*_system.json), read into a `System`."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from vioc import Frame, Gravity, Mass, PointConstraint, System, rx, ry, rz, tx, ty, tz

DATA = Path(__file__).parent / "data"
TRANSFORMS: dict[str, Callable[..., Frame]] = dict(RX=rx, RY=ry, RZ=rz, TX=tx, TY=ty, TZ=tz)


def load_reference(name: str) -> tuple[System, dict[str, np.ndarray]]:
    """A reference system and the trajectory computed for it.

    Parameters
    ----------
    name : str
        As in ``data/NAME_system.json`` and ``NAME.npz``.

    Returns
    -------
    System
    dict of str to array
        ``t`` (N+1,), ``q``, ``p`` (N+1, nq), ``names``, and ``lam`` (N, nm) where there are constraints.
    """
    description = json.loads((DATA / f"{name}_system.json").read_text())
    with np.load(DATA / f"{name}.npz", allow_pickle=False) as stored:
        return system_of(description, name), dict(stored)


def system_of(description: Mapping[str, Any], name: str = "reference") -> System:
    """The system that a decoded JSON description stands for.

    Raises
    ------
    ValueError
        For a transform, constraint, potential or force that this reader does not know.
    """
    frames = {frame["id"]: frame for frame in description["frames"]}
    children: dict[int, list[int]] = {}
    for frame in description["frames"][1:]:
        children.setdefault(frame["parent"], []).append(frame["id"])

    def label(index: int) -> str:
        return frames[index]["name"] or f"frame-{index}"

    def build(index: int) -> Frame:
        frame = frames[index]
        transform = TRANSFORMS.get(frame["transform"])
        if transform is None or frame.get("kinematic"):
            raise ValueError(f"{label(index)}: unknown kind of frame {frame['transform']!r}")
        mass = Mass(frame["mass"], tuple(frame["inertia_diag_body"])) if "mass" in frame else None
        value = frame["config"] if "config" in frame else frame["value"]
        return transform(value, name=label(index), mass=mass)[
            tuple(build(i) for i in children.get(index, ()))
        ]

    parts: list[Any] = [build(i) for i in children[0]]
    for item in (*description["potentials"], *description["constraints"], *description["forces"]):
        if item["type"] == "Gravity":
            parts.append(Gravity(*item["gravity"]))
        elif item["type"] == "PointOnPlane":
            # Two such planes with independent normals in one plane of motion pin the points together,
            # whichever frame the normals are given in; only the multipliers depend on it.
            ends = label(item["plane_frame"]), label(item["point_frame"])
            parts.append(PointConstraint(*ends, tuple(item["normal"])))
        else:
            raise ValueError(f"unknown component {item['type']!r}")
    return System(parts, name=name)
