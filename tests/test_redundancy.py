"""Constraints that follow from the others: the choice, the forces of least norm, what contradicts."""

from __future__ import annotations

import pickle
import warnings

import numpy as np
import pytest

import vioc
from vioc import MidpointVI, System, coincident, rx, ry, rz, tx, ty, tz
from vioc.components import Rolling, Skate
from vioc.dynamics.terms.constraints import DistanceConstraint
from vioc.errors import ConstraintError, ModelError, RedundancyWarning, StepError
from vioc.maps.suite import check_map

G = 9.81


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


def test_bricards_mechanism_moves_in_all_its_constraints():
    with pytest.warns(RedundancyWarning, match=r"bricard: .* imply it: axis-z\. .* redundant=\('axis-z',\)"):
        f = MidpointVI(bricard(), 0.01)
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
    again = pickle.loads(pickle.dumps(f))
    assert again.redundant == f.redundant and np.array_equal(again.step(run.x[9]), f.step(run.x[9]))


def test_derivatives_are_those_of_motions_on_the_constraints():
    f = quiet(bricard())
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


def test_two_wheels_that_forbid_one_slip():
    axles = [ty(s)[ry(n, name=n, mass=(1, 0.01, 0.02, 0.01))] for n, s in (("left", 0.3), ("right", -0.3))]
    base = tz(0.1)[tx("x")[ty("y")[rz("yaw", name="base", mass=(5, 1, 1, 1))[axles]]]]
    rows = [
        Rolling(n, 0.1, (0, 1, 0), along, "base", name=f"{n}-{what}")
        for n in ("left", "right")
        for what, along in (("rolls", (1, 0, 0)), ("skids", (0, 1, 0)))
    ]
    f = quiet(System(base, rows))
    assert len(f.redundant) == 1 and f.redundant[0].endswith("skids") and f.velocity_constraints
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


@pytest.mark.slow
def test_compiled_steps_are_the_same():
    f = quiet(bricard(), backend="virtual")
    run = f.rollout(f.initial_state(), steps=50)
    g = MidpointVI(f.system, 0.01, redundant=f.redundant, backend="compiled")
    assert np.array_equal(g.rollout(run.x[0], steps=50).x, run.x)
