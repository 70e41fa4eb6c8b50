"""What several tests of runs share."""

import hashlib
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from smgopt.lab.config import Config
from smgopt.lab.progress import Progress
from smgopt.lab.runs import Run

Make = Callable[..., Config]

CLOCKS = ("seconds", "overhead")


def numbers(folder: Path) -> dict[str, Any]:
    """All that a run computed: its records without the clock, and the last weights bit for bit."""
    run = Run(folder)
    weights = sorted((folder / "checkpoints").glob("*.safetensors"))[-1]
    return {
        "metrics": [{k: v for k, v in record.items() if k not in CLOCKS} for record in run.metrics],
        "cycles": [{k: v for k, v in record.items() if k not in CLOCKS} for record in run.cycles],
        "weights": (weights.name, hashlib.sha256(weights.read_bytes()).hexdigest()),
    }


class Signal(Progress):
    """Sends a signal to this process when a cycle is done; keeps what is said."""

    def __init__(self, at: int = -1, number: int = signal.SIGINT) -> None:
        self.at, self.number = at, number
        self.said: list[str] = []
        self.ended: list[str] = []

    def cycle(self, record: dict[str, Any]) -> None:
        if record["cycle"] == self.at:
            signal.raise_signal(self.number)

    def say(self, sentence: str) -> None:
        self.said.append(sentence)

    def done(self, why: str) -> None:
        self.ended.append(why)
