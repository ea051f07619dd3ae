"""The two forms of DMOC's equations: positions only, by the discrete Legendre transforms, and states."""

from functools import cache

import casadi as ca
import numpy as np
import pytest
from support.control_maps import double_integrator
from support.dmoc_problems import effort, four_bar, hanging_load, haste, parametric_pendulum
from support.mechanisms import everything, pendulum, state_near

import vioc
from vioc import LinearTimeVI
from vioc.control import Cost, dmoc, optimize, quadratic

# inside: states that one form eliminates are compared with those of the other
from vioc.control.dmoc.eliminated import states


@cache
def cart_pole():
    """Bounds, a rate limit, and a path constraint on what is eliminated."""
    f = vioc.MidpointVI(vioc.models.load("cart_pole"), 0.04)
    return dmoc.Phase(
        f,
        50,
        effort(f),
        initial=f.initial_state({"theta": np.pi}),
        final=f.initial_state(),
        bounds={"u.force": 12.0, "x": 1.5, "p.theta": (-0.405, None), "v.x": 1.89},
        rate={"force": 110.0},
    )


@cache
def linkage():
    f, start = four_bar()
    x0 = f.initial_state(start)
    end = {"crank": x0[0] - 2.0, "v.crank": 0.0}
    return dmoc.Phase(f, 20, effort(f), initial=x0, final=end, bounds={"u.torque": 8.0})


@cache
def string():
    """Kinematic inputs, a limit on a tension."""
    f = hanging_load()
    moved = {"x": 1.0, "z": -1.0, "trolley": 1.0, "v.x": 0.0}
    limits = {"tension.string": (0.5, 9.95), "v.trolley": 1.0}
    start = f.initial_state({"z": -1.0})
    return dmoc.Phase(f, 100, haste(f), initial=start, final=moved, bounds=limits)


@cache
def free_time():
    f = parametric_pendulum()
    cost = Cost(f, 1.0 + 0.01 * ca.sumsqr(f.symbols.u))
    end = {"theta": 1.0, "p.theta": 0.0}
    return dmoc.Phase(f, 30, cost, initial=f.state(), final=end, duration=(0.2, 3.0))


@cache
def periodic():
    f = parametric_pendulum()
    cost = Cost(f, ca.sumsqr(f.symbols.u) + (f.quantity("theta") - 0.5) ** 2)
    turn = {"theta": 2 * np.pi, "p.theta": 0.0}
    return dmoc.Phase(f, 24, cost, initial={"theta": 0.0}, periodic=turn, quadrature="trapezoid")


@cache
def linear_time():
    f = LinearTimeVI(vioc.models.load("cart_pole"), 0.04)
    start, end = f.initial_state({"theta": np.pi}), f.initial_state()
    return dmoc.Phase(f, 50, effort(f), initial=start, final=end, bounds={"u.force": 12.0})


@cache
def phases():
    """A free first momentum, a joint in which momentum is lost, a bounded momentum."""
    f = parametric_pendulum()
    first = dmoc.Phase(f, 10, effort(f), initial={"theta": 0.0, "v.theta": (-0.5, 0.5)}, duration=(0.3, 0.9))
    second = dmoc.Phase(
        f, 15, effort(f), final={"theta": 1.0, "p.theta": 0.0}, bounds={"p.theta": (-0.1, 0.9)}
    )
    return [first, second], [{"p.theta": 0.5 * f.quantity("p.theta")}]


@cache
def problem_of(make):
    """The problem of a phase or of phases, built once for all tests."""
    made = make()
    return dmoc.Problem(*made) if isinstance(made, tuple) else dmoc.Problem(made)


@cache
def solved(make, form):
    return problem_of(make).solve(form=form, tolerance=1e-10)


