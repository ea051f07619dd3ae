"""Lagrangian of a mechanism whose rotations are elements of SO(3).

It is computed from an auxiliary mechanism, the twin. In the twin, each rotation is a constant rotation, whose
nine matrix entries are parameters, followed by three angles about x, y, z. At zero angles the rates of the
angles are the body's angular velocity. The derivatives with respect to rotations follow
(docs/maths/groups.md, (6)).
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import Any

import casadi as ca

from vioc.dynamics.algebra import rotations as rot
from vioc.dynamics.algebra import tree_recursions as recursions
from vioc.dynamics.algebra import vectors as vec
from vioc.dynamics.algebra.articulated import ArticulatedInverse
from vioc.dynamics.charts import Chart
from vioc.dynamics.description.frame import Frame, Pose, Transform, nest
from vioc.dynamics.description.numbers import Parameter
from vioc.dynamics.description.system import System
from vioc.dynamics.integrators.groups.group_space import GroupSpace
from vioc.dynamics.lagrangian import LONG, Lagrangian


class _Attitude(Pose):
    """Constant rotation in the auxiliary mechanism of `GroupLagrangian`.
    The nine entries of its matrix are parameters. The auxiliary mechanism results from the user's mechanism
    if each rotation is replaced by such a constant rotation and three angles.
    """

    def __post_init__(self) -> None:
        """Omit the checks of the base class `Pose`, since the matrix entries are symbols."""


class GroupLagrangian:
    """Lagrangian, forces and constraints of a mechanism on R^nr x SO(3)^nb.

    Parameters
    ----------
    system : System
    rotations : tuple of Chart
    others : tuple of str
        Variables that belong to no rotation.

    Attributes
    ----------
    lagrangian : Lagrangian
        Lagrangian of the auxiliary mechanism, in which three angles replace each rotation.
    place, place_of : list of int
        Indices of (r, rotations) among the variables of the auxiliary mechanism, and the inverse permutation.

    Notes
    -----
    Configurations are q = (r, quaternions), rates v = (rates of r, angular velocities in the body's axes).
    Momenta, and derivatives with respect to r and rotation vectors, have the order of v.
    """

    def __init__(
        self, system: System, rotations: tuple[Chart, ...], others: tuple[str, ...], space: GroupSpace
    ):
        self.space = space
        self.lagrangian = Lagrangian(_twin_system(system, rotations))
        order = [*others, *(v for chart in rotations for v in chart.variables)]
        self.place = [self.lagrangian.system.dynamic.index(n) for n in order]
        self.place_of = [self.place.index(i) for i in range(len(self.place))]
        self.natural_sizes = self.lagrangian.natural_sizes[self.place]
        self._names = tuple(system.parameters)
        firsts = [chart.nodes[0] for chart in rotations]
        self._nodes = [i + sum(first <= i for first in firsts) for i in range(len(system.nodes))]

    def ours(self, rows: Any) -> ca.SX:
        """Reorder a vector from variables of the auxiliary mechanism to (r, rotations).
        The auxiliary mechanism has three angles in place of each rotation. The coordinates r are all
        variables that belong to no rotation.
        """
        return vec.column(rows[i] for i in self.place)

    def theirs(self, rows: list[Any]) -> list[Any]:
        """Reorder a vector from (r, rotations) to variables of the auxiliary mechanism.
        The auxiliary mechanism has three angles in place of each rotation. The coordinates r are all
        variables that belong to no rotation.
        """
        entries: list[Any] = [0.0] * len(rows)
        for i, row in zip(self.place, rows, strict=True):
            entries[i] = row
        return entries

    def _values(self, q: Any, theta: Any) -> dict[str, Any]:
        """Return the parameters of the auxiliary mechanism, by name, at a configuration q.
        They are the given parameters theta, and the matrix entries of all rotations, which are constant in
        the auxiliary mechanism.
        """
        values = dict(zip(self._names, ca.vertsplit(theta), strict=True))
        for i, s in enumerate(self.space.attitudes(q)):
            R = rot.matrix(s)
            values |= {_entry(i, k): R[k // 3][k % 3] for k in range(9)}
        return {n: values[n] for n in self.lagrangian.system.parameters}

    def at(self, q: Any, theta: Any) -> tuple[ca.SX, ca.SX]:
        """Return the variables and parameters of the auxiliary mechanism.
        They are those at a configuration q of the mechanism. In the auxiliary mechanism each rotation is a
        constant rotation, whose matrix entries are parameters, followed by a rotation by three angles. These
        angles are zero in the result.
        """
        angles = vec.column(self.theirs([*ca.vertsplit(q[: self.space.nr]), *[ca.SX(0)] * 3 * self.space.nb]))
        return angles, vec.column(self._values(q, theta).values())

    @cached_property
    def place_at(self) -> ca.Function:
        """CasADi function that computes the variables of the auxiliary mechanism.
        Its arguments are (q, parameters), with the configuration q; its results are the variables and
        parameters of the auxiliary mechanism. In this mechanism each rotation is a constant rotation, whose
        matrix entries are parameters, followed by a rotation by three angles. These angles are zero in the
        result.
        """
        q, *_, theta = self._symbols
        return ca.Function("place", [q, theta], list(self.at(q, theta)))

    @cached_property
    def _symbols(self) -> tuple[ca.SX, ca.SX, ca.SX, ca.SX, ca.SX]:
        """CasADi symbols of configuration q, rates v, inputs u, time t and parameters."""
        nu, space = self.lagrangian.graph.u_vector.numel(), self.space
        sizes = {"q": space.nq, "v": space.nd, "u": nu, "t": 1, "theta": len(self._names)}
        return tuple(ca.SX.sym(n, m) for n, m in sizes.items())

    @cached_property
    def terms(self) -> ca.Function:
        """CasADi function that computes derivatives of L, forces and energies.
        Its arguments and results are (q, v, u, t, parameters) -> dL/dv, (dL/dr, n), F, T, V. Here L is the
        Lagrangian, r are the coordinates that belong to no rotation, n is the derivative of L with respect to
        rotation vectors, F are the generalized forces, and T and V are the kinetic and the potential energy.
        """
        lag, (q, v, u, t, theta) = self.lagrangian, self._symbols
        raw = lag.function("raw", [lag.L_v, lag.L_q, lag.F, lag.T, lag.V])
        angles, values = self.at(q, theta)
        rates = vec.column(self.theirs(ca.vertsplit(v)))
        *columns, T, V = raw(angles, rates, u, t, values)
        L_v, L_q, F = map(self.ours, columns)
        for i in range(self.space.nr, self.space.nd, 3):
            w, m = v[i : i + 3], L_v[i : i + 3]
            L_q[i + 1] -= w[0] * m[2]
            L_q[i + 2] -= w[1] * m[0] - w[0] * m[1]
        return ca.Function("terms", [q, v, u, t, theta], [L_v, L_q, F, T, V])

    @cached_property
    def constraint(self) -> ca.Function:
        """CasADi function that computes constraint values h (nm,) and Jacobian (nm, nd).
        Its arguments are (q, parameters). The first columns of the Jacobian are derivatives with respect to
        the coordinates r that belong to no rotation, the last those with respect to rotation vectors.
        """
        lag, g, (q, *_, theta) = self.lagrangian, self.lagrangian.graph, self._symbols
        h, Dh = ca.Function("raw", [g.q_vector, g.parameters], [lag.h, lag.Dh])(*self.at(q, theta))
        return ca.Function("h", [q, theta], [h, ca.densify(Dh[:, self.place])])

    @cached_property
    def directions(self) -> ca.Function:
        """CasADi function that computes the constraint Jacobian without rounding errors.
        Rows whose entries are all as small as rounding errors are set to zero. The arguments and results are
        (q, parameters) -> Dh (nm, nd), and a scale (nm,) of the rounding errors of each constraint: the
        errors are a few machine epsilons times this scale.
        """
        lag, g, (q, *_, theta) = self.lagrangian, self.lagrangian.graph, self._symbols
        raw = ca.Function("raw", [g.q_vector, g.parameters], [lag.directions, lag.sizes[:, 0]])
        J, sizes = raw(*self.at(q, theta))
        return ca.Function("directions", [q, theta], [J[:, self.place], ca.densify(sizes)])

    @cached_property
    def velocity(self) -> ca.Function:
        """CasADi function that computes the velocities v (nd,) of a state.
        The velocities are tangent to the constraints. The arguments are configuration, momenta and
        parameters, (q, p, parameters).
        """
        lag, g, (q, *_, theta) = self.lagrangian, self.lagrangian.graph, self._symbols
        p, their_p = ca.SX.sym("p", self.space.nd), ca.SX.sym("p", self.space.nd)
        raw = ca.Function("raw", [g.q_vector, their_p, g.parameters], [lag.velocity(their_p)[0]])
        angles, values = self.at(q, theta)
        v = raw(angles, vec.column(self.theirs(ca.vertsplit(p))), values)
        return ca.Function("velocity", [q, p, theta], [self.ours(v)])

    @cached_property
    def motion(self) -> ca.Function:
        """CasADi function that computes velocities, accelerations and multipliers.
        Its arguments and results are (q, p, u, t, parameters) -> rates (nd,), accelerations, multipliers of a
        state with configuration q and momenta p. The constraint forces are -Dh' times the multipliers (nm,),
        with the constraint Jacobian Dh.
        """
        lag, g, (q, _, u, t, theta) = self.lagrangian, self.lagrangian.graph, self._symbols
        bias = ca.jtimes(lag.L_v, g.q_vector, g.v_vector) - lag.L_q - lag.F
        bends = ca.jtimes(lag.Dh @ g.v_vector, g.q_vector, g.v_vector) if lag.Dh.shape[0] else ca.SX(0, 1)
        solution = lag.saddle.solve(ca.vertsplit(-bias), ca.vertsplit(-bends))
        raw = lag.function("raw", [*map(vec.column, solution)])
        p = ca.SX.sym("p", self.space.nd)
        v = self.velocity(q, p, theta)
        angles, values = self.at(q, theta)
        theirs, lam = raw(angles, vec.column(self.theirs(ca.vertsplit(v))), u, t, values)
        a = self.ours(ca.vertsplit(theirs))
        for i in range(self.space.nr, self.space.nd, 3):  # the twin's axes rotate with its angles
            w = v[i : i + 3]
            a[i : i + 3] += ca.vertcat(w[1] * w[2], -w[0] * w[2], w[0] * w[1])
        return ca.Function("motion", [q, p, u, t, theta], [v, a, lam], {"cse": True})

    def moved(self, expression: Any, q: Any, v: Any, theta: Any) -> ca.SX:
        """Evaluate an expression of the auxiliary mechanism at the configuration q.
        The rates of the configuration are v, the parameters are theta. In the auxiliary mechanism each
        rotation of the user's mechanism is a constant rotation, whose matrix entries are parameters, followed
        by three angles.
        """
        g = self.lagrangian.graph
        raw = ca.Function("raw", [g.q_vector, g.v_vector, g.parameters], [expression])
        angles, values = self.at(q, theta)
        return raw(angles, vec.column(self.theirs(ca.vertsplit(v))), values)

    @cached_property
    def masses(self) -> tuple[ca.Function, ca.Function, ca.Function]:
        """Three CasADi functions: factorization of the mass matrix M, and two solvers.
        The first is (q, parameters) -> factors. The second is (factors, a, y) -> x = M^-1 (a - Dh' y), for
        given multipliers y and the constraint Jacobian Dh. The third is (factors, a, b) -> y of the solution
        (x, y) of M x + Dh' y = a, Dh x = b. For long trees, the functions use recursions over the tree.
        """
        lag, g, (q, *_, theta) = self.lagrangian, self.lagrangian.graph, self._symbols
        nm = len(lag.constraint_names)
        entries = ca.vertcat(*lag.saddle.entries())
        raw = ca.Function("raw", [g.q_vector, g.parameters], [entries])
        sizes = ("w", entries.numel()), ("a", self.space.nd), ("y", nm)
        numbers, a, y = (ca.SX.sym(*each) for each in sizes)
        saddle, right = lag.saddle.with_entries(ca.vertsplit(numbers)), self.theirs(ca.vertsplit(a))
        x = vec.column(saddle.D.solve(right))
        for i, column in enumerate(saddle.Y):
            x += y[i] * vec.column(column)
        pushes = saddle.solve(right, ca.vertsplit(y) if nm else [])[1]
        return (
            ca.Function("factors", [q, theta], [raw(*self.at(q, theta))]),
            ca.Function("solve", [numbers, a, y], [self.ours(ca.vertsplit(x))]),
            ca.Function("pushes", [numbers, a, y], [vec.column(pushes)]),
        )

    @cached_property
    def settled(self) -> ca.Function:
        """CasADi function that projects momenta onto the constraints.
        Its arguments and results are (q, p, parameters) -> projected momenta, and the constraint impulses
        that produce the projection.
        """
        lag, g, (q, *_, theta) = self.lagrangian, self.lagrangian.graph, self._symbols
        p, their_p = ca.SX.sym("p", self.space.nd), ca.SX.sym("p", self.space.nd)
        raw = ca.Function("raw", [g.q_vector, their_p, g.parameters], [lag.velocity(their_p)[1]])
        angles, values = self.at(q, theta)
        impulse = raw(angles, vec.column(self.theirs(ca.vertsplit(p))), values)
        projected = p - self.constraint(q, theta)[1].T @ impulse
        return ca.Function("settled", [q, p, theta], [projected, impulse])

    @cached_property
    def places(self) -> ca.Function:
        """CasADi function that computes positions and rotation matrices of all frames.
        Its arguments and results are (q, parameters) -> positions (3, n), rotations (3, 3 n) of n frames.
        """
        g, (q, *_, theta) = self.lagrangian.graph, self._symbols
        poses = [g.node_pose(i) for i in self._nodes]
        p, R = ca.horzcat(*(vec.column(b) for _, b in poses)), ca.horzcat(*(vec.matrix(a) for a, _ in poses))
        raw = ca.Function("raw", [g.q_vector, g.parameters], [p, R])
        return ca.Function("places", [q, theta], list(raw(*self.at(q, theta))))

    # -- recursions over the tree -------------------------------------------------------------------

    @cached_property
    def long(self) -> bool:
        """Flag, True if recursions over the tree of bodies are faster than factorization.
        They are faster for long chains of bodies without constraints, in which forces and potentials besides
        gravity do not couple variables.
        """
        if self.lagrangian.depths < LONG or self.lagrangian.constraint_names:
            return False
        rows, columns = self._slopes.sparsity_out(0).get_triplet()
        return list(rows) == list(columns)

    @cached_property
    def _slopes(self) -> ca.Function:
        """CasADi function that computes the part of a Newton matrix due to forces.
        The Newton matrix of a step is the derivative of the momentum balance with respect to the increments
        of the configuration. Potentials except gravity count as forces.
        """
        lag, g, dt = self.lagrangian, self.lagrangian.graph, ca.SX.sym("dt")
        F_q, F_v = (ca.jacobian(lag.F, s) for s in (g.q_vector, g.v_vector))
        slopes = ca.sparsify(dt / 4 * (F_q - lag.stiffness) + F_v / 2)
        return lag.function("slopes", [slopes], [dt])

    def swept(self, q: Any, v: Any, u: Any, t: Any, dt: Any, theta: Any) -> ArticulatedInverse:
        """Return a solver of linear systems with a step's approximate Newton matrix.

        The matrix is the derivative of the momentum balance by the increments of the configuration: -M/dt
        plus `_slopes`, with the mass matrix M, in the order of the auxiliary mechanism's variables.
        """
        values = self._values(q, theta)

        def number(value: Any) -> Any:
            return values[value.name] if isinstance(value, Parameter) else float(value)

        angles, parameters = self.at(q, theta)
        rates = vec.column(self.theirs(ca.vertsplit(v)))
        diagonal = ca.diag(self._slopes(angles, rates, u, t, parameters, dt))
        links, _ = recursions.gather_links(self.lagrangian.system, number)
        places = [link.pose for link in recursions.placed(links, angles)]
        return ArticulatedInverse.of_masses(links, places, self.space.nd, ca.vertsplit(-dt * diagonal), -dt)


def _entry(i: int, k: int) -> str:
    return f"attitude-{i}-{k}"


def _twin_system(system: System, rotations: tuple[Chart, ...]) -> System:
    """Return the auxiliary mechanism of a system with rotations.
    In the auxiliary mechanism, each rotation is a constant rotation, whose nine matrix entries are
    parameters, followed by three angles. Derivatives with respect to these angles, at angles of zero, give
    the derivatives with respect to rotation vectors.
    """
    first = {chart.nodes[0]: i for i, chart in enumerate(rotations)}
    axes = {n: axis for chart in rotations for n, axis in zip(chart.nodes, "XYZ", strict=True)}
    flat: list[tuple[Frame, int]] = []
    indices = {-1: -1}
    for n, node in enumerate(system.nodes):
        parent = indices[node.parent]
        if n in first:
            entries: Any = tuple(Parameter(_entry(first[n], k), float(k % 4 == 0)) for k in range(9))
            flat.append((Frame(Transform("SE3", _Attitude((0.0, 0.0, 0.0), entries))), parent))
            parent = len(flat) - 1
        frame = replace(node.frame, children=())
        if n in axes:
            frame = replace(frame, transform=Transform(f"R{axes[n]}", frame.transform.value))
        indices[n] = len(flat)
        flat.append((frame, parent))
    return System(*nest(flat), *system.components, name=system.name)
