"""Long runs with an eye on the memory: ``python tests/trust/soak.py`` prints and plots the curves.

Each case runs in a process of its own, in chunks; the resident memory is noted after each. What counts is
its slope from `WARM` of the run on, when every buffer and cache has had its chance to fill.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

import numpy as np

CHUNKS = 100  # notes of a run
PIECE = 2000  # steps of a rollout: a large array that finds another place is no leak, and should not look so
WARM = 0.2  # of a run
SLACK = 1.0  # MB that the memory may differ between then and the end: allocators keep pages


@dataclass(frozen=True)
class Curve:
    """Resident memory of one case.

    Attributes
    ----------
    name, unit : str
    done : (n,)
        Steps, or builds, at each note.
    memory : (n,)
        MB.
    seconds : float
    note : str
        What else was seen.
    """

    name: str
    unit: str
    done: np.ndarray
    memory: np.ndarray
    seconds: float
    note: str

    @property
    def warm(self) -> np.ndarray:
        return self.done >= WARM * self.done[-1]

    @property
    def slope(self) -> float:
        """Bytes for each step or build, after warming up (least squares)."""
        return float(np.polyfit(self.done[self.warm], self.memory[self.warm], 1)[0] * 1e6)

    @property
    def growth(self) -> float:
        """MB from the warm state to the end: means of the first and last tenth of what is left."""
        after = self.memory[self.warm]
        tenth = max(1, len(after) // 10)
        return float(after[-tenth:].mean() - after[:tenth].mean())

    def __str__(self) -> str:
        verdict = "flat" if self.growth <= SLACK else "GROWS"
        return (
            f"{self.name:<32}{self.done[-1]:>9.3g} {self.unit:<7}{self.seconds:>7.0f} s"
            f"{self.memory[-1]:>8.1f} MB{self.growth:>+8.2f} MB{self.slope:>+9.3f} B/{self.unit[:-1]:<6}"
            f"{verdict:<7}{self.note}"
        )


def resident() -> float:
    """Resident memory of this process that is not of files, MB: pages of libraries come and go."""
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("RssAnon")) * 1024 / 1e6


# -- cases: each yields what it has done so far -------------------------------------------------------


def rollouts(make: str, steps: int) -> Iterator[tuple[int, str]]:
    """One long motion, in chunks."""
    f, x = MAPS[make]()
    count = max(1, min(PIECE, steps // CHUNKS))
    first: tuple[float, float] | None = None
    done, drift = 0, 0.0
    while done < steps:
        run = f.rollout(x, steps=count, warn=False)
        x, done = run.x[-1], done + count
        if first is not None and done * CHUNKS // steps == (done - count) * CHUNKS // steps:
            continue
        energy = run.evaluate(run.map.quantity("energy"))
        band = float(energy.min()), float(energy.max())
        first = first or band
        width = max(first[1] - first[0], 1e-12 * abs(first[1]), 1e-300)
        drift = max(drift, first[0] - band[0], band[1] - first[1])
        yield done, f"energy leaves the band of the first {count} steps by {drift / width:.1%} of it"


def single_steps(make: str, steps: int) -> Iterator[tuple[int, str]]:
    """Steps and linearizations called one by one from Python."""
    f, x = MAPS[make]()
    for k in range(steps):
        x = f.step(x)
        f.linearize(x)
        if (k + 1) % max(1, steps // CHUNKS) == 0:
            yield k + 1, "step and linearize"


def builds(make: str, count: int) -> Iterator[tuple[int, str]]:
    """Maps built, stepped, linearized and dropped; no two are the same."""
    for i in range(count):
        f, x = MAPS[make](1.0 + 1e-3 * i)
        f.rollout(x, steps=3)
        f.linearize(x)
        del f
        if (i + 1) % max(1, count // CHUNKS) == 0:
            yield i + 1, "each another mechanism"


def errors(make: str, count: int) -> Iterator[tuple[int, str]]:
    """Texts that are refused, again and again."""
    from vioc import read_text
    from vioc.errors import ReadError

    for i in range(count):
        with contextlib.suppress(ReadError):
            read_text(f'(SYSTEM (RX "a{i}" (MASS 1)) (JOINT-DAMPING "b{i}" 1))')
        if (i + 1) % max(1, count // CHUNKS) == 0:
            yield i + 1, "refused texts"


def _double(integrator: str, **options) -> Callable:
    def make(mass: float = 1.0):
        import vioc
        from vioc import Gravity, Mass, System, rx, tz

        body = Mass(mass, (0.1, 0.1, 0.1))
        links = rx("a")[tz(-0.5, mass=body)[tz(-0.5)[rx("b")[tz(-0.5, mass=body)]]]]
        f = getattr(vioc, integrator)(System(Gravity(0, 0, -9.81), links), 0.01, **options)
        return f, f.initial_state({"a": 0.3, "b": 0.2})

    return make


def _four_bar(backend: str) -> Callable:
    def make(mass: float = 1.0):
        from vioc import Gravity, MidpointVI, System, coincident, consistent_configuration, rx, ty, tz

        system = System(
            Gravity(0, 0, -9.81),
            rx("a")[tz(-1, mass=mass)[rx("b")[tz(-1, name="tip", mass=mass)]]],
            ty(1.0)[rx("c")[tz(-1, name="end", mass=mass)]],
            coincident("tip", "end", axes="yz"),
        )
        f = MidpointVI(system, 0.01, backend=backend)
        return f, f.initial_state(consistent_configuration(system, {"a": 0.3, "b": 1.2, "c": 0.2}).q)

    return make


MAPS = {
    "midpoint virtual": _double("MidpointVI", backend="virtual"),
    "midpoint compiled": _double("MidpointVI", backend="compiled"),
    "four-bar virtual": _four_bar("virtual"),
    "four-bar compiled": _four_bar("compiled"),
    "linear-time": _double("LinearTimeVI"),
    "maximal": _double("MaximalVI"),
    "runge-kutta": _double("RungeKutta"),
    "none": lambda *_: None,
}
# case, map, share of the steps asked for (or of the builds)
CASES: tuple[tuple[Callable, str, float], ...] = (
    (rollouts, "midpoint compiled", 1.0),
    (rollouts, "midpoint virtual", 1.0),
    (rollouts, "four-bar compiled", 1.0),
    (rollouts, "four-bar virtual", 0.1),
    (rollouts, "linear-time", 0.3),
    (rollouts, "maximal", 0.03),
    (rollouts, "runge-kutta", 0.1),
    (single_steps, "midpoint virtual", 0.01),
    (single_steps, "midpoint compiled", 0.01),
    (builds, "midpoint virtual", 1.0),
    (builds, "four-bar virtual", 0.2),
    (builds, "linear-time", 0.2),
    (builds, "maximal", 0.1),
    (errors, "none", 20.0),
)


def measure(case: Callable, make: str, amount: int) -> Curve:
    """Run a case here."""
    done, memory, notes = [0], [resident()], [""]
    start = time.perf_counter()
    for count, note in case(make, amount):
        gc.collect()  # Python does it by the number of objects, and does not see what CasADi's hold
        done.append(count)
        memory.append(resident())
        notes.append(note)
    unit = {"builds": "builds", "errors": "texts"}.get(case.__name__, "steps")
    name = f"{case.__name__.replace('_', ' ')} {make if make != 'none' else ''}".strip()
    return Curve(name, unit, np.array(done), np.array(memory), time.perf_counter() - start, notes[-1])


def apart(case: Callable, make: str, amount: int) -> Curve:
    """Run a case in a process of its own."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(measure, case, make, amount).result()


