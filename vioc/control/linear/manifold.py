"""Tangent spaces of the states of constrained mechanisms.
The tangent space at a state contains the small changes of the state that satisfy the linearized constraints.

Let x = [q, p] be a state of a variational integrator with constraints h(q) = 0. No motion has errors dq that
violate the constraints. Other errors have no effect on the future: errors dp in the range of Dh', which the
next constraint impulse absorbs, and rates of prescribed configurations. The remaining errors are the tangent
space of the reduced phase space, and the linearization maps these spaces to each other exactly. Idle
directions are errors that a step does not use. Regulators and filters keep them, since a cost or a
measurement may depend on them. Maths: docs/maths/feedback.md.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import casadi as ca
import numpy as np

from vioc.checks import as_floats, check_array
from vioc.compile.evaluate import Evaluator
from vioc.control.linear.tangent import error_jacobian
from vioc.maps.made.around import MapAround
from vioc.maps.made.switched import SwitchedMap
from vioc.maps.protocol import OneStepMap
from vioc.runs.given import trajectory_of
from vioc.runs.trajectory import Trajectory

RANK = 1e-9  # smaller singular values count as zero, for conditions of norm one


def one_manifold(f: OneStepMap) -> bool:
    """Return True if tangent spaces of a map's constraint manifold can be computed.
    This requires that all states of the map satisfy the same constraints, and that velocity constraints can
    be derived from the equations of a step. Phases with different constraints, for example, give False.
    """
    if isinstance(f, SwitchedMap):
        return len({frozenset(g.multiplier_names) for g in f.maps}) == 1 and all(map(one_manifold, f.maps))
    if isinstance(f, MapAround) and not one_manifold(f.inner):
        return False
    return not f.mechanism.velocity_constraints or f.ndx != f.nx or bool(_momenta(f) and _equations(f))


def has_manifold(f: OneStepMap) -> bool:
    """Return True if linearizations of a map use its constraint manifold by default.
    They do if the map has constraints and the tangent spaces of its constraint manifold can be computed.
    Changes of the state are then restricted to these tangent spaces.
    """
    return bool(f.multiplier_names) and one_manifold(f)


def tangent_basis(f: OneStepMap, x: Any, *, idle: bool = False) -> np.ndarray:
    """Return an orthonormal basis of the changes of a state that constraints allow.
    Changes without effect on the future motion are excluded, too. The basis spans the reduced tangent space
    at x.

    Parameters
    ----------
    f : OneStepMap
        The map's constraints are its quantities ``h.NAME`` with the names of multipliers; a state ``p.NAME``
        beside a state ``NAME`` is the momentum of a dynamic configuration, ``v.NAME`` its rate. If errors are
        not differences of states, errors without effect on the future are the kernel of A among the errors
        that satisfy the constraints.
    x : (nx,)
        State with h(x) = 0.
    idle : bool
        True to keep idle directions, too. Nothing in a step depends on them, not even a multiplier. Examples
        are the rates of prescribed configurations: a step computes them, no step uses them, but a weight may
        depend on them.

    Returns
    -------
    T : (ndx, r)
        A consistent error is dx = T z, and z = T' dx are its coordinates: T' also removes errors without
        effect on the future. Idle directions are the last columns. T is the identity for a map without
        constraints and idle states.

    Raises
    ------
    ValueError
        If x has the wrong shape, or the map has no single manifold (`one_manifold`).
    StepError
        If ndx != nx and the map has no step from x.

    Notes
    -----
    T' T = I, Dh(q) dq = 0 and dp is orthogonal to the range of Dh'. The dimension is r = 2 (number of dynamic
    configurations - rank of Dh) + number of prescribed configurations.
    """
    x = f.check_state(x)
    return _bases(f, x[None], idle)[0]


def tangent_bases(f: OneStepMap, trajectory: Trajectory, *, idle: bool = False) -> np.ndarray:
    """Return bases of the state changes that constraints allow, along a trajectory.
    Each basis spans the space of `tangent_basis` at one state. It is rotated so that it changes little from k
    to k + 1.

    Returns
    -------
    (N+1, ndx, r)

    Raises
    ------
    ValueError
        As `tangent_basis`; or if the constraints' rank changes along the trajectory; the message names the
        sample.
    """
    trajectory = trajectory_of(trajectory)
    X = check_array(trajectory.x, (len(trajectory) + 1, f.nx), "trajectory", f.state_names)
    return _bases(f, X, idle)


def restrict(A: np.ndarray, B: np.ndarray, T: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Project the matrices A and B of a linearization to tangent spaces.
    Return T[k+1]' A[k] T[k] and T[k+1]' B[k], the matrices for the coordinates z = T' dx. Each matrix in T is
    a basis of the changes of a state that the constraints allow.

    Parameters
    ----------
    A, B : (N, ndx, ndx), (N, ndx, nu), or without the leading axis
    T : (N+1, ndx, r), or (ndx, r)

    Returns
    -------
    (N, r, r), (N, r, nu), or without the leading axis
    """
    A, B, T = as_floats(A, "A"), as_floats(B, "B"), as_floats(T, "T")
    lead, n = A.shape[:-2], A.shape[-1]
    expected = (lead[0] + 1, n) if lead else (n,)
    if B.shape[:-1] != A.shape[:-1] or T.shape[:-1] != expected:
        raise ValueError(
            f"expected A (N, n, n), B (N, n, m) and bases (N+1, n, r), got {A.shape}, {B.shape}, {T.shape}"
        )
    before, after = (T[:-1], T[1:]) if lead else (T, T)
    after = np.swapaxes(after, -1, -2)
    return after @ A @ before, after @ B


