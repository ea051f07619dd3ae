"""Accelerations and multipliers against Newton-Euler, closed forms, differences and another package."""

from __future__ import annotations

import casadi as ca
import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from scipy.interpolate import CubicSpline
from scipy.linalg import expm
from scipy.special import ellipk
from support.mechanisms import G, everything, pendulum
from support.strategies import systems

from vioc import (
    Continuous,
    DistanceConstraint,
    Gravity,
    K,
    Lagrangian,
    Mass,
    System,
    consistent_configuration,
    project_velocity,
    reference_solution,
    rx,
    ry,
    rz,
    tx,
    ty,
    tz,
)

# inside: poses are computed again by scipy, by the kind of each transform
from vioc.dynamics.description.frame import Pose
from vioc.errors import ConstraintError, ModelError

seeds = st.integers(0, 2**32 - 1)
few = settings(max_examples=4, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])


def hat(v):
    return np.array([[0, -v[2], v[1]], [v[2], 0, -v[0]], [-v[1], v[0], 0]])


def local(transform, q):
    """Pose of a frame in its parent as a 4 x 4 matrix, by scipy's matrix exponential."""
    if isinstance(transform.value, Pose):
        g = np.eye(4)
        g[:3, :3] = np.reshape(transform.value.rotation, (3, 3))
        g[:3, 3] = [float(c) for c in transform.value.position]
        return g
    linear, angular = (np.array(t, float) for t in transform.twist)
    xi = np.zeros((4, 4))
    xi[:3, :3], xi[:3, 3] = hat(angular), linear
    return expm(xi * (q if transform.variable else float(transform.value)))


def newton_euler(system, q, v, a, gravity):
    """Generalized forces (nq,) by forward accelerations and backward wrenches, twists (linear, angular)."""
    n = len(system.nodes)
    poses, V, A, S = [None] * n, np.zeros((n, 6)), np.zeros((n, 6)), np.zeros((n, 6))

    def adjoint_inverse(g):
        R, p = g[:3, :3], g[:3, 3]
        result = np.zeros((6, 6))
        result[:3, :3] = result[3:, 3:] = R.T
        result[:3, 3:] = -R.T @ hat(p)
        return result

    def ad(t):
        result = np.zeros((6, 6))
        result[:3, :3] = result[3:, 3:] = hat(t[3:])
        result[:3, 3:] = hat(t[:3])
        return result

    wrenches = np.zeros((n, 6))
    index = {}
    for i, node in enumerate(system.nodes):
        transform = node.frame.transform
        if transform.variable is not None:
            index[i] = system.variables.index(transform.variable.name)
            S[i] = np.concatenate([np.array(t, float) for t in transform.twist])
        j = index.get(i)
        poses[i] = local(transform, 0.0 if j is None else q[j])
        X = adjoint_inverse(poses[i])
        before = (
            (V[node.parent], A[node.parent])
            if node.parent >= 0
            else (
                np.zeros(6),
                np.concatenate([-np.asarray(gravity), np.zeros(3)]),
            )
        )
        V[i], A[i] = X @ before[0], X @ before[1]
        if j is not None:
            V[i] += S[i] * v[j]
            A[i] += S[i] * a[j] + ad(V[i]) @ S[i] * v[j]
        mass = node.frame.mass
        if mass is not None:
            m, c = float(mass.mass), hat([float(x) for x in mass.com])
            xx, yy, zz, xy, yz, xz = (
                (mass.inertia[k] for k in (0, 1, 2, 3, 5, 4))
                if len(mass.inertia) == 6
                else (*mass.inertia, 0, 0, 0)
            )
            inertia = np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]], float)
            spatial = np.block([[m * np.eye(3), -m * c], [m * c, inertia - m * c @ c]])
            wrenches[i] = spatial @ A[i] - ad(V[i]).T @ spatial @ V[i]
    forces = np.zeros(len(system.variables))
    for i in reversed(range(n)):
        if i in index:
            forces[index[i]] = S[i] @ wrenches[i]
        parent = system.nodes[i].parent
        if parent >= 0:
            wrenches[parent] += adjoint_inverse(poses[i]).T @ wrenches[i]
    return forces


