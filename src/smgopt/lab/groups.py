"""Runs that differ in nothing but the seed, and what they have in common: a mean and a spread."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from smgopt.lab.errors import RunError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from smgopt.lab.config import Config
    from smgopt.lab.journal import Records
    from smgopt.lab.runs import Run

    Numbers = NDArray[np.float64]


_NAMES = {
    "smgopt": "sMG/OPT",
    "sgd": "SGD",
    "adam": "Adam",
    "adamw": "AdamW",
    "mnist": "MNIST",
    "mnist1d": "MNIST-1D",
    "fashion-mnist": "Fashion-MNIST",
    "cifar10": "CIFAR-10",
}


@dataclass(frozen=True)
class Band:
    """A curve over several seeds.

    Attributes:
        x: means over the seeds; seconds, for one, differ from run to run.
        mean: of y.
        std: the sample standard deviation of y, with n - 1 below the sum of squares; None for a single run.
    """

    x: Numbers
    mean: Numbers
    std: Numbers | None


@dataclass(frozen=True)
class Group:
    """Runs that are shown as one curve.

    Args:
        label: what the curve is called; may be empty if it is the only one.
        runs: of one configuration, with different seeds.
    """

    label: str
    runs: tuple[Run, ...]

    @cached_property
    def metrics(self) -> list[Records]:
        """The evaluations of each run.

        Raises:
            RunError: a run has none yet, or a line is damaged.
        """
        return self._records("metrics", "evaluations")

    @cached_property
    def cycles(self) -> list[Records]:
        """The cycles of each run.

        Raises:
            RunError: a run has none yet, or a line is damaged.
        """
        return self._records("cycles", "cycles")

    def evaluations(self, x: str, y: str, level: int = -1) -> Band:
        """What the evaluations say.

        Args:
            x: a key of ``metrics.jsonl`` with one number.
            y: a key with one number a level.
            level: coarsest first; -1 is the finest.

        Raises:
            RunError: there are no such numbers.
        """
        found = _common(self.metrics)
        return _band([r.column(x) for r in found], [r.column(y, level) for r in found])

    def training(self, x: str) -> Band:
        """The training loss, cycle by cycle.

        Args:
            x: as for ``evaluations``.

        Raises:
            RunError: there are no such numbers.
        """
        found = _common(self.cycles)
        if x == "samples":
            # Recorded with evaluations only; in between they grow with the cycles.
            known = [(one.column("cycle"), one.column(x)) for one in self.metrics]
            over = [np.interp(one.column("cycle"), *k) for one, k in zip(found, known, strict=True)]
        else:
            over = [one.column(x) for one in found]
        return _band(over, [one.column("train_loss") for one in found])

    def corrections(self, key: str, level: int) -> Band:
        """What became of the corrections on one level, over cycles.

        Args:
            key: of ``cycles.jsonl``, or ``"delta"``: Δℓ = ℓ(θ + αc) - ℓ(θ), below 0 where the correction
                helped.
            level: as for ``evaluations``.

        Raises:
            RunError: there are no such numbers.
        """
        found = _common(self.cycles)
        if key == "delta":
            y = [r.column("loss_after", level) - r.column("loss_before", level) for r in found]
        else:
            y = [r.column(key, level) for r in found]
        return _band([r.column("cycle") for r in found], y)

    @property
    def extra(self) -> float:
        """What forward passes without a gradient add to the work, which counts gradients; three cost one."""
        last = [records.part(records[-1:]) for records in self.metrics]
        gradients, forwards = (sum(r.column(key)[0] for r in last) for key in ("gradients", "forwards"))
        return float(forwards / 3 / max(1.0, gradients))

    @property
    def depths(self) -> list[int]:
        """The blocks of each level, coarsest first."""
        config = self.runs[0].config
        return [config.network.blocks >> i for i in reversed(range(config.hierarchy.levels))]

    @cached_property
    def corrected(self) -> dict[int, int]:
        """The levels that have corrections, by their number of blocks, finest first."""
        steps = {l: self.corrections("alpha", l).mean for l in reversed(range(len(self.depths)))}
        return {self.depths[l]: l for l, alpha in steps.items() if np.isfinite(alpha).any()}

    @property
    def cut(self) -> list[str]:
        """A sentence for each run that has gone further than all of its group, and is shown only so far."""
        ends = [records[-1]["cycle"] for records in self.cycles]
        return [
            f"{run.folder} is shown up to cycle {min(ends)} of {end}, where {shortest.folder} is"
            for run, end in zip(self.runs, ends, strict=True)
            for shortest in [self.runs[ends.index(min(ends))]]
            if end > min(ends)
        ]

    def _records(self, name: str, what: str) -> list[Records]:
        found = [getattr(run, name) for run in self.runs]
        for run, records in zip(self.runs, found, strict=True):
            if not records:
                raise RunError(f"{run.folder} has no {what} yet")
        return found


def grouped(runs: Sequence[Run], complaints: list[str] | None = None) -> list[Group]:
    """Runs by configuration without the seed, in the order in which they come.

    Args:
        runs: all of them.
        complaints: takes a sentence for each that is left out, because one with the same configuration and
            seed came before it: it has the same numbers.

    Returns:
        The groups. The label of each is what differs between them.

    Raises:
        InputError: a configuration is damaged.
    """
    groups: list[tuple[dict[str, Any], dict[int, Run]]] = []
    for run in runs:
        settings = _settings(run.config)
        members = next((members for known, members in groups if known == settings), None)
        if members is None:
            groups.append((settings, members := {}))
        first = members.setdefault(run.config.run.seed, run)
        if first is not run and complaints is not None:
            complaints.append(f"{run.folder} is left out: {first.folder} has the same configuration and seed")
    labels = _labels([settings for settings, _ in groups])
    return [Group(label, tuple(m.values())) for label, (_, m) in zip(labels, groups, strict=True)]


def _common(runs: Sequence[Records]) -> list[Records]:
    """The records of the cycles that all of the runs have: a mean over changing runs would jump."""
    known = [{record["cycle"]: record for record in records} for records in runs]
    cycles = sorted(set.intersection(*map(set, known)))
    if not cycles:
        folders = ", ".join(str(records.path) for records in runs)
        raise RunError(f"there is no cycle that all runs of one configuration have recorded: {folders}")
    return [records.part(one[cycle] for cycle in cycles) for records, one in zip(runs, known, strict=True)]


def _band(x: list[Numbers], y: list[Numbers]) -> Band:
    # What diverges may leave the range of numbers, and is then not shown.
    with np.errstate(over="ignore", invalid="ignore"):
        std = np.std(y, axis=0, ddof=1) if len(y) > 1 else None
        return Band(np.mean(x, axis=0), np.mean(y, axis=0), std)


def _settings(config: Config) -> dict[str, Any]:
    """The settings by full name, without those that do not change what is learnt."""
    tree = config.identity()
    flat = {f"{section}.{key}": value for section, part in tree.items() for key, value in part.items()}
    return {key: value for key, value in flat.items() if key not in ("run.seed", "run.evaluate")}


def _labels(groups: Sequence[dict[str, Any]]) -> list[str]:
    """For each group the settings in which it differs from another."""
    labels = []
    for group in groups:
        # The settings of two optimizers, the number of levels among them, are not to be compared.
        alike = [other for other in groups if other["optimizer.name"] == group["optimizer.name"]]
        parts = []
        # The optimizer's name first, then what belongs to it.
        for key in sorted(group, key=lambda key: key != "optimizer.name"):
            own = key.startswith("optimizer.") and key != "optimizer.name"
            others = alike if own or key == "hierarchy.levels" else groups
            if any(other.get(key) != group[key] for other in others):
                parts.append(_words(key, group[key]))
        labels.append(", ".join(parts))
    return labels


def _words(key: str, value: Any) -> str:
    """A setting as a reader of a figure knows it.

    Example:
        >>> _words("hierarchy.levels", 8), _words("optimizer.line_search", False), _words("optimizer.lr", 0.1)
        ('8 levels', 'no line search', 'lr = 0.1')
    """
    name = key.split(".")[1]
    counted = {"hierarchy.levels": "level", "network.depth": "block"}
    if key in counted:
        return f"{value} {counted[key]}{'s' * (value != 1)}"
    if isinstance(value, bool):
        return f"{'' if value else 'no '}{name.replace('_', ' ')}"
    if key in ("optimizer.name", "data.name"):
        return _NAMES.get(value, Path(value).stem)
    if key == "optimizer.smoothing" and isinstance(value, str):
        return value.replace("table-", "Table ")
    symbols = {"initial_step": "ᾱ", "shrink": "ρ", "sufficient_decrease": "c₁", "weight_decay": "β"}
    shown = symbols.get(name, name.replace("_", " ")) if key.startswith("optimizer.") else name
    return f"{shown} = {value:g}" if isinstance(value, float) else f"{shown} = {value}"
