"""MuJoCo, pinocchio, DART and Drake, where installed, on vioc's own descriptions of trees of joints.

Each is told the links that `studies.peer_links` reads off a system. They step in maximal speed that
their Python packages allow: MuJoCo by its rollout in C++, the others by one call per step.
"""

from __future__ import annotations

import contextlib
import importlib
import io
from collections.abc import Callable
from typing import Any

import numpy as np

from studies.peer_links import gravity, inertia_of_a_body, links_of
from studies.peer_mujoco import mjcf
from vioc import System


def _package(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def mujoco() -> Any:
    return _package("mujoco")


def mjx() -> Any:
    with contextlib.redirect_stdout(io.StringIO()):  # it tells of GPU backends that it does not find
        return _package("mujoco.mjx")


def pinocchio() -> Any:
    return _package("pinocchio")


def dart() -> Any:
    return _package("dartpy")


def drake() -> Any:
    return _package("pydrake.all")


class MujocoRollout:
    """`mujoco.rollout` of a system released at rest at q, without contacts and energies.

    Parameters
    ----------
    system : System
    q : (nq,)
    dt : float
        s.
    integrator : {"Euler", "RK4", "implicit", "implicitfast"}
    motors : bool
        Whether each joint has a motor.
    """

    def __init__(self, system: System, q: np.ndarray, dt: float, integrator: str, motors: bool = False):
        package = mujoco()
        text = mjcf(system, q, dt).replace("<option ", f'<option integrator="{integrator}" ')
        text = text.replace('energy="enable" ', "")
        if motors:
            rows = "".join(f'<motor joint="{name}"/>' for name in system.variables)
            text = text.replace("</mujoco>", f"<actuator>{rows}</actuator></mujoco>")
        self.model = package.MjModel.from_xml_string(text)
        self.data = package.MjData(self.model)
        # of what `inertia_of_a_body` adds, 1e-6 m^2 per kg, a thousandth will do here
        self.model.body_inertia[:] -= (1 - 1e-3) * 1e-6 * self.model.body_mass[:, None]
        package.mj_setConst(self.model, self.data)
        names = [self.model.joint(i).name for i in range(self.model.njnt)]
        self._order = [names.index(name) for name in system.variables]
        self.data.qpos[self._order] = q
        package.mj_forward(self.model, self.data)
        kind = package.mjtState.mjSTATE_FULLPHYSICS
        self._start = np.zeros((1, package.mj_stateSize(self.model, kind)))
        package.mj_getState(self.model, self.data, self._start[0], kind)
        self._rollout = importlib.import_module("mujoco.rollout").rollout

    def __call__(self, steps: int) -> tuple[np.ndarray, np.ndarray]:
        """Configurations and velocities (steps + 1, nq), in the order of the system."""
        states, _ = self._rollout(self.model, self.data, self._start, nstep=steps)
        rows = np.vstack([self._start, states[0]])
        n = self.model.nq
        q, v = rows[:, 1 : 1 + n], rows[:, 1 + n : 1 + 2 * n]  # after the time
        return q[:, self._order], v[:, self._order]

    def many(self, q: np.ndarray, v: np.ndarray, steps: int, threads: int) -> Callable[[], Any]:
        """Rollouts from configurations and velocities (M, nq), ready to be made on so many threads."""
        package, data = mujoco(), [self.data]
        starts, n, o = np.repeat(self._start, len(q), axis=0), self.model.nq, self._order
        starts[:, 1 : 1 + n][:, o], starts[:, 1 + n : 1 + 2 * n][:, o] = q, v
        data += [package.MjData(self.model) for _ in range(threads - 1)]
        return lambda: self._rollout(self.model, data if threads > 1 else self.data, starts, nstep=steps)

    def many_by_mjx(self, q: np.ndarray, v: np.ndarray, steps: int) -> Callable[[], Any]:
        """The same by MJX, compiled for the CPU; in single precision, as it comes."""
        import jax

        one = self._mjx_step()
        fly = jax.jit(
            jax.vmap(lambda q, v: jax.lax.scan(lambda z, _: (one(*z),) * 2, (q, v), None, steps)[1])
        )
        return self._ready(fly, q, v)

    def slopes_by_mjx(self, q: np.ndarray, v: np.ndarray) -> Callable[[], Any]:
        """MJX's steps from these states with their derivatives by the state."""
        import jax

        one = self._mjx_step()
        return self._ready(jax.jit(jax.vmap(jax.jacfwd(lambda q, v: (one(q, v),) * 2, (0, 1), True))), q, v)

    def _mjx_step(self) -> Callable[[Any, Any], Any]:
        package = mjx()
        model = package.put_model(self.model)
        start = package.make_data(self.model)

        def step(q: Any, v: Any) -> Any:
            end = package.step(model, start.replace(qpos=q, qvel=v))
            return end.qpos, end.qvel

        return step

    def _ready(self, function: Any, q: np.ndarray, v: np.ndarray) -> Callable[[], Any]:
        import jax

        back = np.argsort(self._order)
        at = [jax.numpy.asarray(a[:, back]) for a in (q, v)]
        return lambda: jax.block_until_ready(function(*at))

    def linearize(self, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """A, B of a step at the start and velocities v, by MuJoCo's centred finite differences."""
        package, model, data = mujoco(), self.model, self.data
        data.qvel[:] = v
        A, B = np.zeros((2 * model.nv, 2 * model.nv)), np.zeros((2 * model.nv, model.nu))
        package.mjd_transitionFD(model, data, 1e-6, True, A, B, None, None)
        return A, B


class PinocchioChain:
    """A system as a pinocchio model."""

    def __init__(self, system: System):
        pin = pinocchio()
        self.pin, self.model = pin, pin.Model()
        self.model.gravity.linear = np.asarray(gravity(system), float)
        links, _ = links_of(system, np.zeros(len(system.variables)))
        joints: list[int] = []
        for link in links:
            base = links[link.parent].pose if link.parent >= 0 else np.eye(4)
            place = pin.SE3(np.linalg.solve(base, link.before))
            kind = pin.JointModelRevoluteUnaligned if link.rotational else pin.JointModelPrismaticUnaligned
            parent = joints[link.parent] if link.parent >= 0 else 0
            joint = self.model.addJoint(parent, kind(np.asarray(link.axis, float)), place, link.variable)
            inertia = pin.Inertia(float(link.mass), np.asarray(link.com, float), np.asarray(link.inertia))
            self.model.appendBodyToJoint(joint, inertia, pin.SE3.Identity())
            joints.append(joint)
        self.data = self.model.createData()
        self.order = [self.model.joints[self.model.getJointId(n)].idx_q for n in system.variables]

    def acceleration(self, q: np.ndarray, v: np.ndarray, u: np.ndarray) -> np.ndarray:
        """By the articulated-body algorithm, in the order of the system."""
        o = self.order
        args = [np.empty(len(o)) for _ in range(3)]
        for arg, value in zip(args, (q, v, u), strict=True):
            arg[o] = value
        return self.pin.aba(self.model, self.data, *args)[o]

    def accelerations(self, q: np.ndarray, times: int) -> None:
        """As many evaluations: the least that a step of an explicit rule costs."""
        v, aba = np.zeros(len(q)), self.pin.aba
        for _ in range(times):
            aba(self.model, self.data, q, v, v)

    def linearize(self, q: np.ndarray, v: np.ndarray, u: np.ndarray, dt: float):
        """A, B of a semi-implicit Euler step, by the analytic derivatives of ABA."""
        n = len(q)
        by_q, by_v, by_u = self.pin.computeABADerivatives(self.model, self.data, q, v, u)
        A, B = np.empty((2 * n, 2 * n)), np.empty((2 * n, n))
        A[n:, :n], A[n:, n:], B[n:] = dt * by_q, dt * by_v, dt * by_u
        A[n:, n:].flat[:: n + 1] += 1.0
        A[:n], B[:n] = dt * A[n:], dt * B[n:]
        A[:n, :n].flat[:: n + 1] += 1.0
        return A, B


class DartWorld:
    """A system of hinges in a DART world, released at rest at q; `World.step` moves it."""

    def __init__(self, system: System, q: np.ndarray, dt: float):
        package = dart()
        dynamics = package.dynamics
        skeleton = dynamics.Skeleton(system.name)
        links, _ = links_of(system, np.zeros(len(system.variables)))
        bodies: list[Any] = []
        for link in links:
            base = links[link.parent].pose if link.parent >= 0 else np.eye(4)
            properties = dynamics.RevoluteJointProperties()
            properties.mName = link.variable
            properties.mAxis = np.asarray(link.axis, float)
            properties.mT_ParentBodyToJoint = package.math.Isometry3(np.linalg.solve(base, link.before))
            parent = bodies[link.parent] if link.parent >= 0 else None
            _, body = skeleton.createRevoluteJointAndBodyNodePair(parent, properties)
            body.setInertia(dynamics.Inertia(float(link.mass), np.asarray(link.com), inertia_of_a_body(link)))
            bodies.append(body)
        self.world = package.simulation.World()
        self.world.setTimeStep(dt)
        self.world.setGravity(np.asarray(gravity(system), float))
        self.world.addSkeleton(skeleton)
        self.skeleton = skeleton
        names = [skeleton.getDof(i).getName() for i in range(skeleton.getNumDofs())]
        self.order = [names.index(name) for name in system.variables]
        start = np.empty(len(q))
        start[self.order] = q
        self._start = start
        skeleton.setPositions(start)

    def acceleration(self, q: np.ndarray, v: np.ndarray) -> np.ndarray:
        args = [np.empty(len(q)) for _ in range(2)]
        for arg, value in zip(args, (q, v), strict=True):
            arg[self.order] = value
        self.skeleton.setPositions(args[0])
        self.skeleton.setVelocities(args[1])
        self.skeleton.computeForwardDynamics()
        return np.asarray(self.skeleton.getAccelerations())[self.order]

    def run(self, steps: int) -> np.ndarray:
        """From the start; the configuration at the end."""
        self.skeleton.setPositions(self._start)
        self.skeleton.setVelocities(np.zeros(len(self._start)))
        step = self.world.step
        for _ in range(steps):
            step()
        return np.asarray(self.skeleton.getPositions())[self.order]


class DrakePlant:
    """A system of hinges as a discrete `MultibodyPlant`, released at rest at q."""

    def __init__(self, system: System, q: np.ndarray, dt: float):
        self.package = package = drake()
        self.plant = plant = package.MultibodyPlant(dt)
        links, _ = links_of(system, np.zeros(len(system.variables)))
        bodies: list[Any] = []
        for i, link in enumerate(links):
            base = links[link.parent].pose if link.parent >= 0 else np.eye(4)
            I = np.asarray(inertia_of_a_body(link), float)
            moments = package.RotationalInertia(I[0, 0], I[1, 1], I[2, 2], I[0, 1], I[0, 2], I[1, 2])
            inertia = package.SpatialInertia.MakeFromCentralInertia(
                float(link.mass), np.asarray(link.com, float), moments
            )
            parent = bodies[link.parent] if link.parent >= 0 else plant.world_body()
            place = package.RigidTransform(np.linalg.solve(base, link.before))
            frame = plant.AddFrame(package.FixedOffsetFrame(f"joint{i}", parent.body_frame(), place))
            bodies.append(plant.AddRigidBody(f"body{i}", inertia))
            axis = np.asarray(link.axis, float)
            plant.AddJoint(package.RevoluteJoint(link.variable, frame, bodies[-1].body_frame(), axis))
        plant.mutable_gravity_field().set_gravity_vector(np.asarray(gravity(system), float))
        plant.Finalize()
        self.order = [plant.GetJointByName(name).position_start() for name in system.variables]
        self._start = self._state(q, np.zeros(len(q)))

    def _state(self, q: np.ndarray, v: np.ndarray) -> np.ndarray:
        x = np.empty(2 * len(q))
        x[self.order], x[[len(q) + i for i in self.order]] = q, v
        return x

    def acceleration(self, q: np.ndarray, v: np.ndarray) -> np.ndarray:
        plant, context = self.plant, self.plant.CreateDefaultContext()
        plant.SetPositionsAndVelocities(context, self._state(q, v))
        force = plant.CalcGravityGeneralizedForces(context) - plant.CalcBiasTerm(context)
        return np.linalg.solve(plant.CalcMassMatrix(context), force)[self.order]

    def run(self, steps: int) -> np.ndarray:
        """From the start; the configuration at the end."""
        simulator = self.package.Simulator(self.plant)
        context = simulator.get_mutable_context()
        self.plant.SetPositionsAndVelocities(context, self._start)
        simulator.AdvanceTo(steps * self.plant.time_step())
        return self.plant.GetPositions(context)[self.order]
