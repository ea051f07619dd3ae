"""Names that documents and docstrings quote exist: files, modules, and members of classes."""

import ast
import importlib
import inspect
import pkgutil
import re
from collections import defaultdict
from functools import cache
from pathlib import Path

import pytest
from support.dotted import exists

import vioc

ROOT = Path(__file__).parent.parent
PAGES = [  # those of "coming from" quote names of other programs
    ROOT / "README.md",
    *(p for p in sorted((ROOT / "docs").rglob("*.md")) if not {"coming_from", "generated"} & set(p.parts)),
]
FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
QUOTED = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
FILE = re.compile(r"(?:[\w.]+/)*[\w.]+\.(?:py|c|md|toml|jsonl?)")
DOTTED = re.compile(r"(?:vioc\.)?(?:\w+\.)*[A-Z]\w+\.[a-z_]\w*")
MODULE = re.compile(r"vioc(?:\.[a-z_0-9]+)+")
ROOMS = ("vioc", "tests", "docs", "studies", "examples", "recipe", ".github")
OTHER = {"vioc.studies"}  # the name of a group of entry points


@cache
def classes() -> dict[str, list[type]]:
    """Classes of vioc by name."""
    named: dict[str, list[type]] = defaultdict(list)
    for module in pkgutil.walk_packages(vioc.__path__, "vioc.", lambda name: None):
        if module.name.endswith("__main__"):
            continue
        try:
            held = importlib.import_module(module.name)
        except ImportError:  # it needs an extra that is not installed
            continue
        for name, kind in vars(held).items():
            if inspect.isclass(kind) and kind.__module__.startswith("vioc") and kind not in named[name]:
                named[name].append(kind)
    return named


@cache
def attributes(kind: type) -> frozenset[str]:
    """Members of a class, with annotations, slots and what its methods set on self."""
    names = set(dir(kind))
    for base in kind.__mro__:
        names |= set(vars(base).get("__annotations__", {}))
        if base.__module__.startswith("vioc"):
            names |= set(re.findall(r"\bself\.(\w+)\b[^=\n()]*=[^=]", inspect.getsource(base)))
    return frozenset(names)


@cache
def files() -> frozenset[str]:
    """Every file of the checkout, as all ends of its path."""
    ends = set()
    for room in ROOMS:
        for path in (ROOT / room).rglob("*"):
            parts = path.relative_to(ROOT).parts
            ends |= {"/".join(parts[i:]) for i in range(len(parts))}
    return frozenset(ends | {path.name for path in ROOT.iterdir()})


def unknown(text: str) -> list[str]:
    """Quoted names of a text that nothing has."""
    missing = []
    for name in QUOTED.findall(text):
        if (
            FILE.fullmatch(name)
            and "/" in name
            and name.split("/")[0] in ("vioc", "tests", "docs", "studies")
        ):
            if name not in files():
                missing.append(name)
        elif DOTTED.fullmatch(name):
            *_, kind, member = name.split(".")
            if kind in classes() and not any(member in attributes(k) for k in classes()[kind]):
                missing.append(name)
        elif MODULE.fullmatch(name) and name not in OTHER and not resolves(name):
            missing.append(name)
    return missing


def resolves(name: str) -> bool:
    """Return whether a dotted name exists, also of a module that needs an extra."""
    parts = name.split(".")
    return bool({"/".join(parts) + end for end in (".py", "/__init__.py")} & files()) or exists(name)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_names_on_a_page_exist(page):
    assert unknown(FENCED.sub("", page.read_text())) == []


def test_names_in_docstrings_and_comments_exist():
    missing = {}
    for path in sorted((ROOT / "vioc").rglob("*.py")):
        source = path.read_text()
        texts = re.findall(r"#.*", source)
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                texts.append(ast.get_docstring(node) or "")
        if names := unknown("\n".join(texts)):
            missing[str(path.relative_to(ROOT))] = names
    assert missing == {}


@pytest.mark.parametrize(
    "name", ["vioc/maps/nowhere.py", "MidpointVI.fly", "vioc.control.fly", "docs/maths/nowhere.md"]
)
def test_a_name_that_nothing_has_is_found(name):
    assert unknown(f"See `{name}`.") == [name]
    assert unknown("See `vioc/maps/protocol.py`, `MidpointVI.rollout`, `vioc.control.optimize`.") == []
