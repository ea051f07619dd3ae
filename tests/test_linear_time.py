"""The linear-time variational integrator: DRNEA, its inverse in O(n), and the map."""

import pickle
from functools import cache
from itertools import pairwise
from pathlib import Path

import casadi as ca
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.chain import chain, start
from support.linear_time_models import random_tree, start_near
from support.mechanisms import everything, hold, state_near
from support.strategies import systems

import vioc
from vioc import Gravity, JointDamping, JointForce, LinearTimeVI, MidpointVI, StepError, System
from vioc.compile import find_compiler

# inside: recursions on bodies and the compiled core, by themselves and against each other
from vioc.dynamics.algebra import vectors as vec
from vioc.dynamics.integrators import step_derivatives as derivatives
from vioc.dynamics.integrators.linear_time.core import GUESSES, SOLVERS, LinearTimeCore
from vioc.dynamics.integrators.linear_time.drnea import Bodies, momentum
from vioc.errors import ModelError
from vioc.maps.derivatives import Steps

DATA = Path(__file__).parents[1] / "studies" / "data" / "linear_time"
H = 0.03
compiled = pytest.mark.skipif(find_compiler() is None, reason="no C compiler")


def case(seed, joint=""):
    """Bodies of a random tree, two configurations a step apart, and T_d as a CasADi expression."""
    system = random_tree(7, seed, joint=joint)
    bodies, random = Bodies(system, float), np.random.default_rng(seed)
    q0 = 0.6 * random.normal(size=bodies.nq)
    q1 = q0 + 2 * H * random.normal(size=bodies.nq)
    a, b = ca.SX.sym("a", bodies.nq), ca.SX.sym("b", bodies.nq)
    X = bodies.displacements(bodies.places(ca.vertsplit(a)), bodies.places(ca.vertsplit(b)))
    total = ca.SX(0)
    for i, x in enumerate(X):
        if x is not None:
            link = bodies.links[i]
            P = momentum(link.mass, link.moment, link.inertia, x, H)
            total += sum(s * t for k in (0, 1) for s, t in zip(x[k], P[k], strict=True)) / 2
    return system, bodies, q0, q1, (a, b, total)


def numbers(values):
    return np.array(values, float)


@pytest.mark.parametrize(("seed", "joint"), [(0, ""), (1, ""), (2, "free")])
def test_drnea_and_its_derivative_against_the_discrete_lagrangian(seed, joint):
    """Algorithms 2 and 4 against AD of T_d, which knows log and the transforms only."""
    _, bodies, q0, q1, (a, b, T) = case(seed, joint)
    slots = [ca.gradient(T, a), ca.gradient(T, b)]
    f = ca.Function("f", [a, b], [*slots, ca.jacobian(slots[0], b)])
    D1, D2, D21 = (np.array(o) for o in f(q0, q1))
    first, second = bodies.slots(list(q0), list(q1), H)
    scale = np.abs(D1).max()
    assert np.abs(numbers(first) - D1[:, 0]).max() < 1e-10 * scale
    assert np.abs(numbers(second) - D2[:, 0]).max() < 1e-10 * scale
    J = numbers(bodies.jacobian(bodies.places(list(q0)), bodies.places(list(q1)), H))
    assert np.abs(J + D21).max() < 1e-10 * np.abs(J).max()
    assert np.abs(J - J.T).max() > 1e-5 * np.abs(J).max()  # it is not symmetric


@pytest.mark.parametrize(("seed", "joint"), [(0, ""), (1, ""), (2, "free"), (3, "free")])
def test_newton_direction_in_linear_time(seed, joint):
    """The recursion without symmetry against numpy's solution of the dense system."""
    system, bodies, q0, q1, _ = case(seed, joint)
    places = [bodies.places(list(q)) for q in (q0, q1)]
    damping = np.random.default_rng(seed).uniform(0, 5, bodies.nd)
    J = numbers(bodies.jacobian(*places, H)) + np.diag(damping)
    inverse = bodies.newton_inverse(*places, H, list(damping))
    b = np.random.default_rng(seed + 1).normal(size=bodies.nd)
    x = np.linalg.solve(J, b)
    assert np.abs(numbers(inverse.solve(list(b))) - x).max() < 1e-10 * np.abs(x).max()
    M = vioc.Lagrangian(system).mass_matrix(q0)
    x = np.linalg.solve(M / H + np.diag(damping), b)
    riqn = bodies.impulse_inverse(places[0], H, list(damping))
    assert np.abs(numbers(riqn.solve(list(b))) - x).max() < 1e-10 * np.abs(x).max()


