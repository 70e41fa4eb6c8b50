"""Algorithm 1 once more: dense matrices, flat vectors, nothing reused, no cleverness."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

import smgopt


def prolongation_1d(n: int, boundary: str) -> Tensor:
    """P for n coarse blocks, row by row as the definition says it."""
    P = torch.zeros(2 * n, n, dtype=torch.float64)
    for i in range(n):
        P[2 * i, i] = 1
        if i + 1 < n:
            P[2 * i + 1, i] = P[2 * i + 1, i + 1] = 0.5
    P[2 * n - 1, n - 1] = 1.0 if boundary == "constant" else 0.0
    return P


def injection_1d(n: int) -> Tensor:
    """R to n coarse blocks."""
    R = torch.zeros(n, 2 * n, dtype=torch.float64)
    for i in range(n):
        R[i, 2 * i] = 1
    return R


def along_depth(operator: Tensor, network: nn.Module) -> Tensor:
    """The operator on the residual stack of a ResNet and the identity on all other weights, as one matrix."""
    parts = []
    for name, p in network.named_parameters():
        if name.startswith("stack."):
            parts.append(torch.kron(operator, torch.eye(p[0].numel(), dtype=torch.float64)))
        else:
            parts.append(torch.eye(p.numel(), dtype=torch.float64))
    matrix: Tensor = torch.block_diag(*parts)  # type: ignore[no-untyped-call]
    return matrix


@dataclass
class Reference:
    """MG/OPT on flat vectors. ``losses`` and ``gradients`` are functions of the vector, one a level."""

    losses: Sequence[Callable[[Tensor], float]]
    gradients: Sequence[Callable[[Tensor], Tensor]]
    R: Sequence[Tensor]
    P: Sequence[Tensor]
    smoothing: Sequence[tuple[int, int]]
    lr: float
    coupling: str
    adjoint: bool
    line_search: bool = True

    @classmethod
    def of(cls, hierarchy: smgopt.Hierarchy, boundary: str, **rest: object) -> "Reference":
        """With the operators of a hierarchy of ResNets; entry l leads from or to level l."""
        depths = hierarchy.depths
        R = [along_depth(injection_1d(n), hierarchy[l]) for l, n in enumerate(depths)]
        P = [along_depth(prolongation_1d(n, boundary), hierarchy[l]) for l, n in enumerate(depths)]
        return cls(R=R, P=P, **rest)  # type: ignore[arg-type]

    def cycle(self, θ: Tensor) -> Tensor:
        """θ^{L,*} from θ^{L,0}."""
        return self._level(len(self.losses) - 1, θ, torch.zeros_like(θ))

    def _level(self, l: int, θ: Tensor, v: Tensor) -> Tensor:
        ν, μ = self.smoothing[l]
        for _ in range(ν):
            θ = θ - self.lr * (self.gradients[l](θ) - v)
        if l == 0:
            return θ
        g = self.gradients[l](θ)
        if self.coupling == "consistent":
            g = g - v
        start = self.R[l - 1] @ θ
        restricted = self.P[l - 1].T @ g if self.adjoint else self.R[l - 1] @ g
        coarse = self._level(l - 1, start, self.gradients[l - 1](start) - restricted)
        c = self.P[l - 1] @ (coarse - start)
        θ = θ + self._step(l, θ, c, v) * c
        for _ in range(μ):
            θ = θ - self.lr * (self.gradients[l](θ) - v)
        return θ

    def _step(self, l: int, θ: Tensor, c: Tensor, v: Tensor) -> float:
        if not self.line_search:
            return 1.0

        def f(θ: Tensor) -> float:
            return self.losses[l](θ) - float(v @ θ)

        slope = float((self.gradients[l](θ) - v) @ c)
        if slope >= 0:
            return 0.0
        for trial in range(10):
            α = 0.5**trial
            if f(θ + α * c) <= f(θ) + 0.5 * α * slope:
                return α
        return 0.0
