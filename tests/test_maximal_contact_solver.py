"""The complementarity problem of `MaximalVI`'s steps in numpy, its interior point, its compiled rollouts."""

from functools import cache
from itertools import product

import casadi as ca
import numpy as np
import pytest
from scipy.optimize import linprog
from scipy.spatial.transform import Rotation
from support.maximal_contacts import CONES, CUBE, DT, EDGE, G, box, chain, gaps

import vioc
from vioc import Contact, Gravity, Mass, MaximalVI, System
from vioc.compile import find_compiler

# inside: the complementarity problem and its interior point are tried by themselves
from vioc.dynamics.contact import compiled_contact as core
from vioc.dynamics.contact import cones, interior
from vioc.dynamics.contact.interior import EndProblem
from vioc.progress import Progress


@cache
def boxed(friction=0.5, cone=CONES[0], backend="virtual") -> MaximalVI:
    return MaximalVI(box(friction, cone), DT, backend=backend)


chain = cache(chain)

# -- the complementarity problem, written down again ------------------------------------------------------


@pytest.mark.parametrize("cone", CONES)
def test_steps_of_a_tumbling_box_solve_the_complementarity_problem(cone):
    mu, kappa = 0.5, 0.5e-8
    f = boxed(mu, cone)
    x = f.initial_state({"b-z": 0.7, "b-rx": 0.5, "b-ry": 0.4}, {"b-x": 1.5, "b-rz": 2.0})
    run = f.rollout(x, steps=80)
    corners = EDGE / 2 * np.array(list(product((-1, 1), repeat=3)))
    touched = 0
    u, t, h = np.zeros(0), np.zeros(1), np.array([DT])

    def complementary(p_of, a, V, turn, arms):
        """The laws of contact at gap speeds a and twists V; how many corners hold."""
        assert p_of[:, 0].min() > 0
        assert a * p_of[:, 0] == pytest.approx(np.full(8, kappa), rel=1e-4)
        slip = (V[:3] + np.cross(turn @ V[3:], arms))[:, :2]
        held = 0
        for w, (gamma, t1, t2, _) in zip(slip, p_of, strict=True):
            if gamma < 1e-3:
                continue
            held += 1
            if cone == "linear":
                # (26): dissipate most within the polygon
                d = np.array([[1, 0], [0, 1], [-1, 0], [0, -1]])
                best = linprog(d @ w, A_ub=[[1] * 4], b_ub=[mu * gamma]).fun
                assert abs(t1) + abs(t2) <= mu * gamma
            else:
                best = -mu * gamma * np.linalg.norm(w)
                assert np.hypot(t1, t2) <= mu * gamma
            assert w @ [t1, t2] == pytest.approx(best, abs=1e-6)
        return held

    for k in range(20, 80):  # it falls until then, touching nothing
        (p, q, nu), (p1, q1, nu1) = ((s[:3], s[3:7], s[7:]) for s in run.x[k : k + 2])
        turn, turn1 = (Rotation.from_quat(np.roll(a, -1)).as_matrix() for a in (q, q1))
        step = f.interior.solve(run.x[k], u, float(t[0]), float(h[0]), f.theta)
        V = np.concatenate([p1 - p, Rotation.from_matrix(turn.T @ turn1).as_rotvec()]) / DT
        kick, J = CUBE.mass * np.array([0, 0, -G * DT / 2]), 1 / 24
        arms, arms1 = corners @ turn.T, corners @ turn1.T
        total = run.multipliers[k].reshape(8, 4)[:, :3]
        both = [s.impulses.reshape(8, 4) for s in step.ends]
        assert np.abs(both[0][:, :3] + both[1][:, :3] - total).max() < 1e-8
        # forces in the world: t1 = x, t2 = y on the ground; w x J w = 0
        for before, after, R, arm, p_of in ((nu, V, turn, arms, both[0]), (V, nu1, turn1, arms1, both[1])):
            force = np.column_stack([p_of[:, 1], p_of[:, 2], p_of[:, 0]])
            linear = CUBE.mass * (after[:3] - before[:3]) - kick - force.sum(axis=0)
            angular = R @ (J * (after[3:] - before[3:])) - np.cross(arm, force).sum(axis=0)
            assert np.abs(np.concatenate([linear, angular])).max() < 1e-8
        phi = (p1 + arms1)[:, 2]
        assert phi.min() > 0
        touched += complementary(both[0], phi / DT, V, turn, arms)
        s = phi / DT
        wide = s * (s * s / 1e-8) ** 2
        closing = nu1[2] + np.cross(turn1 @ nu1[3:], arms1)[:, 2]
        fastest = 50 * np.sqrt(J) / DT  # lengths of the mechanism per step
        complementary(both[1], s + wide / (1 + wide / fastest) + closing, nu1, turn1, arms1)
    assert touched > 40


