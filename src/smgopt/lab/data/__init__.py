"""The data sets of the laboratory, by name, and a user's own.

========================  ===================================================================================
``"mnist1d"``             signals of 40 numbers, made on the machine, standardised by the package
``"mnist"``               1 × 28 × 28, from [0, 1], less 0.1307 and divided by 0.3081
``"fashion-mnist"``       1 × 28 × 28, standardised by the mean and standard deviation of its training images
``"cifar10"``             3 × 32 × 32, the same, channel by channel
a path                    a ``.npz`` with x, y, x_test and y_test, or a folder that holds one; taken as it is
========================  ===================================================================================
"""

from __future__ import annotations

import difflib
import os
from pathlib import Path
from typing import TYPE_CHECKING

from smgopt.lab.data import images, mnist1d, npz
from smgopt.lab.data.dataset import Dataset, batches
from smgopt.lab.data.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["NAMES", "DataError", "Dataset", "batches", "load"]

_LOADERS: dict[str, Callable[[Path, bool], Dataset]] = {
    "mnist": lambda root, download: images.load_idx(images.MNIST, root, download),
    "fashion-mnist": lambda root, download: images.load_idx(images.FASHION, root, download),
    "cifar10": images.load_cifar10,
}
NAMES = ("mnist1d", *_LOADERS)


def load(
    name: str | os.PathLike[str], root: str | os.PathLike[str] | None = None, *, download: bool = False
) -> Dataset:
    """The data set of that name, or the one in a user's file.

    Args:
        name: one of ``NAMES``, or the path of a ``.npz`` file or of a folder that holds one. A name wins over
            a folder that is called the same; write ``./mnist`` for the folder.
        root: the folder that holds ``MNIST/raw``, ``FashionMNIST/raw`` and ``cifar-10-batches-bin`` or
            ``cifar-10-batches-py``, as torchvision lays them out. Without it, the environment variable
            ``SMGOPT_DATA`` names the folder, and without that it is the user's cache.
        download: whether missing files may be fetched. Files of a data set that are there are never replaced.

    Returns:
        The data in memory. Images keep their shape; ``flat()`` turns them into vectors.

    Raises:
        DataError: the name is unknown, files are missing or damaged, or a download failed.

    Example:
        >>> load("mnist1d")
        Dataset('mnist1d': 4000 to train, 1000 to test, shape (40,), 10 classes)
        >>> load("minst")  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        smgopt.lab.data.errors.DataError: unknown data set 'minst', did you mean 'mnist'? Known: ...
    """
    if name == "mnist1d":
        return mnist1d.make()
    if isinstance(name, str) and name in _LOADERS:
        folder = _root(root)
        try:
            return _LOADERS[name](folder, download)
        except OSError as error:
            raise DataError(f"{name}: {folder} cannot be used: {error.strerror or error}") from error
    if _is_path(name):
        return npz.read(_expanded(name))
    near = difflib.get_close_matches(str(name).lower(), NAMES, n=1)
    hint = f", did you mean {near[0]!r}?" if near else "."
    raise DataError(f"unknown data set {name!r}{hint} Known: {', '.join(NAMES)}, or the path of a .npz file")


def _is_path(name: str | os.PathLike[str]) -> bool:
    """Whether this is a path, or looks as if it were meant to be one."""
    path = Path(name)
    if not isinstance(name, str) or path.suffix == ".npz" or "/" in name or os.sep in name:
        return True
    try:
        return name != "" and path.exists()
    except OSError:  # a name that no file could have
        return False


def _expanded(path: str | os.PathLike[str]) -> Path:
    """The path with ~ and ~user replaced."""
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        raise DataError(f"{path} cannot be found: {error}") from error


def _root(root: str | os.PathLike[str] | None) -> Path:
    """The folder of the data sets."""
    chosen = root or os.environ.get("SMGOPT_DATA")
    if chosen:
        return _expanded(chosen)
    import pooch  # type: ignore[import-untyped]

    return Path(pooch.os_cache("smgopt"))
