"""The paper's claims, judged by the records."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from smgopt.lab.reproduce.series import mean, spread
from smgopt.lab.reproduce.verdicts import (
    ALIKE,
    HOLDS,
    IN_PART,
    MULTILEVEL,
    NEAR,
    NOT_HERE,
    NOT_JUDGED,
    Records,
    Spent,
    Verdict,
    accuracy,
    first,
    graded,
    percent,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from smgopt.lab.reproduce.series import Array, Series
    from smgopt.lab.reproduce.setups import Scale, Setup


def more_levels_are_faster(records: Records, **changes: Any) -> tuple[str, str]:
    """Over all neighbours in 1, 2, 4, 8 levels, after 5, 10 and 50 cycles."""
    found = records.by_levels(**changes)
    table = {
        c: {l: accuracy(s, c) for l, s in found.items()} for c in (5, 10, 50) if c <= records.scale.cycles
    }
    levels = list(found)
    steps = [a[m] > a[l] - ALIKE for a in table.values() for l, m in pairwise(levels)]
    numbers = "; ".join(f"after {c} cycles: {percent(a)} %" for c, a in table.items())
    return graded(steps), numbers


def _cheaper(records: Records, cost: Callable[[Series], Array], unit: str) -> tuple[str, str]:
    found = records.by_levels(depth=2048, table=1)
    sgd = found[1]
    best = float(np.nanmax(mean(sgd.accuracy)))
    targets = [0.8, *([0.9] if best > 0.9 else []), best]
    parts, words = [], []
    for target in targets:
        spent = {l: first(s, target, cost(s)) for l, s in found.items()}
        if not np.isfinite(spent[1].cost) or spent[1].at_most:
            continue
        # What was reached before anybody looked may have cost less than is known: then nothing is judged.
        parts += [
            spent[l].cost < spent[1].cost
            for l in MULTILEVEL
            if spent[l].cost < spent[1].cost or not spent[l].at_most
        ]
        ratios = ", ".join(_ratio(l, spent[1].cost, spent[l]) for l in MULTILEVEL)
        words.append(f"to {100 * target:.1f} %, SGD's {unit} ÷ theirs: {ratios}")
    return (graded(parts), "; ".join(words)) if parts else (NOT_JUDGED, "SGD reaches none of the accuracies")


def _ratio(levels: int, sgd: float, spent: Spent) -> str:
    if not 0 < spent.cost < np.inf:
        return f"{levels} levels never"
    return f"{levels} levels {'at least ' if spent.at_most else ''}{sgd / spent.cost:.1f}×"


def less_work(records: Records) -> tuple[str, str]:
    """Gradients until 80 %, 90 % and SGD's best accuracy."""
    return _cheaper(records, lambda s: s.work, "work")


def less_work_with_trials(records: Records) -> tuple[str, str]:
    """The same with the forward passes of the line search, each a third of a gradient."""
    return _cheaper(records, lambda s: s.work + s.forwards / 3, "work")


def less_time(records: Records) -> tuple[str, str]:
    """Seconds until the same."""
    return _cheaper(records, lambda s: s.seconds, "seconds")


def smaller_spread(records: Records) -> tuple[str, str]:
    """The standard deviation over seeds, its mean over all evaluations from 10 cycles on."""
    found = records.by_levels(depth=2048, table=1)
    if any(len(s.seeds) < 2 for s in found.values()):
        return NOT_JUDGED, "one seed has no spread"
    stds = {l: float(100 * np.nanmean(spread(s.accuracy)[s.cycles >= 10])) for l, s in found.items()}
    return graded(stds[l] < stds[1] for l in MULTILEVEL), f"points: {percent(stds, '.2f')}"


def after_50_cycles(records: Records) -> tuple[str, str]:
    """91.7 % with 8 levels, 80 % with SGD."""
    found = {l: accuracy(s, 50) for l, s in records.by_levels((1, 8), depth=2048, table=1).items()}
    return graded([found[8] >= 91.7 - NEAR, abs(found[1] - 80.0) <= NEAR]), f"{percent(found)} %"


def ninety_after_10(records: Records) -> tuple[str, str]:
    """To the digit that the paper prints."""
    found = {t: accuracy(records.series(depth=2048, levels=8, table=t), 10) for t in (2, 1)}
    reached = [value >= 89.95 for value in found.values()]
    return graded(reached), ", ".join(f"{value:.1f} % with Table {t}" for t, value in found.items())


def coarse_levels_as_good(records: Records) -> tuple[str, str]:
    """Levels 3 to 7 of the 2,048 blocks: within half a point of the finest, by mean and by median."""
    series = records.series(depth=2048, levels=8, table=1)
    means, medians = 100 * mean(series.levels), 100 * np.nanmedian(series.levels, axis=0)
    by_mean = [means[7] - means[l] <= NEAR for l in range(3, 7)]
    by_median = [medians[7] - medians[l] <= NEAR for l in range(3, 7)]
    verdict = HOLDS if all(by_mean) else IN_PART if all(by_median) or any(by_mean) else NOT_HERE
    shown = ", ".join(f"level {l} {means[l]:.1f} (median {medians[l]:.1f})" for l in (7, 6, 5, 4, 3))
    return verdict, f"{shown} %"


