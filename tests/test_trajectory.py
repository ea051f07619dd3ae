"""Trajectories: access by name, and files that are whole, matched by name, or refused."""

import json
import os
import pickle

import casadi as ca
import numpy as np
import pytest

from vioc import CasadiMap, Gravity, MidpointVI, System, Trajectory, rx, tz
from vioc.errors import FileFormatError, ModelError


def oscillator(states=("q", "v"), inputs=("force", "wind")) -> CasadiMap:
    x, u, t, dt, k = (ca.SX.sym(n, size) for n, size in zip("xutdk", (2, 2, 1, 1, 1), strict=True))
    q, v = (x[states.index(n)] for n in ("q", "v"))
    force = u[inputs.index("force")] + 2 * u[inputs.index("wind")]
    after = {"q": q + dt * v, "v": v + dt * (force - k * q)}
    step = ca.Function("f", [x, u, t, dt, k], [ca.vertcat(*(after[n] for n in states))])
    return CasadiMap(step, 0.1, state_names=states, input_names=inputs, parameters={"k": 4.0})


@pytest.fixture
def run():
    U = np.random.default_rng(0).normal(size=(7, 2))
    return oscillator().rollout([1.0, 0.5], U, k0=3)


@pytest.fixture
def file(run, tmp_path):
    return run.save(tmp_path / "run.npz")


def rewrite(file, **changes):
    """The saved arrays with some replaced, or removed where None."""
    with np.load(file) as stored:
        arrays = {**stored, **changes}
    np.savez(file, **{k: v for k, v in arrays.items() if v is not None})


# -- access by name -----------------------------------------------------------------------------


def test_quantities_by_name(run):
    assert np.array_equal(run["q"], run.x[:, 0])
    assert np.array_equal(run["u.wind"], run.u[:, 1])
    assert np.array_equal(run["param.k"], np.full(8, 4.0))
    assert run.t == pytest.approx(0.1 * np.arange(3, 11))
    assert len(run) == 7


def test_expressions_have_n_rows_where_inputs_matter(run):
    x, u, *_ = run.map.symbols
    assert run.evaluate(x * x).shape == (8, 2)
    assert run.evaluate(x[0] * u[0]) == pytest.approx(run.x[:-1, 0] * run.u[:, 0])


def test_unknown_names_are_refused_with_a_hint(run):
    with pytest.raises(ModelError, match=r"'u\.win'; did you mean 'u\.wind'"):
        run["u.win"]
    with pytest.raises(TypeError, match="by the name of a quantity, got 0"):
        run[0]


def test_it_prints_and_pickles(run):
    assert "7 steps, t = 0.3 .. 1 s, states q, v; inputs force, wind" in repr(run)
    again = pickle.loads(pickle.dumps(run))
    assert np.array_equal(again.x, run.x) and again.k0 == 3


# -- files --------------------------------------------------------------------------------------


def test_round_trip_is_exact(run, file):
    again = Trajectory.load(file, run.map)
    for name in ("t", "x", "u", "multipliers"):
        assert np.array_equal(getattr(again, name), getattr(run, name))
    assert again.k0 == run.k0


def test_columns_are_matched_by_name_not_by_place(run, file):
    other = oscillator(states=("v", "q"), inputs=("wind", "force"))
    again = Trajectory.load(file, other)
    for name in ("q", "v", "u.force", "u.wind"):
        assert np.array_equal(again[name], run[name])
    assert other.rollout(again.x[0], again.u).x == pytest.approx(again.x, abs=1e-14)
    assert again.x.flags.c_contiguous and again.u.flags.c_contiguous


def test_parameters_are_restored(tmp_path):
    run = oscillator().with_parameters(k=9.0).rollout([1.0, 0.0], steps=3)
    again = Trajectory.load(run.save(tmp_path / "run.npz"), oscillator())
    assert again.map.parameters == {"k": 9.0}


