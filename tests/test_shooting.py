"""The core on problems whose answers are known by other means, and what it says of those without one."""

from __future__ import annotations

import pickle

import casadi as ca
import numpy as np
import pytest
from support import reaching
from support.control_maps import double_integrator
from support.dmoc_problems import effort, four_bar
from support.quadratic_programs import active_set

import vioc
from vioc import Gravity, Mass, MaximalVI, System, WrenchInput
from vioc.control import Cost, Problem, kkt, optimize, quadratic
from vioc.control.dmoc import PathConstraint

# inside: errors of iterates are given to the search, to see which of them it keeps
from vioc.control.shooting.barrier import Interior
from vioc.errors import OptimizationError

TOLERANCE = 1e-8
N, DT = 20, 0.1
END = np.array([1.0, 0.0])


def responses(f, x0):
    """x_N = c + M U of a linear map: c (n,), M (n, N m), by rollouts."""
    run = f.rollout(x0, np.zeros((N, f.nu)))
    unit = np.eye(N * f.nu).reshape(-1, N, f.nu)
    return run.x[-1], np.stack([f.rollout(x0, U).x[-1] - run.x[-1] for U in unit], axis=1)


# -- linear maps ----------------------------------------------------------------------------------


def test_linear_with_conditions_at_the_end():
    """All unknowns and multipliers in one system of equations, by numpy."""
    rng, n, m, N = np.random.default_rng(1), 3, 2, 8
    A, B = np.eye(n) + 0.3 * rng.standard_normal((n, n)), rng.standard_normal((n, m))
    x, u = ca.SX.sym("x", n), ca.SX.sym("u", m)
    f = vioc.CasadiMap(ca.Function("f", [x, u], [ca.DM(A) @ x + ca.DM(B) @ u]), 0.1)
    Q, R, Qf, slope = np.diag([1.0, 2.0, 0.5]), np.diag([0.3, 0.7]), np.diag([3.0, 1.0, 2.0]), [1.0, -1.0]
    running = 0.5 * x.T @ ca.DM(Q) @ x + 0.5 * u.T @ ca.DM(R) @ u + ca.dot(ca.DM(slope), u)
    cost = Cost(
        f, ca.substitute(running, ca.vertcat(x, u), ca.vertcat(f.symbols.x, f.symbols.u)),
        0.5 * f.symbols.x.T @ ca.DM(Qf) @ f.symbols.x, per_time=False,
    )  # fmt: skip
    x0, goal = rng.standard_normal(n), np.array([0.4, -0.2])
    best = optimize(f, cost, x0=x0, steps=N, final={"x0": goal[0], "x2": goal[1]}, method="shooting")

    H = np.block(
        [
            [np.kron(np.eye(N - 1), Q), np.zeros((n * (N - 1), n + m * N))],
            [np.zeros((n, n * (N - 1))), Qf, np.zeros((n, m * N))],
            [np.zeros((m * N, n * N)), np.kron(np.eye(N), R)],
        ]
    )
    E = np.hstack([np.kron(np.eye(N, k=-1), A) - np.eye(n * N), np.kron(np.eye(N), B)])
    last = np.zeros((2, H.shape[1]))
    last[[0, 1], [n * (N - 1), n * (N - 1) + 2]] = 1.0
    E = np.vstack([E, last])
    K = np.block([[H, E.T], [E, np.zeros((len(E),) * 2)]])
    linear = np.concatenate([np.zeros(n * N), np.tile(slope, N)])
    start = np.concatenate([-A @ x0, np.zeros(n * (N - 1)), goal])
    found = np.linalg.solve(K, np.concatenate([-linear, start]))
    bound = TOLERANCE * np.abs(np.linalg.inv(K)).sum(axis=1).max()  # of what the conditions may leave
    assert bound < 1e-5
    np.testing.assert_allclose(best.x[1:].ravel(), found[: n * N], rtol=0, atol=bound)
    np.testing.assert_allclose(best.u.ravel(), found[n * N : len(H)], rtol=0, atol=bound)
    duals = [best.multipliers[f"final x{i}"][0] for i in (0, 2)]
    np.testing.assert_allclose(duals, found[-2:], rtol=0, atol=bound)


@pytest.fixture(scope="module")
def bounded():
    """Least effort from rest to 1 m in 2 s, |force| <= 1.4, v <= 0.68: both limits are met."""
    f = double_integrator(DT)
    return f, effort(f), {"u.force": 1.4, "v": (None, 0.68)}


