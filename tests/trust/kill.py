"""kill -9 at random moments: ``python tests/trust/kill.py --times 200``.

A forked process does one thing over and over, and says each time that it is done; it is killed at a random
moment; then everything that it said must be there, whole, and nothing half. What a kill may leave behind is
litter with names of its own, which is counted.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import numpy as np
from readers import oscillator

from vioc import Trajectory
from vioc.compile import Cache, load_library

# inside: files of a killed sweep are read, and values compared in their stored form
from vioc.dynamics.formats import sexpr
from vioc.sweeps import sweep
from vioc.sweeps.store import dumps, read_store

Say = Callable[[int], None]


@dataclass
class Count:
    """What a number of kills did."""

    job: str
    kills: int = 0
    done: int = 0  # operations that were reported done
    within: int = 0  # kills in the middle of an operation that left a file with a name of its own
    litter: int = 0
    lost: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def __str__(self) -> str:
        verdict = "nothing lost" if not self.lost else f"LOST: {self.lost[0]}"
        return (
            f"{self.job:<12}{self.kills:>6} kills{self.within:>6} within{self.done:>8} done"
            f"{self.litter:>6} scratch files{self.seconds:>7.1f} s  {verdict}"
        )


@dataclass(frozen=True)
class Job:
    """What a process does until it is killed, and how to check what it left.

    Attributes
    ----------
    work : callable
        ``work(folder, first, say)``: operations first, first + 1, ...; never ends.
    check : callable
        ``check(folder, said)`` gives the operation that the files show; raises if they are not whole.
    scratch : str
        Pattern of what may be left behind.
    """

    work: Callable[[Path, int, Say], None]
    check: Callable[[Path, int], int]
    scratch: str


# -- saving a trajectory over an older one ------------------------------------------------------------


def _save(folder: Path, first: int, say: Say) -> None:
    f = oscillator()
    for i in range(first, sys.maxsize):
        run = f.rollout([float(i), 0.0], steps=200 + 200 * (i % 20))
        run.save(folder / "run.npz")
        say(i)


def _saved(folder: Path, said: int) -> int:
    if not (folder / "run.npz").exists():
        return -1
    run = Trajectory.load(folder / "run.npz", oscillator())
    i = int(run.x[0, 0])
    expected = oscillator().rollout([float(i), 0.0], steps=200 + 200 * (i % 20))
    assert run.x.tobytes() == expected.x.tobytes() and run.t.tobytes() == expected.t.tobytes()
    return i


# -- writing a model text -----------------------------------------------------------------------------


def _write(folder: Path, first: int, say: Say) -> None:
    for i in range(first, sys.maxsize):
        sexpr.write(_model(i), folder / "model.sexp")
        say(i)


def _written(folder: Path, said: int) -> int:
    if not (folder / "model.sexp").exists():
        return -1
    i = int(sexpr.read(folder / "model.sexp").parameters["mass"])
    assert sexpr.read(folder / "model.sexp") == _model(i)
    return i


def _model(i: int):
    from vioc import Gravity, P, System, rx, tz

    links = [rx(f"a{j}")[tz(-1, mass=P("mass", float(i)))] for j in range(1 + 20 * (i % 30))]
    return System(Gravity(0, 0, -9.8), *links)


# -- a sweep's file -----------------------------------------------------------------------------------

TASKS = 3000


def task(x: float, rng: np.random.Generator) -> dict:
    """Plain data, an array and a failure now and then."""
    if x % 7 == 3:
        raise ValueError(f"no {x}")
    return {"y": x + rng.standard_normal(), "more": rng.standard_normal(int(x) % 50)}


def _sweep(folder: Path, first: int, say: Say) -> None:
    def told(progress) -> None:
        say(progress.done - 1)

    sweep(task, range(TASKS), seed=1, workers=0, store=folder / "run.jsonl", progress=told)
    say(TASKS - 1)  # again, where a process before had done them all
    while True:  # wait for the end
        time.sleep(1)


def _swept(folder: Path, said: int) -> int:
    path = folder / "run.jsonl"
    if not path.exists() or not path.read_bytes().count(b"\n"):
        return -1
    _, records = read_store(path)
    assert [r["index"] for r in records] == list(range(len(records)))
    for record in records[-50:]:
        assert dumps(record["outcome"]["value"]) == dumps(_task(record["index"])), record["index"]
    return len(records) - 1


def _finished(folder: Path) -> None:
    """The sweep that was killed so often ends like one that never was."""
    points = range(TASKS)
    resumed = sweep(task, points, seed=1, workers=0, store=folder / "run.jsonl")
    whole = sweep(task, points, seed=1, workers=0)
    assert [dumps([o.value, o.error]) for o in resumed] == [dumps([o.value, o.error]) for o in whole]


def _task(i: int):
    child = np.random.SeedSequence(1, spawn_key=(i,))
    try:
        return task(i, np.random.default_rng(child))
    except ValueError:
        return None


# -- compiling into the cache -------------------------------------------------------------------------

SOURCE = '__attribute__((visibility("default"))) double value(void) {{ return {i}.0; }}\n'


def _compile(folder: Path, first: int, say: Say) -> None:
    os.environ["VIOC_CACHE"] = str(folder)
    for i in range(first, sys.maxsize):
        library = load_library([SOURCE.format(i=i)], f"library {i}")
        library.value.restype = ctypes.c_double
        assert library.value() == i
        say(i)


def _compiled(folder: Path, said: int) -> int:
    cache, found = Cache(folder), set()
    for entry in cache.entries():
        path = cache.find(entry.key)
        assert path is not None, f"{entry.title}: unsound"
        library = ctypes.CDLL(str(path))
        library.value.restype = ctypes.c_double
        assert library.value() == int(entry.title.split()[1])
        found.add(int(library.value()))
    assert found >= set(range(said + 1)), f"lacks {sorted(set(range(said + 1)) - found)[:3]}"
    return max(found, default=-1)


JOBS = {
    "trajectory": Job(_save, _saved, ".run.npz.*.part"),
    "model text": Job(_write, _written, ".*.tmp"),
    "sweep": Job(_sweep, _swept, "none"),
    "compile": Job(_compile, _compiled, "new-*"),
}


# -- the killer ---------------------------------------------------------------------------------------


def run(job: str, times: int, seed: int = 0) -> Count:
    """Start, kill, check; the work goes on where the last process was killed."""
    what, count, random = JOBS[job], Count(job), Random(seed)
    start = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="kill-") as name:
        folder, said = Path(name), -1
        for _ in range(times):
            said = max(said, _until_killed(what, folder, said + 1, random))
            count.kills += 1
            try:
                shown = what.check(folder, said)
                if shown < said:
                    count.lost.append(f"said {said}, found {shown}")
                # one more than it said: killed after it was done and before it could say so
                if shown > said + 1:
                    count.lost.append(f"said {said}, found {shown}")
                said = max(said, shown)
            except Exception as error:
                count.lost.append(f"after {said}: {type(error).__name__}: {error}")
                break
            now = len(list(folder.glob(what.scratch)))
            count.within += now > count.litter
            count.litter = now
        if job == "sweep":
            _finished(folder)
        count.done = said + 1
    count.seconds = time.perf_counter() - start
    return count


def _until_killed(job: Job, folder: Path, first: int, random: Random) -> int:
    """Work in a forked process and kill it; the last operation that it said was done, or first - 1."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(reading)
            os.setpgid(0, 0)  # with the compilers that it starts
            job.work(folder, first, lambda i: os.write(writing, f"{i}\n".encode()))
        finally:
            os._exit(1)
    os.close(writing)
    with open(reading, "rb") as stream:
        # from the first word on, or from the start: the first operation is killed as well
        got = stream.readline() if random.random() < 0.7 else b""
        time.sleep(random.expovariate(1 / 0.03))
        try:
            os.killpg(pid, signal.SIGKILL)
        except ProcessLookupError:  # not yet a group of its own
            os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        assert os.WIFSIGNALED(status), "the process ended by itself"
        lines = (got + stream.read()).splitlines()
    return int(lines[-1]) if lines else first - 1


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python tests/trust/kill.py", description=__doc__)
    parser.add_argument("--times", type=int, default=200, help="kills of each job")
    parser.add_argument("--job", choices=JOBS, action="append", help="default: all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="also write the counts here, as JSON")
    given = parser.parse_args(arguments)
    counts = []
    for job in given.job or JOBS:
        counts.append(run(job, given.times, given.seed))
        print(counts[-1], flush=True)
    if given.out:
        given.out.write_text(json.dumps([vars(c) for c in counts], indent=1))
    return int(any(c.lost for c in counts))


if __name__ == "__main__":
    sys.exit(main())
