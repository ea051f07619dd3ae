"""What runs a map's steps one after another: by the compiled core, or by the interior point in numpy."""

from __future__ import annotations

from abc import abstractmethod

import numpy as np

from vioc.compile.programs import CHUNK, Program


class Rollouts(Program):
    """A program of rollouts, and of steps from states of their own."""

    @abstractmethod
    def rollout(self, carry, U, tracked, t, h, theta, tolerance) -> tuple[list[np.ndarray], float]:
        """States, multipliers, errors, inputs by rows as far as steps converge; the error where they do not.

        `tracked` has goals and gains, or nothing.
        """

    @abstractmethod
    def steps(self, carries, U, t, h, theta) -> list[np.ndarray]:
        """States, multipliers, errors of a step from each row of `carries`, whether or not it is solved."""

    def __call__(self, args):
        raise NotImplementedError("this program makes rollouts")

    def map(self, args, count):
        carries, U, t, h, theta = args
        return self.steps(carries, U, np.ravel(t), np.ravel(h), np.ravel(theta))

    def accumulate(self, carry, rows, count, keep, tolerance, first=CHUNK):
        *given, t, h, theta = rows
        t, h = (np.broadcast_to(np.ravel(a), (count,)) for a in (t, h))
        U, *tracked = (np.broadcast_to(a, (count, a.shape[-1])) for a in given)
        outputs, error = self.rollout(carry, U, tracked, t, h, np.ravel(theta), tolerance)
        return outputs if tracked else outputs[:3], len(outputs[0]), error
