"""Coulomb friction of a given load: closed forms, energy, derivatives, optimization, who refuses it."""

from functools import cache

import casadi as ca
import numpy as np
import pytest
from support.dry_friction import BACKENDS, MU, SIDE, F, G, K, M, block, decay, oscillator

from vioc import (
    Contact,
    ContactVI,
    Gravity,
    Mass,
    MaximalVI,
    MidpointVI,
    ModeVI,
    P,
    System,
    read_text,
    ry,
    rz,
    tx,
    ty,
    tz,
    write_text,
)
from vioc.compile import find_compiler
from vioc.components import DryFriction, FloorFriction
from vioc.control import Cost, dmoc
from vioc.errors import ModelError

block, oscillator = cache(block), cache(oscillator)  # maps do not change: each is built once


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_oscillator_loses_2_f_over_k_a_half_wave_and_sticks(backend):
    dt = 0.005 if backend == "virtual" else 0.0025
    end = -round(0.475 / dt)
    run = (f := oscillator(dt, backend=backend)).rollout(f.initial_state({"x": 0.5}), steps=round(3 / dt))
    exact = [decay(t, 0.5) for t in run.t]
    # the whole impulse of a step acts at its start: half of it too early, at each of 5 turns
    assert np.abs(run["x"] - exact).max() < 5 * 0.5 * dt * F / M / np.sqrt(K / M)
    assert abs(run["x"][-1]) < F / K and np.abs(np.diff(run["x"][end:])).max() < 1e-8
    assert run["friction.rub"].max() < F and run["grip.rub"].min() >= -1e-12
    assert np.allclose(run["force.rub"][end:], K * run["x"][end:], atol=1e-4)


def test_energy_goes_into_friction():
    """M dV^2/2 + K dqm^2/2 = tau (V_k + V_k-1)/2, an identity of the rule for a linear spring."""
    dt = 0.01
    run = (f := oscillator(dt)).rollout(f.initial_state({"x": 0.5}), steps=200)
    q = run["x"]
    V, middle = np.diff(q) / dt, (q[1:] + q[:-1]) / 2
    energy = M * V**2 / 2 + K * middle**2 / 2
    work = dt * run["force.rub"][1:] * (V[1:] + V[:-1]) / 2
    assert np.abs(np.diff(energy) - work).max() < 1e-12
    assert (run["force.rub"] * V <= 0).all()


def test_a_block_on_springs_sticks_within_the_band_and_moves_beyond():
    f = oscillator(0.01)
    inside, outside = (
        f.rollout(f.initial_state({"x": share * F / K}), steps=100)["x"] for share in (0.99, 1.01)
    )
    # it creeps at w = -psi tau/alpha, psi = kappa/(alpha (1 - share^2))
    creep = f.barrier / (F * 0.01) * 0.99 / (1 - 0.99**2)
    assert np.abs(np.diff(inside)).max() < 1.01 * 0.01 * creep
    assert outside[0] - outside[-1] > 1e-3 > 30 * (inside[0] - inside[-1])


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_block_slides_straight_and_as_far_as_coulomb_says(backend):
    f, way = block(backend=backend), 0.4
    run = f.rollout(f.initial_state({}, {"x": 2 * np.cos(way), "y": 2 * np.sin(way)}), steps=150)
    far = np.hypot(run["x"][-1], run["y"][-1])
    assert far == pytest.approx(4 / (2 * MU * G), abs=2 * 0.005)  # a first impulse acts at the start
    assert np.arctan2(run["y"][-1], run["x"][-1]) == pytest.approx(way, abs=1e-9)
    assert run["force.c0:x"][0] == pytest.approx(-MU * G / 4 * np.cos(way), rel=1e-6)
    assert run["slip.c0"][0] == pytest.approx(2 - 0.005 * MU * G, rel=1e-6)


def test_a_block_that_spins_slides_farther():
    """Friction is shared by turning and sliding: a limit of each point alone would not know."""
    f = block()
    straight, turning = (
        f.rollout(f.initial_state({}, {"x": 2.0, "a": w}), steps=120)["x"][-1] for w in (0.0, 20.0)
    )
    assert turning > 1.05 * straight


def test_with_gravity_and_contacts_it_slides_alike():
    """The same block on contacts with the floor: its corners carry a quarter each."""
    body = tx("x")[ty("y")[tz("z")[rz("a", name="block", mass=Mass(1.0, inertia=(SIDE**2 / 6,) * 3))]]]
    corners = [
        Contact.point("block", (i * SIDE / 2, j * SIDE / 2, 0), friction=MU, name=f"c{i}{j}")
        for i in (1, -1)
        for j in (1, -1)
    ]
    touching = ContactVI(System(body, Gravity(0, 0, -G), corners), 0.005)
    f = block()
    p = -0.5 * 0.005 * G  # a momentum that stands
    start = touching.initial_state({"z": 1e-9}, {"x": 1.0, "a": 5.0})
    start[touching.state_names.index("p.z")] = p
    a, b = (
        touching.rollout(start, steps=60),
        f.rollout(f.initial_state({}, {"x": 1.0, "a": 5.0}), steps=60),
    )
    for name in ("x", "y", "a"):
        assert np.abs(a[name] - b[name]).max() < 1e-5


