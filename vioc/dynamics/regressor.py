"""Equations of motion as a linear function Y(q, v, a) pi of the inertial parameters pi.

Maths: docs/maths/identification.md, "The linear regressor".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import casadi as ca
import numpy as np

from vioc.checks import check_array, check_rows, near_misses
from vioc.compile.evaluate import Evaluator
from vioc.dynamics.algebra import vectors as vec
from vioc.dynamics.description.component import Component
from vioc.dynamics.description.numbers import Number, Parameter
from vioc.dynamics.description.system import System
from vioc.dynamics.kinematics import FrameGraph
from vioc.dynamics.lagrangian import Lagrangian
from vioc.dynamics.terms.potentials import Gravity, MassGravity
from vioc.errors import ModelError

TEN = ("m", "mx", "my", "mz", "Jxx", "Jyy", "Jzz", "Jxy", "Jxz", "Jyz")


class Regressor:
    """Regressor Y(q, v, a): the equations of motion as a linear function of inertial and force parameters.

    The equations are linear in these; the remaining terms are evaluated with it. The parameters of a body are
    its mass, first moments m c and moments of inertia J about its frame's origin, in the frame's axes (Jxy
    the entry of the matrix); parameters in which forces are linear follow.

    Parameters
    ----------
    lagrangian : Lagrangian
    linear : sequence of str
        Parameters of forces and potentials in which they are linear: friction, stiffness, gains.
    **parameters : float
        Values of the other declared parameters other than their defaults.

    Attributes
    ----------
    names : tuple of str
        ``"BODY.m"``, ..., then `linear`.
    bodies : tuple of str
    linear : tuple of str
    numbers : (bodies, 10)
        Values of the description: mass, centre of mass, inertia about it.
    start : (n,)
        The same in the regressor's parameters, and values of `linear`.

    Raises
    ------
    ModelError
        For parameters that are unknown, in which forces are not linear, on which no force depends, or that
        are in the kinematics; for forces, and potentials other than gravity, that depend on a body's
        parameters.
    """

    def __init__(self, lagrangian: Lagrangian, linear: Sequence[str] = (), **parameters: float):
        self.lagrangian = lagrangian
        self.system = system = lagrangian.system
        names = list(system.parameters)
        self.linear = tuple(linear)
        for n in (*linear, *parameters):
            if n not in names:
                raise ModelError(f"unknown parameter {n!r}; {near_misses(n, names)}")
        self.theta = np.array(list({**system.parameters, **parameters}.values()), float)
        numbers = body_numbers(system, lagrangian.graph.parameters)
        self.bodies = tuple(numbers)
        self.names = (*(f"{b}.{n}" for b in self.bodies for n in TEN), *self.linear)
        self._function = Evaluator(self._build)
        values = ca.Function(
            "numbers", [lagrangian.graph.parameters], [ca.vertcat(*numbers.values(), ca.SX(0, 1))]
        )
        self.numbers = np.array(values(self.theta)).reshape(-1, 10)
        values_of_linear = [self.theta[names.index(n)] for n in self.linear]
        self.start = np.concatenate([*(standard(b) for b in self.numbers), values_of_linear])
        if any(lagrangian.nonholonomic):
            raise ModelError(f"{system.name}: the regressor has no constraints on velocities; use identify")
        for term in of_bodies(system):
            raise ModelError(
                f"{system.name}: {term.label()} depends on inertias of bodies; the regressor "
                "allows this for inertia and gravity only: use identify"
            )

    def _build(self) -> ca.Function:
        lag, g = self.lagrangian, self.lagrangian.graph
        a = ca.SX.sym("a", lag.nq)
        nodes = [i for i, node in enumerate(self.system.nodes) if node.frame.mass is not None]
        terms = ca.vertcat(
            *(self._terms(i) for i in nodes), ca.SX(0, 1)
        )  # terms of L, by the parameters of a body
        momenta = ca.jacobian(terms, g.v_vector)
        flat = ca.vec(momenta)
        state = ca.vertcat(g.q_vector, g.v_vector)
        rate = ca.jtimes(flat, state, ca.vertcat(g.v_vector, a))
        Y = (ca.reshape(rate, momenta.shape) - ca.jacobian(terms, g.q_vector)).T
        others = (p for p in self.system.potentials if not isinstance(p, (Gravity, MassGravity)))
        remainder = ca.gradient(sum((p.energy(g) for p in others), ca.SX(0)), g.q_vector) - lag.F
        for kinetic in self.system.kinetic:
            i = self.system.variable_index(kinetic.variable)
            remainder[i] += g.number(kinetic.inertia) * a[i]
        index = [list(self.system.parameters).index(n) for n in self.linear]
        symbols = ca.vertcat(*(g.parameters[i] for i in index), ca.SX(0, 1))
        more = ca.jacobian(remainder, symbols)
        for i, n in enumerate(self.linear):
            if ca.depends_on(more, symbols[i]):
                raise ModelError(
                    f"forces are not linear in the parameter {n!r}; estimate it by shooting, identify"
                )
            if ca.depends_on(Y, symbols[i]) or ca.depends_on(lag.Dh, symbols[i]):
                raise ModelError(
                    f"the parameter {n!r} is in the kinematics; estimate it by shooting, identify"
                )
            if not ca.depends_on(remainder, symbols[i]):
                raise ModelError(
                    f"no force depends on the parameter {n!r}; remove it from linear= (inertias of bodies "
                    "are estimated anyway)"
                )
        remainder = ca.substitute(remainder, symbols, ca.SX.zeros(len(index))) if index else remainder
        outputs = [ca.densify(e) for e in (ca.horzcat(Y, more), remainder, lag.Dh)]
        args = [g.q_vector, g.v_vector, a, g.u_vector, g.t, g.parameters]
        return ca.Function("regressor", args, outputs)

    def _terms(self, i: int) -> ca.SX:
        """Return the derivatives (10,) of the Lagrangian with respect to the inertial parameters of one body.
        The body is that of frame number i.
        """
        g = self.lagrangian.graph
        v, w = (vec.column(e) for e in g.node_velocity(i))
        R, p = g.node_pose(i)
        gravity = ca.SX.zeros(3)
        for term in self.system.potentials:
            its = isinstance(term, MassGravity) and self.system.frame_index(term.frame) == i
            if its or isinstance(term, Gravity):
                gravity += ca.vertcat(*(g.number(getattr(term, axis)) for axis in "xyz"))
        first = ca.cross(v, w) + vec.matrix(R).T @ gravity
        second = ca.vertcat(w**2 / 2, w[0] * w[1], w[0] * w[2], w[1] * w[2])
        return ca.vertcat(ca.sumsqr(v) / 2 + ca.dot(gravity, vec.column(p)), first, second)

    def __call__(
        self, q: np.ndarray, v: np.ndarray, a: np.ndarray, u: np.ndarray, t: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the regressor Y, the remaining force and the constraint Jacobian at N samples.
        The remaining force is the part of the equations of motion that does not depend on the inertial and
        force parameters which Y multiplies.

        They are Y (N, nq, n), the rest (N, nq) and Dh (N, m, nq), at N samples. Y pi + rest = Dh' lambda: the
        rest does not depend on pi and contains forces and inputs with negative sign. u (N, nu) are inputs of
        forces, t (N,) times; prescribed motions are in q, v, a (N, nq).
        """
        variables, inputs = self.system.variables, self.system.inputs
        q = check_rows(q, "regressor: q", variables)
        v, a = (check_array(e, q.shape, f"regressor: {n}", variables) for n, e in (("v", v), ("a", a)))
        u = check_array(u, (len(q), len(inputs)), "regressor: u", inputs)
        t = check_array(t, (len(q),), "regressor: t")[:, None]
        Y, remainder, Dh = self._function(q, v, a, u, t, self.theta)
        return Y, remainder[..., 0], Dh


