"""The models that come with vioc, against the formulas they stand for.

The energies come from a small kinematics of their own (numpy, complex step), which shares nothing
with the one that the integrators use.
"""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.linalg import expm
from support.strategies import systems

from vioc import Gravity, models, read_text

# inside: formulas of poses are written by the kind of each transform
from vioc.dynamics.description.frame import Pose, Twist
from vioc.errors import ModelError

STEP = 1e-30


def transform_matrix(transform, q):
    """The 4 x 4 matrix of a transform at the configuration `q` (a dict, complex allowed)."""
    value = transform.value
    g = np.eye(4, dtype=complex)
    if isinstance(value, Pose):
        g[:3, :3] = np.reshape(value.rotation, (3, 3))
        g[:3, 3] = [float(v) for v in value.position]
        return g
    amount = q[transform.variable.name] if transform.variable else float(value)
    if isinstance(value, Twist):
        (x, y, z), (a, b, c) = value.linear, value.angular
        return expm(amount * np.array([[0, -c, b, x], [c, 0, -a, y], [-b, a, 0, z], [0, 0, 0, 0]]))
    i = "XYZ".index(transform.kind[1])
    if transform.kind[0] == "T":
        g[i, 3] = amount
    else:
        j, k = (i + 1) % 3, (i + 2) % 3
        g[j, j] = g[k, k] = np.cos(amount)
        g[k, j], g[j, k] = np.sin(amount), -np.sin(amount)
    return g


def poses(system, q, dq):
    """Each frame's pose as a complex matrix, whose imaginary part is STEP times its velocity."""
    moving = {name: q[name] + 1j * STEP * dq.get(name, 0.0) for name in system.variables}
    result = []
    for node in system.nodes:
        parent = result[node.parent] if node.parent >= 0 else np.eye(4)
        result.append(parent @ transform_matrix(node.frame.transform, moving))
    return result


def energies(system, q, dq):
    """Kinetic and gravitational energy."""
    gravity = sum(
        (np.array([g.x, g.y, g.z], float) for g in system.potentials if isinstance(g, Gravity)), np.zeros(3)
    )
    kinetic = potential = 0.0
    for node, pose in zip(system.nodes, poses(system, q, dq), strict=True):
        mass = node.frame.mass
        if mass is None:
            continue
        centre = pose @ [*(float(v) for v in mass.com), 1.0]
        velocity = centre.imag[:3] / STEP
        spin = pose.real[:3, :3].T @ pose.imag[:3, :3] / STEP
        omega = np.array([spin[2, 1], spin[0, 2], spin[1, 0]])
        kinetic += 0.5 * float(mass.mass) * velocity @ velocity + 0.5 * omega @ mass.matrix() @ omega
        potential -= float(mass.mass) * gravity @ centre.real[:3]
    return kinetic, potential


def mass_matrix(system, q):
    """By polarization of the kinetic energy."""
    names = system.variables
    T = [energies(system, q, {a: 1.0})[0] for a in names]
    M = np.diag(2 * np.array(T))
    for i, a in enumerate(names):
        for j, b in enumerate(names[:i]):
            M[i, j] = M[j, i] = energies(system, q, {a: 1.0, b: 1.0})[0] - T[i] - T[j]
    return M


def point_constraints(system, q, dq):
    """Values and velocities of the point constraints."""
    positions = [pose[:3, 3] for pose in poses(system, q, dq)]
    h = [
        np.dot(c.direction, positions[system.frame_index(c.frame1)] - positions[system.frame_index(c.frame2)])
        for c in system.constraints
    ]
    return np.real(h), np.imag(h) / STEP


# -- loading --------------------------------------------------------------------------------------


def test_every_file_loads_under_its_name():
    found = models.names()
    assert {"acrobot", "cart_pole", "closed_chain", "double_pendulum", "pendulum"} < set(found)
    for name in found:
        assert models.load(name).name == name
        assert models.path(name).name == f"{name}.sexp"
        assert models.load(name) == read_text(models.path(name).read_text())


