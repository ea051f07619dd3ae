"""Controllability and observability of maps by name, modes, multipliers, brackets."""

import casadi as ca
import numpy as np
import pytest
from scipy.integrate import solve_ivp
from scipy.special import mathieu_a
from support.control_maps import cart_pole, double_integrator, midpoint_pendulum

import vioc
from vioc import CasadiMap, D, Gravity, JointForce, K, Mass, MidpointVI, System, ty, tz
from vioc.components import Skate
from vioc.control import accessibility, controllability, dlqr, equilibrium, floquet, modes, observability

# inside: brackets are counted as Witt says, and rounding is given to a linearization by hand
from vioc.control.analysis.accessibility import hall_basis
from vioc.control.linear.linear_system import without_rounding
from vioc.maps.derivatives import Linearization


def two_carts():
    """Only the first of two equal carts has an input."""
    x, u = ca.SX.sym("x", 4), ca.SX.sym("u")
    step = ca.vertcat(x[0] + 0.1 * x[2], x[1] + 0.1 * x[3], x[2] + 0.1 * u, x[3])
    names = dict(state_names=("a", "b", "v.a", "v.b"), input_names=("force",))
    return CasadiMap(ca.Function("carts", [x, u], [step]), dt=0.1, **names)


@pytest.mark.parametrize("kind", [MidpointVI, vioc.LinearTimeVI, vioc.RungeKutta, vioc.GalerkinVI])
def test_momentum_that_no_input_changes_is_out_of_reach(kind):
    """A motor between two bodies that nothing holds: 2 of 4 directions, whatever rounding makes of it."""
    for mass in (3.0, 0.37, 11.3):
        system = System(vioc.tx("x", mass=mass)[vioc.tx("d", mass=1.1)], JointForce("d", "F"))
        built = kind(system, 0.01)
        for dt in np.geomspace(1e-3, 0.3, 4):
            f = built.with_dt(float(dt))
            x0 = f.initial_state({"d": 0.3})
            assert controllability(f, (x0, None)).rank == 2
            assert controllability(f, f.rollout(x0, np.sin(np.arange(10.0))[:, None])).rank == 2


@pytest.mark.parametrize("joints", [2, 4])
def test_arms_that_float_reach_their_shapes_alone(joints):
    """Motors move n angles and n momenta; where the base is follows from them, by three momenta of six."""
    arm = None
    for i in range(joints, 0, -1):
        link = vioc.tz(-0.5, mass=Mass(1.0 + 0.3 * i, (0.1, 0.1, 0.1)))
        arm = vioc.rx(f"j{i}")[link if arm is None else link[vioc.tz(-0.4)[arm]]]
    body = vioc.rx("phi", mass=Mass(2.7, (0.2, 0.2, 0.2)))
    motors = [JointForce(f"j{i}", f"u{i}") for i in range(1, joints + 1)]
    f = MidpointVI(System(vioc.ty("y")[vioc.tz("z")[body[arm]]], *motors), 0.01)
    bent = f.initial_state({f"j{i}": 0.7 - 0.4 * i for i in range(1, joints + 1)})
    report = controllability(f, (bent, None))
    assert report.rank == report.felt == 2 * joints and "doubtful" not in str(report)


def test_rounding_is_what_changes_as_a_whole_with_the_steps_length():
    """The first state is conserved; the second, weakly moved, has an influence on nothing."""

    def at(h, noise):
        A = np.eye(2) + [[noise, -2 * noise], [h, noise]]
        return Linearization(A[None], np.array([[[noise], [h**3]]]), *np.zeros((4, 1, 2, 0)))

    found = [at(0.01, 4e-16), at(0.010001, -7e-16)]
    A, B = without_rounding(found)
    np.testing.assert_array_equal(A[0], [[1, 0], [0.01, 1]])
    np.testing.assert_array_equal(B[0], [[0], [0.01**3]])


def test_what_inputs_move_is_not_doubtful():
    f = cart_pole(0.01)
    report = controllability(f, (f.initial_state(), None))
    assert report.felt == report.rank == 4 and "doubtful" not in str(report)


