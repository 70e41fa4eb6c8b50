"""The training of a run, from the first cycle or from where it was stopped."""

from __future__ import annotations

from contextlib import closing, contextmanager, suppress
from datetime import datetime
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from smgopt.lab import build, checkpoint
from smgopt.lab.errors import InputError, RunError, TrainingError
from smgopt.lab.files import reported
from smgopt.lab.lock import locked
from smgopt.lab.progress import Progress
from smgopt.lab.runs import Run, differences
from smgopt.lab.session import Session, schedule

if TYPE_CHECKING:
    from collections.abc import Iterator
    from os import PathLike

    from smgopt.lab.config import Config


def run(
    config: Config,
    out: str | PathLike[str] | None = None,
    *,
    resume: bool = False,
    progress: Progress | None = None,
) -> Run:
    """Train, and record it in a folder.

    The numbers depend on the configuration alone: not on how often the run was stopped and continued, nor on
    what else the machine does. Only the number of threads may touch their last bits.

    Args:
        config: what to do, see ``smgopt.lab.settings``.
        out: the run's folder; without it a new one in ``runs``.
        resume: if there is a run of this configuration in the folder, go on with it, or do nothing if it is
            finished. Its limits are then those of ``config``.
        progress: what shows it to a person; without it nothing is shown, and only what should be known is
            warned of.

    Returns:
        The run, finished.

    Raises:
        InputError: the folder holds something else, or the configuration does not fit the data.
        RunError: the folder is in use, damaged, or cannot be written.
        TrainingError: the loss is not finite, or there is not enough memory.
        Interrupted: a signal asked for it; what was done is saved.
        smgopt.lab.data.DataError: the data cannot be had.

    Example:
        >>> from smgopt.lab import settings
        >>> done = run(settings.make(depth=64, cycles=300), "runs/first")  # doctest: +SKIP
        >>> done.metrics.column("test_accuracy", level=-1)[-1]  # doctest: +SKIP
        0.5
    """
    progress = progress or Progress()
    with closing(progress), _enough_memory():
        data = None
        if out is None or not _is_run(Path(out)):
            # Everything that can be wrong shows before there is a folder.
            if out is not None:
                _refuse_what_is_no_run(Path(out))
            data = build.data(config)
            schedule(config, data)
            build.refuse_other_shapes(config, data)
        folder = _new_folder(config) if out is None else Path(out)
        with reported(f"{folder} cannot be made"):
            folder.mkdir(parents=True, exist_ok=True)
        # Held before the checkpoints are read: another process might be writing them.
        with locked(folder):
            at = None
            if _is_run(folder):
                found = Run(folder)
                config = _continued(config, found, resume)
                at = _last_good(found, progress)
                if at is not None and (why := found.ended(at, config)):
                    progress.done(f"{why}, some time ago")
                    return found
            data = data or build.data(config)
            with _threads(config.run.threads), Session(folder, config, data, progress) as session:
                session.begin(at)
                session.train()
    return Run(folder)


def _is_run(folder: Path) -> bool:
    return (folder / "config.toml").is_file()


def _refuse_what_is_no_run(folder: Path) -> None:
    """A folder may be new, empty, or what a run left that was killed before it began; nothing else."""
    ours = {".lock", "environment.json", "metrics.jsonl", "cycles.jsonl", "checkpoints", "tensorboard"}
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file; a run needs a folder")
    found = folder.iterdir() if folder.exists() else ()
    strange = sorted(p.name for p in found if p.name not in ours and not p.name.endswith(".part"))
    if strange:
        raise InputError(f"{folder} is no run and not empty (it has {strange[0]}): choose another folder")


def _new_folder(config: Config) -> Path:
    """A new folder in ``runs``; nobody else who begins in the same second gets the same one."""
    data = Path(config.data.name).stem
    name = f"{datetime.now():%Y%m%d-%H%M%S}-{data}-{config.optimizer.name}"
    runs = Path("runs")
    with reported(f"{runs} cannot be made"):
        runs.mkdir(exist_ok=True)
    for i in count(1):
        folder = runs / (name if i == 1 else f"{name}-{i}")
        with reported(f"{folder} cannot be made"), suppress(FileExistsError):
            folder.mkdir()
            return folder
    raise AssertionError("there are more numbers than folders")


def _continued(config: Config, found: Run, resume: bool) -> Config:
    """The configuration, with what the run itself decided when it began."""
    if not resume:
        raise InputError(
            f"{found.folder} holds a run already: choose another folder, "
            f"or go on with it by: smgopt train --resume {found.folder}"
        )
    decided: dict[str, Any] = {}
    if config.run.evaluate == "auto":
        decided["evaluate"] = found.config.run.evaluate
    if config.run.threads is None:
        decided["threads"] = found.config.run.threads
    config = config.model_copy(update={"run": config.run.model_copy(update=decided)})
    if changed := differences(found.config.identity(), config.identity()):
        raise InputError(f"{found.folder} holds a run of another configuration: {changed}")
    return config


def _last_good(found: Run, progress: Progress) -> checkpoint.Checkpoint | None:
    """The checkpoint to go on from; None if the run was killed before it had made one."""
    if not checkpoint.cycles(found.checkpoints):
        if done := len(found.cycles):
            raise RunError(f"{found.folder} has done {done} cycles, but there are no checkpoints in it")
        return None
    complaints: list[str] = []
    at = found.checkpoint(complaints, records=True)
    for complaint in complaints:
        progress.say(complaint)
    if complaints:
        progress.say(f"going on from the last good checkpoint, that of cycle {at.cycle}")
    return at


@contextmanager
def _threads(number: int | None) -> Iterator[None]:
    """Set the number of torch's threads for a while."""
    before = torch.get_num_threads()
    torch.set_num_threads(number or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def _enough_memory() -> Iterator[None]:
    """Say in a sentence that there is not."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        # Torch has no class of its own for this on the CPU.
        if isinstance(error, MemoryError) or "allocate memory" in str(error):
            raise TrainingError(f"there is not enough memory for this network and batch: {error}") from error
        raise
