"""Plots of the frequency response of a discrete map, up to the Nyquist frequency."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from vioc.viz.plots.style import legend, panels
from vioc.viz.plots.units import per

ROUNDING = 1e-15  # relative to the largest value: smaller values count as zeros of G
HALF_TURN = 20.0  # degrees: tolerance within which a jump of the phase counts as half a turn

if TYPE_CHECKING:
    from vioc.control.analysis.frequency import FrequencyResponse


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
