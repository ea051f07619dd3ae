"""Verdicts and optima do not depend on the units that a problem is posed in, nor on the scale of its cost."""

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import casadi as ca
import numpy as np
import pytest

import vioc
from vioc import Contact, Gravity, JointForce, JointLimits, System, TorsionalSpring, ry, rz, tx, ty, tz
from vioc.control import Cost, optimize, quadratic

SAME = 1e-8  # relative difference of optima
OF_IPOPT = 1e-11  # tolerance: it leaves about a tenth of it at each of 40 limits, of a cost of about 1
N, STEP = 20, 0.05


class Units(NamedTuple):
    """How many of a unit a kg, a m and a s are."""

    kg: float = 1.0
    m: float = 1.0
    s: float = 1.0

    @property
    def N(self):
        return self.kg * self.m / self.s**2

    @property
    def J(self):
        return self.N * self.m


@cache
def oscillator(of: Units):
    """Mass on a spring with a force: map, cost, start."""
    spring = TorsionalSpring("x", 2.0 * of.N / of.m, 0.0)
    f = vioc.MidpointVI(System(tx("x", mass=of.kg), spring, JointForce("x", "u")), STEP * of.s)
    speed = of.m / of.s
    rest = {"x": 50 * of.J / of.m**2, "v.x": 5 * of.J / speed**2}
    cost = quadratic(f, Q={"x": of.J / of.m**2 / of.s}, R={"u": 0.01 * of.J / of.N**2 / of.s}, Qf=rest)
    return f, cost, f.initial_state({"x": of.m}, {"x": 0.5 * speed})


@cache
def cart_pole(of: Units):
    """Cart with a hanging pole, to be moved: map, cost, start."""
    pole = rz("theta")[ty(-0.5 * of.m, mass=vioc.P("load", 0.2 * of.kg))]
    S = System(tx("x", mass=of.kg)[pole], Gravity(0, -9.81 * of.m / of.s**2, 0), JointForce("x", "u"))
    f = vioc.MidpointVI(S, STEP * of.s)
    R, end = {"u": 0.1 * of.J / of.N**2 / of.s}, {"x": 20 * of.J / of.m**2, "theta": 20 * of.J}
    return f, quadratic(f, R=R, Qf=end), f.initial_state({"x": 0.3 * of.m, "theta": 0.4})


@cache
def falling_pole(of: Units):
    """Cart with a pole that falls, to be raised: map, cost, start. Newton's Hessian is indefinite there."""
    damping = vioc.JointDamping("theta", 0.02 * of.J * of.s)
    pole = rz("theta")[ty(0.5 * of.m, mass=0.3 * of.kg)]
    gravity = Gravity(0, -9.81 * of.m / of.s**2, 0)
    f = vioc.MidpointVI(
        System(tx("x", mass=of.kg)[pole], gravity, JointForce("x", "u"), damping), STEP * of.s
    )
    speed, rate = of.m / of.s, of.J / of.s
    Q, R = {"x": rate / of.m**2, "theta": 5 * rate}, {"u": 0.05 * rate / of.N**2}
    end = {"x": 20 * of.J / of.m**2, "theta": 50 * of.J}
    end |= {"v.x": of.J / speed**2, "v.theta": 2 * of.J * of.s**2}
    start = f.initial_state({"x": 0.2 * of.m, "theta": -0.6}, {"x": 0.3 * speed})
    return f, quadratic(f, Q=Q, R=R, Qf=end), start


@cache
def falling_pole_with_products(of: Units):
    """The falling pole, whose cost has the power and other products of different quantities."""
    f, _, start = falling_pole(of)
    u, x, theta, v, w = map(f.quantity, ("u.u", "x", "theta", "v.x", "v.theta"))
    speed, rate = of.m / of.s, of.J / of.s
    running = 0.025 * rate / of.N**2 * u**2 + 0.3 * u * v + 3 * rate / of.m * x * ca.sin(theta)
    running += 2.5 * rate * theta**2 + 0.5 * rate / of.m**2 * x**2
    final = 10 * of.J / of.m**2 * x**2 + 30 * of.J * theta**2
    final += 0.5 * of.J / speed**2 * v**2 + of.J * of.s**2 * w**2 + 8 * of.N * of.s**2 * v * w
    return f, Cost(f, running, final), start


