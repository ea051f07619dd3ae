"""Plots of frequency responses, of poles and of feedback gains.

Frequency responses reach up to the Nyquist frequency.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from vioc.names import by_name
from vioc.viz.plots.style import curve, legend, panels
from vioc.viz.plots.units import label, per

if TYPE_CHECKING:
    from vioc.control.analysis.frequency import FrequencyResponse
    from vioc.control.regulators.lqr import Regulator

DEADBEAT = 1e-3  # poles of motions that end within a step or two
DAMPING = (0.1, 0.3, 0.5, 0.7, 0.9)
ROUNDING = 1e-15  # relative to the largest value: smaller values count as zeros of G
HALF_TURN = 20.0  # degrees: tolerance within which a jump of the phase counts as half a turn


def plot_frequency_response(
    response: FrequencyResponse,
    output: str | None = None,
    input: str | None = None,
    *,
    scales: Any = 1.0,
    input_scales: Any = 1.0,
    ax: Any = None,
) -> Any:
    """Plot magnitude and phase of a frequency response, or its singular values.

    The Nyquist frequency is dashed.

    Parameters
    ----------
    response : FrequencyResponse
    output, input : str, optional
        May be omitted if there is only one. If there are several and both are omitted, singular values
        are drawn.
    scales, input_scales
        Scales of singular values, as in `FrequencyResponse.singular_values`.
    ax : matplotlib Axes, optional
        Two for magnitude and phase, one for singular values.

    Returns
    -------
    Array of Axes: two of magnitude and phase, one of singular values.

    Raises
    ------
    ValueError
        For an unknown name, or a missing one if there are several.

    Notes
    -----
    The transfer matrix G(z) = C (z I - A)^-1 B at z = exp(2 pi i f h), for inputs that are constant over each
    step of length h, is exact up to the Nyquist frequency f = 1/(2 h) (Oppenheim and Schafer, Discrete-Time
    Signal Processing, ch. 5). Magnitudes are in decibels, 20 log10 |G| in SI units, and phases are unwrapped.
    Singular values (Skogestad and Postlethwaite, Multivariable Feedback Control, 3.3) depend on units: give
    `scales`. About an unstable equilibrium the response cannot be measured, but it determines the margins of
    a closed loop. If the mechanism has constraints, A, B and C are those on the constraint manifold.
    """
    single = response.values.shape[1:] == (1, 1)
    if output is None and input is None and not single:
        return _singular(response, response.singular_values(scales, input_scales), ax)
    G = response.of(output, input)
    output, input = response.pair(output, input)
    unit = per(response.units.get(output, ""), response.units.get(input, ""))
    axes = panels(2, ax, names=("magnitude", "phase"))
    axes[0].semilogx(response.frequencies, _decibel(np.abs(G)), lw=1.5, label=f"{input} to {output}")
    axes[1].semilogx(response.frequencies, _phase(G), lw=1.5)
    axes[0].set_ylabel(f"|{output} / {input}|\n(dB{f' of {unit}' if unit else ''})")
    axes[1].set_ylabel("phase (°)")
    axes[1].yaxis.get_major_locator().set_params(steps=[1, 1.5, 3, 4.5, 9, 10])
    _finish(response, axes)
    return np.array(axes)


def _singular(response: FrequencyResponse, values: np.ndarray, ax: Any) -> Any:
    (axes,) = panels(1, ax)
    for i, row in enumerate(values.T):
        axes.semilogx(response.frequencies, _decibel(row), lw=1.5, label=rf"$\sigma_{{{i + 1}}}$")
    axes.set_ylabel("singular values (dB)")
    _finish(response, [axes])
    legend(axes)
    return np.array([axes])


def _finish(response: FrequencyResponse, axes: list[Any]) -> None:
    for panel in axes:
        panel.axvline(0.5 / response.dt, color="0.4", ls="--", lw=0.8)
    axes[-1].set_xlabel(f"frequency (Hz); dashed: Nyquist, {0.5 / response.dt:g} Hz")


def _decibel(size: np.ndarray) -> np.ndarray:
    finite = np.isfinite(size)
    mask = finite & (size > ROUNDING * size[finite].max(initial=0.0))
    logarithms: np.ndarray = np.log10(size, where=mask, out=np.full_like(size, np.nan))
    return 20 * logarithms


def _phase(G: np.ndarray) -> np.ndarray:
    """Return the phase of a frequency response, degrees, unwrapped over frequency.

    A jump by half a turn falls at a peak and rises at a dip, as with little damping.
    """
    finite = np.flatnonzero(np.isfinite(G))
    phase, size = np.degrees(np.unwrap(np.angle(G[finite]))), np.abs(G[finite])
    for k in np.flatnonzero(np.abs(np.abs(np.diff(phase)) - 180) < HALF_TURN):
        peak = max(size[k], size[k + 1]) > 2 * min(size[max(k - 3, 0)], size[min(k + 4, len(size) - 1)])
        if peak == (phase[k + 1] > phase[k]):
            phase[k + 1 :] += -360.0 if peak else 360.0
    result = np.full(len(G), np.nan)
    result[finite] = phase
    return result


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
