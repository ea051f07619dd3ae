"""The command line: what it prints, what it writes, and how it fails."""

import ast
import importlib
import json
import pkgutil
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import vioc
from vioc import ry, tx
from vioc.cli import main
from vioc.compile import find_compiler


@pytest.fixture(autouse=True)
def in_temporary_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def vioc_prints(capsys):
    def run(*args: str) -> str:
        assert main(args) == 0
        captured = capsys.readouterr()
        assert not captured.err
        return captured.out

    return run


@pytest.fixture
def vioc_fails(capsys):
    def run(*args: str) -> str:
        assert main(args) == 2
        captured = capsys.readouterr()
        assert captured.err.startswith("vioc: error: ") and captured.err.count("\n") == 1
        return captured.err

    return run


def test_as_a_program():
    done = subprocess.run([sys.executable, "-m", "vioc", "--version"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, f"vioc {vioc.__version__}\n")
    done = subprocess.run([sys.executable, "-m", "vioc", "info", "no.sexp"], capture_output=True, text=True)
    assert done.returncode == 2 and "Traceback" not in done.stderr


def test_importing_brings_no_plots_no_scipy_no_control_and_no_integrators():
    """They are most of what is slow to import, and come when they are used."""
    late = ("matplotlib", "scipy", "PIL", "viser", "vioc.control", "vioc.viz", "studies", "asyncio")
    code = f"""
import sys, vioc
print([m for m in {late} if m in sys.modules])
import vioc.cli
print([m for m in {late} if m in sys.modules])
import vioc.control
print([m for m in sys.modules if "integrators" in m])
"""
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == 3 * "[]\n"


def test_optimizing_brings_no_sparse_matrices_and_no_analysis():
    """SciPy's sparse matrices are those of DMOC; importing them takes a tenth of a second."""
    late = ("scipy.sparse", "scipy.spatial", "scipy.optimize", "scipy.stats", "vioc.control.analysis")
    code = f"""
import sys
from vioc.control import Problem, optimize, quadratic
print([m for m in {late} if m in sys.modules])
"""
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "[]\n"


@pytest.mark.parametrize("package", ["vioc", "vioc.control"])
def test_public_names_are_imported_when_they_are_used(package):
    """The modules that type checkers read are those that names are imported from."""
    door = importlib.import_module(package)
    tree = ast.parse(Path(door.__file__).read_text())
    typed = next(
        n.body for n in tree.body if isinstance(n, ast.If) and ast.unparse(n.test) == "TYPE_CHECKING"
    )
    told = {a.name: n.module for n in typed for a in n.names if n.module != package}
    assert told == {name: module for module, names in door.HOMES.items() for name in names.split()}
    rooms = {a.name for n in typed for a in n.names if n.module == package}
    # importing a module binds its name in the package, in the place of a public name
    assert not {m.name for m in pkgutil.iter_modules(door.__path__)} & told.keys()
    assert {*told, *rooms} == set(door.__all__)
    assert all(getattr(door, name) is not None for name in door.__all__)
    with pytest.raises(AttributeError, match=f"module '{package}' has no attribute 'nothing'"):
        getattr(door, "nothing")  # noqa: B009 - the name is what is tested


def test_a_map_has_substeps_after_a_plain_import():
    """Maps made of others are imported when they are used, and `substeps` is one of their uses."""
    code = "import vioc; print(vioc.MidpointVI(vioc.models.load('pendulum'), 0.1).substeps(4).n)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "4\n"


@pytest.mark.parametrize("command", ["info", "simulate", "linearize", "demo"])
def test_help_has_examples(command, capsys):
    with pytest.raises(SystemExit) as stop:
        main([command, "--help"])
    text = capsys.readouterr().out
    assert stop.value.code == 0
    assert f"vioc {command}" in text.split("examples:")[1]


def test_help_lists_commands_and_models(capsys):
    with pytest.raises(SystemExit):
        main(["--help"])
    text = capsys.readouterr().out
    assert all(command in text for command in ("info", "simulate", "linearize", "demo"))
    with pytest.raises(SystemExit):
        main(["info", "--help"])
    text = capsys.readouterr().out
    assert all(name in text for name in vioc.models.names())


TORQUE = -0.57453840789  # N m: holds the crank of `four_bar` at -1.2 rad


def four_bar(folder) -> str:
    """The model file of a planar four-bar: links of 0.4, 1.0 and 0.8 m, a torque at the crank."""
    crank = ry("crank")[tx(0.2, mass=0.2), tx(0.4)[ry("coupler")[tx(0.5, mass=0.5), tx(1.0, name="end")]]]
    rocker = tx(1.0)[ry("rocker")[tx(0.4, mass=0.3), tx(0.8, name="tip")]]
    pin = vioc.coincident("end", "tip", axes="xz", name="pin")
    system = vioc.System(crank, rocker, vioc.Gravity(0, 0, -9.81), pin, vioc.JointForce("crank", "torque"))
    vioc.write(system, folder / "four_bar.sexp")
    return "four_bar.sexp"


def turned(angle: float) -> np.ndarray:
    """(x, z) of a unit along x that is turned about y."""
    return np.array([np.cos(angle), -np.sin(angle)])


# -- info ---------------------------------------------------------------------------------------


def test_info_names_states_inputs_and_units(vioc_prints):
    text = vioc_prints("info", "cart_pole", "--set", "theta=0.5")
    rows = [line.split(None, 2) for line in text.splitlines()]
    assert ["theta", "0.5", "rad"] in rows
    assert ["p.x", "0", "kg m/s"] in rows
    assert ["force", "0", "N"] in rows
    c = np.cos(0.5)
    M = np.array([[1.3, 0.15 * c], [0.15 * c, 0.075]])
    assert f"mass matrix  2 x 2, condition {np.linalg.cond(M):.3g}" in text
    assert "degrees of freedom  2" in text


def test_info_shows_totals(vioc_prints, tmp_path):
    """Where a slip is seen: degrees for radians, grams for kilograms, a sign of gravity."""
    text = vioc_prints("info", "cart_pole", "--set", f"theta={np.pi / 2!r}")  # the pole lies along x
    assert "total mass  1.3 kg in 2 bodies\n" in text
    assert "size  0.5 x 0 x 0 m" in text
    assert "gravity  9.81 m/s^2 along -z\n" in text
    body = vioc.tx("x", mass=0.5)
    vioc.write(vioc.System(body, vioc.Gravity(3, 0, 4)), tmp_path / "mine.sexp")
    text = vioc_prints("info", str(tmp_path / "mine.sexp"))
    assert "total mass  0.5 kg in 1 body\n" in text and "gravity  5 m/s^2 along (0.6, 0, 0.8)" in text
    vioc.write(vioc.System(body), tmp_path / "none.sexp")
    assert "gravity  none" in vioc_prints("info", str(tmp_path / "none.sexp"))


def test_info_of_a_closed_chain(vioc_prints):
    text = vioc_prints("info", "scissor_lift:3", "--set", "left-1=0.5")
    assert "constraints  6 of rank 6; redundant: none" in text
    assert "degrees of freedom  1" in text


def test_a_model_file(vioc_prints, tmp_path):
    vioc.write(vioc.models.load("pendulum"), tmp_path / "mine.sexp")
    assert "degrees of freedom  1" in vioc_prints("info", "mine.sexp")


# -- simulate -----------------------------------------------------------------------------------


def test_simulate_writes_what_it_is_asked_for(vioc_prints, tmp_path):
    text = vioc_prints(
        "simulate", "cart_pole", "--set", "theta=0.3", "v.x=1", "--time", "0.5", "--dt", "0.02",
        "--save", "run.npz", "--plot", "run.png", "--animate", "run.gif",
    )  # fmt: skip
    assert "25 steps, t = 0 .. 0.5 s" in text
    for name in ("run.npz", "run.png", "run.gif"):
        assert f"wrote {name}" in text and (tmp_path / name).stat().st_size > 1000
    f = vioc.MidpointVI(vioc.models.load("cart_pole"), dt=0.02)
    run = vioc.Trajectory.load("run.npz", f)
    expected = f.rollout(f.initial_state({"theta": 0.3}, {"x": 1.0}), steps=25)
    assert np.array_equal(run.x, expected.x)


def test_simulate_with_another_integrator(vioc_prints, vioc_fails):
    for integrator in ("linear-time", "maximal"):
        text = vioc_prints(
            "simulate", "pendulum", "--integrator", integrator, "--set", "theta=0.3", "--time", "1"
        )
        (line,) = (line for line in text.splitlines() if line.startswith("  theta"))
        f = vioc.MidpointVI(vioc.models.load("pendulum"), dt=0.01)
        run = f.rollout(f.initial_state({"theta": 0.3}), steps=100)
        assert abs(float(line.split()[1]) - run["theta"][-1]) < 1e-3
    assert "kinematic" in vioc_fails("simulate", "marionette", "--integrator", "maximal")


def test_simulate_takes_contacts(vioc_prints, tmp_path):
    ball = """(SYSTEM (TX "x" TZ "z" RY "turn" (NAME "ball") (MASS 1 0.01 0.01 0.01))
        (GRAVITY 0 0 -9.81) (CONTACT "ball" (0 0 1) 0 (0 0 0) 0.1 0.5))"""
    (tmp_path / "ball.sexp").write_text(ball)
    text = vioc_prints(
        "simulate", str(tmp_path / "ball.sexp"), "--set", "z=1", "--time", "0.6", "--plot", "ball.png"
    )
    assert "v.turn" in text and "qw.ball" not in text.split("state at the end")[1]
    (line,) = (line for line in text.splitlines() if line.startswith("  z "))
    assert abs(float(line.split()[1]) - 0.1) < 1e-5
    flat = vioc_prints(
        "simulate", str(tmp_path / "ball.sexp"), "--set", "z=1", "--time", "0.6", "--integrator", "contact"
    )
    (line,) = (line for line in flat.split("state at the end")[1].splitlines() if line.startswith("  z "))
    assert abs(float(line.split()[1]) - 0.1) < 1e-5


def test_info_of_a_model_with_contacts_and_limits(vioc_prints, tmp_path):
    hand = vioc.System(
        ry("wrist", name="hand", mass=vioc.Mass(1.0, (0.01, 0.01, 0.01))),
        vioc.JointLimits("wrist", -1.0, 1.0, name="stop"),
    )
    vioc.write(hand, tmp_path / "hand.sexp")
    text = vioc_prints("info", str(tmp_path / "hand.sexp"), "--set", "wrist=0.5")
    assert "contacts and limits  stop" in text and "degrees of freedom  1" in text
    table = vioc_prints("linearize", str(tmp_path / "hand.sexp"))
    assert "1 contacts and limits" not in table and "2 contacts and limits" in table


def test_rounding_is_printed_as_zero(vioc_prints):
    text = vioc_prints("simulate", "cart_pole", "--set", "theta=0.3", "--time", "1")
    (line,) = (line for line in text.splitlines() if line.startswith("  p.x "))
    assert line.split() == ["p.x", "0", "kg", "m/s"]  # nothing pushes the cart; 1e-17 without care
    table = vioc_prints("linearize", "cart_pole", "--set", "theta=0.1")
    (line,) = (line for line in table.splitlines() if line.startswith("  theta ") and "1.0" in line)
    assert line.split()[1] == "0"


def test_inputs_are_held(vioc_prints):
    vioc_prints("simulate", "cart_pole", "--set", "u.force=2", "--time", "0.1", "--save", "run.npz")
    with np.load("run.npz") as stored:
        assert (stored["u"] == 2.0).all()


def test_kinematic_variables_stay_where_they_are_set(vioc_prints, tmp_path):
    crane = vioc.System(vioc.tx(vioc.K("trolley"))[vioc.ry("a")[vioc.tz(-1, mass=1)]])
    vioc.write(crane, tmp_path / "crane.sexp")
    vioc_prints("simulate", "crane.sexp", "--set", "trolley=3", "--time", "0.1", "--save", "run.npz")
    with np.load("run.npz") as stored:
        assert (stored["x"][:, list(stored["state_names"]).index("trolley")] == 3.0).all()


def test_constrained_starts_are_completed(vioc_prints):
    vioc_prints(
        "simulate",
        "scissor_lift:2",
        "--set",
        "left-1=0.5",
        "v.left-1=0.1",
        "--time",
        "0.1",
        "--save",
        "run.npz",
    )
    f = vioc.MidpointVI(vioc.models.load("scissor_lift:2"), dt=0.01)
    run = vioc.Trajectory.load("run.npz", f)
    assert run["left-1"][0] == 0.5
    assert max(np.abs(run[f"h.{n}"]).max() for n in f.multiplier_names) < 1e-10


def test_a_guess_chooses_the_branch_and_the_start_is_printed(vioc_prints, tmp_path):
    model = four_bar(tmp_path)
    ends = []
    for branch in ("-1.5", "1.5"):
        text = vioc_prints(
            "simulate", model, "--set", "crank=0.7", "--guess", f"rocker={branch}", "--time", "0.01"
        )
        assert "start found  2 constraints of rank 2, 1 degrees of freedom" in text
        start = text.split("state at the start")[1].splitlines()
        angles = {row.split()[0]: float(row.split()[1]) for row in start[1:4]}
        assert angles["crank"] == 0.7
        q = np.array([angles[n] for n in ("crank", "coupler", "rocker")])
        tip = 0.4 * turned(q[0]) + turned(q[0] + q[1]) - np.array([1.0, 0.0]) - 0.8 * turned(q[2])
        assert np.abs(tip).max() < 1e-7
        ends.append(angles["rocker"])
    assert ends[0] < 0 < ends[1]


def test_starts_are_sought_around_a_guess_that_fails(vioc_prints, tmp_path):
    text = vioc_prints("info", four_bar(tmp_path))  # straight at zero: no way to go from there
    assert "degrees of freedom  1" in text
    assert vioc_prints("info", four_bar(tmp_path)) == text


def test_info_shows_the_model_where_no_start_is_found(capsys, tmp_path):
    assert main(["info", four_bar(tmp_path), "--set", "crank=1", "rocker=3"]) == 2
    captured = capsys.readouterr()
    assert "RY 'coupler'" in captured.out and "state  crank, coupler, rocker, p.crank" in captured.out
    assert "no consistent start found from crank=1, rocker=3" in captured.err
    assert "try --set NAME=VALUE" in captured.err and captured.err.count("\n") == 1


# -- linearize ----------------------------------------------------------------------------------


def test_linearize_prints_names_and_rank(vioc_prints):
    text = vioc_prints("linearize", "cart_pole")
    assert "an equilibrium\n" in text
    assert "controllability rank  4 of 4" in text
    rows = [line.split() for line in text.splitlines()]
    assert ["A", "x", "theta", "p.x", "p.theta"] in rows and ["p.x", "0.01"] in rows
    assert "not an equilibrium: the state moves by" in vioc_prints(
        "linearize", "cart_pole", "--set", "theta=1"
    )


def test_linearize_as_json_has_all_digits(vioc_prints):
    result = json.loads(vioc_prints("linearize", "cart_pole", "--dt", "0.02", "--json"))
    f = vioc.MidpointVI(vioc.models.load("cart_pole"), dt=0.02)
    A, B = f.linearize(f.initial_state())
    assert np.array_equal(result["A"], A) and np.array_equal(result["B"], B)
    assert result["state_names"] == list(f.state_names) and result["input_names"] == ["force"]
    assert result["controllability_rank"] == 4
    s = np.array(result["eigenvalues"]) @ [1, 1j]
    assert np.prod(s) == pytest.approx(np.linalg.det(A))


def test_linearize_counts_what_the_constraints_leave(vioc_prints, tmp_path):
    """At rest it is about the fixed point: one stable and one unstable motion, and four zeros."""
    model = four_bar(tmp_path)
    args = ("linearize", model, "--set", "crank=-1.2", f"u.torque={TORQUE}", "--guess", "rocker=-1.5")
    text = vioc_prints(*args)
    assert "an equilibrium\n" in text and "1 degrees of freedom" in text
    assert "controllability rank  3 of 6\non the constraint manifold  2 of 2" in text
    result = json.loads(vioc_prints(*args, "--json"))
    assert result["step"] < 1e-10
    assert result["controllability_rank"] == 3
    assert result["controllability_rank_on_constraints"] == [2, 2]
    sizes = np.sort(np.abs(np.array(result["eigenvalues"]) @ [1, 1j]))
    assert sizes[:4].max() < 1e-6 and sizes[4] * sizes[5] == pytest.approx(1)


def test_linearize_without_inputs(vioc_prints):
    assert "controllability rank  0 of 4" in vioc_prints("linearize", "double_pendulum")


# -- demo ---------------------------------------------------------------------------------------


@pytest.mark.skipif(find_compiler() is None, reason="no C compiler")
def test_compiled_models_are_kept_shown_and_cleared(vioc_prints, monkeypatch, tmp_path):
    monkeypatch.setenv("VIOC_CACHE", str(tmp_path / "kept"))
    assert "0 libraries" in vioc_prints("cache")
    virtual, compiled = (
        vioc_prints("simulate", "pendulum", "--set", "theta=1", "--backend", backend)
        for backend in ("virtual", "compiled")
    )
    assert virtual == compiled
    text = vioc_prints("cache")
    assert "MidpointVI of pendulum: step" in text and str(tmp_path / "kept") in text
    assert "freed" in vioc_prints("cache", "--clear")
    assert "0 libraries" in vioc_prints("cache")


def test_the_newest_of_many_libraries(vioc_prints, monkeypatch):
    # inside: the list of `vioc cache` is printed of entries that are on no disk
    from vioc.cli import cache
    from vioc.compile.disk_cache import Entry

    kept = [Entry(f"{i}", f"model {i}.", 1000, 1e9 + 60 * i) for i in range(13)]
    monkeypatch.setattr(cache.Cache, "entries", lambda self: iter(kept))
    text = vioc_prints("cache")
    listed = [line.split()[-1] for line in text.splitlines() if "model" in line]
    assert listed == [f"{i}." for i in range(12, 2, -1)] and "... 3 older ones; --all" in text
    assert vioc_prints("cache", "--all").count("model") == 13


def test_without_a_compiler(vioc_prints, vioc_fails, monkeypatch):
    monkeypatch.setenv("CC", "no-such-compiler")
    with pytest.warns(RuntimeWarning, match="CC = 'no-such-compiler' of the environment names no program"):
        assert "none found" in vioc_prints("cache")
    assert "no-such-compiler" in vioc_fails("simulate", "pendulum", "--backend", "compiled")


def test_quick_demo(vioc_prints, tmp_path):
    text = vioc_prints("demo", "--quick", "--out", "deep/out")
    assert "converged" in text
    written = {p.name for p in (tmp_path / "deep" / "out").iterdir()}
    assert written == {"swingup.png", "convergence.png", "swingup.npz"}


# -- errors -------------------------------------------------------------------------------------


def test_errors_are_one_line(vioc_fails, tmp_path):
    assert "did you mean 'cart_pole'?" in vioc_fails("info", "cart-pole")
    assert "no such model file: 'missing.sexp'" in vioc_fails("info", "missing.sexp")
    (tmp_path / "bad.sexp").write_text('(SYSTEM\n  (TX "x" (MASS heavy)))')
    assert "bad.sexp:2:" in vioc_fails("info", "bad.sexp")
    assert "unknown name 'tetha'; did you mean 'theta'" in vioc_fails("info", "cart_pole", "--set", "tetha=1")
    assert "'theta' is given twice, 1 and 2" in vioc_fails("info", "cart_pole", "--set", "theta=1", "theta=2")
    assert "no constraints to solve; use --set" in vioc_fails("info", "cart_pole", "--guess", "theta=1")
    assert "'crank' is fixed by --set" in vioc_fails(
        "info", four_bar(tmp_path), "--set", "crank=1", "--guess", "crank=1"
    )
    assert "shorter than one step" in vioc_fails("simulate", "pendulum", "--time", "1", "--dt", "3")


@pytest.mark.parametrize(
    ("option", "target", "message"),
    [
        ("--animate", "run.avi", "--animate: expected a file .gif or "),
        ("--plot", "run", "--plot: expected a file .png or .pdf or .svg, got 'run'"),
        ("--save", "run.txt", "--save: expected a file .npz, got 'run.txt'"),
        ("--save", "none/run.npz", "--save: no such folder: 'none'"),
        ("--plot", "folder.png", "--plot: 'folder.png' is a folder"),
    ],
)
def test_targets_are_checked_before_anything_is_computed(option, target, message, vioc_fails, tmp_path):
    (tmp_path / "folder.png").mkdir()
    assert message in vioc_fails("simulate", "no_such_model", option, target)


def test_a_folder_is_no_model(vioc_fails, tmp_path):
    four_bar(tmp_path)
    assert "'.' is a folder; model files in it: four_bar.sexp" in vioc_fails("info", ".")


def test_without_a_command_there_is_help(capsys):
    for args, command in (([], "vioc"), (["study"], "vioc study")):
        assert main(args) == 2
        assert f"usage: {command} [-h]" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["simulatte", "cart_pole"], "unknown 'simulatte'; did you mean 'simulate'?"),
        (["simulate", "cart_pole", "--backend", "compield"], "did you mean 'compiled'?"),
        (["view", "cart_pole", "--port", "80800"], "expected a port from 1 to 65535, got '80800'"),
        (["view", "cart_pole", "--port", "-1"], "expected a port from 1 to 65535"),
    ],
)
def test_slips_are_told_apart(args, message, capsys):
    with pytest.raises(SystemExit) as stop:
        main(args)
    assert stop.value.code == 2 and message in capsys.readouterr().err