def test_derivatives_are_those_of_the_step():
    f, random = block(0.01, smoothing=1e-4), np.random.default_rng(3)
    for _ in range(5):
        x = f.initial_state({"a": 0.3}, dict(zip("xya", random.standard_normal(3), strict=True)))
        u = random.standard_normal(2)
        A, e = f.linearize(x, u).A, 1e-5
        other = np.array([(f.step(x + e * d, u) - f.step(x - e * d, u)) / (2 * e) for d in np.eye(6)]).T
        assert np.abs(A - other).max() < 1e-6
    harder = f.with_parameters(load=2 * f.parameters["load"])
    x = f.initial_state({}, {"x": 1.0})
    # it slides: a step's momentum falls by the loads of four corners
    assert x[3] - harder.step(x, [0, 0])[3] == pytest.approx(2 * (x[3] - f.step(x, [0, 0])[3]), rel=5e-3)


def test_it_is_optimized_with_a_free_duration():
    """The least time over 1 m with 20 N against friction: v = a T/2 up and down, in closed form."""
    f = block(0.02)
    rest = {n: 0.0 for n in f.state_names if n.startswith("p.")}
    best = dmoc.solve(
        f,
        Cost(f, 1.0 + 1e-6 * ca.sumsqr(f.symbols.u)),
        steps=20,
        duration=(0.2, 2.0),
        initial=f.initial_state({}),
        final={"x": 1.0, "y": 0.0, "a": 0.0, **rest},
        bounds={"u.fx": 20.0, "u.ta": 0.0},
    )
    up, down = 20 - MU * G, 20 + MU * G
    least = np.sqrt(2 * (1 / up + 1 / down))
    assert best.converged and best.t[-1] == pytest.approx(least, rel=0.02)
    assert best.rollout().gap < 1e-6 and not best.rollout().feedback


def test_who_does_not_have_it_says_so():
    frames, rub = tx("x", name="b", mass=Mass(M)), DryFriction("x", F, name="rub")
    for make, said in ((MidpointVI, "ContactVI"), (ModeVI, "ContactVI")):
        with pytest.raises(ModelError, match=said):
            make(System(frames, rub), 0.01)
    ball = tz("z", name="ball", mass=Mass(1.0))
    bouncing = System(
        ball, Gravity(0, 0, -G), DryFriction("z", 1.0), Contact.sphere("ball", 0.1, restitution=0.5)
    )
    with pytest.raises(ModelError, match="restitution"):
        ContactVI(bouncing, 0.01)
    with pytest.raises(ModelError, match="limit"):
        DryFriction("x", 0.0)


def test_it_has_a_model_text():
    system = System(
        tx("x")[ry("a", name="b", mass=Mass(M, inertia=(0.1, 0.1, 0.1)))],
        DryFriction("a", P("grip", 2.0), name="rub"),
        FloorFriction("b", 3.0, (0.1, 0, 0), (0, 0, 2), name="floor"),
    )
    assert read_text(write_text(system)) == system
    for f in (ContactVI(system, 0.01), MaximalVI(system, 0.01)):
        assert [f.unit(f"{n}") for n in ("force.rub", "slip.rub", "slip.floor")] == ["N m", "rad/s", "m/s"]
        names = f.quantities.names()
        assert "force.floor:x" in names and not {"gap.rub", "force.rub:x", "force.floor"} & set(names)


def arm(dt, **options):
    """Seven links on joints along z and y by turns, each of which rubs."""
    below = ()
    for i in reversed(range(7)):
        mass = Mass.box(3.0 - 0.3 * i, (0.08, 0.08, 0.3), com=(0, 0, 0.12))
        link = (rz, ry)[i % 2](f"q{i}", mass=mass)
        below = (link[tz(0.25)[below]] if below else link,)
    rubs = [DryFriction(f"q{i}", P(f"f{i}", 5.0 - 0.6 * i), name=f"rub{i}") for i in range(7)]
    return ContactVI(System(below, Gravity(0, 0, -G), rubs, name="arm that rubs"), dt, **options)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::vioc.errors.StepWarning")  # of limp arms that whip around
@pytest.mark.skipif(not find_compiler(), reason="no cc")
def test_arms_of_seven_joints_with_any_friction_lose_energy():
    f, random = arm(0.005, backend="compiled"), np.random.default_rng(0)
    for _ in range(30):
        q = {f"q{i}": random.uniform(-1.5, 1.5) for i in range(7)}
        v = {f"q{i}": 2 * random.standard_normal() for i in range(7)}
        limits = np.exp(random.uniform(np.log(0.05), np.log(100.0), 7))
        g = f.with_parameters(**{f"f{i}": limit for i, limit in enumerate(limits)})
        run = g.rollout(g.initial_state(q, v), steps=300)
        assert run.energy.max() <= run.energy[0] * (1 + 1e-12)
        # a force is the mean over both halves beside a sample, an impulse is bounded by its own step's length
        impulses = run.multipliers[:, [f.multiplier_names.index(f"rub{i}") for i in range(7)]]
        assert (np.abs(impulses) <= 0.005 * limits * (1 + 1e-9)).all()
    x = f.initial_state({f"q{i}": 0.3 for i in range(7)}, {f"q{i}": 1.0 for i in range(7)})
    a, b = arm(0.005).rollout(x, steps=50), f.rollout(x, steps=50)
    assert np.abs(a.x - b.x).max() < 1e-9
