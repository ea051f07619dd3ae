"""Time from a fresh Python process to a first answer, with an empty and with a filled cache of libraries.

Each measurement is a process of its own, whose clock starts before Python does. Nothing has been imported,
built or compiled before. Other programs solve the same problem in processes of their own, without the time in
which vioc describes it to them; IPOPT solves vioc's equations, and building them counts.
"""

from __future__ import annotations

import importlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial

from studies.benchmarks.harness import ABSENT, Bench, Row

REPEATS = 5
LONGEST = 600.0  # s of one process
START = "VIOC_FIRST_STARTED"  # environment variable with the time at which the process was started
ANSWERED = "answered after "
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
    """Wall-clock time from nothing to the first answer."""
    repeats = 1 if bench.quick else REPEATS
    for name in QUICK if bench.quick else CASES:
        with tempfile.TemporaryDirectory() as cache:
            figures = {"virtual": _median(name, "auto", repeats, cache, cold=True)}
            note = f"cache filled: {_median(name, 'auto', repeats, cache):.2f} s"
        if "compiled" in bench.backends and not name.startswith("import") and not bench.quick:
            with tempfile.TemporaryDirectory() as cache:
                figures["compiled"] = _median(name, "compiled", 1, cache, cold=True)
        peers: dict[str, float | str] = {}
        for peer in PEERS.get(name, ()):
            with tempfile.TemporaryDirectory() as cache:
                peers[peer] = _median(name, peer, repeats, cache) or ABSENT
        targets = {"virtual": TARGETS[name]} if name in TARGETS else {}
        yield Row(f"first answer: {name}", "s", figures, targets, peers, note)


def _median(name: str, program: str, repeats: int, cache: str, cold: bool = False) -> float:
    """Median time of some processes, s; 0 if the program is not installed. `cold` empties the cache first."""
    times = []
    for _ in range(repeats):
        with tempfile.TemporaryDirectory() as empty:
            folder = empty if cold else cache
            seconds = _process(name, program, folder)
            if not seconds:
                return 0.0
            times.append(seconds)
    if cold:
        _process(name, program, cache)  # fills it for the warm runs
    return statistics.median(times)


def _process(name: str, program: str, cache: str) -> float:
    from vioc.compile.disk_cache import VARIABLE

    environment = os.environ | {START: repr(time.time()), VARIABLE: cache}
    command = [sys.executable, "-m", "studies.benchmarks.first", name, program]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=LONGEST)
    last = done.stdout.strip().rpartition("\n")[2]
    if last.startswith(ANSWERED):
        return float(last.removeprefix(ANSWERED))
    if last == ABSENT:
        return 0.0
    raise RuntimeError(f"{name} by {program}: {done.stdout}\n{done.stderr}")


# -- what a process does -------------------------------------------------------------------------------


def _import(room: str, program: str) -> float:
    importlib.import_module(room)
    return 0.0


def _robot(problem: str, program: str) -> float:
    """Solve a problem of studies/benchmarks/robots.py by vioc or by another program."""
    before = time.time()
    from studies.benchmarks import ocp_peers, robots
    from studies.tasks import optimum

    make = getattr(robots, problem)
    if program == "IPOPT":
        ocp_peers.nlp(make(robots.Make()), "ipopt")()
    elif program == "Crocoddyl FDDP":
        task = make(robots.Make())
        described = time.time() - before
        solve = ocp_peers.crocoddyl_arm(task)
        if solve is None:
            raise ModuleNotFoundError(program)
        solve()
        return described
    else:
        optimum(make(robots.Make(program)))
    return 0.0


def _chain(links: int, program: str) -> float:
    """Move a fully driven chain whose velocities are penalized."""
    from studies.benchmarks.problems import driven_chain
    from studies.tasks import Task, optimum
    from vioc.control import quadratic

    f = driven_chain(links, program)
    names = f.system.variables
    Q = dict.fromkeys(names, 0.1) | {f"v.{n}": 0.01 for n in names}
    cost = quadratic(f, Q=Q, R=0.01, Qf=dict.fromkeys(names, 10.0), goal=dict.fromkeys(names, 0.3 / links))
    optimum(Task(f, cost, None, f.initial_state({names[0]: 0.5}), 50))
    return 0.0


def _step(links: int, program: str) -> float:
    before = time.time()
    from studies.benchmarks import simulators
    from studies.benchmarks.problems import pendulum

    f, x0 = pendulum(links, "virtual" if program in ("MuJoCo", "pinocchio") else program)
    described = time.time() - before
    if program == "MuJoCo":
        if simulators.mujoco() is None:
            raise ModuleNotFoundError(program)
        simulators.MujocoRollout(f.system, x0[: f.nq], f.dt, "Euler")(1)
        return described
    if program == "pinocchio":
        if simulators.pinocchio() is None:
            raise ModuleNotFoundError(program)
        still = 0.0 * x0[: f.nq]
        simulators.PinocchioChain(f.system).acceleration(x0[: f.nq], still, still)
        return described
    f.rollout(x0, steps=1)
    return 0.0


CASES: dict[str, Callable[[str], float]] = {  # of a program; the time that does not count, s
    "import vioc": partial(_import, "vioc"),
    "import vioc.control": partial(_import, "vioc.control"),
    "first step of 60 hinges": partial(_step, 60),
    "7-DOF arm to a point": partial(_robot, "arm"),
    "UR5 to a pose": partial(_robot, "ur5"),
    "humanoid reaches": partial(_robot, "humanoid_reach"),
    "chain of 30 joints": partial(_chain, 30),
    "marionette, 10 % out of reach": partial(_robot, "marionette"),
}
QUICK = ("import vioc", "first step of 60 hinges")


def main(name: str, program: str) -> None:
    """Do one case, and print how long ago this process was started."""
    try:
        described = CASES[name](program)
    except ModuleNotFoundError:
        print(ABSENT)
        return
    print(f"{ANSWERED}{time.time() - float(os.environ[START]) - described:.6f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