def test_folders_for_results_are_checked_first(vioc_fails, tmp_path):
    (tmp_path / "file").write_text("")
    for folder in (tmp_path / "file", tmp_path / "file" / "below"):
        for command in (["study", "run", "cable_euler", "--quick"], ["demo", "--quick"]):
            assert "--out: no folder can be made at" in vioc_fails(*command, "--out", str(folder))
    assert "unknown study" in vioc_fails("study", "run", "cable_oiler", "--out", str(tmp_path / "new"))
    assert not (tmp_path / "new").exists()


def test_files_that_are_no_trajectories(vioc_fails, tmp_path):
    pytest.importorskip("viser")
    (tmp_path / "fall.png").write_bytes(b"\x89PNG and so on")
    assert "no such trajectory file" in vioc_fails("view", "cart_pole", "missing.npz", "--no-open")
    assert "not an .npz archive" in vioc_fails("view", "cart_pole", "fall.png", "--no-open")


def test_too_many_steps(vioc_fails):
    assert "more than can be kept" in vioc_fails("simulate", "pendulum", "--time", "1e300")


def test_memory_is_reported_in_a_line(vioc_fails, monkeypatch):
    def rollout(*args, **options):
        raise MemoryError("Unable to allocate 9 TiB")

    monkeypatch.setattr(vioc.MidpointVI, "rollout", rollout)
    assert "not enough memory" in vioc_fails("simulate", "pendulum")


