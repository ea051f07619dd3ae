"""What a newcomer is told: names of inputs, what was given instead of numbers, where a search began."""

import casadi as ca
import numpy as np
import pytest

import vioc
from vioc import Gravity, JointForce, System, inputs, ry, tx, tz
from vioc.control import dlqr, dmoc, feedback, modes, optimize, quadratic
from vioc.errors import ModelError, OptimizationError
from vioc.interop import load_functions, save_functions

# inside: the message on lost workers is read, as no worker is lost here
from vioc.sweeps import executors

WEIGHTS = {"x": 10, "theta": 10, "p.x": 1, "p.theta": 1}


def linear(A, B):
    A, B = np.asarray(A, float), np.asarray(B, float)
    x, u = ca.SX.sym("x", len(A)), ca.SX.sym("u", B.shape[1])
    return vioc.CasadiMap(ca.Function("f", [x, u], [ca.DM(A) @ x + ca.DM(B) @ u]), 0.1)


@pytest.fixture(scope="module")
def f():
    return vioc.MidpointVI(vioc.models.load("cart_pole"), 0.02, wrap=("theta",))


@pytest.fixture(scope="module")
def upright(f):
    return feedback.equilibrium(f, theta=0.0)


@pytest.fixture(scope="module")
def loop(f, upright):
    return dlqr(f, upright, WEIGHTS, {"force": 0.1})


def test_inputs_are_named_with_and_without_prefix(f, upright, loop):
    run = f.rollout(upright.x, np.ones((5, 1)))
    costs = [
        quadratic(f, R={p + "force": 2.0}, u_reference={p + "force": 3.0}).value(run) for p in ("", "u.")
    ]
    assert costs[0] == costs[1] == pytest.approx(0.5 * 2 * (1 - 3) ** 2 * 5 * f.dt)
    np.testing.assert_array_equal(dlqr(f, upright, WEIGHTS, {"u.force": 0.1}).K, loop.K)
    start = f.state(x=1.0)
    for bounds in ({"u.force": 2}, {"force": (-2, 2)}):
        clipped = feedback.ClosedLoop(f, loop, bounds=bounds).simulate(start, 5)
        assert np.abs(clipped.u).max() == 2
    mpc = feedback.LinearMPC(loop, 3, bounds={"u.force": (-2, None)}, rate={"u.force": 1})
    assert mpc.lower == [-2] and mpc.upper == [np.inf] and mpc.rate == [1]
    assert feedback.equilibrium(f, {"u.force": 0.0}, guess={"theta": 3.0})["theta"] == pytest.approx(np.pi)
    np.testing.assert_array_equal(inputs(f, 3, {"u.force": 2}), inputs(f, 3, force=2))


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda f, up, loop: quadratic(f, R={"forc": 1}), "R: unknown name 'forc'; did you mean 'force'"),
        (
            lambda f, up, loop: quadratic(f, R={"u.force": 1, "force": 2}),
            "R: 'u.force' and 'force' are the same",
        ),
        (lambda f, up, loop: quadratic(f, R=1, u_reference={"forc": 1}), "u_reference: unknown name 'forc'"),
        (lambda f, up, loop: quadratic(f, Q=1, goal={"thetta": 1}), "'thetta'; did you mean 'theta'"),
        (lambda f, up, loop: dlqr(f, up, {"thetta": 1}, 1), "Q: unknown name 'thetta'; did you mean 'theta'"),
        (lambda f, up, loop: feedback.ClosedLoop(f, loop, W={"v.theta": 1}), "'v.theta' is no entry"),
        (lambda f, up, loop: feedback.ClosedLoop(f, loop, bounds={"forc": 1}), "unknown name 'forc'"),
        (lambda f, up, loop: feedback.ClosedLoop(f, loop, W={"q": 1}), "W: unknown name 'q'"),
        (lambda f, up, loop: inputs(f, 3, forc=1), "inputs: unknown name 'forc'; did you mean 'force'"),
        (lambda f, up, loop: inputs(f, 3, {"u.force": 1}, force=2), "'force' has two signals"),
    ],
)
def test_unknown_names(f, upright, loop, call, message):
    with pytest.raises(ModelError, match=message):
        call(f, upright, loop)


