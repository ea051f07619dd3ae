"""Animations: what they show, the files that they are written to, and that they need a description only."""

import shutil
import subprocess

import casadi as ca
import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pytest
from PIL import Image

from vioc import CasadiMap, Contact, DistanceConstraint, LinearSpring, Mass, P, System, rx, ry, tx, ty, tz

# inside: animations are read off their axes, scenes and writer, not off pixels
from vioc.viz import animate, film
from vioc.viz.animation import common_plane, stage, zigzags
from vioc.viz.looks import REFERENCE, run_colors
from vioc.viz.scene import scene_of


class Puppet(CasadiMap):
    """Every variable of a system turns or slides at the rate that the input sets."""

    def __init__(self, system: System):
        n = len(system.dynamic)
        x, u = ca.SX.sym("x", n), ca.SX.sym("u", n)
        others = ca.SX.sym("t"), ca.SX.sym("dt"), ca.SX.sym("p", len(system.parameters))
        step = ca.Function("f", [x, u, *others], [x + 0.02 * u])
        super().__init__(
            step,
            0.02,
            state_names=system.dynamic,
            input_names=[f"d{q}" for q in system.dynamic],
            parameters=system.parameters,
        )
        self.system = system


def cart(variable="x", slide=tx, turn=ry):
    return slide(variable, name="cart", mass=2.0)[
        turn("theta", name="pole")[tz(1.0, name="tip", mass=P("m", 0.5))]
    ]


@pytest.fixture
def run():
    f = Puppet(System(cart()))
    return f.rollout([0.0, 0.3], [0.5, 3.0], steps=40)


@pytest.fixture
def other():
    f = Puppet(System(cart()))
    return f.rollout([0.0, -0.3], [0.2, 1.0], steps=20)


def lines_of(axes, color):
    return [line for line in axes.lines if matplotlib.colors.same_color(line.get_color(), color)]


# -- what is shown ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("slide", "turn", "view"), [(tx, ry, "xz"), (ty, rx, "yz"), (tx, rx, "3d"), (tz, ry, "xz")]
)
def test_the_view_is_the_plane_of_the_motion(slide, turn, view):
    run = Puppet(System(cart("x", slide, turn))).rollout([0.0, 0.3], [0.5, 3.0], steps=20)
    assert common_plane([scene_of(run)]) == view


def test_runs_in_different_planes_are_shown_in_space():
    runs = [
        Puppet(System(cart("x", *kind))).rollout([0.0, 0.3], [0.5, 3.0], steps=5)
        for kind in ((tx, ry), (ty, rx))
    ]
    assert common_plane([scene_of(r) for r in runs]) == "3d"


def test_points_are_drawn_where_they_are(run):
    """The link from cart to tip and the mass at its end, at the time that the title tells."""
    axes, update = stage({"run": scene_of(run, np.array([0.0, 0.4]))}, "xz", to_screen=False)
    update(1)
    at = 20
    x, a = run["x"][at], run["theta"][at]
    tip = [x + np.sin(a), np.cos(a)]
    drawn = [line.get_xydata() for line in axes.lines]
    assert any(np.allclose(points[:2], [[x, 0], tip]) for points in drawn if len(points) >= 2)
    assert any(np.allclose(points, [tip]) for points in drawn if len(points) == 1)
    assert axes.get_title(loc="left") == f"t = {run.t[at]:5.2f} s"


def test_axes_have_room_for_everything_at_all_times(run):
    system = System(
        cart(),
        tx(3.0, name="wall"),
        LinearSpring("wall", "tip", 1.0),
        DistanceConstraint("world", "tip", 1.0),
    )
    wide = Puppet(system).rollout([0.0, 0.3], [0.5, 3.0], steps=40)
    axes, update = stage({"run": scene_of(wide)}, "xz", to_screen=False)
    for i in (0, 20, 40):
        for line in update(i)[1:]:
            points = line.get_xydata()
            points = points[np.isfinite(points).all(axis=1)]
            assert (points >= [axes.get_xlim()[0], axes.get_ylim()[0]]).all()
            assert (points <= [axes.get_xlim()[1], axes.get_ylim()[1]]).all()


def test_contacts_and_boxes_of_inertia_are_drawn():
    body = ry("a")[tz(0.5, name="ball", mass=Mass(1.0, (0.02, 0.02, 0.01)))]
    f = Puppet(System(body, Contact.sphere("ball", 0.1)))
    run = f.rollout([0.3], [1.0], steps=5)
    plain, _ = stage({"run": scene_of(run)}, "xz", to_screen=False)
    boxed, update = stage({"run": scene_of(run)}, "xz", to_screen=False, inertia=True)
    assert len(boxed.lines) == len(plain.lines) + 1
    update(0)
    center = 0.5 * np.array([np.sin(0.3), np.cos(0.3)])
    circle = next(line for line in boxed.lines if len(line.get_xdata()) > 60).get_xydata()
    distance = np.linalg.norm(circle - center, axis=1)
    assert np.sum(np.isclose(distance, 0.1)) >= 33  # the great circle in the plane
    assert np.any(np.isclose(circle[:, 1], 0.0)) and np.nanmax(np.abs(circle[:, 0])) > 1  # the ground


