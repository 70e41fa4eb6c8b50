"""Verdicts, outliers and tables from records that are made up."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from smgopt.lab.reproduce import claims, outliers, paper
from smgopt.lab.reproduce.items import ITEMS
from smgopt.lab.reproduce.series import Series
from smgopt.lab.reproduce.setups import Scale, Setup
from smgopt.lab.reproduce.tables import Cell, by_cycles, cell
from smgopt.lab.reproduce.verdicts import HOLDS, IN_PART, NOT_HERE, NOT_JUDGED, Records, Spent, first

SCALE = Scale()


def made(setup: Setup, accuracy: Any, **changes: Any) -> Series:
    """A series whose seeds have these accuracies after 0, 5, 10, 50, 100 and 300 cycles."""
    cycles = np.array([0, 5, 10, 50, 100, 300])
    accuracy = np.array(accuracy, dtype=np.float64)
    seeds, levels = len(accuracy), setup.levels
    work = np.tile(cycles * (setup.work // setup.cycles), (seeds, 1)).astype(np.float64)
    corrections = np.full((seeds, 300, levels), -0.01)
    found = Series(
        setup,
        tuple(range(1, seeds + 1)),
        tuple(f"{setup.name}-seed-{i}" for i in range(seeds)),
        {},
        cycles,
        accuracy,
        np.tile(accuracy[:, -1:], (1, levels)),
        work,
        work,
        work / 1e5,
        np.ones((seeds, 300)),
        corrections,
        corrections,
        np.ones((seeds, 300, levels)),
        {seed: [[] for _ in range(levels)] for seed in range(1, seeds + 1)},
        {seed: [[] for _ in range(levels)] for seed in range(1, seeds + 1)},
    )
    return replace(found, **changes)


def records(curves: dict[int, Any], **shape: Any) -> Records:
    setups = {levels: SCALE.setup(levels=levels, **shape) for levels in curves}
    return Records({setup: made(setup, curves[levels]) for levels, setup in setups.items()}, SCALE)


GOOD = {
    1: [[0.1, 0.5, 0.6, 0.82, 0.83, 0.85], [0.1, 0.4, 0.5, 0.78, 0.83, 0.85]],
    2: [[0.1, 0.6, 0.8, 0.85, 0.9, 0.90], [0.1, 0.6, 0.8, 0.85, 0.9, 0.90]],
    4: [[0.1, 0.8, 0.86, 0.9, 0.91, 0.92], [0.1, 0.8, 0.86, 0.9, 0.91, 0.92]],
    8: [[0.1, 0.88, 0.9, 0.917, 0.92, 0.924], [0.1, 0.88, 0.9, 0.917, 0.92, 0.924]],
}
DEEP: dict[str, Any] = {"depth": 2048, "table": 1}


def test_what_the_paper_says_holds_for_what_it_shows() -> None:
    found = records(GOOD, **DEEP)
    assert claims.more_levels_are_faster(found, **DEEP)[0] == HOLDS
    assert claims.after_50_cycles(found)[0] == HOLDS
    assert claims.smaller_spread(found)[0] == HOLDS
    assert claims.less_work(found)[0] == HOLDS
    assert claims.coarse_levels_as_good(found)[0] == HOLDS


def test_a_number_of_the_paper_is_compared_with_ours() -> None:
    better = {**GOOD, 1: [[0.1, 0.5, 0.7, 0.875, 0.9, 0.918]] * 2}
    verdict, number = claims.after_50_cycles(records(better, **DEEP))
    assert (verdict, number) == (IN_PART, "SGD 87.5, 8 levels 91.7 %")


def test_forward_passes_are_work_too() -> None:
    found = records(GOOD, **DEEP)
    dear = {
        setup: replace(one, forwards=one.work * (1000 if setup.levels > 1 else 0))
        for setup, one in found.known.items()
    }
    assert claims.less_work(Records(dear, SCALE))[0] == HOLDS
    assert claims.less_work_with_trials(Records(dear, SCALE))[0] == NOT_HERE


def test_what_was_reached_before_anybody_looked_is_not_judged_by_a_guess() -> None:
    # 80 % lies before the first evaluation of 4 and 8 levels: they may have cost less than that one.
    verdict, number = claims.less_work(records(GOOD, **DEEP))
    assert verdict == HOLDS
    assert "to 80.0 %" in number
    assert "8 levels at least " in number
    late = {**GOOD, 1: [[0.1, 0.7, 0.79, 0.82, 0.83, 0.85]] * 2}
    early = first(records(late, **DEEP).series(levels=8, **DEEP), 0.8, np.full((2, 6), 5.0))
    assert early == Spent(5.0, at_most=True)


def test_the_contrary_does_not_hold() -> None:
    contrary = dict(zip(GOOD, reversed(GOOD.values()), strict=True))
    found = records(contrary, **DEEP)
    assert claims.more_levels_are_faster(found, **DEEP)[0] == NOT_HERE
    assert claims.smaller_spread(found)[0] == NOT_HERE
    assert claims.less_work(found)[0] == NOT_HERE


def test_ahead_means_at_every_evaluation() -> None:
    shape = {"data": "mnist1d"}
    known = {**records(GOOD, depth=256, **shape).known, **records(GOOD, depth=512, **shape).known}
    assert claims.ahead_on_mnist1d(Records(known, SCALE))[0] == HOLDS
    late = {**GOOD, 2: [[0.1, 0.2, 0.7, 0.8, 0.9, 0.9]] * 2}
    known = {**known, **records(late, depth=512, **shape).known}
    assert claims.ahead_on_mnist1d(Records(known, SCALE))[0] == IN_PART


def test_a_correction_that_rises_counts() -> None:
    shape: dict[str, Any] = {"depth": 256, "levels": 4, "table": 1}
    known = {}
    for initial_step, lr in ((3.0, 0.1), (2.0, 0.2)):
        for search in (True, False):
            setup = SCALE.setup(**shape, lr=lr, initial_step=initial_step, line_search=search)
            rising = np.full((2, 300, 4), -1.0 if search else 1.0)
            rising[:, :, 0] = np.nan  # the coarsest level gets no correction
            known[setup] = made(setup, GOOD[4], change=rising, rise=rising)
    assert claims.search_never_rises(Records(known, SCALE))[0] == HOLDS
    searched = SCALE.setup(**shape, initial_step=3.0)
    some = known[searched].rise.copy()
    some[0, 0, 3] = 1.0
    known[searched] = replace(known[searched], rise=some)
    verdict, number = claims.search_never_rises(Records(known, SCALE))
    assert verdict == IN_PART
    assert "100.0 % without" in number


def test_a_diverged_rival_is_beaten() -> None:
    shape: dict[str, Any] = {"depth": 256, "levels": 4, "table": 1}
    good, lost = SCALE.setup(**shape, initial_step=3.0), [[0.1] + [np.nan] * 5] * 2
    whole = SCALE.setup(**shape, initial_step=3.0, line_search=False)
    fas = SCALE.setup(**shape, line_search=False)
    known = {
        good: made(good, GOOD[4]),
        whole: made(whole, lost, diverged={1: 3, 2: 4}),
        fas: made(fas, GOOD[2]),
    }
    verdict, number = claims.search_helps_early(Records(known, SCALE))
    assert verdict == HOLDS
    assert "2 of 2 seeds diverged" in number


def test_a_run_that_diverges_without_line_search_has_the_higher_loss() -> None:
    shape: dict[str, Any] = {"depth": 256, "levels": 4, "table": 1, "lr": 0.2, "initial_step": 2.0}
    searched, whole = SCALE.setup(**shape), SCALE.setup(**shape, line_search=False)
    lost = np.full((2, 300), np.nan)
    known = {
        searched: made(searched, GOOD[4]),
        whole: made(whole, [[0.1] + [np.nan] * 5] * 2, diverged={1: 0, 2: 4}, train_loss=lost),
    }
    assert claims.search_lowers_loss(Records(known, SCALE))[0] == HOLDS
    # A curve over both would end in the fourth cycle, and the first run has none at all.
    assert known[whole].drawn == known[whole].folders[1:]
    assert replace(known[whole], diverged={1: 3}).drawn == known[whole].folders[1:]


def test_what_was_not_run_is_not_judged() -> None:
    assert {verdict.verdict for verdict in claims.judge({}, SCALE)} == {NOT_JUDGED}


def test_a_seed_with_a_dead_output_is_explained() -> None:
    setup = SCALE.setup(levels=2, table=1)
    ends = [0.92, 0.919, 0.921, 0.82, 0.922]
    found = made(setup, [[0.1, 0.5, 0.6, 0.7, 0.8, end] for end in ends])
    found.silent[4][1] = [7]
    (outlier,) = outliers.find([found])
    assert (outlier.seed, outlier.levels, outlier.medians) == (4, {0: 82.0, 1: 82.0}, {0: 92.0, 1: 92.0})
    assert outlier.why.startswith("output 7 is 0 for every test sample")
    assert not outliers.find([made(setup, [[0.1] * 5 + [end] for end in (0.92, 0.91, 0.93)])])


def test_tables_have_the_papers_numbers_and_the_difference() -> None:
    known = records(GOOD, depth=2048, table=2).known
    item = ITEMS["cycles"]
    table = by_cycles(item, item.lines(SCALE, {}), known, SCALE)
    assert [len(row.cells) for row in table.rows] == [5] * 4
    head, printed, ours, points = table.texts()[:4]
    assert head[2:7] == ["5 cycles", "10 cycles", "50 cycles", "100 cycles", "300 cycles"]
    assert printed[:7] == ["SGD", "paper", "52.7", "65.4", "78.9", "83.3", "85.0"]
    assert ours[2] == "45.0 ± 7.1"
    assert points[2] == "-7.7"


def test_cells() -> None:
    assert str(cell(np.array([0.9]))) == "90.0"
    assert str(cell(np.array([0.9, np.nan]))) == "90.0 (1 of 2 seeds)"
    assert Cell(90.04, None, 1, 1, 90.0).difference == pytest.approx(0.0)


def test_the_papers_tables_are_whole() -> None:
    assert all(len(row) == len(paper.AFTER_CYCLES) for row in paper.ACCURACY_BY_CYCLES.values())
    assert all(len(row) == len(paper.PRUNED_LEVELS) for row in paper.ACCURACY_BY_LEVEL.values())
