"""What an optimization returns, and what it prints while it runs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from vioc.control.regulators.lqr import Regulator, dlqr
from vioc.drawing import plots
from vioc.errors import OptimizationError
from vioc.maps.given import AsTrajectory
from vioc.maps.trajectory import Trajectory

ADVICE = {
    "converged": "",
    "max_iterations": "raise max_iterations, or start from a better guess",
    "line_search": (
        "no step along any direction lowers the cost enough: check the derivatives "
        "(vioc.control.check_derivatives), start from another guess, or loosen the tolerance"
    ),
    "no_descent": (
        "no descent direction could be computed: give every input a weight R > 0, and see whether the "
        "trajectory has grown out of bounds"
    ),
    "interrupted": "the best iterate so far is kept; start again from its trajectory",
}


def advice_on(status: str, unsolved: Exception | None) -> str:
    """What to try; `unsolved` says why trials of a line search were no trajectories, if any."""
    if status == "line_search" and unsolved is not None:
        return f"no step lowers the cost enough, and some trials lead to no trajectory: {unsolved}"
    return ADVICE[status]


HEADER = (
    f"{'iter':>4}  {'method':<15}  {'shift':>7}  {'cost':>14}  {'Dg.zeta':>11}  {'step':>8}  {'trials':>6}"
    f"  {'gap':>8}"
)


class Record(NamedTuple):
    """One iteration.

    Attributes
    ----------
    iteration : int
    method : str
        Whose direction was used: ``"newton"``, ``"gauss-newton"``, ``"steepest"``; with ``"ms "`` before
        it for steps of multiple shooting, where ``"ms blend"`` keeps a part of the curvature.
    shift : float
        Of the Hessian, in units of the inputs' mean weight; 0 is Newton's own.
    cost : float
        Before the step.
    descent : float
        Dg(xi).zeta, negative; in multiple shooting the derivative of cost + penalty |r| along the step.
    step : float
        Step length taken; 0 where none was.
    trials : int
        Trajectories, or curves, tried by the line search.
    gap : float
        |r|, how far a curve of multiple shooting is from a trajectory, in the units of the map's residual.
    """

    iteration: int
    method: str
    shift: float
    cost: float
    descent: float
    step: float
    trials: int
    gap: float = 0.0

    def __str__(self) -> str:
        return (
            f"{self.iteration:>4}  {self.method:<15}  {self.shift:>7.1g}  {self.cost:>14.8g}  "
            f"{self.descent:>11.3e}  {self.step:>8.3g}  {self.trials:>6}  {self.gap:>8.1e}"
        )


class History(NamedTuple):
    """`Record`'s columns over the iterations; arrays of one length."""

    iteration: np.ndarray
    method: np.ndarray
    shift: np.ndarray
    cost: np.ndarray
    descent: np.ndarray
    step: np.ndarray
    trials: np.ndarray
    gap: np.ndarray

    @staticmethod
    def of(records: list[Record]) -> History:
        columns = zip(*records, strict=True) if records else ((),) * len(History._fields)
        return History(*(np.array(c) for c in columns))

    def plot(self, *, ax: Any = None) -> Any:
        """Plot cost and promised decrease over the iterations; returns the axes."""
        return plots().plot_convergence(self, ax=ax)


@dataclass(frozen=True)
class Result(AsTrajectory):
    """An optimized trajectory; reads like it, ``best["theta"]``.

    Attributes
    ----------
    trajectory : Trajectory
        The rollout of its own x_0 and inputs; see `open_loop_gap`.
    cost : float
    status : str
        ``"converged"``, ``"max_iterations"``, ``"line_search"``, ``"no_descent"``, ``"interrupted"``.
    message : str
        The verdict in words, with what to try.
    iterations : int
        Steps taken.
    history : History
    gains : (N, nu, ndx)
        Of the projection operator at the trajectory.
    open_loop_gap : float
        Largest difference between the optimizer's closed-loop iterate and the rollout of its inputs.
        If it is above 1e-6 (a strongly unstable system over a long horizon, where rounding grows),
        `trajectory` is the closed-loop iterate: follow it with `stabilize`, not open loop.
    slope : float
        Dg(xi).zeta there, <= 0, for the zeta of a Hessian without any shift: the method's own, or where that
        has no minimum Gauss-Newton's. What "converged" is judged by; nan where none was computed.
    """

    trajectory: Trajectory
    cost: float
    status: str
    message: str
    iterations: int
    history: History = field(repr=False)
    gains: np.ndarray = field(repr=False)
    open_loop_gap: float
    slope: float

    @property
    def converged(self) -> bool:
        return self.status == "converged"

    def raise_for_status(self) -> Result:
        """This result, or `OptimizationError` (with it as ``result``) unless it converged."""
        if not self.converged:
            raise OptimizationError(self.message, self)
        return self

    def stabilize(self, Q: Any, R: Any, Qf: Any = None) -> Regulator:
        """The time-varying regulator about the trajectory; weights as in `dlqr`."""
        regulator = dlqr(self.trajectory.map, self.trajectory, Q, R, Qf)
        assert isinstance(regulator, Regulator)
        return regulator

    def __repr__(self) -> str:
        return f"Result({self.message}; {len(self.trajectory)} steps)"
