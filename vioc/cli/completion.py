"""Command ``vioc completion SHELL``, which prints a script for tab completion.

It completes commands, options, models and studies.
"""

from __future__ import annotations

import argparse
import contextlib
import shlex
from collections.abc import Iterator
from typing import NamedTuple

from vioc.cli.options import Commands, Parser

HOW = {
    "bash": (
        "mkdir -p ~/.local/share/bash-completion/completions",
        "vioc completion bash > ~/.local/share/bash-completion/completions/vioc",
    ),
    "zsh": (
        "mkdir -p ~/.zfunc",
        "vioc completion zsh > ~/.zfunc/_vioc   # with fpath+=~/.zfunc before compinit in .zshrc",
    ),
    "fish": (
        "mkdir -p ~/.config/fish/completions",
        "vioc completion fish > ~/.config/fish/completions/vioc.fish",
    ),
}


def add(commands: Commands) -> None:
    parser = commands.add(
        "completion",
        run,
        "print a script for a shell that completes commands, options, models and studies",
        "\n".join(f"  {line}" for lines in HOW.values() for line in lines),
    )
    parser.add_argument("shell", choices=SHELLS, help="which shell")


def run(args: argparse.Namespace) -> None:
    from vioc.cli import parser

    print(SHELLS[args.shell](list(commands_of(parser()))))


class Option(NamedTuple):
    """Option of a command: its flags, its help, and the words or files it accepts."""

    flags: tuple[str, ...]
    help: str
    value: str | None
    words: tuple[str, ...]
    file: bool


class Command(NamedTuple):
    """Command of the command line, with its subcommands, options and arguments.

    `path` has the words of the command; subcommands have their help texts.
    """

    path: tuple[str, ...]
    commands: dict[str, str]
    options: list[Option]
    words: tuple[str, ...]
    file: bool

    @property
    def key(self) -> str:
        return " ".join(self.path)


def commands_of(parser: Parser, path: tuple[str, ...] = ()) -> Iterator[Command]:
    """Yield the command of a parser, followed by all its subcommands."""
    options: list[Option] = []
    words: tuple[str, ...] = ()
    file = False
    for action in parser.arguments:
        if action.option_strings:
            value = None if action.nargs == 0 else str(action.metavar or action.dest.upper())
            flags = tuple(flag for flag in action.option_strings if flag.startswith("--"))
            options.append(Option(flags, _first(action.help), value, *_values(action)))
        else:
            more, files = _values(action)
            words, file = (*words, *more), file or files
    helps = {name: help for name, (help, _) in parser.commands.items()}
    yield Command(path, helps, options, words, file)
    for name, (_, command) in parser.commands.items():
        yield from commands_of(command, (*path, name))


def _values(action: argparse.Action) -> tuple[tuple[str, ...], bool]:
    """Return the words that an argument accepts, and True if it also accepts files."""
    if action.choices:
        return tuple(map(str, action.choices)), False
    if action.metavar == "MODEL":
        from vioc import models

        return tuple(models.names()), True
    if action.metavar == "STUDY":
        from vioc.cli.study import studies

        with contextlib.suppress(ImportError):
            return tuple(study.name for study in studies("harness").studies()), False
    return (), action.metavar in ("FILE", "DIR", "TRAJECTORY")


def _first(help: str | None) -> str:
    """Return the first part of a command's help text, for a list of commands."""
    return (help or "").replace("%%", "%").split(" (default")[0].split(";")[0].split(": ")[0]


# -- the shells ---------------------------------------------------------------------------------

BASH = """\
# bash completion of vioc; made by `vioc completion bash`
_vioc() {{
    local word at="" words="" i
    local now="${{COMP_WORDS[COMP_CWORD]}}" before="${{COMP_WORDS[COMP_CWORD-1]}}"
    for ((i = 1; i < COMP_CWORD; i++)); do
        word="${{at:+$at }}${{COMP_WORDS[i]}}"
        case "$word" in
            {paths}) at="$word" ;;
        esac
    done
    case "$at:$before" in
{values}
    esac
    case "$at" in
{commands}
    esac
    COMPREPLY=($(compgen -W "$words" -- "$now"))  # none: files, by -o default
}}
complete -o default -F _vioc vioc"""


