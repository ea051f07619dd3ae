"""Plot of the entries of a feedback gain matrix over time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from vioc.names import by_name
from vioc.viz.plots.style import curve, legend, panels
from vioc.viz.plots.units import label, per

if TYPE_CHECKING:
    from vioc.control.regulators.lqr import Regulator


def plot_gains(regulator: Regulator, *names: str, ax: Any = None) -> Any:
    """Plot the entries of a feedback gain K over time, with one panel for each input.

    u = u_d - K difference(x_d, x).

    Parameters
    ----------
    regulator : Regulator
    *names : str
        Names of states (error coordinates); default all.
    ax : one matplotlib Axes per input, optional

    Returns
    -------
    Array of Axes, one per input.

    Raises
    ------
    ModelError
        If a name is unknown.
    ValueError
        If the gain is constant.
    """

    f, K = regulator.map, regulator.K
    if K.ndim != 3:
        raise ValueError(f"expected gains over time (N, nu, ndx), got K of shape {K.shape}: it is constant")
    known = f.space.error_names
    names = tuple(by_name(dict.fromkeys(names), known, "gains")) or known
    labels = {
        driver: [label(n, per(f.unit(f"u.{driver}"), f.unit(n))) for n in names] for driver in f.input_names
    }
    axes = panels(f.nu, ax, names=f.input_names, labels=list(labels.values()))
    for i, (panel, driver) in enumerate(zip(axes, f.input_names, strict=True)):
        for name, text in zip(names, labels[driver], strict=True):
            curve(panel, regulator.reference.t, K[:, i, known.index(name)], text)
        panel.set_ylabel(f"gains of {driver}")
        legend(panel)
    axes[-1].set_xlabel("t (s)")
    return np.array(axes)
