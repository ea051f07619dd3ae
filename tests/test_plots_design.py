"""Plots of designs and studies against other routes: simulation, scipy, python-control, least squares."""

import matplotlib.pyplot as plt
import numpy as np
import pytest
import scipy.signal

from vioc import (
    DistanceConstraint,
    Gravity,
    JointDamping,
    JointForce,
    MidpointVI,
    System,
    models,
    ry,
    tz,
    viz,
)
from vioc.control import (
    controllability,
    dlqr,
    feedback,
    frequency_response,
    modes,
    observability,
    region_of_attraction,
)
from vioc.control.analysis import Attraction, FrequencyResponse, LyapunovLevel

# inside: transfer functions of matrices, and phases without a picture
from vioc.control.analysis.frequency import transfer
from vioc.errors import ModelError
from vioc.sweeps import grid, sweep
from vioc.viz.plots.linear_plots import _phase

Q = {"x": 10, "theta": 10, "p.x": 1, "p.theta": 1}


@pytest.fixture(scope="module")
def f():
    return MidpointVI(models.load("cart_pole"), 0.02)


@pytest.fixture(scope="module")
def upright(f):
    return feedback.equilibrium(f, theta=0.0)


@pytest.fixture(scope="module")
def loop(f, upright):
    return dlqr(f, upright, Q, 0.1)


def labels(axes):
    return [t.get_text() for t in axes.get_legend().get_texts()]


# -- frequency responses ------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::scipy.signal.BadCoefficients")  # of its polynomials
def test_response_is_that_of_scipy(f, upright, loop):
    found = frequency_response(f, upright, ["x", "theta"], gain=loop)
    A, B = f.linearize(upright.x, upright.u)
    system = scipy.signal.StateSpace(A - B @ loop.K, B, np.eye(4)[1:2], np.zeros((1, 1)), dt=f.dt)
    _, expected = scipy.signal.dfreqresp(system, 2 * np.pi * f.dt * found.frequencies[:-1])
    ours = found.of("theta")[:-1]
    assert np.abs(ours - expected).max() < 1e-9 * np.abs(expected).max()  # scipy goes by polynomials
    _, decibel, _ = scipy.signal.dbode(system, 2 * np.pi * f.dt * found.frequencies[:-1])
    magnitude, phase = found.plot("theta")
    near = np.abs(ours) > 1e-4 * np.abs(ours).max()
    assert np.allclose(magnitude.lines[0].get_ydata()[:-1][near], decibel[near], atol=1e-3)
    turned = (phase.lines[0].get_ydata()[:-1] - np.degrees(np.angle(expected))) % 360
    assert np.minimum(turned, 360 - turned)[near].max() < 1e-2
    assert np.abs(np.diff(phase.lines[0].get_ydata()[:-1])).max() < 90


@pytest.mark.peer
def test_response_is_that_of_python_control(f, upright, loop):
    control = pytest.importorskip("control")
    found = frequency_response(f, upright, ["x", "theta"], gain=loop)
    A, B = f.linearize(upright.x, upright.u)
    system = control.ss(A - B @ loop.K, B, np.eye(4)[:2], np.zeros((2, 1)), f.dt)
    expected = control.frequency_response(system, 2 * np.pi * found.frequencies).complex
    expected = np.moveaxis(np.reshape(expected, (2, 1, -1)), -1, 0)
    assert np.abs(found.values - expected).max() < 1e-12 * np.abs(expected).max()
    sigma = control.singular_values_response(system, 2 * np.pi * found.frequencies).magnitude
    assert np.allclose(found.singular_values().T, np.reshape(sigma, (1, -1)), rtol=1e-9, atol=1e-15)