def rod():
    """A point mass on a rod of length 1 as a constraint, and a force along x: [S] VII's pendulum."""
    mass = vioc.ty("y", name="bob", mass=Mass(1.0))
    frames = vioc.tx("x")[mass]
    pin = vioc.DistanceConstraint("bob", "world", 1.0, name="rod")
    force = JointForce("x", "push")
    return MidpointVI(System(frames, vioc.Gravity(0.0, -9.8, 0.0), pin, force, name="rod"), 0.05)


# -- by name --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kg, m, s", [(1, 1, 1), (1e3, 1, 1), (1e6, 1e3, 1), (1e-3, 1e-3, 1 / 60)])
@pytest.mark.parametrize("other, expected", [(0.8, 6), (0.5, 4)])
def test_what_stands_out_from_rounding_does_not_depend_on_units(kg, m, s, other, expected):
    """Two pendulums on a cart; of equal ones the cart cannot move the difference."""
    arms = [vioc.ry(n, name=n)[tz(-length * m, mass=0.3 * kg)] for n, length in (("a", 0.5), ("b", other))]
    cart = vioc.tx("x", mass=1.0 * kg)[arms]
    f = MidpointVI(System(cart, Gravity(0, 0, -9.81 * m / s**2), JointForce("x", "force")), 0.01 * s)
    report = controllability(f, (f.initial_state(), None))
    assert report.rank == report.felt == expected
    assert "doubtful" not in str(report)


def test_what_cannot_be_moved_is_named():
    f = two_carts()
    found = controllability(f, (np.zeros(4), None))
    assert (found.rank, found.size, found.complete) == (2, 4, False)
    assert found.shares == pytest.approx({"a": 0, "b": 1, "v.a": 0, "v.b": 1}, abs=1e-12)
    assert found.combinations() == [{"b": 1.0}, {"v.b": 1.0}]
    np.testing.assert_allclose(found.lost, [1, 1])
    text = str(found)
    assert text.startswith("inputs reach 2 of 4 directions of the full state: not controllable (")
    assert "\ninputs reach all of a, v.a\n" in text
    assert "\nout of reach, whatever the inputs (to first order):\n  +1 b\n  +1 v.b\n" in text
    assert "2 of 2 directions of the full state: controllable" in str(
        controllability(double_integrator(), (np.zeros(2), None))
    )
    assert found.energy({"a": 0.1}) < np.inf
    assert found.energy({"b": 0.1}) == np.inf
    along = controllability(f, f.rollout(np.zeros(4), steps=30))
    assert along.rank == 2
    assert along.lost is None
    assert along.shares["b"] == pytest.approx(1)


def test_what_cannot_be_seen_is_named():
    f = two_carts()
    found = observability(f, (np.zeros(4), None), ["a"])
    assert found.rank == 2
    assert found.combinations() == [{"b": 1.0}, {"v.b": 1.0}]
    both = observability(f, (np.zeros(4), None), np.array([[1.0, 1.0, 0, 0]]))  # a + b: the sum is seen
    assert both.rank == 2
    assert [set(c) for c in both.combinations()] == [{"a", "b"}, {"v.a", "v.b"}]
    assert all(sum(c.values()) == pytest.approx(0, abs=1e-12) for c in both.combinations())
    assert "outputs show 2 of 4 directions of the full state: not observable" in str(both)
    assert "never seen in outputs (to first order):" in str(both)
    run = f.rollout([0, 0, 1, 0], steps=12)
    assert observability(f, run, ["b", "a"]).rank == 4


def test_information_is_what_least_squares_has():
    f = midpoint_pendulum()
    run = f.rollout([0.3, 0.2], steps=25)
    found = observability(f, run, "theta", noise=0.02)
    rows, Phi = [], np.eye(2)
    for k in range(26):
        rows.append(Phi[0] / 0.02)
        if k < 25:
            Phi = f.linearize(run.x[k], run.u[k]).A @ Phi
    information = np.array(rows).T @ np.array(rows)
    np.testing.assert_allclose(found.gramian, information, rtol=1e-10)
    gains = [d.gain for d in found.directions()]
    np.testing.assert_allclose(np.square(gains), np.linalg.eigvalsh(information)[::-1], rtol=1e-9)
    scaled = observability(f, run, "theta", noise=0.02, scales={"theta": 0.1}).directions()
    s = np.array([0.1, 1.0])
    expected = np.linalg.eigvalsh(information * np.outer(s, s))[::-1]
    np.testing.assert_allclose([d.gain**2 for d in scaled], expected, rtol=1e-9)


