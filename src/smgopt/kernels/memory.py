"""Room for intermediate results that is used again.

A gradient of a deep stack needs some megabytes that nobody sees. Taken from the system and given back each
time, they come as pages that the kernel of the system fills with zeros first, which takes as long as a good
part of the gradient. So what has been used is kept at hand for whoever needs as much.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    Array = np.ndarray[Any, Any]

# Bytes that are kept at hand at most while nobody uses them.
KEPT = 1 << 29
_LINE, _PAGE = 64, 4096

# Memory by its size. Taking from a list and adding to it are single steps, so threads need no lock.
_free: defaultdict[int, list[Array]] = defaultdict(list)


class _Lease:
    """Memory in use: it can be had again when the last array that refers to it is gone."""

    __slots__ = ("__array_interface__", "buffer")

    def __init__(self, buffer: Array, count: int, kind: str) -> None:
        self.buffer = buffer
        start = buffer.ctypes.data
        self.__array_interface__ = {
            "version": 3,
            "shape": (count,),
            "typestr": kind,
            "data": (start + -start % _LINE, False),
        }

    def __del__(self) -> None:
        if self.buffer.size <= KEPT - sum(size * len(found) for size, found in [*_free.items()]):
            _free[self.buffer.size].append(self.buffer)


def room(count: int, dtype: Any) -> Array:
    """Uninitialised numbers, aligned to cache lines.

    >>> numbers = room(1000, "float32")
    >>> numbers.shape, numbers.ctypes.data % 64
    ((1000,), 0)
    """
    kind = np.dtype(dtype)
    # Sizes in steps of at most a quarter, so that what has served one shape serves its neighbours.
    size = max(count * kind.itemsize + _LINE, _PAGE)
    step = 1 << (size.bit_length() - 3)
    size = -(-size // step) * step
    try:
        buffer = _free[size].pop()
    except IndexError:
        buffer = np.empty(size, np.uint8)
    return np.asarray(_Lease(buffer, count, kind.str))
