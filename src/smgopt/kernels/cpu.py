"""The residual stack as one compiled operation on the CPU: tiles, threads, buffers and autograd.

What is computed in which order, and so every bit of the result, follows from the shapes alone; threads only
change who computes it.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from . import memory, reference, sweeps
from . import sums as batch
from .threads import share
from .vectors import LINE

if TYPE_CHECKING:
    from torch import Tensor

    Array = np.ndarray[Any, Any]

# Multiply-adds that the caller rather does alone: some 150 µs, where waking a thread takes 50.
ALONE = 5e6
# Bytes of states that a thread keeps at hand on the way back: a third of a second-level cache of a megabyte.
SCRATCH = 5 << 16
# Bytes of partial sums of the weights' gradients, which bound the number of groups of tiles.
PARTS = 1 << 28


@dataclass(frozen=True)
class Plan:
    """How a stack is cut up: a function of its shapes, so that threads do not change a bit of the result."""

    vectors: int  # vectors of samples in a tile
    tiles: int
    group: int  # tiles whose gradients are summed one after the other
    groups: int
    stride: int  # every stride-th state is kept for the way back


@functools.lru_cache(maxsize=256)
def plan(batch: int, depth: int, width: int, itemsize: int, checkpoint: bool) -> Plan:
    """Cut the batch into tiles and the depth into strides.

    A tile has 4 to 16 vectors: more of them cost the sums over the batch less (they end with sums over
    lanes, once for each tile and layer: a fifth of their time with 8 vectors of width 10), but few tiles
    keep few threads busy. 8 tiles are aimed at. Tiles are as equal as can be.

    Not every state is kept for the way back. For 2,048 layers, width 10 and 1,000 samples that would be
    82 MB, and writing and reading them takes twice as long as computing them a second time in the cache. So
    as many as can be held there are computed again, from every stride-th state.
    """
    lanes = LINE // itemsize
    count = max(1, -(-batch // lanes))  # an empty batch is a tile, too, whose sums are 0
    tiles = -(-count // min(max(-(-count // 8), 4), 16))
    vectors = -(-count // tiles)
    tiles = -(-count // vectors)
    groups = min(tiles, 8, max(2, PARTS // (depth * width * width * itemsize)))
    group = -(-tiles // groups)
    stride = max(1, min(64, SCRATCH // (vectors * LINE * width)))
    if checkpoint:
        stride = max(stride, math.isqrt(depth - 1) + 1)
    return Plan(vectors, tiles, group, -(-tiles // group), min(stride, depth))


def _array(tensor: Tensor) -> Array:
    return tensor.detach().contiguous().numpy()


def _flat(tensor: Tensor) -> Array:
    return _array(tensor).reshape(-1)


class Scaled(NamedTuple):
    """What the sweeps take for W, b and Δt, and the factor that they leave out of their gradients."""

    W: Array
    b: Array
    step: Any
    left_out: Any


def _scaled(W: Tensor, b: Tensor, dt: float, activation: str) -> Scaled:
    """As Δt·relu(z) = relu(Δt·z), a relu lets Δt into the weights: once here, not once for each sample."""
    weights, biases = _flat(W), _flat(b)
    number = weights.dtype.type
    if activation == "relu":
        weights, biases = (
            np.multiply(t, number(dt), memory.room(t.size, t.dtype)) for t in (weights, biases)
        )
        return Scaled(weights, biases, number(1), number(dt))
    return Scaled(weights, biases, number(dt), number(1))


def _run(
    sweep: Any, arguments: tuple[Any, ...], room: int, kind: Any, pieces: int, operations: float
) -> None:
    """Run a sweep over all pieces, alone or with helpers; every worker has a part of its own in `work`."""
    threads = min(torch.get_num_threads(), pieces) if operations > ALONE else 1
    work = memory.room(threads * room, kind)
    if threads == 1:
        sweep(*arguments, work, 0, 0, pieces)
    else:
        share(lambda worker, i: sweep(*arguments, work, worker * room, i, i + 1), pieces, threads)


def _forward(y: Tensor, scaled: Scaled, activation: str, keep: Plan | None) -> tuple[Tensor, Tensor]:
    """The stack's output and, if a plan says which, the states that the way back starts from."""
    samples, width = _array(y.reshape(-1, y.shape[-1])), y.shape[-1]
    depth = scaled.b.size // width
    lanes = LINE // y.element_size()
    cut = keep or plan(len(samples), depth, width, y.element_size(), False)
    slots = -(-depth // cut.stride) if keep else 0
    saved = memory.room(cut.tiles * slots * cut.vectors * width * lanes, samples.dtype)
    out = y.new_empty(samples.shape)
    arguments = (samples, *scaled[:3], cut.stride, slots, cut.vectors, lanes, saved, out.numpy())
    room = sweeps.room(width, activation, cut.vectors, lanes, 0)
    sweep = sweeps.forward(width, activation, samples.dtype.name)
    _run(sweep, arguments, room, samples.dtype, cut.tiles, len(samples) * scaled.W.size)
    return out.reshape(y.shape), torch.from_numpy(saved)


def _backward(
    grad: Tensor,
    W: Tensor,
    b: Tensor,
    saved: Tensor,
    scaled: Scaled,
    activation: str,
    cut: Plan,
    wanted: bool,
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """The gradients of y and, if wanted, of tensors like W and b."""
    samples, (depth, width) = _array(grad.reshape(-1, grad.shape[-1])), b.shape
    lanes = LINE // grad.element_size()
    groups = cut.groups if wanted else 0
    dy = grad.new_empty(samples.shape)
    sums = memory.room(groups * depth * batch.size(width, lanes), samples.dtype)
    arguments = (
        *(samples, *scaled[:3]),
        *(cut.stride, -(-depth // cut.stride), cut.vectors, lanes, _flat(saved), dy.numpy()),
        *(sums, cut.group),
    )
    room = sweeps.room(width, activation, cut.vectors, lanes, cut.stride)
    operations = 3 * len(samples) * W.numel()
    sweep = sweeps.backward(width, activation, samples.dtype.name)
    _run(sweep, arguments, room, samples.dtype, cut.groups, operations)
    if not wanted:
        return dy.reshape(grad.shape), None, None
    dW, db = W.new_empty(W.shape), b.new_empty(b.shape)
    flat = dW.numpy().reshape(-1), db.numpy().reshape(-1)
    places, add = batch.places(width, lanes).reshape(-1), sweeps.total(width, samples.dtype.name)
    pieces = torch.get_num_threads() if sums.size > ALONE / 8 else 1
    ends = [i * depth // pieces for i in range(pieces + 1)]
    parts = sums.reshape(groups, -1)
    share(lambda _, i: add(parts, scaled.left_out, places, *flat, ends[i], ends[i + 1]), pieces, pieces)
    return dy.reshape(grad.shape), dW, db


class _ResidualStack(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, y: Tensor, W: Tensor, b: Tensor, dt: float, activation: str, checkpoint: bool
    ) -> Tensor:
        ctx.cut = plan(y.numel() // y.shape[-1], *b.shape, y.element_size(), checkpoint)
        ctx.scaled = _scaled(W, b, dt, activation)
        out, states = _forward(y, ctx.scaled, activation, ctx.cut)
        ctx.save_for_backward(y, W, b, states)
        ctx.dt, ctx.activation, ctx.checkpoint = dt, activation, checkpoint
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        y, W, b, states = ctx.saved_tensors
        needed = ctx.needs_input_grad[:3]
        if torch.is_grad_enabled():
            # Someone will differentiate the gradient: then it must consist of operations that torch knows.
            # Views, because y may itself have come from W and b: that path is not this function's to follow.
            y, W, b = (t.view_as(t) for t in (y, W, b))
            inputs = [x for x, need in zip((y, W, b), needed, strict=True) if need]
            out = reference.residual_stack(y, W, b, ctx.dt, ctx.activation, checkpoint=ctx.checkpoint)
            found = iter(torch.autograd.grad(out, inputs, grad, create_graph=True))
            return *(next(found) if need else None for need in needed), None, None, None
        gradients = _backward(grad, W, b, states, ctx.scaled, ctx.activation, ctx.cut, needed[1] or needed[2])
        return *(g if need else None for g, need in zip(gradients, needed, strict=True)), None, None, None


def residual_stack(
    y: Tensor, W: Tensor, b: Tensor, dt: float, activation: str = "relu", *, checkpoint: bool = False
) -> Tensor:
    """The stack y ← y + Δt·σ(W_n y + b_n), n = 1 … N, as `smgopt.kernels.residual_stack` describes it."""
    if dt < 0:  # relu(Δt·z) = Δt·relu(z) wants a positive step, and the signs can be had outside
        return -residual_stack(-y, -W, b, -dt, activation, checkpoint=checkpoint)
    if torch.is_grad_enabled() and (y.requires_grad or W.requires_grad or b.requires_grad):
        result: Tensor = _ResidualStack.apply(y, W, b, dt, activation, checkpoint)  # type: ignore[no-untyped-call]
        return result
    return _forward(y, _scaled(W, b, dt, activation), activation, None)[0]