@pytest.mark.parametrize("cone", CONES)
def test_the_laws_that_derivatives_go_by(cone):
    """docs/maths/contact.md, Derivatives: friction and its coefficient that fit a slip w at the speed psi."""
    kappa, a, psi, w = 1e-3, 0.2, 0.7, np.array([0.3, -0.4])
    gamma = kappa / a
    if cone == "linear":
        d = np.array([[1, 0], [0, 1], [-1, 0], [0, -1]])
        beta = kappa / (psi + d @ w)
        tau, mu = beta @ d, (beta.sum() + kappa / psi) / gamma
    else:
        mu = kappa * psi / (gamma * (psi**2 - w @ w))
        tau = -mu * gamma * w / psi
    (touch, *_) = MaximalVI(box(cone=cone), DT).graph.touches
    laws = touch.geometry.cone.law(ca.DM([gamma, *tau, psi]), ca.DM([a, *w]), kappa, mu)
    assert np.abs(np.array(laws)).max() < 1e-15 * kappa / a


# -- the solver ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cone", CONES)
def test_warm_starts_change_nothing(cone):
    f = boxed(0.5, cone)
    run = f.rollout(f.initial_state({"b-z": 0.4, "b-rx": 0.3}, {"b-x": 1.0}), steps=60)
    for k in range(0, 60, 3):
        assert np.abs(f.step(run.x[k], k=k) - run.x[k + 1]).max() < 1e-9


@pytest.mark.parametrize("cone", CONES)
def test_the_last_resort_converges_to_the_same(cone):
    f = chain(2, cone)
    run = f.rollout(f.initial_state({"b-z": 0.6, "b-ry": 0.2, "q1-ry": -0.5}, {"b-y": 0.5}), steps=45)
    for k in (34, 44):
        problem = f.interior.step.leaving(run.x[k], np.zeros(0), k * DT, DT, f.theta)
        step = f.interior.solve_end(problem)
        other = f.interior._relax(problem, step)
        assert other.error < 1e-11
        assert np.abs(other.V - step.V).max() < 1e-9
        assert step.impulses.max() > 0.01


@pytest.mark.parametrize(("seed", "steps"), [(27, 40), (33, 30)])
def test_boxes_that_grip_tumble_on(seed, steps):
    """With mu = 10 central paths turn back: a step is found from another barrier (0 of 400 boxes fail)."""
    f = boxed(10.0, CONES[0], "auto")
    random = np.random.default_rng(seed)
    q = dict(
        zip(
            ("b-z", "b-rz", "b-ry", "b-rx"),
            (0.6 + random.uniform(0, 0.4), *random.uniform(-1.2, 1.2, 3)),
            strict=True,
        )
    )
    v = random.normal(size=6) * [2, 2, 1, 4, 4, 4]
    v = dict(zip(("b-x", "b-y", "b-z", "b-rz", "b-ry", "b-rx"), v, strict=True))
    run = f.rollout(f.initial_state(q, v), steps=steps)
    assert gaps(run).min() > 0
    solver = f.interior  # the same by numpy, from every state
    for k in range(steps - 8, steps):
        step = solver.solve(run.x[k], np.zeros(0), run.t[k], DT, f.theta)
        assert step.error < 1e-11


def landing() -> tuple[MaximalVI, EndProblem]:
    """A box that comes to the ground on one edge, and the problem of that step's departure."""
    f = MaximalVI(box(), DT)
    x = f.initial_state({"b-z": 0.27, "b-ry": 0.05}, {"b-x": 0.4, "b-z": -2.0})
    return f, f.interior.step.leaving(x, np.zeros(0), 0.0, DT, f.theta)


