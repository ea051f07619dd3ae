"""Designs that let go by name what no input moves or no sensor sees, and what they say without."""

import casadi as ca
import numpy as np
import pytest
from scipy.linalg import solve_discrete_are

from vioc import (
    CasadiMap,
    Contact,
    ContactVI,
    Gravity,
    JointForce,
    Mass,
    MaximalVI,
    MidpointVI,
    System,
    ry,
    tx,
    ty,
    tz,
)
from vioc.components import DryFriction, PolynomialSpring
from vioc.control import LinearMPC, Measurement, dlqr, equilibrium, kalman, observability
from vioc.control.feedback import ExtendedKalmanFilter, MovingHorizon

# inside: the modes of a pair of matrices that a message names, by themselves
from vioc.control.linear.rank import stuck_modes, unreached_modes
from vioc.errors import ModelError, OptimizationError

WEIGHTS = {"ankle": 10.0, "v.ankle": 1.0}


@pytest.fixture(scope="module")
def stands():
    """A body on an ankle, on a foot with two points of contact; and where it stands."""
    body = tz(0.05)[ry("ankle")[tz(0.5, name="body", mass=Mass(5.0, (0.1, 0.1, 0.1)))]]
    foot = tx("x")[tz("z")[ry("pitch", name="foot", mass=Mass(2.0, (0.02, 0.02, 0.02)))[body]]]
    soles = [
        Contact("foot", center=(s * 0.15, 0, -0.05), name=n, friction=0.8)
        for s, n in ((1, "toe"), (-1, "heel"))
    ]
    f = MaximalVI(System(foot, Gravity(0, 0, -9.81), JointForce("ankle", "torque"), *soles), 0.01)
    return f, equilibrium(f, guess={"z": 0.0501})


def test_the_refusal_names_what_may_be_disregarded(stands):
    f, still = stands
    with pytest.raises(OptimizationError, match=r"eigenvalues 1 \(of dx.foot\); .*disregard=\[...\]"):
        dlqr(f, still, WEIGHTS, 1.0)
    loop = dlqr(f, still, WEIGHTS, 1.0, disregard=["dx.foot"])
    assert np.abs(loop.poles).max() < 0.99 and len(loop.poles) == f.ndx - 1
    assert loop.disregarded == ("dx.foot",) and "disregards dx.foot" in repr(loop)
    for name in ("x", "dx.body"):  # the same mode by other names: the variable, and what moves with it
        np.testing.assert_array_equal(dlqr(f, still, WEIGHTS, 1.0, disregard=name).K, loop.K)


def test_it_stands_wherever_the_foot_is(stands):
    f, still = stands
    loop = dlqr(f, still, WEIGHTS, 1.0, disregard=["x"])
    moved = still.x.copy()
    moved[[f.state_names.index(n) for n in ("x.foot", "x.body")]] += 0.3
    # the linearization knows a sticking contact to the accuracy that its step is solved to
    assert np.abs(loop.K @ f.difference(still.x, moved)).max() < 1e-6 * np.abs(loop.K).max()
    leaning = f.initial_state({"x": 0.3, "z": still["z"], "ankle": 0.05})
    run = loop.rollout(leaning, 250)
    assert abs(run["ankle"][-1]) < 1e-4 and abs(run["x"][-1] - 0.3) < 1e-3
    plan = LinearMPC(loop, 5)  # the regulator's weights, cost-to-go and first input
    np.testing.assert_allclose(plan(0, leaning), loop.u - loop.K @ f.difference(loop.x, leaning), rtol=1e-6)


def test_the_gain_is_the_limit_of_discounted_problems(stands):
    """Which have a solution: with A and B times 1 - gap the place decays. By scipy alone; the difference is
    of first order in the gap, so that halving that halves it, and what is extrapolated is of second."""
    f, still = stands
    loop = dlqr(f, still, WEIGHTS, 1.0, disregard=["x"])
    A, B = f.linearize(still)
    full = dlqr(f, (still.x, still.u), WEIGHTS, 1.0, disregard=["x"]).Q
    gains = []
    for gap in (2e-4, 1e-4):
        with np.errstate(invalid="ignore"):  # scipy casts scales of its balancing to integers
            P = solve_discrete_are((1 - gap) * A, (1 - gap) * B, full, np.eye(1))
        gains.append(np.linalg.solve(np.eye(1) + B.T @ P @ B, B.T @ P @ A))
    size, away = np.abs(loop.K).max(), [np.abs(K - loop.K).max() for K in gains]
    assert away[0] / away[1] == pytest.approx(2.0, abs=0.1)
    assert np.abs(2 * gains[1] - gains[0] - loop.K).max() < 1e-4 * size < away[1]


