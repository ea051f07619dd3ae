"""Plot of a measured record and of its prediction by an identified map."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from vioc.viz.plots.style import legend, panels

if TYPE_CHECKING:
    from vioc.identification.identified import Fitted


def plot_fitted(fitted: Fitted, ax: Any = None) -> Any:
    """Plot measured and predicted values, and residuals with two standard deviations.

    Parameters
    ----------
    fitted : Fitted
    ax : array of matplotlib Axes (2, ny), optional

    Returns
    -------
    Array of Axes (2, ny).
    """
    import matplotlib.pyplot as plt

    n, t = len(fitted.names), fitted.record.t
    if ax is None:
        size = (4.5 * n, 5)
        _, ax = plt.subplots(2, n, figsize=size, layout="constrained", sharex=True, squeeze=False)
    axes = np.array(panels(2 * n, ax, grid=False)).reshape(2, n)
    for i, name in enumerate(fitted.names):
        above, below = axes[:, i]
        above.plot(t, fitted.measured[:, i], ".", ms=2, color="0.6", label="measured")
        above.plot(t, fitted.predicted[:, i], lw=1, color="C0", label="predicted")
        unit = fitted.units.get(name, "")
        text = f"{name} ({unit})" if unit else name
        above.set(ylabel=text, title=f"{name}: rms {fitted.rms[name]:.2g}, noise {fitted.std[i]:.2g}")
        below.plot(t, fitted.errors[:, i], ".", ms=2, color="C0")
        below.axhspan(-2 * fitted.std[i], 2 * fitted.std[i], color="C1", alpha=0.2, lw=0)
        below.set(xlabel="t (s)", ylabel=f"predicted - measured{f' ({unit})' if unit else ''}")
        legend(above)
    return axes
