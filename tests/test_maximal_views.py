"""Plots and animations of runs with contact and limits."""

import matplotlib.pyplot as plt
import numpy as np
import pytest

import vioc
from vioc import Contact, Gravity, JointLimits, Mass, MaximalVI, System
from vioc.shapes import HalfSpace
from vioc.viz import plot_constraints, plot_multipliers

# inside: pictures are read off their scenes and axes, and clipped polygons compared
from vioc.viz.animation import clipped, stage
from vioc.viz.scene import scene_of

EDGES = (0.5, 0.4, 0.3)


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def run():
    slope = HalfSpace(normal=(0.2, 0, 1))
    system = System(
        vioc.free("b", frame="box", mass=Mass.box(1.0, EDGES)),
        vioc.tz(2.0)[vioc.ry("a", mass=Mass.rod(1.0, 1.0, com=(0, 0, -0.5)))],
        Gravity(0, 0, -9.81),
        Contact.box("box", EDGES, friction=0.4, ground=slope, name="c"),
        JointLimits("a", -0.5, 0.5, name="stop"),
    )
    f = MaximalVI(system, 0.01)
    return f.rollout(f.initial_state({"b-z": 0.5, "b-rx": 0.4}, {"b-x": 1.0, "b-y": 1.0}), steps=60)


def curves(axes):
    return {line.get_label(): line.get_ydata() for line in axes.get_lines()}


def test_gaps_are_plotted_beside_violations(run):
    violations, lengths, angles = plot_constraints(run)
    assert "|h|" in violations.get_ylabel()
    assert (lengths.get_ylabel(), angles.get_ylabel()) == ("|gap| (m)", "|gap| (rad)")
    np.testing.assert_array_equal(curves(lengths)["c-1"], run["gap.c-1"])
    assert set(curves(lengths)) == {f"c-{i}" for i in range(1, 9)}
    assert set(curves(angles)) == {"stop-lower", "stop-upper"}
    assert plot_constraints(run, "c-3")[0].get_ylabel() == "|gap.c-3| (m)"


def test_forces_of_contacts_are_normal_and_friction(run):
    shown = curves(plot_multipliers(run, "c-1")[0])
    assert set(shown) == {"force.c-1", "friction.c-1"}
    assert max(shown["friction.c-1"]) == pytest.approx(run["friction.c-1"].max())
    names = {name for axes in plot_multipliers(run) for name in curves(axes)}
    assert {"force.c-8", "friction.c-8", "force.stop-lower"} <= names
    assert not any(name.endswith((".t1", ".slip")) for name in names)
    impulses = {name for axes in np.ravel(plot_multipliers(run, impulses=True)) for name in curves(axes)}
    assert {"lambda.c-1", "lambda.c-1.t2"} <= impulses


def test_ground_ends_at_the_axes_of_three_dimensions(run):
    axes, update = stage({"run": scene_of(run)}, "3d", to_screen=False)
    update(0)
    bounds = np.array([axes.get_xlim(), axes.get_ylim(), axes.get_zlim()])
    drawn = [np.array(line.get_data_3d()).T for line in axes.lines]
    points = np.concatenate([d for d in drawn if len(d)])
    points = points[np.isfinite(points).all(axis=1)]
    assert (points >= bounds[:, 0] - 1e-9).all() and (points <= bounds[:, 1] + 1e-9).all()
    on_ground = np.abs(points @ [0.2, 0, 1]) < 1e-9
    assert on_ground.sum() >= 4
    assert np.isclose(points[on_ground][:, 1], bounds[1, 0]).any()  # it reaches their edges


def test_polygons_are_clipped_by_boxes():
    square = 3 * np.array([[-1.0, -1, 0], [1, -1, 0], [1, 1, 0], [-1, 1, 0], [-1, -1, 0]])
    low, high = np.array([-1.0, -2, -1]), np.array([1.0, 0.5, 1])
    found = clipped(square, low, high)
    assert np.array_equal(found[0], found[-1])
    assert {tuple(p) for p in found} == {(-1, -2, 0), (1, -2, 0), (1, 0.5, 0), (-1, 0.5, 0)}
    assert len(clipped(square + [0, 0, 5], low, high)) == 0
    tilted = square @ np.array([[1, 0, 1], [0, 1, 0], [0, 0, 1]])  # z = x
    assert np.ptp(clipped(tilted, low, high / 2)[:, 2]) == pytest.approx(1.5)
