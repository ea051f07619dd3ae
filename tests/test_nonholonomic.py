"""Constraints on velocities: closed forms, the momentum equation, derivatives, and what is refused."""

from __future__ import annotations

import casadi as ca
import numpy as np
import pytest
from support.disc import WOBBLE, euler

import vioc
from vioc import (
    Composition,
    Continuous,
    JointDamping,
    JointForce,
    K,
    Mass,
    MidpointVI,
    ModelError,
    ModeVI,
    RungeKutta,
    System,
    rx,
    ry,
    rz,
    tx,
    ty,
    tz,
)
from vioc.components import NonholonomicConstraint, Rolling, Skate, wheel
from vioc.control import controllability
from vioc.control.feedback import DelayedMap, tangent_basis
from vioc.maps import check_map

M, R, G = 1.0, 0.3, 9.81
ACROSS, AXIAL = M * R**2 / 4, M * R**2 / 2  # moments of a disc


def rolling_disc() -> System:
    body = ry("spin", name="disc", mass=(M, ACROSS, AXIAL, ACROSS))
    tree = tx("x")[ty("y")[rz("yaw")[rx("lean")[tz(R)[body]]]]]
    return System(tree, vioc.Gravity(0, 0, -G), wheel("disc", R, (0, 1, 0)), name="disc")


def arm_on_wheels() -> System:
    """A base on two wheels with an arm of seven joints."""
    links = tz(0.08, name="tool")
    for i, (axis, mass, length) in reversed(
        list(enumerate(zip("zyzyzyz", (3, 3, 2, 2, 1, 1, 0.5), (0.2,) * 7, strict=True)))
    ):
        links = {"z": rz, "y": ry}[axis](f"q{i + 1}", mass=(mass, 0.02, 0.02, 0.01))[tz(length)[links]]
    wheels = [
        ty(s * 0.25)[ry(n, name=n, mass=(1, 0.0025, 0.005, 0.0025))] for n, s in (("left", 1), ("right", -1))
    ]
    base = tx("x")[ty("y")[rz("yaw", name="base", mass=(20, 1, 1, 1))[(*wheels, tz(0.3)[links])]]]
    forward = ((0, 1, 0), (1, 0, 0), "base")
    rows = Skate("base", (0, 1, 0), "base"), *(Rolling(n, 0.1, *forward) for n in ("left", "right"))
    driven = ("left", "right", *(f"q{i}" for i in range(1, 8)))
    return System(
        base,
        vioc.Gravity(0, 0, -G),
        rows,
        [vioc.JointForce(n, f"u-{n}") for n in driven],
        name="arm on wheels",
    )


def slopes(errors):
    return np.log2(np.array(errors[:-1]) / errors[1:])


def test_a_leaning_disc_rolls_in_its_circle_with_order_two():
    """The steady motion: yaw rate and spin in balance with gravity; the point of contact goes in a circle."""
    lean, turn = 0.4, -2.0
    axial = (ACROSS * turn**2 * np.sin(lean) * np.cos(lean) - M * G * R * np.sin(lean)) / (
        (AXIAL + M * R**2) * turn * np.cos(lean)
    )
    spin = axial - turn * np.sin(lean)
    disc, errors = rolling_disc(), []
    rates = {"x": R * spin, "yaw": turn, "spin": spin}
    built = vioc.MidpointVI(disc, 0.02)
    for h in (0.02, 0.01, 0.005):
        f = built.with_dt(h)
        run = f.rollout(f.initial_state({"lean": lean}, rates), steps=round(2 / h))
        radius, t = R * spin / turn, run.t
        exact = {"x": radius * np.sin(turn * t), "y": radius * (1 - np.cos(turn * t)), "lean": lean + 0 * t}
        errors.append(max(np.abs(run[n] - v).max() for n, v in exact.items()))
    assert errors[-1] < 1e-3
    np.testing.assert_allclose(slopes(errors), 2, atol=0.1)


def test_the_momentum_equation_holds_step_by_step():
    f = vioc.MidpointVI(rolling_disc(), 0.01)
    v = vioc.project_velocity(f.system, {"lean": 0.3}, {"x": 3.0, "spin": 10.0, "yaw": 2.0})
    run = f.rollout(f.initial_state({"lean": 0.3}, v), steps=300)
    yaw, x, y = (run[n] for n in ("yaw", "x", "y"))
    px, py, spin, turn = (run[f"p.{n}"] for n in ("x", "y", "spin", "yaw"))
    J = R * (np.cos(yaw) * px + np.sin(yaw) * py) + spin  # rolls straight on
    turned = R * (np.diff(np.cos(yaw)) * px[1:] + np.diff(np.sin(yaw)) * py[1:])
    np.testing.assert_allclose(np.diff(J), turned, atol=1e-12)
    np.testing.assert_allclose(turn[1:] - np.diff(y) * px[1:] + np.diff(x) * py[1:], turn[:-1], atol=1e-12)
    assert np.ptp(J) > 0.01 and np.ptp(turn) > 0.001


