"""
Two integrators of your own
===========================

The Störmer-Verlet rule for open trees is one CasADi expression. It is implicit where the mass matrix depends
on q, so the expression contains six Newton iterations. The implicit Euler rule has a solver of its own: its
kernel makes six Newton iterations, and SciPy solves the steps that need more. `check_map` compares the
derivatives of both maps with differences.
"""

import casadi as ca
import matplotlib.pyplot as plt
import numpy as np
from scipy.optimize import root

import vioc
from vioc import MechanicalMap
from vioc.errors import StepError
from vioc.maps import ExplicitMap, KernelPrograms, MapDerivatives, check_map, own, shared
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


class StormerVerlet(ExplicitMap, MechanicalMap):
    """The Störmer-Verlet rule of a system without constraints and prescribed motions.

    p_half = p_k + dt/2 (L_q + F)(q_k, v),        v = M(q_k)^-1 p_half
    q_k+1  = q_k + dt/2 (v + w),                  w = M(q_k+1)^-1 p_half
    p_k+1  = p_half + dt/2 (L_q + F)(q_k+1, w)
    """

    symmetric = True

    def __init__(self, system, dt, *, wrap=(), tolerance=1e-9, backend="virtual"):
        super().__init__(system, dt, wrap, tolerance, backend)
        if self.nk or self.nm:
            raise vioc.ModelError(f"{system.name}: StormerVerlet has no constraints, nor prescribed motions")

    @shared
    def explicit(self):
        x, u, lam, theta, dt = self.symbols
        t, n, lag = ca.SX.sym("t"), self.nq, self.lagrangian
        terms = lag.function("terms", [lag.M, lag.L_q + lag.F])
        q, p = x[:n], x[n:]

        def first(v):
            mass, force = terms(q, v, u, t, theta)
            return mass @ v - p - dt / 2 * force

        v, left = newton(first, ca.solve(terms(q, ca.SX.zeros(n), u, t, theta)[0], p))
        half = terms(q, v, u, t, theta)[0] @ v

        def second(w):
            there = q + dt / 2 * (v + w)
            return terms(there, w, u, t + dt, theta)[0] @ w - half

        w, off = newton(second, v)
        q_next = q + dt / 2 * (v + w)
        p_next = half + dt / 2 * terms(q_next, w, u, t + dt, theta)[1]
        error = ca.norm_2(ca.vertcat(left, off))
        return ca.Function(
            "step", [x, u, t, dt, theta], [ca.vertcat(q_next, p_next), lam, error], {"cse": True}
        )


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
# `shared` marks what a map and its copies share, `own` what each copy builds anew.

cart_pole = vioc.models.load("cart_pole")
verlet = StormerVerlet(cart_pole, 0.02, wrap=("theta",))
euler = ImplicitEuler(cart_pole, 0.02, ("theta",), 1e-9)
start = verlet.initial_state({"theta": 0.4, "x": 0.1}, {"x": 0.2, "theta": -0.3})
for f in (verlet, euler):
    check_map(f, start, [0.3], pickles=False)

# %%
# The Störmer-Verlet rule keeps the energy in a band; the implicit Euler rule loses energy.

axes = plt.figure(figsize=(6, 3.5), layout="constrained").add_subplot()
lost = []
for name, f in (("Störmer-Verlet", verlet), ("implicit Euler", euler)):
    run = f.rollout(start, steps=500)
    axes.plot(run.t, run.energy, label=name)
    lost.append(run.energy[0] - run.energy[-1])
    print(f"{name}: energy changes by {-lost[-1]:.3f} J")
axes.set(xlabel="t (s)", ylabel="energy (J)")
axes.legend()
assert abs(lost[0]) < 0.05 < 1 < lost[1]