def program(f, bounds):
    """Its optimum by active sets: U and multipliers of all rows."""
    c, M = np.zeros((N + 1, 2)), np.zeros((N + 1, 2, N))
    for k in range(N):
        M[k + 1] = np.array([[1, DT], [0, 1]]) @ M[k]
        M[k + 1, :, k] = [DT**2 / 2, DT]
    force, speed = bounds["u.force"], bounds["v"][1]
    rows = np.vstack([np.eye(N), M[:, 1], M[N]])
    low = np.concatenate([np.full(N, -force), np.full(N + 1, -np.inf), END - c[N]])
    high = np.concatenate([np.full(N, force), np.full(N + 1, speed), END - c[N]])
    return active_set(DT * np.eye(N), np.zeros(N), rows, low, high)


def test_bounds_are_met_as_by_active_sets(bounded):
    f, cost, bounds = bounded
    best = optimize(f, cost, x0=np.zeros(2), steps=N, bounds=bounds, final=END)
    U, nu = program(f, bounds)
    felt = np.abs(nu[: 2 * N + 1])
    assert (felt > 1e-3).sum() > 4
    near = 10 * TOLERANCE / felt[felt > 1e-9].min()  # limits are left by the barrier over their multiplier
    assert near < 1e-5
    np.testing.assert_allclose(best.u[:, 0], U, rtol=0, atol=near)
    for name, part in (
        ("u.force", nu[:N]),
        ("v", nu[N : 2 * N + 1]),
        ("final x", nu[-2:-1]),
        ("final v", nu[-1:]),
    ):
        np.testing.assert_allclose(best.multipliers[name], part, rtol=0, atol=1e-5, err_msg=name)
    assert best.converged and best.feasible
    assert kkt(f, cost, best.trajectory, best.multipliers, bounds=bounds, final=END).residual <= TOLERANCE


def test_multipliers_are_what_limits_cost(bounded):
    """Minus the derivative of the optimal cost by the limit."""
    f, cost, bounds = bounded
    h, costs = 1e-3, []
    for force in (1.4 - h, 1.4, 1.4 + h):
        at = optimize(f, cost, x0=np.zeros(2), steps=N, bounds=bounds | {"u.force": force}, final=END)
        costs.append(at.cost)
        if force == 1.4:
            felt = np.abs(at.multipliers["u.force"]).sum()
    assert -(costs[2] - costs[0]) / (2 * h) == pytest.approx(felt, rel=1e-3)
    assert felt > 0.1


def test_units_of_the_cost_do_not_matter(bounded):
    f, cost, bounds = bounded
    large = Cost(f, 0.5e6 * ca.sumsqr(f.symbols.u))
    guess = np.ones((N, 1))  # the gradient there tells the unit
    one, other = (optimize(f, c, guess, x0=np.zeros(2), bounds=bounds, final=END) for c in (cost, large))
    np.testing.assert_allclose(other.u, one.u, rtol=0, atol=1e-6)
    for name, value in one.multipliers.items():
        np.testing.assert_allclose(other.multipliers[name] / 1e6, value, rtol=0, atol=1e-5, err_msg=name)


def test_the_same_twice(bounded):
    """Equations that depend on others: the same motion, multipliers that add up to the one's."""
    f, cost, bounds = bounded
    x = f.symbols.x[0]
    same = [PathConstraint("one", x, 1.0, 1.0, "end"), PathConstraint("two", 2 * x, 2.0, 2.0, "end")]
    alone = optimize(f, cost, x0=np.zeros(2), steps=N, bounds=bounds, final=END)
    best = optimize(f, cost, x0=np.zeros(2), steps=N, bounds=bounds, final=END, constraints=same)
    np.testing.assert_allclose(best.u, alone.u, rtol=0, atol=1e-6)
    y = best.multipliers
    total = y["final x"] + y["one"] + 2 * y["two"]
    np.testing.assert_allclose(total, alone.multipliers["final x"], rtol=1e-5)
    assert best.iterations <= alone.iterations + 3


def test_equations_that_contradict_are_said_to(bounded, monkeypatch):
    f, cost, _ = bounded
    x = f.symbols.x[0]
    both = [PathConstraint("one", x, 1.0, 1.0, "end"), PathConstraint("other", x, 0.5, 0.5, "end")]
    errors, iterate = iter([0.3, 0.1, 0.2]), Interior.iterate

    def ending(search, *args):
        iterate(search, *args)
        search.error = next(errors)

    monkeypatch.setattr(Interior, "iterate", ending)
    with pytest.raises(OptimizationError, match="infeasible") as error:
        optimize(f, cost, x0=np.zeros(2), steps=N, constraints=both)
    best = error.value.result
    assert best.status == "infeasible" and not best.feasible
    assert {v.name for v in best.violations} == {"one", "other"}
    assert best["x"][-1] == pytest.approx(0.75, abs=1e-6)  # least squares: halfway
    assert "at k = 20" in str(error.value) and "expected 0.5" in str(error.value)
    assert "error 1.0e-01" in best.message  # the best of three searches


