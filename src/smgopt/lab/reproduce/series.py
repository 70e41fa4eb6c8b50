"""The records of one configuration over its seeds: the one place that all tables and figures read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from smgopt.lab import pool
from smgopt.lab.reproduce import jobs
from smgopt.lab.reproduce.setups import folder_name
from smgopt.lab.runs import Run

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from smgopt.lab.reproduce.setups import Setup

    Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Series:
    """One configuration over several seeds. A run that diverged has NaN from there on.

    Attributes:
        setup: the configuration.
        seeds: of its runs.
        folders: of its runs, by name.
        diverged: by seed, after how many cycles a run could not go on.
        cycles: (K) when the finest network was evaluated.
        accuracy: (seeds × K) of the finest network on the test data.
        levels: (seeds × levels) accuracy of every level at the end, coarsest first.
        work: (seeds × K) gradients so far, weighted by depth; ``forwards``: the same without a gradient.
        seconds: (seeds × K) of training so far, without evaluations.
        train_loss: (seeds × cycles) of the finest network before each cycle.
        change: (seeds × cycles × levels) what the correction added to the level's objective.
        rise: the same for the level's loss alone, without the coupling term.
        alpha: (seeds × cycles × levels) the steps taken, 0 where a correction was rejected.
        silent: by seed and level, the outputs that are 0 for every test sample.
        unnamed: by seed and level, the classes that no test sample is taken for.
    """

    setup: Setup
    seeds: tuple[int, ...]
    folders: tuple[str, ...]
    diverged: dict[int, int]
    cycles: NDArray[np.int64]
    accuracy: Array
    levels: Array
    work: Array
    forwards: Array
    seconds: Array
    train_loss: Array
    change: Array
    rise: Array
    alpha: Array
    silent: dict[int, list[list[int]]]
    unnamed: dict[int, list[list[int]]]

    def at(self, cycle: int, what: Array) -> Array:
        """A column of ``accuracy``, ``work``, … after so many cycles, one number a seed."""
        found = np.flatnonzero(self.cycles == cycle)
        return what[:, found[0]] if len(found) else np.full(len(self.seeds), np.nan)

    @property
    def drawn(self) -> tuple[str, ...]:
        """The folders of the runs that a curve shows: of those that came to their end, if there are any.

        A band over runs of several lengths would end with the shortest. If all have diverged it does.
        """
        by_seed = dict(zip(self.seeds, self.folders, strict=True))
        whole = tuple(folder for seed, folder in by_seed.items() if seed not in self.diverged)
        return whole or tuple(folder for seed, folder in by_seed.items() if self.diverged[seed])

    @property
    def accuracy_drawn(self) -> Array:
        """The rows of ``accuracy`` that belong to them."""
        return self.accuracy[[folder in self.drawn for folder in self.folders]]

    def as_dict(self) -> dict[str, Any]:
        """All of it as plain values, for ``results.json``; null is NaN."""
        from dataclasses import asdict

        return {
            "setup": asdict(self.setup),
            "seeds": list(self.seeds),
            "folders": list(self.folders),
            "diverged": {str(seed): cycle for seed, cycle in self.diverged.items()},
            "cycles": self.cycles.tolist(),
            "accuracy": _plain(self.accuracy, 6),
            "accuracy_by_level": _plain(self.levels, 6),
            "work": _plain(self.work, 0),
            "forwards": _plain(self.forwards, 0),
            "seconds": _plain(self.seconds, 3),
            "train_loss": _plain(self.train_loss, 5),
            "change": _plain(mean(self.change), 6),
            "silent_outputs": {str(seed): found for seed, found in self.silent.items()},
            "unnamed_classes": {str(seed): found for seed, found in self.unnamed.items()},
        }


def mean(values: Array) -> Array:
    """Over the seeds that have a number; NaN where none has."""
    count = np.sum(~np.isnan(values), axis=0)
    total = np.nansum(values, axis=0)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def spread(values: Array) -> Array:
    """The standard deviation of a sample (divided by n - 1); NaN where there are fewer than two numbers.

    Example:
        >>> spread(np.array([[1.0, 5.0], [3.0, np.nan]]))
        array([1.41421356,        nan])
    """
    count = np.sum(~np.isnan(values), axis=0)
    squares = np.nansum((values - mean(values)) ** 2, axis=0)
    return np.where(count > 1, np.sqrt(squares / np.maximum(count - 1, 1)), np.nan)


def collect(folder: Path, setup: Setup, seeds: Sequence[int]) -> Series:
    """Read the runs of one configuration.

    Args:
        folder: of the runs.
        setup: the configuration.
        seeds: all of which have been run.

    Raises:
        InputError, RunError: a run is missing or damaged.
    """
    folders = [folder / folder_name(setup, seed) for seed in seeds]
    runs = [Run(path) for path in folders]
    metrics, cycles = [run.metrics for run in runs], [run.cycles for run in runs]
    at = sorted({record["cycle"] for records in metrics for record in records})
    place = {cycle: i for i, cycle in enumerate(at)}

    def evaluated(key: str, level: int | None = None) -> Array:
        table = np.full((len(runs), len(at)), np.nan)
        for row, records in zip(table, metrics, strict=True):
            row[[place[record["cycle"]] for record in records]] = records.column(key, level)
        return table

    def every(key: str, level: int | None = None) -> Array:
        table = np.full((len(runs), setup.cycles), np.nan)
        for row, records in zip(table, cycles, strict=True):
            row[: len(records)] = records.column(key, level)
        return table

    def by_level(key: str) -> Array:
        return np.stack([every(key, level) for level in range(setup.levels)], axis=-1)

    diverged = {
        seed: len(records)
        for seed, path, records in zip(seeds, folders, cycles, strict=True)
        if pool.diverged(path)
    }
    levels = np.array(
        [
            [np.nan] * setup.levels if seed in diverged else records[-1]["test_accuracy"]
            for seed, records in zip(seeds, metrics, strict=True)
        ]
    )
    diagnoses = {
        seed: jobs.diagnosis(path) for seed, path in zip(seeds, folders, strict=True) if seed not in diverged
    }
    return Series(
        setup,
        tuple(seeds),
        tuple(path.name for path in folders),
        diverged,
        np.array(at, dtype=np.int64),
        evaluated("test_accuracy", -1),
        levels,
        evaluated("gradients"),
        evaluated("forwards"),
        evaluated("seconds"),
        every("train_loss"),
        by_level("change"),
        by_level("loss_after") - by_level("loss_before"),
        by_level("alpha"),
        {seed: found["silent"] for seed, found in diagnoses.items()},
        {seed: found["unnamed"] for seed, found in diagnoses.items()},
    )


def _plain(values: Array, digits: int) -> Any:
    """Nested lists with None for NaN."""

    def plain(part: Any) -> Any:
        if isinstance(part, list):
            return [plain(value) for value in part]
        return (
            None if part is None or not np.isfinite(part) else (round(part, digits) if digits else int(part))
        )

    return plain(values.tolist())
