"""Static equilibria under constraints, by minimal energy, and their sensitivities.

Maths: docs/maths/cables.md. The sensitivities serve shape control and co-design.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import casadi as ca
import numpy as np

from vioc.checks import as_names, near_misses
from vioc.compile.evaluate import Evaluator
from vioc.dynamics.consistency import check_holonomic
from vioc.dynamics.description.system import System
from vioc.dynamics.kinematics import as_configuration
from vioc.dynamics.lagrangian import Lagrangian
from vioc.errors import ConstraintError, ModelError

SINGULAR = 1e-12  # reciprocal condition number, with scaled rows, below which equations are singular
LONGEST = 1.0  # largest change of a variable in one step, rad or m
TINY = 1e-200
TRIALS = 40  # halvings of a step
NODES, WEIGHTS = np.polynomial.legendre.leggauss(8)  # for the work of loads along a step
SETTLED = 1e-7  # relative step below which Newton's method ends as soon as its steps no longer halve


@dataclass(frozen=True)
class StaticEquilibrium:
    """Static equilibrium of a system, with constraint multipliers and stiffness.

    Attributes
    ----------
    system : System
    q : (nq,)
        Configuration in the order of ``system.variables``; ``f.initial_state(equilibrium)`` accepts it.
    multipliers : (m,)
        lambda in V_q - F + Dh' lambda = 0, with the potential energy V, the loads F and the constraints h.
        Over a step of length dt the impulse of [S] (28a) is dt lambda.
    energy : float
        Potential energy V, J, without the work of loads.
    stiffness : float
        Smallest eigenvalue of the second derivative of V minus the work of the loads, for displacements that
        the constraints allow.
    residual : float
        Largest entry of V_q - F + Dh' lambda for the free dynamic variables, N or N m.
    violation : float
        Largest |h|.
    iterations : int
    parameters : dict of str to float
        Values of the declared parameters.
    held : tuple of str
        Dynamic variables that the search fixed; results made from the equilibrium fix them, too.
    """

    system: System = field(repr=False)
    q: np.ndarray
    multipliers: np.ndarray
    energy: float
    stiffness: float
    residual: float
    violation: float
    iterations: int
    parameters: Mapping[str, float] = field(repr=False)
    held: tuple[str, ...] = field(repr=False)

    @property
    def stable(self) -> bool:
        """Flag, True if the equilibrium is a strict local minimum of the energy."""
        return self.stiffness > 0

    def __getitem__(self, name: str) -> float:
        """Return the value of a variable or the multiplier of a constraint, by its name."""
        if name in self.system.constraint_names:
            return float(self.multipliers[self.system.constraint_names.index(name)])
        return float(self.q[self.system.variable_index(name)])

    def __repr__(self) -> str:
        kind = "stable" if self.stable else "not a strict minimum"
        return (
            f"StaticEquilibrium({self.system.name}: V = {self.energy:.9g} J, {kind}, residual "
            f"{self.residual:.1e}, |h| <= {self.violation:.1e}, {self.iterations} iterations)"
        )


class Statics:
    """Energy and constraints of a system at rest, with their derivatives.
    Derivatives are with respect to the free dynamic variables.

    Parameters
    ----------
    system : System or Lagrangian
    free : array of int
        Indices of the free variables, by default all dynamic ones.
    **parameters : float
    """

    def __init__(self, system: System | Lagrangian, free: Any = None, **parameters: float):
        self.lagrangian = lag = system if isinstance(system, Lagrangian) else Lagrangian(system)
        self.free = np.arange(lag.nd) if free is None else np.asarray(free, int)
        check_holonomic(lag.system, "statics")
        g = lag.graph
        self.parameters = lag.system.parameter_values(parameters)
        self._theta = np.array(list(self.parameters.values()), float)
        lam, d = ca.SX.sym("lambda", lag.h.numel()), ca.SX.sym("d", lag.nq)
        args = [g.q_vector, g.v_vector, g.parameters]
        slope, loads = balance(lag, lam), loads_at_rest(lag)
        first = [lag.V, slope - ca.jtimes(lag.h, g.q_vector, lam, True), lag.h, lag.Dh]
        self._first = Evaluator(ca.Function("statics", [*args, lam], first))
        # one directional derivative, evaluated for each variable, as the matrix in one graph is O(n^2)
        directional = [ca.densify(ca.jtimes(e, g.q_vector, d)) for e in (slope, loads)]
        self._directional = Evaluator(ca.Function("stiffness", [*args, lam, d], directional))
        self._loads = None
        if loads.nnz():
            self._loads = Evaluator(ca.Function("loads", [g.q_vector, g.parameters], [ca.densify(loads)]))
        self._no_impulse = np.zeros(lam.numel())
        self._zero_rates = np.zeros(lag.nq)

    def first(self, q: np.ndarray) -> tuple[float, np.ndarray, np.ndarray, np.ndarray]:
        """Return energy V, gradient V_q - F, constraints h and constraint Jacobian Dh.
        The vector F contains the loads at rest. Shapes are (), (nf,), (m,) and (m, nf) for nf free variables
        and m constraints.
        """
        V, slope, h, Dh = self._first(q, self._zero_rates, self._theta, self._no_impulse)
        return float(V[0, 0]), slope[self.free, 0], h[:, 0], Dh[:, self.free]

    def work(self, q: np.ndarray, end: np.ndarray) -> float:
        """Return the work of the loads, J, on a straight line between configurations."""
        if self._loads is None:
            return 0.0
        d = end - q
        forces = self._loads(q + (1 + NODES[:, None]) / 2 * d, self._theta)[0][:, :, 0]
        return float(WEIGHTS @ (forces @ d)) / 2

    def hessian(self, q: np.ndarray, multipliers: np.ndarray) -> np.ndarray:
        """Return the Hessian (nf, nf) of the energy plus the constraint terms.
        The matrix is V_qq - F_q + sum_i lambda_i h_i,qq, for the potential energy V, the loads F, the
        constraints h and the constraint multipliers lambda. The derivatives are with respect to the free
        variables.

        Raises
        ------
        ModelError
            If F_q is not symmetric: the work of a load then depends on the path, and there is no energy.
        """
        directions = np.eye(self.lagrangian.nq)[self.free]
        products = self._directional(q, self._zero_rates, self._theta, multipliers, directions)
        rows, loads = (a[:, self.free, 0] for a in products)
        if self._loads is not None and not _symmetric(loads):
            self._refuse(q)
        return (rows + rows.T) / 2

    def _refuse(self, q: np.ndarray) -> None:
        """Raise a ModelError that names the load whose work depends on the path.
        The derivative of this load with respect to the configuration is not symmetric at q.
        """
        system, free = self.lagrangian.system, self.free
        for force in system.forces:
            lag = Lagrangian(System(*system.frames, force, name=system.name))
            F_q = ca.jacobian(loads_at_rest(lag), lag.graph.q_vector)
            theta = [dict(zip(system.parameters, self._theta, strict=True))[n] for n in lag.system.parameters]
            slope = np.array(
                ca.Function("slope", [lag.graph.q_vector, lag.graph.parameters], [F_q])(q, theta)
            )
            if not _symmetric(slope[np.ix_(free, free)]):
                raise ModelError(
                    f"{system.name}: the work of {force} depends on the path (a load that turns with "
                    "its frame, or a moment in space), so that no potential energy has a minimum; expected "
                    "loads with a potential, as of a Wrench with a force in hybrid axes, or take "
                    "vioc.control.equilibrium, which balances any forces"
                )


def _symmetric(slope: np.ndarray) -> bool:
    return bool(np.abs(slope - slope.T).max(initial=0.0) <= 1e-9 * np.abs(slope).max(initial=TINY))


def loads_at_rest(lag: Lagrangian) -> ca.SX:
    """Return the generalized forces (nq,) of all loads at zero velocities and inputs.
    Entries that are always zero are structural zeros of the sparse result.

    Raises
    ------
    ModelError
        If a load depends on time; the message names it.
    """
    g = lag.graph
    args = [g.q_vector, ca.SX.zeros(lag.nq), ca.SX.zeros(g.u_vector.numel()), g.t, g.parameters]
    loads = ca.sparsify(lag.function("F", [lag.F])(*args))
    if ca.depends_on(loads, g.t):
        for force in lag.system.forces:
            if any(ca.depends_on(ca.SX(value), g.t) for value in force.generalized(g).values()):
                raise ModelError(
                    f"{lag.system.name}: {force} depends on time, so that nothing stays at rest; "
                    "expected constant loads"
                )
    return loads


def balance(lag: Lagrangian, multipliers: ca.SX) -> ca.SX:
    """Return the static residual V_q - F + Dh' lambda, generalized forces (nq,).
    V is the potential energy, F the loads, Dh the constraint Jacobian and lambda the multipliers.

    It is zero for free variables in balance.
    """
    g = lag.graph
    return ca.jtimes(lag.h, g.q_vector, multipliers, True) - lag.L_q - loads_at_rest(lag)


def _check_gaps(lag: Lagrangian, q: np.ndarray, parameters: dict[str, float]) -> None:
    """Raise a ModelError if an equilibrium needs a force of a contact or joint limit."""
    system, g = lag.system, lag.graph
    for name, item in zip(system.inequality_names, system.inequalities, strict=True):
        gaps = item.gaps(g)
        theta = list({**system.parameters, **parameters}.values())
        f = ca.Function("gaps", [g.q_vector, g.parameters], [ca.vertcat(ca.SX(0, 1), *gaps.values())])
        least = float(np.min(np.array(f(q, theta)), initial=np.inf))
        if least < 0:
            raise ModelError(
                f"{system.name}: at the equilibrium without it {name} is passed by {-least:.3g}, and forces "
                "of contacts and limits are not taken; expected an equilibrium that touches nothing, or let "
                "a damped rollout of MaximalVI come to rest"
            )


def kernel(J: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return an orthonormal basis of the null space of J, and the pseudo-inverse of J.
    Singular values below 1e-10 of the largest count as zero.
    """
    if not len(J):
        return np.eye(J.shape[1]), np.zeros((J.shape[1], 0))
    U, s, Vt = np.linalg.svd(J)
    rank = int((s > 1e-10 * s[0]).sum()) if s.size else 0
    return Vt[rank:].T, (Vt[:rank].T / s[:rank]) @ U[:, :rank].T


