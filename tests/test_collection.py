"""The tests import what is theirs, whatever else is installed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
MODULES = [p.stem for p in HERE.rglob("*.py") if p.stem != "conftest"]


@pytest.mark.slow
def test_other_packages_may_own_the_same_names(tmp_path):
    """Some packages install a top-level `tests`, which a folder without `__init__.py` loses to."""
    for name in ("tests", "trust", *MODULES):
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
