"""What ``smgopt compare`` does and prints."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from rich.console import Console

from smgopt.lab import pool
from smgopt.lab.compare import contest as contests
from smgopt.lab.compare import outcome as outcomes
from smgopt.lab.compare.hold import hold
from smgopt.lab.errors import InputError, RunError
from smgopt.lab.tables import Column, refuse_unwritable, show, write_json

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from smgopt.lab.compare.contest import Contest, Entry
    from smgopt.lab.compare.outcome import Outcome


def compare(
    files: Sequence[Path], seeds: int, jobs: int | None, out: Path, publish: Path | None, json: Path | None
) -> None:
    """``smgopt compare``.

    Args:
        files: of the contests.
        seeds: how many runs with the chosen step.
        jobs: how many runs at a time; as many as there are cores if it is not given.
        out: the folder of runs and reports.
        publish: the folder of a repository that takes a page, and figures and numbers beside it.
        json: a file for all numbers.

    Raises:
        InputError: a file is wrong, or a number is not positive.
        UserError: a run cannot be done.
        Interrupted: a signal asked for it; the same command goes on.
    """
    for name, number in (("--seeds", seeds), ("--jobs", jobs)):
        if number is not None and number < 1:
            raise InputError(f"{name} must be at least 1, not {number}")
    refuse_unwritable(json)
    found = {file.stem: contests.read(file) for file in files}
    if len(found) < len(files):
        raise InputError("two of the files have the same name")
    at_a_time = jobs or pool.cores()
    console = Console()
    shown = {
        name: hold(contest, out / name / "runs", seeds, at_a_time, _watch(console, contest))
        for name, contest in found.items()
    }
    content = {}
    for name, one in shown.items():
        rows = one.rows()
        content[name] = {"contest": one.contest.model_dump(), "seeds": seeds, "results": rows}
        _tell(console, one, rows)
    write_json(json, content)
    held = {name: one for name, one in shown.items() if any(result.runs for result in one.results)}
    for name, one in held.items():
        console.print(f"The figure: {_draw(one, out / name)[0]}", soft_wrap=True, highlight=False)
    if publish is not None and held:
        from smgopt.lab.compare import page

        written = page.write(held, content, seeds, at_a_time, publish)
        console.print(f"Published: {written}", soft_wrap=True, highlight=False)
    if lost := [one.contest.title for name, one in shown.items() if name not in held]:
        raise RunError(f"all runs have diverged of: {'; '.join(lost)}")


def _watch(console: Console, contest: Contest) -> Callable[[int], Callable[[Entry], None]]:
    def watch(todo: int) -> Callable[[Entry], None]:
        start, finished = time.perf_counter(), 0
        console.print(f"{contest.title}: {todo} runs to do", highlight=False)

        def told(entry: Entry) -> None:
            nonlocal finished
            finished += 1
            left = (time.perf_counter() - start) / finished * (todo - finished)
            name = entry.name.rpartition("-")[0]
            console.print(
                f"{finished} of {todo} runs, {left / 60:.0f} min left: {name}",
                highlight=False,
                soft_wrap=True,
            )

        return told

    return watch


def _tell(console: Console, one: Outcome, rows: Sequence[dict[str, Any]]) -> None:
    shown = [
        {
            **row,
            "step": f"{row['step']:g}{' (end of the grid)' if row['at_the_edge'] else ''}",
            **{f"equal_{key}": outcomes.shown(row[f"equal_{key}"]) for key in outcomes.EQUAL},
        }
        for row in rows
    ]
    columns = (
        Column("optimizer", "optimizer"),
        Column("step", "step"),
        *(Column(f"equal {word}", f"equal_{key}") for key, word in outcomes.EQUAL.items()),
        Column("samples", "samples", ",.0f"),
        Column("gradients", "work", ",.0f"),
        Column("seconds", "seconds", ",.1f"),
    )
    console.print()
    show(console, f"{one.contest.title}: test accuracy in per cent", columns, shown)


def _draw(one: Outcome, folder: Path) -> list[Path]:
    from smgopt.lab import style

    with style.paper():
        return style.save(one.figure(), folder, "accuracy", ("png", "svg"))
