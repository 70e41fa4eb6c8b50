import itertools

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import smgopt
from smgopt.transfer import interpolate


def test_resnet_is_the_formula() -> None:
    net = smgopt.ResNet(5, 3, width=4, depth=6, T=2.0, dtype=torch.float64)
    x = torch.randn(7, 5, dtype=torch.float64)
    y = x @ net.opening.weight.T + net.opening.bias
    for n in range(6):
        y = y + 2.0 / 6 * torch.relu(y @ net.stack.W[n].T + net.stack.b[n])
    torch.testing.assert_close(net(x), y @ net.closing.weight.T + net.closing.bias)


def test_options_of_the_network() -> None:
    torch.manual_seed(1)
    net = smgopt.ResNet(5, 3, width=4, depth=2, activation="tanh")
    x = torch.randn(7, 5)
    y = net.opening(x)
    for W, b in zip(net.stack.W, net.stack.b, strict=True):
        y = y + 0.5 * torch.tanh(F.linear(y, W, b))
    torch.testing.assert_close(net(x), net.closing(y))
    net.closing_relu = True
    torch.testing.assert_close(net(x), torch.relu(net.closing(y)))
    assert "closing_relu=True" in repr(net)


def test_images_are_flattened() -> None:
    net = smgopt.ResNet(12, 2, width=3, depth=2)
    x = torch.randn(5, 3, 2, 2)
    assert torch.equal(net(x), net(x.flatten(1)))


def test_initial_weights() -> None:
    stack = smgopt.ResidualStack(width=10, depth=2000)
    # Xavier's normal rule has variance 2 / (w + w); the biases are uniform in ± 1/√w.
    assert stack.W.var().item() == pytest.approx(1 / 10, rel=0.02)
    assert stack.b.abs().max().item() <= 10**-0.5
    assert stack.b.var().item() == pytest.approx(1 / 30, rel=0.05)


def test_coarsening_takes_every_second_block_and_no_random_numbers() -> None:
    stack = smgopt.ResidualStack(3, 8, T=3.0, activation="tanh", dtype=torch.float64)
    stack.b.requires_grad_(False)
    before = torch.get_rng_state()
    coarse = stack.coarsen()
    assert torch.equal(torch.get_rng_state(), before)
    assert (coarse.depth, coarse.T, coarse.dt, coarse.activation) == (4, 3.0, 2 * stack.dt, "tanh")
    assert torch.equal(coarse.W, stack.W[::2])
    assert torch.equal(coarse.b, stack.b[::2])
    assert coarse.W.dtype == torch.float64
    assert coarse.W.requires_grad
    assert not coarse.b.requires_grad


def test_a_prolonged_network_computes_what_the_coarse_one_did_up_to_dt() -> None:
    """For weights that are smooth in time: halve Δt, halve the difference."""

    def stack_of(N: int) -> smgopt.ResidualStack:
        stack = smgopt.ResidualStack(3, N, activation="tanh", dtype=torch.float64)
        t = torch.arange(N, dtype=torch.float64) / N
        modes = torch.arange(9, dtype=torch.float64).reshape(3, 3)
        with torch.no_grad():
            stack.W.copy_(torch.sin(t[:, None, None] + modes))
            stack.b.copy_(torch.cos(t[:, None] + modes[0]))
        return stack

    y = torch.randn(4, 3, dtype=torch.float64)
    differences = []
    for N in (16, 32, 64, 128):
        coarse, fine = stack_of(N), smgopt.ResidualStack(3, 2 * N, activation="tanh", dtype=torch.float64)
        with torch.no_grad():
            fine.W.copy_(interpolate(coarse.W, "constant"))
            fine.b.copy_(interpolate(coarse.b, "constant"))
        differences.append((fine(y) - coarse(y)).norm().item())
    for larger, smaller in itertools.pairwise(differences):
        assert 1.7 < larger / smaller < 2.3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"width": 0, "depth": 4}, "width"),
        ({"width": 4, "depth": 0}, "depth"),
        ({"width": 4, "depth": 4, "T": 0.0}, "T must"),
        ({"width": 4, "depth": 4, "T": float("inf")}, "T must"),
        ({"width": 4, "depth": 4, "activation": "gelu"}, "activation"),
    ],
)
def test_bad_stacks_are_refused(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        smgopt.ResidualStack(**arguments)  # type: ignore[arg-type]


def test_bad_outer_maps_are_refused() -> None:
    with pytest.raises(ValueError, match="outputs"):
        smgopt.ResNet(3, 0, width=2, depth=2)


def test_it_is_an_ordinary_module() -> None:
    net = smgopt.ResNet(3, 2, width=2, depth=4)
    assert list(net.state_dict()) == [
        "opening.weight",
        "opening.bias",
        "stack.W",
        "stack.b",
        "closing.weight",
        "closing.bias",
    ]
    other = smgopt.ResNet(3, 2, width=2, depth=4)
    other.load_state_dict(net.state_dict())
    x = torch.randn(4, 3)
    assert torch.equal(net(x), other(x))
    assert isinstance(net, nn.Module)
