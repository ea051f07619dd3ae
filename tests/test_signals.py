"""Input signals: where each kind is sampled, and what is refused."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.interpolate import BSpline, CubicSpline, PchipInterpolator, PPoly, interp1d, make_interp_spline
from support.control_maps import double_integrator
from support.mechanisms import everything

from vioc import JointForce, K, MidpointVI, RungeKutta, System, inputs, tx

# inside: sampling of a signal, by itself
from vioc.runs.signals import sample

DT, N = 0.1, 8


@pytest.fixture(scope="module")
def f():
    return RungeKutta(everything(), DT)


def test_forces_are_sampled_in_the_middle_and_paths_at_the_end(f):
    U = inputs(f, N, torque=lambda t: t, rho_trolley=lambda t: 10 + t, rho_string=1.0, k0=5)
    k = 5 + np.arange(N)
    np.testing.assert_allclose(U[:, 0], (k + 0.5) * DT, rtol=1e-14)
    np.testing.assert_allclose(U[:, 1], 10 + (k + 1) * DT, rtol=1e-14)
    np.testing.assert_array_equal(U[:, 2], 1.0)
    np.testing.assert_array_equal(
        f.inputs(N, torque=lambda t: t, rho_trolley=lambda t: 10 + t, rho_string=1.0, k0=5), U
    )


def test_unequal_steps(f):
    dt = np.array([0.1, 0.3, 0.2])
    U = inputs(f, 3, {"torque": math.sin, "rho.trolley": math.cos, "rho.string": 1}, k0=2, dt=dt)
    ends = 2 * DT + np.cumsum(dt)
    np.testing.assert_allclose(U[:, 0], np.sin(ends - dt / 2), rtol=1e-13)
    np.testing.assert_allclose(U[:, 1], np.cos(ends), rtol=1e-13)
    # the times are those of the rollout
    run = f.rollout(f.state(string=1.0, trolley=0.9), U, k0=2, dt=dt, warn=False)
    np.testing.assert_allclose(run.t[1:], ends, rtol=1e-13)
    np.testing.assert_allclose(run["trolley"][1:], np.cos(run.t[1:]), rtol=1e-13)


def test_arrays(f):
    torque, path = np.arange(N), np.linspace(0, 1, N + 1)
    U = inputs(f, N, torque=torque, rho_trolley=path, rho_string=path[1:])
    np.testing.assert_array_equal(U[:, 0], torque)
    np.testing.assert_array_equal(U[:, 1], path[1:])  # N+1 samples: the first is where it starts
    np.testing.assert_array_equal(U[:, 2], path[1:])


knots = np.linspace(0, 1, 6)
values = np.sin(4 * knots)


@pytest.mark.parametrize(
    "spline",
    [
        CubicSpline(knots, values),
        PchipInterpolator(knots, values),
        make_interp_spline(knots, values),
        interp1d(knots, values, kind="cubic"),
        PPoly.from_spline(make_interp_spline(knots, values)),
    ],
    ids=lambda s: type(s).__name__,
)
def test_splines_within_their_knots(spline):
    t = np.linspace(0, 1, 21)
    np.testing.assert_array_equal(sample(spline, t), [float(spline(x)) for x in t])
    # a last sample that rounds beyond the last knot is on it
    np.testing.assert_array_equal(sample(spline, np.array([1 + 1e-12])), [float(spline(1.0))])
    for outside in (-0.01, 1.01):
        with pytest.raises(ValueError, match=r"input 'x': asked for t = .* knots reach from 0 to 1 s"):
            sample(spline, np.array([0.5, outside]), "input 'x'")


def test_periodic_splines_go_on():
    spline = CubicSpline(knots, [*values[:-1], values[0]], bc_type="periodic")
    np.testing.assert_allclose(sample(spline, np.array([0.25, 3.25])), spline(0.25))
    assert isinstance(make_interp_spline(knots, values), BSpline)


def test_functions_of_one_float():
    t = np.array([0.0, 0.5, 1.0])
    np.testing.assert_array_equal(sample(lambda t: 1.0 if t < 0.7 else 0.0, t), [1, 1, 0])
    np.testing.assert_array_equal(sample(math.sqrt, t), np.sqrt(t))
    np.testing.assert_array_equal(sample(lambda t: np.array([t]), t), t)
    np.testing.assert_array_equal(sample(lambda t: np.sum(t), t), t)  # never handed an array to sum over


def test_maps_without_kinematic_variables():
    g = double_integrator()
    np.testing.assert_array_equal(inputs(g, 3, force=2.0), np.full((3, 1), 2.0))
    np.testing.assert_array_equal(inputs(g, 3), np.zeros((3, 1)))


def test_an_input_whose_name_begins_with_rho():
    system = System(tx("x", mass=1)[tx(K("a"), mass=1)], JointForce("x", "rho_a"))
    g = MidpointVI(system, 0.1)
    U = inputs(g, 2, {"rho.a": 3.0}, rho_a=1.0)
    np.testing.assert_array_equal(U, [[1.0, 3.0]] * 2)


def test_what_is_refused(f):
    held = dict(rho_trolley=0.0, rho_string=1.0)
    for call, message in (
        (lambda: inputs(f, N, torque=1.0), "a signal each, got none for rho.trolley, rho.string; a number"),
        (lambda: inputs(f, N, tork=1.0, **held), "inputs: unknown name 'tork'.*torque"),
        (lambda: inputs(f, N, rho_tork=1.0, **held), "unknown name 'rho_tork'.*"),
        (lambda: inputs(f, N, {"rho.string": 1}, **held), "'rho.string' has two signals"),
        (lambda: inputs(f, N, torque=[1, 2], **held), r"input 'torque': expected .*\(8,\), got \(2,\)"),
        (
            lambda: inputs(f, N, torque=np.zeros(N + 1), **held),
            r"input 'torque': expected .*\(8,\), got \(9,\)",
        ),
        (
            lambda: inputs(f, N, rho_trolley=np.zeros(3), rho_string=1),
            r"input 'rho.trolley': expected a number or shape \(8,\) or \(9,\), got \(3,\)",
        ),
        (lambda: inputs(f, N, torque=lambda t: [t, t], **held), r"input 'torque': .*got \(8, 2\)"),
        (lambda: inputs(f, N, torque=lambda t: "a", **held), "input 'torque': expected a function of t"),
        (lambda: inputs(f, N, torque="a", **held), "input 'torque': expected numbers or a function"),
        (
            lambda: inputs(f, N, torque=lambda t: math.nan if t > 0.3 else 0, **held),
            r"input 'torque': expected finite numbers, got nan at step 3 \(t = 0.35 s\)",
        ),
        (lambda: inputs(f, 0, **held), "steps: expected a whole number >= 1, got 0"),
        (lambda: inputs(f, 2.5, **held), r"steps: expected a whole number >= 1, got 2\.5"),
    ):
        with pytest.raises(ValueError, match=message):
            call()
