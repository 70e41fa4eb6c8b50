"""The networks of depth N, N/2, N/4, …, made from the deepest one."""

import copy
import itertools
from collections.abc import Container, Iterable, Iterator, Sequence
from typing import Any, overload

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from smgopt.repeat import Buffers
from smgopt.scaling import Scaled
from smgopt.stacks import columns, find
from smgopt.transfer import Column, Transfer


class Hierarchy(Sequence[nn.Module]):
    """A sequence of networks, coarsest first; the last one is ``net`` itself.

    Each level halves the depth of the next finer one and doubles the step of its blocks, so that all of them
    discretise the same ODE. Whatever lies outside the stacks of blocks is copied as it is. Every level starts
    from the restricted weights of the finest one, and stays an ordinary ``nn.Module``: evaluate it, save it,
    ship it.

    Args:
        net: the finest network. It is not changed.
        levels: how many levels, the finest one included.
        stacks: the names of the modules that hold the residual blocks, as ``"encoder.layer"`` or
            ``["stage1", "stage2"]``: each a ``ResidualStack``, an ``nn.Sequential`` or an ``nn.ModuleList``.
            Left out, they are found, see ``smgopt.stacks.find``; ``print(hier)`` says what was.

    Raises:
        ValueError: nothing to halve, a depth that cannot be halved so often, or a weight of a stack that is
            shared with another part of the network.

    Example:
        >>> import smgopt
        >>> net = smgopt.ResNet(inputs=784, outputs=10, width=10, depth=2048)
        >>> hier = Hierarchy(net, levels=3)
        >>> hier[-1] is net, hier[0].stack.depth
        (True, 512)
        >>> print(hier)
        Hierarchy of 3 levels
        level   blocks          step   parameters    work
            2     2048      0.000488       233240   57.1%
            1     1024      0.000977       120600   28.6%
            0      512       0.00195        64280   14.3%
        one gradient a level costs 1.75 of the finest
        stack: 2048 blocks of a ResidualStack
    """

    def __init__(self, net: nn.Module, levels: int, stacks: str | Sequence[str] | None = None) -> None:
        if levels < 1:
            raise ValueError(f"levels must be at least 1, not {levels}")
        networks, found = [net], [find(net, stacks, 2 ** (levels - 1))]
        pairs: list[list[tuple[nn.Module, nn.Module]]] = []
        list(columns(net, found[0]))  # refuses shared weights before anything is copied
        for _ in range(levels - 1):
            # deepcopy takes what the memo already holds for a copy, so that the stacks come out halved.
            memo: dict[int, Any] = {}
            for stack in found[-1]:
                stack.halve(networks[-1], memo)
            networks.append(copy.deepcopy(networks[-1], memo))
            pairs.append([(memo[id(m)], m) for m in networks[-2].modules() if id(m) in memo])
            found.append([stack.coarse() for stack in found[-1]])
        self.networks = tuple(reversed(networks))
        self.stacks = tuple(tuple(stacks) for stacks in reversed(found))
        # From level to level, finest first: every module of a coarse network beside the one it was made from.
        self._pairs = pairs
        self._called: set[tuple[int, str]] = set()  # levels and stacks that are known to call blocks

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
        return tuple(sum(stack.depth for stack in stacks) for stacks in self.stacks)

    def columns(self, level: int) -> list[tuple[Column, list[nn.Parameter]]]:
        """The parameters of a level, in the columns that a ``Transfer`` moves between levels."""
        return list(columns(self[level], self.stacks[level]))

    @torch.no_grad()
    def restrict(self) -> None:
        """Give every level the restricted weights of the finest one, and its buffers.

        The optimizer restricts what it trains in every cycle; call this after loading weights into ``net``
        in order to evaluate the coarse levels before the first cycle.
        """
        for level in range(len(self) - 1, 0, -1):
            fine, coarse = self.columns(level), self.columns(level - 1)
            restricted = Transfer([c for c, _ in fine]).restrict([p for _, ps in fine for p in ps])
            for target, weights in zip((p for _, ps in coarse for p in ps), restricted, strict=True):
                target.copy_(weights)
        for coarse_module, fine_module in itertools.chain(*self._pairs):
            for own, given in zip(
                coarse_module.buffers(recurse=False), fine_module.buffers(recurse=False), strict=True
            ):
                own.data = given.clone()

    def follow_modes(self) -> None:
        """Put every module of the coarse levels into the mode, training or evaluation, of its original."""
        for coarse, fine in itertools.chain(*self._pairs):
            coarse.training = fine.training

    def refuse_uncalled(self, level: int, used: Container[int]) -> None:
        """Whether a coarse level that has been evaluated has computed with the longer steps of its blocks.

        Args:
            level: which one.
            used: the ids of the parameters that its loss has depended on. A network may leave blocks out.

        Raises:
            RuntimeError: the network uses its blocks in a way that leaves them as they are, as calling
                ``block.forward`` does.
        """
        for stack in self.stacks[level]:
            if (level, stack.name) in self._called:
                continue
            blocks = stack.blocks(self[level])
            if any(map(Scaled.called_on, blocks)):
                self._called.add((level, stack.name))
            elif any(id(p) in used for block in blocks for p in block.parameters()):
                raise RuntimeError(
                    f"level {level} has not called the blocks of {stack.name!r} as modules, so that their "
                    "branches counted as much as on the finest level: let the network call block(y), neither "
                    "block.forward(y) nor the parts of a block"
                )

    def recalibrate(self, batches: Iterable[Any], levels: Iterable[int] | None = None) -> None:
        """Take the statistics of batch normalisation anew, as averages over some batches.

        The coarse levels see a mini-batch once a cycle, at weights that move: before one of them is evaluated
        or shipped, its running statistics want to fit its weights.

        Args:
            batches: of inputs, or of lists that begin with inputs, as a ``DataLoader`` gives them. Iterated
                once a level.
            levels: which levels; without it, all.

        Modes stay what they are, and layers that are in evaluation mode in a network that is in training mode
        keep their statistics. If anything fails, so do all.

        Raises:
            ValueError: an iterator, for more than one level, or no batches.

        Example:
            >>> block = nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 3))
            >>> hier = Hierarchy(nn.Sequential(*(copy.deepcopy(block) for _ in range(4))), levels=2)
            >>> hier.recalibrate([torch.full((5, 3), 2.0)])
            >>> hier[0][0][0].running_mean
            tensor([2., 2., 2.])
        """
        chosen = [self[level] for level in (range(len(self)) if levels is None else levels)]
        if len(chosen) > 1 and iter(batches) is batches:
            raise ValueError(
                "batches can be iterated only once, for several levels: give a list or a DataLoader"
            )
        for network in chosen:
            _recalibrate(network, batches)

    def compile(self, **options: Any) -> "Hierarchy":
        """Let ``torch.compile`` compile every level when it is next called; ``options`` are its own.

        It does not always pay: a ``ResidualStack`` is compiled as plain operations, which take ten times as
        long as its kernel.
        """
        for network in self:
            network.compile(**options)
        return self

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
            f"{'level':>5}{'blocks':>9}{'step':>14}{'parameters':>13}{'work':>8}",
        ]
        for level in range(len(self) - 1, -1, -1):
            steps = ", ".join(dict.fromkeys(stack.step(self[level]) for stack in self.stacks[level]))
            parameters = sum(p.numel() for p in self[level].parameters())
            lines.append(
                f"{level:>5}{depths[level]:>9}{steps:>14}{parameters:>13}{depths[level] / total:>8.1%}"
            )
        lines.append(f"one gradient a level costs {total / depths[-1]:.3g} of the finest")
        return "\n".join([*lines, *map(str, self.stacks[-1])])

    def __iter__(self) -> Iterator[nn.Module]:
        return iter(self.networks)


@torch.no_grad()
def _recalibrate(network: nn.Module, batches: Iterable[Any]) -> None:
    norms = [m for m in network.modules() if isinstance(m, _BatchNorm) and m.track_running_stats]
    frozen = [m for m in norms if network.training and not m.training]
    moved = [m for m in norms if m not in frozen]
    if not moved:
        return
    modes = {module: module.training for module in network.modules()}
    momenta = {norm: norm.momentum for norm in moved}
    buffers = Buffers(network)
    before = buffers.read()
    try:
        network.train()
        for norm in frozen:
            norm.eval()
        for norm in moved:
            norm.reset_running_stats()
            norm.momentum = None  # the average over all batches
        seen = 0
        for batch in batches:
            network(batch[0] if isinstance(batch, list | tuple) else batch)
            seen += 1
        if not seen:
            raise ValueError("batches holds none: there is nothing to take statistics from")
    except BaseException:
        buffers.write(before)
        raise
    finally:
        for norm, momentum in momenta.items():
            norm.momentum = momentum
        for module, training in modes.items():
            module.training = training
