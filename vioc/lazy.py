"""Import of a package's public names at their first use, so that imports are fast."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any


def importer(
    package: str, homes: Mapping[str, str], rooms: Sequence[str], hint: Callable[[str], str] = lambda name: ""
) -> Callable[[str], Any]:
    """Return the function `__getattr__` (PEP 562) of a package, which imports public names on first use.

    Parameters
    ----------
    package : str
    homes : dict
        Public names, separated by spaces, of each module that defines some.
    rooms : sequence of str
        Public subpackages and modules.
    hint : callable
        Text that follows the message about an unknown name.
    """
    home_of = {name: module for module, names in homes.items() for name in names.split()}

    def attribute(name: str) -> Any:
        if name in home_of:
            value = getattr(importlib.import_module(home_of[name]), name)
        elif name in rooms:
            value = importlib.import_module(f"{package}.{name}")
        else:
            raise AttributeError(f"module {package!r} has no attribute {name!r}{hint(name)}")
        setattr(sys.modules[package], name, value)
        return value

    return attribute