def pruned_beats_shallow(records: Records) -> tuple[str, str]:
    """Level 3 of 2,048 blocks against the finest levels of 256 and 512."""
    deep = float(100 * mean(records.series(depth=2048, levels=8, table=1).levels)[3])
    finest = {d: float(100 * mean(records.series(depth=d, levels=8, table=1).levels)[7]) for d in (256, 512)}
    shown = ", ".join(f"{d} blocks {value:.1f}" for d, value in finest.items())
    return graded(deep >= value - ALIKE for value in finest.values()), f"level 3 {deep:.1f} %, {shown} %"


def _search(records: Records, initial_step: float, lr: float) -> tuple[Series, Series]:
    shape: dict[str, Any] = {"depth": 256, "levels": 4, "table": 1, "lr": lr, "initial_step": initial_step}
    return records.series(**shape), records.series(**shape, line_search=False)


def search_helps_early(records: Records) -> tuple[str, str]:
    """The mean accuracies after 5, 10, 15 and 20 cycles, ᾱ = 3, against α = 3 and against α = 1."""
    searched, whole = _search(records, 3.0, 0.1)
    fas = records.series(depth=256, levels=4, table=1, line_search=False)
    at = [c for c in (5, 10, 15, 20) if c <= records.scale.cycles]
    found = {c: [accuracy(series, c) for series in (searched, whole, fas)] for c in at}
    # Where all runs have diverged there is no accuracy, and nothing to be better than.
    better = [not other >= ours for ours, *others in found.values() for other in others]
    shown = "; ".join(
        f"after {c} cycles {a:.1f} % with, {b:.1f} % without (α = 3), {one:.1f} % without (α = 1)"
        for c, (a, b, one) in found.items()
    )
    lost = f"; without, {len(whole.diverged)} of {len(whole.seeds)} seeds diverged" if whole.diverged else ""
    return graded(better), shown + lost


def _share(values: Array) -> float:
    made = ~np.isnan(values)
    return float(100 * np.mean(values[made] > 0)) if made.any() else 0.0


def search_never_rises(records: Records) -> tuple[str, str]:
    """The share of corrections that raise the level's objective, and its loss without the coupling term."""
    parts, words = [], []
    for initial_step, lr in ((3.0, 0.1), (2.0, 0.2)):
        searched, whole = _search(records, initial_step, lr)
        with_it, without = _share(searched.change), _share(whole.change)
        plain = _share(searched.rise)
        parts += [with_it == 0, plain == 0]
        words.append(
            f"ᾱ = {initial_step:g}, step {lr:g}: {with_it:.1f} % of the corrections raise the objective of "
            f"their level with line search, {without:.1f} % without; {plain:.1f} % raise the level's loss "
            "without the coupling term with it"
        )
    return graded(parts), "; ".join(words)


def search_lowers_loss(records: Records) -> tuple[str, str]:
    """The mean training loss of the last 30 cycles, step 0.2, ᾱ = 2; a run that diverged has lost."""
    searched, whole = _search(records, 2.0, 0.2)
    with_it, without = _last_loss(searched), _last_loss(whole)
    accuracies = [accuracy(s, records.scale.cycles) for s in (searched, whole)]
    lost = f"; without, {len(whole.diverged)} of {len(whole.seeds)} seeds diverged" if whole.diverged else ""
    return (
        graded([not searched.diverged and (bool(whole.diverged) or with_it < without)]),
        f"loss {with_it:.3f} with, {without:.3f} without; "
        f"accuracy {accuracies[0]:.1f} % and {accuracies[1]:.1f} %{lost}",
    )


def _last_loss(series: Series) -> float:
    """The mean over the runs that came to their end."""
    losses = [
        np.mean(of_run[-30:])
        for seed, of_run in zip(series.seeds, series.train_loss, strict=True)
        if seed not in series.diverged
    ]
    return float(np.mean(losses)) if losses else float("nan")


def ahead_on_mnist1d(records: Records) -> tuple[str, str]:
    """The share of evaluations after cycle 0 at which the mean is above SGD's."""
    parts, words = [], []
    for depth in (256, 512):
        found = records.by_levels(data="mnist1d", depth=depth)
        curves = {l: mean(s.accuracy)[1:] for l, s in found.items()}
        ahead = {l: float(np.mean(curves[l] > curves[1])) for l in MULTILEVEL}
        parts += [share == 1 for share in ahead.values()]
        ends = {l: accuracy(s, records.scale.cycles) for l, s in found.items()}
        shares = ", ".join(f"{l} levels {100 * share:.0f} %" for l, share in ahead.items())
        words.append(f"{depth} blocks: ahead at {shares} of the evaluations; at the end {percent(ends)} %")
    return graded(parts), "; ".join(words)


