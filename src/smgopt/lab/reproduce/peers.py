"""How SGD, SGD with momentum and Adam do with a tuned step, for the same samples and for the same work.

The step of each optimizer is chosen by its accuracy on a tenth of the training data that it is not trained
on, at the full length, for one seed; the test data take no part. Each is tuned twice: for as many samples as
sMG/OPT sees, and for as much work as it does. The network is the paper's, and the same without the relu
behind the closing map, which can silence an output for good and so is a danger for whoever takes long steps.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from smgopt.lab.reproduce.lines import Line

if TYPE_CHECKING:
    from collections.abc import Mapping

    from smgopt.lab.reproduce.series import Series
    from smgopt.lab.reproduce.setups import Scale, Setup


@dataclass(frozen=True)
class Peer:
    """An optimizer, and the steps that are tried.

    Attributes:
        name: as it is shown.
        optimizer: as in the configuration.
        momentum: of SGD.
        steps: from short to long.
    """

    name: str
    optimizer: str
    momentum: float
    steps: tuple[float, ...]


PEERS = (
    Peer("sMG/OPT, 8 levels", "smgopt", 0.0, (0.02, 0.05, 0.1, 0.2, 0.4)),
    Peer("SGD", "sgd", 0.0, (0.05, 0.1, 0.2, 0.5)),
    Peer("SGD, momentum 0.9", "sgd", 0.9, (0.01, 0.03, 0.1, 0.3)),
    Peer("Adam", "adam", 0.0, (0.001, 0.003, 0.01, 0.03, 0.1)),
)

HOLDOUT = 0.1


class Contest(NamedTuple):
    """What is held equal between an optimizer and sMG/OPT, on which network."""

    equal: str
    closing_relu: bool


CONTESTS = tuple(Contest(equal, relu) for relu in (True, False) for equal in ("samples", "work"))


def reference(scale: Scale, closing_relu: bool) -> Setup:
    """8-level sMG/OPT as in the paper, which sets the samples and the work."""
    return scale.setup(levels=8, table=1, closing_relu=closing_relu)


def candidate(scale: Scale, peer: Peer, step: float, closing_relu: bool) -> Setup:
    """An optimizer with one step, at full length: as much work as sMG/OPT does."""
    base = replace(reference(scale, closing_relu), lr=step)
    if peer.optimizer == "smgopt":
        return base
    return replace(
        base,
        levels=1,
        table=2,
        optimizer=peer.optimizer,
        momentum=peer.momentum,
        cycles=max(base.cycles, round(base.work / base.depth)),
        # Divides the cycles of sMG/OPT, after which it has seen as many samples.
        evaluate=4 * scale.evaluate,
    )


def tuning(scale: Scale, peer: Peer, step: float, closing_relu: bool) -> Setup:
    """The same on the training data but a tenth, tested on that tenth."""
    return replace(candidate(scale, peer, step, closing_relu), holdout=HOLDOUT)


def chosen(
    scale: Scale, known: Mapping[Setup, Series], peer: Peer, contest: Contest
) -> tuple[float, dict[float, float]] | None:
    """The step of the best accuracy on the part held out, the shorter one of equals.

    Returns:
        The step, and the accuracy of each step tried; a run that diverged counts as 0. None as long as a run
        is missing.
    """
    scores: dict[float, float] = {}
    for step in peer.steps:
        found = known.get(tuning(scale, peer, step, contest.closing_relu))
        if found is None:
            return None
        at = scale.cycles if contest.equal == "samples" else found.setup.cycles
        accuracy = found.at(at, found.accuracy)[0]
        scores[step] = 0.0 if np.isnan(accuracy) else float(accuracy)
    return max(peer.steps, key=lambda step: scores[step]), scores


def contender(scale: Scale, known: Mapping[Setup, Series], peer: Peer, contest: Contest) -> Setup | None:
    """The tuned optimizer on all training data; None as long as its step is not known.

    A run for equal samples is a beginning of the run for equal work, if both have the same step.
    """
    best = chosen(scale, known, peer, contest)
    longest = chosen(scale, known, peer, contest._replace(equal="work"))
    if best is None or longest is None:
        return None
    setup = candidate(scale, peer, best[0], contest.closing_relu)
    return setup if best[0] == longest[0] else replace(setup, cycles=scale.cycles)


def lines(scale: Scale, known: Mapping[Setup, Series]) -> tuple[Line, ...]:
    """The runs for tuning, and once they are known those with the tuned steps."""
    seeds = scale.seeds_of()
    found = [
        Line(
            f"{peer.name}, step {step:g}",
            tuning(scale, peer, step, relu),
            seeds[:1],
            hidden=True,
        )
        for relu in (True, False)
        for peer in PEERS
        for step in peer.steps
    ]
    for relu in (True, False):
        found.append(Line("sMG/OPT, 8 levels, step 0.1", reference(scale, relu), seeds))
    for contest in CONTESTS:
        for peer in PEERS:
            if (setup := contender(scale, known, peer, contest)) is not None:
                found.append(Line(f"{peer.name}, step {setup.lr:g}", setup, seeds))
    return tuple(found)


def foreseen(scale: Scale) -> tuple[Line, ...]:
    """As ``lines``, with some step in place of the tuned ones: for what it is going to cost."""
    more = (
        Line(peer.name, candidate(scale, peer, peer.steps[0], relu), scale.seeds_of())
        for relu in (True, False)
        for peer in PEERS
    )
    return (*lines(scale, {}), *more)
