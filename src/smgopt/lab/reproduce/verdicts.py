"""What claims are judged with: the series they ask for, costs read off curves, words for a verdict."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from smgopt.lab.reproduce.series import mean

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from smgopt.lab.reproduce.series import Array, Series
    from smgopt.lab.reproduce.setups import Scale, Setup

HOLDS, IN_PART, NOT_HERE, NOT_JUDGED = "holds", "holds in part", "does not hold here", "not judged"

MULTILEVEL = (2, 4, 8)
LEVELS = (1, *MULTILEVEL)


@dataclass(frozen=True)
class Verdict:
    """What became of a claim.

    Attributes:
        claim: what the paper says.
        verdict: one of the four above.
        number: what it is judged by.
        criterion: when it holds.
    """

    claim: str
    verdict: str
    number: str
    criterion: str

    def as_dict(self) -> dict[str, str]:
        """The same as plain values."""
        return asdict(self)


class Records:
    """The series of the paper's configurations; a claim asks for what it needs.

    Args:
        known: the series.
        scale: the size of all.
    """

    def __init__(self, known: Mapping[Setup, Series], scale: Scale) -> None:
        self.known, self.scale = known, scale

    def series(self, **changes: Any) -> Series:
        """The series of a configuration.

        Raises:
            LookupError: it was not run.
        """
        return self.known[self.scale.setup(**changes)]

    def by_levels(self, levels: Iterable[int] = LEVELS, **changes: Any) -> dict[int, Series]:
        """The series with 1, 2, 4 and 8 levels."""
        return {l: self.series(levels=l, **changes) for l in levels}


def graded(parts: Iterable[bool]) -> str:
    """Holds if all parts do, in part if some do.

    Example:
        >>> graded([True, True]), graded([True, False]), graded([False])
        ('holds', 'holds in part', 'does not hold here')
    """
    found = list(parts)
    return HOLDS if all(found) else IN_PART if any(found) else NOT_HERE


def accuracy(series: Series, cycle: int) -> float:
    """The mean over the seeds in per cent; NaN if none has come so far.

    Raises:
        LookupError: the runs are not as long.
    """
    if cycle > series.setup.cycles:
        raise LookupError(f"there are not {cycle} cycles")
    return float(100 * mean(series.at(cycle, series.accuracy)))


def percent(values: Mapping[int, float], form: str = ".1f") -> str:
    """Numbers by levels in words."""
    return ", ".join(f"{'SGD' if l == 1 else f'{l} levels'} {format(v, form)}" for l, v in values.items())


class Spent(NamedTuple):
    """What a mean curve has cost when it first reaches an accuracy.

    Attributes:
        cost: infinite if it never does.
        at_most: the first evaluation was there already, so that it may have been less.
    """

    cost: float
    at_most: bool = False


def first(series: Series, target: float, cost: Array) -> Spent:
    """The cost of an accuracy; between two evaluations the curve is a straight line."""
    curve, spent = mean(series.accuracy), mean(cost)
    # Not before the first cycle: what an untrained network guesses right is no merit of the training.
    reached = np.flatnonzero((curve >= target) & (series.cycles > 0))
    if not len(reached):
        return Spent(np.inf)
    i = int(reached[0])
    if i == 1:
        return Spent(float(spent[1]), at_most=True)
    share = min(1.0, (curve[i] - target) / (curve[i] - curve[i - 1])) if curve[i] > curve[i - 1] else 0.0
    return Spent(float(spent[i] - share * (spent[i] - spent[i - 1])))


# Points. Means of five seeds that differ by less than the first are taken for equal; what is as near to
# another number, the paper's for one, as the second is taken for as good.
ALIKE, NEAR = 0.3, 0.5
