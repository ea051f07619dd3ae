"""Constraints that follow from the others: the choice, the forces of least norm, what contradicts."""

from __future__ import annotations

import pickle
import re
import warnings
from functools import cache

import numpy as np
import pytest

import vioc
from vioc import DistanceConstraint, GroupVI, MidpointVI, System, coincident, rx, ry, rz, tx, ty, tz
from vioc.compile import find_compiler
from vioc.components import Rolling, Skate
from vioc.errors import ConstraintError, ModelError, RedundancyWarning, StepError
from vioc.maps import check_map

G = 9.81


@cache
def bricard() -> System:
    """Five rods of 1 m and 1 kg along the edges of a cube; six revolute joints, two of them on the ground."""
    turns, edges = (ry, rz, rx, ry, rz), ((1, 0, 0), (0, -1, 0), (0, 0, 1), (-1, 0, 0), (0, 1, 0))
    tree = tx(0.5, name="end-axis")
    for i in reversed(range(5)):
        axis = int(np.argmax(np.abs(edges[i])))
        inertia = [1 / 12] * 3
        inertia[axis] = 0.0
        mass = vioc.Mass(1.0, com=tuple(0.5 * e for e in edges[i]), inertia=tuple(inertia))
        far = (tx, ty, tz)[axis](float(edges[i][axis]), **({"name": "end"} if i == 4 else {}))
        tree = turns[i](f"q{i + 1}", mass=mass)[far[tree]]
    ground = tz(1.0, name="pin")[tx(0.5, name="pin-axis")]
    closed = coincident("end", "pin", name="point"), coincident("end-axis", "pin-axis", "yz", name="axis")
    return System(tree, ground, vioc.Gravity(0, -G, 0), closed, name="bricard")


def doubled(extra: int) -> System:
    """A mass on a rod in space, and the rod again, as often as asked for."""
    rods = [DistanceConstraint("bob", "world", 1.0, name=f"rod-{i}") for i in range(1 + extra)]
    tree = tx("x")[ty("y")[tz("z", name="bob", mass=1.0)]]
    return System(tree, vioc.Gravity(0, 0, -G), rods, name="doubled")


def quiet(system, dt=0.01, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RedundancyWarning)
        return MidpointVI(system, dt, **options)


