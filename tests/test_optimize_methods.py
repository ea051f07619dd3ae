"""`optimize` by its methods: one statement, one result; what a method does not take is refused by name."""

import pickle
from functools import cache

import casadi as ca
import numpy as np
import pytest
from support.control_maps import double_integrator
from support.mechanisms import pendulum

import vioc
from vioc import GroupVI
from vioc.control import Cost, Problem, Result, dmoc, feedback, optimize, quadratic
from vioc.control.dmoc import PathConstraint
from vioc.errors import ModelError, OptimizationError, StepError

N = 30
METHODS = "shooting", "projection", "dmoc"


@cache
def cart(dt):
    """The map of the cart-pole, built once for all tests."""
    return vioc.MidpointVI(vioc.models.load("cart_pole"), dt)


@pytest.fixture(scope="module")
def swing():
    f = vioc.MidpointVI(pendulum(), 0.05)
    return f, quadratic(f, Q=1, R=0.1, Qf=20, goal={"theta": 1.0})


def test_all_find_the_same_and_read_the_same(swing):
    f, cost = swing
    found = {m: optimize(f, cost, x0=[0, 0], steps=N, method=m) for m in METHODS}
    found["multiple shooting"] = optimize(f, cost, (np.zeros((N + 1, 2)), None))  # how "auto" begins there
    assert found["multiple shooting"].history.method[0].startswith("ms ")
    for name, best in found.items():
        # projection stops where 1e-6 is promised, the others later
        assert best.converged and best.cost == pytest.approx(found["shooting"].cost, abs=1e-6), name
        assert best.message.startswith("converged after") and best.feasible
        assert best.gains.shape == (N, 1, 2) and len(best.history.cost) >= best.iterations
        np.testing.assert_array_equal(best.x, f.rollout([0, 0], best.u).x)
        assert cost.value(best.trajectory) == pytest.approx(best.cost, rel=1e-12)
        assert best.multipliers == {} and best.margin == np.inf
        away = best.stabilize(1.0, 0.1).rollout(best.x[0] + [0.1, 0.0])
        assert np.abs(away.x[-1] - best.x[-1]).max() < 0.05
    assert set(found["dmoc"].history.method) == {"ipopt"}


def test_limits_have_the_same_names_and_multipliers():
    """Of a convex problem the multipliers are unique: those of both methods, to their tolerances."""
    f = double_integrator()
    problem = dict(
        x0=[1.0, 0.0],
        steps=N,
        bounds={"u.force": 0.8, "v": (-0.5, None)},
        constraints=PathConstraint("near", f.quantity("x") + f.quantity("v"), -0.1, None),
        final={"x": 0.05},
    )
    cost = quadratic(f, Q=1.0, R=0.1)
    mine, theirs = (optimize(f, cost, **problem, method=m) for m in ("shooting", "dmoc"))
    assert theirs.cost == pytest.approx(mine.cost, rel=1e-7)
    assert mine.multipliers.keys() == theirs.multipliers.keys() == {"u.force", "v", "near", "final x"}
    for name, values in mine.multipliers.items():
        np.testing.assert_allclose(theirs.multipliers[name], values, atol=1e-5, err_msg=name)
    assert min(np.abs(v).max() for v in mine.multipliers.values()) > 1e-3  # each is active somewhere
    assert theirs.margin == pytest.approx(mine.margin, abs=1e-6)
    warm = optimize(f, cost, theirs, **{**problem, "x0": None})  # multipliers and all
    assert warm.iterations < mine.iterations


def test_what_no_motion_keeps_is_named():
    f = double_integrator()
    limits = dict(bounds={"u.force": 0.1}, final=[0.0, 0.0])
    for method in ("shooting", "dmoc"):
        with pytest.raises(OptimizationError, match="Violated: ") as caught:
            optimize(f, quadratic(f, R=1.0), x0=[1, 0], steps=10, method=method, **limits)
        best = caught.value.result
        assert best.status == "infeasible" and not best.feasible and best.curve is not None


