"""Each item's table: the paper's number, ours, and the difference."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from smgopt.lab.reproduce import paper, peers
from smgopt.lab.reproduce.series import mean, spread

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from smgopt.lab.reproduce.items import Item
    from smgopt.lab.reproduce.lines import Line
    from smgopt.lab.reproduce.series import Array, Series
    from smgopt.lab.reproduce.setups import Scale, Setup

    Known = Mapping[Setup, Series]

NONE = "–"


@dataclass(frozen=True)
class Cell:
    """A test accuracy in per cent.

    Attributes:
        mean: over the seeds; None if none came so far.
        std: the standard deviation; None with fewer than two seeds.
        seeds: how many came so far.
        of: how many there are.
        paper: the paper's number, if it has one.
    """

    mean: float | None
    std: float | None
    seeds: int
    of: int
    paper: float | None = None

    @property
    def difference(self) -> float | None:
        """Points more than in the paper, of the number as it is shown."""
        return None if self.mean is None or self.paper is None else round(self.mean, 1) - self.paper

    def __str__(self) -> str:
        if self.mean is None:
            return NONE
        text = f"{self.mean:.1f}" + ("" if self.std is None else f" ± {self.std:.1f}")
        return text if self.seeds == self.of else f"{text} ({self.seeds} of {self.of} seeds)"

    def as_dict(self) -> dict[str, Any]:
        """The same as plain values."""
        return {**self.__dict__, "difference": None if self.difference is None else round(self.difference, 1)}


def cell(values: Array, printed: float | None = None) -> Cell:
    """The cell of some accuracies, one a seed, in fractions.

    Example:
        >>> str(cell(np.array([0.9, 0.92])))
        '91.0 ± 1.4'
    """
    percent = 100 * values
    number, std = (None if np.isnan(x) else float(x) for x in (mean(percent), spread(percent)))
    return Cell(number, std, int(np.sum(~np.isnan(values))), len(values), printed)


@dataclass(frozen=True)
class Row:
    """A line of a table: its name, its accuracies, and what else there is to say in words."""

    label: str
    cells: tuple[Cell, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Table:
    """Accuracies by row and column.

    Attributes:
        title: above it.
        corner: what the rows are.
        columns: of the accuracies.
        notes: titles of the columns behind them.
        rows: the rows.
    """

    title: str
    corner: str
    columns: tuple[str, ...]
    notes: tuple[str, ...]
    rows: tuple[Row, ...]

    def as_dict(self) -> dict[str, Any]:
        """The same as plain values."""
        rows = [
            {"label": r.label, "cells": [c.as_dict() for c in r.cells], "notes": list(r.notes)}
            for r in self.rows
        ]
        return {"title": self.title, "columns": list(self.columns), "notes": list(self.notes), "rows": rows}

    def texts(self) -> list[list[str]]:
        """The head and the lines as texts: three lines for a row that the paper has, too."""
        lines = [[self.corner, "", *self.columns, *self.notes]]
        compared = any(c.paper is not None for row in self.rows for c in row.cells)
        for row in self.rows:
            ours = [row.label, "here", *map(str, row.cells), *row.notes]
            if all(c.paper is None for c in row.cells):
                lines.append(ours)
                continue
            ours[0], blank = "", [""] * len(self.notes)
            printed = [NONE if c.paper is None else f"{c.paper:.1f}" for c in row.cells]
            points = [NONE if c.difference is None else f"{c.difference:+.1f}" for c in row.cells]
            lines += [
                [row.label, "paper", *printed, *blank],
                ours,
                ["", "difference", *points, *blank],
            ]
        return lines if compared else [[line[0], *line[2:]] for line in lines]


def of(item: Item, lines: Sequence[Line], known: Known, scale: Scale) -> tuple[Table, ...]:
    """The tables of an item.

    Args:
        item: it.
        lines: its own.
        known: their series.
        scale: the size of all.
    """
    shown = [line for line in lines if not line.hidden]
    if item.name == "pruning":
        return (by_level(item, shown, known),)
    if item.name == "peers":
        return (*(contest(c, known, scale) for c in peers.CONTESTS), tuned(known, scale))
    return (by_cycles(item, shown, known, scale),)


def by_cycles(item: Item, lines: Sequence[Line], known: Known, scale: Scale) -> Table:
    """Accuracies of the finest network after some cycles, and what they cost."""
    at = [cycle for cycle in paper.AFTER_CYCLES if cycle < scale.cycles] + [scale.cycles]
    rows = []
    for line in lines:
        series = known[line.setup]
        cells = tuple(
            cell(series.at(cycle, series.accuracy), _printed(item.name, line.setup, cycle)) for cycle in at
        )
        rows.append(Row(line.label, cells, _effort(series)))
    columns = tuple(f"{cycle} cycles" for cycle in at)
    notes = ("gradients", "forwards", "seconds", "diverged")
    return Table(item.title, "", columns, notes, tuple(rows))


def _printed(item: str, setup: Setup, cycle: int) -> float | None:
    if item == "levels-2048":
        return paper.ACCURACY_IN_TEXT.get((setup.levels, cycle))
    if item != "cycles" or cycle not in paper.AFTER_CYCLES:
        return None
    return paper.ACCURACY_BY_CYCLES[setup.levels][paper.AFTER_CYCLES.index(cycle)]


def _effort(series: Series) -> tuple[str, ...]:
    lost = ", ".join(f"seed {seed} after {cycle} cycles" for seed, cycle in series.diverged.items())
    gradients, forwards = (mean(w[:, -1]) / series.setup.depth for w in (series.work, series.forwards))
    if np.isnan(gradients):
        return NONE, NONE, NONE, lost
    return f"{gradients:,.0f}", f"{forwards:,.0f}", f"{mean(series.seconds[:, -1]):.1f}", lost or "none"


def by_level(item: Item, lines: Sequence[Line], known: Known) -> Table:
    """Accuracies of the levels at the end, one column a network."""
    rows = []
    for level in paper.PRUNED_LEVELS:
        cells = tuple(
            cell(
                known[line.setup].levels[:, level],
                paper.ACCURACY_BY_LEVEL[line.setup.depth][paper.PRUNED_LEVELS.index(level)]
                if line.setup.depth in paper.ACCURACY_BY_LEVEL
                else None,
            )
            for line in lines
        )
        rows.append(Row(f"level {level}", cells))
    return Table(item.title, "", tuple(line.label for line in lines), (), tuple(rows))


def contest(what: peers.Contest, known: Known, scale: Scale) -> Table:
    """The tuned optimizers for equal samples or equal work."""
    model = known[peers.reference(scale, what.closing_relu)]
    untuned = Row(
        "sMG/OPT as in the paper",
        (cell(model.at(scale.cycles, model.accuracy)),),
        (f"{model.setup.lr:g}", *_spent(model, scale.cycles)),
    )
    rows = [untuned]
    for peer in peers.PEERS:
        best, setup = peers.chosen(scale, known, peer, what), peers.contender(scale, known, peer, what)
        if best is None or setup is None:
            continue
        series = known[setup]
        at = scale.cycles if what.equal == "samples" else setup.cycles
        edge = " (end of the grid)" if best[0] in (peer.steps[0], peer.steps[-1]) else ""
        rows.append(
            Row(
                peer.name,
                (cell(series.at(at, series.accuracy)),),
                (f"{best[0]:g}{edge}", *_spent(series, at)),
            )
        )
    network = "with the relu behind the closing map" if what.closing_relu else "without that relu"
    return Table(
        f"For equal {what.equal}; the network {network}",
        "optimizer",
        ("test accuracy",),
        ("step", "mini-batches", "gradients", "seconds"),
        tuple(rows),
    )


def tuned(known: Known, scale: Scale) -> Table:
    """What each step that was tried gave on the part of the training data that was held out."""
    rows = []
    for what in peers.CONTESTS:
        relu = "with" if what.closing_relu else "without"
        for peer in peers.PEERS:
            best = peers.chosen(scale, known, peer, what)
            if best is not None:
                scores = ", ".join(
                    f"{step:g}: {f'{100 * score:.1f}' if score else 'diverged'}"
                    for step, score in best[1].items()
                )
                rows.append(Row(peer.name, (), (f"equal {what.equal}, {relu} the relu", scores)))
    title = "Accuracy on the held-out tenth of the training data, by step"
    return Table(title, "optimizer", (), ("contest", "step: accuracy"), tuple(rows))


def _spent(series: Series, at: int) -> tuple[str, str, str]:
    gradients, seconds = mean(series.at(at, series.work)), mean(series.at(at, series.seconds))
    if np.isnan(gradients):
        return f"{at:,}", NONE, NONE
    return f"{at:,}", f"{gradients / series.setup.depth:,.0f}", f"{seconds:.1f}"
