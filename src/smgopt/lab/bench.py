"""How fast it is, as ratios: whatever is compared alternates in one run, so that the machine's noise cancels.

The network is the paper's: 2,048 blocks of width 10, a batch of 1,000, on all cores. ``MEANING`` says what is
measured, ``BARS`` what it should come to.
"""

import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import smgopt
from smgopt.objective import Objective

DEPTH, WIDTH, BATCH, LEVELS, CYCLES = 2048, 10, 1000, 8, 300
PRODUCT = 1536  # rows of the matrices whose product tells the machine's rate


class Bar(NamedTuple):
    """What a number must reach: at least, or at most."""

    value: float
    at_least: bool

    def holds(self, number: float) -> bool:
        """Whether it does."""
        return number >= self.value if self.at_least else number <= self.value

    def __str__(self) -> str:
        return f"{'≥' if self.at_least else '≤'} {self.value:g}"


MEANING = {
    "gradient.ratio": "a gradient as an eager nn.Sequential of blocks ÷ fused",
    "gradient.peak_fraction": "its arithmetic ÷ its time ÷ the rate of a large matrix product",
    "cycle.evaluation_fraction": "share of an 8-level cycle that goes into gradients and losses",
    "scaling.depth": "a gradient at 16,384 blocks ÷ 8 gradients at 2,048",
    "checkpoint.time_ratio": "a gradient at 16,384 blocks with checkpoints ÷ without",
    "memory.peak_mb_65536": "peak megabytes of 3 gradients of 65,536 blocks with checkpoints",
    "neighbours.slowdown": "a training run beside another one ÷ alone",
    "records.fraction": "share of a run that goes into evaluations, records and checkpoints",
}

BARS = {
    "gradient.ratio": Bar(18, True),
    "gradient.peak_fraction": Bar(0.5, True),
    "cycle.evaluation_fraction": Bar(0.9, True),
    "scaling.depth": Bar(1.2, False),
    "checkpoint.time_ratio": Bar(1.5, False),
    "memory.peak_mb_65536": Bar(2000, False),
    "neighbours.slowdown": Bar(2.5, False),
    "records.fraction": Bar(0.05, False),
}


class Block(nn.Module):
    """A residual block as one would write it without this library."""

    def __init__(self, width: int, dt: float) -> None:
        super().__init__()
        self.map, self.dt = nn.Linear(width, width), dt

    def forward(self, y: Tensor) -> Tensor:
        """One step y + Δt·relu(W y + b)."""
        return y + self.dt * torch.relu(self.map(y))