def test_regulators_of_the_same_kind(stands):
    f, still = stands
    loop = dlqr(f, still, WEIGHTS, 1.0, disregard="x")
    free = dlqr(f, still, WEIGHTS, 1.0, disregard="x", manifold=True)
    assert free.disregarded == ("x",) and np.abs(free.poles).max() < 0.99
    run = f.rollout(still, steps=3)
    follow = dlqr(f, run, loop.Q, 1.0)
    with pytest.raises(OptimizationError, match="no stabilizing regulator"):
        follow.hold(still)
    np.testing.assert_allclose(follow.hold(still, disregard=["x"]).end.K, loop.K, rtol=1e-9, atol=1e-9)
    with pytest.raises(ValueError, match="disregard: along a trajectory nothing has to settle"):
        dlqr(f, run, WEIGHTS, 1.0, disregard="x")


def linear(A, B, names):
    A, B = np.asarray(A, float), np.asarray(B, float)
    x, u = ca.SX.sym("x", len(A)), ca.SX.sym("u", B.shape[1])
    return CasadiMap(ca.Function("f", [x, u], [ca.DM(A) @ x + ca.DM(B) @ u]), 0.1, state_names=names)


@pytest.fixture(scope="module")
def two_places():
    """Two places that nothing moves, one of which (b) an unstable state feels through its equilibrium."""
    A = [[1, 0, 0], [0, 1, 0], [0.0, 0.2, 1.5]]
    return linear(A, [[0], [0], [1.0]], ("a", "b", "c"))


def test_several_modes_are_told_apart_and_must_all_be_named(two_places):
    f, rest = two_places, (np.zeros(3), np.zeros(1))
    A, B = f.linearize(*rest)
    F, W = unreached_modes(A, B)
    np.testing.assert_allclose(W.T @ A, F @ W.T, atol=1e-15)
    np.testing.assert_allclose(W.T @ B, 0, atol=1e-15)
    assert stuck_modes(A, B, f.state_names) in ("1 (of a), 1 (of b)", "1 (of b), 1 (of a)")
    for names, one in ((["a"], "a"), (["b"], "b")):
        with pytest.raises(OptimizationError, match=f"disregard: {one} names 1 of 2 modes; .*of a.*|.*of b"):
            dlqr(f, rest, 1.0, 1.0, disregard=names)
    loop = dlqr(f, rest, 1.0, 1.0, disregard=["a", "b"])
    # by hand: c = -0.4 b is where it rests with b, and feedback acts on c + 0.4 b
    P = solve_discrete_are([[1.5]], [[1.0]], [[1.0]], [[1.0]])
    k = (1.5 * P / (1 + P))[0, 0]
    np.testing.assert_allclose(loop.K, [[0, 0.4 * k, k]], atol=1e-12)
    np.testing.assert_allclose(loop.poles, [1.5 - k], rtol=1e-12)
    # Q, P and K are those of the Riccati equation of the whole
    np.testing.assert_allclose(loop.Q + A.T @ loop.P @ (A - B @ loop.K), loop.P, atol=1e-12)


