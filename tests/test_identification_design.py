"""Designed motions: the exact slope, limits that are kept, deviations that estimates have."""

import numpy as np
import pytest

import vioc
from vioc.control import Measurement
from vioc.errors import ModelError
from vioc.identification import Record, design, identify

# inside: the criterion of a design against its slope by differences
from vioc.identification.design import Criterion
from vioc.identification.parameter_coordinates import ParameterCoordinates

NAMES = ["m1", "m2", "rub1", "rub2"]
NOISE = {"a": 1e-6, "b": 1e-6}  # rad^2
LIMITS = {"a": 1.0, "b": (-1.5, 1.2), "v.b": 6.0, "u.ta": 3.0, "u.tb": 1.0}


@pytest.fixture(scope="module")
def arm():
    P = vioc.P
    lower = vioc.rx("b")[vioc.tz(-0.3, mass=vioc.Mass(P("m2", 0.5), (0.01, 0.01, 0.0)))]
    upper = vioc.rx("a")[vioc.tz(-0.4, mass=vioc.Mass(P("m1", 0.9), (0.02, 0.02, 0.0)))[lower]]
    rubs = [vioc.JointDamping(n, P(f"rub{i}", 0.05)) for i, n in enumerate("ab", 1)]
    motors = [vioc.JointForce(n, f"t{n}") for n in "ab"]
    return vioc.MidpointVI(vioc.System(upper, vioc.Gravity(0, 0, -9.81), *rubs, *motors), 0.02)


@pytest.fixture(scope="module")
def guess(arm):
    t = np.arange(50) * arm.dt
    return arm.rollout(arm.state({"a": 0.1}), np.stack([0.5 * np.sin(2 * t), 0.2 * np.cos(3 * t)], axis=1))


@pytest.fixture(scope="module")
def designed(arm, guess):
    return design(arm, NAMES, guess, NOISE, bounds=LIMITS, max_iterations=8)


@pytest.mark.parametrize(
    ("power", "known", "every"), [(0, False, 1), (1, True, 1), (8, False, 1), (1, False, 7)]
)
def test_slope_against_differences(arm, guess, power, known, every):
    """Central differences in the inputs, whose error is of order e^2."""
    sensors = Measurement(arm, NOISE, every={"a": every})
    judge = Criterion(arm, ParameterCoordinates(arm, NAMES, {}, tuple(NOISE)), sensors, power, known)
    d, e = np.random.default_rng(0).standard_normal(guess.u.shape), 1e-4
    ahead, back = (arm.rollout(guess.x[0], guess.u + s * e * d) for s in (1, -1))
    wanted = (judge(ahead, slope=False).value - judge(back, slope=False).value) / (2 * e)
    found = judge(guess)
    slope = np.sum(found.x * (ahead.x - back.x)) / (2 * e) + np.sum(found.u * d)
    assert slope == pytest.approx(wanted, rel=1e-5)


def test_rates_of_sensors_are_those_of_the_samples(arm, guess):
    """Against what a record of these samples alone tells."""
    sensors = Measurement(arm, NOISE, every={"a": 10, "b": (5, 2)})
    k = np.arange(len(guess.t))
    kept = {"a": k % 10 == 0, "b": (k >= 2) & ((k - 2) % 5 == 0)}
    y = {n: np.where(kept[n], guess[n], np.nan) for n in NOISE}
    one = Record(guess.t, y, dict(zip(arm.input_names, guess.u.T, strict=True)), start=guess.x[0])
    found = identify(arm, one, ["m1", "rub1"], noise=NOISE, method="shooting")
    planned = design(arm, ["m1", "rub1"], guess, sensors, max_iterations=0)
    assert planned.std == pytest.approx(found.std, rel=1e-5)
    # samples have the numbers of the run
    piece, again = guess[12:40], arm.rollout(guess.x[12], guess.u[12:40])
    later = Measurement(arm, NOISE, every={"a": (10, 8), "b": 5})
    stds = [
        design(arm, "m1", *case, max_iterations=0).std["m1"] for case in ((piece, sensors), (again, later))
    ]
    assert stds[0] == pytest.approx(stds[1], rel=1e-6)


def test_tells_more_within_limits(arm, guess, designed):
    run = designed.trajectory
    assert (
        np.abs(run["a"]).max() <= 1.0 + 1e-7
        and run["b"].min() >= -1.5 - 1e-7
        and run["b"].max() <= 1.2 + 1e-7
    )
    assert (
        np.abs(run["v.b"]).max() <= 6.0 + 1e-6
        and (np.abs(run.u).max(axis=0) <= [3.0 + 1e-7, 1.0 + 1e-7]).all()
    )
    assert np.abs(arm.rollout(run.x[0], run.u).x - run.x).max() < 1e-6
    assert (np.diff(designed.costs) < 0).all()
    assert all(designed.std[n] < designed.std_before[n] / 2 for n in NAMES)
    alone = design(arm, NAMES, run, NOISE, max_iterations=0)
    assert alone.std == pytest.approx(designed.std, rel=1e-6) and "std before" in repr(designed)


def test_a_known_start_tells_more_and_others_are_refused(arm, guess):
    free, known = (design(arm, NAMES, guess, NOISE, known=k, max_iterations=0) for k in (False, True))
    assert all(known.std[n] < free.std[n] for n in NAMES)
    with pytest.raises(ModelError, match=r"bias\.a"):
        design(arm, [*NAMES, "bias.a"], guess, NOISE)
    with pytest.raises(ValueError, match="criterion"):
        design(arm, NAMES, guess, NOISE, criterion="T")
    with pytest.raises(TypeError, match="expected a trajectory"):
        design(arm, NAMES, guess.u, NOISE)


@pytest.mark.slow
def test_estimates_spread_as_predicted(arm, designed):
    """40 noisy records: spread over the predicted deviation, within chi-square's 1e-4."""
    from scipy.stats import chi2

    run, count, rng, errors = designed.trajectory, 40, np.random.default_rng(3), []
    for _ in range(count):
        y = {n: run[n] + np.sqrt(v) * rng.standard_normal(len(run.t)) for n, v in NOISE.items()}
        record = Record(run.t, y, dict(zip(arm.input_names, run.u.T, strict=True)))
        found = identify(arm, record, NAMES, noise=NOISE, method="shooting")
        errors.append([(found[n] - arm.parameters[n]) / designed.std[n] for n in NAMES])
    low, high = chi2.ppf([1e-4, 1 - 1e-4], count) / count
    squares = np.mean(np.square(errors), axis=0)
    assert (squares > low).all() and (squares < high).all(), squares


def test_maps_without_inputs():
    """Records and designs of a pendulum that nothing drives: its start is what can be chosen."""
    f = vioc.MidpointVI(
        vioc.System(
            vioc.ry("a", mass=vioc.Mass(1.0, (0.01,) * 3, (0, 0, -0.2))),
            vioc.Gravity(0, 0, -9.81),
            vioc.JointDamping("a", vioc.P("rub", 0.02)),
        ),
        0.01,
    )
    run = f.rollout(f.initial_state([0.5]), steps=200)
    noise = 1e-3 * np.random.default_rng(0).standard_normal(201)
    found = identify(f, Record(run.t, {"a": run["a"] + noise}), ["rub"], values={"rub": 0.04})
    assert found.converged and abs(found["rub"] - 0.02) < 4 * found.std["rub"] < 2e-3
    plan = design(f, ["rub"], run, {"a": 1e-6}, bounds={"a": 1.0}, max_iterations=3)
    assert plan.std["rub"] <= plan.std_before["rub"] and abs(plan.trajectory["a"]).max() <= 1.0 + 1e-7
