"""Optimal-control problems at robot scale: of each a map, a cost, a guess and what limits it.

A mechanism's problem is stated for any integrator of its system, so that other programs can be told the same
problem on another discretization: the running cost is summed over the starts of steps in all of them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import casadi as ca
import numpy as np

import vioc
from studies import arm_reaching, humanoid
from studies.benchmarks.problems import ACROBOT, DT, SwingUp
from studies.marionette_dlqr import pulled, start
from studies.tasks import Task
from vioc import OneStepMap
from vioc.control import Cost, quadratic, straight_line
from vioc.control.dmoc import obstacle

BEYOND = 1.1  # of the marionette's motion that is to be tracked: 10 % off what its strings reach


class ImplicitMidpoint(vioc.RungeKutta):
    """The implicit midpoint rule on q and v, with its equations: q1 - q0 = dt v_m, M a + ... = F there."""

    def __init__(self, system: vioc.System, dt: float):
        super().__init__(system, dt, "implicit-midpoint")

    @property
    def residual(self) -> ca.Function | None:
        """None where there are loops or prescribed configurations."""
        if self.multiplier_names or self.system.kinematic:
            return None
        c, n = self.continuous, self.nx // 2
        a = ca.SX.sym("a", n)
        balance = c.lagrangian.function("balance", [c.balance(a, ca.SX(0, 1))], [a])
        x0, u, lam, theta, dt = self.symbols
        x1, t = ca.SX.sym("x1", 2 * n), ca.SX.sym("t")
        middle, rate = (x0 + x1) / 2, (x1 - x0) / dt
        force = balance(middle[:n], middle[n:], u, t, theta, rate[n:])
        rows = ca.vertcat((x1 - x0)[:n] - dt * middle[n:], dt * force)
        return ca.Function("residual", [x0, u, x1, lam, t, dt, theta], [rows], {"cse": True})


class Make(NamedTuple):
    """How the map of a system is made: by the variational integrator, or by the implicit midpoint rule."""

    backend: str = "virtual"
    variational: bool = True

    def __call__(self, system: vioc.System, dt: float) -> OneStepMap:
        if self.variational:
            return vioc.MidpointVI(system, dt, backend=self.backend)
        return ImplicitMidpoint(system, dt)


# -- arms -----------------------------------------------------------------------------------------------


def arm(make: Make, steps: int = 100) -> Task:
    """The 7-DOF arm of the study `arm_reaching`, 1 s."""
    f = make(vioc.models.seven_joint_arm(), arm_reaching.DURATION / steps)
    return Task(f, arm_reaching.cost(f), None, f.initial_state(arm_reaching.START), steps)


# of a UR5's joints: place and turn of the origin, axis; mass, centre and length of the link; limit of torque
UR5 = (
    ("shoulder_pan", (0.0, 0.0, 0.089159), (0, 0, 0), "0 0 1", 3.7, (0.0, 0.0, 0.0), 0.15, 150.0),
    ("shoulder_lift", (0.0, 0.13585, 0.0), (0, np.pi / 2, 0), "0 1 0", 8.393, (0.0, 0.0, 0.28), 0.56, 150.0),
    ("elbow", (0.0, -0.1197, 0.425), (0, 0, 0), "0 1 0", 2.275, (0.0, 0.0, 0.25), 0.5, 150.0),
    ("wrist_1", (0.0, 0.0, 0.39225), (0, np.pi / 2, 0), "0 1 0", 1.219, (0.0, 0.0, 0.0), 0.12, 28.0),
    ("wrist_2", (0.0, 0.093, 0.0), (0, 0, 0), "0 0 1", 1.219, (0.0, 0.0, 0.0), 0.12, 28.0),
    ("wrist_3", (0.0, 0.0, 0.09465), (0, 0, 0), "0 1 0", 0.1879, (0.0, 0.0, 0.0), 0.08, 28.0),
)
UR5_SPEED, UR5_TURN = np.pi, 2 * np.pi  # rad/s, rad
UR5_START = np.array([0.0, -1.2, 1.6, -1.9, -1.57, 0.0])
UR5_GOAL = np.array([1.4, -0.8, 1.1, -1.4, -1.0, 0.8])
CORNERS = {"tool": (0.0, 0.0823, 0.0), "tool_x": (0.2, 0.0823, 0.0), "tool_z": (0.0, 0.0823, 0.2)}  # m


def ur5_urdf() -> str:
    """A UR5: its published measures, masses and limits; links are rods of 0.12 m width."""
    text = ['<robot name="ur5">', '<link name="base"/>']
    parent = "base"
    for name, place, turn, axis, mass, com, length, torque in UR5:
        across, along = mass / 12 * (0.12**2 + length**2), mass / 6 * 0.12**2
        numbers = (" ".join(map(str, v)) for v in (com, place, turn))
        at, origin, rpy = numbers
        text.append(
            f'<link name="{name}_link"><inertial><origin xyz="{at}"/><mass value="{mass}"/>'
            f'<inertia ixx="{across}" iyy="{across}" izz="{along}" ixy="0" ixz="0" iyz="0"/></inertial>'
            f"</link>"
            f'<joint name="{name}" type="revolute"><parent link="{parent}"/><child link="{name}_link"/>'
            f'<origin xyz="{origin}" rpy="{rpy}"/><axis xyz="{axis}"/>'
            f'<limit lower="{-UR5_TURN}" upper="{UR5_TURN}" effort="{torque}" velocity="{UR5_SPEED}"/>'
            f"</joint>"
        )
        parent = f"{name}_link"
    for name, place in CORNERS.items():
        text.append(
            f'<link name="{name}"/><joint name="{name}_fixed" type="fixed"><parent link="{parent}"/>'
            f'<child link="{name}"/><origin xyz="{" ".join(map(str, place))}"/></joint>'
        )
    return "\n".join([*text, "</robot>"])


def ur5(make: Make, steps: int = 50) -> Task:
    """A UR5 from URDF to a pose in 1 s, within its torques, speeds and angles.

    The pose is that of three points of the tool, each with weight 1e3.
    """
    model = vioc.read_urdf_text(ur5_urdf(), inputs="all")
    f = make(model.system, 1.0 / steps)
    names = model.system.variables
    kinematics = vioc.Kinematics(model.system)
    off = [
        f.quantity(f"{c}:{a}") - kinematics.position(c, UR5_GOAL)[i]
        for c in CORNERS
        for i, a in enumerate("xyz")
    ]
    v = ca.vertcat(*(f.quantity(f"v.{n}") for n in names))
    cost = Cost(
        f,
        0.5e-4 * ca.sumsqr(f.symbols.u) + 0.5e-2 * ca.sumsqr(v),
        0.5e3 * ca.sumsqr(ca.vertcat(*off)) + 5 * ca.sumsqr(v),
    )
    bounds = dict(zip((f"u.{n}" for n in f.input_names), (link[-1] for link in UR5), strict=True))
    bounds |= {n: UR5_TURN for n in names} | {f"v.{n}": UR5_SPEED for n in names}
    return Task(f, cost, None, f.initial_state(UR5_START), steps, {"bounds": bounds})


OBSTACLES = (("wrist_1_link", (0.35, 0.45, 0.45), 0.2), ("tool", (0.35, 0.45, 0.45), 0.22))


def ur5_obstacles(make: Make, steps: int = 50) -> Task:
    """The same with a ball in the way of its wrist and of its tool."""
    task = ur5(make, steps)
    balls = [obstacle(task.map, frame, c, r, name=f"{frame} from ball") for frame, c, r in OBSTACLES]
    return task._replace(limits=task.limits | {"constraints": balls})


def humanoid_reach(make: Make, steps: int = 50) -> Task:
    """The 30 joints of the study `humanoid`, held at the pelvis: the left hand reaches forward in 1 s."""
    system = vioc.read_urdf_text(humanoid.urdf(), base="fixed", inputs="all").system
    f = make(system, 1.0 / steps)
    v = ca.vertcat(*(f.quantity(f"v.{n}") for n in system.variables))
    hand = ca.vertcat(*(f.quantity(f"left_hand:{a}") for a in "xyz"))
    q = {"left_forearm_ry": -0.6, "right_forearm_ry": -0.6}
    x0 = f.initial_state(q)
    held = vioc.Kinematics(system).position("left_hand", x0[: len(system.variables)])
    goal = held + np.array([0.2, 0.1, 0.3])
    cost = Cost(
        f,
        0.5e-3 * ca.sumsqr(f.symbols.u) + 0.5e-2 * ca.sumsqr(v),
        0.5e4 * ca.sumsqr(hand - ca.DM(goal)) + 5 * ca.sumsqr(v),
    )
    return Task(f, cost, None, x0, steps)


# -- closed chains and strings --------------------------------------------------------------------------


def five_bar(make: Make, steps: int = 50) -> Task:
    """A planar five-bar with bounded torques: its point goes from left to right, around a post."""

    def leg(side: str, x: float) -> Any:
        lower = vioc.revolute(f"{side}2", "y", mass=vioc.Mass(0.4, (2e-3,) * 3, (0, 0, 0.25)))
        upper = vioc.revolute(f"{side}1", "y", mass=vioc.Mass(0.6, (4e-3,) * 3, (0, 0, 0.15)))
        return vioc.se3((x, 0, 0))[upper[vioc.tz(0.3)[lower[vioc.tz(0.5, name=f"tip{side}")]]]]

    system = vioc.System(
        leg("l", -0.1),
        leg("r", 0.1),
        vioc.Gravity(0, 0, -9.81),
        *vioc.coincident("tipl", "tipr", axes="xz", name="pin"),
        vioc.JointForce("l1", "ul"),
        vioc.JointForce("r1", "ur"),
        name="five-bar",
    )
    f = make(system, 1.0 / steps)
    q = vioc.consistent_configuration(system, {"l1": -1.0, "l2": 0.9, "r1": 0.1, "r2": -0.6}).q
    end = vioc.consistent_configuration(system, {"l1": -0.1, "l2": 0.6, "r1": 1.0, "r2": -0.9}).q
    names = system.variables
    cost = quadratic(
        f,
        Q=dict.fromkeys(names, 0.1),
        R=0.01,
        Qf=dict.fromkeys(names, 10.0),
        goal=dict(zip(names, end, strict=True)),
    )
    limits = {
        "bounds": {"u.ul": 8.0, "u.ur": 8.0},
        "constraints": [obstacle(f, "tipl", (0.0, 0.72), 0.12, axes="xz", name="post")],
    }
    return Task(f, cost, None, f.initial_state(q), steps, limits)


def marionette(make: Make, steps: int = 100) -> Task:
    """[S] VIII-B: the joints are to follow a motion of their own, 10 % larger than its strings reach."""
    f = vioc.MidpointVI(vioc.models.load("marionette"), 0.01, forcing="left", backend=make.backend)
    x0 = start(f)
    motion = f.rollout(x0, pulled(f, f.dt * np.arange(1, steps + 1)), warn=False)
    wanted = {n: motion[n][0] + BEYOND * (motion[n] - motion[n][0]) for n in f.system.dynamic}
    joints = dict.fromkeys(f.system.dynamic, 1.0)
    rates = {f"v.{n}": 1e-2 for n in f.system.kinematic}
    cost = quadratic(f, Q=joints | rates, R=1.0, Qf=joints, reference=wanted, u_reference=motion.u)
    return Task(f, cost, motion, x0, steps)


# -- vehicles -------------------------------------------------------------------------------------------

MASS, INERTIA, REACH, DRAG = 0.5, (0.0023, 0.0023, 0.004), 0.175, 0.0245  # of RobotZoo's quadrotor, SI
HOVER = MASS * 9.81 / 4
ROTORS = ((REACH, 0.0, 1), (0.0, REACH, -1), (-REACH, 0.0, 1), (0.0, -REACH, -1))  # x, y, sense


def quadrotor_window(make: Make, steps: int = 100) -> Task:
    """A quadrotor from rest to rest, 4 m in 2 s, through a window of 0.4 m that is not on its way."""
    body = vioc.free("b", frame="body", mass=vioc.Mass(MASS, INERTIA))
    rotors = [
        vioc.WrenchInput("body", f"f{i}", (0.0, 0.0, 1.0), (y, -x, sense * DRAG))
        for i, (x, y, sense) in enumerate(ROTORS)
    ]
    system = vioc.System(body, vioc.Gravity(0, 0, -9.81), *rotors, name="quadrotor")
    f = make(system, 2.0 / steps)
    middle = np.arange(steps + 1) == steps // 2

    def at_window(low: float, high: float) -> tuple[np.ndarray, np.ndarray]:
        return np.where(middle, low, -np.inf), np.where(middle, high, np.inf)

    v = {f"v.{n}": 0.1 for n in system.variables}
    cost = quadratic(f, Q=v, R=0.1, u_reference=np.full(4, HOVER))
    x0, goal = f.initial_state({"b-x": -2.0, "b-z": 1.0}), f.initial_state({"b-x": 2.0, "b-z": 1.0})
    bounds = {f"u.f{i}": (0.0, 3.0) for i in range(4)}
    bounds |= {"b-x": at_window(-0.1, 0.1), "b-y": at_window(0.6, 1.0), "b-z": at_window(1.4, 1.8)}
    guess = straight_line(x0, goal, steps), np.full((steps, 4), HOVER)
    return Task(f, cost, guess, x0, steps, {"bounds": bounds, "final": goal})


def slung_system() -> vioc.System:
    """A planar quadrotor of 1 kg with 0.3 kg on a rod of 0.6 m."""
    rod = vioc.revolute("swing", "y")[vioc.tz(-0.6, mass=0.3)]
    body = vioc.tx("x")[
        vioc.tz("z")[vioc.revolute("tilt", "y", frame="body", mass=vioc.Mass(1.0, (0.02,) * 3)), rod]
    ]
    sides = [
        vioc.WrenchInput("body", n, (0.0, 0.0, 1.0), (0.0, m, 0.0))
        for n, m in (("left", 0.2), ("right", -0.2))
    ]
    return vioc.System(body, vioc.Gravity(0, 0, -9.81), *sides, name="slung load")


def slung_load(make: Make, steps: int = 60) -> Task:
    """A planar quadrotor with a load on a rod, 2 m from rest to rest in least time; no guess.

    Its time T is a state, 2 s at first, that the first step's input changes; the steps are T / N, by the rule
    of Runge and Kutta. A small price on the thrusts makes the optimum unique.
    """
    rule = vioc.RungeKutta(slung_system(), 1.0 / steps, "rk4")
    n, hover = rule.nx, 1.3 * 9.81 / 2
    x, u = ca.SX.sym("x", n + 1), ca.SX.sym("u", 3)
    T = x[n] + u[2]
    after = rule.explicit.expand()(x[:n], u[:2], 0.0, T / steps, ca.SX(0, 1))[0]
    f = vioc.CasadiMap(
        ca.Function("slung_load", [x, u], [ca.vertcat(after, T)]),
        1.0 / steps,
        state_names=[*rule.state_names, "T"],
        input_names=["left", "right", "change"],
        backend=make.backend,
    )
    s = f.symbols
    cost = Cost(f, 1e-3 * ca.sumsqr(s.u[:2] - hover), s.x[n])
    x0 = np.append(rule.initial_state(), 2.0)
    first = np.where(np.arange(steps) == 0, 1.5, 0.0)
    bounds = {"u.left": (0.0, 15.0), "u.right": (0.0, 15.0), "u.change": (-first, first), "tilt": 1.2}
    final = dict(zip(rule.state_names, rule.initial_state({"x": 2.0}), strict=True))
    return Task(f, cost, None, x0, steps, {"bounds": bounds, "final": final})


def _turned(q: ca.SX, r: ca.SX) -> ca.SX:
    """r turned by the unit quaternion q, scalar first."""
    t = 2 * ca.cross(q[1:], r)
    return r + q[0] * t + ca.cross(q[1:], t)


def quadrotor_zigzag(make: Make, steps: int = 100) -> Task:
    """Altro.jl's problem, `ocp_robots.md` 2: 13 states with a quaternion, the rule of Runge and Kutta."""
    dt = 5.0 / steps
    x, u = ca.SX.sym("x", 13), ca.SX.sym("u", 4)
    q, v, w = x[3:7], x[7:10], x[10:13]
    J = ca.DM(INERTIA)
    torque = ca.vertcat(REACH * (u[1] - u[3]), REACH * (u[2] - u[0]), DRAG * (u[0] - u[1] + u[2] - u[3]))
    turning = ca.vertcat(-ca.dot(q[1:], w), q[0] * w + ca.cross(q[1:], w)) / 2
    lift = _turned(q, ca.vertcat(0, 0, ca.sum1(u))) / MASS - ca.DM([0, 0, 9.81])
    rate = ca.Function("rate", [x, u], [ca.vertcat(v, turning, lift, (torque - ca.cross(w, J * w)) / J)])
    f = vioc.CasadiMap(
        _rk4(rate, dt), dt, state_names=_ZIGZAG, input_names=["f0", "f1", "f2", "f3"], backend=make.backend
    )
    places = {33: (10.0, 0.0, 1.0), 66: (-10.0, 0.0, 1.0), 100: (0.0, 10.0, 1.0)}
    level = np.array([0.0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0])
    weights, about = np.zeros((steps + 1, 13)), np.tile(level, (steps + 1, 1))
    weights[:] = dt * np.repeat([1e-5, 1e-5, 1e-3, 1e-3], [3, 4, 3, 3])
    price = np.full((steps + 1, 1), 1e-4 * dt)
    for knot, place in places.items():
        k = knot * steps // 100  # knots 33, 66 and 101 of 101, the first of which is k = 0
        k = k - 1 if knot < 100 else k
        about[k, :3] = place
        weights[k] = (
            np.repeat([10.0, 100.0, 10.0, 10.0], [3, 4, 3, 3])
            if knot == 100
            else dt * 1e-3 * np.repeat([1e3, 1.0, 1.0, 1.0], [3, 4, 3, 3])
        )
        price[k] = 1e-4
    W, at, R = ca.SX.sym("W", 13), ca.SX.sym("at", 13), ca.SX.sym("R")
    s = f.symbols
    state = ca.dot(W, (s.x - at) ** 2) / 2
    cost = Cost(
        f,
        state + R * ca.sumsqr(s.u) / 2,
        state,
        references=[(W, weights), (at, about), (R, price)],
        per_time=False,
    )
    x0 = level.copy()
    x0[:3] = 0.0, -10.0, 1.0
    U = np.full((steps, 4), HOVER)
    limits = {"bounds": {f"u.{n}": (0.0, 12.0) for n in f.input_names}}
    return Task(f, cost, (np.tile(x0, (steps + 1, 1)), U), x0, steps, limits)


