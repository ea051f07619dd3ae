"""Checks of arguments, whose messages say what was expected, what was given and where."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

LONGEST_NAME = 1000  # most characters of a name
NOISE = 64 * np.finfo(float).eps  # relative size of a few rounding errors of a solution


def check_rows(value: Any, what: str, names: Sequence[str]) -> np.ndarray:
    """Check and return an array (N, n) with a row for each step or sample.
    Its n columns are the quantities `names`. Its entries must be finite numbers.
    """
    array, n = as_floats(value, what, f" of shape (N, {len(names)})"), len(names)
    if array.ndim != 2 or array.shape[1] != n:
        is_transposed = array.ndim == 2 and array.shape[0] == n
        advice = (
            f"; a row is a step, so give its transpose, of shape {array.T.shape}" if is_transposed else ""
        )
        raise ValueError(
            f"{what}: expected shape (N, {n}), columns in the order {', '.join(names) or 'none'}, got "
            f"{array.shape}{advice}"
        )
    return check_array(array, (len(array), n), what, names)


def check_last(value: Any, size: int, what: str) -> np.ndarray:
    """Convert a value to a float64 array of shape (..., size), or raise a ValueError.
    Numbers may be NaN or infinite, as in the states of a failed rollout.
    """
    if type(value) is np.ndarray and value.dtype == np.float64 and value.shape[-1:] == (size,):
        return value
    array = as_floats(value, what, f" of shape (..., {size})")
    if array.shape[-1:] != (size,):
        raise ValueError(f"{what}: expected shape (..., {size}), got {array.shape}")
    return array


def check_array(value: Any, shape: tuple[int, ...], what: str, names: Sequence[str] = ()) -> np.ndarray:
    """Convert a value to a finite C-ordered float64 array of a given shape.
    If that is not possible, a ValueError is raised; it names an entry that is not finite.
    """
    array = np.ascontiguousarray(as_floats(value, what, f" of shape {shape}"))
    if array.shape != shape:
        order = f" in the order {', '.join(names)}" if names else ""
        raise ValueError(f"{what}: expected shape {shape}{order}, got {array.shape}")
    if not np.isfinite(array).all():
        index = tuple(int(i) for i in np.argwhere(~np.isfinite(array))[0])
        label = f" ({names[index[-1]]})" if names else ""
        row = f" at step {index[0]}" if len(index) > 1 else ""
        raise ValueError(
            f"{what}: expected finite numbers, got {array[index]} in entry {index[-1]}{label}{row}"
        )
    return array


def as_floats(value: Any, what: str, shape: str = "") -> np.ndarray:
    """Convert a value to a float64 array of any shape, or raise a ValueError.

    The checks of `real` are included. Texts and truth values are not accepted.
    """
    value = real(value, what)
    try:
        array = np.asarray(value)
        if array.dtype.kind in "fiuO":
            return np.asarray(array, dtype=float)
    except (TypeError, ValueError):
        pass
    raise ValueError(f"{what}: expected numbers{shape}, got {_shown(value)}")


def real(value: Any, what: str) -> Any:
    """Return a number or array unchanged if it is real, else raise a ValueError.
    The error is raised for nonzero imaginary parts and for masked entries. A complex array whose imaginary
    parts are zero is converted to a real array.
    """
    if type(value) is np.ndarray and value.dtype.kind != "c":
        return value
    if isinstance(value, np.ma.MaskedArray):
        if len(hidden := np.argwhere(np.ma.getmaskarray(value))):
            raise ValueError(
                f"{what}: expected numbers, got a masked array that hides entry {_place(hidden[0])}; fill "
                "it, value.filled(0.0)"
            )
        value = value.data
    if is_complex(value):
        if len(odd := np.argwhere(np.imag(value) != 0)):
            got = np.asarray(value)[tuple(odd[0])]
            raise ValueError(
                f"{what}: expected real numbers, got {got} in entry {_place(odd[0])}; take value.real"
            )
        value = np.real(value)
    return value


def is_complex(value: Any) -> bool:
    """Return whether a NumPy number or array has a complex type."""
    return isinstance(value, (np.ndarray, np.generic)) and value.dtype.kind == "c"


def filled(value: Any) -> Any:
    """Return an array, with NaN in the masked entries of a masked array."""
    return np.ma.filled(value.astype(float), np.nan) if isinstance(value, np.ma.MaskedArray) else value


def _place(index: np.ndarray) -> str:
    """Format the index of an array entry as text for messages."""
    return ", ".join(map(str, index.tolist())) or "0"


def finite(*arrays: np.ndarray) -> bool:
    """Return whether all entries of all given arrays are finite numbers.

    The sum of squares is a fast test; if it overflows, the entries are tested one by one.
    """
    return math.isfinite(sum(np.vdot(a, a) for a in arrays)) or all(np.isfinite(a).all() for a in arrays)


def _shown(value: Any) -> str:
    """Describe a value that is given in place of a number, for an error message."""
    if hasattr(value, "x"):
        return f"an object of type {type(value).__name__}; use its .x"
    if isinstance(value, Mapping):
        return f"{value!r}; make an array of it with f.initial_state or f.state"
    return repr(value)


def as_value(value: Any, what: str) -> float:
    """Convert a value to a float, or raise a ValueError with the name `what`.

    A text or a truth value is not accepted: units are SI, angles radians.
    """
    try:
        if not (
            isinstance(value, (str, bytes, bool, np.bool_)) or is_complex(value) or np.ma.is_masked(value)
        ):
            return float(value)
    except (TypeError, ValueError):
        pass
    raise ValueError(f"{what}: expected a number (SI units, angles in rad), got {value!r}")


def as_positive(value: Any, what: str) -> float:
    """Convert a value to a finite number > 0, or raise a ValueError with the name `what`."""
    number = as_value(value, what)
    if not 0 < number < math.inf:
        raise ValueError(f"{what}: expected a number > 0, got {value!r}")
    return number


def as_share(value: Any, what: str) -> float:
    """Convert a value to a number > 0 and < 1, or raise a ValueError with the name `what`.
    Relative tolerances are such numbers.
    """
    number = as_value(value, what)
    if not 0 < number < 1:
        raise ValueError(f"{what}: expected a number > 0 and < 1, got {value!r}")
    return number


def as_count(value: Any, what: str, least: int = 1) -> int:
    """Convert a value to an integer >= `least`, or raise a ValueError with the name `what`."""
    try:
        if (number := as_value(value, what)) >= least and number == int(number):
            return int(value)
    except (ValueError, OverflowError):
        pass
    raise ValueError(f"{what}: expected a whole number >= {least}, got {value!r}")


def as_bounds(value: Any) -> Mapping[str, Any]:
    """Return the argument ``bounds``, a dict by name, with None as an empty dict.
    Another type raises a TypeError.
    """
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise TypeError(f'bounds: expected a dict of limits by name, {{"u.NAME": 2.0}}, got {value!r}')
    return value


def limits(value: Any, count: int, what: str, *, number: str) -> tuple[np.ndarray, np.ndarray]:
    """Convert one limit b, or a pair of limits (lower, upper), to two arrays of shape (count,).
    The arrays are the lower and the upper limits. One limit b means [-b, b] if `number` is "symmetric", and
    [b, b] if it is "equal".

    `value` is a pair (lower, upper), each a number, an array over the samples or None for no limit; or a
    number b, which means [-b, b] (`number` = "symmetric") or the value b (`number` = "equal").

    Raises
    ------
    ValueError
        For a wrong shape, a value that is not a number, or lower > upper, with the sample.
    """
    if isinstance(value, (tuple, list)) and len(value) == 2:
        low, high = value
    elif number == "symmetric":
        if np.ndim(value) == 0 and not as_value(value, what) >= 0:
            raise ValueError(f"{what}: a single limit b means [-b, b] and is >= 0, got {value!r}")
        low, high = -np.asarray(real(value, what), float), value
    else:
        low = high = value
    wanted = "a number" if count == 1 else f"a number or {count} of them"
    sides = []
    for side, name, default in ((low, "lower", -np.inf), (high, "upper", np.inf)):
        side = real(side, what)
        try:
            array = np.broadcast_to(as_floats(default if side is None else side, what), (count,)).copy()
        except ValueError:
            raise ValueError(f"{what}: expected {wanted} as {name} limit, got {side!r}") from None
        if np.isnan(array).any():
            place = f" at k = {int(np.isnan(array).argmax())}" if count > 1 else ""
            raise ValueError(f"{what}: the {name} limit is not a number{place}")
        sides.append(array)
    bad = np.flatnonzero((sides[0] > sides[1]) | (sides[0] == np.inf) | (sides[1] == -np.inf))
    if len(bad):
        k = int(bad[0])
        place = f" at k = {k}" if count > 1 else ""
        raise ValueError(f"{what}: lower limit {sides[0][k]:g} > upper limit {sides[1][k]:g}{place}")
    return sides[0], sides[1]


def few(items: Iterable[str], most: int = 6, what: str = "") -> str:
    """Join texts with commas, and abbreviate a list of more than `most` texts.
    Example: ``"x, theta, ... (39 states)"``.

    Without items it is ``"none"``.
    """
    items = list(items)
    if len(items) <= most:
        return ", ".join(items) or "none"
    return f"{', '.join(items[:most])}, ... ({len(items)} {what}".rstrip() + ")"


def is_number(text: str) -> bool:
    """Return whether a text is a number in the notation of data files (`is_plain`)."""
    try:
        float(text)
    except ValueError:
        return False
    return is_plain(text)


def is_plain(text: str) -> bool:
    """Return whether a text has ASCII characters only, and no underscores.
    Other texts are no numbers of data files, though Python reads digits of other scripts and underscores.
    """
    return text.isascii() and "_" not in text


def plain(value: float, digits: str = ".4g") -> str:
    """Format a number with the format `digits`, and zero without a minus sign."""
    return f"{value + 0.0:{digits}}"


def without_noise(values: Any) -> np.ndarray:
    """Replace rounding errors by zero in values that are to be printed.

    A value is a rounding error relative to the largest one, or to 1 in SI units.
    """
    array = np.asarray(values, float)
    largest = np.abs(array[np.isfinite(array)]).max(initial=1.0)
    return np.where(np.abs(array) <= NOISE * largest, 0.0, array)


def similar(name: str, known: Iterable[str], count: int = 3) -> list[str]:
    """Return the known names that are most similar to a name, at most `count`."""
    # the search takes time in proportion to the length, and no name is as long as a broken file
    return difflib.get_close_matches(name, list(known), n=count) if len(name) <= LONGEST_NAME else []


def near_misses(name: str, known: Iterable[str]) -> str:
    """Return a hint for the message about an unknown name: similar names, or all names."""
    known = list(known)
    if near := similar(str(name), known):
        return f"did you mean {' or '.join(map(repr, near))}?"
    if not known:
        return "none is defined"
    more = f", ... ({len(known)} in all)" if len(known) > 20 else ""
    return "known are " + ", ".join(map(repr, known[:20])) + more


def as_names(value: str | Iterable[str], what: str) -> tuple[str, ...]:
    """Return a tuple of names, given a single name or an iterable of names."""
    try:
        names = (value,) if isinstance(value, str) else tuple(value)
    except TypeError:
        raise TypeError(f"{what}: expected a name or names, got {value!r}") from None
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"{what}: expected names, got {name!r} among {few(map(repr, names))}")
    return names
