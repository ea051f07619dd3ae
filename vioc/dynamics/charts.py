"""Euler-angle charts of free rotations: how to find them, and how to change them near singularities.

Three consecutive rotations, R = R_i(a) R_j(b) R_k(c), are a chart of SO(3). It is singular where the first
and the third axis coincide: at b = +-90 deg for three different axes, at b = 0 or 180 deg for
i = k. A body that tumbles reaches such attitudes. Another order of the axes is regular there, and the state
can be converted exactly. Maths: docs/maths/charts.md.
"""

from __future__ import annotations

import itertools
import warnings
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

import casadi as ca
import numpy as np

from vioc.dynamics.algebra.vectors import Matrix
from vioc.dynamics.description.frame import Transform, nest
from vioc.dynamics.description.system import System
from vioc.dynamics.terms.user import UserConstraint, UserForce, UserPotential
from vioc.errors import ChartWarning, ModelError
from vioc.runs.given import start_of

if TYPE_CHECKING:
    from vioc.dynamics.integrators.midpoint import MidpointVI
    from vioc.runs.trajectory import Trajectory

WARN = 0.2  # distance from the singularity (a sine, at most 1) below which a rollout warns
SWITCH = 0.4  # `rollout_charts` changes a chart that is nearer; the best of six is at least 0.745 away
LOOK = 16  # number of steps of the first look-ahead
CHARTS = tuple("".join(p) for p in itertools.permutations("xyz"))


@dataclass(frozen=True)
class Chart:
    """Euler-angle chart of a free rotation.
    It consists of three consecutive frames, each with one axis of rotation and one variable, its angle.

    Attributes
    ----------
    nodes : (int, int, int)
        Indices into ``system.nodes``.
    variables : (str, str, str)
    axes : str
        For example ``"zyx"``, in the order of the frames (intrinsic rotations).
    """

    nodes: tuple[int, int, int]
    variables: tuple[str, str, str]
    axes: str

    def distance(self, middle: np.ndarray) -> np.ndarray:
        """Return the distance of the middle Euler angle from the chart's singularity.
        It is 0 at the singularity, and 1 at a quarter turn from it.
        """
        return np.abs(np.sin(middle) if self.axes[0] == self.axes[2] else np.cos(middle))

    def rotation(self, angles: np.ndarray) -> np.ndarray:
        """Return the rotation matrix (3, 3) of the chart's three Euler angles.
        It is the product of three rotations about the chart's axes, in the order of `axes`.
        """
        return _euler(self.axes, angles)

    def angles(self, R: Matrix) -> ca.SX:
        """Return the three Euler angles, rad, of a rotation matrix of symbolic scalars.

        They are singular where the chart is. The first and the last are in (-pi, pi], the middle one within a
        quarter turn of 0, or for i = k in [0, pi].
        """
        i, j, k = ("xyz".index(a) for a in self.axes)
        third = 3 - i - j
        sign = 1.0 if (j - i) % 3 == 1 else -1.0  # parity of the permutation (i, j, rest)
        if i == k:
            middle = ca.atan2(ca.sqrt(R[i][j] ** 2 + R[i][third] ** 2), R[i][i])
            return ca.vertcat(
                ca.atan2(R[j][i], -sign * R[third][i]), middle, ca.atan2(R[i][j], sign * R[i][third])
            )
        middle = ca.atan2(sign * R[i][k], ca.sqrt(R[i][i] ** 2 + R[i][j] ** 2))
        return ca.vertcat(ca.atan2(-sign * R[j][k], R[k][k]), middle, ca.atan2(-sign * R[i][j], R[i][i]))

    def rates(self, angles: np.ndarray) -> np.ndarray:
        """Return the matrix W (3, 3) that maps the angle rates dq to the body angular velocity w = W dq."""
        unit = np.eye(3)["xyz".index(self.axes[0])], np.eye(3)["xyz".index(self.axes[1])]
        last = _euler(self.axes[2], angles[2:])
        middle = _euler(self.axes[1], angles[1:2])
        third = np.eye(3)["xyz".index(self.axes[2])]
        return np.column_stack([(middle @ last).T @ unit[0], last.T @ unit[1], third])


def charts(system: System) -> tuple[Chart, ...]:
    """Find the free rotations of a system and their Euler-angle charts.
    A free rotation consists of three consecutive frames, each rotated by one dynamic variable.

    Dynamic variables rotate them. The first two carry nothing else (no mass, no other child), so that only
    the product of the three matters.
    """
    children: dict[int, list[int]] = {}
    for i, node in enumerate(system.nodes):
        children.setdefault(node.parent, []).append(i)
    result: list[Chart] = []
    used_nodes: set[int] = set()
    for i in range(len(system.nodes)):
        row = [i]
        while len(row) < 3 and len(children.get(row[-1], [])) == 1:
            row += children[row[-1]]
        if len(row) < 3 or used_nodes & set(row):
            continue
        transforms = [system.nodes[n].frame.transform for n in row]
        if any(t.kind not in ("RX", "RY", "RZ") for t in transforms):
            continue
        names = [t.variable.name for t in transforms if t.variable and not t.variable.kinematic]
        axes = "".join(t.kind[1].lower() for t in transforms)
        bare = all(system.nodes[n].frame.mass is None for n in row[:2])
        if len(names) == 3 and bare and axes[0] != axes[1] != axes[2]:
            result.append(Chart((row[0], row[1], row[2]), (names[0], names[1], names[2]), axes))
            used_nodes |= set(row)
    return tuple(result)


