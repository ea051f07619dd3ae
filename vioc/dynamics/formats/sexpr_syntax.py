"""Tokens and nested lists of model text, each with its offset in the text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar, NoReturn, TypeGuard

from vioc.errors import ModelError, ReadError

_TOKEN = re.compile(
    r"""(?: \s+ | ;[^\n]* )+
      | " (?P<string> [^"\\]* (?: \\. [^"\\]* )* ) "
      | (?P<symbol> [()] | [^\s()";]+ )""",
    re.DOTALL | re.VERBOSE,
)


@dataclass(frozen=True)
class Atom:
    """Symbol of model text, or string without its quotes; `at` is its offset in the text."""

    text: str
    at: int
    quoted: bool

    head: ClassVar[str] = ""  # same interface as Form
    items: ClassVar[list[Item]] = []


@dataclass(frozen=True)
class Form:
    """Bracketed list of items in model text; `at` is the offset of its opening bracket."""

    items: list[Item]
    at: int

    @property
    def head(self) -> str:
        """First item of the list in upper case, if this item is a symbol; else the empty string."""
        first = self.items[0] if self.items else None
        return first.text.upper() if isinstance(first, Atom) and not first.quoted else ""


Item = Atom | Form


def is_symbol(item: Item) -> TypeGuard[Atom]:
    return isinstance(item, Atom) and not item.quoted


def quoted(text: str) -> str:
    """Return a string in double quotes, with the escapes of model text."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def shown(item: Item) -> str:
    """Return the shortened text of an item, as messages quote it."""
    if isinstance(item, Form):
        first = item.items[0] if item.items else None
        return "()" if first is None else f"({shown(first) if isinstance(first, Atom) else '(...)'} ...)"
    text = item.text if len(item.text) <= 40 else item.text[:37] + "..."
    return visible(quoted(text) if item.quoted else text)


def visible(text: str) -> str:
    """Return a text on one line, with control characters escaped as in Python."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


class Source:
    """Model text and the name of its file, with a method that raises errors with line and column."""

    def __init__(self, text: str, name: str):
        self.text = text
        self.name = name

    def fail(self, offset: int, message: str) -> NoReturn:
        """Raise `ReadError` with the line and column of the `offset`."""
        line, column = self.text.count("\n", 0, offset) + 1, offset - self.text.rfind("\n", 0, offset)
        raise ReadError(message, line, column, self.name) from None

    @contextmanager
    def building(self, offset: int) -> Iterator[None]:
        """Context manager that replaces a `ModelError` by a `ReadError` with the place of `offset`."""
        try:
            yield
        except ReadError:
            raise
        except ModelError as error:
            self.fail(offset, str(error))

    def atoms(self) -> Iterator[Atom]:
        """Yield the tokens of the text in order: strings, symbols and brackets."""
        offset = 0
        while offset < len(self.text):
            match = _TOKEN.match(self.text, offset)
            if match is None:  # only an unclosed quote matches no token
                self.fail(offset, "this string has no closing quote")
            if match["string"] is not None:
                yield Atom(self._unescape(match["string"], offset + 1), offset, quoted=True)
            elif match["symbol"] is not None:
                yield Atom(match["symbol"], offset, quoted=False)
            offset = match.end()

    def _unescape(self, raw: str, offset: int) -> str:
        for escape in re.finditer(r"\\(.)", raw, re.DOTALL):
            if escape[1] not in '"\\':
                hint = 'known are \\" and \\\\'
                self.fail(offset + escape.start(), f"unknown escape {visible(escape[0])} in a string; {hint}")
        return re.sub(r"\\(.)", r"\1", raw, flags=re.DOTALL)

    def form(self, max_depth: int) -> Form:
        """Parse the text, which must be one list whose nesting is at most `max_depth` deep."""
        result: Form | None = None
        still_open: list[Form] = []
        for atom in self.atoms():
            bracket = "" if atom.quoted else atom.text
            if result is not None and not still_open:
                self.fail(atom.at, f"expected the end of the text after the system, got {shown(atom)}")
            elif bracket == "(":
                if len(still_open) == max_depth:
                    self.fail(atom.at, f"brackets are nested deeper than {max_depth} levels")
                form = Form([], atom.at)
                if still_open:
                    still_open[-1].items.append(form)
                result = result or form
                still_open.append(form)
            elif not still_open:
                self.fail(atom.at, f"expected (SYSTEM ...), got {shown(atom)}")
            elif bracket == ")":
                still_open.pop()
            else:
                still_open[-1].items.append(atom)
        if still_open:
            outer = len(still_open) - 1
            more = f", nor are the {outer} around it" if outer else ""
            self.fail(still_open[-1].at, f"this bracket is never closed{more}")
        if result is None:
            self.fail(len(self.text), "expected (SYSTEM ...), got an empty text")
        return result
