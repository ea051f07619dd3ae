"""Numerical tests on the oldest and the newest versions: ``python tests/trust/versions.py``.

The oldest are those that pyproject.toml declares, on the oldest Python; the newest are what a package index
gives on the newest Python. An interpreter is one of the PATH or of pyenv, or what uv fetches where it can;
where there is none, that is said, and the next is taken. ``--wide`` runs more files.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).parents[2]
PYTHONS = {"oldest": ("3.10",), "newest": ("3.14", "3.13", "3.12")}  # the first that is found
# Where versions of libraries may matter: arrays, CasADi, linear algebra, pictures
SHORT = ("kinematics", "terms", "sexpr", "trajectory", "control_lqr", "control_descent", "se3")
MORE = ("midpoint", "maximal", "control_limits", "contact_vi", "plots", "analysis_rank", "charts", "cli")
MARKS = "not slow and not study and not browser and not peer"
TOOLS = ("urdfdom-py>=1.2", "pytest>=8", "hypothesis>=6.100")
SEEN = "import sys, numpy, scipy, casadi, matplotlib; print(sys.version.split()[0], *(" + (
    "f'{m.__name__} {m.__version__}' for m in (numpy, scipy, casadi, matplotlib)), sep=', ')"
)


def dependencies() -> list[str]:
    """What pyproject.toml declares."""
    declared = re.search(r"^dependencies = \[(.*)\]$", (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert declared is not None
    return re.findall(r'"([^"]+)"', declared[1])


def oldest() -> list[str]:
    """The least versions declared, as pins, and what they need of others to be quiet."""
    # Newer pyparsing deprecates what Matplotlib 3.7 calls, and warnings are errors in the tests
    return [*(text.replace(">=", "==") for text in dependencies()), "pyparsing<3.1"]


def runs(*command: str | Path) -> bool:
    return subprocess.run(command, capture_output=True).returncode == 0


def interpreter(version: str, uv: str | None) -> str | None:
    """A Python of this version: of the PATH, of pyenv, or what uv has or fetches."""
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    kept = sorted(root.glob(f"versions/{version}.*/bin/python{version}"))
    for found in (shutil.which(f"python{version}"), *kept):  # a shim of pyenv may only say where it is
        if (
            found
            and subprocess.run([found, "-c", "import ensurepip, venv"], capture_output=True).returncode == 0
        ):
            return str(found)
    if uv is None or not runs(uv, "python", "install", "-q", version):
        return None
    return subprocess.run([uv, "python", "find", version], capture_output=True, text=True).stdout.strip()


def tried(part: str, uv: str | None, wide: bool) -> tuple[int, str]:
    """Install into an environment of its own and run the tests there: exit code, and what was said."""
    said: list[str] = []

    def run(*command: str) -> int:
        done = subprocess.run(
            command,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        said.append(done.stdout)
        return done.returncode

    packages = oldest() if part == "oldest" else dependencies()
    python = None
    for version in PYTHONS[part]:
        if python := interpreter(version, uv):
            break
        why = "not on the PATH nor of pyenv, and " + ("uv cannot fetch it" if uv else "no uv to fetch it")
        said.append(f"Python {version}: skipped: {why}\n")
    said.append(", ".join(packages) + "\n")
    with tempfile.TemporaryDirectory() as work:
        own = str(Path(work) / ("Scripts" if os.name == "nt" else "bin") / "python")
        # Wheels alone: a version without one for this Python would be minutes of compiling
        pip = (own, "-m", "pip", "install", "-qq", "--disable-pip-version-check", "--only-binary", ":all:")
        tests = (f"tests/test_{name}.py" for name in (SHORT + MORE if wide else SHORT))
        code = (
            run(python or sys.executable, "-m", "venv", work)
            or run(*pip, *packages, *TOOLS)
            or run(own, "-c", SEEN)
            or run(own, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", MARKS, *tests)
        )
    return code, "".join(said)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", action="append", choices=PYTHONS, help="only this")
    parser.add_argument("--wide", action="store_true", help="more files")
    args = parser.parse_args()
    parts, uv, worst = args.part or tuple(PYTHONS), shutil.which("uv"), 0
    with ThreadPoolExecutor() as pool:  # side by side: half of the time is installing
        for part, (code, said) in zip(
            parts, pool.map(lambda part: tried(part, uv, args.wide), parts), strict=True
        ):
            print(f"{part}:\n{said}", flush=True)
            worst = max(worst, abs(code))
    return worst


if __name__ == "__main__":
    sys.exit(main())
