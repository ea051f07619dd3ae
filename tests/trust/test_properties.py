"""Promises of every integrator, on random mechanisms (docs/promises.md has the table).

TRUST_EXAMPLES sets how many mechanisms each promise of each integrator is tried on.
"""

from __future__ import annotations

import os
import pickle
from functools import lru_cache

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from support.mechanisms import state_near
from support.strategies import systems

import vioc
from vioc import Composition, LinearTimeVI, Mass, MaximalVI, MidpointVI, RungeKutta, System, project_velocity
from vioc.errors import ModelError, StepError

EXAMPLES = int(os.environ.get("TRUST_EXAMPLES", "2"))
FLOOR = 1e-10  # below which differences are rounding


def midpoint(system, dt, **options):
    return MidpointVI(system, dt, **options)


# name: (map of a system and dt, order in q)
INTEGRATORS = {
    "midpoint": (midpoint, 2),
    "alpha-0.3": (lambda s, dt: midpoint(s, dt, alpha=0.3), 1),
    "alpha-1": (lambda s, dt: midpoint(s, dt, alpha=1.0), 1),
    "left-forcing": (lambda s, dt: midpoint(s, dt, forcing="left"), 1),
    "composition-4": (lambda s, dt: Composition(midpoint(s, dt), 4), 4),
    "linear-time": (LinearTimeVI, 2),
    "maximal": (MaximalVI, 2),
    "rk4": (RungeKutta, 4),
    "heun": (lambda s, dt: RungeKutta(s, dt, "heun"), 2),
    "implicit-midpoint": (lambda s, dt: RungeKutta(s, dt, "implicit-midpoint"), 2),
    "semi-implicit-euler": (lambda s, dt: RungeKutta(s, dt, "semi-implicit-euler"), 1),
}
VARIATIONAL = ("midpoint", "alpha-0.3", "alpha-1", "composition-4", "linear-time", "maximal")
CANONICAL = ("midpoint", "alpha-0.3", "alpha-1", "composition-4", "linear-time")  # their state is (q, p)

each = pytest.mark.parametrize("name", INTEGRATORS)
variational = pytest.mark.parametrize("name", VARIATIONAL)
tried = settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=EXAMPLES <= 2,
    database=None,
    suppress_health_check=list(HealthCheck),
)
seeds = st.integers(0, 2**32 - 1)
trees = systems(max_frames=4, forced=True)
free_trees = systems(max_frames=4)
loops = systems(max_frames=5, constrained=True)


def built(name, system, dt=0.01):
    """The map; mechanisms outside an integrator's documented envelope are not examples."""
    try:
        return INTEGRATORS[name][0](system, dt)
    except ModelError as error:
        assume("turns and travels" not in str(error))
        raise


# Without chance every integrator is tried on the same mechanisms: what is common to it is found once.
once = lru_cache(maxsize=16)


@once
def plain(system):
    """The midpoint map of a mechanism, at 10 ms."""
    return MidpointVI(system, 0.01)


@once
def motion_near(system, seed, speed):
    """Positions, velocities, inputs; None where constraints are not met, or positions are nearly singular."""
    random = np.random.default_rng(seed)
    if system.constraints:
        found = state_near(plain(system), seed, speed=0.0)
        if found is None:
            return None
        q = found[: len(system.variables)]
        J = plain(system).lagrangian.constraint_jacobian(q)
        if np.linalg.svd(J)[1][-1] <= 0.1:
            return None
        v = project_velocity(system, q, speed * random.normal(size=len(q)))
    else:
        q, v = random.normal(scale=0.4, size=(2, len(system.variables)))
        v *= speed / 0.4
    return q, v, random.normal(size=len(system.inputs))


def start(f, seed, speed=0.5):
    """(state, inputs) at random; constraints are met, or the example is given up."""
    found = motion_near(f.system, seed, speed)
    assume(found is not None)
    q, v, u = found
    assert len(u) == f.nu
    return f.initial_state(q, v), u


def attempt(call, *args, **options):
    """A step that has no solution is an error that says so; such mechanisms are tested elsewhere."""
    try:
        return call(*args, **options)
    except StepError:
        assume(False)


def configuration(f, x, near=None):
    return f.minimal(x, near=near)[0] if isinstance(f, MaximalVI) else x[: len(f.system.variables)]


