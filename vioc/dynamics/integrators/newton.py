"""Solving one step by every means, and saying why where it fails ([S] VII).

The compiled rollout takes chord steps from an extrapolated seed. What it cannot solve comes here:
damped Newton on the full saddle-point system, then continuation in the step length.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import casadi as ca
import numpy as np

from vioc.compile.evaluate import Evaluator
from vioc.dynamics.algebra.vectors import part
from vioc.dynamics.consistency import rank_of_rows
from vioc.dynamics.finite import not_finite
from vioc.errors import ChartWarning, StepError, is_tried

if TYPE_CHECKING:
    from vioc.dynamics.integrators.midpoint import MidpointVI

MAX_ITERATIONS = 60
SINGULAR = 1e-12  # reciprocal condition number below which M_k+1 of a solved step counts as singular
ARRIVED = 1e-6  # |h| below which the solver stopped near a position that the constraints allow
SINGULAR_STEP = 1e-10  # reciprocal condition number below which a failed step is blamed on M_k+1


class StepEquations:
    """The equations of one step at numbers: residuals and Jacobian blocks for a given step length."""

    def __init__(self, f: MidpointVI):
        x, u, t, dt = ca.SX.sym("x", f.nx), ca.SX.sym("u", f.nu), ca.SX.sym("t"), ca.SX.sym("dt")
        theta, z = ca.SX.sym("theta", len(f.parameters)), ca.SX.sym("z", f.nd)
        nq, nd, nf = f.nq, f.nd, len(f.system.inputs)
        q0, p = part(x, 0, nq), part(x, nq, nq + nd)
        forces = part(u, 0, nf)
        q1 = ca.vertcat(z, part(u, nf))
        parts = f.parts(q0, q1, p, forces, t, dt, theta)
        a = f.alpha
        D = f._newton_matrix((1 - a) * q0 + a * q1, (q1 - q0) / dt, forces, t + a * dt, theta, dt)
        h1, J1 = f._constraint(q1, theta)
        J0 = f._constraint(q0, theta)[1]
        outputs = [parts.balance, h1, D, J1[:, :nd], J0[:, :nd], parts.momentum]
        args = [x, u, t, dt, theta, z]
        self._evaluate = Evaluator(ca.Function("equations", args, outputs, {"cse": True}))

    def __call__(self, x, u, t, dt, theta, z):
        balance, h, D, J1, J0, momentum = self._evaluate(x, u, np.array([t]), np.array([dt]), theta, z)
        return balance[:, 0], h[:, 0], D, J1, J0, momentum[:, 0]


def solve_step(f: MidpointVI, x: np.ndarray, u: np.ndarray, k: int, t: float, dt: float):
    """Step k from x under u at time t: (x_next, multipliers).

    Raises
    ------
    StepError
        With cause ``"not finite"`` (a potential, force or constraint is not a number there),
        ``"singular M"`` (M_k+1 = D2 D1 L_d + D2 F- of [S] (8) is singular: a chart
        singularity, or a step too long), ``"singular constraints"`` (Dh M^-1 Dh' is), or
        ``"no convergence"``.
    """
    equations = f.step_equations
    q0, theta = x[: f.nd], f._theta

    def newton(z: np.ndarray, length: float):
        return _newton(lambda y: equations(x, u, t, length, theta, y), z, f._tolerance)

    with np.errstate(all="ignore"):  # what overflows or is not a number is tested for
        z, lam, error = newton(q0.copy(), dt)
        if not error <= f._tolerance:
            z, lam, error = _continue(newton, q0, dt, f._tolerance)
        if not error <= f._tolerance:
            raise _explain(f, equations, x, u, t, dt, z, error, k, newton)
        momentum = equations(x, u, t, dt, theta, z)[5]
    rho = u[len(f.system.inputs) :]
    rates = (rho - x[f.nd : f.nq]) / dt
    return np.concatenate([z, rho, momentum, rates]), lam


def _newton(equations, z: np.ndarray, tolerance: float):
    """Damped Newton: (z, multipliers, scaled residual). Stops where no step decreases the residual."""
    lam = None
    best = np.inf
    extra = 1  # one step beyond the tolerance: quadratic convergence makes it exact
    for _ in range(MAX_ITERATIONS):
        balance, h, D, J1, J0, _ = equations(z)
        m = len(h)
        lam = np.zeros(m) if lam is None else lam
        residual = np.concatenate([balance - J0.T @ lam, h])
        scale = _scales(D, J1, z)
        error = float(np.linalg.norm(residual / scale))
        best = error
        if not np.isfinite(error):
            break
        if error <= tolerance:
            extra -= 1
            if extra < 0:
                break
        saddle = np.block([[D, -J0.T], [J1, np.zeros((m, m))]])
        if not np.isfinite(saddle).all():
            best = np.nan
            break
        try:
            step = np.linalg.solve(saddle / scale[:, None], -residual / scale)
        except np.linalg.LinAlgError:
            step = np.linalg.lstsq(saddle / scale[:, None], -residual / scale, rcond=None)[0]
        factor = 1.0
        while factor > 1e-4:
            trial, new = z + factor * step[: len(z)], lam + factor * step[len(z) :]
            b, g, _, _, J, _ = equations(trial)
            value = np.linalg.norm(np.concatenate([b - J.T @ new, g]) / scale)
            if value < (1 - 1e-4 * factor) * error or value <= tolerance:
                break
            factor /= 2
        else:
            break
        z, lam = trial, new
    return z, lam, best


def _continue(newton, q0: np.ndarray, dt: float, tolerance: float):
    """Lengthen the step from nothing to dt, each solution the seed of the next."""
    done, z, width = 0.0, q0.copy(), 0.25
    previous: tuple[float, np.ndarray] | None = None
    lam, error = np.zeros(0), np.inf
    while done < 1:
        goal = min(1.0, done + width)
        seed = z
        if previous is not None:
            seed = z + (z - previous[1]) * (goal - done) / (done - previous[0])
        trial, multipliers, value = newton(seed, goal * dt)
        if value <= tolerance:
            previous = (done, z) if done > 0 else (0.0, q0)
            done, z, lam, error = goal, trial, multipliers, value
            width = min(2 * width, 0.5)
        else:
            width /= 2
            if width < 1e-3:
                return trial, multipliers, value
    return z, lam, error


def _scales(D: np.ndarray, J: np.ndarray, z: np.ndarray) -> np.ndarray:
    """Residual per unit error of q relative to 1 + |q|, by row."""
    size = 1 + np.abs(z)
    rows = np.abs(np.diag(D)) * size
    rows = np.where(rows > 0, rows, np.abs(D) @ size + 1e-300)
    constraints = np.abs(J) @ size
    return np.concatenate([rows, np.where(constraints > 0, constraints, 1.0)])


def _explain(f, equations, x, u, t, dt, z, error, k, newton) -> StepError:
    """What [S] VII calls the failure, with numbers and what to try."""
    names = f.multiplier_names
    _, h, D, J1, J0, _ = equations(x, u, t, dt, f._theta, z)
    where = f"step {k} (t = {t:.6g} s, dt = {dt:g} s) was not solved: scaled residual {error:.2g}"
    if not np.isfinite(error):
        infinite = _not_finite(f, x, u, t, dt, z)
        if infinite is not None:
            advice = "keep it finite at every state (ca.fmax, ca.if_else), or start elsewhere"
            return StepError(f"{where}. {infinite}: {advice}", k, float(error), "not finite")
        if not (np.isfinite(D).all() and np.isfinite(J0).all() and np.isfinite(J1).all()):
            return StepError(
                f"{where}. The equations are not finite where the solver stopped: the step leaves what "
                "numbers can hold, or where a potential, force or constraint is defined; use a smaller dt",
                k,
                float(error),
                "not finite",
            )
    # the step ends in a singular position only if the solver came there; elsewhere it says nothing of one
    arrived = bool(np.abs(h).max(initial=0.0) <= ARRIVED)
    for J, what in ((J0, "q_k"), *(((J1, "q_k+1"),) if arrived else ())):
        dependent = dependent_constraints(J, names, f"{where}. Dh({what})", k, float(error))
        if dependent is not None:
            return dependent
    rcond = reciprocal_condition(D, f.lagrangian.mass_scale)
    if rcond < SINGULAR_STEP:
        weakest = np.abs(np.linalg.svd(D)[2][-1])
        which = ", ".join(n for n, w in zip(f.system.dynamic, weakest, strict=True) if w > 0.3)
        return StepError(
            f"{where}. M_k+1 = D2 D1 L_d + D2 F- is singular (reciprocal condition {rcond:.1g}) along "
            f"{which}: the coordinates are singular there, or dt is too large for the potential",
            k,
            float(error),
            "singular M",
        )
    schur = J1 @ np.linalg.solve(D, J0.T)
    size = np.linalg.norm(J1, axis=1)[:, None] * np.linalg.norm(np.linalg.solve(D, J0.T), axis=0)
    if len(names) and np.linalg.svd(schur / size, compute_uv=False)[-1] < 1e-2:
        return StepError(
            f"{where}. Dh(q_k+1) M^-1 Dh(q_k)' is nearly singular where the solver stopped: the "
            "constraint directions turn too far within one step; use a smaller dt (of a cable held taut, "
            "vioc.cables.longest_step tells the limit about an equilibrium)",
            k,
            float(error),
            "no convergence",
        )
    half = newton(x[: f.nd].copy(), dt / 2)[2] <= f._tolerance
    advice = f"dt = {dt / 2:g} has a solution" if half else "try a much smaller dt, or check the state"
    return StepError(
        f"{where}. Newton and continuation in dt did not converge; the step is too large for this "
        f"state: {advice}",
        k,
        float(error),
        "no convergence",
    )


def _not_finite(f, x, u, t: float, dt: float, z: np.ndarray) -> str | None:
    """The term that is not finite, and where: at the start, without motion, where the solver stopped."""
    lag, nd, nq = f.lagrangian, f.nd, f.nq
    forces, q0, q1 = u[: len(f.system.inputs)], x[:nq], np.concatenate([z, u[len(f.system.inputs) :]])
    v0 = np.concatenate([f._velocity(x, f._theta)[0][:, 0], x[nq + nd :]])
    points = (q0, v0, "the step's start"), (q0, 0 * q0, "the step's start without motion, its first guess")
    for q, v, place in (*points, ((q0 + q1) / 2, (q1 - q0) / dt, "the last guess of the step")):
        found = not_finite(lag, q, v, forces, t, f._theta) if np.isfinite([*q, *v]).all() else None
        if found is not None:
            return f"At {place} {found}"
    return None


def dependent_constraints(
    J: np.ndarray, names: tuple[str, ...], where: str, k: int, error: float
) -> StepError | None:
    """The error for constraints whose Jacobian has dependent rows, or None where they are sound."""
    infinite = [name for name, row in zip(names, J, strict=True) if not np.isfinite(row).all()]
    if infinite:
        return StepError(
            f"{where}: the gradient of {', '.join(infinite)} is not finite; the constraint is not "
            "differentiable there",
            k,
            error,
            "not finite",
        )
    rank, redundant = rank_of_rows(J, names)
    if not redundant:
        return None
    flat = [name for name, row in zip(names, J, strict=True) if not np.abs(row).max(initial=0.0) > 1e-12]
    if flat:
        return StepError(
            f"{where}: the gradient of {', '.join(flat)} vanishes: its points coincide, its length is 0, or "
            "no dynamic variable moves them",
            k,
            error,
            "singular constraints",
        )
    return StepError(
        f"{where} has rank {rank} of {len(names)}: {', '.join(redundant)} follows from the other "
        "constraints there. Remove redundant constraints, or change the motion if it only passes a "
        "singular position",
        k,
        error,
        "singular constraints",
    )


def warn_singular(f: MidpointVI, x: np.ndarray, u, t: float, dt: float, x_next: np.ndarray) -> None:
    """Warn where M_k+1 of a solved step is singular ([S] VII): the equations leave some of q_k+1 open."""
    if is_tried():
        return
    D = f.step_equations(x, u, t, dt, f._theta, x_next[: f.nd])[2]
    root = np.sqrt(f.lagrangian.mass_scale)
    _, size, V = np.linalg.svd(D / np.outer(root, root))
    if size[-1] >= SINGULAR * size[0]:
        return
    open_ = ", ".join(n for n, w in zip(f.system.dynamic, np.abs(V[-1]), strict=True) if w > 0.3)
    warnings.warn(
        f"a step is singular: M_k+1 = D2 D1 L_d + D2 F- does not determine {open_}, which goes on as the "
        "solver found it, and the step cannot be linearized (f.conditions(run) tells where). The coordinates "
        "are singular at its midpoint, or dt is too large: use another dt, or other coordinates "
        "(vioc.dynamics.charts.rollout_charts)",
        ChartWarning,
        stacklevel=5,
    )


def reciprocal_condition(D: np.ndarray, mass_scale: np.ndarray) -> float:
    """1 / cond of D in units of a generic mass matrix's diagonal; 0 where not finite.

    Scaling by D's own rows would hide a chart singularity, where a whole row vanishes.
    """
    if not np.isfinite(D).all():
        return 0.0
    root = np.sqrt(mass_scale)
    values = np.linalg.svd(D / np.outer(root, root), compute_uv=False)
    return float(values[-1] / values[0]) if values[0] > 0 else 0.0


def singular_linearization(
    f: MidpointVI, saddle: np.ndarray, k: int, amplification: float, cause: str
) -> StepError:
    """The error for a step whose derivatives do not exist ([S] VII).

    A constraint that is singular also makes dq/dp large or not a number; M_k+1 is blamed only if it is
    singular by itself.
    """
    if not np.isfinite(saddle).all():
        return StepError(
            f"step {k} cannot be linearized: its equations have no finite derivatives there; a potential, "
            "force or constraint is not differentiable at this state (ca.sqrt(x) at 0 is not)",
            k,
            amplification,
            "not finite",
        )
    regular = reciprocal_condition(saddle[: f.nd, : f.nd], f.lagrangian.mass_scale) > SINGULAR_STEP
    if f.nm and regular:
        cause = "singular constraints"
    matrix = "M_k+1 = D2 D1 L_d + D2 F-" if cause == "singular M" else "Dh M^-1 Dh'"
    return StepError(
        f"step {k} cannot be linearized: {matrix} is singular there (amplification "
        f"{amplification:.1g}); the coordinates or the constraints are singular, or dt is too large",
        k,
        amplification,
        cause,
    )
