"""Input sequences of a map, made from numbers, arrays, functions and splines.

A force is held over a step, so a function of time is sampled in the middle of the step. The input of a
kinematic variable is its next value, so it is sampled at the step's end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from vioc.checks import as_count, as_floats, real
from vioc.errors import FileFormatError, ModelError
from vioc.names import INPUTS, by_name, meaning
from vioc.runs.columns import check_units, known_columns
from vioc.runs.tables import TIME, Table

if TYPE_CHECKING:
    from vioc.maps.protocol import OneStepMap

PRESCRIBED = "rho."  # prefix of the inputs that are next values of kinematic variables


def inputs(
    f: OneStepMap,
    steps: int,
    signals: Any = None,
    *,
    k0: int = 0,
    dt: float | Sequence[float] | np.ndarray | None = None,
    **named: Any,
) -> np.ndarray:
    """Return inputs U (N, nu) of a map, given a signal for each input by name.

    Parameters
    ----------
    f : OneStepMap
    steps : int
        Number of steps N >= 1.
    signals : dict by input name (``NAME`` or ``u.NAME``), or a record
        Each is a number (held), an array, or a function of time in s: any callable of a float, or one of
        scipy's (`CubicSpline`, `PPoly`, `BSpline`, `interp1d`, ...).
        A record is a CSV file, a `Table`, DataFrame or Dataset with a column ``t``: forces (``NAME`` or
        ``u.NAME``) hold their sample until the next, kinematic variables (``NAME``) are linear between
        samples; names and units are checked. ``Table.read(path).signal(name, "line")`` chooses otherwise.
    k0, dt
        Index of the first step, and step lengths, as in ``f.rollout``.
    **named
        Signals by keyword; ``rho_trolley=`` is the input ``rho.trolley``.

    Returns
    -------
    (N, nu)
        Inputs. An array of N values is used unchanged. Functions are sampled at the middle t_k + dt/2 of each
        step, and at its end t_k + dt for ``rho.NAME``, where an array may also have the N+1 values of all
        samples. Forces without a signal are zero.

    Raises
    ------
    ModelError
        If a name is unknown or given twice.
    ValueError
        If a kinematic variable has no signal, a shape is wrong, a value is not finite, or a spline is
        evaluated outside its knots. The message names the input.

    Examples
    --------
    >>> U = inputs(f, 500, force=lambda t: 2 * math.sin(t), rho_trolley=CubicSpline(times, positions))
    >>> run = f.rollout(x0, U)
    """
    steps = as_count(steps, "steps")
    plain = signals is None or (isinstance(signals, Mapping) and not isinstance(signals, Table))
    if plain and TIME in (signals or {}) and TIME not in f.input_names:
        signals, plain = Table.read(signals), False  # a dict of columns over time
    given = _collect(f, (signals or {}) if plain else _recorded(f, Table.read(signals)), named)
    lacking = [n for n in f.input_names if n.startswith(PRESCRIBED) and n not in given]
    if lacking:
        raise ValueError(
            f"inputs: the kinematic variables need a signal each, got none for {', '.join(lacking)}; "
            "a number holds one in its place"
        )
    lengths = f.lengths(f.dt if dt is None else dt, steps)
    t = f.times(lengths, k0)
    U = np.zeros((steps, f.nu))
    for name, value in given.items():
        ends = name.startswith(PRESCRIBED)
        times = t[1:] if ends else (t[:-1] + t[1:]) / 2
        U[:, f.input_names.index(name)] = sample(value, times, f"input {name!r}", with_start=ends)
    return U


def sample(value: Any, t: np.ndarray, what: str = "signal", *, with_start: bool = False) -> np.ndarray:
    """Return the values of a signal, such as a function, at the times `t` (N,), s.

    `inputs` lists the forms of a signal. `with_start` allows arrays of N+1 values, whose first is dropped.
    """
    t = np.asarray(t, float)
    if callable(value):
        values = _call(value, t, what)
    else:
        value = real(value, what)
        try:
            values = as_floats(value, what)
        except ValueError:
            raise ValueError(f"{what}: expected numbers or a function of time, got {value!r}") from None
        if values.ndim == 0:
            values = np.full(len(t), values)
        elif with_start and values.shape == (len(t) + 1,):
            values = values[1:]
    if values.shape != (len(t),):
        wanted = f"({len(t)},) or ({len(t) + 1},)" if with_start else f"({len(t)},)"
        raise ValueError(f"{what}: expected a number or shape {wanted}, got {values.shape}")
    bad = np.flatnonzero(~np.isfinite(values))
    if len(bad):
        raise ValueError(
            f"{what}: expected finite numbers, got {values[bad[0]]} at step {bad[0]} (t = {t[bad[0]]:g} s)"
        )
    return values


def _recorded(f: OneStepMap, table: Table) -> dict[str, Any]:
    """Return the signals in a table that are inputs of a map, by name."""
    names = known_columns(table, f)
    check_units(table, f, names)
    signals: dict[str, Any] = {}
    for name in f.input_names:
        column, position = names.get(INPUTS + name), names.get(name.removeprefix(PRESCRIBED))
        if not name.startswith(PRESCRIBED):
            if column is not None:
                signals[name] = table.signal(column)
        elif position is not None:
            signals[name] = table.signal(position, "line")
        elif column is not None:
            raise FileFormatError(
                f"{table.source}: {column!r} are next values; give the variable itself, a column "
                f"{name.removeprefix(PRESCRIBED)!r} with its value at t"
            )
    if not signals:
        raise FileFormatError(
            f"{table.source}: has none of the inputs {', '.join(f.input_names) or '(there are none)'}"
        )
    return signals


def _collect(f: OneStepMap, signals: Mapping[str, Any], named: Mapping[str, Any]) -> dict[str, Any]:
    given = by_name(signals, f.input_names, "inputs", prefix=INPUTS)
    for key, value in named.items():
        dotted = key.replace("rho_", PRESCRIBED, 1) if key.startswith("rho_") else key
        name = dotted if key not in f.input_names and dotted in f.input_names else key
        name = meaning(name, f.input_names, "inputs", prefix=INPUTS)
        if name in given:
            raise ModelError(f"inputs: {name!r} has two signals")
        given[name] = value
    return given


def _call(value: Any, t: np.ndarray, what: str) -> np.ndarray:
    """Evaluate a function of time at each of several times, and check its values.

    Functions of scipy are evaluated at once, within their knots, others one by one.
    """
    knots = _knots(value)
    if knots is not None:
        low, high = knots
        slack = 1e-9 * (high - low)  # the last sample k dt may exceed the last knot by rounding
        outside = t[(t < low - slack) | (t > high + slack)]
        if len(outside):
            raise ValueError(
                f"{what}: asked for t = {outside[0]:g} s, but its knots reach from {low:g} to {high:g} s"
            )
        t = np.clip(t, low, high)
    if type(value).__module__.startswith("scipy."):
        return as_floats(value(t), what)
    values = [value(float(time)) for time in t]
    try:
        numbers = as_floats(values, what)
    except ValueError:
        raise ValueError(f"{what}: expected a function of t with numbers, got {values[0]!r}") from None
    # a function may return an array of one entry
    return numbers.reshape(len(t)) if numbers.size == len(t) else numbers


def first_knot(value: Any) -> float | None:
    """Return the time of the first knot of a scipy spline, s.
    The result is None for a periodic spline and for any other function.
    """
    knots = _knots(value)
    return None if knots is None else knots[0]


def _knots(value: Any) -> tuple[float, float] | None:
    """Return the times of the first and the last knot of a scipy spline, s.
    The result is None for a periodic spline and for any other function.
    """
    if not type(value).__module__.startswith("scipy.") or getattr(value, "extrapolate", None) == "periodic":
        return None
    if hasattr(value, "t") and hasattr(value, "k"):  # BSpline: the base interval
        return float(value.t[value.k]), float(value.t[-value.k - 1])
    x = getattr(value, "x", None)
    return None if x is None else (float(np.min(x)), float(np.max(x)))
