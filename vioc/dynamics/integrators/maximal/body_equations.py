"""Equations of a step in maximal coordinates, for all solvers and derivatives.

The kernel, the dense solvers, the derivatives and the instruction tables of the compiled solver share them.
V_k are the velocities during the step, nu_k those at its start, Z the poses, and h is the step length.

    M nu_k + h/2 F - G' lambda + J' impulses - p-(V_k) = 0,   g(Z_k+1) = 0             leaving: V_k, lambda
    p+(V_k) + h/2 F - G' mu + J' impulses - M nu_k+1 = 0,     h G(Z_k+1) nu_k+1 = 0    arriving: nu_k+1, mu

The matrix J has the derivatives of the gaps and slips of contacts, whose impulses obey contact laws. In this
package, the momentum balance at the start of a step is called its departure, and the balance at the end its
arrival. Newton's system of either balance is

    [ D + J' S K  G' ] [ dV      ]   [ residual of the momenta + J' c ]
    [ H           0  ] [ dlambda ] = [ -g                             ]

[M] (20), (24a), (28a), (29a); docs/maths/maximal.md and docs/maths/contact.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any, NamedTuple

import casadi as ca
import numpy as np

from vioc.dynamics.algebra.block_elimination import MINUS, PLUS, Blocks, Expressions, Terms, Values
from vioc.dynamics.contact.polytopes import NUMBERS, OFF
from vioc.dynamics.integrators.maximal.body_space import TWIST
from vioc.dynamics.integrators.maximal.graph import StepGraph
from vioc.dynamics.integrators.maximal.joint_constraints import ConstraintNode


class Held(NamedTuple):
    """Quantities that are constant while a momentum balance is solved.
    They depend on the poses of the bodies; examples are the Jacobians of constraints and contacts. The
    unknowns of the momentum balance are velocities and impulses.

    Attributes
    ----------
    Z : (12 n,)
        Poses of the n bodies.
    poses : list of (12,)
        Parts of Z.
    G, J : lists of lists
        Transposed constraint Jacobians G' (6, rows), by groups and bodies; derivatives of gap and slip
        (rows, 6), by contacts and bodies.
    data : list
        Data of the contacts.
    D, levels : lists
        For the balance at the end of a step: the mass matrix M of each body; (level, derivatives of the gap
        by body..) of each contact, where the level is the closing speed of `geometry.opened`. Else empty.
    """

    Z: Any
    poses: list[Any]
    G: list[list[Any]]
    J: list[list[Any]]
    data: list[Any]
    D: list[Any]
    levels: list[list[Any]]


class BodyBalance(NamedTuple):
    """Momentum balance and constraints at the start or the end of a step.
    They are evaluated at the velocities V of the bodies.

    Attributes
    ----------
    V : list of (6,)
    rest : list of (6,)
        Residual momenta of each body: given momentum minus that of V.
    D : list of (6, 6)
        Derivatives of the momenta with respect to V.
    values : list of (rows,)
        For the balance at the start: values g, at the end of the step, of each group of constraints. For the
        balance at the end: dt G V, with the constraint Jacobian G.
    H : list of lists of (rows, 6)
        Derivatives of `values` with respect to V.
    slopes : list of (6, 6)
        Derivatives of the forces' impulses with respect to the twists, for each pair of bodies in `coupled`;
        empty for the balance at the end.
    gaps, K : lists
        Gap velocity of each contact, and its derivatives with respect to V, by body.
    next : list of (12,)
        For the balance at the start: poses at the end of the step.
    """

    V: list[Any]
    rest: list[Any]
    D: list[Any]
    values: list[Any]
    H: list[list[Any]]
    slopes: list[Any]
    gaps: list[Any]
    K: list[list[Any]]
    next: list[Any]


class Assembly:
    """Assembly of a step's equations from functions of single bodies, joints and contacts.

    Parameters
    ----------
    graph : StepGraph
    u, t, dt, theta
        Inputs; time in the middle of the step, s; step length, s; parameters.
    places : column
        NUMBERS values for each possible contact point of polytopes; by default no polytopes meet.
    on : Values
        Form of the equations: CasADi's expressions, or a `tape.Tape`.
    """

    def __init__(
        self,
        graph: StepGraph,
        u: Any,
        t: Any,
        dt: Any,
        theta: Any,
        on: Values | None = None,
        places: Any = None,
    ):
        self.graph, self.dt, self.theta = graph, dt, theta
        self.on: Values = Expressions() if on is None else on
        count = len(graph.places)
        places = self.on.constant(np.tile(OFF, count)) if places is None else places
        self._places = self.on.split(places, [NUMBERS] * count)
        self._environment = [u, t, dt, theta]

    def _each(self, function: Any, *args: Sequence[Any], more: Sequence[Any] = ()) -> list[list[Any]]:
        """Call one function for every body, with the arguments of that body, and return the results."""
        return [self.on.call(function(i), [*own, *more]) for i, own in enumerate(zip(*args, strict=True))]

    def off(self, balance: BodyBalance, arrival: bool) -> list[Any]:
        """Return the constraint values that belong to a momentum balance.
        The balance at the start of a step determines the constraint values at the end of the step. The
        balance at the end (`arrival` is True) determines the constraint rates there, which are multiplied by
        the step length. The result has one vector for each joint or loop constraint. Only the values of loop
        constraints are converted, to dimensionless displacements.
        """
        values = []
        for group, g, H in zip(self.graph.groups, balance.values, balance.H, strict=True):
            function = group.rows.swept_off if arrival else group.rows.landed_off
            length = self.on.constant(np.array([self.graph.natural.length]))
            values.append(g if group.joint else self.on.call(function, [g, *H, length, self.dt])[0])
        return values

    def twists(self, column: Any) -> list[Any]:
        """Split the velocities of all bodies into one vector for each body.
        Each vector has the linear and the angular velocity.
        """
        return self.on.split(column, [TWIST] * self.graph.n)

    def poses(self, z: Sequence[Any]) -> list[Any]:
        """Convert the position and quaternion (7,) of each body to a position and rotation matrix (12,)."""
        return [self.on.call(self.graph.pose, [a])[0] for a in z]

    def by_group(self, column: Any) -> list[Any]:
        """Split the vector of all constraint multipliers by joint or loop constraint."""
        return self.on.split(column, [g.rows.size for g in self.graph.groups])

    def held(self, poses: list[Any], arrival: bool = False) -> Held:
        """Evaluate quantities that are constant while a momentum balance is solved.
        They depend on the poses of the bodies; examples are the Jacobians of constraints and contacts. The
        momentum balance is that at the end of a step if `arrival` is True, else that at its start.
        """
        on, graph, theta, Z = self.on, self.graph, self.theta, self.on.stack(poses)
        G = [on.call(g.rows.held, [*(poses[i] for i in g.bodies), theta]) for g in graph.groups]
        data = self._data()
        body_poses = [[poses[i] for i in t.bodies] for t in graph.touches]
        touches = list(zip(graph.touches, body_poses, data, strict=True))
        J = [on.call(t.geometry.held, [*own, d]) for t, own, d in touches]
        if not arrival:
            return Held(Z, poses, G, J, data, [], [])
        zero_twist = on.constant([0.0] * TWIST)
        D = [on.call(graph.inertia(i), [zero_twist, theta])[1] for i in range(graph.n)]
        levels = [on.call(t.geometry.level, [*own, self.dt, d]) for t, own, d in touches]
        return Held(Z, poses, G, J, data, D, levels)

    def _data(self) -> list[Any]:
        """Return the numerical data, such as points and radii, of all contacts."""
        evaluated: dict[int, Any] = {}
        data = []
        for touch in self.graph.touches:
            numbers = self.graph.numbers(touch)
            if isinstance(numbers, ca.DM):
                values = self.on.constant(numbers)
            else:
                if id(numbers) not in evaluated:
                    evaluated[id(numbers)] = self.on.call(numbers, [self.theta])[0]
                values = evaluated[id(numbers)]
            if touch.place is not None:
                values = self.on.stack([self._places[touch.place], values])
            if not touch.cone.gap:  # half of the impulse of a step at each of its ends
                values = self.on.call(touch.geometry.loaded, [values, self.dt])[0]
            data.append(values)
        return data

    # -- momenta ----------------------------------------------------------------------------------------

    def momenta(self, V: Any) -> Any:
        """Return the momenta M V (6 n,) of n bodies at velocities V.
        M is the mass matrix.
        """
        on = self.on
        each = self._each(self.graph.inertia, self.twists(V), more=[self.theta])
        return on.stack([m[0] for m in each])

    def kicked(self, momenta: Any, Z: Any, V: Any = None) -> Any:
        """Return `momenta` (6 n,) of all bodies plus half of the impulse of the forces.
        The impulse is that over a whole step. The forces act at the poses Z; forces that depend on velocities
        are included only if velocities V are given.
        """
        terms = [(momenta, PLUS), (self.on.call(self.graph.still, [Z, *self._environment])[0], PLUS)]
        if V is not None and self.graph.coupled:
            terms.append((self.on.call(self.graph.moving, [Z, V, *self._environment])[0], PLUS))
        return self.on.sum(terms)

    def landed(self, V: Any, Z: Any) -> Any:
        """Return the momenta (6 n,) of all bodies at the end of a step.
        Constraint impulses are not included. V are the velocities during the step, Z the poses at its end.
        """
        landings = self._each(self.graph.landing, self.twists(V), more=[self.dt, self.theta])
        return self.kicked(self.on.stack([p[0] for p in landings]), Z, V)

    def moved(self, z: Sequence[Any], V: Any) -> list[Any]:
        """Return the position and quaternion (7,) of each body after a step at velocities V."""
        pairs = zip(z, self.twists(V), strict=True)
        return [self.on.call(self.graph.carried, [a, v, self.dt])[0] for a, v in pairs]

    # -- the two ends of a step -------------------------------------------------------------------------

    def leave(self, V: Any, base: Any, constants: Held) -> BodyBalance:
        """Return the momentum balance at the start of a step.
        It is evaluated at the velocities V of the bodies during the step. The result also has the constraint
        values at the end of the step. `base` are the initial momenta plus half of the impulses of those
        forces that do not depend on velocities. `constants` has the quantities that depend only on the
        initial poses, such as constraint Jacobians.
        """
        on, graph = self.on, self.graph
        twists, more = self.twists(V), [self.dt, self.theta]
        departures = self._each(graph.departure, twists, constants.poses, self.twists(base), more=more)
        rest, slopes = [g[0] for g in departures], []
        if graph.coupled:
            args = [constants.Z, V, *self._environment]
            total = on.sum([(on.stack(rest), PLUS), (on.call(graph.moving, args)[0], PLUS)])
            rest, slopes = self.twists(total), on.call(graph.slopes, args)

        def ends(bodies: tuple[int, ...]) -> list[Any]:
            return [*(departures[i][2] for i in bodies), *(departures[i][3] for i in bodies), self.dt]

        landed = [on.call(g.rows.landed, [*ends(g.bodies), self.theta]) for g in graph.groups]
        pairs = zip(graph.touches, constants.data, strict=True)
        fallen = [on.call(t.geometry.landed, [*ends(t.bodies), d]) for t, d in pairs]
        values, H = [v[0] for v in landed], [v[1:] for v in landed]
        D, poses = [g[1] for g in departures], [g[2] for g in departures]
        return BodyBalance(
            twists, rest, D, values, H, slopes, [a[0] for a in fallen], [a[1:] for a in fallen], poses
        )

    def arrive(self, V: Any, base: Any, constants: Held) -> BodyBalance:
        """Return the momentum balance at the end of a step.
        It is evaluated at the velocities V of the bodies at the end of the step. The result also has the
        rates of the constraints. `base` are the final momenta before the constraint and contact impulses act.
        `constants` has the quantities that depend only on the final poses, such as constraint Jacobians.
        """
        on, graph = self.on, self.graph
        twists = self.twists(V)
        rest = [r[0] for r in self._each(graph.stopped, twists, self.twists(base), more=[self.theta])]
        pairs = zip(graph.groups, constants.G, strict=True)
        rates = [on.call(g.rows.swept, [*G, *(twists[i] for i in g.bodies), self.dt]) for g, G in pairs]
        closing = [
            on.call(t.geometry.closing, [*level, *(twists[i] for i in t.bodies)])[0]
            for t, level in zip(graph.touches, constants.levels, strict=True)
        ]
        values, H, K = (
            [v[0] for v in rates],
            [v[1:] for v in rates],
            [level[1:] for level in constants.levels],
        )
        return BodyBalance(twists, rest, constants.D, values, H, [], closing, K, [])

    def at(self, V: Any, base: Any, constants: Held) -> BodyBalance:
        """Return the momentum balance at the start or the end of a step.
        It is evaluated at the velocities V of the bodies. `base` are the momenta before the constraint and
        contact impulses act. `constants` has the quantities that depend only on the poses, such as constraint
        Jacobians; it determines whether the balance at the start or the one at the end is returned.
        """
        return self.arrive(V, base, constants) if constants.D else self.leave(V, base, constants)

    # -- contacts -----------------------------------------------------------------------------------------

    def speeds(self, balance: BodyBalance, constants: Held) -> list[list[Any]]:
        """Return the Jacobians and velocities of each contact.
        For each contact, the list has the Jacobians of gap and slip from `constants`, and, from the momentum
        `balance`, the gap velocity and the velocities of the bodies in contact.
        """
        return [
            [*J, a, *(balance.V[i] for i in t.bodies)]
            for t, J, a in zip(self.graph.touches, constants.J, balance.gaps, strict=True)
        ]

    def begun(self, balance: BodyBalance, constants: Held, speed: Any, goal: Any) -> Any:
        """Return initial contact variables for the interior-point method.
        The values are inside the cones of the contact laws.
        """
        touches = zip(self.graph.touches, self.speeds(balance, constants), constants.data, strict=True)
        return self.on.stack([self.on.call(t.geometry.begun, [*s, speed, goal, d])[0] for t, s, d in touches])

    def pushed(
        self, balance: BodyBalance, constants: Held, y: Sequence[Any], goal: Any
    ) -> tuple[list[list[Any]], list[Any]]:
        """Return contact impulses on the bodies, and the residuals of the contact laws.
        They are evaluated at the velocities of the momentum `balance` and the contact variables y, with
        the contact Jacobians in `constants`. The results also include the complementarity products and the
        multipliers of the contacts.
        """
        touches = zip(self.graph.touches, self.speeds(balance, constants), y, constants.data, strict=True)
        results = [self.on.call(t.geometry.pushed, [*s, own, goal, d]) for t, s, own, d in touches]
        pushes = [f[:-3] for f in results]
        return pushes, [self.on.stack([f[i - 3] for f in results]) for i in range(3)]

    def lawful(
        self, balance: BodyBalance, constants: Held, p: Sequence[Any], kappa: Any
    ) -> tuple[list[list[Any]], list[Any]]:
        """Return contact impulses on the bodies, and the residuals of the contact laws.
        They are expressions of the contact multipliers p and the barrier parameter kappa, at the velocities
        of the momentum `balance` and with the contact Jacobians in `constants`.
        """
        touches = zip(self.graph.touches, constants.J, balance.gaps, p, constants.data, strict=True)
        results = [
            t.geometry.lawful(J, a, [balance.V[i] for i in t.bodies], own, kappa, d)
            for t, J, a, own, d in touches
        ]
        return [f[0] for f in results], [f[1] for f in results]

    def worked(self, balance: BodyBalance, base: Any) -> Any:
        """Return the kinetic energy that impulses add, and twice the kinetic energy.
        The impulses are those of constraints and contacts on the bodies at the start of a step. The second
        result is twice the total kinetic energy of the bodies.
        """
        each = zip(balance.V, self.twists(base), balance.rest, strict=True)
        return self.on.sum([(self.on.call(self.graph.work, [*own])[0], PLUS) for own in each])

    def relaxed(
        self, balance: BodyBalance, constants: Held, gaps: Sequence[tuple], y: Sequence[Any], kappa: Any
    ) -> tuple[list[list[Any]], list[Any]]:
        """Return contact impulses on the bodies, and the residuals of smooth contact laws.
        They are expressions of the contact variables y (module `laws`) and the barrier parameter kappa, at
        the velocities of the momentum `balance` and with the contact Jacobians in `constants`. For each
        contact, `gaps` has a pair: the gap velocity times a scale factor, and this factor.
        """
        touches = zip(self.graph.touches, constants.J, gaps, y, constants.data, strict=True)
        results = [
            t.geometry.relaxed(J, a, [balance.V[i] for i in t.bodies], own, kappa, d, share)
            for t, J, (a, share), own, d in touches
        ]
        return [f[0] for f in results], [f[1] for f in results]

    def impulses(self, balance: BodyBalance, constants: Held, kappa: Any) -> Any:
        """Return the contact multipliers that satisfy the contact laws.
        The contact laws are evaluated at the velocities of the momentum `balance`, with the contact
        Jacobians in `constants` and the barrier parameter kappa.
        """
        touches = zip(self.graph.touches, constants.J, balance.gaps, constants.data, strict=True)
        return self.on.stack(
            [t.geometry.held_by(J, a, [balance.V[i] for i in t.bodies], kappa, d) for t, J, a, d in touches]
        )

    # -- Newton's system ----------------------------------------------------------------------------------

    def left(
        self, balance: BodyBalance, constants: Held, multipliers: Any, pushes: Sequence[list[Any]] = ()
    ) -> list[Any]:
        """Return the residuals of the momentum balances of all bodies.
        They include the impulses of constraints and contacts.
        """
        terms: list[Terms] = [[(r, PLUS)] for r in balance.rest]
        for group, G, lam in zip(self.graph.groups, constants.G, multipliers, strict=True):
            for i, impulse in zip(group.bodies, self.on.call(group.rows.impulse, [*G, lam]), strict=True):
                terms[i].append((impulse, MINUS))
        for touch, push in zip(self.graph.touches, pushes, strict=False):
            for i, impulse in zip(touch.bodies, push, strict=True):
                terms[i].append((impulse, PLUS))
        return [self.on.sum(t) for t in terms]

    def system(
        self,
        balance: BodyBalance,
        constants: Held,
        residuals: Sequence[Any],
        y: Sequence[Any] = (),
        goal: Any = None,
    ) -> tuple[Blocks, list[Terms]]:
        """Return the matrix and the right-hand side of a Newton system as blocks.
        The system is that of the momentum `balance`, at the start or the end of a step. The argument
        `constants` has the constraint and contact Jacobians, `residuals` the residuals of the momentum
        balances of the bodies, y the contact variables, and `goal` the barrier parameter and the selection of
        the friction limit.
        """
        on, graph = self.on, self.graph
        F: Blocks = {(i, i): [(d, PLUS)] for i, d in enumerate(balance.D)}
        rhs: list[Terms] = [[(r, PLUS)] for r in residuals]
        for pair, slope in zip(graph.coupled, balance.slopes, strict=bool(balance.slopes)):
            F.setdefault(pair, []).append((slope, MINUS))
        for j, (group, G, H, g) in enumerate(
            zip(graph.groups, constants.G, balance.H, balance.values, strict=True)
        ):
            node = graph.n + j
            F[node, node] = [(on.nothing(group.rows.size), PLUS)]
            rhs.append([(g, MINUS)])
            for i, column, h in zip(group.bodies, G, H, strict=True):
                F[i, node], F[node, i] = [(column, PLUS)], [(h, PLUS)]
            if graph.weighs(group):
                self._weigh(F, rhs, group, G, H, g)
        for touch, args in zip(graph.touches, self._touching(balance, constants, y, goal), strict=False):
            self._spread(F, rhs, touch.bodies, on.call(touch.geometry.condensed, args))
        return F, rhs

    def _touching(
        self, balance: BodyBalance, constants: Held, y: Sequence[Any], goal: Any
    ) -> list[list[Any]]:
        """Return, for each contact, the arguments of the function `Geometry.condensed`.
        This CasADi function eliminates the contact's variables from the Newton system.
        """
        touches = zip(
            self.graph.touches, constants.J, balance.K, balance.gaps, y, constants.data, strict=False
        )
        return [
            [*J, *K, a, *(balance.V[i] for i in t.bodies), own, goal, d] for t, J, K, a, own, d in touches
        ]

    def _weigh(self, F: Blocks, rhs: list[Terms], group: ConstraintNode, G: list, H: list, g: Any) -> None:
        """Add the constraint equations of a joint, with weights, to momentum balances.
        The momentum balances are those of the joint's bodies. The method is used if the joint's child body
        has no rotational inertia about some axis. The dictionary F has the blocks of the matrix of the Newton
        system, and `rhs` its right-hand sides.
        """
        weight = self.graph.weight(group, [h.sparsity() for h in H])
        outputs = iter(self.on.call(weight, [*G, *H, g, self.dt]))
        for i in group.bodies:
            rhs[i].append((next(outputs), PLUS))
            for k in group.bodies:
                F.setdefault((i, k), []).append((next(outputs), PLUS))

    @staticmethod
    def _spread(F: Blocks, rhs: list[Terms], bodies: tuple[int, ...], condensed: list[Any]) -> None:
        """Add the terms of one contact to the Newton system of the bodies.
        The terms `condensed` remain after elimination of the contact's variables.
        """
        outputs = iter(condensed)
        for i in bodies:
            rhs[i].append((next(outputs), PLUS))
        for i, j in product(bodies, repeat=2):
            F.setdefault((i, j), []).append((next(outputs), PLUS))

    def expanded(
        self, balance: BodyBalance, constants: Held, y: Sequence[Any], goal: Any, dV: Sequence[Any]
    ) -> Any:
        """Return the changes of the contact variables in a Newton step.
        They follow from the changes dV of the velocities of the bodies.
        """
        touches = zip(self.graph.touches, self._touching(balance, constants, y, goal), strict=True)
        changes = [[*args, *(dV[i] for i in t.bodies)] for t, args in touches]
        pairs = zip(self.graph.touches, changes, strict=True)
        return self.on.stack([self.on.call(t.geometry.expanded, args)[0] for t, args in pairs])

    def solved(self, F: Blocks, rhs: list[Terms]) -> tuple[list[Any], list[Any]]:
        """Return the changes of velocities and multipliers in a Newton step.
        They solve the Newton system with the matrix blocks F and the right-hand sides `rhs`.
        """
        x = self.graph.elimination.solve(self.on, F, rhs)
        return x[: self.graph.n], x[self.graph.n :]

    def project(self, constants: Held, momenta: Any) -> tuple[Any, Any]:
        """Return the velocities that satisfy the constraints, and their multipliers.
        The velocities nu (6 n,) and multipliers mu solve M nu = momenta - G' mu, G nu = 0, with mass matrix M
        and constraint Jacobian G.
        """
        balance = self.arrive(self.on.constant([0.0] * (TWIST * self.graph.n)), momenta, constants)
        nu, mu = self.solved(*self.system(balance, constants, balance.rest))
        return self.on.stack(nu), self.on.stack(mu)

    @property
    def loops(self) -> bool:
        """Flag, True if there are constraints other than joints, such as closed loops."""
        return not all(group.joint for group in self.graph.groups)

    def undetermined(self, constants: Held, multipliers: Sequence[Any]) -> Any:
        """Return 0 if the final configuration of a step determines the velocities.
        Otherwise, near a singular position of the constraints, return infinity. The velocities are those at
        the end of a step, `multipliers` the constraint impulses there by groups.

        Branches of the constraints cross at singular positions. If the angle between constraint gradients is
        below about sqrt(e), a position within the tolerance e may lie on either branch. Constraint impulses
        that turn the velocities onto another branch nearly cancel: their sum is the single impulses times the
        sine of this angle. The test therefore compares the sum with the single impulses.
        """
        on, graph = self.on, self.graph
        single: Terms = []
        terms: list[Terms] = [[] for _ in range(graph.n)]
        for group, G, lam in zip(graph.groups, constants.G, multipliers, strict=True):
            radii = on.constant(graph.radii[list(group.bodies)])
            single.append((on.call(group.rows.impulses, [*G, lam, radii])[0], PLUS))
            for i, impulse in zip(group.bodies, on.call(group.rows.impulse, [*G, lam]), strict=True):
                terms[i].append((impulse, PLUS))
        pairs = zip(terms, graph.radii, strict=True)
        sums = [(on.call(graph.impulse, [on.sum(t), on.constant([r])])[0], PLUS) for t, r in pairs if t]
        return on.call(graph.undetermined, [on.sum(single), on.sum(sums)])[0]

    def worked_on_arrival(self, constants: Held, multipliers: Sequence[Any]) -> Any:
        """Return the values that the solver tests at the end of a step.
        At the start of a step, the solver tests whether impulses add kinetic energy (`End.work`). There is no
        such test at the end, where the constants 0 and 1 replace the energies. The last entry is 0 if the
        final configuration determines the velocities (method `undetermined`), else infinity.
        """
        return self.on.stack([self.on.constant([0.0, 1.0]), self.undetermined(constants, multipliers)])