@pytest.mark.parametrize("hung", [False, True])
def test_velocities_of_long_chains_in_linear_time(hung):
    """The Legendre transform that a first step needs, and accelerations: O(n) operations, not O(n^3)."""
    counts = []
    for n in (12, 24):
        rope = vioc.cables.cable("c", n, 2.0, vioc.cables.Section(0.1), along="x")
        held = (vioc.tx(1.0, name="hook"), rope.attach("hook")) if hung else ()
        system = System(rope, *held, vioc.Gravity(0.0, 0.0, -9.81))
        f = LinearTimeVI(system, 0.01)
        counts.append([f._velocity.program.function.n_instructions()])
        lag = f.lagrangian
        accelerations = lag.function("a", [vioc.Continuous(lag).solution[0]])
        counts[-1].append(accelerations.n_instructions())
        q, p = np.random.default_rng(n).uniform(0.1, 0.3, size=(2, f.nq))
        v = f._velocity(np.concatenate([q, p]), f.theta)[0][:, 0]
        M, J = lag.mass_matrix(q), lag.constraint_jacobian(q)
        saddle = np.block([[M, J.T], [J, np.zeros((len(J), len(J)))]])
        expected = np.linalg.solve(saddle, np.concatenate([p, np.zeros(len(J))]))[:n]
        # the solution's error: a unit roundoff times the condition number of what is solved
        error = np.finfo(float).eps * np.linalg.cond(saddle) * np.abs(expected).max()
        assert np.abs(v - expected).max() < 10 * error
    ratio = np.divide(*np.array(counts, float)[::-1])
    assert (ratio < 2.2).all()


def test_a_first_step_is_not_written_out_in_python(monkeypatch):
    """An operation on SX takes 40 us from Python: 100 links would take 15 s and more."""
    for size in (3, 19):  # what all sizes share is traced, of short chains and of long ones
        f = LinearTimeVI(chain(size, 9.81), 0.01)
        f.step(f.initial_state())
    calls = []
    for name in ("times", "plus"):
        plain = getattr(vec, name)
        monkeypatch.setattr(
            vec, name, lambda a, b, plain=plain: calls.append(isinstance(a, ca.SX)) or plain(a, b)
        )
    for count in (20, 40):
        calls.clear()
        f = LinearTimeVI(chain(count, 9.81), 0.01)
        f.step(f.initial_state())
        assert sum(calls) < 20 * count


def test_a_function_put_into_a_graph_is_the_function():
    """Numbers, expressions and both, zeros among them: values and operations of the plain function."""
    random = np.random.default_rng(0)
    a, b = (tuple(map(tuple, random.normal(size=(3, 3)))) for _ in range(2))
    s = ca.SX.sym("s")
    product = vec.inlined(vec.matmul)
    assert product(a, b) == vec.matmul(a, b)
    mixed = ((s, 0.0, 1.0), *a[1:])
    graph = ca.Function("f", [s], [vec.matrix(product(mixed, b))])
    plain = ca.Function("f", [s], [vec.matrix(vec.matmul(mixed, b))])
    assert graph.n_instructions() == plain.n_instructions()  # zeros are dropped
    assert np.abs(np.array(graph(0.7) - plain(0.7))).max() < 1e-15


def test_joints_of_several_freedoms_are_massless_links():
    bodies = Bodies(random_tree(7, 2, joint="free"), float)
    assert bodies.heavy[:6] == (False,) * 5 + (True,)
    assert len(bodies) == bodies.nq > sum(bodies.heavy) == 7


@pytest.mark.parametrize("gravity", ["0", "9.81"])
@pytest.mark.parametrize("backend", ["virtual", pytest.param("compiled", marks=compiled)])
def test_the_authors_trajectory(gravity, backend):
    """Their first step, full SE(3): 1e-10 over 500 steps, 1e-9 over 1000.

    A good seed would stop the iteration early and leave 1e-10; so a plain seed and a tight tolerance.
    """
    with np.load(DATA / f"vi_drnea_riqn_n5_g{gravity}.npz") as stored:
        d = dict(stored)
    options = dict(guess="IG2", tolerance=1e-12, backend=backend)
    f = LinearTimeVI(chain(5, float(d["gravity"])), float(d["dt"]), **options)
    run = f.rollout(f.initial_state(d["q"][0], d["dq0"], start="authors"), steps=1000)
    error = np.abs(run.x[:, :5] - d["q"]).max(axis=1)
    assert error[:501].max() < 1e-10
    assert error.max() < 1e-9


