"""What mistakes are answered with: terms that are not finite, slips in calls, and what is printed."""

import warnings

import casadi as ca
import numpy as np
import pytest
from scipy.interpolate import CubicSpline

import vioc
from vioc import (
    Gravity,
    Lagrangian,
    LinearTimeVI,
    MaximalVI,
    MidpointVI,
    System,
    UserConstraint,
    UserForce,
    UserPotential,
)

# inside: words that messages are made of, and checks that speak before work begins
from vioc.checks import few, plain
from vioc.control import controllability, dlqr
from vioc.dynamics.finite import not_finite
from vioc.sweeps import sweep

MAPS = MidpointVI, LinearTimeVI, MaximalVI
PLAIN = MAPS[:2]


def cart_pole(*terms):
    system = vioc.models.load("cart_pole")
    return system.with_components(*terms) if terms else system


def failure(call):
    with pytest.raises(vioc.StepError) as raised:
        call()
    return raised.value


# -- terms that are not finite ------------------------------------------------------------------

BROKEN = {
    "force": (
        UserForce(lambda k: {"theta": ca.sqrt(k.q("theta") - 5)}),
        "the force user-force",
        "on theta is nan at theta = 0.3",
    ),
    "rate": (
        UserForce(lambda k: {"theta": ca.log(k.v("theta"))}),
        "the force user-force",
        "on theta is -inf at v.theta = 0",
    ),
    "potential": (
        UserPotential(lambda k: ca.sqrt(k.q("theta") - 5)),
        "the potential user-pot",
        "is nan at theta = 0.3",
    ),
    "slope": (
        UserPotential(lambda k: ca.sqrt(k.q("x"))),
        "the derivative of the potential",
        "by x is inf at x = 0",
    ),
}


@pytest.mark.parametrize("integrator", PLAIN)
@pytest.mark.parametrize("which", BROKEN)
def test_a_term_that_is_not_finite_is_named(which, integrator):
    term, name, value = BROKEN[which]
    f = integrator(cart_pole(UserForce(lambda k: {"x": -k.v("x")}), term), 0.01)
    x = f.initial_state(theta=0.3)
    for call in (lambda: f.rollout(x, steps=3), lambda: f.linearize(x)):
        error = failure(call)
        assert error.cause == "not finite" and error.k == 0
        assert name in str(error) and value in str(error)
        assert "singular" not in str(error)


def test_a_start_in_maximal_coordinates_that_is_not_finite_is_named():
    term, name, value = BROKEN["force"]
    link = vioc.ry("theta", name="link", mass=vioc.Mass.rod(1.0, 1.0, com=(0, 0, -0.5)))
    f = MaximalVI(System(link, Gravity(0, 0, -9.81), term), 0.01)
    with pytest.raises(vioc.errors.ModelError) as raised:
        f.initial_state(theta=0.3)
    assert name in str(raised.value) and value in str(raised.value)


def test_a_force_that_is_not_finite_on_the_way():
    """The force is finite where the step starts, and for the shortest ones, which slow the pole down."""
    brake = UserForce(lambda k: {"theta": ca.sqrt(k.v("theta") - 0.5) ** 3 - 100.0})
    f = MidpointVI(cart_pole(brake), 0.01)
    x = f.initial_state({"theta": 0.3}, {"theta": 0.6})
    error = failure(lambda: f.step(x))
    assert error.cause == "not finite" and "extrapolated from shorter ones the force" in str(error)


def test_a_step_that_is_not_finite_later_says_which_step():
    f = MidpointVI(cart_pole(UserForce(lambda k: {"theta": ca.sqrt(0.5 - k.q("theta"))})), 0.01)
    error = failure(lambda: f.rollout(f.initial_state(theta=0.3), steps=500))
    assert error.k > 3 and error.cause == "not finite"