def test_only_dmoc_states_rates_and_durations(swing):
    f, cost = swing
    best = optimize(f, cost, x0=[0, 0], steps=N, rate={"torque": 2.0})
    rate = np.diff(best.u[:, 0]) / f.dt
    assert set(best.history.method) == {"ipopt"} and np.abs(rate).max() == pytest.approx(2.0, abs=1e-6)
    assert np.abs(best.multipliers["rate.torque"]).max() > 1e-3
    free = optimize(f, cost, x0=[0, 0], steps=N, method="dmoc", duration=(0.5, 3.0))
    assert free.t[-1] != pytest.approx(N * f.dt) and cost.value(free) == pytest.approx(free.cost, rel=1e-9)
    half = optimize(f, cost, x0=[0, 0], steps=N, method="dmoc", dt=f.dt / 2)
    assert half.t[-1] == pytest.approx(N * f.dt / 2)
    fatrop = optimize(f, cost, x0=[0, 0], steps=N, solver="fatrop")
    assert fatrop.cost == pytest.approx(optimize(f, cost, x0=[0, 0], steps=N, method="dmoc").cost, rel=1e-8)
    assert len(fatrop.history.cost) == 0  # it does not tell


def test_a_direction_is_of_the_projection(swing):
    f, cost = swing
    for direction in ("newton", "gauss-newton", "steepest"):
        start = dict(x0=[0, 0], steps=10, max_iterations=3, direction=direction, raise_on_failure=False)
        a, b = (optimize(f, cost, method=method, **start) for method in ("auto", "projection"))
        np.testing.assert_array_equal(a.u, b.u)
        assert a.history.method[0] == direction


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            dict(method="projection", final=[0, 0]),
            "final: method 'projection' takes none; .* 'shooting', 'dmoc'",
        ),
        (dict(method="projection", bounds={"theta": 1.0}), "bounds: method 'projection' takes none"),
        (
            dict(method="projection", multipliers={"theta": [1.0]}),
            "multipliers: .*those that do are 'shooting'",
        ),
        (dict(method="shooting", direction="newton"), "direction: method 'shooting' takes none"),
        (dict(method="shooting", rate={"torque": 1.0}), "rate: .*those that do are 'dmoc'"),
        (dict(rate={"torque": 1.0}, warmup=2), "takes none"),
        (dict(method="dmoc", armijo=(1e-4, 0.5, 9)), "armijo: .*'projection'"),
        (dict(method="dmoc", dt=np.linspace(0.05, 0.06, N)), "steps of DMOC are equal"),
        (
            dict(direction="ilqr"),
            "direction: expected one of 'newton', 'gauss-newton', 'steepest', got 'ilqr'",
        ),
        (dict(method="steepest"), "expected one of .*'dmoc', got 'steepest'; .*direction='steepest'"),
        (dict(method="sqp"), "method: expected one of 'auto', 'shooting', 'projection'"),
        (dict(warm_up=2), "unknown option 'warm_up'; did you mean 'warmup'"),
    ],
)
def test_what_a_method_does_not_take_is_refused_by_name(swing, options, message):
    f, cost = swing
    with pytest.raises((ValueError, TypeError), match=message):
        optimize(f, cost, x0=[0, 0], steps=N, **options)


def test_an_unstable_motion_is_followed():
    """x+ = 3x + u over 40 steps: the samples' inputs alone lead nowhere, what follows them is a rollout."""
    x, u = ca.SX.sym("x"), ca.SX.sym("u")
    f = vioc.CasadiMap(ca.Function("f", [x, u], [3 * x + u + 0.1 * x**2]), 0.1)
    cost = Cost(f, (f.symbols.x - 1) ** 2 + 1e-2 * f.symbols.u**2)
    best = optimize(f, cost, x0=[1.0], steps=40, method="dmoc")
    assert best.converged and best.open_loop_gap < 1e-6
    with pytest.raises(StepError):
        f.rollout(best.x[0], best.u + 1e-8)  # 3^40 = 1e19
    follow = best.stabilize(1.0, 1.0).rollout(best.x[0])
    assert np.abs(follow.x - best.x).max() < 1e-6


@cache
def four_bar(coupler=1.0):
    """The map of a crank, a coupler and a rocker, driven at the crank."""

    def bar(length, mass):
        return vioc.tx(length / 2, mass=vioc.Mass.rod(mass, 1.0, axis=(1, 0, 0)))

    end = vioc.tx(coupler, name="end", mass=vioc.Mass(0.5, (0.01,) * 3))
    crank = vioc.ry("crank")[bar(0.4, 0.2), vioc.tx(0.4)[vioc.ry("coupler")[end]]]
    rocker = vioc.tx(1.0)[vioc.ry("rocker")[bar(0.8, 0.3), vioc.tx(0.8, name="tip")]]
    drive = vioc.Gravity(0, 0, -9.81), vioc.JointForce("crank", "torque")
    pin = vioc.coincident("end", "tip", "xz", name="pin")
    return vioc.MidpointVI(vioc.System(crank, rocker, *drive, pin), 0.02)


