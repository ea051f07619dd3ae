"""What potentials, constraints and forces are, against numpy formulas on an independent tree."""

from __future__ import annotations

import casadi as ca
import numpy as np
import pytest
from support.numpy_tree import body_twist, poses, slopes
from support.tree_of_terms import FAR, HAND, TREE, charge, drag, height

from vioc import (
    DistanceConstraint,
    Gravitation,
    JointDamping,
    Lagrangian,
    LinearDamper,
    MassGravity,
    MidpointVI,
    P,
    PointConstraint,
    PointOnPlane,
    StringConstraint,
    System,
    UserConstraint,
    UserForce,
    UserPotential,
    Wrench,
    WrenchInput,
    coincident,
    consistent_configuration,
    project_velocity,
    wrench_inputs,
)
from vioc.components import CamConstraint, GearConstraint, PolynomialSpring, ScrewConstraint, cam

Q = np.array([0.3, -0.5, 0.8, 0.4, 0.7])
V = np.array([0.6, -1.1, 0.4, 0.9, -0.7])
U = 0.37


def rig(*terms):
    return System(TREE, *terms)


def origin(k, frame):
    return k[frame][:3, 3]


def center(k, frame, mass):
    return k[frame][:3, :3] @ np.array(mass.com) + origin(k, frame)


def size(d):
    return np.sqrt(d @ d)


# -- potentials ------------------------------------------------------------------------------------

POTENTIALS = [
    (
        MassGravity("hand", 1.0, -2.0, P("g", 9.0)),
        lambda k, q: -0.7 * np.array([1.0, -2.0, 9.0]) @ center(k, "hand", HAND),
    ),
    (
        Gravitation("hand", "far", 2.5),
        lambda k, q: -2.5 * 0.7 * 2.0 / size(center(k, "hand", HAND) - center(k, "far", FAR)),
    ),
    (
        PolynomialSpring("a", (1.5, -2.0, 0.7), 0.2),
        lambda k, q: 0.75 * (q[1] - 0.2) ** 2 - 2 / 3 * (q[1] - 0.2) ** 3 + 0.175 * (q[1] - 0.2) ** 4,
    ),
    (
        UserPotential(charge, ("tip", P("strength", 3.0))),
        lambda k, q: 3 * np.exp(-origin(k, "tip") @ origin(k, "tip")) * (1 + q[1]),
    ),
]


@pytest.mark.parametrize(("term", "formula"), POTENTIALS, ids=lambda t: type(t).__name__)
def test_potentials(term, formula):
    system = rig(term)
    lag = Lagrangian(system)

    def energy(q):
        return formula(poses(system, q), q)

    np.testing.assert_allclose(lag.potential_energy(Q), energy(Q), rtol=1e-13)
    zero = [np.zeros(0), np.zeros(1), np.array(list(system.parameters.values()))]
    slope = np.array(lag.function("slope", [lag.L_q])(Q, 0 * V, *zero))[:, 0]
    np.testing.assert_allclose(-slope, slopes(energy, Q), rtol=1e-11, atol=1e-12)


# -- constraints -----------------------------------------------------------------------------------

N = np.array([0.3, -1.0, 0.5])


def between(k, one, two):
    return origin(k, one) - origin(k, two)


