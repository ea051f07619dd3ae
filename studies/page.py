"""The page of all studies and the results that it shows: paper, claim, published and measured figures.

A published result is a file ``results/NAME.json`` beside the studies. It holds what their code does not:
form, seconds and version of the run, the measured figure of each claim, and claims that were skipped.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from studies.harness import SKIP, Bound, Report, Study, figure_text, tally

RESULTS = Path(__file__).parent / "results"
PAPERS = {
    "T": "Tree-structured variational integrators",
    "L": "Linear-time variational integrator",
    "M": "Maximal coordinates",
    "C": "Constrained cables",
    "S": "Structured linearization",
    "": "Beyond the papers",
}
HEAD = """\
# Results of the studies

Each study measures the figures of a paper or of another published problem. A table sets the published figure
beside the measured one; `vioc study run NAME` measures it again.

| verdict | meaning |
| --- | --- |
| holds | the measured figure is within its bound |
| fails | the measured figure is outside of its bound |
| reported | the figure has no bound |
| not measured | the claim is newer than the published run |
| skipped | the figure needs a package that was not installed |

Times are of the computer that ran the study.
"""


def page(studies: Iterable[Study], folder: Path = RESULTS) -> str:
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


def read(study: Study, folder: Path = RESULTS) -> dict[str, Any] | None:
    """The result of a study in `folder`, of a run or published, in the form of a run's file; or None.

    Raises ValueError where a published result has a key that is no claim of the study.
    """
    path = folder / f"{study.name}.json"
    if not path.exists():
        return None
    stored: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return stored if "claims" in stored else _expanded(study, stored, path)


def publish(study: Study, source: Path, target: Path) -> Path:
    """Write the result of a run in `source` as a published result into `target`; returns its file.

    Raises ValueError where there is no run, where the claims of the study have changed since, and where a
    quick form would replace a full one.
    """
    path = source / f"{study.name}.json"
    if not path.exists():
        raise ValueError(
            f"no result of {study.name} in {str(source)!r}; `vioc study run {study.name}` makes it"
        )
    run = json.loads(path.read_text(encoding="utf-8"))
    if [claim["key"] for claim in run["claims"]] != list(study.claims):
        raise ValueError(f"{path}: the claims of {study.name} have changed since this run; run it again")
    old = read(study, target)
    if old and old["form"] == "full" and run["form"] != "full":
        raise ValueError(
            f"{path}: the quick form does not replace a published full form; run it without --quick"
        )
    target.mkdir(exist_ok=True)
    into = target / path.name
    into.write_text(json.dumps(_compact(run), indent=1, allow_nan=False) + "\n", encoding="utf-8")
    return into


def _compact(run: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a run's file that the study's code does not hold."""
    skipped: dict[str, list[str]] = {}
    for claim in run["claims"]:
        if claim["verdict"].startswith(SKIP):
            skipped.setdefault(claim["verdict"].removeprefix(SKIP), []).append(claim["key"])
    result: dict[str, Any] = {key: run[key] for key in ("form", "vioc", "seconds")}
    result["measured"] = {c["key"]: c["measured"] for c in run["claims"] if c["measured"] is not None}
    return result | ({"skipped": skipped} if skipped else {})


def _expanded(study: Study, result: Mapping[str, Any], path: Path) -> dict[str, Any]:
    skipped = {install: tuple(keys) for install, keys in result.get("skipped", {}).items()}
    keys = {*result["measured"], *(key for keys in skipped.values() for key in keys)}
    if unknown := sorted(keys - set(study.claims)):
        raise ValueError(f"{path}: {study.name} has no claim {', '.join(unknown)}")
    report = Report(study, result["form"] == "quick", path.parent, skipped=skipped, seconds=result["seconds"])
    report.measured = {key: float(value) for key, value in result["measured"].items()}
    return report.as_dict() | {"vioc": result["vioc"]}


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
