"""Derivatives of an optimum with respect to parameters, from the KKT conditions.

They follow from the implicit function theorem; see docs/maths/dmoc.md, "Sensitivity by parameters".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse as sp
from scipy.sparse.linalg import splu

from vioc.control.dmoc.eliminated import state_changes
from vioc.errors import OptimizationError

if TYPE_CHECKING:
    from vioc.control.dmoc.scaling import Scales
    from vioc.control.dmoc.transcription import Transcription

ACTIVE = 1e-6  # distance to a limit, over 1 + |limit| in units of sizes, below which it is active


@dataclass(frozen=True, repr=False)
class Sensitivity:
    """First derivatives of an optimal solution and of its cost.
    The derivatives are with respect to parameters of the map and to fixed components of the initial state.

    Attributes
    ----------
    names : tuple of str
        Variables of the derivatives: ``param.NAME``, and ``initial.STATE`` of the first phase if given.
    cost : (len(names),)
        Derivatives of the optimal cost.
    x, u, multipliers : tuple of (N+1, nx, len(names)), ...
        Derivatives of the trajectories, one array for each phase.
    length : tuple of (len(names),)
        Derivatives of the step length, zero if it is given.
    weakly_active : tuple of str
        Active limits without a multiplier: there the derivatives are one-sided.
    """

    names: tuple[str, ...]
    cost: np.ndarray
    x: tuple[np.ndarray, ...]
    u: tuple[np.ndarray, ...]
    multipliers: tuple[np.ndarray, ...]
    length: tuple[np.ndarray, ...]
    weakly_active: tuple[str, ...] = ()

    def __repr__(self) -> str:
        costs = ", ".join(f"{n} {c:.6g}" for n, c in zip(self.names, self.cost, strict=True))
        weak = f"; {len(self.weakly_active)} limits met without a multiplier" if self.weakly_active else ""
        return f"Sensitivity(of the cost: {costs or 'nothing declared or given'}{weak})"


def sensitivity(
    t: Transcription,
    w: np.ndarray,
    mu: np.ndarray,
    nu: np.ndarray,
    p: np.ndarray,
    limits: tuple[np.ndarray, np.ndarray],
    scales: Scales,
) -> Sensitivity:
    """Return the derivatives of an optimum, from its differentiated KKT conditions."""
    program = t.program
    g = np.asarray(program.values(w, p)[1]).ravel()
    J = program.jac_g(w, p)[1].sparse().tocsr()
    H = program.hess_lag(w, p, 1.0, mu).sparse().tocsr()
    H = H + sp.triu(H, 1).T
    of_w, of_g, price = scales
    bounded, weak_w = _active(w / of_w, limits[0] / of_w, limits[1] / of_w, nu * of_w / price)
    rows, weak_g = _active(g / of_g, t.row_lower / of_g, t.row_upper / of_g, mu * of_g / price)
    free = np.flatnonzero(~bounded)
    active = np.flatnonzero(rows)

    names, D = _parameters(t)
    L_p, L_wp, g_p = _by_given(t, w, p, mu)
    start = t.layouts[0].X[0][t.phases[0].fixed_start]
    names += tuple(
        f"initial.{n}"
        for n, fixed in zip(t.phases[0].map.state_names, t.phases[0].fixed_start, strict=True)
        if fixed
    )
    L_w = np.hstack([(L_wp @ D).toarray(), H[:, start].toarray()])
    g_t = np.hstack([(g_p @ D).toarray(), J[:, start].toarray()])
    cost = np.concatenate([L_p @ D, -nu[start]])

    JA = J[active][:, free]
    KKT = sp.bmat([[H[free][:, free], JA.T], [JA, None]], format="csc")
    try:
        change = splu(KKT).solve(-np.vstack([L_w[free], g_t[active]]))
    except RuntimeError:
        change = np.full((1, 1), np.nan)
    if not np.isfinite(change).all():
        raise OptimizationError(
            "sensitivity: the KKT matrix is singular: the optimum is not isolated, or active constraints "
            "depend on each other; give every input a weight, and drop redundant conditions"
        )
    dw = np.zeros((program.size, len(names)))
    dw[free] = change[: len(free)]
    dw[start, np.arange(len(names) - len(start), len(names))] = 1.0
    layouts, dp = t.layouts, np.hstack([D.toarray(), np.zeros((t.given.size, len(start)))])
    return Sensitivity(
        names,
        cost,
        tuple(state_changes(t, i, w, p, dw, dp) for i in range(len(layouts))),
        tuple(dw[a.U] for a in layouts),
        tuple(dw[a.L] for a in layouts),
        tuple(np.zeros(len(names)) if a.H is None else dw[a.H[0]] for a in layouts),
        tuple(
            n for names, weak in zip(t.names(), (weak_w, weak_g), strict=True) for n in np.array(names)[weak]
        ),
    )


def _active(value: np.ndarray, low: np.ndarray, high: np.ndarray, dual: np.ndarray):
    """Return two masks of active limits.
    The first marks equations and limits with a nonzero multiplier, the second limits with a zero multiplier.

    At a solution the distance to a limit or its multiplier is zero, up to the solver's tolerance. The
    multiplier counts as nonzero if it is larger than the distance.
    """
    slack, limit = value - low, np.abs(low)
    upper = (dual > 0) | ~np.isfinite(low)
    slack[upper], limit[upper] = (high - value)[upper], np.abs(high)[upper]
    met = np.isfinite(limit) & (slack <= ACTIVE * (1 + np.where(np.isfinite(limit), limit, 0.0)))
    pressed = np.abs(dual) > np.maximum(slack, ACTIVE * 1e-3)
    fixed = low == high
    return fixed | (met & pressed), met & ~pressed & ~fixed


def _parameters(t: Transcription) -> tuple[tuple[str, ...], sp.csr_matrix]:
    """Return the names ``param.NAME`` of the maps' declared parameters.
    The Jacobian of the program's parameter vector with respect to these parameters is returned, too.
    """
    names = list(dict.fromkeys(n for phase in t.phases for n in phase.map.parameters))
    D = sp.lil_matrix((t.given.size, len(names)))
    for i, phase in enumerate(t.phases):
        for index, name in zip(t.given.index(i, "theta"), phase.map.parameters, strict=True):
            D[index, names.index(name)] = 1.0
    return tuple(f"param.{n}" for n in names), D.tocsr()


def _by_given(t: Transcription, w: np.ndarray, p: np.ndarray, mu: np.ndarray):
    """Return derivatives with respect to the parameters p of the nonlinear program.
    They are the derivatives of the Lagrangian, of its gradient with respect to the variables w, and of the
    constraints.
    """
    program = t.program
    L_p = np.zeros(t.given.size)
    shape = (program.size, t.given.size), (program.rows, t.given.size)
    L_wp, g_p = (sp.csr_matrix(s) for s in shape)
    for i, block in enumerate(program.blocks):
        n, places = len(block), program.rows_of(i)
        weights = mu[places].T if block.rows else np.zeros((0, n))
        scale = np.full((1, n), float(block.has_cost))
        f = block.by_given
        values = f.map(n)(w[block.index].T, p[block.given].T, scale, weights)
        entries = []
        for j, value in enumerate(values):
            r, c = (np.array(a, int) for a in f.sparsity_out(j).get_triplet())
            entries.append((np.array(value.nonzeros()), r, c))
        numbers, _, c = entries[0]
        np.add.at(L_p, block.given[:, c].ravel(), numbers)
        numbers, r, c = entries[1]
        L_wp += sp.csr_matrix((numbers, (block.index[:, r].ravel(), block.given[:, c].ravel())), shape[0])
        numbers, r, c = entries[2]
        if block.rows:
            g_p += sp.csr_matrix((numbers, (places[:, r].ravel(), block.given[:, c].ravel())), shape[1])
    return L_p, L_wp, g_p
