"""What the options of a cycle do, one changed at a time: MNIST, 256 and 1,024 blocks, five seeds.

    SMGOPT_DATA=… python benchmarks/options.py results/options

writes ``options.json``, all numbers, and ``options.md``, the tables of docs/options.md.
"""

import json
import statistics
import sys
from itertools import chain, islice, repeat
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

import smgopt
from smgopt.lab import data

SEEDS, CYCLES, AT = range(1, 6), 100, (5, 10, 50, 100)
DEFAULT: dict[str, Any] = {
    "coupling": "consistent",
    "gradient_restriction": "adjoint",
    "boundary": "zero",
    "sufficient_decrease": 0.5,
}
CHANGES: dict[str, dict[str, Any]] = {
    "default: consistent, adjoint, zero, c₁ = 0.5": {},
    "coupling: paper": {"coupling": "paper"},
    "gradients: injection": {"gradient_restriction": "injection"},
    "the paper's: coupling paper, injection": {"coupling": "paper", "gradient_restriction": "injection"},
    "boundary: constant": {"boundary": "constant"},
    "c₁ = 10⁻⁴": {"sufficient_decrease": 1e-4},
    "no line search (FAS)": {"line_search": False},
}


def train(ds: data.Dataset, depth: int, levels: int, seed: int, options: dict[str, Any]) -> dict[str, Any]:
    """Test accuracies after the cycles of ``AT``, the mean loss of the last ten, and the corrections."""
    torch.manual_seed(seed)
    net = smgopt.ResNet(ds.x[0].numel(), ds.classes, width=10, depth=depth)
    hier = smgopt.Hierarchy(net, levels)
    opt = smgopt.SMGOpt(hier, lr=0.1, smoothing=smgopt.TABLE_1[levels], **options)
    generator = torch.Generator().manual_seed(seed)
    batches = chain.from_iterable(data.batches(ds.x, ds.y, 1000, generator) for _ in repeat(None))
    accuracies, losses, rejected = [], [], 0
    for cycle, (x, y) in enumerate(islice(batches, CYCLES), 1):
        losses.append(opt.step(lambda network, x=x, y=y: F.cross_entropy(network(x), y)).item())  # type: ignore[misc]
        rejected += sum(c is not None and c.alpha < 1 for c in opt.last_cycle)
        if cycle in AT:
            with torch.no_grad():
                accuracies.append(100 * (net(ds.x_test).argmax(1) == ds.y_test).double().mean().item())
    return {
        "accuracies": accuracies,
        "loss": statistics.mean(losses[-10:]),
        "shortened": rejected / (CYCLES * (levels - 1)),
        "forwards": opt.work.forwards / depth / CYCLES,
    }


def table(runs: dict[str, list[dict[str, Any]]]) -> str:
    """The means over seeds, with the standard deviation of the last accuracy."""
    cycles = "".join(f" {c} cycles |" for c in AT)
    lines = [f"| |{cycles} loss | shortened | forwards |", "| --- |" + " ---: |" * (len(AT) + 3)]
    for name, results in runs.items():
        mean = [statistics.mean(r["accuracies"][i] for r in results) for i in range(len(AT))]
        spread = statistics.stdev(r["accuracies"][-1] for r in results)
        numbers = [*(f"{m:.2f}" for m in mean[:-1]), f"{mean[-1]:.2f} ± {spread:.2f}"]
        numbers.append(f"{statistics.mean(r['loss'] for r in results):.4f}")
        numbers.append(f"{statistics.mean(r['shortened'] for r in results):.1%}")
        numbers.append(f"{statistics.mean(r['forwards'] for r in results):.2f}")
        lines.append(f"| {name} | " + " | ".join(numbers) + " |")
    return "\n".join(lines)


def main(out: Path) -> None:
    """Run everything and write both files."""
    torch.set_num_threads(1)
    ds = data.load("mnist").flat()
    record: dict[str, Any] = {}
    pages = []
    for depth, levels in ((256, 4), (256, 8), (1024, 8)):
        title = f"{depth:,} blocks, {levels} levels"
        runs = {
            name: [train(ds, depth, levels, seed, {**DEFAULT, **change}) for seed in SEEDS]
            for name, change in CHANGES.items()
        }
        record[title] = runs
        pages.append(f"### {title}\n\n{table(runs)}\n")
        print(pages[-1], flush=True)
    out.mkdir(parents=True, exist_ok=True)
    (out / "options.json").write_text(
        json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8"
    )
    (out / "options.md").write_text("\n".join(pages), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