def test_a_closed_pipe_is_quiet():
    command = f"{shlex.quote(sys.executable)} -m vioc info cart_pole | true"
    done = subprocess.run(command, shell=True, capture_output=True, text=True)
    assert not done.stderr


@pytest.mark.filterwarnings("ignore:overflow")
def test_a_failing_step_says_which(vioc_fails):
    assert "step 0 (t = 0 s" in vioc_fails("simulate", "acrobot", "--set", "u.torque=1e200")


def test_ctrl_c_is_a_line(monkeypatch, capsys):
    def stop(*args, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(vioc.MidpointVI, "rollout", stop)
    assert main(["simulate", "pendulum"]) == 130
    assert capsys.readouterr().err == "vioc: interrupted\n"
    with pytest.raises(KeyboardInterrupt):
        main(["simulate", "pendulum", "--debug"])


def test_debug_shows_where(capsys):
    with pytest.raises(vioc.ModelError):
        main(["info", "cart-pole", "--debug"])


@pytest.mark.parametrize(
    "args", [["--set", "theta"], ["--set", "theta=much"], ["--dt", "0"], ["--dt", "nan"], ["--time", "-1"]]
)
def test_wrong_arguments_print_the_usage(args, capsys):
    with pytest.raises(SystemExit) as stop:
        main(["simulate", "cart_pole", *args])
    assert stop.value.code == 2
    assert "usage: vioc simulate" in capsys.readouterr().err


def test_a_step_that_fails_leaves_the_motion_up_to_it(tmp_path, monkeypatch, capsys):
    rollout = vioc.MidpointVI.rollout

    def fails(self, x, U=None, *, steps):
        raise vioc.StepError(
            "too fast: use a smaller dt", 7, 1.0, "no convergence", rollout(self, x, U, steps=7)
        )

    monkeypatch.setattr(vioc.MidpointVI, "rollout", fails)
    file = tmp_path / "run.npz"
    command = ["simulate", "cart_pole", "--set", "theta=0.3", "--time", "1", "--save", str(file)]
    assert main(command) == 2
    out, err = capsys.readouterr()
    assert "step 7 failed; up to it:" in out
    assert "too fast" in err
    assert file.exists()