@pytest.mark.parametrize("integrator", PLAIN)
def test_a_step_without_derivatives_is_not_called_singular(integrator):
    """The square root of 0 is a force like any other, but has no derivative there."""
    f = integrator(cart_pole(UserForce(lambda k: {"x": ca.sqrt(k.q("theta"))})), 0.01)
    error = failure(lambda: f.linearize(f.initial_state()))
    assert error.cause == "not finite" and "derivative" in str(error), str(error)


def test_the_gradient_of_a_constraint_that_is_not_finite():
    f = MidpointVI(
        cart_pole(UserConstraint(lambda k: ca.sqrt(k.q("x") ** 3 * k.q("theta")), name="odd")), 0.01
    )
    error = failure(lambda: f.step(f.state()))
    assert error.cause == "not finite" and "the gradient of odd is not finite" in str(error)


def test_what_is_finite_is_not_blamed():
    lag = Lagrangian(cart_pole())
    at = np.array([0.1, 0.2]), np.zeros(2), np.zeros(1), 0.0, np.zeros(0)
    assert not_finite(lag, *at) is None
    found = not_finite(Lagrangian(cart_pole(BROKEN["force"][0])), *at)
    assert found is not None and found.endswith("on theta is nan at theta = 0.2")


# -- slips in calls -----------------------------------------------------------------------------


@pytest.mark.parametrize("integrator", MAPS)
def test_starts(integrator):
    f = integrator(cart_pole(), 0.01)
    assert np.array_equal(f.initial_state(theta=0.3), f.initial_state({"theta": 0.3}))
    assert np.array_equal(f.initial_state({"x": 1}, theta=0.3), f.initial_state({"theta": 0.3, "x": 1}))
    with pytest.raises(
        ValueError, match=r"theta: expected a number \(SI units, angles in rad\), got '30 deg'"
    ):
        f.initial_state({"theta": "30 deg"})
    with pytest.raises(ValueError, match="'theta' by keyword go with values by name"):
        f.initial_state([0.0, 0.1], theta=0.3)
    with pytest.raises(vioc.ModelError, match="did you mean 'theta'"):
        f.initial_state(tetha=0.3)
    fast = f.initial_state({"theta": 0.3}, {"x": 1.0})
    assert np.array_equal(f.initial_state({"theta": 0.3}, {"v.x": 1.0}), fast)
    for name in ("v.x", "v_x"):
        with pytest.raises(vioc.ModelError, match=f"'{name}' is a velocity, which is a separate argument"):
            f.initial_state({"theta": 0.3, name: 1.0})
    with pytest.raises(vioc.ModelError, match=r"'p.x' is a momentum; f.state\({'p.x': ...}\) takes states"):
        f.initial_state({"theta": 0.3}, {"p.x": 1.0})
    for dt in ("0.01", None, True, 0.0):
        with pytest.raises(ValueError, match="dt: expected step lengths > 0"):
            integrator(cart_pole(), dt)


def test_inputs_by_name_are_pointed_to():
    f = MidpointVI(cart_pole(), 0.01)
    x = f.initial_state(theta=0.3)
    with pytest.raises(ValueError, match=r"f\.inputs\(steps, \{'force': 1\.0\}\)"):
        f.rollout(x, {"force": 1.0}, steps=4)
    with pytest.raises(ValueError, match=r"make one with f\.input\(\{'force': 1\.0\}\)"):
        f.step(x, {"force": 1.0})
    given = f.rollout(x, f.inputs(4, {"force": 1.0}))
    assert np.array_equal(given.x[1], f.step(x, f.input({"force": 1.0})))
    assert np.array_equal(f.inputs(3, force=CubicSpline([0, 1], [1, 1])), np.ones((3, 1)))
    with pytest.raises(ValueError, match="state 'theta': expected a number"):
        f.state({"theta": "0.3"})  # type: ignore[dict-item]


