"""Continuous-time equations of motion, for forward and inverse dynamics.

    d/dt L_v - L_q = F + Dh' lambda_c        rows of dynamic variables
    Dh a + D^2h (v, v) = 0

These are [T] (28)-(29), (36). `Continuous` holds the CasADi graphs and evaluates them numerically. The
accelerations of kinematic variables are given. Maths: docs/maths/continuous.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any, NamedTuple

import casadi as ca
import numpy as np

from vioc.checks import as_floats, check_array, few
from vioc.compile.evaluate import Evaluator
from vioc.dynamics.algebra import vectors as vec
from vioc.dynamics.algebra.sparse_lu import Saddle, scalars
from vioc.dynamics.algebra.vectors import part
from vioc.dynamics.consistency import rank_of_rows
from vioc.dynamics.description.system import System, as_system
from vioc.dynamics.kinematics import as_configuration
from vioc.dynamics.lagrangian import Lagrangian
from vioc.dynamics.masses import fault_at, own_length
from vioc.errors import ConstraintError, ModelError
from vioc.names import INPUTS, in_order

SINGULAR_MASS = 1e-13  # reciprocal condition of M, scaled by a generic M, below which M counts as singular


class Motion(NamedTuple):
    """Result of forward dynamics: accelerations and constraint multipliers.

    They are (nq,) and lambda_c (m,), with a leading axis if there are several samples.
    """

    accelerations: np.ndarray
    multipliers: np.ndarray


class Continuous:
    """Forward and inverse dynamics of a mechanism in continuous time, with exact derivatives.

    Parameters
    ----------
    system : System or Lagrangian
    **parameters : float
        Values of declared parameters other than their defaults.

    Notes
    -----
    Configurations, velocities and accelerations are arrays (nq,), arrays (N, nq) of N samples, dicts by
    name (missing names are zero), or None for zero; `u` likewise with the inputs, `t` is a number or (N,).
    Multipliers have the sign of [T] (36a), M a + ... = Dh' lambda_c, in newtons per unit of Dh.

    `by` selects derivatives, one letter each: ``q``, ``v``, ``u``, ``p`` (the declared parameters), and
    for inverse dynamics ``a``; ``by="qv"`` adds the axes (..., nq, nq), entry [..., i, j] the
    derivative by q_i and v_j. Each is an exact CasADi function, built at its first use and cached.

    Examples
    --------
    >>> dynamics = Continuous(system)
    >>> a, multipliers = dynamics.forward({"theta": 0.3}, u={"torque": 1.0})
    """

    def __init__(self, system: System | Lagrangian, **parameters: float):
        self.lagrangian = lag = system if isinstance(system, Lagrangian) else Lagrangian(as_system(system))
        self.system = lag.system
        if lag.nd == 0:
            raise ModelError(f"{self.system.name}: every variable is kinematic, there are no dynamics")
        self.parameters = self.system.parameter_values(parameters)
        self.system.check_masses(self.parameters, parameters)
        self.nm = len(lag.constraint_names)
        self.a_vector = ca.SX.sym("a", lag.nq)
        self.multipliers = ca.SX.sym("lambda_c", self.nm)
        self._functions: dict[tuple[str, str], Evaluator] = {}

    # -- expressions ------------------------------------------------------------------------------

    def balance(self, a: ca.SX, multipliers: ca.SX) -> ca.SX:
        """Return the residual of the equations of motion at given accelerations and constraint multipliers.

        It is d/dt L_v - L_q - F - Dh' lambda_c (nq,), at `a` (nq,): the additional force that must act. The
        two products with second derivatives of L are one directional derivative of L_v along (v, a), so that
        neither M nor L_vq is formed.
        """
        lag, g = self.lagrangian, self.lagrangian.graph
        flow = ca.vertcat(g.v_vector, a)
        rate = ca.jtimes(lag.L_v, ca.vertcat(g.q_vector, g.v_vector), flow)
        total = rate - lag.L_q - lag.F
        if self.nm:
            total = total - ca.jtimes(lag.h, g.q_vector, multipliers, True)
        if any(lag.nonholonomic):
            total = total - ca.jtimes(lag.slips, g.v_vector, multipliers, True)
        return total

    def constraint_acceleration(self, a: ca.SX) -> ca.SX:
        """Return the second time derivative (m,) of the constraint values, at accelerations `a` ([T] (36b)).

        It is d^2h/dt^2 = Dh a + D^2h (v, v). For velocity constraints it is d/dt A(q) v.
        """
        lag, g = self.lagrangian, self.lagrangian.graph
        if not self.nm:
            return ca.SX(0, 1)
        velocity = ca.jtimes(lag.h, g.q_vector, g.v_vector)
        if any(lag.nonholonomic):
            velocity = velocity + lag.slips
        return ca.jtimes(velocity, ca.vertcat(g.q_vector, g.v_vector), ca.vertcat(g.v_vector, a))

    @cached_property
    def solution(self) -> tuple[ca.SX, ca.SX]:
        """Symbolic accelerations (nd,) of the dynamic variables, and constraint multipliers (m,).

        They are [T] (29), (36), in the graph's symbols and the kinematic part of ``a_vector``.
        """
        nd = self.lagrangian.nd
        prescribed = ca.vertcat(ca.SX.zeros(nd), part(self.a_vector, nd))
        bias = self.balance(prescribed, ca.SX.zeros(self.nm))[:nd]
        return self.saddle_solution(-bias, -self.constraint_acceleration(prescribed))

    @cached_property
    def rates(self) -> ca.Function:
        """Right-hand side of the equations of motion as a CasADi function ([q, v], u) -> [v, a].

        It has 2 nd entries, at the values of `parameters`. Kinematic variables raise ModelError, forces that
        depend on time RuntimeError.
        """
        lag, g = self.lagrangian, self.lagrangian.graph
        if lag.nq != lag.nd:
            raise ModelError(
                f"{self.system.name}: expected dynamic variables only, got the kinematic "
                f"{few(self.system.kinematic)}"
            )
        flow = ca.vertcat(g.v_vector, self.solution[0])
        if len(self._theta):
            flow = ca.substitute(flow, g.parameters, ca.SX(self._theta))
        return ca.Function("rates", [ca.vertcat(g.q_vector, g.v_vector), g.u_vector], [flow])

    def length(self, q: np.ndarray) -> float:
        """Return a typical length of the mechanism at a configuration q (nq,), m.

        It is the largest distance of a frame from the first frame. If this is 0, it is the natural length of
        the description, without one the largest translation in q, and else 1 m.
        """
        places = self._places(q[None], self._theta)[0].reshape(-1, 3)
        apart = np.linalg.norm(places - places[:1], axis=1).max(initial=0.0)
        slides = [
            float(abs(v))
            for n, v in zip(self.system.variables, q, strict=True)
            if n not in self.system.angles
        ]
        return float(apart) or own_length(self.system, self.parameters) or max(slides, default=0.0) or 1.0

    @property
    def input_units(self) -> tuple[str, ...]:
        """SI units of the inputs, "" where unknown."""
        forces, angles = self.system.forces, self.system.angles
        units = {n: force.input_unit(angles) for force in forces for n in force.input_names()}
        return tuple(units[n] for n in self.system.inputs)

    @cached_property
    def held(self) -> ca.Function:
        """CasADi function from [q, v] to the constraint values h(q) and their time derivatives, (2 m,).

        Velocity constraints give [0, A v]. Where the values are 0, motions along `rates` keep them 0.
        """
        lag, g = self.lagrangian, self.lagrangian.graph
        rows = ca.vertcat(lag.h, ca.mtimes(lag.Dh, g.v_vector))
        if len(self._theta):
            rows = ca.substitute(rows, g.parameters, ca.SX(self._theta))
        return ca.Function("held", [ca.vertcat(g.q_vector, g.v_vector)], [ca.densify(rows)])

    def saddle_solution(self, force: ca.SX, rate: ca.SX) -> tuple[ca.SX, ca.SX]:
        """Solve the equations M x - Dh' y = force, Dh x = rate for the vectors x and y.
        M is the mass matrix and Dh the constraint Jacobian, both for the dynamic variables.
        """
        x, y = self._saddle.solve(ca.vertsplit(force), ca.vertsplit(rate))
        return ca.vertcat(*x), vec.column(y)

    @cached_property
    def _saddle(self) -> Saddle:
        lag = self.lagrangian
        J = scalars(lag.Dh[:, : lag.nd])
        return Saddle(lag.mass_inverse, J, J)

    @cached_property
    def independence(self) -> ca.SX:
        """Measures (m,) of linear independence, one for each constraint, at most about 1.
        The measure of a constraint is 0 if this constraint depends linearly on other constraints.

        A measure is also 0 if the gradient of the constraint vanishes. The values are the pivots
        of Dh M^-1 Dh' divided by their values for gradients without cancellation. The rounding error of the
        accelerations is that of q and v divided by the smallest of them.
        """
        lag, S = self.lagrangian, self._saddle.S
        if S is None:
            return ca.SX(0, 1)
        J = ca.sparsify(lag.Dh[:, : lag.nd])
        sizes = lag.sizes[:, [int(n not in lag.system.angles) for n in lag.system.dynamic]]
        mobility = 1 / ca.diag(lag.M[: lag.nd, : lag.nd])
        generic = ca.mtimes(sizes**2 * ca.DM(J.sparsity(), 1.0), mobility)
        return S.pivots / generic

    # -- numerical evaluation -----------------------------------------------------------------------

    def forward(
        self, q: Any, v: Any = None, u: Any = None, *, t: Any = 0.0, kinematic: Any = None, by: str = ""
    ) -> Motion:
        """Return accelerations and constraint multipliers at a state and input ([T] (29), (36)).
        Letters in `by` select derivatives with respect to q, v, u or the parameters p.

        Parameters
        ----------
        q, v, u, t, by
            See the class.
        kinematic : array (nk,) or (N, nk), dict by name, or None for zero
            Accelerations of the kinematic variables.

        Returns
        -------
        Motion
            ``accelerations`` (nq,), for kinematic variables as given; ``multipliers`` (m,). With `by`
            their derivatives: (nq, ...) and (m, ...), zero for the kinematic rows.

        Raises
        ------
        ConstraintError
            If the constraints are dependent at q; the message names those that follow from others.
        ModelError
            If the mass matrix is singular at q.
        """
        g, nd = self.lagrangian.graph, self.lagrangian.nd
        kinematic_acceleration = _named(kinematic, self.system.kinematic, "kinematic acceleration")
        numbers = [*self._state(q, v, u, t), kinematic_acceleration]
        self.check_regular(numbers[0])
        symbols = [g.q_vector, g.v_vector, g.u_vector, g.t, part(self.a_vector, nd)]
        a = self._evaluate("accelerations", by, symbols, numbers, "qvup")
        return Motion(a, self._evaluate("multipliers", by, symbols, numbers, "qvup"))

    def inverse(
        self, q: Any, v: Any, a: Any, u: Any = None, multipliers: Any = None, *, t: Any = 0.0, by: str = ""
    ) -> np.ndarray:
        """Return the generalized force (nq,) that causes the accelerations a together with other forces.
        The other forces are those of the model, with the inputs u, and the constraint forces of given
        `multipliers`.

        It is d/dt L_v - L_q - F(q, v, u, t) - Dh' lambda_c ([T] (28), (36a)): zero for dynamic variables
        if ``a, multipliers = forward(q, v, u)``, and the driving force for kinematic ones.

        Parameters
        ----------
        multipliers : (m,) or (N, m), dict by name, or None for zero

        Returns
        -------
        (nq,), N or N m; with `by` its derivatives (nq, ...).
        """
        g = self.lagrangian.graph
        a = _rows(as_configuration, self.system, a, "acceleration")
        pushed = _named(multipliers, self.lagrangian.constraint_names, "multiplier")
        numbers = [*self._state(q, v, u, t), a, pushed]
        symbols = [g.q_vector, g.v_vector, g.u_vector, g.t, self.a_vector, self.multipliers]
        return self._evaluate("inverse", by, symbols, numbers, "qvuap")

    def _state(self, q: Any, v: Any, u: Any, t: Any) -> list[np.ndarray]:
        """Convert configurations q, velocities v, inputs u and times t to arrays.
        Configurations, velocities and inputs may also be dicts by name, or None for zero.
        """
        q = _rows(as_configuration, self.system, q, "configuration")
        v = _rows(as_configuration, self.system, v, "velocity")
        return [q, v, _named(u, self.system.inputs, "input"), as_floats(t, "t")]

    def dynamic_accelerations(
        self, q: np.ndarray, v: np.ndarray, u: np.ndarray, t: float, kinematic: np.ndarray
    ) -> np.ndarray:
        """Return the accelerations (nd,) of the dynamic variables, without checks of the arguments."""
        t_array = np.array([t], float)
        return self._dynamic(q, v, u, t_array, kinematic, self._theta)[0][:, 0]

    def check_regular(self, q: np.ndarray, **parameters: float) -> None:
        """Raise an error if constraints are dependent or the mass matrix is singular.

        Accelerations would then be arbitrary.

        Parameters
        ----------
        q : (nq,) or (N, nq)
        **parameters : float
            Values that differ from those of this object.
        """
        lag = self.lagrangian
        theta = np.array(list({**self.parameters, **parameters}.values()), float)
        M, Dh = self._matrices(np.atleast_2d(q), theta)
        name = lag.system.name
        for i, (m, J) in enumerate(zip(M, Dh, strict=True)):
            where = f"{name}: " if q.ndim == 1 else f"{name}: sample {i}: "
            if self.nm:
                rank, redundant = rank_of_rows(J, lag.constraint_names)
                if redundant:
                    raise ConstraintError(
                        f"{where}Dh(q) has rank {rank} of {self.nm}: {', '.join(redundant)} follows from the "
                        "other constraints there, so multipliers are undefined; remove redundant constraints"
                    )
            parameter_values = dict(zip(self.parameters, theta, strict=True))
            if fault := fault_at(lag.system, np.atleast_2d(q)[i], parameter_values):
                raise ModelError(where + fault)
            root = np.sqrt(lag.mass_scale_with(parameter_values))
            values, vectors = np.linalg.eigh(m / np.outer(root, root))
            if not values[0] > SINGULAR_MASS * values[-1]:
                weak = np.abs(vectors[:, 0])
                names = [n for n, w in zip(lag.system.dynamic, weak, strict=True) if w > 0.3]
                raise ModelError(
                    f"{where}the mass matrix is singular (reciprocal condition "
                    f"{abs(values[0]) / values[-1]:.1g}) along {', '.join(names)}: the coordinates are "
                    "singular at this configuration"
                )

    # -- evaluation of functions --------------------------------------------------------------------

    @property
    def _theta(self) -> np.ndarray:
        return np.array(list(self.parameters.values()), float)

    @cached_property
    def _dynamic(self) -> Evaluator:
        lag, g = self.lagrangian, self.lagrangian.graph
        args = [g.q_vector, g.v_vector, g.u_vector, g.t, part(self.a_vector, lag.nd), g.parameters]
        return Evaluator(ca.Function("dynamic", args, [self.solution[0]]))

    @cached_property
    def _places(self) -> Evaluator:
        g = self.lagrangian.graph
        places = [vec.column(g.node_pose(i)[1]) for i in range(len(self.system.nodes))]
        return Evaluator(
            ca.Function("places", [g.q_vector, g.parameters], [ca.vertcat(ca.SX(0, 1), *places)])
        )

    @cached_property
    def _matrices(self) -> Evaluator:
        lag, g, nd = self.lagrangian, self.lagrangian.graph, self.lagrangian.nd
        outputs = [lag.M[:nd, :nd], lag.directions]
        return Evaluator(ca.Function("matrices", [g.q_vector, g.parameters], outputs))

    def _expression(self, what: str) -> ca.SX:
        if what == "inverse":
            return self.balance(self.a_vector, self.multipliers)
        a, multipliers = self.solution
        return multipliers if what == "multipliers" else ca.vertcat(a, part(self.a_vector, a.numel()))

    def _evaluate(self, what: str, by: str, symbols: list, numbers: list, letters: str) -> np.ndarray:
        if set(by) - set(letters):
            raise ValueError(f"by: expected letters of {', '.join(letters)}, got {by!r}")
        g = self.lagrangian.graph
        variables = dict(q=g.q_vector, v=g.v_vector, u=g.u_vector, p=g.parameters, a=self.a_vector)
        if (what, by) not in self._functions:
            derivative = self._expression(what)
            for letter in by:
                derivative = ca.vec(ca.jacobian(derivative, variables[letter]))
            args = [*symbols, g.parameters]
            self._functions[what, by] = Evaluator(ca.Function(what, args, [derivative]))
        counts = {len(n) for n in numbers if np.ndim(n) == 2} | {n.size for n in numbers[3:4] if n.ndim}
        if len(counts) > 1:
            raise ValueError(f"expected the same number of samples everywhere, got {sorted(counts)}")
        t = numbers[3]
        numbers = [*numbers[:3], t[:, None] if t.ndim else t[None], *numbers[4:]]
        flat = self._functions[what, by](*numbers, self._theta)[0][..., 0]
        rows = self.nm if what == "multipliers" else self.lagrangian.nq
        shape = (rows, *(variables[letter].numel() for letter in by))
        lead = flat.shape[:-1]
        # CasADi's vec is column-major: the last letter's axis varies slowest
        axes = (*range(len(lead)), *reversed(range(len(lead), len(lead) + len(shape))))
        return np.ascontiguousarray(flat.reshape(*lead, *reversed(shape)).transpose(axes))


def _rows(read: Any, system: System, value: Any, what: str) -> np.ndarray:
    """Convert one or N configurations or velocities (arrays, dicts by name, or None) to an array."""
    value = getattr(value, "q", value)  # a ConstraintReport is a configuration
    if value is None or isinstance(value, Mapping) or as_floats(value, what).ndim != 2:
        return read(system, value, what)
    return _named(value, system.variables, what)


def _named(value: Any, names: tuple[str, ...], what: str) -> np.ndarray:
    """Convert values to an array (n,) or (N, n); they may be an array, a dict by name, or None for zero."""
    if value is None:
        return np.zeros(len(names))
    value = in_order(value, names, what, prefix=INPUTS if what == "input" else "")
    shape = (len(value), len(names)) if np.ndim(value) == 2 else (len(names),)
    return check_array(value, shape, f"{what}s", names)