def run(rounds: int, say: Callable[[str], None]) -> dict[str, Any]:
    """Measure everything.

    Args:
        rounds: how often what is compared alternates.
        say: told what is measured next.

    Returns:
        A number for each key of ``BARS``, under ``"raw"`` the times in seconds that they came from, and under
        ``"machine"`` what they were measured on.
    """
    raw: dict[str, Any] = {}
    say("gradients")
    raw["gradient"] = gradient = gradients(rounds)
    results = {
        "gradient.ratio": ratio(gradient["eager"], gradient["fused"]),
        # A block's product and its two transposes on the way back, in multiply-adds.
        "gradient.peak_fraction": ratio(gradient["product"], gradient["fused"])
        * (3 * DEPTH * BATCH * WIDTH**2 / PRODUCT**3),
        "scaling.depth": ratio(gradient["deep"], gradient["fused"]) / 8,
        "checkpoint.time_ratio": ratio(gradient["checkpoint"], gradient["deep"]),
    }
    say("cycles")
    raw["cycle"] = cycles(rounds)
    results["cycle.evaluation_fraction"] = ratio(raw["cycle"]["evaluation"], raw["cycle"]["total"])
    say("memory")
    raw["memory"] = {"peak_mb": peak()}
    results["memory.peak_mb_65536"] = raw["memory"]["peak_mb"]
    say("neighbours")
    raw["neighbours"] = neighbours(max(2, rounds // 4))
    results["neighbours.slowdown"] = ratio(raw["neighbours"]["beside"], raw["neighbours"]["alone"])
    say("a run and its records")
    raw["records"] = times = records()
    results["records.fraction"] = times["overhead"] / (times["overhead"] + times["cycles"])
    return {**{key: results[key] for key in BARS}, "raw": raw, "machine": machine()}


def gradients(rounds: int) -> dict[str, list[float]]:
    """The seconds of each gradient, from a process whose OpenMP waits as it does in any program.

    An eager network starts thousands of parallel regions; where waiting threads sleep, as they do in ours, it
    takes several times as long. It is to be compared at its best.
    """
    ours = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")
    ordinary = {name: value for name, value in os.environ.items() if name not in ours}
    times: dict[str, list[float]] = json.loads(_task("gradients", str(rounds), env=ordinary).communicate()[0])
    return times


def gradients_here(rounds: int) -> dict[str, list[float]]:
    """The same, in this process."""
    return alternate(
        {
            "eager": gradient_of(nn.Sequential(*(Block(WIDTH, 1 / DEPTH) for _ in range(DEPTH)))),
            "fused": gradient_of(smgopt.ResidualStack(WIDTH, DEPTH)),
            "deep": gradient_of(smgopt.ResidualStack(WIDTH, 8 * DEPTH)),
            # Of shallower stacks the kernel keeps no more states without being asked.
            "checkpoint": gradient_of(smgopt.ResidualStack(WIDTH, 8 * DEPTH, checkpoint=True)),
            "product": product(),
        },
        rounds,
    )


def product() -> Callable[[], object]:
    """A matrix product large enough to run at the machine's rate."""
    a, b = torch.randn(PRODUCT, PRODUCT), torch.randn(PRODUCT, PRODUCT)
    return lambda: a @ b


def gradient_of(stack: nn.Module) -> Callable[[], object]:
    """One gradient of the sum of a stack's output, to its weights and its input."""
    y = torch.randn(BATCH, WIDTH, requires_grad=True)
    inputs = [y, *stack.parameters()]
    return lambda: torch.autograd.grad(stack(y).sum(), inputs)


def alternate(subjects: dict[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    """The seconds that each subject takes in each round, after one round that does not count.

    Each runs twice in a row and the second time counts, as training takes one gradient after another: what
    the subject before it left in the caches, or threads of its that still wait, belong to neither.
    """
    times: dict[str, list[float]] = {name: [] for name in subjects}
    for _ in range(rounds + 1):
        for name, subject in subjects.items():
            subject()
            start = time.perf_counter()
            subject()
            times[name].append(time.perf_counter() - start)
    return {name: seconds[1:] for name, seconds in times.items()}


def ratio(upper: list[float], lower: list[float]) -> float:
    """The median of the rounds' ratios."""
    return statistics.median(a / b for a, b in zip(upper, lower, strict=True))


def cycles(rounds: int) -> dict[str, list[float]]:
    """The seconds of each 8-level cycle, and of the evaluations in it."""
    opt, loss = problem()
    spent = 0.0

    def timed(method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            nonlocal spent
            start = time.perf_counter()
            try:
                return method(*args, **kwargs)
            finally:
                spent += time.perf_counter() - start

        return call

    evaluate, backward = Objective._evaluate, Objective._backward
    total, evaluation = [], []
    try:
        Objective._evaluate, Objective._backward = timed(evaluate), timed(backward)  # type: ignore[method-assign]
        for _ in range(rounds + 1):
            spent, start = 0.0, time.perf_counter()
            opt.step(loss)
            total.append(time.perf_counter() - start)
            evaluation.append(spent)
    finally:
        Objective._evaluate, Objective._backward = evaluate, backward  # type: ignore[method-assign]
    return {"total": total[1:], "evaluation": evaluation[1:]}


def problem() -> tuple[smgopt.SMGOpt, Callable[[nn.Module], Tensor]]:
    """The paper's network with 8 levels and Table 1, and a mini-batch as large as MNIST's."""
    torch.manual_seed(0)
    net = smgopt.ResNet(784, 10, WIDTH, DEPTH)
    x, y = torch.randn(BATCH, 784), torch.randint(10, (BATCH,))
    opt = smgopt.SMGOpt(smgopt.Hierarchy(net, LEVELS), 0.1, smoothing=smgopt.TABLE_1[LEVELS])
    return opt, lambda network: F.cross_entropy(network(x), y)


def peak() -> float:
    """The peak of resident memory, in megabytes, of a process that takes 3 gradients of 65,536 blocks."""
    return float(_task("memory").communicate()[0])


def neighbours(rounds: int) -> dict[str, list[float]]:
    """The seconds of a training run alone, and beside another one that starts with it."""
    alone, beside = [], []
    for _ in range(rounds):
        alone += _race(1)
        beside.append(statistics.mean(_race(2)))
    return {"alone": alone, "beside": beside}


def records() -> dict[str, float]:
    """The seconds that the paper's run spends in cycles and in all else, evaluated at the default interval.

    On noise of the shape of MNIST, because what the pixels are does not matter here.
    """
    from smgopt.lab import settings, train

    random = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "noise.npz"
        x = random.standard_normal((10 * BATCH, 784), np.float32)
        y = random.integers(10, size=10 * BATCH)
        np.savez(data, x=x, y=y, x_test=x, y_test=y)
        config = settings.make(
            data=str(data),
            batch=BATCH,
            depth=DEPTH,
            width=WIDTH,
            levels=LEVELS,
            smoothing="table-1",
            cycles=CYCLES,
        )
        last = train.run(config, Path(folder) / "run").metrics[-1]
    return {"cycles": last["seconds"], "overhead": last["overhead"]}


def _race(runners: int) -> list[float]:
    processes = [_task("train") for _ in range(runners)]
    for process in processes:
        assert process.stdout is not None
        process.stdout.readline()  # it has warmed up
    return [float(process.communicate("go\n")[0]) for process in processes]


def _task(name: str, *arguments: str, env: dict[str, str] | None = None) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "smgopt.lab.bench_task", name, *arguments],
        env=env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def machine() -> dict[str, Any]:
    """What the numbers were measured on."""
    return {
        "processor": platform.processor() or platform.machine(),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "smgopt": smgopt.__version__,
        "kernel": str(smgopt.ResidualStack(WIDTH, 1)),
    }