def test_saving_replaces_what_was_there(run, file):
    shorter = run.map.rollout([0.0, 0.0], steps=2)
    shorter.save(file)
    assert len(Trajectory.load(file, run.map)) == 2
    assert os.listdir(file.parent) == ["run.npz"]


def test_other_names_are_refused(run, file):
    x = ca.SX.sym("x", 2)
    other = CasadiMap(ca.Function("f", [x, ca.SX.sym("u", 2)], [x]), 0.1, state_names=("q", "w"))
    with pytest.raises(
        FileFormatError, match=r"state names do not match the map: missing \['w'\], unknown \['v'\]"
    ):
        Trajectory.load(file, other)


def test_a_missing_file_is_not_a_bad_file(run, tmp_path):
    with pytest.raises(FileNotFoundError):
        Trajectory.load(tmp_path / "none.npz", run.map)


@pytest.mark.parametrize("content", [b"", b"not a trajectory", b"PK\x03\x04", b"\x93NUMPY"])
def test_a_wrong_file_is_refused(run, tmp_path, content):
    path = tmp_path / "run.npz"
    path.write_bytes(content)
    with pytest.raises(FileFormatError, match=r"run\.npz: not a readable trajectory"):
        Trajectory.load(path, run.map)


def test_a_single_array_is_refused(run, tmp_path):
    np.save(tmp_path / "run.npy", run.x)
    with pytest.raises(FileFormatError, match=r"run\.npy: not a"):
        Trajectory.load(tmp_path / "run.npy", run.map)


@pytest.mark.parametrize("keep", [0.05, 0.5, 0.9, 0.99])
def test_a_truncated_file_is_refused(run, file, keep):
    content = file.read_bytes()
    file.write_bytes(content[: int(keep * len(content))])
    with pytest.raises(FileFormatError, match="not a readable trajectory"):
        Trajectory.load(file, run.map)


def test_every_damaged_byte_is_noticed_or_harmless(run, file):
    content = file.read_bytes()
    for at in np.random.default_rng(1).integers(len(content), size=100):
        file.write_bytes(content[:at] + bytes([content[at] ^ 0x55]) + content[at + 1 :])
        try:
            again = Trajectory.load(file, run.map)
        except FileFormatError:
            continue
        assert np.array_equal(again.x, run.x) and np.array_equal(again.u, run.u)


@pytest.mark.parametrize("key", ["t", "x", "u", "multipliers", "state_names", "input_names", "header"])
def test_missing_arrays_are_named(run, file, key):
    rewrite(file, **{key: None})
    with pytest.raises(FileFormatError, match=f"lacks {key}"):
        Trajectory.load(file, run.map)


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("key", ["t", "x", "u"])
def test_numbers_that_are_not_finite_are_refused(run, file, key, value):
    array = getattr(run, key).copy()
    array.flat[3] = value
    rewrite(file, **{key: array})
    with pytest.raises(FileFormatError, match=f"{key} holds numbers that are not finite"):
        Trajectory.load(file, run.map)


@pytest.mark.parametrize(
    "changes",
    [
        {"x": np.zeros((7, 2))},
        {"t": np.zeros(7)},
        {"u": np.zeros((7, 1))},
        {"x": np.zeros((8, 2), dtype=np.float32)},
    ],
)
def test_wrong_shapes_and_types_are_refused(run, file, changes):
    rewrite(file, **changes)
    with pytest.raises(FileFormatError, match=r"of shape .* and type float64, got"):
        Trajectory.load(file, run.map)


@pytest.mark.parametrize("header", ["{", "[]", json.dumps({"format": "vioc-trajectory-0"})])
def test_wrong_headers_are_refused(run, file, header):
    rewrite(file, header=np.array(header))
    with pytest.raises(FileFormatError):
        Trajectory.load(file, run.map)