@pytest.mark.parametrize("make", [cart_pole, linkage, string, free_time, periodic, linear_time, phases])
def test_both_forms_have_the_same_optimum_and_duals(make):
    ours, other = (solved(make, form) for form in ("positions", "states"))
    assert ours.cost == pytest.approx(other.cost, rel=1e-8)
    for a, b in zip(ours.phases, other.phases, strict=True):
        size = 1 + np.abs(b.trajectory.x).max()
        assert np.abs(a.trajectory.x - b.trajectory.x).max() < 1e-6 * size
        assert np.abs(a.trajectory.u - b.trajectory.u).max() < 1e-5 * (1 + np.abs(b.trajectory.u).max())
        assert a.duration == pytest.approx(b.duration, rel=1e-7)
        assert a.multipliers.keys() == b.multipliers.keys()
        size = 1 + max(np.abs(mu).max() for mu in b.multipliers.values())
        for name, mu in b.multipliers.items():
            assert mu.shape == a.multipliers[name].shape, name
            assert np.abs(a.multipliers[name] - mu).max() < 1e-4 * size, name
    assert ours.rollout().gap < 1e-6


@pytest.mark.parametrize("make", [cart_pole, free_time, string])
def test_both_forms_have_the_same_sensitivities(make):
    ours, other = (solved(make, form).sensitivity() for form in ("positions", "states"))
    assert ours.names == other.names and len(ours.names)
    assert ours.cost == pytest.approx(other.cost, rel=1e-5, abs=1e-6)
    for field in ("x", "u", "multipliers", "length"):
        mine, theirs = getattr(ours, field)[0], getattr(other, field)[0]
        assert np.abs(mine - theirs).max(initial=0.0) < 1e-4 * (1 + np.abs(theirs).max(initial=0.0))


# -- the equations --------------------------------------------------------------------------------


def test_rows_are_the_discrete_euler_lagrange_equations():
    """The pendulum's, written out from L_d = h (v^2/2 + g cos q), forces half and half."""
    g, h, n = 9.8, 0.05, 6
    f = vioc.MidpointVI(pendulum(), h)
    problem = dmoc.Problem(dmoc.Phase(f, n, initial={"theta": 0.3}, final={"p.theta": 0.7}))
    t = problem.transcription("positions")
    rng = np.random.default_rng(0)
    q, p0, u = rng.normal(size=n + 1), rng.normal(), rng.normal(size=n)
    w = np.zeros(t.program.size)
    at = t.layouts[0]
    assert sorted([*at.X[at.unknown], *at.U.ravel()]) == list(range(n + 1 + 1 + n))
    w[at.X[:, 0]], w[at.X[0, 1]], w[at.U[:, 0]] = q, p0, u
    force = -h * g / 2 * np.sin((q[1:] + q[:-1]) / 2) + h / 2 * u
    leaving, arriving = np.diff(q) / h - force, np.diff(q) / h + force  # F-L_d and F+L_d
    rows = [p0 - leaving[0], *(arriving[:-1] - leaving[1:]), arriving[-1]]
    values = np.asarray(t.program.values(w, t.given_values())[1]).ravel()
    assert values == pytest.approx(rows, abs=1e-12)
    assert t.row_lower == pytest.approx([0.0] * n + [0.7])
    assert states(t, 0, w, t.given_values())[:, 1] == pytest.approx([p0, *arriving], abs=1e-12)


def test_each_row_meets_three_configurations_only():
    f = vioc.MidpointVI(vioc.models.load("acrobot"), 0.02)
    t = dmoc.Problem(dmoc.Phase(f, 30, effort(f), initial=f.state())).transcription()
    J = t.program.jac_g.sparsity_out(1)
    assert J.nnz() <= J.size1() * (3 * f.nq + 2 * f.nu)
    assert len(t.program.blocks) == 3  # the first step, the others, and the effort; not one for each step


