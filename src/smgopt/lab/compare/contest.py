"""What is compared: optimizers on one network and one data set, for equal work, each with several steps.

A contest is a TOML file::

    title = "MNIST-1D, 64 blocks"
    gradients = 400                     # of the finest network: what each contestant may spend
    levels = 4                          # of those that train a hierarchy
    network = { depth = 64 }            # sections as `smgopt train` takes them
    data = { name = "mnist1d", batch = 500 }

    [[contestants]]
    name = "sMG/OPT"
    optimizer = { name = "smgopt" }     # but for the step
    steps = [0.1, 0.2, 0.4]

    [[contestants]]
    name = "Adam"
    optimizer = { name = "adam" }
    steps = [0.001, 0.003, 0.01]
"""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic import Field, ValidationError

from smgopt.lab import settings, toml
from smgopt.lab.config import Config, Section, SMGOptConfig
from smgopt.lab.errors import InputError
from smgopt.lab.trainers import cost_of_a_cycle

if TYPE_CHECKING:
    from pathlib import Path


class Contestant(Section):
    """An optimizer.

    Attributes:
        name: as it is shown.
        optimizer: its section of a configuration, without ``lr``.
        steps: the values of ``lr`` that are tried, from short to long.
    """

    name: str
    optimizer: dict[str, Any]
    steps: list[float] = Field(min_length=1)


class Contest(Section):
    """Who takes part, and what is the same for all.

    Attributes:
        title: what it is called.
        note: what a reader of the results should know of it.
        contestants: the optimizers.
        gradients: what each may spend: gradients of the finest network. Coarse ones count by their blocks, a
            forward pass as a third.
        levels: of the hierarchy.
        network, data: sections of a configuration.
        holdout: the fraction of the training data on which steps are chosen.
        evaluations: points of a curve.
    """

    title: str
    note: str = ""
    contestants: list[Contestant] = Field(min_length=1)
    gradients: int = Field(ge=1)
    levels: int = Field(ge=1)
    network: dict[str, Any] = Field(default_factory=dict)
    data: dict[str, Any] = Field(default_factory=dict)
    holdout: float = Field(default=0.1, gt=0, lt=1)
    evaluations: int = Field(default=20, ge=1)

    def config(self, contestant: Contestant, step: float, seed: int, *, tuning: bool) -> Config:
        """One run.

        Args:
            contestant: whose.
            step: the value of ``lr``.
            seed: of the run.
            tuning: test on a part of the training data instead of the test data.

        Raises:
            InputError: there is no such configuration.
        """
        multilevel = contestant.optimizer.get("name", "smgopt") == "smgopt"
        tree = {
            "network": self.network,
            "hierarchy": {"levels": self.levels if multilevel else 1},
            "optimizer": {**contestant.optimizer, "lr": step},
            "data": {**self.data, "holdout": self.holdout if tuning else 0.0},
            # One thread, whatever the number of jobs: the last bits may depend on it.
            "run": {"seed": seed, "threads": 1},
        }
        try:
            config = settings.make(tree)
        except InputError as error:
            raise InputError(f"{self.title}, {contestant.name}: {error}") from error
        cycles = max(1, int(self.gradients * config.network.blocks / _cost(config)))
        # A step is chosen by what it leads to in the end.
        every = cycles if tuning else math.ceil(cycles / self.evaluations)
        return settings.make(config.tree(), cycles=cycles, evaluate=every)


def _cost(config: Config) -> float:
    """Of a cycle, in gradients of one block."""
    blocks, levels = config.network.blocks, config.hierarchy.levels
    if not isinstance(config.optimizer, SMGOptConfig):
        return blocks
    depths = [blocks >> l for l in reversed(range(levels))]
    return cost_of_a_cycle(config.optimizer.steps(levels), depths)


@dataclass(frozen=True)
class Entry:
    """One run of a contest.

    Attributes:
        contest: it.
        contestant: whose run.
        step: the value of ``lr``.
        seed: of the run.
        tuning: whether it is one of those that the step is chosen by.
    """

    contest: Contest
    contestant: Contestant
    step: float
    seed: int
    tuning: bool

    @property
    def config(self) -> Config:
        """Of the run."""
        return self.contest.config(self.contestant, self.step, self.seed, tuning=self.tuning)

    @property
    def name(self) -> str:
        """Of its folder: readable, and another one for every other configuration."""
        config = self.config
        content = json.dumps({"identity": config.identity(), "cycles": config.run.cycles}, sort_keys=True)
        digest = hashlib.sha256(content.encode()).hexdigest()[:8]
        part = "tuning-" if self.tuning else ""
        return f"{part}{config.optimizer.name}-lr-{self.step:g}-seed-{self.seed}-{digest}"

    @property
    def cost(self) -> float:
        """The same for all of a contest, nearly."""
        return self.contest.gradients


def read(file: Path) -> Contest:
    """The contest in a file.

    Raises:
        InputError: what is wrong, a line each.
    """
    tree, text = toml.read(file)
    try:
        contest = Contest.model_validate(tree)
    except ValidationError as error:
        lines = []
        for entry in error.errors():
            key = [str(part) for part in entry["loc"]]
            line = toml.line_of(text, key)
            place = f"{file}, line {line}" if line else f"{file}"
            lines.append(f"{place}: {'.'.join(key)}: {entry['msg']}")
        raise InputError("\n".join(lines)) from error
    names = [contestant.name for contestant in contest.contestants]
    if len(set(names)) < len(names):
        raise InputError(f"{file}: two contestants have the same name")
    for contestant in contest.contestants:  # whatever is wrong shows before anything starts
        for step in contestant.steps:
            contest.config(contestant, step, 0, tuning=True)
    return contest
