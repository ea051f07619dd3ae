"""Poles of a compensator, which is a feedback law with an observer.
Its inputs are the measurements, and its outputs are the inputs of the plant.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from vioc.control.feedback.configurations import ConfigurationObserver
from vioc.control.feedback.kalman import ExtendedKalmanFilter, KalmanFilter, kalman
from vioc.control.feedback.offset_free import OffsetFree
from vioc.control.feedback.scheduled import LimitedLaw, ScheduledLaw
from vioc.control.regulators.law import StateLaw
from vioc.errors import OptimizationError
from vioc.maps.protocol import OneStepMap

Point = tuple[np.ndarray, np.ndarray, np.ndarray]  # x, u, K
CBRT_EPS = float(np.cbrt(np.finfo(float).eps))
UNSTABLE = 1 + 1e-7  # magnitude of unstable poles: double ones of integrators are 1 to the root of rounding


def unstable_poles(f: OneStepMap, law: Any, observer: Any) -> np.ndarray:
    """Return a compensator's poles outside of the unit circle, the largest first.

    A compensator is a law with its observer. It is linearized about the points to which its law regulates.
    With the gains K of the law and L of the observer, the estimate before a measurement follows

        x^[k+1] = (A - B K) (I - L C) x^[k] + (A - B K) L y[k],

    which may be unstable although the closed loop is stable. The result is empty if gains change: for a law
    along a trajectory, a receding horizon, a filter that is not steady.
    """
    eigenvalues = [np.zeros(0, complex)]
    for x, u, K in _points(f, law):
        M = _without_plant(f, observer, x, u, K)
        eigenvalues.append(np.linalg.eigvals(M).astype(complex) if len(M) else eigenvalues[0])
    poles = np.concatenate(eigenvalues)
    poles = poles[np.abs(poles) > UNSTABLE]
    return poles[np.lexsort((-poles.imag, -np.abs(poles)))]


def _points(f: OneStepMap, law: Any) -> Iterator[Point]:
    """Yield each operating point (x, u) of a feedback law, with its gain matrix."""
    law = law.law if isinstance(law, LimitedLaw) else law
    offsets = np.zeros((f.nu, 0))
    if isinstance(law, OffsetFree):
        constants = f.nx - law.map.inner.nx
        offsets, law = law.map.input_disturbance(np.eye(constants)).T, law.law
    if isinstance(law, ScheduledLaw):
        rows = range(len(law.U))
    elif isinstance(law, StateLaw) and law.after == "holds":
        rows = range(len(law.U) - 1, len(law.U))
    else:
        return
    for i in rows:
        x = law.X[i] if f.nx == len(law.X[i]) else f.join(law.X[i])  # type: ignore[attr-defined]
        K = np.zeros((f.nu, f.ndx))
        n = law.K.shape[2]
        K[:, :n], K[:, n : n + offsets.shape[1]] = law.K[i], offsets
        yield x, law.U[i], K


def _without_plant(f: OneStepMap, observer: Any, x: np.ndarray, u: np.ndarray, K: np.ndarray) -> np.ndarray:
    """Return the state matrix of a compensator, an observer with a feedback law.
    The plant is not part of this system. K is the gain of the law at the operating point (x, u). The matrix
    has no rows if the compensator has no memory, or if its gains change.
    """
    if isinstance(observer, ConfigurationObserver):  # its memory is the input, from which momenta follow
        q = x[: len(f.mechanism.configurations)]
        columns = []
        for i, step in enumerate(CBRT_EPS * (1 + np.abs(u))):
            e = step * np.eye(f.nu)[i]
            plus, minus = (f.state_from_configurations(q, q, v) for v in (u + e, u - e))
            columns.append((plus - minus) / (2 * step))
        return -K @ np.array(columns).T
    if isinstance(observer, ExtendedKalmanFilter) and observer.measurement.always:
        try:
            observer = kalman(f, (x, u), observer.measurement, observer.W, W_u=observer.W_u)
        except (OptimizationError, ValueError):
            return np.zeros((0, 0))  # no steady filter at this point
    if not isinstance(observer, KalmanFilter) or not observer.steady:
        return np.zeros((0, 0))
    A, B = f.linearize(x, u)
    C = observer.measurement.jacobian(x)
    return (A - B @ K) @ (np.eye(f.ndx) - observer.L[0] @ C)