def four_like_eight_on_mnist1d(records: Records) -> tuple[str, str]:
    """The best mean accuracies."""
    parts, words = [], []
    for depth in (256, 512):
        found = records.by_levels((4, 8), data="mnist1d", depth=depth)
        best = {l: float(100 * np.nanmax(mean(s.accuracy))) for l, s in found.items()}
        parts.append(best[4] >= best[8] - ALIKE)
        words.append(f"{depth} blocks: {percent(best)} %")
    return graded(parts), "; ".join(words)


def shallow_too(records: Records) -> tuple[str, str]:
    """2 and 4 levels against SGD after 10 and 50 cycles, 8 and 16 blocks."""
    parts, words = [], []
    for depth in (8, 16):
        found = records.by_levels((1, 2, 4), depth=depth)
        for cycle in (10, 50):
            if cycle <= records.scale.cycles:
                values = {l: accuracy(s, cycle) for l, s in found.items()}
                parts += [values[l] > values[1] for l in (2, 4)]
                words.append(f"{depth} blocks, {cycle} cycles: {percent(values)} %")
    return graded(parts), "; ".join(words)


class Claim(NamedTuple):
    """What the paper says, and how it is judged.

    Attributes:
        claim: in a sentence.
        criterion: when it holds; if it does for some of the numbers only, it holds in part.
        judged: the verdict and the numbers.
    """

    claim: str
    criterion: str
    judged: Callable[[Records], tuple[str, str]]


_FASTER = f"each number of levels is ahead of the next smaller one, or within {ALIKE} points"
_LESS = "2, 4 and 8 levels need less for each of the accuracies; “at least”: the first evaluation had it"

CLAIMS = (
    Claim(
        "More levels converge faster (2,048 blocks)",
        _FASTER,
        lambda r: more_levels_are_faster(r, depth=2048, table=1),
    ),
    Claim("The same with 1,024 blocks", _FASTER, lambda r: more_levels_are_faster(r, depth=1024, table=1)),
    Claim(
        "The same with the smoothing of Table 2",
        _FASTER,
        lambda r: more_levels_are_faster(r, depth=2048, table=2),
    ),
    Claim(
        "After 50 cycles 8 levels have 91.7 %, SGD 80 %",
        f"8 levels have as much, less {NEAR} points at most; SGD has as much, within {NEAR} points",
        after_50_cycles,
    ),
    Claim("90 % after 10 cycles with 8 levels", "with both tables, to the digit printed", ninety_after_10),
    Claim("Less work than SGD to the same accuracy", f"{_LESS}, in gradients", less_work),
    Claim(
        "The same with the line search's forward passes",
        f"{_LESS}, a forward pass counted as a third of a gradient",
        less_work_with_trials,
    ),
    Claim("Less wall time than SGD to the same accuracy", f"{_LESS}, in seconds", less_time),
    Claim(
        "Less spread over seeds than SGD",
        "2, 4 and 8 levels have a smaller standard deviation, in the mean from 10 cycles on",
        smaller_spread,
    ),
    Claim(
        "Levels 3 and up of the 2,048 blocks are as accurate as the finest",
        f"by mean at most {NEAR} points less; in part: so by median, or by mean on some of them",
        coarse_levels_as_good,
    ),
    Claim(
        "Level 3 of the 2,048 blocks is as accurate as networks of 256 and 512 blocks",
        f"at most {ALIKE} points less",
        pruned_beats_shallow,
    ),
    Claim(
        "The line search speeds up the early stages (ᾱ = 3)",
        "ahead of both without it, after each of the numbers of cycles",
        search_helps_early,
    ),
    Claim(
        "The line search keeps Δℓ ≤ 0",
        "no correction raises the objective, nor the loss without the coupling term",
        search_never_rises,
    ),
    Claim(
        "Without line search the training loss stays higher (step 0.2, ᾱ = 2)",
        "it does, in the mean of the last 30 cycles; or seeds diverge",
        search_lowers_loss,
    ),
    Claim(
        "On MNIST-1D sMG/OPT is always ahead of SGD",
        "its mean is higher at every evaluation after the first cycle",
        ahead_on_mnist1d,
    ),
    Claim(
        "On MNIST-1D 4 levels are as good as 8",
        f"their best mean is at most {ALIKE} points less",
        four_like_eight_on_mnist1d,
    ),
    Claim("The speed-up is there with 8 or 16 blocks, too", "2 and 4 levels are ahead of SGD", shallow_too),
)


def judge(known: Mapping[Setup, Series], scale: Scale) -> tuple[Verdict, ...]:
    """All claims.

    Args:
        known: the series that there are.
        scale: the size of all.
    """
    records, found = Records(known, scale), []
    for claim in CLAIMS:
        try:
            verdict, number = claim.judged(records)
        except LookupError as error:
            missing = isinstance(error, KeyError)
            verdict, number = NOT_JUDGED, "its runs were not asked for" if missing else str(error)
        found.append(Verdict(claim.claim, verdict, number, claim.criterion))
    return tuple(found)
