"""Randomness and running statistics inside a network, over one cycle."""

import copy
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import smgopt
from tests.problems import bits


class Noisy(nn.Module):
    """A residual block with batch normalisation and dropout."""

    def __init__(self, dropout: float = 0.3) -> None:
        super().__init__()
        self.norm, self.map, self.drop = nn.BatchNorm1d(4), nn.Linear(4, 4), nn.Dropout(dropout)

    def forward(self, y: Tensor) -> Tensor:
        out: Tensor = y + 0.2 * self.drop(torch.relu(self.map(self.norm(y))))
        return out


def problem(dropout: float = 0.3, blocks: int = 8) -> tuple[nn.Sequential, Callable[[nn.Module], Tensor]]:
    net = nn.Sequential(nn.Linear(6, 4), *(Noisy(dropout) for _ in range(blocks)), nn.Linear(4, 3))
    x, y = torch.randn(30, 6) + 1, torch.arange(30) % 3
    return net, lambda network: F.cross_entropy(network(x), y)


def counts(network: nn.Module) -> set[int]:
    return {int(m.num_batches_tracked) for m in network.modules() if isinstance(m, nn.BatchNorm1d)}  # type: ignore[arg-type]


def test_all_evaluations_of_a_cycle_draw_the_same_numbers() -> None:
    net, loss = problem()
    hier = smgopt.Hierarchy(net, levels=3)
    seen: dict[int, list[Tensor]] = {}

    def watched(network: nn.Module) -> Tensor:
        noise = torch.rand(3)
        seen.setdefault(id(network), []).append(noise)
        return loss(network)

    opt = smgopt.SMGOpt(hier, 0.1, smoothing=((2, 0), (2, 2), (1, 1)))
    opt.step(watched)
    first = {level: noise[0] for level, noise in seen.items()}
    assert len(seen) == 3
    for noise in seen.values():
        assert len(noise) > 1
        assert all(torch.equal(n, noise[0]) for n in noise)
    seen.clear()
    opt.step(watched)
    assert not any(torch.equal(noise[0], first[level]) for level, noise in seen.items())


def test_a_line_search_with_dropout_compares_like_with_like() -> None:
    net, loss = problem(dropout=0.5)
    opt = smgopt.SMGOpt(smgopt.Hierarchy(net, levels=3), 0.05)
    for _ in range(20):
        opt.step(loss)
        finest = opt.last_cycle[-1]
        assert finest is not None
        assert finest.loss_after <= finest.loss_before


def test_statistics_move_once_a_cycle_on_every_level() -> None:
    net, loss = problem()
    hier = smgopt.Hierarchy(net, levels=3)
    opt = smgopt.SMGOpt(hier, 0.1, smoothing=((2, 0), (2, 2), (1, 1)))
    for cycle in (1, 2, 3):
        opt.step(loss)
        assert [counts(network) for network in hier] == [{cycle}] * 3
    # Every level has statistics of its own.
    coarse, fine = (network.get_submodule("2.norm") for network in (hier[0], hier[-1]))
    assert isinstance(coarse, nn.BatchNorm1d)
    assert isinstance(fine, nn.BatchNorm1d)
    assert coarse.running_mean is not None
    assert fine.running_mean is not None
    assert not torch.equal(coarse.running_mean, fine.running_mean)


def test_one_level_is_still_exactly_sgd() -> None:
    net, loss = problem()
    twin = copy.deepcopy(net)
    torch.manual_seed(7)
    opt = smgopt.SMGOpt(smgopt.Hierarchy(net, levels=1), 0.1)
    for _ in range(5):
        opt.step(loss)
    torch.manual_seed(7)
    sgd = torch.optim.SGD(twin.parameters(), 0.1)
    for _ in range(5):
        sgd.zero_grad()
        loss(twin).backward()  # type: ignore[no-untyped-call]
        sgd.step()
    assert bits(net) == bits(twin)
    for ours, theirs in zip(net.buffers(), twin.buffers(), strict=True):
        assert torch.equal(ours, theirs)


def test_a_failed_cycle_leaves_the_statistics_as_they_were() -> None:
    net, loss = problem()
    hier = smgopt.Hierarchy(net, levels=3)
    opt = smgopt.SMGOpt(hier, 0.1)
    opt.step(loss)
    before = [b.clone() for network in hier for b in network.buffers()]
    calls = 0

    def failing(network: nn.Module) -> Tensor:
        nonlocal calls
        calls += 1
        if calls == 5:
            raise KeyboardInterrupt
        return loss(network)

    with pytest.raises(KeyboardInterrupt):
        opt.step(failing)
    after = [b for network in hier for b in network.buffers()]
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))


def test_coarse_levels_follow_the_mode_of_the_finest() -> None:
    net, loss = problem()
    hier = smgopt.Hierarchy(net, levels=3)
    net.eval()
    net.get_submodule("1").train()
    smgopt.SMGOpt(hier, 0.1).step(loss)
    for network in hier:
        assert not network.training
        assert network.get_submodule("1").training
        assert counts(network) == {0, 1} if len(list(network.children())) > 3 else {1}


def test_recalibration_takes_the_plain_average_and_keeps_the_mode() -> None:
    net, _ = problem(dropout=0.0)
    hier = smgopt.Hierarchy(net, levels=3)
    batches = [[torch.randn(50, 6) + shift, None] for shift in (0.0, 4.0)]
    hier.recalibrate(batches, levels=[0])
    norm, first = hier[0].get_submodule("1.norm"), hier[0].get_submodule("0")
    assert isinstance(norm, nn.BatchNorm1d)
    expected = torch.stack([first(x).mean(0) for x, _ in batches]).mean(0)
    torch.testing.assert_close(norm.running_mean, expected)
    assert norm.momentum == 0.1
    assert norm.training
    assert counts(hier[1]) == {0}