def test_response_is_what_the_mechanism_does(f, upright, loop):
    """A small sinusoid added to the input of the nonlinear closed loop, against G at its frequency."""
    per_period, size = 50, 1e-4
    frequency = 1 / (per_period * f.dt)
    U = size * np.cos(2 * np.pi * np.arange(12 * per_period) / per_period)
    x, thetas = upright.x, []
    for u in U:
        thetas.append(x[f.state_names.index("theta")])
        x = f.step(x, upright.u - loop.K @ (x - upright.x) + u)
    k = np.arange(len(U) - 2 * per_period, len(U))
    measured = 2 * np.mean(np.array(thetas)[k] * np.exp(-2j * np.pi * k / per_period)) / size
    expected = frequency_response(f, upright, "theta", gain=loop, frequencies=frequency).of()[0]
    assert abs(measured - expected) < 1e-4 * abs(expected)


def test_singular_values_of_several_and_their_scales():
    rng = np.random.default_rng(0)
    A, B, C = 0.3 * rng.standard_normal((4, 4)), rng.standard_normal((4, 2)), rng.standard_normal((3, 4))
    G = transfer(A, B, C, np.array([0.1]))[0]
    series = sum(C @ np.linalg.matrix_power(A, k) @ B * np.exp(-0.2j * np.pi * (k + 1)) for k in range(400))
    assert np.allclose(G, series, atol=1e-12)
    plain = FrequencyResponse.from_matrices(A, B, C, 0.5, frequencies=0.2)
    assert np.allclose(plain.of("y2", "v1"), G[2, 1]) and plain.outputs == ("y0", "y1", "y2")
    for wrong in ((A[:3], B, C, 0.5), (A, B[:3], C, 0.5), (A, B, C[:, :3], 0.5), (A, B, C, 0.0)):
        with pytest.raises(ValueError, match="expected"):
            FrequencyResponse.from_matrices(*wrong)
    found = frequency_response(*two_inputs(), ["a", "b"])
    scaled = found.singular_values({"a": 0.1}, {"u1": 2.0})
    expected = found.values[7] * [2.0, 1.0] / np.array([[0.1], [1.0]])
    assert np.allclose(scaled[7], np.linalg.svd(expected)[1])
    (axes,) = found.plot(input_scales={"u1": 2.0})
    assert labels(axes) == [r"$\sigma_{1}$", r"$\sigma_{2}$"]
    assert "Nyquist, 10 Hz" in axes.get_xlabel()
    panels = found.plot("a", "u.u2")
    assert panels[0].get_ylabel() == "|a / u2|\n(dB of rad/(N m))"


def two_inputs():
    arm = ry("a", mass=1.0)[tz(-1.0, mass=1.0)[ry("b")[tz(-1.0, mass=1.0)]]]
    forces = JointForce("a", "u1"), JointForce("b", "u2"), JointDamping("a", 0.5), JointDamping("b", 0.5)
    f = MidpointVI(System(Gravity(0, 0, -9.8), arm, *forces), 0.05)
    return f, (f.initial_state(), None)


def test_a_resonance_is_met_and_its_phase_falls(f):
    hanging = feedback.equilibrium(f, force=0.0, guess={"theta": 3.0})
    found = frequency_response(f, hanging, "theta")
    swing = next(m for m in modes(f, hanging) if m.frequency > 0)
    peak = found.frequencies[np.nanargmax(np.abs(found.of()))]
    assert abs(peak / swing.frequency - 1) < 1e-3
    magnitude, phase = found.plot()
    shown = phase.lines[0].get_ydata()
    assert shown.max() <= 1.0 and abs(shown[np.searchsorted(found.frequencies, peak) + 2] + 180) < 15
    assert np.isnan(magnitude.lines[0].get_ydata()[-1])  # the midpoint rule has a zero at Nyquist


def test_half_turns_fall_at_peaks_and_rise_at_dips():
    w = np.linspace(0.05, 2.0, 300)
    peak, dip = 1 / (1 - w**2), (1 - w**2) / 5
    assert np.array_equal(np.unique(np.round(_phase(peak + 0j))), [-180.0, 0.0])
    assert np.array_equal(np.unique(np.round(_phase(dip + 0j))), [0.0, 180.0])
    met = np.where(np.arange(300) == 150, np.inf, peak + 0j)
    assert np.array_equal(np.isnan(_phase(met)), np.arange(300) == 150)


