"""Compiled programs: the same numbers as the virtual machine, and a cache that survives what happens."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
import warnings
from dataclasses import replace

import casadi as ca
import numpy as np
import pytest

import vioc

# inside: programs, keys and folders of the cache, which `Backend` and `Cache` hide
from vioc.compile import Backend, Cache, Compiler, background, find_compiler, load_library, native
from vioc.compile.backend import AutoProgram
from vioc.compile.compiler import CANDIDATES
from vioc.compile.disk_cache import _own_folder
from vioc.compile.libraries import key_of
from vioc.compile.native import NativeProgram
from vioc.compile.virtual import VirtualProgram

# inside: what a search computes with, which no result says
from vioc.control.shooting import compiled
from vioc.control.shooting.compiled import NativeSubproblem, subproblem_of
from vioc.control.shooting.subproblem import Subproblem
from vioc.errors import CompileError, ModelError, StepError

RNG = np.random.default_rng
compiler = pytest.mark.skipif(find_compiler() is None, reason="no C compiler")


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("VIOC_CACHE", str(tmp_path / "cache"))
    return Cache()


@pytest.fixture
def shared_cache(cache, tmp_path_factory, monkeypatch):
    """A folder of several tests that compile the same programs, each of which is compiled once."""
    monkeypatch.setenv("VIOC_CACHE", str(tmp_path_factory.getbasetemp() / "shared-cache"))
    return Cache()


def counter() -> ca.Function:
    """A kernel whose error grows by one with every step."""
    carry, u, t = ca.SX.sym("carry", 2), ca.SX.sym("u"), ca.SX.sym("t")
    after = ca.vertcat(carry[0] + 1, ca.sin(carry[1]) + u)
    return ca.Function("counter", [carry, u, t], [after, carry[1] * t, after[0]])


@pytest.fixture(params=["virtual", pytest.param("native", marks=compiler)])
def program(request):
    return VirtualProgram(counter) if request.param == "virtual" else NativeProgram(counter, "counter")


class TestPrograms:
    def test_results_that_are_all_zero_are_written(self, monkeypatch):
        """CasADi makes them sparse when it calls a function that has no other results."""
        args = [ca.SX.sym("x", 2), ca.SX(0, 1)]
        program = NativeProgram(
            lambda: ca.Function("zeros", args, [ca.SX.zeros(2), ca.SX.zeros(2, 2)]), "zeros"
        )
        monkeypatch.setattr(np, "empty", lambda shape, *_: np.full(shape, np.nan))
        for found in program.map([np.ones((3, 2)), np.ones(0)], 3):
            np.testing.assert_array_equal(found, np.zeros(len(found)))

    def test_calls_and_maps(self, program):
        carry, u = np.array([[0.0, 1.0], [3.0, 2.0], [5.0, -1.0]]), np.array([0.5, 1.0, 2.0])[:, None]
        after, product, error = program.map([carry, u, np.array([2.0])], 3)
        np.testing.assert_array_equal(
            after.reshape(3, 2), np.c_[carry[:, 0] + 1, np.sin(carry[:, 1]) + u[:, 0]]
        )
        np.testing.assert_array_equal(product, 2 * carry[:, 1])
        np.testing.assert_array_equal(error, carry[:, 0] + 1)
        one = program([carry[1], u[1], np.array([2.0])])
        np.testing.assert_array_equal(one[0], after[2:4])
        assert program.shapes_in == ((2, 1), (1, 1), (1, 1))
        assert program.shapes_out == ((2, 1), (1, 1), (1, 1))

    def test_accumulates_until_the_error_is_too_large(self, program):
        u = np.linspace(0, 1, 3000)[:, None]
        (carry, product, _), done, last = program.accumulate(
            np.array([0.0, 1.0]), [u, np.array([2.0])], 3000, 1, 1e9
        )
        assert done == 3000 and carry.shape == (3000, 1) and last == 0.0
        np.testing.assert_array_equal(carry[:, 0], np.arange(1, 3001))
        x = 1.0
        for k in range(3000):
            assert product[k, 0] == 2 * x
            x = np.sin(x) + u[k, 0]
        _, done, last = program.accumulate(np.array([0.0, 1.0]), [u, np.array([2.0])], 3000, 2, 1500.0, 16)
        assert (done, last) == (1500, 1501.0)

    def test_stops_at_what_is_not_finite(self, program):
        u = np.ones((20, 1))
        u[7] = np.nan
        (carry, *_), done, _ = program.accumulate(np.zeros(2), [u, np.zeros(1)], 20, 2, 1e9)
        assert done == 7 and np.isfinite(carry).all()

    @pytest.mark.parametrize("count", [20, 1500])  # in one piece, and in several
    def test_bound_to_arrays(self, program, count):
        """The same numbers, from arrays of any layout that change between calls."""
        auto = AutoProgram(counter, NativeProgram(counter, "never asked"))
        rows, t, start = np.zeros((count, 3)), np.array([2.0]), np.array([0.0, 1.0])
        back = rows[::-1, 1:2]
        for bound in (p.bind_accumulate(start, [back, t], count, 2, 1e9) for p in (program, auto)):
            for seed in (0, 1):
                rows[:], start[1], t[0] = RNG(seed).standard_normal(rows.shape), 1.0 + seed, 2.0 - seed
                plain, done, _ = program.accumulate(start, [np.ascontiguousarray(back), t], count, 2, 1e9)
                assert bound.call() == done == count
                for mine, theirs in zip(bound.outputs, plain, strict=True):
                    np.testing.assert_array_equal(mine, theirs)
            rows[count - 5, 1] = np.nan  # the fifth from the start
            assert bound.call() == 4
        short = program.bind_accumulate(start, [back, t], count, 0, 2.0)
        assert short.call() == 2
        carries = np.linspace(0, 1, 2 * count).reshape(count, 2)
        for bound in (p.bind_map([carries[::-1], back, t], count) for p in (program, auto)):
            for seed in (0, 1):
                rows[:] = RNG(seed).standard_normal(rows.shape)
                args = [np.ascontiguousarray(a) for a in (carries[::-1], back, t)]
                assert bound.call() == count
                for mine, theirs in zip(bound.outputs, program.map(args, count), strict=True):
                    np.testing.assert_array_equal(mine.reshape(-1), theirs)

    @pytest.mark.parametrize("native", [False, pytest.param(True, marks=compiler)])
    @pytest.mark.parametrize("count", [1, 5, 16, 37])
    def test_accumulates_matrices(self, native, count):
        """Column by column, also where the virtual machine writes several evaluations out as one."""
        c, M, w = ca.SX.sym("c", 2), ca.SX.sym("M", 2, 3), ca.SX.sym("w", 3)
        after = 0.5 * c + M @ w
        f = ca.Function("f", [c, M, w], [after, M * ca.repmat(c, 1, 3), ca.SX(0)])
        f = ca.Function("f", [c, M, w], [ca.densify(o) for o in f(c, M, w)])
        program = NativeProgram(lambda: f, "f") if native else VirtualProgram(lambda: f)
        rows, shared = RNG(1).standard_normal((count, 6)), np.array([1.0, -2.0, 0.3])
        (carries, products, _), done, _ = program.accumulate(np.ones(2), [rows, shared], count, 2, np.inf)
        before = np.vstack([np.ones(2), carries[:-1]])  # from its own, so that roundings do not add up
        for row, x, product, carry in zip(rows, before, products, carries, strict=True):
            M = row.reshape(3, 2).T
            np.testing.assert_array_equal(product.reshape(3, 2).T, M * x[:, None])  # one rounding each
            # a sum of four terms, in any order
            bound = 4 * np.finfo(float).eps * (np.abs(0.5 * x) + np.abs(M) @ np.abs(shared))
            assert (np.abs(carry - (0.5 * x + M @ shared)) <= bound).all()
        assert done == count

    def test_several_threads_share_one(self, program):
        from concurrent.futures import ThreadPoolExecutor

        def work(i: int) -> float:
            u = np.full((500, 1), 0.01 * i)
            return program.accumulate(np.zeros(2), [u, np.zeros(1)], 500, 2, 1e9)[0][0][-1, 1]

        alone = [work(i) for i in range(20)]
        with ThreadPoolExecutor(4) as pool:
            assert list(pool.map(work, range(20))) == alone


MODELS = {
    "long chain": (("n_link_pendulum", 15), {"link-0": 0.8}),
    "cart_pole": (("cart_pole",), {"theta": 0.4}),
    "closed_chain": (
        ("closed_chain",),
        {"J": -0.62, "H": 1.35, "K": 0.1, "M": -1.34, "A": 0.04, "C": 1.28, "E": 0.93},
    ),
}


def maps_of(model, *backends):
    """The maps of a model on these backends, and a state to start from."""
    (name, *size), q = MODELS[model]
    system = vioc.models.load(name, *size)
    maps = [vioc.MidpointVI(system, 0.01, backend=b) for b in backends]
    start = vioc.consistent_configuration(system, q).q if system.constraints else q
    return maps, maps[0].initial_state(start)


@compiler
@pytest.mark.parametrize("model", MODELS)
def test_both_backends_agree_to_the_bit(model, shared_cache):
    (virtual, native, auto), x0 = maps_of(model, "virtual", "compiled", "auto")
    runs = [f.rollout(x0, steps=1000, warn=False) for f in (virtual, native, auto, native)]
    for run in runs[1:]:
        np.testing.assert_array_equal(run.x, runs[0].x)
        np.testing.assert_array_equal(run.multipliers, runs[0].multipliers)


@compiler
@pytest.mark.parametrize(  # a compiler takes seconds for those of a long chain
    "model", [pytest.param(m, marks=pytest.mark.slow if m == "long chain" else ()) for m in MODELS]
)
def test_both_backends_agree_about_derivatives(model, shared_cache):
    (virtual, native), x0 = maps_of(model, "virtual", "compiled")
    system = virtual.system
    runs = [f.rollout(x0, steps=40, warn=False) for f in (virtual, native)]
    Z = np.random.default_rng(0).standard_normal((40, virtual.nx))
    # A is what products of the size M/dt leave of each other; numpy's take the inverse of M_k+1, C's do not.
    # An inverse of n rows has an error of n eps cond(M) relative to its norm, with any order of its sums
    lost = len(system.variables) * np.finfo(float).eps * virtual.conditions(runs[0]).mass.max()
    rounding = lost * virtual.lagrangian.mass_scale.max() / virtual.dt
    for derivative in (
        lambda f, run: [*f.linearize_trajectory(run)],
        lambda f, run: [*f.second_order_trajectory(run, Z)],
    ):
        for a, b in zip(derivative(virtual, runs[0]), derivative(native, runs[1]), strict=True):
            atol = 1e-12 * (1 + np.abs(a).max(initial=0.0)) + rounding
            np.testing.assert_allclose(a, b, rtol=0, atol=atol)


@compiler
def test_feedback_and_rescues_are_the_same(shared_cache):
    system = vioc.models.load("cart_pole")
    runs = []
    for backend in ("virtual", "compiled"):
        f = vioc.MidpointVI(system, 0.02, backend=backend)
        x = f.rollout(f.initial_state({"theta": 0.2}), steps=80).x
        K = np.tile(np.array([[1.0, 20.0, 2.0, 3.0]]), (80, 1, 1))
        runs.append(f.track(x[0] + 0.01, x, np.zeros((80, 1)), K))
    np.testing.assert_array_equal(runs[0].x, runs[1].x)
    np.testing.assert_array_equal(runs[0].u, runs[1].u)
    assert any("track" in e.title for e in shared_cache.entries())


@compiler
class TestCache:
    def test_a_second_process_finds_what_the_first_compiled(self, cache):
        program = NativeProgram(counter, "counter")
        program([np.zeros(2), np.zeros(1), np.zeros(1)])
        entries = list(cache.entries())
        assert "counter" in {e.title for e in entries}  # and the loops, unless another test loaded them
        again = NativeProgram(lambda: pytest.fail("it was built again"), "counter", program._chosen)
        again.__dict__["source"] = program.source
        again([np.zeros(2), np.zeros(1), np.zeros(1)])
        assert list(cache.entries()) == entries

    def test_a_key_by_description_needs_no_function(self, cache):
        args = [np.zeros(2), np.zeros(1), np.zeros(1)]
        NativeProgram(counter, "counter", "key")(args)
        again = NativeProgram(lambda: pytest.fail("it was built again"), "counter", "key")
        assert again(args)[2][0] == 1.0

    def test_what_differs_has_another_key(self):
        system = vioc.models.load("pendulum")
        keys = set()
        for f in (
            vioc.MidpointVI(system, 0.01, backend="compiled"),
            vioc.MidpointVI(system, 0.01, backend="compiled", alpha=0.4),
            vioc.MidpointVI(system, 0.01, backend="compiled", forcing="left"),
            vioc.MidpointVI(
                system.with_components(vioc.TorsionalSpring("theta", 1.0)), 0.01, backend="compiled"
            ),
            vioc.RungeKutta(system, 0.01, backend="compiled"),
        ):
            keys.add(f.step_solver.program(False).key)
        assert len(keys) == 5
        same = vioc.MidpointVI(system, 0.02, backend="compiled").step_solver.program(False).key
        assert same in keys

    def test_functions_of_a_users_own_are_keyed_by_their_code(self):
        system = vioc.models.load("pendulum")
        keys = []
        for stiffness in (1.0, 2.0):
            mine = system.with_components(vioc.UserPotential(lambda k, s=stiffness: s * k.q("theta") ** 2))
            f = vioc.MidpointVI(mine, 0.01, backend="compiled")
            keys.append(f.step_solver.program(False).key)
        assert keys[0] != keys[1]

    def test_a_library_is_of_its_compiler_command_and_casadi(self, monkeypatch):
        """One of another compiler, with other flags or of another CasADi may differ in its numbers."""
        gcc = Compiler(("gcc", "-O2"), "gcc 13 x86-64")
        keys = {}
        for name, built_by, version in (
            ("as it is", gcc, "3.7.0"),
            ("command", replace(gcc, command=("gcc", "-O2", "-ffast-math")), "3.7.0"),
            ("version", replace(gcc, identity="gcc 14 x86-64"), "3.7.0"),
            ("casadi", gcc, "3.7.1"),
        ):
            monkeypatch.setattr(native, "require_compiler", lambda c=built_by: c)
            monkeypatch.setattr(native.ca, "__version__", version)
            keys[name] = NativeProgram(counter, "counter", "chosen").key, key_of(built_by, "text")
        assert len({key for key, _ in keys.values()}) == 4
        assert len({key for _, key in keys.values()}) == 3  # of C alone, whatever CasADi
        assert key_of(gcc, "ab", "c") != key_of(gcc, "a", "bc")

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are not forked here")
    def test_a_forked_process_leaves_its_parents_folder(self, tmp_path):
        """What could not be kept is in use until the process itself ends, not a child of it."""
        script = """
            import os, sys
            from vioc.compile.disk_cache import _own_folder
            folder = _own_folder()
            child = os.fork()
            if child == 0:
                sys.exit(0)  # an ordinary end, with what is registered for it
            os.waitpid(child, 0)
            print(folder, folder.is_dir())
        """
        environment = {**os.environ, "TMPDIR": str(tmp_path)}
        command = [sys.executable, "-c", textwrap.dedent(script)]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
        folder, kept = done.stdout.split()
        assert kept == "True" and folder.startswith(str(tmp_path))
        assert not os.path.exists(folder)  # gone with the parent

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked here")
    def test_a_worker_process_removes_its_own_folder(self):
        context = multiprocessing.get_context("fork")
        here, there = context.Pipe(duplex=False)
        worker = context.Process(target=_make_own_folder, args=(there,))
        worker.start()
        folder, made = here.recv()
        worker.join()
        assert made and not os.path.exists(folder)

    @pytest.mark.parametrize("damage", ["truncate", "garbage", "no note", "empty note"])
    def test_a_damaged_entry_is_made_again(self, cache, damage):
        program = NativeProgram(counter, "counter", "key")
        path = cache.directory / program.key
        program([np.zeros(2), np.zeros(1), np.zeros(1)])
        library, note = path / "library.so", path / "note.json"
        if damage in ("truncate", "garbage"):
            whole = library.read_bytes()
            library.unlink()  # this process still runs the old one
            library.write_bytes(whole[:1000] if damage == "truncate" else os.urandom(len(whole)))
        elif damage == "no note":
            note.unlink()
        else:
            note.write_text("{}")
        assert cache.find(program.key) is None
        again = NativeProgram(counter, "counter", "key")
        assert again([np.zeros(2), np.zeros(1), np.zeros(1)])[2][0] == 1.0
        assert cache.find(program.key) is not None

    def test_clears_its_own_things_only(self, cache):
        NativeProgram(counter, "counter")([np.zeros(2), np.zeros(1), np.zeros(1)])
        (cache.directory / "new-half").mkdir()
        mine = cache.directory / "mine"
        mine.mkdir()
        (mine / "thesis.tex").write_text("...")
        assert cache.clear() > 1000
        assert [p.name for p in cache.directory.iterdir()] == ["mine"]

    def test_a_place_that_cannot_be_written_is_worked_around(self, tmp_path, monkeypatch):
        (tmp_path / "file").write_text("")
        monkeypatch.setenv("VIOC_CACHE", str(tmp_path / "file" / "cache"))
        with pytest.warns(RuntimeWarning, match="VIOC_CACHE"):
            assert NativeProgram(counter, "counter", "other")._library.f_n_in() == 3

    def test_many_processes_at_once(self, cache):
        spring = vioc.TorsionalSpring("theta", 0.7)  # that this process has no program of
        system = vioc.models.load("pendulum").with_components(spring)
        context = multiprocessing.get_context("fork")
        jobs, ends = [], []
        for _ in range(4):
            here, there = context.Pipe(duplex=False)
            jobs.append(context.Process(target=_send_end, args=(there, system)))
            jobs[-1].start()
            there.close()
            ends.append(here)
        answers = {end.recv() for end in ends}
        for job in jobs:
            job.join()
        assert len(answers) == 1 and all(job.exitcode == 0 for job in jobs)
        assert list(cache.entries())
        assert all(cache.find(e.key) for e in cache.entries())
        assert not list(cache.directory.glob("new-*"))

    def test_a_killed_compilation_leaves_nothing_that_counts(self, cache):
        system = vioc.models.load("n_link_pendulum", 5)
        context = multiprocessing.get_context("fork")
        for delay in (0.1, 0.4):
            job = context.Process(target=_compile, args=(system,))
            job.start()
            time.sleep(delay)
            os.kill(job.pid, signal.SIGKILL)
            job.join()
            assert all(cache.find(e.key) for e in cache.entries())
        assert np.isfinite(_compile(system)).all()


def _make_own_folder(pipe) -> None:
    _own_folder.cache_clear()
    folder = _own_folder()
    pipe.send((str(folder), folder.is_dir()))


def _send_end(pipe, system) -> None:
    f = vioc.MidpointVI(system, 0.01, backend="compiled")
    pipe.send(f.rollout(f.initial_state({"theta": 1.0}), steps=100).x[-1, 0].hex())


def _compile(system) -> np.ndarray:
    f = vioc.MidpointVI(system, 0.01, backend="compiled")
    return f.rollout(f.initial_state({"link-0": 0.3}), steps=10).x


@compiler
def test_auto_compiles_what_has_run_long_enough(cache):
    f = vioc.MidpointVI(vioc.models.load("n_link_pendulum", 2), 0.01, backend="auto")
    x0 = f.initial_state({"link-0": 0.5})
    program = f.step_solver.program(False)
    assert isinstance(program, AutoProgram)
    f.rollout(x0, steps=10)
    assert program._compilation is None and not list(cache.entries())
    program._spent = 1e9
    f.rollout(x0, steps=10)
    program._compilation.wait()
    f.rollout(x0, steps=10)
    assert program._loaded and any("step" in e.title for e in cache.entries())


@compiler
def test_auto_writes_no_c_for_a_function_that_has_run_for_less_time(cache):
    """Writing takes a tenth of compiling; a long function was written after a tenth of a second of use."""
    x = ca.SX.sym("x")
    long = ca.Function("long", [x], [sum(ca.sin(k * x) for k in range(1, 20_000))])
    program = AutoProgram(lambda: long, NativeProgram(lambda: long, "long"))
    program._spent = 0.5
    program([np.ones(1)])
    assert "source" not in vars(program._native)
    program._spent = 5.0  # long enough to look for a library, not to compile one
    program([np.ones(1)])
    assert "source" in vars(program._native) and program._compilation is None


@compiler
def test_rollouts_under_auto_go_on_while_a_slow_compiler_runs(cache, compiler_of, tmp_path):
    """They are the same bits before, meanwhile and afterwards."""
    (tmp_path / "wait").touch()
    compiler_of(f'exec {REAL} "$@"', f'while [ -e {tmp_path}/wait ]; do sleep 0.05; done; exec {REAL} "$@"')
    f = vioc.MidpointVI(vioc.models.load("n_link_pendulum", 2), 0.01, backend="auto")
    x0, program = f.initial_state({"link-0": 0.5}), f.step_solver.program(False)
    before = f.rollout(x0, steps=50).x
    program._spent = 1e9
    meanwhile = [f.rollout(x0, steps=50).x for _ in range(3)]
    assert not program._compilation.over and not program._loaded
    (tmp_path / "wait").unlink()
    program._compilation.wait()
    after = f.rollout(x0, steps=50).x
    assert program._loaded
    assert all(np.array_equal(before, x) for x in (*meanwhile, after))


@compiler
def test_searches_under_auto_do_not_wait_for_the_compiler(cache, compiler_of, tmp_path, monkeypatch):
    monkeypatch.setattr(background, "_asked", {})
    compiled._library.cache_clear()
    (tmp_path / "wait").touch()
    compiler_of(f'exec {REAL} "$@"', f'while [ -e {tmp_path}/wait ]; do sleep 0.05; done; exec {REAL} "$@"')
    f = vioc.MidpointVI(vioc.models.load("pendulum"), 0.02, backend="auto")
    cost = vioc.control.quadratic(f, Q={"theta": 1.0}, R=0.1)

    def best():
        start = dict(x0=f.initial_state({"theta": 1.0}), steps=20, bounds={f.input_names[0]: 5.0})
        return vioc.control.optimize(f, cost, **start, method="shooting")

    assert subproblem_of(f) is Subproblem
    first = best()
    (begun,) = background._asked.values()
    assert first.converged and not begun.over
    (tmp_path / "wait").unlink()
    begun.wait()
    assert subproblem_of(f) is NativeSubproblem
    np.testing.assert_allclose(best().trajectory.u, first.trajectory.u, rtol=0, atol=1e-8)


@compiler
@pytest.mark.parametrize("running", [True, False])
def test_a_process_that_ends_while_it_compiles_leaves_nothing(running, tmp_path):
    """It ends at once, with its compiler and what that has started, and no part of a library stays."""
    slow, pid = tmp_path / "mycc", tmp_path / "pid"
    does = f"echo $$ > {pid}.new; mv {pid}.new {pid}; sleep 1000; exit 1"  # the shell's child holds the pipes
    text = SPEAKS.replace("{TRIAL}", f'exec {REAL} "$@"').replace("{OTHER}", does)
    slow.write_text(f"#!/bin/sh\n{text}\n")
    slow.chmod(0o755)
    code = f"""
