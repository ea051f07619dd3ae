"""What all benchmarks share: rows, timing, groups, the table and its JSON."""

from __future__ import annotations

import contextlib
import math
import os
import platform
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib import metadata
from typing import Any

import numpy as np

import vioc
from vioc.compile import find_compiler

ABSENT = "not installed"
PACKAGES = ("casadi", "numpy", "scipy", "mujoco", "pin", "dartpy", "drake", "crocoddyl")
COMPILED = "compiled"
LOSS = " (loss)"  # of vioc


@dataclass(frozen=True)
class Row:
    """One line of the table.

    Attributes
    ----------
    name : str
        The work.
    unit : str
    figures : dict of str to float
        By backend, ``"virtual"`` and ``"compiled"``.
    targets : dict of str to float
        To be reached, by backend.
    peers : dict of str to float or str
        Figures of other programs in the same unit and run, or why there is none.
    note : str
        What else should be known: a figure published elsewhere, iterations.
    problem : str
        File of the problem and the name in it, "studies/heap.py:heap"; empty: the group's own.
    remark : str or None
        The note in fewer words, for the published page; None: the note itself.
    """

    name: str
    unit: str
    figures: Mapping[str, float]
    targets: Mapping[str, float] = field(default_factory=dict)
    peers: Mapping[str, float | str] = field(default_factory=dict)
    note: str = ""
    problem: str = ""
    remark: str | None = None

    @property
    def best(self) -> float:
        """The figure of the fastest backend."""
        return min(self.figures.values(), default=math.nan)

    def _ratio(self, value: float) -> str:
        if not self.figures:
            return ""
        return f" = {_short(value / self.best)}x" + LOSS * bool(value < self.best)

    @property
    def losses(self) -> dict[str, float]:
        """Peers that are faster, with vioc's time over theirs: without end where it has no answer."""
        best = self.best if self.figures else math.inf
        found = {
            name: best / v for name, v in self.peers.items() if not isinstance(v, str) and np.isfinite(v)
        }
        return {name: ratio for name, ratio in found.items() if ratio > 1}

    def cells(self) -> tuple[str, ...]:
        """The row as text: work, figures with their targets, peers with their ratio to the best."""
        figures = []
        for backend in ("virtual", COMPILED):
            value, target = self.figures.get(backend), self.targets.get(backend)
            text = "-" if value is None else _short(value)
            figures.append(text + (f" ({_short(target)})" if target is not None else ""))
        peers = [
            f"{name}: {v}" if isinstance(v, str) else f"{name} {_short(v)}" + self._ratio(v)
            for name, v in self.peers.items()
            if isinstance(v, str) or np.isfinite(v)
        ]
        return self.name, self.unit, *figures, "; ".join(peers), self.note


Clock = Callable[[], float]


@dataclass
class Bench:
    """How a run is made, and what it has found beside its rows.

    Attributes
    ----------
    quick : bool
        Few repeats of small problems.
    curves : dict
        Plain data for the plots, by group.
    """

    quick: bool = False
    curves: dict[str, Any] = field(default_factory=dict)

    @property
    def seconds(self) -> float:
        """Time spent on repeating one measurement, s."""
        return 0.02 if self.quick else 1.0

    @property
    def backends(self) -> tuple[str, ...]:
        """The virtual machine, and compiled code where there is a compiler."""
        return ("virtual", COMPILED) if find_compiler() is not None else ("virtual",)

    def best(
        self, function: Callable[[], Any], scale: float = 1.0, clock: Clock = time.process_time
    ) -> float:
        """Least time of a call, s, times `scale`; one call first, for what is built on demand.

        The clock is that of this process, which other work on the machine moves little.
        """
        function()
        times: list[float] = []
        while len(times) < (1 if self.quick else 5) or sum(times) < self.seconds:
            before = clock()
            function()
            times.append(clock() - before)
        return scale * min(times)

    def each(
        self, make: Callable[[str], Callable[[], Any]], scale: float, clock: Clock = time.process_time
    ) -> dict[str, float]:
        """`best` of what `make(backend)` returns, by backend."""
        return {backend: self.best(make(backend), scale, clock) for backend in self.backends}