@cache
def hopper(of: Units):
    """Body over a foot on a sliding leg with limits, to be lifted: map, cost, start."""
    leg = tz("leg", name="foot", mass=0.1 * of.kg)
    terms = JointForce("leg", "u"), Contact("foot", name="ground")
    limits = JointLimits("leg", -0.6 * of.m, -0.2 * of.m, name="stop")
    S = System(tz("z", mass=of.kg)[leg], Gravity(0, 0, -9.81 * of.m / of.s**2), *terms, limits)
    f = vioc.ContactVI(S, 0.02 * of.s, smoothing=1e-6 * (of.m / of.s) ** 2)
    cost = quadratic(f, R={"u": 0.002 * of.J / of.N**2 / of.s}, Qf={"z": 200 * of.J / of.m**2})
    return f, cost, f.initial_state({"z": 0.4 * of.m, "leg": -0.4 * of.m})


class Task(NamedTuple):
    model: Callable[[Units], Any]
    method: str
    limits: Callable[[Units], dict[str, Any]] = lambda of: {}


def in_free_time(of: Units):
    return {"final": {"x": 0.0}, "duration": (0.5 * of.s, 2.0 * of.s)}


TASKS = {
    "projection": Task(oscillator, "projection"),
    "projection, not convex": Task(falling_pole, "projection"),
    "auto": Task(cart_pole, "auto"),
    "shooting": Task(cart_pole, "shooting"),
    "bounds": Task(oscillator, "shooting", lambda of: {"bounds": {"u.u": 3 * of.N}}),
    "one side": Task(oscillator, "shooting", lambda of: {"bounds": {"u.u": (-2 * of.N, None)}}),
    "products": Task(falling_pole_with_products, "shooting", lambda of: {"bounds": {"u.u": 20 * of.N}}),
    "speed": Task(cart_pole, "shooting", lambda of: {"bounds": {"v.x": 0.4 * of.m / of.s}}),
    "end": Task(oscillator, "shooting", lambda of: {"final": {"x": 0.0, "v.x": 0.0}}),
    "free time": Task(oscillator, "shooting", lambda of: in_free_time(of)),
    "free start": Task(oscillator, "shooting", lambda of: {"initial": {"v.x": (0.1 * of.m / of.s, None)}}),
    "dmoc": Task(oscillator, "dmoc", lambda of: {"bounds": {"u.u": 3 * of.N}, "tolerance": OF_IPOPT}),
    "dmoc, speed": Task(
        cart_pole, "dmoc", lambda of: {"bounds": {"v.x": 0.4 * of.m / of.s}, "tolerance": OF_IPOPT}
    ),
    "dmoc, free time": Task(oscillator, "dmoc", lambda of: in_free_time(of) | {"tolerance": OF_IPOPT}),
    "dmoc, contact": Task(hopper, "dmoc", lambda of: {"tolerance": OF_IPOPT}),
    "parameters": Task(cart_pole, "shooting", lambda of: {"parameters": {"load": (0.05 * of.kg, None)}}),
    "dmoc, parameters": Task(
        cart_pole,
        "dmoc",
        lambda of: {"parameters": {"load": (0.05 * of.kg, None)}, "tolerance": OF_IPOPT},
    ),
}
UNITS = [Units(1e3, 1e3), Units(1e-3, 1e-3), Units(s=1e3), Units(1e3, 1e3, 1e-3), Units(1e3, 10.0, 0.1)]
UNITS += [Units(1 / 0.45359237, 1 / 0.3048, 1 / 60)]  # pounds, feet, minutes
COSTS = 1e-9, 1e-3, 1e3, 1e9


@cache
def posed(model: Callable[[Units], Any], of: Units, price: float):
    """Map, cost and start in other units, the cost times a number: once for all tasks of a model."""
    f, cost, x0 = model(of)
    priced = Cost(
        f,
        price * cost.running_at(*f.symbols, np.zeros((0, 1))),
        price * cost.terminal_at(*f.symbols, np.zeros((0, 1))),
    )
    return f, priced, x0


@cache
def solved(name: str, of: Units, price: float = 1.0):
    """Status and cost, J, of a task posed in other units with its cost times a number."""
    task = TASKS[name]
    f, priced, x0 = posed(task.model, of, price)
    limits = task.limits(of)
    best = optimize(f, priced, x0=x0, steps=N, method=task.method, raise_on_failure=False, **limits)
    return best.status, best.cost / of.J / price


@pytest.mark.parametrize("name", TASKS)
def test_units_of_mass_length_and_time_do_not_matter(name):
    status, cost = solved(name, Units())
    assert status == "converged"
    for of in UNITS:
        assert solved(name, of) == (status, pytest.approx(cost, rel=SAME)), of


@cache
def moved_body(of: Units):
    """Status and cost, J, of a cart-pole in maximal coordinates that is brought to hang still."""
    f = vioc.MaximalVI(cart_pole(of)[0].system, STEP * of.s)
    ends = {"x": 20 * of.J / of.m**2, "theta": 30 * of.J, "v.theta": 2 * of.J * of.s**2}
    R = {"u": 0.02 * of.J / of.N**2 / of.s}
    cost, x0 = quadratic(f, R=R, Qf=ends), f.initial_state({"theta": np.pi - 0.9})
    found = optimize(f, cost, x0=x0, steps=N, method="shooting")
    return found.status, found.cost / of.J


