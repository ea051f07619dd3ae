"""Small maps, as CasADi functions, on which the tests of `vioc.control` run."""

import casadi as ca
import numpy as np

from vioc import CasadiMap


def rk4(rhs, nx, nu, dt, **names):
    x, u = ca.SX.sym("x", nx), ca.SX.sym("u", nu)
    k1 = rhs(x, u)
    k2 = rhs(x + dt / 2 * k1, u)
    k3 = rhs(x + dt / 2 * k2, u)
    k4 = rhs(x + dt * k3, u)
    step = x + dt / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
    return CasadiMap(ca.Function("rk4", [x, u], [step]), dt=dt, **names)


def double_integrator(dt=0.1):
    names = dict(state_names=("x", "v"), input_names=("force",))
    return rk4(lambda x, u: ca.vertcat(x[1], u), 2, 1, dt, **names)


def midpoint_pendulum(dt=0.1, g=9.8, wrap=()):
    """The pendulum of [S] II-A: (6a) by eight Newton steps, which leave rounding only, and (6b)."""
    q, p, u = ca.SX.sym("q"), ca.SX.sym("p"), ca.SX.sym("u")
    q1 = q + dt * p
    for _ in range(8):
        balance = p - (q1 - q) / dt - g * dt / 2 * ca.sin((q + q1) / 2) + u * dt
        q1 += balance / (1 / dt + g * dt / 4 * ca.cos((q + q1) / 2))
    p1 = (q1 - q) / dt - g * dt / 2 * ca.sin((q + q1) / 2)
    return CasadiMap(
        ca.Function("pendulum", [ca.vertcat(q, p), u], [ca.vertcat(q1, p1)]),
        dt=dt,
        state_names=("theta", "p.theta"),
        input_names=("torque",),
        wrap=wrap,
    )


def cart_pole(dt=0.01, g=9.81, cart=1.0, pole=0.3, length=0.5):
    """theta = 0 upright; a point mass on the pole."""

    def rhs(x, u):
        s, c = ca.sin(x[1]), ca.cos(x[1])
        push = u + pole * length * x[3] ** 2 * s
        a = (push - pole * g * s * c) / (cart + pole * s**2)
        return ca.vertcat(x[2], x[3], a, (g * s - c * a) / length)

    names = dict(state_names=("x", "theta", "v.x", "v.theta"), input_names=("force",))
    return rk4(rhs, 4, 1, dt, **names)


def two_inputs(dt=0.1):
    """A nonlinear map with three states and two inputs that are not independent of the state."""

    def rhs(x, u):
        return ca.vertcat(ca.sin(x[1]) + u[0], x[2] * u[1] - x[0], -x[2] + ca.cos(x[0]) * u[0])

    return rk4(rhs, 3, 2, dt)


class RailedMap(CasadiMap):
    """The pendulum's map with a multiplier "rail" that is a function of x and u."""

    def __init__(self):
        base = midpoint_pendulum()
        super().__init__(base.function, base.dt, state_names=base.state_names, input_names=base.input_names)
        self.multiplier_names = ("rail",)
        self.symbols = self.symbols._replace(multipliers=ca.SX.sym("rail"))

    @property
    def explicit(self):
        x, u, _, theta, dt = self.symbols
        t = ca.SX.sym("t")
        rail = x[1] ** 2 * ca.cos(x[0]) + x[0] * u + 0.3 * u**2
        return ca.Function("step", [x, u, t, dt, theta], [self.function(x, u), rail, ca.SX(0)])


def swing_up_references(steps):
    """The step of [S] (35), the unstable equilibrium in the second half."""
    return {"theta": np.where(np.arange(steps + 1) < steps // 2, 0.0, np.pi)}
