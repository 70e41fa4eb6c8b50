"""What the commands do: a function each, which prints."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from smgopt.lab import settings as lab_settings
from smgopt.lab.errors import InputError
from smgopt.lab.tables import Column, refuse_unwritable, show, write_json

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from smgopt.lab.config import Config


def train(
    arguments: Sequence[str],
    pairs: Sequence[str],
    out: Path | None,
    resume: Path | None,
    tensorboard: bool,
    json: Path | None,
    quiet: bool,
) -> None:
    """``smgopt train``.

    Args:
        arguments: what stands without an option: at most one file, and settings.
        pairs: settings.
        out: the folder of a new run.
        resume: the folder of an old one.
        tensorboard: write event files.
        json: a file for the last evaluation.
        quiet: no progress.

    Raises:
        InputError, RunError, TrainingError, Interrupted: as ``smgopt.lab.train.run``.
    """
    # Whatever has an equals sign behind a name is a setting, as in `--set depth=64 levels=2`.
    files = [argument for argument in arguments if not re.match(r"[A-Za-z_][\w.-]*=", argument)]
    pairs = [*pairs, *(argument for argument in arguments if argument not in files)]
    if tensorboard:
        pairs.append("tensorboard=true")
    refuse_unwritable(json)
    config, folder = _wanted(files, pairs, out, resume)

    from smgopt.lab import train as training
    from smgopt.lab.progress import for_console

    console = Console()
    run = training.run(config, folder, resume=resume is not None, progress=for_console(console, quiet))
    last = run.metrics[-1]
    keys = ("test_accuracy", "test_loss")
    rows = [{"level": l, **{key: last[key][l] for key in keys}} for l in range(len(last[keys[0]]))]
    if not quiet:
        columns = Column("level", "level"), Column("accuracy", keys[0], ".2%"), Column("loss", keys[1], ".4f")
        show(console, "", columns, rows[::-1])
    write_json(json, {"run": str(run.folder), "finished": run.finished, **last})


def _wanted(
    files: Sequence[str], pairs: Sequence[str], out: Path | None, resume: Path | None
) -> tuple[Config, Path | None]:
    if len(files) > 1:
        raise InputError(f"one configuration file, please, not {len(files)}: {', '.join(files)}")
    if resume is None:
        return lab_settings.load(Path(files[0]) if files else None, pairs), out
    if files or out is not None:
        what = files[0] if files else f"--out {out}"
        raise InputError(
            f"--resume goes on with the configuration and in the folder of {resume}: leave out {what}"
        )
    from smgopt.lab.runs import Run

    return lab_settings.change(Run(resume).config, pairs), resume


def evaluate(run: Path, json: Path | None) -> None:
    """``smgopt evaluate``.

    Raises:
        InputError, RunError, DataError: as ``smgopt.lab.evaluate.evaluate``.
    """
    refuse_unwritable(json)
    from smgopt.lab import evaluate as evaluation
    from smgopt.lab.runs import Run

    console, complaints = Console(), list[str]()
    found = evaluation.evaluate(Run(run), complaints).as_dict()
    for complaint in complaints:
        console.print(complaint, markup=False, highlight=False, soft_wrap=True)
    title = (
        f"{found['run']} after {found['cycle']} cycles, on {found['samples']} test samples of {found['data']}"
    )
    columns = (
        Column("level", "level"),
        Column("blocks", "blocks"),
        Column("parameters", "parameters", ","),
        Column("accuracy", "accuracy", ".2%"),
        Column("loss", "loss", ".4f"),
        Column("ms per 1,000", "ms_per_1000", ".2f"),
    )
    show(console, title, columns, found["levels"][::-1])
    write_json(json, found)


def export(run: Path, level: int, to: Path, form: str | None) -> None:
    """``smgopt export``.

    Raises:
        InputError, RunError: as ``smgopt.lab.export.export``.
    """
    refuse_unwritable(to)
    from smgopt.lab import export as exporting
    from smgopt.lab.runs import Run

    exporting.form_of(to, form)
    console, complaints = Console(), list[str]()
    made = exporting.export(Run(run), to, level, form, complaints)
    sentences = (
        *complaints,
        f"{made.file}: level {made.level} of {run} after {made.cycle} cycles, {made.blocks} blocks, "
        f"as {made.form} ({made.size / 1000:,.0f} kB)",
        f"run on random inputs, it deviates from the network by at most {made.deviation:.2g}",
    )
    for sentence in sentences:
        console.print(sentence, markup=False, highlight=False, soft_wrap=True)


def plot(runs: Sequence[Path], out: Path | None, x: str, quantity: str, form: str) -> None:
    """``smgopt plot``.

    Args:
        runs: their folders.
        out: the folder of the pictures; else that of the run, or ``figures`` if there are several.
        x: a key of ``plots.X``, or ``all``.
        quantity: a key of ``plots.QUANTITIES``, or ``all``.
        form: some of ``style.FORMATS``, with commas.

    Raises:
        InputError, RunError: as ``smgopt.lab.plots.plot``; InputError for what there is no picture of, too.
    """
    from smgopt.lab import groups, plots, style
    from smgopt.lab.runs import Run

    xs, quantities = _choice("--x", x, plots.X), _choice("--quantity", quantity, plots.QUANTITIES)
    forms = [name for part in form.split(",") for name in _choice("--format", part.strip(), style.FORMATS)]
    console, complaints, found = Console(), list[str](), list[Run]()
    for folder in {run.resolve(): run for run in runs}.values():  # the same folder twice is once
        try:
            found.append(Run(folder))
        except InputError as error:
            # Among many, as in runs/*, there may be folders of other things.
            if len(runs) == 1 or not folder.is_dir():
                raise
            complaints.append(str(error))
    if not found:
        raise InputError("\n".join(complaints))
    shown = groups.grouped(found, complaints)
    target = out or (found[0].figures if len(found) == 1 else Path("figures"))
    for group in shown:
        complaints += group.cut
        if len(shown) > 1:
            complaints.append(f"{group.label}: {', '.join(str(run.folder) for run in group.runs)}")
    for complaint in complaints:
        console.print(complaint, markup=False, highlight=False, soft_wrap=True)
    with console.status("drawing"):
        pictures = plots.plot(shown, target, quantities, xs, forms)
    for files in pictures:
        console.print(*files, markup=False, highlight=False, soft_wrap=True)


def _choice(option: str, value: str, known: Collection[str]) -> list[str]:
    if value == "all":
        return list(known)
    if value not in known:
        raise InputError(f"{option} {value}: there is {', '.join(known)}, and all")
    return [value]


def settings(json: Path | None) -> None:
    """``smgopt settings``.

    Raises:
        RunError: the JSON file cannot be written.
    """
    refuse_unwritable(json)
    rows = [setting._asdict() for setting in lab_settings.listing()]
    shown = [
        {
            **row,
            "default": "" if row["default"] is None else str(row["default"]),
            "meaning": f"{row['only']}: {row['meaning']}" if row["only"] else row["meaning"],
        }
        for row in rows
    ]
    columns = (
        Column("setting", "name"),
        Column("short", "short"),
        Column("default", "default"),
        Column("", "meaning"),
    )
    show(Console(), "", columns, shown)
    write_json(json, rows)


def bench(rounds: int, json: Path | None) -> None:
    """``smgopt bench``.

    Raises:
        RunError: the JSON file cannot be written.
    """
    refuse_unwritable(json)
    from smgopt.lab import bench

    console = Console()
    with console.status("") as status:
        found = bench.run(rounds, lambda what: status.update(f"measuring {what}"))
    rows = [
        {
            "what": bench.MEANING[key],
            "key": key,
            "measured": found[key],
            "bar": str(bar),
            "holds": bar.holds(found[key]),
        }
        for key, bar in bench.BARS.items()
    ]
    shown = [{**row, "holds": "yes" if row["holds"] else "no"} for row in rows]
    columns = (
        Column("", "what"),
        Column("key", "key"),
        Column("measured", "measured", ",.4g"),
        Column("bar", "bar"),
        Column("holds", "holds"),
    )
    show(console, "", columns, shown)
    write_json(json, found)
