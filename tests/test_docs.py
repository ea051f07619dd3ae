"""What README.md and docs/ show runs, in order, as a reader would type it, and prints what is printed there.

Python blocks of a page share a namespace. A ``text`` block right after one is its output; numbers may
differ in the last digits. Shell blocks run in a folder of the page's. ``no-run`` after the language marks
what is not for running (it installs, downloads or takes long), ``needs=PACKAGE`` what an extra is needed
for, ``no-check`` an output that depends on the machine.
"""

import contextlib
import importlib.util
import io
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import matplotlib.pyplot as plt
import pytest
from support.snippets import BLOCK

# inside: every command that a page names is one of the table of commands
from vioc.cli import COMMANDS, main

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *(p for p in sorted(DOCS.glob("**/*.md")) if "generated" not in p.parts)]
NAMES = [str(p.relative_to(ROOT)) for p in PAGES]
LINKED = [*PAGES, *sorted(p for p in ROOT.glob("*.md") if p.name != "README.md")]
MOST_WORDS = {"docs": 80_000, "README.md": 900}
MOST_LINES = {"CHANGELOG.md": 150}
MOST_ROWS = {"docs/README.md": 25}  # of tables, without their heads
SHELL = re.compile(r"^```sh([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
TOLD = [  # pages with commands that are for running
    p for p in PAGES if any("no-run" not in flags.split() for flags, _ in SHELL.findall(p.read_text()))
]
LONG = {  # to run; each takes seconds
    *("docs/contact.md", "docs/feedback.md", "docs/pictures.md", "docs/start.md"),
    "docs/tutorials/feedback.md",
}
CODE = re.compile(r"^```.*?^```$|`[^`\n]*`", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!https?:|mailto:|#)([^)#\s]+)(#[^)\s]+)?\)")
COMMAND = re.compile(r"(?:^    |`|&& )vioc ([a-z]+|COMMAND)\b([^`\n]*)", re.MULTILINE)
NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")
ROUNDING = 1e-9  # below it a number is rounding, whose digits mean nothing


def run_through(pages):
    """Parameters of tests that run what is on these pages."""
    names = {page: str(page.relative_to(ROOT)) for page in pages}
    slow = {True: [pytest.mark.slow], False: []}
    return [pytest.param(page, id=name, marks=slow[name in LONG]) for page, name in names.items()]


@pytest.mark.parametrize("page", run_through(PAGES))
def test_snippets_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = page.read_text()
    namespace = {"__name__": "snippet"}
    for block in BLOCK.finditer(text):
        flags, source, checks, shown = block.groups()
        if not here(flags):
            continue
        line = text.count("\n", 0, block.start(2))
        code = compile("\n" * line + source, str(page), "exec")  # tracebacks show the page's lines
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(code, namespace)
        if shown is not None and "no-check" not in checks.split():
            difference = differs(shown, printed.getvalue())
            assert not difference, f"{page.name}, line {line + 1}: {difference}"
    plt.close("all")


def differs(shown, printed):
    """Where the output differs from what the page shows, line breaks aside; None if nowhere."""
    shape = [NUMBER.sub(" # ", text).split() for text in (shown, printed)]
    for a, b in zip(*shape, strict=False):
        if a != b:
            return f"the page shows {a!r} where {b!r} is printed, in:\n{printed}"
    if len(shape[0]) != len(shape[1]):
        return f"the page shows {len(shape[0])} words, {len(shape[1])} are printed:\n{printed}"
    for a, b in zip(NUMBER.findall(shown), NUMBER.findall(printed), strict=True):
        if abs(float(a) - float(b)) > tolerance(a) and max(abs(float(a)), abs(float(b))) > ROUNDING:
            return f"the page shows {a} where {b} is printed, in:\n{printed}"
    return None


def tolerance(number):
    """One per cent, at least two units of the last digit shown."""
    digits, _, exponent = number.lower().partition("e")
    unit = 10.0 ** (int(exponent or 0) - len(digits.partition(".")[2]))
    return max(0.01 * abs(float(number)), 2.5 * unit if "." in digits or exponent else 0.0)


def test_outputs_are_compared():
    assert not differs("energy 1.3e-02 J\nin 46 steps", "energy 1.4e-02 J in 46 steps\n")
    assert not differs("error 3.4e-12", "error 9.1e-11")
    assert not differs("[ 0.   1.5]", "[-0.   1.5]")
    assert "0.25" in differs("at 0.250 m", "at 0.255 m")
    assert "47" in differs("after 46 steps", "after 47 steps")
    assert "words" in differs("x 1.0", "x 1.0 y")
    assert "'holds'" in differs("it fails", "it holds")


@pytest.mark.parametrize("page", run_through(TOLD))
def test_commands_run(page, tmp_path):
    """`vioc` and `python` are those of this environment, on this checkout."""
    scripts = [body for flags, body in SHELL.findall(page.read_text()) if here(flags)]
    if not scripts:
        pytest.skip("needs an extra that is not installed")
    binaries = tmp_path / "bin"
    binaries.mkdir()
    for name, command in {"vioc": "-m vioc", "python": ""}.items():
        (binaries / name).write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {command} "$@"\n')
        (binaries / name).chmod(0o755)
    folder = tmp_path / "work"
    folder.mkdir()
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = os.environ | {
        "PATH": f"{binaries}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join(paths),
        "MPLBACKEND": "Agg",
        "VIOC_CACHE": str(tmp_path / "cache"),
    }
    for script in scripts:
        ran = subprocess.run(
            ["sh", "-eu", "-c", script],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=600,
        )
        assert ran.returncode == 0, f"{script}\n{ran.stdout[-2000:]}\n{ran.stderr[-2000:]}"


def here(flags):
    """Whether a block with these flags runs here; ``needs=PACKAGE`` is for an extra that may be missing."""
    needed = [flag[len("needs=") :] for flag in flags.split() if flag.startswith("needs=")]
    return "no-run" not in flags.split() and all(map(importlib.util.find_spec, needed))


@pytest.mark.parametrize("page", LINKED, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    text = CODE.sub("", page.read_text())
    missing = []
    for target, anchor in LINK.findall(text):
        path = (page.parent / target).resolve()
        if "generated" in path.parts:  # made with the site, which checks them
            continue
        if not path.exists() or (anchor and path.suffix == ".md" and anchor[1:] not in anchors(path)):
            missing.append(target + anchor)
    assert not missing


def anchors(page):
    """Those that a page's headings get on the site and in repository browsers."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    heads = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", h.lower()).strip().replace(" ", "-") for h in heads}


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_commands_exist(page, capsys):
    """Those that are only mentioned, too: the command, and every option."""
    text = page.read_text()
    for command, rest in COMMAND.findall(
        "\n".join([text, *(re.sub("^", "    ", b, flags=re.MULTILINE) for _, b in SHELL.findall(text))])
    ):
        if command == "COMMAND":
            continue
        assert command in COMMANDS, f"vioc {command}"
        for inner in (["list"], ["run"], ["publish"], ["page"]) if command == "study" else ([],):
            with pytest.raises(SystemExit):
                main([command, *inner, "--help"])
        known = capsys.readouterr().out
        unknown = [
            word for word in rest.partition("#")[0].split() if word.startswith("--") and word not in known
        ]
        assert not unknown, f"vioc {command} {rest}"


def test_every_page_is_in_the_index():
    index = (DOCS / "README.md").read_text()
    pages = {str(p.relative_to(DOCS)) for p in PAGES[1:]} - {"README.md", "index.md"}
    linked = {target for target, _ in LINK.findall(index)}
    inside = {p for p in pages if p.startswith("api/") and p != "api/index.md"}
    missing = sorted(pages - inside - linked)
    assert not missing, f"not in docs/README.md: {missing}"


def test_the_site_has_the_kinds_of_pages_of_the_index():
    index, site = (DOCS / "README.md").read_text(), (DOCS / "index.md").read_text()
    kinds = ["Tutorials", "How-to", "Reference", "Explanation"]
    assert re.findall(r"^## (.+)$", index, re.MULTILINE) == kinds
    assert re.findall(r"^:caption: (.+)$", site, re.MULTILINE) == kinds


def test_documents_stay_short():
    words = {"docs": sum(len(p.read_text().split()) for p in PAGES[1:])}
    words["README.md"] = len(PAGES[0].read_text().split())
    lines = {name: (ROOT / name).read_text().count("\n") for name in MOST_LINES}
    rows = {name: table_rows((ROOT / name).read_text()) for name in MOST_ROWS}
    for measured, most in ((words, MOST_WORDS), (lines, MOST_LINES), (rows, MOST_ROWS)):
        assert not {name: n for name, n in measured.items() if n > most[name]}


def table_rows(text):
    """The number of rows of all tables, without their heads."""
    bars = re.findall(r"^\|.*\|$", text, re.MULTILINE)
    return len(bars) - 2 * sum(set(row) <= set("|- ") for row in bars)


MODULES = (
    *("vioc", "vioc.cables", "vioc.control", "vioc.viz", "vioc.models"),
    *(f"vioc.control.{part}" for part in ("analysis", "dmoc", "feedback")),
    *("vioc.identification", "vioc.interop", "vioc.maps", "vioc.runs", "vioc.sweeps", "vioc.target"),
    *("vioc.compile", "vioc.dynamics.integrators.maximal"),
)


@pytest.mark.parametrize("module", MODULES)
def test_every_public_name_is_in_the_reference(module, monkeypatch):
    monkeypatch.syspath_prepend(str(DOCS / "_ext"))
    documented = [
        getattr(importlib.import_module(m), name)
        for m, names in importlib.import_module("public_names").listed(DOCS / "api").items()
        if not m.startswith("vioc.learning.")  # these need packages
        for name in names
    ]
    public = importlib.import_module(module)
    missing = []
    for name in public.__all__:
        thing = getattr(public, name)
        if type(thing) is not type(importlib) and not any(thing is other for other in documented):
            missing.append(name)
    assert not missing, f"docs/api/ has no entry for {module}: {', '.join(missing)}"


def test_the_reference_has_what_learning_has(monkeypatch):
    monkeypatch.syspath_prepend(str(DOCS / "_ext"))
    listed = importlib.import_module("public_names").listed(DOCS / "api")
    for module in ("jax", "torch", "gymnasium"):
        text = (ROOT / "vioc" / "learning" / f"{module}.py").read_text("utf-8")
        public = set(re.findall(r"^(?:def|class) ([A-Za-z]\w*)", text, re.MULTILINE))
        assert listed[f"vioc.learning.{module}"] == public


def test_every_page_of_the_reference_says_what_else_there_is():
    pages = sorted((DOCS / "api").glob("*.md"))
    assert len(pages) > 10
    assert [p.name for p in pages if "**See also**" not in p.read_text("utf-8")] == ["index.md"]


def test_the_reference_knows_the_errors(monkeypatch):
    monkeypatch.syspath_prepend(str(DOCS / "_ext"))
    import vioc.errors

    listed = importlib.import_module("public_names").listed(DOCS / "api")["vioc.errors"]
    errors = {
        n for n, v in vars(vioc.errors).items() if isinstance(v, type) and v.__module__ == "vioc.errors"
    }
    assert errors <= listed


def test_promises_name_tests_that_exist():
    text = (DOCS / "promises.md").read_text()
    sources = "\n".join(p.read_text() for p in (ROOT / "tests").glob("**/*.py"))
    promised = re.findall(r"`(test_\w+)`", text)
    assert len(promised) > 10
    assert not [name for name in promised if f"def {name}(" not in sources]


def test_what_is_plain_in_a_docstring_stays_plain(monkeypatch):
    monkeypatch.syspath_prepend(str(DOCS / "_ext"))
    escaped = importlib.import_module("plain_docstrings").escaped
    assert escaped("|x| <= 2*y, x_ and `a|b` ``c*d``") == r"\|x\| <= 2\*y, x\_ and `a|b` ``c*d``"
    assert escaped("**kwargs : float") == "**kwargs : float"
