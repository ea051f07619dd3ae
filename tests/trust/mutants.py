"""Mutants: small wrong changes of the code, each of which some test must notice.

    pip install pytest-cov
    python tests/trust/mutants.py coverage                    # once: which test runs which line
    python tests/trust/mutants.py run --minutes 30            # ten in every module that computes
    python tests/trust/mutants.py run --only "*/newton.py" --each 50
    python tests/trust/mutants.py report

Signs, constants, indices, comparisons, terms, statements and orders of arguments are changed, in Python on
the syntax tree and in C on the tokens (`sowing`), one at a time, in a copy of the tree. The tests that run
the changed line follow, the quickest first, until one fails; a test that hangs notices too. What is drawn
depends on the seed and the module alone, so that a run goes on where the last one stopped. Verdicts are kept
in ``mutants.jsonl`` beside this script, by a name of the mutant that outlives edits elsewhere in its module;
those that change nothing that could be noticed are marked there by hand: ``"verdict": "equivalent"`` with a
``"reason"``.
The exit status is 1 if fewer than 95 % of the others are killed.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import re
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from fnmatch import fnmatch
from pathlib import Path
from random import Random

import pytest
from sowing import ROOT, Mutant, modules

HERE = Path(__file__).parent
VERDICTS = HERE / "mutants.jsonl"
OUT = Path("out/mutants")
SHARE = 0.95
ASLEEP = 20  # times its limit of computing, after which what does nothing is ended too
BROKEN = 99  # exit status of a process in which pytest itself broke
OURS = ("vioc", "studies", "conftest")  # packages that are imported from the copy

# -- which tests --------------------------------------------------------------------------------------


class Durations:
    """A plugin: how long each test took, s, of those that passed."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.failed: set[str] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.seconds[report.nodeid] = self.seconds.get(report.nodeid, 0.0) + report.duration
        if not report.passed:
            self.failed.add(report.nodeid)

    def of_sound(self) -> dict[str, float]:
        return {name: round(s, 3) for name, s in self.seconds.items() if name not in self.failed}


def coverage(out: Path, arguments: list[str]) -> int:
    """Run the tests once, noting which of them runs which line; the sources are kept with it."""
    out = out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    settings = out / "settings.ini"  # not coverage.*: pytest-cov sweeps those away
    settings.write_text("[run]\nrelative_files = True\nsource = vioc\n")
    os.environ["COVERAGE_FILE"] = str(out / "coverage")
    (out / "sources.json").write_text(
        json.dumps({f.relative_to(ROOT).as_posix(): f.read_text() for f in (ROOT / "vioc").rglob("*.py")})
    )
    durations = Durations()
    os.chdir(ROOT)
    cover = ["--cov=vioc", f"--cov-config={settings}", "--cov-context=test", "--cov-report="]
    quiet = ["-q", "-W", "ignore::coverage.exceptions.CoverageWarning", "-p", "no:cacheprovider"]
    code = pytest.main([*quiet, *cover, *(arguments or ["-n", "2", "-m", "not peer"])], plugins=[durations])
    (out / "durations.json").write_text(json.dumps(durations.of_sound(), indent=0))
    return int(code)


