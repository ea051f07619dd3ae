"""The XML of a URDF file, read by the ROS project's parser (`urdfdom-py`), with what it leaves out.

The parser turns each <link> and <joint> into an object with checked numbers. Elements that vioc has no
use for never reach it: they are taken out first and listed, so a plugin's or a sensor's extension can
neither stop the reading nor vanish unnoticed.
"""

from __future__ import annotations

import contextlib
import io
from dataclasses import dataclass, field
from typing import Any

from vioc.dynamics.formats.robot import Unsupported
from vioc.errors import ReadError

INSTALL = 'reading URDF needs the package urdfdom-py: pip install "vioc[urdf]"'

# What is read, by the element that holds it; everything else is reported.
READ = {
    "robot": {"link", "joint", "material"},
    "link": {"inertial", "visual", "collision"},
    "inertial": {"origin", "mass", "inertia"},
    "visual": {"origin", "geometry", "material"},
    "collision": {"origin", "geometry"},
    "geometry": {"box", "cylinder", "sphere", "mesh"},
    "material": {"color"},
    "joint": {"origin", "parent", "child", "axis", "limit", "dynamics", "mimic"},
}
NESTED = set(READ) - {"robot"}
WORDS = {"name", "type", "link", "joint", "filename"}  # attributes that hold no numbers


@dataclass
class Contents:
    """The links and joints of a file, in its order, as objects of the parser; lines by name."""

    name: str
    source: str
    links: dict[str, Any] = field(default_factory=dict)
    joints: dict[str, Any] = field(default_factory=dict)
    colors: dict[str, tuple[float, ...]] = field(default_factory=dict)
    lines: dict[tuple[str, str], int] = field(default_factory=dict)
    unsupported: list[Unsupported] = field(default_factory=list)

    def fail(self, kind: str, name: str, message: str) -> ReadError:
        """The error that points at a link or a joint."""
        line = self.lines.get((kind, name), 1)
        return ReadError(f"{kind} {name!r}: {message}", line, 1, self.source)

    def leave_out(self, what: str, kind: str, name: str) -> None:
        self.unsupported.append(Unsupported(what, f"{kind} {name!r}", self.lines[kind, name]))


def parse(data: bytes, source: str) -> Contents:
    """Links and joints of a URDF document.

    Raises
    ------
    ReadError
        If the XML is malformed, or an element lacks something or holds something that is no number.
    ImportError
        If the parser is not installed.
    """
    try:
        from lxml import etree
        from urdf_parser_py import urdf
        from urdf_parser_py.xml_reflection.core import Path
    except ImportError as error:
        raise ImportError(INSTALL) from error

    options = dict(remove_comments=True, remove_pis=True, resolve_entities=False, no_network=True)
    try:
        root = etree.fromstring(data, etree.XMLParser(**options))
    except etree.XMLSyntaxError as error:
        reason = " ".join(str(error.msg).split())
        raise ReadError(f"not well-formed XML: {reason}", error.lineno or 1, 1, source) from None
    if root.tag != "robot":
        raise ReadError(f"expected <robot>, got <{root.tag}>", root.sourceline, 1, source)
    _refuse_xacro(root, source)

    contents = Contents(root.get("name") or "robot", source)
    _prune(root, "robot", contents.unsupported)
    readers = {"link": (urdf.Link, contents.links), "joint": (urdf.Joint, contents.joints)}
    for element in root:
        line, name = element.sourceline, element.get("name")
        if element.tag == "material":
            _material(element, contents)
            continue
        cls, target = readers[element.tag]
        if not name:
            raise ReadError(f"<{element.tag}> has no name", line, 1, source)
        if name in target:
            first = contents.lines[element.tag, name]
            message = f"two {element.tag}s are named {name!r}, the other one in line {first}"
            raise ReadError(message, line, 1, source)
        contents.lines[element.tag, name] = line
        with contextlib.redirect_stderr(io.StringIO()) as remarks:  # where the parser reports
            try:
                target[name] = cls.from_xml(element, Path(element.tag))
            except Exception as error:  # its errors have no common class
                reason = " ".join(str(error).split()) or type(error).__name__
                where = _no_number(element) if "could not convert" in reason else ""
                raise contents.fail(element.tag, name, where + reason) from error
        for remark in remarks.getvalue().splitlines():
            contents.leave_out(remark.split(" in ")[0].removeprefix("Unknown "), element.tag, name)
    return contents


def _no_number(element: Any) -> str:
    """The first attribute in an element that should hold numbers and does not, for a message."""
    for part in element.iter():
        for attribute, text in part.attrib.items():
            try:
                _ = attribute in WORDS or [float(v) for v in text.split()]
            except ValueError:
                return f"<{part.tag}> {attribute}={text!r}: "
    return ""


def _refuse_xacro(root: Any, source: str) -> None:
    for element in root.iter():
        values = "".join(element.attrib.values())
        if "xacro" in str(element.tag) or "${" in values or "$(" in values:
            raise ReadError(
                "this is a xacro macro, not URDF; expand it first: xacro FILE > robot.urdf",
                element.sourceline,
                1,
                source,
            )


def _prune(element: Any, where: str, unsupported: list[Unsupported]) -> None:
    """Take out what is not read, and list it."""
    for child in list(element):
        inside = f"{child.tag} {child.get('name')!r}" if element.tag == "robot" else where
        if child.tag not in READ[element.tag]:
            place = "robot" if element.tag == "robot" else where
            unsupported.append(Unsupported(f"<{child.tag}>", place, child.sourceline))
            element.remove(child)
        elif child.tag in NESTED:
            _prune(child, inside, unsupported)
            shape = child.find("geometry")
            if child.tag in ("visual", "collision") and shape is not None and not len(shape):
                element.remove(child)  # its geometry was of an unknown kind


def _material(element: Any, contents: Contents) -> None:
    """A colour that visuals refer to by name."""
    color = element.find("color")
    if color is not None and element.get("name"):
        try:
            contents.colors[element.get("name")] = tuple(map(float, color.get("rgba", "").split()))
        except ValueError as error:
            raise ReadError(f"material: {error}", element.sourceline, 1, contents.source) from None
