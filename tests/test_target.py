"""Folders of C: built without a warning, replayed under sanitizers, equal to Python; what is refused."""

import ctypes
import re
import shutil
import subprocess
from functools import cache

import casadi as ca
import numpy as np
import pytest
from support.control_maps import cart_pole, midpoint_pendulum, two_inputs
from support.target_folders import (
    CHECKED,
    COMPILER,
    OF_MATH,
    STRICT,
    balanced_cart,
    loaded,
    needs_compiler,
    pointer,
    replayed,
    works,
)

import vioc
from vioc import target
from vioc.control import (
    ClosedLoop,
    Cost,
    LinearMPC,
    Measurement,
    NonlinearMPC,
    Problem,
    dlqr,
    equilibrium,
    kalman,
    quadratic,
)
from vioc.control.feedback import (
    ConfigurationObserver,
    ExtendedKalmanFilter,
    ExtendedMap,
    LimitedLaw,
    OffsetFree,
    ScheduledLaw,
    StateLaw,
    as_law,
    track_curve,
)
from vioc.errors import StepError

# inside: operations of single functions are counted against formulas, without a folder
from vioc.maps.derivatives import Steps
from vioc.target import Operations, write_target
from vioc.target.controller_parts import factored, helpers, product, solved
from vioc.target.emit import emit
from vioc.target.split_steps import split


@pytest.fixture(scope="module")
def cart():
    return balanced_cart()


OBSERVERS = {
    "state": lambda f, at, sensors: None,
    "kalman": lambda f, at, sensors: kalman(f, at, sensors, 1e-10, W_u=0.04),
    "extended": lambda f, at, sensors: ExtendedKalmanFilter(f, sensors, 1e-10, W_u=0.04, P0=1e-2),
    "configurations": lambda f, at, sensors: ConfigurationObserver(f, sensors.V),
}


@needs_compiler
@pytest.mark.parametrize("precision", ["double", "single"])
@pytest.mark.parametrize("kind", OBSERVERS)
def test_controllers_replay_what_python_did(cart, kind, precision, tmp_path):
    f, upright, law, sensors = cart
    loop = ClosedLoop(
        f, law, OBSERVERS[kind](f, upright, sensors), {"force": (-12.0, 9.0)}, W=1e-10, W_u=0.04
    )
    start = upright.x + f.state({"x": 0.1, "theta": 0.2}) + 2 * np.pi * np.eye(4)[1]
    written = write_target(tmp_path / kind, loop, start, steps=40, precision=precision)
    assert (np.abs(written.records.samples.u) > 8.9).any()  # a bound is met
    code, text = replayed(written, *(CHECKED if works(*CHECKED) else []))
    assert code == 0 and "inputs" in text, text


@needs_compiler
def test_constraints_derivatives_and_no_allocation(tmp_path):
    """A loop of seven bars with its multipliers, in both word lengths, and what it calls."""
    system = vioc.models.load("closed_chain")
    guess = {"J": 0.2, "H": 0.3, "K": 0.1, "M": 0.3, "A": -0.1, "C": 0.2, "E": 0.3}
    f = vioc.MidpointVI(system, 0.01)
    start = f.initial_state(vioc.consistent_configuration(system, guess))
    written = write_target(tmp_path / "chain", f, start, steps=30, linearize=True)
    code, text = replayed(written)
    assert code == 0 and all(what in text for what in ("multipliers", "A  ")), text
    if works("-m32"):
        assert replayed(written, "-m32")[0] == 0
    loaded(written)
    if (nm := shutil.which("nm")) is not None:
        called = subprocess.run(
            [nm, "-u", str(tmp_path / "chain/library.so")], capture_output=True, text=True
        ).stdout
        names = {line.split()[-1].split("@")[0] for line in called.splitlines()}
        assert {n for n in names if not n.startswith("_")} <= OF_MATH
    source = (tmp_path / "chain/chain.c").read_text()
    assert re.findall(r"^static (?!const|void|int)\w+", source, re.M) == []  # nothing static is written


