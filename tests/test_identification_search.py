"""Searches of `identify`: how segments are joined, bodies stay bodies, and what reports say of all that."""

from dataclasses import replace

import casadi as ca
import numpy as np
import pytest
from scipy.integrate import solve_ivp
from support.measured_pendulum import NOISE, G, drive, four_bar, pendulum, record

import vioc
from vioc.control import Measurement
from vioc.identification import Record, identify

# inside: searches on given segments, from given beginnings, one step at a time
from vioc.identification.begin import beginning
from vioc.identification.fit import fit
from vioc.identification.parameter_coordinates import ParameterCoordinates
from vioc.identification.records import SimulationGrid
from vioc.identification.segments import Segments, Trial


@pytest.fixture(scope="module")
def f():
    return pendulum(0.9, 0.02, 0.02)


@pytest.fixture(scope="module")
def measured():
    return record()


def test_gaps_of_loops_have_exact_slopes_where_they_are_closed():
    f = vioc.MidpointVI(four_bar(), 0.01)
    run = f.rollout(f.initial_state(f.consistent_configuration({"a": 0.3, "b": 0.4, "c": 0.2})), steps=40)
    one = Record(run.t, {"a": run["a"]}, {"u": drive}, start=run.x[0])
    sensors = Measurement(f, {"a": NOISE**2})
    unknowns = ParameterCoordinates(f, ["m1", "rub"], {}, sensors.names, {"m1": 1.2})
    segments = Segments(f, sensors, [SimulationGrid(one, f, f.dt, [])], unknowns, {}, 12)
    found = fit(segments, beginning(segments), 60, 1e-6)
    assert found.converged
    shifted = found.trial.nodes.copy()  # momenta that no future sees: along Dh'
    q = shifted[2, :3]
    Dh = f.lagrangian.constraint_jacobian(q)
    shifted[2, 3:6] += 0.3 * Dh[0]
    trial = Trial(found.trial.z, found.trial.c, shifted)
    seen = segments.predict(trial)
    np.testing.assert_allclose(seen.residuals, found.prediction.residuals, rtol=0, atol=1e-8)
    np.testing.assert_allclose(seen.gaps, 0, rtol=0, atol=1e-7)
    trial = segments.seamless(trial, seen)
    seen = segments.predict(trial)
    E = seen.E.toarray()
    for i, step in enumerate(1e-6 * np.eye(E.shape[1])):
        after, before = (
            segments.predict(segments.moved(trial, s * step, seen.bases), derivatives=False) for s in (1, -1)
        )
        slope = (after.gaps - before.gaps) / 2e-6
        np.testing.assert_allclose(slope, E[:, i], rtol=0, atol=1e-5 * max(np.abs(E[:, i]).max(), 1.0))


def test_a_body_that_ended_flat_is_doubted():
    P = vioc.P
    numbers = dict(m=1.0, x=0.0, y=0.1, z=-0.3, xx=0.012, yy=0.011, zz=0.013, xy=0.0, xz=0.0, yz=0.0)
    n = [P(name, value) for name, value in numbers.items()]
    body = vioc.Mass(n[0], tuple(n[4:]), tuple(n[1:4]))
    f = vioc.MidpointVI(vioc.System(vioc.rx("a", mass=body), vioc.Gravity(0, 0, -G)), 0.01)
    run = f.rollout(f.state(a=0.5), steps=100)
    found = identify(f, Record(run.t, {"a": run["a"]}), list(numbers), noise={"a": NOISE**2})
    assert not any("flat" in d for d in found.doubts)
    thin = replace(found, map=f.with_parameters(xx=0.01, yy=0.01, zz=0.02), covariance=np.eye(10))
    assert any("degenerate" in d for d in thin.doubts) and all(thin.bodies.values())


def test_exact_records_are_called_exact(f):
    run = f.with_parameters(mass=0.7).rollout(f.state(theta=0.5), np.zeros((100, 1)))
    (doubt,) = identify(f, run, ["mass", "rub"]).doubts
    assert "exact to rounding" in doubt
    told = identify(f, run, ["mass", "rub"], noise={"theta": NOISE**2})
    assert not any("exact" in d for d in told.doubts)


