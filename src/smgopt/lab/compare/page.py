"""The contests as a page of documentation, with figures and numbers beside it."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import numpy as np

from smgopt.lab import style
from smgopt.lab.compare.outcome import EQUAL, shown
from smgopt.lab.files import reported, write_atomically
from smgopt.lab.tables import markdown

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from smgopt.lab.compare.outcome import Outcome

OPENING = """# Compared with other optimizers

sMG/OPT beside the optimizers that one would take otherwise, on the same networks and data, for the same cost.
This page is made by `smgopt compare` from the recorded runs; [`results.json`]({results}) holds all numbers.

- **Each has the step that suits it best**: of those listed, the one with the best accuracy on a part of
  the training data that was held out, for one seed and at full length. The test data took no part in that.
- **Each may spend the same work**: gradients of the finest network, where a gradient of a coarse one counts
  by its blocks, and a forward pass, as the line search takes them, as a third of a gradient.
- Test accuracies are in per cent, as the mean over {seeds} seeds ± the standard deviation of a sample. For
  *equal samples*, *time* and *work* they are read off where the first of all has spent what it may.
- Seconds are those of training without evaluations, {jobs} at a time on one thread each. Steps are constant.
"""


def write(
    found: Mapping[str, Outcome], content: Mapping[str, Any], seeds: int, jobs: int, repository: Path
) -> Path:
    """Write ``docs/comparison.md``, and figures and numbers to ``results/comparison``.

    Args:
        found: the contests by the names of their files.
        content: the same as plain values.
        seeds: how many runs with the chosen step.
        jobs: how many runs there were at a time.
        repository: the folder.

    Returns:
        The page.

    Raises:
        RunError: it cannot be written.
    """
    page, results = repository / "docs" / "comparison.md", repository / "results" / "comparison"
    for folder in (page.parent, results):
        with reported(f"{folder} cannot be made"):
            folder.mkdir(parents=True, exist_ok=True)
    write_atomically(
        results / "results.json", json.dumps(content, ensure_ascii=False, indent=1).encode() + b"\n"
    )

    def link(path: Path) -> str:
        return os.path.relpath(path, page.parent).replace(os.sep, "/")

    at_a_time = "1 run" if jobs == 1 else f"{jobs} runs"
    parts = [OPENING.format(results=link(results / "results.json"), seeds=seeds, jobs=at_a_time)]
    for name, one in found.items():
        with style.paper():
            picture = style.save(one.figure(), results, name, ("png", "svg"))[0]
        parts.append(_section(name, one, content[name]["results"], link(picture)))
    write_atomically(page, "\n".join(parts).encode())
    return page


def _section(name: str, one: Outcome, rows: Sequence[Mapping[str, Any]], picture: str) -> str:
    contest = one.contest
    network = ", ".join(f"{key} {value}" for key, value in contest.network.items())
    data = ", ".join(f"{key} {value}" for key, value in contest.data.items())
    lines = [
        [
            row["optimizer"],
            f"{row['step']:g}{' (end of the grid)' if row['at_the_edge'] else ''}",
            *(shown(row[f"equal_{key}"]) for key in EQUAL),
            f"{row['samples']:,.0f}",
            f"{row['work']:,.0f}",
            f"{row['seconds']:,.0f}",
            ", ".join(
                f"{step}: {100 * value:.1f}" if value else f"{step}: –"
                for step, value in row["tried"].items()
            ),
        ]
        for row in rows
    ]
    equal = [f"equal {word}" for word in EQUAL.values()]
    head = ["optimizer", "step", *equal, "samples", "gradients", "seconds", "tried, by accuracy held out"]
    text = [
        f"## {contest.title}",
        "",
        f"Network: {network}; {contest.levels} levels. Data: {data}. Work: {contest.gradients:,} gradients. "
        f"`smgopt compare benchmarks/{name}.toml`",
        "",
        *([contest.note, ""] if contest.note else []),
        f"![Test accuracy over samples, work and seconds]({picture})",
        "",
        *_verdicts(rows),
        "",
        markdown([head, *lines]),
        "",
    ]
    text += [line for row in rows for line in _family(row)]
    lost = [f"{row['optimizer']}: seeds {row['diverged']} diverged." for row in rows if row["diverged"]]
    return "\n".join([*text, *lost])


def _family(row: Mapping[str, Any]) -> list[str]:
    """The networks that a hierarchy leaves behind, of one optimizer."""
    if len(row["by_level"]) < 2:
        return []
    blocks = [f"{blocks} blocks" for blocks in row["by_level"]]
    accuracies = map(shown, row["by_level"].values())
    return [
        f"What the levels of {row['optimizer']} are worth at the end, each as a network of its own:",
        "",
        markdown([["", *blocks], ["test accuracy", *accuracies]]),
        "",
    ]


def _verdicts(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Where the first contestant stands against the best of the others."""
    ours, *others = rows
    sentences = []
    for key, word in EQUAL.items():
        if not others or not ours[f"equal_{key}"]:
            continue
        means = [float(np.mean(row[f"equal_{key}"] or [0.0])) for row in others]
        best = int(np.argmax(means))
        points, rival = float(np.mean(ours[f"equal_{key}"])) - means[best], others[best]["optimizer"]
        side = "ahead of" if points > 0 else "behind"
        sentences.append(
            f"- For equal {word} {ours['optimizer']} is **{abs(points):.1f} points {side}** the best of the "
            f"others, {rival}."
        )
    return sentences