@cache
def one_sensor():
    """Laws and filters of a balanced cart of which only the place is measured: unstable without the plant."""
    f = vioc.MidpointVI(vioc.models.load("cart_pole"), 0.02)
    laws = [dlqr(f, equilibrium(f, x=x, theta=0.0), {"x": 1e3, "theta": 1e3}, 0.01) for x in (-1.0, 0.0)]
    cart = Measurement(f, {"x": 1e-6})
    filters = kalman(f, equilibrium(f, theta=0.0), cart, 1e-6), ExtendedKalmanFilter(f, cart, 1e-6)
    rash = StateLaw(f, *(a[None] for a in (laws[1].x, laws[1].u, 3 * laws[1].K)), "holds")
    return f, {
        "steady": (laws[1], filters[0]),
        "scheduled": (ScheduledLaw.of(laws, "x"), filters[0]),
        "limited": (LimitedLaw(laws[1], 1e5), filters[0]),
        "extended": (laws[1], filters[1]),
        "configurations": (rash, ConfigurationObserver(f)),
    }


@needs_compiler
@pytest.mark.parametrize("kind", ["steady", "scheduled", "limited", "extended"])
@pytest.mark.parametrize("precision", ["double", "single"])
def test_replays_do_not_run_away_with_unstable_compensators(kind, precision, tmp_path):
    """Under its own inputs rounding would grow 3.6 times a sample; under the recorded ones it dies out."""
    f, pairs = one_sensor()
    loop = ClosedLoop(f, *pairs[kind])
    written = write_target(tmp_path / "cart", loop, f.state(theta=0.05), steps=200, precision=precision)
    code, text = replayed(written)
    assert code == 0 and "inputs" in text, text
    assert target.run_at(tmp_path / "cart", 5e3, 0.1).status == 0


@pytest.mark.parametrize("kind", ["steady", "scheduled", "limited", "extended", "configurations"])
def test_unstable_poles_of_compensators_are_named(kind, tmp_path):
    """The largest is the growth of law and observer, left to themselves beside a measurement that stays."""
    f, pairs = one_sensor()
    law, observer = as_law(pairs[kind][0]), pairs[kind][1]
    written = write_target(tmp_path / "cart", ClosedLoop(f, law, observer), f.state(), steps=10)
    still, u, sizes = np.zeros(f.nx), np.zeros(f.nu), []
    believed, memory = observer.start(still), law.start()
    for k in range(600):  # until the gains of an extended filter stay
        believed = observer.predict(k, observer.correct(k, believed, observer.measurement(still)), u)
    believed = observer.predict(100, believed, u + 1e-12)
    while len(sizes) < 2 or abs(sizes[-1]) < 1e-5:
        believed = observer.correct(101, believed, observer.measurement(still))
        u, memory = law.apply(101, believed.x, memory)
        believed = observer.predict(101, believed, u)
        sizes.append(u[0])
    assert written.unstable_poles[0] == pytest.approx(sizes[-1] / sizes[-2], rel=1e-3)
    assert f"{written.unstable_poles[0].real:.6g}" in (tmp_path / "cart/README.md").read_text()
    assert f"{written.unstable_poles[0].real:.6g}" in (tmp_path / "cart/cart.h").read_text()


@needs_compiler
def test_a_wrong_number_fails(cart, tmp_path):
    _, upright, law, _ = cart
    written = write_target(tmp_path / "off", law, upright.x + 0.1, steps=10)
    source = tmp_path / "off/off.c"
    before, gain, after = re.split(r"(?<=gain\[1\]\[4\] = {\n    {)([^,]+)", source.read_text())
    source.write_text(f"{before}{float(gain) * (1 + 1e-8)!r}{after}")
    code, text = replayed(written)
    assert code == 1 and "inputs" in text and "FAILED" in text


@needs_compiler
@pytest.mark.skipif(shutil.which("cmake") is None, reason="no cmake here")
def test_cmake_builds_and_tests(cart, tmp_path):
    _, upright, law, _ = cart
    write_target(tmp_path / "made", law, upright.x + 0.1, steps=10)
    build = str(tmp_path / "made/build")
    for command in (["-S", str(tmp_path / "made"), "-B", build], ["--build", build]):
        subprocess.run(["cmake", *command], check=True, capture_output=True)
    assert subprocess.run([f"{build}/made_test"], capture_output=True).returncode == 0