def test_objects_instead_of_states(f, upright, loop):
    for call in (lambda x: f.rollout(x, steps=2), f.linearize, lambda x: loop.rollout(x, 2)):
        assert call(upright) is not None  # is at one state: tests/test_given.py
        with pytest.raises(ValueError, match=r"\{'theta': 1\}; make .* f.initial_state or f.state"):
            call({"theta": 1})


@pytest.mark.parametrize(
    "options, error, message",
    [
        (dict(law=np.eye(4)), TypeError, "expected a regulator or a law, got ndarray"),
        (dict(observer=3), TypeError, "observer: expected a KalmanFilter.*got int"),
        (dict(bounds=[1, 2]), TypeError, r"bounds: expected a dict of limits by name, .*got \[1, 2\]"),
        (dict(bounds={"force": ([1, 2], None)}), ValueError, r"a number as lower limit, got \[1, 2\]"),
        (dict(bounds={"force": "low"}), ValueError, "bounds on u.force: expected a number .*got 'low'"),
        (dict(bounds={"force": ("low", 1)}), ValueError, "a number as lower limit, got 'low'"),
        (dict(bounds={"force": (1, -1)}), ValueError, "bounds on u.force: lower limit 1 > upper limit -1"),
        (dict(bounds={"force": -1}), ValueError, r"a single limit b means \[-b, b\] and is >= 0, got -1"),
        (dict(bounds={"x": 1}), ModelError, r"bounds: expected names of inputs \(u.force\), got 'x'"),
        (dict(lower=-1, upper=1), TypeError, "unexpected keyword argument 'lower'"),
        (dict(plant=linear([[0.5]], [[1.0]])), ValueError, "law: it is of a map with the states x, th"),
        (dict(plant=None), TypeError, "plant: expected a map, got NoneType"),
    ],
)
def test_a_closed_loop_is_checked_when_built(f, loop, options, error, message):
    with pytest.raises(error, match=message):
        feedback.ClosedLoop(**{"plant": f, "law": loop, **options})


def test_a_bound_among_several_that_is_no_number_is_refused(loop):
    with pytest.raises(ValueError, match="bounds on theta: the upper limit is not a number"):
        feedback.LinearMPC(loop, 5, bounds={"x": (None, 1.0), "theta": (None, np.nan), "p.x": (None, 1.0)})
    with pytest.raises(ModelError, match=r"bounds: expected names of inputs and states \(.*\), got 'energy'"):
        feedback.LinearMPC(loop, 5, bounds={"energy": (None, 1.0)})


def test_modes_of_a_regulator(f, upright, loop):
    closed = modes(f, upright, gain=loop)
    assert closed.spectral_radius == pytest.approx(np.abs(loop.poles).max(), rel=1e-9)
    with pytest.raises(ValueError, match=r"gain: expected shape \(1, 4\)"):
        modes(f, upright, gain=np.eye(4))


def test_a_marginal_mode_out_of_reach_is_refused():
    """A pole that is 1 but for rounding settles nowhere; the state it is made of is named."""
    f = linear(np.diag([2.0, 1 - 1e-12, 0.5]), [[1.0], [0.0], [1.0]])
    with pytest.raises(OptimizationError, match=rf"cannot move the eigenvalues 1 \(of {f.state_names[1]}\)"):
        dlqr(f, (np.zeros(3), None), 1.0, 1.0)


def test_optimize_without_a_start(f):
    cost = quadratic(f, Q=1, R=1)
    with pytest.raises(ValueError, match="give x0 and steps, .* or a guess"):
        optimize(f, cost)
    with pytest.raises(ValueError, match="steps: give their number with x0, or a guess"):
        optimize(f, cost, x0=f.state())


def test_a_guess_without_trajectory_is_replaced_on_request():
    x, u = ca.SX.sym("x"), ca.SX.sym("u")
    f = vioc.CasadiMap(ca.Function("f", [x, u], [1.01 * x + ca.sqrt(1 - u**2) * u]), 0.1)
    cost = quadratic(f, Q=1, R=1)
    X = np.ones((11, 1))
    with pytest.raises(OptimizationError, match="the guess leads to no trajectory.*optimize"):
        optimize(f, cost, (X, np.full((10, 1), 2.0)), method="projection")
    found = optimize(f, cost, (X, np.full((10, 1), 2.0)), method="projection", raise_on_failure=False)
    assert "began with zero inputs" in found.message
    assert found.cost == pytest.approx(optimize(f, cost, x0=[1.0], steps=10).cost, rel=1e-9)
    again = optimize(f, cost, x0=[1.0], guess=np.full((10, 1), 2.0))
    assert again.converged and "began with the initial state at all samples" in again.message