class _Bodies(FrameGraph):
    """Symbolic kinematics of a mechanism whose bodies have symbols as masses and inertias.

    The symbols are collected in `symbols_by_name`.
    """

    def __init__(self, system: System):
        self.symbols_by_name: dict[str, ca.SX] = {}
        nodes = []
        for node in system.nodes:
            mass = node.frame.mass
            if mass is not None:
                m, *others = (self._named(n) for n in mass.numbers())
                mass = replace(mass, mass=m, inertia=tuple(others[:6]), com=tuple(others[6:]))
            nodes.append(replace(node, frame=replace(node.frame, mass=mass)))
        view: Any = _View(system, nodes)
        super().__init__(view)

    def _named(self, value: Number) -> Parameter:
        name = f"number-of-bodies-{len(self.symbols_by_name)}"
        self.symbols_by_name[name] = ca.SX.sym(name)
        return Parameter(name, float(value))

    def number(self, value: Number) -> Any:
        if isinstance(value, Parameter) and value.name in self.symbols_by_name:
            return value.of(self.symbols_by_name[value.name])
        return super().number(value)


class _View:
    """View of a system in which the frames are replaced by other frames.
    All other attributes are those of the system.
    """

    def __init__(self, system: System, nodes: list):
        self._system, self.nodes = system, tuple(nodes)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._system, name)


