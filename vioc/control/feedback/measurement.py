"""What sensors see: named quantities of the state, their covariance and derivatives."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import casadi as ca
import numpy as np

from vioc.checks import as_names, check_array
from vioc.compile.evaluate import Evaluator
from vioc.control.linear.weights import weight_matrix
from vioc.maps.protocol import OneStepMap
from vioc.names import by_quantity, meaning


class Measurement:
    """y = g(x) + noise, by names of quantities.

    Parameters
    ----------
    f : OneStepMap
    quantities : names, or dict of str to float
        Quantities of the state that are measured (``"theta"``, ``"hand:x"``), or their variances.
    covariance : float, (ny,), (ny, ny) or dict of str to float, optional
        V of the noise, in squares of the quantities' units (rad^2, m^2, ...), > 0; a number, a diagonal, a
        matrix or by name. Default 1 for each quantity, which suits no sensor: give variances wherever a
        filter or noise is to be more than tried.
    wrap : names
        Measured angles that are known modulo 2 pi; states in the map's own ``wrap`` always are.

    Attributes
    ----------
    names : tuple of ny str
    V : (ny, ny)
    wrapped : (ny,), bool
        Which are known modulo 2 pi.

    Raises
    ------
    ModelError
        If the map has no such quantity.
    ValueError
        If a quantity depends on inputs or multipliers, or the covariance is not positive definite.
    """

    def __init__(
        self,
        f: OneStepMap,
        quantities: str | Iterable[str] | Mapping[str, float],
        covariance: Any = None,
        *,
        wrap: str | Sequence[str] = (),
    ):
        self.map = f
        given = quantities if isinstance(quantities, Mapping) else dict.fromkeys(as_names(quantities))
        named = by_quantity(f, given, "measurement")
        self.names = tuple(named)
        if not self.names:
            raise ValueError("a measurement needs at least one quantity")
        if covariance is None:
            covariance = named if isinstance(quantities, Mapping) else 1.0
        self.V = weight_matrix(covariance, self.names, "measurement covariance", definite=True)
        self._root = root(self.V)
        s = f.symbols
        g = ca.vertcat(*(f.quantity(n) for n in self.names))
        for name, entry in zip(self.names, ca.vertsplit(g), strict=True):
            if ca.depends_on(entry, ca.vertcat(s.u, s.multipliers, s.dt)):
                raise ValueError(f"{name}: a measurement is of the state alone, this depends on the step")
        known = {n for n in f.wrap if n in self.names}
        known |= {meaning(name, self.names, "wrap") for name in as_names(wrap)}
        self.wrapped = np.array([n in known for n in self.names])
        self._values = Evaluator(ca.Function("g", [s.x, s.parameters], [g, ca.jacobian(g, s.x)]))

    def __reduce__(self):
        wrapped = tuple(n for n, w in zip(self.names, self.wrapped, strict=True) if w)
        return _rebuild, (self.map, self.names, self.V, wrapped)

    def _evaluate(self, x: np.ndarray) -> list[np.ndarray]:
        return self._values(x, self.map.theta)

    def __call__(self, x: Any) -> np.ndarray:
        """g(x); (nx,) -> (ny,), or (N, nx) -> (N, ny)."""
        return self._evaluate(np.asarray(x, float))[0][..., 0]

    def jacobian(self, x: Any) -> np.ndarray:
        """C = D_x g by the errors of x; (nx,) -> (ny, ndx), or with a leading axis N."""
        x = np.asarray(x, float)
        C = self._evaluate(x)[1]
        if self.map.ndx == self.map.nx:
            return C
        if x.ndim == 2:
            return np.stack([c @ retract_jacobian(self.map, row) for c, row in zip(C, x, strict=True)])
        return C @ retract_jacobian(self.map, x)

    def innovation(self, x: np.ndarray, y: Any) -> np.ndarray:
        """y - g(x), angles in [-pi, pi]."""
        y = check_array(y, (len(self.names),), "measurement", self.names)
        d = y - self(x)
        return np.where(self.wrapped, d - 2 * np.pi * np.round(d / (2 * np.pi)), d)

    def sample(self, x: np.ndarray, rng: np.random.Generator | None) -> np.ndarray:
        """g(x), with noise if there is a generator."""
        y = self(x)
        return y if rng is None else y + self._root @ rng.standard_normal(len(y))

    def __repr__(self) -> str:
        noise = ", ".join(
            f"{n} +- {s:.3g}" for n, s in zip(self.names, np.sqrt(np.diag(self.V)), strict=True)
        )
        return f"Measurement({noise})"


def root(covariance: np.ndarray) -> np.ndarray:
    """G with G G' a covariance that may be singular: G times independent normal numbers is a sample of it."""
    values, vectors = np.linalg.eigh(covariance)
    return vectors * np.sqrt(np.maximum(values, 0.0))


def retract_jacobian(f: OneStepMap, x: np.ndarray) -> np.ndarray:
    """Derivative of retract(x, dx) by dx at 0, (nx, ndx), by central differences of order 4."""
    columns = []
    for e in np.eye(f.ndx):
        near, far = ((f.retract(x, s * e) - f.retract(x, -s * e)) / (2 * s) for s in (1e-3, 2e-3))
        columns.append((4 * near - far) / 3)
    return np.array(columns).T


def _rebuild(f: OneStepMap, names: tuple[str, ...], V: np.ndarray, wrap: tuple[str, ...]) -> Measurement:
    return Measurement(f, names, V, wrap=wrap)
