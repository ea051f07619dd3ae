"""`Trajectory`: what a rollout returns, with access by name, and its file."""

from __future__ import annotations

import contextlib
import json
import math
import os
import tempfile
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import casadi as ca
import numpy as np

from vioc.checks import few
from vioc.compile.evaluate import Evaluator
from vioc.drawing import viz
from vioc.errors import FileFormatError, SlackWarning
from vioc.maps.steps import lengths_of, same_steps

if TYPE_CHECKING:
    from vioc.maps.protocol import OneStepMap

FORMAT = "vioc-trajectory-1"


class Slack(NamedTuple):
    """A stretch of a trajectory over which a string pushes.

    Attributes
    ----------
    string : str
    start, end : float
        Times of the first step's start and of the last step's end, s.
    tension : float
        The lowest, N (negative).
    """

    string: str
    start: float
    end: float
    tension: float


class Split(NamedTuple):
    """The m parts that a step was taken in; ``len`` is their number.

    Attributes
    ----------
    lengths : (m,)
        s.
    x : (m, nx)
        Where each part ends; the last one is the state at the step's end.
    multipliers : (m, nm)
        Constraint impulses of each part.
    """

    lengths: np.ndarray
    x: np.ndarray
    multipliers: np.ndarray

    def __len__(self) -> int:
        return len(self.lengths)

    @property
    def ends(self) -> np.ndarray:
        """Where the parts end as fractions of the step (m,)."""
        ends = np.cumsum(self.lengths) / self.lengths.sum()
        ends[-1] = 1.0
        return ends


