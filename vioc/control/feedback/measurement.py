"""Measurements of named quantities, with sampling rate, resolution and covariance."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import casadi as ca
import numpy as np

from vioc.checks import as_count, as_floats, as_names, as_value, check_array
from vioc.compile.evaluate import Evaluator
from vioc.control.linear.weights import weight_matrix
from vioc.maps.made.extended import BIAS
from vioc.maps.protocol import OneStepMap
from vioc.maps.space import TURN, short_way
from vioc.names import by_name, by_quantity, meaning
from vioc.runs.given import state_of


class Measurement:
    """Measurement y = g(x) + noise of named quantities of the state.

    Values are rounded to encoder counts and may have their own sampling rates. NaN means not measured,
    as planned (`every`) or by chance; filters skip such values.

    Parameters
    ----------
    f : OneStepMap
    quantities : names, or dict of str to float
        Measured quantities of the state (``"theta"``, ``"hand:x"``), or their variances.
    covariance : float, (ny,), (ny, ny) or dict of str to float, optional
        Covariance of the noise, in squares of the quantities' units (rad^2, m^2, ...): a number, a diagonal,
        a matrix or values by name, 0 for exact sensors. The default is a variance of 1 for each quantity. No
        real sensor has it, so give variances if you use a filter or noise.
    wrap : names
        Measured angles known modulo 2 pi; states in the map's own ``wrap`` are included.
    counts : dict of str to int, optional
        Counts per turn of encoders of angles.
    resolution : dict of str to float, optional
        Units per count of other quantities. Rounding by q adds q^2 / 12 to V.
    every : dict of str to int or (int, int), optional
        n, or (n, first): the quantity is measured only at samples first, first + n, ... By default at all.

    Attributes
    ----------
    names : tuple of ny str
    V : (ny, ny)
        Covariance of noise and rounding.
    wrapped : (ny,), bool
        Mask of the quantities known modulo 2 pi.
    expression : casadi.SX (ny,)
        Expression of g in the map's symbols.

    Notes
    -----
    For a map with a state ``bias.NAME`` (`ExtendedMap`), the measured NAME includes that bias.

    Raises
    ------
    ModelError
        If the map has no such quantity.
    ValueError
        If a quantity depends on inputs or multipliers, the covariance of the sensors that are not exact is
        not positive definite, or counts, resolution or rates are not > 0.
    """

    def __init__(
        self,
        f: OneStepMap,
        quantities: str | Iterable[str] | Mapping[str, float],
        covariance: Any = None,
        *,
        wrap: str | Sequence[str] = (),
        counts: Mapping[str, int] | None = None,
        resolution: Mapping[str, float] | None = None,
        every: Mapping[str, int | tuple[int, int]] | None = None,
    ):
        self.map = f
        given = (
            quantities
            if isinstance(quantities, Mapping)
            else dict.fromkeys(as_names(quantities, "quantities"))
        )
        named = by_quantity(f, given, "measurement")
        self.names = tuple(named)
        if not self.names:
            raise ValueError("a measurement needs at least one quantity")
        self.resolution = self._resolutions(counts or {}, resolution or {})
        self._every = self._rates(every or {})
        if covariance is None:
            unknown = np.where(self.resolution > 0, 0.0, 1.0)
            covariance = named if isinstance(quantities, Mapping) else unknown
        self._noise = weight_matrix(covariance, self.names, "measurement covariance")
        rounding = np.diag(self.resolution**2 / 12)
        self.V = weight_matrix(self._noise + rounding, self.names, "measurement covariance")
        noisy = np.flatnonzero(np.diag(self.V) > 0)
        others = [self.names[i] for i in noisy]
        weight_matrix(self.V[np.ix_(noisy, noisy)], others, "measurement covariance", definite=True)
        self._root = root(self._noise)
        s = f.symbols
        biased = [n for n in self.names if BIAS + n in f.state_names]
        g = ca.vertcat(*(f.quantity(n) + (f.quantity(BIAS + n) if n in biased else 0) for n in self.names))
        for name, entry in zip(self.names, ca.vertsplit(g), strict=True):
            if ca.depends_on(entry, ca.vertcat(s.u, s.multipliers, s.dt)):
                raise ValueError(f"{name}: a measurement is of the state alone, this depends on the step")
        known = {n for n in f.wrap if n in self.names}
        known |= {meaning(name, self.names, "wrap") for name in as_names(wrap, "wrap")}
        self.wrapped = np.array([n in known for n in self.names])
        self.expression = g
        self._values = Evaluator(ca.Function("g", [s.x, s.parameters], [g, ca.jacobian(g, s.x)]))

    def __reduce__(self):
        wrapped = tuple(n for n, w in zip(self.names, self.wrapped, strict=True) if w)
        return _rebuild, (self.map, self.names, self._noise, wrapped, self.resolution, self._every)

    def check_noisy(self, what: str) -> None:
        """Raise ValueError if the noise of a measured quantity has variance 0.
        `what` is the name of the caller, with which the message begins.

        The check is for callers that divide by standard deviations.
        """
        exact = [n for n, v in zip(self.names, np.diag(self.V), strict=True) if not v > 0]
        if exact:
            raise ValueError(
                f"{what}: {', '.join(exact)} has variance 0, and residuals are divided by their deviations; "
                "give a variance > 0, or the sensor's resolution (kalman and ExtendedKalmanFilter take 0)"
            )

    def on(self, f: OneStepMap) -> Measurement:
        """Return the same measurement for another map, such as that of the plant."""
        rebuild, (_, *what) = self.__reduce__()
        return self if f is self.map else rebuild(f, *what)

    def _resolutions(self, counts: Mapping[str, int], resolution: Mapping[str, float]) -> np.ndarray:
        per_turn = by_name(counts, self.names, "counts")
        for name in per_turn:
            if self.map.unit(name) not in ("rad", ""):
                raise ValueError(
                    f"counts: they are per turn, and {name!r} is in {self.map.unit(name)}; give "
                    "resolution= what one count is"
                )
        units = {n: TURN / as_value(c, f"counts of {n}") for n, c in per_turn.items() if c}
        units |= by_name(resolution, self.names, "resolution")
        resolutions = np.array([float(units.get(n, 0.0)) for n in self.names])
        given = np.array([n in units or n in per_turn for n in self.names])
        if not (np.isfinite(resolutions).all() and (resolutions[given] > 0).all()):
            raise ValueError(f"counts, resolution: expected numbers > 0, got {counts!r}, {resolution!r}")
        return resolutions

    def _rates(self, every: Mapping[str, int | tuple[int, int]]) -> np.ndarray:
        """Return sampling interval and first sample of each measured quantity, (ny, 2)."""
        pairs = np.tile([1, 0], (len(self.names), 1))
        for name, value in by_name(every, self.names, "every").items():
            n, first = value if isinstance(value, tuple) and len(value) == 2 else (value, 0)
            try:
                pairs[self.names.index(name)] = as_count(n, "n"), as_count(first, "first", 0)
            except ValueError:
                message = f"every: of {name} expected n >= 1, or (n, first >= 0), got {value!r}"
                raise ValueError(message) from None
        return pairs

    @property
    def always(self) -> bool:
        """True if every quantity is measured at every sample."""
        return bool((self._every == [1, 0]).all())

    def present(self, k: int) -> np.ndarray:
        """Return a mask (ny,) of the quantities that are measured at sample k."""
        n, first = self._every.T
        return (k >= first) & ((k - first) % n == 0)

    @property
    def key(self) -> tuple:
        """Key of compiled functions that evaluate the measurement.
        It consists of the names of the measured quantities, of flags that mark angles, and of the
        resolutions. Measurements that differ only in their covariances share a compiled function.
        """
        return self.names, *self.wrapped.tolist(), *self.resolution.tolist()

    @property
    def formula(self) -> ca.Function:
        """CasADi function (x, parameters) -> (g, G): measurement and its Jacobian.
        g is the exact measurement at the state x, and G its derivative with respect to x.
        """
        s, g = self.map.symbols, ca.densify(self.expression)
        return ca.Function("g", [s.x, s.parameters], [g, ca.densify(ca.jacobian(g, s.x))])

    def _evaluate(self, x: np.ndarray) -> list[np.ndarray]:
        return self._values(x, self.map.theta)

    def __call__(self, x: Any) -> np.ndarray:
        """Return the exact measurement g(x): (nx,) -> (ny,), or (N, nx) -> (N, ny)."""
        return self._evaluate(self._states(x))[0][..., 0]

    def _states(self, x: Any) -> np.ndarray:
        x = as_floats(state_of(x), "state")
        if x.ndim not in (1, 2) or x.shape[-1] != self.map.nx:
            n = self.map.nx
            raise ValueError(f"state: expected shape ({n},) or (N, {n}), got {x.shape}")
        return x

    def reading(self, y: Any) -> np.ndarray:
        """Check a measurement (ny,) or (N, ny) and return it, with NaN for missing values."""
        if isinstance(y, Mapping):
            raise ValueError(
                f"measurement: expected an array in the order {', '.join(self.names)}, got a dict of "
                f"{', '.join(map(str, y))}"
            )
        y = as_floats(y, "measurement")
        if y.shape[-1:] != (len(self.names),) or y.ndim > 2 or np.isinf(y).any():
            check_array(y, (len(self.names),), "measurement", self.names)
        return y

    def jacobian(self, x: Any) -> np.ndarray:
        """Return the measurement's Jacobian with respect to errors of the state.

        Shapes (nx,) -> (ny, ndx), or (N, nx) -> (N, ny, ndx).
        """
        x = self._states(x)
        C = self._evaluate(x)[1]
        if self.map.ndx == self.map.nx:
            return C
        if x.ndim == 2:
            return np.stack([c @ retract_jacobian(self.map, row) for c, row in zip(C, x, strict=True)])
        return C @ retract_jacobian(self.map, x)

    def innovation(self, x: np.ndarray, y: Any) -> np.ndarray:
        """Return the innovation y - g(x), the measurement minus the expected measurement.
        Differences of angles are in [-pi, pi]. Entries are NaN where y is NaN.
        """
        return self._apart(self.reading(y), self(x))

    def linearized(self, x: np.ndarray, y: Any) -> tuple[np.ndarray, np.ndarray]:
        """Return the innovation (ny,) and the measurement's Jacobian (ny, ndx) at a state."""
        g, C = self._evaluate(x)
        d = self._apart(self.reading(y), g[:, 0])
        return d, C if self.map.ndx == self.map.nx else C @ retract_jacobian(self.map, x)

    def _apart(self, y: np.ndarray, g: np.ndarray) -> np.ndarray:
        d = y - g
        return np.where(self.wrapped, short_way(d), d)

    def sample(self, x: np.ndarray, rng: np.random.Generator | None, k: int = 0) -> np.ndarray:
        """Return a noisy measurement of the state x at sample k.
        It is rounded to the sensors' resolution.
        Without a generator `rng` there is no noise.
        """
        return self.sampled(x, None if rng is None else self.noise(rng.standard_normal(len(self.names))), k)

    def noise(self, normals: np.ndarray) -> np.ndarray:
        """Return measurement noise from independent standard normal numbers (..., ny)."""
        return normals @ self._root.T

    def sampled(self, x: np.ndarray, noise: np.ndarray | None, k: int = 0) -> np.ndarray:
        """Return the noisy measurement at sample k, rounded to the sensors' resolution.
        Entries that are not measured at this sample are NaN.
        """
        y, q = self(x) if noise is None else self(x) + noise, self.resolution
        y = np.where(q > 0, q * np.round(y / np.where(q > 0, q, 1.0)), y)
        return np.where(self.present(k), y, np.nan)

    def __repr__(self) -> str:
        noise = ", ".join(
            f"{n} +- {s:.3g}" for n, s in zip(self.names, np.sqrt(np.diag(self.V)), strict=True)
        )
        return f"Measurement({noise})"