import os, time, vioc
f = vioc.MidpointVI(vioc.models.load("n_link_pendulum", 2), 0.01, backend="auto")
program = f.step_solver.program(False)
for _ in range(2):
    f.rollout(f.initial_state({{"link-0": 0.5}}), steps=10)
    program._spent = 1e9
f.rollout(f.initial_state({{"link-0": 0.5}}), steps=10)
assert program._compilation is not None and not program._compilation.over
while {running} and not os.path.exists({str(pid)!r}):
    time.sleep(0.01)
"""
    environment = os.environ | {"CC": str(slow), "VIOC_CACHE": str(tmp_path / "cache")}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100)
    assert (done.returncode, done.stderr) == (0, "")
    assert not list((tmp_path / "cache").glob("*"))
    if running:
        with pytest.raises(ProcessLookupError):
            os.kill(int(pid.read_text()), 0)


@compiler
@pytest.mark.parametrize("points", ["gauss", "lobatto"])
def test_galerkin_steps_under_auto_are_the_same_bits_before_and_after_compiling(cache, points):
    f = vioc.GalerkinVI(vioc.models.load("n_link_pendulum", 2), 0.05, points=points, backend="auto")
    x0 = f.initial_state({"link-0": 0.5, "link-1": -1.0})
    before = f.rollout(x0, steps=40)
    rows = f.steps_at(before.x[:-1], before.u).x1
    assert not list(cache.entries())
    program = f.step_solver.program(False)
    program._spent = 1e9
    f.rollout(x0, steps=1)
    program._compilation.wait()
    after = f.rollout(x0, steps=40)
    assert program._loaded and list(cache.entries())
    assert np.array_equal(before.x, after.x) and np.array_equal(before.x[1:], rows)
    assert np.array_equal(f.steps_at(before.x[:-1], before.u).x1, rows)


REAL = next(filter(shutil.which, (*filter(None, [os.environ.get("CC")]), *CANDIDATES)), "cc")
SPEAKS = f'case "$*" in *--version*|*-E*) exec {REAL} "$@";; *trial.c*) {{TRIAL}};; *) {{OTHER}};; esac'
OUTPUT = 'while [ "$1" != -o ]; do shift; done; {} > "$2"; exit 0'
NO_HEADERS = "echo 'fatal error: math.h: No such file' >&2; exit 1"
NO_COMPILERS = {  # by what they do when they are asked to compile
    "has no headers": (NO_HEADERS, "math.h: No such file"),
    "writes garbage": (OUTPUT.format("head -c 3000 /dev/urandom"), "cannot be loaded"),
    "writes text": (OUTPUT.format("echo garbage"), "cannot be loaded"),
    "writes half": (f'{REAL} "$@"; ' + OUTPUT.format("head -c 9000 $2 > $2.half; cat $2.half"), "is cut off"),
    "writes nothing": ("exit 0", "cannot be loaded"),
    "writes another program": (f'exec {REAL} -Dvioc_trial=other "$@"', "wrote a wrong library for a trial"),
    "computes otherwise": (f'exec {REAL} -Dfloor=ceil "$@"', "wrote a wrong library for a trial"),
    "speaks no UTF-8": (r"printf '\377\376' >&2; exit 1", "failed"),
}


@pytest.fixture
def compiler_of(tmp_path, monkeypatch):
    """Makes CC a script; whose text does what it is given with a trial, and with other sources."""

    def make(trial, other=None, text=SPEAKS):
        path = tmp_path / "mycc"
        path.write_text(
            "#!/bin/sh\n" + text.replace("{TRIAL}", trial).replace("{OTHER}", other or trial) + "\n"
        )
        path.chmod(0o755)
        monkeypatch.setenv("CC", str(path))

    return make


def use(backend):
    """A rollout, its derivatives and an optimization, and what was warned of."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        f = vioc.MidpointVI(vioc.models.load("pendulum"), 0.02, backend=backend)
        run = f.rollout(f.initial_state({"theta": 1.0}), steps=40)
        A = f.linearize_trajectory(run).A
        cost = vioc.control.quadratic(f, Q={"theta": 1.0}, R=0.1)
        best = vioc.control.optimize(f, cost, x0=run.x[0], steps=20, bounds={f.input_names[0]: 5.0})
    return [run.x, A, best.trajectory.u], [str(w.message) for w in told if w.category is RuntimeWarning]


