"""Generation of a folder with C99 code of a closed loop or a map (docs/target.md)."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from vioc.control.feedback.kalman import ExtendedKalmanFilter, KalmanFilter
from vioc.control.feedback.loop import ClosedLoop
from vioc.control.feedback.offset_free import OffsetFree
from vioc.control.feedback.scheduled import LimitedLaw, ScheduledLaw
from vioc.control.problem.limits import input_bounds
from vioc.control.receding.nonlinear import NonlinearMPC
from vioc.control.regulators.law import StateLaw, as_law
from vioc.maps.protocol import OneStepMap
from vioc.runs.steps import check_steps
from vioc.target.compensator import unstable_poles
from vioc.target.controller_parts import (
    NONE,
    ControllerPart,
    helpers,
    law_part,
    observer_part,
    step_part,
    template,
)
from vioc.target.emit import SUFFIX, Operations, number
from vioc.target.pages import described, filled, header, readme, tolerance
from vioc.target.plans import check_plan, plan_part
from vioc.target.replayed import Records, of_loop, of_map, samples_text
from vioc.target.split_steps import split

Precision = Literal["double", "single"]

NAME = re.compile(r"[a-z][a-z0-9_]*")


@dataclass(frozen=True)
class Target:
    """Folder of generated C99 code, with a description of the code.

    Attributes
    ----------
    folder : Path
    name : str
        Prefix of its functions and files.
    map : OneStepMap
        Map whose step is in the code.
    functions : tuple of str
        Functions of the code, as far as present: ``"step"``, ``"linearize"``, ``"law"``, ``"start"``,
        ``"output"``, ``"advance"``, ``"measure"``, ``"memory"``.
    precision : str
    operations : dict of str to Operations
        Worst-case operation counts by function; without ``"output"`` if that solves a quadratic program.
    iterations : int
        Newton iterations of a step; 0 for a formula, or without a step.
    records : Records
        Data of the test program.
    unstable_poles : tuple of complex
        Poles of the controller outside of the unit circle, the largest first. They belong to its
        linearization, from measurements to inputs, about the points to which the law regulates. If there are
        any, the controller by itself, without its plant, is unstable.
    """

    folder: Path
    name: str
    map: OneStepMap = field(repr=False)
    functions: tuple[str, ...]
    precision: str
    operations: Mapping[str, Operations] = field(repr=False)
    iterations: int
    records: Records = field(repr=False)
    unstable_poles: tuple[complex, ...] = ()

    def text(self, source: str) -> str:
        """Return C code, after ``target`` has been replaced by the name of the folder.
        For example, ``target_step`` becomes ``NAME_step``, and ``target.h`` becomes ``NAME.h``.
        """
        source = re.sub(r"\bTARGET_(?=[A-Z])", f"{self.name.upper()}_", source)
        return re.sub(r"\btarget(?=[_.])", self.name, source)

    def write(self, file: str, source: str) -> Path:
        """Write a file of generated code to the folder, and return its path."""
        path = self.folder / file
        path.write_text(self.text(source))
        return path


def write_target(
    folder: str | Path,
    what: OneStepMap | ClosedLoop | Any,
    start: Any,
    *,
    name: str = "",
    inputs: Any = None,
    steps: int | None = None,
    noise: int | None = 0,
    estimate: Any = None,
    step: bool = False,
    linearize: bool = False,
    max_iterations: int | None = None,
    precision: Precision = "double",
) -> Target:
    """Write C99 code of a map, a law or a controller, with a test program.

    The code allocates no memory.

    Parameters
    ----------
    folder : path
        Created if missing; its files of these names are replaced.
    what : OneStepMap, ClosedLoop, or a law or regulator
        A closed loop gives observer, law and bounds; its plant only produces the records. A law alone
        measures the state and has no bounds.
    start : (nx,)
        Start of the run that the test program replays.
    name : str
        Prefix of files and functions, in small letters; default: the folder's name.
    inputs : (N, nu), optional
        Inputs of a map's run; default none.
    steps : int, optional
        Number of steps of the run; default: those of the inputs or the law, else 100.
    noise : int or None
        Seed of the loop's noise in the run, None for none.
    estimate : (nx,), optional
        The observer's estimate before the first measurement; default `start`.
    step : bool
        Also write the step of the observer's map (the plant's without one) if the controller does not need
        it.
    linearize : bool
        Also write its derivatives A and B.
    max_iterations : int, optional
        Fixed number of Newton iterations in a step; default one more than the run's steps need.
    precision : "double" or "single"

    Returns
    -------
    Target

    Raises
    ------
    TypeError, ValueError
        Objects that cannot be written in C, with alternatives.
    StepError
        If Newton's method from its start does not solve a step of the run, or finds another root than the
        map's step.
    """
    folder = Path(folder)
    name = name or folder.name
    if not (isinstance(name, str) and NAME.fullmatch(name)):
        raise ValueError(f"name: expected small letters, digits and _, such as 'balance_2', got {name!r}")
    if precision not in SUFFIX:
        raise ValueError(f"precision: expected 'double' or 'single', got {precision!r}")
    loop = None if isinstance(what, OneStepMap) else _loop(what)
    observer = None if loop is None else loop.observer
    f: Any = what if loop is None else loop.plant if observer is None else observer.map
    law: Any = None if loop is None else as_law(loop.law)
    if loop is not None:
        check_steps(law.map.dt, f.dt, "law", "the observer's map", "in C all run at one step")
        check_steps(loop.plant.dt, f.dt, "plant", "the observer's map", "in C all run at one step")
    linearized = linearize or isinstance(observer, ExtendedKalmanFilter) or isinstance(law, NonlinearMPC)
    stepped = step or linearized or loop is None or isinstance(observer, KalmanFilter)
    equations = split(f) if stepped or observer is not None or f.ndx != f.nx else None
    if loop is None:
        records = of_map(f, start, inputs, steps, linearized)
    else:
        records = of_loop(loop, f, start, steps, noise, estimate, linearized, stepped)
    pieces, count = [], 0
    if stepped:
        assert equations is not None
        run = records.steps
        X, U, k = run.x0, run.u, run.k
        if isinstance(law, NonlinearMPC):
            assert records.samples is not None
            check_plan(law, f)
            plan = law.begin(records.samples.k0, records.samples.estimates[0])[0]
            X, U = np.concatenate([X, plan.x[:-1]]), np.concatenate([U, plan.u])
            k = np.concatenate([k, records.samples.k0 + np.arange(len(plan.u))])
        count = equations.iterations(X, U, k, precision, max_iterations, run.x1)
        pieces.append(step_part(equations, count, linearized, precision))
    cost = dict(pieces[0].operations) if pieces else {}
    if loop is not None:
        assert records.samples is not None
        bounds = input_bounds(loop.plant, loop.bounds)
        pieces.append(observer_part(f, observer, equations, cost, precision, records.samples.covariance))
        if isinstance(law, NonlinearMPC):
            pieces.append(plan_part(law, plan, bounds, precision, cost))
        else:
            pieces.append(law_part(law, *bounds, precision))
        spent = {**pieces[-1].operations, **pieces[-2].operations}
        advance = spent.get("predict", NONE) + spent.get("ahead", NONE)
        cost |= {"output": spent["observe"] + spent["law"], "advance": advance}
        if isinstance(law, NonlinearMPC):
            del cost["output"]  # operations of its quadratic program are not counted
    functions = [n for n, kept in (("step", stepped), ("linearize", linearized and stepped)) if kept]
    functions += ["law"] * (loop is not None and not isinstance(law, NonlinearMPC))
    functions += ["start", "output", "advance", "measure", "memory"] * (loop is not None)
    poles = () if loop is None else tuple(unstable_poles(f, law, observer).tolist())
    target = Target(folder, name, f, tuple(functions), precision, cost, count, records, poles)
    folder.mkdir(parents=True, exist_ok=True)
    sizes = {"NX": f.nx, "NU": f.nu, "NM": len(f.multiplier_names)}
    sizes |= {k: v for p in pieces for k, v in p.sizes.items()}
    target.write(f"{name}.h", header(target, sizes, pieces, observer))
    target.write(f"{name}.c", _source(target, sizes, pieces))
    for file, text in ((file, text) for p in pieces for file, text in p.headers.items()):
        guard = re.sub(r"\W", "_", file).upper()
        target.write(target.text(file), f"#ifndef {guard}\n#define {guard}\n{text}#endif\n")
    target.write(f"{name}_samples.h", samples_text(records))
    check = template("check.c").replace("CHECK_TOLERANCE", repr(tolerance(target)))
    target.write(f"{name}_test.c", check)
    target.write(f"{name}_time.c", template("time.c"))
    target.write("README.md", readme(target, observer))
    (folder / "CMakeLists.txt").write_text(filled("CMakeLists.txt", {"NAME": name}))
    (folder / f"{name}.json").write_text(json.dumps(described(target, sizes, observer)) + "\n")
    return target


def _loop(what: Any) -> ClosedLoop:
    """Return `what`, converted to a closed loop if it is only a feedback law.
    The closed loop consists of the law and of the map for which it was designed. TypeError is raised if C
    code cannot be generated for the law.
    """
    law = as_law(what.law if isinstance(what, ClosedLoop) else what)
    inner = law.law if isinstance(law, LimitedLaw) else law
    known = (StateLaw, ScheduledLaw)
    if not isinstance(inner, known) and not isinstance(law, (NonlinearMPC, OffsetFree)):
        raise TypeError(
            f"law: {type(law).__name__} is not written in C; expected a regulator, a StateLaw, a "
            "ScheduledLaw, a LimitedLaw of one, an OffsetFree, or a NonlinearMPC"
        )
    return what if isinstance(what, ClosedLoop) else ClosedLoop(law.map, law)  # type: ignore[attr-defined]


def _source(target: Target, sizes: Mapping[str, int], pieces: list[ControllerPart]) -> str:
    suffix = SUFFIX[target.precision]
    needs = [n for n in helpers() if any(n in p.needs for p in pieces)]
    defined = [f"#define {n} {v if v >= 0 else f'({v})'}" for n, v in sizes.items()]
    head = [
        f"/* {target.name}: see {target.name}.h. Written by vioc; do not edit. */",
        "#include <limits.h>",
        "#include <math.h>",
        "#include <stddef.h>",
        "#include <string.h>",
        f'#include "{target.name}.h"',
        "",
        "typedef target_real real;",
        f"#define F(function) function{'##' + suffix if suffix else ''} /* of math.h, in this precision */",
        f"#define DT {number(target.map.dt, target.precision)}",
        *defined,
        "",
        "",
    ]
    text = "\n".join(head) + "".join(helpers()[n] for n in needs)
    text += "\n".join(p.source for p in pieces)
    samples = target.records.samples
    if samples is not None:
        begin = "\n".join(f"    {p.begin}" for p in pieces if p.begin)
        loop = "    int i;\n" if "(i = 0" in begin else ""
        usual = ", ".join(number(v, target.precision) for v in samples.start)
        text += f"""static void begin(target_state *s)
{{
{loop}{begin or "    (void)s;"}
}}

"""
        # the period in samples, or 0 if the controller is not periodic
        again = sizes.get("LAW_AFTER") == 2 and sizes.get("FILTER_ROWS", 1) == 1
        text += (
            template("controller.c")
            .replace("USUAL_START", f"{{{usual}}}")
            .replace("FIRST_SAMPLE", f"({samples.k0})")
            .replace("REPEATS", str(sizes["LAW_ROWS"] if again and not split(target.map).timed else 0))
        )
    return text
