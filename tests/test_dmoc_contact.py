"""Contact-implicit DMOC: plans through touch, stick, slip and lift-off, against the maps' own steps."""

from functools import cache

import casadi as ca
import numpy as np
import pytest

import vioc
from vioc import (
    Contact,
    ContactVI,
    Gravity,
    JointForce,
    Mass,
    MassGravity,
    MaximalVI,
    MidpointVI,
    System,
    ry,
    tx,
    ty,
    tz,
)
from vioc.control import Cost, Status, dmoc

# inside: the way of the smoothing to the map's own is walked with a solver made for the test
from vioc.control.dmoc.homotopy import follow
from vioc.control.dmoc.solvers import SolverOutcome
from vioc.errors import OptimizationError

G = 9.81


@cache
def box(cone="second-order"):
    """Dojo's: edge 0.5, on the ground, forces on its centre."""
    body = vioc.free("b", frame="box", mass=Mass.box(1.0, (0.5, 0.5, 0.5)))
    corners = Contact.box("box", (0.5, 0.5, 0.5), friction=0.5, cone=cone, name="corner")
    forces = [JointForce(f"b-{axis}", f"f{axis}") for axis in "xyz"]
    return MaximalVI(System(body, Gravity(0, 0, -G), corners, *forces), dt=0.1)


def push(f, goal, steps):
    x = f.initial_state({"b-z": 0.25})
    there = ca.DM(f.initial_state({f"b-{axis}": v for axis, v in zip("xyz", goal, strict=True)}))
    miss = ca.sumsqr(f.symbols.x - there)
    cost = Cost(f, miss + 0.01 * ca.sumsqr(f.symbols.u), terminal=miss)
    final = {"x.box": goal[0], "y.box": goal[1], "z.box": (0.25, 0.5) if goal[2] == 0.25 else goal[2]}
    return dict(cost=cost, steps=steps, initial=x, final=final)


@cache
def sled(mu=0.4, dt=0.05):
    """A mass on a rail: pushed along x, stands on its foot."""
    body, sole = (
        tx("x")[tz("z", name="foot", mass=Mass(2.0))],
        Contact.point("foot", friction=mu, name="sole"),
    )
    return ContactVI(System(body, Gravity(0, 0, -G), sole, JointForce("x", "push")), dt)


@pytest.mark.parametrize("goal, steps", [((0.6, 0.5, 0.25), 8), ((0, 0, 1.25), 10)])
def test_a_box_is_pushed_and_lifted(goal, steps):
    f = box()
    best = dmoc.solve(f, **push(f, goal, steps))
    run = best.rollout()
    assert run.gap < 1e-9 and best.defect < 1e-12
    assert max(np.abs(product).max() for product in best.products().values()) <= 1e-8
    assert [s.smoothing for s in best.stages][-1] == f.smoothing


def test_a_sled_slides_as_far_as_coulomb_says():
    """Rest to rest in least effort: the force falls linearly, then friction alone brings it to rest.

    With a = (push - mu m g)/m and costates linear in time, the least of push^2 with push >= 0 at the end is a
    straight line that meets 0; the sum of impulses is 0.
    """
    f, far, mu, m = sled(), 0.3, 0.4, 2.0
    cost = Cost(f, 1e-3 * ca.sumsqr(f.symbols.u))
    stands = {"x": 0.0, "z": 1e-9, "p.x": 0.0, "p.z": -0.5 * f.dt * m * G}
    problem = dict(steps=20, initial=stands, final={"x": far, "v.x": (-1e-6, 1e-6)})
    best = dmoc.solve(f, cost, **problem)
    assert best.rollout().gap < 1e-9 and not best.rollout().feedback
    force, friction, slides = (best[f"{n}.sole"] for n in ("force", "friction", "slip"))
    np.testing.assert_allclose(force, m * G, rtol=1e-6)
    slides = slides > 1e-2
    np.testing.assert_allclose(friction[slides], mu * m * G, rtol=1e-6)
    push = best.u[:, 0]
    moved = push[push > 1e-3][1:]  # half of the first force acts while the sled still sticks; it may wait
    assert len(moved) > 8 and np.abs(np.diff(moved, 2)).max() < 1e-4 and push[-1] < 1e-6
    assert (push.sum() - best["friction.sole"].sum()) * f.dt == pytest.approx(0, abs=1e-5)
    text = best.describe()
    for words in ("converged after", "open loop: ", "gap x impulse: at most ", "of sole", "3e-02 ("):
        assert words in text


def test_a_sled_in_least_time_with_a_limit_of_the_rate():
    """Force and its rate are bounded, the time is open: the limits are met, and none is passed."""
    f, m, mu = sled(), 2.0, 0.4
    stands = {"x": 0.0, "z": 1e-9, "p.x": 0.0, "p.z": -0.5 * f.dt * m * G}
    task = dict(steps=20, initial=stands, final={"x": 0.5, "v.x": (-1e-6, 1e-6)}, duration=(0.3, 3.0))
    cost = Cost(f, 1.0 + 1e-4 * ca.sumsqr(f.symbols.u))
    free, bounded = (
        dmoc.solve(f, cost, bounds={"u.push": 20.0}, rate=rate, **task) for rate in (None, {"push": 100.0})
    )
    for best in (free, bounded):
        assert best.rollout().gap < 1e-6 and not best.rollout().feedback
    rate = np.abs(np.diff(bounded.u[:, 0])).max() / bounded.map.dt
    assert rate == pytest.approx(100.0, rel=1e-6)
    assert rate < np.abs(np.diff(free.u[:, 0])).max() / free.map.dt
    # forward at 20 N less friction, back at 20 N and friction: no faster than that
    least = np.sqrt(2 * 0.5 * m * (1 / (20 - mu * m * G) + 1 / (20 + mu * m * G)))
    assert 0.97 * least < free.t[-1] < 1.05 * least < bounded.t[-1]


