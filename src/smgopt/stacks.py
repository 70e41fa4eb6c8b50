"""The stacks of residual blocks inside a network: how they are found, halved, and read block by block."""

import copy
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Protocol

import torch
from torch import nn

from smgopt.networks import ResidualStack
from smgopt.scaling import Scaled
from smgopt.transfer import Blocks, Column, Depth, Outer


class Stack(Protocol):
    """A stack as it stands in the network of one level."""

    @property
    def name(self) -> str:
        """Of the module that holds it; a path, as ``get_submodule`` takes it."""

    @property
    def depth(self) -> int:
        """How many blocks it has."""

    def coarse(self) -> "Stack":
        """The stack as it stands in the next coarser network."""

    def halve(self, network: nn.Module, memo: dict[int, Any]) -> None:
        """Put a copy of half the depth into the memo of a ``deepcopy``."""

    def column(self, parameter: str) -> tuple[Column, list[str]] | None:
        """What a parameter of that name is: a column, and the names of all the parameters in it.

        None if it is not of this stack, and no names if they stand in the column of another one's name.
        """

    def step(self, network: nn.Module) -> str:
        """How far one block goes, for the table of levels."""

    def blocks(self, network: nn.Module) -> list[nn.Module]:
        """The blocks that are modules, and scaled by hooks."""

    def __str__(self) -> str: ...


