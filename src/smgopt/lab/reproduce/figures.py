"""The paper's figures from our records, drawn as ``smgopt plot`` draws."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from smgopt.lab import plots, style
from smgopt.lab.groups import Group
from smgopt.lab.reproduce.series import mean
from smgopt.lab.runs import Run

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from smgopt.lab.reproduce.items import Picture
    from smgopt.lab.reproduce.lines import Line
    from smgopt.lab.reproduce.series import Array, Series
    from smgopt.lab.reproduce.setups import Setup

    Known = Mapping[Setup, Series]

#: Raster for the report, vectors for who wants to print it.
FORMATS = ("png", "svg")
# Centimetres.
_WIDTH, _PANEL, _REST = 12.0, 5.5, 1.8


def draw(picture: Picture, lines: Sequence[Line], known: Known, runs: Path, folder: Path) -> list[Path]:
    """Draw one figure.

    Args:
        picture: what to draw.
        lines: of which series.
        known: the series.
        runs: the folder of the runs.
        folder: where to.

    Returns:
        The files, one for each of ``FORMATS``.

    Raises:
        RunError: a run is damaged, or the folder cannot be written.
    """
    shown = [line for line in lines if not line.hidden and known[line.setup].drawn]
    groups = [
        Group(line.label, tuple(Run(runs / name) for name in known[line.setup].drawn)) for line in shown
    ]
    with style.paper():
        if picture.panels == ("by_level",):
            figure = _by_level(shown, known)
        elif picture.apart:
            figure = _apart(picture, shown, groups, known)
        else:
            figure = _together(picture, shown, groups, known)
        return style.save(figure, folder, picture.name, FORMATS)


def _together(picture: Picture, lines: Sequence[Line], groups: Sequence[Group], known: Known) -> Figure:
    """One panel below the other, with all lines; those of Δℓ one for each level."""
    blocks = plots.corrected(groups) if "delta" in picture.panels else []
    rows = len(picture.panels) + max(0, len(blocks) - 1)
    figure = style.figure(_REST + (_PANEL if rows < 3 else 3.6) * rows, _WIDTH)
    axes = list(figure.subplots(rows, 1, squeeze=False)[:, 0])
    for panel in picture.panels:
        if panel == "delta":
            for depth in blocks:
                here = axes.pop(0)
                plots.corrections(here, groups, "delta", depth)
                here.set_title(f"{depth} blocks", loc="right")
                here.set_xlabel("cycles")
        else:
            _curves(axes.pop(0), picture, panel, lines, groups, known)
    figure.align_ylabels()
    plots.legend(figure)
    return figure


def _apart(picture: Picture, lines: Sequence[Line], groups: Sequence[Group], known: Known) -> Figure:
    """A row of panels for each number of levels, so that only few lines cross."""
    levels = sorted({line.setup.levels for line in lines})
    figure = style.figure(_REST + 4.5 * len(levels), 16.0)
    grid = figure.subplots(len(levels), len(picture.panels), squeeze=False)
    for row, level in zip(grid, levels, strict=True):
        chosen = [i for i, line in enumerate(lines) if line.setup.levels == level]
        for axes, panel in zip(row, picture.panels, strict=True):
            _curves(axes, picture, panel, [lines[i] for i in chosen], [groups[i] for i in chosen], known)
            axes.legend()
    return figure


def _curves(
    axes: Axes,
    picture: Picture,
    panel: str,
    lines: Sequence[Line],
    groups: Sequence[Group],
    known: Known,
) -> None:
    plots.curves(axes, groups, picture.x, "test_accuracy" if panel == "accuracy" else "train_loss")
    if panel == "accuracy":
        axes.set_ylim(*_window([mean(known[line.setup].accuracy_drawn) for line in lines]))
    if picture.x != "cycle":
        # The costliest runs cost several times as much: behind the end of the others is nothing to compare.
        ends = [mean(getattr(known[line.setup], picture.x))[-1] for line in lines]
        axes.set_xlim(right=min(filter(np.isfinite, ends), default=None))


def _window(curves: Sequence[Array]) -> tuple[float, float]:
    """The range of the curves without their first steep rise, which would flatten all the rest.

    What lies half of everything below the best, as runs do that have failed, is left out: tables have it.
    """
    values = np.concatenate([curve[1:] for curve in curves] or [np.empty(0)])
    values = values[np.isfinite(values)]
    if not len(values):
        return 0.0, 1.0
    low, high = float(values.min()), float(values.max())
    margin = 0.06 * max(high - low, 0.01)
    return max(low - margin, high - 0.5), high + margin


def _by_level(lines: Sequence[Line], known: Known) -> Figure:
    """The accuracy of each level at the end: lines are means, dots are seeds."""
    figure = style.figure(_REST + _PANEL, _WIDTH)
    axes = figure.subplots()
    for number, line in enumerate(lines):
        percent, look = 100 * known[line.setup].levels, style.look(number)
        levels = np.arange(percent.shape[1])
        axes.plot(levels, mean(percent), label=line.label, **look)
        for values in percent:
            axes.plot(levels, values, ".", color=look["color"], markersize=3, alpha=0.6)
    axes.set(xlabel="level (0 is the coarsest)", ylabel="test accuracy (%)")
    plots.legend(figure)
    return figure
