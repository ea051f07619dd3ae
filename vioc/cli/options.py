"""Declaration of commands, and of options that several commands share."""

from __future__ import annotations

import argparse
import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from vioc.checks import near_misses

MODEL_HELP = """\
MODEL is the path of a model file (.sexp; .urdf: fixed base, an input at every joint; MJCF: its actuators),
or the name of a built-in model: {names}.
Families take a size: n_link_pendulum:3, scissor_lift:5."""

SET_HELP = (
    "start: configurations (theta=0.3), velocities (v.theta=1) and inputs that are held (u.force=2); SI "
    "units, radians. Not given: 0; in a model with constraints what those ask for, with the given ones fixed"
)
GUESS_HELP = (
    "models with constraints: where the search for the configurations that are not set begins, to choose "
    "between the ways to assemble the mechanism (default 0)"
)

LAST_PORT = 65535


class Parser(argparse.ArgumentParser):
    """Argument parser that suggests similar words for an invalid choice.

    Attributes
    ----------
    commands : dict of str to (str, Parser)
        Help and parsers of its commands by name, see `Commands`.
    """

    def __init__(self, *args: Any, **options: Any):
        super().__init__(*args, **options)
        self.commands: dict[str, tuple[str, Parser]] = {}

    @property
    def arguments(self) -> list[argparse.Action]:
        """Options and arguments of the parser and its parents, except for subcommands."""
        return [action for action in self._actions if action.nargs != argparse.PARSER]

    def _check_value(self, action: argparse.Action, value: object) -> None:
        if action.choices is not None and value not in action.choices:
            hint = near_misses(str(value), map(str, action.choices))
            raise argparse.ArgumentError(action, f"unknown {value!r}; {hint}")


Run = Callable[[argparse.Namespace], "int | None"]


class Commands:
    """Set of a parser's commands, to which commands are added.

    Parameters
    ----------
    parser : Parser
    """

    def __init__(self, parser: Parser):
        self._owner, self._subparsers = parser, parser.add_subparsers(title="commands", metavar="COMMAND")
        parser.set_defaults(run=None, asked=parser)  # without a command the parser prints its help

    def add(
        self, name: str, run: Run, help: str, examples: str, *shared: argparse.ArgumentParser
    ) -> argparse.ArgumentParser:
        """Declare a command, and return its parser.
        The caller adds the options of the command to the parser.

        Parameters
        ----------
        name : str
        run : callable
            Function of the parsed arguments that returns the exit code, None for 0.
        help : str
            One line, in lower case and without a full stop.
        examples : str
            Lines of ``"  vioc NAME ..."``.
        *shared : argparse.ArgumentParser
            Options shared with other commands: `start_options`.
        """
        about = "\n\n" + model_help() if shared else ""
        parser = self._parser(name, help, f"examples:\n{examples}{about}", *shared, debug())
        parser.set_defaults(run=run)
        return parser

    def group(self, name: str, help: str, examples: str) -> Commands:
        """Declare a command that has subcommands, and return the set of its subcommands."""
        return Commands(self._parser(name, help, f"examples:\n{examples}"))

    def _parser(self, name: str, help: str, epilog: str, *parents: Any) -> Parser:
        parser = self._subparsers.add_parser(
            name,
            help=help,
            description=help[0].upper() + help[1:] + ".",
            epilog=epilog,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            parents=parents,
        )
        self._owner.commands[name] = help, parser
        return parser


def model_help() -> str:
    """Return the help text for MODEL, with the names of the built-in models."""
    from vioc import models

    return MODEL_HELP.format(names=", ".join(models.names()))


@functools.cache
def debug() -> argparse.ArgumentParser:
    """Return a parser of the option ``--debug``, which every command has."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--debug", action="store_true", help="show where an error came from")
    return parser


@functools.cache
def start_options() -> argparse.ArgumentParser:
    """Return a parser of the argument ``MODEL`` and options ``--set --guess --dt``.
    They define the model, the initial state of its motion, and the time step.
    """
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("model", metavar="MODEL", help="path or built-in name, see below")
    for option, help in (("--set", SET_HELP), ("--guess", GUESS_HELP)):
        parser.add_argument(
            option, metavar="NAME=VALUE", nargs="+", action="extend", type=setting, default=[], help=help
        )
    parser.add_argument("--dt", type=seconds, default=0.01, help="time step, s (default 0.01)")
    return parser


def setting(text: str) -> tuple[str, float]:
    """Convert a command-line argument ``NAME=NUMBER`` to a name and a float."""
    name, equals, value = text.partition("=")
    try:
        return name, float(value if equals else "")
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected NAME=NUMBER, got {text!r}") from None


def port(text: str) -> int:
    """Convert a command-line argument to a port number."""
    if not (text.isdecimal() and 1 <= int(text) <= LAST_PORT):
        raise argparse.ArgumentTypeError(f"expected a port from 1 to {LAST_PORT}, got {text!r}")
    return int(text)


def seconds(text: str) -> float:
    """Convert a command-line argument to a time > 0, s."""
    value = float(text)
    if not 0 < value < np.inf:
        raise argparse.ArgumentTypeError(f"expected a time > 0 in seconds, got {text!r}")
    return value


def check_folder(option: str, folder: Path) -> None:
    """Raise ValueError if the folder of an option cannot be created or written to.

    Called before anything is computed.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = "is not a folder" if isinstance(error, FileExistsError) else error.strerror
        raise ValueError(f"{option}: no folder can be made at {str(folder)!r}: {reason}") from None
    if not os.access(folder, os.W_OK):
        raise ValueError(f"{option}: nothing can be written to {str(folder)!r}")


def check_target(option: str, target: str | None, suffixes: tuple[str, ...]) -> None:
    """Raise ValueError unless a file has a supported suffix and an existing folder.

    Called before anything is computed, so that a mistake costs no time.
    """
    if target is None:
        return
    path = Path(target)
    if path.suffix.lower() not in suffixes:
        raise ValueError(f"{option}: expected a file {' or '.join(suffixes)}, got {target!r}")
    if not path.parent.is_dir():
        raise ValueError(f"{option}: no such folder: {str(path.parent)!r}")
    if path.is_dir():
        raise ValueError(f"{option}: {target!r} is a folder")
