"""The items of the reproduction: which runs each one takes, and what is shown of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from smgopt.lab.errors import InputError
from smgopt.lab.reproduce import peers
from smgopt.lab.reproduce.lines import Line

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from smgopt.lab.reproduce.series import Series
    from smgopt.lab.reproduce.setups import Scale, Setup

#: What the lines of an item are, once the series that they depend on are known.
Lines: TypeAlias = "Callable[[Scale, Mapping[Setup, Series]], tuple[Line, ...]]"
X = Literal["cycle", "work", "seconds"]
Y = Literal["accuracy", "train_loss", "delta", "by_level"]


@dataclass(frozen=True)
class Picture:
    """One figure of the paper.

    Attributes:
        name: the paper's label, and the file's name.
        caption: what there is to see.
        panels: what is drawn from top to bottom.
        x: over what.
        apart: a panel for each number of levels.
    """

    name: str
    caption: str
    panels: tuple[Y, ...] = ("accuracy",)
    x: X = "cycle"
    apart: bool = False


@dataclass(frozen=True)
class Item:
    """A part of the paper.

    Attributes:
        name: on the command line.
        shown: the figures and tables of the paper.
        title: in a few words.
        lines: the series that it takes.
        pictures: what is drawn.
    """

    name: str
    shown: str
    title: str
    lines: Lines
    pictures: tuple[Picture, ...] = ()


def label(levels: int) -> str:
    """What a number of levels is called.

    Example:
        >>> label(1), label(8)
        ('SGD', '8 levels')
    """
    return "SGD" if levels == 1 else f"{levels} levels"


def _levels(depth: int, table: int, data: str = "mnist", levels: Sequence[int] = (1, 2, 4, 8)) -> Lines:
    def lines(scale: Scale, known: Mapping[Setup, Series]) -> tuple[Line, ...]:  # noqa: ARG001
        return tuple(
            Line(label(l), scale.setup(data, depth, levels=l, table=table), scale.seeds_of()) for l in levels
        )

    return lines


def _smoothing(scale: Scale, known: Mapping[Setup, Series]) -> tuple[Line, ...]:
    both = [_levels(2048, table)(scale, known) for table in (1, 2)]
    return tuple(
        Line(f"{line.label}, Table {table}", line.setup, line.seeds)
        for pair in list(zip(*both, strict=True))[1:]
        for table, line in enumerate(pair, 1)
    )


def _pruning(scale: Scale, known: Mapping[Setup, Series]) -> tuple[Line, ...]:  # noqa: ARG001
    depths = [depth for depth in (256, 512, 1024, 2048) if depth <= max(scale.depth, 256)]
    return tuple(
        Line(
            f"{min(depth, scale.depth):,} blocks",
            scale.setup(depth=depth, levels=8, table=1),
            scale.seeds_of(),
        )
        for depth in depths
    )


def _search(initial_step: float, lr: float) -> Lines:
    def lines(scale: Scale, known: Mapping[Setup, Series]) -> tuple[Line, ...]:  # noqa: ARG001
        variants = {
            f"line search from ᾱ = {initial_step:g}": (True, initial_step),
            f"no line search, α = {initial_step:g}": (False, initial_step),
            "no line search, α = 1 (FAS)": (False, 1.0),
        }
        return tuple(
            Line(
                name,
                scale.setup(depth=256, levels=4, table=1, lr=lr, line_search=search, initial_step=step),
                scale.seeds_of(),
            )
            for name, (search, step) in variants.items()
        )

    return lines


def _shallow(scale: Scale, known: Mapping[Setup, Series]) -> tuple[Line, ...]:  # noqa: ARG001
    return tuple(
        Line(f"{depth} blocks, {label(l)}", scale.setup(depth=depth, levels=l), scale.seeds_of())
        for depth in (8, 16)
        for l in (1, 2, 4)
    )


DEFAULTS = "both, the library's defaults"


def _choices(scale: Scale, known: Mapping[Setup, Series]) -> tuple[Line, ...]:  # noqa: ARG001
    deep = {"depth": 2048, "levels": 8, "table": 1}
    low = {"depth": 256, "levels": 8, "table": 1}
    changes: dict[str, dict[str, object]] = {
        "coupling term: consistent": {"coupling": "consistent"},
        "gradients: adjoint": {"gradient_restriction": "adjoint"},
        DEFAULTS: {"coupling": "consistent", "gradient_restriction": "adjoint"},
        "last odd block: as its neighbour": {"boundary": "constant"},
        "c₁ = 10⁻⁴": {"sufficient_decrease": 1e-4},
    }

    def made(name: str, changed: Mapping[str, object]) -> Line:
        return Line(name, scale.setup(**changed), scale.seeds_of())  # type: ignore[arg-type]

    blocks = [f"{min(depth, scale.depth):,} blocks" for depth in (2048, 256)]
    return (
        made(f"{blocks[0]}: as in the experiments", deep),
        made(f"{blocks[0]}: no closing relu", {**deep, "closing_relu": False}),
        made(f"{blocks[0]}: {DEFAULTS}", {**deep, **changes[DEFAULTS]}),
        made(f"{blocks[1]}: as in the experiments", low),
        *(made(f"{blocks[1]}: {name}", {**low, **change}) for name, change in changes.items()),
    )


ACCURACY = "Test accuracy over cycles, mean of the seeds; the band is ± one standard deviation."
AS_FAR = "as far as the cheapest of the runs goes."
BOTH = "Training loss (top) and test accuracy (bottom) over cycles."
SEARCH = (
    "Δℓ = ℓ(θ + αc) − ℓ(θ), what a correction adds to the loss of its level; below 0 it has helped. "
    "Accuracies more than 50 points below the best are cut off."
)

ITEMS = {
    item.name: item
    for item in (
        Item(
            "levels-2048",
            "Fig. conv_levels, Fig. work, Fig. time",
            "MNIST, 2,048 blocks, smoothing of Table 1",
            _levels(2048, 1),
            (
                Picture("conv_levels", ACCURACY),
                Picture(
                    "work", f"The same over the work Σ N Q, in gradients of one block, {AS_FAR}", x="work"
                ),
                Picture(
                    "time", f"The same over the seconds of training on one thread, {AS_FAR}", x="seconds"
                ),
            ),
        ),
        Item(
            "cycles",
            "Table test_accs_cycles, Fig. mnist_2048",
            "MNIST, 2,048 blocks, smoothing of Table 2",
            _levels(2048, 2),
            (Picture("mnist_2048", BOTH, ("train_loss", "accuracy")),),
        ),
        Item(
            "smoothing",
            "Fig. mnist_comparison",
            "Table 1 against Table 2",
            _smoothing,
            (
                Picture(
                    "mnist_comparison",
                    "Training loss (left) and test accuracy (right) over cycles.",
                    ("train_loss", "accuracy"),
                    apart=True,
                ),
            ),
        ),
        Item(
            "levels-1024",
            "Fig. mnist_1024",
            "MNIST, 1,024 blocks, smoothing of Table 1",
            _levels(1024, 1),
            (Picture("mnist_1024", BOTH, ("train_loss", "accuracy")),),
        ),
        Item(
            "pruning",
            "Table accs_pruning",
            "The levels of 8-level sMG/OPT as networks of their own",
            _pruning,
            (
                Picture(
                    "accs_pruning",
                    "Test accuracy of every level at the end: lines are means, dots are seeds.",
                    ("by_level",),
                ),
            ),
        ),
        Item(
            "linesearch",
            "Fig. linesearch",
            "With and without line search, 256 blocks, 4 levels, ᾱ = 3",
            _search(3.0, 0.1),
            (
                Picture(
                    "linesearch",
                    f"Test accuracy; {SEARCH}",
                    ("accuracy", "delta"),
                ),
            ),
        ),
        Item(
            "linesearch-robust",
            "Fig. ls_appendix",
            "With and without line search, 256 blocks, 4 levels, step 0.2, ᾱ = 2",
            _search(2.0, 0.2),
            (
                Picture(
                    "ls_appendix",
                    f"Test accuracy, training loss; {SEARCH}",
                    ("accuracy", "train_loss", "delta"),
                ),
            ),
        ),
        Item(
            "mnist1d-256",
            "Fig. mnists1d_epochs",
            "MNIST-1D, 256 blocks, smoothing of Table 2",
            _levels(256, 2, "mnist1d"),
            (Picture("mnists1d_epochs", ACCURACY),),
        ),
        Item(
            "mnist1d-512",
            "Fig. mnist1d_512",
            "MNIST-1D, 512 blocks, smoothing of Table 2",
            _levels(512, 2, "mnist1d"),
            (Picture("mnist1d_512", ACCURACY),),
        ),
        Item(
            "shallow",
            "appendix, “8 or 16 blocks”",
            "MNIST, 8 and 16 blocks, smoothing of Table 2",
            _shallow,
            (Picture("shallow", ACCURACY),),
        ),
        Item(
            "choices",
            "not in the paper",
            "What the other choice gives where the paper leaves one open",
            _choices,
        ),
        Item(
            "peers",
            "not in the paper",
            "sMG/OPT beside SGD, momentum and Adam with tuned steps",
            peers.lines,
            (),
        ),
    )
}


def named(names: Sequence[str]) -> tuple[Item, ...]:
    """The items of these names, in their own order; all of them if none is named.

    Raises:
        InputError: there is no such item.

    Example:
        >>> [item.name for item in named(["pruning", "cycles"])]
        ['cycles', 'pruning']
    """
    for name in names:
        if name not in ITEMS:
            raise InputError(f"there is no item {name!r}; the items are {', '.join(ITEMS)}")
    return tuple(item for item in ITEMS.values() if not names or item.name in names)
