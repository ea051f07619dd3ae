"""Regions of attraction of closed loops, by seeded Monte Carlo simulation.

Maths: docs/maths/analysis.md.
"""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from vioc.checks import as_count, as_floats, as_value, check_array
from vioc.drawing import plots
from vioc.errors import StepError, trying
from vioc.names import by_name, in_order, meaning
from vioc.sweeps import sweep

FEW = 5  # random initial states that are checked first
CONFIDENCE = 1.959964  # standard deviations of a 95 % interval


@dataclass(frozen=True)
class Attraction:
    """Result of a Monte Carlo test of a closed loop's region of attraction.

    Attributes
    ----------
    starts : (n, nx)
    caught : (n,), bool
    distances : (n,)
        Largest final error in units of `goal`; inf if a step had no solution.
    names : tuple of nx str
    units : dict of str to str
        Units of the states, if known.
    center : (nx,) or None
        The equilibrium.
    """

    starts: np.ndarray = field(repr=False)
    caught: np.ndarray = field(repr=False)
    distances: np.ndarray = field(repr=False)
    names: tuple[str, ...]
    units: dict[str, str] = field(default_factory=dict, repr=False)
    center: np.ndarray | None = field(default=None, repr=False)

    @property
    def fraction(self) -> float:
        return float(self.caught.mean())

    @property
    def interval(self) -> tuple[float, float]:
        """Wilson's 95 % confidence interval of the fraction of attracted initial states.
        An initial state is attracted if the closed loop brings it to the equilibrium.
        """
        n, p, z = len(self.caught), self.fraction, CONFIDENCE
        center = (p + z * z / (2 * n)) / (1 + z * z / n)
        half = z / (1 + z * z / n) * np.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
        return float(max(0.0, center - half)), float(min(1.0, center + half))

    def __getitem__(self, name: str) -> np.ndarray:
        """Return the sampled initial values (n,) of one state variable."""
        return self.starts[:, self.names.index(meaning(name, self.names, "starts"))]

    def plot(
        self, first: str | None = None, second: str | None = None, *, ax: Any = None, **more: Any
    ) -> Any:
        """Plot the initial states in the plane of two states; return the axes.

        Options are those of `vioc.viz.plot_attraction`.
        """
        return plots().plot_attraction(self, first, second, ax=ax, **more)

    def __repr__(self) -> str:
        low, high = self.interval
        return (
            f"Attraction({int(self.caught.sum())} of {len(self.caught)} starts caught: "
            f"{100 * self.fraction:.1f} %, 95 % interval {100 * low:.1f} .. {100 * high:.1f} %)"
        )


