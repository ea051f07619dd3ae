"""Galerkin integrators: coefficients, orders, what they keep, derivatives, and every way to take a step."""

from functools import cache

import casadi as ca
import numpy as np
import pytest

import vioc
from vioc.compile import find_compiler
from vioc.components import PolynomialSpring
from vioc.control import dlqr, equilibrium, optimize, quadratic

# inside: weights and points of a quadrature against closed forms
from vioc.dynamics.integrators.quadrature import quadrature
from vioc.maps import check_map

EPS = np.finfo(float).eps
RULES = [
    ("gauss", 1),
    ("gauss", 2),
    ("gauss", 3),
    ("gauss", 4),
    ("lobatto", 2),
    ("lobatto", 3),
    ("lobatto", 4),
]


def cart(**more):
    """A driven cart on a spring with two rods, damped where asked."""
    rod = vioc.Mass(0.5, (0.01, 0.01, 1e-4), (0.0, 0.0, -0.2))
    terms = [vioc.JointDamping("first", 0.05)] if more.get("damped") else []
    return vioc.System(
        vioc.tx("x", mass=1.0)[vioc.ry("first", mass=rod)[vioc.tz(-0.4)[vioc.ry("second", mass=rod)]]],
        vioc.Gravity(0, 0, -9.81),
        vioc.TorsionalSpring("x", 20.0),
        vioc.JointForce("x", "force"),
        *terms,
        name="cart",
    )


FEW_STAGES = [pytest.param(p, s, marks=pytest.mark.slow if s == 4 else ()) for p, s in RULES]


@cache
def damped_cart(points, s):
    """A map of the damped cart, built once for all tests."""
    return vioc.GalerkinVI(cart(damped=True), 0.05, stages=s, points=points)


@cache
def carried(**options):
    """A pendulum on a trolley whose place is an input."""
    system = vioc.System(
        vioc.tx(vioc.K("trolley"), mass=1.0)[vioc.ry("theta")[vioc.tz(-1.0, mass=vioc.P("m", 1.0))]],
        vioc.Gravity(0, 0, -9.81),
        vioc.JointDamping("theta", 0.3),
    )
    return vioc.GalerkinVI(system, 0.1, **options)


@pytest.mark.parametrize(("points", "s"), RULES)
def test_coefficients_are_those_of_a_symplectic_rule_of_its_order(points, s):
    rule = quadrature(points, s)
    a, ab, b, c = rule.A, rule.Ab, rule.b, rule.c
    assert np.abs(b[:, None] * ab + (b[:, None] * a).T - np.outer(b, b)).max() <= 10 * EPS  # (GA 3)
    exact = 2 * s if points == "gauss" else 2 * s - 2  # powers below this are integrated exactly
    for k in range(exact):
        assert b @ c**k == pytest.approx(1 / (k + 1), abs=20 * EPS)
    assert abs(b @ c**exact - 1 / (exact + 1)) > 1e-6
    assert c == pytest.approx(1 - c[::-1], abs=10 * EPS)


