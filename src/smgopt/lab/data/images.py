"""MNIST, Fashion-MNIST and CIFAR-10 from folders laid out as torchvision's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from smgopt.lab.data import cifar, idx
from smgopt.lab.data.dataset import Dataset
from smgopt.lab.data.errors import DataError, damaged

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from smgopt.lab.data.cifar import Bytes

CLASSES = 10


@dataclass(frozen=True)
class Images:
    """What distinguishes one set of images from another.

    Args:
        name: what the data set is called.
        folder: where its files lie below the root.
        mean: of the training pixels scaled to [0, 1], one number a channel.
        std: their standard deviation.
        megabytes: the size of the download.
    """

    name: str
    folder: str
    mean: tuple[float, ...]
    std: tuple[float, ...]
    megabytes: int

    def scaled(self, pixels: Bytes) -> Tensor:
        """Pixels as float32 of about mean 0 and standard deviation 1."""
        mean, std = (torch.tensor(numbers).reshape(-1, 1, 1) for numbers in (self.mean, self.std))
        return torch.tensor(pixels, dtype=torch.float32).div_(255).sub_(mean).div_(std)

    def missing(self, folder: Path, files: Sequence[str]) -> DataError:
        """The error for files that are not there, without the permission to download them."""
        return DataError(
            f"{self.name}: {folder} lacks {', '.join(files)}: load with download=True ({self.megabytes} MB), "
            f"or let root or SMGOPT_DATA name the folder that holds {self.folder}"
        )


# Mean and standard deviation of pixels / 255 over the 60,000 or 50,000 training images, channel by channel,
# in float64, rounded to four digits. Those of the first two are computed from the original pixels. CIFAR-10's
# are the published ones: a copy that went through JPEG has means within 0.0002 of them, and up to 0.002 less
# deviation, as smoothing would have it.
MNIST = Images("mnist", "MNIST/raw", (0.1307,), (0.3081,), 12)
FASHION = Images("fashion-mnist", "FashionMNIST/raw", (0.2860,), (0.3530,), 31)
CIFAR10 = Images("cifar10", "cifar-10-batches-bin", (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616), 170)


def load_idx(images: Images, root: Path, download: bool) -> Dataset:
    """MNIST or Fashion-MNIST, from gzipped or unpacked IDX files."""
    folder = root / images.folder
    stems = [f"{part}-{what}-ubyte" for part in ("train", "t10k") for what in ("images-idx3", "labels-idx1")]
    # The gzipped file first: it carries a checksum, the unpacked one does not.
    candidates = {stem: [folder / f"{stem}.gz", folder / stem] for stem in stems}
    missing = [f"{stem}.gz" for stem, paths in candidates.items() if not any(path.exists() for path in paths)]
    if missing:
        if not download:
            raise images.missing(folder, missing)
        _fetch(images, folder, missing)
    train_x, train_y, test_x, test_y = (
        next((path for path in paths if path.exists()), paths[0]) for paths in candidates.values()
    )

    def part(x: Path, y: Path) -> tuple[Bytes, Bytes]:
        pixels, labels = idx.read(x, (28, 28)), idx.read(y, ())
        if len(pixels) != len(labels):
            raise damaged(y, f"it has {len(labels)} labels for the {len(pixels)} images of {x.name}")
        return pixels[:, None], _in_range(y, labels)

    return _dataset(images, part(train_x, train_y), part(test_x, test_y))


def load_cifar10(root: Path, download: bool) -> Dataset:
    """CIFAR-10, from its binary version or else from its Python version."""
    binary, python = root / CIFAR10.folder, root / "cifar-10-batches-py"
    names = (*cifar.TRAIN, *cifar.TEST)
    missing = [f"{name}.bin" for name in names if not (binary / f"{name}.bin").exists()]
    read: Callable[[Path], tuple[Bytes, Bytes]] = cifar.read_binary
    folder, suffix = binary, ".bin"
    if missing and all((python / name).exists() for name in names):
        read, folder, suffix = cifar.read_python, python, ""
    elif missing:
        if not download:
            raise CIFAR10.missing(binary, missing)
        _fetch_cifar10(root, binary, missing)

    def part(names: Sequence[str]) -> tuple[Bytes, Bytes]:
        pixels, labels = [], []
        for path in (folder / f"{name}{suffix}" for name in names):
            x, y = read(path)
            pixels.append(x)
            labels.append(_in_range(path, y))
        return np.concatenate(pixels), np.concatenate(labels)

    return _dataset(CIFAR10, part(cifar.TRAIN), part(cifar.TEST))


def _fetch(images: Images, folder: Path, files: Sequence[str]) -> None:
    # Not at the top: most runs have their data already and need none of the machinery for HTTP.
    from smgopt.lab.data import download

    download.fetch(images.name, folder, files)


def _fetch_cifar10(root: Path, folder: Path, missing: Sequence[str]) -> None:
    from smgopt.lab.data import download

    download.fetch(CIFAR10.name, root, [download.CIFAR_ARCHIVE])
    download.unpack(root / download.CIFAR_ARCHIVE, folder, missing, cifar.RECORDS * (1 + cifar.PIXELS))


def _in_range(path: Path, labels: Bytes) -> Bytes:
    """The labels, after a look at the largest."""
    if labels.max() >= CLASSES:
        raise damaged(path, f"it has the label {labels.max()}, there are {CLASSES} classes")
    return labels


def _dataset(images: Images, train: tuple[Bytes, Bytes], test: tuple[Bytes, Bytes]) -> Dataset:
    (x, y), (x_test, y_test) = train, test
    labels, labels_test = (torch.tensor(numbers, dtype=torch.int64) for numbers in (y, y_test))
    return Dataset(images.name, images.scaled(x), labels, images.scaled(x_test), labels_test, CLASSES)
