"""Configurations and velocities of a mechanism that satisfy its constraints."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from vioc.checks import as_names, as_positive, as_value
from vioc.dynamics.description.component import VelocityConstraint
from vioc.dynamics.description.system import System
from vioc.dynamics.kinematics import as_configuration
from vioc.dynamics.lagrangian import Lagrangian
from vioc.errors import ConstraintError, ConstraintWarning, ModelError
from vioc.runs.trajectory import Trajectory

RANK_TOLERANCE = 1e-9  # smaller relative pivots and remainders of rows count as 0
IMPROVES = 0.5  # largest misfit of a step over the one before it, if the constraints hold already
ROUNDED = 64 * np.finfo(float).eps  # relative rounding error of a gradient, a sum of terms that cancel
CLOSED, DRIFT = (
    1e-8,
    1e-10,
)  # relative to the terms that cancel in h: accepted h at a start, and accepted drift in a step


@dataclass(frozen=True)
class ConstraintReport:
    """Configuration that satisfies the constraints, with the rank of the constraint Jacobian.

    Attributes
    ----------
    q : (nq,)
        Configuration in the order of ``system.variables``.
    residual : (m,)
        h(q); 0 for velocity constraints.
    rank : int
        Rank of Dh(q) by the dynamic variables.
    redundant : tuple of str
        Constraints that follow from the others at q; their multipliers are not determined.
    degrees_of_freedom : int
        Dynamic variables minus rank.
    iterations : int
    names : tuple of str
        Names of the variables in q.
    """

    q: np.ndarray
    residual: np.ndarray
    rank: int
    redundant: tuple[str, ...]
    degrees_of_freedom: int
    iterations: int
    names: tuple[str, ...]

    def __getitem__(self, name: str) -> float:
        return float(self.q[self.names.index(name)])

    def __str__(self) -> str:
        worst = np.abs(self.residual).max(initial=0.0)
        extra = f", redundant: {', '.join(self.redundant)}" if self.redundant else ""
        return (
            f"{len(self.residual)} constraints of rank {self.rank}, {self.degrees_of_freedom} degrees of "
            f"freedom, |h| <= {worst:.1e} after {self.iterations} iterations{extra}"
        )


def consistent_configuration(
    system: System | Lagrangian,
    guess: Mapping[str, float] | Any = None,
    *,
    fixed: str | Iterable[str] = (),
    tolerance: float = 1e-12,
    **parameters: float,
) -> ConstraintReport:
    """Find a configuration near a guess that satisfies the constraints of a mechanism.

    Each step of damped Gauss-Newton is the smallest that solves the linearized constraints; translations are
    measured in a natural length of the mechanism. Kinematic variables and those in `fixed` keep the values of
    the guess.

    Parameters
    ----------
    system : System or Lagrangian
    guess : array (nq,) or dict by name
    fixed : name or names of variables
    tolerance : float
        Largest |h| accepted, relative to the terms that cancel in h, which grow with |q| and with the
        distance from the origin of the world (`Lagrangian.closure`).
    **parameters : float
        Values of declared parameters.

    Returns
    -------
    ConstraintReport

    Raises
    ------
    ConstraintError
        If the constraints contradict each other or cannot be satisfied from the guess; the message names the
        violated ones.
    """
    lag = system if isinstance(system, Lagrangian) else Lagrangian(system)
    tolerance, description = as_positive(tolerance, "tolerance"), lag.system
    for name, value in parameters.items():
        if not np.isfinite(as_value(value, f"parameter {name!r}")):
            raise ValueError(f"parameter {name!r}: expected a finite number, got {value!r}")
    q = as_configuration(description, guess, "configuration").copy()
    fixed_indices = {description.variable_index(name) for name in as_names(fixed, "fixed")}
    free = [i for i in range(lag.nd) if i not in fixed_indices]
    damping = 1e-3
    kept_by_place = np.flatnonzero(~np.array(lag.nonholonomic, bool))  # the others constrain velocities only
    units = lag.natural_sizes_with(parameters)[free]

    def relative(q: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the constraint values, relative to the terms that cancel in them, their slopes and sizes."""
        h, J, sizes = (a[kept_by_place] for a in lag.closure(q, **parameters))
        sizes = np.maximum(sizes, np.abs(h))  # at a singular guess the slopes do not tell the terms
        sizes = np.where(sizes > 0, sizes, 1.0)
        return h / sizes, J[:, free] * units / sizes[:, None], sizes

    h, J, sizes = relative(q)
    iterations = 0
    closed = np.abs(h).max(initial=0.0) <= tolerance  # a guess that is accepted remains as it is
    while iterations < 200 and damping < 1e12 and h.any() and not (closed and iterations == 0):
        iterations += 1
        closed = np.abs(h).max() <= tolerance
        # Levenberg-Marquardt: short steps where J loses rank, Newton's near a regular solution
        slack = max(damping * min(float(h @ h), 1.0), 1e-15)
        trial = q.copy()
        trial[free] += units * (J.T @ np.linalg.solve(J @ J.T + slack * np.eye(len(h)), -h))
        new = relative(trial)
        misfit = new[0] * new[2] / sizes
        if misfit @ misfit < (IMPROVES**2 if closed else 1.0) * h @ h:
            q, (h, J, sizes), damping = trial, new, max(damping / 4, 1e-12)
        elif closed:  # to rounding errors
            break
        else:
            damping *= 8
    if not np.abs(h).max(initial=0.0) <= tolerance:  # NaN fails as well
        names = [lag.constraint_names[i] for i in kept_by_place]
        values = zip(names, h * sizes, np.abs(h), strict=True)
        bad = [f"{n} ({v:.3g})" for n, v, share in values if not share <= tolerance]
        suffix = f", with {', '.join(sorted(as_names(fixed, 'fixed')))} fixed" if fixed_indices else ""
        raise ConstraintError(
            f"{description.name}: no configuration satisfies the constraints from this guess{suffix}; "
            f"violated: {', '.join(bad)}. They contradict each other, or another guess is needed"
        )
    rank, redundant = constraint_rank(lag, q, **parameters)
    h = lag.constraints(q, **parameters)
    return ConstraintReport(q, h, rank, redundant, lag.nd - rank, iterations, description.variables)


