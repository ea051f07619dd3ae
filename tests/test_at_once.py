"""Derivatives of steps in C: those that numpy makes of the same equations."""

import numpy as np
import pytest

import vioc
from vioc.compile import find_compiler

# inside: what C makes is held against numpy's own way to the same derivatives, step by step
from vioc.dynamics.integrators.structured import StructuredLinearization
from vioc.maps.derivatives import Steps

pytestmark = pytest.mark.skipif(find_compiler() is None, reason="no C compiler")
OPTIONS = [{}, {"alpha": 0.3}, {"forcing": "left"}]


def limbs(order, more):
    """A tree that branches, whose variables are no chain, with forces on some of them."""
    arm = vioc.rx("a")[vioc.tz(-0.5, mass=1)[vioc.ry("b")[vioc.tz(-0.4, mass=0.5)], vioc.tx("c", mass=0.3)]]
    leg = vioc.ry("d")[vioc.tz(-0.7, mass=(0.8, 0.02, 0.03, 0.02))]
    system = vioc.System(vioc.Gravity(0, 0, -9.8), vioc.rz("yaw")[vioc.tx(0.3, mass=2)[arm, leg]])
    pushes = [vioc.JointForce(system.variables[i], f"u{i}", gain=1.0 + i) for i in order]
    return system.with_components(*pushes, *more)


STIFF = (vioc.TorsionalSpring("a", 3.0), vioc.JointDamping("c", 0.4), vioc.components.RotorInertia("b", 0.2))
SYSTEMS = {
    "row of forces": limbs([1, 2, 3], ()),
    "forces apart, springs, a rotor": limbs([3, 0, 2], STIFF),
    "9 links": vioc.models.load("n_link_pendulum", 9),
}


# every system and every choice of options once; the other pairs are run nightly, as each compiles for 3 s
PAIRS = [
    pytest.param(name, options, marks=() if i == j else pytest.mark.slow)
    for i, name in enumerate(SYSTEMS)
    for j, options in enumerate(OPTIONS)
]


@pytest.mark.parametrize(("name", "options"), PAIRS, ids=str)
def test_first_and_second_order(name, options):
    system, rng = SYSTEMS[name], np.random.default_rng(0)
    f = vioc.MidpointVI(system, 0.05, backend="compiled", **options)
    run = f.rollout(f.initial_state(*(0.4 * rng.standard_normal((2, f.nq)))), rng.standard_normal((6, f.nu)))
    Z = rng.standard_normal((6, f.ndx))
    lin, H = f.linearize_trajectory(run), f.second_order_trajectory(run, Z)
    slow = vioc.MidpointVI(system, 0.05, **options)  # the virtual machine has no part in C
    steps = Steps.along(run)
    first = StructuredLinearization(slow.rule)
    truth = first.linearize(steps, slow.theta)
    worst = np.linalg.cond(truth.A[:, : f.nd, f.nd :]).max() * 100 * np.finfo(float).eps
    for one, other in ((lin.A, truth.A), (lin.B, truth.B)):
        assert np.abs(one - other).max(initial=0) <= worst * max(1, np.abs(other).max(initial=0))
    second = first.contract(steps, slow.theta, Z, np.zeros((6, 0)))
    for name, block in H.blocks.items():
        other = second.blocks[name]
        assert np.abs(block - other).max(initial=0) <= 1e3 * worst * max(1, np.abs(other).max(initial=0))


def test_what_is_singular_is_refused_alike():
    f = vioc.MidpointVI(vioc.models.load("pendulum"), 0.1, backend="compiled")
    x = f.initial_state({"theta": 0.3})
    assert f.linearize(x).A.shape == (2, 2)
    bob = vioc.tz(-1, mass=1)
    pole = vioc.System(vioc.Gravity(0, 0, -9.8), vioc.rz("phi")[vioc.rx("theta")[bob]])
    texts = []
    for backend in ("virtual", "compiled"):
        f = vioc.MidpointVI(pole, 0.1, backend=backend)
        steps = Steps(
            *np.zeros((2, 1, 4)),
            np.zeros((1, 0)),
            np.zeros((1, 0)),
            np.zeros(1),
            np.full(1, 0.1),
            np.zeros(1, int),
        )
        with pytest.raises(vioc.StepError, match="M_k\\+1") as caught:
            f.derivatives.linearize(steps)
        texts.append(str(caught.value))
    assert texts[0] == texts[1]


def test_many_steps_over_the_cores():
    """In several pieces at once, each with arrays of its own."""
    rng, steps = np.random.default_rng(1), 2000
    pair = [vioc.MidpointVI(SYSTEMS["row of forces"], 0.02, backend=b) for b in ("virtual", "compiled")]
    X, U = 0.3 * rng.standard_normal((steps, pair[0].nx)), rng.standard_normal((steps, pair[0].nu))
    slow, fast = (f.derivatives.linearize(f.steps_at(X, U)) for f in pair)
    np.testing.assert_allclose(fast.B, slow.B, rtol=0, atol=1e-10)
    np.testing.assert_allclose(fast.A, slow.A, rtol=0, atol=1e-7 * np.abs(slow.A).max())
