"""A user's own data set: a ``.npz`` with the arrays x, y, x_test and y_test."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from smgopt.lab.data.dataset import Dataset
from smgopt.lab.data.errors import DataError, unreadable

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

ARRAYS = ("x", "y", "x_test", "y_test")


def read(path: Path) -> Dataset:
    """The data set in a ``.npz`` file, or in the only one of a folder; inputs as they are, not scaled.

    Args:
        path: the file or folder. x and x_test hold finite numbers, one input a row; y and y_test their
            classes, numbered from 0.

    Raises:
        DataError: there is no such file, it is damaged, or its arrays are no data set.
    """
    path = _find(path)
    arrays = _arrays(path)
    y, y_test = _labels(path, "y", arrays["y"]), _labels(path, "y_test", arrays["y_test"])
    classes = int(y.max()) + 1
    if y_test.max() >= classes:
        raise DataError(f"{path}: y_test has the label {y_test.max()}, the largest of y is {classes - 1}")
    # A network gets an output a class, so that numbers that only name the examples would fill the memory.
    if classes > max(1000, len(y)):
        raise DataError(f"{path}: y has {classes} classes for {len(y)} inputs; number the classes from 0")
    x, x_test = _inputs(path, "x", arrays["x"]), _inputs(path, "x_test", arrays["x_test"])
    try:
        return Dataset(path.stem, x, y, x_test, y_test, classes)
    except DataError as error:
        raise DataError(f"{path}: {error}") from error


def _find(path: Path) -> Path:
    """The file itself, or the only ``.npz`` in the folder."""
    try:
        if not path.is_dir():
            return path
        found = sorted(path.glob("*.npz"))
    except OSError as error:
        raise unreadable(path, error) from error
    if len(found) != 1:
        names = ", ".join(file.name for file in found) or "none"
        raise DataError(f"{path} should hold one .npz file, it holds {names}: name the file itself")
    return found[0]


def _arrays(path: Path) -> dict[str, NDArray[Any]]:
    """The four arrays; pickled ones are refused."""
    try:
        # Opened here, because numpy leaves a file open that it cannot make sense of.
        with path.open("rb") as stream:
            content = np.load(stream, allow_pickle=False)
            if not isinstance(content, np.lib.npyio.NpzFile):
                raise ValueError("it is a single array, not a .npz")
            missing = [name for name in ARRAYS if name not in content]
            if missing:
                raise DataError(
                    f"{path} lacks {', '.join(missing)} (it holds {', '.join(content) or 'nothing'}): "
                    "write it with numpy.savez(file, x=…, y=…, x_test=…, y_test=…)"
                )
            return {name: content[name] for name in ARRAYS}
    except DataError:
        raise
    except FileNotFoundError as error:
        raise DataError(f"{path} is missing: name a .npz file or the folder that holds one") from error
    # A damaged archive fails in a dozen ways (zipfile, zlib, numpy's header, memory): one sentence for all.
    except Exception as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise unreadable(path, error) from error
        reason = " ".join(str(error).split()) or type(error).__name__
        raise DataError(
            f"{path} is damaged or holds something else than plain arrays ({reason}): "
            "write it again with numpy.savez"
        ) from error


def _inputs(path: Path, name: str, array: NDArray[Any]) -> Tensor:
    """Inputs as float32."""
    if array.dtype.kind not in "biuf":
        raise DataError(f"{path}: {name} is of type {array.dtype}, numbers wanted")
    with np.errstate(over="ignore"):
        x = np.ascontiguousarray(array, dtype=np.float32)
    bad = x.size - int(np.isfinite(x).sum())
    if bad:
        raise DataError(f"{path}: {name} has {bad} values that are NaN, infinite or too large for float32")
    return torch.from_numpy(x)


def _labels(path: Path, name: str, array: NDArray[Any]) -> Tensor:
    """Labels as int64."""
    if array.dtype.kind not in "iu" or array.ndim != 1 or array.size == 0:
        raise DataError(
            f"{path}: {name} is {array.dtype} of shape {array.shape}, one whole number for each input wanted"
        )
    if array.min() < 0 or array.max() > np.iinfo(np.int32).max:
        raise DataError(
            f"{path}: {name} has labels in {array.min()} … {array.max()}; number the classes from 0"
        )
    return torch.from_numpy(np.ascontiguousarray(array, dtype=np.int64))
