"""What the benchmark runs in a process of its own: ``python -m smgopt.lab.bench_task TASK``."""

import json
import resource
import sys
import time
from collections.abc import Callable

import torch

import smgopt
from smgopt.lab import bench


def gradients(rounds: str) -> None:
    """Print the times of the gradients as JSON."""
    print(json.dumps(bench.gradients_here(int(rounds))))


def memory() -> None:
    """Print the peak of resident memory, in megabytes, of 3 gradients of 65,536 blocks with checkpoints."""
    stack = smgopt.ResidualStack(bench.WIDTH, 65_536, checkpoint=True)
    gradient = bench.gradient_of(stack)
    for _ in range(3):
        gradient()
    # Kilobytes on Linux, bytes on macOS.
    unit = 1e6 if sys.platform == "darwin" else 1e3
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit)


def train() -> None:
    """Warm up, wait for a line of input, and print the seconds that some 8-level cycles take."""
    opt, loss = bench.problem()
    opt.step(loss)
    print("ready", flush=True)
    sys.stdin.readline()
    start = time.perf_counter()
    for _ in range(40):
        opt.step(loss)
    print(time.perf_counter() - start)


if __name__ == "__main__":
    torch.manual_seed(0)
    tasks: dict[str, Callable[..., None]] = {"gradients": gradients, "memory": memory, "train": train}
    tasks[sys.argv[1]](*sys.argv[2:])
