"""Sweeps: order, seeds, failures, lost workers, and files that survive a crash."""

import functools
import json
import os
import shutil
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import casadi as ca
import numpy as np
import pytest
from support.control_maps import midpoint_pendulum
from support.sweep_tasks import deadly, environment, first_state, ignored, noisy, picky, slow, square, times

# inside: values are the same where their stored form is; files are read that a sweep left
from vioc import progress
from vioc import sweeps as package
from vioc.control import Cost, dlqr, region_of_attraction
from vioc.errors import FileFormatError
from vioc.sweeps import Store, grid, sweep, zipped
from vioc.sweeps.store import dumps, loads, read_store

POINTS = [{"x": float(x)} for x in range(6)]


def same(a, b):
    """Equal to the bit."""
    return dumps([o.value for o in a]) == dumps([o.value for o in b])


def test_points():
    assert grid(a=[1, 2], b=[3, 4]) == [
        {"a": 1, "b": 3},
        {"a": 1, "b": 4},
        {"a": 2, "b": 3},
        {"a": 2, "b": 4},
    ]
    assert zipped(a=[1, 2], b=[3, 4]) == [{"a": 1, "b": 3}, {"a": 2, "b": 4}]
    with pytest.raises(ValueError, match="2 of a, 1 of b"):
        zipped(a=[1, 2], b=[3])


def test_order_and_columns():
    found = sweep(functools.partial(square, scale=2.0), POINTS, workers=0)
    assert found.column("y").tolist() == [0, 2, 8, 18, 32, 50]
    assert found.column("x").tolist() == [0, 1, 2, 3, 4, 5]
    assert found.best(lambda v: -v["y"]).index == 5
    assert "6 tasks, 0 failed" in repr(found)
    assert [o.value for o in sweep(abs, [-1, -2], workers=0)] == [1, 2]


def test_processes_threads_and_here_agree_to_the_bit():
    here = sweep(noisy, POINTS, seed=7, workers=0)
    with ThreadPoolExecutor(3) as pool:
        threads = sweep(noisy, POINTS, seed=7, executor=pool)
    processes = sweep(noisy, POINTS, seed=7, workers=2)
    assert same(here, threads)
    assert same(here, processes)
    assert not same(here, sweep(noisy, POINTS, seed=8, workers=0))
    children = np.random.SeedSequence(7).spawn(6)
    assert here[4].value["y"] == 4.0 + np.random.default_rng(children[4]).standard_normal()


def test_a_map_travels():
    f = midpoint_pendulum()
    points = [{"x0": [0.1 * i, 0.0]} for i in range(3)]
    found = sweep(functools.partial(first_state, f), points, workers=1)
    for o in found:
        np.testing.assert_array_equal(o.value, f.step(o.point["x0"]))


def test_a_store_is_of_one_law_one_cost_and_one_number(tmp_path):
    """What is bound to the function tells a sweep from others; the same said again goes on."""
    f = midpoint_pendulum()
    law = [dlqr(f, (f.initial_state(), None), 1.0, r) for r in (1.0, 1.0, 2.0)]
    costs = [Cost(f, a * ca.sumsqr(f.symbols.u)) for a in (1.0, 1.0, 2.0)]
    scaled = [times(a) for a in (1.0, 1.0, 2.0)]
    three = law, costs, scaled, ([1.0, 2.0], [1.0, 2.0], [1.0, 3.0])
    for i, (same_one, again, other) in enumerate(three):
        told = [functools.partial(ignored, given) for given in (same_one, again, other)]
        path = tmp_path / f"{i}.jsonl"
        assert sweep(told[0], [1, 2], workers=0, store=path).values == [1, 2]
        assert sweep(told[1], [1, 2], workers=0, store=path).values == [1, 2]
        with pytest.raises(FileFormatError, match="holds another sweep: bound differs"):
            sweep(told[2], [1, 2], workers=0, store=path)
    told = dict(samples=4, steps=5, goal=1.0, store=tmp_path / "region.jsonl", batch=2)
    first = region_of_attraction(law[0], {"theta": 0.1}, **told)
    assert (region_of_attraction(law[1], {"theta": 0.1}, **told).distances == first.distances).all()
    for other in ((law[2], {"theta": 0.1}, told), (law[0], {"theta": 0.2}, told)):
        with pytest.raises(FileFormatError, match="bound differs"):
            region_of_attraction(*other[:2], **other[2])


def test_processes_take_one_thread_each():
    names = ("OMP_NUM_THREADS", "VIOC_WORKERS")
    given = [os.environ.get(name) for name in names]
    found = sweep(environment, [list(names)] * 2, workers=2).values
    assert found == [[value or "1" for value in given]] * 2
    assert [os.environ.get(name) for name in names] == given


