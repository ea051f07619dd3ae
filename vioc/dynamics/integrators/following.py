"""Inverse dynamics: inputs for a discrete motion through given configurations.

Let b_k = D1 L_d + F- and m_k = D2 L_d + F+ at zero input, and let B-, B+ be the derivatives of the force
impulses F-, F+ with respect to the input. The motion passes through sample q_k if (docs/maths/arms.md, (9) to
(11))

    B-_k u_k + B+_{k-1} u_{k-1} - Dh(q_k)' lambda_k = -(m_{k-1} + b_k)

Half of each force acts at the start of its step and half at the end. The motion therefore determines only the
sums u_k + u_{k-1}, and u_0 is free. It follows from the momentum at the start if that is given; otherwise it
minimizes the changes of the inputs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import casadi as ca
import numpy as np

from vioc.checks import check_rows
from vioc.compile.evaluate import Evaluator
from vioc.errors import ModelError

if TYPE_CHECKING:
    from vioc.dynamics.integrators.mechanical import MechanicalMap
    from vioc.dynamics.integrators.variational import VariationalRule

ENOUGH = 1e-8  # of the largest force: largest force that may be missing


def equations(rule: VariationalRule) -> Evaluator:
    """Return an evaluator of the terms from which inverse dynamics computes inputs.
    Its arguments and results are (q_k, q_k+1, u, t, dt, parameters) -> b, B-, m, B+, Dh(q_k). The term
    b = D1 L_d + F- belongs to the momentum balance at the start of the step, m = D2 L_d + F+ to that at its
    end. B- and B+ are their derivatives with respect to the input u, and Dh is the constraint Jacobian.
    """
    f = rule.f
    sizes = f.nq, f.nq, len(f.system.inputs), 1, 1
    q0, q1, u, t, dt = (ca.SX.sym(n, m) for n, m in zip(("q0", "q1", "u", "t", "dt"), sizes, strict=True))
    theta = f.symbols.parameters
    parts = rule.parts(q0, q1, ca.SX.zeros(f.nd), u, t, dt, theta)
    Dh = f.constraint(q0, theta)[1][:, : f.nd]
    slopes = (ca.jacobian(e, u) for e in (parts.balance, parts.momentum))
    before, after = (ca.densify(e) for e in slopes)
    outputs = [parts.balance, before, parts.momentum, after, ca.densify(Dh)]
    return Evaluator(ca.Function("following", [q0, q1, u, t, dt, theta], outputs))


def inverse_dynamics(f: MechanicalMap, rule: VariationalRule, q: Any, x0: Any, k0: int) -> tuple[Any, Any]:
    """Return an initial state and inputs that produce given configurations.
    The steps with these inputs pass through the configurations q. The method `MechanicalMap.inverse_dynamics`
    documents the arguments.
    """
    q = check_rows(q, "q", f.system.variables)
    N, nf, nm, h = len(q) - 1, len(f.system.inputs), f.nm, f.dt
    if N < 1:
        raise ValueError(f"q: expected two rows or more, got {len(q)}")
    t = (k0 + np.arange(N))[:, None] * h
    none, steps, theta = np.zeros((N, nf)), np.full((N, 1), h), f.theta

    def terms_at(u: np.ndarray) -> list[np.ndarray]:
        return rule.following(q[:-1], q[1:], u, t, steps, theta)

    b, before, m, after, Dh = terms_at(none)
    _, again, *_ = terms_at(none + 1.0)
    if np.abs(again - before).max(initial=0.0) > 1e-9 * np.abs(before).max(initial=0.0):
        raise ModelError(f"{f.system.name}: inverse dynamics needs forces that are linear in the inputs")
    b, m = b[:, :, 0], m[:, :, 0]
    # u_k = a_k + C_k u_0
    a, C = np.zeros((N, nf)), np.zeros((N, nf, nf))
    missing, scale = np.zeros((N, f.nd)), max(np.abs(b).max(), np.abs(m).max(), 1e-300)
    C[0] = np.eye(nf)
    if x0 is not None:
        a[0], missing[0] = _solved(before[0], Dh[0], -(f.check_state(x0)[f.nq : f.nq + f.nd] + b[0]))
        C[0] = 0.0
    for k in range(1, N):
        a[k], missing[k] = _solved(before[k], Dh[k], -(m[k - 1] + b[k] + after[k - 1] @ a[k - 1]))
        for j in range(nf):
            C[k, :, j], rest = _solved(before[k], Dh[k], -after[k - 1] @ C[k - 1, :, j])
            if np.abs(rest).max(initial=0.0) > ENOUGH * np.abs(after[k - 1]).max(initial=1e-300):
                C[k, :, j] = 0.0
    unattainable = np.abs(missing) > ENOUGH * scale
    if unattainable.any():
        k, i = (int(n) for n in np.argwhere(unattainable)[0])
        name = f.system.dynamic[i]
        unit = "N m" if f.unit(name) == "rad" else "N"
        raise ModelError(
            f"{f.system.name}: no input follows this motion: at sample {k0 + k} "
            f"{name!r} lacks {missing[k, i] / h:.3g} {unit}; give a motion that the "
            "mechanism can make, or more inputs"
        )
    u0: np.ndarray = np.zeros(nf)
    if x0 is None and N > 1 and nf:
        # least sum of |u_k+1 - u_k|^2
        rows, right = (np.diff(e, axis=0).reshape((N - 1) * nf, -1) for e in (C, a[:, :, None]))
        u0 = np.linalg.lstsq(rows, -right[:, 0], rcond=None)[0]
    U = a + np.einsum("kij,j->ki", C, u0)
    if x0 is None:
        p = -(b[0] + before[0] @ U[0])
        if nm:  # the start is tangent to the constraints: half the impulse there belongs to it
            p = p + Dh[0].T @ np.linalg.lstsq(Dh[0].T, -p + m[0] + after[0] @ U[0], rcond=None)[0]
        x0 = np.concatenate([q[0], p, (q[1] - q[0])[f.nd :] / h])
    return np.asarray(x0, float), np.concatenate([U, q[1:, f.nd :]], axis=1)


def _solved(B: np.ndarray, Dh: np.ndarray, right: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the least-squares solution u of B u - Dh' lambda = right.
    The second result is the residual. Here u are the inputs of a step, lambda the multipliers of the
    constraints, B is the derivative of the momentum balance with respect to u, and Dh is the constraint
    Jacobian.
    """
    A = np.concatenate([B, -Dh.T], axis=1)
    x = np.linalg.lstsq(A, right, rcond=None)[0] if A.shape[1] else np.zeros(0)
    return x[: B.shape[1]], right - A @ x
