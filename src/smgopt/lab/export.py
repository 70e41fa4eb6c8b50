"""One network out of a run, as a file that needs neither the run nor, but for safetensors, smgopt.

================  ============================================================================================
``.safetensors``  the weights, with what ``load`` rebuilds the network from
``.onnx``         for onnxruntime and others; input ``x``, output ``y``
``.pt2``          a program for ``torch.export.load``
================  ============================================================================================

The files take batches of any size. ONNX files and programs run the blocks in a loop, so that 2,048 blocks are
exported in seconds.
"""

from __future__ import annotations

import importlib
import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from pydantic import ValidationError
from safetensors import SafetensorError

import smgopt
from smgopt.lab.errors import InputError, RunError
from smgopt.lab.files import reported, write_atomically
from smgopt.lab.forms import FORMAT, FORMS, quiet, rebuilt

if TYPE_CHECKING:
    from os import PathLike

    from torch import nn

    from smgopt.lab.runs import Run

#: What a file may deviate from the network, relative to its largest answer; in float32 and over thousands of
#: blocks, sums in another order deviate by some 1e-6, and a wrong weight by far more than this.
TOLERANCE = 1e-4

# One input alone and many, because programs like to take the size that they were traced with for granted.
_BATCHES = (1, 64)


@dataclass(frozen=True)
class Exported:
    """What was written.

    Attributes:
        file: where.
        form: as what, a key of ``FORMS``.
        level: 0 is the coarsest.
        blocks: depth of the network.
        cycle: after how many cycles.
        size: of the file, in bytes.
        deviation: the largest difference between an answer of the file and of the network.
    """

    file: Path
    form: str
    level: int
    blocks: int
    cycle: int
    size: int
    deviation: float


def export(
    run: Run, file: Path, level: int = -1, form: str | None = None, complaints: list[str] | None = None
) -> Exported:
    """Write the network of one level to a file, after its content was run and compared with the network.

    Args:
        run: where the network comes from: its last good checkpoint.
        file: where it goes. Its old content is replaced at once or not at all.
        level: 0 is the coarsest, -1 the finest.
        form: a key of ``FORMS``; else by the file's suffix.
        complaints: takes a sentence for each checkpoint that is not good.

    Raises:
        InputError: there is no such level or form, or a package is missing.
        RunError: there is no good checkpoint, the content computes something else than the network, or the
            file cannot be written.
    """
    form = form_of(file, form)
    _refuse_missing(form)
    at = run.checkpoint(complaints)
    network = run.network(level, at).eval()
    levels = run.config.hierarchy.levels
    level %= levels
    section = run.config.network
    data = at.facts["data"]
    origin = {
        "format": FORMAT,
        "version": smgopt.__version__,
        "network": section.model_dump(),
        "levels": levels,
        "shape": data["shape"],
        "classes": data["classes"],
        "data": data["name"],
        "cycle": at.cycle,
        "level": level,
    }
    content, deviation = checked(network, form, json.dumps(origin), data["shape"])
    write_atomically(file, content)
    return Exported(
        file, form, level, section.blocks >> (levels - 1 - level), at.cycle, len(content), deviation
    )


def load(file: str | PathLike[str]) -> nn.Module:
    """The network in a ``.safetensors`` file that ``export`` has written.

    Raises:
        RunError: the file cannot be read, or is no such file.

    Example:
        >>> network = load("level-3.safetensors")  # doctest: +SKIP
        >>> network(torch.zeros(5, 1, 28, 28)).shape  # doctest: +SKIP
        torch.Size([5, 10])
    """
    with reported(f"{file} cannot be read"):
        content = Path(file).read_bytes()
    try:
        return rebuilt(content)
    except (ValueError, TypeError, LookupError, RuntimeError, RecursionError, SafetensorError) as error:
        raise RunError(f"{file} is no network that smgopt has exported: {_first_line(error)}") from error


def form_of(file: Path, form: str | None = None) -> str:
    """What a file shall be: a key of ``FORMS``.

    Raises:
        InputError: its suffix does not say, or there is no such form.

    Example:
        >>> form_of(Path("net.onnx"))
        'onnx'
    """
    known = ", ".join(FORMS)
    if form is not None and form not in FORMS:
        raise InputError(f"there is no format {form!r}; there are {known}")
    if form is None and file.suffix[1:] not in FORMS:
        raise InputError(
            f"the name {file.name} does not say in which format: end it with, or choose, {known}"
        )
    return form or file.suffix[1:]


def checked(network: nn.Module, form: str, origin: str, shape: list[int]) -> tuple[bytes, float]:
    """The content of a file that computes what a network computes.

    Args:
        network: it, ready for evaluation.
        form: a key of ``FORMS``.
        origin: the metadata, as JSON.
        shape: of one input.

    Returns:
        The content, and the largest deviation between its answers and the network's, seen on random inputs.

    Raises:
        RunError: it cannot be made, or deviates by more than ``TOLERANCE``.
    """
    generator = torch.Generator().manual_seed(0)
    batches = [torch.randn(size, *shape, generator=generator) for size in _BATCHES]
    kind = FORMS[form]
    with quiet(), torch.no_grad():
        try:
            content = kind.write(network, torch.zeros(2, *shape), origin)
            runs = kind.read(content)
            found = torch.cat([runs(x) for x in batches])
        except Exception as error:  # exporters and runtimes have many kinds of their own
            raise RunError(
                f"torch {torch.__version__} cannot export this network as {form}: {_first_line(error)}"
            ) from error
        wanted = torch.cat([network(x) for x in batches])
    deviation = (found - wanted).abs().max().item()
    # Put this way round because nothing is true of NaN.
    if not deviation <= TOLERANCE * max(1.0, wanted.abs().max().item()):
        raise RunError(
            f"nothing is written: as {form}, the network gives other answers, by up to {deviation:.2g}"
            if math.isfinite(deviation)
            else "nothing is written: answers to random inputs are not finite"
        )
    return content, deviation


def _refuse_missing(form: str) -> None:
    for package in FORMS[form].needs:
        try:
            importlib.import_module(package)
        except ImportError as error:
            raise InputError(
                f"exporting as {form} needs {package}, which cannot be imported ({error}); "
                "install it with: pip install 'smgopt[export]'"
            ) from error


def _first_line(error: BaseException) -> str:
    if isinstance(error, ValidationError):
        return f"its configuration is not valid ({error.errors()[0]['msg']})"
    if isinstance(error, KeyError):
        return f"there is no {error} in it"
    return (str(error).strip() or type(error).__name__).splitlines()[0]
