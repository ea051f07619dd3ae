"""Data in and out: tables, records as inputs, other steps, joints, results taken as trajectories."""

import csv
import json

import casadi as ca
import numpy as np
import pytest

import vioc
from vioc import CasadiMap, ModeVI, models
from vioc.control import ClosedLoop, Cost, controllability, dlqr, dmoc, equilibrium, join, optimize, quadratic
from vioc.control.feedback import covariance
from vioc.errors import FileFormatError, ModelError
from vioc.runs import Table
from vioc.sweeps import Sweep, grid, sweep

ARRAYS = "t", "x", "u", "multipliers"


@pytest.fixture(scope="module")
def cart():
    return vioc.MidpointVI(models.load("cart_pole"), dt=0.02)


@pytest.fixture(scope="module")
def run(cart):
    U = np.random.default_rng(0).normal(size=(40, 1))
    return cart.rollout(cart.initial_state({"theta": 0.3}), U, k0=5)


def rod(steps):
    """A pendulum of a mass in the plane and a rod."""
    bob = vioc.tx("x")[vioc.tz("z", name="bob", mass=1.0)]
    system = vioc.System(
        bob, vioc.Gravity(0, 0, -9.81), vioc.DistanceConstraint("bob", "world", 1.0, name="rod")
    )
    f = vioc.MidpointVI(system, dt=0.01)
    return f.rollout(f.initial_state({"x": 0.6, "z": -0.8}), steps=steps)


def same(a, b):
    return a.k0 == b.k0 and all(np.array_equal(getattr(a, n), getattr(b, n)) for n in ARRAYS)


# -- tables ---------------------------------------------------------------------------------------


def test_csv_there_and_back(run, tmp_path):
    path = run.save(tmp_path / "run.csv")
    with open(path, newline="") as file:
        head = next(csv.reader(file))
    assert head == [
        "t [s]",
        "k",
        "x [m]",
        "theta [rad]",
        "p.x [kg m/s]",
        "p.theta [kg m^2/s]",
        "u.force [N]",
    ]
    assert same(vioc.Trajectory.load(path, run.map), run)
    rows = path.read_text().splitlines()
    path.write_text("\n".join([rows[0].replace("u.force", "force"), *rows[1:]]))  # a short name will do
    assert same(vioc.Trajectory.load(path, run.map), run)


def test_rows_that_are_missing_are_not_passed_over(run, tmp_path):
    path = run.save(tmp_path / "run.csv")
    rows = path.read_text().splitlines()
    path.write_text("\n".join([*rows[:3], *rows[4:]]))
    with pytest.raises(FileFormatError, match="k: 6 is followed by 8; rows are missing"):
        vioc.Trajectory.load(path, run.map)
    with pytest.raises(ValueError, match="written as .npz or .csv"):
        run.save(tmp_path / "run.xlsx")


def test_pandas_and_xarray_there_and_back(run):
    pytest.importorskip("pandas")
    frame = run.table().to_pandas()
    assert frame.index.name == "t" and frame.attrs["units"]["theta"] == "rad"
    assert same(vioc.Trajectory.load(frame, run.map), run)
    batch = run.map.rollouts(run.x[:3], U=run.u[:5])
    assert batch.table("theta").to_pandas().loc[1]["theta"].to_numpy() == pytest.approx(batch[1]["theta"])
    pytest.importorskip("xarray")
    dataset = run.table().to_xarray()
    assert dataset["theta"].attrs["units"] == "rad" and dataset.sizes == {"t": 41}
    assert same(vioc.Trajectory.load(dataset, run.map), run)
    assert batch.table("theta").to_xarray()["theta"].shape == (3, 6)


def test_multipliers_and_phases_there_and_back(tmp_path):
    swing = rod(10)
    f = swing.map
    assert same(vioc.Trajectory.load(swing.save(tmp_path / "loop.csv"), f), swing)
    hop = landing()
    assert same(vioc.Trajectory.load(hop.save(tmp_path / "hop.csv"), hop.map), hop)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("theta [rad]", "theta [deg]"), r"'theta' is in deg, expected rad"),
        (("theta [rad]", "thata [rad]"), "unknown name 'thata'; did you mean 'theta'"),
        (("p.x [kg m/s]", "energy [J]"), "needs the columns p.x"),
        (("p.x [kg m/s]", "x [m]"), "x twice"),
        (("t [s]", "time"), "unknown name 'time'"),
    ],
)
def test_tables_that_are_no_trajectory_are_refused(run, tmp_path, change, message):
    path = run.save(tmp_path / "run.csv")
    path.write_text(path.read_text().replace(*change))
    with pytest.raises(FileFormatError, match=message):
        vioc.Trajectory.load(path, run.map)


