"""Identification: derivatives, intervals that hold, what is not told, delays, biases, unknown inputs."""

from functools import cache
from itertools import pairwise

import casadi as ca
import numpy as np
import pytest
from scipy.integrate import quad
from scipy.interpolate import CubicSpline
from support.measured_pendulum import (
    LENGTH,
    MASS,
    NOISE,
    RUB,
    SPIN,
    G,
    drive,
    four_bar,
    pendulum,
    record,
    truth,
)

import vioc
from vioc.control import Measurement, feedback
from vioc.errors import ModelError
from vioc.identification import Record, identify

# inside: derivatives of segments against differences, and coordinates of bodies
from vioc.identification.begin import beginning
from vioc.identification.inertias import body_coordinates, body_numbers, consistent
from vioc.identification.parameter_coordinates import ParameterCoordinates
from vioc.identification.records import SimulationGrid
from vioc.identification.segments import Segments


@pytest.fixture(scope="module")
def f():
    return pendulum(0.9, 0.02, 0.02)


@pytest.fixture(scope="module")
def measured():
    return record()


@pytest.fixture(scope="module")
def all_three(f, measured):
    """The search of a method for mass, spin and friction, done once."""
    told = dict(noise={"theta": NOISE**2})
    return cache(lambda method: identify(f, measured, ["mass", "spin", "rub"], method=method, **told))


def test_inertias_are_those_of_bodies_and_come_back():
    z = ca.SX.sym("z", 10)
    numbers = ca.Function("numbers", [z], [body_numbers(z)])
    rng = np.random.default_rng(0)
    for _ in range(200):
        at = rng.standard_normal(10)
        body = np.array(numbers(at)).ravel()
        assert consistent(body)
        xx, yy, zz = np.linalg.eigvalsh(
            np.array([[body[4], body[7], body[8]], [body[7], body[5], body[9]], [body[8], body[9], body[6]]])
        )
        assert body[0] > 0 and xx > 0 and xx + yy >= zz * (1 - 1e-9)
        again = np.array(numbers(body_coordinates(body, 1.0))).ravel()  # factors are told but for their signs
        np.testing.assert_allclose(again, body, rtol=0, atol=1e-9 * np.abs(body).max())
        vioc.Mass(body[0], tuple(body[4:]), tuple(body[1:4]))  # which refuses what is no body
    assert not consistent(np.array([1.0, 0, 0, 0, 1.0, 1.0, 2.1, 0, 0, 0]))


@pytest.mark.parametrize("steps", [None, 12])
@pytest.mark.parametrize("loop", [False, True])
def test_derivatives_against_differences(f, measured, loop, steps):
    if loop:
        f = vioc.MidpointVI(four_bar(), 0.01)
        q = f.consistent_configuration({"a": 0.3, "b": 0.4, "c": 0.2})
        run = f.rollout(f.initial_state(q), steps=40)
        one = Record(run.t, {"a": run["a"]}, {"u": drive}, start=run.x[0])
        names = ["m1", "m2", "rub", "delay.u", "bias.a"]
    else:
        one, names = measured.part(0.0, 0.4), ["mass", "spin", "rub", "delay.u", "bias.theta"]
    sensors = Measurement(f, dict.fromkeys(one.measured, NOISE**2))
    unknowns = ParameterCoordinates(f, names, {"rub": (0.0, 1.0)}, sensors.names, {"delay.u": 0.013})
    segments = Segments(f, sensors, [SimulationGrid(one, f, f.dt, ["u"])], unknowns, {}, steps)
    trial = beginning(segments)
    found = segments.predict(trial)
    assert len(found.gaps) == (0 if steps is None else 6 if loop else 12)
    J, E = found.J.toarray(), found.E.toarray()
    for i, step in enumerate(1e-6 * np.eye(J.shape[1])):
        after, before = (segments.predict(segments.moved(trial, s * step, found.bases)) for s in (1, -1))
        slope = (after.residuals - before.residuals) / 2e-6
        np.testing.assert_allclose(slope, J[:, i], rtol=0, atol=2e-5 * max(np.abs(J[:, i]).max(), 1.0))
        if len(found.gaps) and not loop:  # a loop's bases turn with its starts
            slope = (after.gaps - before.gaps) / 2e-6
            np.testing.assert_allclose(slope, E[:, i], rtol=0, atol=1e-5 * max(np.abs(E[:, i]).max(), 1.0))


