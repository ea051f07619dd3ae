"""Plots and animations: what they show, and that they need a description only."""

import casadi as ca
import matplotlib.pyplot as plt
import numpy as np
import pytest
from PIL import Image

from vioc.dynamics.description.frame import rx, ry, tx, ty, tz
from vioc.dynamics.description.numbers import P
from vioc.dynamics.description.system import System
from vioc.dynamics.integrators.casadi_map import CasadiMap
from vioc.dynamics.kinematics import FrameGraph
from vioc.dynamics.terms.constraints import DistanceConstraint
from vioc.dynamics.terms.potentials import LinearSpring
from vioc.errors import ModelError
from vioc.viz import animate, film, plot_convergence, plot_energy, plot_inputs, plot_trajectory
from vioc.viz.animation import _plane, _scene, _stage, _zigzag


@pytest.fixture(autouse=True)
def close_figures():
    yield
    plt.close("all")


class Puppet(CasadiMap):
    """Every variable of a system turns or slides at the rate that the input sets."""

    def __init__(self, system: System):
        n = len(system.dynamic)
        x, u = ca.SX.sym("x", n), ca.SX.sym("u", n)
        step = ca.Function("f", [x, u], [x + 0.02 * u])
        super().__init__(
            step,
            0.02,
            state_names=system.dynamic,
            input_names=[f"d{q}" for q in system.dynamic],
            parameters=system.parameters,
        )
        self.system = system
        graph = FrameGraph(system)
        origins = [ca.vertcat(*graph.node_pose(i)[1]) for i in range(len(system.nodes))]
        self._origins = ca.Function("origins", [graph.q_vector], [ca.horzcat(*origins)])

    def frame_positions(self, x):
        return np.stack([np.array(self._origins(row)).T for row in x])

    def unit(self, name: str) -> str:
        return {"x": "m", "theta": "rad", "phi": "rad", "u.dx": "m/s"}.get(name, "")

    def quantity(self, name: str):
        return self.symbols.x[0] ** 2 if name == "energy" else super().quantity(name)


def cart(variable="x", slide=tx, turn=ry):
    return slide(variable, name="cart", mass=2.0)[
        turn("theta", name="pole")[tz(1.0, name="tip", mass=P("m", 0.5))]
    ]


@pytest.fixture
def run():
    f = Puppet(System(cart()))
    return f.rollout([0.0, 0.3], [0.5, 3.0], steps=40)


# -- plots --------------------------------------------------------------------------------------


def test_names_and_units_are_on_the_axes(run):
    axes = plot_trajectory(run, "theta")
    assert axes.get_ylabel() == "theta [rad]"
    assert axes.get_xlabel() == "t [s]"
    assert np.array_equal(axes.lines[0].get_ydata(), run["theta"])


def test_all_states_one_panel_per_unit(run):
    panels = run.plot()
    assert [a.get_ylabel() for a in panels] == ["x [m]", "theta [rad]"]
    assert panels[0].get_xlabel() == "" and panels[1].get_xlabel() == "t [s]"


def test_several_of_one_unit_share_a_panel_with_a_legend():
    f = Puppet(System(rx("theta")[tz(1.0)[rx("phi", mass=1.0)]]))
    axes = plot_trajectory(f.rollout([0.0, 0.3], steps=5))
    assert axes.get_ylabel() == "angle [rad]"
    assert [t.get_text() for t in axes.get_legend().get_texts()] == ["theta", "phi"]


def test_plots_draw_where_told(run):
    _, ax = plt.subplots()
    assert plot_trajectory(run, "x", "theta", ax=ax) is ax
    assert plot_inputs(run, ax=ax) is ax
    assert plot_energy(run, ax=ax) is ax
    assert plot_convergence([1.0, 0.1], [0.5, np.nan], ax=ax) is ax
    assert len(plt.get_fignums()) == 1


def test_curves_of_several_units_are_named_on_the_axis(run):
    _, ax = plt.subplots()
    assert plot_trajectory(run, "x", "theta", ax=ax).get_ylabel() == "x, theta"


