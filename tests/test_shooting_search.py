"""Trials of the interior point on stages that are refused, or have no steps, and what is done about it."""

from types import SimpleNamespace

import casadi as ca
import numpy as np
import pytest
from support.dmoc_problems import four_bar, hanging_load

import vioc
from vioc import Gravity, JointForce, System, coincident, rx, ry, tx, ty, tz
from vioc.control import Cost, Problem, kkt, optimize, quadratic, straight_line
from vioc.control.dmoc import PathConstraint

# inside: trials of a search are made of numbers that no problem has to give
from vioc.control.problem.consistent import ONTO, ConstraintProjection
from vioc.control.shooting.barrier import RELAPSES, Interior
from vioc.control.shooting.search import LineSearch
from vioc.control.shooting.subproblem import Merit
from vioc.maps.made.switched import SwitchedMap


def test_corrections_go_on_while_they_help():
    """Along a stiff circle, where every straight step leaves it: a search without corrections takes 49
    iterations, one with a single correction 30.
    """
    x, u = ca.SX.sym("x", 2), ca.SX.sym("u", 2)
    names: dict = dict(state_names=["x", "y"], input_names=["a", "b"])
    f = vioc.CasadiMap(ca.Function("f", [x, u], [x + u]), 1.0, **names)
    at, effort = f.symbols.x, 1e-3 * ca.sumsqr(f.symbols.u)
    cost = Cost(f, effort, 0.5e4 * (ca.sumsqr(at) - 1) ** 2 + at[0], per_time=False)
    found = Problem(f, cost, 3).solve([np.cos(1.0), np.sin(1.0)])
    assert found.converged and found.iterations <= 25
    assert kkt(f, cost, found.trajectory).residual < 1e-8


def test_the_predicted_merit_of_a_correction_is_of_second_order(monkeypatch):
    """Along a circle as a constraint: the prediction is compared with the merit of an accepted correction."""
    x, u = ca.SX.sym("x", 2), ca.SX.sym("u", 2)
    names: dict = dict(state_names=["x", "y"], input_names=["a", "b"])
    f = vioc.CasadiMap(ca.Function("f", [x, u], [x + u]), 1.0, **names)
    at = f.symbols.x
    cost = Cost(f, 1e-3 * ca.sumsqr(f.symbols.u), at[0], per_time=False)
    compared, corrected = [], LineSearch._corrected

    def recorded(self, it, b, d, length, point, s, merit, *more):
        predicted = self.subproblem.corrected(it, d, point, s, length, merit)
        better = corrected(self, it, b, d, length, point, s, merit, *more)
        if better is not None:
            reached = self.subproblem.merit(better.point, better.s).value
            compared.append(abs(reached - predicted) / abs(merit - predicted))
        return better

    monkeypatch.setattr(LineSearch, "_corrected", recorded)
    circle = PathConstraint("circle", ca.sumsqr(at), 1.0, 1.0)
    assert Problem(f, cost, 6, constraints=[circle]).solve([np.cos(1.0), np.sin(1.0)]).converged
    assert min(compared) < 1e-3  # 3e-5


def test_residuals_that_are_off_pass_the_filter():
    """The filter counts the cost of prediction errors as violation, not as barrier cost."""
    here, there = "iterate", "trial"
    off = {here: 0.5, there: 2.5}
    cost = SimpleNamespace(
        predicted=lambda *args: (None, there), misprediction_cost=lambda slopes, rho, curve: off[curve] / 2
    )
    stages = SimpleNamespace(cost=cost, predicted=cost.predicted)
    subproblem = SimpleNamespace(stages=stages, scale=2.0)
    it = SimpleNamespace(point=SimpleNamespace(curve=here), predicted=(None, here))
    b, d = SimpleNamespace(slopes=(None, None)), SimpleNamespace(dx=None, du=None)
    point, lin = SimpleNamespace(curve=there), object()

    def passes(search, before, after, lin):
        return search._passes(it, b, d, 1.0, point, Merit(0, before, 0.0), Merit(9, after, 0.0), lin)

    search = LineSearch(subproblem, None)  # type: ignore[arg-type]
    assert not passes(search, 10.0, 11.0, None)  # it costs more
    assert not passes(search, 10.0, 12.1, lin)  # and without what is off, 9.5 and 9.6, too
    assert passes(search, 10.0, 11.0, lin)  # 9.5 and 8.5
    assert not passes(search, 13.0, 12.5, lin)  # of those before one costs no more, 9.5, and leaves less
    off[there] = 1e4
    search.forget()
    assert not passes(search, 10.0, 11.0, lin)  # too far off


