"""Condensed quadratic program of a receding horizon, without states as variables.

It is used without a compiler. The states are eliminated, and the variables are d_k in the inputs u_k = -K_k
x_k - f_k + L_k^-T d_k. The gains K_k, offsets f_k and Cholesky factors L_k are those of the program's Riccati
recursion. The cost is then 1/2 |d|^2 up to a constant, and matrices stay small even if the map is unstable.
"""

from __future__ import annotations

from typing import Any

import casadi as ca
import numpy as np

from vioc.control.stages.recursion import Recursion

OPTIONS: dict[str, dict[str, Any]] = {
    "osqp": {
        "osqp": {
            "eps_abs": 1e-7,
            "eps_rel": 1e-7,
            "max_iter": 50000,
            "polish": True,
            "verbose": False,
        }
    },
    "qrqp": {"print_iter": False, "print_header": False, "print_info": False, "max_iter": 10000},
}
ROUGH = 1e-9  # weight of inputs in the least-squares violation of infeasible constraints
VIOLATED = 1e-6  # violation of constraints of norm one that counts as a failure; not every solver reports it


class CondensedSolver:
    """Solver of a condensed quadratic program, with one of CasADi's solvers.

    Parameters
    ----------
    solver : str
    options : dict, optional
        Options of that solver.
    """

    def __init__(self, solver: str, options: dict[str, Any] | None = None):
        self.solver = solver
        self._options = dict(OPTIONS.get(solver, {}) if options is None else options)
        self._solvers: dict[tuple, ca.Function] = {}

    def prepare(self, d: Any) -> bool:
        """Condense a quadratic program; return False if it has no minimum.
        To condense is to eliminate the states.

        `d` is the `Data` of the program. Nothing in this function depends on the initial state.
        """
        N, n, m = d.steps, d.nx, d.nu
        q, size = n + m, d.steps * d.nu
        by_d, by_start, offset = np.zeros((N, q, size)), np.zeros((N, q, n)), np.zeros((N, q))
        recursion, stages = Recursion(N, n, m), d.stages
        if not recursion.factor(stages):
            return False
        offsets, roots = recursion.linear(stages)[1], np.linalg.inv(recursion.lower).swapaxes(1, 2)  # f, L^-T
        x_d, x_start, x = np.zeros((n, size)), np.eye(n), np.zeros(n)
        for k, (K, f, L) in enumerate(zip(recursion.gains, offsets, roots, strict=True)):
            by_d[k, :n], by_start[k, :n], offset[k, :n] = x_d, x_start, x
            by_d[k, n:], by_start[k, n:], offset[k, n:] = -K @ x_d, -K @ x_start, -K @ x - f
            by_d[k, n:, k * m : (k + 1) * m] += L
            F = d.F[k]
            x_d, x_start, x = F @ by_d[k], F @ by_start[k], F @ offset[k] + d.c[k]
        self._motion = by_d, by_start, offset
        self._end = x_d, x_start, x
        return self._rows(d)

    def _rows(self, d: Any) -> bool:
        """Set up the constraints of the condensed quadratic program.
        Only constraints with a finite limit are included, and scaled to unit norm. `kept` has the indices of
        these constraints among all constraints.
        """
        (by_d, by_start, offset), (x_d, x_start, x) = self._motion, self._end
        J = d.rows()
        parts = [
            [np.matmul(J, a).reshape(-1, a.shape[2]) for a in (by_d, by_start)],
            [d.J_end @ x_d, d.J_end @ x_start],
        ]
        A, start = (np.vstack([p[i] for p in parts]) for i in (0, 1))
        values = np.concatenate([(J @ offset[..., None]).ravel(), d.J_end @ x])
        low, high, linear, square = d.limits()
        keep = np.flatnonzero(np.isfinite(low) | np.isfinite(high))
        soft = linear[keep] >= 0
        root = np.sqrt(square[keep][soft])  # the program's variable for a slack e is root e
        length = np.linalg.norm(A[keep], axis=1)
        length[soft] = np.hypot(length[soft], 1 / root)  # the solver's tolerance assumes norm one
        length = np.maximum(length, 1e-12)
        self.kept, self._length, self._start = keep, length, start[keep] / length[:, None]
        self._A = A[keep] / length[:, None]
        self._low, self._high = (low[keep] - values[keep]) / length, (high[keep] - values[keep]) / length
        self._slope = linear[keep][soft] / root
        give = np.zeros((len(keep), soft.sum()))
        give[np.flatnonzero(soft), np.arange(soft.sum())] = 1 / (root * length[soft])
        up, down = np.hstack([self._A, give]), np.hstack([self._A, -give])[soft]
        self._matrix, self._soft = np.vstack([up, down]), soft
        return True

    def solve(self, x0: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, bool]:
        """Solve the quadratic program for a given initial state.
        Return the states and inputs of all stages in one array, the last state, the multipliers of the
        constraints that have a finite limit, and True if the solver succeeded.

        If the solver failed, the smallest constraint violations (`least`) are returned instead of the
        multipliers.
        """
        (by_d, by_start, offset), (x_d, x_start, x) = self._motion, self._end
        soft, size = self._soft, by_d.shape[2]
        low, high = self._limits(x0)
        w, y, good = np.zeros(size + soft.sum()), np.zeros(len(low)), True
        if not ((low <= 0) & (high >= 0)).all():
            w, y, good = self._run((low, high), size)
        d = w[:size]
        z = by_d @ d + by_start @ x0 + offset
        end = x_d @ d + x_start @ x0 + x
        return z, end, self._of_rows(y) if good else self.least(x0), good

    def free(self, x0: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return states (N+1, nx) and inputs (N, nu) of least cost without constraints."""
        (_, by_start, offset), (_, x_start, x) = self._motion, self._end
        z, n = by_start @ x0 + offset, len(x0)
        return np.vstack([z[:, :n], x_start @ x0 + x]), z[:, n:]

    def _limits(self, x0: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return lower and upper limits of the condensed program for initial state x0.
        The limits of all constraints in the program come first. A soft constraint has only its lower limit
        there; its upper limit belongs to an additional constraint at the end.
        """
        offset, soft = self._start @ x0, self._soft
        low, high = self._low - offset, self._high - offset
        lower = np.concatenate([low, np.full(soft.sum(), -np.inf)])
        return lower, np.concatenate([np.where(soft, np.inf, high), high[soft]])

    def _of_rows(self, y: np.ndarray) -> np.ndarray:
        multipliers = y[: len(self._soft)].copy()
        multipliers[self._soft] += y[len(self._soft) :]
        return multipliers / self._length

    def least(self, x0: np.ndarray) -> np.ndarray:
        """Return the smallest constraint violations for initial state x0.
        They are the violations with the least sum of squares, of the constraints that have a finite limit
        (`kept`).

        If these constraints are infeasible, the violations are multipliers that prove it, see (RH 11).
        """
        rows, size = self._matrix.shape
        H = np.concatenate([np.full(size, ROUGH), np.ones(rows)])
        pattern = {"h": ca.Sparsity.diag(size + rows), "a": ca.Sparsity.dense(rows, size + rows)}
        solver = ca.conic("least", self.solver, pattern, {**self._options, "error_on_fail": False})
        A, (low, high) = np.hstack([self._matrix, -np.eye(rows)]), self._limits(x0)
        out = solver(h=ca.diag(ca.DM(H)), g=np.zeros(size + rows), a=A, lba=low, uba=high)
        return self._of_rows(np.array(out["x"]).ravel()[size:])

    def _run(self, limits: tuple[np.ndarray, np.ndarray], free: int):
        """Solve the condensed quadratic program for given limits with CasADi's solver.
        The first `free` variables are unbounded; the other variables are slacks of soft constraints. Return
        the variables, the multipliers of the limits, and True if the solver succeeded.

        The program is: minimize 1/2 |w|^2 + slope's under limits on A w, with the slacks s = w[free:] >= 0.
        """
        A, size = self._matrix, self._matrix.shape[1]
        if A.shape not in self._solvers:
            if len(self._solvers) >= 8:
                self._solvers.pop(next(iter(self._solvers)))
            pattern = {"h": ca.Sparsity.diag(size), "a": ca.Sparsity.dense(*A.shape)}
            options = {**self._options, "error_on_fail": False}
            self._solvers[A.shape] = ca.conic("mpc", self.solver, pattern, options)
        solver = self._solvers[A.shape]
        g = np.concatenate([np.zeros(free), self._slope])
        least = np.concatenate([np.full(free, -np.inf), np.zeros(size - free)])
        out = solver(
            h=ca.DM.eye(size), g=g, a=A, lbx=least, ubx=np.full(size, np.inf), lba=limits[0], uba=limits[1]
        )
        w, y = np.array(out["x"]).ravel(), np.array(out["lam_a"]).ravel()
        w[free:] = np.maximum(w[free:], 0.0)
        reached = A @ w
        kept = np.maximum(limits[0] - reached, reached - limits[1]) <= VIOLATED * (1 + np.abs(reached))
        return w, y, bool(solver.stats()["success"] and kept.all())