def test_a_pole_that_is_met_exactly_is_infinite():
    G = transfer(np.array([[-1.0]]), np.ones((1, 1)), np.ones((1, 1)), np.array([0.25, 0.5]))
    assert abs(G[0, 0, 0]) < 1 and abs(G[1, 0, 0]) > 1e15  # exp(i pi) is -1 up to rounding
    assert np.isinf(transfer(np.eye(1), np.ones((1, 1)), np.ones((1, 1)), np.zeros(1))).all()


def test_responses_are_asked_for_by_name(f, upright, loop):
    found = frequency_response(
        f, upright, ["x", "theta"], inputs="u.force", gain=loop, frequencies=[2.0, 1.0]
    )
    assert list(found.frequencies) == [1.0, 2.0] and "force to x, theta; 2 frequencies" in repr(found)
    with pytest.raises(ValueError, match="output: expected one of x, theta"):
        found.of()
    with pytest.raises(ModelError, match="did you mean 'theta'"):
        found.plot("teta")
    for wrong in (0.0, 26.0, [[1.0]], np.nan, []):
        with pytest.raises(ValueError, match="frequencies"):
            frequency_response(f, upright, "x", frequencies=wrong)
    with pytest.raises(ValueError, match="expected an equilibrium"):
        frequency_response(f, f.rollout(upright.x, steps=3), "x")


def test_responses_on_a_constraint_manifold():
    """A slider that a rod holds at its length is a pendulum."""
    force = JointForce("theta", "torque")
    plain = MidpointVI(System(Gravity(0, 0, -9.8), ry("theta")[tz(-1.0, mass=1.0)], force), 0.02)
    rod = DistanceConstraint("bob", "world", 1.0, name="rod")
    held = MidpointVI(
        System(Gravity(0, 0, -9.8), ry("theta")[tz("r", name="bob", mass=1.0)], force, rod), 0.02
    )
    rest = feedback.equilibrium(held, torque=0.0, guess={"r": -1.0})
    asked = np.array([0.1, 0.5, 2.0, 10.0])
    one = frequency_response(plain, (plain.initial_state(), None), "theta", frequencies=asked)
    two = frequency_response(held, rest, "theta", frequencies=asked)
    assert np.allclose(one.values, two.values, rtol=1e-7)


# -- Gramian ellipses -----------------------------------------------------------------------------------


def test_the_ellipse_is_what_inputs_of_unit_energy_reach(f, upright):
    """The farthest point along any direction, by the input that solves the linear problem exactly."""
    report = controllability(f, upright, steps=30)
    A, B = f.linearize(upright.x, upright.u)
    reach = np.hstack([np.linalg.matrix_power(A, 29 - k) @ B for k in range(30)])  # from (30,) inputs
    pair = [f.state_names.index(n) for n in ("x", "p.theta")]
    edge = report.ellipse("x", "p.theta", level=4.0)
    size = np.abs(edge).max(axis=0)
    for a in np.linspace(0, np.pi, 7):
        d = np.array([np.cos(a), np.sin(a)]) / size
        u = d @ reach[pair]
        far = reach[pair] @ (2 * u / np.linalg.norm(u))  # energy 4
        assert abs((edge @ d).max() / (far @ d) - 1) < 1e-3  # 200 points of the ellipse
    for target in report.ellipse("x", "p.theta", level=4.0, section=True, points=5):
        z = dict(zip(("x", "p.theta"), target, strict=True))
        assert abs(report.energy(z) / 4.0 - 1) < 1e-6


def test_the_ellipse_of_an_observer_is_the_deviation_of_least_squares(f, upright):
    report = observability(f, upright, ["x", "theta"], noise=0.01, steps=40)
    A, _ = f.linearize(upright.x, upright.u)
    rows = np.vstack([np.eye(4)[:2] @ np.linalg.matrix_power(A, k) for k in range(41)]) / 0.01
    pair = [f.state_names.index(n) for n in ("theta", "p.theta")]
    covariance = np.linalg.inv(rows.T @ rows)[np.ix_(pair, pair)]
    edge = report.ellipse("theta", "p.theta")
    assert np.allclose(np.einsum("ki,ij,kj->k", edge, np.linalg.inv(covariance), edge), 1.0, rtol=1e-6)
    known = report.ellipse("theta", "p.theta", section=True)
    assert np.allclose(np.linalg.norm(known @ rows[:, pair].T, axis=1), 1.0, rtol=1e-6)


