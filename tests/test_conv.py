import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import smgopt


def test_layers_and_shapes() -> None:
    net = smgopt.ConvResNet(inputs=1, outputs=7, width=4, depth=2)
    assert net(torch.randn(3, 1, 28, 28)).shape == (3, 7)
    layers = [m for m in net.modules() if isinstance(m, nn.Conv2d | nn.Linear)]
    assert len(layers) == 6 * 2 + 4


@pytest.mark.parametrize("norm", ["batch", "group", "none"])
def test_a_hierarchy_halves_all_three_stages(norm: smgopt.networks.Norm) -> None:
    net = smgopt.ConvResNet(inputs=3, outputs=4, width=4, depth=4, norm=norm)
    hier = smgopt.Hierarchy(net, levels=3)
    assert hier.depths == (3, 6, 12)
    assert [stack.name for stack in hier.stacks[0]] == ["stage1", "stage2", "stage3"]
    x, y = torch.randn(12, 3, 16, 16), torch.arange(12) % 4
    opt = smgopt.SMGOpt(hier, 0.05)
    losses = [opt.step(lambda n: F.cross_entropy(n(x), y)).item() for _ in range(5)]
    assert losses[-1] < losses[0]


def test_compiled_levels_take_the_same_steps() -> None:
    net = smgopt.ConvResNet(inputs=3, outputs=4, width=4, depth=2, norm="group").double()
    x, y = torch.randn(6, 3, 8, 8, dtype=torch.float64), torch.arange(6) % 4
    losses = []
    for compiled in (False, True):
        hier = smgopt.Hierarchy(copy.deepcopy(net), levels=2)
        if compiled:
            # Traced as always, but run by torch: that needs no C++ compiler.
            assert hier.compile(backend="eager") is hier
            assert hier[0]._compiled_call_impl is not None
        opt = smgopt.SMGOpt(hier, 0.05)
        losses.append([opt.step(lambda n: F.cross_entropy(n(x), y)).item() for _ in range(3)])
    assert losses[0] == pytest.approx(losses[1], rel=1e-10)


def test_bad_arguments() -> None:
    with pytest.raises(ValueError, match="depth must be at least 1"):
        smgopt.ConvResNet(3, 10, 16, 0)
    with pytest.raises(ValueError, match="norm must be one of batch, group, none"):
        smgopt.ConvResNet(3, 10, 16, 2, norm="layer")  # type: ignore[arg-type]
