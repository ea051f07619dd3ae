"""Unconstrained coordinates of the parameters that are estimated.
Every value of the coordinates gives physically possible parameters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import casadi as ca
import numpy as np

from vioc.checks import as_bounds, as_names, as_value, limits, near_misses
from vioc.compile.evaluate import Evaluator
from vioc.errors import ModelError
from vioc.identification.inertias import body_coordinates, body_numbers, extent, size_of
from vioc.maps.made.extended import BIAS, PARAMETER
from vioc.maps.protocol import OneStepMap
from vioc.names import INPUTS, meaning

DELAY = "delay."


class ParameterCoordinates:
    """Unconstrained coordinates z of the parameters theta(z) that are estimated.

    Parameters include delays and biases. Coordinates of a body whose ten inertial parameters are all
    estimated are Cholesky factors of its second moments. Masses and moments of other bodies, and bounded
    parameters, have logarithms as coordinates; all other parameters are their own coordinates. See (ID-7).

    Parameters
    ----------
    f : OneStepMap
    names : names
        Parameters of the map; ``delay.INPUT``, s; ``bias.QUANTITY``, of a measured quantity.
    bounds : dict of str to (lower, upper), or None
        Bounds, either of which may be None; the initial value must lie between them.
    measured : names
        Quantities that may have a bias.
    values : dict of str to float
        Initial values, if not the map's.
    fixed : bool
        True to fix all parameters; z is then empty.

    Attributes
    ----------
    names : tuple of str
        Full names, in the order of theta.
    start : (n,)
        Coordinates z of the initial values; delays and biases begin at 0 unless given.
    scale : (n,)
        Scales of relative errors, in the units of theta.
    """

    def __init__(
        self,
        f: OneStepMap,
        names: str | Sequence[str],
        bounds: Mapping[str, Any] | None,
        measured: Sequence[str],
        values: Mapping[str, float] | None = None,
        *,
        fixed: bool = False,
    ):
        self.names = tuple(self._full(f, n, measured) for n in as_names(names, "names"))
        if len(set(self.names)) != len(self.names):
            raise ModelError(f"parameters: {', '.join(self.names)}: each is estimated once")
        bounds = {self._full(f, n, self.names): _sides(n, b) for n, b in as_bounds(bounds).items()}
        strange = [n for n in bounds if n not in self.names]
        if strange:
            raise ModelError(
                f"bounds: {strange[0]!r} is not estimated; {near_misses(strange[0], self.names)}"
            )
        self.parameters = tuple(n for n in self.names if n in f.parameters)
        self.delays = tuple(n for n in self.names if n.startswith(DELAY))
        self.biases = tuple(n for n in self.names if n.startswith(BIAS))
        given = {self._full(f, n, self.names): v for n, v in (values or {}).items()}
        theta = np.array([as_value(given.get(n, f.parameters.get(n, 0.0)), n) for n in self.names])
        self.bodies = _whole_bodies(f, self.names)
        self.scale = np.where(theta != 0, np.abs(theta), 1.0)
        self.fixed = theta if fixed else None
        self._build(f, theta, bounds)

    @staticmethod
    def _full(f: OneStepMap, name: str, measured: Sequence[str]) -> str:
        if name.startswith(DELAY):
            return DELAY + meaning(name.removeprefix(DELAY), f.input_names, "delay", prefix=INPUTS)
        if name.startswith(BIAS):
            quantities = [n.removeprefix(BIAS) for n in measured]
            return BIAS + meaning(name.removeprefix(BIAS), quantities, "bias")
        if name.removeprefix(PARAMETER) in f.parameters:
            return name.removeprefix(PARAMETER)
        raise ModelError(f"parameters: unknown {name!r}; {near_misses(name, f.parameters)}")

    def _build(self, f: OneStepMap, theta: np.ndarray, bounds: Mapping[str, Any]) -> None:
        n, index = len(self.names), {name: i for i, name in enumerate(self.names)}
        z = ca.SX.sym("z", n)
        columns: list[Any] = [None] * n
        start, lengths = theta.copy(), np.zeros(n)
        bodies = [[index[name] for name in numbers] for numbers in self.bodies.values()]
        length = max((extent(theta[rows]) for rows in bodies), default=0.0) or 1.0
        for rows in bodies:
            start[rows] = body_coordinates(theta[rows], length)
            for i, expression in zip(rows, ca.vertsplit(body_numbers(z[rows])), strict=True):
                columns[i] = expression
            self.scale[rows] = size_of(theta[rows], length)
            lengths[rows[1:]] = self.scale[rows[1]]
        positive = {name for name in _positive(f) if name in index and theta[index[name]] > 0}
        for name, i in index.items():
            if columns[i] is not None:
                if name in bounds:
                    raise ModelError(
                        f"bounds: {name} belongs to a body whose inertia is kept physical as a whole"
                    )
                continue
            low, high = bounds.get(name, (0.0, None) if name in positive else (None, None))
            if (low is not None and theta[i] <= low) or (high is not None and theta[i] >= high):
                raise ModelError(
                    f"bounds: {name} begins at {theta[i]:g}, which is not inside ({low}, {high}); "
                    f"give values={{{name!r}: ...}}"
                )
            columns[i], start[i] = _between(z[i], theta[i], low, high)
        plain = np.array([c.is_symbolic() for c in columns], bool)
        self._least = np.where(lengths > 0, lengths, np.where(plain, self.scale, 0.0))
        whole = ca.vertcat(*columns) if n else ca.SX(0, 1)
        self._evaluate = Evaluator(
            ca.Function("theta", [z], [ca.densify(whole), ca.densify(ca.jacobian(whole, z))])
        )
        self.start = start if self.fixed is None else np.zeros(0)

    def __len__(self) -> int:
        """Return the number of coordinates z."""
        return len(self.start)

    def size(self, z: np.ndarray) -> np.ndarray:
        """Return typical changes (n,) of the coordinates z, as scales.
        The scale of a coordinate that is the logarithm of a parameter is 1, which changes the parameter by a
        factor of 2.718.
        """
        least = self._least[: len(self)]
        return np.where(least > 0, np.maximum(np.abs(z), least), 1.0)

    def evaluate(self, z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return parameters theta(z) (n,) and their Jacobian (n, n) with respect to z."""
        if self.fixed is not None or not len(self):
            theta = np.zeros(0) if self.fixed is None else self.fixed
            return theta, np.zeros((len(theta), 0))
        value, J = self._evaluate(z)
        return value[:, 0], J

    def of(self, theta: np.ndarray, prefix: str = "") -> dict[str, float]:
        """Return the values in `theta` of the map's parameters, as a dict by name.
        Delays and biases are omitted. With a `prefix`, return instead the values whose names begin with it;
        the prefix is removed from the names.
        """
        if not prefix:
            return {n: float(v) for n, v in zip(self.names, theta, strict=True) if n in self.parameters}
        named = zip(self.names, theta, strict=True)
        return {n[len(prefix) :]: float(v) for n, v in named if n.startswith(prefix)}


