"""Plots over time, iterations and step lengths: what they show, where, and in which units."""

import subprocess
import sys
from itertools import pairwise
from types import SimpleNamespace

import casadi as ca
import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from support.control_maps import cart_pole

import vioc
from vioc import (
    CasadiMap,
    DistanceConstraint,
    Gravity,
    JointForce,
    MidpointVI,
    PointConstraint,
    StringConstraint,
    System,
    models,
    rx,
    ry,
    tx,
    ty,
    tz,
    viz,
)
from vioc.components import GearConstraint
from vioc.control import dlqr, feedback

# inside: units and labels of axes by name, and histories that no optimizer has to make
from vioc.control.problem.result import History, Iteration
from vioc.errors import ModelError
from vioc.viz.plots import energy, style
from vioc.viz.plots.units import label, per, quantity_unit

G = Gravity(0, 0, -9.8)


@pytest.fixture(scope="module")
def f():
    cart = tx("x", name="cart", mass=2.0)[ry("theta")[tz(1.0, name="tip", mass=0.5)]]
    return MidpointVI(System(G, cart, JointForce("x", "force"), JointForce("theta", "motor")), 0.02)


@pytest.fixture(scope="module")
def run(f):
    return f.rollout(f.initial_state({"theta": 0.3}), np.linspace([0, 0], [1, 2], 40))


@pytest.fixture(scope="module")
def chain():
    """A pendulum held by a rod, a pin and a gear."""
    arms = (
        tx("x")[tz("z", name="bob", mass=1.0)],
        ry("a", mass=1.0)[tx(1.0, mass=1.0)],
        ry("b")[tx(1, mass=1.0)],
    )
    ties = (
        StringConstraint("bob", "world", 1.0, name="rope"),
        GearConstraint("a", "b", 2.0, name="gear"),
        PointConstraint("bob", "world", (0.0, 0.0, 1.0), name="rail"),
    )
    f = MidpointVI(System(G, *arms, *ties[:2]), 0.01)
    return f, MidpointVI(System(*arms, ties[2]), 0.01)


@pytest.fixture(scope="module")
def puppet():
    """A short run of a mechanism with 80 states."""
    f = MidpointVI(models.load("marionette"), 0.01)
    return f.rollout(f.initial_state(models.marionette_configuration()), steps=3, warn=False)


def labels(axes):
    return [t.get_text() for t in axes.get_legend().get_texts()]


# -- units ----------------------------------------------------------------------------------------


def test_units_come_from_the_description(f, chain):
    named = {
        "x": "m",
        "theta": "rad",
        "p.x": "kg m/s",
        "p.theta": "kg m^2/s",
        "v.theta": "rad/s",
        "tip:x": "m",
    }
    assert {n: quantity_unit(f, n) for n in named} == named
    assert (quantity_unit(f, "u.force"), quantity_unit(f, "u.motor")) == ("N", "N m")
    held, railed = chain
    units = {
        "h.rope": "m^2",
        "force.rope": "N/m",
        "lambda.rope": "N s/m",
        "tension.rope": "N",
        "h.gear": "rad",
    }
    assert {n: quantity_unit(held, n) for n in units} == units
    assert (quantity_unit(held, "force.gear"), quantity_unit(railed, "lambda.rail")) == ("N m", "N s")


def test_units_of_multipliers_are_those_of_work():
    """[h] [force] = J for each kind: a rod's multiplier is half its pull over its length."""
    f = MidpointVI(
        System(G, ty("y")[tz("z", name="bob", mass=2.0)], DistanceConstraint("bob", "world", 0.5)), 0.01
    )
    hanging = f.rollout(f.initial_state({"z": -0.5}), steps=3)
    pull, multiplier = hanging["tension.distance-constraint-1"], hanging["force.distance-constraint-1"]
    assert np.allclose(pull[1:], 2.0 * 9.8)
    assert np.allclose(np.abs(multiplier) * 2 * 0.5, pull)  # (N/m) m = N


