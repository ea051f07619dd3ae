"""Verdicts and optima do not depend on the units that a problem is posed in, nor on the scale of its cost."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

import vioc
from vioc import Gravity, JointForce, System, TorsionalSpring, rz, tx, ty
from vioc.control import optimize, quadratic

SAME = 1e-8  # relative difference of optima
OF_IPOPT = 1e-6  # which leaves 1e-8 of complementarity at each of 40 limits
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


def oscillator(of: Units):
    """Mass on a spring with a force: map, cost, start."""
    spring = TorsionalSpring("x", 2.0 * of.N / of.m, 0.0)
    f = vioc.MidpointVI(System(tx("x", mass=of.kg), spring, JointForce("x", "u")), STEP * of.s)
    speed = of.m / of.s
    rest = {"x": 50 * of.J / of.m**2, "v.x": 5 * of.J / speed**2}
    cost = quadratic(f, Q={"x": of.J / of.m**2 / of.s}, R={"u": 0.01 * of.J / of.N**2 / of.s}, Qf=rest)
    return f, cost, f.initial_state({"x": of.m}, {"x": 0.5 * speed})


def cart_pole(of: Units):
    """Cart with a hanging pole, to be moved: map, cost, start."""
    pole = rz("theta")[ty(-0.5 * of.m, mass=0.2 * of.kg)]
    S = System(tx("x", mass=of.kg)[pole], Gravity(0, -9.81 * of.m / of.s**2, 0), JointForce("x", "u"))
    f = vioc.MidpointVI(S, STEP * of.s)
    R, end = {"u": 0.1 * of.J / of.N**2 / of.s}, {"x": 20 * of.J / of.m**2, "theta": 20 * of.J}
    return f, quadratic(f, R=R, Qf=end), f.initial_state({"x": 0.3 * of.m, "theta": 0.4})


class Task(NamedTuple):
    model: Callable[[Units], Any]
    method: str
    limits: Callable[[Units], dict[str, Any]] = lambda of: {}


TASKS = {
    "projection": Task(oscillator, "projection"),
    "auto": Task(cart_pole, "auto"),
    "shooting": Task(cart_pole, "shooting"),
    "bounds": Task(oscillator, "shooting", lambda of: {"bounds": {"u.u": 3 * of.N}}),
    "one side": Task(oscillator, "shooting", lambda of: {"bounds": {"u.u": (-2 * of.N, None)}}),
    "speed": Task(cart_pole, "shooting", lambda of: {"bounds": {"v.x": 0.4 * of.m / of.s}}),
    "end": Task(oscillator, "shooting", lambda of: {"final": {"x": 0.0, "v.x": 0.0}}),
    "free time": Task(
        oscillator, "shooting", lambda of: {"final": {"x": 0.0}, "duration": (0.5 * of.s, 2.0 * of.s)}
    ),
    "free start": Task(oscillator, "shooting", lambda of: {"initial": {"v.x": (0.1 * of.m / of.s, None)}}),
    "dmoc": Task(oscillator, "dmoc", lambda of: {"bounds": {"u.u": 3 * of.N}, "tolerance": 1e-10}),
}
UNITS = [Units(1e3, 1e3), Units(1e-3, 1e-3), Units(s=1e3), Units(1e3, 1e3, 1e-3), Units(1e3, 10.0, 0.1)]
COSTS = 1e-9, 1e-3, 1e3, 1e9


def solved(name: str, of: Units, price: float = 1.0):
    """Status and cost, J, of a task posed in other units with its cost times a number."""
    task = TASKS[name]
    f, cost, x0 = task.model(of)
    priced = vioc.control.Cost(
        f,
        price * cost.running_at(*f.symbols, np.zeros((0, 1))),
        price * cost.terminal_at(*f.symbols, np.zeros((0, 1))),
    )
    limits = task.limits(of)
    best = optimize(f, priced, x0=x0, steps=N, method=task.method, raise_on_failure=False, **limits)
    return best.status, best.cost / of.J / price


def same(name: str) -> float:
    return OF_IPOPT if TASKS[name].method == "dmoc" else SAME


@pytest.mark.parametrize("name", [name for name in TASKS if name != "dmoc"])
def test_units_of_mass_length_and_time_do_not_matter(name):
    status, cost = solved(name, Units())
    assert status == "converged"
    for of in UNITS:
        assert solved(name, of) == (status, pytest.approx(cost, rel=same(name))), of


@pytest.mark.parametrize("name", TASKS)
def test_the_scale_of_the_cost_does_not_matter(name):
    status, cost = solved(name, Units())
    for price in COSTS:
        assert solved(name, Units(), price) == (status, pytest.approx(cost, rel=same(name))), price
