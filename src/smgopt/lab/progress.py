"""What a person sees while a run goes on: a bar on a terminal, plain lines elsewhere, or nothing."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console
    from rich.progress import TaskID

    from smgopt.hierarchy import Hierarchy
    from smgopt.lab.config import Config


class Progress:
    """Shows nothing but warnings, and is what the others are made from. All methods are called by the run."""

    def start(self, folder: Path, config: Config, networks: Hierarchy, limit: int | None, cycle: int) -> None:
        """The training begins.

        Args:
            folder: the run's.
            config: the run's.
            networks: what is trained.
            limit: the number of cycles, if it is known.
            cycle: how many of them are done already.
        """

    def cycle(self, record: dict[str, Any]) -> None:
        """A cycle is done; the record is a line of ``cycles.jsonl``."""

    def evaluated(self, record: dict[str, Any]) -> None:
        """An evaluation is done; the record is a line of ``metrics.jsonl``."""

    def say(self, sentence: str) -> None:
        """Something should be known, as that a checkpoint is damaged and an older one is used."""
        warnings.warn(sentence, stacklevel=2)

    def done(self, why: str) -> None:
        """The run is finished."""

    def close(self) -> None:
        """Nothing more will come, whatever the reason."""


class Quiet(Progress):
    """Nothing but what should be known.

    Args:
        console: where to.
    """

    def __init__(self, console: Console) -> None:
        self.console = console

    def say(self, sentence: str) -> None:
        """Print it."""
        self.console.print(sentence, markup=False, highlight=False, soft_wrap=True)


class Lines(Quiet):
    """One line an evaluation."""

    def start(self, folder: Path, config: Config, networks: Hierarchy, limit: int | None, cycle: int) -> None:
        """Say what is going to happen."""
        until = [f"{limit} cycles"] if limit is not None else []
        if config.run.target_accuracy is not None:
            until.append(f"accuracy {config.run.target_accuracy}")
        how = f"{config.optimizer.name} on {config.data.name}, {networks.depths[-1]} blocks"
        if len(networks) > 1:
            how += f", {len(networks)} levels"
        begun = f", from cycle {cycle}" if cycle else ""
        self.say(f"{folder}: {how}, until {' or '.join(until)}{begun}")

    def evaluated(self, record: dict[str, Any]) -> None:
        """The line."""
        self.say(
            f"cycle {record['cycle']}  epoch {record['epoch']:.2f}"
            f"  accuracy {record['test_accuracy'][-1]:.2%}"
            f"  loss {_loss(record['test_loss'][-1])}{_effort(record)}  {record['seconds']:.1f} s"
        )

    def done(self, why: str) -> None:
        """Say it."""
        self.say(f"finished: {why}")


class Bar(Lines):
    """A bar with the last numbers beside it.

    Args:
        console: a terminal.
    """

    def __init__(self, console: Console) -> None:
        from rich import progress

        super().__init__(console)
        self._accuracy = ""
        self._bar = progress.Progress(
            progress.BarColumn(bar_width=24),
            progress.MofNCompleteColumn(),
            progress.TextColumn("{task.description}"),
            progress.TimeRemainingColumn(elapsed_when_finished=True),
            console=console,
            # The bar is drawn by a thread, which takes its time from the training.
            refresh_per_second=4,
        )
        self._task: TaskID | None = None

    def start(self, folder: Path, config: Config, networks: Hierarchy, limit: int | None, cycle: int) -> None:
        """Draw it."""
        super().start(folder, config, networks, limit, cycle)
        self._task = self._bar.add_task("", total=limit, completed=cycle)
        self._bar.start()

    def cycle(self, record: dict[str, Any]) -> None:
        """Move it on."""
        if self._task is not None:
            text = f"loss {_loss(record['train_loss'])}{self._accuracy}{_effort(record)}"
            self._bar.update(self._task, completed=record["cycle"], description=text)

    def evaluated(self, record: dict[str, Any]) -> None:
        """Show the accuracy from now on."""
        self._accuracy = f"  accuracy {record['test_accuracy'][-1]:.2%}"
        self.cycle(record)

    def close(self) -> None:
        """Leave it as it is."""
        self._bar.stop()


def for_console(console: Console, quiet: bool) -> Progress:
    """What suits a console; quiet means that only what should be known is printed, to the errors."""
    if quiet:
        return Quiet(type(console)(stderr=True))
    return Bar(console) if console.is_terminal else Lines(console)


def _loss(loss: float | None) -> str:
    return "–" if loss is None else f"{loss:.4f}"


def _effort(record: dict[str, Any]) -> str:
    alpha = record["alpha"][-1]
    # Gradients, and forward passes without one.
    forwards = f"+{_short(record['forwards'])}" if record["forwards"] else ""
    return f"  work {_short(record['gradients'])}{forwards}" + ("" if alpha is None else f"  α {alpha:g}")


def _short(number: float) -> str:
    """A number with a letter for its size, as in 1.5M.

    Example:
        >>> _short(1_530_000)
        '1.53M'
    """
    for letter in ("", "k", "M", "G"):
        if number < 1000:
            return f"{number:.3g}{letter}"
        number /= 1000
    return f"{number:.3g}T"