@pytest.mark.parametrize(
    "A, B, names, error, message",
    [
        ([[0.9, 0], [0, 1.5]], [[0], [1]], ["a"], ValueError, "nothing to leave out"),
        ([[1, 0], [0, 1.5]], [[0], [1]], ["b"], ValueError, "'b' does not move with what .* 1 \\(of a\\)"),
        (
            [[1.1, 0], [0, 1.5]],
            [[0], [1]],
            ["a"],
            OptimizationError,
            "what is left out grows; .* 1.1 \\(of a\\)",
        ),
        ([[1, 0], [0.1, 1]], [[0], [1]], ["a"], OptimizationError, "left out pushes on what inputs hold"),
        ([[1, 0], [0, 1.5]], [[0], [1]], ["d"], ModelError, "disregard: unknown name 'd'"),
        ([[1, 0], [0, 1.5]], [[0], [1]], ["u.u0"], ValueError, "disregard: 'u.u0' belongs to a step"),
    ],
)
def test_what_cannot_be_disregarded(A, B, names, error, message):
    f = linear(A, B, ("a", "b"))
    with pytest.raises(error, match=message):
        dlqr(f, (np.zeros(2), np.zeros(1)), 1.0, 1.0, disregard=names)


def test_an_oscillation_that_nothing_moves():
    c, s = np.cos(0.3), np.sin(0.3)
    f = linear([[c, -s, 0], [s, c, 0], [0.1, 0, 1.5]], [[0], [0], [1]], ("a", "b", "c"))
    loop = dlqr(f, (np.zeros(3), np.zeros(1)), 1.0, 1.0, disregard=["a", "b"])
    assert len(loop.poles) == 1
    run = loop.rollout([1.0, 0.0, 2.0], 100)
    y = loop.P @ run.x.T  # what is not disregarded
    assert np.abs(y[:, -1]).max() < 1e-9 < np.abs(y[:, 0]).max()
    assert np.abs(run.u[-30:]).max() < 1e-9 < np.abs(run["c"][-30:]).max()
    assert stuck_modes(*f.linearize(np.zeros(3)), f.state_names).count("(of a, b)") == 1


# -- what is said without -------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [ContactVI, MaximalVI])
def test_what_dry_friction_holds_is_said(kind):
    """Q weighs x; a Newton moves it by 1e-9 m a step."""
    f = kind(System(tx("x", mass=2.0), DryFriction("x", 3.0), JointForce("x", "u")), 0.01)
    held = (
        r"hardly move (dx\.)?x, for dry friction holds there \(dry-friction-1\); .* a motion, or of a model"
    )
    with pytest.raises(OptimizationError, match=held):
        dlqr(f, (f.initial_state(), np.zeros(1)), 1.0, 1.0)
    run = f.rollout(f.initial_state({}, {"x": 1.0}), np.zeros((10, 1)))  # it slides
    assert np.abs(dlqr(f, run, 1.0, 1.0).K).max() > 1e-2


@pytest.mark.parametrize("b", [1e-8, 1e-6, 1.0])
def test_a_weak_input_has_the_gain_of_the_riccati_equation(b):
    """x+ = x + b u: K^2 + b K = 1, to as many digits as the pole 1 - b K has."""
    found = dlqr(linear([[1.0]], [[b]], ("x",)), (np.zeros(1), np.zeros(1)), 1.0, 1.0)
    np.testing.assert_allclose(
        found.K, [[(np.sqrt(b * b + 4) - b) / 2]], rtol=1e-12 + 4 * np.finfo(float).eps / b
    )


def test_what_is_not_weighed_is_named():
    """b is a sum that Q does not see, of modes that the input moves."""
    A, B = np.diag([1.0, 0.5]), [[1.0], [1.0]]
    f, rest = linear(A, B, ("a", "b")), (np.zeros(2), np.zeros(1))
    for weights in ({"b": 1.0}, {"b": 1e-9}):
        with pytest.raises(
            OptimizationError, match=r"Q does not penalize the eigenvalues 1 \(of a\) .*; penalize in Q"
        ):
            dlqr(f, rest, weights, 1.0)
    grows = linear(np.diag([1.5, 0.5]), B, ("a", "b"))  # needs no weight
    np.testing.assert_allclose(dlqr(grows, rest, 0.0, 1.0).poles, [0.5, 1 / 1.5], rtol=1e-9)


@pytest.mark.parametrize(
    ("push", "weight", "message"),
    [
        (1e-10, 1.0, "hardly move, or Q, beside R, hardly penalizes a mode of b; add .*, or raise Q there"),
        (1.0, 1e-20, ": Q, beside R, hardly penalizes a mode of b; raise Q there, or lower R"),
        (1e-4, 1e-20, "hardly move, or Q, beside R, hardly penalizes a mode of b; add .*, or raise Q there"),
    ],
)
def test_what_inputs_hardly_move_is_told_from_what_weights_hardly_see(push, weight, message):
    f, rest = linear(np.diag([0.9, 1.0]), [[1.0], [push]], ("a", "b")), (np.zeros(2), np.zeros(1))
    with pytest.raises(OptimizationError, match=message):
        dlqr(f, rest, {"a": 1.0, "b": weight}, 1.0)