_ZIGZAG = [*"xyz", "qw", "qx", "qy", "qz", "vx", "vy", "vz", "wx", "wy", "wz"]


def _rk4(rate: ca.Function, dt: float) -> ca.Function:
    x, u = ca.SX.sym("x", rate.numel_in(0)), ca.SX.sym("u", rate.numel_in(1))
    k1 = rate(x, u)
    k2 = rate(x + dt / 2 * k1, u)
    k3 = rate(x + dt / 2 * k2, u)
    k4 = rate(x + dt * k3, u)
    return ca.Function("step", [x, u], [x + dt / 6 * (k1 + 2 * k2 + 2 * k3 + k4)])


# -- swing-ups ------------------------------------------------------------------------------------------


def cart_pole(make: Make, steps: int = 50) -> Task:
    """The comparison of `ocp_robots.md` 1, optimum 66.80261969: Euler steps, |u| <= 5, the end given."""
    cart, ball, length, g, dt = 10.0, 1.0, 0.5, 9.81, 5.0 / steps
    x, u = ca.SX.sym("x", 4), ca.SX.sym("u")
    s, c = ca.sin(x[1]), ca.cos(x[1])
    a = (u + ball * s * (length * x[3] ** 2 + g * c)) / (cart + ball * s**2)
    rate = ca.vertcat(x[2], x[3], a, -(a * c + g * s) / length)
    f = vioc.CasadiMap(
        ca.Function("cart_pole", [x, u], [x + dt * rate]),
        dt,
        state_names=["x", "theta", "v", "w"],
        input_names=["force"],
        backend=make.backend,
    )
    x0, goal = np.array([0.0, 0.2, 0.0, -0.1]), np.array([0.0, np.pi, 0.0, 0.0])
    off = f.symbols.x - ca.DM(goal)
    cost = Cost(
        f, 0.1 * ca.sumsqr(off) + 0.01 * ca.sumsqr(f.symbols.u), 1000 * ca.sumsqr(off), per_time=False
    )
    limits = {"bounds": {"u.force": 5.0}, "final": goal}
    return Task(f, cost, (np.linspace(x0, goal, steps + 1), None), x0, steps, limits)


