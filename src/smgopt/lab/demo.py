"""A first look: sMG/OPT and SGD side by side on MNIST-1D, in under a minute."""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from torch import Tensor

import smgopt
from smgopt.lab import data
from smgopt.lab.tables import Column, refuse_unwritable, show, write_json

DEPTH, WIDTH, LEVELS, BATCH, LR, CYCLES, SEED = 256, 10, 4, 1000, 0.1, 100, 1

COLUMNS = (
    Column("optimizer", "optimizer"),
    Column("batches", "batches"),
    Column("gradients", "gradients", ".0f"),
    Column("forwards", "forwards", ".0f"),
    Column("training loss", "train_loss", ".3f"),
    Column("test accuracy", "test_accuracy", ".1%"),
    Column("seconds", "seconds", ".1f"),
)


@dataclass
class Curve:
    """What one optimizer did, measured after each step."""

    name: str
    seconds: float = 0.0
    work: list[int] = field(default_factory=list)
    forwards: list[int] = field(default_factory=list)
    loss: list[float] = field(default_factory=list)
    accuracy: list[float] = field(default_factory=list)


def main(out: Path, json: Path | None = None) -> Path:
    """Train twice, print a table, and draw a picture into the folder ``out``; its path is returned.

    Args:
        out: the folder.
        json: a file for the table.

    Raises:
        RunError: a file cannot be written.
    """
    refuse_unwritable(json)
    console = Console()
    with console.status("making MNIST-1D"):
        ds = data.load("mnist1d")
    columns = (
        TextColumn("{task.description:>8}"),
        BarColumn(),
        TextColumn("{task.fields[loss]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as progress:
        multilevel = Curve(f"sMG/OPT, {LEVELS} levels")
        task = progress.add_task("sMG/OPT", total=CYCLES, loss="")
        for _ in islice(_train(ds, LEVELS, multilevel, progress, task), CYCLES):
            pass
        # SGD goes on until it has had as many gradients as all levels of sMG/OPT together.
        sgd = Curve("SGD")
        budget = multilevel.work[-1]
        task = progress.add_task("SGD", total=budget // DEPTH, loss="")
        for _ in islice(_train(ds, 1, sgd, progress, task), budget // DEPTH):
            pass
    rows = [_row(multilevel, CYCLES), _row(sgd, CYCLES), _row(sgd, len(sgd.loss))]
    show(console, f"MNIST-1D, {DEPTH} blocks, batches of {BATCH}", COLUMNS, rows)
    console.print(
        "a gradient of a coarser network counts by its share of the finest one's blocks", style="dim"
    )
    write_json(json, rows)
    picture = _draw(multilevel, sgd, out)
    console.print(f"The curves: {picture}", soft_wrap=True)
    return picture


def _train(ds: data.Dataset, levels: int, curve: Curve, progress: Progress, task: TaskID) -> Iterator[None]:
    """One step of training each time it is asked."""
    torch.manual_seed(SEED)
    net = smgopt.ResNet(ds.x.shape[1], ds.classes, WIDTH, DEPTH)
    opt = smgopt.SMGOpt(smgopt.Hierarchy(net, levels), LR)
    for x, y in _endless(ds):
        start = time.perf_counter()
        loss = opt.step(lambda network, x=x, y=y: F.cross_entropy(network(x), y)).item()  # type: ignore[misc]
        curve.seconds += time.perf_counter() - start
        curve.loss.append(loss)
        curve.work.append(opt.work.gradients)
        curve.forwards.append(opt.work.forwards)
        with torch.no_grad():
            curve.accuracy.append((net(ds.x_test).argmax(1) == ds.y_test).double().mean().item())
        progress.update(task, advance=1, loss=f"loss {loss:.3f}")
        yield


def _endless(ds: data.Dataset) -> Iterator[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(SEED)
    while True:
        yield from data.batches(ds.x, ds.y, BATCH, generator)


def _row(curve: Curve, steps: int) -> dict[str, Any]:
    """What an optimizer had come to after so many mini-batches."""
    return {
        "optimizer": curve.name,
        "batches": steps,
        "gradients": curve.work[steps - 1] / DEPTH,
        "forwards": curve.forwards[steps - 1] / DEPTH,
        "train_loss": curve.loss[steps - 1],
        "test_accuracy": curve.accuracy[steps - 1],
        "seconds": curve.seconds * steps / len(curve.loss),
    }


def _draw(multilevel: Curve, sgd: Curve, out: Path) -> Path:
    from smgopt.lab import plots, style

    with style.paper():
        figure = style.figure(height=6, width=2 * style.COLUMN)
        left, right = figure.subplots(1, 2, sharey=True)
        for number, curve in enumerate((multilevel, sgd)):
            steps = min(len(curve.loss), CYCLES)
            look = {"label": curve.name, **style.look(number)}
            left.plot(range(1, steps + 1), curve.loss[:steps], **look)
            right.plot([w / DEPTH for w in curve.work], curve.loss, **look)
        left.set(xlabel="mini-batches", ylabel="training loss", title="for the same data")
        right.set(xlabel="gradients of the finest network", title="for the same work")
        plots.legend(figure)
        return style.save(figure, out, "demo")[0]
