"""Parser of URDF files, which uses the package `urdfdom-py` and accepts more files than this package.

The parser turns each <link> and <joint> into an object with checked numbers. Elements that vioc does not use
are removed before the parser runs, and listed, so that an extension of a plugin or sensor neither stops the
reading nor disappears unnoticed. Shapes that cannot be read are removed and listed as well, because they do
not change the dynamics.
"""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from vioc.checks import is_number
from vioc.dynamics.formats.robot import Unsupported
from vioc.errors import ReadError

INSTALL = 'reading URDF needs the package urdfdom-py: pip install "vioc[urdf]"'

# Elements that are read, by the element that contains them; all others are reported.
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
SHAPES = "visual", "collision"
VERSIONS = "1", "1.0", "1.1", "1.2"
# Number of values of attributes, and attributes and elements that an element needs.
COUNTS = {
    **{"xyz": 3, "rpy": 3, "quat_xyzw": 4, "size": 3, "scale": 3, "rgba": 4},
    **dict.fromkeys(("value", "radius", "length", "damping", "friction", "multiplier", "offset"), 1),
    **dict.fromkeys(("lower", "upper", "effort", "velocity"), 1),
    **dict.fromkeys(("ixx", "iyy", "izz", "ixy", "ixz", "iyz"), 1),
}
NEEDS = {
    "mass": ("value",),
    "inertia": ("ixx", "iyy", "izz"),
    "axis": ("xyz",),
    "parent": ("link",),
    "child": ("link",),
    "mimic": ("joint",),
    "limit": ("effort", "velocity"),
    "box": ("size",),
    "sphere": ("radius",),
    "cylinder": ("radius", "length"),
    "mesh": ("filename",),
    "color": ("rgba",),
}
PARTS = {
    "joint": ("parent", "child"),
    "inertial": ("mass",),
    "visual": ("geometry",),
    "collision": ("geometry",),
}
TYPES = "revolute", "continuous", "prismatic", "fixed", "floating", "planar"
SOLIDS = "box", "sphere", "cylinder"
_DECLARATION = re.compile(rb"""(\s*)(<\?xml\s+version\s*=\s*)(["'])(.*?)\3(.*?\?>)""", re.DOTALL)


@dataclass
class Contents:
    """Links and joints of a URDF file as the parser's objects, with their line numbers."""

    name: str
    source: str
    links: dict[str, Any] = field(default_factory=dict)
    joints: dict[str, Any] = field(default_factory=dict)
    colors: dict[str, tuple[float, ...]] = field(default_factory=dict)
    lines: dict[tuple[str, str], int] = field(default_factory=dict)
    unsupported: list[Unsupported] = field(default_factory=list)

    def fail(self, kind: str, name: str, message: str) -> ReadError:
        """Return a `ReadError` about a link or joint, with its line in the file."""
        line = self.lines.get((kind, name), 1)
        return ReadError(f"{kind} {name!r}: {message}", line, 1, self.source)

    def leave_out(self, what: str, kind: str, name: str) -> None:
        self.unsupported.append(Unsupported(what, f"{kind} {name!r}", self.lines[kind, name]))


def parse(data: bytes, source: str) -> Contents:
    """Parse the links and joints of a URDF document.

    Raises
    ------
    ReadError
        If the XML is malformed, or an element is incomplete or has an invalid number.
    ImportError
        If the parser is not installed.
    """
    try:
        import lxml.etree
        from urdf_parser_py import urdf
        from urdf_parser_py.xml_reflection.core import Path
    except ImportError as error:
        raise ImportError(INSTALL) from error

    contents = Contents("robot", source)
    root = _root(lxml.etree, data, contents)
    contents.name = root.get("name") or "robot"
    _prune(root, "robot", contents.unsupported)
    readers = {"link": (urdf.Link, contents.links), "joint": (urdf.Joint, contents.joints)}
    for element in root:
        if element.tag == "material":
            _material(element, contents)
            continue
        cls, target = readers[element.tag]
        name = _named(element, target, contents)
        _relax(element, name, contents)
        if wrong := next(_wrong(element), None):
            raise contents.fail(element.tag, name, wrong)
        turns = {e: e.attrib.pop("quat_xyzw") for e in element.iter("origin") if "quat_xyzw" in e.attrib}
        if turns and (version := _version(root)) in VERSIONS[:2]:
            contents.leave_out(
                f"quat_xyzw in a file of version {version} (read as in 1.2)", element.tag, name
            )
        with contextlib.redirect_stderr(io.StringIO()) as remarks:  # the parser reports to stderr
            try:
                target[name] = cls.from_xml(element, Path(element.tag))
            except Exception as error:  # the parser's errors have no common class
                reason = " ".join(str(error).split()) or type(error).__name__
                raise contents.fail(element.tag, name, reason) from error
        _turn(element, target[name], turns)
        for remark in remarks.getvalue().splitlines():
            contents.leave_out(remark.split(" in ")[0].removeprefix("Unknown "), element.tag, name)
    return contents


