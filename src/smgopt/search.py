"""How far to go along a direction: the step size, apart from the direction."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol


class Step(NamedTuple):
    """What a search found.

    Attributes:
        alpha: α, the accepted step; 0 if there was none.
        change: f(θ + αc) - f(θ), so 0 if no step was accepted.
        trials: how many steps were tried.
    """

    alpha: float
    change: float
    trials: int


class Search(Protocol):
    """Chooses α from φ(α) = f(θ + αc) - f(θ) and the slope φ'(0) = ⟨∇f(θ), c⟩."""

    def __call__(self, φ: Callable[[float], float], slope: float) -> Step:
        """The step taken; φ is evaluated once a trial, the accepted α last."""


@dataclass(frozen=True)
class Backtracking:
    r"""Shrink α until the objective falls enough.

    Starts at ᾱ and multiplies by ρ until

    .. math:: f(θ + αc) ≤ f(θ) + c_1 α ⟨∇f(θ), c⟩

    A direction that does not descend is not tried at all, and a trial that is not finite is a failed one.
    After ``max_trials`` failures α is 0. So an accepted step never raises the objective.

    Args:
        initial_step: ᾱ > 0.
        shrink: ρ in (0, 1).
        sufficient_decrease: c₁ in (0, 1).
        max_trials: at least 1.

    Raises:
        ValueError: an argument outside its range.

    Example:
        >>> f = lambda θ: θ**2
        >>> Backtracking(initial_step=4.0)(lambda α: f(1 - α) - f(1), slope=-2.0)
        Step(alpha=1.0, change=-1.0, trials=3)
    """

    initial_step: float = 1.0
    shrink: float = 0.5
    sufficient_decrease: float = 0.5
    max_trials: int = 10

    def __post_init__(self) -> None:
        _refuse_unless_positive(self.initial_step)
        if not 0 < self.shrink < 1:
            raise ValueError(f"shrink must lie between 0 and 1, not {self.shrink}")
        if not 0 < self.sufficient_decrease < 1:
            raise ValueError(f"sufficient_decrease must lie between 0 and 1, not {self.sufficient_decrease}")
        if self.max_trials < 1:
            raise ValueError(f"max_trials must be at least 1, not {self.max_trials}")

    def __call__(self, φ: Callable[[float], float], slope: float) -> Step:
        """The first step of ᾱ, ρᾱ, ρ²ᾱ, … that lowers the objective enough."""
        if not -math.inf < slope < 0:
            return Step(0.0, 0.0, 0)
        α = self.initial_step
        for trial in range(1, self.max_trials + 1):
            change = φ(α)
            # Comparisons with NaN are false, so that it counts as a failure; -inf has to be named.
            if -math.inf < change <= self.sufficient_decrease * α * slope:
                return Step(α, change, trial)
            α *= self.shrink
        return Step(0.0, 0.0, self.max_trials)


@dataclass(frozen=True)
class FixedStep:
    """Always the same α: without a line search MG/OPT is the full approximation scheme, FAS.

    Only a step to where the objective is not finite is refused.

    Args:
        initial_step: α > 0; FAS proper has 1.

    Raises:
        ValueError: α is not positive.

    Example:
        >>> FixedStep(2.0)(lambda α: α * 10, slope=1.0)
        Step(alpha=2.0, change=20.0, trials=1)
    """

    initial_step: float = 1.0

    def __post_init__(self) -> None:
        _refuse_unless_positive(self.initial_step)

    def __call__(self, φ: Callable[[float], float], slope: float) -> Step:  # noqa: ARG002
        """The whole step, whatever the slope."""
        change = φ(self.initial_step)
        return Step(self.initial_step, change, 1) if math.isfinite(change) else Step(0.0, 0.0, 1)


def _refuse_unless_positive(initial_step: float) -> None:
    if not 0 < initial_step < math.inf:
        raise ValueError(f"initial_step must be a positive number, not {initial_step}")
