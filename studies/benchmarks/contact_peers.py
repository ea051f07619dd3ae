"""Boxes on a floor in MuJoCo, DART and Drake, where installed: masses, friction, steps of `studies.heap`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from studies.benchmarks import simulators
from studies.heap import DT, EDGE, FRICTION, mjcf

Engine = Callable[[int], np.ndarray]  # steps from the start -> places (n, 3), m


def mujoco(poses: np.ndarray) -> Engine | None:
    """`mj_step` with the elliptic cone and the softness that it starts with."""
    package = simulators.mujoco()
    if package is None:
        return None
    model = package.MjModel.from_xml_string(mjcf(poses))
    data = package.MjData(model)

    def run(steps: int) -> np.ndarray:
        package.mj_resetData(model, data)
        package.mj_step(model, data, steps)
        return data.qpos.reshape(len(poses), 7)[:, :3].copy()

    return run


def dart(poses: np.ndarray) -> Engine | None:
    """`World.step`, one call a step, with its default detector of collisions and solver."""
    package = simulators.dart()
    if package is None:
        return None
    dynamics = package.dynamics
    world = package.simulation.World()
    world.setTimeStep(DT)
    world.setGravity([0.0, 0.0, -9.81])

    def shaped(body: Any, size: np.ndarray) -> None:
        node = body.createShapeNode(dynamics.BoxShape(size))
        node.createCollisionAspect()
        node.createDynamicsAspect().setFrictionCoeff(FRICTION)

    floor = dynamics.Skeleton("floor")
    joint, body = floor.createWeldJointAndBodyNodePair()
    down = np.eye(4)
    down[2, 3] = -0.5
    joint.setTransformFromParentBodyNode(package.math.Isometry3(down))
    shaped(body, np.array([20.0, 20.0, 1.0]))
    world.addSkeleton(floor)
    boxes, starts = [], []
    for i, pose in enumerate(poses):
        box = dynamics.Skeleton(f"box{i}")
        _, body = box.createFreeJointAndBodyNodePair()
        shaped(body, np.full(3, EDGE))
        moment = EDGE**2 / 6
        body.setInertia(dynamics.Inertia(1.0, np.zeros(3), moment * np.eye(3)))
        at = np.eye(4)
        at[:3, :3], at[:3, 3] = _rotation(pose[3:]), pose[:3]
        starts.append(dynamics.FreeJoint.convertToPositions(package.math.Isometry3(at)))
        world.addSkeleton(box)
        boxes.append(box)

    def run(steps: int) -> np.ndarray:
        for box, start in zip(boxes, starts, strict=True):
            box.setPositions(start)
            box.setVelocities(np.zeros(6))
        for _ in range(steps):
            world.step()
        return np.array([box.getBodyNode(0).getWorldTransform().translation() for box in boxes])

    return run


def drake(poses: np.ndarray) -> Engine | None:
    """`Simulator.AdvanceTo` of a discrete plant, boxes compliant (1e7 Pa) on a rigid floor."""
    package = simulators.drake()
    if package is None:
        return None
    builder = package.DiagramBuilder()
    plant, _ = package.AddMultibodyPlantSceneGraph(builder, DT)
    rubs = package.CoulombFriction(FRICTION, FRICTION)
    rigid, soft = package.ProximityProperties(), package.ProximityProperties()
    package.AddRigidHydroelasticProperties(rigid)
    package.AddCompliantHydroelasticProperties(EDGE, 1e7, soft)
    for properties in (rigid, soft):
        package.AddContactMaterial(friction=rubs, properties=properties)
    identity = package.RigidTransform()
    size = np.full(3, EDGE)
    floor = package.Box(20.0, 20.0, 1.0)
    down = package.RigidTransform([0.0, 0.0, -0.5])
    plant.RegisterCollisionGeometry(plant.world_body(), down, floor, "floor", rigid)
    bodies = []
    for i in range(len(poses)):
        inertia = package.SpatialInertia.SolidBoxWithMass(1.0, *size)
        bodies.append(plant.AddRigidBody(f"box{i}", inertia))
        plant.RegisterCollisionGeometry(bodies[-1], identity, package.Box(*size), f"box{i}", soft)
    plant.Finalize()
    diagram = builder.Build()

    def run(steps: int) -> np.ndarray:
        simulator = package.Simulator(diagram)
        context = plant.GetMyMutableContextFromRoot(simulator.get_mutable_context())
        for body, pose in zip(bodies, poses, strict=True):
            turned = package.Quaternion(pose[3:] / np.linalg.norm(pose[3:]))
            plant.SetFreeBodyPose(context, body, package.RigidTransform(turned, pose[:3]))
        simulator.Initialize()
        simulator.AdvanceTo(steps * DT)
        return np.array([plant.EvalBodyPoseInWorld(context, body).translation() for body in bodies])

    return run


ENGINES: dict[str, Callable[[np.ndarray], Engine | None]] = {"MuJoCo": mujoco, "DART": dart, "Drake": drake}


def _rotation(q: np.ndarray) -> np.ndarray:
    """Of a quaternion, scalar first."""
    w, x, y, z = q / np.linalg.norm(q)
    return np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
            [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
            [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
        ]
    )
