"""Sowing mutants: the small wrong changes of the code that `mutants.py` tries the tests with."""

from __future__ import annotations

import ast
import hashlib
import re
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

ROOT = Path(__file__).parents[2]

# What computes: arithmetic in at least so many places, in these folders, less what has trials of its own.
PLACES = 2
FOLDERS = ("vioc/maps", "vioc/runs", "vioc/dynamics", "vioc/control", "vioc/identification", "vioc/target")
LEFT_OUT = {
    "vioc/dynamics/description/[!ijn]*": "readers and writers, fuzzed by fuzz.py",
    "vioc/compile/[bcdln]*.py": "the cache and the compiler, killed and damaged in test_files.py",
    "vioc/interop/*": "needs packages that are not installed everywhere",
}


@dataclass(frozen=True)
class Mutant:
    """One change: `path` with `text` from `start` to `end` (offsets) replaced by `new`."""

    name: str
    path: str
    line: int
    start: int
    end: int
    new: str


SWAPPED = {ast.Add: "-", ast.Sub: "+", ast.Mult: "/", ast.Div: "*"}
COMPARED = {ast.Lt: ">", ast.Gt: "<", ast.LtE: ">", ast.GtE: "<", ast.Eq: "!=", ast.NotEq: "=="}
CALLED = {"sin": "cos", "cos": "sin", "min": "max", "max": "min", "any": "all", "all": "any"}
ALIKE = ("isinstance", "zip", "max", "min")  # in any order, or never wrong in silence
SKIPPED = (ast.Raise, ast.JoinedStr, ast.Assert, ast.Import, ast.ImportFrom)
SILENT = re.compile(r"__repr__|__str__|_?(re)?print|warn|message|describe|summary")


class Sower(ast.NodeVisitor):
    """Collects the changes of a Python file: (what, start, end, new, line, function)."""

    def __init__(self, text: str):
        self.text = text
        self.starts = [0]
        for line in text.encode().splitlines(keepends=True):
            self.starts.append(self.starts[-1] + len(line))
        self.found: list[tuple[str, int, int, str, int, str]] = []
        self.within: list[str] = []
        self.arithmetic = 0
        self.visit(ast.parse(text))

    def at(self, node: ast.AST) -> tuple[int, int]:
        """Offsets in bytes."""
        start, end = self.starts[node.lineno - 1] + node.col_offset, self.starts[node.end_lineno - 1]
        return start, end + node.end_col_offset

    def source(self, node: ast.AST) -> str:
        start, end = self.at(node)
        return self.text.encode()[start:end].decode()

    def add(self, what: str, node: ast.AST, new: str) -> None:
        start, end = self.at(node)
        self.found.append((what, start, end, new, node.lineno, ".".join(self.within)))

    def visit(self, node: ast.AST) -> None:
        if isinstance(node, SKIPPED):
            return
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            if not SILENT.search(node.name):
                self.within.append(node.name)
                defaults = [*node.args.defaults, *node.args.kw_defaults] if hasattr(node, "args") else []
                for child in [*filter(None, defaults), *node.body]:
                    self.visit(child)
                self.within.pop()
            return
        if isinstance(node, ast.AnnAssign):
            if node.value:
                self.visit(node.value)
            return
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            return
        self.change(node)
        self.generic_visit(node)

    def change(self, node: ast.AST) -> None:
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
            self.arithmetic += 1
            self.add("operator", node, f"({self.source(node.right)}) @ ({self.source(node.left)})")
        elif isinstance(node, ast.BinOp) and type(node.op) in SWAPPED:
            left, right = self.source(node.left), self.source(node.right)
            if not any(isinstance(s, ast.Constant) and not _number(s) for s in ast.walk(node)):  # of texts
                self.arithmetic += 1
                self.add("operator", node, f"({left}) {SWAPPED[type(node.op)]} ({right})")
                if isinstance(node.op, (ast.Add, ast.Sub)):
                    self.add("term", node, f"({left})")
                    self.add("term", node, f"({right})" if isinstance(node.op, ast.Add) else f"(-({right}))")
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.Not)):
            self.add("sign", node, f"({self.source(node.operand)})")
        elif isinstance(node, ast.Constant) and _number(node):
            v = node.value
            new = (v * 2 or 1.0) if isinstance(v, float) else v + 1
            self.add("constant", node, repr(new))
        elif isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in COMPARED:
            left, right = self.source(node.left), self.source(node.comparators[0])
            self.add("comparison", node, f"({left}) {COMPARED[type(node.ops[0])]} ({right})")
        elif isinstance(node, ast.BoolOp):
            word = " or " if isinstance(node.op, ast.And) else " and "
            self.add("comparison", node, "(" + word.join(f"({self.source(v)})" for v in node.values) + ")")
        elif isinstance(node, ast.Attribute) and node.attr == "T":
            self.add("transpose", node, self.source(node.value))
        elif isinstance(node, ast.AugAssign) or (
            isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript)
        ):
            self.add("statement", node, "pass")
        elif isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if name in CALLED:
                start, end = self.at(node.func)
                function = self.source(node.func)
                new = function[: len(function) - len(name)] + CALLED[name]
                self.found.append(("function", start, end, new, node.lineno, ".".join(self.within)))
            plain = [a for a in node.args if not isinstance(a, (ast.Constant, ast.Starred, ast.GeneratorExp))]
            if len(plain) >= 2 and plain[:2] == node.args[:2] and name not in ALIKE:
                one, two = plain[:2]
                (start, _), (_, end) = self.at(one), self.at(two)
                new = f"{self.source(two)}, {self.source(one)}"
                self.found.append(("arguments", start, end, new, one.lineno, ".".join(self.within)))


