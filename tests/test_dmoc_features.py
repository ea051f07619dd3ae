"""`vioc.control.dmoc`: free times, periodic orbits, phases, obstacles, closed loops, strings."""

import casadi as ca
import numpy as np
import pytest
from support.control_maps import double_integrator
from support.dmoc_problems import effort, four_bar, hanging_load, haste
from support.mechanisms import pendulum

import vioc
from vioc import CasadiMap, Gravity, JointForce, System, tx, tz
from vioc.control import Cost, dmoc, optimize

# inside: the samples that a phase takes of a guess are seen only by its solver
from vioc.control.dmoc.curve import curve
from vioc.errors import ConstraintError
from vioc.maps import SwitchedMap


def particle(dt=0.05):
    """A point mass in a plane, pushed along both axes."""
    frame = tx("x")[tz("z", name="point", mass=1.0)]
    return vioc.MidpointVI(System(frame, JointForce("x", "push"), JointForce("z", "lift")), dt)


# -- time -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("solver", ["ipopt", "fatrop"])
def test_minimum_time_is_bang_bang(solver):
    """Rest to rest over 1 m with |a| <= 1 takes 2 s; the exact map of held inputs switches halfway."""
    x, u, dt = ca.SX.sym("x", 2), ca.SX.sym("u"), ca.SX.sym("dt")
    step = ca.vertcat(x[0] + dt * x[1] + dt**2 / 2 * u, x[1] + dt * u)
    f = CasadiMap(
        ca.Function("f", [x, u, ca.SX.sym("t"), dt], [step]), 0.1, state_names=("x", "v"), input_names=("a",)
    )
    best = dmoc.solve(
        f,
        dmoc.minimum_time(f),
        steps=20,
        initial=[0, 0],
        final=[1, 0],
        bounds={"u.a": 1.0},
        duration=(0.5, 5.0),
        solver=solver,
    )
    assert best.duration == pytest.approx(2.0, abs=1e-5)
    assert best.cost == pytest.approx(2.0, abs=1e-5)
    assert best.trajectory.u[:, 0] == pytest.approx(np.repeat([1.0, -1.0], 10), abs=1e-4)
    assert best.trajectory.t[-1] == pytest.approx(2.0, abs=1e-5)
    assert best.rollout().gap < 1e-6


def test_given_duration_and_explicit_time():
    x, u, t, dt = ca.SX.sym("x"), ca.SX.sym("u"), ca.SX.sym("t"), ca.SX.sym("dt")
    f = CasadiMap(ca.Function("f", [x, u, t, dt], [x + dt * (u + ca.sin(t + dt / 2))]), 0.1)
    best = dmoc.solve(f, effort(f), steps=50, initial=[0.0], final=[0.5], duration=2.0, k0=25)
    assert best.trajectory.t[[0, -1]] == pytest.approx([1.0, 3.0])
    # the sine alone brings cos 1 - cos 3, and a constant input is best
    assert best.trajectory.u == pytest.approx((0.5 - (np.cos(1) - np.cos(3))) / 2, abs=1e-3)
    assert best.rollout().gap < 1e-12


@pytest.mark.parametrize(("quadrature", "order"), [("left", 1), ("midpoint", 2), ("trapezoid", 2)])
def test_order_of_the_quadratures(quadrature, order):
    """min of the integral of (x^2 + u^2)/2 with x' = u, x(0) = 1, x free: tanh(T)/2."""
    errors = []
    for n in (10, 20, 40):
        x, u, dt = ca.SX.sym("x"), ca.SX.sym("u"), ca.SX.sym("dt")
        f = CasadiMap(ca.Function("f", [x, u, ca.SX.sym("t"), dt], [x + dt * u]), 1.0 / n)
        cost = Cost(f, 0.5 * (f.symbols.x**2 + f.symbols.u**2))
        best = dmoc.solve(f, cost, steps=n, initial=[1.0], quadrature=quadrature, tolerance=1e-11)
        errors.append(abs(best.cost - np.tanh(1.0) / 2))
    slopes = np.log2(np.array(errors[:-1]) / errors[1:])
    assert slopes == pytest.approx(order, abs=0.1)