def test_directions_are_eigenvectors_in_the_units_given():
    f = cart_pole()
    scales = {"x": 0.5, "theta": 0.1, "v.theta": 2.0}
    found = controllability(f, (np.zeros(4), None), scales=scales, steps=80, R={"force": 4.0})
    s = np.array([0.5, 0.1, 1.0, 2.0])
    A, B = f.linearize(np.zeros(4), np.zeros(1))
    W = sum(np.linalg.matrix_power(A, k) @ B @ B.T @ np.linalg.matrix_power(A, k).T for k in range(80)) / 4.0
    np.testing.assert_allclose(found.gramian, W, rtol=1e-9)
    values = np.linalg.eigvalsh(W / np.outer(s, s))[::-1]
    np.testing.assert_allclose([d.gain**2 for d in found.directions()], values, rtol=1e-6)
    d = found.least(1)[0]
    assert sum(w * w for w in d.weights.values()) == pytest.approx(1)
    # one unit of energy goes exactly that far
    target = {n: w * d.gain * scales.get(n, 1.0) for n, w in d.weights.items()}
    plan = found.steer(target)
    assert plan.energy == pytest.approx(1.0, rel=1e-6)
    assert 4.0 * (plan.u**2).sum() == pytest.approx(1.0, rel=1e-6)


def test_steering_moves_the_map_itself():
    f = midpoint_pendulum()
    run = f.rollout([0.2, 0.0], steps=60)
    found = controllability(f, run)
    small = 1e-4
    moved = f.rollout(run.x[0], run.u + found.steer({"theta": small}).u)
    np.testing.assert_allclose(moved.x[-1] - run.x[-1], [small, 0], atol=1e-3 * small)


# -- on the manifold ------------------------------------------------------------------------------


def test_constraints_hide_nothing_on_the_manifold():
    f = rod()
    q = f.system.variables
    hanging = f.state_from_configurations({"x": 0.0, "y": -1.0}, {"x": 0.0, "y": -1.0})
    np.testing.assert_allclose(f.step(hanging), hanging, atol=1e-12)
    on = controllability(f, (hanging, None))
    off = controllability(f, (hanging, None), manifold=False)
    assert (on.rank, on.size, on.manifold) == (2, 2, True)
    assert (off.rank, off.size) == (2, 4)
    assert off.combinations() == [{"y": 1.0}, {"p.y": 1.0}]
    assert {n for n, share in off.shares.items() if share > 0.5} == {"y", "p.y"}
    assert set(q) == {"x", "y"}
    mode = modes(f, (hanging, None))[0]
    # the rod's force acts at the samples: x[k+1] - 2 x[k] + x[k-1] = -g dt^2 x[k]
    omega = 2 / f.dt * np.arcsin(np.sqrt(9.8) * f.dt / 2)
    assert 2 * np.pi * mode.frequency == pytest.approx(omega, rel=1e-8)
    assert set(mode.largest()) == {"x", "p.x"}
    run = f.rollout(f.state_from_configurations({"x": 0.6, "y": -0.8}, {"x": 0.6, "y": -0.8}), steps=20)
    assert controllability(f, run).rank == 2


def test_prescribed_motion_reaches_what_hangs_from_it():
    hung = System(tz(K("hook"))[ty(D("bob"), name="bob", mass=Mass(1.0))], name="hung")
    f = MidpointVI(hung, 0.1)
    rest = f.initial_state()
    found = controllability(f, (rest, None))
    assert {n for n, share in found.shares.items() if share > 0.5} == {
        "bob",
        "p.bob",
    }  # the hook moves along z


# -- modes and multipliers ------------------------------------------------------------------------


def test_modes_of_a_damped_oscillator():
    w, zeta, h = 7.0, 0.15, 0.02
    from scipy.linalg import expm

    A = expm(h * np.array([[0, 1], [-w * w, -2 * zeta * w]]))
    x, u = ca.SX.sym("x", 2), ca.SX.sym("u")
    f = CasadiMap(ca.Function("f", [x, u], [ca.DM(A) @ x + u]), dt=h, state_names=("q", "v"))
    found = modes(f, (np.zeros(2), None))
    assert len(found) == 1
    mode = found[0]
    assert 2 * np.pi * mode.frequency == pytest.approx(w * np.sqrt(1 - zeta**2), rel=1e-10)
    assert mode.damping_ratio == pytest.approx(zeta, rel=1e-10)
    assert mode.time_constant == pytest.approx(1 / (zeta * w), rel=1e-10)
    assert mode.shape["q"] / mode.shape["v"] == pytest.approx(1 / (-zeta * w + 1j * w * np.sqrt(1 - zeta**2)))
    assert found.stability == "asymptotically stable"
    assert "decays" in str(found)


