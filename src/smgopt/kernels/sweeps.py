"""The compiled forward and backward sweep through the residual stack (numba, on any CPU that LLVM knows).

A *tile* of some hundred samples passes through all layers before the next one starts, so that it stays in the
first cache. The samples are the vectorised direction: they are many, and the same happens to each. A tile is
`(vectors, width, lanes)`: one vector holds the same component of as many samples as fill a cache line.
"""

from __future__ import annotations

import functools
import inspect
import zlib
from typing import TYPE_CHECKING, Any

import numba

from . import layers, vectors
from .layers import adjoint, batch_sums, step

if TYPE_CHECKING:
    from collections.abc import Callable


def _jit(function: Callable[..., Any]) -> Any:
    """Compile without the GIL; keep the result on disk where a directory for it can be found."""
    try:
        return numba.njit(nogil=True, cache=True)(function)
    except RuntimeError:  # neither this package's directory nor the user's cache can be written
        return numba.njit(nogil=True)(function)


@_jit
def _gather(samples: Any, start: Any, count: Any, tile: Any) -> None:
    """Rows start, start + 1, … of `samples` as `count` vectors.

    The last sample fills up the last vector: what it goes through, a true sample goes through as well, so
    that no infinity comes up that is not there anyway.
    """
    width, lanes = tile.shape[1], tile.shape[2]
    for v in range(count):
        for lane in range(lanes):
            row = min(start + v * lanes + lane, samples.shape[0] - 1)
            for k in range(width):
                tile[v, k, lane] = samples[row, k]


@_jit
def _scatter(tile: Any, start: Any, count: Any, samples: Any) -> None:
    width, lanes = tile.shape[1], tile.shape[2]
    for v in range(count):
        for lane in range(min(lanes, samples.shape[0] - start - v * lanes)):
            for k in range(width):
                samples[start + v * lanes + lane, k] = tile[v, k, lane]


@_jit
def _load_panel(scale: Any, W: Any, b: Any, n: Any, panel: Any) -> None:
    size, width = W.shape[1], b.shape[1]
    for i in range(size):
        panel[i] = scale * W[n, i]
    for i in range(width):
        panel[size + i] = scale * b[n, i]


@_jit
def total(parts: Any, scale: Any, out: Any, first: Any, last: Any) -> None:
    """Let out[i] = scale · Σ_c parts[c, i] for first ≤ i < last, summed in the order of c."""
    for i in range(first, last):
        out[i] = parts[0, i]
    for c in range(1, parts.shape[0]):
        for i in range(first, last):
            out[i] += parts[c, i]
    for i in range(first, last):
        out[i] *= scale


@functools.cache
def sweeps(width: int, activation: str) -> tuple[Any, Any]:
    """The forward and the backward sweep for one width and one σ; each is compiled when first called.

    A sweep works on its share `first` … `last − 1`, in the buffers of `worker`, and writes nothing that
    another share reads or writes. W is (N, w²). `scale` multiplies weights and biases, `dt` the activation:
    their product is Δt, and it depends on σ which of the two is 1.
    """
    # numba looks only at this file, and at the variables that a function encloses, to see whether what it
    # cached on disk is still valid: so the sweeps enclose a fingerprint of the files that they are made from.
    sources = inspect.getsource(layers) + inspect.getsource(vectors)
    fingerprint = zlib.crc32(sources.encode())

    def forward(
        y: Any,
        W: Any,
        b: Any,
        scale: Any,
        dt: Any,
        stride: Any,
        saved: Any,  # (tiles, slots, *tile): slot i for the state before layer i·stride, if any
        buffers: Any,  # (workers, 2, *tile)
        panels: Any,
        out: Any,
        worker: Any,
        first: Any,
        last: Any,
    ) -> None:
        _ = fingerprint
        slots, size, lanes = saved.shape[1], buffers.shape[2], buffers.shape[4]
        panel = panels[worker]
        for tile in range(first, last):
            start = tile * size * lanes
            count = min(size, (y.shape[0] - start + lanes - 1) // lanes)
            state = saved[tile, 0] if slots > 0 else buffers[worker, 0]
            _gather(y, start, count, state)
            for n in range(W.shape[0]):
                slot = (n + 1) // stride
                if slot < slots and slot * stride == n + 1:
                    after = saved[tile, slot]
                else:
                    after = buffers[worker, (n + 1) % 2]
                _load_panel(scale, W, b, n, panel)
                step(width, activation, False, count, panel, dt, state, after, after)
                state = after
            _scatter(state, start, count, out)

    def backward(
        grad: Any,
        W: Any,
        b: Any,
        scale: Any,
        dt: Any,
        stride: Any,
        saved: Any,
        buffers: Any,  # (workers, 3 + 2·stride, *tile): two gradients, delta, a stride's states and σ
        panels: Any,
        dy: Any,
        dW: Any,  # (groups, N, w²): one sum for each group of tiles; no groups: none is wanted
        db: Any,
        tiles: Any,  # in a group; the share is counted in groups
        worker: Any,
        first: Any,
        last: Any,
    ) -> None:
        _ = fingerprint
        slots, size, lanes = saved.shape[1], buffers.shape[2], buffers.shape[4]
        panel, delta = panels[worker], buffers[worker, 2]
        states, values = buffers[worker, 3 : 3 + stride], buffers[worker, 3 + stride :]
        for group in range(first, last):
            if dW.shape[0] > 0:
                dW[group] = 0
                db[group] = 0
            for tile in range(group * tiles, min((group + 1) * tiles, saved.shape[0])):
                start = tile * size * lanes
                count = min(size, (grad.shape[0] - start + lanes - 1) // lanes)
                g, before = buffers[worker, 0], buffers[worker, 1]
                _gather(grad, start, count, g)
                for lane in range(grad.shape[0] - start - (count - 1) * lanes, lanes):
                    g[count - 1, :, lane] = 0  # what fills up the last vector adds nothing to any sum
                for slot in range(slots - 1, -1, -1):
                    base = slot * stride
                    length = min(stride, W.shape[0] - base)
                    states[0] = saved[tile, slot]
                    for i in range(length):
                        # the last layer's result is the state that the way back has come from
                        after = states[i + 1] if i + 1 < length else before
                        _load_panel(scale, W, b, base + i, panel)
                        step(width, activation, True, count, panel, dt, states[i], after, values[i])
                    for i in range(length - 1, -1, -1):
                        _load_panel(scale, W, b, base + i, panel)
                        adjoint(width, activation, count, panel, dt, values[i], g, before, delta)
                        if dW.shape[0] > 0:
                            batch_sums(
                                width, count, delta, states[i], dW[group, base + i], db[group, base + i]
                            )
                        g, before = before, g
                _scatter(g, start, count, dy)

    return _jit(forward), _jit(backward)
