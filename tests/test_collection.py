"""The tests import what is theirs, whatever else is installed, and look at vioc from outside."""

import ast
import importlib
import os
import re
import subprocess
import sys
from functools import cache
from itertools import takewhile
from pathlib import Path

import pytest
from support.snippets import BLOCK

HERE = Path(__file__).parent
MODULES = [p.stem for p in HERE.rglob("*.py") if p.stem != "conftest"]


@pytest.mark.slow
def test_other_packages_may_own_the_same_names(tmp_path):
    """Some packages install a top-level `tests`, which a folder without `__init__.py` loses to."""
    for name in ("tests", "trust", "support", *MODULES):
        (tmp_path / name).mkdir(exist_ok=True)
        (tmp_path / name / "__init__.py").write_text(f"raise ImportError('{name} of another package')\n")
    paths = [str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])]
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-n", "0", "-p", "no:cacheprovider"]
    ran = subprocess.run(
        [*command, str(HERE)],
        cwd=HERE.parent,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stdout[-3000:] + ran.stderr[-3000:]


# Tests whose subject is a study or a benchmark, by its code, its claims or its problems, import it. Tests of
# behaviour do not: what they share with studies is in vioc, and small problems are in tests/support.
OF_STUDIES = re.compile(r"test_study_\w+|test_(\w+_)?(studies|study|benchmarks)")
OF_STUDIES_TOO = {
    "installed_smoke",
    "test_docs_site",  # the gallery of studies
    "test_graph_ldu",
    "test_metamorphic",
    "test_quadruped",
    "test_random_tasks",
    "test_reference",
    "test_reference_suite",
}


@cache
def imported(path):
    """Packages that a file imports, by their first names."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found += [alias.name.split(".")[0] for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            found.append(str(node.module).split(".")[0])
    return found


def test_tests_of_behaviour_import_no_studies():
    found = {p.stem for p in HERE.rglob("*.py") if "studies" in imported(p)}
    others = {name for name in found if not OF_STUDIES.fullmatch(name)}
    assert others == OF_STUDIES_TOO


def test_no_test_file_imports_another():
    found = {p.stem: [n for n in imported(p) if re.match("tests?(_|$)", n)] for p in HERE.rglob("*.py")}
    assert {name: others for name, others in found.items() if others} == {}


# -- the public doors of docs/architecture.md ---------------------------------------------------------


@pytest.fixture(scope="module")
def doors():
    """The public names of vioc by module."""
    docs = HERE.parent / "docs"
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(docs / "_ext"))
        found = importlib.import_module("public_names").listed(docs / "api")
    found["vioc.cli"] = {"main"}  # the command
    for module in [*found]:
        if module.count(".") < 2 or (HERE.parent / module.replace(".", "/")).is_dir():  # a room
            found[module].update(getattr(importlib.import_module(module), "__all__", ()))
            above, _, name = module.rpartition(".")
            found.setdefault(above, set()).add(name)
    for page in docs.rglob("*.md"):
        shown = [] if {"maths", "generated"} & {*page.parts} else BLOCK.finditer(page.read_text())
        for node in (n for block in shown for n in ast.walk(ast.parse(block[2]))):
            if isinstance(node, ast.ImportFrom):
                found.setdefault(node.module, set()).update(alias.name for alias in node.names)
            elif isinstance(node, ast.Import):
                for above, _, name in (alias.name.rpartition(".") for alias in node.names):
                    found.setdefault(above, set()).add(name)
    return found


def looks_inside(tree, doors):
    """Lines of what is imported, read or patched of vioc and has no public door, and its names."""

    def hidden(module, name):
        return name not in doors.get(module, ())

    for node in ast.walk(tree):
        names = []
        if isinstance(node, ast.Import):
            names = [a.name for a in node.names if hidden(*a.name.rpartition(".")[::2])]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{a.name}" for a in node.names if hidden(node.module, a.name)]
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Attribute):
            module, name = ast.unparse(node.value), node.attr
            within = module in doors or (module.count(".") == 1 and hidden(*module.split(".")))
            names = [f"{module}.{name}"] if within and hidden(module, name) and name[:2] != "__" else []
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("setattr"):
            names = [a.value for a in node.args[:1] if isinstance(a, ast.Constant)]
        yield from ((node.lineno, name) for name in names if name.split(".")[0] == "vioc")


def unexplained(text, doors):
    """The first look inside vioc without a reason right above it, or a reason without a look."""
    lines, first = text.splitlines(), min(looks_inside(ast.parse(text), doors), default=None)
    if first is None:
        return [line for line in lines if re.match(r"\s*# inside:", line)]
    above = takewhile(lambda line: line.lstrip().startswith("#"), reversed(lines[: first[0] - 1]))
    return [] if any(re.match(r"\s*# inside: \S", line) for line in above) else [first]


def test_what_looks_inside_says_why(doors):
    found = {str(p.relative_to(HERE)): unexplained(p.read_text(), doors) for p in HERE.rglob("*.py")}
    assert {name: left for name, left in found.items() if left} == {}


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("import vioc\nfrom vioc import models, System\nvioc.target.run_at", 0),
        ("from vioc.control.feedback import ClosedLoop\nfrom vioc.maps import check_map", 0),
        ("from vioc.maps.suite import Case", 1),
        ("import vioc.maps.kernel", 1),
        ("from vioc.maps import kernel", 1),
        ("import vioc\nvioc.maps.kernel.run", 1),
        ("import vioc\nvioc.target.split_steps.split", 1),
        ("def test(monkeypatch):\n    monkeypatch.setattr('vioc.maps.kernel.run', None)", 1),
        ("# inside: a reason\nfrom vioc.maps.kernel import run\nfrom vioc.names import meaning", 0),
        ("# inside:\nfrom vioc.maps.kernel import run", 1),
        ("# inside: a reason that is left\nfrom vioc import System", 1),
    ],
)
def test_looks_inside_are_found(text, count, doors):
    assert len(unexplained(text, doors)) == count
