"""Indices of a phase's variables and parameters in a nonlinear program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from vioc.control.dmoc.phase import Phase


class PhaseLayout:
    """Indices of the variables of one phase in a nonlinear program.
    They are indices into the vector of all variables of the program.

    Parameters
    ----------
    phase : Phase
    start : int
        First free index.
    staged : bool
        For solvers that need x[k+1] = F(x[k], c[k]), with all other unknowns c of a step. Each sample then
        also has its step length as an unknown, and each step has a copy W of the next state.
    eliminated : sequence of int
        Entries of the state that are unknowns at the first sample only.

    Attributes
    ----------
    X, U, L : (N+1, nx), (N, nu), (N, nw) int
        Indices of states, inputs and further unknowns of a step, mostly multipliers. X is -1 where the state
        is not an unknown.
    kept, eliminated : lists of int
        Components of the state that are unknowns at every sample, and the other components.
    unknown : (N+1, nx) bool
        True where X is an index.
    W : (N, nx) int
        Indices of the state at the end of each step: X[1:] unless staged.
    V : (N+1, nw) int
        Indices of velocities that are unknowns (`Mechanism.implicit`); -1 at samples without them.
    H : (N+1,) int or None
        Index of the step length at each sample, if it is free: a single unknown unless staged.
    end : int
        Last index plus 1.
    """

    def __init__(self, phase: Phase, start: int, staged: bool, eliminated: Sequence[int] = ()):
        n, nx, nu, nm = phase.steps, phase.map.nx, phase.map.nu, phase.unknowns
        self.eliminated = list(eliminated)
        self.kept = [j for j in range(nx) if j not in self.eliminated]
        free = phase.free_duration
        own_length = int(free and staged)
        self.staged = staged
        path, last = (phase.quantities * lift for lift in phase.lifts)
        others = nu + nm + nx * staged
        self.states, self.controls, self.last = len(self.kept) + own_length, others + path, last
        width = self.states + self.controls
        offsets = start + len(self.eliminated) + width * np.arange(n + 1)[:, None]
        self.X = np.full((n + 1, nx), -1)
        self.X[0, self.eliminated] = start + np.arange(len(self.eliminated))
        self.X[:, self.kept] = offsets + np.arange(len(self.kept))
        first = offsets[:-1] + self.states
        self.U = first + np.arange(nu)
        self.L = first + nu + np.arange(nm)
        self.W = first + nu + nm + np.arange(nx) if staged else self.X[1:]
        self.V = np.full((n + 1, phase.quantities), -1)
        self.V[:-1, :path] = first + others + np.arange(path)
        self.V[-1, :last] = offsets[-1] + self.states + np.arange(last)
        self.end = int(offsets[-1, 0]) + self.states + last
        self.unknown = self.X >= 0
        self.H: np.ndarray | None = None
        if free:
            self.H = offsets[:, 0] + nx if staged else np.full(n + 1, self.end)
            self.end += not staged


class Given:
    """Layout of the parameter vector of a nonlinear program, in named sections."""

    def __init__(self) -> None:
        self.size = 0
        self._sections: dict[tuple[int, str], np.ndarray] = {}

    def add(self, phase: int, name: str, shape: tuple[int, ...]) -> np.ndarray:
        """Add a section of a given shape to the parameter vector; return its indices."""
        count = int(np.prod(shape))
        index = self.size + np.arange(count).reshape(shape)
        self._sections[phase, name] = index
        self.size += count
        return index

    def index(self, phase: int, name: str) -> np.ndarray:
        return self._sections[phase, name]

    def values(self, numbers: dict[tuple[int, str], Any]) -> np.ndarray:
        result = np.zeros(self.size)
        for key, index in self._sections.items():
            result[index.ravel()] = np.ravel(numbers[key])
        return result
