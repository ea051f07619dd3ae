"""Numbers that no computation should begin with are refused where they are given, in words."""

import itertools
import warnings

import numpy as np
import pytest

import vioc
from vioc import control, identification
from vioc.control import feedback
from vioc.errors import FileFormatError, ReadError
from vioc.runs import Table

SYSTEM = vioc.System(
    vioc.tx("x", name="cart", mass=1.0)[vioc.ry("theta")[vioc.tz(0.5, name="pole", mass=vioc.P("bob", 0.3))]],
    vioc.Gravity(0, 0, -9.81),
    vioc.JointForce("x", "force"),
)
F = vioc.MidpointVI(SYSTEM, 0.02)
X0 = F.initial_state({"theta": 0.3})
SENSORS = feedback.Measurement(F, {"x": 1e-6, "theta": 1e-6})

OBSERVER = feedback.ConfigurationObserver(F)
COST = control.quadratic(F, Q={"x": 1.0}, R=1.0)
ARRAYS = {  # calls with an array of the state's, the inputs' or a weight's shape
    "step": (lambda x: F.step(x), (4,)),
    "rollout": (lambda x: F.rollout(x, steps=2), (4,)),
    "rollouts": (lambda X: F.rollouts(X, steps=2), (3, 4)),
    "inputs of a rollout": (lambda U: F.rollout(X0, U), (3, 1)),
    "inputs of rollouts": (lambda U: F.rollouts(X0[None], U), (2, 3, 1)),
    "initial_state": (lambda q: F.initial_state(q), (2,)),
    "a signal": (lambda u: vioc.inputs(F, 4, force=u), (4,)),
    "a weight": (lambda Q: control.quadratic(F, Q=Q, R=0.1), (4, 4)),
    "a measurement": (lambda y: SENSORS.innovation(X0, y), (2,)),
    "a state that is measured": (lambda x: SENSORS(x), (4,)),
    "a bound": (lambda b: control.optimize(F, COST, x0=X0, steps=4, bounds={"force": (-9, b)}), (4,)),
    "values of a parameter": (lambda v: F.rollouts(X0[None], steps=2, parameters={"bob": v}), (3,)),
    "a place": (lambda x: F.frame_positions(x), (4,)),
    "the difference of states": (lambda x: F.difference(X0, x), (4,)),
    "a change of a state": (lambda dx: F.retract(X0, dx), (4,)),
    "a measured configuration": (lambda y: OBSERVER.correct(0, OBSERVER.start(X0), y), (2,)),
    "steps of their own lengths": (lambda dt: F.rollout(X0, steps=3, dt=0.01 * dt), (3,)),
}


@pytest.mark.parametrize("what", ARRAYS)
def test_imaginary_parts_are_not_left_out(what):
    call, shape = ARRAYS[what]
    array = np.ones(shape) + 1j * (np.arange(np.prod(shape)).reshape(shape) == 1)
    with pytest.raises(ValueError, match=r"expected real numbers, got .*j.* in entry .*take value.real"):
        call(array)


@pytest.mark.parametrize("what", ARRAYS)
def test_numbers_behind_a_mask_are_not_used(what):
    call, shape = ARRAYS[what]
    array = np.ma.array(np.ones(shape), mask=np.arange(np.prod(shape)).reshape(shape) == 1)
    with pytest.raises(ValueError, match=r"got a masked array that hides entry .*fill it"):
        call(array)


def test_arrays_without_imaginary_parts_or_masked_entries_are_numbers():
    plain = F.step(X0)
    for x in (X0 + 0j, np.ma.array(X0), np.ma.array(X0, mask=False), list(X0)):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            np.testing.assert_array_equal(F.step(x), plain)


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda v: F.with_parameters(bob=v), "parameter 'bob': expected a number"),
        (lambda v: F.initial_state(theta=v), "theta: expected a number"),
        (lambda v: vioc.Mass(v), "mass: expected a number"),
        (lambda v: vioc.se3((v, 0, 0)), "position: expected a number"),
    ],
)
@pytest.mark.parametrize(
    "value", [1j, np.complex128(1 + 1j), np.array(1 + 1j)], ids=["python", "numpy", "array"]
)
def test_complex_numbers_are_none(call, error, value):
    with pytest.raises(ValueError, match=error):
        call(value)


