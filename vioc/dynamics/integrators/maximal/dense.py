"""Equations of a step in maximal coordinates with dense matrices, for solvers in numpy."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, partial

import casadi as ca
import numpy as np

from vioc.compile.evaluate import Evaluator
from vioc.dynamics.contact.cones import Variables
from vioc.dynamics.contact.interior import ContactStep, End, EndProblem, InteriorPoint, Step
from vioc.dynamics.contact.look import Look
from vioc.dynamics.contact.polytopes import NUMBERS, OFF
from vioc.dynamics.integrators.maximal.body_equations import Assembly
from vioc.dynamics.integrators.maximal.body_space import POSE, STATE, TWIST
from vioc.dynamics.integrators.maximal.graph import StepGraph


class BodyEnd(End):
    """Residuals and Newton directions of the momentum balance at either end of a step.

    Parameters
    ----------
    graph : StepGraph
    nu : int
    arrival : bool
        True for the balance at the end of the step, whose unknowns are the velocities there. False for the
        balance at the start, whose unknowns are the twists during the step.
    """

    def __init__(self, graph: StepGraph, nu: int, arrival: bool):
        n, theta = graph.n, graph.terms.parameters
        self.rows, self.variables = len(graph.names), Variables([t.cone for t in graph.touches])
        sizes = [t.cone.size for t in graph.touches]
        names = {"V": TWIST * n, "lambda": self.rows, "y": sum(sizes), "Z": POSE * n, "base": TWIST * n}
        V, lam, y, Z, base = (ca.SX.sym(name, size) for name, size in names.items())
        u, t, dt, goal = ca.SX.sym("u", nu), ca.SX.sym("t"), ca.SX.sym("dt"), ca.SX.sym("goal", 2)
        dV, speed = ca.SX.sym("dV", TWIST * n), ca.SX.sym("speed")
        places = ca.SX.sym("places", NUMBERS * len(graph.places))
        E = Assembly(graph, u, t, dt, theta, None, places)
        ys = E.on.split(y, sizes)
        constants = E.held(ca.vertsplit(Z, POSE), arrival)
        balance = E.at(V, base, constants)
        pushes, (mismatch, products, multipliers) = E.pushed(balance, constants, ys, goal)
        residuals = E.left(balance, constants, E.by_group(lam), pushes)
        F, rhs = E.system(balance, constants, residuals, ys, goal)
        corner = np.concatenate([[0], np.cumsum(graph.sizes)])
        matrix = ca.SX(int(corner[-1]), int(corner[-1]))
        for (i, j), block in F.items():
            matrix[int(corner[i]) : int(corner[i + 1]), int(corner[j]) : int(corner[j + 1])] = E.on.sum(block)
        point = [V, lam, y, Z, base, u, t, dt, theta, places]

        def function(name: str, more: list, *results: ca.SX) -> Evaluator:  # built on first use
            def build() -> ca.Function:
                return ca.Function(name, [*point, *more], [ca.densify(ca.SX(r)) for r in results])

            return Evaluator(build)

        stack = E.on.stack
        self.newton = function("newton", [goal], matrix, stack([E.on.sum(r) for r in rhs]))
        self.expand = function("expand", [goal, dV], E.expanded(balance, constants, ys, goal, E.twists(dV)))
        violations = stack(E.off(balance, arrival))
        self.residuals = function("residuals", [goal], stack(residuals), violations, mismatch, products)
        self.begin = function("begin", [speed, goal], E.begun(balance, constants, speed, goal))
        self.multipliers = function("multipliers", [], multipliers)
        self.gaps = function("gaps", [], stack(balance.gaps))
        if not arrival:
            self.work = function("work", [], E.worked(balance, base))
        elif E.loops:
            self.work = function("work", [], E.worked_on_arrival(constants, E.by_group(lam)))


class DenseStep(ContactStep):
    """Solver of steps in numpy.
    It first solves the momentum balance at the start of a step, then the momentum balance at its end.

    Parameters
    ----------
    graph : StepGraph
    nu : int
    whole : callable
        Function from the multipliers of the two ends to those of the step.
    """

    def __init__(self, graph: StepGraph, nu: int, whole: Callable):
        self.n, self._graph, self._nu, self._whole = graph.n, graph, nu, whole

    @cached_property
    def ends(self) -> list[End]:
        return [BodyEnd(self._graph, self._nu, arrival) for arrival in (False, True)]

    @cached_property
    def released(self) -> DenseStep:
        """Equations of a step of the same mechanism without its contacts and joint limits."""
        if not self._graph.touches:
            return self
        return DenseStep(self._graph.selected(np.zeros(0, int)), self._nu, self._whole)

    @cached_property
    def _functions(self) -> tuple[Evaluator, Evaluator]:
        """Two evaluators of the poses and momenta of all bodies, one for each end of a step.
        The first maps (x, u, t, dt, parameters) to poses and momenta at the start. The second maps (x, V, u,
        t, dt, parameters), with the velocities V during the step, to positions with quaternions, poses and
        momenta at the end.
        """
        n, theta = self.n, self._graph.terms.parameters
        x, V = ca.SX.sym("x", (STATE + TWIST) * n), ca.SX.sym("V", TWIST * n)
        u, t, dt = ca.SX.sym("u", self._nu), ca.SX.sym("t"), ca.SX.sym("dt")
        E, z = Assembly(self._graph, u, t, dt, theta), ca.vertsplit(x[: STATE * n], STATE)
        poses = ca.vertcat(*E.poses(z))
        base = E.kicked(E.momenta(x[STATE * n :]), poses)
        states = E.moved(z, V)
        ends = ca.vertcat(*E.poses(states))
        outputs = [ca.vertcat(*states), ends, E.landed(V, ends)]
        start = ca.Function("start", [x, u, t, dt, theta], [poses, base])
        end = ca.Function("end", [x, V, u, t, dt, theta], outputs)
        return Evaluator(start), Evaluator(end)

    @property
    def nowhere(self) -> np.ndarray:
        """Data of contact points of boxes and hulls, for a step in which no box or hull touches another."""
        return np.tile(OFF, len(self._graph.places))

    def leaving(self, x, u, t: float, dt: float, theta, places=None) -> EndProblem:
        """Return the momentum balance that determines the velocities during a step from state x."""
        args = u, np.array([t + 0.5 * dt]), np.array([dt]), theta
        Z, base = self._functions[0](x, *args)
        touch_places = self.nowhere if places is None else places
        return self._problem(0, (Z[:, 0], base[:, 0], *args, touch_places), x[STATE * self.n :], dt)

    def arriving(self, x, V, u, t: float, dt: float, theta, places=None) -> tuple[EndProblem, np.ndarray]:
        """Return the momentum balance that determines the velocities at the end of a step.
        V are the velocities during the step. The second result has the positions and quaternions at the end.
        """
        args = u, np.array([t + 0.5 * dt]), np.array([dt]), theta
        z, Z, base = self._functions[1](x, V, *args)
        touch_places = self.nowhere if places is None else places
        return self._problem(1, (Z[:, 0], base[:, 0], *args, touch_places), V, dt), z[:, 0]

    def _problem(self, end: int, args: tuple, guess: np.ndarray, dt: float) -> EndProblem:
        extent = 1 + float(np.abs(args[0] / self._graph.pose_sizes).max())
        return EndProblem(self.ends[end], args, guess, dt, extent)

    def solve(
        self, solver: InteriorPoint, x, u, t: float, dt: float, theta, guess: np.ndarray | None = None
    ) -> Step:
        if not self._graph.pairs:
            return self._held(solver, x, u, t, dt, theta, self.nowhere, guess)
        look = Look(partial(self._graph.seen, dt=dt), self._graph.features.sizes, x)

        def solve(places: np.ndarray) -> Step:
            return self._held(solver, x, u, t, dt, theta, places, guess)

        return look.solved(solve, solver.tolerance)

    def _held(
        self, solver: InteriorPoint, x, u, t: float, dt: float, theta, places, guess: np.ndarray | None
    ) -> Step:
        """Solve a step with the contact points `places` between boxes and hulls."""
        leaving = self.leaving(x, u, t, dt, theta, places)
        departure = solver.solve_end(leaving if guess is None else leaving._replace(guess=guess))
        if not departure.error <= solver.tolerance:
            return Step(
                (departure,), np.full(len(x), np.nan), np.full(len(departure.multipliers), np.nan), places
            )
        problem, z = self.arriving(x, departure.V, u, t, dt, theta, places)
        arrival = solver.solve_end(problem)
        impulses = self._whole(departure.multipliers, arrival.multipliers)
        return Step((departure, arrival), np.concatenate([z, arrival.V]), impulses, places)
