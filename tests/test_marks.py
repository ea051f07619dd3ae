"""Limits, targets, obstacles and contact points in pictures; what notebooks show."""

import matplotlib.pyplot as plt
import numpy as np
import pytest

import vioc
from vioc import models, viz
from vioc.control import dmoc
from vioc.control.sweep import grid, sweep
from vioc.errors import ModelError
from vioc.viz.scene import scene_of


@pytest.fixture(scope="module")
def run():
    f = vioc.MidpointVI(models.load("cart_pole"), dt=0.05)
    return f.rollout(f.initial_state({"theta": 0.3}), steps=20)


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


def dotted(axes):
    return [line for line in axes.lines if line.get_linestyle() == ":"]


def test_limits_and_targets_are_drawn_where_they_are(run):
    moving = np.linspace(1, 2, 21)
    x, theta, force = run.plot(
        "x", "theta", "force", limits={"force": 8.0, "x": (None, moving)}, targets={"theta": 1.0}
    )
    assert [set(line.get_ydata()) for line in dotted(force)] == [{-8.0}, {8.0}]
    assert len(dotted(x)) == 1 and np.array_equal(dotted(x)[0].get_ydata(), moving)
    assert dotted(theta) == [] and theta.lines[-1].get_xydata().tolist() == [[1.0, 1.0]]
    panel = viz.plot_comparison({"plan": run, "again": run}, "theta", limits={"theta": (0.0, 4.0)})
    assert [set(line.get_ydata()) for line in dotted(panel)] == [{0.0}, {4.0}]
    with pytest.raises(ModelError, match="limits: unknown quantity 'thata'|limits: unknown name 'thata'"):
        run.plot("theta", limits={"thata": 1.0})


def test_obstacles_and_targets_in_a_scene(run):
    f = run.map
    post = dmoc.obstacle(f, "pole", (0.5, 0.1), 0.2, axes="xz")
    path = np.stack([np.linspace(0, 1, 21), np.zeros(21), np.ones(21)], axis=1)
    moving = dmoc.obstacle(f, "pole", path, 0.3)
    scene = scene_of(run).with_marks([post, moving, {"goal": (0, None, 0.5)}], run)
    (circle, *ball) = (line.points for line in scene.kind("obstacle"))
    assert np.allclose(np.linalg.norm(circle[0] - [0.5, 0, 0.1], axis=1), 0.2) and not circle[0, :, 1].any()
    assert len(ball) == 3
    assert np.allclose(np.linalg.norm(ball[0] - path[:, None], axis=2), 0.3)
    assert np.allclose(np.mean([line.points[0] for line in scene.kind("target")], axis=(0, 1)), [0, 0, 0.5])
    some = scene_of(run, np.array([0.0, 1.0])).with_marks(moving, run)
    assert np.allclose(some.kind("obstacle")[0].points[1].mean(axis=0), path[-1], atol=0.02)
    assert scene.limits[1][2] >= 1.3  # what is drawn is in the picture
    for wrong in (dmoc.Constraint("x", f.quantity("x"), upper=1), "goal"):
        with pytest.raises(TypeError, match="marks: expected"):
            viz.animate(run, marks=wrong)
    with pytest.raises(ValueError, match="goal: expected three coordinates"):
        viz.animate(run, marks={"goal": (1, 2)})


def test_contact_points_are_where_their_spheres_touch():
    ball = vioc.tx("x")[vioc.tz("z", name="ball", mass=1.0)]
    touch = vioc.Contact("ball", center=(0.1, 0, 0), radius=0.2, name="toe")
    f = vioc.ContactVI(vioc.System(ball, vioc.Gravity(0, 0, -9.81), touch), dt=0.02)
    run = f.rollout(f.initial_state({"z": 0.5}), steps=30)
    (line,) = scene_of(run).kind("contact")
    assert np.allclose(line.points[:, 0], np.stack([run["x"] + 0.1, 0 * run["x"], run["gap.toe"]], axis=1))


def test_notebooks_show_results(run):
    text = run._repr_html_()
    assert "theta [rad]" in text and "0.3" in text and "u.force [N]" in text
    batch = run.map.rollouts(run.x[:2], steps=3)
    assert "Batch(2 rollouts" in batch._repr_html_() and "theta [rad]" in batch._repr_html_()
    found = sweep(lambda a: {"b": "<" + str(a)}, grid(a=[1.0]), workers=0)
    assert "<th>a</th>" in found._repr_html_() and "&lt;1.0" in found._repr_html_()
