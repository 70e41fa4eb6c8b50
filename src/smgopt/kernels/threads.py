"""Shares numbered pieces of work among threads that sleep while they wait."""

from __future__ import annotations

import itertools
import os
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_pool: ThreadPoolExecutor | None = None


def _forget_pool() -> None:
    """A forked child has its parent's pool but none of its threads: work given to it would never end."""
    global _pool
    _pool = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_pool)


def share(work: Callable[[int, int], None], pieces: int, threads: int) -> None:
    """Call `work(worker, piece)` once for every piece 0 … pieces − 1, on at most `threads` threads.

    The calling thread is worker 0. Every worker takes the next piece that nobody has taken, so that a worker
    whose core is busy with another program does less instead of making all others wait. What a piece computes
    must not depend on who computes it. An exception from any piece is raised here, after all workers stopped.

    >>> done = []
    >>> share(lambda worker, piece: done.append(piece), pieces=3, threads=1)
    >>> done
    [0, 1, 2]
    """
    numbers = itertools.count()  # its `next` is one C call: no two threads get the same number

    def work_off(worker: int) -> None:
        while (piece := next(numbers)) < pieces:
            work(worker, piece)

    helpers: list[Future[None]] = []
    for worker in range(1, min(threads, pieces)):
        helpers.append(_submit(work_off, worker))
    try:
        work_off(0)
    finally:
        # A helper that has not begun has nothing left to do; waiting for it would only cost time.
        errors = [helper.exception() for helper in helpers if not helper.cancel()]
    for error in errors:
        if error is not None:
            raise error


def _submit(function: Callable[[int], None], worker: int) -> Future[None]:
    global _pool
    if _pool is None:
        # As many as anyone may ask for: idle threads cost nothing, and the executor starts them one by one.
        _pool = ThreadPoolExecutor(max_workers=max(64, os.cpu_count() or 1), thread_name_prefix="smgopt")
    return _pool.submit(function, worker)
