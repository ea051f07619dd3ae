"""Random tasks of optimal control: a mechanism of a metre, of hinges and sliders, is brought to a posture.

::

    for task in tasks(300):
        best = vioc.control.optimize(task.map, task.cost, x0=task.x0, steps=task.steps)

Written apart from `vioc.models.family`, of which nothing is used. A mechanism has 2 to 12 hinges and
sliders about random axes, on a random tree between a bush and a chain. Each carries a link of random length,
the longest way along the tree being a metre, and of a random mass of three decades. Three joints in four are
driven, at least one; gravity pulls; some joints have dampers; a slider that nothing drives hangs on a spring.
Every second mechanism is a *loop*: the tip of a link is pinned to another link or to the world, or held at a
distance from one, once or twice, and the start is found by closing it from nearby.

The goal is a posture at rest, away from the start in a random direction, along the constraints where there
are some. Weights of state, input and end are random, in units of what an input has to do there. The horizon
is 0.5 to 1 s: a body falls one to five metres.

Mechanisms that do not fit are drawn again before anything is optimized, for the reasons in `LEFT_OUT`. Steps
have to exist at twice their length along the motion without inputs: a mechanism that is faster than its steps
has its optimum where these end to exist, and none inside.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

import vioc
from vioc.control import Cost, quadratic
from vioc.errors import StepError, trying

SEED = 39
JOINTS = 2, 12
HINGES, DRIVEN, DAMPED, MOVING = 0.7, 0.75, 0.3, 0.5  # shares: of joints, and of starts with a velocity
DECADES = 3.0  # of masses, about 1 kg
REACH = 1.0  # m, along the longest way
TURN, SLIDE = 1.0, 0.3  # rad and m: standard deviation of a joint's way to the goal; of its rate, per second
NEAR = 0.2  # of these: how far from the posture in which a loop is made its start is looked for
PARTS, LEAST = 12, 4  # parts of the way to the goal along constraints, and how many have to be gone
INDEPENDENT = 0.05  # least singular value of the constraints' Jacobian with rows of length 1
FELT = 1e-3  # least share of an input's direction that constraints leave
STEP, HORIZON = (0.02, 0.01, 0.005), (0.5, 1.0)  # s; the longest step that does
ROOM = 2  # how much longer the steps of the motion without inputs may be and still exist
GRAVITY = 9.81  # m/s^2
LEFT_OUT = {
    "not closed": "the loop is not closed near the posture that it is made in",
    "rigid": "constraints leave no motion or depend on each other, at the start",
    "not driven": "no input moves what constraints leave",
    "no goal": "constraints end the way to the goal within its first third, or depend on each other there",
    "no step": "steps of the motion without inputs, where a search begins, leave no room at any length",
}


class PostureTask(NamedTuple):
    """To come near a posture from a state.

    Attributes
    ----------
    name : str
        ``"tree 16"`` or ``"loop 17"``.
    map : MidpointVI
    cost : Cost
    x0, goal : (nx,)
    steps : int
    size : (nu,)
        Typical inputs, N m and N: what its joint alone has to bear or do.
    """

    name: str
    map: vioc.MidpointVI
    cost: Cost
    x0: np.ndarray
    goal: np.ndarray
    steps: int
    size: np.ndarray

    @property
    def loop(self) -> bool:
        return self.name.startswith("loop")


def tasks(
    number: int, left_out: Counter[str] | None = None, *, most: int = JOINTS[1]
) -> Iterator[PostureTask]:
    """The first tasks of the family, of at most so many joints; counts what is drawn again in `left_out`."""
    return (task(index, left_out, most=most) for index in range(number))


def task(index: int, left_out: Counter[str] | None = None, *, most: int = JOINTS[1]) -> PostureTask:
    """One task of the family, which does not depend on those before it: a tree if `index` is even."""
    rng = np.random.default_rng([SEED, index])
    while True:
        found = _drawn(rng, index, most)
        if isinstance(found, PostureTask):
            return found
        assert found in LEFT_OUT
        if left_out is not None:
            left_out[found] += 1


def _drawn(rng: np.random.Generator, index: int, most: int) -> PostureTask | str:
    """A task, or why there is none."""
    loop = index % 2 == 1
    links = _Links(rng, int(rng.integers(max(JOINTS[0], 3 if loop else 0), most + 1)))
    q = rng.uniform(-1.0, 1.0, size=links.count) * links.unit
    terms = links.terms(rng, q)
    system = vioc.System(*links.frames({}), *terms, name=f"{'loop' if loop else 'tree'} {index}")
    if loop:
        anchors, closures = links.closures(rng, system, q)
        if len(closures) >= links.count:
            return "rigid"
        system = vioc.System(*links.frames(anchors), *terms, *closures, name=system.name)
    lag = vioc.Lagrangian(system)
    if loop:
        closed = _closed(lag, q + NEAR * links.unit * rng.standard_normal(links.count))
        if closed is None:
            return "not closed"
        q = closed
    left = _left(lag, q)
    if left is None:
        return "rigid"
    driven = [system.variables.index(name.removeprefix("u-")) for name in system.inputs]
    if not (np.linalg.norm(left[driven], axis=1) >= FELT).any():
        return "not driven"
    end = _along(lag, q, links.unit * rng.standard_normal(links.count))
    if end is None:
        return "no goal"
    v = (rng.random() < MOVING) * links.unit * rng.standard_normal(links.count)
    horizon = rng.uniform(*HORIZON)
    for dt in STEP:
        f, steps = vioc.MidpointVI(system, dt, backend="virtual"), round(horizon / dt)
        x0 = f.initial_state(q, vioc.project_velocity(lag, q, v) if loop else v)
        if _moves(f, x0, steps) and _moves(f.with_dt(ROOM * dt), x0, steps // ROOM):
            break
    else:
        return "no step"
    goal = f.initial_state(end)
    own, h = np.diag(lag.mass_matrix(q)), 1e-3 * np.diag(links.unit)
    bear = [(lag.potential_energy(q + d) - lag.potential_energy(q - d)) / (2 * d.sum()) for d in h]
    size = (np.abs(bear) + own * links.unit / horizon**2)[driven]
    cost = _cost(rng, f, goal, np.concatenate([links.unit, own * links.unit / horizon]), size)
    return PostureTask(system.name, f, cost, x0, goal, steps, size)


class _Links:
    """A tree of links: joint ``j0`` moves the body ``link0``, which ends at ``tip0``, and so on.

    Attributes
    ----------
    count : int
    parents : list of int
        Of each link; -1 is the world.
    unit : (count,)
        `TURN` of a hinge, `SLIDE` of a slider.
    """

    def __init__(self, rng: np.random.Generator, count: int):
        self.count, chain = count, rng.random()
        self.parents = [-1] + [
            i - 1 if rng.random() < chain else int(rng.integers(-1, i)) for i in range(1, count)
        ]
        self.hinges = rng.random(count) < HINGES
        self.unit = np.where(self.hinges, TURN, SLIDE)
        self.rotations = [_rotation(rng) for _ in range(count)]
        lengths = rng.uniform(0.2, 1.0, size=count)
        self.ends = [length * _direction(rng) for length in lengths]
        self.begins = [np.zeros(3) if p < 0 else rng.uniform(0.5, 1.0) * self.ends[p] for p in self.parents]
        ways: list[float] = []
        for p, begin, length in zip(self.parents, self.begins, lengths, strict=True):
            ways.append(length if p < 0 else ways[p] - lengths[p] + float(np.linalg.norm(begin)) + length)
        scale = REACH / max(ways)
        self.ends, self.begins = [scale * e for e in self.ends], [scale * b for b in self.begins]
        self.masses = [self._mass(rng, end) for end in self.ends]

    @staticmethod
    def _mass(rng: np.random.Generator, end: np.ndarray) -> vioc.Mass:
        """A box as long as the link in one of its edges, turned at random, in the link's middle."""
        mass = 10 ** rng.uniform(-DECADES / 2, DECADES / 2)
        squares = (np.linalg.norm(end) * np.array([1.0, *rng.uniform(0.1, 0.5, size=2)])) ** 2
        turn = _rotation(rng)
        inertia = mass / 12 * turn @ np.diag(squares.sum() - squares) @ turn.T
        return vioc.Mass(float(mass), inertia, tuple((end / 2).tolist()))

    def frames(self, anchors: dict[int, list[tuple[str, np.ndarray]]]) -> list[vioc.Frame]:
        """The roots, with points by name on links, or on the world (-1)."""
        below = {
            i: [vioc.se3(at, name=name) for name, at in anchors.get(i, [])] for i in range(-1, self.count)
        }
        for i in reversed(range(self.count)):
            joint = (vioc.revolute if self.hinges[i] else vioc.prismatic)(
                f"j{i}", "z", frame=f"link{i}", mass=self.masses[i]
            )
            carried = joint[(vioc.se3(self.ends[i], name=f"tip{i}"), *below[i])]
            below[self.parents[i]].append(vioc.se3(self.begins[i], rotation=self.rotations[i])[carried])
        return below[-1]

    def terms(self, rng: np.random.Generator, q: np.ndarray) -> list[Any]:
        """Gravity, inputs, dampers, and springs of sliders that nothing drives."""
        weight = vioc.Gravity(0, 0, -GRAVITY)
        lag = vioc.Lagrangian(vioc.System(*self.frames({}), weight))
        own = np.diag(lag.mass_matrix(q))
        driven = rng.random(self.count) < DRIVEN
        driven[rng.integers(self.count)] = True
        terms: list[Any] = [weight]
        for i in range(self.count):
            name = f"j{i}"
            if driven[i]:
                terms.append(vioc.JointForce(name, f"u-{name}"))
            elif not self.hinges[i]:  # its own weight along it would take it by 0.1 to 0.3 of SLIDE
                terms.append(
                    vioc.TorsionalSpring(
                        name, float(own[i] * GRAVITY / SLIDE / rng.uniform(0.1, 0.3)), float(q[i])
                    )
                )
            if rng.random() < DAMPED:
                terms.append(vioc.JointDamping(name, float(own[i] * rng.uniform(0.1, 2.0))))
        return terms

    def closures(
        self, rng: np.random.Generator, system: vioc.System, q: np.ndarray
    ) -> tuple[dict[int, list[tuple[str, np.ndarray]]], list[Any]]:
        """Points on links and the world, and the constraints that hold tips there, once or twice."""
        places = vioc.Kinematics(system)
        anchors: dict[int, list[tuple[str, np.ndarray]]] = {}
        found: list[Any] = []
        for k in range(int(rng.integers(1, 3))):
            one = int(rng.integers(self.count))
            others = [i for i in range(-1, self.count) if i not in (one, self.parents[one])]
            other, name = int(rng.choice(others)) if others else -1, f"anchor{k}"
            tip = places.position(f"tip{one}", q)
            pose = np.eye(4) if other < 0 else places.pose(f"link{other}", q)
            pinned = rng.random() < 0.5
            away = np.zeros(3) if pinned else rng.uniform(0.2, 0.6) * REACH * _direction(rng)
            anchors.setdefault(other, []).append((name, pose[:3, :3].T @ (tip + away - pose[:3, 3])))
            if pinned:
                found += vioc.coincident(f"tip{one}", name, name=f"pin{k}")
            else:
                length = float(np.linalg.norm(away))
                found.append(vioc.DistanceConstraint(f"tip{one}", name, length, name=f"rod{k}"))
        return anchors, found