def test_what_is_eliminated():
    f = vioc.MidpointVI(everything(), 0.02)
    eq = dmoc.Phase(f, 2).equations
    gone = {f.state_names[j] for j in eq.eliminated}
    assert gone == {n for n in f.state_names if n[:2] in ("p.", "v.")}
    assert {eq.names[r] for r in eq.solved_rows} == {f"dynamics.{n}" for n in gone}
    assert dmoc.Phase(double_integrator(), 2).equations.eliminated == ()
    args = state_near(f, 1), f.rest_input(state_near(f, 1))
    run = f.rollout(args[0], args[1][None])
    x, x1 = (np.where(np.isin(range(f.nx), eq.eliminated), 0.0, row) for row in run.x)
    theta = list(f.parameters.values())
    given = ca.DM(eq.given_next(*map(ca.SX, (x, args[1], x1, run.multipliers[0], 0, f.dt, theta, 0))))
    assert given.full().ravel() == pytest.approx(run.x[1, list(eq.eliminated)], abs=1e-11)


class Damped(vioc.CasadiMap):
    """An implicit map of a user's: q1 - q = dt p1 / (1 + q1^2) under an input, and a row that is scaled."""

    scale = 1.0

    @property
    def residual(self):
        x, u, lam, theta, dt = self.symbols
        x1, t = ca.SX.sym("x1", 2), ca.SX.sym("t")
        momentum = x1[1] - (x1[0] - x[0]) / dt * (1 + x1[0] ** 2) - dt / 2 * u
        balance = x[1] - (x1[0] - x[0]) / dt + dt * u - dt * x[0]
        rows = ca.vertcat(balance, self.scale(x1[0]) * momentum)
        return ca.Function("residual", [x, u, x1, lam, t, dt, theta], [rows])


@pytest.mark.parametrize(
    ("scale", "eliminated"), [(lambda q: 1.0, (1,)), (lambda q: 1 + q**2, ()), (lambda q: 2.0, ())]
)
def test_maps_of_users_take_part(scale, eliminated):
    x, u, dt = ca.SX.sym("x", 2), ca.SX.sym("u"), 0.1
    q1 = x[0] + dt * (x[1] + dt * u - dt * x[0])
    p1 = (q1 - x[0]) / dt * (1 + q1**2) + dt / 2 * u
    f = Damped(ca.Function("f", [x, u], [ca.vertcat(q1, p1)]), dt)
    f.scale = scale
    phase = dmoc.Phase(f, 10, effort(f), initial=[0.0, 0.0], final=[0.5, 0.0])
    assert phase.equations.eliminated == eliminated
    assert dmoc.Problem(phase).solve(tolerance=1e-10).cost == pytest.approx(
        dmoc.Problem(phase).solve(form="states", tolerance=1e-10).cost, rel=1e-8
    )


# -- the choice -----------------------------------------------------------------------------------


def test_costs_of_velocities_keep_the_states():
    """As unknowns: |v|^2 of eliminated momenta is stiff, and takes many more iterations."""
    f = vioc.MidpointVI(vioc.models.load("cart_pole"), 0.02)
    x0 = f.initial_state({"theta": np.pi})
    for cost, kept in (
        (effort(f), False),
        (quadratic(f, Q={"theta": 1.0}, R=1.0), False),
        (quadratic(f, Q={"v.theta": 1.0}, R=1.0), True),
        (quadratic(f, Q={"x": 1.0}, R=1.0, Qf={"p.x": 1.0}), True),
    ):
        t = dmoc.Problem(dmoc.Phase(f, 10, cost, initial=x0)).transcription()
        assert t.layouts[0].unknown.all() == kept
    two = dmoc.Problem([dmoc.Phase(f, 4, effort(f)), dmoc.Phase(f, 4, cost)]).transcription()
    assert [bool(at.eliminated) for at in two.layouts] == [True, False]


