"""Standing on the ground: equilibria found from the air, regulators that let feet stand where they are."""

import numpy as np
import pytest

from vioc import Contact, ContactVI, Gravity, JointForce, Mass, MaximalVI, ModeVI, System, ry, tx, tz
from vioc.control import ClosedLoop, dlqr, equilibrium
from vioc.errors import OptimizationError

WEIGHT = 7 * 9.81
AIR = {"z": 0.1}  # 50 mm above the ground
WEIGHTS = {"ankle": 10.0, "v.ankle": 1.0}


@pytest.fixture(scope="module")
def system():
    """A body on an ankle, on a foot with two points of contact."""
    body = tz(0.05)[ry("ankle")[tz(0.5, name="body", mass=Mass(5.0, (0.1, 0.1, 0.1)))]]
    foot = tx("x")[tz("z")[ry("pitch", name="foot", mass=Mass(2.0, (0.02, 0.02, 0.02)))[body]]]
    soles = [
        Contact("foot", center=(s * 0.15, 0, -0.05), name=n, friction=0.8)
        for s, n in ((1, "toe"), (-1, "heel"))
    ]
    return System(foot, Gravity(0, 0, -9.81), JointForce("ankle", "torque"), *soles)


@pytest.fixture(scope="module")
def mode(system):
    return ModeVI(system, 0.01, "toe", sliding="heel")


@pytest.fixture(scope="module")
def touching(system):
    """The map whose contact finds out by itself, built once."""
    return ContactVI(system, 0.01)


@pytest.fixture(scope="module")
def still(mode):
    return equilibrium(mode, guess=AIR)


@pytest.mark.parametrize("kind", [ContactVI, MaximalVI])
def test_an_equilibrium_is_found_from_the_air(system, touching, still, kind):
    f = touching if kind is ContactVI else kind(system, 0.01)
    found = equilibrium(f, guess=AIR)
    for name in ("toe", "heel"):
        assert found[f"force.{name}"] == pytest.approx(WEIGHT / 2, rel=1e-6)
        assert found[f"force.{name}"] == pytest.approx(still[f"force.{name}"], rel=1e-6)
        assert 0 < found[f"gap.{name}"] < 1e-7
    assert found["z"] == pytest.approx(0.05, abs=1e-7) and found.moved < 1e-9
    assert still["gap.toe"] == pytest.approx(0.0, abs=1e-15)


def test_it_leans_as_far_as_its_foot_reaches(mode):
    """All weight is on the toe at 5/7 of 0.5 sin(ankle) = 0.15 m; beyond the heel would have to pull."""
    over = np.arcsin(0.15 * 7 / 5 / 0.5)
    for lean, holds in ((over - 0.01, True), (over + 0.01, False)):
        found = equilibrium(mode, {"ankle": lean, "pitch": 0.0}, guess=AIR)
        assert (found["force.heel"] > 0) == holds
        assert found["force.toe"] + found["force.heel"] == pytest.approx(WEIGHT, rel=1e-9)


def test_what_cannot_move_is_disregarded_by_name(touching, mode, still):
    with pytest.raises(OptimizationError, match=r"eigenvalues 1 \(of x\); .*disregard=\[...\]"):
        dlqr(mode, still, WEIGHTS, 1.0)
    loop = dlqr(mode, still, WEIGHTS, 1.0, disregard=["foot:x"])
    assert np.abs(loop.poles).max() < 0.99 and loop.disregarded == ("foot:x",)
    # with contact that finds out by itself the law is the same, but for the smoothing
    f = touching
    other = dlqr(f, equilibrium(f, guess=AIR), WEIGHTS, 1.0, disregard=["foot:x"])
    lean = mode.linearize(still).A @ (mode.initial_state({**AIR, "z": 0.05, "ankle": 0.01}) - still.x)
    assert other.K @ lean == pytest.approx(loop.K @ lean, rel=1e-3)


def test_it_returns_from_pushes(touching, mode, still):
    """Of a plant with contact under the law of the mode; the foot stays where it is."""
    loop, plant = dlqr(mode, still, WEIGHTS, 1.0, disregard=["foot:x"]), touching
    random, back = np.random.default_rng(0), 0
    for _ in range(2):
        place, speed = random.uniform(-0.3, 0.3), random.uniform(-0.3, 0.3)
        start = plant.initial_state({"x": place, "z": 0.05 + 1e-6}, {"ankle": speed})
        run = ClosedLoop(plant, loop).simulate(start, 200).trajectory
        back += abs(run["ankle"][-1]) < 1e-3 and abs(run["x"][-1] - place) < 1e-3
    assert back == 2