def _direction(rng: np.random.Generator) -> np.ndarray:
    d = rng.standard_normal(3)
    return d / np.linalg.norm(d)


def _rotation(rng: np.random.Generator) -> np.ndarray:
    """A rotation as likely as any other, of a random quaternion."""
    w, x, y, z = (d := rng.standard_normal(4)) / np.linalg.norm(d)
    K = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
    return np.eye(3) + 2 * w * K + 2 * K @ K


def _left(lag: vioc.Lagrangian, q: np.ndarray) -> np.ndarray | None:
    """An orthonormal basis (nq, free) of what constraints leave; None where that is nothing, or not sure."""
    J = lag.constraint_jacobian(q)
    size = np.linalg.norm(J, axis=1, keepdims=True)
    if not len(J):
        return np.eye(len(q))
    if not (size > 0).all():
        return None
    _, s, V = np.linalg.svd(J / size)
    return V[len(J) :].T if len(J) < len(q) and s[-1] >= INDEPENDENT else None


def _moves(f: vioc.MidpointVI, x0: np.ndarray, steps: int) -> bool:
    """True if the task has a motion without inputs."""
    try:
        with trying():
            f.rollout(x0, steps=steps, warn=False)
    except StepError:
        return False
    return True


def _closed(lag: vioc.Lagrangian, q: np.ndarray) -> np.ndarray | None:
    """A configuration near q that satisfies the constraints, or None.

    Levenberg-Marquardt in SI units, and not vioc's own search, so that tasks remain what they are.
    """
    damping, h = 1e-3, lag.constraints(q)
    for _ in range(200):
        if np.abs(h).max() <= 1e-12:
            return q
        J = lag.constraint_jacobian(q)
        slack = max(damping * min(float(h @ h), 1.0), 1e-15)
        trial = q + J.T @ np.linalg.solve(J @ J.T + slack * np.eye(len(h)), -h)
        new = lag.constraints(trial)
        if new @ new < h @ h:
            q, h, damping = trial, new, max(damping / 4, 1e-12)
        else:
            damping *= 8
    return None


def _along(lag: vioc.Lagrangian, q: np.ndarray, way: np.ndarray) -> np.ndarray | None:
    """The end of a way from q along the constraints: the last place where these are independent."""
    if not lag.system.constraints:
        return q + way
    for part in range(PARTS):
        on = _closed(lag, q + way / PARTS)
        if on is None or _left(lag, on) is None:
            return q if part >= LEAST else None
        q = on
    return q


def _cost(
    rng: np.random.Generator, f: vioc.MidpointVI, goal: np.ndarray, unit: np.ndarray, size: np.ndarray
) -> Cost:
    """Random weights: of the state along the way (of half rank) and at its end, of the inputs."""
    n = len(unit)

    def weights(rank: int, decades: tuple[float, float]) -> np.ndarray:
        factor = rng.standard_normal((rank, n)) / unit
        return 10 ** rng.uniform(*decades) * factor.T @ factor / rank

    Q, Qf = weights((n + 1) // 2, (-1.0, 1.0)), weights(2 * n, (0.0, 2.0))
    R = np.diag(10 ** rng.uniform(-2.0, 0.0, size=len(size)) / size**2)
    return quadratic(f, Q=Q, R=R, Qf=Qf, reference=goal)
