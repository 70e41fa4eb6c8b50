"""The paper's figures from our records."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from smgopt.lab.reproduce.series import mean, spread

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from matplotlib.axes import Axes

    from smgopt.lab.reproduce.items import Picture
    from smgopt.lab.reproduce.lines import Line
    from smgopt.lab.reproduce.series import Array, Series
    from smgopt.lab.reproduce.setups import Setup

#: Okabe and Ito's colours, which everybody can tell apart.
COLOURS = ("#000000", "#e69f00", "#56b4e9", "#009e73", "#0072b2", "#d55e00", "#cc79a7")
LEVEL_COLOURS = {1: "#d55e00", 2: "#e69f00", 4: "#009e73", 8: "#0072b2"}

X_LABELS = {
    "cycles": "cycles",
    "work": "gradients, in those of the finest network",
    "seconds": "seconds of training",
}
Y_LABELS = {"accuracy": "test accuracy in %", "train_loss": "training loss"}
# The loss is of one mini-batch a cycle: averaged over so many, the curves can be told apart.
SMOOTHED = 5


def draw(picture: Picture, lines: Sequence[Line], known: Mapping[Setup, Series], folder: Path) -> tuple[Path, ...]:
    """Draw one figure as PNG and SVG.

    Args:
        picture: what to draw.
        lines: of which series.
        known: the series.
        folder: where to.

    Returns:
        The files.
    """
    import matplotlib as mpl
    from matplotlib.figure import Figure

    shown = [line for line in lines if not line.hidden]
    depth = max((known[line.setup].setup.levels for line in shown), default=1) - 1
    rows = sum(depth if panel == "delta" else 1 for panel in picture.panels)
    with mpl.rc_context({"svg.hashsalt": picture.name, "svg.fonttype": "path"}):
        figure = Figure(figsize=(7, 1.2 + 2.9 * rows if rows < 3 else 1.0 + 2.1 * rows), layout="constrained")
        axes = list(figure.subplots(rows, 1, squeeze=False)[:, 0])
        for panel in picture.panels:
            if panel == "delta":
                for level in range(depth, 0, -1):
                    _delta(axes.pop(0), shown, known, level)
            elif panel == "by_level":
                _by_level(axes.pop(0), shown, known)
            else:
                _curves(axes.pop(0), picture, panel, shown, known)
        files = (folder / f"{picture.name}.png", folder / f"{picture.name}.svg")
        figure.savefig(files[0], dpi=120, metadata={"Software": None})
        figure.savefig(files[1], metadata={"Date": None, "Creator": None})
    return files


def _colour(line: Line, place: int, lines: Sequence[Line]) -> str:
    by_levels = len({other.setup.levels for other in lines}) > 1 and len({o.setup.depth for o in lines}) == 1
    if by_levels:
        return LEVEL_COLOURS.get(line.setup.levels, "#000000")
    return COLOURS[place % len(COLOURS)]


def _curves(
    axes: Axes, picture: Picture, panel: str, lines: Sequence[Line], known: Mapping[Setup, Series]
) -> None:
    for place, line in enumerate(lines):
        series, colour = known[line.setup], _colour(line, place, lines)
        if panel == "train_loss":
            y, std = mean(series.train_loss), None
            x = np.arange(1, len(y) + 1, dtype=np.float64)
            y = _averaged(y)
        else:
            y, std = 100 * mean(series.accuracy), 100 * spread(series.accuracy)
            x = {
                "cycles": series.cycles.astype(np.float64),
                "work": mean(series.work) / series.setup.depth,
                "seconds": mean(series.seconds),
            }[picture.x]
        axes.plot(x, y, color=colour, linestyle=":" if line.dotted else "-", label=line.label)
        if std is not None and np.isfinite(std).any() and not line.dotted:
            axes.fill_between(x, y - std, np.minimum(y + std, 100), color=colour, alpha=0.15, linewidth=0)
    axes.set(xlabel=X_LABELS[picture.x], ylabel=Y_LABELS[panel])
    if panel == "accuracy":
        axes.set_ylim(*_window([100 * mean(known[line.setup].accuracy) for line in lines]))
    axes.grid(alpha=0.3)
    axes.legend(frameon=False, fontsize="small")


def _window(curves: Sequence[Array]) -> tuple[float, float]:
    """From below the curves after their first tenth to above the best of them."""
    values = np.concatenate([curve[max(1, len(curve) // 10) :] for curve in curves])
    values = values[np.isfinite(values)]
    if not len(values):
        return 0.0, 100.0
    low, high = float(values.min()), float(values.max())
    margin = 0.06 * max(high - low, 1.0)
    return low - 2 * margin, high + margin


def _averaged(values: Array) -> Array:
    """The mean of each value and of those just before it."""
    return np.array([np.mean(values[max(0, i + 1 - SMOOTHED) : i + 1]) for i in range(len(values))])


def _delta(axes: Axes, lines: Sequence[Line], known: Mapping[Setup, Series], level: int) -> None:
    for place, line in enumerate(lines):
        change = mean(known[line.setup].change[:, :, level])
        axes.plot(np.arange(1, len(change) + 1), change, color=COLOURS[place], label=line.label, linewidth=0.9)
    # Some corrections that are taken whole change the loss by thousands; the rest is to be seen as well.
    axes.set_yscale("symlog", linthresh=0.01)
    axes.axhline(0, color="#888888", linewidth=0.8)
    axes.set(xlabel="cycles", ylabel=f"Δℓ, level {level}")
    axes.grid(alpha=0.3)
    axes.legend(frameon=False, fontsize="small")


def _by_level(axes: Axes, lines: Sequence[Line], known: Mapping[Setup, Series]) -> None:
    for place, line in enumerate(lines):
        percent, colour = 100 * known[line.setup].levels, COLOURS[place]
        levels = np.arange(percent.shape[1])
        axes.plot(levels, mean(percent), color=colour, label=line.label)
        for values in percent:
            axes.plot(levels, values, ".", color=colour, markersize=4, alpha=0.6)
    axes.set(xlabel="level, 0 is the coarsest", ylabel="test accuracy in %")
    axes.grid(alpha=0.3)
    axes.legend(frameon=False, fontsize="small")