def test_what_does_not_converge_is_relaxed(monkeypatch):
    """Where every start fails, friction is bounded by the solution before: the same solution."""
    f, problem = landing()
    whole, direct, calls = f.interior.solve_end(problem), f.interior._try, []

    def failing(problem, seed, start, bound=None, resume=False):
        found = direct(problem, seed, start, bound, resume)
        calls.append(bound is not None)
        return found if bound is not None or resume else found._replace(error=np.inf)

    monkeypatch.setattr(f.interior, "_try", failing)
    found = f.interior.solve_end(problem)
    assert any(calls)
    assert found.error <= 1e-11
    assert np.abs(found.V - whole.V).max() < 1e-9


def test_what_is_left_is_measured_by_the_mechanism(monkeypatch):
    """After a few iterations boxes of half a metre and of half a kilometre have the same residual."""
    monkeypatch.setattr(interior, "ITERATIONS", 4)
    left = []
    for scale in (1.0, 1e3):
        corners = Contact.box("box", (EDGE * scale,) * 3, friction=0.5)
        cube = Mass(1.0, (scale**2 / 24,) * 3)
        system = System(vioc.free("b", frame="box", mass=cube), Gravity(0, 0, -G * scale), corners)
        f = MaximalVI(system, DT, smoothing=1e-8 * scale**2)
        monkeypatch.setattr(interior, "CENTERED", np.inf)
        x = f.initial_state({"b-z": 0.27 * scale, "b-ry": 0.05}, {"b-x": 0.4 * scale, "b-z": -2.0 * scale})
        problem = f.interior.step.leaving(x, np.zeros(0), 0.0, DT, f.theta)
        left.append(f.interior._try(problem, None, 1).error * problem.extent)
    assert left[0] > 1e-9 and left[1] == pytest.approx(left[0], rel=1e-6)


def test_a_solution_off_the_central_path_is_none(monkeypatch):
    """A solution with a hundred times the barrier meets every other equation, and is no solution."""
    f, problem = landing()
    loose = MaximalVI(box(), DT, smoothing=1e-6).interior
    other = loose.solve_end(problem._replace(end=loose.step.ends[0]))
    assert other.error <= 1e-11
    E, goal = problem.end, np.array([f.barrier, 1.0])
    left, _, mismatch, products = (
        r[:, 0] for r in E.residuals(other.V, other.lam, other.y, *problem.given, goal)
    )
    assert np.abs(np.concatenate([left, mismatch])).max() < 1e-8
    assert products @ E.variables.centers == pytest.approx(
        100 * f.barrier * (E.variables.centers @ E.variables.centers), rel=1e-4
    )
    monkeypatch.setattr(interior, "ITERATIONS", 0)
    assert f.interior._try(problem, other, 1, resume=True).error == np.inf


@pytest.mark.parametrize("backend", ["virtual", "compiled"] if find_compiler() else ["virtual"])
def test_feedback_in_contact_is_that_of_the_gains(backend):
    pushes = [
        vioc.WrenchInput("box", f"push{a}", d, axes="hybrid") for a, d in zip("xy", np.eye(3), strict=False)
    ]
    f = MaximalVI(box(0.5, CONES[0], *pushes), DT, backend=backend)
    x = f.initial_state({"b-z": EDGE / 2 + 1e-9}, {"b-x": 0.5})
    goal = f.rollout(x, np.zeros((4, 2)))
    random = np.random.default_rng(3)
    K = random.normal(size=(4, 2, f.ndx))
    start = f.retract(x, 1e-3 * np.abs(random.normal(size=f.ndx)))
    run = f.track(start, goal.x, goal.u, K)
    expected = [-K[k] @ f.difference(goal.x[k], run.x[k]) for k in range(4)]
    assert np.abs(run.u - expected).max() < 1e-12 * (1 + np.abs(run.u).max())
    assert np.abs(run.u).max() > 1e-3


@pytest.mark.skipif(find_compiler() is None, reason="there is no C compiler")
def test_long_chain_hits_the_ground_one_after_the_other():
    f = chain(12, CONES[0], "compiled")
    bends = {f"q{i}-rz": 0.2 * (-1) ** i for i in range(1, 12)}
    run = f.rollout(f.initial_state({"b-z": 1.0, "b-ry": -0.2, **bends}), steps=150)
    assert gaps(run).min() > 0