def test_a_given_start_of_a_loop_holds_with_a_free_length():
    """Else the loop closes with another length in the first step, by a jump."""
    f = four_bar(vioc.P("length", 1.0))
    q = vioc.consistent_configuration(f.system, {"crank": -1.7, "coupler": 1.3, "rocker": -1.7})
    u, crank, rate = f.symbols.u[0], f.quantity("crank"), f.quantity("v.crank")
    cost = Cost(f, 0.5 * u**2, 20 * (crank + 1.6) ** 2 + 5 * rate**2)
    found = optimize(f, cost, x0=f.initial_state(q), steps=12, parameters={"length": (0.9, 1.15)})
    assert found.converged
    assert max(np.abs(found[f"h.pin-{axis}"]).max() for axis in "xz") <= 1e-9
    assert found.map.parameters["length"] == pytest.approx(1.0, abs=1e-8)


@pytest.mark.parametrize("method", ["shooting", "dmoc"])
def test_a_whole_state_of_a_loop_is_an_end(method):
    """Its momentum across constraints is what the last step's impulses leave, and no condition."""
    f = four_bar()
    start, guess = -1.7, {"coupler": 1.3, "rocker": -1.7}
    first, last = (
        f.initial_state(vioc.consistent_configuration(f.system, {"crank": a, **guess}, fixed="crank"))
        for a in (start, start + 0.2)
    )
    found = optimize(f, quadratic(f, R=1.0), x0=first, steps=30, final=last, method=method)
    assert found.converged
    assert found.x[-1, :3] == pytest.approx(last[:3], abs=1e-8)
    assert found["v.crank"][-1] == pytest.approx(0.0, abs=1e-7)


@pytest.mark.parametrize("method", METHODS)
def test_forces_act_when_the_guess_is(method):
    """A guess from step 8 on: the optimum is of these times."""
    gust = vioc.UserForce(lambda k: {"x": 3 * ca.sin(4 * k.t)}, ())
    f = vioc.MidpointVI(vioc.System(vioc.tx("x", mass=1.0), vioc.JointForce("x", "force"), gust), 0.05)
    cost = quadratic(f, Q={"x": 4}, R=0.2, Qf={"x": 20, "v.x": 5})
    guess = f.rollout(f.initial_state({"x": 0.3}), np.zeros((20, 1)), k0=8)
    found = optimize(f, cost, guess, method=method)
    assert found.converged and found.trajectory.k0 == 8
    assert cost.value(f.rollout(guess.x[0], found.u, k0=8)) == pytest.approx(found.cost, rel=1e-9)


def test_forces_of_constraints_over_unequal_steps():
    """Costs and bounds hold what the trajectory reads: an impulse over the time that it stands for."""
    rod = vioc.UserConstraint(lambda k: k.q("x") ** 2 + k.q("z") ** 2 - 1.0, (), name="rod")
    bob = vioc.tx("x")[vioc.tz("z", mass=1.0)]
    f = vioc.MidpointVI(vioc.System(bob, vioc.Gravity(0, 0, -9.81), vioc.JointForce("x", "push"), rod), 0.03)
    lengths = 0.004 * 1.3 ** np.arange(14)
    x0, force = f.initial_state({"x": 0.0, "z": -1.0}), f.quantity("force.rod")
    told = dict(x0=x0, steps=14, dt=lengths, final={"x": 0.3}, bounds={"force.rod": (-5.2, None)})
    found = optimize(f, quadratic(f, R=1.0), **told)
    assert found.converged
    assert found["force.rod"].min() == pytest.approx(-5.2, abs=1e-6)
    read = (lengths * found["force.rod"] ** 2).sum()
    assert Cost(f, force**2).value(found.trajectory) == pytest.approx(read, rel=1e-12)
    costs = Cost(f, 0.5 * f.symbols.u[0] ** 2 + 0.05 * force**2, 50 * (f.quantity("x") - 0.3) ** 2)
    guess = f.rollout(x0, np.zeros((14, 1)), dt=lengths)
    both = [optimize(f, costs, guess, method=method) for method in ("shooting", "projection")]
    assert both[1].cost == pytest.approx(both[0].cost, rel=1e-10)
    assert costs.value(both[1].trajectory) == pytest.approx(both[1].cost, rel=1e-12)
    curved = optimize(f, costs, (guess.x, guess.u), dt=lengths)  # not by impulses of other lengths in symbols
    assert not np.char.startswith(curved.history.method, "ms ").any()
    assert curved.cost == pytest.approx(both[0].cost, rel=1e-10)


