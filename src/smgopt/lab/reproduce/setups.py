"""One configuration of the reproduction, without its seed; and how large the whole is made."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from smgopt.lab import settings
from smgopt.lab.reproduce import paper
from smgopt.smoothing import TABLE_1, pattern

if TYPE_CHECKING:
    from smgopt.lab.config import Config

#: Finest blocks, cycles and seeds of ``--quick``.
QUICK_DEPTH, QUICK_CYCLES, QUICK_SEEDS = 256, 100, 1


@dataclass(frozen=True)
class Setup:
    """Everything that a run depends on but the seed; two equal ones are one series of runs.

    The defaults are the paper's settings, and what the authors' experiments did where it leaves them open.

    Args:
        data: the data set.
        depth: blocks of the finest network.
        levels: of the hierarchy.
        table: the paper's table of smoothing steps, 1 or 2. One level is the same in both.
        cycles: how long.
        batch: samples of a mini-batch.
        evaluate: cycles between evaluations.
        optimizer: ``"smgopt"``, or one of torch's on the finest network.
        lr: its step.
        holdout: the fraction of the training data to test on, instead of the test data.

    The others are those of ``smgopt.lab.config``.

    Example:
        >>> Setup(depth=256, levels=4, table=1, lr=0.2).name
        'mnist-256-4-levels-table-1-lr-0.2'
        >>> Setup(depth=256, levels=1, table=1) == Setup(depth=256, levels=1, table=2)
        True
    """

    data: str = "mnist"
    depth: int = 2048
    levels: int = 8
    table: int = 2
    cycles: int = paper.CYCLES
    batch: int = paper.BATCH
    evaluate: int = 5
    optimizer: str = "smgopt"
    lr: float = 0.1
    momentum: float = 0.0
    line_search: bool = True
    initial_step: float = 1.0
    sufficient_decrease: float = 0.5
    coupling: str = "paper"
    gradient_restriction: str = "injection"
    boundary: str = "zero"
    closing_relu: bool = True
    holdout: float = 0.0

    def __post_init__(self) -> None:
        if self.levels == 1:
            object.__setattr__(self, "table", 2)

    @property
    def name(self) -> str:
        """What it is called: the data and the shape, and all that is not as in the paper."""
        parts = [Path(self.data).stem, str(self.depth)]
        if self.optimizer == "smgopt":
            parts += [f"{self.levels}-levels"] + [f"table-{self.table}"] * (self.levels > 1)
        told = {"data", "depth", "levels", "table", "batch"}
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name in told or value == field.default:
                continue
            key = field.name.replace("_", "-")
            if isinstance(value, bool):
                parts.append(key if value else f"no-{key}")
            else:
                parts.append(value if field.name == "optimizer" else f"{key}-{value}")
        return "-".join(parts)

    @property
    def levels_of_depth(self) -> tuple[int, ...]:
        """The blocks of each level, coarsest first."""
        return tuple(self.depth >> l for l in reversed(range(self.levels)))

    @property
    def smoothing(self) -> tuple[tuple[int, int], ...]:
        """The steps (ν, μ) of each level, coarsest first."""
        return TABLE_1[self.levels] if self.table == 1 else pattern(self.levels)

    @property
    def work(self) -> int:
        """Σ N Q of the whole run, if no correction is rejected: ν + μ and one for the correction a level."""
        if self.optimizer != "smgopt":
            return self.cycles * self.depth
        (first, *others), depths = self.smoothing, self.levels_of_depth
        cycle = first[0] * depths[0]
        cycle += sum((ν + μ + 1) * N for (ν, μ), N in zip(others, depths[1:], strict=True))
        return self.cycles * cycle

    def config(self, seed: int) -> Config:
        """The configuration of one run, with nothing left to a default that may change."""
        tree: dict[str, dict[str, Any]] = {
            "network": {
                "kind": "resnet",
                "width": 10,
                "depth": self.depth,
                "T": 1.0,
                "activation": "relu",
                "closing_relu": self.closing_relu,
            },
            "hierarchy": {"levels": self.levels},
            "optimizer": self._optimizer(),
            "data": {
                "name": self.data,
                "holdout": self.holdout,
                "batch": self.batch,
                "drop_last": True,
            },
            "run": {
                "seed": seed,
                "cycles": self.cycles,
                "evaluate": self.evaluate,
                "checkpoint": 30.0,
                # One, whatever the number of jobs: the last bits may depend on it.
                "threads": 1,
                "tensorboard": False,
            },
        }
        return settings.make(tree)

    def _optimizer(self) -> dict[str, Any]:
        if self.optimizer != "smgopt":
            momentum = {"momentum": self.momentum} if self.optimizer == "sgd" else {}
            return {"name": self.optimizer, "lr": self.lr, **momentum}
        return {
            "name": "smgopt",
            "lr": self.lr,
            "smoothing": [list(pair) for pair in self.smoothing],
            "weight_decay": 0.0,
            "coupling": self.coupling,
            "gradient_restriction": self.gradient_restriction,
            "boundary": self.boundary,
            "line_search": self.line_search,
            "initial_step": self.initial_step,
            "shrink": 0.5,
            "sufficient_decrease": self.sufficient_decrease,
            "max_trials": 10,
        }


def folder_name(setup: Setup, seed: int) -> str:
    """The run's folder: readable, and another one for every other configuration.

    Example:
        >>> folder_name(Setup(depth=256), 1) == folder_name(Setup(depth=256, cycles=9), 1)
        False
    """
    config = setup.config(seed)
    content = {"identity": config.identity(), "cycles": config.run.cycles}
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    return f"{setup.name}-seed-{seed}-{digest[:8]}"


@dataclass(frozen=True)
class Scale:
    """How large the reproduction is.

    Args:
        seeds: how many; they are 1, 2, 3, ….
        depth: no network has more blocks than this.
        cycles: no run of sMG/OPT is longer than this.
        batch: samples of a mini-batch.
        sets: other data under the names ``mnist`` and ``mnist1d``, for tests.
        evaluate: cycles between evaluations.

    Example:
        >>> Scale(depth=256, cycles=100).setup(depth=2048, levels=8).name
        'mnist-256-8-levels-table-2-cycles-100'
    """

    seeds: int = paper.SEEDS
    depth: int = 2048
    cycles: int = paper.CYCLES
    batch: int = paper.BATCH
    evaluate: int = 5
    sets: tuple[tuple[str, str], ...] = ()

    @property
    def full(self) -> bool:
        """Whether depth and cycles are the paper's."""
        return self.depth >= 2048 and self.cycles == paper.CYCLES and not self.sets

    def setup(self, data: str = "mnist", depth: int = 2048, **changes: Any) -> Setup:
        """A configuration of the paper's, cut to this size."""
        size = {"cycles": self.cycles, "batch": self.batch, "evaluate": self.evaluate}
        named = dict(self.sets).get(data, data)
        return Setup(data=named, depth=min(depth, self.depth), **{**size, **changes})

    def seeds_of(self, most: int | None = None) -> tuple[int, ...]:
        """The seeds, or the first few of them."""
        return tuple(range(1, 1 + (self.seeds if most is None else min(self.seeds, most))))


QUICK = Scale(QUICK_SEEDS, QUICK_DEPTH, QUICK_CYCLES)
