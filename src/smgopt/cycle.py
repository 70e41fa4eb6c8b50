"""The V-cycle: Algorithm 1 of the paper.

The numbers in the comments are the algorithm's lines. Where it contradicts itself the text of the paper
decides: line 10 starts from θ^{l,ν^l}, line 14 from θ^{0,0}, and v^l enters the objective with a minus,
f^l(θ) = ℓ^l(θ) - ⟨v^l, θ⟩, so that at θ^{l,0} the coarse gradient is the restricted fine one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from smgopt.objective import Objective, inner
from smgopt.search import Search
from smgopt.transfer import Transfer

Coupling = Literal["paper", "consistent"]

# The gradient g^{l+1} of the finer level that the coarse one is made to agree with. Line 4 takes the gradient
# of the loss alone; Nash's MG/OPT takes that of the objective, the finer level's own coupling term included.
COUPLINGS = {"paper": Objective.loss_gradient, "consistent": Objective.gradient}


@dataclass(frozen=True)
class Correction:
    """What became of the coarse correction on one level.

    Attributes:
        loss_before: ℓ^l(θ^{l,ν}), the loss that it started from.
        loss_after: ℓ^l(θ^{l,ν} + α c), or ``loss_before`` if it was rejected.
        alpha: α, the accepted step; 0 if it was rejected.
        trials: how many steps were tried.
        slope: ⟨∇f^l(θ^{l,ν}), c⟩.
        change: f^l(θ^{l,ν} + α c) - f^l(θ^{l,ν}), what the search decides on: the coupling term included.
    """

    loss_before: float
    loss_after: float
    alpha: float
    trials: int
    slope: float
    change: float


@dataclass
class Level:
    """A level during one cycle: its objective, and how it is smoothed.

    Attributes:
        objective: f^l, at θ^l.
        lr: the step of gradient descent.
        ν: steps of smoothing before the correction; on the coarsest level all there are.
        μ: steps after it.
        transfer: the operators between it and the next coarser level; the coarsest one has none.
        correction: what became of it.
    """

    objective: Objective
    lr: float
    ν: int
    μ: int
    transfer: Transfer | None = None
    correction: Correction | None = None

    def smooth(self, steps: int) -> None:
        """GD(θ; steps): θ ← θ - lr ∇f(θ)."""
        for _ in range(steps):
            self.objective.move(self.objective.gradient(), -self.lr)


@dataclass(frozen=True)
class VCycle:
    """One V-cycle of MG/OPT over the levels 0 … L, in place.

    Args:
        search: how far to follow a correction.
        coupling: which gradient the coarse level is made to agree with, ``"paper"`` or ``"consistent"``.

    Raises:
        ValueError: an unknown coupling.

    Example:
        Two levels that hold one parameter of two blocks and of one; all losses are ½‖θ‖².

        >>> from smgopt.search import Backtracking
        >>> from smgopt.transfer import Depth
        >>> from smgopt.work import Work
        >>> thetas = [torch.zeros(1, requires_grad=True), torch.ones(2, requires_grad=True)]
        >>> work = Work([1, 2])
        >>> def loss(network):
        ...     return (network.weight**2).sum() / 2
        >>> def level(l):
        ...     network = torch.nn.Module()
        ...     network.weight = thetas[l]
        ...     objective = Objective(network, [thetas[l]], loss, [0.0], work, l)
        ...     return Level(objective, lr=0.5, ν=1, μ=0, transfer=Transfer([Depth()]))
        >>> VCycle(Backtracking())([level(0), level(1)])
        >>> thetas[1].tolist()
        [0.25, 0.5]
    """

    search: Search
    coupling: Coupling = "paper"

    def __post_init__(self) -> None:
        if self.coupling not in COUPLINGS:
            raise ValueError(f"coupling must be 'paper' or 'consistent', not {self.coupling!r}")

    def __call__(self, levels: Sequence[Level]) -> None:
        """One cycle from the finest level down and up again."""
        self._descend(levels, len(levels) - 1)

    def _descend(self, levels: Sequence[Level], l: int) -> None:
        level = levels[l]
        level.smooth(level.ν)  # 6 and 14
        if l == 0:
            return
        coarse, transfer = levels[l - 1], level.transfer
        assert transfer is not None, "every level but the coarsest has one"
        start = transfer.restrict(level.objective.theta)  # 7
        coarse.objective.place(start)
        coarse.objective.v = self._couple(coarse.objective, level.objective, transfer)  # 4
        self._descend(levels, l - 1)  # 8
        c = transfer.prolong(torch._foreach_sub(coarse.objective.theta, start))  # 9
        level.correction = self._correct(level, c)  # 10
        level.smooth(level.μ)  # 11

    def _couple(self, coarse: Objective, fine: Objective, transfer: Transfer) -> list[Tensor]:
        """v^l = ∇ℓ^l(θ^{l,0}) - R g^{l+1}."""
        g = COUPLINGS[self.coupling](fine)
        return list(torch._foreach_sub(coarse.loss_gradient(), transfer.restrict_gradient(g)))

    def _correct(self, level: Level, c: list[Tensor]) -> Correction:
        """θ ← θ + α c."""
        f = level.objective
        before, slope = f.evaluate().value, inner(f.gradient(), c)
        # The coupling term is linear, so that a trial needs only a new loss; and a difference of losses keeps
        # the digits that a difference of objectives would lose to ⟨v, θ⟩.
        linear = 0.0 if f.v is None else inner(f.v, c)
        start = f.snapshot()

        def φ(α: float) -> float:
            f.restore(start)
            f.move(c, α)
            return f.evaluate(gradient_follows=level.μ > 0).value - before - α * linear

        step = self.search(φ, slope)
        if step.alpha == 0:
            f.restore(start)
        return Correction(before, f.evaluate().value, step.alpha, step.trials, slope, step.change)
