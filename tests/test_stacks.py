"""Hierarchies of networks that know nothing of this library."""

import copy
from collections import OrderedDict
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import smgopt
from smgopt.transfer import Blocks, Outer
from tests.problems import bits, flat


class Block(nn.Module):
    """y + Δt·relu(W y + b), as one would write it."""

    def __init__(self, width: int, dt: float) -> None:
        super().__init__()
        self.map, self.dt = nn.Linear(width, width, dtype=torch.float64), dt

    def forward(self, y: Tensor) -> Tensor:
        return y + self.dt * torch.relu(self.map(y))


def twins(depth: int) -> tuple[smgopt.ResNet, nn.Sequential]:
    """The paper's network, and the same one as a plain list of modules."""
    net = smgopt.ResNet(6, 3, width=4, depth=depth, dtype=torch.float64)
    plain = nn.Sequential(
        nn.Linear(6, 4, dtype=torch.float64),
        *(Block(4, 1 / depth) for _ in range(depth)),
        nn.Linear(4, 3, dtype=torch.float64),
    )
    with torch.no_grad():
        plain[0].load_state_dict(net.opening.state_dict())
        plain[-1].load_state_dict(net.closing.state_dict())
        for n in range(depth):
            block = plain[1 + n]
            assert isinstance(block, Block)
            block.map.weight.copy_(net.stack.W[n])
            block.map.bias.copy_(net.stack.b[n])
    return net, plain


@pytest.mark.parametrize("gradient_restriction", ["injection", "adjoint"])
@pytest.mark.parametrize("boundary", ["zero", "constant"])
def test_a_plain_list_of_blocks_is_trained_as_the_residual_stack_is(
    gradient_restriction: Any, boundary: Any
) -> None:
    net, plain = twins(64)
    x, y = torch.randn(20, 6, dtype=torch.float64), torch.arange(20) % 3
    for network in (net, plain):
        hier = smgopt.Hierarchy(network, levels=4)
        opt = smgopt.SMGOpt(
            hier, 0.2, gradient_restriction=gradient_restriction, boundary=boundary, weight_decay=0.01
        )
        for _ in range(3):
            opt.step(lambda n: F.cross_entropy(n(x), y))
    blocks = [m for m in plain if isinstance(m, Block)]
    assert len(blocks) == 64
    torch.testing.assert_close(torch.stack([b.map.weight for b in blocks]), net.stack.W, rtol=0, atol=1e-10)
    torch.testing.assert_close(torch.stack([b.map.bias for b in blocks]), net.stack.b, rtol=0, atol=1e-10)
    torch.testing.assert_close(plain[0].weight, net.opening.weight, rtol=0, atol=1e-10)
    torch.testing.assert_close(plain[-1].bias, net.closing.bias, rtol=0, atol=1e-10)


def test_a_coarse_level_holds_every_second_block_and_doubles_its_branch() -> None:
    _, plain = twins(8)
    hier = smgopt.Hierarchy(plain, levels=3)
    x = torch.randn(5, 6, dtype=torch.float64)
    for level, every in ((0, 4), (1, 2), (2, 1)):
        y = plain[0](x)
        for n in range(0, 8, every):
            y = y + every * (plain[1 + n](y) - y)
        torch.testing.assert_close(hier[level](x), plain[-1](y))
    assert list(hier[0].state_dict()) == [
        f"{i}.{name}"
        for i, name in enumerate(["weight", "map.weight", "map.weight", "weight"])
        for name in (name, name.replace("weight", "bias"))
    ]


def test_the_finest_level_is_the_model_itself() -> None:
    _, plain = twins(8)
    x = torch.randn(5, 6, dtype=torch.float64)
    before, keys, weights = plain(x), list(plain.state_dict()), bits(plain)
    hier = smgopt.Hierarchy(plain, levels=3)
    assert hier[-1] is plain
    assert list(plain.state_dict()) == keys
    assert bits(plain) == weights
    assert torch.equal(plain(x), before)
    assert not any(m._forward_hooks for m in plain.modules())