def test_a_projection_that_leads_far_away_is_named():
    f = vioc.MidpointVI(vioc.models.load("cart_pole"), 0.005)
    X = np.linspace(f.state(theta=np.pi), f.state(x=np.pi), 51)
    cost = quadratic(f, R=1e-3, Qf=1e3, goal={"x": np.pi})
    far = optimize(f, cost, (X, None), raise_on_failure=False, max_iterations=6)
    assert not far.converged and far.cost > 1e4
    assert "is far from it (" in far.message and "vioc.control.dmoc.solve" in far.message
    assert callable(dmoc.solve)


def test_reprs_are_readable(f, upright, loop):
    assert repr(quadratic(f, R={"force": 1})) == "Cost(running: (0.5*sq(u.force)) per second; terminal: 0)"
    rich = repr(quadratic(f, Q=1.0, R=1.0, Qf={"v.theta": 1.0}))
    assert "of p.theta, p.x, theta, u.force, x per second" in rich and "@" not in rich and "_0" not in rich
    ekf = feedback.ExtendedKalmanFilter(f, feedback.Measurement(f, {"x": 1e-6}), manifold=True)
    assert (
        repr(ekf) == "ExtendedKalmanFilter(4 errors of the state; on the constraint manifold; "
        "Measurement(x +- 0.001))"
    )


def test_a_run_of_a_loop_is_read_as_a_trajectory(f, upright, loop):
    run = feedback.ClosedLoop(f, loop, feedback.ConfigurationObserver(f)).simulate(upright.x + 0.01, 4)
    for name in ("t", "x", "u", "energy"):
        np.testing.assert_array_equal(getattr(run, name), getattr(run.trajectory, name))
    assert len(run.plot("theta")[0].lines) == 1
    assert "2 measured quantities" in repr(run)


def test_a_prediction_of_the_estimate_that_does_not_exist_is_named_with_the_motion_so_far(f, upright, loop):
    seen = feedback.Measurement(f, {"x": 1e-6, "theta": 1e-6})
    closed = feedback.ClosedLoop(f, loop, feedback.ExtendedKalmanFilter(f, seen, W=1e-6, P0=1.0))
    wild = f.state(theta=3.0, **{"p.theta": 300.0})
    with pytest.raises(vioc.StepError, match="^prediction of the estimate behind step 0: ") as caught:
        closed.simulate(f.state(theta=0.05), 20, estimate=wild)
    assert len(caught.value.trajectory) == 1 and caught.value.length < f.dt


def test_saving_into_no_folder(f, upright, tmp_path):
    run = f.rollout(upright.x, steps=2)
    with pytest.raises(FileNotFoundError, match=f"no such folder {tmp_path / 'none'}; make"):
        run.save(tmp_path / "none" / "a.npz")


def test_exported_parameters_have_no_defaults(tmp_path):
    """An empty list is zeros in CasADi; the header's values are what the map declares."""
    x, u, t, dt, p = (ca.SX.sym(n) for n in ("x", "u", "t", "dt", "p"))
    f = vioc.CasadiMap(ca.Function("f", [x, u, t, dt, p], [p * x + u]), 0.1, parameters={"gain": 3.0})
    functions, header = load_functions(save_functions(f, tmp_path / "m.json"))
    given = [2.0], [0.0], 0.0, f.dt
    assert functions["step"](*given, list(header["parameters"].values()))[0] == 6
    assert functions["step"](*given, [])[0] == 0


def test_a_lost_worker_names_the_guard():
    assert "if __name__ == '__main__':" in executors.LOST


def test_parameters_that_a_function_does_not_take_are_refused():
    """They were named in vain: the third of three inputs is the time."""
    x, u, p = ca.SX.sym("x"), ca.SX.sym("u"), ca.SX.sym("p")
    for taken in ([x, u], [x, u, p]):
        with pytest.raises(ValueError, match="takes 0 parameters, 1 are named; its inputs are x, u, t, dt"):
            vioc.CasadiMap(ca.Function("f", taken, [x + u]), 0.1, parameters={"gain": 3.0})


