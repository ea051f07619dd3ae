"""Level sets of a Lyapunov function on which a closed loop decreases the function.
The function is V = z'Pz, where z is the deviation of the state from an equilibrium.

Maths, and the meaning of "verified by sampling": docs/maths/analysis.md.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from vioc.checks import check_array
from vioc.control.linear.about import check_timeless
from vioc.drawing import plots
from vioc.errors import OptimizationError, StepError, trying
from vioc.names import meaning

RISK = 0.05
NEAR = 1e-6  # square root of a level that counts as 0


@dataclass(frozen=True)
class LyapunovLevel:
    """Largest level of a Lyapunov function V below which a closed loop decreases V.

    V(F(z)) < V(z) on 0 < V(z) = z'Pz <= c, verified by sampling.

    Attributes
    ----------
    level : float
        Level c, verified by sampling, which is no proof; see `violating_volume`.
    upper : float
        Upper bound: V does not decrease at `violation`. inf if no violation was found up to the largest level
        that was searched.
    violation : (ndx,) or None
        Error z at which V does not decrease.
    samples : int
        Number of uniform samples in {V <= level}; V decreases at all of them.
    P : (ndx, ndx)
    names : tuple of ndx str
    units : dict of str to str
        Units of the errors, if known.
    """

    level: float
    upper: float
    violation: np.ndarray | None = field(repr=False)
    samples: int
    P: np.ndarray = field(repr=False)
    names: tuple[str, ...]
    units: dict[str, str] = field(default_factory=dict, repr=False)

    certificate = "sampling"

    @property
    def violating_volume(self) -> float:
        """Bound on the fraction of the level set in which V does not decrease.
        V is the Lyapunov function; the bound has a confidence of 95 %.
        """
        return float(-np.log(RISK) / self.samples)

    @property
    def reach(self) -> dict[str, float]:
        """Largest magnitude of each component of z in the level set z'Pz <= level.
        z is the deviation of the state from the equilibrium.
        It is sqrt(level M_ii) for component i, where M is the inverse of P.
        """
        span = np.sqrt(self.level * np.diag(np.linalg.inv(self.P)))
        return {n: float(s) for n, s in zip(self.names, span, strict=True)}

    def draw_error(self, rng: np.random.Generator) -> np.ndarray:
        """Return a random deviation z (ndx,) of the state, uniform in {z'Pz <= level}."""
        w = rng.standard_normal(len(self.P))
        w *= np.sqrt(self.level) * rng.uniform() ** (1 / len(w)) / np.linalg.norm(w)
        return np.linalg.solve(np.linalg.cholesky(self.P).T, w)

    def ellipse(self, first: str, second: str, points: int = 200) -> np.ndarray:
        """Return boundary points (points, 2) of a section of the set {V <= level}.
        V is the Lyapunov function. The section is with the plane of two state deviations, in which
        all other deviations are 0.
        """
        i = [self.names.index(meaning(name, self.names, "ellipse")) for name in (first, second)]
        L = np.linalg.cholesky(self.P[np.ix_(i, i)])
        angle = np.linspace(0, 2 * np.pi, points)
        circle = np.sqrt(self.level) * np.stack([np.cos(angle), np.sin(angle)])
        return np.linalg.solve(L.T, circle).T

    def plot(self, first: str, second: str, *, ax: Any = None) -> Any:
        """Plot the level set of V in the plane of two state deviations; return the axes.
        V is the Lyapunov function; all other deviations of the state are 0.
        """
        return plots().plot_level(self, first, second, ax=ax)

    def __repr__(self) -> str:
        return (
            f"LyapunovLevel({self.level:.6g}, at most {self.upper:.6g}; verified by {self.samples} samples: "
            f"V increases on less than {100 * self.violating_volume:.2g} % of it with 95 % confidence)"
        )


def lyapunov_level(
    loop: Any,
    *,
    largest: float | None = None,
    directions: int = 200,
    samples: int = 10_000,
    seed: int = 0,
    margin: float = 0.99,
) -> LyapunovLevel:
    """Find the largest level set of V = z'Pz on which a closed loop decreases V.
    V is a Lyapunov function of the deviation z of the state from the equilibrium.

    Parameters
    ----------
    loop : SteadyRegulator
        Regulator, or any object with `map`, `x`, `u`, `K` and `P`.
    largest : float, optional
        Largest level of the search; default: 1e6 times the level of an error of 1 SI unit of the state with
        the largest weight.
    directions : int
        Number of random directions in which the search for a violation starts.
    samples : int
        Number of points of the verification; a level is accepted if V decreases at all of them.
    seed : int
    margin : float
        The verified level is this fraction of the smallest level at which V was found not to decrease.

    Returns
    -------
    LyapunovLevel

    Raises
    ------
    TypeError
        An object without these, such as a `ClosedLoop`.
    ValueError
        A map that depends on time, or has constraints, since states off the constraint manifold have no
        meaning (`region_of_attraction` accepts a sampler); wrong shapes.
    OptimizationError
        If P is not positive definite, or V increases arbitrarily near to the equilibrium.
    """
    missing = [name for name in ("map", "x", "u", "K", "P") if not hasattr(loop, name)]
    if missing:
        raise TypeError(
            "loop: expected a SteadyRegulator, or an object with map, x, u, K and P, got "
            f"{type(loop).__name__} without {', '.join(missing)}; region_of_attraction takes closed loops "
            "with bounds"
        )
    f = loop.map
    if f.multiplier_names:
        raise ValueError(
            "lyapunov_level: errors of a constrained map do not fill an ellipsoid; use region_of_attraction "
            "with a sampler of consistent starts"
        )
    check_timeless(f, "lyapunov_level", "region_of_attraction")
    if not 0 < margin < 1 or directions < 1 or samples < 1:
        raise ValueError(
            f"expected 0 < margin < 1, directions and samples >= 1, got {margin}, {directions}, {samples}"
        )
    search = _Decrease(loop)
    if largest is None:
        largest = 1e6 * float(np.diag(search.P).max())
    rng = np.random.default_rng(seed)
    z, upper = search.least_violation(rng, directions, largest)
    level = largest if z is None else margin * upper
    while True:
        worst = search.sample(rng, level, samples)
        if worst is None:
            units = {n: f.unit(n) for n in f.space.error_names}
            return LyapunovLevel(level, upper, z, samples, search.P, f.space.error_names, units)
        z, upper = search.refine(rng, worst)
        level = margin * upper


class _Decrease:
    """Change of a Lyapunov function V over one step of a closed loop.
    It is V(F(z)) - V(z) for a step z+ = F(z), computed in coordinates w with V = |w|^2.
    """

    def __init__(self, loop: Any):
        self.map, self.x, self.u = loop.map, loop.x, loop.u
        f = self.map
        self.K = check_array(loop.K, (f.nu, f.ndx), "K")
        self.P = check_array(loop.P, (f.ndx, f.ndx), "P")
        try:
            self.L = np.linalg.cholesky(0.5 * (self.P + self.P.T))
        except np.linalg.LinAlgError:
            raise OptimizationError("P is not positive definite: penalize every state in Q") from None
        self.inverse = np.linalg.inv(self.L.T)

    def increases(self, w: np.ndarray) -> bool:
        """Return True if the Lyapunov function V = |w|^2 does not decrease in a step.
        The step begins at the error z = L^-T w of the state, with P = L L'. If the step fails, return True,
        too.
        """
        z = self.inverse @ w
        try:
            with trying(), np.errstate(over="ignore", invalid="ignore"):
                x = self.map.retract(self.x, z)
                after = self.map.track(x, self.x[None], self.u[None], self.K[None]).x[1]
                value = self.map.difference(self.x, after) @ self.L
        except StepError:
            return True
        return not bool(value @ value < w @ w)

    def radius(self, direction: np.ndarray, far: float) -> float:
        """Return the smallest |w| in a given direction at which V does not decrease.
        V is the Lyapunov function of the closed loop, and w the scaled deviation of the state with V = |w|^2.

        The result has a relative accuracy of 1e-4, and is inf if it exceeds `far`. Increasing radii of a
        geometric sequence are tried, then the interval is bisected. A violation between two of these radii
        can be missed.
        """
        low, high = far * 1e-4, far * 1e-4
        while not self.increases(high * direction):
            low, high = high, high * 1.1
            if low >= far:
                return np.inf
        if high == low:  # V does not decrease at the first radius
            low = 0.0
        while high - low > 1e-4 * high and high > NEAR:
            middle = 0.5 * (low + high)
            low, high = (low, middle) if self.increases(middle * direction) else (middle, high)
        return high

    def least_violation(
        self, rng: np.random.Generator, count: int, largest: float
    ) -> tuple[np.ndarray | None, float]:
        """Search for the state deviation with the smallest V at which V does not decrease.
        V is the Lyapunov function of the closed loop.

        Returns this error and its V, or None and inf. The search starts in `count` random directions.
        """
        far = np.sqrt(largest)
        pairs: list[tuple[float, np.ndarray]] = []
        for _ in range(count):
            direction = rng.standard_normal(self.map.ndx)
            direction /= np.linalg.norm(direction)
            # only radii below the tenth smallest matter
            limit = sorted(r for r, _ in pairs)[9] if len(pairs) > 9 else far
            radius = self.radius(direction, limit)
            if np.isfinite(radius):
                pairs.append((radius, direction))
        if not pairs:
            return None, np.inf
        pairs.sort(key=lambda item: item[0])
        best = min((self._descend(rng, r, d) for r, d in pairs[:3]), key=lambda item: item[0])
        return self._result(best)

    def refine(self, rng: np.random.Generator, w: np.ndarray) -> tuple[np.ndarray, float]:
        size = float(np.linalg.norm(w))
        z, upper = self._result(self._descend(rng, size, w / size))
        return z, min(upper, size**2)

    def _result(self, best: tuple[float, np.ndarray]) -> tuple[np.ndarray, float]:
        radius, direction = best
        if radius <= NEAR:
            raise OptimizationError(
                "V does not decrease arbitrarily near to the equilibrium: K does not stabilize it with this P"
            )
        return self.inverse @ (radius * direction), radius**2

    def _descend(
        self, rng: np.random.Generator, radius: float, direction: np.ndarray
    ) -> tuple[float, np.ndarray]:
        """Search by random rotations for a point near 0 where V does not decrease.
        V is the Lyapunov function of the closed loop. The search starts at the point radius * direction,
        where V does not decrease either. The radius and the direction of the nearest point that was found are
        returned.

        This is a (1+1) evolution strategy with decreasing step size.
        """
        size, failures = 0.3, 0
        while size > 1e-4 and radius > NEAR:
            trial = direction + size * rng.standard_normal(len(direction))
            trial /= np.linalg.norm(trial)
            if self.increases(0.999 * radius * trial):
                low, high = 0.9 * radius, 0.999 * radius
                while self.increases(low * trial) and low > NEAR:
                    low, high = 0.9 * low, low
                for _ in range(12):
                    middle = 0.5 * (low + high)
                    low, high = (low, middle) if self.increases(middle * trial) else (middle, high)
                radius, direction, failures = high, trial, 0
            else:
                failures += 1
                if failures > 10 * len(direction):
                    size, failures = size / 2, 0
        return radius, direction

    def sample(self, rng: np.random.Generator, level: float, count: int) -> np.ndarray | None:
        """Return the first of `count` random points at which V does not decrease.
        V is the Lyapunov function. The points are uniformly distributed in {V <= level}; the result is None
        if V decreases at all of them.
        """
        n = self.map.ndx
        for _ in range(count):
            w = rng.standard_normal(n)
            w *= np.sqrt(level) * rng.uniform() ** (1 / n) / np.linalg.norm(w)
            if self.increases(w):
                return w
        return None