@pytest.mark.parametrize("family", ["n_link_pendulum", "scissor_lift"])
def test_files_of_families_are_what_the_builders_make(family):
    built = getattr(models, family)(5)
    loaded = models.load(f"{family}_5")
    assert loaded == built
    assert loaded.name == built.name
    assert models.load(f"{family}:5") == models.load(family, n=5) == built
    assert models.load(f"{family}:2") != built


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("cart-pole",), "unknown model 'cart-pole'; did you mean 'cart_pole'"),
        (("scissor_lif:5",), "unknown model 'scissor_lif'; did you mean 'scissor_lift'"),
        (("zzz",), "unknown model 'zzz'; known are acrobot, .*, scissor_lift$"),
        (("../models/pendulum",), "unknown model"),
        (("scissor_lift",), "is a family: say of how many parts, as in 'scissor_lift:5'"),
        (("scissor_lift:",), "expected one number of parts"),
        (("scissor_lift:-1",), "expected one number of parts"),
        (("scissor_lift:5", 5), "expected one number of parts"),
        (("scissor_lift", 0), "positive integer, got 0"),
        (("n_link_pendulum", 2.0), "positive integer, got 2.0"),
        (("n_link_pendulum", True), "positive integer, got True"),
        (("pendulum", 2), "'pendulum' is not a family"),
    ],
)
def test_wrong_names_and_numbers(args, message):
    with pytest.raises(ModelError, match=message):
        models.load(*args)


def test_path_of_unknown_model():
    with pytest.raises(ModelError, match="unknown model 'pendulu'; did you mean 'pendulum'"):
        models.path("pendulu")


# -- the mechanisms -------------------------------------------------------------------------------


@pytest.mark.parametrize("q", [0.0, 0.7, -2.0])
def test_pendulum(q):
    system = models.load("pendulum")
    kinetic, potential = energies(system, {"theta": q}, {"theta": 1.3})
    assert kinetic == pytest.approx(0.5 * 1.3**2, rel=1e-14)
    assert potential == pytest.approx(-9.8 * math.cos(q), rel=1e-14)
    assert system.inputs == ("torque",)


def test_double_pendulum():
    system = models.load("double_pendulum")
    a, b, da, db = 0.4, -1.1, 0.7, 2.0
    kinetic, potential = energies(system, {"theta1": a, "theta2": b}, {"theta1": da, "theta2": db})
    w = da + db
    assert kinetic == pytest.approx(0.5 * (2 * da**2 + w**2 + 2 * da * w * math.cos(b)), rel=1e-14)
    assert potential == pytest.approx(-9.81 * (2 * math.cos(a) + math.cos(a + b)), rel=1e-14)


def test_cart_pole():
    system = models.load("cart_pole")
    theta, dx, dtheta = 0.3, 0.8, -1.5
    kinetic, potential = energies(system, {"x": 5.0, "theta": theta}, {"x": dx, "theta": dtheta})
    m, l = 0.3, 0.5
    expected = 0.5 * (1 + m) * dx**2 + m * l * math.cos(theta) * dx * dtheta + 0.5 * m * l**2 * dtheta**2
    assert kinetic == pytest.approx(expected, rel=1e-14)
    assert potential == pytest.approx(m * 9.81 * l * math.cos(theta), rel=1e-14)
    assert (system.variables, system.inputs) == (("x", "theta"), ("force",))
    assert system.forces[0].variable == "x"
    assert {"cart", "pole"} <= set(system.frame_names)


def test_acrobot():
    system = models.load("acrobot")
    q1, q2, d1, d2 = 0.2, 0.9, 0.6, -1.7
    kinetic, potential = energies(system, {"q1": q1, "q2": q2}, {"q1": d1, "q2": d2})
    w = d1 + d2
    upper = (0.25 + 1 / 12) * d1**2
    lower = d1**2 + 0.25 * w**2 + math.cos(q2) * d1 * w + w**2 / 12
    assert kinetic == pytest.approx(0.5 * (upper + lower), rel=1e-14)
    assert potential == pytest.approx(9.81 * (1.5 * math.cos(q1) + 0.5 * math.cos(q1 + q2)), rel=1e-14)
    assert (system.inputs, system.forces[0].variable) == (("torque",), "q2")