@needs_compiler
def test_tables_hold_end_and_repeat(tmp_path):
    """Rows by sample number, with two inputs; outside of them the input is left alone."""
    f = two_inputs()
    run = f.rollout([0.3, -0.2, 0.5], np.random.default_rng(0).standard_normal((15, 2)))
    plan = as_law(track_curve(f, run.x + 0.1, run.u, 1.0, 0.5, k0=2))
    for after in ("ends", "holds", "repeats"):
        law = StateLaw(f, plan.X, plan.U, plan.K, after, 2)
        written = write_target(tmp_path / after, law, run.x[0], steps=15 if after == "ends" else 40)
        assert replayed(written)[0] == 0
        call = getattr(loaded(written), f"{after}_law")
        for k in (1, 2, 9, 16, 17, 40):
            x, u = np.random.default_rng(k).standard_normal(3), np.full(2, np.nan)
            status = call(ctypes.c_int(k), pointer(x), pointer(u))
            if k < 2 or (after == "ends" and k > 16):
                assert status == 4 and np.isnan(u).all()
            else:
                assert status == 0
                np.testing.assert_allclose(u, law(k, x), rtol=1e-13, atol=1e-13)


@needs_compiler
def test_scheduled_gains_and_limited_rates(cart, tmp_path):
    f, *_ = cart
    places = (-1.0, 0.0, 0.5, 2.0)
    laws = [dlqr(f, equilibrium(f, x=x, theta=0.0), 1.0, 0.1 * (1 + x * x)) for x in places]
    scheduled = ScheduledLaw.of(laws[::-1], "x")
    np.testing.assert_allclose(scheduled.points, places)
    for x, law in zip((-1.0, 0.5, 2.0), (laws[0], laws[2], laws[3]), strict=True):
        tilted = f.state({"x": x, "theta": 0.1})
        np.testing.assert_allclose(scheduled(0, tilted), as_law(law)(0, tilted), atol=1e-12)
    between = f.state({"x": 0.25, "theta": 0.1})
    middle = (laws[1].K + laws[2].K) / 2 @ between - [(laws[1].K + laws[2].K)[0, 0] / 2 * 0.25]
    np.testing.assert_allclose(scheduled(0, between), -middle, atol=1e-12)
    limited = LimitedLaw(scheduled, {"force": 10.0}, bounds={"force": 1.2})
    written = write_target(tmp_path / "limited", limited, f.state({"x": 1.4, "theta": 0.05}), steps=120)
    u = written.records.samples.u[:, 0]
    assert np.abs(u).max() == 1.2 and abs(np.abs(np.diff(u)).max() - 0.1) < 1e-12
    assert replayed(written)[0] == 0
    begun = LimitedLaw(scheduled, {"force": 10.0}, bounds={"force": 1.2}, before=0.3)
    written = write_target(tmp_path / "begun", begun, f.state({"x": 1.4, "theta": 0.05}), steps=120)
    assert abs(abs(written.records.samples.u[0, 0] - 0.3) - 0.1) < 1e-12
    assert replayed(written)[0] == 0
    with pytest.raises(ValueError, match="before: .* is outside of the bounds"):
        LimitedLaw(scheduled, 10.0, bounds={"force": 1.2}, before=2.0)
    with pytest.raises(ValueError, match="two increasing values of x"):
        ScheduledLaw(f, "x", np.zeros(2), *(a[:2] for a in (scheduled.X, scheduled.U, scheduled.K)))
    with pytest.raises(ValueError, match="changes > 0 per second"):
        LimitedLaw(laws[0], 0.0)


@needs_compiler
def test_bad_samples_do_not_stop_a_controller(cart, tmp_path):
    """NaN from a sensor leaves the prediction; two states do not know of each other."""
    f, upright, law, sensors = cart
    loop = ClosedLoop(f, law, kalman(f, upright, sensors, 1e-10, W_u=0.04))
    written = write_target(tmp_path / "two", loop, upright.x + 0.01, steps=20)
    c = loaded(written)
    c.two_memory.restype = ctypes.c_ulong
    states = [np.zeros(c.two_memory(), np.uint8) for _ in range(2)]
    for s in states:
        c.two_start(pointer(s), None)
    s, u = written.records.samples, np.zeros(1)
    for k in range(20):
        for state, y in zip(states, (s.y[k], np.full(2, np.nan)), strict=True):
            status = c.two_output(pointer(state), pointer(y.copy()), pointer(u))
            assert status == (0 if np.isfinite(y).all() else 8) and np.isfinite(u).all()
            if status == 0:
                np.testing.assert_allclose(u, s.u[k], rtol=1e-10, atol=1e-12)
            c.two_advance(pointer(state), pointer(u))


