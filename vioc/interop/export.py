"""Export of a map and its derivatives as CasADi functions in a file.

    step         (x, u, t, dt, parameters) -> x_next, multipliers, residual
    linearize    (x, u, t, dt, parameters) -> A, B, C, D
    second       (x, u, t, dt, parameters, z, zeta) -> Hxx, Hxu, Huu

Shapes are those of `OneStepMap`, C and D the multipliers' derivatives, z and zeta the weights of
`OneStepMap.second_order`. `residual` is the norm of the step's equations after the solution: check it,
because a function cannot raise. The parameters have no defaults: give
``list(header["parameters"].values())``; CasADi takes an empty list as zeros. For C see `vioc.target`.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, NamedTuple

import casadi as ca

from vioc.errors import FileFormatError
from vioc.maps.protocol import OneStepMap

FORMAT = "vioc-functions-1"
ITERATIONS = 50
ARGUMENTS = ("x", "u", "t", "dt", "parameters")


class Exported(NamedTuple):
    """CasADi functions of a map's step, read from a file.
    The names of the map's states, inputs, multipliers and parameters are included.

    Attributes
    ----------
    functions : dict of str to casadi.Function
        ``"step"``, ``"linearize"``, ``"second"``.
    header : dict
        ``state_names``, ``input_names``, ``multiplier_names``, ``parameters`` (values by name), ``dt``.
    """

    functions: dict[str, ca.Function]
    header: dict[str, Any]


def step_functions(f: OneStepMap, *, second_order: bool = False) -> dict[str, ca.Function]:
    """Return CasADi functions of a map's step and derivatives, independent of vioc.

    Parameters
    ----------
    f : OneStepMap
        With a `residual`, or an explicit CasADi `function` (x, u[, t, dt, parameters]) as `CasadiMap` has.
    second_order : bool
        Also return ``second``; its source is large for large mechanisms.

    Returns
    -------
    dict of str to casadi.Function
        See the module docstring.

    Raises
    ------
    ValueError
        If the map has neither, its errors are not its states, or its steps find contacts.

    Notes
    -----
    An implicit step is solved by Newton's method from x_next = x, one step's motion away. vioc's own
    integrators have globalized solvers as a fallback; this function only reports its residual.
    """
    if f.ndx != f.nx:
        raise ValueError(f"export: errors must be differences of states, got ndx = {f.ndx}, nx = {f.nx}")
    _, _, lam, theta, _ = f.symbols
    nx, nm = f.nx, lam.numel()
    args = [ca.MX.sym(n, k) for n, k in zip(ARGUMENTS, (nx, f.nu, 1, 1, theta.numel()), strict=True)]
    if f.residual is not None:
        if f.mechanism.relaxed() is not None:  # plain Newton iterations would not solve its steps
            raise ValueError(
                f"export: {type(f).__name__} finds contacts as it goes, by a solver that is not exported; "
                "export the ModeVI of each mode"
            )
        context = [ca.SX.sym(n, k) for n, k in zip(ARGUMENTS, (nx, f.nu, 1, 1, theta.numel()), strict=True)]
        y = ca.SX.sym("y", nx + nm)
        sx, su, st, sdt, stheta = context
        equations = ca.densify(f.residual(sx, su, y[:nx], y[nx:], st, sdt, stheta))
        problem = ca.Function("problem", [y, *context], [equations], {"cse": True})
        options = {"abstol": 1e-11, "max_iter": ITERATIONS, "error_on_fail": False, "linear_solver": "qr"}
        solver = ca.rootfinder("solve", "fast_newton", problem, options)
        solution = solver(ca.vertcat(args[0], ca.MX.zeros(nm)), *args)
        error = ca.norm_2(problem(solution, *args))
        x_next, multipliers = solution[:nx], solution[nx:]
    elif f.explicit is not None:
        x_next, multipliers, error = f.explicit(*args)
    else:
        raise ValueError(f"export: {type(f).__name__} has no residual and no explicit CasADi function")
    outputs = [ca.densify(x_next), ca.densify(multipliers), error]
    step = ca.Function("step", args, outputs, list(ARGUMENTS), ["x_next", "multipliers", "residual"])
    blocks = [ca.jacobian(o, v) for o in outputs[:2] for v in args[:2]]
    names = ["A", "B", "C", "D"]
    linearize = ca.Function("linearize", args, [ca.densify(b) for b in blocks], list(ARGUMENTS), names)
    functions = {"step": step, "linearize": linearize}
    if second_order:
        z, zeta = ca.MX.sym("z", nx), ca.MX.sym("zeta", nm)
        weighted = ca.dot(z, x_next) + (ca.dot(zeta, multipliers) if nm else 0)
        gradient = ca.gradient(weighted, args[0]), ca.gradient(weighted, args[1])
        xx, xu = (ca.densify(ca.jacobian(gradient[0], v)) for v in args[:2])
        uu = ca.densify(ca.jacobian(gradient[1], args[1]))
        functions["second"] = ca.Function(
            "second", [*args, z, zeta], [xx, xu, uu], [*ARGUMENTS, "z", "zeta"], ["Hxx", "Hxu", "Huu"]
        )
    return functions


def save_functions(f: OneStepMap, path: str | os.PathLike[str], *, second_order: bool = False) -> Path:
    """Write the CasADi functions of a map's step to a JSON file.
    The file also has the names of the map's states, inputs, multipliers and parameters.

    It is read by `load_functions`, or by CasADi alone:
    ``casadi.Function.deserialize(json.load(open(path))["functions"]["step"])`` in Python, and similarly in
    C++, MATLAB and Julia, with CasADi of the same or a later version.
    """
    path = Path(path)
    functions = step_functions(f, second_order=second_order)
    content = {**_header(f), "functions": {name: g.serialize() for name, g in functions.items()}}
    path.write_text(json.dumps(content) + "\n")
    return path


def load_functions(path: str | os.PathLike[str]) -> Exported:
    """Read the CasADi functions of an exported map from a file.
    FileFormatError is raised if the file is damaged.

    `save_functions` writes such files.
    """
    try:
        content = json.loads(Path(path).read_text())
        if content["format"] != FORMAT:
            raise ValueError(f"format {content['format']!r}")
        stored = content.pop("functions")
        functions = {name: ca.Function.deserialize(text) for name, text in stored.items()}
    except (ValueError, KeyError, TypeError, AttributeError, RuntimeError) as error:
        raise FileFormatError(
            f"{path}: not exported functions of a map ({str(error).splitlines()[0]})"
        ) from None
    return Exported(functions, content)


def _header(f: OneStepMap) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "dt": f.dt,
        "state_names": list(f.state_names),
        "input_names": list(f.input_names),
        "multiplier_names": list(f.multiplier_names),
        "parameters": f.parameters,
    }