def test_closed_chain():
    system = models.load("closed_chain")
    assert system.variables == ("J", "H", "K", "M", "A", "C", "E")
    assert sum(node.frame.mass is not None for node in system.nodes) == 7
    branch = [system.nodes[i].frame.name for i, node in enumerate(system.nodes) if node.parent < 0]
    assert branch == ["J", None, None]
    at_rest = dict.fromkeys(system.variables, 0.0)
    place = {
        name: poses(system, at_rest, {})[system.frame_index(name)][:3, 3].real for name in system.frame_names
    }
    np.testing.assert_allclose(place["O2"], [0, 0, -3], atol=1e-14)
    np.testing.assert_allclose(place["O"], [-1.5, 0, -3], atol=1e-14)
    np.testing.assert_allclose(place["G2"], [1.5, 0, -3.75], atol=1e-14)
    joined = {(c.frame1, c.frame2, c.direction) for c in system.constraints}
    assert joined == {(a, b, n) for a, b in [("G", "G2"), ("O", "O2")] for n in [(1, 0, 0), (0, 0, 1)]}


@pytest.mark.parametrize("n", [1, 3, 10])
def test_n_link_pendulum(n):
    system = models.n_link_pendulum(n)
    assert system.variables == tuple(f"link-{i}" for i in range(n))
    rng = np.random.default_rng(n)
    q, dq = rng.normal(size=(2, n))
    kinetic, potential = energies(system, dict(zip(system.variables, q)), dict(zip(system.variables, dq)))  # noqa: B905
    a, w = np.cumsum(q), np.cumsum(dq)
    velocity = np.cumsum(w * [np.cos(a), np.sin(a)], axis=1)
    assert kinetic == pytest.approx(0.5 * np.sum(velocity**2), rel=1e-13)
    assert potential == pytest.approx(-9.8 * np.sum(np.cumsum(np.cos(a))), rel=1e-13)


@given(
    n=st.integers(1, 6),
    theta=st.floats(-1.5, 1.5),
    rate=st.floats(-3.0, 3.0),
    sizes=st.tuples(*[st.floats(0.1, 3.0)] * 4),
)
def test_scissor_lift_has_the_lagrangian_of_the_paper(n, theta, rate, sizes):
    L, m_L, m_S, I = sizes
    g = 9.81
    system = models.scissor_lift(n, length=L, link_mass=m_L, slider_mass=m_S, inertia=I, g=g)
    q = models.scissor_lift_configuration(n, theta, length=L)
    ahead = models.scissor_lift_configuration(n, theta + 1.0, length=L)
    dq = {name: rate * (ahead[name] - q[name]) for name in q} | {"slider": -L * math.sin(theta) * rate}
    assert tuple(sorted(q)) == tuple(sorted(system.variables))
    assert len(system.variables) - len(system.constraints) == 1

    h, dh = point_constraints(system, q, dq)
    np.testing.assert_allclose(h, 0, atol=1e-13 * n)
    np.testing.assert_allclose(dh, 0, atol=1e-12 * n)

    s2, c2, i = math.sin(theta) ** 2, math.cos(theta) ** 2, np.arange(1, n + 1)
    kinetic, potential = energies(system, q, dq)
    lift = np.sum(m_L * L**2 * ((i - 0.5) ** 2 * c2 + 0.25 * s2) + I) + 0.5 * m_S * L**2 * s2
    assert kinetic == pytest.approx(lift * rate**2, rel=1e-12, abs=1e-14)
    assert potential == pytest.approx(
        -2 * m_L * g * L * math.sin(theta) * np.sum(i - 0.5), rel=1e-12, abs=1e-12
    )


@pytest.mark.parametrize("n", [1, 5, 10])
def test_scissor_lift_has_independent_constraints(n):
    system = models.load("scissor_lift", n=n)
    q = models.scissor_lift_configuration(n, 0.6)
    jacobian = [point_constraints(system, q, {name: 1.0})[1] for name in system.variables]
    assert np.linalg.matrix_rank(jacobian) == 2 * n
    flat = models.scissor_lift_configuration(n, math.pi / 2)
    jacobian = [point_constraints(system, flat, {name: 1.0})[1] for name in system.variables]
    assert np.linalg.matrix_rank(jacobian, tol=1e-9) < 2 * n


# -- the strategies of the other tests ------------------------------------------------------------


@given(systems(max_frames=8, kinematic=True), st.lists(st.floats(-3, 3), min_size=8, max_size=8))
def test_random_systems_have_a_positive_definite_mass_matrix(system, angles):
    M = mass_matrix(system, dict(zip(system.variables, angles)))  # noqa: B905
    scale = np.sqrt(np.diag(M))
    assert np.linalg.eigvalsh(M / np.outer(scale, scale))[0] > 1e-7