@few
@given(system=systems(potentials=False, kinematic=True), seed=seeds)
def test_inverse_dynamics_is_newton_euler(system, seed):
    random = np.random.default_rng(seed)
    g = random.normal(size=3) * 5
    system = system.with_components(Gravity(*g))
    q, v, a = (random.normal(size=len(system.variables)) for _ in range(3))
    expected = newton_euler(system, q, v, a, g)
    found = Continuous(system).inverse(q, v, a)
    assert np.abs(found - expected).max() <= 1e-11 * (1 + np.abs(expected).max())


def consistent(system, seed):
    """A configuration and velocity on the constraints, or None."""
    random = np.random.default_rng(seed)
    guess = dict(zip(system.variables, random.normal(scale=0.4, size=len(system.variables)), strict=True))
    lengths = [v.name for c in system.constraints for v in c.own_variables()]
    guess.update({name: 1.0 + 0.3 * random.random() for name in lengths})
    try:
        report = consistent_configuration(system, guess)
    except ModelError:
        return None
    if report.redundant:
        return None
    return report.q, project_velocity(system, report.q, random.normal(size=len(report.q)))


@few
@given(system=systems(max_frames=7, forced=True, constrained=True, kinematic=True), seed=seeds)
def test_forward_solves_the_constrained_equations(system, seed):
    start = consistent(system, seed)
    assume(start is not None)
    q, v = start
    random = np.random.default_rng(seed)
    nk, nd = len(system.kinematic), len(system.dynamic)
    u, given_a = random.normal(size=len(system.inputs)), random.normal(size=nk)
    dynamics = Continuous(system)
    a, multipliers = dynamics.forward(q, v, u, t=0.7, kinematic=given_a)
    np.testing.assert_array_equal(a[nd:], given_a)

    # [T] (36a): M, the forces at rest of acceleration, and Dh from other functions
    lag = dynamics.lagrangian
    J = lag.constraint_jacobian(q)
    left = lag.mass_matrix(q) @ a + dynamics.inverse(q, v, np.zeros(nd + nk), u, t=0.7)
    force = left - J.T @ multipliers
    size = 1 + np.abs(left).max() + np.abs(multipliers).max() * np.abs(J).max()
    assert np.abs(force[:nd]).max() <= 1e-11 * size
    back = dynamics.inverse(q, v, a, u, multipliers, t=0.7)
    assert np.abs(back - force).max() <= 1e-12 * size

    # [T] (36b) with the Hessian of each constraint
    g = lag.graph
    for i in range(lag.h.numel()):
        hessian = ca.Function("H", [g.q_vector, g.parameters], [ca.hessian(lag.h[i], g.q_vector)[0]])
        curvature = v @ np.array(hessian(q, dynamics._theta)) @ v
        scale = 1 + abs(curvature) + np.abs(J[i]) @ np.abs(a)
        assert abs(J[i] @ a + curvature) <= 1e-12 * scale


def test_derivatives_agree_with_differences():
    system = everything()
    q, v = consistent(system, 3)
    u, lam, a = np.array([0.4]), np.array([0.3]), np.linspace(-1, 1, 5)
    eps = 1e-6
    theta = dict(system.parameters)

    def slope(f, value):
        columns = []
        for e in np.eye(len(value)) * eps:
            columns.append((f(value + e) - f(value - e)) / (2 * eps))
        return np.stack(columns, axis=-1)

    def forward(by="", q=q, v=v, u=u, p=None):
        values = theta if p is None else dict(zip(theta, p, strict=True))
        return Continuous(lag, **values).forward(q, v, u, kinematic=[0.2, -0.1], by=by)

    def inverse(by="", q=q, v=v, u=u, a=a, p=None):
        values = theta if p is None else dict(zip(theta, p, strict=True))
        return Continuous(lag, **values).inverse(q, v, a, u, lam, by=by)

    lag = Lagrangian(system)
    at = dict(q=q, v=v, u=u, p=np.array(list(theta.values())), a=a)
    for letter in "qvup":
        for field in ("accelerations", "multipliers"):
            numeric = slope(lambda x: getattr(forward(**{letter: x}), field), at[letter])  # noqa: B023
            exact = getattr(forward(letter), field)
            np.testing.assert_allclose(exact, numeric, rtol=1e-6, atol=1e-7 * (1 + np.abs(numeric).max()))
    for letter in "qvuap":
        numeric = slope(lambda x: inverse(**{letter: x}), at[letter])  # noqa: B023
        np.testing.assert_allclose(inverse(letter), numeric, rtol=1e-6, atol=1e-7)
    # mixed second derivatives: one more difference, in the order that `by` says
    for by in ("qv", "vq", "up", "pq", "vv"):
        numeric = slope(lambda x: forward(by[0], **{by[1]: x}).accelerations, at[by[1]])  # noqa: B023
        exact = forward(by).accelerations
        assert exact.shape == (5, len(at[by[0]]), len(at[by[1]]))
        np.testing.assert_allclose(exact, numeric, rtol=1e-5, atol=1e-6 * (1 + np.abs(numeric).max()))


