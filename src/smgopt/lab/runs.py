"""A run is a folder.

====================  =======================================================================================
``config.toml``       the configuration, every setting written out; ``smgopt train`` takes it as it is
``environment.json``  one entry a session: when, on what machine, with which versions and how many threads
``metrics.jsonl``     one line an evaluation
``cycles.jsonl``      one line a cycle
``checkpoints/``      the last two, see ``smgopt.lab.checkpoint``
``figures/``          pictures, once there are some
``tensorboard/``      event files, if they were asked for
====================  =======================================================================================

A line of ``cycles.jsonl`` has

- ``cycle``, counted from 1; ``train_loss``, of the finest network on the mini-batch before the cycle;
- ``seconds`` of training so far, without evaluations, records and checkpoints; ``gradients`` and ``forwards``
  so far, weighted by depth: the paper's work;
- ``alpha``, ``trials``, ``slope``, ``loss_before``, ``loss_after`` and ``change`` of the correction, as in
  ``smgopt.Correction``, each a list with one number a level, coarsest first. There is null where there was no
  correction: on the coarsest level, and with a baseline everywhere.

A line of ``metrics.jsonl`` has all of that for the last cycle, and

- ``epoch`` (a fraction) and ``samples`` seen so far; ``overhead``, the seconds that evaluations, records and
  checkpoints have taken so far;
- ``gradients_by_level``, ``forwards_by_level``: counts, not weighted;
- ``test_loss`` and ``test_accuracy``, one number a level. With a baseline the coarse levels are the
  restricted finest one.

The first line is that of cycle 0, which has no correction and no ``train_loss``. A number that is not finite
is null.
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from smgopt.lab import build, checkpoint, environment, journal, settings
from smgopt.lab.batches import Schedule
from smgopt.lab.errors import InputError, RunError

if TYPE_CHECKING:
    from os import PathLike

    from torch import nn

    from smgopt.hierarchy import Hierarchy
    from smgopt.lab.checkpoint import Checkpoint
    from smgopt.lab.config import Config


class Run:
    """A run's folder, for reading. It may be one that is going on in another process.

    Args:
        folder: where it is.

    Raises:
        InputError: there is no run.

    Example:
        >>> Run("runs/nowhere")
        Traceback (most recent call last):
        smgopt.lab.errors.InputError: runs/nowhere is no run: there is no runs/nowhere/config.toml
    """

    def __init__(self, folder: str | PathLike[str]) -> None:
        self.folder = Path(folder)
        if not self.config_file.is_file():
            raise InputError(f"{self.folder} is no run: there is no {self.config_file}")

    def __repr__(self) -> str:
        return f"Run({str(self.folder)!r})"

    @property
    def config_file(self) -> Path:
        """The configuration as a file."""
        return self.folder / "config.toml"

    @property
    def checkpoints(self) -> Path:
        """The folder of the checkpoints."""
        return self.folder / "checkpoints"

    @property
    def figures(self) -> Path:
        """The folder for pictures; whoever draws makes it."""
        return self.folder / "figures"

    @cached_property
    def config(self) -> Config:
        """The configuration.

        Raises:
            InputError: the file is damaged, or was changed to what is not allowed.
        """
        return settings.load(self.config_file)

    @property
    def environment(self) -> dict[str, Any]:
        """Where it ran: ``{"sessions": [...]}``, one entry for the start and one for each continuation.

        Raises:
            RunError: the file is damaged.
        """
        return environment.read(self.folder / "environment.json")

    @property
    def metrics(self) -> journal.Records:
        """The evaluations so far, the first at cycle 0.

        Raises:
            RunError: a line is damaged.
        """
        return journal.read(self.folder / "metrics.jsonl")

    @property
    def cycles(self) -> journal.Records:
        """The cycles so far.

        Raises:
            RunError: a line is damaged.
        """
        return journal.read(self.folder / "cycles.jsonl")

    def checkpoint(self, complaints: list[str] | None = None, *, records: bool = False) -> Checkpoint:
        """The last good checkpoint: one that is whole, and that belongs to this configuration.

        Args:
            complaints: takes a sentence for each that was passed over.
            records: the metrics and cycles before it must be whole, too.

        Raises:
            RunError: there is none.
        """
        wrong: list[str] = []
        listed = checkpoint.cycles(self.checkpoints)
        for cycle in listed:
            try:
                found = checkpoint.load(self.checkpoints, cycle)
                self._refuse_other_configuration(found)
                for name, mark in found.facts["records"].items() if records else ():
                    journal.check(self.folder / name, journal.Mark(*mark))
            except RunError as error:
                # A run that goes on deletes its older ones; that is nothing to complain of.
                if cycle in checkpoint.cycles(self.checkpoints):
                    wrong.append(str(error))
                continue
            if complaints is not None:
                complaints += wrong
            return found
        if checkpoint.cycles(self.checkpoints) != listed:
            # The run goes on, and has made newer ones while these were read.
            return self.checkpoint(complaints, records=records)
        raise RunError("\n".join([*wrong, f"{self.folder} has no good checkpoint"]))

    def hierarchy(self, at: Checkpoint | None = None) -> Hierarchy:
        """The networks as they were trained, coarsest first.

        Args:
            at: the checkpoint to take them from; else the last good one.

        Raises:
            RunError: there is none, or its weights are of another shape.
        """
        at = at or self.checkpoint()
        try:
            data = at.facts["data"]
            networks = build.hierarchy(self.config, data["shape"], data["classes"])
            for network, weights in zip(networks, at.state["networks"], strict=True):
                network.load_state_dict(weights)
        except (LookupError, ValueError, TypeError, RuntimeError) as error:
            raise RunError(
                f"the checkpoint of cycle {at.cycle} in {self.folder} does not fit: {error}"
            ) from error
        return networks

    def network(self, level: int = -1, at: Checkpoint | None = None) -> nn.Module:
        """The network of one level as it was trained; 0 is the coarsest, -1 the finest.

        Args:
            level: which one.
            at: as for ``hierarchy``.

        Raises:
            InputError: there is no such level.
            RunError: as ``hierarchy``.
        """
        networks = self.hierarchy(at)
        if not -len(networks) <= level < len(networks):
            raise InputError(f"{self.folder} has levels 0 … {len(networks) - 1}, and no level {level}")
        return networks[level]

    @property
    def finished(self) -> str | None:
        """What ended the run, in words; None if nothing has yet."""
        if not checkpoint.cycles(self.checkpoints):
            return None
        return self.ended(self.checkpoint(), self.config)

    def ended(self, at: Checkpoint, config: Config) -> str | None:
        """Why a run with these limits ends at a checkpoint, if it does."""
        samples, run, data = at.facts["data"]["train"], config.run, config.data
        limit = Schedule(samples, data.batch, run.seed, drop_last=data.drop_last).limit(
            run.cycles, run.epochs
        )
        here = journal.Records(record for record in self.metrics if record["cycle"] == at.cycle)
        accuracy = here.column("test_accuracy", level=-1)
        return outcome(at.cycle, limit, accuracy[-1] if len(accuracy) else None, run.target_accuracy)

    def refuse_other_data(self, at: Checkpoint, now: dict[str, Any]) -> None:
        """Whether the data are those that the run was trained on.

        Args:
            at: a checkpoint of the run.
            now: ``build.description`` of the data.

        Raises:
            RunError: they are not.
        """
        if changed := differences({"data": at.facts["data"]}, {"data": now}):
            raise RunError(f"the data have changed since {self.folder} was trained: {changed}")

    def _refuse_other_configuration(self, at: Checkpoint) -> None:
        if changed := differences(at.facts["identity"], self.config.identity()):
            raise RunError(
                f"{self.config_file} is not the configuration that the checkpoint of cycle {at.cycle} "
                f"was made with: {changed}"
            )


def outcome(cycle: int, limit: int | None, accuracy: float | None, target: float | None) -> str | None:
    """What ends a run now, in words; None if it goes on.

    Example:
        >>> outcome(cycle=7, limit=300, accuracy=0.91, target=0.9)
        'accuracy 0.91 after 7 cycles'
    """
    if target is not None and accuracy is not None and accuracy >= target:
        return f"accuracy {accuracy:.4g} after {cycle} cycles"
    if limit is not None and cycle >= limit:
        return f"{cycle} cycles done"
    return None


def differences(was: dict[str, Any], now: dict[str, Any]) -> str:
    """What differs between two trees of settings, in words; empty if nothing does.

    Example:
        >>> differences({"run": {"seed": 1}}, {"run": {"seed": 2}})
        'run.seed was 1, is 2'
    """
    keys = [(section, key) for section in was | now for key in was.get(section, {}) | now.get(section, {})]
    pairs = [
        (f"{s}.{k}", was.get(s, {}).get(k, "not set"), now.get(s, {}).get(k, "not set")) for s, k in keys
    ]
    return ", ".join(f"{name} was {old}, is {new}" for name, old, new in pairs if old != new)
