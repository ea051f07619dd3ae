"""Limits, targets, obstacles and contact points in pictures; what notebooks show."""

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.figure import Figure

import vioc
from vioc import models, viz
from vioc.control import dmoc
from vioc.errors import ModelError
from vioc.sweeps import grid, sweep

# inside: pictures are read off their scenes, not off pixels
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
        "x", "theta", "force", bounds={"force": 8.0, "x": (None, moving)}, targets={"theta": 1.0}
    )
    assert [set(line.get_ydata()) for line in dotted(force)] == [{-8.0}, {8.0}]
    assert len(dotted(x)) == 1 and np.array_equal(dotted(x)[0].get_ydata(), moving)
    assert dotted(theta) == [] and theta.lines[-1].get_xydata().tolist() == [[1.0, 1.0]]
    (panel,) = viz.plot_comparison({"plan": run, "again": run}, "theta", bounds={"theta": (0.0, 4.0)})
    assert [set(line.get_ydata()) for line in dotted(panel)] == [{0.0}, {4.0}]
    with pytest.raises(ModelError, match="bounds: unknown quantity 'thata'|bounds: unknown name 'thata'"):
        run.plot("theta", bounds={"thata": 1.0})


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
    for wrong in (dmoc.PathConstraint("x", f.quantity("x"), upper=1), "goal"):
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


def circles_in_film(runs, path, centre, radius, **options):
    """How many lines of a film are made of circles about `centre`."""
    axes, found = Figure().subplots(), 0
    viz.animate(runs, path, fps=1, ax=axes, **options)
    for line in axes.lines:
        points = np.column_stack(line.get_data())
        away = np.linalg.norm(points[np.isfinite(points).all(axis=1)] - centre, axis=1)
        found += len(away) > 20 and np.allclose(away, radius)
    return found


@pytest.mark.parametrize("method", ["shooting", "dmoc", "phases"])
def test_obstacles_of_an_optimization_are_drawn_with_its_result(method, tmp_path):
    puck = vioc.tx("x")[vioc.tz("z", name="puck", mass=1.0)]
    f = vioc.MidpointVI(vioc.System(puck, vioc.JointForce("x", "right"), vioc.JointForce("z", "up")), 0.1)
    post = dmoc.obstacle(f, "puck", (0.5, 0.05), 0.2, axes="xz", name="post")
    cost = vioc.control.quadratic(f, R=0.1, Qf=100.0, goal={"x": 1.0})
    if method == "phases":
        halves = [
            dmoc.Phase(f, 6, cost, initial=f.initial_state(), bounds={"x": (None, 0.6)}),
            dmoc.Phase(f, 6, cost, constraints=[post]),
        ]
        x = np.linspace(0, 1, 13)
        curves = [(np.column_stack([a, 0.3 + 0 * a, 1.0 + 0 * a, 0 * a]), None) for a in (x[:7], x[6:])]
        best = dmoc.Problem(halves).solve(curves, raise_on_failure=False)
    else:
        how = dict(constraints=post, method=method, raise_on_failure=False)
        best = vioc.control.optimize(f, cost, x0=f.initial_state(), steps=12, **how)
    where = tmp_path / "puck.gif", (0.5, 0.05), 0.2
    assert circles_in_film(best, *where) == 1
    assert circles_in_film({"plan": best, "again": best}, *where, marks=post) == 1
    assert circles_in_film(best.trajectory, *where) == 0
    best.animate(tmp_path / "own.gif", fps=1)
    best.trajectory.animate(tmp_path / "bare.gif", fps=1)
    assert (tmp_path / "own.gif").read_bytes() != (tmp_path / "bare.gif").read_bytes()


def test_an_obstacle_of_a_later_phase_moves_from_its_start():
    """Its rows are of the samples of its own phase."""
    puck = vioc.tx("x")[vioc.tz("z", name="puck", mass=1.0)]
    f = vioc.MidpointVI(vioc.System(puck, vioc.JointForce("x", "right")), 0.1)
    path = np.stack([np.linspace(1, 2, 5), np.ones(5)], axis=1)
    ball = dmoc.obstacle(f, "puck", path, 0.1, axes="xz")
    cost = vioc.control.quadratic(f, R=1.0)
    halves = [dmoc.Phase(f, 4, cost, initial=f.initial_state()), dmoc.Phase(f, 4, cost, constraints=[ball])]
    still = [(np.zeros((5, 4)), None)] * 2
    best = dmoc.Problem(halves).solve(still)
    (circle,) = scene_of(best.trajectory).with_marks((), best).kind("obstacle")
    middle = circle.points[:, :-1].mean(axis=1)[:, [0, 2]]
    np.testing.assert_allclose(middle, np.concatenate([path[[0] * 4], path]), atol=1e-12)
    (circle,) = scene_of(best.phases[1].trajectory).with_marks((), best.phases[1]).kind("obstacle")
    np.testing.assert_allclose(circle.points[:, :-1].mean(axis=1)[:, [0, 2]], path, atol=1e-12)
