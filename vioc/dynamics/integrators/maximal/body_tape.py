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
        carry, u, t, dt, theta, V, multipliers, y, kappa, speed, where = self.places.values()
        *z, momenta = self.split(carry, of_carry)  # for a departure these are twists
        E, ys = Assembly(graph, u, t, dt, theta, self, where), self.split(y, sizes)
        put = self.places.__setitem__

        self.begin("start")
        poses = E.poses(z)
        held, one = E.held(poses, arrival), in_units(POSE, graph.pose_sizes[:POSE])
        put("extent", self.stack([self.call(one, [pose])[0] for pose in poses]))
        put("guess", momenta)
        base = momenta if arrival else E.kicked(E.momenta(momenta), held.Z)

        self.begin("leave")
        at = E.at(V, base, held)
        put("values", self.stack(E.off(at, arrival)))
        put("gaps", self.stack(at.gaps))

        self.begin("begin")
        put("fresh", E.begun(at, held, speed, kappa))

        self.begin("rest")
        pushes, pushed = E.pushed(at, held, ys, kappa)
        left = E.left(at, held, E.by_group(multipliers), pushes)
        put("left", self.stack(left))
        for name, block in zip(("mismatch", "products", "impulses"), pushed, strict=True):
            put(name, block)

        self.begin("solve")
        dV, found = E.solved(*E.system(at, held, left if touches else at.rest, ys, kappa))
        put("dV", self.stack(dV))
        put("found", self.stack(found))
        put("dy", E.expanded(at, held, ys, kappa, dV))

        self.begin("work")
        if not arrival:
            work = E.worked(at, base)
        elif E.loops:
            work = E.worked_on_arrival(held, E.by_group(multipliers))
        else:
            work = self.column(0)
        put("work", work)

        self.begin("after")
        if arrival:
            put("after", self.column(0))
            return
        moved = E.moved(z, V)
        put("after", self.stack([*moved, E.landed(V, self.stack(E.poses(moved)))]))