def test_damping_that_is_needed_again_and_again_ends_by_degrees():
    """Whole steps with damping and short ones without, in turns, as along a valley with stiff gaps."""
    search = object.__new__(Interior)
    search.damping, search.eased, search.relapses = 0.0, False, 0
    for turn in range(RELAPSES + 1):
        search._damp(9)
        assert search.damping == 1.0 and search.relapses == turn
        if turn < RELAPSES:
            search._damp(1)
            assert search.damping == 0.0
    damping = []
    for _ in range(3):
        search._damp(1)
        damping.append(search.damping)
    assert damping == pytest.approx([0.1, 0.01, 0.0])
    search._damp(2)  # nothing is eased any more
    search._damp(9)
    assert search.relapses == RELAPSES


def test_steps_are_longer_than_newtons_where_the_cost_curves_downward():
    """A pendulum begins near a maximum of the cost. With full steps at most it takes 13 iterations."""
    pendulum = System(rx("a")[tz(-1.0, mass=1.0)], Gravity(0, 0, -9.81), JointForce("a", "u"))
    f = vioc.MidpointVI(pendulum, 0.02)
    cost = Cost(f, 1 + ca.cos(f.symbols.x[0]) + 3e-4 * f.symbols.u[0] ** 2)
    best = optimize(f, cost, x0=f.initial_state(a=1e-3), steps=100, method="shooting")
    assert best.history.step.max() > 1 and best.iterations < 12
    assert best.converged and kkt(f, cost, best.trajectory).residual < 1e-8
    assert best.cost == pytest.approx(0.724903, rel=1e-6)  # as with full steps at most


@pytest.mark.parametrize("crank", [0.3, 1.0, 2.0])
def test_states_of_a_guess_and_of_steps_satisfy_the_constraints(crank):
    """A four-bar turns its crank. A line between its ends violates the pin; without the projection, defects
    of the line grow to 2.9 with the way, and the search without a guess takes up to 40 iterations."""
    f, start = four_bar()
    end = start
    for angle in np.linspace(start["crank"], crank, 20):
        near = dict(zip(end.names, end.q, strict=True)) | {"crank": angle}
        end = vioc.consistent_configuration(f.system, near, fixed="crank")
    x0, goal = f.initial_state(start), f.initial_state(end)
    weights = dict(Q={"crank": 1.0}, R=0.01, Qf={"crank": 100.0, "p.crank": 100.0})
    cost = quadratic(f, reference=goal, **weights)
    line = straight_line(x0, goal, 50, f), np.zeros((50, 1))
    first, found = [], []
    for guess in (dict(guess=line), dict(x0=x0, steps=50)):
        log = []
        found.append(optimize(f, cost, method="shooting", monitor=log.append, **guess))
        first.append(log[0].gap)
    assert max(first) <= 0.1
    assert max(best.iterations for best in found) <= 20
    assert found[0].cost == pytest.approx(found[1].cost, rel=1e-9)
    for best in found:
        run = f.rollout(x0, best.trajectory.u)
        assert cost.value(run) == pytest.approx(best.cost, rel=1e-9)