def swing_up(make: Make, swing: SwingUp = ACROBOT) -> Task:
    """A swing-up of the group `optimizers`, from the straight line of states."""
    f = make(vioc.models.load(swing.model), DT)
    guess = straight_line(f.initial_state(swing.hanging), f.initial_state(), swing.steps), None
    return Task(f, swing.cost(f), guess, guess[0][0], swing.steps)


def ladder(make: Make, n: int, steps: int = 200) -> Task:
    """A cart of 1 kg with n rods (0.5 m, 0.1 kg) swings up in 4 s: `ocp_robots.md` 4 by fewer, longer steps.

    Sum of 1e-4 u^2 and 6e-4 |v|^2 per 4 ms, |u| <= 100 N, upright and at rest at the end, where the cart
    stands is free. Of two and three rods gaps are hard from the first iteration, as `Problem.solve` says; of
    more they give way, in more iterations.
    """
    below: tuple[Any, ...] = ()
    for i in reversed(range(n)):
        rod = vioc.Mass(0.1, (0.1 * 0.5**2 / 12, 0.1 * 0.5**2 / 12, 1e-6), (0.0, 0.0, 0.25))
        turn = vioc.revolute(f"q{i}", "y", mass=rod)
        below = (turn[vioc.tz(0.5)[below]] if below else turn,)
    system = vioc.System(
        vioc.tx("x", mass=1.0)[below],
        vioc.Gravity(0, 0, -9.81),
        vioc.JointForce("x", "force"),
        name=f"cart with {n} rods",
    )
    f = make(system, 4.0 / steps)
    v = ca.vertcat(*(f.quantity(f"v.{name}") for name in system.variables))
    cost = Cost(f, (1e-4 * ca.sumsqr(f.symbols.u) + 6e-4 * ca.sumsqr(v)) / 4e-3)
    x0, end = f.initial_state({"q0": np.pi}), f.initial_state()
    final = {name: value for name, value in zip(f.state_names, end, strict=True) if name != "x"}
    guess = straight_line(x0, end, steps), None
    limits = {"bounds": {"u.force": 100.0, "x": 10.0}, "final": final}
    options = {} if n < 2 else {"softness": 1e-8} if n < 4 else {"softness": 1e-2, "max_iterations": 1000}
    return Task(f, cost, guess, x0, steps, limits, options)
