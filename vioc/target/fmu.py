"""Co-simulation FMUs (FMI 2.0 and 3.0) of maps and closed loops.

They contain the C code that `write_target` writes.
"""

from __future__ import annotations

import hashlib
import platform
import sys
import tempfile
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from xml.sax.saxutils import quoteattr

import numpy as np

from vioc.compile.compiler import find_compiler
from vioc.control.feedback.loop import ClosedLoop
from vioc.errors import CompileError
from vioc.maps.protocol import OneStepMap
from vioc.target.folder import NAME, write_target
from vioc.target.pages import filled

Version = Literal["2.0", "3.0"]
SUFFIX = {"linux": ".so", "darwin": ".dylib", "win32": ".dll"}
OLD = {"linux": "linux", "darwin": "darwin", "win32": "win"}  # FMI 2.0 appends the word length
NEW = {"linux": "linux", "darwin": "darwin", "win32": "windows"}
MACHINE = {"AMD64": "x86_64", "arm64": "aarch64"}


@dataclass(frozen=True)
class FmuVariable:
    """Variable of an FMU; its value reference is its index in the list of variables."""

    name: str
    causality: str
    start: float | None
    text: str = ""


def write_fmu(
    path: str | Path,
    what: OneStepMap | ClosedLoop,
    start: Any,
    *,
    version: Version = "2.0",
    binary: bool = True,
    steps: int | None = None,
) -> Path:
    """Write an FMU for co-simulation of a map or of a closed loop.

    Parameters
    ----------
    path : path
        File ``NAME.fmu``; NAME, in small letters, is the name of the model.
    what : OneStepMap or ClosedLoop
        A map has its inputs ``u.NAME`` as inputs, and its states and ``multiplier.NAME`` as outputs. A closed
        loop, without its noise, has no inputs; its outputs are the plant's states, the applied input, and the
        multipliers.
    start : (nx,)
        Initial state; a simulator may set another one. It is the observer's first estimate.
    version : "2.0" or "3.0"
    binary : bool
        Also compile for this machine; the sources are included in any case.
    steps : int, optional
        Of the run that determines the iterations of a step, as in `write_target`.

    Returns
    -------
    Path

    Raises
    ------
    ValueError, TypeError, StepError
        As `write_target`.
    CompileError
        If `binary` is requested, and no compiler is found.

    Notes
    -----
    A communication step must be an integer multiple of the map's step; others are refused, as is a step that
    has no solution. Inputs are constant over a communication step.
    """
    path = Path(path)
    name = path.stem
    if path.suffix != ".fmu" or not NAME.fullmatch(name):
        raise ValueError(f"path: expected small letters, digits and _ before .fmu, got {path.name!r}")
    if version not in ("2.0", "3.0"):
        raise ValueError(f"version: expected '2.0' or '3.0', got {version!r}")
    loop = what if isinstance(what, ClosedLoop) else None
    f = what if loop is None else loop.plant
    if not isinstance(f, OneStepMap):
        raise TypeError(f"expected a map or a ClosedLoop, got {type(what).__name__}")
    known = getattr(loop and loop.observer, "map", f)
    if known.nx != f.nx:
        raise ValueError(
            f"observer: it knows {known.nx} states, the plant has {f.nx}; an FMU's plant has the observer's, "
            "such as the ExtendedMap itself"
        )
    x = f.check_state(start, "start")
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        sources = root / "sources"
        inputs = None if loop is None else loop.simulate(x, steps or 100, noise=None).trajectory.u
        write_target(sources, f, x, name=f"{name}_plant", inputs=inputs, steps=steps)
        if loop is not None:
            write_target(sources, loop, x, name=f"{name}_controller", steps=steps, noise=None)
        for extra in sources.iterdir():
            if extra.suffix not in (".c", ".h") or extra.stem.endswith(("_test", "_time", "_samples")):
                extra.unlink()
        files = sorted(file.name for file in sources.iterdir())
        variables = _variables(f, x, loop is not None)
        token = hashlib.sha256(b"".join((sources / file).read_bytes() for file in files)).hexdigest()[:32]
        tokens = {
            "NAME_UP": name.upper(),
            "NAME": name,
            "LOOP": str(int(loop is not None)),
            "DT": repr(f.dt),
            "TOKEN": token,
            "START": ", ".join(repr(v.start or 0.0) for v in variables),
        }
        wrapper = filled("fmu.c", tokens) + "\n" + filled(f"fmu{version[0]}.c", tokens)
        (sources / f"{name}.c").write_text(wrapper)
        written = [f"{name}.c", *(file for file in files if file.endswith(".c"))]
        describe = _description2 if version == "2.0" else _description3
        (root / "modelDescription.xml").write_text(describe(name, token, f, variables, written))
        if version == "3.0":
            (sources / "buildDescription.xml").write_text(_build(name, written))
        if binary:
            _compile(root, name, version, [sources / file for file in written])
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for file in sorted(p for p in root.rglob("*") if p.is_file()):
                archive.write(file, file.relative_to(root).as_posix())
    return path


