"""Smooth equations and bounds of a step with contact, for use in optimal control."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import casadi as ca
import numpy as np

from vioc.compile.evaluate import Evaluator
from vioc.maps.derivatives import Steps


@dataclass(frozen=True)
class RelaxedStep:
    """Smoothed equations and bounds of a step with contact.

    The unknowns w are the variables of the friction cones. The product of every gap velocity and its impulse,
    and the similar products of friction, are not zero: they equal a barrier parameter that is proportional to
    the smoothing. With a large smoothing, contacts act at a distance; as it decreases, the step becomes the
    map's own step.

    Attributes
    ----------
    function : casadi.Function
        (x, u, x_next, w, t, dt, parameters, smoothing, give) -> residual. It is zero for the step of the map
        with this smoothing (m^2/s^2) and with gaps that are larger by `give` (m).
    rows, unknowns : tuple of str
        Names of the nx + nw components of the residual, and of w.
    lower, upper : (nw,)
        Bounds of w, which keep it in its cones.
    multipliers : casadi.Function
        (w, dt, parameters) -> the map's multipliers (nm,).
    start : callable
        (Steps, smoothing) -> w (N, nw), a first guess within the bounds, near the central path of that
        smoothing. States and inputs of the `Steps` need not fulfil the dynamics.
    smoothing : float
        Smoothing of the map.
    contacts : tuple of str
        Names of contacts in the quantities ``gap.NAME`` and ``force.NAME``.
    row_units, units : tuple of str
        SI units of the components of the residual and of w, "" if not stated.
    """

    function: ca.Function
    rows: tuple[str, ...]
    unknowns: tuple[str, ...]
    lower: np.ndarray
    upper: np.ndarray
    multipliers: ca.Function
    start: Callable[[Steps, float], np.ndarray]
    smoothing: float
    contacts: tuple[str, ...]
    row_units: tuple[str, ...]
    units: tuple[str, ...]


def relaxed_step(
    args: Sequence[ca.SX],
    rows: Sequence[tuple[str, ca.SX, str]],
    unknowns: Sequence[tuple[str, float, str]],
    multipliers: ca.SX,
    guess: ca.SX,
    contacts: Sequence[str],
) -> Callable[[np.ndarray, float], RelaxedStep]:
    """Return a function that builds the smoothed equations of a step with contact.
    The arguments of the returned function are the map's parameter values and the smoothing parameter; it
    returns a `RelaxedStep`.

    Parameters
    ----------
    args : symbols x, u, x_next, w, t, dt, parameters, smoothing, give
    rows : names, expressions and SI units of the residual's components
    unknowns : names, lower bounds and SI units of the unknowns w
    multipliers : (nm,), expression in w, dt and parameters
    guess : (nw,), expression of a first guess of w, in all symbols but w
    contacts : names of the contacts
    """
    x, u, x1, w, t, dt, theta, smoothing, give = args
    value = ca.densify(ca.vertcat(*(row for _, row, _ in rows)))
    function = ca.Function("relaxed", [*args], [value])
    known = ca.Function("multipliers", [w, dt, theta], [ca.densify(multipliers)])
    given = [x, u, x1, t, dt, theta, smoothing]
    begin = Evaluator(ca.Function("start", given, [ca.densify(ca.substitute(guess, give, 0))]))
    names, lower = (tuple(n for n, *_ in unknowns), np.array([low for _, low, _ in unknowns]))
    units = tuple(tuple(unit for *_, unit in each) for each in (rows, unknowns))

    def start(values: np.ndarray, steps: Steps, smoothing: float) -> np.ndarray:
        when = steps.t[:, None], steps.h[:, None]
        return begin(steps.x0, steps.u, steps.x1, *when, values, np.array([smoothing]))[0][..., 0]

    def step(values: np.ndarray, smoothing: float) -> RelaxedStep:
        first_guess, contact_names = partial(start, values), tuple(contacts)
        titles, upper = tuple(n for n, *_ in rows), np.full(len(lower), np.inf)
        return RelaxedStep(
            function, titles, names, lower, upper, known, first_guess, smoothing, contact_names, *units
        )

    return step