# -- maps with constants as states ----------------------------------------------------------------


@pytest.fixture(scope="module")
def disturbed():
    """A cart that 0.5 N push, and the same by the force that acts, of which u - 0.5 N costs."""
    f, d = cart(0.04), 0.5
    g = feedback.ExtendedMap(f, disturbances=["force"], biases=["theta"])
    x0 = f.initial_state({"theta": 0.4})
    weights = dict(Q={"theta": 1.0}, Qf={"theta": 5.0}, R={"force": 0.1})
    wide = g, quadratic(g, **weights), g.join(x0, {"disturbance.force": d})
    return wide, (f, quadratic(f, **weights, u_reference=[d]), x0), d


OPEN = {
    "bounds": dict(bounds={"x": 0.1, "theta": (-0.2, None)}),
    "duration": dict(final={"theta": 0.0}, duration=(0.5, 2.0)),
    "start": dict(initial=["x", "theta", "p.x"], periodic=["p.theta"]),
}


@pytest.fixture(scope="module")
def undisturbed(disturbed):
    """Statement of a task and its optimum on the map without constants, found once."""
    _, (f, cost, x0), _ = disturbed

    @cache
    def solved(task):
        steps = N if task in OPEN else 8  # soon a pole that falls has other optima
        told = OPEN.get(task, {}) | dict(steps=steps, tolerance=1e-10)
        if names := told.get("initial"):
            told["initial"] = {n: x0[f.state_names.index(n)] for n in names}
        return told, optimize(f, cost, x0=x0, method="shooting", **told)

    return solved


@pytest.mark.parametrize(
    "method, task",
    [
        *((m, "none") for m in ("auto", *METHODS)),
        *((m, t) for m in ("auto", "dmoc") for t in OPEN),  # with limits the first is shooting
    ],
)
def test_maps_with_constants_of_their_own(disturbed, undisturbed, method, task):
    """What acts is what acts on the map without them."""
    (g, wide, x), (f, _, _), d = disturbed
    told, expected = undisturbed(task)
    if given := told.get("initial"):
        told = told | {"initial": given | {c: x[g.state_names.index(c)] for c in g.constants}}
    best = optimize(g, wide, x0=x, method=method, **told)
    assert best.cost == pytest.approx(expected.cost, rel=1e-6)
    # the cost does not feel the square of this
    np.testing.assert_allclose(best.u + d, expected.u, rtol=0, atol=3e-3 * np.abs(expected.u).max())
    np.testing.assert_allclose(best.x[:, : f.nx], expected.x, rtol=0, atol=3e-3)
    assert (best.x[:, f.nx :] == best.x[0, f.nx :]).all() and best.map.nx == g.nx


def test_freed_constants_beside_those_of_a_map():
    """A parameter that the problem frees, on a map that has another one as a state: as without that state."""
    P = vioc.P
    arm = vioc.ry("a")[vioc.tz(P("l", -0.4), mass=P("m", 0.8))]
    f = vioc.MidpointVI(vioc.System(arm, vioc.Gravity(0, 0, -9.81), vioc.JointForce("a", "T")), 0.04)
    g = feedback.ExtendedMap(f, parameters=["m"])
    start = f.initial_state({"a": 0.5})
    weights = dict(Q={"a": 1.0}, Qf={"a": 5.0}, R={"T": 0.1}, goal={"a": 0.9})
    task = dict(steps=10, parameters={"l": (-0.6, -0.3)}, duration=(0.2, 0.5), tolerance=1e-10)
    best = optimize(g, quadratic(g, **weights), x0=g.join(start, {"param.m": 0.6}), **task)
    light = f.with_parameters(m=0.6)
    expected = optimize(light, quadratic(light, **weights), x0=start, **task)
    assert best.cost == pytest.approx(expected.cost, rel=1e-8)
    assert best.map.parameters["l"] == pytest.approx(expected.map.parameters["l"], abs=1e-6)
    assert best.duration == pytest.approx(expected.duration, rel=1e-6)
    timed = feedback.ExtendedMap(f, steps=10)
    with pytest.raises(ModelError, match="'duration' is a state already"):
        optimize(timed, quadratic(timed, **weights), x0=timed.join(start), **task)
    with pytest.raises(ValueError, match="duration: it is a state of the map already"):
        optimize(
            timed,
            quadratic(timed, **weights),
            x0=timed.join(start),
            steps=10,
            method="dmoc",
            duration=(0.2, 0.5),
        )


