"""Detection of limits of contact gaps that limit contact forces too much.
In a small gap, a smoothed contact repels the body that rests on it. In a gap that cannot become smaller, a
smoothed contact cannot stop a body that lands.

See docs/maths/contact_implicit.md, (7).
"""

from __future__ import annotations

import casadi as ca
import numpy as np

from vioc.control.dmoc.phase import Phase
from vioc.control.dmoc.transcription import Transcription

MOST = 1.5  # total force of the limited contacts, over the weight, above which nothing can rest on them
SHARE = 0.1  # force of a contact, over the weight, above which it is named
# random states at which constraint and gap must differ by a constant, and the tolerance of the constant,
# relative to the sum of their magnitudes
TRIALS, SAME = 3, 1e-9
# penetration over the height at which bodies hover with the first smoothing; where limits force more, room
# does not help
ENTERS = 1e-5


def too_close(t: Transcription, smoothing: float, pull: float, first: float) -> str:
    """Return a warning if limits of gaps limit contact forces too much, else "".
    In a small gap, a contact with this `smoothing` repels a body, so that the body cannot rest. In a gap that
    cannot become smaller, it cannot stop a body. The contact force is compared with the weight; `pull` is the
    acceleration of gravity, m/s^2. `first` is the first smoothing: gaps that may be wider than bodies hover
    with it need no contact.

    If a gap is between rho_0 and rho, the impulse of the contact in a step is between smoothing m h/(rho +
    give) and smoothing m h/(rho_0 + give), with the mass m, the step length h and the offset `give` that is
    added to gaps.
    """
    for i, phase in enumerate(t.phases):
        step = phase.equations.relaxed
        if step is None:
            continue
        names = [n for n in step.contacts if phase.map.unit(f"gap.{n}") == "m"]
        if not names:
            continue
        lower, upper = _gaps(phase, names, ENTERS * first / pull)
        give = t.contacts(i, smoothing, pull)[1]
        with np.errstate(divide="ignore"):  # division by 0 if there is neither room nor give
            least, most = (smoothing / np.maximum(rooms + give, 0.0) / pull for rooms in (upper, lower))
        of_phase = f" of {phase.name or f'phase {i}'}" * (len(t.phases) > 1)
        k = int(least.sum(axis=1).argmax())
        near = np.flatnonzero(least[k] > SHARE)
        if least[k].sum() > MOST:
            room = (len(near) - 1) * smoothing / pull
            return (
                f"gaps of {_listed(names, near)} are limited to at most {upper[k, near].max():.2g} m at "
                f"sample {k}{of_phase}, where contacts with a smoothing of {smoothing:.2g} m^2/s^2 push with "
                f"{least[k].sum():.2g} times the weight, so nothing can rest: give them {room:.2g} m of "
                "room, or begin at a narrower smoothing="
            )
        held = (upper <= first / pull) & (most < MOST)
        if held.any():
            k = int(held.any(axis=1).argmax())
            few = _listed(names, np.flatnonzero(held[k]))
            return (
                f"gaps of {few} are limited to at least {lower[k, held[k]].max():.2g} m at sample "
                f"{k}{of_phase}, where a contact with a smoothing of {smoothing:.2g} m^2/s^2 pushes with at "
                f"most {most[k, held[k]].max():.2g} times the weight, so nothing can land: allow smaller "
                "gaps, also below 0, e.g. by a tolerance on both sides"
            )
    return ""


def _listed(names: list[str], indices: np.ndarray) -> str:
    """Return the names at the given indices as a text, at most five of them."""
    more = f" and {len(indices) - 5} more" if len(indices) > 5 else ""
    return ", ".join(names[j] for j in indices[:5]) + more


def _gaps(phase: Phase, names: list[str], enters: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the smallest and largest contact gaps in m that limits allow.
    The shapes are (N+1, number of contacts); a gap that is not limited is -inf or inf. Gaps of the first
    sample are not limited, since they belong to the step before it, nor are gaps that limits force to be a
    penetration of more than `enters`, m.

    The limits are those of states, and those of constraints whose expression differs from a gap by a
    constant.
    """
    f = phase.map
    gaps = ca.vertcat(*(f.quantity(f"gap.{n}") for n in names))
    x, theta = f.symbols.x, f.symbols.parameters
    both = ca.Function("gaps", [x, theta], [gaps, ca.densify(ca.jacobian(gaps, x))])
    low, high = phase.state_limits
    given = np.isfinite(high - low)
    middle = np.where(given, 0.5 * (np.where(given, low, 0) + np.where(given, high, 0)), 0.0)
    half = np.where(given, 0.5 * (high - low), 0.0)
    dependence = np.array([ca.which_depends(g, x, 1, False) for g in ca.vertsplit(gaps)], bool)
    lower, upper = (np.full((phase.steps + 1, len(names)), value) for value in (-np.inf, np.inf))
    for k in np.flatnonzero((given[:, None] | ~dependence).all(axis=2).any(axis=1)):
        value, slopes = (np.array(a) for a in both(middle[k], f.theta))
        known = (given[k] | ~dependence).all(axis=1)
        reach = np.abs(slopes) @ half[k]
        lower[k, known], upper[k, known] = (value[:, 0] - reach)[known], (value[:, 0] + reach)[known]
    trials = np.random.default_rng(0).normal(size=(TRIALS, f.nx))
    for c in phase.rows:
        if c.by_step(f) or c.references:
            continue
        row = ca.Function("row", [x, theta], [c.expression])
        least, most = phase.row_limits(c)
        samples = {"start": slice(0, 1), "end": slice(-1, None), "path": slice(None)}[c.where]
        values = (
            np.array([row(a, f.theta) for a in trials]),
            np.array([both(a, f.theta)[0].T for a in trials]),
        )
        differences = values[0] - values[1]  # (trials, rows, contacts)
        size = np.abs(values[0]).max(axis=0) + np.abs(values[1]).max(axis=0)
        for r, j in zip(*np.nonzero(np.ptp(differences, axis=0) <= SAME * size), strict=True):
            shift = differences[0][r, j]
            lower[samples, j] = np.maximum(lower[samples, j], least[:, r] - shift)
            upper[samples, j] = np.minimum(upper[samples, j], most[:, r] - shift)
    inside = upper < -enters
    lower[inside], upper[inside] = -np.inf, np.inf
    lower[0], upper[0] = -np.inf, np.inf
    return lower, np.maximum(upper, 0.0)
