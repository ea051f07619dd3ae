"""
An integrator with its own solver
=================================

The kernel of this implicit Euler rule makes six Newton iterations; SciPy solves the steps that need more.
`check_map` compares its derivatives with differences. The rule damps: a cart-pole loses energy that the
midpoint rule keeps.
"""

import casadi as ca
import matplotlib.pyplot as plt
import numpy as np
from scipy.optimize import root

import vioc
from vioc import MechanicalMap
from vioc.errors import StepError
from vioc.maps import KernelPrograms, MapDerivatives, check_map, own, shared
from vioc.maps.derivatives import Linearization, SecondOrder

ITERATIONS = 6


def newton(residual, start):
    """Return a root near `start`, and the residual there."""
    y = ca.SX.sym("y", start.numel())
    r = residual(y)
    move = y - ca.solve(ca.jacobian(r, y), r)
    for _ in range(ITERATIONS):
        start = ca.substitute(move, y, start)
    return start, ca.substitute(r, y, start)


class ImplicitEuler(MechanicalMap):
    """q1 = q + dt v, p1 = L_v(q1, v) = p + dt (L_q + F)(q1, v), solved for v."""

    @shared
    def equations(self):
        """(v, x, u, t, dt, parameters) -> (residual, x_next)."""
        x, u, _, theta, dt = self.symbols
        v, t, lag = ca.SX.sym("v", self.nq), ca.SX.sym("t"), self.lagrangian
        q = x[: self.nq] + dt * v
        momentum, force = lag.function("terms", [lag.L_v, lag.L_q + lag.F])(q, v, u, t + dt, theta)
        residual = momentum - x[self.nq :] - dt * force
        return ca.Function("equations", [v, x, u, t, dt, theta], [residual, ca.vertcat(q, momentum)])

    @shared
    def programs(self):
        x, u, lam, theta, dt = self.symbols
        args = [x, u, ca.SX.sym("t"), dt, theta]
        v, left = newton(lambda v: self.equations(v, *args)[0], ca.SX.zeros(self.nq))
        kernel = ca.Function("step", args, [self.equations(v, *args)[1], lam, ca.norm_2(left)], {"cse": True})
        return KernelPrograms(self, lambda: kernel)

    @own
    def step_solver(self):
        return self.programs.solver(self.rescued)

    def rescued(self, x, u, k, t, dt):
        at = x, u, t, dt, self.theta
        v = root(
            lambda v: self.equations(v, *at)[0].full()[:, 0], np.zeros(self.nq), method="lm", tol=1e-13
        ).x
        residual, x_next = self.equations(v, *at)
        error = float(ca.norm_2(residual))
        if not error <= self.tolerance:
            raise StepError(f"step {k} (t = {t:.6g} s) did not converge", k, error, "no convergence")
        return x_next.full()[:, 0], np.zeros(self.nm)

    @shared
    def sensitivities(self):
        """(v, x, u, t, dt, parameters, z) -> Jacobian of x_next, Hessian of z . x_next, by s."""
        args = self.equations.sx_in()
        v, x, u, theta = *args[:3], args[5]
        s, z, w = ca.vertcat(x, u, theta), ca.SX.sym("z", self.nx), ca.SX.sym("w", self.nq)
        residual, x_next = self.equations(*args)
        S, X = ca.jacobian(residual, v), ca.jacobian(x_next, v)
        v_s = -ca.solve(S, ca.jacobian(residual, s))  # the implicit function theorem
        H = ca.hessian(ca.dot(z, x_next) + ca.dot(w, residual), ca.vertcat(s, v))[0]
        H = ca.substitute(H, w, -ca.solve(S.T, X.T @ z))
        along = ca.vertcat(ca.SX.eye(s.numel()), v_s)
        return ca.Function(
            "sensitivities", [*args, z], [ca.jacobian(x_next, s) + X @ v_s, along.T @ H @ along]
        )

    @own
    def derivatives(self):
        return MapDerivatives(self, self.first, self.second, self.with_times)

    def at(self, steps, Z):
        V = (steps.x1 - steps.x0)[:, : self.nq] / steps.h[:, None]
        points = zip(V, steps.x0, steps.u, steps.t, steps.h, Z, strict=True)
        found = [self.sensitivities(v, x, u, t, h, self.theta, z) for v, x, u, t, h, z in points]
        return [np.array([m.full() for m in part]) for part in zip(*found, strict=True)]

    def first(self, steps):
        J = self.at(steps, np.zeros_like(steps.x0))[0]
        return Linearization.of(J, np.zeros((len(steps), self.nm, J.shape[2])), self.nu)

    def second(self, steps, Z, zeta):
        return SecondOrder.of(self.at(steps, Z)[1], self.ndx, self.nu)


# %%
# `own` marks what each copy of the map builds anew, `shared` what copies share.

cart_pole = vioc.models.load("cart_pole")
euler = ImplicitEuler(cart_pole, 0.02, ("theta",), 1e-9)
start = euler.initial_state({"theta": 0.4, "x": 0.1}, {"x": 0.2, "theta": -0.3})
check_map(euler, start, [0.3], pickles=False)

# %%
# The energy of a fall, beside the midpoint rule.

midpoint = vioc.MidpointVI(cart_pole, 0.02)
axes = plt.figure(figsize=(6, 3.5), layout="constrained").add_subplot()
for name, f in (("implicit Euler", euler), ("midpoint rule", midpoint)):
    run = f.rollout(start, steps=500)
    axes.plot(run.t, run.energy, label=name)
    print(f"{name}: energy changes by {run.energy[-1] - run.energy[0]:.3f} J")
axes.set(xlabel="t (s)", ylabel="energy (J)")
axes.legend()
assert euler.rollout(start, steps=500).energy[-1] < midpoint.rollout(start, steps=500).energy[-1] - 0.1
