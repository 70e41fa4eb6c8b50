"""MNIST-1D, made on the machine in a second: nothing to download."""

from __future__ import annotations

import random
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np
import torch

from smgopt.lab.data.dataset import Dataset

if TYPE_CHECKING:
    from collections.abc import Iterator


def make() -> Dataset:
    """4,000 signals to train and 1,000 to test, each of 40 numbers; the same ones every time."""
    with _random_states_kept():
        # Not at the top: it imports matplotlib, for a second and a half.
        from mnist1d.data import get_dataset_args, make_dataset

        args = get_dataset_args()
        args.num_samples, args.train_split, args.final_seq_length = 5_000, 0.8, 40
        made = make_dataset(args)
    return Dataset(
        "mnist1d",
        torch.tensor(made["x"], dtype=torch.float32),
        torch.tensor(made["y"], dtype=torch.int64),
        torch.tensor(made["x_test"], dtype=torch.float32),
        torch.tensor(made["y_test"], dtype=torch.int64),
        classes=10,
    )


@contextmanager
def _random_states_kept() -> Iterator[None]:
    """Gives the global generators back as they were: the package seeds both."""
    python, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002 (the state that is to be kept)
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)  # noqa: NPY002
