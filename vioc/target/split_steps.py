"""Division of a map's step into explicit equations and a few implicit ones.

docs/target.md describes it. The equations r(x, u, x+, lambda) = 0 of a step are sorted once (TG 1-5).
Unknowns that one equation gives explicitly are computed first, and unknowns that no other equation needs are
computed last. The other equations, called the core, are G(d; x, u, t) = 0, where d are changes of states, and
multipliers. A fixed number of Newton iterations on G gives the step.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import casadi as ca
import numpy as np

from vioc.errors import StepError
from vioc.maps.made.extended import ExtendedMap
from vioc.maps.protocol import OneStepMap

OPTIONS = {"cse": True}
MOST = 12  # largest number of Newton iterations; more mean that the start is not near the solution
SAME = 1e-6  # relative distance of ends of steps above which they are different solutions
SOLVED = {"double": 1e-11, "single": 1e-4}  # largest last correction of a state, relative to 1 + |x|


@dataclass(frozen=True)
class SplitStep:
    """Step of a map, divided into explicit equations and a few implicit ones.

    Step length and parameters are those of the map. The implicit equations are called the core.

    Attributes
    ----------
    map : OneStepMap
    d : SX (n,)
        Unknowns of the core: changes of states, then multipliers.
    states : tuple of int
        Indices, in the state, of those states whose changes are in d.
    x, u, t : SX
        State and time at the start of the step, and input.
    G : SX (n,)
        Residual of the core.
    after : SX (nx + nm,)
        Next state and multipliers as functions of d, x, u, t.
    """

    map: OneStepMap
    d: ca.SX
    states: tuple[int, ...]
    x: ca.SX
    u: ca.SX
    t: ca.SX
    G: ca.SX
    after: ca.SX

    @property
    def n(self) -> int:
        return self.d.numel()

    @cached_property
    def timed(self) -> bool:
        """Flag, True if the step depends on time."""
        return bool(ca.depends_on(ca.vertcat(self.G, self.after), self.t))

    def function(self, name: str, outputs: dict[str, ca.SX]) -> ca.Function:
        """Make a CasADi function that evaluates the expressions `outputs`.
        Its arguments are the unknowns d of the implicit equations, the state x, the input u and the time t.
        """
        inputs = {"d": self.d, "x": self.x, "u": self.u, "t": self.t}
        return ca.Function(name, [*inputs.values()], [*outputs.values()], [*inputs], [*outputs], OPTIONS)

    @cached_property
    def equations(self) -> ca.Function:
        """CasADi function of the residual G of the implicit equations of a step."""
        return self.function("equations", {"G": self.G})

    @cached_property
    def newton(self) -> ca.Function:
        """CasADi function of the residual G of implicit equations and of its Jacobian.
        The Jacobian is with respect to the unknowns d of the implicit equations.
        """
        return self.function("newton", {"G": self.G, "J": ca.jacobian(self.G, self.d)})

    @cached_property
    def result(self) -> ca.Function:
        """CasADi function of a step's next state and multipliers.
        Its arguments include the unknowns of the step's implicit equations."""
        nx = self.map.nx
        outputs = {"x_next": ca.densify(self.after[:nx]), "multipliers": ca.densify(self.after[nx:])}
        return self.function("result", outputs)

    @cached_property
    def derivatives(self) -> ca.Function:
        """CasADi function of the Jacobians of a step's implicit equations and next state.
        The derivatives are with respect to the unknowns d of the implicit equations, the state and the
        input.
        """
        next_state, variables = self.after[: self.map.nx], {"d": self.d, "x": self.x, "u": self.u}
        outputs = {f"G_{n}": ca.jacobian(self.G, s) for n, s in variables.items()}
        outputs |= {f"E_{n}": ca.jacobian(next_state, s) for n, s in variables.items()}
        return self.function("derivatives", outputs)

    def iterations(
        self,
        X: np.ndarray,
        U: np.ndarray,
        k: np.ndarray,
        precision: str,
        given: int | None = None,
        ends: np.ndarray | None = None,
    ) -> int:
        """Return a number of Newton iterations that is sufficient for a step.
        The number is one more than all recorded steps need, or `given` if that is sufficient for them. These
        steps have states X, inputs U and indices k. The array `ends` has the known next states of the first
        len(ends) steps.

        Raises
        ------
        ValueError
            If `given` is too small.
        StepError
            If a step is not solved after `MOST` iterations, or ends at another root than the map's step.
        """
        if not self.n:
            return 0
        size = 1 + np.abs(X[:, list(self.states)])
        D = np.zeros((len(X), self.n))
        context = X.T, U.T, (k * self.map.dt)[None]
        shape = len(X), self.n
        for done in range(MOST + 1):
            G, J = (np.array(ca.densify(m)) for m in self.newton(D.T, *context))
            G, J = G.T, J.reshape(self.n, *shape).transpose(1, 0, 2)
            correction = np.linalg.solve(J, G[..., None])[..., 0]
            D = D - correction
            errors = (np.abs(correction[:, : len(self.states)]) / size).max(axis=1, initial=0.0)
            if done and (errors <= SOLVED[precision]).all():
                self._check_ends(D, context, k, ends)
                if given is not None and given < done:
                    raise ValueError(f"max_iterations: the recorded steps need {done}, got {given}")
                return done + 1 if given is None else given
        worst = int(np.argmax(np.where(np.isfinite(errors), errors, np.inf)))
        raise StepError(
            f"step {int(k[worst])}: Newton's method from its start has not solved it after {MOST} "
            f"iterations (correction {errors[worst]:.1e}); use a smaller dt: a step in C has no other means",
            int(k[worst]),
            float(errors[worst]),
            "no convergence",
        )

    def _check_ends(self, D: np.ndarray, context: tuple, k: np.ndarray, ends: np.ndarray | None) -> None:
        if ends is None:
            return
        next_states = np.array(self.result(D.T, *context)[0]).T[: len(ends)]
        off = (np.abs(next_states - ends) / (1 + np.abs(ends).max(axis=1, keepdims=True))).max(
            axis=1, initial=0.0
        )
        if (bad := np.flatnonzero(~(off <= SAME))).size:
            i = int(bad[0])
            raise StepError(
                f"step {int(k[i])}: Newton's method from its start finds another root than the map's step "
                f"(off by {off[i]:.1e}); use a smaller dt: a step in C has no other means",
                int(k[i]),
                float(off[i]),
                "another solution",
            )


