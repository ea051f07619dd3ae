"""Choosing, listing and running studies, for ``vioc study`` and ``python -m studies``."""

from __future__ import annotations

import contextlib
import io
import multiprocessing
import traceback
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import NamedTuple

from studies.harness import Study, studies
from vioc.checks import near_misses
from vioc.compile.cores import one_thread_each
from vioc.progress import Progress, paused


def choose(names: Sequence[str] = ()) -> list[Study]:
    """The studies of these names in their order, or all; raise ValueError for an unknown name."""
    known = {study.name: study for study in studies()}
    for name in names:
        if name not in known:
            raise ValueError(f"unknown study {name!r}; {near_misses(name, known)}")
    return [known[name] for name in dict.fromkeys(names)] if names else list(known.values())


def listing(chosen: Iterable[Study]) -> str:
    """A line for each study: its name, the papers that it cites, and its title."""
    rows = [(study.name, "".join(f"[{tag}]" for tag in study.papers) or "-", study.title) for study in chosen]
    widths = [max(len(row[i]) for row in rows) for i in range(2)]
    return "\n".join(f"{name:{widths[0]}}  {tags:{widths[1]}}  {title}" for name, tags, title in rows)


def run(chosen: Sequence[Study], *, quick: bool = False, out: str | Path, jobs: int = 1) -> int:
    """Run studies, `jobs` at a time; the exit code is 0 if every claim holds, else 1.

    A study that raises an error is reported with its traceback, and the others go on. A study that fails
    while others run is run again alone, because its claims may concern times.
    """
    skipped: dict[str, list[str]] = {}
    with Progress("studies", len(chosen)) as progress:

        def all_hold(study: Study, verdict: Verdict) -> bool:
            with paused():
                print(verdict.text, flush=True)
            for install in verdict.skipped:
                skipped.setdefault(install, []).append(study.name)
            return verdict.holds

        def alone(study: Study) -> bool:
            holds = all_hold(study, _run(study, quick, out))
            progress.advance()
            return holds

        again = list(chosen)
        if jobs > 1:
            again = []
            spawn = multiprocessing.get_context("spawn")
            with one_thread_each(), ProcessPoolExecutor(jobs, spawn) as pool:
                found = {pool.submit(_run_quietly, study.name, quick, out): study for study in chosen}
                for done in as_completed(found):
                    study, verdict = found[done], done.result()
                    if verdict.holds:
                        all_hold(study, verdict)
                        progress.advance()
                    else:
                        again.append(study)
        failed = [study.name for study in again if not alone(study)]
    verdict = f"failed: {', '.join(failed)}" if failed else "every claim holds"
    print("; ".join([verdict, *(f"skipped: {how} ({', '.join(who)})" for how, who in skipped.items())]))
    return 1 if failed else 0


class Verdict(NamedTuple):
    """The outcome of a study: whether its claims hold, what it skipped, what it printed."""

    holds: bool
    skipped: tuple[str, ...] = ()
    text: str = ""


def _run(study: Study, quick: bool, out: str | Path) -> Verdict:
    try:
        report = study.execute(quick=quick, out=out)
    except Exception:
        with paused():
            traceback.print_exc()
        return Verdict(False)
    return Verdict(report.all_hold, tuple(report.skipped))


def _run_quietly(name: str, quick: bool, out: str | Path) -> Verdict:
    """Run a study in a worker process and keep what it prints."""
    with contextlib.redirect_stdout(io.StringIO()) as printed, contextlib.redirect_stderr(io.StringIO()):
        verdict = _run(choose([name])[0], quick, out)
    return verdict._replace(text=printed.getvalue())
