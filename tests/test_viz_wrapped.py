"""Scenes of maps around a mechanism's own, of runs and files: what is drawn is what they are around."""

import warnings
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from matplotlib import pyplot as plt

import vioc
from vioc import GroupVI, Mass, MaximalVI, P
from vioc.control.feedback import DelayedMap, ExtendedMap
from vioc.errors import FileFormatError
from vioc.maps import SwitchedMap

# inside: scenes are what pictures are made of, and have no public name
from vioc.viz.recorded import read_recorded
from vioc.viz.scene import scene_of


def pendulum():
    tip = vioc.tz(P("l", -0.5), name="bob", mass=Mass(P("m", 1.0), (0.1,) * 3))
    return vioc.System(vioc.ry("a")[tip], vioc.Gravity(0, 0, -9.81), vioc.JointForce("a", "torque"))


def satellite():
    arm = vioc.tx(P("l", 0.5), name="hinge")[vioc.ry("turn", name="panel", mass=Mass(2.0, (0.2,) * 3))]
    bus = vioc.free("body", frame="bus", mass=Mass(20.0, (0.9, 0.7, 0.5)))[arm]
    return vioc.System(bus, vioc.JointForce("turn", "motor"))


def places(run, frame):
    return np.column_stack([run[f"{frame}:{axis}"] for axis in "xyz"])


KINDS = [vioc.MidpointVI, MaximalVI, GroupVI]
AROUND = {
    "itself": lambda f: f,
    "delayed": DelayedMap,
    "disturbed": lambda f: ExtendedMap(f, disturbances=["motor"]),
    "freed": lambda f: ExtendedMap(f, parameters=["l"]),
    "timed": lambda f: ExtendedMap(f, steps=20, parameters=["l"]),
    "both": lambda f: DelayedMap(ExtendedMap(f, parameters=["l"])),
}


@cache
def satellites_map(kind):
    """A map of the satellite, built once for all tests."""
    return kind(satellite(), 0.05)


@cache
def moved(kind, around, l=0.8):
    """A run of a satellite whose boom is not as long as by default."""
    f = satellites_map(kind).with_parameters(l=l)
    x = f.initial_state({"body-rz": 2.0, "turn": 0.4}, {"turn": 3.0})
    g = AROUND[around](f)
    if around == "both":
        x = g.inner.join(x)
    return g.rollout(x if around == "itself" else g.join(x), np.full((12, 1), 0.3))


@pytest.mark.parametrize("around", AROUND)
@pytest.mark.parametrize("kind", KINDS)
def test_frames_are_where_the_run_has_them(kind, around):
    run = moved(kind, around)
    scene = scene_of(run)
    for frame in ("hinge", "panel"):
        np.testing.assert_allclose(scene.position(frame), places(run, frame), atol=1e-12)
    np.testing.assert_array_equal(scene_of(run, run.t[[3, 7]]).positions, scene.positions[[3, 7]])


def test_masses_and_animations_of_freed_parameters(tmp_path):
    f = vioc.MidpointVI(pendulum(), 0.02)
    g = ExtendedMap(f, parameters=["m", "l"])
    run = g.rollout(g.join(f.initial_state(a=0.5), {"param.m": 3.0, "param.l": -1.0}), steps=5)
    scene = scene_of(run)
    assert [b.mass for b in scene.bodies] == [3.0]
    np.testing.assert_allclose(scene.position("bob"), places(run, "bob"), atol=1e-14)
    run.animate(tmp_path / "run.gif", fps=10)
    plt.close("all")


@pytest.mark.parametrize("kind", KINDS)
def test_parameters_that_change_along_a_run(kind):
    """As those of an estimator do: frames are drawn with each sample's; a mass has no one value."""
    run = moved(kind, "freed")
    x = run.x.copy()
    x[5:, -1] = 1.3
    changing = replace(run, x=x)
    positions = scene_of(changing).positions
    np.testing.assert_array_equal(positions[:5], scene_of(run).positions[:5])
    np.testing.assert_allclose(
        positions[:, [run.map.system.frame_index("panel")]][:, 0], places(changing, "panel"), atol=1e-12
    )
    f = vioc.MidpointVI(pendulum(), 0.02)
    g = ExtendedMap(f, parameters=["m"])
    run = g.rollout(g.join(f.initial_state(a=0.5)), steps=3)
    x = run.x.copy()
    x[2:, -1] = 2.0
    with pytest.raises(ValueError, match="parameter 'm' changes along the run"):
        scene_of(replace(run, x=x))
    assert scene_of(replace(run, x=x)[2:]).bodies[0].mass == 2.0


# -- files ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("around", AROUND)
@pytest.mark.parametrize("kind", KINDS)
def test_files_are_drawn_as_the_run_was(kind, around, tmp_path):
    run = moved(kind, around)
    path = run.save(tmp_path / "run.npz")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        shown = scene_of(read_recorded(path, satellite()))
    scene = scene_of(run)
    np.testing.assert_array_equal(shown.positions, scene.positions)
    np.testing.assert_array_equal(shown.rotations, scene.rotations)


def test_files_of_higher_orders_compositions_and_phases(tmp_path):
    f = GroupVI(satellite(), 0.05, stages=2)
    x = f.initial_state({"body-rz": 2.0}, {"turn": 3.0})
    midpoint = satellites_map(GroupVI)
    for g in (f, vioc.Composition(midpoint, 4), SwitchedMap([midpoint, f], (3, 3))):
        run = g.rollout(x, steps=6)
        shown = scene_of(read_recorded(run.save(tmp_path / "run.npz"), satellite()))
        np.testing.assert_array_equal(shown.positions, scene_of(run).positions)


def test_files_of_other_systems(tmp_path):
    path = moved(GroupVI, "delayed").save(tmp_path / "run.npz")
    with pytest.raises(FileFormatError, match="not a trajectory of system: .*for free rotations"):
        read_recorded(path, pendulum())
    with pytest.raises(FileFormatError, match="it has no 'ball-qw'"):
        read_recorded(path, vioc.System(vioc.spherical("ball", mass=Mass(1.0, (0.1,) * 3))))
    with pytest.warns(UserWarning, match="saved from a model that differs"):
        read_recorded(path, satellite().with_components(vioc.Gravity(0, 0, -9.81)))
