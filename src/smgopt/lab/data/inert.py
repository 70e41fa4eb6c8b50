"""Reads arrays of bytes out of a pickle without running anything that the pickle names.

A pickle is a program. Here it runs on a machine that knows only the instructions that lists, dictionaries,
numbers and strings take, and whatever it imports is replaced by an object that remembers how it was called
and does nothing. Not even numpy's own reconstruction runs: its state comes from the file, and a forged one,
an array of objects that claims to be bytes, would be followed into memory.
"""

from __future__ import annotations

import io
import math
import pickle
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

# What pickled arrays import: numpy 1 and 2 spell the first name differently.
ARRAY_NAMES = {
    ("numpy.core.multiarray", "_reconstruct"),
    ("numpy._core.multiarray", "_reconstruct"),
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
}
# Protocol 2, of the published files, and the bytes of protocol 3. Left out, among others: persistent ids,
# extension codes, object construction, and BYTEARRAY8, which takes memory before it looks for the content.
OPCODES = (  # noqa: SIM905 (one a line would be long)
    "PROTO STOP MARK NONE NEWTRUE NEWFALSE BININT BININT1 BININT2 LONG1 "
    "SHORT_BINSTRING BINSTRING SHORT_BINBYTES BINBYTES BINUNICODE "
    "EMPTY_TUPLE TUPLE TUPLE1 TUPLE2 TUPLE3 EMPTY_LIST APPEND APPENDS EMPTY_DICT SETITEM SETITEMS "
    "BINPUT LONG_BINPUT BINGET LONG_BINGET GLOBAL REDUCE BUILD"
).split()


class Inert:
    """What every imported name becomes."""

    def __init__(self, *args: Any) -> None:
        self.args = args
        self.state: Any = None

    def __setstate__(self, state: Any) -> None:
        self.state = state


# The interpreter in Python rather than the fast one in C, on purpose: its instructions are a table that can
# be cut down, and its memo is a dictionary, where C allocates up to the largest index that the file mentions.
class _Unpickler(pickle._Unpickler):
    dispatch = {  # noqa: RUF012 (the base class declares it)
        code: pickle._Unpickler.dispatch[code] for code in (getattr(pickle, name)[0] for name in OPCODES)
    }

    def find_class(self, module: str, name: str) -> type[Inert]:
        if (module, name) not in ARRAY_NAMES:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}")
        return Inert


def load(content: bytes) -> Any:
    """The lists, dictionaries, numbers and strings of a pickle; arrays as ``Inert``, for ``array`` to read.

    Args:
        content: the pickle. Strings of Python 2 come out as bytes.

    Raises:
        pickle.UnpicklingError: it is damaged, or asks for anything else.

    Example:
        >>> load(pickle.dumps({"labels": [3, 1]}, protocol=2))
        {'labels': [3, 1]}
        >>> load(pickle.dumps(print, protocol=2))
        Traceback (most recent call last):
        _pickle.UnpicklingError: it asks for __builtin__.print
    """
    try:
        return _Unpickler(io.BytesIO(content), encoding="bytes").load()
    except pickle.UnpicklingError:
        raise
    except KeyError as error:
        raise pickle.UnpicklingError(f"an instruction or reference does not belong: {error}") from error
    except Exception as error:  # a damaged program may fail in any way at all
        raise pickle.UnpicklingError(f"it breaks off or is corrupted: {type(error).__name__}") from error


def array(value: Any) -> NDArray[np.uint8]:
    """The array of unsigned bytes that an ``Inert`` stands for.

    Raises:
        pickle.UnpicklingError: it stands for anything else.
    """
    try:
        _, shape, dtype, fortran, data = value.state
        if dtype.args[0] in ("u1", b"u1") and isinstance(data, bytes) and math.prod(shape) == len(data):
            return np.frombuffer(data, np.uint8).reshape(shape, order="F" if fortran else "C")
    except (AttributeError, IndexError, TypeError, ValueError):
        pass
    raise pickle.UnpicklingError("it holds no array of bytes where one belongs")