def split(f: OneStepMap) -> SplitStep:
    """Divide a map's step into explicit equations and a few implicit ones.

    The map must have equations of its step, or a formula for it.

    Raises
    ------
    ValueError
        If the map has neither, or its errors are not its states.
    """
    if f.ndx != f.nx:
        raise ValueError(
            f"{type(f).__name__}: its errors ({f.ndx}) are not its states ({f.nx}); C is written for maps "
            "whose errors are differences of states, such as MidpointVI of the same mechanism"
        )
    if isinstance(f, ExtendedMap):
        return _extended(f)
    t = ca.SX.sym("t")
    x, u, nm = ca.SX.sym("x", f.nx), ca.SX.sym("u", f.nu), len(f.multiplier_names)
    theta, dt = ca.DM(f.theta), ca.DM(f.dt)
    if f.explicit is not None:
        ahead, multipliers, _ = f.explicit(x, u, t, dt, theta)
        after = ca.vertcat(ca.densify(ahead), ca.densify(multipliers))
        return SplitStep(f, ca.SX(0, 1), (), x, u, t, ca.SX(0, 1), after)
    if f.mechanism.relaxed() is not None:
        raise ValueError(
            f"{type(f).__name__}: a step with contacts, limits of joints or dry friction is found by an "
            "interior-point method, which is not written in C; write the map of the mechanism without them "
            "(MidpointVI), or of contacts that hold (ModeVI)"
        )
    if f.residual is None:
        raise ValueError(
            f"{type(f).__name__} has no equations (`residual`) and no formula (`explicit`) to write in C"
        )
    y = ca.SX.sym("y", f.nx + nm)
    rows = ca.densify(f.residual(x, u, y[: f.nx], y[f.nx :], t, dt, theta))
    first, last, core, open_rows = _order(rows, y)
    given = _solved(rows, y, first, {})
    d = ca.SX.sym("d", len(core))
    for i, j in enumerate(core):
        given[j] = x[j] + d[i] if j < f.nx else d[i]
    known = _put(y, given)
    G = ca.substitute(rows[open_rows], y, known) if core else ca.SX(0, 1)
    given = _solved(rows, y, last, given)
    after = ca.vertcat(*(given[j] for j in range(f.nx + nm)))
    return SplitStep(f, d, tuple(j for j in core if j < f.nx), x, u, t, G, after)


