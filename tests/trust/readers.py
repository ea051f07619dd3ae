"""What reads files that others made, and what each must do with any bytes: accept, or refuse by name.

A reader accepts only what keeps the promises checked here; everything but its documented errors (`refusals`)
is a crash, and so is taking longer than `LIMIT`.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import io
import json
import pickle
import re
import signal
import tempfile
import traceback
import warnings
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

import numpy as np

import vioc
from vioc import CasadiMap, Trajectory

# inside: stores and caches are read by no public function, and words of the text are registered
from vioc.compile import disk_cache as cache
from vioc.dynamics.description.component import component_types
from vioc.errors import FileFormatError, ReadError
from vioc.sweeps import store, sweep

HERE = Path(__file__).parent
LIMIT = 5.0  # s for one input; a fuzzer's inputs are a few kilobytes
POINTS = [{"x": float(x)} for x in range(4)]


class Hang(BaseException):
    """Raised by the timer; no handler of the code under test can take it for an error of its own."""


@dataclass(frozen=True)
class Reader:
    """One kind of file.

    Attributes
    ----------
    name, suffix : str
    refusals : tuple of exception types
        What a wrong file may raise.
    read : callable
        Takes a path; reads the file and checks what is promised of one that is accepted.
    seeds : callable
        Sound files, to mutate.
    words : tuple of bytes
        What the format is made of.
    """

    name: str
    suffix: str
    refusals: tuple[type[BaseException], ...]
    read: Callable[[Path], object]
    seeds: Callable[[], list[bytes]]
    words: tuple[bytes, ...]


@dataclass(frozen=True)
class Crash:
    """An input that raised something else than it may."""

    error: str
    where: str
    data: bytes
    text: str

    @property
    def kind(self) -> tuple[str, str]:
        """Two crashes of one kind have one cause, more or less."""
        return self.error.split(":")[0], self.where


def judge(reader: Reader, data: bytes, folder: Path) -> Crash | bool:
    """Read `data` as a file: True if it was accepted, False if it was refused as it should be."""
    path = folder / f"input{reader.suffix}"
    path.write_bytes(data)
    try:
        with _limited(LIMIT), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            reader.read(path)
    except reader.refusals as error:
        if "\n" not in str(error)[:2000]:
            return False
        return _crash(error, data)  # a message is one line
    except (Exception, Hang) as error:
        return _crash(error, data)
    return True


def _crash(error: BaseException, data: bytes) -> Crash:
    frames = [f for f in traceback.extract_tb(error.__traceback__) if "vioc" in f.filename]
    where = f"{Path(frames[-1].filename).name}:{frames[-1].name}" if frames else "?"
    return Crash(f"{type(error).__name__}: {error}"[:300], where, data, traceback.format_exc()[-4000:])


@contextlib.contextmanager
def _limited(seconds: float) -> Iterator[None]:
    def ring(*_):
        raise Hang(f"longer than {seconds:g} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


# -- the readers --------------------------------------------------------------------------------------


def _sexpr(path: Path) -> None:
    system = vioc.read(path)
    text = vioc.write_text(system)
    again = vioc.read_text(text)
    assert again == system and again.name == system.name and vioc.write_text(again) == text
    _is_a_value(system)


def _urdf(path: Path) -> None:
    model = vioc.read_urdf(path)
    names = set(model.system.frame_names) | {"world"}
    assert {s.frame for s in (*model.visuals, *model.collisions)} <= names
    assert set(model.limits) <= set(model.system.variables)
    _is_a_value(model.system)


def _is_a_value(system: vioc.System) -> None:
    """It prints, hashes and pickles."""
    assert str(system) and repr(system)
    again = pickle.loads(pickle.dumps(system))
    assert again == system and hash(again) == hash(system)


@functools.lru_cache(maxsize=1)
def oscillator() -> CasadiMap:
    """A small map with two inputs and a parameter, and no constraint."""
    import casadi as ca

    x, u, t, dt, k = (ca.SX.sym(n, size) for n, size in zip("xutdk", (2, 2, 1, 1, 1), strict=True))
    after = ca.vertcat(x[0] + dt * x[1], x[1] + dt * (u[0] + 2 * u[1] - k * x[0]))
    names = dict(state_names=("q", "v"), input_names=("force", "wind"), parameters={"k": 4.0})
    return CasadiMap(ca.Function("f", [x, u, t, dt, k], [after]), 0.1, **names)


def _trajectory(path: Path) -> None:
    run = Trajectory.load(path, oscillator())
    n = len(run)
    assert n == len(run.u) and run.x.shape == (n + 1, 2) and run.t.shape == (n + 1,)
    assert all(np.isfinite(a).all() for a in (run.t, run.x, run.u, run.multipliers))
    assert repr(run) and run["q"].shape == (n + 1,) and isinstance(run.k0, int)
    again = Trajectory.load(run.save(path.with_name("again.npz")), run.map)
    assert again.x.tobytes() == run.x.tobytes() and again.t.tobytes() == run.t.tobytes()


def square(x: float) -> dict[str, float]:
    return {"y": x * x}


def _sweep(path: Path) -> None:
    store.read_store(path)
    found = sweep(square, POINTS, workers=0, store=path, name="square")
    assert len(found) == len(POINTS) and [o.index for o in found] == list(range(len(POINTS)))
    assert repr(found) and found.failures is not None
    before = path.read_bytes()
    again = sweep(square, POINTS, workers=0, store=path, name="square")
    assert [o.ok for o in again] == [o.ok for o in found] and path.read_bytes() == before


def _cache(path: Path) -> None:
    """A damaged note or library is built again; nothing is refused, nothing raised."""
    directory = path.with_name("cache")
    folder = directory / ("0" * 40)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / cache.LIBRARY).write_bytes(b"library")
    (folder / cache.NOTE).write_bytes(path.read_bytes())
    kept = cache.Cache(directory)
    assert repr(kept) and all(e.bytes >= 0 for e in kept.entries())
    found = kept.get(folder.name, "title", lambda target: target.write_bytes(b"library"))
    assert found.read_bytes() == b"library" and kept.find(folder.name) is not None


# -- sound files --------------------------------------------------------------------------------------

MODELS = Path(vioc.__file__).parent / "models"
DATA = HERE.parent / "data"
# One of every word of the language
VOCABULARY = b"""(SYSTEM (NAME "all") (GRAVITY 0 0 -9.8)
 (TX (K "cart") (NAME "cart")
  (RY "a" (NAME "arm") (MASS 1 1 1 1 0 0 0.1)
   (TZ (P "len" -1.5) (NAME "bob") (MASS 1 (COM 0 0 1)))))
 (SE3 ((1 2 3) (1 0 0 0 1 0 0 0 1)) (NAME "post")
  (TWIST ("h" (0 0 1) (0 1 0)) (NAME "screw") (MASS 2 1 1 1)
   (RX "b" (NAME "rod") (MASS 1 1 1 1) (TY "d" (NAME "end") (MASS 1)))))
 (TORSIONAL-SPRING "a" 2 0.1) (JOINT-FORCE "a" "torque") (JOINT-DAMPING "h" (P "damping" 0.3))
 (LINEAR-SPRING "bob" "world" 5 0.3) (DISTANCE-CONSTRAINT "bob" "post" (K "rope") (NAME "c"))
 (POINT-CONSTRAINT "bob" "end" (0 0 1)) (POINT-ON-PLANE "bob" "world" (0 1 0) 0.2)
 (STRING-CONSTRAINT "end" "world" 2) (BENDING-SPRING "screw" "rod" (1 2 3)) (MASS-DAMPING "screw" "end" 0.1)
 (SHEAVE-STRING "bob" "end" 4 "post" 0.1 (0 1 0)) (LINE-DRAG "rod" "end" 1 (0 0 1) 0.1 0.2)
 (LINEAR-DAMPER "bob" "end" 0.2) (MASS-GRAVITY "bob" 0 0 -1) (GRAVITATION "bob" "end" 1.5)
 (POLYNOMIAL-SPRING "d" (1 0 2) 0.1) (GEAR-CONSTRAINT "a" "b" 2 0.1) (SCREW-CONSTRAINT "b" "d" 0.3)
 (CAM-CONSTRAINT "a" "d" (0.1 0.2) (0.3)) (WRENCH "end" (1 2 3) (0 0 1) "spatial")
 (WRENCH-INPUT "bob" "push" (1 0 0)) (CONTACT "bob" (0 0 1) 0 (0 0 0) 0.1 0.5)
 (PAIR-CONTACT "bob" (SPHERE 0.1) "end" (SPHERE 0.1) 0.3) (JOINT-LIMITS "a" -1 1))
