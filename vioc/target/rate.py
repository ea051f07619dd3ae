"""Real-time execution of a generated controller at a given rate, with timing."""

from __future__ import annotations

import ctypes
import gc
import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from vioc.compile.compiler import find_compiler
from vioc.drawing import plots
from vioc.errors import CompileError, FileFormatError

SPUN = 2e-4  # time before a sample, s, in which the clock is polled, as sleep ends late


@dataclass(frozen=True)
class LoopTimes:
    """Measured times of a real-time loop at each sample: delays and durations.

    Attributes
    ----------
    period : float
        Sampling period, s.
    late : (N,)
        Delay of the start of each sample, s.
    output, advance : (N,)
        Duration of the two calls, s, including the overhead of Python.
    overruns : int
        Number of samples that were skipped because an earlier one ended late.
    status : int
        All status bits that the calls returned.
    """

    period: float
    late: np.ndarray = field(repr=False)
    output: np.ndarray = field(repr=False)
    advance: np.ndarray = field(repr=False)
    overruns: int
    status: int

    @property
    def table(self) -> dict[str, tuple[float, float, float]]:
        """Median, 99.9 % quantile and largest value of each measured time, microseconds."""
        rows = {"late": self.late, "output": self.output, "advance": self.advance}
        return {n: (*(1e6 * np.quantile(v, (0.5, 0.999))), 1e6 * v.max()) for n, v in rows.items()}

    def plot(self, ax: Any = None) -> Any:
        """Plot histograms of the samples' delays and of the durations of the C calls."""
        return plots().plot_loop_times(self, ax=ax)

    def __str__(self) -> str:
        head = f"{len(self.late)} samples every {1e3 * self.period:g} ms"
        lines = [f"{head}, {self.overruns} overruns, status {self.status}"]
        lines.append(f"{'us':<8}{'median':>10}{'99.9 %':>10}{'worst':>10}")
        lines += [f"{n:<8}" + "".join(f"{v:10.1f}" for v in row) for n, row in self.table.items()]
        return "\n".join(lines)


def run_at(folder: str | Path, frequency: float | None = None, seconds: float = 5.0) -> LoopTimes:
    """Build a generated controller, and run it at a given rate on recorded data.

    Parameters
    ----------
    folder : path
        Made by `write_target`, with a controller.
    frequency : float, optional
        Sampling frequency, Hz; default: the controller's.
    seconds : float
        Duration.

    Returns
    -------
    LoopTimes

    Raises
    ------
    ValueError
        For a frequency or a duration that is not positive.
    FileFormatError
        If the folder does not exist or has no controller.
    CompileError
        If there is no compiler.
    """
    if not (frequency is None or frequency > 0) or not seconds > 0:
        raise ValueError(f"frequency, seconds: expected numbers > 0, got {frequency!r} Hz and {seconds!r} s")
    folder = Path(folder)
    description = _described(folder)
    name, sizes = description["name"], description["sizes"]
    compiler = find_compiler()
    if compiler is None:
        raise CompileError(
            "a loop needs a C compiler: cc, gcc, clang, or that of the environment variable CC"
        )
    library = folder / f"{name}.loop"
    compiler.build([folder / f"{name}.c"], library, "-fvisibility=default")
    c = ctypes.CDLL(str(library.resolve()))
    real: Any = ctypes.c_float if description["precision"] == "single" else ctypes.c_double
    start, output, advance = (getattr(c, f"{name}_{n}") for n in ("start", "output", "advance"))
    memory = getattr(c, f"{name}_memory")
    memory.restype = ctypes.c_ulong
    state = ctypes.create_string_buffer(memory())
    measured = [(real * sizes["NY"])(*row) for row in description["measured"]]
    applied = [(real * sizes["NU"])(*row) for row in description["applied"]]
    u = (real * sizes["NU"])()
    period = description["dt"] if frequency is None else 1.0 / frequency
    count = max(1, round(seconds / period))
    starts, middles, ends = (np.zeros(count) for _ in range(3))
    planned, clock = np.zeros(count), time.perf_counter
    status = overruns = 0
    collecting = gc.isenabled()
    gc.disable()
    try:
        due = clock() + period
        for k in range(count):
            if k % len(measured) == 0:
                start(state, None)
            while (rest := due - clock()) > 0:
                if rest > SPUN:
                    time.sleep(rest - SPUN)
            planned[k], starts[k] = due, clock()
            status |= output(state, measured[k % len(measured)], u)
            middles[k] = clock()
            status |= advance(state, applied[k % len(applied)])
            ends[k] = clock()
            due += period
            if ends[k] > due:
                missed = int((ends[k] - due) / period) + 1
                overruns, due = overruns + missed, due + missed * period
    finally:
        if collecting:
            gc.enable()
        library.unlink(missing_ok=True)
    return LoopTimes(period, starts - planned, middles - starts, ends - middles, overruns, status)


def _described(folder: Path) -> dict[str, Any]:
    for path in sorted(folder.glob("*.json")):
        try:
            description = json.loads(path.read_text())
            if "output" in description["functions"] and description["measured"] and description["applied"]:
                return description
        except (ValueError, KeyError, TypeError):
            continue
    raise FileFormatError(f"{folder}: no folder of a controller that write_target made")
