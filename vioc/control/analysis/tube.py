"""Proven tubes about trajectories and invariant level sets about equilibria.

The proofs use bounds of second derivatives. Maths: docs/maths/robust.md#verified-tubes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import casadi as ca
import numpy as np
from scipy.linalg import solve_discrete_lyapunov

from vioc.checks import as_floats, check_array
from vioc.control.analysis.intervals import UNIT, Interval, enclose
from vioc.control.linear.about import check_timeless, check_trajectory
from vioc.errors import OptimizationError
from vioc.maps.protocol import OneStepMap
from vioc.names import in_order

NORM = 1e-12  # relative error bound of LAPACK's norms
TRIED, ZOOMS = 13, 4  # radii per refinement of a level, and number of refinements
ROUNDS, WIDER = 12, 1.05  # iterations of a tube's assumed radii, and their growth factor
LARGEST = 1e12  # radius, and bound of second derivatives, above which a tube diverges


@dataclass(frozen=True)
class Tube:
    """Ellipsoids about a trajectory that a closed loop provably does not leave.
    The ellipsoid at sample k contains the states with z'P_k z <= level_k. z = difference(x_d, x) is the
    deviation of the state x from the state x_d of the trajectory.

    Attributes
    ----------
    map : OneStepMap
    x : (N+1, nx)
        The trajectory; about an equilibrium N = 0.
    P : (N+1, ndx, ndx)
    level : (N+1,)
    certificate : str
    """

    map: OneStepMap = field(repr=False)
    x: np.ndarray = field(repr=False)
    P: np.ndarray = field(repr=False)
    level: np.ndarray

    certificate = "interval arithmetic"

    def reach(self, name: str) -> np.ndarray:
        """Return the largest deviation of a named state in the tube.
        The array has one entry for each of the N+1 samples.
        """
        i = self.map.space.error_names.index(name)
        return np.sqrt(self.level * np.linalg.inv(self.P)[:, i, i])

    def value(self, k: int, x: np.ndarray) -> np.ndarray:
        """Return z'P_k z / level_k for given states, which is at most 1 in the tube.
        z is the deviation of a state, a row of x (..., nx), from the centre of the tube at sample k. P_k is
        the matrix of the tube's ellipsoid at this sample.
        """
        z = self.map.difference(np.broadcast_to(self.x[k], np.shape(x)), x)
        return np.einsum("...i,ij,...j->...", z, self.P[k], z) / self.level[k]

    def draw(self, count: int, rng: np.random.Generator, k: int = 0) -> np.ndarray:
        """Return random states (count, nx) on the boundary of the tube at sample k."""
        w = rng.standard_normal((count, len(self.P[k])))
        w *= np.sqrt(self.level[k]) / np.linalg.norm(w, axis=1, keepdims=True)
        z = np.linalg.solve(np.linalg.cholesky(self.P[k]).T, w.T).T
        return np.stack([self.map.retract(self.x[k], dx) for dx in z])

    def __repr__(self) -> str:
        n = len(self.level) - 1
        if n == 0:
            return f"Tube(level {self.level[0]:.6g}, proven by {self.certificate})"
        span = f"{self.level[0]:.6g} .. {self.level[-1]:.6g}"
        return f"Tube({n} steps, level {span}; proven by {self.certificate})"


def verified_tube(regulator: Any, level: float, *, disturbance: Any = 0.0, cells: int = 1) -> Tube:
    """Return a tube about a regulator's trajectory that its closed loop cannot leave.
    This is proven for all motions that begin in the first ellipsoid of the tube.

    Parameters
    ----------
    regulator : Regulator
        Regulator with `map`, `reference`, `K` and positive definite `P`; the map must be explicit, with
        errors that are differences of states (`CasadiMap`, `RungeKutta`), and without constraints.
    level : float
        Level of the first ellipsoid, z'P_0 z <= level.
    disturbance : float, (ndx,) or dict of str to float
        Bounds on the magnitude of each error that is added at every step.
    cells : int
        Number of intervals of each error for bounds of second derivatives: cells^ndx boxes. More of them make
        the tube tighter.

    Returns
    -------
    Tube

    Raises
    ------
    ValueError
        Unsupported maps; wrong values.
    OptimizationError
        If the bound diverges; the message names the sample.
    NotImplementedError
        A map with an operation that has no enclosure.
    """
    f, run = check_trajectory(regulator.map, regulator.reference), regulator.reference
    if not (np.isfinite(level) and level > 0):
        raise ValueError(f"level: expected a number > 0, got {level!r}")
    T, factors = _roots(regulator.P)
    steps = _Steps(
        f, disturbance, cells, run.x[:-1], run.u, regulator.K, T, run.x[1:], run.t, run.step_lengths
    )
    start = float(np.sqrt(level)) * factors[0]
    assumed = np.full(len(run), start)
    for _ in range(ROUNDS):
        curved = steps.curvature(assumed)
        radii = [start]
        for k in range(len(run)):
            radii.append(steps.after(k, radii[-1], curved[k]))
        bounds = np.array(radii)
        if (bounds[:-1] <= assumed).all() and bounds[-1] < np.inf:
            return Tube(f, run.x, regulator.P, (bounds * factors) ** 2 * (1 + NORM))
        if not (assumed < LARGEST).all():
            break
        # assume larger radii where the result exceeded the assumption
        grown = np.minimum(bounds[:-1], 10 * assumed)
        assumed = np.where(bounds[:-1] <= assumed, assumed, WIDER * grown)
    k = int(np.argmax(np.append(~(bounds[:-1] <= assumed), True)))
    raise OptimizationError(
        f"no tube from level {level:g}: the bound grows past what it was made for, first at k = {k}, level "
        f"{bounds[k] ** 2:.4g}; begin lower, add cells, or choose Q so that the gains contract"
    )


def verified_level(loop: Any, *, disturbance: Any = 0.0, cells: int = 1, share: float = 0.4) -> Tube:
    """Return the largest ellipsoid about an equilibrium that is proven invariant.
    It contains the states with z'Pz <= level, where z is the deviation of the state from the equilibrium. The
    function computes P from the linearized closed loop.

    Without a disturbance all motions in the ellipsoid converge to the equilibrium. P solves (F/g)'P(F/g) + Q
    + K'RK = P with the matrix F of the linearized closed loop. In each linearized step the root of z'P z
    therefore decreases at least by the factor g < 1. P is not the cost-to-go, which hardly decreases in the
    slowest direction of the loop.

    Parameters
    ----------
    loop : SteadyRegulator
        Regulator, or any object with `map`, `x`, `u`, `K`, `Q`, `R`; maps as in `verified_tube`.
    disturbance, cells
        As in `verified_tube`.
    share : float
        g = r + share (1 - r), with the magnitude r of the largest pole.

    Returns
    -------
    Tube
        Tube of one sample. Without a disturbance z'Pz decreases by a constant factor per step anywhere
        inside, down to rounding.

    Raises
    ------
    ValueError, NotImplementedError
        As `verified_tube`.
    OptimizationError
        If no level is proven, for example because the disturbance is too large.
    """
    f, K = loop.map, np.asarray(loop.K, float)
    check_timeless(f, "verified_level", "verified_tube")
    A, B = f.linearize(loop.x, loop.u)
    F = A - B @ K
    radius = np.abs(np.linalg.eigvals(F)).max()
    if not (0 < share < 1 and radius < 1):
        raise ValueError(f"expected 0 < share < 1 and stable gains, got {share:g} and a pole of {radius:.6g}")
    P = solve_discrete_lyapunov(F.T / (radius + share * (1 - radius)), loop.Q + K.T @ loop.R @ K)
    P = 0.5 * (P + P.T)
    T, factors = _roots(np.broadcast_to(P, (TRIED + 1, *P.shape)))
    points = (np.broadcast_to(a, (TRIED, *a.shape)) for a in (loop.x, loop.u, K))
    x, u, K = points
    steps = _Steps(f, disturbance, cells, x, u, K, T, x, np.zeros(TRIED), np.full(TRIED, f.dt))
    radii = np.geomspace(1e-6, 1e6, TRIED) * np.sqrt(np.trace(P))
    for _ in range(ZOOMS):
        curved = steps.curvature(radii)
        kept = np.array([steps.after(k, r, curved[k]) * factors[0] ** 2 <= r for k, r in enumerate(radii)])
        if not kept.any():
            raise OptimizationError(
                "no level is proven: the bound of a step is larger than the step's start at every level; "
                "penalize every state in Q, let disturbances be smaller, or add cells"
            )
        last = int(np.flatnonzero(kept)[-1])
        best = radii[last]
        radii = np.linspace(best, radii[min(last + 1, TRIED - 1)], TRIED)
    return Tube(f, loop.x[None], P[None], np.array([(best / factors[0]) ** 2 * (1 - NORM)]))


def _roots(P: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return transformations to coordinates in which given ellipsoids are balls.
    The ellipsoids are {z'Pz <= c}, with one matrix P for each sample.

    The results are matrices T (N+1, n, n) with z = T w and z'Pz = |w|^2, and factors c (N+1,) slightly above
    1 with |w|^2 <= c z'Pz for the rounded T.
    """
    try:
        T = np.linalg.inv(np.swapaxes(np.linalg.cholesky(P), -1, -2))
    except np.linalg.LinAlgError:
        raise OptimizationError("P is not positive definite: penalize every state in Q") from None
    return T, np.array([_nearly_one(t.T @ p, t) for t, p in zip(T, P, strict=True)])


