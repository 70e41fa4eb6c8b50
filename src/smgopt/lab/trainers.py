"""What a run trains with: sMG/OPT on a hierarchy, or one of torch's optimizers on its finest network."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Protocol

import torch
import torch.nn.functional as F

from smgopt.lab import build
from smgopt.lab.config import TorchConfig
from smgopt.work import Work

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from smgopt.cycle import Correction
    from smgopt.hierarchy import Hierarchy
    from smgopt.lab.config import Config
    from smgopt.optimizer import SMGOpt


class Trainer(Protocol):
    """A hierarchy and what changes its weights."""

    hierarchy: Hierarchy
    work: Work

    def step(self, x: Tensor, y: Tensor) -> float:
        """One cycle on one mini-batch; the loss of the finest network before it.

        Raises:
            FloatingPointError: that loss is not finite.
        """

    @property
    def corrections(self) -> Sequence[Correction | None]:
        """What became of the corrections of the last cycle, one a level, coarsest first."""

    def settle(self, batches: Sequence[Tensor]) -> None:
        """Bring the networks up to date, for whoever wants to look at them.

        Args:
            batches: of inputs, for the statistics of batch normalisation.
        """

    def estimate(self) -> float:
        """What a cycle costs at least, in gradients of one block."""

    def state_dict(self) -> dict[str, Any]:
        """All that a bit-identical continuation needs; ``networks`` has the weights of every level."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from ``state_dict()``."""


def make(config: Config, networks: Hierarchy) -> Trainer:
    """The trainer that a configuration asks for."""
    if isinstance(config.optimizer, TorchConfig):
        return Baseline(build.baseline(config.optimizer, networks[-1]), networks)
    return Multilevel(build.multilevel(config.optimizer, networks))


def cost_of_a_cycle(smoothing: Sequence[Sequence[int]], depths: Sequence[int]) -> float:
    """In gradients of one block: smoothing, one more gradient where there is a correction, and one trial.

    Args:
        smoothing: one (ν, μ) a level, coarsest first.
        depths: the blocks of each level.

    Example:
        >>> round(cost_of_a_cycle([(1, 0), (1, 0)], [4, 8]), 2)
        22.67
    """
    (first, _), *others = smoothing
    # A trial is a forward pass, a third of a gradient; if smoothing follows it is the first part of that.
    steps = ((ν + μ + (1 if μ else 4 / 3)) * N for (ν, μ), N in zip(others, depths[1:], strict=True))
    return first * depths[0] + sum(steps)


class Multilevel:
    """sMG/OPT; a step is a cycle.

    Args:
        optimizer: it.
    """

    def __init__(self, optimizer: SMGOpt) -> None:
        self.optimizer, self.hierarchy, self.work = optimizer, optimizer.hierarchy, optimizer.work

    def step(self, x: Tensor, y: Tensor) -> float:
        """One cycle."""
        return float(self.optimizer.step(lambda network: F.cross_entropy(network(x), y)))

    @property
    def corrections(self) -> Sequence[Correction | None]:
        """Of the last cycle; None before the first."""
        return self.optimizer.last_cycle or [None] * len(self.hierarchy)

    def settle(self, batches: Sequence[Tensor]) -> None:
        """The weights have been trained themselves; statistics lag behind them, more with longer steps."""
        self.hierarchy.recalibrate(batches)

    def estimate(self) -> float:
        """With the smoothing as it is."""
        return cost_of_a_cycle([g["smoothing"] for g in self.optimizer.param_groups], self.work.depths)

    def state_dict(self) -> dict[str, Any]:
        """The optimizer's own, which holds the weights of all levels."""
        return self.optimizer.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from it."""
        self.optimizer.load_state_dict(state)


class Baseline:
    """An optimizer of torch's on the finest network. The coarse ones are its restriction, and cost nothing.

    Args:
        optimizer: of the finest network's parameters.
        networks: of which that network is the last.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, networks: Hierarchy) -> None:
        self.optimizer, self.hierarchy, self.work = optimizer, networks, Work(networks.depths)
        self.corrections: Sequence[Correction | None] = [None] * len(networks)

    def step(self, x: Tensor, y: Tensor) -> float:
        """One step, whatever the optimizer makes of it: LBFGS takes many gradients."""
        net = self.hierarchy[-1]

        def gradient() -> float:
            self.optimizer.zero_grad()
            loss = F.cross_entropy(net(x), y)
            if not math.isfinite(value := loss.item()):
                raise FloatingPointError(
                    f"the loss is {value}. Look for a step (lr) that is too long, or for bad inputs"
                )
            loss.backward()  # type: ignore[no-untyped-call]
            self.work.gradients_by_level[-1] += 1
            return value

        return float(self.optimizer.step(gradient))

    def settle(self, batches: Sequence[Tensor]) -> None:
        """Restrict the weights, and take the statistics for them."""
        self.hierarchy.restrict()
        self.hierarchy.recalibrate(batches)

    def estimate(self) -> float:
        """One gradient."""
        return self.work.depths[-1]

    def state_dict(self) -> dict[str, Any]:
        """The optimizer's, the weights and the work."""
        return {
            "optimizer": self.optimizer.state_dict(),
            "networks": [network.state_dict() for network in self.hierarchy],
            "work": list(self.work.gradients_by_level),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from it."""
        for network, saved in zip(self.hierarchy, state["networks"], strict=True):
            network.load_state_dict(saved)
        self.optimizer.load_state_dict(state["optimizer"])
        self.work.gradients_by_level = list(state["work"])
