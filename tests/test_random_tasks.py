"""Random tasks: the same each time, and feasible by construction."""

import numpy as np
import pytest

from studies.random_tasks import random_task
from studies.tasks import optimum
from vioc.control import kkt

# inside: iterations that a task takes are counted where they are made
from vioc.control.shooting.barrier import Interior
from vioc.errors import is_tried


@pytest.mark.parametrize("index", [1, 4, 5])
@pytest.mark.filterwarnings("ignore::vioc.errors.ChartWarning")  # random mechanisms pass by such places
def test_the_rollout_keeps_all_limits(index):
    made, again = random_task(index), random_task(index)
    assert made is not None and again is not None
    np.testing.assert_array_equal(made.shown.x, again.shown.x)
    task = made.task
    assert repr(task.limits) == repr(again.task.limits) and task.limits
    found = kkt(task.map, task.cost, made.shown, **task.limits)
    assert found.feasibility <= 1e-12 and found.gap <= 1e-10
    assert any(n.startswith("tension.") for n in task.limits.get("bounds", {})) == (index == 4)
    out = made.shown.x.copy(), made.shown.u * 10
    moved = kkt(task.map, task.cost, task.map.rollout(out[0][0], out[1] / 5, warn=False), **task.limits)
    assert moved.feasibility > 1e-3


@pytest.mark.filterwarnings("ignore::vioc.errors.ChartWarning", "ignore::vioc.errors.SlackWarning")
@pytest.mark.parametrize(
    ("index", "way"),
    [
        (61, "begun from the rollout of its inputs"),
        pytest.param(167, "begun from IPOPT's optimum", marks=pytest.mark.slow),
    ],
)
def test_where_a_search_ends_nowhere_another_start_leads_on(index, way, monkeypatch):
    task, tried, iterate = random_task(index).task, [], Interior.iterate

    def iterating(search, *args):
        tried.append(is_tried())
        iterate(search, *args)

    monkeypatch.setattr(Interior, "iterate", iterating)
    best = optimum(task)
    assert len(tried) > 1 and not any(tried)  # no search is a trial of what made its start
    assert best.converged and way in best.message
    found = kkt(task.map, task.cost, best.trajectory, best.multipliers, **task.limits)
    assert found.residual <= 1e-8


@pytest.mark.filterwarnings("ignore::vioc.errors.ChartWarning", "ignore::vioc.errors.SlackWarning")
def test_a_search_that_crawls_ends():
    """Strings whose steps have no solution a little beyond the iterates: all of 300 iterations were short."""
    few = optimum(random_task(61).task, max_iterations=59)  # one search alone
    assert few.status == "no_progress" and "only short steps" in few.message and few.iterations < 59
