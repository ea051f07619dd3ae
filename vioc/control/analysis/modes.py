"""Modes of equilibria and Floquet multipliers of periodic trajectories.

Mode shapes are given by state name. Maths: docs/maths/analysis.md.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import matrix_balance, qr

from vioc.checks import check_array
from vioc.control.linear.circle import KNOWN, natural_units, sides, verdict
from vioc.control.linear.linear_system import LinearSystem, check_closed, linear_system
from vioc.drawing import plots
from vioc.maps.protocol import OneStepMap
from vioc.runs.given import trajectory_of
from vioc.runs.trajectory import Trajectory

STILL = 1e-9  # relative singular values of A - 1 in natural units below which a step changes nothing
CLEAR = 1e4  # ratio of the singular values above and below this threshold that is certainly sufficient
DEADBEAT = 1e-7  # smaller eigenvalues decay within a step or two: rates of prescribed motions, artefacts


class Mode(NamedTuple):
    """Mode of a linearized map: one real eigenvalue, or a conjugate pair.

    Attributes
    ----------
    eigenvalue : complex
        Eigenvalue s, of a pair the one with positive imaginary part; over a period for a Floquet multiplier.
    frequency : float
        In Hz.
    damping_ratio : float
        -Re lambda/|lambda| with lambda = log(s)/dt; negative for growth, nan for s = 1.
    time_constant : float
        -1/Re lambda, s: time constant of the decay, negative for growth; inf on the unit circle.
    shape : dict of str to complex
        Right eigenvector by state, SI units; the largest component is 1.
    stability : str
        ``"decays"``, ``"grows"`` or ``"marginal"``: not distinguishable from the unit circle within the
        error of the linearization.
    """

    eigenvalue: complex
    frequency: float
    damping_ratio: float
    time_constant: float
    shape: dict[str, complex]
    stability: str

    def largest(self, count: int = 3) -> dict[str, complex]:
        """Return the largest components of the mode shape, by state."""
        ordered = sorted(self.shape.items(), key=lambda item: -abs(item[1]))
        return {name: value for name, value in ordered[:count] if abs(value) > 1e-6}

    def __str__(self) -> str:
        s = self.eigenvalue
        shape = ", ".join(f"{n} {_number(v)}" for n, v in self.largest().items())
        return (
            f"{_number(s, 6):>22}  {abs(s):>9.6f}  {self.frequency:>9.4g}  {self.damping_ratio:>8.3g}  "
            f"{self.time_constant:>9.3g}  {self.stability:<8}  {shape}"
        )


@dataclass(frozen=True)
class Modes:
    """Modes of a linearized map, the least stable first.

    Attributes
    ----------
    modes : tuple of Mode
        Modes except deadbeat ones (|s| <= 1e-7).
    deadbeat : int
        Number of deadbeat eigenvalues.
    eigenvalues : (r,), complex
        All eigenvalues.
    period : float
        Duration of the trajectory, or the time step, s.
    stability : str
        ``"unstable"``, ``"asymptotically stable"``, or ``"marginal"``: eigenvalues are on the unit circle, or
        so near that rounding hides the side, as for multiple ones; the linearization does not decide.
    stays : tuple of str
        Names of errors that remain constant, since no force restores them: one name for each independent
        direction with A dx = dx.
    drifts : int
        Number of directions in which such errors grow in proportion to time, at a constant rate. Such an
        error and its rate have a double eigenvalue 1, as in free bodies and free joints.
    """

    modes: tuple[Mode, ...] = field(repr=False)
    deadbeat: int
    eigenvalues: np.ndarray = field(repr=False)
    period: float
    stability: str
    stays: tuple[str, ...] = ()
    drifts: int = 0

    def __iter__(self):
        return iter(self.modes)

    def __len__(self) -> int:
        return len(self.modes)

    def __getitem__(self, i: int) -> Mode:
        return self.modes[i]

    @property
    def spectral_radius(self) -> float:
        return float(np.abs(self.eigenvalues).max(initial=0.0))

    def plot(self, *, ax: Any = None) -> Any:
        """Plot the eigenvalues and the unit circle; return the axes."""
        return plots().plot_poles(self, ax=ax)

    def __str__(self) -> str:
        header = f"{'eigenvalue':>22}  {'size':>9}  {'Hz':>9}  {'damping':>8}  {'time [s]':>9}  {'':8}  shape"
        last = f"{self.stability}: largest eigenvalue {self.spectral_radius:.9g}"
        rows = [m for m in self.modes if not self._still(m)]
        if self.stays:
            last += f"; {len(self.stays) + self.drifts} eigenvalues 1 are not listed: no force restores "
            last += ", ".join(self.stays)
            last += f", {self.drifts} of which drift at steady rates" if self.drifts else ""
        if self.deadbeat:
            last += f"; {self.deadbeat} deadbeat eigenvalues (prescribed motions) are not listed"
        return "\n".join([*([header] if rows else []), *map(str, rows), last])

    def _still(self, mode: Mode) -> bool:
        nearest = np.sort(np.abs(self.eigenvalues - 1))[: len(self.stays) + self.drifts]
        return bool(len(nearest) and abs(mode.eigenvalue - 1) <= nearest[-1])


def modes(f: OneStepMap, about: Any, *, manifold: bool | None = None, gain: Any = None) -> Modes:
    """Return frequencies, damping and shapes of small motions about an equilibrium.
    These are the modes of the discrete-time map, not of the continuous mechanism.

    Parameters
    ----------
    f : OneStepMap
    about : equilibrium (x, u), or an object with `x` (nx,) and `u` (nu,)
    manifold : bool, optional
        True for errors on the constraint manifold, False for all errors; default: True if there are
        constraints.
    gain : SteadyRegulator, or (nu, ndx), optional
        Gain of a feedback u = u_d - K dx; the result contains the modes of the closed loop.

    Returns
    -------
    Modes
        Print it. A frequency above 1/(2 dt) is aliased.

    Raises
    ------
    ValueError
        Not an equilibrium, wrong shapes.
    """
    if isinstance(trajectory_of(about), Trajectory):
        raise ValueError("modes belong to an equilibrium (x, u); of a periodic trajectory use `floquet`")
    system = linear_system(f, about, manifold)
    x, u, T = system.x[0], system.u[0], system.T[0]
    A, B = system.A[0], system.B[0]
    defect = np.abs(f.difference(x, f.step(x, u))).max() / (1 + np.abs(x).max())
    if gain is not None:
        K = check_array(getattr(gain, "K", gain), (f.nu, f.ndx), "gain") @ T
        A = A - B @ K
    return _modes(A, system, f.dt, defect)


def floquet(f: OneStepMap, trajectory: Trajectory, *, manifold: bool | None = None) -> Modes:
    """Return the Floquet multipliers of a periodic trajectory.

    They are the eigenvalues of the product of the Jacobians A_k of all steps.

    Parameters
    ----------
    f : OneStepMap
    trajectory : Trajectory
        Its last state equals its first state, up to whole turns of wrapped angles.
    manifold : bool, optional
        As in `modes`.

    Returns
    -------
    Modes
        Frequencies and time constants are those of the multipliers over the period. Multipliers smaller
        than 1e-13 of the norm of the product are noise and count as deadbeat.

    Raises
    ------
    ValueError
        If the trajectory does not close; the message names the state with the error.
    """
    trajectory = trajectory_of(trajectory)
    gap = check_closed(f, trajectory)
    system = linear_system(f, trajectory, manifold, closed=True)
    product = np.eye(system.A.shape[-1])
    for A in system.A:
        product = A @ product
    product = system.T[0].T @ system.T[-1] @ product  # back to the first basis of the same space
    return _modes(product, system, float(trajectory.t[-1] - trajectory.t[0]), gap)


def _modes(A: np.ndarray, system: LinearSystem, period: float, defect: float) -> Modes:
    values, vectors = np.linalg.eig(A)
    values = values.astype(complex)
    side = sides(A, values, max(KNOWN, defect))
    noise = max(DEADBEAT, 1e-13 * np.linalg.norm(A, 2)) if len(A) else DEADBEAT
    order = np.argsort(-np.abs(values), kind="stable")
    mode_list = []
    for i in order:
        s = values[i]
        if abs(s) <= noise or s.imag < 0:
            continue
        shape = system.T[0] @ vectors[:, i].astype(complex)
        shape = shape / shape[np.argmax(np.abs(shape))]
        rate = np.log(s) / period
        mode_list.append(
            Mode(
                complex(s),
                float(abs(rate.imag) / (2 * np.pi)),
                float(-rate.real / abs(rate)) if rate != 0 else float("nan"),
                float(-1 / rate.real) if side[i] else float("inf"),
                dict(zip(system.names, map(complex, shape), strict=True)),
                ("marginal", "grows", "decays")[side[i]],
            )
        )
    deadbeat = int((np.abs(values) <= noise).sum())
    return Modes(tuple(mode_list), deadbeat, values, period, verdict(side), *_constant_states(A, system))


def _constant_states(A: np.ndarray, system: LinearSystem) -> tuple[tuple[str, ...], int]:
    """Return the names of states with constant deviations, and the number of drifts.
    Constant deviations are eigenvectors of the system matrix A for the eigenvalue 1. A drift is a deviation
    that grows at a constant rate.
    """
    if not len(A):
        return (), 0
    balanced = matrix_balance(A, permute=False, separate=True)[1][0]
    candidates = [natural_units(A), balanced, np.ones(len(A))]
    decompositions = [(d, np.linalg.svd((A - np.eye(len(A))) * d / d[:, None])) for d in candidates]
    units, (U, sizes, rows) = max(decompositions, key=lambda one: _clarity(one[1][1]))
    small = sizes <= STILL * sizes[0]
    if not small.any():
        return (), 0
    U, kernel = U[:, small], rows[small].T
    # a vector of the kernel orthogonal to the left kernel is in the range of A - 1, so it has a rate
    drifts = int((np.linalg.svd(U.T @ kernel)[1] <= STILL).sum())
    kernel = qr(units[:, None] * kernel, mode="economic")[0]
    pivots = qr((system.T[0] @ kernel).T, mode="r", pivoting=True)[1][: kernel.shape[1]]
    return tuple(system.names[i] for i in sorted(pivots)), drifts


def _clarity(sizes: np.ndarray) -> float:
    """Return how clearly a threshold separates large from small singular values.
    `sizes` are the singular values. The threshold is the constant `STILL` times the largest of them. The
    result is the ratio of the smallest value above to the largest value below the threshold, at most `CLEAR`.
    """
    top = max(sizes[0], 1e-300)
    kept = sizes > STILL * top
    least, rest = sizes[kept].min(initial=top), sizes[~kept].max(initial=np.finfo(float).eps * top)
    return min(least / rest, CLEAR)


def _number(value: complex, digits: int = 3) -> str:
    value = complex(value)
    if abs(value.imag) <= 1e-9 * max(1.0, abs(value.real)):
        return f"{value.real:+.{digits}g}"
    return f"{value.real:+.{digits}g}{value.imag:+.{digits}g}i"
