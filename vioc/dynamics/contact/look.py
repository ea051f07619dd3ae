"""Repeated search for contact points, until no bodies overlap at the end of a step."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from vioc.dynamics.contact.features import MeetingPlaces
from vioc.dynamics.contact.interior import Step
from vioc.dynamics.contact.polytopes import PLACES, SAME

LOOKS = 8  # searches at the end of a step for contact points that hold
ENTERED = 1e-5  # accepted overlap without a contact point, relative to the size
KEPT = 0.9  # fraction of the initial depth that remains after a step
DEEP = 0.1  # accepted initial depth, relative to the smaller body; the bodies separate slowly


class Look:
    """Contact points of pairs of polytopes during one integration step.
    They are found from the poses of the bodies at the start of the step. If bodies overlap at the end of the
    step, they are found again from the poses at the end.

    Parameters
    ----------
    see : callable
        Function from a state to its `MeetingPlaces`.
    sizes : (pairs,)
    x : (nx,)
        State at the start.
    found : MeetingPlaces, optional
        Contact points at x, if they are known.

    Attributes
    ----------
    end : MeetingPlaces
        Contact points of the last search.
    rows : (pairs, PLACES, NUMBERS)
    counts : (pairs,)
    """

    def __init__(
        self,
        see: Callable[[np.ndarray], MeetingPlaces],
        sizes: np.ndarray,
        x: np.ndarray,
        points: MeetingPlaces | None = None,
    ):
        self._see, self._sizes = see, sizes
        points = self.end = see(x) if points is None else points
        self._depth = np.maximum(-points.gaps, 0.0)
        self.rows, self.counts = points.rows, points.counts
        self._again = np.zeros(len(points.counts), bool)
        self._let(np.arange(len(self.counts)))

    def _let(self, some: np.ndarray) -> None:
        """Allow the initial overlap of some pairs of bodies to decrease slowly, over many steps.
        A correction of the overlap within one step would throw the bodies apart. The indices `some` select
        the pairs.
        """
        present = self.rows[some, :, 9] != 0
        self.rows[some, :, 10] = np.where(present, KEPT * self._depth[some, None], self.rows[some, :, 10])

    def deeper(self, x: np.ndarray) -> bool:
        """Return whether bodies overlap in the state x at the end of a step.
        If they overlap, the contact points are searched for again. If a pair overlaps for the second time, it
        keeps its previous contact points in addition to the new ones; otherwise the separating plane could
        alternate.
        """
        places = self.end = self._see(x)
        some = np.flatnonzero(places.gaps < -self._depth - ENTERED * self._sizes)
        if len(some):
            self.rows, self.counts = self.rows.copy(), self.counts.copy()
            for i in map(int, some):
                self.rows[i], self.counts[i] = (self._both if self._again[i] else places.of)(i)
            self._again[some] = True
            self._let(some)
        return bool(len(some))

    def _both(self, i: int) -> tuple[np.ndarray, int]:
        """Return the new contact points of a pair together with the previous ones, and their number.
        Previous points that equal a new point are left out.
        """
        rows, count = self.end.of(i)
        size = self._sizes[i]
        for old in self.rows[i, : self.counts[i]]:
            change = np.abs(rows[:count, :9] - old[:9])
            change[:, :6] /= size
            same = (change.max(axis=1) < SAME) & (rows[:count, 9] == old[9])
            if count < PLACES and not same.any():
                rows[count], count = old, count + 1
        return rows, count

    def solved(self, solve: Callable[[np.ndarray], Step], tolerance: float) -> Step:
        """Solve a step repeatedly, until no bodies overlap at the end of the step.
        After each solution with overlap, the contact points are searched for again. The repetition also ends
        if the step does not converge.
        """
        for _ in range(LOOKS):
            step = solve(self.rows.ravel())
            if not step.error <= tolerance or not self.deeper(step.x):
                break
        return step
