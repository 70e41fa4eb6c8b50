"""How all pictures look: made for a column of 8 cm, told apart without colours, the same on every machine."""

from __future__ import annotations

import io
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from smgopt.lab.files import reported, write_atomically

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

#: Centimetres.
COLUMN = 8.0

FORMATS = ("png", "pdf", "svg")

#: Okabe and Ito's colours, without the yellow that is too pale for a line on white.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")

#: As many as have no factor in common with the colours, so that the pairs repeat late.
LINES = ("-", (0, (5, 1.5)), (0, (1, 1)), (0, (5, 1, 1, 1)))

_SETTINGS = {
    "font.family": "DejaVu Sans",  # comes with matplotlib, and has all of our letters
    "font.size": 8,
    "axes.labelsize": 8,
    "axes.titlesize": 8,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 7,
    "legend.frameon": False,
    "legend.handlelength": 2.6,
    "lines.linewidth": 1.2,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.linewidth": 0.4,
    "grid.color": "#dddddd",
    "figure.constrained_layout.h_pad": 0.02,
    "figure.constrained_layout.w_pad": 0.02,
    # Text stays text.
    "pdf.fonttype": 42,
    "svg.fonttype": "none",
    # The same picture is the same file.
    "svg.hashsalt": "smgopt",
}

_UNDATED: dict[str, dict[str, Any]] = {"pdf": {"CreationDate": None}, "svg": {"Date": None}}


@contextmanager
def paper() -> Iterator[None]:
    """Within this block, and only there, what is drawn looks as it should; ``save`` belongs inside, too."""
    # Whatever the user has set for other pictures stays out of these; only the window system is not ours.
    default = {key: value for key, value in matplotlib.rcParamsDefault.items() if key != "backend"}
    settings: Any = {**default, **_SETTINGS}
    # Axes are computed from the numbers, those of a run that diverged included.
    with matplotlib.rc_context(settings), np.errstate(over="ignore", invalid="ignore"):
        yield


def figure(height: float, width: float = COLUMN) -> Figure:
    """An empty figure whose parts make room for one another; sizes in centimetres."""
    return Figure(figsize=(width / 2.54, height / 2.54), layout="constrained")


def look(number: int) -> dict[str, Any]:
    """Colour and line style of the curve with this number, for ``Axes.plot``; no two are alike up to 28.

    Example:
        >>> look(0)
        {'color': '#0072b2', 'linestyle': '-'}
    """
    return {"color": COLOURS[number % len(COLOURS)], "linestyle": LINES[number % len(LINES)]}


def save(figure: Figure, folder: Path, name: str, formats: Sequence[str] = ("png",)) -> list[Path]:
    """Write a figure in some of ``FORMATS``; the files that were there are replaced.

    Returns:
        The files.

    Raises:
        RunError: the folder cannot be made or written.
    """
    with reported(f"{folder} cannot be made"):
        folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for form in formats:
        content = io.BytesIO()
        figure.savefig(content, format=form, dpi=300, metadata=_UNDATED.get(form))
        path = folder / f"{name}.{form}"
        write_atomically(path, content.getvalue())
        paths.append(path)
    return paths