def test_a_missing_number_is_found(run, tmp_path):
    columns = dict(run.table())
    columns["u.force"] = np.where(np.arange(41) == 3, np.nan, columns["u.force"])
    with pytest.raises(FileFormatError, match=r"u\.force has no number at t = 0\.16 s"):
        vioc.Trajectory.load(Table(columns), run.map)
    with pytest.raises(ValueError, match="has no number at t = 0.16 s, in 1 rows"):
        vioc.inputs(run.map, 40, Table(columns), k0=5)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "an empty file"),
        ("1,2\n3,4\n", "line 1 has numbers"),
        ("t,x\n1\n", "row 1 has 1 cells, expected 2"),
        ("t,x\n0,1,1,5\n", "numbers with commas need ; between columns"),
        ("t;x\n0,1;1,5;2\n", "row 1 has 3 cells, expected 2"),
        ('t,x\n"1,2\n', "not a CSV file"),
    ],
)
def test_files_that_are_no_tables_are_refused(tmp_path, text, message):
    path = tmp_path / "bad.csv"
    path.write_text(text)
    with pytest.raises(FileFormatError, match=message):
        Table.read(path)


@pytest.mark.parametrize(("between", "comma"), [(";", ","), (";", "."), ("\t", ","), ("\t", ".")])
def test_semicolons_tabs_and_decimal_commas(tmp_path, between, comma):
    path = tmp_path / "log.csv"
    rows = ["t [s]", "F [N]", "note"], ["0", "-1.5e2", "a,b"], ["0.01", ".25", ""]
    numbers = [[c.replace(".", comma) for c in row] for row in rows]
    path.write_text("\n".join(between.join(row) for row in numbers))
    table = Table.read(path)
    assert list(table["t"]) == [0.0, 0.01] and list(table["F"]) == [-150.0, 0.25]
    assert table.units["F"] == "N" and table["note"][0] == "a,b"


