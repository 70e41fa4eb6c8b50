"""Writing LLVM code that computes with vectors of samples.

One vector holds the same component of several samples and fills a cache line, 64 bytes. That is one register
with AVX-512; elsewhere LLVM splits it into two or four, and `REGISTERS` is the number of vectors that fit.

Loops over samples that are left to LLVM's auto-vectoriser are at the mercy of its cost model and of its
checks for overlapping arrays; here the vectors, and what stands in registers, are written out.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from llvmlite import binding, ir
from numba.core import cgutils

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

LINE = 64
REGISTERS = 32 if binding.get_host_cpu_features().get("avx512f") else 8

_INT = ir.IntType(64)
_LANE = ir.IntType(32)
_alloca: Any = cgutils.alloca_once
_function: Any = cgutils.get_or_insert_function


def integer(value: int) -> Any:
    """A constant index."""
    return ir.Constant(_INT, value)


class Emitter:
    """Writes LLVM code on vectors of samples; `element` is the numba type of one number."""

    def __init__(self, context: Any, builder: Any, element: Any) -> None:
        self.context, self.builder = context, builder
        self.element = context.get_data_type(element)
        self.bytes = element.bitwidth // 8
        self.lanes = LINE // self.bytes
        self.vector = ir.VectorType(self.element, self.lanes)

    def data(self, kind: Any, array: Any, place: Any) -> Any:
        """The address of the number at a place of an array with one dimension."""
        start = self.context.make_array(kind)(self.context, self.builder, array).data
        return self.builder.gep(start, [place])

    @contextlib.contextmanager
    def loop(self, count: Any) -> Iterator[Any]:
        """What is emitted inside happens for 0 … count − 1."""
        with cgutils.for_range(self.builder, count, intp=_INT) as loop:
            yield loop.index

    def index(self, constant: int, *terms: tuple[Any, int]) -> Any:
        """The index constant + Σ value · factor."""
        total = integer(constant)
        for value, factor in terms:
            total = self.builder.add(total, self.builder.mul(value, integer(factor)))
        return total

    def place(self, width: int, vector: Any, component: Any, offset: int) -> Any:
        """Where component + offset of a vector of samples stands in a tile."""
        return self.index(offset * self.lanes, (vector, width * self.lanes), (component, self.lanes))

    # No alignment beyond a number's own is promised: buffers are aligned in fact, which is enough for speed.
    def load(self, base: Any, index: Any, kind: Any = None) -> Any:
        """The vector in memory at an index, of the common kind or of another."""
        address = self.builder.gep(base, [index])
        value = self.builder.load(self.builder.bitcast(address, (kind or self.vector).as_pointer()))
        value.align = self.bytes
        return value

    def store(self, value: Any, base: Any, index: Any) -> None:
        """Put a vector into memory."""
        address = self.builder.bitcast(self.builder.gep(base, [index]), value.type.as_pointer())
        self.builder.store(value, address).align = self.bytes

    def prefetch(self, base: Any, index: Any) -> None:
        """Ask for a cache line that will be read or written soon."""
        address = self.builder.bitcast(self.builder.gep(base, [index]), ir.IntType(8).as_pointer())
        kind = ir.FunctionType(ir.VoidType(), [address.type, _LANE, _LANE, _LANE])
        function = _function(self.builder.module, kind, "llvm.prefetch.p0i8")
        self.builder.call(function, [address, *(ir.Constant(_LANE, flag) for flag in (0, 3, 1))])

    def splat(self, number: Any) -> Any:
        """A vector of one number."""
        none = ir.Constant(self.vector, ir.Undefined)
        first = self.builder.insert_element(none, number, ir.Constant(_LANE, 0))
        return self.shuffle(first, none, [0] * self.lanes)

    def broadcast(self, base: Any, index: Any) -> Any:
        """A vector of one number in memory."""
        return self.splat(self.builder.load(self.builder.gep(base, [index])))

    def constant(self, value: float) -> Any:
        """A vector of one number that is known now."""
        return ir.Constant(self.vector, [value] * self.lanes)

    def shuffle(self, a: Any, b: Any, lanes: Sequence[int]) -> Any:
        """The chosen lanes of a, then b."""
        mask = ir.Constant(ir.VectorType(_LANE, len(lanes)), list(lanes))
        return self.builder.shuffle_vector(a, b, mask)

    def multiply_add(self, a: Any, b: Any, c: Any) -> Any:
        """a·b + c, rounded once where the machine can; nothing else about the arithmetic is relaxed."""
        product = self.builder.fmul(a, b, flags=("contract",))
        return self.builder.fadd(product, c, flags=("contract",))

    def add_product(self, variable: Any, a: Any, b: Any) -> None:
        """Variable += a·b."""
        self.builder.store(self.multiply_add(a, b, self.builder.load(variable)), variable)

    def accumulators(self, starts: Sequence[Any]) -> list[Any]:
        """Variables that live in registers (LLVM promotes them: their address is never taken)."""
        variables = [_alloca(self.builder, self.vector) for _ in starts]
        for variable, start in zip(variables, starts, strict=True):
            self.builder.store(start, variable)
        return variables

    def parts(self, total: int, most: int, body: Callable[[Any, int], None]) -> None:
        """Emit `body(start, length)` for 0 … total − 1 in parts that are as equal as can be."""
        length, longer = divmod(total, -(-total // most))
        start = 0
        for count, size in ((longer, length + 1), (-(-total // most) - longer, length)):
            if count == 1:
                body(integer(start), size)
            elif count > 1:
                with self.loop(integer(count)) as part:
                    body(self.index(start, (part, size)), size)
            start += count * size

    def sums(self, vectors: Sequence[Any]) -> Any:
        """The short vector of the sums of each vector's lanes.

        Two vectors of partial sums become one of half as many partial sums each, and so on. Halves are taken
        across the 128-bit parts of a register first and inside them last, where one shuffle is one cheap
        instruction. `owner` says which vector's sum a lane belongs to.
        """
        pairs = [(vector, [i] * self.lanes) for i, vector in enumerate(vectors)]
        quarter = self.lanes // 4
        group = self.lanes
        while group > 1:
            spans = [(0, 2 * self.lanes)]
            if group <= quarter:
                starts = range(0, self.lanes, quarter)
                spans = [(s + t, s + t + quarter) for s in starts for t in (0, self.lanes)]
            low = [i for first, last in spans for i in range(first, last) if i % group < group // 2]
            high = [i + group // 2 for i in low]
            halved = []
            for i in range(0, len(pairs), 2):
                (a, of_a), (b, of_b) = pairs[i], pairs[min(i + 1, len(pairs) - 1)]
                total = self.builder.fadd(self.shuffle(a, b, low), self.shuffle(a, b, high))
                halved.append((total, [(of_a + of_b)[k] for k in low]))
            pairs, group = halved, group // 2
        result, owner = pairs[0]
        return self.shuffle(result, result, [owner.index(i) for i in range(len(vectors))])

    def accumulate(self, sums: Any, first: int, count: int, fresh: Any, base: Any, index: Any) -> None:
        """Add `count` of the sums, from number `first` on, to numbers in memory, or put them there."""
        part = self.shuffle(sums, sums, range(first, first + count))
        old = self.builder.select(
            fresh, ir.Constant(part.type, [0.0] * count), self.load(base, index, part.type)
        )
        self.store(self.builder.fadd(old, part), base, index)
