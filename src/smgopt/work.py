"""What training costs, counted and not timed."""

from collections.abc import Sequence


class Work:
    r"""Evaluations of the loss, by level.

    The paper's cost of a run is :math:`\sum_l N^l Q^l`: a gradient on level l costs as much as its network
    has blocks. Evaluations that need no gradient, the trials of the line search, are counted beside it in
    the same way.

    Args:
        depths: N^l, the number of blocks of each level, coarsest first.

    Attributes:
        gradients_by_level: Q^l, the gradients taken on each level.
        forwards_by_level: the losses evaluated on each level without a gradient.

    Example:
        >>> work = Work([128, 256])
        >>> work.gradients_by_level[0] += 3
        >>> work.gradients_by_level[1] += 1
        >>> work.gradients
        640
    """

    def __init__(self, depths: Sequence[int]) -> None:
        self.depths = tuple(depths)
        self.gradients_by_level = [0] * len(self.depths)
        self.forwards_by_level = [0] * len(self.depths)

    @property
    def gradients(self) -> int:
        """Σ_l N^l Q^l."""
        return sum(N * Q for N, Q in zip(self.depths, self.gradients_by_level, strict=True))

    @property
    def forwards(self) -> int:
        """Evaluations without a gradient, weighted by N^l in the same way."""
        return sum(N * Q for N, Q in zip(self.depths, self.forwards_by_level, strict=True))

    def __repr__(self) -> str:
        return f"Work(gradients={self.gradients}, forwards={self.forwards})"
