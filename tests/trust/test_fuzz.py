"""The readers on damaged and hostile files, quickly; `python tests/trust/fuzz.py` goes on for longer."""

from __future__ import annotations

import json
import time
import zipfile

import fuzz
import numpy as np
import pytest
from readers import POINTS, READERS, Hang, Reader, judge, oscillator, square

import vioc
from vioc import Trajectory

# inside: an atom is printed without a text, and a store claims the format that is read
from vioc.dynamics.formats.sexpr_syntax import Atom, shown
from vioc.errors import FileFormatError, ReadError
from vioc.sweeps import sweep
from vioc.sweeps.store import FORMAT

pytest.importorskip("urdf_parser_py")
signal = pytest.importorskip("signal")
if not hasattr(signal, "setitimer"):
    pytest.skip("no timers", allow_module_level=True)


@pytest.mark.parametrize("name", READERS)
def test_sound_files_are_accepted(name, tmp_path):
    assert [judge(READERS[name], data, tmp_path) for data in READERS[name].seeds()].count(True) == len(
        READERS[name].seeds()
    )


@pytest.mark.parametrize("name", READERS)
def test_mutated_files_are_accepted_or_refused(name, tmp_path):
    found = fuzz.blind(name, seconds=60, out=tmp_path, seed=1, limit=300)
    assert found.tried == 300 and not found.crashes
    assert name == "cache" or found.accepted < found.tried
    text, crashes = fuzz.table(tmp_path)
    assert crashes == 0 and "300" in text


def test_the_fuzzer_finds_what_it_should(tmp_path):
    """A reader that is wrong once in a while, and one that hangs."""

    def careless(path):
        data = path.read_bytes()
        if data.count(b"(") % 7 == 3:
            raise KeyError("(")
        if data.count(b")") % 7 == 3:
            while True:
                time.sleep(0.01)

    reader = Reader("sexpr", ".sexp", (ReadError,), careless, READERS["sexpr"].seeds, (b"(", b")"))
    assert judge(reader, b"(((", tmp_path).error == "KeyError: '('"
    assert judge(reader, b"", tmp_path) is True
    short = pytest.MonkeyPatch()
    short.setattr("readers.LIMIT", 0.05)
    assert judge(reader, b")))", tmp_path).error.startswith(Hang.__name__)
    short.undo()


def seconds(call, error=None):
    before = time.process_time()
    if error is None:
        call()
    else:
        with pytest.raises(error) as caught:
            call()
        assert "\n" not in str(caught.value) and len(str(caught.value)) < 2000
    return time.process_time() - before


@pytest.mark.parametrize(
    "text",
    [
        "(SYSTEM (TX " + "1" * 200_000 + "x))",  # was tried in all 2e10 ways
        "(SYSTEM (TX " + "1" * 1_000_000 + "))",
        "(SYSTEM (" + "A" * 1_000_000 + " 1))",
        '(SYSTEM (TX "' + "a" * 1_000_000,
        '(SYSTEM (TX "a" (NAME "' + "\\a" * 500_000 + '")))',
        "(" * 1_000_000,
        ")" * 1_000_000,
        "(SYSTEM " * 1_000_000,
        "(SYSTEM (TX 1" + "(TX 1" * 100_000,
        " \n" * 1_000_000,
        "\ufeff" * 1000 + "(SYSTEM)",
    ],
    ids=lambda text: f"{text[:12]!r} {len(text)}",
)
def test_long_texts_are_refused_at_once(text):
    assert seconds(lambda: vioc.read_text(text), ReadError) < 2


@pytest.mark.slow
def test_large_texts_are_read():
    many = "".join(f'(TX "x{i}" (MASS 1))(JOINT-FORCE "x{i}" "u{i}")' for i in range(3000))
    assert seconds(lambda: vioc.read_text(f"(SYSTEM {many})")) < 10
    assert seconds(lambda: vioc.read_text(f'(SYSTEM (NAME "{"n" * 10**6}") (TX "a"))'), ReadError) < 2


LINK = '<link name="l{}"/>'
JOINT = '<joint name="j{0}" type="continuous"><parent link="l{0}"/><child link="l{1}"/></joint>'


@pytest.mark.slow
def test_long_chains_of_links_are_read_and_print():
    n = 1500
    text = "".join(map(LINK.format, range(n))) + "".join(JOINT.format(i, i + 1) for i in range(n - 1))
    model = vioc.read_urdf_text(f"<robot>{text}</robot>")
    lines = str(model.system).splitlines()
    assert len(model.system.dynamic) == n - 1 and sum("'l" in line for line in lines) == n


LAUGHS = "".join(
    f'<!ENTITY {c} "{f"&{b};" * 10}">' for b, c in zip("abcdefghijk", "bcdefghijkl", strict=True)
)