@compiler
class TestCompilersThatDoNotWork:
    @pytest.mark.parametrize("fault", NO_COMPILERS)
    def test_auto_goes_on_in_the_virtual_machine_and_says_so_once(self, fault, compiler_of, cache):
        does, reason = NO_COMPILERS[fault]
        compiler_of(does)
        plain, told = use("virtual")
        assert not told
        found, told = use("auto")
        for a, b in zip(found, plain, strict=True):
            np.testing.assert_array_equal(a, b)
        (remark,) = told
        assert remark.startswith("nothing is compiled: ") and reason in remark and "CC" in remark
        assert not use("auto")[1] and not list(cache.entries())
        with pytest.raises(CompileError, match=f"no C compiler: .*{reason}"):
            vioc.MidpointVI(vioc.models.load("pendulum"), 0.02, backend="compiled")

    @pytest.mark.parametrize(
        ("text", "reason"),
        [
            ("exit 0", "does not tell its version"),
            ("exit 1", "does not tell its version"),
            (
                f'case "$*" in *--version*) exec {REAL} "$@";; *) {NO_HEADERS};; esac',
                "does not read C: fatal error: math.h: No such file",
            ),
        ],
    )
    def test_a_command_that_is_no_compiler(self, text, reason, compiler_of):
        compiler_of("", text=text)
        (remark,) = use("auto")[1]
        assert reason in remark

    @pytest.mark.parametrize("chosen", ["/no/such/cc", " ", "/tmp", "cc; echo hi"])
    def test_a_command_that_names_no_program(self, chosen, monkeypatch):
        monkeypatch.setenv("CC", chosen)
        (remark,) = use("auto")[1]
        assert f"CC = {chosen!r} of the environment names no program" in remark

    def test_a_library_without_the_functions_is_not_kept(self, compiler_of, monkeypatch, cache):
        other = 'while [ "$1" != -o ]; do shift; done; echo "int other;" | '
        compiler_of(f'exec {REAL} "$@"', other + f'{REAL} -shared -fPIC -x c - -o "$2"; exit 0')
        f = vioc.MidpointVI(vioc.models.load("pendulum"), 0.02, backend="compiled")
        x0 = f.initial_state({"theta": 1.0})
        with pytest.raises(CompileError, match="cannot be loaded: no functions in it"):
            f.rollout(x0, steps=10)
        assert not list(cache.entries())

    def test_a_library_without_the_functions_that_was_kept_is_made_again(self, cache):
        program = NativeProgram(counter, "counter", "other")
        folder = cache.directory / program.key
        folder.mkdir(parents=True)
        library = folder / "library.so"
        source = folder / "other.c"
        source.write_text("int other;")
        subprocess.run([REAL, "-shared", "-fPIC", str(source), "-o", str(library)], check=True)
        sound = hashlib.sha256(library.read_bytes()).hexdigest()
        (folder / "note.json").write_text(json.dumps({"title": "counter", "sha256": sound, "made": 0.0}))
        assert program([np.zeros(2), np.zeros(1), np.zeros(1)])[2][0] == 1.0

    def test_a_command_with_an_open_quote(self, monkeypatch):
        monkeypatch.setenv("CC", "gcc '-O2")
        (remark,) = use("auto")[1]
        assert 'CC = "gcc \'-O2" of the environment is no command: No closing quotation' in remark
        with pytest.raises(CompileError, match="No closing quotation"):
            Backend("compiled")

    @pytest.mark.parametrize("fault", ["has no headers", "writes garbage", "writes nothing"])
    def test_auto_goes_on_where_one_library_is_not_compiled(self, fault, compiler_of, cache):
        does, reason = NO_COMPILERS[fault]
        compiler_of(f'exec {REAL} "$@"', does)
        f = vioc.MidpointVI(vioc.models.load("n_link_pendulum", 2), 0.01, backend="auto")
        x0, program = f.initial_state({"link-0": 0.5}), f.step_solver.program(False)
        before = f.rollout(x0, steps=10).x
        program._spent = 1e9
        f.rollout(x0, steps=10)
        program._compilation.wait()
        with pytest.warns(RuntimeWarning, match=f"going on in the virtual machine: .*{reason}"):
            after = f.rollout(x0, steps=10).x
        np.testing.assert_array_equal(f.rollout(x0, steps=10).x, before)
        np.testing.assert_array_equal(after, before)
        assert not list(cache.entries()) and not list(cache.directory.glob("*"))

    @pytest.mark.parametrize("integrator", [vioc.MaximalVI, vioc.ContactVI])
    def test_auto_goes_on_where_a_solver_in_c_is_not_compiled(self, integrator, compiler_of, cache):
        ball = vioc.tz("z", name="ball", mass=1.0)
        system = vioc.System(ball, vioc.Gravity(0, 0, -9.81), vioc.Contact.point("ball"))
        compiler_of(f'exec {REAL} "$@"', NO_HEADERS)
        f, plain = (integrator(system, 0.01, backend=name) for name in ("auto", "virtual"))
        with pytest.warns(RuntimeWarning, match="going on without compiled code: .*math.h: No such file"):
            run = f.rollout(f.initial_state({"z": 0.1}), steps=5)
        np.testing.assert_array_equal(run.x, plain.rollout(run.x[0], steps=5).x)
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # nothing is compiled again
            f.rollout(run.x[0], steps=5)
        assert not list(cache.entries())

    def test_garbage_that_was_kept_as_sound_is_made_again(self, cache):
        program = NativeProgram(counter, "counter", "garbage")
        folder = cache.directory / program.key
        folder.mkdir(parents=True)
        (folder / "library.so").write_bytes(b"garbage")
        sound = hashlib.sha256(b"garbage").hexdigest()
        (folder / "note.json").write_text(json.dumps({"title": "counter", "sha256": sound, "made": 0.0}))
        assert cache.find(program.key)
        assert program([np.zeros(2), np.zeros(1), np.zeros(1)])[2][0] == 1.0
        assert (folder / "library.so").stat().st_size > 1000

    def test_scratch_files_go_with_the_folder_of_the_library(self, compiler_of, tmp_path, monkeypatch, cache):
        (tmp_path / "tmp").mkdir()
        monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
        compiler_of(f'touch "$TMPDIR/scratch"; exec {REAL} "$@"')
        assert NativeProgram(counter, "counter", "scratch")._library.f_n_in() == 3
        assert not list((tmp_path / "tmp").iterdir()) and list(cache.directory.glob("*/scratch"))


