import pytest
import torch
from torch import nn

import smgopt
from smgopt.transfer import Depth, Outer


def test_levels_halve_the_depth_and_keep_the_finest() -> None:
    net = smgopt.ResNet(5, 3, width=4, depth=16)
    hier = smgopt.Hierarchy(net, levels=4)
    assert hier[-1] is net
    assert hier.depths == (2, 4, 8, 16)
    assert [n.stack.dt for n in hier] == [1 / 2, 1 / 4, 1 / 8, 1 / 16]  # type: ignore[union-attr]
    assert list(hier[1:3]) == [hier[1], hier[2]]
    assert len(hier) == 4


def test_every_level_starts_from_restricted_weights() -> None:
    net = smgopt.ResNet(5, 3, width=4, depth=16)
    for level, network in enumerate(smgopt.Hierarchy(net, levels=4)):
        assert isinstance(network, smgopt.ResNet)
        assert torch.equal(network.stack.W, net.stack.W[:: 2 ** (3 - level)])
        assert torch.equal(network.stack.b, net.stack.b[:: 2 ** (3 - level)])
        assert torch.equal(network.opening.weight, net.opening.weight)
        assert level == 3 or network.opening.weight is not net.opening.weight


def test_restrict_follows_the_finest_network() -> None:
    net = smgopt.ResNet(5, 3, width=4, depth=8)
    hier = smgopt.Hierarchy(net, levels=3)
    net.load_state_dict(smgopt.ResNet(5, 3, width=4, depth=8).state_dict())
    hier.restrict()
    coarsest = hier[0]
    assert isinstance(coarsest, smgopt.ResNet)
    assert torch.equal(coarsest.stack.W, net.stack.W[::4])
    assert torch.equal(coarsest.closing.bias, net.closing.bias)


def test_the_table() -> None:
    hier = smgopt.Hierarchy(smgopt.ResNet(784, 10, width=10, depth=2048), levels=8)
    lines = str(hier).splitlines()
    assert lines[0] == "Hierarchy of 8 levels"
    assert lines[1].split() == ["level", "blocks", "step", "parameters", "work"]
    assert lines[2].split() == ["7", "2048", "0.000488", "233240", "50.2%"]
    assert lines[9].split() == ["0", "16", "0.0625", "9720", "0.4%"]
    assert lines[10].endswith("1.99 of the finest")
    assert lines[11] == "stack: 2048 blocks of a ResidualStack"
    assert repr(hier) == "Hierarchy(ResNet, levels=8, depths=(16, 32, 64, 128, 256, 512, 1024, 2048))"


def test_any_module_with_stacks_will_do() -> None:
    net = nn.Sequential(
        nn.Linear(5, 4),
        smgopt.ResidualStack(4, 8),
        nn.Linear(4, 2),
        smgopt.ResidualStack(2, 4),
        nn.LayerNorm(2),
    )
    hier = smgopt.Hierarchy(net, levels=3)
    assert hier.depths == (3, 6, 12)
    assert hier[0](torch.randn(3, 5)).shape == (3, 2)
    kinds = [type(column) for column, _ in hier.columns(0)]
    assert kinds.count(Depth) == 4
    assert kinds.count(Outer) == 6
    assert smgopt.Hierarchy(smgopt.ResidualStack(3, 4), levels=2).depths == (2, 4)


@pytest.mark.parametrize(
    ("depth", "levels", "message"),
    [
        (100, 4, "a depth of 96 or 104 would do, or at most 3 levels"),
        (4, 4, "a depth of 8 would do, or at most 3 levels"),
        (7, 2, "a depth of 6 or 8 would do, or at most 1 level$"),
        (8, 0, "levels must be at least 1"),
    ],
)
def test_depths_that_cannot_be_halved(depth: int, levels: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        smgopt.Hierarchy(smgopt.ResNet(3, 2, width=2, depth=depth), levels)


def test_a_model_without_a_stack() -> None:
    with pytest.raises(ValueError, match="nothing to halve"):
        smgopt.Hierarchy(nn.Linear(3, 2), levels=2)


def test_weights_tied_into_a_stack_are_refused_by_name() -> None:
    first, second = smgopt.ResidualStack(3, 4), smgopt.ResidualStack(3, 4)
    second.W = first.W
    with pytest.raises(ValueError, match=r"0\.W and 1\.W"):
        smgopt.Hierarchy(nn.Sequential(first, second), levels=2)


def test_weights_tied_outside_the_stacks_stay_tied() -> None:
    net = smgopt.ResNet(4, 4, width=4, depth=4)
    net.closing.weight = net.opening.weight
    coarse = smgopt.Hierarchy(net, levels=2)[0]
    assert isinstance(coarse, smgopt.ResNet)
    assert coarse.closing.weight is coarse.opening.weight


def test_moving_the_hierarchy_moves_every_level() -> None:
    hier = smgopt.Hierarchy(smgopt.ResNet(3, 2, width=2, depth=4), levels=2).to(torch.float64)
    assert {p.dtype for network in hier for p in network.parameters()} == {torch.float64}
