"""What a step is made of, each part against a derivation of its own.

A step that is solved has the same answer whatever its solver did, and a start that is slightly wrong is
still a start: the parts must be looked at one by one.
"""

from dataclasses import replace

import casadi as ca
import numpy as np
import pytest
from support.control_maps import double_integrator
from support.mechanisms import everything, hold, pendulum, state_near

import vioc
from vioc import CasadiMap

# inside: equations are made by hand for the solver beneath a step, without a mechanism
from vioc.dynamics.integrators import newton
from vioc.maps.twins import own, shared

EPS = np.finfo(float).eps


@pytest.fixture(scope="module")
def f():
    return vioc.MidpointVI(everything(), 0.02)


@pytest.fixture(scope="module")
def moving(f):
    """A state with rates of kinematic variables, and an input that goes on with them."""
    x = state_near(f, 3)
    u = hold(f, x)
    u[-2] += 0.3 * f.dt  # the trolley; the string is the last one
    return f.step(x, u), u + np.eye(f.nu)[-2] * 0.3 * f.dt


# -- Newton's matrix ------------------------------------------------------------------------------


def slope_of_balance(f, x, u, z, t, dt):
    """Of the momentum balance by the next dynamic configuration, from the residual in public, by AD."""
    g = f.residual
    x1 = ca.SX.sym("x1", f.nx)
    rest = ca.SX.sym("lam", f.nm), ca.SX.sym("t"), ca.SX.sym("dt"), ca.SX.sym("theta", len(f.parameters))
    rows = g(ca.DM(x), ca.DM(u), x1, *rest)[: f.nd]
    J = ca.Function("J", [x1, *rest], [ca.jacobian(rows, x1)[:, : f.nd]])
    given = np.concatenate([z, u[f.nu - f.nk :], np.zeros(f.nx - f.nq)])
    return J(given, np.zeros(f.nm), t, dt, list(f.parameters.values())).full()


@pytest.mark.parametrize(
    "options", [{}, {"alpha": 0.3}, {"forcing": "left"}, {"alpha": 0.7, "forcing": "left"}]
)
def test_newtons_matrix_is_the_slope_of_the_balance(options):
    """A wrong one would still lead to the root, by more iterations, or not at all."""
    system = everything().with_components(vioc.JointDamping("b", 5.0), vioc.JointDamping("c", 2.0))
    f = vioc.MidpointVI(system, 0.05, **options)
    x = state_near(f, 3)
    u, z = hold(f, x), x[: f.nd] + 0.05 * np.arange(1, f.nd + 1)
    D = f.rule.blocks(x, u, 0.3, f.dt, f.theta, z).D
    expected = slope_of_balance(f, x, u, z, 0.3, f.dt)
    np.testing.assert_allclose(D, expected, rtol=0, atol=1e-12 * np.abs(expected).max())


@pytest.mark.parametrize("options", [{}, {"alpha": 0.3}, {"forcing": "left"}])
def test_what_terms_add_to_newtons_matrix(options):
    """Springs and dampers are what a system has beyond one with the same bodies and gravity alone."""
    bare = vioc.models.load("n_link_pendulum", 3)
    system = bare.with_components(vioc.JointDamping("link-1", 3.0), vioc.TorsionalSpring("link-2", 7.0))
    f, g = (vioc.MidpointVI(s, 0.05, **options) for s in (system, bare))
    x, z = f.initial_state({"link-0": 0.4}), np.array([0.5, -0.1, 0.2])
    whole, part = (slope_of_balance(m, x, np.zeros(0), z, 0.0, m.dt) for m in (f, g))
    dt = ca.SX.sym("dt")
    graph = f.lagrangian.graph
    args = [graph.q_vector, graph.v_vector, graph.u_vector, graph.t, graph.parameters, dt]
    added = ca.Function("added", args, [f.rule.of_terms(dt)])(0, 0, [], 0, [], f.dt).full()
    np.testing.assert_allclose(added, whole - part, rtol=0, atol=1e-12 * np.abs(whole).max())


def test_sweeps_are_for_terms_that_couple_nothing_and_for_long_chains():
    spring = vioc.LinearSpring("world", "link-15", 10.0)
    long = vioc.models.load("n_link_pendulum", 16)
    chosen = [vioc.MidpointVI(s, 0.01)._articulated for s in (long, long.with_components(spring), pendulum())]
    assert chosen == [True, False, False]


# -- starts -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("forcing", ["symmetric", "left"])
def test_a_mass_under_a_constant_force_falls_exactly(forcing):
    """Both rules are exact then, if the start holds the half impulse that belongs to them."""
    system = vioc.System(vioc.tx("x", mass=2.0), vioc.JointForce("x", "push"))
    f = vioc.MidpointVI(system, 0.1, forcing=forcing)
    run = f.rollout(f.initial_state({"x": 0.5}, {"x": -1.0}, [3.0]), np.full((20, 1), 3.0))
    np.testing.assert_allclose(run["x"], 0.5 - run.t + 0.75 * run.t**2, rtol=0, atol=1e-13)


