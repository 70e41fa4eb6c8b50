"""TOML: read, written, and searched for the line where a key stands."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from smgopt.lab.errors import InputError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path


def read(path: Path) -> tuple[dict[str, Any], str]:
    """The contents of a file, and its text.

    Raises:
        InputError: it cannot be read, or is no TOML; the sentence names the line.
    """
    try:
        text = path.read_bytes().decode()
        return parse(text), text
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not text in UTF-8: byte {error.start} is wrong") from error
    except ValueError as error:
        raise InputError(f"{path} is not valid TOML: {error}") from error


def parse(text: str) -> dict[str, Any]:
    """The contents of a text.

    Raises:
        ValueError: it is no TOML.
    """
    try:
        return tomllib.loads(text)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def line_of(text: str, key: Sequence[str]) -> int | None:
    r"""The line in which the statement begins that gives ``key`` its value; None if there is none.

    The shortest beginning of the file that is valid and has the key ends with that statement, and what was
    valid before it ends where it begins. So the parser itself decides, whatever the layout of the file.

    Example:
        >>> text = "[run]\n# how long\ncycles = 3\nseed = [\n  1 ]"
        >>> line_of(text, ["run", "cycles"]), line_of(text, ["run", "seed"])
        (3, 4)
    """
    lines = text.split("\n")
    valid = 0
    for end in range(1, len(lines) + 1):
        try:
            found: Any = parse("\n".join(lines[:end]))
        except ValueError:
            continue
        for part in key:
            found = found.get(part) if isinstance(found, dict) else None
        if found is not None:
            return valid + 1
        valid = end
    return None


def write(tree: Mapping[str, Mapping[str, Any]]) -> str:
    """Sections of plain values as a text that ``parse`` reads back to the same.

    Example:
        >>> print(write({"run": {"seed": 1, "lr": [0.1, 1e-05], "tensorboard": False, "name": "a b"}}))
        [run]
        seed = 1
        lr = [0.1, 1e-05]
        tensorboard = false
        name = "a b"
        <BLANKLINE>
    """
    sections = [
        "\n".join([f"[{name}]", *(f"{key} = {shown(value)}" for key, value in section.items()), ""])
        for name, section in tree.items()
    ]
    return "\n".join(sections)


def shown(value: Any) -> str:
    """A plain value as TOML writes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str):
        # JSON's strings are TOML's but for one character, which JSON leaves as it is.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, list | tuple):
        return f"[{', '.join(shown(part) for part in value)}]"
    return str(value)  # a date or a time