def test_several_runs_have_colours_and_a_legend(run, other):
    axes, _ = stage({"reference": scene_of(run), "closed loop": scene_of(other)}, "xz", to_screen=False)
    assert [t.get_text() for t in axes.get_legend().get_texts()] == ["reference", "closed loop"]
    grey, blue = run_colors(["reference", "closed loop"])
    assert grey == REFERENCE != blue
    assert len(lines_of(axes, grey)) == len(lines_of(axes, blue)) > 2


def test_a_run_that_has_ended_stays_at_its_end(run, other):
    animation = animate([run, other], fps=10)
    axes = animation.axes
    color = run_colors(["run 1", "run 2"])[1]
    animation._func(7)
    ended = [line.get_xydata().copy() for line in lines_of(axes, color)]
    animation._func(8)
    for before, line in zip(ended, lines_of(axes, color), strict=True):
        np.testing.assert_array_equal(before, line.get_xydata())
    tip = [other["x"][-1] + np.sin(other["theta"][-1]), np.cos(other["theta"][-1])]
    assert any(np.allclose(points, [tip]) for points in ended if len(points) == 1)
    animation._draw_was_started = True  # it was looked at


def test_it_draws_where_told(run, tmp_path):
    figure, (left, right) = plt.subplots(1, 2)
    right.plot([0, 1])
    animation = animate(run, fps=5, ax=left)
    assert animation.axes is left and len(left.lines) > 2 and len(right.lines) == 1
    animation._draw_was_started = True
    assert len(plt.get_fignums()) == 1
    with Image.open(animate(run, tmp_path / "run.gif", fps=5, ax=left)) as image:
        assert image.size == tuple(figure.canvas.get_width_height())
    with pytest.raises(ValueError, match='projection "3d"'):
        animate(run, ax=left, view="3d")


def test_axes_in_three_dimensions_are_taken(run):
    axes = plt.figure().add_subplot(projection="3d")
    animation = animate(run, fps=5, ax=axes)
    animation._func(0)
    animation._draw_was_started = True
    assert axes.get_zlabel() == "z (m)"


def test_springs_end_where_they_are_attached():
    line = zigzags(np.array([[0.0, 0.0], [3.0, 4.0]]), width=0.1)
    assert np.allclose(line[[0, -1]], [[0, 0], [3, 4]])
    offset = line @ [-0.8, 0.6]
    assert np.isclose(np.abs(offset).max(), 0.1)


# -- files ------------------------------------------------------------------------------------------


def test_pictures_show_what_a_full_drawing_shows(run, tmp_path):
    """What stands still is drawn once: the last picture is still that of the last sample, on white."""
    path = animate(run, tmp_path / "run.gif", fps=25)
    scene = scene_of(run, run.t[0] + np.arange(21) / 25)
    axes, update = stage({"run": scene}, "xz", to_screen=False)
    update(len(scene.t) - 1)
    axes.figure.canvas.draw()
    full = np.asarray(axes.figure.canvas.buffer_rgba())[..., :3].astype(int)
    with Image.open(path) as image:
        image.seek(image.n_frames - 1)
        shown = np.asarray(image.convert("RGB")).astype(int)
    different = np.abs(shown - full).max(axis=2) > 16  # a palette of 256 colours
    assert different.mean() < 1e-3
    assert (shown[0, 0] == 255).all()


def test_gif_has_every_picture_and_the_right_pace(run, tmp_path):
    path = tmp_path / "run.gif"
    assert run.animate(path, fps=30) == path
    with Image.open(path) as image:
        assert image.n_frames >= 20  # 0.8 s; pictures that do not differ are merged
        assert image.info["duration"] == 30  # ms
    assert not plt.get_fignums()


def test_html_in_three_dimensions(run, tmp_path):
    path = tmp_path / "run.html"
    animate(run, path, fps=5, view="3d")
    assert path.read_text().count("data:image/png;base64") == 5