def test_a_free_start_of_a_loop_with_contacts_satisfies_the_constraints_of_the_loop():
    """A four-bar has a stop at its crank. The guess starts elsewhere, at a consistent configuration."""
    loop, start = four_bar()
    parts = *loop.system.frames, *loop.system.potentials, *loop.system.forces, *loop.system.constraints
    stop = vioc.JointLimits("crank", -1.0, 4.0, name="stop")
    f = vioc.ContactVI(System(*parts, stop), loop.dt)
    guess = np.tile(f.initial_state(start), (21, 1)), np.zeros((20, 1))
    cost = quadratic(f, Q={"crank": 1.0}, R=0.01)
    best = optimize(f, cost, guess, initial={"crank": 0.1, "p.crank": 0.0}, method="shooting")
    run = best.trajectory
    assert best.converged and run["crank"][0] == pytest.approx(0.1)
    for name in loop.multiplier_names:
        assert abs(run[f"h.{name}"][0]) < 1e-9
    assert f.rollout(run.x[0], run.u).x == pytest.approx(run.x, abs=1e-12)


@pytest.mark.filterwarnings("ignore::vioc.errors.SlackWarning")  # the contact closes at a distance
def test_a_free_start_in_the_air_is_not_held_by_the_contact_of_a_later_phase():
    """A mass flies for ten steps and then stands; it starts at a free height that the cost prefers."""
    mass = tx("x")[tz("z", name="ball", mass=1.0)]
    toe = vioc.Contact.point("ball", name="toe", friction=0.5)
    system = System(mass, Gravity(0, 0, -9.81), toe, JointForce("z", "fz"), JointForce("x", "fx"))
    flight = vioc.ContactVI(system, 0.02)
    for first in (flight, vioc.ModeVI(system, 0.02)):
        f = SwitchedMap([first, vioc.ModeVI(system, 0.02, "toe")], [10, 10])
        cost, x0 = quadratic(f, goal={"z": 0.5}, Q={"z": 1.0}, R=0.01), first.initial_state(z=0.5)
        best = optimize(f, cost, initial={"x": 0.0, "p.x": 0.0}, x0=x0, steps=20, method="shooting")
        assert best.converged and best.trajectory["z"][0] > 0.3, best


def test_the_projection_onto_constraints_does_not_depend_on_units():
    """The tip of a hinged link on a slider stays at x = 1 m. It looks inside, at single states."""
    found = []
    for unit in (1.0, 1000.0):  # of length, per m
        arm = tx("x")[ry("a")[tz(unit, name="tip", mass=1.0)]]
        system = System(arm, tx(unit, name="post"), *coincident("tip", "post", "x", name="pin"))
        f = vioc.MidpointVI(system, 0.01)
        sizes = np.array([unit, 1.0, unit, unit**2])
        onto, X = ConstraintProjection(f, sizes), sizes * [[0.5, 0.1, 0.3, 0.2], [1.0, 0.0, 0.3, 0.2]]
        moved, given = onto(X) / sizes, onto(X, np.full((2, 1), 0.3 * unit)) / sizes
        assert moved[0, 0] + np.sin(moved[0, 1]) == pytest.approx(1.0, abs=1e-12)
        assert given[:, 0] + np.sin(given[:, 1]) == pytest.approx([1.3, 1.3], abs=2 * ONTO)
        assert np.array_equal(moved[:, 2:], (X / sizes)[:, 2:])  # momenta
        assert np.array_equal(moved[1], X[1] / sizes)  # satisfies the constraint
        change = onto.predicted(X, np.array([0.0, 1e-3, 0.0, 0.0]) * X) / unit
        found.append(np.hstack([moved, given, change]))
    assert found[1] == pytest.approx(found[0], abs=1e-12)