def test_nothing_in_a_file_is_executed(run, file):
    rewrite(file, t=np.array([{}], dtype=object))
    with pytest.raises(FileFormatError, match="not a readable trajectory"):
        Trajectory.load(file, run.map)


@pytest.mark.parametrize("failing", ["os.replace", "os.fsync", "numpy.savez_compressed"])
@pytest.mark.parametrize("error", [OSError("disk full"), KeyboardInterrupt()])
def test_an_interrupted_save_leaves_the_old_file_and_no_scratch(run, file, monkeypatch, failing, error):
    before = file.read_bytes()

    def fail(stream, *args, **kwargs):
        if failing.startswith("numpy"):
            stream.write(b"half of it")
        raise error

    monkeypatch.setattr(failing, fail)
    with pytest.raises(type(error)):
        run.map.rollout([0.0, 0.0], steps=2).save(file)
    assert file.read_bytes() == before
    assert os.listdir(file.parent) == ["run.npz"]


def test_another_model_is_refused_and_says_what_differs(tmp_path):
    pole = tz(-1, name="bob", mass=1)
    f = MidpointVI(System(Gravity(0, 0, -9.81), rx("a")[pole]), 0.01)
    path = f.rollout(f.state(a=0.3), steps=3).save(tmp_path / "run")
    assert path.suffix == ".npz" and os.stat(path).st_mode & 0o044 == 0o044 & ~_umask()
    assert len(Trajectory.load(path, MidpointVI(f.system, 0.01))) == 3
    heavier = System(Gravity(0, 0, -9.81), rx("a")[tz(-1, name="bob", mass=2)])
    for other, what in (
        (MidpointVI(heavier, 0.01), "model"),
        (MidpointVI(f.system, 0.02), "dt"),
        (MidpointVI(f.system, 0.01, forcing="left"), "forcing"),
    ):
        with pytest.raises(FileFormatError, match=f"saved from another map: {what} differ"):
            Trajectory.load(path, other)


def _umask():
    mask = os.umask(0)
    os.umask(mask)
    return mask


@pytest.mark.parametrize("missing", ["k0", "parameters", "identity"])
def test_headers_must_be_whole(run, file, missing):
    header = {"format": "vioc-trajectory-1", "k0": 0, "parameters": {}, "identity": {}}
    del header[missing]
    rewrite(file, header=np.array(json.dumps(header)))
    with pytest.raises(FileFormatError, match=f"lacks {missing}"):
        Trajectory.load(file, run.map)


@pytest.mark.parametrize("key", ["t", "u", "state_names"])
def test_single_numbers_are_not_arrays(run, file, key):
    rewrite(file, **{key: np.array(1.0)})
    with pytest.raises(FileFormatError, match=f"expected an array {key}"):
        Trajectory.load(file, run.map)


@pytest.mark.parametrize("change", [{"map": None}, {"dt": None}, {"alpha": 0.5}], ids=["map", "dt", "alpha"])
def test_an_identity_that_lacks_an_entry_is_another(run, file, change):
    """What only one of the two has differs too: a file without its step, or of a map with more options."""
    with np.load(file) as stored:
        header = json.loads(str(stored["header"]))
    header["identity"] = {k: v for k, v in {**header["identity"], **change}.items() if v is not None}
    rewrite(file, header=np.array(json.dumps(header)))
    with pytest.raises(FileFormatError, match=f"another map: {next(iter(change))} differ"):
        Trajectory.load(file, run.map)


@pytest.mark.skipif(os.name != "posix", reason="permissions are POSIX's")
@pytest.mark.parametrize("mask", [0o022, 0o077, 0o000], ids=oct)
def test_a_saved_file_has_the_permissions_of_any_other(run, tmp_path, mask):
    """Those that the umask leaves, as `open` has it, not those of a temporary file, its owner's alone."""
    before = os.umask(mask)
    try:
        path = run.save(tmp_path / "run.npz")
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == 0o666 & ~mask