# -- the protocol ---------------------------------------------------------------------------------------


@each
@tried
@given(system=trees, seed=seeds)
def test_a_rollout_is_its_steps_and_itself_again(name, system, seed):
    f = built(name, system)
    x, _ = start(f, seed)
    U = np.random.default_rng(seed).normal(size=(6, f.nu))
    run = attempt(f.rollout, x, U, warn=False)
    for k in range(6):
        assert np.abs(f.difference(f.step(run.x[k], U[k], k=k), run.x[k + 1])).max() <= 1e-9 * (
            1 + np.abs(run.x[k + 1]).max()
        )
    again = pickle.loads(pickle.dumps(f)).rollout(x, U, warn=False)
    for other in (f.rollout(x, U, warn=False), again):
        assert (
            other.x.tobytes() == run.x.tobytes() and other.multipliers.tobytes() == run.multipliers.tobytes()
        )
    X0 = np.stack([x, run.x[1]])
    one, two = (f.rollouts(X0, U, workers=n, raise_on_failure=False) for n in (1, 2))
    assert one.x.tobytes() == two.x.tobytes() and one.x[0].tobytes() == run.x.tobytes()


@each
@tried
@given(system=trees, seed=seeds)
def test_derivatives_are_those_of_the_step(name, system, seed):
    f, eps = built(name, system), 1e-6
    x, u = start(f, seed)
    x = attempt(f.step, x, u)
    lin = attempt(f.linearize, x, u)
    random = np.random.default_rng(seed)
    dx, du, z = random.normal(size=f.ndx), random.normal(size=f.nu), random.normal(size=f.ndx)
    middle = f.step(x, u)

    def moved(s):
        return f.difference(middle, f.step(f.retract(x, s * dx), u + s * du))

    rate = (moved(eps) - moved(-eps)) / (2 * eps)
    exact = lin.A @ dx + lin.B @ du
    assert np.abs(rate - exact).max() <= 1e-6 * (1 + np.abs(exact).max() + np.abs(lin.A).max())
    H = f.second_order(x, u, z)
    assert np.abs(H.xx - H.xx.T).max() <= 1e-9 * (1 + np.abs(H.xx).max())
    # along the curve s -> retract(x, s dx), u + s du the second derivative is the Hessian's
    wide = 1e-4
    bend = z @ (moved(wide) + moved(-wide)) / wide**2
    exact = dx @ H.xx @ dx + 2 * dx @ H.xu @ du + du @ H.uu @ du
    scale = 1 + np.abs(H.xx).max() + np.abs(H.xu).max() + np.abs(H.uu).max() + np.abs(lin.A).max()
    assert abs(bend - exact) <= 1e-4 * scale * (dx @ dx + du @ du)


# -- accuracy -------------------------------------------------------------------------------------------


@once
def exact_motion(system, seed, horizon):
    """Start, inputs, and five samples of a motion by scipy's integration."""
    random = np.random.default_rng(seed)
    n = len(system.variables)
    q, v, u = (
        random.normal(scale=0.4, size=n),
        0.5 * random.normal(size=n),
        random.normal(size=len(system.inputs)),
    )
    return q, v, u, vioc.reference_solution(system, q, v, np.linspace(0.0, horizon, 5), u).q


