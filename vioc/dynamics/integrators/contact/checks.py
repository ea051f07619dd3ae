"""What is checked of a start: that it is open, and that friction has coefficients > 0."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from vioc.dynamics.integrators.contact.look import DEEP
from vioc.dynamics.integrators.contact.polytopes import PLACES
from vioc.errors import ConstraintError, ModelError

if TYPE_CHECKING:
    from vioc.dynamics.integrators.contact.map import ContactVI

PENETRATION = 1e-6  # m or rad, of a start


def check_apart(f: ContactVI, X: np.ndarray, k: int) -> None:
    """Refuse to start, in states X (N, nx) at the steps from k on, where bodies overlap, or joints are beyond
    their limits; and a parameter mu <= 0.
    """
    mu, touches = np.ravel(f.touches.friction(f.theta)), f.touches.all
    if not mu.min() > 0:
        raise ModelError(
            f"{f.system.name}: the coefficient of friction of {touches[int(np.argmin(mu))].name} is "
            f"{mu.min():g}, expected > 0 where it is a parameter"
        )
    gaps, accepted = f.gaps(X), np.full(len(touches), PENETRATION)
    accepted[f.placed] = DEEP * np.repeat(f.touches.polytopes.features.smaller, PLACES)
    over = np.flatnonzero(~(gaps + accepted >= 0).all(axis=1))
    if not len(over):
        return
    row = gaps[over[0]]
    worst = int(np.argmin(row + accepted))
    name, others = touches[worst].name, int((row < -accepted).sum()) - 1
    unit = f.unit(f"gap.{name}")
    raise ConstraintError(
        f"{f.system.name}: step {k + int(over[0])} starts in penetration, or beyond a limit: the gap "
        f"of {name} is {row[worst]:.3g} {unit}, expected >= 0 (-{accepted[worst]:.3g} {unit} is accepted)"
        + f", and {others} more are" * bool(others)
        + "; move the start"
    )
