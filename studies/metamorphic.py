"""Motions and derivatives do not depend on how a mechanism is told: 8 integrators, 200 mechanisms each.

Every random mechanism, of `vioc.models.family` with masses of two decades, springs and dampers between
bodies and inputs, is told again in three other systems of units, as its mirror image, at another place in the
world, with its tree and its terms in another order, and with bodies written as two
(`studies.metamorphic_changes`). Then 20 steps of 10 ms, their first and second derivatives, the gains of a
regulator along them and their controllability Gramian are the same numbers but for known factors. Differences
are relative to natural sizes: a turn of a radian, half a metre, the momenta that the kinetic energy could be
in alone, the inputs given; and of derivatives the largest entry of each block in these units.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Iterator
from dataclasses import asdict, dataclass, field
from functools import cached_property
from itertools import islice
from typing import Any

import numpy as np

import vioc
from studies.harness import Claim, Report, Study, at_least, at_most
from studies.metamorphic_changes import CHANGES, Change, blocks
from studies.metamorphic_family import INPUT, JOINTS, STEPS, Mechanism, mechanisms
from vioc import GroupVI
from vioc.control import controllability_gramian, dlqr
from vioc.sweeps import sweep

COUNT, QUICK = 200, 1  # mechanisms of each integrator
CHUNK = 5  # mechanisms of one task
QUICK_JOINTS = (2, 2)
SAME = 1e-8
DT = 0.01  # s
LENGTH = 0.5  # natural size of a slide, m
LEAST = 1e-4  # in natural sizes, of a block of derivatives: smaller ones may be 0 but for rounding
QUANTITIES = ("start", "motion", "A", "B", "second order", "gains", "Gramian")


@dataclass(frozen=True)
class Integrator:
    """A map class, as the mechanism with this number takes it.

    Attributes
    ----------
    make : (system, dt, change, index) -> map
    kind : str
        Of mechanisms that it takes, see `studies.metamorphic_family`.
    """

    make: Callable[[vioc.System, float, Change, int], Any]
    kind: str = "any"


def _galerkin(system: vioc.System, dt: float, change: Change, index: int) -> vioc.GalerkinVI:
    lobatto = bool(system.constraints) or index % 2
    return vioc.GalerkinVI(system, dt, stages=3 if lobatto else 2, points="lobatto" if lobatto else "gauss")


def _group(system: vioc.System, dt: float, change: Change, index: int) -> GroupVI:
    if index % 2:
        return GroupVI(system, dt)
    return GroupVI(system, dt, stages=2, points="lobatto" if system.constraints else "gauss")


def _contact(system: vioc.System, dt: float, change: Change, index: int) -> vioc.ContactVI:
    return vioc.ContactVI(system, dt, smoothing=1e-8 * (change.length / change.time) ** 2)


INTEGRATORS = {
    "MidpointVI": Integrator(lambda system, dt, *_: vioc.MidpointVI(system, dt)),
    "GalerkinVI": Integrator(_galerkin),
    "GroupVI": Integrator(_group, "free"),
    "Composition": Integrator(lambda system, dt, *_: vioc.Composition(vioc.MidpointVI(system, dt), 4)),
    "RungeKutta": Integrator(
        lambda system, dt, _, i: vioc.RungeKutta(system, dt, ("rk4", "implicit-midpoint")[i % 2])
    ),
    "ContactVI": Integrator(_contact, "touching"),
    "LinearTimeVI": Integrator(lambda system, dt, *_: vioc.LinearTimeVI(system, dt)),
    "MaximalVI": Integrator(lambda system, dt, *_: vioc.MaximalVI(system, dt), "rigid"),
}

STUDY = Study(
    __file__,
    "the same motions and derivatives in other units, mirrored, moved, reordered, with bodies split",
    pairs=Claim("pairs of descriptions compared", at_least(len(INTEGRATORS) * len(CHANGES))),
    different=Claim("pairs that differ by more than 1e-8", at_most(0)),
    exceptions=Claim("pairs of which one, or both for another reason, ends in an error", at_most(0)),
    ended=Claim("pairs that end in the same error at the same step"),
    **{q.replace(" ", "_"): Claim(f"{q}: largest relative difference", at_most(SAME)) for q in QUANTITIES},
    **{name: Claim(f"{name}: largest relative difference", at_most(SAME)) for name in INTEGRATORS},
)


# -- what a map makes of a mechanism -----------------------------------------------------------------


@dataclass
class Told:
    """A description simulated: what is compared, in the units of a change back to the first description.

    Attributes
    ----------
    map : OneStepMap
    run : Trajectory
        As far as it goes.
    E : (ndx, ndx)
        Errors of the map from those of the first description.
    F : (nu, nu)
        Inputs of the map from those of the first description.
    sizes : (ndx,)
        Natural sizes of the errors, in the units of the first description.
    """

    map: Any
    run: Any
    E: np.ndarray
    F: np.ndarray
    sizes: np.ndarray

    def values(self, z: np.ndarray) -> dict[str, list[np.ndarray]]:
        """Blocks of every quantity in natural sizes; z (N, ndx) in those of errors."""
        f, run = self.map, self.run
        S, Su = self.E * self.sizes, self.F * INPUT  # errors and inputs of the map from natural ones
        back, given = np.linalg.inv(S), np.linalg.inv(Su)
        line = f.linearize_trajectory(run)
        second = f.second_order_trajectory(run, z[: len(run)] @ back)
        Q, R = back.T @ back, given.T @ given
        K = given @ dlqr(f, run, (Q + Q.T) / 2, R).K @ S
        W = back @ controllability_gramian(line.A, line.B @ Su) @ back.T
        A, B = back @ line.A @ S, back @ line.B @ Su
        xx, xu, uu = S.T @ second.xx @ S, S.T @ second.xu @ Su, Su.T @ second.uu @ Su
        x = [slice(0, f.ndx // 2), slice(f.ndx // 2, None)]  # configurations, momenta or velocities
        return {
            "A": [A[:, i, j] for i in x for j in x],
            "B": [B[:, i] for i in x],
            "second order": [*(xx[:, i, j] for i in x for j in x), *(xu[:, i] for i in x), uu],
            "gains": [K[..., i] for i in x],
            "Gramian": [W[i, j] for i in x for j in x],
        }


def tell(f: Any, x: np.ndarray, U: np.ndarray) -> tuple[Any, vioc.StepError | None]:
    """A rollout as far as it goes, and the error that it ends in."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return f.rollout(x, U, warn=False), None
        except vioc.StepError as error:
            return error.trajectory, error