def test_an_equilibrium_far_from_zero_is_known_relative_to_where_it_is():
    """Found to 1e-11 of its place, one that grows by 1e-7 a step grows: the step there is 1e-6 long."""
    place, rate = 1e6, 1e-7
    x, u = ca.SX.sym("x", 2), ca.SX.sym("u", 0)
    step = ca.vertcat(place + (1 + rate) * (x[0] - place), 0.5 * x[1])
    f = CasadiMap(ca.Function("far", [x, u], [step]), dt=0.1)
    found = modes(f, ([place + 10.0, 0.0], None))
    assert [m.stability for m in found] == ["grows", "decays"] and found.stability == "unstable"


def test_stability_verdicts():
    assert modes(midpoint_pendulum(), ([0, 0], None)).stability == "marginal"
    assert modes(midpoint_pendulum(), ([np.pi, 0], None)).stability == "unstable"
    f = cart_pole()
    loop = dlqr(f, (np.zeros(4), None), 1.0, 1.0)
    closed = modes(f, loop, gain=loop.K)
    assert closed.spectral_radius == pytest.approx(np.abs(loop.poles).max(), rel=1e-9)


def test_mathieus_stability_boundary():
    # y'' + (a - 2 q cos 2t) y = 0 has the multiplier 1 over pi on a_0(q), a_2(q), -1 on a_1(q)
    N, q = 400, 1.3
    h = np.pi / N
    x, u, t = ca.SX.sym("x", 2), ca.SX.sym("u", 0), ca.SX.sym("t")
    dt, a = ca.SX.sym("dt"), ca.SX.sym("a")

    def rate(y, time):
        return ca.vertcat(y[1], -(a - 2 * q * ca.cos(2 * time)) * y[0])

    k1 = rate(x, t)
    k2 = rate(x + h / 2 * k1, t + h / 2)
    k3 = rate(x + h / 2 * k2, t + h / 2)
    k4 = rate(x + h * k3, t + h)
    step = ca.Function("mathieu", [x, u, t, dt, a], [x + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)])
    f = CasadiMap(step, dt=h, parameters={"a": 0.0})
    for order, multiplier in ((0, 1.0), (1, -1.0), (2, 1.0)):
        g = f.with_parameters(a=float(mathieu_a(order, q)))
        found = floquet(g, g.rollout(np.zeros(2), steps=N))
        assert np.abs(found.eigenvalues - multiplier).max() < 2e-4  # a double one: error^(1/2)
        assert abs(np.prod(found.eigenvalues) - 1) < 1e-8
        assert abs(np.sum(found.eigenvalues).real - 2 * multiplier) < 1e-8
    g = f.with_parameters(a=2.5)
    columns = [
        solve_ivp(
            lambda s, y: [y[1], -(2.5 - 2 * q * np.cos(2 * s)) * y[0]], (0, np.pi), e, rtol=1e-11, atol=1e-12
        ).y[:, -1]
        for e in np.eye(2)
    ]
    found = floquet(g, g.rollout(np.zeros(2), steps=N))
    expected = np.linalg.eigvals(np.array(columns).T)
    np.testing.assert_allclose(np.sort_complex(found.eigenvalues), np.sort_complex(expected), atol=1e-7)
    assert found.period == pytest.approx(np.pi)


def test_floquet_on_the_manifold_and_what_is_not_periodic():
    f = rod()
    hanging = f.state_from_configurations({"x": 0.0, "y": -1.0}, {"x": 0.0, "y": -1.0})
    found = floquet(f, f.rollout(hanging, steps=10))
    steady = modes(f, (hanging, None)).eigenvalues
    np.testing.assert_allclose(np.sort_complex(found.eigenvalues), np.sort_complex(steady**10), atol=1e-9)
    g = midpoint_pendulum()
    with pytest.raises(ValueError, match=r"not periodic: p.theta ends"):
        floquet(g, g.rollout([0.5, 0], steps=7))
    with pytest.raises(ValueError, match="use `floquet`"):
        modes(g, g.rollout([0.5, 0], steps=7))


