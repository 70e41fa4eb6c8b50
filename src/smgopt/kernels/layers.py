"""One layer on one tile, forward and backward, as operations that compiled code can call.

A tile is `(vectors, width, lanes)`. By measurement on AVX-512, in cycles for 16 float32 samples and a layer
of width 10, whose 100 multiply-adds take at least 100 cycles: a step takes 106, the adjoint step 113 and the
sums over the batch 125 (110 in tiles of 256 samples instead of 128). What that rests on:

- All components of a vector of samples stand in registers at once, and each weight comes from memory as the
  broadcast operand of a multiply-add. With two vectors at a time each weight is read half as often, but too
  few registers are left: 120 cycles instead of 106.
- The layout makes every address a constant offset from one pointer. With `(width, samples)`, rows as long as
  the tile, a step took a fifth longer.
- The sum over k is unrolled: the width is known when the layer is compiled. Great widths are unrolled in
  parts.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from numba import types
from numba.extending import intrinsic

from .vectors import REGISTERS, Emitter, integer

if TYPE_CHECKING:
    from collections.abc import Callable

_UNROLL = 16  # terms of a sum that are written out; longer sums are loops over parts of at most that many
# Blocks of sums that stand in registers together: rows of W·y; rows and columns of delta·yᵀ, which need
# another register for each column. The rest is for operands and constants.
_ROWS = 24 if REGISTERS == 32 else 6
_BLOCK, _COLUMNS = (4, 6) if REGISTERS == 32 else (2, 2)


class _Relu:
    """relu(z) = max(0, z). As Δt·relu(z) = relu(Δt·z), Δt goes into the weights, once for all samples.

    What is kept for the way back is Δt·relu(z): the derivative is Δt where it is positive, 0 at 0.
    """

    @staticmethod
    def value(emit: Emitter, z: Any) -> Any:
        zero = emit.constant(0.0)  # in this order a NaN stays one, and the whole is one instruction
        return emit.builder.select(emit.builder.fcmp_ordered(">", zero, z), zero, z)

    @staticmethod
    def advance(emit: Emitter, y: Any, value: Any, _dt: Any) -> Any:
        return emit.builder.fadd(y, value)

    @staticmethod
    def delta(emit: Emitter, value: Any, g: Any, _dt: Any) -> Any:
        zero = emit.constant(0.0)
        return emit.builder.select(emit.builder.fcmp_unordered("<", zero, value), g, zero)


class _Tanh:
    """tanh(z) = −E / (2 + E) with E = exp(−2|z|) − 1, and the sign of z. What is kept is tanh(z).

    E comes from its power series at −2|z| / 2^h and from h doublings E ← E·(2 + E). These do not amplify
    relative errors, so small z keep their relative accuracy; and nothing in it branches.
    """

    @staticmethod
    def value(emit: Emitter, z: Any) -> Any:
        builder = emit.builder
        # Beyond `limit` the result rounds to 1; the series' remainder is below a rounding error.
        limit, doublings, terms = (9.1, 5, 9) if emit.bytes == 4 else (19.1, 6, 16)
        most, negative = emit.constant(limit), builder.fcmp_ordered("<", z, emit.constant(0.0))
        size = builder.select(negative, builder.fneg(z), z)
        size = builder.select(builder.fcmp_ordered(">", size, most), most, size)
        u = builder.fmul(size, emit.constant(-2.0 / 2**doublings))
        series = emit.constant(1.0 / math.factorial(terms))
        for n in range(terms - 1, 0, -1):
            series = emit.multiply_add(series, u, emit.constant(1.0 / math.factorial(n)))
        e, two = builder.fmul(series, u), emit.constant(2.0)
        for _ in range(doublings):
            e = builder.fmul(e, builder.fadd(e, two))
        quotient = builder.fdiv(e, builder.fadd(e, two))
        return builder.select(negative, quotient, builder.fneg(quotient))

    @staticmethod
    def advance(emit: Emitter, y: Any, value: Any, dt: Any) -> Any:
        return emit.multiply_add(dt, value, y)

    @staticmethod
    def delta(emit: Emitter, value: Any, g: Any, dt: Any) -> Any:
        builder = emit.builder
        slope = builder.fsub(emit.constant(1.0), builder.fmul(value, value))
        return builder.fmul(slope, builder.fmul(dt, g))


_ACTIVATIONS: dict[str, Any] = {"relu": _Relu, "tanh": _Tanh}


def _layer(function: Callable[..., Any]) -> Any:
    """An operation for compiled code from a function of the arguments' types.

    The function answers with its signature and with what writes its LLVM code.
    """
    return intrinsic(prefer_literal=True)(function)


@_layer
def load_panel(
    _: Any, width: Any, scale: Any, work: Any, panel: Any, W: Any, W_at: Any, b: Any, b_at: Any
) -> Any:
    """Put scale·W and scale·b of a layer side by side: at `panel` in `work`."""
    w = width.literal_value
    signature = types.void(width, scale, work, panel, W, W_at, b, b_at)

    def write(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        emit = Emitter(context, builder, work.dtype)
        target = emit.data(work, arguments[2], arguments[3])
        factor = emit.splat(arguments[1])

        for kind, at, size, start in ((W, 4, w * w, 0), (b, 6, w, w * w)):
            source = emit.data(kind, arguments[at], arguments[at + 1])

            def vectors(first: Any, length: int, source: Any = source, start: int = start) -> None:
                for i in range(length):
                    numbers = emit.load(source, emit.index(i * emit.lanes, (first, emit.lanes)))
                    place = emit.index(start + i * emit.lanes, (first, emit.lanes))
                    emit.store(builder.fmul(numbers, factor), target, place)

            if size >= emit.lanes:
                emit.parts(size // emit.lanes, _UNROLL, vectors)
            for i in range(size - size % emit.lanes, size):
                number = builder.load(builder.gep(source, [integer(i)]))
                product = builder.fmul(number, arguments[1])
                builder.store(product, builder.gep(target, [integer(start + i)]))
        return context.get_dummy_value()

    return signature, write


@_layer
def step(
    _: Any,
    width: Any,
    activation: Any,
    keep: Any,
    count: Any,
    dt: Any,
    work: Any,
    panel: Any,
    y: Any,
    out: Any,
    kept: Any,
) -> Any:
    """The layer out = y + dt·σ(W y + b) on `count` vectors; W and b are in a panel. With `keep`, σ is kept.

    Tiles and panel are places in `work`.
    """
    w, sigma, keeps = width.literal_value, _ACTIVATIONS[activation.literal_value], keep.literal_value
    signature = types.void(width, activation, keep, count, dt, work, panel, y, out, kept)

    def write(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        emit = Emitter(context, builder, work.dtype)
        weights, source, target, values = (emit.data(work, arguments[5], at) for at in arguments[6:])
        dt_vector = emit.splat(arguments[4])
        with emit.loop(arguments[3]) as vector:

            def rows(j: Any, height: int) -> None:
                biases = [emit.index(w * w + r, (j, 1)) for r in range(height)]
                z = emit.accumulators([emit.broadcast(weights, i) for i in biases])

                def terms(k: Any, length: int) -> None:
                    for t in range(length):
                        y_k = emit.load(source, emit.place(w, vector, k, t))
                        for r in range(height):
                            weight = emit.broadcast(weights, emit.index(r * w + t, (j, w), (k, 1)))
                            emit.add_product(z[r], weight, y_k)

                emit.parts(w, _UNROLL, terms)
                for r in range(height):
                    place = emit.place(w, vector, j, r)
                    value = sigma.value(emit, builder.load(z[r]))
                    if keeps:
                        emit.store(value, values, place)
                    emit.store(sigma.advance(emit, emit.load(source, place), value, dt_vector), target, place)

            emit.parts(w, _ROWS, rows)
        return context.get_dummy_value()

    return signature, write


@_layer
def adjoint(
    _: Any,
    width: Any,
    activation: Any,
    count: Any,
    dt: Any,
    work: Any,
    panel: Any,
    kept: Any,
    g: Any,
    out: Any,
    delta: Any,
) -> Any:
    """The gradient g of a layer's output becomes that of its input: delta = dt·σ'·g, out = g + Wᵀ·delta."""
    w, sigma = width.literal_value, _ACTIVATIONS[activation.literal_value]
    signature = types.void(width, activation, count, dt, work, panel, kept, g, out, delta)

    def write(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        emit = Emitter(context, builder, work.dtype)
        weights, values, source, target, deltas = (emit.data(work, arguments[4], at) for at in arguments[5:])
        dt_vector = emit.splat(arguments[3])
        with emit.loop(arguments[2]) as vector:

            def rows(k: Any, height: int) -> None:
                places = [emit.place(w, vector, k, r) for r in range(height)]
                total = emit.accumulators([emit.load(source, place) for place in places])

                def terms(j: Any, length: int) -> None:
                    for t in range(length):
                        place = emit.place(w, vector, j, t)
                        # Every block of rows computes delta anew: cheaper than a pass of its own.
                        value, g_j = emit.load(values, place), emit.load(source, place)
                        delta_j = sigma.delta(emit, value, g_j, dt_vector)
                        emit.store(delta_j, deltas, place)
                        for r in range(height):
                            weight = emit.broadcast(weights, emit.index(t * w + r, (j, w), (k, 1)))
                            emit.add_product(total[r], weight, delta_j)

                emit.parts(w, _UNROLL, terms)
                for variable, place in zip(total, places, strict=True):
                    emit.store(builder.load(variable), target, place)

            emit.parts(w, _ROWS, rows)
        return context.get_dummy_value()

    return signature, write


@_layer
def copy(_: Any, width: Any, count: Any, source: Any, source_at: Any, target: Any, target_at: Any) -> Any:
    """Copy a tile of `count` vectors."""
    w = width.literal_value
    signature = types.void(width, count, source, source_at, target, target_at)

    def write(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        emit = Emitter(context, builder, source.dtype)
        origin, goal = emit.data(source, *arguments[2:4]), emit.data(target, *arguments[4:])
        with emit.loop(builder.mul(arguments[1], integer(w))) as i:
            place = emit.index(0, (i, emit.lanes))
            emit.store(emit.load(origin, place), goal, place)
        return context.get_dummy_value()

    return signature, write


@_layer
def prefetch(_: Any, width: Any, array: Any, place: Any) -> Any:
    """Ask for the width² numbers at a place of an array; it need not exist.

    They are the next layer's. Layers are shorter than what the machine itself takes for a pattern.
    """
    w = width.literal_value
    signature = types.void(width, array, place)

    def write(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        emit = Emitter(context, builder, array.dtype)
        start = emit.data(array, *arguments[1:])
        for i in range(min(-(-w * w // emit.lanes) + 1, _UNROLL)):
            emit.prefetch(start, integer(i * emit.lanes))
        return context.get_dummy_value()

    return signature, write


@_layer
def batch_sums(
    _: Any,
    width: Any,
    count: Any,
    fresh: Any,
    work: Any,
    delta: Any,
    y: Any,
    dW: Any,
    dW_at: Any,
    db: Any,
    db_at: Any,
) -> Any:
    """Over the samples of a tile: dW += Σ_s delta_s y_sᵀ and db += Σ_s delta_s; `fresh`: from 0.

    Lane by lane over the vectors, then over the lanes: an order that depends on shapes only. The bias is
    column w of the block of sums, with y = 1.
    """
    w = width.literal_value
    signature = types.void(width, count, fresh, work, delta, y, dW, dW_at, db, db_at)

    def write(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        emit = Emitter(context, builder, work.dtype)
        deltas, states = (emit.data(work, arguments[3], at) for at in arguments[4:6])
        weights, biases = emit.data(dW, *arguments[6:8]), emit.data(db, *arguments[8:])

        def rows(j: Any, height: int) -> None:
            def columns(k: Any, length: int, bias: bool = False) -> None:
                totals = [emit.accumulators([emit.constant(0.0)] * (length + bias)) for _ in range(height)]
                with emit.loop(arguments[1]) as vector:
                    operands = [emit.load(states, emit.place(w, vector, k, c)) for c in range(length)]
                    for r in range(height):
                        delta_j = emit.load(deltas, emit.place(w, vector, j, r))
                        for variable, y_k in zip(totals[r], operands, strict=False):
                            emit.add_product(variable, delta_j, y_k)
                        if bias:
                            last = totals[r][-1]
                            builder.store(builder.fadd(builder.load(last), delta_j), last)
                for r in range(height):
                    sums = emit.sums([builder.load(variable) for variable in totals[r]])
                    if length:
                        emit.accumulate(
                            sums, 0, length, arguments[2], weights, emit.index(r * w, (j, w), (k, 1))
                        )
                    if bias:
                        emit.accumulate(sums, length, 1, arguments[2], biases, emit.index(r, (j, 1)))

            # The bias is one more column of the last block.
            blocks = -(-(w + 1) // _COLUMNS)
            tail = (w + 1) // blocks - 1
            if w > tail:
                emit.parts(w - tail, _COLUMNS, columns)
            columns(integer(w - tail), tail, bias=True)

        emit.parts(w, _BLOCK, rows)
        return context.get_dummy_value()

    return signature, write