@pytest.mark.parametrize("quadrature", ["left", "midpoint", "trapezoid"])
def test_each_quadrature_takes_the_references_of_its_times(quadrature):
    """The start of a step, its middle, or both its ends; a reference of another time is another cost."""
    x, u, dt = ca.SX.sym("x"), ca.SX.sym("u"), ca.SX.sym("dt")
    f = CasadiMap(ca.Function("f", [x, u, ca.SX.sym("t"), dt], [x + dt * u]), 0.2)
    symbol, r = ca.SX.sym("r"), np.array([0.0, 1.0, -2.0, 4.0, 3.0, -5.0])
    cost = Cost(f, 0.5 * ((f.symbols.x - symbol) ** 2 + f.symbols.u**2), references=[(symbol, r)])
    best = dmoc.solve(f, cost, steps=5, initial=[1.0], quadrature=quadrature)
    x, u = best.trajectory.x[:, 0], best.trajectory.u[:, 0]

    def running(state, reference):
        return 0.5 * ((state - reference) ** 2 + u**2)

    expected = {
        "left": running(x[:-1], r[:-1]),
        "midpoint": running((x[:-1] + x[1:]) / 2, (r[:-1] + r[1:]) / 2),
        "trapezoid": (running(x[:-1], r[:-1]) + running(x[1:], r[1:])) / 2,
    }
    assert best.cost == pytest.approx(0.2 * expected[quadrature].sum(), rel=1e-12)
    others = [0.2 * e.sum() for name, e in expected.items() if name != quadrature]
    assert min(abs(best.cost - other) for other in others) > 0.1  # so that they can be told apart


def test_later_phases_start_where_k0_and_the_phases_before_leave_the_clock():
    """Phases of a map that depends on time, from k0 = 25 on: each is a rollout at its own times."""
    x, u, t, dt = ca.SX.sym("x"), ca.SX.sym("u"), ca.SX.sym("t"), ca.SX.sym("dt")
    f = CasadiMap(ca.Function("f", [x, u, t, dt], [x + dt * (u + ca.sin(3 * t))]), 0.04)
    first = dmoc.Phase(f, 10, effort(f), initial=[0.0], k0=25)
    best = dmoc.Problem([first, dmoc.Phase(f, 15, effort(f), final=[0.5])]).solve()
    one, two = (phase.trajectory for phase in best.phases)
    assert one.t[[0, -1]] == pytest.approx([1.0, 1.4]) and two.t[[0, -1]] == pytest.approx([1.4, 2.0])
    assert (one.k0, two.k0) == (25, 35)
    for i in (0, 1):
        assert best.rollout(i).gap < 1e-9  # equations are met to 1e-8 / scaling; another time is 1e-2 off


# -- periodic orbits, phases ----------------------------------------------------------------------


def test_periodic_orbit_turns_over():
    f = vioc.MidpointVI(pendulum(), 0.05)
    phase = dmoc.Phase(
        f,
        30,
        effort(f),
        initial={"theta": 0.0},
        periodic={"theta": 2 * np.pi, "p.theta": 0.0},
        bounds={"u.torque": 10.0},
    )
    best = dmoc.Problem(phase).solve()
    x = best.trajectory.x
    assert x[-1] - x[0] == pytest.approx([2 * np.pi, 0.0], abs=1e-7)
    # at 1.5 s a turn is faster than any free one with less energy: no torque is needed
    assert best.cost < 1e-6
    again = f.rollout(x[-1], best.trajectory.u)
    assert again.x[:, 0] - 2 * np.pi == pytest.approx(x[:, 0], abs=1e-5)


def test_all_states_periodic():
    f = double_integrator()
    cost = Cost(f, (f.symbols.x[0] - ca.SX(1)) ** 2 + f.symbols.u**2)
    best = dmoc.solve(f, cost, steps=8, periodic=True, initial={"x": 0.0})
    assert best.trajectory.x[0] == pytest.approx(best.trajectory.x[-1], abs=1e-8)
    assert {"periodic.x", "periodic.v"} <= set(best.multipliers)