@cache
def bricards_map() -> tuple[MidpointVI, list[warnings.WarningMessage]]:
    """The map of Bricard's mechanism, and what making it warned of."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        return MidpointVI(bricard(), 0.01), caught


def test_bricards_mechanism_moves_in_all_its_constraints():
    f, caught = bricards_map()
    assert [w.category for w in caught] == [RedundancyWarning]
    said = str(caught[0].message)
    assert re.search(r"bricard: .* imply it: axis-z\. .* redundant=\('axis-z',\)", said), said
    run = f.rollout(f.initial_state(), steps=300)
    assert np.ptp(run["q1"]) > 1.0
    for name in f.system.constraint_names:
        assert np.abs(run[f"h.{name}"]).max() < 1e-13
    band = np.ptp(run.energy)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fine = MidpointVI(f.system, 0.005, redundant="axis-z")
    assert np.ptp(fine.rollout(fine.initial_state(), steps=600).energy) == pytest.approx(band / 4, rel=0.1)
    # forces of all constraints, of least norm
    forces = np.array([run[f"force.{n}"] for n in f.system.constraint_names]).T
    for k in (1, 100, 299):
        J = f.whole.constraint_jacobian(run.x[k, :5])
        alone = -f.lagrangian.constraint_jacobian(run.x[k, :5]).T @ run.multipliers[k] / f.dt
        expected = np.linalg.pinv(J.T, rcond=1e-8) @ alone
        np.testing.assert_allclose(forces[k], expected, atol=1e-9 * np.abs(expected).max())


def test_derivatives_are_those_of_motions_on_the_constraints():
    f, _ = bricards_map()
    run = f.rollout(f.initial_state(), steps=60)
    x = run.x[50]
    check_map(f, x)
    free = np.linalg.svd(f.whole.constraint_jacobian(x[:5]))[2][4:].T  # one degree of freedom
    A = f.linearize(x).A

    def moved(e):
        q = f.consistent_configuration(x[:5] + e * free[:, 0]).q
        return np.concatenate([q, x[5:]])

    slope = (f.step(moved(1e-5)) - f.step(moved(-1e-5))) / 2e-5
    there = (moved(1e-5) - moved(-1e-5)) / 2e-5
    np.testing.assert_allclose(slope, A @ there, atol=1e-7 * np.abs(slope).max())
    # another choice gives the same motion, and the same derivatives along it
    other = MidpointVI(f.system, 0.01, redundant="point-x")
    np.testing.assert_allclose(other.step(x), f.step(x), atol=1e-12)
    np.testing.assert_allclose(other.linearize(x).A @ there, A @ there, atol=1e-7 * np.abs(slope).max())


@pytest.mark.parametrize("extra", [1, 3])
def test_doubled_rods_share_the_force_of_one(extra):
    one, f = MidpointVI(doubled(0), 0.01), quiet(doubled(extra))
    assert len(f.redundant) == extra
    start = {"x": 0.6, "z": -0.8}, {"y": 0.5}
    single, run = (m.rollout(m.initial_state(*start), steps=100) for m in (one, f))
    np.testing.assert_allclose(run.x, single.x, atol=1e-12)
    for i in range(1 + extra):
        share = single["tension.rod-0"] / (1 + extra)
        np.testing.assert_allclose(run[f"tension.rod-{i}"], share, rtol=1e-9)
    again = pickle.loads(pickle.dumps(f))
    assert again.redundant == f.redundant and np.array_equal(again.step(run.x[9]), f.step(run.x[9]))


def test_two_wheels_that_forbid_one_slip():
    axles = [ty(s)[ry(n, name=n, mass=(1, 0.01, 0.02, 0.01))] for n, s in (("left", 0.3), ("right", -0.3))]
    base = tz(0.1)[tx("x")[ty("y")[rz("yaw", name="base", mass=(5, 1, 1, 1))[axles]]]]
    rows = [
        Rolling(n, 0.1, (0, 1, 0), along, "base", name=f"{n}-{what}")
        for n in ("left", "right")
        for what, along in (("rolls", (1, 0, 0)), ("skids", (0, 1, 0)))
    ]
    f = quiet(System(base, rows))
    assert len(f.redundant) == 1 and f.redundant[0].endswith("skids") and f.mechanism.velocity_constraints
    skates = *(r for r in rows if r.name.endswith("rolls")), Skate("base", (0, 1, 0), "base")
    g = MidpointVI(System(base, skates), 0.01)
    v = vioc.project_velocity(g.system, None, {"left": 3.0, "right": 5.0})
    np.testing.assert_allclose(
        f.rollout(f.initial_state(None, v), steps=100).x,
        g.rollout(g.initial_state(None, v), steps=100).x,
        atol=1e-12,
    )


def test_what_contradicts_stays_an_error():
    rods = (
        DistanceConstraint("bob", "world", 1.0, name="one"),
        DistanceConstraint("bob", "world", 1.1, name="two"),
    )
    tree = tx("x")[tz("z", name="bob", mass=1.0)]
    f = MidpointVI(System(tree, rods), 0.01)  # no configuration fulfils both: nothing is left out
    assert f.redundant == ()
    with pytest.raises(ConstraintError, match="two"):
        f.initial_state({"x": 1.0})
    # said to be redundant by hand, it does not follow
    two = DistanceConstraint("bob", "post", 1.0, name="two")
    pair = System(tree, tx(1.0, name="post"), rods[0], two)
    g = MidpointVI(pair, 0.01, redundant="two")
    start = g.initial_state({"x": 0.5, "z": -np.sqrt(0.75)})
    with pytest.raises(StepError, match=r"two was left out as redundant, but does not follow") as caught:
        g.rollout(start + [0, 0, 0.9, 0.3], steps=5)
    assert caught.value.cause == "singular constraints"
    with pytest.raises(ModelError, match="unknown constraint 'tow'"):
        MidpointVI(pair, 0.01, redundant="tow")
    with pytest.raises(TypeError, match="redundant: expected a name or names, got True"):
        MidpointVI(pair, 0.01, redundant=True)
    assert MidpointVI(pair, 0.01, redundant=("two", "two")).redundant == ("two",)


def four_bar(offsets, *, turned: float = 0.0, scale: float = 1.0, about: str = "world") -> System:
    """A planar four-bar on a base that may be turned, its pin closed in all three directions."""
    y1, y2, y3 = (scale * y for y in offsets)
    mass = vioc.Mass(1.0, (0.01 * scale**2,) * 3)
    rod = tz(-0.3 * scale)[ty(y2)[ry("b", mass=mass)[tx(0.5 * scale)[ty(y3 - (y1 + y2), name="P")]]]]
    crank = ty(y1)[ry("a", mass=mass)[rod]]
    rocker = tx(0.5 * scale)[ty(y3)[ry("c", mass=mass)[tz(-0.3 * scale, name="R")]]]
    pin = coincident("P", "R", "xyz", name="pin", direction_in=about)
    gravity = vioc.Gravity(0, 0, -G * scale)
    return System(rx(turned)[rz(2 * turned, name="base")[crank, rocker]], gravity, pin, name="four-bar")


def pose(system: System, **more: float) -> np.ndarray:
    guess = {"a": 0.3, "b": -0.3, "c": 0.3, **more}
    return vioc.consistent_configuration(system, guess, fixed=["a", *more]).q


@pytest.mark.parametrize(
    "turned, loops", [(0.7, 2), *(pytest.param(t, 7, marks=pytest.mark.slow) for t in (0.0, np.pi / 2, 0.7))]
)
def test_rounding_is_no_contradiction(turned, loops):
    """The implied direction of a loop, |h| of some 1e-17 m and Dh of as little, is left out anywhere."""
    rng = np.random.default_rng(1)
    for scale in (1.0, 1e-3, 1e4):
        for offsets in rng.uniform(-0.3, 0.3, (loops, 3)).round(3):
            f = quiet(four_bar(offsets, turned=turned, scale=scale), 0.005)
            assert len(f.redundant) == 1
            run = f.rollout(f.initial_state(pose(f.system)), steps=5)
            for name in f.system.constraint_names:
                assert np.abs(run[f"h.{name}"]).max() < 1e-13 * scale


def lift(stages: int) -> System:
    """A scissor lift: two columns of bars, joined at their middles. Folded, the columns coincide."""

    def column(bar: str, middle: str):
        tree = ()
        for i in reversed(range(stages)):
            end = tz(1.0, mass=0.1)
            tree = ry(f"{bar}{i}")[tz(0.5, name=f"{middle}{i}"), end[tree] if tree else end]
        return ry(0.3)[tree]

    pins = [coincident(f"A{i}", f"B{i}", "xz", name=f"pin{i}") for i in range(stages)]
    trees = column("a", "A"), tx("s", mass=0.5)[column("b", "B")]
    return System(trees, vioc.Gravity(0, 0, -G), pins, name="lift")


def opened(stages: int) -> dict[str, float]:
    """Leaning by 0.5 rad to alternate sides."""
    sides = {
        f"{bar}{i}": sign * (-1) ** i * (1.0 if i else 0.5)
        for bar, sign in (("a", 1), ("b", -1))
        for i in range(stages)
    }
    return {**sides, "a0": 0.5 - 0.3, "b0": -0.5 - 0.3, "s": np.sin(0.5)}


@pytest.mark.parametrize("stages", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_a_folded_branch_takes_no_constraint_from_the_others(stages):
    """The configuration of zeros leads to where the columns coincide and pins imply each other."""
    system = lift(stages)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        f, all_kept = MidpointVI(system, 0.01), MidpointVI(system, 0.01, redundant=())
    assert f.redundant == ()
    x = f.initial_state(opened(stages))
    assert np.array_equal(f.rollout(x, steps=50).x, all_kept.rollout(x, steps=50).x)
    # folded, the error names the choice that moves there
    folded = f.initial_state({})
    with pytest.raises(StepError, match=r"redundant=\('pin.*leaves out what follows") as caught:
        f.step(folded)
    assert caught.value.cause == "singular constraints"
    left = vioc.consistent_configuration(system).redundant
    g = MidpointVI(system, 0.01, redundant=left)
    run = g.rollout(folded, steps=20)
    assert max(np.abs(run[f"h.{n}"]).max() for n in system.constraint_names) < 1e-13


def test_messages_name_the_choice_that_fits_where_a_motion_is():
    offsets = 0.1, 0.17, -0.214
    turning = System(
        rz("yaw", mass=(1, 0.1, 0.1, 0.1))[four_bar(offsets).frames], four_bar(offsets).components
    )
    f = quiet(turning, 0.005)
    assert f.redundant == ("pin-y",)
    q = pose(turning, yaw=np.pi / 2)  # the loop's plane is now across x
    assert vioc.consistent_configuration(turning, q).redundant == ("pin-x",)
    with pytest.raises(StepError, match=r"pin-x vanishes.*redundant=\('pin-x',\)\) leaves out"):
        f.step(f.initial_state(q))
    g = MidpointVI(turning, 0.005, redundant="pin-x")
    g.rollout(g.initial_state(q), steps=20)
    # in the axes of a body of the loop the same direction is implied everywhere
    own = four_bar(offsets, about="base")
    own = System(rz("yaw", mass=(1, 0.1, 0.1, 0.1))[own.frames], own.components)
    h = quiet(own, 0.005)
    np.testing.assert_allclose(
        h.rollout(h.initial_state(q), steps=20).x, g.rollout(g.initial_state(q), steps=20).x, atol=1e-11
    )
    # a motion that passes there between two samples needs no other choice
    before = pose(turning, yaw=np.pi / 2 - 0.034)
    start = f.initial_state(before, vioc.project_velocity(f.lagrangian, before, {"yaw": 2.0}))
    np.testing.assert_allclose(f.rollout(start, steps=20).x, h.rollout(start, steps=20).x, atol=1e-11)


@pytest.mark.parametrize(
    "make",
    [
        lambda s: MidpointVI(s, 0.01, redundant=()),
        lambda s: vioc.LinearTimeVI(s, 0.01),
        lambda s: vioc.MaximalVI(s, 0.01),
        lambda s: vioc.RungeKutta(s, 0.01),
        lambda s: vioc.GalerkinVI(s, 0.01, points="lobatto"),
    ],
)
def test_maps_that_leave_nothing_out_name_what_is_redundant(make):
    system = four_bar((0.1, 0.17, -0.214))
    f = make(system)
    with pytest.raises(StepError, match="pin-y"):
        f.rollout(f.initial_state(pose(system)), steps=3)


@pytest.mark.parametrize("turned", [0.0, np.pi / 2])
@pytest.mark.parametrize("make", [GroupVI, vioc.MaximalVI, lambda s, dt: MidpointVI(s, dt, redundant=())])
def test_floating_loops_name_it_too(make, turned):
    loop = four_bar((0.1, 0.17, -0.214), turned=turned)
    system = System(vioc.free("body", mass=(5, 1, 1.2, 1.4))[loop.frames], loop.components)
    q = vioc.consistent_configuration(system, {"a": 0.3, "b": -0.3, "c": 0.3}, fixed="a")
    f = make(system, 0.01)
    with pytest.raises((StepError, ConstraintError), match="pin-"):
        f.rollout(f.initial_state(dict(zip(system.variables, q.q, strict=True))), steps=3)


def test_a_slope_that_is_rounding_alone_is_none():
    """Of a loop turned across x that is pinned along x and z: accelerations would be arbitrary numbers."""
    loop = four_bar((0.1, 0.17, -0.214))
    pins = [c for c in loop.constraints if c.name != "pin-y"]
    system = System(rz("yaw", mass=(1, 0.1, 0.1, 0.1))[loop.frames], loop.potentials, pins)
    q = np.array([np.pi / 2, *pose(loop)])
    assert vioc.consistent_configuration(system, q).redundant == ("pin-x",)
    with pytest.raises(ConstraintError, match=r"rank 1 of 2: pin-x follows"):
        vioc.Continuous(system).forward(q, np.zeros(4))


def test_contacts_that_hold_the_same_are_named():
    """Two feet of a block that does not turn."""
    feet = tx(0.1, name="left"), tx(-0.1, name="right")
    contacts = [vioc.Contact(n, name=n) for n in ("left", "right")]
    system = System(tx("x", mass=1)[tz("z", mass=1)[feet]], vioc.Gravity(0, 0, -G), contacts)
    f = vioc.ModeVI(system, 0.01, sliding=("left", "right"))
    with pytest.raises(StepError, match="right follows from the other constraints"):
        f.step(f.initial_state())


@pytest.mark.slow
def test_compiled_steps_are_the_same():
    f = quiet(bricard(), backend="virtual")
    run = f.rollout(f.initial_state(), steps=50)
    g = MidpointVI(f.system, 0.01, redundant=f.redundant, backend="compiled")
    assert np.array_equal(g.rollout(run.x[0], steps=50).x, run.x)


def parallelogram(*more) -> System:
    """Two cranks of 0.3 m that turn alike, and a coupler; flat at a = 0, where its two branches cross."""
    mass = vioc.Mass(1.0, (0.01,) * 3)
    coupler = ry("b", mass=mass)[tx(0.5, name="P")]
    cranks = ry("a", mass=mass)[tx(0.3)[coupler]], tx(0.5)[ry("c", mass=mass)[tx(0.3, name="R")]]
    return System(cranks, coincident("P", "R", "xz", name="pin"), *more, name="parallelogram")


LIMITS = vioc.JointLimits("a", -3, 3, name="stop")
TURNING = {  # maps that turn it, and what a step that ends flat is
    "midpoint": lambda dt: MidpointVI(parallelogram(), dt, redundant=()),
    "composition": lambda dt: vioc.Composition(MidpointVI(parallelogram(), dt, redundant=()), 4),
    "linear time": lambda dt: vioc.LinearTimeVI(parallelogram(), dt),
    "galerkin": lambda dt: vioc.GalerkinVI(parallelogram(), dt, points="lobatto"),
    "runge-kutta": lambda dt: vioc.RungeKutta(parallelogram(), dt),
    "contact": lambda dt: vioc.ContactVI(parallelogram(LIMITS), dt),
    "maximal": lambda dt: vioc.MaximalVI(parallelogram(), dt),
    "maximal with limits": lambda dt: vioc.MaximalVI(parallelogram(LIMITS), dt),
}


@pytest.mark.parametrize("kind", TURNING)
def test_a_step_that_meets_a_singular_position_is_called_that(kind):
    """It passes flat between two samples at constant speed; a sample there ends the run and says why."""
    f, steps = TURNING[kind](1 / 64), 3

    def turned(a, steps):
        start = {"a": a, "b": -a, "c": a}, {"a": 2.0, "b": -2.0, "c": 2.0}
        return f.rollout(f.initial_state(*start), steps=steps)

    passing = turned(-0.08, 6)["a"]
    speed = (passing[1] - passing[0]) / f.dt
    assert speed == pytest.approx(2.0, abs=1e-3) and passing[0] < 0 < passing[-1]
    np.testing.assert_allclose(np.diff(passing) / f.dt, speed, atol=1e-4)

    def land():
        start = -steps * speed * f.dt
        for _ in range(6):
            start -= turned(start, steps)["a"][-1]
            turned(start, steps + 2)

    with pytest.raises(StepError, match="pin-x (follows from the other|vanishes)") as caught:
        land()
    assert caught.value.cause == "singular constraints" and caught.value.k in (steps - 1, steps)
    if caught.value.length is not None:
        assert "choose dt so that no step ends there" in str(caught.value)
        assert caught.value.length == pytest.approx(f.dt, rel=1e-3)


BACKENDS = ("virtual", "compiled") if find_compiler() else ("virtual",)
LANDING = {
    "midpoint": lambda dt, backend: MidpointVI(parallelogram(), dt, redundant=(), backend=backend),
    "contact": lambda dt, backend: vioc.ContactVI(parallelogram(LIMITS), dt, backend=backend),
    "maximal": lambda dt, backend: vioc.MaximalVI(parallelogram(), dt, backend=backend),
    "maximal with limits": lambda dt, backend: vioc.MaximalVI(parallelogram(LIMITS), dt, backend=backend),
    "runge-kutta": lambda dt, backend: vioc.RungeKutta(parallelogram(), dt, backend=backend),
    "implicit runge-kutta": lambda dt, backend: vioc.RungeKutta(
        parallelogram(), dt, "implicit-midpoint", backend=backend
    ),
}


RUNS = [(1 / 64, 2.0, BACKENDS[-1], 15), (0.05, 1.5, "virtual", 15)]
RUNS += [  # nightly, with more landings
    pytest.param(dt, speed, backend, 40, marks=pytest.mark.slow)
    for backend in BACKENDS
    for dt, speed in ((1 / 64, 2.0), (0.05, 1.5))
]


@pytest.mark.parametrize("dt, speed, backend, count", RUNS)
@pytest.mark.parametrize("kind", LANDING)
def test_a_run_beside_a_singular_position_is_the_motion_or_an_error(kind, dt, speed, backend, count):
    """The parallelogram turns on at its speed wherever samples lie beside flat, and on its own branch."""
    f = LANDING[kind](dt, backend)

    def turned(start, steps):
        at = {"a": start, "b": -start, "c": start}, {"a": speed, "b": -speed, "c": speed}
        return f.rollout(f.initial_state(*at), steps=steps)

    start = -3 * speed * dt
    away = np.array([-4.0, -3.0, -2.0, 2.0, 3.0, 4.0]) * speed * dt / 30
    ends = [turned(start + offset, 3)["a"][-1] for offset in away]
    start += np.polyval(np.polyfit(ends, away, 3), 0.0)  # a sample flat but for rounding
    wrong, refused = 0, [0.0]
    landings = [sign * e for e in np.geomspace(1e-10, 1e-3, count) for sign in (1, -1)]
    for offset in landings:
        try:
            run = turned(start + offset, 6)
        except StepError as error:
            assert error.cause == "singular constraints"
            refused.append(abs(offset))
            continue
        wrong += not (
            np.abs(run["a"] - run["c"]).max() < 1e-3 and np.ptp(np.diff(run["a"])) < 1e-2 * speed * dt
        )
    assert wrong == 0
    assert max(refused) < 1e-4  # rad: those farther away are all motions


@pytest.mark.parametrize(
    "integrator, limits", [(vioc.MaximalVI, ()), (vioc.MaximalVI, (LIMITS,)), (vioc.RungeKutta, ())]
)
@pytest.mark.parametrize("ratio", [1e-8, 1e6])
def test_a_loop_of_light_and_heavy_links_is_no_singular_position(ratio, integrator, limits):
    """Gradients of constraints are told apart by angles, so that masses do not enter."""
    heavy = vioc.Mass(1.0, (0.01,) * 3)
    light = vioc.Mass(ratio, (0.01 * ratio,) * 3)
    coupler = ry("b", mass=light)[tx(0.5, name="P")]
    cranks = ry("a", mass=heavy)[tx(0.3)[coupler]], tx(0.5)[ry("c", mass=heavy)[tx(0.3, name="R")]]
    gravity = vioc.Gravity(0, 0, -G)
    f = integrator(System(cranks, coincident("P", "R", "xz", name="pin"), gravity, *limits), 0.01)
    run = f.rollout(
        f.initial_state({"a": 0.5, "b": -0.5, "c": 0.5}, {"a": 1.0, "b": -1.0, "c": 1.0}), steps=30
    )
    np.testing.assert_allclose(run["a"], run["c"], atol=1e-8)
    assert np.ptp(run.energy) < 0.02 * np.abs(run.energy).max()


def test_masses_too_far_apart_for_double_precision_are_called_that():
    """At a ratio of 1e10 impulses between bodies round off what moves the light ones; nothing is singular."""
    heavy, light = vioc.Mass(1e10, (1e8,) * 3), vioc.Mass(1.0, (0.01,) * 3)
    coupler = ry("b", mass=heavy)[tx(0.5, name="P")]
    cranks = ry("a", mass=light)[tx(0.3)[coupler]], tx(0.5)[ry("c", mass=light)[tx(0.3, name="R")]]
    four_bar = System(cranks, coincident("P", "R", "xz", name="pin"), vioc.Gravity(0, 0, -G))
    start = {"a": 0.5, "b": -0.5, "c": 0.5}, {"a": 1.0, "b": -1.0, "c": 1.0}
    f = vioc.MaximalVI(four_bar, 0.01)
    with pytest.raises(StepError, match=r"masses of joined bodies differ by a factor of 1e\+10") as caught:
        f.rollout(f.initial_state(*start), steps=30)
    assert caught.value.cause == "no convergence"
    f = MidpointVI(four_bar, 0.01)
    run = f.rollout(f.initial_state(*start), steps=30)
    np.testing.assert_allclose(run["a"], run["c"], atol=1e-8)


def test_a_start_in_a_singular_position_of_a_map_with_contacts_is_named():
    f = vioc.ContactVI(parallelogram(LIMITS), 0.01)
    with pytest.raises(StepError, match=r"step 0: Dh\(q_k\): the gradient of pin-x vanishes"):
        f.step(f.initial_state({}, {"a": 2.0, "b": -2.0, "c": 2.0}))


def test_a_step_that_ends_where_the_choice_fails_names_the_one_that_fits():
    loop = four_bar((0.1, 0.17, -0.214))
    turning = System(rz("yaw", mass=(1, 0.1, 0.1, 0.1))[loop.frames], loop.components)
    f, g = quiet(turning, 0.005), MidpointVI(turning, 0.005, redundant="pin-x")
    q = pose(turning, yaw=np.pi / 2)
    backwards = g.step(g.initial_state(q, vioc.project_velocity(g.lagrangian, q, {"yaw": -2.0})))
    backwards[4:] *= -1
    np.testing.assert_allclose(g.step(backwards)[:4], q, atol=1e-12)
    # rounding decides whether the step ends in the singular position or just before it
    named = r"pin-x (vanishes|follows from the others).*redundant=\('pin-x',\)\) leaves"
    with pytest.raises(StepError, match=named):
        f.step(backwards)