CONSTRAINTS = [
    (PointConstraint("tip", "far", tuple(N)), lambda k, q: N @ between(k, "tip", "far")),
    (
        PointConstraint("tip", "far", tuple(N), "far"),
        lambda k, q: (k["far"][:3, :3] @ N) @ between(k, "tip", "far"),
    ),
    (
        PointConstraint("tip", "far", tuple(N), "wrist"),
        lambda k, q: (k["wrist"][:3, :3] @ N) @ between(k, "tip", "far"),
    ),
    (
        PointOnPlane("tip", "far", tuple(N), P("offset", 0.3)),
        lambda k, q: (k["far"][:3, :3] @ N) @ between(k, "tip", "far") - 0.3,
    ),
    (PointOnPlane("tip", "world", tuple(N), 0.2), lambda k, q: N @ origin(k, "tip") - 0.2),
    (
        StringConstraint("tip", "far", 1.3),
        lambda k, q: between(k, "tip", "far") @ between(k, "tip", "far") - 1.69,
    ),
    (ScrewConstraint("a", "x", P("pitch", 0.2)), lambda k, q: 0.2 * q[1] - q[0]),
    (GearConstraint("a", "b", -2.0, 0.3), lambda k, q: q[1] + 2 * q[2] - 0.3),
    (
        CamConstraint("a", "x", (0.5, 0.1, 0.02), (0.3, -0.2)),
        lambda k, q: (
            q[0]
            - (
                0.5
                + 0.1 * np.cos(q[1])
                + 0.02 * np.cos(2 * q[1])
                + 0.3 * np.sin(q[1])
                - 0.2 * np.sin(2 * q[1])
            )
        ),
    ),
    (cam("a", "x", ca.exp), lambda k, q: q[0] - np.exp(q[1])),
    (UserConstraint(height, ("tip", 0.1)), lambda k, q: origin(k, "tip")[2] ** 3 - 0.1),
]