def test_a_horizon_on_a_map_with_constants_of_its_own(disturbed):
    (g, wide, x), (f, cost, x0), d = disturbed
    limits = dict(bounds={"x": (None, 0.25)})
    mine, theirs = (feedback.NonlinearMPC(Problem(*of, 20, **limits)) for of in ((g, wide), (f, cost)))
    memory, other = mine.start(), theirs.start()
    for k in range(4):
        u, memory = mine.apply(k, x, memory)
        v, other = theirs.apply(k, x0, other)
        np.testing.assert_allclose(u + d, v, rtol=0, atol=1e-6 * abs(v[0]))
        x0 = f.step(x0, 0.9 * v)  # not what was foreseen
        x = g.join(x0, dict(zip(g.constants, x[f.nx :], strict=True)))


def test_bounds_of_a_delayed_command_are_those_of_both_methods():
    """N rows, of the command of each step; multipliers are minus the slopes of the cost by moved limits."""
    f = feedback.DelayedMap(cart(0.04))
    cost = quadratic(f, Q={"theta": 1.0}, Qf={"theta": 5.0}, R={"force": 0.1})
    x0 = f.join(
        f.inner.initial_state({"theta": 0.4}), [2.0]
    )  # under way, beyond the limit, which is of no step

    def solved(limits, method):
        return optimize(f, cost, x0=x0, steps=6, method=method, bounds={"u.force": limits}, tolerance=1e-10)

    mine, theirs = (solved(0.3, m) for m in ("shooting", "dmoc"))
    assert mine.cost == pytest.approx(theirs.cost, rel=1e-7)
    assert mine.multipliers.keys() == theirs.multipliers.keys() == {"u.force"}
    assert mine.multipliers["u.force"].shape == (6,) and np.abs(mine.u).max() <= 0.3 + 1e-6
    np.testing.assert_allclose(theirs.multipliers["u.force"], mine.multipliers["u.force"], rtol=0, atol=1e-5)
    for k in (0, 3):
        limit, e = np.full(6, 0.3), 1e-4 * np.eye(6)[k]
        slope = (solved(limit + e, "shooting").cost - solved(limit - e, "shooting").cost) / 2e-4
        felt = abs(theirs.multipliers["u.force"][k])
        assert felt > 1e-3 and -slope == pytest.approx(felt, rel=1e-3)
    warm = optimize(f, cost, theirs, method="shooting", bounds={"u.force": 0.3})
    assert warm.iterations < mine.iterations


# maps that tell no equations of their steps, each with what it is asked to bring where it cannot
SILENT = {
    "Galerkin": (lambda: vioc.GalerkinVI(vioc.models.load("cart_pole"), 0.05, stages=2), "x"),
    "composition": (lambda: vioc.Composition(cart(0.05)), "x"),
    "groups": (lambda: GroupVI(vioc.System(*PUSHED), 0.05, stages=2), "b-z"),
}
PUSHED = vioc.free("b", mass=(1.0, 1.0, 1.4, 1.8)), vioc.JointForce("b-z", "force")


@pytest.mark.parametrize("kind", SILENT)
def test_shooting_that_ends_nowhere_on_maps_without_equations(kind):
    """IPOPT has no equations to begin from; the verdict is shooting's own."""
    make, moved = SILENT[kind]
    f = make()
    cost, limits = quadratic(f, R=1.0), dict(bounds={"u.force": 1e-3}, final={moved: 5.0})
    with pytest.raises(OptimizationError, match=f"Violated: final {moved}") as caught:
        optimize(f, cost, x0=f.initial_state(), steps=4, **limits)
    best = caught.value.result
    assert not best.converged and best.violations[0].name == f"final {moved}"
    with pytest.raises(ValueError, match=f"{type(f).__name__}: DMOC needs .*got neither; use .*shooting"):
        optimize(f, cost, x0=f.initial_state(), steps=4, method="dmoc", **limits)


@cache
def late_cart():
    """A cart whose command acts a step late."""
    return feedback.DelayedMap(cart(0.05))


