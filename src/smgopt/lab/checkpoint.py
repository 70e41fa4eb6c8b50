"""Checkpoints: two files that nobody has to trust.

``cycle-00000300.safetensors`` holds all tensors, ``cycle-00000300.json`` everything else and the SHA-256 of
both. The JSON file is written last: a checkpoint without it does not exist. Neither file can hold code.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import safetensors.torch
from safetensors import SafetensorError
from torch import Tensor

from smgopt.lab.errors import RunError
from smgopt.lab.files import write_atomically

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

#: Changes when an older smgopt could not read what this one writes.
FORMAT = 1


@dataclass(frozen=True)
class Checkpoint:
    """What a checkpoint holds.

    Attributes:
        cycle: after how many cycles it was made.
        facts: everything that is not the trainer's: what the JSON file says under ``facts``.
        state: the trainer's state, tensors included.
    """

    cycle: int
    facts: dict[str, Any]
    state: dict[str, Any]


def save(folder: Path, checkpoint: Checkpoint) -> None:
    """Write a checkpoint into a folder that exists.

    Raises:
        RunError: it cannot be written; older checkpoints are untouched.
    """
    tensors: dict[str, Tensor] = {}
    state = encode(checkpoint.state, tensors)
    content = safetensors.torch.save(tensors)
    known = {
        "format": FORMAT,
        "cycle": checkpoint.cycle,
        "facts": checkpoint.facts,
        "state": state,
        "tensors": hashlib.sha256(content).hexdigest(),
    }
    stem = f"cycle-{checkpoint.cycle:08d}"
    write_atomically(folder / f"{stem}.safetensors", content)
    text = json.dumps({"checksum": _checksum(known), "content": known}, indent=1)
    write_atomically(folder / f"{stem}.json", text.encode())


def cycles(folder: Path) -> list[int]:
    """The cycles of the checkpoints in a folder, latest first; whether they are whole is not known yet."""
    names = (path.name for path in folder.glob("cycle-*.json"))
    return sorted((int(m[1]) for m in map(_NAME.fullmatch, names) if m), reverse=True)


def load(folder: Path, cycle: int) -> Checkpoint:
    """Read a checkpoint.

    Raises:
        RunError: it is not what was written, and how that shows.
    """
    path = folder / f"cycle-{cycle:08d}.json"
    try:
        written = json.loads(path.read_bytes())
        known = written["content"]
        if written["checksum"] != _checksum(known):
            raise RunError(f"{path} is damaged: its checksum is wrong")
        if known["format"] != FORMAT:
            raise RunError(f"{path} has format {known['format']}, this smgopt reads {FORMAT}")
        if known["cycle"] != cycle:
            raise RunError(f"{path} belongs to cycle {known['cycle']}")
        content = path.with_suffix(".safetensors").read_bytes()
        if hashlib.sha256(content).hexdigest() != known["tensors"]:
            raise RunError(f"{path.with_suffix('.safetensors')} is damaged: its checksum is wrong")
        state = decode(known["state"], safetensors.torch.load(content))
        return Checkpoint(known["cycle"], known["facts"], state)
    except OSError as error:
        raise RunError(f"{error.filename} cannot be read: {error.strerror or error}") from error
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError, SafetensorError) as error:
        raise RunError(f"{path} is damaged: it is no checkpoint") from error


def prune(folder: Path, keep: Collection[int]) -> None:
    """Delete all checkpoints but some, and whatever a killed process left of one."""
    stems = {f"cycle-{cycle:08d}" for cycle in keep}
    for path in folder.iterdir():
        if (
            path.name.lstrip(".").startswith("cycle-")
            and path.name.lstrip(".").partition(".")[0] not in stems
        ):
            path.unlink(missing_ok=True)


def encode(tree: Any, tensors: dict[str, Tensor], name: str = "") -> Any:
    """A tree of dicts, lists, tuples, plain values and tensors as JSON can hold it.

    Args:
        tree: what to encode.
        tensors: takes the tensors, by their path in the tree.
        name: the path so far.

    Raises:
        TypeError: the tree holds another thing.

    Example:
        >>> tensors = {}
        >>> encode({"lr": (0.1, 1), 0: Tensor([2.0])}, tensors)
        {'dict': [['lr', {'tuple': [0.1, 1]}], [0, {'tensor': '0'}]]}
        >>> tensors
        {'0': tensor([2.])}
    """
    if tree is None or isinstance(tree, bool | int | float | str):
        return tree
    if isinstance(tree, Tensor):
        # A copy, because two names may share memory, which safetensors refuses.
        tensors[name] = tree.detach().clone().contiguous()
        return {"tensor": name}
    prefix = f"{name}." if name else ""
    if isinstance(tree, dict):
        return {"dict": [[key, encode(value, tensors, f"{prefix}{key}")] for key, value in tree.items()]}
    if isinstance(tree, list | tuple):
        parts = [encode(value, tensors, f"{prefix}{i}") for i, value in enumerate(tree)]
        return {"tuple" if isinstance(tree, tuple) else "list": parts}
    raise TypeError(f"a checkpoint cannot hold {type(tree).__name__} ({name})")


def decode(code: Any, tensors: dict[str, Tensor]) -> Any:
    """The tree that was encoded.

    Raises:
        LookupError, ValueError, TypeError, AttributeError: it was not ``encode`` that wrote this.

    Example:
        >>> decode({"dict": [["lr", {"tuple": [0.1, {"tensor": "lr.1"}]}]]}, {"lr.1": Tensor([2.0])})
        {'lr': (0.1, tensor([2.]))}
    """
    if not isinstance(code, dict):
        return code
    ((kind, parts),) = code.items()
    if kind == "tensor":
        return tensors[parts]
    if kind == "dict":
        return {key: decode(value, tensors) for key, value in parts}
    made = [decode(value, tensors) for value in parts]
    return {"list": list, "tuple": tuple}[kind](made)


_NAME = re.compile(r"cycle-(\d+)\.json")


def _checksum(known: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(known, sort_keys=True).encode()).hexdigest()