def test_the_prediction_of_constraints_is_of_second_order():
    """The load hangs on a string from a trolley, whose position is a state without a momentum."""
    f = hanging_load()
    onto = ConstraintProjection(f, np.ones(f.nx))
    x = f.state({"x": 0.3, "z": -0.9, "trolley": 0.1})
    change = np.random.default_rng(0).standard_normal(f.nx)
    away = []
    for length in (1e-2, 1e-3):
        trial = x + length * change
        moved = onto(trial[None], onto.predicted(x[None], length * change[None]))
        away.append(np.linalg.norm(moved - trial))
        assert moved[0, f.state_names.index("trolley")] == trial[f.state_names.index("trolley")]
    assert away[1] == pytest.approx(away[0] / 100, rel=0.2) and away[0] > 0


def test_a_motion_whose_constraints_end_is_a_guess_without_defects():
    """A ball on a rod flies from step 20 on; its states in flight do not satisfy the rod's constraint."""
    parts = (
        tx("x")[tz("z", name="ball", mass=1.0)],
        tz(0, name="post"),
        Gravity(0, 0, -9.8),
        JointForce("x", "u"),
    )
    rod = vioc.StringConstraint("ball", "post", 1.0, name="rod")
    held, free = (vioc.MidpointVI(System(*parts, *more), 0.02) for more in ((rod,), ()))
    f, log = SwitchedMap((held, free), (20, 20)), []
    run = f.rollout(f.state({"z": -1.0, "p.x": 3.0}), 0.1 * np.ones((40, 1)))
    cost = Cost(f, 0.5 * ca.sumsqr(f.symbols.u))
    optimize(f, cost, guess=run, method="shooting", monitor=log.append)
    assert log[0].gap == 0


@pytest.mark.parametrize(("power", "ends"), [(2, True), (1, False)])
def test_a_line_to_the_least_terminal_cost_is_a_guess(power, ends):
    """There is none at a goal where the derivative of the terminal cost is not defined. It looks inside,
    since other searches come first."""
    cart = System(tx("x", mass=1.0)[ry("a")[tz(0.5, mass=0.3)]], JointForce("x", "u"))
    f = vioc.MidpointVI(cart, 0.05)
    goal, s = np.array([1.0, 1.0, 0.0, 0.0]), f.symbols
    distance = 2 * ca.norm_2(s.x - goal)
    cost = Cost(f, 0.5 * ca.sumsqr(s.u), 0.5 * (ca.sumsqr(s.x - goal) if power == 2 else distance**2))
    problem = Problem(f, cost, 20)
    stages = problem.stages(0, 20, 0)
    end = problem._likely_end(stages, np.zeros(4))
    assert end == pytest.approx(goal, abs=1e-9) if ends else end is None


def test_a_search_is_near_an_optimum_on_trajectories_that_change_the_cost_little():
    def near(promise, cost, highest, gap=0.0):
        search = object.__new__(Interior)
        point = SimpleNamespace(cost=cost, open=gap > 0)
        search.now = SimpleNamespace(point=point, s=None)
        search.subproblem = SimpleNamespace(merit=lambda *_: Merit(np.nan, np.nan, gap))
        search.promise, search._highest = promise, highest
        return search.near

    assert near(0.01, 1.0, 10.0)
    assert not near(0.1, 1.0, 10.0)  # far from the optimum
    assert not near(0.01, 1e6, 1e6 + 0.1)  # a constant is added to the cost
    assert not near(0.01, 1.0, 10.0, gap=0.01)  # not a trajectory


@pytest.mark.parametrize("share", [1e-3, 1e-6, 1e-9])
def test_small_costs_have_the_optimum_of_large_ones(share):
    """What is left at limits is a tenth of the tolerance a sample: 120 of 1e-9 of a cost of 1e-2, or less."""
    cart = vioc.tx("x", mass=1.0)[vioc.ry("a")[vioc.tz(-0.5, mass=0.3)]]
    system = vioc.System(cart, vioc.Gravity(0, 0, -9.81), vioc.JointForce("x", "u"))
    f = vioc.MidpointVI(system, 0.05)

    def least(c):
        cost = quadratic(f, Q={"x": c, "a": c}, R=0.1 * c, Qf={"v.x": c, "v.a": c})
        limits = {"bounds": {"u.u": 1.2, "v.x": (-0.2, 0.6)}, "final": {"x": 0.5}}
        return Problem(f, cost, 30, **limits).solve(f.initial_state()).cost / c

    assert least(share) == pytest.approx(least(1.0), rel=1e-4)


