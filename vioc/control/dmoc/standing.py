"""Detection of limits that force contact gaps to be too small.
In a small gap, a smoothed contact repels the body that rests on it.

See docs/maths/contact_implicit.md, (7).
"""

from __future__ import annotations

import casadi as ca
import numpy as np

from vioc.control.dmoc.phase import Phase
from vioc.control.dmoc.transcription import Transcription

MOST = 1.5  # total force of the limited contacts, over the weight, above which nothing can rest on them
SHARE = 0.1  # force of a contact, over the weight, above which it is named
TRIALS, SAME = 3, 1e-9  # random states at which constraint and gap must differ by a constant; tolerance, m
ENTERS = 1e-6  # m; where limits force more penetration, room does not help


def too_close(t: Transcription, smoothing: float, pull: float) -> str:
    """Return a warning if limits force contact gaps to be too small, else "".
    In a small gap, a contact with this `smoothing` repels a body, so that the body cannot rest. The contact
    force is compared with the weight; `pull` is the acceleration of gravity, m/s^2.

    If a gap is at most rho, the impulse of the contact in a step is at least smoothing m h/(rho + give), with
    the mass m, the step length h and the offset `give` that is added to gaps.
    """
    for i, phase in enumerate(t.phases):
        step = phase.equations.relaxed
        if step is None:
            continue
        names = [n for n in step.contacts if phase.map.unit(f"gap.{n}") == "m"]
        if not names:
            continue
        rooms = _rooms(phase, names)
        rooms[0] = np.inf  # gaps of the first sample belong to the step before it
        with np.errstate(divide="ignore"):  # division by 0 if there is neither room nor give
            push = smoothing / (rooms + t.contacts(i, smoothing, pull)[1]) / pull
        k = int(push.sum(axis=1).argmax())
        if not push[k].sum() > MOST:
            continue
        near = np.flatnonzero(push[k] > SHARE)
        more = f" and {len(near) - 5} more" if len(near) > 5 else ""
        where = f" of {phase.name or f'phase {i}'}" * (len(t.phases) > 1)
        room = (len(near) - 1) * smoothing / pull
        return (
            f"gaps of {', '.join(names[j] for j in near[:5])}{more} are limited to at most "
            f"{rooms[k, near].max():.2g} m at sample {k}{where}, where contacts with a smoothing of "
            f"{smoothing:.2g} m^2/s^2 push with {push[k].sum():.2g} times the weight, so nothing can rest: "
            f"give them {room:.2g} m of room, or begin at a narrower smoothing="
        )
    return ""


def _rooms(phase: Phase, names: list[str]) -> np.ndarray:
    """Return the largest contact gaps in m that the limits of a phase allow.
    The shape is (N+1, number of contacts); a gap that is not limited is inf.

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
    rooms = np.full((phase.steps + 1, len(names)), np.inf)
    for k in np.flatnonzero((given[:, None] | ~dependence).all(axis=2).any(axis=1)):
        value, slopes = (np.array(a) for a in both(middle[k], f.theta))
        known = (given[k] | ~dependence).all(axis=1)
        rooms[k, known] = (value[:, 0] + np.abs(slopes) @ half[k])[known]
    trials = np.random.default_rng(0).normal(size=(TRIALS, f.nx))
    for c in phase.rows:
        if c.by_step(f) or c.references:
            continue
        row = ca.Function("row", [x, theta], [c.expression])
        upper = phase.row_limits(c)[1]
        samples = {"start": slice(0, 1), "end": slice(-1, None), "path": slice(None)}[c.where]
        differences = [np.array(row(a, f.theta)) - np.array(both(a, f.theta)[0]).T for a in trials]  # (m, n)
        for r, j in zip(*np.nonzero(np.ptp(differences, axis=0) < SAME), strict=True):
            rooms[samples, j] = np.minimum(rooms[samples, j], upper[:, r] - differences[0][r, j])
    return np.where(rooms < -ENTERS, np.inf, np.maximum(rooms, 0.0))