@pytest.mark.parametrize("size", [(1.0, 1.0, 1.0), (200.0, 1.0, 1.0), (1e-3, 1e-3, 0.03), (0.1, 2.0, 0.3)])
def test_labels_in_three_dimensions_lie_in_the_picture(size):
    """And beside the numbers, whatever the shape of the box."""
    f = Puppet(System(tx("x")[ty("y")[tz("z", name="ball", mass=1.0)]]))
    run = f.rollout(np.zeros(3), np.tile(np.array(size) / 0.06, (3, 1)))
    axes, update = stage({"run": scene_of(run, run.t)}, "3d", to_screen=False)
    update(0)
    figure = axes.figure
    figure.draw_without_rendering()
    renderer, (width, height) = figure.canvas.get_renderer(), figure.bbox.size
    for axis in (axes.xaxis, axes.yaxis, axes.zaxis):
        box = axis.get_tightbbox(renderer)
        assert box.x0 >= 0 and box.y0 >= 0 and box.x1 <= width and box.y1 <= height
        label = axis.label.get_window_extent(renderer)
        low, high = axis.get_view_interval()
        numbers = [t for t in axis.get_major_ticks() if low <= t.get_loc() <= high]
        assert not any(label.overlaps(t.label1.get_window_extent(renderer)) for t in numbers)


@pytest.mark.skipif(shutil.which("ffmpeg") is None, reason="no ffmpeg found")
def test_mp4_is_a_film_of_the_pictures(run, tmp_path):
    path = animate(run, tmp_path / "run.mp4", fps=10)
    raw = subprocess.run(
        ["ffmpeg", "-loglevel", "error", "-i", path, "-f", "rawvideo", "-pix_fmt", "rgb24", "-"],
        capture_output=True,
        check=True,
    ).stdout
    scene = scene_of(run, run.t[0] + np.arange(9) / 10)
    axes, update = stage({"run": scene}, "xz", to_screen=False)
    update(8)
    axes.figure.canvas.draw()
    full = np.asarray(axes.figure.canvas.buffer_rgba())[..., :3]
    height, width = (2 * ((n + 1) // 2) for n in full.shape[:2])
    frames = np.frombuffer(raw, "u1").reshape(-1, height, width, 3)
    assert len(frames) == 9
    shown = frames[-1][: full.shape[0], : full.shape[1]].astype(float)
    assert np.abs(shown - full).mean() < 3  # of 255; the colours of a film are coarser than its light


def test_without_ffmpeg_it_says_what_to_do(run, tmp_path, monkeypatch):
    monkeypatch.setattr(film.shutil, "which", lambda _: None)
    with pytest.raises(FileNotFoundError, match=r"ffmpeg.*not found; install it .*or write a \.gif"):
        animate(run, tmp_path / "run.mp4")


def test_what_ffmpeg_says_is_told(run, tmp_path, monkeypatch):
    maker = tmp_path / "ffmpeg"
    maker.write_text("#!/bin/sh\necho no such codec >&2\nexit 1\n")
    maker.chmod(0o755)
    monkeypatch.setitem(matplotlib.rcParams, "animation.ffmpeg_path", str(maker))
    with pytest.raises(OSError, match="ffmpeg failed: no such codec"):
        animate(run, tmp_path / "run.mp4", fps=5)


def test_a_still_of_an_animation_shows_its_beginning(run, tmp_path):
    animation = animate(run, fps=5)
    animation.axes.figure.savefig(tmp_path / "still.png")
    still = np.asarray(Image.open(tmp_path / "still.png"))
    for line in animation.axes.lines:
        line.set_visible(False)
    animation.axes.figure.savefig(tmp_path / "empty.png")
    assert np.abs(still - np.asarray(Image.open(tmp_path / "empty.png")).astype(float)).max() > 50
    animation._draw_was_started = True  # it was looked at


def test_without_a_file_it_goes_to_the_screen_and_to_notebooks(run):
    animation = animate(run, fps=5)
    assert len(plt.get_fignums()) == 1
    assert "data:image/png" in animation._repr_html_()
    assert not plt.get_fignums()  # a notebook would show it once more


def test_a_mechanism_at_rest_can_be_animated(tmp_path):
    run = Puppet(System(rx("theta", mass=1.0))).rollout([0.0], steps=2)
    animate(run, tmp_path / "rest.gif")


def test_bad_arguments(run, tmp_path):
    with pytest.raises(ValueError, match=r"\.gif, \.html or \.mp4"):
        animate(run, tmp_path / "run.avi")
    with pytest.raises(FileNotFoundError, match="no such folder"):
        animate(run, tmp_path / "none" / "run.gif")
    with pytest.raises(ValueError, match="expected one of xz, yz, xy, 3d, got 'zx'"):
        animate(run, view="zx")
    with pytest.raises(ValueError, match="speed > 0"):
        animate(run, speed=0.0)
    plain = CasadiMap(ca.Function("f", [ca.SX.sym("x"), ca.SX.sym("u")], [ca.SX(1)]), dt=0.1)
    with pytest.raises(TypeError, match="CasadiMap has no frames"):
        animate(plain.rollout([0.0], steps=2))
