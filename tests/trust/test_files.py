"""What is written survives kills, full and read-only disks, and several processes at once."""

from __future__ import annotations

import errno
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from pathlib import Path

import kill
import numpy as np
import pytest
from readers import POINTS, oscillator, square

import vioc
from vioc.compile import Cache, find_compiler, load_library

# inside: the files of a cached library, which are damaged, and the folder that a process found
from vioc.compile import disk_cache as caches
from vioc.compile.disk_cache import LIBRARY, NOTE
from vioc.errors import CompileError
from vioc.sweeps import sweep

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked here"),
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),
]
resource = pytest.importorskip("resource")
compiler = pytest.mark.skipif(find_compiler() is None, reason="no C compiler")
ROOT = hasattr(os, "geteuid") and os.geteuid() == 0


def apart(call):
    """What `call` returns in a forked process of its own, where limits and users may be changed."""
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe(duplex=False)

    def work():
        try:
            there.send((True, call()))
        except BaseException:
            there.send((False, traceback.format_exc()))

    process = context.Process(target=work)
    process.start()
    good, result = here.recv()
    process.join()
    assert good, result
    return result


def as_nobody(call, place):
    """`call` apart, without the rights of root; temporary files go to a folder in `place`."""
    temporary = place / "tmp"
    temporary.mkdir()
    temporary.chmod(0o777)
    for folder in (place, *list(place.parents)[:3]) if ROOT else ():
        folder.chmod(folder.stat().st_mode | 0o055)

    def inside():
        os.environ["TMPDIR"] = tempfile.tempdir = str(temporary)
        caches._own_folder.cache_clear()
        caches._own.clear()
        if ROOT:
            os.setuid(65534)
        return call()

    return apart(inside)


def run_of(steps):
    return oscillator().rollout([1.0, 0.5], steps=steps)


# -- kill -9 ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("job", [j if j != "compile" else pytest.param(j, marks=compiler) for j in kill.JOBS])
def test_kills_lose_nothing(job, monkeypatch):
    monkeypatch.setattr(kill, "TASKS", 300)
    count = kill.run(job, times=4, seed=1)
    assert count.kills == 4 and not count.lost, str(count)


def test_the_killer_finds_a_save_in_place(monkeypatch):
    """Writing over the old file, as a program that does not care would, is found out."""

    def careless(folder, first, say):
        for i in range(first, sys.maxsize):
            with open(folder / "run.npz", "wb") as stream:
                run = oscillator().rollout([float(i), 0.0], steps=200 + 200 * (i % 20))
                data = run.save(folder / "other.npz").read_bytes()
                for at in range(0, len(data), 500):
                    stream.write(data[at : at + 500])
                    stream.flush()
                    time.sleep(1e-4)
            say(i)

    job = kill.JOBS["trajectory"]
    monkeypatch.setitem(kill.JOBS, "trajectory", kill.Job(careless, job.check, job.scratch))
    assert kill.run("trajectory", times=20).lost


