"""From the items that are asked for to runs, records, tables, figures and the report."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from smgopt.lab import pool
from smgopt.lab.files import reported, write_atomically
from smgopt.lab.reproduce import claims, figures, jobs, outliers, report, series, tables
from smgopt.lab.reproduce.items import ITEMS
from smgopt.lab.reproduce.jobs import Job
from smgopt.lab.runs import Run

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from smgopt.lab.reproduce.items import Item
    from smgopt.lab.reproduce.lines import Line
    from smgopt.lab.reproduce.outliers import Outlier
    from smgopt.lab.reproduce.series import Series
    from smgopt.lab.reproduce.setups import Scale, Setup
    from smgopt.lab.reproduce.tables import Table
    from smgopt.lab.reproduce.verdicts import Verdict


@dataclass(frozen=True)
class Reproduction:
    """All that was found, computed once from the records.

    Attributes:
        scale: the size.
        items: what was asked for.
        lines: of each item, by name.
        known: the series by configuration.
        tables: of each item, by name.
        verdicts: on the claims.
        outliers: the seeds that fall out of line.
        machine: where it ran: the last session of a run.
        jobs: how many runs there were at a time.
    """

    scale: Scale
    items: tuple[Item, ...]
    lines: dict[str, tuple[Line, ...]]
    known: dict[Setup, Series]
    tables: dict[str, tuple[Table, ...]]
    verdicts: tuple[Verdict, ...]
    outliers: tuple[Outlier, ...]
    machine: dict[str, Any]
    jobs: int

    @property
    def all_items(self) -> bool:
        """Whether nothing was left out."""
        return len(self.items) == len(ITEMS)

    def as_dict(self) -> dict[str, Any]:
        """All of it as plain values: ``results.json``."""
        return {
            "scale": asdict(self.scale),
            "jobs": self.jobs,
            "machine": self.machine,
            "tables": {name: [table.as_dict() for table in found] for name, found in self.tables.items()},
            "claims": [verdict.as_dict() for verdict in self.verdicts],
            "outliers": [outlier.as_dict() for outlier in self.outliers],
            "lines": {
                name: [
                    {
                        "label": line.label,
                        "series": known.folders[0].rpartition("-seed-")[0],
                        "hidden": line.hidden,
                    }
                    for line in found
                    for known in [self.known[line.setup]]
                ]
                for name, found in self.lines.items()
            },
            "series": [found.as_dict() for found in self.known.values()],
        }


def reproduce(
    items: Sequence[Item], scale: Scale, out: Path, at_a_time: int, watch: Callable[..., Any]
) -> Reproduction:
    """Do the runs that are missing, and read them all.

    Args:
        items: what to reproduce.
        scale: how large.
        out: the folder; the runs are in ``runs`` below it.
        at_a_time: how many runs to do at once.
        watch: called with the runs to do and the number of those that are there; returns what is called after
            each.

    Raises:
        UserError: a run cannot be done.
        Interrupted: a signal asked for it.
    """
    runs = out / "runs"
    with reported(f"{runs} cannot be made"):
        runs.mkdir(parents=True, exist_ok=True)
    known: dict[Setup, Series] = {}
    while True:
        lines = {item.name: item.lines(scale, known) for item in items}
        wanted: dict[Setup, tuple[int, ...]] = {}
        for line in (line for found in lines.values() for line in found):
            if line.setup not in known:
                wanted[line.setup] = max(wanted.get(line.setup, ()), line.seeds)
        if not wanted:
            break
        all_of_them = [Job(setup, seed) for setup, seeds in wanted.items() for seed in seeds]
        todo = [job for job in all_of_them if not jobs.done(runs, job)]
        if todo:
            watched = watch(todo, len(all_of_them) - len(todo))
            pool.run_all(runs, todo, at_a_time, jobs.perform, watched)
        known.update({setup: series.collect(runs, setup, seeds) for setup, seeds in wanted.items()})
    first = next(iter(known.values()))
    # A step that was tried and is too long may diverge; the table of the steps says so.
    shown = dict.fromkeys(line.setup for found in lines.values() for line in found if not line.hidden)
    return Reproduction(
        scale,
        tuple(items),
        lines,
        known,
        {item.name: tables.of(item, lines[item.name], known, scale) for item in items},
        claims.judge(known, scale),
        outliers.find(known[setup] for setup in shown),
        _machine(Run(runs / first.folders[0])),
        at_a_time,
    )


def _machine(run: Run) -> dict[str, Any]:
    told = ("processor", "cores", "platform", "python", "smgopt", "torch", "numpy", "numba")
    session = run.environment["sessions"][-1]
    return {key: session.get(key) for key in told}


def write(found: Reproduction, out: Path) -> Path:
    """Write ``reproduction.md``, ``results.json`` and ``figures`` into a folder that has the runs.

    Returns:
        The report.

    Raises:
        RunError: it cannot be written.
    """
    return _write(found, out / "runs", out / "reproduction.md", out / "results.json", out / "figures")


def publish(found: Reproduction, runs: Path, repository: Path) -> Path:
    """Write the report to ``docs``, its figures and numbers to ``results/reproduction`` of a repository.

    Args:
        found: what to write.
        runs: the folder of the runs, of which nothing is copied.
        repository: its folder.

    Returns:
        The report.

    Raises:
        RunError: it cannot be written.
    """
    results = repository / "results" / "reproduction"
    return _write(
        found,
        runs,
        repository / "docs" / "reproduction.md",
        results / "results.json",
        results / "figures",
    )


def _write(found: Reproduction, runs: Path, text: Path, numbers: Path, pictures: Path) -> Path:
    for folder in (text.parent, numbers.parent, pictures):
        with reported(f"{folder} cannot be made"):
            folder.mkdir(parents=True, exist_ok=True)
    for item in found.items:
        for picture in item.pictures:
            figures.draw(picture, found.lines[item.name], found.known, runs, pictures)
    content = json.dumps(found.as_dict(), ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    # A line for each series, so that two versions can be compared.
    content = content.replace('{"setup":', '\n{"setup":').replace('{"claim":', '\n{"claim":')
    write_atomically(numbers, content.encode() + b"\n")
    write_atomically(text, report.markdown(found, text.parent, numbers, pictures).encode())
    return text
