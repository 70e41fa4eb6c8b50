"""The report: every number of the paper beside ours, as Markdown."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import numpy as np

from smgopt.lab.reproduce import paper, peers, verdicts
from smgopt.lab.reproduce.setups import QUICK, Scale
from smgopt.lab.tables import markdown as markdown_table

if TYPE_CHECKING:
    from pathlib import Path

    from smgopt.lab.reproduce.items import Item
    from smgopt.lab.reproduce.reproduction import Reproduction
    from smgopt.lab.reproduce.tables import Table

OPENING = """# The paper, reproduced

The experiments of *Training of deep residual networks with stochastic MG/OPT* (C. von Planta, A.
Kopaničáková and R. Krause, 2021), repeated with this library. This page and its figures are made by `smgopt
reproduce` from the recorded runs. Accuracies are those on the test data, in per cent, as the mean over the
seeds ± the standard deviation (of a sample). “Difference” is ours less the paper's, in points.
"""

SETTINGS = """## Settings

As in the paper, unless an item says otherwise: width 10, step of gradient descent 0.1, mini-batches of
{batch:,}, β = 0, {cycles} cycles, {seeds}, line search from ᾱ = 1 with ρ = ½ and at most 10 trials. MNIST
is scaled to [0, 1], less 0.1307 and divided by 0.3081. Every run takes one thread, so that its numbers do
not depend on how many runs go on at a time; every setting is in the run's own `config.toml`.

Where the paper leaves a setting open, this was chosen:
"""

CHOICES = """The first line of each size is what all other items use. The lines below change one choice
each and leave all others as they are; smoothing is that of Table 1, with 8 levels.
"""

PRUNING = """The networks of the levels are taken as they are after the last cycle. Level 7 is the finest;
each level below has half the blocks of the one above.
"""

PEERS = """The paper compares with SGD at the same step of 0.1. Here each optimizer has the step that suits
it best: of a grid of steps, tried for one seed on the training data without a tenth, the one with the best
accuracy on that tenth. The test data took no part in that; the grids and what they gave are in the last
table. sMG/OPT was tuned in the same way (one step for all levels, smoothing of Table 1), and is shown with
the paper's step, too.

*Equal samples* means as many mini-batches as sMG/OPT sees in {cycles} cycles. *Equal work* means as many
gradients, a gradient of a coarse network counted by its blocks: {steps:,} mini-batches, where sMG/OPT works
longer on {cycles}. The line search's forward passes are not counted in that; they add {forwards:.0%} to the
work of sMG/OPT, if a forward pass is a third of a gradient. “Gradients” are those of the finest network.
"""

OUTLIERS = """A seed is listed if on some level it lies more than 3 points below the median of the seeds
there, and more than four times as far from it as the seeds do in the median. It is part of all means and
spreads above.
"""

AGAIN = """## To repeat it

```
{command}
```

These are {runs} runs, {minutes:.0f} minutes of training on one core. `smgopt reproduce --list` says what
each item costs on your machine, and `smgopt reproduce --quick` makes a small version in a few minutes. The
numbers of this page come from the records in [`results.json`]({results}). A run with the same seed gives
the same numbers, bit for bit, on the same machine with the same versions; seconds do not repeat. The
seconds here are those of training without evaluations, with {jobs} at a time on one thread each: they are
comparable with one another, not with those of another machine or another number of runs at a time.