@pytest.mark.parametrize("lengths", [{"duration": (0.5, 2.0)}, {"duration": 1.3}, {"dt": 0.06}])
def test_steps_of_another_length_under_a_delay(lengths):
    """The delay is one step, however long: shooting finds what DMOC does."""
    f = late_cart()
    cost, x0 = quadratic(f, Q={"theta": 1.0}, R=1.0), f.initial_state({"theta": 0.2})
    mine, theirs = (
        optimize(f, cost, x0=x0, steps=12, final={"theta": 0.0}, method=m, **lengths)
        for m in ("shooting", "dmoc")
    )
    assert mine.cost == pytest.approx(theirs.cost, rel=1e-7)
    assert mine.duration == pytest.approx(theirs.duration, rel=1e-5)


# -- one result of all methods --------------------------------------------------------------------


@pytest.fixture(scope="module")
def lifted():
    """A damped arm is lifted over 24 steps, to a reference that moves, by each method and by DMOC itself."""
    m, pull = vioc.P("m", 1.0), vioc.JointForce("theta", "torque")
    arm = vioc.System(vioc.ry("theta")[vioc.tz(-0.5, mass=m)], vioc.Gravity(0, 0, -9.81), pull)
    f = vioc.MidpointVI(arm, 0.05)
    path = np.linspace(0.3, 1.0, 25)
    cost = quadratic(f, Q={"theta": 1.0}, R=0.1, Qf={"theta": 20.0}, reference={"theta": path})
    x0 = f.initial_state({"theta": 0.3})
    found = {m: optimize(f, cost, x0=x0, steps=24, method=m, tolerance=1e-12) for m in METHODS}
    found["dmoc.solve"] = dmoc.solve(f, cost, steps=24, initial=x0, tolerance=1e-12)
    return f, cost, x0, found


def test_every_result_has_the_same_attributes(lifted):
    _, cost, _, found = lifted
    for name, best in found.items():
        assert isinstance(best, Result) and best.gains.shape == (24, 1, 2) and best.seconds > 0, name
        assert best.open_loop_gap < 1e-8 and best.feasible and best.margin == np.inf, name
        assert len(best.phases) == 1 and best.phases[0].trajectory is best.trajectory
        again = best.rollout()
        assert not again.feedback and again.gap < 1e-8
        assert again.cost == pytest.approx(cost.value(again.trajectory), rel=1e-12)
        assert best.describe().startswith(best.message) and best.products() == {}
        with pytest.raises(ModelError, match="no multiplier 'u.torq': .*have one"):
            best.multipliers["u.torq"]


def test_a_result_of_any_method_is_refined(lifted):
    """To the optimum at half the step, whose reference is the line's."""
    f, _, x0, found = lifted
    half = f.with_dt(f.dt / 2)
    line = np.linspace(0.3, 1.0, 49)
    fine = quadratic(half, Q={"theta": 1.0}, R=0.1, Qf={"theta": 20.0}, reference={"theta": line})
    expected = optimize(half, fine, x0=x0, steps=48, tolerance=1e-12)
    for name, best in found.items():
        finer = best.refine(2, tolerance=1e-10)
        assert finer.converged and len(finer) == 48 and finer.duration == pytest.approx(best.duration), name
        assert finer.cost == pytest.approx(expected.cost, rel=1e-8), name
        np.testing.assert_allclose(finer.x, expected.x, rtol=0, atol=1e-5, err_msg=name)


def test_a_limited_result_with_a_free_duration_is_refined(lifted):
    """Limits over time stay where they are in time."""
    f, _, x0, _ = lifted
    most = np.where(np.arange(24) < 12, 3.0, 1.5)
    limits = dict(
        bounds={"u.torque": (-most, most)}, duration=(0.4, 4.0), final={"theta": 0.5, "v.theta": 0.0}
    )
    for method in ("shooting", "dmoc"):
        best = optimize(f, dmoc.minimum_time(f), x0=x0, steps=24, method=method, **limits)
        finer = best.refine(2)
        assert finer.converged and len(finer) == 48, method
        assert finer.duration == pytest.approx(best.duration, rel=0.05), method
        assert (np.abs(finer.u[:, 0]) <= np.repeat(most, 2) + 1e-6).all(), method
        assert np.abs(finer.u[:24]).max() > 1.5, method  # which is the second half's limit


