"""The loss of one level on one mini-batch."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from smgopt.repeat import Repeatable
from smgopt.work import Work

Loss = Callable[[nn.Module], Tensor]


def inner(a: Sequence[Tensor], b: Sequence[Tensor]) -> float:
    """⟨a, b⟩: products in single precision or better, added up in double precision where the device has it.

    Example:
        >>> inner([torch.ones(3)], [torch.arange(3.0)])
        3.0
    """
    # Converting the tensors themselves would take four times as long.
    products = [
        torch.sum((x if x.dtype.itemsize >= 4 else x.float()) * y, dtype=_widest(x.device))
        for x, y in zip(a, b, strict=True)
    ]
    if len({p.device for p in products}) > 1:
        return sum(map(float, products))
    return float(torch.stack(products).sum())


def _widest(device: torch.device) -> torch.dtype:
    """Apple's devices know no double precision."""
    return torch.float32 if device.type == "mps" else torch.float64


@dataclass
class Point:
    """What is known of the loss at the current weights, so that nothing is computed twice.

    Attributes:
        value: ℓ(θ).
        loss: the loss of the mini-batch; with its graph, until the gradient is taken.
        gradient: ∇ℓ(θ), once it is taken.
        coupled: ∇ℓ(θ) - v, once it is asked for.
    """

    value: float
    loss: Tensor
    gradient: list[Tensor] | None = None
    coupled: list[Tensor] | None = None


class Objective:
    r"""The function that one level minimises in one cycle, and the place where it stands.

    .. math:: f(θ) = ℓ(θ) - ⟨v, θ⟩, \qquad ℓ(θ) = \mathrm{loss}(θ) + \tfrac12 \sum_i β_i ‖θ_i‖^2

    The coupling term v is None on the finest level. All changes to the weights go through ``move``, ``place``
    and ``restore``, which is how the objective knows whether a loss or gradient still holds.

    Args:
        network: the level's network.
        parameters: those of it that are trained, θ.
        loss: the loss of the mini-batch as a function of a network.
        decay: β_i, one for each of them.
        work: where evaluations are counted.
        level: the level's number, for ``work`` and for messages.

    Raises:
        TypeError: the loss is not a tensor.
        ValueError: it is not a scalar, or does not depend on the network.
        RuntimeError: it called ``backward``.

    Example:
        >>> net = nn.Linear(2, 1, bias=False)
        >>> _ = nn.init.ones_(net.weight)
        >>> f = Objective(net, [net.weight], lambda net: net(torch.tensor([3.0, 4.0])).sum(), [0], Work([1]))
        >>> f.evaluate().value, f.gradient()
        (7.0, [tensor([[3., 4.]])])
        >>> f.move(f.gradient(), -0.1)
        >>> f.evaluate().value
        4.5
    """

    def __init__(
        self,
        network: nn.Module,
        parameters: Sequence[Tensor],
        loss: Loss,
        decay: Sequence[float],
        work: Work,
        level: int = 0,
    ) -> None:
        self.network, self.loss, self.work, self.level = network, loss, work, level
        self.parameters = list(parameters)
        # The same memory, but free to be written without autograd in the way.
        self.theta = [p.detach() for p in self.parameters]
        self.decay = list(decay) if any(decay) else None
        self.repeat = Repeatable(network)
        self.v: list[Tensor] | None = None
        self.used: set[int] = set()  # the parameters that a loss has depended on, by id
        self.here: Point | None = None

    def evaluate(self, gradient_follows: bool = False) -> Point:
        """ℓ(θ); with ``gradient_follows`` the gradient will need no forward pass of its own."""
        if self.here is None:
            self.here = self._evaluate(gradient_follows)
        return self.here

    def loss_gradient(self) -> list[Tensor]:
        """∇ℓ(θ)."""
        here = self.here
        if here is None or (here.gradient is None and not here.loss.requires_grad):
            here = self.here = self._evaluate(with_graph=True)
        if here.gradient is None:
            here.gradient, here.loss = self._backward(here.loss), here.loss.detach()
        return here.gradient

    def gradient(self) -> list[Tensor]:
        """∇f(θ) = ∇ℓ(θ) - v."""
        gradient = self.loss_gradient()
        if self.v is None:
            return gradient
        assert self.here is not None
        if self.here.coupled is None:
            self.here.coupled = list(torch._foreach_sub(gradient, self.v))
        return self.here.coupled

    def move(self, direction: list[Tensor], step: float) -> None:
        """θ ← θ + step · direction."""
        torch._foreach_add_(self.theta, direction, alpha=step)
        self.here = None

    def place(self, theta: list[Tensor]) -> None:
        """θ ← the given weights."""
        torch._foreach_copy_(self.theta, theta)
        self.here = None

    def snapshot(self) -> tuple[list[Tensor], Point | None]:
        """The weights, copied, and what is known there."""
        return [t.clone() for t in self.theta], self.here

    def restore(self, snapshot: tuple[list[Tensor], Point | None]) -> None:
        """Back to a snapshot, bit for bit."""
        if self.here is None or self.here is not snapshot[1]:  # otherwise it has not moved since
            self.place(snapshot[0])
            self.here = snapshot[1]

    def _evaluate(self, with_graph: bool) -> Point:
        # Autocast keeps its copies of the weights until its context ends, which may be outside the cycle.
        torch.clear_autocast_cache()
        with torch.set_grad_enabled(with_graph), self.repeat():
            loss = self.loss(self.network)
        self.work.forwards_by_level[self.level] += 1
        if not isinstance(loss, Tensor):
            raise TypeError(f"the objective must return the loss as a tensor, not {type(loss).__name__}")
        if loss.numel() != 1:
            raise ValueError(
                f"the objective must return one number, but returned a tensor of shape {tuple(loss.shape)}: "
                "take its mean, or its sum"
            )
        if any(p.grad is not None for p in self.parameters):
            raise RuntimeError(
                "the objective called backward(): let it return the loss, the optimizer takes the gradients"
            )
        if with_graph and not loss.requires_grad:
            raise ValueError(self._independent())
        value = float(loss.detach())
        if self.decay is not None:
            norms = [β * inner([t], [t]) for t, β in zip(self.theta, self.decay, strict=True)]
            value += sum(norms) / 2
        return Point(value, loss)

    def _backward(self, loss: Tensor) -> list[Tensor]:
        with self.repeat.unmoved():  # it may compute activations a second time
            gradients = torch.autograd.grad(loss, self.parameters, allow_unused=True)
        # What was counted as a forward evaluation has turned out to be part of a gradient.
        self.work.forwards_by_level[self.level] -= 1
        self.work.gradients_by_level[self.level] += 1
        self.used.update(id(p) for p, g in zip(self.parameters, gradients, strict=True) if g is not None)
        if all(g is None for g in gradients):
            raise ValueError(self._independent())
        ours = [torch.zeros_like(t) if g is None else g for t, g in zip(self.theta, gradients, strict=True)]
        if self.decay is None:
            return ours
        return [g.add(t, alpha=β) for g, t, β in zip(ours, self.theta, self.decay, strict=True)]

    def _independent(self) -> str:
        return (
            f"the loss does not depend on the network of level {self.level}: the objective must use "
            "the network that it is given, as in `lambda network: loss(network(x), y)`, and run under "
            "neither no_grad nor inference_mode"
        )