def test_a_guess_that_is_the_answer():
    """Nothing to do within limits: every subproblem is solved by a step that the cost does not show."""
    f = double_integrator()
    best = optimize(f, quadratic(f, R=1.0), x0=[0.0, 0.0], steps=N, bounds={f"u.{f.input_names[0]}": 9.0})
    assert best.converged and best.cost <= 1e-12


def test_what_is_stated_of_another_problem_is_refused(bounded):
    f, problem = bounded[0], Problem(double_integrator(), effort(double_integrator()), N)
    run = f.rollout(np.zeros(2), np.zeros((N - 3, 1)))
    with pytest.raises(ValueError, match=f"a trajectory of {N - 3} steps, the problem has {N}"):
        problem.solve(np.zeros(2), run)
    with pytest.raises(TypeError, match="multipliers: expected a dict by name"):
        problem.solve(np.zeros(2), multipliers=5)
    bounded_problem = Problem(f, bounded[1], N, bounds=bounded[2])
    with pytest.raises(ValueError, match="multipliers: 'w' is not a limit of this problem; "):
        bounded_problem.solve(np.zeros(2), multipliers={"w": np.zeros(N)})
    assert f"{N} steps" in repr(problem)


def test_starts_outside_of_a_limit_are_refused(bounded):
    f, cost, bounds = bounded
    with pytest.raises(ValueError, match=r"x0: v = 0\.7 is outside of its limits"):
        optimize(f, cost, x0=[0.0, 0.7], steps=N, bounds=bounds)


# -- mechanisms -----------------------------------------------------------------------------------


def lipa_cart_pole():
    """The cart-pole of joaospinto/primal-dual-lipa's comparison: explicit Euler, theta = 0 hanging."""
    x, u = ca.SX.sym("x", 4), ca.SX.sym("u")
    cart, pole, length, g = 10.0, 1.0, 0.5, 9.81
    s, c, w = ca.sin(x[1]), ca.cos(x[1]), x[3]
    M = ca.vertcat(
        ca.horzcat(cart + pole, pole * length * c), ca.horzcat(pole * length * c, pole * length**2)
    )
    a = ca.solve(M, ca.vertcat(u + pole * length * s * w**2, -pole * g * length * s))
    step = x + 0.1 * ca.vertcat(x[2], x[3], a)
    names = dict(state_names=("x", "theta", "v", "w"), input_names=("force",))
    f = vioc.CasadiMap(ca.Function("f", [x, u], [step]), 0.1, **names)
    start, goal = np.array([0, 0.2, 0, -0.1]), np.array([0, np.pi, 0, 0])
    e = f.symbols.x - goal
    cost = Cost(f, 0.1 * ca.sumsqr(e) + 0.01 * f.symbols.u**2, 1000 * ca.sumsqr(e), per_time=False)
    return f, cost, start, goal


@pytest.fixture(scope="module")
def cart_pole():
    """Map, cost, limits, the problem, its solution from the straight line."""
    f, cost, start, goal = lipa_cart_pole()
    limits = dict(bounds={"u.force": 5.0}, final=goal)
    problem = Problem(f, cost, 50, **limits)
    return f, cost, limits, problem, problem.solve(None, (np.linspace(start, goal, 51), np.zeros((50, 1))))


def test_published_cart_pole(cart_pole):
    f, cost, limits, _, best = cart_pole
    assert best.cost == pytest.approx(66.8026196956, rel=1e-8)
    assert best.iterations <= 40
    assert kkt(f, cost, best.trajectory, best.multipliers, **limits).residual <= TOLERANCE
    np.testing.assert_array_equal(best.x, f.rollout(best.x[0], best.u).x)
    assert best.cost == cost.value(best.trajectory)


def test_starts_from_solutions_are_warm(cart_pole):
    _, _, _, problem, best = cart_pole
    again = problem.solve(None, best)
    assert again.cost == pytest.approx(best.cost, rel=1e-8)
    assert again.iterations <= 3
    moved = problem.solve(best.x[0] + [0.0, 0.02, 0.0, 0.0], best)
    assert moved.converged and moved["theta"][0] == pytest.approx(0.22)