@pytest.mark.parametrize(("term", "formula"), CONSTRAINTS, ids=lambda t: type(t).__name__)
def test_constraints(term, formula):
    system = rig(term)
    lag = Lagrangian(system)

    def h(q):
        return formula(poses(system, q), q)

    np.testing.assert_allclose(lag.constraints(Q)[0], h(Q), rtol=1e-12)
    np.testing.assert_allclose(lag.constraint_jacobian(Q)[0], slopes(h, Q), rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("count", [1, 4, 7])
def test_a_cam_passes_through_its_samples(count):
    samples = np.random.default_rng(count).normal(size=count)
    system = rig(cam("a", "x", samples))
    lag = Lagrangian(system)
    for i, lift in enumerate(samples):
        for turn in (0, 1):
            angle = 2 * np.pi * (i / count + turn)
            np.testing.assert_allclose(lag.constraints({"x": lift, "a": angle}), 0, atol=1e-12)


# -- forces ----------------------------------------------------------------------------------------

F, M = np.array([1.0, -0.5, 2.0]), np.array([0.3, 0.7, -0.2])


def wrench_power(axes, scale=1.0):
    """Force times the velocity of the frame's origin plus moment times angular velocity."""

    def power(system, q, v):
        k = poses(system, q)
        R, p = k["wrist"][:3, :3].real, k["wrist"][:3, 3].real
        body = body_twist(system, "wrist", q, v)
        velocity, spin = R @ body[:3], R @ body[3:]
        if axes == "body":
            return scale * (F @ body[:3] + M @ body[3:])
        if axes == "spatial":  # the point of the body that is at the world's origin now
            velocity = velocity - np.cross(spin, p)
        return scale * (F @ velocity + M @ spin)

    return power


def damper_power(system, q, v):
    rate = slopes(lambda z: size(between(poses(system, z), "tip", "far")), q) @ v
    return -0.8 * rate**2


def drag_power(system, q, v):
    speed = body_twist(system, "tip", q, v)[0]
    return (-0.6 * speed * v[2] + U * np.sin(2.5)) * v[1] + q[2] ** 2 * v[0]


FORCES = [
    *((Wrench("wrist", tuple(F), tuple(M), a), wrench_power(a)) for a in ("body", "hybrid", "spatial")),
    *(
        (WrenchInput("wrist", "push", tuple(F), tuple(M), a), wrench_power(a, U))
        for a in ("body", "hybrid", "spatial")
    ),
    (JointDamping("b", 0.4), lambda system, q, v: -0.4 * v[2] ** 2),
    (LinearDamper("tip", "far", 0.8), damper_power),
    (UserForce(drag, ("push",), (P("drag", 0.6),)), drag_power),
]


@pytest.mark.parametrize(("term", "power"), FORCES, ids=lambda t: getattr(t, "axes", type(t).__name__))
def test_forces_do_the_right_work(term, power):
    system = rig(term)
    lag = Lagrangian(system)
    theta = np.array(list(system.parameters.values()))
    inputs = np.full(len(system.inputs), U)
    force = np.array(lag.function("force", [ca.densify(lag.F)])(Q, V, inputs, 2.5, theta))[:, 0]
    np.testing.assert_allclose(force @ V, power(system, Q, V), rtol=1e-12)
    if isinstance(term, (Wrench, WrenchInput)):  # a wrench does not depend on v: check every direction
        for e in np.eye(5):
            np.testing.assert_allclose(force @ e, power(system, Q, e), rtol=1e-11, atol=1e-12)


def test_wrench_inputs_are_components():
    three = wrench_inputs("tip", "hybrid", fx="thrust", mz="rudder", fz="lift")
    assert [w.input for w in three] == ["thrust", "lift", "rudder"]
    assert [(*w.force, *w.moment).index(1.0) for w in three] == [0, 2, 5]
    six = wrench_inputs("tip")
    system = rig(six)
    assert system.inputs == tuple(f"tip-{c}" for c in ("fx", "fy", "fz", "mx", "my", "mz"))
    lag = Lagrangian(system)
    force = lag.function("force", [lag.F])(Q, V, np.arange(1.0, 7), 0, [])
    np.testing.assert_allclose(
        np.array(force)[:, 0] @ V, np.arange(1.0, 7) @ body_twist(system, "tip", Q, V), rtol=1e-12
    )


# -- steps -----------------------------------------------------------------------------------------


def start(f):
    """A consistent configuration and velocity near (Q, V)."""
    if not f.nm:
        return Q, V
    q = consistent_configuration(f.lagrangian, Q).q
    return q, project_velocity(f.lagrangian, q, V)


@pytest.mark.parametrize(
    "term", [t for t, _ in (*POTENTIALS, *CONSTRAINTS, *FORCES)], ids=lambda t: type(t).__name__
)
def test_steps_are_differentiated_exactly(term):
    f = MidpointVI(rig(term), 0.02)
    x, u = f.initial_state(*start(f)), np.full(f.nu, U)
    A, B = f.linearize(x, u, k=3)
    eps = 1e-5
    for matrix, count, move in (
        (A, f.nx, lambda d: (x + d, u)),
        (B, f.nu, lambda d: (x, u + d)),
    ):
        for i in range(count):
            d = eps * np.eye(count)[i]
            slope = (f.step(*move(d), 3) - f.step(*move(-d), 3)) / (2 * eps)
            np.testing.assert_allclose(matrix[:, i], slope, atol=1e-6 * (1 + np.abs(slope).max()))
    z = np.random.default_rng(0).normal(size=f.nx)
    second = f.second_order(x, u, z, 3)
    for i in range(f.nq):
        d = 1e-4 * np.eye(f.nx)[i]
        slope = (z @ f.linearize(x + d, u, 3).A - z @ f.linearize(x - d, u, 3).A) / 2e-4
        np.testing.assert_allclose(second.xx[:, i], slope, atol=1e-5 * (1 + np.abs(slope).max()))


@pytest.mark.parametrize("term", [t for t, _ in (*POTENTIALS, *CONSTRAINTS)], ids=lambda t: type(t).__name__)
def test_energy_error_is_second_order(term):
    f = MidpointVI(rig(term), 0.004)
    x, bands = f.initial_state(*start(f)), []
    for h in (0.004, 0.002):
        run = f.rollout(x, steps=round(0.2 / h), dt=h, warn=False)
        for name in f.system.constraint_names:
            assert np.abs(run[f"h.{name}"]).max() <= 1e-10
        bands.append(np.abs(run.energy - run.energy[0]).max())
    assert bands[0] < 0.02 and 3.5 < bands[0] / bands[1] < 4.5


def test_coincident_takes_the_axes_of_a_frame():
    world, body = (Lagrangian(rig(coincident("tip", "far", direction_in=n))) for n in ("world", "hand"))
    R = poses(world.system, Q)["hand"][:3, :3]
    np.testing.assert_allclose(body.constraints(Q), R.T @ world.constraints(Q), atol=1e-12)


def test_a_string_is_a_distance():
    one, two = DistanceConstraint("tip", "far", 1.3), StringConstraint("tip", "far", 1.3)
    assert one != two
    np.testing.assert_array_equal(
        Lagrangian(rig(one)).constraint_jacobian(Q), Lagrangian(rig(two)).constraint_jacobian(Q)
    )