def constraint_rank(lag: Lagrangian, q: np.ndarray, **parameters: float) -> tuple[int, tuple[str, ...]]:
    """Return the rank of the constraint Jacobian, and the names of linearly dependent constraints.
    A constraint is listed if its row of the Jacobian depends linearly on previous rows.

    The Jacobian is Dh(q) by the dynamic variables.
    """
    names = lag.constraint_names
    if not names:
        return 0, ()
    return rank_of_rows(lag.constraint_directions(q, **parameters), names)


def directions_within(lag: Lagrangian, q: np.ndarray, share: float, **parameters: float) -> np.ndarray:
    """Return the constraint Jacobian Dh(q), (m, nd), with negligible rows set to zero.
    A row is negligible if no entry exceeds `share` times the scale of its rounding errors, which
    `Lagrangian.constraint_sizes` computes.

    The derivatives are by the dynamic variables.
    """
    J, sizes = lag.constraint_jacobian(q, **parameters)[:, : lag.nd], lag.constraint_sizes(q, **parameters)
    columns = [int(n not in lag.system.angles) for n in lag.system.dynamic]
    small = (np.abs(J) <= share * sizes[:, columns]).all(axis=1)
    return np.where(small[:, None], 0.0, J)


def rank_of_rows(
    J: np.ndarray, names: tuple[str, ...], tolerance: float = RANK_TOLERANCE
) -> tuple[int, tuple[str, ...]]:
    """Return the rank of a matrix, and the names of those rows that depend linearly on previous rows."""
    scale = np.linalg.norm(J, axis=1)
    basis: list[np.ndarray] = []
    redundant = []
    for row, size, name in zip(J, scale, names, strict=True):
        remainder = row / size if size > 0 else row
        for b in (*basis, *basis):  # twice, to keep Gram-Schmidt orthogonal
            remainder = remainder - (b @ remainder) * b
        norm = np.linalg.norm(remainder)
        if norm > tolerance:
            basis.append(remainder / norm)
        else:
            redundant.append(name)
    return len(basis), tuple(redundant)


