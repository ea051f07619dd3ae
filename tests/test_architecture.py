"""What docs/architecture.md promises of the imports and names of vioc/, read off its sources."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

import vioc
from vioc.cli import main

ROOT = Path(__file__).parents[1]


@cache
def parsed() -> dict[str, ast.Module]:
    found = {}
    for path in (ROOT / "vioc").rglob("*.py"):
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        found[name] = ast.parse(path.read_text())
    return found


def for_running(tree: ast.AST) -> Iterator[ast.AST]:
    """Its nodes, but for those under ``if TYPE_CHECKING``."""
    left = [tree]
    while left:
        node = left.pop()
        yield node
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            left += node.orelse
        else:
            left += ast.iter_child_nodes(node)


def imports(tree: ast.Module, modules: dict[str, ast.Module]) -> set[str]:
    """Modules of vioc that a module imports, also within functions, but not for type checking."""
    found = set()
    for node in for_running(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"imports are absolute: {ast.unparse(node)}"
            whole = {alias.name: f"{node.module}.{alias.name}" for alias in node.names}
            found |= {full if full in modules else str(node.module) for full in whole.values()}
    return found & modules.keys()


def circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Strongly connected components of two or more (Tarjan)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found = []

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        for other in graph[name]:
            if other not in index:
                visit(other)
            if other in stack:
                low[name] = min(low[name], low[other])
        if low[name] == index[name]:
            at = stack.index(name)
            if len(stack) - at > 1:
                found.append(sorted(stack[at:]))
            del stack[at:]

    for name in graph:
        if name not in index:
            visit(name)
    return found


def test_no_circle_of_imports():
    modules = parsed()
    graph = {name: imports(tree, modules) - {name} for name, tree in modules.items()}
    assert len(graph) > 200 and sum(map(len, graph.values())) > 1000
    assert circles(graph) == []


def test_a_circle_would_be_found():
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": set()}) == [["b", "c"]]


def reads(tree: ast.Module) -> Iterator[str]:
    """Underscore names that are read of other objects than self, and imported."""
    own = {"self", "cls"}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            yield from (f"{node.lineno}: import {a.name}" for a in node.names if is_private(a.name))
        if not (isinstance(node, ast.Attribute) and is_private(node.attr)):
            continue
        of = node.value
        of_own = isinstance(of, ast.Name) and of.id in own
        of_super = isinstance(of, ast.Call) and isinstance(of.func, ast.Name) and of.func.id == "super"
        if not (of_own or of_super):
            yield f"{node.lineno}: {ast.unparse(node)}"


def is_private(name: str) -> bool:
    return (
        name.startswith("_") and not name.startswith("__") and name not in ("_replace", "_asdict", "_fields")
    )


@pytest.mark.parametrize(
    "text, count",
    [
        ("a._b", 1),
        ("self._b", 0),
        ("super()._b", 0),
        ("self._b._c", 1),
        ("from m import _x", 1),
        ("a.__b__", 0),
    ],
)
def test_private_reads_are_found(text, count):
    assert len(list(reads(ast.parse(text)))) == count


def test_nothing_reads_another_objects_underscore_names():
    assert {name: found for name, tree in parsed().items() if (found := list(reads(tree)))} == {}


# -- the page -------------------------------------------------------------------------------------------

PAGE = (ROOT / "docs/architecture.md").read_text()


def test_the_page_names_files_and_what_is_in_them():
    """Each `path` exists; the names in brackets behind it are written there."""
    named = re.findall(r"`(vioc/[\w/]+(?:\.py)?)`(?:\s\(`(\w+)`(?:, `(\w+)`)?\))?", PAGE)
    assert len(named) > 25
    for path, *names in named:
        assert (ROOT / path).exists(), path
        for name in filter(None, names):
            assert re.search(rf"(def|class) {name}\b", (ROOT / path).read_text()), f"{name} in {path}"


def simulated() -> None:
    main(["simulate", "cart_pole", "--set", "theta=0.3", "--time", "0.2"])


def optimized() -> None:
    f = vioc.MidpointVI(vioc.models.load("cart_pole"), 0.02)
    cost = vioc.control.quadratic(f, Q={"theta": 10}, R=1)
    vioc.control.optimize(f, cost, x0=f.initial_state({"theta": 0.3}), steps=20)


def passed_through(walk: Callable[[], None]) -> set[tuple[str, int, str]]:
    """File, first line and name of all code that runs."""
    found = set()

    def note(frame, event: str, _) -> None:
        if event == "call":
            found.add((frame.f_code.co_filename, frame.f_code.co_firstlineno, frame.f_code.co_name))

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        walk()
    finally:
        sys.setprofile(before)
    return found


@pytest.mark.parametrize("part, walk, aside", [(1, simulated, ()), (2, optimized, ("Problem", "LocalModel"))])
def test_the_walks_are_true(part, walk, aside):
    """What a walk names in a file runs, but for what stands `aside`."""
    named = re.findall(r"`(vioc/[\w/]+\.py)`(?:\s\(|,\s)`(\w+)`", PAGE.split("\n## ")[part])
    assert len(named) >= 8
    ran = passed_through(walk)
    for path, name in named:
        nodes = ast.walk(ast.parse((ROOT / path).read_text()))
        node = next(n for n in nodes if isinstance(n, ast.FunctionDef | ast.ClassDef) and n.name == name)
        inside = range(node.lineno - len(node.decorator_list), node.end_lineno + 1)
        bodies = {(f, line) for f, line, own in ran if isinstance(node, ast.FunctionDef) or own != name}
        assert any((str(ROOT / path), line) in bodies for line in inside) != (name in aside), f"{path} {name}"


def test_the_picture_shows_the_rooms_of_the_contract():
    text = (ROOT / "pyproject.toml").read_text()
    layers = re.search(r"^layers = \[(.*?)^\]", text, re.S | re.M)[1]
    rooms = [row.split(" | ") for row in re.findall(r'"([^"]+)"', layers)]
    shown = re.findall(r"<text[^>]*>([^<]*)</text>", (ROOT / "docs/img/architecture.svg").read_text())
    words = set(re.findall(r"\w+", " ".join(shown)))
    assert {name for row in rooms for name in row} - {"__main__"} <= words
    assert ["control", "dynamics"] in rooms


SAME_NAME = {"Problem": "vioc.control has that of one motion, vioc.control.dmoc that of several phases"}


def test_a_class_has_a_name_of_its_own():
    """But for those of `SAME_NAME`, which says why."""
    where: dict[str, list[str]] = {}
    for module, tree in parsed().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                where.setdefault(node.name, []).append(module)
    assert {name: found for name, found in where.items() if len(found) > 1}.keys() == SAME_NAME.keys()


# -- classes --------------------------------------------------------------------------------------------


@cache
def classes() -> set[type]:
    """The classes of vioc, but for those of modules that need what is not installed."""
    found = set()
    for name in parsed():
        try:
            module = importlib.import_module(name)
        except ImportError:
            continue
        found |= {c for c in vars(module).values() if inspect.isclass(c) and c.__module__ == name}
    return found


def depth(kind: type) -> int:
    """Classes of vioc in the longest chain from a class up."""
    return 1 + max((depth(base) for base in kind.__bases__ if base in classes()), default=0)


def members(kind: type) -> int:
    """Public names of a class."""
    return sum(not name.startswith("_") for name in dir(kind))


def overridden(kind: type) -> list[str]:
    """The names that a class redefines though a base of vioc defines them, and not as abstract."""
    found = []
    for name, value in vars(kind).items():
        bases = [base for base in kind.__mro__[1:] if base in classes() and name in vars(base)]
        if not name.startswith("__") and not name.startswith("_abc_") and bases:
            theirs = vars(bases[0])[name]
            found += [name] * (not getattr(theirs, "__isabstractmethod__", False) and callable_of(value))
    return found


def callable_of(value: object) -> bool:
    """True if a value is code: a method, or a property of whatever kind."""
    return callable(value) or hasattr(value, "__get__")


# A class is abstract or final. Those which are neither yet may only become fewer; errors, and data that has
# more fields than other data, stay.
DATA = {"StepArrays", "StepParts", "Mass", "AsTrajectory", "Pose", "LinearQuadratic"}
NOT_YET = set(
    [
        "Capsule",
        "Component",
        "Cone",
        "Constraint",
        "ContactLaw",
        "DistanceConstraint",
        "Dry",
        "End",
        "Force",
        "FrameGraph",
        "FrictionContact",
        "Inequality",
        "Kinetic",
        "Lagrangian",
        "Law",
        "LocalModel",
        "Newton",
        "Places",
        "Potential",
        "RateForce",
        "RoundCone",
        "Shape",
        "StepEquations",
        "StringConstraint",
        "Subproblem",
        "VelocityConstraint",
        "Viewer",
        "_Along",
        "_Hinge",
        "_Pair",
        "_Rope",
        "_Table",
        "_WrenchForce",
    ]
)


def test_a_class_is_abstract_or_final():
    bases = {base for c in classes() for base in c.__bases__ if base in classes()}
    concrete = {
        base.__name__ for base in bases if not inspect.isabstract(base) and not issubclass(base, Exception)
    }
    assert concrete - DATA == NOT_YET


# Public names of each map: the aim is 40. A number here may only fall.
MEMBERS = {
    "OneStepMap": 40,
    "MapAround": 42,
    "NoisyMap": 43,
    "Substeps": 43,
    "DelayedMap": 45,
    "KernelMap": 45,
    "CasadiMap": 46,
    "ExplicitMap": 46,
    "SwitchedMap": 47,
    "GroupQuantities": 48,
    "Composition": 50,
    "ExtendedMap": 50,
    "GroupVI": 51,
    "SmoothedMap": 53,
    "MechanicalMap": 59,
    "DiscreteLagrangianVI": 60,
    "LinearTimeVI": 60,
    "MidpointVI": 60,
    "GalerkinVI": 61,
    "ModeVI": 62,
    "RungeKutta": 62,
    "MaximalVI": 67,
    "ContactVI": 78,
}
OVERRIDDEN = 63  # concrete methods and properties of maps that a class below redefines; the aim is 0


def maps() -> dict[str, type]:
    return {c.__name__: c for c in classes() if issubclass(c, vioc.OneStepMap)}


def test_chains_of_maps_are_short():
    assert {name: d for name, c in maps().items() if (d := depth(c)) > 4} == {}


def test_maps_get_no_more_members():
    assert {name: members(c) for name, c in maps().items()} == MEMBERS


def test_maps_override_no_more():
    found = {name: names for name, c in maps().items() if (names := overridden(c))}
    assert sum(map(len, found.values())) == OVERRIDDEN, found


SAME_FILE = {
    "demo": "the command, and what it runs, which needs no command line",
    "problem": "the class `Problem` of `SAME_NAME`",
}


def test_a_file_has_a_name_of_its_own():
    """But for those of `SAME_FILE`, which says why, and what Python has in every folder."""
    stems = [p.stem for p in (ROOT / "vioc").rglob("*.py") if p.stem not in ("__init__", "__main__")]
    assert {stem for stem in stems if stems.count(stem) > 1} == SAME_FILE.keys()
    assert len(SAME_FILE) <= 5
