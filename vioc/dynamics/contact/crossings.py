"""Detection of bodies that pass through each other or through the ground within a step of a trajectory.

Contacts and limits hold only at the ends of steps.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple, TypeGuard

import casadi as ca
import numpy as np

from vioc.compile.evaluate import Evaluator
from vioc.dynamics.masses import natural_length
from vioc.dynamics.terms.contact_shapes import Shape, Sphere, triangles
from vioc.dynamics.terms.contacts import Contact, PairContact
from vioc.dynamics.terms.terrain import Terrain
from vioc.errors import CrossingWarning
from vioc.runs.trajectory import Trajectory

if TYPE_CHECKING:
    from vioc.dynamics.contact.smoothed import SmoothedMap

TOUCHING = 1e-6  # m, gap of a closed contact; or ten times the gap that the smoothing leaves open, if larger
GRAZE = 0.01  # allowed depth relative to the radii or the natural length, as the true path is not known
SHRUNK, HALVINGS = 0.9, 6  # scale of the shapes that are tested for overlap; bisections of the depth
BETWEEN, MOST, WAY = (
    2,
    500,
    0.5,
)  # tested poses per inner radius, and most poses; steps are tested from this motion in inner radii on
FAR, SPACING = 0.2, 0.1  # rad or natural lengths: least motion of a tested step, and between its samples
ROUNDED = 1e-7  # distance at which shapes count as overlapping, relative to the largest distance


class Crossing(NamedTuple):
    """Contact or joint limit whose gap is negative within a step of a trajectory, but not at the step's ends.
    The field `step` is the first such step, `steps` the number of such steps, and `depth` the penetration in
    the first such step, m or rad.
    """

    name: str
    step: int
    steps: int
    depth: float


def warn_crossed(run: Trajectory, crossings: Iterable[Crossing]) -> None:
    """Issue a `CrossingWarning` unless `crossings` is empty.
    The argument `crossings` has contacts and joint limits that are violated within a step of the trajectory,
    but not at the step's ends.
    """
    crossings = sorted(crossings, key=lambda c: c.step)
    if not crossings:
        return
    first, h = crossings[0], run.step_lengths[crossings[0].step]
    more = f" ({len(crossings) - 1} more gaps later)" if len(crossings) > 1 else ""
    unit = (
        run.map.unit(f"gap.{first.name}") or "m"
    )  # pairs that meet at several points have no unit of the gap
    warnings.warn(
        f"{first.name} is crossed within a step: the gap is not negative at t = {run.t[first.step]:g} s and "
        f"{h:g} s later, but {first.depth:.3g} {unit} below zero between{more}. Contact holds at the ends of "
        "steps: a body that moves by more than its size in one step can pass through; use a smaller dt",
        CrossingWarning,
        stacklevel=4,
    )


def open_from(f: SmoothedMap, run: Trajectory) -> np.ndarray:
    """Return, for each step (N,), a gap, m; contacts with larger gaps are regarded as open.
    The search for bodies that pass through each other uses this value.
    """
    return np.maximum(TOUCHING, 10 * np.sqrt(f.smoothing) * run.step_lengths)


def crossed_spheres(f: SmoothedMap, run: Trajectory, gaps: Mapping[str, float]) -> Iterator[Crossing]:
    """Yield the pairs of spheres that pass through each other within a step.
    The spheres are assumed to move along straight lines between samples. The dict `gaps` has the gap of each
    contact at the start of the trajectory, by the contact's name.
    """
    pairs = zip(f.system.inequality_names, f.system.inequalities, strict=True)
    spheres = [(n, item) for n, item in pairs if isinstance(item, PairContact) and _of_spheres(item)]
    if not spheres:
        return
    places, open_at = f.frame_positions(run.x), open_from(f, run)
    for name, item in spheres:
        indices = [f.system.frame_index(n) for n in (item.frame1, item.frame2)]
        ends = [np.zeros((len(run.x), 3)) if i < 0 else places[:, i] for i in indices]
        d = ends[1] - ends[0]
        distance = np.linalg.norm(d, axis=1)
        reach = distance[0] - gaps[name]
        travel = np.diff(d, axis=0)
        length = np.sum(travel**2, axis=1)
        s = np.clip(-np.sum(d[:-1] * travel, axis=1) / np.where(length > 0, length, 1.0), 0.0, 1.0)
        depth = reach - np.linalg.norm(d[:-1] + s[:, None] * travel, axis=1)
        was_open, is_open = distance[:-1] - reach > open_at, distance[1:] - reach > open_at
        behind = np.sum(d[:-1] * d[1:], axis=1) < 0
        yield from first_crossed(name, (depth > GRAZE * reach) & ((was_open & is_open) | behind), depth)


class _Solid:
    """Solid that is tested for overlap: the convex hull of points, enlarged by a radius.
    The attributes `center` and `inner` are the centre and the radius of a ball inside the solid.
    """

    def __init__(self, shape: Shape):
        balls = list(shape.corners())
        self.points = np.array([[float(c) for c in ball.center] for ball in balls])
        self.radius, self.center = float(balls[0].radius), self.points.mean(axis=0)
        self.inner = self.radius
        if shape.flat:
            a, b, c = (self.points[i] for i in triangles(self.points).T)
            n = np.cross(b - a, c - a)
            n /= np.linalg.norm(n, axis=1)[:, None]
            self.inner = float(np.sum(n * (a - self.center), axis=1).min())

    def at(self, R: np.ndarray, p: np.ndarray, scale: float) -> np.ndarray:
        return (self.center + scale * (self.points - self.center)) @ R.T + p


@lru_cache(maxsize=256)
def _solid(shape: Shape) -> _Solid:
    return _Solid(shape)


def _overlap(sides: list[tuple[_Solid, np.ndarray, np.ndarray]], scale: float) -> bool:
    """Return whether two solids at given poses overlap after scaling about their centres.
    Each of the `sides` is a solid with its rotation and position.
    """
    from scipy.optimize import nnls  # imported late: only tested steps need scipy

    first, second = (solid.at(R, p, scale) for solid, R, p in sides)
    D = (second[None] - first[:, None]).reshape(-1, 3)
    weights = nnls(np.vstack([D.T, np.ones(len(D))]), [0.0, 0.0, 0.0, 1.0])[0]
    distance = np.linalg.norm(weights @ D) / max(weights.sum(), 1e-300)
    return bool(distance <= scale * sum(solid.radius for solid, *_ in sides) + ROUNDED * np.abs(D).max())


def crossed_shapes(f: SmoothedMap, run: Trajectory) -> Iterator[Crossing]:
    """Yield the pairs of bodies, except spheres, that pass through each other.

    Only steps in which the origins move far relative to each other are tested, at poses between the samples.
    The test uses shapes scaled to 0.9 of their size, which overlap only if the bodies have entered each
    other. The reported depth is a lower bound.
    """
    pairs = zip(f.system.inequality_names, f.system.inequalities, strict=True)
    shape_pairs = [(n, item) for n, item in pairs if isinstance(item, PairContact) and _of_solids(item)]
    if not shape_pairs or len(run.x) < 2:
        return
    from scipy.spatial.transform import Rotation, Slerp

    places, rotations = f.frame_positions(run.x), {}

    def origins(frame: str) -> np.ndarray:
        i = f.system.frame_index(frame)
        return np.zeros((len(run.x), 3)) if i < 0 else places[:, i]

    def turns(frame: str, k: int) -> Slerp:
        if frame not in rotations:
            R = f.quantities.rotation(frame)
            args = [f.symbols.x, f.symbols.parameters]
            rotations[frame] = None if R is None else Evaluator(ca.Function("R", args, [ca.densify(R)]))
        evaluate = rotations[frame]
        both = np.stack([np.eye(3)] * 2) if evaluate is None else evaluate(run.x[k : k + 2], f.theta)[0]
        return Slerp([0.0, 1.0], Rotation.from_matrix(both))

    for name, item in shape_pairs:
        frames = item.frame1, item.frame2
        solids = [_solid(item.shape1), _solid(item.shape2)]
        first, second = (origins(frame) for frame in frames)
        inner = sum(solid.inner for solid in solids)
        travel = np.linalg.norm(np.diff(second - first, axis=0), axis=1)
        candidates = np.flatnonzero(travel > WAY * inner)
        crossed = np.zeros(len(run.x) - 1, bool)
        depth = np.zeros(len(crossed))
        for k in map(int, candidates):
            ways = [
                (solid, turns(n, k), origins(n)[k : k + 2]) for solid, n in zip(solids, frames, strict=True)
            ]
            for s in np.linspace(0, 1, int(min(BETWEEN * travel[k] / inner, MOST)) + 3)[1:-1]:
                sides = [(o, R(s).as_matrix(), (1 - s) * p[0] + s * p[1]) for o, R, p in ways]
                if _overlap(sides, SHRUNK):
                    low, high = (
                        0.0,
                        SHRUNK,
                    )  # the smaller the scale at which the shapes still overlap, the deeper they are
                    for _ in range(HALVINGS):
                        middle = (low + high) / 2
                        low, high = (low, middle) if _overlap(sides, middle) else (middle, high)
                    crossed[k], depth[k] = True, max(depth[k], (1 - high) * inner)
        yield from first_crossed(name, crossed, depth)


def crossed_grounds(
    f: SmoothedMap, run: Trajectory, motions: Callable[..., np.ndarray], between: Callable[..., np.ndarray]
) -> Iterator[Crossing]:
    """Yield the contacts of bodies that penetrate the ground or a terrain in a step.
    Only penetrations deeper than a tolerance count, and only steps in which a coordinate changes by more than
    `FAR` are tested. The function `motions` returns the largest change of a coordinate in each step (N,), in
    rad or natural lengths. The function `between` returns intermediate states between two samples.
    """
    items = zip(f.system.inequality_names, f.system.inequalities, strict=True)
    names = {n + part for n, item in items if _with_ground(item) for part in item.parts()}
    grounds = [(i, t.name) for i, t in enumerate(t for t in f.meetings if not t.placed) if t.name in names]
    if not grounds:
        return
    changes = motions(run.x)
    candidates = np.flatnonzero(changes > FAR)
    columns = [i for i, _ in grounds]
    depth = np.zeros((len(changes), len(grounds)))
    for k in map(int, candidates):
        shares = np.linspace(0, 1, int(min(changes[k] / SPACING, MOST)) + 3)[1:-1]
        gaps = f.smooth_gaps(between(run.x[k], run.x[k + 1], shares))
        depth[k] = -gaps[:, columns].min(axis=0)
    least = np.maximum(GRAZE * natural_length(f.system), open_from(f, run))
    for (_, name), deep in zip(grounds, depth.T, strict=True):
        yield from first_crossed(name, deep > least, deep)


def _with_ground(item: object) -> TypeGuard[Contact | PairContact]:
    """Return whether a component is a contact with a half-space or a terrain."""
    return isinstance(item, Contact) or (isinstance(item, PairContact) and isinstance(item.shape1, Terrain))


def _of_solids(item: PairContact) -> bool:
    """Return whether the function `crossed_shapes` tests a contact.
    This function tests all contacts of two bounded shapes, except contacts of two spheres whose centres are
    the origins of their frames.
    """
    return not (_of_spheres(item) or isinstance(item.shape1, Terrain))


def _of_spheres(item: PairContact) -> bool:
    """Return whether a contact is between two spheres with frame origins as centres."""
    shapes = item.shape1, item.shape2
    return all(isinstance(s, Sphere) and not any(map(float, s.center)) for s in shapes)


def first_crossed(name: str, crossed: np.ndarray, depth: np.ndarray) -> Iterator[Crossing]:
    steps = np.flatnonzero(crossed)
    if len(steps):
        yield Crossing(name, int(steps[0]), len(steps), float(depth[steps[0]]))