def test_what_grows_is_not_offered_to_be_disregarded(two_places):
    f = linear([[1, 0], [0, 1.5]], [[1], [0]], ("a", "b"))
    with pytest.raises(
        OptimizationError, match=r"cannot move the eigenvalues 1.5 \(of b\); add an input"
    ) as told:
        dlqr(f, (np.zeros(2), np.zeros(1)), 1.0, 1.0)
    assert "disregard" not in str(told.value)


@pytest.mark.parametrize("dt", [1e-2, 1e-4, 1e-6])
def test_what_grows_slowly_is_not_disregarded_at_any_step_length(dt):
    """y grows like exp(0.05 t), and no input acts on it."""
    body = tx("x", mass=1.0), ty(1.0)[tx("y", mass=1.0)]
    f = MidpointVI(System(*body, PolynomialSpring("y", (-0.0025,)), JointForce("x", "force")), dt)
    rest = f.initial_state(), np.zeros(1)
    with pytest.raises(OptimizationError, match="what is left out grows"):
        dlqr(f, rest, 1.0, 1.0, disregard=["y", "p.y"])
    with pytest.raises(OptimizationError, match="cannot move the eigenvalues .*; add an input") as told:
        dlqr(f, rest, 1.0, 1.0)
    assert "disregard" not in str(told.value)


def test_poles_of_what_inputs_hardly_move_are_right():
    """Two poles of nearly one length on a cart; the expected numbers are by doubling with 80 digits."""
    poles = ry("left")[tz(0.5, mass=0.2)], ry("right")[tz(0.49999, mass=0.2)]
    f = MidpointVI(System(tx("x", mass=1.0)[poles], Gravity(0, 0, -9.81), JointForce("x", "force")), 0.01)
    upright = equilibrium(f, x=0.0, left=0.0, right=0.0)
    expected = {(1.0, 0.1): 0.989482, (100.0, 0.1): 0.994170, (1e4, 0.1): 0.998137, (1.0, 1e-3): 0.979818}
    for (weight, R), pole in expected.items():
        law = dlqr(f, upright, {"x": 1.0, "left": weight, "right": weight}, R)
        assert np.abs(law.poles).max() == pytest.approx(pole, abs=5e-6)


# -- filters --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def skater():
    """A mass in a plane whose place x and speed in y are measured."""
    f = MidpointVI(
        System(tx("x", mass=1.0)[ty("y", mass=1.0)], JointForce("x", "u"), JointForce("y", "v")), 0.01
    )
    return f, equilibrium(f), Measurement(f, {"x": 1e-6, "v.y": 1e-6})


def test_the_filter_names_what_drifts_and_what_it_drifts_by(skater):
    f, still, _ = skater
    with pytest.raises(OptimizationError, match=r"eigenvalues 1 \(of y\), 1 \(of p\.y\); .*disregard"):
        kalman(f, still, Measurement(f, {"x": 1e-6}), W=1e-6)


def test_the_filter_names_what_sensors_do_not_see(skater):
    f, still, sensors = skater
    assert observability(f, still, ["x", "v.y"]).combinations() == [{"y": 1.0}]
    with pytest.raises(
        OptimizationError, match=r"do not see the eigenvalues 1 \(of y\); .*disregard=\[...\]"
    ):
        kalman(f, still, sensors, W=1e-6)
    for names, message in (
        (["x"], "'x' does not move with what the measurements do not see"),
        (["d"], "'d'"),
    ):
        with pytest.raises((ValueError, ModelError), match=message):
            kalman(f, still, sensors, W=1e-6, disregard=names)
    with pytest.raises(ValueError, match="measurements see every mode"):
        kalman(f, still, Measurement(f, {"x": 1e-6, "y": 1e-6}), W=1e-6, disregard=["y"])
    with pytest.raises(ValueError, match="disregard: along a trajectory"):
        kalman(f, f.rollout(still, steps=3), sensors, W=1e-6, disregard=["y"])


