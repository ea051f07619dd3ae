"""Galerkin integrators with holonomic constraints: orders, what they keep, derivatives, and control."""

import numpy as np
import pytest
from scipy.integrate import solve_ivp

import vioc
from vioc.control import controllability_gramian, dlqr, equilibrium, optimize, quadratic
from vioc.maps import check_map

STAGES = (2, 3, 4)
LENGTH, DRAG, SPEED, MASS = 0.5, 0.3, 0.4, 1.5


def carried(dt, **options):
    """A point mass in a plane on a rod from a pivot whose place is an input; damped, pushed along x."""
    system = vioc.System(
        vioc.tx(vioc.K("pivot"), name="post"),
        vioc.tx("x")[vioc.tz("z", name="bob", mass=vioc.P("m", MASS))],
        vioc.Gravity(0, 0, -9.81),
        vioc.DistanceConstraint("post", "bob", LENGTH),
        vioc.JointDamping("x", DRAG),
        vioc.JointDamping("z", DRAG),
        vioc.JointForce("x", "push"),
        name="carried",
    )
    return vioc.GalerkinVI(system, dt, points="lobatto", **options)


def four_bar(dt, damping=0.1, **options):
    """A driven, damped four-bar: a loop of turning links."""
    bar = vioc.Mass(1.0, (0.01, 0.01, 1e-3), (0.0, 0.0, -0.3))
    system = vioc.System(
        vioc.ry("a", mass=bar)[vioc.tz(-0.6)[vioc.ry("b", mass=bar)[vioc.tz(-0.7, name="end")]]],
        vioc.tx(0.8)[vioc.ry("c", mass=bar)[vioc.tz(-0.6, name="other")]],
        vioc.Gravity(0, 0, -9.81),
        vioc.PointConstraint("end", "other", (1, 0, 0)),
        vioc.PointConstraint("end", "other", (0, 0, 1)),
        vioc.JointDamping("b", damping),
        vioc.JointForce("a", "torque"),
        name="four-bar",
    )
    return vioc.GalerkinVI(system, dt, points="lobatto", **options)


def start(f, **at):
    """A state on the constraints, at rest."""
    return f.initial_state(f.consistent_configuration(at or {"a": 0.4, "b": -1.2, "c": 0.4}))


@pytest.mark.parametrize("s", STAGES)
def test_order_with_forcing_damping_and_a_moving_pivot_against_scipy(s):
    """theta'' of the pendulum by hand, in the axes of a pivot that moves evenly; q and p at the end."""
    time, theta0, push = 0.8, 1.0, 2.0

    def rate(_, y):
        theta, w = y
        along = push * np.cos(theta) - MASS * 9.81 * np.sin(theta)
        return [w, (along - DRAG * (LENGTH * w + SPEED * np.cos(theta))) / (MASS * LENGTH)]

    theta, w = solve_ivp(rate, (0, time), [theta0, 0.0], method="DOP853", rtol=1e-13, atol=1e-13).y[:, -1]
    away = SPEED * time
    q = np.array([away + LENGTH * np.sin(theta), -LENGTH * np.cos(theta)])
    p = MASS * np.array([SPEED + LENGTH * w * np.cos(theta), LENGTH * w * np.sin(theta)])
    steps = {2: [40, 80, 160], 3: [16, 24, 32], 4: [10, 14, 20]}[s]
    errors = []
    for n in steps:
        f = carried(time / n, stages=s)
        x0 = np.array([LENGTH * np.sin(theta0), -LENGTH * np.cos(theta0), 0.0, MASS * SPEED, 0.0, SPEED])
        rho = SPEED * time * np.arange(1, n + 1) / n
        run = f.rollout(x0, np.stack([np.full(n, push), rho], axis=1))
        errors.append([np.abs(run.x[-1, :2] - q).max(), np.abs(run.x[-1, 3:5] - p).max()])
    slopes = -np.polyfit(np.log(steps), np.log(errors), 1)[0]
    assert slopes == pytest.approx(f.order, abs=0.2), errors
    assert np.min(errors) > 1e-12


@pytest.mark.parametrize("s", STAGES)
def test_constraints_and_their_rates_hold_at_every_sample(s):
    f = four_bar(0.02, stages=s)
    run = f.rollout(start(f), np.sin(np.arange(100))[:, None])
    for x in run.x:
        h, Dh = (np.array(e) for e in f.constraint(x[: f.nq], []))
        M = f.lagrangian.mass_matrix(x[: f.nq])
        assert np.abs(h).max() <= 1e-13
        # p is of a velocity along the constraints, not one of many that are projected to it
        assert np.abs(Dh @ np.linalg.solve(M, x[f.nq :])).max() <= 1e-12


@pytest.mark.parametrize("s", STAGES)
def test_a_step_is_symplectic_along_the_constraints_and_undoes_itself(s):
    f = four_bar(0.03, damping=0.0, stages=s)
    run = f.rollout(start(f), steps=6)
    tangent = np.linalg.svd(f.linearize(run.x[4]).A)[0][:, : 2 * (f.nd - f.nm)]  # at x_5: what steps lead to
    after, J = f.linearize(run.x[5]).A @ tangent, np.kron([[0, 1], [-1, 0]], np.eye(f.nd))
    assert np.abs(after.T @ J @ after - tangent.T @ J @ tangent).max() <= 1e-11
    turn = np.repeat([1, -1], f.nd)
    assert f.step(run.x[6] * turn) * turn == pytest.approx(run.x[5], abs=1e-11)