def plot(curves: list[Curve], path: Path) -> None:
    """Memory since it was warm, over the share of the run."""
    import matplotlib.pyplot as plt

    kinds = (("steps", "steps"), ("builds", "maps built and dropped"), ("texts", "texts refused"))
    kinds = tuple(k for k in kinds if any(c.unit == k[0] for c in curves))
    figure, axes = plt.subplots(
        1, len(kinds), figsize=(4.2 * len(kinds), 3.8), layout="constrained", squeeze=False
    )
    for ax, (unit, label) in zip(axes[0], kinds, strict=True):
        for curve in (c for c in curves if c.unit == unit):
            start = curve.memory[curve.warm][0]
            ax.plot(curve.done[1:], curve.memory[1:] - start, lw=1.2, label=curve.name)
        ax.axhline(0, color="0.7", lw=0.8, zorder=0)
        ax.set_xscale("log")
        low, high = ax.get_ylim()
        ax.set_ylim(min(low, -3), max(high, 3))
        ax.set_xlabel(label)
        ax.legend(fontsize=7, frameon=False, loc="best")
    axes[0, 0].set_ylabel(f"resident memory less that at {WARM:.0%} of the run, MB")
    figure.savefig(path, dpi=130)
    plt.close(figure)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python tests/trust/soak.py", description=__doc__)
    parser.add_argument("--steps", type=float, default=1e7)
    parser.add_argument("--builds", type=int, default=1000)
    parser.add_argument("--case", help="only cases whose name holds this")
    parser.add_argument("--at-once", type=int, default=1, help="cases that run side by side")
    parser.add_argument("--out", type=Path, default=Path("out"), help="folder of the picture")
    given = parser.parse_args(arguments)
    chosen = []
    for case, make, share in CASES:
        amount = int(share * (given.steps if case in (rollouts, single_steps) else given.builds))
        if given.case is None or given.case in f"{case.__name__} {make}":
            chosen.append((case, make, amount))
    curves = []
    with ThreadPoolExecutor(given.at_once) as threads:
        for curve in threads.map(lambda arguments: apart(*arguments), chosen):
            curves.append(curve)
            print(curve, flush=True)
    given.out.mkdir(parents=True, exist_ok=True)
    plot(curves, given.out / "soak.png")
    return int(any(c.growth > SLACK for c in curves))


if __name__ == "__main__":
    sys.exit(main())