"""


def _sexpr_seeds() -> list[bytes]:
    return [
        VOCABULARY,
        b'(SYSTEM (RX "a" (MASS 1)))',
        *(p.read_bytes() for p in sorted(MODELS.glob("*.sexp"))),
    ]


def _urdf_seeds() -> list[bytes]:
    small = (
        b'<?xml version="1.0"?><robot name="r"><link name="a"/><link name="b"><inertial><mass value="1"/>'
        b'<origin xyz="0 0 1" rpy="0 0.5 0"/><inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/>'
        b'</inertial></link><joint name="j" type="revolute"><parent link="a"/><child link="b"/>'
        b'<axis xyz="0 1 0"/><limit effort="1" velocity="1" lower="-1" upper="1"/></joint></robot>'
    )
    return [small, *(p.read_bytes() for p in sorted(DATA.glob("*.urdf")))]


def _trajectory_seeds() -> list[bytes]:
    run = oscillator().rollout([1.0, 0.5], np.ones((3, 2)))
    with tempfile.TemporaryDirectory() as folder:
        one = run.save(Path(folder) / "run.npz").read_bytes()
    stream = io.BytesIO()
    with np.load(io.BytesIO(one)) as stored:
        np.savez(stream, **stored)
    return [one, stream.getvalue()]


def _sweep_seeds() -> list[bytes]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.jsonl"
        sweep(square, POINTS, workers=0, store=path, name="square")
        whole = path.read_bytes()
    lines = whole.splitlines(keepends=True)
    other = {"value": np.ones(2), "error": None, "traceback": "", "seconds": 0}
    array = store.dumps({"index": 2, "point": 2, "outcome": other})
    failed = store.dumps({"index": 1, "point": 1, "outcome": {**other, "value": None, "error": "E: e"}})
    return [whole, b"".join(lines[:2]), lines[0] + f"{failed}\n{array}\n".encode()]


def _cache_seeds() -> list[bytes]:
    digest = hashlib.sha256(b"library").hexdigest()
    return [json.dumps({"title": "t", "sha256": digest, "made": 1.5}).encode()]


# What every format has trouble with
NUMBERS = (*b"0 -1 1e308 1e-320 1e999 nan -inf 0x10 1_0 \xd9\xa1".split(), b"9" * 400)
UNICODE = ("é", "\u202e", "\u2028", "\x85", "\x00", "\ufeff", "😀", "\x1f", "İ", "ſ")
_FORM = (b"(", b")", b'"', b"\\", b";")
_KEYWORDS = {w.upper() for w in component_types()} | set(re.findall(r"[A-Z][A-Z0-9-]+", VOCABULARY.decode()))
_SEXPR = (*(w.encode() for w in sorted(_KEYWORDS)), *_FORM)
_URDF = tuple(
    b"<link <joint <robot </robot> <inertial> <mass <inertia <origin <visual> <collision> <geometry> <mesh "
    b"<box <sphere <cylinder <limit <mimic <axis <parent <child <transmission> <gazebo> <material <color "
    b"<dynamics type= name= value= xyz= rpy= size= radius= filename= fixed floating planar prismatic world "
    b"<!DOCTYPE <!ENTITY &a; &#0; <![CDATA[ ]]> <!-- --> <?x xmlns:a= package:// file:///etc/passwd".split()
)
_JSON = tuple(
    b'null true {} [] "index": "outcome": "value": "__array__": "int8" "|O" "format": 1e999 NaN -1'.split()
)
_NPY = tuple(
    b"descr fortran_order shape (9999999999,) (-1,) <f8 |O <U9 <M8 True \x93NUMPY PK\x03\x04".split()
)

READERS = {
    r.name: r
    for r in (
        Reader("sexpr", ".sexp", (ReadError,), _sexpr, _sexpr_seeds, _SEXPR),
        Reader("urdf", ".urdf", (ReadError,), _urdf, _urdf_seeds, _URDF),
        Reader("trajectory", ".npz", (FileFormatError,), _trajectory, _trajectory_seeds, (*_NPY, *_JSON)),
        Reader("sweep", ".jsonl", (FileFormatError,), _sweep, _sweep_seeds, _JSON),
        Reader("cache", ".json", (), _cache, _cache_seeds, _JSON),
    )
}


# -- mutations ----------------------------------------------------------------------------------------


def mutate(reader: Reader, data: bytes, random: Random, others: list[bytes]) -> bytes:
    """A file near `data`: a few edits of bytes, words, numbers, brackets, and pieces of `others`."""
    if reader.suffix == ".npz" and random.random() < 0.8:
        return _repacked(reader, data, random)
    for _ in range(1 + int(random.expovariate(0.5))):
        data = _edit(data, random, reader.words, others)
    return data[:100_000]


def _edit(data: bytes, random: Random, words: tuple[bytes, ...], others: list[bytes]) -> bytes:
    a, b = sorted(random.randrange(len(data) + 1) for _ in range(2))
    b = min(b, a + random.choice((1, 4, 30, 1000)))
    kind = random.randrange(8)
    if kind == 0:
        return data[:a] + data[b:]
    if kind == 1:
        return data[:a] + data[a:b] * random.choice((2, 2, 3, 40)) + data[b:]
    if kind == 2:
        return data[:a] + bytes([random.randrange(256)]) + data[a + 1 :]
    if kind == 3:
        return data[:a] + random.choice(words) + data[random.choice((a, b)) :]
    if kind == 4:  # a number for a number
        found = list(re.finditer(rb"-?[0-9][0-9.e+-]*", data))
        if found:
            m = random.choice(found)
            return data[: m.start()] + random.choice(NUMBERS) + data[m.end() :]
    if kind == 5:
        return data[:a] + random.choice(UNICODE).encode() + data[a:]
    if kind == 6 and others:
        other = random.choice(others)
        c = random.randrange(len(other) + 1)
        return data[:a] + other[c : c + random.choice((20, 200, 2000))] + data[b:]
    found = list(re.finditer(rb"\([^()]*\)|<[^<>]*>|\"[^\"]*\"|\{[^{}]*\}|\[[^\[\]]*\]", data))
    if len(found) < 2:
        return data
    m, n = random.sample(found, 2)  # a whole form elsewhere, or once more, or gone
    return data[: m.start()] + random.choice((n[0], m[0] + m[0], b"")) + data[m.end() :]


def _repacked(reader: Reader, data: bytes, random: Random) -> bytes:
    """An archive whose members are edited inside, with checksums that are right again."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = {name: archive.read(name) for name in archive.namelist()}
    except Exception:
        return _edit(data, random, reader.words, [])
    stream = io.BytesIO()
    victim = random.choice(list(members)) if members else ""
    with zipfile.ZipFile(stream, "w", random.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))) as archive:
        for name, content in members.items():
            if name == victim:
                if random.random() < 0.1:
                    continue
                content = _edit(content, random, reader.words, list(members.values()))
            archive.writestr(name, content)
    return stream.getvalue()