@needs_compiler
def test_every_operation(tmp_path):
    """The emitter against CasADi, operation by operation, and what it counts."""
    x, y = ca.SX.sym("x", 3), ca.SX.sym("y", 2)
    a, b, c = x[0], x[1], y[0]
    values = ca.vertcat(
        a + b * c - a / b, -a, 1 / b, 2 * a, (a * b) ** 2, ca.sqrt(ca.fabs(a)), ca.sin(a), ca.cos(a),
        ca.tan(a), ca.asin(a / 9), ca.acos(a / 9), ca.atan(a), ca.atan2(a, b), ca.sinh(a), ca.cosh(a),
        ca.tanh(a), ca.asinh(a), ca.acosh(2 + b * b), ca.atanh(a / 9), ca.exp(a), ca.log(2 + b * b),
        ca.log1p(b * b), ca.expm1(a), ca.hypot(a, b), ca.fmod(a, 0.7), ca.remainder(a, 0.7),
        ca.copysign(a, b), ca.erf(a),
        ca.floor(a), ca.ceil(a), ca.fmin(a, b), ca.fmax(a, b), ca.sign(a - b), ca.sign(a), (2 + b * b) ** a,
        (2 + b * b) ** 1.7, ca.if_else(a < b, c, a), ca.if_else(ca.logic_or(a <= b, c > 0), 1, -1),
        ca.logic_not(ca.logic_and(a < b, b < c)), a == b, a != b, (a < b) + (b < c), 0, -1.5e-7,
    )  # fmt: skip
    f = ca.Function(
        "f", [x, y], [values, ca.jacobian(values[:1], x), ca.SX(0, 1)], ["x", "y"], ["v", "J", "e"]
    )
    found = emit(f, "values")
    path = tmp_path / "values.c"
    head = "#include <math.h>\ntypedef double real;\nvoid call(const real *, const real *, real *, real *);\n"
    tail = "void call(const real *x, const real *y, real *v, real *J) { values(x, y, v, J, 0); }\n"
    path.write_text(head + found.source + tail)
    command = [COMPILER, *STRICT, "-shared", "-fPIC", str(path), "-o", str(tmp_path / "v.so"), "-lm"]
    subprocess.run(command, check=True)
    call = ctypes.CDLL(str(tmp_path / "v.so")).call
    rng = np.random.default_rng(0)
    for _ in range(20):
        given, v, J = [rng.standard_normal(3), rng.standard_normal(2)], np.zeros(f.numel_out(0)), np.zeros(3)
        call(*map(pointer, (*given, v, J)))
        expected = [np.array(o).ravel() for o in f(*given)]
        np.testing.assert_allclose(v, expected[0], rtol=1e-13, atol=1e-14)
        np.testing.assert_allclose(J, expected[1], rtol=1e-13)
    small = ca.Function("g", [x], [ca.sin(a) * b + a / b - ca.sqrt(b)], ["x"], ["v"])
    assert emit(small, "g").operations == Operations(adds=2, muls=1, divs=1, roots=1, calls=1)


def test_loops_are_counted():
    """Of `factor` and `solve`, against the loops of their text."""
    for n in (1, 2, 5, 9):
        inner = sum(1 for k in range(n) for i in range(k + 1, n) for j in range(k + 1, n))
        assert (factored(n).muls, factored(n).divs) == (inner, sum(n - k - 1 for k in range(n)))
        assert solved(n) == Operations(adds=n * (n - 1), muls=n * (n - 1), divs=n)
    assert {"factor", "solve", "multiply", "add_product", "all_finite"} == set(helpers())


