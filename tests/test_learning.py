"""Maps as operators of JAX and PyTorch, checked by their own tools to second order."""

from types import SimpleNamespace

import casadi as ca
import numpy as np
import pytest

import vioc
from vioc import Contact, ContactVI, Gravity, GroupVI, JointForce, JointLimits, Mass, P, System

# inside: the functions beneath JAX and PyTorch, which need neither package
from vioc.learning import ambient
from vioc.learning.solved import Solved, autonomous, check_framework_map, solve

DT = 0.01


def pendulum():
    f = vioc.MidpointVI(vioc.models.load("pendulum"), DT)
    return f, f.state({"theta": 0.7, "p.theta": 0.3}), np.array([0.4])


def closed_chain():
    f = vioc.MidpointVI(vioc.models.load("closed_chain"), DT)
    guess = {"J": 0.3, "H": -0.3, "M": 0.2}
    start = f.initial_state(vioc.consistent_configuration(f.system, guess))
    return f, f.rollout(start, steps=20).x[-1], np.zeros(0)


def leg():
    """Planar, a sphere for a foot on the ground and a stop at its knee; parameters, too."""
    shank = vioc.tz(-0.4)[
        vioc.ry("knee", mass=Mass.rod(0.5, 0.4, com=(0, 0, -0.2)))[vioc.tz(-0.4, name="foot")]
    ]
    thigh = vioc.ry("hip", mass=Mass.rod(P("thigh", 0.5), 0.4, com=(0, 0, -0.2)))[shank]
    trunk = vioc.tx("x", name="cart", mass=Mass(0.1))[vioc.tz("z", name="trunk", mass=Mass(2.0))[thigh]]
    sole = Contact.sphere("foot", 0.05, friction=P("mu", 0.8), name="sole")
    motors = JointForce("hip", "hip"), JointForce("knee", "knee")
    stop = JointLimits("knee", 0.1, 2.5, name="stop")
    system = System(trunk, Gravity(0, 0, -9.81), sole, stop, *motors, name="leg")
    f = ContactVI(system, DT, smoothing=1e-2)
    start = f.initial_state({"z": 0.82, "hip": -0.3, "knee": 0.6}, {"z": -0.2})
    run = f.rollout(start, np.full((10, 2), 0.1))
    assert run["force.sole"][-1] > 1.0  # it stands on it
    return f, run.x[-1], np.array([0.2, -0.1])


def maximal():
    """Two links in maximal coordinates, the lower one's ball on the ground with friction, and a torque."""
    link = Mass(1.0, (0.02, 0.02, 0.01), (0, 0, -0.2))
    lower = vioc.ry("b", name="lower", mass=link)[vioc.tz(-0.4, name="tip")]
    arm = vioc.tz(0.8)[vioc.ry("a", name="upper", mass=link)[vioc.tz(-0.4)[lower]]]
    ball = Contact.sphere("tip", 0.05, friction=0.5, name="ball")
    system = System(arm, Gravity(0, 0, -9.81), ball, JointForce("b", "elbow"), name="arm")
    f = vioc.MaximalVI(system, DT, smoothing=1e-2)
    run = f.rollout(f.initial_state({"a": 0.5, "b": -0.6}), np.full((10, 1), 0.2))
    assert run["force.ball"][-1] > 1.0  # it stands on it
    return f, run.x[-1], np.array([0.2])


def spinning():
    """A free body as a unit quaternion."""
    f = GroupVI(System(vioc.free("b", frame="body", mass=(1.0, 1.0, 2.0, 2.5))), DT)
    return f, f.rollout(f.initial_state(v={"b-ry": 3.0, "b-rx": 0.2}), steps=20).x[-1], np.zeros(0)


CASES = [pendulum, closed_chain, leg, maximal, spinning]