def test_what_a_mask_hides_in_a_record_was_not_measured(tmp_path):
    t, theta = np.arange(5) * 0.1, np.ma.array(np.ones(5), mask=[0, 1, 0, 0, 0])
    measured = identification.Record(t, {"theta": theta}, {"force": 0.0}).measured["theta"]
    np.testing.assert_array_equal(measured, [1, np.nan, 1, 1, 1])
    np.testing.assert_array_equal(Table.read({"t": t, "theta": theta})["theta"], measured)
    with pytest.raises(ValueError, match="column 'force' has no number at t = 0.1 s"):
        vioc.inputs(F, 3, {"t": t, "force": theta})


UPRIGHT = control.equilibrium(F, theta=0.0)
LOOP = control.dlqr(F, UPRIGHT, {"theta": 100, "x": 1}, 1.0)
RUN = F.rollout(X0, steps=20)
RECORD = identification.Record(RUN.t, {"x": RUN["x"], "theta": RUN["theta"]}, {"force": 0.0})
HORIZON = dict(horizon=3, W=1e-8, P0=1e-4)
POSITIVE = {
    "midpoint": lambda v: vioc.MidpointVI(SYSTEM, 0.01, tolerance=v),
    "Runge-Kutta": lambda v: vioc.RungeKutta(SYSTEM, 0.01, tolerance=v),
    "Galerkin": lambda v: vioc.GalerkinVI(SYSTEM, 0.01, tolerance=v),
    "linear time": lambda v: vioc.LinearTimeVI(SYSTEM, 0.01, tolerance=v),
    "maximal": lambda v: vioc.MaximalVI(SYSTEM, 0.01, tolerance=v),
    "moving horizon": lambda v: feedback.MovingHorizon(F, SENSORS, **HORIZON, tolerance=v),
    "equilibrium": lambda v: control.equilibrium(F, theta=0.0, tolerance=v),
    "identify": lambda v: identification.identify(F, RECORD, ["bob"], tolerance=v),
    "consistent configuration": lambda v: vioc.consistent_configuration(SYSTEM, tolerance=v),
    "robust": lambda v: control.robust_dlqr(F, UPRIGHT, {"x": 1}, 1.0, [{"bob": 0.3}], tolerance=v),
}
RELATIVE = {
    "controllability": lambda v: control.controllability(F, UPRIGHT, tolerance=v),
    "observability": lambda v: control.observability(F, UPRIGHT, ["theta"], tolerance=v),
    "observability of a motion": lambda v: control.observability(F, RUN, ["theta"], tolerance=v),
    "accessibility": lambda v: control.accessibility(vioc.Continuous(SYSTEM), np.zeros(4), tolerance=v),
}


@pytest.mark.parametrize("what", POSITIVE)
@pytest.mark.parametrize("value", [-1, 0, np.nan, np.inf])
def test_tolerances_are_positive(what, value):
    with pytest.raises(ValueError, match=f"tolerance: expected a number > 0, got {value}"):
        POSITIVE[what](value)