def test_heads_of_columns(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("\ufefft (s), F [N] ,note\n0,1,a\n1,,b\n")
    table = Table.read(path)
    assert dict(table.units) == {"t": "s", "F": "N"} and table.index == ("t",)
    assert np.isnan(table["F"][1]) and list(table["note"]) == ["a", "b"]
    assert table.only("F").complete().rows == 1
    assert list(table.renamed({"F": "force"})) == ["t", "force", "note"]
    with pytest.raises(FileFormatError, match="has 'a', expected numbers"):
        table.numbers("note")


# -- records as inputs ----------------------------------------------------------------------------


def test_a_saved_run_gives_its_inputs_to_the_bit(run, tmp_path):
    path = run.save(tmp_path / "run.csv")
    assert np.array_equal(vioc.inputs(run.map, 40, path, k0=5), run.u)
    half = vioc.inputs(run.map.with_dt(0.01), 80, path, k0=10)
    assert np.array_equal(half, np.repeat(run.u, 2, axis=0))
    with pytest.raises(ValueError, match=r"reaches from 0\.1 to 0\.9 s"):
        vioc.inputs(run.map, 41, path, k0=5)


def test_measured_columns(run, tmp_path):
    t = np.linspace(0, 1, 21)
    log = Table({"t": t, "F": t**2}, {"F": "N"})
    drive = log.renamed({"F": "force"})
    held, straight = vioc.inputs(run.map, 50, drive), vioc.inputs(run.map, 50, force=log.signal("F", "line"))
    middle = 0.02 * (np.arange(50) + 0.5)
    assert held[:, 0] == pytest.approx((0.05 * np.floor(middle / 0.05 + 1e-9)) ** 2)
    assert abs(straight[:, 0] - middle**2).max() <= 0.05**2 / 4 * 1.001  # of a chord of t^2
    with pytest.raises(FileFormatError, match="unknown name 'F'"):
        vioc.inputs(run.map, 50, log)
    with pytest.raises(FileFormatError, match="none of the inputs force"):
        vioc.inputs(run.map, 50, {"t": t, "x": t})
    with pytest.raises(FileFormatError, match="is in kN, expected N"):
        vioc.inputs(run.map, 50, Table({"t": t, "force": t}, {"force": "kN"}))


def test_prescribed_variables_are_lines_between_samples():
    crane = vioc.tx(vioc.K("trolley"))[vioc.ry("a")[vioc.tz(-1, mass=1.0)]]
    f = vioc.MidpointVI(vioc.System(crane, vioc.Gravity(0, 0, -9.81)), dt=0.01)
    t = np.linspace(0, 0.2, 5)
    U = vioc.inputs(f, 20, {"t": t, "trolley": t**2})
    assert f.input_names == ("rho.trolley",)
    assert U[:, 0] == pytest.approx(np.interp(0.01 * np.arange(1, 21), t, t**2), abs=1e-15)
    run = f.rollout(f.initial_state(), U)
    assert run.resample(0.005, by="map").u[:, 0] == pytest.approx(
        np.interp(0.005 * np.arange(1, 41), t, t**2), abs=1e-15
    )
    with pytest.raises(FileFormatError, match="are next values"):
        vioc.inputs(f, 20, {"t": t, "rho.trolley": t})
    table = run.table()
    assert np.array_equal(vioc.inputs(f, 20, table), U)


# -- other steps, slices, joints --------------------------------------------------------------------


def test_slices_and_joints(run):
    first, last = run[:15], run[15:]
    assert len(first) == 15 and last.k0 == 20 and np.array_equal(run[-5:].x, run.x[-6:])
    assert same(join(first, last), run)
    again = run.map.rollout(first.x[-1], last.u)  # a run of its own, that begins at 0
    assert np.abs(join(first, again).x - run.x).max() < 1e-12
    assert join(first, again).t == pytest.approx(run.t, abs=1e-15)
    with pytest.raises(ValueError, match=r"does not begin where run 0 ends: .* is off by"):
        join(first, run[16:])
    with pytest.raises(ValueError, match="stride of 2"):
        run[::2]
    a, b = run.t[5], run.t[12] + 0.1 * run.map.dt
    with pytest.raises(TypeError, match=r"steps, not seconds; for these times it is run\[5:12\]"):
        run[a:b]
    with pytest.raises(TypeError, match=r"run\[:12\]"):
        run[:b]


def test_resampled_by_the_map_is_a_rollout(run):
    fine = run.resample(0.01, by="map")
    again = run.map.with_dt(0.01).rollout(run.x[0], np.repeat(run.u, 2, axis=0), k0=10)
    assert np.abs(fine.x - again.x).max() < 1e-12 and fine.t[-1] == run.t[-1] and fine.map.dt == 0.01
    coarse = run[1:39].resample(0.04, by="map")
    assert coarse.u == pytest.approx((run.u[1:39:2] + run.u[2:39:2]) / 2, abs=1e-14)
    with pytest.raises(ValueError, match="between two steps"):
        run.resample(0.04, by="map")


def test_resampled_by_lines_goes_through_the_samples(run):
    fine = run.resample(0.005, by="line")
    assert (
        np.abs(fine.x[::4] - run.x).max() < 1e-14
        and np.abs(fine.u - np.repeat(run.u, 4, axis=0)).max() < 1e-12
    )
    back = fine.resample(0.02, by="line")
    assert np.abs(back.x - run.x).max() < 1e-14
    for dt, message in ((0.03, "do not fill the run"), (0.32, "do not fill"), (-1, "a length > 0")):
        with pytest.raises(ValueError, match=message):
            run.resample(dt, by="line")
    with pytest.raises(ValueError, match='"map" or "line"'):
        run.resample(0.01, by="magic")


def test_impulses_keep_their_sum():
    run = rod(12)
    line, again = run.resample(0.005, by="line"), run.resample(0.005, by="map")
    assert line.multipliers.sum(axis=0) == pytest.approx(run.multipliers.sum(axis=0), abs=1e-14)
    # from the second step on: the first of a motion has the half of an impulse that lies in it
    assert line["lambda.rod"][2:] == pytest.approx(again["lambda.rod"][2:], rel=0.05)


def test_quaternions_stay_of_length_one():
    f = vioc.MaximalVI(models.load("pendulum"), dt=0.02)
    run = f.rollout(f.initial_state({f.system.variables[0]: 1.0}), steps=20)
    fine = run.resample(0.005, by="line")
    w = [i for i, n in enumerate(f.state_names) if n.startswith("q") and n[1] in "wxyz" and n[2] == "."]
    assert len(w) == 4 and np.abs((fine.x[:, w] ** 2).sum(axis=1) - 1).max() < 1e-12


def landing():
    """A ball falls, stays down, and is pushed up again: three phases, two jumps."""
    ball = vioc.tz("z", name="ball", mass=1.0)
    system = vioc.System(
        ball, vioc.Gravity(0, 0, -9.81), vioc.JointForce("z", "push"), vioc.Contact.point("ball", name="toe")
    )
    down = ModeVI(system, 0.01, sliding="toe")
    up = down.holding()
    fall = up.rollout(up.initial_state({"z": 0.049050}), steps=10)
    rest = down.rollout(fall.x[-1] * [0, 0], steps=5)
    rise = up.rollout(rest.x[-1], np.full((7, 1), 20.0))
    leap = ca.Function("leap", [ca.SX.sym("x", 2), ca.SX.sym("p", 0)], [ca.SX.zeros(2)])
    return join(fall, rest, rise, jumps=[leap, None])


def test_a_saved_slice_knows_the_step_before_it(tmp_path):
    f = vioc.MidpointVI(vioc.models.load("closed_chain"), 0.01)
    guess = {"J": -0.62, "H": 1.35, "K": 0.1, "M": -1.34, "A": 0.04, "C": 1.28, "E": 0.93}
    run = f.rollout(
        f.initial_state(vioc.consistent_configuration(f.system, guess)), steps=4, dt=[0.01, 0.02] * 2
    )
    part, name = run[2:], f"lambda.{f.multiplier_names[0]}"
    loaded = vioc.Trajectory.load(part.save(tmp_path / "part"), f)
    assert loaded.before == part.before == pytest.approx(0.02)
    np.testing.assert_array_equal(loaded.impulse_lengths, run.impulse_lengths[2:])
    np.testing.assert_array_equal(loaded[name], run[name][2:])
    written = vioc.Trajectory.load(part.save(tmp_path / "part.csv"), f)
    assert written.before == part.before
    np.testing.assert_array_equal(written[name], run[name][2:])
    head = part.table()
    assert head.units["step before"] == "s" and "step before" not in run.table()
    old = vioc.Trajectory.load(head.only(*(n for n in head if n != "step before")), f)  # of earlier versions
    assert old.before is None
    with pytest.raises(FileFormatError, match="'step before' should be a length > 0, s, got nan"):
        vioc.Trajectory.load(Table({**head, "step before": np.full(3, np.nan)}, head.units, head.index), f)
    joined = join(run[1:3], run[3:])
    assert joined.before == run[1:].before and run[1:2].map.dt == pytest.approx(0.02)
    np.testing.assert_array_equal(joined.impulse_lengths, run.impulse_lengths[1:])


def test_phases_join_slice_and_resample():
    hop = landing()
    assert hop.map.steps_of == (10, 5, 7) and hop["force.toe"][12] == pytest.approx(9.81)
    assert len(hop[8:13]) == 5 and hop[8:13].x[0] == pytest.approx(hop.x[8])
    again = hop.map.rollout(hop.x[0], hop.u)
    assert np.abs(again.x - hop.x).max() < 1e-12
    fine = hop.resample(0.005, by="map")
    assert fine.map.steps_of == (20, 10, 14)
    assert np.abs(fine["z"][20:31]).max() < 1e-12 and fine["force.toe"][24] == pytest.approx(9.81)
    with pytest.raises(ValueError, match="states jump"):
        hop.resample(0.005, by="line")
    with pytest.raises(ValueError, match="within a step"):
        hop.resample(0.02, by="map")
    assert len(join(hop, hop.map.maps[0].rollout(hop.x[-1], np.zeros((3, 1))))) == 25
    assert len(hop.plot("z", "force.toe")) == 2


def test_a_map_of_time_keeps_its_time():
    x, u, t, dt = (ca.SX.sym(n) for n in "xuth")
    f = CasadiMap(
        ca.Function("f", [x, u, t, dt], [x + dt * (u + t)]), 0.1, state_names=("x",), input_names=("u",)
    )
    run = f.rollout([0.0], np.zeros((10, 1)))
    assert same(join(run[:5], run[5:]), run)
    with pytest.raises(ValueError, match="depends on time"):
        join(run, f.rollout(run.x[-1], np.zeros((5, 1))))


# -- sweeps -----------------------------------------------------------------------------------------


def shoot(mass, angle):
    if mass > 2:
        raise ValueError("too heavy")
    return {"range": mass * angle, "path": np.array([mass, angle]), "angle": -angle, "kind": "a"}


def test_sweeps_as_rows_and_in_files(tmp_path):
    points, path = grid(mass=[1.0, 3.0], angle=[0.5]), tmp_path / "shots.jsonl"
    found = sweep(shoot, points, workers=0, store=path)
    first, second = found.rows
    want = {"task": 0, "mass": 1.0, "angle": 0.5, "range": 0.5, "path[0]": 1.0, "path[1]": 0.5}
    assert {**first, "seconds": 0} == {**want, "value.angle": -0.5, "kind": "a", "error": "", "seconds": 0}
    assert second["mass"] == 3.0 and second["error"] == "ValueError: too heavy"
    table = Table.read(found.table().write(tmp_path / "shots.csv"))
    assert np.isnan(table["range"][1]) and list(table["kind"]) == ["a", ""]
    lines = [json.loads(line) for line in path.read_text().splitlines()[1:]]
    assert [line["point"] for line in lines] == points
    assert lines[0]["outcome"]["value"]["path"]["__array__"] == ["float64", [2], [1.0, 0.5]]
    back = Sweep.read(path)
    assert back.rows == found.rows and back.column("mass").tolist() == [1.0, 3.0]


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint64", "float16", "float32", "complex64", "complex128"])
def test_arrays_come_back_to_the_bit(tmp_path, dtype):
    numbers = np.random.default_rng(0).normal(size=(2, 3)) * 10 + 1j * np.pi
    array = (numbers if dtype[0] == "c" else abs(numbers.real)).astype(dtype)
    path = tmp_path / "a.jsonl"
    sweep(lambda i: array, [0], workers=0, store=path)
    back = Sweep.read(path)[0].value
    assert back.dtype == array.dtype and back.tobytes() == array.tobytes()


# -- one reader wherever a trajectory is taken --------------------------------------------------------


@pytest.fixture(scope="module")
def kinds(cart):
    still = equilibrium(cart, theta=0.0)
    loop = dlqr(cart, still, {"x": 10, "theta": 10, "p.x": 1, "p.theta": 1}, 0.1)
    start = still.x + cart.state(x=0.1)
    closed = ClosedLoop(cart, loop).simulate(start, 30)
    best = optimize(cart, quadratic(cart, Q={"x": 1.0}, R=1.0), closed)
    solved = dmoc.solve(cart, Cost(cart, ca.sumsqr(cart.symbols.u)), closed, steps=30, initial=start)
    batch = cart.rollouts(start[None], U=closed.u)
    return {"run": closed, "result": best, "solution": solved, "batch": batch}


@pytest.mark.parametrize("kind", ["run", "result", "solution", "batch"])
def test_what_has_a_trajectory_is_taken_as_one(cart, kinds, kind):
    one, plain = kinds[kind], kinds[kind].trajectory
    Q, R = {"x": 1.0, "theta": 1.0}, 1.0
    assert np.array_equal(dlqr(cart, one, Q, R).K, dlqr(cart, plain, Q, R).K)
    assert np.array_equal(covariance(one, 1e-3).P, covariance(plain, 1e-3).P)
    assert controllability(cart, one).rank == controllability(cart, plain).rank
    cost = quadratic(cart, Q={"x": 1.0}, R=1.0)
    assert cost.value(one) == cost.value(plain)
    assert optimize(cart, cost, one).cost == optimize(cart, cost, plain).cost
    assert np.array_equal(cart.linearize_trajectory(one).A, cart.linearize_trajectory(plain).A)
    assert same(join(one), plain)
    vioc.viz.plot_comparison({"plan": plain, "it": one}, "theta")
    assert vioc.viz.plot_energy(one) is not None
    with pytest.raises(ModelError):
        (one if kind != "batch" else plain)["nothing"]
