"""C code of nonlinear model predictive control by real-time iterations.

The program's C is that of `vioc.control.receding`; stages are generated from the problem's cost and limits.
"""

from __future__ import annotations

from typing import Any

import casadi as ca
import numpy as np

from vioc.control.control_problem import Problem
from vioc.control.costs.squares import Squares
from vioc.control.linear.weights import absolute
from vioc.control.receding.nonlinear import NonlinearMPC
from vioc.control.receding.program import Order, Plan
from vioc.control.receding.stage_qp import LOOSE
from vioc.control.shooting.rows import ConstraintRows
from vioc.maps.protocol import OneStepMap
from vioc.target.controller_parts import (
    LARGEST,
    NONE,
    ControllerPart,
    difference_of,
    piece,
    product,
    table,
    vector,
)
from vioc.target.emit import SUFFIX, Emitted, emit

NOWHERE = 1e30  # a limit that the quadratic program treats as infinite
ITERATIONS, TOLERANCE = 30, 1e-5  # most iterations and least tolerance of a QP in single precision
END_OF_TYPES = "} QP_(state);\n"


def check_plan(law: NonlinearMPC, f: OneStepMap) -> None:
    """Raise ValueError if no C code can be generated for a predictive controller.
    For example, C code cannot have a fallback law, a delay or a deadline.
    """
    problem = law.problem
    given = {
        "delay": law.delay != 0,
        "newton": law.newton != 1,
        "horizon": law.horizon is not None,
        "fallback": law.fallback is not None,
        "deadline": law.deadline is not None,
        'hessian="exact"': law.program.exact,
    }
    options = [name for name, there in given.items() if there]
    if options:
        raise ValueError(f"law: a NonlinearMPC with {', '.join(options)} is not written in C; leave it out")
    if law.map is not f:
        raise ValueError("law: its problem must be of the observer's map, the very object: C has one step")
    if not law.program.qp.native:
        raise ValueError(
            "law: give NonlinearMPC(..., native=True): the records must come of the interior point that C has"
        )
    multipliers = f.symbols.multipliers
    rows = ca.vertcat(ca.SX(0, 1), *(p.constraint.expression for p in problem.rows.places))
    if problem.cost.uses_multipliers or ca.depends_on(rows, multipliers):
        raise ValueError("law: a cost or limit of multipliers is not written in C")


def plan_part(law: NonlinearMPC, plan: Plan, bounds: Any, precision: str, cost: Any) -> ControllerPart:
    """Return C code of a nonlinear predictive controller, as a controller's part."""
    f, problem, layout = law.map, law.problem, law.program.layout
    source = layout.source("target_qp", single=precision == "single", api="static")
    if source.count(END_OF_TYPES) != 1:
        raise RuntimeError(f"the program's C has no {END_OF_TYPES.strip()!r} to be divided at")
    types, functions = source.split(END_OF_TYPES)
    rows = _PlanRows(problem.rows, law.program.order)
    r = [np.asarray(a) for a in problem.cost.references]
    samples = max([1, *map(len, r)])
    sequences = [a[np.minimum(np.arange(samples), len(a) - 1)] for a in r]
    references = np.concatenate([*sequences, np.zeros((samples, 0))], axis=1)
    reference = ca.SX.sym("r", references.shape[1])
    stage, last = _stage(problem, rows, reference, precision), _last(problem, reference, precision)
    least, most = (law.program.clipped(np.full(f.nu, s * NOWHERE), 0) for s in (-1, 1))
    d = law.program.qp.data
    real = SUFFIX[precision]
    text = [functions, difference_of(f, precision).source, stage.source, last.source]
    text += [table("references", references if references.size else np.zeros((samples, 1)), precision)]
    for side, values in zip(("lower", "upper"), rows.sides, strict=True):
        inside = np.clip(values, -NOWHERE, NOWHERE)
        text.append(table(f"row_{side}", inside if inside.size else np.zeros((len(inside), 1)), precision))
    for side, values in zip(("lower", "upper"), rows.ends, strict=True):
        text.append(vector(f"end_{side}", np.clip(values, -NOWHERE, NOWHERE), precision))
    for name, values in (("plan_least", least), ("plan_most", most)):
        text.append(vector(name, np.clip(values, -LARGEST[precision], LARGEST[precision]), precision))
    text += [table("first_x", plan.x, precision), table("first_u", plan.u, precision)]
    for name in ("linear", "square", "linear_end", "square_end"):
        text.append(vector(f"price_{name}", getattr(d, name), precision))
    entries = ", ".join(map(str, layout.at)) or "0"
    text.append(f"static const int entries[] = {{{entries}}};\n")
    n = f.nx
    count, near = law.max_iterations, law.tolerance
    if precision == "single":
        count, near = min(count, ITERATIONS), near and max(near, TOLERANCE)
    sizes = {"PLANNED": problem.steps, "PLAN_ITERATIONS": count, "LIMITED": 0, "RATED": 0}
    text.append(f"#define PLAN_TOLERANCE {float(near)!r}{real}\n#define PLAN_LOOSE {LOOSE!r}{real}\n")
    text.append("#define ASK(s, u) planned(s, u)\n")
    ends = f"((sample) < {samples - 1} ? ((sample) > 0 ? (sample) : 0) : {samples - 1})"
    text.append(f"#define REFERENCE(sample) {ends}\n\n")
    lower, upper = bounds
    if np.isfinite([lower, upper]).any():
        sizes["LIMITED"] = 1
        for name, bound in (("least", lower), ("most", upper)):
            text.append(vector(name, np.clip(bound, -LARGEST[precision], LARGEST[precision]), precision))
    text += ["\n", piece("plan.c"), piece("command.c")]
    state = (
        f"target_real plan_x[{problem.steps + 1}][TARGET_NX], plan_u[{problem.steps}][TARGET_NU];",
        "target_qp_data program;",
        "target_qp_state work;",
        "int prepared, missed; /* samples whose program had no answer */",
    )
    each = cost["linearize"] + stage.operations + product(n, 1, 1)
    ahead = cost["step"] + problem.steps * each + last.operations
    return ControllerPart(
        "".join(text),
        sizes,
        ("all_finite",),
        state,
        "fresh(s);",
        {"law": NONE, "ahead": ahead},
        {"target_qp.h": types + END_OF_TYPES},
    )


