"""What runs are going to cost: counted work, and a time from a rate measured in a second."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from smgopt.lab.reproduce import paper, peers

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from smgopt.lab.reproduce.items import Item
    from smgopt.lab.reproduce.setups import Scale, Setup

#: Test samples, in mini-batches of the paper's.
_TEST = 10
# Per run: reading the data, checkpoints, and looking at the answers. Per gradient: what is not arithmetic.
_SECONDS_A_RUN, _SECONDS_A_GRADIENT = 1.0, 0.0008


@dataclass(frozen=True)
class Rate:
    """How fast this machine is on one thread.

    Attributes:
        block: seconds for the gradient of one block on a mini-batch of the paper's.
    """

    block: float

    def seconds(self, setup: Setup) -> float:
        """What one run takes, roughly."""
        evaluations = setup.cycles / setup.evaluate
        evaluated = sum(setup.levels_of_depth) if setup.optimizer == "smgopt" else setup.depth
        # A forward pass is a third of a gradient; a cycle tries a correction on every level at least once.
        blocks = setup.work + (setup.cycles * evaluated / 3 if setup.levels > 1 else 0)
        blocks *= setup.batch / paper.BATCH
        blocks += evaluations * _TEST * evaluated / 3
        gradients = setup.cycles * sum(ν + μ + 1 for ν, μ in setup.smoothing)
        return _SECONDS_A_RUN + gradients * _SECONDS_A_GRADIENT + blocks * self.block


def measured() -> Rate:
    """The rate of this machine now, the best of a few tries."""
    import torch

    import smgopt

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        blocks = 512
        with torch.random.fork_rng(devices=[]):
            stack, y = smgopt.ResidualStack(10, blocks), torch.ones(paper.BATCH, 10, requires_grad=True)
        best = float("inf")
        for _ in range(6):
            start = time.perf_counter()
            torch.autograd.grad(stack(y).sum(), [y, *stack.parameters()])
            best = min(best, time.perf_counter() - start)
    finally:
        torch.set_num_threads(threads)
    return Rate(best / blocks)


def runs(items: Iterable[Item], scale: Scale) -> dict[Setup, int]:
    """How many runs of each configuration the items take, those that several of them share once."""
    found: dict[Setup, int] = {}
    for item in items:
        lines = peers.foreseen(scale) if item.name == "peers" else item.lines(scale, {})
        for line in lines:
            found[line.setup] = max(found.get(line.setup, 0), len(line.seeds))
    return found


@dataclass(frozen=True)
class Cost:
    """What some runs cost.

    Attributes:
        runs: how many.
        cycles: of all of them together.
        work: Σ N Q, in gradients of one block.
        seconds: on one thread.
    """

    runs: int
    cycles: int
    work: int
    seconds: float


def of(found: Mapping[Setup, int], rate: Rate) -> Cost:
    """The cost of so many runs of each configuration."""
    return Cost(
        sum(found.values()),
        sum(n * setup.cycles for setup, n in found.items()),
        sum(n * setup.work for setup, n in found.items()),
        sum(n * rate.seconds(setup) for setup, n in found.items()),
    )
