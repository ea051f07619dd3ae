"""Frequency responses about an equilibrium, up to the Nyquist frequency.

Maths: docs/pictures.md#what-is-drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from vioc.checks import as_floats, as_names, check_array, few
from vioc.control.linear.linear_system import linear_system, sizes
from vioc.drawing import plots
from vioc.maps.protocol import OneStepMap
from vioc.names import INPUTS, by_name, meaning

DECADES, POINTS = 4, 400  # span and number of the grid's frequencies below the Nyquist frequency
NEAR = np.concatenate([-(10.0 ** -np.arange(1, 5)), 10.0 ** -np.arange(4.0, 0, -1)])  # near a resonance


@dataclass(frozen=True)
class FrequencyResponse:
    """Frequency response of a discrete-time system with step length dt.
    It is the transfer matrix G(z) at z = exp(2 pi i f dt), as a function of the frequency f.

    Attributes
    ----------
    frequencies : (n,)
        In Hz, increasing, up to 1/(2 dt).
    values : (n, p, m), complex
        SI units; infinite exactly at a pole.
    outputs, inputs : tuple of p str, tuple of m str
    dt : float
        s.
    units : dict of str to str
        Units of outputs and inputs, if known.
    """

    frequencies: np.ndarray = field(repr=False)
    values: np.ndarray = field(repr=False)
    outputs: tuple[str, ...]
    inputs: tuple[str, ...]
    dt: float
    units: dict[str, str] = field(repr=False)

    @staticmethod
    def from_matrices(A: Any, B: Any, C: Any, dt: float, *, frequencies: Any = None) -> FrequencyResponse:
        """Return the frequency response of the linear system z+ = A z + B v, y = C z.
        z is the state, v the input, y the output, and dt the step length in s.

        `frequencies` are as in `frequency_response`.

        Raises
        ------
        ValueError
            Wrong shapes or frequencies, a step that is not positive.
        """
        A, B, C = (np.atleast_2d(as_floats(M, n)) for M, n in ((A, "A"), (B, "B"), (C, "C")))
        n = len(A)
        A = check_array(A, (n, n), "A")
        B, C = check_array(B, (n, B.shape[1]), "B"), check_array(C, (len(C), n), "C")
        if not dt > 0:
            raise ValueError(f"dt: expected a step > 0 s, got {dt}")
        grid = _grid(A, dt) if frequencies is None else _checked(frequencies, dt)
        outputs, inputs = (tuple(f"{k}{i}" for i in range(m)) for k, m in (("y", len(C)), ("v", B.shape[1])))
        return FrequencyResponse(grid, transfer(A, B, C, grid * dt), outputs, inputs, dt, {})

    def of(self, output: str | None = None, input: str | None = None) -> np.ndarray:
        """Return the complex response of one output to one input, at all frequencies.

        A name may be omitted if there is only one.
        """
        output, input = self.pair(output, input)
        return self.values[:, self.outputs.index(output), self.inputs.index(input)]

    def pair(self, output: str | None = None, input: str | None = None) -> tuple[str, str]:
        """Return the full names of an output and an input of the response.
        A name may be omitted if there is only one.
        """
        return _one(output, self.outputs, "output"), _one(input, self.inputs, "input", INPUTS)

    def singular_values(self, scales: Any = 1.0, input_scales: Any = 1.0) -> np.ndarray:
        """Return the singular values of the response at each frequency, the largest first.
        Outputs and inputs are divided by `scales` and `input_scales`.

        The shape is (n, min(p, m)).

        Parameters
        ----------
        scales, input_scales : float, array or dict of str to float
            Sizes of outputs and inputs that count as 1; 1 SI unit where not named.
        """
        out = sizes(scales, self.outputs, "scales")
        into = sizes(input_scales, self.inputs, "input_scales", INPUTS)
        scaled = self.values * into / out[:, None]
        result = np.full((len(scaled), min(scaled.shape[1:])), np.inf)
        finite = np.isfinite(scaled).all(axis=(1, 2))
        result[finite] = np.linalg.svd(scaled[finite], compute_uv=False)
        return result

    def plot(
        self, output: str | None = None, input: str | None = None, *, ax: Any = None, **scales: Any
    ) -> Any:
        """Plot magnitude and phase of the response of one output to one input.
        The singular values are plotted instead if there are several outputs or inputs and neither `output`
        nor `input` is given. Return the axes.
        """
        return plots().plot_frequency_response(self, output, input, ax=ax, **scales)

    def __repr__(self) -> str:
        span = f"{self.frequencies[0]:.3g} .. {self.frequencies[-1]:.3g} Hz"
        pairs = f"{few(self.inputs)} to {few(self.outputs)}"
        return f"FrequencyResponse({pairs}; {len(self.frequencies)} frequencies, {span})"


def frequency_response(
    f: OneStepMap,
    about: Any,
    outputs: Any,
    *,
    inputs: str | Sequence[str] | None = None,
    frequencies: Any = None,
    manifold: bool | None = None,
    gain: Any = None,
) -> FrequencyResponse:
    """Return the frequency response of a discrete-time map about an equilibrium.
    It is C (zI - A)^-1 B at points z of the unit circle. A and B are the Jacobians of the map with respect to
    state and input, and C is that of the outputs with respect to the state.

    Inputs are constant over a step.

    Parameters
    ----------
    f : OneStepMap
    about : equilibrium (x, u), or an object with `x` (nx,) and `u` (nu,)
    outputs : name, names, or (p, ndx)
        Quantities of the state, or the matrix C.
    inputs : names, optional
        Default all.
    frequencies : (n,), optional
        Hz, positive, up to 1/(2 dt); default: 400 over four decades below that, and more near each
        resonance.
    manifold : bool, optional
        As in `modes`.
    gain : SteadyRegulator, or (nu, ndx), optional
        Gain of a feedback u = u_d - K dx; the result is the closed loop's response to additional inputs.

    Returns
    -------
    FrequencyResponse

    Raises
    ------
    ValueError
        Not an equilibrium, wrong names, shapes, frequencies.
    """
    if f.nu == 0:
        raise ValueError("frequency_response: the map has no inputs")
    system = linear_system(f, about, manifold, idle=True)
    if not system.steady:
        raise ValueError(
            "frequency_response: expected an equilibrium, a trajectory has no frequencies of its own"
        )
    used = f.input_names
    if inputs is not None:
        used = tuple(
            by_name(dict.fromkeys(as_names(inputs, "inputs")), f.input_names, "inputs", prefix=INPUTS)
        )
    A, B = system.A[0], system.B[0]
    C, names = system.output_matrices(outputs)
    if gain is not None:
        A = A - B @ check_array(getattr(gain, "K", gain), (f.nu, f.ndx), "gain") @ system.T[0]
    B = B[:, [f.input_names.index(name) for name in used]]
    grid = _grid(A, f.dt) if frequencies is None else _checked(frequencies, f.dt)
    units = {n: f.unit(n) for n in names} | {n: f.unit(INPUTS + n) for n in used}
    return FrequencyResponse(grid, transfer(A, B, C[0], grid * f.dt), names, used, f.dt, units)


def transfer(A: np.ndarray, B: np.ndarray, C: np.ndarray, turns: np.ndarray) -> np.ndarray:
    """Return the transfer matrix C (zI - A)^-1 B at points z of the unit circle.
    The points are z = exp(2 pi i turns). The shape is (n, p, m) for n points, p outputs and m inputs, with
    inf at a pole.
    """
    result = np.empty((len(turns), len(C), B.shape[1]), complex)
    for k, z in enumerate(np.exp(2j * np.pi * turns)):
        try:
            result[k] = C @ np.linalg.solve(z * np.eye(len(A)) - A, B)
        except np.linalg.LinAlgError:
            result[k] = np.inf
    return result


def _grid(A: np.ndarray, dt: float) -> np.ndarray:
    """Return frequencies for a frequency response, denser near resonances.
    They cover four decades up to the Nyquist frequency 1/(2 dt). The resonances follow from the
    eigenvalues of the system matrix A.
    """
    top = 0.5 / dt
    poles = np.linalg.eigvals(A)
    peaks = np.abs(np.angle(poles[np.abs(poles) > 1e-6])) / (2 * np.pi * dt)
    neighbours = (peaks[:, None] * (1 + NEAR)).ravel()
    neighbours = neighbours[(neighbours > top * 10.0**-DECADES) & (neighbours < top)]
    return np.unique(np.concatenate([np.geomspace(top * 10.0**-DECADES, top, POINTS), neighbours]))


def _checked(frequencies: Any, dt: float) -> np.ndarray:
    grid = np.atleast_1d(np.asarray(frequencies, float))
    grid = np.sort(check_array(grid, grid.shape, "frequencies"))
    top = 0.5 / dt
    if grid.ndim != 1 or not len(grid) or not grid[0] > 0 or grid[-1] > top * (1 + 1e-12):
        raise ValueError(
            f"frequencies: expected numbers (n,) above 0, up to that of Nyquist, 1/(2 dt) = {top:g} Hz, "
            f"got {grid.min(initial=np.nan):g} .. {grid.max(initial=np.nan):g} Hz"
        )
    return grid


def _one(name: str | None, names: tuple[str, ...], what: str, prefix: str = "") -> str:
    if name is None:
        if len(names) > 1:
            raise ValueError(f"{what}: expected one of {', '.join(names)}: there are {len(names)}")
        return names[0]
    return meaning(name, names, what, prefix=prefix)