def test_another_cost_of_the_same_problem(cart_pole):
    f, cost, limits, problem, best = cart_pole
    other = Cost(f, 0.01 * f.symbols.u**2, per_time=False)
    found = problem.with_cost(other).solve(None, best)
    fresh = optimize(f, other, best.trajectory, **limits)
    assert found.cost == pytest.approx(fresh.cost, rel=1e-7) and found.cost < 0.9 * other.value(
        best.trajectory
    )
    assert kkt(f, other, found.trajectory, found.multipliers, **limits).residual <= TOLERANCE
    assert problem.cost is cost and problem.solve(None, best).cost == pytest.approx(best.cost, rel=1e-8)
    g = double_integrator()
    with pytest.raises(ValueError):
        problem.with_cost(effort(g))


def test_results_are_kept_and_read(cart_pole):
    _, _, _, problem, best = cart_pole
    again = pickle.loads(pickle.dumps(best))
    np.testing.assert_array_equal(again.x, best.x)
    assert again.message == best.message and again.status == "converged" and repr(again) == repr(best)
    for name, value in best.multipliers.items():
        np.testing.assert_array_equal(again.multipliers[name], value)
    assert problem.solve(None, again).converged


def test_an_interrupt_leaves_what_is_there(cart_pole):
    _, _, _, problem, best = cart_pole
    start = best.x[0]

    def stop(record):
        if record.iteration == 4:
            raise KeyboardInterrupt

    guess = np.linspace(start, best.x[-1], 51), None
    with pytest.raises(KeyboardInterrupt) as error:
        problem.solve(None, guess, monitor=stop)
    kept = error.value.result
    assert kept.status == "interrupted" and len(kept.trajectory) == 50
    returned = problem.solve(None, guess, monitor=stop, raise_on_failure=False)
    np.testing.assert_array_equal(returned.u, kept.u)
    assert problem.solve(None, kept).converged


def test_an_arm_from_the_start_held():
    """Seven joints to a point with the tool; other programs find 0.15213934."""
    f = vioc.MidpointVI(vioc.models.seven_joint_arm(), 0.01)
    cost = reaching.cost(f)
    best = optimize(f, cost, x0=f.initial_state(reaching.START), steps=100)
    assert best.cost <= 0.15213935
    assert best.iterations <= 40
    assert kkt(f, cost, best.trajectory).residual <= TOLERANCE


@pytest.mark.parametrize("seed", [0, *(pytest.param(i, marks=pytest.mark.slow) for i in (1, 2))])
def test_an_arm_from_other_starts(seed):
    """The stiff weight of the tool bends the Hessian by noise unless residuals have multipliers."""
    f = vioc.MidpointVI(vioc.models.seven_joint_arm(), 0.01)
    cost, off = reaching.cost(f), 0.3 * np.random.default_rng(seed).standard_normal(7)
    best = optimize(f, cost, x0=f.initial_state(reaching.START) + np.append(off, np.zeros(7)), steps=100)
    assert best.converged and best.iterations <= 60
    assert kkt(f, cost, best.trajectory).residual <= TOLERANCE


@pytest.mark.parametrize("dt, a, b", [(0.1, 6.0, -6.0), (0.15, 6.0, -6.0), (0.1, -9.7, -1.6)])
def test_steps_whose_equations_have_other_roots(dt, a, b):
    """Two rods in steps so long that Newton's method finds other roots: the optimum is of the map's own."""
    rod = Mass(0.1, (0.01, 0.01, 1e-3), (0, 0, -0.5))
    rods = vioc.revolute("a", "y", mass=rod)[vioc.tz(-1.0)[vioc.revolute("b", "y", mass=rod)]]
    torques = vioc.JointForce("a", "ua"), vioc.JointForce("b", "ub")
    f = vioc.MidpointVI(System(rods, Gravity(0, 0, -9.81), *torques), dt)
    cost = quadratic(f, Q=1e-3, R=1e-3, Qf=10.0, goal={"a": 3.0, "b": 0.0})
    x0 = f.initial_state({"a": 0.1, "b": 0.2}, {"a": a, "b": b})
    best = optimize(f, cost, x0=x0, steps=20, method="shooting")
    np.testing.assert_array_equal(best.x, f.rollout(x0, best.u).x)
    assert kkt(f, cost, best.trajectory).residual <= TOLERANCE
    for guess in (best, best.trajectory):
        again = optimize(f, cost, guess, method="shooting")
        assert again.iterations <= 3 and again.cost == pytest.approx(best.cost, rel=1e-9)


