"""Base class of maps whose state contains the state of an inner map."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import casadi as ca
import numpy as np

from vioc.maps.derivatives import Linearization, MapDerivatives, SecondOrder, Steps
from vioc.maps.mechanism import Mechanism
from vioc.maps.protocol import OneStepMap
from vioc.maps.quantities import Quantities, QuantityTable, nothing
from vioc.maps.space import StateSpace
from vioc.names import INPUTS
from vioc.runs.trajectory import Trajectory

TIMES = 2  # dt and t, the last arguments of derivatives

Self = TypeVar("Self", bound="MapAround")


class SpaceAround(StateSpace):
    """State space of a map whose state is an inner map's state plus further states.
    The first `n` components are the state of the inner map. The error between two values of a further state
    is their difference.
    """

    def __init__(self, inner: StateSpace, n: int, names: tuple[str, ...]):
        self._inner, self._n, self._e = inner, n, len(inner.error_names)
        self.error_names, self.quaternions = (*inner.error_names, *names), inner.quaternions

    def difference(self, x0: np.ndarray, x1: np.ndarray) -> np.ndarray:
        n, (a, b) = self._n, (np.asarray(x, float) for x in (x0, x1))
        d = self._inner.difference(a[..., :n], b[..., :n])
        return np.concatenate([d, b[..., n:] - a[..., n:]], axis=-1)

    def retract(self, x: np.ndarray, dx: np.ndarray) -> np.ndarray:
        n, e, (x, dx) = self._n, self._e, (np.asarray(a, float) for a in (x, dx))
        inner = self._inner.retract(x[..., :n], dx[..., :e])
        return np.concatenate([inner, x[..., n:] + dx[..., e:]], axis=-1)

    def difference_expression(self, x0: Any, x1: Any) -> Any:
        n = self._n
        return ca.vertcat(self._inner.difference_expression(x0[:n], x1[:n]), x1[n:] - x0[n:])

    def retract_expression(self, x: Any, dx: Any) -> Any:
        n, e = self._n, self._e
        return ca.vertcat(self._inner.retract_expression(x[:n], dx[:e]), x[n:] + dx[e:])

    def check(self, x: np.ndarray, what: str) -> None:
        self._inner.check(x[: self._n], what)


def inner_quantities(
    f: MapAround, expression: Callable[[ca.SX], ca.SX], unit: Callable[[str], str | None]
) -> QuantityTable:
    """Return a table of named quantities for a map f whose state contains that of an inner map.
    The table has the quantities of the inner map, as expressions in the CasADi symbols of f.

    `expression` rewrites the symbols of the inner map in those of `f`; `unit` returns the units of the
    additional states.
    """

    def find(name: str) -> ca.SX | None:
        # an input of this map is the command, not the input that acts
        is_outer = name in f.state_names or name.removeprefix(INPUTS) in f.input_names
        if is_outer or ("." not in name and name not in f.quantities.names()):
            return None
        return expression(f.inner.quantity(name))

    def unit_of(name: str) -> str:
        outer_unit = unit(name)
        return f.inner.unit(name) if outer_unit is None else outer_unit

    def rotation(frame: str) -> ca.SX | None:
        R = f.inner.quantities.rotation(frame)
        return None if R is None else expression(R)

    return QuantityTable(find, lambda: f.inner.quantities.names(), unit_of, rotation)


def around(f: MapAround, review: Callable[[Trajectory], None] = nothing, **more: Any) -> Mechanism:
    """Return the `Mechanism` properties of a map f that contains an inner map.
    Most of these properties, such as coordinates and strings, are those of the inner map's mechanism. The
    arguments `review` and `more` are properties that replace them.
    """
    inner = f.inner.mechanism

    def inputs_at(ends: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        by_x, by_u = inner.inputs_at(ends)
        zeros = np.zeros((*by_x.shape[:2], f.nx - f.inner.nx))
        return np.concatenate([by_x, zeros], axis=2), by_u

    def moved(x: np.ndarray, displacement: np.ndarray, fixed: Sequence[str] = ()) -> np.ndarray:
        a, rest = f.split(x)
        return np.concatenate([inner.moved(a, displacement, fixed), rest])

    names = "strings", "force_rounding", "velocity_constraints", "impulse_behind"
    properties = {name: getattr(inner, name) for name in names} | more
    return Mechanism(inner.coordinates, inner.additive, inputs_at, moved, review=review, **properties)


def kernel_symbols(f: OneStepMap) -> list[ca.MX]:
    """Return symbols for the arguments of a step: state x, input u, time t, length dt and parameters."""
    return [ca.MX.sym("a", size) for size in (f.nx, f.nu, 1, 1, len(f.parameters))]


def unchanged(expression: ca.SX) -> ca.SX:
    """Return an expression unchanged.
    It is the default for maps that use the symbols of their inner map.
    """
    return expression


class MapAround(OneStepMap):
    """Base class of maps whose state is an inner map's state plus additional states.

    Subclasses define `_first` and `_second`. If a subclass is made from the inner map and further arguments,
    its attribute `_made_of` has these arguments.
    """

    inner: OneStepMap
    _identified_by: tuple[tuple[str, str], ...] = (("inner", "inner"),)
    _made_of: tuple = ()  # arguments after `inner` that make this map again

    def _around(
        self,
        inner: OneStepMap,
        names: Sequence[str] = (),
        expression: Callable[[ca.SX], ca.SX] = unchanged,
        unit: Callable[[str], str | None] = nothing,
    ) -> None:
        """Set attributes of this map, such as the numbers and names of its states and inputs.
        They follow from the inner map and from the `names` of the additional states.

        See `inner_quantities` for the other arguments.
        """
        self.nx, self.ndx, self.nu = inner.nx + len(names), inner.ndx + len(names), inner.nu
        self.dt, self.parameters, self.system = inner.dt, inner.parameters, inner.system
        self.state_names = (*inner.state_names, *names)
        self.input_names, self.multiplier_names = inner.input_names, inner.multiplier_names
        self.wrap, self.backend = inner.wrap, inner.backend
        self._as_mechanism = lambda: around(self)
        self.space = SpaceAround(inner.space, inner.nx, tuple(names)) if names else inner.space
        self.quantities = Quantities(self, inner_quantities(self, expression, unit))

    def with_each(self: Self, change: Callable[[OneStepMap], OneStepMap]) -> Self:
        """Return a copy of this map whose inner map is changed by the function `change`."""
        return type(self)(change(self.inner), *self._made_of)  # type: ignore[call-arg]

    def with_dt(self: Self, dt: float) -> Self:
        return self.with_each(lambda f: f.with_dt(dt))

    def with_parameters(self: Self, **values: float) -> Self:
        return self.with_each(lambda f: f.with_parameters(**values))

    def trying(self: Self, **values: float) -> Self:
        return self.with_each(lambda f: f.trying(**values))

    def __reduce__(self) -> tuple:
        return type(self), (self.inner, *self._made_of)

    @property
    def depends_on_time(self) -> bool | None:
        return self.inner.depends_on_time

    # -- the state space ------------------------------------------------------------------------

    def split(self, x: Any) -> tuple[np.ndarray, np.ndarray]:
        """Split a state into the state of the inner map and the additional states.

        Shapes: (..., nx) -> (..., inner nx), (..., nx - inner nx).
        """
        x = np.asarray(x, float)
        return x[..., : self.inner.nx], x[..., self.inner.nx :]

    def initial_state(self, q: Any = None, v: Any = None, u: Any = None, **named: float) -> np.ndarray:
        return self.inner.initial_state(q, v, u, **named)

    def rest_input(self, x: np.ndarray) -> np.ndarray:
        return self.inner.rest_input(self.split(x)[0])

    # -- derivatives ----------------------------------------------------------------------------

    @abstractmethod
    def _first(self, steps: Steps, timed: bool) -> Linearization:
        """Return the first derivatives of steps of this map.
        With `timed`, the derivatives with respect to step length and start time are included.
        """

    @abstractmethod
    def _second(self, steps: Steps, Z: np.ndarray, zeta: np.ndarray, timed: bool) -> SecondOrder:
        """Return the second derivatives of weighted sums of the results of steps.
        The weights of the next states are Z, and the weights of the multipliers are `zeta`. With `timed`, the
        derivatives with respect to step length and start time are included.
        """

    @property
    def derivatives(self) -> MapDerivatives:
        return self._differentiated(False)

    def _differentiated(self, timed: bool) -> MapDerivatives:
        if timed:
            _ = self.inner.derivatives.timed  # raises if they do not exist
        return MapDerivatives(
            self,
            lambda steps: self._first(steps, timed),
            lambda steps, Z, zeta: self._second(steps, Z, zeta, timed),
            lambda: self._differentiated(True),
        )


def derivatives_of(f: OneStepMap, timed: bool) -> MapDerivatives:
    """Return the object that evaluates the derivatives of a map.
    With `timed`, the derivatives with respect to step length and start time are included.
    """
    return f.derivatives.timed if timed else f.derivatives
