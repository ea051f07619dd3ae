"""Calls of a function at many points in parallel, resumable and reproducible.

Results are the same to the bit for any executor.
"""

from __future__ import annotations

import functools
import hashlib
import os
import pickle
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import product
from types import FunctionType
from typing import Any, NamedTuple

import casadi as ca
import numpy as np

from vioc.checks import near_misses
from vioc.drawing import plots
from vioc.maps.protocol import OneStepMap
from vioc.progress import Progress as Bar
from vioc.runs.tables import Table
from vioc.sweeps.executors import results
from vioc.sweeps.store import Store, dumps, outcomes, read_store

ENDS = "error", "seconds"  # the last columns of a table


@dataclass(frozen=True)
class Outcome:
    """Result or error of a sweep's function at one point.

    Attributes
    ----------
    index : int
    point : object
    value : object
        Return value of the function; None if it failed.
    error : str or None
        ``"StepError: step 3 ..."``, or None.
    traceback : str
        Of the error; empty if there was none.
    seconds : float
        In the worker.
    """

    index: int
    point: Any
    value: Any = None
    error: str | None = None
    traceback: str = field(default="", repr=False)
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        return self.error is None


class Sweep(Sequence):
    """Outcomes (results or errors) of all tasks of a sweep, in order of the points."""

    def __init__(self, outcomes: Sequence[Outcome]):
        self.outcomes = tuple(outcomes)

    def __len__(self) -> int:
        return len(self.outcomes)

    def __getitem__(self, i):
        return self.outcomes[i]

    @property
    def failures(self) -> list[Outcome]:
        return [o for o in self.outcomes if not o.ok]

    @property
    def values(self) -> list[Any]:
        """Return the results of the sweep's function at all points, in order.

        Raises
        ------
        RuntimeError
            If a task failed; names the first.
        """
        for outcome in self.failures:
            raise RuntimeError(
                f"{len(self.failures)} of {len(self)} tasks failed; the first, {outcome.index} at "
                f"{outcome.point}: {outcome.error}; see `failures`, or `succeeded` for the others\n"
                + outcome.traceback
            )
        return [o.value for o in self.outcomes]

    @property
    def succeeded(self) -> list[Outcome]:
        return [o for o in self.outcomes if o.ok]

    def column(self, name: str) -> np.ndarray:
        """Return the entry `name` of all points or results (dicts) as an array.
        The value is NaN for a failed task whose point does not contain the entry.
        """
        column = []
        for o in self.outcomes:
            source = next((d for d in (o.point, o.value) if isinstance(d, Mapping) and name in d), None)
            if source is None and o.ok:
                known = [key for d in (o.point, o.value) if isinstance(d, Mapping) for key in d]
                raise KeyError(
                    f"task {o.index} has no {name!r} in its point or value; {near_misses(name, known)}"
                )
            column.append(np.nan if source is None else source[name])
        return np.array(column)

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Points and results of all tasks as a list of dicts.
        Each dict is one row of the `table`.

        A row has ``task``, the entries of point and value, ``error`` and ``seconds``. A point or value that
        is not a dict is ``point`` or ``value``; a name in both is ``value.NAME`` for the value. Arrays have a
        column for each entry, ``x[0]``.
        """
        rows = []
        for o in self.outcomes:
            row: dict[str, Any] = {"task": o.index}
            for what, given in (("point", o.point), ("value", o.value)):
                columns: dict[str, Any] = {}
                named = given if isinstance(given, Mapping) else {} if given is None else {what: given}
                for name, value in named.items():
                    columns |= _flat(str(name), value)
                row |= {f"{what}.{n}" if n in row or n in ENDS else n: v for n, v in columns.items()}
            rows.append({**row, "error": o.error or "", "seconds": o.seconds})
        return rows

    def table(self) -> Table:
        """Return the points and results of all tasks as a `Table`.

        Missing entries are nan, or "" in a column of text.
        """
        rows = self.rows
        names = dict.fromkeys(n for row in rows for n in row if n not in ENDS)
        columns = {}
        for name in (*names, *ENDS):
            values = [row.get(name) for row in rows]
            texts = any(isinstance(v, str) for v in values)
            columns[name] = np.array(
                [("" if v is None else str(v)) if texts else np.nan if v is None else v for v in values]
            )
        return Table(columns, index=("task",), source="sweep")

    @staticmethod
    def read(path: str | os.PathLike) -> Sweep:
        """Read the outcomes in the file of a sweep, which may still be running.

        Raises
        ------
        FileFormatError
            If it is not a store, or damaged.
        """
        header, records = read_store(path)
        by_index = {i: Outcome(i, point, **result) for i, point, result in outcomes(records, header, path)}
        return Sweep([by_index[i] for i in sorted(by_index)])

    def _repr_html_(self) -> str:
        return self.table().to_html()

    def best(self, key: Callable[[Any], float]) -> Outcome:
        """Return the outcome with the smallest value of `key`, a function of the result.

        RuntimeError if every task failed.
        """
        good = [o for o in self.outcomes if o.ok and not np.isnan(key(o.value))]
        if not good:
            first = self.failures[0].error if self.failures else "no number"
            raise RuntimeError(f"none of {len(self)} tasks has a result: {first}")
        return min(good, key=lambda o: key(o.value))

    def plot(self, first: str, second: str | None = None, *, value: str, ax: Any = None, **more: Any) -> Any:
        """Plot a result over one or two arguments of the sweep, by `vioc.viz.plot_sweep`."""
        return plots().plot_sweep(self, first, second, value=value, ax=ax, **more)

    def __repr__(self) -> str:
        seconds = sum(o.seconds for o in self.outcomes)
        return f"Sweep({len(self)} tasks, {len(self.failures)} failed, {seconds:.3g} s of work)"


def _flat(name: str, value: Any) -> dict[str, Any]:
    """Convert a value to table columns, with one for each entry of a list or dict."""
    if isinstance(value, Mapping):
        return {k: v for key, item in value.items() for k, v in _flat(f"{name}.{key}", item).items()}
    if isinstance(value, (list, tuple)) or (isinstance(value, np.ndarray) and value.ndim):
        return {k: v for i, item in enumerate(value) for k, v in _flat(f"{name}[{i}]", item).items()}
    if isinstance(value, (np.generic, np.ndarray)):
        value = value.item()
    return {name: value if value is None or isinstance(value, (bool, int, float, str)) else repr(value)}


class SweepProgress(NamedTuple):
    """Progress of a sweep: counts of tasks, seconds since the start, and last outcome.

    `resumed` counts tasks from the store.
    """

    done: int
    total: int
    failed: int
    resumed: int
    elapsed: float
    outcome: Outcome

    def __str__(self) -> str:
        rest = self.elapsed / (self.done - self.resumed) * (self.total - self.done)
        failed = f", {self.failed} failed" if self.failed else ""
        return f"{self.done}/{self.total}{failed}, {self.elapsed:.0f} s, {rest:.0f} s left"


def sweep(
    function: Callable[..., Any],
    points: Sequence[Any],
    *,
    seed: int | None = None,
    executor: Executor | None = None,
    workers: int | None = None,
    store: str | os.PathLike | None = None,
    name: str | None = None,
    retry_failures: bool = False,
    progress: bool | Callable[[SweepProgress], Any] | None = None,
) -> Sweep:
    """Call a function at every point in parallel, and return all outcomes.

    Parameters
    ----------
    function : callable
        Called with a point's entries as keywords if the point is a dict, else with the point. For other
        processes it must be importable (defined in a module, not in a console). Constant arguments
        are bound by `functools.partial`; a map pickles.
    points : sequence
        See `grid` and `zipped`; ``range(n)`` for n repetitions.
    seed : int, optional
        The function then gets ``rng``, a Generator of its own: child i of ``SeedSequence(seed)`` at point
        i, for any executor and order.
    executor : concurrent.futures.Executor, optional
        Executor of the tasks: a thread or process pool, ``dask.distributed.Client().get_executor()``,
        ``mpi4py.futures.MPIPoolExecutor()``. It is not shut down. Default: a process pool of this call.
    workers : int, optional
        Processes of that pool; default one per core that this process may use. 0 runs in this process, in
        order.
    store : path, optional
        File to which every result is appended on completion. An interrupted sweep continues
        when it is called again with the same store, and the same bound arguments; points
        and results must be plain data.
    name : str, optional
        Name of the sweep in the store; default the function's name. Change it when the function changes.
    retry_failures : bool
        Run tasks again whose failure is in the store.
    progress : bool or callable, optional
        By default a line on a terminal's stderr for long sweeps (`vioc.progress`); True always prints one,
        False none; a callable gets a `SweepProgress` after each task.

    Returns
    -------
    Sweep
        A failed task is an `Outcome` with its error; the others continue.

    Raises
    ------
    FileFormatError
        If the store is another sweep's.
    TypeError
        If a result cannot be stored.
    KeyboardInterrupt
        Ctrl-C, with the finished tasks as a `Sweep`, its ``result``; with a store, the same call
        continues from there.

    Notes
    -----
    A task whose worker dies runs again: a pool of this call is rebuilt, and tasks that were running
    are repeated one at a time, so that the failing one is identified (its outcome is the error);
    Dask moves tasks of a lost worker by itself. The results are the same to the bit as long as the
    function's are: libraries that sum in another order on another number of threads are an exception.
    """
    points = list(points)
    if workers is not None and (workers != int(workers) or workers < 0):
        raise ValueError(f"workers: expected a whole number >= 0, got {workers}")
    if executor is not None and workers is not None:
        raise ValueError("workers: an executor brings its own; give one of the two")
    children: Sequence[np.random.SeedSequence | None]
    children = np.random.SeedSequence(seed).spawn(len(points)) if seed is not None else [None] * len(points)
    done: dict[int, Outcome] = {}
    file = None
    if store is not None:
        file = Store(store, _header(function, points, seed, name))
        for i, result in file.results(len(points)):
            done[i] = Outcome(i, points[i], **result)
        if retry_failures:
            done = {i: o for i, o in done.items() if o.ok}
    todo = [i for i in range(len(points)) if i not in done]
    tell = _Teller(progress, len(points), len(done), sum(not o.ok for o in done.values()))
    in_process = workers == 0 or isinstance(executor, ThreadPoolExecutor)
    call = (
        functools.partial(_call, function)
        if in_process
        else functools.partial(_call_sent, *_packed(function))
    )
    tasks = {i: (points[i], children[i]) for i in todo}
    try:
        for i, result in results(call, tasks, executor, workers):
            outcome = Outcome(i, points[i], **result)
            if file is not None:
                file.append({"index": i, "point": points[i], "outcome": result})
            done[i] = outcome
            tell(outcome)
    except KeyboardInterrupt as stop:
        stop.result = Sweep([done[i] for i in sorted(done)])  # type: ignore[attr-defined]
        raise
    finally:
        tell.close()
        if file is not None:
            file.close()
    return Sweep([done[i] for i in range(len(points))])


def _call(function: Callable[..., Any], point: Any, child: np.random.SeedSequence | None) -> dict[str, Any]:
    """Call the function of a sweep at one point, in a worker process.
    The result is a dict, which also describes an exception of the function.
    """
    before = time.perf_counter()
    more = {} if child is None else {"rng": np.random.default_rng(child)}
    result: dict[str, Any] = {"value": None, "error": None, "traceback": ""}
    try:
        result["value"] = function(**point, **more) if isinstance(point, Mapping) else function(point, **more)
    except Exception as error:
        result["error"] = f"{type(error).__name__}: {error}"
        result["traceback"] = traceback.format_exc()
    result["seconds"] = time.perf_counter() - before
    return result


def _packed(function: Callable[..., Any]) -> tuple[str, bytes]:
    """Pickle a function, with a digest so that each worker unpickles it only once."""
    try:
        data = pickle.dumps(function)
    except Exception as error:
        raise TypeError(
            f"the function cannot be sent to other processes ({error}); define it in a module and bind "
            "what it needs by functools.partial, or give workers=0 to run here"
        ) from None
    return hashlib.sha256(data).hexdigest(), data


@functools.lru_cache(maxsize=4)
def _unpacked(digest: str, data: bytes) -> Callable[..., Any]:
    return pickle.loads(data)


def _call_sent(digest: str, data: bytes, point: Any, child: np.random.SeedSequence | None) -> dict[str, Any]:
    return _call(_unpacked(digest, data), point, child)


def _header(function: Callable, points: list, seed: int | None, name: str | None) -> dict[str, Any]:
    try:
        digest = hashlib.sha256(dumps(points).encode()).hexdigest()
    except TypeError as error:
        raise TypeError(f"points of a sweep with a store must be plain data: {error}") from None
    bare, bound = _unbound(function)
    given = f"{getattr(bare, '__module__', '')}.{getattr(bare, '__qualname__', type(bare).__name__)}"
    header = {"name": given if name is None else name, "tasks": len(points), "points": digest, "seed": seed}
    if bound:  # results with another step, model, law or number belong to another sweep
        header["bound"] = hashlib.sha256(dumps(_identity(bound, ())).encode()).hexdigest()
    return header


def _unbound(function: Callable) -> tuple[Callable, list[Any]]:
    """Return the function inside `functools.partial`, and its bound arguments."""
    bound: list[Any] = []
    while isinstance(function, functools.partial):
        bound.append([list(function.args), dict(sorted(function.keywords.items()))])
        function = function.func
    return function, bound


def _identity(value: Any, within: tuple[int, ...]) -> Any:
    """Return plain data that identifies a bound argument of the function of a sweep.
    The argument is bound, for example, by `functools.partial`.

    Objects are identified by `__reduce__`, or by their public attributes except cached properties; functions
    by their names, defaults and closures.
    """
    if isinstance(value, OneStepMap):
        return {**value.identity(), "parameters": value.parameters}
    if id(value) in within:
        return type(value).__qualname__
    within = (*within, id(value))
    if isinstance(value, functools.partial):
        bare, bound = _unbound(value)
        return [_identity(bare, within), _identity(bound, within)]
    if isinstance(value, Mapping):
        return [[str(k), _identity(v, within)] for k, v in value.items()]
    if isinstance(value, (list, tuple)):
        return [_identity(v, within) for v in value]
    try:
        return dumps(value)
    except TypeError:
        pass
    name = getattr(value, "__qualname__", type(value).__qualname__)
    if isinstance(value, FunctionType):
        contents = [value.__defaults__, [cell.cell_contents for cell in value.__closure__ or ()]]
        return [name, _identity(contents, within)]
    if isinstance(value, ca.Function):
        return value.serialize()
    if isinstance(value, ca.SX):
        return str(value)
    reduce = getattr(type(value), "__reduce__", None)
    if reduce is not object.__reduce__:
        return [name, _identity(value.__reduce__()[1:], within)]
    attributes = {
        n: v
        for n, v in getattr(value, "__dict__", {}).items()
        if not (n.startswith("_") or isinstance(getattr(type(value), n, None), functools.cached_property))
    }
    return [name, _identity(dict(sorted(attributes.items())), within)]


class _Teller:
    """Reporter of a sweep's progress, to a terminal or to a user's function."""

    def __init__(self, progress: Any, total: int, done: int, failed: int):
        self.progress, self.total, self.resumed, self.failed = progress, total, done, failed
        self.done, self.start, self.last = done, time.monotonic(), 0.0
        self.line = ExitStack()
        if progress is None:
            self.bar = self.line.enter_context(Bar("sweep", total, done))

    def __call__(self, outcome: Outcome) -> None:
        self.done += 1
        self.failed += not outcome.ok
        if self.progress is None:
            self.bar.to(self.done, f"{self.failed} failed" if self.failed else "")
            return
        now = time.monotonic()
        report = SweepProgress(self.done, self.total, self.failed, self.resumed, now - self.start, outcome)
        if callable(self.progress):
            self.progress(report)
        elif self.progress and (now - self.last > 0.2 or self.done == self.total):
            self.last = now
            print(f"\r{report}   ", end="", file=sys.stderr, flush=True)

    def close(self) -> None:
        self.line.close()
        if self.progress is True and self.last:
            print(file=sys.stderr)


def grid(**axes: Iterable[Any]) -> list[dict[str, Any]]:
    """Return a function's arguments for every combination of given argument values.
    Each keyword is the name of an argument, and gives the values of this argument. The result is a list of
    dicts, one for each combination.

    The last argument varies fastest.

    Examples
    --------
    >>> grid(mass=[1.0, 2.0], length=[0.5])
    [{'mass': 1.0, 'length': 0.5}, {'mass': 2.0, 'length': 0.5}]
    """
    for name, values in axes.items():
        if not isinstance(values, Iterable):
            raise ValueError(
                f"grid: expected several values of {name}, got {values!r}; for one, [{values!r}]"
            )
    return [dict(zip(axes, values, strict=True)) for values in product(*axes.values())]


def zipped(**axes: Iterable[Any]) -> list[dict[str, Any]]:
    """Return dicts of arguments; dict i has the i-th value of every argument.
    Each keyword is the name of a function's argument, and gives the values of this argument. ValueError is
    raised if two arguments have different numbers of values.
    """
    columns = {name: list(values) for name, values in axes.items()}
    if len({len(column) for column in columns.values()}) > 1:
        sizes = ", ".join(f"{len(column)} of {name}" for name, column in columns.items())
        raise ValueError(f"zipped: expected equally many values of every argument, got {sizes}")
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