def static_equilibrium(
    system: System | Lagrangian,
    guess: Mapping[str, float] | Any = None,
    *,
    fixed: str | Iterable[str] = (),
    tolerance: float = 1e-12,
    max_iterations: int = 300,
    **parameters: float,
) -> StaticEquilibrium:
    """Find a static equilibrium: a local minimum of the energy under the constraints.

    The energy is the potential energy minus the work of loads, on h(q) = 0. The search descends from a guess.
    Loads are the forces at rest, with zero inputs. Kinematic variables and those named in `fixed` keep the
    values of the guess.

    Parameters
    ----------
    system : System or Lagrangian
    guess : array (nq,) or dict by name
        Initial configuration, as `Cable.configuration` makes of a curve; it may violate the constraints.
    fixed : name or names of variables
    tolerance : float
        Largest |h| accepted, and the last step's length relative to 1 + |q|.
    max_iterations : int
        Largest number of iterations.
    **parameters : float
        Values of declared parameters.

    Returns
    -------
    StaticEquilibrium
        If the energy has no minimum (a mechanism without weight or springs), a stationary point.

    Raises
    ------
    ConstraintError
        If the constraints cannot be satisfied from the guess.
    ModelError
        If the search does not converge; the message names the remaining error. Also for a load without a
        potential (one that turns with its frame), a load that depends on time, and if the equilibrium needs
        the force of a contact or a joint limit.
    """
    lag = system if isinstance(system, Lagrangian) else Lagrangian(system)
    q = as_configuration(lag.system, guess, "guess").copy()
    fixed_indices = {lag.system.variable_index(name) for name in as_names(fixed, "fixed")}
    statics = Statics(lag, [i for i in range(lag.nd) if i not in fixed_indices], **parameters)
    free = statics.free
    weight, before = 0.0, np.inf
    V, g, h, J = statics.first(q)
    for count in range(max_iterations + 1):
        Z, pseudo = kernel(J)
        lam = -pseudo.T @ g
        reduced = Z.T @ (W := statics.hessian(q, lam)) @ Z
        normal = -pseudo @ h
        values, vectors = np.linalg.eigh(reduced)
        slope = vectors.T @ (Z.T @ (g + W @ normal))
        # flat directions are followed as far as a step may go
        floor = 1e-12 * max(np.abs(values).max(initial=0.0), np.abs(slope).max(initial=0.0), TINY)
        step = normal - Z @ (vectors @ (slope / np.maximum(np.abs(values), floor)))
        size = np.abs(step).max(initial=0.0)
        small = size / (1 + np.abs(q).max())
        met = np.abs(h).max(initial=0.0) <= tolerance
        if met and (small <= tolerance or (small <= SETTLED and small >= before / 2)):
            _check_gaps(lag, q, parameters)
            residual = np.abs(g + J.T @ lam).max(initial=0.0)
            least = float(values[0]) if values.size else np.inf
            names = tuple(n for i, n in enumerate(lag.system.dynamic) if i in fixed_indices)
            size_of_h = np.abs(h).max(initial=0.0)
            return StaticEquilibrium(
                lag.system, q, lam, V, least, residual, size_of_h, count, statics.parameters, names
            )
        before = small
        step *= min(1.0, LONGEST / max(size, TINY))
        weight = max(weight, 2 * np.abs(lam).max(initial=0.0))
        merit, length = V + weight * np.abs(h).sum(), 1.0
        descent = g @ step - weight * np.abs(h).sum() * min(1.0, LONGEST / max(size, TINY))
        slack = 1e-13 * (abs(V) + abs(merit) + np.abs(g).max(initial=0.0)) if small < 1e-4 else 0.0
        for _ in range(TRIALS):
            trial = q.copy()
            trial[free] += length * step
            terms = statics.first(trial)
            if (
                terms[0] - statics.work(q, trial) + weight * np.abs(terms[2]).sum()
                <= merit + 1e-4 * length * min(descent, 0.0) + slack
            ):
                break
            length /= 2
        else:
            break
        q, (V, g, h, J) = trial, terms
    worst = np.abs(h).max(initial=0.0)
    if worst > 1e-8:
        names = lag.system.constraint_names
        raise ConstraintError(
            f"{lag.system.name}: no equilibrium: the constraint {names[int(np.argmax(np.abs(h)))]} stays "
            f"violated by {worst:.3g}; expected ends within reach of the cable, or another guess"
        )
    raise ModelError(
        f"{lag.system.name}: no equilibrium after {count} iterations: the next step would still move "
        f"{lag.system.variables[free[int(np.argmax(np.abs(step)))]]} by {size:.3g}; expected a potential "
        "energy with a minimum (gravity, springs), or another guess"
    )


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