def test_many_samples_at_once_are_the_same_as_one_by_one():
    system, random = everything(), np.random.default_rng(0)
    starts = [consistent(system, s) for s in range(4)]
    Q, V = (np.stack(column) for column in zip(*starts, strict=True))
    U, T = random.normal(size=(4, 1)), np.arange(4.0)
    dynamics = Continuous(system)
    for by in ("", "q", "qv"):
        together = dynamics.forward(Q, V, U, t=T, by=by)
        for i in range(4):
            one = dynamics.forward(Q[i], V[i], U[i], t=T[i], by=by)
            for a, b in zip(together, one, strict=True):  # BLAS may choose its loops by the size
                np.testing.assert_allclose(a[i], b, rtol=0, atol=1e-13 * (1 + np.abs(b).max(initial=0.0)))
    with pytest.raises(ValueError, match="number of samples"):
        dynamics.forward(Q, V[:3])


def test_tension_of_a_rod_by_hand():
    # a bob on a rod: tension m (g cos + v^2/L), h = x^2 + z^2 - L^2, so Dh' lambda = 2 lambda (x, z)
    m, L, angle, speed = 2.0, 1.5, 0.6, 1.1
    system = System(
        tx("x")[tz("z", name="bob", mass=m)],
        Gravity(0, 0, -G),
        DistanceConstraint("world", "bob", L, name="rod"),
    )
    q = L * np.array([np.sin(angle), -np.cos(angle)])
    v = speed * np.array([np.cos(angle), np.sin(angle)])
    motion = Continuous(system).forward(q, v)
    tension = m * (G * np.cos(angle) + speed**2 / L)
    np.testing.assert_allclose(motion.multipliers, [-tension / (2 * L)], rtol=1e-13)
    np.testing.assert_allclose(motion.accelerations, -tension / m * q / L - [0, G], rtol=1e-13)


def test_arguments_by_name():
    dynamics = Continuous(everything())
    q, v = consistent(dynamics.system, 5)
    names = dynamics.system.variables
    by_array = dynamics.forward(q, v, [0.3], kinematic=[0.1, 0.2])
    by_name = dynamics.forward(
        dict(zip(names, q, strict=True)),
        dict(zip(names, v, strict=True)),
        {"torque": 0.3},
        kinematic={"string": 0.2, "trolley": 0.1},
    )
    for a, b in zip(by_array, by_name, strict=True):
        np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(
        dynamics.inverse(q, v, by_array.accelerations, [0.3], by_array.multipliers),
        dynamics.inverse(q, v, by_array.accelerations, [0.3], {"string": by_array.multipliers[0]}),
    )


def test_parameters_are_used():
    system = everything()
    q, v = consistent(system, 5)
    other = {**system.parameters, "m": 3.0, "damping": 1.0}
    changed = Continuous(system, m=3.0, damping=1.0).forward(q, v)
    assert np.abs(changed.accelerations - Continuous(system).forward(q, v).accelerations).max() > 1e-3
    f = Continuous(system)
    f.parameters = other
    np.testing.assert_array_equal(f.forward(q, v).accelerations, changed.accelerations)
    with pytest.raises(ValueError, match=r"unknown parameters \['mass'\]"):
        Continuous(system, mass=1.0)