def natural_sizes(f: Any, m: Mechanism, run: Any) -> np.ndarray:
    """Sizes (ndx,) of the errors of a map."""
    lagrangian = vioc.Lagrangian(m.system)
    kinetic = max(float(np.max(run["kinetic"])), 1e-3)
    inertias = dict(zip(m.system.dynamic, lagrangian.mass_scale, strict=True))
    angles = {n.frame.transform.variable.name for n in m.system.nodes if _turns(n.frame.transform)}
    speeds = {n: np.sqrt(2 * kinetic / a) for n, a in inertias.items()}
    of = {n: 1.0 if n in angles else LENGTH for n in inertias}
    of |= {f"p.{n}": 2 * kinetic / speed for n, speed in speeds.items()}
    of |= {f"v.{n}": speed for n, speed in speeds.items()}
    mass = sum(n.frame.mass.mass for n in m.system.nodes if n.frame.mass)
    spins = [speed for n, speed in speeds.items() if n in angles]
    sizes: list[float] = []
    for name, kind in blocks(f, False):
        if kind == "number":
            sizes.append(of[name])
            continue
        if kind == "momentum":
            mine = [speed for n, speed in speeds.items() if n.startswith(name) and n in angles]
            sizes += 3 * [2 * kinetic / min(mine)]
            continue
        speed = np.sqrt(2 * kinetic / mass)
        known = dict(place=LENGTH, turn=1.0, velocity=speed, spin=max([*spins, speed / LENGTH]))
        sizes += 3 * [known[kind]]
    return np.array(sizes)


def _turns(transform: Any) -> bool:
    return bool(transform.variable and transform.rotational)


# -- comparison ----------------------------------------------------------------------------------


@dataclass
class Outcome:
    """The outcome of one pair: a mechanism and the same mechanism in another description.

    Attributes
    ----------
    differences : dict of str to float
        By quantity, relative.
    error : str
        Why it was not compared, "" where it was.
    ended : bool
        Both sides end in the same error at the same step.
    """

    integrator: str
    mechanism: str
    change: str
    differences: dict[str, float] = field(default_factory=dict)
    error: str = ""
    ended: bool = False

    @property
    def worst(self) -> float:
        """The largest difference; not a number where one is none."""
        return float(np.max([0.0, *self.differences.values()]))

    @property
    def finding(self) -> str:
        """One line that says what is wrong; empty where both descriptions agree."""
        where = f"{self.integrator}, {self.mechanism}, {self.change}: "
        if self.error:
            return where + self.error
        off = {q: d for q, d in self.differences.items() if not d <= SAME}
        return where + ", ".join(f"{q} differs by {d:.2g}" for q, d in off.items()) if off else ""