def _nearly_one(A: np.ndarray, B: np.ndarray) -> float:
    """Return a bound on the norm of (A B)^-1 for a product A B near the identity.

    It is 1 / (1 - |1 - A B|), inf if A B is not near enough.
    """
    n = len(A)
    error = np.abs(np.eye(n) - A @ B) + 8 * n * UNIT * (np.abs(A) @ np.abs(B))
    norm = float(np.linalg.norm(error))
    return (1 + NORM) / (1 - norm) if norm < 0.5 else np.inf


class _Steps:
    """Bounds on the state deviation of a closed loop after each of several steps.
    Before each step, the deviation is in a ball of given radius, in scaled coordinates.

    There are c steps z -> z+. The scaled coordinates are w before a step and w+ after it, with z = T w, z+ =
    T+ w+ and |w| <= radius.

    Parameters
    ----------
    x, u, K, T, goal, t, h : (c, nx), (c, nu), (c, nu, nx), (c+1, nx, nx), (c, nx), (>= c,), (c,)
        z is relative to x, z+ relative to `goal`.
    """

    def __init__(self, f: OneStepMap, disturbance: Any, cells: int, x, u, K, T, goal, t, h):
        if f.explicit is None or f.ndx != f.nx or f.multiplier_names:
            raise ValueError(
                "expected an explicit map without constraints whose errors are differences of states, got "
                f"{f!r}; RungeKutta(system, dt) is one of a tree's"
            )
        if not cells >= 1:
            raise ValueError(f"cells: expected at least 1, got {cells!r}")
        n, c = f.nx, len(u)
        d = as_floats(in_order(disturbance, f.space.error_names, "disturbance"), "disturbance")
        d = check_array(np.broadcast_to(d, (n,)) if d.ndim == 0 else d, (n,), "disturbance")
        if (d < 0).any():
            raise ValueError(f"disturbance: expected bounds >= 0, got {disturbance!r}")
        s, time = f.symbols, ca.SX.sym("t")
        y, xu = f.explicit(s.x, s.u, time, s.dt, s.parameters)[0], ca.vertcat(s.x, s.u)
        args = [xu, ca.vertcat(time, s.dt, s.parameters)]
        first = ca.Function("first", args, [ca.densify(y), ca.densify(ca.jacobian(y, xu))])
        hessians = [ca.densify(ca.hessian(y[i], xu)[0]) for i in range(n)]
        self.second = ca.Function("second", args, hessians)
        self.centers, self.K, self.T, self.cells = np.hstack([x, u]), K, T[:-1], cells
        middle = t[:c] + 0.5 * h  # the time of a step, with its rounding error
        rest = np.hstack([middle[:, None], h[:, None], np.broadcast_to(f.theta, (c, len(f.theta)))])
        self.rest = Interval(rest.copy(), rest.copy())
        self.rest.low[:, 0] -= 8 * UNIT * (1 + np.abs(middle))
        self.rest.high[:, 0] += 8 * UNIT * (1 + np.abs(middle))
        self.S = np.linalg.inv(T[1:])
        value, slopes = enclose(first, Interval(self.centers, self.centers), self.rest)
        near, radius = value.ball
        defect = np.abs(near[..., 0] - goal) * (1 + 4 * UNIT) + radius[..., 0] + d
        G = np.concatenate([np.broadcast_to(np.eye(n), (c, n, n)), -K], axis=1)
        self.GT = _times(_exact(G), _exact(self.T))
        self.sigma = _norm(_times(_times(_exact(self.S), slopes.ball), self.GT))
        self.drift = np.linalg.norm(np.einsum("cij,cj->ci", np.abs(self.S), defect), axis=1) * (1 + NORM)
        self.inverse = np.array([_nearly_one(a, b) for a, b in zip(self.S, T[1:], strict=True)])

    def after(self, k: int, r: float, curved: float) -> float:
        """Return a bound on the norm of the scaled state deviation after step k.
        Before the step, this norm is at most r. `curved` is a bound on the second derivatives of the step,
        which the method `curvature` returns. The result is inf if there is no bound.
        """
        if not (r < LARGEST and curved < LARGEST):
            return np.inf
        return float(self.inverse[k] * ((self.sigma[k] + 0.5 * curved * r) * r + self.drift[k]) * (1 + NORM))

    def curvature(self, radii: np.ndarray) -> np.ndarray:
        """Return bounds on the second derivatives of the steps, one for each step.
        The scaled deviations w before the steps are in balls |w| <= radii (c,).

        The bounds (c,) are on the norms of the quadratic forms w -> D2(w+)[w, w]; inf if there is no bound.
        """
        with np.errstate(over="ignore", invalid="ignore"):
            return self._curvature(radii)

    def _curvature(self, radii: np.ndarray) -> np.ndarray:
        (c, n), K, T = self.S.shape[:2], self.K, self.T
        spans = radii[:, None] * np.linalg.norm(T, axis=2) * (1 + NORM)
        moves = radii[:, None] * np.linalg.norm(K @ T, axis=2) * (1 + NORM)
        moves += 8 * n * UNIT * np.einsum("cij,cj->ci", np.abs(K), spans)
        edges = np.linspace(-1.0, 1.0, self.cells + 1)
        grid = np.stack(np.meshgrid(*[np.arange(self.cells)] * n, indexing="ij"), axis=-1).reshape(-1, n)
        low, high = (edges[grid + j] * spans[:, None] for j in (0, 1))  # (c, pieces, n)
        back, forth = (np.swapaxes(np.maximum(g, 0), 1, 2) for g in (-K, K))
        pad = 8 * n * UNIT * np.einsum("cij,cj->ci", np.abs(K), spans)[:, None]
        ulow = np.maximum(low @ back - high @ forth - pad, -moves[:, None])
        uhigh = np.minimum(high @ back - low @ forth + pad, moves[:, None])
        near = self.centers[:, None]
        box = Interval(
            np.nextafter(near + np.concatenate([low, ulow], axis=2), -np.inf).reshape(-1, near.shape[2]),
            np.nextafter(near + np.concatenate([high, uhigh], axis=2), np.inf).reshape(-1, near.shape[2]),
        )
        pieces = len(grid)
        rest = Interval(*(np.repeat(a, pieces, axis=0) for a in self.rest))
        H = [a.ball for a in enclose(self.second, box, rest)]
        size = (c, pieces, n, *H[0][0].shape[1:])
        middle, radius = (np.stack([h[j] for h in H], axis=1).reshape(size) for j in (0, 1))
        finite = np.isfinite(middle + radius).all(axis=(2, 3, 4), keepdims=True)
        middle, radius = (np.where(finite, a, 0.0) for a in (middle, radius))
        G, about = (a[:, None, None] for a in self.GT)
        transposed = np.swapaxes(G, -1, -2), np.swapaxes(about, -1, -2)
        turned, about = _times(_times(transposed, (middle, radius)), (G, about))
        flat = turned.reshape(c, pieces, n, n * n), about.reshape(c, pieces, n, n * n)
        mixed, about = _times(_exact(self.S[:, None]), flat)
        parts = _norm((mixed.reshape(c, pieces, n, n, n), about.reshape(c, pieces, n, n, n)))
        finite = finite[:, :, 0, 0, 0]
        norms = np.where(finite, np.linalg.norm(parts, axis=2) * (1 + NORM), np.inf)
        norms = np.where(norms < LARGEST, norms, np.inf)
        # a box whose inputs do not occur in the ball is outside of the ball
        return np.where((ulow <= uhigh).all(axis=2), norms, 0.0).max(axis=1)


Ball = tuple[np.ndarray, np.ndarray]


def _exact(M: np.ndarray) -> Ball:
    return M, np.zeros_like(M)


def _times(a: Ball, b: Ball) -> Ball:
    """Return the product of two matrices that are known up to elementwise errors.
    The result is the product of their midpoints and bounds on its errors.
    """
    (A, ra), (B, rb) = a, b
    n = A.shape[-1]
    size, sb = np.abs(A), np.abs(B)
    radius = ra @ (sb + rb) + size @ rb + 2 * n * UNIT * (size @ sb)
    return A @ B, radius * (1 + 4 * n * UNIT)


def _norm(a: Ball) -> Any:
    """Return bounds on the spectral norms of matrices known up to elementwise errors."""
    return (np.linalg.norm(a[0], 2, axis=(-2, -1)) + np.linalg.norm(a[1], axis=(-2, -1))) * (1 + NORM)