# -- brackets -------------------------------------------------------------------------------------


def flow(n, m, rhs):
    x, u = ca.SX.sym("x", n), ca.SX.sym("u", m)
    return ca.Function("flow", [x, u], [ca.vertcat(*rhs(x, u))])


@pytest.mark.parametrize(("count", "witt"), [(2, [2, 1, 2, 3, 6, 9]), (3, [3, 3, 8, 18, 48])])
def test_hall_basis_has_witts_dimensions(count, witt):
    def size(tree):
        return sum(map(size, tree)) if isinstance(tree, tuple) else 1

    sizes = [size(tree) for tree in hall_basis(count, len(witt))]
    assert [sizes.count(d + 1) for d in range(len(witt))] == witt


def test_textbook_systems():
    unicycle = flow(3, 2, lambda x, u: (u[0] * ca.cos(x[2]), u[0] * ca.sin(x[2]), u[1]))
    found = accessibility(unicycle, [0.1, 0.2, 0.3], degree=2)
    assert found.ranks == (2, 3)
    assert found.locally_controllable
    trailer = flow(
        5,
        2,
        lambda x, u: (
            u[0] * ca.cos(x[2]),
            u[0] * ca.sin(x[2]),
            u[0] * ca.tan(x[3]),
            u[1],
            u[0] * ca.sin(x[2] - x[4]),
        ),
    )
    assert accessibility(trailer, [0, 0, 0.1, 0.2, 0]).ranks == (2, 3, 4, 5)
    # x2' = x1^2 only grows; x2' = x1^3 does not (Sussmann)
    square = accessibility(flow(2, 1, lambda x, u: (u[0], x[0] ** 2)), [0, 0])
    assert square.strongly_accessible
    assert square.obstructions == ("[g1,[f0,g1]]",)
    assert square.locally_controllable is None
    assert "locally_controllable is undecided" in str(square)
    for theta in (0.5, (np.nan,), (1.0, np.inf), ()):
        with pytest.raises(ValueError, match="theta: expected finite numbers >= 1"):
            accessibility(flow(1, 1, lambda x, u: (u[0],)), [0], theta=theta)
    cube = accessibility(flow(2, 1, lambda x, u: (u[0], x[0] ** 3)), [0, 0], degree=5)
    assert cube.locally_controllable and "\nlocally_controllable in small time" in str(cube)
    away = accessibility(flow(2, 1, lambda x, u: (u[0], x[0] ** 3)), [1, 0], degree=5)
    assert not away.equilibrium
    assert away.locally_controllable is None


def test_brackets_of_a_linear_system_are_kalmans():
    rng = np.random.default_rng(4)
    A, B = rng.standard_normal((4, 4)), rng.standard_normal((4, 1))
    linear = flow(4, 1, lambda x, u: ca.vertsplit(ca.DM(A) @ x + ca.DM(B) @ u))
    found = accessibility(linear, np.zeros(4))
    assert found.ranks == (1, 2, 3, 4)
    assert found.locally_controllable
    values = {b.name: b.value for b in found.brackets}
    np.testing.assert_allclose(np.abs(values["[f0,g1]"]), np.abs(A @ B[:, 0]), rtol=1e-12)
    idle = flow(2, 1, lambda x, u: (u[0], 0 * x[0]))
    found = accessibility(idle, [0, 0])
    assert not found.accessible and found.closed
    assert "1 quantity is conserved whatever the inputs do" in str(found)


def test_conserved_quantities_are_told_from_a_degree_that_is_too_low():
    wheels = [vioc.ry("a", mass=(1.0, 0.1, 0.1, 0.1)), vioc.rz("b", mass=(1.0, 0.1, 0.1, 0.1))]
    bus = vioc.rx("q", mass=(2.0, 0.3, 0.4, 0.5))
    turning = vioc.System(bus[wheels[0], wheels[1]], JointForce("a", "u"), JointForce("b", "w"))
    rates = vioc.Continuous(turning).rates
    found = accessibility(rates, 0.3 * np.arange(1, 1 + rates.numel_in(0)), degree=4)
    assert not found.accessible and found.closed and "conserved whatever the inputs do" in str(found)

    chain = flow(4, 1, lambda x, u: (u[0], x[0], x[1], x[2]))  # one more bracket, one more state
    for degree in (2, 3):
        found = accessibility(chain, [0.1, 0.2, 0.3, 0.4], degree=degree)
        assert found.closed is False and (found.accessible or "higher degree may show more" in str(found))
    assert accessibility(chain, [0.1, 0.2, 0.3, 0.4], degree=4).accessible