def test_order_of_the_starts():
    """Legendre: order 2 in q and p, against the midpoint rule at a fine step; the authors': order 1."""
    system = random_tree(4, 5)
    system = system.with_components(JointDamping(system.dynamic[0], 0.8), JointForce(system.dynamic[1], "u"))
    q, v = np.random.default_rng(0).normal(size=(2, len(system.variables)))
    fine = MidpointVI(system, 1 / 2048)
    reference = fine.rollout(fine.initial_state(q, v), np.ones((512, 1))).x[-1]
    steps = [1 / 64, 1 / 128, 1 / 256]

    f = LinearTimeVI(system, steps[0])

    def errors(start):
        found = []
        for h in steps:
            x0 = f.with_dt(h).initial_state(q, v, start=start)
            end = f.rollout(x0, np.ones((round(0.25 / h), 1)), dt=h).x[-1]
            found.append(np.abs(end - reference).reshape(2, -1).max(axis=1))
        return [np.polyfit(np.log(steps), np.log(e), 1)[0] for e in np.array(found).T]

    assert errors("legendre") == pytest.approx([2, 2], abs=0.2)
    assert errors("authors")[0] == pytest.approx(1, abs=0.2)


def test_linearization_of_a_tree_is_exact_and_symplectic():
    f = LinearTimeVI(random_tree(4, 6), 0.01)
    x, n = start_near(f, 1), f.nq
    A, _ = f.linearize(x)
    J = np.block([[np.zeros((n, n)), np.eye(n)], [-np.eye(n), np.zeros((n, n))]])
    assert np.abs(A.T @ J @ A - J).max() < 1e-9 * max(1, np.abs(A).max() ** 2)
    e = 1e-6
    expected = np.stack([(f.step(x + e * d) - f.step(x - e * d)) / (2 * e) for d in np.eye(f.nx)], 1)
    assert np.abs(A - expected).max() < 1e-6 * np.abs(A).max()


def test_derivatives_with_everything():
    """Kinematic variables, a pulled string, springs, damping, inputs, parameters: A to E, and Hessians."""
    f = LinearTimeVI(everything(), 0.01)
    x = state_near(f, 0)
    u = hold(f, x)
    random = np.random.default_rng(0)
    z, zeta, e = random.normal(size=f.nx), random.normal(size=f.nm), 1e-5
    lin = f.linearize(x, u)
    names = list(f.parameters)

    def moved(d):
        g = f.with_parameters(**{n: f.parameters[n] + d[f.nx + f.nu + i] for i, n in enumerate(names)})
        return g, x + d[: f.nx], u + d[f.nx : f.nx + f.nu]

    def end(d):
        g, a, b = moved(d)
        return g.step(a, b)

    def gradient(d):
        g, a, b = moved(d)
        m = g.linearize(a, b)
        return np.concatenate([M.T @ z + C.T @ zeta for M, C in ((m.A, m.C), (m.B, m.D), (m.P, m.E))])

    S = f.second_order(x, u, z, zeta=zeta)
    rows = [[S.xx, S.xu, S.xp], [S.xu.T, S.uu, S.up], [S.xp.T, S.up.T, S.pp]]
    hessian, jacobian = np.block(rows), np.hstack([lin.A, lin.B, lin.P])
    assert np.abs(hessian - hessian.T).max() < 1e-9 * np.abs(hessian).max()
    for d in random.normal(size=(3, len(hessian))):
        rate = (end(e * d) - end(-e * d)) / (2 * e)
        assert np.abs(rate - jacobian @ d).max() < 1e-6 * np.abs(jacobian).max()
        bend = (gradient(e * d) - gradient(-e * d)) / (2 * e)
        assert np.abs(bend - hessian @ d).max() < 1e-6 * np.abs(hessian).max()
    run = f.rollout(x, np.tile(u, (3, 1)))
    along = f.linearize_trajectory(run)
    assert np.abs(along.A[0] - lin.A).max() < 1e-8
    check = f.residual(run.x[1], u, run.x[2], run.multipliers[1], run.t[1], f.dt, list(f.parameters.values()))
    assert np.abs(np.array(check)).max() < 1e-9