@each
@tried
@given(system=trees, seed=seeds)
def test_order_of_convergence(name, system, seed):
    """Against scipy's integration of the continuous equations of motion."""
    order = INTEGRATORS[name][1]
    horizon, errors = (0.4 if order == 4 else 0.08), []
    q, v, u, exact = exact_motion(system, seed, horizon)
    made = built(name, system)
    for steps in (4, 8, 16, 32):
        f = made.with_dt(horizon / steps)
        x0 = f.initial_state(q, v, u=u) if isinstance(f, MaximalVI) else f.initial_state(q, v)
        x = attempt(f.rollout, x0, np.tile(u, (steps, 1)), warn=False).x[:: steps // 4]
        # of several samples, as an error changes its sign along a motion
        gaps = [configuration(f, at, near=there) - there for at, there in zip(x, exact, strict=True)]
        errors.append(np.linalg.norm(gaps))
    assume(errors[-1] > FLOOR * (1 + np.abs(exact).max()))
    # terms of two orders can cancel at one step length, not at the next as well
    slopes = -np.diff(np.log2(errors))
    assert slopes[-2:].max() > order - 0.35, errors


@once
def ends(system, seed):
    """A start, and where the midpoint map's motion from there is after 40 ms, by step lengths."""
    q, v = np.random.default_rng(seed).normal(scale=0.4, size=(2, len(system.variables)))
    found = {}
    for dt in (4e-3, 2e-3, 1e-3):
        g = plain(system).with_dt(dt)
        found[dt] = attempt(g.rollout, g.initial_state(q, v), steps=round(0.04 / dt)).x[-1][: g.nq]
    return q, v, found


@pytest.mark.parametrize("name", [n for n in INTEGRATORS if n != "midpoint"])
@tried
@given(system=free_trees, seed=seeds)
def test_all_integrators_have_one_limit(name, system, seed):
    """Minimal and maximal coordinates, variational or not: the same motion as dt goes to 0."""
    q, v, others = ends(system, seed)
    gaps, made = [], built(name, system)
    for dt, other in others.items():
        f = made.with_dt(dt)
        x = attempt(f.rollout, f.initial_state(q, v), steps=round(0.04 / dt), warn=False).x[-1]
        gaps.append(np.abs(configuration(f, x, near=other) - other).max())
    size = 1 + np.abs(other).max()
    assert gaps[-1] < 1e-2 * size
    assert gaps[-1] < gaps[0] / 2.5 or gaps[-1] < 1e-9 * size, gaps


# -- structure ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CANONICAL)
@tried
@given(system=free_trees, seed=seeds)
def test_symplectic(name, system, seed):
    f = built(name, system, 0.02)
    x, _ = start(f, seed)
    A, n = attempt(f.linearize, x).A, len(system.variables)
    J = np.block([[np.zeros((n, n)), np.eye(n)], [-np.eye(n), np.zeros((n, n))]])
    assert np.abs(A.T @ J @ A - J).max() <= 1e-9 * max(1.0, np.abs(A).max() ** 2)


@variational
@tried
@given(system=loops, seed=seeds)
def test_constraints_hold_at_every_step(name, system, seed):
    f = built(name, system)
    x, _ = start(f, seed, speed=0.3)
    run = attempt(f.rollout, x, steps=15, warn=False)
    for constraint in system.constraint_names:
        g = run["h." + constraint]
        assert np.abs(g).max() <= 1e-10, constraint


@variational
@tried
@given(system=systems(max_frames=4, potentials=False), seed=seeds)
def test_momentum_of_what_does_not_matter(name, system, seed):
    """A tree that floats keeps its linear momentum, and one that turns about an axis that component."""
    body = Mass(1, (1, 1, 1))
    floating = System(vioc.tx("X")[vioc.ty("Y")[vioc.tz("Z", mass=body)[system.frames]]])
    turning = System(vioc.rz("turn", mass=body)[system.frames])
    for whole, cyclic, there in (
        (floating, ("p.X", "p.Y", "p.Z"), ("momentum:x", "momentum:y", "momentum:z")),
        (turning, ("p.turn",), ()),
    ):
        if name == "maximal" and whole is turning:
            continue  # its axis takes the other components: no momentum about the origin is its own
        f = built(name, whole)
        x, _ = start(f, seed)
        run = attempt(f.rollout, x, steps=30, warn=False)
        for quantity in there if isinstance(f, MaximalVI) else cyclic:
            p = run[quantity]
            assert np.abs(p - p[0]).max() <= 1e-10 * (1 + np.abs(p).max()), quantity


@variational
@tried
@given(system=free_trees, seed=seeds)
def test_energy_error_shrinks_with_its_order(name, system, seed):
    order = {"composition-4": 4}.get(name, 2 if not name.startswith("alpha") else 1)
    random = np.random.default_rng(seed)
    q, v = random.normal(scale=0.4, size=(2, len(system.variables)))
    widths = []
    made = built(name, system)
    for steps in (8, 16, 32) if order == 4 else (16, 32, 64):
        f = made.with_dt(0.32 / steps)
        run = attempt(f.rollout, f.initial_state(q, v), steps=steps, warn=False)
        widths.append(np.ptp(run.energy))
        level = 1 + np.abs(run.energy).max()
    assume(widths[-1] > 1e-11 * level)
    assert (-np.diff(np.log2(widths))).max() > order - 0.5, widths
