"""The command line: one file for each command.

A command is a module of this package that is named in `COMMANDS` and has ::

    def add(commands: Commands) -> None:
        parser = commands.add(
            "view", run, "open a model in the browser", "  vioc view cart_pole", start_options()
        )
        parser.add_argument("--port", type=int, default=0, help="where to listen")

    def run(args: argparse.Namespace) -> int | None:
        f, start = ...

`add` declares the command: name, function, help in one line, examples, and groups of options that
several commands share (`options`). A command with commands of its own (``vioc study run``) calls
`Commands.group` in place of `Commands.add`. `run` prints results to stdout and returns the exit code,
None for 0; what a user can mend it raises (`EXPECTED`), and `main` prints it in a line and returns 2.

Modules of commands are all imported to make the parser: what is slow to import (plots, SciPy, the
control tools) is imported in the function that needs it. `models` reads models by name or path,
`printing` has what several commands print.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence

import vioc
from vioc.cli.options import Commands, Parser
from vioc.errors import CompileError, OptimizationError, StepError

COMMANDS = (
    "info",
    "simulate",
    "view",
    "linearize",
    "target",
    "demo",
    "study",
    "cache",
    "doctor",
    "completion",
)
EXPECTED = (
    ValueError,
    OSError,
    ImportError,
    CompileError,
    StepError,
    OptimizationError,
)  # what a user can cause, and mend


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code (2 for what the user can mend)."""
    args = parser().parse_args(argv)
    if args.run is None:  # no command, or a group's name without one of its own
        args.asked.print_help()
        return 2
    try:
        code = args.run(args)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader (`| head`) has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # else it is tried again at exit
        return 1
    except KeyboardInterrupt:
        if args.debug:
            raise
        print("vioc: interrupted", file=sys.stderr)
        return 130  # what a shell reports of a program that SIGINT ended
    except MemoryError as error:
        if args.debug:
            raise
        print(f"vioc: error: not enough memory for this many steps or variables: {error}", file=sys.stderr)
        return 2
    except EXPECTED as error:
        if args.debug:
            raise
        message = " ".join(str(error).split())
        print(f"vioc: error: {message}", file=sys.stderr)
        return 2
    return code or 0


def parser() -> Parser:
    """The parser of all commands."""
    made = Parser(
        prog="vioc",
        description="Mechanisms on variational integrators: simulate, linearize, control.",
        epilog="Try `vioc demo`, or `vioc COMMAND --help` for examples.",
    )
    made.add_argument("--version", action="version", version=f"vioc {vioc.__version__}")
    commands = Commands(made)
    for name in COMMANDS:
        importlib.import_module(f"vioc.cli.{name}").add(commands)
    return made