def test_failures_are_kept_where_they_happened():
    found = sweep(picky, [1, 2, 3], workers=0)
    assert [o.ok for o in found] == [True, False, True]
    assert found.failures[0].error == "ValueError: two is refused"
    assert "picky" in found.failures[0].traceback
    assert [o.value for o in found.succeeded] == [1, 3]
    with pytest.raises(RuntimeError, match=r"1 of 3 tasks failed; the first, 1 at 2: ValueError"):
        _ = found.values
    assert found.best(lambda v: v).value == 1


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_lost_workers_run_again_and_the_killer_is_found(tmp_path):
    task = functools.partial(deadly, marker=str(tmp_path / "marker"))
    found = sweep(task, [{"x": i} for i in range(5)], workers=2)
    assert [o.value for o in found] == [0, 1, 2, None, 4]
    assert found.failures[0].error.startswith("WorkerLost")


def test_what_cannot_be_sent():
    with pytest.raises(TypeError, match="define it in a module"):
        sweep(lambda x: x, [1], workers=1)
    with pytest.raises(ValueError, match="workers"):
        sweep(square, POINTS, workers=-1)
    assert sweep(square, []).outcomes == ()


# -- files ----------------------------------------------------------------------------------------


def test_values_come_back_to_the_bit():
    value = {
        "a": [0.1, 1e-320, float("inf"), float("nan"), -0.0, 2**70, None, True],
        "b": np.array([[1.5, np.nan], [np.pi, -0.0]]),
        "c": {"deep": np.arange(3, dtype=np.int32), "text": 'a "b"\n'},
    }
    back = loads(dumps(value))
    assert dumps(back) == dumps(value)
    assert back["b"].tobytes() == value["b"].tobytes()
    assert back["c"]["deep"].dtype == np.int32
    assert "\n" not in dumps(value)
    with pytest.raises(TypeError, match=r"value\['f'\]: function is not kept"):
        dumps({"f": test_points})


def interrupt_after(count):
    def stop(progress):
        if progress.done - progress.resumed == count:
            raise KeyboardInterrupt

    return stop


def test_an_interrupted_sweep_goes_on(tmp_path):
    path = tmp_path / "run.jsonl"
    whole = sweep(noisy, POINTS, seed=3, workers=0)
    with pytest.raises(KeyboardInterrupt):
        sweep(noisy, POINTS, seed=3, workers=0, store=path, progress=interrupt_after(2))
    assert len(read_store(path)[1]) == 2
    with open(path, "ab") as file:
        file.write(b'{"index":2,"outcome":{"val')  # a crash in the middle of a line
    told = []
    resumed = sweep(noisy, POINTS, seed=3, workers=0, store=path, progress=told.append)
    assert same(whole, resumed)
    assert [t.outcome.index for t in told] == [2, 3, 4, 5]
    assert [t.done for t in told] == [3, 4, 5, 6]
    again = sweep(noisy, POINTS, seed=3, workers=0, store=path, progress=told.append)
    assert same(whole, again)
    assert len(told) == 4


def test_interrupted_processes_leave_what_they_finished(tmp_path):
    path = tmp_path / "run.jsonl"
    with pytest.raises(KeyboardInterrupt):
        sweep(slow, range(12), seed=1, workers=1, store=path, progress=interrupt_after(3))
    assert len(read_store(path)[1]) == 3
    assert same(
        sweep(slow, range(12), seed=1, workers=0), sweep(slow, range(12), seed=1, workers=0, store=path)
    )


@pytest.mark.parametrize("workers", [0, 1])
def test_ctrl_c_keeps_what_is_finished(workers):
    whole = sweep(noisy, POINTS, seed=3, workers=0)
    with pytest.raises(KeyboardInterrupt) as stop:
        sweep(noisy, POINTS, seed=3, workers=workers, progress=interrupt_after(3))
    kept = stop.value.result
    assert [o.index for o in kept] == [0, 1, 2]
    assert same(kept, whole[:3])


def test_a_sweep_tells_a_terminal_how_far_it_is(monkeypatch, capsys):
    told = []
    monkeypatch.setattr(progress.Progress, "to", lambda self, done, note="": told.append((done, note)))
    sweep(picky, [1, 2, 3], workers=0)
    assert told == [(1, ""), (2, "1 failed"), (3, "1 failed")]
    sweep(square, POINTS, workers=0, progress=False)
    assert len(told) == 3 and not capsys.readouterr().err