def falling_pole(steps):
    """A pole on a cart that falls from where it is held: the task, and what the line leads to."""
    pole = rx("a")[ry("b")[tz(1.0, mass=0.3)]]
    forces = Gravity(0, 0, -9.81), JointForce("x", "fx"), JointForce("y", "fy")
    f = vioc.MidpointVI(System(tx("x")[ty("y", mass=1.0)[pole]], *forces), 0.04)
    x0, end = f.state(a=0.9, b=0.8), f.state(x=0.5, y=0.5)
    cost = quadratic(f, Q=0.0, R=0.01)
    line = optimize(f, cost, (straight_line(x0, end, steps), None), final=end)
    return lambda: optimize(f, cost, x0=x0, steps=steps, final=end), line


@pytest.mark.slow
def test_a_line_between_the_ends_is_tried_where_the_start_cannot_be_held():
    """No search from the start held, nor from the fall, ends in an optimum."""
    solve, line = falling_pole(40)
    best = solve()
    assert best.cost == pytest.approx(line.cost, rel=1e-7)
    assert "a line between the ends" in best.message


@pytest.mark.slow
def test_a_line_is_no_worse_than_the_fall_that_it_replaces():
    """The search ends at cost 8.64 from the line, and at 1.26 from the fall."""
    solve, line = falling_pole(60)
    best = solve()
    assert best.cost < 0.2 * line.cost and "rollout of its inputs" in best.message


def test_a_guess_that_another_backend_rolled_out_is_a_trajectory():
    """A gap of 1e-13 made an open curve of it, and the search went another way (16 iterations for 25)."""
    cart = tx("x", mass=1.0)[ry("a")[tz(0.5, mass=0.3)]]
    f = vioc.MidpointVI(System(cart, Gravity(0, 0, -9.81), JointForce("x", "u")), 0.04)
    cost = quadratic(f, R=0.1, Qf={"x": 100, "a": 100, "v.x": 10, "v.a": 10})
    for seed in range(3):
        rng = np.random.default_rng(seed)
        run = f.rollout(f.state(a=np.pi), 6 * rng.standard_normal((40, 1)))
        off = run.x + 1e-14 * rng.standard_normal(run.x.shape)
        off[0] = run.x[0]
        one, other = (optimize(f, cost, (x, run.u), method="shooting") for x in (run.x, off))
        assert other.iterations == one.iterations
        assert other.cost == pytest.approx(one.cost, rel=1e-9)


def test_ends_out_of_reach_say_what_is_worth_a_try():
    f = vioc.MidpointVI(System(tx("x", mass=1.0), JointForce("x", "u")), 0.05)
    task = dict(x0=f.initial_state(), steps=20, bounds={"u": 1.0})  # half a metre in one second at most
    with pytest.raises(vioc.OptimizationError, match=r"dmoc.*duration=\(low, high\)") as caught:
        optimize(f, quadratic(f, R=1.0), final=f.state(x=1.0), **task)
    assert "straight_line" not in str(caught.value)  # a search has begun from that line
    with pytest.raises(vioc.OptimizationError, match="straight_line.*dmoc"):
        optimize(f, quadratic(f, R=1.0), final=f.state(x=1.0), max_iterations=20, **task)
    with pytest.raises(vioc.OptimizationError, match=r"duration=\(low, high\)"):
        optimize(f, quadratic(f, R=1.0), final=f.state(x=1.0), method="dmoc", **task)