def test_what_was_found_is_printed() -> None:
    _, plain = twins(8)
    lines = str(smgopt.Hierarchy(plain, levels=3)).splitlines()
    assert lines[-1] == "the network itself: 8 × Block"
    assert [line.split()[2] for line in lines[2:5]] == ["×1", "×2", "×4"]


class Stages(nn.Module):
    """Two stages of different widths, with named blocks, and a block too many in the second."""

    def __init__(self) -> None:
        super().__init__()
        self.open = nn.Linear(6, 4, dtype=torch.float64)
        self.one = nn.Sequential(OrderedDict((f"block{i}", Block(4, 0.25)) for i in range(4)))
        self.between = nn.Linear(4, 2, dtype=torch.float64)
        self.two = nn.ModuleList(Block(2, 0.2) for _ in range(5))

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.between(self.one(self.open(x)))
        for block in self.two:
            y = block(y)
        return y


def test_several_stacks_of_different_widths() -> None:
    net = Stages()
    hier = smgopt.Hierarchy(net, levels=3)
    assert hier.depths == (2, 4, 8)
    assert [str(stack) for stack in hier.stacks[-1]] == ["one: 4 × Block", "two: 4 × Block"]
    coarsest = hier[0]
    assert isinstance(coarsest, Stages)
    assert [name for name, _ in coarsest.one.named_children()] == ["block0"]
    # The fifth block of the second stage cannot be halved with the others: the first one stays outside.
    assert len(coarsest.two) == 2
    assert torch.equal(coarsest.two[0].map.weight, net.two[0].map.weight)  # type: ignore[union-attr, arg-type]
    assert torch.equal(coarsest.two[1].map.weight, net.two[1].map.weight)  # type: ignore[union-attr, arg-type]
    kinds = [column for column, _ in hier.columns(2)]
    assert kinds.count(Blocks(4)) == 4
    assert kinds.count(Outer()) == 0 or sum(isinstance(k, Outer) for k in kinds) == 6
    x, y = torch.randn(20, 6, dtype=torch.float64), torch.arange(20) % 2
    opt = smgopt.SMGOpt(hier, 0.2)
    losses = [opt.step(lambda n: F.cross_entropy(n(x), y)).item() for _ in range(10)]
    assert losses[-1] < losses[0]
    assert smgopt.Hierarchy(net, levels=3, stacks=["one"]).depths == (1, 2, 4)
    assert smgopt.Hierarchy(net, levels=3, stacks="two").depths == (1, 2, 4)


def test_restrict_reaches_blocks_and_buffers() -> None:
    def stack() -> nn.Sequential:
        return nn.Sequential(*(nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 3)) for _ in range(4)))

    net, other = stack(), stack()
    hier = smgopt.Hierarchy(net, levels=2)
    other(torch.randn(10, 3) + 5)  # moves its statistics
    net.load_state_dict(other.state_dict())
    hier.restrict()
    for coarse, fine in zip(hier[0].children(), list(other.children())[::2], strict=True):
        assert bits(coarse) == bits(fine)
        for a, b in zip(coarse.buffers(), fine.buffers(), strict=True):
            assert torch.equal(a, b)


class Fancy(nn.Module):
    """A block with an extra argument, and more than one output."""

    def __init__(self) -> None:
        super().__init__()
        self.map = nn.Linear(3, 3)

    def forward(self, hidden: Tensor, scale: float = 1.0) -> tuple[Tensor, str]:
        return hidden + scale * torch.tanh(self.map(hidden)), "more"


def test_blocks_with_extra_arguments_and_outputs() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.ModuleList(Fancy() for _ in range(4))

        def forward(self, x: Tensor) -> Tensor:
            for layer in self.layer:
                x, more = layer(hidden=x, scale=0.5)
                assert more == "more"
            return x

    net = Net()
    x = torch.randn(5, 3)
    hier = smgopt.Hierarchy(net, levels=2, stacks="layer")
    y = x
    for layer in list(net.layer)[::2]:
        y = y + 2 * 0.5 * torch.tanh(layer.map(y))  # type: ignore[operator]
    torch.testing.assert_close(hier[0](x), y)