SWEEP = """
import sys
sys.path[:0] = {paths!r}
from support.sweep_tasks import slow
from vioc.sweeps import sweep
if __name__ == "__main__":
    sweep(slow, range(3000), seed=1, workers=2, progress=lambda p: p.done == 1 and print("go", flush=True))
"""


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="processes are listed in /proc")
@pytest.mark.slow
def test_workers_do_not_outlive_a_killed_sweep(tmp_path):
    tests = Path(__file__).parents[1]
    (tmp_path / "study.py").write_text(SWEEP.format(paths=[str(tests), str(tests.parent)]))
    command = [sys.executable, str(tmp_path / "study.py")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert process.stdout.readline() == b"go\n"
    children = set(Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split())
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    assert len(children) >= 2
    for _ in range(200):
        children = {c for c in children if Path(f"/proc/{c}").exists()}
        if not children:
            return
        time.sleep(0.05)
    for child in children:
        os.kill(int(child), signal.SIGKILL)
    pytest.fail(f"{len(children)} workers go on 10 s after their sweep was killed")


# -- a full disk --------------------------------------------------------------------------------------


@pytest.fixture(params=["limit", "tmpfs"])
def full(request, tmp_path):
    """(folder, how to call where no file there can grow beyond 16 kB)."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if request.param == "limit":

        def limited(call, size=16_384):
            def inside():
                resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
                return call()

            return apart(inside)

        yield folder, limited
        return
    mount = ["mount", "-t", "tmpfs", "-o", "size=16k", "none", str(folder)]
    if not ROOT or sys.platform != "linux" or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("mounting is not allowed here")
    yield folder, lambda call, size=0: apart(call)
    subprocess.run(["umount", str(folder)], check=True)


def no_space(call):
    try:
        call()
    except OSError as error:
        return error.errno
    return None


FULL = (errno.ENOSPC, errno.EFBIG)


def test_a_full_disk_leaves_the_old_trajectory(full):
    folder, call = full
    path = run_of(3).save(folder / "run.npz")
    before = path.read_bytes()
    large = oscillator().rollout([1.0, 0.5], np.random.default_rng(0).normal(size=(3000, 2)))
    assert call(lambda: no_space(lambda: large.save(path))) in FULL
    assert path.read_bytes() == before and os.listdir(folder) == ["run.npz"]


def test_a_full_disk_leaves_the_old_model(full):
    folder, call = full
    path = folder / "model.sexp"
    small = vioc.System(vioc.tx("a", mass=1))
    vioc.write(small, path)
    large = vioc.System([vioc.tx(f"a{i}", mass=1) for i in range(700)])
    assert call(lambda: no_space(lambda: vioc.write(large, path))) in FULL
    assert vioc.read(path) == small and os.listdir(folder) == ["model.sexp"]


def wide(x):
    return {"y": [x] * 400}


def test_a_sweep_goes_on_when_there_is_space_again(full):
    folder, call = full
    path = folder / "run.jsonl"
    points = [{"x": 0.1 * i} for i in range(60)]
    assert call(lambda: no_space(lambda: sweep(wide, points, workers=0, store=path))) in FULL
    moved = folder.parent / "run.jsonl"  # there is space
    moved.write_bytes(path.read_bytes())
    assert 1 < moved.read_bytes().count(b"\n") < 61
    told = []
    found = sweep(wide, points, workers=0, store=moved, progress=told.append)
    assert [o.value for o in found] == [wide(**p) for p in points] and 0 < len(told) < 60


@compiler
def test_a_full_cache_is_done_without(full, monkeypatch):
    folder, call = full
    (folder / "filler").write_bytes(bytes(12_000))
    monkeypatch.setenv("VIOC_CACHE", str(folder))

    def work():
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            try:
                library = load_library([EXPORT + "int answer(void) { return 42; }"], "full")
            except CompileError as error:
                return "CompileError", str(error)
        return library.answer(), str(told[0].message)

    answer, text = call(work, 4096)
    if answer != "CompileError":  # where files are limited everywhere, the compiler has no place at all
        assert answer == 42 and "cannot be written" in text and "VIOC_CACHE" in text
    else:
        assert "failed" in text
    assert not list(Cache(folder).entries()) and os.listdir(folder) == ["filler"]


# -- read-only places, no home ------------------------------------------------------------------------

EXPORT = '__attribute__((visibility("default"))) '


@pytest.fixture(params=["a file is in the way", "read-only"])
def unwritable(request, tmp_path):
    """(folder that cannot be written, how to call as somebody who may not)."""
    if request.param == "read-only":
        folder = tmp_path / "shut"
        folder.mkdir()
        folder.chmod(0o555)
        yield folder, lambda call: as_nobody(call, tmp_path)
        folder.chmod(0o755)
    else:
        (tmp_path / "file").write_text("")
        yield tmp_path / "file" / "cache", apart


def compiled_answer(number):
    """A library's answer and what was warned of."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        source = EXPORT + f"int answer(void) {{ return {number}; }}"
        answers = [load_library([source], "answer").answer() for _ in range(2)]
    return answers, [str(w.message) for w in told]


@compiler
def test_a_cache_that_cannot_be_written_is_done_without(unwritable, monkeypatch):
    folder, call = unwritable
    monkeypatch.setenv("VIOC_CACHE", str(folder))

    def work():
        caches._own_folder.cache_clear()  # not that of the process which this one was forked from
        answers, told = compiled_answer(7)
        own = caches._own_folder()
        return answers, told, [p.name for p in own.rglob(LIBRARY)], repr(Cache())

    answers, told, libraries, shown = call(work)
    assert answers == [7, 7] and libraries == [LIBRARY]  # compiled once
    assert len(told) == 1 and "cannot be written" in told[0] and "VIOC_CACHE" in told[0]
    assert "0 libraries" in shown


@compiler
def test_a_damaged_entry_of_a_read_only_cache_is_done_without(tmp_path, monkeypatch):
    monkeypatch.setenv("VIOC_CACHE", str(tmp_path / "shut"))
    apart(lambda: compiled_answer(8))
    (entry,) = Cache().entries()
    folder = tmp_path / "shut" / entry.key
    (folder / NOTE).write_text("{")
    folder.chmod(0o555)
    (tmp_path / "shut").chmod(0o555)
    try:
        answers, told = as_nobody(lambda: compiled_answer(8), tmp_path)
    finally:
        (tmp_path / "shut").chmod(0o755)
        folder.chmod(0o755)
    assert answers == [8, 8] and "cannot be written" in told[0]


@compiler
def test_without_a_home_libraries_are_the_processs_own(monkeypatch):
    for name in ("VIOC_CACHE", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)

    def nowhere():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", nowhere)

    def work():
        caches._own_folder.cache_clear()
        answers, told = compiled_answer(9)
        return answers, told, str(Cache().directory)

    answers, told, directory = apart(work)
    assert answers == [9, 9] and not told and "vioc-" in directory


@compiler
def test_the_processs_own_libraries_go_with_it(tmp_path):
    code = (
        "import warnings; warnings.simplefilter('ignore')\n"
        "from vioc.compile import load_library\n"
        f"load_library(['{EXPORT}int answer(void) {{ return 1; }}'], 'own').answer()\n"
    )
    (tmp_path / "file").write_text("")
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    more = {"VIOC_CACHE": str(tmp_path / "file" / "c"), "TMPDIR": str(temporary)}
    root = str(Path(__file__).parents[2])
    done = subprocess.run([sys.executable, "-c", code], env={**os.environ, **more, "PYTHONPATH": root})
    assert done.returncode == 0 and os.listdir(temporary) == []


def test_read_only_output_says_where(unwritable):
    folder, call = unwritable

    def work():
        told = []
        for write in (
            lambda: run_of(3).save(folder / "run.npz"),
            lambda: vioc.write(vioc.System(vioc.tx("a", mass=1)), folder / "model.sexp"),
            lambda: sweep(square, POINTS, workers=0, store=folder / "run.jsonl"),
        ):
            try:
                write()
            except OSError as error:
                told.append(str(error))
        return told

    told = call(work)
    assert len(told) == 3 and all(str(folder) in text for text in told)


# -- several processes at once ------------------------------------------------------------------------


def together(count, call):
    """Results of `call(i)` in forked processes that start at the same moment."""
    go_read, go_write = os.pipe()
    ready_read, ready_write = os.pipe()

    def inside(i):
        os.close(go_write)
        os.write(ready_write, b".")
        os.read(go_read, 1)  # until the other end is closed
        return call(i)

    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(count) as threads:
        futures = [threads.submit(apart, lambda i=i: inside(i)) for i in range(count)]
        for _ in range(count):
            os.read(ready_read, 1)
        os.close(go_write)
        results = [f.result() for f in futures]
    for end in (go_read, ready_read, ready_write):
        os.close(end)
    return results


@compiler
@pytest.mark.parametrize("damaged", [False, True])
def test_processes_that_compile_the_same_at_once(damaged, tmp_path, monkeypatch):
    monkeypatch.setenv("VIOC_CACHE", str(tmp_path))
    if damaged:
        apart(lambda: compiled_answer(5))
        (entry,) = Cache().entries()
        (tmp_path / entry.key / LIBRARY).write_bytes(b"not a library")
    results = together(4, lambda i: compiled_answer(5))
    assert results == [([5, 5], [])] * 4
    assert len(list(Cache().entries())) == 1
    left = [p.name for p in tmp_path.iterdir() if len(p.name) != 40]
    assert not left


@compiler
def test_processes_that_build_the_same_map_at_once(tmp_path, monkeypatch):
    monkeypatch.setenv("VIOC_CACHE", str(tmp_path))
    system = vioc.System(vioc.Gravity(0, 0, -9.81), vioc.rx("a")[vioc.tz(-1, mass=1)])

    def rolled(backend):
        f = vioc.MidpointVI(system, 0.01, backend=backend)
        return f.rollout(f.state(a=0.3), steps=50).x.tobytes()

    assert set(together(3, lambda i: rolled("compiled"))) == {rolled("virtual")}