def test_a_free_body_to_a_pose():
    """Its centre moves by itself: the least effort to a place is a least norm."""
    axes, spin = np.eye(3), dict(frame="tool", axes="hybrid")
    pushes = [WrenchInput(input=f"f{a}", force=e, **spin) for a, e in zip("xyz", axes, strict=True)]
    turns = [
        WrenchInput(input=f"m{a}", force=(0, 0, 0), moment=e, **spin)
        for a, e in zip("xyz", axes, strict=True)
    ]
    body = vioc.free("j", "xyz", frame="tool", mass=Mass(1.5, (1.0, 2.0, 3.0)))
    f = MaximalVI(System(body, Gravity(0, 0, -9.81), *pushes, *turns), 0.05)
    x0, cost = f.initial_state(), effort(f)
    place, turn = np.array([0.5, -0.3, 0.2]), np.array([0.4, -0.7, 0.9])
    names = [f"tool:{a}" for a in ("x", "y", "z", "rx", "ry", "rz")]
    final = dict(zip(names, map(float, [*place, *turn]), strict=True))
    best = optimize(f, cost, x0=x0, steps=N, final=final)
    for name, value in final.items():
        assert best[name][-1] == pytest.approx(value, abs=1e-8)
    assert kkt(f, cost, best.trajectory, best.multipliers, final=final).residual <= TOLERANCE
    c, M = responses(f, x0)
    M = M.reshape(f.nx, N, f.nu)[:3, :, :3].reshape(3, -1)
    least = np.linalg.lstsq(M, place - c[:3], rcond=None)[0].reshape(N, 3)
    np.testing.assert_allclose(best.u[:, :3], least, rtol=0, atol=1e-6 * np.abs(least).max())


def test_a_closed_chain_to_a_configuration():
    """A four-bar with its torque at the limit; IPOPT on its discrete equations finds the same cost."""
    f, start = four_bar()
    x0 = f.initial_state(start)
    there = f.rollout(x0, np.full((N, 1), 1.5))["crank"][-1]
    limits = dict(bounds={"u.torque": 5.0}, final={"crank": float(there), "v.crank": 0.0})
    best = optimize(f, effort(f), x0=x0, steps=N, **limits)
    # every limit's barrier leaves the tolerance, at most
    assert best.cost == pytest.approx(1.7594100040, abs=2 * N * TOLERANCE)
    assert np.abs(best["u.torque"]).max() == pytest.approx(5.0, abs=1e-5)
    assert max(np.abs(best["h.pin-x"]).max(), np.abs(best["h.pin-z"]).max()) < 1e-10
    assert kkt(f, effort(f), best.trajectory, best.multipliers, **limits).residual <= TOLERANCE


# -- guesses --------------------------------------------------------------------------------------


def logarithm():
    """A map that is defined for x > 0 only."""
    x, u = ca.SX.sym("x"), ca.SX.sym("u")
    step = ca.Function("f", [x, u], [x + 0.1 * (ca.log(x) + u)])
    f = vioc.CasadiMap(step, 0.1, state_names=["x"], input_names=["u"])
    return f, quadratic(f, Q=1.0, R=0.1, goal={"x": 2.0})


def test_guesses_without_steps():
    f, cost = logarithm()
    nowhere = np.full((11, 1), -1.0), None
    best = optimize(f, cost, nowhere, x0=[1.0], method="shooting")
    assert (
        "the guess has no steps: step 1" in best.message
        and "began with the initial state at all samples" in best.message
    )
    held = optimize(f, cost, x0=[1.0], steps=10, method="shooting")
    assert best.cost == pytest.approx(held.cost, rel=1e-8) and held.message.startswith("converged")
    lost = optimize(f, cost, np.full((10, 1), -30.0), x0=[1.0], method="shooting")  # no rollout either
    assert lost.cost == pytest.approx(held.cost, rel=1e-8)
    with pytest.raises(OptimizationError, match="the guess has no steps: step 0"):
        optimize(f, cost, x0=[-1.0], steps=10, method="shooting")


def test_what_is_no_problem_is_refused():
    f = double_integrator()
    cost = effort(f)
    problem, start = Problem(f, cost, N), dict(x0=[0.0, 0.0], steps=5)
    for message, call in (
        ("steps: give their number", lambda: optimize(f, cost, x0=[0.0, 0.0], method="shooting")),
        ("guess: expected 20 steps, got 7", lambda: problem.solve(None, (np.zeros((8, 2)), None))),
        ("no initial state", problem.solve),
        ("tolerance: expected a number > 0", lambda: problem.solve([0.0, 0.0], tolerance=0.0)),
        (
            "bounds: .*takes none",
            lambda: optimize(f, cost, bounds={"v": 1}, method="projection", **start),
        ),
        ("warmup: method 'shooting' takes none", lambda: optimize(f, cost, final=END, warmup=3, **start)),
    ):
        with pytest.raises(ValueError, match=message):
            call()