def test_inputs_are_steps_over_the_samples(run):
    panels = plot_inputs(run)
    stairs = panels[0].patches[0].get_data()
    assert np.array_equal(stairs.edges, run.t)
    assert np.array_equal(stairs.values, run.u[:, 0])
    assert panels[0].get_ylabel() == "u.dx [m/s]"


def test_a_map_that_knows_no_units_is_plotted_without():
    f = CasadiMap(ca.Function("f", [ca.SX.sym("x"), ca.SX.sym("u", 0)], [ca.SX(1)]), dt=0.1)
    run = f.rollout([0.0], steps=3)
    assert plot_trajectory(run).get_ylabel() == "x0"
    with pytest.raises(ValueError, match="no inputs"):
        plot_inputs(run)
    with pytest.raises(ModelError, match="energy"):
        plot_energy(run)


def test_an_unknown_name_leaves_no_empty_figure(run):
    with pytest.raises(ModelError, match="did you mean 'theta'"):
        plot_trajectory(run, "x", "teta")
    assert not plt.get_fignums()


def test_convergence_shows_both_arrays():
    axes = plot_convergence([4.0, 2.0, 1.0], [-3.0, -1e-4])
    assert axes.get_yscale() == "log"
    assert [list(line.get_ydata()) for line in axes.lines] == [[4.0, 2.0, 1.0], [3.0, 1e-4]]


# -- animation ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("slide", "turn", "view"), [(tx, ry, "xz"), (ty, rx, "yz"), (tx, rx, "3d"), (tz, ry, "xz")]
)
def test_the_view_is_the_plane_of_the_motion(slide, turn, view):
    run = Puppet(System(cart("x", slide, turn))).rollout([0.0, 0.3], [0.5, 3.0], steps=20)
    assert _plane(_scene(run, 30, 1.0)) == view


def test_the_scene_is_the_description():
    system = System(
        cart(),
        tx(1.0, name="wall"),
        LinearSpring("wall", "tip", 1.0),
        DistanceConstraint("world", "tip", 1.0),
    )
    f = Puppet(system)
    f.parameters = {"m": 0.7}
    scene = _scene(f.rollout([0.0, 0.3], [0.5, 3.0], steps=50), 25, 2.0)
    assert np.allclose(scene.t, np.arange(14) * 0.08)
    assert np.allclose(scene.points[3, 0], [0.5 * scene.t[3], 0, 0])
    assert not scene.points[:, -1].any()  # the world
    assert scene.links.tolist() == [[0, 1], [1, 2]]
    assert scene.ground.tolist() == [[-1, 3]]  # the cart is not joined to the origin: it slides
    assert scene.rails.tolist() == [[4, 5]]
    assert scene.carts.tolist() == [True, False, False, False]
    assert scene.springs.tolist() == [[3, 2]]
    assert scene.rods.tolist() == [[-1, 2]]
    assert scene.masses.tolist() == [2.0, 0.0, 0.7, 0.0]


def test_rails_go_as_far_as_the_motion_and_move_with_what_carries_them():
    arm = ry("theta", name="arm")[tz("x", name="slider", mass=1.0)]
    scene = _scene(Puppet(System(arm)).rollout([0.0, 0.2], [1.0, 0.5], steps=50), 25, 1.0)
    low, high = scene.points[:, 2], scene.points[:, 3]
    theta = scene.t
    along = np.stack([np.sin(theta), 0 * theta, np.cos(theta)], axis=1)
    margin = 0.03 * np.ptp(scene.points[:, :2], axis=(0, 1)).max()
    assert np.allclose(low, (0.2 - margin) * along) and np.allclose(high, (0.7 + margin) * along)
    slider = scene.points[:, 1]
    assert np.allclose(np.cross(slider - low, high - low), 0, atol=1e-12)


