"""Sensitivity of a static equilibrium to prescribed variables and parameters.

Maths: docs/maths/cables.md. Used for shape control and co-design.
"""

from __future__ import annotations

from collections.abc import Iterable

import casadi as ca
import numpy as np

from vioc.cables.statics import StaticEquilibrium, balance
from vioc.checks import as_names, near_misses
from vioc.compile.evaluate import Evaluator
from vioc.dynamics.lagrangian import Lagrangian
from vioc.errors import ModelError

SINGULAR = 1e-12  # reciprocal condition number, with scaled rows, below which equations are singular


def static_sensitivity(equilibrium: StaticEquilibrium, by: str | Iterable[str]) -> dict[str, np.ndarray]:
    """Return derivatives of an equilibrium configuration with respect to `by`.
    The argument `by` has the names of prescribed variables or parameters.

    Parameters
    ----------
    equilibrium : StaticEquilibrium
        Equilibrium of `static_equilibrium`, with its parameters.
    by : name or names
        Declared parameters; or variables that the search for the equilibrium fixed (kinematic ones, and those
        in its `fixed`). A dynamic variable named here is also treated as fixed, all others as free.

    Returns
    -------
    dict of (nq,)
        Derivatives by name, in the order of ``system.variables``; the entry of the variable itself is 1.

    Raises
    ------
    ModelError
        If a name is neither a variable nor a parameter, or the equilibrium is not isolated.
    """
    if not isinstance(equilibrium, StaticEquilibrium):
        raise ModelError(f"expected the result of static_equilibrium, got {type(equilibrium).__name__}")
    names, system = as_names(by, "by"), equilibrium.system
    known = (*system.variables, *system.parameters)
    for name in names:
        if name not in known:
            raise ModelError(f"{system.name}: no variable or parameter {name!r}; {near_misses(name, known)}")
    lag = Lagrangian(system)
    g, nq = lag.graph, lag.nq
    free = [i for i, n in enumerate(system.dynamic) if n not in {*names, *equilibrium.held}]
    lam, d = ca.SX.sym("lambda", lag.h.numel()), ca.SX.sym("d", nq + len(system.parameters))
    if not free and not lam.numel():  # no equations: nothing else moves
        return {name: np.array([float(v == name) for v in system.variables]) for name in names}
    rows = ca.vertcat(balance(lag, lam)[free], lag.h)
    along = ca.jtimes(rows, g.q_vector, d[:nq]) + ca.jtimes(rows, g.parameters, d[nq:])
    # one directional derivative, evaluated for each variable, as in `Statics`
    args = [g.q_vector, g.v_vector, g.parameters, lam, d]
    slopes = Evaluator(ca.Function("along", args, [ca.densify(along), lag.Dh[:, free]]))
    directions = np.eye(d.numel())[[*free, *(known.index(name) for name in names)]]
    theta = np.array(list(equilibrium.parameters.values()), float)
    columns, J = slopes(equilibrium.q, np.zeros(nq), theta, equilibrium.multipliers, directions)
    columns, J = columns[..., 0], J[0] if J.ndim == 3 else J
    n, m = len(free), lam.numel()
    K = np.zeros((n + m, n + m))
    K[:, :n], K[:n, n:] = columns[:n].T, J.T
    scale = np.abs(K).max(axis=1, initial=1e-300)[:, None]
    if not np.linalg.cond(K / scale) < 1 / SINGULAR:
        raise ModelError(
            f"{system.name}: the equilibrium is not isolated, or constraints are dependent there; expected "
            "one minimum of the energy for each value of what is prescribed"
        )
    moved = np.linalg.solve(K, -columns[n:].T)
    result = {}
    for name, column in zip(names, moved.T, strict=True):
        result[name] = row = np.zeros(nq)
        row[free] = column[:n]
        if name in system.variables:
            row[system.variables.index(name)] = 1.0
    return result
