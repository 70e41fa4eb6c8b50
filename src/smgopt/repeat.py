"""Evaluations of one network that can be compared: the same random numbers, and statistics moved once."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn


class Buffers:
    """The buffers of a network: which tensors stand where, and what is in them.

    Not those whose elements share memory, which nobody can write.

    Args:
        network: whose.

    Example:
        >>> norm = nn.BatchNorm1d(2)
        >>> buffers = Buffers(norm)
        >>> before = buffers.read()
        >>> _ = norm(torch.randn(5, 2))
        >>> buffers.write(before)
        >>> norm.running_mean
        tensor([0., 0.])
    """

    def __init__(self, network: nn.Module) -> None:
        self.places = [
            (module, name)
            for module in network.modules()
            for name, buffer in module._buffers.items()
            if buffer is not None and not _overlaps(buffer)
        ]

    def tensors(self) -> list[Tensor | None]:
        """The tensors that stand there now; a module may have replaced what stood there before."""
        return [module._buffers[name] for module, name in self.places]

    def put(self, tensors: list[Tensor | None]) -> None:
        """Let other tensors stand there."""
        for (module, name), tensor in zip(self.places, tensors, strict=True):
            module._buffers[name] = tensor

    def read(self) -> tuple[list[Tensor | None], list[Tensor | None]]:
        """The tensors, and copies of what is in them now."""
        return self.tensors(), copies(self.tensors())

    def write(self, read: tuple[list[Tensor | None], list[Tensor | None]]) -> None:
        """Let the tensors stand there again, and have in them what they had."""
        self.put(read[0])
        for tensor, value in zip(*read, strict=True):
            if tensor is not None and value is not None:
                tensor.data.copy_(value)


def copies(tensors: list[Tensor | None]) -> list[Tensor | None]:
    """Copies of tensors; what is one tensor in two places is one copy."""
    made = {id(tensor): tensor.clone() for tensor in tensors if tensor is not None}
    return [None if tensor is None else made[id(tensor)] for tensor in tensors]


def _overlaps(buffer: Tensor) -> bool:
    return any(n > 1 and not s for n, s in zip(buffer.shape, buffer.stride(), strict=True))


class Repeatable:
    """Makes all evaluations of a network within one cycle see the same thing.

    - Random numbers, those of dropout or of noise, are drawn anew for the first evaluation and repeated for
      all others, so that a line search compares like with like. The generators, of the CPU and of every
      device that the network uses, go on from where the first evaluation left them.
    - Buffers, such as the running statistics of batch normalisation, are for all evaluations what the first
      one saw, and then keep what that one made of them: a cycle moves them once, however often it tries.

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
        self.buffers = Buffers(network)
        self.devices = {p.device for p in network.parameters() if p.device.type not in ("cpu", "meta")}
        self.random: list[Tensor] | None = None
        self.before: list[Tensor | None] = []

    @contextmanager
    def __call__(self) -> Iterator[None]:
        """Around one evaluation."""
        if self.random is None:
            self.random, self.before = self._random_states(), copies(self.buffers.tensors())
            yield
            return
        outside = self._random_states()
        self._draw_from(self.random)
        try:
            with self.unmoved():
                yield
        finally:
            self._draw_from(outside)

    @contextmanager
    def unmoved(self) -> Iterator[None]:
        """Around whatever may evaluate the network again: the buffers see it as the first time.

        Other tensors stand in for them: autograd may hold the true ones for a gradient that is still to come.
        """
        after = self.buffers.tensors()
        self.buffers.put(copies(self.before))
        try:
            yield
        finally:
            self.buffers.put(after)

    def _random_states(self) -> list[Tensor]:
        return [torch.get_rng_state(), *(torch.get_device_module(d).get_rng_state(d) for d in self.devices)]

    def _draw_from(self, states: list[Tensor]) -> None:
        torch.set_rng_state(states[0])
        for device, state in zip(self.devices, states[1:], strict=True):
            torch.get_device_module(device).set_rng_state(state, device)