@pytest.mark.parametrize(
    ("system", "guess"),
    [
        (vioc.models.load("closed_chain"), None),
        (vioc.models.scissor_lift(3), vioc.models.scissor_lift_configuration(3, 0.6)),
    ],
    ids=["closed chain", "scissor lift"],
)
def test_loop_closures(system, guess):
    """Constraints to 1e-10 at every step, by m solutions in O(n) each; the motion of the midpoint rule."""
    q = vioc.consistent_configuration(system, guess or np.full(len(system.variables), 0.4))
    f, m = LinearTimeVI(system, 0.002), MidpointVI(system, 0.002)
    run, other = (g.rollout(g.initial_state(q), steps=100) for g in (f, m))
    assert max(np.abs(run["h." + n]).max() for n in f.multiplier_names) < 1e-10
    assert np.abs(run.x[:, : f.nq] - other.x[:, : f.nq]).max() < 1e-4
    assert np.abs(run.x[-1, : f.nq] - run.x[0, : f.nq]).max() > 1e-2  # it moves
    force, expected = (r["force." + f.multiplier_names[0]][1:] for r in (run, other))
    assert np.abs(force - expected).max() < 1e-2 * np.abs(expected).max()


def angular_momentum(run):
    """p . (generalized velocity of a rotation of the whole about the world's axes), (N+1, 3)."""
    q, p = run.x[:, :6], run.x[:, run.map.nq : run.map.nq + 6]
    result = []
    for (x, y, z, a, b, _), (*linear, pa, pb, pc) in zip(q, p, strict=True):
        first = np.array([0, 0, 1.0])
        second = np.array([-np.sin(a), np.cos(a), 0])
        third = np.array([np.cos(a) * np.cos(b), np.sin(a) * np.cos(b), -np.sin(b)])
        rates = np.linalg.inv(np.stack([first, second, third], axis=1))
        result.append(np.cross([x, y, z], linear) + rates.T @ np.array([pa, pb, pc]))
    return np.array(result)


@compiled
def test_momenta_of_a_floating_tree():
    """All six hold to rounding over 1e4 steps, in Euler angles too: bodies move in SE(3)."""
    f = LinearTimeVI(random_tree(4, 8, gravity=0.0, kinds=3, joint="free"), 1e-3, backend="compiled")
    random = np.random.default_rng(3)
    q, v = 0.2 * random.normal(size=f.nq), 0.3 * random.normal(size=f.nq)
    run = f.rollout(f.initial_state(q, v), steps=10000)
    linear = run.x[:, f.nq : f.nq + 3]
    assert np.abs(linear - linear[0]).max() < 1e-10
    L = angular_momentum(run)
    assert np.abs(L - L[0]).max() < 1e-10
    assert np.ptp(run.x[:, f.nq + 3]) > 1e-3  # a single p is not constant


@pytest.mark.slow
@compiled
def test_compiled_core_as_the_virtual_machine():
    system = random_tree(5, 9)
    f = LinearTimeVI(system, 0.005)
    x0 = start_near(f, 2)
    expected = f.rollout(x0, steps=20).x
    for solver in SOLVERS:
        for guess in GUESSES:
            g = LinearTimeVI(system, 0.005, solver=solver, guess=guess, backend="compiled")
            assert np.abs(g.rollout(x0, steps=20).x - expected).max() < 1e-9 * np.abs(expected).max()


@cache
def chord_run():
    f = LinearTimeVI(random_tree(3, 10), 0.01)
    return f.rollout(start_near(f, 2), steps=10)


@pytest.mark.parametrize("solver", ["riqn", "newton", "dense"])
@pytest.mark.parametrize("guess", ["IG1", "IG2"])
def test_solvers_in_the_virtual_machine(solver, guess):
    expected = chord_run()
    f = LinearTimeVI(expected.map.system, 0.01, solver=solver, guess=guess)
    run = f.rollout(expected.x[0], steps=10)
    assert np.abs(run.x - expected.x).max() < 1e-9 * np.abs(expected.x).max()


