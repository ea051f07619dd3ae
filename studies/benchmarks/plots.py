"""The pictures of docs/benchmarks.md, from what a run has written as JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

COLORS = {
    "virtual": "tab:blue",
    "compiled": "k",
    "midpoint, order 2": "tab:blue",
    "composition, order 4": "k",
    "composition, order 6": "tab:green",
    "Galerkin, order 6": "tab:pink",
    "Galerkin, order 8": "tab:purple",
    "explicit Runge-Kutta 4": "tab:cyan",
    "MuJoCo Euler": "tab:orange",
    "MuJoCo RK4": "tab:red",
    "scipy RK45": "tab:olive",
    "scipy DOP853": "tab:brown",
}


def draw(curves: Mapping[str, Any], folder: Path) -> list[Path]:
    """Write the pictures that these curves are enough for; returns their paths."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    drawers: dict[str, Callable[[Any], Any]] = {
        "steps": draw_steps,
        "work-precision": draw_work_precision,
        "optimizers": draw_optimizers,
    }
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, drawer in drawers.items():
        if name in curves:
            figure = drawer(curves[name])
            path = folder / f"benchmark_{name.replace('-', '_')}.png"
            figure.savefig(path, dpi=130)
            plt.close(figure)
            written.append(path)
    return written


def draw_steps(data: Mapping[str, Any]) -> Any:
    """Time of a step over the number of links."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(6.5, 4.2), layout="constrained")
    for i, (name, us) in enumerate(data["us"].items()):
        ours = name in ("virtual", "compiled")
        label = f"vioc midpoint, {name}" if ours else name
        axes.loglog(
            data["links"][: len(us)],
            us,
            "o-" if ours else "s--",
            color=COLORS.get(name, f"C{i}"),
            label=label,
            ms=4,
        )
    axes.set(xlabel="links", ylabel="time of a step [us]", title="N-link pendulum, dt = 0.01 s")
    axes.grid(alpha=0.3, which="both")
    axes.legend(fontsize=8)
    return figure


def draw_work_precision(data: Mapping[str, Any]) -> Any:
    """CPU time over the energy error, the trajectory error, and the energy error of a long run."""
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(1, 3, figsize=(13, 4.2), layout="constrained")
    shown = ((data["points"], 1), (data["points"], 2), (data["long"], 1))
    for axes, (curves, column) in zip(panels, shown, strict=True):
        for name, points in curves.items():
            style = "o-" if "order" in name else "s--" if "MuJoCo" in name else "^:"
            errors, times = [p[column] for p in points], [p[0] for p in points]
            axes.plot(errors, times, style, color=COLORS[name], label=name, ms=4)
        axes.set(xscale="log", yscale="log")
        axes.invert_xaxis()
        axes.grid(alpha=0.3)
    panels[0].set(xlabel="max |E - E0| / |E0|", ylabel="CPU time [ms]", title="energy, 20 s")
    panels[1].set(xlabel="largest error of q at 20 s [rad]", title="trajectory, 20 s")
    panels[2].set(xlabel="max |E - E0| / |E0|", title="energy, 1000 s")
    figure.legend(*panels[0].get_legend_handles_labels(), fontsize=8, loc="outside right upper")
    figure.suptitle(f"{data['links']}-link pendulum; vioc: {data['backend']}")
    return figure


def draw_optimizers(data: Mapping[str, Any]) -> Any:
    """Total times of optimizations."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 3.6), layout="constrained")
    labels, values, colors = [], [], []
    for problem, figures in reversed(list(data.items())):
        for solver, ms in reversed(list(figures.items())):
            labels.append(f"{problem}: {solver}")
            values.append(ms)
            colors.append(COLORS.get(solver.removeprefix("vioc, "), "0.7"))
    bars = axes.barh(labels, values, color=colors)
    axes.bar_label(bars, fmt="%.3g", padding=3, fontsize=8)
    axes.set(xscale="log", xlabel="total time [ms]")
    axes.set_xlim(min(values) / 3, 2 * max(values))
    axes.tick_params(axis="y", labelsize=8)
    return figure
