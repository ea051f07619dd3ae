"""Inverse kinematics by damped Gauss-Newton within joint limits.

docs/maths/arms.md, (1) to (4). One attempt is one CasADi function, a fixed number of trials from a guess.
Attempts of many targets and many guesses are mapped; those that do not converge start again from random
configurations within the limits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import casadi as ca
import numpy as np

from vioc.compile.backend import Backend
from vioc.compile.evaluate import Evaluator
from vioc.dynamics.algebra.sparse_lu import SparseLU, scalars
from vioc.errors import ModelError
from vioc.maps.orientation import rotation_vector

TRIALS = 16  # number of trial steps in one attempt
DAMPING = 1e-2  # damping of the first trial, per squared error
FLOOR = 1e-13  # lower bound of the damping, because a Jacobian can lose rank
CLOSER = 0.1  # an attempt that reduces the squared error below this fraction is continued
WIDE = np.pi  # rad or m: range of the random guesses of variables without limits


@dataclass(frozen=True)
class InverseConfigurations:
    """Result of inverse kinematics: the configurations found for N targets, with their errors.

    Attributes
    ----------
    q : (N, nq) or (nq,)
        In the order of `names`; without convergence the nearest one.
    error : (N,) or scalar
        Largest error of a position (m), a rotation (rad) or a constraint.
    converged : (N,) or bool
        Whether the error is within the tolerance.
    attempts : (N,) or int
        Number of guesses that were used.
    names : tuple of str
    """

    q: np.ndarray
    error: np.ndarray
    converged: np.ndarray
    attempts: np.ndarray
    names: tuple[str, ...]

    def __getitem__(self, name: str) -> Any:
        return self.q[..., self.names.index(name)]

    def __str__(self) -> str:
        count, all_of = int(np.sum(self.converged)), int(np.size(self.converged))
        worst = float(np.max(self.error, initial=0.0))
        return f"{count} of {all_of} targets reached, error <= {worst:.1e}"


class InverseKinematics:
    """Inverse kinematics for targets of several frames, used by `Kinematics.inverse`.

    Parameters
    ----------
    graph : FrameGraph
        Graph of the kinematics.
    h : casadi.SX
        Constraints (m,) on a configuration, in the symbols of `graph`.
    frames : sequence of (name, whether its rotation counts)
    backend : Backend
    """

    def __init__(self, graph: Any, h: ca.SX, frames: Sequence[tuple[str, bool]], backend: Backend):
        errors, targets = [], []
        for name, oriented in frames:
            T, p, R = graph.pose(name), ca.SX.sym("p", 3), ca.SX.sym("R", 3, 3)
            errors.append(T[:3, 3] - p)
            targets.append(p)
            if oriented:
                errors.append(rotation_vector(R.T @ T[:3, :3]))
                targets.append(ca.vec(R))
        self.e = ca.densify(ca.vertcat(*errors, h))
        q, theta = graph.q_vector, graph.parameters
        self.nq, self.m = q.numel(), self.e.numel()
        target = ca.vertcat(*targets)
        J = ca.densify(ca.jacobian(self.e, q))
        errors_at = ca.Function("errors", [q, target, theta], [self.e, J])
        self._attempt = Evaluator(backend.prepare(self._attempts(errors_at, target.numel(), theta.numel())))

    def _attempts(self, errors_at: ca.Function, nt: int, np_: int) -> ca.Function:
        """Make the CasADi function that tries to solve the inverse kinematics from one guess.
        The function computes a fixed number of damped Gauss-Newton steps. The sizes of the target and of the
        parameters are `nt` and `np_`.

        It is (q, target, free, lower, upper, parameters) -> (q, e). A trial (3) is accepted if it reduces the
        error.
        """
        n, m = self.nq, self.m
        sizes = {"q": n, "e": m, "J": m * n, "damping": 1, "target": nt, "free": n, "low": n, "high": n}
        s = {name: ca.SX.sym(name, size) for name, size in sizes.items()}
        theta = ca.SX.sym("theta", np_)
        e, J = s["e"], ca.reshape(s["J"], m, n)
        size = ca.sumsqr(e)
        g = J.T @ e
        at_limit = ca.logic_or(
            ca.logic_and(s["q"] <= s["low"], g > 0), ca.logic_and(s["q"] >= s["high"], g < 0)
        )
        K = J @ ca.diag(s["free"] * (1 - at_limit))
        mu = s["damping"] * size + FLOOR
        step = -K.T @ _solved(K @ K.T, mu, e) if m <= n else -_solved(K.T @ K, mu, K.T @ e)
        trial = ca.fmin(ca.fmax(s["q"] + step, s["low"]), s["high"])
        e1, J1 = errors_at(trial, s["target"], theta)
        better = ca.sumsqr(e1) < size  # false for NaN
        carry = ca.vertcat(s["q"], e, s["J"], s["damping"])
        outputs = ca.if_else(
            better,
            ca.vertcat(trial, e1, ca.vec(J1), ca.fmax(s["damping"] / 4, 1e-6)),
            ca.vertcat(s["q"], e, s["J"], 8 * s["damping"]),
        )
        constants = [s["target"], s["free"], s["low"], s["high"], theta]
        one = ca.Function("trial", [carry, *constants], [outputs])
        q0 = ca.MX.sym("q", n)
        fixed = [ca.MX.sym(f"given_{i}", a.numel()) for i, a in enumerate(constants)]
        e0, J0 = errors_at(q0, fixed[0], fixed[-1])
        state = ca.vertcat(q0, e0, ca.vec(J0), DAMPING)
        repeated = [ca.repmat(a, 1, TRIALS) for a in fixed]
        state = one.fold(TRIALS)(state, *repeated)
        return ca.Function("attempt", [q0, *fixed], [state[:n], state[n : n + m]])

    def solve(
        self,
        target: np.ndarray,
        guess: np.ndarray,
        low: np.ndarray,
        high: np.ndarray,
        free: np.ndarray,
        theta: np.ndarray,
        *,
        tries: int,
        tolerance: float,
        rng: np.random.Generator,
    ) -> tuple[np.ndarray, ...]:
        """Find configurations for N targets from N guesses.
        Return the configurations, their errors, flags that are True for errors within the tolerance, and the
        numbers of attempts.
        """
        N = len(target)
        best, error = guess.copy(), np.full(N, np.inf)
        attempts, waiting = np.zeros(N, int), np.arange(N)
        q, before = guess.copy(), np.full(N, np.inf)
        while len(waiting):
            trial, e = self._attempt(q, target[waiting], free, low, high, theta)
            trial, e = trial[:, :, 0], e[:, :, 0]
            worst, size = np.abs(e).max(axis=1), (e * e).sum(axis=1)
            worst = np.where(np.isfinite(worst), worst, np.inf)
            nearer = worst < error[waiting]
            best[waiting[nearer]], error[waiting[nearer]] = trial[nearer], worst[nearer]
            going = (worst > tolerance) & (size < CLOSER * before)
            again = (worst > tolerance) & ~going
            attempts[waiting[worst <= tolerance]] += 1
            attempts[waiting[again]] += 1
            again &= attempts[waiting] < tries
            fresh = rng.uniform(np.maximum(low, -WIDE), np.minimum(high, WIDE), (int(again.sum()), self.nq))
            q, before = trial, size
            q[again] = np.where(free > 0, fresh, guess[waiting[again]])
            before[again] = np.inf
            keep = going | again
            waiting, q, before = waiting[keep], np.ascontiguousarray(q[keep]), before[keep]
        return best, error, error <= tolerance, attempts


def _solved(A: ca.SX, mu: ca.SX, b: ca.SX) -> ca.SX:
    rows = scalars(A + mu * ca.SX.eye(A.shape[0]))
    return ca.vertcat(*SparseLU(rows).solve([e[0] for e in scalars(b)]))


def targets_of(targets: Mapping[str, Any]) -> tuple[list[tuple[str, bool]], np.ndarray, bool]:
    """Convert a dict of target poses or positions to a list of frames and an array.
    The keys of the dict are names of frames.

    Return the frames with a flag for rotations, the target values as rows (N, nt), and a flag for a single
    target.
    """
    if not isinstance(targets, Mapping) or not targets:
        raise ModelError(f"targets: expected a dict of frames, {{'hand': pose}}, got {targets!r}")
    arrays = {name: np.asarray(value, float) for name, value in targets.items()}
    frames: list[tuple[str, bool]] = []
    columns, counts = [], []
    for name, array in arrays.items():
        oriented = array.shape[-2:] == (4, 4)
        plain = 2 if oriented else 1
        if (
            not np.isfinite(array).all()
            or not (oriented or array.shape[-1:] == (3,))
            or array.ndim > plain + 1
        ):
            raise ModelError(
                f"targets: {name!r}: expected a pose (4, 4), a position (3,), or N of them, got "
                f"shape {array.shape}"
            )
        array = array[None] if array.ndim == plain else array
        if oriented:
            R = array[:, :3, :3]
            error = np.abs(R @ np.swapaxes(R, 1, 2) - np.eye(3)).max()
            if error > 1e-9 or (np.linalg.det(R) < 0).any():
                raise ModelError(f"targets: {name!r}: |R R' - 1| = {error:.1g}; expected rotation matrices")
            array = np.concatenate([array[:, :3, 3], np.swapaxes(R, 1, 2).reshape(-1, 9)], axis=1)
        frames.append((name, oriented))
        columns.append(array)
        counts.append(len(array))
    N = max(counts)
    if set(counts) - {1, N}:
        raise ModelError(
            f"targets: expected equally many for every frame, got {dict(zip(arrays, counts, strict=True))}"
        )
    rows = np.concatenate([np.broadcast_to(a, (N, a.shape[1])) for a in columns], axis=1)
    single = all(np.asarray(v).ndim == 1 + t for (_, t), v in zip(frames, targets.values(), strict=True))
    return frames, np.ascontiguousarray(rows), single
