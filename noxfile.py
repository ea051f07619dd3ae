#!/usr/bin/env -S uv run --script
# /// script
# dependencies = ["nox>=2024.4"]
# ///
"""What `make` does, in environments of nox, and tests on the oldest versions declared: `nox -s oldest`."""

import re
from pathlib import Path

import nox

nox.needs_version = ">=2024.4"
nox.options.default_venv_backend = "venv"

FAST = ("-m", "not slow and not study and not browser and not peer")
# Where versions of libraries may matter, in a minute: arrays, CasADi, linear algebra, pictures
CORE = (
    *("kinematics", "terms", "midpoint", "maximal", "sexpr", "trajectory", "control_lqr", "control_descent"),
    *("control_limits", "contact_vi", "plots", "analysis_rank", "charts", "cli"),
)


def oldest() -> list[str]:
    """The least version that pyproject.toml declares of each dependency, as pins."""
    declared = re.search(r"^dependencies = \[(.*)\]$", Path("pyproject.toml").read_text(), re.MULTILINE)
    assert declared is not None
    return [text.replace(">=", "==") for text in re.findall(r'"([^"]+)"', declared[1])]


@nox.session
def lint(session: nox.Session) -> None:
    session.install("-e", ".[dev]")
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("lint-imports", "--no-cache")


@nox.session
def types(session: nox.Session) -> None:
    session.install("-e", ".[dev]")
    session.run("mypy")


@nox.session
def tests(session: nox.Session) -> None:
    session.install("-e", ".[test]")
    session.run("pytest", "-n", "2", *FAST, *session.posargs)


@nox.session(python="3.10", name="oldest", default=False)
def with_oldest(session: nox.Session) -> None:
    # Newer pyparsing deprecates what Matplotlib 3.7 calls, and warnings are errors in the tests
    session.install("-e", ".[urdf]", *oldest(), "pyparsing<3.1", "pytest>=8", "hypothesis>=6.100")
    session.run("pytest", *FAST, *(f"tests/test_{name}.py" for name in CORE), *session.posargs)


if __name__ == "__main__":
    nox.main()
