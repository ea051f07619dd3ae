"""Command line of vioc, with one module for each command.

A command is a module of this package that is named in `COMMANDS` and defines ::

    def add(commands: Commands) -> None:
        parser = commands.add(
            "view", run, "open a model in the browser", "  vioc view cart_pole", start_options()
        )
        parser.add_argument("--port", type=int, default=0, help="where to listen")

    def run(args: argparse.Namespace) -> int | None:
        f, start = ...

`add` declares the command: name, function, help in one line, examples, and groups of options that several
commands share (`options`). A command with subcommands (``vioc study run``) calls `Commands.group` instead of
`Commands.add`. `run` prints results to stdout and returns the exit code, None for 0. It raises errors that a
user can correct (`EXPECTED`); `main` prints these in one line and returns 2.

The parser needs all modules of commands, so slow imports (plots, SciPy, the control tools) belong into the
function that uses them. `models` reads models by name or path, `printing` has output that several commands
share.
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
)  # errors that a user can cause and correct


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line, and return the exit code (2 for a user's error)."""
    args = parser().parse_args(argv)
    if args.run is None:  # no command, or a group's name without a subcommand
        args.asked.print_help()
        return 2
    try:
        code = args.run(args)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader (`| head`) has closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # else Python flushes again at exit
        return 1
    except KeyboardInterrupt:
        if args.debug:
            raise
        print("vioc: interrupted", file=sys.stderr)
        return 130  # exit code of a program that SIGINT ended
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
    """Return the parser of all commands."""
    result = Parser(
        prog="vioc",
        description="Mechanisms on variational integrators: simulate, linearize, control.",
        epilog="Try `vioc demo`, or `vioc COMMAND --help` for examples.",
    )
    result.add_argument("--version", action="version", version=f"vioc {vioc.__version__}")
    commands = Commands(result)
    for name in COMMANDS:
        importlib.import_module(f"vioc.cli.{name}").add(commands)
    return result
