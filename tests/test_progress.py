"""Progress of long work: what the line says, when it is there, and that work does not depend on it."""

import io
import itertools
import signal
import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest

import vioc

# inside: `Progress` is what long work uses, and has no public name; its clock is replaced
from vioc import progress
from vioc.compile import find_compiler, native
from vioc.dynamics.integrators.linear_time import core
from vioc.progress import Progress, duration, paused


@pytest.fixture
def stream(monkeypatch):
    """What is written to stderr, by a process that shows progress at once."""
    stream = io.StringIO()
    monkeypatch.setattr(progress, "sys", SimpleNamespace(stderr=stream))  # pytest changes sys.stderr itself
    monkeypatch.setenv("VIOC_PROGRESS", "1")
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(progress, "PATIENCE", 0.01)
    monkeypatch.setattr(progress, "INTERVAL", 0.005)
    return stream


def wait_for(stream, text):
    """Wait, as long as it takes, until the text was written."""
    for _ in range(500):
        if text in stream.getvalue():
            return
        time.sleep(0.01)
    raise AssertionError(f"{text!r} is not in {stream.getvalue()!r}")


def shown(stream) -> str:
    """What stands on the terminal's last line, after all that was written."""
    cells: list[str] = []
    for piece in stream.getvalue().split("\n")[-1].split("\r"):
        cells[: len(piece)] = piece
    return "".join(cells).strip()


def test_the_line_comes_changes_and_goes(stream):
    with Progress("rollout", 10) as p:
        wait_for(stream, "rollout  ")
        p.to(5, "half")
        wait_for(stream, "5/10")
        wait_for(stream, " left  half")
        assert "#" * 10 + "." * 10 in stream.getvalue()
    assert shown(stream) == "" and not progress._active


def test_progress_within_progress(stream):
    with Progress("studies", 3) as p:
        p.advance()
        with Progress("rollout", 100) as q:
            q.to(40)
            wait_for(stream, " | rollout  40/100")
        wait_for(stream, "studies  ")
        assert "rollout" not in shown(stream)


def test_what_is_printed_within_has_the_terminal_to_itself(stream):
    with Progress("work"):
        wait_for(stream, "work")
        with paused():
            assert shown(stream) == ""
            stream.write("text\n")
            length = len(stream.getvalue())
            time.sleep(0.05)
            assert len(stream.getvalue()) == length
        wait_for(stream, "text\n\rwork")


def test_an_error_passes_through_and_leaves_nothing(stream):
    with pytest.raises(KeyboardInterrupt), Progress("work"):
        wait_for(stream, "work")
        raise KeyboardInterrupt
    assert shown(stream) == "" and not progress._active


@pytest.mark.parametrize("chosen", ["0", ""])
def test_nothing_without_a_terminal_or_when_turned_off(stream, monkeypatch, chosen):
    monkeypatch.setenv("VIOC_PROGRESS", chosen)
    if chosen == "0":
        stream.isatty = lambda: True
    with Progress("work", 2) as p:
        p.advance()
        assert not progress._active
        time.sleep(0.05)
    assert stream.getvalue() == ""


def test_on_a_terminal_without_being_asked(stream, monkeypatch):
    monkeypatch.delenv("VIOC_PROGRESS")
    stream.isatty = lambda: True
    with Progress("work"):
        wait_for(stream, "work")


def test_threads_beside_the_main_one_are_quiet(stream):
    seen = []

    def work():
        with Progress("work"):
            seen.append(len(progress._active))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [0]


def test_a_closed_stream_does_not_stop_the_work(stream):
    with Progress("work"):
        wait_for(stream, "work")
        stream.close()


@pytest.mark.parametrize("encoding", ["ascii", "utf-8"])
def test_bars_in_the_letters_of_the_terminal(monkeypatch, encoding):
    stream = io.TextIOWrapper(io.BytesIO(), encoding)
    monkeypatch.setattr(progress, "sys", SimpleNamespace(stderr=stream))
    assert str(Progress("work", 4, done=1)).startswith(
        "work  #####....." if encoding == "ascii" else "work  █████░░░░░"
    )


def test_time_left_is_by_the_pace_of_what_was_done_now(monkeypatch):
    clock = itertools.count(100, 2)  # s, two at each look
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
    p = Progress("sweep", 30, done=20)
    assert p.left is None
    p.to(22)  # 2 s for two, and 2 s have passed since
    assert p.left == pytest.approx(8 * 1.0 - 2)
    for _ in range(6):
        left = p.left
    assert left is None  # longer than expected
    assert Progress("sweep").left is None


def test_long_lines_are_cut(stream, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    with Progress("work " * 20):
        wait_for(stream, "...")
    assert max(len(piece) for piece in stream.getvalue().split("\r")) <= 39


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.4, "0 s"), (59.6, "1 min 0 s"), (190, "3 min 10 s"), (7500, "2 h 5 min")],
)
def test_durations(seconds, text):
    assert duration(seconds) == text


# -- where it is used -----------------------------------------------------------------------------

