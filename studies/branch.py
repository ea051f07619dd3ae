"""The branch of a step's roots by arclength: a route of its own to which root a step is, if there is one.

A step's equations have a branch of roots that begins, at length 0, with the velocities of the state; the step
is the root on it (docs/maths/midpoint.md, "Which root is the step"). `vioc` certifies that root, or follows
the branch in the step's length. Here it is followed in its own arclength, which goes on behind a fold, where
the length turns back: so a step is shown not to exist by the branch itself.
"""

from __future__ import annotations

from typing import NamedTuple

import casadi as ca
import numpy as np

from vioc.dynamics.integrators.mechanical import MechanicalMap

# Of the step's length: where the branch is entered, from the velocities of the state. Shorter shares where
# the motion turns fast, as beside a pole of Euler angles; longer ones where rounding hides the rates
FIRST = (*np.geomspace(1e-3, 1e-9, 19), 1e-2, 1e-1)
STRIDE, LEAST = 0.02, 1e-9  # of arclength at first, and at least, with the length of the step for 1
BEND = 0.02  # rad, between tangents at the ends of a stride
# Along a stride the share grows per arclength. Largest relative change of this growth, and the growth that is
# so small that it may vanish; at sharp folds it may change by more if the curvature changes by at most STEADY
SLOWER, LEVEL = 0.5, 1e-5
STEADY = 0.25
# Of corrections: below ROUNDING the next one is rounding, and below STAGNANT one that does not contract
CONTRACTION, ROUNDING, STAGNANT = 0.1, 1e-9, 1e-7
MOST = 20_000  # strides


class Followed(NamedTuple):
    """The end of a branch, or the share of the step at which it folds.

    Attributes
    ----------
    end : (nd,) or None
        q_k+1 at the whole length; None where the branch folds back before.
    share : float
        The largest share of the step's length on the way: 1, or where the branch folds.
    """

    end: np.ndarray | None
    share: float