def test_free_motion_has_no_rails():
    free = Puppet(System(tx("x")[tz("z", name="bob", mass=1.0)])).rollout([0.0, 0.0], [1.0, 1.0], steps=9)
    crane = Puppet(System(tx("x", mass=2.0)[tz("z", mass=1.0)])).rollout([0.0, 0.0], [1.0, 1.0], steps=9)
    assert _scene(free, 25, 1.0).rails.size == 0 and not _scene(free, 25, 1.0).carts.any()
    assert _scene(crane, 25, 1.0).rails.tolist() == [[2, 3], [4, 5]]


def test_pictures_show_what_a_full_drawing_shows(run, tmp_path):
    """What stands still is drawn once: the last picture is still that of the last sample, on white."""
    scene = _scene(run, 25.0, 1.0)
    path = animate(run, tmp_path / "run.gif", fps=25)
    figure, update = _stage(scene, _plane(scene), to_screen=False)
    update(len(scene.t) - 1)
    figure.canvas.draw()
    full = np.asarray(figure.canvas.buffer_rgba())[..., :3].astype(int)
    with Image.open(path) as image:
        image.seek(image.n_frames - 1)
        shown = np.asarray(image.convert("RGB")).astype(int)
    different = np.abs(shown - full).max(axis=2) > 16  # a palette of 256 colours
    assert different.mean() < 1e-3
    assert (shown[0, 0] == 255).all()


class Clock:
    """Seconds that pass by themselves, `step` at each look."""

    def __init__(self, step: float):
        self.now, self.step = 0.0, step

    def monotonic(self) -> float:
        self.now += self.step
        return self.now


@pytest.mark.parametrize(("step", "lines"), [(0.01, 0), (0.5, 2)])
def test_progress_is_told_only_where_it_takes_long(step, lines, monkeypatch, capsys):
    monkeypatch.setattr(film, "time", Clock(step))
    assert list(film._watched(range(40), "run.gif", 40)) == list(range(40))
    told = capsys.readouterr().err.splitlines()
    assert len(told) == lines
    if told:
        assert told[0] == "run.gif: 5 of 40 pictures, 18 s left" and "40 pictures in" in told[1]


def test_gif_has_every_picture_and_the_right_pace(run, tmp_path):
    path = tmp_path / "run.gif"
    assert animate(run, path, fps=30) == path
    with Image.open(path) as image:
        assert image.n_frames >= 20  # 0.8 s; pictures that do not differ are merged
        assert image.info["duration"] == 30  # ms
    assert not plt.get_fignums()


def test_html_in_three_dimensions(run, tmp_path):
    path = tmp_path / "run.html"
    animate(run, path, fps=5, view="3d")
    assert path.read_text().count("data:image/png;base64") == 5


def test_without_a_file_it_goes_to_the_screen(run):
    animation = animate(run, fps=5)
    assert "data:image/png" in animation.to_jshtml()
    assert len(plt.get_fignums()) == 1


def test_a_mechanism_at_rest_can_be_animated(tmp_path):
    run = Puppet(System(rx("theta", mass=1.0))).rollout([0.0], steps=2)
    animate(run, tmp_path / "rest.gif")


def test_springs_end_where_they_are_attached():
    line = _zigzag(np.array([[[0.0, 0.0], [3.0, 4.0]]]), width=0.1)
    assert np.allclose(line[[0, -2]], [[0, 0], [3, 4]])
    assert np.isnan(line[-1]).all()
    offset = line[:-1] @ [-0.8, 0.6]
    assert np.isclose(np.abs(offset).max(), 0.1)


def test_bad_arguments(run, tmp_path):
    with pytest.raises(ValueError, match=r"\.gif or \.html"):
        animate(run, tmp_path / "run.mp4")
    with pytest.raises(ValueError, match="expected one of xz, yz, xy, 3d, got 'zx'"):
        animate(run, view="zx")
    with pytest.raises(ValueError, match="speed > 0"):
        animate(run, speed=0.0)
    plain = CasadiMap(ca.Function("f", [ca.SX.sym("x"), ca.SX.sym("u")], [ca.SX(1)]), dt=0.1)
    with pytest.raises(TypeError, match="CasadiMap has no frames"):
        animate(plain.rollout([0.0], steps=2))
