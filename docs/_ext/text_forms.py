"""The directive ``text-forms``: a table of the components of one kind, with their forms in model texts.

The argument is a kind of `KINDS`. Each row has the form, the class, and the beginning of its docstring::

    ```{text-forms} potentials
    ```
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any

BLOCK = re.compile(r"^```\{text-forms\} (\S+)\n```$", re.MULTILINE)
KINDS = {
    "potentials": ("Potential", "Kinetic"),
    "forces": ("Force",),
    "constraints": ("Constraint",),
    "velocity-constraints": ("VelocityConstraint",),
    "contacts": ("Inequality",),
}


def kind_of(cls: type) -> str:
    """The kind of a class of components."""
    bases = [base.__name__ for base in cls.__mro__]
    name = next(b for b in bases if any(b in own for own in KINDS.values()))
    return next(kind for kind, own in KINDS.items() if name in own)


def members(kind: str) -> Iterator[type]:
    """The classes of a kind that vioc itself defines."""
    from vioc.dynamics.description.component import component_types

    for cls in component_types().values():
        if cls.__module__.startswith("vioc.") and kind_of(cls) == kind:
            yield cls


def meaning(cls: type) -> str:
    """The first paragraph of a docstring, with the first sentence of the second if that is an equation."""
    paragraphs = [" ".join(p.split()) for p in inspect.cleandoc(cls.__doc__ or "").split("\n\n")]
    text = re.sub(r" \(\[[A-Z]\][^()]*(\([^()]*\))?\)", "", paragraphs[0])
    if re.match(r"\w+(_\w+)? = |\w+ \. \(", paragraphs[1]):
        text += " " + re.split(r"(?<=\.) (?=[A-Z])", paragraphs[1])[0]
    for mark in "\\|*[]<$":
        text = text.replace(mark, "\\" + mark)
    return text


def public(cls: type) -> str:
    """The name under which users import a class."""
    import vioc.cables
    import vioc.components

    modules = (vioc, vioc.components, vioc.cables)
    return next(f"{m.__name__}.{cls.__name__}" for m in modules if hasattr(m, cls.__name__))


def shown(kind: str) -> str:
    """Return the Markdown that the directive shows for an argument."""
    from vioc.components import component_form

    rows = ["| form | class | meaning |", "| --- | --- | --- |"]
    for cls in members(kind):
        form = component_form(cls).replace("|", "\\|")
        rows.append(f"| `{form}` | {{py:obj}}`~{public(cls)}` | {meaning(cls)} |")
    return "\n".join(rows)


def setup(app: Any) -> dict[str, bool]:
    from docutils import nodes
    from docutils.statemachine import StringList
    from sphinx.util.docutils import SphinxDirective

    class TextForms(SphinxDirective):
        required_arguments = 1

        def run(self) -> list[Any]:
            lines = StringList(shown(self.arguments[0]).splitlines(), source=self.get_source_info()[0])
            container = nodes.Element()
            self.state.nested_parse(lines, self.content_offset, container)
            return container.children

    app.add_directive("text-forms", TextForms)
    return {"parallel_read_safe": True}
