"""Lagrangian L = T - V of a mechanism, with its forces and constraints.

[T] (11), (23)-(27), IV-C to IV-E. `Lagrangian` holds the CasADi graphs of all integrators, each built once,
and evaluates them numerically.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import casadi as ca
import numpy as np

from vioc.compile.evaluate import Evaluator
from vioc.dynamics.algebra import tree_recursions as recursions
from vioc.dynamics.algebra import vectors as vec
from vioc.dynamics.algebra.articulated import ArticulatedInverse, within_hinges
from vioc.dynamics.algebra.sparse_lu import Saddle, SparseLU, scalars
from vioc.dynamics.description.component import VelocityConstraint
from vioc.dynamics.description.numbers import Parameter
from vioc.dynamics.description.system import System
from vioc.dynamics.kinematics import FrameGraph, as_configuration
from vioc.dynamics.masses import natural_length, typical_masses
from vioc.dynamics.rounding import NEGLIGIBLE, constraint_sizes
from vioc.dynamics.terms.potentials import Gravity
from vioc.errors import ModelError

VELOCITIES = "; make it a VelocityConstraint with a rate(k), or vioc.components.NonholonomicConstraint"
HOLDING = 50  # iterations of Newton's method for the inputs that balance a motion
SYMMETRIC = 1e-9  # asymmetry of a matrix, relative to its largest entry, that counts as rounding error
VIOLATED = 1e-6  # largest |h| that satisfies h = 0, relative to the terms that cancel in h
ROUNDED_TURNS = 2e-4  # rounding error of an angle over the smallest tolerance of constraints, 1e-12
LONG = 1200  # sum of squared depths of a tree from which recursions cost less than the factors of a matrix


def _rows(block: list[list]) -> ca.SX:
    return ca.vertcat(*(ca.horzcat(*row) for row in block))


class Lagrangian:
    """Lagrangian of a system with generalized forces and constraints.

    Forces are F(q, v, u, t), constraints h(q) = 0 and A(q) dq = 0.

    Parameters
    ----------
    system : System
    redundant : sequence of str
        Constraints that follow from the others and are not in h and Dh (`vioc.dynamics.redundancy`).

    Attributes
    ----------
    constraint_names : tuple of str
        Names of the rows of h and Dh.
    graph : FrameGraph
        Symbols q, v (nq), u (nu), t and parameters.
    nq, nd : int
        Number of configuration variables, of which the first `nd` are dynamic.

    Notes
    -----
    Attributes with mathematical names are SX expressions of the graph's symbols: ``T``, ``V``,
    ``L``, ``L_q``, ``L_v`` (nq,), ``F`` (nq,), ``h`` (m,), ``Dh`` (m, nq), ``M`` (nq, nq).
    """

    def __init__(self, system: System, redundant: Sequence[str] = ()):
        self.system = system
        items = zip(system.constraint_names, system.constraints, strict=True)
        self._kept = {name: constraint for name, constraint in items if name not in redundant}
        self.constraint_names = tuple(self._kept)
        self.graph = FrameGraph(system)
        self.nq = len(system.variables)
        self.nd = len(system.dynamic)
        self._evaluators: dict[str, Evaluator] = {}
        self._results: dict[str, tuple[dict[str, float], Any]] = {}

    # -- expressions ------------------------------------------------------------------------------

    @cached_property
    def first(self) -> recursions.FirstDerivatives:
        """First derivatives of the kinetic energy minus the potential of gravity.
        The derivatives are with respect to the configuration q and the rates v.
        """
        gravity: Any = vec.ZERO
        for g in self._gravities:
            gravity = vec.add(gravity, tuple(self.graph.number(c) for c in (g.x, g.y, g.z)))
        links, _ = recursions.gather_links(self.system, self.graph.number)
        return recursions.first_derivatives(links, self.graph.q_vector, self.graph.v_vector, gravity)

    @property
    def _gravities(self) -> list[Gravity]:
        return [p for p in self.system.potentials if isinstance(p, Gravity)]

    @cached_property
    def _other_potential(self) -> ca.SX:
        """Sum of the potential energies of all components except gravity."""
        others = (p for p in self.system.potentials if not isinstance(p, Gravity))
        return sum((p.energy(self.graph) for p in others), ca.SX(0))

    @cached_property
    def T(self) -> ca.SX:
        return ca.SX(self.first.T)

    @cached_property
    def V(self) -> ca.SX:
        return sum((g.energy(self.graph) for g in self._gravities), self._other_potential)

    @cached_property
    def L(self) -> ca.SX:
        return self.T - self.V

    @cached_property
    def L_q(self) -> ca.SX:
        return ca.vertcat(*self.first.Lq) - self.potential_gradient

    @cached_property
    def potential_gradient(self) -> ca.SX:
        """Gradient (nq,) of the potential energy without gravity, with respect to the configuration q."""
        return ca.gradient(self._other_potential, self.graph.q_vector)

    @cached_property
    def L_v(self) -> ca.SX:
        return ca.vertcat(*self.first.Lv)

    @cached_property
    def F(self) -> ca.SX:
        """Generalized forces (nq,) on all configuration variables, dynamic and kinematic."""
        total: dict[str, Any] = {}
        for force in self.system.forces:
            for name, value in force.generalized(self.graph).items():
                total[name] = total.get(name, 0.0) + value
        return ca.vertcat(*(total.get(name, 0.0) for name in self.system.variables), ca.SX(0, 1))

    @cached_property
    def F_u(self) -> ca.SX:
        """Derivative (nq, nu) of the generalized forces with respect to the inputs."""
        u = self.graph.u_vector
        return ca.jacobian(self.F, u) if u.numel() else ca.SX(self.nq, 0)

    @cached_property
    def nonholonomic(self) -> list[bool]:
        """List with an entry for each constraint: True for a velocity constraint A(q) dq = 0."""
        return [isinstance(c, VelocityConstraint) for c in self._kept.values()]

    @cached_property
    def h(self) -> ca.SX:
        """Values h(q) (m,) of the constraints; the entries of velocity constraints are 0."""
        g, rows = self.graph, []
        for name, c in self._kept.items():
            rows.append(ca.SX(1, 1) if isinstance(c, VelocityConstraint) else ca.SX(c.value(g)))
            self._refuse(name, rows[-1], "velocities", g.v_vector, VELOCITIES)
            self._refuse(name, rows[-1], "inputs", g.u_vector)
        return vec.column(rows)

    @cached_property
    def sizes(self) -> ca.SX:
        """Scales (m, 2) of the rounding errors of m constraints.
        A rounding error is a few machine epsilons times its scale. The first column has the scales of the
        constraint values h(q) and of their derivatives with respect to angles; the second column has those of
        the derivatives with respect to translations.
        """
        return constraint_sizes(self.graph, self._kept.values())

    @cached_property
    def directions(self) -> ca.SX:
        """Constraint Jacobian (m, nd), with negligible rows set to 0.
        The derivatives are with respect to the nd dynamic variables. A row is negligible if it consists of
        rounding errors only.
        """
        columns = [int(n not in self.system.angles) for n in self.system.dynamic]
        J = ca.densify(self.Dh[:, : self.nd])
        negligible = ca.sum2(ca.fabs(J) <= NEGLIGIBLE * self.sizes[:, columns]) == self.nd
        return J * ca.repmat(ca.if_else(negligible, 0.0, 1.0), 1, self.nd)

    @cached_property
    def slips(self) -> ca.SX:
        """Slip velocities A(q) v (m,) of the velocity constraints; the entries of other constraints are 0."""
        return vec.column(
            [
                self._slip(name, c) if isinstance(c, VelocityConstraint) else ca.SX(1, 1)
                for name, c in self._kept.items()
            ]
        )

    def _slip(self, name: str, constraint: VelocityConstraint) -> ca.SX:
        g = self.graph
        rate = ca.SX(constraint.rate(g))
        self._refuse(name, rate, "inputs", g.u_vector)
        slope = ca.jacobian(rate, g.v_vector)
        self._refuse(name, slope, "velocities other than linearly", g.v_vector)
        value = ca.Function("rest", [g.q_vector, g.v_vector, g.parameters], [rate])
        q, theta = np.linspace(0.3, 1.2, self.nq), np.array(list(self.system.parameters.values()), float)
        if float(value(q, np.zeros(self.nq), theta)) != 0.0:
            raise ModelError(
                f"{self.system.name}: the constraint {name} is {float(value(q, 0 * q, theta)):.3g} at rest, "
                "expected A(q) dq, which is 0 there; prescribe a motion by a frame with a kinematic "
                'variable, K("name")'
            )
        return slope @ g.v_vector

    def _refuse(self, name: str, value: Any, what: str, symbol: ca.SX, advice: str = "") -> None:
        """Raise `ModelError` if the value of a constraint depends on time or on the given symbol."""
        if ca.depends_on(ca.SX(value), self.graph.t):
            raise ModelError(
                f"{self.system.name}: the constraint {name} depends on time; write a prescribed motion "
                'as a kinematic variable, K("name"), and give it as an input, '
                "f.inputs(rho_name=...)"
            )
        if ca.depends_on(ca.SX(value), symbol):
            kind = "a holonomic constraint is h(q) = 0, one on velocities A(q) dq = 0"
            raise ModelError(f"{self.system.name}: the constraint {name} depends on {what}; {kind}{advice}")

    @cached_property
    def Dh(self) -> ca.SX:
        """Constraint Jacobian (m, nq): derivatives of h(q), and the matrix A(q) of velocity constraints.

        Its rows are the directions of impulses.
        """
        slope = ca.jacobian(self.h, self.graph.q_vector)
        return slope + ca.jacobian(self.slips, self.graph.v_vector) if any(self.nonholonomic) else slope

    @cached_property
    def M(self) -> ca.SX:
        """Mass matrix M(q) (nq, nq), computed by the composite rigid body algorithm."""
        return _rows(recursions.mass_matrix(self.first.links, self.nq))

    @cached_property
    def second(self) -> tuple[ca.SX, ca.SX, ca.SX]:
        """Second derivatives L_qq, L_vq (rows v, columns q) and L_vv of the Lagrangian.

        Those of kinetic energy and gravity are recursive, the others by automatic differentiation.
        """
        blocks = recursions.second_derivatives(self.first, self.nq)
        return _rows(blocks.qq) - self.stiffness, _rows(blocks.vq), _rows(blocks.vv)

    @cached_property
    def stiffness(self) -> ca.SX:
        """Hessian (nq, nq) of the potential energy without gravity, with respect to the configuration q."""
        return ca.hessian(self._other_potential, self.graph.q_vector)[0]

    @property
    def state_args(self) -> list[ca.SX]:
        """Symbols q, v, u, t and parameters, the arguments of the CasADi functions that `function` makes."""
        g = self.graph
        return [g.q_vector, g.v_vector, g.u_vector, g.t, g.parameters]

    def function(self, name: str, outputs: list[ca.SX], extra: list[ca.SX] | None = None) -> ca.Function:
        """Make a CasADi function with the arguments q, v, u, t and the parameters.
        The symbols `extra` are further arguments.
        """
        return ca.Function(name, [*self.state_args, *(extra or [])], outputs)

    def velocity(self, p: ca.SX) -> tuple[ca.SX, ca.SX]:
        """Return the velocities of the dynamic variables from their momenta p (nd,).
        Return also the constraint multipliers.

        They solve M v = p - Dh' mu with Dh v = 0 (the velocities satisfy the constraints), given the
        kinematic velocities in ``graph.v_vector``. Velocities and multipliers mu are expressions.
        """
        nd, v_k = self.nd, vec.part(self.graph.v_vector, self.nd)
        a = p - (self.M[:nd, nd:] @ v_k if self.nq > nd else 0.0)
        Dh = self.Dh
        b = -(Dh[:, nd:] @ v_k) if self.nq > nd else ca.SX.zeros(Dh.shape[0], 1)
        x, y = self.saddle.solve(ca.vertsplit(a), ca.vertsplit(b))
        return vec.column(x), vec.column(y)

    def legendre(self, p: ca.SX, mu: ca.SX) -> ca.SX:
        """Return the residual of the equations between the momenta p and the velocities (Legendre transform).
        The constraint multipliers in these equations are mu.

        It is M v - p + Dh' mu and Dh v of `velocity`, at any ``graph.v_vector``.
        """
        nd, Dh = self.nd, self.Dh
        momenta = vec.part(self.L_v, 0, nd) - p
        return ca.vertcat(momenta + Dh[:, :nd].T @ mu if Dh.shape[0] else momenta, Dh @ self.graph.v_vector)

    def legendre_solved(self, B: ca.SX) -> ca.SX:
        """Solve [[M, Dh'], [Dh, 0]] X = B, with the mass matrix M and the constraint Jacobian Dh.

        X and B are (nd + m, any); M and Dh are those of the dynamic variables.
        """
        solutions = []
        for column in ca.horzsplit(B):
            entries = [row[0] for row in scalars(column)]
            solutions.append(self.saddle.solve(entries[: self.nd], entries[self.nd :]))
        return ca.sparsify(ca.horzcat(*(vec.column([*x, *y]) for x, y in solutions)))

    @cached_property
    def saddle(self) -> Saddle:
        """Symbolic solver of M x + Dh' y = a, Dh x = b, with the mass matrix and the constraint Jacobian."""
        J = scalars(self.Dh[:, : self.nd])
        return Saddle(self.mass_inverse, J, [[vec.minus(0.0, e) for e in row] for row in J])

    @cached_property
    def mass_inverse(self) -> SparseLU | ArticulatedInverse:
        """Symbolic solver of linear systems whose matrix is the mass matrix of the dynamic variables.

        It is recursive for long trees.
        """
        if self.depths < LONG:
            return SparseLU(scalars(self.M[: self.nd, : self.nd]))
        links = self.first.links
        return ArticulatedInverse.of_masses(links, [link.pose for link in links], self.nd, [0.0] * self.nd)

    def hinged(self, terms: ca.SX, dt: ca.SX) -> bool:
        """Return whether O(n) recursions can solve linear systems with the matrix M + `terms`.
        M is the mass matrix. The expression `terms` may contain the symbol `dt` of the step length.

        The couplings of the matrix `terms` must be within hinges, and it must be symmetric at rest.
        """
        pairs = list(zip(*terms.sparsity().get_triplet(), strict=True))
        if all(i == j for i, j in pairs):
            return True
        if not within_hinges(self.first.links, pairs):
            return False
        g, q = self.graph, np.random.default_rng(0).uniform(0.3, 1.2, self.nq)
        function = self.function("terms", [terms], [dt])
        C = np.array(
            function(q, 0 * q, [0.0] * g.u_vector.numel(), 0.0, [*self.system.parameters.values()], 1.0)
        )
        return bool(np.abs(C - C.T).max() <= SYMMETRIC * np.abs(C).max())

    @cached_property
    def depths(self) -> int:
        """Sum of the squared depths of all links in the tree.
        It measures the cost of factorizing the mass matrix.

        The depth of a link is the number of dynamic variables from the root to the link.
        """
        depth: list[int] = []
        for link in self.first.links:
            parent_depth = depth[link.parent] if link.parent >= 0 else 0
            depth.append(parent_depth + (link.index < self.nd))
        return sum(d * d for d in depth)

    @cached_property
    def mass_scale(self) -> np.ndarray:
        """Typical diagonal entries (nd,) of the mass matrix, by which equations and velocities are scaled."""
        return typical_masses(self.system)

    def mass_scale_with(self, parameters: Mapping[str, float]) -> np.ndarray:
        """Return `mass_scale` (nd,) for given values of the parameters."""
        return self._recalled("masses", typical_masses, parameters)

    @cached_property
    def natural_sizes(self) -> np.ndarray:
        """Typical magnitudes (nq,) of the variables: 1 rad for an angle, a natural length for a translation.
        The natural length, m, is a typical length of the mechanism.
        """
        return self.natural_sizes_with({})

    def natural_sizes_with(self, parameters: Mapping[str, float]) -> np.ndarray:
        """Return `natural_sizes` (nq,) for given values of some parameters."""
        length = self._recalled("length", natural_length, parameters)
        return np.where(self._turning, 1.0, length)

    @cached_property
    def _turning(self) -> np.ndarray:
        """Mask (nq,) of the variables that are angles."""
        angles = self.system.angles
        return np.array([name in angles for name in self.system.variables], bool)

    def _recalled(
        self,
        name: str,
        function: Callable[[System, Mapping[str, float]], Any],
        parameters: Mapping[str, float],
    ) -> Any:
        """Return a function's result for given values of the parameters; the last result is stored."""
        values = {**self.system.parameters, **parameters}
        known = self._results.get(name)
        if known is None or known[0] != values:
            known = self._results[name] = values, function(self.system, values)
        return known[1]

    def rotors(self, theta: np.ndarray) -> np.ndarray:
        """Return the inertia of the geared rotors at each variable (nq,); 0 for a variable without a rotor.

        The rotors are the `RotorInertia` components.
        """
        values = dict(zip(self.system.parameters, theta, strict=True))
        inertias = np.zeros(self.nq)
        for kinetic in self.system.kinetic:
            a = kinetic.inertia
            a = a.of(values[a.name]) if isinstance(a, Parameter) else a
            inertias[self.system.variable_index(kinetic.variable)] += float(a)
        return inertias

    # -- numerical evaluation -----------------------------------------------------------------------

    def _value(
        self, name: str, q: Any, v: Any, parameters: dict[str, float] | None, u: np.ndarray | None = None
    ) -> np.ndarray:
        if name not in self._evaluators:
            self._evaluators[name] = Evaluator(lambda: self.function(name, [getattr(self, name)]))
        theta = np.array(list({**self.system.parameters, **(parameters or {})}.values()), float)
        if len(theta) != len(self.system.parameters):
            raise ValueError(f"unknown parameters in {parameters}; known are {list(self.system.parameters)}")
        q = as_configuration(self.system, q, "configuration")
        v = as_configuration(self.system, v, "velocity")
        u = np.zeros(len(self.system.inputs)) if u is None else u
        return self._evaluators[name](q, v, u, np.zeros(1), theta)[0]

    def kinetic_energy(self, q: Any, v: Any, **parameters: float) -> float:
        """Return the kinetic energy T(q, v), J; q and v may be arrays or dicts by name."""
        return float(self._value("T", q, v, parameters)[0, 0])

    def potential_energy(self, q: Any, **parameters: float) -> float:
        """Return the potential energy V(q), J."""
        return float(self._value("V", q, None, parameters)[0, 0])

    def lagrangian(self, q: Any, v: Any, **parameters: float) -> float:
        """Return the value of the Lagrangian L = T - V, J ([T] (11))."""
        return float(self._value("L", q, v, parameters)[0, 0])

    def momentum(self, q: Any, v: Any, **parameters: float) -> np.ndarray:
        """Return the momentum dL/dv (nq,) ([T] (25))."""
        return self._value("L_v", q, v, parameters)[:, 0]

    def mass_matrix(self, q: Any, **parameters: float) -> np.ndarray:
        """Return the mass matrix M(q) (nq, nq) ([T] (27))."""
        return self._value("M", q, None, parameters)

    def holding(self, q: Any, v: Any = None, a: Any = None, **parameters: float) -> np.ndarray:
        """Return inputs (nu,) that hold the mechanism in equilibrium at the configuration q.
        With velocities v and accelerations a, these are the inputs that cause the accelerations.

        They compensate gravity, springs and damping. With velocities `v` and accelerations `a` they are the
        inputs of that motion: inverse dynamics in continuous time, M a + bias = F(u) - Dh' lambda
        (docs/maths/arms.md, (5)). If several inputs achieve this, the result is the smallest one if forces
        are affine in the inputs, else the one that Newton's method finds from zero. If none does, a
        ModelError names the variable and the missing force.
        """
        values = [self._value(n, q, v, parameters)[: self.nd] for n in ("bias", "M")]
        bias, M, Dh = *values, self._value("Dh", q, v, parameters)[:, : self.nd]
        a = as_configuration(self.system, a, "acceleration")
        load, u = M @ a + bias[:, 0], np.zeros(len(self.system.inputs))

        def unheld(force: np.ndarray) -> np.ndarray:
            """Return the part of a generalized force that constraint forces cannot balance."""
            return force - Dh.T @ np.linalg.lstsq(Dh.T, force, rcond=1e-12)[0] if len(Dh) else force

        def missing(u: np.ndarray) -> np.ndarray:
            return unheld(load - self._value("F", q, v, parameters, u)[: self.nd, 0])

        residual, size = missing(u), np.linalg.norm
        enough = 1e-9 * max(np.abs(load).max(initial=0.0), np.abs(residual).max(initial=0.0), 1e-12)
        for _ in range(HOLDING if u.size else 0):
            if np.abs(residual).max() <= 1e-3 * enough:
                break
            F_u = unheld(self._value("F_u", q, v, parameters, u)[: self.nd])
            step, length = np.linalg.lstsq(F_u, residual, rcond=1e-12)[0], 1.0
            trial = missing(u + step)
            while not size(trial) < size(residual) and length > 1e-3:
                length /= 2
                trial = missing(u + length * step)
            if not size(trial) < size(residual):
                break
            u, residual = u + length * step, trial
        worst = int(np.argmax(np.abs(residual)))
        if np.abs(residual[worst]) > enough:
            name = self.system.dynamic[worst]
            transforms = (node.frame.transform for node in self.system.nodes)
            angle = any(t.variable and t.variable.name == name and t.rotational for t in transforms)
            unit = "N m" if angle else "N"
            raise ModelError(
                f"{self.system.name}: no input balances this configuration: {name!r} lacks "
                f"{residual[worst]:.3g} {unit}; see vioc.control.equilibrium for equilibria"
            )
        return u

    def task_inertia(self, frame: str, q: Any, **parameters: float) -> np.ndarray:
        """Return the operational-space inertia (J M^-1 J')^-1 (6, 6) of a frame, in the frame's axes.

        It is a pseudo-inverse if the matrix is singular.
        """
        return np.linalg.pinv(self.mobility(frame, q, **parameters), rcond=1e-13, hermitian=True)

    def mobility(self, frame: str, q: Any, **parameters: float) -> np.ndarray:
        """Return the mobility J M^-1 J' (6, 6) of a frame.
        It maps a wrench on the frame to the acceleration of the frame that the wrench causes.

        It is in the frame's axes, for motions that the constraints allow. It is regular at every
        configuration.
        """
        J, Dh = self._jacobian(frame, q, parameters), self.constraint_jacobian(q, **parameters)
        M, Dh = self.mass_matrix(q, **parameters)[: self.nd, : self.nd], Dh[:, : self.nd]
        _, sizes, V = np.linalg.svd(Dh)
        Z = V[int((sizes > 1e-10).sum()) :].T  # motions that the constraints allow
        JZ = J[:, : self.nd] @ Z
        return JZ @ np.linalg.solve(Z.T @ M @ Z, JZ.T)

    def manipulability(self, frame: str, q: Any, rows: str = "xyz", **parameters: float) -> float:
        """Return Yoshikawa's manipulability sqrt(det(J J')) of a frame.
        J consists of those rows of the frame's Jacobian that the letters in `rows` select.

        It is 0 if the frame cannot move in one of the directions. `rows` selects x, y, z (linear, m per unit
        of q) and a, b, c (angular about them, rad).
        """
        if not rows or set(rows) - set("xyzabc"):
            raise ModelError(f"manipulability: rows: expected letters of xyzabc, got {rows!r}")
        J = self._jacobian(frame, q, parameters)[["xyzabc".index(r) for r in rows], : self.nd]
        return float(np.prod(np.linalg.svd(J, compute_uv=False))) if len(J) <= self.nd else 0.0

    def _jacobian(self, frame: str, q: Any, parameters: dict[str, float]) -> np.ndarray:
        """Return the Jacobian (6, nq) of a frame's body velocity."""
        if (name := f"jacobian of {frame}") not in self._evaluators:
            J = ca.densify(ca.jacobian(self.graph.body_velocity(frame), self.graph.v_vector))
            self._evaluators[name] = Evaluator(self.function("jacobian", [J]))
        return self._value(name, q, None, parameters)

    @cached_property
    def bias(self) -> ca.SX:
        """Bias force (nq,) in the equations of motion M a + bias = F - Dh' lambda.
        M is the mass matrix, a the accelerations, F the generalized forces without a potential, Dh the
        constraint Jacobian and lambda the constraint multipliers.

        It contains Coriolis and centrifugal forces, and those of potentials.
        """
        return self.second[1] @ self.graph.v_vector - self.L_q

    def constraints(self, q: Any, **parameters: float) -> np.ndarray:
        """Return the constraint values h(q) (m,); those of velocity constraints are 0."""
        return self._value("h", q, None, parameters)[:, 0]

    def constraint_jacobian(self, q: Any, **parameters: float) -> np.ndarray:
        """Return the constraint Jacobian (m, nq), with the rows A(q) of velocity constraints."""
        return self._value("Dh", q, None, parameters)

    def constraint_sizes(self, q: Any, **parameters: float) -> np.ndarray:
        """Return scales (m, 2) of the rounding errors of m constraints.
        A rounding error is a few machine epsilons times its scale. The first column has the scales of the
        constraint values h(q) and of their derivatives with respect to angles; the second column has those of
        the derivatives with respect to translations.
        """
        return self._value("sizes", q, None, parameters)

    def closure(self, q: Any, **parameters: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the constraint values h(q) (m,), their Jacobian (m, nq), and scales (m,) for them.
        A scale is the size of the terms that cancel in h(q) = 0. Whole turns of an angle do not change these
        terms; the rounding error of many turns counts.
        """
        h, J = self.constraints(q, **parameters), self.constraint_jacobian(q, **parameters)
        far = np.abs(q)
        far = np.where(self._turning, np.minimum(far, 2 * np.pi) + ROUNDED_TURNS * far, far)
        sizes = np.abs(J) @ (self.natural_sizes_with(parameters) + far)
        return h, J, sizes + self.constraint_sizes(q, **parameters)[:, 0]

    def violated_constraints(self, q: Any, **parameters: float) -> dict[str, float]:
        """Return the constraints that a configuration violates: their values h(q) by name.
        The tolerance is `VIOLATED`, relative to the terms that cancel in h(q) = 0. A value that is no number
        violates its constraint.
        """
        h, _, sizes = self.closure(q, **parameters)
        wrong = np.flatnonzero(~(np.abs(h) <= VIOLATED * sizes))
        return {self.constraint_names[i]: float(h[i]) for i in wrong}

    def constraint_directions(self, q: Any, **parameters: float) -> np.ndarray:
        """Return the constraint Jacobian (m, nd), with negligible rows set to 0.
        The derivatives are with respect to the nd dynamic variables. A row is negligible if it consists of
        rounding errors only.
        """
        return self._value("directions", q, None, parameters)