class Branch:
    """The equations of steps of `f`, without prescribed variables, for rates w, impulses and a share s.

    q_k+1 = q_k + s dt w, and the constraints have 1 - s of what they lack at the start.
    """

    def __init__(self, f: MechanicalMap):
        assert not f.nk and not f.mechanism.velocity_constraints, "prescribed variables, rolling: not written"
        self.f, nd, nm = f, f.nd, f.nm
        x, u, dt = ca.SX.sym("x", f.nx), ca.SX.sym("u", f.nu), ca.SX.sym("dt")
        y, off = ca.SX.sym("y", nd + nm + 1), ca.SX.sym("off", nm)
        w, impulses, s = y[:nd], y[nd:-1], y[-1]

        def rows(q: ca.SX, length: ca.SX) -> ca.SX:
            after = ca.vertcat(q, ca.SX.zeros(f.nx - nd))
            return f.residual(x, u, after, impulses, 0.0, length, list(f.theta))[: nd + nm]

        found = rows(x[:nd] + s * dt * w, s * dt)
        lacking = ca.Function("off", [x, u, dt, y], [rows(x[:nd], dt)[nd:]])
        left = ca.vertcat(found[:nd], (found[nd:] - (1 - s) * off) / (s * dt))
        args = [x, u, dt, off, y]
        self.equations = ca.Function("equations", args, [left, ca.jacobian(left, y)])
        self.lacking = lacking
        self.weights = np.sqrt(f.lagrangian.mass_scale)

    def follow(self, x: np.ndarray, u: np.ndarray, dt: float) -> Followed:
        """The branch of the step from x under u.

        Raises
        ------
        RuntimeError
            Where it could not be followed, neither to the step nor to a fold.
        """
        nd, nm = self.f.nd, self.f.nm
        off = self.lacking(x, u, dt, np.zeros(nd + nm + 1))
        v = self.f.velocities(x)
        typical = np.linalg.norm(self.weights * v) + np.linalg.norm(self.weights)
        metric = np.concatenate([self.weights / typical, np.zeros(nm), [1.0]])

        def at(y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            left, slope = self.equations(x, u, dt, off, y)
            return np.array(left).ravel(), np.array(slope)

        def corrected(y: np.ndarray, row: np.ndarray) -> np.ndarray | None:
            """The root on the plane through y across `row`; None where corrections do not contract."""
            last = np.inf
            for _ in range(12):
                left, slope = at(y)
                matrix = np.vstack([slope, row])
                if not np.isfinite(matrix).all():
                    return None
                step = np.linalg.solve(matrix, np.append(-left, 0.0))
                y, size = y + step, np.linalg.norm(metric * step)
                contracts = size <= CONTRACTION * last
                if size <= ROUNDING or (size <= STAGNANT and not contracts):
                    return y
                if not contracts:
                    return None
                last = size
            return None

        def tangent(y: np.ndarray, along: np.ndarray) -> np.ndarray:
            """The direction of the branch, of length 1, that goes on with another."""
            _, slope = at(y)
            unit = np.zeros(len(y))
            unit[-1] = 1.0
            t = np.linalg.solve(np.vstack([slope, along * metric**2]), unit)
            return t / np.linalg.norm(metric * t)

        def oriented(y: np.ndarray, t: np.ndarray) -> float:
            """The sign of the determinant times that of the share's change: one along a branch."""
            return float(np.linalg.slogdet(at(y)[1][:, :-1])[0] * np.sign(t[-1]))

        share = np.zeros(nd + nm + 1)
        share[-1] = 1.0
        for first in FIRST:
            y = corrected(np.concatenate([v, np.zeros(nm), [first]]), share)
            if y is not None:
                t = tangent(y, share)
                chord = (y[:nd] - v) / first - t[:nd] / t[-1]
                # from length 0 the branch is straight, or a shorter share is needed
                if np.linalg.norm(metric[:nd] * chord) * t[-1] <= BEND:
                    break
        else:
            raise RuntimeError("no root for the shortest step")
        stride, curved = STRIDE, np.full(len(y), np.nan)
        sign = oriented(y, t)
        for _ in range(MOST):
            beyond = y[-1] + stride * t[-1] >= 1.0
            row = share if beyond else t * metric**2
            guess = y + (1.0 - y[-1]) / t[-1] * t if beyond else y + stride * t
            trial = corrected(guess, row)
            bend, smooth = np.inf, False
            if trial is not None:
                after = tangent(trial, t)
                length = np.linalg.norm(metric * (trial - y))
                bend = np.arccos(np.clip(np.dot(metric * after, metric * t), -1.0, 1.0))
                now = metric * (after - t) / length
                slower = abs(after[-1] - t[-1]) <= max(SLOWER * t[-1], LEVEL)
                steady = np.linalg.norm(now - curved) <= STEADY * np.linalg.norm(curved)
                smooth = (slower or steady) and oriented(trial, after) == sign
            if not (bend <= BEND and smooth):
                stride /= 2
                if stride < LEAST:
                    raise RuntimeError(f"the branch could not be followed beyond {y[-1]:.4g} of the step")
                continue
            if beyond:
                return Followed(x[:nd] + dt * trial[:nd], 1.0)
            if after[-1] <= 0:  # the length turned back on the way: its largest, by a parabola
                top = y[-1] + t[-1] ** 2 * length / (2 * (t[-1] - after[-1]))
                if top <= 0.0:
                    raise RuntimeError("no root for the shortest step but for rounding")
                if bend > 1e-2 or top >= 1.0:
                    stride /= 4
                    if stride < LEAST:
                        raise RuntimeError(f"a fold at the step's very end, {top:.6g} of its length")
                    continue
                return Followed(None, float(top))
            y, t, curved = trial, after, now
            stride *= 2.0 if bend < BEND / 4 else 1.0
        raise RuntimeError(f"{MOST} strides ended at {y[-1]:.4g} of the step")