def test_rates_of_a_mechanism():
    f = MidpointVI(vioc.models.load("cart_pole"), 0.01)
    dynamics = vioc.Continuous(f.system)
    q, v, u = [0.1, 0.4], [0.3, -0.2], [1.5]
    moved = np.array(dynamics.rates([*q, *v], u)).ravel()
    np.testing.assert_allclose(moved, [*v, *dynamics.forward(q, v, u).accelerations], rtol=1e-13)
    assert accessibility(dynamics.rates, np.zeros(4)).accessible
    with pytest.raises(ValueError, match=r"got MidpointVI.*vioc.Continuous\(f.system\)"):
        accessibility(f, np.zeros(4))
    told = System(vioc.tx(K("x"))[vioc.ry("theta")[tz(0.5, mass=1.0)]])
    with pytest.raises(ValueError, match="got the kinematic x"):
        _ = vioc.Continuous(told).rates


def test_what_constraints_hold_is_not_asked_for():
    """A blade that is pushed and turned reaches all that it may; a loop with a motor, too."""
    edge = Skate("sled", across=(0, 1, 0), direction_in="sled")
    push = vioc.WrenchInput("sled", "push", (1.0, 0.0, 0.0)), JointForce("yaw", "turn")
    frame = vioc.tx("x")[vioc.ty("y")[vioc.rz("yaw", name="sled", mass=(1.0, 0.1, 0.1, 0.1))]]
    sled = vioc.Continuous(System(frame, edge, *push))
    found = accessibility(sled, np.zeros(6))
    assert (found.size, found.held, found.ranks[-1]) == (5, 1, 5) and found.locally_controllable
    assert not accessibility(sled.rates, np.zeros(6)).accessible  # all six, which the blade forbids
    with pytest.raises(ValueError, match="constraints are off by 1 there; consistent_configuration finds"):
        accessibility(sled, [0, 0, 0, 0, 1, 0])  # sideways

    crank = vioc.ry("crank")[vioc.tx(0.4, mass=0.3)[vioc.ry("rod")[vioc.tx(1.0, name="end", mass=0.5)]]]
    rocker = vioc.tx(1.0)[vioc.ry("rocker")[vioc.tx(0.8, name="tip", mass=0.3)]]
    loop = System(crank, rocker, Gravity(0, 0, -9.81), vioc.coincident("end", "tip", axes="xz"))
    q = vioc.consistent_configuration(loop, {"crank": 0.7, "rocker": -1.5}, fixed=["crank"]).q
    x = np.r_[q, 0 * q]
    free = accessibility(vioc.Continuous(loop), x, degree=3)
    assert free.closed and "1 quantity is conserved" in str(free)  # energy
    driven = accessibility(vioc.Continuous(loop.with_components(JointForce("crank", "torque"))), x, degree=3)
    assert driven.strongly_accessible and str(driven).startswith("rank 2 of 2 on the constraint manifold by")


UNITS = [(1.0, 1.0, 1.0), (1e3, 1e3, 1.0), (1e-3, 1e-6, 1e3), (1.0, 1e-9, 1e-3), (1e6, 1.0, 60.0)]