def test_another_sweeps_file_is_refused(tmp_path):
    path = tmp_path / "run.jsonl"
    sweep(square, POINTS, workers=0, store=path)
    for change, what in (
        (dict(seed=1), "seed differs"),
        (dict(name="other"), "name differs"),
    ):
        with pytest.raises(FileFormatError, match=what):
            sweep(square, POINTS, workers=0, store=path, **change)
    with pytest.raises(FileFormatError, match="tasks, points differ"):
        sweep(square, POINTS[:3], workers=0, store=path)
    text = tmp_path / "notes.txt"
    text.write_text("dear diary\n")
    with pytest.raises(FileFormatError, match="line 1 is not the results of a sweep"):
        sweep(square, POINTS, workers=0, store=text)
    text.write_text("no newline")
    with pytest.raises(FileFormatError, match="not the results of a sweep"):
        sweep(square, POINTS, workers=0, store=text)
    assert text.read_text() == "no newline"
    lines = path.read_text().splitlines()
    path.write_text("\n".join([lines[0], lines[1][:-5], *lines[2:]]) + "\n")
    with pytest.raises(FileFormatError, match="line 2 is damaged"):
        sweep(square, POINTS, workers=0, store=path)


def test_failures_in_a_file(tmp_path):
    path = tmp_path / "run.jsonl"
    sweep(picky, [1, 2, 3], workers=0, store=path)
    told = []
    kept = sweep(picky, [1, 2, 3], workers=0, store=path, progress=told.append)
    assert told == []
    assert kept.failures[0].error == "ValueError: two is refused"
    sweep(picky, [1, 2, 3], workers=0, store=path, retry_failures=True, progress=told.append)
    assert [t.outcome.index for t in told] == [1]
    with pytest.raises(TypeError, match="is not kept in files"):
        sweep(complex, [1.0], workers=0, store=tmp_path / "complex.jsonl")
    with pytest.raises(TypeError, match="plain data"):
        sweep(square, [{"x": square}], workers=0, store=tmp_path / "points.jsonl")


def test_one_writer_at_a_time(tmp_path):
    pytest.importorskip("fcntl")
    path = tmp_path / "run.jsonl"
    with Store(path, {"name": "a"}), pytest.raises(BlockingIOError, match="another sweep is writing"):
        Store(path, {"name": "a"})
    header = json.loads(path.read_text())
    assert header["format"] == "vioc-sweep-2"


def test_progress_line(capsys):
    sweep(square, POINTS, workers=0, progress=True)
    assert "6/6" in capsys.readouterr().err
    assert set(package.__all__) <= set(dir(package))


# -- elsewhere ------------------------------------------------------------------------------------


@pytest.mark.peer
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_dask_gives_the_same_bits_and_survives_a_lost_worker(tmp_path):
    distributed = pytest.importorskip("distributed")
    here = sweep(slow, range(60), seed=5, workers=0)
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=None, local_directory=str(tmp_path)
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        pids = [info["pid"] for info in client.run(lambda: {"pid": os.getpid()}).values()]
        assert len(set(pids)) == 2
        executor = client.get_executor()
        killed = []

        def kill(progress):
            if progress.done == 10 and not killed:
                killed.append(pids[0])
                os.kill(pids[0], signal.SIGKILL)  # one of the workers just started by this test

        path = tmp_path / "dask.jsonl"
        there = sweep(slow, range(60), seed=5, executor=executor, progress=kill, store=path)
    assert killed
    assert not there.failures
    assert same(here, there)
    assert same(here, sweep(slow, range(60), seed=5, workers=0, store=path))


MPI = """
from mpi4py.futures import MPIPoolExecutor
from support.sweep_tasks import slow
from vioc.sweeps import sweep
from vioc.sweeps.store import dumps

if __name__ == "__main__":
    with MPIPoolExecutor() as executor:
        print(dumps(sweep(slow, range(20), seed=5, executor=executor).values))
"""


@pytest.mark.peer
@pytest.mark.slow
def test_mpi_gives_the_same_bits(tmp_path):
    pytest.importorskip("mpi4py")
    mpiexec = shutil.which("mpiexec") or shutil.which("mpiexec", path=str(Path(sys.executable).parent))
    if mpiexec is None:
        pytest.skip("no mpiexec")
    script = tmp_path / "study.py"
    script.write_text(MPI)
    here = Path(__file__).parent
    paths = os.pathsep.join([str(here), str(here.parent)])
    command = [mpiexec, "-n", "3", sys.executable, "-m", "mpi4py.futures", str(script)]
    allow = {name: "1" for name in ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM")}
    more = {
        "PYTHONPATH": paths,
        "OMPI_MCA_rmaps_base_oversubscribe": "1",
        "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    }
    done = subprocess.run(
        command, env={**os.environ, **allow, **more}, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == dumps(sweep(slow, range(20), seed=5, workers=0).values)
