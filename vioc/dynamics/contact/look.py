"""The places of a step, looked for until those that it holds are those where it ends."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from vioc.dynamics.contact.features import MeetingPlaces
from vioc.dynamics.contact.interior import Step
from vioc.dynamics.contact.polytopes import PLACES, SAME

LOOKS = 8  # at the end of a step, of places that hold
ENTERED = 1e-5  # of the size: how deep bodies may enter each other unseen
KEPT = 0.9  # of a depth at the start, at the end
DEEP = 0.1  # of the smaller of two, that a start may have: they come out slowly, no run ends with much less


class Look:
    """The places of a step, looked for where it begins and, where bodies would enter, where it ends.

    Parameters
    ----------
    see : callable
        A state -> `MeetingPlaces` there.
    sizes : (pairs,)
    x : (nx,)
        The state at the start.
    found : MeetingPlaces, optional
        There, where that is known.

    Attributes
    ----------
    end : MeetingPlaces
        Where it was looked for last.
    rows : (pairs, PLACES, NUMBERS)
    counts : (pairs,)
    """

    def __init__(
        self,
        see: Callable[[np.ndarray], MeetingPlaces],
        sizes: np.ndarray,
        x: np.ndarray,
        found: MeetingPlaces | None = None,
    ):
        self._see, self._sizes = see, sizes
        found = self.end = see(x) if found is None else found
        self._depth = np.maximum(-found.gaps, 0.0)
        self.rows, self.counts = found.rows, found.counts
        self._again = np.zeros(len(found.counts), bool)
        self._let(np.arange(len(self.counts)))

    def _let(self, some: np.ndarray) -> None:
        """What is too deep at the start comes out in many steps, not in one: it would be thrown out."""
        there = self.rows[some, :, 9] != 0
        self.rows[some, :, 10] = np.where(there, KEPT * self._depth[some, None], self.rows[some, :, 10])

    def deeper(self, x: np.ndarray) -> bool:
        """Whether bodies enter each other in the state x at the end; there they are looked for again.

        Where they do so twice, what was held before is kept beside what is found: planes would take turns.
        """
        found = self.end = self._see(x)
        some = np.flatnonzero(found.gaps < -self._depth - ENTERED * self._sizes)
        if len(some):
            self.rows, self.counts = self.rows.copy(), self.counts.copy()
            for i in map(int, some):
                self.rows[i], self.counts[i] = (self._both if self._again[i] else found.of)(i)
            self._again[some] = True
            self._let(some)
        return bool(len(some))

    def _both(self, i: int) -> tuple[np.ndarray, int]:
        """Places of pair i at the end, and behind them those it was held at that are none of them."""
        rows, count = self.end.of(i)
        size = self._sizes[i]
        for old in self.rows[i, : self.counts[i]]:
            off = np.abs(rows[:count, :9] - old[:9])
            off[:, :6] /= size
            known = (off.max(axis=1) < SAME) & (rows[:count, 9] == old[9])
            if count < PLACES and not known.any():
                rows[count], count = old, count + 1
        return rows, count

    def solved(self, solve: Callable[[np.ndarray], Step], tolerance: float) -> Step:
        """A step by `solve(places)`, again until what it held holds where it ends."""
        for _ in range(LOOKS):
            found = solve(self.rows.ravel())
            if not found.error <= tolerance or not self.deeper(found.x):
                break
        return found
