"""How good each level is, and what finding that out costs."""

from __future__ import annotations

import math
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F

from smgopt.lab import build
from smgopt.networks import ResNet

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor, nn

    from smgopt.lab.runs import Run

#: Evaluations at the default interval are to cost at most this share of the gradients. The records and
#: checkpoints take the rest of the 5 % that all of it may cost.
SHARE = 0.03


def _at_once(network: nn.Module) -> int:
    """Samples that go through a network together: always the same number, so that sums are always the same.

    A flat network holds few numbers a sample, others may hold an image of many channels.
    """
    return 10_000 if isinstance(network, ResNet) else 500


@torch.no_grad()
def measure(network: nn.Module, x: Tensor, y: Tensor) -> tuple[float, float]:
    """The mean loss and the accuracy of a network.

    Example:
        >>> x = torch.eye(3)
        >>> loss, accuracy = measure(torch.nn.Identity(), x, torch.tensor([0, 1, 1]))
        >>> round(accuracy, 3)
        0.667
    """
    loss, right = 0.0, 0
    training = network.training
    network.eval()
    size = _at_once(network)
    for part, labels in zip(torch.split(x, size), torch.split(y, size), strict=True):
        answers = network(part)
        loss += F.cross_entropy(answers, labels, reduction="sum").item()
        right += int((answers.argmax(1) == labels).sum())
    network.train(training)
    return loss / len(x), right / len(x)


def interval(depths: Sequence[int], samples: float, cycle: float) -> int:
    """After how many cycles all levels can be evaluated again without costing more than ``SHARE``.

    Counted, not timed, so that a run evaluates at the same cycles on every machine. An evaluation is a
    forward pass of every level, which is a third of a gradient.

    Args:
        depths: the blocks of each level.
        samples: test samples, in mini-batches.
        cycle: what a cycle costs, in gradients of one block.

    Example:
        >>> interval([512, 1024], samples=10, cycle=4096)
        42
    """
    return max(1, math.ceil(sum(depths) / 3 * samples / (SHARE * cycle)))


@dataclass(frozen=True)
class LevelResult:
    """What one level is worth.

    Attributes:
        level: 0 is the coarsest.
        blocks: its depth.
        parameters: how many numbers it has.
        accuracy: on the test data.
        loss: mean cross-entropy on them.
        ms_per_1000: milliseconds that 1,000 samples take.
    """

    level: int
    blocks: int
    parameters: int
    accuracy: float
    loss: float
    ms_per_1000: float


@dataclass(frozen=True)
class Evaluation:
    """What the levels of a run are worth.

    Attributes:
        run: its folder.
        cycle: after how many cycles.
        data: name of the data set.
        samples: how many test samples.
        levels: coarsest first.
    """

    run: str
    cycle: int
    data: str
    samples: int
    levels: tuple[LevelResult, ...]

    def as_dict(self) -> dict[str, Any]:
        """The same as plain values."""
        return asdict(self)


def evaluate(run: Run, complaints: list[str] | None = None) -> Evaluation:
    """Evaluate every level of a run at its last good checkpoint.

    Args:
        run: it.
        complaints: takes a sentence for each checkpoint that is not good.

    Raises:
        RunError: the run has none, or its data are not what they were.
        smgopt.lab.data.DataError: the data cannot be had.
    """
    checkpoint = run.checkpoint(complaints)
    networks = run.hierarchy(checkpoint)
    data = build.data(run.config)
    run.refuse_other_data(checkpoint, build.description(data))
    results = []
    for l, (network, blocks) in enumerate(zip(networks, networks.depths, strict=True)):
        loss, accuracy = measure(network, data.x_test, data.y_test)
        parameters = sum(p.numel() for p in network.parameters())
        results.append(LevelResult(l, blocks, parameters, accuracy, loss, _ms_per_1000(network, data.x_test)))
    return Evaluation(str(run.folder), checkpoint.cycle, data.name, len(data.x_test), tuple(results))


@torch.no_grad()
def _ms_per_1000(network: nn.Module, x: Tensor, enough: float = 0.3) -> float:
    """The shortest of as many forward passes of 1,000 samples as fit into ``enough`` seconds."""
    x = x[:1000]
    network.eval()
    network(x)  # what is compiled or cached on the first call
    times: list[float] = []
    while sum(times) < enough:
        start = time.perf_counter()
        network(x)
        times.append(time.perf_counter() - start)
    return min(times) * 1e3 * 1000 / len(x)