# -- What cannot be ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("count", "levels", "message"),
    [
        (
            7,
            3,
            "7 blocks of 'stack' are not a multiple of 4: a depth of 4, 5, 8 or 9 would do",
        ),
        (2, 3, "a depth of 4 or 5 would do, or at most 2 levels"),
    ],
)
def test_depths_that_would_do(count: int, levels: int, message: str) -> None:
    net = nn.Sequential(OrderedDict(stack=nn.Sequential(*(Block(2, 1.0) for _ in range(count)))))
    with pytest.raises(ValueError, match=message):
        smgopt.Hierarchy(net, levels, stacks="stack")


def test_nothing_to_halve() -> None:
    with pytest.raises(ValueError, match="nothing to halve"):
        smgopt.Hierarchy(nn.Sequential(*(nn.Linear(3, 3) for _ in range(8))), levels=2)
    with pytest.raises(ValueError, match="no module 'encoder'"):
        smgopt.Hierarchy(nn.Linear(3, 3), levels=2, stacks="encoder")
    with pytest.raises(ValueError, match="0 is a Linear"):
        smgopt.Hierarchy(nn.Sequential(nn.Linear(3, 3)), levels=2, stacks="0")
    with pytest.raises(ValueError, match="names no stack"):
        smgopt.Hierarchy(nn.Linear(3, 3), levels=2, stacks=[])


