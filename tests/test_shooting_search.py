"""Trials of the interior point on stages that are refused, or have no steps, and what is done about it."""

from types import SimpleNamespace

import casadi as ca
import numpy as np
import pytest

import vioc
from benchmarks import robots
from benchmarks.ocp import START_SPREAD
from studies.kkt import kkt
from studies.random_tasks import random_task
from studies.tasks import judged, optimum
from vioc.control import Cost, Problem
from vioc.control.shooting.level import Worth
from vioc.control.shooting.search import LineSearch


def test_corrections_go_on_while_they_help():
    """Along a stiff circle, where every straight step leaves it: two corrections do not bring some steps
    back, and searches with so few take 26 iterations.
    """
    x, u = ca.SX.sym("x", 2), ca.SX.sym("u", 2)
    names: dict = dict(state_names=["x", "y"], input_names=["a", "b"])
    f = vioc.CasadiMap(ca.Function("f", [x, u], [x + u]), 1.0, **names)
    at, effort = f.symbols.x, 1e-3 * ca.sumsqr(f.symbols.u)
    cost = Cost(f, effort, 0.5e4 * (ca.sumsqr(at) - 1) ** 2 + at[0], per_time=False)
    found = Problem(f, cost, 3).solve([np.cos(1.0), np.sin(1.0)])
    assert found.converged and found.iterations <= 16
    assert kkt(f, cost, found.trajectory).residual < 1e-8


@pytest.mark.parametrize("start", [10, 12])
def test_an_arm_whose_steps_run_along_a_curved_residual(start):
    """Of the starts of the benchmarks. 12: 58 iterations with one correction and no filter of residuals.
    10: 42 where rollouts of corrections may be far from an open curve, from cost 0.95 to 652 there.
    """
    task = robots.arm(robots.Make())
    offset = START_SPREAD * np.random.default_rng(0).standard_normal((20, 7))[start]
    found = judged(task._replace(x0=task.x0 + np.append(offset, np.zeros(7))), optimum)
    assert found.converged and found.kkt.residual < 1e-8
    assert found.iterations <= 40


def test_residuals_that_are_off_pass_the_filter():
    """What they cost because they are not as foreseen does not count as price but as left."""
    here, there = "iterate", "trial"
    off = {here: 0.5, there: 2.5}
    cost = SimpleNamespace(
        foreseen=lambda *args: (None, there), unforeseen=lambda slopes, rho, curve: off[curve] / 2
    )
    level = SimpleNamespace(stages=SimpleNamespace(cost=cost), scale=2.0)
    it = SimpleNamespace(point=SimpleNamespace(curve=here), foreseen=(None, here))
    b, d = SimpleNamespace(slopes=(None, None)), SimpleNamespace(dx=None, du=None)
    point, lin = SimpleNamespace(curve=there), object()

    def passes(search, before, after, lin):
        return search._passes(it, b, d, 1.0, point, Worth(0, before, 0.0), Worth(9, after, 0.0), lin)

    search = LineSearch(level, None)  # type: ignore[arg-type]
    assert not passes(search, 10.0, 11.0, None)  # it costs more
    assert not passes(search, 10.0, 12.1, lin)  # and without what is off, 9.5 and 9.6, too
    assert passes(search, 10.0, 11.0, lin)  # 9.5 and 8.5
    assert not passes(search, 13.0, 12.5, lin)  # of those before one costs no more, 9.5, and leaves less
    off[there] = 1e4
    search.forget()
    assert not passes(search, 10.0, 11.0, lin)  # too far off


@pytest.mark.slow
def test_steps_near_a_dead_point_are_not_all_an_eighth():
    """A loop whose first trials have no steps without all means; no search ended in 300 iterations."""
    found = judged(random_task(213).task, optimum)
    assert found.converged and found.kkt.residual < 1e-8
    assert found.iterations <= 100
