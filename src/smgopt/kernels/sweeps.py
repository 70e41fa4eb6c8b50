"""The compiled forward and backward sweep through the residual stack (numba, on any CPU that LLVM knows).

A *tile* of some hundred samples passes through all layers before the next one starts, so that it stays in the
first cache. The samples are the vectorised direction: they are many, and the same happens to each. A tile is
`(vectors, width, lanes)`: one vector holds the same component of as many samples as fill a cache line.

A worker's tiles stand one after the other in one array, `work`, and are named by their places in it. (Slices
of arrays would be counted references, taken and released for every layer.)
"""

from __future__ import annotations

import functools
import inspect
import zlib
from typing import TYPE_CHECKING, Any

import numba
import numpy as np
from numba import types

from . import layers, vectors
from . import sums as batch
from .layers import adjoint, copy, prefetch, step
from .sums import batch_sums

if TYPE_CHECKING:
    from collections.abc import Callable


def _compiled(function: Callable[..., Any], name: str, dtype: str, kinds: str) -> Any:
    """Compile without the GIL and keep the result on disk, where a directory for it can be found and written.

    In `kinds`, i is an integer, f a number of the dtype, I and a arrays of them, A one of two dimensions.
    """
    # numba looks only at the date of this file to see whether what it finds on disk is still valid, and two
    # processes that compile different variants under one name can mix them up. So a name tells everything.
    sources = "".join(inspect.getsource(module) for module in (layers, batch, vectors))
    function.__qualname__ = f"{name}_{dtype}_{zlib.crc32(sources.encode()):08x}"
    number = getattr(types, dtype)
    of = {"i": types.int64, "I": types.int64[::1], "f": number, "a": number[::1], "A": number[:, ::1]}
    signature = types.void(*(of[kind] for kind in kinds))
    try:
        return numba.njit(signature, nogil=True, cache=True)(function)
    except (RuntimeError, OSError):  # no directory, or it is full
        return numba.njit(signature, nogil=True)(function)


def _helper(function: Callable[..., Any]) -> Any:
    """A function that is compiled into the sweeps."""
    return numba.njit(nogil=True)(function)


@_helper
def _gather(samples: Any, start: Any, count: Any, lanes: Any, work: Any, tile: Any) -> None:
    """Rows start, start + 1, … of `samples` as `count` vectors.

    The last sample fills up the last vector: what it goes through, a true sample goes through as well, so
    that no infinity comes up that is not there anyway.
    """
    width, size = samples.shape[1], samples.shape[1] * lanes
    for v in range(count):
        vector = work[tile + v * size : tile + (v + 1) * size]
        for lane in range(lanes):
            sample = samples[min(start + v * lanes + lane, samples.shape[0] - 1)]
            for k in range(width):
                vector[k * lanes + lane] = sample[k]


@_helper
def _scatter(work: Any, tile: Any, start: Any, count: Any, lanes: Any, samples: Any) -> None:
    width, size = samples.shape[1], samples.shape[1] * lanes
    for v in range(count):
        vector = work[tile + v * size : tile + (v + 1) * size]
        for lane in range(min(lanes, samples.shape[0] - start - v * lanes)):
            sample = samples[start + v * lanes + lane]
            for k in range(width):
                sample[k] = vector[k * lanes + lane]


@functools.cache
def total(width: int, dtype: str) -> Any:
    """The sum over groups of the layers first … last − 1, as the gradients of W and b.

    dW[n, j, k] = Σ_c scale · parts[c, n, places[j, k]], in the order of c; db alike with k = w.
    """

    def total(parts: Any, scale: Any, places: Any, dW: Any, db: Any, first: Any, last: Any) -> None:
        size = parts.shape[1] // (db.size // width)
        sums = np.empty(size, parts.dtype)
        for n in range(first, last):
            sums[:] = 0
            for c in range(parts.shape[0]):
                part = parts[c, n * size : (n + 1) * size]
                for i in range(size):
                    sums[i] += scale * part[i]
            for j in range(width):
                for k in range(width):
                    dW[(n * width + j) * width + k] = sums[places[j * (width + 1) + k]]
                db[n * width + j] = sums[places[j * (width + 1) + width]]

    return _compiled(total, f"total_{width}", dtype, "AfIaaii")


