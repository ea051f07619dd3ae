"""Loops at a rate, and FMUs: what a machine or another simulator does with the C of a folder."""

import subprocess
import zipfile
from xml.etree import ElementTree

import numpy as np
import pytest
from target_folders import COMPILER, STRICT, balanced_cart, needs_compiler

import vioc
from vioc.control.feedback import ClosedLoop, kalman
from vioc.control.target import run_at, write_fmu, write_target
from vioc.errors import FileFormatError


@pytest.fixture(scope="module")
def cart():
    return balanced_cart()


@needs_compiler
def test_a_loop_at_a_rate(cart, tmp_path, capsys):
    from vioc.cli import main

    _, upright, law, _ = cart
    written = write_target(tmp_path / "beat", law, upright.x + 0.1, steps=10)
    times = run_at(written.folder, rate=1000.0, seconds=0.05)
    assert len(times.late) == 50 and times.status == 0 and (times.late > 0).all() and (times.output > 0).all()
    assert set(times.table) == {"late", "output", "advance"} and "50 samples every 1 ms" in str(times)
    assert times.plot().get_title().startswith("50 samples")
    plot = tmp_path / "jitter.png"
    assert main(["target", str(written.folder), "--seconds", "0.05", "--plot", str(plot)]) == 0
    assert "5 samples every 10 ms" in capsys.readouterr().out and plot.exists()
    write_target(tmp_path / "map", cart[0], upright.x, steps=2)
    for folder in (tmp_path / "none", tmp_path / "map"):
        with pytest.raises(FileFormatError, match="no folder of a controller"):
            run_at(folder)


def fmu_cases(cart):
    """A closed loop with a filter, and a loop of bars with multipliers, with what vioc simulates."""
    f, upright, law, sensors = cart
    loop = ClosedLoop(f, law, kalman(f, upright, sensors, 1e-10, W_u=0.04), -12.0, 9.0)
    tilted = upright.x + f.state({"x": 0.1, "theta": 0.2})
    system = vioc.models.load("closed_chain")
    chain = vioc.MidpointVI(system, 0.01)
    guess = {"J": 0.2, "H": 0.3, "K": 0.1, "M": 0.3, "A": -0.1, "C": 0.2, "E": 0.3}
    start = chain.initial_state(vioc.consistent_configuration(system, guess))
    yield "loop", loop, tilted, lambda: loop.simulate(tilted, 60, noise=None).trajectory
    yield "chain", chain, start, lambda: chain.rollout(start, steps=60)


@needs_compiler
@pytest.mark.parametrize("version", ["2.0", "3.0"])
def test_sources_of_an_fmu_are_clean(cart, version, tmp_path):
    name, what, start, _ = next(fmu_cases(cart))
    path = write_fmu(tmp_path / f"{name}.fmu", what, start, version=version, binary=False, steps=5)
    with zipfile.ZipFile(path) as archive:
        archive.extractall(tmp_path)
    root = ElementTree.parse(tmp_path / "modelDescription.xml").getroot()
    assert root.get("fmiVersion") == version and not (tmp_path / "binaries").exists()
    names = [v.get("name") for v in root.find("ModelVariables")]
    assert names == ["time", *what.plant.state_names, "u.force"]
    sources = sorted(map(str, (tmp_path / "sources").glob("*.c")))
    assert len(sources) == 3
    subprocess.run([COMPILER, *STRICT, "-fsyntax-only", *sources], check=True)
    with pytest.raises(ValueError, match="before .fmu, got 'Loop.fmu'"):
        write_fmu(tmp_path / "Loop.fmu", what, start)


@needs_compiler
@pytest.mark.peer
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("version", ["2.0", "3.0"])
def test_fmpy_validates_and_simulates(cart, version, tmp_path):
    fmpy = pytest.importorskip("fmpy")
    from fmpy.validation import validate_fmu

    for name, what, start, simulated in fmu_cases(cart):
        path = str(write_fmu(tmp_path / f"{name}.fmu", what, start, version=version))
        assert validate_fmu(path) == []
        expected = simulated()
        f = expected.map
        options = dict(step_size=f.dt, output_interval=f.dt, fmi_type="CoSimulation")
        found = fmpy.simulate_fmu(path, stop_time=60 * f.dt, **options)
        x = np.array([found[n] for n in f.state_names]).T
        np.testing.assert_allclose(x, expected.x, atol=1e-10)
        for i, n in enumerate(f.multiplier_names):
            np.testing.assert_allclose(found[f"multiplier.{n}"][1:], expected.multipliers[:, i], atol=1e-10)
        for i, n in enumerate(f.input_names):
            np.testing.assert_allclose(found[f"u.{n}"][1:], expected.u[:, i], atol=1e-10)
        with pytest.raises(Exception, match="fmi.DoStep"):  # not a whole number of the map's steps
            fmpy.simulate_fmu(path, stop_time=1.0, output_interval=0.3 * f.dt)
