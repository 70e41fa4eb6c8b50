"""Room for intermediate results that is used again.

A gradient of a deep stack needs some megabytes that nobody sees. Taken from the system and given back each
time, they come as pages that the kernel of the system fills with zeros first, which takes as long as a good
part of the gradient. So what has been used is kept at hand for whoever needs as much.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    Array = np.ndarray[Any, Any]

# Bytes that are kept at hand at most while nobody uses them.
KEPT = 1 << 29
_LINE, _PAGE = 64, 4096

# Idle memory by its size; sizes that were asked for lately stand last. Memory may be freed at any moment, in
# the middle of this, too: hence a lock that its own thread may take again.
_free: dict[int, list[Array]] = {}
_kept = 0
_lock = threading.RLock()


def _keep(buffer: Array) -> None:
    """Keep it at hand, and let go of what nobody has asked for lately if that is too much."""
    global _kept
    if buffer.size > KEPT:
        return
    with _lock:
        _free.setdefault(buffer.size, []).append(buffer)
        _kept += buffer.size
        if _kept <= KEPT:
            return
        for size in [*_free]:
            while _kept > KEPT and _free[size]:
                _free[size].pop()
                _kept -= size


def _idle(size: int) -> Array | None:
    """Memory of that size, if there is some."""
    global _kept
    with _lock:
        found = _free.pop(size, [])
        _free[size] = found  # last
        if not found:
            return None
        _kept -= size
        return found.pop()


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
        _keep(self.buffer)


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
    buffer = _idle(size)
    return np.asarray(_Lease(np.empty(size, np.uint8) if buffer is None else buffer, count, kind.str))
