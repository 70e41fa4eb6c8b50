"""The paper's settings, numbers and claims, as it prints them.

Source: von Planta, Kopaničáková, Krause, *Training of deep residual networks with stochastic MG/OPT*, 2021.
"""

from __future__ import annotations

from typing import NamedTuple

#: "The learning rate was set to 0.1, batch-size to 1,000, and β to 0"; "300 cycles"; "run 5 times".
CYCLES = 300
SEEDS = 5
BATCH = 1000

#: Table "Test accuracies of the different sMG/OPT setups", 2,048 blocks: levels → % after each of the cycles.
AFTER_CYCLES = (5, 10, 50, 100, 300)
ACCURACY_BY_CYCLES: dict[int, tuple[float, ...]] = {
    1: (52.7, 65.4, 78.9, 83.3, 85.0),
    2: (66.0, 76.7, 87.6, 89.0, 90.0),
    4: (83.5, 86.8, 91.6, 91.9, 92.6),
    8: (89.1, 90.1, 91.6, 92.0, 92.4),
}

#: Of the text on Fig. conv_levels: (levels, cycles) → %.
ACCURACY_IN_TEXT = {(1, 50): 80.0, (8, 50): 91.7}

#: Table "Test accuracies of the ResNets associated with different levels": blocks → % of these levels.
PRUNED_LEVELS = (7, 5, 3, 1, 0)
ACCURACY_BY_LEVEL: dict[int, tuple[float, ...]] = {
    256: (91.8, 92.0, 86.9, 58.4, 72.7),
    512: (90.3, 90.2, 88.0, 63.0, 76.2),
    1024: (92.4, 92.5, 91.2, 82.0, 75.6),
    2048: (92.5, 92.5, 92.3, 84.3, 70.1),
}


class Choice(NamedTuple):
    """A setting that the paper leaves open, or contradicts itself on.

    Attributes:
        what: the setting.
        taken: what the reproduction uses.
        why: where that comes from.
    """

    what: str
    taken: str
    why: str


CHOICES = (
    Choice("closing map", "followed by a relu", "the authors' experiments; the text does not mention it"),
    Choice(
        "initial weights",
        "Xavier's normal rule for the blocks, PyTorch's default for both outer maps and the biases",
        "the text says “Xavier initialization”",
    ),
    Choice(
        "line search",
        "Armijo's condition with c₁ = 0.5; after 10 failures α = 0, also for a direction of ascent",
        "the text says “Wolfe conditions” and gives no constant",
    ),
    Choice(
        "coupling term",
        'of the finer level\'s loss alone (`coupling="paper"`), so signed that both gradients agree',
        "line 4 of Algorithm 1",
    ),
    Choice("restriction of gradients", "injection", "the text: “we copy the corresponding parameters”"),
    Choice("prolongation to the last odd block", "no correction", "the authors' experiments"),
    Choice(
        "order of the data",
        "a permutation of the training data each epoch, decided by the seed; incomplete batches left out",
        "60 batches of 1,000 make an epoch of MNIST",
    ),
    Choice(
        "smoothing",
        "Table 1 for the figures of the article, for pruning and for the line search; Table 2 for the table "
        "of accuracies by cycles, for MNIST-1D and for 8 and 16 blocks",
        "captions and text of the appendix",
    ),
    Choice("MNIST-1D", "4,000 signals to train, 1,000 to test, standardised", "the package `mnist1d`"),
    Choice(
        "line search with ᾱ = 3, “without”",
        "every correction is taken with α = ᾱ; FAS proper, α = 1, is shown as a third line",
        "the text names one starting value for both",
    ),
)
