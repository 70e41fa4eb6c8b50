"""One layer on one tile, forward and backward, as operations that compiled code can call.

A tile is `(vectors, width, lanes)`. What follows is by measurement on AVX-512, for 16 float32 samples and a
layer of width 10, whose 100 multiply-adds take 100 cycles where a core does one at a time (Zen 4) and 50
where it does two (Xeon since Skylake).

- All components of a vector of samples stand in registers at once. Where one multiply-add is done at a time,
  each weight comes from memory as its broadcast operand: a step takes 106 cycles, and 120 with two vectors
  that share each weight. Where two are done at a time, that is more than can be read, and sharing takes 60
  instead of 65.
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

from .vectors import HOST, REGISTERS, Emitter, integer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_UNROLL = 16  # terms of a sum that are written out; longer sums are loops over parts of at most that many
# Rows of W·y that stand in registers together; the rest is for operands and constants.
_ROWS = 24 if REGISTERS == 32 else 6
# Vectors of samples that share each weight that is read: see above.
_TOGETHER = 2 if REGISTERS == 32 and HOST != "znver4" else 1


class _Relu:
    """relu(z) = max(0, z). The weights contain Δt, as Δt·relu(z) = relu(Δt·z).

    What is kept for the way back is where Δt·relu(z) is positive: the derivative is Δt there, and 0 at 0. A
    bit a number instead of the number, because writing layers to the second cache and reading them again
    takes as long as computing them.
    """

    bits = True

    @staticmethod
    def value(emit: Emitter, z: Any) -> Any:
        zero = emit.constant(0.0)  # in this order a NaN stays one, and the whole is one instruction
        return emit.builder.select(emit.builder.fcmp_ordered(">", zero, z), zero, z)

    @staticmethod
    def advance(emit: Emitter, y: Any, value: Any, _dt: Any) -> Any:
        return emit.builder.fadd(y, value)

    @staticmethod
    def keep(emit: Emitter, value: Any, base: Any, index: Any) -> None:
        positive = emit.builder.fcmp_unordered("<", emit.constant(0.0), value)  # or not a number
        emit.store_bits(positive, base, index)

    @staticmethod
    def delta(emit: Emitter, base: Any, index: Any, g: Any, _dt: Any) -> Any:
        return emit.builder.select(emit.load_bits(base, index), g, emit.constant(0.0))


class _Tanh:
    """tanh(z) = −E / (2 + E) with E = exp(−2|z|) − 1, and the sign of z. What is kept is tanh(z).

    E comes from its power series at −2|z| / 2^h and from h doublings E ← E·(2 + E). These do not amplify
    relative errors, so small z keep their relative accuracy; and nothing in it branches.
    """

    bits = False

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
    def keep(emit: Emitter, value: Any, base: Any, index: Any) -> None:
        emit.store(value, base, emit.index(0, (index, emit.lanes)))

    @staticmethod
    def delta(emit: Emitter, base: Any, index: Any, g: Any, dt: Any) -> Any:
        builder, value = emit.builder, emit.load(base, emit.index(0, (index, emit.lanes)))
        slope = builder.fsub(emit.constant(1.0), builder.fmul(value, value))
        return builder.fmul(slope, builder.fmul(dt, g))


_ACTIVATIONS: dict[str, Any] = {"relu": _Relu, "tanh": _Tanh}


def packed(activation: str) -> int:
    """How many numbers of σ are kept in the room of one.

    >>> packed("relu"), packed("tanh")
    (32, 1)
    """
    return 32 if _ACTIVATIONS[activation].bits else 1


def layer(function: Callable[..., Any]) -> Any:
    """An operation for compiled code from a function of the arguments' types.

    The function answers with its signature and with what writes its LLVM code.
    """
    return intrinsic(prefer_literal=True)(function)


@layer
def step(
    _: Any,
    width: Any,
    activation: Any,
    keep: Any,
    count: Any,
    W: Any,
    W_at: Any,
    b: Any,
    b_at: Any,
    dt: Any,
    work: Any,
    y: Any,
    out: Any,
    kept: Any,
) -> Any:
    """The layer out = y + dt·σ(W y + b) on `count` vectors of the tile at y in `work`; `keep` σ as well."""
    w, sigma, keeps = width.literal_value, _ACTIVATIONS[activation.literal_value], keep.literal_value
    signature = types.void(width, activation, keep, count, W, W_at, b, b_at, dt, work, y, out, kept)

    def write(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        emit = Emitter(context, builder, work.dtype)
        weights, biases = emit.data(W, *arguments[4:6]), emit.data(b, *arguments[6:8])
        source, target, values = (emit.data(work, arguments[9], at) for at in arguments[10:])
        dt_vector = emit.splat(arguments[8])

        def tile(vectors: Sequence[Any]) -> None:
            def rows(j: Any, height: int, _: Any) -> None:
                starts = [emit.broadcast(biases, emit.index(r, (j, 1))) for r in range(height)]
                z = [emit.accumulators(starts) for _ in vectors]

                def terms(k: Any, length: int, _: Any) -> None:
                    for t in range(length):
                        y_k = [emit.load(source, emit.place(w, vector, k, t)) for vector in vectors]
                        for r in range(height):
                            weight = emit.broadcast(weights, emit.index(r * w + t, (j, w), (k, 1)))
                            for z_v, y_v in zip(z, y_k, strict=True):
                                emit.add_product(z_v[r], weight, y_v)

                emit.parts(w, _UNROLL, terms)
                for vector, z_v in zip(vectors, z, strict=True):
                    for r in range(height):
                        place = emit.place(w, vector, j, r)
                        value = sigma.value(emit, builder.load(z_v[r]))
                        if keeps:
                            sigma.keep(emit, value, values, emit.index(r, (vector, w), (j, 1)))
                        state = sigma.advance(emit, emit.load(source, place), value, dt_vector)
                        emit.store(state, target, place)

            emit.parts(w, _ROWS // len(vectors), rows)

        emit.together(arguments[3], _TOGETHER, tile)
        return context.get_dummy_value()

    return signature, write


@layer
def adjoint(
    _: Any,
    width: Any,
    activation: Any,
    count: Any,
    W: Any,
    W_at: Any,
    dt: Any,
    work: Any,
    kept: Any,
    g: Any,
    out: Any,
    delta: Any,
) -> Any:
    """The gradient g of a layer's output becomes that of its input: delta = dt·σ'·g, out = g + Wᵀ·delta."""
    w, sigma = width.literal_value, _ACTIVATIONS[activation.literal_value]
    signature = types.void(width, activation, count, W, W_at, dt, work, kept, g, out, delta)

    def write(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        emit = Emitter(context, builder, work.dtype)
        weights = emit.data(W, *arguments[3:5])
        values, source, target, deltas = (emit.data(work, arguments[6], at) for at in arguments[7:])
        dt_vector = emit.splat(arguments[5])

        def tile(vectors: Sequence[Any]) -> None:
            def rows(k: Any, height: int, _: Any) -> None:
                places = [[emit.place(w, vector, k, r) for r in range(height)] for vector in vectors]
                total = [emit.accumulators([emit.load(source, place) for place in row]) for row in places]

                def terms(j: Any, length: int, _: Any) -> None:
                    for t in range(length):
                        deltas_j = []
                        for vector in vectors:
                            place = emit.place(w, vector, j, t)
                            # Every block of rows computes delta anew: cheaper than a pass of its own.
                            kept_j = emit.index(t, (vector, w), (j, 1))
                            delta_j = sigma.delta(emit, values, kept_j, emit.load(source, place), dt_vector)
                            emit.store(delta_j, deltas, place)
                            deltas_j.append(delta_j)
                        for r in range(height):
                            weight = emit.broadcast(weights, emit.index(t * w + r, (j, w), (k, 1)))
                            for total_v, delta_v in zip(total, deltas_j, strict=True):
                                emit.add_product(total_v[r], weight, delta_v)

                emit.parts(w, _UNROLL, terms)
                for total_v, row in zip(total, places, strict=True):
                    for variable, place in zip(total_v, row, strict=True):
                        emit.store(builder.load(variable), target, place)

            emit.parts(w, _ROWS // len(vectors), rows)

        emit.together(arguments[2], _TOGETHER, tile)
        return context.get_dummy_value()

    return signature, write


@layer
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


@layer
def prefetch(_: Any, count: Any, array: Any, place: Any) -> Any:
    """Ask for so many numbers at a place of an array; it need not exist.

    They are the next layer's. Layers are shorter than what the machine itself takes for a pattern.
    """
    signature = types.void(count, array, place)

    def write(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        emit = Emitter(context, builder, array.dtype)
        start = emit.data(array, *arguments[1:])
        for i in range(min(-(-count.literal_value // emit.lanes) + 1, _UNROLL)):
            emit.prefetch(start, integer(i * emit.lanes))
        return context.get_dummy_value()

    return signature, write