def room(width: int, activation: str, size: int, lanes: int, stride: int) -> int:
    """The numbers that a worker needs in `work`: 4 tiles; y and what σ keeps for each layer of a stride."""
    tile = size * width * lanes
    return 4 * tile + stride * (tile + -(-tile // layers.packed(activation)))


@functools.cache
def forward(width: int, activation: str, dtype: str) -> Any:
    """The sweep that computes the output of the stack, compiled for one width, σ and dtype.

    A sweep works on its share `first` … `last − 1`, from place `base` of `work` on, and writes nothing that
    another share reads or writes. A tile has `size` vectors. W, b and all sums are flat.
    """
    square = width * width

    def forward(
        y: Any,
        W: Any,
        b: Any,
        dt: Any,
        stride: Any,
        slots: Any,  # states to save: those before layers 0, stride, 2·stride, …
        size: Any,
        lanes: Any,
        saved: Any,  # (tiles, slots, tile), flat
        out: Any,
        work: Any,
        base: Any,
        first: Any,
        last: Any,
    ) -> None:
        length = size * width * lanes
        state, after = base, base + length
        for tile in range(first, last):
            start = tile * size * lanes
            count = min(size, (y.shape[0] - start + lanes - 1) // lanes)
            _gather(y, start, count, lanes, work, state)
            for n in range(b.size // width):
                if slots > 0 and n % stride == 0:
                    place = (tile * slots + n // stride) * length
                    copy(width, count, work, state, saved, place)
                W_n, b_n = n * square, n * width
                step(width, activation, False, count, W, W_n, b, b_n, dt, work, state, after, after)
                state, after = after, state
            _scatter(work, state, start, count, lanes, out)

    return _compiled(forward, f"forward_{width}_{activation}", dtype, "AaafiiiiaAaiii")


@functools.cache
def backward(width: int, activation: str, dtype: str) -> Any:
    """The sweep from the gradient of the output to those of y, W and b; arguments as for `forward`."""
    square, packed = width * width, layers.packed(activation)
    places = batch.size(width, vectors.LINE // np.dtype(dtype).itemsize)

    def backward(
        grad: Any,
        W: Any,
        b: Any,
        dt: Any,
        stride: Any,
        slots: Any,
        size: Any,
        lanes: Any,
        saved: Any,
        dy: Any,
        sums: Any,  # of each group of tiles, of each layer; empty: none is wanted
        group_size: Any,  # tiles in a group; the share is counted in groups
        work: Any,
        base: Any,
        first: Any,
        last: Any,
    ) -> None:
        length = size * width * lanes
        g, before, delta, states = base, base + length, base + 2 * length, base + 3 * length
        values, kept = states + (stride + 1) * length, (length + packed - 1) // packed
        depth, tiles = b.size // width, saved.size // (slots * length)
        for group in range(first, last):
            for tile in range(group * group_size, min((group + 1) * group_size, tiles)):
                start = tile * size * lanes
                count = min(size, (grad.shape[0] - start + lanes - 1) // lanes)
                _gather(grad, start, count, lanes, work, g)
                for i in range(grad.shape[0] - start, count * lanes):
                    for k in range(width):  # what fills up the last vector adds nothing to any sum
                        work[g + ((count - 1) * width + k) * lanes + i % lanes] = 0
                for slot in range(slots - 1, -1, -1):
                    layer = slot * stride
                    layers = min(stride, depth - layer)
                    place = (tile * slots + slot) * length
                    copy(width, count, saved, place, work, states)
                    for i in range(layers):
                        W_n, b_n = (layer + i) * square, (layer + i) * width
                        state, value = states + i * length, values + i * kept
                        after = state + length
                        step(width, activation, True, count, W, W_n, b, b_n, dt, work, state, after, value)
                    for i in range(layers - 1, -1, -1):
                        W_n, value = (layer + i) * square, values + i * kept
                        prefetch(square, W, W_n - square)
                        adjoint(width, activation, count, W, W_n, dt, work, value, g, before, delta)
                        if sums.size > 0:
                            row, state = (group * depth + layer + i) * places, states + i * length
                            fresh = tile == group * group_size
                            prefetch(places, sums, row - places)
                            batch_sums(width, count, fresh, work, delta, state, sums, row)
                        g, before = before, g
                _scatter(work, g, start, count, lanes, dy)

    return _compiled(backward, f"backward_{width}_{activation}", dtype, "AaafiiiiaAaiaiii")
