"""The page of all studies, from the JSON files that their runs leave: paper, claim, what was measured."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from studies.harness import Bound, Study, figure_text, tally

PAPERS = {
    "T": "Tree-structured variational integrators",
    "L": "Linear-time variational integrator",
    "M": "Maximal coordinates",
    "C": "Constrained cables",
    "S": "Structured linearization",
    "": "Beyond the papers",
}
HEAD = """\
# Studies

The figures and tables of the papers, and of other published problems: what was claimed, and what vioc
measures. They are a distribution of their own beside vioc (`pip install ./studies` in a checkout).
`vioc study list` names them, `vioc study run NAME` runs one and leaves its picture, its numbers and a
verdict; `vioc study page` writes this page from the numbers.

*holds*, *fails*: the measured figure keeps its bound, or does not. *reported*: there is no bound, the figure
is set beside the published one. Times are of the machine that ran the study.
"""


def page(studies: Iterable[Study], folder: Path) -> str:
    """The page as Markdown; a study without a JSON file in `folder` is listed as not run."""
    groups: dict[str, list[Study]] = {tag: [] for tag in PAPERS}
    for study in studies:
        groups[study.papers[0] if study.papers else ""].append(study)
    lines = [HEAD, *_summary(groups, folder)]
    for tag, members in groups.items():
        if members:
            lines += [f"## {_heading(tag)}", ""]
        for study in members:
            lines += [*_section(study, read(study, folder)), ""]
    return "\n".join(lines).rstrip() + "\n"


def read(study: Study, folder: Path) -> dict[str, Any] | None:
    """What the last run of a study left in `folder`, or None."""
    path = folder / f"{study.name}.json"
    return json.loads(path.read_text()) if path.exists() else None


def _summary(groups: Mapping[str, list[Study]], folder: Path) -> Iterator[str]:
    yield "| study | paper | form | claims | verdict |\n| --- | --- | --- | --- | --- |"
    for members in groups.values():
        for study in members:
            stored = read(study, folder)
            tags = " ".join(f"[{tag}]" for tag in study.papers) or "-"
            if stored is None:
                state = f"not run | {len(study.claims)} | -"
            else:
                counts = tally(claim["verdict"] for claim in stored["claims"])
                state = f"{stored['form']} | {len(stored['claims'])} | {counts}"
            yield f"| [{study.name}](#{_anchor(study)}) | {tags} | {state} |"
    yield ""


def _section(study: Study, stored: Mapping[str, Any] | None) -> Iterator[str]:
    yield f"### {study.name}\n"
    if stored is None:
        yield f"{_sentence(study.title)} Not run."
        return
    form = "Quick form: smaller than the published problem" if stored["form"] == "quick" else "Full form"
    yield f"{_sentence(stored['title'])} {form}, {stored['seconds']:.0f} s, vioc {stored['vioc']}.\n"
    yield "| claim | published | measured | bound | verdict | source |\n| --- | --- | --- | --- | --- | --- |"
    for claim in stored["claims"]:
        unit = f" [{claim['unit']}]" if claim["unit"] else ""
        bound = str(Bound(**claim["bound"])) if claim["bound"] else "-"
        figures = figure_text(claim["published"]), figure_text(claim["measured"]), bound
        cells = (claim["claim"] + unit, *figures, claim["verdict"], claim["source"] or "-")
        yield "| " + " | ".join(_cell(text) for text in cells) + " |"


def _heading(tag: str) -> str:
    return f"{PAPERS[tag]} [{tag}]" if tag else PAPERS[tag]


def _anchor(study: Study) -> str:
    return study.name.lower()


def _sentence(title: str) -> str:
    return title[0].upper() + title[1:] + "."


def _cell(text: str) -> str:
    """Text that stands in a table: no bar that would end the cell, no `<` that would begin a tag."""
    return text.replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")
