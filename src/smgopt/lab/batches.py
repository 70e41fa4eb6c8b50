"""Which samples each cycle sees: decided by the seed and the number of the cycle alone."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import torch

from smgopt.lab.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor


class Schedule:
    """The mini-batches of a run, for any cycle in any order, so that no generator has to be saved.

    Each epoch is a permutation of the samples, drawn from a generator that is seeded by (seed, epoch).

    Args:
        samples: how many there are.
        batch: how many make a mini-batch.
        seed: of the run.
        drop_last: leave out the last mini-batch of an epoch if it is not complete.

    Raises:
        InputError: there are not enough samples for one mini-batch.

    Example:
        >>> schedule = Schedule(samples=10, batch=4, seed=0, drop_last=False)
        >>> [len(schedule[cycle]) for cycle in range(4)], schedule.per_epoch
        ([4, 4, 2, 4], 3)
        >>> sorted(torch.cat([schedule[0], schedule[1], schedule[2]]).tolist()) == list(range(10))
        True
    """

    def __init__(self, samples: int, batch: int, seed: int, *, drop_last: bool = True) -> None:
        if drop_last and batch > samples:
            raise InputError(
                f"data.batch={batch} is more than the {samples} samples that there are to train on"
            )
        self.samples, self.batch, self.seed, self.drop_last = samples, batch, seed, drop_last
        self.per_epoch = samples // batch if drop_last else math.ceil(samples / batch)
        self._epoch, self._order = -1, torch.empty(0)

    def __getitem__(self, cycle: int) -> Tensor:
        """The indices of the samples of a cycle, which are counted from 0."""
        epoch, i = divmod(cycle, self.per_epoch)
        if epoch != self._epoch:
            # NumPy's generator takes both numbers whole; torch's would use the lowest 32 bits of one.
            order = np.random.default_rng((self.seed, epoch)).permutation(self.samples)
            self._epoch, self._order = epoch, torch.from_numpy(order)
        return self._order[i * self.batch : (i + 1) * self.batch]

    def seen(self, cycles: int) -> int:
        """How many samples that many cycles have seen."""
        epochs, i = divmod(cycles, self.per_epoch)
        used = self.per_epoch * self.batch if self.drop_last else self.samples
        return epochs * used + i * self.batch

    def limit(self, cycles: int | None, epochs: float | None) -> int | None:
        """How many cycles make so many cycles or epochs, whichever is less; None without a limit.

        Example:
            >>> Schedule(60_000, 1_000, seed=0).limit(cycles=300, epochs=2.5)
            150
        """
        limits = [] if cycles is None else [cycles]
        if epochs is not None:
            limits.append(math.ceil(epochs * self.per_epoch))
        return min(limits, default=None)
