"""The networks of depth N, N/2, N/4, …, made from the deepest one."""

import copy
from collections.abc import Iterator, Sequence
from typing import Any, overload

import torch
from torch import nn

from smgopt.networks import ResidualStack
from smgopt.transfer import inject


class Hierarchy(Sequence[nn.Module]):
    """A sequence of networks, coarsest first; the last one is ``net`` itself.

    Each level halves the depth of the next finer one and doubles its Δt, so that all of them discretise
    the same ODE. Whatever lies outside the residual stacks is copied as it is. Every level starts from the
    restricted weights of the finest one, and stays an ordinary ``nn.Module``: evaluate it, save it, ship it.

    Args:
        net: a module with at least one ``ResidualStack`` in it.
        levels: how many levels, the finest one included.

    Raises:
        ValueError: no residual stack, a depth that cannot be halved so often, or a weight of the stack that
            is shared with another part of the network.

    Example:
        >>> import smgopt
        >>> net = smgopt.ResNet(inputs=784, outputs=10, width=10, depth=2048)
        >>> hier = Hierarchy(net, levels=3)
        >>> hier[-1] is net, hier[0].stack.depth
        (True, 512)
        >>> print(hier)
        Hierarchy of 3 levels
        level   blocks            Δt   parameters    work
            2     2048      0.000488       233240   57.1%
            1     1024      0.000977       120600   28.6%
            0      512       0.00195        64280   14.3%
        one gradient a level costs 1.75 of the finest
    """

    def __init__(self, net: nn.Module, levels: int) -> None:
        stacks = stacks_of(net)
        _refuse_what_cannot_be_halved(stacks, levels)
        _refuse_ties(net)
        networks = [net]
        for _ in range(levels - 1):
            networks.append(_coarsen(networks[-1]))
        self.networks = tuple(reversed(networks))

    @overload
    def __getitem__(self, level: int) -> nn.Module: ...

    @overload
    def __getitem__(self, level: slice) -> Sequence[nn.Module]: ...

    def __getitem__(self, level: int | slice) -> nn.Module | Sequence[nn.Module]:
        return self.networks[level]

    def __len__(self) -> int:
        return len(self.networks)

    @property
    def depths(self) -> tuple[int, ...]:
        """N^l, the number of blocks of each level, coarsest first."""
        return tuple(sum(stack.depth for stack in stacks_of(network).values()) for network in self)

    @property
    def stacked(self) -> tuple[bool, ...]:
        """For each of ``net.parameters()``, whether its first dimension is the depth."""
        ours = {id(p) for stack in stacks_of(self[-1]).values() for p in stack.parameters()}
        return tuple(id(p) in ours for p in self[-1].parameters())

    @torch.no_grad()
    def restrict(self) -> None:
        """Give every level the restricted weights and buffers of the finest one.

        The optimizer restricts what it trains in every cycle; call this after loading weights into ``net``
        in order to evaluate the coarse levels before the first cycle.
        """
        for coarse, fine in zip(self[-2::-1], self[:0:-1], strict=True):
            for c, f, stacked in zip(coarse.parameters(), fine.parameters(), self.stacked, strict=True):
                c.copy_(inject(f) if stacked else f)
            for copy_of, buffer in zip(coarse.buffers(), fine.buffers(), strict=True):
                copy_of.copy_(buffer)

    def to(self, *args: Any, **kwargs: Any) -> "Hierarchy":
        """Move or cast every level, as ``nn.Module.to`` does."""
        for network in self:
            network.to(*args, **kwargs)
        return self

    def __repr__(self) -> str:
        return f"Hierarchy({type(self[-1]).__name__}, levels={len(self)}, depths={self.depths})"

    def __str__(self) -> str:
        depths, total = self.depths, sum(self.depths)
        lines = [
            f"Hierarchy of {len(self)} level{'s' * (len(self) > 1)}",
            f"{'level':>5}{'blocks':>9}{'Δt':>14}{'parameters':>13}{'work':>8}",
        ]
        for level in range(len(self) - 1, -1, -1):
            steps = ", ".join(dict.fromkeys(f"{s.dt:.3g}" for s in stacks_of(self[level]).values()))
            parameters = sum(p.numel() for p in self[level].parameters())
            lines.append(
                f"{level:>5}{depths[level]:>9}{steps:>14}{parameters:>13}{depths[level] / total:>8.1%}"
            )
        lines.append(f"one gradient a level costs {total / depths[-1]:.3g} of the finest")
        return "\n".join(lines)

    def __iter__(self) -> Iterator[nn.Module]:
        return iter(self.networks)


def stacks_of(network: nn.Module) -> dict[str, ResidualStack]:
    """The residual stacks inside a network, by name."""
    return {name: m for name, m in network.named_modules() if isinstance(m, ResidualStack)}


def _coarsen(network: nn.Module) -> nn.Module:
    # deepcopy takes what the memo already holds for a copy, so that the stacks come out halved.
    memo: dict[int, Any] = {id(stack): stack.coarsen() for stack in stacks_of(network).values()}
    return copy.deepcopy(network, memo)


def _refuse_what_cannot_be_halved(stacks: dict[str, ResidualStack], levels: int) -> None:
    if levels < 1:
        raise ValueError(f"levels must be at least 1, not {levels}")
    if not stacks:
        raise ValueError("the network has no smgopt.ResidualStack, so there is nothing to halve")
    step = 2 ** (levels - 1)
    for name, stack in stacks.items():
        if stack.depth % step:
            below, above = stack.depth // step * step, -(-stack.depth // step) * step
            depths = f"{below} or {above}" if below else f"{above}"
            most = (stack.depth & -stack.depth).bit_length()
            raise ValueError(
                f"{levels} levels halve the depth {levels - 1} times, but the {stack.depth} blocks of "
                f"{name or 'the stack'!r} are not a multiple of {step}: a depth of {depths} would do, "
                f"or at most {most} level{'s' * (most > 1)}"
            )


def _refuse_ties(net: nn.Module) -> None:
    """A stack's weights are halved, so nothing of another shape may share them.

    Weights that are shared outside the stacks stay shared on every level, and are trained as one.
    """
    places: dict[int, list[str]] = {}
    for name, parameter in net.named_parameters(remove_duplicate=False):
        places.setdefault(id(parameter), []).append(name)
    for stack in stacks_of(net).values():
        for parameter in stack.parameters():
            if len(names := places[id(parameter)]) > 1:
                raise ValueError(
                    f"the same weights stand at {' and '.join(names)}: a residual stack cannot share its "
                    "weights with another part of the network, because they are halved from level to level"
                )
