"""Completion scripts complete, in the shells that are here; every command is declared in full."""

import argparse
import re
import shlex
import shutil
import subprocess
from itertools import pairwise

import pytest

import vioc

# inside: scripts are made of the parser, whose every command they must complete
from vioc.cli import COMMANDS, main, parser
from vioc.cli.completion import SHELLS, commands_of

ASKED = {  # what is typed: what is offered for its last word
    "vioc si": ["simulate"],
    "vioc simulate cart": ["cart_pole"],
    "vioc simulate cart_pole --ba": ["--backend"],
    "vioc simulate --backend co": ["compiled"],
    "vioc study r": ["run"],
    "vioc study run pendulum_": ["pendulum_energy", "pendulum_optimal_control"],
    "vioc completion f": ["fish"],
}


@pytest.fixture(scope="module")
def commands():
    return list(commands_of(parser()))


def script(shell, folder):
    file = folder / f"vioc.{shell}"
    file.write_text(SHELLS[shell](list(commands_of(parser()))))
    return file


def needs(shell):
    return pytest.mark.skipif(shutil.which(shell) is None, reason=f"no {shell}")


@needs("bash")
def test_bash(tmp_path):
    lines = [f"source {shlex.quote(str(script('bash', tmp_path)))}"]
    for typed in ASKED:
        words = typed.split()
        lines.append(f"COMP_WORDS=({typed}); COMP_CWORD={len(words) - 1}; _vioc; echo ${{COMPREPLY[*]}}")
    done = subprocess.run(["bash", "-eu", "-c", "\n".join(lines)], capture_output=True, text=True)
    assert not done.stderr
    assert [line.split() for line in done.stdout.splitlines()] == list(ASKED.values())


@needs("fish")
def test_fish(tmp_path):
    lines = [f"source {shlex.quote(str(script('fish', tmp_path)))}"]
    lines += [f'complete -C "{typed}"; echo =' for typed in ASKED]
    env = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        ["fish", "--no-config", "-c", "\n".join(lines)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=env,
    )
    assert not done.stderr
    answers = done.stdout.split("=\n")[:-1]
    offered = [[line.split("\t")[0] for line in a.splitlines()] for a in answers]
    # among the files of the folder, where a value may be one
    assert [[word for word in words if not word.startswith("vioc.")] for words in offered] == list(
        ASKED.values()
    )


@needs("zsh")
def test_zsh_reads_it(tmp_path):
    done = subprocess.run(["zsh", "-n", script("zsh", tmp_path)], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_all_commands_are_in_every_script(commands, capsys):
    for shell in SHELLS:
        assert main(["completion", shell]) == 0
        text = capsys.readouterr().out
        for command in commands:
            assert all(name in text for name in command.commands)
            # fish writes --set as -l set
            assert all(flag[2:] in text for option in command.options for flag in option.flags)


def test_commands_have_help_and_examples_that_parse(commands, capsys):
    listed = {" ".join(c.path) for c in commands}
    assert set(COMMANDS) <= listed
    for command in commands:
        if not command.path:
            continue
        with pytest.raises(SystemExit):
            main([*command.path, "--help"])
        text = capsys.readouterr().out
        examples = re.findall(r"^  (vioc .*?)(?: [>#] ?.*)?$", text.split("examples:")[1], re.M)
        assert examples, command.path
        for example in examples:
            assert callable(parser().parse_args(shlex.split(example)[1:]).run)
        assert all(help for help in command.commands.values())
        assert all(option.help for option in command.options), command.path


def test_a_command_is_declared_in_a_module_of_its_name():
    made = parser()
    actions = [a for a in made._actions if isinstance(a, argparse._SubParsersAction)]
    assert list(actions[0].choices) == list(COMMANDS)


def test_models_are_offered(commands):
    simulate = next(c for c in commands if c.path == ("simulate",))
    assert set(simulate.words) == set(vioc.models.names())


def test_the_examples_make_the_folders_that_they_write_to(capsys):
    with pytest.raises(SystemExit):
        main(["completion", "--help"])
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    for made, written in pairwise(lines):
        if ">" in written:
            folder = written.split("> ")[1].split()[0].rpartition("/")[0]
            assert made == f"mkdir -p {folder}"
    assert sum(line.startswith("mkdir") for line in lines) == len(SHELLS)
