r"""Restriction and prolongation between two neighbouring levels.

Coarse block i lies where fine block 2i lies. The operators act on the first dimension of a tensor, the
depth, so that one slice serves all blocks:

- ``inject``: coarse block i takes fine block 2i. So weights are restricted.
- ``interpolate``: fine block 2i takes coarse block i, fine block 2i + 1 the mean of its two neighbours.
  So corrections are prolonged: this is P.
- ``adjoint``: Pᵀ, with ⟨Pᵀ g, c⟩ = ⟨g, P c⟩. So gradients are restricted, if not by injection.

The last odd block has no right neighbour. What it takes is the boundary rule: ``"zero"``, nothing, as
in the authors' experiments, or ``"constant"``, its left neighbour.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

Boundary = Literal["zero", "constant"]
GradientRestriction = Literal["injection", "adjoint"]

# How much of its left neighbour the last odd block takes.
BOUNDARIES: dict[str, float] = {"zero": 0.0, "constant": 1.0}


def inject(fine: Tensor) -> Tensor:
    """Every second block of ``fine``, as a view.

    Example:
        >>> inject(torch.tensor([1.0, 2.0, 3.0, 4.0]))
        tensor([1., 3.])
    """
    return fine[::2]


def interpolate(coarse: Tensor, boundary: Boundary = "zero") -> Tensor:
    """P c: ``coarse`` on the even blocks, the mean of two neighbours on the odd ones.

    Example:
        >>> interpolate(torch.tensor([2.0, 4.0]))
        tensor([2., 3., 4., 0.])
        >>> interpolate(torch.tensor([2.0, 4.0]), boundary="constant")
        tensor([2., 3., 4., 4.])
    """
    fine = coarse.new_empty(2 * coarse.shape[0], *coarse.shape[1:])
    fine[::2] = coarse
    torch.add(coarse[:-1], coarse[1:], out=fine[1:-1:2])
    fine[1:-1:2] *= 0.5
    fine[-1] = BOUNDARIES[boundary] * coarse[-1]
    return fine


def adjoint(fine: Tensor, boundary: Boundary = "zero") -> Tensor:
    """Pᵀ g: each coarse block gathers its own fine block and half of that one's two neighbours.

    Example:
        >>> adjoint(torch.tensor([1.0, 2.0, 3.0, 4.0]))
        tensor([2., 4.])
        >>> adjoint(torch.tensor([1.0, 2.0, 3.0, 4.0]), boundary="constant")
        tensor([2., 8.])
    """
    coarse = fine[::2].clone()
    between = fine[1:-1:2]
    coarse[:-1].add_(between, alpha=0.5)
    coarse[1:].add_(between, alpha=0.5)
    coarse[-1].add_(fine[-1], alpha=BOUNDARIES[boundary])
    return coarse


@dataclass(frozen=True)
class Transfer:
    """The operators of one hierarchy, for a level's trained parameters as a list of tensors.

    Parameters of a residual stack are restricted and prolonged along their depth; all others, the opening
    and the closing map's, are the same on every level and pass unchanged.

    Args:
        stacked: for each tensor of the list, whether it belongs to a residual stack.
        gradient_restriction: ``"injection"`` (the paper's) or ``"adjoint"``.
        boundary: what the last odd block takes from a correction, ``"zero"`` or ``"constant"``.

    Raises:
        ValueError: an unknown name.

    Example:
        >>> transfer = Transfer(stacked=[True, False])
        >>> transfer.prolong([torch.ones(1), torch.ones(3)])
        [tensor([1., 0.]), tensor([1., 1., 1.])]
    """

    stacked: Sequence[bool]
    gradient_restriction: GradientRestriction = "injection"
    boundary: Boundary = "zero"

    def __post_init__(self) -> None:
        if self.gradient_restriction not in ("injection", "adjoint"):
            raise ValueError(
                f"gradient_restriction must be 'injection' or 'adjoint', not {self.gradient_restriction!r}"
            )
        if self.boundary not in BOUNDARIES:
            raise ValueError(f"boundary must be 'zero' or 'constant', not {self.boundary!r}")

    def restrict(self, fine: Sequence[Tensor]) -> list[Tensor]:
        """Weights from level l to l - 1, as views of the fine ones."""
        return self._each(inject, fine)

    def restrict_gradient(self, fine: Sequence[Tensor]) -> list[Tensor]:
        """A gradient from level l to l - 1."""
        if self.gradient_restriction == "injection":
            return self._each(inject, fine)
        return self._each(lambda g: adjoint(g, self.boundary), fine)

    def prolong(self, coarse: Sequence[Tensor]) -> list[Tensor]:
        """A correction from level l - 1 to l."""
        return self._each(lambda c: interpolate(c, self.boundary), coarse)

    def _each(self, operator: Callable[[Tensor], Tensor], tensors: Sequence[Tensor]) -> list[Tensor]:
        return [operator(t) if stacked else t for t, stacked in zip(tensors, self.stacked, strict=True)]