def test_a_result_of_any_method_tells_its_sensitivity(lifted):
    """By the mass and the start, against central differences of optima."""
    f, _, x0, found = lifted
    path = np.linspace(0.3, 1.0, 25)

    def value(m, by):
        g = f.with_parameters(m=m)
        cost = quadratic(g, Q={"theta": 1.0}, R=0.1, Qf={"theta": 20.0}, reference={"theta": path})
        return optimize(g, cost, x0=x0 + by, steps=24, tolerance=1e-12).cost

    e, by_theta = 1e-4, np.array([1e-4, 0.0])
    slopes = {
        "param.m": (value(1 + e, 0.0) - value(1 - e, 0.0)) / (2 * e),
        "initial.theta": (value(1.0, by_theta) - value(1.0, -by_theta)) / 2e-4,
    }
    for name, best in found.items():
        told = best.sensitivity()
        for by, slope in slopes.items():
            assert told.cost[told.names.index(by)] == pytest.approx(slope, rel=1e-5), (name, by)


def test_what_a_result_cannot_tell_is_refused(lifted):
    f, cost, x0, found = lifted
    free = optimize(f, cost, x0=x0, steps=24, parameters={"m": (0.5, 2.0)})
    with pytest.raises(ValueError, match="sensitivity: not available with free parameters"):
        free.sensitivity()
    steps = np.linspace(0.04, 0.06, 24)
    uneven = optimize(f, quadratic(f, R=1.0, Q=1.0), x0=x0, steps=24, dt=steps)
    with pytest.raises(ValueError, match="steps are equal"):
        uneven.sensitivity()
    finer = uneven.refine(2)
    np.testing.assert_allclose(finer.step_lengths, np.repeat(steps, 2) / 2, rtol=1e-12)
    for best in found.values():
        kept = pickle.loads(pickle.dumps(best))
        assert kept.rollout().cost is None and kept.cost == best.cost
        for use in (kept.refine, kept.sensitivity):
            with pytest.raises(ValueError, match="pickled has left it behind"):
                use()


def test_the_margin_of_dmoc_is_that_of_shooting():
    """Distance from limits over half their range, of plans as of rollouts."""
    f = double_integrator()
    cost, bounds = quadratic(f, Q=1.0, R=0.1), {"u.force": 50.0, "x": (-2.0, 3.0)}
    mine = optimize(f, cost, x0=[1.0, 0.0], steps=N, bounds=bounds)
    plan = dmoc.solve(f, cost, steps=N, initial=[1.0, 0.0], bounds=bounds)
    assert 0.1 < mine.margin < 1 and plan.margin == pytest.approx(mine.margin, abs=1e-5)


@cache
def loaded():
    """The map of a cart with a pole that hangs, whose length and load are parameters."""
    pole = vioc.ry("a")[vioc.tz(vioc.P("length", -0.5), mass=vioc.P("load", 0.3))]
    system = vioc.System(vioc.tx("x", mass=1.0)[pole], vioc.Gravity(0, 0, -9.81), vioc.JointForce("x", "u"))
    return vioc.MidpointVI(system, 0.05)


@cache
def loaded_task():
    """Cost and problem of a cart whose load is free."""
    f = loaded()
    how = dict(parameters={"load": (0.05, None)}, x0=f.initial_state(x=0.3, a=0.4), steps=20)
    return quadratic(f, R=0.1, Qf={"x": 20, "a": 20}), how


@cache
def lightest():
    """Optimum by DMOC of the cart whose load is free."""
    cost, how = loaded_task()
    return optimize(loaded(), cost, method="dmoc", **how)


@pytest.mark.parametrize(
    "task",
    [
        {"parameters": {"load": (0.05, None)}},
        {
            "parameters": {"load": (0.05, 0.2), "length": (-0.8, -0.3)},
            "final": {"x": 0.0, "v.x": 0.0},
            "bounds": {"v.x": 0.5},
        },
        {"parameters": {"load": (0.05, 0.2)}, "final": {"x": 0.0}, "duration": (0.5, 2.0)},
        {"parameters": {"load": (0.05, 0.2)}, "initial": {"x": 0.3}, "periodic": ["x", "p.x"]},
    ],
)
def test_parameters_are_chosen_by_shooting_and_by_dmoc_alike(task):
    """Optima, parameters and multipliers agree to the barrier that each leaves of its limits."""
    f = loaded()
    cost = quadratic(f, Q={"x": 1}, R=0.1, Qf={"x": 20, "a": 20})
    how = dict(x0=f.initial_state(x=0.3, a=0.4), steps=20, **task)
    one = optimize(f, cost, method="shooting", **how)
    off = one.x + 0.05 * np.sin(np.arange(21))[:, None], 0.9 * one.u
    other = optimize(f, cost, off, method="dmoc", tolerance=1e-10, **how)
    assert other.iterations > 1
    assert other.cost == pytest.approx(one.cost, rel=1e-7, abs=1e-9)
    assert other.duration == pytest.approx(one.duration, rel=1e-5)
    for name in task["parameters"]:
        assert other.map.parameters[name] == pytest.approx(one.map.parameters[name], abs=1e-5)
        where = f"param.{name}"
        np.testing.assert_allclose(other.multipliers[where], one.multipliers[where], atol=1e-5)
    assert other["x"].shape == (21,) and other.gains.shape == (20, f.nu, f.nx)