def test_steps_keep_the_discrete_constraint_and_velocities_the_continuous_one():
    f = vioc.MidpointVI(arm_on_wheels(), 0.02)
    rng = np.random.default_rng(0)
    v = vioc.project_velocity(f.system, None, rng.normal(size=f.nq))
    run = f.rollout(f.initial_state(None, v), rng.normal(size=(20, f.nu)))
    A = f.lagrangian.constraint_jacobian
    middle, way = (run.x[:-1, :12] + run.x[1:, :12]) / 2, np.diff(run.x[:, :12], axis=0)
    slips = [A(q) @ d for q, d in zip(middle, way, strict=True)]
    assert np.abs(slips).max() < 1e-14
    assert max(np.abs(A(x[:12]) @ f.velocities(x)).max() for x in run.x) < 1e-12
    compiled = vioc.MidpointVI(f.system, 0.02, backend="auto").rollout(run.x[0], run.u)
    assert np.array_equal(compiled.x, run.x)
    for tight in (A(run.x[9, :12]),):  # what the impulse takes up, no step feels
        absorbed = np.concatenate([np.zeros((3, 12)), tight], axis=1)
        assert np.abs(f.linearize(run.x[9], run.u[9]).A @ absorbed.T).max() < 1e-9
        T = tangent_basis(f, run.x[9])
        assert T.shape == (24, 21) and np.abs(absorbed @ T).max() < 1e-9


@pytest.mark.parametrize("system", [rolling_disc(), arm_on_wheels()], ids=lambda s: s.name)
def test_derivatives(system):
    f = vioc.MidpointVI(system, 0.01)
    rng = np.random.default_rng(1)
    q = rng.uniform(-0.5, 0.5, f.nq)
    v = vioc.project_velocity(system, q, rng.normal(size=f.nq))
    x = f.rollout(f.initial_state(q, v), steps=3).x[-1]
    check_map(f, x, rng.normal(size=f.nu))