COMPILED = pytest.mark.skipif(find_compiler() is None, reason="no C compiler")
LONG = {
    "virtual": lambda system: vioc.MidpointVI(system, 0.01),
    "compiled": lambda system: vioc.MidpointVI(system, 0.01, backend="compiled"),
    **{
        f"linear time, {solver}": lambda system, s=solver: vioc.LinearTimeVI(
            system, 0.01, backend="compiled", solver=s
        )
        for solver in ("chord", "riqn")
    },
}
MAPS = [pytest.param(name, marks=[COMPILED] * (name != "virtual")) for name in LONG]


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def f(request, monkeypatch, cache):
    """A map of `LONG` by its name."""
    monkeypatch.setenv("VIOC_CACHE", str(cache))
    return LONG[request.param](vioc.models.load("acrobot"))


def cut(monkeypatch):
    """Pieces short enough for tests."""
    for module in (native, core):
        monkeypatch.setattr(module, "PIECE", 700)


@pytest.mark.parametrize("f", MAPS, indirect=True)
def test_rollouts_tell_and_are_the_same_in_pieces(f, monkeypatch):
    """What a step leaves to the next passes from piece to piece: the bits do not depend on the cuts."""
    x0, steps = f.initial_state({f.state_names[0]: 1.0}), 3000
    whole = f.rollout(x0, steps=steps)
    told = []
    monkeypatch.setattr(
        Progress, "to", lambda self, done, note="": told.append((self.title, self.total, done))
    )
    cut(monkeypatch)
    pieces = f.rollout(x0, steps=steps)
    assert np.array_equal(whole.x, pieces.x) and np.array_equal(whole.u, pieces.u)
    assert {(title, total) for title, total, _ in told} == {("rollout", steps)}
    done = [d for _, _, d in told]
    assert len(done) >= 3 and done == sorted(set(done)) and done[-1] == steps


@pytest.mark.parametrize("f", [m for m in MAPS if "linear" in m.values[0]], indirect=True)
def test_gains_and_references_go_with_their_pieces(f, monkeypatch):
    rng = np.random.default_rng(0)
    X, U = 0.3 * rng.standard_normal((2001, f.nx)), rng.standard_normal((2000, f.nu))
    K = 0.3 * rng.standard_normal((2000, f.nu, f.nx))
    whole = f.track(X[0], X, U, K)
    cut(monkeypatch)
    pieces = f.track(X[0], X, U, K)
    assert np.array_equal(whole.x, pieces.x) and np.array_equal(whole.u, pieces.u)


@pytest.mark.parametrize("f", MAPS, indirect=True)
def test_a_step_that_fails_in_a_later_piece_is_named(f, monkeypatch):
    U = np.zeros((3000, 1))
    U[2500] = 1e250
    cut(monkeypatch)
    with pytest.raises(vioc.StepError) as stop, np.errstate(over="ignore"):
        f.rollout(f.initial_state({f.state_names[0]: 1.0}), U)
    assert stop.value.k == 2500


@pytest.mark.parametrize("f", MAPS, indirect=True)
def test_ctrl_c_ends_a_long_rollout(f, monkeypatch, ctrl_c):
    told = []

    def press(self, done, note=""):
        told.append(done)
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(Progress, "to", press)
    cut(monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        f.rollout(f.initial_state(), steps=3000)
    assert len(told) == 1


@COMPILED
def test_compiling_tells(monkeypatch, tmp_path):
    monkeypatch.setenv("VIOC_CACHE", str(tmp_path))
    begun = []
    enter = Progress.__enter__
    monkeypatch.setattr(Progress, "__enter__", lambda self: begun.append(self.title) or enter(self))
    f = vioc.MidpointVI(vioc.models.load("pendulum"), 0.01, backend="compiled")
    f.step(f.initial_state())
    assert "compiling MidpointVI of pendulum: step" in begun


@pytest.mark.parametrize("name", ["optimize", "dmoc"])
def test_optimizers_tell_their_iterations(name, monkeypatch):
    from vioc import control

    told = []
    monkeypatch.setattr(Progress, "to", lambda self, done, note="": told.append((self.title, done)))
    f = vioc.MidpointVI(vioc.models.load("pendulum"), 0.1)
    cost = control.quadratic(f, Q=1.0, R=1.0)
    if name == "dmoc":
        control.dmoc.solve(f, cost, steps=10, initial=[1.0, 0.0])
    else:
        getattr(control, name)(f, cost, x0=[1.0, 0.0], steps=10)
    done = [d for title, d in told if title == name]
    assert len(done) > 1 and done == sorted(done)


def test_many_rollouts_tell(monkeypatch):
    told = []

    def to(self, done, note=""):
        self.done = done
        told.append((self.title, done, self.total))

    monkeypatch.setattr(Progress, "to", to)
    f = vioc.MidpointVI(vioc.models.load("pendulum"), 0.1)
    f.rollouts(np.zeros((5, 2)), steps=3)
    assert told == [("rollouts", done, 5) for done in (2, 3, 4, 5)]
