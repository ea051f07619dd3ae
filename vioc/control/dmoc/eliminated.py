"""States that are eliminated from a nonlinear program, such as momenta.

The functions return their values, derivatives and multipliers. See docs/maths/dmoc.md, "Positions only,
boundary momenta".
"""

from __future__ import annotations

import casadi as ca
import numpy as np

from vioc.control.dmoc.separable import FunctionBlock
from vioc.control.dmoc.stencil import Stencil
from vioc.control.dmoc.transcription import Transcription


def states(t: Transcription, i: int, w: np.ndarray, p: np.ndarray) -> np.ndarray:
    """Return all states (N+1, nx) of a phase, including the eliminated ones."""
    layout = t.layouts[i]
    x = np.where(layout.unknown, w[layout.X], 0.0)
    if layout.eliminated:
        x[1:, layout.eliminated] = _block(t, i).values(w, p)[1]
    return x


def state_changes(
    t: Transcription, i: int, w: np.ndarray, p: np.ndarray, dw: np.ndarray, dp: np.ndarray
) -> np.ndarray:
    """Return the linearized changes (N+1, nx, m) of a phase's states in m directions.
    In direction j, the variables w of the nonlinear program change by dw[:, j] and its parameters p by
    dp[:, j].
    """
    layout = t.layouts[i]
    dx = np.where(layout.unknown[..., None], dw[layout.X], 0.0)
    if layout.eliminated:
        block = _block(t, i)
        by_w, by_p = block.slopes(w, p, len(dw), len(dp))
        dx[1:, layout.eliminated] = (by_w @ dw + by_p @ dp).reshape(len(block), block.rows, -1)
    return dx


def multipliers(t: Transcription, w: np.ndarray, p: np.ndarray, mu: np.ndarray) -> list[np.ndarray]:
    """Return the multipliers of equations that eliminate states.
    These equations are not in the nonlinear program. There is one array (N, number of equations) for each
    phase.
    """
    total = np.zeros(t.given.size)
    if any(layout.eliminated for layout in t.layouts):
        for b, block in enumerate(t.program.blocks):
            total += block.slope_by_given(w, p, mu[t.program.rows_of(b)], t.given.size)
    return [-total[t.given.index(i, "delta")] for i in range(len(t.phases))]


def _block(t: Transcription, i: int) -> FunctionBlock:
    """Return the function that computes the eliminated states of phase i.
    It is evaluated at the samples 1 to N of the phase.
    """
    if i not in t.next_blocks:
        t.next_blocks[i] = _make_block(t, i)
    return t.next_blocks[i]


def _make_block(t: Transcription, i: int) -> FunctionBlock:
    layout, n = t.layouts[i], t.phases[i].steps
    stencil = Stencil(t)
    function = stencil.function(ca.SX(0), stencil.node(i).x[layout.eliminated])
    samples, none = np.arange(1, n + 1), np.zeros((n, len(layout.eliminated)))
    names = tuple(t.phases[i].map.state_names[j] for j in layout.eliminated)
    return FunctionBlock(
        function, stencil.index(samples), stencil.given_index(samples), names, samples, none, none, i
    )