def test_two_phases_are_one():
    f = vioc.MidpointVI(pendulum(), 0.05)
    end = {"theta": 1.0, "p.theta": 0.0}
    one = dmoc.solve(f, effort(f), steps=30, initial=f.state(), final=end)
    parts = [dmoc.Phase(f, 12, effort(f), initial=f.state()), dmoc.Phase(f, 18, effort(f), final=end)]
    both = dmoc.Problem(parts).solve()
    assert both.cost == pytest.approx(one.cost, abs=1e-8)
    joined = np.concatenate([both.phases[0].trajectory.x, both.phases[1].trajectory.x[1:]])
    assert joined == pytest.approx(one.trajectory.x, abs=1e-6)
    assert both.phases[1].trajectory.t[0] == pytest.approx(12 * 0.05)
    assert both.duration == pytest.approx(1.5)
    assert both.trajectory.x == pytest.approx(joined) and both["theta"][-1] == pytest.approx(1.0)
    with pytest.raises(ValueError, match="2 phases"):
        _ = both.multipliers
    warm = dmoc.Problem(parts).solve([p.trajectory for p in both.phases])
    assert warm.cost == pytest.approx(one.cost, abs=1e-8)


def test_jump_between_phases():
    """A particle falls, loses half of its momentum upside down, and rises: the height is a quarter."""
    fall = vioc.MidpointVI(System(tz("z", mass=2.0), Gravity(0, 0, -10), name="fall"), 0.01)
    down = dmoc.Phase(
        fall, 30, initial={"z": 1.0, "p.z": 0.0}, final={"z": 0.0}, duration=(0.1, 1.0), name="down"
    )
    up = dmoc.Phase(fall, 30, final={"p.z": 0.0}, duration=(0.01, 1.0), name="up")
    best = dmoc.Problem([down, up], jumps=[{"p.z": -0.5 * fall.quantity("p.z")}]).solve()
    assert best.phases[0].duration == pytest.approx(np.sqrt(0.2), rel=1e-6)
    assert best.phases[1].trajectory["z"][-1] == pytest.approx(0.25, rel=1e-6)
    assert "down" in repr(down)


def test_phases_of_different_maps():
    """A state that only the later map has is free at the joint."""
    f = double_integrator()
    x, u = ca.SX.sym("x", 3), ca.SX.sym("u")
    step = ca.vertcat(x[0] + 0.1 * x[1], x[1] + 0.1 * u, x[2] + 0.1 * x[0])
    names = dict(state_names=("x", "v", "sum"), input_names=("force",))
    g = CasadiMap(ca.Function("g", [x, u], [step]), 0.1, **names)
    first = dmoc.Phase(f, 5, effort(f), initial=[0.0, 0.0])
    second = dmoc.Phase(g, 5, effort(g), final={"x": 1.0, "sum": 1.0})
    best = dmoc.Problem([first, second]).solve()
    assert best.phases[1].trajectory.x[0, :2] == pytest.approx(best.phases[0].trajectory.x[-1])
    assert best.phases[1].trajectory["sum"][-1] == pytest.approx(1.0)
    with pytest.raises(ValueError, match=r"no one trajectory; ask one of them: result.phases\[0\]"):
        _ = best.trajectory


# -- constraints ----------------------------------------------------------------------------------


def test_obstacles_are_kept_clear_of():
    f = particle()
    way = np.column_stack([np.linspace(0, 1, 31), np.zeros(31)])
    start = np.linspace(f.state(), f.state(x=1.0), 31)
    start[:, 1] += 0.3 * np.sin(np.linspace(0, np.pi, 31))
    still = dmoc.obstacle(f, "point", (0.5, 0.0), 0.2, axes="xz")
    with pytest.raises(ValueError, match=r"3 numbers along xyz, got \[0.5, 0.0\]; .* axes=\"xz\""):
        dmoc.obstacle(f, "point", (0.5, 0.0), 0.2)
    moving = dmoc.obstacle(f, "point", way + [0.0, -0.3], 0.3, axes="xz", name="moving")
    best = dmoc.solve(
        f,
        effort(f),
        (start, None),
        steps=30,
        initial=f.state(),
        final=f.state(x=1.0),
        constraints=[still, moving],
    )
    x, z = best.trajectory["point:x"], best.trajectory["point:z"]
    clear = np.hypot(x - 0.5, z)
    assert clear.min() == pytest.approx(0.2, abs=1e-6)
    assert np.hypot(x - way[:, 0], z + 0.3).min() >= 0.3 - 1e-7
    pressed = best.multipliers["clearance.point"] < -1e-4
    assert pressed.any() and (clear[pressed] < 0.2 + 1e-4).all()


