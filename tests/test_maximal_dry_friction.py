"""Dry friction in maximal coordinates: closed forms, `ContactVI`, derivatives, optimization."""

import numpy as np
import pytest
from support.dry_friction import BACKENDS, MU, F, G, K, M, block, decay, oscillator

from vioc import ContactVI, Gravity, JointForce, Mass, MaximalVI, P, System, ry, tx, tz
from vioc.components import DryFriction, FloorFriction
from vioc.control import Cost, dmoc
from vioc.errors import ModelError


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_block_slides_as_far_as_coulomb_says(backend):
    """Half of a step's impulse acts at each of its ends: v falls evenly, and it stops within a step."""
    dt, v, way = 0.005, 2.0, 0.4
    f = block(dt, kind=MaximalVI, backend=backend)
    run = f.rollout(f.initial_state({}, {"x": v * np.cos(way), "y": v * np.sin(way)}), steps=150)
    far = np.hypot(run["x"], run["y"])
    assert far[-1] == pytest.approx(v**2 / (2 * MU * G), abs=MU * G * dt**2)
    assert far[50] == pytest.approx(v * run.t[50] - MU * G * run.t[50] ** 2 / 2, abs=1e-7)
    assert np.arctan2(run["y"][-1], run["x"][-1]) == pytest.approx(way, abs=1e-9)
    assert run["force.c0:x"][10] == pytest.approx(-MU * G / 4 * np.cos(way), rel=1e-6)
    assert run["slip.c0"][10] == pytest.approx(v - MU * G * run.t[10], rel=1e-6)
    assert run["grip.c0"][-1] == pytest.approx(MU * G / 4, rel=1e-6)  # nothing pulls at rest


def test_an_oscillator_sticks_where_contact_vi_has_it_stick():
    ends, built = [], oscillator(0.01, MaximalVI)
    for dt in (0.01, 0.005):
        run = (f := built.with_dt(dt)).rollout(f.initial_state({"x": 0.25}), steps=round(1.5 / dt))
        exact = np.array([decay(t, 0.25) for t in run.t])
        # each of 3 turns falls within a step, whose forces are of one sign
        assert np.abs(run["x"] - exact).max() < 3 * 0.5 * dt * F / M / np.sqrt(K / M)
        assert run["force.rub"][-1] == pytest.approx(K * run["x"][-1], abs=1e-4)
        assert run["friction.rub"].max() < F and run["grip.rub"].min() >= -1e-12
        ends.append(run["x"][-1])
    run = (f := oscillator(0.005)).rollout(f.initial_state({"x": 0.25}), steps=300)
    assert ends[1] == pytest.approx(run["x"][-1], abs=1e-3)


def two_links(kind, dt):
    """A pendulum whose elbow sticks, between two bodies that move."""
    mass = Mass.rod(1.0, 1.0, com=(0, 0, -0.5))
    links = ry("a", mass=mass)[tz(-1)[ry("b", mass=mass)]]
    rubs = DryFriction("a", 0.5), DryFriction("b", P("limit", 3.0), name="elbow")
    return kind(System(links, Gravity(0, 0, -G), rubs, JointForce("a", "t")), dt)


def test_joints_between_bodies_rub_as_in_contact_vi():
    apart, maps = [], [two_links(kind, 0.01) for kind in (MaximalVI, ContactVI)]
    for dt in (0.01, 0.0025):
        runs = []
        for f in (g.with_dt(dt) for g in maps):
            runs.append(f.rollout(f.initial_state({"a": 1.0, "b": 0.3}), steps=round(0.4 / dt)))
            assert np.abs(runs[-1]["b"] - 0.3).max() < 1e-5  # it sticks
        apart.append(np.abs(runs[0]["a"] - runs[1]["a"]).max())
        assert np.diff(runs[0].energy).max() < 1e-3
    assert apart[1] < apart[0] / 3  # both are of first order at least
    freed = maps[1].with_parameters(limit=0.01)
    assert np.ptp(freed.rollout(freed.initial_state({"a": 1.0, "b": 0.3}), steps=50)["b"]) > 0.1


def test_derivatives_are_those_of_the_step():
    f, random = block(0.01, kind=MaximalVI, smoothing=1e-4), np.random.default_rng(3)
    for _ in range(3):
        x = f.initial_state({"a": 0.3}, dict(zip("xya", random.standard_normal(3), strict=True)))
        u, e = random.standard_normal(2), 1e-5
        lin, steps = f.linearize(x, u), e * np.eye(f.ndx)
        other = [
            f.difference(f.step(f.retract(x, -d), u), f.step(f.retract(x, d), u)) / (2 * e) for d in steps
        ]
        assert np.abs(lin.A - np.transpose(other)).max() < 1e-6
        z = random.standard_normal(f.ndx)
        rows = [(f.linearize(x, u + d).B - f.linearize(x, u - d).B).T @ z / (2 * e) for d in e * np.eye(2)]
        assert np.abs(f.second_order(x, u, z).uu - rows).max() < 1e-5 * (1 + np.abs(rows).max())


@pytest.mark.parametrize("kind", [ContactVI, MaximalVI])
@pytest.mark.parametrize(
    "rub", [DryFriction("x", MU * G), FloorFriction("b", MU * G)], ids=["joint", "floor"]
)
def test_it_is_optimized(kind, rub):
    """A push along 0.5 m in 0.5 s against friction: replayed by the map's own steps."""
    body = tx("x", name="b", mass=Mass(1.0))
    f = kind(System(body, rub, JointForce("x", "f")), 0.025)
    end = {"x": 0.5, "v.x": (-0.01, 0.01)}
    best = dmoc.solve(f, Cost(f, f.symbols.u[0] ** 2), steps=20, initial=f.initial_state({}), final=end)
    assert best.converged and best.rollout().gap < 1e-6
    assert best.trajectory["x"][-1] == pytest.approx(0.5, abs=1e-8)
    assert best.trajectory["u.f"].max() > MU * G


def test_a_frame_that_does_not_move_is_refused():
    system = System(tx(0.5, name="fixed"), tx("x", name="b", mass=Mass(1.0)), FloorFriction("fixed", 1.0))
    with pytest.raises(ModelError, match="does not move"):
        MaximalVI(system, 0.01)
