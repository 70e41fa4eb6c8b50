"""What ``smgopt reproduce`` prints."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.console import Console

from smgopt.lab import pool
from smgopt.lab.errors import InputError
from smgopt.lab.reproduce import cost
from smgopt.lab.reproduce.items import named
from smgopt.lab.reproduce.setups import QUICK, Scale
from smgopt.lab.reproduce.verdicts import NOT_JUDGED
from smgopt.lab.tables import Column, refuse_unwritable, show, write_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from smgopt.lab.reproduce.items import Item
    from smgopt.lab.reproduce.jobs import Job
    from smgopt.lab.reproduce.reproduction import Reproduction
    from smgopt.lab.reproduce.tables import Table


def reproduce(
    names: Sequence[str],
    seeds: int | None,
    jobs: int | None,
    out: Path,
    quick: bool,
    listed: bool,
    publish: Path | None,
    json: Path | None,
) -> None:
    """``smgopt reproduce``.

    Args:
        names: of items; all if there is none.
        seeds: how many.
        jobs: how many runs at a time; as many as there are cores if it is not given.
        out: the folder.
        quick: the small version.
        listed: only say what it would cost.
        publish: the folder of a repository that takes the report.
        json: a file for all numbers.

    Raises:
        InputError: there is no such item, or a number is not positive.
        UserError: a run cannot be done.
        Interrupted: a signal asked for it; the same command goes on.
    """
    for name, number in (("--seeds", seeds), ("--jobs", jobs)):
        if number is not None and number < 1:
            raise InputError(f"{name} must be at least 1, not {number}")
    refuse_unwritable(json)
    scale = QUICK if quick else Scale()
    if seeds is not None:
        from dataclasses import replace

        scale = replace(scale, seeds=seeds)
    run(named(names), scale, jobs or pool.cores(), out, listed, publish, json, _console())


def run(
    items: Sequence[Item],
    scale: Scale,
    jobs: int,
    out: Path,
    listed: bool,
    publish: Path | None,
    json: Path | None,
    console: Console,
) -> None:
    """The same with everything decided; see ``reproduce``."""
    rate = cost.measured()
    if listed:
        rows = _costs(items, scale, rate, jobs)
        _list(console, rows, jobs)
        write_json(json, rows)
        return
    from smgopt.lab.reproduce import reproduction

    with _watching(console, rate, jobs) as watch:
        found = reproduction.reproduce(items, scale, out, jobs, watch)
    report = reproduction.write(found, out)
    if publish is not None:
        published = reproduction.publish(found, out / "runs", publish)
    _tell(console, found)
    console.print(f"The report: {report}", soft_wrap=True, highlight=False)
    if publish is not None:
        console.print(f"Published: {published}", soft_wrap=True, highlight=False)
    write_json(json, found.as_dict())


def _console() -> Console:
    console = Console()
    # A file has no edge: there, no table is folded.
    return console if console.is_terminal else Console(width=200)


def _costs(items: Sequence[Item], scale: Scale, rate: cost.Rate, jobs: int) -> list[dict[str, Any]]:
    rows = []
    parts = [(item.name, item.shown, [item]) for item in items]
    for name, shown, members in (*parts, ("all of these", "shared runs once", list(items))):
        found = cost.of(cost.runs(members, scale), rate)
        rows.append(
            {
                "item": name,
                "paper": shown,
                "runs": found.runs,
                "cycles": found.cycles,
                "work": found.work,
                "minutes": round(found.seconds / 60 / jobs, 1),
            }
        )
    return rows


def _list(console: Console, rows: Sequence[dict[str, Any]], jobs: int) -> None:
    columns = (
        Column("item", "item"),
        Column("runs", "runs"),
        Column("cycles", "cycles", ","),
        Column("work", "work", ","),
        Column("minutes", "minutes", ".1f"),
        Column("in the paper", "paper"),
    )
    show(console, "", columns, rows)
    console.print(
        f"Work is counted in gradients of one block. Minutes are those of {jobs} runs at a time, by a rate "
        "measured now; several items take the same runs, which are done once.",
        highlight=False,
    )


@contextmanager
def _watching(console: Console, rate: cost.Rate, jobs: int) -> Iterator[Callable[..., Any]]:
    """A bar over the runs on a terminal, a line for each run elsewhere."""
    from rich.progress import BarColumn, Progress, TextColumn

    bar = Progress(
        BarColumn(bar_width=24), TextColumn("{task.description}"), console=console, refresh_per_second=2
    )

    def watch(todo: Sequence[Job], there: int) -> Callable[[Job], None]:
        costs = {job: rate.seconds(job.setup) for job in todo}
        total, start, finished, spent = sum(costs.values()), time.perf_counter(), 0, 0.0
        before = f", {there} are there already" if there else ""
        console.print(
            f"{len(todo)} runs to do{before}; about {_duration(total / jobs)} with {jobs} at a time",
            highlight=False,
        )
        task = bar.add_task("", total=total) if console.is_terminal else None
        if task is not None:
            bar.start()

        def told(job: Job) -> None:
            nonlocal finished, spent
            finished, spent = finished + 1, spent + costs[job]
            left = (time.perf_counter() - start) * max(0.0, total / spent - 1)
            text = f"{finished} of {len(todo)} runs, {_duration(left)} left"
            if task is None:
                name = job.name.rpartition("-")[0]
                console.print(f"{text}: {name}", highlight=False, soft_wrap=True)
            else:
                bar.update(task, completed=spent, description=text)

        return told

    try:
        yield watch
    finally:
        bar.stop()


def _duration(seconds: float) -> str:
    """A time in words.

    Example:
        >>> _duration(40), _duration(1500), _duration(7500)
        ('40 s', '25 min', '2 h 5 min')
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60} min"


def _tell(console: Console, found: Reproduction) -> None:
    for item in found.items:
        for table in found.tables[item.name]:
            console.print()
            _table(console, f"{item.name}: {table.title}", table)
    console.print()
    verdicts = [v.as_dict() for v in found.verdicts if v.verdict != NOT_JUDGED or found.all_items]
    if verdicts:
        columns = Column("claim", "claim"), Column("", "verdict"), Column("by the numbers", "number")
        show(console, "The paper's claims", columns, verdicts)
        console.print()
    for one in found.outliers:
        where = ", ".join(f"level {l} {value:.1f}" for l, value in one.levels.items())
        console.print(
            f"out of line: {one.name}, seed {one.seed}: {where + '; ' if where else ''}{one.why}",
            highlight=False,
            soft_wrap=True,
        )


def _table(console: Console, title: str, table: Table) -> None:
    from rich.table import Table as Grid

    head, *lines = table.texts()
    grid = Grid(title=title, title_justify="left", box=None, header_style="bold", pad_edge=False)
    for place, text in enumerate(head):
        grid.add_column(text, justify="right" if place > 1 else "left", overflow="fold")
    for line in lines:
        grid.add_row(*line)
    console.print(grid, highlight=False)
