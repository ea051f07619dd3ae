"""The same bits again: reruns, other processes, other hash seeds, other numbers of workers."""

from __future__ import annotations

import json
import mmap
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import kernels
import numpy as np
import pytest
import soak
from results import digest, results

import vioc
from vioc.compile import find_compiler
from vioc.sweeps import sweep

# inside: values are the same where their stored form is
from vioc.sweeps.store import dumps

ROOT = Path(__file__).parents[2]


def start(hash_seed, workers, *options, **more):
    settings = {"PYTHONHASHSEED": hash_seed, "VIOC_WORKERS": workers, "PYTHONPATH": str(ROOT), **more}
    command = [sys.executable, "-W", "ignore", str(Path(__file__).with_name("results.py")), *options]
    return subprocess.Popen(command, env={**os.environ, **settings}, stdout=subprocess.PIPE, cwd=ROOT)


@pytest.mark.slow
def test_processes_hash_seeds_and_workers(tmp_path):
    compiled = ["--compiled"] if find_compiler() else []
    cache = {"VIOC_CACHE": str(tmp_path)}
    processes = [start("0", "1"), start("1", "2", *compiled, **cache), start("random", "4")]
    here = results()
    for process in processes:
        text, _ = process.communicate(timeout=600)
        found = json.loads(text)
        assert found.pop("optimize, compiled", here["optimize"]) == here["optimize"]
        assert found == here
    assert results() == here


@pytest.mark.parametrize("backend", ["virtual", pytest.param("compiled", marks=pytest.mark.skipif(
    find_compiler() is None, reason="no C compiler"))])  # fmt: skip
def test_workers_of_a_batch(backend, tmp_path, monkeypatch):
    monkeypatch.setenv("VIOC_CACHE", str(tmp_path))
    f = vioc.MidpointVI(vioc.models.load("cart_pole"), 0.02, backend=backend)
    X0 = np.stack([f.initial_state({"theta": 0.1 * i}) for i in range(9)])
    digests = set()
    for workers in ("1", "2", "4", "7"):
        monkeypatch.setenv("VIOC_WORKERS", workers)
        batch = f.rollouts(X0, steps=50)
        run = f.rollout(X0[3], steps=50)
        lin = f.linearize_trajectory(run)
        alone = f.rollouts(X0, steps=50)
        digests.add(digest(batch.x, batch.multipliers, alone.x, lin.A, lin.B))
    assert len(digests) == 1
    assert [f.rollout(x, steps=50).x.tobytes() for x in X0] == [x.tobytes() for x in alone.x]


def swung(angle, rng):
    """A task with a map, chance and arrays."""
    f = vioc.MidpointVI(vioc.models.load("pendulum"), 0.02)
    run = f.rollout(f.initial_state({f.system.dynamic[0]: angle + rng.standard_normal()}), steps=20)
    return {"x": run.x, "last": float(run.energy[-1])}


@pytest.mark.slow
def test_workers_of_a_sweep(tmp_path):
    points = [{"angle": 0.1 * i} for i in range(9)]
    here = sweep(swung, points, seed=3, workers=0)
    for workers in (1, 2, 4):
        there = sweep(swung, points, seed=3, workers=workers, store=tmp_path / f"{workers}.jsonl")
        assert dumps(there.values) == dumps(here.values)
    resumed = sweep(swung, points, seed=3, workers=0, store=tmp_path / "4.jsonl")
    assert dumps(resumed.values) == dumps(here.values)


# -- memory -------------------------------------------------------------------------------------------

memory = pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is read in /proc")


@memory
@pytest.mark.parametrize("case", [soak.rollouts, soak.builds], ids=lambda case: case.__name__)
def test_memory_stays_flat_for_a_while(case):
    amount = {"rollouts": 50_000, "builds": 15}[case.__name__]
    curve = soak.apart(case, "midpoint virtual", amount)
    assert curve.done[-1] == amount and curve.growth < soak.SLACK, str(curve)


@memory
def test_a_leak_would_be_seen(tmp_path, monkeypatch):
    monkeypatch.setattr(soak.gc, "collect", lambda: 0)  # which takes long among the objects of all tests
    kept, size = [], 100 * mmap.PAGESIZE

    def leak(make, count):
        for i in range(count):
            kept.append(mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE))  # an array may get what others left
            kept[-1].write(b"x" * size)
            yield i + 1, ""

    curve = soak.measure(leak, "", 100)
    assert curve.growth > 10 * soak.SLACK and curve.slope == pytest.approx(size, rel=0.2)
    assert "GROWS" in str(curve)
    soak.plot([curve], tmp_path / "soak.png")
    assert (tmp_path / "soak.png").stat().st_size > 5000


# -- other processors ---------------------------------------------------------------------------------


def test_stand_ins_for_other_processors_are_what_they_say(monkeypatch):
    """Each has loops of its own, by what numpy and OpenBLAS say; what is left out is said."""
    ask = cache(lambda given: chosen(dict(given)))  # in a process, which takes long to start
    chosen = kernels.chosen
    monkeypatch.setattr(kernels, "chosen", lambda given: ask(tuple(given.items())))
    settings, left = kernels.stand_ins()
    assert sorted([*settings, *left]) == sorted(p.name for p in kernels.PROCESSORS)
    loops = [kernels.chosen(given) for given in ({}, *settings.values())]
    assert all(one != two for i, one in enumerate(loops) for two in loops[:i])