def warn_near_singularity(trajectory: Trajectory, charts_of_map: tuple[Chart, ...]) -> None:
    """Warn once for each Euler-angle chart that comes near its singularity in a rollout."""
    names = trajectory.map.state_names
    for chart in charts_of_map:
        middle = trajectory.x[:, names.index(chart.variables[1])]
        indices = np.flatnonzero(chart.distance(middle) < WARN)
        if len(indices):
            k = int(indices[0])
            warnings.warn(
                f"at t = {trajectory.t[k]:g} s the angle {chart.variables[1]} = {middle[k]:.3g} rad is near "
                f"the singularity of the chart {', '.join(chart.variables)} ({chart.axes}): accuracy is "
                "lost there and a step may fail. Change the chart during the rollout: "
                "vioc.dynamics.charts.rollout_charts",
                ChartWarning,
                stacklevel=4,
            )


def change_chart(f: MidpointVI, x: np.ndarray, chart: Chart, axes: str) -> tuple[MidpointVI, np.ndarray]:
    """Change the rotation axes of one Euler-angle chart.
    Return a one-step map of the same mechanism with the new chart, and its state, which has the same
    attitude and velocities as x.

    The three variables keep their names. Attitude and velocities are the same; momenta are covectors,
    p' = (W^-1 W')' p, so that p . dq, energy and every conserved momentum are the same up to rounding.

    Parameters
    ----------
    f : MidpointVI
    x : (nx,)
    chart : Chart
        One of ``charts(f.system)``.
    axes : str
        Three letters of x, y, z, with different neighbours.

    Returns
    -------
    MidpointVI, (nx,)

    Raises
    ------
    ModelError
        If a potential, force or constraint acts on one of the three variables, or refers to one of the
        two frames between them, because it would mean something else in another chart.
    """
    if not {f"p.{n}" for n in chart.variables} <= {*f.state_names}:
        raise ModelError(
            f"{type(f).__name__} has velocities as states; expected a MidpointVI to change charts"
        )
    if sorted(set(axes)) not in (["x", "y", "z"], *(sorted(p) for p in itertools.combinations("xyz", 2))):
        raise ModelError(f"axes: expected three of x, y, z, got {axes!r}")
    if len(axes) != 3 or axes[0] == axes[1] or axes[1] == axes[2]:
        raise ModelError(f"axes: expected three letters, no two neighbours equal, got {axes!r}")
    system = f.system
    inner = {system.nodes[n].frame.name for n in chart.nodes[:2]} - {None}
    for component in system.components:
        if isinstance(component, (UserConstraint, UserForce, UserPotential)):
            raise ModelError(
                f"{system.name}: {component.label()} is a user's function, which can use the chart's "
                "variables; write it with named terms to change charts"
            )
        touched = set(component.variable_names()) & set(chart.variables)
        touched |= set(component.frame_names()) & inner
        if touched:
            raise ModelError(
                f"{system.name}: {component.label()} refers to {', '.join(sorted(touched))} inside the "
                "chart, which another order of axes would move; attach it to a frame after the rotations"
            )
    flat = [(replace(node.frame, children=()), node.parent) for node in system.nodes]
    for n, axis in zip(chart.nodes, axes, strict=True):
        frame, parent = flat[n]
        flat[n] = (replace(frame, transform=Transform(f"R{axis.upper()}", frame.transform.value)), parent)
    changed = f.with_system(System(*nest(flat), *system.components, name=system.name))

    new_chart = replace(chart, axes=axes)
    indices = [system.dynamic.index(name) for name in chart.variables]
    old = x[indices]
    new = _angles(axes, chart.rotation(old))
    result = x.copy()
    result[indices] = new
    momenta = [f.state_names.index(f"p.{name}") for name in chart.variables]
    result[momenta] = np.linalg.solve(chart.rates(old), new_chart.rates(new)).T @ x[momenta]
    return changed, result


