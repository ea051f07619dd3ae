"""Reader and writer of model text, a language of s-expressions that describes mechanisms.

The language follows paper [T], Table II. `docs/model_text.md` describes it. Components (gravity, springs,
constraints, ...) are read and written by their fields alone, so that a new `Component` with a `keyword` has a
text form.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable
from pathlib import Path

from vioc.dynamics.description.component import Component, component_types
from vioc.dynamics.description.frame import Frame, Pose, Twist
from vioc.dynamics.description.inertia import Mass
from vioc.dynamics.description.numbers import Number, Parameter, Variable
from vioc.dynamics.description.system import System
from vioc.dynamics.formats.sexpr_reader import Reader, component_form, field_kind
from vioc.dynamics.formats.sexpr_syntax import Source, quoted
from vioc.dynamics.terms.contact_shapes import Shape
from vioc.errors import ModelError

__all__ = ["component_form", "read", "read_text", "write", "write_text"]


def read_text(text: str, source: str = "<text>") -> System:
    """Return the system that a text of s-expressions describes.

    Parameters
    ----------
    text : str
    source : str
        Name of the text in error messages.

    Raises
    ------
    ReadError
        If the text is not a model, with the line and column of the error.
    """
    return Reader(text, source).read()


def read(path: str | os.PathLike) -> System:
    """Read a system from a file of s-expressions (UTF-8).

    Raises as `read_text` does, and `OSError`.
    """
    data = Path(path).read_bytes()
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        valid = data[: error.start].decode("utf-8", errors="replace")
        Source(valid, str(path)).fail(len(valid), "the file is not UTF-8 text")
    return read_text(text, str(path))


def write_text(system: System) -> str:
    """Return the description of a system as s-expressions, from which `read_text` makes an equal system.

    Raises
    ------
    ModelError
        If a component has no text form: no keyword, or a field of an unknown kind.
    """
    lines = [(0, "(SYSTEM"), (1, f"(NAME {quoted(system.name)}")]
    depths: list[int] = []
    for node in system.nodes:
        depths.append(depths[node.parent] + 1 if node.parent >= 0 else 1)
        lines.append((depths[-1], _frame(node.frame)))
    lines += [(1, _component(component)) for component in system.components]
    # Each line closes its own bracket and those of its ancestors that end there.
    following = [depth for depth, _ in lines[1:]] + [0]
    return "".join(
        f"{'  ' * depth}{body}{')' * (depth - after + 1)}\n"
        for (depth, body), after in zip(lines, following, strict=True)
    )


def write(system: System, path: str | os.PathLike) -> None:
    """Write a system to a file of s-expressions, which is replaced as a whole or not at all."""
    data = write_text(system).encode("utf-8")
    target = Path(path)
    temporary = target.with_name(f".{uuid.uuid4().hex}.tmp")
    try:
        temporary.write_bytes(data)
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)


def _value(value: Number | Variable) -> str:
    if isinstance(value, Variable):
        return f"(K {quoted(value.name)})" if value.kinematic else quoted(value.name)
    if not isinstance(value, Parameter):
        return repr(value)
    factor = f" {value.factor!r}" if value.factor != 1.0 else ""
    return f"(P {quoted(value.name)} {value.value!r}{factor})"


def _values(values: Iterable[Number]) -> str:
    return " ".join(map(_value, values))


def _frame(frame: Frame) -> str:
    """Return the s-expression of a frame without its children and without the closing bracket."""
    value = frame.transform.value
    if isinstance(value, Pose):
        parameter = f"(({_values(value.position)}) ({_values(value.rotation)}))"
    elif isinstance(value, Twist):
        vectors = f"({_values(value.linear)}) ({_values(value.angular)})"
        parameter = f"({_value(value.variable)} {vectors})"
    else:
        parameter = _value(value)
    parts = [frame.transform.kind, parameter]
    if frame.name is not None:
        parts.append(f"(NAME {quoted(frame.name)})")
    if frame.mass is not None:
        parts.append(_mass(frame.mass))
    return "(" + " ".join(parts)


def _mass(mass: Mass) -> str:
    inertia = mass.inertia  # a Parameter differs from 0 whatever its default
    count = 6 if any(v != 0 for v in inertia[3:]) else 3 if any(v != 0 for v in inertia) else 0
    com = f" (COM {_values(mass.com)})" if any(v != 0 for v in mass.com) else ""
    return f"(MASS {_values((mass.mass, *inertia[:count]))}{com})"


def _shape(component: Component, shape: Shape) -> str:
    if not shape.keyword:
        raise ModelError(f"{component.label()}: {type(shape).__name__} has no text form")
    return f"({shape.keyword} {_values(shape.numbers())})"


def _component(component: Component) -> str:
    """Return the s-expression of a component without its closing bracket."""
    cls = type(component)
    if component_types().get(cls.keyword.upper()) is not cls:
        raise ModelError(f"{component.label()}: {cls.__name__} has no keyword of its own, so no text form")
    parts = [cls.keyword.upper()]
    for f in component.given():
        kind, value = field_kind(cls, f), getattr(component, f.name)
        if kind in ("direction", "vector", "numbers"):
            parts.append(f"({_values(value)})")
        elif kind == "variables":
            parts.append(f"({' '.join(map(quoted, value))})")
        elif kind == "shape":
            parts.append(_shape(component, value))
        else:
            parts.append(_value(value) if kind in ("number", "length") else quoted(value))
    if component.name is not None:
        parts.append(f"(NAME {quoted(component.name)})")
    return "(" + " ".join(parts)
