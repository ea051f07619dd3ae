"""The tests import what is theirs, whatever else is installed."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

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


def imported(path):
    """Packages that a file imports, by their first names."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield str(node.module).split(".")[0]


def test_tests_of_behaviour_import_no_studies():
    found = {p.stem for p in HERE.rglob("*.py") if "studies" in imported(p)}
    others = {name for name in found if not OF_STUDIES.fullmatch(name)}
    assert others == OF_STUDIES_TOO
