"""What the runs of a contest have shown."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from smgopt.lab import plots, style
from smgopt.lab.groups import Group
from smgopt.lab.pool import diverged
from smgopt.lab.runs import Run

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from smgopt.lab.compare.contest import Contest, Contestant, Entry

    Numbers = NDArray[np.float64]

#: What accuracies are compared for an equal amount of: the key of the records, and what it is called.
EQUAL = {"samples": "samples", "seconds": "time", "work": "work"}


def score(folder: Path, entry: Entry) -> float:
    """The accuracy at the end of a run; 0 if it diverged."""
    run = folder / entry.name
    return 0.0 if diverged(run) else float(Run(run).metrics[-1]["test_accuracy"][-1])


@dataclass(frozen=True)
class Result:
    """One contestant with its best step.

    Attributes:
        contestant: who.
        step: the one chosen.
        scores: the accuracy of each step that was tried, on the part held out; 0 if the run diverged.
        runs: with that step, one a seed, those that did not diverge.
        lost: the seeds of those that did.
    """

    contestant: Contestant
    step: float
    scores: Mapping[float, float]
    runs: tuple[Run, ...]
    lost: tuple[int, ...]

    @property
    def at_the_edge(self) -> bool:
        """Whether a step outside of those that were tried might be better."""
        return len(self.scores) > 1 and self.step in (min(self.scores), max(self.scores))

    @cached_property
    def curves(self) -> list[dict[str, Numbers]]:
        """Of each run: accuracy over samples, seconds, and work with its forward passes, in gradients."""
        found = []
        for run in self.runs:
            records, blocks = run.metrics, run.config.network.blocks
            work = (records.column("gradients") + records.column("forwards") / 3) / blocks
            found.append(
                {
                    "accuracy": records.column("test_accuracy", -1),
                    "samples": records.column("samples"),
                    "seconds": records.column("seconds"),
                    "work": work,
                }
            )
        return found

    def at(self, key: str, amount: float) -> list[float]:
        """The accuracy of each run after an amount of something; between evaluations on a straight line."""
        return [float(np.interp(amount, curve[key], curve["accuracy"])) for curve in self.curves]

    @cached_property
    def by_level(self) -> dict[int, list[float]]:
        """The accuracy of every level at the end of each run, by its number of blocks, finest first."""
        if not self.runs:
            return {}
        ends = [run.metrics[-1]["test_accuracy"] for run in self.runs]
        blocks = self.runs[0].config.network.blocks
        levels = len(ends[0])
        return {blocks >> k: [end[levels - 1 - k] for end in ends] for k in range(levels)}

    def spent(self, key: str) -> float:
        """How much of something the runs took, in the mean; NaN if none came to its end."""
        return float(np.mean([curve[key][-1] for curve in self.curves])) if self.curves else float("nan")


@dataclass(frozen=True)
class Outcome:
    """A contest and its results, in the order of its contestants."""

    contest: Contest
    results: tuple[Result, ...]

    def common(self, key: str) -> float:
        """The amount of something that all contestants have spent; NaN if all have diverged."""
        return min((result.spent(key) for result in self.results if result.runs), default=float("nan"))

    def rows(self) -> list[dict[str, Any]]:
        """The table: accuracies in per cent, for an equal amount of each of ``EQUAL``."""
        rows = []
        for result in self.results:
            row: dict[str, Any] = {
                "optimizer": result.contestant.name,
                "step": result.step,
                "at_the_edge": result.at_the_edge,
                **{key: result.spent(key) if result.runs else 0.0 for key in ("samples", "work", "seconds")},
                "diverged": list(result.lost),
                "tried": {f"{step:g}": value for step, value in result.scores.items()},
                "by_level": {
                    blocks: [100 * value for value in accuracies]
                    for blocks, accuracies in result.by_level.items()
                },
            }
            for key in EQUAL:
                percent = [100 * value for value in result.at(key, self.common(key))]
                row[f"equal_{key}"] = percent
            rows.append(row)
        return rows

    def figure(self) -> Figure:
        """Accuracy over samples, work and seconds, side by side."""
        groups: Sequence[Group] = [Group(r.contestant.name, r.runs) for r in self.results if r.runs]
        figure = style.figure(height=6, width=2 * style.COLUMN)
        panels = figure.subplots(1, 3, sharey=True)
        for axes, x in zip(panels, ("samples", "work", "seconds"), strict=True):
            plots.curves(axes, groups, x, "test_accuracy")
            axes.label_outer()
        plots.legend(figure)
        return figure


def shown(percent: Sequence[float]) -> str:
    """Mean and sample standard deviation.

    Example:
        >>> shown([90.0, 92.0]), shown([90.0]), shown([])
        ('91.0 ± 1.4', '90.0', '–')
    """
    if not percent:
        return "–"
    spread = f" ± {np.std(percent, ddof=1):.1f}" if len(percent) > 1 else ""
    return f"{np.mean(percent):.1f}{spread}"