class Base:
    """A mechanism in its first description, by an integrator."""

    def __init__(self, name: str, index: int, m: Mechanism):
        self.name, self.index, self.m, self.kind = name, index, m, INTEGRATORS[name]
        self.map = self.kind.make(m.system, DT, Change(), index)
        self.x0 = self.map.initial_state(m.q, m.v)
        self.run, self.error = tell(self.map, self.x0, m.u)
        self.z = np.random.default_rng(index).standard_normal((STEPS, self.map.ndx))

    @cached_property
    def told(self) -> Told:
        sizes = natural_sizes(self.map, self.m, self.run)
        n = len(sizes), self.map.nu
        return Told(self.map, self.run, np.eye(n[0]), np.eye(n[1]), sizes)

    @cached_property
    def values(self) -> dict[str, list[np.ndarray]]:
        return self.told.values(self.z)

    def compared(self, label: str, change: Change) -> Outcome:
        """The outcome of comparing this mechanism with itself in another description."""
        outcome = Outcome(self.name, self.m.name, label)
        try:
            self._compare(change, outcome)
        except Exception as error:  # any at all is a finding
            outcome.error = f"{type(error).__name__}: {error}"
        return outcome

    def _compare(self, change: Change, outcome: Outcome) -> None:
        f, m = self.map, self.m
        g = self.kind.make(change.system(m.system), change.time * DT, change, self.index)
        factors = change.factors(m.system)
        q = {n: a * factors[n] for n, a in m.q.items()}
        v = {n: a * factors[n] / change.time for n, a in m.v.items()}
        E, F, sizes = change.errors(f, g), change.inputs(f, g), self.told.sizes

        def apart(x: np.ndarray, y: np.ndarray) -> float:
            e = g.difference(change.state(f, g, x), y)
            return float(np.abs(np.linalg.solve(E, e.T).T / sizes).max())

        outcome.differences["start"] = apart(self.x0, g.initial_state(q, v))
        run, error = tell(g, change.state(f, g, self.x0), m.u @ F.T)
        if _which(error) != _which(self.error):
            outcome.error = f"ends apart: {_which(self.error)}, {_which(error)}"
            return
        outcome.ended = error is not None
        outcome.differences["motion"] = apart(self.run.x, run.x)
        if len(run):
            theirs = Told(g, run, E, F, sizes).values(self.z)
            for quantity, mine in self.values.items():
                outcome.differences[quantity] = max(map(_relative, mine, theirs[quantity]))


def _which(error: vioc.StepError | None) -> tuple[int, str] | None:
    return None if error is None else (error.k, error.cause)


def _relative(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.abs(a - b).max(initial=0.0) / np.abs(a).max(initial=LEAST))


def outcomes(
    name: str,
    count: int,
    joints: tuple[int, int] = JOINTS,
    first: int = 0,
    labels: Collection[str] = tuple(CHANGES),
) -> Iterator[Outcome]:
    """Outcomes of `count` mechanisms of an integrator, each in its other descriptions of these labels."""
    members = mechanisms(INTEGRATORS[name].kind, joints)
    for index, m in enumerate(islice(members, first, first + count), first):
        try:
            base = Base(name, index, m)
        except Exception as error:  # any at all is a finding
            yield Outcome(name, m.name, "first description", error=f"{type(error).__name__}: {error}")
            continue
        for i, (label, change) in enumerate(CHANGES.items()):
            if label in labels:
                yield base.compared(label, change(np.random.default_rng([index, i])))


def compared(name: str, first: int, count: int, joints: tuple[int, int]) -> list[dict[str, Any]]:
    """Outcomes of some mechanisms of an integrator as plain data, for other processes."""
    return [asdict(outcome) for outcome in outcomes(name, count, joints, first)]


@STUDY.body
def run(report: Report) -> None:
    count, joints = (QUICK, QUICK_JOINTS) if report.quick else (COUNT, JOINTS)
    size = min(count, CHUNK)
    points = [
        {"name": name, "first": first, "count": size, "joints": joints}
        for name in INTEGRATORS
        for first in range(0, count, size)
    ]
    several = sweep(compared, points, workers=0 if report.quick else None).values
    found = [Outcome(**entries) for chunk in several for entries in chunk]
    for outcome in found:
        if text := outcome.finding:
            print(text)

    def worst(**of: str) -> float:
        """The largest difference of the outcomes with these attributes, of one quantity if that is named."""
        quantity = of.pop("quantity", None)
        some = [o.differences for o in found if all(getattr(o, key) == value for key, value in of.items())]
        return max((d for o in some for q, d in o.items() if quantity in (None, q)), default=0.0)

    report.measure(
        pairs=len(found),
        different=sum(not o.worst <= SAME for o in found),
        exceptions=sum(bool(o.error) for o in found),
        ended=sum(o.ended for o in found),
        **{q.replace(" ", "_"): worst(quantity=q) for q in QUANTITIES},
        **{name: worst(integrator=name) for name in INTEGRATORS},
    )
    draw(report, worst)


def draw(report: Report, worst: Callable[..., float]) -> None:
    """Largest differences by integrator, beside quantities and beside changes."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(11, 4.5), layout="constrained", sharey=True)
    for ax, key, columns in zip(axes, ("quantity", "change"), (QUANTITIES, tuple(CHANGES)), strict=True):
        values = [[worst(integrator=name, **{key: c}) for c in columns] for name in INTEGRATORS]
        image = ax.imshow(np.log10(np.maximum(values, 1e-17)), vmin=-16, vmax=-8, aspect="auto")
        ax.set_xticks(range(len(columns)), columns, rotation=40, ha="right")
        ax.set_yticks(range(len(INTEGRATORS)), tuple(INTEGRATORS))
    figure.colorbar(image, ax=axes, label="log10 of the largest relative difference")
    report.save(figure)


if __name__ == "__main__":
    STUDY.main()