class _PlanRows:
    """Constraints of one step of a predictive controller's horizon.
    Constraints on single entries of (x, u) come first, general constraints after them.
    """

    def __init__(self, rows: ConstraintRows, order: Order):
        f = rows.map
        z = ca.vertcat(f.symbols.x, f.symbols.u)
        places = [p for p in rows.places if p.at_steps is not None]
        h = ca.vertcat(ca.SX(0, 1), *(ca.SX(p.constraint.expression) / p.scale for p in places))
        simple, general = order.simple.tolist(), order.general.tolist()
        # an empty selection of a scalar would be (1, 0)
        plain, curved = (h[which] if which else ca.SX(0, 1) for which in (simple, general))
        self.h = ca.densify(ca.vertcat(plain / ca.DM(order.factor), curved))
        self.J = ca.simplify(ca.jacobian(curved, z))
        m, size = rows.m, rows.steps * rows.m
        self.sides = order.sides(*(side[:size].reshape(rows.steps, m) for side in (rows.lower, rows.upper)))
        self.ends = rows.lower[size:], rows.upper[size:]


def _stage(problem: Problem, rows: _PlanRows, reference: ca.SX, precision: str) -> Emitted:
    f, cost = problem.map, problem.cost
    s = f.symbols
    args = _arguments(f, reference)
    weight = f.dt if cost.per_time else 1.0
    value = weight * cost.running_at(*args)
    H = weight * _gauss_newton(cost.running_squares(*args), ca.vertcat(s.x, s.u), "running")
    z = ca.vertcat(s.x, s.u)
    outputs = {"H": ca.densify(H), "g": ca.densify(ca.gradient(value, z)), "h": rows.h, "J": rows.J}
    return _emitted("stage", f, {"x": s.x, "u": s.u, "r": reference}, outputs, precision)


def _last(problem: Problem, reference: ca.SX, precision: str) -> Emitted:
    f, cost, x = problem.map, problem.cost, problem.map.symbols.x
    args = _arguments(f, reference)
    places = [p for p in problem.rows.places if p.at_end is not None]
    h = ca.vertcat(ca.SX(0, 1), *(ca.SX(p.constraint.expression) / p.scale for p in places))
    H = _gauss_newton(cost.terminal_squares(*args), x, "terminal")
    g = ca.gradient(cost.terminal_at(*args), x)
    outputs = {"H": ca.densify(H), "g": ca.densify(g), "h": ca.densify(h), "J": ca.jacobian(h, x)}
    return _emitted("last", f, {"x": x, "r": reference}, outputs, precision)


def _arguments(f: OneStepMap, reference: ca.SX) -> tuple[ca.SX, ...]:
    s = f.symbols
    return s.x, s.u, s.multipliers, s.parameters, s.dt, reference


def _gauss_newton(squares: Squares, z: ca.SX, what: str) -> ca.SX:
    """Return the Gauss-Newton Hessian J'WJ + H of a cost with weighted squares.
    J is the Jacobian of the residuals whose squares have the weights W. H is the Hessian of the other terms
    of the cost, with eigenvalues replaced by their absolute values.

    The Hessian of the terms that are not squares must be constant.
    """
    J = ca.jacobian(squares.r, z)
    rest = ca.simplify(ca.hessian(squares.rest, z)[0])
    if ca.symvar(rest):
        raise ValueError(
            f"law: the {what} cost has terms that are no squares, whose Hessians change: C makes no "
            "eigenvalues positive; write it as squares"
        )
    return J.T @ squares.W @ J + ca.SX(absolute(ca.DM(rest).full()))


def _emitted(
    name: str, f: OneStepMap, given: dict[str, ca.SX], outputs: dict[str, ca.SX], precision: str
) -> Emitted:
    s = f.symbols
    fixed = ca.vertcat(s.parameters, s.dt)
    values = ca.substitute([*outputs.values()], [fixed], [ca.SX(ca.vertcat(ca.DM(f.theta), f.dt))])
    function = ca.Function(name, [*given.values()], values, [*given], [*outputs], {"cse": True})
    return emit(function, name, precision, f"the {name} stage: cost to second order, limited quantities")