def test_path_constraints_of_steps_and_vectors():
    f = particle()
    power = f.quantity("u.push") * f.quantity("v.x")
    both = ca.vertcat(f.quantity("x"), f.quantity("z"))
    best = dmoc.solve(
        f,
        effort(f),
        steps=30,
        initial=f.state(),
        final=f.state(x=1.0, z=0.2),
        constraints=[
            dmoc.PathConstraint("power", power, upper=0.3),
            dmoc.PathConstraint("half", both, 0.0, 2.0),
            dmoc.PathConstraint("slow", f.quantity("kinetic"), upper=1e-9, where="end"),
        ],
    )
    used = best.trajectory.evaluate(power)
    assert len(used) == 30 and used.max() == pytest.approx(0.3, abs=1e-6)
    assert best.multipliers["power"].shape == (30,) and best.multipliers["half[1]"].shape == (31,)


def test_rates_limit_the_inputs():
    f = vioc.MidpointVI(pendulum(), 0.05)
    ends = {"initial": f.state(), "final": f.state(theta=1.0)}
    task = ends | {"steps": 40, "tolerance": 1e-10}
    free = dmoc.solve(f, effort(f), **task)
    rates = np.diff(free.trajectory["u.torque"]) / f.dt
    low, high = 0.8 * rates.min(), 0.9 * rates.max()
    best = dmoc.solve(f, effort(f), rate={"torque": (low, high)}, **task)
    rates = np.diff(best.trajectory["u.torque"]) / f.dt
    assert rates.min() == pytest.approx(low, abs=1e-5)
    assert rates.max() <= high + 1e-6
    assert best.cost > free.cost
    assert (best.multipliers["rate.torque"][rates < low + 1e-5] < -1e-5).all()


# -- closed loops, strings, prescribed motion -----------------------------------------------------


def test_closed_loop_from_a_trivial_guess():
    """A full turn of a four-bar's crank, rest to rest; no guess, one velocity says it is at rest."""
    f, start = four_bar()
    x0 = f.initial_state(start)
    best = dmoc.solve(
        f,
        effort(f),
        steps=60,
        initial=x0,
        final={"crank": x0[0] - 2 * np.pi, "v.crank": 0.0},
        bounds={"u.torque": 8.0},
    )
    run = best.trajectory
    assert np.abs(run["h.pin-x"]).max() < 1e-8
    assert run["v.rocker"][-1] == pytest.approx(0.0, abs=1e-6)
    assert {"h.pin-x", "h.pin-z", "dynamics.crank", "final v.crank"} <= set(best.multipliers)
    rolled = best.rollout()
    assert rolled.gap < 1e-4
    assert rolled.trajectory.multipliers == pytest.approx(run.multipliers, abs=1e-3)


def test_free_start_of_a_closed_loop_is_consistent():
    f, start = four_bar()
    x0 = f.initial_state(start)
    free = {"p.crank": 0.0, "p.coupler": 0.0, "p.rocker": 0.0}
    cost = Cost(f, 0.5 * ca.sumsqr(f.symbols.u), 10 * (f.quantity("crank") - x0[0]) ** 2)
    still = np.tile(x0, (11, 1)), None
    best = dmoc.solve(f, cost, still, steps=10, initial={**free, "crank": x0[0] - 0.2})
    x = best.trajectory.x[0]
    assert np.abs(f.lagrangian.constraints(x[:3])).max() < 1e-8
    assert best.trajectory["crank"][0] == pytest.approx(x0[0] - 0.2)
    # free momenta are those without a part that a multiplier could take up
    best = dmoc.solve(f, cost, still, steps=10, initial={"crank": x0[0] - 0.2, "v.crank": -1.0})
    x = best.trajectory.x[0]
    Dh = f.lagrangian.constraint_jacobian(x[:3])
    assert np.abs(Dh @ x[3:]).max() < 1e-7
    assert best.trajectory["v.crank"][0] == pytest.approx(-1.0, abs=1e-7)


def test_closed_loop_with_a_given_end():
    """An end that is given whole leaves h(q_N) = 0 out, which would be said twice."""
    f, start = four_bar()
    x0 = f.initial_state(start)
    there = f.rollout(x0, np.full((20, 1), 1.5)).x[-1]
    ends = dict(zip(("crank", "coupler", "rocker"), there[:3], strict=True))
    best = dmoc.solve(f, effort(f), steps=20, initial=x0, final=ends)
    assert best.trajectory.x[-1, :3] == pytest.approx(there[:3])
    assert best.multipliers["h.pin-x"][-1] == 0.0