class TestErrors:
    def test_unknown_backend(self):
        with pytest.raises(ModelError, match="compiled"):
            vioc.MidpointVI(vioc.models.load("pendulum"), 0.01, backend="compild")

    @pytest.mark.filterwarnings("ignore:nothing is compiled")  # said once in a process
    def test_no_compiler(self, monkeypatch):
        monkeypatch.setenv("CC", "no-such-compiler")
        with pytest.raises(CompileError, match="CC"):
            Backend("compiled")
        f = vioc.MidpointVI(vioc.models.load("pendulum"), 0.01, backend="auto")
        assert len(f.rollout(f.initial_state({"theta": 1.0}), steps=5)) == 5

    @compiler
    def test_the_compiler_that_pip_brings_is_the_last_resort(self, monkeypatch, tmp_path):
        package = tmp_path / "ziglang"
        package.mkdir()
        (package / "__init__.py").touch()
        monkeypatch.delenv("CC", raising=False)
        path, real = os.environ["PATH"], next(filter(shutil.which, CANDIDATES), None)
        if real is None:
            pytest.skip("it is the only one here")
        (package / "__main__.py").write_text(
            f"import os, shutil, sys\nos.environ['PATH'] = {path!r}\n"
            f"os.execv(shutil.which({real!r}), [{real!r}, *sys.argv[2:]])"
        )
        monkeypatch.setenv("PATH", str(tmp_path))
        assert find_compiler() is None or importlib.util.find_spec("ziglang")
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.setenv("PYTHONPATH", str(tmp_path))
        monkeypatch.setenv("PATH", str(package))  # what was found is kept by PATH
        found = find_compiler()
        assert found.name.split() == [sys.executable, "ziglang", "cc"]
        assert (
            load_library(['__attribute__((visibility("default"))) int six(void) { return 6; }'], "six").six()
            == 6
        )

    @pytest.mark.peer
    def test_zig_gives_the_bits_of_the_virtual_machine(self, monkeypatch, tmp_path):
        pytest.importorskip("ziglang")
        monkeypatch.setenv("CC", f"{sys.executable} -m ziglang cc")
        monkeypatch.setenv("VIOC_CACHE", str(tmp_path))
        system = vioc.models.load("n_link_pendulum", 2)
        maps = [vioc.MidpointVI(system, 0.01, backend=backend) for backend in ("virtual", "compiled")]
        one, two = (f.rollout(f.initial_state({"link-0": 1.0}), steps=50).x for f in maps)
        np.testing.assert_array_equal(one, two)

    @compiler
    def test_code_that_does_not_compile(self):
        with pytest.raises(CompileError, match="exit status"):
            load_library(["int f( {"], "broken")


