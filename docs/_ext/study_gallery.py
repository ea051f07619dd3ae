"""Pages of the studies: picture, claims with verdicts, source, and a notebook to download.

Each study's page shows the last run in out/studies (or in ``$VIOC_STUDIES``), ``generated/results.md`` the
published results. A study without a run or a picture causes a warning, with which `make docs` fails.
"""

from __future__ import annotations

import inspect
import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
SIGNS = {"at most": "≤", "at least": "≥", "near": "="}


def results(folder: Path, name: str) -> dict[str, Any]:
    """The JSON file of a study's last run; empty where there is none."""
    try:
        return json.loads((folder / f"{name}.json").read_text())
    except (OSError, ValueError):
        return {}


def number(value: Any) -> str:
    """A figure as it is printed: at most four digits."""
    return "–" if value is None else value if isinstance(value, str) else f"{value:.4g}"


def claims(study: Any, result: dict[str, Any]) -> str:
    """The table of a study's claims, with published and measured figures."""
    measured = {row["key"]: row for row in result.get("claims", ())}
    rows = ["| claim | published | measured | wanted | verdict |", "| --- | --- | --- | --- | --- |"]
    for key, claim in study.claims.items():
        row = measured.get(key, {})
        source = f" ({claim.source})" if claim.source else ""
        unit = f" [{claim.unit}]" if claim.unit else ""
        bound = claim.bound
        wanted = f"{SIGNS[bound.kind]} {bound.value:.4g}" if bound else "–"
        if bound and bound.kind == "near":
            wanted += f" ± {bound.tolerance:.2g}"
        cells = (
            claim.text + unit + source,
            number(claim.published),
            number(row.get("measured")),
            wanted,
            row.get("verdict", "not run"),
        )
        rows.append("| " + " | ".join(_plain(cell) for cell in cells) + " |")
    return "\n".join(rows)


def _plain(text: str) -> str:
    """Escape text for a cell of a Markdown table."""
    for mark in "\\|*_[]<$`":
        text = text.replace(mark, "\\" + mark)
    return text.replace("\n", " ")


def notebook(study: Any, module: Any) -> dict[str, Any]:
    """A notebook that runs the study and shows its pictures."""
    needs = "It needs the studies: `pip install ./studies` in a checkout of vioc."
    intro = f"# {title(study)}\n\n{inspect.cleandoc(module.__doc__ or '')}\n\n{needs}"
    cells = (
        ("markdown", intro),
        ("code", f"from studies.{study.name} import STUDY\n\nreport = STUDY.execute(quick=True)"),
        (
            "code",
            "from IPython.display import Image, display\n\n"
            "for picture in report.pictures:\n    display(Image(report.out / picture))",
        ),
    )
    return {
        "cells": [
            {"cell_type": kind, "id": f"cell-{i}", "metadata": {}, "source": text}
            | ({"execution_count": None, "outputs": []} if kind == "code" else {})
            for i, (kind, text) in enumerate(cells)
        ],
        "metadata": {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }


def title(study: Any) -> str:
    """The study's title as a heading."""
    return study.title[0].upper() + study.title[1:]


def short(study: Any) -> str:
    """The study's name in words."""
    return study.name.replace("_", " ").capitalize()


def page(study: Any, module: Any, result: dict[str, Any]) -> str:
    """The page of one study, in Markdown."""
    parts = [f"# {title(study)}", inspect.cleandoc(module.__doc__ or "")]
    parts += [f"![{_plain(title(study))}]({picture})" for picture in result.get("pictures", ())]
    if result:
        form = "reduced form" if result["form"] == "quick" else "full form"
        parts.append(f"The {form}, in {result['seconds']:.1f} s:")
    parts.append(claims(study, result))
    parts.append(
        f"Run it: `python -m studies.{study.name} [--quick] [--out DIR]`, "
        f"or as a notebook: {{download}}`{study.name}.ipynb`."
    )
    parts.append(f"```{{literalinclude}} ../../../studies/{study.name}.py\n:language: python\n```")
    return "\n\n".join(parts) + "\n"


def verdict(study: Any, result: dict[str, Any]) -> str:
    """The number of each verdict, and the form of the run."""
    if not result:
        return "not run here"
    kinds = [row["verdict"] for row in result["claims"]]
    counts = ", ".join(f"{kinds.count(kind)} {kind}" for kind in dict.fromkeys(kinds))
    return f"{counts} ({result['form']} form)"


def write(target: Path, source: Path) -> list[str]:
    """Write the pages of all studies, and that of their results beside them; returns the studies' names."""
    sys.path.insert(0, str(ROOT))
    try:
        from studies.harness import studies
        from studies.page import page as results_page

        known = list(studies())
    finally:
        sys.path.remove(str(ROOT))
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    tiles, lines = [], []
    for study in known:
        module, result = sys.modules[f"studies.{study.name}"], results(source, study.name)
        for picture in result.get("pictures", ()):
            shutil.copy(source / picture, target)
        (target / f"{study.name}.md").write_text(page(study, module, result))
        (target / f"{study.name}.ipynb").write_text(json.dumps(notebook(study, module), indent=1))
        pictures = result.get("pictures") or ()
        if pictures:
            tiles.append(f"[![{_plain(title(study))}]({pictures[0]})]({study.name}.md)\n{short(study)}")
        lines.append(f"- [{_plain(title(study))}]({study.name}.md): {verdict(study, result)}")
    entries = [f"{short(study)} <{study.name}>" for study in known]
    intro = (
        "# Gallery of studies\n\nThe figures and tables of the papers, computed again. Each page has the "
        "pictures and figures of the last run on this computer, the source, and a notebook to download. "
        "The published runs of all studies are in the [results](../results.md).\n"
    )
    toctree = "\n".join(["```{toctree}", ":hidden:", "", *entries, "```"])
    tiled = '<div class="tiles">\n\n' + "\n\n".join(tiles) + "\n\n</div>\n"
    (target / "index.md").write_text("\n".join([intro, tiled, *lines, "", toctree, ""]))
    (target.parent / "results.md").write_text(results_page(known))
    return [study.name for study in known]


def setup(app: Any) -> dict[str, bool]:
    source = Path(os.environ.get("VIOC_STUDIES", ROOT / "out" / "studies"))

    def build(app: Any) -> None:
        from sphinx.util import logging

        names = write(Path(app.srcdir) / "generated" / "studies", source)
        if bare := [name for name in names if not results(source, name).get("pictures")]:
            logging.getLogger(__name__).warning(f"studies without a picture in {source}: {', '.join(bare)}")

    app.connect("builder-inited", build)
    return {"parallel_read_safe": True}
