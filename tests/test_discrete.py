"""A user's own discrete Lagrangian: steps, derivatives, constraints, order, control, and what is refused."""

import casadi as ca
import numpy as np
import pytest

import vioc
from vioc import DiscreteLagrangianVI
from vioc.control import dlqr, equilibrium
from vioc.maps import check_map


def midpoint(s):
    return s.dt * s.L((s.q0 + s.q1) / 2, (s.q1 - s.q0) / s.dt)


def trapezoid(s):
    """L and forces at both ends."""
    v, half = (s.q1 - s.q0) / s.dt, s.dt / 2
    L_d = half * (s.L(s.q0, v) + s.L(s.q1, v))
    return L_d, half * s.F(s.q0, v, s.t), half * s.F(s.q1, v, s.t + s.dt)


def cart():
    rod = vioc.Mass(vioc.P("m", 0.5), (0.01, 0.01, 1e-2), (0.0, 0.0, -0.2))
    return vioc.System(
        vioc.tx("x", mass=1.0)[vioc.ry("first", mass=rod)[vioc.tz(-0.4)[vioc.ry("second", mass=rod)]]],
        vioc.Gravity(0, 0, -9.81),
        vioc.JointDamping("first", 0.05),
        vioc.JointForce("x", "force"),
        name="cart",
    )


def held():
    """A pendulum of a rod on a trolley whose place is an input."""
    return vioc.System(
        vioc.tx(vioc.K("pivot"), name="post"),
        vioc.tx("x")[vioc.tz("z", name="bob", mass=1.5)],
        vioc.Gravity(0, 0, -9.81),
        vioc.DistanceConstraint("post", "bob", 0.5),
        vioc.JointDamping("x", 0.3),
        vioc.JointForce("x", "push"),
    )


@pytest.mark.parametrize("make", [cart, held])
def test_that_of_the_midpoint_rule_gives_it_with_all_derivatives(make):
    rng = np.random.default_rng(1)
    mine, theirs = DiscreteLagrangianVI(make(), 0.02, midpoint), vioc.MidpointVI(make(), 0.02)
    start = {"x": 0.3, "z": -0.4} if make is held else {"first": 1.0, "second": -0.4}
    x0, U = theirs.initial_state(start), 0.01 * rng.standard_normal((20, theirs.nu))
    runs = [f.rollout(x0, U) for f in (mine, theirs)]
    assert runs[0].x == pytest.approx(runs[1].x, abs=1e-11)
    assert runs[0].multipliers == pytest.approx(runs[1].multipliers, abs=1e-9)
    x, u = runs[1].x[7], U[7]
    for ours, other in zip(
        mine.linearize(x, u).blocks.values(), theirs.linearize(x, u).blocks.values(), strict=True
    ):
        assert ours == pytest.approx(other, abs=1e-9)
    z, zeta = rng.standard_normal(mine.nx), rng.standard_normal(mine.nm)
    H = [f.second_order(x, u, z, zeta=zeta).matrix for f in (mine, theirs)]
    assert H[0] == pytest.approx(H[1], abs=1e-9 * np.abs(H[1]).max())


def test_trapezoid_has_order_two_and_passes_the_suite():
    system = cart()
    f = DiscreteLagrangianVI(system, 0.01, trapezoid)
    check_map(f)
    q0, u, time = np.array([0.1, 1.0, -0.5]), np.array([0.7]), 0.5
    truth = vioc.reference_solution(system, q0, None, [0.0, time], u).q[-1]
    steps, errors = [25, 50, 100], []
    for n in steps:
        run = f.rollout(f.initial_state(q0), np.tile(u, (n, 1)), dt=time / n)
        errors.append(np.abs(run.x[-1, :3] - truth).max())
    assert -np.polyfit(np.log(steps), np.log(errors), 1)[0] == pytest.approx(2, abs=0.2), errors
    assert np.abs(dlqr(f, equilibrium(f, first=np.pi, second=0.0, x=0.0), 1.0, 1.0).poles).max() < 1


def test_constraints_hold_and_momentum_is_kept():
    f = DiscreteLagrangianVI(held(), 0.02, trapezoid)
    run = f.rollout(f.initial_state({"x": 0.3, "z": -0.4}), np.zeros((50, 2)))
    assert np.abs(np.hypot(run["x"] - run["pivot"], run["z"]) - 0.5).max() <= 1e-12
    rod = vioc.Mass(1.0, (0.1, 0.1, 0.01), (0.0, 0.0, -0.5))
    free = vioc.System(vioc.tx("x", mass=1.0)[vioc.ry("a", mass=rod)[vioc.tz(-1.0)[vioc.ry("b", mass=rod)]]])
    f = DiscreteLagrangianVI(free, 0.02, trapezoid)
    p = f.rollout(f.initial_state({"b": 1.0}, {"x": 0.5, "a": 2.0}), steps=200)["p.x"]
    assert np.ptp(p) <= 1e-13 * np.abs(p).max()


def test_what_is_no_discrete_lagrangian_is_refused():
    with pytest.raises(vioc.ModelError, match="shapes"):
        DiscreteLagrangianVI(cart(), 0.01, lambda s: s.q1)
    with pytest.raises(vioc.ModelError, match="is a force"):
        DiscreteLagrangianVI(cart(), 0.01, lambda s: midpoint(s) + s.u[0] * ca.sum1(s.q0))
