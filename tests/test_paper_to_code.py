"""docs/from_paper_to_code.md: each name exists, each numbered equation has a line."""

import re
from pathlib import Path

import pytest
from support.dotted import exists

PAGE = (Path(__file__).parents[1] / "docs" / "from_paper_to_code.md").read_text("utf-8")
LAST = {"T": 47, "L": 25, "M": 33, "C": 21, "S": 37}  # numbered equations of each paper


def lines(paper: str) -> list[list[str]]:
    section = re.search(rf"^## \[{paper}\].*?(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)[0]
    rows = [
        [cell.strip() for cell in row.strip("| \n").split("|")] for row in section.splitlines() if "`" in row
    ]
    assert all(len(row) == 3 for row in rows)
    return rows


@pytest.mark.parametrize("paper", LAST)
def test_every_equation_has_a_line_and_every_name_exists(paper):
    numbers = set()
    for equations, _, code in lines(paper):
        for first, last in re.findall(r"\((\d+)[a-d]?\)(?:-\((\d+)[a-d]?\))?", equations):
            numbers |= set(range(int(first), int(last or first) + 1))
        names = re.findall(r"`([\w.]+)`", code)
        assert names and [name for name in names if not exists(name)] == []
    assert numbers == set(range(1, LAST[paper] + 1))


def test_a_wrong_name_is_found():
    assert not exists("vioc.Gravitas") and not exists("vioc.maps.protocol.OneStepMap.stop")