def may_be_dependent(J: np.ndarray) -> np.ndarray:
    """Return a mask (N,) of the matrices J (N, m, n) whose rows may be linearly dependent.

    The mask includes those that `rank_of_rows` may find dependent, and those that
    are not finite.
    """
    scale = np.linalg.norm(J, axis=2, keepdims=True)
    if not np.isfinite(scale).all() or J.shape[1] > J.shape[2] or not scale.all():
        return np.ones(len(J), bool)
    R = np.linalg.qr(np.swapaxes(J / scale, 1, 2), mode="r")
    return np.abs(np.diagonal(R, axis1=1, axis2=2)).min(axis=1, initial=np.inf) <= 2 * RANK_TOLERANCE


def project_velocity(system: System | Lagrangian, q: Any, v: Any, **parameters: float) -> np.ndarray:
    """Project a velocity onto the velocities that satisfy the constraints, in the kinetic-energy metric.

    The result is the nearest velocity with Dh(q) v = 0 and A(q) v = 0. Kinematic rates keep their values.
    Shapes (nq,), (nq,) -> (nq,).
    """
    lag = system if isinstance(system, Lagrangian) else Lagrangian(system)
    q = as_configuration(lag.system, q, "configuration")
    v = as_configuration(lag.system, v, "velocity").copy()
    nd = lag.nd
    J = lag.constraint_jacobian(q, **parameters)
    M = lag.mass_matrix(q, **parameters)[:nd, :nd]
    Y = np.linalg.solve(M, J[:, :nd].T)
    v[:nd] -= Y @ np.linalg.pinv(J[:, :nd] @ Y, rcond=1e-12) @ (J @ v)
    return v


def check_constraints(
    lag: Lagrangian, q: np.ndarray, v: np.ndarray, parameters: dict[str, float], dt: float = np.inf
) -> None:
    """Raise `ConstraintError` unless a configuration and a velocity satisfy the constraints.

    These are h(q) = 0 and Dh(q) v = 0. The tolerance is 1e-8, relative to the terms that cancel in them. Two
    further errors of Dh(q) v are accepted: one by which h changes within the time `dt` by 1e-10 of these
    terms, and the rounding error in a row of Dh that is zero, such as the row normal to a planar loop.
    """
    names = lag.constraint_names
    if not names:
        return
    h, J, sizes = lag.closure(q, **parameters)
    if not (np.abs(h) <= CLOSED * sizes).all():
        worst = int(np.argmax(np.abs(h) / np.maximum(sizes, np.finfo(float).tiny)))
        raise ConstraintError(
            f"{lag.system.name}: the configuration violates {names[worst]}: h = {h[worst]:.3g}, "
            "expected 0; find one with consistent_configuration(system, guess)"
        )
    spin = max((abs(v[lag.system.variables.index(n)]) for n in lag.system.angles), default=0.0)
    rates, most = J @ v, CLOSED * (np.abs(J) @ np.abs(v)) + (DRIFT / dt + ROUNDED * spin) * sizes
    if not (np.abs(rates) <= most).all():
        worst = int(np.argmax(np.abs(rates) / np.maximum(most, np.finfo(float).tiny)))
        raise ConstraintError(
            f"{lag.system.name}: the velocity violates {names[worst]}: dh/dt = {rates[worst]:.3g}, "
            "expected 0; use project_velocity(system, q, v)"
        )


def check_holonomic(system: System, who: str) -> None:
    """Raise `ModelError` if a system has velocity constraints, which the feature `who` does not support."""
    for name, constraint in zip(system.constraint_names, system.constraints, strict=True):
        if isinstance(constraint, VelocityConstraint):
            raise ModelError(
                f"{system.name}: {who} has no constraints on velocities, got {name}; use MidpointVI, or "
                "ModeVI beside contacts"
            )


def warn_violated(lag: Lagrangian, trajectory: Trajectory) -> None:
    """Issue a `ConstraintWarning` if the first state of a trajectory violates a constraint."""
    if not lag.constraint_names:
        return
    q = trajectory.x[0, : len(lag.system.variables)]
    violated = lag.violated_constraints(q, **trajectory.map.parameters)
    if violated:
        listed = ", ".join(f"{name} ({value:.3g})" for name, value in [*violated.items()][:3])
        warnings.warn(
            f"{lag.system.name}: the first state violates {listed}, where 0 is expected: no motion of the "
            "mechanism has this state. Start at f.initial_state(f.consistent_configuration(guess))",
            ConstraintWarning,
            stacklevel=4,
        )