@pytest.mark.parametrize(
    "text",
    [
        f'<!DOCTYPE r [<!ENTITY a "aaaaaaaaaa">{LAUGHS}]><robot name="&l;"><link name="a"/></robot>',
        f'<!DOCTYPE r [<!ENTITY a "aaaaaaaaaa">{LAUGHS}]><robot name="r"><link name="&l;"/></robot>',
        f'<!DOCTYPE r [<!ENTITY a "aaaaaaaaaa">{LAUGHS}]><robot name="r">&l;<link name="a"/></robot>',
        f'<!DOCTYPE r [<!ENTITY a "{"a" * 100_000}">]><robot name="{"&a;" * 10_000}"/>',
        '<!DOCTYPE r [<!ENTITY a "&b;"><!ENTITY b "&a;">]><robot name="&a;"><link name="a"/></robot>',
        "<robot>" + "<link>" * 100_000,
        '<robot name="\ud800"><link name="a"/></robot>',
        '<robot name="\x01"><link name="a"/></robot>',
        f'<robot><link name="a"><inertial><mass value="{"9" * 5000}"/></inertial></link></robot>',
        "",
        "\x00" * 1000,
    ],
    ids=lambda text: f"{text[:24]!r} {len(text)}",
)
def test_hostile_xml_is_refused_at_once(text):
    assert seconds(lambda: vioc.read_urdf_text(text), ReadError) < 2


def test_messages_show_what_a_terminal_would_obey():
    assert shown(Atom("\x1b[2J\n", 0, False)) == "\\x1b[2J\\n"
    for name in ("a\x00", "\x1b[31m", "\x7f", "a\x9b", "\ud800"):
        with pytest.raises(vioc.ModelError, match="a name is"):
            vioc.tx(name)


# -- saved files --------------------------------------------------------------------------------------


@pytest.fixture
def saved(tmp_path):
    return oscillator().rollout([1.0, 0.5], np.ones((3, 2))).save(tmp_path / "run.npz")


def member(path, name, content):
    """Replace a member of an archive by raw bytes."""
    with zipfile.ZipFile(path) as archive:
        members = {n: archive.read(n) for n in archive.namelist()}
    with zipfile.ZipFile(path, "w") as archive:
        for n, old in members.items():
            archive.writestr(n, content if n == name else old)


def npy(header, data=b""):
    text = header.encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + data


@pytest.mark.parametrize(
    "content",
    [
        b"no array",
        npy("{'descr': '<f8', 'fortran_order': False, 'shape': (3,"),
        npy("{'descr': '<f8', 'fortran_order': False, 'shape': (9999999999999, 2)}"),
        npy("{'descr': '<f8', 'fortran_order': False, 'shape': (-1, 2)}"),
        npy("{'descr': '<f8', 1: False, 'shape': (1, 2)}"),
        npy("{" * 3000),
    ],
)
@pytest.mark.parametrize("name", ["x.npy", "header.npy"])
def test_damaged_members_are_refused(saved, name, content):
    member(saved, name, content)
    with pytest.raises(FileFormatError, match="not a readable trajectory file"):
        Trajectory.load(saved, oscillator())


def test_names_that_are_no_text_are_refused(saved):
    member(
        saved, "state_names.npy", npy("{'descr': '<U1', 'fortran_order': False, 'shape': (2,)}", b"\xff" * 8)
    )
    with pytest.raises(FileFormatError, match="not a readable trajectory file"):
        Trajectory.load(saved, oscillator())


@pytest.mark.parametrize("change", [{"k0": True}, {"parameters": {"k": "4"}}, {"parameters": {"k": 1e999}}])
def test_headers_hold_numbers(saved, change):
    with np.load(saved) as stored:
        arrays = dict(stored)
    header = {**json.loads(str(arrays.pop("header"))), **change}
    np.savez(saved, header=np.array(json.dumps(header)), **arrays)
    with pytest.raises(FileFormatError, match="should be a finite number"):
        Trajectory.load(saved, oscillator())


RESULT = {"value": None, "error": None, "traceback": "", "seconds": 0.0}


@pytest.mark.parametrize(
    "record",
    [
        {},
        {"index": 1},
        {"index": 1, "outcome": RESULT},
        {"index": 4, "point": 0, "outcome": RESULT},
        {"index": -1, "point": 0, "outcome": RESULT},
        {"index": True, "point": 0, "outcome": RESULT},
        {"index": 10**30, "point": 0, "outcome": RESULT},
        {"index": 1, "point": 0, "outcome": {**RESULT, "more": 1}},
        {"index": 1, "point": 0, "outcome": {**RESULT, "error": 3}},
        {"index": 1, "point": 0, "outcome": {**RESULT, "seconds": 10**400}},
        {"index": 1, "point": 0, "outcome": {**RESULT, "seconds": float("nan")}},
    ],
)
def test_records_that_are_no_results_are_refused(tmp_path, record):
    path = tmp_path / "run.jsonl"
    sweep(square, POINTS, workers=0, store=path)
    first, second, *_ = path.read_text().splitlines()
    path.write_text("\n".join([first, second, json.dumps(record)]) + "\n")
    with pytest.raises(FileFormatError, match="line 3 is no result of this sweep"):
        sweep(square, POINTS, workers=0, store=path)
    assert path.read_text().count("\n") == 3


@pytest.mark.parametrize(
    "line", ["[" * 100_000, '{"__array__": ["|O", [1], "AAAAAAAAAAA="]}', '{"__array__": 3}']
)
def test_lines_that_are_no_plain_data_are_refused(tmp_path, line):
    path = tmp_path / "run.jsonl"
    sweep(square, POINTS, workers=0, store=path)
    path.write_text(path.read_text() + line + "\n")
    with pytest.raises(FileFormatError, match="line 6 is damaged"):
        sweep(square, POINTS, workers=0, store=path)
    path.write_text(json.dumps({"format": FORMAT, "name": {"__array__": 1, "b": 2}}) + "\n")
    with pytest.raises(FileFormatError, match="line 1 is damaged"):
        sweep(square, POINTS, workers=0, store=path)
