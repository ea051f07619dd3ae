"""The form of a study: claims as data, and a table, pictures, a JSON file and an exit code as its results.

A study is one file::

    STUDY = Study(
        __file__,
        "The title, in one line",
        band=Claim("band of the energy", at_most(1e-3), unit="J", published="constant", source="[T] Fig. 1"),
    )

    @STUDY.body
    def run(report: Report) -> None:
        report.measure(band=...)
        report.save(figure)

    if __name__ == "__main__":
        STUDY.main()

and runs as ``vioc study run NAME [--quick] [--out DIR]`` or ``python -m studies.NAME``.
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
import pkgutil
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import matplotlib

import vioc
from vioc.progress import Progress, paused

OUT = Path("out") / "studies"
QUICK_SKIP = "not measured in quick form"
SKIP = "skipped: "


@dataclass(frozen=True)
class Bound:
    """The bound of a measured figure; made by `at_most`, `at_least`, `near`.

    Attributes
    ----------
    kind : {"at most", "at least", "near"}
    value : float
    tolerance : float
        The absolute tolerance of ``"near"``.
    """

    kind: str
    value: float
    tolerance: float = 0.0

    def holds(self, measured: float) -> bool:
        """Return whether the figure is within the bound; NaN never is."""
        if self.kind == "at most":
            return bool(measured <= self.value)
        if self.kind == "at least":
            return bool(measured >= self.value)
        return bool(abs(measured - self.value) <= self.tolerance)

    def __str__(self) -> str:
        sign = {"at most": "<=", "at least": ">=", "near": "="}[self.kind]
        spread = f" +- {self.tolerance:.3g}" if self.kind == "near" else ""
        return f"{sign} {self.value:.6g}{spread}"


def at_most(value: float) -> Bound:
    """measured <= value."""
    return Bound("at most", value)


def at_least(value: float) -> Bound:
    """measured >= value."""
    return Bound("at least", value)


def near(value: float, tolerance: float) -> Bound:
    """|measured - value| <= tolerance."""
    return Bound("near", value, tolerance)


@dataclass(frozen=True)
class Claim:
    """One figure of a study.

    Parameters
    ----------
    text : str
        The measured quantity.
    bound : Bound or None
        None for a figure that is only reported.
    unit : str
    published : float, str or None
        The published figure.
    source : str
        The publication, with its figure, table or section.
    full_only : bool
        Whether only the full form measures it, because it takes long.
    """

    text: str
    bound: Bound | None = None
    unit: str = ""
    published: float | str | None = None
    source: str = ""
    full_only: bool = False


@dataclass
class Report:
    """The measured figures of a run of a study.

    Attributes
    ----------
    study : Study
    quick : bool
        Whether the run has the quick form.
    out : Path
        Folder of the pictures and the JSON file.
    skipped : dict
        Keys of the claims that need an absent package, by the command that installs it.
    """

    study: Study
    quick: bool
    out: Path
    measured: dict[str, float] = field(default_factory=dict)
    skipped: dict[str, tuple[str, ...]] = field(default_factory=dict)
    pictures: list[str] = field(default_factory=list)
    seconds: float = 0.0
    progress: Progress = field(default_factory=lambda: Progress(""), repr=False)

    def measure(self, **figures: Any) -> None:
        """Record figures by the keys of their claims; raise KeyError for a key that is not declared."""
        for key, value in figures.items():
            if key not in self.study.claims:
                raise KeyError(f"{self.study.name} declares no claim {key!r}")
            self.measured[key] = float(value)
        self.progress.to(len(self.measured))

    def skip(self, install: str, *keys: str) -> None:
        """Skip the claims of these keys, which need a package that `install` installs.

        A skipped claim with a bound counts as a failure; one without does not.
        """
        self.skipped[install] = keys
        with paused():
            print(f"skipped: {install}")

    def save(self, figure: Any, suffix: str = "") -> Path:
        """Write a matplotlib figure as NAME.png, or NAME_SUFFIX.png, and close it."""
        import matplotlib.pyplot as plt

        path = self.out / f"{self.study.name}{'_' * bool(suffix)}{suffix}.png"
        figure.savefig(path, dpi=150)
        plt.close(figure)
        self.pictures.append(path.name)
        return path

    def frame(
        self, run: Any, at: Any = None, *, suffix: str = "frame", title: str = "", **options: Any
    ) -> Path:
        """Draw a mechanism at some times into NAME_frame.png; `frames.poses` has the arguments."""
        from studies.frames import poses

        axes = poses(run, at, **options)
        if title:
            axes.set_title(f"{title}\n{axes.get_title()}")
        return self.save(axes.figure, suffix)

    def verdict(self, key: str) -> str:
        """``"holds"``, ``"fails"``, ``"reported"`` (no bound), or the reason why the figure is absent."""
        claim = self.study.claims[key]
        if key not in self.measured:
            if self.quick and claim.full_only:
                return QUICK_SKIP
            absent = [install for install, keys in self.skipped.items() if key in keys]
            return f"{SKIP}{absent[0]}" if absent and claim.bound is None else "not measured"
        if claim.bound is None:
            return "reported"
        return "holds" if claim.bound.holds(self.measured[key]) else "fails"

    @property
    def all_hold(self) -> bool:
        """Return whether all claims hold, apart from skipped ones and those of the full form."""
        return all(self.verdict(key) not in ("fails", "not measured") for key in self.study.claims)

    def as_dict(self) -> dict[str, Any]:
        """The content of the JSON file, in which a figure that is not finite is text."""
        return {
            "study": self.study.name,
            "title": self.study.title,
            "form": "quick" if self.quick else "full",
            "vioc": vioc.__version__,
            "seconds": round(self.seconds, 3),
            "all_hold": self.all_hold,
            "pictures": self.pictures,
            "claims": [
                {
                    "key": key,
                    "claim": claim.text,
                    "unit": claim.unit,
                    "published": claim.published,
                    "source": claim.source,
                    "measured": _plain(self.measured.get(key)),
                    "bound": asdict(claim.bound) if claim.bound else None,
                    "verdict": self.verdict(key),
                }
                for key, claim in self.study.claims.items()
            ],
        }

    def table(self) -> str:
        """The claims as an aligned table, with the verdict on all of them in the last line."""
        rows: list[tuple[str, ...]] = [("claim", "published", "measured", "bound", "verdict", "source")]
        for key, claim in self.study.claims.items():
            value = self.measured.get(key)
            rows.append(
                (
                    claim.text + f" [{claim.unit}]" * bool(claim.unit),
                    figure_text(claim.published),
                    figure_text(value),
                    str(claim.bound or "-"),
                    self.verdict(key),
                    claim.source,
                )
            )
        widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
        rows.insert(1, tuple("-" * w for w in widths))
        lines = [
            "  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in rows
        ]
        counts = tally(self.verdict(key) for key in self.study.claims)
        form = "quick form" if self.quick else "full form"
        head = f"{self.study.name}: {self.study.title} ({form}, {self.seconds:.1f} s)"
        return "\n".join([head, "", *lines, "", f"{'OK' if self.all_hold else 'FAILED'}: {counts}"])


class Study:
    """A study: its name, title and claims, and the function that measures them.

    Parameters
    ----------
    file : str
        ``__file__`` of the study; its stem is the name.
    title : str
    **claims : Claim
    """

    def __init__(self, file: str, title: str, **claims: Claim):
        self.name = Path(file).stem
        self.title = title
        self.claims = claims
        self._body: Callable[[Report], None] | None = None

    def body(self, function: Callable[[Report], None]) -> Callable[[Report], None]:
        """Register the function that measures; a decorator."""
        self._body = function
        return function

    def execute(self, *, quick: bool = False, out: str | Path = OUT) -> Report:
        """Run the study, print its table, and write NAME.json; an earlier NAME.json is removed first."""
        if self._body is None:
            raise TypeError(f"study {self.name} has no body")
        matplotlib.use("Agg")
        report = Report(self, quick, Path(out))
        report.out.mkdir(parents=True, exist_ok=True)
        path = report.out / f"{self.name}.json"
        path.unlink(missing_ok=True)
        before = time.perf_counter()
        with Progress(self.name, sum(not (quick and c.full_only) for c in self.claims.values())) as bar:
            report.progress = bar
            self._body(report)
        report.seconds = time.perf_counter() - before
        path.write_text(json.dumps(report.as_dict(), indent=1, allow_nan=False) + "\n")
        with paused():
            print(report.table())
            print("wrote " + ", ".join(str(report.out / name) for name in (*report.pictures, path.name)))
        return report

    def main(self, argv: Sequence[str] | None = None) -> None:
        """Run the study from the command line; the exit code is 0 only if `all_hold`."""
        parser = argparse.ArgumentParser(prog=f"python -m studies.{self.name}", description=self.title)
        add_options(parser)
        args = parser.parse_args(argv)
        sys.exit(0 if self.execute(quick=args.quick, out=args.out).all_hold else 1)

    @property
    def papers(self) -> tuple[str, ...]:
        """Letters of the papers that the claims cite (``"T"`` of ``[T] Fig. 7``), most cited first."""
        texts = [self.title, *(f"{claim.source} {claim.published}" for claim in self.claims.values())]
        cited = Counter(re.findall(r"\[([A-Z])\]", " ".join(texts)))
        return tuple(tag for tag, _ in cited.most_common())

    def listing(self) -> str:
        """The name, the title and the claims as text."""
        lines = [f"{self.name}: {self.title}"]
        for claim in self.claims.values():
            unit = f" {claim.unit}" * bool(claim.unit)
            bound = f" {claim.bound}{unit}" if claim.bound else " (reported)"
            published = f"; published: {figure_text(claim.published)}" if claim.published is not None else ""
            source = f" ({claim.source})" if claim.source else ""
            lines.append(f"  - {claim.text}{bound}{published}{source}")
        return "\n".join(lines)


def count_ticks(axes: Any, counts: Iterable[int]) -> None:
    """Set the ticks of a logarithmic x axis at these counts, in plain digits."""
    shown = sorted(counts)
    axes.set_xticks(shown, [str(n) for n in shown])
    axes.set_xticks([], minor=True)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that all studies take."""
    parser.add_argument("--quick", action="store_true", help="the quick form: a smaller problem, in seconds")
    parser.add_argument("--out", type=Path, default=OUT, help="folder for results (default: %(default)s)")


def studies() -> Iterator[Study]:
    """All studies of this folder, sorted by name."""
    package = importlib.import_module("studies")
    for module in sorted(m.name for m in pkgutil.iter_modules(package.__path__)):
        if module != "__main__":
            study = getattr(importlib.import_module(f"studies.{module}"), "STUDY", None)
            if isinstance(study, Study):
                yield study


def _plain(value: float | None) -> float | str | None:
    return str(value) if value is not None and not math.isfinite(value) else value


def tally(verdicts: Iterable[str]) -> str:
    """The number of each verdict, the worst first: ``"1 fails, 3 holds, 2 reported"``."""
    counts = Counter(verdicts)
    skipped = sorted(v for v in counts if v.startswith(SKIP))
    order = ("not measured", "fails", "holds", "reported", QUICK_SKIP, *skipped)
    return ", ".join(f"{counts[v]} {v}" for v in order if counts[v])


def figure_text(value: float | str | None) -> str:
    """A figure as the tables show it, with six digits."""
    if value is None:
        return "-"
    return value if isinstance(value, str) else f"{value:.6g}"