@compiled
@pytest.mark.parametrize("axis", range(3))
def test_the_compiled_core_knows_gravity_along_every_axis(axis):
    """It leaves weights out where there is no gravity, which must be none along any of the three."""
    body = vioc.Mass(1.0, (0.2, 0.3, 0.4), (0.1, 0.2, 0.3))
    tree = vioc.rx("a", mass=body)[vioc.tx(0.5)[vioc.ry("b", mass=body)]]
    system = System(tree, Gravity(*(-9.81 * np.eye(3)[axis])))
    ends = []
    for backend in ("virtual", "compiled"):
        f = LinearTimeVI(system, 0.01, backend=backend)
        ends.append(f.rollout(f.initial_state({"a": 0.3}), steps=20).x[-1])
    np.testing.assert_allclose(*ends, rtol=0, atol=1e-10)
    assert np.abs(ends[0][:2] - [0.3, 0.0]).max() > 1e-3


@compiled
def test_compiled_core_with_other_forces_feedback_and_parameters():
    whole = everything()
    system = System(*whole.frames, *whole.potentials, *whole.forces, name="open")
    f, g = (LinearTimeVI(system, 0.01, backend=b, wrap="a") for b in ("virtual", "compiled"))
    random = np.random.default_rng(0)
    x = 0.5 * random.normal(size=f.nx)
    U = np.tile(hold(f, x), (30, 1)) + 0.1 * random.normal(size=(30, f.nu))
    K = 0.1 * random.normal(size=(30, f.nu, f.nx))
    K[:, -1] = 0.0  # the trolley's place is prescribed
    target = x + 0.1 * random.normal(size=(31, f.nx))
    changed = {"m": 2.5, "stiffness": 8.0}
    for a, b in ((f, g), (f.with_parameters(**changed), g.with_parameters(**changed))):
        one, two = a.track(x, target, U, K), b.track(x, target, U, K)
        assert np.abs(one.x - two.x).max() < 1e-9
        assert np.abs(one.u - two.u).max() < 1e-9
    assert np.abs(f.rollout(x, U).x - f.with_parameters(**changed).rollout(x, U).x).max() > 1e-3


@compiled
@pytest.mark.parametrize("turn", [0.02, 0.3, 1.2])
@pytest.mark.parametrize(("count", "joint"), [(7, ""), (19, "free")])
def test_closed_forms_in_c(count, joint, turn):
    """Algorithm 4 in C against that on scalars, which is checked against AD; small and large turns."""
    f = LinearTimeVI(random_tree(count, 4, joint=joint), 0.1, backend="compiled")
    random = np.random.default_rng(2)
    q0 = random.normal(size=f.nq)
    q1 = q0 + turn * random.uniform(-1, 1, size=f.nq)
    bodies = Bodies(f.system, float)
    expected = numbers(bodies.jacobian(bodies.places(list(q0)), bodies.places(list(q1)), 0.1))
    K = LinearTimeCore(f, f.theta).jacobian(q0, q1, 0.1)
    assert np.abs(K - expected).max() < 1e-12 * np.abs(K).max()


@compiled
@pytest.mark.parametrize("gravity", [0.0, 9.81])
def test_first_guesses(gravity):
    """RIQN's evaluations from [L]'s guesses, and from the predicted one, whose error is O(h^3)."""
    counts = {}
    for guess in GUESSES:
        f = LinearTimeVI(chain(8, gravity), 1e-3, solver="riqn", guess=guess, backend="compiled")
        arguments = f.initial_state(*start(8)), np.zeros((1000, 0)), np.zeros(1000), np.full(1000, f.dt)
        counts[guess] = LinearTimeCore(f, f.theta).rollout(*arguments, residual=1e-8)[3]
        assert len(counts[guess]) == 1000
    mean = {guess: c.mean() for guess, c in counts.items()}
    assert mean["IG1"] > mean["IG2"] + 0.4 > mean["predicted"] + 1.0


@compiled
def test_riqn_with_updates_is_superlinear():
    """Over 100 ms; without them the ninth residual is 2e-10 of the first."""
    f = LinearTimeVI(chain(10), 0.1, solver="riqn", guess="IG1", backend="compiled")
    r = LinearTimeCore(f, f.theta).history(f.initial_state(*start(10)), np.zeros(0), 0.0, f.dt, 12)
    assert r[4] > 1e-5 * r[0]
    assert r[8] < 1e-11 * r[0]


