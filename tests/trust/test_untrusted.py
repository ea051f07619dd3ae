"""Files of strangers can execute nothing and read nothing else: attacks on every reader, under audit.

Python's audit events tell of every file that is opened and of every piece of code, process, connection and
pickled class. While a reader is at work only the file itself may be opened.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import re
import sys
import warnings
import zipfile
from pathlib import Path

import casadi as ca
import numpy as np
import pytest
from readers import POINTS, READERS, oscillator, square

import vioc
from vioc import Trajectory

# inside: the source that is compiled and the records of a store are looked at before use
from vioc.compile.native import NativeProgram
from vioc.errors import FileFormatError, ReadError
from vioc.sweeps import sweep
from vioc.sweeps.store import read_store
from vioc.target import write_target

pytest.importorskip("urdf_parser_py")

# `compile` is not among them: numpy parses headers of arrays with ast.literal_eval
FORBIDDEN = (
    "exec",
    "import",
    "os.system",
    "os.exec",
    "os.fork",
    "os.posix_spawn",
    "os.spawn",
    "os.startfile",
    "os.remove",
    "os.rename",
    "os.mkdir",
    "subprocess.Popen",
    "socket.connect",
    "socket.getaddrinfo",
    "urllib.Request",
    "pickle.find_class",
    "marshal.loads",
    "ctypes.dlopen",
)
_seen: list[tuple[str, tuple]] | None = None


def _hook(event: str, args: tuple) -> None:
    if _seen is not None and (event in FORBIDDEN or event == "open"):
        _seen.append((event, args))


sys.addaudithook(_hook)  # for the life of the process; it listens only within `watched`


@contextlib.contextmanager
def watched(*allowed: Path):
    """Nothing but these files is opened inside, and nothing is executed."""
    global _seen
    _seen = []
    try:
        yield
    finally:
        events, _seen = _seen, None
    names = {str(p) for p in allowed}
    bad = [(e, a) for e, a in events if not (e == "open" and str(a[0]) in names)]
    assert not bad, bad


@pytest.fixture(autouse=True)
def _everything_is_imported(tmp_path):
    """Modules that readers import when they are first needed are no event of an attack."""
    for reader in READERS.values():
        path = tmp_path / f"sound{reader.suffix}"
        path.write_bytes(reader.seeds()[0])
        reader.read(path)


class Evil:
    """Makes a file where it is unpickled."""

    def __init__(self, marker):
        self.marker = str(marker)

    def __reduce__(self):
        return os.mkdir, (self.marker,)


def test_the_watch_sees_an_attack(tmp_path):
    data = pickle.dumps(Evil(tmp_path / "owned"))
    for attack in (
        lambda: pickle.loads(data),
        lambda: (tmp_path / "other").write_text("x"),
        lambda: exec("1 + 1"),
        lambda: __import__("this_is_not_there"),
    ):
        with pytest.raises(AssertionError), watched(), contextlib.suppress(ImportError):
            attack()
    assert (tmp_path / "owned").exists()


# -- model texts --------------------------------------------------------------------------------------

SEXPR = [
    "__import__('os').mkdir('owned')",
    "(SYSTEM (EVAL \"__import__('os').mkdir('owned')\"))",
    "#.(os.mkdir 'owned')",
    "(SYSTEM #.(shell \"mkdir owned\") (TX 1))",
    "(SYSTEM (LOAD \"/etc/passwd\") (TX 1))",
    "(SYSTEM (INCLUDE \"other.sexp\") (TX 1))",
    "(SYSTEM (TX __import__('os').getpid()))",
    "(SYSTEM (TX {1+1}))",
    "(SYSTEM (TX \"q\") (USER-FORCE \"os.mkdir\" \"owned\"))",
    "(SYSTEM (TX \"q\") (COMPONENT \"vioc.dynamics.terms.user.UserForce\"))",
    "(SYSTEM (TX \"q\") (__CLASS__ \"q\"))",
]  # fmt: skip


@pytest.mark.parametrize("text", SEXPR)
def test_a_model_text_has_no_words_that_act(text, tmp_path):
    path = tmp_path / "model.sexp"
    path.write_text(text)
    with watched(path), pytest.raises(ReadError):
        vioc.read(path)


HOSTILE = "{__import__('os')};$(mkdir owned)`mkdir owned`%n%s"


def test_text_in_a_model_stays_text(tmp_path, monkeypatch):
    """Names reach files, messages and generated code as what they are."""
    path = tmp_path / "model.sexp"
    path.write_text(
        f'(SYSTEM (NAME "{HOSTILE}") (GRAVITY 0 0 -9.8) (RX "a" (TZ 1 (NAME "{HOSTILE}") (MASS 1))))'
    )
    monkeypatch.chdir(tmp_path)
    with watched(path):
        system = vioc.read(path)
        assert system.name == HOSTILE and HOSTILE in system.frame_names
    f = vioc.MidpointVI(system, 0.01)
    run = f.rollout(f.state(a=0.1), steps=2)
    assert repr(run) and run[f"{HOSTILE}:z"].shape == (3,)
    assert Trajectory.load(run.save(tmp_path / "run.npz"), f).x.tobytes() == run.x.tobytes()
    assert not (tmp_path / "owned").exists()


@pytest.mark.parametrize("integrator", [vioc.MidpointVI, vioc.MaximalVI, vioc.LinearTimeVI])
def test_no_name_of_a_model_reaches_the_c_code_that_is_compiled(integrator):
    evil = '*/ __attribute__((constructor)) void owned(void) {} /*"\n#include "/etc/passwd"\n'
    system = vioc.System(
        vioc.Gravity(0, 0, -9.8),
        vioc.rx("*/owned=1;/*", name=evil)[vioc.tz(-1, name=evil + "2", mass=vioc.Mass(1, (1, 1, 1)))],
        vioc.JointForce("*/owned=1;/*", "*/owned=2;/*"),
        name=evil,
    )
    f = integrator(system, 0.01)
    source = NativeProgram(lambda: f.kernel.function, evil).source
    assert "owned" not in source and "passwd" not in source


# -- URDF ---------------------------------------------------------------------------------------------

ROBOT = '<robot name="{}"><link name="a"/>{}</robot>'
SECRET = "the-secret"


@pytest.mark.parametrize(
    "text",
    [
        '<!DOCTYPE r [<!ENTITY x SYSTEM "file://{secret}">]>' + ROBOT.format("r", "&x;"),
        '<!DOCTYPE r [<!ENTITY x SYSTEM "file://{secret}">]>' + ROBOT.format("&x;", ""),
        '<!DOCTYPE r [<!ENTITY x SYSTEM "file://{secret}">]>' + ROBOT.format("r", '<link name="&x;"/>'),
        '<!DOCTYPE r SYSTEM "file://{secret}">' + ROBOT.format("r", ""),
        '<!DOCTYPE r PUBLIC "-//A//B" "http://127.0.0.1:9/x.dtd">' + ROBOT.format("r", ""),
        '<!DOCTYPE r [<!ENTITY % x SYSTEM "file://{secret}"> %x;]>' + ROBOT.format("r", ""),
        '<!DOCTYPE r [<!ENTITY x SYSTEM "http://127.0.0.1:9/x">]>' + ROBOT.format("r", "&x;"),
        ROBOT.format(
            "r", '<xi:include xmlns:xi="http://www.w3.org/2001/XInclude" parse="text" href="{secret}"/>'
        ),
        '<?xml-stylesheet href="file://{secret}" type="text/xsl"?>' + ROBOT.format("r", ""),
        ROBOT.format("r", '<gazebo><plugin filename="/bin/sh"/></gazebo>'),
        ROBOT.format("$(eval __import__('os').mkdir('owned'))", ""),
        ROBOT.format("r", '<xacro:include filename="{secret}" xmlns:xacro="x"/>'),
        '<robot xmlns:py="x" name="r"><py:eval expr="1"/><link name="a"/></robot>',
    ],
    ids=lambda text: text[:60],
)
def test_urdf_neither_reads_nor_runs_anything(text, tmp_path):
    secret = tmp_path / "secret.txt"
    secret.write_text(SECRET)
    path = tmp_path / "robot.urdf"
    path.write_text(text.replace("{secret}", str(secret)))
    before = os.stat(secret).st_atime_ns
    shown = ""
    with watched(path), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            model = vioc.read_urdf(path)
            shown = f"{model} {model.system!r} {model.unsupported}"
        except ReadError as error:
            shown = str(error)
    assert SECRET not in shown and os.stat(secret).st_atime_ns == before


@pytest.mark.parametrize("inside", ["<mass>&x;</mass>", "&x;<mass value='1'/>", "<inertia>&x;</inertia>"])
def test_entities_anywhere_in_a_link_are_not_read(inside, tmp_path):
    path = tmp_path / "robot.urdf"
    entity = '<!DOCTYPE r [<!ENTITY x SYSTEM "file:///etc/passwd">]>'
    path.write_text(f'{entity}<robot name="r"><link name="a"><inertial>{inside}</inertial></link></robot>')
    with watched(path), warnings.catch_warnings(), contextlib.suppress(ReadError):
        warnings.simplefilter("ignore")
        assert "root:" not in str(vioc.read_urdf(path))


def test_a_careless_parser_would_have_read_the_secret(tmp_path):
    """The attack above is one: the same parser with other options falls for it."""
    etree = pytest.importorskip("lxml.etree")
    (tmp_path / "secret.txt").write_text(SECRET)
    text = f'<!DOCTYPE r [<!ENTITY x SYSTEM "file://{tmp_path}/secret.txt">]><robot name="r">&x;</robot>'
    careless = etree.XMLParser(resolve_entities=True, load_dtd=True)
    assert etree.fromstring(text.encode(), careless).text == SECRET


@pytest.mark.parametrize(
    "file",
    ["package://../../etc/passwd", "file:///etc/passwd", "/dev/zero", "http://127.0.0.1:9/a", "|id", ""],
)
def test_meshes_are_named_and_not_opened(file, tmp_path):
    path = tmp_path / "robot.urdf"
    path.write_text(
        f'<robot name="r"><link name="a"><visual><geometry><mesh filename="{file}"/></geometry></visual>'
        "</link></robot>"
    )
    with watched(path):
        (shape,) = vioc.read_urdf(path).visuals
    assert shape.file == file


# -- saved results ------------------------------------------------------------------------------------


@pytest.fixture
def owned(tmp_path):
    """A folder that an attack would make."""
    marker = tmp_path / "owned"
    yield marker
    assert not marker.exists()


@pytest.mark.parametrize("key", ["t", "x", "u", "state_names", "header", "more"])
def test_pickles_in_a_trajectory_are_refused(key, tmp_path, owned):
    path = oscillator().rollout([1.0, 0.5], steps=3).save(tmp_path / "run.npz")
    with np.load(path) as stored:
        arrays = dict(stored)
    evil = np.empty(1, dtype=object)
    evil[0] = Evil(owned)
    np.savez(path, **{**arrays, key: evil})
    with watched(path), contextlib.suppress(FileFormatError):
        Trajectory.load(path, oscillator())
        assert key == "more"  # what is not asked for is not read


@pytest.mark.parametrize("content", ["pickle", "npy"])
def test_other_files_under_a_trajectorys_name(content, tmp_path, owned):
    path = tmp_path / "run.npz"
    evil = np.empty(1, dtype=object)
    evil[0] = Evil(owned)
    if content == "pickle":
        path.write_bytes(pickle.dumps(Evil(owned)))
    else:
        with open(path, "wb") as stream:
            np.save(stream, evil)
    with watched(path), pytest.raises(FileFormatError):
        Trajectory.load(path, oscillator())


def test_members_of_an_archive_are_not_unpacked_to_disk(tmp_path, owned):
    path = oscillator().rollout([1.0, 0.5], steps=3).save(tmp_path / "run.npz")
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("../owned/x.npy", b"x")
        archive.writestr(str(owned / "y.npy"), b"x")
    with watched(path):
        Trajectory.load(path, oscillator())


def test_a_sweeps_file_is_plain_data(tmp_path, owned):
    path = tmp_path / "run.jsonl"
    sweep(square, POINTS, workers=0, store=path)
    header = path.read_text().splitlines()[0]
    evil = pickle.dumps(Evil(owned)).hex()
    for value in (
        {"__array__": ["|O", [1], "AAAAAAAAAAA="]},
        {"__array__": ["|V8", [1], "AAAAAAAAAAA="]},
        {"__reduce__": ["os.mkdir", [str(owned)]]},
        {"py/object": "os.mkdir", "pickle": evil},
    ):
        result = {"value": value, "error": None, "traceback": "", "seconds": 0.0}
        path.write_text(header + "\n" + json.dumps({"index": 0, "point": 0, "outcome": result}) + "\n")
        with watched(path), contextlib.suppress(FileFormatError):
            _, records = read_store(path)
            assert records[0]["outcome"]["value"] == value  # what it says, and no more


@pytest.mark.parametrize("name", ["*/ int owned; /*", "*\\\n/ int owned; /*", "??/\n*/ int owned;"])
def test_names_stay_in_the_comments_of_exported_c(name, tmp_path):
    x, u = ca.SX.sym("x", 2), ca.SX.sym("u", 1)
    f = vioc.CasadiMap(ca.Function("f", [x, u], [x + 0.1 * u]), dt=0.1, state_names=(name, "y"))
    write_target(tmp_path, f, [0.0, 0.0], name="step")
    for text in (p.read_text() for p in (tmp_path / "step.h", tmp_path / "step.c")):
        outside = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
        assert "owned" not in outside