def test_steps_to_the_boundary_of_a_round_cone_end_on_it():
    """Too long a step leaves the cone, too short a one only costs iterations."""
    random = np.random.default_rng(0)
    found = []
    for _ in range(200):
        y, d = random.normal(size=(2, 3))
        y[0] = np.hypot(y[1], y[2]) + abs(y[0])
        length = cones.to_cone(y, d)
        inside = [(y + s * d)[0] - np.hypot(*(y + s * d)[1:]) for s in np.linspace(0, min(length, 1e3), 50)]
        assert min(inside) > -1e-9 * (1 + np.abs(y).max())
        if np.isfinite(length):
            end = y + length * d
            assert abs(end[0] - np.hypot(end[1], end[2])) < 1e-9 * (1 + np.abs(end).max())
        found.append(np.isfinite(length))
    assert 20 < sum(found) < 200


@pytest.mark.skipif(find_compiler() is None, reason="there is no C compiler")
@pytest.mark.parametrize("cone", CONES)
def test_compiled_and_virtual_agree(cone):
    f, g = chain(2, cone, "compiled"), chain(2, cone)
    x = f.initial_state({"b-z": 0.6, "b-ry": 0.2, "q1-ry": -0.5}, {"b-y": 0.5})
    run, other = f.rollout(x, steps=80), g.rollout(x, steps=80)
    assert gaps(run).min() > 0
    assert np.abs(run.x - other.x).max() < 1e-6  # rounding, grown by the impacts
    assert np.abs(f.step(run.x[40]) - g.step(run.x[40])).max() < 1e-9
    assert max(np.abs(run[f"h.{n}"]).max() for n in f.graph.names) < 1e-10
    K = np.zeros((80, f.nu, f.ndx))
    assert np.array_equal(f.track(x, run.x, run.u, K).x, run.x)


@pytest.mark.skipif(find_compiler() is None, reason="there is no C compiler")
@pytest.mark.parametrize("gains", [False, True])
def test_compiled_rollouts_are_the_same_in_pieces(gains, monkeypatch):
    f = chain(2, backend="compiled")
    x = f.initial_state({"b-z": 0.6, "b-ry": 0.2, "q1-ry": -0.5}, {"b-y": 0.5})
    told = []
    monkeypatch.setattr(Progress, "to", lambda self, done, note="": told.append(done))

    def run():
        if not gains:
            return f.rollout(x, steps=80)
        return f.track(x, whole.x, whole.u, np.zeros((80, f.nu, f.ndx)))

    whole = f.rollout(x, steps=80)
    assert not told
    monkeypatch.setattr(core, "PIECE", 2 * 7)
    pieces = run()
    assert np.array_equal(whole.x, pieces.x) and np.array_equal(whole.multipliers, pieces.multipliers)
    assert told == [*range(7, 78, 7), 80]


@pytest.mark.skipif(find_compiler() is None, reason="there is no C compiler")
def test_ctrl_c_ends_a_compiled_rollout(monkeypatch):
    def interrupt(self, done, note=""):
        raise KeyboardInterrupt

    f = chain(2, backend="compiled")
    monkeypatch.setattr(Progress, "to", interrupt)
    with pytest.raises(KeyboardInterrupt):
        f.rollout(f.initial_state({"b-z": 5.0, "q1-ry": -0.5}), steps=core.PIECE)


@pytest.mark.parametrize("backend", ["virtual", "compiled"])
def test_a_long_step_with_an_open_contact_is_the_step_without_it(backend):
    """Joints alone add more than a fifth of the kinetic energy in these steps of 1.3 rad and more."""
    arm = vioc.tz(1.0)[vioc.ry("a")[vioc.tz(-0.5, name="b", mass=vioc.Mass(1.0, (0.1, 0.1, 0.1)))]]
    gravity, ground = vioc.Gravity(0, 0, -9.81), vioc.Contact("b", friction=0.3)
    f, free = (
        MaximalVI(System(arm, gravity, *c), 0.1, backend=b)
        for c, b in (((ground,), backend), ((), "virtual"))
    )
    runs = [m.rollout(m.initial_state({"a": 1.2}, {"a": -10.0}), steps=5) for m in (f, free)]
    np.testing.assert_allclose(runs[0].x, runs[1].x, rtol=0, atol=1e-6)
    assert np.abs(np.diff(runs[1]["a"])).max() > 1.3
