"""The gradients of a layer's weights: sums over the batch, in the order that takes the fewest shuffles.

By measurement on AVX-512, the multiply-adds run at the machine's rate; what is left to save are the sums over
lanes at the end, once for each tile and layer. A vector of them comes of as many vectors as it has lanes, one
block of the matrix delta·(y, 1)ᵀ at a time. So the sums stand in memory block by block, and `places` says
where each one is.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numba import types

from .layers import layer
from .vectors import REGISTERS, Emitter, cut, integer


@functools.cache
def blocks(width: int, lanes: int) -> tuple[int, int, int]:
    """How many rows and columns of delta·(y, 1)ᵀ are summed at a time, and the room for their sums.

    One vector of sums comes of as many as it has lanes, where registers suffice: then the fewest shuffles are
    needed. Of the shapes with the fewest blocks, the one that is nearest to a square reads least.
    """
    most = lanes if REGISTERS == 32 else 4
    shapes = [(r, min(most // r, width + 1)) for r in range(1, min(most, width) + 1)]

    def cost(shape: tuple[int, int]) -> tuple[int, int]:
        rows, columns = shape
        return -(-width // rows) * -(-(width + 1) // columns), rows + columns

    rows, columns = min(shapes, key=cost)
    return rows, columns, 1 << (rows * columns - 1).bit_length()


@functools.cache
def places(width: int, lanes: int) -> Any:
    """Where `batch_sums` leaves the sum of delta_j·y_k, or of delta_j for k = w: an array w × (w + 1).

    >>> places(2, 16)
    array([[0, 1, 2],
           [3, 4, 5]])
    """
    rows, columns, room = blocks(width, lanes)
    found = np.empty((width, width + 1), np.int64)
    across = cut(width + 1, columns)
    for p, (j, height) in enumerate(cut(width, rows)):
        for q, (k, length) in enumerate(across):
            inside = np.arange(height * length).reshape(height, length)
            found[j : j + height, k : k + length] = (p * len(across) + q) * room + inside
    return found


def size(width: int, lanes: int) -> int:
    """The numbers that `batch_sums` leaves for a layer, those that only fill up included."""
    rows, columns, room = blocks(width, lanes)
    return len(cut(width, rows)) * len(cut(width + 1, columns)) * room


@layer
def batch_sums(
    _: Any,
    width: Any,
    count: Any,
    fresh: Any,
    work: Any,
    delta: Any,
    y: Any,
    sums: Any,
    sums_at: Any,
) -> Any:
    """Over the samples of a tile: sums += Σ_s delta_s (y_s, 1)ᵀ, at their `places`; `fresh`: from 0.

    Lane by lane over the vectors, then over the lanes: an order that depends on shapes only. The bias is
    column w, with y = 1.
    """
    w = width.literal_value
    signature = types.void(width, count, fresh, work, delta, y, sums, sums_at)

    def write(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        emit = Emitter(context, builder, work.dtype)
        deltas, states = (emit.data(work, arguments[3], at) for at in arguments[4:6])
        target = emit.data(sums, *arguments[6:])
        most, wide, room = blocks(w, emit.lanes)
        across = cut(w + 1, wide)  # the last block ends with the column of the bias
        last, tail = across[-1][0], across[-1][1] - 1

        def rows(j: Any, height: int, p: Any) -> None:
            def columns(k: Any, length: int, q: Any, bias: bool = False) -> None:
                totals = [emit.accumulators([emit.constant(0.0)] * (length + bias)) for _ in range(height)]
                with emit.loop(arguments[1]) as vector:
                    operands = [emit.load(states, emit.place(w, vector, k, c)) for c in range(length)]
                    for r in range(height):
                        delta_j = emit.load(deltas, emit.place(w, vector, j, r))
                        for variable, y_k in zip(totals[r], operands, strict=False):
                            emit.add_product(variable, delta_j, y_k)
                        if bias:
                            variable = totals[r][-1]
                            builder.store(builder.fadd(builder.load(variable), delta_j), variable)
                found = emit.sums([builder.load(variable) for row in totals for variable in row])
                place = emit.index(0, (p, len(across) * room), (q, room))
                emit.accumulate(found, arguments[2], target, place)

            if last:
                emit.parts(last, wide, columns)
            columns(integer(last), tail, integer(len(across) - 1), bias=True)

        emit.parts(w, most, rows)
        return context.get_dummy_value()

    return signature, write
