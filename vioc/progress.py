"""Progress line on a terminal for long computations, with the remaining time.

    with Progress("rollout", total=steps) as progress:
        for k in range(steps):
            ...
            progress.to(k + 1)

A line on stderr appears after two seconds of work, is updated twice a second, and is removed at the end.
Nested progress is on the same line. Nothing is written if stderr is not a terminal, in threads other than the
main one, and in worker processes. The environment variable ``VIOC_PROGRESS`` switches the line off (``0``),
or on for any stderr (``1``: notebooks, logs).
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from multiprocessing import parent_process
from types import TracebackType

VARIABLE = "VIOC_PROGRESS"
PATIENCE = 2.0  # s after which the line appears
INTERVAL = 0.5  # s between changes of the line
WIDTH = 20  # characters of a bar

_active: list[Progress] = []  # outermost first
_line = 0  # number of characters on the terminal's line
_lock = threading.RLock()  # guards the two variables above and the terminal


class Progress:
    """Context manager in which a long computation reports and displays its progress.

    Parameters
    ----------
    title : str
    total : int, optional
        Number of pieces of work; without it only the number done is displayed, and no remaining time.
    done : int
        Number of pieces that were done before and took no time.

    Attributes
    ----------
    note : str
        Text after the time, about the present activity.
    """

    def __init__(self, title: str, total: int | None = None, done: int = 0):
        self.title, self.total, self.done, self.note = title, total, done, ""
        self._initial = done
        self._start = self._last = time.monotonic()
        self._visible = False
        self._over: threading.Event | None = None

    def __enter__(self) -> Progress:
        self._start = self._last = time.monotonic()
        self._visible = _may_display()
        if self._visible:
            with _lock:
                _active.append(self)
                if len(_active) == 1:  # the outermost starts the thread that draws all
                    self._over = threading.Event()
                    threading.Thread(target=_keep_drawing, args=[self._over], daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._visible:
            with _lock:
                _active.remove(self)
                _clear()
            if self._over is not None:
                self._over.set()

    def advance(self, count: int = 1) -> None:
        """Report that `count` more pieces of the work are done."""
        self.to(self.done + count, self.note)

    def to(self, done: int, note: str = "") -> None:
        """Set the number of completed pieces of the work, and a note for the progress line."""
        self.done, self.note, self._last = done, note, time.monotonic()

    @property
    def elapsed(self) -> float:
        """Time since the work began, s."""
        return time.monotonic() - self._start

    @property
    def left(self) -> float | None:
        """Estimated time until the work ends, s, at its mean pace so far; None if unknown."""
        new = self.done - self._initial
        if self.total is None or new <= 0:
            return None
        pace = (self._last - self._start) / new
        seconds = pace * (self.total - self.done) - (time.monotonic() - self._last)
        return seconds if seconds > 0 else None  # the current piece takes longer than the mean

    def __str__(self) -> str:
        return self.text()

    def text(self, bar: bool = True) -> str:
        """Return the text of the progress line, with or without a bar."""
        parts = [self.title]
        if self.total:
            share = min(max(self.done / self.total, 0.0), 1.0)
            parts.append(f"{_bar(share)} " * bar + f"{self.done}/{self.total}")
        elif self.done:
            parts.append(str(self.done))
        rest = "" if self.left is None else f", {duration(self.left)} left"
        parts.append(duration(self.elapsed) + rest)
        if self.note:
            parts.append(self.note)
        return "  ".join(parts)


def in_pieces(go: Callable[[int, int], int], count: int, piece: int) -> int:
    """Call the function `go` for pieces of the work until `count` steps are done.
    Each call does at most `piece` steps. Ctrl-C can interrupt the work between the calls.

    `go` takes the index of the first step and the number of steps of a call, and returns the number it did. A
    rollout in compiled code cannot be interrupted within a call.
    """
    if count <= piece:
        return go(0, count)
    done = 0
    with Progress("rollout", count) as progress:
        while done < count:
            size = min(piece, count - done)
            steps = go(done, size)
            done += steps
            progress.to(done)
            if steps < size:
                break
    return done


def duration(seconds: float) -> str:
    """Format a duration as text: ``"42 s"``, ``"3 min 10 s"``, ``"2 h 5 min"``."""
    minutes, s = divmod(round(seconds), 60)
    hours, m = divmod(minutes, 60)
    if hours:
        return f"{hours} h {m} min"
    return f"{m} min {s} s" if m else f"{s} s"


@contextlib.contextmanager
def paused() -> Iterator[None]:
    """Context manager that hides the progress line while other text is printed."""
    with _lock:
        _clear()
        yield


def _may_display() -> bool:
    """Return whether this process and thread may display progress."""
    setting = os.environ.get(VARIABLE, "")
    if setting == "0" or threading.current_thread() is not threading.main_thread() or parent_process():
        return False
    return setting == "1" or bool(sys.stderr is not None and sys.stderr.isatty())


def _keep_drawing(over: threading.Event) -> None:
    pause = PATIENCE
    while not over.wait(pause):
        with _lock:
            if not over.is_set():
                _draw()
        pause = INTERVAL


def _draw() -> None:
    global _line
    long = [p for p in _active if p.elapsed >= PATIENCE]
    if not long:
        return
    room = shutil.get_terminal_size().columns - 1
    text = " | ".join(p.text(bar=len(long) == 1) for p in long)
    text = text if len(text) <= room else text[: room - 3] + "..."
    _write(f"\r{text.ljust(_line)}")
    _line = len(text)


def _clear() -> None:
    global _line
    if _line:
        _write(f"\r{' ' * _line}\r")
        _line = 0


def _bar(share: float) -> str:
    try:
        "█░".encode(getattr(sys.stderr, "encoding", None) or "ascii")
    except UnicodeEncodeError:
        full, empty = "#."
    else:
        full, empty = "█░"
    filled = int(share * WIDTH)
    return full * filled + empty * (WIDTH - filled)


def _write(text: str) -> None:
    # errors of a closed stream must not stop the work
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.write(text)
        sys.stderr.flush()