def test_what_never_shows_has_no_ellipse(f, upright):
    report = observability(f, upright, "theta")
    with pytest.raises(ValueError, match="not bounded, a part of 'x' never shows"):
        report.plot("theta", "x")
    assert not plt.get_fignums()
    arms = (ry(n)[tz(-1.0, mass=1.0)] for n in "ab")
    apart = MidpointVI(System(Gravity(0, 0, -9.8), *arms, JointForce("a", "u")), 0.02)
    report = observability(apart, (apart.initial_state(), None), "a", noise=0.1)
    assert report.rank == 2 and np.isfinite(report.ellipse("a", "p.a")).all()  # b has no part in these two
    with pytest.raises(ValueError, match="part of 'p.b' never shows"):
        report.ellipse("a", "p.b", section=True)


def test_gramian_plots_have_units_and_say_the_energy(f, upright):
    report = controllability(f, upright, steps=30)
    axes = report.plot("x", "p.theta", level=2.0)
    for line, section in zip(axes.lines[-2:], (False, True), strict=True):
        expected = report.ellipse("x", "p.theta", level=2.0, section=section)
        assert np.array_equal(line.get_xydata(), expected)
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("x (m)", "p.theta (kg m²/s)")
    assert labels(axes) == ["reached", "others at 0"]
    assert axes.get_legend().get_title().get_text() == "energy 2,\n30 steps"
    axes = observability(f, upright, ["x", "theta"]).plot("x", "theta")
    assert labels(axes) == ["others unknown", "others known"]
    with pytest.raises(ModelError, match="did you mean 'theta'"):
        report.plot("x", "teta")
    with pytest.raises(ValueError, match="two different errors"):
        report.ellipse("x", "x")


def test_ellipses_along_a_line_are_that_line():
    """One input in one step reaches a line; the section at zero is a point."""
    f = MidpointVI(System(Gravity(0, 0, -9.8), ry("a")[tz(-1.0, mass=1.0)], JointForce("a", "u")), 0.02)
    report = controllability(f, (f.initial_state(), None), steps=1)
    edge = report.ellipse("a", "p.a")
    assert np.linalg.matrix_rank(edge, tol=1e-12) == 1
    assert np.allclose(report.ellipse("a", "p.a", section=True), edge)  # there are no others


# -- poles, levels, maps ----------------------------------------------------------------------------------


def test_poles_and_their_neighbourhood(upright, loop):
    axes = loop.plot()
    shown = axes.lines[-1].get_xydata()
    assert np.allclose(np.sort_complex(shown @ [1, 1j]), np.sort_complex(loop.poles))
    low, high = axes.get_xlim()
    assert low > 0.7 and shown[:, 0].min() > low and shown[:, 0].max() < high  # all near to 1
    both = viz.plot_poles({"open": upright, "closed": loop})
    assert labels(both) == ["open", "closed"]
    assert viz.plot_poles([0.5j, -0.5j, -0.9]).get_xlim()[0] < -1
    eigenvalues = upright.modes.plot().lines[-1].get_xydata() @ [1, 1j]
    assert np.allclose(np.sort_complex(eigenvalues), np.sort_complex(upright.modes.eigenvalues))


def test_lines_of_damping_are_those_of_modes():
    """z = exp(lambda) on the dotted lines has the damping ratio that `Mode` computes."""
    axes = viz.plot_poles([0.5])
    dotted = [line.get_xydata() @ [1, 1j] for line in axes.lines if line.get_linestyle() == ":"]
    ratios = [-np.log(z[5]).real / abs(np.log(z[5])) for z in dotted]
    assert np.allclose(sorted(set(np.round(ratios, 9))), [0.1, 0.3, 0.5, 0.7, 0.9])