def test_labels():
    assert label("theta", "rad") == "theta (rad)"
    assert label("p", "kg m^2/s") == "p (kg m²/s)"
    assert label("x0") == "x0"
    assert [per("N", "rad"), per("N", "kg m/s"), per("", "m"), per("N", "")] == [
        "N/rad",
        "N/(kg m/s)",
        "1/m",
        "N",
    ]


# -- over time ------------------------------------------------------------------------------------


def test_names_and_units_are_on_the_axes(run):
    (axes,) = viz.plot_trajectory(run, "theta")
    assert axes.get_ylabel() == "theta (rad)" and axes.get_xlabel() == "t (s)"
    assert np.array_equal(axes.lines[0].get_ydata(), run["theta"])


def test_all_states_one_panel_per_unit(run):
    panels = run.plot()
    units = ["x (m)", "theta (rad)", "p.x (kg m/s)", "p.theta (kg m²/s)"]
    assert [a.get_ylabel() for a in panels] == units
    assert [a.get_xlabel() for a in panels] == ["", "", "", "t (s)"]


def test_several_of_one_unit_share_a_panel_with_a_legend():
    f = MidpointVI(System(rx("theta")[tz(1.0, mass=1.0)[rx("phi")[tz(1.0, mass=1.0)]]]), 0.02)
    (axes,) = f.rollout(f.initial_state({"theta": 0.3}), steps=5).plot("theta", "phi")
    assert axes.get_ylabel() == "angle (rad)"
    assert labels(axes) == ["theta", "phi"]


def test_inputs_are_steps_over_the_samples(run):
    panels = viz.plot_inputs(run)
    line = panels[1].lines[0]
    assert line.get_drawstyle() == "steps-post" and np.array_equal(line.get_xdata(), run.t)
    assert np.array_equal(line.get_ydata(), [*run.u[:, 1], run.u[-1, 1]])
    assert [a.get_ylabel() for a in panels] == ["u.force (N)", "u.motor (N m)"]


def test_curves_of_several_units_name_them_in_the_legend(run):
    _, ax = plt.subplots()
    assert run.plot("x", "theta", ax=ax)[0].get_ylabel() == "x, theta"
    assert labels(ax) == ["x (m)", "theta (rad)"]


def test_what_has_a_trajectory_is_plotted(run):
    result = SimpleNamespace(trajectory=run)
    assert viz.plot_trajectory(result, "x")[0].get_ylabel() == "x (m)"
    assert viz.plot_energy(result).get_ylabel() == "energy (J)"


def test_a_map_that_knows_no_units_is_plotted_without():
    f = CasadiMap(ca.Function("f", [ca.SX.sym("x"), ca.SX.sym("u", 0)], [ca.SX(1)]), dt=0.1)
    run = f.rollout([0.0], steps=3)
    assert viz.plot_trajectory(run)[0].get_ylabel() == "x0"
    for plot, message in ((viz.plot_inputs, "no inputs"), (viz.plot_multipliers, "no constraints")):
        with pytest.raises(ValueError, match=message):
            plot(run)
    with pytest.raises(ValueError, match="no constraints"):
        viz.plot_constraints(run)
    with pytest.raises(ModelError, match="energy"):
        viz.plot_energy(run)


def test_an_unknown_name_leaves_no_empty_figure(run):
    for draw in (
        run.plot,
        lambda n: viz.plot_comparison({"a": run}, n),
        lambda n: viz.plot_phase(run, "x", n),
    ):
        with pytest.raises(ModelError, match="did you mean 'theta'"):
            draw("teta")
    assert not plt.get_fignums()


def test_energy_its_parts_and_its_change(run):
    axes = viz.plot_energy(run, parts=True)
    total, kinetic, potential = (line.get_ydata() for line in axes.lines)
    assert np.allclose(kinetic + potential, total) and np.array_equal(total, run.energy)
    assert labels(axes) == ["total", "kinetic", "potential"]
    assert viz.plot_energy(run, change=True).lines[0].get_ydata()[0] == 0.0


