"""C99 code of CasADi SX functions, with counts of its operations.

Every instruction becomes one operation of C, in CasADi's order; values that are used once are written where
they are used. A `real` is double or float. The code allocates nothing and has no static data.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields

import casadi as ca

WIDTH = 96  # characters of an expression above which it becomes a variable
SUFFIX = {"double": "", "single": "f"}

BINARY = {ca.OP_ADD: "+", ca.OP_SUB: "-", ca.OP_MUL: "*", ca.OP_DIV: "/"}
TESTS = {ca.OP_LT: "<", ca.OP_LE: "<=", ca.OP_EQ: "==", ca.OP_NE: "!=", ca.OP_AND: "&&", ca.OP_OR: "||"}
CALLS = {
    ca.OP_EXP: "exp",
    ca.OP_LOG: "log",
    ca.OP_POW: "pow",
    ca.OP_CONSTPOW: "pow",
    ca.OP_SIN: "sin",
    ca.OP_COS: "cos",
    ca.OP_TAN: "tan",
    ca.OP_ASIN: "asin",
    ca.OP_ACOS: "acos",
    ca.OP_ATAN: "atan",
    ca.OP_ATAN2: "atan2",
    ca.OP_SINH: "sinh",
    ca.OP_COSH: "cosh",
    ca.OP_TANH: "tanh",
    ca.OP_ASINH: "asinh",
    ca.OP_ACOSH: "acosh",
    ca.OP_ATANH: "atanh",
    ca.OP_ERF: "erf",
    ca.OP_FMOD: "fmod",
    ca.OP_REMAINDER: "remainder",
    ca.OP_LOG1P: "log1p",
    ca.OP_EXPM1: "expm1",
    ca.OP_HYPOT: "hypot",
}
CHEAP = {
    ca.OP_FABS: "fabs",
    ca.OP_FLOOR: "floor",
    ca.OP_CEIL: "ceil",
    ca.OP_FMIN: "fmin",
    ca.OP_FMAX: "fmax",
    ca.OP_COPYSIGN: "copysign",
}


@dataclass(frozen=True)
class Operations:
    """Largest number of operations of each kind that a C function can need.

    Attributes
    ----------
    adds, muls, divs, roots : int
        Arithmetic operations; a difference counts as an addition.
    calls : int
        Sines, exponentials and other slow functions of math.h.
    tests : int
        Comparisons, choices, absolute values, roundings, changes of sign.
    """

    adds: int = 0
    muls: int = 0
    divs: int = 0
    roots: int = 0
    calls: int = 0
    tests: int = 0

    def __add__(self, other: Operations) -> Operations:
        return Operations(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))

    def __mul__(self, times: int) -> Operations:
        return Operations(*(times * getattr(self, f.name) for f in fields(self)))

    __rmul__ = __mul__

    @property
    def total(self) -> int:
        return sum(getattr(self, f.name) for f in fields(self))

    def __str__(self) -> str:
        return ", ".join(f"{getattr(self, f.name)} {f.name}" for f in fields(self))


@dataclass(frozen=True)
class Emitted:
    """C code of a function, with its operation count.

    Attributes
    ----------
    source : str
    operations : Operations
    """

    source: str
    operations: Operations


def number(value: float, precision: str = "double") -> str:
    """Return the C literal of a number, in double or single precision.
    A C compiler reads it as exactly this number, or as the nearest number in single precision.
    """
    if not math.isfinite(value):
        raise ValueError(f"a number in C is finite, got {value}")
    return repr(float(value)) + SUFFIX[precision]


def emit(function: ca.Function, name: str, precision: str = "double", comment: str = "") -> Emitted:
    """Generate C code from a CasADi function, and count its operations.

    It is ``static void name(const real *x, ..., real *y, ...)``.

    Parameters
    ----------
    function : casadi.Function
        Of SX; the names of its arguments are those in C. Scalars are pointers as well. A sparse output is
        written in full, row by row, with its zeros.
    name : str
    precision : "double" or "single"
    comment : str
        Precedes the function.

    Returns
    -------
    Emitted

    Raises
    ------
    ValueError
        For an operation without a counterpart in C, such as a function within the expression.

    Notes
    -----
    Inputs and outputs must not overlap; empty ones may be NULL.
    """
    graph = _Graph(function, precision)
    ins, outs = function.name_in(), function.name_out()
    signature = ", ".join([f"const real *restrict {n}" for n in ins] + [f"real *restrict {n}" for n in outs])
    lines = [f"/* {comment} */"] if comment else []
    lines += [f"static void {name}({signature})", "{", *(f"    {line}" for line in graph.lines)]
    lines += [f"    (void){n};" for n in ins if n not in graph.read]
    lines += [f"    (void){n};" for i, n in enumerate(outs) if not function.numel_out(i)]
    for i, out in enumerate(outs):
        lines += [f"    {line}" for line in graph.written(i, out)]
    return Emitted("\n".join([*lines, "}", ""]), graph.operations)


class _Value:
    """Value in a C function: its operation, its number of uses, and its C expression."""

    __slots__ = ("op", "operands", "test", "text", "uses")

    def __init__(self, op: int, operands: Sequence[_Value] = (), text: str = ""):
        self.op, self.operands, self.text = op, operands, text
        self.test = op in TESTS or op == ca.OP_NOT
        self.uses = 0
        for operand in operands:
            operand.uses += 1


class _Graph:
    """Generator of the C statements of a CasADi function.
    The statements in `lines` compute intermediate values. The method `written` returns those that assign an
    output."""

    def __init__(self, function: ca.Function, precision: str):
        if not function.is_a("SXFunction"):
            raise ValueError(f"expected a function of SX, got {function.class_name()} {function.name()!r}")
        self.function, self.suffix, self.precision = function, SUFFIX[precision], precision
        self.read: set[str] = set()
        self.lines: list[str] = []
        self.operations = Operations()
        self._names = 0
        self._outputs: list[dict[int, _Value]] = [{} for _ in range(function.n_out())]
        values: list[_Value] = []
        slots: dict[int, _Value] = {}
        names = function.name_in()
        for k in range(function.n_instructions()):
            op = function.instruction_id(k)
            takes, gives = function.instruction_input(k), function.instruction_output(k)
            if op == ca.OP_OUTPUT:
                value = slots[takes[0]]
                value.uses += 1
                self._outputs[gives[0]][gives[1]] = value
                continue
            if op == ca.OP_INPUT:
                column = function.sparsity_in(takes[0])
                if not column.is_dense() or column.size2() > 1:
                    raise ValueError(f"{names[takes[0]]}: expected a dense column")
                self.read.add(names[takes[0]])
                value = _Value(op, text=f"{names[takes[0]]}[{takes[1]}]")
            elif op == ca.OP_CONST:
                text = number(function.instruction_constant(k), precision)
                value = _Value(op, text=f"({text})" if text.startswith("-") else text)
            else:
                value = _Value(op, [slots[i] for i in takes])
                values.append(value)
            slots[gives[0]] = value
        for value in values:
            if value.uses:
                self._write(value)

    def _write(self, value: _Value) -> None:
        text = self._expression(value)
        if value.uses > 1 or len(text) > WIDTH:
            name = f"a{self._names}"
            self._names += 1
            self.lines.append(f"const {'int' if value.test else 'real'} {name} = {_bare(text)};")
            text = name
        value.text = text

    def _expression(self, value: _Value) -> str:
        op, zero = value.op, number(0.0, self.precision)
        if op == ca.OP_IF_ELSE_ZERO:
            condition, then = value.operands
            self._count(tests=1)
            test = condition.text if condition.test else f"{condition.text} != {zero}"
            return f"({test} ? {_number(then)} : {zero})"
        if op in TESTS:
            self._count(tests=1)
            if op in (ca.OP_AND, ca.OP_OR):
                sides = [v.text if v.test else f"({v.text} != {zero})" for v in value.operands]
            else:
                sides = [_number(v) for v in value.operands]
            return f"({sides[0]} {TESTS[op]} {sides[1]})"
        if op == ca.OP_NOT:
            self._count(tests=1)
            (operand,) = value.operands
            return f"(!{operand.text})" if operand.test else f"({operand.text} == {zero})"
        sides = [_number(v) for v in value.operands]
        if op in BINARY:
            self._count(**{{"*": "muls", "/": "divs"}.get(BINARY[op], "adds"): 1})
            return f"({sides[0]} {BINARY[op]} {sides[1]})"
        if op in CALLS:
            self._count(calls=1)
            return f"{CALLS[op]}{self.suffix}({', '.join(map(_bare, sides))})"
        if op in CHEAP:
            self._count(tests=1)
            return f"{CHEAP[op]}{self.suffix}({', '.join(map(_bare, sides))})"
        if op == ca.OP_ASSIGN:
            return sides[0]
        if op == ca.OP_SQRT:
            self._count(roots=1)
            return f"sqrt{self.suffix}({_bare(sides[0])})"
        if op == ca.OP_NEG:
            self._count(tests=1)
            return f"(-{sides[0]})"
        if op == ca.OP_INV:
            self._count(divs=1)
            return f"({number(1.0, self.precision)} / {sides[0]})"
        if op == ca.OP_TWICE:
            self._count(muls=1)
            return f"({number(2.0, self.precision)} * {sides[0]})"
        if op == ca.OP_SQ:
            self._count(muls=1)
            return f"({self._named(value.operands[0])} * {value.operands[0].text})"
        if op == ca.OP_SIGN:
            self._count(tests=2)
            side = self._named(value.operands[0])
            return f"((real)({side} > {zero}) - (real)({side} < {zero}))"
        raise ValueError(
            f"{self.function.name()}: operation {op} of CasADi has no counterpart in C here; write the "
            "expression without calls of functions"
        )

    def _named(self, value: _Value) -> str:
        """Return a C expression for a value that a C function uses more than once.
        The result is a number or the name of a variable. If the value is a longer expression, it is first
        assigned to a new variable.
        """
        if value.operands and value.text.endswith(")"):
            name = f"a{self._names}"
            self._names += 1
            self.lines.append(f"const real {name} = {_bare(_number(value))};")
            value.text, value.test = name, False
        return _number(value)

    def _count(self, **operations: int) -> None:
        self.operations += Operations(**operations)

    def written(self, i: int, name: str) -> list[str]:
        """Return the C assignments of all entries of the function's output number i.
        The entries are assigned row by row.
        """
        pattern = self.function.sparsity_out(i)
        rows, columns = pattern.size1(), pattern.size2()
        places = [r * columns + c for r, c in zip(*pattern.get_triplet(), strict=True)]
        nodes = {place: self._outputs[i].get(n) for n, place in enumerate(places)}
        zero = number(0.0, self.precision)
        lines = []
        for place in range(rows * columns):
            value = nodes.get(place)
            lines.append(f"{name}[{place}] = {zero if value is None else _bare(_number(value))};")
        return lines


def _number(value: _Value) -> str:
    return f"(real){value.text}" if value.test else value.text


def _bare(text: str) -> str:
    """Remove the outer brackets of a C expression, if they are a pair."""
    if not (text.startswith("(") and text.endswith(")")):
        return text
    depth = 0
    for i, letter in enumerate(text):
        depth += {"(": 1, ")": -1}.get(letter, 0)
        if not depth and i < len(text) - 1:
            return text
    return text[1:-1]