@pytest.mark.parametrize("manifold", [False, True])
def test_a_filter_disregards_what_drifts(skater, manifold):
    """Its gains are the last of the filter along a long rest, whose error in y alone has no end."""
    f, still, sensors = skater
    W = np.diag([1e-6, 2e-6, 3e-6, 4e-6]) + 1e-6 * np.eye(4)[::-1]
    found = kalman(f, still, sensors, W, disregard=["y"], manifold=manifold)
    assert found.disregarded == ("y",) and "disregards y" in repr(found) and np.abs(found.poles).max() < 1
    along = kalman(f, f.rollout(still, steps=3000), sensors, W)
    np.testing.assert_allclose(found.L[0], along.L[-1], rtol=1e-9, atol=1e-9 * np.abs(found.L).max())
    y = f.state_names.index("y")
    for mine, its in ((found.before, along.before), (found.after, along.after)):
        apart = its[-1] - mine[0]
        assert (
            apart[y, y] > 0 and np.abs(np.delete(apart.ravel(), 4 * y + y)).max() < 1e-9 * np.abs(mine).max()
        )
    belief = found.start(still.x)
    for k in range(50):
        nothing = np.array([np.nan, 0.0]) if k == 20 else np.zeros(2)
        belief = found.predict(k, found.correct(k, belief, nothing), np.zeros(2))
    np.testing.assert_allclose(belief.x, still.x, atol=1e-12)
    assert np.linalg.eigvalsh(belief.P)[0] > -1e-12


def test_what_drifts_goes_by_any_name_that_moves():
    """The sum of two slides is measured: their difference drifts, and either tells it."""
    tree = tx("a", mass=2.0)[tx("b", name="tip", mass=1.0)]
    f = MidpointVI(System(tree, JointForce("a", "u"), JointForce("b", "v")), 0.01)
    still, sensors = equilibrium(f), Measurement(f, {"tip:x": 1e-6, "v.a": 1e-6, "v.b": 1e-6})
    with pytest.raises(OptimizationError, match=r"do not see the eigenvalues 1 \(of a - b\)"):
        kalman(f, still, sensors, 1e-6)
    one, other = (kalman(f, still, sensors, 1e-6, disregard=n) for n in ("a", ["b"]))
    np.testing.assert_array_equal(one.L, other.L)
    along = kalman(f, f.rollout(still, steps=3000), sensors, 1e-6)
    np.testing.assert_allclose(one.L[0], along.L[-1], rtol=0, atol=1e-9 * np.abs(one.L).max())


def test_exact_sensors(skater):
    """The limit of small variances, and of all that is measured the measurement itself."""
    f, still, _ = skater
    exact, W = Measurement(f, {"x": 0.0, "y": 0.0}), 1e-6
    found = kalman(f, still, exact, W)
    assert (np.diag(found.after[0])[:2] < 1e-18).all()
    np.testing.assert_allclose(found.L[0, :2], np.eye(2), atol=1e-12)
    nearly = kalman(f, still, Measurement(f, {"x": 1e-18, "y": 1e-18}), W)
    np.testing.assert_allclose(found.L, nearly.L, rtol=1e-9, atol=1e-9)
    whole = Measurement(f, dict.fromkeys(f.state_names, 0.0))
    np.testing.assert_allclose(kalman(f, still, whole, W).L[0], np.eye(4), atol=1e-12)
    # what is known tells nothing new: no division by 0
    run = f.rollout(still, steps=3)
    along = kalman(f, run, exact, W, P0=0.0)
    np.testing.assert_array_equal(along.L[0], 0.0)
    np.testing.assert_allclose(along.L[1, :2], np.eye(2), atol=1e-12)
    extended = ExtendedKalmanFilter(f, exact, W, P0=0.0)
    belief = extended.correct(0, extended.start(still.x), exact(still.x))
    np.testing.assert_array_equal(belief.x, still.x)
    with pytest.raises(ValueError, match="MovingHorizon: x, y has variance 0"):
        MovingHorizon(f, exact, 3, W)
