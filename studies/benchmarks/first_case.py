"""One case of the benchmark `first`, in a process of its own.

It runs as ``python -m studies.benchmarks.first_case NAME PROGRAM``. Nothing is imported before the case needs
it, so that the times of other programs do not contain the import of vioc. Imports that users of vioc need
count; those of the studies do not, since they bring plots and peers.
"""

from __future__ import annotations

import importlib
import os
import sys
import time
from collections.abc import Callable
from functools import partial

START = "VIOC_FIRST_STARTED"  # environment variable with the time at which the process was started
ANSWERED, MISSING = "answered after ", "not installed"


def _import(room: str, program: str) -> float:
    importlib.import_module(room)
    return 0.0


def _robot(problem: str, program: str) -> float:
    """Solve a problem of studies/benchmarks/robots.py by vioc or by another program."""
    before = time.time()
    from vioc.control import Problem, quadratic  # noqa: F401

    ours = time.time()
    from studies.benchmarks import ocp_peers, robots
    from studies.tasks import optimum

    imported = time.time() - ours
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
    return imported


def _chain(links: int, program: str) -> float:
    """Move a fully driven chain whose velocities are penalized."""
    from vioc.control import Problem, quadratic  # noqa: F401

    before = time.time()
    from studies.benchmarks.problems import driven_chain
    from studies.tasks import Task, optimum

    imported = time.time() - before
    f = driven_chain(links, program)
    names = f.system.variables
    Q = dict.fromkeys(names, 0.1) | {f"v.{n}": 0.01 for n in names}
    cost = quadratic(f, Q=Q, R=0.01, Qf=dict.fromkeys(names, 10.0), goal=dict.fromkeys(names, 0.3 / links))
    optimum(Task(f, cost, None, f.initial_state({names[0]: 0.5}), 50))
    return imported


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


def main(name: str, program: str) -> None:
    """Do one case, and print how long ago this process was started."""
    try:
        described = CASES[name](program)
    except ModuleNotFoundError:
        print(MISSING)
        return
    print(f"{ANSWERED}{time.time() - float(os.environ[START]) - described:.6f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
