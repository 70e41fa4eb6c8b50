"""The residual stack as one compiled operation on the CPU: tiles, threads, buffers and autograd.

What is computed in which order, and so every bit of the result, follows from the shapes alone; threads only
change who computes it.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from . import reference, sweeps
from .threads import share
from .vectors import LINE

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

ALONE = 2e6  # multiply-adds that the caller rather does alone: waking a thread takes about 50 µs
SCRATCH = (
    1 << 19
)  # bytes of states that one thread keeps at hand on the way back: half of a second-level cache
PARTS = 1 << 28  # bytes of partial sums of the weights' gradients


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
    lanes, once for each tile and layer: a quarter of their time with 8 vectors of width 10), but few tiles
    keep few threads busy. 8 tiles are aimed at. Tiles are as equal as can be.

    Not every state is kept for the way back: writing 82 MB and reading them again takes as long as computing
    most of them a second time in the cache. So what can be held there is computed again, from every
    stride-th state.
    """
    lanes = LINE // itemsize
    count = -(-batch // lanes)
    tiles = -(-count // min(max(-(-count // 8), 4), 16))
    vectors = -(-count // tiles)
    tiles = -(-count // vectors)
    groups = min(tiles, 8, max(2, PARTS // (depth * width * width * itemsize)))
    group = -(-tiles // groups)
    stride = max(1, min(64, SCRATCH // (2 * vectors * LINE * width)))
    if checkpoint:
        stride = max(stride, math.isqrt(depth - 1) + 1)
    return Plan(vectors, tiles, group, -(-tiles // group), min(stride, depth))


def _array(tensor: Tensor) -> np.ndarray[Any, Any]:
    return tensor.detach().contiguous().numpy()


def _flat(tensor: Tensor) -> np.ndarray[Any, Any]:
    return _array(tensor).reshape(-1)


def _factors(dt: float, activation: str, dtype: torch.dtype) -> tuple[Any, Any]:
    """(scale, dt) for the sweeps: Δt goes into the weights where σ(Δt·z) = Δt·σ(z)."""
    number = torch.empty((), dtype=dtype).numpy().dtype.type
    return (number(dt), number(1)) if activation == "relu" else (number(1), number(dt))


def _run(
    sweep: Any, arguments: tuple[Any, ...], room: int, like: Tensor, pieces: int, operations: float
) -> None:
    """Run a sweep over all pieces, alone or with helpers; every worker has a part of its own in `work`."""
    threads = min(torch.get_num_threads(), pieces) if operations > ALONE else 1
    work = _flat(like.new_empty(threads * room))
    if threads == 1:
        sweep(*arguments, work, 0, 0, pieces)
    else:
        share(lambda worker, i: sweep(*arguments, work, worker * room, i, i + 1), pieces, threads)


def _forward(
    y: Tensor, W: Tensor, b: Tensor, dt: float, activation: str, keep: Plan | None
) -> tuple[Tensor, Tensor]:
    """The stack's output and, if a plan says which, the states that the way back starts from."""
    samples, (depth, width) = y.reshape(-1, y.shape[-1]), b.shape
    lanes = LINE // y.element_size()
    cut = keep or plan(samples.shape[0], depth, width, y.element_size(), False)
    slots = -(-depth // cut.stride) if keep else 0
    saved = y.new_empty(cut.tiles * slots * cut.vectors * width * lanes)
    out = torch.empty_like(samples, memory_format=torch.contiguous_format)
    arguments = (
        *(_array(samples), _flat(W), _flat(b), *_factors(dt, activation, y.dtype)),
        *(cut.stride, slots, cut.vectors, lanes, _flat(saved), _array(out)),
    )
    room = sweeps.room(width, cut.vectors, lanes, 0)
    _run(sweeps.sweeps(width, activation)[0], arguments, room, y, cut.tiles, samples.shape[0] * W.numel())
    return out.reshape(y.shape), saved


def _backward(
    grad: Tensor, W: Tensor, b: Tensor, saved: Tensor, dt: float, activation: str, cut: Plan, weights: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of y, W and b; without `weights` the last two are empty."""
    samples, (depth, width) = grad.reshape(-1, grad.shape[-1]), b.shape
    lanes = LINE // grad.element_size()
    groups = cut.groups if weights else 0
    dy = torch.empty_like(samples, memory_format=torch.contiguous_format)
    dW, db = W.new_empty(groups, *W.shape), b.new_empty(groups, *b.shape)
    scale, step = _factors(dt, activation, grad.dtype)
    arguments = (
        *(_array(samples), _flat(W), _flat(b), scale, step),
        *(cut.stride, -(-depth // cut.stride), cut.vectors, lanes, _flat(saved), _array(dy)),
        *(_flat(dW), _flat(db), cut.group),
    )
    room = sweeps.room(width, cut.vectors, lanes, cut.stride)
    operations = 3 * samples.shape[0] * W.numel()
    _run(sweeps.sweeps(width, activation)[1], arguments, room, grad, cut.groups, operations)
    if weights:
        dW, db = _total(dW, scale), _total(db, scale)
    return dy.reshape(grad.shape), dW, db


def _total(parts: Tensor, scale: Any) -> Tensor:
    """The scaled sum of the parts."""
    out = parts.new_empty(parts.shape[1:])
    terms, flat = _array(parts.reshape(parts.shape[0], -1)), _flat(out)
    pieces = torch.get_num_threads() if parts.numel() > ALONE else 1
    ends = [i * flat.size // pieces for i in range(pieces + 1)]
    share(lambda _, i: sweeps.total(terms, scale, flat, ends[i], ends[i + 1]), pieces, pieces)
    return out


class _ResidualStack(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, y: Tensor, W: Tensor, b: Tensor, dt: float, activation: str, checkpoint: bool
    ) -> Tensor:
        ctx.cut = plan(y.numel() // y.shape[-1], *b.shape, y.element_size(), checkpoint)
        out, states = _forward(y, W, b, dt, activation, ctx.cut)
        ctx.save_for_backward(y, W, b, states)
        ctx.dt, ctx.activation, ctx.checkpoint = dt, activation, checkpoint
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        y, W, b, states = ctx.saved_tensors
        needed = ctx.needs_input_grad[:3]
        gradients: tuple[Tensor, ...]
        if torch.is_grad_enabled():
            # Someone will differentiate the gradient: then it must consist of operations that torch knows.
            inputs = [x for x, need in zip((y, W, b), needed, strict=True) if need]
            out = reference.residual_stack(y, W, b, ctx.dt, ctx.activation, checkpoint=ctx.checkpoint)
            found = iter(torch.autograd.grad(out, inputs, grad, create_graph=True))
            return *(next(found) if need else None for need in needed), None, None, None
        gradients = _backward(grad, W, b, states, ctx.dt, ctx.activation, ctx.cut, needed[1] or needed[2])
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
    return _forward(y, W, b, dt, activation, None)[0]
