"""The mechanisms, starts and optimal-control problems that the groups measure."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

import vioc
from vioc import consistent_configuration
from vioc.control import Cost

DT = 0.01  # s
STEPS = 2000
START = np.pi / 4  # rad, of the top link, the others in line
# of a swing-up: of q and v, and of u, per second; of q and v at the end
RUNNING, EFFORT, FINAL = (0.1, 0.01), 0.01, (1e3, 1e2)


def pendulum(n: int, backend: str = "virtual") -> tuple[vioc.MidpointVI, np.ndarray]:
    """The n-link pendulum of [T] VI-A, released at rest."""
    f = vioc.MidpointVI(vioc.models.load("n_link_pendulum", n), DT, backend=backend)
    return f, f.initial_state({"link-0": START})


def driven_chain(n: int, backend: str = "virtual") -> vioc.MidpointVI:
    """The same with a torque on each joint."""
    system = vioc.models.load("n_link_pendulum", n)
    torques = [vioc.JointForce(name, f"torque-{i}") for i, name in enumerate(system.variables)]
    return vioc.MidpointVI(system.with_components(*torques), DT, backend=backend)


def quadruped(backend: str = "virtual") -> tuple[vioc.MidpointVI, np.ndarray]:
    """A free trunk and four legs of three joints with a motor each, 18 degrees of freedom, in flight."""
    legs, joints = [], []
    for i, (x, y) in enumerate(((0.18, 0.05), (0.18, -0.05), (-0.18, 0.05), (-0.18, -0.05))):
        calf = vioc.tz(-0.1, mass=(0.2, 1e-3, 1e-3, 1e-4))
        thigh = vioc.tz(-0.1, mass=(1.0, 5e-3, 5e-3, 1e-3))
        knee = vioc.tz(-0.2)[vioc.ry(f"knee-{i}")[calf]]
        hip = vioc.rx(f"roll-{i}")[
            vioc.ty(0.08 if y > 0 else -0.08, mass=0.7)[vioc.ry(f"hip-{i}")[thigh, knee]]
        ]
        legs.append(vioc.tx(x)[vioc.ty(y)[hip]])
        joints += [f"roll-{i}", f"hip-{i}", f"knee-{i}"]
    trunk = vioc.rz("yaw")[vioc.ry("pitch")[vioc.rx("roll", mass=(6.0, 0.02, 0.06, 0.07))[tuple(legs)]]]
    free = vioc.tx("x")[vioc.ty("y")[vioc.tz("z")[trunk]]]
    motors = [vioc.JointForce(name, f"motor-{name}") for name in joints]
    f = vioc.MidpointVI(vioc.System(vioc.Gravity(0, 0, -9.81), *motors, free), DT, backend=backend)
    return f, f.initial_state(
        {name: 0.5 if name.startswith("hip") else -1.0 for name in joints if "roll" not in name}
    )


def closed_chain(backend: str = "virtual") -> tuple[vioc.MidpointVI, np.ndarray]:
    """The planar device of [T] with three loops, released at rest."""
    f = vioc.MidpointVI(vioc.models.load("closed_chain"), DT, backend=backend)
    guess = {"J": -0.62, "H": 1.35, "K": 0.1, "M": -1.34, "A": 0.04, "C": 1.28, "E": 0.93}
    return f, f.initial_state(consistent_configuration(f.system, guess).q)


def scissor_lift(n: int, backend: str = "virtual") -> tuple[vioc.MidpointVI, np.ndarray]:
    """The free case of [T] VI-C: released at 45 degrees."""
    f = vioc.MidpointVI(vioc.models.scissor_lift(n), DT, backend=backend)
    return f, f.initial_state(vioc.models.scissor_lift_configuration(n, START))


def marionette(steps: int, backend: str = "virtual") -> tuple[vioc.MidpointVI, np.ndarray, np.ndarray]:
    """[S] VIII-B: map, start and inputs that pull the strings of arms and legs."""
    from studies.marionette_dlqr import pulled, start

    f = vioc.MidpointVI(vioc.models.load("marionette"), DT, forcing="left", backend=backend)
    return f, start(f), pulled(f, DT * np.arange(1, steps + 1))


class Problem(NamedTuple):
    """An optimal-control problem of a map, with what `vioc.control.optimize` is told."""

    map: vioc.MidpointVI
    cost: Cost
    guess: Any
    options: dict[str, Any]

    def solve(self) -> vioc.control.Result:
        return vioc.control.optimize(self.map, self.cost, self.guess, **self.options)


def pendulum_swing(backend: str = "virtual") -> Problem:
    """[S] VIII-A with the weights of the reference implementation, from zero inputs."""
    f = vioc.MidpointVI(vioc.models.load("pendulum"), 0.1, forcing="left", backend=backend)
    steps = 100
    reference = np.zeros((steps + 1, 2))
    reference[steps // 2 :, 0] = np.pi
    Q = np.diag([1000.0, 1.0])
    cost = vioc.control.quadratic(f, Q=Q, R=50.0, Qf=Q, reference=reference, per_time=False)
    return Problem(f, cost, None, dict(x0=np.zeros(2), steps=steps, warmup=4, projection=(1.0, 1.0)))


class SwingUp(NamedTuple):
    """From hanging at rest to upright at rest, from the straight line of states with zero input.

    Attributes
    ----------
    model : str
    hanging : (nq,)
        Start; the goal is zero.
    steps : int
        Of DT.
    """

    model: str
    hanging: np.ndarray
    steps: int

    def problem(self, backend: str = "virtual") -> Problem:
        f = vioc.MidpointVI(vioc.models.load(self.model), DT, backend=backend)
        cost = self.cost(f)
        line = vioc.control.straight_line(f.initial_state(self.hanging), f.initial_state(), self.steps)
        guess = line, np.zeros((self.steps, f.nu))
        return Problem(f, cost, guess, dict(max_iterations=1000))

    def cost(self, f: vioc.MidpointVI | vioc.RungeKutta) -> Cost:
        """On any map of the mechanism."""

        def weights(w: tuple[float, float]) -> dict[str, float]:
            names = f.system.variables
            return {**dict.fromkeys(names, w[0]), **{f"v.{n}": w[1] for n in names}}

        return vioc.control.quadratic(f, Q=weights(RUNNING), R=EFFORT, Qf=weights(FINAL))


CART_POLE = SwingUp("cart_pole", np.array([0.0, np.pi]), 200)
ACROBOT = SwingUp("acrobot", np.array([np.pi, 0.0]), 300)