def test_a_step_too_long_for_the_parameters_is_no_trial(f, measured):
    one = measured.part(0.0, 0.4)
    unknowns = ParameterCoordinates(f, ["mass", "rub"], {}, ("theta",), {})
    segments = Segments(
        f, Measurement(f, {"theta": NOISE**2}), [SimulationGrid(one, f, f.dt, [])], unknowns, {}, 20
    )
    trial = beginning(segments)
    away = np.zeros(segments.predict(trial).J.shape[1])
    away[0] = 1e4  # of the mass' logarithm
    with pytest.raises(vioc.StepError, match="too long for the parameters"):
        segments.moved(trial, away, segments.predict(trial).bases)


@pytest.mark.parametrize("method", ["multiple", "shooting"])
def test_parameters_within_their_deviations(f, measured, all_three, method):
    found = identify(f, measured, ["mass", "rub"], method=method, values={"mass": 0.5})
    spin = f.parameters["spin"]
    inertia = MASS * LENGTH**2 + SPIN  # told by the loads; the spin kept is wrong, so the mass is not its own
    assert found.converged and found.verdict == "converged"
    both = all_three(method)
    assert both.converged and not both.doubts
    for name, value in {"mass": MASS, "spin": SPIN, "rub": RUB}.items():
        assert abs(both[name] - value) < 4 * both.std[name]
        assert both.std[name] < 0.05 * value
    assert found.doubts and spin != SPIN and inertia > 0  # residuals of a wrong model are not white
    assert all(both.bodies.values())


def test_both_methods_have_one_minimum(f, measured):
    names, options = ["mass", "spin", "rub"], dict(noise={"theta": NOISE**2}, tolerance=1e-8)
    one, other = (identify(f, measured, names, method=m, **options) for m in ("multiple", "shooting"))
    assert one.costs[-1] == pytest.approx(other.costs[-1], rel=1e-9)
    for name in one.values:
        assert one[name] == pytest.approx(other[name], abs=1e-2 * one.std[name])
        assert one.std[name] == pytest.approx(other.std[name], rel=1e-4)


def test_chaotic_motions_are_joined_last():
    """Eight seconds of a tumbling double pendulum from 40 % off: gaps closed too early lead nowhere."""
    P = vioc.P
    spin, arm = P("spin", 3e-3), P("arm", 0.2)
    lower = vioc.ry("b", mass=vioc.Mass(P("mass", 0.6), (2e-3, 2e-3, 1e-4), (0, 0, -1 * arm)))
    upper = vioc.ry("a", mass=vioc.Mass(0.5, (spin, spin, 1e-4), (0, 0, -0.15)))
    rubs = vioc.JointDamping("a", P("rub_a", 0.01)), vioc.JointDamping("b", P("rub_b", 0.005))
    tree = upper[vioc.tz(-1 * P("length", 0.3))[lower]]
    f = vioc.MidpointVI(vioc.System(tree, vioc.Gravity(0, 0, -G), *rubs), 0.005)
    t = np.arange(401) * 0.02
    exact = vioc.reference_solution(f.system, [2.5, 0.5], [0.0, 0.0], t, rtol=1e-9, atol=1e-9)
    assert abs(exact["b"][-1]) > np.pi  # it has gone over
    rng = np.random.default_rng(3)
    measured = {n: exact[n] + NOISE * rng.standard_normal(len(t)) for n in "ab"}
    begin = {n: v * (1 + rng.uniform(-0.4, 0.4)) for n, v in f.parameters.items()}
    found = identify(f, Record(t, measured), list(begin), values=begin, noise=dict.fromkeys("ab", NOISE**2))
    assert found.converged and len(found.costs) < 30
    # the map's own error at this step is what is left
    assert all(abs(found[n] / v - 1) < 0.01 for n, v in f.parameters.items())


