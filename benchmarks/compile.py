"""Whether `hier.compile()` pays: cycles as they are and compiled, in turns.

    python benchmarks/compile.py results/compile.json

Needs a C++ compiler, as torch.compile does on the CPU. What is compared is a whole cycle after the first
ones, which compile everything; their seconds are recorded, too.
"""

import copy
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import smgopt
from smgopt.lab.bench import alternate, machine, ratio

ROUNDS, LEVELS = 15, 3


class Encoder(nn.Module):
    """A small transformer encoder on sequences of vectors."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 8, enable_nested_tensor=False)
        self.closing = nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        """The classes' scores."""
        scores: Tensor = self.closing(self.encoder(x).mean(1))
        return scores


PROBLEMS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "ConvResNet, 3 × 4 blocks, width 8, 64 images of 28 × 28": (
        lambda: smgopt.ConvResNet(1, 10, width=8, depth=4),
        (64, 1, 28, 28),
    ),
    "TransformerEncoder, 8 layers, width 64, 32 sequences of 32": (Encoder, (32, 32, 64)),
    "ResNet, 256 blocks, width 10, batch 1,000": (lambda: smgopt.ResNet(784, 10, 10, 256), (1000, 784)),
}


def cycles(net: nn.Module, x: Tensor, y: Tensor, compiled: bool) -> Callable[[], object]:
    """One cycle on a copy of a network, over and over."""
    hier = smgopt.Hierarchy(copy.deepcopy(net), LEVELS)
    if compiled:
        hier.compile()
    opt = smgopt.SMGOpt(hier, lr=0.01)
    return lambda: opt.step(lambda network: F.cross_entropy(network(x), y))


def main(file: Path) -> None:
    """Measure, print a line a network, and write all of it."""
    torch.manual_seed(0)
    results = {}
    for name, (make, shape) in PROBLEMS.items():
        net, x, y = make(), torch.randn(shape), torch.randint(10, shape[:1])
        plain, compiled = (cycles(net, x, y, compiled) for compiled in (False, True))
        start = time.perf_counter()
        for _ in range(3):
            compiled()
        first = time.perf_counter() - start
        times = alternate({"plain": plain, "compiled": compiled}, ROUNDS)
        gain = ratio(times["plain"], times["compiled"])
        results[name] = {"ratio": gain, "first_three_cycles": first, **times}
        ms = {side: 1e3 * statistics.median(seconds) for side, seconds in times.items()}
        print(
            f"{name}: {ms['plain']:.1f} ms as it is, {ms['compiled']:.1f} ms compiled, "
            f"{gain:.2f} times as fast; compiled in {first:.0f} s"
        )
    file.write_text(json.dumps({"results": results, "machine": machine()}, indent=1) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