@pytest.mark.parametrize(("steps", "torque"), [(15, -1.0), (20, 1.5)])
def test_a_whole_last_state_of_a_closed_loop_says_nothing_twice(steps, torque):
    """A four-bar has one degree of freedom, so that one velocity determines the others."""
    f, start = four_bar()
    x0 = f.initial_state(start)
    run = f.rollout(x0, np.full((steps, 1), torque))
    best = dmoc.solve(f, effort(f), steps=steps, initial=x0, final=run.x[-1])
    assert len([name for name in best.multipliers if name.startswith("final v.")]) == 1
    for name in ("v.crank", "v.coupler", "v.rocker"):
        assert best.trajectory[name][-1] == pytest.approx(run[name][-1], abs=1e-6)
    other = optimize(f, effort(f), x0=x0, steps=steps, final=run.x[-1], method="shooting")
    assert best.cost == pytest.approx(other.cost, rel=1e-6)


@pytest.mark.parametrize("method", ["shooting", "dmoc"])
def test_a_last_state_that_opens_a_loop_is_refused_by_name(method):
    """No motion ends there; a search was sent on until its iterations were used up."""
    f, start = four_bar()
    x0 = f.initial_state(start)
    run = f.rollout(x0, np.full((20, 1), 1.5))
    there = run.x[-1]
    apart = there + [0.0, 0.0, 1e-3, 0.0, 0.0, 0.0]
    for final in (apart, dict(zip(f.state_names[:3], apart[:3], strict=True))):
        with pytest.raises(ConstraintError, match="the last state violates pin-.*no motion ends there"):
            optimize(f, effort(f), x0=x0, steps=20, final=final, method=method)
    part = {"crank": there[0], "coupler": (there[1] - 0.2, there[1] + 0.2)}  # some rocker closes the loop
    assert optimize(f, effort(f), run, final=part, method=method).converged


def on_a_rod(*constraints):
    """A mass in a vertical plane, pushed along both axes."""
    bob = tx("x")[tz("z", name="bob", mass=1.0)]
    pushes = JointForce("x", "fx"), JointForce("z", "fz")
    return vioc.MidpointVI(System(bob, Gravity(0, 0, -9.81), *pushes, *constraints), 0.02)


ROD = vioc.DistanceConstraint("bob", "world", 1.0, name="rod")


@pytest.mark.parametrize("method", ["shooting", "dmoc"])
@pytest.mark.parametrize("angle", [0.0, 1e-8, np.pi / 2, np.pi])
def test_velocities_that_a_constraint_holds_at_zero_do_not_stand_for_others(angle, method):
    """At half a turn the rod's slope along x is 1e-16, and v.z is zero whatever v.x is."""
    f = on_a_rod(ROD)
    start, end = (f.initial_state({"x": np.sin(a), "z": -np.cos(a)}) for a in (angle - 0.4, angle))
    best = optimize(f, effort(f), x0=start, steps=20, final=end, method=method)
    assert max(abs(best.trajectory[v][-1]) for v in ("v.x", "v.z")) < 1e-8


def test_an_end_is_bound_by_no_constraint_of_an_earlier_phase():
    f = SwitchedMap([on_a_rod(ROD), on_a_rod()], [5, 10])
    start, end = f.initial_state({"x": np.sin(0.5), "z": -np.cos(0.5)}), np.array([0.4, -0.9, 0.0, 0.0])
    best = optimize(f, effort(f), x0=start, steps=15, final=end)
    np.testing.assert_allclose(best.trajectory.x[-1], end, atol=1e-8)


def test_prescribed_motion_and_string_tension():
    """A load is carried over 1 m, at rest at both ends, with the string never slack."""
    f = hanging_load()
    x0 = f.initial_state({"z": -1.0})
    moved = {"x": 1.0, "z": -1.0, "trolley": 1.0, "v.x": 0.0}
    cost = haste(f)
    best = dmoc.solve(
        f,
        cost,
        steps=100,
        initial=x0,
        final=moved,
        bounds={"tension.string": (0.5, 9.95)},
        rate={"rho.trolley": 4.0},
    )
    run = best.trajectory
    assert run["tension.string"].max() <= 9.95 + 1e-5
    assert run["tension.string"].min() >= 0.5
    assert run["u.rho.trolley"] == pytest.approx(run["trolley"][1:], abs=1e-7)
    assert np.hypot(run["x"] - run["trolley"], run["z"]) == pytest.approx(1.0, abs=1e-7)
    assert np.abs(np.diff(run["u.rho.trolley"])).max() / f.dt <= 4.0 + 1e-6
    assert np.abs(best.multipliers["tension.string"]).max() > 1e-6  # the upper limit is felt
    assert best.rollout().gap < 1e-5


