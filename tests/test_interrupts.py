"""Ctrl-C at any moment of an optimization keeps the best iterate.

KeyboardInterrupt is raised where the interpreter would raise it: at the n-th call of a function of vioc, for
n all over the run.
"""

import sys
from functools import cache
from inspect import CO_GENERATOR

import numpy as np
import pytest
from support.control_maps import double_integrator

import vioc

# inside: searches are interrupted at a chosen call of their own functions
from vioc.compile import virtual
from vioc.control import optimize, quadratic, straight_line
from vioc.control.descent import line_search as search
from vioc.control.shooting import problem as stages

STEPS = 20


@cache
def swing():
    f = vioc.MidpointVI(vioc.models.load("pendulum"), 0.1)
    cost = quadratic(f, Q=[1.0, 0.1], R=0.1, Qf=[50.0, 5.0], goal={"theta": np.pi})
    return f, cost, dict(x0=[0.0, 0.0], steps=STEPS)


@cache
def cart():
    f = double_integrator()
    return f, quadratic(f, Q=1.0, R=0.1)


def newton(monitor):
    f, cost, start = swing()
    return cost, optimize(f, cost, method="projection", monitor=monitor, **start)


def shooting(monitor):
    f, cost, _ = swing()
    guess = straight_line([0.0, 0.0], [np.pi, 0.0], STEPS), None
    return cost, optimize(f, cost, guess, monitor=monitor)


def limited(monitor):
    f, cost = cart()
    bounds = {"u.force": 0.5}
    found = optimize(f, cost, x0=[1.0, 0.0], steps=STEPS, bounds=bounds, monitor=monitor)
    return cost, found


class Calls:
    """Counts calls of functions of vioc; raises KeyboardInterrupt at the n-th.

    Not of generators: what is raised while one is thrown away is lost, which Python says.
    """

    def __init__(self, at=None):
        self.at, self.count, self.records = at, 0, []

    def __call__(self, frame, event, arg):
        code = frame.f_code
        if event == "call" and "vioc" in code.co_filename and not code.co_flags & CO_GENERATOR:
            self.count += 1
            if self.count == self.at:
                raise KeyboardInterrupt

    def record(self, record):
        """A monitor: how many calls there were at each iteration."""
        self.records.append(self.count)

    def run(self, problem):
        sys.setprofile(self)
        try:
            return problem(self.record)
        finally:
            sys.setprofile(None)


@pytest.mark.parametrize("problem", [newton, shooting, limited])
def test_the_best_iterate_is_kept(problem, monkeypatch):
    monkeypatch.setattr(virtual, "REGROUPED", np.inf)  # or some run makes calls that others do not
    problem(None)  # what is built once, and kept
    whole = Calls()
    cost, best = whole.run(problem)
    assert best.converged and len(whole.records) > 2
    costs = []
    for n in np.linspace(whole.records[0] + 1, whole.records[-1], 8).astype(int):
        calls = Calls(at=int(n))
        with pytest.raises(KeyboardInterrupt) as stop:
            calls.run(problem)
        kept = stop.value.result
        assert kept.status == "interrupted" and "start again" in kept.message
        again = kept.trajectory.map.rollout(kept.trajectory.x[0], kept.trajectory.u)
        assert np.abs(again.x - kept.trajectory.x).max() < 1e-9
        assert cost.value(kept.trajectory) == pytest.approx(kept.cost, rel=1e-9)
        costs.append(kept.cost)
    if problem is newton:  # from trajectory to trajectory, never upwards
        assert costs == sorted(costs, reverse=True) and costs[-1] < costs[0]


@pytest.mark.parametrize("problem", [newton, shooting, limited])
def test_while_the_result_is_made(problem, monkeypatch):
    """The rollout of its inputs, at the end: what was found is there already."""
    problem(None)
    once = interrupted_once(search.open_loop)
    for room in (search, stages):
        monkeypatch.setattr(room, "open_loop", once)
    with pytest.raises(KeyboardInterrupt) as stop:
        problem(None)
    assert stop.value.result.status == "interrupted"


def interrupted_once(function):
    calls = []

    def call(*args):
        calls.append(args)
        if len(calls) == 1:
            raise KeyboardInterrupt
        return function(*args)

    return call