def test_forms_that_cannot_be():
    f = double_integrator()
    problem = dmoc.Problem(dmoc.Phase(f, 5, effort(f), initial=[0, 0], final=[1, 0]))
    with pytest.raises(ValueError, match="form: no row of the residual of CasadiMap gives"):
        problem.solve(form="positions")
    with pytest.raises(ValueError, match="form: expected one of auto, positions, states"):
        problem.solve(form="momenta")
    g = vioc.MidpointVI(pendulum(), 0.05)
    with pytest.raises(ValueError, match="FATROP's stages are states"):
        dmoc.solve(g, effort(g), steps=5, solver="fatrop", form="positions")


def test_guesses_pass_from_form_to_form():
    problem = problem_of(cart_pole)
    first = problem.solve(form="states")
    again = problem.solve(first, form="positions")
    assert again.cost == pytest.approx(first.cost, rel=1e-7)
    assert problem.solve(again, form="positions").iterations < again.iterations
    staged = problem.solve(again, form="states")
    assert staged.cost == pytest.approx(first.cost, rel=1e-7)
    finer = first.refine(2, form="positions")
    assert finer.converged and abs(finer.cost - first.cost) < 0.05 * first.cost


def test_a_momentum_out_of_its_bounds_is_named():
    f = vioc.MidpointVI(pendulum(), 0.05)
    with pytest.raises(vioc.errors.OptimizationError) as caught:
        dmoc.solve(
            f,
            effort(f),
            steps=10,
            initial=f.state(),
            final=f.state(theta=1.0),
            bounds={"p.theta": (None, 1.0)},
            max_iterations=60,
        )
    found = [v for v in caught.value.result.violations if v.name in ("p.theta", "dynamics.theta")]
    assert found and all(1 <= v.k <= 10 for v in found if v.name == "p.theta")


# -- free durations, stabilized -------------------------------------------------------------------


def test_free_durations_are_stabilized_at_their_own_steps():
    best = problem_of(free_time).solve(tolerance=1e-10)
    h = best.trajectory.step_lengths[0]
    f = best.trajectory.map
    regulator = best.stabilize({"theta": 100.0, "p.theta": 1.0}, 0.01)
    assert regulator.map.dt == f.dt == h and abs(h - 0.05) > 1e-3
    run = regulator.rollout(f.state(theta=0.05))
    assert run.t == pytest.approx(best.trajectory.t)
    assert run["theta"][-1] == pytest.approx(1.0, abs=5e-3)
    off = f.rollout(f.state(theta=0.05), best.trajectory.u, dt=h)
    assert abs(off["theta"][-1] - 1.0) > 2e-2
    A, B = f.linearize(best.trajectory.x[3], best.trajectory.u[3], 3, h)
    again = regulator.map.linearize(best.trajectory.x[3], best.trajectory.u[3], 3)
    assert (again.A == A).all() and (again.B == B).all()


@pytest.mark.parametrize("dt", [0.0, -1.0, np.nan])
def test_time_steps_are_checked(dt):
    with pytest.raises(ValueError, match="dt: expected step lengths > 0"):
        vioc.MidpointVI(pendulum(), 0.05).with_dt(dt)


# -- velocities as unknowns -----------------------------------------------------------------------


@cache
def quick_linkage(quadrature="left"):
    """A closed chain, velocities in the cost, at the end and as a limit."""
    f, start = four_bar()
    x0 = f.initial_state(start)
    v = f.quantity("v.crank")
    cost = Cost(f, ca.sumsqr(f.symbols.u) + 0.1 * v**2, 0.5 * v**2)
    end = {"crank": x0[0] - 2.0}
    limits = {"u.torque": 8.0, "v.crank": (-7.0, None)}
    return dmoc.Phase(f, 20, cost, initial=x0, final=end, bounds=limits, quadrature=quadrature)


