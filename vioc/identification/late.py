"""Delayed input signals: their values in each step, and derivatives.
The derivatives are with respect to the delay.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from vioc.runs.signals import first_knot, sample

NODES, WEIGHTS = np.array([-1.0, -(0.2**0.5), 0.2**0.5, 1.0]), np.array([1.0, 5.0, 5.0, 1.0]) / 6  # Lobatto's
CLOSE, HALVINGS = 1e-9, 40  # error of a function's mean, over its largest value; a jump takes 30 halvings
BACK = 1e-4  # interval of a function's difference quotient, over the step length


class Late:
    """Input signal that acts on the mechanism with a delay.

    See (ID-6).

    Parameters
    ----------
    value : float, (K-1,), (K,) or function of time
        Signal as in `Record`. Before the first sample or knot, numbers and splines keep their first value;
        a function is evaluated.
    t : (K,)
        Times of the samples, s.
    what : str
        Name of the signal in messages.
    """

    def __init__(self, value: Any, t: np.ndarray, what: str):
        self.function, self.what, self.t = value if callable(value) else None, what, t
        if self.function is not None:
            known = first_knot(value)
            self._first = -np.inf if known is None else known
            return
        values = np.full(len(t), float(value)) if np.ndim(value) == 0 else value
        gaps = np.diff(t)
        self._starts = values[: len(gaps)]
        self._slopes = np.diff(values) / gaps if len(values) == len(t) else np.zeros(len(gaps))
        areas = gaps * (self._starts + gaps * self._slopes / 2)
        self._areas = np.concatenate([[0.0], np.cumsum(areas)])

    def means(self, ends: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the means (N,) of the delayed signal over N steps, and their derivatives.
        The derivatives (N,) are with respect to the delay. The steps are between the times `ends` (N+1,), s,
        from which the delay has been subtracted.
        """
        lengths = np.diff(ends)
        if self.function is not None:
            return self._quadrature(ends[:-1], ends[1:]) / lengths, -np.diff(self._signal(ends)) / lengths
        i, past, value = self._interpolation(ends)
        clipped_ends = np.clip(ends, *self.t[[0, -1]])
        area = (
            self._areas[i]
            + past * (self._starts[i] + past * self._slopes[i] / 2)
            + value * (ends - clipped_ends)
        )
        return np.diff(area) / lengths, -np.diff(value) / lengths

    def values(self, ends: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the delayed signal's values (N,) at the ends of steps, and derivatives.
        The derivatives (N,) are with respect to the delay. The steps are between the times `ends` (N+1,), s,
        from which the delay has been subtracted.
        """
        if self.function is not None:
            now, step = self._signal(ends[1:]), BACK * np.diff(ends)
            return now, (self._signal(ends[1:] - step) - now) / step
        i, _, value = self._interpolation(ends[1:])
        within = (ends[1:] >= self.t[0]) & (ends[1:] <= self.t[-1])
        return value, -self._slopes[i] * within

    def _interpolation(self, times: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the value of the sampled signal at each of the given times.
        Also return the index of the last sample before each time, and the time since that sample.

        Before the first sample, the first sample is used.
        """
        near = np.clip(times, *self.t[[0, -1]])
        i = np.clip(np.searchsorted(self.t, near, side="right") - 1, 0, len(self._starts) - 1)
        past = near - self.t[i]
        return i, past, self._starts[i] + self._slopes[i] * past

    def _signal(self, times: np.ndarray) -> np.ndarray:
        """Return the values at given times of a signal that is a function of time."""
        return sample(self.function, np.maximum(times, self._first).ravel(), self.what).reshape(times.shape)

    def _lobatto(self, a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, float]:
        """Return the signal's integrals from times a to times b, by Lobatto quadrature.

        The integrals are (n,); the second result is the largest value at the nodes. The nodes include the
        ends, so a jump between them is detected.
        """
        half = (b - a) / 2
        u = self._signal((a + half)[:, None] + half[:, None] * NODES)
        return half * (u @ WEIGHTS), float(np.abs(u).max(initial=0.0))

    def _quadrature(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Return the signal's integrals (n,) from times a to times b, adaptively."""
        total, step, which = np.zeros(len(a)), b - a, np.arange(len(a))
        whole, largest = self._lobatto(a, b)
        for _ in range(HALVINGS):
            middle = (a + b) / 2
            (left, most), (right, more) = self._lobatto(a, middle), self._lobatto(middle, b)
            largest = max(largest, most, more)
            off = np.abs(left + right - whole) > CLOSE * largest * step[which]
            np.add.at(total, which[~off], (left + right)[~off])
            a, b = np.r_[a[off], middle[off]], np.r_[middle[off], b[off]]
            whole, which = np.r_[left[off], right[off]], np.r_[which[off], which[off]]
            if not len(which):
                break
        np.add.at(total, which, whole)
        return total