def test_constraints_on_a_logarithmic_axis_per_unit(chain):
    f, _ = chain
    run = f.rollout(f.initial_state({"z": -1.0, "a": 0.4, "b": 0.2}), steps=20, warn=False)
    rope, gear = viz.plot_constraints(run)
    assert [rope.get_ylabel(), gear.get_ylabel()] == ["|h.rope| (m²)", "|h.gear| (rad)"]
    assert rope.get_yscale() == "log"
    shown, values = gear.lines[0].get_ydata(), np.abs(run["h.gear"])
    assert np.array_equal(shown[values > 0], values[values > 0]) and np.isnan(shown[values == 0]).all()
    pulls = viz.plot_multipliers(run)
    assert [a.get_ylabel() for a in pulls] == ["tension.rope (N)", "force.gear (N m)"]
    assert np.array_equal(pulls[0].lines[0].get_ydata()[:-1], run["tension.rope"])
    assert viz.plot_multipliers(run, "gear", impulses=True)[0].get_ylabel() == "lambda.gear (N m s)"


def test_many_constraints_show_the_largest(puppet, monkeypatch):
    assert len(viz.plot_constraints(puppet)[0].lines) == 6
    monkeypatch.setattr(energy, "MANY", 4)
    (axes,) = viz.plot_constraints(puppet)
    assert labels(axes) == ["all", "largest of 6"]
    values = [np.abs(puppet[f"h.{n}"]).max() for n in puppet.map.multiplier_names]
    assert np.nanmax(axes.lines[-1].get_ydata()) == max(values)


# -- axes -----------------------------------------------------------------------------------------


def test_plots_draw_where_told(run):
    _, ax = plt.subplots()
    assert list(viz.plot_trajectory(run, "x", "theta", ax=ax)) == [ax]
    assert viz.plot_energy(run, ax=ax) is ax
    assert viz.plot_convergence([1.0, 0.1], [0.5, np.nan], ax=ax) is ax
    assert viz.plot_phase(run, "x", "theta", ax=ax) is ax
    _, two = plt.subplots(2, 1)
    assert list(viz.plot_inputs(run, ax=two)) == list(two)
    assert list(viz.plot_comparison({"a": run}, "x", "theta", ax=two)) == list(two)
    assert len(plt.get_fignums()) == 2


def test_plots_of_panels_return_an_array_however_many_there_are(f, run):
    batch, spread = f.rollouts(run.x[:2], steps=3), feedback.covariance(run, 1e-4, 1e-6)
    for plot in (run.plot, batch.plot, spread.plot, lambda *n: viz.plot_comparison([run], *n)):
        for names in (["theta"], ["x", "theta"]):
            assert plot(*names).shape == (len(names),)
    assert viz.plot_inputs(run).shape == (2,)


def test_something_else_than_axes_is_refused(run):
    figure, axes = plt.subplots()
    with pytest.raises(TypeError, match=r"ax: expected matplotlib Axes.* got Figure; figure.subplots\(\)"):
        run.plot("theta", ax=figure)
    with pytest.raises(TypeError, match="got str"):
        viz.plot_phase(run, "x", "theta", ax="left")
    with pytest.raises(ValueError, match="expected 2 axes"):
        run.plot("x", "theta", ax=[axes])


def test_a_wrong_number_of_axes_says_what_is_expected(run):
    _, two = plt.subplots(2, 1)
    with pytest.raises(ValueError, match=r"expected 1 axes, one per panel \(x\), got 2"):
        run.plot("x", ax=two)
    with pytest.raises(ValueError, match=r"expected 3 axes.*\(x, theta, u.motor\), got 2"):
        viz.plot_comparison({"a": run}, "x", "theta", "u.motor", ax=two)


