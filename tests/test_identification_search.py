"""Searches of `identify`: how segments are joined, bodies stay bodies, and what reports say of all that."""

from dataclasses import replace

import numpy as np
import pytest
from test_identification import NOISE, G, drive, four_bar, pendulum, record

import vioc
from studies.identify_family import parametrized
from studies.identify_family import record as taken
from studies.random_family import mechanism
from vioc.control import Measurement, Record, identify
from vioc.control.identification.begin import beginning
from vioc.control.identification.fit import fit
from vioc.control.identification.records import Grid
from vioc.control.identification.segments import Segments, Trial
from vioc.control.identification.unknowns import Unknowns


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
    unknowns = Unknowns(f, ["m1", "rub"], {}, sensors.names, {"m1": 1.2})
    segments = Segments(f, sensors, [Grid(one, f, f.dt, [])], unknowns, {}, 12)
    found = fit(segments, beginning(segments), 60, 1e-3)
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
        after, before = (segments.predict(segments.moved(trial, s * step, seen.bases)) for s in (1, -1))
        slope = (after.gaps - before.gaps) / 2e-6
        np.testing.assert_allclose(slope, E[:, i], rtol=0, atol=1e-5 * max(np.abs(E[:, i]).max(), 1.0))


def test_bodies_do_not_run_flat():
    """With logarithms of the factors' diagonal this search ran to a flat body and called it converged."""
    m = mechanism(8, joints=(2, 5))
    rng = np.random.default_rng([23, 8])
    system, begin = parametrized(m, rng)
    one = taken(m, system, rng)
    f = vioc.MidpointVI(system, 0.005)
    found = identify(f, one, list(begin), values=begin, noise=dict.fromkeys(one.measured, 1e-6))
    assert found.converged and not found.doubts and np.isfinite(list(found.std.values())).all()
    off = [abs(found[n] - f.parameters[n]) / s for n, s in found.std.items()]
    assert max(off) < 5


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
    assert any("ended flat" in d for d in thin.doubts) and all(thin.bodies.values())


def test_exact_records_are_called_exact(f):
    run = f.with_parameters(mass=0.7).rollout(f.state(theta=0.5), np.zeros((200, 1)))
    (doubt,) = identify(f, run, ["mass", "rub"]).doubts
    assert "exact to rounding" in doubt
    told = identify(f, run, ["mass", "rub"], noise={"theta": NOISE**2})
    assert not any("exact" in d for d in told.doubts)


def test_what_is_fitted_prints_in_a_line(f, measured):
    found = identify(f, measured, ["mass", "rub"], noise={"theta": NOISE**2})
    text = repr(found.validate(measured))
    assert text.startswith("[Fitted(") and "theta rms" in text and "rad" in text and "explained" in text
    assert "\n" not in text and len(text) < 200
