import math

import pytest
import torch
from torch import Tensor, nn

from smgopt.objective import Objective, inner
from smgopt.work import Work


def problem(decay: float = 0.0) -> tuple[nn.Linear, Objective, Work]:
    net = nn.Linear(3, 2, dtype=torch.float64)
    x, work = torch.randn(5, 3, dtype=torch.float64), Work([7])
    decays = [decay, 2 * decay]
    return net, Objective(net, list(net.parameters()), lambda net: net(x).square().mean(), decays, work), work


def test_value_and_gradient_are_those_of_the_formula() -> None:
    net, f, _ = problem(decay=0.3)
    f.v = [torch.randn_like(p) for p in net.parameters()]
    value = f.evaluate().value
    x_loss = f.loss(net)
    weight, bias = net.weight, net.bias
    ℓ = x_loss + 0.3 / 2 * weight.square().sum() + 0.6 / 2 * bias.square().sum()
    assert value == pytest.approx(ℓ.item(), rel=1e-14)
    expected = torch.autograd.grad(ℓ, [weight, bias])
    for ours, theirs, v in zip(f.gradient(), expected, f.v, strict=True):
        torch.testing.assert_close(ours, theirs - v)


def test_nothing_is_evaluated_twice_at_one_point() -> None:
    _, f, work = problem()
    f.evaluate()
    f.evaluate()
    assert (work.forwards_by_level, work.gradients_by_level) == ([1], [0])
    f.gradient()
    f.loss_gradient()
    f.evaluate()
    assert (work.forwards_by_level, work.gradients_by_level) == ([1], [1])


def test_an_evaluation_that_a_gradient_follows_is_counted_once() -> None:
    _, f, work = problem()
    f.evaluate(gradient_follows=True)
    assert (work.forwards_by_level, work.gradients_by_level) == ([1], [0])
    f.gradient()
    assert (work.forwards_by_level, work.gradients_by_level) == ([0], [1])


def test_moving_forgets_and_restoring_remembers_every_bit() -> None:
    net, f, work = problem()
    before = net.weight.detach().clone()
    gradient, start = f.gradient(), f.snapshot()
    f.move(gradient, -0.1)
    assert f.evaluate().value < start[1].value  # type: ignore[union-attr]
    f.restore(start)
    assert torch.equal(net.weight, before)
    assert f.gradient() is gradient
    assert work.gradients_by_level == [1]


def test_a_stale_autocast_cache_does_not_reach_the_loss() -> None:
    """Autocast keeps its bfloat16 copies of the weights as long as its context lasts."""
    net = nn.Linear(3, 2)
    x = torch.randn(5, 3)
    f = Objective(net, list(net.parameters()), lambda net: net(x).float().square().mean(), [0, 0], Work([1]))
    with torch.autocast("cpu", torch.bfloat16):
        first = f.evaluate(gradient_follows=True).value
        f.move(f.gradient(), -0.5)
        assert f.evaluate(gradient_follows=True).value < first


@pytest.mark.parametrize(
    ("loss", "error", "message"),
    [
        (lambda net: net(torch.ones(4, 3)).square(), ValueError, "one number.*shape \\(4, 2\\)"),
        (lambda net: net(torch.ones(3)).sum().item(), TypeError, "tensor, not float"),
        (lambda _: torch.tensor(1.0), ValueError, "does not depend"),
        (lambda _: torch.ones(1, requires_grad=True).sum(), ValueError, "does not depend"),
    ],
)
def test_objectives_that_cannot_be(loss, error: type[Exception], message: str) -> None:  # type: ignore[no-untyped-def]
    net = nn.Linear(3, 2)
    f = Objective(net, list(net.parameters()), loss, [0, 0], Work([1]))
    with pytest.raises(error, match=message):
        f.gradient()


def test_an_objective_that_calls_backward() -> None:
    net = nn.Linear(3, 2)

    def loss(net: nn.Module) -> Tensor:
        value: Tensor = net(torch.ones(3)).sum()
        value.backward()  # type: ignore[no-untyped-call]
        return value

    f = Objective(net, list(net.parameters()), loss, [0, 0], Work([1]))
    with pytest.raises(RuntimeError, match=r"called backward\(\)"):
        f.gradient()


def test_parameters_that_the_loss_does_not_use_have_gradient_zero() -> None:
    net = nn.Linear(3, 2)
    f = Objective(net, list(net.parameters()), lambda _: net.bias.sum(), [0, 0], Work([1]))
    assert torch.equal(f.gradient()[0], torch.zeros(2, 3))


def test_inner_products_are_taken_in_double_precision() -> None:
    large = torch.tensor([1e8, 1.0, -1e8], dtype=torch.float32)
    assert inner([large], [torch.ones(3)]) == 1.0
    half = torch.full((4096,), 0.1, dtype=torch.bfloat16)
    assert math.isclose(inner([half], [half]), 4096 * half[0].item() ** 2, rel_tol=1e-12)
