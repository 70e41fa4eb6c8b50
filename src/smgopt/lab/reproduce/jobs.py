"""Many runs in several processes.

Every run takes one thread, however many runs there are at a time, so that its numbers do not depend on that.
A process serves many of them, because loading torch takes longer than the shortest run.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
from contextlib import contextmanager
from multiprocessing import connection
from typing import TYPE_CHECKING, Any, NamedTuple

from smgopt.lab.errors import InputError, Interrupted, RunError, TrainingError, UserError
from smgopt.lab.files import write_atomically
from smgopt.lab.reproduce.setups import Setup, folder_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from multiprocessing.connection import Connection
    from multiprocessing.process import BaseProcess
    from pathlib import Path
    from types import FrameType

#: Beside the run's own files: why it could not go on, and what its networks answer.
_DIVERGED, _DIAGNOSIS = "diverged.txt", "diagnosis.json"


class Job(NamedTuple):
    """One run: a configuration and a seed."""

    setup: Setup
    seed: int


def diverged(folder: Path) -> str | None:
    """The sentence that a run ended with because its loss was not finite; None if it did not."""
    file = folder / _DIVERGED
    return file.read_text(encoding="utf-8") if file.is_file() else None


def diagnosis(folder: Path) -> dict[str, list[list[int]]]:
    """What a finished run's networks answer, by level.

    Returns:
        ``silent``: the outputs that are 0 for all test samples; ``unnamed``: the classes that none is taken
        for.

    Raises:
        RunError: the file is missing or damaged.
    """
    file = folder / _DIAGNOSIS
    try:
        found = json.loads(file.read_bytes())
        return {"silent": found["silent"], "unnamed": found["unnamed"]}
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise RunError(f"{file} cannot be read; remove it and reproduce again") from error


def done(folder: Path, job: Job) -> bool:
    """Whether there is nothing left to do for a run.

    Raises:
        RunError: its records are damaged.
    """
    run = folder / folder_name(job.setup, job.seed)
    return diverged(run) is not None or (run / _DIAGNOSIS).is_file()


def run_all(folder: Path, todo: Sequence[Job], jobs: int, told: Callable[[Job], None]) -> None:
    """Do the runs, the longest first.

    Args:
        folder: of the runs.
        todo: the runs.
        jobs: how many at a time.
        told: called after each.

    Raises:
        UserError: a run cannot be done; the others are stopped, and what they did is saved.
        Interrupted: a signal asked for it; what was done is saved.
    """
    waiting = sorted(todo, key=lambda job: job.setup.work * job.setup.batch)
    context = multiprocessing.get_context("spawn")
    busy: dict[Connection, tuple[BaseProcess, Job]] = {}
    worker: BaseProcess
    workers: list[BaseProcess] = []
    pipes: list[Connection] = []
    with _stopping(workers), _closing(pipes):
        for _ in range(min(jobs, len(waiting))):
            ours, theirs = context.Pipe()
            worker = context.Process(target=_serve, args=(theirs, folder), daemon=True)
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
                    name = folder_name(job.setup, job.seed)
                    problem = RunError(f"the process of {name} ended with code {worker.exitcode}")
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


def _serve(pipe: Connection, folder: Path) -> None:
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
            problem = type(error)(str(error)) if type(error) in _PLAIN else UserError(str(error))
        except Interrupted:
            return
        try:
            pipe.send(problem)
        except OSError:  # nobody waits for it any more
            return


_PLAIN = (InputError, RunError, TrainingError)


def perform(folder: Path, job: Job) -> None:
    """Do one run in this process, or what is left of it.

    Args:
        folder: of the runs.
        job: which one.

    Raises:
        UserError: it cannot be done. A run whose loss is not finite is a result, not an error.
    """
    from smgopt.lab import train

    path = folder / folder_name(job.setup, job.seed)
    try:
        train.run(job.setup.config(job.seed), path, resume=True)
    except TrainingError as error:
        if not isinstance(error.__cause__, FloatingPointError):
            raise
        write_atomically(path / _DIVERGED, str(error).encode())
        return
    found = json.dumps(_diagnose(path), separators=(",", ":")).encode()
    write_atomically(path / _DIAGNOSIS, found)


def _diagnose(path: Path) -> dict[str, Any]:
    import torch

    from smgopt.lab import build
    from smgopt.lab.runs import Run

    run = Run(path)
    x = build.data(run.config).x_test
    silent, unnamed = [], []
    with torch.no_grad():
        for network in run.hierarchy():
            answers = network(x)
            classes = answers.shape[1]
            named = set(answers.argmax(1).tolist())
            silent.append([k for k in range(classes) if not answers[:, k].any()])
            unnamed.append([k for k in range(classes) if k not in named])
    return {"silent": silent, "unnamed": unnamed}
