"""Curves of groups of runs, drawn on axes; and the pictures that ``smgopt plot`` makes of them.

The first half draws on axes that the caller has, and is what every other picture of runs is made from.
"""

from __future__ import annotations

import math
import textwrap
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.ticker import EngFormatter, MaxNLocator

from smgopt.lab import style
from smgopt.lab.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from smgopt.lab.groups import Band, Group

#: What a curve can run over: the key of the records, and the label of the axis.
X = {
    "cycle": ("cycle", "cycles"),
    "work": ("gradients", "work (gradients of one block)"),
    "samples": ("samples", "samples seen"),
    "seconds": ("seconds", "time (s)"),
}

#: What can be seen: for each picture its panels, as keys of the records.
QUANTITIES = {
    "accuracy": ("test_accuracy",),
    "loss": ("train_loss", "test_loss"),
    "alpha": ("alpha",),
    "delta": ("delta",),
}

_LABELS = {
    "test_accuracy": "test accuracy (%)",
    "test_loss": "test loss",
    "train_loss": "training loss",
    "alpha": "step α",
    "delta": "Δℓ",
}


def curves(axes: Axes, groups: Sequence[Group], x: str, y: str, level: int = -1) -> None:
    """Draw a quantity of each group: the mean over its seeds, and a band of ±1 standard deviation.

    Args:
        axes: where to.
        groups: one line each.
        x: a key of ``X``.
        y: ``"test_accuracy"`` or ``"test_loss"``, of every evaluation, or ``"train_loss"``, of every cycle.
        level: of the first two; -1 is the finest.

    Raises:
        RunError: a run has no records yet, or damaged ones.
    """
    key, label = X[x]
    means = []
    for number, group in enumerate(groups):
        band = group.training(key) if y == "train_loss" else group.evaluations(key, y, level)
        _draw(axes, number, group.label, band)
        means.append(band.mean)
    if y != "test_accuracy" and _diverging(means):
        axes.set_yscale("log")
    if x == "work":
        label = f"{label}\nforward passes add up to {100 * max(group.extra for group in groups):.0f} %"
    axes.set(xlabel=label, ylabel=_LABELS[y])
    if y == "test_accuracy":
        axes.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.4g}")
    if x in ("work", "samples"):
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=x == "cycle"))
    axes.set_xlim(left=0)


