"""Choosing, listing and running studies: what ``vioc study`` and ``python -m studies`` do."""

from __future__ import annotations

import traceback
from collections.abc import Iterable, Sequence
from pathlib import Path

from studies.harness import Study, studies
from vioc.checks import near_misses
from vioc.progress import Progress, paused


def choose(names: Sequence[str] = ()) -> list[Study]:
    """The studies of these names in their order, or all; ValueError for a name that there is not."""
    known = {study.name: study for study in studies()}
    for name in names:
        if name not in known:
            raise ValueError(f"unknown study {name!r}; {near_misses(name, known)}")
    return [known[name] for name in dict.fromkeys(names)] if names else list(known.values())


def listing(chosen: Iterable[Study]) -> str:
    """A line for each study: its name, the papers that it holds figures against, and its title."""
    rows = [(study.name, "".join(f"[{tag}]" for tag in study.papers) or "-", study.title) for study in chosen]
    widths = [max(len(row[i]) for row in rows) for i in range(2)]
    return "\n".join(f"{name:{widths[0]}}  {tags:{widths[1]}}  {title}" for name, tags, title in rows)


def run(chosen: Sequence[Study], *, quick: bool = False, out: str | Path) -> int:
    """Run them one after another; the exit code is 0 if every claim holds, else 1.

    A study that breaks is reported with its traceback, and the others go on.
    """
    failed: list[str] = []
    skipped: dict[str, list[str]] = {}
    with Progress("studies", len(chosen)) as progress:
        for study in chosen:
            try:
                report = study.execute(quick=quick, out=out)
                holds = report.all_hold
                for install in report.skipped:
                    skipped.setdefault(install, []).append(study.name)
            except Exception:
                with paused():
                    traceback.print_exc()
                holds = False
            if not holds:
                failed.append(study.name)
            with paused():
                print(flush=True)
            progress.advance()
    verdict = f"failed: {', '.join(failed)}" if failed else "every claim holds"
    print("; ".join([verdict, *(f"skipped: {how} ({', '.join(who)})" for how, who in skipped.items())]))
    return 1 if failed else 0
