"""Seeds that fall out of line, and why: shown and explained, not dropped."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from smgopt.lab.reproduce.series import Series

#: A seed is out of line on a level if it lies so many points below the median of the seeds there, and so many
#: times as far from it as the seeds are in the median.
POINTS, TIMES = 3.0, 4.0


@dataclass(frozen=True)
class Outlier:
    """One run on the levels on which it is out of line, or a run that diverged.

    Attributes:
        name: of the configuration.
        seed: the seed.
        levels: accuracy in per cent by level; empty if it diverged.
        medians: of all seeds, on the same levels.
        why: what the records say about it.
    """

    name: str
    seed: int
    levels: dict[int, float]
    medians: dict[int, float]
    why: str

    def as_dict(self) -> dict[str, Any]:
        """The same as plain values."""
        return asdict(self)


def find(known: Iterable[Series]) -> tuple[Outlier, ...]:
    """The outliers of all series."""
    return tuple(outlier for series in known for outlier in _of(series.setup.name, series))


def _of(name: str, series: Series) -> list[Outlier]:
    percent, found = 100 * series.levels, []
    for seed, cycle in series.diverged.items():
        found.append(Outlier(name, seed, {}, {}, f"diverged after {cycle} cycles: the loss was not finite"))
    if np.sum(~np.isnan(percent[:, -1])) < 3:
        return found
    median = np.nanmedian(percent, axis=0)
    usual = np.nanmedian(np.abs(percent - median), axis=0)
    for seed, values in zip(series.seeds, percent, strict=True):
        below = median - values
        levels = [int(l) for l in np.flatnonzero((below > POINTS) & (below > TIMES * usual))]
        if levels:
            found.append(
                Outlier(
                    name,
                    seed,
                    {l: round(float(values[l]), 1) for l in levels},
                    {l: round(float(median[l]), 1) for l in levels},
                    _why(series, seed, levels),
                )
            )
    return found


def _why(series: Series, seed: int, levels: Sequence[int]) -> str:
    silent = sorted({k for l in levels for k in series.silent[seed][l]})
    unnamed = sorted({k for l in levels for k in series.unnamed[seed][l]} - set(silent))
    parts = []
    if silent:
        what, how = ("is", "it") if len(silent) == 1 else ("are", "them")
        cause = f": the relu behind the closing map has silenced {how}" if series.setup.closing_relu else ""
        parts.append(f"{_outputs(silent)} {what} 0 for every test sample{cause}")
    if unnamed:
        parts.append(f"no test sample is taken for {_classes(unnamed)}")
    if series.setup.levels > 1 and (rejected := _rejected(series, seed)):
        parts.append(rejected)
    return "; ".join(parts) or "all outputs are alive and all classes are named: it is just less accurate"


def _outputs(numbers: Sequence[int]) -> str:
    return ("output " if len(numbers) == 1 else "outputs ") + ", ".join(map(str, numbers))


def _classes(numbers: Sequence[int]) -> str:
    return ("class " if len(numbers) == 1 else "classes ") + ", ".join(map(str, numbers))


def _rejected(series: Series, seed: int) -> str:
    """Whether its line searches failed more often than those of the other seeds."""
    failed = np.mean(series.alpha[:, :, 1:] == 0, axis=(1, 2))
    mine = float(failed[series.seeds.index(seed)])
    usual = float(np.median(failed))
    if mine <= 2 * usual or mine < 0.02:
        return ""
    return f"its line searches rejected {mine:.0%} of the corrections, in the median of the seeds {usual:.0%}"
