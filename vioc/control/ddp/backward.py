"""The backward pass: cost and map to second order along a run, and the step that they suggest.

docs/maths/ddp.md.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vioc.control.costs.cost import Cost
from vioc.control.ddp.box_qp import box_qp
from vioc.control.descent.local_model import joined
from vioc.control.problem.sizes import Sizes, power
from vioc.maps.protocol import OneStepMap
from vioc.maps.trajectory import Trajectory

CHUNK = 2_000_000  # numbers in the second derivatives that are kept at a time
Box = tuple[np.ndarray, np.ndarray]


@dataclass
class Pass:
    """What a backward pass gives: feedforward (N, nu), gains (N, nu, ndx), k'Q_u and k'Q_uu k summed.

    `convex` says that only the cost's convex part was taken, `shift` is the regularization.
    """

    k: np.ndarray
    K: np.ndarray
    slope: float
    quadratic: float
    convex: bool
    shift: float
    method: str

    def promise(self, alpha: float) -> float:
        """The decrease of the cost that a step of length alpha is worth by the model."""
        return -(alpha * self.slope + 0.5 * alpha**2 * self.quadratic)


class Model:
    """Cost and map to second order along a run; "ilqr" leaves the second derivatives of the map out."""

    def __init__(self, f: OneStepMap, cost: Cost, run: Trajectory, method: str):
        self.f, self.cost, self.run, self.method, self.curved = f, cost, run, method, method == "ddp"
        self.lin = f.linearize_trajectory(run)
        self.expansion = cost.expand(run, self.lin)
        sizes = Sizes(f, run.x, run.u, run.duration, {})
        of_inputs = np.einsum("kii,i->", np.abs(self.expansion.luu), sizes.inputs**2)
        self.weights = power(float(of_inputs)) / sizes.states**2  # of a shift of V' in the problem's units
        self._extra: np.ndarray | None = None
        self._chunk: tuple[int, np.ndarray] = 0, np.empty(0)

    def curvature(self, k: int) -> np.ndarray:
        """Second derivatives of step k by (x, u), (ndx, ns, ns); those of a chunk of steps are kept."""
        start, tensor = self._chunk
        if not start <= k < start + len(tensor):
            f, run = self.f, self.run
            start = max(0, k + 1 - max(1, CHUNK // (f.ndx * (f.ndx + f.nu) ** 2)))
            part = run.part(start, k + 1)
            tensor = joined(*f.second_order_tensor_trajectory(part)[0])
            self._chunk = start, tensor
        return tensor[k - start]

    def _of_multipliers(self) -> np.ndarray | None:
        """The multipliers' own curvature, contracted with the cost's derivative by them."""
        if self.expansion.zeta is None or not self.curved:
            return None
        if self._extra is None:
            none = np.zeros((len(self.run), self.f.ndx))
            self._extra = joined(*self.f.second_order_trajectory(self.run, none, self.expansion.zeta))
        return self._extra

    def backward(self, r: float, box: Box | None, convex: bool = False) -> Pass | None:
        """The backward pass with regularization r; None where it has no minimum.

        `convex` leaves out the map's curvature and takes the cost's Gauss-Newton.
        """
        e, (A, B), n, m = self.expansion, self.lin, self.f.ndx, self.f.nu
        N = len(self.run)
        h = self.cost.expand(self.run, self.lin, exact=False) if convex else e
        lxx, lxu, luu = h.lxx, h.lxu, h.luu
        v, V = e.lx[-1], lxx[-1]
        k_all, K_all = np.zeros((N, m)), np.zeros((N, m, n))
        linear = quadratic = 0.0
        extra = self._of_multipliers()
        for k in range(N - 1, -1, -1):
            AB = np.hstack([A[k], B[k]])
            q = np.concatenate([e.lx[k], e.lu[k]]) + AB.T @ v
            Q = np.block([[lxx[k], lxu[k]], [lxu[k].T, luu[k]]])
            if self.curved and not convex:
                Q = Q + np.tensordot(v, self.curvature(k), 1)
            if extra is not None and not convex:
                Q = Q + extra[k]
            Q = Q + AB.T @ V @ AB
            shifted = Q[n:] + r * (self.weights[:, None] * B[k]).T @ AB
            low, high = (-np.inf, np.inf) if box is None else (b[k] - self.run.u[k] for b in box)
            step = box_qp(shifted[:, n:], q[n:], low, high, shifted[:, :n])
            if step is None:
                return None
            feed, K = step
            Qxx, Qxu, Quu = Q[:n, :n], Q[:n, n:], Q[n:, n:]
            linear += float(feed @ q[n:])
            quadratic += float(feed @ Quu @ feed)
            v = q[:n] - K.T @ q[n:] + (Qxu - K.T @ Quu) @ feed
            V = Qxx - Qxu @ K - K.T @ Qxu.T + K.T @ Quu @ K
            V = 0.5 * (V + V.T)
            k_all[k], K_all[k] = feed, K
        if not (np.isfinite(linear) and np.isfinite(quadratic)):
            return None
        method = "gauss-newton" if convex else self.method
        return Pass(k_all, K_all, linear, quadratic, convex, r, method)