def corrections(axes: Axes, groups: Sequence[Group], key: str, blocks: int) -> None:
    """Draw what became of the corrections of the network with so many blocks, cycle by cycle.

    Args:
        axes: where to.
        groups: one line each; those that do not correct such a network have none.
        key: ``"alpha"`` or ``"delta"``.
        blocks: which level.

    Raises:
        RunError: as ``curves``.
    """
    means = []
    for number, group in enumerate(groups):
        if blocks in group.corrected:
            band = group.corrections(key, group.corrected[blocks])
            _draw(axes, number, group.label, band)
            means.append(band.mean)
    axes.set_ylabel(_LABELS[key])
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.set_xlim(left=0)
    if key == "alpha":
        # A band may leave the range of what it is the spread of; no step is below 0.
        axes.set_ylim(0, 1.1 * max(map(np.nanmax, means), default=0) or 1)
        return
    axes.axhline(0, color="#888888", linewidth=0.6, zorder=0)
    if diverging := _diverging(means):
        around, top = diverging
        axes.set_yscale("symlog", linthresh=10.0**around)
        powers = [10.0**top, 10.0 ** ((around + top + 1) // 2)]
        axes.set_yticks([-power for power in powers] + [0] + powers[::-1])
        axes.minorticks_off()


def legend(figure: Figure) -> None:
    """Name the curves above all panels, where they hide nothing; the figure grows by as much.

    A single curve needs no name.
    """
    found = {}
    for axes in figure.axes:
        found.update({label: line for line, label in zip(*axes.get_legend_handles_labels(), strict=True)})
    if len(found) < 2:
        return
    width, height = figure.get_size_inches()
    # In letters: what fits beside one another, with the lines and the gaps that stand before the labels.
    room = int(width * 16)
    labels = [textwrap.fill(label.replace(" = ", "\u00a0=\u00a0"), room - 3) for label in found]
    columns = max(1, min(len(found), room // (max(map(len, found)) + 9)))
    rows = math.ceil(sum(label.count("\n") + 1 for label in labels) / columns)
    figure.set_size_inches(width, height + 0.15 * rows)
    figure.legend(found.values(), labels, loc="outside upper left", ncols=columns)


def _draw(axes: Axes, number: int, label: str, band: Band) -> None:
    look = style.look(number)
    axes.plot(band.x, band.mean, label=label, **look)
    if band.std is not None:
        low, high = band.mean - band.std, band.mean + band.std
        axes.fill_between(band.x, low, high, color=look["color"], alpha=0.2, linewidth=0)


def _diverging(curves: Sequence[NDArray[np.float64]]) -> tuple[int, int] | None:
    """The powers of ten of what is typical and of the highest, if there is a world between them.

    A linear axis then shows only what diverges, and a logarithmic one is better.
    """
    sizes = [np.abs(curve[np.isfinite(curve)]) for curve in curves]
    highest = max((float(np.max(size)) for size in sizes if len(size)), default=0.0)
    medians = sorted(median for size in sizes if len(size) and (median := float(np.median(size))) > 0)
    # That of the curve in the middle: one may have diverged, and another be all but constant.
    typical = medians[(len(medians) - 1) // 2] if medians else 0.0
    if not highest > 200 * typical > 0:
        return None
    return math.floor(math.log10(typical)), math.floor(math.log10(highest))


def pictures(
    groups: Sequence[Group], quantities: Sequence[str], xs: Sequence[str]
) -> Iterator[tuple[str, Figure]]:
    """The pictures of some quantities, by name; those by level over cycles, the others over each of ``xs``.

    Args:
        groups: one line each.
        quantities: keys of ``QUANTITIES``.
        xs: keys of ``X``.

    Raises:
        RunError: as ``curves``.
    """
    for quantity in quantities:
        keys = QUANTITIES[quantity]
        if quantity in ("accuracy", "loss"):
            for x in xs:
                yield f"{quantity}-{x}", _over(groups, keys, x)
        else:
            yield quantity, _by_level(groups, quantity)


def _over(groups: Sequence[Group], keys: Sequence[str], x: str) -> Figure:
    figure = style.figure(1.2 + 4.5 * len(keys))
    panels = figure.subplots(len(keys), 1, sharex=True, squeeze=False)[:, 0]
    for axes, key in zip(panels, keys, strict=True):
        curves(axes, groups, x, key)
        axes.label_outer()
    figure.align_ylabels(panels)
    legend(figure)
    return figure


def corrected(groups: Sequence[Group]) -> list[int]:
    """The depths of all networks that are corrected in a group, deepest first."""
    return sorted({blocks for group in groups for blocks in group.corrected}, reverse=True)


def _by_level(groups: Sequence[Group], key: str) -> Figure:
    depths = corrected(groups)
    figure = style.figure(1.2 + 2.4 * len(depths))
    panels = figure.subplots(len(depths), 1, sharex=True, squeeze=False)[:, 0]
    for axes, blocks in zip(panels, depths, strict=True):
        corrections(axes, groups, key, blocks)
        axes.set_title(f"{blocks} blocks", loc="right")
    panels[-1].set_xlabel("cycles")
    figure.align_ylabels(panels)
    legend(figure)
    return figure


def plot(
    groups: Sequence[Group],
    folder: Path,
    quantities: Sequence[str],
    xs: Sequence[str],
    formats: Sequence[str],
) -> list[list[Path]]:
    """Write pictures into a folder.

    Returns:
        The files of each.

    Raises:
        InputError: what is by level is asked for alone, and no run has corrections.
        RunError: a run has no records yet, or damaged ones; the folder cannot be written.
    """
    if not corrected(groups):
        quantities = [quantity for quantity in quantities if quantity in ("accuracy", "loss")]
        if not quantities:
            raise InputError("none of these runs has corrections: it takes sMG/OPT with two levels or more")
    with style.paper():
        return [
            style.save(figure, folder, name, formats) for name, figure in pictures(groups, quantities, xs)
        ]