@pytest.mark.parametrize(("points", "s"), RULES)
def test_orders_with_damping_and_inputs_against_dop853(points, s):
    f = damped_cart(points, s)
    start, inputs, time, truth = true_end()
    x0 = f.initial_state(start)
    steps = np.array({2: [40, 80, 160], 4: [32, 48, 64], 6: [40, 48, 64], 8: [36, 44, 52]}[f.order])
    errors = []
    for n in steps:
        run = f.rollout(x0, np.repeat(inputs, n // 2)[:, None], dt=time / n)
        errors.append(np.abs(run.x[-1, :3] - truth).max())
    slope = -np.polyfit(np.log(steps), np.log(errors), 1)[0]
    assert slope == pytest.approx(f.order, abs=0.2), errors
    assert errors[-1] > 1e-12  # the reference and the solver are not what is seen


def test_one_gauss_point_is_the_midpoint_rule_and_two_of_lobatto_are_verlet():
    system = vioc.System(
        vioc.tx("x", mass=2.0),
        PolynomialSpring("x", (6.0, 0.0, 20.0)),
        vioc.JointForce("x", "force"),
    )
    h, q, p, u = 0.1, 0.7, -0.4, 0.3
    midpoint = vioc.MidpointVI(system, h).step([q, p], [u])
    one = vioc.GalerkinVI(system, h, stages=1).step([q, p], [u])
    assert one == pytest.approx(midpoint, abs=1e-12)

    def force(q):
        return u - (6.0 * q + 20.0 * q**3)

    half = p + h / 2 * force(q)
    after = q + h * half / 2.0
    verlet = after, half + h / 2 * force(after)
    two = vioc.GalerkinVI(system, h, stages=2, points="lobatto").step([q, p], [u])
    assert two == pytest.approx(verlet, abs=1e-12)


@cache
def true_end():
    """Start and end of the damped cart under two inputs, each over half of the time."""
    start, time = [0.0, 1.0, -0.5], 0.8
    inputs, t = np.array([1.0, -2.0]), np.array([0.0, time / 2, time])
    system = cart(damped=True)
    truth = vioc.reference_solution(system, start, None, t, inputs[:, None], rtol=1e-13, atol=1e-13)
    return start, inputs, time, truth.q[-1]


@pytest.mark.parametrize(("points", "s"), FEW_STAGES)
def test_derivatives_are_those_of_the_steps(points, s):
    rng = np.random.default_rng(s)
    for f in (
        damped_cart(points, s),
        carried(stages=s, points=points),
    ):
        x = f.initial_state(dict(zip(f.system.variables, rng.uniform(-1, 1, f.nq), strict=True)))
        x[f.nq :] += 0.3 * rng.standard_normal(f.nx - f.nq)
        u = 0.3 * rng.standard_normal(f.nu)
        lin, z, e = f.linearize(x, u), rng.standard_normal(f.nx), 1e-5

        def along(g, d, e=e):
            """Central differences of fourth order."""
            return (8 * (g(e * d) - g(-e * d)) - (g(2 * e * d) - g(-2 * e * d))) / (12 * e)

        A = np.stack([along(lambda d, f=f, x=x, u=u: f.step(x + d, u), d) for d in np.eye(f.nx)], axis=1)
        B = np.stack([along(lambda d, f=f, x=x, u=u: f.step(x, u + d), d) for d in np.eye(f.nu)], axis=1)
        bound = 1e-12 / e  # what steps are solved to, over the difference
        assert np.abs(lin.A - A).max() <= bound * 10
        assert np.abs(lin.B - B).max() <= bound * 10

        def slope(x, u, f=f, z=z):
            found = f.linearize(x, u)
            return np.concatenate([z @ found.A, z @ found.B, z @ found.P])

        H = f.second_order(x, u, z).matrix
        n = f.nx + f.nu
        by = [along(lambda d, x=x, u=u: slope(x + d[: len(x)], u + d[len(x) :]), d) for d in np.eye(n)]
        assert np.abs(H[:n] - np.stack(by)).max() <= bound * 100
        for name in f.parameters:
            moved = along(lambda d, f=f, x=x, u=u, n=name: f.with_parameters(**{n: 1.0 + d}).step(x, u), 1.0)
            assert np.abs(lin.P[:, 0] - moved).max() <= bound * 10


@pytest.mark.parametrize(("points", "s"), FEW_STAGES)
def test_a_step_is_symplectic_and_undoes_itself(points, s):
    f = vioc.GalerkinVI(cart(), 0.08, stages=s, points=points)
    x, u = np.array([0.1, 1.0, -0.5, 0.2, 0.1, -0.1]), np.array([0.4])
    A, J = f.linearize(x, u).A, np.kron([[0, 1], [-1, 0]], np.eye(3))
    assert np.abs(A.T @ J @ A - J).max() <= 1e-11
    turn = np.repeat([1, -1], 3)  # forwards with the velocities turned is backwards
    assert f.step(f.step(x, u) * turn, u) * turn == pytest.approx(x, abs=1e-11)


def test_momentum_to_rounding_and_energy_in_a_band():
    """A free double rod in the plane: linear and angular momentum; 800 steps."""
    rod = vioc.Mass(1.0, (0.1, 0.1, 0.01), (0.0, 0.0, -0.5))
    system = vioc.System(
        vioc.tx("x")[vioc.tz("z")[vioc.ry("a", mass=rod)[vioc.tz(-1.0)[vioc.ry("b", mass=rod)]]]]
    )
    f = vioc.GalerkinVI(system, 0.05, stages=3)
    x0 = f.initial_state({"b": 1.0}, {"a": 2.0, "b": -5.0})
    x0[[4, 5]] = 0.0  # its centre rests, so that no distance grows
    run = f.rollout(x0, steps=800)
    total = run["p.a"] + run["z"] * run["p.x"] - run["x"] * run["p.z"]
    assert not np.abs(run["p.x"]).max() and not np.abs(run["p.z"]).max()
    # a step leaves 2e-14 (1 + |angle|) sqrt(12) of h V, over h of V, of either sign or of one
    size = 1 + np.abs(run.x[:, 2:4]).max()
    assert np.abs(total - total[0]).max() <= 2e-14 * np.sqrt(12) * size / 0.05 * 800
    energy = np.abs(run.energy / run.energy[0] - 1)
    assert energy.max() <= 1e-3
    assert energy[-300:].max() <= 1.5 * energy[:300].max() + 1e-12


def test_the_protocol():
    for f in (damped_cart("gauss", 3), carried(stages=2)):
        check_map(f)


def test_hard_steps_are_solved_by_newton_and_impossible_ones_say_so():
    f = vioc.GalerkinVI(cart(), 0.05)
    x, u = f.initial_state({"first": 1.0}), np.zeros(1)
    by_newton = f.step_solver.rescued(x, u, 0, 0.0, 0.05)[0]
    assert by_newton == pytest.approx(f.step(x, u), abs=1e-11)
    x[3:] = 1e200
    with pytest.raises(vioc.StepError):
        f.step(x, u)


@pytest.mark.parametrize(("links", "stages", "dt"), [(5, 3, 0.1), (2, 2, 0.15)])
def test_steps_that_newtons_method_solves_are_motions(links, stages, dt):
    """Free links that turn by radians a step: Newton's method has roots there with 10^8 times the energy.

    Steps that do not exist end a run.
    """
    f = vioc.GalerkinVI(vioc.models.load("n_link_pendulum", links), dt, stages=stages)
    rng = np.random.default_rng(1)
    for _ in range(4):
        x = f.initial_state(dict(zip(f.system.variables, rng.uniform(-3, 3, links), strict=True)))
        try:
            run = f.rollout(x, steps=20)
        except vioc.StepError as error:
            assert error.cause == "fold" and 0 < error.length < dt
            run = error.trajectory
        swing = 9.81 * 0.1 * links**2  # J, from all links up to all down
        assert np.ptp(run.energy) <= 1.5 * swing  # long steps are not accurate; a wrong root is far beyond


def test_what_it_has_not_is_refused_by_name():
    with pytest.raises(vioc.ModelError, match="gauss, lobatto"):
        vioc.GalerkinVI(cart(), 0.01, points="radau")
    with pytest.raises(vioc.ModelError, match="2 to 8 of lobatto's points, got 1"):
        vioc.GalerkinVI(cart(), 0.01, stages=1, points="lobatto")
    f = vioc.GalerkinVI(cart(), 0.05)
    cost = quadratic(f, Q=1.0, R=1.0, Qf=1.0)
    with pytest.raises((NotImplementedError, ValueError), match="length|residual"):
        optimize(f, cost, x0=f.initial_state({"x": 0.1}), steps=10, duration=(0.2, 1.0), final={"x": 0.0})


def test_control_runs_on_it_unchanged():
    f = vioc.GalerkinVI(vioc.models.load("cart_pole"), 0.05, stages=2)
    law = dlqr(f, equilibrium(f, theta=0.0), 1.0, 1.0)
    assert np.abs(law.poles).max() < 1
    cost = quadratic(f, Q=0.1, R=0.1, Qf=100.0)
    found = optimize(f, cost, x0=f.initial_state({"theta": 0.5}), steps=40)
    assert found.converged


@pytest.mark.skipif(find_compiler() is None, reason="no C compiler")
@pytest.mark.parametrize(("points", "s"), [("gauss", 1), ("gauss", 3), ("lobatto", 4), ("gauss", 6)])
def test_both_backends_take_the_same_steps(points, s):
    """The compiled one all stages side by side."""
    options = dict(stages=s, points=points)
    rng = np.random.default_rng(s)
    for make in (lambda **o: vioc.GalerkinVI(cart(damped=True), 0.02, **o), lambda **o: carried(**o)):
        virtual, compiled = (make(**options, backend=b) for b in ("virtual", "compiled"))
        x, U = (
            virtual.initial_state([1.0, 0.5, -0.3][: virtual.nq]),
            0.1 * rng.uniform(-1, 1, (50, virtual.nu)),
        )
        run = virtual.rollout(x, U).x
        bound = virtual.tolerance * (1 + np.abs(run).max())  # with which steps are taken
        assert (
            np.abs(compiled.rollout(x, U[:3]).x - run[:4]).max() <= bound / 10
        )  # errors of steps grow later
        assert np.abs(compiled.steps_at(run[:-1], U).x1 - run[1:]).max() <= bound


@pytest.mark.parametrize(
    "backend",
    [
        "virtual",
        pytest.param("compiled", marks=pytest.mark.skipif(find_compiler() is None, reason="no C compiler")),
    ],
)
def test_a_step_is_iterated_as_far_as_its_tolerance(backend):
    system = vioc.models.load("n_link_pendulum", 3)
    ends = {}
    for tolerance in (1e-11, 1e-4):  # of one system: they have kernels of their own
        f = vioc.GalerkinVI(system, 0.1, stages=3, tolerance=tolerance, backend=backend)
        ends[tolerance] = f.rollout(f.initial_state([1.0, 0.2, -0.1]), steps=5).x[-1]
    off = np.abs(ends[1e-4] - ends[1e-11]).max()
    assert 1e-13 < off <= 5 * 1e-4 * (1 + np.abs(ends[1e-11]).max())  # the tolerance of each of five steps


@pytest.mark.skipif(find_compiler() is None, reason="no C compiler")
def test_forces_without_a_form_in_vectors_run_all_the_same():
    system = vioc.System(
        vioc.rx("a", mass=vioc.Mass(1.0, (1.0, 1.0, 1.0))),
        vioc.UserPotential(lambda g: g.q("a") * ca.erf(g.q("a"))),
    )
    runs = []
    for backend in ("virtual", "compiled"):
        f = vioc.GalerkinVI(system, 0.1, backend=backend)
        runs.append(f.rollout(f.initial_state({"a": 0.5}), steps=20).x)
    assert f._source(False) is None
    assert np.abs(runs[0] - runs[1]).max() <= 1e-12
