"""The command line: what it prints, what it writes, and how it fails."""

import json
import subprocess
import sys

import numpy as np
import pytest

import vioc
from vioc.cli import main


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


def test_importing_vioc_brings_neither_plots_nor_control():
    code = (
        "import sys, vioc; print([m for m in ('matplotlib', 'vioc.control', 'vioc.viz') if m in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "[]\n"


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


def test_linearize_without_inputs(vioc_prints):
    assert "controllability rank  0 of 4" in vioc_prints("linearize", "double_pendulum")


# -- demo ---------------------------------------------------------------------------------------


def test_quick_demo(vioc_prints, tmp_path):
    text = vioc_prints("demo", "--quick", "--out", "deep/out")
    assert "converged" in text
    written = {p.name for p in (tmp_path / "deep" / "out").iterdir()}
    assert written == {"swingup.png", "convergence.png", "swingup.npz"}


# -- errors -------------------------------------------------------------------------------------


def test_errors_are_one_line(vioc_fails, tmp_path):
    assert "did you mean 'cart_pole'?" in vioc_fails("info", "cart-pole")
    assert "No such file" in vioc_fails("info", "missing.sexp")
    (tmp_path / "bad.sexp").write_text('(SYSTEM\n  (TX "x" (MASS heavy)))')
    assert "bad.sexp:2:" in vioc_fails("info", "bad.sexp")
    assert "unknown name 'angle'; known are x, theta, v.x" in vioc_fails(
        "info", "cart_pole", "--set", "angle=1"
    )
    assert "shorter than one step" in vioc_fails("simulate", "pendulum", "--time", "1", "--dt", "3")
    assert "run.mp4" in vioc_fails("simulate", "pendulum", "--time", "0.1", "--animate", "run.mp4")
    assert "No such file" in vioc_fails("simulate", "pendulum", "--time", "0.1", "--save", "none/run.npz")


@pytest.mark.filterwarnings("ignore:overflow")
def test_a_failing_step_says_which(vioc_fails):
    assert "step 0 (t = 0 s" in vioc_fails("simulate", "acrobot", "--set", "u.torque=1e200")


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