def _bases(f: OneStepMap, X: np.ndarray, idle: bool) -> np.ndarray:
    if not one_manifold(f):
        raise ValueError(
            f"{f!r}: its phases, or its constraints on velocities, leave no one constraint manifold that is "
            "known; take the full state, manifold=False"
        )
    theta = f.theta
    values: np.ndarray | list[np.ndarray]
    if f.ndx == f.nx:
        evaluate, pattern = _conditions(f)
        values, groups = evaluate(X, theta)[0], _groups(pattern, f.nx)
        kernels = [np.eye(f.nx)[:, _idle(f)]] * len(X)
    else:
        (values, kernels), groups = _unseen(f, X, theta), None
    if values[0].shape[0] == 0:
        return np.tile(np.eye(f.ndx), (len(X), 1, 1))
    bases: list[np.ndarray] = []
    for k, C in enumerate(values):
        T = _null_space(C, groups)
        r = T.shape[1]
        if idle:
            T = np.concatenate([T, kernels[k]], axis=1)
        if bases:
            if T.shape != bases[0].shape:
                raise ValueError(
                    f"sample {k}: {T.shape[1]} directions are free, {bases[0].shape[1]} at sample 0: "
                    "constraints become dependent there"
                )
            U, _, V = np.linalg.svd(T[:, :r].T @ bases[-1][:, :r])
            T[:, :r] = T[:, :r] @ (U @ V)  # the basis of this space nearest to the previous one
        bases.append(T)
    return np.stack(bases)


