"""State and parameters together: a filter's covariance on an arm with seven joints and an unknown payload."""

import numpy as np
import pytest
from scipy.stats import chi2

import vioc
from vioc import Continuous
from vioc.control import Measurement
from vioc.control.feedback import ExtendedKalmanFilter, ExtendedMap

# inside: the numbers of `seven_joint_arm`, for the same arm with a payload
from vioc.models.arm import AXES, INERTIAS, MASSES, OFFSETS

JOINTS = [f"q{i}" for i in range(1, 8)]
ENCODER, RUNS, N = 1e-3, 20, 60  # rad
SPREAD = {"param.mass": 0.2, "param.cx": 0.01, "param.cy": 0.01}  # kg, m, of what is known beforehand
WALK = {"param.mass": 1e-3, "param.cx": 1e-5, "param.cy": 1e-5}  # a sample


def arm():
    P = vioc.P
    load = vioc.Mass(P("mass", 1.0), (0.01, 0.01, 0.01), (P("cx", 0.0), P("cy", 0.0), 0.05))
    below = (vioc.tz(0.12, name="tool", mass=load),)
    for i in reversed(range(7)):
        turn = {"z": vioc.rz, "y": vioc.ry}[AXES[i]]
        mass = vioc.Mass(MASSES[i], (INERTIAS[i],) * 3, (0.0, 0.0, 0.08))
        below = (vioc.tz(OFFSETS[i])[turn(JOINTS[i], mass=mass)[below]],)
    motors = [vioc.JointForce(n, f"u{n[1:]}") for n in JOINTS]
    rubs = [vioc.JointDamping(n, 0.4) for n in JOINTS]
    return vioc.MidpointVI(vioc.System(below, vioc.Gravity(0, 0, -9.81), *motors, *rubs), 0.01)


def inputs(f):
    """Start and torques of a smooth motion with the payload that is guessed."""
    t, sign = np.arange(N)[:, None] * f.dt, np.array([1, -1, 1, -1, 1, -1, 1])
    w = 2 * np.pi * np.array([1, 0.8, 0.6, 0.9, 1.1, 0.7, 1.2])
    middle = np.array([0, 0.5, 0, -1.2, 0, 0.8, 0])
    q, v = middle + 0.15 * sign * (1 - np.cos(w * t)), 0.15 * sign * w * np.sin(w * t)
    return f.state(dict(zip(JOINTS, middle, strict=True))), Continuous(f.system).inverse(
        q, v, 0.15 * sign * w**2 * np.cos(w * t)
    )


@pytest.mark.slow
def test_payload_is_estimated_with_an_honest_covariance():
    """NEES of all 17 states and of the payload alone, over seeded runs, within its bounds of 99.9 %."""
    f = arm()
    g = ExtendedMap(f, parameters=["mass", "cx", "cy"])
    momenta = {f"p.{n}": 1e-3 for n in JOINTS}
    walk = {n: s**2 for n, s in (momenta | WALK).items()}
    spread = dict.fromkeys(JOINTS, ENCODER) | {n: 10 * s for n, s in momenta.items()} | SPREAD
    sensors = Measurement(g, dict.fromkeys(JOINTS, ENCODER**2))
    ekf = ExtendedKalmanFilter(g, sensors, W=walk, P0={n: s**2 for n, s in spread.items()})
    x0, U = inputs(f)
    deviation = np.array([spread[n] for n in g.state_names])
    noise = np.array([walk.get(n, 0.0) for n in g.state_names]) ** 0.5
    whole, payload = 0.0, 0.0
    for seed in range(RUNS):
        rng = np.random.default_rng(seed)
        x = g.join(x0) + deviation * rng.standard_normal(g.nx)
        belief = ekf.start(g.join(x0))
        for k in range(N):
            belief = ekf.correct(k, belief, x[:7] + ENCODER * rng.standard_normal(7))
            if k < N - 1:
                belief = ekf.predict(k, belief, U[k])
                x = g.step(x, U[k], k) + noise * rng.standard_normal(g.nx)
        e = x - belief.x
        whole += e @ np.linalg.solve(belief.P, e)
        payload += e[14:] @ np.linalg.solve(belief.P[14:, 14:], e[14:])
    for total, n in ((whole, 17 * RUNS), (payload, 3 * RUNS)):
        assert chi2.ppf(5e-4, n) < total < chi2.ppf(1 - 5e-4, n)
    assert belief.P[14, 14] ** 0.5 < SPREAD["param.mass"] / 10