def region_of_attraction(
    loop: Any,
    region: Mapping[str, Any] | Callable[[np.random.Generator], Any],
    *,
    samples: int = 200,
    steps: int = 1000,
    goal: Any = 1e-2,
    target: Any = None,
    estimate: Any = None,
    seed: int = 0,
    batch: int = 50,
    executor: Executor | None = None,
    workers: int | None = 0,
    store: str | os.PathLike | None = None,
    progress: Any = None,
) -> Attraction:
    """Estimate by Monte Carlo from which states a closed loop reaches its equilibrium.

    Parameters
    ----------
    loop : SteadyRegulator, Regulator, ClosedLoop, a law, or any object with `map`, `rollout(x0, steps)`
        It also needs `x` (nx,), the equilibrium, unless `target` is given. A `ClosedLoop` keeps its bounds
        and rates, and runs without noise.
    region : dict of str to (low, high) or to float, or callable
        Intervals of initial values by state; a number h means +-h about the target. Other states begin at the
        target. Or a function of a Generator that returns a state (nx,), such as one that obeys constraints.
    samples, steps : int
    goal : float, (ndx,) or dict of str to float
        Largest errors after `steps` that count as caught (inf where not named in a dict), by the names of
        states, or the map's ``space.error_names`` if it has fewer errors than states.
    target : (nx,), optional
    estimate : (nx,), optional
        First estimate of the observer of a `ClosedLoop`; default the initial state.
    seed : int
        Initial state i is the same for any number of samples > i with the same batch.
    batch : int
        Initial states per task of the underlying `sweep`.
    executor, workers, store, progress
        As in `sweep`; by default the simulations run in this process.

    Returns
    -------
    Attraction

    Raises
    ------
    TypeError
        An object that is not a loop.
    ValueError
        Wrong names, shapes, values; a missing target; an initial state that violates a constraint.
    """
    if not (hasattr(loop, "map") and hasattr(loop, "rollout")):
        raise TypeError(
            "loop: expected a regulator, a ClosedLoop, a law of a map, or what has `map` and "
            f"`rollout(x0, steps)`, got {type(loop).__name__}; ClosedLoop(f, law) gives a law its plant"
        )
    f: Any = loop.map
    goal_state = getattr(loop, "x", None) if target is None else target
    if goal_state is None:
        raise ValueError(f"target: {loop!r} has no state to which it regulates; give it, target=(nx,)")
    center = f.check_state(goal_state, "target")
    if estimate is not None and "estimate" not in inspect.signature(loop.rollout).parameters:
        raise ValueError(f"estimate: {type(loop).__name__} has no observer; leave out the estimate")
    how = {} if estimate is None else {"estimate": estimate}
    goal = in_order(goal, f.space.error_names, "goal", np.inf)
    limits = as_floats(goal, "goal")
    limits = np.full(f.ndx, float(limits)) if limits.ndim == 0 else limits
    if limits.shape != (f.ndx,) or not (limits > 0).all() or np.isinf(limits).all():
        raise ValueError(f"goal: expected errors > 0 of shape ({f.ndx},), not all infinite, got {goal!r}")
    samples, steps, batch = as_count(samples, "samples"), as_count(steps, "steps"), as_count(batch, "batch")
    sampler = region if callable(region) else StartBox.of(f, region, center)
    first = np.random.default_rng(seed)
    for _ in range(FEW):  # before the simulations; all states are checked after them
        _check_constraints(f, np.asarray(sampler(first), float))
    points = [{"count": min(batch, samples - i)} for i in range(0, samples, batch)]
    task = functools.partial(_catch, loop, sampler, center, limits, steps, how)
    parts = sweep(
        task,
        points,
        seed=seed,
        executor=executor,
        workers=None if executor else workers,
        store=store,
        progress=progress,
    ).values
    starts = np.concatenate([d["starts"] for d in parts])
    distances = np.concatenate([d["distances"] for d in parts])
    for x0 in starts:
        _check_constraints(f, x0)
    units = {n: f.unit(n) for n in f.state_names}
    return Attraction(starts, distances <= 1, distances, f.state_names, units, center)


@dataclass(frozen=True)
class StartBox:
    """Sampler of random initial states, uniform between `low` and `high` (nx,)."""

    low: np.ndarray
    high: np.ndarray

    @staticmethod
    def of(f: Any, region: Mapping[str, Any], center: np.ndarray) -> StartBox:
        region = by_name(region, f.state_names, "region")
        low, high = center.copy(), center.copy()
        for name, span in region.items():
            i = f.state_names.index(name)
            if np.ndim(span) == 0:
                half = as_value(span, f"region of {name!r}")
                low[i], high[i] = center[i] - half, center[i] + half
            else:
                low[i], high[i] = check_array(span, (2,), f"region of {name!r}")
            if not low[i] <= high[i]:
                raise ValueError(f"region: expected low <= high for {name!r}, got {low[i]:g} and {high[i]:g}")
        return StartBox(low, high)

    def __call__(self, rng: np.random.Generator) -> np.ndarray:
        return rng.uniform(self.low, self.high)


def _check_constraints(f: Any, x: np.ndarray) -> None:
    """Raise `ValueError` if an initial state (nx,) violates a constraint.
    Its first step would move the mechanism onto the constraint manifold.
    """
    while getattr(f, "inner", None) is not None:
        f = f.inner
    lagrangian = getattr(f, "whole", None)
    if lagrangian is None or not lagrangian.constraint_names:
        return
    q = x[: len(lagrangian.system.variables)]
    for name, value in lagrangian.violated_constraints(q, **f.parameters).items():
        raise ValueError(
            f"region: an initial state violates {name}: h = {value:.3g}, expected 0; give a function of "
            "a random generator that returns states on the constraint manifold, such as by "
            "f.consistent_configuration"
        )


def _catch(
    loop, sampler, center, limits, steps: int, how, *, count: int, rng: np.random.Generator
) -> dict[str, Any]:
    starts = np.stack([np.asarray(sampler(rng), float) for _ in range(count)])
    distances = np.empty(count)
    for i, x0 in enumerate(starts):
        try:
            with trying(), np.errstate(over="ignore", invalid="ignore"):
                end = loop.rollout(x0, steps, **how).x[-1]
                distances[i] = (np.abs(loop.map.difference(center, end)) / limits).max()
        except StepError:
            distances[i] = np.inf
    return {"starts": starts, "distances": np.where(np.isnan(distances), np.inf, distances)}
