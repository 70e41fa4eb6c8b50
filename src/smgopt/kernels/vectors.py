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
HOST = binding.get_host_cpu_name()
REGISTERS = 32 if binding.get_host_cpu_features().get("avx512f") else 8

_INT = ir.IntType(64)
_LANE = ir.IntType(32)
_alloca: Any = cgutils.alloca_once
_function: Any = cgutils.get_or_insert_function


def integer(value: int) -> Any:
    """A constant index."""
    return ir.Constant(_INT, value)


def cut(total: int, most: int) -> list[tuple[int, int]]:
    """Start and length of the fewest parts of 0 … total − 1 that are at most so long; the longer ones first.

    >>> cut(10, 4)
    [(0, 4), (4, 3), (7, 3)]
    """
    count = -(-total // most)
    length, longer = divmod(total, max(1, count))
    return [(i * length + min(i, longer), length + (i < longer)) for i in range(count)]


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

    def together(self, count: Any, most: int, body: Callable[[Sequence[Any]], None]) -> None:
        """Emit `body` for 0 … count − 1, `most` numbers at a time, and for what is left one by one."""
        whole = self.builder.udiv(count, integer(most))
        with self.loop(whole) as i:
            body([self.index(k, (i, most)) for k in range(most)])
        if most > 1:
            with self.loop(self.builder.urem(count, integer(most))) as rest:
                body([self.index(0, (whole, most), (rest, 1))])

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

    def store_bits(self, bits: Any, base: Any, index: Any) -> None:
        """Put a vector of truths into memory, a bit for each lane, at an index counted in such vectors."""
        kind = ir.IntType(self.lanes)
        address = self.builder.gep(self.builder.bitcast(base, kind.as_pointer()), [index])
        self.builder.store(self.builder.bitcast(bits, kind), address)

    def load_bits(self, base: Any, index: Any) -> Any:
        """The vector of truths that `store_bits` has left there."""
        address = self.builder.gep(self.builder.bitcast(base, ir.IntType(self.lanes).as_pointer()), [index])
        return self.builder.bitcast(self.builder.load(address), ir.VectorType(ir.IntType(1), self.lanes))

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

    def parts(self, total: int, most: int, body: Callable[[Any, int, Any], None]) -> None:
        """Emit `body(start, length, number)` for the parts of 0 … total − 1 that `cut` makes."""
        shares = cut(total, most)
        for length in sorted({length for _, length in shares}, reverse=True):
            equal = [i for i, (_, found) in enumerate(shares) if found == length]
            number, start = equal[0], shares[equal[0]][0]
            if len(equal) == 1:
                body(integer(start), length, integer(number))
                continue
            with self.loop(integer(len(equal))) as i:
                body(self.index(start, (i, length)), length, self.index(number, (i, 1)))

    def sums(self, vectors: Sequence[Any]) -> Any:
        """The short vector of the sums of each vector's lanes.

        Two vectors of partial sums become one of half as many partial sums each, and so on: lanes whose bit
        `half` is clear go to the first one, the others to the second, and each takes the lane that differs
        from its own in that bit. So one operand of the addition is a blend, which any unit does; the other
        is a true shuffle. Bits whose shuffle stays inside the 128-bit parts of a register go first, while
        there are many vectors. `owner` says which vector's sum a lane belongs to.
        """
        pairs = [(vector, [i] * self.lanes) for i, vector in enumerate(vectors)]
        for half in (bit for bit in (2, 4, 1, 8) if bit < self.lanes):
            kept = [i + self.lanes * bool(i & half) for i in range(self.lanes)]
            other = [i - half if i >= self.lanes else i + half for i in kept]
            halved = []
            for i in range(0, len(pairs), 2):
                (a, of_a), (b, of_b) = pairs[i], pairs[min(i + 1, len(pairs) - 1)]
                total = self.builder.fadd(self.shuffle(a, b, kept), self.shuffle(a, b, other))
                halved.append((total, [(of_a + of_b)[k] for k in kept]))
            pairs = halved
        result, owner = pairs[0]
        # As many lanes as are a power of two, so that they are written in one go; what fills up is not read.
        room = 1 << (len(vectors) - 1).bit_length()
        return self.shuffle(result, result, [owner.index(min(i, len(vectors) - 1)) for i in range(room)])

    def accumulate(self, sums: Any, fresh: Any, base: Any, index: Any) -> None:
        """Add the sums to numbers in memory, or put them there."""
        none = ir.Constant(sums.type, [0.0] * sums.type.count)
        old = self.builder.select(fresh, none, self.load(base, index, sums.type))
        self.store(self.builder.fadd(old, sums), base, index)