@dataclass(frozen=True)
class Trajectory:
    """A discrete trajectory of a one-step map, time first.

    Attributes
    ----------
    map : OneStepMap
        Its `dt` is the length of the steps, where they are equal.
    t : (N+1,)
        s.
    x : (N+1, nx)
    u : (N, nu)
    multipliers : (N, nm)
        Constraint impulses of each step; ``lambda.NAME`` names one.
    k0 : int
        Index of the first step (for maps that depend on time).
    splits : dict of int to Split
        Steps that had no solution whole and were taken in parts, by their row of `u`; their `multipliers`
        are the impulses of all parts. Empty where every step was taken whole.

    Notes
    -----
    ``run["theta"]`` is any quantity that the map names (``run.map.quantity``), over N+1 samples where
    it depends on the state alone and over N steps where it depends on inputs or multipliers.
    """

    map: OneStepMap
    t: np.ndarray
    x: np.ndarray
    u: np.ndarray
    multipliers: np.ndarray
    k0: int = field(default=0, kw_only=True)
    splits: Mapping[int, Split] = field(default_factory=dict, kw_only=True)

    def __len__(self) -> int:
        """Number of steps N."""
        return len(self.u)

    def __getitem__(self, name: str) -> np.ndarray:
        if not isinstance(name, str):
            raise TypeError(f"a trajectory is indexed by the name of a quantity, got {name!r}")
        return self.map.along(self, name)

    @cached_property
    def step_lengths(self) -> np.ndarray:
        """Length of each step (N,), s; exact where they are equal, which differences of t are not."""
        return lengths_of(self.t, self.map.dt)

    @property
    def duration(self) -> float:
        """s."""
        return float(self.t[-1] - self.t[0])

    def on_its_step(self) -> Trajectory:
        """This trajectory on the map whose `dt` is the length of its steps, where they are equal.

        So that whatever is made of it (a regulator, a file, a quantity) is for these steps.
        """
        h, f = self.step_lengths, self.map
        if not len(h) or h[0] == f.dt or not (h == h[0]).all():
            return self
        return replace(self, map=f.with_dt(float(h[0])))

    def evaluate(self, expression: ca.SX) -> np.ndarray:
        """Values of a CasADi expression of ``map.symbols`` along the trajectory.

        Returns
        -------
        (N+1,) or (N+1, size) where only the state matters, else N rows.
        """
        s = self.map.symbols
        f = Evaluator(ca.Function("quantity", list(s), [ca.densify(ca.vec(expression))]))
        theta = self.map.theta
        by_step = any(ca.which_depends(ca.vec(expression), ca.vertcat(s.u, s.multipliers, s.dt), 1, True))
        n = len(self)
        if by_step:
            forces = ca.depends_on(ca.vec(expression), s.multipliers)
            steps = (self._impulse_lengths() if forces else self.step_lengths)[:, None]
            values = f(self.x[:n], self.u, self.multipliers, theta, steps)[0][..., 0]
        else:
            zeros = np.zeros(s.u.numel()), np.zeros(s.multipliers.numel())
            values = f(self.x, *zeros, theta, np.zeros(1))[0][..., 0]
        return values[:, 0] if values.shape[1] == 1 else values

    def _impulse_lengths(self) -> np.ndarray:
        """The time for which each step's impulses stand (N,), s: an impulse over it is a force.

        That at the start of a step belongs in part to the one before, whose length may be another.
        """
        h = self.step_lengths
        first, last = h.copy(), h.copy()
        for k, split in self.splits.items():
            first[k], last[k] = split.lengths[0], split.lengths[-1]
        behind = self.map.impulse_behind
        return h + behind * (np.concatenate([first[:1], last[:-1]]) - first)

    @property
    def energy(self) -> np.ndarray:
        """Total energy at each sample, J (N+1,), where the map has one."""
        return self["energy"]

    def slack(self, tolerance: float | None = None) -> list[Slack]:
        """Where strings (`StringConstraint`) push, in the order of time; empty where none does.

        Parameters
        ----------
        tolerance : float, optional
            The push that counts, N; by default what is above rounding, or 1e-6 of the string's greatest
            |tension| in this run if that is more.
        """
        found = []
        owner = self.map
        for name in owner.strings:
            if not (self.multipliers[:, self.map.multiplier_names.index(name)] < 0).any():
                continue
            tension = self["tension." + name]
            rounding = owner.force_rounding(self.step_lengths.min())
            least = max(rounding, 1e-6 * np.abs(tension).max()) if tolerance is None else tolerance
            pushes = tension < -least
            edges = np.flatnonzero(np.diff(np.concatenate([[False], pushes, [False]])))
            for first, end in edges.reshape(-1, 2):
                lowest = float(tension[first:end].min())
                found.append(Slack(name, float(self.t[first]), float(self.t[end]), lowest))
        return sorted(found, key=lambda s: s.start)

    def plot(self, *names: str, ax: Any = None) -> Any:
        """Plot named quantities over time (all states without names); returns the axes."""
        return viz().plot_trajectory(self, *names, ax=ax)

    def animate(self, path: str | os.PathLike | None = None, **options: Any) -> Any:
        """Animate the mechanism, to the screen or a file: `vioc.viz.animate`."""
        return viz().animate(self, path, **options)

    def view(self, **options: Any) -> Any:
        """Show the mechanism in the browser: `vioc.viz.view`."""
        return viz().view(self, **options)

    def __repr__(self) -> str:
        return (
            f"Trajectory({len(self)} steps, t = {self.t[0]:g} .. {self.t[-1]:g} s, "
            f"states {few(self.map.state_names, what='states')}; "
            f"inputs {few(self.map.input_names, what='inputs')}{said_of_splits(self.splits)})"
        )

    def part(self, start: int, end: int) -> Trajectory:
        """The steps from `start` to before `end`."""
        splits = {k - start: split for k, split in self.splits.items() if start <= k < end}
        arrays = self.t[start : end + 1], self.x[start : end + 1], self.u[start:end]
        multipliers = self.multipliers[start:end]
        return Trajectory(self.map, *arrays, multipliers, k0=self.k0 + start, splits=splits)

    # -- file -----------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike) -> Path:
        """Write the trajectory with its names as npz.

        The file appears whole or not at all: an interrupted save leaves what was there before. A path
        without a suffix gets ``.npz``.

        Raises
        ------
        FileNotFoundError
            If the path's folder does not exist.
        """
        path = Path(path)
        path = path if path.suffix else path.with_suffix(".npz")
        if not path.parent.is_dir():
            raise FileNotFoundError(f"{path}: no such folder {path.parent}; make it first")
        header = {
            "format": FORMAT,
            "identity": self.map.identity(),
            "parameters": self.map.parameters,
            "k0": self.k0,
        }
        arrays = {
            "t": self.t,
            "x": self.x,
            "u": self.u,
            "multipliers": self.multipliers,
            "state_names": np.array(self.map.state_names, dtype=str),
            "input_names": np.array(self.map.input_names, dtype=str),
            "multiplier_names": np.array(self.map.multiplier_names, dtype=str),
            "header": np.array(json.dumps(header)),
        }
        if self.splits:
            own = self.splits.values()
            arrays["split_steps"] = np.repeat(list(self.splits), [len(s) for s in own]).astype(float)
            for name in Split._fields:
                arrays[f"split_{name}"] = np.concatenate([getattr(s, name) for s in own])
        handle, scratch = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
        try:
            mask = os.umask(0)
            os.umask(mask)
            os.chmod(scratch, 0o666 & ~mask)  # mkstemp's own mode keeps everybody else out
            with os.fdopen(handle, "wb") as stream:
                np.savez_compressed(stream, **arrays)  # type: ignore[arg-type]
                stream.flush()
                os.fsync(stream.fileno())
            os.replace(scratch, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(scratch)
            raise
        return path

    @staticmethod
    def load(path: str | os.PathLike, map: OneStepMap) -> Trajectory:
        """Read a trajectory of `map`; columns are matched by name, whatever their order in the file.

        Raises
        ------
        FileFormatError
            If the file is not a trajectory, is damaged, or is of another map: other names, another
            model, time step or integrator.
        """
        data, header = read_file(path)
        columns = {}
        for key, names_key, names in (
            ("x", "state_names", map.state_names),
            ("u", "input_names", map.input_names),
            ("multipliers", "multiplier_names", map.multiplier_names),
        ):
            stored = [str(n) for n in data[names_key]]
            if sorted(stored) != sorted(names):
                missing = sorted(set(names) - set(stored))
                extra = sorted(set(stored) - set(names))
                raise FileFormatError(
                    f"{path}: {names_key.replace('_', ' ')} do not match the map: "
                    f"missing {missing or 'none'}, unknown {extra or 'none'}"
                )
            order = [stored.index(n) for n in names]
            columns[key] = np.ascontiguousarray(data[key][:, order])
            if f"split_{key}" in data:
                columns[f"split_{key}"] = np.ascontiguousarray(data[f"split_{key}"][:, order])
        ours, theirs = json.loads(json.dumps(map.identity())), header["identity"]
        differ = [k for k in dict.fromkeys((*ours, *theirs)) if not _same(k, ours.get(k), theirs.get(k))]
        if differ:
            again = (
                f"; load it with map.with_dt({theirs['dt']!r})" if differ == ["dt"] and "dt" in theirs else ""
            )
            raise FileFormatError(
                f"{path}: saved from another map: {', '.join(differ)} differ from those of {map!r}{again}"
            )
        moved = {n: v for n, v in header["parameters"].items() if n in map.parameters}
        owner = map.with_parameters(**moved) if moved else map
        arrays = (data["t"], columns["x"], columns["u"], columns["multipliers"])
        splits = {}
        if "split_steps" in data:
            rows = data["split_lengths"], columns["split_x"], columns["split_multipliers"]
            steps = data["split_steps"].astype(int)
            splits = {int(k): Split(*(a[steps == k] for a in rows)) for k in dict.fromkeys(steps.tolist())}
        return Trajectory(owner, *arrays, k0=header["k0"], splits=splits).on_its_step()


def _same(key: str, ours: Any, theirs: Any) -> bool:
    """Whether an entry of two identities is the same; one that only one of them has is not."""
    if key == "dt" and isinstance(ours, float) and isinstance(theirs, (int, float)):
        return same_steps(theirs, ours)
    return ours == theirs


def said_of_splits(splits: Mapping[int, Split]) -> str:
    """``"; 3 steps taken in 2 to 4 parts"``, or nothing."""
    if not splits:
        return ""
    parts = sorted({len(split) for split in splits.values()})
    steps = f"{len(splits)} step{'s' * (len(splits) > 1)}"
    return f"; {steps} taken in {' to '.join(map(str, (parts[0], parts[-1])[: len(parts)]))} parts"


def warn_slack(trajectory: Trajectory) -> None:
    """Warn (`SlackWarning`) if a string pushes in a rollout: which one first, when, and how hard."""
    found = trajectory.slack()
    if not found:
        return
    name, start, _, _ = found[0]
    pushes = trajectory["tension." + name]
    value = float(pushes[np.searchsorted(trajectory.t, start)])
    others = len({s.string for s in found}) - 1
    more = f" ({others} more strings push later)" if others else ""
    warnings.warn(
        f"the string {name} pushes with {-value:.3g} N from t = {start:g} s on{more}: a real string goes "
        "slack there. `trajectory.slack()` lists where; change the motion, or end the run before",
        SlackWarning,
        stacklevel=4,
    )


_AXES = {"t": 1, "x": 2, "u": 2, "multipliers": 2, "state_names": 1, "input_names": 1, "multiplier_names": 1}
_SPLIT_AXES = {"split_steps": 1, "split_lengths": 1, "split_x": 2, "split_multipliers": 2}  # if there are any


def read_file(path: str | os.PathLike) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Arrays and header of a saved trajectory of any map, checked for kind, shape and finiteness.

    Returns
    -------
    dict of arrays
        ``t``, ``x``, ``u``, ``multipliers``, and the names ``state_names``, ``input_names``,
        ``multiplier_names``; of steps that were taken in parts ``split_steps``, the row of each part, and
        ``split_lengths``, ``split_x``, ``split_multipliers``.
    dict
        ``identity`` of the map, ``parameters``, ``k0``.

    Raises
    ------
    FileFormatError
        If the file is not a trajectory, or is damaged.
    FileNotFoundError, IsADirectoryError
        If there is no such file.
    """
    path = Path(path)
    keys = (*_AXES, "header")
    if path.is_dir():
        raise IsADirectoryError(f"{path}: a folder, expected a trajectory file (.npz)")
    if not path.exists():
        raise FileNotFoundError(f"{path}: no such trajectory file")
    with open(path, "rb") as stream:
        archive = stream.read(2) == b"PK"
        stream.seek(0)
        try:
            if not archive:
                raise ValueError("not an .npz archive; Trajectory.save and `vioc simulate --save` write one")
            stored = np.load(stream, allow_pickle=False)
            entries = set(stored) if isinstance(stored, np.lib.npyio.NpzFile) else set()
            data = {k: stored[k] for k in (*keys, *_SPLIT_AXES) if k in entries}
            for key, value in data.items():
                if not isinstance(value, np.ndarray):
                    raise ValueError(f"{key} is no array")
                if key.endswith("_names"):
                    data[key] = np.array([str(n) for n in value.ravel()], dtype=str).reshape(value.shape)
            header = json.loads(str(data["header"])) if "header" in data else None
        except Exception as error:  # damage inside an archive raises whatever its readers trip over
            reason = "it holds pickled objects" if "pickle" in str(error) else " ".join(str(error).split())
            raise FileFormatError(f"{path}: not a readable trajectory file ({reason})") from None
    missing = [k for k in keys if k not in data]
    if missing:
        raise FileFormatError(f"{path}: not a saved trajectory: it lacks {', '.join(missing)}")
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise FileFormatError(f"{path}: expected format {FORMAT!r}, got {header!r:.80}")
    for key, kind in (("k0", int), ("parameters", dict), ("identity", dict)):
        if not isinstance(header.get(key), kind):
            raise FileFormatError(f"{path}: the header lacks {key}")
    for name, value in (("k0", header["k0"]), *header["parameters"].items()):
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) < math.inf:
            raise FileFormatError(f"{path}: the header's {name} should be a finite number, got {value!r:.80}")
    split = [k for k in _SPLIT_AXES if k in data]
    if split and len(split) < len(_SPLIT_AXES):
        raise FileFormatError(f"{path}: of steps in parts it has {', '.join(split)} only")
    for key, axes in (*_AXES.items(), *((k, _SPLIT_AXES[k]) for k in split)):
        if data[key].ndim != axes:
            raise FileFormatError(
                f"{path}: expected an array {key} with {axes} axes, got shape {data[key].shape}"
            )
    n = len(data["u"])
    expected = {
        "t": (n + 1,),
        "x": (n + 1, len(data["state_names"])),
        "u": (n, len(data["input_names"])),
        "multipliers": (n, len(data["multiplier_names"])),
    }
    if split:
        parts, steps = len(data["split_steps"]), data["split_steps"]
        expected["split_steps"] = expected["split_lengths"] = (parts,)
        expected["split_x"] = (parts, len(data["state_names"]))
        expected["split_multipliers"] = (parts, len(data["multiplier_names"]))
        if not np.isin(steps, np.arange(n)).all():
            raise FileFormatError(f"{path}: split_steps should be rows of steps, 0 to {n - 1}, got {steps}")
    for key, shape in expected.items():
        if data[key].shape != shape or data[key].dtype != np.float64:
            raise FileFormatError(
                f"{path}: expected {key} of shape {shape} and type float64, got "
                f"{data[key].shape}, {data[key].dtype}"
            )
        if not np.isfinite(data[key]).all():
            raise FileFormatError(f"{path}: {key} holds numbers that are not finite")
    return data, header
