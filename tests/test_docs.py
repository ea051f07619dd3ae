"""The snippets of README.md and docs/ run, in order, as a reader would type them."""

import re
from pathlib import Path

import matplotlib.pyplot as plt
import pytest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md"))]
NAMES = [str(p.relative_to(ROOT)) for p in PAGES]
BLOCK = re.compile(r"^```python([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"^```.*?^```$|`[^`\n]*`", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!https?:|mailto:|#)([^)#\s]+)")


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_snippets_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = page.read_text()
    namespace = {"__name__": "snippet"}
    for block in BLOCK.finditer(text):
        if "no-run" in block[1].split():
            continue
        line = text.count("\n", 0, block.start(2))
        code = compile("\n" * line + block[2], str(page), "exec")  # tracebacks show the page's lines
        exec(code, namespace)
    plt.close("all")


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_links_lead_somewhere(page):
    text = CODE.sub("", page.read_text())
    missing = [target for target in LINK.findall(text) if not (page.parent / target).exists()]
    assert not missing
