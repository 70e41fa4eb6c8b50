"""The residual stack in plain torch operations: what the formula says, on every device, for every dtype."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint as recomputed

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"relu": torch.relu, "tanh": torch.tanh}


def residual_stack(
    y: Tensor, W: Tensor, b: Tensor, dt: float, activation: str = "relu", *, checkpoint: bool = False
) -> Tensor:
    """The stack y ← y + Δt·σ(W_n y + b_n), n = 1 … N, one layer after the other.

    With `checkpoint` the layers go in ~√N groups; the inside of a group is computed again on the way back.

    >>> residual_stack(torch.ones(1, 2), torch.eye(2)[None], torch.zeros(1, 2), dt=0.5)
    tensor([[1.5000, 1.5000]])
    """
    sigma = ACTIVATIONS[activation]

    def layers(y: Tensor, W: Tensor, b: Tensor) -> Tensor:
        for W_n, b_n in zip(W.unbind(), b.unbind(), strict=True):
            y = y + dt * sigma(F.linear(y, W_n, b_n))
        return y

    if not (checkpoint and torch.is_grad_enabled()):
        return layers(y, W, b)
    group = math.isqrt(W.shape[0] - 1) + 1 if W.shape[0] else 1
    for W_part, b_part in zip(torch.split(W, group), torch.split(b, group), strict=True):
        y = recomputed(layers, y, W_part, b_part, use_reentrant=False, preserve_rng_state=False)
    return y