class Tests:
    """Which tests run a line, the quickest first."""

    def __init__(self, out: Path):
        try:
            from coverage import CoverageData
        except ImportError:
            sys.exit("which test runs which line is noted by coverage: pip install pytest-cov")
        if not (out / "durations.json").exists():
            sys.exit(f"{out}: no coverage there; python {sys.argv[0]} coverage")
        self.seconds: dict[str, float] = json.loads((out / "durations.json").read_text())
        self.sources: dict[str, str] = json.loads((out / "sources.json").read_text())
        self.data = CoverageData(str(out / "coverage"))
        self.data.read()
        self.by_file: dict[str, list[str]] = {}
        for name in self.seconds:
            self.by_file.setdefault(name.split("::")[0], []).append(name)
        self._lines: dict[str, dict[int, set[str]]] = {}

    def contexts(self, path: str) -> dict[int, set[str]]:
        if path not in self._lines:
            self._lines[path] = {k: set(v) for k, v in self.data.contexts_by_lineno(path).items()}
        return self._lines[path]

    def of(self, mutant: Mutant) -> list[str]:
        """Tests that run the line, the quickest first; then those of files that run it while they set up."""
        if mutant.path.endswith(".c"):
            return self._of_library(mutant)
        text = (ROOT / mutant.path).read_text().splitlines()[mutant.line - 1].strip()
        old = self.sources.get(mutant.path, "").splitlines()
        lines = {i + 1 for i, row in enumerate(old) if row.strip() == text}
        if len(lines) > 1:  # the nearest, where several read alike
            lines = {min(lines, key=lambda i: abs(i - mutant.line))}
        found = self._tests(mutant.path, lines)
        # of a line that runs when it is imported, or is new: all that run anything of the module
        return found or self._tests(mutant.path, set(self.contexts(mutant.path)))

    def _tests(self, path: str, lines: set[int]) -> list[str]:
        direct, beside = set(), set()
        for line in lines:
            for context in self.contexts(path).get(line, ()):
                name, _, when = context.partition("|")
                direct.add(name)
                if when == "setup":  # of a fixture that others in the file share
                    beside |= set(self.by_file.get(name.split("::")[0], ()))
        ranked = [sorted(s & self.seconds.keys(), key=self.seconds.get) for s in (direct, beside - direct)]
        return ranked[0] + ranked[1]

    def _of_library(self, mutant: Mutant) -> list[str]:
        """Return the tests for a mutant of C: those of files that speak of compiling and run something of its
        folder, or of the one above, where a folder has C alone.
        """
        folder, names = mutant.path.rpartition("/")[0], set()
        if all(path.rpartition("/")[0] != folder for path in self.sources):
            folder = folder.rpartition("/")[0]
        for path in self.sources:
            if path.rpartition("/")[0] == folder:
                names |= {c.partition("|")[0] for contexts in self.contexts(path).values() for c in contexts}
        names &= self.seconds.keys()
        files = {n.split("::")[0] for n in names}
        speak = {f for f in files if re.search("compile|BACKENDS", _read(ROOT / f))}
        own = Path(folder).name
        names = {n for n in names if n.split("::")[0] in speak}
        return sorted(names, key=lambda n: (own not in n, self.seconds[n]))


def _read(path: Path) -> str:
    return path.read_text() if path.exists() else ""


# -- killing ------------------------------------------------------------------------------------------


class First:
    """A plugin: the first test that fails."""

    def __init__(self, say: Callable[[str], None]):
        self.say = say

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.say(report.nodeid)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.say(f"{report.nodeid} (import)")