def bash(commands: list[Command]) -> str:
    values, words = [], []
    for c in commands:
        for o in c.options:
            if o.value is not None:
                pattern = "|".join(f'"{c.key}:{flag}"' for flag in o.flags)
                reply = f'COMPREPLY=($(compgen -W "{" ".join(o.words)}" -- "$now")); ' if o.words else ""
                values.append(f"        {pattern}) {reply}return ;;")
        flags = [flag for o in c.options for flag in o.flags]
        words.append(f'        "{c.key}") words="{" ".join([*c.commands, *c.words, *flags])}" ;;')
    paths = "|".join(f'"{c.key}"' for c in commands if c.path)
    return BASH.format(paths=paths, values="\n".join(values), commands="\n".join(words))


def zsh(commands: list[Command]) -> str:
    lines = ["#compdef vioc", "# zsh completion of vioc; made by `vioc completion zsh`", ""]
    for c in commands:
        name = "_".join(("_vioc", *c.path))
        specs = [_zsh_option(flag, o) for o in c.options for flag in o.flags]
        if c.commands:
            descriptions = " ".join(_quoted(f"{_zsh(n)}:{_zsh(h)}") for n, h in c.commands.items())
            cases = "\n".join(f"                {n}) {name}_{n} ;;" for n in c.commands)
            lines.append(
                f"{name}() {{\n    local line state\n"
                f"    _arguments -C {' '.join(specs)} '1:command:->command' '*::argument:->argument'\n"
                "    case $state in\n        command)\n"
                f"            local -a names=({descriptions})\n            _describe command names ;;\n"
                f"        argument)\n            case $line[1] in\n{cases}\n            esac ;;\n"
                "    esac\n}\n"
            )
            continue
        words = f"({' '.join(c.words)})"
        if c.words and c.file:  # with a leading space zsh calls an action without adding arguments
            specs.append(_quoted(f"*:argument: _alternative 'names:name:{words}' files:file:_files"))
        elif c.words or c.file:
            specs.append(_quoted(f"*:argument:{words if c.words else '_files'}"))
        lines.append(f"{name}() {{\n    _arguments {' '.join(specs)}\n}}\n")
    return "\n".join([*lines, 'if [ "$funcstack[1]" = _vioc ]; then _vioc "$@"; else compdef _vioc vioc; fi'])


def _zsh_option(flag: str, o: Option) -> str:
    spec = f"{flag}[{_zsh(o.help)}]"
    if o.value is not None:
        what = f"({' '.join(o.words)})" if o.words else "_files" if o.file else ""
        spec += f":{_zsh(o.value)}:{what}"
    return _quoted(spec)


def _zsh(text: str) -> str:
    return text.replace("\\", "").replace(":", "\\:").replace("[", "(").replace("]", ")")


def fish(commands: list[Command]) -> str:
    lines = ["# fish completion of vioc; made by `vioc completion fish`", "complete -c vioc -f"]
    for c in commands:
        seen = [f"__fish_seen_subcommand_from {word}" for word in c.path] or ["true"]
        if c.commands:
            seen.append(f"not __fish_seen_subcommand_from {' '.join(c.commands)}")
        head = f"complete -c vioc -n {_quoted('; and '.join(seen))}"
        lines += [f"{head} -a {name} -d {_quoted(help)}" for name, help in c.commands.items()]
        if c.words:
            lines.append(f"{head} -a {_quoted(' '.join(c.words))}")
        if c.file:
            lines.append(f"{head} -F")
        for o in c.options:
            flags = " ".join(f"-l {flag.removeprefix('--')}" for flag in o.flags)
            value = "" if o.value is None else " -r"
            value += f" -a {_quoted(' '.join(o.words))}" if o.words else " -F" if o.file else ""
            lines.append(f"{head} {flags}{value} -d {_quoted(o.help)}")
    return "\n".join(lines)


def _quoted(text: str) -> str:
    return shlex.quote(text) if text else "''"


SHELLS = {"bash": bash, "zsh": zsh, "fish": fish}