def test_transposed_rows():
    f = MidpointVI(vioc.models.load("cart_pole"), 0.02)
    x, cost = np.zeros(4), vioc.control.quadratic(f, Q=1.0, R=1.0)
    with pytest.raises(ValueError, match=r"inputs: expected shape \(N, 1\).* got \(1, 50\).*\(50, 1\)"):
        f.rollout(x, np.zeros((1, 50)))
    for limits in ({}, {"bounds": {"force": 1.0}}):
        with pytest.raises(ValueError, match=r"states: expected shape \(N, 4\).* got \(4, 51\); a row is"):
            vioc.control.optimize(f, cost, (np.zeros((4, 51)), np.zeros((50, 1))), **limits)
    with pytest.raises(ValueError, match=r"expected shape \(N, 1\).*got \(50, 2\)$"):  # not turned: too many
        f.rollout(x, np.zeros((50, 2)))


def test_children_in_round_brackets():
    with pytest.raises(vioc.ModelError, match=r"'a': a frame takes its children in square.* tx\(...\)\[chi"):
        vioc.tx("x", name="a")(vioc.tz(1.0))
    with pytest.raises(vioc.ModelError, match="in square brackets"):
        vioc.universal("u")(vioc.tz(1.0))


def test_small_linearizations_print_their_numbers():
    x, u = ca.SX.sym("x", 2), ca.SX.sym("u")
    f = vioc.CasadiMap(
        ca.Function("f", [x, u], [ca.vertcat(x[0] + 0.1 * x[1] - 1e-16 * u, x[1] + 25 * u)]), 0.1
    )
    assert repr(f.linearize([0, 0], [0])) == (
        "Linearization(\n  A =   1 0.1\n         0   1\n  B =  0\n       25\n)"
    )
    along = f.linearize_trajectory(f.rollout([0, 0], steps=3))
    assert repr(along) == "Linearization(A (3, 2, 2), B (3, 2, 1), 0 multipliers, 0 parameters)"
    many = ca.SX.sym("x", 9)
    large = vioc.CasadiMap(ca.Function("f", [many, u], [many + u]), 0.1)
    assert repr(large.linearize(np.zeros(9), [0])).startswith("Linearization(A (9, 9), B (9, 1)")


def test_numpys_functions_of_expressions_warn_of_nothing():
    f = MidpointVI(vioc.models.load("cart_pole"), 0.02)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert isinstance(np.sin(f.quantity("theta")), ca.SX)
        assert isinstance(np.dot(np.ones((1, 4)), f.symbols.x), ca.SX)


def test_the_names_that_a_prompt_offers():
    names = [n for n in dir(vioc) if not n.startswith("__")]
    assert sorted(names) == sorted(n for n in vioc.__all__ if not n.startswith("__"))
    assert {"MidpointVI", "control", "viz", "models"} <= set(names)


def test_gravity_alone():
    with pytest.raises(vioc.ModelError, match=r"Gravity\(0, 0, -9.81\)"):
        Gravity(-9.81)
    assert Gravity(x=0, y=0, z=-9.81, name="g").name == "g"
    with pytest.raises(vioc.ModelError, match="z"):
        Gravity(0, 0, "down")  # type: ignore[arg-type]


def test_a_port_is_checked_before_a_server_starts():
    from vioc.viz.viewer.player import Viewer

    for port in (80800, 0, -1, 80.5, True):
        with pytest.raises(ValueError, match="port: expected a whole number from 1 to 65535"):
            Viewer({}, port=port)  # type: ignore[arg-type]


def test_a_folder_is_no_model_and_no_trajectory(tmp_path):
    with pytest.raises(IsADirectoryError, match="is a folder; expected a model file"):
        vioc.read(tmp_path)
    f = MidpointVI(cart_pole(), 0.01)
    with pytest.raises(IsADirectoryError, match="a folder, expected a trajectory"):
        vioc.Trajectory.load(tmp_path, f)
    with pytest.raises(FileNotFoundError, match="no such trajectory file"):
        vioc.Trajectory.load(tmp_path / "missing.npz", f)
    (tmp_path / "picture.png").write_bytes(b"\x89PNG")
    with pytest.raises(vioc.errors.FileFormatError, match="not an .npz archive"):
        vioc.Trajectory.load(tmp_path / "picture.png", f)