def _unseen(f: OneStepMap, X: np.ndarray, theta: np.ndarray) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Return matrices C and bases of idle directions, each for one of the states X.
    The argument theta has the values of the map's parameters.

    The null space of C (c, ndx) contains the errors of the state that satisfy the linearized constraints and
    have an effect on the future motion. The rows of C are the derivatives of the constraints, and a basis of
    the errors that satisfy the constraints and that the linearization A maps to 0. The idle directions are
    combinations of these basis vectors that change no multiplier and that no constraint excludes.
    """
    G = _error_constraints(f)(np.ascontiguousarray(X), theta)[0]
    lin = f.derivatives.linearize(f.steps_at(X, np.array([f.rest_input(x) for x in X])))
    rows, idle = [], []
    for g, a, c in zip(G, lin.A, lin.C, strict=True):
        N = _null_space(g, None)  # a step may map an error off the constraints to an error of the velocity
        _, size, V = np.linalg.svd(a @ N)
        kernel = V[size <= RANK * size[0]] @ N.T
        rows.append(np.concatenate([g, kernel]))
        conditions = np.concatenate([m / max(np.linalg.norm(m, 2), 1e-300) for m in (g, c) if m.size] or [g])
        _, size, V = np.linalg.svd(conditions @ kernel.T)
        idle.append(kernel.T @ V[(size > RANK).sum() :].T)
    return rows, idle


@lru_cache(maxsize=4)
def _error_constraints(f: OneStepMap) -> Evaluator:
    """Return a function that computes the constraints' Jacobian (m, ndx) at a state.
    Its arguments are (x, parameters). Derivatives are with respect to the error of the state.
    """
    jacobian = error_jacobian(f, ca.vertcat(ca.SX(0, 1), *constraint_expressions(f)))
    return Evaluator(ca.Function("G", [f.symbols.x, f.symbols.parameters], [ca.densify(jacobian)]))


def constraint_expressions(f: OneStepMap) -> list[ca.SX]:
    """Return the expressions of the constraints that have multipliers in the map.

    Maps with velocities as states keep only the rate of a constraint.
    """
    return [h for name in f.multiplier_names if (h := _constraint(f, name)) is not None]


def _constraint(f: OneStepMap, name: str) -> ca.SX | None:
    """Return the expression of the constraint with a given multiplier.
    Return None if there is no such constraint.
    """
    full = "h." + name
    return f.quantity(full) if full in f.quantities.names() else None


@lru_cache(maxsize=4)
def _conditions(f: OneStepMap) -> tuple[Evaluator, ca.Sparsity]:
    """Return a function that computes a matrix C for a state, and the sparsity of C.
    The function is (x, parameters) -> C (c, nx). The null space of C contains the changes of the state that
    satisfy the linearized constraints, except for those without effect on the future motion.
    """
    x, names = f.symbols.x, f.state_names
    moments = _momenta(f)
    rates = {n[2:]: i for i, n in enumerate(names) if n.startswith("v.") and n[2:] in names}
    rows = []
    for name in f.multiplier_names:
        h = _constraint(f, name)
        if h is None:
            continue
        gradient = ca.jacobian(h, x)
        rows.append(gradient)
        if moments:  # the next constraint impulse absorbs dp in the range of Dh'
            rows.append(ca.SX(1, f.nx))
            for n, i in moments.items():
                rows[-1][0, i] = gradient[0, names.index(n)]
        elif rates:  # a map with velocities as states preserves dh/dt as well
            rate = sum((gradient[0, names.index(n)] * x[i] for n, i in rates.items()), ca.SX(0))
            rows.append(ca.jacobian(rate, x))
    rows += _absorbed(f, list(moments.values()))
    rows += [ca.SX(ca.DM.eye(f.nx)[i, :]) for i in _idle(f)]
    matrix = ca.sparsify(ca.vertcat(*rows)) if rows else ca.SX(0, f.nx)
    function = ca.Function("conditions", [x, f.symbols.parameters], [matrix])
    return Evaluator(function), matrix.sparsity()


def _momenta(f: OneStepMap) -> dict[str, int]:
    """Return a dict from names of joint variables to indices of their momenta in x.
    The vector x is the state.
    """
    names = f.state_names
    return {n[2:]: i for i, n in enumerate(names) if n.startswith("p.") and n[2:] in names}


def _equations(f: OneStepMap) -> ca.Function | None:
    """Return the equations of a step if they are an SX function, else None."""
    return f.residual if f.residual is not None and f.residual.is_a("SXFunction") else None


def _absorbed(f: OneStepMap, moments: list[int]) -> list[ca.SX]:
    """Return linear equations that exclude some changes of the momenta.
    The impulses of velocity constraints in the next step cancel these changes, so that they do not affect the
    motion. The argument `moments` has the indices of the momenta in the state.

    Each equation is a row (1, nx) that contains a row of the matrix A of the velocity constraints A(q) dq =
    0. The step's equations yield A, since they contain the momenta p and the impulses as a sum.
    """
    residual = _equations(f)
    if not f.mechanism.velocity_constraints or residual is None:
        return []
    args = residual.sx_in()
    equations = residual(*args)
    columns = [f.multiplier_names.index(n) for n in f.mechanism.velocity_constraints]
    added = ca.jacobian(equations, args[0])[:, moments].T @ ca.jacobian(equations, args[3])[:, columns]
    rows = ca.SX(len(columns), f.nx)
    rows[:, moments] = added.T
    function = ca.Function("absorbed", args, [rows], {"allow_free": False})
    symbols = [f.symbols.x, *(ca.SX.zeros(*a.shape) for a in args[1:-1]), f.symbols.parameters]
    return ca.vertsplit(function(*symbols))


def _idle(f: OneStepMap) -> list[int]:
    """Return indices of the states on which no step depends.
    They are the rates of prescribed joint variables.
    """
    residual = f.residual
    if residual is None or f.ndx != f.nx:
        return []
    columns = set(residual.jac_sparsity(0, 0).get_triplet()[1])
    return [i for i in range(f.nx) if i not in columns]


def _groups(pattern: ca.Sparsity, n: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Divide the rows of a sparse matrix into groups that have no columns in common.
    The argument `pattern` is the sparsity of the matrix, which has n columns, one for each state.

    A group is a pair (rows, states). A null space that is computed for each group combines only states that
    occur in common conditions (rows). States without a condition remain coordinates, and configurations
    remain separate from momenta.
    """
    m, one = pattern.size1(), ca.Sparsity.diag
    graph = ca.vertcat(ca.horzcat(one(m), pattern), ca.horzcat(pattern.T, one(n)))
    count, nodes, ends = graph.scc()
    labels = np.empty(m + n, int)
    labels[nodes] = np.repeat(np.arange(count), np.diff(ends))
    states = labels[m:]
    order = list(dict.fromkeys(states))
    return [(np.flatnonzero(labels[:m] == g), np.flatnonzero(states == g)) for g in order]


def _null_space(C: np.ndarray, groups: list[tuple[np.ndarray, np.ndarray]] | None) -> np.ndarray:
    """Return an orthonormal basis of the null space of the matrix C (c, n).
    Its rows are divided into `groups` that have no columns in common; None means one group.
    """
    columns = []
    if groups is None:
        groups = [(np.arange(C.shape[0]), np.arange(C.shape[1]))]
    for rows, states in groups:
        part = C[np.ix_(rows, states)]
        length = np.linalg.norm(part, axis=1)
        part = part[length > 0] / length[length > 0, None]
        _, size, V = np.linalg.svd(part)
        for v in V[(size > RANK).sum() :]:
            column = np.zeros(C.shape[1])
            column[states] = v
            columns.append(column)
    return np.array(columns).reshape(-1, C.shape[1]).T
