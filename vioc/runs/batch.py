"""Batches: the results of many rollouts of one map, in stacked arrays."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from vioc.checks import as_floats, check_array
from vioc.drawing import plots
from vioc.errors import ModelError, StepError
from vioc.runs.columns import RUN, quantities_html
from vioc.runs.tables import Table
from vioc.runs.trajectory import Trajectory

if TYPE_CHECKING:
    from vioc.maps.protocol import OneStepMap


def of_each(
    f: OneStepMap, parameters: Mapping[str, Any], starts: int, inputs: int | None
) -> tuple[dict[str, np.ndarray], int]:
    """Return the parameter values of each of M rollouts, and the number M.
    The values are arrays (M,) by name. `starts` is the number of initial states, `inputs` the number of input
    sequences.

    A single value or start is used for all rollouts.
    """
    if not isinstance(parameters, Mapping):
        raise ModelError(f"parameters: expected a dict by name, got {parameters!r}")
    f.with_parameters(**{n: f.parameters.get(n, 0.0) for n in parameters})  # raises for an unknown name
    arrays = {}
    for name, values in parameters.items():
        values = np.atleast_1d(as_floats(values, f"parameters {name!r}"))
        arrays[name] = check_array(values, values.shape[:1], f"parameters {name!r}")
    if f.system is not None:
        f.system.check_bodies({**f.parameters, **arrays}, arrays)
        f.system.check_components({**f.parameters, **arrays}, arrays)
    counts = {"initial states": starts} | ({} if inputs is None else {"sequences of inputs": inputs})
    counts |= {f"values of parameters {name!r}": len(values) for name, values in arrays.items()}
    count = max(counts.values())
    if any(n not in (1, count) for n in counts.values()):
        got = " and ".join(f"{n} {what}" for what, n in counts.items() if n != 1)
        raise ValueError(f"expected as many of each, or one for all, got {got}")
    if f.system is not None:
        f.system.check_masses({**f.parameters, **arrays}, arrays)
    return {name: np.broadcast_to(values, (count,)) for name, values in arrays.items()}, count


@dataclass
class Runs:
    """Inputs, times and results of M rollouts in progress, each of N steps.

    Attributes
    ----------
    X, U, multipliers : (M, N+1, nx), (M, N, nu), (M, N, nm)
        U and the initial states X[:, 0] are given. The rollouts write the other states and the multipliers.
    k0 : int
    lengths : (N,)
        Lengths of the steps, s.
    parameters : dict of str to (M,)
        Values that differ between runs.
    errors, t, map
        Results, as in `Batch`.
    """

    X: np.ndarray
    U: np.ndarray
    multipliers: np.ndarray
    k0: int
    lengths: np.ndarray
    parameters: Mapping[str, np.ndarray]
    errors: dict[int, StepError] = field(default_factory=dict)
    t: np.ndarray = field(init=False)
    map: OneStepMap | None = None

    def __post_init__(self):
        self.t = np.zeros(len(self.lengths) + 1)

    def parameters_of(self, i: int) -> dict[str, float]:
        """Return the parameter values of rollout number i, by name."""
        return {name: float(values[i]) for name, values in self.parameters.items()}


@dataclass(frozen=True)
class Batch:
    """Results of many rollouts of one map over the same times, in stacked arrays.

    ``batch[i]`` is the trajectory i, ``batch["theta"]`` a named quantity of all of them, (M, N+1) or (M, N).

    Attributes
    ----------
    map : OneStepMap
    t : (N+1,)
    x : (M, N+1, nx)
        States; NaN after a failed step.
    u, multipliers : (M, N, nu), (M, N, nm)
    errors : dict of int to StepError
        Errors of failed rollouts by index, each with its motion before the failure, ``errors[i].trajectory``.
    k0 : int
    parameters : dict of str to (M,)
        Values of parameters that differ between rollouts.
    """

    map: OneStepMap
    t: np.ndarray
    x: np.ndarray
    u: np.ndarray
    multipliers: np.ndarray
    errors: dict[int, StepError] = field(default_factory=dict)
    k0: int = 0
    parameters: Mapping[str, np.ndarray] = field(default_factory=dict)

    def __len__(self) -> int:
        """Return the number of rollouts M."""
        return len(self.x)

    def __getitem__(self, key: int | slice | str):
        if isinstance(key, str):
            return np.stack([self._trajectory(i)[key] for i in range(len(self))])
        if isinstance(key, slice):
            rows = range(len(self))[key]
            errors = {j: self.errors[i] for j, i in enumerate(rows) if i in self.errors}
            arrays = self.x[key], self.u[key], self.multipliers[key]
            parameters = {name: values[key] for name, values in self.parameters.items()}
            return Batch(self.map, self.t, *arrays, errors, self.k0, parameters)
        i = range(len(self))[key]  # negative indices and IndexError as in a sequence
        if i in self.errors:
            raise self.errors[i]
        return self._trajectory(i)

    @property
    def trajectory(self) -> Trajectory:
        """Trajectory of a batch that has one rollout only; ValueError for more rollouts."""
        if len(self) != 1:
            raise ValueError(f"expected one trajectory, got a batch of {len(self)}; take one, batch[i]")
        return self[0]

    def __iter__(self) -> Iterator[Trajectory]:
        return (self[i] for i in range(len(self)))

    def table(self, *names: str) -> Table:
        """Return the quantities of all rollouts as one table.
        The column ``run`` contains the number of the rollout.

        A failed rollout has NaN from the failure on.
        """
        tables = [self._trajectory(i).table(*names) for i in range(len(self))]
        if not tables:
            raise ValueError("table: the batch has no rollout")
        every = {RUN: np.repeat(np.arange(len(self)), len(self.t))}
        for name in tables[0]:
            if name == RUN:
                raise ModelError(f"a table has a column {name!r} already; leave this quantity out")
            every[name] = np.concatenate([table.columns[name] for table in tables])
        return Table(every, tables[0].units, (RUN, *tables[0].index), "batch")

    def plot(self, *names: str, ax: Any = None) -> Any:
        """Plot named quantities of all rollouts over time, and return the axes.

        Without names all states are plotted.
        """
        return plots().plot_batch(self, *names, ax=ax)

    def _repr_html_(self) -> str:
        good = [i for i in range(len(self)) if i not in self.errors]
        return quantities_html(self[good[0]], f"{self!r}; the run {good[0]}:") if good else repr(self)

    def _trajectory(self, i: int) -> Trajectory:
        arrays = self.t, self.x[i], self.u[i], self.multipliers[i]
        parameters = {name: float(values[i]) for name, values in self.parameters.items()}
        f = self.map.trying(**parameters) if parameters else self.map
        return Trajectory(f, *arrays, k0=self.k0)

    def __repr__(self) -> str:
        failed = f", {len(self.errors)} failed" if self.errors else ""
        steps = len(self.t) - 1
        return f"Batch({len(self)} rollouts of {steps} steps, t = {self.t[0]:g} .. {self.t[-1]:g} s{failed})"
