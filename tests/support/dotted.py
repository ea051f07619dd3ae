"""Dotted names of Python, as documents quote them."""

import importlib


def exists(name: str) -> bool:
    """Return whether a dotted name is a module or an attribute of one that can be imported here."""
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        try:
            held = importlib.import_module(".".join(parts[:end]))
        except ImportError:
            continue
        for part in parts[end:]:
            if not hasattr(held, part):
                return False
            held = getattr(held, part)
        return True
    return False