def root(covariance: np.ndarray) -> np.ndarray:
    """Return a square root G of a covariance matrix P = G G', which may be singular.

    G times independent standard normal numbers is a random sample with this covariance. Its rows are the
    standard deviations times a root of the correlations: a change of units only rescales rows.
    """
    deviations = np.sqrt(np.maximum(np.diag(covariance), 0.0))
    of = np.where(deviations > 0, deviations, 1.0)
    correlations = np.clip(covariance / np.outer(of, of), -1.0, 1.0)  # small entries may be rounding errors
    values, vectors = np.linalg.eigh(correlations)
    return deviations[:, None] * vectors * np.sqrt(np.maximum(values, 0.0))


def retract_jacobian(f: OneStepMap, x: np.ndarray) -> np.ndarray:
    """Return the derivative (nx, ndx) of retract(x, dx) with respect to dx at 0.
    The function `retract` adds the error dx, a small displacement, to the state x.

    It is computed by central differences of order 4.
    """
    columns = []
    for e in np.eye(f.ndx):
        near, far = ((f.retract(x, s * e) - f.retract(x, -s * e)) / (2 * s) for s in (1e-3, 2e-3))
        columns.append((4 * near - far) / 3)
    return np.array(columns).T


def _rebuild(f, names, noise, wrap, resolution, every) -> Measurement:
    units = {n: q for n, q in zip(names, resolution, strict=True) if q}
    rates = {n: tuple(pair) for n, pair in zip(names, every.tolist(), strict=True)}
    return Measurement(f, names, noise, wrap=wrap, resolution=units, every=rates)
