"""What one process does of a run: the loop, and what is written down on the way."""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F

from smgopt.lab import build, checkpoint, toml, trainers
from smgopt.lab.batches import Schedule
from smgopt.lab.environment import begin_session
from smgopt.lab.errors import Interrupted, RunError, TrainingError
from smgopt.lab.evaluate import interval, measure
from smgopt.lab.files import reported, write_atomically
from smgopt.lab.journal import START, Journal, Mark
from smgopt.lab.runs import Run, outcome
from smgopt.lab.stopping import StopRequests
from smgopt.lab.tensorboard import EventWriter

if TYPE_CHECKING:
    from pathlib import Path

    from smgopt.lab.config import Config
    from smgopt.lab.data import Dataset
    from smgopt.lab.progress import Progress

#: Mini-batches that statistics of batch normalisation are taken from when networks are looked at or saved.
_SETTLING = 10

_CORRECTION = ("alpha", "trials", "slope", "loss_before", "loss_after", "change")


def schedule(config: Config, data: Dataset) -> Schedule:
    """The mini-batches of a run.

    Raises:
        InputError: there are not enough samples for one.
    """
    return Schedule(len(data.x), config.data.batch, config.run.seed, drop_last=config.data.drop_last)


class Session:
    """One process's part of a run, whose folder is there and locked.

    Args:
        folder: the run's.
        config: the run's.
        data: to train and test on.
        progress: what shows it to a person.

    Attributes:
        cycle: how many cycles are done.
        seconds: how long they have taken, in all sessions.
    """

    def __init__(self, folder: Path, config: Config, data: Dataset, progress: Progress) -> None:
        self.folder, self.data, self.progress = folder, data, progress
        self.batches = schedule(config, data)
        self.limit = self.batches.limit(config.run.cycles, config.run.epochs)
        self.trainer = trainers.make(config, build.hierarchy(config, data.shape, data.classes))
        self.config = self._resolved(config)
        self.cycle, self.seconds = 0, 0.0
        self._description = build.description(data)
        self._train_loss: float | None = None  # of the last cycle
        self._accuracy: float | None = None  # of the finest level, if this cycle was evaluated
        self._saved: list[int] = []  # the cycles of the good checkpoints
        self._saved_at = time.perf_counter()
        self._files = ExitStack()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *error: object) -> None:
        self._files.close()

    def begin(self, at: checkpoint.Checkpoint | None) -> None:
        """Go to where the run was, and write down what it depends on.

        Args:
            at: the checkpoint to go on from; None to begin at the beginning.

        Raises:
            RunError: the checkpoint does not fit, or the folder cannot be written.
        """
        marks, spent = {"metrics.jsonl": START, "cycles.jsonl": START}, 0.0
        if at is not None:
            found = Run(self.folder)
            found.refuse_other_data(at, self._description)
            found.hierarchy(at)  # says in a sentence if the weights do not fit
            self.trainer.load_state_dict(at.state)
            self.cycle, self.seconds, spent = at.cycle, at.facts["seconds"], at.facts["overhead"]
            self._saved = [at.cycle]
            marks = {name: Mark(*mark) for name, mark in at.facts["records"].items()}
        self._warm_up()
        # What is not spent in cycles is overhead, whatever it is.
        self._began = time.perf_counter() - self.seconds - spent
        with reported(f"{self.folder} cannot be written"):
            (self.folder / "checkpoints").mkdir(exist_ok=True)
        begin_session(self.folder / "environment.json", self.config.run.seed, self.cycle, self.progress.say)
        self._journals = {
            name: self._files.enter_context(Journal(self.folder / name, mark)) for name, mark in marks.items()
        }
        self._events = None
        if self.config.run.tensorboard:
            first = 0 if at is None else self.cycle + 1
            self._events = self._files.enter_context(EventWriter(self.folder / "tensorboard", first))
        # Last, because it is what makes the folder a run.
        file, text = self.folder / "config.toml", toml.write(self.config.tree()).encode()
        if not file.exists() or file.read_bytes() != text:
            write_atomically(file, text)

    def _warm_up(self) -> None:
        """Load what is compiled, once a process and before the clock runs: it is no part of any cycle."""
        # Forward and backward, and forward alone, which may be another piece of code.
        net = self.trainer.hierarchy[-1].eval()
        loss = F.cross_entropy(net(self.data.x[:1]), self.data.y[:1])
        torch.autograd.grad(loss, list(net.parameters()))
        with torch.no_grad():
            net(self.data.x[:1])
        net.train()

    def train(self) -> None:
        """Go on until a limit is reached or a signal comes.

        Raises:
            Interrupted: a signal came; everything is saved.
            TrainingError: the loss is not finite.
            RunError: the disk is full, or the folder is not what it was.
        """
        self.progress.start(self.folder, self.config, self.trainer.hierarchy, self.limit, self.cycle)
        with StopRequests() as stop:
            try:
                self._loop(stop)
            except FloatingPointError as error:
                # No advice to go on: the next try would end the same way.
                raise TrainingError(f"cycle {self.cycle + 1} of {self.folder} failed: {error}") from error
            except RunError as error:
                raise RunError(f"{error}. {self._advice()}") from error

    def _loop(self, stop: StopRequests) -> None:
        if not self._saved:
            self._evaluate()
            self._save()
        every, run = self.config.run.evaluate, self.config.run
        assert isinstance(every, int)
        while (end := outcome(self.cycle, self.limit, self._accuracy, run.target_accuracy)) is None:
            if stop.number is not None:
                self._save()
                raise Interrupted(
                    f"stopped after cycle {self.cycle}, which is saved; go on with: "
                    f"smgopt train --resume {self.folder}",
                    stop.number,
                )
            self._cycle()
            if self.cycle % every == 0 or self.cycle == self.limit:
                self._evaluate()
            # After the evaluation, so that a checkpoint is never ahead of the records of its cycle.
            if time.perf_counter() - self._saved_at >= run.checkpoint:
                self._save()
        self._save()
        self.progress.done(end)

    def _cycle(self) -> None:
        start = time.perf_counter()
        chosen = self.batches[self.cycle]
        self._train_loss = self.trainer.step(self.data.x[chosen], self.data.y[chosen])
        self.seconds += time.perf_counter() - start
        self.cycle += 1
        self._accuracy = None
        record = self._record()
        self._journals["cycles.jsonl"].append(record)
        self.progress.cycle(record)

    def _evaluate(self) -> None:
        self._settle()
        found = [measure(network, self.data.x_test, self.data.y_test) for network in self.trainer.hierarchy]
        work = self.trainer.work
        record = {
            **self._record(),
            "epoch": self.cycle / self.batches.per_epoch,
            "samples": self.batches.seen(self.cycle),
            "overhead": round(self._overhead(), 6),
            "gradients_by_level": list(work.gradients_by_level),
            "forwards_by_level": list(work.forwards_by_level),
            "test_loss": [loss for loss, _ in found],
            "test_accuracy": [accuracy for _, accuracy in found],
        }
        self._accuracy = found[-1][1]
        self._journals["metrics.jsonl"].append(record)
        if self._events is not None:
            self._events.add(record)
        self.progress.evaluated(record)

    def _settle(self) -> None:
        batch = self.config.data.batch
        self.trainer.settle(torch.split(self.data.x[: _SETTLING * batch], batch))

    def _record(self) -> dict[str, Any]:
        work, corrections = self.trainer.work, self.trainer.corrections
        if not self.cycle:
            corrections = [None] * len(corrections)
        return {
            "cycle": self.cycle,
            "train_loss": self._train_loss,
            "seconds": round(self.seconds, 6),
            "gradients": work.gradients,
            "forwards": work.forwards,
            **{key: [None if c is None else getattr(c, key) for c in corrections] for key in _CORRECTION},
        }

    def _save(self) -> None:
        self._saved_at = time.perf_counter()
        if self._saved[-1:] == [self.cycle]:
            return
        facts = {
            "identity": self.config.identity(),
            "data": self._description,
            "records": {name: journal.mark() for name, journal in self._journals.items()},
            "seconds": self.seconds,
            "overhead": self._overhead(),
        }
        folder = self.folder / "checkpoints"
        self._settle()
        checkpoint.save(folder, checkpoint.Checkpoint(self.cycle, facts, self.trainer.state_dict()))
        self._saved = [*self._saved[-1:], self.cycle]
        with reported(f"{folder} cannot be tidied"):
            checkpoint.prune(folder, self._saved)

    def _overhead(self) -> float:
        return time.perf_counter() - self._began - self.seconds

    def _advice(self) -> str:
        if not self._saved:
            return f"Nothing is saved yet; begin again with: smgopt train --resume {self.folder}"
        return f"Cycle {self._saved[-1]} is saved; go on from there with: smgopt train --resume {self.folder}"

    def _resolved(self, config: Config) -> Config:
        """The configuration with everything decided that was left open."""
        run = config.run
        test = len(self.data.x_test) / config.data.batch
        every = interval(self.trainer.work.depths, test, self.trainer.estimate())
        decided = {
            "evaluate": every if run.evaluate == "auto" else run.evaluate,
            "threads": run.threads or torch.get_num_threads(),
        }
        return config.model_copy(update={"run": run.model_copy(update=decided)})
