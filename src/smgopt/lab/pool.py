"""Many runs in several processes.

Every run takes one thread, however many runs there are at a time, so that its numbers do not depend on that.
A process serves many of them, because loading torch takes longer than the shortest run.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from contextlib import contextmanager
from multiprocessing import connection
from typing import TYPE_CHECKING, Protocol, TypeVar

from smgopt.lab.errors import InputError, Interrupted, RunError, TrainingError, UserError
from smgopt.lab.files import write_atomically

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from multiprocessing.connection import Connection
    from multiprocessing.process import BaseProcess
    from pathlib import Path
    from types import FrameType

    from smgopt.lab.config import Config


class Job(Protocol):
    """One run."""

    @property
    def name(self) -> str:
        """Of its folder."""

    @property
    def cost(self) -> float:
        """How long it takes, compared with others."""


J = TypeVar("J", bound=Job)

#: Beside the run's own files: why it could not go on.
_DIVERGED = "diverged.txt"


def diverged(run: Path) -> str | None:
    """The sentence that a run ended with because its loss was not finite; None if it did not."""
    file = run / _DIVERGED
    return file.read_text(encoding="utf-8") if file.is_file() else None


def attempt(config: Config, run: Path) -> bool:
    """Do one run in this process, or what is left of it.

    Returns:
        Whether it came to its end. A run whose loss is not finite is a result, not an error.

    Raises:
        UserError: it cannot be done.
    """
    from smgopt.lab import train

    try:
        train.run(config, run, resume=True)
    except TrainingError as error:
        if not isinstance(error.__cause__, FloatingPointError):
            raise
        write_atomically(run / _DIVERGED, str(error).encode())
        return False
    return True


def cores() -> int:
    """How many runs can go on at a time."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on macOS
        return os.cpu_count() or 1


def run_all(
    folder: Path, todo: Sequence[J], jobs: int, perform: Callable[[Path, J], None], told: Callable[[J], None]
) -> None:
    """Do the runs, the longest first.

    Args:
        folder: of the runs.
        todo: the runs.
        jobs: how many at a time.
        perform: does one, in a process of its own; a function that can be found by its name.
        told: called after each.

    Raises:
        UserError: a run cannot be done; the others are stopped, and what they did is saved.
        Interrupted: a signal asked for it; what was done is saved.
    """
    waiting = sorted(todo, key=lambda job: job.cost)
    context = multiprocessing.get_context("spawn")
    busy: dict[Connection, tuple[BaseProcess, J]] = {}
    worker: BaseProcess
    workers: list[BaseProcess] = []
    pipes: list[Connection] = []
    with _stopping(workers), _closing(pipes):
        for _ in range(min(jobs, len(waiting))):
            ours, theirs = context.Pipe()
            worker = context.Process(target=_serve, args=(theirs, folder, perform), daemon=True)
            worker.start()
            theirs.close()
            workers.append(worker)
            pipes.append(ours)
            job = waiting.pop()
            ours.send(job)
            busy[ours] = worker, job
        while busy:
            for ready in connection.wait(list(busy)):
                assert isinstance(ready, connection.Connection)
                worker, job = busy.pop(ready)
                try:
                    problem = ready.recv()
                except (EOFError, OSError):  # the one where it ends in order, the other where it is killed
                    worker.join()
                    problem = RunError(f"the process of {job.name} ended with code {worker.exitcode}")
                if problem is not None:
                    raise problem
                told(job)
                if waiting:
                    job = waiting.pop()
                    ready.send(job)
                    busy[ready] = worker, job
                else:
                    ready.close()


@contextmanager
def _closing(pipes: list[Connection]) -> Iterator[None]:
    """Close the pipes before the workers are waited for.

    A signal that comes when a run is just ending does not stop the worker; the end of its pipe does.
    """
    try:
        yield
    finally:
        for pipe in pipes:
            pipe.close()


@contextmanager
def _stopping(workers: list[BaseProcess]) -> Iterator[None]:
    """Stop the workers, which save what they have, when a signal or an error comes."""

    def stop(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
        raise Interrupted("stopped; what was done is saved, and the same command goes on with it", number)

    try:
        before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # not in the main thread, which alone gets signals
        before = {}
    try:
        yield
    except BaseException:
        for worker in workers:
            worker.terminate()
        raise
    finally:
        try:
            for worker in workers:
                worker.join()
        except BaseException:  # a second signal: at once
            for worker in workers:
                worker.kill()
            raise
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def _serve(pipe: Connection, folder: Path, perform: Callable[[Path, J], None]) -> None:
    """Do one run after another, until there are no more."""
    # Ctrl-C reaches all processes of a terminal; it is the first one's to stop the others, by SIGTERM.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with open(os.devnull) as devnull:  # noqa: PTH123 (nothing here shall wait for somebody to type)
        os.dup2(devnull.fileno(), 0)
    while True:
        try:
            job = pipe.recv()
        except (EOFError, OSError):
            return
        problem: UserError | None = None
        try:
            perform(folder, job)
        except UserError as error:
            # By its sentence: whatever else hangs on an exception may not travel.
            problem = next(kind for kind in _PLAIN if isinstance(error, kind))(str(error))
        except Interrupted:
            return
        try:
            pipe.send(problem)
        except OSError:  # nobody waits for it any more
            return


_PLAIN = (InputError, RunError, TrainingError, UserError)