def test_what_is_fitted_prints_in_a_line(f, measured):
    found = identify(f, measured, ["mass", "rub"], noise={"theta": NOISE**2})
    text = repr(found.validate(measured))
    assert text.startswith("[Fitted(") and "theta rms" in text and "rad" in text and "explained" in text
    assert "\n" not in text and len(text) < 200


@pytest.mark.parametrize("first, gap, own", [(0.0, 0.01, 0.005), (1.0025, 0.01, 0.005), (0.0, 0.007, 0.01)])
def test_forces_of_time_act_when_they_did(first, gap, own):
    """Records and segments that begin between the map's steps; half the step is of the same force."""
    P = vioc.P
    bob = vioc.Mass(P("mass", 0.8), (0.01, 0.01, 0.0))
    shake = vioc.UserForce(lambda k: {"theta": 1.5 * ca.sin(9 * k.t)}, (), ())
    rubs = vioc.JointDamping("theta", P("rub", 0.07))
    system = vioc.System(vioc.rx("theta")[vioc.tz(-0.4, mass=bob)], vioc.Gravity(0, 0, -9.81), rubs, shake)
    f, t = vioc.MidpointVI(system, own), first + gap * np.arange(201)

    def rate(s, x):
        return x[1], (1.5 * np.sin(9 * s) - 0.7 * 9.81 * 0.4 * np.sin(x[0]) - 0.05 * x[1]) / 0.122

    theta = solve_ivp(rate, t[[0, -1]], [0.5, 0.0], t_eval=t, rtol=1e-10, atol=1e-10).y[0]
    theta += 1e-3 * np.random.default_rng(0).standard_normal(len(t))
    one, found = Record(t, {"theta": theta}), {}
    for method in ("multiple", "shooting"):
        found[method] = identify(f, one, ["mass", "rub"], noise={"theta": 1e-6}, dt=0.005, method=method)
        assert found[method].converged and not found[method].doubts
        for n, value in (("mass", 0.7), ("rub", 0.05)):
            assert abs(found[method][n] - value) < 4 * found[method].std[n]
    assert found["multiple"]["mass"] == pytest.approx(found["shooting"]["mass"], abs=1e-6)
    # starts that are not measured come from a rollout, at the record's own times
    seen = Record(t, {"v.theta": np.gradient(theta, t)}, start={"theta": theta[0]})
    segments = Segments(
        f,
        Measurement(f, {"v.theta": 1.0}),
        [SimulationGrid(seen, f, 0.01, ())],
        ParameterCoordinates(f, "mass", {}, ("v.theta",)),
        {},
        20,
    )
    begun = beginning(segments)
    assert np.abs(segments.predict(begun, derivatives=False).gaps).max() < 1e-9


def test_a_parameter_is_told_beside_one_that_is_told_far_better():
    """Information of 1e13 of another parameter made that of this one rounding: "not told"."""

    def cart(n):
        mass = vioc.P(f"m-{n}", 1.0)
        return vioc.tx(n, mass=mass), vioc.TorsionalSpring(n, 10.0), vioc.JointForce(n, f"u-{n}")

    def found(*names):
        frames, *terms = zip(*map(cart, names), strict=True)
        f = vioc.MidpointVI(vioc.System(*frames, *sum(terms, ())), 0.05)
        U = np.sin(0.3 * np.arange(100)[:, None] + np.arange(f.nu))
        run, rng = f.rollout(f.initial_state(), U), np.random.default_rng(0)
        seen = {n: run[n] + noise[n] * rng.standard_normal(101) for n in names}
        record = Record(run.t, seen, {n: run[f"u.{n}"] for n in f.input_names})
        return identify(f, record, list(f.parameters), noise={n: noise[n] ** 2 for n in names})

    noise = {"a": 0.3, "b": 1e-7}
    both, one = found("a", "b"), found("a")
    assert not both.unidentifiable and both.converged
    np.testing.assert_allclose(both.covariance[0, 0], one.covariance[0, 0], rtol=0.01)
