"""The directive ``benchmarks``: published figures of the benchmarks, from studies/benchmarks/results.json.

The argument is a group, of which the directive shows the table, or ``summary`` for the machine, the versions
and the number of losses::

    ```{benchmarks} steps
    ```
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```\{benchmarks\} (\S+)\n```$", re.MULTILINE)


def shown(name: str) -> str:
    """Return the Markdown that the directive shows for an argument."""
    sys.path.insert(0, str(ROOT))
    try:
        from studies.benchmarks import page
    finally:
        sys.path.remove(str(ROOT))
    return page.summary() if name == "summary" else page.section(name)


def setup(app: Any) -> dict[str, bool]:
    from docutils import nodes
    from docutils.statemachine import StringList
    from sphinx.util.docutils import SphinxDirective

    class Benchmarks(SphinxDirective):
        required_arguments = 1

        def run(self) -> list[Any]:
            self.env.note_dependency(str(ROOT / "studies" / "benchmarks" / "results.json"))
            lines = StringList(shown(self.arguments[0]).splitlines(), source=self.get_source_info()[0])
            container = nodes.Element()
            self.state.nested_parse(lines, self.content_offset, container)
            return container.children

    app.add_directive("benchmarks", Benchmarks)
    return {"parallel_read_safe": True}
