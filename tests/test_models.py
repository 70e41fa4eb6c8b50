"""Models that nobody here wrote, with random weights: a hierarchy in one line, and a loss that falls."""

import copy
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import smgopt
from tests.problems import bits

transformers = pytest.importorskip("transformers")

Problem = tuple[nn.Module, Callable[[nn.Module], Tensor], str, int]
labels = torch.arange(8) % 2


def vit() -> Problem:
    config = transformers.ViTConfig(
        hidden_size=16,
        num_hidden_layers=8,
        num_attention_heads=2,
        intermediate_size=32,
        image_size=16,
        patch_size=8,
    )
    x = torch.randn(8, 3, 16, 16)
    return (
        transformers.ViTForImageClassification(config),
        lambda net: F.cross_entropy(net(x).logits, labels),
        "8 × ViTLayer",
        3,
    )


def bert() -> Problem:
    config = transformers.BertConfig(
        vocab_size=50,
        hidden_size=16,
        num_hidden_layers=8,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=16,
    )
    words = torch.randint(50, (8, 12))
    mask = torch.ones_like(words)
    mask[:, 9:] = 0
    return (
        transformers.BertForSequenceClassification(config),
        lambda net: net(input_ids=words, attention_mask=mask, labels=labels).loss,
        "8 × BertLayer",
        3,
    )


def resnet() -> Problem:
    # The first block of a stage has a projection of its own: five blocks make a stack of four.
    config = transformers.ResNetConfig(
        embedding_size=8, hidden_sizes=[8, 16], depths=[5, 5], layer_type="basic", num_channels=3
    )
    x = torch.randn(8, 3, 32, 32)
    return (
        transformers.ResNetForImageClassification(config),
        lambda net: F.cross_entropy(net(x).logits, labels),
        "4 × ResNetBasicLayer",
        3,
    )


def transformer_encoder() -> Problem:
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, norm_first=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about nested tensors, that norm_first makes them useless
        net = nn.TransformerEncoder(layer, 8)
    for p in net.parameters():
        if p.dim() > 1:
            nn.init.xavier_uniform_(p)
    x = torch.randn(8, 5, 16)
    return net, lambda net: (net(x) - 1).square().mean(), "8 × TransformerEncoderLayer", 3


@pytest.mark.parametrize("make", [vit, bert, resnet, transformer_encoder])
def test_three_cycles(make: Callable[[], Problem]) -> None:
    net, loss, found, levels = make()
    fresh = copy.deepcopy(net)
    net.eval()
    keys, before, weights = list(net.state_dict()), loss(net), bits(net)

    hier = smgopt.Hierarchy(net, levels)
    assert hier[-1] is net
    assert found in str(hier)
    assert torch.equal(loss(net), before)
    assert bits(net) == weights

    net.train()
    opt = smgopt.SMGOpt(hier, 0.02)
    losses = [opt.step(loss).item() for _ in range(3)]
    assert loss(net).item() < losses[0]
    net.eval()
    assert any(c is not None and c.alpha > 0 for c in opt.last_cycle), "no correction was ever of use"
    for c in opt.last_cycle[1:]:
        assert c is not None
        assert c.change <= 0

    assert list(net.state_dict()) == keys
    fresh.load_state_dict(net.state_dict())
    fresh.eval()
    assert torch.equal(loss(fresh), loss(net))

    # A coarse level is a network, too: it is saved, and loaded into one that is made in the same way.
    again = smgopt.Hierarchy(fresh, levels)
    again[0].load_state_dict(hier[0].state_dict())
    assert bits(again[0]) == bits(hier[0])


def test_stacks_can_be_named() -> None:
    net, *_ = bert()
    assert smgopt.Hierarchy(net, 2, stacks="bert.encoder.layer").depths == (4, 8)
    net, *_ = resnet()
    named: Any = ["resnet.encoder.stages.0.layers", "resnet.encoder.stages.1.layers"]
    assert smgopt.Hierarchy(net, 2, stacks=named).depths == (4, 8)
    assert smgopt.Hierarchy(net, 2, stacks=named[:1]).depths == (2, 4)


@pytest.mark.parametrize("make", [vit, bert, resnet, transformer_encoder])
def test_memory_of_a_hierarchy(make: Callable[[], Problem]) -> None:
    """At most 2.2 times the finest network's parameters; the optimizer keeps nothing between two steps."""
    net, loss, _, levels = make()
    hier = smgopt.Hierarchy(net, levels)
    opt = smgopt.SMGOpt(hier, 0.1)
    opt.step(loss)
    total = sum(p.numel() for network in hier for p in network.parameters())
    assert total <= 2.2 * sum(p.numel() for p in net.parameters())
    assert not opt.state
    assert all(p.grad is None for network in hier for p in network.parameters())
