"""Nonlinear model-predictive control: an optimal-control problem solved anew at every sample."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from vioc.checks import check_array
from vioc.control.costs.cost import Cost
from vioc.control.descent.descend import descend
from vioc.control.optimizing import optimize
from vioc.control.problem.limits import input_bounds
from vioc.control.regulators.law import Law
from vioc.errors import OptimizationError, StepError
from vioc.maps.given import trajectory_of
from vioc.maps.protocol import OneStepMap
from vioc.maps.steps import check_steps
from vioc.maps.trajectory import Trajectory


class Horizon(NamedTuple):
    """States (n+1, nx) and inputs (n, nu) over the horizon: a guess, or a plan."""

    x: np.ndarray
    u: np.ndarray


Solver = Callable[[int, np.ndarray, Horizon], Any]


@dataclass(frozen=True)
class NonlinearMPC(Law):
    """The first input of an optimal-control problem from the state that is there, at every sample.

    Attributes
    ----------
    map : OneStepMap
    solve : callable
        ``solve(k, x, guess)`` returns the plan from state x at sample k: an object with `x` (n+1, nx) and
        `u` (n, nu), or one whose ``trajectory`` has them (a `Result`, the answer of DMOC). `guess` is a
        `Horizon`: the last plan shifted by one step, whose first state is x. See `descent_solver`.
    guess : Horizon, (x, u), or a trajectory or what has one
        Where the first problem starts; its length is the horizon.
    lower, upper : float, (nu,), dict of str to float, or None
        Bounds to which the input is clipped (a solver's own rounding).
    on_failure : "keep" or "raise"
        What to do at a sample whose problem is not solved: go on along the last plan, or raise.
    """

    map: OneStepMap = field(repr=False)
    solve: Solver = field(repr=False)
    guess: Horizon = field(repr=False)
    lower: Any = None
    upper: Any = None
    on_failure: str = "keep"

    def __post_init__(self) -> None:
        if self.on_failure not in ("keep", "raise"):
            raise ValueError(f"on_failure: expected 'keep' or 'raise', got {self.on_failure!r}")
        guess = trajectory_of(self.guess)
        if isinstance(guess, Trajectory):
            check_steps(guess.step_lengths, self.map.dt, "guess")
        guess = Horizon(guess.x, guess.u) if isinstance(guess, Trajectory) else Horizon(*guess)
        n = len(guess.u)
        u = check_array(guess.u, (n, self.map.nu), "guess of inputs", self.map.input_names)
        x = check_array(guess.x, (n + 1, self.map.nx), "guess of states", self.map.state_names)
        object.__setattr__(self, "guess", Horizon(x, u))
        input_bounds(self.map, self.lower, self.upper)

    @property
    def horizon(self) -> int:
        """Steps ahead."""
        return len(self.guess.u)

    def start(self) -> Horizon:
        return self.guess

    def apply(self, k: int, x: np.ndarray, memory: Horizon) -> tuple[np.ndarray, Horizon]:
        """The input at sample k, and the plan shifted by one step: the next sample's guess."""
        guess = Horizon(np.vstack([x, memory.x[1:]]), memory.u)
        try:
            answer: Any = self.solve(k, x, guess)
            answer = getattr(answer, "trajectory", answer)
            if isinstance(answer, Trajectory):
                check_steps(answer.step_lengths, self.map.dt, f"plan at sample {k}", "the law's map")
            plan = Horizon(np.asarray(answer.x, float), np.asarray(answer.u, float))
            if not (np.isfinite(plan.u).all() and np.isfinite(plan.x).all() and len(plan.u)):
                raise OptimizationError(f"sample {k}: the plan is not finite")
        except (OptimizationError, StepError) as error:
            if self.on_failure == "raise":
                raise OptimizationError(f"sample {k}: {error}", getattr(error, "result", None)) from error
            plan = guess
        low, high = input_bounds(self.map, self.lower, self.upper)
        return np.clip(plan.u[0], low, high), self.shifted(plan, k)

    def shifted(self, plan: Horizon, k: int) -> Horizon:
        """The plan without its first step, and one more step under its last input."""
        try:
            last = self.map.step(plan.x[-1], plan.u[-1], k + len(plan.u))
        except StepError:
            last = plan.x[-1]
        return Horizon(np.vstack([plan.x[1:], last]), np.vstack([plan.u[1:], plan.u[-1:]]))

    def __repr__(self) -> str:
        return f"NonlinearMPC({self.horizon} steps ahead of {self.map!r})"


def descent_solver(
    f: OneStepMap, cost: Cost | Callable[[int], Cost], *, iterations: int = 10, **options: Any
) -> Solver:
    """A solver for `NonlinearMPC` by `optimize`, of a map that does not depend on time.

    Parameters
    ----------
    f : OneStepMap
    cost : Cost, or callable
        The cost over the horizon, or one that ``cost(k)`` makes for the horizon from sample k.
    iterations : int
        At most so many a sample; the best iterate is used also where it has not converged.
    **options
        Of `optimize`. Limits on states are for states that keep them: from one outside it raises ValueError.
    """
    choices = {"max_iterations": iterations, "raise_on_failure": False, **options}

    return partial(_descend, f, cost, choices)


def _descend(
    f: OneStepMap, cost: Any, choices: dict[str, Any], k: int, x: np.ndarray, guess: Horizon
) -> Trajectory:
    at = cost if isinstance(cost, Cost) else cost(k)
    plain = choices.keys() <= {"max_iterations", "tolerance", "raise_on_failure", "monitor", "dt"}
    return (descend if plain else optimize)(f, at, (guess.x, guess.u), x0=x, **choices).trajectory


def dmoc_solver(problem: Callable[[int, np.ndarray], Any], **options: Any) -> Solver:
    """A solver for `NonlinearMPC` by DMOC: bounds, constraints, terminal conditions.

    Parameters
    ----------
    problem : callable
        ``problem(k, x)`` makes the `dmoc.Problem` of one phase from state x at sample k; its steps are the
        horizon.
    **options
        Of `dmoc.Problem.solve`.

    Examples
    --------
    >>> solver = dmoc_solver(lambda k, x: Problem(Phase(f, 25, cost, initial=x, bounds={"u.force": 10.0})))
    """

    return partial(_discrete_mechanics, problem, options)


def _discrete_mechanics(
    problem: Any, options: dict[str, Any], k: int, x: np.ndarray, guess: Horizon
) -> Trajectory:
    return problem(k, x).solve((guess.x, guess.u), **options).trajectory