def test_an_unknown_result_of_a_sweep():
    found = sweep(price, [{"mass": 1.0}, {"mass": 2.0}], workers=0, progress=False)
    with pytest.raises(KeyError, match="no 'effort' in its point or value; known are 'mass', 'cost'"):
        found.plot("mass", value="effort")


def price(mass):
    return {"cost": 2 * mass}


# -- what is printed ----------------------------------------------------------------------------


def test_names_are_cut():
    assert few("abc") == "a, b, c" and few("") == "none"
    assert few("abcdefgh", what="states") == "a, b, c, d, e, f, ... (8 states)"
    assert plain(-0.0) == "0" and plain(0.123456) == "0.1235"
    f = MidpointVI(vioc.models.load("n_link_pendulum:9"), 0.01)
    assert "(18 states)" in repr(f.rollout(f.initial_state(), steps=1))


def test_regulators_print_no_negative_zero():
    f = MidpointVI(cart_pole(), 0.01)
    assert "x = 0, theta = 0," in repr(dlqr(f, (-0.0 * f.initial_state(), np.zeros(1)), 1.0, 1.0))


@pytest.mark.parametrize("links", [1, 2])
def test_few_directions_are_listed_once(links):
    """Of one link two directions, of two links four: each has one line."""
    f = MidpointVI(
        System(vioc.tx("q", mass=1.0), vioc.JointForce("q", "push")) if links == 1 else cart_pole(), 0.01
    )
    text = str(controllability(f, (f.initial_state(), np.zeros(1))))
    assert len(text.split("input energy:")[1].strip().splitlines()) == f.nx


def test_systems_print_by_keyword():
    text = str(cart_pole())
    assert text.startswith("cart_pole: 3 frames, 2 dynamic variables, 1 input\n")
    assert "JointForce(variable='x', input='force')" in text
    system = System(vioc.tx("q", mass=1.0), vioc.JointForce("q", "push", name="drive"))
    assert "JointForce(variable='q', input='push', name='drive')" in str(system)
    assert "JointForce('q', 'push', name='drive')" in repr(system)


def test_rounding_is_drawn_flat():
    pytest.importorskip("matplotlib")
    f = MidpointVI(cart_pole(), 0.01)
    run = f.rollout(f.initial_state(theta=0.3), steps=100)
    assert np.abs(run["p.x"]).max() < 1e-14  # nothing pushes the cart
    (axes,) = np.atleast_1d(run.plot("p.x"))
    assert np.ptp(axes.get_ylim()) > 0.1
    (axes,) = np.atleast_1d(run.plot("x"))
    assert np.ptp(axes.get_ylim()) < 1.5 * np.ptp(run["x"])


def test_names_that_have_a_room_say_which():
    with pytest.raises(AttributeError, match=r"it is vioc\.cables\.static_equilibrium"):
        _ = vioc.static_equilibrium
    with pytest.raises(AttributeError, match=r"it is vioc\.errors\.ChartWarning"):
        _ = vioc.ChartWarning
    assert not hasattr(vioc, "annotations") and not hasattr(vioc, "nothing")


def test_regulators_and_filters_say_what_they_take():
    f = vioc.MidpointVI(vioc.models.load("cart_pole"), 0.02)
    upright = vioc.control.equilibrium(f, theta=0.0)
    run = f.rollout(upright, steps=5)
    with pytest.raises(ValueError, match="expected weights or \"periodic\", got 'periodc'"):
        vioc.control.dlqr(f, run, 1.0, 1.0, Qf="periodc")
    with pytest.raises(ValueError, match="behind the map, got an array of shape"):
        vioc.control.dlqr(f, np.eye(2), 1.0, 1.0)
    with pytest.raises(ValueError, match=r"shape \(4,\); a state alone is \(x, None\), where no input holds"):
        vioc.control.dlqr(f, upright.x, 1.0, 1.0)
    with pytest.raises(TypeError, match="expected a Measurement"):
        vioc.control.feedback.kalman(f, upright, ["theta"], 1e-7)


