"""The directive ``public-names``: reference entries of a module's names, one a line.

A table with the first line of every docstring comes first, then the entries themselves::

    ```{public-names} vioc.control
    optimize
    Result
    ```
"""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path
from typing import Any

BLOCK = re.compile(r"^```\{public-names\} (\S+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def listed(folder: Path) -> dict[str, set[str]]:
    """The names in the blocks of a folder's pages, by module."""
    found: dict[str, set[str]] = {}
    for page in sorted(folder.glob("*.md")):
        for module, names in BLOCK.findall(page.read_text()):
            found.setdefault(module, set()).update(names.split())
    return found


def entry(module: str, name: str) -> str:
    """The autodoc directive of one name, as reStructuredText."""
    thing: Any = getattr(importlib.import_module(module), name)
    if inspect.ismodule(thing):
        return ""  # has a section of its own
    if inspect.isclass(thing):
        return f".. autoclass:: {module}.{name}\n   :members:\n   :show-inheritance:\n"
    kind = "autofunction" if callable(thing) else "autodata"
    return f".. {kind}:: {module}.{name}\n"


def setup(app: Any) -> dict[str, bool]:
    from docutils.statemachine import StringList
    from sphinx.ext.autodoc.mock import mock
    from sphinx.util.docutils import SphinxDirective

    class PublicNames(SphinxDirective):
        has_content = True
        required_arguments = 1

        def run(self) -> list[Any]:
            module, names = self.arguments[0], " ".join(self.content).split()
            table = [".. autosummary::", "   :nosignatures:", "", *(f"   ~{module}.{n}" for n in names), ""]
            with mock(self.config.autodoc_mock_imports):
                text = "\n".join(table + [entry(module, name) for name in names])
            return self.parse_text_as_rst(text)

        def parse_text_as_rst(self, text: str) -> list[Any]:
            # MyST's own parser would read the text as Markdown; its eval-rst knows the way
            from docutils import nodes

            block = "```{eval-rst}\n" + text + "\n```\n"
            container = nodes.Element()
            lines = StringList(block.splitlines(), source=self.get_source_info()[0])
            self.state.nested_parse(lines, self.content_offset, container)
            return container.children

    app.add_directive("public-names", PublicNames)
    return {"parallel_read_safe": True}
