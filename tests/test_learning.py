"""Whether it learns: on MNIST-1D, made on the machine, and on MNIST where SMGOPT_DATA names its folder."""

import os
from itertools import islice

import pytest
import torch
import torch.nn.functional as F

import smgopt
from smgopt.lab import data


def train(
    ds: data.Dataset, levels: int, smoothing: smgopt.smoothing.Smoothing, cycles: int, seed: int
) -> tuple[float, float]:
    """The training loss and the test accuracy of the finest network, 256 blocks of width 10, at the end."""
    torch.manual_seed(seed)
    net = smgopt.ResNet(ds.x[0].numel(), ds.classes, width=10, depth=256)
    opt = smgopt.SMGOpt(smgopt.Hierarchy(net, levels), lr=0.1, smoothing=smoothing)
    generator = torch.Generator().manual_seed(seed)
    epochs = (data.batches(ds.x, ds.y, 1000, generator) for _ in range(cycles))
    for x, y in islice((batch for epoch in epochs for batch in epoch), cycles):
        opt.step(lambda network, x=x, y=y: F.cross_entropy(network(x), y))  # type: ignore[misc]
    with torch.no_grad():
        loss = F.cross_entropy(net(ds.x), ds.y).item()
        accuracy = (net(ds.x_test).argmax(1) == ds.y_test).double().mean().item()
    return loss, accuracy


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_lower_training_loss_than_sgd_in_as_many_steps(seed: int) -> None:
    ds = data.load("mnist1d")
    multilevel, _ = train(ds, 4, smgopt.TABLE_1[4], cycles=100, seed=seed)
    sgd, _ = train(ds, 1, smgopt.TABLE_1[1], cycles=100, seed=seed)
    assert multilevel < sgd


@pytest.mark.skipif("SMGOPT_DATA" not in os.environ, reason="SMGOPT_DATA names no folder with MNIST")
@pytest.mark.parametrize(("levels", "least", "most"), [(1, 0.0, 0.80), (4, 0.85, 1.0), (8, 0.88, 1.0)])
def test_mnist_after_ten_cycles(levels: int, least: float, most: float) -> None:
    ds = data.load("mnist")
    accuracies = [train(ds, levels, smgopt.TABLE_1[levels], cycles=10, seed=seed)[1] for seed in range(3)]
    assert least <= sum(accuracies) / 3 < most
