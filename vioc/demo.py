"""Demonstration: swing-up of a cart-pole by optimization and feedback.

The feedback starts from a disturbed state; the motion is drawn.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

import vioc

if TYPE_CHECKING:
    from vioc import Trajectory
    from vioc.control import Result

DURATION = 2.0  # s, of the swing-up
BALANCE = 2.0  # s, held upright afterwards
DISTURBANCE = {"x": 0.1, "theta": np.pi + 0.3}


def swing_up(out: str | os.PathLike = "out", *, quick: bool = False) -> Result:
    """Swing up a cart-pole, balance it, and write plots and results to a folder.

    Parameters
    ----------
    out : path
        Folder for swingup.png, convergence.png, swingup.gif and swingup.npz; created if missing.
    quick : bool
        Whether to take steps of 0.04 s instead of 0.01 s, and make no animation.
    """
    out = Path(out)
    out.mkdir(parents=True, exist_ok=True)

    print(f"Cart-pole: from hanging to upright in {DURATION:g} s with a force on the cart")
    before = time.perf_counter()
    f = vioc.MidpointVI(vioc.models.load("cart_pole"), dt=0.04 if quick else 0.01)
    cost = vioc.control.quadratic(
        f,
        Q={"x": 0.1, "theta": 0.1, "v.x": 0.01, "v.theta": 0.01},
        R={"force": 0.01},
        Qf={"x": 1e3, "theta": 1e3, "v.x": 1e2, "v.theta": 1e2},
    )
    hanging, upright = f.initial_state({"theta": np.pi}), f.initial_state()
    steps = round(DURATION / f.dt)
    guess = vioc.control.straight_line(hanging, upright, steps), np.zeros((steps, f.nu))
    best = vioc.control.optimize(f, cost, guess, monitor=True)
    print(f"{time.perf_counter() - before:.2f} s, building the functions included\n")

    Q, R = {"x": 100.0, "theta": 100.0, "p.x": 1.0, "p.theta": 1.0}, 1.0
    balance = vioc.control.dlqr(f, (upright, None), Q, R)
    follow = best.stabilize(Q, R, Qf=balance.P).hold(upright)  # its P at the end avoids a jump of gains
    start = f.initial_state(DISTURBANCE)
    loop = follow.rollout(start, steps + round(BALANCE / f.dt))
    print(
        f"Feedback about it, started {DISTURBANCE['x']:g} m and {DISTURBANCE['theta'] - np.pi:.1f} rad away, "
        f"ends {abs(loop['x'][-1]):.1e} m and {abs(loop['theta'][-1]):.1e} rad from upright"
    )

    written = [best.trajectory.save(out / "swingup.npz"), _draw(best.trajectory, loop, out / "swingup.png")]
    written.append(_draw_convergence(best, out / "convergence.png"))
    if not quick:
        written.append(vioc.viz.animate(loop, out / "swingup.gif", fps=25))
    print("wrote " + ", ".join(map(str, written)))
    return best


def _draw(best: Trajectory, loop: Trajectory, path: Path) -> Path:
    import matplotlib.pyplot as plt

    panels = {"x": "x (m)", "theta": "theta (rad)", "u.force": "force (N)"}
    figure, rows = plt.subplots(len(panels), 1, sharex=True, figsize=(6.4, 6.4), layout="constrained")
    for axes, (name, label) in zip(rows, panels.items(), strict=True):
        for run, which in ((loop, "with feedback, disturbed start"), (best, "optimum")):
            values = run[name]
            is_input = len(values) == len(run)
            axes.plot(run.t[: len(values)], values, drawstyle="steps-post" if is_input else None, label=which)
        axes.set_ylabel(label)
        axes.axvline(best.t[-1], color="0.6", ls=":", lw=1)
        axes.grid(alpha=0.3)
    rows[0].legend(loc="upper right")
    rows[-1].set_xlabel("t (s)")
    figure.align_ylabels(rows)
    figure.savefig(path, dpi=150)
    plt.close(figure)
    return path


def _draw_convergence(best: Result, path: Path) -> Path:
    import matplotlib.pyplot as plt

    axes = vioc.viz.plot_convergence(best.history.cost, best.history.descent)
    axes.figure.savefig(path, dpi=150)
    plt.close(axes.figure)
    return path
