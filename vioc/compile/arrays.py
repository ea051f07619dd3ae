"""Evaluation of CasADi functions on arrays of numpy, JAX and similar libraries.

Each scalar becomes an array. What `lanes.py` writes in C for one processor thus runs wherever the library's
arrays are, including a GPU.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import casadi as ca

from vioc.errors import ModelError

Operation = Callable[..., Any]
NAMED = {  # numpy's names of operations
    ca.OP_NEG: "negative",
    ca.OP_EXP: "exp",
    ca.OP_LOG: "log",
    ca.OP_POW: "power",
    ca.OP_CONSTPOW: "power",
    ca.OP_SQRT: "sqrt",
    ca.OP_SIN: "sin",
    ca.OP_COS: "cos",
    ca.OP_TAN: "tan",
    ca.OP_ASIN: "arcsin",
    ca.OP_ACOS: "arccos",
    ca.OP_ATAN: "arctan",
    ca.OP_ATAN2: "arctan2",
    ca.OP_SINH: "sinh",
    ca.OP_COSH: "cosh",
    ca.OP_TANH: "tanh",
    ca.OP_FLOOR: "floor",
    ca.OP_CEIL: "ceil",
    ca.OP_FABS: "abs",
    ca.OP_SIGN: "sign",
    ca.OP_FMIN: "minimum",
    ca.OP_FMAX: "maximum",
    ca.OP_HYPOT: "hypot",
}
OWN: dict[int, Operation] = {
    ca.OP_ASSIGN: lambda np, a: a,
    ca.OP_ADD: lambda np, a, b: a + b,
    ca.OP_SUB: lambda np, a, b: a - b,
    ca.OP_MUL: lambda np, a, b: a * b,
    ca.OP_DIV: lambda np, a, b: a / b,
    ca.OP_SQ: lambda np, a: a * a,
    ca.OP_TWICE: lambda np, a: 2.0 * a,
    ca.OP_INV: lambda np, a: 1.0 / a,
    ca.OP_LT: lambda np, a, b: np.where(a < b, 1.0, 0.0),
    ca.OP_LE: lambda np, a, b: np.where(a <= b, 1.0, 0.0),
    ca.OP_EQ: lambda np, a, b: np.where(a == b, 1.0, 0.0),
    ca.OP_NE: lambda np, a, b: np.where(a != b, 1.0, 0.0),
    ca.OP_NOT: lambda np, a: np.where(a == 0.0, 1.0, 0.0),
    ca.OP_AND: lambda np, a, b: np.where((a != 0.0) & (b != 0.0), 1.0, 0.0),
    ca.OP_OR: lambda np, a, b: np.where((a != 0.0) | (b != 0.0), 1.0, 0.0),
    ca.OP_IF_ELSE_ZERO: lambda np, a, b: np.where(a != 0.0, b, 0.0),
}


def on_arrays(function: ca.Function, np: Any) -> Callable[..., tuple[Any, ...]]:
    """Convert a CasADi function of type SX to a function of numpy-like arrays.

    Parameters
    ----------
    function : casadi.Function
        Of SX, with dense arguments and results.
    np : module
        Library with numpy's functions, such as numpy or `jax.numpy`.

    Returns
    -------
    callable
        Function of arrays whose first axis has the entries of each argument; returns a tuple of such arrays
        for the results. The other axes are samples, and are broadcast.

    Raises
    ------
    ModelError
        If the function is not of SX, or has an operation that is not supported here.
    """
    if not function.is_a("SXFunction"):
        raise ModelError(f"{function.name()}: expected a function of SX, got one of {function.class_name()}")
    instructions = [_instruction(function, k, np) for k in range(function.n_instructions())]
    sizes = [function.numel_out(i) for i in range(function.n_out())]

    def call(*args: Any) -> tuple[Any, ...]:
        shape = np.broadcast_shapes(*(a.shape[1:] for a in args))
        held: dict[int, Any] = {}
        found: list[list[Any]] = [[0.0] * size for size in sizes]  # sparse zeros are not written
        for operation, of, to in instructions:
            if operation is None:
                found[to[0]][to[1]] = held[of[0]]
            elif operation == "input":
                held[to[0]] = args[of[0]][of[1]]
            elif isinstance(operation, float):
                held[to[0]] = operation
            else:
                held[to[0]] = operation(np, *(held[i] for i in of))
        return tuple(
            np.stack([np.broadcast_to(e, shape) for e in entries]) if entries else np.zeros((0, *shape))
            for entries in found
        )

    return call


def _instruction(function: ca.Function, k: int, np: Any) -> tuple[Any, list[int], list[int]]:
    """Return instruction k of a CasADi function: its operation, operands and result.
    Operands and result are indices of the function's work vector, or of its arguments and results. The
    operation is a callable; a number for a constant; "input" if an argument is read; or None if a result is
    written.
    """
    op, of, to = function.instruction_id(k), function.instruction_input(k), function.instruction_output(k)
    if op == ca.OP_OUTPUT:
        return None, of, to
    if op == ca.OP_INPUT:
        return "input", of, to
    if op == ca.OP_CONST:
        return float(function.instruction_constant(k)), of, to
    if op in NAMED:
        named = getattr(np, NAMED[op])
        return (lambda _, *args: named(*args)), of, to
    if op in OWN:
        return OWN[op], of, to
    raise ModelError(
        f"{function.name()}: operation {op} of CasADi has no form on arrays; run it by the map's `rollouts`"
    )
