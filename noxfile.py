#!/usr/bin/env -S uv run --script
# /// script
# dependencies = ["nox>=2024.4"]
# ///
"""What `make` does, in environments of nox, and on the oldest and newest versions: `nox -s versions`."""

import nox

nox.needs_version = ">=2024.4"
nox.options.default_venv_backend = "venv"

FAST = ("-m", "not slow and not study and not browser and not peer")


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
    session.install("-e", ".[test]", "-e", "./studies")
    session.run("pytest", "-n", "2", *FAST, *session.posargs)


@nox.session(name="versions", default=False)
def with_versions(session: nox.Session) -> None:
    session.run("python", "tests/trust/versions.py", *session.posargs)


if __name__ == "__main__":
    nox.main()
