"""Base classes of objects that compute rollouts of one-step maps with contact."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np

from vioc.compile.programs import CHUNK, Program
from vioc.maps.kernel import KernelMap


class Rollouts(Program):
    """Base class of objects that compute rollouts of one-step maps with contact.
    They also compute single steps from several independent states.
    """

    @abstractmethod
    def rollout(self, x, U, tracked, t, h, theta, tolerance) -> tuple[list[np.ndarray], float]:
        """Compute consecutive steps from the state x, until one does not converge.

        The first result is a list of states, multipliers, errors and inputs, with one row for each step. The
        second result is the error of the step that does not converge. The argument `tracked` has the
        reference states and gains of a feedback, or is empty.
        """

    @abstractmethod
    def steps(self, X, U, t, h, theta) -> list[np.ndarray]:
        """Compute independent steps, one from each of several states X.
        Return the states at the ends of the steps, multipliers and errors, also of steps that do not
        converge.
        """

    def __call__(self, args):
        raise NotImplementedError("this program makes rollouts")

    def map(self, args, count):
        X, U, t, h, theta = args
        return self.steps(X, U, np.ravel(t), np.ravel(h), np.ravel(theta))

    def accumulate(self, carry, rows, count, keep, tolerance, first=CHUNK):
        *inputs, t, h, theta = rows
        t, h = (np.broadcast_to(np.ravel(a), (count,)) for a in (t, h))
        U, *tracked = (np.broadcast_to(a, (count, a.shape[-1])) for a in inputs)
        outputs, error = self.rollout(carry, U, tracked, t, h, np.ravel(theta), tolerance)
        return outputs if tracked else outputs[:3], len(outputs[0]), error


class StepByStep(Rollouts):
    """Base class of objects that compute a rollout one or a few steps at a time.

    Parameters
    ----------
    f : KernelMap
    """

    _f: Any

    def __init__(self, f: KernelMap):
        self._f = f

    def applied(self, u: np.ndarray, x: np.ndarray, tracked: Sequence[np.ndarray], k: int) -> np.ndarray:
        """Return the input of step k: u, plus linear feedback if reference states and gains are given."""
        if not tracked:
            return u
        return u - tracked[1][k].reshape(self._f.ndx, self._f.nu).T @ self._f.difference(tracked[0][k], x)

    def rows(self, steps: Sequence[tuple]) -> list[np.ndarray]:
        """Return the states, multipliers, errors and inputs of several steps, each stacked in one array.
        The sequence `steps` has one tuple (state, multipliers, error, input) for each step.
        """
        sizes = self._f.nx, len(self._f.multiplier_names), 1, self._f.nu
        columns = zip(*steps, strict=True) if steps else [()] * 4
        return [np.reshape(a, (len(steps), n)) for a, n in zip(columns, sizes, strict=True)]

    def steps(self, X, U, t, h, theta):
        f, n = self._f, len(U)
        states, impulses = np.full((n, f.nx), np.nan), np.full((n, len(f.multiplier_names)), np.nan)
        errors = np.full(n, np.nan)
        for i, x in enumerate(X):
            one = slice(i, i + 1)
            outputs, errors[i] = self.rollout(x, U[one], [], t[one], h[one], theta, f.tolerance)
            if len(outputs[0]):
                states[i], impulses[i], errors[i] = outputs[0][0], outputs[1][0], outputs[2][0, 0]
        return [states, impulses, errors]