@dataclass(frozen=True)
class ChartedRun:
    """Result of a rollout that changes Euler-angle charts, in segments without such a change.

    Attributes
    ----------
    segments : tuple of Trajectory
        One for each chart; each starts from the last state of the previous one, in its own chart. The three
        variables of a chart keep their names in every segment, but not their axes.
    """

    segments: tuple[Trajectory, ...]

    @property
    def t(self) -> np.ndarray:
        """Sample times (N+1,) of the whole rollout, s."""
        return np.concatenate([self.segments[0].t[:1], *(s.t[1:] for s in self.segments)])

    def __len__(self) -> int:
        """Return the number of steps of the whole rollout, over all segments."""
        return sum(len(s) for s in self.segments)

    def __getitem__(self, name: str) -> np.ndarray:
        """Return the values of a quantity, given by its name, at all samples of the rollout.

        Raises
        ------
        ModelError
            For an angle, rate or momentum of a chart, and a frame between its rotations, which differ between
            segments.
        """
        systems = [cast("MidpointVI", segment.map).system for segment in self.segments]
        inner = {v for system in systems for chart in charts(system) for v in chart.variables}
        for system in systems:
            inner |= {system.nodes[i].frame.name for chart in charts(system) for i in chart.nodes[:2]}
        if name.partition(":")[0].rpartition(".")[2] in inner and len(self.segments) > 1:
            raise ModelError(
                f"{name!r} belongs to a chart that was changed during the rollout, so it is "
                "another quantity in each segment; look at run.segments, or at frames, energies and other "
                "variables"
            )
        parts = [s[name] for s in self.segments]
        if len(parts[0]) == len(self.segments[0]):
            return np.concatenate(parts)
        return np.concatenate([parts[0][:1], *(p[1:] for p in parts)])

    @property
    def energy(self) -> np.ndarray:
        return self["energy"]

    def __repr__(self) -> str:
        ends = ", ".join(f"{s.t[-1]:g}" for s in self.segments)
        return f"ChartedRun({len(self)} steps, {len(self.segments)} segments that end at t = {ends} s)"


def rollout_charts(f: MidpointVI, x0: Any, U: Any = None, steps: int | None = None) -> ChartedRun:
    """Compute a rollout that changes Euler-angle charts before it reaches a singularity.

    It uses one chart until this chart is nearer than `SWITCH` to its singularity, and then continues in the
    best of the six orders of x, y, z.

    Parameters
    ----------
    f : MidpointVI
    x0 : (nx,)
    U : (N, nu), or None with `steps`

    Returns
    -------
    ChartedRun

    Raises
    ------
    ModelError
        If a chart cannot be changed; see `change_chart`.
    """
    x, U = start_of(f, x0, U, steps)
    segments: list[Trajectory] = []
    k, ahead = 0, LOOK
    f, x = _regular(f, x)
    while k < len(U):
        run = f.rollout(x, U[k : k + ahead], k0=k, warn=False)
        safe = _regular_steps(f, run)
        if safe < len(run):
            # the first sample nearer than SWITCH starts the next chart, after at least one step in this chart
            safe = max(safe, 1)
            run = run.part(0, safe)
        if segments and segments[-1].map is f:
            run = _joined(segments.pop(), run)
        segments.append(run)
        k, x = k + safe, run.x[-1]
        ahead = LOOK if safe < ahead else min(2 * ahead, 1024)
        f, x = _regular(f, x)
    return ChartedRun(tuple(segments))


def _regular_steps(f: MidpointVI, run: Trajectory) -> int:
    """Return the number of steps of a rollout before any Euler-angle chart comes near its singularity.

    Near means nearer than `SWITCH`. Without such a chart it is the number of all steps.
    """
    first = len(run)
    for chart in charts(f.system):
        middle = run.x[:, f.system.dynamic.index(chart.variables[1])]
        indices = np.flatnonzero(chart.distance(middle) < SWITCH)
        first = min(first, int(indices[0])) if len(indices) else first
    return first


def _regular(f: MidpointVI, x: np.ndarray) -> tuple[MidpointVI, np.ndarray]:
    """Replace Euler-angle charts near their singularity by charts with other axes.
    Return the new map of the mechanism, and the state that corresponds to x in the new charts.
    """
    for chart in charts(f.system):
        angles = x[[f.system.dynamic.index(name) for name in chart.variables]]
        if chart.distance(angles[1]) >= SWITCH:
            continue
        R = chart.rotation(angles)
        best = max(CHARTS, key=lambda axes: abs(np.cos(_angles(axes, R)[1])))
        f, x = change_chart(f, x, chart, best)
    return f, x


def _euler(axes: str, angles: np.ndarray) -> np.ndarray:
    """Return the rotation matrix (3, 3) of Euler angles about the body's own axes (intrinsic rotations)."""
    from scipy.spatial.transform import Rotation  # imported here because it is slow

    return Rotation.from_euler(axes.upper(), angles).as_matrix().reshape(3, 3)


def _angles(axes: str, R: np.ndarray) -> np.ndarray:
    """Return the Euler angles, rad, of a rotation matrix, for the given order of axes."""
    from scipy.spatial.transform import Rotation

    return Rotation.from_matrix(R).as_euler(axes.upper())


def _joined(first: Trajectory, second: Trajectory) -> Trajectory:
    """Join two trajectories of one map; the second starts where the first ends."""
    return replace(
        first,
        t=np.concatenate([first.t, second.t[1:]]),
        x=np.concatenate([first.x, second.x[1:]]),
        u=np.concatenate([first.u, second.u]),
        multipliers=np.concatenate([first.multipliers, second.multipliers]),
    )