@pytest.mark.parametrize("method", ["shooting", "dmoc"])
def test_arguments_of_optimize_are_neither_left_out_nor_converted(f, method):
    cost, x0 = quadratic(f, Q=WEIGHTS, R={"force": 0.1}), f.initial_state(theta=0.1)
    wrong = [("duration", v, "duration: ") for v in (0, {}, [], True, "1", np.ma.masked)]
    wrong += [("final", v, "final state: expected shape") for v in ([], np.zeros(0), 0)]
    wrong += [("final", {"x": v}, "final x: ") for v in (np.ma.masked, "1", True, np.complex128(1j))]
    wrong += [("steps", v, "steps: expected a whole number >= 1") for v in (-1, 1.5, "3", np.inf, True, {})]
    wrong += [("tolerance", v, "tolerance: expected a number") for v in (0, "1", 1j, True, {}, np.inf)]
    wrong += [("max_iterations", v, "max_iterations: expected a whole") for v in ("3", 1j, True, 0, 1.5)]
    wrong += [("method", v, "method: expected one of") for v in ([method], {}, 3)]
    wrong += [("dt", v, "dt: expected step lengths > 0") for v in (0, "0.1", True, np.bool_(True), {})]
    wrong += [(n, 0, f"{n}: ") for n in ("parameters", "rate")]
    for name, value, words in wrong:
        with pytest.raises(ValueError, match=words):
            optimize(f, cost, **{"x0": x0, "steps": 8, "method": method, name: value})
    for name in ("bounds", "constraints", "periodic"):
        with pytest.raises(TypeError, match="expected a"):
            optimize(f, cost, x0=x0, steps=8, method=method, **{name: 0})
    with pytest.raises(TypeError, match="expected a map, such as MidpointVI"):
        optimize(None, cost, x0=x0, steps=8)


def test_a_limit_of_a_free_mass_that_no_body_has_is_refused():
    pole = tx("x", mass=1.0)[ry("theta")[tz(0.5, mass=vioc.P("bob", 0.3))]]
    f = vioc.MidpointVI(System(pole, Gravity(0, 0, -9.81), JointForce("x", "force")), 0.02)
    task = dict(x0=f.state(theta=0.3), steps=5)
    with pytest.raises(ValueError, match="parameters: lower limit -1 of 'bob': expected 0 or more"):
        optimize(f, quadratic(f, Q=1.0, R=0.1), parameters={"bob": (-1, 1)}, **task)
    assert optimize(f, quadratic(f, Q=1.0, R=0.1), parameters={"bob": (0.1, 1)}, **task).converged
    # without mass nothing turns; the search comes ever closer to that and says what ends it
    with pytest.raises(OptimizationError, match="the iterate has no derivatives: step 0 cannot be linear"):
        optimize(f, quadratic(f, Q=1.0, R=0.1), parameters={"bob": (0, 1)}, **task)


def test_a_text_or_a_truth_value_is_no_weight(f, upright, loop):
    for value in ("1", True, np.True_, np.ma.masked, 1j):
        for call in (
            lambda v: quadratic(f, Q={"x": v}),
            lambda v: quadratic(f, R=v),
            lambda v: quadratic(f, Q=1.0, goal={"x": v}),
            lambda v: dlqr(f, upright, {"x": v}, 1.0),
            lambda v: feedback.Measurement(f, {"x": v}),
            lambda v: feedback.LinearMPC(loop, 5, rate={"force": v}),
            lambda v: feedback.LimitedLaw(loop, rate={"force": v}),
            lambda v: dmoc.obstacle(f, "pole", (0.0, 0.0, 1.0), v),
        ):
            with pytest.raises(ValueError, match="expected (a |real )?number"):
                call(value)
    for value in ("1", 1j, np.ma.masked_equal([0.0, 0.0, 1.0], 1.0)):
        with pytest.raises(ValueError, match="obstacle: centre: expected numbers"):
            dmoc.obstacle(f, "pole", value, 0.1)
    for name in (3, 1.5):
        with pytest.raises(ModelError, match=f"unknown name {name}; expected a text"):
            dlqr(f, upright, {name: 1.0}, 1.0)
    with pytest.raises(ValueError, match="Q: expected numbers"):
        dlqr(f, upright, {"x": np.ones(3)}, 1.0)
    for k in (1.5, np.nan, "3", -1):
        with pytest.raises(ValueError, match="k: expected a whole number >= 0"):
            feedback.LinearMPC(loop, 5)(k, upright.x)
