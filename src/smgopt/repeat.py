"""Evaluations of one network that can be compared: the same random numbers, and statistics moved once."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn


class Buffers:
    """The buffers of a network, to be read and put back: also those that a module replaces by new tensors.

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
            (module, name, buffer)
            for module in network.modules()
            for name, buffer in module._buffers.items()
            if buffer is not None and not _overlaps(buffer)
        ]

    def read(self) -> list[Tensor]:
        """What is in them now, copied."""
        return [(b if (b := m._buffers[name]) is not None else old).clone() for m, name, old in self.places]

    def write(self, values: list[Tensor]) -> None:
        """Put back what was read: into the tensors that stood there in the beginning, where it fits."""
        for (module, name, buffer), value in zip(self.places, values, strict=True):
            fits = buffer.shape == value.shape and buffer.dtype == value.dtype
            if module._buffers[name] is not buffer or not fits:
                module._buffers[name] = buffer if fits else value.clone()
            if fits:
                # Through .data, because autograd may hold it for a gradient that is still to come. In
                # training that does not use it, and in evaluation it does not change.
                buffer.data.copy_(value)


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
        self.before: list[Tensor] = []
        self.after: list[Tensor] = []

    @contextmanager
    def __call__(self) -> Iterator[None]:
        """Around one evaluation."""
        if self.random is None:
            self.random, self.before = self._random_states(), self.buffers.read()
            yield
            self.after = self.buffers.read()
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
        """Around whatever may evaluate the network again: the buffers see it as the first time."""
        self.buffers.write(self.before)
        try:
            yield
        finally:
            self.buffers.write(self.after)

    def _random_states(self) -> list[Tensor]:
        return [torch.get_rng_state(), *(torch.get_device_module(d).get_rng_state(d) for d in self.devices)]

    def _draw_from(self, states: list[Tensor]) -> None:
        torch.set_rng_state(states[0])
        for device, state in zip(self.devices, states[1:], strict=True):
            torch.get_device_module(device).set_rng_state(state, device)