def test_intervals_hold():
    """Squared errors over variances are one on average: 20 seeds, three parameters, 5 sigma."""
    f = pendulum()
    clean = truth(np.arange(101) * 0.01, drive)[:, 0]
    t, ratios = np.arange(101) * 0.01, []
    for seed in range(20):
        y = clean + NOISE * np.random.default_rng(seed).standard_normal(len(t))
        one, names = Record(t, {"theta": y}, {"u": drive}), ["mass", "spin", "rub"]
        found = identify(f, one, names, noise={"theta": NOISE**2}, method="shooting")
        error = np.array([found["mass"] - MASS, found["spin"] - SPIN, found["rub"] - RUB])
        ratios.append(error @ np.linalg.solve(found.covariance, error))
    expected, spread = 3.0, np.sqrt(2 * 3 / 20)
    assert abs(np.mean(ratios) - expected) < 5 * spread


def test_missing_samples_other_grids_and_several_records(f):
    rng = np.random.default_rng(3)
    uneven = np.concatenate([[0.0], np.cumsum(rng.uniform(0.004, 0.035, 200))])
    one, two = record(1, uneven), record(2)
    y = two.measured["theta"].copy()
    y[rng.random(len(y)) < 0.3] = np.nan
    y[100:140] = np.nan
    two = Record(two.t, {"theta": y}, two.inputs)
    found = identify(f, [one, two], ["mass", "spin", "rub"], noise={"theta": NOISE**2})
    assert found.converged and len(found.fits) == 2
    assert np.isnan(found.fits[1].errors[100:140]).all()
    for name, value in {"mass": MASS, "spin": SPIN, "rub": RUB}.items():
        assert abs(found[name] - value) < 4 * found.std[name]
    aside = found.validate(record(7))[0]
    assert aside.rms["theta"] < 1.2 * NOISE and aside.share["theta"] > 0.9999


def test_what_is_not_told_is_named():
    """Of a body's mass, place and spin about its joint, two combinations are told: m r and the inertia."""
    P = vioc.P
    body = vioc.Mass(P("mass", 0.8), (P("spin", 0.02), P("spin", 0.02), 0.0), (0.0, 0.0, P("place", -0.35)))
    arm = vioc.rx("theta", mass=body)
    rubs = vioc.JointDamping("theta", P("rub", RUB))
    f = vioc.MidpointVI(vioc.System(arm, vioc.Gravity(0, 0, -G), rubs, vioc.JointForce("theta", "u")), 0.01)
    found = identify(f, record(), ["mass", "place", "spin", "rub"], noise={"theta": NOISE**2})
    assert found.converged
    (lost,) = found.unidentifiable
    assert set(lost.parts) == {"mass", "place", "spin"}
    assert found.given[0] in lost.parts and len(found.given) == 1
    assert np.isinf([found.std[n] for n in lost.parts]).all() and found.std["rub"] < 0.02 * RUB
    p = found.map.parameters
    assert p["mass"] * p["place"] == pytest.approx(-MASS * LENGTH, rel=5e-3)
    step = 1e-4
    moved = {n: p[n] + step * lost.parts.get(n, 0.0) for n in p}
    assert moved["mass"] * moved["place"] == pytest.approx(p["mass"] * p["place"], rel=1e-6)
    assert "not identifiable" in str(found)


def test_a_delay_and_a_bias(f):
    late, off = 0.0173, 0.03
    one = record(4, torque=lambda s: drive(s - late))
    one = Record(one.t, {"theta": one.measured["theta"] + off}, {"u": drive(one.t)})
    found = identify(f, one, ["mass", "spin", "rub", "delay.u", "bias.theta"], noise={"theta": NOISE**2})
    assert found.converged
    assert abs(found["delay.u"] - late) < 4 * found.std["delay.u"] + 1e-4
    assert abs(found["bias.theta"] - off) < 4 * found.std["bias.theta"]
    assert found.std["delay.u"] < 0.002