def test_momenta_and_velocities_are_each_others_inverse(f, moving):
    """With rates of kinematic variables, which move bodies and pull at constraints."""
    x, _ = moving
    q, rates = x[: f.nq], x[f.nq + f.nd :]
    assert np.abs(rates).max() > 0.1
    mass, Dh = f.lagrangian.mass_matrix(q), f.lagrangian.constraint_jacobian(q)
    v = np.concatenate([f._velocity(x, f.theta)[0][:, 0], rates])
    assert np.abs(Dh @ v).max() < 1e-12
    # what is left of the momentum pulls along the constraints alone
    left = x[f.nq : f.nq + f.nd] - (mass @ v)[: f.nd]
    pull = np.linalg.lstsq(Dh[:, : f.nd].T, left, rcond=None)[0]
    assert np.abs(Dh[:, : f.nd].T @ pull - left).max() < 1e-12
    again = f.initial_state(q, v)
    np.testing.assert_allclose(f._velocity(again, f.theta)[0][:, 0], v[: f.nd], rtol=0, atol=1e-12)


def test_two_configurations_feel_the_force_at_their_sample():
    """A force 4 t on a free mass: the impulse of the step from k is that at (k + alpha) dt."""
    force = vioc.UserForce(lambda g: {"x": 4 * g.t})
    system = vioc.System(vioc.tx("x", mass=1.0), force)
    for alpha in (0.5, 0.3):
        f = vioc.MidpointVI(system, 0.1, alpha=alpha)
        x = f.state_from_configurations([0.2], [0.3], k=7)
        assert x[1] == pytest.approx(1.0 + 0.05 * 4 * (7 + alpha) * 0.1, rel=1e-12)


# -- energies ---------------------------------------------------------------------------------------


def test_energies_of_gravity_and_springs_by_hand():
    system = vioc.System(
        vioc.tz("z", name="bob", mass=2.0),
        vioc.Gravity(0, 0, -10.0),
        vioc.TorsionalSpring("z", 30.0, 0.1),
    )
    lag, f = vioc.Lagrangian(system), vioc.MidpointVI(system, 0.01)
    kinetic, potential = 9.0, 2 * 10 * 0.5 + 0.5 * 30 * 0.4**2
    assert lag.kinetic_energy([0.5], [3.0]) == pytest.approx(kinetic, rel=1e-14)
    assert lag.potential_energy([0.5]) == pytest.approx(potential, rel=1e-14)
    assert lag.lagrangian([0.5], [3.0]) == pytest.approx(kinetic - potential, rel=1e-14)
    run = f.rollout(f.initial_state([0.5], [3.0]), steps=1)
    assert run["kinetic"][0] == pytest.approx(kinetic, rel=1e-14)
    assert run["potential"][0] == pytest.approx(potential, rel=1e-14)
    assert run.energy[0] == pytest.approx(kinetic + potential, rel=1e-14)


# -- the globalized solver ----------------------------------------------------------------------------


def scalar(function, slope):
    """Equations of one variable without constraints, and how often they were looked at."""
    looks = []

    def equations(z):
        looks.append(float(z[0]))
        D = np.array([[slope(z[0])]])
        return newton.Linearized(np.array([function(z[0])]), D, np.abs(D[0]) * (1 + np.abs(z)))

    return equations, looks


def test_the_globalized_step_carries_rates_of_kinematic_variables_on(f, moving):
    x, u = moving
    x1, lam = f.step_solver.rescued(x, u, 0, 0.0, f.dt)
    run = f.rollout(x, [u])
    np.testing.assert_allclose(x1, run.x[1], rtol=0, atol=1e-9)
    np.testing.assert_allclose(lam, run.multipliers[0], rtol=0, atol=1e-9)
    assert x1[-2] == pytest.approx(0.3, rel=1e-9)  # of the trolley


# -- steps one by one -----------------------------------------------------------------------------------


class Stubborn(CasadiMap):
    """A double integrator whose kernel solves no step from v > 0.2; its rescue does, slowly."""

    tolerance = 1e-6

    @shared
    def calls(self):
        return []

    @shared
    def explicit(self):
        x, u, _, theta, dt = self.symbols
        t = ca.SX.sym("t")
        after = ca.vertcat(x[0] + dt * x[1], x[1] + dt * u)
        error = ca.if_else(x[1] > 0.2, 1.0, 0.0)
        return ca.Function("step", [x, u, t, dt, theta], [after, ca.SX(0, 1), error])

    @own
    def step_solver(self):
        return replace(super().step_solver, rescued=self.slowly)

    def slowly(self, x, u, k, t, dt):
        self.calls.append(k)
        return np.array([x[0] + dt * x[1], x[1] + dt * u[0]]), np.zeros(0)


def test_steps_one_by_one_have_the_feedback_and_the_length_of_the_others():
    plain = double_integrator()
    f = Stubborn(plain.function, 0.1, state_names=("x", "v"), input_names=("force",))
    n, random = 12, np.random.default_rng(0)
    lengths, U = random.uniform(0.05, 0.2, n), random.normal(size=(n, 1))
    X, K = random.normal(size=(n, 2)), random.normal(size=(n, 1, 2))
    run = f.track([0.0, 0.1], X, U, K, dt=lengths)
    assert 2 <= len(f.calls) < n
    x, u = np.array([0.0, 0.1]), None
    for k in range(n):
        u = U[k] - K[k] @ (x - X[k])
        np.testing.assert_allclose(run.u[k], u, rtol=0, atol=1e-12)
        x = np.array([x[0] + lengths[k] * x[1], x[1] + lengths[k] * u[0]])
        np.testing.assert_allclose(run.x[k + 1], x, rtol=0, atol=1e-12)