Group = Callable[[Bench], Iterator[Row]]


@contextlib.contextmanager
def one_core() -> Iterator[None]:
    """Keep this process on one core, where the system can."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(cores)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)


def machine() -> str:
    """Versions and processor in one line."""
    found = []
    for package in PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found.append(f"{package} {metadata.version(package)}")
    compiler = find_compiler()
    first = compiler.identity.splitlines()[0] if compiler else "no C compiler"
    versions = f"vioc {vioc.__version__}, Python {platform.python_version()}, {', '.join(found)}, {first}"
    return f"{versions}; {processor()}, {os.cpu_count()} cores"


def processor() -> str:
    with contextlib.suppress(OSError), open("/proc/cpuinfo") as lines:
        for line in lines:
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


HEADER = ("work", "unit", "virtual machine (target)", "compiled (target)", "others, ratio to the faster", "")


def table(rows: Sequence[Row]) -> str:
    """Rows as aligned text."""
    cells = [HEADER, *(row.cells() for row in rows)]
    widths = [max(len(line[i]) for line in cells) for i in range(len(HEADER))]
    lines = ["  ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)).rstrip() for line in cells]
    return "\n".join([lines[0], "-" * len(lines[0]), *lines[1:]])


def markdown(rows: Sequence[Row], problem: str) -> str:
    """A Markdown table of the rows, one column for each peer, below the files of their problems.

    `problem` is the file of the rows that name none. Columns without entries, or of a peer that is not
    installed, are left out. A unit that all rows share is in the header. Losses are bold. Targets are not
    shown.
    """
    units = dict.fromkeys(row.unit for row in rows)
    shared = f", {rows[0].unit}" if len(units) == 1 else ""
    peers = list(dict.fromkeys(name for row in rows for name in row.peers))
    header = [f"work{shared}", "virtual machine", COMPILED, *peers, "remarks"]
    cells = [
        [
            row.name + ("" if shared else f", {row.unit}"),
            *(_cell(row.figures.get(backend, "-")) for backend in ("virtual", COMPILED)),
            *(_cell(row.peers.get(name, ""), name in row.losses) for name in peers),
            row.note if row.remark is None else row.remark,
        ]
        for row in rows
    ]
    kept = [i for i in range(len(header)) if i < 3 or any(line[i] not in ("", ABSENT) for line in cells)]
    files = dict.fromkeys(f"`{row.problem or problem}`" for row in rows)
    text = _lines([header[i] for i in kept], [[line[i] for i in kept] for line in cells])
    return f"Problems: {', '.join(files)}.\n\n{text}"


def _cell(value: float | str, bold: bool = False) -> str:
    text = value if isinstance(value, str) else _short(value)
    return f"**{text}**" if bold else text


def losses(rows: Mapping[str, Sequence[Row]]) -> str:
    """One sentence: how many comparisons with peers vioc loses, of how many."""
    every = [row for own in rows.values() for row in own]
    lost = sum(len(row.losses) for row in every)
    count = sum(not isinstance(v, str) and np.isfinite(v) for row in every for v in row.peers.values())
    return f"Others are faster in {lost} of {count} comparisons."


def _lines(header: Sequence[str], cells: Sequence[Sequence[str]]) -> str:
    rows = [header, ["---"] * len(header), *([c.replace("|", "\\|") for c in line] for line in cells)]
    return "\n".join("| " + " | ".join(line) + " |" for line in rows)


def plain(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Rows for JSON; what is not finite becomes text."""

    def clean(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {k: clean(v) for k, v in value.items()}
        if isinstance(value, (float, np.floating)):
            return float(value) if math.isfinite(value) else str(value)
        return value

    return [clean(asdict(row)) for row in rows]


def _short(value: float) -> str:
    """Three digits."""
    if not math.isfinite(value):
        return str(value)
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2
    return f"{value:.{digits}f}" if abs(value) >= 0.01 else f"{value:.1e}"