def test_unknown_arguments_of_terms_name_those_there_are():
    with pytest.raises(TypeError, match="WrenchInput: unknown argument 'torque'; did you mean 'moment'"):
        vioc.WrenchInput("b", "u", torque=(0, 0, 1))
    with pytest.raises(TypeError, match="JointForce: unknown argument 'gian'; did you mean 'gain'"):
        vioc.JointForce("a", "u", gian=2.0)


def test_a_loop_at_rest_is_printed_without_momenta():
    """They are halves of constraint impulses there, not of motion."""
    f = MidpointVI(vioc.models.load("closed_chain"), 0.01)
    still = vioc.control.equilibrium(f, guess={n: 0.3 for n in f.system.variables})
    assert np.abs(still.x[f.state_names.index("p.J")]) > 1e-3
    assert "J = " in repr(still) and "p." not in repr(still)
    assert "p.theta = 0" in repr(vioc.control.equilibrium(MidpointVI(cart_pole(), 0.01)))


def test_gaps_in_a_reference_say_what_to_do():
    f = MidpointVI(cart_pole(), 0.01)
    for reference in ({"theta": [0.0, np.nan, np.nan, 1.0]}, np.array([[0, 0, 0, 0], [0, np.nan, 0, 0]])):
        with pytest.raises(ValueError, match=r"reference of 'theta': .* nan at sample 1.* np.interp\("):
            vioc.control.quadratic(f, Q={"theta": 1.0, "x": 1.0}, R=1.0, reference=reference)


def test_a_robot_is_not_its_system():
    class Robot:
        system = vioc.models.load("cart_pole")

    for make in (lambda r: vioc.MidpointVI(r, 0.1), lambda r: vioc.MaximalVI(r, 0.1), vioc.Continuous):
        with pytest.raises(TypeError, match="expected a System, got Robot; use its .system"):
            make(Robot())
    with pytest.raises(TypeError, match="expected a System, got str$"):
        vioc.MidpointVI("cart_pole", 0.1)


@pytest.mark.parametrize("method", ["shooting", "dmoc"])
def test_an_end_outside_of_its_bounds_is_refused_before_a_search(method):
    f = vioc.MidpointVI(vioc.models.load("cart_pole"), 0.1)
    cost = vioc.control.quadratic(f, R=1.0)
    how = dict(x0=f.initial_state(), steps=5, method=method)
    for bounds, final in (({"x": 1.0}, {"x": 2.0}), ({"x": (None, np.arange(6.0))}, {"x": (6.0, None)})):
        with pytest.raises(ValueError, match=r"final x: \[.*\] is outside of its bounds \["):
            vioc.control.optimize(f, cost, bounds=bounds, final=final, **how)
    assert vioc.control.optimize(f, cost, bounds={"x": 1.0}, final={"x": (1.0, 2.0)}, **how).converged


def test_what_the_solver_of_a_regulator_says_is_not_handed_on():
    """Momentum about the free joint is kept: scipy has no solution, and words of its own for it."""
    arm = vioc.ry("q1", mass=1.0)[vioc.tz(-1.0, mass=1.0)[vioc.ry("q2")[vioc.tz(-1.0, mass=1.0)]]]
    f = vioc.MidpointVI(vioc.System(arm, vioc.JointForce("q2", "torque")), 0.02)
    rest = vioc.control.equilibrium(f)
    with pytest.raises(
        vioc.errors.OptimizationError, match="no stabilizing solution.*of p.q1.*disregard="
    ) as caught:
        vioc.control.dlqr(f, rest, {"q1": 1.0, "q2": 1.0}, 1.0)
    assert "Failed" not in str(caught.value)
