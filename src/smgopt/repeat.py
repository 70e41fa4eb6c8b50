"""Evaluations of one network that can be compared: the same random numbers, and statistics moved once."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn


def written_buffers(network: nn.Module) -> list[Tensor]:
    """The buffers that a network may write: not those whose elements share memory, which it cannot."""
    return [
        b
        for b in network.buffers()
        if not any(n > 1 and not s for n, s in zip(b.shape, b.stride(), strict=True))
    ]


class Repeatable:
    """Makes all evaluations of a network within one cycle see the same thing.

    - Random numbers, those of dropout or of noise, are drawn anew for the first evaluation and repeated for
      all others, so that a line search compares like with like. The generators, of the CPU and of every
      device that the network uses, go on from where the first evaluation left them.
    - Buffers, the running statistics of batch normalisation, keep what the first evaluation made of them: a
      cycle moves them once, however often it tries.

    Args:
        network: the network to evaluate.

    Example:
        >>> network = nn.Dropout(0.5)
        >>> repeat, x = Repeatable(network), torch.ones(100)
        >>> with repeat():
        ...     first = network(x)
        >>> with repeat():
        ...     second = network(x)
        >>> torch.equal(first, second), torch.equal(first, network(x))
        (True, False)
    """

    def __init__(self, network: nn.Module) -> None:
        # Through .data, because autograd holds the statistics of a graph whose gradient is still to come. It
        # does not use them in training, and in evaluation they do not move.
        self.buffers = [b.data for b in written_buffers(network)]
        self.devices = {p.device for p in network.parameters() if p.device.type not in ("cpu", "meta")}
        self.random: list[Tensor] | None = None
        self.statistics: list[Tensor] = []

    @contextmanager
    def __call__(self) -> Iterator[None]:
        """Around one evaluation."""
        if self.random is None:
            self.random = self._random_states()
            yield
            self.statistics = [b.clone() for b in self.buffers]
            return
        outside = self._random_states()
        self._draw_from(self.random)
        try:
            yield
        finally:
            self._draw_from(outside)
            if self.buffers:
                torch._foreach_copy_(self.buffers, self.statistics)

    def _random_states(self) -> list[Tensor]:
        return [torch.get_rng_state(), *(torch.get_device_module(d).get_rng_state(d) for d in self.devices)]

    def _draw_from(self, states: list[Tensor]) -> None:
        torch.set_rng_state(states[0])
        for device, state in zip(self.devices, states[1:], strict=True):
            torch.get_device_module(device).set_rng_state(state, device)