@pytest.mark.parametrize("what", RELATIVE)
@pytest.mark.parametrize("value", [-1, 0, 1, np.nan, np.inf])
def test_relative_tolerances_are_positive_and_less_than_one(what, value):
    """Otherwise all directions would count, or none."""
    with pytest.raises(ValueError, match=f"tolerance: expected a number > 0 and < 1, got {value}"):
        RELATIVE[what](value)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: control.LinearMPC(LOOP, 5, rate=-1),
            "rate: expected changes > 0 per second, .* got -1",
        ),
        (lambda: control.LinearMPC(LOOP, 5, rate=[np.nan]), "rate"),
        (lambda: feedback.ExtendedMap(F, steps=-1), "steps: expected a whole number >= 1, got -1"),
        (lambda: feedback.ExtendedMap(F, steps=0), "steps: expected a whole number >= 1, got 0"),
        (lambda: feedback.ExtendedMap(F, steps=1.5), "steps: expected a whole number >= 1, got 1.5"),
        (lambda: vioc.MidpointVI(SYSTEM, 1e300), "dt: .* whose squares are numbers > 0, got 1e\\+300"),
        (lambda: F.rollout(X0, steps=2, dt=1e-200), "dt: .* whose squares are numbers > 0, got 1e-200"),
        (lambda: identification.identify(F, RECORD, []), "nothing to estimate: name parameters"),
        (
            lambda: identification.identify(F, RECORD, ["bob"], max_iterations=-1),
            "max_iterations: expected a whole number",
        ),
        (
            lambda: identification.identify(F, RECORD, ["bob"], segment=-1),
            "segment: expected a number > 0, got -1",
        ),
        (
            lambda: F.second_order(X0, None, np.ones(3)),
            r"weights z of the next state: expected shape \(4,\)",
        ),
        (lambda: F.second_order(X0, None, np.ones(4), zeta=np.ones(2)), r"zeta: expected shape \(1, 0\)"),
        (
            lambda: F.second_order_trajectory(RUN, np.ones((20, 3))),
            r"weights z of the next state: expected shape \(20, 4\)",
        ),
        (lambda: SENSORS(np.zeros(3)), r"state: expected shape \(4,\) or \(N, 4\), got \(3,\)"),
        (
            lambda: SENSORS.jacobian(np.zeros((2, 3))),
            r"state: expected shape \(4,\) or \(N, 4\), got \(2, 3\)",
        ),
        (
            lambda: SENSORS.innovation(X0, np.zeros(1)),
            r"measurement: expected shape \(2,\) in the order x, theta",
        ),
        (lambda: F.difference(X0, np.zeros(3)), r"x1: expected shape \(..., 4\), got \(3,\)"),
        (lambda: F.retract(X0, 1.0), r"dx: expected shape \(..., 4\), got \(\)"),
        (
            lambda: OBSERVER.correct(0, OBSERVER.start(X0), np.zeros(3)),
            r"measurement: expected shape \(2,\) in the order x, theta",
        ),
        (
            lambda: feedback.Measurement(F, ["x"], every={"x": (5, 2, 1)}),
            r"every: of x expected n >= 1, or \(n, first >= 0\), got \(5, 2, 1\)",
        ),
        (lambda: feedback.Measurement(F, ["x"], every={"x": "ab"}), "every: of x expected n >= 1, .* 'ab'"),
        (lambda: vioc.sweeps.grid(mass=True), "grid: expected several values of mass, got True"),
        (
            lambda: vioc.Continuous(SYSTEM).forward([[1.0], [1.0, 2.0]], None),
            "configuration: expected numbers, got",
        ),
        (
            lambda: control.optimize(F, COST, x0=np.full(4, 1e308), steps=4),
            "leads to no trajectory: step 0 .* does not exist",
        ),
        (
            lambda: control.LinearMPC(LOOP, 5, bounds={"force": 9.0})(0, np.full(4, 1e308)),
            r"sample 0: the solver daqp fails; the state is 1e\+308 away from the reference",
        ),
    ],
)
def test_what_fits_nothing_is_named(call, message):
    with pytest.raises((ValueError, vioc.OptimizationError), match=message), np.errstate(all="ignore"):
        call()


@pytest.mark.parametrize("names", [[1], ["bob", None], 1, None])
def test_names_are_texts(names):
    with pytest.raises(TypeError, match="expected (a name or )?names, got (1|None)"):
        identification.identify(F, RECORD, names)


def test_a_moving_horizon_names_a_measurement_of_another_size():
    observer = feedback.MovingHorizon(F, SENSORS, **HORIZON)
    with pytest.raises(
        ValueError, match=r"measurement: expected shape \(2,\) in the order x, theta, got \(1,\)"
    ):
        observer.correct(0, observer.start(X0), np.zeros(1))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("t,force\n", "only a line with the names of columns, expected rows below it"),
        ("t,force\n\n\n", "only a line with the names of columns"),
        ("t,force\n0,1\n1,\0\n", "not a CSV file: a NUL character in line 3"),
        ("t,fo\0rce\n0,1\n1,2\n", "not a CSV file: a NUL character in line 1"),
        ("t,force,force\n0,1,1\n", "expected a name of its own for each column, got force twice"),
        ("t,force\n0,1\n1\n", "row 2 has 1 cells, expected 2"),
        ("t,force\n0,1\n1,one\n", "column 'force' has 'one', expected numbers"),
        ("t,force\n0,1\n1,1_0\n", "column 'force' has '1_0', expected numbers"),
        ("t,force\n0,1\n1,\u0661\u0660\n", "column 'force' has '\u0661\u0660', expected numbers"),
        ("0,1\n1,2\n", "line 1 has numbers"),
    ],
)
def test_csv_files_that_are_no_records_are_named(tmp_path, text, message):
    path = tmp_path / "record.csv"
    path.write_text(text)
    with pytest.raises(FileFormatError, match=f"record.csv: .*{message}"):
        vioc.inputs(F, 3, path)


