"""Draw docstrings and sentences of the documents at random, for readers to judge.

    python tests/trust/sample_texts.py --seed 1 --count 50

A reader who knows the field and not the project marks each "understood at once", "had to look up" or "not
understood". Docstrings are shown with the name of their object and their first paragraph.
"""

from __future__ import annotations

import argparse
import ast
import random
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
FENCED = re.compile(r"^(```|\$\$).*?^\1\s*$", re.MULTILINE | re.DOTALL)
EQUATION = re.compile(r"\n\n(?:(?: {4}.*)?\n)* {4}.*(?:\n\n|$)")  # displayed, with the empty lines around it
LISTED = re.compile(r"^\s*(?:[-*]|\d+\.)\s+", re.MULTILINE)
SENTENCE = re.compile(r"(?<=[.!?]|(?<=\[equation)\])\s+(?=[A-Z`*\[])")
FEWEST = 5  # words of a sentence


def docstrings(root: Path) -> list[str]:
    """Return "file, name: first paragraph" of every docstring of vioc/."""
    texts = []
    for path in sorted((root / "vioc").rglob("*.py")):
        place = path.relative_to(root)
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            documented = isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
            if documented and (text := ast.get_docstring(node)):
                first = " ".join(text.split("\n\n")[0].split())
                texts.append(f"{place}, {getattr(node, 'name', 'module')}: {first}")
    return texts


def sentences(root: Path) -> list[str]:
    """Return "page: sentence" of the running text of all documents, without code and tables.

    A displayed equation within a sentence is replaced by "[equation]".
    """
    texts = []
    for path in sorted((root / "docs").rglob("*.md")):
        if "generated" in path.parts:
            continue
        text = EQUATION.sub(" [equation] ", FENCED.sub("\n\n", path.read_text("utf-8")))
        for block in LISTED.sub("\n\n", text).split("\n\n"):
            if block.lstrip().startswith(("#", "|", "<", "!", "{")):
                continue
            for sentence in SENTENCE.split(" ".join(block.split())):
                if len(sentence.split()) >= FEWEST:
                    texts.append(f"{path.relative_to(root)}: {sentence}")
    return texts


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=50)
    parser.add_argument("--root", type=Path, default=ROOT)
    args = parser.parse_args()
    rng = random.Random(args.seed)
    for texts in (docstrings(args.root), sentences(args.root)):
        for text in rng.sample(texts, args.count):
            print(text)


if __name__ == "__main__":
    main()
