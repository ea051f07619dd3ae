"""Mechanisms and states that several tests share."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from vioc import (
    DistanceConstraint,
    Frame,
    Gravity,
    JointDamping,
    JointForce,
    K,
    LinearSpring,
    Mass,
    MidpointVI,
    P,
    PointConstraint,
    System,
    TorsionalSpring,
    consistent_configuration,
    project_velocity,
    rx,
    ry,
    rz,
    tx,
    ty,
    tz,
)

# inside: the frames of another program's file are made of their parts, one by one
from vioc.dynamics.description.frame import Transform
from vioc.dynamics.description.numbers import Variable
from vioc.errors import ModelError

DATA = Path(__file__).parents[2] / "studies" / "data"  # files that the studies read, too
G = 9.8


def pendulum() -> System:
    """The pendulum of [S] II-A."""
    return System(Gravity(0, 0, -G), ry("theta")[tz(-1, name="bob", mass=1)], JointForce("theta", "torque"))


def everything() -> System:
    """A system with one of each: kinematic variables, a pulled string, springs, damping, parameters."""
    return System(
        Gravity(0, 1, -G),
        tx(K("trolley"), name="trolley")[
            ry("a", mass=Mass(1, (1, 1, 1)))[
                tz(P("length", -1.0), name="elbow", mass=P("m", 2.0))[
                    rx("b", mass=Mass(0.5, (1, 1.1, 1.2), (0.1, 0.2, 0.3)))[
                        ty(0.7, name="end", mass=0.3)[
                            rz("c", name="hand", mass=Mass(0.2, (0.1, 0.1, 0.1), (0.1, 0.2, 0)))[
                                tx(0.4, name="tip", mass=0.1)
                            ]
                        ]
                    ]
                ]
            ]
        ],
        TorsionalSpring("c", 3.0, 0.1),
        LinearSpring("end", "world", P("stiffness", 5.0), 0.3),
        JointDamping("a", P("damping", 0.3)),
        JointForce("b", "torque"),
        DistanceConstraint("tip", "world", K("string"), name="string"),
        name="everything",
    )


def state_near(f: MidpointVI, seed: int, size: float = 0.4, speed: float = 0.8) -> np.ndarray | None:
    """A consistent random state, or None where the constraints cannot be met or are dependent."""
    random = np.random.default_rng(seed)
    system = f.system
    guess = dict(zip(system.variables, random.normal(scale=size, size=f.nq), strict=True))
    lengths = [v.name for c in system.constraints for v in c.own_variables()]
    guess.update({name: 1.0 + 0.3 * random.random() for name in lengths})
    try:
        report = consistent_configuration(system, guess)
    except ModelError:
        return None
    if report.redundant:
        return None
    v = random.normal(scale=speed, size=f.nq)
    v[f.nd :] = 0.0
    return f.initial_state(report.q, project_velocity(system, report.q, v))


def rested(f: MidpointVI, **q: float) -> dict[str, float]:
    """The state at rest in a configuration, by names."""
    return dict(zip(f.state_names, f.initial_state(q), strict=True))


def hold(f: MidpointVI, x: np.ndarray, seed: int = 0) -> np.ndarray:
    """A random input that keeps the kinematic configurations where they are."""
    nf = len(f.system.inputs)
    forces = np.random.default_rng(seed).normal(size=nf)
    return np.concatenate([forces, x[f.nd : f.nq]])


def reference(name: str) -> tuple[System, dict[str, np.ndarray]]:
    """A model of the independent implementation and its trajectory."""
    spec = json.loads((DATA / f"{name}_system.json").read_text())
    children: dict[int, list[dict]] = {}
    for frame in spec["frames"][1:]:
        children.setdefault(frame["parent"], []).append(frame)

    def build(frame: dict) -> Frame:
        value = Variable(frame["config"]) if "config" in frame else frame["value"]
        mass = Mass(frame["mass"], frame["inertia_diag_body"]) if "mass" in frame else None
        below = tuple(build(child) for child in children.get(frame["id"], []))
        # frames without a name are called by their number, so that constraints can refer to them
        label = frame["name"] or f"#{frame['id']}"
        return Frame(Transform(frame["transform"], value), label, mass, below)

    labels = {f["id"]: f["name"] or f"#{f['id']}" for f in spec["frames"]}
    constraints = [
        PointConstraint(labels[c["plane_frame"]], labels[c["point_frame"]], c["normal"])
        for c in spec["constraints"]
    ]
    gravity = Gravity(*spec["potentials"][0]["gravity"])
    system = System([build(f) for f in children[0]], gravity, constraints, name=name)
    with np.load(DATA / f"{name}.npz") as stored:
        return system, dict(stored)