def test_what_dmoc_chose_is_where_it_begins_again():
    f, (cost, how), first = loaded(), loaded_task(), lightest()
    again = optimize(f, cost, first, method="dmoc", **how)
    assert again.cost == pytest.approx(first.cost, rel=1e-7) and again.iterations <= first.iterations


def test_what_dmoc_chose_is_free_when_it_is_refined():
    """Not the values that the map came with, at which the finer optimum costs half as much again."""
    f, (cost, how) = loaded(), loaded_task()
    ours, theirs = (r.refine(2) for r in (optimize(f, cost, method="shooting", **how), lightest()))
    assert theirs.cost == pytest.approx(ours.cost, rel=1e-7)
    assert theirs.map.parameters["load"] == pytest.approx(ours.map.parameters["load"], rel=1e-4)
    limited = optimize(f, cost, method="dmoc", rate={"u.u": 50.0}, **how)
    with pytest.raises(ValueError, match="no limits on rates"):
        limited.refine(2)


@pytest.mark.parametrize("dt", [0.05, 0.01])
def test_a_guess_of_another_step_is_a_guess_of_every_method(dt):
    f = cart(0.02)
    g = f.with_dt(dt)
    x0 = f.initial_state({f.state_names[1]: 0.3})
    other = optimize(g, quadratic(g, Q=1.0, R=0.1), x0=x0, steps=round(0.2 / dt))
    cost = quadratic(f, Q=1.0, R=0.1)
    by = [optimize(f, cost, other, method=m).cost for m in ("projection", "shooting", "dmoc")]
    np.testing.assert_allclose(by, by[0], rtol=1e-6)
    line = other.trajectory.resample(0.02, by="line")
    assert optimize(line.map, cost.on(line.map) if hasattr(cost, "on") else cost, line).converged


@pytest.mark.parametrize("method", ["auto", "projection", "shooting", "dmoc"])
@pytest.mark.parametrize("as_guess", [lambda run: run, lambda run: (run.x, run.u), lambda run: run.u])
def test_steps_that_are_not_those_of_the_guess_are_refused(method, as_guess):
    f = cart(0.02)
    run = f.rollout(f.initial_state(), steps=20)
    with pytest.raises(ValueError, match="20"):
        optimize(f, quadratic(f, R=1.0), as_guess(run), x0=run.x[0], steps=10, method=method)


@pytest.mark.parametrize("limits", [None, (None, 1.0)])
def test_a_free_mass_stays_positive_without_a_limit(limits):
    """A pole that is lighter is raised at a lower cost, so the best mass is 0."""
    pole = vioc.ry("th")[vioc.tz(0.5, mass=vioc.P("bob", 0.3))]
    system = vioc.System(vioc.tx("x", mass=1.0)[pole], vioc.Gravity(0, 0, -9.81), vioc.JointForce("x", "u"))
    f = vioc.MidpointVI(system, 0.02)
    how = dict(x0=f.state(th=0.2), steps=20, method="dmoc", parameters={"bob": limits})
    best = optimize(f, quadratic(f, R=1e-3, Qf={"th": 50.0}), **how)
    assert 0 <= best.map.parameters["bob"] < 1e-3


@pytest.mark.parametrize("method", ["shooting", "dmoc"])
def test_a_map_without_inputs_has_a_motion_or_none(method):
    f = vioc.MidpointVI(vioc.System(vioc.tx("x", mass=1.0)), 0.02)
    cost, x0 = quadratic(f, Q=1.0), f.state(x=1.0)
    found = optimize(f, cost, x0=x0, steps=5, method=method)
    assert found.converged and found["x"][-1] == pytest.approx(1.0)
    with pytest.raises(OptimizationError, match="infeasible"):
        optimize(f, cost, x0=x0, steps=5, final=f.state(x=2.0), method=method)