def random_skates(seed: int) -> System:
    """A random chain, prescribed joints and rods among it, with blades on some of its links."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(4, 8))
    tree = None
    for i in reversed(range(n)):
        kind = (tx, ty, tz)[i] if i < 3 else rng.choice([rx, ry, rz])
        name = K(f"q{i}") if rng.random() < 0.2 and i > 2 else f"q{i}"
        children = [tx(0.4)[tree]] if tree is not None else []
        tree = kind(name, name=f"link{i}", mass=(1.0, 0.2, 0.3, 0.4))[children]
    blades = [
        Skate(f"link{i}", tuple(rng.normal(size=3)), f"link{i}") for i in rng.choice(n, 2, replace=False)
    ]
    rods = (
        [vioc.DistanceConstraint(f"link{n - 1}", "world", vioc.P("rod", 1.0))] if rng.random() < 0.5 else []
    )
    return System(
        tree,
        blades,
        rods,
        vioc.Gravity(0, 0, -G),
        name=f"random {seed}",
    )


@pytest.mark.parametrize("seed", [0, 3, *(pytest.param(i, marks=pytest.mark.slow) for i in (1, 2, 4, 5))])
def test_random_chains_with_blades(seed):
    system = random_skates(seed)
    f = vioc.MidpointVI(system, 0.01)
    rng = np.random.default_rng(seed)
    guess = rng.uniform(-0.6, 0.6, f.nq)
    q = f.consistent_configuration(guess).q
    v = vioc.project_velocity(system, q, np.concatenate([rng.normal(size=f.nd), np.zeros(f.nk)]))
    x = f.initial_state(q, v)
    check_map(f, x, f.rest_input(x) + 1e-3)
    run, peer = (m.rollout(m.initial_state(q, v), steps=20) for m in (f, RungeKutta(system, 0.01)))
    assert np.abs(run.x[-1, : f.nq] - peer.x[-1, : f.nq]).max() < 5e-3
    halved = vioc.MidpointVI(system, 0.005)
    fine = halved.rollout(halved.initial_state(q, v), steps=40)
    far, near = (np.abs(r.x[-1, : f.nq] - peer.x[-1, : f.nq]).max() for r in (run, fine))
    assert near < 0.35 * far


def _turntable(k):
    return -ca.sin(k.q("turn")) * k.v("x") + ca.cos(k.q("turn")) * k.v("y")


def test_a_function_of_the_users_own_is_the_skate():
    tree = tx("x")[ty("y")[rz("turn", name="body", mass=(1, 1, 1, 1))]]
    start = {"turn": 0.3}, {"x": np.cos(0.3), "y": np.sin(0.3), "turn": 1.0}
    runs = [
        (f := vioc.MidpointVI(System(tree, row), 0.01)).rollout(f.initial_state(*start), steps=100)
        for row in (NonholonomicConstraint(_turntable), Skate("body", (0, 1, 0), "body"))
    ]
    np.testing.assert_allclose(runs[0].x, runs[1].x, atol=1e-13)
    t = runs[0].t
    np.testing.assert_allclose(runs[0]["turn"], 0.3 + t, atol=1e-12)  # at a constant speed in a circle
    np.testing.assert_allclose(runs[0]["x"], np.sin(0.3 + t) - np.sin(0.3), atol=1e-4)
    a, _ = Continuous(f.system).forward(*start)
    np.testing.assert_allclose(a, [-np.sin(0.3), np.cos(0.3), 0.0], atol=1e-12)


def test_what_is_not_linear_in_the_rates_is_refused():
    tree = tx("x")[ty("y", mass=1)]

    def square(k):
        return k.v("x") ** 2

    def driven(k):
        return k.v("x") - 1.0

    for bad, words in ((square, "other than linearly"), (driven, "is -1 at rest")):
        with pytest.raises(ModelError, match=words):
            vioc.MidpointVI(System(tree, NonholonomicConstraint(bad)), 0.01)


def test_maps_without_them_refuse_them_by_name():
    system = System(tx("x")[ty("y", name="body", mass=1)], Skate("body", (0, 1, 0), name="blade"))
    for kind in (vioc.LinearTimeVI, vioc.MaximalVI, vioc.ContactVI):
        with pytest.raises(ModelError, match="no constraints on velocities, got blade; use MidpointVI"):
            kind(system, 0.01)
    f = vioc.MidpointVI(system, 0.01)
    assert "h.blade" not in f.quantities.names() and "force.blade" in f.quantities.names()
    with pytest.raises(vioc.errors.ConstraintError, match="blade"):
        f.initial_state(None, {"y": 1.0})


def test_modes_of_contact_have_them_beside_what_holds():
    body = tx("x")[ty("y")[tz("z")[rz("turn", name="body", mass=(1, 1, 1, 1))]]]
    system = System(
        body, vioc.Gravity(0, 0, -G), Skate("body", (0, 1, 0), "body"), vioc.Contact("body", (0, 0, 1))
    )
    f = ModeVI(system, 0.01, sliding=("contact-1",))
    x = f.initial_state(None, {"x": 1.0, "turn": 1.0})
    run = f.rollout(x, steps=100)
    assert np.abs(run["z"]).max() < 1e-13
    np.testing.assert_allclose(run["x"], np.sin(run.t), atol=1e-4)
    check_map(f, run.x[50])


@pytest.mark.slow
def test_a_composition_has_order_four():
    disc, exact, errors = rolling_disc(), euler(0.3, WOBBLE, 2.0), []
    v = vioc.project_velocity(disc, {"lean": 0.3}, WOBBLE)
    built = Composition(vioc.MidpointVI(disc, 0.04), 4)
    for h in (0.04, 0.02):
        f = built.with_dt(h)
        run = f.rollout(f.initial_state({"lean": 0.3}, v), steps=round(2 / h))
        names = ("lean", "v.lean", "v.yaw", "v.spin")
        errors.append(max(abs(run[n][-1] - e) for n, e in zip(names, exact, strict=True)))
    assert slopes(errors)[0] == pytest.approx(4, abs=0.2)


def test_manifolds_of_constraints_on_velocities_are_known_or_the_state_is_taken_whole():
    """A skate: three places, and the speeds along it and about it; five directions."""
    blade = tx("x")[ty("y")[rz("th", name="blade", mass=Mass(2.0, (0.3, 0.3, 0.3)))]]
    parts = JointForce("th", "tau"), JointForce("x", "fx"), Skate("blade", (0, 1, 0), "blade", name="knife")
    system = System(blade, *parts, JointDamping("x", 1.0), JointDamping("th", 1.0))
    f = MidpointVI(system, 0.05)
    assert tangent_basis(f, f.initial_state()).shape == (6, 5)
    late = DelayedMap(f)
    assert tangent_basis(late, late.initial_state()).shape == (8, 7)
    for g in (Composition(f), RungeKutta(system, 0.05)):
        x = g.initial_state()
        with pytest.raises(ValueError, match="no one constraint manifold"):
            tangent_basis(g, x)
        x = g.initial_state({"th": 0.3}, {"x": np.cos(0.3), "y": np.sin(0.3), "th": 0.2})
        run = g.rollout(x, np.tile([0.1, 0.3], (30, 1)))
        assert (
            str(controllability(g, run)).splitlines()[0]
            == str(controllability(g, run, manifold=False)).splitlines()[0]
        )