def _root(etree: Any, data: bytes, contents: Contents) -> Any:
    """Parse a URDF document with the XML library `etree`, and return its <robot> element."""
    source = contents.source
    parser = etree.XMLParser(
        remove_comments=True, remove_pis=True, resolve_entities=False, no_network=True, recover=True
    )
    try:
        root = etree.fromstring(_declared(data, contents), parser)
    except etree.XMLSyntaxError as error:  # nothing could be read
        raise _malformed(error.msg, error.lineno, source) from None
    for entry in parser.error_log:
        serious = entry.level >= etree.ErrorLevels.ERROR
        if serious and entry.domain_name != "NAMESPACE":  # an undeclared prefix is harmless
            raise _malformed(entry.message, entry.line, source)
    if root is None:
        raise _malformed("no element", 1, source)
    _plain(root)
    if re.split("[}:]", root.tag)[-1] != "robot":
        raise ReadError(f"expected <robot>, got {_written(root)}", root.sourceline, 1, source)
    if root.tag != "robot":
        contents.unsupported.append(Unsupported(f"{_written(root)} for <robot>", "robot", root.sourceline))
        root.tag = "robot"
    _refuse_xacro(root, source)
    if (version := _version(root)) not in VERSIONS:
        message = f"version={version!r} of URDF: expected one of {', '.join(VERSIONS[1:])}"
        raise ReadError(message, root.sourceline, 1, source)
    return root


def _version(root: Any) -> str:
    return root.get("version", "1.0").strip()


def _named(element: Any, target: dict[str, Any], contents: Contents) -> str:
    """Return the name of a link or joint, and record its line in the file.
    Raise `ReadError` if the name is missing or repeated.
    """
    line, name = element.sourceline, element.get("name")
    if not name:
        raise ReadError(f"<{element.tag}> has no name", line, 1, contents.source)
    if name in target:
        first = contents.lines[element.tag, name]
        message = f"two {element.tag}s are named {name!r}, the other one in line {first}"
        raise ReadError(message, line, 1, contents.source)
    contents.lines[element.tag, name] = line
    return name


def _malformed(reason: Any, line: int, source: str) -> ReadError:
    return ReadError(f"not well-formed XML: {' '.join(str(reason).split())}", line or 1, 1, source)


def _declared(data: bytes, contents: Contents) -> bytes:
    """Return an XML document that begins with an XML declaration of version 1.0.

    Other readers of URDF accept any declaration. Lines keep their numbers.
    """
    data = data.removeprefix(b"\xef\xbb\xbf")
    declaration = _DECLARATION.match(data)
    if not declaration:
        return data
    blank, opening, quote, version, rest = declaration.groups()
    odd = ["blank lines before the XML declaration"] if blank else []
    if not version.startswith(b"1."):
        odd.append(f"XML version {version.decode(errors='replace')!r} (read as 1.0)")
    contents.unsupported += [Unsupported(what, "robot", 1) for what in odd]
    version = version if version.startswith(b"1.") else b"1.0"
    return opening + quote + version + quote + rest + blank + data[declaration.end() :]


def _plain(root: Any) -> None:
    """Remove the default XML namespace from the tags of all elements."""
    for element in root.iter():
        if str(element.tag).startswith("{") and element.prefix is None:
            element.tag = element.tag.rpartition("}")[2]


def _written(element: Any) -> str:
    """Return the tag of an element with its namespace prefix, as the file has it."""
    if not isinstance(element.tag, str):
        return element.text
    local = element.tag.rpartition("}")[2]
    return f"<{element.prefix}:{local}>" if local != element.tag else f"<{local}>"