K, STEP = 21, 0.05
AT = STEP * np.arange(K)
SAMPLES = np.cos(3.0 * AT) + 0.2 * (-1.0) ** np.arange(K)
SPLINE = CubicSpline(AT, SAMPLES)
SIGNALS = {  # as a record has it, and as a function; where that is not smooth
    "a number": (0.7, lambda s: 0.7, []),
    "held": (SAMPLES[:-1], lambda s: SAMPLES[np.clip(int(np.floor(s / STEP + 1e-9)), 0, K - 2)], AT),
    "lines": (SAMPLES, lambda s: np.interp(s, AT, SAMPLES), AT),
    "a function": (lambda s: np.exp(s) * np.sin(9 * s), lambda s: np.exp(s) * np.sin(9 * s), []),
    "a switch": (lambda s: 1.0 if s > 0.1234 else -2.0, lambda s: 1.0 if s > 0.1234 else -2.0, [0.1234]),
    "a spline": (SPLINE, lambda s: SPLINE(max(s, 0.0)), AT),
}


@pytest.mark.parametrize("kind", SIGNALS)
@pytest.mark.parametrize("tau", [0.0, 0.0731, 0.31])
def test_a_late_input_is_the_mean_of_its_signal(f, kind, tau):
    """(ID-6) by QUADPACK, before the first sample too, and its derivative by differences."""
    given, signal, kinks = SIGNALS[kind]
    grid = SimulationGrid(Record(AT, {"theta": 0 * AT}, {"u": given}), f, 0.025, ["u"])
    U, D = grid.inputs(np.array([tau]))
    means = []
    for a, b in pairwise(grid.ends - tau):
        cuts = [a, *(c for c in kinks if a < c < b), b]
        means.append(sum(quad(signal, c, d, epsabs=1e-12)[0] for c, d in pairwise(cuts)) / (b - a))
    size = max(abs(signal(s)) for s in AT)
    np.testing.assert_allclose(U[:, 0], means, rtol=0, atol=2e-8 * size)
    if tau:  # at 0 steps end where what is held jumps
        ahead, behind = (grid.inputs(np.array([tau + d]))[0][:, 0] for d in (1e-5, -1e-5))
        np.testing.assert_allclose(D[:, 0, 0], (ahead - behind) / 2e-5, rtol=1e-5, atol=5e-3 * size)


def test_a_late_kinematic_input_is_where_it_was():
    arm = vioc.tx(vioc.K("cart"))[vioc.ry("a")[vioc.tz(-0.4, mass=0.8)]]
    f = vioc.MidpointVI(vioc.System(arm, vioc.Gravity(0, 0, -9.81)), 0.025)
    tau = np.array([0.0731])
    for given, of in ((lambda s: np.sin(9 * s), lambda s: np.sin(9 * s)), (SAMPLES, SIGNALS["lines"][1])):
        grid = SimulationGrid(Record(AT, {"a": 0 * AT}, {"rho.cart": given}), f, 0.025, ["rho.cart"])
        U, D = grid.inputs(tau)
        np.testing.assert_allclose(U[:, 0], [of(s) for s in grid.ends[1:] - tau], rtol=0, atol=1e-12)
        behind, ahead = (grid.inputs(tau + d)[0][:, 0] for d in (-1e-6, 1e-6))
        np.testing.assert_allclose(D[:, 0, 0], (ahead - behind) / 2e-6, rtol=0, atol=2e-4)


