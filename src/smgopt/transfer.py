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

from collections.abc import Iterator, Sequence
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
    torch.lerp(coarse[:-1], coarse[1:], 0.5, out=fine[1:-1:2])
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


class Outer:
    """A parameter outside the stacks: the same on every level."""

    fine = coarse = 1

    def restrict(self, tensors: list[Tensor]) -> list[Tensor]:
        """Unchanged."""
        return tensors

    def prolong(self, tensors: list[Tensor], boundary: Boundary) -> list[Tensor]:  # noqa: ARG002
        """Unchanged."""
        return tensors

    adjoint = prolong


class Depth:
    """A parameter whose first dimension is the depth, as a ``ResidualStack`` has it."""

    fine = coarse = 1

    def restrict(self, tensors: list[Tensor]) -> list[Tensor]:
        """By injection."""
        return [inject(tensors[0])]

    def prolong(self, tensors: list[Tensor], boundary: Boundary) -> list[Tensor]:
        """By interpolation."""
        return [interpolate(tensors[0], boundary)]

    def adjoint(self, tensors: list[Tensor], boundary: Boundary) -> list[Tensor]:
        """By the transpose of it."""
        return [adjoint(tensors[0], boundary)]


@dataclass(frozen=True)
class Blocks:
    """A parameter that every block of a list of modules has: one tensor a block.

    Args:
        fine: how many blocks there are on the finer level.
    """

    fine: int

    @property
    def coarse(self) -> int:
        """How many there are on the coarser level."""
        return self.fine // 2

    def restrict(self, tensors: list[Tensor]) -> list[Tensor]:
        """By injection."""
        return tensors[::2]

    def prolong(self, tensors: list[Tensor], boundary: Boundary) -> list[Tensor]:
        """By interpolation."""
        between = torch._foreach_lerp(tensors[:-1], tensors[1:], 0.5) if len(tensors) > 1 else ()
        odd = [*between, tensors[-1] * BOUNDARIES[boundary]]
        return [t for pair in zip(tensors, odd, strict=True) for t in pair]

    def adjoint(self, tensors: list[Tensor], boundary: Boundary) -> list[Tensor]:
        """By the transpose of it."""
        coarse = [t.clone() for t in tensors[::2]]
        if between := tensors[1:-1:2]:
            torch._foreach_add_(coarse[:-1], between, alpha=0.5)
            torch._foreach_add_(coarse[1:], between, alpha=0.5)
        coarse[-1].add_(tensors[-1], alpha=BOUNDARIES[boundary])
        return coarse


Column = Outer | Depth | Blocks


@dataclass(frozen=True)
class Transfer:
    """The operators between a level and the next coarser one, for its parameters as a list of tensors.

    Args:
        columns: what the tensors of the list are, in their order.
        gradient_restriction: ``"injection"`` (the paper's) or ``"adjoint"``.
        boundary: what the last odd block takes from a correction, ``"zero"`` or ``"constant"``.

    Raises:
        ValueError: an unknown name.

    Example:
        >>> transfer = Transfer([Depth(), Outer(), Blocks(2)])
        >>> transfer.prolong([torch.ones(1), torch.ones(3), torch.ones(2)])
        [tensor([1., 0.]), tensor([1., 1., 1.]), tensor([1., 1.]), tensor([0., 0.])]
    """

    columns: Sequence[Column]
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
        return [t for column, part in self._cut(fine, "fine") for t in column.restrict(part)]

    def restrict_gradient(self, fine: Sequence[Tensor]) -> list[Tensor]:
        """A gradient from level l to l - 1."""
        if self.gradient_restriction == "injection":
            return self.restrict(fine)
        return [t for column, part in self._cut(fine, "fine") for t in column.adjoint(part, self.boundary)]

    def prolong(self, coarse: Sequence[Tensor]) -> list[Tensor]:
        """A correction from level l - 1 to l."""
        return [
            t for column, part in self._cut(coarse, "coarse") for t in column.prolong(part, self.boundary)
        ]

    def _cut(
        self, tensors: Sequence[Tensor], side: Literal["fine", "coarse"]
    ) -> Iterator[tuple[Column, list[Tensor]]]:
        start = 0
        for column in self.columns:
            end = start + getattr(column, side)
            yield column, list(tensors[start:end])
            start = end