def _extended(f: ExtendedMap) -> SplitStep:
    """Return the divided step of an `ExtendedMap`, with input disturbances as states."""
    if not f.matched:
        raise ValueError(
            f"{f!r}: in C constants are disturbances of inputs, and biases; leave out the others"
        )
    inner, n = split(f.inner), f.inner.nx
    x = ca.SX.sym("x", f.nx)
    pushed = ca.SX(ca.DM(f.input_disturbance(np.eye(f.nx - n)).T)) @ x[n:]
    after = ca.vertcat(inner.after[:n], x[n:], inner.after[n:])
    G, after = ca.substitute([inner.G, after], [inner.x, inner.u], [x[:n], inner.u + pushed])
    return SplitStep(f, inner.d, inner.states, x, inner.u, inner.t, G, after)


Pairs = list[tuple[int, int]]  # each equation with the unknown that it determines


def _order(rows: ca.SX, y: ca.SX) -> tuple[Pairs, Pairs, list[int], list[int]]:
    """Sort a step's equations into explicit and implicit ones.
    Each explicit equation is solved for one unknown. Some explicit equations are solved before the implicit
    ones, and some after them.

    Return the pairs (equation, unknown) that are solved before, those that are solved after, and the unknowns
    and the equations of the implicit part. Unknowns are indices of `y`, equations those of `rows`.
    """
    J = ca.jacobian(rows, y)
    places = set(zip(*J.sparsity().get_triplet(), strict=True))
    plain = {(i, j) for i, j in places if J[i, j].is_constant()}
    i_left, j_left = list(range(rows.numel())), list(range(y.numel()))

    def taken(lines: list[int], across: list[int], place) -> tuple[int, int] | None:
        for line in lines:
            there = [c for c in across if place(line, c) in places]
            if len(there) == 1 and place(line, there[0]) in plain:
                return place(line, there[0])
        return None

    first: Pairs = []
    last: Pairs = []
    for pairs, lines, across, place in (
        (first, i_left, j_left, lambda i, j: (i, j)),
        (last, j_left, i_left, lambda j, i: (i, j)),
    ):
        while (pair := taken(lines, across, place)) is not None:
            pairs.append(pair)
            i_left.remove(pair[0])
            j_left.remove(pair[1])
    return first, last[::-1], j_left, i_left


def _solved(rows: ca.SX, y: ca.SX, pairs: Pairs, given: dict[int, ca.SX]) -> dict[int, ca.SX]:
    """Solve explicit equations of a step one after the other, each for one unknown.
    Return the solutions by the index of the unknown, together with the known solutions `given`.

    The `pairs` are the equations with their unknowns.
    """
    given = dict(given)
    for i, j in pairs:
        slope = ca.jacobian(rows[i], y[j])
        rest = ca.substitute(rows[i], y, _put(y, {**given, j: ca.SX(0)}))
        given[j] = -rest / slope
    return given


def _put(y: ca.SX, given: dict[int, ca.SX]) -> ca.SX:
    return ca.vertcat(*(given.get(j, y[j]) for j in range(y.numel())))
