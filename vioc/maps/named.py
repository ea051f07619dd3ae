"""`Named`: what of a map has names, and what it takes and refuses by them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import casadi as ca
import numpy as np

from vioc.checks import as_count, as_value, check_array, check_rows, few, real
from vioc.errors import ModelError
from vioc.maps.given import state_of
from vioc.maps.implicit import Implicit
from vioc.maps.signals import inputs
from vioc.maps.steps import times_of
from vioc.names import by_name, meaning


class Symbols(NamedTuple):
    """The symbols that named quantities are written in (CasADi SX column vectors).

    Attributes
    ----------
    x : (nx,)
    u : (nu,)
    multipliers : (number of constraints,)
        Those of the step that starts at (x, u).
    parameters : (number of parameters,)
    dt : (1,)
        Length of that step, s.
    """

    x: ca.SX
    u: ca.SX
    multipliers: ca.SX
    parameters: ca.SX
    dt: ca.SX

    @staticmethod
    def sized(nx: int, nu: int, multipliers: int = 0, parameters: int = 0) -> Symbols:
        """New ones."""
        names = ("x", nx), ("u", nu), ("multipliers", multipliers), ("theta", parameters), ("dt", 1)
        return Symbols(*(ca.SX.sym(*name) for name in names))


class Named:
    """Names, sizes and symbols of a map (see `OneStepMap`); its quantities, states and inputs by name."""

    nx: int
    ndx: int
    nu: int
    state_names: tuple[str, ...]
    input_names: tuple[str, ...]
    multiplier_names: tuple[str, ...]
    wrap: tuple[str, ...] = ()
    parameters: dict[str, float]
    symbols: Symbols
    system: Any = None
    strings: tuple[str, ...] = ()
    implicit: Implicit | None = None
    dt: float

    @property
    def inertias(self) -> Mapping[str, ca.SX]:
        """Of a mechanism, the ten numbers of each rigid body in `symbols.parameters`, by its frame's name.

        Mass, centre of mass (3) and inertia about it, Ixx, Iyy, Izz, Ixy, Ixz, Iyz, in the frame's axes.
        """
        return {}

    def regressor(self, linear: Sequence[str] = ()) -> Any:
        """Of a mechanism, its equations as a linear function of inertias, and of parameters `linear`.

        Raises
        ------
        ModelError
            Of a map that is no mechanism's.
        """
        raise ModelError(f"{type(self).__name__} is no mechanism's map, it has no regressor; use identify")

    @property
    def theta(self) -> np.ndarray:
        """Values of the parameters (np,), as functions of `symbols` take them."""
        return np.array(list(self.parameters.values()), float).T  # a row for each of many samples

    @property
    def error_names(self) -> tuple[str, ...]:
        """Names of the state's error, (ndx,): the states', where errors are differences of states."""
        return self.state_names if self.ndx == self.nx else tuple(f"error {i}" for i in range(self.ndx))

    @property
    def wrapped(self) -> np.ndarray:
        """1 for states in `wrap`, else 0: (nx,)."""
        return np.array([n in self.wrap for n in self.state_names], float)

    # -- named quantities -----------------------------------------------------------------------

    def quantity(self, name: str) -> ca.SX:
        """A named quantity as an expression of `symbols`.

        Every map knows its states by name, inputs as ``u.NAME``, multipliers as ``lambda.NAME`` and
        parameters as ``param.NAME``; integrators of mechanisms add velocities, energies, frames. What
        follows the prefix will do where one quantity alone has it (`vioc.names`).

        Raises
        ------
        ModelError
            If there is no such quantity, or a short name has several meanings.
        """
        for (prefix, names), symbol in zip(self._groups, self.symbols, strict=False):
            if name.startswith(prefix) and name[len(prefix) :] in names:
                return symbol[names.index(name[len(prefix) :])]
        return self.quantity(meaning(name, [n for n in self.quantity_names() if n != name]))

    def rotation(self, frame: str) -> ca.SX | None:
        """Rotation matrix (3, 3) of a named frame, from its axes to the world's, in `symbols`.

        None where the map has no such frame. Its log has the names ``FRAME:rx``, ry and rz, see
        `vioc.maps.orientation`.
        """
        return None

    def quantity_names(self) -> tuple[str, ...]:
        """Full names of all quantities."""
        own = (prefix + n for prefix, names in self._groups for n in names)
        return tuple(dict.fromkeys((*own, *self._more_quantities())))

    @property
    def _groups(self) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """Prefix and names of what every map has: states, inputs, multipliers, parameters."""
        every = self.state_names, self.input_names, self.multiplier_names, tuple(self.parameters)
        return tuple(zip(("", "u.", "lambda.", "param."), every, strict=True))

    def _more_quantities(self) -> list[str]:
        """Full names of what a subclass's `quantity` adds."""
        return []

    def unit(self, name: str) -> str:
        """SI unit of a named quantity, "" where it has none that is known."""
        return ""

    def force_rounding(self, dt: float) -> float:
        """Forces that a step of length `dt` cannot tell from zero, N."""
        return 0.0

    # -- states and inputs by name --------------------------------------------------------------

    @property
    def coordinates(self) -> tuple[str, ...]:
        """What may be chosen of a state at rest: of a mechanism its dynamic variables."""
        return self.state_names

    def initial_state(self, q: Any = None, v: Any = None, u: Any = None, **named: float) -> np.ndarray:
        """The state with configurations `q` and velocities `v` by name, and zero else.

        Parameters
        ----------
        q : dict by name, optional
            Of states, where the map is no mechanism's.
        v : dict by name, optional
            Of NAME for ``v.NAME``.
        u : (nu,), optional
            The input at the start, for maps to whose state it matters.
        **named : float
            Configurations by keyword, in the place of or beside those in `q`.
        """
        rates = {f"v.{name}": value for name, value in (v or {}).items()}
        return self.state({**(q or {}), **rates, **named})

    @property
    def configurations(self) -> tuple[str, ...]:
        """The states at the front that tell the others by two samples in a row, if they do."""
        return ()

    def state_from_configurations(self, q0: Any, q1: Any, u: Any = None, k: int = 0) -> np.ndarray:
        """The state at k + 1 of a step from `configurations` q0 to q1 under the input u."""
        raise TypeError(
            f"{type(self).__name__} has no state_from_configurations: the momentum of its state does not "
            "follow from two configurations; use a Kalman filter"
        )

    def moved(self, x: np.ndarray, by: np.ndarray, fixed: Sequence[str] = ()) -> np.ndarray:
        """The state at rest that is `by` away from `x` in `coordinates`, as near as constraints let it be.

        Raises
        ------
        ModelError
            If no such state keeps the constraints, with the names in `fixed` as they are.
        """
        return x + by

    def inputs(self, steps: int, signals: Mapping[str, Any] | None = None, **options: Any) -> np.ndarray:
        """U (N, nu) from numbers, arrays, functions of time and splines by name: `vioc.inputs`."""
        return inputs(self, steps, signals, **options)

    def state(self, values: Mapping[str, float] | None = None, **named: float) -> np.ndarray:
        """A state by names, zero elsewhere: ``f.state(theta=0.3)``, ``f.state({"p.theta": 1.0})``."""
        return _vector({**(values or {}), **named}, self.state_names, "state")

    def input(self, values: Mapping[str, float] | None = None, **named: float) -> np.ndarray:
        """An input by names (``NAME`` or ``u.NAME``), zero elsewhere."""
        return _vector({**(values or {}), **named}, self.input_names, "input", "u.")

    # -- checks at the boundary -----------------------------------------------------------------

    def check_state(self, x: Any, what: str = "state") -> np.ndarray:
        """`x` as a finite float array of shape (nx,); ValueError names the entry at fault.

        A report of an equilibrium, or a regulator about one, stands for its state.
        """
        theirs = getattr(getattr(x, "map", self), "state_names", self.state_names)
        if theirs != self.state_names:
            raise ValueError(
                f"{what}: it is of a map with the states {few(theirs)}, not {few(self.state_names)}"
            )
        return check_array(state_of(x, what), (self.nx,), what, self.state_names)

    def check_point(self, x: Any, u: Any = None) -> tuple[np.ndarray, np.ndarray]:
        """State and input, checked; an equilibrium brings its own input where none is given."""
        state = self.check_state(x)
        return state, self.check_input(getattr(x, "u", None) if u is None else u, state)

    def times(self, lengths: np.ndarray, k0: int, begins: np.ndarray | None = None) -> np.ndarray:
        """Sample times (N+1,), s, of steps of `lengths` (N,) from step k0 on, `times_of`."""
        return times_of(lengths, k0, self.dt, begins)

    def check_start(self, x0: Any, U: Any, steps: int | None) -> tuple[np.ndarray, np.ndarray]:
        """Initial state and inputs (N, nu) of a rollout; an equilibrium's input is held if none are given."""
        state = self.check_state(x0, "initial state")
        U = getattr(x0, "u", None) if U is None and steps is not None else U
        return state, self.check_inputs(U, steps, state)

    def check_input(self, u: Any, x: np.ndarray | None = None, what: str = "input") -> np.ndarray:
        """`u` as a finite float array of shape (nu,); None is `rest_input` at x."""
        if u is None:
            return np.zeros(self.nu) if x is None else self.rest_input(x)
        if isinstance(u, Mapping):
            raise ValueError(
                f"{what}: expected an array of shape ({self.nu},), got {u!r}; make one with f.input({u!r}), "
                f"or for the steps of a rollout f.inputs(steps, {u!r})"
            )
        return check_array(u, (self.nu,), what, self.input_names)

    def rest_input(self, x: np.ndarray) -> np.ndarray:
        """What no input means at a state: zero, and prescribed configurations stay where they are."""
        return np.zeros(self.nu)

    def check_inputs(self, U: Any, steps: int | None, x0: np.ndarray) -> np.ndarray:
        """`U` as (N, nu): given so, or one input, or None (see `rest_input`), for `steps` steps."""
        if isinstance(U, Mapping):
            self.check_input(U, what="inputs")
        sequence = np.ndim(U) == 1 and steps is None and self.nu == 1
        if U is None or (np.ndim(U) < 2 and not sequence):
            if steps is None:
                raise ValueError("rollout needs inputs U of shape (N, nu), or the number of steps")
            count = as_count(steps, "steps")
            held = self.rest_input(x0) if U is None else self.check_input(U)
            return np.tile(held, (count, 1))
        array = np.asarray(real(U, "inputs"), float)
        array = array[:, None] if array.ndim == 1 else array
        array = check_rows(array, "inputs", self.input_names)
        if steps is not None and len(array) != steps:
            raise ValueError(f"inputs: got {len(array)} rows for steps={steps}")
        return array

    def lengths(self, dt: Any, steps: int) -> np.ndarray:
        """`dt` as the lengths (N,) of steps: given so, or one for all, or None for the map's own."""
        value = self.dt if dt is None else dt
        if isinstance(value, float) and value > 0 < value * value < math.inf:
            return np.full(steps, value)  # what most calls give
        if isinstance(value, (str, bytes, bool)):
            raise ValueError(f"dt: expected step lengths > 0, got {value!r}")
        value = real(value, "dt")
        try:
            lengths = np.broadcast_to(np.asarray(value, float), (steps,)).copy()
        except ValueError:
            raise ValueError(f"dt: expected one step length or {steps}, got {value!r}") from None
        with np.errstate(over="ignore", under="ignore"):
            squares = lengths * lengths  # which steps divide by
        if not (lengths > 0).all():
            raise ValueError(f"dt: expected step lengths > 0, got {value!r}")
        if not ((squares > 0).all() and np.isfinite(squares).all()):
            raise ValueError(f"dt: expected step lengths > 0 whose squares are numbers > 0, got {value!r}")
        return lengths


def _vector(values: Mapping[str, float], names: tuple[str, ...], what: str, prefix: str = "") -> np.ndarray:
    result = np.zeros(len(names))
    for name, value in by_name(values, names, what, prefix=prefix).items():
        result[names.index(name)] = as_value(value, f"{what} {name!r}")
    return check_array(result, (len(names),), what, names)