def test_errors():
    dynamics = Continuous(pendulum())
    for call, message in (
        (lambda: dynamics.forward([0.1, 0.2]), r"configuration: expected shape \(1,\)"),
        (lambda: dynamics.forward([np.nan]), "finite"),
        (lambda: dynamics.forward([0.1], u={"tork": 1}), "input: unknown name 'tork'; did you mean 'torque'"),
        (lambda: dynamics.forward([0.1], u=[1, 2]), r"inputs: expected shape \(1,\)"),
        (lambda: dynamics.forward([0.1], by="qx"), "by: expected letters of q, v, u, p, got 'qx'"),
        (lambda: dynamics.inverse([0.1], [0], [0], by="l"), "by: expected letters"),
        (lambda: dynamics.forward({"thet": 0.1}), "unknown configuration variable"),
    ):
        with pytest.raises(ValueError, match=message):
            call()
    with pytest.raises(ModelError, match="no dynamics"):
        Continuous(System(tx(K("x"), mass=1)))

    twice = System(
        tx("x")[tz("z", name="bob", mass=1)],
        DistanceConstraint("world", "bob", 1.0, name="rod"),
        DistanceConstraint("world", "bob", 1.0, name="again"),
    )
    with pytest.raises(ConstraintError, match="rank 1 of 2: again follows"):
        Continuous(twice).forward([0.6, 0.8])
    gimbal = System(rz("a")[ry("b")[rx("c", mass=Mass(1, (1, 1, 1)))]])
    with pytest.raises(ModelError, match="sample 1: the mass matrix is singular.*along a, c"):
        Continuous(gimbal).forward([[0.1, 0.2, 0.3], [0.1, np.pi / 2, 0.3]])


# -- reference solutions -----------------------------------------------------------------------------


def test_reference_has_the_period_of_a_pendulum():
    amplitude = 2.0
    period = 4 / np.sqrt(G) * ellipk(np.sin(amplitude / 2) ** 2)
    solution = reference_solution(
        pendulum(), {"theta": amplitude}, None, np.array([0, 0.25, 0.5, 1]) * period
    )
    np.testing.assert_allclose(solution["theta"], amplitude * np.array([1, 0, -1, 1]), atol=1e-9)
    assert abs(solution["v.theta"][1]) == pytest.approx(np.sqrt(2 * G * (1 - np.cos(amplitude))), rel=1e-10)
    assert solution.evaluations > 100


def test_reference_of_a_carried_pendulum():
    times = np.linspace(0, 1, 11)
    path = CubicSpline(times, 0.3 * np.sin(5 * times))
    system = System(Gravity(0, 0, -G), tx(K("trolley"))[ry("theta")[tz(-1.0, mass=1.0)]])
    solution = reference_solution(system, {"theta": 0.4}, None, times, kinematic={"trolley": path})

    # ry turns the bob at -z towards -x: x = s - sin(theta), z = -cos(theta)
    from scipy.integrate import solve_ivp

    def rhs(t, y):
        return [y[1], -G * np.sin(y[0]) + path(t, 2) * np.cos(y[0])]

    exact = solve_ivp(rhs, (0, 1), [0.4, 0.0], rtol=1e-12, atol=1e-12, method="DOP853", t_eval=times)
    np.testing.assert_allclose(solution["theta"], exact.y[0], atol=1e-9)
    np.testing.assert_allclose(solution["trolley"], path(times), atol=1e-14)
    np.testing.assert_allclose(solution["v.trolley"], path(times, 1), atol=1e-14)


def test_reference_inputs_in_every_notation_agree():
    t = np.linspace(0, 1, 5)
    constant = [
        reference_solution(pendulum(), [0.3], [0.1], t, u)
        for u in ([1.5], np.full((4, 1), 1.5), {"torque": 1.5}, {"torque": lambda t: 1.5}, lambda t: [1.5])
    ]
    for other in constant[1:]:
        np.testing.assert_allclose(other.q, constant[0].q, atol=1e-11)
    steps = np.array([[1.0], [-2.0], [0.5], [0.0]])
    whole = reference_solution(pendulum(), [0.3], [0.1], t, steps)
    one = reference_solution(pendulum(), whole.q[1], whole.v[1], t[1:3], [-2.0])
    np.testing.assert_allclose(whole.q[2], one.q[1], atol=1e-13)


def test_reference_stays_on_the_constraints_and_keeps_energy():
    system = System(
        tx("x")[tz("z", name="bob", mass=2.0)],
        Gravity(0, 0, -G),
        DistanceConstraint("world", "bob", 1.0),
    )
    solution = reference_solution(system, [0.6, -0.8], [0.8, 0.6], np.linspace(0, 2, 21))
    lag = Lagrangian(system)
    assert max(abs(lag.constraints(q)).max() for q in solution.q) <= 1e-10
    energies = [
        lag.kinetic_energy(q, v) + lag.potential_energy(q)
        for q, v in zip(solution.q, solution.v, strict=True)
    ]
    assert np.ptp(energies) <= 1e-9