@dataclass(frozen=True)
class Tensors:
    """A ``ResidualStack``: its parameters have the depth as their first dimension."""

    name: str
    depth: int

    def coarse(self) -> "Tensors":
        """Of half the depth."""
        return Tensors(self.name, self.depth // 2)

    def halve(self, network: nn.Module, memo: dict[int, Any]) -> None:
        """By its own rule."""
        stack = network.get_submodule(self.name)
        assert isinstance(stack, ResidualStack)
        memo[id(stack)] = stack.coarsen()

    def column(self, parameter: str) -> tuple[Column, list[str]] | None:
        """One tensor for all blocks."""
        return (Depth(), [parameter]) if parameter.startswith(_prefix(self.name)) else None

    def step(self, network: nn.Module) -> str:
        """Δt."""
        return f"{getattr(network.get_submodule(self.name), 'dt'):.3g}"  # noqa: B009 (no module declares it)

    def blocks(self, network: nn.Module) -> list[nn.Module]:  # noqa: ARG002
        """None: its Δt is part of what it computes."""
        return []

    def __str__(self) -> str:
        return f"{self.name or 'the network itself'}: {self.depth} blocks of a ResidualStack"


@dataclass(frozen=True)
class Modules:
    """Neighbouring modules of one kind in an ``nn.Sequential`` or ``nn.ModuleList``, each a residual block.

    On level L - k only every 2^k-th of them is left, and its residual branch counts 2^k-fold:

        y ← y + 2^k (block(y) - y)

    so that blocks need not know of any Δt.

    Attributes:
        children: the names of everything in the module that holds them.
        names: of the blocks among it.
        kind: what they are, for ``print``.
        factor: 2^k.
    """

    name: str
    children: tuple[str, ...]
    names: tuple[str, ...]
    kind: str
    factor: int = 1

    @property
    def depth(self) -> int:
        """How many blocks there are."""
        return len(self.names)

    def _kept(self) -> dict[str, str]:
        """What is left on the next coarser level, by old and new name: what counted from 0 does so again."""
        kept = [name for name in self.children if name not in self.names[1::2]]
        plain = self.children == tuple(map(str, range(len(self.children))))
        return {name: str(i) if plain else name for i, name in enumerate(kept)}

    def coarse(self) -> "Modules":
        """Of half the depth; what stands before and behind the stack stays."""
        kept = self._kept()
        names = tuple(kept[name] for name in self.names[::2])
        return Modules(self.name, tuple(kept.values()), names, self.kind, 2 * self.factor)

    def halve(self, network: nn.Module, memo: dict[int, Any]) -> None:
        """Copy every second block, and let its residual branch count twice as much as before."""
        container = network.get_submodule(self.name)
        thin = copy.copy(container)
        thin._modules = OrderedDict((new, container.get_submodule(old)) for old, new in self._kept().items())
        memo[id(container)] = half = copy.deepcopy(thin, memo)
        for name in self.coarse().names:
            Scaled.on(half.get_submodule(name), 2 * self.factor)

    def column(self, parameter: str) -> tuple[Column, list[str]] | None:
        """One tensor a block."""
        prefix = _prefix(self.name)
        child, _, rest = parameter.removeprefix(prefix).partition(".")
        if not parameter.startswith(prefix) or child not in self.names:
            return None
        if child != self.names[0]:
            return Blocks(self.depth), []
        return Blocks(self.depth), [f"{prefix}{name}.{rest}" for name in self.names]

    def step(self, network: nn.Module) -> str:  # noqa: ARG002
        """2^k."""
        return f"×{self.factor}"

    def blocks(self, network: nn.Module) -> list[nn.Module]:
        """All of them."""
        holder = network.get_submodule(self.name)
        return [holder.get_submodule(name) for name in self.names]

    def __str__(self) -> str:
        return f"{self.name or 'the network itself'}: {self.depth} × {self.kind}"


def find(network: nn.Module, names: str | Sequence[str] | None, step: int) -> list[Stack]:
    """The stacks of a network.

    Args:
        network: where to look.
        names: of the modules that hold the stacks. Without them every ``ResidualStack`` is taken, or, if
            there is none, the longest run of neighbouring modules of one class and with parameters of the
            same shapes, in every ``nn.Sequential`` and ``nn.ModuleList`` where that is long enough: the
            outermost ones, unless what they hold are sequences with longer runs.
        step: 2^(levels - 1), what a depth has to be a multiple of. One block more is allowed in a list of
            modules: then its first block stays outside the stack.

    Raises:
        ValueError: no stacks, a name that leads to none, or a depth that cannot be halved so often.
    """
    if isinstance(names, str):
        names = [names]
    if names is None:
        tensors = [n for n, m in network.named_modules() if isinstance(m, ResidualStack)]
        if tensors:
            return [_stack(network, name, step) for name in tensors]
        # If all lists are too short, the first one is refused with the depths that would do.
        lists = _candidates(network, step) or _candidates(network, 2)
        found = [_stack(network, name, step) for name in lists]
        if not found:
            raise ValueError(
                "the network has nothing to halve: no smgopt.ResidualStack, and no nn.Sequential or "
                f"nn.ModuleList with {max(2, step)} or more neighbouring blocks of one kind"
            )
        return found
    if not names:
        raise ValueError("stacks names no stack")
    for i, name in enumerate(names):
        for other in (*names[:i], *names[i + 1 :]):
            if name.startswith(_prefix(other)) or name == other:
                raise ValueError(
                    f"stacks names {name!r} and {other!r}: one lies in the other, or is the other"
                )
    return [_stack(network, name, step) for name in names]


def columns(network: nn.Module, stacks: Sequence[Stack]) -> Iterator[tuple[Column, list[nn.Parameter]]]:
    """The parameters of a network, in columns that are transferred together.

    Raises:
        ValueError: a parameter of a stack stands in another place of the network, too.
    """
    parameters = dict(network.named_parameters(remove_duplicate=False))
    _refuse_ties(parameters, stacks)
    for name, parameter in network.named_parameters():
        column: Column = Outer()
        names = [name]
        for stack in stacks:
            if (ours := stack.column(name)) is not None:
                column, names = ours
                break
        if names:
            yield column, [parameters[n] for n in names] if len(names) > 1 else [parameter]


def _stack(network: nn.Module, name: str, step: int) -> Stack:
    try:
        holder = network.get_submodule(name)
    except AttributeError:
        raise ValueError(f"the network has no module {name!r} to halve") from None
    if isinstance(holder, ResidualStack):
        _refuse(name, holder.depth, step, [])
        return Tensors(name, holder.depth)
    if not isinstance(holder, nn.Sequential | nn.ModuleList):
        raise ValueError(
            f"{name or 'the network itself'} is a {type(holder).__name__}: a stack is a ResidualStack, "
            "an nn.Sequential or an nn.ModuleList"
        )
    run = _longest_run(holder)
    if len(run) > 1 and len(run) % step == 1 and step > 1:
        run = run[1:]
    _refuse(name, len(run), step, [1])
    block = holder.get_submodule(run[0])
    if _never_called(block):
        raise ValueError(
            f"the blocks of {name or 'the network'!r} are {type(block).__name__}s, which compute nothing "
            "themselves: make the block a module whose forward(y) gives y + branch(y)"
        )
    children = tuple(child for child, _ in holder.named_children())
    # The network may itself be a coarse level of another hierarchy.
    return Modules(name, children, tuple(run), type(block).__name__, Scaled.of(block))


def _refuse(name: str, depth: int, step: int, extra: Iterable[int]) -> None:
    """Refuse a depth that is no multiple of the step, and say which depths and levels would do."""
    if depth % step == 0 and depth:
        return
    near = sorted(
        {n for m in (depth // step, depth // step + 1) for e in (0, *extra) if (n := m * step + e) >= step}
    )
    depths = " or ".join([", ".join(map(str, near[:-1])), str(near[-1])] if len(near) > 1 else map(str, near))
    most = max((n & -n).bit_length() for n in (depth, *(depth - e for e in extra)) if n > 0) if depth else 0
    raise ValueError(
        f"{step.bit_length()} levels halve the depth {step.bit_length() - 1} times, but the {depth} blocks "
        f"of {name or 'the stack'!r} are not a multiple of {step}: a depth of {depths} would do"
        + (f", or at most {most} level{'s' * (most > 1)}" if most else "")
    )


def _candidates(network: nn.Module, step: int, name: str = "") -> list[str]:
    """Lists of modules with a run that is long enough.

    Lists inside the blocks of another one are theirs; but if what looks like blocks are sequences themselves,
    the longer runs are taken: stages in a row are no blocks.
    """
    inner = [
        found
        for child, module in network.named_children()
        for found in _candidates(module, step, f"{_prefix(name)}{child}")
    ]
    if not isinstance(network, nn.Sequential | nn.ModuleList):
        return inner
    run = _longest_run(network)
    if len(run) < max(2, step) or not _may_be_residual(network.get_submodule(run[0])):
        return inner
    start = len(_prefix(name))
    longer = (len(_longest_run(network.get_submodule(found[start:]))) > len(run) for found in inner)
    return inner if isinstance(network.get_submodule(run[0]), nn.Sequential) and any(longer) else [name]


def _may_be_residual(module: nn.Module) -> bool:
    """A linear map or a convolution is no block, however many there are in a row."""
    plain = type(module).__module__.startswith("torch.nn.") and next(module.children(), None) is None
    return not plain and not _never_called(module) and next(module.parameters(), None) is not None


def _never_called(module: nn.Module) -> bool:
    """A list or dictionary of modules: the network calls what is in it."""
    return type(module).forward is nn.Module.forward


def _longest_run(holder: nn.Module) -> list[str]:
    """The names of the longest run of neighbours that are alike."""
    runs = groupby(holder.named_children(), key=lambda child: _signature(child[1]))
    return max(([name for name, _ in run] for _, run in runs), key=len, default=[])


def _signature(module: nn.Module) -> tuple[type, tuple[tuple[str, torch.Size], ...], str]:
    """What blocks of one stack have in common; also strides: a block that shrinks an image differs."""
    strides = [getattr(part, "stride", None) for part in module.modules()]
    return type(module), tuple((name, p.shape) for name, p in module.named_parameters()), repr(strides)


def _refuse_ties(parameters: dict[str, nn.Parameter], stacks: Sequence[Stack]) -> None:
    """A stack's weights are halved, so nothing outside the block that they belong to may share them.

    Weights that are shared outside the stacks, or inside a block, stay shared on every level.
    """
    places: dict[int, list[str]] = {}
    for name, parameter in parameters.items():
        places.setdefault(id(parameter), []).append(name)
    for names in places.values():
        if len({_owner(stacks, name) for name in names}) > 1:
            raise ValueError(
                f"the same weights stand at {' and '.join(names)}: a stack cannot share its weights with "
                "another part of the network, because they are halved from level to level"
            )


def _owner(stacks: Sequence[Stack], parameter: str) -> str:
    """What a parameter must stay inside of: its block, for one of a stack; anything, for all others."""
    for stack in stacks:
        if stack.column(parameter) is not None:
            prefix = _prefix(stack.name)
            return prefix + parameter.removeprefix(prefix).partition(".")[0]
    return ""


def _prefix(name: str) -> str:
    return f"{name}." if name else ""
