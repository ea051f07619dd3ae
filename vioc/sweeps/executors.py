"""Parallel execution of tasks, which continues when worker processes end abruptly."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import (
    FIRST_COMPLETED,
    BrokenExecutor,
    Executor,
    Future,
    ProcessPoolExecutor,
    wait,
)
from multiprocessing import get_context, parent_process
from typing import Any

from vioc.compile.cores import one_thread_each

AHEAD = 2  # queued tasks per worker: enough to keep them busy, few to lose
LOST = (
    "WorkerLost: the process died while it ran this task (out of memory, or a crash; or a script that calls "
    "sweep without `if __name__ == '__main__':` around it, as every worker imports the script)"
)


def results(
    call: Callable, tasks: dict[int, tuple], executor: Executor | None, workers: int | None
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Run all tasks, and yield the index and result of each task when it is complete."""
    if executor is not None:
        width = AHEAD * max(8, os.cpu_count() or 1, _width(executor))
        yield from _through(executor, call, tasks, width, [])
    elif workers == 0:
        for i, task in tasks.items():
            yield i, call(*task)
    elif tasks:
        count = min(workers or _cores(), len(tasks))
        suspects: list[int] = []
        yield from _own_pool(call, tasks, count, suspects)
        for i in suspects:  # run alone: a pool that breaks now identifies the task
            failures: list[int] = []
            yield from _own_pool(call, {i: tasks[i]}, 1, failures)
            if failures:
                error = LOST
                yield i, {"value": None, "error": error, "traceback": "", "seconds": 0.0}


def _own_pool(call: Callable, tasks: dict[int, tuple], count: int, suspects: list[int]) -> Iterator:
    """Run tasks in a pool of processes, and make a new pool when one breaks.

    Tasks that were running at a break go to `suspects`.
    """
    pending = dict(tasks)
    while pending:
        lost: list[int] = []
        context = get_context("spawn")
        pool = ProcessPoolExecutor(count, mp_context=context, initializer=_end_with_parent)
        try:
            with one_thread_each():
                for i, result in _through(pool, call, pending, AHEAD * count, lost):
                    pending.pop(i)
                    yield i, result
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
        for i in lost:
            pending.pop(i)
        suspects += lost
        if not lost:
            return


def _end_with_parent() -> None:
    """End this worker process when its parent process has ended, even if killed."""
    parent = parent_process()

    def wait_for_it() -> None:
        if parent is not None:
            parent.join()
            os.kill(os.getpid(), getattr(signal, "SIGKILL", signal.SIGTERM))

    threading.Thread(target=wait_for_it, daemon=True).start()


def _through(
    executor: Executor, call: Callable, tasks: dict[int, tuple], width: int, lost: list[int]
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Run tasks with an executor, at most `width` at a time, and yield results.
    The first entry of each result is the index of its task.

    If the executor breaks, its running tasks go to `lost`.
    """
    queue = iter(list(tasks.items()))
    pending: dict[Future, int] = {}
    try:
        while True:
            while len(pending) < width and (item := next(queue, None)) is not None:
                try:
                    pending[executor.submit(call, *item[1])] = item[0]
                except BrokenExecutor:
                    lost += [*pending.values(), item[0]]
                    pending.clear()
                    return
            if not pending:
                return
            finished, _ = wait(pending, return_when=FIRST_COMPLETED)
            for future in sorted(finished, key=lambda f: pending[f]):
                i = pending[future]
                try:
                    result = future.result()
                except BrokenExecutor:
                    lost += pending.values()
                    pending.clear()
                    return
                except Exception as error:  # not from the function: the task could not be sent or returned
                    text = f"{type(error).__name__}: {error}"
                    result = {"value": None, "error": text, "traceback": "", "seconds": 0.0}
                del pending[future]
                yield i, result
    finally:
        for future in pending:
            future.cancel()


def _width(executor: Executor) -> int:
    return int(getattr(executor, "_max_workers", 0) or getattr(executor, "num_workers", 0) or 0)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
