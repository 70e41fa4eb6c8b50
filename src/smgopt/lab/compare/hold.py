"""A contest held: the runs that choose the steps, then those that count."""

from __future__ import annotations

from typing import TYPE_CHECKING

from smgopt.lab import pool
from smgopt.lab.compare import outcome as outcomes
from smgopt.lab.compare.contest import Entry
from smgopt.lab.files import reported
from smgopt.lab.runs import Run

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from smgopt.lab.compare.contest import Contest
    from smgopt.lab.compare.outcome import Outcome


def hold(
    contest: Contest, runs: Path, seeds: int, at_a_time: int, watch: Callable[[int], Callable[[Entry], None]]
) -> Outcome:
    """Do the runs that are missing, first those for the steps, and read them all.

    Args:
        contest: what to compare.
        runs: the folder of the runs.
        seeds: how many with the chosen step; they are 1, 2, 3, ….
        at_a_time: how many runs at once.
        watch: called with the number of runs to do; returns what is called after each.

    Raises:
        UserError: a run cannot be done.
        Interrupted: a signal asked for it.
    """
    with reported(f"{runs} cannot be made"):
        runs.mkdir(parents=True, exist_ok=True)

    def do(entries: Sequence[Entry]) -> None:
        todo = [entry for entry in entries if not _done(runs / entry.name)]
        if todo:
            pool.run_all(runs, todo, at_a_time, perform, watch(len(todo)))

    tried = [Entry(contest, c, step, 1, True) for c in contest.contestants for step in c.steps]
    do(tried)
    results, chosen = [], {}
    for c in contest.contestants:
        scores = {e.step: outcomes.score(runs, e) for e in tried if e.contestant is c}
        best = max(scores.values())
        # Of equals, the shorter step.
        chosen[c.name] = next(step for step in c.steps if scores[step] == best), scores
    finals = {
        c.name: [Entry(contest, c, chosen[c.name][0], seed, False) for seed in range(1, seeds + 1)]
        for c in contest.contestants
    }
    do([entry for entries in finals.values() for entry in entries])
    for c in contest.contestants:
        step, scores = chosen[c.name]
        lost = [e for e in finals[c.name] if pool.diverged(runs / e.name)]
        kept = tuple(Run(runs / e.name) for e in finals[c.name] if e not in lost)
        results.append(outcomes.Result(c, step, scores, kept, tuple(e.seed for e in lost)))
    return outcomes.Outcome(contest, tuple(results))


def perform(folder: Path, entry: Entry) -> None:
    """Do one run in this process, or what is left of it."""
    pool.attempt(entry.config, folder / entry.name)


def _done(run: Path) -> bool:
    if pool.diverged(run) is not None:
        return True
    return (run / "config.toml").is_file() and Run(run).finished is not None