@compiled
@pytest.mark.parametrize("system", [chain(4), random_tree(4, 6, kinds=3)], ids=["chain", "full inertias"])
def test_riqn_is_broydens_method(system):
    """Residuals of a step against Broyden's good update written out with a matrix; its last scaling too."""
    f = LinearTimeVI(system, 0.1, solver="riqn", guess="IG1", backend="compiled")
    q0, v = start(4)
    x = f.initial_state(q0, v)
    r = LinearTimeCore(f, f.theta).history(x, np.zeros(0), 0.0, f.dt, 8)
    H, q, norms = f.dt * np.linalg.inv(f.lagrangian.mass_matrix(q0)), q0.copy(), []

    def balance(q1):
        return np.array(f.residual(x, [], np.concatenate([q1, x[4:]]), [], 0.0, f.dt, []))[:4, 0]

    residual = balance(q)
    for _ in range(6):
        norms.append(np.linalg.norm(residual))
        s = H @ residual
        q, before = q + s, residual
        residual = balance(q)
        y = before - residual
        H += np.outer(s - H @ y, s @ H) / (s @ H @ y)
    # rounding grows with each update, so relative to the first residual
    assert np.abs(r[:6] - norms).max() < 1e-9 * r[0]
    assert r[1:6] == pytest.approx(norms[1:], rel=1e-4)


@compiled
@pytest.mark.parametrize("solver", ["chord", "riqn"])
def test_the_core_stops_at_the_residual_that_is_asked_for(solver):
    """The balance of each step, by the equations in CasADi: below the bound, and not much below it."""
    f = LinearTimeVI(chain(5), 1e-2, solver=solver, guess="IG2", backend="compiled")
    x0 = f.initial_state(*start(5))
    arguments = x0, np.zeros((100, 0)), np.zeros(100), np.full(100, f.dt)
    X = np.concatenate([x0[None], LinearTimeCore(f, f.theta).rollout(*arguments, residual=1e-6)[0]])
    norms = [np.linalg.norm(np.array(f.residual(a, [], b, [], 0.0, f.dt, []))[:5]) for a, b in pairwise(X)]
    assert len(norms) == 100
    assert 1e-9 < max(norms) <= 1e-6


def test_a_seed_is_corrected_before_it_is_judged():
    """With a loose tolerance every seed passes; corrected once more it leaves little, uncorrected 5e-6."""
    runs = []
    for tolerance in (1e-11, 1e-4):
        f = LinearTimeVI(chain(3, 9.81), 0.01, tolerance=tolerance)
        runs.append(f.rollout(f.initial_state([0.5, -0.3, 0.2]), steps=60).x)
    error = np.abs(runs[1] - runs[0]).max()
    assert 1e-9 < error < 5e-7  # 6e-8: a correction shrinks an error by a factor of O(h)


def sprung(as_force):
    """A random tree with a stiffening spring between frames, as a potential or as the force of it."""
    system = random_tree(4, 7)
    a = system.dynamic[0]
    b = system.dynamic[-1]

    def energy(k):
        return 4 * ca.sin(k.q(a)) * ca.cos(2 * k.q(b)) + k.q(a) ** 2 * k.q(b) ** 2

    def force(k):
        slope = ca.gradient(energy(k), k.q_vector)
        return {n: -slope[i] for i, n in enumerate(k.system.variables) if n in (a, b)}

    return system.with_components(vioc.UserForce(force) if as_force else vioc.UserPotential(energy))


@pytest.mark.parametrize("backend", ["virtual", pytest.param("compiled", marks=compiled)])
def test_forces_act_at_the_ends_of_a_step(backend):
    """F- at q_k and F+ at q_k+1, as a potential's forces do: -dV/dq as a force is the potential V."""
    f, g = LinearTimeVI(sprung(False), 0.02), LinearTimeVI(sprung(True), 0.02, backend=backend)
    x0 = start_near(f, 3)
    a, b = (m.rollout(x0, steps=20).x for m in (f, g))
    assert np.abs(a - b).max() < 1e-9 * np.abs(a).max()


@pytest.mark.parametrize("backend", ["virtual", pytest.param("compiled", marks=compiled)])
def test_forces_are_of_the_middle_of_a_step(backend):
    """A force t on a free mass: p grows by h (t + h/2) exactly, and q by the half of it that acts first."""
    h, steps = 0.1, 5
    system = System(vioc.tx("x", mass=2.0), vioc.UserForce(lambda k: {"x": k.t}))
    f = LinearTimeVI(system, h, backend=backend)
    run = f.rollout(f.initial_state([0.0], [0.3]), steps=steps)
    t = h * (np.arange(steps) + 0.5)
    p = 0.6 + np.concatenate([[0.0], np.cumsum(h * t)])
    assert run.x[:, 1] == pytest.approx(p, rel=1e-12)
    assert np.diff(run.x[:, 0]) == pytest.approx(h * (p[:-1] + h / 2 * t) / 2, rel=1e-9)