{machine}
"""


def markdown(found: Reproduction, folder: Path, results: Path, pictures: Path) -> str:
    """The report.

    Args:
        found: what it is about.
        folder: where it is going to lie, from which paths are written.
        results: the file of the numbers.
        pictures: the folder of the figures.
    """
    parts = [OPENING, *_size(found), _claims(found), _settings(found)]
    parts += [_item(item, found, _path(pictures, folder)) for item in found.items]
    parts += [_outliers(found), _again(found, _path(results, folder))]
    return "\n".join(part.strip("\n") + "\n" for part in parts)


def _path(target: Path, folder: Path) -> str:
    return os.path.relpath(target, folder).replace(os.sep, "/")


def _size(found: Reproduction) -> list[str]:
    if found.scale.full:
        return []
    return [
        f"**This is a small version**: no network has more than {found.scale.depth:,} blocks, no run of "
        f"sMG/OPT more than {found.scale.cycles} cycles. The paper's numbers stand beside it for orientation "
        "only; titles and claims name the paper's sizes.\n"
    ]


def _claims(found: Reproduction) -> str:
    order = (verdicts.HOLDS, verdicts.IN_PART, verdicts.NOT_HERE, verdicts.NOT_JUDGED)
    counts = {kind: sum(v.verdict == kind for v in found.verdicts) for kind in order}
    summary = ", ".join(f"*{kind}* {n}" for kind, n in counts.items() if n)
    lines = ["## The paper's claims", "", f"Decided by the program from the records: {summary}.", ""]
    lines.append("| claim | | by the numbers | holds if |\n| --- | --- | --- | --- |")
    judged = [v for v in found.verdicts if v.verdict != verdicts.NOT_JUDGED or found.all_items]
    lines += [f"| {v.claim} | *{v.verdict}* | {v.number} | {v.criterion} |" for v in judged]
    return "\n".join(lines)


def _settings(found: Reproduction) -> str:
    n = found.scale.seeds
    text = SETTINGS.format(
        batch=found.scale.batch, cycles=found.scale.cycles, seeds="seed 1" if n == 1 else f"seeds 1 … {n}"
    )
    rows = [["what", "here", "because of"], *([c.what, c.taken, c.why] for c in paper.CHOICES)]
    return text + "\n" + markdown_table(rows).replace("---:", "---")


def _item(item: Item, found: Reproduction, pictures: str) -> str:
    parts = [f"## {item.title}", "", f"`smgopt reproduce {item.name}` · {item.shown}", ""]
    if item.name == "choices":
        parts.append(CHOICES)
    if item.name == "pruning":
        parts.append(PRUNING)
    if item.name == "peers":
        parts.append(_peers(found))
    for picture in item.pictures:
        name = f"{pictures}/{picture.name}"
        parts += [f"![{picture.name}]({name}.png)", "", f"*{picture.caption}* ([SVG]({name}.svg))", ""]
    for one in found.tables[item.name]:
        if len(found.tables[item.name]) > 1:
            parts += [f"**{one.title}**", ""]
        parts += [_table(one), ""]
    return "\n".join(parts)


def _table(one: Table) -> str:
    return markdown_table(one.texts())


def _peers(found: Reproduction) -> str:
    model = found.known[peers.reference(found.scale, closing_relu=True)]
    work, forwards = np.nanmean(model.work[:, -1]), np.nanmean(model.forwards[:, -1])
    steps = peers.candidate(found.scale, peers.PEERS[1], 0.1, closing_relu=True).cycles
    return PEERS.format(cycles=found.scale.cycles, steps=steps, forwards=forwards / 3 / work)


def _outliers(found: Reproduction) -> str:
    lines = ["## Seeds that fall out of line", "", OUTLIERS]
    if not found.outliers:
        return "\n".join([*lines, "There is none."])
    lines.append("| configuration | seed | where | because |\n| --- | ---: | --- | --- |")
    for one in found.outliers:
        where = ", ".join(
            f"level {l}: {value:.1f} (median {one.medians[l]:.1f})" for l, value in sorted(one.levels.items())
        )
        lines.append(f"| {one.name} | {one.seed} | {where or 'the whole run'} | {one.why} |")
    return "\n".join(lines)


def _again(found: Reproduction, results: str) -> str:
    runs = sum(len(series.seeds) for series in found.known.values())
    seconds = sum(float(np.nansum(np.nanmax(series.seconds, axis=1))) for series in found.known.values())
    m = found.machine
    machine = (
        f"Made on {m['processor']}, {m['cores']} cores, {m['platform']}; Python {m['python']}, "
        f"torch {m['torch']}, NumPy {m['numpy']}, Numba {m['numba']}, smgopt {m['smgopt']}."
    )
    names = [] if found.all_items else [item.name for item in found.items]
    quick = [] if found.scale.full else ["--quick"]
    usual = Scale() if found.scale.full else QUICK
    seeds = [] if found.scale.seeds == usual.seeds else [f"--seeds {found.scale.seeds}"]
    command = " ".join(["smgopt reproduce", *names, *quick, *seeds])
    at_a_time = "1 run" if found.jobs == 1 else f"{found.jobs} runs"
    return AGAIN.format(
        command=command, runs=runs, minutes=seconds / 60, results=results, jobs=at_a_time, machine=machine
    )
