"""Natural frequencies and mode shapes of a mechanism about an equilibrium.
The maths are in docs/maths/cables.md.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from vioc.cables.statics import StaticEquilibrium, Statics, kernel
from vioc.errors import ModelError


@dataclass(frozen=True)
class NormalModes:
    """Undamped modes of a mechanism about an equilibrium, by increasing frequency.

    Attributes
    ----------
    omega : (count,)
        Frequencies, rad/s. An unstable direction has a negative eigenvalue, and -sqrt(|eigenvalue|) is given.
    shapes : (count, nd)
        Displacements of the dynamic variables, one mode per row, with shape' M shape = 1.
    names : tuple of str
        Dynamic variables.
    """

    omega: np.ndarray
    shapes: np.ndarray = field(repr=False)
    names: tuple[str, ...] = field(repr=False)

    @property
    def frequency(self) -> np.ndarray:
        """Natural frequencies (count,) of the modes, Hz."""
        return self.omega / (2 * np.pi)

    def shape(self, mode: int) -> dict[str, float]:
        """Return the displacements of the variables in one mode, as a dict by name."""
        return dict(zip(self.names, map(float, self.shapes[mode]), strict=True))

    def __len__(self) -> int:
        return len(self.omega)


def normal_modes(equilibrium: StaticEquilibrium, count: int | None = None) -> NormalModes:
    """Return frequencies and shapes of small undamped motions about an equilibrium.
    The motions satisfy the constraints.

    Parameters
    ----------
    equilibrium : StaticEquilibrium
        Equilibrium of `static_equilibrium`, with its parameters; variables that it fixed do not move.
    count : int, optional
        Number of modes, slowest first; by default all.

    Raises
    ------
    ModelError
        If it is not a `StaticEquilibrium`.
    """
    from scipy.linalg import eigh  # here, as SciPy doubles vioc's import time

    statics, Z, M = _about(equilibrium)
    system = statics.lagrangian.system
    K = Z.T @ statics.hessian(equilibrium.q, equilibrium.multipliers) @ Z
    last = len(K) if count is None else min(count, len(K))
    squares, vectors = eigh(K, M, subset_by_index=[0, last - 1])
    omega = np.sign(squares) * np.sqrt(np.abs(squares))
    shapes = np.zeros((last, len(system.dynamic)))
    shapes[:, statics.free] = (Z @ vectors).T
    return NormalModes(omega, shapes, system.dynamic)


def longest_step(equilibrium: StaticEquilibrium) -> float:
    """Return the longest step length that is stable at an equilibrium, s.
    With a longer step the variational integrator `MidpointVI` is unstable there. A motion needs a shorter
    step.

    Constraint forces act at the start of a step, so the stiffness that they give to a taut cable is
    integrated explicitly. Stability requires dt < 2/omega. Here omega^2 is the largest eigenvalue of
    sum_i lambda_i h_i,qq relative to the mass matrix M, both restricted to the motions that the constraints h
    allow. The result is inf if no constraint pulls.

    Parameters
    ----------
    equilibrium : StaticEquilibrium
        Equilibrium with its parameters; variables that it fixed do not move.
    """
    from scipy.linalg import eigh

    statics, Z, M = _about(equilibrium)
    q, lam = equilibrium.q, equilibrium.multipliers
    K = Z.T @ (statics.hessian(q, lam) - statics.hessian(q, 0 * lam)) @ Z
    largest = float(eigh(K, M, eigvals_only=True)[-1])
    return 2 / np.sqrt(largest) if largest > 0 else np.inf


def _about(equilibrium: StaticEquilibrium) -> tuple[Statics, Any, Any]:
    """Return energy, allowed motions and mass matrix about an equilibrium.
    The first result is a `Statics` object, which evaluates the energy and its derivatives. The second is a
    basis Z of the motions that satisfy the linearized constraints. The third is Z' M Z, where M is the mass
    matrix of the free variables.
    """
    if not isinstance(equilibrium, StaticEquilibrium):
        raise ModelError(f"expected the result of static_equilibrium, got {type(equilibrium).__name__}")
    free = [i for i, n in enumerate(equilibrium.system.dynamic) if n not in equilibrium.held]
    statics = Statics(equilibrium.system, free, **equilibrium.parameters)
    Z, _ = kernel(statics.first(equilibrium.q)[3])
    M = statics.lagrangian.mass_matrix(equilibrium.q, **equilibrium.parameters)[np.ix_(free, free)]
    M = Z.T @ M @ Z
    return statics, Z, (M + M.T) / 2