def test_what_steps_linearizations_and_filters_cost_is_counted(cart, tmp_path):
    """Count as textbooks do factorizations, solutions and products of matrices, beside what formulas take."""
    f, upright, law, sensors = cart
    loop = ClosedLoop(f, law, ExtendedKalmanFilter(f, sensors, 1e-10))
    written = write_target(tmp_path / "cart", loop, upright.x + 0.01, steps=3)
    spent, equations = written.operations, split(f)
    own = {
        n: emit(getattr(equations, n), n).operations for n in ("newton", "equations", "result", "derivatives")
    }
    n, nx, nu = equations.n, f.nx, f.nu

    def factoring(n):  # (multiplications, divisions): n^3 / 3 - n / 3 together
        return np.array([n * (n - 1) * (2 * n - 1) // 6, n * (n - 1) // 2])

    def solving(n):
        return np.array([n * (n - 1), n])

    def both(operations):
        return np.array([operations.muls, operations.divs])

    times = written.iterations
    step = times * (both(own["newton"]) + factoring(n) + solving(n))
    step += both(own["equations"]) + solving(n) + [0, n] + both(own["result"])
    np.testing.assert_array_equal(both(spent["step"]), step)
    slopes = both(own["derivatives"]) + factoring(n) + (nx + nu) * (solving(n) + [nx * n, 0])
    np.testing.assert_array_equal(both(spent["linearize"]), step + slopes)
    assert product(2, 3, 5) == Operations(adds=30, muls=30)
    # A P A', B W_u B' and halves of the sum; all else is the linearization's
    ahead = 2 * nx**3 + nx * nu * nu + nx * nu * nx
    np.testing.assert_array_equal(both(spent["advance"]), step + slopes + [ahead, nx * nx])


def test_what_cannot_be_written(cart, tmp_path):
    f, upright, law, sensors = cart
    for name in ("2fast", "My", "a b"):
        with pytest.raises(ValueError, match="expected small letters, digits and _"):
            write_target(tmp_path, law, upright.x, name=name)
    with pytest.raises(ValueError, match="'double' or 'single', got 'half'"):
        write_target(tmp_path, law, upright.x, name="a", precision="half")
    with pytest.raises(TypeError, match="LinearMPC is not written in C"):
        write_target(tmp_path, LinearMPC(law, 3), upright.x, name="a")
    extended = ExtendedKalmanFilter(f, sensors, 1e-10, manifold=True)
    with pytest.raises(ValueError, match="singular values at every sample"):
        write_target(tmp_path, ClosedLoop(f, law, extended), upright.x, name="a", steps=2)
    with pytest.raises(ValueError, match="errors .12. are not its states .13"):
        write_target(tmp_path, vioc.MaximalVI(vioc.models.load("pendulum"), 0.01), None, name="a")
    with pytest.raises(ValueError, match="max_iterations: the recorded steps need ., got 1"):
        write_target(tmp_path, f, f.state(theta=2.0), name="a", max_iterations=1)
    mass, stop = vioc.tz("z", name="b", mass=2.0), vioc.JointLimits("z", 0.0, 1.0)
    for touch in (vioc.Contact.sphere("b", 0.1), vioc.components.DryFriction("z", 3.0), stop):
        touching = vioc.ContactVI(vioc.System(mass, vioc.Gravity(0, 0, -9.81), touch), 0.01)
        with pytest.raises(
            ValueError, match="contacts, limits of joints or dry friction .* not written in C"
        ):
            write_target(tmp_path, touching, touching.initial_state({"z": 0.3}), name="a", steps=2)
        late = vioc.control.feedback.DelayedMap(touching)
        with pytest.raises(ValueError, match="no equations"):
            write_target(tmp_path, late, late.initial_state({"z": 0.3}), name="a", steps=2)
    run = Steps.along(f.rollout(f.state(theta=0.5), steps=5))
    equations, where = split(f), (run.x0, run.u, run.k, "double")
    count = equations.iterations(*where, ends=run.x1)
    assert count == equations.iterations(*where)
    with pytest.raises(StepError, match="step 3: .* finds another root than the map"):
        equations.iterations(*where, ends=run.x1 + 1e-3 * (run.k == 3)[:, None])
    far = vioc.MidpointVI(vioc.models.load("double_pendulum"), 0.5)
    with pytest.raises(StepError, match="Use a smaller dt"):
        write_target(tmp_path, far, far.initial_state([3.0, 1.0], [9.0, -30.0]), name="a", steps=1)


def test_steps_of_any_map(tmp_path):
    """Formulas, implicit rules, parameters, time: the step's parts give the map's own steps."""
    pendulum = midpoint_pendulum()
    timed = ca.Function(
        "f", [(x := ca.SX.sym("x")), (u := ca.SX.sym("u")), (t := ca.SX.sym("t"))], [x + u + t]
    )
    for f, x0 in (
        (cart_pole(), [0.1, 0.2, 0.3, 0.4]),
        (pendulum, [0.3, 0.1]),
        (vioc.CasadiMap(timed, 0.5), [1.0]),
        (vioc.RungeKutta(vioc.models.load("cart_pole"), 0.01), [0.1, 0.2, 0.3, 0.4]),
    ):
        found = split(f)
        run = f.rollout(x0, np.full((3, f.nu), 0.2))
        for k in range(3):
            d = np.zeros(found.n)
            given = run.x[k], run.u[k], k * f.dt
            for _ in range(6):
                G, J = (np.array(m) for m in found.newton(d, *given))
                d = d - np.linalg.solve(J, G[:, 0]) if found.n else d
            np.testing.assert_allclose(np.array(found.result(d, *given)[0])[:, 0], run.x[k + 1], atol=1e-12)
    assert found.n == 0 and split(pendulum).n == 0 and target.write_target is write_target


@cache
def ahead_of_a_cart():
    """A problem of a cart-pole with a reference that jumps after 15 samples; what softens its bounds."""
    f = cart_pole(0.05)
    target_x = np.where(np.arange(60) < 15, 0.0, 0.3)
    goal = ca.SX.sym("goal")
    weights = ca.diag(ca.DM([20.0, 20.0, 0.2, 0.2]))
    e = f.symbols.x - ca.vertcat(goal, 0, 0, 0)
    cost = Cost(f, 0.5 * ca.bilin(weights, e) + 0.05 * ca.sumsqr(f.symbols.u), 10 * ca.bilin(weights, e),
                references=[(goal, target_x)])  # fmt: skip
    names = f.state_names
    bounds = {f"u.{f.input_names[0]}": 15.0, names[0]: (-0.25, 0.45)}
    return Problem(f, cost, 15, bounds=bounds), {names[0]: 1e3}


@needs_compiler
@pytest.mark.parametrize(
    ("precision", "how"),
    [("double", {}), ("single", {}), ("double", {"max_iterations": 12, "tolerance": 0.0})],
    ids=["double", "single", "fixed"],
)
def test_a_receding_horizon_replays_its_plans(precision, how, tmp_path):
    """Real-time iteration with bounds, a soft limit and a reference, from the start that swings up."""
    problem, soft = ahead_of_a_cart()
    f = problem.map
    law = NonlinearMPC(problem, soft=soft, native=True, **how)
    start = f.state({f.state_names[1]: 0.5})
    written = write_target(tmp_path / "plan", ClosedLoop(f, law), start, steps=25, precision=precision)
    u = written.records.samples.u
    assert "output" not in written.operations and "not counted" in (tmp_path / "plan/plan.h").read_text()
    assert 14.9 < np.abs(u).max() <= 15 and written.records.samples.estimates[-1, 0] > 0.1
    # The check for overflow of pointers takes a third of the time to compile; smaller folders keep it.
    checked = [*CHECKED, "-fno-sanitize=pointer-overflow"]
    code, text = replayed(
        written, *(checked if works(*checked) and precision == "double" and not how else [])
    )
    assert code == 0 and "inputs" in text, text
    fixed = "PLAN_TOLERANCE 0.0" in (tmp_path / "plan/plan.c").read_text()
    assert fixed == bool(how)
    if precision == "double":  # no answer is no end
        c = loaded(written)
        c.plan_memory.restype = ctypes.c_ulong
        state, u, far = np.zeros(c.plan_memory(), np.uint8), np.zeros(1), np.full(4, 1e300)
        c.plan_start(pointer(state), None)
        for y, expected in ((start, 0), (far, 16), (np.full(4, np.nan), 8)):
            status = c.plan_output(pointer(state), pointer(y), pointer(u))
            assert status & expected == expected and (expected or not status)
            assert np.isfinite(u).all() and np.abs(u).max() <= 15.0
            c.plan_advance(pointer(state), pointer(u))


def test_a_receding_horizon_with_newton_is_not_written(tmp_path):
    problem, _ = ahead_of_a_cart()
    f, two = problem.map, NonlinearMPC(problem, newton=2, native=True)
    with pytest.raises(ValueError, match="a NonlinearMPC with newton is not written in C"):
        write_target(tmp_path / "two", ClosedLoop(f, two), f.state({f.state_names[1]: 0.5}), steps=2)


@needs_compiler
@pytest.mark.parametrize(
    "bounds",
    [
        pytest.param({"u.force": 30.0}, marks=pytest.mark.slow, id="input"),
        pytest.param({"v.x": 0.6}, id="general"),
    ],
)
def test_a_receding_horizon_with_one_limit(bounds, tmp_path):
    """A limit alone, of an entry of (x, u) or of none: its rows are as long as the arrays that hold them."""
    f = cart_pole(0.05)
    ahead = Problem(f, quadratic(f, Q=10.0, R=0.1, Qf=10.0), 8, bounds=bounds)
    law = NonlinearMPC(ahead, soft={n: 1e3 for n in bounds if n != "u.force"}, native=True)
    start = f.state({f.state_names[1]: 0.5})
    written = write_target(tmp_path / "one", ClosedLoop(f, law), start, steps=8)
    within = ("-fsanitize=address,bounds", "-fno-sanitize-recover=all")  # of arrays: what this is about
    code, text = replayed(written, *(within if works(*within) else []))
    assert code == 0 and "inputs" in text, text


@needs_compiler
def test_angles_half_a_turn_apart_are_one_error_in_c_and_python(cart, tmp_path):
    f, upright, law, _ = cart
    hanging = f.state({"theta": np.pi})
    assert f.difference(upright.x, hanging) == pytest.approx(
        np.array(ca.DM(f.space.difference_expression(ca.DM(upright.x), ca.DM(hanging))))[:, 0], abs=0
    )
    code, text = replayed(write_target(tmp_path / "half", law, hanging, steps=2))
    assert code == 0, text


@needs_compiler
def test_covariances_that_are_not_diagonal_are_the_filter_s_in_c(cart, tmp_path):
    f, upright, law, _ = cart
    V = np.array([[1e-6, 1.5e-6], [1.5e-6, 4e-6]])
    sensors = Measurement(f, ("x", "theta"), V)
    mixed = np.random.default_rng(5).standard_normal((4, 4))
    W, P0 = (size * (mixed @ mixed.T + np.eye(4)) for size in (1e-8, 1e-4))
    loop = ClosedLoop(f, law, ExtendedKalmanFilter(f, sensors, W, W_u=0.04, P0=P0), W=W, W_u=0.04)
    written = write_target(tmp_path / "mixed", loop, upright.x + 0.05, steps=40)
    code, text = replayed(written)
    assert code == 0, text
    plain = ExtendedKalmanFilter(f, Measurement(f, ("x", "theta"), np.diag(np.diag(V))), W, W_u=0.04, P0=P0)
    other = ClosedLoop(f, law, plain, W=W, W_u=0.04)
    apart = write_target(tmp_path / "apart", other, upright.x + 0.05, steps=40).records.samples
    assert np.abs(apart.estimates - written.records.samples.estimates).max() > 1e-4


@needs_compiler
def test_disturbances_and_biases_are_estimated(cart, tmp_path):
    """A law without offset on an extended map: wind on the cart, a bias of its encoder, counts."""
    f, upright, law, _ = cart
    wide = ExtendedMap(f, disturbances=["force"], biases=["theta"])
    encoders = Measurement(wide, ("x", "theta"), counts={"theta": 4096}, resolution={"x": 1e-4})
    walk = {n: 1e-9 for n in f.state_names} | {"disturbance.force": 1e-3}
    loop = ClosedLoop(
        wide, OffsetFree(law, wide), ExtendedKalmanFilter(wide, encoders, walk, P0=1e-3), {"force": 12}
    )
    windy = wide.join(upright.x + 0.01, {"disturbance.force": 1.5, "bias.theta": 0.01})
    written = write_target(tmp_path / "wind", loop, windy, steps=80, estimate=wide.join(upright.x))
    assert replayed(written)[0] == 0
    rates = Measurement(f, ("x", "theta"), counts={"theta": 4096}, resolution={"x": 1e-4}, every={"x": 3})
    for refused, text in (
        (ClosedLoop(f, law, ExtendedKalmanFilter(f, rates, 1e-9)), "rates of its own .`every`. is not"),
        (ClosedLoop(f.with_dt(0.005), law, hold=True), "law: made for steps of 0.01 s.*in C all run at one"),
        (ClosedLoop(wide, OffsetFree(law, wide, hold="x"), loop.observer), "solves for its target"),
    ):
        with pytest.raises(ValueError, match=text):
            write_target(tmp_path / "no", refused, refused.plant.state(), steps=4)
