"""IDX, the file format of MNIST: two zero bytes, a type, a number of dimensions, the dimensions, the data."""

from __future__ import annotations

import gzip
import math
import zlib
from typing import TYPE_CHECKING

import numpy as np

from smgopt.lab.data.errors import damaged, unreadable

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

UINT8 = 8
# The dimensions are checked against this before memory is asked for: one flipped bit of a header may claim
# terabytes. The largest set of this family, EMNIST, has half as much.
LIMIT = 2**30


def read(path: Path, item: tuple[int, ...]) -> NDArray[np.uint8]:
    """The array of unsigned bytes in an IDX file, which may be gzipped.

    Args:
        path: the file; gzipped if its name ends in ``.gz``.
        item: the shape of one entry: ``(28, 28)`` for images, ``()`` for labels.

    Returns:
        An array of shape ``(N, *item)``, read only.

    Raises:
        DataError: the file cannot be read, is cut off or corrupted, or holds something else.
    """
    try:
        # gzip keeps a checksum and compares it when the end is reached, hence the one byte more.
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as stream:
            head = stream.read(4 * (2 + len(item)))
            shape = _shape(path, head, item)
            size = math.prod(shape)
            data = stream.read(size + 1)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise damaged(path, str(error)) from error
    except OSError as error:
        raise unreadable(path, error) from error
    if len(data) != size:
        found = f"only {len(data)}" if len(data) < size else "more"
        raise damaged(path, f"its header announces {size} bytes, it has {found}")
    return np.frombuffer(data, np.uint8).reshape(shape)


def _shape(path: Path, head: bytes, item: tuple[int, ...]) -> tuple[int, ...]:
    """The shape that a header announces, which must be N entries of shape ``item``."""
    if len(head) != 4 * (2 + len(item)) or head[:4] != bytes((0, 0, UINT8, 1 + len(item))):
        raise damaged(path, f"no IDX header of {1 + len(item)}-dimensional bytes")
    count, *rest = (int(n) for n in np.frombuffer(head, ">u4", offset=4))
    if tuple(rest) != item:
        raise damaged(path, f"its entries have shape {tuple(rest)} instead of {item}")
    if not 0 < count * math.prod(item) <= LIMIT:
        raise damaged(path, f"its header announces {count} entries")
    return count, *item