def of_bodies(system: System) -> list[Component]:
    """Return the forces and potentials, except gravity, that depend on masses or inertias of bodies.

    Inertias are mass, centre of mass and moments of inertia.
    """
    g, dependent = _Bodies(system), list[Component]()
    numbers = ca.vertcat(*g.symbols_by_name.values(), ca.SX(0, 1))
    for potential in system.potentials:
        if not isinstance(potential, (Gravity, MassGravity)):
            slope = ca.gradient(ca.SX(potential.energy(g)), g.q_vector)
            dependent += [potential] * ca.depends_on(slope, numbers)
    for force in system.forces:
        values = ca.vertcat(*map(ca.SX, force.generalized(g).values()), ca.SX(0, 1))
        dependent += [force] * ca.depends_on(values, numbers)
    return dependent


def standard(numbers: np.ndarray) -> np.ndarray:
    """Convert a body's inertial parameters (10,) from the centre of mass to the frame's origin.

    They are mass, first moments and moments of inertia, from mass, centre of mass and moments about it (10,).
    """
    m, c = numbers[0], numbers[1:4]
    about = m * (c @ c * np.eye(3) - np.outer(c, c))
    (xx, yy, zz), (xy, xz, yz) = np.diag(about), (about[0, 1], about[0, 2], about[1, 2])
    return np.concatenate([[m], m * c, numbers[4:] + [xx, yy, zz, xy, xz, yz]])


def body_numbers(system: System, theta: ca.SX) -> dict[str, ca.SX]:
    """Return the ten inertial parameters of each body, as a dict of expressions by frame name.

    They are mass, centre of mass (3) and moments of inertia about it (6). A frame without a name is called by
    its variable, or that of its nearest ancestor with one. `theta` are symbols of the system's parameters, in
    their order.
    """
    names = list(system.parameters)

    def number(value: Any) -> Any:
        return value.of(theta[names.index(value.name)]) if isinstance(value, Parameter) else value

    bodies: dict[str, ca.SX] = {}
    for i, node in enumerate(system.nodes):
        mass = node.frame.mass
        if mass is None:
            continue
        name = node.frame.name or _moved_by(system, i)
        while name in bodies:
            name += "'"
        numbers = (mass.mass, *mass.com, *mass.inertia)
        bodies[name] = ca.vertcat(*(ca.SX(number(n)) for n in numbers))
    return bodies


def _moved_by(system: System, i: int) -> str:
    """Return the name of the variable that moves frame number i.
    It is the variable of the frame, or else that of the nearest ancestor that has a variable.
    """
    while i >= 0:
        variable = system.nodes[i].frame.transform.variable
        if variable is not None:
            return str(variable.name)
        i = system.nodes[i].parent
    return "world"
