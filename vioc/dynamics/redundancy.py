"""Redundant constraints: their detection, and constraint impulses with the least norm.

Maths: docs/maths/midpoint.md, "Redundant constraints".
"""

from __future__ import annotations

import contextlib
import warnings
from functools import lru_cache

import casadi as ca
import numpy as np

from vioc.checks import near_misses
from vioc.dynamics.algebra.sparse_lu import SparseLU, scalars
from vioc.dynamics.consistency import consistent_configuration, directions_within
from vioc.dynamics.description.system import System
from vioc.dynamics.lagrangian import Lagrangian
from vioc.dynamics.rounding import NEGLIGIBLE, reaches
from vioc.errors import ModelError, RedundancyWarning

GUESSES = 2  # guesses, besides zero, for a configuration that satisfies the constraints
AWAY = 0.1  # rad, or relative to the mechanism's length: distance to the second tested configuration
# Largest distance of a dependent row of length one from the span of the others. Configurations that fulfil h
# to 1e-12 are within 1e-6 of a position where h has no slope, and slopes are of that size; a margin is added.
DEPENDENT = 1e-5
BRANCHES = 24  # random positions from which other branches are searched


def chosen(system: System, named: tuple[str, ...] | None) -> tuple[str, ...]:
    """Return the names of the constraints that integration steps omit as redundant.
    They are the constraints `named`, or all redundant constraints if `named` is None.

    The redundant constraints are determined from the constraint Jacobian, with a warning.

    Raises
    ------
    ModelError
        If there is no constraint of a given name.
    """
    for name in named or ():
        if name not in system.constraint_names:
            names = system.constraint_names
            raise ModelError(f"redundant: unknown constraint {name!r}; {near_misses(name, names)}")
    if named is not None:
        return tuple(dict.fromkeys(named))
    redundant = redundant_constraints(system)
    if redundant:
        warnings.warn(
            f"{system.name}: not imposed, because the other constraints imply it: {', '.join(redundant)}. "
            f"The forces of all have the least norm. redundant={redundant!r} suppresses this warning",
            RedundancyWarning,
            stacklevel=3,
        )
    return redundant


@lru_cache(maxsize=64)
def redundant_constraints(system: System) -> tuple[str, ...]:
    """Find the constraints that follow from other constraints, by a pivoted QR of the constraint Jacobian.

    The rows of Dh are scaled to length one. The rank of Dh is evaluated at the configuration found from
    zero, or from one of a few others, and again some distance along the motion, so that a singular position
    does not count as redundancy. Then the redundant constraints are released: from random positions that the
    others allow, all constraints are closed again, which leads to other branches of the mechanism. The
    highest rank among configurations that can move decides, so that a folded branch removes no constraint
    that other branches need. The result is empty if no configuration is found; an integrator then reports
    the error where a motion starts.
    """
    if not system.constraints:
        return ()
    lag, rng = Lagrangian(system), np.random.default_rng(0)
    units = _units(lag)
    best: tuple[int, tuple[str, ...]] = (-1, ())
    q = _fulfilling(lag, np.zeros(lag.nq), *(units * rng.uniform(-0.7, 0.7, (GUESSES, lag.nq))))
    for _ in range(2):
        if q is None:
            break
        best = max(best, left_out(lag, q), key=lambda candidate: candidate[0])
        if not best[1]:
            return ()
        free = np.linalg.svd(lag.constraint_directions(q) * units[: lag.nd])[2][best[0] :]
        q[: lag.nd] += AWAY * units[: lag.nd] * (free.T @ (free @ rng.uniform(-1, 1, lag.nd)))
        q = _fulfilling(lag, q)
    others = Lagrangian(system, best[1])
    for _ in range(BRANCHES if best[1] else 0):
        q = _fulfilling(others, units * rng.uniform(-np.pi, np.pi, lag.nq))
        q = None if q is None else _fulfilling(lag, q)
        candidate = best if q is None else left_out(lag, q)
        if best[0] < candidate[0] < lag.nd:
            best = candidate
        if not best[1]:
            break
    return best[1]


def left_out(
    lag: Lagrangian, q: np.ndarray, within: float = NEGLIGIBLE, **parameters: float
) -> tuple[int, tuple[str, ...]]:
    """Return the rank of the constraint Jacobian at q, and names of redundant constraints.
    A constraint is redundant if it follows from other constraints.

    The Jacobian is Dh(q) by the dynamic variables; its rows within the share `within` of the terms that
    cancel in h count as 0.
    """
    names, J = lag.constraint_names, directions_within(lag, q, within, **parameters)
    if not np.isfinite(J).all():
        return len(names), ()
    independent = _independent(J)
    return len(independent), tuple(n for i, n in enumerate(names) if i not in independent)


def _units(lag: Lagrangian) -> np.ndarray:
    """Return scales of the variables (nq,): 1 rad for angles, else a typical length.

    It is 1 rad, or the mechanism's length if > 0, else 1 m.
    """
    g, angles = lag.graph, lag.system.angles
    reach = ca.Function("far", [g.q_vector, g.parameters], [ca.mmax(ca.vertcat(*reaches(g)))])
    length = float(reach(np.zeros(lag.nq), list(lag.system.parameters.values()))) or 1.0
    return np.array([1.0 if n in angles else length for n in lag.system.variables])


def _independent(J: np.ndarray) -> list[int]:
    """Return the indices of a largest set of linearly independent rows of a matrix.

    Each is the row farthest from the span of the previous ones. Rows are scaled to length one.
    """
    length = np.linalg.norm(J, axis=1, keepdims=True)
    remainder, indices = J / np.where(length > 0, length, 1.0), []
    for _ in range(min(J.shape)):
        size = np.linalg.norm(remainder, axis=1)
        i = int(np.argmax(size))
        if size[i] <= DEPENDENT:
            break
        indices.append(i)
        direction = remainder[i] / size[i]
        for _ in range(2):  # twice, to stay orthogonal
            remainder = remainder - np.outer(remainder @ direction, direction)
    return indices


def _fulfilling(lag: Lagrangian, *guesses: np.ndarray) -> np.ndarray | None:
    """Find a configuration that satisfies the constraints, from several guesses in turn.
    Return None if all guesses fail.
    """
    for guess in guesses:
        with contextlib.suppress(ValueError, np.linalg.LinAlgError):  # including NaN in h
            return consistent_configuration(lag, guess).q
    return None


def least_norm(independent: ca.SX, left_out: ca.SX, impulses: ca.SX) -> tuple[ca.SX, ca.SX]:
    """Distribute constraint impulses over all constraints, also redundant ones, with the least norm.
    The argument `impulses` has impulses of the independent constraints, whose Jacobian is `independent`. The
    results are new impulses of these constraints, and impulses of the redundant constraints, whose Jacobian
    is `left_out`. Together they have the same effect as `impulses`.

    Kept constraints have the Jacobian (r, n), omitted ones (d, n). With J_d = T J_s the result is lambda_d =
    (1 + T T')^-1 T lambda and lambda_s = lambda - T' lambda_d.
    """
    gram = SparseLU(scalars(independent @ independent.T))
    sides = (scalars(independent @ left_out[i, :].T) for i in range(left_out.shape[0]))
    T = ca.vertcat(*(ca.horzcat(*gram.solve([row[0] for row in side])) for side in sides))
    inner = SparseLU(scalars(ca.SX.eye(T.shape[0]) + T @ T.T))
    shared = ca.vertcat(*inner.solve([row[0] for row in scalars(T @ impulses)]))
    return impulses - T.T @ shared, shared