class TestBatches:
    @pytest.mark.parametrize("backend", ["virtual", pytest.param("compiled", marks=compiler)])
    def test_is_what_single_rollouts_are(self, backend, shared_cache):
        f = vioc.MidpointVI(vioc.models.load("cart_pole"), 0.01, backend=backend)
        random = np.random.default_rng(0)
        X0, U = random.normal(0, 0.3, (6, 4)), random.normal(0, 1, (6, 50, 1))
        batch = f.rollouts(X0, U, workers=3)
        alone = f.rollouts(X0, U, workers=1)
        np.testing.assert_array_equal(batch.x, alone.x)
        for i, run in enumerate(batch):
            np.testing.assert_array_equal(run.x, f.rollout(X0[i], U[i]).x)
        assert batch["theta"].shape == (6, 51)
        np.testing.assert_array_equal(batch["theta"][2], batch[2]["theta"])
        shared = f.rollouts(X0[0], U)
        np.testing.assert_array_equal(shared.x[3], f.rollout(X0[0], U[3]).x)
        assert f.rollouts(X0, steps=5).u.shape == (6, 5, 1)

    def test_says_which_rollout_failed(self):
        bob = vioc.tz(-1, mass=1)
        system = vioc.System(vioc.Gravity(0, 0, -9.8), vioc.rz("phi")[vioc.rx("theta")[bob]])
        f = vioc.MidpointVI(system, 0.01)
        X0 = np.array([[0.0, 0.5, 0.0, 0.0], [0.0, 1.0, 0.1, 0.2], [0.0, 0.0, 0.3, 0.0]])  # the last: a pole
        with pytest.raises(StepError, match="rollout 2: step"):
            f.rollouts(X0, steps=3)
        batch = f.rollouts(X0, steps=3, raise_on_failure=False)
        assert list(batch.errors) == [2] and np.isnan(batch.x[2]).all() and np.isfinite(batch.x[:2]).all()
        with pytest.raises(StepError):
            batch[2]

    def test_shapes(self):
        f = vioc.MidpointVI(vioc.models.load("pendulum"), 0.1)
        with pytest.raises(ValueError, match="initial states"):
            f.rollouts(np.zeros((2, 3)), steps=3)
        with pytest.raises(ValueError, match="3 initial states and 2"):
            f.rollouts(np.zeros((3, 2)), np.zeros((2, 5, f.nu)))