@pytest.mark.parametrize(("metre", "kilogram", "second"), UNITS)
def test_accessibility_is_the_same_in_other_units(metre, kilogram, second):
    """A cart with a pole, and a four-bar."""
    g = 9.81 * metre / second**2
    mass = kilogram, *3 * (0.1 * kilogram * metre**2,)
    cart = vioc.tx("x", mass=2.0 * kilogram)[vioc.ry("theta")[tz(0.5 * metre, mass=mass)]]
    dynamics = vioc.Continuous(System(cart, Gravity(0, 0, -g), JointForce("x", "push")))
    upright = accessibility(dynamics, np.zeros(4))
    assert upright.ranks == (1, 2, 3, 4) and upright.equilibrium and upright.locally_controllable
    leaning = accessibility(dynamics, [0, 1e-3, 0, 0])
    assert leaning.strongly_accessible and not leaning.equilibrium
    moving = accessibility(dynamics, [0, 0, 1e-3 * metre / second, 0])
    assert moving.strongly_accessible and not moving.equilibrium
    free = accessibility(vioc.Continuous(System(cart, Gravity(0, 0, -g))), [0, 0.3, 0, 0], degree=3)
    assert (free.ranks, free.closed) == ((1, 1, 1), True)

    crank = vioc.ry("crank")[
        vioc.tx(0.4 * metre, mass=mass)[vioc.ry("rod")[vioc.tx(metre, name="end", mass=mass)]]
    ]
    rocker = vioc.tx(1.0 * metre)[vioc.ry("rocker")[vioc.tx(0.8 * metre, name="tip", mass=mass)]]
    loop = System(crank, rocker, Gravity(0, 0, -g), vioc.coincident("end", "tip", axes="xz"))
    loop = loop.with_components(JointForce("crank", "torque"))
    q = vioc.consistent_configuration(loop, {"crank": 0.7, "rocker": -1.5}, fixed=["crank"]).q
    driven = accessibility(vioc.Continuous(loop), np.r_[q, 0 * q], degree=3)
    assert (driven.size, driven.held, driven.strongly_accessible) == (2, 4, True)
    off = q + [0, 1e-6, 0]
    with pytest.raises(ValueError, match="constraints are off"):
        accessibility(vioc.Continuous(loop), np.r_[off, 0 * q])


def test_accessibility_takes_an_equilibrium_and_the_input_that_holds_it():
    """A pole at rest at 30 degrees is one only with its motor's torque; a state of a map has momenta."""
    pole = System(vioc.ry("theta")[tz(0.5, mass=2.0)], Gravity(0, 0, -9.81), JointForce("theta", "torque"))
    dynamics, f = vioc.Continuous(pole), MidpointVI(pole, 0.01)
    held = equilibrium(f, theta=np.pi / 6)
    assert accessibility(dynamics, held).locally_controllable
    assert accessibility(dynamics, [np.pi / 6, 0], u=held.u).locally_controllable
    assert not accessibility(dynamics, [np.pi / 6, 0]).equilibrium
    with pytest.raises(ValueError, match=r"u: expected shape \(1,\)"):
        accessibility(dynamics, held, u=[1.0, 2.0])


def test_a_force_without_effect_does_not_control():
    """Forces perpendicular to a slide and along a hinge, both oblique: only rounding errors move them."""
    c, s = np.cos([0.3, 0.5]), np.sin([0.3, 0.5])
    normal = (s[0] * s[1], -c[0] * s[1], c[1])  # of the plane that rz(0.3), rx(0.5) turn into
    push = vioc.WrenchInput("bob", "push", normal, (0, 0, 0), "hybrid")
    slide = vioc.rz(0.3)[vioc.rx(0.5)[vioc.ty("b", name="bob", mass=1.0)]]
    pair = System(vioc.tx("a", mass=1.0), slide, JointForce("a", "u"), push)
    found = accessibility(vioc.Continuous(pair), np.zeros(4))
    assert found.ranks[-1] == 2 and not found.accessible
    hinge = vioc.rz(0.3)[vioc.rx(0.5)[vioc.ry("b")[vioc.tx(0.7, name="bob", mass=1.0)]]]
    along = (-s[0] * c[1], c[0] * c[1], s[1])  # the axis of the hinge
    turning = System(hinge, Gravity(0, 0, -9.81), vioc.WrenchInput("bob", "push", along, (0, 0, 0), "hybrid"))
    found = accessibility(vioc.Continuous(turning), [0.4, 0.0], degree=3)
    assert not found.accessible and found.closed


def test_a_light_pole_on_a_heavy_cart_is_controllable():
    cart = vioc.tx("x", mass=2.0)[vioc.ry("theta")[tz(0.5, mass=1e-12)]]
    dynamics = vioc.Continuous(System(cart, Gravity(0, 0, -9.81), JointForce("x", "push")))
    assert accessibility(dynamics, np.zeros(4)).locally_controllable
    assert not accessibility(dynamics, [0, 1e-3, 0, 0]).equilibrium