def test_plain_numbers_are_read_as_any_others(tmp_path):
    """A file of numbers alone is read at once, one with an empty cell cell by cell: with the same bits."""
    rng = np.random.default_rng(0)
    rows = np.column_stack(
        [np.arange(200) * 0.1, rng.standard_normal((200, 3)) * 10.0 ** rng.integers(-300, 300, (200, 3))]
    )
    cells = [[repr(float(v)) for v in row] for row in rows]
    path = tmp_path / "record.csv"
    for end, quoted, last in itertools.product(("\n", "\r\n"), (False, True), ("", "\n")):
        lines = [",".join(f'"{c}"' if quoted and i == 2 else c for i, c in enumerate(row)) for row in cells]
        path.write_text(end.join(["t [s],a,b,c", *lines]) + last * len(end), newline="")
        table = Table.read(path)
        assert list(table) == ["t", "a", "b", "c"] and table.units == {"t": "s"}
        np.testing.assert_array_equal(np.column_stack([table[n] for n in table]), rows)


def test_ten_thousand_columns_are_read(tmp_path):
    names = [f"c{i}" for i in range(10_000)]
    path = tmp_path / "wide.csv"
    path.write_text(",".join(["t", *names]) + "\n" + (",".join(["0.5"] * 10_001) + "\n") * 2)
    assert len(Table.read(path)) == 10_001
    path.write_text(",".join(["t", *names, "c9999"]) + "\n" + ",".join(["0.5"] * 10_002) + "\n")
    with pytest.raises(FileFormatError, match="got c9999 twice"):
        Table.read(path)


def test_long_strings_of_a_model_text_are_read_and_not_quoted_whole():
    long = "a" * 3_000_000
    with pytest.raises(ReadError) as caught:
        vioc.read_text(f'(SYSTEM "{long}")')
    assert len(str(caught.value)) < 200
    escaped = "b\\\\" * 500
    system = vioc.read_text(f'(SYSTEM (TX "x" (NAME "{long[:1000]}")) (TY "y" (NAME "{escaped}")))')
    assert system.frame_names == (long[:1000], "b\\" * 500)


def test_names_that_no_message_can_hold_are_refused_in_few_words():
    """A string of 2 MB as a name: of the system, of a frame, of a variable, with a space, of backslashes."""
    long = "a" * 2_000_000
    for text in (
        f'(system (name "{long}"))',
        f'(system (tx "x" (name "{long}") (mass 1)))',
        f'(system (tx "{long}" (mass 1)))',
        f'(system (tx " {long}" (mass 1)))',
        f'(system (tx "x" (name "{chr(92) * 2_000_000}") (mass 1)))',
    ):
        with pytest.raises(vioc.ModelError, match=r"1000 characters|\(2000003 characters") as caught:
            vioc.read_text(text)
        assert len(str(caught.value)) < 1000
    kept = vioc.System(vioc.tx("x" * 1000, name="y" * 1000, mass=1.0), name="z" * 1000)
    assert vioc.read_text(vioc.write_text(kept)) == kept


@pytest.mark.parametrize(
    ("y", "said"),
    [
        ("ab", "measurement: expected numbers, got 'ab'"),
        ({"x": 1.0}, "measurement: expected an array in the order x, theta, got a dict of x"),
        (None, r"measurement: expected .*got"),
    ],
)
def test_measurements_that_are_no_numbers(y, said):
    f = vioc.MidpointVI(vioc.models.load("cart_pole"), 0.02)
    sensors = feedback.Measurement(f, {"x": 1e-6, "theta": 1e-6})
    window = feedback.MovingHorizon(f, sensors, horizon=3, W=1e-8, P0=1e-4)
    with pytest.raises(ValueError, match=said):
        window.correct(0, window.start(f.initial_state()), y)


def test_weights_of_second_derivatives_that_are_no_numbers():
    f = vioc.MidpointVI(vioc.models.load("cart_pole"), 0.02)
    for z, said in (
        ("abc", "expected numbers of shape"),
        (np.ones(3), r"expected shape \(4,\) .*got \(3,\)"),
    ):
        with pytest.raises(ValueError, match=f"weights z of the next state: {said}"):
            f.second_order(f.initial_state(), None, z)