@pytest.mark.parametrize("m", [1e-6, pytest.param(1e6, marks=pytest.mark.slow)])
def test_bodies_of_any_size_are_moved_to_the_same_optimum(m):
    """Errors of the states of `MaximalVI` have units; as pure numbers they let a cart of um stop early."""
    status, cost = moved_body(Units())
    assert status == "converged"
    assert moved_body(Units(m=m)) == (status, pytest.approx(cost, rel=SAME))


@pytest.mark.parametrize("name", TASKS)
def test_the_scale_of_the_cost_does_not_matter(name):
    status, cost = solved(name, Units())
    for price in COSTS:
        assert solved(name, Units(), price) == (status, pytest.approx(cost, rel=SAME)), price


def test_the_margin_of_a_bound_on_one_side_is_in_its_own_unit():
    """A limit of 0 N has no size of its own: what is left to it counted in newtons."""

    def margin(of):
        f, cost, x0 = oscillator(of)
        best = optimize(f, cost, x0=x0, steps=N, method="shooting", bounds={"u.u": (-100 * of.N, None)})
        only = optimize(f, cost, x0=x0, steps=N, method="shooting", bounds={"u.u": (None, 100 * of.N)})
        return np.array([best.margin, only.margin])

    for of in (Units(1e3), Units(1e-3, 1e-3)):
        np.testing.assert_allclose(margin(of), margin(Units()), rtol=1e-6)


@pytest.mark.parametrize("m", [1.0, 1e-9])
def test_starts_outside_of_a_limit_are_refused_in_any_unit(m):
    """In units of 1e9 m a start half a metre outside was within 1e-9 of 1 + |x|."""
    of = Units(m=m)
    f, cost, x0 = oscillator(of)
    with pytest.raises(ValueError, match="outside of its limits"):
        optimize(f, cost, x0=x0, steps=N, method="shooting", bounds={"x": (-2 * of.m, 0.5 * of.m)})


def test_guesses_of_states_lead_to_the_same_iterates():
    """The feedback that follows such a guess had weights of 1 in the units of the states."""

    def followed(of):
        f, cost, x0 = cart_pole(of)
        line = np.linspace(x0, f.initial_state({"x": 0.1 * of.m}), N + 1), np.zeros((N, 1))
        best = optimize(f, cost, line, method="projection")
        return best.iterations, best.cost / of.J

    iterations, cost = followed(Units())
    for of in UNITS:
        assert followed(of) == (iterations, pytest.approx(cost, rel=SAME)), of


@pytest.mark.parametrize("method", ["shooting", "auto", "projection", "dmoc"])
def test_a_body_that_hangs_at_its_joint_has_its_radius_of_gyration_as_length(method):
    """The only other length is the momentum of the guess, 1e-16 of rounding, and no scale of the torques."""
    pendulum = ry("a", mass=vioc.Mass(1.0, (0.02, 0.02, 0.02), (0, 0, 0.5)))
    f = vioc.MidpointVI(System(pendulum, Gravity(0, 0, -9.81), JointForce("a", "u")), 0.05)
    cost = quadratic(f, R={"u": 0.1}, Q={"a": 1.0}, Qf={"a": 100.0, "v.a": 1.0})
    hangs, no_torque = f.initial_state({"a": np.pi}), np.zeros((40, 1))
    best = optimize(f, cost, no_torque, x0=hangs, steps=40, method=method)

    def value(k, change):
        u = best.u.copy()
        u[k] += change
        return cost.value(f.rollout(hangs, u))

    slopes = [(value(k, 1e-4) - value(k, -1e-4)) / 2e-4 for k in (0, 15, 39)]
    assert best.converged and np.abs(slopes).max() < 1e-4 * best.cost


def test_values_of_parameters_have_the_sizes_of_declared_ones():
    def iterations(declared, value):
        pole = ry("a")[tz(0.5, mass=0.2)]
        S = System(tx("x", mass=vioc.P("m", declared))[pole], Gravity(0, 0, -9.81), JointForce("x", "u"))
        f = vioc.MidpointVI(S, STEP).with_parameters(m=value)
        cost = quadratic(f, R={"u": 0.1}, Qf={"x": 20.0, "a": 20.0})
        return optimize(
            f, cost, x0=f.initial_state({"x": 0.3, "a": 0.4}), steps=N, method="shooting"
        ).iterations

    assert iterations(1e-6, 1e3) == iterations(1.0, 1e3) == iterations(1e3, 1e3)
