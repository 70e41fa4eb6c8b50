"""A data set in memory, and its mini-batches."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Generator, Tensor

from smgopt.lab.data.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterator


# Comparing tensors gives tensors, so that a generated == could only fail: equal means identical here.
@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """Inputs and labels for training and for testing, as tensors.

    Args:
        name: what the data set is called.
        x: training inputs, float32, one a row.
        y: their labels, int64 in 0 … classes - 1.
        x_test: inputs for testing, of the same shape.
        y_test: their labels.
        classes: the number of classes.

    Raises:
        DataError: the tensors do not fit one another, or have another type.

    Example:
        >>> x, y = torch.zeros(6, 1, 2, 2), torch.tensor([0, 1, 2, 0, 1, 2])
        >>> ds = Dataset("six", x, y, x[:3], y[:3], classes=3)
        >>> ds
        Dataset('six': 6 to train, 3 to test, shape (1, 2, 2), 3 classes)
        >>> ds.flat().shape
        (4,)
    """

    name: str
    x: Tensor
    y: Tensor
    x_test: Tensor
    y_test: Tensor
    classes: int

    def __post_init__(self) -> None:
        for part, x, y in (("x", self.x, self.y), ("x_test", self.x_test, self.y_test)):
            if x.dtype != torch.float32 or y.dtype != torch.int64:
                raise DataError(
                    f"{self.name}: {part} is {x.dtype}, its labels {y.dtype}; float32, int64 wanted"
                )
            if x.ndim < 2 or y.shape != x.shape[:1] or len(x) == 0:
                raise DataError(
                    f"{self.name}: {part} has shape {tuple(x.shape)} and its labels {tuple(y.shape)}; "
                    "one label for each of at least one input wanted"
                )
        if self.x.shape[1:] != self.x_test.shape[1:]:
            raise DataError(
                f"{self.name}: inputs for training have shape {self.shape}, "
                f"those for testing {tuple(self.x_test.shape[1:])}"
            )

    def __repr__(self) -> str:
        return (
            f"Dataset({self.name!r}: {len(self.x)} to train, {len(self.x_test)} to test, "
            f"shape {self.shape}, {self.classes} classes)"
        )

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one input."""
        return tuple(self.x.shape[1:])

    def flat(self) -> Dataset:
        """The same data with every input as one vector, sharing memory with this one."""
        return replace(self, x=self.x.flatten(1), x_test=self.x_test.flatten(1))

    def holdout(self, part: int | float, seed: int = 0) -> Dataset:
        """A split of the training data for tuning, so that the test data stay untouched.

        Args:
            part: how much of the training data becomes the test part: a count, or a fraction in (0, 1).
            seed: chooses which; the same seed chooses the same.

        Returns:
            A data set whose test part was held out of this one's training part.

        Raises:
            ValueError: the part, or what is left to train on, would be empty.

        Example:
            >>> x, y = torch.arange(10.0).reshape(10, 1), torch.zeros(10, dtype=torch.int64)
            >>> Dataset("ten", x, y, x, y, classes=1).holdout(0.2, seed=1)
            Dataset('ten-holdout': 8 to train, 2 to test, shape (1,), 1 classes)
        """
        total = len(self.x)
        count = round(part * total) if isinstance(part, float) and 0 < part < 1 else part
        if not isinstance(count, int) or isinstance(count, bool) or not 0 < count < total:
            raise ValueError(
                f"part must be a count in 1 … {total - 1} or a fraction that gives one, got {part!r}"
            )
        order = torch.randperm(total, generator=torch.Generator().manual_seed(seed)).to(self.x.device)
        test, train = order[:count], order[count:]
        return replace(
            self,
            name=f"{self.name}-holdout",
            x=self.x[train],
            y=self.y[train],
            x_test=self.x[test],
            y_test=self.y[test],
        )


def batches(
    x: Tensor, y: Tensor, batch_size: int, generator: Generator, *, drop_last: bool = False
) -> Iterator[tuple[Tensor, Tensor]]:
    """One epoch of shuffled mini-batches.

    The permutation is drawn from ``generator`` when this function is called, not when the first batch is
    asked for: a checkpoint that keeps the generator's state from before the call can repeat the epoch.

    Args:
        x: inputs, one a row.
        y: their labels.
        batch_size: examples in a mini-batch.
        generator: a CPU generator; the only source of randomness.
        drop_last: what happens when ``batch_size`` does not divide the number of examples. False: the last
            batch is smaller. True: the remainder is left out of this epoch, every batch has ``batch_size``.

    Returns:
        An iterator over pairs of inputs and labels.

    Raises:
        ValueError: ``batch_size`` is below one, x and y differ in length, or nothing is left to yield.

    Example:
        >>> x, y = torch.arange(5.0), torch.arange(5)
        >>> [len(b) for b, _ in batches(x, y, 2, torch.Generator())]
        [2, 2, 1]
        >>> [len(b) for b, _ in batches(x, y, 2, torch.Generator(), drop_last=True)]
        [2, 2]
    """
    total = len(x)
    if len(y) != total:
        raise ValueError(f"x and y must have the same length, got {total} and {len(y)}")
    if batch_size < 1:
        raise ValueError(f"batch_size must be at least 1, got {batch_size}")
    end = total - total % batch_size if drop_last else total
    if end == 0:
        raise ValueError(f"batch_size={batch_size} leaves no batch of {total} examples ({drop_last=})")
    order = torch.randperm(total, generator=generator).to(x.device)[:end]
    return ((x[part], y[part]) for part in torch.split(order, batch_size))
