"""Equations of a step in maximal coordinates, for the compiled solver.

Each function that `body_equations.Assembly` calls becomes an instruction of the tape. Bodies, constraints and
pivots of one kind share a function.
"""

from __future__ import annotations

import casadi as ca

from vioc.dynamics.contact.polytopes import NUMBERS
from vioc.dynamics.contact.tape import Tape, in_units
from vioc.dynamics.integrators.maximal.body_equations import Assembly
from vioc.dynamics.integrators.maximal.body_space import POSE, STATE, TWIST
from vioc.dynamics.integrators.maximal.graph import StepGraph


class BodyTape(Tape):
    """List of instructions that evaluate one momentum balance of a step.
    The momentum balance is that at the start or at the end of the step. The compiled solver executes the
    instructions.

    Parameters
    ----------
    graph : StepGraph
    nu : int
    departure : BodyTape, optional
        The list for the start of a step. If given, the new list is that for the end of the step; both share
        their functions.
    functions : list of casadi.Function, optional
        Functions of other lists of this mechanism, for reuse.

    Notes
    -----
    The input `carry` of the list for the start is the state. The input of the list for the end is the output
    `after` of the other list: positions, quaternions and momenta at the end of the step.
    """

    def __init__(
        self,
        graph: StepGraph,
        nu: int,
        departure: BodyTape | None = None,
        functions: list[ca.Function] | None = None,
    ):
        self._graph, self._nu, self._arrival = graph, nu, departure is not None
        super().__init__(functions if departure is None else departure.functions)

    def _write(self) -> None:
        graph, nu, arrival = self._graph, self._nu, self._arrival
        n, touches = graph.n, graph.touches
        sizes = [t.cone.size for t in touches]
        of_carry = [*[STATE] * n, TWIST * n]
        lengths = dict(carry=sum(of_carry), u=nu, t=1, dt=1, theta=graph.terms.parameters.numel())
        lengths |= dict(V=TWIST * n, multipliers=len(graph.names), y=sum(sizes), kappa=2, speed=1)
        lengths |= dict(places=NUMBERS * len(graph.places))
        self.places = {name: self.column(length) for name, length in lengths.items()}
        carry, u, t, dt, theta, V, multipliers, y, kappa, speed, touch_places = self.places.values()
        *z, momenta = self.split(carry, of_carry)  # for a departure these are twists
        E, ys = Assembly(graph, u, t, dt, theta, self, touch_places), self.split(y, sizes)
        put = self.places.__setitem__

        self.begin("start")
        poses = E.poses(z)
        constants, one = E.held(poses, arrival), in_units(POSE, graph.pose_sizes[:POSE])
        put("extent", self.stack([self.call(one, [pose])[0] for pose in poses]))
        put("guess", momenta)
        base = momenta if arrival else E.kicked(E.momenta(momenta), constants.Z)

        self.begin("leave")
        balance = E.at(V, base, constants)
        put("values", self.stack(E.off(balance, arrival)))
        put("gaps", self.stack(balance.gaps))

        self.begin("begin")
        put("fresh", E.begun(balance, constants, speed, kappa))

        self.begin("rest")
        pushes, pushed = E.pushed(balance, constants, ys, kappa)
        residuals = E.left(balance, constants, E.by_group(multipliers), pushes)
        put("left", self.stack(residuals))
        for name, block in zip(("mismatch", "products", "impulses"), pushed, strict=True):
            put(name, block)

        self.begin("solve")
        dV, new_multipliers = E.solved(
            *E.system(balance, constants, residuals if touches else balance.rest, ys, kappa)
        )
        put("dV", self.stack(dV))
        put("found", self.stack(new_multipliers))
        put("dy", E.expanded(balance, constants, ys, kappa, dV))

        self.begin("work")
        if not arrival:
            work = E.worked(balance, base)
        elif E.loops:
            work = E.worked_on_arrival(constants, E.by_group(multipliers))
        else:
            work = self.column(0)
        put("work", work)

        self.begin("after")
        if arrival:
            put("after", self.column(0))
            return
        states = E.moved(z, V)
        put("after", self.stack([*states, E.landed(V, self.stack(E.poses(states)))]))
