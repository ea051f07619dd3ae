"""Files that describe a generated folder: header, README, CMake and JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from vioc.target.controller_parts import ControllerPart, listed, template

if TYPE_CHECKING:
    from vioc.target.folder import Target

STATUS = {  # bits of the functions' return values
    "UNSOLVED": "the step's equations are not solved to their tolerance; the last iterate is given",
    "SINGULAR": "a matrix of the step or of the filter has no inverse; nothing is written",
    "OUTSIDE": "the tables have no row for this sample; nothing is written",
    "NOT_FINITE": "a measurement or an input is no number; the prediction stays, or nothing is written",
    "NO_PLAN": "the program of a receding horizon has no answer; the last plan goes on",
}
TOLERANCE = {"double": 1e-10, "single": 2e-3}  # of the test program, relative to each quantity's maximum
PLANNED_SINGLE = 0.1  # the same for programs solved by an interior point in single precision

PROTOTYPES = {
    "step": (
        "int target_step(int k, const target_real *x, const target_real *u, target_real *x_next,\n"
        "                target_real *multipliers);",
        "x_next (NX) and multipliers (NM) of step k from x (NX) under u (NU)",
    ),
    "linearize": (
        "int target_linearize(int k, const target_real *x, const target_real *u, target_real *x_next,\n"
        "                     target_real *A, target_real *B);",
        "x_next, A (NX, NX) and B (NX, NU) of step k, row by row",
    ),
    "law": (
        "int target_law(int k, const target_real *x, target_real *u);",
        "input u (NU) of the law at sample k for state x, without bounds",
    ),
    "start": (
        "void target_start(target_state *s, const target_real *x);",
        "start with the estimate x (NX), or with the recorded one if x is NULL",
    ),
    "output": (
        "int target_output(target_state *s, const target_real *y, target_real *u);",
        "input u (NU) from the measurement y (NY); call it as soon as y is measured",
    ),
    "advance": (
        "int target_advance(target_state *s, const target_real *u);",
        "prediction for the next sample under the applied input u; call it until then",
    ),
    "measure": (
        "void target_measure(const target_real *x, target_real *y);",
        "readings y of the sensors at state x without noise, for simulations",
    ),
    "memory": ("unsigned long target_memory(void);", "size of target_state in bytes"),
}


def header(target: Target, sizes: Mapping[str, int], pieces: list[ControllerPart], observer: Any) -> str:
    f, guard = target.map, "TARGET_H"
    real = "double" if target.precision == "double" else "float"
    rows = layout(target, observer)
    lines = [
        f"/* {target.name}: one sample every {f.dt!r} s, {target.precision} precision. Written by vioc.",
        "",
        *(f"   {what:<12} {listed(names) or 'none'}" for what, names in rows.items()),
        "",
        "   Largest operation counts:",
        *(f"   {n:<12} {cost}" for n, cost in target.operations.items()),
    ]
    if "PLANNED" in sizes:
        stages, most = sizes["PLANNED"], sizes["PLAN_ITERATIONS"]
        lines.append(
            f"   output       not counted: a quadratic program of {stages} stages, by an interior point"
        )
        lines.append(f"                in at most {most} iterations")
    if target.iterations:
        lines.append(f"   A step is {target.iterations} iterations of Newton's method and one correction.")
    lines += [f"   {line}" for line in unstable(target)]
    lines += [
        "",
        "   No memory is allocated and only constants are static: functions may run concurrently, each on a",
        "   state of its own. Results must not overlap arguments. Matrices are stored row by row. */",
        f"#ifndef {guard}",
        f"#define {guard}",
        "",
        "#ifdef __cplusplus",
        'extern "C" {',
        "#endif",
        "",
        f"typedef {real} target_real;",
        "",
    ]
    lines += [f'#include "{file}"\n' for p in pieces for file in p.headers]
    lines += [f"#define TARGET_{n} {sizes[n]}" for n in ("NX", "NU", "NM", "NY") if n in sizes]
    lines += ["", "/* Functions return 0, or a sum of */", "enum {"]
    lines += [f"    /* {text} */\n    TARGET_{n} = {2**i}," for i, (n, text) in enumerate(STATUS.items())]
    lines[-1] = lines[-1].rstrip(",")
    lines += ["};", ""]
    if "output" in target.functions:
        members = [m for p in pieces for m in p.state]
        lines += ["/* Memory of a controller; `x` is the estimate of the state at sample `k`. */"]
        lines += ["typedef struct {", "    int k;", "    target_real x[TARGET_NX];"]
        lines += [*(f"    {m}" for m in members), "} target_state;", ""]
    for n in target.functions:
        prototype, text = PROTOTYPES[n]
        lines += [f"/* {text} */", prototype, ""]
    return "\n".join([*lines, "#ifdef __cplusplus", "}", "#endif", "#endif", ""])


def tolerance(target: Target) -> float:
    """Return the tolerance with which the generated test program compares values."""
    planned = "output" in target.functions and "law" not in target.functions
    return PLANNED_SINGLE if planned and target.precision == "single" else TOLERANCE[target.precision]


def layout(target: Target, observer: Any) -> dict[str, tuple[str, ...]]:
    f = target.map
    rows: dict[str, tuple[str, ...]] = {
        "x": f.state_names,
        "u": f.input_names,
        "multipliers": f.multiplier_names,
    }
    if target.records.samples is not None:
        rows["y"] = f.state_names if observer is None else observer.measurement.names
    rows["parameters"] = tuple(f"{n} = {v:.17g}" for n, v in f.parameters.items())
    return rows


def described(target: Target, sizes: Mapping[str, int], observer: Any) -> dict[str, Any]:
    """Return the content of the file NAME.json, which describes a generated folder."""
    samples = target.records.samples
    return {
        "name": target.name,
        "dt": target.map.dt,
        "precision": target.precision,
        "functions": list(target.functions),
        "sizes": {n: sizes[n] for n in ("NX", "NU", "NM", "NY") if n in sizes},
        "names": {n: list(v) for n, v in layout(target, observer).items()},
        "operations": {n: vars(o) for n, o in target.operations.items()},
        "iterations": target.iterations,
        "measured": [] if samples is None else np.asarray(samples.y).tolist(),
        "applied": [] if samples is None else np.asarray(samples.u).tolist(),
        "unstable_poles": [[p.real, p.imag] for p in target.unstable_poles],
    }


def readme(target: Target, observer: Any) -> str:
    """Return the text of README.md, which describes a generated folder."""
    rows = [f"| {n} | {listed(v)} |" for n, v in layout(target, observer).items() if v]
    costs = [f"| `target_{n}` | {o} |" for n, o in target.operations.items()]
    if "output" in set(target.functions) - set(target.operations):
        costs.append("| `target_output` | not counted: it solves a quadratic program, see the header |")
    status = [f"| {2**i} | `TARGET_{n}` | {text} |" for i, (n, text) in enumerate(STATUS.items())]
    tokens = {
        "NAME": target.name,
        "PRECISION": target.precision,
        "DT": repr(target.map.dt),
        "TOLERANCE": f"{tolerance(target):g}",
        "LOOP": "\n".join([LOOP, *unstable(target), ""]) if "output" in target.functions else "",
        "VECTORS": "\n".join(rows),
        "OPERATIONS": "\n".join(costs),
        "STATUS": "\n".join(status),
    }
    return filled("README.md", tokens)


def unstable(target: Target) -> list[str]:
    """Return lines of a warning that a controller by itself is unstable.
    The list is empty if the compensator, the law with its observer, is stable.
    """
    if not target.unstable_poles:
        return []
    poles = ", ".join(
        f"{p.real:.6g}{p.imag:+.6g}i" if p.imag else f"{p.real:.6g}" for p in target.unstable_poles
    )
    return [
        f"The compensator is unstable without its plant; poles outside of the unit circle: {poles}.",
        "Advance it under the applied inputs, and restart it after it ran without the plant.",
    ]


def filled(name: str, tokens: Mapping[str, str]) -> str:
    """Return a C template with its ``@TOKENS@`` replaced by given texts."""
    text = template(name)
    for token, value in tokens.items():
        text = text.replace(f"@{token}@", value)
    return text


LOOP = """
```c
target_state s;
target_start(&s, NULL);
for (;;) {                              /* every sample, as soon as y is measured */
    int status = target_output(&s, y, u);
    /* apply u */
    status |= target_advance(&s, u);
}
```
"""