@pytest.mark.parametrize(("short", "refused"), [(1e-4, False), (1e-6, True)])
def test_constraints_count_as_singular_from_a_hundred_thousand(short, refused):
    """A rod that turns by almost a right angle in a step: impulses grow by 1 / cos of the angle ([S] VII)."""
    system = System(
        vioc.tx("x")[vioc.tz("z", name="bob", mass=1.0)],
        vioc.DistanceConstraint("world", "bob", 1.0, name="rod"),
    )
    f = LinearTimeVI(system, 0.1)
    X = np.array([[1.0, 0.0, 0.0, 0.0], [np.sin(short), np.cos(short), 0.0, 0.0]])
    one = np.ones(1)
    steps = Steps(X[:1], X[1:], np.zeros((1, 0)), np.zeros((1, 1)), 0 * one, f.dt * one, np.zeros(1, int))
    if refused:
        with pytest.raises(StepError, match="singular constraints|Dh") as error:
            f._derivatives.first(steps, f.theta)
        assert error.value.cause == "singular constraints"
    else:
        found = f._derivatives.first(steps, f.theta).linearization
        impulse = f.lagrangian.constraint_jacobian(X[0, :2]).T @ found.C[0, :, 2:4]
        assert np.abs(impulse).max() == pytest.approx(1 / short, rel=1e-3)


@compiled
def test_newton_converges_quadratically():
    system, n = chain(10), 10
    q, v = np.random.default_rng(0).uniform(-1.5, 1.5, size=(2, n))
    f = LinearTimeVI(system, 1e-2, solver="newton", guess="IG1", backend="compiled")
    e = LinearTimeCore(f, f.theta).history(f.initial_state(q, v), np.zeros(0), 0.0, f.dt, 12)
    assert e[3] < 1e-8 * e[0]
    assert e[2] / e[1] < 10 * e[1] / e[0]


@pytest.mark.parametrize("backend", ["virtual", pytest.param("compiled", marks=compiled)])
def test_variable_steps(backend):
    """A rollout over unequal steps is the composition of its steps."""
    f = LinearTimeVI(random_tree(3, 11), 0.01, backend=backend)
    x0 = start_near(f, 0)
    lengths = np.array([0.01, 0.004, 0.013, 0.008])
    run = f.rollout(x0, steps=4, dt=lengths)
    x = x0
    for k, h in enumerate(lengths):
        x = f.step(x, k=k, dt=h)
    assert np.abs(run.x[-1] - x).max() < 1e-9


@settings(max_examples=8, deadline=None, derandomize=True)
@given(
    systems(max_frames=10, forced=True, kinematic=True, parameters=True, vocabulary=True), st.integers(0, 99)
)
def test_any_open_tree(system, seed):
    """The midpoint rule's motion over 20 ms, and a linearization that is a derivative."""
    system = System(*system.frames, *system.potentials, *system.forces)
    f, m = LinearTimeVI(system, 1e-3), MidpointVI(system, 1e-3)
    random = np.random.default_rng(seed)
    x = f.initial_state(0.5 * random.normal(size=f.nq))
    u = hold(f, x, seed)
    a, b = (g.rollout(x, np.tile(u, (20, 1))).x for g in (f, m))
    assert np.abs(a - b).max() < 1e-4 * (1 + np.abs(a).max())
    A, d, e = f.linearize(a[3], u).A, random.normal(size=f.nx), 1e-6
    rate = (f.step(a[3] + e * d, u) - f.step(a[3] - e * d, u)) / (2 * e)
    assert np.abs(rate - A @ d).max() < 1e-5 * (1 + np.abs(A).max())


def test_coupled_damping_is_solved_densely():
    system = random_tree(3, 12)
    one, two = system.dynamic[:2]

    def force(k):
        return {one: -3 * (k.v(one) + k.v(two)), two: -3 * (k.v(one) + k.v(two))}

    system = system.with_components(vioc.UserForce(force))
    f, m = LinearTimeVI(system, 0.002), MidpointVI(system, 0.002)
    assert f.graphs.coupled
    x0 = start_near(f, 1)
    assert np.abs(f.rollout(x0, steps=50).x - m.rollout(x0, steps=50).x).max() < 1e-3


