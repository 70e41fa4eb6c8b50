"""A small zoo of problems that the tests share."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import smgopt

Loss = Callable[[nn.Module], Tensor]


def classification(
    depth: int = 16, levels: int = 4, dtype: torch.dtype = torch.float64, **network: object
) -> tuple[smgopt.Hierarchy, Loss]:
    """A tiny classifier, and the loss of one mini-batch of clustered points."""
    net = smgopt.ResNet(6, 3, width=4, depth=depth, dtype=dtype, **network)  # type: ignore[arg-type]
    centres = torch.randn(3, 6, dtype=dtype)
    labels = torch.arange(30) % 3
    points = centres[labels] + 0.5 * torch.randn(30, 6, dtype=dtype)
    return smgopt.Hierarchy(net, levels), lambda network: F.cross_entropy(network(points), labels)


def flat(network: nn.Module) -> Tensor:
    """All weights in one vector, as a copy."""
    return torch.cat([p.detach().flatten() for p in network.parameters()]).clone()


def bits(network: nn.Module) -> list[bytes]:
    """The weights as their bytes: equal only if every bit is."""
    return [p.detach().cpu().numpy().tobytes() for p in network.parameters()]


class Quadratics:
    """ℓ^l(θ) = ½ θᵀ A_l θ - b_lᵀ θ on the weights of a hierarchy, convex, and different on every level."""

    def __init__(self, hierarchy: smgopt.Hierarchy, curvature: float = 1.0) -> None:
        self.A: list[Tensor] = []
        self.b: list[Tensor] = []
        for network in hierarchy:
            n = len(flat(network))
            root = torch.randn(n, n, dtype=torch.float64) / n**0.5
            self.A.append(curvature * (root @ root.T + 0.1 * torch.eye(n, dtype=torch.float64)))
            self.b.append(torch.randn(n, dtype=torch.float64))
        self.level = {id(network): l for l, network in enumerate(hierarchy)}

    def __call__(self, network: nn.Module) -> Tensor:
        l = self.level[id(network)]
        θ = torch.cat([p.flatten() for p in network.parameters()])
        return θ @ self.A[l] @ θ / 2 - self.b[l] @ θ