def _wrong(element: Any) -> Iterator[str]:
    """Yield messages about missing attributes, missing elements and invalid numbers."""
    if element.tag == "joint" and element.get("type") not in TYPES:
        yield f"type={element.get('type', '')!r}: expected one of {', '.join(TYPES)}"
    for part in element.iter():
        for need in PARTS.get(part.tag, ()):
            if part.find(need) is None:
                yield f"<{part.tag}> has no <{need}>"
        for need in NEEDS.get(part.tag, ()):
            if need not in part.attrib:
                yield f'<{part.tag}> has no {need}: expected <{part.tag} {need}="...">'
        if "rpy" in part.attrib and "quat_xyzw" in part.attrib:
            yield f"<{part.tag}> has both rpy and quat_xyzw: expected one of them"
        for attribute, text in part.attrib.items():
            count = COUNTS.get(attribute, 0)
            words = text.split()
            if count and (len(words) != count or not all(map(is_number, words))):
                expected = "a number" if count == 1 else f"{count} numbers"
                yield f"<{part.tag}> {attribute}={text!r}: expected {expected}"
            elif part.tag in SOLIDS and count and min(map(float, words)) < 0:
                yield f"<{part.tag}> {attribute}={text!r}: expected no negative length"


def _relax(element: Any, name: str, contents: Contents) -> None:
    """Correct deviations from URDF that other readers accept, and list them as unsupported.

    Omitted values are completed, unreadable shapes are removed.
    """
    for part in element.findall("inertial"):
        if part.find("inertia") is None:
            contents.leave_out("an <inertial> without <inertia> (a point mass)", element.tag, name)
    for part in element.iter("inertia", "material", "mesh"):
        absent = [p for p in ("ixy", "ixz", "iyz") if part.tag == "inertia" and p not in part.attrib]
        if absent:
            part.attrib.update(dict.fromkeys(absent, "0"))
            contents.leave_out(
                f"products of inertia that are not given ({', '.join(absent)} = 0)", element.tag, name
            )
        if part.tag == "material" and not part.get("name"):
            part.set("name", "")
            contents.leave_out("a material without a name", element.tag, name)
        if part.tag == "mesh" and len(part.get("scale", "").split()) == 1:
            part.set("scale", " ".join(part.get("scale").split() * 3))
            contents.leave_out("a scale of one number (taken for all three)", element.tag, name)
    for shape in [e for e in element if e.tag in SHAPES]:
        if wrong := next(_wrong(shape), None):
            element.remove(shape)
            contents.leave_out(f"a <{shape.tag}> that cannot be read ({wrong})", element.tag, name)


def _turn(element: Any, read: Any, turns: dict[Any, str]) -> None:
    """Set the orientations that an element gives as quaternions (``quat_xyzw`` of URDF 1.2).
    The package `urdfdom-py` ignores this attribute.
    """
    places = [(element, read)]
    if element.tag == "link":
        places = [(element.find("inertial"), read.inertial)]
        for tag, items in zip(SHAPES, (read.visuals, read.collisions), strict=True):
            places += list(zip(element.findall(tag), items, strict=True))
    for part, item in places:
        origin = None if part is None else part.find("origin")
        if origin is not None and origin in turns:
            item.origin.quat_xyzw = tuple(map(float, turns[origin].split()))


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
    """Remove XML elements that vioc does not read, and list them as unsupported."""
    for child in list(element):
        inside = f"{child.tag} {child.get('name')!r}" if element.tag == "robot" else where
        if child.tag not in READ[element.tag]:
            place = "robot" if element.tag == "robot" else where
            unsupported.append(Unsupported(_written(child), place, child.sourceline))
            element.remove(child)
        elif child.tag in NESTED:
            shape = child.find("geometry")
            if child.tag in SHAPES and shape is not None and not len(shape):
                unsupported.append(Unsupported(f"a <{child.tag}> without a shape", inside, child.sourceline))
            _prune(child, inside, unsupported)
            if child.tag in SHAPES and shape is not None and not len(shape):
                element.remove(child)  # its geometry was of an unknown kind


def _material(element: Any, contents: Contents) -> None:
    """Record the colour of a named material, so that visuals can refer to the name."""
    color, name = element.find("color"), element.get("name")
    wrong = "it has no name" if not name else next(_wrong(element), None)
    if wrong:
        what = f"a material that cannot be read ({wrong})"
        contents.unsupported.append(Unsupported(what, "robot", element.sourceline))
    elif color is not None:
        contents.colors[name] = tuple(map(float, color.get("rgba").split()))