def _sides(name: str, value: Any) -> tuple[float | None, float | None]:
    """Return lower and upper bound of a parameter, each None if there is no bound."""
    sides = (float(side[0]) for side in limits(value, 1, f"bounds on {name}", number="symmetric"))
    low, high = (side if np.isfinite(side) else None for side in sides)
    return low, high


def _between(z: ca.SX, value: float, low: float | None, high: float | None) -> tuple[Any, float]:
    """Return a bounded parameter as a function of an unbounded variable z.
    The second result is the z for which the parameter equals `value`.
    """
    if low is None and high is None:
        return z, value
    if low is not None and high is not None:
        share = (value - low) / (high - low)
        return low + (high - low) / (1 + ca.exp(-z)), float(np.log(share / (1 - share)))
    if high is not None:
        return high - ca.exp(z), float(np.log(high - value))
    assert low is not None
    return low + ca.exp(z), float(np.log(value - low))


def _entries(f: OneStepMap) -> dict[str, list[list[str]]]:
    """Return, for each body, the parameters on which its inertia depends.
    There is a list of parameter names for each of the body's ten inertial parameters.
    """
    theta, names = f.symbols.parameters, list(f.parameters)
    dependencies = {}
    for body, numbers in f.mechanism.inertias().items():
        depends = ca.jacobian_sparsity(numbers, theta) if names else None
        rows: list[list[str]] = [[] for _ in range(10)]
        if depends is not None:
            for i, j in zip(*depends.get_triplet(), strict=True):
                rows[i].append(names[j])
        dependencies[body] = rows
    return dependencies


def _whole_bodies(f: OneStepMap, estimated: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return bodies whose ten inertial parameters are separate estimated parameters.

    No other inertial parameter may depend on these estimated parameters.
    """
    entries, names, theta = _entries(f), list(f.parameters), f.symbols.parameters
    uses: dict[str, int] = {}
    for rows in entries.values():
        for name in (n for row in rows for n in row):
            uses[name] = uses.get(name, 0) + 1
    bodies = {}
    for body, rows in entries.items():
        if all(len(row) == 1 and row[0] in estimated and uses[row[0]] == 1 for row in rows):
            numbers = tuple(row[0] for row in rows)
            plain = ca.vertcat(*(theta[names.index(n)] for n in numbers))
            if ca.is_equal(f.mechanism.inertias()[body], plain, 1):
                bodies[body] = numbers
    return bodies


def _positive(f: OneStepMap) -> set[str]:
    """Return the names of parameters that are masses or diagonal entries of inertias."""
    return {n for rows in _entries(f).values() for row in (rows[0], *rows[4:7]) for n in row}