def test_inputs_by_either_name():
    dynamics, t = Continuous(pendulum()), [0, 0.1]
    short, full = ({name: 0.7} for name in ("torque", "u.torque"))
    assert np.array_equal(dynamics.forward([0.1], u=full)[0], dynamics.forward([0.1], u=short)[0])
    one, two = (reference_solution(pendulum(), [0.1], None, t, u).q for u in (short, full))
    assert np.array_equal(one, two) and one[-1] > reference_solution(pendulum(), [0.1], None, t).q[-1]


def test_reference_refuses_what_it_cannot_use():
    t = [0, 1]
    carried = System(Gravity(0, 0, -G), tx(K("trolley"))[ry("theta")[tz(-1.0, mass=1.0)]])
    for call, message in (
        (lambda: reference_solution(pendulum(), None, None, [0, 0]), "increasing times"),
        (lambda: reference_solution(pendulum(), None, None, t, np.zeros((3, 1))), r"u: expected shape"),
        (lambda: reference_solution(pendulum(), None, None, t, {"tork": 1}), "input: unknown name 'tork'"),
        (lambda: reference_solution(carried, None, None, t, kinematic={"x": 1}), "variable: unknown name"),
        (lambda: reference_solution(carried, None, None, t, kinematic={"trolley": np.sin}), "derivative"),
    ):
        with pytest.raises(ValueError, match=message):
            call()


# -- another package ---------------------------------------------------------------------------------


@pytest.mark.peer
def test_agrees_with_pinocchio():
    pin = pytest.importorskip("pinocchio")
    masses = [Mass(1.0 + i, (0.5, 0.6, 0.7, 0.05, 0.02, 0.03), (0.1, 0.2 * i, -0.3)) for i in range(4)]
    joints = [(rx, "RX"), (tz, "PZ"), (ry, "RY"), (rz, "RZ")]
    offsets = [(0.1, 0.2, 0.3), (0.4, -0.1, 0.2), (0.0, 0.5, 0.1), (-0.3, 0.1, 0.2)]
    body = None
    for (joint, _), mass, (x, y, z), name in reversed(
        list(zip(joints, masses, offsets, "abcd", strict=True))
    ):
        frame = joint(name, mass=mass)
        body = tx(x)[ty(y)[tz(z)[frame[body] if body else frame]]]
    system = System(body, Gravity(0.5, 0, -9.81))

    model, parent = pin.Model(), 0
    model.gravity.linear = np.array([0.5, 0, -9.81])
    for (_, kind), mass, offset in zip(joints, masses, offsets, strict=True):
        placement = pin.SE3(np.eye(3), np.array(offset))
        parent = model.addJoint(parent, getattr(pin, f"JointModel{kind}")(), placement, f"j{parent}")
        xx, yy, zz, xy, xz, yz = mass.inertia
        inertia = np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])
        model.appendBodyToJoint(
            parent, pin.Inertia(mass.mass, np.array(mass.com), inertia), pin.SE3.Identity()
        )
    data = model.createData()

    dynamics, random = Continuous(system), np.random.default_rng(1)
    for _ in range(20):
        q, v, a, tau = random.normal(size=(4, 4))
        np.testing.assert_allclose(dynamics.inverse(q, v, a), pin.rnea(model, data, q, v, a), atol=1e-11)
        bias = dynamics.inverse(q, v, np.zeros(4))
        forward = dynamics.forward(q, v).accelerations + np.linalg.solve(
            dynamics.lagrangian.mass_matrix(q), tau
        )
        np.testing.assert_allclose(forward, pin.aba(model, data, q, v, tau), atol=1e-10)
        np.testing.assert_allclose(bias, pin.nonLinearEffects(model, data, q, v), atol=1e-11)
        pin.computeRNEADerivatives(model, data, q, v, a)
        np.testing.assert_allclose(dynamics.inverse(q, v, a, by="q"), data.dtau_dq, atol=1e-10)
        np.testing.assert_allclose(dynamics.inverse(q, v, a, by="v"), data.dtau_dv, atol=1e-10)
        pin.computeABADerivatives(model, data, q, v, np.zeros(4))
        np.testing.assert_allclose(dynamics.forward(q, v, by="q").accelerations, data.ddq_dq, atol=1e-9)
        np.testing.assert_allclose(dynamics.forward(q, v, by="v").accelerations, data.ddq_dv, atol=1e-9)