def square(mass, length, seed=0):
    if mass > 2 and length > 2:
        raise RuntimeError("too far")
    return {"cost": mass**2 * length + seed, "kind": "good"}


def test_sweeps_are_curves_and_heat_maps():
    found = sweep(square, grid(mass=[1.0, 3.0, 2.0], length=[1.0, 4.0]), workers=0)
    axes = found.plot("mass", "length", value="cost", units={"mass": "kg", "cost": "J"})
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("mass (kg)", "length")
    assert [t.get_text() for t in axes.get_xticklabels()] == ["1", "2", "3"]
    cells = axes.collections[0].get_array()
    assert list(cells.filled(-1).ravel()) == [1, 4, 9, 4, 16, -1]  # row by row; a task failed
    assert axes.figure.axes[1].get_ylabel() == "cost (J)"
    with pytest.raises(ValueError, match=r"2 results at mass = 1\.0: give `reduce`"):
        found.plot("mass", value="cost")
    curve = found.plot("mass", value="cost", reduce=np.max, log=True)
    assert list(curve.lines[0].get_ydata()) == [4.0, 16.0, 9.0] and curve.get_yscale() == "log"
    with pytest.raises(KeyError, match="no 'price'"):
        found.plot("mass", value="price")
    assert found.plot("kind", value="cost", reduce=np.min).lines[0].get_xdata()[0] == "good"


def region():
    rng = np.random.default_rng(0)
    starts = np.zeros((200, 3))
    starts[:, :2] = rng.uniform(-1, 1, (200, 2))
    caught = np.linalg.norm(starts, axis=1) < 0.8
    center = np.array([0.1, 0.0, 0.0])
    return Attraction(starts, caught, np.where(caught, 0.0, 2.0), ("a", "b", "c"), {"a": "rad"}, center)


def test_attraction_shows_caught_and_lost_and_the_level():
    found = region()
    level = LyapunovLevel(0.25, 1.0, None, 100, np.diag([1.0, 4.0, 1.0]), ("a", "b", "c"))
    axes = found.plot(level=level)
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("a (rad)", "b")
    assert labels(axes) == [f"{(~found.caught).sum()} lost", f"{found.caught.sum()} caught", "V = 0.25"]
    ring = axes.lines[0].get_xydata() - [0.1, 0.0]
    assert np.allclose((ring**2 @ [1.0, 4.0]), 0.25)
    lost, caught = (c.get_offsets() for c in axes.collections)
    assert np.array_equal(caught, found.starts[found.caught, :2]) and len(lost) == (~found.caught).sum()
    assert np.allclose(level.plot("a", "b").lines[-1].get_xydata(), level.ellipse("a", "b"))
    with pytest.raises(ModelError, match="unknown name 'd'"):
        found.plot("d")
    with pytest.raises(ValueError, match="two different states"):
        found.plot("a", "a")
    with pytest.raises(ValueError, match="differ in 1 states"):
        Attraction(found.starts[:, 1:], found.caught, found.distances, ("b", "c")).plot()


def test_attraction_of_a_loop_is_about_its_equilibrium(f):
    aside = feedback.equilibrium(f, x=0.5, theta=0.0)
    loop = dlqr(f, aside, Q, 0.1)
    found = region_of_attraction(loop, {"x": 0.1, "theta": 0.1}, samples=4, steps=5)
    level = LyapunovLevel(1e-3, 1.0, None, 100, loop.P, f.state_names)
    axes = found.plot("x", "theta", level=level)
    assert axes.get_ylabel() == "theta (rad)"
    assert np.allclose(axes.lines[0].get_xydata()[:-1].mean(axis=0), [0.5, 0.0])


def test_attraction_in_cells_counts_shares():
    found = region()
    axes = found.plot("a", "b", cells=4)
    shares = axes.collections[0].get_array()
    low = found.starts[:, :2].min(axis=0)
    edges = low + (found.starts[:, :2].max(axis=0) - low) / 4
    corner = (found.starts[:, :2] < edges).all(axis=1)
    assert np.isclose(shares.ravel()[0], found.caught[corner].mean())