@pytest.mark.parametrize("known", [True, False])
def test_a_delay_of_a_function_that_acts_before_the_first_sample(known):
    """Inputs of the motion are its means in closed form; a function that is held there gave m = 0.28."""
    P, tau, dt, w = vioc.P, 0.1, 0.01, 4.0
    arm = vioc.ry("a")[vioc.tz(-0.4, mass=P("m", 0.8))]
    terms = vioc.Gravity(0, 0, -9.81), vioc.JointForce("a", "T"), vioc.JointDamping("a", P("c", 0.1))
    f = vioc.MidpointVI(vioc.System(arm, *terms), dt)
    t = dt * np.arange(101)
    means = np.diff(2 * np.sin(w * (t - tau) + 1.5) / w) / dt
    truth = dict(m=0.7, c=0.15)
    x0 = f.initial_state({"a": 0.5})
    run = f.with_parameters(**truth).rollout(x0, means[:, None])
    measured = run["a"] + 1e-3 * np.random.default_rng(0).normal(size=len(t))
    one = Record(t, {"a": measured}, {"T": lambda s: 2 * np.cos(w * s + 1.5)}, start=x0, known=known)
    found = identify(f, one, ["m", "c", "delay.T"], noise={"a": 1e-6})
    assert found.converged and found.doubts == []
    for name, value in {**truth, "delay.T": tau}.items():
        assert abs(found[name] - value) < 3 * found.std[name]
    assert found.std["m"] < 0.02


def test_an_input_that_nobody_knows(f):
    pushed = record(5, torque=lambda s: 0.8 * np.sin(2.0 * s))
    one = Record(pushed.t, pushed.measured)
    found = identify(pendulum(), one, ["rub"], noise={"theta": NOISE**2}, unknown_inputs={"u": 25})
    assert found.converged
    places = np.linspace(0, one.t[-1], 25)[2:-2]
    assert np.abs(found.inputs[0]["u"][2:-2] - 0.8 * np.sin(2.0 * places)).max() < 0.1


def test_a_record_prints_what_is_in_it_not_its_samples(measured):
    assert repr(measured).startswith(f"Record({measured.name!r}: {len(measured)} samples, t = 0 .. ")
    assert "measured theta" in repr(measured) and "\n" not in repr(measured)


def test_messages(f, measured):
    with pytest.raises(ModelError, match="unknown 'masss'"):
        identify(f, measured, ["masss"])
    with pytest.raises(ModelError, match="not inside"):
        identify(f, measured, ["rub"], bounds={"rub": (0.1, 1.0)})
    with pytest.raises(ValueError, match="expected shape"):
        Record(measured.t, {"theta": measured.measured["theta"][:-1]})
    with pytest.raises(ValueError, match="rising"):
        Record(measured.t[::-1], measured.measured)
    with pytest.raises(ValueError, match="unknown input, and the record has it"):
        identify(f, measured, ["rub"], unknown_inputs={"u": 3})
    with pytest.raises(ValueError, match="values were measured for"):
        identify(f, measured.part(0.0, 0.02), ["rub", "mass", "spin"], noise={"theta": 1.0})
    with pytest.raises(ValueError, match="no record has measured"):
        identify(f, measured, ["rub"], noise={"v.theta": 1.0})


def test_steps_that_are_too_long_are_told(f):
    """Half the step changes what one more search at half the step changes, and `doubts` says so."""
    t = np.arange(101) * 0.02
    one = Record(t, {"theta": truth(t, drive)[:, 0]}, {"u": drive})
    names, noise = ["mass", "spin", "rub"], {"theta": (0.1 * NOISE) ** 2}
    coarse, fine = (identify(f, one, names, noise=noise, dt=dt) for dt in (0.02, 0.01))
    change = fine["mass"] - coarse["mass"]
    assert abs(change) > coarse.std["mass"]
    assert coarse.halving["mass"] == pytest.approx(change, rel=0.05)
    assert any("half the step changes" in d for d in coarse.doubts)


def test_pictures(all_three):
    above, below = all_three("multiple").plot()[:, 0]
    assert above.get_ylabel() == "theta (rad)" and below.get_xlabel() == "t (s)"


