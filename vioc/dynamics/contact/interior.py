"""Interior-point method (primal-dual) for steps with contact and joint limits, in numpy.

A step solves one or two momentum balances, one after the other: at its start and, in maximal coordinates, at
its end. Each is called an *end* of the step. Its unknowns are velocities, impulses of constraints and
variables of contact cones. The C code of maps has the same iteration. Maths: docs/maths/contact.md.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

import numpy as np

from vioc.compile.evaluate import Evaluator
from vioc.dynamics.contact.cones import BOUNDARY, CLIP, Variables
from vioc.dynamics.contact.natural_units import NaturalUnits
from vioc.dynamics.contact.rollouts import StepByStep
from vioc.maps.kernel import KernelMap

# constants of the C code
ITERATIONS, PATIENCE, STUCK, JAMMED, HALVINGS = 100, 20, 2, 8, 12
JUMP, LAND = 2, 6  # steps are clipped after 2 to 5 consecutive short steps
COLD, WARM = (
    (0.1, 10.0, 1e-3, 1e2, 1e3),
    0.01,
)  # initial barriers, relative to the energy of the closing contacts
TINY = 1e-15  # barrier of a motion without contact, relative to the mass moving a length per step
LEAST = 3e-5  # lengths of the mechanism per step, the least speed of a first guess
CENTERED, POLISHED = (
    1e-6,
    1e-9,
)  # relative distance of a product from kappa: accepted at the end, and attained by one more step
ROUNDS, SAME = 100, 1e-6  # solves with friction bounded by previous impulses, and their accepted change
GAIN = 0.2  # accepted energy from impulses, of the energy at the start: roots on the branch add less
SLIGHT = 1e6  # kinetic energy over kappa, always accepted, because a start can be slightly too deep
TYPICAL = 0.03  # speed, lengths per step, whose energy is the unit of kappa
DOWN = 10**-0.5  # factor of kappa in the continuation
SHORT, FAR, NEAR = 0.1, 0.5, 0.9  # step lengths that determine the decrease of the barrier


def fall(length: float) -> float:
    """Return the factor by which the barrier parameter is multiplied after a Newton step.
    The argument `length` is the fraction of the last Newton step that was taken. After very short steps, the
    factor is above 1.
    """
    if length < 0.1 * SHORT:
        return 3.0
    return 1.0 if length < SHORT else 0.3 if length < FAR else 0.1 if length < NEAR else 0.01


class End:
    """Equations of the momentum balance at either end of a step, with contact.
    The equations are functions of velocities V, constraint multipliers, variables y of contacts (such as gap
    rates and normal impulses) and further arguments `given`.

    Attributes
    ----------
    rows : int
        Number of constraints.
    variables : Variables
        Variables y of the cones.
    newton : Evaluator
        (.., goal) -> matrix and right-hand side of the Newton direction of (V, impulses). The argument `goal`
        of all functions is (kappa, lag): the barrier parameter, and 0 if given normal impulses bound
        friction, else 1.
    expand : Evaluator
        (.., goal, dV) -> dy.
    residuals : Evaluator
        (.., goal) -> balance, constraints, mismatches, products.
    begin : Evaluator
        (.., speed, goal) -> initial y.
    multipliers, gaps : Evaluator
        Multipliers of the contacts; rates of their gaps.
    work : Evaluator or None
        At the start of a step, the kinetic energy that impulses of constraints and contacts add, and twice
        the kinetic energy; an optional third value is 0 if the root is certified to be the motion, else
        infinity.
    """

    rows: int
    variables: Variables
    newton: Evaluator
    expand: Evaluator
    residuals: Evaluator
    begin: Evaluator
    multipliers: Evaluator
    gaps: Evaluator
    work: Evaluator | None = None


class EndProblem(NamedTuple):
    """Momentum balance at the start or the end of a step, with the values of its arguments.

    Attributes
    ----------
    end : End
    given : tuple
        Arguments of its functions after (V, multipliers, y).
    guess : array
        Guess of the velocities V.
    dt, extent : float
        Step length, s, and 1 + the largest coordinate in natural units, to which a residual dt V is relative.
    """

    end: End
    given: tuple
    guess: np.ndarray
    dt: float
    extent: float


class EndSolution(NamedTuple):
    """Solution of the momentum balance at the start or the end of a step.

    Attributes
    ----------
    V, lam, y : arrays
        Velocities, impulses of the constraints, variables of the cones.
    impulses : array
        Multipliers of the contacts.
    error : float
        Scaled residual; infinite if the products are not centered.
    iterations : int
    suspect : float
        0, or infinity if the root is not certified to be the motion.
    """

    V: np.ndarray
    lam: np.ndarray
    y: np.ndarray
    impulses: np.ndarray
    error: float
    iterations: int
    suspect: float = 0.0

    @property
    def multipliers(self) -> np.ndarray:
        return np.concatenate([self.lam, self.impulses])

    @property
    def unknowns(self) -> np.ndarray:
        return np.concatenate([self.V, self.multipliers])


class Step(NamedTuple):
    """Solution of one step of a one-step map with contact.
    It has the next state, the multipliers, and the solutions of the momentum balances at the step's ends.

    Attributes
    ----------
    ends : tuple of EndSolution
    x : (nx,)
        Next state.
    multipliers : array
        Multipliers of the map.
    held : array
        Contact points that were fixed in the step.
    """

    ends: tuple[EndSolution, ...]
    x: np.ndarray
    multipliers: np.ndarray
    held: np.ndarray = np.zeros(0)

    @property
    def error(self) -> float:
        return max(end.error for end in self.ends)

    @property
    def suspect(self) -> float:
        return max(end.suspect for end in self.ends)

    @property
    def iterations(self) -> int:
        return sum(end.iterations for end in self.ends)


class ContactStep(ABC):
    """Interface of the equations of a step with contact."""

    @abstractmethod
    def solve(
        self, solver: InteriorPoint, x, u, t: float, dt: float, theta, guess: np.ndarray | None = None
    ) -> Step:
        """Solve the step from state x under input u with an interior-point solver.

        The first guess of the velocities in the step is `guess`, by default the velocities of the state.
        """


class InteriorPoint:
    """Interior-point solver for the steps of a mechanism with contact.

    Parameters
    ----------
    step : ContactStep
    scales : array
        Masses and moments of inertia; momenta divided by them are velocities.
    natural : NaturalUnits
    mass : float
        Mass of the whole mechanism, kg.
    barrier : float
        Barrier parameter kappa of each end of a step, J.
    tolerance : float
    polish : bool
        Whether one more Newton step follows while complementarity products are not within 1e-9 of kappa. This
        step makes derivatives more accurate.
    judges : bool
        Whether roots whose impulses add energy are refused.

    Notes
    -----
    A line search on the residual and the complementarity products takes one step length for all variables. A
    step has converged when its scaled residual is within `tolerance` and every product differs from kappa by
    at most `CENTERED`, relative. Initial values depend on the state alone, so a step has the same bits in
    every rollout. The derivatives of impulses grow to gamma/s = 1e9, with the normal impulse gamma and the
    gap rate s; the rounding errors that they amplify vanish with the residual.
    """

    def __init__(
        self,
        step: ContactStep,
        scales: np.ndarray,
        natural: NaturalUnits,
        mass: float,
        barrier: float,
        tolerance: float,
        polish: bool = False,
        judges: bool = True,
    ):
        self.step, self._scales, self._natural, self._mass = step, scales, natural, mass
        self._floor, self.tolerance, self._polish, self._judges = barrier, tolerance, polish, judges

    def without_energy_test(self) -> InteriorPoint:
        """Return a copy of the solver that also accepts solutions whose contact impulses add energy.
        The caller must decide whether such a solution is valid.
        """
        args = self.step, self._scales, self._natural, self._mass, self._floor, self.tolerance, self._polish
        return InteriorPoint(*args, judges=False)

    def solve(self, x, u, t: float, dt: float, theta, guess: np.ndarray | None = None) -> Step:
        """Solve one step from state x under input u; theta are the parameters of the map.

        The first guess of the velocities in the step is `guess`, by default the velocities of the state.
        """
        return self.step.solve(self, x, u, t, dt, theta, guess)

    def solve_end(self, problem: EndProblem, lasting: bool = True) -> EndSolution:
        """Solve the momentum balance at the start or the end of a step.
        Several guesses are tried in turn. If `lasting` is True, the first guess assumes that closed contacts
        stay closed, and contains their impulses. The other guesses start from the motion without contact.

        If all guesses fail, friction is bounded by the normal impulses of previous solutions (method
        `_relax`). If that fails, the barrier parameter is decreased slowly (method `_follow`).
        """
        solution = self._true(problem, self._try(problem, self._last(problem) if lasting else None, 0))
        count = solution.iterations
        for start in range(0 if lasting else 1, len(COLD)):
            if solution.error <= self.tolerance:
                break
            solution = self._true(problem, self._try(problem, None, start))
            count += solution.iterations
        for other in (self._relax, self._follow):
            if solution.error <= self.tolerance:
                break
            solution = self._true(problem, other(problem, solution))
            count += solution.iterations
        return solution._replace(iterations=count)

    def _last(self, problem: EndProblem) -> EndSolution:
        """Return an initial guess for a step in which contacts stay closed.
        The contact impulses are estimated from the gaps at the start of the step.
        """
        E, nothing = problem.end, np.zeros(problem.end.variables.parts[-1])
        lam, zeros = np.zeros(E.rows), np.zeros(len(problem.guess))
        least = self._floor / (self._mass * self._natural.speed(problem.dt))
        goal = np.array([self._floor, 1.0])
        y = E.begin(zeros, lam, nothing, *problem.given, np.array([least]), goal)[0][:, 0]
        return EndSolution(problem.guess, lam, y, np.zeros(0), np.inf, 0)

    def _true(self, problem: EndProblem, solution: EndSolution) -> EndSolution:
        """Return the solution, with infinite error if its contact impulses add too much energy.
        An energy gain up to a fraction of the kinetic energy at the start is accepted, because curved gap
        functions can cause such a gain.
        """
        if problem.end.work is None:
            return solution
        work, twice, *more = problem.end.work(solution.V, solution.lam, solution.y, *problem.given)[0][:, 0]
        energy = 0.5 * max(twice, SLIGHT * self._floor)
        solution = solution._replace(suspect=sum(more))
        return solution if work <= GAIN * energy or not self._judges else solution._replace(error=np.inf)

    def _relax(self, problem: EndProblem, solution: EndSolution) -> EndSolution:
        """Solve the momentum balance repeatedly, with constant friction limits.
        In each solution, friction is bounded by the normal impulses of the previous solution. When the normal
        impulses agree with the previous ones, the original problem is solved from this solution.
        """
        gamma = problem.end.variables.before[:, 0]
        bound, last_change, stride, count = solution.y[gamma], np.inf, 1.0, 0
        for _ in range(ROUNDS):
            solution = self._try(problem, None, 1, bound)
            count += solution.iterations
            if not solution.error <= self.tolerance:
                return solution._replace(iterations=count)
            change = _largest(solution.y[gamma] - bound)
            if change <= SAME * _largest(solution.y[gamma]):
                break
            stride = (
                2 * stride if 0.8 * last_change < change < 1.25 * last_change else 1.0
            )  # convergence is slow near a fold
            last_change = change
            bound = np.maximum(bound + stride * (solution.y[gamma] - bound), CLIP * solution.y[gamma])
        solution = self._try(problem, solution, 1, resume=True)
        return solution._replace(iterations=count + solution.iterations)

    def _follow(self, problem: EndProblem, solution: EndSolution) -> EndSolution:
        """Solve the momentum balance for a decreasing sequence of barrier parameters.
        Each solution is the initial guess for the next barrier parameter. If Newton's method fails from this
        guess, guesses without contact impulses are tried.
        """
        natural, guess = self._natural, np.nan_to_num(problem.guess, posinf=0.0, neginf=0.0)
        moving = natural.length * np.abs(guess / natural.sizes).max(initial=0.0)
        level, count = self._mass * max(TYPICAL * natural.speed(problem.dt), moving) ** 2, 0
        solution = solution._replace(error=np.inf)
        while True:
            floor = max(level, self._floor)
            for start in (None, *range(len(COLD))):
                if start is not None:
                    solution = self._try(problem, None, start, floor=floor)
                elif solution.error <= self.tolerance:
                    solution = self._try(problem, solution, 1, resume=True, floor=floor)
                count += solution.iterations
                if solution.error <= self.tolerance:
                    break
            if not solution.error <= self.tolerance or level <= self._floor:
                return solution._replace(iterations=count)
            level *= DOWN

    def _try(
        self,
        problem: EndProblem,
        seed: EndSolution | None,
        start: int,
        bound: np.ndarray | None = None,
        resume: bool = False,
        floor: float | None = None,
    ) -> EndSolution:
        """Iterate Newton's method from one guess, and decrease the barrier parameter.
        The barrier parameter ends at `floor`, by default the value of the map. If `bound` is given, it has
        the normal impulses that limit friction.
        """
        floor = self._floor if floor is None else floor
        lag = 1.0 if bound is None else 0.0
        end = _EndIteration(problem, self._scales, self._natural, self._mass, floor, lag)
        point = end.first(seed, start, resume)
        if bound is not None:
            point[2][end.variables.before[:, 1]] = bound
        mass, weights, warm = self._mass, end.variables.centers, seed is not None and not resume
        residual, products = end.left_of(*point)
        deviation = _largest(products - floor * weights)
        length, count, short_steps, polished = 0.0, 0, 0, False
        unit = mass * (TYPICAL * self._natural.speed(problem.dt)) ** 2
        while count < ITERATIONS:
            solved = (
                residual * problem.dt <= self.tolerance * problem.extent and deviation <= CENTERED * floor
            )
            if solved and count:  # one more step improves a first guess that is within the tolerance
                if polished or not self._polish or deviation <= POLISHED * floor:
                    break
                polished = True
            mean = products @ weights / weights.sum()
            kappa = fall(length if count else FAR) * mean
            if length >= NEAR:
                kappa = min(kappa, unit * (mean / unit) ** 1.5)
            count += 1
            clip = start > 0 and JUMP <= short_steps < LAND
            point, residual, products, length, short = end.step(
                point, max(floor, kappa), residual, _largest(products - max(floor, kappa) * weights), clip
            )
            deviation = _largest(products - floor * weights)
            short_steps = short_steps + 1 if short else 0
            if (
                not np.isfinite(residual)
                or short_steps >= (STUCK if warm else JAMMED)
                or (warm and count >= PATIENCE)
            ):
                break
        error = residual * problem.dt / problem.extent if deviation <= CENTERED * floor else np.inf
        V, lam, y = point
        impulses = problem.end.multipliers(V, lam, y, *problem.given)[0][:, 0]
        return EndSolution(V, lam, y, impulses, error, count)


class _EndIteration:
    """Newton iteration for the momentum balance at the start or the end of a step.
    The unknowns are the velocities V, the impulses of constraints, and the variables y of contacts, such as
    gap rates and normal impulses.

    Parameters
    ----------
    problem : EndProblem
    scales, natural, mass, floor
        As in `InteriorPoint`; `floor` is the last barrier parameter.
    lag : float
        0 if given normal impulses bound friction, else 1.
    """

    def __init__(
        self,
        problem: EndProblem,
        scales: np.ndarray,
        natural: NaturalUnits,
        mass: float,
        floor: float,
        lag: float,
    ):
        self._problem, self._scales, self._natural = problem, scales, natural
        self._mass, self._floor, self._lag = mass, floor, lag
        self.variables = problem.end.variables

    def left_of(self, V, lam, y) -> tuple[float, np.ndarray]:
        """Return the norm of all residuals, and the complementarity products, of an iterate.
        The norm is that of speeds: each residual is converted to a speed and divided by the natural unit of
        its coordinate (a length or an angle). The unit of the norm is therefore 1/s.
        """
        E, given, dt = self._problem.end, self._problem.given, self._problem.dt
        goal = np.array([self._floor, self._lag])
        balance, g, mismatch, products = (r[:, 0] for r in E.residuals(V, lam, y, *given, goal))
        rates = np.concatenate([g / dt, mismatch]) / self._natural.rows
        speeds = balance / (self._scales * self._natural.sizes)
        return float(np.linalg.norm(np.concatenate([speeds, rates]))), products

    def _direction(self, V, lam, y, kappa: float) -> tuple[np.ndarray, np.ndarray]:
        """Return the Newton steps of the velocities V and of the constraint impulses.
        The steps lead towards complementarity products equal to the barrier parameter kappa.
        """
        E, given = self._problem.end, self._problem.given
        F, rhs = E.newton(V, lam, y, *given, np.array([kappa, self._lag]))
        row = np.concatenate([1 / self._scales, np.ones(E.rows)])
        try:
            step = np.linalg.solve(row[:, None] * F, row * rhs[:, 0])
        except np.linalg.LinAlgError:
            step = np.full(len(rhs), np.nan)
        return step[: len(V)], step[len(V) :]

    def _fresh(self, V, lam, y, speed: float, kappa: float) -> np.ndarray:
        """Return initial values of the contact variables.
        With these values, complementarity products, such as gap rate times normal impulse, are near the
        barrier parameter kappa.
        """
        E, given = self._problem.end, self._problem.given
        return E.begin(V, lam, y, *given, np.array([speed]), np.array([kappa, self._lag]))[0][:, 0]

    def first(self, seed: EndSolution | None, start: int, resume: bool) -> tuple[np.ndarray, ...]:
        """Return the first iterate, from a known solution `seed` or, without it, from motion without contact.
        Contacts that were open in `seed` and close in this step get new values of their variables. If
        `resume` is True, the iterate equals `seed`.
        """
        E, given, guess = self._problem.end, self._problem.given, self._problem.guess
        mass, parts = self._mass, self.variables.parts
        V, lam, y = guess.copy(), np.zeros(E.rows), np.zeros(parts[-1])
        if seed is None:  # motion without contact
            stride = self._natural.speed(self._problem.dt)
            kappa = TINY * mass * stride**2
            y = self._fresh(V, lam, y, stride, kappa)
            dV, lam = self._direction(V, lam, y, kappa)
            V = V + dV
        else:
            V, lam, y = seed.V.copy() if resume else V, seed.lam.copy(), seed.y.copy()
        gaps = E.gaps(V, lam, y, *given)[0][:, 0]
        least = LEAST * self._natural.speed(self._problem.dt)
        speed = max(float(-gaps.min(initial=0.0)), least)
        energy = (COLD[start] if seed is None else WARM) * mass * speed**2
        fresh = self._fresh(V, lam, y, speed, max(energy, self._floor))
        for o, end, a in zip(parts[:-1], parts[1:], gaps, strict=True):
            closes = not resume and a < 0.5 * y[o] and y[o] * mass > y[o + 1]  # the contact was open
            if seed is None or closes:
                y[o:end] = fresh[o:end]
        return V, lam, y

    def step(
        self, point: tuple[np.ndarray, ...], kappa: float, residual: float, deviation: float, clip: bool
    ) -> tuple[tuple[np.ndarray, ...], float, np.ndarray, float, bool]:
        """Take one Newton step towards complementarity products equal to kappa.
        The argument kappa is the barrier parameter.

        If `clip` is True, a full step is taken, and every variable is clipped to its own cone. Otherwise the
        step is halved until the `residual`, or the `deviation` of the products from kappa, decreases.
        The results are the next iterate, its residual, its products, the step length that the cones allow,
        and whether the step was short.
        """
        (V, lam, y), E = point, self._problem.end
        dV, dlam = self._direction(V, lam, y, kappa)
        goal = np.array([kappa, self._lag])
        dy = E.expand(V, lam, y, *self._problem.given, goal, dV)[0][:, 0]
        factor = length = min(1.0, BOUNDARY * self.variables.longest(y, dy))
        for _ in range(HALVINGS):
            point = V + factor * dV, lam + factor * dlam, y + factor * dy
            if clip:
                point = V + dV, lam + dlam, self.variables.clipped(y, dy)
            new_residual, products = self.left_of(*point)
            if clip and not np.isfinite(new_residual):  # after half a turn or more: shorten the step instead
                clip = False
                continue
            least = 1 - 1e-4 * factor
            centers = _largest(products - kappa * self.variables.centers)
            if (
                clip
                or new_residual <= least * residual
                or (np.isfinite(new_residual) and centers <= least * deviation)
            ):
                break
            factor /= 2
        return point, new_residual, products, length, factor < SHORT or clip


class InteriorProgram(StepByStep):
    """Evaluator of rollouts of a one-step map with contact, by an interior-point method.
    The method is implemented in numpy.
    """

    def __init__(self, f: KernelMap, solver: InteriorPoint):
        super().__init__(f)
        self._solver = solver

    def rollout(self, x, U, tracked, t, h, theta, tolerance):
        solver, error = self._solver, 0.0
        results: list[tuple] = []
        for k, u in enumerate(U):
            u = self.applied(u, x, tracked, k)
            with np.errstate(all="ignore"):  # results are tested for overflow and NaN
                step = solver.solve(x, u, float(t[k]), float(h[k]), theta)
            if not step.error + step.suspect <= tolerance:
                error = step.error + step.suspect
                break
            x = step.x
            results.append((x, step.multipliers, [step.error], u))
        return self.rows(results), error


def _largest(a: np.ndarray) -> float:
    return float(np.abs(a).max(initial=0.0))
