"""Tasks of `contact_library` written out by hand for CasADi and IPOPT: peers.

Nothing here is of vioc's maps or transcription. Samples have q, u and impulses as unknowns, momenta follow;
products of complementarity are at most eps, which falls from 1 to 1e-8 by tenths, each solve from the one
before (Scholtes' relaxation, as nosnoc has it).
"""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import casadi as ca
import numpy as np

from studies.contact_library import Task

LEAST, FALL = 1e-8, 0.1


class Direct(NamedTuple):
    """What IPOPT ended with."""

    cost: float
    converged: bool
    iterations: int
    seconds: float
    q: np.ndarray
    u: np.ndarray
    unknowns: int


def solve(task: Task, wide: float = 1.0) -> Direct:
    n, nu, N, h = len(task.start[0]), task.map.nu, task.steps, task.map.dt
    steps = _step(task, n, nu)
    w: list[Any] = []
    w0: list[np.ndarray] = []
    box: list[tuple[np.ndarray, np.ndarray]] = []
    rows: list[Any] = []
    sides: list[tuple[np.ndarray, np.ndarray]] = []
    eps = ca.SX.sym("eps")

    def new(size: int, start: Any, low: float = -np.inf, high: float = np.inf) -> Any:
        w.append(ca.SX.sym(f"w{len(w)}", size))
        w0.append(np.broadcast_to(np.asarray(start, float), size))
        box.append((np.full(size, low), np.full(size, high)))
        return w[-1]

    def row(value: Any, low: Any = 0.0, high: Any = 0.0) -> None:
        rows.append(ca.densify(ca.vec(ca.SX(value))))
        sides.append((np.broadcast_to(low, rows[-1].numel()), np.broadcast_to(high, rows[-1].numel())))

    guess, inputs = task.guess
    q = [new(n, guess[k]) for k in range(N + 1)]
    box[0] = task.start[0], task.start[0]
    p: Any = new(n, 0.0) if task.start[1] is None else ca.DM(task.momenta(task.start[1]))
    cost: Any = 0
    weight = h if task.per_time else 1.0
    refs = task.references if task.references is not None else np.zeros((N + 1, 0))
    u: list[Any] = []
    for k in range(N):
        u.append(new(nu, 0.0 if inputs is None else inputs[k]))
        a, b = q[k], q[k + 1]
        v = steps["velocity"](a, p)
        leave, arrive, gaps, N0, joints, D0 = steps["step"](a, b, u[k])
        gamma = new(gaps.numel(), 1e-2, 0.0)
        slack = new(gaps.numel(), 1e-1, 0.0)
        row(slack - gaps / h)
        row(slack * gamma - eps, -np.inf, 0.0)
        lam = new(joints.numel(), 0.0)
        row(joints)
        push = N0.T @ gamma + D0.T @ lam
        for i, rub in enumerate(task.rubs):
            T = steps[f"slip{i}"](a)
            tau, psi = new(T.shape[0], 0.0), new(1, 1e-2, 0.0)
            most = rub.limit * (h if rub.gap is None else gamma[rub.gap])
            row(most * (T @ (b - a) / h) + psi * tau)
            row(most**2 - ca.sumsqr(tau), 0.0, np.inf)
            row(psi * (most**2 - ca.sumsqr(tau)) - eps, -np.inf, 0.0)
            push = push + T.T @ tau
        row(p + leave + push)
        cost += weight * task.stage(a, v, u[k], gamma, ca.DM(refs[k]))
        _hold(task, k, a, v, u[k], row)
        p = arrive
    v = steps["velocity"](q[N], p)
    cost += task.last(q[N], v, ca.DM(refs[N]))
    _hold(task, N, q[N], v, None, row)

    whole = ca.vertcat(*w)
    nlp = {"x": whole, "f": cost, "g": ca.vertcat(*rows), "p": eps}
    options = {"print_time": False, "ipopt.print_level": 0, "ipopt.sb": "yes", "ipopt.max_iter": 1000}
    solver = ca.nlpsol("direct", "ipopt", nlp, {**options, "ipopt.tol": 1e-9})
    low, high = (np.concatenate(side) for side in zip(*box, strict=True))
    lower, upper = (np.concatenate(side) for side in zip(*sides, strict=True))
    x, count, seconds, level, good = np.concatenate(w0), 0, 0.0, wide, True
    while True:
        begin = time.perf_counter()
        found = solver(x0=x, lbx=low, ubx=high, lbg=lower, ubg=upper, p=level)
        seconds += time.perf_counter() - begin
        x, good = np.array(found["x"])[:, 0], bool(solver.stats()["success"])
        count += solver.stats()["iter_count"]
        if level <= LEAST:
            break
        level = max(LEAST, FALL * level)
    out = ca.Function("out", [whole], [ca.horzcat(*q), ca.horzcat(*u)])(x)
    Q, U = (np.array(o).T for o in out)
    return Direct(float(found["f"]), good, count, seconds, Q, U, int((low < high).sum()))


def _step(task: Task, n: int, nu: int) -> dict[str, ca.Function]:
    """Of the midpoint rule: p_k + leave + impulses = 0, p_k+1 = arrive."""
    a, b, u, p = ca.SX.sym("a", n), ca.SX.sym("b", n), ca.SX.sym("u", nu), ca.SX.sym("p", n)
    h = task.map.dt
    middle, rate = (a + b) / 2, (b - a) / h
    L = h * task.kinetic(middle, rate)
    half = 0.5 * h * ca.densify(ca.SX(task.push(middle, rate, u)))
    gaps, joints = (ca.densify(ca.vertcat(ca.SX(0, 1), g)) for g in (task.gaps(b), task.joints(b)))
    slopes = [ca.jacobian(ca.vertcat(ca.SX(0, 1), g), a) for g in (task.gaps(a), task.joints(a))]
    outputs = [ca.gradient(L, a) + half, ca.gradient(L, b) + half, gaps, slopes[0], joints, slopes[1]]
    M = ca.hessian(task.kinetic(a, p), p)[0]
    found = {
        "step": ca.Function("step", [a, b, u], outputs),
        "velocity": ca.Function("velocity", [a, p], [ca.solve(M, p)]),
    }
    return found | {f"slip{i}": ca.Function("slip", [a], [r.slopes(a)]) for i, r in enumerate(task.rubs)}


def _hold(task: Task, k: int, q: Any, v: Any, u: Any, row: Any) -> None:
    """What is held at a sample."""
    for name, (formula, low, high) in task.held.items():
        if name.startswith("u.") and u is None:
            continue
        a, b = (float(np.ravel(s)[k if np.size(s) > 1 else 0]) for s in (low, high))
        value = ca.SX(formula(q, v, ca.SX.zeros(task.map.nu) if u is None else u))
        if (np.isfinite(a) or np.isfinite(b)) and not value.is_constant():
            row(value, a, b)
