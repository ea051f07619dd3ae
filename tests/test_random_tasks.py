"""Random tasks: the same each time, and feasible by construction."""

import numpy as np
import pytest

from studies.random_tasks import random_task
from studies.tasks import optimum
from studies.two_starts_family import task as posture_task
from vioc.control import kkt, optimize

# inside: iterations that a task takes are counted where they are made
from vioc.control.shooting.barrier import Interior
from vioc.errors import is_tried


@pytest.mark.parametrize("index", [1, 4, 5])
@pytest.mark.filterwarnings("ignore::vioc.errors.ChartWarning")  # random mechanisms pass by such places
def test_the_rollout_keeps_all_limits(index):
    made = random_task(index)
    assert made is not None
    task = made.task
    assert task.limits
    if index != 4:  # which takes long to make
        again = random_task(index)
        assert again is not None and repr(task.limits) == repr(again.task.limits)
        np.testing.assert_array_equal(made.shown.x, again.shown.x)
    found = kkt(task.map, task.cost, made.shown, **task.limits)
    assert found.feasibility <= 1e-12 and found.gap <= 1e-10
    assert any(n.startswith("tension.") for n in task.limits.get("bounds", {})) == (index == 4)
    out = made.shown.x.copy(), made.shown.u * 10
    moved = kkt(task.map, task.cost, task.map.rollout(out[0][0], out[1] / 5, warn=False), **task.limits)
    assert moved.feasibility > 1e-3


def search_of_a_loop():
    task = posture_task(21)
    return task, {}, optimize(task.map, task.cost, x0=task.x0, steps=task.steps)


def search_of_a_string():
    task = random_task(167).task
    return task, task.limits, optimum(task)


@pytest.mark.filterwarnings("ignore::vioc.errors.ChartWarning", "ignore::vioc.errors.SlackWarning")
@pytest.mark.parametrize(
    ("search", "way"),
    [
        (search_of_a_loop, "begun from the rollout of its inputs"),
        pytest.param(search_of_a_string, "begun from IPOPT's optimum", marks=pytest.mark.slow),
    ],
)
def test_where_a_search_ends_nowhere_another_start_leads_on(search, way, monkeypatch):
    tried, iterate = [], Interior.iterate

    def iterating(search, *args):
        tried.append(is_tried())
        iterate(search, *args)

    monkeypatch.setattr(Interior, "iterate", iterating)
    task, limits, best = search()
    assert len(tried) > 1 and not any(tried)  # no search is a trial of what made its start
    assert best.converged and way in best.message
    found = kkt(task.map, task.cost, best.trajectory, best.multipliers, **limits)
    assert found.residual <= 1e-8


def test_a_search_that_crawls_ends():
    """A loop whose steps have no solution a little beyond the iterates."""
    task = posture_task(27)
    start = dict(x0=task.x0, steps=task.steps, max_iterations=59)  # one search alone
    few = optimize(task.map, task.cost, raise_on_failure=False, **start)
    assert few.status == "no_progress" and "only short steps" in few.message and few.iterations < 59
