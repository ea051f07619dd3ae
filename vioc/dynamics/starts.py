"""Initial states and inputs of a mechanism from settings by name, such as ``v.theta=1``.

Inputs have the prefix u, as in u.force=2.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from vioc.dynamics.consistency import consistent_configuration, project_velocity
from vioc.dynamics.integrators.mechanical import MechanicalMap
from vioc.dynamics.lagrangian import Lagrangian
from vioc.errors import ConstraintError, ModelError
from vioc.names import INPUTS, meaning

if TYPE_CHECKING:
    from vioc.dynamics.consistency import ConstraintReport
    from vioc.dynamics.integrators.maximal import MaximalVI

ATTEMPTS = (0.1, 0.3, 1.0, 3.0)  # rad and m: distances of further guesses from a guess that fails


class Start(NamedTuple):
    """Initial state (nx,), input (nu,), and a report on the constraints, None without constraints."""

    x: np.ndarray
    u: np.ndarray
    found: ConstraintReport | None


Settings = Sequence[tuple[str, float]]


def start(f: MechanicalMap | MaximalVI, settings: Settings, guesses: Settings = ()) -> Start:
    """Return an initial state and an input, given values of variables, velocities and inputs by name.

    Names are those of variables (``theta``), velocities (``v.theta``) and inputs (``u.force``). Kinematic
    variables keep their initial values. If there are constraints, they determine the variables that are not
    set, from the guesses, and velocities are projected.
    """
    system = f.system
    names_by_prefix = {"": system.variables, "v.": system.variables, INPUTS: f.input_names}
    values = _settings("--set", settings, [p + n for p, names in names_by_prefix.items() for n in names])
    groups = {
        p: {n: values[p + n] for n in names if p + n in values}
        for p, names in names_by_prefix.items()
    }  # fmt: skip
    guess = _settings("--guess", guesses, system.dynamic if system.constraints else ())
    both = sorted(set(guess) & set(values))
    if both:
        raise ModelError(f"--guess: {both[0]!r} is fixed by --set; give one of them")
    q: Any = groups[""]
    v: Any = groups["v."]
    report = None
    if system.constraints:
        lag = f.lagrangian if isinstance(f, MechanicalMap) else Lagrangian(system)
        report = _consistent(lag, q, guess)
        q, v = report.q, project_velocity(lag, report.q, v)
    hold = {f"rho.{n}": groups[""].get(n, 0.0) for n in system.kinematic}
    return Start(f.initial_state(q, v), f.input({**hold, **groups[INPUTS]}), report)


def _settings(option: str, settings: Settings, names: Sequence[str]) -> dict[str, float]:
    result: dict[str, float] = {}
    for name, value in settings:
        if option == "--guess" and not names:
            raise ModelError("--guess: the model has no constraints to solve; use --set")
        name = meaning(name, names, option)
        if name in result:
            raise ModelError(f"{option}: {name!r} is given twice, {result[name]:g} and {value:g}")
        result[name] = value
    return result


def _consistent(lag: Lagrangian, fixed: dict[str, float], guess: dict[str, float]) -> ConstraintReport:
    """Find a configuration that satisfies the constraints, near a guess.
    If the search from the guess fails, it is repeated from random configurations around the guess.
    """
    system = lag.system
    try:
        return consistent_configuration(lag, {**guess, **fixed}, fixed=fixed)
    except ConstraintError as error:
        reason = error
    random = np.random.default_rng(0)
    loose = [n for n in system.dynamic if n not in fixed]
    for distance in np.repeat(ATTEMPTS, 5):
        displacements = dict(zip(loose, distance * random.standard_normal(len(loose)), strict=True))
        nearby = {n: guess.get(n, 0.0) + d for n, d in displacements.items()}
        try:
            return consistent_configuration(lag, {**nearby, **fixed}, fixed=fixed)
        except ConstraintError:
            continue
    text = ", ".join(f"{n}={value:g}" for n, value in {**guess, **fixed}.items()) or "zero"
    unset = [n for n in system.kinematic if n not in fixed]
    zero = f"; kinematic variables are 0 where not set, as {unset[0]} is" if unset else ""
    raise ConstraintError(
        f"no consistent start found from {text}, nor from {5 * len(ATTEMPTS)} guesses around it; "
        f"try --set NAME=VALUE or --guess NAME=VALUE{zero} ({reason})"
    )
