"""A run that takes a blink: 60 samples of 6 numbers, two levels of 4 and 2 blocks."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from smgopt.lab import settings
from smgopt.lab.config import Config
from tests.lab.support import Make


@pytest.fixture(scope="session")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    random = np.random.default_rng(0)
    y = random.integers(3, size=80)
    x = (random.normal(size=(80, 6)) + y[:, None]).astype(np.float32)
    path = tmp_path_factory.mktemp("data") / "tiny.npz"
    np.savez(path, x=x[:60], y=y[:60], x_test=x[60:], y_test=y[60:])
    return path


@pytest.fixture
def make(samples: Path) -> Make:
    def made(**changes: Any) -> Config:
        tiny = {"data": str(samples), "batch": 20, "width": 3, "depth": 4, "levels": 2, "cycles": 8}
        return settings.make(None, **{**tiny, "evaluate": 2, "threads": 1, "checkpoint": 0, **changes})

    return made
