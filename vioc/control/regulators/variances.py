"""Linear feedback of least cost under limits on variances.

It solves the dual of a semidefinite program. Maths: docs/maths/robust.md#covariance-steering.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from vioc.control.regulators.riccati import riccati
from vioc.errors import OptimizationError

SHRINK = 0.1  # factor of the barrier parameter between barrier subproblems
CENTRED = 1e-6  # squared Newton decrement over the barrier parameter, at which a subproblem is solved
ARMIJO = 1e-4
PROVEN = 1e-9  # relative excess of a lower bound over the limits that proves infeasibility
ROUNDING = 1e-9  # smallest significant relative increase of the dual
COUPLED = 1e-13  # relative coupling of an input with the state it moves, below which it is rounding
NEWTON = 300  # total number of Newton steps
DECADES = 20  # search range of a first multiplier
ROUGH = 1e-2  # relative gap at which omitted limits are checked again
NEAR = 0.5  # variance over its limit above which a limit is included
ROUNDS = 30  # rounds of including limits


class VarianceLimits(NamedTuple):
    """Limits on variances of states and inputs, and on the final covariance.

    Quantities are scaled so that their largest variance is 1, and the largest final covariance is I.

    Attributes
    ----------
    C, samples : (r, n), (r,)
        c'P_k c <= 1 for each row c of C, at sample k > 0.
    D, steps : (s, m), (s,)
        d'K_k P_k K_k'd <= 1 for each row d of D, at step k.
    end : (n, n) or None
        T with T P_N T' <= I.
    """

    C: np.ndarray
    samples: np.ndarray
    D: np.ndarray
    steps: np.ndarray
    end: np.ndarray | None = None

    def only(self, rows: np.ndarray, end: bool) -> VarianceLimits:
        """Return selected limits on variances.
        `rows` is a mask of the limits to keep; `end` is True to keep also the limit on the final covariance.
        """
        r = len(self.samples)
        first, second = rows[:r], rows[r:]
        kept = self.C[first], self.samples[first], self.D[second], self.steps[second]
        return VarianceLimits(*kept, self.end if end else None)


class VarianceMultipliers(NamedTuple):
    """Multipliers of the limits on variances and on the final covariance.

    `mu` (r + s,) > 0 are those of the variances; `L` (n, n) > 0, or (0, 0), is that of the final covariance.
    """

    mu: np.ndarray
    L: np.ndarray

    @property
    def total(self) -> float:
        return float(self.mu.sum() + np.trace(self.L))


class VarianceDesign(NamedTuple):
    """Optimal feedback gains for given multipliers of the limits on variances.
    The fields include covariances, variances and the value of the Lagrange dual function.
    """

    K: np.ndarray
    Pi: np.ndarray
    P: np.ndarray
    variances: np.ndarray
    end: np.ndarray
    dual: float

    @property
    def worst(self) -> float:
        """Largest ratio of a variance to its limit."""
        return float(max(self.variances.max(initial=0.0), np.linalg.eigvalsh(self.end).max(initial=0.0)))

    @property
    def kept(self) -> bool:
        return self.worst <= 1


class Steered(NamedTuple):
    """Feedback gains that satisfy all limits on variances, with covariances and cost.
    The cost exceeds the smallest possible cost by at most `gap`.
    """

    K: np.ndarray
    Pi: np.ndarray
    P: np.ndarray
    cost: float
    gap: float
    multipliers: VarianceMultipliers
    iterations: int


@dataclass(frozen=True)
class VarianceProblem:
    """Problem of finding feedback gains of least expected cost under variance limits.

    Minimize E sum z'Qz + v'Rv + z_N'Qf z_N over the gains K of v = -K z for the system z+ = A z + B v + w.

    Attributes
    ----------
    A, B, W : (N, n, n), (N, n, m), (N, n, n)
        W is the covariance of w.
    P0 : (n, n)
    Q, R, Qf : (N, n, n), (m, m), (n, n)
    limits : VarianceLimits
    """

    A: np.ndarray
    B: np.ndarray
    W: np.ndarray
    P0: np.ndarray
    Q: np.ndarray
    R: np.ndarray
    Qf: np.ndarray
    limits: VarianceLimits

    def solve(self, tolerance: float) -> Steered:
        """Return the feasible gains of least cost, to a relative tolerance.

        Raises
        ------
        Unreachable
            If a lower bound proves that no gains keep the limits.
        OptimizationError
            If neither gains nor a proof are found in a limited number of steps.
        """
        rows, end = np.zeros(len(self.limits.samples) + len(self.limits.steps), bool), False
        empty = np.zeros((0, 0))
        multipliers, steps = VarianceMultipliers(np.zeros(0), empty), 0

        def full(part: VarianceMultipliers) -> VarianceMultipliers:
            mu = np.zeros(len(rows))
            mu[rows] = part.mu
            return VarianceMultipliers(
                mu, part.L if end or self.limits.end is None else np.zeros_like(self.P0)
            )

        t, goal = 0.0, max(tolerance, ROUGH)
        for _ in range(ROUNDS):
            part = replace(self, limits=self.limits.only(rows, end))
            try:
                multipliers, t, iterations = part.ascend(multipliers, t, goal)
            except Unreachable as verdict:
                raise Unreachable(full(verdict.multipliers), verdict.ratio) from None
            steps += iterations
            design = part.design(multipliers)
            variances, last = self._variances(design.K, design.P)
            late = not end and bool(np.linalg.eigvalsh(last).max(initial=0.0) > 1)
            if not late and variances.max(initial=0.0) <= 1:
                if goal > tolerance and multipliers.total > 0:
                    goal = tolerance
                    continue
                cost = design.dual + multipliers.total
                cost -= float(multipliers.mu @ design.variances + np.sum(multipliers.L * design.end))
                return Steered(
                    design.K, design.Pi, design.P, cost, cost - design.dual, full(multipliers), steps
                )
            # limits close to active are included as well, which saves rounds
            mu, known = full(multipliers).mu, rows
            rows, end = rows | (variances > NEAR), end or late
            part = replace(self, limits=self.limits.only(rows, end))
            size = part.scale(np.concatenate([multipliers.mu, np.diag(multipliers.L)]).max(initial=0.0))
            mu[rows & ~known] = size
            L = size * np.eye(len(self.P0)) if late else multipliers.L
            multipliers = VarianceMultipliers(mu[rows], L if end else empty)
            t = multipliers.total / (len(multipliers.mu) + len(multipliers.L))
        raise OptimizationError(f"no gains were found in {ROUNDS} rounds of limits that join")

    def design(self, multipliers: VarianceMultipliers) -> VarianceDesign:
        """Return the gains that are optimal for given multipliers of the limits.
        The multipliers are additional weights of the limited variances in the cost.
        """
        (C, samples, D, steps, T), N = self.limits, len(self.A)
        r = len(samples)
        weighed = np.concatenate([self.Q, self.Qf[None]])
        np.add.at(weighed, samples, multipliers.mu[:r, None, None] * C[:, :, None] * C[:, None])
        if T is not None:
            weighed[N] += T.T @ multipliers.L @ T
        R = np.tile(self.R, (N, 1, 1))
        np.add.at(R, steps, multipliers.mu[r:, None, None] * D[:, :, None] * D[:, None])
        K, Pi = riccati(self.A, self.B, weighed[:N], R, weighed[N])
        P = self._covariances(K)
        dual = np.sum(Pi[0] * self.P0) + np.sum(Pi[1:] * self.W) - multipliers.total
        return VarianceDesign(K, Pi, P, *self._variances(K, P), float(dual))

    def least(self, multipliers: VarianceMultipliers) -> float:
        """Return a lower bound on a weighted sum of variances, valid for all gains.
        The multipliers are the weights.

        The bound is exact up to rounding: it is the least cost with these weights alone, without Q and R.
        Inputs may then have no cost. Such inputs can cancel all components of Y z in the range of Y B, where
        |Y z|^2 is the cost-to-go, so these components are removed from Y.
        """
        (C, samples, D, steps, T), N, n = self.limits, len(self.A), self.A.shape[1]
        root = np.sqrt(multipliers.mu)
        C, D = root[: len(samples), None] * C, root[len(samples) :, None] * D
        Y = C[samples == N]
        if T is not None:
            values, vectors = np.linalg.eigh(multipliers.L)
            Y = np.vstack([Y, np.sqrt(np.maximum(values, 0.0))[:, None] * (vectors.T @ T)])
        value = 0.0
        for k in range(N - 1, -1, -1):
            value += float(np.sum(Y @ self.W[k] * Y))
            rows = D[steps == k]
            effects = np.vstack([Y @ self.B[k], rows])
            sizes = np.linalg.norm(np.vstack([np.abs(Y) @ np.abs(self.B[k]), rows]), axis=0)
            U, values, _ = np.linalg.svd(effects / np.where(sizes > 0, sizes, 1.0), full_matrices=False)
            U = U[:, values > COUPLED]
            stays = np.vstack([Y @ self.A[k], np.zeros((len(rows), n))])
            stays -= U @ (U.T @ stays)
            Y = np.linalg.qr(np.vstack([stays, C[samples == k]]), mode="r")
        return value + float(np.sum(Y @ self.P0 * Y))

    def _covariances(self, K: np.ndarray) -> np.ndarray:
        P = [self.P0]
        for F, W in zip(self.A - self.B @ K, self.W, strict=True):
            P.append(F @ P[-1] @ F.T + W)
        return np.stack(P)

    def _variances(self, K: np.ndarray, P: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        C, samples, D, steps, T = self.limits
        d = np.einsum("im,imn->in", D, K[steps])
        states = np.einsum("in,inm,im->i", C, P[samples], C)
        inputs = np.einsum("in,inm,im->i", d, P[steps], d)
        end = np.zeros((0, 0)) if T is None else T @ P[-1] @ T.T
        return np.concatenate([states, inputs]), end

    def ascend(
        self, now: VarianceMultipliers, t: float, tolerance: float
    ) -> tuple[VarianceMultipliers, float, int]:
        """Maximize the Lagrange dual function over the multipliers by Newton's method.
        A barrier keeps the multipliers positive; its parameter falls from t. Return the multipliers, the last
        barrier parameter, and the number of iterations.
        """
        count = len(now.mu) + len(now.L)
        if count == 0:
            return now, t, 0
        design = self.design(now)
        basis = _Basis(len(now.mu), len(now.L))
        for step in range(NEWTON):
            if not design.kept:  # checked in every step: a divergent ascent overflows in a few steps
                bound, total = self.least(now), now.total
                if bound > (1 + PROVEN) * total:
                    raise Unreachable(now, bound / total)
            slope, curve = self._derivatives(now, design, basis, t)
            move = np.linalg.solve(curve, slope)
            decrement = float(slope @ move)
            risen = None if decrement <= CENTRED * t else self._search(now, design, basis, t, move, decrement)
            if risen is None:
                if not decrement <= max(CENTRED * t, ROUNDING * abs(design.dual)):  # also true for NaN
                    raise OptimizationError(
                        f"no verdict: with multipliers of {now.total:.3g} rounding leaves no way on (largest "
                        f"variance {design.worst:.6g} of its limit): inputs hardly move something that is "
                        "limited; allow more"
                    )
                if design.kept and t * count <= tolerance * design.dual:
                    return now, t, step
                t *= SHRINK
                continue
            now, design = risen
        raise OptimizationError(
            f"no verdict in {NEWTON} steps: the limits are at the edge of what can be reached (largest "
            f"variance {design.worst:.6g} of its limit); allow a little more"
        )

    def scale(self, known: float) -> float:
        """Return a common initial value for all multipliers of the limits on variances.
        It is the given value `known` if > 0, else the power of 10 that maximizes the dual function.
        """
        if known > 0:
            return known
        (r, s), n = (len(self.limits.samples), len(self.limits.steps)), len(self.P0)
        L = np.eye(n) if self.limits.end is not None else np.zeros((0, 0))

        def dual(size: float) -> float:
            design = self._trial(VarianceMultipliers(np.full(r + s, size), size * L))
            return -np.inf if design is None else design.dual

        size, value = 1.0, dual(1.0)
        for factor in (10.0, 0.1):
            for _ in range(DECADES):
                further = dual(factor * size)
                if not further > value:
                    break
                size, value = factor * size, further
        return size

    def _trial(self, multipliers: VarianceMultipliers) -> VarianceDesign | None:
        """Return the optimal gains for given multipliers.
        Return None if rounding prevents their computation.
        """
        try:
            return self.design(multipliers)
        except OptimizationError:
            return None

    def _search(self, now, design, basis, t: float, move: np.ndarray, decrement: float):
        """Search along a Newton step of the multipliers by Armijo's rule.
        The search increases the dual function plus t times its barrier. Return the new multipliers and the
        gains that are optimal for them, or None if no increase is found.
        """
        value, length = design.dual + t * basis.barrier(now), 1.0
        while length > 1e-12:
            trial = basis.moved(now, length * move)
            barrier = basis.barrier(trial)
            trial_design = self._trial(trial) if np.isfinite(barrier) else None
            if trial_design is not None:
                rise = trial_design.dual + t * barrier - value
                # if rounding hides the increase, accept Newton's step itself
                if rise >= ARMIJO * length * decrement - 1e-13 * abs(value):
                    return trial, trial_design
            length *= 0.5
        return None

    def _derivatives(self, now: VarianceMultipliers, design: VarianceDesign, basis: _Basis, t: float):
        """Return gradient and negative Hessian of the dual function plus its barrier.
        The variables are the multipliers of the limits on variances.
        """
        (C, samples, D, steps, T), (N, n, _) = self.limits, self.B.shape
        r, s = len(samples), len(steps)
        count = r + s + (0 if T is None else n)
        Y, H = np.zeros((count, n)), np.zeros((basis.size, basis.size))
        if T is not None:
            Y[r + s :] = T
        Y[:r][samples == N] = C[samples == N]
        F = self.A - self.B @ design.K
        for k in range(N - 1, -1, -1):
            G = self.R + self.B[k].T @ design.Pi[k + 1] @ self.B[k]
            mask = steps == k
            if mask.any():
                G = G + np.einsum("i,im,il->ml", now.mu[r:][mask], D[mask], D[mask])
            # the derivative of K by the multiplier of a limit is G^-1 a b'
            a, b = Y @ self.B[k], Y @ F[k]
            a[r : r + s][mask], b[r : r + s][mask] = -D[mask], D[mask] @ design.K[k]
            H += basis.products(a @ np.linalg.solve(G, a.T), b @ design.P[k] @ b.T)
            Y = b
            Y[:r][samples == k] = C[samples == k]
        slope = basis.flat(design.variances - 1, design.end - np.eye(len(design.end)))
        inverse = np.linalg.inv(now.L)
        slope += t * basis.flat(1 / now.mu, inverse)
        H = 2 * H + t * basis.curvature(now.mu, inverse)
        return slope, H


class Unreachable(Exception):
    """Error raised if no gains keep the variances within their limits.

    For all gains, the sum of variances times `multipliers` is at least `ratio` times the sum of their limits
    times `multipliers`.
    """

    def __init__(self, multipliers: VarianceMultipliers, ratio: float):
        super().__init__(ratio)
        self.multipliers, self.ratio = multipliers, ratio


class _Basis:
    """Converter of the multipliers of variance limits to one vector, and back.
    The vector begins with mu, the multipliers of limits on single variances. Then it has the coefficients of
    the symmetric matrix L, which is the multiplier of the limit on the final covariance.
    """

    def __init__(self, rows: int, n: int):
        i, j = np.triu_indices(n)
        self.rows, self.n, self.i, self.j = rows, n, i, j
        self.size = rows + len(i)
        self.scale = np.where(i == j, 1.0, np.sqrt(2.0))

    def flat(self, mu: np.ndarray, L: np.ndarray) -> np.ndarray:
        return np.concatenate([mu, self.scale * L[self.i, self.j]])

    def moved(self, now: VarianceMultipliers, step: np.ndarray) -> VarianceMultipliers:
        L = np.zeros((self.n, self.n))
        L[self.i, self.j] = step[self.rows :] / self.scale
        L = L + L.T - np.diag(np.diag(L))
        return VarianceMultipliers(now.mu + step[: self.rows], now.L + L)

    def barrier(self, now: VarianceMultipliers) -> float:
        """Return the barrier function of the multipliers: sum of log mu plus log det L.
        The vector mu has the multipliers of limits on variances. The matrix L is the multiplier of the limit
        on the final covariance. The result is -inf if an entry of mu is not positive or L is not positive
        definite.
        """
        values = np.concatenate([now.mu, np.linalg.eigvalsh(now.L)])
        return float(np.log(values).sum()) if (values > 0).all() else -np.inf

    def curvature(self, mu: np.ndarray, inverse: np.ndarray) -> np.ndarray:
        both = np.zeros((self.rows + self.n,) * 2)
        both[: self.rows, : self.rows] = np.diag(1 / mu)
        both[self.rows :, self.rows :] = inverse
        return self.products(both, both)

    def products(self, S: np.ndarray, Z: np.ndarray) -> np.ndarray:
        """Return the matrix of tr(E_p S E_q Z) for all pairs of basis matrices E_p, E_q.
        Let M be the block-diagonal matrix of diag(mu) and L. The vector mu and the matrix L are the
        multipliers of limits on variances and on the final covariance. E_p is the derivative of M with
        respect to entry p of the vector of all multipliers. S and Z are matrices of the shape of M.
        """
        r = self.rows
        H = np.zeros((self.size, self.size))
        H[:r, :r] = S[:r, :r] * Z[:r, :r]
        if self.n:
            i, j = r + self.i, r + self.j
            cross = 0.5 * self.scale * (S[:r, i] * Z[:r, j] + S[:r, j] * Z[:r, i])
            H[:r, r:], H[r:, :r] = cross, cross.T
            pairs = S[np.ix_(i, i)] * Z[np.ix_(j, j)] + S[np.ix_(i, j)] * Z[np.ix_(j, i)]
            pairs += S[np.ix_(j, i)] * Z[np.ix_(i, j)] + S[np.ix_(j, j)] * Z[np.ix_(i, i)]
            H[r:, r:] = 0.25 * np.outer(self.scale, self.scale) * pairs
        return H
