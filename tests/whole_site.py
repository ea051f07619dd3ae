"""Check a built documentation site: `whole_site.py out/docs`, the last step of `make docs`.

The site's search must find every page by the words of its title, and every study and example must have a
picture of its own.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]


def read_index(site: Path) -> dict[str, Any]:
    """The index that the search in the browser reads."""
    text = (site / "searchindex.js").read_text()
    return json.loads(text[text.index("(") + 1 : text.rindex(")")])


def not_found(index: dict[str, Any], stem: Callable[[str], str], stopwords: frozenset[str]) -> list[str]:
    """Pages that a search for all words of their title does not find, as PAGE: WORDS."""
    missing = []
    for number, (page, title) in enumerate(zip(index["docnames"], index["titles"], strict=True)):
        words = re.findall(r"\w+", re.sub(r"<[^>]*>", "", title).lower())
        words = [w for w in words if w not in stopwords and not w.isdigit()]  # which the search leaves out
        lost = [w for w in words if number not in _pages(index, stem(w))]
        if lost or not words:
            missing.append(f"{page}: {', '.join(lost) or 'a title without a word'}")
    return missing


def _pages(index: dict[str, Any], term: str) -> set[int]:
    found: set[int] = set()
    for part in ("terms", "titleterms"):
        numbers = index[part].get(term, ())
        found |= {numbers} if isinstance(numbers, int) else set(numbers)
    return found


def without_picture(site: Path, examples: list[str]) -> list[str]:
    """Pages of studies and examples without a picture of their own."""
    generated = site / "generated"
    pages = {p: p.stem for p in sorted((generated / "studies").glob("*.html")) if p.stem != "index"}
    pages |= {generated / "gallery" / f"{name}.html": f"sphx_glr_{name}_" for name in examples}
    if not any(page.parent.name == "studies" for page in pages):
        raise FileNotFoundError(f"{generated / 'studies'}: expected pages of studies")
    return [
        str(page.relative_to(site))
        for page, picture in pages.items()
        if not re.search(rf'<img[^>]*src="[^"]*_images/{picture}[^"]*\.(png|gif|svg)"', page.read_text())
    ]


def main(site: Path) -> None:
    from sphinx.search.en import SearchEnglish

    language, index = SearchEnglish({}), read_index(site)
    examples = sorted(path.stem for path in (ROOT / "examples").glob("plot_*.py"))
    wrong = [f"not found by the words of its title: {line}" for line in not_found(
        index, language.stem, frozenset(language.stopwords))]  # fmt: skip
    wrong += [f"without a picture: {page}" for page in without_picture(site, examples)]
    if wrong:
        sys.exit("\n".join(wrong))
    print(f"{len(index['docnames'])} pages: each found by its title, each study and example with a picture")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