def test_a_run_is_a_record():
    P = vioc.P
    bob = vioc.tz(-0.4, mass=vioc.Mass(P("mass", 0.7), (0.01, 0.01, 0.0)))
    terms = vioc.Gravity(0, 0, -9.81), vioc.JointDamping("theta", P("damping", 0.05))
    f = vioc.MidpointVI(vioc.System(vioc.rx("theta")[bob], *terms, vioc.JointForce("theta", "torque")), 0.01)
    off = f.with_parameters(mass=0.9, damping=0.02)
    U = np.sin(0.03 * np.arange(100))[:, None]
    run = f.rollout(f.state(theta=0.5), U)
    many = f.rollouts([f.state(theta=0.2), run.x[0]], U)
    record = Record.of(run)
    assert tuple(record.measured) == ("theta",) and tuple(Record.of(run, "p.theta").measured) == ("p.theta",)
    np.testing.assert_array_equal(record.inputs["torque"], U[:, 0])
    for given, count in ((run, 1), (many, 2), ([run, record], 2)):
        found = identify(off, given, ["mass", "damping"])  # exact: the noise is rounding
        assert found.converged and len(found.fits) == count
        assert abs(found["mass"] / 0.7 - 1) < 1e-9 and abs(found["damping"] / 0.05 - 1) < 1e-8
    assert found.validate(run)[0].rms["theta"] < 1e-9
    assert tuple(identify(off, run, "mass", noise={"p.theta": 1e-6}).fits[0].names) == ("p.theta",)

    sensors = feedback.Measurement(f, {"theta": 1e-6})
    observer = feedback.ExtendedKalmanFilter(f, sensors, W=1e-10, P0=1e-6)
    law = vioc.control.dlqr(f, vioc.control.equilibrium(f, theta=0.3), Q={"theta": 10}, R=1)
    flight = feedback.ClosedLoop(f, law, observer).simulate(run.x[0], 150, noise=1)
    seen = Record.of(flight).measured["theta"]
    np.testing.assert_array_equal(seen[:-1], flight.measurements[:, 0])
    assert np.isnan(seen[-1]) and 5e-4 < np.std(seen[:-1] - flight["theta"][:-1]) < 2e-3
    found = identify(off, flight, ["mass", "damping"])
    assert abs(found["mass"] - 0.7) < 4 * found.std["mass"]

    for bad, error in ((3, TypeError), ("record", TypeError), ({"t": 1}, TypeError), ([], ValueError)):
        with pytest.raises(error, match="records: expected"):
            identify(f, bad, "mass")


def test_a_run_with_a_prescribed_motion_is_a_record():
    system = vioc.System(
        vioc.tx(vioc.K("x"))[vioc.ry("theta")[vioc.tz(vioc.P("length", -0.5), mass=0.3)]],
        vioc.Gravity(0, 0, -9.81),
    )
    f = vioc.MidpointVI(system, 0.02)
    run = f.rollout(f.state(theta=0.4), 0.2 * np.sin(0.1 * np.arange(1, 151))[:, None])
    found = identify(f.with_parameters(length=-0.4), run, "length", noise={"theta": 1e-6})
    assert abs(found["length"] + 0.5) < 1e-6


def test_signals_of_a_record_hide_nothing(f):
    """Masked entries and imaginary parts of inputs are refused."""
    given = record()
    n, u = "torque", np.ones(len(given.t) - 1)
    wrong = {
        "hides entry 5": np.ma.array(u, mask=np.arange(len(u)) == 5),
        "expected real numbers": u + 5j,
        "hides entry 0": np.ma.masked,
        "expected numbers, got 'abc'": "abc",
        "expected numbers, got {}": {},
    }
    for words, value in wrong.items():
        with pytest.raises(ValueError, match=f"input '{n}': .*{words}"):
            Record(given.t, given.measured, {n: value})
    with pytest.raises(ValueError, match="record: t: expected numbers, got 'abc'"):
        Record("abc", given.measured)
    with pytest.raises(ValueError, match="record: q: expected numbers"):
        Record(given.t, {"q": "abc"})