def test_blocks_that_change_the_shape() -> None:
    class Half(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.map = nn.Conv2d(3, 3, 3, stride=2, padding=1)

        def forward(self, x: Tensor) -> Tensor:
            y: Tensor = self.map(x)
            return y

    hier = smgopt.Hierarchy(nn.Sequential(*(Half() for _ in range(4))), levels=2)
    with pytest.raises(
        ValueError, match=r"Half is no residual block: it makes \(1, 3, 8, 8\) of \(1, 3, 16, 16\)"
    ):
        hier[0](torch.zeros(1, 3, 16, 16))


def test_blocks_that_share_their_weights() -> None:
    blocks = [Block(2, 1.0) for _ in range(4)]
    blocks[3].map = blocks[0].map
    with pytest.raises(ValueError, match=r"the same weights stand at 0\.map\.weight and 3\.map\.weight"):
        smgopt.Hierarchy(nn.Sequential(*blocks), levels=2)


def test_blocks_that_are_frozen_in_part() -> None:
    _, plain = twins(8)
    plain[1].requires_grad_(False)
    with pytest.raises(ValueError, match="some blocks of a stack are frozen"):
        smgopt.SMGOpt(smgopt.Hierarchy(plain, levels=3))


def test_a_whole_stack_may_be_frozen() -> None:
    net = Stages()
    net.one.requires_grad_(False)
    before = bits(net.one)
    x, y = torch.randn(20, 6, dtype=torch.float64), torch.arange(20) % 2
    opt = smgopt.SMGOpt(smgopt.Hierarchy(net, levels=3), 0.2)
    start = flat(net.two)
    for _ in range(3):
        opt.step(lambda n: F.cross_entropy(n(x), y))
    assert bits(net.one) == before
    assert not torch.equal(flat(net.two), start)


def test_a_hierarchy_can_be_copied() -> None:
    _, plain = twins(8)
    hier = smgopt.Hierarchy(plain, levels=3)
    twin = copy.deepcopy(hier)
    x = torch.randn(5, 6, dtype=torch.float64)
    twin[-1].requires_grad_(True)
    for ours, theirs in zip(hier, twin, strict=True):
        assert torch.equal(ours(x), theirs(x))
    twin.restrict()
    assert bits(twin[0]) == bits(hier[0])


# -- Corners ----------------------------------------------------------------------------------------


def test_a_hierarchy_of_a_coarse_level_goes_on_counting() -> None:
    _, plain = twins(8)
    through = smgopt.Hierarchy(smgopt.Hierarchy(plain, levels=2)[0], levels=2)
    x = torch.randn(5, 6, dtype=torch.float64)
    assert torch.equal(through[0](x), smgopt.Hierarchy(plain, levels=3)[0](x))
    assert [stack.step(n) for n, (stack,) in zip(through, through.stacks, strict=True)] == ["×4", "×2"]


def test_blocks_that_overwrite_their_input_are_refused() -> None:
    class InPlace(Block):
        def forward(self, y: Tensor) -> Tensor:
            y += self.dt * torch.relu(self.map(y))
            return y

    hier = smgopt.Hierarchy(nn.Sequential(*(InPlace(4, 0.1) for _ in range(4))), levels=2)
    x = torch.randn(3, 4, dtype=torch.float64)
    hier[-1](x.clone())
    with torch.no_grad(), pytest.raises(ValueError, match="InPlace overwrites its input"):
        hier[0](x)


def test_skipped_blocks_are_residual_blocks() -> None:
    class Skipped(Block):
        def forward(self, y: Tensor) -> Tensor:
            return y

    hier = smgopt.Hierarchy(nn.Sequential(*(Skipped(4, 0.1) for _ in range(4))), levels=2)
    x = torch.randn(3, 4, dtype=torch.float64)
    assert torch.equal(hier[0](x), x)


@pytest.mark.parametrize("stacks", [["one", "one"], ["", "one"], ["one", ""]])
def test_stacks_named_twice(stacks: list[str]) -> None:
    with pytest.raises(ValueError, match="one lies in the other"):
        smgopt.Hierarchy(Stages(), levels=2, stacks=stacks)


@pytest.mark.parametrize("names", [["0", "1", "2", "3", "head"], ["1", "2", "3", "4"], ["a", "b", "c", "d"]])
def test_names_of_blocks(names: list[str]) -> None:
    blocks: list[tuple[str, nn.Module]] = [(name, Block(4, 0.25)) for name in names[:4]]
    if len(names) > 4:
        blocks.append((names[4], nn.Linear(4, 3, dtype=torch.float64)))
    net = nn.Sequential(OrderedDict(blocks))
    hier = smgopt.Hierarchy(net, levels=3)
    assert [name for name, _ in hier[0].named_children()] == [names[0], *names[4:]]
    x = torch.randn(5, 4, dtype=torch.float64)
    smgopt.SMGOpt(hier, 0.1).step(lambda n: n(x).square().mean())


def test_freezing_after_the_hierarchy_is_made() -> None:
    net = Stages()
    hier = smgopt.Hierarchy(net, levels=3)
    net.open.requires_grad_(False)
    before = bits(net.open)
    x, y = torch.randn(20, 6, dtype=torch.float64), torch.arange(20) % 2
    opt = smgopt.SMGOpt(hier, 0.2)
    opt.step(lambda n: F.cross_entropy(n(x), y))
    assert bits(net.open) == before
    net.two.requires_grad_(False)
    with pytest.raises(RuntimeError, match="since the optimizer was made"):
        opt.step(lambda n: F.cross_entropy(n(x), y))


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_a_padded_batch_in_evaluation() -> None:
    """Torch's encoder then computes with nested tensors."""
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    hier = smgopt.Hierarchy(nn.TransformerEncoder(layer, 4), levels=2)
    x, mask = torch.randn(2, 5, 8), torch.zeros(2, 5, dtype=torch.bool)
    mask[1, 3:] = True
    hier[0].eval()
    with_grad = hier[0](x, src_key_padding_mask=mask)
    with torch.no_grad():
        torch.testing.assert_close(hier[0](x, src_key_padding_mask=mask)[0], with_grad[0])


def test_buffers_that_cannot_be_written() -> None:
    class Masked(Block):
        def __init__(self) -> None:
            super().__init__(4, 0.1)
            self.register_buffer("mask", torch.ones(1, 4, dtype=torch.float64).expand(3, 4))

    hier = smgopt.Hierarchy(nn.Sequential(*(Masked() for _ in range(4))), levels=2)
    hier.restrict()
    x = torch.randn(5, 4, dtype=torch.float64)
    smgopt.SMGOpt(hier, 0.1).step(lambda n: n(x).square().mean())


def test_recalibration_needs_batches_that_can_be_had_again() -> None:
    hier = smgopt.Hierarchy(nn.Sequential(*(nn.Sequential(nn.BatchNorm1d(3)) for _ in range(4))), levels=2)
    with pytest.raises(ValueError, match="iterated only once"):
        hier.recalibrate(x for x in [torch.ones(5, 3)])


class Pairs(nn.Module):
    """As transformers are often written: the parts of a block stand in a list, and the network adds them."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)]) for _ in range(4))

    def forward(self, y: Tensor) -> Tensor:
        for parts in self.layers:
            assert isinstance(parts, nn.ModuleList)
            for part in parts:
                y = y + part(y)
        return y


def test_parts_of_blocks_are_no_blocks() -> None:
    with pytest.raises(ValueError, match="nothing to halve"):
        smgopt.Hierarchy(Pairs(), levels=2)
    with pytest.raises(ValueError, match=r"blocks of 'layers' are ModuleLists, which compute nothing"):
        smgopt.Hierarchy(Pairs(), levels=2, stacks="layers")


class Direct(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block(4, 0.25) for _ in range(4))

    def forward(self, y: Tensor) -> Tensor:
        for block in self.blocks:
            y = block.forward(y)
        return y


def test_blocks_whose_hooks_do_not_run_are_refused() -> None:
    net = Direct()
    before, y = bits(net), torch.randn(5, 4, dtype=torch.float64)
    opt = smgopt.SMGOpt(smgopt.Hierarchy(net, levels=2), 0.1)
    with pytest.raises(RuntimeError, match="level 0 has not called the blocks of 'blocks' as modules"):
        opt.step(lambda n: n(y).square().mean())
    assert bits(net) == before


def test_of_lists_within_lists_the_longest_runs_are_found() -> None:
    stages = nn.Sequential(*(nn.Sequential(*(Block(4, 0.1) for _ in range(8))) for _ in range(2)))
    assert smgopt.Hierarchy(stages, levels=2).depths == (8, 16)
    blocks = nn.Sequential(*(nn.Sequential(Block(4, 0.1), Block(4, 0.1)) for _ in range(8)))
    assert smgopt.Hierarchy(blocks, levels=2).depths == (4, 8)


class Image(nn.Module):
    def __init__(self, stride: int) -> None:
        super().__init__()
        self.conv, self.stride = nn.Conv2d(4, 4, 3, padding=1, stride=stride), stride

    def forward(self, y: Tensor) -> Tensor:
        out: Tensor = y[..., :: self.stride, :: self.stride] + self.conv(y)
        return out


def test_a_block_that_shrinks_the_image_stays_outside() -> None:
    hier = smgopt.Hierarchy(nn.Sequential(Image(2), *(Image(1) for _ in range(4))), levels=2)
    assert hier.depths == (2, 4)
    assert hier[0](torch.ones(1, 4, 8, 8)).shape == (1, 4, 4, 4)


class Heads(nn.Module):
    """A block with a longer list inside."""

    def __init__(self) -> None:
        super().__init__()
        self.heads = nn.ModuleList(nn.Sequential(nn.Linear(4, 1), nn.Tanh()) for _ in range(8))
        self.join = nn.Linear(8, 4)

    def forward(self, y: Tensor) -> Tensor:
        out: Tensor = y + self.join(torch.cat([head(y) for head in self.heads], -1))
        return out


def test_lists_inside_blocks_are_the_blocks_own() -> None:
    net = nn.Sequential(*(Heads() for _ in range(4)))
    hier = smgopt.Hierarchy(net, levels=2)
    assert hier.depths == (2, 4)
    assert [stack.name for stack in hier.stacks[0]] == [""]


class Skipping(nn.Module):
    """Stochastic depth: some blocks, or all of them, are left out."""

    def __init__(self) -> None:
        super().__init__()
        self.opening = nn.Linear(4, 4, dtype=torch.float64)
        self.blocks = nn.ModuleList(Block(4, 0.25) for _ in range(4))

    def forward(self, y: Tensor) -> Tensor:
        y = self.opening(y)
        for block in self.blocks:
            if torch.rand(()) < 0.3:
                y = block(y)
        return y


def test_a_network_may_leave_all_blocks_out_for_a_while() -> None:
    net, y = Skipping(), torch.randn(5, 4, dtype=torch.float64)
    hier = smgopt.Hierarchy(net, levels=2)
    opt = smgopt.SMGOpt(hier, 0.01)
    for seed in range(20):
        torch.manual_seed(seed)
        opt.step(lambda n: n(y).square().mean())
    assert hier._called == {(0, "blocks")}