def test_with_axes_pyplot_is_not_needed(tmp_path):
    """Nothing global: in a fresh interpreter a figure of its own is drawn on and saved without pyplot."""
    code = f"""
import sys, vioc.viz.plots
assert "matplotlib" not in sys.modules  # imported when something is drawn
from matplotlib.figure import Figure
f = vioc.MidpointVI(vioc.models.load("pendulum"), 0.05)
run = f.rollout(f.initial_state({{"theta": 1.0}}), steps=20)
figure = Figure(layout="constrained")
axes = figure.subplots(3, 1)
run.plot("theta", ax=axes[0])
vioc.viz.plot_energy(run, parts=True, ax=axes[1])
vioc.viz.plot_phase({{"a": run, "b": run}}, "theta", "p.theta", ax=axes[2])
figure.savefig({str(tmp_path / "own.png")!r})
assert "matplotlib.pyplot" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
    assert (tmp_path / "own.png").stat().st_size > 5000


def drawn(figure):
    FigureCanvasAgg(figure)
    figure.draw_without_rendering()
    return figure.canvas.get_renderer()


def test_nothing_overlaps_or_is_cut_off(puppet):
    """Legends, labels and ticks of many curves keep apart, and within the figure."""
    panels = puppet.plot()
    figure = panels[0].figure
    renderer = drawn(figure)
    whole = figure.bbox
    legends = [a.get_legend().get_window_extent(renderer) for a in panels]
    boxes = [a.get_tightbbox(renderer, bbox_extra_artists=[a.yaxis.label]) for a in panels]
    for box in (*legends, *boxes):
        assert box.x0 >= whole.x0 - 1 and box.x1 <= whole.x1 + 1 and box.y0 >= whole.y0 - 1, box
    for a, legend in zip(panels, legends, strict=True):
        assert legend.x0 >= a.get_window_extent(renderer).x1 - 1
    for upper, lower in pairwise(legends):
        assert lower.y1 <= upper.y0 + 1
    heights = [a.yaxis.label.get_window_extent(renderer) for a in panels]
    for upper, lower in pairwise(heights):
        assert lower.y1 <= upper.y0 + 1
    assert all(a.get_window_extent(renderer).width > 0.35 * whole.width for a in panels)


def test_legends_stay_inside_without_a_layout(run):
    """Beside the axes of a figure without a layout engine a legend would be cut off."""
    ax = Figure().add_subplot()
    run.plot("x", "theta", "p.x", "p.theta", "u.force", ax=ax)
    renderer = drawn(ax.figure)
    legend, inside = ax.get_legend().get_window_extent(renderer), ax.get_window_extent(renderer)
    assert inside.x0 <= legend.x0 and legend.x1 <= inside.x1


def test_axes_of_subfigures_will_do(run):
    left, right = Figure(figsize=(12, 4), layout="constrained").subfigures(1, 2)
    ax = left.subplots()
    assert list(run.plot("x", "theta", "p.x", "p.theta", "u.force", ax=ax)) == [ax]
    assert viz.plot_inputs(run, ax=right.subplots(2, 1))[0].figure is right
    renderer = drawn(left.figure)
    assert ax.get_legend().get_window_extent(renderer).x1 <= left.bbox.x1 + 1


def test_colours_and_lines_tell_many_curves_apart():
    ax = Figure().add_subplot()
    for i in range(30):
        style.curve(ax, np.arange(3.0), np.full(3, i), str(i))
    looks = {(line.get_color(), line.get_linestyle()) for line in ax.lines}
    assert len(looks) == 30


# -- runs beside each other -------------------------------------------------------------------------


def test_comparison_draws_the_first_as_a_reference(f, run):
    other = f.with_dt(0.04).rollout(run.x[0], steps=20)
    x, motor = viz.plot_comparison({"reference": run, "free": other}, "x", "u.motor")
    assert labels(x) == ["reference", "free"] and motor.get_legend() is None
    assert [a.get_ylabel() for a in (x, motor)] == ["x (m)", "u.motor (N m)"]
    assert x.lines[0].get_linestyle() == "--" and x.lines[1].get_linestyle() == "-"
    assert np.array_equal(x.lines[1].get_xdata(), other.t)
    with pytest.raises(ValueError, match="at least one"):
        viz.plot_comparison({}, "x")


def test_phase_portraits_start_and_end_and_align_steps_with_samples(run):
    axes = viz.plot_phase(run, "theta", "p.theta")
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("theta (rad)", "p.theta (kg m²/s)")
    line, start, end = axes.lines
    assert np.array_equal(line.get_xydata(), np.stack([run["theta"], run["p.theta"]], axis=1))
    assert start.get_xdata() == run["theta"][:1] and end.get_ydata() == run["p.theta"][-1:]
    line, _, end = viz.plot_phase(run, "theta", "u.motor").lines
    assert np.array_equal(line.get_xydata(), np.stack([run["theta"][:-1], run["u.motor"]], axis=1))
    assert end.get_xdata() == run["theta"][-2]


def test_batches_few_and_many_with_failures(f):
    starts = f.initial_state({"theta": 0.3}) + 0.01 * np.arange(12)[:, None]
    batch = f.rollouts(starts, steps=30)
    theta, energy = batch.plot("theta", "energy")
    assert labels(theta) == ["5 % to 95 %", "median of 12"] and energy.get_ylabel() == "energy (J)"
    assert np.array_equal(theta.lines[-1].get_ydata(), np.median(batch["theta"], axis=0))
    (inputs,) = batch.plot("u.motor")
    assert len(inputs.lines[-1].get_ydata()) == 31 and inputs.lines[-1].get_drawstyle() == "steps-post"
    few = f.rollouts(starts[:3], steps=30)
    few.errors[1] = RuntimeError("lost")
    (axes,) = few.plot("theta")
    assert labels(axes) == ["run 0", "run 2", "1 failed"]
    assert np.array_equal(axes.lines[1].get_ydata(), few["theta"][2])
    assert len(viz.plot_phase(few, "x", "theta").lines) == 3 * 2
    few.errors.update({0: None, 2: None})
    with pytest.raises(ValueError, match="all 3 rollouts failed"):
        few.plot("theta")


def test_covariance_is_a_band_of_two_standard_deviations(f, run):
    spread = feedback.covariance(run, 1e-4, 1e-6)
    (axes,) = spread.plot("theta")
    band = axes.collections[0].get_paths()[0].vertices
    assert np.isclose(band[:, 1].max(), (run["theta"] + 2 * spread.std("theta")).max())
    assert labels(axes) == ["2 standard deviations", "trajectory"]


# -- convergence ------------------------------------------------------------------------------------


def records(methods, costs):
    return History.of(
        [
            Iteration(i, m, 0.0, c, -c / 10, 1.0, 1)
            for i, (m, c) in enumerate(zip(methods, costs, strict=True))
        ]
    )


def test_convergence_shows_both_arrays():
    axes = viz.plot_convergence([4.0, 2.0, 1.0], [-3.0, -1e-4])
    assert axes.get_yscale() == "log"
    assert [list(line.get_ydata()) for line in axes.lines] == [[4.0, 2.0, 1.0], [3.0, 1e-4]]


def test_convergence_marks_the_phases_of_a_history():
    axes = records(["steepest", "steepest", "newton"], [4.0, 2.0, 1.0]).plot()
    assert labels(axes) == ["cost", r"$|Dg\cdot\zeta|$", "steepest", "newton"]
    marks = {line.get_marker(): list(line.get_xdata()) for line in axes.lines if len(line.get_xdata())}
    assert marks["^"] == [0, 1] and marks["o"] == [2]


def test_costs_that_are_not_positive_are_drawn_above_the_least():
    axes = viz.plot_convergence([3.0, -1.0, -2.0])
    assert np.array_equal(axes.lines[0].get_ydata(), [5.0, 1.0, np.nan], equal_nan=True)
    assert axes.lines[0].get_label() == "cost - least"
    with pytest.raises(ValueError, match="no iterations"):
        viz.plot_convergence([])


@pytest.mark.parametrize("weight", [1.0, 1e6])
def test_convergence_of_a_result_and_of_a_nonlinear_program(weight):
    f = cart_pole(dt=0.05)
    cost = vioc.control.quadratic(f, Q=weight, R=weight, Qf=10.0 * weight)
    start = f.rollout([0.0, 0.3, 0.0, 0.0], steps=20)
    best = vioc.control.optimize(f, cost, start)
    axes = viz.plot_convergence(best)
    assert np.array_equal(axes.lines[0].get_ydata(), best.history.cost)
    assert np.array_equal(best.plot("theta")[0].lines[0].get_ydata(), best.trajectory["theta"])
    dmoc = vioc.control.dmoc
    phase = dmoc.Phase(f, 10, cost, initial=start.x[0])
    solution = dmoc.Problem(phase).solve()
    axes = viz.plot_convergence(solution)
    assert axes.lines[0].get_label() == "cost" and np.isclose(axes.lines[0].get_ydata()[-1], solution.cost)
    assert [line.get_label() for line in axes.lines[1:]] == ["primal infeasibility", "dual infeasibility"]


def test_orders_are_least_squares_slopes():
    h = np.array([0.04, 0.01, 0.02])
    axes = viz.plot_orders(h, {"second": 3 * h**2, "fourth": 5 * h**4}, unit="rad")
    assert labels(axes) == ["second: order 2.00", "fourth: order 4.00"]
    assert axes.get_ylabel() == "error (rad)" and axes.get_xlabel() == "step length (s)"
    assert list(axes.lines[0].get_xdata()) == [0.01, 0.02, 0.04]
    noisy = viz.plot_orders(h, [1.0, 0.0, 0.5])
    assert labels(noisy) == ["error: order 1.00"]  # zeros do not count
    with pytest.raises(ValueError, match="at least two that are positive"):
        viz.plot_orders(h, [1.0, 0.0, np.nan])
    with pytest.raises(ValueError, match=r"'a': expected shape \(3,\)"):
        viz.plot_orders(h, {"a": [1.0, 2.0]})


def test_orders_of_an_integrator():
    """The midpoint rule of a pendulum against the solution at a much shorter step."""
    f = MidpointVI(models.load("pendulum"), 0.1)
    x0 = f.initial_state({"theta": 1.0})
    exact = f.with_dt(1e-3).rollout(x0, steps=1000)["theta"][-1]
    steps = np.array([0.1, 0.05, 0.025])
    errors = [abs(f.with_dt(h).rollout(x0, steps=round(1 / h))["theta"][-1] - exact) for h in steps]
    text = viz.plot_orders(steps, {"midpoint": errors}).lines[0].get_label()
    assert abs(float(text.rpartition(" ")[2]) - 2) < 0.1


# -- gains ------------------------------------------------------------------------------------------


def test_gains_have_a_panel_per_input_and_units(f, run):
    loop = dlqr(f, run, 1.0, 1.0)
    force, motor = loop.plot()
    assert [a.get_ylabel() for a in (force, motor)] == ["gains of force", "gains of motor"]
    assert labels(motor) == ["x (N m/m)", "theta (N m/rad)", "p.x (N m/(kg m/s))", "p.theta (N m/(kg m²/s))"]
    assert np.array_equal(motor.lines[1].get_ydata()[:-1], loop.K[:, 1, 1])
    few, _ = loop.plot("theta")
    assert few.get_legend() is None
    with pytest.raises(ModelError, match="unknown name 'teta'"):
        loop.plot("teta")
