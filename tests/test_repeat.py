"""Randomness and running statistics inside a network, over one cycle."""

import copy
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import smgopt
from smgopt.objective import Objective
from smgopt.work import Work
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


class Replacing(nn.Module):
    """A residual block whose statistics are new tensors, and part of what it computes."""

    mean: Tensor
    seen: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.map = nn.Linear(4, 4)
        self.register_buffer("mean", torch.zeros(4))
        self.register_buffer("seen", torch.zeros(0))

    def forward(self, y: Tensor) -> Tensor:
        self.mean = 0.9 * self.mean + 0.1 * y.detach().mean(0)
        self.seen = torch.cat([self.seen, torch.ones(1)])
        out: Tensor = y + 0.2 * torch.relu(self.map(y - self.mean))
        return out


def test_statistics_that_are_replaced_move_once_and_are_the_same_for_all_evaluations() -> None:
    net = nn.Sequential(*(Replacing() for _ in range(4)))
    x, y = torch.randn(30, 4) + 1, torch.randn(30, 4)
    values: dict[int, list[float]] = {}

    def loss(network: nn.Module) -> Tensor:
        value = F.mse_loss(network(x), y)
        values.setdefault(id(network), []).append(value.item())
        return value

    hier = smgopt.Hierarchy(net, levels=2)
    opt = smgopt.SMGOpt(hier, 1e-12, smoothing=((2, 0), (0, 1)), initial_step=1e-9)
    for cycle in (1, 2):
        opt.step(loss)
        for network in hier:
            assert {len(b.seen) for b in network.children() if isinstance(b, Replacing)} == {cycle}
    for found in values.values():
        # Weights hardly move: what differs is the state that the network is in.
        assert len({round(value, 6) for value in found}) == 2, found

    before = [b.clone() for network in hier for b in network.buffers()]

    def failing(network: nn.Module) -> Tensor:
        if network is hier[0]:
            raise KeyboardInterrupt
        return loss(network)

    with pytest.raises(KeyboardInterrupt):
        opt.step(failing)
    after = [b for network in hier for b in network.buffers()]
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))


class InPlace(nn.Module):
    """A layer that changes its statistics in place, and divides by what has come of it."""

    scale: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1, dtype=torch.float64))
        self.register_buffer("scale", torch.ones(1, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        self.scale.mul_(0.5).add_(0.5 * (self.weight.detach() * x).abs().mean())
        return self.weight * x / self.scale


def test_gradients_use_the_statistics_that_the_loss_was_computed_with() -> None:
    x = torch.tensor([3.0, 5.0], dtype=torch.float64)
    net, twin = InPlace(), InPlace()
    f = Objective(net, [net.weight], lambda n: (n(x) ** 2).sum(), [0.0], Work([1]))
    for _ in range(3):
        twin.scale.fill_(1.0)  # every evaluation begins with the same statistics
        loss = (twin(x) ** 2).sum()
        (expected,) = torch.autograd.grad(loss, twin.weight)
        assert f.evaluate(gradient_follows=True).value == loss.item()
        torch.testing.assert_close(f.gradient(), [expected], rtol=0, atol=0)
        for weight in (net.weight, twin.weight):
            weight.data.add_(0.1)
        f.move([torch.zeros(1, dtype=torch.float64)], 1.0)
    # They have moved once, by the first evaluation.
    assert net.scale.item() == 0.5 * 1 + 0.5 * 4


class Checkpointed(Noisy):
    """The same block, which computes its activations a second time on the way back."""

    def forward(self, y: Tensor) -> Tensor:
        out: Tensor = checkpoint(super().forward, y, use_reentrant=False)
        return out


def test_activations_computed_a_second_time_do_not_move_statistics() -> None:
    net = nn.Sequential(*(Checkpointed() for _ in range(4)))
    hier = smgopt.Hierarchy(net, levels=2)
    x = torch.randn(30, 4)
    smgopt.SMGOpt(hier, 0.1).step(lambda n: n(x).square().mean())
    assert [counts(network) for network in hier] == [{1}, {1}]


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


def test_recalibration_leaves_frozen_layers_alone() -> None:
    net, _ = problem(dropout=0.0)
    hier = smgopt.Hierarchy(net, levels=1)
    frozen, free = net.get_submodule("1.norm"), net.get_submodule("2.norm")
    assert isinstance(frozen, nn.BatchNorm1d)
    frozen.eval()
    frozen.running_mean.fill_(7.0)  # type: ignore[union-attr]
    hier.recalibrate([torch.randn(50, 6)])
    assert torch.equal(frozen.running_mean, torch.full((4,), 7.0))  # type: ignore[arg-type]
    assert (frozen.training, free.training) == (False, True)


@pytest.mark.parametrize(
    ("batches", "error"), [([torch.randn(50, 6), "no batch"], TypeError), ([], ValueError)]
)
def test_a_failed_recalibration_changes_nothing(batches: list[object], error: type[Exception]) -> None:
    net, _ = problem(dropout=0.0)
    hier = smgopt.Hierarchy(net, levels=1)
    net.eval()
    hier.recalibrate([torch.randn(50, 6)])
    before = [b.clone() for b in net.buffers()]
    with pytest.raises(error):
        hier.recalibrate(batches)
    assert all(torch.equal(a, b) for a, b in zip(before, net.buffers(), strict=True))
    norm = net.get_submodule("1.norm")
    assert isinstance(norm, nn.BatchNorm1d)
    assert norm.momentum == 0.1
    assert not norm.training