class Field:
    """A copy of the tree in which mutants live, one at a time."""

    def __init__(self, folder: Path):
        self.tree = folder / "tree"
        skip = shutil.ignore_patterns(".*", "__pycache__", "out", "build", "*.egg-info", "img")
        shutil.copytree(ROOT, self.tree, ignore=skip)
        self.cache = folder / "cache"
        self.sound: dict[str, bool] = {}

    def run(self, tests: list[str], limit: float) -> str | None:
        """The test that fails among these, or that the time is over, or None."""
        if not tests:
            return None
        shutil.rmtree(self.cache, ignore_errors=True)  # a library of other code would hide the change
        for stale in self.tree.rglob("__pycache__"):
            shutil.rmtree(stale, ignore_errors=True)
        reading, writing = os.pipe()
        pid = os.fork()  # what vioc needs is imported already, vioc is not
        if pid == 0:
            os.setpgid(0, 0)
            os.close(reading)
            silent = os.open(os.devnull, os.O_WRONLY)
            os.dup2(silent, 1)
            os.dup2(silent, 2)
            code = BROKEN
            # of computing, which does not depend on what else the machine does
            resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(limit), math.ceil(limit)))
            try:
                os.chdir(self.tree)
                sys.path[:] = [str(self.tree), *(p for p in sys.path if p not in ("", str(ROOT), str(HERE)))]
                paths = [str(self.tree), *filter(None, [os.environ.get("PYTHONPATH")])]
                os.environ |= {"PYTHONPATH": os.pathsep.join(paths), "VIOC_CACHE": str(self.cache), "CI": "1"}
                sys.dont_write_bytecode = True
                for name in [n for n in sys.modules if n.partition(".")[0] in OURS]:
                    del sys.modules[name]
                say = First(lambda name: os.write(writing, f"{name}\n".encode()))
                options = ["-x", "-q", "-n", "0", "-p", "no:cacheprovider", "--rootdir", "."]
                code = int(pytest.main([*options, *tests], plugins=[say]))
            except BaseException as error:
                os.write(writing, repr(error).encode())
            finally:
                os._exit(code)
        os.close(writing)
        end = time.monotonic() + ASLEEP * limit
        status = None
        while status is None and time.monotonic() < end:
            done, code = os.waitpid(pid, os.WNOHANG)
            status = code if done else None
            if not done:
                time.sleep(0.05)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)  # with what it started
        if status is None:
            os.waitpid(pid, 0)
        with open(reading, "rb") as stream:
            said = stream.read().decode().splitlines()
        code = -signal.SIGXCPU if status is None else os.waitstatus_to_exitcode(status)
        if code in (-signal.SIGXCPU, -signal.SIGKILL):
            return f"no end within {limit:.0f} s"
        if code == BROKEN:
            raise RuntimeError(f"pytest did not run: {said}")
        if said:
            return said[0]
        if code == 4 and any("::" in t for t in tests):  # a test that is there no more
            return self.run(
                sorted({t.split("::")[0] for t in tests if (self.tree / t.split("::")[0]).exists()}), limit
            )
        return None if code in (0, 5) else f"exit {code}"

    def is_sound(self, test: str) -> bool:
        """Whether a test that killed passes where nothing is changed."""
        test = test.removesuffix(" (import)")
        if "::" not in test and not test.endswith(".py"):
            return True
        if test not in self.sound:
            self.sound[test] = self.run([test], 600) is None
        return self.sound[test]

    def kill(self, mutant: Mutant, tests: Tests, budget: float) -> dict[str, object]:
        """The verdict on a mutant, after tests that take about `budget` seconds at most."""
        path = self.tree / mutant.path
        whole = path.read_bytes()
        ranked = tests.of(mutant)
        verdict: dict[str, object] = {"name": mutant.name, "verdict": "survived", "tests": 0}
        left = ranked
        for share in (0.15, 1.0):  # most fall at once
            part, spent = [], 0.0
            for test in left:
                spent += tests.seconds[test] + 0.02
                if part and spent > share * budget:
                    break
                part.append(test)
            left = [t for t in left if t not in set(part)]
            path.write_bytes(whole[: mutant.start] + mutant.new.encode() + whole[mutant.end :])
            try:
                killer = self.run(_by_file(part), 60 + 6 * spent)
            finally:
                path.write_bytes(whole)
            verdict["tests"] = int(str(verdict["tests"])) + len(part)
            if killer and self.is_sound(killer):
                return verdict | {"verdict": "killed", "by": killer}
        return verdict


def _by_file(tests: list[str]) -> list[str]:
    """Tests of a file together, so that what they share is made once; files in the order of their first."""
    order = {name: i for i, name in enumerate(dict.fromkeys(t.split("::")[0] for t in tests))}
    return sorted(tests, key=lambda t: order[t.split("::")[0]])


# -- verdicts -----------------------------------------------------------------------------------------


class Verdicts:
    """What is known of mutants, by name, in a file of lines of JSON."""

    def __init__(self, path: Path = VERDICTS):
        self.path = path
        rows = map(json.loads, path.read_text().splitlines()) if path.exists() else ()
        self.rows: dict[str, dict[str, object]] = {str(r["name"]): r for r in rows}

    def add(self, row: dict[str, object]) -> None:
        self.rows[str(row["name"])] = row
        text = "".join(json.dumps(self.rows[n]) + "\n" for n in sorted(self.rows))
        part = self.path.with_suffix(".part")
        part.write_text(text)
        part.replace(self.path)


