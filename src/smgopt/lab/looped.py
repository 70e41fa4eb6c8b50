"""The same network with its residual stacks as a loop, for exporters.

An exporter follows a Python loop turn by turn: 512 blocks become thousands of operations that take minutes
to export, and four times the blocks take far more than four times as long. With ``scan`` the graph holds one
block and the weights of all, and takes seconds for any depth.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from smgopt.kernels.reference import ACTIVATIONS
from smgopt.lab.errors import RunError
from smgopt.networks import ResidualStack


class LoopedStack(nn.Module):
    """What a residual stack computes, as one ``scan`` over the depth.

    Args:
        stack: it; the memory of the weights is shared.

    Raises:
        RunError: this torch has no ``scan``.
    """

    def __init__(self, stack: ResidualStack) -> None:
        super().__init__()
        self.W, self.b = nn.Parameter(stack.W.detach()), nn.Parameter(stack.b.detach())
        self.dt, self.sigma = stack.dt, ACTIVATIONS[stack.activation]
        try:
            from torch._higher_order_ops import scan
        except ImportError as error:
            raise RunError(f"torch {torch.__version__} cannot export a loop; 2.8 and newer can") from error
        self.scan = scan

    def forward(self, y: Tensor) -> Tensor:
        """y_N from y_0."""

        def block(y: Tensor, weights: tuple[Tensor, Tensor]) -> tuple[Tensor, tuple[()]]:
            return y + self.dt * self.sigma(F.linear(y, *weights)), ()

        end: Tensor = self.scan(block, y, (self.W, self.b))[0]
        return end


def looped(network: nn.Module) -> nn.Module:
    """A copy of a network for evaluation only, with a loop in place of every residual stack.

    Example:
        >>> import smgopt
        >>> net = smgopt.ResNet(inputs=3, outputs=2, width=4, depth=8)
        >>> loop, x = looped(net), torch.rand(5, 3)
        >>> bool(torch.allclose(loop(x), net(x), atol=1e-6))
        True
    """
    # deepcopy takes what the memo already holds for a copy.
    memo: dict[int, Any] = {id(m): LoopedStack(m) for m in network.modules() if isinstance(m, ResidualStack)}
    loop = copy.deepcopy(network, memo).eval().requires_grad_(False)
    for p in loop.parameters():
        p.data = p.data.contiguous()  # exporters take weights with the channels last for views of others
    return loop
