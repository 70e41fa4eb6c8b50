"""The files of CIFAR-10: the binary version, and the Python version without unpickling it."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

from smgopt.lab.data import inert
from smgopt.lab.data.errors import damaged, unreadable

if TYPE_CHECKING:
    from pathlib import Path

SHAPE = (3, 32, 32)
PIXELS = 3 * 32 * 32
RECORDS = 10_000  # in each of the six files
TRAIN, TEST = tuple(f"data_batch_{i}" for i in range(1, 6)), ("test_batch",)

Bytes: TypeAlias = NDArray[np.uint8]


def read_binary(path: Path) -> tuple[Bytes, Bytes]:
    """Images and labels of one file of the binary version: records of a label and 3,072 pixels.

    Raises:
        DataError: the file cannot be read, or is not the records that it should be.
    """
    size = RECORDS * (1 + PIXELS)
    try:
        records = np.fromfile(path, np.uint8, count=size + 1)
    except OSError as error:
        raise unreadable(path, error) from error
    if records.size != size:
        raise damaged(path, f"it should have {size} bytes, it has {path.stat().st_size}")
    records = records.reshape(RECORDS, 1 + PIXELS)
    return records[:, 1:].reshape(-1, *SHAPE), records[:, 0]


def read_python(path: Path) -> tuple[Bytes, Bytes]:
    """Images and labels of one file of the Python version, a pickle, of which only arrays and lists are read.

    Raises:
        DataError: the file cannot be read, is corrupted, or asks for anything but arrays.
    """
    try:
        # Labels and file names take well below as much again as the pixels.
        with path.open("rb") as stream:
            content = stream.read(2 * RECORDS * PIXELS)
    except OSError as error:
        raise unreadable(path, error) from error
    try:
        batch = inert.load(content)
        images, labels = inert.array(batch[b"data"]), batch[b"labels"]
    except pickle.UnpicklingError as error:
        raise damaged(path, str(error)) from error
    except (KeyError, TypeError) as error:
        raise damaged(path, "it lacks an array of images and a list of labels") from error
    if images.shape != (RECORDS, PIXELS):
        raise damaged(path, f"its images have shape {images.shape} instead of {(RECORDS, PIXELS)}")
    # Looked at one by one: numpy would unfold lists of lists of lists, which a small file can make endless.
    if not isinstance(labels, list) or len(labels) != RECORDS or not all(_is_byte(label) for label in labels):
        raise damaged(path, f"its labels are no list of {RECORDS} small numbers")
    return images.reshape(-1, *SHAPE), np.array(labels, np.uint8)


def _is_byte(value: object) -> bool:
    return type(value) is int and 0 <= value <= 255
