"""Plot of the poles of a discrete-time system in the complex plane of z."""

from __future__ import annotations

from typing import Any

import numpy as np

from vioc.viz.plots.style import legend, panels

DEADBEAT = 1e-3  # poles of motions that end within a step or two
DAMPING = (0.1, 0.3, 0.5, 0.7, 0.9)


def plot_poles(poles: Any, *, ax: Any = None) -> Any:
    """Plot poles with the unit circle and with curves of constant damping ratio.

    If short steps bring all poles near to 1, only its neighbourhood is shown. The ratios are 0.1, 0.3,
    ... 0.9.

    Parameters
    ----------
    poles : Modes, SteadyRegulator, Equilibrium, (n,) complex, or a dict of str to such
        A dict has a legend, ``{"open loop": modes(f, eq), "closed loop": loop}``.
    ax : matplotlib Axes, optional

    Returns
    -------
    Axes
    """
    named = poles if isinstance(poles, dict) else {"": poles}
    eigenvalues = {name: _values(item) for name, item in named.items()}
    (axes,) = panels(1, ax, labels=[list(named)], size=(5.2, 4.8))
    angle = np.linspace(0, np.pi, 200)
    axes.plot(np.cos(2 * angle), np.sin(2 * angle), color="0.4", lw=1)
    for zeta in DAMPING:  # lambda = w (-zeta + i sqrt(1 - zeta^2)), up to Nyquist
        w = angle / np.sqrt(1 - zeta**2)
        z = np.exp(w * (-zeta + 1j * np.sqrt(1 - zeta**2)))
        for side in (z, z.conj()):
            axes.plot(side.real, side.imag, ":", color="0.7", lw=0.7, zorder=1)
    for i, (name, values) in enumerate(eigenvalues.items()):
        axes.plot(values.real, values.imag, "x+*s"[i % 4], color=f"C{i}", ms=7, label=name or "_", zorder=3)
    everything = np.concatenate(list(eigenvalues.values()))
    axes.set(xlabel="Re z", ylabel="Im z", aspect="equal")
    _zoom(axes, everything)
    legend(axes)
    return axes


def _zoom(axes: Any, poles: np.ndarray) -> None:
    """Set axes limits that show z = 1 and the poles, except poles near z = 0.
    If the poles are far from each other or from 1, show the whole unit circle and all poles.
    """
    around = np.append(poles[np.abs(poles) > DEADBEAT], 1.0)
    middle = (around.real.min() + around.real.max()) / 2
    half = 1.3 * max(np.ptp(around.real) / 2, np.abs(around.imag).max(), 0.02)
    if half > 0.5:
        middle, half = 0.0, 1.08 * max(1.0, np.abs(poles).max(initial=0.0))
    axes.set(xlim=(middle - half, middle + half), ylim=(-half, half))


def _values(item: Any) -> np.ndarray:
    item = getattr(item, "modes", item) if not hasattr(item, "eigenvalues") else item
    for name in ("eigenvalues", "poles"):
        if hasattr(item, name):
            return np.asarray(getattr(item, name), complex)
    return np.asarray(item, complex).ravel()