def test_energy_stays_in_a_band():
    f = four_bar(0.03, damping=0.0, stages=3)
    energy = f.rollout(start(f), steps=3000).energy
    off = np.abs(energy - energy[0])
    assert off.max() <= 1e-3
    assert off[-600:].max() <= 1.5 * off[:600].max() + 1e-12


@pytest.mark.parametrize("make", [carried, four_bar])
@pytest.mark.parametrize("s", STAGES)
def test_derivatives_are_those_of_the_steps(make, s):
    rng = np.random.default_rng(s)
    f = make(0.03, stages=s)
    x = start(f, x=0.3, z=-0.4) if make is carried else start(f)
    x = f.rollout(x, 0.1 * rng.standard_normal((5, f.nu))).x[-1]
    u, e = 0.1 * rng.standard_normal(f.nu), 1e-4

    def along(g, d):
        """Central differences of sixth order."""
        weights = ((45, 1), (-9, 2), (1, 3))
        return sum(w * (g(k * e * d) - g(-k * e * d)) for w, k in weights) / (60 * e)

    def step(d, f=f):
        found = f.steps_at((x + d[: f.nx])[None], (u + d[f.nx :])[None])
        return np.concatenate([found.x1[0], found.multipliers[0]])

    n, z, zeta = f.nx + f.nu, rng.standard_normal(f.nx), rng.standard_normal(f.nm)
    lin = f.linearize(x, u)
    exact = np.block([[lin.A, lin.B], [lin.C, lin.D]])
    assert (
        np.abs(exact - np.stack([along(step, d) for d in np.eye(n)], axis=1)).max()
        <= 1e-8 * np.abs(exact).max()
    )

    def slope(d):
        found = f.linearize(x + d[: f.nx], u + d[f.nx :])
        return z @ np.hstack([found.A, found.B]) + zeta @ np.hstack([found.C, found.D])

    H = f.second_order(x, u, z, zeta=zeta).matrix[:n, :n]
    assert np.abs(H - np.stack([along(slope, d) for d in np.eye(n)])).max() <= 1e-7 * np.abs(H).max()
    for name in f.parameters:
        moved = along(lambda d, n=name: f.with_parameters(**{n: f.parameters[n] + d}).step(x, u), 1.0)
        assert np.abs(lin.P[:, 0] - moved).max() <= 1e-8


def test_the_protocol_and_control():
    f = four_bar(0.03, stages=3)
    x0 = start(f)
    check_map(f, x0)
    x, u, k = x0, np.zeros(1), 0
    by_newton = f.step_solver.rescued(x, u, k, 0.0, f.dt)
    assert by_newton[0] == pytest.approx(f.step(x, u), abs=1e-11)
    assert by_newton[1] == pytest.approx(f.rollout(x, u[None]).multipliers[0], abs=1e-10)
    rest = equilibrium(f, a=0.4, guess=x0)
    law = dlqr(f, rest, 1.0, 1.0)
    assert np.abs(law.poles).max() < 1
    lin = f.linearize(rest.x, rest.u)
    sizes = np.linalg.eigvalsh(controllability_gramian(lin.A, lin.B, 100))
    assert (sizes > 1e-9 * sizes[-1]).sum() == 2 * (f.nd - f.nm)  # what constraints leave, and no more
    cost = quadratic(f, Q=0.1, R=0.1, Qf=10.0, reference=rest.x)
    assert optimize(f, cost, x0=x0, steps=20).converged


def test_multipliers_are_the_impulses_of_the_constraints():
    """A pendulum at rest under its pivot: tension is its weight."""
    f = carried(0.05, stages=3)
    run = f.rollout(f.initial_state({"z": -LENGTH}), np.zeros((3, 2)))
    assert run[f"tension.{f.multiplier_names[0]}"][1] == pytest.approx(MASS * 9.81, rel=1e-10)


def test_gauss_points_do_not_keep_constraints():
    with pytest.raises(vioc.ModelError, match="lobatto"):
        vioc.GalerkinVI(four_bar(0.02).system, 0.02)


def loaded_rail() -> vioc.System:
    """A cart of 2 kg held at its height by a constraint that alone carries weight and load."""
    cart = vioc.tx("x")[vioc.tz("z", mass=vioc.Mass(2.0, (0.1,) * 3))]
    load = vioc.UserForce(lambda k: {"z": -k.u("load")}, ("load",))
    rail = vioc.UserConstraint(lambda k: k.q("z"), (), name="rail")
    return vioc.System(cart, vioc.Gravity(0, 0, -9.81), load, rail)


@pytest.mark.parametrize("stages", [2, 3, 4])
def test_forces_of_constraints_follow_a_load_at_once(stages):
    """Velocities are right at the first guess then, multipliers are not."""
    f = vioc.GalerkinVI(loaded_rail(), 0.01, stages=stages, points="lobatto")
    load = np.array([0.0, 0, 10, 10, 0, 50, 50])
    for v in (0.0, 1.0):
        run = f.rollout(f.initial_state({}, {"x": v}), load[:, None])
        assert run["force.rail"] == pytest.approx(19.62 + load, abs=1e-9)
