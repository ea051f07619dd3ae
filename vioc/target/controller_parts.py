"""C code of the parts of a controller: observer, feedback law, and step of a map.

A part is C99 text with its requirements (`ControllerPart`); `controller` joins them. An observer's part
defines ::

    static int correct(target_state *s, const real *y);   the estimate s->x of sample s->k, from y
    static int predict(target_state *s, const real *u);   prediction for sample s->k + 1, under the applied u

and a law's part defines ``static int command(target_state *s, real *u)``. They return a status. The `begin`
of a part initializes its members of the state.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import casadi as ca
import numpy as np

from vioc.control.feedback.configurations import ConfigurationObserver
from vioc.control.feedback.kalman import ExtendedKalmanFilter, KalmanFilter
from vioc.control.feedback.measurement import Measurement
from vioc.control.feedback.offset_free import OffsetFree
from vioc.control.feedback.scheduled import LimitedLaw
from vioc.control.regulators.law import StateLaw
from vioc.maps.protocol import OneStepMap
from vioc.maps.space import TURN
from vioc.target.emit import Emitted, Operations, emit, number
from vioc.target.split_steps import SOLVED, SplitStep

NONE = Operations()
LARGEST = {"double": 1.7e308, "single": 3.4e38}  # replaces an infinite bound


@dataclass(frozen=True)
class ControllerPart:
    """Part of a controller's C code, with the constants and functions it needs.

    Attributes
    ----------
    source : str
        Definitions, with ``target_`` and ``TARGET_`` for the folder's name.
    sizes : dict of str to int
        Constants that the source uses.
    needs : tuple of str
        Functions of ``matrices.c`` that the source uses.
    state : tuple of str
        Members of the controller's memory, such as ``"real P[NX * NX];"``.
    begin : str
        Statements that initialize these members.
    operations : dict of str to Operations
        Worst-case operation counts of its functions.
    headers : dict of str to str
        Files by name that the folder's header includes.
    """

    source: str
    sizes: Mapping[str, int] = field(default_factory=dict)
    needs: tuple[str, ...] = ()
    state: tuple[str, ...] = ()
    begin: str = ""
    operations: Mapping[str, Operations] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)


@cache
def template(name: str) -> str:
    """Return the text of a C template in the folder ``c``, by its file name."""
    return (Path(__file__).parent / "c" / name).read_text()


def piece(name: str) -> str:
    """Return the text of a C template, followed by a blank line."""
    return template(name) + "\n"


@cache
def helpers() -> dict[str, str]:
    """Return the C functions in the file ``matrices.c``, by name."""
    blocks = re.split(r"\n\n(?=/\*)", template("matrices.c").rstrip())
    return {re.search(r"static \w+ (\w+)\(", b)[1]: b.rstrip() + "\n\n" for b in blocks}  # type: ignore[index]


def factored(n: int) -> Operations:
    """Return the operation count of a C function that factorizes an n x n matrix."""
    inner = sum((n - k - 1) ** 2 for k in range(n))
    return Operations(inner, inner, n * (n - 1) // 2, tests=n * (n - 1) // 2 + n)


def solved(n: int) -> Operations:
    """Return the operation count of a C function that solves a linear system.
    The system has an n x n matrix that is factorized already.
    """
    return Operations(n * (n - 1), n * (n - 1), n)


def product(n: int, m: int, p: int) -> Operations:
    """Return the operation count of a product of n x m and m x p matrices in C.

    The C functions are ``multiply`` and ``add_product``.
    """
    return Operations(n * m * p, n * m * p)


def table(name: str, rows: Any, precision: str) -> str:
    """Return C code that defines a constant array (N, m)."""
    rows = np.atleast_2d(rows)
    size = f"[{rows.shape[0]}][{rows.shape[1]}]"
    inner = ",\n    ".join("{" + _numbers(row, precision) + "}" for row in rows)
    return f"static const real {name}{size} = {{\n    {inner}\n}};\n"


def vector(name: str, values: Any, precision: str) -> str:
    """Return C code that defines a constant array.
    An empty array gets one zero, because an array in C has at least one entry."""
    values = np.ravel(values)
    return f"static const real {name}[{max(len(values), 1)}] = {{{_numbers(values, precision) or '0'}}};\n"


def _numbers(values: np.ndarray, precision: str) -> str:
    return ", ".join(number(v, precision) for v in values)


def step_part(step: SplitStep, iterations: int, linearize: bool, precision: str) -> ControllerPart:
    """Return C code of a map's step and its derivatives, as a controller's part."""
    f, n, nx, nu = step.map, step.n, step.map.nx, step.map.nu
    sizes = {"NM": len(f.multiplier_names)}
    functions = [emit(step.result, "result", precision, "x_next and the multipliers, by the core's unknowns")]
    last = functions[0].operations
    if n:
        sizes |= {"N": n, "ITERATIONS": iterations, "MOVED": len(step.states)}
        newton = emit(step.newton, "newton", precision, "the core's equations G and their derivatives J")
        residual = emit(step.equations, "equations", precision, "the core's equations G")
        functions = [newton, residual, *functions]
        core = iterations * (newton.operations + factored(n) + solved(n) + Operations(adds=n))
        core += residual.operations + solved(n) + Operations(3 * n, 0, n, tests=3 * n)
        last += core
    operations = {"step": last}
    text = "".join(e.source + "\n" for e in functions)
    if n:
        moved = ", ".join(map(str, step.states))
        text += f"static const int moved[MOVED] = {{{moved}}}; /* states that the first unknowns change */\n"
        text += f"static const real SOLVED = {number(SOLVED[precision], precision)};\n\n"
    text += piece("step_implicit.c" if n else "step_explicit.c")
    needs = ("factor", "solve") if n else ("all_finite",)
    if linearize:
        slopes = emit(step.derivatives, "derivatives", precision, "derivatives of G and of x_next by d, x, u")
        text += slopes.source + "\n" + piece("linearize_implicit.c" if n else "linearize_explicit.c")
        columns = nx + nu
        extra = slopes.operations + (
            factored(n) + columns * (solved(n) + Operations(nx * n + nx, nx * n)) if n else Operations()
        )
        operations["linearize"] = last + extra
    return ControllerPart(text, sizes, needs, operations=operations)


def _expression(name: str, comment: str, precision: str, outputs: dict, **symbols: ca.SX) -> Emitted:
    function = ca.Function(
        name, [*symbols.values()], [*outputs.values()], [*symbols], [*outputs], {"cse": True}
    )
    return emit(function, name, precision, comment)


def _sensed(f: OneStepMap, measurement: Measurement | None, precision: str) -> tuple[ca.SX, ca.SX, str]:
    """Return a symbol x of a map's state, the measurement g(x), and its C code.
    The measurement is a CasADi expression. The C code is a function that computes it.

    Without a measurement g is the state.
    """
    s, x = f.symbols, ca.SX.sym("x", f.nx)
    g = x
    if measurement is not None:
        if not measurement.always:
            raise ValueError(
                "observer: its sensors have rates of their own, which are not written in C; measure all "
                "quantities at every sample"
            )
        g = ca.densify(
            ca.substitute([measurement.expression], [s.x, s.parameters], [x, ca.SX(ca.DM(f.theta))])[0]
        )
    return x, g, _expression("sensed", "what sensors see at x", precision, {"y": g}, x=x).source + "\n"


def _innovation(measurement: Measurement, x: ca.SX, g: ca.SX, precision: str) -> Emitted:
    y = ca.SX.sym("y", g.numel())
    e = y - g
    e -= TURN * ca.DM(measurement.wrapped) * ca.floor(e / TURN + 0.5)
    text = "e = y - g(x), angles the short way"
    return _expression("innovation", text, precision, {"e": ca.densify(e)}, x=x, y=y)


def observer_part(
    f: OneStepMap,
    observer: Any,
    step: SplitStep | None,
    cost: Mapping[str, Operations],
    precision: str,
    P: Any,
) -> ControllerPart:
    """Return C code of an observer, as a controller's part.

    `P` is the initial covariance of an extended filter.
    """
    nx, nu = f.nx, f.nu
    x, g, text = _sensed(f, getattr(observer, "measurement", None), precision)
    ny = g.numel()
    if observer is None:
        return ControllerPart(
            text + piece("observe_state.c"), {"NY": ny}, ("all_finite",), operations={"observe": NONE}
        )
    if isinstance(observer, KalmanFilter):
        error = _innovation(observer.measurement, x, g, precision)
        rows = observer.L.reshape(len(observer.L), -1)
        sizes = {"NY": ny, "FILTER_ROWS": len(rows), "FILTER_K0": observer.k0}
        text += error.source + "\n" + table("filter_gain", rows, precision) + "\n"
        operations = {"observe": error.operations + product(nx, ny, 1), "predict": cost["step"]}
        return ControllerPart(text + piece("observe_kalman.c"), sizes, ("all_finite",), operations=operations)
    if isinstance(observer, ExtendedKalmanFilter):
        if observer.manifold:
            raise ValueError(
                "observer: an extended filter on the constraint manifold needs singular values at every "
                "sample, which are not written in C; use manifold=False, or kalman(..., manifold=True)"
            )
        error = _innovation(observer.measurement, x, g, precision)
        slope = _expression("sensors", "C, the derivative of g", precision, {"C": ca.jacobian(g, x)}, x=x)
        text += error.source + "\n" + slope.source + "\n"
        for name, matrix in (
            ("noise", observer.measurement.V),
            ("disturbance", observer.W),
            ("input_noise", observer.W_u),
        ):
            text += vector(name, matrix, precision)
        text += vector("first_covariance", P, precision) + "\n" + piece("observe_extended.c")
        correct = (
            error.operations
            + slope.operations
            + product(nx, nx, ny)
            + product(ny, nx, ny)
            + factored(ny)
            + nx * solved(ny)
        )
        correct += product(nx, ny, 1) + product(nx, ny, nx) + 2 * product(nx, nx, nx)
        correct += 2 * product(nx, ny, nx) + Operations(adds=ny * ny + nx * nx)
        predict = cost["linearize"] + 2 * product(nx, nx, nx) + product(nx, nu, nu) + product(nx, nu, nx)
        predict += Operations(nx * nx, 0, nx * nx)
        return ControllerPart(
            text,
            {"NY": ny},
            ("all_finite", "factor", "solve", "multiply", "add_product"),
            ("target_real P[TARGET_NX * TARGET_NX];",),
            "for (i = 0; i < NX * NX; ++i) s->P[i] = first_covariance[i];",
            {"observe": correct, "predict": predict},
        )
    if isinstance(observer, ConfigurationObserver):
        assert step is not None
        recovery, unwind = _recovered(step, len(f.mechanism.configurations), precision)
        text += "\n".join([unwind.source, recovery.source, piece("observe_configurations.c")])
        state = ("target_real q[TARGET_NY];", "target_real u[TARGET_NU + 1];", "int seen;")
        begin, spent = "s->seen = 0;", {"observe": unwind.operations + recovery.operations}
        return ControllerPart(text, {"NY": ny}, ("all_finite",), state, begin, spent)
    raise TypeError(
        f"observer: {type(observer).__name__} is not written in C; expected a KalmanFilter, an "
        "ExtendedKalmanFilter, a ConfigurationObserver or None"
    )


def _recovered(step: SplitStep, nq: int, precision: str) -> tuple[Emitted, Emitted]:
    """Return two C functions that derive a state from two successive configurations.

    The first is (q0, q1, u, t) -> the other components of the state with the configuration q1. The second is
    (q0, q1) -> q1, with angles changed by whole turns such that they are nearest to those of q0.
    """
    f = step.map
    q0, q1, recovery = ca.SX.sym("q0", nq), ca.SX.sym("q1", nq), f.mechanism.recovery()
    if recovery is None:
        raise ValueError(
            f"observer: the state of {type(f).__name__} does not follow from two configurations and the "
            "input between them by a formula that can be written in C; use a Kalman filter"
        )
    rest = recovery(q0, q1, step.u, step.t, f.dt, f.theta)
    given = dict(q0=q0, q1=q1, u=step.u, t=step.t)
    text = "the states behind the configurations q1"
    function = _expression("recover", text, precision, {"rest": ca.densify(rest)}, **given)
    x0, x1 = (ca.vertcat(q, ca.SX.zeros(f.nx - nq)) for q in (q0, q1))
    near = ca.densify(q0 + f.space.difference_expression(x0, x1)[:nq])
    return function, _expression("unwind", "q1 the short way from q0", precision, {"q": near}, q0=q0, q1=q1)


def difference_of(f: OneStepMap, precision: str) -> Emitted:
    """Return a C function of the difference between two states of a map."""
    x0, x1 = ca.SX.sym("x0", f.nx), ca.SX.sym("x1", f.nx)
    dx, text = f.space.difference_expression(x0, x1), "x1 - x0, angles the short way"
    return _expression("difference", text, precision, {"dx": ca.densify(dx)}, x0=x0, x1=x1)


def law_part(law: Any, lower: np.ndarray, upper: np.ndarray, precision: str) -> ControllerPart:
    """Return C code of a feedback law with input limits, as a controller's part."""
    limited = law if isinstance(law, LimitedLaw) else None
    text, bounded, offset = "", [lower, upper], law if isinstance(law, OffsetFree) else None
    if limited is not None:
        law, bounded = limited.law, [np.maximum(lower, limited.lower), np.minimum(upper, limited.upper)]
        if not np.array_equal(np.clip(limited.lower, lower, upper), limited.lower) or not np.array_equal(
            np.clip(limited.upper, lower, upper), limited.upper
        ):
            raise ValueError("bounds: a LimitedLaw has its own; give the loop none, or wider ones")
    if offset is not None:
        if offset.names:
            raise ValueError(
                "law: an OffsetFree with hold=[...] solves for its target, which is not written in C"
            )
        names, law = offset.map.state_names, offset.law
        indices = [
            names.index(n) if n in names else -1 for n in (f"disturbance.{u}" for u in law.map.input_names)
        ]
        text += f"static const int offset_at[] = {{{', '.join(map(str, indices))}}}; /* states, or -1 */\n\n"
    f = law.map
    dx = difference_of(f, precision)
    text += dx.source + "\n"
    sizes = {"LAW_NX": f.nx, "LAW_ROWS": len(law.U), "OFFSET": int(offset is not None)}
    nu, needs = f.nu, ("all_finite",)
    operations = dx.operations + product(nu, f.nx, 1) + Operations(adds=nu)
    tables = [("x_d", law.X), ("u_d", law.U)]
    if isinstance(law, StateLaw):
        K = law.K.reshape(len(law.K), -1)
        K = K[:1] if (K[:1] == K).all() else K
        after = {"ends": 0, "holds": 1, "repeats": 2}
        sizes |= {"LAW_K0": law.k0, "LAW_GAINS": len(K), "ENDS": 0, "HOLDS": 1, "LAW_AFTER": after[law.after]}
        body = piece("law_gains.c")
    else:
        K = law.K.reshape(len(law.K), -1)
        s = f.symbols
        x = ca.SX.sym("x", f.nx)
        quantity = ca.substitute(
            ca.SX(law.quantity), ca.vertcat(s.x, s.parameters), ca.vertcat(x, ca.DM(f.theta))
        )
        schedule = _expression(
            "schedule", f"{listed([law.by])}, by which gains go", precision, {"at": quantity}, x=x
        )
        text += schedule.source + "\n" + vector("points", law.points, precision)
        operations += (
            operations + schedule.operations + Operations(2 * nu * f.nx, nu * f.nx, 1, tests=len(K) + 2)
        )
        body = piece("law_scheduled.c")
    text += "".join(table(n, rows, precision) for n, rows in (*tables, ("gain", K))) + "\n" + body
    sizes |= {"LIMITED": int(np.isfinite(bounded).any()), "RATED": int(limited is not None)}
    state: tuple[str, ...] = ()
    if sizes["LIMITED"]:
        most = LARGEST[precision]
        for name, bound in zip(("least", "most"), bounded, strict=True):
            text += vector(name, np.clip(bound, -most, most), precision)
        operations += Operations(tests=2 * nu)
    if limited is not None:
        text += vector("change", np.minimum(limited.change, LARGEST[precision]), precision)
        state = ("target_real before[TARGET_NU];", "int moved;")
        operations += Operations(adds=4 * nu, tests=2 * nu)
    begin = "s->moved = 0;" if state else ""
    if limited is not None and limited.before is not None:
        values = [number(v, precision) for v in limited.before]
        begin = " ".join([*(f"s->before[{i}] = {v};" for i, v in enumerate(values)), "s->moved = 1;"])
    return ControllerPart(text + "\n" + piece("command.c"), sizes, needs, state, begin, {"law": operations})


def listed(names: Iterable[str]) -> str:
    """Join names by commas, as text of a C comment.

    Characters that C could read as more than a comment are replaced by ``_``.
    """
    return ", ".join(re.sub(r"[^\w.:+= -]", "_", name) for name in names)