@pytest.mark.parametrize("solver, form", [("ipopt", "states"), ("ipopt", "positions"), ("fatrop", "auto")])
def test_velocities_are_unknowns_that_solve_their_equations(solver, form):
    phase = quick_linkage()
    f, cost = phase.map, phase.cost
    best = dmoc.Problem(phase).solve(solver=solver, form=form, tolerance=1e-10)
    raw, at = best.raw, best.raw.transcription.layouts[0]
    assert (at.V >= 0).all() and at.V.shape == (21, len(f.system.variables) + len(f.multiplier_names))
    v = f.velocities(best.trajectory.x)
    # what the equations of the program leave, magnified by the inverse of a mass matrix near 1e-2
    np.testing.assert_allclose(raw.w[at.V[:, : v.shape[1]]], v, atol=1e-6)
    assert best.cost == pytest.approx(cost.value(best.trajectory), rel=1e-8)
    assert np.abs(best.multipliers["v.crank"]).max() > 1e-3
    limits = dict(bounds=phase.bounds, final=phase.final)
    other = optimize(f, cost, best, method="shooting", **limits)
    assert other.cost == pytest.approx(best.cost, rel=1e-7)
    np.testing.assert_allclose(other.multipliers["v.crank"], best.multipliers["v.crank"], atol=1e-4)


@pytest.mark.parametrize("quadrature", ["trapezoid", "midpoint"])
def test_velocities_in_other_quadratures(quadrature):
    """The mean of two states is none of the samples, so its velocities are written out."""
    phase = quick_linkage(quadrature)
    f = phase.map
    best = dmoc.Problem(phase).solve(form="states", tolerance=1e-10)
    x, u = best.trajectory.x, best.trajectory.u

    def torque_and_speed(states):
        return np.sum(u**2) + 0.1 * np.sum(f.velocities(states)[:, 0] ** 2)

    means = {"midpoint": torque_and_speed((x[1:] + x[:-1]) / 2)}
    means["trapezoid"] = (torque_and_speed(x[1:]) + torque_and_speed(x[:-1])) / 2
    value = f.dt * means[quadrature] + 0.5 * f.velocities(x[-1:])[0, 0] ** 2
    assert best.cost == pytest.approx(value, rel=1e-7)


def test_a_swing_up_whose_velocities_are_weighed():
    """The acrobot of the references has many optima; from near one of them, each form reaches this one."""
    f = vioc.MidpointVI(vioc.models.load("acrobot"), 0.01)
    Q = {"q1": 0.1, "q2": 0.1, "v.q1": 0.01, "v.q2": 0.01}
    names = dict(zip(("q1", "q2"), f.system.variables, strict=True))
    Q = {k.replace("q1", names["q1"]).replace("q2", names["q2"]): w for k, w in Q.items()}
    cost = quadratic(f, Q=Q, R=0.01, Qf={k: 1e4 * w for k, w in Q.items()})
    x0 = f.initial_state({names["q1"]: np.pi})
    first = dmoc.solve(f, cost, f.rollout(x0, np.ones((300, 1))), steps=300, initial=x0, form="positions")
    near = first.x + 0.02 * np.sin(np.arange(301))[:, None], first.u
    for form in ("positions", "states"):
        best = dmoc.solve(f, cost, near, steps=300, initial=x0, form=form)
        assert 1 < best.iterations < 60 and best.cost == pytest.approx(first.cost, rel=1e-5)


def test_nothing_is_added_where_no_velocities_are_asked_for():
    phase = cart_pole()
    assert phase.lifts == (True, True)  # a bound on v.x
    f = phase.map
    plain = dmoc.Phase(f, 50, effort(f), initial=phase.initial, final=phase.final)
    at = dmoc.Problem(plain).transcription().layouts[0]
    assert plain.lifts == (False, False) and at.V.size == 0
    end = dmoc.Phase(f, 50, effort(f), initial=phase.initial, final={"v.x": 0.0})
    at = dmoc.Problem(end).transcription().layouts[0]
    assert end.lifts == (False, True) and (at.V[:-1] == -1).all() and (at.V[-1] >= 0).all()