@pytest.mark.parametrize("solver", ["ipopt", "fatrop"])
def test_engines_find_the_same(solver):
    """Of the same program either engine has the optimum."""
    f = sled()
    stands = {"x": 0.0, "z": 1e-9, "p.x": 0.0, "p.z": -0.5 * f.dt * 2.0 * G}
    cost = Cost(f, 1e-3 * ca.sumsqr(f.symbols.u))
    best = dmoc.solve(
        f, cost, steps=20, initial=stands, final={"x": 0.3, "v.x": (-1e-6, 1e-6)}, solver=solver
    )
    assert best.cost == pytest.approx(0.0588146, rel=1e-4) and best.rollout().gap < 1e-9


def test_an_end_at_a_wider_smoothing_is_said():
    """A body is to stand where only a wide smoothing holds it: the verdict says how far the search came.

    Each of two contacts carries half of the weight, and so hovers twice as high as one contact would.
    """
    feet = [vioc.Contact.point("sled", friction=0.4, name=name) for name in ("left", "right")]
    body = vioc.tx("x")[vioc.tz("z", name="sled", mass=2.0)]
    f = vioc.ContactVI(
        vioc.System(body, vioc.Gravity(0, 0, -G), feet, vioc.JointForce("x", "push")), 0.05, smoothing=1e-8
    )
    high = f.smoothing * 1e4 / G
    problem = dict(steps=3, initial={"x": 0.0, "p.x": 0.0}, bounds={"gap.left": (high, None)})
    push = Cost(f, ca.sumsqr(f.symbols.u))
    with pytest.raises(OptimizationError, match="smoothing of .* only, the map's is 1e-08") as caught:
        dmoc.solve(f, push, periodic=["z", "p.z"], **problem)
    best = caught.value.result
    assert not best.converged and min(s.smoothing for s in best.stages if s.status == "converged") > 1e-6


def test_the_first_smoothing_follows_the_gravity_of_the_map():
    """On the Moon, bodies hover as high at a smoothing that is smaller by the ratio of the weights."""
    body = tx("x")[tz("z", name="sled", mass=2.0)]
    sole = Contact.point("sled", friction=0.4, name="sole")
    g, push = vioc.P("g", G), JointForce("x", "push")
    earth = ContactVI(System(body, Gravity(0, 0, -1.0 * g), sole, push), 0.05, smoothing=1e-8)

    def first(f):
        stands = {"x": 0.0, "z": 1e-9, "p.x": 0.0}
        cost = Cost(f, ca.sumsqr(f.symbols.u))
        best = dmoc.solve(f, cost, steps=3, initial=stands, final={"x": 0.1}, raise_on_failure=False)
        return best.stages[0].smoothing

    assert first(earth.with_parameters(g=1.62)) == pytest.approx(first(earth) * 1.62 / G, rel=1e-9)


def test_a_search_that_is_stopped_on_its_way_has_not_converged():
    """Each of its solves does; the smoothing that it reaches is not the map's."""
    w = np.zeros(1)

    def solve(level, before, last):
        return SolverOutcome(w, w, Status.CONVERGED, 30, 0.0, {}), 0.0

    found, reached, stages = follow(solve, 1e-8, 1.0, 60)
    assert found.status is Status.MAX_ITERATIONS and reached > 1e-8 and len(stages) == 2
    found, reached, _ = follow(solve, 1e-8, 1.0, 10_000)
    assert found.status is Status.CONVERGED and reached == 1e-8


def hop(gravity, y=0.0):
    """A leg that is carried 0.3 m on, with gravity on "all" or "each", and its place across the motion."""
    body = tx("x")[ty("y")[tz("z", name="body", mass=1.0)[tz("leg")[tz(-1.0, name="foot", mass=0.3)]]]]
    pulls = {
        "all": [Gravity(0, 0, -9.81)],
        "each": [MassGravity(name, 0, 0, -9.81) for name in ("body", "foot")],
    }
    pushes = JointForce("leg", "force"), JointForce("x", "push")
    sole = Contact.point("foot", friction=0.5, name="sole")
    f = ContactVI(System(body, *pulls[gravity], sole, *pushes), 0.05)
    rest = {"x": 0.3, "z": (0.9999, 1.0001), "leg": 0.0, "p.x": 0.0, "p.z": 0.0}
    start = f.initial_state({"y": y, "z": 1.0})
    cost = Cost(f, ca.sumsqr(f.symbols.u))
    return dmoc.solve(f, cost, steps=12, initial=start, final=rest, bounds={"leg": 0.4, "u.force": 40.0})


def test_first_smoothings_are_those_of_the_mechanism_wherever_it_is_and_however_it_is_heavy():
    first = hop("all")
    for other in (hop("each"), hop("all", y=5.0)):
        assert other.stages[0].smoothing == pytest.approx(first.stages[0].smoothing)
        assert other.cost == pytest.approx(first.cost, rel=1e-6)


def test_a_single_step():
    f = MidpointVI(System(ry("a")[tz(-0.5, mass=1.0)], Gravity(0, 0, -9.81), JointForce("a", "u")), 0.05)
    best = dmoc.solve(f, Cost(f, f.symbols.u[0] ** 2), steps=1, initial=f.initial_state(), final={"a": 0.01})
    assert best["a"][-1] == pytest.approx(0.01)