def _variables(f: OneStepMap, x: np.ndarray, closed: bool) -> list[FmuVariable]:
    variables = [FmuVariable("time", "independent", None)]
    variables += [FmuVariable(n, "output", float(v), "state") for n, v in zip(f.state_names, x, strict=True)]
    cause = ("output", None, "applied input") if closed else ("input", 0.0, "input")
    variables += [FmuVariable(f"u.{n}", *cause) for n in f.input_names]
    variables += [FmuVariable(f"multiplier.{n}", "output", None, "impulse") for n in f.multiplier_names]
    return variables


def _rows(variables: list[FmuVariable], row: str) -> str:
    """Return XML text with one line for each variable of an FMU.
    Each line is made from the template `row`.
    """
    lines = []
    for i, v in enumerate(variables):
        initial = {"output": ' initial="exact"' if v.start is not None else ' initial="calculated"'}
        text = f" description={quoteattr(v.text)}" if v.text else ""
        attributes = (
            f'name={quoteattr(v.name)} valueReference="{i}"{text} causality="{v.causality}" '
            f'variability="continuous"{initial.get(v.causality, "")}'
        )
        lines.append(row.format(attributes, "" if v.start is None else f' start="{v.start!r}"'))
    return "\n".join(lines)


def _outputs(variables: list[FmuVariable], output: str, unknown: str, first: int) -> tuple[str, str]:
    """Return the XML elements of an FMU's outputs, and those of its initial unknowns.
    Initial unknowns are the outputs without a start value.

    Variables are numbered from `first` on.
    """
    numbered = [(i, v) for i, v in enumerate(variables, first) if v.causality == "output"]
    unset = (unknown.format(i) for i, v in numbered if v.start is None)
    return "".join(output.format(i) for i, _ in numbered), "".join(unset)


def _description2(
    name: str, token: str, f: OneStepMap, variables: list[FmuVariable], files: Iterable[str]
) -> str:
    rows = _rows(variables, "<ScalarVariable {}><Real{}/></ScalarVariable>")
    row = '<Unknown index="{}"/>'
    outputs, unknown = _outputs(variables, row, row, 1)
    entries = "".join(f"<File name={quoteattr(file)}/>" for file in files)
    initial = f"<InitialUnknowns>{unknown}</InitialUnknowns>" if unknown else ""
    return f"""<?xml version="1.0" encoding="UTF-8"?>
<fmiModelDescription fmiVersion="2.0" modelName="{name}" guid="{token}" generationTool="vioc"
 variableNamingConvention="flat" numberOfEventIndicators="0">
<CoSimulation modelIdentifier="{name}" canHandleVariableCommunicationStepSize="true">
<SourceFiles>{entries}</SourceFiles></CoSimulation>
<DefaultExperiment startTime="0" stopTime="{100 * f.dt!r}" stepSize="{f.dt!r}"/>
<ModelVariables>
{rows}
</ModelVariables>
<ModelStructure><Outputs>{outputs}</Outputs>{initial}</ModelStructure>
</fmiModelDescription>
"""


def _description3(
    name: str, token: str, f: OneStepMap, variables: list[FmuVariable], files: Iterable[str]
) -> str:
    rows = _rows(variables, "<Float64 {}{}/>")
    outputs, unknown = _outputs(
        variables, '<Output valueReference="{}"/>', '<InitialUnknown valueReference="{}"/>', 0
    )
    return f"""<?xml version="1.0" encoding="UTF-8"?>
<fmiModelDescription fmiVersion="3.0" modelName="{name}" instantiationToken="{token}" generationTool="vioc"
 variableNamingConvention="flat">
<CoSimulation modelIdentifier="{name}" canHandleVariableCommunicationStepSize="true"
 fixedInternalStepSize="{f.dt!r}"/>
<DefaultExperiment startTime="0" stopTime="{100 * f.dt!r}" stepSize="{f.dt!r}"/>
<ModelVariables>
{rows}
</ModelVariables>
<ModelStructure>{outputs}{unknown}</ModelStructure>
</fmiModelDescription>
"""


def _build(name: str, files: Iterable[str]) -> str:
    entries = "".join(f"<SourceFile name={quoteattr(file)}/>" for file in files)
    return f"""<?xml version="1.0" encoding="UTF-8"?>
<fmiBuildDescription fmiVersion="3.0"><BuildConfiguration modelIdentifier="{name}">
<SourceFileSet language="C99">{entries}</SourceFileSet></BuildConfiguration></fmiBuildDescription>
"""


def _compile(root: Path, name: str, version: str, files: list[Path]) -> None:
    compiler = find_compiler()
    if compiler is None:
        raise CompileError(
            "an FMU with a binary needs a C compiler: cc, gcc, clang, or that of CC; or binary=False"
        )
    system = sys.platform if sys.platform in SUFFIX else "linux"
    word = "64" if sys.maxsize > 2**32 else "32"
    machine = MACHINE.get(platform.machine(), platform.machine())
    place = f"{OLD[system]}{word}" if version == "2.0" else f"{machine}-{NEW[system]}"
    target = root / "binaries" / place / f"{name}{SUFFIX[system]}"
    target.parent.mkdir(parents=True)
    compiler.build(files, target, native=False)