def test_control_works_on_it():
    """LQR about the upright pendulum, and the closed loop."""
    system = System(
        Gravity(0, 0, -9.8), vioc.ry("theta")[vioc.tz(1.0, mass=1.0)], JointForce("theta", "torque")
    )
    f = LinearTimeVI(system, 0.02)
    steady = vioc.control.dlqr(f, (f.state(), [0.0]), Q=np.eye(2), R=np.eye(1))
    n = 400
    run = f.track(f.state(theta=0.3), np.zeros((n, 2)), np.zeros((n, 1)), np.tile(steady.K, (n, 1, 1)))
    assert np.abs(run.x[-1]).max() < 1e-3


def test_a_step_that_is_too_long_is_an_error():
    f = LinearTimeVI(chain(3, 9.81), 5.0)
    with pytest.raises(StepError):
        f.rollout(f.initial_state([1.0, -2.0, 0.5], [9.0, -20.0, 15.0]), steps=5)


def test_options_and_pickling():
    system = chain(2, 9.81)
    with pytest.raises(ModelError, match="solver"):
        LinearTimeVI(system, 0.01, solver="chrod")
    with pytest.raises(ModelError, match="guess"):
        LinearTimeVI(system, 0.01, guess="IG4")
    with pytest.raises(ModelError, match="guess"):
        LinearTimeVI(system, 0.01, guess="extrapolated")
    f = LinearTimeVI(system, 0.01, solver="newton", guess="IG2", wrap="q0", tolerance=1e-10)
    with pytest.raises(ModelError, match="start"):
        f.initial_state(start="author")
    g = pickle.loads(pickle.dumps(f))
    assert (repr(g), g.wrap, g.tolerance) == (repr(f), f.wrap, f.tolerance)
    assert "LinearTimeVI(chain_2" in repr(f)
    q0, q1 = [0.1, 0.2], [0.12, 0.19]
    x = f.state_from_configurations(q0, q1)
    back = f.rollout(x, steps=1)
    assert np.isfinite(back.x).all()


def test_conditions_are_those_of_the_midpoint_rule_in_the_limit():
    """Both condition numbers are of the mechanism; rules differ by O(h)."""
    system = vioc.models.load("closed_chain")
    maps = [kind(system, 1e-4) for kind in (MidpointVI, LinearTimeVI)]
    q = maps[0].consistent_configuration(None)
    found = [f.conditions(f.rollout(f.initial_state(q), steps=3)) for f in maps]
    for name in ("mass", "constraints"):
        one, two = (getattr(c, name) for c in found)
        assert (one >= 1 - 1e-12).all()
        np.testing.assert_allclose(two, one, rtol=1e-3)


@pytest.mark.parametrize("make", [MidpointVI, LinearTimeVI, vioc.RungeKutta])
def test_the_same_integrator_of_another_system(make):
    f = make(chain(2), 0.02, wrap=["q0"])
    g = f.with_system(chain(3))
    assert (type(g), g.system, g.dt, g.wrap) == (make, chain(3), 0.02, ("q0",))


def test_derivatives_written_out_and_a_direction_at_a_time_are_the_same(monkeypatch):
    """One of each, over several threads' shares of steps."""
    monkeypatch.setenv("VIOC_WORKERS", "3")
    found = []
    for limit in (0, np.inf):
        monkeypatch.setattr(derivatives, "WHOLE", limit)
        f = LinearTimeVI(everything(), 0.02)
        x = state_near(MidpointVI(everything(), 0.02), 3)
        steps = f.steps_at(
            np.tile(x, (40, 1)) + 1e-4 * np.arange(40)[:, None], np.tile(f.rest_input(x), (40, 1))
        )
        rng = np.random.default_rng(0)
        Z, zeta = rng.standard_normal((40, f.nx)), rng.standard_normal((40, f.nm))
        found.append({**f.derivatives.first(steps).blocks, **f.derivatives.second(steps, Z, zeta).blocks})
    for name, block in found[0].items():
        size = np.abs(block).max(initial=1.0)  # rounding, of some thousand operations at most
        np.testing.assert_allclose(found[1][name], block, rtol=0, atol=1e-11 * size, err_msg=name)
