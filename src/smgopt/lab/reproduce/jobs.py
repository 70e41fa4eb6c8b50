"""The runs of the reproduction: one configuration and a seed each, and what their networks answer."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from smgopt.lab.errors import RunError
from smgopt.lab.files import write_atomically
from smgopt.lab.pool import attempt, diverged
from smgopt.lab.reproduce.setups import Setup, folder_name

if TYPE_CHECKING:
    from pathlib import Path

#: Beside the run's own files: what its networks answer.
_DIAGNOSIS = "diagnosis.json"


class Job(NamedTuple):
    """One run: a configuration and a seed."""

    setup: Setup
    seed: int

    @property
    def name(self) -> str:
        """Of its folder."""
        return folder_name(self.setup, self.seed)

    @property
    def cost(self) -> float:
        """How long it takes, compared with others."""
        return self.setup.work * self.setup.batch


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
    """Whether there is nothing left to do for a run."""
    run = folder / job.name
    return diverged(run) is not None or (run / _DIAGNOSIS).is_file()


def perform(folder: Path, job: Job) -> None:
    """Do one run in this process, or what is left of it.

    Args:
        folder: of the runs.
        job: which one.

    Raises:
        UserError: it cannot be done. A run whose loss is not finite is a result, not an error.
    """
    path = folder / job.name
    if attempt(job.setup.config(job.seed), path):
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
