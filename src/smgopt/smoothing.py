"""How many steps of gradient descent each level takes: the paper's two tables.

A pattern holds one (ν, μ) a level, coarsest first: ν steps before the correction from the coarser levels,
μ steps after it. The coarsest level gets no correction, so its ν is all it does.

Example:
    >>> TABLE_1[4]
    ((2, 0), (2, 2), (1, 1), (1, 0))
    >>> TABLE_2[4]
    ((1, 0), (1, 1), (1, 1), (1, 0))
"""

from collections.abc import Iterable, Sequence

Smoothing = tuple[tuple[int, int], ...]


def pattern(levels: int) -> Smoothing:
    """The pattern of Table 2 for any number of levels: one step wherever there is one to take.

    Example:
        >>> pattern(3)
        ((1, 0), (1, 1), (1, 0))
    """
    return ((1, 0),) if levels == 1 else ((1, 0), *((1, 1),) * (levels - 2), (1, 0))


#: The paper's Table 1, by number of levels; with one level it is SGD.
TABLE_1: dict[int, Smoothing] = {
    1: ((1, 0),),
    2: ((2, 0), (1, 0)),
    4: ((2, 0), (2, 2), (1, 1), (1, 0)),
    8: ((2, 0), (2, 2), (2, 2), (2, 2), (1, 1), (1, 1), (1, 1), (1, 0)),
}

#: The paper's Table 2, by number of levels.
TABLE_2: dict[int, Smoothing] = {levels: pattern(levels) for levels in (1, 2, 4, 8)}


def checked(smoothing: Sequence[Sequence[int]], levels: int) -> Smoothing:
    """The smoothing of every level as a tuple of pairs.

    Raises:
        ValueError: not one (ν, μ) a level, a number of steps that is none, or smoothing that does nothing.
    """
    if len(smoothing) != levels:
        raise ValueError(
            f"smoothing has {len(smoothing)} entries for {levels} levels: "
            "it takes one (ν, μ) a level, coarsest first"
        )
    for l, pair in enumerate(smoothing):
        if not isinstance(pair, Iterable) or len(pair) != 2 or any(n != int(n) or n < 0 for n in pair):
            raise ValueError(f"smoothing of level {l} must be two numbers of steps (ν, μ), not {pair!r}")
    ν, μ = smoothing[0]
    if ν < 1 or μ:
        raise ValueError(
            f"smoothing of the coarsest level must be (ν, 0) with ν ≥ 1, not {(ν, μ)}: "
            "no correction reaches it, so there is no step after one"
        )
    return tuple((int(ν), int(μ)) for ν, μ in smoothing)
