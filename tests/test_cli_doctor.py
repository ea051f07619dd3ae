"""``vioc doctor``: what it finds, and that it says where something is wrong."""

import numpy as np
import pytest

import vioc

# inside: a broken part is put where the command looks
from vioc.cli import doctor, main
from vioc.compile import find_compiler


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("VIOC_CACHE", str(tmp_path / "kept"))
    return tmp_path / "kept"


def test_all_is_well(capsys, cache):
    assert main(["doctor"]) == 0
    text = capsys.readouterr().out
    rows = {line.split()[0]: line for line in text.splitlines() if line.strip()}
    assert vioc.__version__ in rows["vioc"] and np.__version__ in rows["numpy"]
    assert str(cache) in rows["cache"] and rows["writable"].endswith("yes")
    assert "ok: energy within" in text and text.endswith("all is well\n")
    if find_compiler() is not None:
        assert "ok: the same bits" in rows["compiled"]


def test_without_a_compiler_it_is_well_too(capsys, monkeypatch):
    monkeypatch.setenv("CC", "no-such-compiler")
    assert main(["doctor"]) == 0
    text = capsys.readouterr().out
    assert "skipped: no compiler" in text and "no-such-compiler" in text


def test_a_compiler_that_does_not_work_is_told(capsys, monkeypatch, tmp_path):
    broken = tmp_path / "mycc"
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o755)
    for chosen, reason in ((str(broken), "does not tell its version"), ("gcc '", "No closing quotation")):
        monkeypatch.setenv("CC", chosen)
        assert main(["doctor"]) == 0
        text = capsys.readouterr().out
        assert "none that works: nothing is compiled" in text and reason in text


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("linearize", "A, B differ from differences of steps"),
        ("rollout", "the energy of a falling cart-pole"),
    ],
)
def test_what_is_wrong_is_named_and_the_exit_code_tells(wrong, message, capsys, monkeypatch):
    sound = getattr(vioc.MidpointVI, wrong)

    def linearize(self, *args):
        A, B = sound(self, *args)
        return 1.001 * A, B

    def rollout(self, x0, *args, **more):
        run = sound(self, x0, *args, **more)
        run.x[-1] *= 2
        return run

    changed = {"linearize": linearize, "rollout": rollout}[wrong]
    monkeypatch.setattr(vioc.MidpointVI, wrong, changed)
    monkeypatch.setattr(doctor, "CHECKS", {"virtual machine": doctor.check_virtual})
    assert main(["doctor"]) == 1
    text = capsys.readouterr().out
    assert f"FAILED: ArithmeticError: {message}" in text and "something is wrong" in text


def test_backends_that_differ_are_noticed(monkeypatch):
    if find_compiler() is None:
        pytest.skip("no compiler")
    sound = vioc.MidpointVI.rollout

    def rollout(self, *args, **more):
        run = sound(self, *args, **more)
        if self.backend.name == "compiled":
            run.x[5] = np.nextafter(run.x[5], 1)
        return run

    monkeypatch.setattr(vioc.MidpointVI, "rollout", rollout)
    with pytest.raises(ArithmeticError, match="expected the same bits"):
        doctor.check_compiled()


def test_a_cache_that_cannot_be_written(tmp_path):
    file = tmp_path / "file"
    file.write_text("")
    assert doctor._writable(file).startswith("no: ")
    assert doctor._writable(tmp_path / "not" / "there") == "yes"
    assert not (tmp_path / "not").exists()
