"""Loops at a rate, and FMUs: what a machine or another simulator does with the C of a folder."""

import ctypes
import re
import subprocess
import sys
import zipfile
from xml.etree import ElementTree

import numpy as np
import pytest
from support.target_folders import COMPILER, STRICT, balanced_cart, needs_compiler, pointer

import vioc
from vioc.control import ClosedLoop, kalman
from vioc.errors import FileFormatError
from vioc.target import run_at, write_fmu, write_target


@pytest.fixture(scope="module")
def cart():
    return balanced_cart()


@needs_compiler
def test_a_loop_at_a_rate(cart, tmp_path, capsys):
    from vioc.cli import main

    _, upright, law, _ = cart
    written = write_target(tmp_path / "beat", law, upright.x + 0.1, steps=10)
    times = run_at(written.folder, frequency=1000.0, seconds=0.05)
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
    loop = ClosedLoop(f, law, kalman(f, upright, sensors, 1e-10, W_u=0.04), {"force": (-12.0, 9.0)})
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
@pytest.mark.parametrize("version", ["2.0", "3.0"])
def test_a_binary_is_where_the_standard_has_it_and_steps_as_the_map(version, tmp_path):
    """A loop of bars without a simulator: found, named and called as the standard says."""
    name, f, start, _ = list(fmu_cases(balanced_cart()))[1]
    path = write_fmu(tmp_path / f"{name}.fmu", f, start, version=version, steps=5)
    with zipfile.ZipFile(path) as archive:
        archive.extractall(tmp_path)
        files = set(archive.namelist())
    root = ElementTree.parse(tmp_path / "modelDescription.xml").getroot()
    token = root.get("guid" if version == "2.0" else "instantiationToken")
    assert root.get("modelName") == name and root.find("CoSimulation").get("modelIdentifier") == name
    assert ("sources/buildDescription.xml" in files) == (version == "3.0")
    (binary,) = (n for n in files if n.startswith("binaries/"))
    ours = {"linux": ("linux", "linux"), "darwin": ("darwin", "darwin"), "win32": ("win", "windows")}
    folders = {"2.0": "(old)(32|64)", "3.0": "[a-z0-9_]+-(new)"}
    old, new = ours.get(sys.platform, ours["linux"])
    assert re.fullmatch(folders[version].replace("old", old).replace("new", new), binary.split("/")[1])
    c, number = ctypes.CDLL(str(tmp_path / binary)), ctypes.c_double
    at, found = np.arange(1, f.nx + 1, dtype=np.uint32), np.zeros(f.nx)
    size = ctypes.c_size_t(f.nx)
    if version == "2.0":
        c.fmi2Instantiate.restype = ctypes.c_void_p
        assert c.fmi2Instantiate(b"it", 1, b"another", None, None, 0, 0) is None
        it = ctypes.c_void_p(c.fmi2Instantiate(b"it", 1, token.encode(), None, None, 0, 0))
        c.fmi2SetupExperiment(it, 0, number(0), number(0), 0, number(0))
        assert c.fmi2DoStep(it, number(0), number(3 * f.dt), 1) == 0
        assert c.fmi2GetReal(it, pointer(at), size, pointer(found)) == 0
    else:
        make = c.fmi3InstantiateCoSimulation
        make.restype = ctypes.c_void_p
        it = ctypes.c_void_p(make(b"it", token.encode(), *[None] * 10))
        told = [ctypes.byref(kind()) for kind in (*[ctypes.c_bool] * 3, number)]
        c.fmi3EnterInitializationMode(it, False, number(0), number(0), False, number(0))
        assert c.fmi3DoStep(it, number(0), number(3 * f.dt), True, *told) == 0
        assert c.fmi3GetFloat64(it, pointer(at), size, pointer(found), size) == 0
    np.testing.assert_allclose(found, f.rollout(start, steps=3).x[-1], rtol=0, atol=1e-10)


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