def test_bounded_multipliers():
    f = hanging_load()
    x0 = f.initial_state({"z": -1.0})
    names = f.multiplier_names
    free = dmoc.solve(f, haste(f), steps=50, initial=x0, final={"x": 0.5})
    least, most = free.trajectory.multipliers[1:].min(), free.trajectory.multipliers[1:].max()
    limit = least + 0.9 * (most - least)
    bounds = {f"lambda.{names[0]}": (None, limit)}
    best = dmoc.solve(f, haste(f), free, steps=50, initial=x0, final={"x": 0.5}, bounds=bounds)
    assert best.trajectory.multipliers.max() <= limit + 1e-8
    assert best.cost > free.cost
    assert f"lambda.{names[0]}" in best.multipliers


def test_guesses_of_unequal_steps_are_sampled_in_time():
    """A motion that is linear in time, in as many steps as the phase has and in others."""
    f = particle(0.05)
    phase = dmoc.Phase(f, 8, effort(f), initial=f.initial_state())
    for lengths in ([0.02, 0.08] * 4, [0.1, 0.05, 0.25], [0.05] * 8):
        run = f.with_dt(0.01).rollout(f.initial_state(v={"x": 2.0}), None, len(lengths), dt=lengths)
        got = curve(run, phase)
        np.testing.assert_allclose(got.x[:, 0], 2.0 * 0.05 * np.arange(9), atol=1e-12)
        assert got.length == pytest.approx(0.05, rel=1e-12)


def test_a_guess_says_when_the_problem_begins():
    """As in `optimize`; a mesh of other steps begins at the same time."""
    wind = vioc.UserForce(lambda k: {"x": ca.sin(5 * k.t)})
    system = System(tx("x", mass=1.0), JointForce("x", "push"), wind)
    f, n = vioc.MidpointVI(system, 0.1), 10
    task = dict(steps=n, initial=f.initial_state(), final={"x": 0.5}, tolerance=1e-11)
    run = f.rollout(f.initial_state(), None, n, k0=7)
    best = dmoc.solve(f, effort(f), run, **task)
    told = dmoc.solve(f, effort(f), run, k0=7, **task)
    assert (best.k0, best.t[0]) == (7, 0.1 * 7) and best.cost == told.cost
    assert dmoc.solve(f, effort(f), run, k0=0, **task).cost != pytest.approx(best.cost, rel=1e-3)
    fine = f.with_dt(0.05).rollout(f.initial_state(), None, 2 * n, k0=14)
    assert dmoc.solve(f, effort(f), fine, **task).k0 == 7
    late = f.with_dt(0.05).rollout(f.initial_state(), None, 2 * n, k0=15)
    with pytest.raises(ValueError, match=r"begins at t = 0.75 s, 7.5 steps of the problem.*give k0"):
        dmoc.solve(f, effort(f), late, **task)


def test_guesses_on_another_mesh():
    """Multipliers are impulses: with half the step they are half as large. Prescribed motion is not held."""
    f = hanging_load()
    x0 = f.initial_state({"z": -1.0})
    run = f.rollout(x0, f.inputs(10, rho_trolley=lambda t: 0.1 * t))
    t = dmoc.Problem(dmoc.Phase(f, 20, haste(f), initial=x0, duration=0.2)).transcription()
    w = dmoc.Problem(dmoc.Phase(f, 20, haste(f), initial=x0, duration=0.2))._start(run, t)
    at = t.layouts[0]
    assert w[at.L][::2] == pytest.approx(run.multipliers / 2)
    assert np.where(at.unknown, w[at.X] - np.repeat(run.x, 2, axis=0)[:21], 0.0)[::2] == pytest.approx(0.0)
    assert (at.unknown.sum(axis=1) == [f.nx, *[f.nq] * 20]).all()
    assert w[at.U][:, 0] == pytest.approx(w[at.X][1:, f.state_names.index("trolley")])
