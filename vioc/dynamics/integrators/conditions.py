"""Condition numbers of the matrices with which a variational step is solved.

They are the Newton matrix M_k+1, which is the derivative of the momentum balance with respect to the next
configuration, and Dh M_k+1^-1 Dh' with the constraint Jacobian Dh ([S] VII). If both are regular, no other
solution of the step is near, and the derivatives of the solution exist.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from vioc.errors import ChartWarning, StepError, is_tried

if TYPE_CHECKING:
    from vioc.dynamics.integrators.mechanical import MechanicalMap
    from vioc.dynamics.integrators.variational import VariationalRule
    from vioc.maps.derivatives import Steps

SOLVED = 1e12  # condition number above which M_k+1 of a solved step counts as singular
SINGULAR = 1e10  # and that of a step that cannot be solved or linearized
AMPLIFIED = 1e12  # dq/dp over dt M^-1 beyond which M_k+1 counts as singular
AMPLIFIED_BY_CONSTRAINTS = 1e5  # constraint impulse per impulse beyond which Dh M^-1 Dh' counts as singular


@dataclass(frozen=True)
class StepConditions:
    """Condition numbers of the Newton matrix and the constraint matrix of N steps.
    The Newton matrix M is the derivative of the momentum balance with respect to the next configuration. The
    constraint matrix is Dh M^-1 Dh', with the constraint Jacobian Dh. The condition number of a singular
    matrix is infinite.

    Attributes
    ----------
    t : (N,)
        Start of each step, s.
    mass : (N,)
        Condition number of M = D2 D1 L_d + D2 F- ([S] (8)), with each variable in units of a typical diagonal
        of the mass matrix.
    constraints : (N,)
        Inverse of the smallest singular value of Dh(q_k+1) M^-1 Dh(q_k)', in which the gradients, the rows of
        Dh, have length one in the norm of M^-1. For a single constraint it is 1 / cos of the angle by which
        the gradient turns within the step. Without constraints it is 1.
    """

    t: np.ndarray = field(repr=False)
    mass: np.ndarray
    constraints: np.ndarray

    def __repr__(self) -> str:
        items = ("M", self.mass), ("Dh M^-1 Dh'", self.constraints)
        worst = (f"{what} {c.max():.3g} at t = {self.t[int(np.argmax(c))]:g} s" for what, c in items)
        return f"StepConditions(worst of {len(self.t)} steps: {'; '.join(worst)})"


def conditions(rule: VariationalRule, steps: Steps, theta: np.ndarray) -> StepConditions:
    """Return the condition numbers of two matrices for each of several solved steps.
    They are the Newton matrix M, which is the derivative of the momentum balance with respect to the next
    configuration, and Dh M^-1 Dh', with the constraint Jacobian Dh.
    """
    f = rule.f
    blocks = rule.blocks(steps.x0, steps.u, steps.t, steps.h, theta, steps.x1[:, : f.nd])
    root = np.sqrt(f.lagrangian.mass_scale_with(f.parameters))
    M = blocks.D / np.outer(root, root)
    mass = inverse_of_least(M)
    constraints = np.ones(len(steps))
    if f.nm:
        J0, J1 = blocks.J0 / root, blocks.J1 / root
        for k in np.flatnonzero(np.isfinite(mass)):
            J = [_unit_rows(J[k], M[k]) for J in (J0, J1)]
            constraints[k] = inverse_of_least(J[1] @ np.linalg.solve(M[k], J[0].T), 1.0)
        constraints[~np.isfinite(mass)] = np.inf
    return StepConditions(steps.t, mass, constraints)


def _unit_rows(J: np.ndarray, M: np.ndarray) -> np.ndarray:
    """Scale the rows of a constraint Jacobian J so that J M^-1 J' has diagonal entries 1 or -1.
    The matrix M is the Newton matrix of a step, which approximates a multiple of the mass matrix.
    """
    return J / np.sqrt(np.abs((J * np.linalg.solve(M, J.T).T).sum(axis=1)))[:, None]


def inverse_of_least(M: np.ndarray, unit: np.ndarray | float | None = None) -> np.ndarray:
    """Return the ratio of the largest to the smallest singular value of each matrix.
    The matrices M have the shape (..., n, n). If `unit` is given, it replaces the largest singular value in
    the ratio. The result is infinite if the smallest singular value is zero or as small as rounding errors.
    """
    size = np.linalg.svd(M, compute_uv=False)
    largest = size[..., 0] if unit is None else np.maximum(size[..., 0], unit)
    with np.errstate(divide="ignore", invalid="ignore"):
        least = size[..., -1]
        return np.where(
            least > np.finfo(float).eps * largest, (largest if unit is None else unit) / least, np.inf
        )


def condition(D: np.ndarray, mass_scale: np.ndarray) -> float:
    """Return the condition number of the Newton matrix D of a step.
    Rows and columns of D are first divided by the square roots of typical masses, `mass_scale`. The result is
    infinite if D is not finite.

    Scaling by D's own rows would hide a singularity of Euler angles, where a whole row vanishes.
    """
    root = np.sqrt(mass_scale)
    return float(inverse_of_least(D / np.outer(root, root))) if np.isfinite(D).all() else np.inf


def warn_singular(
    f: MechanicalMap, rule: VariationalRule, x: np.ndarray, u, t: float, dt: float, x_next: np.ndarray
) -> None:
    """Warn if the Newton matrix of a solved step is singular.
    Some components of the next configuration are then undetermined ([S] VII).
    """
    if is_tried():
        return
    D = rule.blocks(x, u, t, dt, f.theta, x_next[: f.nd]).D
    if condition(D, f.lagrangian.mass_scale_with(f.parameters)) <= SOLVED:
        return
    root = np.sqrt(f.lagrangian.mass_scale_with(f.parameters))
    weakest = np.abs(np.linalg.svd(D / np.outer(root, root))[2][-1])
    open_ = ", ".join(n for n, w in zip(f.system.dynamic, weakest, strict=True) if w > 0.3)
    warnings.warn(
        f"a step is singular: M_k+1 = D2 D1 L_d + D2 F- does not determine {open_}, which goes on as the "
        "solver found it, and the step cannot be linearized (f.conditions(run) tells where). The coordinates "
        "are singular at its midpoint, or dt is too large: use another dt, or other coordinates "
        "(vioc.dynamics.charts.rollout_charts)",
        ChartWarning,
        stacklevel=5,
    )


def check_regular(
    f: MechanicalMap, z_p: np.ndarray, saddle: np.ndarray, h: np.ndarray, k: np.ndarray
) -> None:
    """Raise `StepError` if the equations of a step are too singular to differentiate.
    The derivatives do not exist where an impulse at the start is amplified without bound ([S] VII). Two
    derivatives measure the amplification, since their regular sizes are known: dq/dp is about dt M^-1, which
    is largest on its diagonal, and the impulse Dh' dlambda/dp is a projection, of size 1.

    Parameters
    ----------
    z_p : (N, nd + nm, nd)
        Derivatives of q_k+1 and the multipliers with respect to p_k, the momenta at the start, with opposite
        sign.
    saddle : (N, nd + nm, nd + nm)
        Jacobian of the step's equations with respect to q_k+1 and the multipliers.
    h, k : (N,)
        Lengths, s, and indices of the steps.
    """
    nd, mass = f.nd, f.lagrangian.mass_scale_with(f.parameters)
    q_p = np.abs(np.diagonal(z_p, axis1=1, axis2=2)[:, :nd] * mass).max(axis=1, initial=0.0) / h
    cases = [(q_p, AMPLIFIED, "singular M")]
    if f.nm:
        root = np.sqrt(mass)
        impulse = saddle[:, :nd, nd:] @ z_p[:, nd:]
        impulse *= root / root[:, None]
        lam_p = np.abs(impulse, out=impulse).max(axis=(1, 2))
        cases += [(lam_p, AMPLIFIED_BY_CONSTRAINTS, "singular constraints")]
    for size, limit, cause in cases:
        bad = np.flatnonzero(~(size <= limit))
        if len(bad):
            i = int(bad[0])
            raise _singular_linearization(f, saddle[i], int(k[i]), float(size[i]), cause)


def _singular_linearization(
    f: MechanicalMap, saddle: np.ndarray, k: int, amplification: float, cause: str
) -> StepError:
    """Return the error for a step whose equations cannot be differentiated.
    The text of the error names the singular matrix, or says that derivatives are not finite.

    A singular constraint also makes dq/dp large or not a number, so the error names the Newton matrix M_k+1
    only if M_k+1 is singular without constraints.
    """
    if not np.isfinite(saddle).all():
        return StepError(
            f"step {k} cannot be linearized: its equations have no finite derivatives there; a potential, "
            "force or constraint is not differentiable at this state (ca.sqrt(x) at 0 is not)",
            k,
            amplification,
            "not finite",
        )
    if f.nm and condition(saddle[: f.nd, : f.nd], f.lagrangian.mass_scale_with(f.parameters)) < SINGULAR:
        cause = "singular constraints"
    matrix = "M_k+1 = D2 D1 L_d + D2 F-" if cause == "singular M" else "Dh M^-1 Dh'"
    return StepError(
        f"step {k} cannot be linearized: {matrix} is singular there (amplification "
        f"{amplification:.1g}); the coordinates or the constraints are singular, or dt is too large",
        k,
        amplification,
        cause,
    )