def _number(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and type(node.value) in (int, float)


TOKEN = re.compile(
    r"(?P<skip>/\*.*?\*/|//[^\n]*|^\s*#[^\n]*(?:\\\n[^\n]*)*|\"[^\"\n]*\")"
    r"|(?P<number>(?<![\w.])\d+\.\d*(?:e[+-]?\d+)?|(?<![\w.])\d+(?![\w.]))"
    r"|(?P<assign>[-+*]=)|(?P<step>\+\+|--|->)|(?P<compare><=|>=|==|!=|<|>)|(?P<sign>[-+])|(?P<times>[*/])",
    re.DOTALL | re.MULTILINE,
)
TYPE = re.compile(r"\b(double|int|char|void|const|struct \w+|\w+_t)$")
C_SWAPPED = {"+": "-", "-": "+", "*": "/", "/": "*", "+=": "-=", "-=": "+=", "*=": "+=", "<": ">", ">": "<"}
C_SWAPPED |= {"<=": ">", ">=": "<", "==": "!=", "!=": "=="}


def sow_c(text: str) -> list[tuple[str, int, int, str, int, str]]:
    """The changes of a C file; its functions begin at the margin."""
    found, function = [], ""
    heads = {m.start(): m[1] for m in re.finditer(r"^\w[\w\s*]*?(\w+)\([^;]*?\)\s*\{", text, re.MULTILINE)}
    for m in TOKEN.finditer(text):
        function = next((heads[s] for s in sorted(heads, reverse=True) if s <= m.start()), "")
        kind, old = m.lastgroup, m[0]
        if kind in ("skip", "step") or not function:
            continue
        before = text[: m.start()].rstrip()[-1:]
        if kind == "times" and old == "*" and not (before.isalnum() or before in ")]_"):
            continue  # of a pointer
        if kind == "times" and TYPE.search(text[: m.start()].rstrip()):
            continue
        if kind == "number":
            new = repr(2 * float(old) or 1.0) if "." in old else str(int(old) + 1)
        else:
            new = C_SWAPPED[old]
        at = len(text[: m.start()].encode())
        found.append((str(kind), at, at + len(old), new, text.count("\n", 0, m.start()) + 1, function))
    return found


def sow(path: str) -> tuple[list[Mutant], int]:
    """All mutants of a file, and the number of its places with arithmetic."""
    data = (ROOT / path).read_bytes()
    if path.endswith(".c"):
        changes = sow_c(data.decode())
        places = len(changes)
    else:
        sower = Sower(data.decode())
        changes, places = sower.found, sower.arithmetic
    seen: dict[str, int] = {}
    mutants = []
    for what, start, end, new, line, function in changes:
        old = re.sub(r"\s+", " ", data[start:end].decode())
        if old == new:  # equal arguments
            continue
        row = re.sub(r"\s+", " ", data.decode().splitlines()[line - 1].strip())
        mark = hashlib.sha256(row.encode()).hexdigest()[:6]  # tells equal changes on other lines apart
        short = [t if len(t) <= 60 else t[:57] + "..." for t in (old, re.sub(r"\s+", " ", new))]
        name = f"{path}:{function}:{what}: {short[0]} => {short[1]} @{mark}"
        seen[name] = seen.get(name, 0) + 1
        name += f"#{seen[name]}" * (seen[name] > 1)
        mutants.append(Mutant(name, path, line, start, end, new))
    return mutants, places


def modules() -> tuple[dict[str, list[Mutant]], dict[str, str]]:
    """The mutants of every module that computes, and why the others are left out."""
    chosen, left = {}, {}
    for folder in FOLDERS:
        for file in sorted((ROOT / folder).rglob("*")):
            path = file.relative_to(ROOT).as_posix()
            if file.suffix not in (".py", ".c"):
                continue
            why = next((why for pattern, why in LEFT_OUT.items() if fnmatch(path, pattern)), None)
            mutants, places = sow(path) if why is None else ([], 0)
            if why is None and places < PLACES:
                why = f"{places} places with arithmetic"
            if why:
                left[path] = why
            else:
                chosen[path] = mutants
    return chosen, left