def drawn(mutants: list[Mutant], each: int, seed: int, path: str) -> list[Mutant]:
    """As many of a module's mutants, at most two of a line; a larger number goes on from a smaller one."""
    order = Random(f"{seed} {path}").sample(mutants, len(mutants))
    lines: dict[int, int] = {}
    chosen = []
    for m in order:
        lines[m.line] = lines.get(m.line, 0) + 1
        if lines[m.line] <= 2:
            chosen.append(m)
    return chosen[:each]


def plan(given: argparse.Namespace) -> Iterator[Mutant]:
    """The mutants asked for: one of each module, then the next of each."""
    chosen, _ = modules()
    names = [p for p in chosen if not given.only or any(fnmatch(p, pattern) for pattern in given.only)]
    rows = [drawn(chosen[p], given.each, given.seed, p) for p in names]
    for i in range(given.each):
        yield from (row[i] for row in rows if i < len(row))


def run(given: argparse.Namespace) -> int:
    for module in (
        "casadi",
        "scipy.optimize",
        "scipy.sparse.linalg",
        "matplotlib.pyplot",
        "_pytest",
    ):
        with contextlib.suppress(ImportError):
            __import__(module)
    tests, verdicts = Tests(given.out), Verdicts()
    again = {"survived"} if given.again else set()
    end = time.monotonic() + 60 * given.minutes
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        field = Field(Path(folder))
        for mutant in plan(given):
            if time.monotonic() > end:
                break
            known = verdicts.rows.get(mutant.name)
            if known and known["verdict"] not in again:
                continue
            verdict = field.kill(mutant, tests, given.budget)
            verdicts.add(verdict)
            print(f"{verdict['verdict']:<9} {mutant.name}  {verdict.get('by', '')}", flush=True)
    return report(given)


def report(given: argparse.Namespace) -> int:
    """A line for each module and what is alive; 1 if too few are killed."""
    chosen, left = modules()
    rows = Verdicts().rows
    known = {path: [rows[m.name] for m in mutants if m.name in rows] for path, mutants in chosen.items()}
    print(f"{'module':<62}{'sown':>6}{'drawn':>6}{'killed':>7}{'equivalent':>11}{'alive':>6}")
    total = dict.fromkeys(("killed", "equivalent", "survived"), 0)
    for path, found in known.items():
        if not given.only or any(fnmatch(path, pattern) for pattern in given.only):
            counts = {v: sum(r["verdict"] == v for r in found) for v in total}
            total = {v: total[v] + counts[v] for v in total}
            print(
                f"{path:<62}{len(chosen[path]):>6}{len(found):>6}"
                + "{killed:>7}{equivalent:>11}{survived:>6}".format(**counts)
            )
            for r in found:
                if r["verdict"] == "survived":
                    print(f"    alive: {r['name']}")
    for path, why in left.items() if not given.only else ():
        print(f"left out: {path}: {why}")
    judged = total["killed"] + total["survived"]
    share = total["killed"] / judged if judged else 0.0
    counts = "{killed} killed, {equivalent} equivalent, {survived} alive".format(**total)
    print(
        f"{judged + total['equivalent']} mutants: {counts}; {share:.1%} of those that change something killed"
    )
    return int(share < SHARE)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python tests/trust/mutants.py",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("what", choices=("coverage", "run", "report"))
    parser.add_argument("--only", action="append", metavar="GLOB", help="modules, by path")
    parser.add_argument("--each", type=int, default=10, help="mutants of a module")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=1e6, help="stop after so long")
    parser.add_argument("--budget", type=float, default=90.0, help="seconds of tests for a mutant, as noted")
    parser.add_argument("--again", action="store_true", help="try those that survived again")
    parser.add_argument("--out", type=Path, default=OUT, help="folder of the coverage")
    given, more = parser.parse_known_args(arguments)
    if given.what == "coverage":
        return coverage(given.out, more)
    if more:
        parser.error(f"unknown: {' '.join(more)}")
    return run(given) if given.what == "run" else report(given)


if __name__ == "__main__":
    sys.exit(main())
