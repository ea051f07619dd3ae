"""CasADi functions in complex numbers of 80 bits: derivatives by complex step, beyond double precision."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import casadi as ca
import numpy as np

Long = np.clongdouble
STEP = np.longdouble(1e-30)
ROUNDS = 12


def _by_real(compare: Callable) -> Callable:
    return lambda a, b: compare(a.real, b.real).astype(Long)


OPERATIONS: dict[int, Callable] = {
    ca.OP_ASSIGN: lambda a: a,
    ca.OP_ADD: np.add,
    ca.OP_SUB: np.subtract,
    ca.OP_MUL: np.multiply,
    ca.OP_DIV: np.divide,
    ca.OP_NEG: np.negative,
    ca.OP_EXP: np.exp,
    ca.OP_LOG: np.log,
    ca.OP_POW: np.power,
    ca.OP_CONSTPOW: np.power,
    ca.OP_SQRT: np.sqrt,
    ca.OP_SQ: np.square,
    ca.OP_TWICE: lambda a: a + a,
    ca.OP_SIN: np.sin,
    ca.OP_COS: np.cos,
    ca.OP_TAN: np.tan,
    ca.OP_ASIN: np.arcsin,
    ca.OP_ACOS: np.arccos,
    ca.OP_ATAN: np.arctan,
    ca.OP_INV: lambda a: 1 / a,
    ca.OP_NOT: lambda a: (a.real == 0).astype(Long),
    ca.OP_LT: _by_real(np.less),
    ca.OP_LE: _by_real(np.less_equal),
    ca.OP_EQ: _by_real(np.equal),
    ca.OP_NE: _by_real(np.not_equal),
    ca.OP_AND: _by_real(np.logical_and),
    ca.OP_OR: _by_real(np.logical_or),
    ca.OP_IF_ELSE_ZERO: lambda a, b: np.where(a.real != 0, b, 0),
    ca.OP_FABS: lambda a: np.where(a.real < 0, -a, a),
    ca.OP_SIGN: lambda a: np.sign(a.real).astype(Long),
    ca.OP_FMIN: lambda a, b: np.where(a.real <= b.real, a, b),
    ca.OP_FMAX: lambda a, b: np.where(a.real >= b.real, a, b),
    # of real arguments with small imaginary parts: their slopes
    ca.OP_ATAN2: lambda a, b: (
        np.arctan2(a.real, b.real) + 1j * (b.real * a.imag - a.real * b.imag) / (a.real**2 + b.real**2)
    ),
}


class Precise:
    """A function of SX at many points at once, each entry of an argument a row (entries, N)."""

    def __init__(self, arguments: Sequence[ca.SX], outputs: Sequence[ca.SX]):
        f = ca.Function("precise", list(arguments), [ca.densify(o) for o in outputs], {"cse": True})
        self._steps = [
            (f.instruction_id(k), f.instruction_input(k), f.instruction_output(k), f.instruction_constant(k))
            if f.instruction_id(k) == ca.OP_CONST
            else (f.instruction_id(k), f.instruction_input(k), f.instruction_output(k), 0.0)
            for k in range(f.n_instructions())
        ]
        self._work = f.sz_w()
        self._rows = [f.size1_out(i) * f.size2_out(i) for i in range(f.n_out())]

    def __call__(self, *arguments: np.ndarray) -> list[np.ndarray]:
        count = max(a.shape[1] for a in arguments)
        w: list[Any] = [None] * self._work
        out = [np.empty((rows, count), Long) for rows in self._rows]
        for op, given, taken, constant in self._steps:
            if op == ca.OP_CONST:
                w[taken[0]] = Long(constant)
            elif op == ca.OP_INPUT:
                w[taken[0]] = arguments[given[0]][given[1]]
            elif op == ca.OP_OUTPUT:
                out[taken[0]][taken[1]] = w[given[0]]
            else:
                w[taken[0]] = OPERATIONS[op](*(w[i] for i in given))
        return out


def solved(residual: Callable[[np.ndarray], np.ndarray], slopes: np.ndarray, guess: np.ndarray) -> np.ndarray:
    """y (n, N) with residual(y) = 0 to the precision of `Long`, by slopes (N, n, n) in double precision."""
    scale = 1 / np.abs(slopes).max(axis=2)  # (N, n)
    inverse = np.linalg.inv(scale[:, :, None] * slopes)
    y = guess.astype(Long)
    for _ in range(ROUNDS):
        r = scale.T * residual(y)
        size = np.abs(r).max(axis=0)
        size = np.where(size > 0, size, 1)
        for part, unit in ((r.real / size, 1), (r.imag / STEP, 1j * STEP)):
            along = np.einsum("nij,jn->in", inverse, part.astype(float))
            y = y - unit * (along * size if unit == 1 else along)
    return y
