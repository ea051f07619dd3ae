"""Functions of scalars as C on vectors: one call evaluates them for several arguments side by side.

What CasADi generates works on one number after another. Where the same expressions are needed at once for
several arguments, a processor does four or eight of them with one instruction. Sums, products, quotients and
roots are those of scalar code to the bit, as are functions of the C library, called for one lane after
another.
"""

from __future__ import annotations

from math import isfinite, isnan
from pathlib import Path

import casadi as ca

VECTOR = {
    ca.OP_ASSIGN: "{0}",
    ca.OP_ADD: "{0} + {1}",
    ca.OP_SUB: "{0} - {1}",
    ca.OP_MUL: "{0} * {1}",
    ca.OP_DIV: "{0} / {1}",
    ca.OP_NEG: "-{0}",
    ca.OP_SQ: "{0} * {0}",
    ca.OP_TWICE: "2.0 * {0}",
    ca.OP_INV: "1.0 / {0}",
    ca.OP_FABS: "absolute({0})",
    ca.OP_LT: "truth((marks)({0} < {1}))",
    ca.OP_LE: "truth((marks)({0} <= {1}))",
    ca.OP_EQ: "truth((marks)({0} == {1}))",
    ca.OP_NE: "truth((marks)({0} != {1}))",
    ca.OP_NOT: "truth((marks)({0} == 0.0))",
    ca.OP_IF_ELSE_ZERO: "chosen((marks)({0} != 0.0), {1}, ALL(0.0))",
}
SCALAR = {  # one lane after the other
    ca.OP_EXP: "exp({0}[i])",
    ca.OP_LOG: "log({0}[i])",
    ca.OP_POW: "pow({0}[i], {1}[i])",
    ca.OP_CONSTPOW: "pow({0}[i], {1}[i])",
    ca.OP_SQRT: "sqrt({0}[i])",
    ca.OP_TAN: "tan({0}[i])",
    ca.OP_ASIN: "asin({0}[i])",
    ca.OP_ACOS: "acos({0}[i])",
    ca.OP_ATAN: "atan({0}[i])",
    ca.OP_ATAN2: "atan2({0}[i], {1}[i])",
    ca.OP_SINH: "sinh({0}[i])",
    ca.OP_COSH: "cosh({0}[i])",
    ca.OP_TANH: "tanh({0}[i])",
    ca.OP_AND: "{0}[i] && {1}[i]",
    ca.OP_OR: "{0}[i] || {1}[i]",
    ca.OP_FLOOR: "floor({0}[i])",
    ca.OP_CEIL: "ceil({0}[i])",
    ca.OP_FMIN: "fmin({0}[i], {1}[i])",
    ca.OP_FMAX: "fmax({0}[i], {1}[i])",
    ca.OP_HYPOT: "hypot({0}[i], {1}[i])",
}


def prelude(lanes: int) -> str:
    """Types and functions that the code of `laned` is made of."""
    return f"#define LANES {lanes}\n" + Path(__file__).with_name("lanes.c").read_text("utf-8")


def laned(function: ca.Function, name: str) -> str | None:
    """C of ``static void name(const lanes *const *in, lanes *const *out)``, or None.

    `function` is of SX with dense arguments and results; None where an operation has no form here.
    """
    lines = [f"static void {name}(const lanes *const *in, lanes *const *out) {{"]
    held: dict[int, str] = {}  # what a register holds
    turned: dict[str, int] = {}  # of which sine and cosine are known
    for k in range(function.n_instructions()):
        op, of, to = function.instruction_id(k), function.instruction_input(k), function.instruction_output(k)
        if op == ca.OP_OUTPUT:
            lines.append(f"  out[{to[0]}][{to[1]}] = {held[of[0]]};")
            continue
        new = f"v{k}"
        if op == ca.OP_INPUT:
            lines.append(f"  const lanes {new} = in[{of[0]}][{of[1]}];")
        elif op == ca.OP_CONST:
            lines.append(f"  const lanes {new} = ALL({_number(function.instruction_constant(k))});")
        elif op in (ca.OP_SIN, ca.OP_COS):
            x = held[of[0]]
            if x not in turned:
                turned[x] = k
                lines.append(f"  lanes s{k}, c{k};\n  turned(&{x}, &s{k}, &c{k});")
            new = f"{'s' if op == ca.OP_SIN else 'c'}{turned[x]}"
        elif op in VECTOR:
            lines.append(f"  const lanes {new} = {VECTOR[op].format(*(held[i] for i in of))};")
        elif op in SCALAR:
            lines.append(f"  EACH({new}, ({SCALAR[op].format(*(held[i] for i in of))}))")
        else:
            return None
        held[to[0]] = new
    return "\n".join([*lines, "}", ""])


def _number(value: float) -> str:
    return (
        repr(value)
        if isfinite(value)
        else "NAN"
        if isnan(value)
        else "INFINITY"
        if value > 0
        else "-INFINITY"
    )