@pytest.mark.parametrize("make", CASES)
def test_steps_of_many_states_and_parameters_are_the_maps(make):
    f, x, u = make()
    assert autonomous(f)
    rng = np.random.default_rng(0)
    X, U = np.tile(x, (4, 1)), u + 0.1 * rng.standard_normal((4, f.nu))
    theta = np.tile(f.theta, (4, 1))
    theta[1::2] *= 1.1
    solved = solve(f, X, U, theta, np.zeros(4, int), True)
    W = rng.standard_normal((4, f.nx + len(f.multiplier_names)))
    contracted = np.einsum("ni,nijk->njk", W, solved.tensors)
    for i in range(4):
        own = f.with_parameters(**dict(zip(f.parameters, theta[i], strict=True))) if len(f.theta) else f
        run, lin = own.rollout(X[i], U[i : i + 1]), own.linearize(X[i], U[i])
        np.testing.assert_allclose(solved.values[i], np.r_[run.x[1], run.multipliers[0]], atol=1e-9)
        J = np.block([[lin.A, lin.B, lin.P], [lin.C, lin.D, lin.E]])
        found = solved.jacobians[i]
        if f.space.quaternions:  # in errors again
            found = np.vstack([ambient.inward(f, run.x[1:])[0] @ found[: f.nx], found[f.nx :]])
            found = np.hstack([found[:, : f.nx] @ ambient.outward(f, X[i : i + 1])[0], found[:, f.nx :]])
        np.testing.assert_allclose(found, J, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(
        solved.hessians(W), contracted, rtol=1e-9, atol=1e-9 * np.abs(contracted).max()
    )


@pytest.mark.parametrize("make", [maximal, spinning])
def test_states_with_quaternions_are_differentiated_by_all_their_entries(make):
    """Quaternions that are no units, against differences: of values first, of first derivatives then."""
    f, x, u = make()
    for i in f.space.quaternions:
        x[i : i + 4] *= 1.3
    at, n = np.r_[x, u], f.nx
    w = np.random.default_rng(3).standard_normal((1, n + len(f.multiplier_names)))

    def solved(*rows):
        rows = np.array(rows)
        return solve(f, rows[:, :n], rows[:, n:], np.zeros((len(rows), 0)), np.zeros(len(rows), int), True)

    one, size = solved(at), 1e-6  # curvature times size^2, and what steps leave over size
    np.testing.assert_allclose(f.difference(one.parts[0][2].x0, x[None]), 0.0, atol=1e-15)
    ends = solved(*(at + size * np.eye(len(at))), *(at - size * np.eye(len(at))))
    first, second = (
        np.split(a, 2)
        for a in (ends.values, np.einsum("ni,nij->nj", w.repeat(2 * len(at), 0), ends.jacobians))
    )
    near = (first[0] - first[1]).T / (2 * size)
    J, H = one.jacobians[0], one.hessians(w)[0]
    np.testing.assert_allclose(J, near, atol=1e-6 * (1 + np.abs(J).max()))
    np.testing.assert_allclose(H, (second[0] - second[1]) / (2 * size), atol=1e-6 * (1 + np.abs(H).max()))
    for i in f.space.quaternions:  # nothing changes along them
        np.testing.assert_allclose(J[:, i : i + 4] @ x[i : i + 4], 0.0, atol=1e-12 * (1 + np.abs(J).max()))


@pytest.mark.peer
@pytest.mark.parametrize("make", CASES)
def test_jax_checks_both_orders(make):
    jax = pytest.importorskip("jax")
    jax.config.update("jax_enable_x64", True)
    from jax.test_util import check_grads

    from vioc.learning.jax import step

    f, x, u = make()
    both = step(f, multipliers=True)
    args = [jax.numpy.array(a) for a in (x, u, f.theta)]
    check_grads(both, args, order=2, modes=("fwd", "rev"), atol=1e-4, rtol=1e-4, eps=1e-5)
    many = jax.vmap(both, in_axes=(0, None, None))(args[0] + np.zeros((3, 1)), *args[1:])
    run = f.rollout(x, u[None])
    np.testing.assert_allclose(many[0], np.tile(run.x[1], (3, 1)), atol=1e-9)


@pytest.mark.peer
@pytest.mark.filterwarnings("ignore::DeprecationWarning:torch")
@pytest.mark.parametrize("make", CASES)
def test_torch_checks_both_orders(make):
    torch = pytest.importorskip("torch")
    from vioc.learning.torch import step

    f, x, u = make()
    both = step(f, multipliers=True)
    args = tuple(torch.tensor(np.tile(a, (2, 1)), requires_grad=True) for a in (x, u, f.theta))
    assert torch.autograd.gradcheck(both, args, eps=1e-6, atol=1e-4, rtol=1e-4, check_forward_ad=True)
    assert torch.autograd.gradgradcheck(both, args, eps=1e-6, atol=1e-5, rtol=1e-4)


@pytest.mark.peer
@pytest.mark.filterwarnings("ignore::DeprecationWarning:torch")
def test_torch_mixes_modes_and_refuses_third_derivatives():
    """Forwards over backwards and backwards over forwards; a third derivative is never a wrong number."""
    torch = pytest.importorskip("torch")
    from torch.autograd import forward_ad

    from vioc.learning.torch import step

    f, x, u = leg()
    one, rng = step(f), np.random.default_rng(1)
    v, z = (torch.tensor(rng.standard_normal(f.nx)) for _ in range(2))
    s, w = torch.tensor(x, requires_grad=True), torch.tensor(u)
    expected = f.second_order(x, u, z.numpy()).xx @ v.numpy()
    tolerance = {"rtol": 1e-9, "atol": 1e-9 * np.abs(expected).max()}
    with forward_ad.dual_level():
        moved = forward_ad.unpack_dual(one(forward_ad.make_dual(s, v), w)).tangent
        np.testing.assert_allclose(torch.autograd.grad((z * moved).sum(), s)[0], expected, **tolerance)
        dual = forward_ad.make_dual(s, v)
        (slope,) = torch.autograd.grad((z * one(dual, w)).sum(), dual, create_graph=True)
        curved = forward_ad.unpack_dual(slope).tangent
        np.testing.assert_allclose(curved.detach(), expected, **tolerance)
        with pytest.raises(RuntimeError, match="no third ones"):
            torch.autograd.grad(curved.sum(), s)
    (slope,) = torch.autograd.grad((z * one(s, w)).sum(), s, create_graph=True)
    (curved,) = torch.autograd.grad((v * slope).sum(), s, create_graph=True)
    np.testing.assert_allclose(curved.detach(), expected, **tolerance)
    with pytest.raises(RuntimeError, match="no third ones"):
        torch.autograd.grad(curved.sum() + s.sum(), s)
    with pytest.raises(TypeError, match="float64"):
        one(s.float(), w)


def driven():
    """A map that knows the time: its force grows with it."""
    x, u, t, dt, gain = (ca.SX.sym(n, m) for n, m in (("x", 2), ("u", 1), ("t", 1), ("dt", 1), ("gain", 1)))
    force = u - gain * ca.sin(x[0]) * (1 + t)
    step = ca.Function("f", [x, u, t, dt, gain], [x + dt * ca.vertcat(x[1], force)])
    return vioc.CasadiMap(step, 0.1, parameters={"gain": 2.0}), np.array([0.3, -0.2]), np.array([0.4])


def test_steps_of_maps_that_know_the_time_are_taken_at_their_own():
    f, x, u = driven()
    assert not autonomous(f)
    k = np.array([0, 7, 3, 7])
    rows = np.tile(x, (4, 1)), np.tile(u, (4, 1)), np.array([[2.0], [2.0], [2.5], [2.0]])
    solved = solve(f, *rows, k, False)
    for i, number in enumerate(k):
        own = f.with_parameters(gain=rows[2][i, 0])
        np.testing.assert_array_equal(solved.values[i], own.step(x, u, int(number)))
        lin = own.linearize(x, u, int(number))
        np.testing.assert_allclose(solved.jacobians[i], np.hstack([lin.A, lin.B, lin.P]), atol=1e-14)


def test_what_cannot_be_said_is_refused():
    f, x, u = pendulum()
    with pytest.raises(ValueError, match="state: expected finite numbers.*row 0"):
        solve(f, [x * np.nan], [u], np.zeros((1, 0)), [0], True)
    g, x, u = spinning()
    x[g.space.quaternions[0] :][:4] = 0.0
    with pytest.raises(ValueError, match="quaternions with a direction.*row 0"):
        solve(g, [x], [u], np.zeros((1, 0)), [0], True)
    with pytest.raises(ValueError, match="neither differences of states"):
        check_framework_map(SimpleNamespace(nx=7, ndx=6, space=SimpleNamespace(quaternions=())))


@pytest.mark.peer
def test_a_step_of_jax_computes_no_derivatives(monkeypatch):
    """They cost ten times the step; a Jacobian needs no Hessians."""
    jax = pytest.importorskip("jax")
    jax.config.update("jax_enable_x64", True)
    from vioc.learning.jax import step

    f, x, u = pendulum()
    read = []
    for name in ("jacobians", "tensors"):
        whole = getattr(Solved, name).fget
        told = property(lambda solved, name=name, whole=whole: (read.append(name), whole(solved))[1])
        monkeypatch.setattr(Solved, name, told)
    one = step(f)
    np.testing.assert_allclose(one(x, u), f.step(x, u), atol=1e-14)
    assert read == []
    jax.jacrev(one)(x, u)
    assert set(read) == {"jacobians"}


@pytest.mark.peer
def test_jax_knows_steps_by_number_under_scan_and_vmap():
    jax = pytest.importorskip("jax")
    jax.config.update("jax_enable_x64", True)
    from vioc.learning.jax import step

    f, x, u = driven()
    one, rng = step(f), np.random.default_rng(2)
    U = rng.standard_normal((6, 1))

    def end(x0):
        return jax.lax.scan(lambda x, given: (one(x, *given[:1], k=given[1]),) * 2, x0, (U, np.arange(6)))[0]

    run = f.rollout(x, U)
    np.testing.assert_allclose(jax.jit(end)(x), run.x[-1], atol=1e-14)
    A = np.linalg.multi_dot(f.linearize_trajectory(run).A[::-1])
    for mode in (jax.jacfwd, jax.jacrev):
        np.testing.assert_allclose(jax.jit(mode(end))(x), A, atol=1e-13)
    Z = np.ones(2)  # twice through all steps, in every order of modes
    curved = [two(lambda x: end(x) @ Z)(x) for two in (jax.hessian, lambda g: jax.jacrev(jax.jacfwd(g)))]
    size = 1e-5
    near = [
        (jax.jacrev(end)(x + e).T @ Z - jax.jacrev(end)(x - e).T @ Z) / (2 * size) for e in size * np.eye(2)
    ]
    for H in curved:
        np.testing.assert_allclose(H, near, atol=1e-8)
    with pytest.raises(NotImplementedError, match="no third ones"):
        jax.jacfwd(jax.jacfwd(jax.jacfwd(one)))(x, u)
    with pytest.raises(ValueError, match=r"state: expected shape \(2,\)"):
        one(x[:1], u)


# -- environments ---------------------------------------------------------------------------------------


@pytest.fixture
def environments():
    pytest.importorskip("gymnasium")
    import vioc.learning.gymnasium as environments

    return environments


SPACES = "ignore:.*(Box action spaces|Box observation space).*"


@pytest.mark.peer
@pytest.mark.filterwarnings(SPACES)
@pytest.mark.parametrize("name", ["Pendulum", "CartPole", "Acrobot"])
def test_gymnasium_checks_every_model(environments, name):
    import gymnasium
    from gymnasium.utils.env_checker import check_env

    assert name in environments.MODELS and len(environments.MODELS) == 3
    check_env(gymnasium.make(f"vioc/{name}-v0").unwrapped)
    many = gymnasium.make_vec(f"vioc/{name}-v0", num_envs=3)
    many.reset(seed=4)
    actions = many.action_space.sample()
    observations, rewards, *_ = many.step(actions)
    assert np.isfinite(observations).all() and (rewards < 0).all()
    alone = gymnasium.make(f"vioc/{name}-v0")
    alone.reset(seed=5)  # Gymnasium seeds environment i with seed + i
    observation, reward, *_ = alone.step(actions[1])
    np.testing.assert_array_equal(observation, observations[1])
    assert reward == rewards[1]


@pytest.mark.peer
@pytest.mark.filterwarnings(SPACES)
def test_a_regulator_is_a_policy_and_the_return_is_the_cost(environments):
    import gymnasium

    env = gymnasium.make("vioc/CartPole-v0")
    f, own = env.unwrapped.map, env.unwrapped
    upright = vioc.control.equilibrium(f, theta=0.0)
    act = environments.policy(vioc.control.dlqr(f, upright, {"x": 10, "theta": 10}, 0.1), 12.0)
    x, _ = env.reset(seed=3)
    total, truncated = 0.0, False
    while not truncated:
        x, reward, terminated, truncated, info = env.step(act(x))
        total += reward
        assert not terminated and not info["clipped"]
    assert np.abs(x).max() < 1e-2
    assert total == pytest.approx(-own.cost.value(own.trajectory()), rel=1e-12)
    with pytest.raises(RuntimeError, match="is over"):
        own.step(act(x))
    named = environments.Environment(f, own.cost, own.start, steps=3, bounds={"force": 12.0})
    assert named.action_space == own.action_space


@pytest.mark.peer
@pytest.mark.filterwarnings(SPACES)
def test_an_optimum_is_expert_data(environments):
    import gymnasium

    env = gymnasium.make("vioc/Pendulum-v0")
    own = env.unwrapped
    f, n = own.map, own.steps
    guess = vioc.control.straight_line(own.start, f.state(theta=np.pi), n), np.zeros((n, 1))
    best = vioc.control.optimize(f, own.cost, guess, bounds={"torque": (-6.0, 6.0)})
    data = environments.expert(env, best)
    assert data.rewards.sum() == pytest.approx(-best.cost, rel=1e-6)
    assert data.truncations[-1] and not data.terminals.any()
    np.testing.assert_array_equal(data.next_observations[:-1], data.observations[1:])
    with pytest.raises(ValueError, match="beyond the environment's bounds"):
        environments.expert(env, f.rollout(own.start, np.full((3, 1), 7.0)))


@pytest.mark.peer
@pytest.mark.filterwarnings(SPACES)
def test_a_step_without_solution_ends_the_episode_and_says_why(environments):
    f = vioc.MidpointVI(vioc.models.load("cart_pole"), 0.02)
    cost = vioc.control.quadratic(f, Q=1.0, R=1.0)
    env = environments.Environment(f, cost, f.state(), steps=5, bounds=1e300, failure=7.0)
    env.reset()
    x, reward, terminated, truncated, info = env.step([1e200])
    assert terminated and not truncated and reward == -7.0 and np.isfinite(x).all()
    assert "step 0" in info["error"]


def carried_chain():
    """The closed chain on a base that an input moves, with a mass for a parameter."""
    chain = vioc.models.load("closed_chain")
    body = vioc.ry("hang", mass=Mass(P("m", 0.4), (0.01, 0.01, 0.01), (0, 0, -0.3)))
    frames = vioc.tx(vioc.K("base"))[body]
    force = JointForce("hang", "hang")
    return chain, System(frames, Gravity(0, 0, -9.81), force, vioc.JointDamping("hang", 0.1), name="hanging")


@pytest.mark.parametrize("kind", ["tree", "loop", "moved base"])
@pytest.mark.parametrize("place", ["cpu", pytest.param("gpu", marks=pytest.mark.device)])
def test_rollouts_of_jax_are_those_of_the_map(kind, place):
    jax = pytest.importorskip("jax")
    jax.config.update("jax_enable_x64", True)
    from vioc.learning.jax import rollouts

    try:
        device = jax.devices(place)[0]
    except RuntimeError:
        pytest.skip(f"JAX has no {place} here")
    rng, (chain, hanging), theta = np.random.default_rng(0), carried_chain(), None
    if kind == "tree":
        f = vioc.MidpointVI(vioc.models.load("n_link_pendulum", 3), DT)
        x0 = f.initial_state([0.8, 0.1, -0.2]) + 0.1 * rng.standard_normal((5, f.nx))
    elif kind == "loop":
        f = vioc.MidpointVI(chain, DT)
        x0 = np.tile(closed_chain()[1], (5, 1))
    else:
        f, theta = vioc.MidpointVI(hanging, DT), rng.uniform(0.3, 0.6, (5, 1))
        x0 = np.array([f.initial_state({"hang": a, "base": 0.1}) for a in rng.uniform(-1, 1, 5)])
    U = 0.2 * rng.standard_normal((5, 20, f.nu))
    if kind == "moved base":
        U[..., -1] = 0.1 + 0.05 * np.arange(1, 21) * DT
    with jax.default_device(device):
        found = np.array(rollouts(f)(x0, U, theta, k0=3))
    given = {} if theta is None else {"parameters": {"m": theta[:, 0]}}
    truth = f.rollouts(x0, U, k0=3, **given).x
    # steps to the solver's tolerance; motions of 0.2 s amplify no error a hundredfold
    assert np.abs(found - truth).max() <= 100 * 20 * f.tolerance


def test_rollouts_of_jax_say_what_they_cannot_do():
    jax = pytest.importorskip("jax")
    jax.config.update("jax_enable_x64", True)
    from vioc.learning.jax import rollouts

    f = vioc.MidpointVI(vioc.models.load("pendulum"), 0.7)
    run = rollouts(f)
    x0, U = np.array([[0.1, 0.0], [1.5, 5.0]]), np.zeros((2, 3, 1))
    with pytest.raises(vioc.StepError):
        f.rollout(x0[1], U[1])
    X = np.array(run(x0, U))
    assert np.isfinite(X[0]).all() and np.isnan(X[1, 1:]).all()  # what has no solution is no number
    with pytest.raises(ValueError, match=r"x0: expected shape \(samples, 2\), got \(2,\)"):
        run(x0[0], U)
    with pytest.raises(ValueError, match=r"U: expected shape \(2, steps, 1\), got \(3, 1\)"):
        run(x0, U[0])
    with pytest.raises(ValueError, match=r"theta: expected shape"):
        run(x0, U, np.zeros((3, 1)))
    for f in (
        vioc.GalerkinVI(vioc.models.load("pendulum"), DT),
        leg()[0],
    ):  # it would fall through the ground
        told = f"expected a MidpointVI or a DiscreteLagrangianVI, got {type(f).__name__}"
        with pytest.raises(ValueError, match=told):
            rollouts(f)