def test_symmetrization_cancels():
    # x3' = x1 x2: the bad brackets of g1, g1 and g2, g2 vanish; of x1^2 - x2^2 they cancel each other
    both = flow(3, 2, lambda x, u: (u[0], u[1], x[0] ** 2 - x[1] ** 2))
    found = accessibility(both, np.zeros(3))
    assert found.obstructions == ()
    assert found.locally_controllable
    one = accessibility(flow(3, 2, lambda x, u: (u[0], u[1], x[0] ** 2 + x[1] ** 2)), np.zeros(3))
    assert one.obstructions


def test_bracket_refusals():
    with pytest.raises(ValueError, match="not affine in u"):
        accessibility(flow(1, 1, lambda x, u: (u[0] ** 2,)), [0])
    with pytest.raises(ValueError, match="expected a casadi.Function"):
        accessibility(lambda x, u: x, [0])
    with pytest.raises(ValueError, match="degree"):
        accessibility(flow(1, 1, lambda x, u: (u[0],)), [0], degree=0)


def test_refusals():
    f = cart_pole()
    with pytest.raises(
        ValueError, match=r"not an equilibrium: one step moves v.theta by .*give a trajectory"
    ):
        controllability(f, ([0, 0.5, 0, 0], None))
    with pytest.raises(ValueError, match="scales: unknown name 'phi'"):
        controllability(f, (np.zeros(4), None), scales={"phi": 1})
    with pytest.raises(ValueError, match="scales: expected sizes > 0, got 0 for 'theta'"):
        controllability(f, (np.zeros(4), None), scales={"theta": 0})
    with pytest.raises(ValueError, match=r"'u.force' belongs to a step"):
        observability(f, (np.zeros(4), None), ["u.force"])
    with pytest.raises(ValueError, match="steps"):
        controllability(f, (np.zeros(4), None), steps=0)
    with pytest.raises(ValueError, match="not those of the map"):
        controllability(f, double_integrator().rollout([0, 0], steps=3))
    x = ca.SX.sym("x", 2)
    mute = CasadiMap(ca.Function("f", [x, ca.SX.sym("u", 0)], [0.5 * x]), dt=0.1)
    with pytest.raises(ValueError, match="no inputs"):
        controllability(mute, (np.zeros(2), None))
    assert observability(mute, (np.zeros(2), None), "x0").rank == 1
    with pytest.raises(ValueError, match="has no inputs"):
        observability(mute, (np.zeros(2), None), "x0").steer({"x0": 1})
    with pytest.raises(ValueError, match="gain: expected shape"):
        modes(f, (np.zeros(4), None), gain=np.ones((2, 2)))


def test_some_of_the_inputs():
    x, u = ca.SX.sym("x", 2), ca.SX.sym("u", 2)
    f = CasadiMap(
        ca.Function("f", [x, u], [x + u]), dt=0.1, state_names=("a", "b"), input_names=("to_a", "to_b")
    )
    eq = (np.zeros(2), None)
    assert controllability(f, eq).complete
    one = controllability(f, eq, inputs="to_b", R={"to_b": 2.0})
    assert one.shares == pytest.approx({"a": 1.0, "b": 0.0})
    assert one.steer({"b": 1.0}).u == pytest.approx(np.tile([0, 0.01], (100, 1)))
    assert one.energy({"b": 1.0}) == pytest.approx(100 * 2.0 * 0.01**2)
    with pytest.raises(ValueError, match="inputs: unknown name 'to_c'"):
        controllability(f, eq, inputs=["to_c"])


def test_bad_brackets_longer_than_all_that_were_looked_at_leave_it_open():
    """By theta = 1000 the longer ones are of so low a degree that they come before the rank is full."""
    x, u = ca.SX.sym("x", 5), ca.SX.sym("u")
    rates = ca.vertcat(u, x[0], x[1], x[2] + x[0] ** 2, x[1] ** 2 + x[0] ** 3)
    f = ca.Function("rates", [x, u], [rates])
    for degree in (4, 5, 6):
        found = accessibility(f, np.zeros(5), degree=degree, theta=(1e3,))
        assert found.strongly_accessible and found.locally_controllable is None
