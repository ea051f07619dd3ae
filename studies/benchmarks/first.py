"""Time from a fresh Python process to a first answer, with an empty and with a filled cache of libraries.

Each measurement is a process of its own, whose clock starts before Python does. Nothing has been imported,
built or compiled before. Other programs solve the same problem in processes of their own, without the time in
which vioc describes it to them; IPOPT solves vioc's equations, and building them counts.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator

from studies.benchmarks.first_case import ANSWERED, CASES, MISSING, START
from studies.benchmarks.harness import ABSENT, Bench, Row
from vioc.compile.disk_cache import VARIABLE

REPEATS = 5
LONGEST = 600.0  # s of one process
QUICK = ("import vioc", "first step of 60 hinges")
TARGETS = {  # s, by the backend "auto" from an empty cache
    "import vioc": 0.3,
    "import vioc.control": 0.6,
    "7-DOF arm to a point": 1.0,
    "UR5 to a pose": 1.2,
    "humanoid reaches": 3.0,
    "chain of 30 joints": 4.0,
    "marionette, 10 % out of reach": 2.0,
}
PEERS: dict[str, tuple[str, ...]] = {  # of the cases that they solve
    "7-DOF arm to a point": ("Crocoddyl FDDP", "IPOPT"),
    "humanoid reaches": ("IPOPT",),
    "first step of 60 hinges": ("MuJoCo", "pinocchio"),
}


def first(bench: Bench) -> Iterator[Row]:
    """Wall-clock time from nothing to the first answer; the column "virtual" has the backend "auto"."""
    repeats = 1 if bench.quick else REPEATS
    for name in QUICK if bench.quick else CASES:
        with tempfile.TemporaryDirectory() as filled:
            figures = {"virtual": _median(name, "auto", repeats)}
            _process(name, "auto", filled)
            note = f'by "auto"; with a filled cache {_median(name, "auto", repeats, filled):.2f} s'
        if "compiled" in bench.backends and not name.startswith("import") and not bench.quick:
            figures["compiled"] = _median(name, "compiled", 1)
        peers: dict[str, float | str] = {}
        for peer in PEERS.get(name, ()):
            peers[peer] = _median(name, peer, repeats) or ABSENT
        targets = {"virtual": TARGETS[name]} if name in TARGETS else {}
        yield Row(f"first answer: {name}", "s", figures, targets, peers, note)


def _median(name: str, program: str, repeats: int, cache: str = "") -> float:
    """Median time of some processes, s; 0 if the program is not installed. Each begins without a `cache`."""
    times = []
    for _ in range(repeats):
        with tempfile.TemporaryDirectory() as empty:
            times.append(_process(name, program, cache or empty))
        if not times[-1]:
            return 0.0
    return statistics.median(times)


def _process(name: str, program: str, cache: str) -> float:
    """Time of one process, s; 0 if the program is not installed."""
    # with bytecode on disk, as pip leaves it
    environment = os.environ | {START: repr(time.time()), VARIABLE: cache, "PYTHONDONTWRITEBYTECODE": ""}
    command = [sys.executable, "-m", "studies.benchmarks.first_case", name, program]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=LONGEST)
    last = done.stdout.strip().rpartition("\n")[2]
    if last.startswith(ANSWERED):
        return float(last.removeprefix(ANSWERED))
    if last == MISSING:
        return 0.0
    raise RuntimeError(f"{name} by {program}: {done.stdout}\n{done.stderr}")
